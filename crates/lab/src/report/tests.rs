//! The whole report of a made-up experiment: that it is well formed, complete, bounded and alone.

mod browser;

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Experiment, Outcome};

use super::charts::{CHARTS, Part};
use super::sample::{ARMS, NASTY, NoRaw, one_load, sample};
use super::*;

/// Elements that have no end.
const VOID: [&str; 3] = ["meta", "link", "br"];
/// Elements whose inside is no markup.
const RAW: [&str; 2] = ["script", "style"];

/// An element's begin.
#[derive(Debug)]
struct Tag {
    name: String,
    attributes: BTreeMap<String, String>,
}

/// Reads a page strictly: every element is ended in its order, every attribute is quoted and stands
/// once, no `<` stands for itself. Panics where it is not so.
fn read(page: &str) -> Vec<Tag> {
    let mut tags = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap_or(page);
    while let Some(at) = rest.find('<') {
        assert_entities(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(end) = rest.strip_prefix('/') {
            let (name, after) = end.split_once('>').expect("an end that ends");
            assert_eq!(open.pop().as_deref(), Some(name), "…{}", around(after));
            rest = after;
            continue;
        }
        let (tag, empty, after) = begin(rest);
        rest = after;
        if RAW.contains(&tag.name.as_str()) {
            let end = format!("</{}>", tag.name);
            let at = rest.find(&end).expect("an end of raw text");
            rest = &rest[at + end.len()..];
        } else if !empty && !VOID.contains(&tag.name.as_str()) {
            open.push(tag.name.clone());
        }
        tags.push(tag);
    }
    assert_eq!(open, [""; 0], "all are ended");
    tags
}

fn around(text: &str) -> &str {
    let end = (0..=200.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn assert_entities(text: &str) {
    for (at, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
        assert!(
            known.iter().any(|entity| text[at..].starts_with(entity)),
            "{}",
            around(&text[at..])
        );
    }
}

fn begin(text: &str) -> (Tag, bool, &str) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let end = text.find(|c| !is_name(c)).expect("a name that ends");
    assert!(end > 0, "no name: <{}", around(text));
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
        assert!(end > 0, "no attribute: {}", around(rest));
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

/// What every page has to be.
fn check(page: &str) {
    assert!(page.len() <= HTML_BYTES_MAX, "{} bytes", page.len());
    let tags = read(page);
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

/// The same experiment with names that no page may take for markup.
fn nasty() -> (Experiment, sample::SampleRaw) {
    let (mut experiment, raw) = sample();
    let rename = |name: &mut String| {
        if name == ARMS[2] {
            NASTY.clone_into(name);
        }
    };
    experiment.plan.arms.iter_mut().for_each(|arm| rename(&mut arm.name));
    experiment.cells.iter_mut().for_each(|cell| rename(&mut cell.arm));
    experiment.comparisons.iter_mut().for_each(|one| {
        rename(&mut one.arm);
        NASTY.clone_into(&mut one.text);
        one.bound = Some(NASTY.to_owned());
    });
    for line in &mut experiment.trials {
        rename(&mut line.place.arm);
        line.verdict = Some(NASTY.to_owned());
        line.failed = line.failed.is_some().then(|| NASTY.to_owned());
    }
    for metric in &mut experiment.plan.metrics {
        NASTY.clone_into(&mut metric.title);
    }
    experiment.plan.arms[2].title = NASTY.to_owned();
    experiment.plan.arms[2].changes.insert(NASTY.to_owned(), NASTY.to_owned());
    experiment.plan.loads[0].title = NASTY.to_owned();
    experiment.warnings[0].text = NASTY.to_owned();
    experiment.warnings[0].code = NASTY.to_owned();
    experiment.summary = vec![NASTY.to_owned(); 2];
    experiment.environment.insert(NASTY.to_owned(), NASTY.to_owned());
    experiment.host.not_observable = vec![NASTY.to_owned()];
    experiment.stopped.text = NASTY.to_owned();
    experiment.started_at = NASTY.to_owned();
    experiment.command.push(NASTY.to_owned());
    (experiment, raw)
}

#[test]
fn the_page_is_well_formed_bounded_and_alone() {
    for (experiment, raw) in [sample(), one_load(), nasty()] {
        let page = html(&experiment, &raw).html;
        check(&page);
        assert!(!page.contains("<script>alert"), "a name became markup");
        check(&html(&experiment, &NoRaw).html);
    }
}

#[test]
fn an_experiment_without_anything_has_a_page_too() {
    let (mut experiment, _) = sample();
    experiment.trials.clear();
    experiment.cells.clear();
    experiment.comparisons.clear();
    experiment.warnings.clear();
    experiment.summary.clear();
    experiment.scalings.clear();
    experiment.partial = true;
    let page = html(&experiment, &NoRaw).html;
    check(&page);
    assert!(page.contains("There is no answer yet") && page.contains("Not finished."));
    assert!(page.contains("No warnings."));
    experiment.plan = record::experiment::Plan::default();
    check(&html(&experiment, &NoRaw).html);
    assert!(markdown(&experiment, &NoRaw).contains("There is no answer yet"));
}

#[test]
fn figures_that_are_no_numbers_do_no_harm() {
    let (mut experiment, raw) = sample();
    for one in &mut experiment.comparisons {
        one.ratio = Some(f64::NAN);
        one.interval = Some((f64::NEG_INFINITY, f64::INFINITY));
        one.pairs.iter_mut().for_each(|pair| pair.arm = f64::NAN);
    }
    for line in &mut experiment.trials {
        line.metrics.values_mut().for_each(|value| *value = f64::NAN);
    }
    for cell in &mut experiment.cells {
        cell.metrics.values_mut().for_each(|spread| spread.max = f64::INFINITY);
    }
    check(&html(&experiment, &raw).html);
    let (mut experiment, raw) = sample();
    experiment.comparisons.iter_mut().for_each(|one| {
        one.ratio = None;
        one.interval = None;
        one.pairs.clear();
        one.outcome = Outcome::Inconclusive;
    });
    check(&html(&experiment, &raw).html);
}

#[test]
fn every_chart_is_there_with_a_title_a_caption_and_its_data() {
    let (experiment, raw) = sample();
    let page = html(&experiment, &raw).html;
    let mut ids = BTreeSet::new();
    for (section, maker) in CHARTS {
        assert!(page.contains(&format!(">{section}</h2>")), "{section}");
        for chart in maker(&experiment, &raw) {
            assert!(page.contains(&format!("<figure id=\"{}\">", chart.id)), "{}", chart.id);
            assert!(ids.insert(chart.id.clone()), "{} twice", chart.id);
            assert!(!chart.title.is_empty() && chart.caption.ends_with('.'), "{}", chart.id);
            assert!(!chart.parts.is_empty(), "{}", chart.id);
            let shown = chart.parts.iter().any(|part| !matches!(part, Part::Empty(_)));
            assert!(shown, "{} has no data: {:?}", chart.id, chart.parts);
            let rows = csv::parse(&chart.figures.text());
            assert!(rows.len() > 1, "{} has no figures", chart.id);
            assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{}", chart.id);
        }
    }
    for id in ["forest", "blocks", "boxes", "latency", "ladder", "cells"] {
        assert!(ids.contains(id), "{id}");
    }
}

#[test]
fn with_one_arm_every_chart_has_its_data_too() {
    let (mut experiment, raw) = sample();
    experiment.plan.arms.truncate(2);
    experiment.comparisons.retain(|one| one.noise);
    for chart in CHARTS.iter().flat_map(|(_, maker)| maker(&experiment, &raw)) {
        let shown = chart.parts.iter().any(|part| !matches!(part, Part::Empty(_)));
        assert!(!shown || !chart.figures.is_empty(), "{} cannot be saved", chart.id);
    }
    let page = html(&experiment, &raw).html;
    check(&page);
    assert!(page.contains("12 blocks of 6 trials"), "blocks are counted without a comparison");
    assert!(page.contains("data-file=\"calls.csv\""), "counted calls");
}

#[test]
fn a_chart_without_records_says_that_it_has_no_data() {
    let (experiment, _) = sample();
    let page = html(&experiment, &NoRaw).html;
    assert!(page.contains("No data: the trials"), "latency curves");
}

#[test]
fn the_first_screen_says_what_won_by_how_much_how_sure_and_why() {
    let (experiment, raw) = sample();
    let page = html(&experiment, &raw).html;
    let (_, answer) = page.split_once("<section id=\"answer\"").expect("a first screen");
    let (answer, _) = answer.split_once("<nav").expect("sections behind it");
    for said in [
        "jemalloc is faster: 4.9 % less",
        "class=\"badge good\"",
        "</span> better</span>",
        "95 % interval −",
        "; P(better) ",
        "subject.env.LD_PRELOAD",
        "12 blocks of 9 trials of 8 s each; planned were 10 to 30 blocks.",
        "glibc against itself (A/A) gives",
        "user cpu bound</b> in 33 of 36 trials",
        "1 warning to read before it is believed",
        "Read this before you believe it",
        "6 trials discarded, 3 failed",
    ] {
        assert!(answer.contains(said), "{said}: {answer}");
    }
}

#[test]
fn what_one_block_says_of_the_noise_is_no_figure() {
    let (mut experiment, raw) = sample();
    for one in &mut experiment.comparisons {
        one.pairs.truncate(1);
        (one.outcome, one.interval) = (Outcome::Inconclusive, None);
        if one.noise {
            one.ratio = Some(10.23);
        }
    }
    let page = html(&experiment, &raw).html;
    let (_, answer) = page.split_once("<section id=\"answer\"").expect("a first screen");
    let (answer, _) = answer.split_once("<nav").expect("sections behind it");
    assert!(answer.contains("(A/A) is not known yet: it takes at least 6 blocks"), "{answer}");
    assert!(answer.contains("too few blocks for an interval: it takes at least 6"), "{answer}");
    assert!(!answer.contains("P(better)"), "{answer}");
    for text in [&page, &markdown(&experiment, &raw)] {
        assert!(text.contains("too few blocks (1 of 6)") && !text.contains("×10.2"), "{text}");
    }
}

#[test]
fn trials_that_do_not_count_are_listed_with_the_reason() {
    let (experiment, raw) = sample();
    let page = html(&experiment, &raw).html;
    assert!(page.contains("the hypervisor took 6.1 % of the machine"), "discarded");
    assert!(page.contains("bind() to 10.71.0.2:80 failed"), "failed");
    assert!(page.contains("weir lab run allocator.toml --set &#39;note=a b&#39;"), "the command");
    assert!(page.contains("nginx -c nginx.conf"), "what was run");
}

#[test]
fn the_same_experiment_makes_the_same_page() {
    let (experiment, raw) = sample();
    assert_eq!(html(&experiment, &raw), html(&experiment, &raw));
}

#[test]
fn a_sample_is_written_where_it_is_asked_for() {
    let Some(path) = std::env::var_os("WEIR_REPORT_SAMPLE") else { return };
    let (experiment, raw) = sample();
    std::fs::write(path, html(&experiment, &raw).html).unwrap();
}
