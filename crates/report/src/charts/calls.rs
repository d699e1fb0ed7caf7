//! Calls of the counted functions and system calls for a response, by call and arm.

use record::experiment::{Arm, Experiment};

use super::{ChartTable, ReportChart, TableCell};
use crate::TrialRecords;
use crate::data::functions::counted_calls;
use crate::data::typical::typical_trials;
use crate::data_table::{DataTable, six_digits};

/// Maximum number of rows, and of arms with a column.
const ROWS_MAX: usize = 25;
const ARMS_MAX: usize = 6;

/// Builds the chart: a table of the calls by arm.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let arms = experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none());
    let arms: Vec<&Arm> = arms.take(ARMS_MAX).collect();
    let typical = typical_trials(experiment, raw);
    let caption = "Calls of the counted functions and system calls per response: medians over the trials \
                   with call counts.";
    let data = DataTable::new("call arm calls_per_response");
    let mut chart = ReportChart::new("calls", "Calls per response", caption, data);
    chart.notes.push("Counting calls costs time: the rates of these trials are not compared.".to_owned());
    let mut columns = vec!["Call".to_owned()];
    columns.extend(arms.iter().map(|arm| arm.name.clone()));
    let mut table = ChartTable { columns, rows: Vec::new() };
    for (call, by_arm) in &counted_calls(experiment, raw, &typical.trials()) {
        let mut row = vec![TableCell::plain(call).class("mono")];
        for arm in &arms {
            let median = by_arm.get(&arm.name).and_then(|all| stats::median(all));
            row.push(TableCell::figure(median.map(|value| format!("{value:.2}"))));
            if let Some(median) = median {
                chart.data.add(&[call, &arm.name, &six_digits(median)]);
            }
        }
        table.rows.push(row);
    }
    table.rows.truncate(ROWS_MAX);
    if table.rows.is_empty() { Vec::new() } else { vec![chart.table(table)] }
}
