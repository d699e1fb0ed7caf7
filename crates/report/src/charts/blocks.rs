//! Raw points: the primary metric of each trial, block by block, and from arm to arm within each
//! block. The comparisons are computed from exactly these points. [`super::boxes`] shows the spread
//! of the points.

use experiment::format;
use record::experiment::{Arm, Experiment, ExperimentMetric, LoadPlan};
use record::sorted::sort_by_key;

use super::{ReportChart, arms_legend};
use crate::TrialRecords;
use crate::data::comparisons::pairs_table;
use crate::data::trials::{counted_trials, series_index};
use crate::plot::{Axis, Frame, NOISE_SERIES, Plot, Scale, Shape, Svg, truncated_middle};

/// Maximum number of arms with a column among the slopes.
const COLUMNS_MAX: usize = 8;

/// Points of an arm: block and value.
struct ArmPoints<'a> {
    arm: &'a Arm,
    series: usize,
    points: Vec<(f64, f64)>,
}

/// Draws the points of the primary metric, a drawing for each load.
pub(crate) fn chart(experiment: &Experiment, _raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let Some(metric) = experiment.plan.primary() else { return Vec::new() };
    let title = format!("Block by block: {}", metric.title);
    let caption = "Left: every counted trial, in block order, so that drift shows as a slope. Right: one \
                   line per block from arm to arm; if all lines rise or all fall, the difference holds in \
                   every block.";
    let mut chart = ReportChart::new("blocks", &title, caption, pairs_table(experiment));
    for load in &experiment.plan.loads {
        chart.load_heading(experiment, &load.name);
        let svg = drawing(metric, &arm_points(experiment, load, metric));
        chart.draw_or(svg, "No counted trial under this load.");
    }
    vec![chart.legend(arms_legend(&experiment.plan))]
}

fn arm_points<'a>(
    experiment: &'a Experiment,
    load: &LoadPlan,
    metric: &ExperimentMetric,
) -> Vec<ArmPoints<'a>> {
    let points_for_arm = |arm: &'a Arm| {
        let trials = counted_trials(experiment, &arm.name, &load.name).into_iter();
        let points = trials.filter_map(|line| {
            let value = *line.metrics.get(&metric.name).filter(|value| value.is_finite())?;
            Some((f64::from(line.position.block), value))
        });
        ArmPoints { arm, series: series_index(&experiment.plan, &arm.name), points: points.collect() }
    };
    experiment.plan.arms.iter().map(points_for_arm).collect()
}

fn drawing(metric: &ExperimentMetric, arms: &[ArmPoints<'_>]) -> Option<Svg> {
    let all = || arms.iter().flat_map(|of| &of.points);
    let values = Scale::covering(all().map(|(_, value)| *value))?;
    let last = all().map(|(block, _)| *block).fold(1.0, f64::max);
    let blocks = Axis::whole_numbers(Scale::linear(0.5, last + 0.5), last.min(10.0) as usize, "block");
    let text = format!("{} of each trial, by block and by arm", metric.title);
    let mut svg = Svg::new(&metric.title, &text);
    let values = Axis::with_unit(values, 5, &metric.title, &metric.unit);
    let plot = svg.plot(Frame::new(28.0, 230.0).within(66.0, 430.0), blocks.scale, &values);
    svg.x_axis(&plot, &blocks);
    for of in arms {
        let line = plot.line(of.points.iter().copied());
        svg.add(line.class("stroke thin soft").series(of.series));
        let radius = if of.series == NOISE_SERIES { 2.8 } else { 3.6 };
        of.points.iter().for_each(|point| svg.add(dot(&plot, *point, radius, of, *point, metric)));
    }
    draw_slopes(&mut svg, metric, arms, &plot);
    Some(svg)
}

/// Returns the dot of a trial (block and value), with its tip.
fn dot(
    plot: &Plot,
    at: (f64, f64),
    radius: f64,
    of: &ArmPoints<'_>,
    (block, value): (f64, f64),
    metric: &ExperimentMetric,
) -> Shape {
    let tip = format!("{}, block {block}\n{}", of.arm.name, format::value(value, &metric.unit));
    plot.dot(at, radius).class("fill").series(of.series).tooltip(&tip)
}

/// Draws a column for each arm and a line for each block.
fn draw_slopes(svg: &mut Svg, metric: &ExperimentMetric, arms: &[ArmPoints<'_>], plot: &Plot) {
    // The baseline's repetition comes first, so that the flat line is next to the arms that may
    // differ.
    let mut columns: Vec<&ArmPoints<'_>> = arms.iter().collect();
    sort_by_key(&mut columns, |of| of.arm.repeats.is_none());
    columns.truncate(COLUMNS_MAX);
    let steps = columns.len().saturating_sub(1).max(1) as f64;
    let plot = plot.beside((490.0, 654.0), Scale::linear(0.0, steps));
    for (of, x) in columns.iter().zip(0_u8..) {
        svg.add(plot.vertical(x.into()).class("grid"));
        let name = if of.arm.repeats.is_some() { "A/A" } else { &of.arm.name };
        let chars_max = (164.0 / steps / 7.0).clamp(4.0, 14.0) as usize;
        let at = (plot.at((x.into(), f64::NAN)).0, plot.area.bottom + 17.0);
        svg.add(Shape::text(at, &truncated_middle(name, chars_max)).class("tick middle"));
    }
    for (block, _) in columns.first().into_iter().flat_map(|of| &of.points) {
        let find_point = |of: &ArmPoints<'_>| of.points.iter().find(|(other, _)| other == block).copied();
        let values = columns.iter().map(|of| find_point(of).map_or(f64::NAN, |(_, value)| value));
        let line = plot.line((0_u8..).map(f64::from).zip(values));
        svg.add(line.class("stroke thin slope").tooltip(&format!("block {block}")));
    }
    for (of, x) in columns.iter().zip(0_u8..) {
        for point in &of.points {
            svg.add(dot(&plot, (x.into(), point.1), 3.0, of, *point, metric));
        }
    }
}
