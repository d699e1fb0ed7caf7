//! Time within a trial, second by second: rate, latency and CPUs of a typical trial of each arm,
//! one above the other. [`super::timeline`] shows the trials one after the other.

use std::collections::BTreeMap;

use experiment::format;
use record::experiment::Experiment;
use record::run::Interval;
use record::trial::ExperimentTrial;

use super::panel::{self, RIGHT, WIDTH, X_AXIS_HEIGHT};
use super::typical_trials::{LoadGroup, TypicalTrial, load_heading, typical_trials};
use super::{ChartPart, LegendEntry, ReportChart, series_index};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Axis, Scale, Shape, Svg, extent};

/// Maximum number of points of a line: a reader cannot distinguish more, and every point has a tip.
const POINTS_MAX: f64 = 80.0;
/// Height of a panel and the gap above it.
const PANEL_HEIGHT: f64 = 78.0;
const PANEL_GAP: f64 = 40.0;

/// Values of a figure: end of the period, its length, and the value.
type TimedValues = Vec<(f64, f64, f64)>;

/// Method of combining the figures of several seconds.
#[derive(Clone, Copy, PartialEq)]
enum Aggregation {
    /// The mean.
    Mean,
    /// The maximum, because a mean of percentiles is not a percentile.
    Max,
}

/// A panel.
struct TimePanel {
    /// Title of the panel.
    title: &'static str,
    /// Name of its column in the figures.
    column: &'static str,
    /// Unit of the values.
    unit: &'static str,
    fold: Aggregation,
    read: fn(&TypicalTrial<'_>) -> TimedValues,
}

/// All panels, from top to bottom.
const TIME_PANELS: &[TimePanel] = &[
    TimePanel {
        title: "Good responses per second",
        column: "responses_per_s",
        unit: "1/s",
        fold: Aggregation::Mean,
        read: |one| {
            interval_values(&one.trial, |s| {
                Some(s.good.unwrap_or(s.responses) as f64 / s.length_s).filter(|_| s.length_s > 0.0)
            })
        },
    },
    TimePanel {
        title: "Median latency",
        column: "p50_ns",
        unit: "ns",
        fold: Aggregation::Max,
        read: |one| interval_values(&one.trial, |second| second.p50_ns.map(|ns| ns as f64)),
    },
    TimePanel {
        title: "p99 latency",
        column: "p99_ns",
        unit: "ns",
        fold: Aggregation::Max,
        read: |one| interval_values(&one.trial, |second| second.p99_ns.map(|ns| ns as f64)),
    },
    TimePanel {
        title: "CPUs used by the subject",
        column: "subject_cpus",
        unit: "cpus",
        fold: Aggregation::Mean,
        read: |one| role_cpus(one, "subject"),
    },
    TimePanel {
        title: "CPUs used by the generator",
        column: "generator_cpus",
        unit: "cpus",
        fold: Aggregation::Mean,
        read: |one| {
            let cpus = role_cpus(one, "generator");
            match cpus.is_empty() {
                true => interval_values(&one.trial, |second| second.own_cpus),
                false => cpus,
            }
        },
    },
    TimePanel {
        title: "CPUs used by the origin",
        column: "origin_cpus",
        unit: "cpus",
        fold: Aggregation::Mean,
        read: |one| role_cpus(one, "origin"),
    },
];

/// Returns a figure of the measured seconds that have it. Latencies of the drain would be those of
/// its slowest requests only.
fn interval_values(trial: &ExperimentTrial, figure: impl Fn(&Interval) -> Option<f64>) -> TimedValues {
    let seconds = trial.run.iter().flat_map(|run| &run.intervals);
    let measured = seconds.filter(|second| second.measured);
    measured.filter_map(|s| Some((s.time_s, s.length_s, figure(s)?))).collect()
}

/// Returns the CPUs that a role used.
fn role_cpus(one: &TypicalTrial<'_>, role: &str) -> TimedValues {
    let mut points = Vec::new();
    for observed in one.observed() {
        let Some(index) = observed.roles.iter().position(|own| own.name == role) else { continue };
        let samples = observed.samples.iter().filter(|sample| sample.time_s > 0.0);
        points.extend(samples.filter_map(|sample| {
            let used = sample.roles.get(index)?;
            Some((sample.time_s, sample.length_s, used.cpus()))
        }));
    }
    points
}

/// Values of one trial by panel and time, on a grid that all trials of a load have in common.
type TrialGrid = BTreeMap<i64, [Option<f64>; TIME_PANELS.len()]>;

/// Builds the chart: a drawing for each load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let trial_groups = typical_trials(experiment, raw);
    if trial_groups.groups.is_empty() {
        return Vec::new();
    }
    let title = "Inside a trial, per second";
    let caption = "The trial of each arm with the median of the primary metric. A line that is not level \
                   is not steady, or was disturbed; shaded seconds are not measured.";
    let mut columns = vec!["load", "arm", "trial", "time_s"];
    columns.extend(TIME_PANELS.iter().map(|row| row.column));
    let mut chart = ReportChart::new("over-time", title, caption, DataTable::new(&columns));
    let mut legend: Vec<LegendEntry> = Vec::new();
    for group in &trial_groups.groups {
        let (step_s, grids) = grids(group);
        if grids.iter().all(BTreeMap::is_empty) {
            continue;
        }
        if step_s > 1.0 {
            chart.notes.push(format!(
                "{}: each point is {step_s:.0} s; latencies are the max of its seconds.",
                group.load
            ));
        }
        for (one, grid) in group.trials.iter().zip(&grids) {
            add_rows(&mut chart.data, group.load, one, grid, step_s);
            let series = series_index(&experiment.plan, one.arm());
            if !legend.iter().any(|known| known.number == series) {
                legend.push(LegendEntry { number: series, name: one.arm().to_owned() });
            }
        }
        chart.parts.extend(load_heading(experiment, group.load).map(ChartPart::Heading));
        chart.parts.push(ChartPart::Drawing(drawing(experiment, group, &grids, step_s)));
    }
    if chart.parts.is_empty() {
        let why = "These trials have no figures per second: the driver reports none, and the machine was \
                   not observed.";
        return vec![ReportChart::empty("over-time", title, caption, why)];
    }
    chart.notes.extend(trial_groups.notes);
    vec![chart.legend(legend)]
}

/// Returns the step of the grid, and each trial's values on it.
fn grids(group: &LoadGroup<'_>) -> (f64, Vec<TrialGrid>) {
    let read = |one| TIME_PANELS.iter().map(|row| (row.read)(one)).collect();
    let all: Vec<Vec<TimedValues>> = group.trials.iter().map(read).collect();
    let times = all.iter().flatten().flatten().map(|(time_s, ..)| *time_s);
    let longest_s = extent(times).map_or(0.0, |(_, longest)| longest);
    let step_s = (longest_s / POINTS_MAX).ceil().max(1.0);
    (step_s, all.iter().map(|rows| grid(rows, step_s)).collect())
}

fn grid(rows: &[TimedValues], step_s: f64) -> TrialGrid {
    let mut grid = TrialGrid::new();
    // Weight and sum by panel and position.
    let mut weights: BTreeMap<(i64, usize), f64> = BTreeMap::new();
    for (index, (row, points)) in TIME_PANELS.iter().zip(rows).enumerate() {
        for &(time_s, length_s, value) in points {
            if !(time_s.is_finite() && value.is_finite() && length_s > 0.0 && time_s > 0.0) {
                continue;
            }
            let step = (time_s / step_s).round() as i64;
            let cell = &mut grid.entry(step).or_default()[index];
            let weight = weights.entry((step, index)).or_default();
            *cell = Some(match *cell {
                None => value,
                Some(before) if row.fold == Aggregation::Max => before.max(value),
                Some(before) => (before * *weight + value * length_s) / (*weight + length_s),
            });
            *weight += length_s;
        }
    }
    grid
}

fn add_rows(data: &mut DataTable, load: &str, one: &TypicalTrial<'_>, grid: &TrialGrid, step_s: f64) {
    for (step, values) in grid {
        let mut cells = vec![
            load.to_owned(),
            one.arm().to_owned(),
            one.line.position.number.to_string(),
            number(Some(*step as f64 * step_s)),
        ];
        cells.extend(values.iter().map(|value| number(*value)));
        data.add_row(cells);
    }
}

fn drawing(experiment: &Experiment, group: &LoadGroup<'_>, grids: &[TrialGrid], step_s: f64) -> Svg {
    let has = |index: usize| grids.iter().any(|grid| grid.values().any(|at| at[index].is_some()));
    let rows: Vec<usize> = (0..TIME_PANELS.len()).filter(|index| has(*index)).collect();
    let height = rows.len() as f64 * (PANEL_HEIGHT + PANEL_GAP) + X_AXIS_HEIGHT;
    let text = format!("Lines over time under the load {}, one for each arm.", group.load);
    let mut svg = Svg::new(WIDTH, height, "A typical trial of each arm", &text);
    let last = grids.iter().flat_map(BTreeMap::keys).max().copied().unwrap_or(1);
    let longest_s = (last as f64 * step_s).max(1.0);
    let time = Scale::linear((0.0, longest_s), (panel::LEFT, RIGHT));
    shade_unmeasured(&mut svg, group, time, height - X_AXIS_HEIGHT);
    let mut lowest = panel::area(PANEL_GAP, PANEL_HEIGHT);
    for (panel_index, &index) in rows.iter().enumerate() {
        lowest = panel::area(PANEL_GAP + panel_index as f64 * (PANEL_HEIGHT + PANEL_GAP), PANEL_HEIGHT);
        let values = grids.iter().flat_map(BTreeMap::values).filter_map(|at| at[index]);
        let max = extent(values).map_or(1.0, |(_, max)| max);
        let row = &TIME_PANELS[index];
        let scale = Scale::from_zero(max, (lowest.bottom, lowest.top));
        let label = |value| format::tick(value, row.unit);
        panel::draw_frame(&mut svg, &lowest, &Axis::new(scale, 3, row.title, label));
        for (one, grid) in group.trials.iter().zip(grids) {
            let at = |(step, values): (&i64, &[Option<f64>; TIME_PANELS.len()])| {
                Some((time.position(*step as f64 * step_s), scale.position(values[index]?)))
            };
            let points: Vec<(f64, f64)> = grid.iter().filter_map(at).collect();
            let series = series_index(&experiment.plan, one.arm());
            svg.add(Shape::polyline(&points).class("stroke").series(series));
            if let [(x, y)] = points[..] {
                svg.add(Shape::circle((x, y), 2.5).class("fill").series(series));
            }
        }
    }
    let x = Axis::new(time, 8, "Time since the start of the load", panel::seconds_text);
    panel::draw_x_axis(&mut svg, &lowest, &x);
    let bottom = lowest.bottom;
    add_tooltips(&mut svg, group, grids, step_s, (time, bottom));
    svg
}

/// Shades the unmeasured time: before and after the window of the first record that has one.
fn shade_unmeasured(svg: &mut Svg, group: &LoadGroup<'_>, time: Scale, bottom: f64) {
    let mut runs = group.trials.iter().filter_map(|one| one.trial.run.as_ref());
    let Some(window) = runs.next().map(|run| &run.window) else { return };
    let end_s = time.range().1;
    for (from_s, to_s) in [(0.0, window.from_s), (window.to_s, end_s)] {
        if to_s - from_s > 0.05 && window.to_s > window.from_s {
            let (from, to) = (time.clamped(from_s), time.clamped(to_s));
            svg.add(Shape::rect((from, PANEL_GAP), (to, bottom)).class("band"));
        }
    }
}

/// Adds a tip for each time, with the values of all arms.
fn add_tooltips(
    svg: &mut Svg,
    group: &LoadGroup<'_>,
    grids: &[TrialGrid],
    step_s: f64,
    (time, bottom): (Scale, f64),
) {
    let steps: std::collections::BTreeSet<i64> = grids.iter().flat_map(BTreeMap::keys).copied().collect();
    for step in steps {
        let at_s = step as f64 * step_s;
        let mut lines = vec![format::value(at_s, "s")];
        for (one, grid) in group.trials.iter().zip(grids) {
            let Some(values) = grid.get(&step) else { continue };
            let text = |(row, value): (&TimePanel, &Option<f64>)| {
                let name = row.column.rsplit_once('_').map_or(row.column, |(name, _)| name);
                let name = if row.unit == "1/s" { "" } else { name };
                value.map(|value| format!("{name} {}", format::value(value, row.unit)))
            };
            let texts: Vec<String> = TIME_PANELS.iter().zip(values).filter_map(text).collect();
            lines.push(format!("{}: {}", one.arm(), texts.join(", ").trim_start()));
        }
        let (from, to) = (time.clamped(at_s - step_s / 2.0), time.clamped(at_s + step_s / 2.0));
        svg.add(panel::hover_area((from, PANEL_GAP), (to, bottom), &lines.join("\n")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::{assert_no_data_no_chart, markup};
    use crate::data_table::parse;
    use crate::synthetic::{LOADS, SECONDS, SyntheticRecords, synthetic_experiment};

    #[test]
    fn each_load_has_a_drawing_with_a_line_for_each_arm_and_figure() {
        let (experiment, raw) = synthetic_experiment();
        let charts = chart(&experiment, &raw);
        let one = &charts[0];
        assert_eq!(one.parts.len(), 2 * LOADS.len(), "a heading and a drawing each");
        assert_eq!(one.legend.len(), 2);
        let text = markup(one);
        // Rate, p50, p99, subject, generator; the sample has no origin.
        assert_eq!(text.matches("<path").count(), LOADS.len() * 5 * 2);
        assert_eq!(text.matches("data-tip").count(), LOADS.len() * SECONDS as usize);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let rows = parse(&one.data.to_csv());
        assert_eq!(rows.len() - 1, LOADS.len() * 2 * SECONDS as usize);
        let rate: f64 = rows[1][4].parse().unwrap();
        let file = format!("trials/{:04}", rows[1][2].parse::<u32>().unwrap());
        let trial = raw.trials.iter().find(|(name, _)| name.starts_with(&file)).unwrap().1;
        assert_eq!(rate, trial.run.as_ref().unwrap().intervals[0].responses as f64);
    }

    #[test]
    fn the_drain_is_not_drawn() {
        let (experiment, mut raw) = synthetic_experiment();
        for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
            let last = run.intervals.last().unwrap().clone();
            let (time_s, p50_ns) = (last.time_s + 0.4, last.p50_ns.map(|ns| 5 * ns));
            let drain = Interval { time_s, p50_ns, length_s: 0.4, measured: false, ..last };
            run.intervals.push(drain);
        }
        let rows = parse(&chart(&experiment, &raw)[0].data.to_csv());
        assert_eq!(rows.len() - 1, LOADS.len() * 2 * SECONDS as usize);
    }

    #[test]
    fn no_data_is_no_chart_and_missing_seconds_are_noted() {
        assert_no_data_no_chart(chart);
    }

    #[test]
    fn a_trial_of_an_hour_is_not_longer_than_one_of_seconds() {
        let (experiment, mut raw) = synthetic_experiment();
        let long = |raw: &mut SyntheticRecords| {
            for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
                let one = run.intervals[1].clone();
                run.intervals =
                    (1..=3600).map(f64::from).map(|time_s| Interval { time_s, ..one.clone() }).collect();
                run.intervals[7].length_s = f64::NAN;
                run.intervals[8].time_s = f64::INFINITY;
            }
        };
        long(&mut raw);
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        assert!(text.len() < 150_000, "{}", text.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert_eq!(charts[0].notes.len(), LOADS.len(), "{:?}", charts[0].notes);
    }

    #[test]
    fn a_mean_is_of_time_and_percentiles_keep_the_worst() {
        let points = vec![(4.9, 1.0, 10.0), (5.1, 3.0, 20.0)];
        let rows = [points.clone(), points.clone(), points, vec![], vec![], vec![]];
        let grid = grid(&rows, 5.0);
        assert_eq!(grid[&1][..4], [Some(17.5), Some(20.0), Some(20.0), None]);
    }
}
