//! Answer for a load whose server sends by itself: event streams, and WebSocket in the mode `push`. Its requests are
//! subscriptions, so that their rate says nothing about the server.

use record::histogram::LatencySummary;
use record::run::{Answer, Run};
use record::units::{format_count, format_plural, format_rate};

use super::answer;
use crate::facts::{Facts, format_ns};
use crate::signals as s;

/// Use of the busiest generator thread from which gaps may be its own.
const FULL_FROM: f64 = 0.9;

/// Events or messages that a server sent without a request for each of them.
struct Pushed<'a> {
    noun: &'static str,
    count: u64,
    per_s: f64,
    gap: &'a LatencySummary,
    lost: u64,
}

impl<'a> Pushed<'a> {
    fn from_run(run: &'a Run) -> Option<Self> {
        if let Some(stream) = &run.event_stream {
            let (count, per_s) = (stream.events, stream.events_per_s);
            return Some(Self { noun: "event", count, per_s, gap: &stream.gap, lost: stream.lost });
        }
        let socket = run.websocket.as_ref().filter(|socket| socket.mode == "push")?;
        let (count, per_s) = (socket.messages_received, socket.messages_per_s);
        Some(Self { noun: "message", count, per_s, gap: &socket.gap, lost: socket.lost })
    }
}

/// Returns the noun and the rate of what the server of a run sent by itself; `None` for another load, or if nothing came.
pub fn pushed_rate(run: &Run) -> Option<(&'static str, f64)> {
    Pushed::from_run(run).filter(|pushed| pushed.count > 0).map(|pushed| (pushed.noun, pushed.per_s))
}

/// Returns the answer; `None` for another load, or if nothing came.
pub(crate) fn pushed(facts: &Facts<'_>) -> Option<Answer> {
    let run = facts.view.run;
    let Pushed { noun, count, per_s, gap, lost } = Pushed::from_run(run).filter(|pushed| pushed.count > 0)?;
    let first = &run.latency.last_byte.response;
    let gaps = (gap.count > 0).then(|| {
        let [p50, p99, max] = [gap.p50_ns, gap.p99_ns, gap.max_ns].map(|ns| format_ns(ns as f64));
        format!("the gap between two was {p50} (median), {p99} (p99) and {max} at most")
    });
    let is_full = facts.value(&s::GENERATOR_THREAD).is_some_and(|busy| busy >= FULL_FROM);
    let next = match is_full {
        true => format!(
            "the generator was full, so gaps may be its own: generate the load with more threads (`-t {}`)",
            run.generator.threads.max(1) * 2
        ),
        false => format!(
            "to find how many subscribers it serves, use {} until the gaps grow",
            facts.doubled_connections()
        ),
    };
    Some(answer(
        format!(
            "your service sent {} {noun}s ({}) to {}",
            format_count(count as f64),
            format_rate(per_s),
            format_plural(run.totals.connections.max_open, "subscriber")
        ),
        &[
            format!(
                "the first one came after {} (median) and {} (p99)",
                format_ns(first.p50_ns as f64),
                format_ns(first.p99_ns as f64)
            ),
            gaps.unwrap_or_default(),
            if lost > 0 {
                format!("{} are missing by their numbers", format_count(lost as f64))
            } else {
                String::new()
            },
        ],
        &[next],
    ))
}
