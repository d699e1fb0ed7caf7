//! The latency curve: what share of responses took longer, on the axis 1 / (1 − q) that gives each
//! further nine the same room, as HdrHistogram draws it. From merged histograms, never from averages of
//! percentiles.
//! Not for latency over time.

use record::experiment::{Experiment, LoadPlan};
use record::histogram::Latencies;

use super::data::merged;
use super::{Chart, Part, arms_legend, series_of, several_loads};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Area, Axis, Mark, Scale, Svg, extent};
use crate::words;

/// Points in each decade of 1 / (1 − q).
const STEPS: usize = 12;
/// Decades at most: seven nines.
const DECADES: usize = 7;
/// Responses beyond a percentile from which on it is steady (100 / (1 − q) in all, as percentiles of
/// fewer jump from run to run).
const BEYOND_MIN: f64 = 100.0;

/// The merged latencies of an arm under a load.
struct Curve<'a> {
    arm: &'a str,
    latencies: Latencies,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    quantile: f64,
    latency_ns: u64,
    beyond: f64,
}

/// Latency curves, a drawing for each load.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let (id, title) = ("latency", "Latency by percentile");
    let caption = "Response time of the last byte, counted from when the request was due, over the \
                   share of responses that were no slower; each further nine has the same room, and \
                   where a line is thin, fewer than 100 responses are beyond.";
    let mut chart = Chart::new(id, title, caption, columns());
    let mut without = 0;
    for load in &experiment.plan.loads {
        let (curves, missing) = curves(experiment, raw, load);
        without += missing;
        curves.iter().for_each(|curve| rows(&mut chart.figures, &load.name, curve));
        if several_loads(&experiment.plan) {
            chart.parts.push(Part::Heading(load.name.clone()));
        }
        chart.parts.push(match drawing(experiment, load, &curves) {
            Some(svg) => Part::Drawing(svg),
            None => Part::Empty(
                "No data: the trials' records hold no histogram (another program drove the load, or \
                 the records are not there)."
                    .to_owned(),
            ),
        });
    }
    if without > 0 && !chart.figures.is_empty() {
        let trials = words::count(without, "trial");
        chart.notes.push(format!("{trials} without a histogram are not in it."));
    }
    vec![chart.legend(arms_legend(&experiment.plan))]
}

fn columns() -> Figures {
    Figures::new(&["load", "arm", "quantile", "latency_ns", "responses_beyond"])
}

fn curves<'a>(
    experiment: &'a Experiment,
    raw: &dyn Raw,
    load: &LoadPlan,
) -> (Vec<Curve<'a>>, usize) {
    let mut curves = Vec::new();
    let mut without = 0;
    for arm in &experiment.plan.arms {
        let cell = merged(experiment, raw, &arm.name, &load.name);
        without += cell.without;
        if !cell.latencies.is_empty() {
            curves.push(Curve { arm: &arm.name, latencies: cell.latencies });
        }
    }
    (curves, without)
}

/// Points from the fastest response to the slowest.
fn points(latencies: &Latencies) -> Vec<Point> {
    let count = latencies.count() as f64;
    let steps = (0..=STEPS * DECADES).map(|step| 10f64.powf(step as f64 / STEPS as f64));
    // The median and three quarters, which are no steps of a decade.
    let mut steps: Vec<f64> = steps.chain([2.0, 4.0]).collect();
    steps.sort_by(f64::total_cmp);
    let within = steps.into_iter().take_while(|beyond| *beyond <= count);
    let point = |beyond: f64| {
        let quantile = 1.0 - 1.0 / beyond;
        Point { quantile, latency_ns: latencies.at(quantile), beyond: count / beyond }
    };
    within.map(point).collect()
}

fn rows(figures: &mut Figures, load: &str, curve: &Curve<'_>) {
    for point in points(&curve.latencies) {
        figures.row(vec![
            load.to_owned(),
            curve.arm.to_owned(),
            number(Some(point.quantile)),
            point.latency_ns.to_string(),
            number(Some(point.beyond.floor())),
        ]);
    }
}

/// 1 / (1 − q), and how the percentile is written.
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

fn drawing(experiment: &Experiment, load: &LoadPlan, curves: &[Curve<'_>]) -> Option<Svg> {
    let area = Area { left: 62.0, top: 28.0, right: 690.0, bottom: 288.0 };
    let all: Vec<(&Curve<'_>, Vec<Point>)> =
        curves.iter().map(|curve| (curve, points(&curve.latencies))).collect();
    let latencies = all.iter().flat_map(|(_, points)| points.iter().map(|p| p.latency_ns as f64));
    let (low, high) = extent(latencies.filter(|latency_ns| *latency_ns > 0.0))?;
    let most = curves.iter().map(|curve| curve.latencies.count()).max()? as f64;
    let most = most.clamp(10.0, 10f64.powi(DECADES as i32));
    let x = Scale::log((1.0, most), (area.left, area.right));
    let ticks = PERCENTILES.iter().filter(|(beyond, _)| *beyond <= most * 1.001);
    let x = Axis {
        scale: x,
        ticks: ticks.map(|(beyond, label)| (*beyond, (*label).to_owned())).collect(),
        title: "share of responses that were no slower".to_owned(),
    };
    let y = Scale::log((low * 0.9, high * 1.1), (area.bottom, area.top));
    let y = Axis::new(y, 7, "response time", |value| words::tick(value, "ns"));
    let figures = all.iter().map(|(curve, _)| {
        let at = |quantile| words::value(curve.latencies.at(quantile) as f64, "ns");
        format!("{}: median {}, 99 % {}", curve.arm, at(0.5), at(0.99))
    });
    let text = figures.collect::<Vec<_>>().join("; ");
    let mut svg = Svg::new(720.0, 334.0, &format!("Latency, {}", load.name), &text);
    svg.axes(&area, &x, &y);
    for (curve, points) in &all {
        line(&mut svg, experiment, curve, points, (&x.scale, &y.scale));
    }
    Some(svg)
}

fn line(
    svg: &mut Svg,
    experiment: &Experiment,
    curve: &Curve<'_>,
    points: &[Point],
    (x, y): (&Scale, &Scale),
) {
    let series = series_of(&experiment.plan, curve.arm);
    let at = |point: &Point| (x.at(1.0 / (1.0 - point.quantile)), y.at(point.latency_ns as f64));
    let firm = points.iter().take_while(|point| point.beyond >= BEYOND_MIN).count();
    let way: Vec<(f64, f64)> = points.iter().map(at).collect();
    svg.add(Mark::polyline(&way[..firm]).class("stroke").series(series));
    svg.add(
        Mark::polyline(&way[firm.saturating_sub(1)..]).class("stroke thin soft").series(series),
    );
    for (point, place) in points.iter().zip(&way) {
        let tip = format!(
            "{}, {} %\n{}\n{} responses beyond",
            curve.arm,
            percentile(point.quantile),
            words::value(point.latency_ns as f64, "ns"),
            words::value(point.beyond.floor(), "1"),
        );
        // Every point can be pointed at; only round percentiles are seen as dots.
        let round = PERCENTILES.iter().any(|(beyond, _)| {
            (1.0 / (1.0 - point.quantile) / beyond - 1.0).abs() < 0.001 && *beyond > 1.0
        });
        let class = if round { "fill" } else { "ghost" };
        svg.add(Mark::circle(*place, 3.2).class(class).series(series).tip(&tip));
    }
}

/// A quantile in percent, with the digits that tell it from 100.
fn percentile(quantile: f64) -> String {
    let digits = (1.0 / (1.0 - quantile)).log10().floor().clamp(0.0, 8.0) as usize;
    let text = format!("{:.digits$}", quantile * 100.0);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{NoRaw, sample};

    #[test]
    fn points_end_where_the_responses_end() {
        let mut latencies = Latencies::new();
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
        let (experiment, _) = sample();
        let charts = chart(&experiment, &NoRaw);
        assert!(charts[0].parts.iter().any(|part| matches!(part, Part::Empty(_))));
        assert!(!charts[0].parts.iter().any(|part| matches!(part, Part::Drawing(_))));
    }
}
