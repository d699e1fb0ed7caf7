//! Ladder: throughput and latency against the load, if the loads are levels of a number
//! (connections, a rate). The chart of scaling shows the fit.

use std::collections::BTreeSet;

use experiment::format;
use record::experiment::{Arm, Experiment, ExperimentMetric, LoadPlan};

use super::trial_data::{cell, level, metric};
use super::{ChartPart, LegendEntry, ReportChart, arms_legend, series_index};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Area, Axis, NOISE_SERIES, Scale, Shape, Svg, extent};

/// Metrics with a drawing, if the experiment has them: throughput first.
const LADDER_METRICS: [&str; 4] = ["responses_per_s", "p50_ns", "p99_ns", "p999_ns"];

/// Ratio of the largest to the smallest level from which the scale is logarithmic.
const LOG_SCALE_RATIO_MIN: f64 = 12.0;

/// A factor with its loads as levels, and the loads of one panel by level.
struct LevelPanel<'a> {
    factor: &'a str,
    title: String,
    loads: Vec<(f64, &'a LoadPlan)>,
}

/// Figures of a metric at one level.
struct CurvePoint {
    level: f64,
    median: f64,
    interval: Option<(f64, f64)>,
}

/// Draws throughput and latencies over the loads; no chart if the loads are not numbers.
pub(crate) fn chart(experiment: &Experiment, _raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let panels = panels(experiment);
    let metrics: Vec<&ExperimentMetric> = LADDER_METRICS
        .iter()
        .filter_map(|name| metric(experiment, name))
        .chain(primary_outside_ladder(experiment))
        .collect();
    if panels.is_empty() || metrics.is_empty() {
        return Vec::new();
    }
    let factor = panels[0].factor;
    let title = format!("Throughput and latency by {}", format::code_words(factor));
    let caption = "Each dot is the median over the trials at one load, its line the interval of the \
                   median. Where latency grows but throughput does not, requests only queue.";
    let mut data = DataTable::new(&["arm", "load", factor, "metric", "median", "low", "high"]);
    let mut chart = ReportChart::new("ladder", &title, caption, DataTable::default());
    for panel in &panels {
        if panels.len() > 1 {
            chart.parts.push(ChartPart::Heading(panel.title.clone()));
        }
        for metric in &metrics {
            chart.parts.extend(drawing(experiment, panel, metric).map(ChartPart::Drawing));
            add_rows(&mut data, experiment, panel, metric);
        }
    }
    chart.data = data;
    vec![chart.legend(legend(experiment))]
}

/// Returns the primary metric if it is not one of the ladder: the cost of a response at each load.
fn primary_outside_ladder(experiment: &Experiment) -> Option<&ExperimentMetric> {
    experiment.plan.primary().filter(|metric| !LADDER_METRICS.contains(&metric.name.as_str()))
}

fn legend(experiment: &Experiment) -> Vec<LegendEntry> {
    let all = arms_legend(&experiment.plan);
    all.into_iter().filter(|series| series.number != NOISE_SERIES).collect()
}

/// Returns the factor with the most numeric levels, and the loads grouped by their other
/// differences.
fn panels(experiment: &Experiment) -> Vec<LevelPanel<'_>> {
    let loads = &experiment.plan.loads;
    let names: BTreeSet<&String> = loads.iter().flat_map(|load| load.levels.keys()).collect();
    let levels = |factor: &&String| -> usize {
        let levels: Option<Vec<f64>> = loads.iter().map(|load| level(load, factor)).collect();
        let levels = levels.unwrap_or_default();
        levels.iter().map(|level| level.to_bits()).collect::<BTreeSet<_>>().len()
    };
    let Some(factor) = names.into_iter().max_by_key(levels).filter(|name| levels(name) >= 2) else {
        return Vec::new();
    };
    let mut panels: Vec<LevelPanel<'_>> = Vec::new();
    for load in loads {
        let Some(level) = level(load, factor) else { continue };
        let others = load.levels.iter().filter(|(name, _)| *name != factor);
        let title: Vec<String> = others.map(|(name, level)| format!("{name} {level}")).collect();
        let title = title.join(", ");
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.loads.push((level, load)),
            None => panels.push(LevelPanel { factor, title, loads: vec![(level, load)] }),
        }
    }
    panels.iter_mut().for_each(|panel| panel.loads.sort_by(|a, b| a.0.total_cmp(&b.0)));
    panels.retain(|panel| panel.loads.len() >= 2);
    panels
}

fn points(
    experiment: &Experiment,
    panel: &LevelPanel<'_>,
    arm: &Arm,
    metric: &ExperimentMetric,
) -> Vec<CurvePoint> {
    let point = |(level, load): &(f64, &LoadPlan)| {
        let spread = cell(experiment, &arm.name, &load.name)?.metrics.get(&metric.name)?;
        Some(CurvePoint { level: *level, median: spread.median, interval: spread.median_interval })
    };
    panel.loads.iter().filter_map(point).collect()
}

fn add_rows(
    data: &mut DataTable,
    experiment: &Experiment,
    panel: &LevelPanel<'_>,
    metric: &ExperimentMetric,
) {
    for arm in &experiment.plan.arms {
        for (level, load) in &panel.loads {
            let spread =
                cell(experiment, &arm.name, &load.name).and_then(|cell| cell.metrics.get(&metric.name));
            let Some(spread) = spread else { continue };
            data.add_row(vec![
                arm.name.clone(),
                load.name.clone(),
                number(Some(*level)),
                metric.name.clone(),
                number(Some(spread.median)),
                number(spread.median_interval.map(|(low, _)| low)),
                number(spread.median_interval.map(|(_, high)| high)),
            ]);
        }
    }
}

fn drawing(experiment: &Experiment, panel: &LevelPanel<'_>, metric: &ExperimentMetric) -> Option<Svg> {
    let area = Area { left: 62.0, top: 28.0, right: 610.0, bottom: 208.0 };
    let arms: Vec<&Arm> = experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()).collect();
    let curves: Vec<(&Arm, Vec<CurvePoint>)> =
        arms.into_iter().map(|arm| (arm, points(experiment, panel, arm, metric))).collect();
    let values = curves.iter().flat_map(|(_, points)| {
        points.iter().flat_map(|point| {
            point.interval.into_iter().flat_map(|(low, high)| [low, high]).chain([point.median])
        })
    });
    let (low, high) = extent(values)?;
    let (min_level, max_level) = (panel.loads.first()?.0, panel.loads.last()?.0);
    let x = if min_level > 0.0 && max_level / min_level >= LOG_SCALE_RATIO_MIN {
        Scale::log
    } else {
        Scale::linear
    };
    let x = x((min_level, max_level), (area.left + 12.0, area.right - 12.0));
    let ticks = panel.loads.iter().map(|(level, _)| (*level, format::tick(*level, "1")));
    let x = Axis { scale: x, ticks: ticks.collect(), title: format::code_words(panel.factor) };
    let y = if low > 0.0 && high / low >= LOG_SCALE_RATIO_MIN {
        Scale::log((low * 0.85, high * 1.15), (area.bottom, area.top))
    } else {
        Scale::from_zero(high, (area.bottom, area.top))
    };
    let title = format!("{} ({})", metric.title, format::better_direction(metric));
    let y = Axis::with_unit(y, 5, &title, &metric.unit);
    let text = format!("{} over {}", metric.title, format::code_words(panel.factor));
    let mut svg = Svg::new(720.0, 254.0, &metric.title, &text);
    svg.axes(&area, &x, &y);
    draw_offered_load(&mut svg, panel, metric, (&x.scale, &y.scale));
    for (arm, points) in &curves {
        draw_curve(&mut svg, experiment, metric, (arm, points), (&x.scale, &y.scale));
    }
    draw_labels(&mut svg, experiment, &curves, (area.right - 2.0, &y.scale));
    Some(svg)
}

/// Draws the offered throughput: every due request responded to.
fn draw_offered_load(
    svg: &mut Svg,
    panel: &LevelPanel<'_>,
    metric: &ExperimentMetric,
    (x, y): (&Scale, &Scale),
) {
    if metric.unit != "1/s" || !panel.factor.contains("rate") {
        return;
    }
    let within = panel.loads.iter().filter(|(level, _)| y.contains(*level));
    let path: Vec<(f64, f64)> = within.map(|(level, _)| (x.position(*level), y.position(*level))).collect();
    svg.add(Shape::polyline(&path).class("zero").tooltip("offered load"));
}

fn draw_curve(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &ExperimentMetric,
    (arm, points): (&Arm, &[CurvePoint]),
    (x, y): (&Scale, &Scale),
) {
    let series = series_index(&experiment.plan, &arm.name);
    let path: Vec<(f64, f64)> =
        points.iter().map(|point| (x.position(point.level), y.position(point.median))).collect();
    svg.add(Shape::polyline(&path).class("stroke").series(series));
    for (point, position) in points.iter().zip(&path) {
        if let Some((low, high)) = point.interval {
            let bar = Shape::line((position.0, y.position(low)), (position.0, y.position(high)));
            svg.add(bar.class("stroke thin").series(series));
        }
        let value = format::value(point.median, &metric.unit);
        let tip = format!("{}, {}\n{value}", arm.name, format::tick(point.level, "1"));
        svg.add(Shape::circle(*position, 4.0).class("fill").series(series).tooltip(&tip));
    }
}

/// Draws names at the ends of the lines, moved apart if they would touch.
fn draw_labels(
    svg: &mut Svg,
    experiment: &Experiment,
    curves: &[(&Arm, Vec<CurvePoint>)],
    (left, y): (f64, &Scale),
) {
    let ends = curves.iter().filter_map(|(arm, points)| Some((*arm, y.position(points.last()?.median))));
    let mut ends: Vec<(&Arm, f64)> = ends.filter(|(_, at)| at.is_finite()).collect();
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut next_y = f64::NEG_INFINITY;
    for (arm, at) in ends {
        let at = at.max(next_y);
        next_y = at + 14.0;
        let name = crate::svg::truncated_middle(&arm.name, 15);
        let series = series_index(&experiment.plan, &arm.name);
        svg.add(Shape::text((left, at + 4.0), &name).class("label ink").series(series));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{one_load, synthetic_experiment};

    #[test]
    fn loads_that_are_numbers_make_one_panel_in_their_order() {
        let (mut experiment, raw) = synthetic_experiment();
        experiment.plan.loads.reverse();
        let level_panels = panels(&experiment);
        assert_eq!(level_panels.len(), 1);
        let levels: Vec<f64> = level_panels[0].loads.iter().map(|(level, _)| *level).collect();
        assert_eq!((level_panels[0].factor, levels), ("connections", vec![10.0, 50.0, 200.0]));
        assert_eq!(chart(&experiment, &raw)[0].parts.len(), 4);
    }

    #[test]
    fn without_numbers_there_is_no_ladder() {
        let (mut experiment, raw) = synthetic_experiment();
        experiment.plan.loads[0].levels.clear();
        assert!(chart(&experiment, &raw).is_empty());
        let (experiment, raw) = one_load();
        assert!(chart(&experiment, &raw).is_empty());
    }

    #[test]
    fn other_factors_make_panels_of_their_own() {
        let (mut experiment, raw) = synthetic_experiment();
        for (index, load) in experiment.plan.loads.iter_mut().enumerate() {
            let size = if index == 0 { "small" } else { "large" };
            load.levels.insert("size".to_owned(), size.to_owned());
        }
        let level_panels = panels(&experiment);
        assert_eq!((level_panels.len(), level_panels[0].title.as_str()), (1, "size large"));
        assert_eq!(chart(&experiment, &raw).len(), 1);
    }
}
