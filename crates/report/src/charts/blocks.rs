//! Raw points: the primary metric of each trial, block by block, and from arm to arm within each
//! block. The comparisons are computed from exactly these points. [`super::boxes`] shows the spread
//! of the points.

use experiment::format;
use record::experiment::{Arm, Experiment, ExperimentMetric, LoadPlan};

use super::trial_data::counted_trials;
use super::{ChartPart, ReportChart, arms_legend, has_several_loads, series_index};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Area, Axis, NOISE_SERIES, Scale, Shape, Svg, truncated_middle};

/// Points of each arm: block and value.
type ArmPoints<'a> = Vec<(&'a Arm, Vec<(u32, f64)>)>;

/// Maximum number of arms with a column among the slopes.
const COLUMNS_MAX: usize = 8;

/// Draws the points of the primary metric, a drawing for each load.
pub(crate) fn chart(experiment: &Experiment, _raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let Some(metric) = experiment.plan.primary() else { return Vec::new() };
    let title = format!("Block by block: {}", metric.title);
    let caption = "Left: every counted trial, in block order, so that drift shows as a slope. Right: one \
                   line per block from arm to arm; if all lines rise or all fall, the difference holds in \
                   every block.";
    let mut chart = ReportChart::new("blocks", &title, caption, data_table(experiment));
    for load in &experiment.plan.loads {
        let points = points_of(experiment, load, metric);
        if has_several_loads(&experiment.plan) {
            chart.parts.push(ChartPart::Heading(load.name.clone()));
        }
        chart.parts.push(match drawing(experiment, metric, &points) {
            Some(svg) => ChartPart::Drawing(svg),
            None => ChartPart::Empty("No counted trial under this load.".to_owned()),
        });
    }
    vec![chart.legend(arms_legend(&experiment.plan))]
}

fn points_of<'a>(experiment: &'a Experiment, load: &LoadPlan, metric: &ExperimentMetric) -> ArmPoints<'a> {
    let of_arm = |arm: &'a Arm| {
        let lines = counted_trials(experiment, &arm.name, &load.name).into_iter();
        let points = lines.filter_map(|line| {
            Some((line.position.block, *line.metrics.get(&metric.name).filter(|v| v.is_finite())?))
        });
        (arm, points.collect())
    };
    experiment.plan.arms.iter().map(of_arm).collect()
}

fn data_table(experiment: &Experiment) -> DataTable {
    let mut data =
        DataTable::new(&["load", "metric", "arm", "block", "baseline_value", "arm_value", "ratio"]);
    for comparison in &experiment.comparisons {
        for pair in &comparison.pairs {
            data.add_row(vec![
                comparison.load.clone(),
                comparison.metric.clone(),
                comparison.arm.clone(),
                pair.block.to_string(),
                number(Some(pair.baseline)),
                number(Some(pair.arm)),
                number(Some(pair.arm / pair.baseline)),
            ]);
        }
    }
    data
}

fn drawing(experiment: &Experiment, metric: &ExperimentMetric, points: &ArmPoints<'_>) -> Option<Svg> {
    let (left, right) = (
        Area { left: 62.0, top: 28.0, right: 430.0, bottom: 258.0 },
        Area { left: 480.0, top: 28.0, right: 664.0, bottom: 258.0 },
    );
    let values = points.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| *value));
    let scale = Scale::covering(values, (left.bottom, left.top))?;
    let y = Axis::with_unit(scale, 5, &metric.title, &metric.unit);
    let blocks = points.iter().flat_map(|(_, points)| points.iter().map(|(block, _)| *block));
    let last = blocks.max()?;
    let block_axis = Scale::linear((0.5, f64::from(last) + 0.5), (left.left, left.right));
    let ticks = block_axis.ticks(last.min(10) as usize);
    let ticks = ticks.into_iter().filter(|block| block.fract().abs() < 1e-6 && *block >= 1.0);
    let x = Axis {
        scale: block_axis,
        ticks: ticks.map(|block| (block, format!("{block:.0}"))).collect(),
        title: "block".to_owned(),
    };
    let text = format!("{} of each trial, by block and by arm", metric.title);
    let mut svg = Svg::new(720.0, 304.0, &metric.title, &text);
    svg.axes(&left, &x, &y);
    for (arm, points) in points {
        draw_by_block(&mut svg, experiment, metric, arm, points, (&x, &y));
    }
    draw_slopes(&mut svg, experiment, metric, points, (&right, &y));
    Some(svg)
}

fn draw_by_block(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &ExperimentMetric,
    arm: &Arm,
    points: &[(u32, f64)],
    (x, y): (&Axis, &Axis),
) {
    let series = series_index(&experiment.plan, &arm.name);
    let position =
        |(block, value): &(u32, f64)| (x.scale.position(f64::from(*block)), y.scale.position(*value));
    let path: Vec<(f64, f64)> = points.iter().map(position).collect();
    svg.add(Shape::polyline(&path).class("stroke thin soft").series(series));
    for (point, position) in points.iter().zip(&path) {
        let tip = tip(arm, point, metric);
        let radius = if series == NOISE_SERIES { 2.8 } else { 3.6 };
        svg.add(Shape::circle(*position, radius).class("fill").series(series).tooltip(&tip));
    }
}

fn tip(arm: &Arm, (block, value): &(u32, f64), metric: &ExperimentMetric) -> String {
    format!("{}, block {block}\n{}", arm.name, format::value(*value, &metric.unit))
}

/// Draws a column for each arm and a line for each block.
fn draw_slopes(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &ExperimentMetric,
    points: &ArmPoints<'_>,
    (area, y): (&Area, &Axis),
) {
    // The baseline's repetition comes first, so that the flat line is next to the arms that may
    // differ.
    let mut columns: Vec<&(&Arm, Vec<(u32, f64)>)> = points.iter().collect();
    columns.sort_by_key(|(arm, _)| arm.repeats.is_none());
    columns.truncate(COLUMNS_MAX);
    let step = (area.width() - 20.0) / columns.len().saturating_sub(1).max(1) as f64;
    let x_of = |index: usize| area.left + 10.0 + step * index as f64;
    for (index, (arm, _)) in columns.iter().enumerate() {
        let x = x_of(index);
        svg.add(Shape::line((x, area.top), (x, area.bottom)).class("grid"));
        let chars_max = ((step / 7.0) as usize).clamp(4, 14);
        let name = if arm.repeats.is_some() { "A/A" } else { &arm.name };
        let label = Shape::text((x, area.bottom + 18.0), &truncated_middle(name, chars_max));
        svg.add(label.class("tick middle"));
    }
    for (block, _) in columns.first().map(|(_, points)| points.as_slice()).unwrap_or_default() {
        let value = |points: &[(u32, f64)]| {
            points.iter().find(|(other, _)| other == block).map_or(f64::NAN, |(_, value)| *value)
        };
        let path: Vec<(f64, f64)> = columns
            .iter()
            .enumerate()
            .map(|(index, (_, points))| (x_of(index), y.scale.position(value(points))))
            .collect();
        svg.add(Shape::polyline(&path).class("stroke thin slope").tooltip(&format!("block {block}")));
    }
    for (index, (arm, points)) in columns.iter().enumerate() {
        let series = series_index(&experiment.plan, &arm.name);
        for point in points {
            let dot = Shape::circle((x_of(index), y.scale.position(point.1)), 3.0);
            svg.add(dot.class("fill").series(series).tooltip(&tip(arm, point, metric)));
        }
    }
}
