//! Judgement of one trial at a level: held, missed, or undecided because the generator was the
//! limit. It reads only the record of the run.

mod stalls;

use record::capacity_search::{LevelOutcome, SearchTrial};
use record::run::{ObjectiveOutcome, Run};
use record::units::{MILLISECOND_NS, format_count, format_duration_flag, format_plural};

use super::{SearchQuantity, TrialSpec};
use crate::plan::Objective;
use crate::validity::{TOO_SHORT, invalidates_measurement};

/// Minimum fraction of the offered requests that must get a good response within a trial.
pub const ACHIEVED_FRACTION: f64 = 0.99;
/// Maximum multiple of the reference's p99, if there is no objective of latency.
const LATENCY_FACTOR_MAX: u64 = 10;
/// Minimum of such a bound: below it the machine's own noise dominates.
const LATENCY_BOUND_NS_MIN: u64 = MILLISECOND_NS;
/// Maximum difference between Little's law and the count: this fraction, and this many requests.
const LITTLES_LAW_TOLERANCE: f64 = 0.05;
const LITTLES_LAW_TOLERANCE_REQUESTS: f64 = 0.01;
/// Reasons against a measurement that can only have made its latencies longer. An objective that is
/// met despite them is met.
const LATENCY_INFLATING_CODES: [&str; 5] =
    ["client_bound", "run_queue_wait", "send_lag", "cpu_steal", GENERATOR_STALLED];
const GENERATOR_STALLED: &str = "generator_stalled";
/// Reason of waiting for a CPU, and the fraction of its time that a thread may be busy or waiting
/// without being the limit of a rate.
const RUN_QUEUE_WAIT: &str = "run_queue_wait";
const BUSY_OR_WAITING_MAX: f64 = 0.9;
/// Fraction of a core from which a generator thread was the limit, as in the rule `client_bound`.
const THREAD_UTILIZATION_MAX: f64 = 0.95;
/// With idle connections, getting fewer than requested is what the search looks for.
const CONNECTIONS_FAILED: &str = "connections_failed";

/// Outcome of a trial, with its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub outcome: LevelOutcome,
    /// Reasons why it is not `held`.
    pub reasons: Vec<String>,
}

/// Returns the objectives of a level: the requested ones, and errors below 0.1 % unless there is an
/// objective of errors. Without any requested objective, also a p99 of at most ten times that of
/// the reference, or 1 ms.
pub fn level_objectives(requested: &[Objective], reference_p99_ns: Option<u64>) -> Vec<Objective> {
    let mut goal = requested.to_vec();
    let mut add = |text: &str| goal.extend(Objective::parse_list(text).0);
    if !requested.iter().any(Objective::is_error_rate) {
        add("errors<0.1%");
    }
    if let (true, Some(p99_ns)) = (requested.is_empty(), reference_p99_ns) {
        let bound_ns = (LATENCY_FACTOR_MAX * p99_ns).max(LATENCY_BOUND_NS_MIN);
        add(&format!("p99<={}", format_duration_flag(bound_ns)));
    }
    goal
}

/// Judges a trial by its record. `base_latency_ns` is the time of a request at low load: requests
/// of the last moments are not answered within the trial, which is nobody's fault.
pub fn judge(run: &Run, quantity: SearchQuantity, base_latency_ns: u64) -> Judgement {
    let objectives = run.objectives.iter().filter(|objective| !objective.met);
    let (explained_by_stalls, unexplained): (Vec<_>, Vec<_>) =
        objectives.partition(|objective| stalls::can_explain(run, objective));
    let mut missed: Vec<String> = unexplained.into_iter().filter_map(missed_objective_text).collect();
    let shortfall = request_shortfall(run, base_latency_ns);
    let shortfall_by_stalls =
        shortfall.as_ref().is_some_and(|(count, _)| stalls::can_explain_shortfall(run, *count));
    let stalled = shortfall_by_stalls || !explained_by_stalls.is_empty();
    let shortfall_text = shortfall.filter(|_| !shortfall_by_stalls).map(|(_, text)| text);
    let excused = shortfall_text.is_some() && had_idle_time(run);
    missed.extend(shortfall_text);
    if quantity == SearchQuantity::Connections {
        missed.extend(connection_problems(run));
    }
    if quantity == SearchQuantity::Streams {
        missed.extend(stream_limit(run));
    }
    let mut invalid = invalid_reasons(run, quantity);
    // Objectives that were missed independently of the stalls.
    let missed_without_stalls = !missed.is_empty();
    invalid.retain(|(code, _)| {
        !(excused && *code == RUN_QUEUE_WAIT || missed_without_stalls && *code == GENERATOR_STALLED)
    });
    // A trial that is too short for the rules of validity may still be limited by the generator.
    let busy = generator_busy_in_a_short_trial(run);
    if !missed.is_empty() && invalid.is_empty() {
        invalid.extend(busy.as_deref().map(|text| ("client_bound", text)));
    }
    let outcome = match (missed.is_empty(), invalid.is_empty()) {
        (true, _) if stalled => LevelOutcome::Undecided,
        (true, true) => LevelOutcome::Held,
        (false, true) => LevelOutcome::Missed,
        (true, false) if invalid.iter().all(|(code, _)| LATENCY_INFLATING_CODES.contains(code)) => {
            LevelOutcome::Held
        }
        _ => LevelOutcome::Undecided,
    };
    let reasons = match outcome {
        LevelOutcome::Held => Vec::new(),
        LevelOutcome::Missed => missed,
        LevelOutcome::Undecided => {
            let stall_reason = stalled.then(|| stalls::reason(run));
            let invalid = invalid.into_iter().filter(|(code, _)| !(stalled && *code == GENERATOR_STALLED));
            stall_reason.into_iter().chain(invalid.map(|(code, text)| format!("{code}: {text}"))).collect()
        }
    };
    Judgement { outcome, reasons }
}

fn missed_objective_text(objective: &record::run::ObjectiveResult) -> Option<String> {
    let proof = match objective.outcome() {
        ObjectiveOutcome::NotProven => ", not proven: the trial was disturbed",
        _ => "",
    };
    (!objective.met).then(|| format!("{} was missed: {}{proof}", objective.text, objective.value_text()))
}

/// Returns the number of requests that were not answered within a trial, and a text, if there are
/// too many.
fn request_shortfall(run: &Run, base_latency_ns: u64) -> Option<(f64, String)> {
    let offered_per_s = run.rates.offered_per_s?;
    let length_s = run.window.length_s();
    let waiting_s = (base_latency_ns as f64 / 1e9).min(length_s / 2.0);
    // Without a complete second the window extends to the end of the drain. Nothing is due in the
    // drain, so the same rate is assumed there as in the load. Late responses then do not make up
    // for a rate that was not held.
    let due = offered_per_s * length_s;
    let answered = run.goodput_per_s() * length_s + offered_per_s * waiting_s;
    // One request may be cut by the window's edge.
    (answered + 1.0 < ACHIEVED_FRACTION * due).then(|| {
        let text = format!(
            "of {}/s offered only {}/s had a good response",
            format_count(offered_per_s),
            format_count(run.goodput_per_s())
        );
        (due - answered, text)
    })
}

/// Returns whether the generator's threads were idle now and then. Waiting for a CPU makes sends
/// late, but a thread with time left is not why responses are fewer than requests.
fn had_idle_time(run: &Run) -> bool {
    run.generator.runnable_fraction().is_some_and(|runnable| runnable < BUSY_OR_WAITING_MAX)
}

/// Returns a reason if a generator thread was always busy, for a trial too short for the rules of validity.
fn generator_busy_in_a_short_trial(run: &Run) -> Option<String> {
    let utilization = run.generator.busiest_thread_fraction?;
    let limited = utilization >= THREAD_UTILIZATION_MAX && run.validity.has_reason(TOO_SHORT);
    limited.then(|| format!("its busiest thread used {:.0} % of a core", utilization * 100.0))
}

fn connection_problems(run: &Run) -> Vec<String> {
    let connections = &run.totals.connections;
    let mut reasons = Vec::new();
    if connections.max_open < connections.requested {
        let kinds: Vec<_> = run.totals.errors.keys().map(String::as_str).collect();
        let causes = if kinds.is_empty() { "no answer".to_owned() } else { kinds.join(", ") };
        reasons.push(format!(
            "only {} of {} were obtained ({} failed: {causes})",
            connections.max_open,
            format_plural(connections.requested, "connection"),
            format_plural(connections.failed, "attempt")
        ));
    }
    if connections.closed_idle > 0 {
        reasons
            .push(format!("the server closed {}", format_plural(connections.closed_idle, "idle connection")));
    }
    if connections.lost > 0 {
        let were = if connections.lost == 1 { "was" } else { "were" };
        reasons.push(format!("{} {were} lost with a request", format_plural(connections.lost, "connection")));
    }
    reasons
}

/// Returns the reason if a server does not allow so many streams.
fn stream_limit(run: &Run) -> Option<String> {
    let http2 = run.http2.as_ref()?;
    let allowed = http2.streams_allowed?;
    Some(format!("the server allows {} per connection", format_plural(allowed, "stream")))
}

/// Returns the codes and texts that make the measurement itself invalid.
fn invalid_reasons(run: &Run, quantity: SearchQuantity) -> Vec<(&str, &str)> {
    let reasons = run.validity.reasons.iter().filter(|reason| {
        let is_expected = quantity == SearchQuantity::Connections && reason.code == CONNECTIONS_FAILED;
        invalidates_measurement(reason) && !is_expected
    });
    reasons.map(|reason| (reason.code.as_str(), reason.text.as_str())).collect()
}

/// Returns whether the level was missed only by objectives that a disturbance may have decided.
fn is_unproven(run: &Run, judgement: &Judgement) -> bool {
    let unproven =
        run.objectives.iter().filter(|objective| objective.outcome() == ObjectiveOutcome::NotProven).count();
    judgement.outcome == LevelOutcome::Missed && unproven > 0 && judgement.reasons.len() == unproven
}

/// Returns the trial for the record of a search; the caller sets number, begin, observer and file.
pub fn trial_record(spec: &TrialSpec, purpose: &str, run: &Run, judgement: Judgement) -> SearchTrial {
    let (counted, by_law) = (run.generator.in_flight_mean, run.generator.in_flight_by_littles_law);
    let latency = &run.latency.last_byte.response;
    let is_unproven = is_unproven(run, &judgement);
    SearchTrial {
        purpose: purpose.to_owned(),
        length_s: run.duration_s,
        level: spec.level,
        connections: run.totals.connections.requested,
        outcome: judgement.outcome,
        reasons: judgement.reasons,
        offered_per_s: run.rates.offered_per_s,
        responses_per_s: run.rates.responses_per_s,
        goodput_per_s: Some(run.goodput_per_s()),
        bytes_in_per_s: run.rates.bytes_in_per_s,
        error_fraction: run.totals.error_fraction(),
        mean_ns: latency.mean_ns,
        p50_ns: latency.p50_ns,
        p99_ns: latency.p99_ns,
        in_flight_mean: counted,
        in_flight_by_littles_law: by_law,
        littles_law_holds: (counted - by_law).abs()
            <= LITTLES_LAW_TOLERANCE * counted.max(by_law) + LITTLES_LAW_TOLERANCE_REQUESTS,
        generator_busy: run.generator.busiest_thread_fraction,
        is_unproven,
        ..SearchTrial::default()
    }
}

#[cfg(test)]
mod tests;
