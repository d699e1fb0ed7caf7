//! CPUs over time by state: user space, kernel, interrupts, steal; for the typical trial of each
//! arm. [`super::trial_time`] shows the CPU usage of processes.

use experiment::format;
use record::experiment::Experiment;

use super::ReportChart;
use crate::TrialRecords;
use crate::data::cpus::{CPU_STATES, CpuTimeline, PANELS_MAX, ROWS_MAX, busy_fraction, columns_max};
use crate::data::typical::typical_trials;
use crate::data_table::DataTable;
use crate::plot::{Axis, Frame, HEAT_LEVELS, HeatCells, LEFT, Plot, Scale, Shape, Svg, level};

/// Maximum number of CPUs that a tip names, the busiest first.
const NAMED_MAX: usize = 4;
/// Height of a panel and the gap above it; height of a row.
const PANEL: Frame = Frame::new(12.0, 40.0);
const ROW_HEIGHT: f64 = 9.0;
/// Fractions of the time from which the colours of rows begin.
const LEVEL_FRACTIONS: [f64; HEAT_LEVELS] = [0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97];

/// Builds the chart: a drawing for each arm under each load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let typical = typical_trials(experiment, raw);
    let columns_max = columns_max(&typical.trials());
    let caption = "CPU time by state in the typical trial of each arm. A saturated CPU is a limit, even if \
                   others are idle; softirq on one CPU only is a receive path that is not spread; \
                   steal is time that the hypervisor gave to other guests.";
    let data = DataTable::new("load arm trial host cpu time_s user system softirq irq steal");
    let mut chart = ReportChart::new("cpus", "CPUs over time", caption, data);
    chart.draw_trials(experiment, &typical, |chart, trial, title| {
        let timeline = CpuTimeline::read(trial, columns_max);
        timeline.add_rows(&mut chart.data, trial);
        if timeline.cpu_count() > ROWS_MAX {
            chart.notes.push(format!("{title}: the {ROWS_MAX} busiest CPUs."));
        }
        match timeline.cpu_count() {
            0 => None,
            // The colours are the same in all of them: one key is enough.
            1..=PANELS_MAX => Some(draw_panels(&timeline, title, chart.parts.is_empty())),
            _ => Some(draw_rows(&timeline, title)),
        }
    });
    chart.finish_trials(typical, "The CPUs were not sampled during these trials.")
}

fn draw_panels(timeline: &CpuTimeline, title: &str, with_key: bool) -> Svg {
    let count = format::count(timeline.cpu_count(), "CPU");
    let mut svg = Svg::new(title, &format!("States of {count} over time."));
    if with_key {
        svg.key(CPU_STATES.iter().map(|state| (state.class, state.name)));
    }
    let time = Axis::time(timeline.end_s(timeline.columns - 1));
    let fractions = [(0.5, String::new()), (1.0, "100 %".to_owned())];
    let busy = Axis::with_ticks(Scale::linear(0.0, 1.0), "", fractions);
    let mut panels: Vec<Plot> = Vec::new();
    for (name, columns) in timeline.named() {
        let plot = svg.plot(PANEL, time.scale, &busy);
        svg.add(Shape::text((LEFT - 7.0, plot.area.bottom), &name).class("label end"));
        let mut states = [const { Vec::new() }; CPU_STATES.len()];
        for (column, fractions) in columns.iter().enumerate() {
            let mut below = 0.0;
            for (cells, fraction) in states.iter_mut().zip(fractions.iter().flatten()) {
                let above = (below + fraction).min(1.0);
                if above - below > 0.002 {
                    let cell = plot.cell(timeline.edges_s(column), (below, above));
                    cells.push(cell.with_gap(((cell.right - cell.left) * 0.06).min(1.0)));
                }
                below = above;
            }
        }
        for (state, cells) in CPU_STATES.iter().zip(&states) {
            svg.add(Shape::cells(cells).class(state.class));
        }
        panels.push(plot);
    }
    svg.finish_columns(&panels, &time, timeline.column_tips(NAMED_MAX));
    svg
}

/// Draws a row for each CPU, darker if busier.
fn draw_rows(timeline: &CpuTimeline, title: &str) -> Svg {
    let cpus = timeline.busiest(ROWS_MAX);
    let mut svg = Svg::new(title, &format!("Utilization of {} over time.", format::count(cpus.len(), "CPU")));
    svg.heat_key("Busy fraction, from", &LEVEL_FRACTIONS.map(|bound| format::tick(bound, "fraction")));
    let time = Axis::time(timeline.end_s(timeline.columns - 1));
    let plot = svg.rows(Frame::new(6.0, cpus.len() as f64 * ROW_HEIGHT), time.scale, cpus.len());
    let mut heat = HeatCells::default();
    for (row, (name, columns)) in cpus.iter().enumerate() {
        if row % 2 == 0 {
            svg.name_row(&plot, row, name, "tick");
        }
        for (column, fractions) in columns.iter().enumerate() {
            let Some(fractions) = fractions else { continue };
            let y = (row as f64, row as f64 + 1.0 - 0.5 / ROW_HEIGHT);
            let cell = plot.cell(timeline.edges_s(column), y).with_gap(0.5);
            heat.add(level(busy_fraction(fractions), &LEVEL_FRACTIONS), cell);
        }
    }
    heat.draw(&mut svg);
    svg.add_lower_line(&plot);
    svg.finish_columns(&[plot], &time, timeline.column_tips(NAMED_MAX));
    svg
}

#[cfg(test)]
mod tests {
    use record::observed::CpuUse;

    use super::*;
    use crate::charts::{ChartPart, markup};
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
            let base_sample = all[1].clone();
            *all = (1..=600u32)
                .map(|second| {
                    let mut sample = base_sample.clone();
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
