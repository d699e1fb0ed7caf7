//! A simulated experiment for tests: plans, and a runner whose trials take no time and whose figures follow
//! from the seed and the place alone, with noise and drift, disturbances and failures.

use std::collections::BTreeMap;
use std::path::Path;

use record::experiment::{
    Arm, Better, Cell, Comparison, LoadPlan, Metric, Pair, Plan, Spread, TrialLine,
};
use record::trial::{Covariates, Kind, Place, Steady, Trial};

use super::folder::Start;
use super::hooks::{Ask, Case, Judged, NotRun, Ran, Runner};

pub(super) const METRIC: &str = "responses_per_s";

/// A plan of these arms, the first one again among them, under these loads.
pub(super) fn plan(arms: &[&str], loads: &[&str]) -> Plan {
    let arm = |name: &str, again: Option<&str>| Arm {
        name: name.to_owned(),
        again: again.map(str::to_owned),
        ..Arm::default()
    };
    let mut planned: Vec<Arm> = arms.iter().map(|name| arm(name, None)).collect();
    planned.insert(1, arm(&format!("{}-again", arms[0]), Some(arms[0])));
    let load = |name: &&str| LoadPlan { name: (*name).to_owned(), ..LoadPlan::default() };
    let bounds = [("steal_share", 0.02), ("wake_up_p99_ns", 2.0)];
    Plan {
        name: "try".to_owned(),
        title: "a try".to_owned(),
        file: "name = \"try\"\n".to_owned(),
        seed: 7,
        baseline: arms[0].to_owned(),
        arms: planned,
        loads: loads.iter().map(load).collect(),
        metrics: vec![Metric {
            name: METRIC.to_owned(),
            title: "responses".to_owned(),
            unit: "1/s".to_owned(),
            better: Better::Higher,
        }],
        effect: 0.02,
        confidence: 0.95,
        blocks_min: 3,
        blocks_max: 5,
        reruns_max_share: 0.5,
        duration_s: 8.0,
        warm_up_s: Some(1.0),
        discard: bounds.map(|(name, bound)| (name.to_owned(), bound)).into(),
        ..Plan::default()
    }
}

/// What would be written before the first trial.
pub(super) fn start(plan: Plan) -> Start {
    let environment = BTreeMap::from([("governor".to_owned(), "performance".to_owned())]);
    let started_at = "2026-11-22T06:47:00.000Z".to_owned();
    Start { plan, environment, started_at, ..Start::default() }
}

/// A trial of a block that nothing disturbed.
pub(super) fn line(number: u32, block: u32, attempt: u32, arm: &str, load: &str) -> TrialLine {
    let (arm, load) = (arm.to_owned(), load.to_owned());
    let place = Place { number, block, attempt, arm, load, ..Place::default() };
    TrialLine { place, ..TrialLine::default() }
}

/// What becomes of a trial.
pub(super) type Fate = fn(&Place, &mut Trial) -> Result<(), NotRun>;

/// A runner that takes no time.
pub(super) struct Simulated {
    pub(super) seed: u64,
    /// The arm that is faster, and by what.
    pub(super) faster: (&'static str, f64),
    /// The noise's standard deviation, as a share.
    pub(super) noise: f64,
    pub(super) fate: Fate,
    /// After so many trials, what happens in the next one.
    pub(super) killed: Option<(u32, Kill)>,
    /// What was asked for.
    pub(super) asked: Vec<(Place, Ask)>,
}

/// How a simulated session ends before its time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kill {
    /// The trial is told to stop.
    Stop,
    /// Nothing after it happens any more.
    Panic,
}

impl Simulated {
    pub(super) fn new(fate: Fate) -> Self {
        Self { seed: 3, faster: ("b", 1.05), noise: 0.002, fate, killed: None, asked: Vec::new() }
    }
}

impl Runner for Simulated {
    fn run(&mut self, place: &Place, ask: &Ask) -> Result<Ran, NotRun> {
        if let Some((after, kill)) = self.killed
            && self.asked.len() as u32 >= after
        {
            match kill {
                Kill::Stop => return Err(NotRun::Stopped),
                // Without the hook, which would print it.
                Kill::Panic => std::panic::resume_unwind(Box::new("killed")),
            }
        }
        self.asked.push((place.clone(), ask.clone()));
        // Not of its number: a trial that was lost with a kill takes one with it.
        let text = format!("{:?} {:?}", self.seed, Place { number: 0, ..place.clone() });
        let seed = text.bytes().fold(1, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
        let mut random = fastrand::Rng::with_seed(seed);
        let noise: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let drift = 1.0 + 0.1 * (f64::from(place.block) / 2.0).sin();
        let arm = if place.arm == self.faster.0 { self.faster.1 } else { 1.0 };
        let value = 40_000.0 * arm * drift * (1.0 + self.noise * noise);
        let mut trial = Trial {
            warm_up_s: ask.warm_up_ns as f64 / 1e9,
            duration_s: ask.duration_ns as f64 / 1e9,
            metrics: BTreeMap::from([(METRIC.to_owned(), value)]),
            covariates: Covariates {
                steal_share: Some(0.001),
                wake_up_p99_ns: Some(80_000 + random.u64(..10_000)),
                ..Covariates::default()
            },
            steady: Steady { from_s: Some(2.0), text: "steady from second 2".to_owned() },
            ..Trial::default()
        };
        (self.fate)(place, &mut trial)?;
        let folded = ask.profile.then(|| "main;work 3\n".to_owned());
        Ok(Ran { trial, folded, left: Vec::new() })
    }
}

/// Nothing disturbs, nothing fails.
pub(super) fn calm(_: &Place, _: &mut Trial) -> Result<(), NotRun> {
    Ok(())
}

/// Some trials are disturbed, one fails once, one wakes up late.
pub(super) fn rough(place: &Place, trial: &mut Trial) -> Result<(), NotRun> {
    let at = |block, attempt, arm: &str| {
        (place.block, place.attempt, place.arm.as_str()) == (block, attempt, arm)
    };
    if at(2, 1, "b") || at(2, 2, "a") {
        trial.covariates.steal_share = Some(0.3);
    }
    if at(1, 1, "a-again") {
        // Known to be late only once more trials have shown what is usual.
        trial.covariates.wake_up_p99_ns = Some(5_000_000);
    }
    if at(3, 1, "b") || (place.kind == Kind::Pilot && at(0, 1, "b")) {
        return Err(NotRun::Failed("'nginx' ended (exit status: 1): no such library".to_owned()));
    }
    Ok(())
}

/// Ratios by block: all that a test of the engine needs of statistics.
pub(super) fn judge(case: Case<'_>) -> Judged {
    let plan = case.plan;
    let mut judged = Judged::default();
    let value = |line: &TrialLine| line.metrics[METRIC];
    let of = |arm: &str, load: &str| -> BTreeMap<u32, f64> {
        let of_cell =
            |line: &&TrialLine| line.counts() && line.place.arm == arm && line.place.load == load;
        case.lines.iter().filter(of_cell).map(|line| (line.place.block, value(line))).collect()
    };
    for load in &plan.loads {
        let baseline = of(&plan.baseline, &load.name);
        for arm in &plan.arms {
            let own = of(&arm.name, &load.name);
            let mut sorted: Vec<f64> = own.values().copied().collect();
            sorted.sort_by(f64::total_cmp);
            let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
            let metrics =
                BTreeMap::from([(METRIC.to_owned(), Spread { median, ..Spread::default() })]);
            judged.cells.push(Cell {
                arm: arm.name.clone(),
                load: load.name.clone(),
                trials: own.len() as u32,
                metrics,
                ..Cell::default()
            });
            if arm.name == plan.baseline {
                continue;
            }
            let pair = |(block, own): (&u32, &f64)| {
                Some(Pair { block: *block, baseline: *baseline.get(block)?, arm: *own })
            };
            let pairs: Vec<Pair> = own.iter().filter_map(pair).collect();
            let logs: Vec<f64> = pairs.iter().map(|it| (it.arm / it.baseline).ln()).collect();
            let ratio =
                (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp());
            judged.comparisons.push(Comparison {
                arm: arm.name.clone(),
                baseline: plan.baseline.clone(),
                load: load.name.clone(),
                metric: METRIC.to_owned(),
                primary: true,
                noise: arm.again.is_some(),
                pairs,
                ratio,
                ..Comparison::default()
            });
        }
    }
    judged.summary = vec![format!("{} trials; {:?}", case.lines.len(), case.changes)];
    judged
}

/// Whether the spread of every ratio is small.
pub(super) fn settled(plan: &Plan, lines: &[TrialLine]) -> bool {
    let blocks = lines.iter().filter(|line| line.counts()).map(|line| line.place.block).max();
    // Any rule that looks at what counts will do.
    let all: Vec<f64> =
        lines.iter().filter(|it| it.counts()).map(|it| it.metrics[METRIC]).collect();
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    let spread = all.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max) / mean;
    spread < plan.effect && blocks >= Some(plan.blocks_min)
}

/// A folder in memory where there is one: what is tested syncs often.
pub(super) fn quick_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    // It may be there and not be ours to write to.
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}
