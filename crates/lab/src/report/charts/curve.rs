//! The ladder: throughput and latency against the load, where the loads are levels of a number
//! (connections, a rate).
//! Not for a fit of them: see the chart of scaling.

use std::collections::BTreeSet;

use record::experiment::{Arm, Experiment, LoadPlan, Metric};

use super::data::{cell, level, metric};
use super::{Chart, Part, Series, arms_legend, series_of};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Area, Axis, Mark, NOISE, Scale, Svg, extent};
use crate::words;

/// Metrics that have a drawing, when the experiment has them: throughput first.
const LADDER: [&str; 4] = ["responses_per_s", "p50_ns", "p99_ns", "p999_ns"];

/// From this ratio of the largest level to the least on, equal ratios take equal room.
const LOG_FROM: f64 = 12.0;

/// A factor of which the loads are levels, and the loads of one panel by their level.
struct Panel<'a> {
    factor: &'a str,
    title: String,
    loads: Vec<(f64, &'a LoadPlan)>,
}

/// What is known of a metric at one level.
struct Point {
    level: f64,
    median: f64,
    interval: Option<(f64, f64)>,
}

/// Throughput and latencies over the loads; nothing where loads are no numbers.
pub(in crate::report) fn chart(experiment: &Experiment, _raw: &dyn Raw) -> Vec<Chart> {
    let panels = panels(experiment);
    let metrics: Vec<&Metric> = LADDER
        .iter()
        .filter_map(|name| metric(experiment, name))
        .chain(own_primary(experiment))
        .collect();
    if panels.is_empty() || metrics.is_empty() {
        return Vec::new();
    }
    let factor = panels[0].factor;
    let title = format!("Throughput and latency by {}", words::code(factor));
    let caption = "Each dot is the median over the trials at one load, its line the interval of the \
                   median; where throughput stops to grow while latency goes on, the load only queues.";
    let mut figures = Figures::new(&["arm", "load", factor, "metric", "median", "low", "high"]);
    let mut chart = Chart::new("ladder", &title, caption, Figures::default());
    for panel in &panels {
        if panels.len() > 1 {
            chart.parts.push(Part::Heading(panel.title.clone()));
        }
        for metric in &metrics {
            chart.parts.extend(drawing(experiment, panel, metric).map(Part::Drawing));
            rows(&mut figures, experiment, panel, metric);
        }
    }
    chart.figures = figures;
    vec![chart.legend(legend(experiment))]
}

/// The primary metric, where it is none of the ladder: what a response costs at each load.
fn own_primary(experiment: &Experiment) -> Option<&Metric> {
    experiment.plan.primary().filter(|metric| !LADDER.contains(&metric.name.as_str()))
}

fn legend(experiment: &Experiment) -> Vec<Series> {
    let all = arms_legend(&experiment.plan);
    all.into_iter().filter(|series| series.number != NOISE).collect()
}

/// The factor with the most levels that are numbers, and the loads by what else they differ in.
fn panels(experiment: &Experiment) -> Vec<Panel<'_>> {
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
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for load in loads {
        let Some(level) = level(load, factor) else { continue };
        let others = load.levels.iter().filter(|(name, _)| *name != factor);
        let title: Vec<String> = others.map(|(name, level)| format!("{name} {level}")).collect();
        let title = title.join(", ");
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.loads.push((level, load)),
            None => panels.push(Panel { factor, title, loads: vec![(level, load)] }),
        }
    }
    panels.iter_mut().for_each(|panel| panel.loads.sort_by(|a, b| a.0.total_cmp(&b.0)));
    panels.retain(|panel| panel.loads.len() >= 2);
    panels
}

fn points(experiment: &Experiment, panel: &Panel<'_>, arm: &Arm, metric: &Metric) -> Vec<Point> {
    let point = |(level, load): &(f64, &LoadPlan)| {
        let spread = cell(experiment, &arm.name, &load.name)?.metrics.get(&metric.name)?;
        Some(Point { level: *level, median: spread.median, interval: spread.median_interval })
    };
    panel.loads.iter().filter_map(point).collect()
}

fn rows(figures: &mut Figures, experiment: &Experiment, panel: &Panel<'_>, metric: &Metric) {
    for arm in &experiment.plan.arms {
        for (level, load) in &panel.loads {
            let spread = cell(experiment, &arm.name, &load.name)
                .and_then(|cell| cell.metrics.get(&metric.name));
            let Some(spread) = spread else { continue };
            figures.row(vec![
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

fn drawing(experiment: &Experiment, panel: &Panel<'_>, metric: &Metric) -> Option<Svg> {
    let area = Area { left: 62.0, top: 28.0, right: 610.0, bottom: 208.0 };
    let arms: Vec<&Arm> = experiment.plan.arms.iter().filter(|arm| arm.again.is_none()).collect();
    let curves: Vec<(&Arm, Vec<Point>)> =
        arms.into_iter().map(|arm| (arm, points(experiment, panel, arm, metric))).collect();
    let values = curves.iter().flat_map(|(_, points)| {
        points.iter().flat_map(|point| {
            point.interval.into_iter().flat_map(|(low, high)| [low, high]).chain([point.median])
        })
    });
    let (low, high) = extent(values)?;
    let (least, most) = (panel.loads.first()?.0, panel.loads.last()?.0);
    let x = if least > 0.0 && most / least >= LOG_FROM { Scale::log } else { Scale::linear };
    let x = x((least, most), (area.left + 12.0, area.right - 12.0));
    let ticks = panel.loads.iter().map(|(level, _)| (*level, words::tick(*level, "1")));
    let x = Axis { scale: x, ticks: ticks.collect(), title: words::code(panel.factor) };
    let y = if low > 0.0 && high / low >= LOG_FROM {
        Scale::log((low * 0.85, high * 1.15), (area.bottom, area.top))
    } else {
        Scale::from_zero(high, (area.bottom, area.top))
    };
    let title = format!("{} ({})", metric.title, words::better(metric));
    let y = Axis::of_unit(y, 5, &title, &metric.unit);
    let text = format!("{} over {}", metric.title, words::code(panel.factor));
    let mut svg = Svg::new(720.0, 254.0, &metric.title, &text);
    svg.axes(&area, &x, &y);
    offered(&mut svg, panel, metric, (&x.scale, &y.scale));
    for (arm, points) in &curves {
        curve(&mut svg, experiment, metric, (arm, points), (&x.scale, &y.scale));
    }
    labels(&mut svg, experiment, &curves, (area.right - 2.0, &y.scale));
    Some(svg)
}

/// Where throughput would be if every request that was due were answered.
fn offered(svg: &mut Svg, panel: &Panel<'_>, metric: &Metric, (x, y): (&Scale, &Scale)) {
    if metric.unit != "1/s" || !panel.factor.contains("rate") {
        return;
    }
    let within = panel.loads.iter().filter(|(level, _)| y.holds(*level));
    let way: Vec<(f64, f64)> = within.map(|(level, _)| (x.at(*level), y.at(*level))).collect();
    svg.add(Mark::polyline(&way).class("zero").tip("what was offered"));
}

fn curve(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &Metric,
    (arm, points): (&Arm, &[Point]),
    (x, y): (&Scale, &Scale),
) {
    let series = series_of(&experiment.plan, &arm.name);
    let way: Vec<(f64, f64)> =
        points.iter().map(|point| (x.at(point.level), y.at(point.median))).collect();
    svg.add(Mark::polyline(&way).class("stroke").series(series));
    for (point, place) in points.iter().zip(&way) {
        if let Some((low, high)) = point.interval {
            let bar = Mark::line((place.0, y.at(low)), (place.0, y.at(high)));
            svg.add(bar.class("stroke thin").series(series));
        }
        let value = words::value(point.median, &metric.unit);
        let tip = format!("{}, {}\n{value}", arm.name, words::tick(point.level, "1"));
        svg.add(Mark::circle(*place, 4.0).class("fill").series(series).tip(&tip));
    }
}

/// Names at the ends of the lines, moved apart where they would touch.
fn labels(
    svg: &mut Svg,
    experiment: &Experiment,
    curves: &[(&Arm, Vec<Point>)],
    (left, y): (f64, &Scale),
) {
    let ends = curves.iter().filter_map(|(arm, points)| Some((*arm, y.at(points.last()?.median))));
    let mut ends: Vec<(&Arm, f64)> = ends.filter(|(_, at)| at.is_finite()).collect();
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut free = f64::NEG_INFINITY;
    for (arm, at) in ends {
        let at = at.max(free);
        free = at + 14.0;
        let name = crate::report::svg::pinched(&arm.name, 15);
        let series = series_of(&experiment.plan, &arm.name);
        svg.add(Mark::text((left, at + 4.0), &name).class("label ink").series(series));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{one_load, sample};

    #[test]
    fn loads_that_are_numbers_make_one_panel_in_their_order() {
        let (mut experiment, raw) = sample();
        experiment.plan.loads.reverse();
        let found = panels(&experiment);
        assert_eq!(found.len(), 1);
        let levels: Vec<f64> = found[0].loads.iter().map(|(level, _)| *level).collect();
        assert_eq!((found[0].factor, levels), ("connections", vec![10.0, 50.0, 200.0]));
        assert_eq!(chart(&experiment, &raw)[0].parts.len(), 4);
    }

    #[test]
    fn without_numbers_there_is_no_ladder() {
        let (mut experiment, raw) = sample();
        experiment.plan.loads[0].levels.clear();
        assert!(chart(&experiment, &raw).is_empty());
        let (experiment, raw) = one_load();
        assert!(chart(&experiment, &raw).is_empty());
    }

    #[test]
    fn other_factors_make_panels_of_their_own() {
        let (mut experiment, raw) = sample();
        for (index, load) in experiment.plan.loads.iter_mut().enumerate() {
            let size = if index == 0 { "small" } else { "large" };
            load.levels.insert("size".to_owned(), size.to_owned());
        }
        let found = panels(&experiment);
        assert_eq!((found.len(), found[0].title.as_str()), (1, "size large"));
        assert_eq!(chart(&experiment, &raw).len(), 1);
    }
}
