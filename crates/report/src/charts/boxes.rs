//! Box plots: the spread of each metric over the trials of each arm. They do not show differences:
//! arms with overlapping boxes may still differ in every block.

use experiment::format;
use record::experiment::{Arm, Experiment, ExperimentMetric, LoadPlan, ValueDistribution};

use super::trial_data::{cell, counted_trials};
use super::{ChartPart, ReportChart, has_several_loads, series_index};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Area, Axis, Scale, Shape, Svg, extent, row_name};

/// Maximum number of rows of one metric; the others are in the data.
const ROWS_MAX: usize = 40;
/// Height of a row.
const ROW_HEIGHT: f64 = 32.0;
/// Maximum number of letters of a row's name.
const NAME_CHARS_MAX: usize = 34;
/// Ratio of the largest to the smallest value from which the scale is logarithmic.
const LOG_SCALE_RATIO_MIN: f64 = 4.0;

/// A row: an arm under a load, and its spread.
type BoxRow<'a> = (&'a Arm, &'a LoadPlan, &'a ValueDistribution);

/// Draws box plots, a drawing for each metric.
pub(crate) fn chart(experiment: &Experiment, _raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let (id, title) = ("boxes", "Spread over trials");
    let caption = "Each dot is a trial; the box is the interquartile range, its line the median, the \
                   whiskers are min and max, and the bar below is the interval of the median.";
    if experiment.cells.is_empty() {
        return vec![ReportChart::empty(id, title, caption, "No counted trial yet.")];
    }
    let mut chart = ReportChart::new(id, title, caption, data_table(experiment));
    for metric in &experiment.plan.metrics {
        let rows = rows_of(experiment, metric);
        if rows.is_empty() {
            continue;
        }
        if rows.len() > ROWS_MAX {
            let rest = rows.len() - ROWS_MAX;
            let note = format!("{}: {} more are in the data.", metric.title, format::count(rest, "row"));
            chart.notes.push(note);
        }
        let heading = format!("{} ({})", metric.title, format::better_direction(metric));
        chart.parts.push(ChartPart::Heading(heading));
        let rows = &rows[..rows.len().min(ROWS_MAX)];
        if let Some(value) = common_value(rows) {
            let value = format::value(value, &metric.unit);
            chart.parts.push(ChartPart::Empty(format!("{value} in every trial.")));
        } else if let Some(svg) = drawing(experiment, metric, rows) {
            chart.parts.push(ChartPart::Drawing(svg));
        }
    }
    vec![chart]
}

fn rows_of<'a>(experiment: &'a Experiment, metric: &ExperimentMetric) -> Vec<BoxRow<'a>> {
    let plan = &experiment.plan;
    let all = plan.loads.iter().flat_map(|load| plan.arms.iter().map(move |arm| (arm, load)));
    let to_row = all.filter_map(|(arm, load)| {
        let spread = cell(experiment, &arm.name, &load.name)?.metrics.get(&metric.name)?;
        Some((arm, load, spread))
    });
    to_row.collect()
}

/// Returns the value of all trials if it is the same: a sentence then replaces the drawing.
fn common_value(rows: &[BoxRow<'_>]) -> Option<f64> {
    let (_, _, first) = rows.first()?;
    let same = |(_, _, spread): &BoxRow<'_>| [spread.min, spread.max] == [first.min; 2];
    rows.iter().all(same).then_some(first.min)
}

fn data_table(experiment: &Experiment) -> DataTable {
    let mut data = DataTable::new(&[
        "load",
        "arm",
        "metric",
        "unit",
        "trials",
        "min",
        "p25",
        "median",
        "p75",
        "max",
        "median_low",
        "median_high",
    ]);
    for cell in &experiment.cells {
        for (name, spread) in &cell.metrics {
            let unit = super::trial_data::metric(experiment, name).map(|metric| metric.unit.clone());
            let mut row = vec![
                cell.load.clone(),
                cell.arm.clone(),
                name.clone(),
                unit.unwrap_or_default(),
                cell.trials.to_string(),
            ];
            let quartiles = [spread.min, spread.p25, spread.median, spread.p75, spread.max];
            row.extend(quartiles.map(|value| number(Some(value))));
            row.push(number(spread.median_interval.map(|(low, _)| low)));
            row.push(number(spread.median_interval.map(|(_, high)| high)));
            data.add_row(row);
        }
    }
    data
}

fn drawing(experiment: &Experiment, metric: &ExperimentMetric, rows: &[BoxRow<'_>]) -> Option<Svg> {
    let area = Area { left: 244.0, top: 8.0, right: 610.0, bottom: 8.0 + ROW_HEIGHT * rows.len() as f64 };
    let ends = rows.iter().flat_map(|(_, _, spread)| [spread.min, spread.max]);
    let (low, high) = extent(ends)?;
    let scale = if low > 0.0 && high / low >= LOG_SCALE_RATIO_MIN {
        Scale::log((low / 1.05, high * 1.05), (area.left, area.right))
    } else {
        Scale::covering([low, high], (area.left, area.right))?
    };
    let text: Vec<String> = rows
        .iter()
        .map(|(arm, load, spread)| {
            format!("{}, {}: median {}", arm.name, load.name, format::value(spread.median, &metric.unit))
        })
        .collect();
    let mut svg = Svg::new(720.0, area.bottom + 26.0, &metric.title, &text.join("; "));
    let axis = Axis::with_unit(scale, 6, "", &metric.unit);
    for (value, label) in axis.spaced_ticks() {
        let x = scale.position(*value);
        svg.add(Shape::line((x, area.top), (x, area.bottom)).class("grid"));
        svg.add(Shape::text((svg.within(x, label), area.bottom + 16.0), label).class("tick middle"));
    }
    let several = has_several_loads(&experiment.plan);
    for (index, (arm, load, spread)) in rows.iter().enumerate() {
        let y = area.top + ROW_HEIGHT * (index as f64 + 0.5);
        let name = match &arm.repeats {
            Some(original) => format!("{original}, repeated (A/A)"),
            None => arm.name.clone(),
        };
        let name = row_name(&name, several.then_some(&*load.name), NAME_CHARS_MAX);
        svg.add(Shape::text((area.left - 10.0, y + 4.0), &name).class("label end"));
        let median = format::value(spread.median, &metric.unit);
        svg.add(Shape::text((720.0, y + 4.0), &median).class("label end"));
        draw_box(&mut svg, experiment, metric, (arm, load, spread), (&scale, y));
    }
    Some(svg)
}

fn draw_box(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &ExperimentMetric,
    (arm, load, spread): BoxRow<'_>,
    (scale, y): (&Scale, f64),
) {
    let series = series_index(&experiment.plan, &arm.name);
    let x = |value: f64| scale.position(value);
    svg.add(Shape::line((x(spread.min), y), (x(spread.max), y)).class("stroke thin").series(series));
    let tip = format!(
        "{}\nmedian {}\nquartiles {} to {}\nrange {} to {}",
        arm.name,
        format::value(spread.median, &metric.unit),
        format::value(spread.p25, &metric.unit),
        format::value(spread.p75, &metric.unit),
        format::value(spread.min, &metric.unit),
        format::value(spread.max, &metric.unit),
    );
    let quartiles = Shape::rect((x(spread.p25), y - 9.0), (x(spread.p75), y + 9.0));
    svg.add(quartiles.class("box").series(series).tooltip(&tip));
    if let Some((low, high)) = spread.median_interval {
        let bar = Shape::line((x(low), y + 12.0), (x(high), y + 12.0));
        svg.add(bar.class("stroke thick").series(series));
    }
    for line in counted_trials(experiment, &arm.name, &load.name) {
        let Some(value) = line.metrics.get(&metric.name) else { continue };
        // Offsets by block keep dots visible and in a fixed position.
        let outlier = f64::from(line.position.block * 5 % 9) - 4.0;
        let tip =
            format!("{}, block {}\n{}", arm.name, line.position.block, format::value(*value, &metric.unit));
        svg.add(Shape::circle((x(*value), y + outlier), 2.2).class("fill").series(series).tooltip(&tip));
    }
    let median = Shape::line((x(spread.median), y - 9.0), (x(spread.median), y + 9.0));
    svg.add(median.class("stroke thick").series(series));
}

#[cfg(test)]
mod tests {
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
