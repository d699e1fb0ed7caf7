//! Error rates of the judge, and its rates of finding real differences. Complete experiments with
//! simulated noise pass the stopping rule block by block, and then the judge.
//!
//! Everything is seeded, so each rate is one number; its bounds leave room for another seed.

use record::experiment::{
    Arm, BetterDirection, Comparison, ComparisonOutcome, ExperimentMetric, ExperimentPlan, LoadPlan,
    TrialSummary,
};
use record::trial::{SteadyState, TrialPosition};

use super::compare::log_interval;
use super::{JudgeExtras, is_precise_enough_with, judge_with};
use stats::bootstrap::{Resampling, bca_interval};

/// Draws of an interval: a fiftieth of the judge's. Student's end is nearly always the outer one.
const DRAWS: u32 = 200;
const RATE_METRIC: &str = "responses_per_s";

/// The noise of an experiment.
#[derive(Clone, Copy, Debug)]
struct SimulatedNoise {
    /// Noise of one trial: deviation of its logarithm.
    trial: f64,
    /// Fraction of the trials that are disturbed, with five times the noise.
    disturbed_fraction: f64,
    /// Drift of the machine from block to block (AR(1) with 0.8), common to all arms.
    drift: f64,
    /// Drift from trial to trial within a block, always in the same direction.
    within_block: f64,
}

const NORMAL: SimulatedNoise =
    SimulatedNoise { trial: 0.015, disturbed_fraction: 0.0, drift: 0.0, within_block: 0.0 };
const HEAVY: SimulatedNoise = SimulatedNoise { disturbed_fraction: 0.05, ..NORMAL };
const DRIFTING: SimulatedNoise = SimulatedNoise { drift: 0.03, within_block: 0.005, ..NORMAL };

/// Returns the noise of a shared machine: all kinds together.
fn realistic(trial: f64) -> SimulatedNoise {
    SimulatedNoise { trial, disturbed_fraction: 0.05, drift: 0.03, within_block: 0.003 }
}

fn plan(blocks_min: u32, blocks_max: u32) -> ExperimentPlan {
    let arm = |name: &str, repeats: Option<&str>| Arm {
        name: name.to_owned(),
        repeats: repeats.map(str::to_owned),
        ..Arm::default()
    };
    ExperimentPlan {
        baseline: "a".to_owned(),
        arms: vec![arm("a", None), arm("a-repeat", Some("a")), arm("b", None)],
        loads: vec![LoadPlan { name: "load".to_owned(), ..LoadPlan::default() }],
        metrics: vec![ExperimentMetric {
            name: RATE_METRIC.to_owned(),
            unit: "1/s".to_owned(),
            better: BetterDirection::Higher,
            ..ExperimentMetric::default()
        }],
        effect: 0.02,
        confidence: 0.95,
        blocks_min,
        blocks_max,
        duration_s: 8.0,
        ..ExperimentPlan::default()
    }
}

/// Returns a normal deviate (Box and Muller).
fn normal_deviate(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * random.f64()).cos()
}

/// Runs one experiment to its end; `effect` is how much faster b is.
fn run_experiment(plan: &ExperimentPlan, effect: f64, noise: SimulatedNoise, seed: u64) -> (Comparison, u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut trials: Vec<TrialSummary> = Vec::new();
    let mut machine = 0.0;
    for block in 1..=plan.blocks_max {
        machine = 0.8 * machine + 0.6 * noise.drift * normal_deviate(&mut random);
        let mut order = ["a", "a-repeat", "b"];
        random.shuffle(&mut order);
        for (at, arm) in order.into_iter().enumerate() {
            let disturbed = random.f64() < noise.disturbed_fraction;
            let deviation = noise.trial * if disturbed { 5.0 } else { 1.0 };
            let shift = if arm == "b" { effect.ln_1p() } else { 0.0 };
            let log =
                machine + shift + deviation * normal_deviate(&mut random) + noise.within_block * at as f64;
            trials.push(TrialSummary {
                position: TrialPosition {
                    number: trials.len() as u32 + 1,
                    block,
                    attempt: 1,
                    arm: arm.to_owned(),
                    load: "load".to_owned(),
                    ..TrialPosition::default()
                },
                metrics: [(RATE_METRIC.to_owned(), 50_000.0 * log.exp())].into(),
                steady: SteadyState { from_s: Some(0.0), ..SteadyState::default() },
                ..TrialSummary::default()
            });
        }
        if block >= plan.blocks_min && is_precise_enough_with(plan, &trials, DRAWS) {
            break;
        }
    }
    let blocks = trials.len() as u32 / 3;
    let judged = judge_with(plan, &trials, &JudgeExtras::default(), DRAWS);
    let of_b = judged.comparisons.into_iter().find(|one| one.arm == "b");
    (of_b.expect("b is compared"), blocks)
}

/// Counts of experiments by outcome, and the sum of their blocks.
#[derive(Debug, Default)]
struct OutcomeCounts {
    experiments: u32,
    faster: u32,
    slower: u32,
    equivalent: u32,
    inconclusive: u32,
    /// Experiments whose whole interval shows that b is faster by an effect that matters.
    surely_relevant: u32,
    blocks: f64,
}

impl OutcomeCounts {
    fn add(&mut self, (comparison, blocks): (Comparison, u32)) {
        self.experiments += 1;
        match comparison.outcome {
            ComparisonOutcome::Faster => self.faster += 1,
            ComparisonOutcome::Slower => self.slower += 1,
            ComparisonOutcome::Equivalent => self.equivalent += 1,
            ComparisonOutcome::Inconclusive => self.inconclusive += 1,
        }
        let low = comparison.interval.map_or(0.0, |(low, _)| low);
        self.surely_relevant += u32::from(comparison.outcome == ComparisonOutcome::Faster && low >= 1.02);
        self.blocks += f64::from(blocks);
    }

    /// Runs experiments; `first` is the first seed.
    fn run(
        plan: &ExperimentPlan,
        effect: f64,
        (first, experiments): (u64, u64),
        noise: impl Fn(u64) -> SimulatedNoise,
    ) -> Self {
        let mut counts = Self::default();
        for seed in 0..experiments {
            counts.add(run_experiment(plan, effect, noise(seed), first + seed));
        }
        println!("{counts:?}, {:.1} blocks each", counts.blocks / experiments as f64);
        counts
    }

    fn fraction(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.experiments)
    }
}

#[test]
fn the_same_thing_is_rarely_called_faster_or_slower() {
    // Trials that deviate by 1 to 3 % in turn, stopped by the rule between 10 and 30 blocks.
    // Measured: 2.7 % wrong, 48 % equivalent, 49 % open.
    let plan = plan(10, 30);
    let counts =
        OutcomeCounts::run(&plan, 0.0, (0, 1000), |seed| realistic(0.01 + 0.002 * (seed % 11) as f64));
    let wrong = counts.fraction(counts.faster + counts.slower);
    assert!(wrong <= 0.04, "{wrong}");
    assert!(counts.equivalent > 0 && counts.surely_relevant == 0, "{counts:?}");
}

#[test]
fn few_blocks_keep_the_error_rate_too() {
    // Fixed numbers of blocks, three kinds of noise.
    const EACH: u64 = 300;
    for blocks in [6, 10, 20, 30] {
        let plan = plan(blocks, blocks);
        let mut wrong = 0;
        for (at, noise) in [NORMAL, HEAVY, DRIFTING].into_iter().enumerate() {
            let noise = SimulatedNoise { trial: 0.03, ..noise };
            let first = 100_000 * u64::from(blocks) + 10_000 * at as u64;
            let counts = OutcomeCounts::run(&plan, 0.0, (first, EACH), |_| noise);
            wrong += counts.faster + counts.slower;
        }
        let wrong = f64::from(wrong) / (3 * EACH) as f64;
        // Measured over 2,400 experiments of each: 2.7, 3.6, 3.8 and 3.1 % with 6, 10, 20 and 30
        // blocks.
        assert!(wrong <= 0.05, "{blocks} blocks: {wrong}");
    }
}

#[test]
fn an_effect_that_matters_is_found() {
    let plan = plan(10, 30);
    // Measured: 98 % found, with 28 blocks on average, none wrong.
    let counts = OutcomeCounts::run(&plan, 0.03, (20_000, 300), |_| realistic(0.015));
    assert!(counts.fraction(counts.faster) >= 0.9, "{counts:?}");
    assert_eq!(counts.slower + counts.equivalent, 0, "{counts:?}");
}

#[test]
fn no_effect_ends_as_equivalent_or_open() {
    let plan = plan(10, 30);
    // Measured: 97 % equivalent after 20 blocks on average, 0.7 % wrong.
    let counts = OutcomeCounts::run(&plan, 0.0, (30_000, 300), |_| realistic(0.01));
    assert!(counts.fraction(counts.equivalent) >= 0.85, "{counts:?}");
    assert!(counts.fraction(counts.faster + counts.slower) <= 0.05, "{counts:?}");
}

#[test]
fn half_of_what_matters_is_no_win_of_what_matters() {
    let plan = plan(10, 30);
    // Measured: 43 % equivalent, 37 % faster (by less than matters, or openly), 20 % open, none
    // surely 2 %.
    let counts = OutcomeCounts::run(&plan, 0.01, (40_000, 300), |_| realistic(0.015));
    assert_eq!(counts.surely_relevant, 0, "{counts:?}");
    assert!(counts.fraction(counts.slower) <= 0.01, "{counts:?}");
}

#[test]
fn the_interval_holds_the_true_value_as_often_as_it_says() {
    let mut random = fastrand::Rng::with_seed(11);
    for blocks in [6_u32, 10, 20] {
        let (mut covered, mut held_by_bca) = (0, 0);
        for seed in 0..1000 {
            let logs: Vec<f64> = (0..blocks).map(|_| normal_deviate(&mut random)).collect();
            let resampling = Resampling { draws: DRAWS, seed, confidence: 0.95 };
            let of_draw = |values: &mut [f64]| values.iter().sum::<f64>() / values.len() as f64;
            let holds = |(low, high): (f64, f64)| u32::from(low <= 0.0 && high >= 0.0);
            covered += log_interval(&logs, resampling).map_or(0, holds);
            held_by_bca += bca_interval(&logs, of_draw, resampling).map_or(0, holds);
        }
        println!("{blocks} blocks: {covered} of 1000 held, {held_by_bca} by BCa alone");
        assert!((930..=985).contains(&covered), "{blocks}: {covered}");
        assert!(held_by_bca < covered, "{blocks}: {held_by_bca}");
    }
}
