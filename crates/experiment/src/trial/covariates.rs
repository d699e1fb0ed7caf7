//! Possible disturbances of a trial, independent of its results. Not for their bounds: an
//! experiment has those.

use record::trial::Covariates;
use stats::median;

use super::metrics::{error_fraction, generator_busiest_thread};
use super::trial_view::{SUBJECT, TrialView};
use crate::scenario::plan::{Node, Scenario};

/// Reads the covariates. `clock_step_s` is the difference between the wall clock and the monotonic
/// clock at the end.
pub(super) fn read_covariates(view: &TrialView<'_>, scenario: &Scenario, clock_step_s: f64) -> Covariates {
    let run = view.run();
    let steal = view.sample_mean(|sample| {
        let cpu_count = sample.cpus.len() as f64;
        let sum: f64 = sample.cpus.iter().map(|cpu| cpu.steal).sum();
        (cpu_count > 0.0).then(|| sum / cpu_count)
    });
    let foreign = view.machine_mean(|observed, sample| view.foreign_cpus(observed, sample));
    Covariates {
        steal_fraction: steal.or_else(|| run?.cpu.steal_fraction),
        // Noise processes of the scenario cannot be distinguished from foreign processes.
        foreign_cpus: match scenario.noise {
            Some(_) => None,
            None => foreign.or_else(|| run?.cpu.foreign_cpus),
        },
        wake_up_p99_ns: wake_up_p99_ns(view),
        // A closed loop has no due times: its lag figure is the time that it was at work.
        generator_lag_p99_ns: run
            .filter(|run| run.generator.lag_kind == "send")
            .map(|run| run.generator.lag_p99_ns),
        generator_busiest_fraction: generator_busiest_thread(view),
        error_fraction: error_fraction(view),
        throttled_fraction: match scenario.cpu_quotas.contains_key(&Node::Subject) {
            true => None,
            false => view.role_mean(SUBJECT, |role| role.cgroup.as_ref()?.throttled_periods),
        },
        clock_step_s: Some(clock_step_s),
    }
}

/// Returns the maximum over the CPUs of the median of each CPU's samples.
fn wake_up_p99_ns(view: &TrialView<'_>) -> Option<u64> {
    let samples = view.samples();
    let cpus = samples.iter().flat_map(|sample| &sample.wakeup_lags).map(|one| one.cpu);
    let mut cpus: Vec<u32> = cpus.collect();
    cpus.sort_unstable();
    cpus.dedup();
    let median_of_cpu = |cpu: u32| {
        let all = samples.iter().flat_map(|sample| &sample.wakeup_lags);
        let lags = all.filter(|one| one.cpu == cpu).map(|one| one.lag_p99_ns as f64);
        median(&lags.collect::<Vec<f64>>()).map(|ns| ns.round() as u64)
    };
    cpus.into_iter().filter_map(median_of_cpu).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::plan::{CpuQuota, Noise};
    use record::observed::{CgroupUse, CpuUse, MachineObservation, MachineSample, Role, RoleUse, WakeupLag};
    use record::trial::ExperimentTrial;

    fn trial() -> ExperimentTrial {
        let sample = |end_s: f64, length_s: f64, steal, lags: [u64; 2]| MachineSample {
            time_s: end_s,
            length_s,
            cpus: vec![CpuUse { steal, ..CpuUse::default() }, CpuUse { cpu: 1, ..CpuUse::default() }],
            foreign_cpus: Some(steal / 2.0),
            wakeup_lags: lags
                .iter()
                .zip(0..)
                .map(|(&lag_p99_ns, cpu)| WakeupLag { cpu, lag_p99_ns, ..WakeupLag::default() })
                .collect(),
            roles: vec![RoleUse {
                cgroup: Some(CgroupUse { throttled_periods: Some(0.5), ..CgroupUse::default() }),
                ..RoleUse::default()
            }],
            ..MachineSample::default()
        };
        ExperimentTrial {
            duration_s: 4.0,
            observed: Some(MachineObservation {
                roles: vec![Role { name: SUBJECT.to_owned(), ..Role::default() }],
                samples: vec![
                    sample(1.0, 1.0, 0.4, [10, 99]),
                    sample(3.0, 2.0, 0.1, [20, 30]),
                    sample(4.0, 1.0, 0.0, [500, 40]),
                ],
                ..MachineObservation::default()
            }),
            ..ExperimentTrial::default()
        }
    }

    #[test]
    fn covariates_are_means_over_the_load() {
        let trial = trial();
        let read = read_covariates(&TrialView::new(&trial), &Scenario::default(), 0.25);
        let is_near = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 1e-12;
        assert!(is_near(read.steal_fraction, 0.075), "{read:?}");
        assert!(is_near(read.foreign_cpus, 0.075) && is_near(read.throttled_fraction, 0.5));
        assert_eq!(read.wake_up_p99_ns, Some(40), "medians are 20 and 40");
        assert_eq!((read.clock_step_s, read.error_fraction), (Some(0.25), None));
        assert_eq!((read.generator_lag_p99_ns, read.generator_busiest_fraction), (None, None));
    }

    #[test]
    fn effects_of_the_scenario_are_no_disturbance() {
        let noise = Noise { processes: 1, cpus: Vec::new() };
        let mut scenario = Scenario { noise: Some(noise), ..Scenario::default() };
        scenario.cpu_quotas.insert(Node::Subject, CpuQuota { cpus: 0.5, period_ns: 1_000_000 });
        let trial = trial();
        let read = read_covariates(&TrialView::new(&trial), &scenario, 0.0);
        assert_eq!((read.foreign_cpus, read.throttled_fraction), (None, None));
        assert_eq!(
            read_covariates(&TrialView::new(&ExperimentTrial::default()), &scenario, 0.0).steal_fraction,
            None
        );
    }
}
