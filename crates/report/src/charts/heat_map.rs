//! Heat map of latency over an experiment: each column a trial, in the order of running, each row a
//! latency, the colour the fraction of that trial's requests. Each load has a map, with a strip for
//! each arm.
//!
//! [`super::trial_time`] shows the time within a trial, in percentiles.

use experiment::format;
use record::experiment::{Experiment, TrialSummary};

use super::ReportChart;
use crate::TrialRecords;
use crate::data::histograms::{ArmStrips, RowRange, TrialColumn, data_table, strips, trial_positions};
use crate::data_table::DataTable;
use crate::plot::{Area, Axis, Frame, HEAT_LEVELS, HeatCells, Plot, Scale, Shape, Svg, level, shortened};

/// Maximum number of strips of all maps: arms under loads.
const STRIPS_MAX: usize = 18;
/// Maximum number of columns of all strips, and of one; each needs a record and a tip.
const COLUMNS_TOTAL_MAX: usize = 320;
const COLUMNS_MAX: usize = 60;
/// Height of a row, minimum height of a strip (that of its labels), and the gap between strips.
const ROW_HEIGHT: f64 = 4.0;
const STRIP_HEIGHT_MIN: f64 = 44.0;
const STRIP_GAP: f64 = 30.0;
/// Fractions of a trial's requests from which the colours begin, and their labels. They start at one
/// in a million, because the chart is about tails.
const LEVEL_FRACTIONS: [f64; HEAT_LEVELS] = [1e-9, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3];
const LEVEL_LABELS: [&str; HEAT_LEVELS] =
    ["> 0", "0.001 %", "0.01 %", "0.1 %", "0.3 %", "1 %", "3 %", "10 %", "30 %"];

pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let ran = |line: &&TrialSummary| line.position.block > 0 && line.failed.is_none();
    let lines: Vec<&TrialSummary> = experiment.trials.iter().filter(ran).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let caption = "Each column is a trial, each row a latency (response, last byte); a stronger colour is \
                   a larger fraction of the requests. The line is the 99th percentile. Differences \
                   within a strip are noise or drift; differences between strips are those of the arms.";
    let mut chart = ReportChart::new("heat-map", "Latency of every trial", caption, DataTable::default());
    let mut drawn: ArmStrips<'_> = Vec::new();
    let pairs = experiment.plan.loads.len() * experiment.plan.arms.len();
    let per_strip = (COLUMNS_TOTAL_MAX / pairs.clamp(1, STRIPS_MAX)).clamp(1, COLUMNS_MAX);
    for (index, load) in experiment.plan.loads.iter().enumerate() {
        let strips_left = STRIPS_MAX.saturating_sub(index * experiment.plan.arms.len());
        let strips = strips(experiment, raw, &lines, (&load.name, per_strip, strips_left));
        if strips.iter().any(|(_, columns)| !columns.is_empty()) {
            chart.load_heading(experiment, &load.name);
            // The colours are the same in all of them: one key is enough.
            chart.draw(drawing(&load.name, &strips, drawn.is_empty()));
            drawn.extend(strips);
        }
    }
    if !drawn.is_empty() {
        chart.data = data_table(&drawn);
        let cells = "The data have a row per trial and a column per latency range, named by its upper end.";
        chart.notes.push(cells.to_owned());
        let columns = format!("Max {per_strip} evenly spaced trials of each arm under each load are drawn.");
        chart.notes.extend((lines.len() > pairs.min(STRIPS_MAX) * per_strip).then_some(columns));
        let more = format::count(pairs.saturating_sub(STRIPS_MAX), "more pair");
        chart.notes.extend((pairs > STRIPS_MAX).then(|| format!("Not drawn: {more} of arm and load.")));
    }
    let reason = "There are no latency histograms: the driver of these trials reports none, or the records \
                  could not be read.";
    vec![chart.or_empty(reason)]
}

fn drawing(load: &str, strips: &ArmStrips<'_>, with_key: bool) -> Svg {
    let text = format!("Strips of the arms under the load {load}: trials to the right, latency upwards.");
    let mut svg = Svg::new("Latency of every trial", &text);
    if with_key {
        svg.heat_key("Fraction of the requests of a trial, from", &LEVEL_LABELS.map(str::to_owned));
    }
    // Attempts at blocks, in the order of running, are the positions of columns in all strips.
    let positions = trial_positions(strips);
    let stride = positions.len().div_ceil(15).max(1);
    let ticks = positions.iter().enumerate().step_by(stride).map(|(index, (block, attempt))| {
        let again = if *attempt > 1 { " again" } else { "" };
        (index as f64 + 0.5, format!("{block}{again}"))
    });
    let x = Axis::with_ticks(Scale::linear(0.0, positions.len() as f64), "Block, in run order", ticks);
    let rows = RowRange::covering(strips);
    let frame = Frame::new(STRIP_GAP, (f64::from(rows.count) * ROW_HEIGHT).max(STRIP_HEIGHT_MIN));
    let mut plots: Vec<Plot> = Vec::new();
    for (arm, columns) in strips {
        let y = Axis::new(rows.scale(), 4, &shortened(arm, 60), |ns| format::tick(ns, "ns"));
        let plot = svg.plot(frame, x.scale, &y);
        draw_strip(&mut svg, columns, (&plot, &rows, &positions));
        plots.push(plot);
    }
    svg.finish_columns(&plots, &x, std::iter::empty());
    svg
}

fn draw_strip(
    svg: &mut Svg,
    columns: &[TrialColumn<'_>],
    (plot, rows, positions): (&Plot, &RowRange, &[(u32, u32)]),
) {
    let (mut heat, mut p99, mut tips) = (HeatCells::default(), Vec::new(), Vec::new());
    for column in columns {
        let Some(index) = positions.iter().position(|own| *own == column.position()) else { continue };
        let x = (index as f64, index as f64 + 1.0);
        for (ends_ns, fraction) in rows.merged(column) {
            heat.add(level(fraction, &LEVEL_FRACTIONS), plot.cell(x, ends_ns).with_gap(0.6));
        }
        p99.extend([x.0, x.1].map(|x| (x, plot.y.clamp(column.p99_ns as f64))));
        tips.push(plot.hover(x, &column.tip()));
        if !column.line.is_counted() {
            let cell = plot.cell(x, plot.y.range());
            let edge = Area { top: cell.bottom, bottom: cell.bottom + 4.0, ..cell };
            tips.push(Shape::rect(edge).class("bad").tooltip("excluded trial"));
        }
    }
    heat.draw(svg);
    svg.add(plot.line(p99).class("zero"));
    tips.into_iter().for_each(|tip| svg.add(tip));
}

#[cfg(test)]
mod tests {
    use record::histogram::LatencyHistogram;

    use super::*;
    use crate::charts::{ChartPart, markup};
    use crate::data_table::parse;
    use crate::synthetic::{ARMS, BLOCKS, LOADS, NoRecords, synthetic_experiment};

    #[test]
    fn every_trial_with_a_histogram_is_a_column() {
        let (experiment, raw) = synthetic_experiment();
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        // Each block, and the discarded attempt at the third without its failed arm.
        let columns = LOADS.len() * (ARMS.len() * BLOCKS as usize + 2);
        assert_eq!(text.matches("p50 ").count(), columns);
        assert_eq!(text.matches("excluded trial").count(), LOADS.len() * 2);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert!(text.len() < 150_000, "{}", text.len());
        let rows = parse(&charts[0].data.to_csv());
        assert_eq!(rows.len(), 1 + columns, "a row for each trial");
        assert!(rows[0][4].starts_with("to_") && rows[0][4].ends_with("_ns"), "{:?}", rows[0]);
        let fractions: f64 = rows[1][4..].iter().filter_map(|cell| cell.parse::<f64>().ok()).sum();
        assert!((fractions - 1.0).abs() < 5e-3, "{fractions}");
    }

    #[test]
    fn no_data_is_no_chart_and_a_missing_histogram_is_noted() {
        let (mut experiment, _) = synthetic_experiment();
        assert!(matches!(chart(&experiment, &NoRecords)[0].parts[..], [ChartPart::Empty(_)]));
        experiment.trials.clear();
        assert!(chart(&experiment, &NoRecords).is_empty());
    }

    #[test]
    fn a_bad_histogram_and_extreme_latencies_are_no_trouble() {
        let (experiment, mut raw) = synthetic_experiment();
        let mut wide = LatencyHistogram::new();
        for ns in [1, 1_000, u64::MAX] {
            wide.record(ns);
        }
        for (index, trial) in raw.trials.values_mut().enumerate() {
            let Some(run) = &mut trial.run else { continue };
            let response = &mut run.latency.last_byte.response;
            match index % 3 {
                0 => "not base64".clone_into(&mut response.hdr),
                1 => *response = wide.summary(),
                _ => *response = LatencyHistogram::new().summary(),
            }
        }
        let text = markup(&chart(&experiment, &raw)[0]);
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn there_is_an_end_to_the_columns() {
        let (mut experiment, raw) = synthetic_experiment();
        let some = experiment.trials.clone();
        experiment.trials = some.iter().cycle().take(4_000).cloned().collect();
        for (index, line) in experiment.trials.iter_mut().enumerate() {
            line.position.block = index as u32 / 9 + 1;
        }
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        assert!(text.matches("p50 ").count() <= COLUMNS_TOTAL_MAX);
        assert!(text.len() < 250_000, "{}", text.len());
        assert_eq!(charts[0].notes.len(), 2);
    }
}
