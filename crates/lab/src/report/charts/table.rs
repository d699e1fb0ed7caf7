//! The table of all cells as benchmarks of servers are written down: processes by connections, rates,
//! latencies, processors of both sides.
//! Not for comparisons: two rows of it say nothing about how sure their difference is.

use std::collections::BTreeSet;

use record::experiment::{Arm, Experiment, LoadPlan};

use super::data::{Merged, cell, mean, merged};
use super::{Cell, Chart, Table};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::words;

/// Quantiles of the table, and the metric that has the same, for trials without a histogram.
const QUANTILES: [(f64, &str, &str); 5] = [
    (0.5, "p50", "p50_ns"),
    (0.75, "p75", "p75_ns"),
    (0.9, "p90", "p90_ns"),
    (0.99, "p99", "p99_ns"),
    (1.0, "max", "max_ns"),
];

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
    let arms: Vec<&Arm> = experiment.plan.arms.iter().filter(|arm| arm.again.is_none()).collect();
    if arms.is_empty() || experiment.plan.loads.is_empty() {
        return Vec::new();
    }
    let arm_factors = factors(arms.iter().map(|arm| &arm.levels));
    let load_factors = factors(experiment.plan.loads.iter().map(|load| &load.levels));
    let title = if experiment.plan.loads.len() > 1 { "All cells" } else { "All arms" };
    let caption = "Each row is an arm under a load, its trials merged: the rate is their mean and the \
                   best single second, latencies are of the last byte from the due time, processors \
                   are user + kernel.";
    let mut heads = names(&arm_factors, "arm");
    heads.extend(names(&load_factors, "load"));
    let mut figures = figures(&heads);
    let mut table = Table { columns: columns(&heads), rows: Vec::new() };
    for load in &experiment.plan.loads {
        for arm in &arms {
            let keys = [
                keys(&arm_factors, &arm.levels, &arm.name),
                keys(&load_factors, &load.levels, &load.name),
            ];
            let keys = keys.concat();
            let figured = figured(experiment, raw, arm, load);
            table.rows.push(row(&keys, &figured));
            figures.row(data(&keys, &figured));
        }
    }
    vec![Chart::new("cells", title, caption, figures).table(table)]
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
fn figured(experiment: &Experiment, raw: &dyn Raw, arm: &Arm, load: &LoadPlan) -> Figured {
    let Merged { latencies, rates, best_second, generator, subject, trials, without } =
        merged(experiment, raw, &arm.name, &load.name);
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
    fn factors_have_columns_of_their_own() {
        let (mut experiment, raw) = sample();
        for (arm, processes) in experiment.plan.arms.iter_mut().zip(["1", "1", "2"]) {
            arm.levels.insert("processes".to_owned(), processes.to_owned());
        }
        let charts = chart(&experiment, &raw);
        assert_eq!(table(&charts[0]).columns[..2], ["processes", "connections"]);
    }
}
