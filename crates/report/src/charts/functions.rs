//! CPU time of the subject by function: the baseline beside each arm, as time per response, so
//! that arms of different rates can be compared. [`super::flame`] shows the callers, [`super::calls`]
//! the number of calls.

use experiment::format;
use record::experiment::{Arm, Experiment};

use super::{ChartTable, ReportChart, TableCell};
use crate::TrialRecords;
use crate::data::functions::{ArmProfile, FunctionRow, function_rows};
use crate::data::stacks::split_kernel_suffix;
use crate::data::typical::typical_trials;
use crate::data_table::{DataTable, Datum as _, cells, six_digits};
use crate::plot::shortened;

/// Maximum number of rows of a table: later rows are too small to act on.
const ROWS_MAX: usize = 25;
const ARMS_MAX: usize = 6;
/// Maximum number of functions of each arm in the figures.
const DATA_FUNCTIONS_MAX: usize = 300;
/// Fraction below which, in both arms, a function is left out of the table.
const FRACTION_MIN: f64 = 0.000_5;
/// Letters of a name in a table.
const NAME_CHARS_MAX: usize = 80;
/// Change, as a fraction of all time, from which a row is highlighted.
const CHANGE_MIN: f64 = 0.002;

/// Builds the chart: a table for each arm against the baseline.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let plan = &experiment.plan;
    let typical = typical_trials(experiment, raw);
    let trials = typical.trials();
    let caption = "CPU time by function, without (self) and with its callees (total), sorted by the change \
                   of the self time per response. Changes of at least 0.2 % of all time are coloured.";
    let data = DataTable::new(
        "arm function mode baseline_self_fraction self_fraction baseline_total_fraction total_fraction \
         baseline_self_us self_us difference",
    );
    let mut chart = ReportChart::new("functions", "Functions side by side", caption, data);
    let others = plan.arms.iter().filter(|arm| arm.repeats.is_none() && arm.name != plan.baseline);
    let before = ArmProfile::read(experiment, raw, &plan.baseline, &trials);
    for arm in others.take(ARMS_MAX) {
        let after = ArmProfile::read(experiment, raw, &arm.name, &trials);
        let (Some(before), Some(after)) = (&before, &after) else { continue };
        let rows = function_rows(before, after);
        rows.iter().take(DATA_FUNCTIONS_MAX).for_each(|row| add_row(&mut chart.data, arm, row));
        chart.heading(format!("{} against {}", arm.name, plan.baseline));
        chart = chart.table(table(&plan.baseline, &arm.name, &rows));
        if let Some((was, is)) = before.us.zip(after.us) {
            let (change, [was_us, is_us]) =
                (format::change_text(is / was), [was, is].map(|us| format::value(us, "us")));
            let arms = format!("{} {is_us}, {} {was_us}", arm.name, plan.baseline);
            chart.notes.push(format!("CPU time per response: {arms}: {change}."));
        }
    }
    if chart.parts.is_empty() { Vec::new() } else { vec![chart] }
}

fn add_row(data: &mut DataTable, arm: &Arm, row: &FunctionRow<'_>) {
    let (name, kernel) = split_kernel_suffix(row.name);
    let mut cells = cells(&[&arm.name, &name, &cpu_mode(kernel)]);
    cells.extend(row.fractions().map(|fraction| six_digits(fraction).text()));
    let (was, is) = row.us.unzip();
    cells.extend([was, is, Some(row.change())].map(|value| value.map(six_digits).text()));
    data.add_row(cells);
}

fn cpu_mode(kernel: bool) -> &'static str {
    if kernel { "kernel" } else { "user" }
}

fn table(baseline: &str, arm: &str, rows: &[FunctionRow<'_>]) -> ChartTable {
    let all_us: Option<f64> = rows.iter().map(|row| row.us.map(|(was, _)| was)).sum();
    let all_us = all_us.filter(|_| !rows.is_empty());
    let mut columns = vec!["Function".to_owned(), "Mode".to_owned()];
    if all_us.is_some() {
        columns.extend([baseline, arm].map(|name| format!("{name}: self")));
    }
    let per = if all_us.is_some() { "per response" } else { "of the fraction" };
    columns.push(format!("Difference {per}"));
    let fractions =
        ["self", "total"].map(|what| [baseline, arm].map(|arm| format!("{arm}: {what}, fraction")));
    columns.extend(fractions.into_iter().flatten());
    let us = |us: f64| TableCell::figure(Some(format::value(us, "us")));
    let row = |row: &FunctionRow<'_>| {
        let (name, kernel) = split_kernel_suffix(row.name);
        let name = TableCell::plain(shortened(name, NAME_CHARS_MAX)).class("mono");
        let mut cells = vec![name, TableCell::plain(cpu_mode(kernel))];
        cells.extend(row.us.into_iter().flat_map(|(was, is)| [us(was), us(is)]));
        cells.push(change_cell(row, all_us));
        cells.extend(row.fractions().map(|fraction| TableCell::figure(Some(format::percent(fraction)))));
        cells
    };
    let is_shown = |row: &&FunctionRow<'_>| row.before.0.max(row.after.0) >= FRACTION_MIN;
    ChartTable { columns, rows: rows.iter().filter(is_shown).take(ROWS_MAX).map(row).collect() }
}

/// Returns the change of a function's own time, highlighted if it matters.
fn change_cell(row: &FunctionRow<'_>, all_us: Option<f64>) -> TableCell {
    let change = row.change();
    let (size, fraction) = match all_us {
        Some(all_us) => (format::value(change.abs(), "us"), change / all_us),
        None => (format::percent(change.abs()), change),
    };
    let sign = match change {
        change if change > 0.0 => "+",
        change if change < 0.0 => "−",
        _ => "",
    };
    let cell = TableCell::figure(Some(format!("{sign}{size}")));
    match fraction {
        fraction if fraction <= -CHANGE_MIN => cell.class("good"),
        fraction if fraction >= CHANGE_MIN => cell.class("bad"),
        _ => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::ChartPart;
    use crate::data_table::parse;
    use crate::synthetic::{ARMS, NoRecords, synthetic_experiment};

    fn tables(chart: &ReportChart) -> Vec<&ChartTable> {
        let mut tables = Vec::new();
        for part in &chart.parts {
            if let ChartPart::Table(table) = part {
                tables.push(table);
            }
        }
        tables
    }

    #[test]
    fn functions_are_ordered_by_their_change() {
        let (experiment, raw) = synthetic_experiment();
        let charts = [chart(&experiment, &raw), crate::charts::calls::chart(&experiment, &raw)].concat();
        let tables: Vec<&ChartTable> = charts.iter().flat_map(tables).collect();
        assert_eq!(tables.len(), 2);
        assert!(tables.iter().all(|table| table.rows.iter().all(|row| row.len() == table.columns.len())));
        // Counted calls are a chart with data of its own, with or without functions.
        let counted = parse(&charts[1].data.to_csv());
        assert_eq!(counted[0], ["call", "arm", "calls_per_response"]);
        assert_eq!(counted.len(), 1 + 2, "{counted:?}");
        assert_eq!(tables[0].rows[0][0].text, "malloc");
        assert_eq!(tables[0].rows[0][4].class, Some("good"));
        let je = tables[0].rows.iter().find(|row| row[0].text == "je_malloc").unwrap();
        assert_eq!((je[4].class, je[2].text.as_str()), (Some("bad"), "0 ns"));
        assert_eq!((tables[1].rows.len(), tables[1].rows[0][1].text.as_str()), (1, "11.00"));
        let rows = parse(&charts[0].data.to_csv());
        assert_eq!(rows[1][..3], [ARMS[2], "malloc", "user"]);
        let (own, difference): (f64, f64) = (rows[1][7].parse().unwrap(), rows[1][9].parse().unwrap());
        assert!((own + difference).abs() < 1e-4, "all of it is gone");
        assert!(charts[0].notes[0].contains("less"), "{:?}", charts[0].notes);
    }

    #[test]
    fn without_stacks_the_table_of_a_trial_is_used() {
        let (experiment, mut raw) = synthetic_experiment();
        raw.trials.values_mut().for_each(|trial| trial.folded = None);
        let charts = chart(&experiment, &raw);
        let tables = tables(&charts[0]);
        assert_eq!(tables[0].rows[0][0].text, "malloc");
        let kernel = tables[0].rows.iter().find(|row| row[0].text == "tcp_sendmsg").unwrap();
        assert_eq!(kernel[1].text, "kernel");
    }

    #[test]
    fn without_time_per_response_fractions_are_compared() {
        let profile = |function| ArmProfile {
            us: None,
            functions: [("f".to_owned(), (function, f64::NAN)), ("g_[k]".to_owned(), (0.5, 0.5))].into(),
        };
        let (before, after) = (profile(0.2), profile(0.3));
        let table = table("a", "b", &function_rows(&before, &after));
        assert_eq!(table.columns.len(), 7);
        assert_eq!(table.rows[0][2], TableCell::figure(Some("+10.0 %".to_owned())).class("bad"));
        assert_eq!(table.rows[1][2].text, "0 %");
    }

    #[test]
    fn no_data_is_no_chart_and_rows_are_bounded() {
        let (mut experiment, _) = synthetic_experiment();
        assert!(chart(&experiment, &NoRecords).is_empty());
        experiment.trials.clear();
        assert!(chart(&experiment, &NoRecords).is_empty());
        let many = |add: f64| ArmProfile {
            us: Some(20.0),
            functions: (0..50_000).map(|n| (n.to_string(), (add + 1e-3 * f64::from(n % 7), 0.1))).collect(),
        };
        let (before, after) = (many(0.01), many(0.02));
        assert_eq!(table("a", "b", &function_rows(&before, &after)).rows.len(), ROWS_MAX);
    }
}
