//! An experiment's file: text to a plan and to what each of its trials runs, with every problem at once.
//!
//! A file is one trial's file ([`crate::scenario::setup`]) with arms and loads, which are patches of it:
//! the same keys with other values. Not for running it, nor for what came of it.

mod around;
mod cells;
mod diff;
mod file;
mod fill;
mod measure;
mod patch;
pub mod ready;
#[cfg(test)]
mod tests;
mod variants;

use std::collections::BTreeMap;

use record::experiment::{Arm, LoadPlan, Metric, ONLY_LOAD, Plan};
use record::problem::Problem;

use crate::scenario::read::{Problems, document};
use crate::scenario::setup::Setup;
use crate::statistics::many::pairs_to_conclude;

use self::cells::Cells;
use self::file::Parts;
use self::measure::Given;
use self::patch::{Leaf, changes, changes_apart, leaves};
use self::variants::{Side, Variant};

pub use self::around::Around;
pub use self::measure::bound;

/// What stands behind the name of an arm that is run a second time, to show the noise.
pub const AGAIN: &str = "-again";
/// The arm of a file that has none: what the file says.
pub const ONLY_ARM: &str = "base";
/// A file may be so long: with its arms it is held in memory once for each of the cells.
const FILE_BYTES_MAX: usize = 1 << 20;

/// What was asked for beside the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Length of each load, in place of the file's.
    pub duration_ns: Option<u64>,
    /// Fewest and most blocks, in place of the file's. With fewer than six nothing can be told apart.
    pub blocks: Option<(u32, u32)>,
    /// As few blocks as can show a difference, where `blocks` does not say how many.
    pub quick: bool,
    /// Seed of every order and resampling.
    pub seed: u64,
    /// Texts in place of the file's own parameters, by their names.
    pub parameters: Vec<(String, String)>,
    /// Bounds in place of the file's, by their covariates ([`bound`]).
    pub discard: BTreeMap<String, f64>,
    /// Whether it was asked for before, and ran: what was taken then is not refused now.
    pub again: bool,
}

impl Asked {
    /// What was asked for when a plan was made, so that its file can be read again as it was.
    #[must_use]
    pub fn again(plan: &Plan) -> Self {
        Self {
            duration_ns: Some((plan.duration_s * 1e9).round() as u64),
            blocks: Some((plan.blocks_min, plan.blocks_max)),
            quick: false,
            seed: plan.seed,
            parameters: plan.parameters.clone().into_iter().collect(),
            discard: plan.discard.clone(),
            again: true,
        }
    }
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    plan: Plan,
    setups: BTreeMap<(String, String), Setup>,
}

impl File {
    /// Reads a file's text. `name` is the file's, for problems and for an experiment without a name of
    /// its own; `metrics` are all that can be measured; `around` is what it is to be run with, if it is to be.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file, and then with what was asked for.
    pub fn parse_with(
        name: &str,
        text: &str,
        asked: &Asked,
        metrics: &[Metric],
        around: Option<&Around<'_>>,
    ) -> Result<Self, Vec<Problem>> {
        if text.len() > FILE_BYTES_MAX {
            let why = format!("it is longer than {FILE_BYTES_MAX} bytes");
            return Err(vec![Problem::new(name, why)]);
        }
        let mut problems = Problems::default();
        let (document, is_whole) = document(text, &mut problems);
        if !is_whole {
            return Err(problems.placed(name, text));
        }
        let mut parts = Parts::of(&document, &mut problems);
        let mut beside = parts.set(&asked.parameters);
        let arms = variants::of(Side::Arms, &parts, &mut problems);
        let loads = variants::of(Side::Loads, &parts, &mut problems);
        beside.extend(variants::without_effect(&asked.parameters, &arms, &loads));
        let mut cells = Cells::read(&parts, (&arms, &loads), text, around, &mut problems);
        let given = Given::new(asked, metrics, &cells, around);
        let (plan, wrong) = measure::plan(&parts, &given, &mut problems);
        beside.extend(wrong);
        let baseline = variants::baseline(&parts, &arms, &mut problems);
        let mut found = problems.placed(name, text);
        found.extend(beside);
        if !found.is_empty() {
            return Err(found);
        }
        let plan = Plan {
            name: parts.name(name),
            title: fill::shown(&parts.title(name), &parts.base),
            file: text.to_owned(),
            parameters: asked.parameters.iter().cloned().collect(),
            baseline: arms[baseline].name.clone(),
            arms: arm_plans(&parts, &arms, baseline),
            loads: load_plans(&parts, &arms, &loads, &cells),
            warm_up_s: cells.warm_up_ns.map(|ns| ns as f64 / 1e9),
            ..plan
        };
        let blocks = Some(pairs_to_conclude(tested(&plan), plan.confidence))
            .filter(|_| asked.quick && asked.blocks.is_none());
        let (blocks_min, blocks_max) =
            blocks.map_or((plan.blocks_min, plan.blocks_max), |blocks| (blocks, blocks));
        let plan = Plan { blocks_min, blocks_max, ..plan };
        cells.setups.values_mut().for_each(|setup| setup.profile = plan.profile);
        Ok(Self { plan, setups: cells.setups })
    }

    /// What is fixed before the first trial.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What a trial of an arm under a load runs. The baseline's second arm runs what the baseline does.
    /// Calls are not counted in it, because what is judged is not to be slowed down: that is for trials
    /// of their own ([`Plan::calls`]).
    #[must_use]
    pub fn setup(&self, arm: &str, load: &str) -> Option<&Setup> {
        let arm = self.plan.arm(arm)?;
        let runs = arm.again.as_ref().unwrap_or(&arm.name);
        self.setups.get(&(runs.clone(), load.to_owned()))
    }
}

/// A parameter of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// What it is, if the file says.
    pub doc: String,
    /// Its text; without one it has to be given.
    pub value: Option<String>,
}

/// The parameters of a file, in its order. What is wrong with the file is for [`File`] to say.
#[must_use]
pub fn parameters(text: &str) -> Vec<Parameter> {
    let mut problems = Problems::default();
    let (document, _) = document(text, &mut problems);
    Parts::of(&document, &mut problems).declared()
}

/// How many comparisons with the baseline are tested together: every other arm under every load.
#[must_use]
pub fn tested(plan: &Plan) -> usize {
    let is_tested = |arm: &&Arm| arm.again.is_none() && arm.name != plan.baseline;
    plan.arms.iter().filter(is_tested).count() * plan.loads.len()
}

/// What an arm differs in from the baseline, by key, flags of the load and separate places of a file each by
/// itself: with more than one, it cannot be said which of them made a difference.
#[must_use]
pub fn differing(plan: &Plan, arm: &Arm) -> Vec<String> {
    let Some(baseline) = plan.arm(&plan.baseline) else { return Vec::new() };
    let keys = baseline.changes.keys().chain(arm.changes.keys());
    let mut keys: Vec<String> =
        keys.filter(|key| baseline.changes.get(*key) != arm.changes.get(*key)).cloned().collect();
    keys.sort();
    keys.dedup();
    keys
}

/// The baseline, the baseline again, and the others in the order of the file.
fn arm_plans(parts: &Parts<'_>, arms: &[Variant<'_>], baseline: usize) -> Vec<Arm> {
    let plan = |arm: &Variant<'_>| {
        let (title, changes) = shown(parts, arm, changes_apart);
        Arm { name: arm.name.clone(), title, changes, again: None, levels: arm.levels.clone() }
    };
    let first = plan(&arms[baseline]);
    let again = Arm {
        name: format!("{}{AGAIN}", first.name),
        title: format!("{}, again", first.title),
        again: Some(first.name.clone()),
        ..first.clone()
    };
    let others = arms.iter().enumerate().filter(|(at, _)| *at != baseline);
    [first, again].into_iter().chain(others.map(|(_, arm)| plan(arm))).collect()
}

fn load_plans(
    parts: &Parts<'_>,
    arms: &[Variant<'_>],
    loads: &[Variant<'_>],
    cells: &Cells,
) -> Vec<LoadPlan> {
    let plan = |load: &Variant<'_>| {
        let (title, changes) = shown(parts, load, changes);
        let title = match load.name == ONLY_LOAD && load.patches.is_empty() {
            true => cells.flags(arms),
            false => title,
        };
        LoadPlan { name: load.name.clone(), title, changes, levels: load.levels.clone() }
    };
    loads.iter().map(plan).collect()
}

/// Values by their keys.
type Leaves = BTreeMap<String, Leaf>;

/// Title and changes of an arm or a load, with its parameters put in. What changes is found before that:
/// a parameter is one change, wherever it stands.
fn shown(
    parts: &Parts<'_>,
    variant: &Variant<'_>,
    changes: fn(&Leaves, &Leaves) -> BTreeMap<String, String>,
) -> (String, BTreeMap<String, String>) {
    let whole = variant.over(&parts.base);
    let mut changes = changes(&leaves(&parts.base), &leaves(&whole));
    changes.values_mut().for_each(|value| *value = fill::shown(value, &whole));
    (fill::shown(&variant.title, &whole), changes)
}
