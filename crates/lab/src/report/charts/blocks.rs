//! The raw points: the primary metric of each trial, block by block, and from arm to arm within each
//! block. What the comparisons are worked out from, with nothing in between.
//! Not for how the points are spread: that is in [`super::boxes`].

use record::experiment::{Arm, Experiment, LoadPlan, Metric};

use super::data::counting;
use super::{Chart, Part, arms_legend, series_of, several_loads};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Area, Axis, Mark, NOISE, Scale, Svg, pinched};
use crate::words;

/// Points of each arm: block and value.
type Points<'a> = Vec<(&'a Arm, Vec<(u32, f64)>)>;

/// Arms that have a column among the slopes at most.
const COLUMNS_MAX: usize = 8;

/// The points of the primary metric, a drawing for each load.
pub(in crate::report) fn chart(experiment: &Experiment, _raw: &dyn Raw) -> Vec<Chart> {
    let Some(metric) = experiment.plan.primary() else { return Vec::new() };
    let title = format!("Block by block: {}", metric.title);
    let caption = "Left: every trial that counts, in the order of the blocks, so that a drift shows as \
                   a slope; right: one line for each block from arm to arm: lines that all rise or all \
                   fall are a difference that holds in every block.";
    let mut chart = Chart::new("blocks", &title, caption, figures(experiment));
    for load in &experiment.plan.loads {
        let points = points_of(experiment, load, metric);
        if several_loads(&experiment.plan) {
            chart.parts.push(Part::Heading(load.name.clone()));
        }
        chart.parts.push(match drawing(experiment, metric, &points) {
            Some(svg) => Part::Drawing(svg),
            None => Part::Empty("No trial of this load counts.".to_owned()),
        });
    }
    vec![chart.legend(arms_legend(&experiment.plan))]
}

fn points_of<'a>(experiment: &'a Experiment, load: &LoadPlan, metric: &Metric) -> Points<'a> {
    let of_arm = |arm: &'a Arm| {
        let lines = counting(experiment, &arm.name, &load.name).into_iter();
        let points = lines.filter_map(|line| {
            Some((line.place.block, *line.metrics.get(&metric.name).filter(|v| v.is_finite())?))
        });
        (arm, points.collect())
    };
    experiment.plan.arms.iter().map(of_arm).collect()
}

fn figures(experiment: &Experiment) -> Figures {
    let mut figures =
        Figures::new(&["load", "metric", "arm", "block", "baseline_value", "arm_value", "ratio"]);
    for one in &experiment.comparisons {
        for pair in &one.pairs {
            figures.row(vec![
                one.load.clone(),
                one.metric.clone(),
                one.arm.clone(),
                pair.block.to_string(),
                number(Some(pair.baseline)),
                number(Some(pair.arm)),
                number(Some(pair.arm / pair.baseline)),
            ]);
        }
    }
    figures
}

fn drawing(experiment: &Experiment, metric: &Metric, points: &Points<'_>) -> Option<Svg> {
    let (left, right) = (
        Area { left: 62.0, top: 28.0, right: 430.0, bottom: 258.0 },
        Area { left: 480.0, top: 28.0, right: 664.0, bottom: 258.0 },
    );
    let values = points.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| *value));
    let scale = Scale::around(values, (left.bottom, left.top))?;
    let y = Axis::of_unit(scale, 5, &metric.title, &metric.unit);
    let blocks = points.iter().flat_map(|(_, points)| points.iter().map(|(block, _)| *block));
    let last = blocks.max()?;
    let along = Scale::linear((0.5, f64::from(last) + 0.5), (left.left, left.right));
    let ticks = along.ticks(last.min(10) as usize);
    let ticks = ticks.into_iter().filter(|block| block.fract().abs() < 1e-6 && *block >= 1.0);
    let x = Axis {
        scale: along,
        ticks: ticks.map(|block| (block, format!("{block:.0}"))).collect(),
        title: "block".to_owned(),
    };
    let text = format!("{} of each trial, by block and by arm", metric.title);
    let mut svg = Svg::new(720.0, 304.0, &metric.title, &text);
    svg.axes(&left, &x, &y);
    for (arm, points) in points {
        over_blocks(&mut svg, experiment, metric, arm, points, (&x, &y));
    }
    slopes(&mut svg, experiment, metric, points, (&right, &y));
    Some(svg)
}

fn over_blocks(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &Metric,
    arm: &Arm,
    points: &[(u32, f64)],
    (x, y): (&Axis, &Axis),
) {
    let series = series_of(&experiment.plan, &arm.name);
    let at = |(block, value): &(u32, f64)| (x.scale.at(f64::from(*block)), y.scale.at(*value));
    let way: Vec<(f64, f64)> = points.iter().map(at).collect();
    svg.add(Mark::polyline(&way).class("stroke thin soft").series(series));
    for (point, place) in points.iter().zip(&way) {
        let tip = tip(arm, point, metric);
        let radius = if series == NOISE { 2.8 } else { 3.6 };
        svg.add(Mark::circle(*place, radius).class("fill").series(series).tip(&tip));
    }
}

fn tip(arm: &Arm, (block, value): &(u32, f64), metric: &Metric) -> String {
    format!("{}, block {block}\n{}", arm.name, words::value(*value, &metric.unit))
}

/// A column for each arm, a line for each block.
fn slopes(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &Metric,
    points: &Points<'_>,
    (area, y): (&Area, &Axis),
) {
    // The baseline's repetition stands first, so that what has to be flat is next to what may differ.
    let mut columns: Vec<&(&Arm, Vec<(u32, f64)>)> = points.iter().collect();
    columns.sort_by_key(|(arm, _)| arm.again.is_none());
    columns.truncate(COLUMNS_MAX);
    let step = (area.width() - 20.0) / columns.len().saturating_sub(1).max(1) as f64;
    let place = |index: usize| area.left + 10.0 + step * index as f64;
    for (index, (arm, _)) in columns.iter().enumerate() {
        let at = place(index);
        svg.add(Mark::line((at, area.top), (at, area.bottom)).class("grid"));
        let letters = ((step / 7.0) as usize).clamp(4, 14);
        let name = if arm.again.is_some() { "A/A" } else { &arm.name };
        let label = Mark::text((at, area.bottom + 18.0), &pinched(name, letters));
        svg.add(label.class("tick middle"));
    }
    for (block, _) in columns.first().map(|(_, points)| points.as_slice()).unwrap_or_default() {
        let value = |points: &[(u32, f64)]| {
            points.iter().find(|(other, _)| other == block).map_or(f64::NAN, |(_, value)| *value)
        };
        let way: Vec<(f64, f64)> = columns
            .iter()
            .enumerate()
            .map(|(index, (_, points))| (place(index), y.scale.at(value(points))))
            .collect();
        svg.add(Mark::polyline(&way).class("stroke thin slope").tip(&format!("block {block}")));
    }
    for (index, (arm, points)) in columns.iter().enumerate() {
        let series = series_of(&experiment.plan, &arm.name);
        for point in points {
            let dot = Mark::circle((place(index), y.scale.at(point.1)), 3.0);
            svg.add(dot.class("fill").series(series).tip(&tip(arm, point, metric)));
        }
    }
}
