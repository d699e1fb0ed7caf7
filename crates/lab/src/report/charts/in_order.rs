//! The whole experiment: every trial, one after the other, with its primary metric and what disturbed
//! it. Not for what happened within a trial: that is in [`super::over_time`].

use record::experiment::{Experiment, Metric, TrialLine};
use record::trial::Covariates;

use super::panel::{self, Cells, FOOT, RIGHT, WIDTH};
use super::typical::primary;
use super::{Chart, Part, arms_legend, series_of, several_loads};
use crate::engine::discard::limit;
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Area, Axis, Mark, Scale, Svg, extent};
use crate::tally::Fate;
use crate::words;

/// Trials that are drawn at most; of more, each of the same number is.
const TRIALS_MAX: usize = 600;
/// Loads that are drawn at most.
const LOADS_MAX: usize = 8;
/// Height of a panel and the room above it.
const PANEL: f64 = 104.0;
const GAP: f64 = 40.0;
/// Height of a covariate's panel.
const LOW_PANEL: f64 = 44.0;

/// A covariate that is drawn where it was bounded.
struct Row {
    /// Its name in the plan's bounds.
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    read: fn(&Covariates) -> Option<f64>,
}

const COVARIATES: &[Row] = &[
    Row {
        name: "steal_share",
        title: "Time that the hypervisor gave to others",
        unit: "share",
        read: |seen| seen.steal_share,
    },
    Row {
        name: "foreign_cpus",
        title: "Processors that other programs used",
        unit: "cpus",
        read: |seen| seen.foreign_cpus,
    },
    Row {
        name: "wake_up_p99_ns",
        title: "A sleeping thread wakes up later by (99 %)",
        unit: "ns",
        read: |seen| seen.wake_up_p99_ns.map(|ns| ns as f64),
    },
    Row {
        name: "generator_lag_p99_ns",
        title: "Lag of the generator (99 %)",
        unit: "ns",
        read: |seen| seen.generator_lag_p99_ns.map(|ns| ns as f64),
    },
];

/// The chart: a panel for each load, and one for each covariate.
pub(in crate::report) fn chart(experiment: &Experiment, _raw: &dyn Raw) -> Vec<Chart> {
    let Some(metric) = experiment.plan.primary() else { return Vec::new() };
    if experiment.trials.is_empty() {
        return Vec::new();
    }
    let caption = "Each point is a trial, in the order of running. Points of one colour should stay \
                   on a level line: one that climbs or falls is drift of the machine. Shaded: \
                   not compared, with the reason; grey figures below: what disturbs.";
    let title = format!("Every trial in order: {}", metric.title);
    let columns = [
        "trial",
        "block",
        "attempt",
        "arm",
        "load",
        metric.name.as_str(),
        "counts",
        "left_out",
        "failed",
        "steal_share",
        "foreign_cpus",
        "wake_up_p99_ns",
        "generator_lag_p99_ns",
    ];
    let mut chart = Chart::new("in-order", &title, caption, Figures::new(&columns));
    for line in &experiment.trials {
        chart.figures.row(row(experiment, line));
    }
    let every = experiment.trials.len().div_ceil(TRIALS_MAX);
    let lines: Vec<&TrialLine> = experiment.trials.iter().step_by(every).collect();
    if every > 1 {
        chart.notes.push(format!("One of {every} trials is drawn; the figures have more of them."));
    }
    if experiment.plan.loads.len() > LOADS_MAX {
        chart.notes.push(format!("Only the first {LOADS_MAX} loads are drawn."));
    }
    chart.parts.push(Part::Drawing(drawing(experiment, metric, &lines)));
    vec![chart.legend(arms_legend(&experiment.plan))]
}

fn row(experiment: &Experiment, line: &TrialLine) -> Vec<String> {
    let place = &line.place;
    let mut cells = vec![
        place.number.to_string(),
        place.block.to_string(),
        place.attempt.to_string(),
        place.arm.clone(),
        place.load.clone(),
        number(primary(experiment, line)),
        line.counts().to_string(),
        line.discarded.as_ref().map_or_else(String::new, |why| why.text.clone()),
        line.failed.clone().unwrap_or_default(),
    ];
    cells.extend(COVARIATES.iter().map(|row| number((row.read)(&line.covariates))));
    cells
}

/// Where trials stand from left to right.
struct Order {
    scale: Scale,
    /// Half of the room that a trial has.
    half: f64,
}

impl Order {
    fn of(lines: &[&TrialLine]) -> Self {
        let count = lines.len().max(1) as f64;
        let scale = Scale::linear((-0.5, count - 0.5), (panel::LEFT, RIGHT));
        Self { scale, half: (RIGHT - panel::LEFT) / count / 2.0 }
    }

    fn at(&self, index: usize) -> f64 {
        self.scale.at(index as f64)
    }
}

fn drawing(experiment: &Experiment, metric: &Metric, lines: &[&TrialLine]) -> Svg {
    let loads: Vec<&str> =
        experiment.plan.loads.iter().map(|load| load.name.as_str()).take(LOADS_MAX).collect();
    let covariates: Vec<&Row> = COVARIATES.iter().filter(|row| is_told(row, lines)).collect();
    let height =
        loads.len() as f64 * (PANEL + GAP) + covariates.len() as f64 * (LOW_PANEL + GAP) + FOOT;
    let text = format!("Points for {} trials, a panel for each load.", lines.len());
    let mut svg = Svg::new(WIDTH, height, &metric.title, &text);
    let order = Order::of(lines);
    let mut area = panel::area(GAP, PANEL);
    let mut top = GAP;
    for load in loads {
        area = panel::area(top, PANEL);
        let title = match several_loads(&experiment.plan) {
            true => format!("{load}: {}", metric.title),
            false => metric.title.clone(),
        };
        points(&mut svg, experiment, (metric, lines, load), (&order, &area, &title));
        top += PANEL + GAP;
    }
    for row in covariates {
        area = panel::area(top, LOW_PANEL);
        let bound = limit(&experiment.plan.discard, row.name);
        bars(&mut svg, row, lines, (&order, &area, bound));
        top += LOW_PANEL + GAP;
    }
    panel::foot(&mut svg, &area, &blocks_axis(&order, lines));
    svg
}

/// An axis that names the blocks where they begin.
fn blocks_axis(order: &Order, lines: &[&TrialLine]) -> Axis {
    let mut starts: Vec<(f64, String)> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let new = index == 0 || lines[index - 1].place.block != line.place.block;
        // A pilot or two need no name where the first block begins.
        if new && starts.len() == 1 && lines[0].place.block == 0 {
            starts.retain(|(first, _)| *first > 0.0 || index as f64 * order.half > 24.0);
        }
        let far = starts.last().is_none_or(|(last, _)| (index as f64 - last) * order.half > 13.0);
        if new && far {
            let name = match line.place.block {
                0 => "pilots".to_owned(),
                block => block.to_string(),
            };
            starts.push((index as f64, name));
        }
    }
    Axis { scale: order.scale, ticks: starts, title: "Block, in the order of running".to_owned() }
}

/// The trials of one load.
fn points(
    svg: &mut Svg,
    experiment: &Experiment,
    (metric, lines, load): (&Metric, &[&TrialLine], &str),
    (order, area, title): (&Order, &Area, &str),
) {
    let of = |line: &TrialLine| line.place.load == load;
    let values = lines.iter().filter(|line| of(line)).filter_map(|line| primary(experiment, line));
    let scale = Scale::around(values, (area.bottom, area.top));
    if let Some(scale) = scale {
        panel::frame(svg, area, &Axis::of_unit(scale, 4, title, &metric.unit));
    } else {
        svg.add(Mark::text((0.0, area.top - 13.0), title).class("label"));
        panel::base(svg, area);
    }
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| of(line)) {
        let at = order.at(index);
        let value = primary(experiment, line);
        let tip = tip(metric, line, value);
        if line.discarded.is_some() || line.failed.is_some() {
            let half = order.half.max(1.5);
            let band = Mark::rect((at - half, area.top), (at + half, area.bottom));
            svg.add(band.class("band").tip(&tip));
        }
        let series = series_of(&experiment.plan, &line.place.arm);
        match value.zip(scale) {
            Some((value, scale)) => {
                let class = if line.counts() { "fill" } else { "stroke thin" };
                let point = Mark::circle((at, scale.at(value)), 3.0);
                svg.add(point.class(class).series(series).tip(&tip));
            }
            None => {
                let cross = Mark::text((at, area.bottom - 5.0), "×").class("bad middle");
                svg.add(cross.tip(&tip));
            }
        }
    }
}

fn tip(metric: &Metric, line: &TrialLine, value: Option<f64>) -> String {
    let place = &line.place;
    let stand = match place.block {
        0 => "pilot".to_owned(),
        block if place.attempt > 1 => format!("block {block}, attempt {}", place.attempt),
        block => format!("block {block}"),
    };
    let mut said = format!("{}, {}, {stand}, trial {}", place.arm, place.load, place.number);
    if let Some(value) = value {
        said.push_str(&format!("\n{}", words::value(value, &metric.unit)));
    }
    if let Some(why) = &line.discarded {
        said.push_str(&format!("\n{}: {}", Fate::of(line).word(), why.text));
    }
    if let Some(why) = &line.failed {
        said.push_str(&format!("\nfailed: {}", crate::report::svg::shortened(why, 200)));
    }
    said
}

/// Whether a covariate is anything but zero anywhere.
fn is_told(row: &Row, lines: &[&TrialLine]) -> bool {
    let values = lines.iter().filter_map(|line| (row.read)(&line.covariates));
    extent(values).is_some_and(|(_, most)| most > 0.0)
}

/// A covariate over all trials, with its bound.
fn bars(
    svg: &mut Svg,
    row: &Row,
    lines: &[&TrialLine],
    (order, area, bound): (&Order, &Area, Option<f64>),
) {
    let bound = bound.filter(|bound| bound.is_finite() && *bound > 0.0);
    let read = |line: &TrialLine| (row.read)(&line.covariates).filter(|value| value.is_finite());
    let most = extent(lines.iter().filter_map(|line| read(line))).map_or(1.0, |(_, most)| most);
    let scale = Scale::from_zero(most.max(bound.unwrap_or(0.0)), (area.bottom, area.top));
    panel::frame(svg, area, &Axis::of_unit(scale, 2, row.title, row.unit));
    let mut cells = Cells::default();
    let half = (order.half * 0.8).max(0.3);
    for (index, line) in lines.iter().enumerate() {
        if let Some(value) = read(line) {
            let at = order.at(index);
            cells.add(1, (at - half, scale.clamped(value)), (at + half, area.bottom));
        }
    }
    cells.draw(svg, |_| "fill cn".to_owned());
    if let Some(bound) = bound {
        let at = scale.at(bound);
        let line = Mark::line((area.left, at), (area.right, at)).class("axis");
        let tip = format!("beyond {} a trial is discarded", words::value(bound, row.unit));
        svg.add(line.with("stroke-dasharray", "5 3").tip(&tip));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::charts::markup;
    use crate::report::csv::parse;
    use crate::report::sample::{LOADS, NoRaw, sample};

    #[test]
    fn every_trial_is_a_point_or_a_cross_and_the_discarded_are_shaded() {
        let (experiment, raw) = sample();
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        let failed = experiment.trials.iter().filter(|line| line.failed.is_some()).count();
        let bad = experiment.trials.iter().filter(|l| l.failed.is_some() || l.discarded.is_some());
        assert!(failed > 0);
        assert_eq!(text.matches("<circle").count(), experiment.trials.len() - failed);
        assert_eq!(text.matches("×</text>").count(), failed);
        assert_eq!(text.matches("class=\"band\"").count(), bad.count());
        assert!(text.contains("the hypervisor took 6.1 %"));
        let rows = parse(&charts[0].figures.text());
        assert_eq!(rows.len() - 1, experiment.trials.len());
        let line = &experiment.trials[5];
        assert_eq!(rows[6][5].parse::<f64>().unwrap(), line.metrics["subject_us_per_response"]);
        for load in LOADS {
            assert!(text.contains(&format!(">{load}: ")));
        }
    }

    #[test]
    fn a_few_pilots_take_their_own_name_away_and_no_blocks() {
        let line = |block: u32| {
            let place = record::trial::Place { block, ..Default::default() };
            TrialLine { place, ..TrialLine::default() }
        };
        let blocks = |pilots: u32| -> Vec<TrialLine> {
            (0..pilots).map(|_| 0).chain((1..=14).flat_map(|block| [block; 4])).map(line).collect()
        };
        let names = |pilots: u32| -> Vec<String> {
            let lines = blocks(pilots);
            let lines: Vec<&TrialLine> = lines.iter().collect();
            let axis = blocks_axis(&Order::of(&lines), &lines);
            axis.ticks.into_iter().map(|(_, name)| name).collect()
        };
        let all: Vec<String> = (1..=14).map(|block| block.to_string()).collect();
        assert_eq!(names(4), all);
        assert_eq!(names(30)[0], "pilots");
    }

    #[test]
    fn no_trials_are_no_chart() {
        let (mut experiment, _) = sample();
        experiment.trials.clear();
        assert!(chart(&experiment, &NoRaw).is_empty());
        let (mut experiment, _) = sample();
        experiment.plan.metrics.clear();
        assert!(chart(&experiment, &NoRaw).is_empty());
    }

    #[test]
    fn ten_thousand_trials_and_odd_figures_stay_bounded() {
        let (mut experiment, _) = sample();
        let some = experiment.trials.clone();
        experiment.trials = some.iter().cycle().take(10_000).cloned().collect();
        for (index, line) in experiment.trials.iter_mut().enumerate() {
            line.place.number = index as u32 + 1;
            let odd = [f64::NAN, f64::INFINITY, 1e300, -1.0];
            if index % 7 == 0 {
                line.metrics.insert("subject_us_per_response".to_owned(), odd[index / 7 % 4]);
            }
        }
        let charts = chart(&experiment, &NoRaw);
        let text = markup(&charts[0]);
        assert!(text.len() < 200_000, "{}", text.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert_eq!(charts[0].notes.len(), 1);
        experiment.trials.truncate(1);
        assert_eq!(chart(&experiment, &NoRaw).len(), 1);
    }
}
