//! Table of all cells in the usual form of server benchmarks: processes by connections, rates,
//! latencies, CPUs of both sides. It does not show how certain the difference of two rows is.

use std::collections::BTreeSet;

use experiment::format;
use record::experiment::{Arm, Experiment};

use super::{ChartTable, ReportChart, TableCell};
use crate::data::cells::{CellFigures, QUANTILES, factors, key_columns, keys};
use crate::data_table::{DataTable, Datum as _, cells};
use crate::{TextTable, TrialRecords};

/// Maximum number of rows of the table as text.
const GRID_ROWS_MAX: usize = 60;
/// Driver whose records have latencies from the due time.
const WEIR_DRIVER: &str = "weir";

/// Builds the table; nothing if there is only one arm under one load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let FilledTable { table, data, drivers } = fill_table(experiment, raw);
    let title = if experiment.plan.loads.len() > 1 { "All cells" } else { "All arms" };
    let caption = format!(
        "Each row is an arm under a load, with its trials merged: the rate is their mean and the best \
         single second, {}, CPUs are user + kernel.",
        latencies_note(&drivers)
    );
    let is_empty = table.rows.is_empty();
    if is_empty { Vec::new() } else { vec![ReportChart::new("cells", title, &caption, data).table(table)] }
}

/// Describes the latencies, which depend on the driver that measured them.
fn latencies_note(drivers: &BTreeSet<String>) -> String {
    let others = drivers.iter().map(String::as_str).filter(|driver| *driver != WEIR_DRIVER);
    let others = others.collect::<Vec<_>>().join(", ");
    let own = "latencies are those of the last byte, from the due time";
    match (others.is_empty(), drivers.contains(WEIR_DRIVER)) {
        (true, _) => own.to_owned(),
        (false, false) => {
            format!("latencies are those that {others} reported (see the section on missing observations)")
        }
        (false, true) => format!("{own}, or those that {others} reported, where that was the load generator"),
    }
}

/// Returns the table as text, for an experiment with one arm under loads of several levels.
pub(crate) fn text_table(experiment: &Experiment, raw: &dyn TrialRecords) -> Option<TextTable> {
    let own = experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()).count();
    let loads_with_levels = experiment.plan.loads.iter().filter(|load| !load.levels.is_empty()).count();
    if own != 1 || loads_with_levels < 2 {
        return None;
    }
    let ChartTable { columns, rows } = fill_table(experiment, raw).table;
    let rows_omitted = rows.len().saturating_sub(GRID_ROWS_MAX);
    let texts = rows.into_iter().take(GRID_ROWS_MAX);
    let texts = texts.map(|row| row.into_iter().map(|cell| cell.text).collect());
    Some(TextTable { rows: std::iter::once(columns).chain(texts).collect(), rows_omitted })
}

/// Rows of all cells.
struct FilledTable {
    table: ChartTable,
    data: DataTable,
    drivers: BTreeSet<String>,
}

fn fill_table(experiment: &Experiment, raw: &dyn TrialRecords) -> FilledTable {
    let arms: Vec<&Arm> = experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()).collect();
    let arm_factors = factors(arms.iter().map(|arm| &arm.levels));
    let load_factors = factors(experiment.plan.loads.iter().map(|load| &load.levels));
    // The only arm needs no name in each row.
    let is_single = arms.len() == 1 && arm_factors.is_empty();
    let mut heads = if is_single { Vec::new() } else { key_columns(&arm_factors, "arm") };
    heads.extend(key_columns(&load_factors, "load"));
    let mut columns: Vec<String> = heads.iter().map(|head| format::code_words(head)).collect();
    columns.extend(["rate, mean", "rate, best second"].map(str::to_owned));
    columns.extend(QUANTILES.map(|(_, name, _)| name.to_owned()));
    columns.extend(["generator CPUs", "subject CPUs", "trials"].map(str::to_owned));
    let mut table = ChartTable { columns, rows: Vec::new() };
    let data =
        DataTable::default().with_columns(heads).with_columns(["responses_per_s", "best_second_per_s"]);
    let data = data.with_columns(QUANTILES.map(|(_, _, metric)| metric));
    let data = data.with_columns(["generator_user_cpus", "generator_system_cpus"]);
    let mut data = data.with_columns(["subject_user_cpus", "subject_system_cpus", "trials"]);
    let mut drivers = BTreeSet::new();
    for load in &experiment.plan.loads {
        for arm in &arms {
            let mut row = if is_single { Vec::new() } else { keys(&arm_factors, &arm.levels, &arm.name) };
            row.extend(keys(&load_factors, &load.levels, &load.name));
            let figures = CellFigures::read(experiment, raw, (&arm.name, &load.name), &mut drivers);
            table.rows.push(table_row(&row, &figures));
            data.add_row(data_row(row, &figures));
        }
    }
    FilledTable { table, data, drivers }
}

fn table_row(keys: &[String], figures: &CellFigures) -> Vec<TableCell> {
    let figure =
        |value: Option<f64>, unit: &str| TableCell::figure(value.map(|value| format::value(value, unit)));
    let cpus = |cpus: Option<(f64, f64)>| {
        TableCell::figure(cpus.map(|(user, system)| format!("{user:.2} + {system:.2}")))
    };
    let mut row: Vec<TableCell> = keys.iter().map(TableCell::plain).collect();
    row.extend([figure(figures.rate, "1/s"), figure(figures.best_second, "1/s")]);
    row.extend(figures.latencies_ns.map(|latency_ns| figure(latency_ns, "ns")));
    row.extend([cpus(figures.generator), cpus(figures.subject)]);
    row.push(TableCell::figure(Some(figures.trials.to_string())));
    row
}

fn data_row(mut row: Vec<String>, figures: &CellFigures) -> Vec<String> {
    let (generator, subject) = (figures.generator.unzip(), figures.subject.unzip());
    row.extend(cells(&[&figures.rate, &figures.best_second]));
    row.extend(figures.latencies_ns.map(|latency_ns| latency_ns.text()));
    row.extend(cells(&[&generator.0, &generator.1, &subject.0, &subject.1, &figures.trials]));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::ChartPart;
    use crate::synthetic::{ARMS, LOADS, NoRecords, synthetic_experiment};

    fn table(chart: &ReportChart) -> &ChartTable {
        match &chart.parts[..] {
            [ChartPart::Table(table)] => table,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_row_for_each_arm_under_each_load() {
        let (experiment, raw) = synthetic_experiment();
        let charts = chart(&experiment, &raw);
        let table = table(&charts[0]);
        assert_eq!(table.rows.len(), LOADS.len() * 2);
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        let first: Vec<&str> = table.rows[0].iter().map(|cell| cell.text.as_str()).collect();
        assert_eq!(first[..2], [ARMS[0], "10"]);
        assert_eq!(first[9], "0.38 + 0.25");
        assert!(!first.contains(&"–"), "{first:?}");
    }

    #[test]
    fn without_records_the_medians_are_used() {
        let (experiment, _) = synthetic_experiment();
        let charts = chart(&experiment, &NoRecords);
        let first: Vec<&str> = table(&charts[0]).rows[0].iter().map(|cell| cell.text.as_str()).collect();
        assert!(first[2].ends_with("/s") && first[4].ends_with('s'), "{first:?}");
        assert_eq!(first[3], "–");
    }

    #[test]
    fn the_caption_matches_the_load_generator() {
        let (experiment, mut raw) = synthetic_experiment();
        raw.trials.values_mut().for_each(|trial| trial.driver.program = "weir".to_owned());
        let caption = &chart(&experiment, &raw)[0].caption;
        assert!(caption.contains("due time") && !caption.contains("wrk"), "{caption}");
        raw.trials.values_mut().for_each(|trial| trial.driver.program = "wrk".to_owned());
        let caption = &chart(&experiment, &raw)[0].caption;
        assert!(caption.contains("wrk") && !caption.contains("due time"), "{caption}");
    }

    #[test]
    fn one_arm_under_levels_is_a_table_of_text() {
        let (mut experiment, raw) = synthetic_experiment();
        assert_eq!(text_table(&experiment, &raw), None, "arms are compared");
        experiment.plan.arms.truncate(2);
        let result = text_table(&experiment, &raw).unwrap();
        assert_eq!((result.rows.len(), result.rows_omitted), (1 + LOADS.len(), 0));
        assert!(result.rows[0].contains(&"subject CPUs".to_owned()), "{:?}", result.rows[0]);
        assert_eq!(result.rows[1][8], "0.38 + 0.25");
        let load = experiment.plan.loads[0].clone();
        experiment.plan.loads = vec![load; GRID_ROWS_MAX + 3];
        let result = text_table(&experiment, &NoRecords).unwrap();
        assert_eq!((result.rows.len(), result.rows_omitted), (1 + GRID_ROWS_MAX, 3));
        experiment.plan.loads.iter_mut().for_each(|load| load.levels.clear());
        assert_eq!(text_table(&experiment, &NoRecords), None, "loads that are no levels");
    }

    #[test]
    fn factors_have_columns_of_their_own() {
        let (mut experiment, raw) = synthetic_experiment();
        for (arm, processes) in experiment.plan.arms.iter_mut().zip(["1", "1", "2"]) {
            arm.levels.insert("processes".to_owned(), processes.to_owned());
        }
        let charts = chart(&experiment, &raw);
        assert_eq!(table(&charts[0]).columns[..2], ["processes", "connections"]);
    }
}
