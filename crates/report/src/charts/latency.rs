//! Latency curve: the fraction of responses that took longer, on the axis 1 / (1 − q) with equal
//! room for each further nine, as HdrHistogram draws it. The data are merged histograms, never
//! averages of percentiles. It does not show latency over time.

use experiment::format;
use record::experiment::Experiment;
use record::histogram::LatencyHistogram;

use super::{ReportChart, arms_legend};
use crate::TrialRecords;
use crate::data::quantiles::{NINES_MAX, QuantilePoint, percentile, quantile_points};
use crate::data::trials::{merge_trials, series_index};
use crate::data_table::DataTable;
use crate::plot::{Axis, Frame, Plot, Scale, Svg, WIDTH, extent};

/// Number of responses beyond a percentile from which it is steady (100 / (1 − q) in all).
/// Percentiles of fewer responses jump from run to run.
const BEYOND_MIN: f64 = 100.0;

pub(crate) struct LatencyCurve<'a> {
    name: &'a str,
    series: usize,
    latencies: LatencyHistogram,
    points: Vec<QuantilePoint>,
}

impl<'a> LatencyCurve<'a> {
    pub(crate) fn new(name: &'a str, series: usize, latencies: LatencyHistogram) -> Self {
        let points = quantile_points(&latencies);
        Self { name, series, latencies, points }
    }
}

/// Draws latency curves, a drawing for each load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let caption = "Latency of the last byte, from the due time of the request, by percentile; each further \
                   nine has the same width. A line is thin where fewer than 100 responses are beyond.";
    let data = DataTable::new("load arm quantile latency_ns responses_beyond");
    let mut chart = ReportChart::new("latency", "Latency by percentile", caption, data);
    let mut trials_missing = 0;
    for load in &experiment.plan.loads {
        let mut curves = Vec::new();
        for arm in &experiment.plan.arms {
            let merged = merge_trials(experiment, raw, &arm.name, &load.name);
            trials_missing += merged.trials_without_record;
            let series = series_index(&experiment.plan, &arm.name);
            let curve = LatencyCurve::new(&arm.name, series, merged.latencies);
            for QuantilePoint { quantile, latency_ns, beyond } in &curve.points {
                chart.data.add(&[&load.name, &arm.name, quantile, latency_ns, &beyond.floor()]);
            }
            if !curve.latencies.is_empty() {
                curves.push(curve);
            }
        }
        chart.load_heading(experiment, &load.name);
        chart.draw_or(
            draw_curves(&format!("Latency, {}", load.name), &curves, WIDTH),
            "No data: the records of the trials have no histogram (another load generator ran, or the \
             records are missing).",
        );
    }
    if trials_missing > 0 && !chart.data.is_empty() {
        let trials = format::count(trials_missing, "trial");
        chart.notes.push(format!("{trials} without a histogram are not included."));
    }
    vec![chart.legend(arms_legend(&experiment.plan))]
}

/// Draws curves over each other in a drawing of this width; `None` without latencies.
pub(crate) fn draw_curves(title: &str, curves: &[LatencyCurve<'_>], width: f64) -> Option<Svg> {
    let latencies = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.latency_ns as f64));
    let (low, high) = extent(latencies.filter(|latency_ns| *latency_ns > 0.0))?;
    let max_beyond = curves.iter().map(|curve| curve.latencies.count()).max()? as f64;
    let max_beyond = max_beyond.clamp(10.0, 10f64.powi(NINES_MAX.into()));
    let round = [1.0, 2.0].into_iter().chain((1..=NINES_MAX).map(|nines| 10f64.powi(nines.into())));
    let round: Vec<f64> = round.filter(|beyond| *beyond <= max_beyond * 1.001).collect();
    let ticks = round.iter().map(|beyond| (*beyond, format!("{} %", percentile(1.0 - 1.0 / beyond))));
    let x = Axis::with_ticks(Scale::log(1.0, max_beyond), "percentile", ticks);
    let y = Axis::new(Scale::log(low * 0.9, high * 1.1), 7, "latency", |ns| format::tick(ns, "ns"));
    let figures = curves.iter().map(|curve| {
        let at = |quantile| format::value(curve.latencies.value_at_quantile(quantile) as f64, "ns");
        format!("{}: p50 {}, p99 {}", curve.name, at(0.5), at(0.99))
    });
    let figures: Vec<String> = figures.collect();
    let mut svg = Svg::new(title, &figures.join("; ")).with_width(width);
    let plot = svg.plot(Frame::new(28.0, 260.0).within(66.0, width - 30.0), x.scale, &y);
    svg.x_axis(&plot, &x);
    for curve in curves {
        draw_curve(&mut svg, curve, (&plot, &round));
    }
    Some(svg)
}

/// Draws a curve. Every point has a tip; only round percentiles have a visible dot.
fn draw_curve(svg: &mut Svg, curve: &LatencyCurve<'_>, (plot, round): (&Plot, &[f64])) {
    let series = curve.series;
    let at = |point: &QuantilePoint| (1.0 / (1.0 - point.quantile), point.latency_ns as f64);
    let steady = curve.points.iter().take_while(|point| point.beyond >= BEYOND_MIN).count();
    let (first, rest) = (&curve.points[..steady], &curve.points[steady.saturating_sub(1)..]);
    svg.add(plot.line(first.iter().map(at)).class("stroke").series(series));
    svg.add(plot.line(rest.iter().map(at)).class("stroke thin soft").series(series));
    for point in &curve.points {
        let latency = format::value(point.latency_ns as f64, "ns");
        let beyond = format::value(point.beyond.floor(), "1");
        let percentile = percentile(point.quantile);
        let tip = format!("{}, {percentile} %\n{latency}\n{beyond} responses beyond", curve.name);
        let is_round = |beyond: &f64| (at(point).0 / beyond - 1.0).abs() < 0.001 && *beyond > 1.0;
        let class = if round.iter().any(is_round) { "fill" } else { "ghost" };
        svg.add(plot.dot(at(point), 3.2).class(class).series(series).tooltip(&tip));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::ChartPart;
    use crate::synthetic::{NoRecords, synthetic_experiment};

    #[test]
    fn without_records_it_says_that_it_has_no_data() {
        let (experiment, _) = synthetic_experiment();
        let charts = chart(&experiment, &NoRecords);
        assert!(charts[0].parts.iter().any(|part| matches!(part, ChartPart::Empty(_))));
        assert!(!charts[0].parts.iter().any(|part| matches!(part, ChartPart::Drawing(_))));
    }
}
