//! Merging: counts add up, percentiles come from the sum, the order does not matter.

use super::*;
use crate::facts::HostFacts;
use crate::run::{Connections, Cpu, Identity, Interval, Objective, Rates, SCHEMA, Weir, Window};

fn pair(values: &[u64]) -> Pair {
    let mut latencies = Latencies::new();
    values.iter().for_each(|&value| latencies.record(value));
    Pair { service: latencies.summary(), response: latencies.summary() }
}

const START_NS: u64 = 1_700_000_000_000_000_000;

fn identity(id: &str, start_unix_ns: u64) -> Identity {
    Identity { id: id.to_owned(), host: "h".to_owned(), pid: 7, start_unix_ns }
}

/// A run of some seconds with ten responses in each, that began so late.
fn steady(id: &str, seconds: u32, after_s: f64) -> Run {
    let one = run(id, &[1_000; 10]);
    let interval = &one.intervals[0];
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
        window: Window { to_s: f64::from(seconds), ..Window::default() },
        ..one
    }
}

#[test]
fn the_same_run_is_refused_and_so_is_one_of_another_time() {
    let error = merge(&[steady("a", 4, 0.0), steady("a", 4, 0.0)]).unwrap_err().to_string();
    assert!(error.contains("records 1 and 2 are the same run (a of process 7)"), "{error}");
    let error = merge(&[steady("a", 4, 9.0), steady("b", 4, 0.0)]).unwrap_err().to_string();
    assert!(error.contains("records 2 and 1 were not measured at the same time (5.0 s"), "{error}");
    let both = merge(&[steady("a", 4, 0.0), steady("b", 4, 0.0)]).unwrap();
    assert!(merge(&[both, steady("b", 4, 0.0)]).is_err(), "it is in there already");
    let mut old = steady("b", 4, 0.0);
    old.identities.clear();
    let error = merge(&[steady("a", 4, 0.0), old]).unwrap_err();
    assert!(matches!(error, MergeError::NoIdentity { index: 2 }));
}

#[test]
fn rates_are_over_the_common_time_and_seconds_lie_on_one_clock() {
    let together = merge(&[steady("a", 4, 0.2), steady("b", 4, 0.0)]).unwrap();
    assert!((together.rates.responses_per_s - 20.0).abs() < 1e-9, "{:?}", together.rates);
    assert_eq!(together.validity.verdict, Verdict::Valid);
    assert_eq!(together.intervals.iter().map(|i| i.responses).collect::<Vec<_>>(), [20; 4]);
    let apart = merge(&[steady("a", 4, 0.0), steady("b", 4, 2.0)]).unwrap();
    assert!((apart.rates.responses_per_s - 20.0).abs() < 1e-9, "{:?}", apart.rates);
    assert!((apart.rates.goodput_per_s.unwrap() - 18.0).abs() < 1e-9);
    assert_eq!((apart.window.from_s, apart.window.to_s, apart.duration_s), (2.0, 4.0, 6.0));
    let seconds: Vec<_> =
        apart.intervals.iter().map(|i| (i.time_s, i.responses, i.measured)).collect();
    let one = |time_s| (time_s, 10, false);
    let two = |time_s| (time_s, 20, true);
    assert_eq!(seconds, [one(1.0), one(2.0), two(3.0), two(4.0), one(5.0), one(6.0)]);
    assert_eq!(apart.validity.verdict, Verdict::Suspect);
    let text = &apart.validity.reasons[0].text;
    assert!(text.contains("together for 2.0 s, of up to 4.0 s each"), "{text}");
}

fn run(started_at: &str, values: &[u64]) -> Run {
    let count = values.len() as u64;
    Run {
        schema: SCHEMA.to_owned(),
        weir: Weir { version: "0".to_owned(), commit: "unknown".to_owned() },
        command: vec!["weir".to_owned()],
        started_at: started_at.to_owned(),
        identities: vec![identity(started_at, START_NS)],
        duration_s: 1.0,
        partial: false,
        host: HostFacts::default(),
        plan: serde_json::json!({"connections": 10, "threads": 1}),
        validity: Validity::from_reasons(vec![]),
        objectives: vec![Objective { text: "p99<1s".to_owned(), met: true, value: 1.0 }],
        totals: Totals {
            requests: count,
            responses: count,
            status: BTreeMap::from([(200, count)]),
            errors: BTreeMap::from([("timeout".to_owned(), 1)]),
            timeout_age_ns: Some((count, count * 10)),
            connections: Connections { wanted: 10, obtained: 10, ..Connections::default() },
            ..Totals::default()
        },
        rates: Rates { responses_per_s: count as f64, ..Rates::default() },
        window: Window { from_s: 0.0, to_s: 1.0, ..Window::default() },
        baseline: None,
        latency: Latency {
            connect: pair(&[]),
            first_byte: pair(values),
            last_byte: pair(values),
            last_byte_bad: None,
        },
        generator: Generator { threads: 1, ..Generator::default() },
        cpu: Cpu { per_core: vec![0.5], ..Cpu::default() },
        intervals: vec![Interval {
            time_s: 1.0,
            length_s: 1.0,
            responses: count,
            p99_ns: Some(5),
            last_byte_mean_ns: count as f64,
            ..Interval::default()
        }],
        observed: Vec::new(),
        diagnosis: None,
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
    assert_eq!(merged.totals.connections.wanted, 20);
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
    bad.validity = Validity::from_reasons(vec![Reason {
        code: "client_bound".to_owned(),
        verdict: Verdict::Invalid,
        text: "busy".to_owned(),
    }]);
    let merged = merge(&[run("a", &[1]), bad]).unwrap();
    assert_eq!(merged.validity.verdict, Verdict::Invalid);
    assert_eq!(merged.validity.reasons[0].text, "record 2: busy");
}

#[test]
fn what_cannot_be_merged_is_said() {
    assert!(matches!(merge(&[]), Err(MergeError::Empty)));
    let mut other = run("a", &[1]);
    other.plan["connections"] = 20.into();
    let error = merge(&[run("a", &[1]), other]).unwrap_err();
    assert!(error.to_string().contains("record 2") && error.to_string().contains("connections"));
    let mut broken = run("b", &[1]);
    broken.latency.last_byte.service.hdr = "x".to_owned();
    assert!(matches!(
        merge(&[run("a", &[1]), broken]),
        Err(MergeError::Histogram { index: 2, .. })
    ));
}
