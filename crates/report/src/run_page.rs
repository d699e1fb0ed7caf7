//! Page of a run or of a search for the edge: the answer, the figures that a reviewer asks for, then charts. One
//! file that loads nothing. Every figure comes from the record, formatted as in the text summary.
//!
//! Each drawing exists twice, for a wide and for a narrow screen; the style sheet shows one of them.

mod answer_card;
mod cpu_chart;
mod curve_chart;
mod findings;
mod first_screen;
mod ladder_chart;
mod layout;
mod load_chart;
mod resources;
mod run_facts;
mod time_chart;
mod time_split;

use experiment::format;
use maud::{Markup, html};
use record::capacity_search::CapacitySearch;
use record::run::{Diagnosis, Run};

use crate::page::{document, footer, without_control_characters};
use crate::run_comparison::RunComparison;
use crate::text::conclusions::objective_text;
use crate::text::edge;
use crate::text::summary::format_plan;
use layout::{Figure, prose, short};

/// Earlier run, drawn beside the other.
#[derive(Debug)]
pub struct PageBaseline<'a> {
    pub name: String,
    pub run: &'a Run,
    /// Changes since then.
    pub comparison: &'a RunComparison,
}

/// Maximum length of the page of a run or a search, in bytes: the drawings are bounded by their columns, and the
/// texts of a record are shortened.
pub const RUN_PAGE_BYTES_MAX: usize = 600_000;

/// Name of this run in legends.
const THIS_RUN: &str = "this run";

pub fn run_page(run: &Run, earlier: Option<&PageBaseline<'_>>) -> String {
    let baseline = earlier.map(|baseline| (short(&baseline.name, NAME_CHARS_MAX), baseline.run));
    let named = baseline.as_ref().map(|(name, run)| (name.as_str(), *run));
    let objectives: Vec<String> =
        run.objectives.iter().map(|objective| objective_text(run, objective)).collect();
    let title = format!("weir load {}", run_facts::target(run));
    let made = html! { "weir load · " b { (run_facts::target(run)) } (when(&run.started_at)) };
    let main = html! {
        section #result aria-label="Result" {
            (answer_card::card(&diagnose::answer(run), Some(run)))
            (first_screen::objectives(&objectives))
            @if let Some(baseline) = earlier {
                (figures(&[time_chart::rate(run, named)]))
                (first_screen::comparison(baseline))
            }
            (first_screen::tiles(run, &format_plan(run)))
            @if earlier.is_none() { (figures(&[time_chart::rate(run, named)])) }
            (resources::grid(run))
        }
        (section("findings", "Findings", &findings::list(run)))
        (section("time", "Over time", &figures(&[
            time_chart::latency(run, named), time_chart::in_flight(run, named),
        ])))
        (section("latency", "Latency", &html! {
            (figures(&[curve_chart::percentiles(&run_curves(run, named)), load_chart::in_flight(run, named)]))
            (time_split::bars(run))
        }))
        (section("roles", "CPU of each role", &figures(&[cpu_chart::roles(run)])))
        (ruled_out(run.diagnosis.as_ref()))
        (section("run", "Run", &run_facts::facts(&run.command, &run.host, run.duration_s)))
    };
    let page = document(&title, &made, &main, &footer(&run.weir, "a record of a run", &run.started_at));
    without_control_characters(&page.into_string())
}

pub fn edge_page(search: &CapacitySearch) -> String {
    // A record of an older version has no answer.
    let answer = search.answer.clone().unwrap_or_else(|| edge::answer(search));
    let load_text = search.at_edge.as_deref().map(format_plan);
    let stopped = search.stopped_run.as_deref().or(search.at_edge.as_deref());
    let target = run_facts::target_of_plan(&search.plan);
    let made = html! { "weir edge · " b { (target) } (when(&search.started_at)) };
    let diagnosis = search.stopped_by.as_ref().or_else(|| stopped.and_then(|run| run.diagnosis.as_ref()));
    let main = html! {
        section #result aria-label="Result" {
            (answer_card::card(&answer, search.at_edge.as_deref()))
            (figures(&[ladder_chart::latency(search)]))
            (answer_card::decision(search))
            (first_screen::search_tiles(search, load_text.as_deref()))
        }
        (section("ladder", "Goodput against the load", &figures(&[
            ladder_chart::goodput(search), ladder_chart::scaling(search),
        ])))
        @if let Some(run) = stopped {
            (section("resources", "Resources where it stopped", &resources::grid(run)))
            (section("findings", "Findings", &findings::list_search(search, run)))
            (section("latency", "Latency", &html! {
                (figures(&[curve_chart::percentiles(&search_curves(search))]))
                (time_split::bars(run))
            }))
            (section("roles", "CPU of each role", &figures(&[cpu_chart::roles(run)])))
        }
        (ruled_out(diagnosis))
        (section("run", "Search", &run_facts::facts(&search.command, &search.host, search.duration_s)))
    };
    let title = format!("weir edge {target}");
    let page =
        document(&title, &made, &main, &footer(&search.weir, "a record of a search", &search.started_at));
    without_control_characters(&page.into_string())
}

/// Returns the start time for the head of the page, which a narrow screen leaves out.
fn when(started_at: &str) -> Markup {
    html! { span.when { " · " (short(started_at, 40)) } }
}

/// Returns a section, unless its body is empty.
fn section(anchor: &str, title: &str, body: &Markup) -> Markup {
    html! {
        @if !body.0.is_empty() {
            section id=(anchor) aria-labelledby={ (anchor) "-title" } {
                h2 id={ (anchor) "-title" } { (title) }
                (body)
            }
        }
    }
}

fn figures(all: &[Option<Figure>]) -> Markup {
    html! { @for figure in all.iter().flatten() { (figure.markup()) } }
}

fn run_curves<'a>(run: &'a Run, baseline: Option<(&'a str, &'a Run)>) -> Vec<(&'a str, &'a Run)> {
    std::iter::once((THIS_RUN, run)).chain(baseline).collect()
}

fn search_curves(search: &CapacitySearch) -> Vec<(&str, &Run)> {
    let held = search.at_edge.as_deref().map(|run| ("at the edge", run));
    let stopped = search.stopped_run.as_deref().map(|run| ("where it stopped", run));
    held.into_iter().chain(stopped).collect()
}

/// Returns the rejected explanations, and the figures that could not be sampled.
fn ruled_out(diagnosis: Option<&Diagnosis>) -> Markup {
    let Some(diagnosis) = diagnosis else { return html! {} };
    let line = |text: &str| {
        let (code, reason) = text.split_once(": ").unwrap_or(("", text));
        html! { li { @if !code.is_empty() { b { (format::code_words(&short(code, 40))) } ": " } (prose(reason, LINE_CHARS_MAX)) } }
    };
    let (out, unseen) = (&diagnosis.ruled_out, &diagnosis.not_observable);
    let body = html! {
        @if !out.is_empty() {
            details.fold {
                summary { (format::count(out.len(), "explanation")) " ruled out by a figure of this run" }
                ul { @for text in out.iter().take(LINES_MAX) { (line(text)) } }
            }
        }
        @if !unseen.is_empty() {
            details.fold {
                summary { (format::count(unseen.len(), "figure")) " not observable on this machine" }
                ul { @for text in unseen.iter().take(LINES_MAX) { li { (prose(text, LINE_CHARS_MAX)) } } }
            }
        }
    };
    section("ruled-out", "Ruled out", &body)
}

/// Maximum length of the name of a file in a legend, in characters.
const NAME_CHARS_MAX: usize = 32;
/// Maximum length of a sentence of the answer and of a row of the decision, in characters. Every sentence of the
/// catalogue is far shorter; a record of strangers may have longer ones.
const ANSWER_CHARS_MAX: usize = 2_000;
/// Maximum length of each of the four lines of a finding, and of a line of a folded list, in characters.
const FINDING_CHARS_MAX: usize = 450;
const LINE_CHARS_MAX: usize = 300;
const LINES_MAX: usize = 30;
