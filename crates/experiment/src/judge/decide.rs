//! Rule from figures to one of four outcomes with its reason. Pure numbers: no names, no words.
//!
//! Blocks are judged by [`stats::sequential`]; two sets that did not alternate by an interval and a p.

use record::experiment::{BetterDirection, ComparisonOutcome};
use stats::effect::{LimitPosition, compare_with_limit};
use stats::sequential::{BLOCKS_MIN, ClaimJudgement, Conclusion};

/// Returns the smallest effect that matters, as the logarithm of a ratio.
pub(super) fn effect_log(effect: f64) -> f64 {
    effect.max(0.0).ln_1p()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutcomeReason {
    /// Too few blocks, or values of a set.
    TooFewValues,
    /// Any difference is smaller than the effect that matters, and the interval contains 1.
    NoRelevantDifference,
    /// The difference is smaller than the effect that matters, but there is one.
    BelowRelevantEffect,
    /// The whole interval is beyond the effect that matters.
    RelevantEffect,
    /// There is a difference. It is open whether it is as large as matters.
    MaybeRelevant,
    /// The figures allow no conclusion yet.
    Open,
}

/// Returns the outcome of a claim, and its reason. `effect` is a logarithm.
pub(super) fn outcome_of_claim(
    judgement: &ClaimJudgement,
    effect: f64,
    better: BetterDirection,
) -> (ComparisonOutcome, OutcomeReason) {
    let ratio = judgement.look.mean;
    let interval = judgement.interval.unwrap_or((ratio, ratio));
    let is_higher = match judgement.conclusion {
        None if judgement.look.blocks < BLOCKS_MIN => {
            return (ComparisonOutcome::Inconclusive, OutcomeReason::TooFewValues);
        }
        None => return (ComparisonOutcome::Inconclusive, OutcomeReason::Open),
        Some(Conclusion::Equivalent) => return (ComparisonOutcome::Equivalent, equivalence_reason(interval)),
        Some(conclusion) => conclusion == Conclusion::Higher,
    };
    (direction(is_higher, better), relevance(ratio, interval, effect))
}

/// Figures of two sets that did not alternate. Ratios and intervals are logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SetFigures {
    pub(super) ratio: f64,
    pub(super) interval: Option<(f64, f64)>,
    pub(super) p_adjusted: Option<f64>,
    pub(super) effect: f64,
    pub(super) alpha: f64,
}

pub(super) fn outcome_of_sets(
    figures: &SetFigures,
    better: BetterDirection,
) -> (ComparisonOutcome, OutcomeReason) {
    let Some(interval) = figures.interval else {
        return (ComparisonOutcome::Inconclusive, OutcomeReason::TooFewValues);
    };
    let sides = both_directions(figures.ratio, interval, figures.effect);
    if sides.iter().all(|side| *side == LimitPosition::Within) {
        return (ComparisonOutcome::Equivalent, equivalence_reason(interval));
    }
    let is_significant = contains_no_zero(interval) && figures.p_adjusted.is_some_and(|p| p < figures.alpha);
    if !is_significant {
        return (ComparisonOutcome::Inconclusive, OutcomeReason::Open);
    }
    (direction(figures.ratio > 0.0, better), relevance(figures.ratio, interval, figures.effect))
}

fn direction(is_higher: bool, better: BetterDirection) -> ComparisonOutcome {
    match (is_higher, better) {
        (true, BetterDirection::Higher) | (false, BetterDirection::Lower) => ComparisonOutcome::Faster,
        (false, BetterDirection::Higher) | (true, BetterDirection::Lower) => ComparisonOutcome::Slower,
    }
}

fn contains_no_zero((low, high): (f64, f64)) -> bool {
    low > 0.0 || high < 0.0
}

fn equivalence_reason(interval: (f64, f64)) -> OutcomeReason {
    match contains_no_zero(interval) {
        true => OutcomeReason::BelowRelevantEffect,
        false => OutcomeReason::NoRelevantDifference,
    }
}

fn relevance(ratio: f64, interval: (f64, f64), effect: f64) -> OutcomeReason {
    match both_directions(ratio, interval, effect).contains(&LimitPosition::Beyond) {
        true => OutcomeReason::RelevantEffect,
        false => OutcomeReason::MaybeRelevant,
    }
}

/// Returns the position of a ratio relative to the effect that matters, upwards and downwards.
fn both_directions(ratio: f64, (low, high): (f64, f64), effect: f64) -> [LimitPosition; 2] {
    [compare_with_limit(ratio, (low, high), effect), compare_with_limit(-ratio, (-high, -low), effect)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::sequential::Look;

    const SETS: SetFigures = SetFigures {
        ratio: 0.03,
        interval: Some((0.024, 0.039)),
        p_adjusted: Some(0.001),
        effect: 0.02,
        alpha: 0.05,
    };

    #[test]
    fn every_reason_of_sets_has_its_case() {
        use ComparisonOutcome::{Equivalent, Faster, Inconclusive, Slower};
        let with = |ratio, low, high| SetFigures { ratio, interval: Some((low, high)), ..SETS };
        let cases = [
            (SETS, Faster, OutcomeReason::RelevantEffect),
            (with(-0.03, -0.039, -0.024), Slower, OutcomeReason::RelevantEffect),
            (with(0.02, 0.01, 0.03), Faster, OutcomeReason::MaybeRelevant),
            (with(0.004, 0.001, 0.007), Equivalent, OutcomeReason::BelowRelevantEffect),
            (with(0.001, -0.005, 0.007), Equivalent, OutcomeReason::NoRelevantDifference),
            (with(0.01, -0.01, 0.03), Inconclusive, OutcomeReason::Open),
            (SetFigures { p_adjusted: Some(0.06), ..SETS }, Inconclusive, OutcomeReason::Open),
            (SetFigures { p_adjusted: None, ..SETS }, Inconclusive, OutcomeReason::Open),
            (SetFigures { interval: None, ..SETS }, Inconclusive, OutcomeReason::TooFewValues),
        ];
        for (figures, expected, reason) in cases {
            assert_eq!(outcome_of_sets(&figures, BetterDirection::Higher), (expected, reason), "{figures:?}");
        }
        assert_eq!(outcome_of_sets(&SETS, BetterDirection::Lower).0, Slower);
    }

    #[test]
    fn every_conclusion_about_blocks_has_its_reason() {
        use ComparisonOutcome::{Equivalent, Faster, Inconclusive, Slower};
        let claim = |conclusion, blocks, mean, interval| {
            let mut look = Look::default();
            (look.blocks, look.mean) = (blocks, mean);
            let mut judgement = ClaimJudgement::default();
            (judgement.conclusion, judgement.interval, judgement.look) = (conclusion, Some(interval), look);
            judgement
        };
        let cases = [
            (claim(Some(Conclusion::Higher), 4, 0.6, (0.5, 0.7)), Slower, OutcomeReason::RelevantEffect),
            (claim(Some(Conclusion::Lower), 4, -0.03, (-0.05, -0.01)), Faster, OutcomeReason::MaybeRelevant),
            (
                claim(Some(Conclusion::Equivalent), 9, 0.0, (-0.1, 0.1)),
                Equivalent,
                OutcomeReason::NoRelevantDifference,
            ),
            (
                claim(Some(Conclusion::Equivalent), 9, 0.01, (0.005, 0.015)),
                Equivalent,
                OutcomeReason::BelowRelevantEffect,
            ),
            (claim(None, 3, 0.6, (0.5, 0.7)), Inconclusive, OutcomeReason::TooFewValues),
            (claim(None, 9, 0.6, (-0.1, 1.3)), Inconclusive, OutcomeReason::Open),
        ];
        for (judgement, expected, reason) in cases {
            let outcome = outcome_of_claim(&judgement, 0.02, BetterDirection::Lower);
            assert_eq!(outcome, (expected, reason), "{judgement:?}");
        }
    }
}
