//! From an interval and a p to one of four outcomes. Pure numbers: no names, no words.

use record::experiment::{Better, Outcome};

use crate::statistics::effect::t_factor;
use crate::statistics::signed_rank::PAIRS_MIN;

/// Most blocks that are named as what would decide it; beyond, it is said that no number of blocks that
/// anybody runs would.
pub(super) const BLOCKS_NAMED_MAX: usize = 500;

/// The smallest effect that matters, as the logarithm of a ratio.
pub(super) fn effect_log(effect: f64) -> f64 {
    effect.max(0.0).ln_1p()
}

/// What an outcome follows from. Ratios and intervals are logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Numbers {
    pub(super) pairs: usize,
    pub(super) ratio: f64,
    pub(super) interval: Option<(f64, f64)>,
    pub(super) p_adjusted: Option<f64>,
    /// How far the baseline is from itself: the logarithm of the A/A comparison's ratio. Absent without
    /// an A/A comparison, and in it.
    pub(super) noise: Option<f64>,
    pub(super) effect: f64,
    pub(super) alpha: f64,
}

/// Why an outcome is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Fewer than [`PAIRS_MIN`] blocks.
    TooFew,
    /// The interval is within the effect that matters, and holds 1.
    NoneThatMatters,
    /// The interval is within the effect that matters, but without 1: there is a difference.
    LessThanMatters,
    /// The whole interval is beyond the effect that matters.
    AllOfItMatters,
    /// There is a difference; whether it is as large as matters is open.
    MayMatter,
    /// The interval is without 1, but the test is not sure.
    NotTested,
    /// The difference is no larger than that of the baseline from itself.
    WithinNoise,
    /// The interval holds both 1 and what matters.
    Wide,
}

/// The outcome, and why.
pub(super) fn decide(numbers: &Numbers, better: Better) -> (Outcome, Reason) {
    let Some((low, high)) = numbers.interval.filter(|_| numbers.pairs >= PAIRS_MIN) else {
        return (Outcome::Inconclusive, Reason::TooFew);
    };
    let without_one = low > 0.0 || high < 0.0;
    let noise = numbers.noise.unwrap_or(0.0).abs();
    if low > -numbers.effect && high < numbers.effect {
        // Where the same thing differs from itself by more than matters, a likeness is chance too.
        return match (noise > numbers.effect, without_one) {
            (true, _) => (Outcome::Inconclusive, Reason::WithinNoise),
            (false, true) => (Outcome::Equivalent, Reason::LessThanMatters),
            (false, false) => (Outcome::Equivalent, Reason::NoneThatMatters),
        };
    }
    if !without_one {
        return (Outcome::Inconclusive, Reason::Wide);
    }
    if numbers.p_adjusted.is_none_or(|p| p >= numbers.alpha) {
        return (Outcome::Inconclusive, Reason::NotTested);
    }
    if numbers.ratio.abs() <= noise {
        return (Outcome::Inconclusive, Reason::WithinNoise);
    }
    let outcome = match (numbers.ratio > 0.0, better) {
        (true, Better::Higher) | (false, Better::Lower) => Outcome::Faster,
        (false, Better::Higher) | (true, Better::Lower) => Outcome::Slower,
    };
    let matters = low > numbers.effect || high < -numbers.effect;
    (outcome, if matters { Reason::AllOfItMatters } else { Reason::MayMatter })
}

/// How many blocks of this spread (the deviation of the logarithms) make half an interval narrower than
/// this; `None` beyond [`BLOCKS_NAMED_MAX`].
pub(super) fn blocks_needed(deviation: f64, half_width: f64, confidence: f64) -> Option<usize> {
    (PAIRS_MIN..=BLOCKS_NAMED_MAX).find(|&n| {
        let factor = t_factor(n, confidence).unwrap_or(f64::INFINITY);
        factor * deviation / (n as f64).sqrt() < half_width
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers {
        pairs: 12,
        ratio: 0.03,
        interval: Some((0.024, 0.039)),
        p_adjusted: Some(0.001),
        noise: Some(0.002),
        effect: 0.02,
        alpha: 0.05,
    };

    fn outcome(numbers: Numbers) -> (Outcome, Reason) {
        decide(&numbers, Better::Higher)
    }

    #[test]
    fn every_reason_has_its_case() {
        use Outcome::{Equivalent, Faster, Inconclusive, Slower};
        let with = |ratio, low, high| Numbers { ratio, interval: Some((low, high)), ..NUMBERS };
        let cases = [
            (NUMBERS, Faster, Reason::AllOfItMatters),
            (with(-0.03, -0.039, -0.024), Slower, Reason::AllOfItMatters),
            (with(0.02, 0.01, 0.03), Faster, Reason::MayMatter),
            (with(0.004, 0.001, 0.007), Equivalent, Reason::LessThanMatters),
            (with(0.001, -0.005, 0.007), Equivalent, Reason::NoneThatMatters),
            (with(0.01, -0.01, 0.03), Inconclusive, Reason::Wide),
            (Numbers { p_adjusted: Some(0.06), ..NUMBERS }, Inconclusive, Reason::NotTested),
            (Numbers { p_adjusted: None, ..NUMBERS }, Inconclusive, Reason::NotTested),
            (Numbers { noise: Some(0.031), ..NUMBERS }, Inconclusive, Reason::WithinNoise),
            (
                Numbers { noise: Some(0.031), ..with(0.001, -0.005, 0.007) },
                Inconclusive,
                Reason::WithinNoise,
            ),
            (Numbers { pairs: 5, ..NUMBERS }, Inconclusive, Reason::TooFew),
            (Numbers { interval: None, ..NUMBERS }, Inconclusive, Reason::TooFew),
        ];
        for (numbers, wanted, reason) in cases {
            assert_eq!(outcome(numbers), (wanted, reason), "{numbers:?}");
        }
    }

    #[test]
    fn less_is_better_where_it_is() {
        assert_eq!(decide(&NUMBERS, Better::Lower).0, Outcome::Slower);
    }

    #[test]
    fn the_blocks_that_would_decide_grow_with_the_spread() {
        // t(0.975, 18) = 2.101: 2.101 * 0.0212 / sqrt(19) = 0.0102; with 20 it is 0.0099.
        assert_eq!(blocks_needed(0.0212, 0.01, 0.95), Some(20));
        assert_eq!(blocks_needed(0.0, 0.01, 0.95), Some(PAIRS_MIN));
        assert_eq!(blocks_needed(1.0, 0.01, 0.95), None);
    }
}
