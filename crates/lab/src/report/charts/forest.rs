//! The forest plot: the ratio of each arm to the baseline with its interval, the A/A band behind it, and
//! the band of effects that do not matter.
//! Not for the answer itself, which is the record's.

use record::experiment::{Comparison, Experiment, Metric, Outcome};

use super::{Chart, Part, change, is_of_few, several_loads};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Area, Axis, Mark, Scale, Svg, extent, row_name, width_of};
use crate::words;

/// Rows of one metric at most; the others are in the figures.
const ROWS_MAX: usize = 60;
/// Height of a row.
const ROW: f64 = 26.0;
/// Width of the plot.
const PLOT: f64 = 240.0;
/// Room for the figures and the outcome behind it.
const FIGURES: f64 = 275.0;
/// Letters of a row's name at most.
const NAME_LETTERS_MAX: usize = 34;
/// From this ratio of the ends on, equal ratios take equal room.
const LOG_FROM: f64 = 2.0;
/// Size of the drawing of one comparison on the first screen.
const SMALL: (f64, f64) = (300.0, 52.0);

/// All comparisons, a drawing for each metric.
pub(in crate::report) fn chart(experiment: &Experiment, _raw: &dyn Raw) -> Vec<Chart> {
    let caption = format!(
        "Each dot is how much the arm differs from the baseline and its line the {} interval: a line \
         that leaves out 0 speaks for a difference, one between the dashed lines (±{}) is too small to \
         matter, and the grey band is how far the baseline is from itself (A/A). P(better) is how often a \
         trial of the arm is better than one of the baseline.",
        words::bound(experiment.plan.confidence),
        words::bound(experiment.plan.effect),
    );
    let (id, title) = ("forest", "All comparisons");
    if experiment.comparisons.is_empty() {
        return vec![Chart::empty(id, title, &caption, "There is nothing to compare yet.")];
    }
    let mut chart = Chart::new(id, title, &caption, figures(experiment));
    for metric in &experiment.plan.metrics {
        let rows: Vec<&Comparison> = of_metric(experiment, metric).collect();
        if rows.is_empty() {
            continue;
        }
        if rows.len() > ROWS_MAX {
            chart.notes.push(format!(
                "{}: {} rows of {} are drawn, the rest is in the data.",
                metric.title,
                ROWS_MAX,
                rows.len()
            ));
        }
        let first = experiment.plan.primary() == Some(metric);
        let which = if first { ", the primary metric" } else { "" };
        let heading = format!("{}{which} ({})", metric.title, words::better(metric));
        chart.parts.push(Part::Heading(heading));
        let rows = &rows[..rows.len().min(ROWS_MAX)];
        chart.parts.push(Part::Drawing(drawing(experiment, metric, rows)));
    }
    vec![chart]
}

/// Comparisons of a metric by load, the A/A one of each load last.
fn of_metric<'a>(
    experiment: &'a Experiment,
    metric: &'a Metric,
) -> impl Iterator<Item = &'a Comparison> {
    experiment.plan.loads.iter().flat_map(move |load| {
        let own = experiment.comparisons.iter();
        let own = own.filter(move |one| one.metric == metric.name && one.load == load.name);
        own.clone().filter(|one| !one.noise).chain(own.filter(|one| one.noise))
    })
}

fn figures(experiment: &Experiment) -> Figures {
    let mut figures = Figures::new(&[
        "load",
        "metric",
        "unit",
        "arm",
        "baseline",
        "noise",
        "ratio",
        "low",
        "high",
        "p",
        "p_adjusted",
        "better_share",
        "cliffs_delta",
        "blocks",
        "outcome",
        "text",
    ]);
    for one in &experiment.comparisons {
        let unit = super::data::metric(experiment, &one.metric).map(|metric| metric.unit.clone());
        figures.row(vec![
            one.load.clone(),
            one.metric.clone(),
            unit.unwrap_or_default(),
            one.arm.clone(),
            one.baseline.clone(),
            one.noise.to_string(),
            number(one.ratio),
            number(one.interval.map(|(low, _)| low)),
            number(one.interval.map(|(_, high)| high)),
            number(one.p),
            number(one.p_adjusted),
            number(one.better_share),
            number(one.cliffs_delta),
            one.pairs.len().to_string(),
            one.outcome.word().to_owned(),
            one.text.clone(),
        ]);
    }
    figures
}

/// A scale of ratios over all of these, with 1 and the effect that matters inside.
pub(in crate::report) fn scale_of<'a>(
    comparisons: impl IntoIterator<Item = &'a Comparison>,
    effect: f64,
    places: (f64, f64),
) -> Scale {
    let ends = comparisons.into_iter().flat_map(|one| {
        let interval = one.interval.into_iter().flat_map(|(low, high)| [low, high]);
        interval.chain(one.ratio)
    });
    let least = 1.0 - effect * 1.25;
    let all = ends.filter(|ratio| *ratio > 0.0).chain([least.max(0.01), 1.0 + effect * 1.25]);
    let (low, high) = extent(all).unwrap_or((0.95, 1.05));
    let (low, high) = (low / 1.004, high * 1.004);
    let scale = if high / low >= LOG_FROM { Scale::log } else { Scale::linear };
    scale((low, high), places)
}

/// The A/A comparison that a comparison is held against.
pub(in crate::report) fn noise_of<'a>(
    experiment: &'a Experiment,
    one: &Comparison,
) -> Option<&'a Comparison> {
    let same = |other: &&Comparison| {
        other.noise
            && other.metric == one.metric
            && other.load == one.load
            && other.baseline == one.baseline
    };
    experiment.comparisons.iter().find(same)
}

/// The colour of an outcome, which follows good and bad.
pub(in crate::report) fn class_of(one: &Comparison) -> &'static str {
    match one.outcome {
        _ if one.noise => "cn",
        Outcome::Faster => "good",
        Outcome::Slower => "bad",
        Outcome::Equivalent => "same",
        Outcome::Inconclusive => "open",
    }
}

/// What the pointer shows at a comparison.
fn tip(experiment: &Experiment, one: &Comparison) -> String {
    let mut lines = vec![match several_loads(&experiment.plan) {
        true => format!("{} / {}, {}", one.arm, one.baseline, one.load),
        false => format!("{} / {}", one.arm, one.baseline),
    }];
    if one.ratio.is_some() {
        let interval = one.interval.map(|ends| format!(" ({})", words::interval(ends)));
        lines.push(format!("{}{}", change(experiment, one), interval.unwrap_or_default()));
    }
    if let Some(p) = one.p_adjusted.or(one.p).filter(|_| !is_of_few(one)) {
        lines.push(format!("p {}", words::probability(p)));
    }
    if let Some(share) = one.better_share.filter(|_| !is_of_few(one)) {
        lines.push(format!("P(better) {}", words::better_share(share)));
    }
    lines.push(format!(
        "{}, {}",
        words::count(one.pairs.len(), "block"),
        super::data::outcome(experiment, one)
    ));
    lines.join("\n")
}

fn drawing(experiment: &Experiment, metric: &Metric, rows: &[&Comparison]) -> Svg {
    let names = rows.iter().map(|one| width_of(&name(experiment, one)));
    let left = names.fold(60.0, f64::max) + 14.0;
    let area = Area { left, top: 20.0, right: left + PLOT, bottom: 20.0 + ROW * rows.len() as f64 };
    let places = (area.left, area.right);
    let scale = scale_of(rows.iter().copied(), experiment.plan.effect, places);
    let text: Vec<String> = rows.iter().map(|one| one.text.clone()).collect();
    let mut svg =
        Svg::new(area.right + FIGURES, area.bottom + 34.0, &metric.title, &text.join(". "));
    for (value, label) in Axis::new(scale, 5, "", words::signed_tick).apart_from(1.0) {
        let at = scale.at(*value);
        svg.add(Mark::line((at, area.top), (at, area.bottom)).class("grid"));
        svg.add(Mark::text((at, area.bottom + 16.0), label).class("tick middle"));
    }
    let (effect, top) = (experiment.plan.effect, area.top);
    bands(&mut svg, &scale, effect, (top, area.bottom));
    let (less, more) = match metric.better {
        record::experiment::Better::Higher => ("worse", "better"),
        record::experiment::Better::Lower => ("better", "worse"),
    };
    svg.add(Mark::text((area.left, 12.0), &format!("← {less}")).class("tick"));
    svg.add(Mark::text((area.right, 12.0), &format!("{more} →")).class("tick end"));
    for (index, one) in rows.iter().enumerate() {
        row(&mut svg, experiment, (&scale, &area), top + ROW * (index as f64 + 0.5), one);
    }
    svg
}

/// The band of effects that do not matter, and the line of no difference.
fn bands(svg: &mut Svg, scale: &Scale, effect: f64, (top, bottom): (f64, f64)) {
    let (low, high) = (scale.clamped(1.0 - effect), scale.clamped(1.0 + effect));
    svg.add(Mark::rect((low, top), (high, bottom)).class("matter"));
    svg.add(Mark::line((scale.at(1.0), top), (scale.at(1.0), bottom)).class("zero"));
}

/// What a row is called.
fn name(experiment: &Experiment, one: &Comparison) -> String {
    let name = if one.noise { format!("{} again (A/A)", one.baseline) } else { one.arm.clone() };
    let load = several_loads(&experiment.plan).then_some(one.load.as_str());
    row_name(&name, load, NAME_LETTERS_MAX)
}

fn row(
    svg: &mut Svg,
    experiment: &Experiment,
    (scale, area): (&Scale, &Area),
    at: f64,
    one: &Comparison,
) {
    let class = if one.noise { "label muted end" } else { "label strong end" };
    svg.add(Mark::text((area.left - 10.0, at + 4.0), &name(experiment, one)).class(class));
    if let Some((low, high)) = noise_of(experiment, one).and_then(|noise| noise.interval) {
        let (low, high) = (scale.clamped(low), scale.clamped(high));
        svg.add(Mark::rect((low, at - ROW / 2.0), (high, at + ROW / 2.0)).class("band"));
    }
    interval(svg, scale, at, one);
    let tip = tip(experiment, one);
    if let Some(ratio) = one.ratio.filter(|_| !(one.noise && is_of_few(one))) {
        let dot = Mark::circle((scale.clamped(ratio), at), 5.0);
        svg.add(dot.class("fill").class(class_of(one)).tip(&tip));
    }
    let ends = one.interval.map(|ends| format!(" ({})", words::interval(ends)));
    let figure = format!("{}{}", change(experiment, one), ends.unwrap_or_default());
    svg.add(Mark::text((area.right + 12.0, at + 4.0), &figure).class("label"));
    let outcome = if one.noise { "noise" } else { super::data::outcome(experiment, one) };
    let outcome = Mark::text((area.right + FIGURES, at + 4.0), outcome);
    svg.add(outcome.class("label end ink").class(class_of(one)));
}

fn interval(svg: &mut Svg, scale: &Scale, at: f64, one: &Comparison) {
    let Some((low, high)) = one.interval else { return };
    let (from, to) = (scale.clamped(low), scale.clamped(high));
    svg.add(Mark::line((from, at), (to, at)).class("stroke thick").class(class_of(one)));
    for (end, place) in [(low, from), (high, to)] {
        if scale.holds(end) {
            let cap = Mark::line((place, at - 4.0), (place, at + 4.0));
            svg.add(cap.class("stroke thin").class(class_of(one)));
        }
    }
}

/// One comparison for the first screen. `shared` are those that it has its scale in common with.
pub(in crate::report) fn small<'a>(
    experiment: &Experiment,
    one: &Comparison,
    shared: impl IntoIterator<Item = &'a Comparison>,
) -> Svg {
    let (width, height) = SMALL;
    let scale = scale_of(shared, experiment.plan.effect, (22.0, width - 22.0));
    let mut svg = Svg::new(width, height, &one.arm, &one.text).small();
    let (top, bottom) = (4.0, height - 18.0);
    let middle = (top + bottom) / 2.0;
    if let Some((low, high)) = noise_of(experiment, one).and_then(|noise| noise.interval) {
        svg.add(Mark::rect((scale.clamped(low), top), (scale.clamped(high), bottom)).class("band"));
    }
    bands(&mut svg, &scale, experiment.plan.effect, (top, bottom));
    svg.add(Mark::line((22.0, bottom), (width - 22.0, bottom)).class("axis"));
    for (value, label) in Axis::new(scale, 4, "", words::signed_tick).apart_from(1.0) {
        let at = scale.at(*value);
        svg.add(Mark::line((at, bottom), (at, bottom + 3.0)).class("axis"));
        svg.add(Mark::text((at, bottom + 15.0), label).class("tick middle"));
    }
    interval(&mut svg, &scale, middle, one);
    if let Some(ratio) = one.ratio {
        let dot = Mark::circle((scale.clamped(ratio), middle), 6.0);
        svg.add(dot.class("fill").class(class_of(one)).tip(&tip(experiment, one)));
    }
    svg
}
