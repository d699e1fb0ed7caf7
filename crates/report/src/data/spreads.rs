//! Spread of each metric over the trials of each arm.

use record::experiment::{Arm, Experiment, ExperimentMetric, LoadPlan, ValueDistribution};

use super::trials::{cell, metric_unit};
use crate::data_table::{DataTable, cells};

/// A row: an arm under a load, and its spread.
pub(crate) type SpreadRow<'a> = (&'a Arm, &'a LoadPlan, &'a ValueDistribution);

/// Returns the rows of a metric by load, then by arm.
pub(crate) fn spread_rows<'a>(experiment: &'a Experiment, metric: &ExperimentMetric) -> Vec<SpreadRow<'a>> {
    let plan = &experiment.plan;
    let all = plan.loads.iter().flat_map(|load| plan.arms.iter().map(move |arm| (arm, load)));
    let to_row = all.filter_map(|(arm, load)| {
        Some((arm, load, cell(experiment, &arm.name, &load.name)?.metrics.get(&metric.name)?))
    });
    to_row.collect()
}

/// Returns the value of all trials if it is the same.
pub(crate) fn common_value(rows: &[SpreadRow<'_>]) -> Option<f64> {
    let (_, _, first) = rows.first()?;
    rows.iter().all(|(_, _, spread)| [spread.min, spread.max] == [first.min; 2]).then_some(first.min)
}

/// Returns the spread of every metric in every cell.
pub(crate) fn data_table(experiment: &Experiment) -> DataTable {
    let columns = "load arm metric unit trials min p25 median p75 max median_low median_high";
    let mut data = DataTable::new(columns);
    for cell in &experiment.cells {
        for (name, spread) in &cell.metrics {
            let (low, high) = spread.median_interval.unzip();
            let mut row = cells(&[&cell.load, &cell.arm, name, &metric_unit(experiment, name), &cell.trials]);
            row.extend(cells(&[&spread.min, &spread.p25, &spread.median, &spread.p75, &spread.max]));
            row.extend(cells(&[&low, &high]));
            data.add_row(row);
        }
    }
    data
}
