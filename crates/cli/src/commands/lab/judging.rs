//! Turns an experiment's directory into a judgement and its reports. Connects the engine, the
//! judge, the scaling fit and the report; decides nothing of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lab::engine::experiment_dir::ExperimentDir;
use lab::engine::{Conclusions, JudgeInput};
use lab::experiment::{EnvironmentChecks, ExperimentFile, ExperimentOptions};
use lab::format::{tick, value};
use lab::judge::JudgeExtras;
use lab::report::{ReportPage, TrialRecords};
use lab::trial::metrics::METRICS;
use load::capacity_search::{KNEE_POINTS_MIN, SCALING_POINTS_MIN};
use record::capacity_search::{Estimate, Knee};
use record::experiment::{
    Arm, Experiment, ExperimentMetric, ExperimentPlan, LoadPlan, ScalingSummary, TrialSummary,
};
use record::file::write_atomically;
use record::problem::InputProblem;
use record::trial::ExperimentTrial;

use crate::exit::Failure;

/// File name of the report as a page; [`REPORT_MARKDOWN`] is the one for a pull request.
pub(super) const REPORT_HTML: &str = "report.html";
/// See [`REPORT_HTML`].
pub(super) const REPORT_MARKDOWN: &str = "report.md";
/// Maximum number of records that a text names.
const NAMES_SHOWN_MAX: usize = 6;
/// Metric whose knee is determined.
const P99_NS: &str = "p99_ns";

/// Returns all metrics.
pub(super) fn metrics() -> Vec<ExperimentMetric> {
    METRICS.iter().map(lab::trial::metrics::TrialMetric::metric).collect()
}

/// Parses an experiment's file.
pub(super) fn parse(
    name: &str,
    text: &str,
    options: &ExperimentOptions,
    around: Option<&EnvironmentChecks<'_>>,
) -> Result<ExperimentFile, Vec<InputProblem>> {
    ExperimentFile::parse_with_checks(name, text, options, &metrics(), around)
}

/// Parses the file of an experiment that was begun, with the options of that time.
pub(super) fn parse_stored(
    directory: &ExperimentDir,
    around: Option<&EnvironmentChecks<'_>>,
) -> Result<ExperimentFile, Vec<InputProblem>> {
    let plan = &directory.start().plan;
    // A file without a name in it was named after its file name.
    parse(&format!("{}.toml", plan.name), &plan.file, &ExperimentOptions::from_plan(plan), around)
}

/// Judges the trials; `file` is the experiment that they ran.
pub(super) fn judge(file: &ExperimentFile, case: JudgeInput<'_>) -> Conclusions {
    let extras = extras(file, &case);
    let judged = lab::judge::judge(case.plan, case.trials, &extras);
    Conclusions {
        scalings: fit_factors(case.plan, case.trials, &judged.generator_limited),
        cells: judged.cells,
        comparisons: judged.comparisons,
        warnings: judged.warnings,
        summary: judged.summary,
    }
}

fn extras(file: &ExperimentFile, case: &JudgeInput<'_>) -> JudgeExtras {
    JudgeExtras {
        environment_changes: case.changes.to_vec(),
        profiled: case.directory.profiled_trials(),
        in_flight: case.directory.in_flight_means(),
        counting_fractions: case.directory.counting_fractions(),
        closed_loads: closed_loads(file, case.plan),
        unavailable_metrics: unreported_metrics(file, case),
    }
}

/// Returns the metrics that trials never report, by what ran them.
fn unreported_metrics(
    file: &ExperimentFile,
    case: &JudgeInput<'_>,
) -> BTreeMap<(String, String, String), String> {
    let environment = &case.directory.start().environment;
    let mut unreported = BTreeMap::new();
    for (arm, load) in
        case.plan.arms.iter().flat_map(|arm| case.plan.loads.iter().map(move |load| (arm, load)))
    {
        let Some(setup) = file.setup(&arm.name, &load.name) else { continue };
        let program_output = environment.get(&format!("program {}", setup.tool.name()));
        for metric in &case.plan.metrics {
            let figure = lab::trial::metrics::find_metric(&metric.name);
            let why = figure
                .and_then(|figure| figure.unavailable_reason(setup, program_output.map(String::as_str)));
            let key = || (arm.name.clone(), load.name.clone(), metric.name.clone());
            unreported.extend(why.map(|why| (key(), why)));
        }
    }
    unreported
}

/// Returns the closed-loop loads.
fn closed_loads(file: &ExperimentFile, plan: &ExperimentPlan) -> BTreeSet<String> {
    let is_closed =
        |load: &&LoadPlan| file.setup(&plan.baseline, &load.name).is_some_and(|setup| !setup.has_rate());
    plan.loads.iter().filter(is_closed).map(|load| load.name.clone()).collect()
}

/// Arms under loads that the load generator limited.
type Limited = BTreeSet<(String, String)>;

/// Fits the growth of the primary metric along each factor with numeric levels: of the loads for
/// each arm, of the arms under each load.
fn fit_factors(plan: &ExperimentPlan, lines: &[TrialSummary], limited: &Limited) -> Vec<ScalingSummary> {
    // A throughput grows. The law does not cover the cost of each response.
    let Some(metric) = plan.primary().filter(|metric| metric.unit == "1/s") else {
        return Vec::new();
    };
    let arms = || plan.arms.iter().filter(|arm| arm.repeats.is_none());
    let mut fits = Vec::new();
    let of_loads = factors(plan.loads.iter().map(|load| &load.levels));
    for factor in &of_loads {
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
    let names: BTreeSet<&String> = levels.flat_map(BTreeMap::keys).collect();
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
        let level = lab::judge::parse_level(levels.get(factor)?)?;
        if levels_so_far.contains(&level) {
            return None;
        }
        levels_so_far.push(level);
        let of_it = |line: &&TrialSummary| {
            line.is_counted() && line.position.arm == *arm && line.position.load == *load
        };
        let of_it = lines.iter().filter(of_it);
        let median = |name: &str| {
            let values = of_it.clone().filter_map(|line| line.metrics.get(name).copied());
            lab::statistics::median(&values.collect::<Vec<f64>>()).map(|median| (level, median))
        };
        points.points.extend(median(&metric.name));
        points.p99_ns.extend(median(P99_NS));
        points.limited.extend(limited.contains(&(arm.clone(), load.clone())).then_some(level));
    }
    points.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points.limited.sort_by(f64::total_cmp);
    (points.points.len() > 1).then_some(points)
}

/// Fits the law to the measurements, and the knee to their latencies.
fn fit_factor(plan: &ExperimentPlan, points: &FactorPoints, factor: &str) -> ScalingSummary {
    let (measured, points_min) = (points.points.clone(), SCALING_POINTS_MIN.max(KNEE_POINTS_MIN));
    let mut line =
        ScalingSummary { factor: factor.to_owned(), points: measured, ..ScalingSummary::default() };
    let levels = line.points.len();
    if levels < points_min {
        line.text = format!("{levels} levels of {factor}; a scaling law and a knee need {points_min}.");
        return line;
    }
    let law = match load::capacity_search::fit_scaling(&line.points, plan.seed) {
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
        Err(why) => why,
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
    let knee = load::capacity_search::find_knee(&logs, seed).ok()?;
    let Estimate { value, low, high } = knee.level;
    Some(Knee { level: Estimate { value: value.exp(), low: low.exp(), high: high.exp() }, ..knee })
}

/// Lists the unreadable records of a directory, which are in no figure, with the reason.
pub(super) fn unreadable_note(directory: &ExperimentDir) -> Option<String> {
    let broken = directory.broken_files();
    let named = broken.iter().take(NAMES_SHOWN_MAX).map(|one| match one.problem.contains(&one.file) {
        true => one.problem.clone(),
        false => format!("{} ({})", one.file, one.problem),
    });
    let named: Vec<String> = named.collect();
    let more = match broken.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let what = if broken.len() == 1 { "this record" } else { "these records" };
    (!named.is_empty()).then(|| {
        format!(
            "{what} cannot be read and is excluded: {}{more}. weir lab run --resume {} moves it \
             aside and repeats the missing trials.",
            named.join("; "),
            directory.path().display()
        )
    })
}

/// The records of the trials, for the report.
#[derive(Debug)]
pub(super) struct Records<'a>(pub(super) &'a ExperimentDir);

impl TrialRecords for Records<'_> {
    fn trial(&self, file: &str) -> Option<ExperimentTrial> {
        self.0.trial(file).ok()
    }

    fn folded_stacks(&self, trial_file: &str) -> Option<String> {
        self.0.folded(trial_file)
    }
}

/// Writes both reports into the experiment's directory.
pub(super) fn write_reports(experiment: &Experiment, directory: &ExperimentDir) -> Result<(), Failure> {
    let raw = &Records(directory);
    write_page(&lab::report::html(experiment, raw), &directory.path().join(REPORT_HTML))?;
    let words = lab::report::markdown(experiment, raw);
    write_atomically(&directory.path().join(REPORT_MARKDOWN), words.as_bytes())?;
    Ok(())
}

/// Writes a page, and beside it the files that did not fit into it.
pub(super) fn write_page(page: &ReportPage, path: &Path) -> Result<(), Failure> {
    write_atomically(path, page.html.as_bytes())?;
    for file in &page.data_files {
        write_atomically(&path.with_file_name(&file.name), file.text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn data_that_exceeds_a_page_goes_to_a_file_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let beside = lab::report::DataFile { name: "a.heat-map.csv".to_owned(), text: "x\n".to_owned() };
        let page = ReportPage { html: "<html>".to_owned(), data_files: vec![beside] };
        write_page(&page, &directory.path().join("report.html")).unwrap();
        for (name, text) in [("report.html", "<html>"), ("a.heat-map.csv", "x\n")] {
            assert_eq!(std::fs::read_to_string(directory.path().join(name)).unwrap(), text);
        }
    }
}
