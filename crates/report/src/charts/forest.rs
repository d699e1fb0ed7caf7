//! Forest plot: the ratio of each arm to the baseline with its interval, the A/A band behind it,
//! and the band of effects that do not matter. The record has the result itself.

use experiment::format;
use record::experiment::{BetterDirection, Comparison, Experiment, ExperimentMetric};

use super::ReportChart;
use super::ratios::{draw_bands, draw_comparison, ratio_axis};
use crate::TrialRecords;
use crate::data::comparisons::{
    change_with_interval, comparison_name, comparisons_of_metric, data_table, has_few_blocks, outcome,
    outcome_class,
};
use crate::plot::{Frame, Shape, Svg, text_width};

/// Maximum number of rows of one metric; the others are in the figures.
const ROWS_MAX: usize = 60;
const ROW_HEIGHT: f64 = 26.0;
/// Width of the plot, and of the figures and the outcome to its right.
const PLOT_WIDTH: f64 = 240.0;
const FIGURES_WIDTH: f64 = 275.0;

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
    let mut chart = ReportChart::new("forest", "All comparisons", &caption, data_table(experiment));
    for metric in &experiment.plan.metrics {
        let rows = comparisons_of_metric(experiment, metric);
        if rows.is_empty() {
            continue;
        }
        if rows.len() > ROWS_MAX {
            let (title, all) = (&metric.title, rows.len());
            let note = format!("{title}: {ROWS_MAX} of {all} rows are drawn, the rest is in the data.");
            chart.notes.push(note);
        }
        let which = if experiment.plan.primary() == Some(metric) { ", the primary metric" } else { "" };
        chart.heading(format!("{}{which} ({})", metric.title, format::better_direction(metric)));
        chart.draw(drawing(experiment, metric, &rows[..rows.len().min(ROWS_MAX)]));
    }
    vec![chart.or_empty("No comparisons yet.")]
}

fn drawing(experiment: &Experiment, metric: &ExperimentMetric, rows: &[&Comparison]) -> Svg {
    let names: Vec<String> = rows.iter().map(|comparison| comparison_name(experiment, comparison)).collect();
    let left = names.iter().map(|name| text_width(name)).fold(60.0, f64::max) + 14.0;
    let right = left + PLOT_WIDTH;
    let text: Vec<&str> = rows.iter().map(|comparison| comparison.text.as_str()).collect();
    let svg = Svg::new(&metric.title, &text.join(". "));
    let mut svg = svg.with_width(right + FIGURES_WIDTH);
    let frame = Frame::new(20.0, ROW_HEIGHT * rows.len() as f64).within(left, right);
    let axis = ratio_axis(rows, experiment.plan.effect, 5);
    let plot = svg.rows(frame, axis.scale, rows.len());
    svg.x_grid(&plot, &axis);
    draw_bands(&mut svg, &plot, experiment.plan.effect);
    let (less, more) = match metric.better {
        BetterDirection::Higher => ("← worse", "better →"),
        BetterDirection::Lower => ("← better", "worse →"),
    };
    svg.add(Shape::text((left, 12.0), less).class("tick"));
    svg.add(Shape::text((right, 12.0), more).class("tick end"));
    for ((row, comparison), name) in rows.iter().enumerate().zip(&names) {
        svg.name_row(&plot, row, name, if comparison.noise { "label muted" } else { "label strong" });
        let shows_dot = !(comparison.noise && has_few_blocks(comparison));
        draw_comparison(
            &mut svg,
            experiment,
            comparison,
            &plot,
            (row, if shows_dot { 5.0 } else { f64::NAN }),
        );
        let base = plot.at((1.0, row as f64 + 0.5)).1 + 4.0;
        let figure = change_with_interval(experiment, comparison);
        svg.add(Shape::text((right + 12.0, base), &figure).class("label"));
        let outcome = if comparison.noise { "noise" } else { outcome(experiment, comparison) };
        let outcome = Shape::text((right + FIGURES_WIDTH, base), outcome).class("label end ink");
        svg.add(outcome.class(outcome_class(comparison)));
    }
    svg
}
