//! An experiment's folder to a judgement and to its reports: what the engine, the judge, the fit of scaling
//! and the report need of each other. Decides nothing of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lab::engine::folder::Folder;
use lab::engine::{Case, Judged};
use lab::experiment::{Asked, File};
use lab::judge::Extras;
use lab::report::Raw;
use lab::trial::metrics::METRICS;
use record::experiment::{Arm, Experiment, LoadPlan, Metric, Plan, ScalingLine, TrialLine};
use record::file::write_whole;
use record::problem::Problem;
use record::trial::Trial;

use crate::exit::Failure;

/// The report, as a page and for a pull request.
pub(super) const REPORT_HTML: &str = "report.html";
/// See [`REPORT_HTML`].
pub(super) const REPORT_MARKDOWN: &str = "report.md";

/// All that can be measured.
pub(super) fn metrics() -> Vec<Metric> {
    METRICS.iter().map(lab::trial::metrics::Figure::metric).collect()
}

/// Reads an experiment's file.
pub(super) fn parse(name: &str, text: &str, asked: &Asked) -> Result<File, Vec<Problem>> {
    File::parse_with(name, text, asked, &metrics())
}

/// The file of an experiment that was begun, as it was asked for then.
pub(super) fn parse_again(folder: &Folder) -> Result<File, Vec<Problem>> {
    let plan = &folder.start().plan;
    // A file without a name of its own has been called by its file's.
    parse(&format!("{}.toml", plan.name), &plan.file, &Asked::again(plan))
}

/// What the trials say; `file` is what they ran.
pub(super) fn judge(file: &File, case: Case<'_>) -> Judged {
    let extras = extras(file, &case);
    let judged = lab::judge::judge(case.plan, case.lines, &extras);
    let scalings = scalings(case.plan, case.lines);
    let mut summary = judged.summary;
    if let (Some(first), Some(ladder)) =
        (summary.first_mut(), lab::judge::ladder(case.plan, &scalings))
    {
        *first = ladder;
    }
    Judged {
        cells: judged.cells,
        comparisons: judged.comparisons,
        warnings: judged.warnings,
        scalings,
        summary,
    }
}

fn extras(file: &File, case: &Case<'_>) -> Extras {
    Extras {
        environment_changes: case.changes.to_vec(),
        profiled: case.folder.profiled(),
        in_flight: case.folder.in_flight(),
        counting_shares: case.folder.counting_shares(),
        closed_loads: closed_loads(file, case.plan),
    }
}

/// The loads that go as fast as answers come.
fn closed_loads(file: &File, plan: &Plan) -> BTreeSet<String> {
    let is_closed = |load: &&LoadPlan| {
        file.setup(&plan.baseline, &load.name).is_some_and(|setup| !setup.has_rate())
    };
    plan.loads.iter().filter(is_closed).map(|load| load.name.clone()).collect()
}

/// How the primary metric grows along each factor whose levels are numbers: of the loads for each arm, of
/// the arms under each load.
fn scalings(plan: &Plan, lines: &[TrialLine]) -> Vec<ScalingLine> {
    // A throughput grows; the law says nothing of what each response costs.
    let Some(metric) = plan.primary().filter(|metric| metric.unit == "1/s") else {
        return Vec::new();
    };
    let own = || plan.arms.iter().filter(|arm| arm.again.is_none());
    let mut found = Vec::new();
    let of_loads = factors(plan.loads.iter().map(|load| &load.levels));
    for factor in &of_loads {
        for arm in own() {
            let levels = plan.loads.iter().map(|load| (&load.levels, &arm.name, &load.name));
            let line = scaling(plan, lines, metric, factor, levels);
            found.extend(line.map(|line| ScalingLine { arm: arm.name.clone(), ..line }));
        }
    }
    for factor in factors(own().map(|arm| &arm.levels)) {
        for load in &plan.loads {
            let levels = own().map(|arm: &Arm| (&arm.levels, &arm.name, &load.name));
            let line = scaling(plan, lines, metric, &factor, levels);
            found.extend(line.map(|line| ScalingLine { load: load.name.clone(), ..line }));
        }
    }
    found
}

type Levels = BTreeMap<String, String>;

fn factors<'a>(levels: impl Iterator<Item = &'a Levels>) -> Vec<String> {
    let names: BTreeSet<&String> = levels.flat_map(BTreeMap::keys).collect();
    names.into_iter().cloned().collect()
}

/// One factor with all others at one level; absent where its levels are no numbers, or where others change
/// too, so that there would be several points to a level.
fn scaling<'a>(
    plan: &Plan,
    lines: &[TrialLine],
    metric: &Metric,
    factor: &str,
    levels: impl Iterator<Item = (&'a Levels, &'a String, &'a String)>,
) -> Option<ScalingLine> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (levels, arm, load) in levels {
        let level: f64 = levels.get(factor)?.parse().ok()?;
        if points.iter().any(|(known, _)| *known == level) {
            return None;
        }
        let of_it = lines
            .iter()
            .filter(|line| line.counts() && line.place.arm == *arm && line.place.load == *load);
        let values: Vec<f64> =
            of_it.filter_map(|line| line.metrics.get(&metric.name).copied()).collect();
        points.extend(lab::statistics::median(&values).map(|median| (level, median)));
    }
    if points.len() < 2 {
        return None;
    }
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let least = load::edge::SCALING_POINTS_MIN;
    if points.len() < least {
        let text = format!("{} levels of {factor}; a law of scaling takes {least}", points.len());
        return Some(ScalingLine {
            factor: factor.to_owned(),
            points,
            text,
            ..ScalingLine::default()
        });
    }
    let fit = load::edge::scaling(&points, plan.seed);
    let text = match &fit {
        Ok(fit) => format!(
            "if {factor} is how many work at once: contention {:.4}, coherency {:.6} (R² {:.3}): {}",
            fit.alpha.value,
            fit.beta.value,
            fit.r_squared,
            match &fit.best_connections {
                Some(best) => format!("most with {factor} at {:.1}", best.value),
                None => "it grows beyond what was measured".to_owned(),
            }
        ),
        Err(why) => why.clone(),
    };
    let fit = fit.ok();
    Some(ScalingLine { factor: factor.to_owned(), points, fit, text, ..ScalingLine::default() })
}

/// The records of the trials, for the report.
#[derive(Debug)]
pub(super) struct Records<'a>(pub(super) &'a Folder);

impl Raw for Records<'_> {
    fn trial(&self, file: &str) -> Option<Trial> {
        self.0.trial(file).ok()
    }

    fn folded(&self, trial_file: &str) -> Option<String> {
        self.0.folded(trial_file)
    }
}

/// Writes both reports into the experiment's folder.
pub(super) fn write_reports(experiment: &Experiment, folder: &Folder) -> Result<(), Failure> {
    let write = |name: &str, text: String| {
        let path: &Path = &folder.path().join(name);
        write_whole(path, text.as_bytes()).map_err(Failure::from)
    };
    write(REPORT_HTML, lab::report::html(experiment, &Records(folder)))?;
    write(REPORT_MARKDOWN, lab::report::markdown(experiment))
}

#[cfg(test)]
mod tests {
    use record::trial::Place;

    use super::*;

    #[test]
    fn medians_along_a_factor_of_numbers_are_fitted() {
        let levels = ["1", "2", "4", "8", "16", "32", "64"];
        let load = |level: &str| LoadPlan {
            name: format!("c{level}"),
            levels: [("connections".to_owned(), level.to_owned())].into(),
            ..LoadPlan::default()
        };
        let plan = Plan {
            baseline: "a".to_owned(),
            arms: vec![Arm { name: "a".to_owned(), ..Arm::default() }],
            loads: levels.iter().map(|level| load(level)).collect(),
            metrics: vec![Metric {
                name: "responses_per_s".to_owned(),
                title: "responses per second".to_owned(),
                unit: "1/s".to_owned(),
                ..Metric::default()
            }],
            ..Plan::default()
        };
        let line = |level: &str| {
            let n: f64 = level.parse().unwrap();
            TrialLine {
                place: Place {
                    block: 1,
                    arm: "a".to_owned(),
                    load: format!("c{level}"),
                    ..Place::default()
                },
                metrics: [("responses_per_s".to_owned(), 100.0 * n / (1.0 + 0.05 * (n - 1.0)))]
                    .into(),
                ..TrialLine::default()
            }
        };
        let lines: Vec<TrialLine> = levels.iter().map(|level| line(level)).collect();
        let found = scalings(&plan, &lines);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].arm.as_str(), found[0].points.len()), ("a", 7));
        assert!((found[0].fit.as_ref().unwrap().alpha.value - 0.05).abs() < 1e-3, "{found:?}");
        let said = lab::judge::ladder(&plan, &found).unwrap();
        assert_eq!(said, "Most responses per second with connections at 64 (1.54k/s).");
        let mut words = plan.clone();
        words.loads[0].levels.insert("connections".to_owned(), "few".to_owned());
        assert!(scalings(&words, &lines).is_empty());
    }
}
