//! CPU time of the subject by function: the baseline beside each arm, as time per response, so
//! that arms of different rates can be compared. Also the number of calls of counted functions per
//! response. [`super::flame`] shows the callers.

use std::collections::BTreeMap;

use experiment::format;
use record::experiment::{Arm, Experiment};
use record::trial::ExperimentTrial;

use super::panel::six_digits;
use super::stacks::{self, US_PER_RESPONSE, split_kernel_suffix};
use super::typical_trials::{TypicalTrial, typical_trials};
use super::{ChartPart, ChartTable, ReportChart, TableCell};
use crate::TrialRecords;
use crate::data_table::DataTable;
use crate::svg::shortened;

/// Maximum number of rows of a table: later rows are too small to act on.
const ROWS_MAX: usize = 25;
/// Maximum number of arms with a table.
const ARMS_MAX: usize = 6;
/// Maximum number of functions of each arm in the figures.
const DATA_FUNCTIONS_MAX: usize = 300;
/// Fraction below which, in both arms, a function is left out of the table.
const FRACTION_MIN: f64 = 0.000_5;
/// Letters of a name in a table.
const NAME_CHARS_MAX: usize = 80;
/// Metric of the calls that the experiment counts, per response.
const CALLS_METRIC: &str = "calls_per_response";
/// Maximum number of unjudged trials that are searched for counted calls: pilots and probes are
/// few.
const PROBES_MAX: usize = 60;
/// Change, as a fraction of all time, from which a row is highlighted.
const CHANGE_MIN: f64 = 0.002;

/// Profile of an arm: fractions of the time with a function on top of the stack, and anywhere in
/// it.
#[derive(Debug, Default)]
struct ArmProfile {
    /// CPU time of a response, in µs.
    us: Option<f64>,
    functions: BTreeMap<String, (f64, f64)>,
}

impl ArmProfile {
    /// Reads the stacks of all counting trials, or else the table of the typical one.
    fn read(
        experiment: &Experiment,
        raw: &dyn TrialRecords,
        arm: &str,
        all: &[&TypicalTrial<'_>],
    ) -> Option<Self> {
        if let Some(stacks) = stacks::arm_stacks(experiment, raw, arm) {
            let fraction = |samples| stacks.weight(samples, false);
            let functions = stacks.functions().into_iter();
            let functions =
                functions.map(|(name, (own, total))| (name.to_owned(), (fraction(own), fraction(total))));
            return Some(Self { us: stacks.us_per_response, functions: functions.collect() });
        }
        let typical_trial = all.iter().find(|one| one.arm() == arm)?;
        let mut functions: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let observed = typical_trial.observed().flat_map(|machine| &machine.functions);
        for function in observed.filter(|function| function.role == "subject") {
            if function.self_fraction.is_finite() && function.total_fraction.is_finite() {
                let suffix = if function.module == "[kernel]" { "_[k]" } else { "" };
                let name = format!("{}{suffix}", function.function);
                functions.insert(name, (function.self_fraction, function.total_fraction));
            }
        }
        let us = typical_trial.line.metrics.get(US_PER_RESPONSE).copied();
        let us = us.filter(|us| us.is_finite() && *us > 0.0);
        (!functions.is_empty()).then_some(Self { us, functions })
    }
}

/// A function in both arms.
#[derive(Clone, Copy, Debug)]
struct FunctionRow<'a> {
    name: &'a str,
    before: (f64, f64),
    after: (f64, f64),
    /// Time of a response with the function on top, in µs, in both arms.
    us: Option<(f64, f64)>,
}

impl FunctionRow<'_> {
    /// Returns the growth of the function's own time: in µs, or as a fraction.
    fn change(&self) -> f64 {
        let (was, is) = self.us.unwrap_or((self.before.0, self.after.0));
        is - was
    }
}

/// Builds the charts: a table for each arm against the baseline, and one of counted calls.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let plan = &experiment.plan;
    let trial_groups = typical_trials(experiment, raw);
    let trials: Vec<&TypicalTrial<'_>> = trial_groups.groups.iter().flat_map(|group| &group.trials).collect();
    let others = plan.arms.iter().filter(|arm| arm.repeats.is_none() && arm.name != plan.baseline);
    let others: Vec<&Arm> = others.take(ARMS_MAX).collect();
    let caption = "CPU time by function, without (self) and with its callees (total), sorted by the change \
                   of the self time per response. Changes of at least 0.2 % of all time are coloured.";
    let columns = [
        "arm",
        "function",
        "mode",
        "baseline_self_fraction",
        "self_fraction",
        "baseline_total_fraction",
        "total_fraction",
        "baseline_self_us",
        "self_us",
        "difference",
    ];
    let title = "Functions side by side";
    let mut chart = ReportChart::new("functions", title, caption, DataTable::new(&columns));
    if let Some(before) = ArmProfile::read(experiment, raw, &plan.baseline, &trials) {
        for arm in &others {
            let Some(after) = ArmProfile::read(experiment, raw, &arm.name, &trials) else {
                continue;
            };
            let rows = rows(&before, &after);
            rows.iter().take(DATA_FUNCTIONS_MAX).for_each(|row| chart.data.add_row(data_table(arm, row)));
            chart.parts.push(ChartPart::Heading(format!("{} against {}", arm.name, plan.baseline)));
            chart.parts.push(ChartPart::Table(table(&plan.baseline, &arm.name, &rows)));
            chart.notes.extend(totals_text(&plan.baseline, &arm.name, &before, &after));
        }
    }
    let functions = (!chart.parts.is_empty()).then_some(chart);
    functions.into_iter().chain(calls_chart(experiment, raw, &trials)).collect()
}

/// Returns every function of either arm, the largest change first.
fn rows<'a>(before: &'a ArmProfile, after: &'a ArmProfile) -> Vec<FunctionRow<'a>> {
    let us = before.us.zip(after.us);
    let mut names: Vec<&str> = before.functions.keys().map(String::as_str).collect();
    names.extend(after.functions.keys().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    let fractions = |profile: &ArmProfile, name| profile.functions.get(name).copied().unwrap_or_default();
    let row = |name| {
        let (before, after) = (fractions(before, name), fractions(after, name));
        let us = us.map(|(was, is)| (was * before.0, is * after.0));
        FunctionRow { name, before, after, us }
    };
    let mut rows: Vec<FunctionRow<'_>> = names.into_iter().map(row).collect();
    rows.sort_by(|a, b| {
        let by_change = b.change().abs().total_cmp(&a.change().abs());
        by_change.then_with(|| b.before.0.total_cmp(&a.before.0)).then_with(|| a.name.cmp(b.name))
    });
    rows
}

fn data_table(arm: &Arm, row: &FunctionRow<'_>) -> Vec<String> {
    let (name, kernel) = split_kernel_suffix(row.name);
    let mut cells = vec![arm.name.clone(), name.to_owned(), cpu_mode(kernel).to_owned()];
    let fractions = [row.before.0, row.after.0, row.before.1, row.after.1];
    cells.extend(fractions.map(six_digits));
    cells.push(row.us.map_or_else(String::new, |(was, _)| six_digits(was)));
    cells.push(row.us.map_or_else(String::new, |(_, is)| six_digits(is)));
    cells.push(six_digits(row.change()));
    cells
}

fn cpu_mode(kernel: bool) -> &'static str {
    if kernel { "kernel" } else { "user" }
}

fn table(baseline: &str, arm: &str, rows: &[FunctionRow<'_>]) -> ChartTable {
    let with_us = rows.iter().any(|row| row.us.is_some());
    let mut columns = vec!["Function".to_owned(), "Mode".to_owned()];
    if with_us {
        columns.extend([format!("{baseline}: self"), format!("{arm}: self")]);
    }
    columns.push(if with_us { "Difference per response" } else { "Difference of the fraction" }.to_owned());
    columns.extend([
        format!("{baseline}: self, fraction"),
        format!("{arm}: self, fraction"),
        format!("{baseline}: total, fraction"),
        format!("{arm}: total, fraction"),
    ]);
    let all_us: f64 = rows.iter().filter_map(|row| row.us).map(|(was, _)| was).sum();
    let is_shown = rows.iter().filter(|row| row.before.0.max(row.after.0) >= FRACTION_MIN);
    let cells = |row: &FunctionRow<'_>| {
        let (name, kernel) = split_kernel_suffix(row.name);
        let mut cells = vec![
            TableCell::plain(shortened(name, NAME_CHARS_MAX)).class("mono"),
            TableCell::plain(cpu_mode(kernel)),
        ];
        if with_us {
            cells.push(TableCell::figure(row.us.map(|(was, _)| format::value(was, "us"))));
            cells.push(TableCell::figure(row.us.map(|(_, is)| format::value(is, "us"))));
        }
        cells.push(difference(row, all_us));
        let fractions = [row.before.0, row.after.0, row.before.1, row.after.1];
        cells.extend(fractions.map(|fraction| TableCell::figure(Some(format::percent(fraction)))));
        cells
    };
    ChartTable { columns, rows: is_shown.take(ROWS_MAX).map(cells).collect() }
}

/// Returns the change of a function's own time, highlighted if it matters.
fn difference(row: &FunctionRow<'_>, all_us: f64) -> TableCell {
    let change = row.change();
    let (text, fraction) = match row.us {
        Some(_) => (format::value(change.abs(), "us"), change / all_us),
        None => (format::percent(change.abs()), change),
    };
    let sign = match change {
        change if change > 0.0 => "+",
        change if change < 0.0 => "−",
        _ => "",
    };
    let cell = TableCell::figure(Some(format!("{sign}{text}")));
    match fraction {
        change_fraction if change_fraction <= -CHANGE_MIN => cell.class("good"),
        change_fraction if change_fraction >= CHANGE_MIN => cell.class("bad"),
        _ => cell,
    }
}

/// Returns the totals of both arms.
fn totals_text(baseline: &str, arm: &str, before: &ArmProfile, after: &ArmProfile) -> Option<String> {
    let (was, is) = before.us.zip(after.us)?;
    Some(format!(
        "CPU time per response: {arm} {}, {baseline} {}: {}.",
        format::value(is, "us"),
        format::value(was, "us"),
        format::change_text(is / was)
    ))
}

/// Builds the chart of calls for a response, by call and arm.
fn calls_chart(
    experiment: &Experiment,
    raw: &dyn TrialRecords,
    typical: &[&TypicalTrial<'_>],
) -> Option<ReportChart> {
    let arms: Vec<&Arm> =
        experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()).take(ARMS_MAX).collect();
    let mut calls_by_arm: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    let judged = typical.iter().map(|one| &one.trial);
    judged.for_each(|trial| add_calls(trial, &mut calls_by_arm));
    if experiment.plan.calls.is_some() {
        let probes = experiment.trials.iter().filter(|line| line.position.block == 0);
        let probes = probes.filter(|line| line.failed.is_none()).take(PROBES_MAX);
        let read: Vec<ExperimentTrial> = probes.filter_map(|line| raw.trial(&line.file)).collect();
        read.iter().for_each(|trial| add_calls(trial, &mut calls_by_arm));
    }
    let mut names: Vec<&String> = calls_by_arm.keys().map(|(call, _)| call).collect();
    names.dedup();
    let mut columns = vec!["Call".to_owned()];
    columns.extend(arms.iter().map(|arm| arm.name.clone()));
    let median = |call: &String, arm: &Arm| {
        let values = calls_by_arm.get(&(call.clone(), arm.name.clone()));
        values.and_then(|all| stats::median(all))
    };
    let row = |call: &&String| {
        let median_text =
            |arm: &&Arm| TableCell::figure(median(call, arm).map(|value| format!("{value:.2}")));
        let mut cells = vec![TableCell::plain((*call).clone()).class("mono")];
        cells.extend(arms.iter().map(median_text));
        cells
    };
    let rows: Vec<Vec<TableCell>> = names.iter().take(ROWS_MAX).map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let mut data = DataTable::new(&["call", "arm", "calls_per_response"]);
    for call in names {
        for arm in &arms {
            let Some(median) = median(call, arm) else { continue };
            data.add_row(vec![call.clone(), arm.name.clone(), six_digits(median)]);
        }
    }
    let caption = "Calls of the counted functions and system calls per response: medians over the trials \
                   with call counts.";
    let mut chart = ReportChart::new("calls", "Calls per response", caption, data);
    chart.notes.push("Counting calls costs time: the rates of these trials are not compared.".to_owned());
    Some(chart.table(ChartTable { columns, rows }))
}

/// Adds the subject's counted calls of a trial, for each response.
fn add_calls(trial: &ExperimentTrial, calls_by_arm: &mut BTreeMap<(String, String), Vec<f64>>) {
    if let (Some(calls), Some(each)) = (&trial.calls, trial.metrics.get(CALLS_METRIC)) {
        let key = (calls.count.call.clone(), trial.position.arm.clone());
        calls_by_arm.entry(key).or_default().push(*each);
    }
    let of_run = trial.run.as_ref().map(|run| run.rates.responses_per_s);
    let Some(rate) = of_run.or_else(|| trial.metrics.get("responses_per_s").copied()) else {
        return;
    };
    let of_run = trial.run.iter().flat_map(|run| &run.observed);
    let calls = of_run.chain(&trial.observed).flat_map(|observed| &observed.calls);
    for call in calls.filter(|call| call.role == "subject") {
        let calls_per_response = call.count as f64 / call.length_s / rate;
        if calls_per_response.is_finite() {
            let key = (call.call.clone(), trial.position.arm.clone());
            calls_by_arm.entry(key).or_default().push(calls_per_response);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let charts = chart(&experiment, &raw);
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
        let table = table("a", "b", &rows(&before, &after));
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
        assert_eq!(table("a", "b", &rows(&before, &after)).rows.len(), ROWS_MAX);
    }
}
