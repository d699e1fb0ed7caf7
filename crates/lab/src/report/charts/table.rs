//! The table of all cells as benchmarks of servers are written down: processes by connections, rates,
//! latencies, processors of both sides.
//! Not for comparisons: two rows of it say nothing about how sure their difference is.

use std::collections::BTreeSet;

use record::experiment::{Arm, Experiment, LoadPlan};

use super::data::{Merged, cell, mean, merged};
use super::{Cell, Chart, Table};
use crate::report::csv::{Figures, number};
use crate::report::{Grid, Raw};
use crate::words;

/// Quantiles of the table, and the metric that has the same, for trials without a histogram.
const QUANTILES: [(f64, &str, &str); 5] = [
    (0.5, "p50", "p50_ns"),
    (0.75, "p75", "p75_ns"),
    (0.9, "p90", "p90_ns"),
    (0.99, "p99", "p99_ns"),
    (1.0, "max", "max_ns"),
];

/// Rows of the table as text at most.
const GRID_ROWS_MAX: usize = 60;
/// The driver whose records have latencies from the due time.
const WEIR: &str = "weir";

/// One row's figures.
struct Figured {
    rate: Option<f64>,
    best_second: Option<f64>,
    latencies_ns: Vec<Option<f64>>,
    generator: Option<(f64, f64)>,
    subject: Option<(f64, f64)>,
    trials: usize,
}

/// The table; nothing where one load has only one arm.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let Filled { table, figures, drivers } = filled(experiment, raw);
    if table.rows.is_empty() {
        return Vec::new();
    }
    let title = if experiment.plan.loads.len() > 1 { "All cells" } else { "All arms" };
    let latencies = latencies(&drivers);
    let caption = format!(
        "Each row is an arm under a load, its trials merged: the rate is their mean and the best single \
         second, {latencies}, processors are user + kernel."
    );
    vec![Chart::new("cells", title, &caption, figures).table(table)]
}

/// What the latencies are, which depends on what measured them.
fn latencies(drivers: &BTreeSet<String>) -> String {
    let others: Vec<&str> =
        drivers.iter().map(String::as_str).filter(|driver| *driver != WEIR).collect();
    let own = "latencies are of the last byte from the due time";
    match (others.is_empty(), drivers.contains(WEIR)) {
        (true, _) => own.to_owned(),
        (false, false) => format!(
            "latencies are what {} printed, as it measures them (see what was not observable)",
            others.join(", ")
        ),
        (false, true) => format!(
            "{own}, and where {} drove the load what that printed, as it measures them",
            others.join(", ")
        ),
    }
}

/// The table as text, of an experiment with one arm under loads of several levels.
pub(in crate::report) fn grid(experiment: &Experiment, raw: &dyn Raw) -> Option<Grid> {
    let own = experiment.plan.arms.iter().filter(|arm| arm.again.is_none()).count();
    let of_factors = experiment.plan.loads.iter().filter(|load| !load.levels.is_empty()).count();
    if own != 1 || of_factors < 2 {
        return None;
    }
    let Table { columns, rows } = filled(experiment, raw).table;
    let left_out = rows.len().saturating_sub(GRID_ROWS_MAX);
    let texts = rows.into_iter().take(GRID_ROWS_MAX);
    let texts = texts.map(|row| row.into_iter().map(|cell| cell.text).collect());
    Some(Grid { rows: std::iter::once(columns).chain(texts).collect(), left_out })
}

/// The rows of all cells.
struct Filled {
    table: Table,
    figures: Figures,
    /// What drove the loads.
    drivers: BTreeSet<String>,
}

fn filled(experiment: &Experiment, raw: &dyn Raw) -> Filled {
    let arms: Vec<&Arm> = experiment.plan.arms.iter().filter(|arm| arm.again.is_none()).collect();
    let arm_factors = factors(arms.iter().map(|arm| &arm.levels));
    let load_factors = factors(experiment.plan.loads.iter().map(|load| &load.levels));
    // The only arm needs no name in each row.
    let alone = arms.len() == 1 && arm_factors.is_empty();
    let mut heads = if alone { Vec::new() } else { names(&arm_factors, "arm") };
    heads.extend(names(&load_factors, "load"));
    let mut figures = figures(&heads);
    let mut table = Table { columns: columns(&heads), rows: Vec::new() };
    let mut drivers = BTreeSet::new();
    for load in &experiment.plan.loads {
        for arm in &arms {
            let mut keys_of = keys(&load_factors, &load.levels, &load.name);
            if !alone {
                keys_of.splice(0..0, keys(&arm_factors, &arm.levels, &arm.name));
            }
            let keys = keys_of;
            let figured = figured(experiment, raw, arm, load, &mut drivers);
            table.rows.push(row(&keys, &figured));
            figures.row(data(&keys, &figured));
        }
    }
    Filled { table, figures, drivers }
}

fn factors<'a>(
    levels: impl Iterator<Item = &'a std::collections::BTreeMap<String, String>>,
) -> BTreeSet<String> {
    levels.flat_map(|levels| levels.keys().cloned()).collect()
}

/// The columns that name a row: its factors, or its name where it has none.
fn names(factors: &BTreeSet<String>, what: &str) -> Vec<String> {
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
    let mut columns: Vec<String> = heads.iter().map(|head| words::code(head)).collect();
    columns.extend(["rate, mean", "rate, best second"].map(str::to_owned));
    columns.extend(QUANTILES.map(|(_, name, _)| name.to_owned()));
    columns.extend(["CPU of the generator", "CPU of the subject", "trials"].map(str::to_owned));
    columns
}

fn figures(heads: &[String]) -> Figures {
    let mut columns: Vec<&str> = heads.iter().map(String::as_str).collect();
    columns.extend(["responses_per_s", "best_second_per_s"]);
    columns.extend(QUANTILES.map(|(_, _, name)| name));
    columns.extend(["generator_user_cpus", "generator_system_cpus"]);
    columns.extend(["subject_user_cpus", "subject_system_cpus", "trials"]);
    Figures::new(&columns)
}

/// From the records; what they do not tell, from the medians of the experiment.
fn figured(
    experiment: &Experiment,
    raw: &dyn Raw,
    arm: &Arm,
    load: &LoadPlan,
    drivers: &mut BTreeSet<String>,
) -> Figured {
    let merged = merged(experiment, raw, &arm.name, &load.name);
    let Merged { latencies, rates, best_second, generator, subject, trials, without, .. } = merged;
    drivers.extend(merged.drivers);
    let spread = cell(experiment, &arm.name, &load.name);
    let median = |name: &str| spread?.metrics.get(name).map(|spread| spread.median);
    let latencies_ns = QUANTILES.iter().map(|(quantile, _, name)| match latencies.is_empty() {
        true => median(name),
        false => Some(latencies.at(*quantile) as f64),
    });
    let both = |cpus: &[(f64, f64)]| {
        let user = mean(cpus.iter().map(|(user, _)| *user))?;
        Some((user, mean(cpus.iter().map(|(_, system)| *system))?))
    };
    Figured {
        rate: mean(rates).or_else(|| median("responses_per_s")),
        best_second,
        latencies_ns: latencies_ns.collect(),
        generator: both(&generator),
        subject: both(&subject),
        trials: trials + without,
    }
}

fn row(keys: &[String], figured: &Figured) -> Vec<Cell> {
    let cpus = |cpus: Option<(f64, f64)>| {
        Cell::figure(cpus.map(|(user, system)| format!("{user:.2} + {system:.2}")))
    };
    let figure =
        |value: Option<f64>, unit: &str| Cell::figure(value.map(|value| words::value(value, unit)));
    let mut row: Vec<Cell> = keys.iter().map(Cell::words).collect();
    row.push(figure(figured.rate, "1/s"));
    row.push(figure(figured.best_second, "1/s"));
    row.extend(figured.latencies_ns.iter().map(|latency_ns| figure(*latency_ns, "ns")));
    row.extend([cpus(figured.generator), cpus(figured.subject)]);
    row.push(Cell::figure(Some(figured.trials.to_string())));
    row
}

fn data(keys: &[String], figured: &Figured) -> Vec<String> {
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
    use crate::report::charts::Part;
    use crate::report::sample::{ARMS, LOADS, NoRaw, sample};

    fn table(chart: &Chart) -> &Table {
        match &chart.parts[..] {
            [Part::Table(table)] => table,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_row_for_each_arm_under_each_load() {
        let (experiment, raw) = sample();
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
    fn without_records_the_medians_stand_in() {
        let (experiment, _) = sample();
        let charts = chart(&experiment, &NoRaw);
        let first: Vec<&str> =
            table(&charts[0]).rows[0].iter().map(|cell| cell.text.as_str()).collect();
        assert!(first[2].ends_with("/s") && first[4].ends_with('s'), "{first:?}");
        assert_eq!(first[3], "–");
    }

    #[test]
    fn the_caption_is_true_for_whatever_drove_the_load() {
        let (experiment, mut raw) = sample();
        raw.trials.values_mut().for_each(|trial| trial.driver.program = "weir".to_owned());
        assert!(chart(&experiment, &raw)[0].caption.contains("last byte from the due time, proc"));
        raw.trials.values_mut().for_each(|trial| trial.driver.program = "wrk".to_owned());
        let caption = &chart(&experiment, &raw)[0].caption;
        assert!(caption.contains("latencies are what wrk printed"), "{caption}");
        assert!(!caption.contains("due time"), "{caption}");
    }

    #[test]
    fn one_arm_under_levels_is_a_table_of_text() {
        let (mut experiment, raw) = sample();
        assert_eq!(grid(&experiment, &raw), None, "arms are compared");
        experiment.plan.arms.truncate(2);
        let found = grid(&experiment, &raw).unwrap();
        assert_eq!((found.rows.len(), found.left_out), (1 + LOADS.len(), 0));
        assert!(found.rows[0].contains(&"CPU of the subject".to_owned()), "{:?}", found.rows[0]);
        assert_eq!(found.rows[1][8], "0.38 + 0.25");
        let load = experiment.plan.loads[0].clone();
        experiment.plan.loads = vec![load; GRID_ROWS_MAX + 3];
        let found = grid(&experiment, &NoRaw).unwrap();
        assert_eq!((found.rows.len(), found.left_out), (1 + GRID_ROWS_MAX, 3));
        experiment.plan.loads.iter_mut().for_each(|load| load.levels.clear());
        assert_eq!(grid(&experiment, &NoRaw), None, "loads that are no levels");
    }

    #[test]
    fn factors_have_columns_of_their_own() {
        let (mut experiment, raw) = sample();
        for (arm, processes) in experiment.plan.arms.iter_mut().zip(["1", "1", "2"]) {
            arm.levels.insert("processes".to_owned(), processes.to_owned());
        }
        let charts = chart(&experiment, &raw);
        assert_eq!(table(&charts[0]).columns[..2], ["processes", "connections"]);
    }
}
