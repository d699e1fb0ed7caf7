//! Timeline of the experiment: every trial in order, with its primary metric and its disturbances.
//! [`super::trial_time`] shows the time within a trial.

use experiment::engine::discard::limit;
use experiment::format;
use experiment::trial_counts::TrialStatus;
use record::experiment::{Experiment, ExperimentMetric, TrialSummary};
use record::trial::Covariates;

use super::panel::{self, LevelCells, RIGHT, WIDTH, X_AXIS_HEIGHT};
use super::typical_trials::primary_value;
use super::{ChartPart, ReportChart, arms_legend, has_several_loads, series_index};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Area, Axis, Scale, Shape, Svg, extent};

/// Maximum number of drawn trials; of more, every n-th is drawn.
const TRIALS_MAX: usize = 600;
/// Maximum number of drawn loads.
const LOADS_MAX: usize = 8;
/// Height of a panel and the gap above it.
const PANEL_HEIGHT: f64 = 104.0;
const PANEL_GAP: f64 = 40.0;
/// Height of a covariate's panel.
const COVARIATE_PANEL_HEIGHT: f64 = 44.0;

/// A covariate that is drawn if it was bounded.
struct CovariatePanel {
    /// Name in the plan's bounds.
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    read: fn(&Covariates) -> Option<f64>,
}

const COVARIATES: &[CovariatePanel] = &[
    CovariatePanel {
        name: "steal_fraction",
        title: "Steal",
        unit: "fraction",
        read: |covariates| covariates.steal_fraction,
    },
    CovariatePanel {
        name: "foreign_cpus",
        title: "CPUs used by other processes",
        unit: "cpus",
        read: |covariates| covariates.foreign_cpus,
    },
    CovariatePanel {
        name: "wake_up_p99_ns",
        title: "Wakeup latency (p99)",
        unit: "ns",
        read: |covariates| covariates.wake_up_p99_ns.map(|ns| ns as f64),
    },
    CovariatePanel {
        name: "generator_lag_p99_ns",
        title: "Generator lag (p99)",
        unit: "ns",
        read: |covariates| covariates.generator_lag_p99_ns.map(|ns| ns as f64),
    },
];

/// Builds the chart: a panel for each load, and one for each covariate.
pub(crate) fn chart(experiment: &Experiment, _raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let Some(metric) = experiment.plan.primary() else { return Vec::new() };
    if experiment.trials.is_empty() {
        return Vec::new();
    }
    let caption = "Each point is a trial, in run order. Points of one colour should stay level: a slope is \
                   drift of the machine. Shaded trials are not compared, with the reason in the tooltip; \
                   the grey bars below are disturbances.";
    let title = format!("Every trial in order: {}", metric.title);
    let columns = [
        "trial",
        "block",
        "attempt",
        "arm",
        "load",
        metric.name.as_str(),
        "counts",
        "left_out",
        "failed",
        "steal_fraction",
        "foreign_cpus",
        "wake_up_p99_ns",
        "generator_lag_p99_ns",
    ];
    let mut chart = ReportChart::new("timeline", &title, caption, DataTable::new(&columns));
    for line in &experiment.trials {
        chart.data.add_row(row(experiment, line));
    }
    let stride = experiment.trials.len().div_ceil(TRIALS_MAX);
    let lines: Vec<&TrialSummary> = experiment.trials.iter().step_by(stride).collect();
    if stride > 1 {
        chart.notes.push(format!("One of {stride} trials is drawn; the data have more."));
    }
    if experiment.plan.loads.len() > LOADS_MAX {
        chart.notes.push(format!("Only the first {LOADS_MAX} loads are drawn."));
    }
    chart.parts.push(ChartPart::Drawing(drawing(experiment, metric, &lines)));
    vec![chart.legend(arms_legend(&experiment.plan))]
}

fn row(experiment: &Experiment, line: &TrialSummary) -> Vec<String> {
    let position = &line.position;
    let mut cells = vec![
        position.number.to_string(),
        position.block.to_string(),
        position.attempt.to_string(),
        position.arm.clone(),
        position.load.clone(),
        number(primary_value(experiment, line)),
        line.is_counted().to_string(),
        line.discarded.as_ref().map_or_else(String::new, |why| why.text.clone()),
        line.failed.clone().unwrap_or_default(),
    ];
    cells.extend(COVARIATES.iter().map(|row| number((row.read)(&line.covariates))));
    cells
}

/// Horizontal positions of trials.
struct TrialAxis {
    scale: Scale,
    /// Half the width of a trial.
    half: f64,
}

impl TrialAxis {
    fn covering(lines: &[&TrialSummary]) -> Self {
        let count = lines.len().max(1) as f64;
        let scale = Scale::linear((-0.5, count - 0.5), (panel::LEFT, RIGHT));
        Self { scale, half: (RIGHT - panel::LEFT) / count / 2.0 }
    }

    fn x(&self, index: usize) -> f64 {
        self.scale.position(index as f64)
    }
}

fn drawing(experiment: &Experiment, metric: &ExperimentMetric, lines: &[&TrialSummary]) -> Svg {
    let loads: Vec<&str> =
        experiment.plan.loads.iter().map(|load| load.name.as_str()).take(LOADS_MAX).collect();
    let covariates: Vec<&CovariatePanel> = COVARIATES.iter().filter(|row| is_nonzero(row, lines)).collect();
    let height = loads.len() as f64 * (PANEL_HEIGHT + PANEL_GAP)
        + covariates.len() as f64 * (COVARIATE_PANEL_HEIGHT + PANEL_GAP)
        + X_AXIS_HEIGHT;
    let text = format!("Points for {}, a panel for each load.", format::count(lines.len(), "trial"));
    let mut svg = Svg::new(WIDTH, height, &metric.title, &text);
    let trial_axis = TrialAxis::covering(lines);
    let mut area = panel::area(PANEL_GAP, PANEL_HEIGHT);
    let mut top = PANEL_GAP;
    for load in loads {
        area = panel::area(top, PANEL_HEIGHT);
        let title = match has_several_loads(&experiment.plan) {
            true => format!("{load}: {}", metric.title),
            false => metric.title.clone(),
        };
        draw_points(&mut svg, experiment, (metric, lines, load), (&trial_axis, &area, &title));
        top += PANEL_HEIGHT + PANEL_GAP;
    }
    for row in covariates {
        area = panel::area(top, COVARIATE_PANEL_HEIGHT);
        let bound = limit(&experiment.plan.discard, row.name);
        draw_bars(&mut svg, row, lines, (&trial_axis, &area, bound));
        top += COVARIATE_PANEL_HEIGHT + PANEL_GAP;
    }
    panel::draw_x_axis(&mut svg, &area, &block_axis(&trial_axis, lines));
    svg
}

/// Returns an axis that names the blocks at their starts.
fn block_axis(trial_axis: &TrialAxis, lines: &[&TrialSummary]) -> Axis {
    let mut starts: Vec<(f64, String)> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let new = index == 0 || lines[index - 1].position.block != line.position.block;
        // One or two pilots need no name if the first block begins right after them.
        if new && starts.len() == 1 && lines[0].position.block == 0 {
            starts.retain(|(first, _)| *first > 0.0 || index as f64 * trial_axis.half > 24.0);
        }
        let far = starts.last().is_none_or(|(last, _)| (index as f64 - last) * trial_axis.half > 13.0);
        if new && far {
            let name = match line.position.block {
                0 => "pilots".to_owned(),
                block => block.to_string(),
            };
            starts.push((index as f64, name));
        }
    }
    Axis { scale: trial_axis.scale, ticks: starts, title: "Block, in run order".to_owned() }
}

/// Draws the trials of one load.
fn draw_points(
    svg: &mut Svg,
    experiment: &Experiment,
    (metric, lines, load): (&ExperimentMetric, &[&TrialSummary], &str),
    (order, area, title): (&TrialAxis, &Area, &str),
) {
    let primary_of = |line: &TrialSummary| line.position.load == load;
    let values =
        lines.iter().filter(|line| primary_of(line)).filter_map(|line| primary_value(experiment, line));
    let scale = Scale::covering(values, (area.bottom, area.top));
    if let Some(scale) = scale {
        panel::draw_frame(svg, area, &Axis::with_unit(scale, 4, title, &metric.unit));
    } else {
        svg.add(Shape::text((0.0, area.top - 13.0), title).class("label"));
        panel::draw_lower_line(svg, area);
    }
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| primary_of(line)) {
        let at = order.x(index);
        let value = primary_value(experiment, line);
        let tip = tip(metric, line, value);
        if line.discarded.is_some() || line.failed.is_some() {
            let half = order.half.max(1.5);
            let band = Shape::rect((at - half, area.top), (at + half, area.bottom));
            svg.add(band.class("band").tooltip(&tip));
        }
        let series = series_index(&experiment.plan, &line.position.arm);
        match value.zip(scale) {
            Some((value, scale)) => {
                let class = if line.is_counted() { "fill" } else { "stroke thin" };
                let point = Shape::circle((at, scale.position(value)), 3.0);
                svg.add(point.class(class).series(series).tooltip(&tip));
            }
            None => {
                let cross = Shape::text((at, area.bottom - 5.0), "×").class("bad middle");
                svg.add(cross.tooltip(&tip));
            }
        }
    }
}

fn tip(metric: &ExperimentMetric, line: &TrialSummary, value: Option<f64>) -> String {
    let position = &line.position;
    let status = match position.block {
        0 => "pilot".to_owned(),
        block if position.attempt > 1 => format!("block {block}, attempt {}", position.attempt),
        block => format!("block {block}"),
    };
    let mut text = format!("{}, {}, {status}, trial {}", position.arm, position.load, position.number);
    if let Some(value) = value {
        text.push_str(&format!("\n{}", format::value(value, &metric.unit)));
    }
    if let Some(why) = &line.discarded {
        text.push_str(&format!("\n{}: {}", TrialStatus::from_line(line).as_str(), why.text));
    }
    if let Some(why) = &line.failed {
        text.push_str(&format!("\nfailed: {}", crate::svg::shortened(why, 200)));
    }
    text
}

/// Returns whether a covariate is above zero in any trial.
fn is_nonzero(row: &CovariatePanel, lines: &[&TrialSummary]) -> bool {
    let values = lines.iter().filter_map(|line| (row.read)(&line.covariates));
    extent(values).is_some_and(|(_, max)| max > 0.0)
}

/// Draws a covariate over all trials, with its bound.
fn draw_bars(
    svg: &mut Svg,
    row: &CovariatePanel,
    lines: &[&TrialSummary],
    (order, area, bound): (&TrialAxis, &Area, Option<f64>),
) {
    let bound = bound.filter(|bound| bound.is_finite() && *bound > 0.0);
    let read = |line: &TrialSummary| (row.read)(&line.covariates).filter(|value| value.is_finite());
    let max = extent(lines.iter().filter_map(|line| read(line))).map_or(1.0, |(_, max)| max);
    let scale = Scale::from_zero(max.max(bound.unwrap_or(0.0)), (area.bottom, area.top));
    panel::draw_frame(svg, area, &Axis::with_unit(scale, 2, row.title, row.unit));
    let mut cells = LevelCells::default();
    let half = (order.half * 0.8).max(0.3);
    for (index, line) in lines.iter().enumerate() {
        if let Some(value) = read(line) {
            let at = order.x(index);
            cells.add(1, (at - half, scale.clamped(value)), (at + half, area.bottom));
        }
    }
    cells.draw(svg, |_| "fill cn".to_owned());
    if let Some(bound) = bound {
        let at = scale.position(bound);
        let line = Shape::line((area.left, at), (area.right, at)).class("axis");
        let tip = format!("a trial is discarded above {}", format::value(bound, row.unit));
        svg.add(line.attribute("stroke-dasharray", "5 3").tooltip(&tip));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::markup;
    use crate::data_table::parse;
    use crate::synthetic::{LOADS, NoRecords, synthetic_experiment};

    #[test]
    fn every_trial_is_a_point_or_a_cross_and_the_discarded_are_shaded() {
        let (experiment, raw) = synthetic_experiment();
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        let failed = experiment.trials.iter().filter(|line| line.failed.is_some()).count();
        let bad = experiment.trials.iter().filter(|l| l.failed.is_some() || l.discarded.is_some());
        assert!(failed > 0);
        assert_eq!(text.matches("<circle").count(), experiment.trials.len() - failed);
        assert_eq!(text.matches("×</text>").count(), failed);
        assert_eq!(text.matches("class=\"band\"").count(), bad.count());
        assert!(text.contains("took 6.1 %"));
        let rows = parse(&charts[0].data.to_csv());
        assert_eq!(rows.len() - 1, experiment.trials.len());
        let line = &experiment.trials[5];
        assert_eq!(rows[6][5].parse::<f64>().unwrap(), line.metrics["subject_us_per_response"]);
        for load in LOADS {
            assert!(text.contains(&format!(">{load}: ")));
        }
    }

    #[test]
    fn a_few_pilots_take_their_own_name_away_and_no_blocks() {
        let line = |block: u32| {
            let position = record::trial::TrialPosition { block, ..Default::default() };
            TrialSummary { position, ..TrialSummary::default() }
        };
        let blocks = |pilots: u32| -> Vec<TrialSummary> {
            (0..pilots).map(|_| 0).chain((1..=14).flat_map(|block| [block; 4])).map(line).collect()
        };
        let names = |pilots: u32| -> Vec<String> {
            let lines = blocks(pilots);
            let lines: Vec<&TrialSummary> = lines.iter().collect();
            let axis = block_axis(&TrialAxis::covering(&lines), &lines);
            axis.ticks.into_iter().map(|(_, name)| name).collect()
        };
        let all: Vec<String> = (1..=14).map(|block| block.to_string()).collect();
        assert_eq!(names(4), all);
        assert_eq!(names(30)[0], "pilots");
    }

    #[test]
    fn no_trials_are_no_chart() {
        let (mut experiment, _) = synthetic_experiment();
        experiment.trials.clear();
        assert!(chart(&experiment, &NoRecords).is_empty());
        let (mut experiment, _) = synthetic_experiment();
        experiment.plan.metrics.clear();
        assert!(chart(&experiment, &NoRecords).is_empty());
    }

    #[test]
    fn ten_thousand_trials_and_odd_figures_stay_bounded() {
        let (mut experiment, _) = synthetic_experiment();
        let some = experiment.trials.clone();
        experiment.trials = some.iter().cycle().take(10_000).cloned().collect();
        for (index, line) in experiment.trials.iter_mut().enumerate() {
            line.position.number = index as u32 + 1;
            let odd = [f64::NAN, f64::INFINITY, 1e300, -1.0];
            if index % 7 == 0 {
                line.metrics.insert("subject_us_per_response".to_owned(), odd[index / 7 % 4]);
            }
        }
        let charts = chart(&experiment, &NoRecords);
        let text = markup(&charts[0]);
        assert!(text.len() < 200_000, "{}", text.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert_eq!(charts[0].notes.len(), 1);
        experiment.trials.truncate(1);
        assert_eq!(chart(&experiment, &NoRecords).len(), 1);
    }
}
