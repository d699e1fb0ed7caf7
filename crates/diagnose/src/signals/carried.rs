//! Part of the load that was carried. Thresholds of verdicts are elsewhere.

use record::run::Interval;

use super::queueing::cycle_fraction;
use crate::run_view::RunView;
use crate::window::median;

/// Minimum fraction of an open loop's offered load that must get a response for the load to count
/// as carried; the capacity search uses the same value.
pub(crate) const CARRIED_MIN: f64 = 0.99;

/// Returns the fraction of the load that got a response in time; 0 if responses came only by
/// waiting longer and longer, or too late for the objectives. `None` for a closed loop without
/// think time, which offers no fixed load.
pub(crate) fn carried_fraction(view: &RunView<'_>) -> Option<f64> {
    let run = view.run;
    let in_time = run.totals.dropped == 0 && run.objectives.iter().all(|objective| objective.met);
    let thinks = run.plan["pace"]["think_ns"].as_u64().is_some_and(|ns| ns > 0);
    let fraction = match good_response_fraction(view) {
        Some(responded) => match has_standing_queue(&run.intervals)? {
            true => 0.0,
            false => responded,
        },
        // Clients with think time request more as soon as responses come faster: X(N) = N / (R +
        // Z). So their waiting time beyond R(1) is load that was not carried.
        None if thinks => {
            let fraction = cycle_fraction(view)?;
            if fraction >= CYCLE_CARRIED_MIN { 1.0 } else { fraction }
        }
        None => return None,
    };
    Some(if in_time { fraction } else { 0.0 })
}

/// Minimum fraction of the rate without queueing at which clients with think time were not held up:
/// a little waiting is part of any load.
const CYCLE_CARRIED_MIN: f64 = 0.9;

/// Returns the fraction of an open loop's requests that got a good response; `None` for a closed
/// loop.
pub(super) fn good_response_fraction(view: &RunView<'_>) -> Option<f64> {
    let rates = &view.run.rates;
    rates.offered_per_s?;
    let good = view.goodput() / rates.responses_per_s.max(1e-9);
    Some(rates.answered_fraction()? * good.min(1.0))
}

/// Returns whether requests waited for a connection in most seconds, or the number in flight and their latency kept
/// growing: then the load was not carried, but deferred. `None` if there are too few seconds.
fn has_standing_queue(intervals: &[Interval]) -> Option<bool> {
    /// Maximum random growth of the requests in flight from start to end, as a difference.
    const CHANCE: f64 = 2.0;
    /// Minimum growth of the latency: a pause just before the end leaves requests in flight, but no queue.
    const LATENCY_GROWTH: f64 = 1.5;
    let measured: Vec<&Interval> = intervals.iter().filter(|second| second.measured).collect();
    let third = measured.len() / 3;
    let median_of = |part: &[&Interval], figure: fn(&Interval) -> f64| {
        median(part.iter().map(|second| figure(second)).collect())
    };
    let (first, last) = (&measured[..third], &measured[measured.len() - third..]);
    let growth = |figure| Some((median_of(first, figure)?, median_of(last, figure)?));
    let (in_flight_before, in_flight_after) = growth(|second| second.in_flight as f64)?;
    let (latency_before, latency_after) = growth(|second| second.last_byte_mean_ns)?;
    let waits = median_of(&measured, |second| second.pending as f64)? > 0.0
        || median_of(last, |second| second.pending as f64)? > 0.0;
    let grew =
        in_flight_after > 2.0 * in_flight_before + CHANCE && latency_after > LATENCY_GROWTH * latency_before;
    Some(waits || grew)
}
