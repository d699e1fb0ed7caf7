//! Checker of all outputs of a result: a figure that appears in several is the same, and every claim agrees with its
//! table. It reads only what a user sees.

use std::collections::BTreeMap;

use experiment::judge::{JudgeExtras, judge};
use record::capacity_search::CapacitySearch;
use record::experiment::{ComparisonOutcome, Experiment, primary_claims};
use record::fleet::{AgentClock, AgentFigures, AgentOutcome, AgentRow, Fleet};
use record::run::Run;
use record::units::format_rate;
use record::validity::ValidityLevel;

use super::plain::{Output, OutputForm, words};
use super::{outputs_of_experiment, outputs_of_run, outputs_of_search};
use crate::synthetic::{ARMS, NoRecords, one_load, with_loads};
use crate::text::answer::headline;
use crate::text::decision::decision_rows;
use crate::text::edge::contradictions::generated_searches;
use crate::text::edge::edge_headline;
use crate::text::experiment::experiment_headline;
use crate::text::fleet::{format_fleet, format_fleet_agents};
use crate::text::summary::tests::{generated_records, intervals::wide_intervals, stored_records};

/// Named figures of an output.
type Figures = BTreeMap<&'static str, String>;

/// Returns the faults of form of an output, in prose and tables.
fn faults(output: &Output) -> Vec<String> {
    let mut found: Vec<String> = ["NaN", " inf ", "{}", ";.", "-0 "]
        .into_iter()
        .filter(|wrong| output.plain.contains(wrong))
        .map(|wrong| format!("it contains {wrong:?}"))
        .collect();
    found.extend(wide_intervals(&output.plain).into_iter().map(|wide| format!("wide interval {wide}")));
    found.into_iter().map(|what| format!("{}: {what}", output.name)).collect()
}

/// Reads the named figures of a run from an output; those that the form does not have are absent.
fn figures_of_run(output: &Output) -> Figures {
    let mut figures = Figures::new();
    let mut put = |name, value: Option<String>| figures.extend(value.map(|value| (name, value)));
    match output.form {
        OutputForm::Text => {
            let head = words(output.raw.split("\n\n").next().unwrap_or_default());
            put("rate", head.split(',').next().map(str::to_owned));
            put("p50", between(&head, "p50 ", ","));
            put("p99", between(&head, "p99 ", ","));
        }
        OutputForm::Markdown => {
            let good = row(&output.raw, "Good responses");
            put("rate", good.first().and_then(|cell| between(cell, "(", ")")));
            put("good", good.first().and_then(|cell| cell.split(' ').next().map(str::to_owned)));
            put("bad", row(&output.raw, "Bad responses").first().cloned());
            let times = row(&output.raw, "response (from due)");
            put("p50", times.first().cloned());
            put("p99", times.get(2).cloned());
            put("max", times.get(4).cloned());
        }
        OutputForm::Html => {
            let tile = |label: &str, class: &str| {
                let (_, rest) = output.raw.split_once(&format!("<p class=\"label\">{label}</p>"))?;
                let tile = Output::new("tile", OutputForm::Html, rest.split("</div>").next()?.to_owned());
                tile.after(&format!("<p class=\"{class}\">"), "</p>")
            };
            put("rate", tile("Rate", "value"));
            let times = tile("Latency p50 / p99", "value").unwrap_or_default().replace('–', "-");
            put("p50", times.split(" / ").next().map(str::to_owned));
            put("p99", times.split(" / ").nth(1).map(str::to_owned));
            let detail = tile("Latency p50 / p99", "detail").unwrap_or_default().replace('–', "-");
            put("max", detail.split("max ").nth(1).map(str::to_owned));
        }
        OutputForm::Xml => {}
    }
    figures
}

/// Returns the contradictions between the outputs of a run, and between them and its tables.
fn contradictions_of_run(run: &Run, outputs: &[Output]) -> Vec<String> {
    let mut found: Vec<String> = outputs.iter().flat_map(faults).collect();
    let is_pushed = diagnose::pushed_rate(run).is_some();
    let mut first: BTreeMap<&'static str, (String, &'static str)> = BTreeMap::new();
    for output in outputs {
        for (name, value) in figures_of_run(output) {
            let (known, by) = first.entry(name).or_insert_with(|| (value.clone(), output.name));
            if *known != value && !(is_pushed && name == "rate") {
                found.push(format!("{name}: {known} in {by}, {value} in {}", output.name));
            }
        }
        found.extend(claims_of_run(run, output).into_iter().map(|what| format!("{}: {what}", output.name)));
    }
    found
}

/// Checks the sentences of an output against the counts and the verdict of the record.
fn claims_of_run(run: &Run, output: &Output) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |holds: bool, what: &str| found.extend((!holds).then(|| what.to_owned()));
    let (plain, totals) = (&output.plain, &run.totals);
    check(!plain.contains("no request failed") || totals.failed() == 0, "no request failed, and some did");
    check(!plain.contains("no failures") || totals.failed() + totals.bad() == 0, "no failures, and some are");
    let is_none = run.diagnosis.as_ref().is_some_and(|diagnosis| diagnosis.verdict == "none");
    check(!plain.contains("no limit was reached") || is_none, "no limit was reached, and one was found");
    check(!is_none || !plain.contains("is its ceiling"), "a ceiling without a limit");
    check(!has_unexplained_full_cpus(plain), "all CPUs are full, and the subject uses few of them");
    let waiting = |phrase: &str| Some(plain.split_once(phrase)?.0.rsplit(' ').next()?.to_owned());
    if let (Some(answer), Some(evidence)) =
        (waiting(" % of that is waiting"), waiting(" % of the latency is waiting"))
    {
        check(answer == evidence, "waiting fraction");
    }
    let missed = run.objectives.iter().filter(|objective| !objective.met).count();
    match output.form {
        OutputForm::Markdown => {
            check(output.raw.matches("**missed**").count() == missed, "missed objectives");
            let validity = row(&output.raw, "Validity");
            check(validity.first().is_some_and(|word| word == run.validity.verdict.as_str()), "validity");
            let statuses = output.raw.lines().filter_map(|line| line.strip_prefix("| Status "));
            let statuses: u64 = statuses.filter_map(last_number).sum();
            check(statuses == totals.status.values().sum::<u64>(), "sum of the statuses");
            let errors = output.raw.lines().filter_map(|line| line.strip_prefix("| Error "));
            let errors: u64 = errors.filter_map(last_number).sum();
            check(errors == totals.errors.values().sum::<u64>(), "sum of the errors");
        }
        OutputForm::Xml => {
            let is_invalid = run.validity.verdict == ValidityLevel::Invalid;
            let failed = output.raw.matches("<failure ").count();
            let counted = output.raw.matches(&format!("failures=\"{failed}\"")).count();
            check(counted == 2, "number of failures");
            check(failed >= missed + usize::from(is_invalid), "failed cases");
        }
        OutputForm::Html => {
            let badge = output.after("<span class=\"badge ", "</p>").unwrap_or_default();
            let word = match run.validity.verdict {
                ValidityLevel::Valid => " valid",
                ValidityLevel::Suspect => " suspect",
                ValidityLevel::Invalid => " not valid",
            };
            check(badge.contains(word), "validity of the badge");
            let words =
                run.diagnosis.as_ref().map(|diagnosis| experiment::format::code_words(&diagnosis.verdict));
            let is_there = words.is_none_or(|words| plain.to_lowercase().contains(&words.to_lowercase()));
            check(is_there || is_none, "the verdict is not a finding");
        }
        OutputForm::Text => {
            let verdict = run.diagnosis.as_ref().map(|diagnosis| format!("bottleneck {}", diagnosis.verdict));
            check(verdict.is_none_or(|verdict| plain.contains(&verdict)), "the verdict of the table");
        }
    }
    found
}

/// Returns whether a text says that all CPUs are full, of other programs it says nothing, and the subject uses less
/// than half a CPU.
fn has_unexplained_full_cpus(plain: &str) -> bool {
    let Some((_, rest)) = plain.split_once("all CPUs: 100 % used") else { return false };
    let used = between(plain, "uses ", " of ").and_then(|cpus| cpus.parse::<f64>().ok());
    used.is_some_and(|cpus| cpus < 0.5) && !rest.starts_with(" (")
}

#[test]
fn full_cpus_of_a_subject_that_uses_few_are_a_contradiction() {
    assert!(has_unexplained_full_cpus("your service uses 0.10 of 2 CPUs next limits all CPUs: 100 % used"));
    for text in [
        "your service uses 0.10 of 2 CPUs next limits all CPUs: 100 % used (1.75 CPUs by other programs)",
        "your service uses 1.90 of 2 CPUs next limits all CPUs: 100 % used",
        "your service uses 0.10 of 2 CPUs next limits all CPUs: 20 % used",
    ] {
        assert!(!has_unexplained_full_cpus(text), "{text}");
    }
}

/// Returns the contradictions between the outputs of a search.
fn contradictions_of_search(search: &CapacitySearch, outputs: &[Output]) -> Vec<String> {
    let mut found: Vec<String> = outputs.iter().flat_map(faults).collect();
    let (head, rows) = (words(&edge_headline(search)), decision_rows(search));
    let missed = search.trials.iter().filter(|trial| {
        trial.purpose == "ladder" && trial.outcome == record::capacity_search::LevelOutcome::Missed
    });
    let missed = missed.count();
    for output in outputs {
        let mut check = |holds: bool, what: &str| {
            found.extend((!holds).then(|| format!("{}: {what}", output.name)));
        };
        check(
            output.form == OutputForm::Html || output.plain.contains(&head),
            "rate and percentiles of the head",
        );
        for (label, text) in &rows {
            check(output.plain.contains(&words(text)), &format!("row {label} of the decision"));
        }
        match output.form {
            OutputForm::Markdown => check(output.raw.matches("**missed**").count() == missed, "missed rows"),
            OutputForm::Html => {
                let tile = |label: &str| {
                    output.after(&format!("<p class=\"label\">{label}</p><p class=\"value\">"), "</p>")
                };
                let held = search.conclusion.level.or(search.conclusion.lower).map(format_rate);
                check(tile("Held level") == held, "held level");
                check(tile("Missed at") == search.conclusion.upper.map(format_rate), "missed level");
                let sentence = output.after("<h1 class=\"result\">", "</h1>").unwrap_or_default();
                let said = between(&sentence, "up to ", " (");
                check(said.is_none() || said == held, "held level of the sentence and the tile");
            }
            _ => {}
        }
    }
    found
}

/// Returns the contradictions between the outputs of an experiment, and between its sentences and its table.
fn contradictions_of_experiment(all: &Experiment, outputs: &[Output]) -> Vec<String> {
    let mut found: Vec<String> = outputs.iter().flat_map(faults).collect();
    let head = words(&experiment_headline(all));
    let answer = crate::text::experiment::answer(all);
    let outcomes: Vec<ComparisonOutcome> =
        primary_claims(&all.comparisons).map(|claim| claim.outcome).collect();
    let is_open = |outcome: &ComparisonOutcome| *outcome == ComparisonOutcome::Inconclusive;
    let mut check = |holds: bool, what: String| found.extend((!holds).then_some(what));
    let what = answer.what.to_lowercase();
    check(
        !what.contains("no conclusion") || outcomes.iter().all(is_open),
        format!("no conclusion, and the table has one: {what}"),
    );
    check(
        !what.contains("are equivalent") || outcomes.contains(&ComparisonOutcome::Equivalent),
        format!("equivalent, and no row is: {what}"),
    );
    let known = |arm: &str| {
        let cells = all.cells.iter().filter(|cell| cell.arm == arm);
        cells.filter(|cell| majority(&cell.verdicts).is_some()).count()
    };
    let arms = || all.plan.arms.iter().filter(|arm| arm.repeats.is_none());
    check(
        !answer.why.contains("bottleneck of neither is known")
            || arms().any(|arm| known(&arm.name) == 0)
            || all.plan.loads.len() > 1,
        "no bottleneck is known, and the table has one of each arm".to_owned(),
    );
    for output in outputs {
        if output.form != OutputForm::Html {
            check(output.plain.contains(&head), format!("{}: head", output.name));
        }
        let by_outcome = |outcome: ComparisonOutcome| {
            outcomes.iter().filter(|claim_outcome| **claim_outcome == outcome).count()
        };
        match output.form {
            OutputForm::Xml => {
                let skipped = format!("skipped=\"{}\"", by_outcome(ComparisonOutcome::Inconclusive));
                check(output.raw.matches(&skipped).count() == 2, format!("{}: skipped cases", output.name));
            }
            OutputForm::Html => {
                for (class, outcome) in
                    [("badge good", ComparisonOutcome::Faster), ("badge bad", ComparisonOutcome::Slower)]
                {
                    let cards = output.raw.split("class=\"cards\"").nth(1).unwrap_or_default();
                    let cards = cards.split("</ul>").next().unwrap_or_default();
                    check(
                        cards.matches(class).count() == by_outcome(outcome),
                        format!("{}: cards with {class}", output.name),
                    );
                }
            }
            _ => {}
        }
        for cell in all.cells.iter().filter(|_| output.form == OutputForm::Html) {
            if let Some((code, count)) = majority(&cell.verdicts).filter(|_| all.plan.loads.len() == 1) {
                let text = format!("{} in {count} of {}", experiment::format::code_words(code), cell.trials);
                check(output.plain.contains(&text), format!("{}: {text}", output.name));
            }
        }
    }
    found
}

/// Returns the verdict of most of the trials.
fn majority(verdicts: &BTreeMap<String, u32>) -> Option<(&str, u32)> {
    let (code, count) = verdicts.iter().max_by_key(|(_, count)| **count)?;
    let all: u32 = verdicts.values().sum();
    (2 * count > all && code != "unknown").then_some((code, *count))
}

/// Returns the contradictions between the table of agents and the run that they drove together.
fn contradictions_of_fleet(run: &Run, fleet: &Fleet, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let column = |name: &str| rows.first().and_then(|head| head.iter().position(|cell| *cell == name));
    let (Some(rate), Some(failed), Some(verdict)) =
        (column("good rate"), column("failed"), column("validity"))
    else {
        return vec!["a column is missing".to_owned()];
    };
    let agents = &rows[1..];
    let cells = |column: usize| agents.iter().filter_map(move |row| row.get(column).copied());
    let sum: f64 = cells(rate).filter_map(per_s).sum();
    let is_near = (sum - run.goodput_per_s()).abs() <= 0.01 * run.goodput_per_s();
    found
        .extend((!is_near).then(|| format!("the agents carry {sum}/s, and the run {}", run.goodput_per_s())));
    let failed: u64 = cells(failed).filter_map(|cell| cell.parse::<u64>().ok()).sum();
    found.extend((failed != run.totals.failed()).then(|| format!("{failed} failed at the agents")));
    let lost = cells(verdict).filter(|cell| *cell == "lost").count();
    let line = format!("{} of {} agents", fleet.agents.len() - lost, fleet.agents.len());
    found.extend((!format_fleet(fleet).starts_with(&line)).then(|| format!("not {line}")));
    found
}

fn per_s(cell: &str) -> Option<f64> {
    let cell = cell.strip_suffix("/s")?.trim();
    let (number, factor) = match cell.strip_suffix('k') {
        Some(number) => (number, 1e3),
        None => (cell.strip_suffix('M').unwrap_or(cell), if cell.ends_with('M') { 1e6 } else { 1.0 }),
    };
    Some(number.trim().parse::<f64>().ok()? * factor)
}

/// Returns the cells of a row of a Markdown table, without its name.
fn row(text: &str, name: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap_or_default();
    let cells =
        line.trim_matches('|').split(" | ").skip(1).map(|cell| cell.trim_matches(['|', ' ']).to_owned());
    cells.collect()
}

fn last_number(row: &str) -> Option<u64> {
    row.trim_end_matches([' ', '|']).rsplit(' ').next()?.parse().ok()
}

fn between(text: &str, start: &str, end: &str) -> Option<String> {
    let (_, rest) = text.split_once(start)?;
    Some(rest.split(end).next()?.to_owned())
}

/// Returns experiments as the judge describes them: other ratios, verdicts, numbers of blocks and loads.
fn generated_experiments() -> Vec<Experiment> {
    let mut all = Vec::new();
    let (several, single) = (with_loads(&["c10", "c50"]).0, one_load().0);
    for number in 0..30_u32 {
        let mut experiment = if number.is_multiple_of(3) { several.clone() } else { single.clone() };
        let factor = [0.6, 0.97, 1.0, 1.02, 1.4, 3.0][number as usize % 6];
        let blocks = [1, 3, 6, 12][number as usize % 4];
        experiment.trials.retain(|trial| trial.position.block <= blocks);
        let verdicts = ["subject_limited", "user_cpu_bound", "unknown", "client_bound", "none"];
        for trial in &mut experiment.trials {
            let is_other = trial.position.arm == ARMS[2];
            let swing = if number % 5 == 4 { 1.0 + f64::from(trial.position.number % 7) * 0.6 } else { 1.0 };
            for value in trial.metrics.values_mut() {
                *value *= if is_other { factor * swing } else { swing };
            }
            let verdict = verdicts[(number as usize + usize::from(is_other && number.is_multiple_of(2))) % 5];
            trial.verdict = Some(verdict.to_owned());
        }
        let extras = JudgeExtras { cpus: 2.0, ..JudgeExtras::default() };
        let judged = judge(&experiment.plan, &experiment.trials, &extras);
        (experiment.cells, experiment.comparisons) = (judged.cells, judged.comparisons);
        (experiment.warnings, experiment.scalings) = (judged.warnings, judged.scalings);
        (experiment.summary, experiment.finish) = (judged.summary, judged.finish);
        all.push(experiment);
    }
    all
}

/// Returns a fleet that drove a run.
fn fleet_of(run: &Run, lost: bool) -> Fleet {
    let failed = run.totals.failed();
    let agent = |number: u64| AgentRow {
        name: format!("agent-{number}"),
        outcome: AgentOutcome::Complete,
        problem: String::new(),
        load_fraction: 0.25,
        clock: AgentClock::default(),
        start_after_ns: Some(number),
        figures: Some(AgentFigures {
            host: run.host.clone(),
            requests: run.totals.requests / 4,
            responses: run.totals.responses / 4,
            failed: if number == 0 { failed - 3 * (failed / 4) } else { failed / 4 },
            responses_per_s: run.goodput_per_s() / 4.0,
            p50_ns: run.latency.last_byte.response.p50_ns,
            p99_ns: run.latency.last_byte.response.p99_ns,
            busiest_thread_fraction: None,
            validity: run.validity.clone(),
        }),
    };
    let mut agents: Vec<AgentRow> = (0..4).map(agent).collect();
    if lost {
        let gone = AgentRow { outcome: AgentOutcome::Lost, figures: None, ..agents[0].clone() };
        agents.push(gone);
    }
    Fleet { agents, ..Fleet::default() }
}

#[test]
fn no_output_of_a_run_contradicts_another() {
    let mut checked = 0;
    for run in generated_records().into_iter().chain(stored_records()) {
        let outputs = outputs_of_run(&run);
        let found = contradictions_of_run(&run, &outputs);
        assert!(found.is_empty(), "{found:#?}\n{}\n{}", headline(&run), outputs[0].raw);
        checked += outputs.len();
    }
    assert!(checked >= 210 * 6, "{checked}");
}

#[test]
fn no_output_of_a_search_contradicts_another() {
    for search in generated_searches() {
        let outputs = outputs_of_search(&search);
        let found = contradictions_of_search(&search, &outputs);
        assert!(found.is_empty(), "{found:#?}\n{}", outputs[0].raw);
    }
}

#[test]
fn no_output_of_an_experiment_contradicts_another() {
    let mut seen = std::collections::BTreeSet::new();
    for experiment in generated_experiments() {
        let outputs = outputs_of_experiment(&experiment, &NoRecords);
        let found = contradictions_of_experiment(&experiment, &outputs);
        assert!(found.is_empty(), "{found:#?}\n{}", outputs[0].raw);
        seen.extend(primary_claims(&experiment.comparisons).map(|claim| format!("{:?}", claim.outcome)));
    }
    assert!(seen.len() >= 3, "{seen:?}");
}

#[test]
fn no_table_of_agents_contradicts_its_run() {
    for (number, run) in generated_records().into_iter().enumerate() {
        let fleet = fleet_of(&run, number.is_multiple_of(2));
        let found = contradictions_of_fleet(&run, &fleet, &format_fleet_agents(&fleet));
        assert!(found.is_empty(), "{found:?}\n{}", format_fleet_agents(&fleet));
    }
}

/// Changes a part of an output.
fn changed(outputs: &[Output], name: &str, from: &str, to: &str) -> Vec<Output> {
    let change = |output: &Output| {
        let raw = match output.name == name {
            true => output.raw.replacen(from, to, 1),
            false => output.raw.clone(),
        };
        assert!(output.name != name || raw != output.raw, "{name} lacks {from}");
        Output::new(output.name, output.form, raw)
    };
    outputs.iter().map(change).collect()
}

#[test]
fn the_checker_of_all_outputs_finds_contradictions() {
    let run = generated_records().remove(3);
    let outputs = outputs_of_run(&run);
    let rate = format_rate(run.goodput_per_s());
    for (name, from, to) in [
        ("load --markdown", format!("({rate})"), "(9.99 k/s)".to_owned()),
        ("load --markdown", "| Status 200 | 1".to_owned(), "| Status 200 | 9".to_owned()),
        (
            "load --html",
            format!("<p class=\"value\">{rate}</p>"),
            "<p class=\"value\">9.99 k/s</p>".to_owned(),
        ),
        ("load --html", "not valid".to_owned(), "valid".to_owned()),
        ("lab diagnose", rate.clone(), "9.99 k/s".to_owned()),
        ("load --junit", "failures=\"".to_owned(), "failures=\"9".to_owned()),
        (
            "load",
            "\nwhat         ".to_owned(),
            "\nwhat         No limit was reached, no limit was reached".to_owned(),
        ),
    ] {
        let wrong = changed(&outputs, name, &from, &to);
        assert!(!contradictions_of_run(&run, &wrong).is_empty(), "{name}: {from}");
    }
    let search = generated_searches().remove(0);
    let outputs = outputs_of_search(&search);
    for (name, from, to) in [
        (
            "edge --html",
            "<p class=\"label\">Held level</p><p class=\"value\">",
            "<p class=\"label\">Held level</p><p class=\"value\">9",
        ),
        ("edge --markdown", "**missed**", "held"),
        ("edge --junit", ", p50 ", ", p50 9"),
    ] {
        let wrong = changed(&outputs, name, from, to);
        assert!(!contradictions_of_search(&search, &wrong).is_empty(), "{name}: {from}");
    }
    let experiment = generated_experiments().remove(4);
    let outputs = outputs_of_experiment(&experiment, &NoRecords);
    let wrong = changed(&outputs, "lab run --junit", "skipped=\"", "skipped=\"9");
    assert!(!contradictions_of_experiment(&experiment, &wrong).is_empty());
}

/// The result of six trials of each arm that were limited alike, and a sentence that no limit is known.
#[test]
fn a_limit_of_all_trials_is_known_in_every_output() {
    let (mut experiment, _) = one_load();
    experiment.trials.retain(|trial| trial.position.block <= 6);
    experiment.trials.iter_mut().for_each(|trial| trial.verdict = Some("subject_limited".to_owned()));
    let judged =
        judge(&experiment.plan, &experiment.trials, &JudgeExtras { cpus: 2.0, ..JudgeExtras::default() });
    (experiment.cells, experiment.comparisons) = (judged.cells, judged.comparisons);
    (experiment.summary, experiment.warnings) = (judged.summary, judged.warnings);
    let outputs = outputs_of_experiment(&experiment, &NoRecords);
    assert_eq!(contradictions_of_experiment(&experiment, &outputs), Vec::<String>::new());
    for output in &outputs {
        let plain = output.plain.to_lowercase();
        assert!(plain.contains("subject_limited") || plain.contains("subject limited"), "{}", output.name);
        for wrong in [
            "bottleneck of neither",
            "bottlenecks are unknown",
            "bottleneck is unknown",
            "that of jemalloc is unknown",
        ] {
            assert!(!plain.contains(wrong), "{}: {wrong}", output.name);
        }
    }
    let page = outputs.iter().find(|output| output.form == OutputForm::Html).unwrap();
    assert!(page.plain.contains("subject limited in 6 of 6 trials"), "{}", page.plain);
    // The checker finds the contradiction.
    experiment.summary[1] = "The bottleneck of neither is known.".to_owned();
    let wrong = outputs_of_experiment(&experiment, &NoRecords);
    assert!(!contradictions_of_experiment(&experiment, &wrong).is_empty());
}
