//! Phases of a proxy whose queue cannot be read: the connections in use come from the counters of the servers, the
//! goodput from the load, and the drain time of an unbounded queue from the latency after the stall.

use plan::drain::Stall;
use plan::subject_queue::SubjectQueue;
use plan::verification::{Measured, VerifiedPlan};
use rt::drain::DrainWatch;

use super::children::Setup;
use super::{Phase, mean, measure_overload, stall_connections, stall_phase};
use crate::failure::Failure;

/// Reasons why a figure has no measured value.
const INSIDE: &str = "not observable: the queue is inside of the subject";
const SHORT: &str = "not observable: a queue with bounds drains faster than the latency of seconds shows";
const NO_LINE: &str =
    "not observable: no latency that falls over two seconds or more; a longer --stall may show it";
const NO_QUEUE: &str = "not observable: the subject has no queue";
const NO_BOUND: &str = "not measured: the queue has no bound";
const COLLAPSE: &str = "not measured: an unbounded queue collapses in an overload";

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
    setup.notice(&format!("{name}: {:.0} s", phase.duration_s));
    let (samples, run) = phase.run(setup, plan, stop)?;
    setup.check_subject()?;
    measured.busy_connections =
        Ok(mean(&samples, lengths.settle_s, lengths.steady_s, |sample| sample.in_flight));
    measured.drain_s = match queue {
        SubjectQueue::None => Err(NO_QUEUE),
        SubjectQueue::Bounded => Err(SHORT),
        SubjectQueue::Unbounded => {
            let stall = Stall {
                resumed_s: lengths.steady_s + plan.stall_s,
                length_s: plan.stall_s,
                service_s: plan.loaded_service_s,
                utilisation: plan.loaded_pool().utilisation(),
            };
            stall.drain_by_latency(&run.intervals).ok_or(NO_LINE)
        }
    };
    if is_unbounded {
        (measured.goodput_per_s, measured.overload_connections) = (Err(COLLAPSE), Err(COLLAPSE));
        return Ok(());
    }
    measure_overload(setup, plan, timeout_s, stop, measured)?;
    setup.check_subject()
}
