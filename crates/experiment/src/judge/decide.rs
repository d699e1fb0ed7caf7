//! Rule from an interval and a p to one of four outcomes. Pure numbers: no names, no words.

use record::experiment::{BetterDirection, ComparisonOutcome};

use stats::effect::t_factor;
use stats::signed_rank::PAIRS_MIN;

/// Maximum number of blocks that a text names as needed for a decision. Beyond it, the text says
/// that no practical number of blocks would decide.
pub(super) const BLOCKS_NAMED_MAX: usize = 500;

/// Returns the smallest effect that matters, as the logarithm of a ratio.
pub(super) fn effect_log(effect: f64) -> f64 {
    effect.max(0.0).ln_1p()
}

/// Input for an outcome. Ratios and intervals are logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ComparisonFigures {
    pub(super) pairs: usize,
    pub(super) ratio: f64,
    pub(super) interval: Option<(f64, f64)>,
    pub(super) p_adjusted: Option<f64>,
    /// Difference of the baseline from itself: the logarithm of the A/A comparison's ratio. `None`
    /// without an A/A comparison, and in it.
    pub(super) noise: Option<f64>,
    pub(super) effect: f64,
    pub(super) alpha: f64,
}

/// Reason for an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutcomeReason {
    /// Fewer than [`PAIRS_MIN`] blocks.
    TooFewBlocks,
    /// The interval is within the effect that matters, and contains 1.
    NoRelevantDifference,
    /// The interval is within the effect that matters, but does not contain 1: there is a
    /// difference.
    BelowRelevantEffect,
    /// The whole interval is beyond the effect that matters.
    RelevantEffect,
    /// There is a difference. It is open whether it is as large as matters.
    MaybeRelevant,
    /// The interval does not contain 1, but the test is not significant.
    NotSignificant,
    /// The difference is no larger than the difference of the baseline from itself.
    WithinNoise,
    /// The interval contains both 1 and the effect that matters.
    IntervalTooWide,
}

/// Returns the outcome and its reason.
pub(super) fn decide(
    numbers: &ComparisonFigures,
    better: BetterDirection,
) -> (ComparisonOutcome, OutcomeReason) {
    let Some((low, high)) = numbers.interval.filter(|_| numbers.pairs >= PAIRS_MIN) else {
        return (ComparisonOutcome::Inconclusive, OutcomeReason::TooFewBlocks);
    };
    let without_one = low > 0.0 || high < 0.0;
    let noise = numbers.noise.unwrap_or(0.0).abs();
    if low > -numbers.effect && high < numbers.effect {
        // If the baseline differs from itself by more than matters, a similarity is chance too.
        return match (noise > numbers.effect, without_one) {
            (true, _) => (ComparisonOutcome::Inconclusive, OutcomeReason::WithinNoise),
            (false, true) => (ComparisonOutcome::Equivalent, OutcomeReason::BelowRelevantEffect),
            (false, false) => (ComparisonOutcome::Equivalent, OutcomeReason::NoRelevantDifference),
        };
    }
    if !without_one {
        return (ComparisonOutcome::Inconclusive, OutcomeReason::IntervalTooWide);
    }
    if numbers.p_adjusted.is_none_or(|p| p >= numbers.alpha) {
        return (ComparisonOutcome::Inconclusive, OutcomeReason::NotSignificant);
    }
    if numbers.ratio.abs() <= noise {
        return (ComparisonOutcome::Inconclusive, OutcomeReason::WithinNoise);
    }
    let outcome = match (numbers.ratio > 0.0, better) {
        (true, BetterDirection::Higher) | (false, BetterDirection::Lower) => ComparisonOutcome::Faster,
        (false, BetterDirection::Higher) | (true, BetterDirection::Lower) => ComparisonOutcome::Slower,
    };
    let matters = low > numbers.effect || high < -numbers.effect;
    (outcome, if matters { OutcomeReason::RelevantEffect } else { OutcomeReason::MaybeRelevant })
}

/// Returns the number of blocks of this spread (deviation of the logarithms) that make half an
/// interval narrower than `half_width`; `None` beyond [`BLOCKS_NAMED_MAX`].
pub(super) fn blocks_needed(deviation: f64, half_width: f64, confidence: f64) -> Option<usize> {
    (PAIRS_MIN..=BLOCKS_NAMED_MAX).find(|&n| {
        let factor = t_factor(n, confidence).unwrap_or(f64::INFINITY);
        factor * deviation / (n as f64).sqrt() < half_width
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: ComparisonFigures = ComparisonFigures {
        pairs: 12,
        ratio: 0.03,
        interval: Some((0.024, 0.039)),
        p_adjusted: Some(0.001),
        noise: Some(0.002),
        effect: 0.02,
        alpha: 0.05,
    };

    fn outcome(numbers: ComparisonFigures) -> (ComparisonOutcome, OutcomeReason) {
        decide(&numbers, BetterDirection::Higher)
    }

    #[test]
    fn every_reason_has_its_case() {
        use ComparisonOutcome::{Equivalent, Faster, Inconclusive, Slower};
        let with = |ratio, low, high| ComparisonFigures { ratio, interval: Some((low, high)), ..NUMBERS };
        let cases = [
            (NUMBERS, Faster, OutcomeReason::RelevantEffect),
            (with(-0.03, -0.039, -0.024), Slower, OutcomeReason::RelevantEffect),
            (with(0.02, 0.01, 0.03), Faster, OutcomeReason::MaybeRelevant),
            (with(0.004, 0.001, 0.007), Equivalent, OutcomeReason::BelowRelevantEffect),
            (with(0.001, -0.005, 0.007), Equivalent, OutcomeReason::NoRelevantDifference),
            (with(0.01, -0.01, 0.03), Inconclusive, OutcomeReason::IntervalTooWide),
            (
                ComparisonFigures { p_adjusted: Some(0.06), ..NUMBERS },
                Inconclusive,
                OutcomeReason::NotSignificant,
            ),
            (ComparisonFigures { p_adjusted: None, ..NUMBERS }, Inconclusive, OutcomeReason::NotSignificant),
            (ComparisonFigures { noise: Some(0.031), ..NUMBERS }, Inconclusive, OutcomeReason::WithinNoise),
            (
                ComparisonFigures { noise: Some(0.031), ..with(0.001, -0.005, 0.007) },
                Inconclusive,
                OutcomeReason::WithinNoise,
            ),
            (ComparisonFigures { pairs: 5, ..NUMBERS }, Inconclusive, OutcomeReason::TooFewBlocks),
            (ComparisonFigures { interval: None, ..NUMBERS }, Inconclusive, OutcomeReason::TooFewBlocks),
        ];
        for (numbers, expected, reason) in cases {
            assert_eq!(outcome(numbers), (expected, reason), "{numbers:?}");
        }
    }

    #[test]
    fn less_is_better_where_it_is() {
        assert_eq!(decide(&NUMBERS, BetterDirection::Lower).0, ComparisonOutcome::Slower);
    }

    #[test]
    fn the_blocks_that_would_decide_grow_with_the_spread() {
        // t(0.975, 18) = 2.101: 2.101 * 0.0212 / sqrt(19) = 0.0102; with 20 it is 0.0099.
        assert_eq!(blocks_needed(0.0212, 0.01, 0.95), Some(20));
        assert_eq!(blocks_needed(0.0, 0.01, 0.95), Some(PAIRS_MIN));
        assert_eq!(blocks_needed(1.0, 0.01, 0.95), None);
    }
}
