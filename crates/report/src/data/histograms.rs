//! Latency histograms of single trials on a common grid, as columns of strips. Nothing in them is an
//! average.

use std::collections::{BTreeMap, BTreeSet};

use experiment::format;
use record::experiment::{Experiment, TrialSummary};
use record::histogram::LatencyHistogram;
use record::sorted::{CollectSorted, sort_by_key};

use crate::TrialRecords;
use crate::data_table::{DataTable, Datum as _, cells, six_digits};
use crate::plot::Scale;

/// Rows of the finest map in each power of ten: steps of 21 %.
const ROWS_PER_DECADE: i32 = 12;
/// Range of the grid: from 100 ns to 1000 s.
const DECADES: std::ops::Range<i32> = 2..12;
/// Maximum number of rows of a map; more are merged.
const ROWS_MAX: usize = 30;

/// The latencies of one trial, on the grid.
pub(crate) struct TrialColumn<'a> {
    pub(crate) line: &'a TrialSummary,
    pub(crate) p99_ns: u64,
    p50_ns: u64,
    max_ns: u64,
    /// Fractions by row of the grid; empty rows are absent.
    fractions: BTreeMap<i32, f64>,
}

pub(crate) type ArmStrips<'a> = Vec<(&'a str, Vec<TrialColumn<'a>>)>;

impl<'a> TrialColumn<'a> {
    /// Reads the histogram of a trial; `None` if it has none.
    pub(crate) fn read(raw: &dyn TrialRecords, line: &'a TrialSummary) -> Option<Self> {
        let summary = raw.trial(&line.file)?.run?.latency.last_byte.response;
        let latencies = LatencyHistogram::decode(&summary.hdr).ok().filter(|all| !all.is_empty())?;
        let (min_ns, max_ns) = (latencies.value_at_quantile(0.0) as f64, latencies.max_ns() as f64);
        let (first, last) = (DECADES.start * ROWS_PER_DECADE, DECADES.end * ROWS_PER_DECADE);
        let mut fractions = BTreeMap::new();
        let mut below = 0.0;
        for row in (first..=last).filter(|row| upper_edge_ns(*row) >= min_ns || *row == last) {
            let edge_ns = upper_edge_ns(row);
            let is_end = edge_ns >= max_ns || row == last;
            let within = if is_end { 1.0 } else { latencies.fraction_within(edge_ns as u64) };
            if within - below > 0.0 {
                fractions.insert(row, within - below);
            }
            below = within;
            if below >= 1.0 {
                break;
            }
        }
        let (p50_ns, p99_ns, max_ns) = (summary.p50_ns, summary.p99_ns, summary.max_ns);
        Some(Self { line, p99_ns, p50_ns, max_ns, fractions })
    }

    /// Returns the block and the attempt, which are the position of the column in every strip.
    pub(crate) fn position(&self) -> (u32, u32) {
        (self.line.position.block, self.line.position.attempt)
    }

    pub(crate) fn tip(&self) -> String {
        let position = &self.line.position;
        let again = if position.attempt > 1 { " again" } else { "" };
        let [p50, p99, max] =
            [self.p50_ns, self.p99_ns, self.max_ns].map(|ns| format::value(ns as f64, "ns"));
        format!(
            "{}, block {}{again}, trial {}\np50 {p50}\np99 {p99}\nmax {max}",
            position.arm, position.block, position.number
        )
    }
}

fn upper_edge_ns(row: i32) -> f64 {
    10f64.powf(f64::from(row) / f64::from(ROWS_PER_DECADE))
}

pub(crate) struct RowRange {
    /// Row below the first used row of the grid.
    low: i32,
    /// Number of merged grid rows in a row of the map.
    step: i32,
    pub(crate) count: i32,
}

impl RowRange {
    /// Returns the rows that all strips use, merged if they are many.
    pub(crate) fn covering(strips: &ArmStrips<'_>) -> Self {
        let used =
            || strips.iter().flat_map(|(_, columns)| columns).flat_map(|column| column.fractions.keys());
        let low = used().min().map_or(0, |row| row - 1);
        let high = used().max().copied().unwrap_or(1).max(low + 1);
        let step = (high - low + ROWS_MAX as i32 - 1) / ROWS_MAX as i32;
        Self { low, step, count: (high - low + step - 1) / step }
    }

    /// Returns the scale of latencies in ns.
    pub(crate) fn scale(&self) -> Scale {
        Scale::log(upper_edge_ns(self.low), upper_edge_ns(self.low + self.count * self.step))
    }

    /// Returns the fractions of a column: the ends of each row in ns, with its fraction.
    pub(crate) fn merged(&self, column: &TrialColumn<'_>) -> Vec<((f64, f64), f64)> {
        let mut merged: BTreeMap<i32, f64> = BTreeMap::new();
        for (row, fraction) in &column.fractions {
            *merged.entry((row - 1 - self.low) / self.step).or_default() += fraction;
        }
        let edge_ns = |row: i32| upper_edge_ns(self.low + row * self.step);
        let ends = merged.into_iter().map(|(row, fraction)| ((edge_ns(row), edge_ns(row + 1)), fraction));
        ends.collect()
    }
}

/// Returns the strips of one load: the arms in their order, each A/A arm next to its original. Of
/// many trials, evenly spaced ones have a column.
pub(crate) fn strips<'a>(
    experiment: &'a Experiment,
    raw: &dyn TrialRecords,
    lines: &[&'a TrialSummary],
    (load, columns_max, strips_max): (&str, usize, usize),
) -> ArmStrips<'a> {
    let arm_strip = |arm: &'a str| {
        let is_own = |line: &&&TrialSummary| line.position.arm == arm && line.position.load == load;
        let own: Vec<&TrialSummary> = lines.iter().filter(is_own).copied().collect();
        let stride = own.len().div_ceil(columns_max).max(1);
        let columns = own.into_iter().step_by(stride).filter_map(|line| TrialColumn::read(raw, line));
        (arm, columns.collect())
    };
    experiment.plan.arms.iter().take(strips_max).map(|arm| arm_strip(&arm.name)).collect()
}

/// Returns the blocks and attempts that have a column, in the order of running.
pub(crate) fn trial_positions(strips: &ArmStrips<'_>) -> Vec<(u32, u32)> {
    let mut first: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for column in strips.iter().flat_map(|(_, columns)| columns) {
        let number = column.line.position.number;
        first.entry(column.position()).and_modify(|first| *first = number.min(*first)).or_insert(number);
    }
    let mut positions: Vec<(u32, u32)> = first.keys().copied().collect();
    sort_by_key(&mut positions, |position| first.get(position).copied());
    positions
}

/// Returns a row for each trial and a column for each used row of the grid. A line for each cell
/// would be ten times as long.
pub(crate) fn data_table(strips: &ArmStrips<'_>) -> DataTable {
    let all = || strips.iter().flat_map(|(_, columns)| columns);
    let used: BTreeSet<i32> = all().flat_map(|column| column.fractions.keys().copied()).collect_set();
    let names = used.iter().map(|row| format!("to_{}_ns", six_digits(upper_edge_ns(*row).round())));
    let mut data = DataTable::new("load arm block trial").with_columns(names);
    for column in all() {
        let position = &column.line.position;
        let mut row = cells(&[&position.load, &position.arm, &position.block, &position.number]);
        // Three digits: there are some thousand of them.
        let rounded = |fraction: &f64| format!("{fraction:.2e}").parse::<f64>().ok();
        row.extend(used.iter().map(|row| column.fractions.get(row).and_then(rounded).text()));
        data.add_row(row);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::synthetic_experiment;

    #[test]
    fn a_fraction_is_in_the_row_of_its_latency() {
        let (experiment, raw) = synthetic_experiment();
        let line = experiment.trials.iter().find(|line| line.position.block == 1).unwrap();
        let column = TrialColumn::read(&raw, line).unwrap();
        let is_faster = |row: &i32| upper_edge_ns(*row) < column.p50_ns as f64;
        let half: f64 = column.fractions.iter().filter(|(row, _)| is_faster(row)).map(|(_, part)| part).sum();
        assert!(half <= 0.5 && half > 0.2, "{half}");
        assert!(upper_edge_ns(*column.fractions.keys().max().unwrap()) >= column.max_ns as f64 * 0.999);
    }
}
