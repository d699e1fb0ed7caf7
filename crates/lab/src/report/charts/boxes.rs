//! Box plots: how each metric is spread over the trials of each arm.
//! Not for differences: arms whose boxes overlap may still differ in every block.

use record::experiment::{Arm, Experiment, LoadPlan, Metric, Spread};

use super::data::{cell, counting};
use super::{Chart, Part, series_of, several_loads};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Area, Axis, Mark, Scale, Svg, extent, row_name};
use crate::words;

/// Rows of one metric at most; the others are in the figures.
const ROWS_MAX: usize = 40;
/// Height of a row.
const ROW: f64 = 32.0;
/// Letters of a row's name at most.
const NAME_LETTERS_MAX: usize = 34;
/// From this ratio of the largest to the least on, equal ratios take equal room.
const LOG_FROM: f64 = 4.0;

/// A row: an arm under a load, and its spread.
type Row<'a> = (&'a Arm, &'a LoadPlan, &'a Spread);

/// Box plots, a drawing for each metric.
pub(in crate::report) fn chart(experiment: &Experiment, _raw: &dyn Raw) -> Vec<Chart> {
    let (id, title) = ("boxes", "Spread over trials");
    let caption = "Each dot is a trial; the box holds the middle half, its line is the median, the \
                   whiskers reach to the least and the largest, and the bar below is the interval of \
                   the median.";
    if experiment.cells.is_empty() {
        return vec![Chart::empty(id, title, caption, "No trial counts yet.")];
    }
    let mut chart = Chart::new(id, title, caption, figures(experiment));
    for metric in &experiment.plan.metrics {
        let rows = rows_of(experiment, metric);
        if rows.is_empty() {
            continue;
        }
        if rows.len() > ROWS_MAX {
            let rest = rows.len() - ROWS_MAX;
            let note =
                format!("{}: {} more are in the data.", metric.title, words::count(rest, "row"));
            chart.notes.push(note);
        }
        let heading = format!("{} ({})", metric.title, words::better(metric));
        chart.parts.push(Part::Heading(heading));
        let rows = &rows[..rows.len().min(ROWS_MAX)];
        if let Some(value) = alike(rows) {
            let value = words::value(value, &metric.unit);
            chart.parts.push(Part::Empty(format!("{value} in every trial.")));
        } else if let Some(svg) = drawing(experiment, metric, rows) {
            chart.parts.push(Part::Drawing(svg));
        }
    }
    vec![chart]
}

fn rows_of<'a>(experiment: &'a Experiment, metric: &Metric) -> Vec<Row<'a>> {
    let plan = &experiment.plan;
    let all = plan.loads.iter().flat_map(|load| plan.arms.iter().map(move |arm| (arm, load)));
    let with = all.filter_map(|(arm, load)| {
        let spread = cell(experiment, &arm.name, &load.name)?.metrics.get(&metric.name)?;
        Some((arm, load, spread))
    });
    with.collect()
}

/// What every trial has, where all have the same: that is a sentence, and no drawing.
fn alike(rows: &[Row<'_>]) -> Option<f64> {
    let (_, _, first) = rows.first()?;
    let same = |(_, _, spread): &Row<'_>| [spread.min, spread.max] == [first.min; 2];
    rows.iter().all(same).then_some(first.min)
}

fn figures(experiment: &Experiment) -> Figures {
    let mut figures = Figures::new(&[
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
            let unit = super::data::metric(experiment, name).map(|metric| metric.unit.clone());
            let mut row = vec![
                cell.load.clone(),
                cell.arm.clone(),
                name.clone(),
                unit.unwrap_or_default(),
                cell.trials.to_string(),
            ];
            let middle = [spread.min, spread.p25, spread.median, spread.p75, spread.max];
            row.extend(middle.map(|value| number(Some(value))));
            row.push(number(spread.median_interval.map(|(low, _)| low)));
            row.push(number(spread.median_interval.map(|(_, high)| high)));
            figures.row(row);
        }
    }
    figures
}

fn drawing(experiment: &Experiment, metric: &Metric, rows: &[Row<'_>]) -> Option<Svg> {
    let area = Area { left: 244.0, top: 8.0, right: 610.0, bottom: 8.0 + ROW * rows.len() as f64 };
    let ends = rows.iter().flat_map(|(_, _, spread)| [spread.min, spread.max]);
    let (low, high) = extent(ends)?;
    let scale = if low > 0.0 && high / low >= LOG_FROM {
        Scale::log((low / 1.05, high * 1.05), (area.left, area.right))
    } else {
        Scale::around([low, high], (area.left, area.right))?
    };
    let text: Vec<String> = rows
        .iter()
        .map(|(arm, load, spread)| {
            format!(
                "{}, {}: median {}",
                arm.name,
                load.name,
                words::value(spread.median, &metric.unit)
            )
        })
        .collect();
    let mut svg = Svg::new(720.0, area.bottom + 26.0, &metric.title, &text.join("; "));
    let axis = Axis::of_unit(scale, 6, "", &metric.unit);
    for (value, label) in axis.apart() {
        let at = scale.at(*value);
        svg.add(Mark::line((at, area.top), (at, area.bottom)).class("grid"));
        svg.add(Mark::text((at, area.bottom + 16.0), label).class("tick middle"));
    }
    let several = several_loads(&experiment.plan);
    for (index, (arm, load, spread)) in rows.iter().enumerate() {
        let at = area.top + ROW * (index as f64 + 0.5);
        let name = match &arm.again {
            Some(again) => format!("{again} again (A/A)"),
            None => arm.name.clone(),
        };
        let name = row_name(&name, several.then_some(&*load.name), NAME_LETTERS_MAX);
        svg.add(Mark::text((area.left - 10.0, at + 4.0), &name).class("label end"));
        let median = words::value(spread.median, &metric.unit);
        svg.add(Mark::text((720.0, at + 4.0), &median).class("label end"));
        one_box(&mut svg, experiment, metric, (arm, load, spread), (&scale, at));
    }
    Some(svg)
}

fn one_box(
    svg: &mut Svg,
    experiment: &Experiment,
    metric: &Metric,
    (arm, load, spread): Row<'_>,
    (scale, at): (&Scale, f64),
) {
    let series = series_of(&experiment.plan, &arm.name);
    let x = |value: f64| scale.at(value);
    svg.add(
        Mark::line((x(spread.min), at), (x(spread.max), at)).class("stroke thin").series(series),
    );
    let tip = format!(
        "{}\nmedian {}\nmiddle half {} to {}\n{} to {}",
        arm.name,
        words::value(spread.median, &metric.unit),
        words::value(spread.p25, &metric.unit),
        words::value(spread.p75, &metric.unit),
        words::value(spread.min, &metric.unit),
        words::value(spread.max, &metric.unit),
    );
    let middle = Mark::rect((x(spread.p25), at - 9.0), (x(spread.p75), at + 9.0));
    svg.add(middle.class("box").series(series).tip(&tip));
    if let Some((low, high)) = spread.median_interval {
        let bar = Mark::line((x(low), at + 12.0), (x(high), at + 12.0));
        svg.add(bar.class("stroke thick").series(series));
    }
    for line in counting(experiment, &arm.name, &load.name) {
        let Some(value) = line.metrics.get(&metric.name) else { continue };
        // Spread out by the block, so that dots do not hide each other and stay where they are.
        let away = f64::from(line.place.block * 5 % 9) - 4.0;
        let tip = format!(
            "{}, block {}\n{}",
            arm.name,
            line.place.block,
            words::value(*value, &metric.unit)
        );
        svg.add(Mark::circle((x(*value), at + away), 2.2).class("fill").series(series).tip(&tip));
    }
    let median = Mark::line((x(spread.median), at - 9.0), (x(spread.median), at + 9.0));
    svg.add(median.class("stroke thick").series(series));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{NoRaw, sample};

    #[test]
    fn what_is_the_same_in_every_trial_is_a_sentence() {
        let (mut experiment, _) = sample();
        let metric = experiment.plan.metrics[0].clone();
        let drawings = |experiment: &Experiment| {
            let chart = chart(experiment, &NoRaw).remove(0);
            chart.parts.iter().filter(|part| matches!(part, Part::Drawing(_))).count()
        };
        let all = drawings(&experiment);
        for cell in &mut experiment.cells {
            cell.metrics.insert(metric.name.clone(), Spread::default());
        }
        assert_eq!(drawings(&experiment), all - 1);
        let parts = chart(&experiment, &NoRaw).remove(0).parts;
        let said = |part: &Part| matches!(part, Part::Empty(text) if text.starts_with("0"));
        assert!(parts.iter().any(said), "{parts:?}");
    }
}
