//! Differences and common settings of the arms: values that replace the file's own, command lines
//! of the processes, kernel settings that differed, and settings that were fixed before the first
//! trial. The page lists the machine, which is the same for all arms.

use std::collections::BTreeMap;

use record::experiment::Experiment;

use super::setting_tables::{
    COLUMNS_MAX, TableSide, VALUE_CHARS_MAX, command_table, differences, key_value_table,
};
use super::{ChartPart, ChartTable, ReportChart};
use crate::TrialRecords;
use crate::data::settings::{commands, differing_keys, fixed_settings, settings};
use crate::data::trials::has_several_loads;
use crate::data::typical::{TypicalTrial, typical_trials};
use crate::data_table::DataTable;
use crate::plot::shortened;

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
    let data = DataTable::new("about name key value");
    let mut chart = ReportChart::new("environment", "Differences between the arms", caption, data);
    let arms = plan.arms.iter().filter(|arm| arm.repeats.is_none());
    let arms: Vec<TableSide<'_>> = arms.map(|arm| (arm.name.as_str(), &arm.changes)).collect();
    let loads: Vec<TableSide<'_>> =
        plan.loads.iter().map(|load| (load.name.as_str(), &load.changes)).collect();
    for (about, heading, sides) in [("arm", "Arms", &arms), ("load", "Loads", &loads)] {
        for (name, changes) in sides {
            changes.iter().for_each(|(key, value)| add_rows(&mut chart.data, [about, name, key, value]));
        }
        add_table(&mut chart, heading, differences(sides, FILE_VALUE));
        if sides.len() > COLUMNS_MAX {
            chart.notes.push(format!("{} {about}s are only in the data.", sides.len() - COLUMNS_MAX));
        }
    }
    add_process_tables(&mut chart, experiment, raw);
    let fixed = fixed_settings(experiment);
    for (key, value) in &fixed {
        add_rows(&mut chart.data, ["fixed", "", key, value]);
    }
    let heading = "Common settings, fixed before the first trial";
    add_table(&mut chart, heading, Some(key_value_table("Setting", &fixed)));
    vec![chart]
}

fn add_table(chart: &mut ReportChart, heading: &str, table: Option<ChartTable>) {
    if let Some(table) = table {
        chart.heading(heading);
        chart.parts.push(ChartPart::Table(table));
    }
}

fn add_rows(data: &mut DataTable, cells: [&str; 4]) {
    data.add_row(cells.map(|cell| shortened(cell, VALUE_CHARS_MAX)).to_vec());
}

/// Adds a table of the commands that ran in the typical trials, by arm or load, and a table of the
/// kernel settings that differ.
fn add_process_tables(chart: &mut ReportChart, experiment: &Experiment, raw: &dyn TrialRecords) {
    let typical = typical_trials(experiment, raw);
    let trials = typical.trials();
    let several = has_several_loads(&experiment.plan);
    let name = |trial: &&TypicalTrial<'_>| match several {
        true => format!("{}, {}", trial.arm(), trial.line.position.load),
        false => trial.arm().to_owned(),
    };
    let names: Vec<String> = trials.iter().map(name).collect();
    let commands: Vec<BTreeMap<String, String>> = trials.iter().map(|trial| commands(trial)).collect();
    for (name, values) in names.iter().zip(&commands) {
        values.iter().for_each(|(key, value)| add_rows(&mut chart.data, ["command", name, key, value]));
    }
    add_table(chart, "Commands", command_table(&names, &commands));
    let settings: Vec<BTreeMap<String, String>> = trials.iter().map(|trial| settings(trial)).collect();
    let differing = differing_keys(&settings);
    let sides: Vec<TableSide<'_>> = names.iter().map(String::as_str).zip(&differing).collect();
    let table = differences(&sides, "unknown");
    let note = "Kernel settings differ between trials: check that an arm sets them on purpose.";
    chart.notes.extend(table.is_some().then(|| note.to_owned()));
    add_table(chart, "Kernel settings that differ", table);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::setting_tables::ROWS_MAX;
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
