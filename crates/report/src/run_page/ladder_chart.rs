//! Charts of a search: latency and goodput against the load with the held level, the knee and the objective; and
//! the scaling with connections.

use experiment::format;
use record::capacity_search::{CapacitySearch, LevelOutcome, SearchTrial};
use record::sorted::sort_by;
use record::units::{DurationUnit, parse_duration_ns};

use super::first_screen::level_text;
use super::layout::{Figure, Layout};
use crate::plot::{Axis, Plot, Scale, Shape, Svg, extent};

const TRIALS_MAX: usize = 80;
/// Widest interval of a knee, as a ratio of its ends: a wider one is no figure.
const KNEE_SPREAD_MAX: f64 = 2.0;

/// Trials at levels of the searched quantity: those of the ladder in their order, and the others.
fn trials(search: &CapacitySearch) -> (Vec<&SearchTrial>, Vec<&SearchTrial>) {
    let at_level =
        |trial: &&SearchTrial| !["scaling", "direct", "diagnosis", "full"].contains(&trial.purpose.as_str());
    let all = search.trials.iter().filter(at_level).take(TRIALS_MAX);
    let (mut ladder, others): (Vec<_>, Vec<_>) = all.partition(|trial| trial.purpose == "ladder");
    sort_by(&mut ladder, |a, b| a.level.total_cmp(&b.level));
    (ladder, others)
}

fn level_axis(search: &CapacitySearch, layout: &Layout) -> Option<Axis> {
    let (ladder, others) = trials(search);
    let (_, high) = extent(ladder.iter().chain(&others).map(|trial| trial.level))?;
    let (title, unit) = match search.quantity.as_str() {
        "connections" => ("connections", "1"),
        "streams" => ("streams per connection", "1"),
        "handshakes" => ("TLS handshakes per second", "1/s"),
        "connections-per-second" => ("new connections per second", "1/s"),
        _ => ("offered requests per second", "1/s"),
    };
    Some(Axis::with_unit(Scale::from_zero(high), layout.ticks, title, unit))
}

/// Draws the held level, the lowest missed one, and the knee with its interval.
fn draw_levels(svg: &mut Svg, plot: &Plot, search: &CapacitySearch) {
    if let Some(knee) = search.knee.filter(|knee| knee.level.high <= knee.level.low * KNEE_SPREAD_MAX) {
        let tip = format!("knee at {}", level_text(search, knee.level.value));
        svg.add(plot.band((knee.level.low, knee.level.high)).class("band").tooltip(&tip));
        mark(svg, plot, (knee.level.value, "knee"), 26.0, "matter");
    }
    let conclusion = &search.conclusion;
    if let Some(level) = conclusion.level.or(conclusion.lower) {
        mark(svg, plot, (level, "held"), 12.0, "zero");
    }
    if let Some(level) = conclusion.upper {
        let line = plot.vertical(level).class("stroke thin bad");
        svg.add(line.tooltip(&format!("missed at {}", level_text(search, level))));
    }
}

/// Draws a vertical line with its name at the side with more room.
fn mark(svg: &mut Svg, plot: &Plot, (level, name): (f64, &str), below: f64, class: &str) {
    if !plot.x.contains(level) {
        return;
    }
    svg.add(plot.vertical(level).class(class));
    let (at, _) = plot.at((level, f64::NAN));
    let is_right = plot.x.fraction(level) > 0.5;
    let (shift, side) = if is_right { (-4.0, "tick over end") } else { (4.0, "tick over") };
    svg.add(Shape::text((at + shift, plot.area.top + below), name).class(side));
}

fn tip(search: &CapacitySearch, trial: &SearchTrial) -> String {
    let outcome = match trial.outcome {
        LevelOutcome::Held => "held",
        LevelOutcome::Missed => "missed",
        LevelOutcome::Undecided => "undecided",
    };
    format!(
        "{}: {outcome}\n{} good\np50 {}, p99 {}\n{} in flight",
        level_text(search, trial.level),
        format::value(trial.goodput_per_s(), "1/s"),
        format::value(trial.p50_ns as f64, "ns"),
        format::value(trial.p99_ns as f64, "ns"),
        format::value(trial.in_flight_mean, "1"),
    )
}

fn objective_ns(search: &CapacitySearch, percentile: &str) -> Option<f64> {
    search.objectives.iter().find_map(|text| {
        let limit = text.trim().strip_prefix(percentile)?.strip_prefix('<')?;
        let limit = limit.strip_prefix('=').unwrap_or(limit).trim();
        parse_duration_ns(limit, DurationUnit::Milliseconds).ok().map(|ns| ns as f64)
    })
}

/// Draws p50 and p99 of every trial against its level.
pub(super) fn latency(search: &CapacitySearch) -> Option<Figure> {
    let (ladder, others) = trials(search);
    let objective = objective_ns(search, "p99");
    let caption = match objective {
        Some(_) => {
            "Lines: p99 and p50 of the ladder; dots: p99 of the other trials, red if they missed. The dashed \
                    line is the objective of p99."
        }
        None => "Lines: p99 and p50 of the ladder; dots: p99 of the other trials, red if they missed.",
    };
    let figure = Figure::draw("ladder-latency", "Latency", caption, |layout| {
        let x = level_axis(search, layout)?;
        let all = || ladder.iter().chain(&others);
        let times = all().flat_map(|trial| [trial.p50_ns as f64, trial.p99_ns as f64]).chain(objective);
        let (low, high) = extent(times.filter(|ns| *ns > 0.0))?;
        let y = Axis::new(Scale::log(low * 0.8, high * 1.25), 5, "latency", |ns| format::tick(ns, "ns"));
        let mut svg = Svg::new("Latency against the load", "p50 and p99 by level.").with_width(layout.width);
        let plot = svg.plot(layout.frame(30.0, 210.0), x.scale, &y);
        draw_levels(&mut svg, &plot, search);
        if let Some(objective) = objective {
            svg.add(plot.horizontal(objective).class("matter"));
        }
        for trial in &others {
            let class = if trial.outcome == LevelOutcome::Missed { "bad ink" } else { "fill cn" };
            let dot = plot.dot((trial.level, trial.p99_ns as f64), 3.0).class(class);
            svg.add(dot.attribute("opacity", "0.6").tooltip(&tip(search, trial)));
        }
        let times: [fn(&SearchTrial) -> u64; 2] = [|trial| trial.p99_ns, |trial| trial.p50_ns];
        for (series, time) in times.into_iter().enumerate() {
            let points: Vec<_> = ladder.iter().map(|trial| (trial.level, time(trial) as f64)).collect();
            svg.add_series(&plot, &points, series);
            for (point, trial) in points.iter().zip(&ladder) {
                let dot = plot.dot(*point, 3.6).class("fill").series(series);
                svg.add(dot.tooltip(&tip(search, trial)));
            }
        }
        // Above the lines, which may cross it.
        if let Some(objective) = objective {
            let at = (plot.area.left + 4.0, plot.at((f64::NAN, objective)).1 - 5.0);
            let text = format!("objective {}", format::value(objective, "ns"));
            svg.add(Shape::text(at, &text).class("tick over"));
        }
        svg.x_axis(&plot, &x);
        Some(svg)
    })?;
    Some(figure.legend(["p99", "p50"]))
}

/// Draws the goodput against the offered rate; `None` for levels that are no rate.
pub(super) fn goodput(search: &CapacitySearch) -> Option<Figure> {
    let (ladder, others) = trials(search);
    let is_rate =
        ["rate", "bandwidth", "connections-per-second", "handshakes"].contains(&search.quantity.as_str());
    let caption = "Good responses per second. On the dashed line all offered requests are answered; below it the \
                   rest failed, or is still waiting.";
    Figure::draw("ladder-goodput", "Goodput", caption, |layout| {
        let x = level_axis(search, layout)?;
        let all = || ladder.iter().chain(&others);
        let (_, high) = extent(all().map(|trial| trial.goodput_per_s()))?;
        let y = Axis::with_unit(Scale::from_zero(high * 1.02), 4, "good responses per second", "1/s");
        let mut svg = Svg::new("Goodput against the load", "Goodput by level.").with_width(layout.width);
        let plot = svg.plot(layout.frame(28.0, 150.0), x.scale, &y);
        draw_levels(&mut svg, &plot, search);
        if is_rate {
            let end = plot.x.range().1.min(plot.y.range().1);
            svg.add(plot.segment((0.0, 0.0), (end, end)).class("matter"));
        }
        let answered = |trial: &SearchTrial| {
            trial.goodput_per_s() + trial.observer.map_or(0.0, |observer| observer.responses_per_s)
        };
        for trial in &others {
            let class = if trial.outcome == LevelOutcome::Missed { "bad ink" } else { "fill cn" };
            let dot = plot.dot((trial.level, answered(trial)), 3.0).class(class);
            svg.add(dot.attribute("opacity", "0.6").tooltip(&tip(search, trial)));
        }
        let points: Vec<_> = ladder.iter().map(|trial| (trial.level, answered(trial))).collect();
        svg.add_series(&plot, &points, 2);
        for (point, trial) in points.iter().zip(&ladder) {
            svg.add(plot.dot(*point, 3.6).class("fill").series(2).tooltip(&tip(search, trial)));
        }
        svg.x_axis(&plot, &x);
        Some(svg)
    })
}

/// Draws the throughput against the requests in flight of a closed loop.
pub(super) fn scaling(search: &CapacitySearch) -> Option<Figure> {
    let scaling = search.scaling.as_ref().filter(|scaling| !scaling.points.is_empty())?;
    let points: Vec<(f64, f64)> = scaling.points.iter().copied().take(TRIALS_MAX).collect();
    let caption = "Throughput by connections that each send the next request at once. Where it stays level, further \
                   connections only wait.";
    Figure::draw("scaling", "Requests in flight against rate", caption, |layout| {
        let (_, widest) = extent(points.iter().map(|point| point.0))?;
        let (_, high) = extent(points.iter().map(|point| point.1))?;
        let x = Axis::with_unit(Scale::from_zero(widest), layout.ticks, "connections", "1");
        let y = Axis::with_unit(Scale::from_zero(high * 1.02), 4, "responses per second", "1/s");
        let mut svg = Svg::new("Throughput by connections", "A point for each number of connections.");
        svg = svg.with_width(layout.width);
        let plot = svg.plot(layout.frame(28.0, 150.0), x.scale, &y);
        svg.add_series(&plot, &points, 0);
        for point in &points {
            let tip = format!(
                "{} with {}",
                format::value(point.1, "1/s"),
                format::count(point.0 as usize, "connection")
            );
            svg.add(plot.dot(*point, 3.6).class("fill").series(0).tooltip(&tip));
        }
        svg.x_axis(&plot, &x);
        Some(svg)
    })
}
