//! CPUs over time by state: user space, kernel, interrupts, steal; for the typical trial of each
//! arm. [`super::trial_time`] shows the CPU usage of processes.

use std::collections::BTreeMap;

use experiment::format;
use record::experiment::Experiment;
use record::observed::CpuUse;

use super::panel::{self, KEY_HEIGHT, LevelCells, RIGHT, WIDTH, X_AXIS_HEIGHT};
use super::typical_trials::{TypicalTrial, heading, typical_trials};
use super::{ChartPart, ReportChart};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Area, Axis, Scale, Shape, Svg};

/// Maximum number of columns of one trial; more seconds are merged.
const COLUMNS_MAX: usize = 60;
/// Maximum number of columns of all trials, each with its tip.
const COLUMNS_TOTAL_MAX: usize = 300;
/// Maximum number of cells of all trials: columns times drawn CPUs.
const CELLS_TOTAL_MAX: usize = 5_000;
/// Maximum number of CPUs that get a panel each with their states; more get a row each, by how busy
/// they are.
const PANELS_MAX: usize = 8;
/// Maximum number of CPUs with a row, the busiest first.
const ROWS_MAX: usize = 64;
/// Maximum number of CPUs that a tip names, the busiest first.
const NAMED_MAX: usize = 4;
/// Height of a panel and the gap above it; height of a row.
const PANEL_HEIGHT: f64 = 40.0;
const PANEL_GAP: f64 = 12.0;
const ROW_HEIGHT: f64 = 9.0;
/// Fractions of the time from which the colours of rows begin.
const LEVEL_FRACTIONS: [f64; panel::HEAT_LEVELS] = [0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97];

/// State of a CPU: its name, its class of the style sheet, and its fraction.
struct CpuState {
    name: &'static str,
    class: &'static str,
    read: fn(&CpuUse) -> f64,
}

/// States from bottom to top.
const CPU_STATES: &[CpuState] = &[
    CpuState { name: "user", class: "k-user", read: |cpu| cpu.user },
    CpuState { name: "system", class: "k-system", read: |cpu| cpu.system },
    CpuState { name: "softirq", class: "k-softirq", read: |cpu| cpu.softirq },
    CpuState { name: "irq", class: "k-irq", read: |cpu| cpu.irq },
    CpuState { name: "steal", class: "k-steal", read: |cpu| cpu.steal },
];

/// Fractions by state.
type StateFractions = [f64; CPU_STATES.len()];

/// CPUs of one trial.
struct CpuTimeline {
    /// End of each column.
    times_s: Vec<f64>,
    /// Fractions by machine and CPU number, then by column.
    cpus: BTreeMap<(String, u32), Vec<Option<StateFractions>>>,
}

/// Builds the chart: a drawing for each arm under each load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let trial_groups = typical_trials(experiment, raw);
    let trials: Vec<&TypicalTrial<'_>> = trial_groups.groups.iter().flat_map(|group| &group.trials).collect();
    if trials.is_empty() {
        return Vec::new();
    }
    let title = "CPUs over time";
    let caption = "CPU time by state in the typical trial of each arm. A saturated CPU is a limit, even if \
                   others are idle; softirq on one CPU only is a receive path that is not spread; \
                   steal is time that the hypervisor gave to other guests.";
    let columns =
        ["load", "arm", "trial", "host", "cpu", "time_s", "user", "system", "softirq", "irq", "steal"];
    let mut chart = ReportChart::new("cpus", title, caption, DataTable::new(&columns));
    let columns_max = columns_max(&trials);
    for one in trials {
        let timeline = cpu_timeline(one, columns_max);
        if timeline.cpus.is_empty() {
            continue;
        }
        add_rows(&mut chart.data, one, &timeline);
        let title = heading(experiment, one);
        // The colours are the same in all of them: one key is enough.
        let key = chart.parts.is_empty();
        chart.parts.push(ChartPart::Heading(title.clone()));
        let drawing = match timeline.cpus.len() <= PANELS_MAX {
            true => draw_panels(&timeline, &title, key),
            false => draw_rows(&timeline, &title),
        };
        chart.parts.push(ChartPart::Drawing(drawing));
        if timeline.cpus.len() > ROWS_MAX {
            chart.notes.push(format!("{title}: the {ROWS_MAX} busiest CPUs."));
        }
    }
    if chart.parts.is_empty() {
        let why = "The CPUs were not sampled during these trials.";
        return vec![ReportChart::empty("cpus", title, caption, why)];
    }
    chart.notes.extend(trial_groups.notes);
    vec![chart]
}

/// Returns the maximum number of columns of each trial that keeps all of them together small.
fn columns_max(trials: &[&TypicalTrial<'_>]) -> usize {
    let samples = trials.iter().flat_map(|one| one.observed()).flat_map(|observed| &observed.samples);
    let cpus = samples.map(|sample| sample.cpus.len()).max().unwrap_or(1).clamp(1, ROWS_MAX);
    // A panel has a cell for each state.
    let cells = if cpus <= PANELS_MAX { cpus * CPU_STATES.len() } else { cpus };
    let columns_by_cells = CELLS_TOTAL_MAX / (cells * trials.len());
    (COLUMNS_TOTAL_MAX / trials.len()).min(columns_by_cells).clamp(8, COLUMNS_MAX)
}

fn cpu_timeline(one: &TypicalTrial<'_>, columns_max: usize) -> CpuTimeline {
    let samples = || {
        let all = one.observed().flat_map(|observed| observed.samples.iter().map(move |s| (observed, s)));
        all.filter(|(_, sample)| sample.time_s > 0.0 && sample.time_s.is_finite())
    };
    let longest_s = samples().map(|(_, sample)| sample.time_s).fold(0.0, f64::max);
    let step_s = (longest_s / columns_max as f64).ceil().max(1.0);
    let count = ((longest_s / step_s).round() as usize).clamp(1, columns_max + 1);
    let times_s: Vec<f64> = (1..=count).map(|index| index as f64 * step_s).collect();
    let mut cpus: BTreeMap<(String, u32), Vec<Option<StateFractions>>> = BTreeMap::new();
    let mut weights: BTreeMap<(String, u32, usize), f64> = BTreeMap::new();
    for (machine, sample) in samples() {
        let column = ((sample.time_s / step_s).round() as usize).clamp(1, count) - 1;
        for cpu in &sample.cpus {
            let fractions: StateFractions = std::array::from_fn(|index| (CPU_STATES[index].read)(cpu));
            if fractions.iter().any(|fraction| !fraction.is_finite()) || !sample.length_s.is_finite() {
                continue;
            }
            let name = (machine.host.clone(), cpu.cpu);
            let weight = weights.entry((name.0.clone(), cpu.cpu, column)).or_default();
            let all = cpus.entry(name).or_insert_with(|| vec![None; count]);
            let length_s = sample.length_s.max(1e-6);
            let before = all[column].unwrap_or_default();
            let mean = |index: usize| {
                let fraction = fractions[index].clamp(0.0, 1.0);
                (before[index] * *weight + fraction * length_s) / (*weight + length_s)
            };
            all[column] = Some(std::array::from_fn(mean));
            *weight += length_s;
        }
    }
    CpuTimeline { times_s, cpus }
}

fn add_rows(data: &mut DataTable, one: &TypicalTrial<'_>, timeline: &CpuTimeline) {
    let position = &one.line.position;
    for ((host, cpu), columns) in &timeline.cpus {
        for (time_s, fractions) in timeline.times_s.iter().zip(columns) {
            let Some(fractions) = fractions else { continue };
            let mut cells = vec![
                position.load.clone(),
                position.arm.clone(),
                position.number.to_string(),
                host.clone(),
                cpu.to_string(),
                number(Some(*time_s)),
            ];
            cells.extend(fractions.iter().map(|fraction| panel::six_digits(*fraction)));
            data.add_row(cells);
        }
    }
}

impl CpuTimeline {
    fn step_s(&self) -> f64 {
        self.times_s.first().copied().unwrap_or(1.0)
    }

    fn time(&self) -> Scale {
        let longest_s = self.times_s.last().copied().unwrap_or(1.0);
        Scale::linear((0.0, longest_s), (panel::LEFT, RIGHT))
    }

    /// Returns the name of a CPU: its number, with its machine if there are several.
    fn name(&self, (host, cpu): &(String, u32)) -> String {
        let several = self.cpus.keys().any(|(other, _)| other != host);
        if several { format!("{host} {cpu}") } else { format!("CPU {cpu}") }
    }

    /// Returns both edges of a column.
    fn edges(&self, column: usize) -> (f64, f64) {
        let (time, end_s) = (self.time(), self.times_s[column]);
        (time.position(end_s - self.step_s()), time.position(end_s))
    }
}

fn busy_fraction(fractions: &StateFractions) -> f64 {
    fractions.iter().sum()
}

/// Draws a panel for each CPU, with its states stacked.
fn draw_panels(timeline: &CpuTimeline, title: &str, key: bool) -> Svg {
    let top = if key { 24.0 } else { 4.0 };
    let height = top + timeline.cpus.len() as f64 * (PANEL_HEIGHT + PANEL_GAP) + X_AXIS_HEIGHT;
    let text = format!("States of {} over time.", format::count(timeline.cpus.len(), "CPU"));
    let mut svg = Svg::new(WIDTH, height, title, &text);
    let mut left = panel::LEFT;
    for state in CPU_STATES.iter().filter(|_| key) {
        svg.add(Shape::rect((left, 2.0), (left + 12.0, 12.0)).class(state.class));
        svg.add(Shape::text((left + 17.0, 12.0), state.name).class("tick"));
        left += 84.0;
    }
    let mut area = panel::area(top, PANEL_HEIGHT);
    for (index, (name, columns)) in timeline.cpus.iter().enumerate() {
        area = panel::area(top + index as f64 * (PANEL_HEIGHT + PANEL_GAP), PANEL_HEIGHT);
        draw_stack(&mut svg, timeline, &area, (&timeline.name(name), columns));
    }
    add_tooltips(&mut svg, timeline, (top, area.bottom));
    panel::draw_x_axis(&mut svg, &area, &time_axis(timeline));
    svg
}

fn time_axis(timeline: &CpuTimeline) -> Axis {
    Axis::new(timeline.time(), 8, "Time since the start of the load", panel::seconds_text)
}

/// Draws the states of one CPU.
fn draw_stack(
    svg: &mut Svg,
    timeline: &CpuTimeline,
    area: &Area,
    (name, columns): (&str, &[Option<StateFractions>]),
) {
    let scale = Scale::linear((0.0, 1.0), (area.bottom, area.top));
    for fraction in [0.5, 1.0] {
        let at = scale.position(fraction);
        svg.add(Shape::line((area.left, at), (area.right, at)).class("grid"));
    }
    svg.add(Shape::text((area.left - 7.0, area.top + 9.0), "100 %").class("tick end"));
    svg.add(Shape::text((area.left - 7.0, area.bottom), name).class("label end"));
    let mut states: Vec<LevelCells> = CPU_STATES.iter().map(|_| LevelCells::default()).collect();
    for (column, fractions) in columns.iter().enumerate() {
        let Some(fractions) = fractions else { continue };
        let (left, right) = timeline.edges(column);
        let mut below = 0.0;
        for (cells, fraction) in states.iter_mut().zip(fractions) {
            let above = (below + fraction).min(1.0);
            if above - below > 0.002 {
                let gap = ((right - left) * 0.06).min(1.0);
                cells.add(1, (left, scale.position(above)), (right - gap, scale.position(below)));
            }
            below = above;
        }
    }
    for (state, cells) in CPU_STATES.iter().zip(&states) {
        cells.draw(svg, |_| state.class.to_owned());
    }
    panel::draw_lower_line(svg, area);
}

/// Draws a row for each CPU, darker if busier.
fn draw_rows(timeline: &CpuTimeline, title: &str) -> Svg {
    let mean = |columns: &[Option<StateFractions>]| columns.iter().flatten().map(busy_fraction).sum::<f64>();
    let mut cpus: Vec<_> = timeline.cpus.iter().collect();
    cpus.sort_by(|a, b| mean(b.1).total_cmp(&mean(a.1)));
    cpus.truncate(ROWS_MAX);
    cpus.sort_by_key(|(name, _)| *name);
    let area = panel::area(KEY_HEIGHT + 6.0, cpus.len() as f64 * ROW_HEIGHT);
    let text = format!("Utilization of {} over time.", format::count(cpus.len(), "CPU"));
    let mut svg = Svg::new(WIDTH, area.bottom + X_AXIS_HEIGHT, title, &text);
    let labels = LEVEL_FRACTIONS.map(|bound| format::tick(bound, "fraction"));
    panel::draw_key(&mut svg, 0.0, "Busy fraction, from", &labels);
    let mut cells = LevelCells::default();
    for (index, (name, columns)) in cpus.iter().enumerate() {
        let top = area.top + index as f64 * ROW_HEIGHT;
        if index % 2 == 0 {
            let at = (area.left - 7.0, top + ROW_HEIGHT);
            svg.add(Shape::text(at, &timeline.name(name)).class("tick end"));
        }
        for (column, fractions) in columns.iter().enumerate() {
            let Some(fractions) = fractions else { continue };
            let (left, right) = timeline.edges(column);
            let level = panel::level(busy_fraction(fractions), &LEVEL_FRACTIONS);
            cells.add(level, (left, top), (right - 0.5, top + ROW_HEIGHT - 0.5));
        }
    }
    cells.draw(&mut svg, panel::heat_class);
    add_tooltips(&mut svg, timeline, (area.top, area.bottom));
    panel::draw_lower_line(&mut svg, &area);
    panel::draw_x_axis(&mut svg, &area, &time_axis(timeline));
    svg
}

/// Adds a tip for each column, with the busiest CPUs.
fn add_tooltips(svg: &mut Svg, timeline: &CpuTimeline, (top, bottom): (f64, f64)) {
    for (column, time_s) in timeline.times_s.iter().enumerate() {
        let mut cpus: Vec<(String, StateFractions)> = timeline
            .cpus
            .iter()
            .filter_map(|(name, columns)| Some((timeline.name(name), columns[column]?)))
            .collect();
        if cpus.is_empty() {
            continue;
        }
        cpus.sort_by(|a, b| busy_fraction(&b.1).total_cmp(&busy_fraction(&a.1)));
        let mut lines = vec![format::value(*time_s, "s")];
        lines.extend(cpus.iter().take(NAMED_MAX).map(|(name, fractions)| state_text(name, fractions)));
        let (left, right) = timeline.edges(column);
        svg.add(panel::hover_area((left, top), (right, bottom), &lines.join("\n")));
    }
}

fn state_text(name: &str, fractions: &StateFractions) -> String {
    let states: Vec<String> = CPU_STATES
        .iter()
        .zip(fractions)
        .filter(|(_, fraction)| **fraction >= 0.005)
        .map(|(state, fraction)| format!("{} {:.0}", state.name, fraction * 100.0))
        .collect();
    format!("{name}: {:.0} % ({})", busy_fraction(fractions) * 100.0, states.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::markup;
    use crate::data_table::parse;
    use crate::synthetic::{LOADS, NoRecords, SECONDS, SyntheticRecords, synthetic_experiment};

    fn samples(raw: &mut SyntheticRecords, change: impl Fn(&mut Vec<record::observed::MachineSample>)) {
        for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
            change(&mut run.observed[0].samples);
        }
    }

    #[test]
    fn each_arm_has_a_panel_for_each_cpu() {
        let (experiment, raw) = synthetic_experiment();
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        let drawings = LOADS.len() * 2;
        assert_eq!(charts[0].parts.len(), drawings * 2);
        assert_eq!(text.matches("CPU 0</text>").count(), drawings);
        assert_eq!(text.matches("CPU 1</text>").count(), drawings);
        assert_eq!(text.matches("data-tip").count(), drawings * SECONDS as usize);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let rows = parse(&charts[0].data.to_csv());
        assert_eq!(rows.len() - 1, drawings * 2 * SECONDS as usize);
        assert_eq!(rows[1][8], "0.08");
    }

    #[test]
    fn many_cpus_are_rows_and_bounded() {
        let (experiment, mut raw) = synthetic_experiment();
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
    fn no_data_is_no_chart_and_missing_samples_are_noted() {
        let (mut experiment, mut raw) = synthetic_experiment();
        assert!(chart(&experiment, &NoRecords).is_empty());
        samples(&mut raw, |all| all.truncate(1));
        assert_eq!(markup(&chart(&experiment, &raw)[0]).matches("data-tip").count(), LOADS.len() * 2);
        samples(&mut raw, Vec::clear);
        assert!(matches!(chart(&experiment, &raw)[0].parts[..], [ChartPart::Empty(_)]));
        experiment.trials.clear();
        assert!(chart(&experiment, &raw).is_empty());
    }
}
