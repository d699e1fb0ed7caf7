//! Forest plot: the ratio of each arm to the baseline with its interval, the A/A band behind it,
//! and the band of effects that do not matter. The record has the result itself.

use experiment::format;
use record::experiment::{Comparison, ComparisonOutcome, Experiment, ExperimentMetric};

use super::{ChartPart, ReportChart, change, has_few_blocks, has_several_loads};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Area, Axis, Scale, Shape, Svg, extent, row_name, text_width};

/// Maximum number of rows of one metric; the others are in the figures.
const ROWS_MAX: usize = 60;
/// Height of a row.
const ROW_HEIGHT: f64 = 26.0;
/// Width of the plot.
const PLOT_WIDTH: f64 = 240.0;
/// Width for the figures and the outcome to the right of the plot.
const FIGURES_WIDTH: f64 = 275.0;
/// Maximum number of letters of a row's name.
const NAME_CHARS_MAX: usize = 34;
/// Ratio of the ends from which the scale is logarithmic.
const LOG_SCALE_RATIO_MIN: f64 = 2.0;
/// Size of the drawing of one comparison on the first screen.
const SMALL_SIZE: (f64, f64) = (300.0, 52.0);

/// Draws all comparisons, a drawing for each metric.
pub(crate) fn chart(experiment: &Experiment, _raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let caption = format!(
        "Each dot is the difference of the arm from the baseline, its line the {} interval. A line \
         without 0 is evidence for a difference; a line between the dashed lines (±{}) is too small to \
         matter. The grey band is the difference of the baseline from itself (A/A). P(better) is the \
         probability that a trial of the arm is better than one of the baseline.",
        format::bound_percent(experiment.plan.confidence),
        format::bound_percent(experiment.plan.effect),
    );
    let (id, title) = ("forest", "All comparisons");
    if experiment.comparisons.is_empty() {
        return vec![ReportChart::empty(id, title, &caption, "No comparisons yet.")];
    }
    let mut chart = ReportChart::new(id, title, &caption, data_table(experiment));
    for metric in &experiment.plan.metrics {
        let rows: Vec<&Comparison> = comparisons_of_metric(experiment, metric).collect();
        if rows.is_empty() {
            continue;
        }
        if rows.len() > ROWS_MAX {
            chart.notes.push(format!(
                "{}: {} of {} rows are drawn, the rest is in the data.",
                metric.title,
                ROWS_MAX,
                rows.len()
            ));
        }
        let first = experiment.plan.primary() == Some(metric);
        let which = if first { ", the primary metric" } else { "" };
        let heading = format!("{}{which} ({})", metric.title, format::better_direction(metric));
        chart.parts.push(ChartPart::Heading(heading));
        let rows = &rows[..rows.len().min(ROWS_MAX)];
        chart.parts.push(ChartPart::Drawing(drawing(experiment, metric, rows)));
    }
    vec![chart]
}

/// Returns the comparisons of a metric by load, the A/A one of each load last.
fn comparisons_of_metric<'a>(
    experiment: &'a Experiment,
    metric: &'a ExperimentMetric,
) -> impl Iterator<Item = &'a Comparison> {
    experiment.plan.loads.iter().flat_map(move |load| {
        let of_load = experiment.comparisons.iter();
        let own = of_load.filter(move |one| one.metric == metric.name && one.load == load.name);
        own.clone().filter(|one| !one.noise).chain(own.filter(|one| one.noise))
    })
}

fn data_table(experiment: &Experiment) -> DataTable {
    let mut data = DataTable::new(&[
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
        "better_fraction",
        "cliffs_delta",
        "blocks",
        "outcome",
        "text",
    ]);
    for one in &experiment.comparisons {
        let unit = super::trial_data::metric(experiment, &one.metric).map(|metric| metric.unit.clone());
        data.add_row(vec![
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
            number(one.better_fraction),
            number(one.cliffs_delta),
            one.pairs.len().to_string(),
            one.outcome.as_str().to_owned(),
            one.text.clone(),
        ]);
    }
    data
}

/// Returns a scale of ratios over these comparisons that contains 1 and the effect that matters.
pub(crate) fn ratio_scale<'a>(
    comparisons: impl IntoIterator<Item = &'a Comparison>,
    effect: f64,
    range: (f64, f64),
) -> Scale {
    let ends = comparisons.into_iter().flat_map(|one| {
        let interval = one.interval.into_iter().flat_map(|(low, high)| [low, high]);
        interval.chain(one.ratio)
    });
    let effect_interval = 1.0 - effect * 1.25;
    let all = ends.filter(|ratio| *ratio > 0.0).chain([effect_interval.max(0.01), 1.0 + effect * 1.25]);
    let (low, high) = extent(all).unwrap_or((0.95, 1.05));
    let (low, high) = (low / 1.004, high * 1.004);
    let scale = if high / low >= LOG_SCALE_RATIO_MIN { Scale::log } else { Scale::linear };
    scale((low, high), range)
}

/// Returns the A/A comparison for a comparison.
pub(crate) fn aa_comparison<'a>(
    experiment: &'a Experiment,
    comparison: &Comparison,
) -> Option<&'a Comparison> {
    let same = |other: &&Comparison| {
        other.noise
            && other.metric == comparison.metric
            && other.load == comparison.load
            && other.baseline == comparison.baseline
    };
    experiment.comparisons.iter().find(same)
}

/// Returns the colour class of an outcome, by good and bad.
pub(crate) fn outcome_class(comparison: &Comparison) -> &'static str {
    match comparison.outcome {
        _ if comparison.noise => "cn",
        ComparisonOutcome::Faster => "good",
        ComparisonOutcome::Slower => "bad",
        ComparisonOutcome::Equivalent => "same",
        ComparisonOutcome::Inconclusive => "open",
    }
}

/// Returns the tip of a comparison.
fn tip(experiment: &Experiment, comparison: &Comparison) -> String {
    let mut lines = vec![match has_several_loads(&experiment.plan) {
        true => format!("{} / {}, {}", comparison.arm, comparison.baseline, comparison.load),
        false => format!("{} / {}", comparison.arm, comparison.baseline),
    }];
    if comparison.ratio.is_some() {
        let interval = comparison.interval.map(|ends| format!(" ({})", format::ratio_interval(ends)));
        lines.push(format!("{}{}", change(experiment, comparison), interval.unwrap_or_default()));
    }
    if let Some(p) = comparison.p_adjusted.or(comparison.p).filter(|_| !has_few_blocks(comparison)) {
        lines.push(format!("p {}", format::probability(p)));
    }
    if let Some(fraction) = comparison.better_fraction.filter(|_| !has_few_blocks(comparison)) {
        lines.push(format!("P(better) {}", format::better_fraction(fraction)));
    }
    lines.push(format!(
        "{}, {}",
        format::count(comparison.pairs.len(), "block"),
        super::trial_data::outcome(experiment, comparison)
    ));
    lines.join("\n")
}

fn drawing(experiment: &Experiment, metric: &ExperimentMetric, rows: &[&Comparison]) -> Svg {
    let names = rows.iter().map(|one| text_width(&comparison_name(experiment, one)));
    let left = names.fold(60.0, f64::max) + 14.0;
    let area =
        Area { left, top: 20.0, right: left + PLOT_WIDTH, bottom: 20.0 + ROW_HEIGHT * rows.len() as f64 };
    let range = (area.left, area.right);
    let scale = ratio_scale(rows.iter().copied(), experiment.plan.effect, range);
    let text: Vec<String> = rows.iter().map(|one| one.text.clone()).collect();
    let mut svg = Svg::new(area.right + FIGURES_WIDTH, area.bottom + 34.0, &metric.title, &text.join(". "));
    for (value, label) in Axis::new(scale, 5, "", format::signed_tick).spaced_ticks_after(1.0) {
        let x = scale.position(*value);
        svg.add(Shape::line((x, area.top), (x, area.bottom)).class("grid"));
        svg.add(Shape::text((svg.within(x, label), area.bottom + 16.0), label).class("tick middle"));
    }
    let (effect, top) = (experiment.plan.effect, area.top);
    draw_bands(&mut svg, &scale, effect, (top, area.bottom));
    let (less, more) = match metric.better {
        record::experiment::BetterDirection::Higher => ("worse", "better"),
        record::experiment::BetterDirection::Lower => ("better", "worse"),
    };
    svg.add(Shape::text((area.left, 12.0), &format!("← {less}")).class("tick"));
    svg.add(Shape::text((area.right, 12.0), &format!("{more} →")).class("tick end"));
    for (index, one) in rows.iter().enumerate() {
        draw_row(&mut svg, experiment, (&scale, &area), top + ROW_HEIGHT * (index as f64 + 0.5), one);
    }
    svg
}

/// Draws the band of effects that do not matter, and the line of no difference.
fn draw_bands(svg: &mut Svg, scale: &Scale, effect: f64, (top, bottom): (f64, f64)) {
    let (low, high) = (scale.clamped(1.0 - effect), scale.clamped(1.0 + effect));
    svg.add(Shape::rect((low, top), (high, bottom)).class("matter"));
    svg.add(Shape::line((scale.position(1.0), top), (scale.position(1.0), bottom)).class("zero"));
}

/// Returns the name of a row.
fn comparison_name(experiment: &Experiment, comparison: &Comparison) -> String {
    let name = if comparison.noise {
        format!("{}, repeated (A/A)", comparison.baseline)
    } else {
        comparison.arm.clone()
    };
    let load = has_several_loads(&experiment.plan).then_some(comparison.load.as_str());
    row_name(&name, load, NAME_CHARS_MAX)
}

fn draw_row(
    svg: &mut Svg,
    experiment: &Experiment,
    (scale, area): (&Scale, &Area),
    y: f64,
    comparison: &Comparison,
) {
    let class = if comparison.noise { "label muted end" } else { "label strong end" };
    svg.add(Shape::text((area.left - 10.0, y + 4.0), &comparison_name(experiment, comparison)).class(class));
    if let Some((low, high)) = aa_comparison(experiment, comparison).and_then(|noise| noise.interval) {
        let (low, high) = (scale.clamped(low), scale.clamped(high));
        svg.add(Shape::rect((low, y - ROW_HEIGHT / 2.0), (high, y + ROW_HEIGHT / 2.0)).class("band"));
    }
    draw_interval(svg, scale, y, comparison);
    let tip = tip(experiment, comparison);
    if let Some(ratio) = comparison.ratio.filter(|_| !(comparison.noise && has_few_blocks(comparison))) {
        let dot = Shape::circle((scale.clamped(ratio), y), 5.0);
        svg.add(dot.class("fill").class(outcome_class(comparison)).tooltip(&tip));
    }
    let ends = comparison.interval.map(|ends| format!(" ({})", format::ratio_interval(ends)));
    let figure = format!("{}{}", change(experiment, comparison), ends.unwrap_or_default());
    svg.add(Shape::text((area.right + 12.0, y + 4.0), &figure).class("label"));
    let outcome = if comparison.noise { "noise" } else { super::trial_data::outcome(experiment, comparison) };
    let outcome = Shape::text((area.right + FIGURES_WIDTH, y + 4.0), outcome);
    svg.add(outcome.class("label end ink").class(outcome_class(comparison)));
}

fn draw_interval(svg: &mut Svg, scale: &Scale, y: f64, comparison: &Comparison) {
    let Some((low, high)) = comparison.interval else { return };
    let (from, to) = (scale.clamped(low), scale.clamped(high));
    svg.add(Shape::line((from, y), (to, y)).class("stroke thick").class(outcome_class(comparison)));
    for (end, position) in [(low, from), (high, to)] {
        if scale.contains(end) {
            let cap = Shape::line((position, y - 4.0), (position, y + 4.0));
            svg.add(cap.class("stroke thin").class(outcome_class(comparison)));
        }
    }
}

/// Draws one comparison for the first screen. `shared` are the comparisons on the same scale.
pub(crate) fn draw_small<'a>(
    experiment: &Experiment,
    comparison: &Comparison,
    shared: impl IntoIterator<Item = &'a Comparison>,
) -> Svg {
    let (width, height) = SMALL_SIZE;
    let scale = ratio_scale(shared, experiment.plan.effect, (22.0, width - 22.0));
    let mut svg = Svg::new(width, height, &comparison.arm, &comparison.text).small();
    let (top, bottom) = (4.0, height - 18.0);
    let middle = (top + bottom) / 2.0;
    if let Some((low, high)) = aa_comparison(experiment, comparison).and_then(|noise| noise.interval) {
        svg.add(Shape::rect((scale.clamped(low), top), (scale.clamped(high), bottom)).class("band"));
    }
    draw_bands(&mut svg, &scale, experiment.plan.effect, (top, bottom));
    svg.add(Shape::line((22.0, bottom), (width - 22.0, bottom)).class("axis"));
    for (value, label) in Axis::new(scale, 4, "", format::signed_tick).spaced_ticks_after(1.0) {
        let x = scale.position(*value);
        svg.add(Shape::line((x, bottom), (x, bottom + 3.0)).class("axis"));
        svg.add(Shape::text((svg.within(x, label), bottom + 15.0), label).class("tick middle"));
    }
    draw_interval(&mut svg, &scale, middle, comparison);
    if let Some(ratio) = comparison.ratio {
        let dot = Shape::circle((scale.clamped(ratio), middle), 6.0);
        svg.add(dot.class("fill").class(outcome_class(comparison)).tooltip(&tip(experiment, comparison)));
    }
    svg
}
