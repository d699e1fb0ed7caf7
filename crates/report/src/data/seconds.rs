//! Figures of the seconds within a trial: rate, latency and CPUs.

use std::collections::{BTreeMap, BTreeSet};

use experiment::format;
use record::run::Interval;
use record::sorted::CollectSorted;

use super::typical::{LoadGroup, TypicalTrial};
use crate::data_table::{DataTable, Datum as _};
use crate::plot::extent;

/// Maximum number of points of a line: a reader cannot distinguish more, and every point has a tip.
const POINTS_MAX: f64 = 80.0;

/// Values of a figure: end of the period, its length, and the value.
type TimedValues = Vec<(f64, f64, f64)>;

/// A figure with a panel of its own.
pub(crate) struct TimeFigure {
    pub(crate) title: &'static str,
    pub(crate) column: &'static str,
    pub(crate) unit: &'static str,
    read: fn(&TypicalTrial<'_>) -> TimedValues,
}

impl TimeFigure {
    const fn new(
        (title, column, unit): (&'static str, &'static str, &'static str),
        read: fn(&TypicalTrial<'_>) -> TimedValues,
    ) -> Self {
        Self { title, column, unit, read }
    }

    /// Returns whether several seconds give their maximum: a mean of percentiles is not a percentile.
    fn keeps_max(&self) -> bool {
        self.unit == "ns"
    }
}

/// All figures, in the order of their panels.
pub(crate) const TIME_FIGURES: &[TimeFigure] = &[
    TimeFigure::new(("Good responses per second", "responses_per_s", "1/s"), |trial| {
        let rate = |s: &Interval| Some(s.good.unwrap_or(s.responses) as f64 / s.length_s);
        interval_values(trial, |second| rate(second).filter(|_| second.length_s > 0.0))
    }),
    TimeFigure::new(("Median latency", "p50_ns", "ns"), |trial| {
        interval_values(trial, |second| second.p50_ns.map(|ns| ns as f64))
    }),
    TimeFigure::new(("p99 latency", "p99_ns", "ns"), |trial| {
        interval_values(trial, |second| second.p99_ns.map(|ns| ns as f64))
    }),
    TimeFigure::new(("CPUs used by the subject", "subject_cpus", "cpus"), |trial| {
        role_cpus(trial, "subject")
    }),
    TimeFigure::new(("CPUs used by the generator", "generator_cpus", "cpus"), |trial| {
        let cpus = role_cpus(trial, "generator");
        if cpus.is_empty() { interval_values(trial, |second| second.own_cpus) } else { cpus }
    }),
    TimeFigure::new(("CPUs used by the origin", "origin_cpus", "cpus"), |trial| role_cpus(trial, "origin")),
];

/// Returns a figure of the measured seconds that have it. Latencies of the drain would be those of
/// its slowest requests only.
fn interval_values(trial: &TypicalTrial<'_>, figure: impl Fn(&Interval) -> Option<f64>) -> TimedValues {
    let seconds = trial.trial.run.iter().flat_map(|run| &run.intervals);
    let measured = seconds.filter(|second| second.measured);
    measured.filter_map(|s| Some((s.time_s, s.length_s, figure(s)?))).collect()
}

fn role_cpus(trial: &TypicalTrial<'_>, role: &str) -> TimedValues {
    let mut points = Vec::new();
    for observed in trial.observed() {
        let Some(index) = observed.roles.iter().position(|own| own.name == role) else { continue };
        let samples = observed.samples.iter().filter(|sample| sample.time_s > 0.0);
        points.extend(samples.filter_map(|sample| {
            let used = sample.roles.get(index)?;
            Some((sample.time_s, sample.length_s, used.cpus()))
        }));
    }
    points
}

/// Values of one trial by figure and time, on a grid that all trials of a load have in common.
pub(crate) type TrialGrid = BTreeMap<i64, [Option<f64>; TIME_FIGURES.len()]>;

/// The typical trials of a load on their common grid.
pub(crate) struct TimeGrid<'a> {
    pub(crate) step_s: f64,
    pub(crate) trials: Vec<(&'a TypicalTrial<'a>, TrialGrid)>,
}

impl<'a> TimeGrid<'a> {
    pub(crate) fn read(group: &'a LoadGroup<'a>) -> Self {
        let read = |trial| TIME_FIGURES.iter().map(|figure| (figure.read)(trial)).collect();
        let all: Vec<Vec<TimedValues>> = group.trials.iter().map(read).collect();
        let times = all.iter().flatten().flatten().map(|(time_s, ..)| *time_s);
        let longest_s = extent(times).map_or(0.0, |(_, longest)| longest);
        let step_s = (longest_s / POINTS_MAX).ceil().max(1.0);
        let grids = all.iter().map(|figures| grid(figures, step_s));
        Self { step_s, trials: group.trials.iter().zip(grids).collect() }
    }

    /// Returns the end of the last step.
    pub(crate) fn longest_s(&self) -> f64 {
        let last = self.trials.iter().flat_map(|(_, grid)| grid.keys()).max().copied().unwrap_or(1);
        (last as f64 * self.step_s).max(1.0)
    }

    pub(crate) fn points(&self, grid: &TrialGrid, figure: usize) -> Vec<(f64, f64)> {
        let values = grid.iter().filter_map(|(step, values)| Some((*step, values[figure]?)));
        values.map(|(step, value)| (step as f64 * self.step_s, value)).collect()
    }

    pub(crate) fn step_tips(&self) -> impl Iterator<Item = ((f64, f64), String)> {
        let steps: BTreeSet<i64> =
            self.trials.iter().flat_map(|(_, grid)| grid.keys()).copied().collect_set();
        steps.into_iter().map(|step| {
            let at_s = step as f64 * self.step_s;
            let mut tip = format::value(at_s, "s");
            for (trial, grid) in &self.trials {
                let Some(values) = grid.get(&step) else { continue };
                let texts = TIME_FIGURES.iter().zip(values).filter_map(|(figure, value)| {
                    let name = figure.column.rsplit_once('_').map_or(figure.column, |(name, _)| name);
                    let name = if figure.unit == "1/s" { "" } else { name };
                    value.map(|value| format!("{name} {}", format::value(value, figure.unit)))
                });
                let texts: Vec<String> = texts.collect();
                tip += &format!("\n{}: {}", trial.arm(), texts.join(", ").trim_start());
            }
            ((at_s - self.step_s / 2.0, at_s + self.step_s / 2.0), tip)
        })
    }

    /// Adds the figures: time, and a column for each.
    pub(crate) fn add_rows(&self, data: &mut DataTable) {
        for (trial, grid) in &self.trials {
            for (step, values) in grid {
                let mut row = trial.key_cells();
                row.push((*step as f64 * self.step_s).text());
                row.extend(values.iter().map(|value| value.text()));
                data.add_row(row);
            }
        }
    }
}

fn grid(figures: &[TimedValues], step_s: f64) -> TrialGrid {
    let mut grid = TrialGrid::new();
    // Lengths that the mean of a cell covers.
    let mut lengths_s: BTreeMap<(i64, usize), f64> = BTreeMap::new();
    for (index, (figure, points)) in TIME_FIGURES.iter().zip(figures).enumerate() {
        for &(time_s, length_s, value) in points {
            if !(time_s.is_finite() && value.is_finite() && length_s > 0.0 && time_s > 0.0) {
                continue;
            }
            let step = (time_s / step_s).round() as i64;
            let cell = &mut grid.entry(step).or_default()[index];
            let before_s = lengths_s.entry((step, index)).or_default();
            *cell = Some(match *cell {
                None => value,
                Some(before) if figure.keeps_max() => before.max(value),
                Some(before) => (before * *before_s + value * length_s) / (*before_s + length_s),
            });
            *before_s += length_s;
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_of_time_and_percentiles_keep_the_worst() {
        let points = vec![(4.9, 1.0, 10.0), (5.1, 3.0, 20.0)];
        let figures = [points.clone(), points.clone(), points, vec![], vec![], vec![]];
        let grid = grid(&figures, 5.0);
        assert_eq!(grid[&1][..4], [Some(17.5), Some(20.0), Some(20.0), None]);
    }
}
