//! Disturbances of the trials, and the trials in order.

use experiment::format;
use experiment::trial_counts::TrialStatus;
use record::experiment::{Experiment, ExperimentMetric, TrialSummary};
use record::trial::Covariates;

use super::typical::primary_value;
use crate::data_table::{DataTable, Datum as _, cells};
use crate::plot::shortened;

/// Minimum gap between the names of two blocks, and minimum width of the pilots for a name of their
/// own.
const BLOCK_GAP_MIN: f64 = 26.0;
const PILOTS_WIDTH_MIN: f64 = 48.0;

/// A covariate that is drawn if it was not zero.
pub(crate) struct CovariateFigure {
    /// Name in the plan's bounds, and of its column.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    read: fn(&Covariates) -> Option<f64>,
}

impl CovariateFigure {
    const fn new(
        name: &'static str,
        (title, unit): (&'static str, &'static str),
        read: fn(&Covariates) -> Option<f64>,
    ) -> Self {
        Self { name, title, unit, read }
    }

    pub(crate) fn values(&self, lines: &[&TrialSummary]) -> Vec<(f64, f64)> {
        let values = lines.iter().enumerate();
        let values = values.filter_map(|(at, line)| Some((at as f64, (self.read)(&line.covariates)?)));
        values.filter(|(_, value)| value.is_finite()).collect()
    }
}

/// All covariates, in the order of their panels.
pub(crate) const COVARIATES: &[CovariateFigure] = &[
    CovariateFigure::new("steal_fraction", ("Steal", "fraction"), |of| of.steal_fraction),
    CovariateFigure::new("foreign_cpus", ("CPUs used by other processes", "cpus"), |of| of.foreign_cpus),
    CovariateFigure::new("wake_up_p99_ns", ("Wakeup latency (p99)", "ns"), |of| {
        of.wake_up_p99_ns.map(|ns| ns as f64)
    }),
    CovariateFigure::new("generator_lag_p99_ns", ("Generator lag (p99)", "ns"), |of| {
        of.generator_lag_p99_ns.map(|ns| ns as f64)
    }),
];

pub(crate) fn data_table(experiment: &Experiment, metric: &ExperimentMetric) -> DataTable {
    let data = DataTable::new("trial block attempt arm load").with_columns([metric.name.as_str()]);
    let data = data.with_columns(["counts", "left_out", "failed"]);
    let mut data = data.with_columns(COVARIATES.iter().map(|figure| figure.name));
    for line in &experiment.trials {
        let position = &line.position;
        let mut row = cells(&[&position.number, &position.block, &position.attempt, &position.arm]);
        row.extend(cells(&[&position.load, &primary_value(experiment, line), &line.is_counted()]));
        row.extend(cells(&[&line.discarded.as_ref().map(|why| &why.text), &line.failed]));
        row.extend(COVARIATES.iter().map(|figure| (figure.read)(&line.covariates).text()));
        data.add_row(row);
    }
    data
}

/// Returns the starts of the blocks with their names. `trial_width` is the width of a trial.
pub(crate) fn block_starts(lines: &[&TrialSummary], trial_width: f64) -> Vec<(f64, String)> {
    let mut starts: Vec<(f64, String)> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let new = index == 0 || lines[index - 1].position.block != line.position.block;
        // One or two pilots need no name if the first block begins right after them.
        if new && starts.len() == 1 && lines[0].position.block == 0 {
            let is_wide = index as f64 * trial_width > PILOTS_WIDTH_MIN;
            starts.retain(|(first, _)| *first > 0.0 || is_wide);
        }
        let far = starts.last().is_none_or(|(last, _)| (index as f64 - last) * trial_width > BLOCK_GAP_MIN);
        if new && far {
            let block = line.position.block;
            let name = if block == 0 { "pilots".to_owned() } else { block.to_string() };
            starts.push((index as f64, name));
        }
    }
    starts
}

pub(crate) fn tip(metric: &ExperimentMetric, line: &TrialSummary, value: Option<f64>) -> String {
    let position = &line.position;
    let status = match position.block {
        0 => "pilot".to_owned(),
        block if position.attempt > 1 => format!("block {block}, attempt {}", position.attempt),
        block => format!("block {block}"),
    };
    let mut text = format!("{}, {}, {status}, trial {}", position.arm, position.load, position.number);
    if let Some(value) = value {
        text += &format!("\n{}", format::value(value, &metric.unit));
    }
    if let Some(why) = &line.discarded {
        text += &format!("\n{}: {}", TrialStatus::from_line(line).as_str(), why.text);
    }
    if let Some(why) = &line.failed {
        text += &format!("\nfailed: {}", shortened(why, 200));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_pilots_take_their_own_name_away_and_no_blocks() {
        let line = |block: u32| {
            let position = record::trial::TrialPosition { block, ..Default::default() };
            TrialSummary { position, ..TrialSummary::default() }
        };
        let names = |pilots: u32| -> Vec<String> {
            let blocks = (0..pilots).map(|_| 0).chain((1..=14).flat_map(|block| [block; 4]));
            let lines: Vec<TrialSummary> = blocks.map(line).collect();
            let lines: Vec<&TrialSummary> = lines.iter().collect();
            let starts = block_starts(&lines, 642.0 / lines.len() as f64);
            starts.into_iter().map(|(_, name)| name).collect()
        };
        let all: Vec<String> = (1..=14).map(|block| block.to_string()).collect();
        assert_eq!(names(4), all);
        assert_eq!(names(30)[0], "pilots");
    }
}
