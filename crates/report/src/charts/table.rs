//! Table of all cells in the usual form of server benchmarks: processes by connections, rates,
//! latencies, CPUs of both sides. It does not show how certain the difference of two rows is.

use std::collections::BTreeSet;

use experiment::format;
use record::experiment::{Arm, Experiment, LoadPlan};

use super::trial_data::{MergedTrials, cell, mean, merge_trials};
use super::{ChartTable, ReportChart, TableCell};
use crate::data_table::{DataTable, number};
use crate::{TextTable, TrialRecords};

/// Quantiles of the table, each with its metric for trials without a histogram.
const QUANTILES: [(f64, &str, &str); 5] = [
    (0.5, "p50", "p50_ns"),
    (0.75, "p75", "p75_ns"),
    (0.9, "p90", "p90_ns"),
    (0.99, "p99", "p99_ns"),
    (1.0, "max", "max_ns"),
];

/// Maximum number of rows of the table as text.
const GRID_ROWS_MAX: usize = 60;
/// Driver whose records have latencies from the due time.
const WEIR_DRIVER: &str = "weir";

/// Figures of one row.
struct RowFigures {
    rate: Option<f64>,
    best_second: Option<f64>,
    latencies_ns: Vec<Option<f64>>,
    generator: Option<(f64, f64)>,
    subject: Option<(f64, f64)>,
    trials: usize,
}

/// Builds the table; nothing if there is only one arm under one load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let FilledTable { table, figures, drivers } = fill_table(experiment, raw);
    if table.rows.is_empty() {
        return Vec::new();
    }
    let title = if experiment.plan.loads.len() > 1 { "All cells" } else { "All arms" };
    let latencies = latencies_note(&drivers);
    let caption = format!(
        "Each row is an arm under a load, with its trials merged: the rate is their mean and the best \
         single second, {latencies}, CPUs are user + kernel."
    );
    vec![ReportChart::new("cells", title, &caption, figures).table(table)]
}

/// Describes the latencies, which depend on the driver that measured them.
fn latencies_note(drivers: &BTreeSet<String>) -> String {
    let others: Vec<&str> =
        drivers.iter().map(String::as_str).filter(|driver| *driver != WEIR_DRIVER).collect();
    let own = "latencies are those of the last byte, from the due time";
    match (others.is_empty(), drivers.contains(WEIR_DRIVER)) {
        (true, _) => own.to_owned(),
        (false, false) => format!(
            "latencies are those that {} reported (see the section on missing observations)",
            others.join(", ")
        ),
        (false, true) => {
            format!("{own}, or those that {} reported, where that was the load generator", others.join(", "))
        }
    }
}

/// Returns the table as text, for an experiment with one arm under loads of several levels.
pub(crate) fn text_table(experiment: &Experiment, raw: &dyn TrialRecords) -> Option<TextTable> {
    let own = experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()).count();
    let of_factors = experiment.plan.loads.iter().filter(|load| !load.levels.is_empty()).count();
    if own != 1 || of_factors < 2 {
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
    figures: DataTable,
    /// Drivers of the loads.
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
    let mut data = data_table(&heads);
    let mut table = ChartTable { columns: columns(&heads), rows: Vec::new() };
    let mut drivers = BTreeSet::new();
    for load in &experiment.plan.loads {
        for arm in &arms {
            let mut keys_of = keys(&load_factors, &load.levels, &load.name);
            if !is_single {
                keys_of.splice(0..0, keys(&arm_factors, &arm.levels, &arm.name));
            }
            let keys = keys_of;
            let figures_of_row = row_figures(experiment, raw, arm, load, &mut drivers);
            table.rows.push(row(&keys, &figures_of_row));
            data.add_row(data_row(&keys, &figures_of_row));
        }
    }
    FilledTable { table, figures: data, drivers }
}

fn factors<'a>(
    levels: impl Iterator<Item = &'a std::collections::BTreeMap<String, String>>,
) -> BTreeSet<String> {
    levels.flat_map(|levels| levels.keys().cloned()).collect()
}

/// Returns the columns that name a row: its factors, or its name if it has none.
fn key_columns(factors: &BTreeSet<String>, what: &str) -> Vec<String> {
    if factors.is_empty() { vec![what.to_owned()] } else { factors.iter().cloned().collect() }
}

fn keys(
    factors: &BTreeSet<String>,
    levels: &std::collections::BTreeMap<String, String>,
    name: &str,
) -> Vec<String> {
    if factors.is_empty() {
        return vec![name.to_owned()];
    }
    factors.iter().map(|factor| levels.get(factor).cloned().unwrap_or_default()).collect()
}

fn columns(heads: &[String]) -> Vec<String> {
    let mut columns: Vec<String> = heads.iter().map(|head| format::code_words(head)).collect();
    columns.extend(["rate, mean", "rate, best second"].map(str::to_owned));
    columns.extend(QUANTILES.map(|(_, name, _)| name.to_owned()));
    columns.extend(["generator CPUs", "subject CPUs", "trials"].map(str::to_owned));
    columns
}

fn data_table(heads: &[String]) -> DataTable {
    let mut columns: Vec<&str> = heads.iter().map(String::as_str).collect();
    columns.extend(["responses_per_s", "best_second_per_s"]);
    columns.extend(QUANTILES.map(|(_, _, name)| name));
    columns.extend(["generator_user_cpus", "generator_system_cpus"]);
    columns.extend(["subject_user_cpus", "subject_system_cpus", "trials"]);
    DataTable::new(&columns)
}

/// Reads the figures from the records, and missing ones from the medians of the experiment.
fn row_figures(
    experiment: &Experiment,
    raw: &dyn TrialRecords,
    arm: &Arm,
    load: &LoadPlan,
    drivers: &mut BTreeSet<String>,
) -> RowFigures {
    let merged = merge_trials(experiment, raw, &arm.name, &load.name);
    let MergedTrials {
        latencies, rates, best_second, generator, subject, trials, trials_without_record, ..
    } = merged;
    drivers.extend(merged.drivers);
    let spread = cell(experiment, &arm.name, &load.name);
    let median = |name: &str| spread?.metrics.get(name).map(|spread| spread.median);
    let latencies_ns = QUANTILES.iter().map(|(quantile, _, name)| match latencies.is_empty() {
        true => median(name),
        false => Some(latencies.value_at_quantile(*quantile) as f64),
    });
    let cpus_total = |cpus: &[(f64, f64)]| {
        let user = mean(cpus.iter().map(|(user, _)| *user))?;
        Some((user, mean(cpus.iter().map(|(_, system)| *system))?))
    };
    RowFigures {
        rate: mean(rates).or_else(|| median("responses_per_s")),
        best_second,
        latencies_ns: latencies_ns.collect(),
        generator: cpus_total(&generator),
        subject: cpus_total(&subject),
        trials: trials + trials_without_record,
    }
}

fn row(keys: &[String], figured: &RowFigures) -> Vec<TableCell> {
    let cpus = |cpus: Option<(f64, f64)>| {
        TableCell::figure(cpus.map(|(user, system)| format!("{user:.2} + {system:.2}")))
    };
    let figure =
        |value: Option<f64>, unit: &str| TableCell::figure(value.map(|value| format::value(value, unit)));
    let mut row: Vec<TableCell> = keys.iter().map(TableCell::plain).collect();
    row.push(figure(figured.rate, "1/s"));
    row.push(figure(figured.best_second, "1/s"));
    row.extend(figured.latencies_ns.iter().map(|latency_ns| figure(*latency_ns, "ns")));
    row.extend([cpus(figured.generator), cpus(figured.subject)]);
    row.push(TableCell::figure(Some(figured.trials.to_string())));
    row
}

fn data_row(keys: &[String], figured: &RowFigures) -> Vec<String> {
    let mut row = keys.to_vec();
    row.extend([number(figured.rate), number(figured.best_second)]);
    row.extend(figured.latencies_ns.iter().map(|latency_ns| number(*latency_ns)));
    for cpus in [figured.generator, figured.subject] {
        row.push(number(cpus.map(|(user, _)| user)));
        row.push(number(cpus.map(|(_, system)| system)));
    }
    row.push(figured.trials.to_string());
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
