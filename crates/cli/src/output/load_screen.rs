//! Full screen of a running load: rate, latency bands, percentiles, errors, connections, own CPU. Draws a
//! view, and knows neither the terminal nor the run.

use std::collections::{BTreeMap, VecDeque};

use load::validity::{LiveLimits, live_signs};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph, Sparkline};
use record::histogram::LatencyHistogram;
use record::run::Interval;
use record::units::{format_byte_rate, format_count, format_duration_ns, format_plural, format_rate};

/// Number of seconds that graphs show.
const HISTORY_MAX: usize = 600;

#[derive(Debug)]
pub(crate) struct LoadView {
    /// Method and URL.
    pub(crate) target: String,
    pub(crate) plan: String,
    pub(crate) duration_s: f64,
    /// Factor of the rate; `None` if it cannot be changed.
    pub(crate) factor: Option<f64>,
    /// Limits of the plan, for the signs that the result will not be valid.
    limits: LiveLimits,
    seconds: VecDeque<Interval>,
    errors: BTreeMap<String, u64>,
    latencies: LatencyHistogram,
    good: u64,
    responses: u64,
}

impl LoadView {
    /// Creates the view of a load that has not begun.
    pub(crate) fn new(
        target: String,
        plan: String,
        duration_s: f64,
        factor: Option<f64>,
        limits: LiveLimits,
    ) -> Self {
        Self {
            limits,
            target,
            plan,
            duration_s,
            factor,
            seconds: VecDeque::new(),
            errors: BTreeMap::new(),
            latencies: LatencyHistogram::new(),
            good: 0,
            responses: 0,
        }
    }

    pub(crate) fn add(&mut self, interval: &Interval, latencies: &LatencyHistogram) {
        if self.seconds.len() == HISTORY_MAX {
            self.seconds.pop_front();
        }
        self.good += interval.good.unwrap_or(interval.responses);
        self.responses += interval.responses;
        for (kind, count) in &interval.errors {
            *self.errors.entry(kind.clone()).or_insert(0) += count;
        }
        if interval.dropped > 0 {
            *self.errors.entry("dropped".to_owned()).or_insert(0) += interval.dropped;
        }
        self.latencies.add(latencies);
        self.seconds.push_back(interval.clone());
    }

    fn last(&self) -> Interval {
        // The last interval may be a short rest.
        let complete = self.seconds.iter().rev().find(|second| second.length_s > 0.5);
        complete.or_else(|| self.seconds.back()).cloned().unwrap_or_default()
    }
}

pub(crate) fn draw_load(frame: &mut Frame<'_>, view: &LoadView, elapsed_s: f64, has_colour: bool) {
    let paint = |colour: Color| if has_colour { Style::new().fg(colour) } else { Style::new() };
    let [head, graphs, charts, counts, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Fill(2),
        Constraint::Fill(3),
        Constraint::Length(5),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, view, elapsed_s, paint(Color::Cyan));
    let [rate, errors] = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(graphs);
    let last = view.last();
    let per_s = |count: u64| count as f64 / last.length_s.max(1e-9);
    let count = |second: &Interval| second.events.unwrap_or(second.responses);
    let title = format!(
        " {} {} · {} ",
        if last.events.is_some() { "events" } else { "responses" },
        format_rate(per_s(count(&last))),
        format_byte_rate(per_s(last.bytes_in))
    );
    draw_sparkline(frame, rate, view, &title, count, paint(Color::Green));
    let title = format!(" errors {} ", format_rate(per_s(last.errors.values().sum())));
    draw_sparkline(frame, errors, view, &title, |second| second.errors.values().sum(), paint(Color::Red));
    let [bands, percentiles] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(charts);
    draw_bands(frame, bands, view, has_colour);
    draw_percentiles(frame, percentiles, view, paint(Color::Yellow));
    draw_counts(frame, counts, view, &last, paint(Color::Red));
    let rate_keys = match view.factor {
        Some(factor) => {
            format!(" · + and - change the rate ({:.0} %) · 0 stops it, 1 restores it", factor * 100.0)
        }
        None => String::new(),
    };
    frame.render_widget(Paragraph::new(format!(" q ends the load{rate_keys}")).style(dim(has_colour)), keys);
}

fn dim(has_colour: bool) -> Style {
    if has_colour { Style::new().add_modifier(Modifier::DIM) } else { Style::new() }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &LoadView, elapsed_s: f64, style: Style) {
    let [target, plan, progress] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Length(1)]).areas(area);
    frame.render_widget(
        Paragraph::new(Line::from(vec![
            Span::styled(" weir load ", Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(view.target.as_str()),
        ])),
        target,
    );
    frame.render_widget(Paragraph::new(format!(" {}", view.plan)), plan);
    let ratio = (elapsed_s / view.duration_s.max(1e-9)).clamp(0.0, 1.0);
    let label = format!("{elapsed_s:.0} of {:.0} s", view.duration_s);
    frame.render_widget(Gauge::default().ratio(ratio).label(label).gauge_style(style), progress);
}

fn draw_sparkline(
    frame: &mut Frame<'_>,
    area: Rect,
    view: &LoadView,
    title: &str,
    value: impl Fn(&Interval) -> u64,
    style: Style,
) {
    let columns = usize::from(area.width.saturating_sub(2));
    let skipped = view.seconds.len().saturating_sub(columns);
    let data: Vec<u64> = view.seconds.iter().skip(skipped).map(value).collect();
    let block = Block::bordered().title(title.to_owned());
    frame.render_widget(Sparkline::default().block(block).data(data).style(style), area);
}

/// Draws p50, p99 and the maximum over time, on a logarithmic scale.
fn draw_bands(frame: &mut Frame<'_>, area: Rect, view: &LoadView, has_colour: bool) {
    let first_s = view.seconds.front().map_or(0.0, |second| second.time_s);
    let last_s = view.seconds.back().map_or(1.0, |second| second.time_s).max(first_s + 1.0);
    let points = |value: fn(&Interval) -> Option<u64>| -> Vec<(f64, f64)> {
        let points = view.seconds.iter().filter_map(|second| Some((second.time_s, value(second)?)));
        points.filter(|(_, ns)| *ns > 0).map(|(time_s, ns)| (time_s, (ns as f64).log10())).collect()
    };
    let bands = [
        ("p50", points(|second| second.p50_ns), Color::Green),
        ("p99", points(|second| second.p99_ns), Color::Yellow),
        ("max", points(|second| Some(second.max_ns)), Color::Red),
    ];
    let all = bands.iter().flat_map(|(_, points, _)| points.iter().map(|(_, value)| *value));
    let (min, max) = all.fold((f64::MAX, f64::MIN), |(min, max), value| (min.min(value), max.max(value)));
    let (min, max) = if min > max { (3.0, 6.0) } else { (min.floor(), max.ceil().max(min.floor() + 1.0)) };
    let datasets = bands.iter().map(|(name, points, colour)| {
        let style = if has_colour { Style::new().fg(*colour) } else { Style::new() };
        Dataset::default()
            .name(*name)
            .marker(symbols::Marker::Braille)
            .graph_type(GraphType::Line)
            .style(style)
            .data(points)
    });
    let last = view.last();
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_duration_ns);
    let title = format!(
        " p50 {} · p99 {} · max {} ",
        time(last.p50_ns),
        time(last.p99_ns),
        format_duration_ns(last.max_ns)
    );
    let chart = Chart::new(datasets.collect())
        .block(Block::bordered().title(title))
        .x_axis(
            Axis::default()
                .bounds([first_s, last_s])
                .labels([format!("{first_s:.0} s"), format!("{last_s:.0} s")]),
        )
        .y_axis(Axis::default().bounds([min, max]).labels(log_labels(min, max)));
    frame.render_widget(chart, area);
}

/// Labels of a logarithmic axis of times.
fn log_labels(min: f64, max: f64) -> Vec<String> {
    let (first, last) = (min as i32, max as i32);
    (first..=last).map(|power| format_duration_ns(10f64.powi(power) as u64).replace(".00", "")).collect()
}

/// Draws the latency against the percentile, on a scale of nines.
fn draw_percentiles(frame: &mut Frame<'_>, area: Rect, view: &LoadView, style: Style) {
    const NINES: f64 = 4.0;
    let value = |nines: f64| view.latencies.value_at_quantile(1.0 - 10f64.powf(-nines)).max(1) as f64;
    let points: Vec<(f64, f64)> = match view.latencies.is_empty() {
        true => Vec::new(),
        false => (0..=80)
            .map(|step| f64::from(step) / 80.0 * NINES)
            .map(|nines| (nines, value(nines).log10()))
            .collect(),
    };
    let (min, max) = match (points.first(), points.last()) {
        (Some((_, first)), Some((_, last))) => (first.floor(), last.ceil().max(first.floor() + 1.0)),
        _ => (3.0, 6.0),
    };
    let dataset = Dataset::default()
        .marker(symbols::Marker::Braille)
        .graph_type(GraphType::Line)
        .style(style)
        .data(&points);
    let chart = Chart::new(vec![dataset])
        .block(Block::bordered().title(" latency by percentile (%), whole run "))
        .x_axis(Axis::default().bounds([0.0, NINES]).labels(["0", "90", "99", "99.9", "99.99"]))
        .y_axis(Axis::default().bounds([min, max]).labels(log_labels(min, max)));
    frame.render_widget(chart, area);
}

/// Returns the most serious sign that the result will not be valid.
fn validity_line(view: &LoadView, alarm: Style) -> Line<'static> {
    let signs = live_signs(&view.seconds, &view.limits);
    match signs.split_first() {
        None => Line::from("no sign against the result so far"),
        Some((first, rest)) => {
            let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
            let text = format!("! not valid if it goes on: {first}{more}");
            Line::from(Span::styled(text, alarm.add_modifier(Modifier::BOLD)))
        }
    }
}

fn draw_counts(frame: &mut Frame<'_>, area: Rect, view: &LoadView, last: &Interval, alarm: Style) {
    let errors: Vec<String> = view.errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let errors = if errors.is_empty() { "none".to_owned() } else { errors.join(", ") };
    let cpus = last.own_cpus.map_or_else(|| "-".to_owned(), |cpus| format!("{cpus:.2}"));
    let lines = vec![
        Line::from(format!(
            "{} · {} in flight · {} pending · generator uses {cpus} CPUs",
            format_plural(last.connections, "connection"),
            format_plural(last.in_flight, "request"),
            last.pending
        )),
        Line::from(format!(
            "{} good of {} responses · errors: {errors}",
            format_count(view.good as f64),
            format_count(view.responses as f64)
        )),
        validity_line(view, alarm),
    ];
    frame.render_widget(Paragraph::new(lines).block(Block::bordered()), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn the_screen_has_all_figures_in_any_size() {
        let mut view = LoadView::new(
            "GET http://a/".to_owned(),
            "8 connections".to_owned(),
            10.0,
            Some(1.1),
            LiveLimits { threads: 1, connections: 8, max_error_rate: 0.01 },
        );
        let mut latencies = LatencyHistogram::new();
        (1..1000).for_each(|number| latencies.record(number * 10_000));
        for second in 1..=5 {
            let interval = Interval {
                time_s: f64::from(second),
                length_s: 1.0,
                responses: 28_000,
                connections: 8,
                p50_ns: Some(100_000),
                p99_ns: Some(900_000),
                max_ns: 5_000_000,
                errors: [("timeout".to_owned(), 3)].into(),
                own_cpus: Some(0.5),
                ..Interval::default()
            };
            view.add(&interval, &latencies);
        }
        for (width, height) in [(120, 40), (80, 24), (20, 5), (1, 1)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw_load(frame, &view, 5.0, true)).unwrap();
            let text = terminal.backend().to_string();
            if width >= 80 {
                for part in [
                    "GET http://a/",
                    "5 of 10 s",
                    "28.0 k/s",
                    "p99 900 µs",
                    "timeout 15",
                    "99.9",
                    "(110 %)",
                    "no sign against",
                ] {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        }
        view.seconds.iter_mut().for_each(|second| second.own_cpus = Some(0.99));
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw_load(frame, &view, 5.0, true)).unwrap();
        let text = terminal.backend().to_string();
        assert!(text.contains("! not valid if it goes on: client_bound"), "{text}");
    }
}
