//! How the primary metric grows along a factor of numbers: what was measured with its intervals, the
//! Universal Scalability Law through it, and the best level (Gunther, "Guerrilla Capacity Planning",
//! 2007: X(N) = γN / (1 + α(N−1) + βN(N−1))). Not for fitting: that is done before.

use record::edge::Scaling;
use record::experiment::{Experiment, ScalingLine, Spread};

use super::panel::{self, FOOT, WIDTH};
use super::{Chart, Part, Series, series_of};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Area, Axis, Mark, Scale, Svg, extent};
use crate::words;

/// Drawings at most: factors under loads.
const DRAWINGS_MAX: usize = 6;
/// Lines in a drawing at most.
const LINES_MAX: usize = 8;
/// Points of a line that are drawn at most.
const POINTS_MAX: usize = 100;
/// Points of a curve.
const CURVE: usize = 60;
/// A curve goes on to this many times the most that was measured, dashed: beyond it nobody knows.
const BEYOND: f64 = 2.0;
const HEIGHT: f64 = 250.0;

/// The chart: a drawing for each factor under each load.
pub(in crate::report) fn chart(experiment: &Experiment, _raw: &dyn Raw) -> Vec<Chart> {
    let Some(metric) = experiment.plan.primary() else { return Vec::new() };
    if experiment.scalings.is_empty() {
        return Vec::new();
    }
    let caption = "Points are medians with their intervals; the line is the Universal Scalability Law \
                   through them, dashed where nothing was measured. A line that bends away from a \
                   straight one waits for something shared; one that falls pays for each pair. The \
                   upright line is the best level, and the dashed upright line the knee, from which on \
                   p99 grows faster; both have their intervals as bands.";
    let mut columns = vec!["factor", "load", "arm", "level", metric.name.as_str(), "low", "high"];
    columns.extend(["fitted", "knee", "knee_low", "knee_high"]);
    let mut chart = Chart::new("scaling", "How it scales", caption, Figures::new(&columns));
    let mut drawn: Vec<(&str, &str)> = Vec::new();
    let mut legend: Vec<Series> = Vec::new();
    for line in &experiment.scalings {
        note(&mut chart.figures, experiment, line);
        let key = (line.factor.as_str(), line.load.as_str());
        if drawn.contains(&key) {
            continue;
        }
        drawn.push(key);
        if drawn.len() > DRAWINGS_MAX {
            continue;
        }
        let same = experiment.scalings.iter().filter(|line| (&*line.factor, &*line.load) == key);
        let lines: Vec<&ScalingLine> = same.take(LINES_MAX).collect();
        let heading = match line.load.as_str() {
            "" => format!("Along {}", line.factor),
            load => format!("Along {}, under {load}", line.factor),
        };
        chart.parts.push(Part::Heading(heading));
        let has_points = lines.iter().any(|line| points(line).next().is_some());
        match has_points {
            true => chart.parts.push(Part::Drawing(drawing(experiment, &lines))),
            false => chart.parts.push(Part::Empty("Nothing was measured.".to_owned())),
        }
        for line in &lines {
            let series = series(experiment, line);
            if !line.arm.is_empty() && !legend.iter().any(|known| known.number == series) {
                legend.push(Series { number: series, name: line.arm.clone() });
            }
            chart.notes.extend((!line.text.is_empty()).then(|| line.said()));
        }
    }
    if drawn.len() > DRAWINGS_MAX {
        chart.notes.push(format!("{} more are in the figures.", drawn.len() - DRAWINGS_MAX));
    }
    vec![chart.legend(legend)]
}

fn series(experiment: &Experiment, line: &ScalingLine) -> usize {
    if line.arm.is_empty() { 0 } else { series_of(&experiment.plan, &line.arm) }
}

fn points(line: &ScalingLine) -> impl Iterator<Item = (f64, f64)> {
    let finite =
        |(level, value): &&(f64, f64)| level.is_finite() && value.is_finite() && *level >= 0.0;
    line.points.iter().filter(finite).take(POINTS_MAX).copied()
}

/// The interval of a point: that of the median, or else the quartiles.
fn interval(experiment: &Experiment, line: &ScalingLine, level: f64) -> Option<(f64, f64)> {
    let plan = &experiment.plan;
    let metric = &plan.primary()?.name;
    let at = |text: &String| crate::judge::level(text) == Some(level);
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
    let spread: &Spread = cell.metrics.get(metric)?;
    let (low, high) = spread.median_interval.unwrap_or((spread.p25, spread.p75));
    (low.is_finite() && high.is_finite()).then_some((low, high))
}

/// Throughput at a level, by the fitted law; absent where that is no number.
fn law(fit: &Scaling, level: f64) -> Option<f64> {
    let (alpha, beta, gamma) = (fit.alpha.value, fit.beta.value, fit.gamma_per_s.value);
    let slowed = 1.0 + alpha * (level - 1.0) + beta * level * (level - 1.0);
    let value = gamma * level / slowed;
    (slowed > 0.0 && value.is_finite()).then_some(value)
}

fn note(figures: &mut Figures, experiment: &Experiment, line: &ScalingLine) {
    for (level, value) in points(line) {
        let interval = interval(experiment, line, level);
        figures.row(vec![
            line.factor.clone(),
            line.load.clone(),
            line.arm.clone(),
            number(Some(level)),
            number(Some(value)),
            number(interval.map(|(low, _)| low)),
            number(interval.map(|(_, high)| high)),
            number(line.fit.as_ref().and_then(|fit| law(fit, level))),
            number(line.knee.map(|knee| knee.level.value)),
            number(line.knee.map(|knee| knee.level.low)),
            number(line.knee.map(|knee| knee.level.high)),
        ]);
    }
}

/// The most that was measured along a line.
fn measured_max(line: &ScalingLine) -> f64 {
    extent(points(line).map(|(level, _)| level)).map_or(1.0, |(_, most)| most)
}

/// The curve of a line up to twice the most that was measured.
fn curve(line: &ScalingLine) -> Vec<(f64, f64)> {
    let Some(fit) = &line.fit else { return Vec::new() };
    let end = measured_max(line) * BEYOND;
    let level = |index: usize| end * (index as f64 + 0.5) / CURVE as f64;
    let at = |level: f64| law(fit, level).map(|value| (level, value));
    (0..CURVE).map(level).filter_map(at).collect()
}

fn drawing(experiment: &Experiment, lines: &[&ScalingLine]) -> Svg {
    let area = panel::area(30.0, HEIGHT);
    let factor = lines.first().map_or("", |line| &line.factor);
    let text = format!("The primary metric along {factor}.");
    let mut svg = Svg::new(WIDTH, area.bottom + FOOT, "How it scales", &text);
    let curves: Vec<Vec<(f64, f64)>> = lines.iter().map(|line| curve(line)).collect();
    let levels = lines.iter().flat_map(|line| points(line)).chain(curves.iter().flatten().copied());
    let (_, end) = extent(levels.map(|(level, _)| level)).unwrap_or((0.0, 1.0));
    let measured = || lines.iter().flat_map(|line| points(line).map(move |point| (*line, point)));
    let highs = measured().flat_map(|(line, (level, value))| {
        [value, interval(experiment, line, level).map_or(value, |(_, high)| high)]
    });
    // A bad fit may go anywhere: the figures that were measured decide what is in sight.
    let most = extent(highs).map_or(1.0, |(_, most)| most) * 1.3;
    let fitted = curves.iter().flatten().map(|(_, value)| *value);
    let most = extent(fitted.filter(|value| *value <= most))
        .map_or(most, |(_, high)| high.max(most / 1.3));
    let x = Scale::from_zero(end, (area.left, area.right));
    let y = Scale::from_zero(most, (area.bottom, area.top));
    let (unit, title) = experiment
        .plan
        .primary()
        .map_or(("1", ""), |metric| (metric.unit.as_str(), metric.title.as_str()));
    panel::frame(&mut svg, &area, &Axis::of_unit(y, 5, title, unit));
    panel::foot(&mut svg, &area, &Axis::new(x, 8, factor, |value| words::tick(value, "1")));
    for (line, curve) in lines.iter().zip(&curves) {
        let series = series(experiment, line);
        upright(&mut svg, line, series, (x, &area));
        law_line(&mut svg, line, curve, (series, x, y));
        for (level, value) in points(line) {
            let interval = interval(experiment, line, level);
            point(&mut svg, (series, x, y, unit), (line, level, value), interval);
        }
    }
    svg
}

/// The fitted law: whole where it was measured, dashed beyond.
fn law_line(
    svg: &mut Svg,
    line: &ScalingLine,
    curve: &[(f64, f64)],
    (series, x, y): (usize, Scale, Scale),
) {
    let end = measured_max(line);
    let seen = |(level, value): &(f64, f64)| y.holds(*value).then(|| (x.at(*level), y.at(*value)));
    let (within, beyond): (Vec<_>, Vec<_>) =
        curve.iter().copied().partition(|(level, _)| *level <= end);
    let mut within: Vec<(f64, f64)> = within.iter().filter_map(seen).collect();
    let beyond: Vec<(f64, f64)> = beyond.iter().filter_map(seen).collect();
    // Both parts meet.
    within.extend(beyond.first());
    svg.add(Mark::polyline(&within).class("stroke").series(series));
    let beyond = Mark::polyline(&beyond).class("stroke thin").series(series);
    svg.add(beyond.with("stroke-dasharray", "5 4"));
}

/// The best level and the knee, each with its interval.
fn upright(svg: &mut Svg, line: &ScalingLine, series: usize, (x, area): (Scale, &Area)) {
    let best = line.fit.as_ref().and_then(|fit| fit.best_connections);
    let knee = line.knee.map(|knee| knee.level);
    let marks = [("best", best, None, 12.0), ("knee", knee, Some("3 3"), 26.0)];
    for (what, level, dashes, below) in marks {
        let Some(level) = level.filter(|level| x.holds(level.value)) else { continue };
        let (low, high) = (x.clamped(level.low), x.clamped(level.high));
        svg.add(Mark::rect((low, area.top), (high, area.bottom)).class("soft fill").series(series));
        let at = x.at(level.value);
        let [value, low, high] =
            [level.value, level.low, level.high].map(|level| words::value(level, "1"));
        let tip = format!("{} {what} {}: {value} ({low} to {high})", line.arm, line.factor);
        let mark = Mark::line((at, area.top), (at, area.bottom)).class("stroke thin");
        let mark = mark.series(series).tip(tip.trim());
        svg.add(match dashes {
            Some(dashes) => mark.with("stroke-dasharray", dashes),
            None => mark,
        });
        let label = Mark::text((at + 4.0, area.top + below), &format!("{what}: {value}"));
        svg.add(label.class("tick"));
    }
}

fn point(
    svg: &mut Svg,
    (series, x, y, unit): (usize, Scale, Scale, &str),
    (line, level, value): (&ScalingLine, f64, f64),
    interval: Option<(f64, f64)>,
) {
    let at = (x.at(level), y.at(value));
    let mut tip = format!("{} {level}: {}", line.factor, words::value(value, unit));
    if !line.arm.is_empty() {
        tip = format!("{}, {tip}", line.arm);
    }
    if let Some((low, high)) = interval {
        let ends = ((at.0, y.clamped(low)), (at.0, y.clamped(high)));
        svg.add(Mark::line(ends.0, ends.1).class("stroke").series(series));
        tip.push_str(&format!("\n{} to {}", words::value(low, unit), words::value(high, unit)));
    }
    svg.add(Mark::circle(at, 4.0).class("fill").series(series).tip(&tip));
}

#[cfg(test)]
mod tests {
    use record::edge::{Estimate, Knee};

    use super::*;
    use crate::report::charts::markup;
    use crate::report::csv::parse;
    use crate::report::sample::{NoRaw, sample};

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
    fn points_are_drawn_and_why_there_is_no_fit_is_said() {
        let (experiment, _) = sample();
        let charts = chart(&experiment, &NoRaw);
        let text = markup(&charts[0]);
        assert_eq!(text.matches("<circle").count(), 3);
        assert_eq!(charts[0].notes, ["glibc: three points are too few for a fit"]);
        let rows = parse(&charts[0].figures.text());
        assert_eq!(rows.len(), 4);
        assert_eq!(&rows[2][3..5], ["50", "31000"]);
        // The interval of the cell with this level, not one that is made up.
        assert!(rows[2][5].parse::<f64>().unwrap() < rows[2][6].parse::<f64>().unwrap());
        assert_eq!(rows[2][7], "");
    }

    #[test]
    fn the_law_goes_to_twice_the_measured_and_no_further() {
        let (mut experiment, _) = sample();
        experiment.scalings[0].fit = Some(fit());
        let curve = curve(&experiment.scalings[0]);
        assert!(curve.last().unwrap().0 <= 400.0 && curve.last().unwrap().0 > 380.0);
        assert!((law(&fit(), 1.0).unwrap() - 1000.0).abs() < 1e-9);
        let text = markup(&chart(&experiment, &NoRaw)[0]);
        assert!(text.contains("best: 97.5") && text.contains("stroke-dasharray"), "{text}");
        let rows = parse(&chart(&experiment, &NoRaw)[0].figures.text());
        assert!(rows[1][7].parse::<f64>().unwrap() > 0.0);
    }

    #[test]
    fn the_knee_stands_with_its_interval() {
        let (mut experiment, _) = sample();
        let level = Estimate { value: 40.0, low: 30.0, high: 60.0 };
        experiment.scalings[0].knee = Some(Knee { level, r_squared: 0.9, points: 6 });
        let chart = &chart(&experiment, &NoRaw)[0];
        let text = markup(chart);
        assert!(text.contains("knee: 40") && text.contains("(30"), "{text}");
        assert_eq!(parse(&chart.figures.text())[1][8..], ["40", "30", "60"]);
    }

    #[test]
    fn nothing_is_nothing_and_odd_figures_stay_finite() {
        let (mut experiment, _) = sample();
        let odd = Estimate { value: f64::NAN, low: f64::NEG_INFINITY, high: f64::INFINITY };
        let line = &mut experiment.scalings[0];
        line.fit = Some(Scaling { alpha: odd, best_connections: Some(odd), ..fit() });
        line.points = vec![(f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, 5.0)];
        let text = markup(&chart(&experiment, &NoRaw)[0]);
        assert_eq!(text.matches("<circle").count(), 1);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let line = experiment.scalings[0].clone();
        experiment.scalings = (0..1_000)
            .map(|index| ScalingLine {
                factor: index.to_string(),
                points: vec![(1.0, 2.0); 10_000],
                ..line.clone()
            })
            .collect();
        let charts = chart(&experiment, &NoRaw);
        assert!(markup(&charts[0]).len() < 150_000);
        experiment.scalings[0].points.clear();
        assert!(matches!(chart(&experiment, &NoRaw)[0].parts[1], Part::Empty(_)));
        experiment.scalings.clear();
        assert!(chart(&experiment, &NoRaw).is_empty());
    }
}
