//! Differences and common settings of the arms: values that replace the file's own, command lines
//! of the processes, kernel settings that differed, and settings that were fixed before the first
//! trial. The page lists the machine, which is the same for all arms.

use std::collections::{BTreeMap, BTreeSet};

use experiment::engine::discard;
use experiment::format;
use record::experiment::{Experiment, ExperimentPlan};
use record::facts::HostLimits;

use super::typical_trials::{TypicalTrial, typical_trials};
use super::{ChartPart, ChartTable, ReportChart, TableCell};
use crate::TrialRecords;
use crate::data_table::DataTable;
use crate::svg::shortened;

/// Maximum number of letters of a value; the records contain longer ones.
const VALUE_CHARS_MAX: usize = 300;
/// Maximum number of rows of a table.
const ROWS_MAX: usize = 200;
/// Maximum number of arms or loads with a column; the figures have all of them.
const COLUMNS_MAX: usize = 8;
/// Text for an arm with the file's own value.
const FILE_VALUE: &str = "as in the file";

/// Builds the chart: tables.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let plan = &experiment.plan;
    if plan.arms.is_empty() {
        return Vec::new();
    }
    let caption = "Only these differences can explain a difference between the arms. With more than one, \
                   the cause is not known.";
    let columns = ["about", "name", "key", "value"];
    let title = "Differences between the arms";
    let mut chart = ReportChart::new("environment", title, caption, DataTable::new(&columns));
    let arms = plan.arms.iter().filter(|arm| arm.repeats.is_none());
    let arms: Vec<TableSide<'_>> = arms.map(|arm| (arm.name.as_str(), &arm.changes)).collect();
    let loads: Vec<TableSide<'_>> =
        plan.loads.iter().map(|load| (load.name.as_str(), &load.changes)).collect();
    for (about, heading, sides) in [("arm", "Arms", &arms), ("load", "Loads", &loads)] {
        for (name, changes) in sides {
            changes.iter().for_each(|(key, value)| add_rows(&mut chart.data, [about, name, key, value]));
        }
        if let Some(table) = differences(sides, FILE_VALUE) {
            chart.parts.push(ChartPart::Heading(heading.to_owned()));
            chart.parts.push(ChartPart::Table(table));
        }
        if sides.len() > COLUMNS_MAX {
            chart.notes.push(format!("{} {about}s are only in the data.", sides.len() - COLUMNS_MAX));
        }
    }
    add_process_tables(&mut chart, experiment, raw);
    let fixed = fixed_settings(experiment);
    for (key, value) in &fixed {
        add_rows(&mut chart.data, ["fixed", "", key, value]);
    }
    chart.parts.push(ChartPart::Heading("Common settings, fixed before the first trial".to_owned()));
    chart.parts.push(ChartPart::Table(key_value_table("Setting", &fixed)));
    vec![chart]
}

fn add_rows(data: &mut DataTable, cells: [&str; 4]) {
    data.add_row(cells.map(|cell| shortened(cell, VALUE_CHARS_MAX)).to_vec());
}

/// A named side of a table, with its values by key.
type TableSide<'a> = (&'a str, &'a BTreeMap<String, String>);

/// Builds a table with a row for each key of any side and a column for each side; `None` if it
/// would be empty.
fn differences(sides: &[TableSide<'_>], otherwise: &str) -> Option<ChartTable> {
    let sides = &sides[..sides.len().min(COLUMNS_MAX)];
    let keys: BTreeSet<&String> = sides.iter().flat_map(|(_, values)| values.keys()).collect();
    if keys.is_empty() {
        return None;
    }
    let mut columns = vec!["Key".to_owned()];
    columns.extend(sides.iter().map(|(name, _)| (*name).to_owned()));
    let row = |key: &String| {
        let mut cells = vec![TableCell::plain(key.clone()).class("mono")];
        cells.extend(sides.iter().map(|(_, values)| match values.get(key) {
            Some(value) => TableCell::plain(shortened(value, VALUE_CHARS_MAX)).class("mono"),
            None => TableCell::plain(otherwise).class("muted"),
        }));
        cells
    };
    Some(ChartTable { columns, rows: keys.into_iter().take(ROWS_MAX).map(row).collect() })
}

/// Adds a table of the commands that ran in the typical trials, by arm or load, and a table of the
/// kernel settings that differ.
fn add_process_tables(chart: &mut ReportChart, experiment: &Experiment, raw: &dyn TrialRecords) {
    let trial_groups = typical_trials(experiment, raw);
    let trials: Vec<&TypicalTrial<'_>> = trial_groups.groups.iter().flat_map(|group| &group.trials).collect();
    let several = super::has_several_loads(&experiment.plan);
    let name = |one: &TypicalTrial<'_>| match several {
        true => format!("{}, {}", one.arm(), one.line.position.load),
        false => one.arm().to_owned(),
    };
    let names: Vec<String> = trials.iter().map(|one| name(one)).collect();
    let commands: Vec<BTreeMap<String, String>> = trials.iter().map(|one| commands(one)).collect();
    let settings: Vec<BTreeMap<String, String>> = trials.iter().map(|one| settings(one)).collect();
    for (name, values) in names.iter().zip(&commands) {
        for (key, value) in values {
            add_rows(&mut chart.data, ["command", name, key, value]);
        }
    }
    if let Some(table) = command_table(&names, &commands) {
        chart.parts.push(ChartPart::Heading("Commands".to_owned()));
        chart.parts.push(ChartPart::Table(table));
    }
    let differing = differing_keys(&settings);
    let sides: Vec<TableSide<'_>> = names.iter().map(String::as_str).zip(&differing).collect();
    if let Some(table) = differences(&sides, "unknown") {
        chart.parts.push(ChartPart::Heading("Kernel settings that differ".to_owned()));
        chart.parts.push(ChartPart::Table(table));
        chart.notes.push(
            "Kernel settings differ between trials: check that an arm sets them on purpose.".to_owned(),
        );
    }
}

fn commands(one: &TypicalTrial<'_>) -> BTreeMap<String, String> {
    let mut commands = one.trial.commands.clone();
    let driver = &one.trial.driver;
    let version = format!("{} {}", driver.program, driver.version);
    if !version.trim().is_empty() {
        commands.insert("driver version".to_owned(), version.trim().to_owned());
    }
    commands
}

fn settings(one: &TypicalTrial<'_>) -> BTreeMap<String, String> {
    one.observed().flat_map(|observed| observed.settings.clone()).collect()
}

/// Builds a table with a row for each program and command line, with the arms or loads that used
/// it.
fn command_table(names: &[String], commands: &[BTreeMap<String, String>]) -> Option<ChartTable> {
    let mut commands_by_role: BTreeMap<(&String, &String), Vec<&str>> = BTreeMap::new();
    for (name, values) in names.iter().zip(commands) {
        for (role, command) in values {
            commands_by_role.entry((role, command)).or_default().push(name);
        }
    }
    let row = |((role, command), by): ((&String, &String), Vec<&str>)| {
        let by = if by.len() == names.len() { "all".to_owned() } else { by.join("; ") };
        vec![
            TableCell::plain(role.clone()),
            TableCell::plain(shortened(command, VALUE_CHARS_MAX)).class("mono"),
            TableCell::plain(shortened(&by, VALUE_CHARS_MAX)),
        ]
    };
    let rows: Vec<Vec<TableCell>> = commands_by_role.into_iter().take(ROWS_MAX).map(row).collect();
    let columns = ["Process", "Command line", "In"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(ChartTable { columns, rows })
}

/// Returns only the keys whose values differ somewhere.
fn differing_keys(sides: &[BTreeMap<String, String>]) -> Vec<BTreeMap<String, String>> {
    let Some(first) = sides.first() else { return Vec::new() };
    let differs = |key: &String| sides.iter().any(|side| side.get(key) != first.get(key));
    let of = |side: &BTreeMap<String, String>| {
        let own = side.iter().filter(|(key, _)| differs(key));
        own.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    sides.iter().map(of).collect()
}

/// Returns the settings that were fixed in advance, and the limits of all trials.
fn fixed_settings(experiment: &Experiment) -> Vec<(String, String)> {
    let mut fixed = plan_rows(&experiment.plan);
    fixed.extend(limit_rows(&experiment.host.limits));
    let weir = format!("{} ({})", experiment.weir.version, experiment.weir.commit);
    fixed.push(("weir".to_owned(), weir));
    fixed.retain(|(_, value)| !value.trim().is_empty());
    fixed
}

fn limit_rows(limits: &HostLimits) -> Vec<(String, String)> {
    let ports = limits.port_range.map(|(first, last)| format!("{first} to {last}"));
    let limits = [
        ("local ports", ports),
        ("descriptors", Some(limits.descriptors.to_string()).filter(|text| text != "0")),
        ("net.core.somaxconn", limits.somaxconn.map(|max| max.to_string())),
    ];
    limits.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn plan_rows(plan: &ExperimentPlan) -> Vec<(String, String)> {
    let warm_up = plan
        .warm_up_s
        .map_or_else(|| "determined by the pilots".to_owned(), |seconds| format::value(seconds, "s"));
    let facts = [
        ("duration of each load", format::value(plan.duration_s, "s")),
        ("warm-up", warm_up),
        ("blocks", format::int_range((plan.blocks_min, plan.blocks_max))),
        ("smallest effect that matters", format::bound_percent(plan.effect)),
        ("confidence of intervals", format::bound_percent(plan.confidence)),
        ("a trial is discarded above", discard::describe_bounds(&plan.discard).join("; ")),
        ("seed of run order and resampling", plan.seed.to_string()),
    ];
    facts.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

fn key_value_table(heading: &str, facts: &[(String, String)]) -> ChartTable {
    let row = |(key, value): &(String, String)| {
        vec![TableCell::plain(key.clone()), TableCell::plain(shortened(value, VALUE_CHARS_MAX)).class("mono")]
    };
    ChartTable {
        columns: vec![heading.to_owned(), "Value".to_owned()],
        rows: facts.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_table::parse;
    use crate::synthetic::{ARMS, NoRecords, synthetic_experiment};

    fn tables(chart: &ReportChart) -> Vec<(&str, &ChartTable)> {
        let mut tables = Vec::new();
        let mut heading = "";
        for part in &chart.parts {
            match part {
                ChartPart::Heading(text) => heading = text,
                ChartPart::Table(table) => tables.push((heading, table)),
                _ => {}
            }
        }
        tables
    }

    #[test]
    fn differing_keys_have_a_row_each() {
        let (experiment, raw) = synthetic_experiment();
        let charts = chart(&experiment, &raw);
        let tables = tables(&charts[0]);
        let headings: Vec<&str> = tables.iter().map(|(heading, _)| *heading).collect();
        assert_eq!(headings, ["Arms", "Loads", "Commands", "Common settings, fixed before the first trial",]);
        for (heading, table) in &tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{heading}");
        }
        assert_eq!(tables[0].1.columns, ["Key", ARMS[0], ARMS[2]]);
        let row = &tables[0].1.rows[0];
        assert_eq!((&*row[0].text, &*row[1].text), ("subject.env.LD_PRELOAD", FILE_VALUE));
        assert_eq!(tables[2].1.rows[0][2].text, "all");
        let rows = parse(&charts[0].data.to_csv());
        assert!(rows.iter().any(|row| row[..] == ["fixed", "", "smallest effect that matters", "2 %"]));
        assert!(rows.iter().any(|row| row[..3] == ["arm", ARMS[2], "subject.env.LD_PRELOAD"]));
    }

    #[test]
    fn differing_settings_are_listed() {
        let (experiment, mut raw) = synthetic_experiment();
        for trial in raw.trials.values_mut().filter(|trial| trial.position.arm == ARMS[2]) {
            let Some(run) = &mut trial.run else { continue };
            run.observed[0].settings.insert("net.core.somaxconn".to_owned(), "128".to_owned());
        }
        let charts = chart(&experiment, &raw);
        let tables = tables(&charts[0]);
        let table = tables.iter().find(|(heading, _)| heading.starts_with("Kernel settings")).unwrap().1;
        assert_eq!(table.rows.len(), 1);
        assert_eq!((&*table.rows[0][1].text, &*table.rows[0][2].text), ("4096", "128"));
    }

    #[test]
    fn no_data_is_no_chart_and_tables_are_bounded() {
        let (mut experiment, _) = synthetic_experiment();
        assert_eq!(chart(&experiment, &NoRecords).len(), 1);
        let mut arm = experiment.plan.arms[2].clone();
        let long = "x".repeat(2_000);
        arm.changes = (0..300).map(|index| (index.to_string(), long.clone())).collect();
        experiment.plan.arms = vec![arm; 50];
        let charts = chart(&experiment, &NoRecords);
        for (heading, table) in tables(&charts[0]) {
            assert!(table.rows.len() <= ROWS_MAX && table.columns.len() <= COLUMNS_MAX + 1, "{heading}");
            assert!(table.rows.iter().flatten().all(|cell| cell.text.chars().count() <= VALUE_CHARS_MAX));
        }
        experiment.plan.arms.clear();
        assert!(chart(&experiment, &NoRecords).is_empty());
    }
}
