//! Heat map of latency over an experiment: each column a trial, in the order of running, each row a
//! latency, the colour the fraction of that trial's requests. Each load has a map, with a strip for
//! each arm. The data are the trials' own histograms, so nothing in it is an average.
//!
//! It does not show time within a trial: the record has percentiles by the second but no histograms
//! ([`super::trial_time`]).

use std::collections::{BTreeMap, BTreeSet};

use experiment::format;
use record::experiment::{Experiment, TrialSummary};
use record::histogram::LatencyHistogram;

use super::panel::{self, KEY_HEIGHT, LevelCells, RIGHT, WIDTH, X_AXIS_HEIGHT};
use super::{ChartPart, ReportChart, has_several_loads};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Area, Axis, Scale, Shape, Svg, shortened};

/// Rows of the finest map in each power of ten: steps of 21 %.
const ROWS_PER_DECADE: i32 = 12;
/// Range of the grid: from 100 ns to 1000 s.
const DECADES: std::ops::Range<i32> = 2..12;
/// Maximum number of rows of a map; more are merged.
const ROWS_MAX: usize = 30;
/// Maximum number of strips of all maps: arms under loads.
const STRIPS_MAX: usize = 18;
/// Maximum number of columns of all strips; each needs a record and a tip.
const COLUMNS_MAX: usize = 320;
/// Height of a row, and the gap between strips.
const ROW_HEIGHT: f64 = 4.0;
const STRIP_GAP: f64 = 30.0;
/// Fractions of a trial's requests from which the colours begin. They start at one in a million,
/// because the chart is about tails.
const LEVEL_FRACTIONS: [f64; panel::HEAT_LEVELS] = [1e-9, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3];

/// The latencies of one trial, on the grid.
struct TrialColumn<'a> {
    line: &'a TrialSummary,
    /// Fractions by row of the grid; empty rows are absent.
    fractions: BTreeMap<i32, f64>,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// Returns the upper edge of a row of the grid, in ns.
fn upper_edge_ns(row: i32) -> f64 {
    10f64.powf(f64::from(row) / f64::from(ROWS_PER_DECADE))
}

/// Builds the chart.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let lines: Vec<&TrialSummary> =
        experiment.trials.iter().filter(|line| line.position.block > 0 && line.failed.is_none()).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let title = "Latency of every trial";
    let caption = "Each column is a trial, each row a latency (response, last byte); a stronger colour is \
                   a larger fraction of the requests. The line is the 99th percentile. Differences \
                   within a strip are noise or drift; differences between strips are those of the arms.";
    let mut chart = ReportChart::new("heat-map", title, caption, DataTable::default());
    let mut drawn: ArmStrips<'_> = Vec::new();
    let mut strips_left = STRIPS_MAX;
    let mut left_out = 0;
    let pairs = experiment.plan.loads.len() * experiment.plan.arms.len();
    let per_strip = (COLUMNS_MAX / pairs.clamp(1, STRIPS_MAX)).clamp(1, 60);
    for load in &experiment.plan.loads {
        if strips_left == 0 {
            left_out += experiment.plan.arms.len();
            continue;
        }
        let strips = strips(experiment, raw, &lines, (&load.name, per_strip), &mut strips_left);
        if strips.iter().all(|(_, columns)| columns.is_empty()) {
            continue;
        }
        // The colours are the same in all of them: one key is enough.
        let key = chart.parts.is_empty();
        if has_several_loads(&experiment.plan) {
            chart.parts.push(ChartPart::Heading(load.name.clone()));
        }
        chart.parts.push(ChartPart::Drawing(drawing(&load.name, &strips, key)));
        drawn.extend(strips);
    }
    if chart.parts.is_empty() {
        let why = "There are no latency histograms: the driver of these trials reports none, or the \
                   records could not be read.";
        return vec![ReportChart::empty("heat-map", title, caption, why)];
    }
    chart.data = data_table(&drawn);
    chart.notes.push(
        "The data have a row per trial and a column per latency range, named by its upper end.".to_owned(),
    );
    if lines.len() > pairs.min(STRIPS_MAX) * per_strip {
        chart
            .notes
            .push(format!("Max {per_strip} evenly spaced trials of each arm under each load are drawn."));
    }
    if left_out > 0 {
        chart.notes.push(format!("Not drawn: {} of arm and load.", format::count(left_out, "more pair")));
    }
    vec![chart]
}

/// Columns by arm.
type ArmStrips<'a> = Vec<(&'a str, Vec<TrialColumn<'a>>)>;

/// Returns the strips of one load: the arms in their order, each A/A arm next to its original.
fn strips<'a>(
    experiment: &'a Experiment,
    raw: &dyn TrialRecords,
    lines: &[&'a TrialSummary],
    (load, per_strip): (&str, usize),
    strips_left: &mut usize,
) -> ArmStrips<'a> {
    let mut strips = ArmStrips::new();
    for arm in &experiment.plan.arms {
        if *strips_left == 0 {
            break;
        }
        *strips_left -= 1;
        let of: Vec<&TrialSummary> = lines
            .iter()
            .copied()
            .filter(|line| line.position.arm == arm.name && line.position.load == load)
            .collect();
        let stride = of.len().div_ceil(per_strip).max(1);
        let columns = of.into_iter().step_by(stride).filter_map(|line| column(raw, line));
        strips.push((arm.name.as_str(), columns.collect()));
    }
    strips
}

fn column<'a>(raw: &dyn TrialRecords, line: &'a TrialSummary) -> Option<TrialColumn<'a>> {
    let trial = raw.trial(&line.file)?;
    let summary = trial.run?.latency.last_byte.response;
    let latencies = LatencyHistogram::decode(&summary.hdr).ok().filter(|all| !all.is_empty())?;
    let (min_ns, max_ns) = (latencies.value_at_quantile(0.0) as f64, latencies.max_ns() as f64);
    let (first, last) = (DECADES.start * ROWS_PER_DECADE, DECADES.end * ROWS_PER_DECADE);
    let mut fractions = BTreeMap::new();
    let mut below = 0.0;
    for row in first..=last {
        let edge = upper_edge_ns(row);
        if edge < min_ns && row < last {
            continue;
        }
        let within = if edge >= max_ns || row == last { 1.0 } else { latencies.fraction_within(edge as u64) };
        if within - below > 0.0 {
            fractions.insert(row, within - below);
        }
        below = within;
        if below >= 1.0 {
            break;
        }
    }
    Some(TrialColumn {
        line,
        fractions,
        p50_ns: summary.p50_ns,
        p99_ns: summary.p99_ns,
        max_ns: summary.max_ns,
    })
}

/// Returns a row for each trial and a column for each used row of the grid. A line for each cell
/// would be ten times as long.
fn data_table(strips: &ArmStrips<'_>) -> DataTable {
    let all = || strips.iter().flat_map(|(_, columns)| columns);
    let used: BTreeSet<i32> = all().flat_map(|column| column.fractions.keys().copied()).collect();
    let mut names: Vec<String> = ["load", "arm", "block", "trial"].map(str::to_owned).to_vec();
    names.extend(used.iter().map(|row| format!("to_{}_ns", panel::six_digits(upper_edge_ns(*row).round()))));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut data = DataTable::new(&names);
    for column in all() {
        let position = &column.line.position;
        let mut cells = vec![
            position.load.clone(),
            position.arm.clone(),
            position.block.to_string(),
            position.number.to_string(),
        ];
        let fraction_text =
            |row| column.fractions.get(row).map_or_else(String::new, |fraction| fraction_text(*fraction));
        cells.extend(used.iter().map(fraction_text));
        data.add_row(cells);
    }
    data
}

/// Formats a fraction with three digits: there are some thousand of them.
fn fraction_text(fraction: f64) -> String {
    number(format!("{fraction:.2e}").parse().ok())
}

/// The rows of a map.
struct RowRange {
    /// Row below the first used row of the grid.
    low: i32,
    /// Number of merged grid rows in a row of the map.
    step: i32,
    count: i32,
}

impl RowRange {
    fn covering(strips: &ArmStrips<'_>) -> Self {
        let used = || strips.iter().flat_map(|(_, columns)| columns).flat_map(|c| c.fractions.keys());
        let low = used().min().map_or(0, |row| row - 1);
        let high = used().max().copied().unwrap_or(1).max(low + 1);
        let step = (high - low + ROWS_MAX as i32 - 1) / ROWS_MAX as i32;
        Self { low, step, count: (high - low + step - 1) / step }
    }

    fn height(&self) -> f64 {
        // A map of few rows still needs the height of its labels.
        (f64::from(self.count) * ROW_HEIGHT).max(44.0)
    }

    fn scale(&self, area: &Area) -> Scale {
        let range = (upper_edge_ns(self.low), upper_edge_ns(self.low + self.count * self.step));
        Scale::log(range, (area.bottom, area.top))
    }
}

fn drawing(load: &str, strips: &ArmStrips<'_>, key: bool) -> Svg {
    let rows = RowRange::covering(strips);
    let count = strips.len() as f64;
    let from = if key { KEY_HEIGHT } else { 0.0 };
    let height = from + count * (rows.height() + STRIP_GAP) + X_AXIS_HEIGHT;
    let text =
        format!("A strip for each arm under the load {load}: trials from left to right, latency upwards.");
    let mut svg = Svg::new(WIDTH, height, "Latency of every trial", &text);
    if key {
        let labels = ["> 0", "0.001 %", "0.01 %", "0.1 %", "0.3 %", "1 %", "3 %", "10 %", "30 %"];
        panel::draw_key(
            &mut svg,
            0.0,
            "Fraction of the requests of a trial, from",
            &labels.map(str::to_owned),
        );
    }
    let mut area = panel::area(from + STRIP_GAP, rows.height());
    // Attempts at blocks, in the order of running, are the positions of columns in all strips.
    let positions = trial_positions(strips);
    let width = (RIGHT - panel::LEFT) / positions.len().max(1) as f64;
    for (index, (arm, columns)) in strips.iter().enumerate() {
        let top = from + STRIP_GAP + index as f64 * (rows.height() + STRIP_GAP);
        area = panel::area(top, rows.height());
        draw_strip(&mut svg, (arm, columns), (&rows, &area), (&positions, width));
    }
    let scale = Scale::linear((0.0, positions.len() as f64), (panel::LEFT, RIGHT));
    let stride = positions.len().div_ceil(15).max(1);
    let ticks = positions.iter().enumerate().step_by(stride).map(|(index, (block, attempt))| {
        let name = if *attempt > 1 { format!("{block} again") } else { block.to_string() };
        (index as f64 + 0.5, name)
    });
    let title = "Block, in run order".to_owned();
    panel::draw_x_axis(&mut svg, &area, &Axis { scale, ticks: ticks.collect(), title });
    svg
}

/// Returns the blocks and attempts that have a column, in the order of running.
fn trial_positions(strips: &ArmStrips<'_>) -> Vec<(u32, u32)> {
    let columns = strips.iter().flat_map(|(_, columns)| columns);
    let mut first: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for position in columns.map(|column| &column.line.position) {
        let number = first.entry((position.block, position.attempt)).or_insert(position.number);
        *number = position.number.min(*number);
    }
    let mut positions: Vec<(u32, u32)> = first.keys().copied().collect();
    positions.sort_by_key(|position| first.get(position).copied());
    positions
}

fn draw_strip(
    svg: &mut Svg,
    (arm, columns): (&str, &[TrialColumn<'_>]),
    (rows, area): (&RowRange, &Area),
    (places, width): (&[(u32, u32)], f64),
) {
    let scale = rows.scale(area);
    let y = Axis::new(scale, 4, &shortened(arm, 60), |value| format::tick(value, "ns"));
    panel::draw_frame(svg, area, &y);
    let mut cells = LevelCells::default();
    let (mut line, mut hits) = (Vec::new(), Vec::new());
    for column in columns {
        let slot = (column.line.position.block, column.line.position.attempt);
        let Some(index) = places.iter().position(|own| *own == slot) else { continue };
        let left = panel::LEFT + index as f64 * width;
        let right = left + (width - 0.6).max(0.4);
        let mut merged: BTreeMap<i32, f64> = BTreeMap::new();
        for (row, fraction) in &column.fractions {
            *merged.entry((row - 1 - rows.low) / rows.step).or_default() += fraction;
        }
        let row_height = area.height() / f64::from(rows.count);
        for (row, fraction) in merged {
            let bottom = area.bottom - f64::from(row) * row_height;
            let level = panel::level(fraction, &LEVEL_FRACTIONS);
            cells.add(level, (left, bottom - row_height), (right, bottom));
        }
        let p99 = scale.clamped(column.p99_ns as f64);
        line.extend([(left, p99), (left + width, p99)]);
        hits.push(panel::hover_area((left, area.top), (left + width, area.bottom), &tip(column)));
        if !column.line.is_counted() {
            let edge = Shape::rect((left, area.bottom), (left + width, area.bottom + 4.0));
            hits.push(edge.class("bad").tooltip("excluded trial"));
        }
    }
    cells.draw(svg, panel::heat_class);
    svg.add(Shape::polyline(&line).class("zero"));
    hits.into_iter().for_each(|hit| svg.add(hit));
}

fn tip(column: &TrialColumn<'_>) -> String {
    let position = &column.line.position;
    let ns = |ns: u64| format::value(ns as f64, "ns");
    let suffix = if position.attempt > 1 { " again" } else { "" };
    format!(
        "{}, block {}{suffix}, trial {}\np50 {}\np99 {}\nmax {}",
        position.arm,
        position.block,
        position.number,
        ns(column.p50_ns),
        ns(column.p99_ns),
        ns(column.max_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::markup;
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
    fn a_fraction_is_in_the_row_of_its_latency() {
        let (experiment, raw) = synthetic_experiment();
        let line = experiment.trials.iter().find(|line| line.position.block == 1).unwrap();
        let column = column(&raw, line).unwrap();
        let half: f64 = column
            .fractions
            .iter()
            .filter(|(row, _)| upper_edge_ns(**row) < column.p50_ns as f64)
            .map(|(_, fraction)| fraction)
            .sum();
        assert!(half <= 0.5 && half > 0.2, "{half}");
        assert!(upper_edge_ns(*column.fractions.keys().max().unwrap()) >= column.max_ns as f64 * 0.999);
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
        assert!(text.matches("p50 ").count() <= COLUMNS_MAX);
        assert!(text.len() < 250_000, "{}", text.len());
        assert_eq!(charts[0].notes.len(), 2);
    }
}
