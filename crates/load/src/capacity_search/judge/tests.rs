//! Tests of the judgement of records.

use std::collections::BTreeMap;

use record::capacity_search::limit_kind;
use record::validity::{Validity, ValidityLevel, ValidityReason};

use super::*;

fn run(offered_per_s: f64, responses_per_s: f64) -> Run {
    let text = r#"{
        "schema": "weir.run/1", "weir": {"version": "0", "commit": "0"}, "command": [],
        "started_at": "", "duration_s": 10.0, "plan": null, "objectives": [], "intervals": [],
        "validity": {"verdict": "valid", "reasons": []}
    }"#;
    let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
    let empty = serde_json::to_value(record::histogram::LatencyHistogram::new().summary()).unwrap();
    let pair = serde_json::json!({"service": empty, "response": empty});
    let put = |value: &mut serde_json::Value, name: &str, part: serde_json::Value| {
        value[name] = part;
    };
    put(&mut value, "host", serde_json::to_value(record::facts::HostFacts::default()).unwrap());
    put(&mut value, "totals", serde_json::to_value(record::run::RunTotals::default()).unwrap());
    put(&mut value, "rates", serde_json::to_value(record::run::Rates::default()).unwrap());
    put(&mut value, "window", serde_json::to_value(record::run::MeasuredWindow::default()).unwrap());
    let latency = serde_json::json!({"connect": pair, "first_byte": pair, "last_byte": pair});
    put(&mut value, "latency", latency);
    put(&mut value, "generator", serde_json::to_value(record::run::GeneratorStats::default()).unwrap());
    put(&mut value, "cpu", serde_json::to_value(record::run::GeneratorCpu::default()).unwrap());
    let mut run: Run = serde_json::from_value(value).unwrap();
    run.rates.offered_per_s = Some(offered_per_s);
    run.rates.responses_per_s = responses_per_s;
    run.window.to_s = 10.0;
    run
}

fn with_invalid_reason(mut run: Run, code: &str) -> Run {
    let reason =
        ValidityReason { code: code.to_owned(), verdict: ValidityLevel::Invalid, text: "so".to_owned() };
    run.validity = Validity::from_reasons(vec![reason]);
    run
}

fn outcome(run: &Run) -> LevelOutcome {
    judge(run, SearchQuantity::Rate, 0).outcome
}

#[test]
fn what_is_offered_has_to_be_answered() {
    assert_eq!(outcome(&run(1000.0, 991.0)), LevelOutcome::Held);
    let judged = judge(&run(1000.0, 980.0), SearchQuantity::Rate, 0);
    assert_eq!(judged.outcome, LevelOutcome::Missed);
    assert!(judged.reasons[0].contains("980/s"), "{judged:?}");
    let mut refused = run(1000.0, 1000.0);
    refused.rates.goodput_per_s = Some(700.0);
    let judged = judge(&refused, SearchQuantity::Rate, 0);
    assert_eq!(judged.outcome, LevelOutcome::Missed, "an instant 503 is no work done");
    assert!(judged.reasons[0].contains("700/s"), "{judged:?}");
    // Requests of the last 20 ms are still in flight when the window ends.
    assert_eq!(judge(&run(1000.0, 989.0), SearchQuantity::Rate, 20_000_000).outcome, LevelOutcome::Held);
}

#[test]
fn what_is_answered_after_a_trial_is_not_answered_in_it() {
    // 550 were due in half a second, and answered in one second.
    let mut late = run(1100.0, 550.0);
    (late.duration_s, late.window.to_s) = (0.5, 1.0);
    assert_eq!(outcome(&late), LevelOutcome::Missed);
    let mut soon = run(1100.0, 550.0 / 0.502);
    (soon.duration_s, soon.window.to_s) = (0.5, 0.502);
    assert_eq!(outcome(&soon), LevelOutcome::Held);
}

#[test]
fn a_short_trial_whose_last_responses_come_after_its_end_has_held() {
    // 100 were due in 0.4 s, and the last response came a latency of 15 ms after the last request.
    let mut short = run(250.0, 100.0 / 0.412);
    (short.duration_s, short.window.to_s) = (0.4, 0.412);
    assert_eq!(judge(&short, SearchQuantity::Rate, 15_000_000).outcome, LevelOutcome::Held);
    // At twice the capacity the drain takes as long as the load.
    let mut over = run(800.0, 400.0);
    (over.duration_s, over.window.to_s) = (0.2, 0.4);
    assert_eq!(judge(&over, SearchQuantity::Rate, 15_000_000).outcome, LevelOutcome::Missed);
}

#[test]
fn an_objective_is_an_objective() {
    let mut slow = run(1000.0, 1000.0);
    slow.objectives =
        vec![record::run::ObjectiveResult { text: "p99<5ms".into(), met: false, value: 6e6, validity: None }];
    let judged = judge(&slow, SearchQuantity::Rate, 0);
    assert_eq!(judged.outcome, LevelOutcome::Missed);
    assert_eq!(judged.reasons.len(), 1, "{judged:?}");
    assert!(judged.reasons[0].starts_with("p99<5ms ") && judged.reasons[0].contains("6.00 ms"), "{judged:?}");
}

#[test]
fn a_generator_at_its_limit_says_nothing_of_a_miss() {
    for code in ["client_bound", "littles_law"] {
        let judged = judge(&with_invalid_reason(run(1000.0, 900.0), code), SearchQuantity::Rate, 0);
        assert_eq!(judged.outcome, LevelOutcome::Undecided, "{code}");
        assert_eq!(judged.reasons, [format!("{code}: so")]);
    }
    assert_eq!(outcome(&with_invalid_reason(run(1000.0, 1000.0), "client_bound")), LevelOutcome::Held);
    assert_eq!(outcome(&with_invalid_reason(run(1000.0, 1000.0), "littles_law")), LevelOutcome::Undecided);
    // The subject's errors are not a fault of the measurement.
    assert_eq!(outcome(&with_invalid_reason(run(1000.0, 900.0), "errors")), LevelOutcome::Missed);
}

#[test]
fn a_generator_with_idle_time_does_not_explain_few_responses() {
    let mut waited = with_invalid_reason(run(1000.0, 900.0), "run_queue_wait");
    waited.generator.threads = 1;
    (waited.generator.busiest_thread_fraction, waited.generator.run_queue_wait_fraction) =
        (Some(0.1), Some(0.6));
    assert_eq!(outcome(&waited), LevelOutcome::Missed);
    waited.generator.busiest_thread_fraction = Some(0.35);
    assert_eq!(outcome(&waited), LevelOutcome::Undecided);
    // A missed latency may be caused by the wait.
    let mut slow = with_invalid_reason(run(1000.0, 1000.0), "run_queue_wait");
    slow.generator = waited.generator.clone();
    slow.generator.busiest_thread_fraction = Some(0.1);
    slow.objectives =
        vec![record::run::ObjectiveResult { text: "p99<5ms".into(), met: false, value: 6e6, validity: None }];
    assert_eq!(outcome(&slow), LevelOutcome::Undecided);
}

#[test]
fn connections_that_are_not_there_are_what_is_searched_for() {
    let mut refused = with_invalid_reason(run(10.0, 10.0), "connections_failed");
    refused.totals.connections.requested = 100;
    refused.totals.connections.max_open = 90;
    refused.totals.errors = BTreeMap::from([("refused".to_owned(), 3)]);
    assert_eq!(outcome(&refused), LevelOutcome::Undecided);
    let judged = judge(&refused, SearchQuantity::Connections, 0);
    assert_eq!(judged.outcome, LevelOutcome::Missed);
    assert!(judged.reasons[0].contains("90 of 100") && judged.reasons[0].contains("refused"));
    let mut closed = run(10.0, 10.0);
    closed.totals.connections.closed_idle = 2;
    assert_eq!(judge(&closed, SearchQuantity::Connections, 0).outcome, LevelOutcome::Missed);
    assert_eq!(judge(&closed, SearchQuantity::Rate, 0).outcome, LevelOutcome::Held);
}

#[test]
fn default_objectives_are_added() {
    let texts = |requested: &str, reference| {
        let requested = if requested.is_empty() { Vec::new() } else { Objective::parse_list(requested).0 };
        let objectives = level_objectives(&requested, reference);
        objectives.iter().map(|objective| objective.text().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts("", None), ["errors<0.1%"]);
    assert_eq!(texts("", Some(20_000)), ["errors<0.1%", "p99<=1.00ms"]);
    assert_eq!(texts("", Some(2_000_000)), ["errors<0.1%", "p99<=20.0ms"]);
    assert_eq!(texts("p99<5ms", Some(1)), ["p99<5ms", "errors<0.1%"]);
    assert_eq!(texts("p99<5ms,errors<1%", None), ["p99<5ms", "errors<1%"]);
}

#[test]
fn figures_go_from_the_run_to_the_trial() {
    let mut run = run(1000.0, 991.0);
    (run.totals.requests, run.totals.responses) = (100, 98);
    run.totals.status = BTreeMap::from([(200, 90), (503, 8)]);
    run.totals.errors = BTreeMap::from([("timeout".to_owned(), 2)]);
    (run.generator.in_flight_mean, run.generator.in_flight_by_littles_law) = (10.0, 9.0);
    let spec = TrialSpec { level: 1000.0, length_ns: 1, purpose: super::super::TrialPurpose::Grow };
    let judged = judge(&run, SearchQuantity::Rate, 0);
    let trial = trial_record(&spec, "grow", &run, judged);
    assert!((trial.error_fraction - 0.1).abs() < 1e-9 && !trial.littles_law_holds);
}

#[test]
fn a_limit_has_a_name() {
    assert_eq!(limit_kind(&["ports: 28k".into()]), "out of source ports");
    assert_eq!(limit_kind(&["descriptors: 20k".into()]), "out of descriptors");
    assert_eq!(limit_kind(&["client_bound: x".into()]), "client-bound");
    assert_eq!(limit_kind(&["littles_law: x".into()]), "not measurable");
}

/// Returns a trial of 1,000 requests of 1 ms. `slow` of them took 400 ms, and `affected` had a
/// stall in their latency.
fn stalled(slow: u64, affected: u64) -> Run {
    let mut latencies = record::histogram::LatencyHistogram::new();
    (0..1000 - slow).for_each(|_| latencies.record(1_000_000));
    (0..slow).for_each(|_| latencies.record(400_000_000));
    let mut run = run(100.0, 100.0);
    run.totals.requests = 1000;
    run.latency.last_byte.response = latencies.summary();
    run.generator.stalls = record::run::StallTotals {
        count: 1,
        longest_ns: 400_000_000,
        requests_due: affected,
        ..Default::default()
    };
    let value = run.latency.last_byte.response.p99_ns as f64;
    let met = value < 5e6;
    run.objectives =
        vec![record::run::ObjectiveResult { text: "p99<5ms".to_owned(), met, value, validity: None }];
    run
}

#[test]
fn what_the_generators_stalls_can_have_missed_by_themselves_is_not_missed() {
    assert_eq!(outcome(&stalled(5, 5)), LevelOutcome::Held);
    assert_eq!(outcome(&stalled(40, 0)), LevelOutcome::Missed);
    let judged = judge(&stalled(40, 40), SearchQuantity::Rate, 0);
    assert_eq!(judged.outcome, LevelOutcome::Undecided);
    assert!(judged.reasons[0].starts_with("generator_stalled: "), "{judged:?}");
    assert_eq!(limit_kind(&judged.reasons), "client-bound");
    assert_eq!(outcome(&stalled(500, 40)), LevelOutcome::Missed, "most were late without a stall");
    let mut also_failed = stalled(40, 40);
    let errors =
        record::run::ObjectiveResult { text: "errors<1%".to_owned(), met: false, value: 0.2, validity: None };
    also_failed.objectives.push(errors);
    assert_eq!(outcome(&also_failed), LevelOutcome::Missed);
    // Requests that were not answered within the trial because of the stall.
    let mut short = run(1000.0, 960.0);
    short.generator.stalls.requests_due = 400;
    assert_eq!(outcome(&short), LevelOutcome::Undecided);
    short.generator.stalls.requests_due = 100;
    assert_eq!(outcome(&short), LevelOutcome::Missed);
}

#[test]
fn a_short_trial_of_a_busy_generator_says_nothing() {
    let mut short = run(1000.0, 900.0);
    let text = "no complete second".to_owned();
    let reason = ValidityReason { code: TOO_SHORT.to_owned(), verdict: ValidityLevel::Suspect, text };
    short.validity = Validity::from_reasons(vec![reason]);
    short.generator.busiest_thread_fraction = Some(0.5);
    assert_eq!(outcome(&short), LevelOutcome::Missed);
    short.generator.busiest_thread_fraction = Some(0.97);
    assert_eq!(outcome(&short), LevelOutcome::Undecided);
    short.rates.responses_per_s = 1000.0;
    assert_eq!(outcome(&short), LevelOutcome::Held);
}
