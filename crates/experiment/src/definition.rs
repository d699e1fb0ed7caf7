//! Files of experiments: text to a plan and to the setup of each trial, with every problem at once.
//!
//! An experiment's file is one trial's file ([`crate::scenario::setup`]) with arms and loads. These
//! are patches of it: the same keys with other values. Running it and judging it are elsewhere.

mod cells;
mod diff;
mod environment_checks;
mod file;
mod fill;
mod left_out;
mod measure;
mod patch;
pub mod ready;
#[cfg(test)]
mod tests;
mod variants;

use std::collections::BTreeMap;

use record::document::Problems;
use record::document::table::NamedTable;
use record::experiment::{Arm, ExperimentMetric, ExperimentPlan, LeftOutLoad, LoadPlan, ONLY_LOAD};
use record::problem::InputProblem;
use record::sorted::CollectSorted;
use stats::sequential::BLOCKS_MIN;

use self::cells::ExperimentCells;
use self::file::FileParts;
use self::left_out::LeaveOutRule;
use self::measure::MeasureInput;
use self::patch::{KeyValue, changes_by_key, key_values, split_changes};
use self::variants::{Variant, VariantAxis};
use crate::scenario::keys::BOUND_COVARIATES;
use crate::scenario::read::parse_document;
use crate::scenario::setup::LabSetup;

pub use self::environment_checks::{EnvironmentChecks, FleetLoadCheck};
pub use self::measure::parse_discard_bound;

/// Suffix of the name of an arm that is run a second time, to show the noise.
pub const REPEAT_SUFFIX: &str = "-repeat";
/// Name of the arm of a file without arms: the file as it is.
pub const DEFAULT_ARM: &str = "base";
/// Numbers of blocks of a short run: the first look, and two more.
const BLOCKS_QUICK: (u32, u32) = (BLOCKS_MIN as u32, BLOCKS_MIN as u32 + 2);
/// Maximum length of a file: each of the cells holds it in memory once, with its arm.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Options from outside the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExperimentOptions {
    /// Length of each load, in place of the file's.
    pub duration_ns: Option<u64>,
    /// Minimum and maximum number of blocks, in place of the file's. Fewer than four cannot show a
    /// difference.
    pub blocks: Option<(u32, u32)>,
    /// Primary metric, in place of the file's.
    pub metric: Option<String>,
    /// True to run the fewest blocks that can show a difference, if `blocks` is not set.
    pub quick: bool,
    /// Seed of every order and resampling.
    pub seed: u64,
    /// Texts in place of the file's own parameters, by their names.
    pub parameters: Vec<(String, String)>,
    /// Bounds in place of the file's, by their covariates ([`parse_discard_bound`]); `None` for no bound.
    pub discard: BTreeMap<String, Option<f64>>,
    /// Maximum number of reruns as a fraction of the blocks, in place of the file's.
    pub reruns_max_fraction: Option<f64>,
    /// True if these options were accepted and run before: they are not rejected now.
    pub was_accepted: bool,
    /// Loads that a plan left out, when its file is read again: exactly those are left out, whatever machine reads it.
    pub left_out: Option<Vec<LeftOutLoad>>,
}

impl ExperimentOptions {
    /// Returns the options that a plan was made with, so that its file can be read again as it was.
    #[must_use]
    pub fn from_plan(plan: &ExperimentPlan) -> Self {
        Self {
            duration_ns: Some((plan.duration_s * 1e9).round() as u64),
            blocks: Some((plan.blocks_min, plan.blocks_max)),
            metric: plan.metrics.first().map(|metric| metric.name.clone()),
            quick: false,
            seed: plan.seed,
            parameters: plan.parameters.clone().into_iter().collect(),
            // What the plan does not have was switched off, or had no bound in its version.
            discard: BOUND_COVARIATES
                .iter()
                .map(|(_, name)| ((*name).to_owned(), plan.discard.get(*name).copied()))
                .collect(),
            reruns_max_fraction: Some(plan.reruns_max_fraction),
            was_accepted: true,
            left_out: Some(plan.left_out.clone()),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentFile {
    plan: ExperimentPlan,
    setups: BTreeMap<(String, String), LabSetup>,
}

impl ExperimentFile {
    /// Parses the text of a file. `name` is the file's name, for problems and for an experiment
    /// without a name of its own; `metrics` are all metrics that can be measured; `checks` are
    /// those of the environment to run it in, if it is to be run.
    ///
    /// # Errors
    /// All problems of the file, in its order, then the problems of the options.
    pub fn parse_with_checks(
        name: &str,
        text: &str,
        options: &ExperimentOptions,
        metrics: &[ExperimentMetric],
        checks: Option<&EnvironmentChecks<'_>>,
    ) -> Result<Self, Vec<InputProblem>> {
        if text.len() > FILE_BYTES_MAX {
            let reason = format!("it is longer than {FILE_BYTES_MAX} bytes");
            return Err(vec![InputProblem::new(name, reason)]);
        }
        let mut problems = Problems::default();
        let (document, is_valid) = parse_document(text, &mut problems);
        if !is_valid {
            return Err(problems.into_input_problems(name, text));
        }
        let mut parts = FileParts::split(&document, &mut problems);
        let mut beside = parts.set_parameters(&options.parameters);
        let rule = LeaveOutRule::new(options.left_out.as_deref(), checks);
        let arms = variants::read_variants(VariantAxis::Arms, &parts, &rule, &mut problems);
        let mut loads = variants::read_variants(VariantAxis::Loads, &parts, &rule, &mut problems);
        beside.extend(variants::ineffective_parameters(&options.parameters, &arms, &loads));
        let mut cells = ExperimentCells::read(&parts, (&arms, &loads), text, checks, &mut problems);
        let left_out = left_out::remove_left_out(&mut loads, &mut problems);
        let input = MeasureInput::new(options, metrics, &cells, checks);
        check_measure_of_a_fleet(&parts, &cells, &mut problems);
        let (plan, wrong) = measure::read_plan(&parts, &input, &mut problems);
        beside.extend(wrong);
        let baseline = variants::baseline_index(&parts, &arms, &mut problems);
        let mut all_problems = problems.into_input_problems(name, text);
        all_problems.extend(beside);
        if !all_problems.is_empty() {
            return Err(all_problems);
        }
        let plan = ExperimentPlan {
            name: parts.name(name),
            title: fill::display_text(&parts.title(name), &parts.base),
            file: text.to_owned(),
            parameters: options.parameters.iter().cloned().collect_map(),
            baseline: arms[baseline].name.clone(),
            arms: arm_plans(&parts, &arms, baseline),
            loads: load_plans(&parts, &arms, &loads, &cells),
            left_out,
            warm_up_s: cells.warm_up_ns.map(|ns| ns as f64 / 1e9),
            ..plan
        };
        let is_quick = options.quick && options.blocks.is_none();
        let (blocks_min, blocks_max) =
            if is_quick { BLOCKS_QUICK } else { (plan.blocks_min, plan.blocks_max) };
        let plan = ExperimentPlan { blocks_min, blocks_max, ..plan };
        cells.setups.values_mut().for_each(|setup| setup.profile = plan.profile);
        Ok(Self { plan, setups: cells.setups })
    }

    /// Returns the plan, which is fixed before the first trial.
    pub fn plan(&self) -> &ExperimentPlan {
        &self.plan
    }

    /// Returns the setup of a trial of an arm under a load. The baseline's second arm has the setup
    /// of the baseline. Calls are not counted in it, so that judged trials are not slowed down;
    /// separate trials count them ([`ExperimentPlan::calls`]).
    pub fn setup(&self, arm: &str, load: &str) -> Option<&LabSetup> {
        let arm = self.plan.arm(arm)?;
        let runs = arm.repeats.as_ref().unwrap_or(&arm.name);
        self.setups.get(&(runs.clone(), load.to_owned()))
    }
}

/// Reports what only trials on this machine can measure.
fn check_measure_of_a_fleet(parts: &FileParts<'_>, cells: &ExperimentCells, problems: &mut Problems) {
    let has_machines = cells.setups.values().any(|setup| !setup.machines.is_empty());
    let Some(measure) = parts.experiment.table("measure").filter(|_| has_machines) else { return };
    for (key, is_set) in [("profile", measure.is_set("profile")), ("calls", measure.text("calls").is_some())]
    {
        if is_set {
            let text = format!("'measure.{key}' is of one machine: agents of a fleet do not have it");
            problems.add_error(measure.offset_of(key), text);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub doc: String,
    /// Text of the parameter; `None` if it has to be given.
    pub value: Option<String>,
}

/// Returns the parameters of a file, in its order. [`ExperimentFile`] reports the problems of the file.
pub fn parameters(text: &str) -> Vec<Parameter> {
    let mut problems = Problems::default();
    let (document, _) = parse_document(text, &mut problems);
    FileParts::split(&document, &mut problems).declared_parameters()
}

/// Returns whether a file has arms, by hand or by a factor. [`ExperimentFile`] reports the problems of the
/// file.
pub fn declares_arms(text: &str) -> bool {
    let mut problems = Problems::default();
    let (document, _) = parse_document(text, &mut problems);
    let parts = FileParts::split(&document, &mut problems);
    let is_arm_factor = |factor: &NamedTable| factor.values.text("of") != Some("loads");
    parts.arms.is_some() || parts.experiment.tables("factors").iter().any(is_arm_factor)
}

/// Returns the number of comparisons with the baseline that are tested together: every other arm
/// under every load.
pub fn tested_comparisons(plan: &ExperimentPlan) -> usize {
    let is_tested = |arm: &&Arm| arm.repeats.is_none() && arm.name != plan.baseline;
    plan.arms.iter().filter(is_tested).count() * plan.loads.len()
}

/// Returns the differences between an arm and the baseline: keys, single flags of the load, and
/// separate places of a file. With more than one, none of them can be named as the cause.
pub fn changed_keys(plan: &ExperimentPlan, arm: &Arm) -> Vec<String> {
    let Some(baseline) = plan.arm(&plan.baseline) else { return Vec::new() };
    let keys = baseline.changes.keys().chain(arm.changes.keys());
    let mut keys: Vec<String> =
        keys.filter(|key| baseline.changes.get(*key) != arm.changes.get(*key)).cloned().collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Returns the baseline, the baseline again, and the others in the order of the file.
fn arm_plans(parts: &FileParts<'_>, arms: &[Variant<'_>], baseline: usize) -> Vec<Arm> {
    let plan = |arm: &Variant<'_>| {
        let (title, changes) = title_and_changes(parts, arm, split_changes);
        Arm { name: arm.name.clone(), title, changes, repeats: None, levels: arm.levels.clone() }
    };
    let first = plan(&arms[baseline]);
    let repeat = Arm {
        name: format!("{}{REPEAT_SUFFIX}", first.name),
        title: format!("{}, repeated", first.title),
        repeats: Some(first.name.clone()),
        ..first.clone()
    };
    let others = arms.iter().enumerate().filter(|(at, _)| *at != baseline);
    [first, repeat].into_iter().chain(others.map(|(_, arm)| plan(arm))).collect()
}

fn load_plans(
    parts: &FileParts<'_>,
    arms: &[Variant<'_>],
    loads: &[Variant<'_>],
    cells: &ExperimentCells,
) -> Vec<LoadPlan> {
    let plan = |load: &Variant<'_>| {
        let (title, changes) = title_and_changes(parts, load, changes_by_key);
        let title = match load.name == ONLY_LOAD && load.patches.is_empty() {
            true => cells.load_flags(arms),
            false => title,
        };
        LoadPlan { name: load.name.clone(), title, changes, levels: load.levels.clone() }
    };
    loads.iter().map(plan).collect()
}

type KeyPaths = BTreeMap<String, KeyValue>;

/// Returns the title and changes of an arm or a load, with its parameters put in. Changes are found
/// before that: a parameter is one change, however often it is used.
fn title_and_changes(
    parts: &FileParts<'_>,
    variant: &Variant<'_>,
    changes: fn(&KeyPaths, &KeyPaths) -> BTreeMap<String, String>,
) -> (String, BTreeMap<String, String>) {
    let merged = variant.applied_to(&parts.base);
    let mut changes = changes(&key_values(&parts.base), &key_values(&merged));
    changes.values_mut().for_each(|value| *value = fill::display_text(value, &merged));
    (fill::display_text(&variant.title, &merged), changes)
}
