//! Calibration table of the diagnosis: how often its top-ranked verdict was right, per claimed
//! confidence. No I/O.

use record::sorted::sort_by;
use serde::{Deserialize, Serialize};
use stats::proportion::wilson_interval;

use crate::outcome::{CaseOutcome, NO_DIAGNOSIS};

/// Highest level: no wrong verdict may claim it.
pub const SURE: &str = "sure";
/// Verdicts that claim no cause.
const ABSTENTIONS: &[&str] = &["unknown", NO_DIAGNOSIS];
/// Levels in words, the strongest first. Numbers follow, and then other levels.
const LEVELS: &[&str] = &[SURE, "likely", "possible"];
const INTERVAL_CONFIDENCE: f64 = 0.95;

/// Results of the runs with one claimed confidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceReliability {
    pub claimed: String,
    /// Number of runs whose first verdict claimed this confidence.
    pub runs: u32,
    /// Number of these runs whose first verdict was right.
    pub right: u32,
    /// `right` as a fraction of `runs`.
    pub right_fraction: f64,
    /// Lower end of the 95 % confidence interval of `right_fraction` (Wilson).
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Returns one row per claimed confidence, the strongest first. Failed runs, and verdicts that claim no
/// cause, are excluded.
pub fn reliability_levels(outcomes: &[CaseOutcome]) -> Vec<ConfidenceReliability> {
    let mut levels: Vec<ConfidenceReliability> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| makes_claim(outcome)) {
        let claimed = outcome.confidence.clone().unwrap_or_else(|| "not given".to_owned());
        let at = levels.iter().position(|level| level.claimed == claimed);
        let level = match at {
            Some(at) => &mut levels[at],
            None => {
                levels.push(ConfidenceReliability { claimed, ..ConfidenceReliability::default() });
                let last = levels.len() - 1;
                &mut levels[last]
            }
        };
        level.runs += 1;
        level.right += u32::from(outcome.is_right());
    }
    for level in &mut levels {
        level.right_fraction = f64::from(level.right) / f64::from(level.runs);
        (level.low, level.high) = wilson_interval(level.right, level.runs, INTERVAL_CONFIDENCE);
    }
    let rank = |name: &str| LEVELS.iter().position(|level| *level == name).unwrap_or(LEVELS.len());
    let number = |name: &str| name.parse::<f64>().unwrap_or(f64::NEG_INFINITY);
    sort_by(&mut levels, |left, right| {
        let by_rank = rank(&left.claimed).cmp(&rank(&right.claimed));
        // Numeric levels: the greatest is the strongest.
        let by_number = || number(&right.claimed).total_cmp(&number(&left.claimed));
        by_rank.then_with(by_number).then_with(|| left.claimed.cmp(&right.claimed))
    });
    levels
}

fn makes_claim(outcome: &CaseOutcome) -> bool {
    outcome.reported.as_deref().is_some_and(|verdict| !ABSTENTIONS.contains(&verdict))
}

/// Returns the number of runs whose first verdict was wrong and claimed [`SURE`].
pub fn count_wrong_sure(outcomes: &[CaseOutcome]) -> u32 {
    let is_wrong = |outcome: &&CaseOutcome| {
        makes_claim(outcome) && !outcome.is_right() && outcome.confidence.as_deref() == Some(SURE)
    };
    u32::try_from(outcomes.iter().filter(is_wrong).count()).unwrap_or(u32::MAX)
}

pub fn reliability_text(levels: &[ConfidenceReliability]) -> String {
    let width = levels.iter().map(|level| level.claimed.len()).max().unwrap_or(0).max(7);
    let mut text = format!("{:width$}  runs  right  share  95 % interval\n", "claimed");
    for level in levels {
        text.push_str(&format!(
            "{:width$}  {:4}  {:5}  {:4.0}%  {:.0} % to {:.0} %\n",
            level.claimed,
            level.runs,
            level.right,
            level.right_fraction * 100.0,
            level.low * 100.0,
            level.high * 100.0
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(right: bool, confidence: &str) -> CaseOutcome {
        CaseOutcome {
            induced: "a".to_owned(),
            reported: Some(if right { "a" } else { "b" }.to_owned()),
            confidence: Some(confidence.to_owned()),
            ..CaseOutcome::default()
        }
    }

    #[test]
    fn claims_are_compared_with_the_right_verdicts() {
        let mut outcomes: Vec<CaseOutcome> = (0..10).map(|_| outcome(true, "sure")).collect();
        outcomes.extend((0..4).map(|at| outcome(at < 3, "likely")));
        outcomes.push(outcome(false, "possible"));
        // Neither claims a cause.
        outcomes.push(CaseOutcome { reported: Some("unknown".to_owned()), ..outcome(false, "sure") });
        outcomes.push(CaseOutcome { reported: None, ..outcome(false, "sure") });
        let table = reliability_levels(&outcomes);
        let short: Vec<_> = table.iter().map(|level| (&*level.claimed, level.runs, level.right)).collect();
        assert_eq!(short, [("sure", 10, 10), ("likely", 4, 3), ("possible", 1, 0)]);
        assert!((table[1].right_fraction - 0.75).abs() < 1e-9);
        assert!(
            reliability_text(&table).contains("sure        10     10   100%  72 % to 100 %"),
            "{}",
            reliability_text(&table)
        );
        assert_eq!(count_wrong_sure(&outcomes), 0);
        outcomes.push(outcome(false, "sure"));
        assert_eq!(count_wrong_sure(&outcomes), 1);
    }

    #[test]
    fn numbers_are_levels_too() {
        let outcomes = [outcome(true, "0.5"), outcome(true, "0.9"), outcome(true, "0.9")];
        let claimed: Vec<_> = reliability_levels(&outcomes).into_iter().map(|level| level.claimed).collect();
        assert_eq!(claimed, ["0.9", "0.5"]);
    }
}
