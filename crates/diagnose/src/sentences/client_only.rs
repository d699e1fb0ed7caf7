//! Answers without a limit, without proof of one, and for a subject of which only the client's figures are known.

use record::run::{Answer, Run};
use record::units::format_rate;
use record::validity::ValidityLevel;

use super::remote::remote;
use super::waiting::ceiling;
use super::{answer, failures};
use crate::facts::{Facts, Slots, format_ns, format_number};
use crate::signals as s;
use crate::window::SUBJECT;

/// Waiting fraction of the latency from which requests queue.
const QUEUES_FROM: f64 = 0.4;
/// CPUs of other programs from which they disturb a run.
const DISTURBING_CPUS: f64 = 0.35;
/// CPUs of a subject below which other programs do not limit it.
const HARDLY_COMPUTES: f64 = 0.3;
/// Waiting fraction of the latency up to which a request takes as long as alone.
const ALONE_MAX: f64 = 0.25;

/// Answers that the load was carried.
pub(crate) fn none(facts: &Facts<'_>) -> Answer {
    let run = facts.view.run;
    let latency = &run.latency.last_byte.response;
    let rate = facts.rate();
    let tail = is_uneven(run).then(|| {
        format!(
            ", but 1 % of the responses took {} or more, and the median {}",
            format_ns(latency.p99_ns as f64),
            format_ns(latency.p50_ns as f64)
        )
    });
    let search = if tail.is_some() {
        "find what makes a few responses slow: pauses of all of them (garbage collection, a checkpoint, a batch; the log \
         of the service has their times), or a few requests that cost more"
            .to_owned()
    } else {
        String::new()
    };
    let tail = tail.unwrap_or_default();
    answer(
        match run.rates.offered_per_s {
            Some(offered) => format!(
                "your service carried the {} that were offered: no limit was reached{tail}",
                format_rate(offered)
            ),
            None => format!("your service carried this load of {rate}: no limit was reached{tail}"),
        },
        &[
            format!("99 % of the responses came within {}", format_ns(latency.p99_ns as f64)),
            facts.cpu_phrase("your service uses {}"),
            facts.next_limit(),
        ],
        &[
            search,
            match run.rates.offered_per_s {
                _ if facts.has_embedded_origin() => {
                    "load a server of yours with `weir load URL`, and find its ceiling with `weir edge URL`"
                        .to_owned()
                }
                Some(_) => {
                    format!("to find its ceiling, run `weir edge {}`, or this load without `-R`", facts.url())
                }
                None => format!(
                    "to find its ceiling, run `weir edge {}`, or use {}",
                    facts.url(),
                    facts.doubled_connections()
                ),
            },
        ],
    )
}

/// Returns whether the tail of the latencies is another one than the median leads to expect, and the generator did not
/// make it.
fn is_uneven(run: &Run) -> bool {
    let latency = &run.latency.last_byte.response;
    let is_long = latency.p99_ns >= UNEVEN_NS_MIN && latency.p99_ns >= UNEVEN_FACTOR * latency.p50_ns;
    is_long && run.validity.verdict != ValidityLevel::Invalid && !is_sent_late(run)
}

/// Least latency of the tail that is worth a word.
const UNEVEN_NS_MIN: u64 = 10_000_000;
/// Factor of the median from which the tail has a cause of its own.
const UNEVEN_FACTOR: u64 = 20;

/// Answers that the limit is not proven.
pub(crate) fn unknown(facts: &Facts<'_>) -> Answer {
    let is_observed = facts.view.machine(SUBJECT).is_some();
    let what = load_shape(facts, if is_observed { "your service" } else { "the server" });
    if !is_observed {
        return remote(facts, what, compared_with_alone(facts), failures_phrase(facts));
    }
    answer(
        what,
        &[
            facts.cpu_phrase("it uses {}"),
            facts.sleep(),
            compared_with_alone(facts),
            facts.transfer(),
            "the samples do not prove which limit it is".to_owned(),
        ],
        &match facts.value(&s::SUBJECT_CPUS) {
            // A subject that hardly computes waits for something else than the CPUs that other programs took.
            Some(cpus) if cpus < HARDLY_COMPUTES => [next_observation(facts), disturbance(facts)],
            _ => [disturbance(facts), next_observation(facts)],
        },
    )
}

/// Names the other programs, if they disturbed the run.
fn disturbance(facts: &Facts<'_>) -> String {
    let others = facts.value(&s::FOREIGN_CPUS).filter(|others| *others >= DISTURBING_CPUS);
    others.map_or_else(String::new, |others| {
        format!("repeat the load on an idle machine: other programs used {others:.2} CPUs")
    })
}

/// Names the step that would prove a limit.
fn next_observation(facts: &Facts<'_>) -> String {
    match (facts.alone_ns(), facts.slots()) {
        (None, _) => "let the load measure a request alone (3 s or more at a steady load, without `--no-baseline`): it \
                      tells waiting from work"
            .to_owned(),
        (Some(_), Some(Slots::Number { count: 1.0, .. })) if facts.value(&s::QUEUEING) >= Some(QUEUES_FROM) => {
            "look for what lets in one request at a time (a lock, a single worker, one connection to a database), and \
             shorten or split it; `weir lab profile` shows where the time goes"
                .to_owned()
        }
        (Some(_), Some(Slots::Number { count, .. })) if facts.value(&s::QUEUEING) >= Some(QUEUES_FROM) => format!(
            "look for a limit of {} in it (workers, pool, semaphore) and raise it; `weir lab profile` shows where the \
             time goes",
            format_number(count)
        ),
        _ => "`weir lab profile` shows where the time goes".to_owned(),
    }
}

/// Compares the latency with that of a request alone; says if that one is not known.
fn compared_with_alone(facts: &Facts<'_>) -> String {
    match facts.alone_ns() {
        Some(_) => facts.waiting(),
        None => "the latency of a request alone is not known".to_owned(),
    }
}

fn failures_phrase(facts: &Facts<'_>) -> String {
    let totals = &facts.view.run.totals;
    match totals.failed() + totals.bad() {
        0 => "no request failed".to_owned(),
        _ => format!("failures: {}", failures::failure_kinds(facts.view.run)),
    }
}

/// Returns whether the generator, and not the subject, made the responses late.
fn is_sent_late(run: &Run) -> bool {
    let reasons = run.validity.reasons.iter().filter(|reason| reason.verdict == ValidityLevel::Invalid);
    let generator_codes = ["generator_stalled", "send_lag", "run_queue_wait"];
    let latency = &run.latency.last_byte;
    let is_waiting = latency.response.p99_ns as f64 > LATE_FACTOR * latency.service.p99_ns as f64;
    is_waiting && reasons.into_iter().any(|reason| generator_codes.contains(&reason.code.as_str()))
}

/// Ratio of the latencies from the due time and from the send from which sends were late.
const LATE_FACTOR: f64 = 1.2;

/// Describes the limit by the load alone: requests queue, or each takes its time, or the baseline is not known.
fn load_shape(facts: &Facts<'_>, subject: &str) -> String {
    let run = facts.view.run;
    let rate = facts.rate();
    let is_open = run.rates.offered_per_s.is_some();
    let missed =
        run.objectives.iter().filter(|objective| !objective.met).map(|objective| objective.text.as_str());
    let missed: Vec<&str> = missed.collect();
    match facts.value(&s::QUEUEING) {
        Some(fraction)
            if fraction >= QUEUES_FROM && matches!(facts.slots(), Some(Slots::Number { .. })) && !is_open =>
        {
            ceiling(facts, subject)
        }
        Some(fraction) if fraction <= ALONE_MAX && !is_open => format!(
            "{subject} was not full: each request takes {} with this load as well as alone, so {} {rate}",
            facts.mean(),
            facts.connections_carry()
        ),
        _ => match run.rates.offered_per_s {
            Some(offered) if run.goodput_per_s() < 0.99 * offered => {
                format!("{subject} answered {rate} of the {} that were offered", format_rate(offered))
            }
            Some(_) if is_sent_late(run) => format!(
                "{subject} answered {rate} as offered; this load generator sent many of the requests late, so the \
                 response times are not those of {subject}"
            ),
            Some(_) if !missed.is_empty() => format!("{subject} missed {} at {rate}", missed.join(", ")),
            Some(_) => format!("{subject} answered {rate} as offered, but many requests late"),
            None => format!(
                "{subject} answered {rate} with {} requests in flight, {} each",
                facts.in_flight(),
                facts.mean()
            ),
        },
    }
}
