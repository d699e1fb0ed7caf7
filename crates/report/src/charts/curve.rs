//! Ladder: throughput and latency against the load, if the loads are levels of a number
//! (connections, a rate). The chart of scaling shows the fit.

use experiment::format;
use record::experiment::{Arm, Experiment, ExperimentMetric, ValueDistribution};

use super::ReportChart;
use crate::TrialRecords;
use crate::data::levels::{LevelPanel, level_panels};
use crate::data::trials::{metric, series_index};
use crate::data_table::DataTable;
use crate::plot::{Axis, Frame, LEFT, Plot, Scale, Shape, Svg, extent, truncated_middle};

/// Metrics with a drawing, if the experiment has them: throughput first.
const LADDER_METRICS: [&str; 4] = ["responses_per_s", "p50_ns", "p99_ns", "p999_ns"];
/// Ratio of the largest to the smallest level from which the scale is logarithmic.
const LOG_SCALE_RATIO_MIN: f64 = 12.0;
/// Right edge of the plot; the names of the arms are to the right of it.
const PLOT_RIGHT: f64 = 610.0;

/// An arm with the spread of a metric at each level.
type ArmCurve<'a> = (&'a Arm, Vec<(f64, &'a ValueDistribution)>);

/// Draws throughput and latencies over the loads; no chart if the loads are not numbers.
pub(crate) fn chart(experiment: &Experiment, _raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let panels = level_panels(experiment);
    // Also the primary metric: the cost of a response at each load.
    let primary = experiment.plan.primary().filter(|metric| !LADDER_METRICS.contains(&metric.name.as_str()));
    let metrics = LADDER_METRICS.iter().filter_map(|name| metric(experiment, name));
    let metrics: Vec<&ExperimentMetric> = metrics.chain(primary).collect();
    if panels.is_empty() || metrics.is_empty() {
        return Vec::new();
    }
    let factor = panels[0].factor;
    let title = format!("Throughput and latency by {}", format::code_words(factor));
    let caption = "Each dot is the median over the trials at one load, its line the interval of the \
                   median. Where latency grows but throughput does not, requests only queue.";
    let data = DataTable::new("arm load").with_columns([factor, "metric", "median", "low", "high"]);
    let mut chart = ReportChart::new("ladder", &title, caption, data);
    for panel in &panels {
        if panels.len() > 1 {
            chart.heading(&panel.title);
        }
        for metric in &metrics {
            panel.add_rows(&mut chart.data, experiment, metric);
            let svg = drawing(experiment, panel, metric);
            svg.into_iter().for_each(|svg| chart.draw(svg));
        }
    }
    let own_arms = experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none());
    own_arms.for_each(|arm| chart.add_series(&experiment.plan, &arm.name));
    vec![chart]
}

fn drawing(experiment: &Experiment, panel: &LevelPanel<'_>, metric: &ExperimentMetric) -> Option<Svg> {
    let arms = experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none());
    let curves: Vec<ArmCurve<'_>> = arms.map(|arm| (arm, panel.spreads(experiment, arm, metric))).collect();
    let spreads = || curves.iter().flat_map(|(_, points)| points.iter().map(|(_, spread)| spread));
    let ends = spreads().filter_map(|spread| spread.median_interval).flat_map(|(low, high)| [low, high]);
    let (low, high) = extent(ends.chain(spreads().map(|spread| spread.median)))?;
    let (min, max) = (panel.loads.first()?.0, panel.loads.last()?.0);
    let ticks = panel.loads.iter().map(|(level, _)| (*level, format::tick(*level, "1")));
    let factor = format::code_words(panel.factor);
    let x = Axis::with_ticks(Scale::by_ratio(min, max, LOG_SCALE_RATIO_MIN), &factor, ticks);
    let values = match low > 0.0 && high / low >= LOG_SCALE_RATIO_MIN {
        true => Scale::log(low * 0.85, high * 1.15),
        false => Scale::from_zero(high),
    };
    let title = format!("{} ({})", metric.title, format::better_direction(metric));
    let mut svg = Svg::new(&metric.title, &format!("{} over {factor}", metric.title));
    let values = Axis::with_unit(values, 5, &title, &metric.unit);
    let frame = svg.plot(Frame::new(28.0, 180.0).within(LEFT, PLOT_RIGHT), x.scale, &values);
    let plot = frame.beside((LEFT + 12.0, PLOT_RIGHT - 12.0), x.scale);
    svg.x_axis(&plot, &x);
    if metric.unit == "1/s" && panel.factor.contains("rate") {
        // Offered load: every due request responded to.
        let within = panel.loads.iter().filter(|(level, _)| plot.y.contains(*level));
        svg.add(plot.line(within.map(|(level, _)| (*level, *level))).class("zero").tooltip("offered load"));
    }
    curves.iter().for_each(|curve| draw_curve(&mut svg, experiment, metric, curve, &plot));
    draw_names(&mut svg, experiment, &curves, &plot);
    Some(svg)
}

fn draw_curve(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &ExperimentMetric,
    (arm, points): &ArmCurve<'_>,
    plot: &Plot,
) {
    let series = series_index(&experiment.plan, &arm.name);
    let medians = points.iter().map(|(level, spread)| (*level, spread.median));
    svg.add(plot.line(medians).class("stroke").series(series));
    for (level, spread) in points {
        if let Some((low, high)) = spread.median_interval {
            svg.add(plot.segment((*level, low), (*level, high)).class("stroke thin").series(series));
        }
        let value = format::value(spread.median, &metric.unit);
        let tip = format!("{}, {}\n{value}", arm.name, format::tick(*level, "1"));
        svg.add(plot.dot((*level, spread.median), 4.0).class("fill").series(series).tooltip(&tip));
    }
}

/// Draws names at the ends of the lines, moved apart if they would touch.
fn draw_names(svg: &mut Svg, experiment: &Experiment, curves: &[ArmCurve<'_>], plot: &Plot) {
    let end =
        |points: &[(f64, &ValueDistribution)]| points.last().map(|(x, end)| plot.at((*x, end.median)).1);
    let ends = curves.iter().filter_map(|(arm, points)| Some((*arm, end(points)?)));
    let mut ends: Vec<(&Arm, f64)> = ends.filter(|(_, at)| at.is_finite()).collect();
    record::sorted::sort_by(&mut ends, |a, b| a.1.total_cmp(&b.1));
    let mut next_y = f64::NEG_INFINITY;
    for (arm, at) in ends {
        let at = at.max(next_y);
        next_y = at + 14.0;
        let name = Shape::text((PLOT_RIGHT - 2.0, at + 4.0), &truncated_middle(&arm.name, 15));
        svg.add(name.class("label ink").series(series_index(&experiment.plan, &arm.name)));
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
        let level_panels = level_panels(&experiment);
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
        let level_panels = level_panels(&experiment);
        assert_eq!((level_panels.len(), level_panels[0].title.as_str()), (1, "size large"));
        assert_eq!(chart(&experiment, &raw).len(), 1);
    }
}
