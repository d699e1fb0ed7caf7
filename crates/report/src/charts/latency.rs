//! Latency curve: the fraction of responses that took longer, on the axis 1 / (1 − q) with equal
//! room for each further nine, as HdrHistogram draws it. The data are merged histograms, never
//! averages of percentiles. It does not show latency over time.

use experiment::format;
use record::experiment::{Experiment, LoadPlan};
use record::histogram::LatencyHistogram;

use super::trial_data::merge_trials;
use super::{ChartPart, ReportChart, arms_legend, has_several_loads, series_index};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Area, Axis, Scale, Shape, Svg, extent};

/// Points in each decade of 1 / (1 − q).
const POINTS_PER_DECADE: usize = 12;
/// Maximum number of decades: seven nines.
const DECADES_MAX: usize = 7;
/// Number of responses beyond a percentile from which it is steady (100 / (1 − q) in all).
/// Percentiles of fewer responses jump from run to run.
const BEYOND_MIN: f64 = 100.0;

/// The merged latencies of an arm under a load.
struct LatencyCurve<'a> {
    arm: &'a str,
    latencies: LatencyHistogram,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
struct QuantilePoint {
    quantile: f64,
    latency_ns: u64,
    beyond: f64,
}

/// Draws latency curves, a drawing for each load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let (id, title) = ("latency", "Latency by percentile");
    let caption = "Latency of the last byte, from the due time of the request, by percentile; each further \
                   nine has the same width. A line is thin where fewer than 100 responses are beyond.";
    let mut chart = ReportChart::new(id, title, caption, columns());
    let mut trials_missing = 0;
    for load in &experiment.plan.loads {
        let (curves, missing) = curves(experiment, raw, load);
        trials_missing += missing;
        curves.iter().for_each(|curve| add_rows(&mut chart.data, &load.name, curve));
        if has_several_loads(&experiment.plan) {
            chart.parts.push(ChartPart::Heading(load.name.clone()));
        }
        chart.parts.push(match drawing(experiment, load, &curves) {
            Some(svg) => ChartPart::Drawing(svg),
            None => ChartPart::Empty(
                "No data: the records of the trials have no histogram (another load generator ran, or \
                 the records are missing)."
                    .to_owned(),
            ),
        });
    }
    if trials_missing > 0 && !chart.data.is_empty() {
        let trials = format::count(trials_missing, "trial");
        chart.notes.push(format!("{trials} without a histogram are not included."));
    }
    vec![chart.legend(arms_legend(&experiment.plan))]
}

fn columns() -> DataTable {
    DataTable::new(&["load", "arm", "quantile", "latency_ns", "responses_beyond"])
}

fn curves<'a>(
    experiment: &'a Experiment,
    raw: &dyn TrialRecords,
    load: &LoadPlan,
) -> (Vec<LatencyCurve<'a>>, usize) {
    let mut curves = Vec::new();
    let mut trials_missing = 0;
    for arm in &experiment.plan.arms {
        let cell = merge_trials(experiment, raw, &arm.name, &load.name);
        trials_missing += cell.trials_without_record;
        if !cell.latencies.is_empty() {
            curves.push(LatencyCurve { arm: &arm.name, latencies: cell.latencies });
        }
    }
    (curves, trials_missing)
}

/// Returns points from the fastest response to the slowest.
fn points(latencies: &LatencyHistogram) -> Vec<QuantilePoint> {
    let count = latencies.count() as f64;
    let steps =
        (0..=POINTS_PER_DECADE * DECADES_MAX).map(|step| 10f64.powf(step as f64 / POINTS_PER_DECADE as f64));
    // The median and three quarters are not steps of a decade.
    let mut steps: Vec<f64> = steps.chain([2.0, 4.0]).collect();
    steps.sort_by(f64::total_cmp);
    let within = steps.into_iter().take_while(|beyond| *beyond <= count);
    let point = |beyond: f64| {
        let quantile = 1.0 - 1.0 / beyond;
        QuantilePoint { quantile, latency_ns: latencies.value_at_quantile(quantile), beyond: count / beyond }
    };
    within.map(point).collect()
}

fn add_rows(data: &mut DataTable, load: &str, curve: &LatencyCurve<'_>) {
    for point in points(&curve.latencies) {
        data.add_row(vec![
            load.to_owned(),
            curve.arm.to_owned(),
            number(Some(point.quantile)),
            point.latency_ns.to_string(),
            number(Some(point.beyond.floor())),
        ]);
    }
}

/// 1 / (1 − q), and the text of the percentile.
const PERCENTILES: [(f64, &str); 9] = [
    (1.0, "0 %"),
    (2.0, "50 %"),
    (10.0, "90 %"),
    (100.0, "99 %"),
    (1e3, "99.9 %"),
    (1e4, "99.99 %"),
    (1e5, "99.999 %"),
    (1e6, "99.9999 %"),
    (1e7, "99.99999 %"),
];

fn drawing(experiment: &Experiment, load: &LoadPlan, curves: &[LatencyCurve<'_>]) -> Option<Svg> {
    let area = Area { left: 62.0, top: 28.0, right: 690.0, bottom: 288.0 };
    let all: Vec<(&LatencyCurve<'_>, Vec<QuantilePoint>)> =
        curves.iter().map(|curve| (curve, points(&curve.latencies))).collect();
    let latencies = all.iter().flat_map(|(_, points)| points.iter().map(|p| p.latency_ns as f64));
    let (low, high) = extent(latencies.filter(|latency_ns| *latency_ns > 0.0))?;
    let max_beyond = curves.iter().map(|curve| curve.latencies.count()).max()? as f64;
    let max_beyond = max_beyond.clamp(10.0, 10f64.powi(DECADES_MAX as i32));
    let x = Scale::log((1.0, max_beyond), (area.left, area.right));
    let ticks = PERCENTILES.iter().filter(|(beyond, _)| *beyond <= max_beyond * 1.001);
    let x = Axis {
        scale: x,
        ticks: ticks.map(|(beyond, label)| (*beyond, (*label).to_owned())).collect(),
        title: "percentile".to_owned(),
    };
    let y = Scale::log((low * 0.9, high * 1.1), (area.bottom, area.top));
    let y = Axis::new(y, 7, "latency", |value| format::tick(value, "ns"));
    let figures = all.iter().map(|(curve, _)| {
        let at = |quantile| format::value(curve.latencies.value_at_quantile(quantile) as f64, "ns");
        format!("{}: p50 {}, p99 {}", curve.arm, at(0.5), at(0.99))
    });
    let text = figures.collect::<Vec<_>>().join("; ");
    let mut svg = Svg::new(720.0, 334.0, &format!("Latency, {}", load.name), &text);
    svg.axes(&area, &x, &y);
    for (curve, points) in &all {
        draw_curve(&mut svg, experiment, curve, points, (&x.scale, &y.scale));
    }
    Some(svg)
}

fn draw_curve(
    svg: &mut Svg,
    experiment: &Experiment,
    curve: &LatencyCurve<'_>,
    points: &[QuantilePoint],
    (x, y): (&Scale, &Scale),
) {
    let series = series_index(&experiment.plan, curve.arm);
    let at = |point: &QuantilePoint| {
        (x.position(1.0 / (1.0 - point.quantile)), y.position(point.latency_ns as f64))
    };
    let is_steady = points.iter().take_while(|point| point.beyond >= BEYOND_MIN).count();
    let path: Vec<(f64, f64)> = points.iter().map(at).collect();
    svg.add(Shape::polyline(&path[..is_steady]).class("stroke").series(series));
    svg.add(Shape::polyline(&path[is_steady.saturating_sub(1)..]).class("stroke thin soft").series(series));
    for (point, position) in points.iter().zip(&path) {
        let tip = format!(
            "{}, {} %\n{}\n{} responses beyond",
            curve.arm,
            percentile(point.quantile),
            format::value(point.latency_ns as f64, "ns"),
            format::value(point.beyond.floor(), "1"),
        );
        // Every point has a tip; only round percentiles have a visible dot.
        let is_labelled = PERCENTILES
            .iter()
            .any(|(beyond, _)| (1.0 / (1.0 - point.quantile) / beyond - 1.0).abs() < 0.001 && *beyond > 1.0);
        let class = if is_labelled { "fill" } else { "ghost" };
        svg.add(Shape::circle(*position, 3.2).class(class).series(series).tooltip(&tip));
    }
}

/// Formats a quantile in percent, with enough digits to differ from 100.
fn percentile(quantile: f64) -> String {
    let digits = (1.0 / (1.0 - quantile)).log10().floor().clamp(0.0, 8.0) as usize;
    let text = format!("{:.digits$}", quantile * 100.0);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{NoRecords, synthetic_experiment};

    #[test]
    fn points_end_where_the_responses_end() {
        let mut latencies = LatencyHistogram::new();
        (1..=10_000u64).for_each(|index| latencies.record(index * 1_000));
        let points = points(&latencies);
        assert!(points.windows(2).all(|pair| pair[0].latency_ns <= pair[1].latency_ns));
        let last = points.last().unwrap();
        assert!((last.quantile - 0.9999).abs() < 1e-9, "{last:?}");
        let median = points.iter().find(|point| point.quantile == 0.5).unwrap();
        assert!((median.latency_ns as f64 / 5e6 - 1.0).abs() < 0.001);
    }

    #[test]
    fn a_percentile_has_the_digits_that_tell_it() {
        for (quantile, text) in [(0.5, "50"), (0.9, "90"), (0.999, "99.9"), (0.99999, "99.999")] {
            assert_eq!(percentile(quantile), text);
        }
    }

    #[test]
    fn without_records_it_says_that_it_has_no_data() {
        let (experiment, _) = synthetic_experiment();
        let charts = chart(&experiment, &NoRecords);
        assert!(charts[0].parts.iter().any(|part| matches!(part, ChartPart::Empty(_))));
        assert!(!charts[0].parts.iter().any(|part| matches!(part, ChartPart::Drawing(_))));
    }
}
