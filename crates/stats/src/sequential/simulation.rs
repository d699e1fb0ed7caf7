//! Error rates and power of the rule, over simulated experiments whose trials run in Latin squares. Everything is seeded,
//! so each rate is one number. With `EXPERIMENTS` the last test prints the table of `docs/judgement.md`.

use std::fmt::Write as _;

use super::*;

/// Simulated machine and subject.
#[derive(Clone, Copy)]
struct World {
    name: &'static str,
    /// Standard deviation of a trial's logarithm.
    noise: f64,
    /// Factor of the arm's deviation.
    arm_spread: f64,
    /// Probability that a trial loses half of its value.
    lost: f64,
    /// Correlation of a trial's noise with that of the trial before.
    memory: f64,
    /// Probability per trial that the machine changes its speed by up to 30 %.
    step: f64,
    /// Probability per trial that a burst of one to five slow trials begins.
    burst: f64,
    /// Loss of the first trial of a block.
    first: f64,
    /// Probability of a tail of the latency, which multiplies the value by 1.5 to 4.
    tail: f64,
    /// CPUs that others take.
    others: Others,
    /// Number of arms besides the baseline, and of loads.
    arms: usize,
    loads: usize,
    runs_baseline_twice: bool,
}

/// Load of other programs on two CPUs.
#[derive(Clone, Copy, PartialEq)]
enum Others {
    Quiet,
    /// In one of four trials.
    Bursts,
    /// In each trial, on both CPUs.
    Compiler,
    /// Short wake-ups that delay the tail of the latency, not the rate.
    WakeUps,
    /// The arm's own, in each of its trials.
    OfArm,
}

const STEADY: World = World {
    name: "3 %",
    noise: 0.03,
    arm_spread: 1.0,
    lost: 0.0,
    memory: 0.0,
    step: 0.0,
    burst: 0.0,
    first: 0.0,
    tail: 0.0,
    others: Others::Quiet,
    arms: 1,
    loads: 1,
    runs_baseline_twice: true,
};

const WORLDS: &[World] = &[
    World { name: "1 %", noise: 0.01, ..STEADY },
    STEADY,
    World { name: "10 %", noise: 0.1, ..STEADY },
    World { name: "25 %", noise: 0.25, ..STEADY },
    World { name: "3 %, one trial in ten loses half", lost: 0.1, ..STEADY },
    World { name: "3 %, memory 0.7", memory: 0.7, ..STEADY },
    World { name: "3 %, steps of 30 %", step: 0.05, ..STEADY },
    World { name: "3 %, bursts", burst: 0.05, ..STEADY },
    World { name: "3 %, first trial 10 % slow", first: 0.1, ..STEADY },
    World { name: "3 %, the arm's spread × 3", arm_spread: 3.0, ..STEADY },
    World { name: "3 %, the arm's spread × 10", arm_spread: 10.0, ..STEADY },
    World { name: "3 %, others in bursts", others: Others::Bursts, ..STEADY },
    World { name: "3 %, compiler on both CPUs", others: Others::Compiler, ..STEADY },
    World { name: "3 %, others are the arm's", others: Others::OfArm, ..STEADY },
    World { name: "p50, 5 %, others in bursts", noise: 0.05, others: Others::Bursts, ..STEADY },
    World { name: "p99, 10 %, tails in 5 %", noise: 0.1, tail: 0.05, ..STEADY },
    World { name: "p99, 10 %, wake-up lag", noise: 0.1, others: Others::WakeUps, ..STEADY },
    World { name: "p99.9, 20 %, tails in 20 %", noise: 0.2, tail: 0.2, ..STEADY },
    World { name: "3 %, three arms", arms: 3, ..STEADY },
    World { name: "3 %, three arms, compiler", arms: 3, others: Others::Compiler, ..STEADY },
    World { name: "3 %, three arms, bursts of others", arms: 3, others: Others::Bursts, ..STEADY },
    World { name: "3 %, two arms, four loads", arms: 2, loads: 4, ..STEADY },
    World { name: "3 %, baseline once", runs_baseline_twice: false, ..STEADY },
    World { name: "3 %, baseline once, memory 0.7", runs_baseline_twice: false, memory: 0.7, ..STEADY },
];

const QUESTION: Question = Question { effect: 0.019_802_627, confidence: 0.95 };
const EFFECTS: [f64; 5] = [1.0, 1.03, 1.1, 1.5, 1.9];

struct Machine {
    random: fastrand::Rng,
    speed: f64,
    noise: f64,
    burst_left: u32,
    burst: f64,
}

impl Machine {
    /// Returns a normal deviate (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.random.f64()).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.random.f64()).cos()
    }

    /// Runs a trial: the logarithm of its value, and the fraction of the CPUs that others took.
    fn trial(&mut self, world: &World, is_arm: bool, position: usize) -> (f64, f64) {
        let fresh = self.normal();
        self.noise = world.memory * self.noise + (1.0 - world.memory * world.memory).sqrt() * fresh;
        let mut value = world.noise * self.noise * if is_arm { world.arm_spread } else { 1.0 };
        if self.random.f64() < world.lost {
            value -= std::f64::consts::LN_2;
        }
        if self.random.f64() < world.step {
            self.speed = 0.3 * (2.0 * self.random.f64() - 1.0);
        }
        if self.burst_left == 0 && self.random.f64() < world.burst {
            self.burst_left = self.random.u32(1..=5);
            self.burst = 0.1 + 0.3 * self.random.f64();
        }
        if self.burst_left > 0 {
            self.burst_left -= 1;
            value -= self.burst;
        }
        if position == 0 {
            value -= world.first;
        }
        if self.random.f64() < world.tail {
            value += (1.5 + 2.5 * self.random.f64()).ln();
        }
        let taken = match world.others {
            Others::Quiet => 0.0,
            Others::Bursts if self.random.f64() < 0.75 => 0.0,
            Others::Bursts => 0.05 + 0.35 * self.random.f64(),
            Others::Compiler => (0.6 + 0.08 * self.normal()).clamp(0.1, 0.9),
            Others::WakeUps if self.random.f64() < 0.6 => 0.0,
            Others::WakeUps => 0.03 * self.random.f64(),
            Others::OfArm => {
                if is_arm {
                    0.2 + 0.02 * self.normal()
                } else {
                    0.0
                }
            }
        };
        value += match world.others {
            // A wake-up that is late delays the tail by up to as much again.
            Others::WakeUps if taken > 0.0 => (1.0 + self.random.f64()).ln(),
            // The arm's own work is a part of its value.
            Others::OfArm => 0.0,
            _ => (1.0 - taken).ln(),
        };
        (value + self.speed, taken)
    }

    /// Runs a block under one load: a row of the Latin square.
    fn block(&mut self, world: &World, effect: f64, number: u32, row: usize) -> Vec<BlockValues> {
        let baselines = if world.runs_baseline_twice { 2 } else { 1 };
        let trials = baselines + world.arms;
        let mut results = vec![(0.0, 0.0); trials];
        for position in 0..trials {
            let symbol = (position + row) % trials;
            let is_arm = symbol >= baselines;
            let (value, taken) = self.trial(world, is_arm, position);
            results[symbol] = (value + if symbol == baselines { effect.ln() } else { 0.0 }, taken);
        }
        let ((baseline, baseline_taken), repeat) = (results[0], (baselines == 2).then(|| results[1]));
        let repeat_taken = repeat.map_or(0.0, |(_, taken)| taken);
        results[baselines..]
            .iter()
            .map(|&(arm, arm_taken)| BlockValues {
                block: number,
                arm,
                baseline,
                repeat: repeat.map(|(value, _)| value),
                taken: [arm_taken, baseline_taken, repeat_taken],
            })
            .collect()
    }
}

/// Counts of simulated experiments.
#[derive(Default)]
struct Counts {
    experiments: usize,
    /// Experiments with a difference where there is none.
    wrong: usize,
    /// Conclusions about the first arm, under all loads, in the right direction.
    found: usize,
    equivalent: usize,
    /// Experiments in which the interval does not contain the truth.
    missed: usize,
    claims: usize,
    blocks: Vec<usize>,
}

fn simulate(world: &World, effect: f64, blocks_max: u32, experiments: u64, seed: u64) -> Counts {
    let mut counts = Counts::default();
    for at in 0..experiments {
        let random = fastrand::Rng::with_seed(seed + at);
        let mut machine = Machine { random, speed: 0.0, noise: 0.0, burst_left: 0, burst: 0.0 };
        let trials = world.arms + if world.runs_baseline_twice { 2 } else { 1 };
        let mut claims = vec![Vec::new(); world.arms * world.loads];
        let mut rows: Vec<usize> = (0..trials).collect();
        for number in 1..=blocks_max {
            if (number as usize - 1).is_multiple_of(trials) {
                machine.random.shuffle(&mut rows);
            }
            for load in 0..world.loads {
                let row = rows[(number as usize - 1) % trials];
                for (arm, values) in machine.block(world, effect, number, row).into_iter().enumerate() {
                    claims[load * world.arms + arm].push(values);
                }
            }
        }
        let judged = judge_claims(&claims, QUESTION);
        let (mut wrong, mut missed) = (false, false);
        for (claim, judgement) in judged.iter().enumerate() {
            let truth = if claim % world.arms == 0 { effect.ln() } else { 0.0 };
            let is_wrong = match judgement.conclusion {
                Some(Conclusion::Higher) => truth <= 0.0,
                Some(Conclusion::Lower) => truth >= 0.0,
                Some(Conclusion::Equivalent) => truth > QUESTION.effect,
                None => false,
            };
            wrong |= is_wrong;
            missed |= judgement.interval.is_some_and(|(low, high)| low > truth || high < truth);
            if claim % world.arms == 0 {
                counts.claims += 1;
                counts.found += usize::from(judgement.conclusion == Some(Conclusion::Higher));
                counts.equivalent += usize::from(judgement.conclusion == Some(Conclusion::Equivalent));
                counts.blocks.push(judgement.concluded_after.unwrap_or(usize::MAX));
            }
        }
        counts.experiments += 1;
        counts.wrong += usize::from(wrong);
        counts.missed += usize::from(missed);
    }
    counts.blocks.sort_unstable();
    counts
}

impl Counts {
    fn percent(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.experiments as f64
    }

    fn found_percent(&self) -> f64 {
        100.0 * self.found as f64 / self.claims as f64
    }

    fn median_blocks(&self) -> usize {
        self.blocks[self.blocks.len() / 2]
    }
}

fn world(name: &str) -> &'static World {
    WORLDS.iter().find(|world| world.name == name).expect("a world of the table")
}

#[test]
fn a_difference_is_rarely_found_where_there_is_none() {
    for world in WORLDS.iter().filter(|world| world.arms * world.loads < 4) {
        let counts = simulate(world, 1.0, 12, 150, 1_000);
        let wrong = counts.percent(counts.wrong);
        // Of 150 experiments, 2.5 % are 4, with a standard deviation of 2.
        assert!(wrong <= 7.0, "{}: {wrong} % of experiments", world.name);
    }
}

#[test]
fn differences_are_found_when_the_table_says() {
    // The world, the effect, the least percentage that is found, the largest median of the blocks.
    for (name, effect, least, blocks) in [
        ("1 %", 1.03, 90.0, 6),
        ("3 %", 1.1, 90.0, 6),
        ("3 %, compiler on both CPUs", 1.9, 90.0, 6),
        ("3 %, others in bursts", 1.9, 90.0, 5),
        ("3 %, one trial in ten loses half", 1.9, 90.0, 5),
        ("p99, 10 %, tails in 5 %", 1.9, 90.0, 6),
        ("3 %, three arms", 1.5, 90.0, 4),
    ] {
        let counts = simulate(world(name), effect, 12, 100, 2_000);
        assert!(counts.found_percent() >= least, "{name}: {} %", counts.found_percent());
        assert!(counts.median_blocks() <= blocks, "{name}: {} blocks", counts.median_blocks());
    }
}

#[test]
fn intervals_hold_over_all_looks() {
    for name in ["3 %", "3 %, one trial in ten loses half", "10 %"] {
        let counts = simulate(world(name), 1.1, 12, 200, 3_000);
        assert!(counts.percent(counts.missed) <= 4.0, "{name}: {} %", counts.percent(counts.missed));
    }
}

/// Prints the table of the documentation, which takes minutes: only if its number of experiments is given.
#[test]
fn table_of_errors_and_power() {
    let given = std::env::var("EXPERIMENTS").ok().and_then(|text| text.parse().ok());
    let Some(experiments) = given else { return };
    let mut table = String::from(
        "| Noise | A/A | +3 % | +10 % | +50 % | ×1.9 | equivalent |\n|---|---|---|---|---|---|---|\n",
    );
    for world in WORLDS {
        let mut cells = Vec::new();
        for (at, effect) in EFFECTS.into_iter().enumerate() {
            let few = if at == 0 { experiments } else { experiments / 10 };
            let counts = simulate(world, effect, 30, few, 10_000_000 * (at as u64 + 1));
            let blocks = match counts.median_blocks() {
                usize::MAX => "–".to_owned(),
                blocks => blocks.to_string(),
            };
            cells.push(match at {
                0 => format!("{:.1}", counts.percent(counts.wrong)),
                _ => format!("{:.0} / {blocks}", counts.found_percent()),
            });
            if at == 0 {
                cells.push(format!("{:.0}", 100.0 * counts.equivalent as f64 / counts.claims as f64));
            }
        }
        let equivalent = cells.remove(1);
        let _ = writeln!(table, "| {} | {} | {equivalent} |", world.name, cells.join(" | "));
        println!("{}", table.lines().last().unwrap_or_default());
    }
    // Experiments that a user resumes with more blocks.
    for blocks_max in [30, 60, 100] {
        let counts = simulate(&STEADY, 1.0, blocks_max, experiments / 4, 90_000_000);
        println!("3 %, up to {blocks_max} blocks: {:.1} %", counts.percent(counts.wrong));
    }
    println!("{table}");
}

/// Trials of one program on a real machine: the logarithm of a figure, and the fraction of the CPUs that others took.
type Trace = Vec<(f64, f64)>;

/// Reads a column of a file of `bench/run traces`.
fn read_trace(text: &str, column: usize) -> Trace {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let numbers: Vec<f64> =
                line.split_whitespace().map(|field| field.parse().expect("a number")).collect();
            (numbers[column], numbers[numbers.len() - 1])
        })
        .collect()
}

/// Gives consecutive trials to a baseline, its second run and an arm, in random Latin squares.
fn relabelled(trials: &[(f64, f64)], random: &mut fastrand::Rng) -> Vec<BlockValues> {
    let mut rows = [0, 1, 2];
    let blocks = trials.chunks_exact(3).zip(1u32..);
    blocks
        .map(|(block, number)| {
            if (number - 1).is_multiple_of(3) {
                random.shuffle(&mut rows);
            }
            let row = rows[(number as usize - 1) % 3];
            let run = |symbol: usize| block[(symbol + 3 - row) % 3];
            let ((baseline, first), (repeat, second), (arm, third)) = (run(0), run(1), run(2));
            BlockValues { block: number, arm, baseline, repeat: Some(repeat), taken: [third, first, second] }
        })
        .collect()
}

/// Number of experiments with a conclusion other than that the arms are equivalent, of as many as the trace has in turn.
fn false_conclusions(trace: &Trace, blocks_max: usize, random: &mut fastrand::Rng) -> (usize, usize) {
    let experiments = trace.chunks_exact(3 * blocks_max).map(|trials| {
        let judged = judge_claims(&[relabelled(trials, random)], QUESTION);
        matches!(judged[0].conclusion, Some(Conclusion::Higher | Conclusion::Lower))
    });
    experiments.fold((0, 0), |(wrong, all), is_wrong| (wrong + usize::from(is_wrong), all + 1))
}

#[test]
fn relabelled_trials_of_one_program_differ_rarely_also_if_the_machine_drifts() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut machine = Machine { random: random.fork(), speed: 0.0, noise: 0.0, burst_left: 0, burst: 0.0 };
    let drifting = world("3 %, steps of 30 %");
    let trace = (0..3600).map(|at| machine.trial(drifting, false, at % 3)).collect();
    let (wrong, experiments) = false_conclusions(&trace, 12, &mut random);
    assert_eq!(experiments, 100);
    assert!(wrong <= 6, "{wrong} of {experiments}");
}

/// Judges the files of `bench/run traces`, if `TRACES` has their names: each is given to the arms 20 times.
#[test]
fn recorded_trials_of_one_program() {
    let Ok(files) = std::env::var("TRACES") else { return };
    for file in files.split(',') {
        let text = std::fs::read_to_string(file).expect("a file of bench/run traces");
        for (column, figure) in ["responses/s", "p99"].into_iter().enumerate() {
            let trace = read_trace(&text, column);
            for blocks_max in [8, 16, 30] {
                let mut random = fastrand::Rng::with_seed(blocks_max as u64);
                let counts = (0..20).map(|_| false_conclusions(&trace, blocks_max, &mut random));
                let (wrong, all) = counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
                println!("{file}: {figure}, up to {blocks_max} blocks: {wrong} of {all} experiments differ");
            }
        }
    }
}
