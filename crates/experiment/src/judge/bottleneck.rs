//! Limits of the arms, and their consequences for a comparison: an arm that was limited by the link
//! could have done more.
//!
//! [`diagnose`] finds the limit of a trial.

use diagnose::verdicts::{NONE, UNKNOWN, find_rule};
use record::experiment::{BetterDirection, Comparison, ComparisonOutcome, ExperimentCell, ExperimentMetric};

use super::phrases::noun;

/// The verdict of a load generator at its limit.
pub(super) const CLIENT_BOUND: &str = "client_bound";

/// Verdicts of limits outside the subject: an arm with such a limit could have done more.
pub(super) const OUTSIDE_VERDICTS: &[&str] = &[
    NONE,
    CLIENT_BOUND,
    "link_bound",
    "packet_rate_bound",
    "packet_loss",
    "bufferbloat",
    "receive_window_bound",
    "connection_limited",
    "latency_bound",
    "delayed_ack_stall",
    "port_exhaustion",
    "port_search_bound",
    "conntrack_full",
    "cpu_steal",
    "cpu_contended",
    "cpu_throttled",
];

/// Returns the verdict of more than half of the trials of a cell that have a verdict. [`UNKNOWN`]
/// counts as none.
pub(super) fn majority_verdict(cell: &ExperimentCell) -> Option<&str> {
    let all: u32 = cell.verdicts.values().sum();
    let (code, count) = cell.verdicts.iter().max_by_key(|(_, count)| **count)?;
    (2 * count > all && code != UNKNOWN).then_some(code.as_str())
}

/// Returns the cell of an arm under a load.
pub(super) fn find_cell<'a>(
    cells: &'a [ExperimentCell],
    arm: &str,
    load: &str,
) -> Option<&'a ExperimentCell> {
    cells.iter().find(|cell| cell.arm == arm && cell.load == load)
}

/// Returns a verdict's code with its claim.
pub(super) fn code_with_claim(code: &str) -> String {
    if code == NONE {
        return "nothing was at its limit".to_owned();
    }
    let claim = find_rule(code).map(|rule| rule.claim).filter(|claim| !claim.is_empty());
    claim.map_or_else(|| code.to_owned(), |claim| format!("{code} ({claim})"))
}

/// Returns whether a limit outside the subject bounds a metric. It bounds rates and latencies, but
/// not the cost of one response, which a full link does not change.
pub(super) fn is_limited_by_bottlenecks(metric: &ExperimentMetric) -> bool {
    matches!(metric.unit.as_str(), "1/s" | "ns") || metric.name.ends_with("_per_s")
}

/// Adjusts a comparison in a metric that limits bound. A gain that ended at a limit outside the
/// subject is at least that large, and equal results at such a limit do not prove equality. If the
/// generator was the limit of both arms, or of the worse one, the figures are the generator's.
pub(super) fn adjust_for_limits(
    comparison: &mut Comparison,
    metric: &ExperimentMetric,
    cells: &[ExperimentCell],
) {
    if !is_limited_by_bottlenecks(metric) {
        return;
    }
    let verdict_of = |arm: &str| find_cell(cells, arm, &comparison.load).and_then(majority_verdict);
    let (Some(arm), Some(baseline)) = (verdict_of(&comparison.arm), verdict_of(&comparison.baseline)) else {
        return;
    };
    let arm_leads = match metric.better {
        BetterDirection::Higher => comparison.ratio >= Some(1.0),
        BetterDirection::Lower => comparison.ratio < Some(1.0),
    };
    let names = (comparison.arm.as_str(), comparison.baseline.as_str());
    let ((leader, lead), (other, rest)) =
        if arm_leads { ((names.0, arm), (names.1, baseline)) } else { ((names.1, baseline), (names.0, arm)) };
    if rest == CLIENT_BOUND {
        let owner = if lead == rest { "both" } else { other };
        comparison.outcome = ComparisonOutcome::Inconclusive;
        comparison.text = format!(
            "No conclusion about {} and {} in {}{}: the load generator was the limit of {owner}, so it \
             measured itself.",
            comparison.arm,
            comparison.baseline,
            noun(metric),
            comparison.ratio.map(|ratio| format!(" (ratio {ratio:.3})")).unwrap_or_default()
        );
    } else if lead != rest && OUTSIDE_VERDICTS.contains(&lead) {
        let text = format!(
            "{leader} was limited by its environment and could have done more; the limit of {leader}: {}; of \
             {other}: {}",
            code_with_claim(lead),
            code_with_claim(rest)
        );
        match comparison.outcome {
            ComparisonOutcome::Faster | ComparisonOutcome::Slower => {
                comparison.text.push_str(&format!(" This is a lower bound of the difference: {text}."));
                comparison.bound = Some(text);
            }
            ComparisonOutcome::Equivalent => {
                comparison.outcome = ComparisonOutcome::Inconclusive;
                comparison.text = format!(
                    "No conclusion about {} and {} in {}: their figures are equal, but {text}.",
                    comparison.arm,
                    comparison.baseline,
                    noun(metric)
                );
            }
            ComparisonOutcome::Inconclusive => comparison.text.push_str(&format!(" Also, {text}.")),
        }
    }
}
