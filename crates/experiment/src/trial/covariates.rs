//! Possible disturbances of a trial, independent of its results. Not for their bounds: an
//! experiment has those.

use diagnose::figures as f;
use diagnose::window::SUBJECT;
use record::trial::Covariates;

use super::metrics::{error_fraction, generator_busiest_thread};
use super::trial_view::TrialView;
use crate::scenario::plan::{Node, Scenario};

/// Reads the covariates. `clock_step_s` is the difference between the wall clock and the monotonic
/// clock at the end.
pub(super) fn read_covariates(view: &TrialView<'_>, scenario: &Scenario, clock_step_s: f64) -> Covariates {
    let run = view.run();
    Covariates {
        steal_fraction: view.machines.mean_of_any(f::STEAL.read).or_else(|| run?.cpu.steal_fraction),
        // Noise processes of the scenario cannot be distinguished from foreign processes.
        foreign_cpus: match scenario.noise {
            Some(_) => None,
            None => view.machines.foreign_mean_of_any().or_else(|| run?.cpu.foreign_cpus),
        },
        // The processes of the scenario's noise have no role, and would be named.
        neighbours: match scenario.noise {
            Some(_) => Vec::new(),
            None => view.neighbours.to_vec(),
        },
        wake_up_p99_ns: view.machines.wake_up_lag_ns(SUBJECT).map(|ns| ns.round() as u64),
        // A closed loop has no due times: its lag figure is the time that it was at work.
        generator_lag_p99_ns: run
            .filter(|run| run.generator.lag_kind == "send")
            .map(|run| run.generator.lag_p99_ns),
        generator_part_fraction: run.and_then(|run| {
            run.generator.undelayed.as_ref()?.generator_part(&run.latency.last_byte.response)
        }),
        generator_busiest_fraction: generator_busiest_thread(view),
        error_fraction: error_fraction(view),
        throttled_fraction: match scenario.cpu_quotas.contains_key(&Node::Subject) {
            true => None,
            false => view.machines.role_mean(SUBJECT, f::THROTTLED_PERIODS.read),
        },
        clock_step_s: Some(clock_step_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::plan::{CpuQuota, Noise};
    use record::observed::{
        CgroupUse, CpuUse, MachineObservation, MachineSample, Neighbour, Role, RoleUse, WakeupLag,
    };
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
                neighbours: vec![Neighbour { name: "cc1".to_owned(), cpus: 1.1 }],
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
        assert_eq!(read.neighbours[0].name, "cc1");
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
        assert!(read.neighbours.is_empty());
        assert_eq!(
            read_covariates(&TrialView::new(&ExperimentTrial::default()), &scenario, 0.0).steal_fraction,
            None
        );
    }
}
