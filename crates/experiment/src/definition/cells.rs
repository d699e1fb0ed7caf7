//! Cells: every arm under every load, with the setup of its trials and its problems.
//!
//! A problem of all cells is reported once; a problem of some cells is reported with their names.

use std::collections::{BTreeMap, BTreeSet};

use record::document::{Located, Problems};
use record::sorted::CollectSorted;
use record::units::format_plural;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment_checks::EnvironmentChecks;
use super::file::{FileParts, PARAMETERS_KEY};
use super::fill::{self, ParameterFiller};
use super::variants::Variant;
use crate::scenario::placeholders::{DURATION_PLACEHOLDER, contains};
use crate::scenario::setup::{LabSetup, LoadTool};

/// Maximum number of cells (arms times loads). A larger block would take the better part of an
/// hour, in which a machine drifts.
const CELLS_MAX: usize = 128;

/// Setups of trials, by arm and load.
#[derive(Debug, Default)]
pub(super) struct ExperimentCells {
    pub(super) setups: BTreeMap<(String, String), LabSetup>,
    /// Length of the warm-up of each load; `None` if it has to be determined.
    pub(super) warm_up_ns: Option<u64>,
}

impl ExperimentCells {
    /// Applies every arm and every load to the file, and reads the results.
    pub(super) fn read(
        parts: &FileParts<'_>,
        (arms, loads): (&[Variant<'_>], &[Variant<'_>]),
        text: &str,
        checks: Option<&EnvironmentChecks<'_>>,
        problems: &mut Problems,
    ) -> Self {
        let mut cells = Self::default();
        if arms.is_empty() || loads.is_empty() {
            return cells;
        }
        if arms.len() * loads.len() > CELLS_MAX {
            let (arms, count) =
                (format_plural(arms.len() as u64, "arm"), format_plural(loads.len() as u64, "load"));
            let at = loads.first().map_or(0, |load| load.offset);
            let text = format!("{arms} under {count} are over {CELLS_MAX} combinations");
            problems.add_error(at, text);
            return cells;
        }
        let mut notes = ProblemsByCell::default();
        let mut warm_ups = BTreeMap::new();
        let mut used = BTreeSet::new();
        for (row, arm) in arms.iter().enumerate() {
            for (column, load) in loads.iter().enumerate() {
                // The environment matters only to what runs in it.
                let checks = checks.filter(|_| load.left_out.is_none());
                let mut cell = ParsedCell::read(parts, (arm, load), text, checks);
                used.append(&mut cell.used);
                let (warm_up, at) = cell.warm_up;
                warm_ups.entry(warm_up).or_insert(at);
                notes.add((row, column), cell.problems);
                if load.left_out.is_none() {
                    cells.setups.insert((arm.name.clone(), load.name.clone()), cell.setup);
                }
            }
        }
        notes.report(arms, loads, problems);
        for (name, at) in parts.parameters.iter().filter(|(name, _)| !used.contains(*name)) {
            problems.add_error(*at, format!("'{{{name}}}' is not used in the file"));
        }
        if warm_ups.len() > 1 {
            let at = warm_ups.values().max().copied().unwrap_or_default();
            let text = "all arms and loads need the same warm-up: a longer one leads to another \
                        state";
            problems.add_error(at, text);
        }
        cells.warm_up_ns = warm_ups.into_keys().next().flatten();
        cells
    }

    /// Returns whether a load has a rate of its own. The subject then does not determine the
    /// responses per second.
    pub(super) fn has_rate(&self) -> bool {
        self.setups.values().any(LabSetup::has_rate)
    }

    /// Returns the flags of the only load; one entry for each arm if arms differ in flags or tool.
    pub(super) fn load_flags(&self, arms: &[Variant<'_>]) -> String {
        let mut texts: Vec<(String, Vec<&str>)> = Vec::new();
        for arm in arms {
            let arm_entry = self.setups.iter().find(|((name, _), _)| *name == arm.name);
            let Some((_, setup)) = arm_entry else { continue };
            let load = (setup.tool, setup.load.join(" "));
            let other = |setup: &LabSetup| setup.tool != load.0;
            let text = match self.setups.values().any(other) {
                true => format!("{} {}", load.0.name(), load.1),
                false => load.1,
            };
            match texts.iter_mut().find(|(other, _)| *other == text) {
                Some((_, arms)) => arms.push(&arm.name),
                None => texts.push((text, vec![&arm.name])),
            }
        }
        match texts.as_slice() {
            [] => String::new(),
            [(text, _)] => text.clone(),
            several => {
                let each = several.iter().map(|(text, arms)| format!("{}: {text}", arms.join(", ")));
                format!("differs by arm; {}", each.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

/// One arm under one load.
struct ParsedCell {
    setup: LabSetup,
    used: BTreeSet<String>,
    problems: Vec<(usize, String)>,
    /// Length of the warm-up, if the file sets it, and its position.
    warm_up: (Option<u64>, usize),
}

impl ParsedCell {
    fn read(
        parts: &FileParts<'_>,
        (arm, load): (&Variant<'_>, &Variant<'_>),
        text: &str,
        checks: Option<&EnvironmentChecks<'_>>,
    ) -> Self {
        let mut merged = load.applied_to(&arm.applied_to(&parts.base));
        let given = merged.remove(PARAMETERS_KEY);
        let parameters = fill::parameter_spans(given.as_ref().and_then(|given| given.get_ref().as_table()));
        let declared = parts.parameters.keys();
        let without = declared.filter(|name| !parameters.contains_key(*name)).cloned().collect();
        let mut filler = ParameterFiller::new(text, parameters, without);
        filler.fill_table(&mut merged, "");
        let mut cell_problems = Problems::default();
        let setup = LabSetup::from_document(&merged, &mut cell_problems);
        let flags = load_value(&merged, "flags");
        if let Some(flags) = flags.filter(|_| lacks_duration(&setup)) {
            let text = "'load.flags' has neither '{duration}' nor a number of requests (-n): the \
                        tool would use its default length";
            cell_problems.add_error(flags.span().start, text);
        }
        let warm_up = load_value(&merged, "warm-up");
        let at = warm_up.map_or(0, |value| value.span().start);
        let is_given = warm_up.is_some_and(|value| value.get_ref().as_str() != Some("auto"));
        let offset_and_text = |error: Located<String>| (error.offset, error.value);
        let mut problems: Vec<_> = filler.problems.into_errors().into_iter().map(offset_and_text).collect();
        // A value that is not known yet is not wrong yet.
        let waits = |at: &usize| filler.pending_values.contains(at);
        let cell_problems = cell_problems.into_errors().into_iter().map(offset_and_text);
        problems.extend(cell_problems.filter(|(at, _)| !waits(at)));
        for name in filler.used.intersection(&filler.without_text) {
            let at = parts.parameters.get(name).copied().unwrap_or_default();
            problems.push((at, format!("'{name}' has no text: give it with --set {name}=TEXT")));
        }
        problems.extend(keys_set_twice(arm, load));
        problems.extend(checks.into_iter().flat_map(|around| around.cell_problems(&merged, &setup)));
        let warm_up = (is_given.then_some(setup.warm_up_ns), at);
        Self { setup, used: filler.used, problems, warm_up }
    }
}

fn load_value<'a, 't>(table: &'a DeTable<'t>, key: &str) -> Option<&'a Spanned<DeValue<'t>>> {
    table.get("load").and_then(|load| load.get_ref().as_table()).and_then(|load| load.get(key))
}

/// Returns whether a load has no duration. Other tools than weir get theirs in a known way.
fn lacks_duration(setup: &LabSetup) -> bool {
    let says = |word: &String| {
        let count = word.strip_prefix("-n").unwrap_or("x");
        contains(DURATION_PLACEHOLDER, word)
            || word.starts_with("--requests")
            || count.bytes().all(|byte| byte.is_ascii_digit())
    };
    setup.tool == LoadTool::Weir && !setup.load.is_empty() && !setup.load.iter().any(says)
}

/// Returns a problem for each key that both an arm and a load set: the load would override the arm.
fn keys_set_twice(arm: &Variant<'_>, load: &Variant<'_>) -> Vec<(usize, String)> {
    let arm_keys = arm.key_offsets();
    let keys = load.key_offsets().into_iter().filter(|(key, _)| arm_keys.contains_key(key));
    let text = |key| format!("'{key}' is also set by an arm, and the load would override it");
    keys.map(|(key, at)| (at, text(key))).collect()
}

#[derive(Default)]
struct ProblemsByCell(BTreeMap<(usize, String), BTreeSet<(usize, usize)>>);

impl ProblemsByCell {
    fn add(&mut self, cell: (usize, usize), cell_problems: Vec<(usize, String)>) {
        for problem in cell_problems {
            self.0.entry(problem).or_default().insert(cell);
        }
    }

    fn report(self, arms: &[Variant<'_>], loads: &[Variant<'_>], problems: &mut Problems) {
        for ((at, text), cells) in self.0 {
            match affected_variants(&cells, arms, loads) {
                Some(affected) => problems.add_error(at, format!("{text} ({affected})")),
                None => problems.add_error(at, text),
            }
        }
    }
}

/// Returns the arms or loads that have a problem; `None` if all cells have it.
fn affected_variants(
    cells: &BTreeSet<(usize, usize)>,
    arms: &[Variant<'_>],
    loads: &[Variant<'_>],
) -> Option<String> {
    if cells.len() == arms.len() * loads.len() {
        return None;
    }
    let rows: BTreeSet<usize> = cells.iter().map(|(row, _)| *row).collect_set();
    let columns: BTreeSet<usize> = cells.iter().map(|(_, column)| *column).collect_set();
    let named = |label: &str, indices: &BTreeSet<usize>, all: &[Variant<'_>]| {
        let names: Vec<String> = indices.iter().map(|at| format!("'{}'", all[*at].name)).collect();
        let plural = if names.len() == 1 { "" } else { "s" };
        format!("{label}{plural} {}", names.join(", "))
    };
    if cells.len() == rows.len() * loads.len() {
        return Some(named("arm", &rows, arms));
    }
    if cells.len() == columns.len() * arms.len() {
        return Some(named("load", &columns, loads));
    }
    Some(format!("{} under {}", named("arm", &rows, arms), named("load", &columns, loads)))
}
