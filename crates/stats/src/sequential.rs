//! Judgement of arms against a baseline after each block of trials, with the error spent over the looks.
//!
//! - A block has one trial of the arm and one or two of the baseline. The contrast is the logarithm of the arm's value
//!   minus the mean of the baseline's: two runs of the baseline give 1.5 times the variance of a trial instead of twice.
//! - From the fourth block on, each block is a look. [`level`] is the error of a look: it falls with the number of
//!   blocks and of open claims. After a rejection the other claims are tested again with fewer open (Holm 1979).
//! - A difference stands by Student's test, if enough blocks have the arm beyond both runs of the baseline, or by the
//!   exact sign test over those blocks. A conclusion is final (Pocock 1977; Jennison and Turnbull 1984).
//! - Equivalence is Student's one-sided test against both ends of the effect that matters (Schuirmann 1987). The spread
//!   of the baseline's two runs counts too, so that a quiet arm beside a noisy baseline is no proof.
//! - A disturbance counts relative to the effect: a block is set aside only if the CPUs that others took could explain
//!   its difference. An arm whose trials have more of them than chance explains keeps all blocks, because it may be
//!   the cause.
//!
//! `simulation.rs` has the error rates and the power.

use super::distribution::{t_quantile, t_upper_tail};
use super::{mean, median, standard_deviation};

#[cfg(test)]
mod simulation;

/// Number of blocks from which on a conclusion is possible.
pub const BLOCKS_MIN: usize = 4;
/// Maximum number of blocks that [`ClaimJudgement::blocks_needed`] names.
pub const BLOCKS_NAMED_MAX: usize = 500;

/// Error of the first look at a difference, with one claim and a confidence of 95 %.
const DIFFERENCE_LEVEL: f64 = 0.009;
/// Error of the first look at equivalence, with a confidence of 95 %.
const EQUIVALENCE_LEVEL: f64 = 0.010_5;
/// Power with which the error of a look falls with the number of claims. Looks and claims of one experiment share their
/// baseline, which costs a little more than Bonferroni's 1.
const CLAIMS_POWER: f64 = 1.15;
/// Power with which the error of a look falls with the number of blocks.
const BLOCKS_POWER: f64 = 0.75;
/// Factor of the error of a look if the baseline ran once: every block is then beyond it on one side, and the scores
/// hold less back.
const ONE_BASELINE_FACTOR: f64 = 0.65;
/// Deviation of a contrast relative to the resolution of its values, at least.
const RESOLUTION_DEVIATION: f64 = 0.35;
/// Factor from a median deviation to a standard deviation of normal values.
const MEDIAN_DEVIATIONS: f64 = 1.482_6;
/// Fraction of the CPUs, as a logarithm, that others take in a disturbed trial.
const DISTURBED_LOG: f64 = 0.025;
/// Largest fraction of the CPUs that a disturbance counts as.
const TAKEN_MAX: f64 = 0.95;
/// Probability below which the disturbed trials are more often the arm's than by chance.
const ARM_DISTURBED_MORE_P: f64 = 0.35;
/// Probability below which the disturbed trials are less often the arm's than by chance.
const ARM_DISTURBED_LESS_P: f64 = 0.1;

/// Values of an arm and its baseline in one block, as logarithms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockValues {
    pub block: u32,
    pub arm: f64,
    pub baseline: f64,
    /// Value of the baseline's second run, if it ran twice.
    pub repeat: Option<f64>,
    /// Fractions of the machine's CPUs that others took during the trials: the arm's, the baseline's, its second run's.
    pub taken: [f64; 3],
}

/// Question of an experiment, fixed before the first trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// Smallest difference that matters, as a logarithm.
    pub effect: f64,
    /// Confidence: 0.95.
    pub confidence: f64,
}

/// Conclusion about an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    Higher,
    Lower,
    /// Any difference is smaller than the smallest that matters.
    Equivalent,
}

/// Treatment of the blocks that others disturbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DisturbedBlocks {
    #[default]
    None,
    /// They cannot explain the difference: all blocks count.
    Harmless,
    /// Blocks whose disturbance could explain it are set aside.
    SetAside,
    /// Too few blocks would be left: all blocks count.
    TooMany,
    /// The arm's trials are disturbed more often, or less often, than chance explains: all blocks count.
    OfArm,
}

/// Figures of one claim after a number of blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    pub blocks: usize,
    pub kept: usize,
    pub mean: f64,
    /// Standard deviation of the contrasts.
    pub deviation: f64,
    /// Number of counted blocks in which the arm is above every run of the baseline.
    pub above: usize,
    /// Number of counted blocks in which the arm is below every run of the baseline.
    pub below: usize,
    pub disturbed: usize,
    pub treatment: DisturbedBlocks,
    /// Numbers of the blocks that are set aside.
    pub set_aside: Vec<u32>,
    equivalence_deviation: f64,
    /// Number of blocks in which the baseline ran twice.
    repeated: usize,
}

/// Judgement of one claim: an arm under a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimJudgement {
    /// Conclusion; `None` while it is open.
    pub conclusion: Option<Conclusion>,
    /// Number of its blocks when the conclusion was reached.
    pub concluded_after: Option<usize>,
    /// Figures of all blocks.
    pub look: Look,
    /// Interval of the contrast that holds over all looks; `None` with fewer than [`BLOCKS_MIN`] blocks.
    pub interval: Option<(f64, f64)>,
    /// p of a difference at the look with the smallest corrected one.
    pub p: Option<f64>,
    /// Smallest p of a look that is corrected for looks and claims: a difference stands at 1 - confidence or below.
    pub p_adjusted: Option<f64>,
    /// Number of claims that shared the error when it was rejected; 0 before.
    shared_with: usize,
    /// Least number of blocks at which the present figures would conclude it; `None` beyond [`BLOCKS_NAMED_MAX`], and
    /// after a conclusion.
    pub blocks_needed: Option<usize>,
}

impl BlockValues {
    /// Returns the contrast of the arm and the baseline.
    pub fn contrast(&self) -> f64 {
        self.arm - self.repeat.map_or(self.baseline, |repeat| f64::midpoint(self.baseline, repeat))
    }

    /// Returns 1 if the arm is above every run of the baseline, -1 if it is below, and else 0.
    fn score(&self) -> i32 {
        let repeat = self.repeat.unwrap_or(self.baseline);
        i32::from(self.arm > self.baseline.max(repeat)) - i32::from(self.arm < self.baseline.min(repeat))
    }

    /// Iterates over the disturbances of the trials, as logarithms of what is left.
    fn disturbances(&self) -> impl Iterator<Item = f64> {
        let trials = if self.repeat.is_some() { 3 } else { 2 };
        self.taken.into_iter().take(trials).map(|taken| -(1.0 - taken.clamp(0.0, TAKEN_MAX)).ln())
    }

    fn disturbance(&self) -> f64 {
        let squares: Vec<f64> = self.disturbances().map(|size| size * size).collect();
        mean(&squares).unwrap_or(0.0).sqrt()
    }
}

/// Returns the error of a look at a difference after `blocks` blocks, with `claims` open claims.
pub fn level(blocks: usize, claims: usize, confidence: f64) -> f64 {
    look_level(DIFFERENCE_LEVEL, blocks, confidence) * (claims.max(1) as f64).powf(-CLAIMS_POWER)
}

fn look_level(first: f64, blocks: usize, confidence: f64) -> f64 {
    let fall = (BLOCKS_MIN as f64 / blocks.max(BLOCKS_MIN) as f64).powf(BLOCKS_POWER);
    first * fall * (1.0 - confidence) / 0.05
}

/// Returns how many more blocks have to be beyond the baseline on one side than on the other.
fn score_min(blocks: usize) -> usize {
    (2.0 * (blocks as f64).sqrt()).ceil() as usize
}

/// Judges claims that share a baseline: replays the looks after each block from the fourth on.
pub fn judge_claims(claims: &[Vec<BlockValues>], question: Question) -> Vec<ClaimJudgement> {
    let mut judged = vec![ClaimJudgement::default(); claims.len()];
    let mut numbers: Vec<u32> = claims.iter().flatten().map(|values| values.block).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut open_claims = claims.len();
    for number in numbers {
        let looked_at = |values: &[BlockValues]| values.partition_point(|values| values.block <= number);
        let looks: Vec<Look> = claims.iter().map(|values| Look::new(&values[..looked_at(values)])).collect();
        let mut open: Vec<usize> = (0..claims.len())
            .filter(|&at| judged[at].conclusion.is_none() && looks[at].blocks >= BLOCKS_MIN)
            .collect();
        open.retain(|&at| {
            let is_open = !looks[at].is_equivalent(question);
            if !is_open {
                judged[at].conclude(Conclusion::Equivalent, &looks[at]);
            }
            is_open
        });
        // Claims that are equivalent were no rejections: they stay among those that share the error.
        while let Some(position) =
            open.iter().position(|&at| looks[at].p() <= looks[at].level(open_claims, question))
        {
            let at = open.swap_remove(position);
            let is_higher = looks[at].mean > 0.0;
            judged[at].conclude(if is_higher { Conclusion::Higher } else { Conclusion::Lower }, &looks[at]);
            judged[at].shared_with = open_claims;
            open_claims -= 1;
        }
        for (judgement, look) in judged.iter_mut().zip(&looks).filter(|(_, look)| look.blocks >= BLOCKS_MIN) {
            judgement.adjust_p(look, open_claims, question);
        }
    }
    for (judgement, values) in judged.iter_mut().zip(claims) {
        judgement.look = Look::new(values);
        judgement.interval = judgement.look.interval(question);
        if judgement.conclusion.is_none() {
            judgement.blocks_needed = judgement.look.blocks_needed(open_claims, question);
        }
    }
    judged
}

impl ClaimJudgement {
    fn conclude(&mut self, conclusion: Conclusion, look: &Look) {
        self.conclusion = Some(conclusion);
        self.concluded_after = Some(look.blocks);
    }

    /// Takes the corrected p of a look if it is the smallest so far.
    fn adjust_p(&mut self, look: &Look, open_claims: usize, question: Question) {
        let claims = if self.shared_with > 0 { self.shared_with } else { open_claims };
        let p = look.p();
        let adjusted = (p * (1.0 - question.confidence) / look.level(claims, question)).min(1.0);
        if self.p_adjusted.is_none_or(|smallest| adjusted < smallest) {
            (self.p, self.p_adjusted) = (Some(p), Some(adjusted));
        }
    }
}

impl Look {
    fn new(values: &[BlockValues]) -> Self {
        let repeated = values.iter().filter(|block| block.repeat.is_some()).count();
        let mut look = Self { blocks: values.len(), repeated, ..Self::default() };
        let counted = look.set_disturbed_aside(values);
        let contrasts: Vec<f64> = counted.iter().map(BlockValues::contrast).collect();
        look.kept = counted.len();
        look.mean = mean(&contrasts).unwrap_or(0.0);
        let floor = RESOLUTION_DEVIATION * resolution(values);
        look.deviation = standard_deviation(&contrasts).unwrap_or(0.0).max(floor);
        let squares: Vec<f64> =
            counted.iter().filter_map(|block| Some((block.baseline - block.repeat?).powi(2))).collect();
        look.equivalence_deviation = look.deviation.max((0.75 * mean(&squares).unwrap_or(0.0)).sqrt());
        look.above = counted.iter().filter(|block| block.score() > 0).count();
        look.below = counted.iter().filter(|block| block.score() < 0).count();
        look
    }

    /// Returns the blocks that count: those whose disturbance is small relative to the difference and to the noise.
    fn set_disturbed_aside(&mut self, values: &[BlockValues]) -> Vec<BlockValues> {
        let is_hot = |size: f64| size > DISTURBED_LOG;
        self.disturbed = values.iter().filter(|block| block.disturbances().any(is_hot)).count();
        if self.disturbed == 0 {
            return values.to_vec();
        }
        if is_arm_disturbed(values) {
            self.treatment = DisturbedBlocks::OfArm;
            return values.to_vec();
        }
        let limit = explained_difference(values);
        let (kept, aside): (Vec<BlockValues>, Vec<BlockValues>) =
            values.iter().copied().partition(|block| block.disturbance() <= limit);
        self.treatment = match (aside.is_empty(), kept.len() >= BLOCKS_MIN && 2 * kept.len() >= values.len())
        {
            (true, _) => DisturbedBlocks::Harmless,
            (false, false) => DisturbedBlocks::TooMany,
            (false, true) => {
                self.set_aside = aside.iter().map(|block| block.block).collect();
                DisturbedBlocks::SetAside
            }
        };
        if self.treatment == DisturbedBlocks::SetAside { kept } else { values.to_vec() }
    }

    fn level(&self, claims: usize, question: Question) -> f64 {
        let factor = if self.repeated == 0 { ONE_BASELINE_FACTOR } else { 1.0 };
        factor * level(self.blocks, claims, question.confidence)
    }

    /// Returns p of a difference: Student's, if the scores agree, or that of the signs.
    fn p(&self) -> f64 {
        let (most, fewest) = match self.mean > 0.0 {
            true => (self.above, self.below),
            false => (self.below, self.above),
        };
        let agrees = most.saturating_sub(fewest) >= score_min(self.kept);
        let student = if agrees { 2.0 * self.tail(self.mean.abs(), self.deviation, self.kept) } else { 1.0 };
        let signs = 2.0 * coin_upper_tail(most.max(fewest), most + fewest, 0.5);
        // The signs of most blocks and the mean may disagree: then neither direction is known.
        if most < fewest { student.min(1.0) } else { student.min(signs).min(1.0) }
    }

    /// Returns the upper tail of Student's distribution for a distance, if there were `blocks` blocks of this spread.
    fn tail(&self, distance: f64, deviation: f64, blocks: usize) -> f64 {
        match deviation > 0.0 {
            true => t_upper_tail(distance * (blocks as f64).sqrt() / deviation, blocks as f64 - 1.0),
            false if distance > 0.0 => 0.0,
            false => 1.0,
        }
    }

    fn is_equivalent(&self, question: Question) -> bool {
        let e = look_level(EQUIVALENCE_LEVEL, self.blocks, question.confidence);
        self.is_equivalent_with(self.kept, e, question)
    }

    fn is_equivalent_with(&self, kept: usize, level: f64, question: Question) -> bool {
        let distance = question.effect - self.mean.abs();
        distance > 0.0 && self.tail(distance, self.equivalence_deviation, kept) <= level
    }

    fn interval(&self, question: Question) -> Option<(f64, f64)> {
        if self.blocks < BLOCKS_MIN {
            return None;
        }
        let probability = 1.0 - self.level(1, question) / 2.0;
        let half =
            t_quantile(probability, self.kept as f64 - 1.0) * self.deviation / (self.kept as f64).sqrt();
        Some((self.mean - half, self.mean + half))
    }

    fn blocks_needed(&self, claims: usize, question: Question) -> Option<usize> {
        if self.kept < 2 {
            return None;
        }
        (self.blocks.max(BLOCKS_MIN - 1) + 1..=BLOCKS_NAMED_MAX).find(|&blocks| {
            let growth = blocks as f64 / self.blocks as f64;
            let scaled = |count: usize| (count as f64 * growth).floor() as usize;
            let grown = Self {
                blocks,
                kept: scaled(self.kept),
                above: scaled(self.above),
                below: scaled(self.below),
                ..self.clone()
            };
            grown.is_equivalent(question) || grown.p() <= grown.level(claims, question)
        })
    }
}

/// Returns the disturbance, as a logarithm, that could explain the difference of a block: the noise of a contrast, or a
/// quarter of the difference if that is larger.
fn explained_difference(values: &[BlockValues]) -> f64 {
    let contrasts: Vec<f64> = values.iter().map(BlockValues::contrast).collect();
    let center = median(&contrasts).unwrap_or(0.0);
    let repeats: Vec<f64> =
        values.iter().filter_map(|block| Some((block.baseline - block.repeat?).abs())).collect();
    let deviations: Vec<f64> = contrasts.iter().map(|contrast| (contrast - center).abs()).collect();
    let noise = match median(&repeats) {
        // A contrast has three quarters of the variance of the difference of two runs.
        Some(difference) => 0.75_f64.sqrt() * difference,
        None => median(&deviations).unwrap_or(0.0),
    };
    (MEDIAN_DEVIATIONS * noise).max(center.abs() / 4.0)
}

/// Returns whether the disturbed trials are the arm's more or less often than by chance.
fn is_arm_disturbed(values: &[BlockValues]) -> bool {
    let trials = values.iter().flat_map(|block| block.disturbances().enumerate());
    let (mut arm_disturbances, mut all) = (0, 0);
    for (position, size) in trials {
        all += usize::from(size > DISTURBED_LOG);
        arm_disturbances += usize::from(size > DISTURBED_LOG && position == 0);
    }
    let chance = if values.iter().any(|block| block.repeat.is_some()) { 1.0 / 3.0 } else { 0.5 };
    coin_upper_tail(arm_disturbances, all, chance) <= ARM_DISTURBED_MORE_P
        || coin_upper_tail(all - arm_disturbances, all, 1.0 - chance) <= ARM_DISTURBED_LESS_P
}

/// Returns the resolution of values, as a logarithm: their smallest difference, if some of them are equal. Values
/// without equals have a finer resolution than their noise.
fn resolution(values: &[BlockValues]) -> f64 {
    let mut all: Vec<f64> = values
        .iter()
        .flat_map(|block| [Some(block.arm), Some(block.baseline), block.repeat])
        .flatten()
        .collect();
    all.sort_unstable_by(f64::total_cmp);
    let gaps: Vec<f64> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let has_equals = gaps.contains(&0.0);
    let smallest = gaps.into_iter().filter(|gap| *gap > 0.0).fold(f64::INFINITY, f64::min);
    if has_equals && smallest.is_finite() { smallest } else { 0.0 }
}

/// Returns the probability of `hits` or more of `tosses` of a coin that hits with this chance.
fn coin_upper_tail(hits: usize, tosses: usize, chance: f64) -> f64 {
    // Each probability follows from the one before; logarithms hold the first of many tosses.
    let odds = (chance / (1.0 - chance)).ln();
    let mut log_probability = tosses as f64 * (1.0 - chance).ln();
    let mut sum = 0.0;
    for count in 0..=tosses {
        if count >= hits {
            sum += log_probability.exp();
        }
        log_probability += odds + ((tosses - count) as f64 / (count + 1) as f64).ln();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Question = Question { effect: 0.019_8, confidence: 0.95 };

    fn block(number: u32, arm: f64, baseline: f64, repeat: f64) -> BlockValues {
        BlockValues { block: number, arm, baseline, repeat: Some(repeat), ..BlockValues::default() }
    }

    fn near(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() <= within, "{a} is not {b}");
    }

    #[test]
    fn the_factors_of_student_are_those_of_the_table() {
        let factor =
            |blocks: usize, claims| t_quantile(1.0 - level(blocks, claims, 0.95) / 2.0, blocks as f64 - 1.0);
        for (blocks, one_claim, two_claims, three_claims, score) in [
            (4, 6.06, 8.01, 9.41, 4),
            (5, 4.98, 6.21, 7.03, 5),
            (8, 3.98, 4.63, 5.03, 6),
            (12, 3.63, 4.09, 4.37, 7),
            (30, 3.40, 3.70, 3.87, 11),
        ] {
            near(factor(blocks, 1), one_claim, 0.006);
            near(factor(blocks, 2), two_claims, 0.006);
            near(factor(blocks, 3), three_claims, 0.006);
            assert_eq!(score_min(blocks), score);
            let e = look_level(EQUIVALENCE_LEVEL, blocks, 0.95);
            let known = [(4, 4.46), (5, 3.89), (8, 3.34), (12, 3.15), (30, 3.07)];
            let t = known.iter().find(|(n, _)| *n == blocks).map_or(0.0, |(_, t)| *t);
            near(t_quantile(1.0 - e, blocks as f64 - 1.0), t, 0.006);
        }
    }

    #[test]
    fn both_runs_of_the_baseline_are_in_contrast_and_score() {
        let repeated = block(1, 3.0, 1.0, 2.0);
        near(repeated.contrast(), 1.5, 1e-12);
        assert_eq!(
            (repeated.score(), block(1, 1.5, 1.0, 2.0).score(), block(1, 0.0, 1.0, 2.0).score()),
            (1, 0, -1)
        );
        let alone = BlockValues { repeat: None, ..repeated };
        assert_eq!((alone.contrast(), alone.score()), (2.0, 1));
        near(coin_upper_tail(4, 4, 0.5), 1.0 / 16.0, 1e-12);
        near(coin_upper_tail(3, 4, 1.0 / 3.0), (4.0 * 2.0 + 1.0) / 81.0, 1e-12);
        near(coin_upper_tail(0, 2000, 0.5), 1.0, 1e-9);
    }

    #[test]
    fn a_conclusion_is_final_and_frees_the_others() {
        let noise = |at: u32| 0.002 * (f64::from(at * 7 % 5) - 2.0);
        let arm = |effect: f64| -> Vec<BlockValues> {
            (1..=6).map(|at| block(at, effect + noise(at), noise(at + 3), noise(at + 11))).collect()
        };
        let judged = judge_claims(&[arm(0.6), arm(0.0), arm(-0.6)], QUESTION);
        let conclusions: Vec<_> =
            judged.iter().map(|judgement| (judgement.conclusion, judgement.concluded_after)).collect();
        assert_eq!(conclusions[0], (Some(Conclusion::Higher), Some(4)));
        assert_eq!(conclusions[2], (Some(Conclusion::Lower), Some(4)));
        assert_eq!(conclusions[1].0, Some(Conclusion::Equivalent));
        assert!(judged[0].p_adjusted.unwrap() < 0.05 && judged[0].blocks_needed.is_none());
        // Later blocks do not take it back.
        let mut turned = arm(0.6);
        turned.extend((7..=9).map(|at| block(at, -3.0, 0.0, 0.0)));
        assert_eq!(judge_claims(&[turned], QUESTION)[0].conclusion, Some(Conclusion::Higher));
        let few = &judge_claims(&[arm(0.6)[..3].to_vec()], QUESTION)[0];
        assert_eq!((few.conclusion, few.interval, few.blocks_needed), (None, None, Some(4)));
        assert_eq!(judge_claims(&[Vec::new()], QUESTION)[0], ClaimJudgement::default());
    }

    #[test]
    fn a_difference_stands_exactly_if_its_corrected_p_says_so() {
        let mut conclusions = 0;
        for effect in (0..60).map(|step| 0.002 * f64::from(step)) {
            for repeats in [true, false] {
                let noise = |at: u32| 0.01 * (f64::from(at * 7 % 5) - 2.0);
                let noisy_block = |at: u32| BlockValues {
                    repeat: repeats.then(|| noise(at + 11)),
                    ..block(at, effect + noise(at), noise(at + 3), 0.0)
                };
                let wide = Question { effect: 1e-9, ..QUESTION };
                let judged = &judge_claims(&[(1..=6).map(noisy_block).collect()], wide)[0];
                let stands = judged.p_adjusted.unwrap() <= 1.0 - wide.confidence;
                assert_eq!(judged.conclusion.is_some(), stands, "{effect} {repeats} {judged:?}");
                conclusions += usize::from(stands);
            }
        }
        assert!((10..110).contains(&conclusions), "{conclusions}");
    }

    #[test]
    fn values_in_steps_are_not_more_exact_than_a_step() {
        let stepped = |blocks: u32, arm: f64| -> Vec<BlockValues> {
            (1..=blocks).map(|at| block(at, arm, 0.0, 0.0)).collect()
        };
        // The arm is one step above the baseline in each block: a third of a step of spread is assumed.
        assert_eq!(judge_claims(&[stepped(4, 0.05)], QUESTION)[0].conclusion, None);
        assert_eq!(judge_claims(&[stepped(5, 0.05)], QUESTION)[0].conclusion, Some(Conclusion::Higher));
        assert_eq!(judge_claims(&[stepped(4, 0.0)], QUESTION)[0].conclusion, Some(Conclusion::Equivalent));
    }

    #[test]
    fn a_disturbance_counts_relative_to_the_difference() {
        let noise = |at: u32| 0.01 * (f64::from(at * 7 % 5) - 2.0);
        let disturbed = |effect: f64, hot: &dyn Fn(u32) -> [f64; 3]| -> Vec<BlockValues> {
            (1..=9)
                .map(|at| BlockValues {
                    taken: hot(at),
                    ..block(at, effect + noise(at), noise(at + 3), noise(at + 1))
                })
                .collect()
        };
        let looks = |effect, hot: &dyn Fn(u32) -> [f64; 3]| Look::new(&disturbed(effect, hot));
        let seldom = |at: u32| match at {
            3 => [0.1, 0.0, 0.0],
            5 | 8 => [0.0, 0.1, 0.1],
            _ => [0.0; 3],
        };
        // A tenth of the CPUs cannot explain a factor of 1.8, but explains 3 %.
        let large = looks(0.6, &seldom);
        assert_eq!((large.treatment, large.kept, large.disturbed), (DisturbedBlocks::Harmless, 9, 3));
        let small = looks(0.03, &seldom);
        assert_eq!((small.treatment, small.kept), (DisturbedBlocks::SetAside, 6));
        assert_eq!(small.set_aside, [3, 5, 8]);
        let always = |_: u32| [0.5; 3];
        assert_eq!(looks(0.03, &always).treatment, DisturbedBlocks::TooMany);
        let own = |_: u32| [0.1, 0.0, 0.0];
        assert_eq!(looks(0.03, &own).treatment, DisturbedBlocks::OfArm);
        assert_eq!(looks(0.03, &|_| [0.0; 3]).treatment, DisturbedBlocks::None);
    }

    #[test]
    fn the_blocks_that_are_missing_are_those_of_the_present_figures() {
        let noise = |at: u32| 0.03 * (f64::from(at * 7 % 5) - 2.0);
        let open: Vec<BlockValues> =
            (1..=6).map(|at| block(at, 0.05 + noise(at), noise(at + 3), noise(at + 1))).collect();
        let judged = &judge_claims(std::slice::from_ref(&open), QUESTION)[0];
        let needed = judged.blocks_needed.unwrap();
        assert!(judged.conclusion.is_none() && (7..100).contains(&needed), "{judged:?}");
        // More claims need more blocks.
        assert!(
            judge_claims(&[open.clone(), open.clone(), open], QUESTION)[0].blocks_needed.unwrap() > needed
        );
        let hopeless: Vec<BlockValues> =
            (1..=6).map(|at| block(at, 1.0 - 2.0 * f64::from(at % 2), 0.0, 0.1)).collect();
        assert_eq!(judge_claims(&[hopeless], QUESTION)[0].blocks_needed, None);
    }
}
