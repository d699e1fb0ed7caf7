//! The page: the first screen, the sections with their charts, and what can be looked up; one file with
//! its style and script inside, which loads nothing.
//! Not for what a chart draws: see [`super::charts`].

mod answer;
mod facts;
mod figure;

use std::fmt::Write as _;

use record::experiment::Experiment;

use super::charts::{CHARTS, Chart};
use super::csv::ROWS_MAX;
use super::svg::escaped;
use super::{Beside, HTML_BYTES_MAX, Page, Raw};
use figure::Data;

const STYLE: &str = concat!(
    include_str!("light.css"),
    "@media screen and (prefers-color-scheme: dark) { :root:not([data-theme=\"light\"]) {\n",
    include_str!("dark.css"),
    "} }\n@media screen { :root[data-theme=\"dark\"] {\n",
    include_str!("dark.css"),
    "} }\n",
    include_str!("style.css")
);
const SCRIPT: &str = include_str!("script.js");

/// No page of this kind asks for anything from anywhere; a browser holds it to that.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// Room for what stands around the sections: the frame and the list of sections.
const FRAME_BYTES: usize = 20_000;

/// A section: its anchor, its title, its figures.
struct Section {
    anchor: String,
    title: String,
    body: String,
}

/// The whole page.
#[must_use]
pub(super) fn page(experiment: &Experiment, raw: &dyn Raw) -> Page {
    let answer = answer::answer(experiment);
    let mut beside = Vec::new();
    let facts = facts::sections(experiment, raw, &mut beside);
    let taken = answer.len() + facts.iter().map(|section| section.body.len()).sum::<usize>();
    let room = HTML_BYTES_MAX.saturating_sub(taken + FRAME_BYTES + STYLE.len() + SCRIPT.len());
    let mut sections = charts(experiment, raw, room, &mut beside);
    sections.extend(facts);
    let mut out = String::with_capacity(taken + 400_000);
    head(&mut out, experiment);
    out.push_str("<main>");
    out.push_str(&answer);
    contents(&mut out, &sections);
    for section in &sections {
        let _ = write!(
            out,
            "<section id=\"{0}\" aria-labelledby=\"{0}-title\"><h2 id=\"{0}-title\">{1}</h2>{2}\
             </section>",
            section.anchor,
            escaped(&section.title),
            section.body
        );
    }
    out.push_str("</main>");
    let weir = &experiment.weir;
    let _ = writeln!(
        out,
        "<footer>Made by weir {} ({}) from {}, {}. This page is complete: it loads nothing from \
         anywhere.</footer><div id=\"tip\" role=\"status\" hidden></div><script>{SCRIPT}</script>\
         </body></html>",
        escaped(&weir.version),
        escaped(&weir.commit),
        escaped(&experiment.plan.name),
        escaped(&experiment.started_at),
    );
    Page { html: out, beside }
}

fn head(out: &mut String, experiment: &Experiment) {
    let title = escaped(&experiment.plan.title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta \
         http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" \
         content=\"light dark\"><link rel=\"icon\" href=\"data:,\"><title>{title}</title><style>{STYLE}</style></head><body><header>\
         <span class=\"made\">weir lab · experiment <b>{}</b></span><button type=\"button\" \
         id=\"theme\" hidden>Dark</button></header>",
        escaped(&experiment.plan.name),
    );
}

/// The list of sections, below the first screen.
fn contents(out: &mut String, sections: &[Section]) {
    out.push_str("<nav aria-label=\"Sections\"><ol>");
    for section in sections {
        let title = escaped(&section.title);
        let _ = write!(out, "<li><a href=\"#{}\">{title}</a></li>", section.anchor);
    }
    out.push_str("</ol></nav>");
}

/// All charts by their sections, as many as fit: a drawing goes before the data of another. Data that are
/// not, or not all, in the page become files beside it.
fn charts(
    experiment: &Experiment,
    raw: &dyn Raw,
    mut room: usize,
    beside: &mut Vec<Beside>,
) -> Vec<Section> {
    let file = |chart: &Chart| figure::file_name(&experiment.plan.name, chart);
    let made = CHARTS.iter().flat_map(|(title, maker)| {
        maker(experiment, raw).into_iter().map(move |chart| (*title, chart))
    });
    let mut left_out = Vec::new();
    let mut kept: Vec<(&str, Chart, String)> = Vec::new();
    for (title, chart) in made {
        let figure = figure::figure(&chart, Data::Beside, &file(&chart));
        if figure.len() > room {
            let name = file(&chart);
            left_out.push(format!("{} ({})", escaped(&chart.title), escaped(&name)));
            beside.push(Beside { name, text: chart.figures.text() });
            continue;
        }
        room -= figure.len();
        kept.push((title, chart, figure));
    }
    let mut sections: Vec<Section> = Vec::new();
    for (title, chart, short) in kept {
        let name = file(&chart);
        let whole = figure::figure(&chart, Data::Here, &name);
        let more = whole.len().saturating_sub(short.len());
        let fits = more <= room;
        room -= if fits { more } else { 0 };
        if !chart.figures.is_empty() && (!fits || chart.figures.len() > ROWS_MAX) {
            beside.push(Beside { name, text: chart.figures.text() });
        }
        section(&mut sections, title).body.push_str(if fits { &whole } else { &short });
    }
    if !left_out.is_empty() {
        let title = sections.last().map_or_else(|| "Charts".to_owned(), |last| last.title.clone());
        let _ = write!(
            section(&mut sections, &title).body,
            "<p class=\"note\">Left out, because the page would be too large to hand around: {}. Their \
             data are in these files beside it.</p>",
            left_out.join("; ")
        );
    }
    sections
}

/// The section with this title; charts of one section stand together wherever they come from.
fn section<'a>(sections: &'a mut Vec<Section>, title: &str) -> &'a mut Section {
    let index = sections.iter().position(|section| section.title == title);
    let index = index.unwrap_or_else(|| {
        let body = String::new();
        sections.push(Section { anchor: anchor(title), title: title.to_owned(), body });
        sections.len() - 1
    });
    &mut sections[index]
}

/// A title as an anchor: letters, digits and `-`.
fn anchor(title: &str) -> String {
    let letters = title.chars().map(|letter| match letter {
        letter if letter.is_ascii_alphanumeric() => letter.to_ascii_lowercase(),
        _ => '-',
    });
    format!("s-{}", letters.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::sample;

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let (experiment, raw) = sample();
        let mut beside = Vec::new();
        let whole = charts(&experiment, &raw, usize::MAX, &mut beside);
        assert!(beside.is_empty(), "all of it fits");
        let all: usize = whole.iter().map(|section| section.body.len()).sum();
        for room in [all / 2, all / 10, 0] {
            let mut beside = Vec::new();
            let sections = charts(&experiment, &raw, room, &mut beside);
            let body: String = sections.iter().map(|section| section.body.as_str()).collect();
            assert!(body.len() <= room + 3_000, "{} of {room}", body.len());
            assert!(body.contains("too large to hand around"), "{room}");
            // What is not in the page is beside it, by the name that the page says.
            for (_, maker) in CHARTS {
                for chart in maker(&experiment, &raw).iter().filter(|it| !it.figures.is_empty()) {
                    let name = figure::file_name(&experiment.plan.name, chart);
                    let is_beside = beside.iter().find(|file| file.name == name);
                    let is_here = body.contains(&format!("data-file=\"{}.csv\"", chart.id));
                    assert!(is_beside.is_some() != is_here, "{name}");
                    let Some(file) = is_beside else { continue };
                    assert_eq!(file.text, chart.figures.text());
                    assert!(body.contains(&name), "{name}");
                }
            }
        }
    }
}
