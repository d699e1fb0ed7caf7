//! A heat map of latency over an experiment: each column a trial, in the order of running, each row a
//! latency, the colour the share of that trial's requests; a map for each load, a strip in it for each
//! arm. From the trials' own histograms, so that nothing in it is an average.
//!
//! Not for time within a trial: its record has percentiles by the second and no histograms
//! ([`super::over_time`]).

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Experiment, TrialLine};
use record::histogram::Latencies;

use super::panel::{self, Cells, FOOT, KEY, RIGHT, WIDTH};
use super::{Chart, Part, several_loads};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Area, Axis, Mark, Scale, Svg, shortened};
use crate::words;

/// Rows of the finest map in each power of ten: steps of 21 %.
const PER_DECADE: i32 = 12;
/// The grid goes from 100 ns to 1000 s.
const DECADES: std::ops::Range<i32> = 2..12;
/// Rows that a map has at most; of more, some become one.
const ROWS_MAX: usize = 30;
/// Strips of all maps at most: arms under loads.
const STRIPS_MAX: usize = 18;
/// Columns of all strips at most, each a record to read and a tip to write.
const COLUMNS_MAX: usize = 320;
/// Height of a row, and what is between strips.
const ROW: f64 = 4.0;
const GAP: f64 = 30.0;
/// Shares of a trial's requests from which the colours begin: from one in a million on, since tails
/// are what this is looked at for.
const BOUNDS: [f64; panel::LEVELS] = [1e-9, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3];

/// The latencies of one trial, on the grid.
struct Column<'a> {
    line: &'a TrialLine,
    /// Shares by row of the grid; rows without any are absent.
    shares: BTreeMap<i32, f64>,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// The upper edge of a row of the grid, in ns.
fn edge_ns(row: i32) -> f64 {
    10f64.powf(f64::from(row) / f64::from(PER_DECADE))
}

/// The chart.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let lines: Vec<&TrialLine> = experiment
        .trials
        .iter()
        .filter(|line| line.place.block > 0 && line.failed.is_none())
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let title = "Latency of every trial";
    let caption = "Each column is a trial, each row a latency (response, last byte); the stronger the \
                   colour, the larger its share of the requests. The line is where 99 % of them end. Columns that \
                   differ within a strip are noise or drift; strips that differ are the arms.";
    let mut chart = Chart::new("heat-map", title, caption, Figures::default());
    let mut drawn: Strips<'_> = Vec::new();
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
        if several_loads(&experiment.plan) {
            chart.parts.push(Part::Heading(load.name.clone()));
        }
        chart.parts.push(Part::Drawing(drawing(&load.name, &strips, key)));
        drawn.extend(strips);
    }
    if chart.parts.is_empty() {
        let why = "There are no histograms of latency: the driver of these trials gives none, or \
                   their records could not be read.";
        return vec![Chart::empty("heat-map", title, caption, why)];
    }
    chart.figures = figures(&drawn);
    chart.notes.push(
        "In its data each trial is a row and each range of latencies a column, named by its upper end.".to_owned(),
    );
    if lines.len() > pairs.min(STRIPS_MAX) * per_strip {
        chart.notes.push(format!("Of each arm under each load, {per_strip} trials are drawn at most, as far apart as they are from each other."));
    }
    if left_out > 0 {
        chart.notes.push(format!("{left_out} more pairs of arm and load are not drawn."));
    }
    vec![chart]
}

/// Columns by arm.
type Strips<'a> = Vec<(&'a str, Vec<Column<'a>>)>;

/// The strips of one load: the arms in their order, with the A/A arm beside what it repeats.
fn strips<'a>(
    experiment: &'a Experiment,
    raw: &dyn Raw,
    lines: &[&'a TrialLine],
    (load, per_strip): (&str, usize),
    strips_left: &mut usize,
) -> Strips<'a> {
    let mut strips = Strips::new();
    for arm in &experiment.plan.arms {
        if *strips_left == 0 {
            break;
        }
        *strips_left -= 1;
        let of: Vec<&TrialLine> = lines
            .iter()
            .copied()
            .filter(|line| line.place.arm == arm.name && line.place.load == load)
            .collect();
        let every = of.len().div_ceil(per_strip).max(1);
        let columns = of.into_iter().step_by(every).filter_map(|line| column(raw, line));
        strips.push((arm.name.as_str(), columns.collect()));
    }
    strips
}

fn column<'a>(raw: &dyn Raw, line: &'a TrialLine) -> Option<Column<'a>> {
    let trial = raw.trial(&line.file)?;
    let summary = trial.run?.latency.last_byte.response;
    let latencies = Latencies::decode(&summary.hdr).ok().filter(|all| !all.is_empty())?;
    let (least_ns, most_ns) = (latencies.at(0.0) as f64, latencies.max_ns() as f64);
    let (first, last) = (DECADES.start * PER_DECADE, DECADES.end * PER_DECADE);
    let mut shares = BTreeMap::new();
    let mut below = 0.0;
    for row in first..=last {
        let edge = edge_ns(row);
        if edge < least_ns && row < last {
            continue;
        }
        let within =
            if edge >= most_ns || row == last { 1.0 } else { latencies.share_within(edge as u64) };
        if within - below > 0.0 {
            shares.insert(row, within - below);
        }
        below = within;
        if below >= 1.0 {
            break;
        }
    }
    Some(Column {
        line,
        shares,
        p50_ns: summary.p50_ns,
        p99_ns: summary.p99_ns,
        max_ns: summary.max_ns,
    })
}

/// A row for each trial, and a column for each row of the grid that any of them uses: a line for each cell
/// would be ten times as long.
fn figures(strips: &Strips<'_>) -> Figures {
    let all = || strips.iter().flat_map(|(_, columns)| columns);
    let used: BTreeSet<i32> = all().flat_map(|column| column.shares.keys().copied()).collect();
    let mut names: Vec<String> = ["load", "arm", "block", "trial"].map(str::to_owned).to_vec();
    names.extend(used.iter().map(|row| format!("to_{}_ns", panel::figure(edge_ns(*row).round()))));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut figures = Figures::new(&names);
    for column in all() {
        let place = &column.line.place;
        let mut cells = vec![
            place.load.clone(),
            place.arm.clone(),
            place.block.to_string(),
            place.number.to_string(),
        ];
        let share = |row| column.shares.get(row).map_or_else(String::new, |share| short(*share));
        cells.extend(used.iter().map(share));
        figures.row(cells);
    }
    figures
}

/// A share with three digits: there are some thousand of them.
fn short(share: f64) -> String {
    number(format!("{share:.2e}").parse().ok())
}

/// The rows of a map.
struct Rows {
    /// Below the first row of the grid that is used.
    low: i32,
    /// Rows of the grid that are one here.
    step: i32,
    count: i32,
}

impl Rows {
    fn of(strips: &Strips<'_>) -> Self {
        let used = || strips.iter().flat_map(|(_, columns)| columns).flat_map(|c| c.shares.keys());
        let low = used().min().map_or(0, |row| row - 1);
        let high = used().max().copied().unwrap_or(1).max(low + 1);
        let step = (high - low + ROWS_MAX as i32 - 1) / ROWS_MAX as i32;
        Self { low, step, count: (high - low + step - 1) / step }
    }

    fn height(&self) -> f64 {
        // A map of few rows is no lower than its labels need.
        (f64::from(self.count) * ROW).max(44.0)
    }

    fn scale(&self, area: &Area) -> Scale {
        let range = (edge_ns(self.low), edge_ns(self.low + self.count * self.step));
        Scale::log(range, (area.bottom, area.top))
    }
}

fn drawing(load: &str, strips: &Strips<'_>, key: bool) -> Svg {
    let rows = Rows::of(strips);
    let count = strips.len() as f64;
    let from = if key { KEY } else { 0.0 };
    let height = from + count * (rows.height() + GAP) + FOOT;
    let text = format!(
        "A strip for each arm under the load {load}: trials from left to right, latency upwards."
    );
    let mut svg = Svg::new(WIDTH, height, "Latency of every trial", &text);
    if key {
        let labels = ["> 0", "0.001 %", "0.01 %", "0.1 %", "0.3 %", "1 %", "3 %", "10 %", "30 %"];
        panel::key(&mut svg, 0.0, "Share of a trial's requests, from", &labels.map(str::to_owned));
    }
    let mut area = panel::area(from + GAP, rows.height());
    // Attempts at blocks, in the order of running, are the places of columns in all strips.
    let places = places(strips);
    let width = (RIGHT - panel::LEFT) / places.len().max(1) as f64;
    for (index, (arm, columns)) in strips.iter().enumerate() {
        let top = from + GAP + index as f64 * (rows.height() + GAP);
        area = panel::area(top, rows.height());
        strip(&mut svg, (arm, columns), (&rows, &area), (&places, width));
    }
    let scale = Scale::linear((0.0, places.len() as f64), (panel::LEFT, RIGHT));
    let every = places.len().div_ceil(15).max(1);
    let ticks = places.iter().enumerate().step_by(every).map(|(index, (block, attempt))| {
        let name = if *attempt > 1 { format!("{block} again") } else { block.to_string() };
        (index as f64 + 0.5, name)
    });
    let title = "Block, in the order of running".to_owned();
    panel::foot(&mut svg, &area, &Axis { scale, ticks: ticks.collect(), title });
    svg
}

/// Blocks and attempts that have a column, in the order of running.
fn places(strips: &Strips<'_>) -> Vec<(u32, u32)> {
    let columns = strips.iter().flat_map(|(_, columns)| columns);
    let mut first: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for place in columns.map(|column| &column.line.place) {
        let number = first.entry((place.block, place.attempt)).or_insert(place.number);
        *number = place.number.min(*number);
    }
    let mut places: Vec<(u32, u32)> = first.keys().copied().collect();
    places.sort_by_key(|place| first.get(place).copied());
    places
}

fn strip(
    svg: &mut Svg,
    (arm, columns): (&str, &[Column<'_>]),
    (rows, area): (&Rows, &Area),
    (places, width): (&[(u32, u32)], f64),
) {
    let scale = rows.scale(area);
    let y = Axis::new(scale, 4, &shortened(arm, 60), |value| words::tick(value, "ns"));
    panel::frame(svg, area, &y);
    let mut cells = Cells::default();
    let (mut line, mut hits) = (Vec::new(), Vec::new());
    for column in columns {
        let place = (column.line.place.block, column.line.place.attempt);
        let Some(index) = places.iter().position(|own| *own == place) else { continue };
        let left = panel::LEFT + index as f64 * width;
        let right = left + (width - 0.6).max(0.4);
        let mut merged: BTreeMap<i32, f64> = BTreeMap::new();
        for (row, share) in &column.shares {
            *merged.entry((row - 1 - rows.low) / rows.step).or_default() += share;
        }
        let row_height = area.height() / f64::from(rows.count);
        for (row, share) in merged {
            let bottom = area.bottom - f64::from(row) * row_height;
            let level = panel::level(share, &BOUNDS);
            cells.add(level, (left, bottom - row_height), (right, bottom));
        }
        let p99 = scale.clamped(column.p99_ns as f64);
        line.extend([(left, p99), (left + width, p99)]);
        hits.push(panel::hit((left, area.top), (left + width, area.bottom), &tip(column)));
        if !column.line.counts() {
            let edge = Mark::rect((left, area.bottom), (left + width, area.bottom + 4.0));
            hits.push(edge.class("bad").tip("this trial does not count"));
        }
    }
    cells.draw(svg, panel::heat);
    svg.add(Mark::polyline(&line).class("zero"));
    hits.into_iter().for_each(|hit| svg.add(hit));
}

fn tip(column: &Column<'_>) -> String {
    let place = &column.line.place;
    let ns = |ns: u64| words::value(ns as f64, "ns");
    let again = if place.attempt > 1 { " again" } else { "" };
    format!(
        "{}, block {}{again}, trial {}\n50 % within {}\n99 % within {}\nall within {}",
        place.arm,
        place.block,
        place.number,
        ns(column.p50_ns),
        ns(column.p99_ns),
        ns(column.max_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::charts::markup;
    use crate::report::csv::parse;
    use crate::report::sample::{ARMS, BLOCKS, LOADS, NoRaw, sample};

    #[test]
    fn every_trial_with_a_histogram_is_a_column() {
        let (experiment, raw) = sample();
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        // Each block, and the discarded try at the third without its failed arm.
        let columns = LOADS.len() * (ARMS.len() * BLOCKS as usize + 2);
        assert_eq!(text.matches("50 % within").count(), columns);
        assert_eq!(text.matches("does not count").count(), LOADS.len() * 2);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert!(text.len() < 150_000, "{}", text.len());
        let rows = parse(&charts[0].figures.text());
        assert_eq!(rows.len(), 1 + columns, "a row for each trial");
        assert!(rows[0][4].starts_with("to_") && rows[0][4].ends_with("_ns"), "{:?}", rows[0]);
        let shares: f64 = rows[1][4..].iter().filter_map(|cell| cell.parse::<f64>().ok()).sum();
        assert!((shares - 1.0).abs() < 5e-3, "{shares}");
    }

    #[test]
    fn a_share_stands_in_the_row_of_its_latency() {
        let (experiment, raw) = sample();
        let line = experiment.trials.iter().find(|line| line.place.block == 1).unwrap();
        let column = column(&raw, line).unwrap();
        let half: f64 = column
            .shares
            .iter()
            .filter(|(row, _)| edge_ns(**row) < column.p50_ns as f64)
            .map(|(_, share)| share)
            .sum();
        assert!(half <= 0.5 && half > 0.2, "{half}");
        assert!(edge_ns(*column.shares.keys().max().unwrap()) >= column.max_ns as f64 * 0.999);
    }

    #[test]
    fn nothing_is_nothing_and_no_histogram_is_said() {
        let (mut experiment, _) = sample();
        assert!(matches!(chart(&experiment, &NoRaw)[0].parts[..], [Part::Empty(_)]));
        experiment.trials.clear();
        assert!(chart(&experiment, &NoRaw).is_empty());
    }

    #[test]
    fn a_bad_histogram_and_extreme_latencies_are_no_trouble() {
        let (experiment, mut raw) = sample();
        let mut wide = Latencies::new();
        for ns in [1, 1_000, u64::MAX] {
            wide.record(ns);
        }
        for (index, trial) in raw.trials.values_mut().enumerate() {
            let Some(run) = &mut trial.run else { continue };
            let response = &mut run.latency.last_byte.response;
            match index % 3 {
                0 => "not base64".clone_into(&mut response.hdr),
                1 => *response = wide.summary(),
                _ => *response = Latencies::new().summary(),
            }
        }
        let text = markup(&chart(&experiment, &raw)[0]);
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn there_is_an_end_to_the_columns() {
        let (mut experiment, raw) = sample();
        let some = experiment.trials.clone();
        experiment.trials = some.iter().cycle().take(4_000).cloned().collect();
        for (index, line) in experiment.trials.iter_mut().enumerate() {
            line.place.block = index as u32 / 9 + 1;
        }
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        assert!(text.matches("50 % within").count() <= COLUMNS_MAX);
        assert!(text.len() < 250_000, "{}", text.len());
        assert_eq!(charts[0].notes.len(), 2);
    }
}
