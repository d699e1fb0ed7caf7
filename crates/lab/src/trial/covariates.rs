//! What could have disturbed a trial, whatever it measured. Not for bounds: an experiment has those.

use record::trial::Covariates;

use super::metrics::{error_share, generator_busiest};
use super::view::{SUBJECT, View};
use crate::scenario::plan::{Node, Scenario};

/// Reads them. `clock_step_s` is by how much the wall clock and the monotonic one differed at the end.
pub(super) fn read(view: &View<'_>, scenario: &Scenario, clock_step_s: f64) -> Covariates {
    let run = view.run();
    let steal = view.mean(|sample| {
        let processors = sample.cpus.len() as f64;
        let sum: f64 = sample.cpus.iter().map(|cpu| cpu.steal).sum();
        (processors > 0.0).then(|| sum / processors)
    });
    let foreign = view.mean(|sample| sample.foreign_cpus);
    Covariates {
        steal_share: steal.or_else(|| run?.cpu.steal_share),
        // Noise that the scenario makes is not its own programs', and cannot be told from others'.
        foreign_cpus: match scenario.noise {
            Some(_) => None,
            None => foreign.or_else(|| run?.cpu.foreign_cpus),
        },
        wake_up_p99_ns: wake_up_p99_ns(view),
        // A closed loop has no due times of its own: what it calls lag is how long it was at work.
        generator_lag_p99_ns: run
            .filter(|run| run.generator.lag_of == "send")
            .map(|run| run.generator.lag_p99_ns),
        generator_busiest_share: generator_busiest(view),
        error_share: error_share(view),
        throttled_share: match scenario.cpu_quotas.contains_key(&Node::Subject) {
            true => None,
            false => view.mean_of(SUBJECT, |role| role.cgroup.as_ref()?.throttled_periods),
        },
        clock_step_s: Some(clock_step_s),
    }
}

/// For each processor the median of its samples; of those the worst.
fn wake_up_p99_ns(view: &View<'_>) -> Option<u64> {
    let samples = view.samples();
    let processors = samples.iter().flat_map(|sample| &sample.canaries).map(|one| one.cpu);
    let mut processors: Vec<u32> = processors.collect();
    processors.sort_unstable();
    processors.dedup();
    let of = |cpu: u32| {
        let all = samples.iter().flat_map(|sample| &sample.canaries);
        let mut lags: Vec<u64> =
            all.filter(|one| one.cpu == cpu).map(|one| one.lag_p99_ns).collect();
        lags.sort_unstable();
        lags.get(lags.len() / 2).copied()
    };
    processors.into_iter().filter_map(of).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::plan::{CpuQuota, Noise};
    use record::observed::{CanaryUse, CgroupUse, CpuUse, Observed, Role, RoleUse, Sample};
    use record::trial::Trial;

    fn trial() -> Trial {
        let sample = |end_s: f64, length_s: f64, steal, lags: [u64; 2]| Sample {
            time_s: end_s,
            length_s,
            cpus: vec![
                CpuUse { steal, ..CpuUse::default() },
                CpuUse { cpu: 1, ..CpuUse::default() },
            ],
            foreign_cpus: Some(steal / 2.0),
            canaries: lags
                .iter()
                .zip(0..)
                .map(|(&lag_p99_ns, cpu)| CanaryUse { cpu, lag_p99_ns, ..CanaryUse::default() })
                .collect(),
            roles: vec![RoleUse {
                cgroup: Some(CgroupUse { throttled_periods: Some(0.5), ..CgroupUse::default() }),
                ..RoleUse::default()
            }],
            ..Sample::default()
        };
        Trial {
            duration_s: 4.0,
            observed: Some(Observed {
                roles: vec![Role { name: SUBJECT.to_owned(), ..Role::default() }],
                samples: vec![
                    sample(1.0, 1.0, 0.4, [10, 99]),
                    sample(3.0, 2.0, 0.1, [20, 30]),
                    sample(4.0, 1.0, 0.0, [500, 40]),
                ],
                ..Observed::default()
            }),
            ..Trial::default()
        }
    }

    #[test]
    fn they_are_means_over_the_load() {
        let trial = trial();
        let read = read(&View::new(&trial), &Scenario::default(), 0.25);
        let near = |value: Option<f64>, wanted: f64| (value.unwrap() - wanted).abs() < 1e-12;
        assert!(near(read.steal_share, 0.075), "{read:?}");
        assert!(near(read.foreign_cpus, 0.075) && near(read.throttled_share, 0.5));
        assert_eq!(read.wake_up_p99_ns, Some(40), "medians are 20 and 40");
        assert_eq!((read.clock_step_s, read.error_share), (Some(0.25), None));
        assert_eq!((read.generator_lag_p99_ns, read.generator_busiest_share), (None, None));
    }

    #[test]
    fn what_the_scenario_does_itself_disturbs_nothing() {
        let noise = Noise { processes: 1, cpus: Vec::new() };
        let mut scenario = Scenario { noise: Some(noise), ..Scenario::default() };
        scenario.cpu_quotas.insert(Node::Subject, CpuQuota { cpus: 0.5, period_ns: 1_000_000 });
        let trial = trial();
        let read = read(&View::new(&trial), &scenario, 0.0);
        assert_eq!((read.foreign_cpus, read.throttled_share), (None, None));
        assert_eq!(super::read(&View::new(&Trial::default()), &scenario, 0.0).steal_share, None);
    }
}
