//! What differs between the arms, and what does not: what each has in place of the file's own values,
//! the programs as they were run, settings of the kernel that were not the same everywhere, what was
//! fixed before the first trial. Not for the machine, which is the same for all: the page lists it.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Experiment, Plan};
use record::facts::HostLimits;

use super::typical::{Typical, typical};
use super::{Cell, Chart, Part, Table};
use crate::engine::discard;
use crate::report::Raw;
use crate::report::csv::Figures;
use crate::report::svg::shortened;
use crate::words;

/// Letters of a value: longer ones stand in the records.
const LETTERS: usize = 300;
/// Rows of a table at most.
const ROWS_MAX: usize = 200;
/// Arms or loads that have a column at most; the figures have them all.
const COLUMNS_MAX: usize = 8;
/// What stands where an arm has the file's own value.
const AS_IN_FILE: &str = "as in the file";

/// The chart: tables.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let plan = &experiment.plan;
    if plan.arms.is_empty() {
        return Vec::new();
    }
    let caption = "Only what differs between the arms may explain a difference between them: where \
                   more than one thing does, nobody can say which of them it was.";
    let columns = ["about", "name", "key", "value"];
    let title = "What differs between the arms";
    let mut chart = Chart::new("environment", title, caption, Figures::new(&columns));
    let arms = plan.arms.iter().filter(|arm| arm.again.is_none());
    let arms: Vec<Side<'_>> = arms.map(|arm| (arm.name.as_str(), &arm.changes)).collect();
    let loads: Vec<Side<'_>> =
        plan.loads.iter().map(|load| (load.name.as_str(), &load.changes)).collect();
    for (about, heading, sides) in [("arm", "Arms", &arms), ("load", "Loads", &loads)] {
        for (name, changes) in sides {
            changes
                .iter()
                .for_each(|(key, value)| note(&mut chart.figures, [about, name, key, value]));
        }
        if let Some(table) = differences(sides, AS_IN_FILE) {
            chart.parts.push(Part::Heading(heading.to_owned()));
            chart.parts.push(Part::Table(table));
        }
        if sides.len() > COLUMNS_MAX {
            chart
                .notes
                .push(format!("{} {about}s are only in the figures.", sides.len() - COLUMNS_MAX));
        }
    }
    programs(&mut chart, experiment, raw);
    let fixed = fixed(experiment);
    for (key, value) in &fixed {
        note(&mut chart.figures, ["fixed", "", key, value]);
    }
    chart.parts.push(Part::Heading("The same for all, fixed before the first trial".to_owned()));
    chart.parts.push(Part::Table(pairs("What", &fixed)));
    vec![chart]
}

fn note(figures: &mut Figures, cells: [&str; 4]) {
    figures.row(cells.map(|cell| shortened(cell, LETTERS)).to_vec());
}

/// Something with a name, and its values by key.
type Side<'a> = (&'a str, &'a BTreeMap<String, String>);

/// A row for each key that any side has, a column for each side; none where there is nothing.
fn differences(sides: &[Side<'_>], otherwise: &str) -> Option<Table> {
    let sides = &sides[..sides.len().min(COLUMNS_MAX)];
    let keys: BTreeSet<&String> = sides.iter().flat_map(|(_, values)| values.keys()).collect();
    if keys.is_empty() {
        return None;
    }
    let mut columns = vec!["Key".to_owned()];
    columns.extend(sides.iter().map(|(name, _)| (*name).to_owned()));
    let row = |key: &String| {
        let mut cells = vec![Cell::words(key.clone()).class("mono")];
        cells.extend(sides.iter().map(|(_, values)| match values.get(key) {
            Some(value) => Cell::words(shortened(value, LETTERS)).class("mono"),
            None => Cell::words(otherwise).class("muted"),
        }));
        cells
    };
    Some(Table { columns, rows: keys.into_iter().take(ROWS_MAX).map(row).collect() })
}

/// What ran in the typical trials, where it differs between arms or loads; settings that differ.
fn programs(chart: &mut Chart, experiment: &Experiment, raw: &dyn Raw) {
    let found = typical(experiment, raw);
    let trials: Vec<&Typical<'_>> = found.groups.iter().flat_map(|group| &group.trials).collect();
    let several = super::several_loads(&experiment.plan);
    let name = |one: &Typical<'_>| match several {
        true => format!("{}, {}", one.arm(), one.line.place.load),
        false => one.arm().to_owned(),
    };
    let names: Vec<String> = trials.iter().map(|one| name(one)).collect();
    let commands: Vec<BTreeMap<String, String>> = trials.iter().map(|one| commands(one)).collect();
    let settings: Vec<BTreeMap<String, String>> = trials.iter().map(|one| settings(one)).collect();
    for (name, values) in names.iter().zip(&commands) {
        for (key, value) in values {
            note(&mut chart.figures, ["command", name, key, value]);
        }
    }
    if let Some(table) = what_ran(&names, &commands) {
        chart.parts.push(Part::Heading("Programs".to_owned()));
        chart.parts.push(Part::Table(table));
    }
    let differing = only_differing(&settings);
    let sides: Vec<Side<'_>> = names.iter().map(String::as_str).zip(&differing).collect();
    if let Some(table) = differences(&sides, "not told") {
        chart.parts.push(Part::Heading("Settings of the kernel that differ".to_owned()));
        chart.parts.push(Part::Table(table));
        chart.notes.push(
            "Settings of the kernel differ between trials: see whether an arm means to set them."
                .to_owned(),
        );
    }
}

fn commands(one: &Typical<'_>) -> BTreeMap<String, String> {
    let mut commands = one.trial.commands.clone();
    let driver = &one.trial.driver;
    let version = format!("{} {}", driver.program, driver.version);
    if !version.trim().is_empty() {
        commands.insert("driver's version".to_owned(), version.trim().to_owned());
    }
    commands
}

fn settings(one: &Typical<'_>) -> BTreeMap<String, String> {
    one.observed().flat_map(|seen| seen.settings.clone()).collect()
}

/// A row for each program and each way it was started, with who started it that way.
fn what_ran(names: &[String], commands: &[BTreeMap<String, String>]) -> Option<Table> {
    let mut ways: BTreeMap<(&String, &String), Vec<&str>> = BTreeMap::new();
    for (name, values) in names.iter().zip(commands) {
        for (role, command) in values {
            ways.entry((role, command)).or_default().push(name);
        }
    }
    let row = |((role, command), by): ((&String, &String), Vec<&str>)| {
        let by = if by.len() == names.len() { "all".to_owned() } else { by.join("; ") };
        vec![
            Cell::words(role.clone()),
            Cell::words(shortened(command, LETTERS)).class("mono"),
            Cell::words(shortened(&by, LETTERS)),
        ]
    };
    let rows: Vec<Vec<Cell>> = ways.into_iter().take(ROWS_MAX).map(row).collect();
    let columns = ["Program", "As it was run", "In"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(Table { columns, rows })
}

/// Only the keys whose values are not the same everywhere.
fn only_differing(sides: &[BTreeMap<String, String>]) -> Vec<BTreeMap<String, String>> {
    let Some(first) = sides.first() else { return Vec::new() };
    let differs = |key: &String| sides.iter().any(|side| side.get(key) != first.get(key));
    let of = |side: &BTreeMap<String, String>| {
        let own = side.iter().filter(|(key, _)| differs(key));
        own.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    sides.iter().map(of).collect()
}

/// What was fixed before, and the limits that all trials had.
fn fixed(experiment: &Experiment) -> Vec<(String, String)> {
    let mut fixed = of_plan(&experiment.plan);
    fixed.extend(of_limits(&experiment.host.limits));
    let weir = format!("{} ({})", experiment.weir.version, experiment.weir.commit);
    fixed.push(("weir".to_owned(), weir));
    fixed.retain(|(_, value)| !value.trim().is_empty());
    fixed
}

fn of_limits(limits: &HostLimits) -> Vec<(String, String)> {
    let ports = limits.port_range.map(|(first, last)| format!("{first} to {last}"));
    let limits = [
        ("local ports", ports),
        ("descriptors", Some(limits.descriptors.to_string()).filter(|text| text != "0")),
        ("net.core.somaxconn", limits.somaxconn.map(|most| most.to_string())),
    ];
    limits.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn of_plan(plan: &Plan) -> Vec<(String, String)> {
    let warm_up = plan.warm_up_s.map_or_else(
        || "as long as pilots found that it takes".to_owned(),
        |seconds| words::value(seconds, "s"),
    );
    let facts = [
        ("length of each load", words::value(plan.duration_s, "s")),
        ("warm-up before it", warm_up),
        ("blocks", words::range((plan.blocks_min, plan.blocks_max))),
        ("smallest effect that matters", words::bound(plan.effect)),
        ("confidence of intervals", words::bound(plan.confidence)),
        ("a trial is discarded beyond", discard::said(&plan.discard).join("; ")),
        ("seed of the order and of resampling", plan.seed.to_string()),
    ];
    facts.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

fn pairs(what: &str, facts: &[(String, String)]) -> Table {
    let row = |(key, value): &(String, String)| {
        vec![Cell::words(key.clone()), Cell::words(shortened(value, LETTERS)).class("mono")]
    };
    Table {
        columns: vec![what.to_owned(), "Value".to_owned()],
        rows: facts.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::csv::parse;
    use crate::report::sample::{ARMS, NoRaw, sample};

    fn tables(chart: &Chart) -> Vec<(&str, &Table)> {
        let mut tables = Vec::new();
        let mut heading = "";
        for part in &chart.parts {
            match part {
                Part::Heading(text) => heading = text,
                Part::Table(table) => tables.push((heading, table)),
                _ => {}
            }
        }
        tables
    }

    #[test]
    fn what_differs_stands_in_a_row_for_each_key() {
        let (experiment, raw) = sample();
        let charts = chart(&experiment, &raw);
        let tables = tables(&charts[0]);
        let headings: Vec<&str> = tables.iter().map(|(heading, _)| *heading).collect();
        assert_eq!(
            headings,
            ["Arms", "Loads", "Programs", "The same for all, fixed before the first trial",]
        );
        for (heading, table) in &tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{heading}");
        }
        assert_eq!(tables[0].1.columns, ["Key", ARMS[0], ARMS[2]]);
        let row = &tables[0].1.rows[0];
        assert_eq!((&*row[0].text, &*row[1].text), ("subject.env.LD_PRELOAD", AS_IN_FILE));
        assert_eq!(tables[2].1.rows[0][2].text, "all");
        let rows = parse(&charts[0].figures.text());
        assert!(
            rows.iter().any(|row| row[..] == ["fixed", "", "smallest effect that matters", "2 %"])
        );
        assert!(rows.iter().any(|row| row[..3] == ["arm", ARMS[2], "subject.env.LD_PRELOAD"]));
    }

    #[test]
    fn settings_that_differ_are_said() {
        let (experiment, mut raw) = sample();
        for trial in raw.trials.values_mut().filter(|trial| trial.place.arm == ARMS[2]) {
            let Some(run) = &mut trial.run else { continue };
            run.observed[0].settings.insert("net.core.somaxconn".to_owned(), "128".to_owned());
        }
        let charts = chart(&experiment, &raw);
        let tables = tables(&charts[0]);
        let table = tables.iter().find(|(heading, _)| heading.starts_with("Settings")).unwrap().1;
        assert_eq!(table.rows.len(), 1);
        assert_eq!((&*table.rows[0][1].text, &*table.rows[0][2].text), ("4096", "128"));
    }

    #[test]
    fn nothing_is_nothing_and_much_is_bounded() {
        let (mut experiment, _) = sample();
        assert_eq!(chart(&experiment, &NoRaw).len(), 1);
        let mut arm = experiment.plan.arms[2].clone();
        let long = "x".repeat(2_000);
        arm.changes = (0..300).map(|index| (index.to_string(), long.clone())).collect();
        experiment.plan.arms = vec![arm; 50];
        let charts = chart(&experiment, &NoRaw);
        for (heading, table) in tables(&charts[0]) {
            assert!(
                table.rows.len() <= ROWS_MAX && table.columns.len() <= COLUMNS_MAX + 1,
                "{heading}"
            );
            assert!(table.rows.iter().flatten().all(|cell| cell.text.chars().count() <= LETTERS));
        }
        experiment.plan.arms.clear();
        assert!(chart(&experiment, &NoRaw).is_empty());
    }
}
