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
    RunComparison::new(baseline, run, &conditions).results.into_iter().map(|result| result.outcome).collect()
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
    assert!(outcomes(&slower, &before, conditions).iter().all(|outcome| *outcome == Within));
    assert!(outcomes(&before, &before, "p99>+5%,rate<-1%").iter().all(|outcome| *outcome == Within));
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
    assert!(matches!(&found[..], [RegressionOutcome::Undecided(why)] if why.is_noise), "{found:?}");
    let conditions = RegressionCondition::parse_list("p99>+10%").unwrap();
    let record = RunComparison::new(&before, &after, &conditions).record("old.json");
    assert_eq!((record.exit_code, record.conditions[0].decision), (0, ConditionDecision::Undecided));
    assert!(record.conditions[0].reason.as_ref().unwrap().contains("noise"));
}

#[test]
fn short_and_invalid_runs_decide_nothing() {
    let before = run_of_seconds(20, |_| 1000, noisy);
    let short = run_of_seconds(5, |_| 100, |_| 100.0);
    let found = outcomes(&before, &short, "p99>+10%");
    let [RegressionOutcome::Undecided(why)] = &found[..] else { panic!("{found:?}") };
    assert!(!why.is_noise && why.needed_s == Some(10), "{why:?}");
    for part in ["8 complete seconds", "the baseline has 20, this run 5", "-d 10s"] {
        assert!(why.reason.contains(part), "{part}: {}", why.reason);
    }
    let mut invalid = run_of_seconds(20, |_| 100, |_| 100.0);
    invalid.validity.verdict = ValidityLevel::Invalid;
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
        |figure| comparison.changes.iter().any(|change| change.figure == figure && change.interval.is_some());
    assert!(has_interval(ComparedFigure::Rate) && !has_interval(ComparedFigure::P99));
}

#[test]
fn json_junit_and_markdown_carry_the_comparison_of_the_text() {
    let before = run_of_seconds(20, |_| 1000, noisy);
    let slower = run_of_seconds(20, |_| 1000, |n| noisy(n) * 1.3);
    let short = run_of_seconds(4, |_| 1000, noisy);
    let conditions = RegressionCondition::parse_list("p99>+10%,rate<-5%").unwrap();
    let compared = |run: &Run| {
        let comparison = RunComparison::new(&before, run, &conditions);
        let record = comparison.record("old.json");
        (comparison.text(), Run { comparison: Some(record), ..run.clone() })
    };
    let (text, run) = compared(&slower);
    let record = run.comparison.clone().unwrap();
    assert_eq!(record.exit_code, 3);
    let decisions: Vec<_> = record.conditions.iter().map(|condition| condition.decision).collect();
    assert_eq!(decisions, [ConditionDecision::Regression, ConditionDecision::None]);
    assert_eq!(
        record.figures.iter().map(|figure| figure.figure.as_str()).collect::<Vec<_>>(),
        ["rate", "p50", "p99", "errors"]
    );
    let p99 = &record.figures[2];
    assert!(p99.interval.unwrap().0 > 0.1 && p99.difference.unwrap() > 0.29, "{p99:?}");
    // Every form has the figures of the text.
    let change = figure_text(p99);
    let (junit, markdown) = (crate::text::junit::junit(&run), crate::text::markdown::markdown(&run));
    let in_xml = change.replace('>', "&gt;");
    assert!(
        text.contains(&change) && junit.contains(&in_xml) && markdown.contains(&change),
        "{change}: {text}"
    );
    assert!(
        junit.contains("name=\"regression: p99&gt;+10%\"") && junit.contains("failures=\"1\""),
        "{junit}"
    );
    assert!(markdown.contains("| `p99>+10%` | regression: ") && markdown.contains("old.json"), "{markdown}");
    // A condition that the records cannot decide is a failure, not a success.
    let (_, run) = compared(&short);
    assert_eq!(run.comparison.as_ref().unwrap().exit_code, 4);
    let junit = crate::text::junit::junit(&run);
    assert!(junit.contains("failures=\"2\"") && junit.contains("-d 10s"), "{junit}");
    let stored: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    assert_eq!(stored.comparison, run.comparison);
}
