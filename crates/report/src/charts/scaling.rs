//! Scaling of the primary metric along a numeric factor: measured values with their intervals, the
//! fitted Universal Scalability Law, and the best level.

use experiment::format;
use record::experiment::{Experiment, ExperimentMetric};

use super::ReportChart;
use crate::TrialRecords;
use crate::data::scalings::{ScalingLine, ScalingPoint};
use crate::data_table::DataTable;
use crate::plot::{Axis, Frame, Plot, Scale, Shape, Svg, extent};

/// Maximum number of drawings: factors under loads.
const DRAWINGS_MAX: usize = 6;
const LINES_MAX: usize = 8;
/// Room for the intervals and the curve above the highest measured value.
const HEADROOM: f64 = 1.3;

/// Builds the chart: a drawing for each factor under each load.
pub(crate) fn chart(experiment: &Experiment, _raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let Some(metric) = experiment.plan.primary() else { return Vec::new() };
    if experiment.scalings.is_empty() {
        return Vec::new();
    }
    let caption = "Points are medians with their intervals; the line is the fitted Universal Scalability \
                   Law, dashed beyond the measured range. A line that flattens shows contention; one \
                   that falls shows coherency cost. The vertical line is the best level, the dashed \
                   vertical line the knee, above which p99 grows faster; the bands are their intervals.";
    let data = DataTable::new("factor load arm level").with_columns([metric.name.as_str(), "low", "high"]);
    let data = data.with_columns(["fitted", "knee", "knee_low", "knee_high"]);
    let mut chart = ReportChart::new("scaling", "Scaling", caption, data);
    let mut groups: Vec<((&str, &str), Vec<ScalingLine<'_>>)> = Vec::new();
    for line in &experiment.scalings {
        let scaling_line = ScalingLine::read(experiment, line);
        scaling_line.add_rows(&mut chart.data);
        let key = (line.factor.as_str(), line.load.as_str());
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, lines)) => lines.push(scaling_line),
            None => groups.push((key, vec![scaling_line])),
        }
    }
    for ((factor, load), lines) in groups.iter().take(DRAWINGS_MAX) {
        let lines = &lines[..lines.len().min(LINES_MAX)];
        let under = if load.is_empty() { String::new() } else { format!(", under {load}") };
        chart.heading(format!("By {factor}{under}"));
        let has_points = lines.iter().any(|of| !of.points.is_empty());
        chart.draw_or(has_points.then(|| drawing(metric, factor, lines)), "No measurements.");
        for of in lines.iter().map(|of| of.line) {
            if !of.arm.is_empty() {
                chart.add_series(&experiment.plan, &of.arm);
            }
            chart.notes.extend((!of.text.is_empty()).then(|| of.labelled_text()));
        }
    }
    if groups.len() > DRAWINGS_MAX {
        chart.notes.push(format!("{} more are in the data.", groups.len() - DRAWINGS_MAX));
    }
    vec![chart]
}

fn drawing(metric: &ExperimentMetric, factor: &str, lines: &[ScalingLine<'_>]) -> Svg {
    let points = || lines.iter().flat_map(|of| &of.points);
    let curves = || lines.iter().flat_map(|of| of.curve.iter().copied());
    let levels = points().map(|(level, ..)| *level).chain(curves().map(|(level, _)| level));
    let end = extent(levels).map_or(1.0, |(_, end)| end);
    // A bad fit may go anywhere, so the measured figures determine the visible range.
    let highs = points().flat_map(|(_, value, interval)| [*value, interval.map_or(*value, |(_, high)| high)]);
    let high = extent(highs).map_or(1.0, |(_, max)| max);
    let fitted = curves().map(|(_, value)| value).filter(|value| *value <= high * HEADROOM);
    let max = extent(fitted).map_or(high * HEADROOM, |(_, max)| max.max(high));
    let x = Axis::new(Scale::from_zero(end), 8, factor, |value| format::tick(value, "1"));
    let y = Axis::with_unit(Scale::from_zero(max), 5, &metric.title, &metric.unit);
    let mut svg = Svg::new("Scaling", &format!("The primary metric by {factor}."));
    let plot = svg.plot(Frame::new(30.0, 250.0), x.scale, &y);
    svg.x_axis(&plot, &x);
    for of in lines {
        draw_levels(&mut svg, &plot, of);
        // The law is solid in the measured range and dashed beyond; both parts meet.
        let visible = of.curve.iter().copied().filter(|(_, value)| plot.y.contains(*value));
        let (mut within, beyond): (Vec<_>, Vec<_>) =
            visible.partition(|(level, _)| *level <= of.measured_max);
        within.extend(beyond.first());
        svg.add(plot.line(within).class("stroke").series(of.series));
        let beyond = plot.line(beyond).class("stroke thin").series(of.series);
        svg.add(beyond.attribute("stroke-dasharray", "5 4"));
        of.points.iter().for_each(|point| draw_point(&mut svg, &plot, of, point, &metric.unit));
    }
    svg
}

fn draw_levels(svg: &mut Svg, plot: &Plot, of: &ScalingLine<'_>) {
    let best = of.line.fit.as_ref().and_then(|fit| fit.best_connections);
    let knee = of.line.knee.map(|knee| knee.level);
    for (name, level, dashes, below) in [("best", best, "none", 12.0), ("knee", knee, "3 3", 26.0)] {
        let Some(level) = level.filter(|level| plot.x.contains(level.value)) else { continue };
        svg.add(plot.band((level.low, level.high)).class("soft fill").series(of.series));
        let [value, low, high] = [level.value, level.low, level.high].map(|level| format::value(level, "1"));
        let tip = format!("{} {name} {}: {value} ({low} to {high})", of.line.arm, of.line.factor);
        let line = plot.vertical(level.value).class("stroke thin").series(of.series);
        svg.add(line.attribute("stroke-dasharray", dashes).tooltip(tip.trim()));
        let at = (plot.at((level.value, f64::NAN)).0 + 4.0, plot.area.top + below);
        svg.add(Shape::text(at, &format!("{name}: {value}")).class("tick"));
    }
}

fn draw_point(svg: &mut Svg, plot: &Plot, of: &ScalingLine<'_>, point: &ScalingPoint, unit: &str) {
    let (level, value, interval) = point;
    let arm = if of.line.arm.is_empty() { String::new() } else { format!("{}, ", of.line.arm) };
    let mut tip = format!("{arm}{} {level}: {}", of.line.factor, format::value(*value, unit));
    if let Some((low, high)) = interval {
        svg.add(plot.segment((*level, *low), (*level, *high)).class("stroke").series(of.series));
        tip += &format!("\n{} to {}", format::value(*low, unit), format::value(*high, unit));
    }
    svg.add(plot.dot((*level, *value), 4.0).class("fill").series(of.series).tooltip(&tip));
}

#[cfg(test)]
mod tests {
    use record::capacity_search::{Estimate, Knee, Scaling};
    use record::experiment::ScalingSummary;

    use super::*;
    use crate::charts::{ChartPart, markup};
    use crate::data_table::parse;
    use crate::synthetic::{NoRecords, synthetic_experiment};

    fn fit() -> Scaling {
        let estimate = |value: f64| Estimate { value, low: value * 0.9, high: value * 1.1 };
        Scaling {
            alpha: estimate(0.05),
            beta: estimate(0.0001),
            gamma_per_s: estimate(1000.0),
            best_connections: Some(estimate(97.5)),
            best_per_s: Some(14_000.0),
            measured_max: 200,
            r_squared: 0.99,
            points: Vec::new(),
        }
    }

    #[test]
    fn points_are_drawn_and_a_missing_fit_is_explained() {
        let (experiment, _) = synthetic_experiment();
        let charts = chart(&experiment, &NoRecords);
        let text = markup(&charts[0]);
        assert_eq!(text.matches("<circle").count(), 3);
        assert_eq!(charts[0].notes, [format!("glibc: {}", experiment.scalings[0].text)]);
        let rows = parse(&charts[0].data.to_csv());
        assert_eq!(rows.len(), 4);
        assert_eq!(&rows[2][3..5], ["50", "31000"]);
        // The interval is that of the cell with this level, not a synthetic one.
        assert!(rows[2][5].parse::<f64>().unwrap() < rows[2][6].parse::<f64>().unwrap());
        assert_eq!(rows[2][7], "");
    }

    #[test]
    fn the_law_goes_to_twice_the_measured_and_no_further() {
        let (mut experiment, _) = synthetic_experiment();
        experiment.scalings[0].fit = Some(fit());
        let end = ScalingLine::read(&experiment, &experiment.scalings[0]).curve.last().unwrap().0;
        assert!(end <= 400.0 && end > 380.0, "{end}");
        let text = markup(&chart(&experiment, &NoRecords)[0]);
        assert!(text.contains("best: 97.5") && text.contains("stroke-dasharray"), "{text}");
        let rows = parse(&chart(&experiment, &NoRecords)[0].data.to_csv());
        assert!(rows[1][7].parse::<f64>().unwrap() > 0.0);
    }

    #[test]
    fn the_knee_is_drawn_with_its_interval() {
        let (mut experiment, _) = synthetic_experiment();
        let level = Estimate { value: 40.0, low: 30.0, high: 60.0 };
        experiment.scalings[0].knee = Some(Knee { level, r_squared: 0.9, points: 6 });
        let chart = &chart(&experiment, &NoRecords)[0];
        let text = markup(chart);
        assert!(text.contains("knee: 40") && text.contains("(30"), "{text}");
        assert_eq!(parse(&chart.data.to_csv())[1][8..], ["40", "30", "60"]);
    }

    #[test]
    fn nothing_is_nothing_and_odd_figures_stay_finite() {
        let (mut experiment, _) = synthetic_experiment();
        let odd = Estimate { value: f64::NAN, low: f64::NEG_INFINITY, high: f64::INFINITY };
        let line = &mut experiment.scalings[0];
        line.fit = Some(Scaling { alpha: odd, best_connections: Some(odd), ..fit() });
        line.points = vec![(f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, 5.0)];
        let text = markup(&chart(&experiment, &NoRecords)[0]);
        assert_eq!(text.matches("<circle").count(), 1);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let line = experiment.scalings[0].clone();
        experiment.scalings = (0..1_000)
            .map(|index| ScalingSummary {
                factor: index.to_string(),
                points: vec![(1.0, 2.0); 10_000],
                ..line.clone()
            })
            .collect();
        let charts = chart(&experiment, &NoRecords);
        assert!(markup(&charts[0]).len() < 150_000);
        experiment.scalings[0].points.clear();
        assert!(matches!(chart(&experiment, &NoRecords)[0].parts[1], ChartPart::Empty(_)));
        experiment.scalings.clear();
        assert!(chart(&experiment, &NoRecords).is_empty());
    }
}
