//! Simulated experiments for tests: plans, and a runner whose trials take no time. Its figures
//! follow from the seed and the place alone, with noise and drift, disturbances and failures.

use std::collections::BTreeMap;
use std::path::Path;

use record::experiment::{
    Arm, BetterDirection, BlockPair, Comparison, ExperimentCell, ExperimentMetric, ExperimentPlan, LoadPlan,
    TrialSummary, ValueDistribution,
};
use record::trial::{Covariates, ExperimentTrial, SteadyState, TrialKind, TrialPosition};

use super::engine_context::{Conclusions, JudgeInput, Runner, TrialOutput, TrialParams, TrialRunError};
use super::experiment_dir::ExperimentStart;

pub(super) const METRIC: &str = "responses_per_s";

/// Returns a plan of these arms under these loads. It also repeats the first arm for A/A.
pub(super) fn plan(arms: &[&str], loads: &[&str]) -> ExperimentPlan {
    let arm = |name: &str, repeats: Option<&str>| Arm {
        name: name.to_owned(),
        repeats: repeats.map(str::to_owned),
        ..Arm::default()
    };
    let mut planned: Vec<Arm> = arms.iter().map(|name| arm(name, None)).collect();
    planned.insert(1, arm(&format!("{}-repeat", arms[0]), Some(arms[0])));
    let load = |name: &&str| LoadPlan { name: (*name).to_owned(), ..LoadPlan::default() };
    let bounds = [("steal_fraction", 0.02), ("wake_up_p99_ns", 2.0)];
    ExperimentPlan {
        name: "try".to_owned(),
        title: "a try".to_owned(),
        file: "name = \"try\"\n".to_owned(),
        seed: 7,
        baseline: arms[0].to_owned(),
        arms: planned,
        loads: loads.iter().map(load).collect(),
        metrics: vec![ExperimentMetric {
            name: METRIC.to_owned(),
            title: "responses".to_owned(),
            unit: "1/s".to_owned(),
            better: BetterDirection::Higher,
        }],
        effect: 0.02,
        confidence: 0.95,
        blocks_min: 3,
        blocks_max: 5,
        reruns_max_fraction: 0.5,
        duration_s: 8.0,
        warm_up_s: Some(1.0),
        discard: bounds.map(|(name, bound)| (name.to_owned(), bound)).into(),
        ..ExperimentPlan::default()
    }
}

/// Returns the record of the start, as it would be written before the first trial.
pub(super) fn start(plan: ExperimentPlan) -> ExperimentStart {
    let environment = BTreeMap::from([("governor".to_owned(), "performance".to_owned())]);
    let started_at = "2026-11-22T06:47:00.000Z".to_owned();
    ExperimentStart { plan, environment, started_at, ..ExperimentStart::default() }
}

pub(super) fn trial_line(number: u32, block: u32, attempt: u32, arm: &str, load: &str) -> TrialSummary {
    let (arm, load) = (arm.to_owned(), load.to_owned());
    let position = TrialPosition { number, block, attempt, arm, load, ..TrialPosition::default() };
    TrialSummary { position, ..TrialSummary::default() }
}

/// Function that changes the outcome of a trial.
pub(super) type TrialEffect = fn(&TrialPosition, &mut ExperimentTrial) -> Result<(), TrialRunError>;

/// Runner that takes no time.
pub(super) struct SimulatedRunner {
    pub(super) seed: u64,
    /// Name of the faster arm, and its speed factor.
    pub(super) faster: (&'static str, f64),
    /// Standard deviation of the noise, as a fraction.
    pub(super) noise: f64,
    pub(super) effect: TrialEffect,
    /// Number of trials before the kill, and its kind.
    pub(super) kill_after: Option<(u32, KillKind)>,
    pub(super) requests: Vec<(TrialPosition, TrialParams)>,
}

/// Kind of the early end of a simulated session.
#[derive(Clone, Copy, Debug)]
pub(super) enum KillKind {
    Stop,
    /// The process panics: nothing after it runs.
    Panic,
}

impl SimulatedRunner {
    pub(super) fn new(effect: TrialEffect) -> Self {
        Self { seed: 3, faster: ("b", 1.05), noise: 0.002, effect, kill_after: None, requests: Vec::new() }
    }
}

impl Runner for SimulatedRunner {
    fn run(&mut self, position: &TrialPosition, params: &TrialParams) -> Result<TrialOutput, TrialRunError> {
        if let Some((after, kill)) = self.kill_after
            && self.requests.len() as u32 >= after
        {
            match kill {
                KillKind::Stop => return Err(TrialRunError::Stopped),
                // `resume_unwind` skips the panic hook, which would print a message.
                KillKind::Panic => std::panic::resume_unwind(Box::new("killed")),
            }
        }
        self.requests.push((position.clone(), params.clone()));
        // The number is left out: a trial that a kill ended has used its number up.
        let text = format!("{:?} {:?}", self.seed, TrialPosition { number: 0, ..position.clone() });
        let seed = text.bytes().fold(1, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
        let mut random = fastrand::Rng::with_seed(seed);
        let noise: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let drift = 1.0 + 0.1 * (f64::from(position.block) / 2.0).sin();
        let arm = if position.arm == self.faster.0 { self.faster.1 } else { 1.0 };
        let value = 40_000.0 * arm * drift * (1.0 + self.noise * noise);
        let mut trial = ExperimentTrial {
            warm_up_s: params.warm_up_ns as f64 / 1e9,
            duration_s: params.duration_ns as f64 / 1e9,
            metrics: BTreeMap::from([(METRIC.to_owned(), value)]),
            covariates: Covariates {
                steal_fraction: Some(0.001),
                wake_up_p99_ns: Some(80_000 + random.u64(..10_000)),
                ..Covariates::default()
            },
            steady: SteadyState { from_s: Some(2.0), text: "steady from second 2".to_owned() },
            ..ExperimentTrial::default()
        };
        (self.effect)(position, &mut trial)?;
        let folded = params.is_profiled.then(|| "main;work 3\n".to_owned());
        Ok(TrialOutput { trial, folded, leftovers: Vec::new() })
    }
}

/// Outcome without disturbances and failures.
pub(super) fn undisturbed(_: &TrialPosition, _: &mut ExperimentTrial) -> Result<(), TrialRunError> {
    Ok(())
}

/// Outcome with some disturbed trials, one failure and one late wake-up.
pub(super) fn disturbed(position: &TrialPosition, trial: &mut ExperimentTrial) -> Result<(), TrialRunError> {
    let at = |block, attempt, arm: &str| {
        (position.block, position.attempt, position.arm.as_str()) == (block, attempt, arm)
    };
    if at(2, 1, "b") || at(2, 2, "a") {
        trial.covariates.steal_fraction = Some(0.3);
    }
    if at(1, 1, "a-repeat") {
        // It counts as late only once more trials have defined the usual value.
        trial.covariates.wake_up_p99_ns = Some(5_000_000);
    }
    if at(3, 1, "b") || (position.kind == TrialKind::Pilot && at(0, 1, "b")) {
        return Err(TrialRunError::Failed("'nginx' ended (exit status: 1): no such library".to_owned()));
    }
    Ok(())
}

/// Computes ratios by block: the only statistics that tests of the engine need.
pub(super) fn judge(input: JudgeInput<'_>) -> Conclusions {
    let plan = input.plan;
    let mut judged = Conclusions::default();
    let value = |line: &TrialSummary| line.metrics[METRIC];
    let values_of = |arm: &str, load: &str| -> BTreeMap<u32, f64> {
        let counts_in_cell = |line: &&TrialSummary| {
            line.is_counted() && line.position.arm == arm && line.position.load == load
        };
        input.trials.iter().filter(counts_in_cell).map(|line| (line.position.block, value(line))).collect()
    };
    for load in &plan.loads {
        let baseline = values_of(&plan.baseline, &load.name);
        for arm in &plan.arms {
            let own = values_of(&arm.name, &load.name);
            let median = stats::median(&own.values().copied().collect::<Vec<f64>>()).unwrap_or(0.0);
            let metrics = BTreeMap::from([(
                METRIC.to_owned(),
                ValueDistribution { median, ..ValueDistribution::default() },
            )]);
            judged.cells.push(ExperimentCell {
                arm: arm.name.clone(),
                load: load.name.clone(),
                trials: own.len() as u32,
                metrics,
                ..ExperimentCell::default()
            });
            if arm.name == plan.baseline {
                continue;
            }
            let pair = |(block, own): (&u32, &f64)| {
                Some(BlockPair { block: *block, baseline: *baseline.get(block)?, arm: *own })
            };
            let pairs: Vec<BlockPair> = own.iter().filter_map(pair).collect();
            let logs: Vec<f64> = pairs.iter().map(|it| (it.arm / it.baseline).ln()).collect();
            let ratio = (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp());
            judged.comparisons.push(Comparison {
                arm: arm.name.clone(),
                baseline: plan.baseline.clone(),
                load: load.name.clone(),
                metric: METRIC.to_owned(),
                primary: true,
                noise: arm.repeats.is_some(),
                pairs,
                ratio,
                ..Comparison::default()
            });
        }
    }
    judged.summary = vec![format!("{} trials; {:?}", input.trials.len(), input.changes)];
    judged
}

/// Returns whether the spread of all values is small.
pub(super) fn is_concluded(plan: &ExperimentPlan, lines: &[TrialSummary]) -> bool {
    let blocks = lines.iter().filter(|line| line.is_counted()).map(|line| line.position.block).max();
    // Any rule that depends on the trials that count is sufficient.
    let all: Vec<f64> = lines.iter().filter(|it| it.is_counted()).map(|it| it.metrics[METRIC]).collect();
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    let spread = all.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max) / mean;
    spread < plan.effect && blocks >= Some(plan.blocks_min)
}

/// Creates a temporary directory in memory if possible: the code under test syncs often.
pub(super) fn temp_dir_in_memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    // The directory may exist without write permission for this user.
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}
