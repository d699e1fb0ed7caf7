//! Tests over all outputs of a result: text, Markdown, JUnit, pages and JSON have the same whole sentences, and no
//! figure of one contradicts that of another.

mod agreement;
mod plain;

use record::capacity_search::CapacitySearch;
use record::experiment::Experiment;
use record::run::{Answer, Diagnosis, Run};

use self::plain::{Output, OutputForm};
use crate::TrialRecords;
use crate::synthetic::{NoRecords, one_load, synthetic_experiment};
use crate::text::edge::contradictions::generated_searches;
use crate::text::summary::tests::{generated_records, stored_records};
use crate::text::summary::{Detail, summary};
use crate::text::{answer, diagnosis, edge, experiment, junit, junit_suite, markdown, search_markdown};

/// Returns all outputs of a run: those of `weir load`, `load report`, and `lab diagnose`.
pub(super) fn outputs_of_run(run: &Run) -> Vec<Output> {
    let diagnosed = format!("{}\n{}", answer::format_head(run), diagnosis::format_diagnosis(run, true));
    vec![
        Output::new("load", OutputForm::Text, summary(run, Detail::Default, false)),
        Output::new("load -v", OutputForm::Text, summary(run, Detail::Verbose, false)),
        Output::new("lab diagnose", OutputForm::Text, diagnosed),
        Output::new("load --markdown", OutputForm::Markdown, markdown::markdown(run)),
        Output::new("load --junit", OutputForm::Xml, junit::junit(run)),
        Output::new("load --html", OutputForm::Html, crate::run_page(run, None)),
    ]
}

pub(super) fn outputs_of_search(search: &CapacitySearch) -> Vec<Output> {
    vec![
        Output::new("edge", OutputForm::Text, edge::summary(search, false)),
        Output::new("edge --markdown", OutputForm::Markdown, search_markdown::search_markdown(search)),
        Output::new("edge --junit", OutputForm::Xml, junit_suite::edge_junit(search, true)),
        Output::new("edge --html", OutputForm::Html, crate::edge_page(search)),
    ]
}

pub(super) fn outputs_of_experiment(all: &Experiment, raw: &dyn TrialRecords) -> Vec<Output> {
    vec![
        Output::new("lab run", OutputForm::Text, experiment::format_experiment(all, raw)),
        Output::new("report.md", OutputForm::Markdown, crate::markdown(all, raw)),
        Output::new("lab run --junit", OutputForm::Xml, junit_suite::experiment_junit(all)),
        Output::new("report.html", OutputForm::Html, crate::html(all, raw).html),
    ]
}

/// Checks that an output has every sentence of an answer, whole. A page may fold the second sentence of one.
fn assert_has_answer(output: &Output, answer: &Answer) {
    for text in [&answer.what, &answer.why, &answer.next] {
        for part in plain::sentences(text) {
            assert!(output.plain.contains(&part), "{} lacks {part:?}: {}", output.name, output.plain);
        }
    }
    assert!(!output.answer_part().contains('…'), "{}: {}", output.name, output.answer_part());
}

/// Makes every sentence long: a long address, and a long reason against the run.
fn with_long_texts(mut run: Run) -> Run {
    let url = format!("http://service.example/{}", "path/".repeat(90));
    run.plan["requests"][0]["url"] = url.into();
    if let Some(reason) = run.validity.reasons.first_mut() {
        reason.text = format!("{} at last", "a reason of many words ".repeat(25));
    }
    run
}

#[test]
fn every_output_of_a_run_has_its_three_sentences_whole() {
    let long = generated_records().into_iter().step_by(3).map(with_long_texts);
    let mut lengths = Vec::new();
    for run in generated_records().into_iter().chain(long).chain(stored_records()) {
        let answer = diagnose::answer(&run);
        for output in outputs_of_run(&run) {
            assert_has_answer(&output, &answer);
        }
        lengths.push(answer.next.chars().count());
        let brief = summary(&run, Detail::Brief, false);
        assert!(brief.contains(&answer.what) && !brief.contains('…'), "{brief}");
        let in_json = serde_json::to_string(&Run { answer: Some(answer), ..run }).unwrap();
        assert!(!in_json.contains('…'), "{in_json}");
    }
    assert!(
        lengths.len() >= 280 && lengths.iter().filter(|length| **length > 400).count() > 20,
        "{lengths:?}"
    );
}

#[test]
fn every_output_of_a_search_has_its_answer_and_its_decision_whole() {
    for mut search in generated_searches() {
        let long = format!("weir edge --baseline page.json http://h/{}", "segment/".repeat(80));
        if let Some(decision) = &mut search.decision {
            decision.prove = long.clone();
        }
        let answer = edge::answer(&search);
        for output in outputs_of_search(&search) {
            assert_has_answer(&output, &answer);
            assert!(output.plain.contains(&plain::words(&long)), "{}: the command", output.name);
        }
        assert!(edge::brief(&search).contains(&answer.what));
    }
}

#[test]
fn every_output_of_an_experiment_has_its_answer_whole() {
    let long = |mut all: Experiment| {
        let reason = "a long reason ".repeat(40);
        all.summary[1] =
            format!("{reason} here. It is so under each of the three loads, and in every block.");
        all
    };
    let (several, single) = (synthetic_experiment().0, one_load().0);
    for all in [several.clone(), single.clone(), long(several), long(single)] {
        let answer = experiment::answer(&all);
        for output in outputs_of_experiment(&all, &NoRecords) {
            assert_has_answer(&output, &answer);
        }
    }
}

#[test]
fn a_page_bounds_the_sentences_of_a_stranger_without_cutting_one() {
    let mut run = generated_records().remove(0);
    run.diagnosis = Some(Diagnosis { verdict: "none".to_owned(), ..Diagnosis::default() });
    run.plan["requests"][0]["url"] = format!("http://h/{}", "x".repeat(50_000)).into();
    let page = Output::new("load --html", OutputForm::Html, crate::run_page(&run, None));
    assert!(
        page.plain.contains("The rest is in the record.") && !page.answer_part().contains('…'),
        "{}",
        page.answer_part()
    );
}
