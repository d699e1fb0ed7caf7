//! Phases of a proxy whose queue cannot be read: the connections in use come from the counters of the servers, the
//! goodput from the load, and the drain time of an unbounded queue from the latency after the stall.

use plan::subject_queue::SubjectQueue;
use plan::verification::{Measured, VerifiedPlan};
use record::run::Interval;
use rt::drain::DrainWatch;

use super::children::Setup;
use super::{Phase, mean, measure_overload, stall_connections, stall_phase};
use crate::exit::Failure;

/// Reasons why a figure has no measured value.
const INSIDE: &str = "not observable: the queue is inside of the subject";
const SHORT: &str = "not observable: a queue with bounds drains faster than the latency of seconds shows";
const TOO_FAST: &str = "not observable: it drained within two seconds; a longer --stall shows it";
const NO_QUEUE: &str = "not observable: the subject has no queue";
const NO_BOUND: &str = "not measured: the queue has no bound";
const COLLAPSE: &str = "not measured: an unbounded queue collapses in an overload";
/// Fraction of the highest latency after a stall down to which seconds belong to the drain.
const DRAIN_FRACTION: f64 = 0.2;

/// Measures everything that can be observed from outside of a subject with this queue.
pub(super) fn measure(
    setup: &mut Setup,
    (plan, queue): (&VerifiedPlan, SubjectQueue),
    timeout_s: f64,
    stop: &DrainWatch,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let lengths = setup.lengths();
    (measured.backlog, measured.bounded_backlog) = match queue {
        SubjectQueue::None => (Err(NO_QUEUE), Err(NO_QUEUE)),
        SubjectQueue::Bounded => (Err(INSIDE), Err(INSIDE)),
        SubjectQueue::Unbounded => (Err(INSIDE), Err(NO_BOUND)),
    };
    let is_unbounded = queue == SubjectQueue::Unbounded;
    let steady = Phase {
        pool: "bounded",
        rate_per_s: plan.rate_per_s,
        duration_s: lengths.steady_s,
        stall_at_s: None,
        connections: stall_connections(plan),
        timeout_s,
    };
    let phase = if is_unbounded { stall_phase(plan, lengths) } else { steady };
    let name = if is_unbounded { "steady state and stall" } else { "steady state" };
    warn!("weir: {name}: {:.0} s", phase.duration_s);
    let (samples, run) = phase.run(setup, plan, stop)?;
    setup.check_subject()?;
    measured.busy_connections =
        Ok(mean(&samples, lengths.settle_s, lengths.steady_s, |sample| sample.in_flight));
    measured.drain_s = match queue {
        SubjectQueue::None => Err(NO_QUEUE),
        SubjectQueue::Bounded => Err(SHORT),
        SubjectQueue::Unbounded => {
            let resumed_s = lengths.steady_s + plan.stall_s;
            drain_by_latency(&run.intervals, resumed_s, plan.loaded_service_s).ok_or(TOO_FAST)
        }
    };
    if is_unbounded {
        (measured.goodput_per_s, measured.overload_connections) = (Err(COLLAPSE), Err(COLLAPSE));
        return Ok(());
    }
    measure_overload(setup, plan, timeout_s, stop, measured)?;
    setup.check_subject()
}

/// Returns the time from the end of a stall until the latency is that of the service again, in s: the root of the
/// line through the medians of the seconds that drain. In a queue of first in, first out the latency of the
/// completed requests falls linearly. `None` for fewer than two such seconds.
fn drain_by_latency(intervals: &[Interval], resumed_s: f64, service_s: f64) -> Option<f64> {
    let waits = intervals.iter().filter_map(|one| {
        let start_s = one.time_s - one.length_s;
        let wait_s = one.p50_ns? as f64 / 1e9 - service_s;
        (start_s >= resumed_s && one.responses > 0)
            .then_some((start_s + one.length_s / 2.0 - resumed_s, wait_s))
    });
    let waits: Vec<(f64, f64)> = waits.collect();
    let max_s = waits.first()?.1;
    let draining: Vec<(f64, f64)> =
        waits.into_iter().take_while(|(_, wait_s)| *wait_s >= max_s * DRAIN_FRACTION).collect();
    if draining.len() < 2 || max_s <= 0.0 {
        return None;
    }
    let count = draining.len() as f64;
    let (sum_x, sum_y) = draining.iter().fold((0.0, 0.0), |(x, y), one| (x + one.0, y + one.1));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (covariance, variance) = draining.iter().fold((0.0, 0.0), |(covariance, variance), (x, y)| {
        (covariance + (x - mean_x) * (y - mean_y), variance + (x - mean_x).powi(2))
    });
    let slope = covariance / variance;
    (slope < 0.0).then(|| mean_x - mean_y / slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_of_a_drain_falls_to_the_service_time() {
        let interval = |end_s: f64, wait_s: f64| Interval {
            time_s: end_s,
            length_s: 1.0,
            responses: 10,
            p50_ns: Some(((wait_s.max(0.0) + 0.02) * 1e9) as u64),
            ..Interval::default()
        };
        // A stall of 5 s ends at 11 s; the wait falls by half a second in each, so it drains for 10 s.
        let intervals: Vec<Interval> = (1..30)
            .map(|end| (end, 5.0 - 0.5 * (f64::from(end) - 0.5 - 11.0)))
            .map(|(end, wait_s)| interval(f64::from(end), if end <= 6 { 0.0 } else { wait_s }))
            .collect();
        let drain_s = drain_by_latency(&intervals, 11.0, 0.02).unwrap();
        assert!((drain_s - 10.0).abs() < 1e-6, "{drain_s}");
        assert_eq!(drain_by_latency(&intervals, 28.0, 0.02), None);
        assert_eq!(drain_by_latency(&[], 1.0, 0.02), None);
    }
}
