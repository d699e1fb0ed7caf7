//! Each processor over time, by what it did: user space, kernel, interrupts, stolen. For the typical
//! trial of each arm. Not for programs: that is in [`super::over_time`].

use std::collections::BTreeMap;

use record::experiment::Experiment;
use record::observed::CpuUse;

use super::panel::{self, Cells, FOOT, KEY, RIGHT, WIDTH};
use super::typical::{Typical, heading, typical};
use super::{Chart, Part};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Area, Axis, Mark, Scale, Svg};
use crate::words;

/// Columns of one trial at most; more seconds than these share columns.
const COLUMNS_MAX: usize = 60;
/// Columns of all trials, each with its tip.
const COLUMNS_ALL_MAX: usize = 300;
/// Cells of all trials: columns times processors that are drawn.
const CELLS_ALL_MAX: usize = 5_000;
/// Up to this many processors each has a panel with what it did; more have a row each, by how busy.
const PANELS_MAX: usize = 8;
/// Processors that have a row at most: the busiest.
const ROWS_MAX: usize = 64;
/// Processors that a tip names: the busiest.
const NAMED_MAX: usize = 4;
/// Height of a panel and the room above it; of a row.
const PANEL: f64 = 40.0;
const GAP: f64 = 12.0;
const ROW: f64 = 9.0;
/// Shares of the time from which the colours of rows begin.
const BOUNDS: [f64; panel::LEVELS] = [0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97];

/// What a processor does: words, class of the style sheet, the share of it.
struct State {
    name: &'static str,
    class: &'static str,
    read: fn(&CpuUse) -> f64,
}

/// From the lowest to the uppermost.
const STATES: &[State] = &[
    State { name: "user", class: "k-user", read: |cpu| cpu.user },
    State { name: "system", class: "k-system", read: |cpu| cpu.system },
    State { name: "softirq", class: "k-softirq", read: |cpu| cpu.softirq },
    State { name: "irq", class: "k-irq", read: |cpu| cpu.irq },
    State { name: "steal", class: "k-steal", read: |cpu| cpu.steal },
];

/// Shares by state.
type Shares = [f64; STATES.len()];

/// The processors of one trial.
struct Seen {
    /// When each column ends.
    times_s: Vec<f64>,
    /// By machine and number, by column.
    cpus: BTreeMap<(String, u32), Vec<Option<Shares>>>,
}

/// The chart: a drawing for each arm under each load.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let found = typical(experiment, raw);
    let trials: Vec<&Typical<'_>> = found.groups.iter().flat_map(|group| &group.trials).collect();
    if trials.is_empty() {
        return Vec::new();
    }
    let title = "Processors over time";
    let caption = "What each processor did in the typical trial of each arm. A processor that is full \
                   limits, even where others are idle; much softirq on one alone is a receive path \
                   that is not spread; steal is time that the hypervisor gave to others.";
    let columns = [
        "load", "arm", "trial", "host", "cpu", "time_s", "user", "system", "softirq", "irq",
        "steal",
    ];
    let mut chart = Chart::new("processors", title, caption, Figures::new(&columns));
    let columns_max = columns_max(&trials);
    for one in trials {
        let seen = seen(one, columns_max);
        if seen.cpus.is_empty() {
            continue;
        }
        note(&mut chart.figures, one, &seen);
        let title = heading(experiment, one);
        // The colours are the same in all of them: one key is enough.
        let key = chart.parts.is_empty();
        chart.parts.push(Part::Heading(title.clone()));
        let drawing = match seen.cpus.len() <= PANELS_MAX {
            true => panels(&seen, &title, key),
            false => rows(&seen, &title),
        };
        chart.parts.push(Part::Drawing(drawing));
        if seen.cpus.len() > ROWS_MAX {
            chart.notes.push(format!("{title}: the {ROWS_MAX} busiest processors."));
        }
    }
    if chart.parts.is_empty() {
        let why = "Nobody watched the processors while these trials ran.";
        return vec![Chart::empty("processors", title, caption, why)];
    }
    chart.notes.extend(found.notes);
    vec![chart]
}

/// Columns of each trial at most, so that all of them together stay small.
fn columns_max(trials: &[&Typical<'_>]) -> usize {
    let samples = trials.iter().flat_map(|one| one.observed()).flat_map(|seen| &seen.samples);
    let cpus = samples.map(|sample| sample.cpus.len()).max().unwrap_or(1).clamp(1, ROWS_MAX);
    // A panel has a cell for each state.
    let cells = if cpus <= PANELS_MAX { cpus * STATES.len() } else { cpus };
    let of_cells = CELLS_ALL_MAX / (cells * trials.len());
    (COLUMNS_ALL_MAX / trials.len()).min(of_cells).clamp(8, COLUMNS_MAX)
}

fn seen(one: &Typical<'_>, columns_max: usize) -> Seen {
    let samples = || {
        let all = one.observed().flat_map(|seen| seen.samples.iter().map(move |s| (seen, s)));
        all.filter(|(_, sample)| sample.time_s > 0.0 && sample.time_s.is_finite())
    };
    let longest_s = samples().map(|(_, sample)| sample.time_s).fold(0.0, f64::max);
    let step_s = (longest_s / columns_max as f64).ceil().max(1.0);
    let count = ((longest_s / step_s).round() as usize).clamp(1, columns_max + 1);
    let times_s: Vec<f64> = (1..=count).map(|index| index as f64 * step_s).collect();
    let mut cpus: BTreeMap<(String, u32), Vec<Option<Shares>>> = BTreeMap::new();
    let mut weights: BTreeMap<(String, u32, usize), f64> = BTreeMap::new();
    for (machine, sample) in samples() {
        let column = ((sample.time_s / step_s).round() as usize).clamp(1, count) - 1;
        for cpu in &sample.cpus {
            let shares: Shares = std::array::from_fn(|index| (STATES[index].read)(cpu));
            if shares.iter().any(|share| !share.is_finite()) || !sample.length_s.is_finite() {
                continue;
            }
            let name = (machine.host.clone(), cpu.cpu);
            let weight = weights.entry((name.0.clone(), cpu.cpu, column)).or_default();
            let all = cpus.entry(name).or_insert_with(|| vec![None; count]);
            let length_s = sample.length_s.max(1e-6);
            let before = all[column].unwrap_or_default();
            let mean = |index: usize| {
                let share = shares[index].clamp(0.0, 1.0);
                (before[index] * *weight + share * length_s) / (*weight + length_s)
            };
            all[column] = Some(std::array::from_fn(mean));
            *weight += length_s;
        }
    }
    Seen { times_s, cpus }
}

fn note(figures: &mut Figures, one: &Typical<'_>, seen: &Seen) {
    let place = &one.line.place;
    for ((host, cpu), columns) in &seen.cpus {
        for (time_s, shares) in seen.times_s.iter().zip(columns) {
            let Some(shares) = shares else { continue };
            let mut cells = vec![
                place.load.clone(),
                place.arm.clone(),
                place.number.to_string(),
                host.clone(),
                cpu.to_string(),
                number(Some(*time_s)),
            ];
            cells.extend(shares.iter().map(|share| panel::figure(*share)));
            figures.row(cells);
        }
    }
}

impl Seen {
    fn step_s(&self) -> f64 {
        self.times_s.first().copied().unwrap_or(1.0)
    }

    fn time(&self) -> Scale {
        let longest_s = self.times_s.last().copied().unwrap_or(1.0);
        Scale::linear((0.0, longest_s), (panel::LEFT, RIGHT))
    }

    /// How a processor is called: by its number, with its machine where there are several.
    fn name(&self, (host, cpu): &(String, u32)) -> String {
        let several = self.cpus.keys().any(|(other, _)| other != host);
        if several { format!("{host} {cpu}") } else { format!("CPU {cpu}") }
    }

    /// Both edges of a column.
    fn edges(&self, column: usize) -> (f64, f64) {
        let (time, end_s) = (self.time(), self.times_s[column]);
        (time.at(end_s - self.step_s()), time.at(end_s))
    }
}

fn busy(shares: &Shares) -> f64 {
    shares.iter().sum()
}

/// A panel for each processor, what it did one above the other.
fn panels(seen: &Seen, title: &str, key: bool) -> Svg {
    let top = if key { 24.0 } else { 4.0 };
    let height = top + seen.cpus.len() as f64 * (PANEL + GAP) + FOOT;
    let text = format!("What each of {} processors did over time.", seen.cpus.len());
    let mut svg = Svg::new(WIDTH, height, title, &text);
    let mut left = panel::LEFT;
    for state in STATES.iter().filter(|_| key) {
        svg.add(Mark::rect((left, 2.0), (left + 12.0, 12.0)).class(state.class));
        svg.add(Mark::text((left + 17.0, 12.0), state.name).class("tick"));
        left += 84.0;
    }
    let mut area = panel::area(top, PANEL);
    for (index, (name, columns)) in seen.cpus.iter().enumerate() {
        area = panel::area(top + index as f64 * (PANEL + GAP), PANEL);
        stack(&mut svg, seen, &area, (&seen.name(name), columns));
    }
    tips(&mut svg, seen, (top, area.bottom));
    panel::foot(&mut svg, &area, &time_axis(seen));
    svg
}

fn time_axis(seen: &Seen) -> Axis {
    Axis::new(seen.time(), 8, "Time since the load began", panel::seconds)
}

/// The states of one processor.
fn stack(svg: &mut Svg, seen: &Seen, area: &Area, (name, columns): (&str, &[Option<Shares>])) {
    let scale = Scale::linear((0.0, 1.0), (area.bottom, area.top));
    for share in [0.5, 1.0] {
        let at = scale.at(share);
        svg.add(Mark::line((area.left, at), (area.right, at)).class("grid"));
    }
    svg.add(Mark::text((area.left - 7.0, area.top + 9.0), "100 %").class("tick end"));
    svg.add(Mark::text((area.left - 7.0, area.bottom), name).class("label end"));
    let mut states: Vec<Cells> = STATES.iter().map(|_| Cells::default()).collect();
    for (column, shares) in columns.iter().enumerate() {
        let Some(shares) = shares else { continue };
        let (left, right) = seen.edges(column);
        let mut below = 0.0;
        for (cells, share) in states.iter_mut().zip(shares) {
            let above = (below + share).min(1.0);
            if above - below > 0.002 {
                let gap = ((right - left) * 0.06).min(1.0);
                cells.add(1, (left, scale.at(above)), (right - gap, scale.at(below)));
            }
            below = above;
        }
    }
    for (state, cells) in STATES.iter().zip(&states) {
        cells.draw(svg, |_| state.class.to_owned());
    }
    panel::base(svg, area);
}

/// A row for each processor, the darker the busier.
fn rows(seen: &Seen, title: &str) -> Svg {
    let mean = |columns: &[Option<Shares>]| columns.iter().flatten().map(busy).sum::<f64>();
    let mut cpus: Vec<_> = seen.cpus.iter().collect();
    cpus.sort_by(|a, b| mean(b.1).total_cmp(&mean(a.1)));
    cpus.truncate(ROWS_MAX);
    cpus.sort_by_key(|(name, _)| *name);
    let area = panel::area(KEY + 6.0, cpus.len() as f64 * ROW);
    let text = format!("How busy each of {} processors was over time.", cpus.len());
    let mut svg = Svg::new(WIDTH, area.bottom + FOOT, title, &text);
    let labels = BOUNDS.map(|bound| words::tick(bound, "share"));
    panel::key(&mut svg, 0.0, "Share of the time that it was busy, from", &labels);
    let mut cells = Cells::default();
    for (index, (name, columns)) in cpus.iter().enumerate() {
        let top = area.top + index as f64 * ROW;
        if index % 2 == 0 {
            let at = (area.left - 7.0, top + ROW);
            svg.add(Mark::text(at, &seen.name(name)).class("tick end"));
        }
        for (column, shares) in columns.iter().enumerate() {
            let Some(shares) = shares else { continue };
            let (left, right) = seen.edges(column);
            let level = panel::level(busy(shares), &BOUNDS);
            cells.add(level, (left, top), (right - 0.5, top + ROW - 0.5));
        }
    }
    cells.draw(&mut svg, panel::heat);
    tips(&mut svg, seen, (area.top, area.bottom));
    panel::base(&mut svg, &area);
    panel::foot(&mut svg, &area, &time_axis(seen));
    svg
}

/// A tip for each column, with the busiest processors.
fn tips(svg: &mut Svg, seen: &Seen, (top, bottom): (f64, f64)) {
    for (column, time_s) in seen.times_s.iter().enumerate() {
        let mut cpus: Vec<(String, Shares)> = seen
            .cpus
            .iter()
            .filter_map(|(name, columns)| Some((seen.name(name), columns[column]?)))
            .collect();
        if cpus.is_empty() {
            continue;
        }
        cpus.sort_by(|a, b| busy(&b.1).total_cmp(&busy(&a.1)));
        let mut lines = vec![words::value(*time_s, "s")];
        lines.extend(cpus.iter().take(NAMED_MAX).map(|(name, shares)| said(name, shares)));
        let (left, right) = seen.edges(column);
        svg.add(panel::hit((left, top), (right, bottom), &lines.join("\n")));
    }
}

fn said(name: &str, shares: &Shares) -> String {
    let states: Vec<String> = STATES
        .iter()
        .zip(shares)
        .filter(|(_, share)| **share >= 0.005)
        .map(|(state, share)| format!("{} {:.0}", state.name, share * 100.0))
        .collect();
    format!("{name}: {:.0} % ({})", busy(shares) * 100.0, states.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::charts::markup;
    use crate::report::csv::parse;
    use crate::report::sample::{LOADS, NoRaw, SECONDS, SampleRaw, sample};

    fn samples(raw: &mut SampleRaw, change: impl Fn(&mut Vec<record::observed::Sample>)) {
        for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
            change(&mut run.observed[0].samples);
        }
    }

    #[test]
    fn each_arm_has_a_panel_for_each_processor() {
        let (experiment, raw) = sample();
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        let drawings = LOADS.len() * 2;
        assert_eq!(charts[0].parts.len(), drawings * 2);
        assert_eq!(text.matches("CPU 0</text>").count(), drawings);
        assert_eq!(text.matches("CPU 1</text>").count(), drawings);
        assert_eq!(text.matches("data-tip").count(), drawings * SECONDS as usize);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let rows = parse(&charts[0].figures.text());
        assert_eq!(rows.len() - 1, drawings * 2 * SECONDS as usize);
        assert_eq!(rows[1][8], "0.08");
    }

    #[test]
    fn many_processors_are_rows_and_bounded() {
        let (experiment, mut raw) = sample();
        samples(&mut raw, |all| {
            let one = all[1].clone();
            *all = (1..=600u32)
                .map(|second| {
                    let mut sample = one.clone();
                    sample.time_s = f64::from(second);
                    let cpu = sample.cpus[0];
                    sample.cpus = (0..200).map(|number| CpuUse { cpu: number, ..cpu }).collect();
                    sample
                })
                .collect();
            all[3].cpus[7].user = f64::NAN;
            all[5].time_s = f64::INFINITY;
        });
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        assert!(text.len() < 350_000, "{}", text.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert_eq!(charts[0].notes.len(), LOADS.len() * 2);
        assert!(text.contains("h8"));
    }

    #[test]
    fn nothing_is_nothing_and_nothing_seen_is_said() {
        let (mut experiment, mut raw) = sample();
        assert!(chart(&experiment, &NoRaw).is_empty());
        samples(&mut raw, |all| all.truncate(1));
        assert_eq!(
            markup(&chart(&experiment, &raw)[0]).matches("data-tip").count(),
            LOADS.len() * 2
        );
        samples(&mut raw, Vec::clear);
        assert!(matches!(chart(&experiment, &raw)[0].parts[..], [Part::Empty(_)]));
        experiment.trials.clear();
        assert!(chart(&experiment, &raw).is_empty());
    }
}
