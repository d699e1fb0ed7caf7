//! Misses that the generator's own stalls can explain: they say nothing of the subject.

use record::histogram::Latencies;
use record::run::{Objective as Missed, Run};
use record::units::{count_of, format_duration_ns};

use crate::plan::Objective;

/// Whether the requests that have a stall in their latency can alone be why an objective was missed.
pub(super) fn explain(run: &Run, missed: &Missed) -> bool {
    let stalls = &run.generator.stalls;
    if stalls.affected() == 0 {
        return false;
    }
    let affected_share = stalls.affected() as f64 / run.totals.requests.max(1) as f64;
    let latencies = Latencies::decode(&run.latency.last_byte.response.hdr);
    let objectives = Objective::parse_list(&missed.text).0;
    let (Ok(latencies), Some(objective)) = (latencies, objectives.first()) else {
        return false;
    };
    let all = (&latencies, run.window.not_good);
    !objective.is_missed_without(all, affected_share, stalls.longest_ns)
}

/// Whether so many requests without a response can alone be of stalls.
pub(super) fn explain_missing(run: &Run, missing: f64) -> bool {
    run.generator.stalls.affected() as f64 >= missing
}

/// The reason why a trial says nothing.
pub(super) fn reason(run: &Run) -> String {
    let stalls = &run.generator.stalls;
    format!(
        "generator_stalled: it did not run for {} in {}, which alone can be why the trial missed",
        format_duration_ns(stalls.total_ns),
        count_of(stalls.count, "stall")
    )
}
