//! Tests of the next limits, with rates computed by hand from X / U = 1 / D and N / (R + Z).

use super::*;
use record::run::{Baseline, RateBound, SaturationRate};

/// Returns an open loop of 1,000/s for 10 s on two CPUs without other processes.
fn open_loop() -> Run {
    let mut run = run(100, 2 * MS);
    run.plan = serde_json::json!({"pace": {"loop": "open", "rate_per_s": 1000.0}});
    run.rates = Rates { responses_per_s: 1_000.0, offered_per_s: Some(1_000.0), ..run.rates };
    run.generator.in_flight_mean = 2.0;
    run.generator.busiest_thread_fraction = Some(0.25);
    change_samples(&mut run, |sample| sample.foreign_cpus = Some(0.0));
    run
}

fn at_least(rate_per_s: f64) -> Option<SaturationRate> {
    Some(SaturationRate { rate_per_s, bound: RateBound::AtLeast })
}

fn about(rate_per_s: f64) -> Option<SaturationRate> {
    Some(SaturationRate { rate_per_s, bound: RateBound::About })
}

fn at_most(rate_per_s: f64) -> Option<SaturationRate> {
    Some(SaturationRate { rate_per_s, bound: RateBound::AtMost })
}

/// Returns the rate at which a resource is full, rounded to 1/s.
fn saturation_rate(run: &Run, resource: &str) -> Option<SaturationRate> {
    let resource_headroom = headroom(run).into_iter().find(|headroom| headroom.resource == resource);
    let saturation = resource_headroom.unwrap_or_else(|| panic!("{resource}: {:?}", headroom(run))).full_at?;
    Some(SaturationRate { rate_per_s: saturation.rate_per_s.round(), ..saturation })
}

fn threads(run: &mut Run, busy: &[f64]) {
    change_samples(run, |sample| {
        let role = &mut sample.roles[1];
        role.threads = busy.iter().map(|&busy| ThreadCpuUse { busy, ..ThreadCpuUse::default() }).collect();
        (role.user_cpus, role.system_cpus) = (busy.iter().sum(), 0.0);
    });
}

#[test]
fn a_thread_is_full_at_the_rate_over_its_utilisation() {
    let mut run = open_loop();
    // D = 0.25 s / 1,000 = 250 us; measured at a quarter of a core, it is an upper bound.
    assert_eq!(saturation_rate(&run, "generator's busiest thread"), at_least(4_000.0));
    run.generator.busiest_thread_fraction = Some(0.95);
    assert_eq!(saturation_rate(&run, "generator's busiest thread"), about(1_053.0));
    threads(&mut run, &[0.95]);
    assert_eq!(saturation_rate(&run, "subject's busiest thread"), about(1_053.0));
    // Another thread has time left, and may take some of the work.
    threads(&mut run, &[0.95, 0.45]);
    assert_eq!(saturation_rate(&run, "subject's busiest thread"), at_least(1_053.0));
    // 1.4 of two CPUs.
    assert_eq!(saturation_rate(&run, "subject's CPUs"), at_least(1_429.0));
}

#[test]
fn foreign_cpus_are_neither_demand_nor_capacity() {
    let mut run = open_loop();
    // Each CPU is busy for 0.6: 1.2 in total, 0.8 of other processes. The load uses 0.4 of the
    // remaining 1.2.
    change_samples(&mut run, |sample| {
        sample.foreign_cpus = Some(0.8);
        sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.4);
    });
    assert_eq!(saturation_rate(&run, "all CPUs"), at_least(3_000.0));
    let demand_ns = diagnose(&run).resources.into_iter().find(|resource| resource.resource == "all CPUs");
    assert!((demand_ns.unwrap().demand_ns.unwrap() - 400_000.0).abs() < 1.0);
    // Other processes take all that is available: the subject's own CPU time is as small as before.
    change_samples(&mut run, |sample| {
        sample.foreign_cpus = Some(1.6);
        sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.0);
    });
    assert_eq!(saturation_rate(&run, "all CPUs"), about(1_000.0));
    assert_eq!(saturation_rate(&run, "subject's CPUs"), at_least(10_000.0));
    assert_eq!(saturation_rate(&run, "busiest CPU"), None, "the scheduler moves what runs on it");
    // A tenth of each CPU is stolen: 1.8 are available, 0.9 of them busy, all by the load.
    change_samples(&mut run, |sample| {
        sample.foreign_cpus = Some(0.0);
        sample.cpus.iter_mut().for_each(|cpu| (cpu.steal, cpu.idle) = (0.1, 0.45));
    });
    assert_eq!(saturation_rate(&run, "all CPUs"), at_least(2_000.0));
}

#[test]
fn a_demand_that_is_too_small_is_not_extrapolated() {
    let mut run = open_loop();
    run.generator.busiest_thread_fraction = Some(0.04);
    assert_eq!(saturation_rate(&run, "generator's busiest thread"), None);
    // A tenth of a core for one second is ten ticks of a clock of 10 ms.
    run.generator.busiest_thread_fraction = Some(0.1);
    assert_eq!(saturation_rate(&run, "generator's busiest thread"), at_least(10_000.0));
    run.window.to_s = 1.0;
    assert_eq!(saturation_rate(&run, "generator's busiest thread"), None);
    run.window.to_s = 10.0;
    run.rates.responses_per_s = 0.0;
    assert_eq!(saturation_rate(&run, "generator's busiest thread"), None);
}

#[test]
fn time_for_bad_responses_is_no_demand_of_good_ones() {
    let mut run = open_loop();
    // Nine of ten responses are instant refusals.
    run.totals = RunTotals { requests: 10_000, good: Some(1_000), bad: Some(9_000), ..run.totals };
    run.rates.goodput_per_s = Some(100.0);
    assert!(headroom(&run).iter().all(|headroom| headroom.full_at.is_none()), "{:?}", headroom(&run));
}

#[test]
fn connections_bound_the_rate_by_their_latency() {
    let mut run = open_loop();
    // Little's law: 10 of 100 in flight at 1,000/s are 10 ms each, so 100 carry at most 10,000/s.
    run.generator.in_flight_mean = 10.0;
    assert_eq!(saturation_rate(&run, "generator's connections"), at_most(10_000.0));
    // A closed loop of 40 with 20 ms under load, 5 ms alone, 15 ms of think time: 40 / (5 + 15) ms.
    let mut closed = super::run(40, 20 * MS);
    assert_eq!(saturation_rate(&closed, "generator's connections"), None, "R(1) is not known");
    closed.plan["pace"]["think_ns"] = serde_json::json!(15 * MS);
    closed.baseline = Some(Baseline {
        duration_s: 1.0,
        requests: 200,
        good: 200,
        min_ns: 5 * MS,
        p50_ns: 5 * MS,
        mean_ns: 5e6,
        ..Baseline::default()
    });
    assert_eq!(saturation_rate(&closed, "generator's connections"), at_most(2_000.0));
    // A limit below the carried rate is invalid: something delayed the baseline.
    closed.baseline.as_mut().unwrap().mean_ns = 15e6;
    assert_eq!(saturation_rate(&closed, "generator's connections"), None);
}

#[test]
fn bytes_are_in_proportion_to_the_rate_and_tables_are_not() {
    let mut run = open_loop();
    let link = LinkUse {
        name: "eth0".to_owned(),
        tx_bytes_per_s: 25e6,
        tx_packets_per_s: 20_000.0,
        speed_bits_per_s: Some(1e9),
        ..LinkUse::default()
    };
    change_samples(&mut run, |sample| {
        sample.links = vec![link.clone()];
        sample.roles[1].descriptors = Some(500);
    });
    let used = headroom(&run).into_iter().find(|headroom| headroom.resource == "busiest link").unwrap();
    let saturation = used.full_at.unwrap();
    assert_eq!(saturation.bound, RateBound::About);
    assert!((saturation.rate_per_s * used.used_fraction - 1_000.0).abs() < 1e-6, "{used:?}");
    assert_eq!(saturation_rate(&run, "subject's descriptors"), None);
}

#[test]
fn the_lowest_rate_comes_first_and_a_full_table_before_it() {
    let mut run = open_loop();
    run.generator.busiest_thread_fraction = Some(0.5);
    threads(&mut run, &[0.8]);
    change_samples(&mut run, |sample| sample.roles[1].descriptors = Some(500));
    let lines = diagnose(&run).next_limits;
    // Both CPUs are idle for 0.8: the load uses 0.4 of 2.
    assert_eq!(
        lines[..5],
        [
            "subject's busiest thread: 80 % used, full at ≥ 1.25 k/s",
            "generator's busiest thread: 50 % used, full at ≥ 2.00 k/s",
            "subject's CPUs: 40 % used, full at ≥ 2.50 k/s",
            "all CPUs: 20 % used, full at ≥ 5.00 k/s",
            "subject's descriptors: 50 % used",
        ]
    );
    change_samples(&mut run, |sample| sample.roles[1].descriptors = Some(950));
    assert_eq!(diagnose(&run).next_limits[0], "subject's descriptors: 95 % used");
}

/// A subject that uses a tenth of a CPU, on a machine that other programs fill.
#[test]
fn full_cpus_beside_a_subject_that_hardly_computes_are_those_of_other_programs() {
    let mut run = run(20, 2 * MS);
    set_subject_cpus(&mut run, 0.06, 0.04, 1);
    change_samples(&mut run, |sample| {
        sample.foreign_cpus = Some(1.75);
        sample.cpus.iter_mut().for_each(|cpu| (cpu.user, cpu.system, cpu.idle) = (0.9, 0.1, 0.0));
    });
    let limits = diagnose(&run).next_limits;
    let all = limits.iter().find(|line| line.starts_with("all CPUs: 100 % used"));
    let all = all.unwrap_or_else(|| panic!("{limits:?}"));
    assert!(all.contains("(1.75 CPUs by other programs)"), "{all}");
    // The same in the words of the answer.
    run.diagnosis = Some(record::run::Diagnosis { verdict: verdicts::NONE.to_owned(), ..diagnose(&run) });
    let answer = crate::answer(&run);
    assert!(answer.why.contains("your service uses 0.10 of 2 CPUs"), "{answer:?}");
    let is_bare = answer.why.contains("all CPUs are full") || answer.why.contains("100 % used");
    assert!(!is_bare, "{answer:?}");
}
