//! Requests in flight against the rate, a point for each second: on the line without waiting, twice the requests
//! in flight are twice the rate; above it they only wait.

use experiment::format;
use record::run::Run;

use super::THIS_RUN;
use super::layout::Figure;
use crate::plot::{Axis, Scale, Shape, Svg, extent};

const POINTS_MAX: usize = 60;

/// Rate and requests in flight of a second.
type LoadPoint = (f64, f64);

fn points(run: &Run) -> Vec<LoadPoint> {
    let seconds: Vec<_> =
        run.intervals.iter().filter(|second| second.measured && second.length_s > 0.5).collect();
    let step = seconds.len().div_ceil(POINTS_MAX).max(1);
    let point = |second: &&record::run::Interval| {
        (second.responses as f64 / second.length_s, second.in_flight as f64)
    };
    seconds.iter().step_by(step).map(point).collect()
}

/// Draws the points of both runs, and the line of a service without waiting.
pub(super) fn in_flight(run: &Run, baseline: Option<(&str, &Run)>) -> Option<Figure> {
    let unloaded_s =
        run.baseline.as_ref().filter(|it| it.good > 0 && it.mean_ns > 0.0).map(|it| it.mean_ns / 1e9);
    let all: Vec<Vec<LoadPoint>> =
        std::iter::once(run).chain(baseline.map(|(_, run)| run)).map(points).collect();
    let caption = match unloaded_s {
        Some(_) => {
            "A point for each second. The dashed line is the service without waiting (single requests before \
                    the load): the distance above it are requests that wait."
        }
        None => "A point for each second. Points that rise without moving to the right only wait.",
    };
    let figure = Figure::draw("load", "Requests in flight against the rate", caption, |layout| {
        let (_, rate_max) = extent(all.iter().flatten().map(|point| point.0))?;
        let (_, flight_max) = extent(all.iter().flatten().map(|point| point.1))?;
        let x =
            Axis::with_unit(Scale::from_zero(rate_max * 1.02), layout.ticks, "responses per second", "1/s");
        let y = Axis::with_unit(Scale::from_zero(flight_max * 1.02), 4, "requests in flight", "1");
        let mut svg = Svg::new("Requests in flight against the rate", "A point for each second.");
        svg = svg.with_width(layout.width);
        let plot = svg.plot(layout.frame(28.0, 170.0), x.scale, &y);
        if let Some(unloaded_s) = unloaded_s {
            let (_, end) = plot.x.range();
            let end = end.min(plot.y.range().1 / unloaded_s);
            svg.add(plot.segment((0.0, 0.0), (end, end * unloaded_s)).class("matter"));
            let at = plot.at((end, end * unloaded_s));
            let text = format!("no waiting: {} each", format::value(unloaded_s * 1e9, "ns"));
            svg.add(Shape::text((at.0 - 6.0, at.1 - 6.0), &text).class("tick end"));
        }
        for (series, points) in all.iter().enumerate().rev() {
            let name = if series == 0 { THIS_RUN } else { baseline.map_or("", |(name, _)| name) };
            for point in points {
                let (rate, requests) = (format::value(point.0, "1/s"), format::value(point.1, "1"));
                let tip = format!("{name}: {rate}, {requests} in flight");
                svg.add(
                    plot.dot(*point, 3.2)
                        .class("fill")
                        .series(series)
                        .attribute("opacity", "0.75")
                        .tooltip(&tip),
                );
            }
        }
        svg.x_axis(&plot, &x);
        Some(svg)
    })?;
    Some(figure.legend(std::iter::once(THIS_RUN).chain(baseline.map(|(name, _)| name))))
}
