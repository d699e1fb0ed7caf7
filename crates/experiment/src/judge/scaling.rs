//! Scaling along a factor: the law and the knee of the medians at its levels, and their summary in
//! words.

use std::collections::{BTreeMap, BTreeSet};

use record::capacity_search::{Estimate, Knee, Scaling};
use record::experiment::{Arm, ExperimentMetric, ExperimentPlan, ScalingSummary, TrialSummary};
use record::sorted::{CollectSorted, sort_by};
use stats::knee::{KNEE_POINTS_MIN, find_knee};
use stats::scalability::{SCALABILITY_POINTS_MIN, fit_scalability};

use super::ladder::parse_level;
use crate::format::{tick, value};

/// Metric whose knee is determined.
const P99_NS: &str = "p99_ns";

/// Arms under loads that the load generator limited.
type Limited = BTreeSet<(String, String)>;

/// Fits the growth of the primary metric along each factor with numeric levels: of the loads for
/// each arm, of the arms under each load.
pub(super) fn fit_factors(
    plan: &ExperimentPlan,
    lines: &[TrialSummary],
    limited: &Limited,
) -> Vec<ScalingSummary> {
    // A throughput grows. The law does not cover the cost of each response.
    let Some(metric) = plan.primary().filter(|metric| metric.unit == "1/s") else {
        return Vec::new();
    };
    let arms = || plan.arms.iter().filter(|arm| arm.repeats.is_none());
    let mut fits = Vec::new();
    let load_factors = factors(plan.loads.iter().map(|load| &load.levels));
    for factor in &load_factors {
        for arm in arms() {
            let levels = plan.loads.iter().map(|load| (&load.levels, &arm.name, &load.name));
            let Some(points) = points_along_factor(lines, metric, (factor, limited), levels) else {
                continue;
            };
            let line = fit_factor(plan, &points, factor);
            fits.push(ScalingSummary { arm: arm.name.clone(), ..line });
        }
    }
    for factor in factors(arms().map(|arm| &arm.levels)) {
        for load in &plan.loads {
            let levels = arms().map(|arm: &Arm| (&arm.levels, &arm.name, &load.name));
            let Some(points) = points_along_factor(lines, metric, (&factor, limited), levels) else {
                continue;
            };
            let line = fit_factor(plan, &points, &factor);
            fits.push(ScalingSummary { load: load.name.clone(), ..line });
        }
    }
    fits
}

type Levels = BTreeMap<String, String>;

fn factors<'a>(levels: impl Iterator<Item = &'a Levels>) -> Vec<String> {
    let names: BTreeSet<&String> = levels.flat_map(BTreeMap::keys).collect_set();
    names.into_iter().cloned().collect()
}

/// Measurements along one factor, by its levels.
#[derive(Debug, Default)]
struct FactorPoints {
    /// Medians of the primary metric.
    points: Vec<(f64, f64)>,
    /// Medians of the 99th percentile, in ns.
    p99_ns: Vec<(f64, f64)>,
    /// Levels that the load generator limited.
    limited: Vec<f64>,
}

/// Returns one factor with all others at one level. Absent if its levels are no numbers, or if
/// other factors vary too, which would give several points per level.
fn points_along_factor<'a>(
    lines: &[TrialSummary],
    metric: &ExperimentMetric,
    (factor, limited): (&str, &Limited),
    cells: impl Iterator<Item = (&'a Levels, &'a String, &'a String)>,
) -> Option<FactorPoints> {
    let mut levels_so_far: Vec<f64> = Vec::new();
    let mut points = FactorPoints::default();
    for (levels, arm, load) in cells {
        let level = parse_level(levels.get(factor)?)?;
        if levels_so_far.contains(&level) {
            return None;
        }
        levels_so_far.push(level);
        let counts_in_cell = |line: &&TrialSummary| {
            line.is_counted() && line.position.arm == *arm && line.position.load == *load
        };
        let cell_lines = lines.iter().filter(counts_in_cell);
        let median = |name: &str| {
            let values = cell_lines.clone().filter_map(|line| line.metrics.get(name).copied());
            stats::median(&values.collect::<Vec<f64>>()).map(|median| (level, median))
        };
        points.points.extend(median(&metric.name));
        points.p99_ns.extend(median(P99_NS));
        points.limited.extend(limited.contains(&(arm.clone(), load.clone())).then_some(level));
    }
    sort_by(&mut points.points, |left, right| left.0.total_cmp(&right.0));
    points.limited.sort_by(f64::total_cmp);
    (points.points.len() > 1).then_some(points)
}

/// Fits the law to the measurements, and the knee to their latencies.
fn fit_factor(plan: &ExperimentPlan, points: &FactorPoints, factor: &str) -> ScalingSummary {
    let (measured, points_min) = (points.points.clone(), SCALABILITY_POINTS_MIN.max(KNEE_POINTS_MIN));
    let mut line =
        ScalingSummary { factor: factor.to_owned(), points: measured, ..ScalingSummary::default() };
    let levels = line.points.len();
    if levels < points_min {
        line.text = format!(
            "{} of {factor}; a scaling law and a knee need {points_min}.",
            crate::format::count(levels, "level")
        );
        return line;
    }
    let law = match fit_scalability(&line.points, plan.seed).map(Scaling::from) {
        Ok(fit) => {
            let maximum_text = match &fit.best_connections {
                Some(best) => format!("peak at {factor} = {:.0}", best.value),
                None => "no peak in the measured range".to_owned(),
            };
            let text = format!(
                "Universal Scalability Law, if {factor} is the concurrency: contention {:.4}, coherency {:.6} \
                 (R² {:.3}); {maximum_text}",
                fit.alpha.value, fit.beta.value, fit.r_squared,
            );
            line.fit = Some(fit);
            text
        }
        Err(why) => format!("no scaling law: {why}"),
    };
    line.knee = fit_knee(&points.p99_ns, plan.seed);
    let knee_text = match line.knee.map(|knee| knee.level) {
        Some(level) => {
            let [at, low, high] = [level.value, level.low, level.high].map(|figure| value(figure, "1"));
            format!("The knee: p99 grows faster from {factor} {at} on ({low} to {high})")
        }
        None if points.p99_ns.is_empty() => String::new(),
        None => format!("No knee: p99 does not begin to grow faster along {factor}"),
    };
    let limit_text = (!points.limited.is_empty()).then(|| {
        let levels: Vec<String> = points.limited.iter().map(|level| tick(*level, "1")).collect();
        let levels = levels.join(", ");
        format!("The generator was the limit with {factor} {levels}: these figures are its own")
    });
    let all = [Some(law), Some(knee_text), limit_text];
    let all = all.into_iter().flatten().filter(|text| !text.is_empty());
    line.text = all.map(|text| format!("{text}.")).collect::<Vec<_>>().join(" ");
    line
}

/// Finds the level at which p99 begins to grow faster. It uses the logarithm of the level, because
/// ladders of connections or threads grow by factors. Once a closed loop is full, its latency grows
/// with its connections, and only there this is a line.
fn fit_knee(p99_ns: &[(f64, f64)], seed: u64) -> Option<Knee> {
    let logs: Vec<(f64, f64)> =
        p99_ns.iter().filter(|(level, _)| *level > 0.0).map(|(level, ns)| (level.ln(), *ns)).collect();
    let knee = Knee::from(find_knee(&logs, seed).ok()?);
    let Estimate { value, low, high } = knee.level;
    Some(Knee { level: Estimate { value: value.exp(), low: low.exp(), high: high.exp() }, ..knee })
}

#[cfg(test)]
mod tests {
    use record::experiment::LoadPlan;
    use record::trial::TrialPosition;

    use super::*;

    #[test]
    fn medians_along_a_factor_of_numbers_are_fitted() {
        let levels = ["1", "2", "4", "8", "16", "32", "64"];
        let load = |level: &str| LoadPlan {
            name: format!("c{level}"),
            levels: [("connections".to_owned(), level.to_owned())].into(),
            ..LoadPlan::default()
        };
        let plan = ExperimentPlan {
            baseline: "a".to_owned(),
            arms: vec![Arm { name: "a".to_owned(), ..Arm::default() }],
            loads: levels.iter().map(|level| load(level)).collect(),
            metrics: vec![ExperimentMetric {
                name: "responses_per_s".to_owned(),
                title: "responses per second".to_owned(),
                unit: "1/s".to_owned(),
                ..ExperimentMetric::default()
            }],
            ..ExperimentPlan::default()
        };
        let line = |level: &str| {
            let n: f64 = level.parse().unwrap();
            TrialSummary {
                position: TrialPosition {
                    block: 1,
                    arm: "a".to_owned(),
                    load: format!("c{level}"),
                    ..TrialPosition::default()
                },
                metrics: [
                    ("responses_per_s".to_owned(), 100.0 * n / (1.0 + 0.05 * (n - 1.0))),
                    (P99_NS.to_owned(), 1e6 * (n / 8.0).max(1.0)),
                ]
                .into(),
                ..TrialSummary::default()
            }
        };
        let lines: Vec<TrialSummary> = levels.iter().map(|level| line(level)).collect();
        let fits = fit_factors(&plan, &lines, &Limited::new());
        assert_eq!(fits.len(), 1, "{fits:?}");
        assert_eq!((fits[0].arm.as_str(), fits[0].points.len()), ("a", 7));
        assert!((fits[0].fit.as_ref().unwrap().alpha.value - 0.05).abs() < 1e-3, "{fits:?}");
        // Latencies are flat up to 8 connections, and grow with the connections from there on.
        let knee = fits[0].knee.unwrap().level;
        assert!((5.0..12.0).contains(&knee.value), "{knee:?}");
        assert!(knee.low <= knee.value && knee.value <= knee.high, "{knee:?}");
        let [at, low, high] = [knee.value, knee.low, knee.high].map(|figure| value(figure, "1"));
        assert!([at, low, high].iter().all(|figure| fits[0].text.contains(figure)), "{fits:?}");
        assert!(!fits[0].text.contains("connections 64"), "{fits:?}");
        let limited = [("a".to_owned(), "c64".to_owned())].into();
        let text = &fit_factors(&plan, &lines, &limited)[0].text;
        assert!(text.contains("connections 64"), "{text}");
        let few = ExperimentPlan { loads: plan.loads[..4].to_vec(), ..plan.clone() };
        let unfitted = &fit_factors(&few, &lines, &Limited::new())[0];
        assert!(unfitted.fit.is_none() && unfitted.knee.is_none(), "{unfitted:?}");
        assert!(["4 ", "connections", " 6"].iter().all(|part| unfitted.text.contains(part)), "{unfitted:?}");
        let mut words = plan.clone();
        words.loads[0].levels.insert("connections".to_owned(), "few".to_owned());
        assert!(fit_factors(&words, &lines, &Limited::new()).is_empty());
    }
}
