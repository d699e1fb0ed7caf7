//! What the arms were stopped by, and what that leaves of a comparison: an arm that ran into the link
//! could have done more.
//!
//! Not for finding the limit of a trial: that is [`crate::diagnosis`]'s.

use record::experiment::{Better, Cell, Comparison, Metric, Outcome};

use super::words::noun;
use crate::diagnosis::verdicts::{NONE, UNKNOWN, verdict};

/// The verdict of a load generator at its limit.
pub(super) const CLIENT_BOUND: &str = "client_bound";

/// Verdicts of something around the subject: who meets them could have done more.
pub(super) const OUTSIDE: &[&str] = &[
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
    "conntrack_full",
    "cpu_steal",
    "cpu_throttled",
];

/// The verdict that more than half of a cell's trials have, of those that have one; [`UNKNOWN`] is none.
pub(super) fn majority(cell: &Cell) -> Option<&str> {
    let all: u32 = cell.verdicts.values().sum();
    let (code, count) = cell.verdicts.iter().max_by_key(|(_, count)| **count)?;
    (2 * count > all && code != UNKNOWN).then_some(code.as_str())
}

/// The cell of an arm under a load.
pub(super) fn cell<'a>(cells: &'a [Cell], arm: &str, load: &str) -> Option<&'a Cell> {
    cells.iter().find(|cell| cell.arm == arm && cell.load == load)
}

/// A verdict's code with what it claims.
pub(super) fn claim(code: &str) -> String {
    if code == NONE {
        return "nothing was at its limit".to_owned();
    }
    let claim = verdict(code).map(|row| row.claim).filter(|claim| !claim.is_empty());
    claim.map_or_else(|| code.to_owned(), |claim| format!("{code} ({claim})"))
}

/// Whether a limit outside the subject bounds a metric: rates and latencies, but not what one response
/// costs, which is the same beside a full link.
pub(super) fn is_bounded(metric: &Metric) -> bool {
    matches!(metric.unit.as_str(), "1/s" | "ns") || metric.name.ends_with("_per_s")
}

/// What limits leave of a comparison in a metric that they bound: a gain that ended at something outside
/// the subject is at least that large, and what ended there alike is not equal; and where the generator was
/// the limit of both, or of the worse one, the figures are the generator's.
pub(super) fn weigh(comparison: &mut Comparison, metric: &Metric, cells: &[Cell]) {
    if !is_bounded(metric) {
        return;
    }
    let of = |arm: &str| cell(cells, arm, &comparison.load).and_then(majority);
    let (Some(arm), Some(baseline)) = (of(&comparison.arm), of(&comparison.baseline)) else {
        return;
    };
    let arm_leads = match metric.better {
        Better::Higher => comparison.ratio >= Some(1.0),
        Better::Lower => comparison.ratio < Some(1.0),
    };
    let names = (comparison.arm.as_str(), comparison.baseline.as_str());
    let ((leader, lead), (other, rest)) = if arm_leads {
        ((names.0, arm), (names.1, baseline))
    } else {
        ((names.1, baseline), (names.0, arm))
    };
    if rest == CLIENT_BOUND {
        let whose = if lead == rest { "both" } else { other };
        comparison.outcome = Outcome::Inconclusive;
        comparison.text = format!(
            "Nothing can be said of {} against {} in {}{}: the load generator was the limit of {whose}, \
             so that it measured itself.",
            comparison.arm,
            comparison.baseline,
            noun(metric),
            comparison.ratio.map(|ratio| format!(" (ratio {ratio:.3})")).unwrap_or_default()
        );
    } else if lead != rest && OUTSIDE.contains(&lead) {
        let text = format!(
            "{leader} was stopped by something else than itself and could have done more; the limit \
             of {leader}: {}; of {other}: {}",
            claim(lead),
            claim(rest)
        );
        match comparison.outcome {
            Outcome::Faster | Outcome::Slower => {
                comparison.text.push_str(&format!(" The difference is at least this: {text}."));
                comparison.bound = Some(text);
            }
            Outcome::Equivalent => {
                comparison.outcome = Outcome::Inconclusive;
                comparison.text = format!(
                    "Nothing can be said of {} against {} in {}: they measured alike, but {text}.",
                    comparison.arm,
                    comparison.baseline,
                    noun(metric)
                );
            }
            Outcome::Inconclusive => comparison.text.push_str(&format!(" Besides, {text}.")),
        }
    }
}
