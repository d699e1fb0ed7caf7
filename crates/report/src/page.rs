//! The page: the first screen, the sections with their charts, and the reference sections; one file
//! with its style and script inside, which loads nothing. [`super::charts`] draws the charts.

mod figure;
mod reference;
mod summary;

use std::fmt::Write as _;

use record::experiment::Experiment;

use super::charts::{CHARTS, ReportChart};
use super::data_table::ROWS_MAX;
use super::svg::escaped;
use super::{DataFile, HTML_BYTES_MAX, ReportPage, TrialRecords};
use figure::DataPlacement;

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

/// Policy that forbids the page any request; the browser enforces it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// Bytes for the content around the sections: the frame and the list of sections.
const FRAME_BYTES_MAX: usize = 20_000;

/// A section: its anchor, its title, its figures.
struct PageSection {
    anchor: String,
    title: String,
    body: String,
}

/// Returns the complete page.
#[must_use]
pub(super) fn render_page(experiment: &Experiment, raw: &dyn TrialRecords) -> ReportPage {
    let summary = summary::summary(experiment);
    let mut data_files = Vec::new();
    let facts = reference::sections(experiment, raw, &mut data_files);
    let bytes_used = summary.len() + facts.iter().map(|section| section.body.len()).sum::<usize>();
    let bytes_left = HTML_BYTES_MAX.saturating_sub(bytes_used + FRAME_BYTES_MAX + STYLE.len() + SCRIPT.len());
    let mut sections = chart_sections(experiment, raw, bytes_left, &mut data_files);
    sections.extend(facts);
    let mut out = String::with_capacity(bytes_used + 400_000);
    write_head(&mut out, experiment);
    out.push_str("<main>");
    out.push_str(&summary);
    write_contents(&mut out, &sections);
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
        "<footer>Created by weir {} ({}) from {}, {}. This page is self-contained: it loads no \
         external resources.</footer><div id=\"tip\" role=\"status\" hidden></div><script>{SCRIPT}</script>\
         </body></html>",
        escaped(&weir.version),
        escaped(&weir.commit),
        escaped(&experiment.plan.name),
        escaped(&experiment.started_at),
    );
    ReportPage { html: out, data_files }
}

fn write_head(out: &mut String, experiment: &Experiment) {
    let title = escaped(&experiment.plan.title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta \
         http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" \
         content=\"light dark\"><link rel=\"icon\" href=\"data:,\"><title>{title}</title><style>{STYLE}</style></head><body><header>\
         <span class=\"made\">weir lab · experiment <b>{}</b></span><button type=\"button\" \
         id=\"theme\" hidden>Dark</button></header>",
        escaped(&experiment.plan.name),
    );
}

/// Writes the list of sections, below the first screen.
fn write_contents(out: &mut String, sections: &[PageSection]) {
    out.push_str("<nav aria-label=\"Sections\"><ol>");
    for section in sections {
        let title = escaped(&section.title);
        let _ = write!(out, "<li><a href=\"#{}\">{title}</a></li>", section.anchor);
    }
    out.push_str("</ol></nav>");
}

/// Adds all charts by section, as many as fit; drawings take precedence over data. Data that are
/// not completely in the page become files beside it.
fn chart_sections(
    experiment: &Experiment,
    raw: &dyn TrialRecords,
    mut bytes_left: usize,
    data_files: &mut Vec<DataFile>,
) -> Vec<PageSection> {
    let file = |chart: &ReportChart| figure::data_file_name(&experiment.plan.name, chart);
    let made = CHARTS
        .iter()
        .flat_map(|(title, maker)| maker(experiment, raw).into_iter().map(move |chart| (*title, chart)));
    let mut left_out = Vec::new();
    let mut included: Vec<(&str, ReportChart, String)> = Vec::new();
    for (title, chart) in made {
        let figure = figure::render_figure(&chart, DataPlacement::SeparateFile, &file(&chart));
        if figure.len() > bytes_left {
            let name = file(&chart);
            left_out.push(format!("{} ({})", escaped(&chart.title), escaped(&name)));
            data_files.push(DataFile { name, text: chart.data.to_csv() });
            continue;
        }
        bytes_left -= figure.len();
        included.push((title, chart, figure));
    }
    let mut sections: Vec<PageSection> = Vec::new();
    for (title, chart, short) in included {
        let name = file(&chart);
        let with_data = figure::render_figure(&chart, DataPlacement::Inline, &name);
        let more = with_data.len().saturating_sub(short.len());
        let fits = more <= bytes_left;
        bytes_left -= if fits { more } else { 0 };
        if !chart.data.is_empty() && (!fits || chart.data.len() > ROWS_MAX) {
            data_files.push(DataFile { name, text: chart.data.to_csv() });
        }
        section_with_title(&mut sections, title).body.push_str(if fits { &with_data } else { &short });
    }
    if !left_out.is_empty() {
        let title = sections.last().map_or_else(|| "Charts".to_owned(), |last| last.title.clone());
        let _ = write!(
            section_with_title(&mut sections, &title).body,
            "<p class=\"note\">Omitted because of the page size: {}. The data are in these files beside \
             the page.</p>",
            left_out.join("; ")
        );
    }
    sections
}

/// Returns the section with this title. Charts of one section are grouped, in whatever order they
/// come.
fn section_with_title<'a>(sections: &'a mut Vec<PageSection>, title: &str) -> &'a mut PageSection {
    let index = sections.iter().position(|section| section.title == title);
    let index = index.unwrap_or_else(|| {
        let body = String::new();
        sections.push(PageSection { anchor: anchor(title), title: title.to_owned(), body });
        sections.len() - 1
    });
    &mut sections[index]
}

/// Returns a title as an anchor: letters, digits and `-`.
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
    use crate::synthetic::synthetic_experiment;

    #[test]
    fn charts_beyond_the_size_limit_are_left_out_and_noted() {
        let (experiment, raw) = synthetic_experiment();
        let mut data_files = Vec::new();
        let all_sections = chart_sections(&experiment, &raw, usize::MAX, &mut data_files);
        assert!(data_files.is_empty(), "all of it fits");
        let all: usize = all_sections.iter().map(|section| section.body.len()).sum();
        for bytes_left in [all / 2, all / 10, 0] {
            let mut data_files = Vec::new();
            let sections = chart_sections(&experiment, &raw, bytes_left, &mut data_files);
            let body: String = sections.iter().map(|section| section.body.as_str()).collect();
            assert!(body.len() <= bytes_left + 3_000, "{} of {bytes_left}", body.len());
            assert!(!data_files.is_empty(), "{bytes_left}");
            // Data that are not in the page are in a file beside it, under the name in the page.
            for (_, maker) in CHARTS {
                for chart in maker(&experiment, &raw).iter().filter(|it| !it.data.is_empty()) {
                    let name = figure::data_file_name(&experiment.plan.name, chart);
                    let is_beside = data_files.iter().find(|file| file.name == name);
                    let is_here = body.contains(&format!("data-file=\"{}.csv\"", chart.id));
                    assert!(is_beside.is_some() != is_here, "{name}");
                    let Some(file) = is_beside else { continue };
                    assert_eq!(file.text, chart.data.to_csv());
                    assert!(body.contains(&name), "{name}");
                }
            }
        }
    }
}
