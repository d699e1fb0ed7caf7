//! Scaling of the primary metric along a numeric factor: measured values with their intervals, the
//! fitted Universal Scalability Law, and the best level (Gunther, "Guerrilla Capacity Planning",
//! 2007: X(N) = γN / (1 + α(N−1) + βN(N−1))). The fit itself is made elsewhere.

use experiment::format;
use record::capacity_search::Scaling;
use record::experiment::{Experiment, ScalingSummary, ValueDistribution};
use stats::scalability::EXTRAPOLATION_MAX;

use super::panel::{self, WIDTH, X_AXIS_HEIGHT};
use super::{ChartPart, LegendEntry, ReportChart, series_index};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Area, Axis, Scale, Shape, Svg, extent};

/// Maximum number of drawings: factors under loads.
const DRAWINGS_MAX: usize = 6;
/// Maximum number of lines in a drawing.
const LINES_MAX: usize = 8;
/// Maximum number of drawn points of a line.
const POINTS_MAX: usize = 100;
/// Number of points of a curve.
const CURVE_POINTS: usize = 60;
const HEIGHT: f64 = 250.0;

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
    let mut columns = vec!["factor", "load", "arm", "level", metric.name.as_str(), "low", "high"];
    columns.extend(["fitted", "knee", "knee_low", "knee_high"]);
    let mut chart = ReportChart::new("scaling", "Scaling", caption, DataTable::new(&columns));
    let mut drawn: Vec<(&str, &str)> = Vec::new();
    let mut legend: Vec<LegendEntry> = Vec::new();
    for line in &experiment.scalings {
        add_rows(&mut chart.data, experiment, line);
        let key = (line.factor.as_str(), line.load.as_str());
        if drawn.contains(&key) {
            continue;
        }
        drawn.push(key);
        if drawn.len() > DRAWINGS_MAX {
            continue;
        }
        let same = experiment.scalings.iter().filter(|line| (&*line.factor, &*line.load) == key);
        let lines: Vec<&ScalingSummary> = same.take(LINES_MAX).collect();
        let heading = match line.load.as_str() {
            "" => format!("By {}", line.factor),
            load => format!("By {}, under {load}", line.factor),
        };
        chart.parts.push(ChartPart::Heading(heading));
        let has_points = lines.iter().any(|line| points(line).next().is_some());
        match has_points {
            true => chart.parts.push(ChartPart::Drawing(drawing(experiment, &lines))),
            false => chart.parts.push(ChartPart::Empty("No measurements.".to_owned())),
        }
        for line in &lines {
            let series = series(experiment, line);
            if !line.arm.is_empty() && !legend.iter().any(|known| known.number == series) {
                legend.push(LegendEntry { number: series, name: line.arm.clone() });
            }
            chart.notes.extend((!line.text.is_empty()).then(|| line.labelled_text()));
        }
    }
    if drawn.len() > DRAWINGS_MAX {
        chart.notes.push(format!("{} more are in the data.", drawn.len() - DRAWINGS_MAX));
    }
    vec![chart.legend(legend)]
}

fn series(experiment: &Experiment, line: &ScalingSummary) -> usize {
    if line.arm.is_empty() { 0 } else { series_index(&experiment.plan, &line.arm) }
}

fn points(line: &ScalingSummary) -> impl Iterator<Item = (f64, f64)> {
    let finite = |(level, value): &&(f64, f64)| level.is_finite() && value.is_finite() && *level >= 0.0;
    line.points.iter().filter(finite).take(POINTS_MAX).copied()
}

/// Returns the interval of a point: that of the median, or else the quartiles.
fn interval(experiment: &Experiment, line: &ScalingSummary, level: f64) -> Option<(f64, f64)> {
    let plan = &experiment.plan;
    let metric = &plan.primary()?.name;
    let at = |text: &String| experiment::judge::parse_level(text) == Some(level);
    let cell = experiment.cells.iter().find(|cell| {
        let arm = match line.arm.as_str() {
            "" => plan.arm(&cell.arm).and_then(|arm| arm.levels.get(&line.factor)).is_some_and(at),
            arm => cell.arm == arm,
        };
        let load = match line.load.as_str() {
            "" => {
                let load = plan.loads.iter().find(|load| load.name == cell.load);
                load.and_then(|load| load.levels.get(&line.factor)).is_some_and(at)
            }
            load => cell.load == load,
        };
        arm && load
    })?;
    let spread: &ValueDistribution = cell.metrics.get(metric)?;
    let (low, high) = spread.median_interval.unwrap_or((spread.p25, spread.p75));
    (low.is_finite() && high.is_finite()).then_some((low, high))
}

/// Returns the throughput at a level by the fitted law; `None` if it is not a number.
fn usl_throughput(fit: &Scaling, level: f64) -> Option<f64> {
    Some(fit.law().throughput(level)).filter(|value| value.is_finite() && *value >= 0.0)
}

fn add_rows(data: &mut DataTable, experiment: &Experiment, line: &ScalingSummary) {
    for (level, value) in points(line) {
        let interval = interval(experiment, line, level);
        data.add_row(vec![
            line.factor.clone(),
            line.load.clone(),
            line.arm.clone(),
            number(Some(level)),
            number(Some(value)),
            number(interval.map(|(low, _)| low)),
            number(interval.map(|(_, high)| high)),
            number(line.fit.as_ref().and_then(|fit| usl_throughput(fit, level))),
            number(line.knee.map(|knee| knee.level.value)),
            number(line.knee.map(|knee| knee.level.low)),
            number(line.knee.map(|knee| knee.level.high)),
        ]);
    }
}

/// Returns the highest level that was measured along a line.
fn measured_max(line: &ScalingSummary) -> f64 {
    extent(points(line).map(|(level, _)| level)).map_or(1.0, |(_, max)| max)
}

/// Returns the curve of a line up to twice the highest measured level.
fn usl_curve(line: &ScalingSummary) -> Vec<(f64, f64)> {
    let Some(fit) = &line.fit else { return Vec::new() };
    let end = measured_max(line) * EXTRAPOLATION_MAX;
    let level = |index: usize| end * (index as f64 + 0.5) / CURVE_POINTS as f64;
    let at = |level: f64| usl_throughput(fit, level).map(|value| (level, value));
    (0..CURVE_POINTS).map(level).filter_map(at).collect()
}

fn drawing(experiment: &Experiment, lines: &[&ScalingSummary]) -> Svg {
    let area = panel::area(30.0, HEIGHT);
    let factor = lines.first().map_or("", |line| &line.factor);
    let text = format!("The primary metric by {factor}.");
    let mut svg = Svg::new(WIDTH, area.bottom + X_AXIS_HEIGHT, "Scaling", &text);
    let curves: Vec<Vec<(f64, f64)>> = lines.iter().map(|line| usl_curve(line)).collect();
    let levels = lines.iter().flat_map(|line| points(line)).chain(curves.iter().flatten().copied());
    let (_, end) = extent(levels.map(|(level, _)| level)).unwrap_or((0.0, 1.0));
    let measured = || lines.iter().flat_map(|line| points(line).map(move |point| (*line, point)));
    let highs = measured().flat_map(|(line, (level, value))| {
        [value, interval(experiment, line, level).map_or(value, |(_, high)| high)]
    });
    // A bad fit may go anywhere, so the measured figures determine the visible range.
    let max = extent(highs).map_or(1.0, |(_, max)| max) * 1.3;
    let fitted = curves.iter().flatten().map(|(_, value)| *value);
    let max = extent(fitted.filter(|value| *value <= max)).map_or(max, |(_, high)| high.max(max / 1.3));
    let x = Scale::from_zero(end, (area.left, area.right));
    let y = Scale::from_zero(max, (area.bottom, area.top));
    let (unit, title) =
        experiment.plan.primary().map_or(("1", ""), |metric| (metric.unit.as_str(), metric.title.as_str()));
    panel::draw_frame(&mut svg, &area, &Axis::with_unit(y, 5, title, unit));
    panel::draw_x_axis(&mut svg, &area, &Axis::new(x, 8, factor, |value| format::tick(value, "1")));
    for (line, curve) in lines.iter().zip(&curves) {
        let series = series(experiment, line);
        draw_best_level(&mut svg, line, series, (x, &area));
        draw_curve(&mut svg, line, curve, (series, x, y));
        for (level, value) in points(line) {
            let interval = interval(experiment, line, level);
            draw_point(&mut svg, (series, x, y, unit), (line, level, value), interval);
        }
    }
    svg
}

/// Draws the fitted law: solid in the measured range, dashed beyond.
fn draw_curve(
    svg: &mut Svg,
    line: &ScalingSummary,
    curve: &[(f64, f64)],
    (series, x, y): (usize, Scale, Scale),
) {
    let end = measured_max(line);
    let visible_point =
        |(level, value): &(f64, f64)| y.contains(*value).then(|| (x.position(*level), y.position(*value)));
    let (within, beyond): (Vec<_>, Vec<_>) = curve.iter().copied().partition(|(level, _)| *level <= end);
    let mut within: Vec<(f64, f64)> = within.iter().filter_map(visible_point).collect();
    let beyond: Vec<(f64, f64)> = beyond.iter().filter_map(visible_point).collect();
    // Both parts meet.
    within.extend(beyond.first());
    svg.add(Shape::polyline(&within).class("stroke").series(series));
    let beyond = Shape::polyline(&beyond).class("stroke thin").series(series);
    svg.add(beyond.attribute("stroke-dasharray", "5 4"));
}

/// Draws the best level and the knee, each with its interval.
fn draw_best_level(svg: &mut Svg, line: &ScalingSummary, series: usize, (x, area): (Scale, &Area)) {
    let best = line.fit.as_ref().and_then(|fit| fit.best_connections);
    let knee = line.knee.map(|knee| knee.level);
    let verticals = [("best", best, None, 12.0), ("knee", knee, Some("3 3"), 26.0)];
    for (name, level, dashes, below) in verticals {
        let Some(level) = level.filter(|level| x.contains(level.value)) else { continue };
        let (low, high) = (x.clamped(level.low), x.clamped(level.high));
        svg.add(Shape::rect((low, area.top), (high, area.bottom)).class("soft fill").series(series));
        let at = x.position(level.value);
        let [value, low, high] = [level.value, level.low, level.high].map(|level| format::value(level, "1"));
        let tip = format!("{} {name} {}: {value} ({low} to {high})", line.arm, line.factor);
        let line_shape = Shape::line((at, area.top), (at, area.bottom)).class("stroke thin");
        let line_shape = line_shape.series(series).tooltip(tip.trim());
        svg.add(match dashes {
            Some(dashes) => line_shape.attribute("stroke-dasharray", dashes),
            None => line_shape,
        });
        let label = Shape::text((at + 4.0, area.top + below), &format!("{name}: {value}"));
        svg.add(label.class("tick"));
    }
}

fn draw_point(
    svg: &mut Svg,
    (series, x, y, unit): (usize, Scale, Scale, &str),
    (line, level, value): (&ScalingSummary, f64, f64),
    interval: Option<(f64, f64)>,
) {
    let at = (x.position(level), y.position(value));
    let mut tip = format!("{} {level}: {}", line.factor, format::value(value, unit));
    if !line.arm.is_empty() {
        tip = format!("{}, {tip}", line.arm);
    }
    if let Some((low, high)) = interval {
        let ends = ((at.0, y.clamped(low)), (at.0, y.clamped(high)));
        svg.add(Shape::line(ends.0, ends.1).class("stroke").series(series));
        tip.push_str(&format!("\n{} to {}", format::value(low, unit), format::value(high, unit)));
    }
    svg.add(Shape::circle(at, 4.0).class("fill").series(series).tooltip(&tip));
}

#[cfg(test)]
mod tests {
    use record::capacity_search::{Estimate, Knee};

    use super::*;
    use crate::charts::markup;
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
        let curve = usl_curve(&experiment.scalings[0]);
        assert!(curve.last().unwrap().0 <= 400.0 && curve.last().unwrap().0 > 380.0);
        assert!((usl_throughput(&fit(), 1.0).unwrap() - 1000.0).abs() < 1e-9);
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
