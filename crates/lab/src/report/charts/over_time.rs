//! What happened from second to second: rate, latency and processors of a typical trial of each arm,
//! one over the other. Not for the trials as a whole, one after the other: that is in
//! [`super::in_order`].

use std::collections::BTreeMap;

use record::experiment::Experiment;
use record::run::Interval;
use record::trial::Trial;

use super::panel::{self, FOOT, RIGHT, WIDTH};
use super::typical::{Group, Typical, load_heading, typical};
use super::{Chart, Part, Series, series_of};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Axis, Mark, Scale, Svg, extent};
use crate::words;

/// Points of a line at most: more are closer together than a reader can tell apart, and every one of
/// them is said to the reader's pointer.
const POINTS_MAX: f64 = 80.0;
/// Height of a panel and the room above it.
const PANEL: f64 = 78.0;
const GAP: f64 = 40.0;

/// A figure that a trial has for a while: when it ended, how long it was, and its value.
type Points = Vec<(f64, f64, f64)>;

/// How figures of several seconds become one.
#[derive(Clone, Copy, PartialEq)]
enum Fold {
    /// Their mean.
    Mean,
    /// The largest: a mean of percentiles is none.
    Most,
}

/// A panel.
struct Row {
    /// What it shows.
    title: &'static str,
    /// The name of its column in the figures.
    column: &'static str,
    /// Its unit.
    unit: &'static str,
    fold: Fold,
    read: fn(&Typical<'_>) -> Points,
}

/// All panels, from top to bottom.
const ROWS: &[Row] = &[
    Row {
        title: "Good responses per second",
        column: "responses_per_s",
        unit: "1/s",
        fold: Fold::Mean,
        read: |one| {
            of_intervals(&one.trial, |s| {
                Some(s.good.unwrap_or(s.responses) as f64 / s.length_s).filter(|_| s.length_s > 0.0)
            })
        },
    },
    Row {
        title: "Median latency",
        column: "p50_ns",
        unit: "ns",
        fold: Fold::Most,
        read: |one| of_intervals(&one.trial, |second| second.p50_ns.map(|ns| ns as f64)),
    },
    Row {
        title: "99 % of latencies are no longer than",
        column: "p99_ns",
        unit: "ns",
        fold: Fold::Most,
        read: |one| of_intervals(&one.trial, |second| second.p99_ns.map(|ns| ns as f64)),
    },
    Row {
        title: "Processors that the subject used",
        column: "subject_cpus",
        unit: "cpus",
        fold: Fold::Mean,
        read: |one| of_role(one, "subject"),
    },
    Row {
        title: "Processors that the generator used",
        column: "generator_cpus",
        unit: "cpus",
        fold: Fold::Mean,
        read: |one| {
            let seen = of_role(one, "generator");
            match seen.is_empty() {
                true => of_intervals(&one.trial, |second| second.own_cpus),
                false => seen,
            }
        },
    },
    Row {
        title: "Processors that the origin used",
        column: "origin_cpus",
        unit: "cpus",
        fold: Fold::Mean,
        read: |one| of_role(one, "origin"),
    },
];

/// A figure of the measured seconds that have it: latencies of the drain would be those of its slowest
/// requests only.
fn of_intervals(trial: &Trial, figure: impl Fn(&Interval) -> Option<f64>) -> Points {
    let seconds = trial.run.iter().flat_map(|run| &run.intervals);
    let measured = seconds.filter(|second| second.measured);
    measured.filter_map(|s| Some((s.time_s, s.length_s, figure(s)?))).collect()
}

/// Processors that a role used.
fn of_role(one: &Typical<'_>, role: &str) -> Points {
    let mut points = Vec::new();
    for seen in one.observed() {
        let Some(index) = seen.roles.iter().position(|own| own.name == role) else { continue };
        let samples = seen.samples.iter().filter(|sample| sample.time_s > 0.0);
        points.extend(samples.filter_map(|sample| {
            let used = sample.roles.get(index)?;
            Some((sample.time_s, sample.length_s, used.user_cpus + used.system_cpus))
        }));
    }
    points
}

/// Values of one trial by panel and time, on a grid that all trials of a load share.
type Grid = BTreeMap<i64, [Option<f64>; ROWS.len()]>;

/// The chart: a drawing for each load.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let found = typical(experiment, raw);
    if found.groups.is_empty() {
        return Vec::new();
    }
    let title = "Inside a trial, second by second";
    let caption = "The trial of each arm whose primary metric is the median of all that count. A line \
                   that is not level has not settled, or something disturbed it; shaded seconds are \
                   not measured.";
    let mut columns = vec!["load", "arm", "trial", "time_s"];
    columns.extend(ROWS.iter().map(|row| row.column));
    let mut chart = Chart::new("over-time", title, caption, Figures::new(&columns));
    let mut legend: Vec<Series> = Vec::new();
    for group in &found.groups {
        let (step_s, grids) = grids(group);
        if grids.iter().all(BTreeMap::is_empty) {
            continue;
        }
        if step_s > 1.0 {
            chart.notes.push(format!(
                "{}: each point is {step_s:.0} s; latencies are the largest of its seconds.",
                group.load
            ));
        }
        for (one, grid) in group.trials.iter().zip(&grids) {
            note(&mut chart.figures, group.load, one, grid, step_s);
            let series = series_of(&experiment.plan, one.arm());
            if !legend.iter().any(|known| known.number == series) {
                legend.push(Series { number: series, name: one.arm().to_owned() });
            }
        }
        chart.parts.extend(load_heading(experiment, group.load).map(Part::Heading));
        chart.parts.push(Part::Drawing(drawing(experiment, group, &grids, step_s)));
    }
    if chart.parts.is_empty() {
        let why = "These trials have no figures by the second: their driver does not tell any, and \
                   nobody watched the machine meanwhile.";
        return vec![Chart::empty("over-time", title, caption, why)];
    }
    chart.notes.extend(found.notes);
    vec![chart.legend(legend)]
}

/// The step of the grid, and each trial's values on it.
fn grids(group: &Group<'_>) -> (f64, Vec<Grid>) {
    let read = |one| ROWS.iter().map(|row| (row.read)(one)).collect();
    let all: Vec<Vec<Points>> = group.trials.iter().map(read).collect();
    let times = all.iter().flatten().flatten().map(|(time_s, ..)| *time_s);
    let longest_s = extent(times).map_or(0.0, |(_, longest)| longest);
    let step_s = (longest_s / POINTS_MAX).ceil().max(1.0);
    (step_s, all.iter().map(|rows| grid(rows, step_s)).collect())
}

fn grid(rows: &[Points], step_s: f64) -> Grid {
    let mut grid = Grid::new();
    // By panel and place: weight and sum.
    let mut weights: BTreeMap<(i64, usize), f64> = BTreeMap::new();
    for (index, (row, points)) in ROWS.iter().zip(rows).enumerate() {
        for &(time_s, length_s, value) in points {
            if !(time_s.is_finite() && value.is_finite() && length_s > 0.0 && time_s > 0.0) {
                continue;
            }
            let place = (time_s / step_s).round() as i64;
            let cell = &mut grid.entry(place).or_default()[index];
            let weight = weights.entry((place, index)).or_default();
            *cell = Some(match *cell {
                None => value,
                Some(before) if row.fold == Fold::Most => before.max(value),
                Some(before) => (before * *weight + value * length_s) / (*weight + length_s),
            });
            *weight += length_s;
        }
    }
    grid
}

fn note(figures: &mut Figures, load: &str, one: &Typical<'_>, grid: &Grid, step_s: f64) {
    for (place, values) in grid {
        let mut cells = vec![
            load.to_owned(),
            one.arm().to_owned(),
            one.line.place.number.to_string(),
            number(Some(*place as f64 * step_s)),
        ];
        cells.extend(values.iter().map(|value| number(*value)));
        figures.row(cells);
    }
}

fn drawing(experiment: &Experiment, group: &Group<'_>, grids: &[Grid], step_s: f64) -> Svg {
    let has = |index: usize| grids.iter().any(|grid| grid.values().any(|at| at[index].is_some()));
    let rows: Vec<usize> = (0..ROWS.len()).filter(|index| has(*index)).collect();
    let height = rows.len() as f64 * (PANEL + GAP) + FOOT;
    let text = format!("Lines over time under the load {}, one for each arm.", group.load);
    let mut svg = Svg::new(WIDTH, height, "A typical trial of each arm", &text);
    let last = grids.iter().flat_map(BTreeMap::keys).max().copied().unwrap_or(1);
    let longest_s = (last as f64 * step_s).max(1.0);
    let time = Scale::linear((0.0, longest_s), (panel::LEFT, RIGHT));
    shade(&mut svg, group, time, height - FOOT);
    let mut lowest = panel::area(GAP, PANEL);
    for (place, &index) in rows.iter().enumerate() {
        lowest = panel::area(GAP + place as f64 * (PANEL + GAP), PANEL);
        let values = grids.iter().flat_map(BTreeMap::values).filter_map(|at| at[index]);
        let most = extent(values).map_or(1.0, |(_, most)| most);
        let row = &ROWS[index];
        let scale = Scale::from_zero(most, (lowest.bottom, lowest.top));
        let label = |value| words::tick(value, row.unit);
        panel::frame(&mut svg, &lowest, &Axis::new(scale, 3, row.title, label));
        for (one, grid) in group.trials.iter().zip(grids) {
            let at = |(place, values): (&i64, &[Option<f64>; ROWS.len()])| {
                Some((time.at(*place as f64 * step_s), scale.at(values[index]?)))
            };
            let points: Vec<(f64, f64)> = grid.iter().filter_map(at).collect();
            let series = series_of(&experiment.plan, one.arm());
            svg.add(Mark::polyline(&points).class("stroke").series(series));
            if let [(x, y)] = points[..] {
                svg.add(Mark::circle((x, y), 2.5).class("fill").series(series));
            }
        }
    }
    let x = Axis::new(time, 8, "Time since the load began", panel::seconds);
    panel::foot(&mut svg, &lowest, &x);
    let bottom = lowest.bottom;
    tips(&mut svg, group, grids, step_s, (time, bottom));
    svg
}

/// Shades what is not measured: before and after the window of the first record that has one.
fn shade(svg: &mut Svg, group: &Group<'_>, time: Scale, bottom: f64) {
    let mut runs = group.trials.iter().filter_map(|one| one.trial.run.as_ref());
    let Some(window) = runs.next().map(|run| &run.window) else { return };
    let end_s = time.range().1;
    for (from_s, to_s) in [(0.0, window.from_s), (window.to_s, end_s)] {
        if to_s - from_s > 0.05 && window.to_s > window.from_s {
            let (from, to) = (time.clamped(from_s), time.clamped(to_s));
            svg.add(Mark::rect((from, GAP), (to, bottom)).class("band"));
        }
    }
}

/// One tip for each time, with the values of all arms.
fn tips(
    svg: &mut Svg,
    group: &Group<'_>,
    grids: &[Grid],
    step_s: f64,
    (time, bottom): (Scale, f64),
) {
    let places: std::collections::BTreeSet<i64> =
        grids.iter().flat_map(BTreeMap::keys).copied().collect();
    for place in places {
        let at_s = place as f64 * step_s;
        let mut lines = vec![words::value(at_s, "s")];
        for (one, grid) in group.trials.iter().zip(grids) {
            let Some(values) = grid.get(&place) else { continue };
            let said = |(row, value): (&Row, &Option<f64>)| {
                let name = row.column.rsplit_once('_').map_or(row.column, |(name, _)| name);
                let name = if row.unit == "1/s" { "" } else { name };
                value.map(|value| format!("{name} {}", words::value(value, row.unit)))
            };
            let said: Vec<String> = ROWS.iter().zip(values).filter_map(said).collect();
            lines.push(format!("{}: {}", one.arm(), said.join(", ").trim_start()));
        }
        let (from, to) = (time.clamped(at_s - step_s / 2.0), time.clamped(at_s + step_s / 2.0));
        svg.add(panel::hit((from, GAP), (to, bottom), &lines.join("\n")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::charts::{markup, nothing_is_nothing};
    use crate::report::csv::parse;
    use crate::report::sample::{LOADS, SECONDS, SampleRaw, sample};

    #[test]
    fn each_load_has_a_drawing_with_a_line_for_each_arm_and_figure() {
        let (experiment, raw) = sample();
        let charts = chart(&experiment, &raw);
        let one = &charts[0];
        assert_eq!(one.parts.len(), 2 * LOADS.len(), "a heading and a drawing each");
        assert_eq!(one.legend.len(), 2);
        let text = markup(one);
        // Rate, p50, p99, subject, generator; the sample has no origin.
        assert_eq!(text.matches("<path").count(), LOADS.len() * 5 * 2);
        assert_eq!(text.matches("data-tip").count(), LOADS.len() * SECONDS as usize);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let rows = parse(&one.figures.text());
        assert_eq!(rows.len() - 1, LOADS.len() * 2 * SECONDS as usize);
        let rate: f64 = rows[1][4].parse().unwrap();
        let file = format!("trials/{:04}", rows[1][2].parse::<u32>().unwrap());
        let trial = raw.trials.iter().find(|(name, _)| name.starts_with(&file)).unwrap().1;
        assert_eq!(rate, trial.run.as_ref().unwrap().intervals[0].responses as f64);
    }

    #[test]
    fn the_drain_is_not_drawn() {
        let (experiment, mut raw) = sample();
        for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
            let last = run.intervals.last().unwrap().clone();
            let (time_s, p50_ns) = (last.time_s + 0.4, last.p50_ns.map(|ns| 5 * ns));
            let drain = Interval { time_s, p50_ns, length_s: 0.4, measured: false, ..last };
            run.intervals.push(drain);
        }
        let rows = parse(&chart(&experiment, &raw)[0].figures.text());
        assert_eq!(rows.len() - 1, LOADS.len() * 2 * SECONDS as usize);
    }

    #[test]
    fn nothing_is_nothing_and_no_seconds_are_said() {
        nothing_is_nothing(chart);
    }

    #[test]
    fn a_trial_of_an_hour_is_not_longer_than_one_of_seconds() {
        let (experiment, mut raw) = sample();
        let long = |raw: &mut SampleRaw| {
            for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
                let one = run.intervals[1].clone();
                run.intervals = (1..=3600)
                    .map(f64::from)
                    .map(|time_s| Interval { time_s, ..one.clone() })
                    .collect();
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
