//! Tests of merging: counts add up, percentiles come from the sum, the order does not matter.

use std::collections::BTreeMap;

use super::*;
use crate::facts::HostFacts;
use crate::fleet::{AgentClock, AgentOutcome, AgentRow};
use crate::histogram::LatencyHistogram;
use crate::observed::{KernelProcess, MachineObservation, MachineSample, Role, RoleUse};
use crate::run::{
    Baseline, ConnectionTotals, GeneratorCpu, Interval, LatencyPair, MeasuredWindow, ObjectiveResult,
    PhaseLatencies, Rates, RunIdentity, SCHEMA, WeirVersion,
};

fn pair(values: &[u64]) -> LatencyPair {
    let mut latencies = LatencyHistogram::new();
    values.iter().for_each(|&value| latencies.record(value));
    LatencyPair { service: latencies.summary(), response: latencies.summary() }
}

const START_NS: u64 = 1_700_000_000_000_000_000;

fn identity(id: &str, start_unix_ns: u64) -> RunIdentity {
    RunIdentity { id: id.to_owned(), host: "h".to_owned(), pid: 7, start_unix_ns }
}

/// Creates a run of `seconds` with ten responses in each, starting `after_s` after the first.
fn steady_run(id: &str, seconds: u32, after_s: f64) -> Run {
    let template = run(id, &[1_000; 10]);
    let interval = &template.intervals[0];
    let each = (1..=seconds).map(|second| Interval {
        time_s: f64::from(second),
        responses: 10,
        good: Some(9),
        measured: true,
        ..interval.clone()
    });
    Run {
        intervals: each.collect(),
        identities: vec![identity(id, START_NS + (after_s * 1e9) as u64)],
        duration_s: f64::from(seconds),
        window: MeasuredWindow { to_s: f64::from(seconds), ..MeasuredWindow::default() },
        ..template
    }
}

#[test]
fn the_same_run_is_refused_and_so_is_one_of_another_time() {
    let error = merge(&[steady_run("a", 4, 0.0), steady_run("a", 4, 0.0)]).unwrap_err();
    let MergeError::SameRun { first: 1, second: 2, id } = &error else { panic!("{error:?}") };
    assert!(id.starts_with("a ") && id.ends_with(" 7"), "{id}");
    let error = merge(&[steady_run("a", 4, 9.0), steady_run("b", 4, 0.0)]).unwrap_err();
    let MergeError::NotConcurrent { first: 2, second: 1, gap_s } = error else { panic!("{error:?}") };
    assert!((gap_s - 5.0).abs() < 0.05, "{gap_s}");
    let both = merge(&[steady_run("a", 4, 0.0), steady_run("b", 4, 0.0)]).unwrap();
    assert!(merge(&[both, steady_run("b", 4, 0.0)]).is_err(), "it is in there already");
    let mut old = steady_run("b", 4, 0.0);
    old.identities.clear();
    let error = merge(&[steady_run("a", 4, 0.0), old]).unwrap_err();
    assert!(matches!(error, MergeError::NoIdentity { index: 2 }));
}

#[test]
fn rates_are_over_the_common_time_and_seconds_lie_on_one_clock() {
    let together = merge(&[steady_run("a", 4, 0.2), steady_run("b", 4, 0.0)]).unwrap();
    assert!((together.rates.responses_per_s - 20.0).abs() < 1e-9, "{:?}", together.rates);
    assert_eq!(together.validity.verdict, ValidityLevel::Valid);
    assert_eq!(together.intervals.iter().map(|i| i.responses).collect::<Vec<_>>(), [20; 4]);
    let apart = merge(&[steady_run("a", 4, 0.0), steady_run("b", 4, 2.0)]).unwrap();
    assert!((apart.rates.responses_per_s - 20.0).abs() < 1e-9, "{:?}", apart.rates);
    assert!((apart.rates.goodput_per_s.unwrap() - 18.0).abs() < 1e-9);
    assert_eq!((apart.window.from_s, apart.window.to_s, apart.duration_s), (2.0, 4.0, 6.0));
    let seconds: Vec<_> = apart.intervals.iter().map(|i| (i.time_s, i.responses, i.measured)).collect();
    let single_run = |time_s| (time_s, 10, false);
    let both_runs = |time_s| (time_s, 20, true);
    assert_eq!(
        seconds,
        [single_run(1.0), single_run(2.0), both_runs(3.0), both_runs(4.0), single_run(5.0), single_run(6.0)]
    );
    assert_eq!(apart.validity.verdict, ValidityLevel::Suspect);
    let reason = &apart.validity.reasons[0];
    assert_eq!(reason.code, "overlap");
    assert!(reason.text.contains("2.0 s") && reason.text.contains("4.0 s"), "{reason:?}");
}

fn run(started_at: &str, values: &[u64]) -> Run {
    let count = values.len() as u64;
    Run {
        schema: SCHEMA.to_owned(),
        weir: WeirVersion { version: "0".to_owned(), commit: "unknown".to_owned() },
        command: vec!["weir".to_owned()],
        started_at: started_at.to_owned(),
        identities: vec![identity(started_at, START_NS)],
        duration_s: 1.0,
        partial: false,
        check_samples: Vec::new(),
        rate_changes: Vec::new(),
        stages: Vec::new(),
        requests: Vec::new(),
        host: HostFacts::default(),
        plan: serde_json::json!({"connections": 10, "threads": 1}),
        validity: Validity::from_reasons(vec![]),
        objectives: vec![ObjectiveResult {
            text: "p99<1s".to_owned(),
            met: true,
            value: 1.0,
            validity: None,
        }],
        totals: RunTotals {
            requests: count,
            responses: count,
            status: BTreeMap::from([(200, count)]),
            errors: BTreeMap::from([("timeout".to_owned(), 1)]),
            timeout_age_ns: Some((count, count * 10)),
            connections: ConnectionTotals { requested: 10, max_open: 10, ..ConnectionTotals::default() },
            ..RunTotals::default()
        },
        rates: Rates { responses_per_s: count as f64, ..Rates::default() },
        window: MeasuredWindow { from_s: 0.0, to_s: 1.0, ..MeasuredWindow::default() },
        baseline: None,
        latency: PhaseLatencies {
            connect: pair(&[]),
            tls_handshake: None,
            tls_full: None,
            tls_resumed: None,
            first_byte: pair(values),
            last_byte: pair(values),
            last_byte_bad: None,
        },
        http2: None,
        websocket: None,
        event_stream: None,
        transport: None,
        tls: None,
        generator: GeneratorStats { threads: 1, ..GeneratorStats::default() },
        cpu: GeneratorCpu { per_core: vec![0.5], ..GeneratorCpu::default() },
        intervals: vec![Interval {
            time_s: 1.0,
            length_s: 1.0,
            responses: count,
            p99_ns: Some(5),
            last_byte_mean_ns: count as f64,
            ..Interval::default()
        }],
        observed: Vec::new(),
        answer: None,
        comparison: None,
        diagnosis: None,
        fleet: None,
    }
}

#[test]
fn percentiles_are_read_off_the_sum() {
    let fast: Vec<u64> = vec![1_000; 99];
    let merged = merge(&[run("b", &fast), run("a", &[1_000_000])]).unwrap();
    let latency = &merged.latency.last_byte.response;
    assert_eq!(latency.count, 100);
    assert!(latency.p99_ns < 1_100 && latency.max_ns >= 1_000_000, "no mean of 1 us and 1 ms");
    assert_eq!(merged.totals.responses, 100);
    assert_eq!(merged.totals.errors["timeout"], 2);
    assert_eq!(merged.totals.timeout_age_ns, Some((1, 990)));
    assert_eq!(merged.totals.connections.requested, 20);
    assert_eq!(merged.started_at, "a");
    assert_eq!(merged.intervals[0].p99_ns, None);
    assert!((merged.intervals[0].last_byte_mean_ns - 98.02).abs() < 0.001);
    assert!(merged.objectives.is_empty(), "they are about a whole that is not this one");
}

#[test]
fn merging_is_associative() {
    let runs = [run("c", &[1_000, 2_000]), run("a", &[3_000_000]), run("b", &[70_000, 5])];
    let all = merge(&runs).unwrap();
    let left = merge(&[merge(&runs[..2]).unwrap(), runs[2].clone()]).unwrap();
    let right = merge(&[runs[0].clone(), merge(&runs[1..]).unwrap()]).unwrap();
    assert_eq!(all.totals, left.totals);
    assert_eq!(all.latency, left.latency);
    assert_eq!(all.latency, right.latency);
    assert_eq!(all.totals, right.totals);
    assert_eq!(all.intervals[0].responses, right.intervals[0].responses);
}

#[test]
fn the_gravest_verdict_stays_with_its_origin() {
    let mut bad = run("b", &[1]);
    bad.validity = Validity::from_reasons(vec![ValidityReason {
        code: "client_bound".to_owned(),
        verdict: ValidityLevel::Invalid,
        text: "busy".to_owned(),
    }]);
    let merged = merge(&[run("a", &[1]), bad]).unwrap();
    assert_eq!(merged.validity.verdict, ValidityLevel::Invalid);
    assert_eq!(merged.validity.reasons[0].text, "record 2: busy");
}

#[test]
fn merge_errors_state_the_reason() {
    assert!(matches!(merge(&[]), Err(MergeError::Empty)));
    let mut other = run("a", &[1]);
    other.plan["connections"] = 20.into();
    let error = merge(&[run("a", &[1]), other]).unwrap_err();
    assert!(error.to_string().contains("record 2") && error.to_string().contains("connections"));
    let mut broken = run("b", &[1]);
    broken.latency.last_byte.service.hdr = "x".to_owned();
    assert!(matches!(merge(&[run("a", &[1]), broken]), Err(MergeError::Histogram { index: 2, .. })));
}

/// Creates a run that starts `start_s` after the first, with a baseline of a second and `good`
/// responses under load.
fn with_baseline(id: &str, start_s: f64, good: u64, baseline_ns: &[u64]) -> Run {
    let mut run = steady_run(id, 4, start_s);
    run.totals.good = Some(good);
    let mut latencies = LatencyHistogram::new();
    baseline_ns.iter().for_each(|ns| latencies.record(*ns));
    let summary = latencies.summary();
    run.baseline = Some(Baseline {
        duration_s: 1.0,
        requests: summary.count,
        good: summary.count,
        min_ns: latencies.value_at_quantile(0.0),
        p50_ns: summary.p50_ns,
        mean_ns: summary.mean_ns,
        hdr: summary.hdr,
    });
    run
}

#[test]
fn a_baseline_is_of_the_load_that_all_made_together() {
    // The near generator sends nine sequential requests while the distant one sends one, and both
    // carry as much.
    let near = with_baseline("a", 0.0, 100, &[1_000_000; 9]);
    let far = with_baseline("b", 0.1, 100, &[9_000_000]);
    let merged = merge(&[near.clone(), far.clone()]).unwrap().baseline.unwrap();
    assert_eq!((merged.requests, merged.good), (10, 10));
    assert!((merged.mean_ns - 5e6).abs() < 5e4, "{merged:?}");
    assert!(merged.min_ns < 1_010_000 && merged.p50_ns < 1_010_000, "{merged:?}");
    assert_eq!(LatencyHistogram::decode(&merged.hdr).unwrap().count(), 10);
    // One run has no baseline, or is from an older version.
    let mut none = far.clone();
    none.baseline = None;
    assert_eq!(merge(&[near.clone(), none]).unwrap().baseline, None);
    let mut old = far;
    old.baseline.as_mut().unwrap().hdr.clear();
    assert_eq!(merge(&[near, old]).unwrap().baseline, None);
}

#[test]
fn a_baseline_that_was_measured_under_the_load_of_another_run_is_none() {
    let first = with_baseline("a", 0.0, 100, &[1_000_000; 9]);
    let late = with_baseline("b", 1.0, 100, &[1_000_000; 9]);
    assert_eq!(merge(&[first.clone(), late.clone()]).unwrap().baseline, None);
    assert_eq!(merge(&[late, first]).unwrap().baseline, None);
}

/// Agent of a fleet with its run, started `after_ms` after the first.
fn fleet_of(count: usize) -> (Vec<Run>, Fleet) {
    let runs: Vec<Run> = (0..count)
        .map(|index| {
            let values: Vec<u64> = (0..10).map(|value| 1_000 * (value + 1) + index as u64).collect();
            let mut run = run(&format!("{index}"), &values);
            run.plan =
                serde_json::json!({"connections": index, "slice": format!("{index}"), "timeout_ns": 1});
            run.totals.errors.clear();
            run.window.to_s = 1.0;
            run
        })
        .collect();
    let row = |run: &Run| AgentRow {
        name: run.identities[0].id.clone(),
        outcome: AgentOutcome::Complete,
        problem: String::new(),
        load_fraction: 1.0 / count as f64,
        clock: AgentClock::default(),
        start_after_ns: Some(0),
        figures: Some(run.agent_figures()),
    };
    let fleet = Fleet { agents: runs.iter().map(row).collect(), ..Fleet::default() };
    (runs, fleet)
}

#[test]
fn slices_of_one_load_merge_outside_a_fleet() {
    let (mut runs, _) = fleet_of(3);
    for (index, run) in runs.iter_mut().enumerate() {
        run.plan = serde_json::json!({"connections": 2 + index, "slice": format!("{index}-{}/3", index + 1),
            "pace": {"loop": "open", "rate_per_s": 10.5}, "seed": index, "timeout_ns": 1});
    }
    let merged = merge(&runs).unwrap();
    assert_eq!((merged.totals.requests, merged.plan["connections"].as_u64()), (30, Some(9)));
    assert_eq!(merged.plan["pace"]["rate_per_s"], 31.5);
    assert_eq!(merged.plan["slice"], "0-1/3 1-2/3 2-3/3");
    // Not the same slice twice, nor slices of different loads.
    let mut twice = runs.clone();
    twice[1].plan["slice"] = "0-1/3".into();
    assert!(matches!(merge(&twice), Err(MergeError::PlanMismatch { .. })));
    runs[2].plan["timeout_ns"] = 2.into();
    assert!(matches!(merge(&runs), Err(MergeError::PlanMismatch { index: 3, .. })));
}

#[test]
fn the_slices_of_a_plan_merge_to_the_histogram_of_one_process() {
    let (runs, fleet) = fleet_of(4);
    assert!(matches!(merge(&runs), Err(MergeError::PlanMismatch { index: 2, .. })));
    let plan = serde_json::json!({"connections": 6});
    let merged = merge_fleet(&runs, fleet.clone(), plan.clone()).unwrap();
    let mut one_process = LatencyHistogram::new();
    for run in &runs {
        one_process.add(&LatencyHistogram::decode(&run.latency.last_byte.response.hdr).unwrap());
    }
    assert_eq!(merged.latency.last_byte.response, one_process.summary());
    assert_eq!((merged.totals.requests, merged.plan["connections"].as_u64()), (40, Some(6)));
    assert_eq!(merged.fleet.as_ref().map(|fleet| fleet.agents.len()), Some(4));
    assert_eq!(merged.validity.verdict, ValidityLevel::Valid);
    let mut other = runs;
    other[1].plan["timeout_ns"] = 2.into();
    assert!(matches!(merge_fleet(&other, fleet, plan), Err(MergeError::PlanMismatch { index: 2, .. })));
}

/// A linear merge of 1,000 records takes well below a second; a quadratic one takes minutes.
#[test]
fn a_thousand_records_are_merged() {
    let (runs, fleet) = fleet_of(1000);
    let merged = merge_fleet(&runs, fleet, serde_json::Value::Null).unwrap();
    assert_eq!(merged.latency.last_byte.response.count, 10_000);
}

/// Returns the merged run of one agent that objects to foreign processes, with the observations of its machine and
/// of the subject's. The generator uses 0.9 CPUs, the subject 0.8.
fn run_beside_a_subject(foreign_cpus: f64, kernels: [&str; 2]) -> Run {
    let observation = |host: &str, kernel: &str, pid, cpus, foreign| MachineObservation {
        host: host.to_owned(),
        kernel: Some(kernel.to_owned()),
        cpus: 4,
        roles: vec![Role { processes: vec![KernelProcess { namespace: 1, pid }], ..Role::default() }],
        samples: vec![MachineSample {
            time_s: 2.0,
            length_s: 2.0,
            foreign_cpus: Some(foreign),
            roles: vec![RoleUse { user_cpus: cpus, ..RoleUse::default() }],
            ..MachineSample::default()
        }],
        ..MachineObservation::default()
    };
    let objection = |text: &str| ValidityReason {
        code: "cpu_contended".to_owned(),
        verdict: ValidityLevel::Suspect,
        text: text.to_owned(),
    };
    let mut run = steady_run("a", 2, 0.0);
    let mut figures = run.agent_figures();
    figures.validity = Validity::from_reasons(vec![objection("other processes")]);
    let row = AgentRow {
        name: "east".to_owned(),
        outcome: AgentOutcome::Complete,
        problem: String::new(),
        load_fraction: 1.0,
        clock: AgentClock::default(),
        start_after_ns: None,
        figures: Some(figures),
    };
    let fleet = Fleet { agents: vec![row], ..Fleet::default() };
    run.validity = fleet.validity(None);
    run.fleet = Some(fleet);
    run.observed = vec![
        observation("east", kernels[0], 7, 0.9, foreign_cpus),
        observation("edge", kernels[1], 8, 0.8, 0.9),
    ];
    run
}

#[test]
fn the_subject_on_the_same_kernel_is_no_foreign_process_of_an_agent() {
    let settled = |foreign_cpus, kernels| {
        let mut run = run_beside_a_subject(foreign_cpus, kernels);
        run.withdraw_shared_cpus();
        let once = run.clone();
        run.withdraw_shared_cpus();
        assert_eq!(run.validity, once.validity);
        let agents = &run.fleet.as_ref().unwrap().agents;
        assert_eq!(agents[0].figures.as_ref().unwrap().validity.verdict, run.validity.verdict);
        run.validity.verdict
    };
    assert_eq!(settled(0.9, ["k", "k"]), ValidityLevel::Valid);
    // A process of no role remains an objection, and so does one on another kernel.
    assert_eq!(settled(1.9, ["k", "k"]), ValidityLevel::Suspect);
    assert_eq!(settled(0.9, ["k", "l"]), ValidityLevel::Suspect);
}
