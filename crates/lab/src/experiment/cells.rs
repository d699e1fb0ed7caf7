//! Every arm under every load: what its trials run, and what is wrong with it.
//!
//! A problem of all cells is told once; one of some is told with their names.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::around::Around;
use super::file::{PARAMETERS, Parts};
use super::fill::{self, Filler};
use super::variants::Variant;
use crate::scenario::placeholders::{DURATION, stands_in};
use crate::scenario::read::Problems;
use crate::scenario::setup::{Setup, Tool};

/// Arms times loads: a block of more would take the better part of an hour, in which a machine drifts.
const CELLS_MAX: usize = 128;

/// What trials run, by arm and load.
#[derive(Debug, Default)]
pub(super) struct Cells {
    pub(super) setups: BTreeMap<(String, String), Setup>,
    /// How long each load runs before; none: it is to be found out.
    pub(super) warm_up_ns: Option<u64>,
}

impl Cells {
    /// Lays every arm and every load over the file, and reads it.
    pub(super) fn read(
        parts: &Parts<'_>,
        (arms, loads): (&[Variant<'_>], &[Variant<'_>]),
        text: &str,
        around: Option<&Around<'_>>,
        problems: &mut Problems,
    ) -> Self {
        let mut cells = Self::default();
        if arms.is_empty() || loads.is_empty() {
            return cells;
        }
        if arms.len() * loads.len() > CELLS_MAX {
            let (arms, count) = (arms.len(), loads.len());
            let at = loads.first().map_or(0, |load| load.at);
            let text = format!("{arms} arms under {count} loads are over {CELLS_MAX} combinations");
            problems.add(at, text);
            return cells;
        }
        let mut notes = Notes::default();
        let mut warm_ups = BTreeMap::new();
        let mut used = BTreeSet::new();
        for (row, arm) in arms.iter().enumerate() {
            for (column, load) in loads.iter().enumerate() {
                let mut cell = Cell::read(parts, (arm, load), text, around);
                used.append(&mut cell.used);
                let (warm_up, at) = cell.warm_up;
                warm_ups.entry(warm_up).or_insert(at);
                notes.add((row, column), cell.problems);
                cells.setups.insert((arm.name.clone(), load.name.clone()), cell.setup);
            }
        }
        notes.tell(arms, loads, problems);
        for (name, at) in parts.parameters.iter().filter(|(name, _)| !used.contains(*name)) {
            problems.add(*at, format!("nothing has '{{{name}}}' in it"));
        }
        if warm_ups.len() > 1 {
            let at = warm_ups.values().max().copied().unwrap_or_default();
            let text = "the warm-up has to be the same for all: what was warmed up for longer \
                        is not in the same state";
            problems.add(at, text);
        }
        cells.warm_up_ns = warm_ups.into_keys().next().flatten();
        cells
    }

    /// Whether a load has a rate of its own: then more responses per second are none of the subject's
    /// doing.
    pub(super) fn have_rate(&self) -> bool {
        self.setups.values().any(Setup::has_rate)
    }

    /// What the only load is: its flags, or those of each arm where arms differ in them or in their tool.
    pub(super) fn flags(&self, arms: &[Variant<'_>]) -> String {
        let mut told: Vec<(String, Vec<&str>)> = Vec::new();
        for arm in arms {
            let of_arm = self.setups.iter().find(|((name, _), _)| *name == arm.name);
            let Some((_, setup)) = of_arm else { continue };
            let load = (setup.tool, setup.load.join(" "));
            let other = |setup: &Setup| setup.tool != load.0;
            let text = match self.setups.values().any(other) {
                true => format!("{} {}", load.0.name(), load.1),
                false => load.1,
            };
            match told.iter_mut().find(|(other, _)| *other == text) {
                Some((_, arms)) => arms.push(&arm.name),
                None => told.push((text, vec![&arm.name])),
            }
        }
        match told.as_slice() {
            [] => String::new(),
            [(text, _)] => text.clone(),
            several => {
                let each =
                    several.iter().map(|(text, arms)| format!("{}: {text}", arms.join(", ")));
                format!("differs by arm; {}", each.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

/// One arm under one load.
struct Cell {
    setup: Setup,
    used: BTreeSet<String>,
    problems: Vec<(usize, String)>,
    /// How long the load runs before, if the file says so, and where.
    warm_up: (Option<u64>, usize),
}

impl Cell {
    fn read(
        parts: &Parts<'_>,
        (arm, load): (&Variant<'_>, &Variant<'_>),
        text: &str,
        around: Option<&Around<'_>>,
    ) -> Self {
        let mut whole = load.over(&arm.over(&parts.base));
        let given = whole.remove(PARAMETERS);
        let parameters =
            fill::parameters(given.as_ref().and_then(|given| given.get_ref().as_table()));
        let declared = parts.parameters.keys();
        let without = declared.filter(|name| !parameters.contains_key(*name)).cloned().collect();
        let mut filler = Filler::new(text, parameters, without);
        filler.table(&mut whole, "");
        let mut found = Problems::default();
        let setup = Setup::of(&whole, &mut found);
        let flags = find(&whole, "flags");
        if let Some(flags) = flags.filter(|_| lacks_duration(&setup)) {
            let text = "'load.flags' has no '{duration}', nor a number of requests (-n): its length \
                        would be the tool's own";
            found.add(flags.span().start, text);
        }
        let warm_up = find(&whole, "warm-up");
        let at = warm_up.map_or(0, |value| value.span().start);
        let is_given = warm_up.is_some_and(|value| value.get_ref().as_str() != Some("auto"));
        let mut problems = filler.problems.into_found();
        // What is not known yet is not wrong yet.
        let waits = |at: &usize| filler.waiting.contains(at);
        problems.extend(found.into_found().into_iter().filter(|(at, _)| !waits(at)));
        for name in filler.used.intersection(&filler.without) {
            let at = parts.parameters.get(name).copied().unwrap_or_default();
            problems.push((at, format!("'{name}' has no text: give it with --set {name}=TEXT")));
        }
        problems.extend(both(arm, load));
        problems.extend(around.into_iter().flat_map(|around| around.problems(&whole, &setup)));
        let warm_up = (is_given.then_some(setup.warm_up_ns), at);
        Self { setup, used: filler.used, problems, warm_up }
    }
}

/// A value of `[load]`.
fn find<'a, 't>(whole: &'a DeTable<'t>, key: &str) -> Option<&'a Spanned<DeValue<'t>>> {
    whole.get("load").and_then(|load| load.get_ref().as_table()).and_then(|load| load.get(key))
}

/// Of other tools than weir's it is known how they are told.
fn lacks_duration(setup: &Setup) -> bool {
    let says = |word: &String| {
        let count = word.strip_prefix("-n").unwrap_or("x");
        stands_in(DURATION, word)
            || word.starts_with("--requests")
            || count.bytes().all(|byte| byte.is_ascii_digit())
    };
    setup.tool == Tool::Weir && !setup.load.is_empty() && !setup.load.iter().any(says)
}

/// What both an arm and a load set: the arm would not be what it says.
fn both(arm: &Variant<'_>, load: &Variant<'_>) -> Vec<(usize, String)> {
    let of_arm = arm.keys();
    let keys = load.keys().into_iter().filter(|(key, _)| of_arm.contains_key(key));
    let text = |key| format!("'{key}' is set by an arm too, and the load would take its place");
    keys.map(|(key, at)| (at, text(key))).collect()
}

/// Problems, and the cells that have each.
#[derive(Default)]
struct Notes(BTreeMap<(usize, String), BTreeSet<(usize, usize)>>);

impl Notes {
    fn add(&mut self, cell: (usize, usize), found: Vec<(usize, String)>) {
        for problem in found {
            self.0.entry(problem).or_default().insert(cell);
        }
    }

    fn tell(self, arms: &[Variant<'_>], loads: &[Variant<'_>], problems: &mut Problems) {
        for ((at, text), cells) in self.0 {
            match whose(&cells, arms, loads) {
                Some(whose) => problems.add(at, format!("{text} ({whose})")),
                None => problems.add(at, text),
            }
        }
    }
}

/// Whose problem it is; none when it is everybody's.
fn whose(
    cells: &BTreeSet<(usize, usize)>,
    arms: &[Variant<'_>],
    loads: &[Variant<'_>],
) -> Option<String> {
    if cells.len() == arms.len() * loads.len() {
        return None;
    }
    let rows: BTreeSet<usize> = cells.iter().map(|(row, _)| *row).collect();
    let columns: BTreeSet<usize> = cells.iter().map(|(_, column)| *column).collect();
    let named = |what: &str, of: &BTreeSet<usize>, all: &[Variant<'_>]| {
        let names: Vec<String> = of.iter().map(|at| format!("'{}'", all[*at].name)).collect();
        let plural = if names.len() == 1 { "" } else { "s" };
        format!("{what}{plural} {}", names.join(", "))
    };
    if cells.len() == rows.len() * loads.len() {
        return Some(named("arm", &rows, arms));
    }
    if cells.len() == columns.len() * arms.len() {
        return Some(named("load", &columns, loads));
    }
    Some(format!("{} under {}", named("arm", &rows, arms), named("load", &columns, loads)))
}
