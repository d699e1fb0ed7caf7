//! Charts over time: responses and errors per second, bands of the latency, requests in flight.

use experiment::format;
use record::run::{Interval, Run};

use super::THIS_RUN;
use super::layout::{Figure, Layout};
use crate::plot::{Axis, Plot, Scale, Shape, Svg, extent};

/// Maximum number of columns; more seconds are merged.
const COLUMNS_MAX: usize = 80;
/// Minimum length of a drawn interval.
const LENGTH_S_MIN: f64 = 0.5;

/// Merged seconds of a run.
struct Column {
    from_s: f64,
    to_s: f64,
    good_per_s: f64,
    errors_per_s: f64,
    in_flight: f64,
    p50_ns: Option<f64>,
    /// Highest of the seconds: percentiles cannot be merged.
    p99_ns: Option<f64>,
    max_ns: f64,
    measured: bool,
}

fn columns(run: &Run) -> Vec<Column> {
    // The rest of a second at the end has a rate of chance.
    let is_drawn = |second: &&Interval| second.length_s >= LENGTH_S_MIN && second.time_s.is_finite();
    let seconds: Vec<&Interval> = run.intervals.iter().filter(is_drawn).collect();
    let step = seconds.len().div_ceil(COLUMNS_MAX).max(1);
    seconds.chunks(step).filter_map(column).collect()
}

fn column(seconds: &[&Interval]) -> Option<Column> {
    let (first, last) = (seconds.first()?, seconds.last()?);
    let length_s: f64 = seconds.iter().map(|second| second.length_s).sum();
    let per_s = |count: &dyn Fn(&Interval) -> u64| {
        seconds.iter().map(|second| count(second) as f64).sum::<f64>() / length_s
    };
    let times = |time: &dyn Fn(&Interval) -> Option<u64>| -> Vec<f64> {
        seconds
            .iter()
            .filter(|second| second.responses > 0)
            .filter_map(|second| Some(time(second)? as f64))
            .collect()
    };
    Some(Column {
        from_s: first.time_s - first.length_s,
        to_s: last.time_s,
        good_per_s: per_s(&|second| second.events.or(second.good).unwrap_or(second.responses)),
        errors_per_s: per_s(&|second| second.errors.values().sum::<u64>() + second.dropped),
        in_flight: seconds.iter().map(|second| second.in_flight as f64).fold(0.0, f64::max),
        p50_ns: stats::median(&times(&|second| second.p50_ns)),
        p99_ns: times(&|second| second.p99_ns).into_iter().reduce(f64::max),
        max_ns: times(&|second| Some(second.max_ns)).into_iter().fold(0.0, f64::max),
        measured: seconds.iter().any(|second| second.measured),
    })
}

impl Column {
    fn middle_s(&self) -> f64 {
        f64::midpoint(self.from_s, self.to_s)
    }

    fn tip(&self) -> String {
        let time = |ns: Option<f64>| ns.map_or_else(|| "–".to_owned(), |ns| format::value(ns, "ns"));
        format!(
            "{} to {}\n{} good, {} failed\np50 {}, p99 {}, max {}\n{} in flight",
            format::value(self.from_s.max(0.0), "s"),
            format::value(self.to_s, "s"),
            format::value(self.good_per_s, "1/s"),
            format::value(self.errors_per_s, "1/s"),
            time(self.p50_ns),
            time(self.p99_ns),
            time(Some(self.max_ns)),
            format::value(self.in_flight, "1"),
        )
    }
}

type NamedRun<'a> = (&'a str, &'a Run);

fn names<'a>(baseline: Option<NamedRun<'a>>) -> impl Iterator<Item = &'a str> {
    std::iter::once(THIS_RUN).chain(baseline.map(|(name, _)| name))
}

/// Returns the end of the longer run.
fn longest_s(all: &[Vec<Column>]) -> f64 {
    all.iter().flatten().map(|column| column.to_s).fold(0.0, f64::max)
}

fn all_columns(run: &Run, baseline: Option<NamedRun<'_>>) -> Vec<Vec<Column>> {
    std::iter::once(run).chain(baseline.map(|(_, run)| run)).map(columns).collect()
}

fn time_axis(longest_s: f64, layout: &Layout) -> Axis {
    Axis::new(Scale::linear(0.0, longest_s), layout.ticks, "time since the start of the load", |at_s| {
        if at_s == 0.0 { "0 s".to_owned() } else { format::tick(at_s, "s") }
    })
}

/// Shades the columns outside of the measured window.
fn shade_unmeasured(svg: &mut Svg, plot: &Plot, columns: &[Column]) {
    for column in columns.iter().filter(|column| !column.measured) {
        svg.add(plot.band((column.from_s, column.to_s)).class("band"));
    }
}

fn line(
    svg: &mut Svg,
    plot: &Plot,
    columns: &[Column],
    series: usize,
    value: impl Fn(&Column) -> Option<f64>,
) {
    let points = columns.iter().map(|column| (column.middle_s(), value(column).unwrap_or(f64::NAN)));
    svg.add_series(plot, &points.collect::<Vec<_>>(), series);
}

/// Draws good responses per second, the attempted rate, and failures as bars.
pub(super) fn rate(run: &Run, baseline: Option<NamedRun<'_>>) -> Option<Figure> {
    let all = all_columns(run, baseline);
    let attempted = run.rates.offered_per_s.filter(|_| run.stages.is_empty() && run.rate_changes.is_empty());
    let caption = match attempted {
        Some(_) => {
            "Good responses per second; the dashed line is the attempted rate. Red bars are failed requests."
        }
        None => "Good responses per second. Red bars are failed requests; shaded seconds are not measured.",
    };
    let figure = Figure::draw("rate", "Throughput", caption, |layout| {
        let values = all.iter().flatten().flat_map(|column| [column.good_per_s, column.errors_per_s]);
        let (_, high) = extent(values.chain(attempted))?;
        let x = time_axis(longest_s(&all), layout);
        let y = Axis::with_unit(Scale::from_zero(high * 1.02), 4, "responses per second", "1/s");
        let mut svg =
            Svg::new("Throughput", "Good responses and failures per second.").with_width(layout.width);
        let plot = svg.plot(layout.frame(28.0, 150.0), x.scale, &y);
        let own = all.first()?;
        shade_unmeasured(&mut svg, &plot, own);
        let failed = own.iter().filter(|column| column.errors_per_s > 0.0);
        let bars = failed
            .map(|column| plot.cell((column.from_s, column.to_s), (0.0, column.errors_per_s)).with_gap(1.0));
        svg.add(Shape::cells(&bars.collect::<Vec<_>>()).class("bad"));
        if let Some(attempted) = attempted {
            svg.add(plot.horizontal(attempted).class("matter"));
        }
        for (series, columns) in all.iter().enumerate().rev() {
            line(&mut svg, &plot, columns, series, |column| Some(column.good_per_s));
        }
        let tips = own.iter().map(|column| ((column.from_s, column.to_s), column.tip()));
        svg.finish_columns(&[plot], &x, tips);
        Some(svg)
    })?;
    Some(figure.legend(names(baseline)))
}

/// Draws the latency as a band from p50 to p99, with the slowest response of each second.
pub(super) fn latency(run: &Run, baseline: Option<NamedRun<'_>>) -> Option<Figure> {
    let all = all_columns(run, baseline);
    let merged = run.intervals.len() > COLUMNS_MAX;
    let caption = format!(
        "From the due time of a request to its last byte: the band reaches from the median to p99 of each second, \
         the thin line is the slowest response.{}",
        if merged { " Seconds are merged: the p99 is the highest of them." } else { "" }
    );
    let figure = Figure::draw("bands", "Latency bands", &caption, |layout| {
        let own = all.first()?;
        let values = all.iter().flatten().flat_map(|column| [column.p50_ns, column.p99_ns]).flatten();
        let (low, high) =
            extent(values.chain(own.iter().map(|column| column.max_ns)).filter(|ns| *ns > 0.0))?;
        let x = time_axis(longest_s(&all), layout);
        let y = Axis::new(Scale::log(low * 0.8, high * 1.2), 5, "latency", |ns| format::tick(ns, "ns"));
        let mut svg = Svg::new("Latency", "Median, p99 and maximum by second.").with_width(layout.width);
        let plot = svg.plot(layout.frame(30.0, 170.0), x.scale, &y);
        shade_unmeasured(&mut svg, &plot, own);
        let band = own.iter().filter_map(|column| {
            Some(plot.cell((column.from_s, column.to_s), (column.p50_ns?, column.p99_ns?)))
        });
        svg.add(
            Shape::cells(&band.collect::<Vec<_>>()).class("soft fill").series(0).attribute("opacity", "0.25"),
        );
        let slowest = own.iter().map(|column| (column.middle_s(), column.max_ns));
        svg.add(plot.line(slowest).class("stroke thin soft").series(0));
        for (series, columns) in all.iter().enumerate().rev() {
            line(&mut svg, &plot, columns, series, |column| column.p50_ns);
            line(&mut svg, &plot, columns, series, |column| column.p99_ns);
        }
        let tips = own.iter().map(|column| ((column.from_s, column.to_s), column.tip()));
        svg.finish_columns(&[plot], &x, tips);
        Some(svg)
    })?;
    Some(figure.legend(names(baseline)))
}

pub(super) fn in_flight(run: &Run, baseline: Option<NamedRun<'_>>) -> Option<Figure> {
    let all = all_columns(run, baseline);
    let caption = "Requests that were sent or waited for a connection, at the end of each second.";
    let figure = Figure::draw("in-flight", "Requests in flight", caption, |layout| {
        let own = all.first()?;
        let (_, high) = extent(all.iter().flatten().map(|column| column.in_flight))?;
        let x = time_axis(longest_s(&all), layout);
        let y = Axis::with_unit(Scale::from_zero(high), 3, "requests", "1");
        let mut svg =
            Svg::new("Requests in flight", "Requests in flight by second.").with_width(layout.width);
        let plot = svg.plot(layout.frame(28.0, 80.0), x.scale, &y);
        for (series, columns) in all.iter().enumerate().rev() {
            line(&mut svg, &plot, columns, series, |column| Some(column.in_flight));
        }
        let tips = own.iter().map(|column| ((column.from_s, column.to_s), column.tip()));
        svg.finish_columns(&[plot], &x, tips);
        Some(svg)
    })?;
    Some(figure.legend(names(baseline)))
}
