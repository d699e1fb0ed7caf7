//! Measured levels of a numeric factor with their intervals, and the curve of the fitted law
//! (Gunther, "Guerrilla Capacity Planning", 2007: X(N) = γN / (1 + α(N−1) + βN(N−1))). The fit itself
//! is made elsewhere.

use experiment::judge::parse_level;
use record::capacity_search::Scaling;
use record::experiment::{Experiment, ScalingSummary};
use stats::scalability::EXTRAPOLATION_MAX;

use super::trials::series_index;
use crate::data_table::{DataTable, Datum, cells};
use crate::plot::extent;

const POINTS_MAX: usize = 100;
const CURVE_POINTS: u8 = 60;

/// A point of a line: level, value, and its interval.
pub(crate) type ScalingPoint = (f64, f64, Option<(f64, f64)>);

/// A line with its points, its curve and its series.
pub(crate) struct ScalingLine<'a> {
    pub(crate) line: &'a ScalingSummary,
    pub(crate) points: Vec<ScalingPoint>,
    pub(crate) measured_max: f64,
    /// Curve of the fitted law, up to twice the highest measured level.
    pub(crate) curve: Vec<(f64, f64)>,
    pub(crate) series: usize,
}

impl<'a> ScalingLine<'a> {
    pub(crate) fn read(experiment: &Experiment, line: &'a ScalingSummary) -> Self {
        let finite = |(level, value): &&(f64, f64)| level.is_finite() && value.is_finite() && *level >= 0.0;
        let points = line.points.iter().filter(finite).take(POINTS_MAX);
        let with_interval =
            |(level, value): &(f64, f64)| (*level, *value, interval(experiment, line, *level));
        let points: Vec<ScalingPoint> = points.map(with_interval).collect();
        let measured_max = extent(points.iter().map(|(level, ..)| *level)).map_or(1.0, |(_, max)| max);
        let curve = line.fit.as_ref().map(|fit| usl_curve(fit, measured_max * EXTRAPOLATION_MAX));
        let series = if line.arm.is_empty() { 0 } else { series_index(&experiment.plan, &line.arm) };
        Self { line, points, measured_max, curve: curve.unwrap_or_default(), series }
    }

    pub(crate) fn add_rows(&self, data: &mut DataTable) {
        let Self { line, .. } = self;
        let knee = line.knee.map(|knee| knee.level);
        let knee = [knee.map(|at| at.value), knee.map(|at| at.low), knee.map(|at| at.high)];
        for (level, value, interval) in &self.points {
            let (low, high) = interval.unzip();
            let fitted = line.fit.as_ref().and_then(|fit| usl_throughput(fit, *level));
            let mut row = cells(&[&line.factor, &line.load, &line.arm, level, value, &low, &high, &fitted]);
            row.extend(knee.iter().map(Datum::text));
            data.add_row(row);
        }
    }
}

/// Returns the interval of a point: that of the median, or else the quartiles.
fn interval(experiment: &Experiment, line: &ScalingSummary, level: f64) -> Option<(f64, f64)> {
    let plan = &experiment.plan;
    let at = |text: &String| parse_level(text) == Some(level);
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
    let spread = cell.metrics.get(&plan.primary()?.name)?;
    let (low, high) = spread.median_interval.unwrap_or((spread.p25, spread.p75));
    (low.is_finite() && high.is_finite()).then_some((low, high))
}

/// Returns the throughput at a level by the fitted law; `None` if it is not a number.
fn usl_throughput(fit: &Scaling, level: f64) -> Option<f64> {
    Some(fit.law().throughput(level)).filter(|value| value.is_finite() && *value >= 0.0)
}

fn usl_curve(fit: &Scaling, end: f64) -> Vec<(f64, f64)> {
    let levels = (0..CURVE_POINTS).map(|index| end * (f64::from(index) + 0.5) / f64::from(CURVE_POINTS));
    levels.filter_map(|level| Some((level, usl_throughput(fit, level)?))).collect()
}
