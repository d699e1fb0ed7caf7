//! What a trial says of its level: held, missed, or nothing because the generator was the limit. Reads
//! a run's record and nothing else.

mod stalls;

use record::edge::{Outcome, Trial};
use record::run::Run;
use record::units::{MILLISECOND_NS, count_of, format_count, format_duration_ns};
use record::validity::Verdict;

use super::{Ask, Find};
use crate::plan::Objective;
use crate::validity::{RULES, TOO_SHORT};

/// Share of what was offered that has to have a good response within a trial.
pub const ACHIEVED_SHARE: f64 = 0.99;
/// Without an objective of latency, p99 may be so many times that of the reference.
const LATENCY_TIMES: u64 = 10;
/// But a bound is never lower than this: below it a machine's own unrest decides.
const LATENCY_NS_FLOOR: u64 = MILLISECOND_NS;
/// Little's law and the count may differ by this share, and by this many requests.
const LITTLE_SHARE: f64 = 0.05;
const LITTLE_REQUESTS: f64 = 0.01;
/// Reasons against a measurement that can only have made its latencies longer: what is met in spite of
/// them is met.
const ONLY_SLOWER: [&str; 5] = ["client_bound", "run_queue_wait", "send_lag", "cpu_steal", STALLED];
const STALLED: &str = "generator_stalled";
/// Waiting for a processor, and the share of its time that a thread may be busy or waiting and still is
/// not the limit of a rate.
const WAITED: &str = "run_queue_wait";
const TIME_SHARE_MAX: f64 = 0.9;
/// A generator thread that used so much of a core was the limit, as in the rule `client_bound`.
const BUSY_SHARE_MAX: f64 = 0.95;
/// With idle connections, getting fewer than were asked for is what is searched for.
const SOUGHT: &str = "connections_missing";

/// What a trial says, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What.
    pub outcome: Outcome,
    /// Why it is not `held`.
    pub reasons: Vec<String>,
}

/// What a level has to hold: what was asked for, and errors below 0.1 % unless something was said of
/// them. When nothing was asked for also a p99 of at most ten times that of the reference, or 1 ms.
#[must_use]
pub fn goal(asked: &[Objective], reference_p99_ns: Option<u64>) -> Vec<Objective> {
    let mut goal = asked.to_vec();
    let mut add = |text: &str| goal.extend(Objective::parse_list(text).0);
    if !asked.iter().any(Objective::is_of_errors) {
        add("errors<0.1%");
    }
    if let (true, Some(p99_ns)) = (asked.is_empty(), reference_p99_ns) {
        let bound_ns = (LATENCY_TIMES * p99_ns).max(LATENCY_NS_FLOOR);
        add(&format!("p99<={}", format_duration_ns(bound_ns)));
    }
    goal
}

/// Judges a trial by its record. `waiting_ns` is how long a request takes at low load: those of the last
/// moments are not answered within the trial, and that is nobody's fault.
#[must_use]
pub fn judge(run: &Run, find: Find, waiting_ns: u64) -> Judgement {
    let objectives = run.objectives.iter().filter(|objective| !objective.met);
    let (of_stalls, of_subject): (Vec<_>, Vec<_>) =
        objectives.partition(|objective| stalls::explain(run, objective));
    let mut missed: Vec<String> = of_subject.into_iter().filter_map(missed_objective).collect();
    let missing = not_achieved(run, waiting_ns);
    let of_stall = missing.as_ref().is_some_and(|(count, _)| stalls::explain_missing(run, *count));
    let stalled = of_stall || !of_stalls.is_empty();
    let short = missing.filter(|_| !of_stall).map(|(_, text)| text);
    let excused = short.is_some() && had_time_left(run);
    missed.extend(short);
    if find == Find::Connections {
        missed.extend(connections_lost(run));
    }
    let mut invalid = invalid(run, find);
    // What was missed was missed beside the stalls.
    let beside = !missed.is_empty();
    invalid.retain(|(code, _)| !(excused && *code == WAITED || beside && *code == STALLED));
    // A trial that is too short for the rules of validity can still be one that the generator limited.
    let busy = generator_busy_in_a_short_trial(run);
    if !missed.is_empty() && invalid.is_empty() {
        invalid.extend(busy.as_deref().map(|text| ("client_bound", text)));
    }
    let outcome = match (missed.is_empty(), invalid.is_empty()) {
        (true, _) if stalled => Outcome::NoVerdict,
        (true, true) => Outcome::Held,
        (false, true) => Outcome::Missed,
        (true, false) if invalid.iter().all(|(code, _)| ONLY_SLOWER.contains(code)) => {
            Outcome::Held
        }
        _ => Outcome::NoVerdict,
    };
    let reasons = match outcome {
        Outcome::Held => Vec::new(),
        Outcome::Missed => missed,
        Outcome::NoVerdict => {
            let own = stalled.then(|| stalls::reason(run));
            let invalid = invalid.into_iter().filter(|(code, _)| !(stalled && *code == STALLED));
            own.into_iter().chain(invalid.map(|(code, text)| format!("{code}: {text}"))).collect()
        }
    };
    Judgement { outcome, reasons }
}

fn missed_objective(objective: &record::run::Objective) -> Option<String> {
    (!objective.met).then(|| format!("{} was missed: {}", objective.text, objective.value_text()))
}

/// The requests that were not answered within a trial, and a text, where there are too many.
fn not_achieved(run: &Run, waiting_ns: u64) -> Option<(f64, String)> {
    let offered_per_s = run.rates.offered_per_s?;
    let length_s = run.window.length_s();
    let waiting_s = (waiting_ns as f64 / 1e9).min(length_s / 2.0);
    // Without a whole second the window goes on to the end of the drain, in which nothing is due.
    let due_per_s = offered_per_s * (length_s / run.duration_s.max(1e-9)).max(1.0);
    let due = due_per_s * length_s;
    let answered = run.goodput_per_s() * length_s + due_per_s * waiting_s;
    // One request is cut by the window's edge anyway.
    (answered + 1.0 < ACHIEVED_SHARE * due).then(|| {
        let text = format!(
            "of {}/s offered only {}/s had a good response",
            format_count(due_per_s),
            format_count(run.goodput_per_s())
        );
        (due - answered, text)
    })
}

/// Whether the generator's threads were idle now and then: what waits for a processor is late, but when it
/// has time left it is not why answers are fewer than requests.
fn had_time_left(run: &Run) -> bool {
    let busy = run.generator.busiest_thread_share.unwrap_or(1.0);
    let waited = run.generator.run_queue_wait_share.unwrap_or(0.0);
    busy + waited < TIME_SHARE_MAX
}

/// Says that a generator thread was busy all the time, of a trial too short for [`RULES`] to say so.
fn generator_busy_in_a_short_trial(run: &Run) -> Option<String> {
    let share = run.generator.busiest_thread_share?;
    let limited = share >= BUSY_SHARE_MAX && run.validity.has(TOO_SHORT);
    limited.then(|| format!("its busiest thread used {:.0} % of a core", share * 100.0))
}

fn connections_lost(run: &Run) -> Vec<String> {
    let connections = &run.totals.connections;
    let mut reasons = Vec::new();
    if connections.obtained < connections.wanted {
        let kinds: Vec<_> = run.totals.errors.keys().map(String::as_str).collect();
        let why = if kinds.is_empty() { "no answer".to_owned() } else { kinds.join(", ") };
        reasons.push(format!(
            "only {} of {} were obtained ({} failed: {why})",
            connections.obtained,
            count_of(connections.wanted, "connection"),
            count_of(connections.failed, "attempt")
        ));
    }
    if connections.closed_idle > 0 {
        reasons.push(format!(
            "the server closed {}",
            count_of(connections.closed_idle, "idle connection")
        ));
    }
    if connections.lost > 0 {
        reasons.push(format!("{} connections were lost with a request", connections.lost));
    }
    reasons
}

/// What makes the measurement itself invalid: codes and texts.
fn invalid(run: &Run, find: Find) -> Vec<(&str, &str)> {
    let reasons = run.validity.reasons.iter().filter(|reason| {
        let of_subject = RULES.iter().any(|rule| rule.code == reason.code && rule.of_subject);
        let sought = find == Find::Connections && reason.code == SOUGHT;
        reason.verdict == Verdict::Invalid && !of_subject && !sought
    });
    reasons.map(|reason| (reason.code.as_str(), reason.text.as_str())).collect()
}

/// A trial as the record of a search has it; number, begin, observer and file are for the caller.
#[must_use]
pub fn trial(ask: &Ask, purpose: &str, run: &Run, judgement: Judgement) -> Trial {
    let (counted, by_law) = (run.generator.in_flight_mean, run.generator.in_flight_by_littles_law);
    let latency = &run.latency.last_byte.response;
    Trial {
        purpose: purpose.to_owned(),
        length_s: run.duration_s,
        level: ask.level,
        connections: run.totals.connections.wanted,
        outcome: judgement.outcome,
        reasons: judgement.reasons,
        offered_per_s: run.rates.offered_per_s,
        responses_per_s: run.rates.responses_per_s,
        goodput_per_s: Some(run.goodput_per_s()),
        bytes_in_per_s: run.rates.bytes_in_per_s,
        error_share: run.totals.error_share(),
        mean_ns: latency.mean_ns,
        p50_ns: latency.p50_ns,
        p99_ns: latency.p99_ns,
        in_flight_mean: counted,
        in_flight_by_littles_law: by_law,
        littles_law_holds: (counted - by_law).abs()
            <= LITTLE_SHARE * counted.max(by_law) + LITTLE_REQUESTS,
        generator_busy: run.generator.busiest_thread_share,
        ..Trial::default()
    }
}

/// What kind of limit the reasons of a trial without a verdict name, for a summary: the generator, unless
/// every reason is about something else of its machine.
#[must_use]
pub fn limit_of(reasons: &[String]) -> &'static str {
    let starts = |code: &str| reasons.iter().any(|reason| reason.starts_with(code));
    if starts("ports") {
        "out of source ports"
    } else if starts("descriptors") {
        "out of descriptors"
    } else if ["client_bound", "send_lag", "run_queue_wait", STALLED].into_iter().any(starts) {
        "client-bound"
    } else {
        "not measurable"
    }
}

#[cfg(test)]
mod tests;
