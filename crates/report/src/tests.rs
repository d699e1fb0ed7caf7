//! Tests of the complete report of a synthetic experiment: well-formed, complete, bounded and
//! self-contained.

mod browser;
mod outputs;
mod run_page;

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{ComparisonOutcome, Experiment};

use super::charts::{CHARTS, ChartPart};
use super::synthetic::{ARMS, MARKUP_NAME, NoRecords, one_load, synthetic_experiment};
use super::*;

/// Elements without an end tag.
const VOID_ELEMENTS: [&str; 3] = ["meta", "link", "br"];
/// Elements whose content is not markup.
const RAW_TEXT_ELEMENTS: [&str; 2] = ["script", "style"];

/// A start tag.
#[derive(Debug)]
struct Tag {
    name: String,
    attributes: BTreeMap<String, String>,
}

/// Parses a page strictly: every element ends in order, every attribute is quoted and unique, and
/// every `<` is escaped. Panics otherwise.
fn parse_page(page: &str) -> Vec<Tag> {
    let mut tags = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap_or(page);
    while let Some(at) = rest.find('<') {
        assert_entities(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(end) = rest.strip_prefix('/') {
            let (name, after) = end.split_once('>').expect("an end that ends");
            assert_eq!(open.pop().as_deref(), Some(name), "…{}", excerpt(after));
            rest = after;
            continue;
        }
        let (tag, empty, after) = parse_tag(rest);
        rest = after;
        if RAW_TEXT_ELEMENTS.contains(&tag.name.as_str()) {
            let end = format!("</{}>", tag.name);
            let at = rest.find(&end).expect("an end of raw text");
            rest = &rest[at + end.len()..];
        } else if !empty && !VOID_ELEMENTS.contains(&tag.name.as_str()) {
            open.push(tag.name.clone());
        }
        tags.push(tag);
    }
    assert_eq!(open, [""; 0], "all are ended");
    tags
}

fn excerpt(text: &str) -> &str {
    let end = (0..=200.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn assert_entities(text: &str) {
    for (at, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
        assert!(known.iter().any(|entity| text[at..].starts_with(entity)), "{}", excerpt(&text[at..]));
    }
}

fn parse_tag(text: &str) -> (Tag, bool, &str) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let end = text.find(|c| !is_name(c)).expect("a name that ends");
    assert!(end > 0, "no name: <{}", excerpt(text));
    let mut tag = Tag { name: text[..end].to_owned(), attributes: BTreeMap::new() };
    let mut rest = &text[end..];
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("/>") {
            return (tag, true, after);
        }
        if let Some(after) = rest.strip_prefix('>') {
            return (tag, false, after);
        }
        let end = rest.find(|c| !is_name(c) && c != 'B').expect("an attribute that ends");
        assert!(end > 0, "no attribute: {}", excerpt(rest));
        let name = rest[..end].to_owned();
        rest = &rest[end..];
        let value = match rest.strip_prefix("=\"") {
            Some(quoted) => {
                let (value, after) = quoted.split_once('"').expect("a value that ends");
                rest = after;
                value.to_owned()
            }
            None => String::new(),
        };
        assert!(!value.contains('<'), "{value}");
        assert_entities(&value);
        assert!(tag.attributes.insert(name.clone(), value).is_none(), "{name} twice");
    }
}

/// Checks the requirements for every page.
fn check_page(page: &str) {
    assert!(page.len() <= HTML_BYTES_MAX, "{} bytes", page.len());
    let tags = parse_page(page);
    let mut ids = BTreeSet::new();
    for tag in &tags {
        if let Some(id) = tag.attributes.get("id") {
            assert!(ids.insert(id.as_str()), "{id} twice");
        }
    }
    for tag in &tags {
        assert!(!tag.attributes.contains_key("src"), "{tag:?}");
        for name in ["href", "xlink-href", "action", "srcset", "data"] {
            let Some(target) = tag.attributes.get(name) else { continue };
            match target.strip_prefix('#') {
                Some(id) => assert!(ids.contains(id), "nothing is called {id}"),
                None => assert_eq!(target, "data:,", "{tag:?}"),
            }
        }
        for id in tag.attributes.get("aria-labelledby").iter().flat_map(|ids| ids.split(' ')) {
            assert!(ids.contains(id), "nothing is called {id}");
        }
        let runs = tag.attributes.keys().find(|name| name.starts_with("on"));
        assert_eq!(runs, None, "{tag:?}");
        if tag.name == "svg" {
            assert_eq!(tag.attributes.get("role").map(String::as_str), Some("img"));
        }
    }
    let scripts = tags.iter().filter(|tag| tag.name == "script").count();
    assert_eq!(scripts, 1, "the page's own and no other");
    for word in ["@import", "url(", "NaN", "inf\""] {
        assert!(!page.contains(word), "{word}");
    }
}

/// Returns the same experiment with names that a page must not interpret as markup.
fn with_markup_names() -> (Experiment, synthetic::SyntheticRecords) {
    let (mut experiment, raw) = synthetic_experiment();
    let rename = |name: &mut String| {
        if name == ARMS[2] {
            MARKUP_NAME.clone_into(name);
        }
    };
    experiment.plan.arms.iter_mut().for_each(|arm| rename(&mut arm.name));
    experiment.cells.iter_mut().for_each(|cell| rename(&mut cell.arm));
    experiment.comparisons.iter_mut().for_each(|comparison| {
        rename(&mut comparison.arm);
        MARKUP_NAME.clone_into(&mut comparison.text);
        comparison.bound = Some(MARKUP_NAME.to_owned());
    });
    for line in &mut experiment.trials {
        rename(&mut line.position.arm);
        line.verdict = Some(MARKUP_NAME.to_owned());
        line.failed = line.failed.is_some().then(|| MARKUP_NAME.to_owned());
    }
    for metric in &mut experiment.plan.metrics {
        MARKUP_NAME.clone_into(&mut metric.title);
    }
    experiment.plan.arms[2].title = MARKUP_NAME.to_owned();
    experiment.plan.arms[2].changes.insert(MARKUP_NAME.to_owned(), MARKUP_NAME.to_owned());
    experiment.plan.loads[0].title = MARKUP_NAME.to_owned();
    experiment.warnings[0].text = MARKUP_NAME.to_owned();
    experiment.warnings[0].code = MARKUP_NAME.to_owned();
    experiment.summary = vec![MARKUP_NAME.to_owned(); 2];
    experiment.environment.insert(MARKUP_NAME.to_owned(), MARKUP_NAME.to_owned());
    experiment.host.not_observable = vec![MARKUP_NAME.to_owned()];
    experiment.stopped.text = MARKUP_NAME.to_owned();
    experiment.started_at = MARKUP_NAME.to_owned();
    experiment.command.push(MARKUP_NAME.to_owned());
    (experiment, raw)
}

#[test]
fn the_page_is_well_formed_bounded_and_alone() {
    for (experiment, raw) in [synthetic_experiment(), one_load(), with_markup_names()] {
        let page = html(&experiment, &raw).html;
        check_page(&page);
        assert!(!page.contains("<script>alert"), "a name became markup");
        check_page(&html(&experiment, &NoRecords).html);
    }
}

#[test]
fn an_experiment_without_anything_has_a_page_too() {
    let (mut experiment, _) = synthetic_experiment();
    experiment.trials.clear();
    experiment.cells.clear();
    experiment.comparisons.clear();
    experiment.warnings.clear();
    experiment.summary.clear();
    experiment.scalings.clear();
    experiment.partial = true;
    let page = html(&experiment, &NoRecords).html;
    check_page(&page);
    assert!(page.contains("No result yet") && page.contains("Not finished."));
    assert!(page.contains("No warnings."));
    experiment.plan = record::experiment::ExperimentPlan::default();
    check_page(&html(&experiment, &NoRecords).html);
    assert!(markdown(&experiment, &NoRecords).contains("No result yet"));
}

#[test]
fn non_finite_figures_do_no_harm() {
    let (mut experiment, raw) = synthetic_experiment();
    for comparison in &mut experiment.comparisons {
        comparison.ratio = Some(f64::NAN);
        comparison.interval = Some((f64::NEG_INFINITY, f64::INFINITY));
        comparison.pairs.iter_mut().for_each(|pair| pair.arm = f64::NAN);
    }
    for line in &mut experiment.trials {
        line.metrics.values_mut().for_each(|value| *value = f64::NAN);
    }
    for cell in &mut experiment.cells {
        cell.metrics.values_mut().for_each(|spread| spread.max = f64::INFINITY);
    }
    check_page(&html(&experiment, &raw).html);
    let (mut experiment, raw) = synthetic_experiment();
    experiment.comparisons.iter_mut().for_each(|comparison| {
        comparison.ratio = None;
        comparison.interval = None;
        comparison.pairs.clear();
        comparison.outcome = ComparisonOutcome::Inconclusive;
    });
    check_page(&html(&experiment, &raw).html);
}

#[test]
fn every_chart_is_there_with_a_title_a_caption_and_its_data() {
    let (experiment, raw) = synthetic_experiment();
    let page = html(&experiment, &raw).html;
    let mut ids = BTreeSet::new();
    for (section, maker) in CHARTS {
        assert!(page.contains(&format!(">{section}</h2>")), "{section}");
        for chart in maker(&experiment, &raw) {
            assert!(page.contains(&format!("<figure id=\"{}\">", chart.id)), "{}", chart.id);
            assert!(ids.insert(chart.id.clone()), "{} twice", chart.id);
            assert!(!chart.title.is_empty() && chart.caption.ends_with('.'), "{}", chart.id);
            assert!(!chart.parts.is_empty(), "{}", chart.id);
            let shown = chart.parts.iter().any(|part| !matches!(part, ChartPart::Empty(_)));
            assert!(shown, "{} has no data: {:?}", chart.id, chart.parts);
            let rows = data_table::parse(&chart.data.to_csv());
            assert!(rows.len() > 1, "{} has no figures", chart.id);
            assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{}", chart.id);
        }
    }
    for id in ["forest", "blocks", "boxes", "latency", "ladder", "cells", "time-wait"] {
        assert!(ids.contains(id), "{id}");
    }
}

#[test]
fn with_one_arm_every_chart_has_its_data_too() {
    let (mut experiment, raw) = synthetic_experiment();
    experiment.plan.arms.truncate(2);
    experiment.comparisons.retain(|comparison| comparison.noise);
    for chart in CHARTS.iter().flat_map(|(_, maker)| maker(&experiment, &raw)) {
        let shown = chart.parts.iter().any(|part| !matches!(part, ChartPart::Empty(_)));
        assert!(!shown || !chart.data.is_empty(), "{} cannot be saved", chart.id);
    }
    let page = html(&experiment, &raw).html;
    check_page(&page);
    assert!(page.contains("12 blocks of 6 trials"), "blocks are counted without a comparison");
    assert!(page.contains("data-file=\"calls.csv\""), "counted calls");
}

#[test]
fn a_chart_without_records_says_that_it_has_no_data() {
    let (experiment, _) = synthetic_experiment();
    let page = html(&experiment, &NoRecords).html;
    assert!(page.contains("No data"), "latency curves");
}

#[test]
fn the_first_screen_has_the_outcome_size_certainty_and_reason() {
    let (experiment, raw) = synthetic_experiment();
    let page = html(&experiment, &raw).html;
    let (_, summary) = page.split_once("<section id=\"result\"").expect("a first screen");
    let (summary, _) = summary.split_once("<nav").expect("sections behind it");
    for phrase in [
        "4.9 %",
        "class=\"badge good\"",
        "</span> better</span>",
        "95 % interval −",
        "; P(better) ",
        "subject.env.LD_PRELOAD",
        "12 blocks of 9 trials of 8 s",
        "10 to 30",
        "(A/A): ",
        "user cpu bound</b>",
        "33 of 36",
        "1 warning",
        "<h2>Warnings</h2>",
        "6 trials",
        "3 failed",
    ] {
        assert!(summary.contains(phrase), "{phrase}: {summary}");
    }
}

#[test]
fn noise_from_one_block_has_no_figure() {
    let (mut experiment, raw) = synthetic_experiment();
    for comparison in &mut experiment.comparisons {
        comparison.pairs.truncate(1);
        (comparison.outcome, comparison.interval) = (ComparisonOutcome::Inconclusive, None);
        if comparison.noise {
            comparison.ratio = Some(10.23);
        }
    }
    let page = html(&experiment, &raw).html;
    let (_, summary) = page.split_once("<section id=\"result\"").expect("a first screen");
    let (summary, _) = summary.split_once("<nav").expect("sections behind it");
    assert!(summary.contains("(A/A)") && summary.contains("(min 4 blocks)"), "{summary}");
    assert!(summary.contains("(min 4)") && !summary.contains("P(better)"), "{summary}");
    for text in [&page, &markdown(&experiment, &raw)] {
        assert!(text.contains("(1 of 4)") && !text.contains("×10.2"), "{text}");
    }
}

#[test]
fn trials_that_do_not_count_are_listed_with_the_reason() {
    let (experiment, raw) = synthetic_experiment();
    let page = html(&experiment, &raw).html;
    assert!(page.contains("took 6.1 %"), "discarded");
    assert!(page.contains("bind() to 10.71.0.2:80 failed"), "failed");
    assert!(page.contains("allocator.toml --set 'note=a b'"), "the command");
    assert!(page.contains("nginx -c nginx.conf"), "what was run");
}

#[test]
fn the_same_experiment_makes_the_same_page() {
    let (experiment, raw) = synthetic_experiment();
    assert_eq!(html(&experiment, &raw), html(&experiment, &raw));
}

#[test]
fn a_synthetic_report_is_written_to_the_requested_file() {
    let Some(path) = std::env::var_os("WEIR_REPORT_SAMPLE") else { return };
    let (experiment, raw) = synthetic_experiment();
    std::fs::write(path, html(&experiment, &raw).html).unwrap();
}
