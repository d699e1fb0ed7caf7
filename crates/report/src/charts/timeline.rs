//! Timeline of the experiment: every trial in order, with its primary metric and its disturbances.
//! [`super::trial_time`] shows the time within a trial.

use experiment::engine::discard::limit;
use experiment::format;
use record::experiment::{Experiment, ExperimentMetric, TrialSummary};

use super::{ReportChart, arms_legend};
use crate::TrialRecords;
use crate::data::covariates::{COVARIATES, CovariateFigure, block_starts, data_table, tip};
use crate::data::trials::{has_several_loads, series_index};
use crate::data::typical::primary_value;
use crate::plot::{Axis, Frame, LEFT, Plot, RIGHT, Scale, Shape, Svg, extent};

/// Maximum number of drawn trials; of more, every n-th is drawn.
const TRIALS_MAX: usize = 600;
const LOADS_MAX: usize = 8;
/// Gap above a panel and its height; the same of a covariate.
const PANEL: Frame = Frame::new(40.0, 104.0);
const COVARIATE_PANEL: Frame = Frame::new(40.0, 44.0);

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
    let mut chart = ReportChart::new("timeline", &title, caption, data_table(experiment, metric));
    let stride = experiment.trials.len().div_ceil(TRIALS_MAX);
    let lines: Vec<&TrialSummary> = experiment.trials.iter().step_by(stride).collect();
    let note = format!("One of {stride} trials is drawn; the data have more.");
    chart.notes.extend((stride > 1).then_some(note));
    let note = format!("Only the first {LOADS_MAX} loads are drawn.");
    chart.notes.extend((experiment.plan.loads.len() > LOADS_MAX).then_some(note));
    chart.draw(drawing(experiment, metric, &lines));
    vec![chart.legend(arms_legend(&experiment.plan))]
}

fn drawing(experiment: &Experiment, metric: &ExperimentMetric, lines: &[&TrialSummary]) -> Svg {
    let text = format!("Points for {}, a panel for each load.", format::count(lines.len(), "trial"));
    let mut svg = Svg::new(&metric.title, &text);
    let x = Scale::linear(-0.5, lines.len() as f64 - 0.5);
    let mut plots = Vec::new();
    for load in experiment.plan.loads.iter().take(LOADS_MAX) {
        plots.push(draw_points(&mut svg, experiment, (metric, lines, &load.name), x));
    }
    for figure in COVARIATES {
        plots.extend(draw_bars(&mut svg, figure, lines, (x, limit(&experiment.plan.discard, figure.name))));
    }
    let trial_width = (RIGHT - LEFT) / lines.len().max(1) as f64;
    let blocks = Axis::with_ticks(x, "Block, in run order", block_starts(lines, trial_width));
    svg.finish_columns(&plots, &blocks, std::iter::empty());
    svg
}

fn draw_points(
    svg: &mut Svg,
    experiment: &Experiment,
    (metric, lines, load): (&ExperimentMetric, &[&TrialSummary], &str),
    x: Scale,
) -> Plot {
    let own = || lines.iter().enumerate().filter(|(_, line)| line.position.load == load);
    let several = has_several_loads(&experiment.plan).then(|| format!("{load}: "));
    let title = format!("{}{}", several.unwrap_or_default(), metric.title);
    let y = match Scale::covering(own().filter_map(|(_, line)| primary_value(experiment, line))) {
        Some(values) => Axis::with_unit(values, 4, &title, &metric.unit),
        None => Axis::with_ticks(Scale::linear(0.0, 1.0), &title, []),
    };
    let plot = svg.plot(PANEL, x, &y);
    let trial_width = (RIGHT - LEFT) / lines.len() as f64;
    let half = (1.5 / trial_width).max(0.5);
    for (index, line) in own() {
        let at = index as f64;
        let value = primary_value(experiment, line);
        let tip = tip(metric, line, value);
        if line.discarded.is_some() || line.failed.is_some() {
            svg.add(plot.band((at - half, at + half)).class("band").tooltip(&tip));
        }
        let series = series_index(&experiment.plan, &line.position.arm);
        svg.add(match value {
            Some(value) => {
                let class = if line.is_counted() { "fill" } else { "stroke thin" };
                plot.dot((at, value), 3.0).class(class).series(series).tooltip(&tip)
            }
            None => plot.text_above(at, "×").class("bad middle").tooltip(&tip),
        });
    }
    plot
}

/// Draws a covariate over all trials, with its bound; nothing if it is zero in all of them.
fn draw_bars(
    svg: &mut Svg,
    figure: &CovariateFigure,
    lines: &[&TrialSummary],
    (x, bound): (Scale, Option<f64>),
) -> Option<Plot> {
    let values = figure.values(lines);
    let (_, max) = extent(values.iter().map(|(_, value)| *value)).filter(|(_, max)| *max > 0.0)?;
    let bound = bound.filter(|bound| bound.is_finite() && *bound > 0.0);
    let scale = Scale::from_zero(max.max(bound.unwrap_or(0.0)));
    let plot = svg.plot(COVARIATE_PANEL, x, &Axis::with_unit(scale, 2, figure.title, figure.unit));
    let bars = values.iter().map(|(at, value)| plot.cell((at - 0.4, at + 0.4), (0.0, *value)));
    svg.add(Shape::cells(&bars.collect::<Vec<_>>()).class("fill cn"));
    if let Some(bound) = bound {
        let tip = format!("a trial is discarded above {}", format::value(bound, figure.unit));
        let line = plot.horizontal(bound).class("axis").attribute("stroke-dasharray", "5 3");
        svg.add(line.tooltip(&tip));
    }
    Some(plot)
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
