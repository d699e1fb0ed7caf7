//! `weir lab compare A B`: two experiments, two runs, or two lists of runs, that were not run in turn.

mod differences;
mod patterns;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lab::engine::blocks::mark;
use lab::engine::folder::Folder;
use lab::judge::{Set, unpaired};
use lab::trial::metrics;
use lab::words::count;
use record::experiment::{Metric, ONLY_LOAD, Plan, TrialLine};
use record::file::read_run;
use record::problem::Problem;
use record::run::Run;
use record::trial::Trial;
use record::units::parse_share;
use serde_json::{Value, json};

use self::differences::differences;
use super::experiments::open;
use super::judging::unreadable;
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::comparison::{Compared, Row, SCHEMA, Side, text};
use crate::output::file::write_json;
use crate::output::print;

/// The smallest difference that matters, if nothing else is said; as of an experiment's file.
pub(super) const EFFECT: f64 = 0.02;
/// Of the intervals.
const CONFIDENCE: f64 = 0.95;

/// What every comparison here has to say.
const OF_TIME: &str = "A and B were not run in turn: whatever else was different at the two times (other work \
on the machine, its temperature, a neighbour, an update) is in the difference too, and no test can see it. Run \
both as arms of one experiment to be sure.";
const OF_SINGLE_RUNS: &str = "Nothing is tested: the seconds of a run depend on each other, so they are one \
observation and not many, and of one observation on each side nothing can be told from chance. Repeat the runs, \
and name them with --a and --b.";
const OF_MANY: &str = "Each p is corrected for how many figures are compared (Holm): those of the metric that \
decides among themselves, and all others among themselves. The JSON has it without the correction too.";

/// A record and where it is.
type Named = (PathBuf, Run);

/// What was asked for.
enum Asked {
    Experiments(PathBuf, PathBuf),
    Runs(Vec<PathBuf>, Vec<PathBuf>),
}

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let (asked, effect) = asked(typed)?;
    let json = typed.text("json");
    crate::preflight::outputs(typed, &["json"], &[])?;
    let compared = match asked {
        Asked::Experiments(a, b) => experiments(&a, &b, effect)?,
        Asked::Runs(a, b) => {
            let (a, b) = read_both(&a, &b)?;
            runs(&a, &b, effect)
        }
    };
    if json.as_deref() != Some("-") {
        print(&text(&compared));
    }
    write_json(&compared, json.as_deref())?;
    Ok(Exit::Done)
}

/// Everything that is wrong with the flags.
#[cfg(test)]
pub(super) fn check(typed: Typed<'_>) -> Result<(), Vec<Problem>> {
    effect(typed).map(|_| ()).map_err(|problem| vec![problem])
}

fn effect(typed: Typed<'_>) -> Result<f64, Problem> {
    let Some(text) = typed.text("effect") else { return Ok(EFFECT) };
    match parse_share(&text) {
        Ok(share) if share > 0.0 => Ok(share),
        Ok(_) => Err(Problem::new("--effect", "a difference of 0 matters to nobody")),
        Err(why) => Err(Problem::new("--effect", why)),
    }
}

fn asked(typed: Typed<'_>) -> Result<(Asked, f64), Vec<Problem>> {
    let mut problems = Vec::new();
    let effect = effect(typed).map_err(|problem| problems.push(problem)).unwrap_or(EFFECT);
    let sides = typed.values();
    let (a, b) = (typed.texts("a"), typed.texts("b"));
    let asked = if a.is_empty() && b.is_empty() {
        two(&sides, &mut problems)
    } else {
        if !sides.is_empty() {
            problems.push(Problem::new("A B", "give either two values, or --a and --b"));
        }
        let mut files = |flag: &str, patterns: &[String]| {
            let found = match patterns {
                [] => Err("give both, --a and --b".to_owned()),
                some => patterns::files(some),
            };
            found.map_err(|why| problems.push(Problem::new(flag, why))).unwrap_or_default()
        };
        Some(Asked::Runs(files("--a", &a), files("--b", &b)))
    };
    match asked {
        Some(asked) if problems.is_empty() => Ok((asked, effect)),
        _ => Err(problems),
    }
}

/// Two folders, or two files.
fn two(sides: &[String], problems: &mut Vec<Problem>) -> Option<Asked> {
    let [a, b] = sides else {
        let text = "give two: folders of experiments, or records of weir load";
        problems.push(Problem::new("A B", text));
        return None;
    };
    let (a, b) = (PathBuf::from(a), PathBuf::from(b));
    for path in [&a, &b] {
        if !path.exists() {
            problems.push(Problem::new("A B", format!("{}: there is none", path.display())));
        }
    }
    match (a.is_dir(), b.is_dir()) {
        _ if !problems.is_empty() => None,
        (true, true) => Some(Asked::Experiments(a, b)),
        (false, false) => Some(Asked::Runs(vec![a], vec![b])),
        _ => {
            let text = "one is a folder and one is a file: give two experiments, or two records";
            problems.push(Problem::new("A B", text));
            None
        }
    }
}

/// Two experiments: arms of the same name under loads of the same name.
pub(super) fn experiments(a: &Path, b: &Path, effect: f64) -> Result<Compared, Failure> {
    let (first, second) = (open(a)?, open(b)?);
    let (one, other) = (marked(&first), marked(&second));
    let (plan_a, plan_b) = (&first.start().plan, &second.start().plan);
    let (mut rows, mut sets) = (Vec::new(), Vec::new());
    for load in plan_a.loads.iter().map(|load| load.name.as_str()) {
        for arm in plan_a.arms.iter().filter(|arm| arm.again.is_none()) {
            for metric in &plan_a.metrics {
                let values = |lines: &[TrialLine]| values(lines, &arm.name, load, &metric.name);
                let (a, b) = (values(&one), values(&other));
                if a.is_empty() || b.is_empty() {
                    continue;
                }
                let load = if load == ONLY_LOAD { "" } else { load };
                rows.push(Row { arm: arm.name.clone(), load: load.to_owned(), ..Row::default() });
                let primary = plan_a.primary().is_some_and(|primary| primary.name == metric.name);
                sets.push(Set { a, b, metric, primary });
            }
        }
    }
    let mut summary = fill(&mut rows, &sets, effect);
    let mut notes = Vec::new();
    if rows.is_empty() {
        summary = vec![nothing_in_common([(plan_a, &one), (plan_b, &other)])];
    } else {
        notes.extend([OF_TIME, OF_MANY].map(str::to_owned));
    }
    notes.extend([&first, &second].into_iter().filter_map(unreadable));
    let differing = differences("", &facts(&first, plan_a), &facts(&second, plan_b));
    let side = |folder: &Folder, path: &Path| Side {
        path: path.display().to_string(),
        title: folder.start().plan.title.clone(),
        started_at: folder.start().started_at.clone(),
    };
    let (a, b) = (side(&first, a), side(&second, b));
    Ok(Compared { schema: SCHEMA, a, b, summary, rows, differences: differing, notes })
}

/// Why there is nothing to compare, and what each has.
fn nothing_in_common(sides: [(&Plan, &[TrialLine]); 2]) -> String {
    let list = |names: Vec<&str>| names.join(", ");
    let [a, b] = sides.map(|(plan, lines)| {
        let own = plan.arms.iter().filter(|arm| arm.again.is_none());
        let counting = lines.iter().filter(|line| line.counts()).count();
        format!(
            "arms {} under the loads {}, {} {}",
            list(own.map(|arm| arm.name.as_str()).collect()),
            list(plan.loads.iter().map(|load| load.name.as_str()).collect()),
            count(counting, "trial"),
            if counting == 1 { "counts" } else { "count" }
        )
    });
    format!(
        "Nothing can be compared: no arm under a load has, by these names, trials that count in both. A: {a}. \
         B: {b}."
    )
}

/// The trials of a folder, with those marked that do not count.
fn marked(folder: &Folder) -> Vec<TrialLine> {
    let mut lines = folder.lines().to_vec();
    mark(&folder.start().plan, &mut lines, &folder.changed_after());
    lines
}

fn values(lines: &[TrialLine], arm: &str, load: &str, metric: &str) -> Vec<f64> {
    let of_it = lines
        .iter()
        .filter(|line| line.counts() && line.place.arm == arm && line.place.load == load);
    of_it.filter_map(|line| line.metrics.get(metric).copied()).collect()
}

/// What may differ between two experiments, apart from when they were run and how their orders were
/// drawn.
fn facts(folder: &Folder, plan: &Plan) -> Value {
    let start = folder.start();
    let mut plan = json!(plan);
    if let Some(fields) = plan.as_object_mut() {
        // The file is in the plan's other fields; names and titles say nothing of what was run.
        for name in ["file", "seed", "name", "title"] {
            fields.remove(name);
        }
    }
    json!({
        "plan": plan,
        "machine": start.host,
        "environment": start.environment,
        "weir": start.weir,
    })
}

fn read_both(a: &[PathBuf], b: &[PathBuf]) -> Result<(Vec<Named>, Vec<Named>), Vec<Problem>> {
    let mut problems = Vec::new();
    let mut read = |files: &[PathBuf]| {
        let mut runs = Vec::new();
        for file in files {
            match read_run(file) {
                Ok(run) => runs.push((file.clone(), run)),
                Err(error) => problems.push(Problem::new("FILE", error.to_string())),
            }
        }
        runs
    };
    let (a, b) = (read(a), read(b));
    if problems.is_empty() { Ok((a, b)) } else { Err(problems) }
}

/// Two lists of runs, each of at least one.
fn runs(a: &[Named], b: &[Named], effect: f64) -> Compared {
    let figures = |runs: &[Named]| -> Vec<BTreeMap<String, f64>> {
        runs.iter().map(|(_, run)| figures(run)).collect()
    };
    let (first, second) = (figures(a), figures(b));
    let is_single = a.len() == 1 && b.len() == 1;
    // Where the rate is given, it says nothing.
    let has_rate = a.iter().chain(b).any(|(_, run)| run.rates.offered_per_s.is_some());
    let decides = if has_rate { "p99_ns" } else { "responses_per_s" };
    let all: Vec<Metric> = metrics::METRICS.iter().map(metrics::Figure::metric).collect();
    let mut sets = Vec::new();
    for metric in &all {
        let values = |of: &[BTreeMap<String, f64>]| -> Vec<f64> {
            of.iter().filter_map(|one| one.get(&metric.name).copied()).collect()
        };
        let (a, b) = (values(&first), values(&second));
        if a.is_empty() || b.is_empty() {
            continue;
        }
        sets.push(Set { a, b, metric, primary: metric.name == decides });
    }
    let mut rows = vec![Row::default(); sets.len()];
    let mut summary = fill(&mut rows, &sets, effect);
    if is_single {
        summary.clear();
        let untested = |row: &Row| Row {
            interval: None,
            p: None,
            p_adjusted: None,
            better_share: None,
            outcome: None,
            ..row.clone()
        };
        rows = rows.iter().map(untested).collect();
    }
    let mut notes = Vec::new();
    if rows.is_empty() {
        let text = "Nothing can be compared: there is no figure that both A and B have.";
        summary = vec![text.to_owned()];
    } else {
        notes.push(OF_TIME.to_owned());
        notes.push(if is_single { OF_SINGLE_RUNS } else { OF_MANY }.to_owned());
    }
    let differing = match (a.first(), b.first()) {
        (Some((_, a)), Some((_, b))) => differences("", &of_run(a), &of_run(b)),
        _ => Vec::new(),
    };
    for (letter, runs) in [("A", a), ("B", b)] {
        notes.extend(within(letter, runs));
    }
    let (a, b) = (side(a), side(b));
    Compared { schema: SCHEMA, a, b, summary, rows, differences: differing, notes }
}

/// That the runs of one list are not of the same plan, if so.
fn within(letter: &str, runs: &[Named]) -> Option<String> {
    let ((_, first), others) = runs.split_first()?;
    let (path, _) = others.iter().find(|(_, run)| run.plan != first.plan)?;
    let path = path.display();
    Some(format!("The runs of {letter} are not all of one plan: {path} differs from the first."))
}

/// What may differ between two runs.
fn of_run(run: &Run) -> Value {
    json!({"plan": run.plan, "machine": run.host, "weir": run.weir})
}

fn side(runs: &[Named]) -> Side {
    let names: Vec<String> = runs.iter().map(|(path, _)| path.display().to_string()).collect();
    let times = runs.iter().map(|(_, run)| run.started_at.as_str());
    let (first, last) = (times.clone().min().unwrap_or(""), times.max().unwrap_or(""));
    Side {
        path: names.join(" "),
        title: count(runs.len(), "run"),
        started_at: if first == last { first.to_owned() } else { format!("{first} to {last}") },
    }
}

/// A run's figures, by the names of an experiment's metrics.
fn figures(run: &Run) -> BTreeMap<String, f64> {
    metrics::read(&Trial { run: Some(run.clone()), ..Trial::default() })
}

/// Puts the figures of all sets into their rows; what the metric that decides says, in words.
fn fill(rows: &mut [Row], sets: &[Set<'_>], effect: f64) -> Vec<String> {
    let mut summary = Vec::new();
    for ((row, set), found) in rows.iter_mut().zip(sets).zip(unpaired(sets, effect, CONFIDENCE)) {
        if set.primary {
            let said = &found.text;
            summary.push(match (row.arm.as_str(), row.load.as_str()) {
                ("", _) => said.clone(),
                (arm, "") => format!("{arm}: {said}"),
                (arm, load) => format!("{arm} under {load}: {said}"),
            });
        }
        *row = Row {
            arm: std::mem::take(&mut row.arm),
            load: std::mem::take(&mut row.load),
            metric: set.metric.name.clone(),
            title: set.metric.title.clone(),
            unit: set.metric.unit.clone(),
            counts: (set.a.len(), set.b.len()),
            medians: (found.a_median.unwrap_or(0.0), found.b_median.unwrap_or(0.0)),
            ratio: found.ratio,
            interval: found.interval,
            p: found.p,
            p_adjusted: found.p_adjusted,
            better_share: found.better_share,
            outcome: Some(found.outcome),
        };
    }
    summary
}

#[cfg(test)]
mod tests {
    use record::experiment::{Arm, LoadPlan, Outcome};

    use super::*;

    #[test]
    fn what_has_nothing_in_common_is_said_with_what_each_has() {
        let arm = |name: &str| Arm { name: name.to_owned(), ..Arm::default() };
        let plan = |arms: &[&str]| Plan {
            arms: arms.iter().map(|name| arm(name)).collect(),
            loads: vec![LoadPlan { name: ONLY_LOAD.to_owned(), ..LoadPlan::default() }],
            ..Plan::default()
        };
        let mut line = TrialLine::default();
        line.place.block = 1;
        let (one, other) = (plan(&["x", "y"]), plan(&["z"]));
        let said = nothing_in_common([(&one, &[line]), (&other, &[])]);
        assert!(said.starts_with("Nothing can be compared: "), "{said}");
        assert!(
            said.ends_with(
                "A: arms x, y under the loads load, 1 trial counts. B: arms z under the loads load, 0 trials count."
            ),
            "{said}"
        );
    }

    #[test]
    fn rows_that_do_not_decide_are_corrected_for_each_other() {
        let metric =
            Metric { name: "p50_ns".to_owned(), unit: "ns".to_owned(), ..Metric::default() };
        let set = |primary| Set {
            a: (0..6).map(|n| 100.0 + 0.1 * f64::from(n)).collect(),
            b: (0..6).map(|n| 90.0 + 0.1 * f64::from(n)).collect(),
            metric: &metric,
            primary,
        };
        let mut sets = vec![set(true)];
        sets.extend((0..40).map(|_| set(false)));
        let mut rows = vec![Row { arm: "x".to_owned(), ..Row::default() }; sets.len()];
        let summary = fill(&mut rows, &sets, EFFECT);
        assert_eq!(summary.len(), 1);
        assert!(summary[0].starts_with("x: It was found"), "{summary:?}");
        assert_eq!((rows[0].outcome, rows[0].p), (Some(Outcome::Faster), rows[0].p_adjusted));
        assert_eq!((rows[1].outcome, rows[1].p), (Some(Outcome::Inconclusive), rows[0].p));
        assert!(rows[1].p_adjusted > rows[1].p);
    }
}
