//! An experiment's folder to a judgement and to its reports: what the engine, the judge, the fit of scaling
//! and the report need of each other. Decides nothing of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lab::engine::folder::Folder;
use lab::engine::{Case, Judged};
use lab::experiment::{Around, Asked, File};
use lab::judge::Extras;
use lab::report::{Page, Raw};
use lab::trial::metrics::METRICS;
use lab::words::{tick, value};
use load::edge::{KNEE_POINTS_MIN, SCALING_POINTS_MIN};
use record::edge::{Estimate, Knee};
use record::experiment::{Arm, Experiment, LoadPlan, Metric, Plan, ScalingLine, TrialLine};
use record::file::write_whole;
use record::problem::Problem;
use record::trial::Trial;

use crate::exit::Failure;

/// The report, as a page and for a pull request.
pub(super) const REPORT_HTML: &str = "report.html";
/// See [`REPORT_HTML`].
pub(super) const REPORT_MARKDOWN: &str = "report.md";
/// The most records that a text names.
const NAMED_MAX: usize = 6;
/// The metric whose knee is looked for.
const P99_NS: &str = "p99_ns";

/// All that can be measured.
pub(super) fn metrics() -> Vec<Metric> {
    METRICS.iter().map(lab::trial::metrics::Figure::metric).collect()
}

/// Reads an experiment's file.
pub(super) fn parse(
    name: &str,
    text: &str,
    asked: &Asked,
    around: Option<&Around<'_>>,
) -> Result<File, Vec<Problem>> {
    File::parse_with(name, text, asked, &metrics(), around)
}

/// The file of an experiment that was begun, as it was asked for then.
pub(super) fn parse_again(
    folder: &Folder,
    around: Option<&Around<'_>>,
) -> Result<File, Vec<Problem>> {
    let plan = &folder.start().plan;
    // A file without a name of its own has been called by its file's.
    parse(&format!("{}.toml", plan.name), &plan.file, &Asked::again(plan), around)
}

/// What the trials say; `file` is what they ran.
pub(super) fn judge(file: &File, case: Case<'_>) -> Judged {
    let extras = extras(file, &case);
    let judged = lab::judge::judge(case.plan, case.lines, &extras);
    Judged {
        scalings: scalings(case.plan, case.lines, &judged.generator_limited),
        cells: judged.cells,
        comparisons: judged.comparisons,
        warnings: judged.warnings,
        summary: judged.summary,
    }
}

fn extras(file: &File, case: &Case<'_>) -> Extras {
    Extras {
        environment_changes: case.changes.to_vec(),
        profiled: case.folder.profiled(),
        in_flight: case.folder.in_flight(),
        counting_shares: case.folder.counting_shares(),
        closed_loads: closed_loads(file, case.plan),
        untold: untold(file, case),
    }
}

/// Metrics that trials never tell, by what ran them.
fn untold(file: &File, case: &Case<'_>) -> BTreeMap<(String, String, String), String> {
    let environment = &case.folder.start().environment;
    let mut found = BTreeMap::new();
    for (arm, load) in
        case.plan.arms.iter().flat_map(|arm| case.plan.loads.iter().map(move |load| (arm, load)))
    {
        let Some(setup) = file.setup(&arm.name, &load.name) else { continue };
        let said = environment.get(&format!("program {}", setup.tool.name()));
        for metric in &case.plan.metrics {
            let figure = lab::trial::metrics::find(&metric.name);
            let why = figure.and_then(|figure| figure.never(setup, said.map(String::as_str)));
            let key = || (arm.name.clone(), load.name.clone(), metric.name.clone());
            found.extend(why.map(|why| (key(), why)));
        }
    }
    found
}

/// The loads that go as fast as answers come.
fn closed_loads(file: &File, plan: &Plan) -> BTreeSet<String> {
    let is_closed = |load: &&LoadPlan| {
        file.setup(&plan.baseline, &load.name).is_some_and(|setup| !setup.has_rate())
    };
    plan.loads.iter().filter(is_closed).map(|load| load.name.clone()).collect()
}

/// Arms under loads of which the load generator was the limit.
type Limited = BTreeSet<(String, String)>;

/// How the primary metric grows along each factor whose levels are numbers: of the loads for each arm, of
/// the arms under each load.
fn scalings(plan: &Plan, lines: &[TrialLine], limited: &Limited) -> Vec<ScalingLine> {
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
            let Some(along) = along(lines, metric, (factor, limited), levels) else { continue };
            let line = scaling(plan, &along, factor);
            found.push(ScalingLine { arm: arm.name.clone(), ..line });
        }
    }
    for factor in factors(own().map(|arm| &arm.levels)) {
        for load in &plan.loads {
            let levels = own().map(|arm: &Arm| (&arm.levels, &arm.name, &load.name));
            let Some(along) = along(lines, metric, (&factor, limited), levels) else { continue };
            let line = scaling(plan, &along, &factor);
            found.push(ScalingLine { load: load.name.clone(), ..line });
        }
    }
    found
}

type Levels = BTreeMap<String, String>;

fn factors<'a>(levels: impl Iterator<Item = &'a Levels>) -> Vec<String> {
    let names: BTreeSet<&String> = levels.flat_map(BTreeMap::keys).collect();
    names.into_iter().cloned().collect()
}

/// What was measured along one factor, by its levels.
#[derive(Debug, Default)]
struct Along {
    /// Medians of the primary metric.
    points: Vec<(f64, f64)>,
    /// Medians of the 99 %, in ns.
    p99_ns: Vec<(f64, f64)>,
    /// Levels at which the load generator was the limit.
    limited: Vec<f64>,
}

/// One factor with all others at one level; absent where its levels are no numbers, or where others change
/// too, so that there would be several points to a level.
fn along<'a>(
    lines: &[TrialLine],
    metric: &Metric,
    (factor, limited): (&str, &Limited),
    cells: impl Iterator<Item = (&'a Levels, &'a String, &'a String)>,
) -> Option<Along> {
    let mut known: Vec<f64> = Vec::new();
    let mut along = Along::default();
    for (levels, arm, load) in cells {
        let level = lab::judge::level(levels.get(factor)?)?;
        if known.contains(&level) {
            return None;
        }
        known.push(level);
        let of_it =
            |line: &&TrialLine| line.counts() && line.place.arm == *arm && line.place.load == *load;
        let of_it = lines.iter().filter(of_it);
        let median = |name: &str| {
            let values = of_it.clone().filter_map(|line| line.metrics.get(name).copied());
            lab::statistics::median(&values.collect::<Vec<f64>>()).map(|median| (level, median))
        };
        along.points.extend(median(&metric.name));
        along.p99_ns.extend(median(P99_NS));
        along.limited.extend(limited.contains(&(arm.clone(), load.clone())).then_some(level));
    }
    along.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    along.limited.sort_by(f64::total_cmp);
    (along.points.len() > 1).then_some(along)
}

/// The law through what was measured, and the knee of its latencies.
fn scaling(plan: &Plan, along: &Along, factor: &str) -> ScalingLine {
    let (points, least) = (along.points.clone(), SCALING_POINTS_MIN.max(KNEE_POINTS_MIN));
    let mut line = ScalingLine { factor: factor.to_owned(), points, ..ScalingLine::default() };
    let levels = line.points.len();
    if levels < least {
        line.text =
            format!("{levels} levels of {factor}; a law of scaling and a knee take {least}.");
        return line;
    }
    let law = match load::edge::scaling(&line.points, plan.seed) {
        Ok(fit) => {
            let most = match &fit.best_connections {
                Some(best) => format!("most with {factor} at {:.1}", best.value),
                None => "it grows beyond what was measured".to_owned(),
            };
            let text = format!(
                "if {factor} is how many work at once: contention {:.4}, coherency {:.6} (R² {:.3}): {most}",
                fit.alpha.value, fit.beta.value, fit.r_squared,
            );
            line.fit = Some(fit);
            text
        }
        Err(why) => why,
    };
    line.knee = knee(&along.p99_ns, plan.seed);
    let bend = match line.knee.map(|knee| knee.level) {
        Some(level) => {
            let [at, low, high] = [level.value, level.low, level.high].map(|it| value(it, "1"));
            format!("The knee: p99 grows faster from {factor} {at} on ({low} to {high})")
        }
        None if along.p99_ns.is_empty() => String::new(),
        None => format!("No knee: p99 does not begin to grow faster along {factor}"),
    };
    let whose = (!along.limited.is_empty()).then(|| {
        let levels: Vec<String> = along.limited.iter().map(|level| tick(*level, "1")).collect();
        let levels = levels.join(", ");
        format!("The generator was the limit with {factor} {levels}: there all this is its own")
    });
    let all = [Some(law), Some(bend), whose];
    let all = all.into_iter().flatten().filter(|text| !text.is_empty());
    line.text = all.map(|text| format!("{text}.")).collect::<Vec<_>>().join(" ");
    line
}

/// Where p99 begins to grow faster. Over the logarithm of the level: ladders of connections or threads grow
/// by factors, and once a closed loop is full its latency grows as its connections do, which only there is
/// a line.
fn knee(p99_ns: &[(f64, f64)], seed: u64) -> Option<Knee> {
    let logs: Vec<(f64, f64)> = p99_ns
        .iter()
        .filter(|(level, _)| *level > 0.0)
        .map(|(level, ns)| (level.ln(), *ns))
        .collect();
    let knee = load::edge::knee(&logs, seed).ok()?;
    let Estimate { value, low, high } = knee.level;
    Some(Knee { level: Estimate { value: value.exp(), low: low.exp(), high: high.exp() }, ..knee })
}

/// The records of a folder that cannot be read, and so are in no figure, with the reason.
pub(super) fn unreadable(folder: &Folder) -> Option<String> {
    let broken = folder.set_aside();
    let named = broken.iter().take(NAMED_MAX).map(|one| match one.why.contains(&one.file) {
        true => one.why.clone(),
        false => format!("{} ({})", one.file, one.why),
    });
    let named: Vec<String> = named.collect();
    let more = match broken.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let what = if broken.len() == 1 { "this record" } else { "these records" };
    (!named.is_empty()).then(|| {
        format!(
            "{what} cannot be read, and what follows is without: {}{more}. weir lab run --resume {} puts it \
             aside and runs what is missing.",
            named.join("; "),
            folder.path().display()
        )
    })
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
    let raw = &Records(folder);
    write_page(&lab::report::html(experiment, raw), &folder.path().join(REPORT_HTML))?;
    let words = lab::report::markdown(experiment, raw);
    write_whole(&folder.path().join(REPORT_MARKDOWN), words.as_bytes())?;
    Ok(())
}

/// Writes a page, and beside it what did not fit into it.
pub(super) fn write_page(page: &Page, path: &Path) -> Result<(), Failure> {
    write_whole(path, page.html.as_bytes())?;
    for file in &page.beside {
        write_whole(&path.with_file_name(&file.name), file.text.as_bytes())?;
    }
    Ok(())
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
                metrics: [
                    ("responses_per_s".to_owned(), 100.0 * n / (1.0 + 0.05 * (n - 1.0))),
                    (P99_NS.to_owned(), 1e6 * (n / 8.0).max(1.0)),
                ]
                .into(),
                ..TrialLine::default()
            }
        };
        let lines: Vec<TrialLine> = levels.iter().map(|level| line(level)).collect();
        let found = scalings(&plan, &lines, &Limited::new());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].arm.as_str(), found[0].points.len()), ("a", 7));
        assert!((found[0].fit.as_ref().unwrap().alpha.value - 0.05).abs() < 1e-3, "{found:?}");
        // Latencies are even up to 8 connections, and grow as connections do from there on.
        let knee = found[0].knee.unwrap().level;
        assert!((5.0..12.0).contains(&knee.value), "{knee:?}");
        assert!(knee.low <= knee.value && knee.value <= knee.high, "{knee:?}");
        assert!(
            found[0].text.contains("The knee: p99 grows faster from connections "),
            "{found:?}"
        );
        let limited = [("a".to_owned(), "c64".to_owned())].into();
        let text = &scalings(&plan, &lines, &limited)[0].text;
        assert!(text.ends_with(
            "The generator was the limit with connections 64: there all this is its own."
        ));
        let few = Plan { loads: plan.loads[..4].to_vec(), ..plan.clone() };
        let text = &scalings(&few, &lines, &Limited::new())[0].text;
        assert_eq!(text, "4 levels of connections; a law of scaling and a knee take 6.");
        let mut words = plan.clone();
        words.loads[0].levels.insert("connections".to_owned(), "few".to_owned());
        assert!(scalings(&words, &lines, &Limited::new()).is_empty());
    }

    #[test]
    fn what_does_not_fit_into_a_page_stands_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let beside =
            lab::report::Beside { name: "a.heat-map.csv".to_owned(), text: "x\n".to_owned() };
        let page = Page { html: "<html>".to_owned(), beside: vec![beside] };
        write_page(&page, &folder.path().join("report.html")).unwrap();
        for (name, text) in [("report.html", "<html>"), ("a.heat-map.csv", "x\n")] {
            assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), text);
        }
    }
}
