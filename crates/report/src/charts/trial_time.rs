//! Time within a trial, second by second: rate, latency and CPUs of a typical trial of each arm,
//! one above the other. [`super::timeline`] shows the trials one after the other.

use experiment::format;
use record::experiment::Experiment;

use super::ReportChart;
use crate::TrialRecords;
use crate::data::seconds::{TIME_FIGURES, TimeGrid};
use crate::data::trials::series_index;
use crate::data::typical::{LoadGroup, typical_trials};
use crate::data_table::DataTable;
use crate::plot::{Axis, Frame, Plot, Scale, Svg, extent};

/// Gap above a panel, and its height.
const PANEL: Frame = Frame::new(40.0, 78.0);

/// Builds the chart: a drawing for each load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let typical = typical_trials(experiment, raw);
    let caption = "The trial of each arm with the median of the primary metric. A line that is not level \
                   is not steady, or was disturbed; shaded seconds are not measured.";
    let data = DataTable::new("load arm trial time_s");
    let data = data.with_columns(TIME_FIGURES.iter().map(|figure| figure.column));
    let mut chart = ReportChart::new("over-time", "Inside a trial, per second", caption, data);
    for group in &typical.groups {
        let grid = TimeGrid::read(group);
        if grid.trials.iter().all(|(_, values)| values.is_empty()) {
            continue;
        }
        if grid.step_s > 1.0 {
            let text = format!("each point is {:.0} s; latencies are the max of its seconds.", grid.step_s);
            chart.notes.push(format!("{}: {text}", group.load));
        }
        grid.add_rows(&mut chart.data);
        grid.trials.iter().for_each(|(trial, _)| chart.add_series(&experiment.plan, trial.arm()));
        chart.load_heading(experiment, group.load);
        chart.draw(drawing(experiment, group, &grid));
    }
    let reason = "These trials have no figures per second: the driver reports none, and the machine was \
                  not observed.";
    chart.finish_trials(typical, reason)
}

fn drawing(experiment: &Experiment, group: &LoadGroup<'_>, grid: &TimeGrid<'_>) -> Svg {
    let text = format!("Lines over time under the load {}, one for each arm.", group.load);
    let mut svg = Svg::new("A typical trial of each arm", &text);
    let time = Axis::time(grid.longest_s());
    let mut panels: Vec<Plot> = Vec::new();
    for (index, figure) in TIME_FIGURES.iter().enumerate() {
        let lines = grid.trials.iter().map(|(trial, values)| (trial.arm(), grid.points(values, index)));
        let lines: Vec<(&str, Vec<(f64, f64)>)> = lines.collect();
        let values = lines.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| *value));
        let Some((_, max)) = extent(values) else { continue };
        let label = |value| format::tick(value, figure.unit);
        let values = Axis::new(Scale::from_zero(max), 3, figure.title, label);
        let plot = svg.plot(PANEL, time.scale, &values);
        for unmeasured in unmeasured_s(group, grid.longest_s()) {
            svg.add(plot.band(unmeasured).class("band"));
        }
        for (arm, points) in &lines {
            let series = series_index(&experiment.plan, arm);
            svg.add_series(&plot, points, series);
        }
        panels.push(plot);
    }
    svg.finish_columns(&panels, &time, grid.step_tips());
    svg
}

/// Returns the unmeasured time: before and after the window of the first record that has one.
fn unmeasured_s(group: &LoadGroup<'_>, end_s: f64) -> Vec<(f64, f64)> {
    let window = group.trials.iter().find_map(|trial| Some(&trial.trial.run.as_ref()?.window));
    let Some(window) = window.filter(|window| window.to_s > window.from_s) else { return Vec::new() };
    let outside = [(0.0, window.from_s), (window.to_s, end_s)];
    outside.into_iter().filter(|(from_s, to_s)| to_s - from_s > 0.05).collect()
}

#[cfg(test)]
mod tests {
    use record::run::Interval;

    use super::*;
    use crate::charts::{assert_no_data_no_chart, markup};
    use crate::data_table::parse;
    use crate::synthetic::{LOADS, SECONDS, SyntheticRecords, synthetic_experiment};

    #[test]
    fn each_load_has_a_drawing_with_a_line_for_each_arm_and_figure() {
        let (experiment, raw) = synthetic_experiment();
        let charts = chart(&experiment, &raw);
        let chart = &charts[0];
        assert_eq!(chart.parts.len(), 2 * LOADS.len(), "a heading and a drawing each");
        assert_eq!(chart.legend.len(), 2);
        let text = markup(chart);
        // Rate, p50, p99, subject, generator; the sample has no origin.
        assert_eq!(text.matches("<path").count(), LOADS.len() * 5 * 2);
        assert_eq!(text.matches("data-tip").count(), LOADS.len() * SECONDS as usize);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let rows = parse(&chart.data.to_csv());
        assert_eq!(rows.len() - 1, LOADS.len() * 2 * SECONDS as usize);
        let rate: f64 = rows[1][4].parse().unwrap();
        let file = format!("trials/{:04}", rows[1][2].parse::<u32>().unwrap());
        let trial = raw.trials.iter().find(|(name, _)| name.starts_with(&file)).unwrap().1;
        assert_eq!(rate, trial.run.as_ref().unwrap().intervals[0].responses as f64);
    }

    #[test]
    fn the_drain_is_not_drawn() {
        let (experiment, mut raw) = synthetic_experiment();
        for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
            let last = run.intervals.last().unwrap().clone();
            let (time_s, p50_ns) = (last.time_s + 0.4, last.p50_ns.map(|ns| 5 * ns));
            let drain = Interval { time_s, p50_ns, length_s: 0.4, measured: false, ..last };
            run.intervals.push(drain);
        }
        let rows = parse(&chart(&experiment, &raw)[0].data.to_csv());
        assert_eq!(rows.len() - 1, LOADS.len() * 2 * SECONDS as usize);
    }

    #[test]
    fn no_data_is_no_chart_and_missing_seconds_are_noted() {
        assert_no_data_no_chart(chart);
    }

    #[test]
    fn a_trial_of_an_hour_is_not_longer_than_one_of_seconds() {
        let (experiment, mut raw) = synthetic_experiment();
        let long = |raw: &mut SyntheticRecords| {
            for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
                let interval = run.intervals[1].clone();
                run.intervals =
                    (1..=3600).map(f64::from).map(|time_s| Interval { time_s, ..interval.clone() }).collect();
                run.intervals[7].length_s = f64::NAN;
                run.intervals[8].time_s = f64::INFINITY;
            }
        };
        long(&mut raw);
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        assert!(text.len() < 150_000, "{}", text.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert_eq!(charts[0].notes.len(), LOADS.len(), "{:?}", charts[0].notes);
    }
}
