//! The reliability table: for each level of confidence, how many first verdicts claimed it, and how many
//! of those were right. Pure.

use serde::{Deserialize, Serialize};

use super::matrix::Outcome;

/// The level that promises most: not one wrong verdict may claim it.
pub const SURE: &str = "sure";
/// Verdicts that claim no cause.
const NO_CLAIM: &[&str] = &["unknown", super::NO_DIAGNOSIS];
/// Levels in words, the strongest first; others follow by their names.
const LEVELS: &[&str] = &[SURE, "likely", "possible"];
/// The normal quantile of a 95 % interval.
const Z_95: f64 = 1.959_963_984_540_054;

/// One level of confidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The confidence that was claimed.
    pub claimed: String,
    /// Runs whose first verdict claimed it.
    pub runs: u32,
    /// Those of them with a right verdict first.
    pub right: u32,
    /// `right` as a share of `runs`.
    pub right_share: f64,
    /// The lower end of the Wilson 95 % interval of that share.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The table of some runs. Runs that failed, and verdicts that claim no cause, are not in it.
#[must_use]
pub fn levels(outcomes: &[Outcome]) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| claims(outcome)) {
        let claimed = outcome.confidence.clone().unwrap_or_else(|| "not given".to_owned());
        let at = levels.iter().position(|level| level.claimed == claimed);
        let level = match at {
            Some(at) => &mut levels[at],
            None => {
                levels.push(Level { claimed, ..Level::default() });
                let last = levels.len() - 1;
                &mut levels[last]
            }
        };
        level.runs += 1;
        level.right += u32::from(outcome.is_right());
    }
    for level in &mut levels {
        level.right_share = f64::from(level.right) / f64::from(level.runs);
        (level.low, level.high) = wilson(level.right, level.runs);
    }
    let rank = |name: &str| LEVELS.iter().position(|level| *level == name).unwrap_or(LEVELS.len());
    levels.sort_by(|one, other| {
        let by_rank = rank(&one.claimed).cmp(&rank(&other.claimed));
        // Numbers: the greatest is the strongest.
        by_rank.then_with(|| other.claimed.cmp(&one.claimed))
    });
    levels
}

fn claims(outcome: &Outcome) -> bool {
    outcome.reported.as_deref().is_some_and(|verdict| !NO_CLAIM.contains(&verdict))
}

/// Runs whose first verdict was wrong and claimed to be sure.
#[must_use]
pub fn wrong_sure(outcomes: &[Outcome]) -> u32 {
    let is_wrong = |outcome: &&Outcome| {
        claims(outcome) && !outcome.is_right() && outcome.confidence.as_deref() == Some(SURE)
    };
    u32::try_from(outcomes.iter().filter(is_wrong).count()).unwrap_or(u32::MAX)
}

/// The Wilson score interval of a share (Wilson 1927), 95 %.
#[must_use]
pub fn wilson(right: u32, runs: u32) -> (f64, f64) {
    if runs == 0 {
        return (0.0, 1.0);
    }
    let (count, share) = (f64::from(runs), f64::from(right) / f64::from(runs));
    let z_squared = Z_95 * Z_95;
    let scale = 1.0 + z_squared / count;
    let centre = share + z_squared / (2.0 * count);
    let spread = Z_95 * (share * (1.0 - share) / count + z_squared / (4.0 * count * count)).sqrt();
    (((centre - spread) / scale).max(0.0), ((centre + spread) / scale).min(1.0))
}

/// The table as text.
#[must_use]
pub fn text(levels: &[Level]) -> String {
    let width = levels.iter().map(|level| level.claimed.len()).max().unwrap_or(0).max(7);
    let mut text = format!("{:width$}  runs  right  share  95 % interval\n", "claimed");
    for level in levels {
        text.push_str(&format!(
            "{:width$}  {:4}  {:5}  {:4.0}%  {:.0} % to {:.0} %\n",
            level.claimed,
            level.runs,
            level.right,
            level.right_share * 100.0,
            level.low * 100.0,
            level.high * 100.0
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(right: bool, confidence: &str) -> Outcome {
        Outcome {
            induced: "a".to_owned(),
            reported: Some(if right { "a" } else { "b" }.to_owned()),
            confidence: Some(confidence.to_owned()),
            ..Outcome::default()
        }
    }

    #[test]
    fn claims_are_held_against_what_was_right() {
        let mut outcomes: Vec<Outcome> = (0..10).map(|_| outcome(true, "sure")).collect();
        outcomes.extend((0..4).map(|at| outcome(at < 3, "likely")));
        outcomes.push(outcome(false, "possible"));
        // Neither claims a cause.
        outcomes.push(Outcome { reported: Some("unknown".to_owned()), ..outcome(false, "sure") });
        outcomes.push(Outcome { reported: None, ..outcome(false, "sure") });
        let found = levels(&outcomes);
        let short: Vec<_> =
            found.iter().map(|level| (&*level.claimed, level.runs, level.right)).collect();
        assert_eq!(short, [("sure", 10, 10), ("likely", 4, 3), ("possible", 1, 0)]);
        assert!((found[1].right_share - 0.75).abs() < 1e-9);
        assert!(
            text(&found).contains("sure        10     10   100%  72 % to 100 %"),
            "{}",
            text(&found)
        );
        assert_eq!(wrong_sure(&outcomes), 0);
        outcomes.push(outcome(false, "sure"));
        assert_eq!(wrong_sure(&outcomes), 1);
    }

    #[test]
    fn numbers_are_levels_too() {
        let outcomes = [outcome(true, "0.5"), outcome(true, "0.9"), outcome(true, "0.9")];
        let claimed: Vec<_> = levels(&outcomes).into_iter().map(|level| level.claimed).collect();
        assert_eq!(claimed, ["0.9", "0.5"]);
    }

    #[test]
    fn the_interval_is_wilsons() {
        // Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (right, runs, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (is_low, is_high) = wilson(right, runs);
            assert!((is_low - low).abs() < 1e-4 && (is_high - high).abs() < 1e-4, "{right}/{runs}");
        }
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }
}
