//! Box plots: the spread of each metric over the trials of each arm. They do not show differences:
//! arms with overlapping boxes may still differ in every block.

use experiment::format;
use record::experiment::{Experiment, ExperimentMetric};

use super::{ChartPart, ReportChart};
use crate::TrialRecords;
use crate::data::spreads::{SpreadRow, common_value, data_table, spread_rows};
use crate::data::trials::{counted_trials, has_several_loads, series_index};
use crate::plot::{Axis, Frame, Plot, Scale, Shape, Svg, WIDTH, extent, row_name};

/// Maximum number of rows of one metric; the others are in the data.
const ROWS_MAX: usize = 40;
const ROW_HEIGHT: f64 = 32.0;
/// Maximum number of letters of a row's name.
const NAME_CHARS_MAX: usize = 34;
/// Ratio of the largest to the smallest value from which the scale is logarithmic.
const LOG_SCALE_RATIO_MIN: f64 = 4.0;

/// Draws box plots, a drawing for each metric.
pub(crate) fn chart(experiment: &Experiment, _raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let caption = "Each dot is a trial; the box is the interquartile range, its line the median, the \
                   whiskers are min and max, and the bar below is the interval of the median.";
    let mut chart = ReportChart::new("boxes", "Spread over trials", caption, data_table(experiment));
    for metric in &experiment.plan.metrics {
        let rows = spread_rows(experiment, metric);
        if rows.is_empty() {
            continue;
        }
        if rows.len() > ROWS_MAX {
            let rest = format::count(rows.len() - ROWS_MAX, "row");
            chart.notes.push(format!("{}: {rest} more are in the data.", metric.title));
        }
        chart.heading(format!("{} ({})", metric.title, format::better_direction(metric)));
        let rows = &rows[..rows.len().min(ROWS_MAX)];
        match common_value(rows) {
            // A sentence replaces the drawing.
            Some(value) => {
                let text = format!("{} in every trial.", format::value(value, &metric.unit));
                chart.parts.push(ChartPart::Empty(text));
            }
            None => chart.parts.extend(drawing(experiment, metric, rows).map(ChartPart::Drawing)),
        }
    }
    vec![chart.or_empty("No counted trial yet.")]
}

fn drawing(experiment: &Experiment, metric: &ExperimentMetric, rows: &[SpreadRow<'_>]) -> Option<Svg> {
    let (low, high) = extent(rows.iter().flat_map(|(_, _, spread)| [spread.min, spread.max]))?;
    let scale = match low > 0.0 && high / low >= LOG_SCALE_RATIO_MIN {
        true => Scale::log(low / 1.05, high * 1.05),
        false => Scale::covering([low, high])?,
    };
    let value = |value: f64| format::value(value, &metric.unit);
    let text = rows
        .iter()
        .map(|(arm, load, spread)| format!("{}, {}: median {}", arm.name, load.name, value(spread.median)));
    let mut svg = Svg::new(&metric.title, &text.collect::<Vec<_>>().join("; "));
    let frame = Frame::new(8.0, ROW_HEIGHT * rows.len() as f64).within(244.0, 610.0);
    let plot = svg.rows(frame, scale, rows.len());
    svg.x_grid(&plot, &Axis::with_unit(scale, 6, "", &metric.unit));
    let several = has_several_loads(&experiment.plan);
    for (index, row) in rows.iter().enumerate() {
        let (arm, load, spread) = row;
        let again = arm.repeats.as_ref().map(|original| format!("{original}, repeated (A/A)"));
        let name = again.as_deref().unwrap_or(&arm.name);
        svg.name_row(&plot, index, &row_name(name, several.then_some(&load.name), NAME_CHARS_MAX), "label");
        let y = index as f64 + 0.5;
        let at = (WIDTH, plot.at((low, y)).1 + 4.0);
        svg.add(Shape::text(at, &value(spread.median)).class("label end"));
        draw_box(&mut svg, experiment, metric, row, (&plot, y));
    }
    Some(svg)
}

fn draw_box(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &ExperimentMetric,
    (arm, load, spread): &SpreadRow<'_>,
    (plot, y): (&Plot, f64),
) {
    let series = series_index(&experiment.plan, &arm.name);
    let value = |value: f64| format::value(value, &metric.unit);
    let [min, p25, median] = [spread.min, spread.p25, spread.median].map(value);
    let [p75, max] = [spread.p75, spread.max].map(value);
    let tip = format!("{}\nmedian {median}\nquartiles {p25} to {p75}\nrange {min} to {max}", arm.name);
    svg.add(plot.segment((spread.min, y), (spread.max, y)).class("stroke thin").series(series));
    let quartiles = plot.bar((spread.p25, spread.p75), (y - 0.28, y + 0.28));
    svg.add(quartiles.class("box").series(series).tooltip(&tip));
    if let Some((low, high)) = spread.median_interval {
        let bar = plot.segment((low, y + 0.375), (high, y + 0.375));
        svg.add(bar.class("stroke thick").series(series));
    }
    for line in counted_trials(experiment, &arm.name, &load.name) {
        let Some(trial_value) = line.metrics.get(&metric.name) else { continue };
        // Offsets by block keep dots visible and in a fixed position.
        let offset = (f64::from(line.position.block * 5 % 9) - 4.0) / ROW_HEIGHT;
        let tip = format!("{}, block {}\n{}", arm.name, line.position.block, value(*trial_value));
        let dot = plot.dot((*trial_value, y + offset), 2.2);
        svg.add(dot.class("fill").series(series).tooltip(&tip));
    }
    let median = plot.segment((spread.median, y - 0.28), (spread.median, y + 0.28));
    svg.add(median.class("stroke thick").series(series));
}

#[cfg(test)]
mod tests {
    use record::experiment::ValueDistribution;

    use super::*;
    use crate::synthetic::{NoRecords, synthetic_experiment};

    #[test]
    fn a_constant_metric_is_a_sentence() {
        let (mut experiment, _) = synthetic_experiment();
        let metric = experiment.plan.metrics[0].clone();
        let drawings = |experiment: &Experiment| {
            let chart = chart(experiment, &NoRecords).remove(0);
            chart.parts.iter().filter(|part| matches!(part, ChartPart::Drawing(_))).count()
        };
        let all = drawings(&experiment);
        for cell in &mut experiment.cells {
            cell.metrics.insert(metric.name.clone(), ValueDistribution::default());
        }
        assert_eq!(drawings(&experiment), all - 1);
        let parts = chart(&experiment, &NoRecords).remove(0).parts;
        let sentence = |part: &ChartPart| matches!(part, ChartPart::Empty(text) if text.starts_with("0"));
        assert!(parts.iter().any(sentence), "{parts:?}");
    }
}
