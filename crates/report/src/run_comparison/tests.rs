//! Tests of the comparison on synthetic runs.

use super::*;
use crate::synthetic::synthetic_run;

/// Returns a run of `count` seconds whose second `n` has `good(n)` responses and a p99 of `p99_ms(n)`.
fn run_of_seconds(count: u32, good: impl Fn(u32) -> u64, p99_ms: impl Fn(u32) -> f64) -> Run {
    let mut run = synthetic_run();
    let second = |n: u32| Interval {
        time_s: f64::from(n + 1),
        length_s: 1.0,
        responses: good(n),
        good: Some(good(n)),
        p50_ns: Some((p99_ms(n) * 0.5e6) as u64),
        p99_ns: Some((p99_ms(n) * 1e6) as u64),
        measured: true,
        ..Interval::default()
    };
    run.intervals = (0..count).map(second).collect();
    let mut sorted: Vec<f64> = (0..count).map(p99_ms).collect();
    sorted.sort_by(f64::total_cmp);
    run.latency.last_byte.response.p99_ns = (sorted[sorted.len() / 2] * 1e6) as u64;
    run.latency.last_byte.response.p50_ns = run.latency.last_byte.response.p99_ns / 2;
    let all: u64 = (0..count).map(good).sum();
    run.rates.goodput_per_s = Some(all as f64 / f64::from(count));
    (run.totals.requests, run.totals.responses, run.totals.good) = (all, all, Some(all));
    run.validity = record::validity::Validity::from_reasons(Vec::new());
    run
}

fn noisy(n: u32) -> f64 {
    10.0 + f64::from(n * 7 % 5) * 0.1
}

fn outcomes(baseline: &Run, run: &Run, conditions: &str) -> Vec<RegressionOutcome> {
    let conditions = RegressionCondition::parse_list(conditions).unwrap();
    RunComparison::new(baseline, run, &conditions).results.into_iter().map(|one| one.outcome).collect()
}

#[test]
fn a_clear_change_is_a_regression_and_noise_is_none() {
    let before = run_of_seconds(20, |n| 1000 + u64::from(n % 3), noisy);
    let slower = run_of_seconds(20, |n| 900 + u64::from(n % 3), |n| noisy(n) * 1.3);
    let conditions = "p99>+10%,rate<-5%,p99>+50%,rate<-20%,errors>+0.1%";
    let found = outcomes(&before, &slower, conditions);
    use RegressionOutcome::{Regression, Within};
    assert_eq!(found, [Regression, Regression, Within, Within, Within]);
    // An improvement is no regression, and the same run neither.
    assert!(outcomes(&slower, &before, conditions).iter().all(|one| *one == Within));
    assert!(outcomes(&before, &before, "p99>+5%,rate<-1%").iter().all(|one| *one == Within));
    let comparison =
        RunComparison::new(&before, &slower, &RegressionCondition::parse_list("p99>+10%").unwrap());
    assert!(comparison.has_regression());
    let text = comparison.text();
    assert!(text.contains("p99 10.2 ms -> 13.3 ms: +30.0 % (95 % interval +"), "{text}");
    assert!(text.contains("regression   p99>+10%: YES"), "{text}");
}

#[test]
fn a_change_within_the_noise_is_undecided_and_fails_nothing() {
    let wild = |n: u32| 5.0 + f64::from(n * n * 7 % 11) * 1.5;
    let before = run_of_seconds(12, |_| 1000, wild);
    let after = run_of_seconds(12, |_| 1000, |n| wild(n) * 1.1);
    let found = outcomes(&before, &after, "p99>+10%");
    assert!(matches!(&found[..], [RegressionOutcome::Undecided(why)] if why.contains("longer")), "{found:?}");
}

#[test]
fn short_and_invalid_runs_decide_nothing() {
    let before = run_of_seconds(20, |_| 1000, noisy);
    let short = run_of_seconds(5, |_| 100, |_| 100.0);
    assert!(matches!(&outcomes(&before, &short, "p99>+10%")[..], [RegressionOutcome::Undecided(_)]));
    let mut invalid = run_of_seconds(20, |_| 100, |_| 100.0);
    invalid.validity.verdict = ValidityVerdict::Invalid;
    for (a, b) in [(&before, &invalid), (&invalid, &before)] {
        assert!(matches!(&outcomes(a, b, "rate<-1%")[..], [RegressionOutcome::Undecided(_)]));
    }
}

#[test]
fn errors_are_compared_in_percentage_points() {
    let before = run_of_seconds(15, |_| 1000, noisy);
    let mut after = before.clone();
    for second in &mut after.intervals {
        second.good = Some(980);
    }
    after.totals.good = Some(15 * 980);
    after.totals.bad = Some(15 * 20);
    assert_eq!(outcomes(&before, &after, "errors>+1%"), [RegressionOutcome::Regression]);
    assert_eq!(outcomes(&before, &after, "errors>+3%"), [RegressionOutcome::Within]);
    let text = RunComparison::new(&before, &after, &[]).text();
    assert!(text.contains("+2.00 percentage points"), "{text}");
}

#[test]
fn a_merged_record_without_percentiles_of_seconds_has_no_interval_of_them() {
    let before = run_of_seconds(20, |_| 1000, noisy);
    let mut merged = before.clone();
    merged.intervals.iter_mut().for_each(|second| (second.p50_ns, second.p99_ns) = (None, None));
    let comparison = RunComparison::new(&before, &merged, &[]);
    let has_interval =
        |figure| comparison.changes.iter().any(|one| one.figure == figure && one.interval.is_some());
    assert!(has_interval(ComparedFigure::Rate) && !has_interval(ComparedFigure::P99));
}
