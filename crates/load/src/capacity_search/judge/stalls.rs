//! Misses that the generator's own stalls can explain. They say nothing about the subject.

use record::histogram::LatencyHistogram;
use record::run::{ObjectiveResult as Missed, Run};
use record::units::{format_duration_ns, format_plural};

use crate::plan::Objective;

/// Returns whether the requests with a stall in their latency suffice to explain a missed
/// objective.
pub(super) fn can_explain(run: &Run, missed: &Missed) -> bool {
    let stalls = &run.generator.stalls;
    if stalls.affected_requests() == 0 {
        return false;
    }
    let affected_fraction = stalls.affected_requests() as f64 / run.totals.requests.max(1) as f64;
    let latencies = LatencyHistogram::decode(&run.latency.last_byte.response.hdr);
    let objectives = Objective::parse_list(&missed.text).0;
    let (Ok(latencies), Some(objective)) = (latencies, objectives.first()) else {
        return false;
    };
    let all = (&latencies, run.window.not_good);
    !objective.is_missed_without(all, affected_fraction, stalls.longest_ns)
}

/// Returns whether stalls suffice to explain this many requests without a response.
pub(super) fn can_explain_shortfall(run: &Run, missing: f64) -> bool {
    run.generator.stalls.affected_requests() as f64 >= missing
}

/// Returns the reason why a trial is undecided.
pub(super) fn reason(run: &Run) -> String {
    let stalls = &run.generator.stalls;
    format!(
        "generator_stalled: the generator did not run for {} in {}, which alone can explain the miss",
        format_duration_ns(stalls.total_ns),
        format_plural(stalls.count, "stall")
    )
}
