//! The page: the first screen, the sections with their charts, and the reference sections; one file
//! with its style and script inside, which loads nothing. [`super::charts`] draws the charts. All
//! markup is made by `html!`, which escapes every text.

pub(super) mod figure;
mod reference;
mod summary;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use record::experiment::Experiment;
use record::run::WeirVersion;

use super::charts::{CHARTS, ReportChart};
use super::data_table::ROWS_MAX;
use super::{DataFile, HTML_BYTES_MAX, ReportPage, TrialRecords};
use figure::DataPlacement;

/// Style of drawings, also in files of their own. Both themes are the same names of colours.
pub(super) const DRAWING_STYLE: &str = concat!(
    include_str!("light.css"),
    "@media screen and (prefers-color-scheme: dark) { :root:not([data-theme=\"light\"]) {\n",
    include_str!("dark.css"),
    "} }\n",
    include_str!("drawing.css")
);
/// Style of the page: the theme that the reader chose, and its layout.
const PAGE_STYLE: &str = concat!(
    "@media screen { :root[data-theme=\"dark\"] {\n",
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
    body: Markup,
}

pub(super) fn render_page(experiment: &Experiment, raw: &dyn TrialRecords) -> ReportPage {
    let summary = summary::summary(experiment);
    let mut data_files = Vec::new();
    let facts = reference::sections(experiment, raw, &mut data_files);
    let context = summary::context(experiment);
    let bytes_used =
        summary.0.len() + context.0.len() + facts.iter().map(|section| section.body.0.len()).sum::<usize>();
    let frame = FRAME_BYTES_MAX + DRAWING_STYLE.len() + PAGE_STYLE.len() + SCRIPT.len();
    let bytes_left = HTML_BYTES_MAX.saturating_sub(bytes_used + frame);
    let mut sections = chart_sections(experiment, raw, bytes_left, &mut data_files);
    sections.extend(facts);
    let page = page_markup(experiment, (&summary, &context), &sections).into_string();
    ReportPage { html: without_control_characters(&page), data_files }
}

fn page_markup(
    experiment: &Experiment,
    (summary, context): (&Markup, &Markup),
    sections: &[PageSection],
) -> Markup {
    let (plan, weir) = (&experiment.plan, &experiment.weir);
    let made = html! { "weir lab · experiment " b { (plan.name) } };
    // Without a comparison on the first screen, its drawing is the first of the charts.
    let charts_first = usize::from(!summary::has_comparisons(experiment)).min(sections.len());
    let (first, others) = sections.split_at(charts_first);
    let main = html! {
        (summary)
        (section_list(first))
        (context)
        nav aria-label="Sections" {
            ol {
                @for section in sections {
                    li { a href={ "#" (section.anchor) } { (section.title) } }
                }
            }
        }
        (section_list(others))
    };
    document(&plan.title, &made, &main, &footer(weir, &plan.name, &experiment.started_at))
}

fn section_list(sections: &[PageSection]) -> Markup {
    html! {
        @for PageSection { anchor, title, body } in sections {
            section id=(anchor) aria-labelledby={ (anchor) "-title" } {
                h2 id={ (anchor) "-title" } { (title) }
                (body)
            }
        }
    }
}

/// Returns the last line of a page: its origin.
pub(super) fn footer(weir: &WeirVersion, source: &str, started_at: &str) -> Markup {
    html! {
        "Created by weir " (weir.version) " (" (weir.commit) ") from " (source) ", " (started_at)
        ". This page is self-contained: it loads no external resources."
    }
}

/// Returns a complete document: `made` is its first line.
pub(super) fn document(title: &str, made: &Markup, main: &Markup, footer: &Markup) -> Markup {
    html! {
        (DOCTYPE) "\n"
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(CONTENT_SECURITY_POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(DRAWING_STYLE)) (PreEscaped(PAGE_STYLE)) }
            }
            body {
                header {
                    span.made { (made) }
                    button #theme type="button" hidden { "Dark" }
                }
                main { (main) }
                footer { (footer) }
                div #tip role="status" hidden {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
        "\n"
    }
}

/// Replaces control characters, which no document may contain, by spaces.
pub(super) fn without_control_characters(text: &str) -> String {
    text.replace(|letter: char| letter.is_control() && !matches!(letter, '\n' | '\t'), " ")
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
    let mut included: Vec<(&str, ReportChart, usize)> = Vec::new();
    for (title, chart) in made {
        let name = file(&chart);
        let bytes = figure::render_figure(&chart, DataPlacement::SeparateFile, &name).0.len();
        if bytes > bytes_left {
            left_out.push(format!("{} ({name})", chart.title));
            data_files.push(DataFile { name, text: chart.data.to_csv() });
            continue;
        }
        bytes_left -= bytes;
        included.push((title, chart, bytes));
    }
    let mut sections: Vec<PageSection> = Vec::new();
    for (title, chart, bytes) in included {
        let name = file(&chart);
        let with_data = figure::render_figure(&chart, DataPlacement::Inline, &name);
        let more = with_data.0.len().saturating_sub(bytes);
        let fits = more <= bytes_left;
        bytes_left -= if fits { more } else { 0 };
        let figure = match fits {
            true => with_data,
            false => figure::render_figure(&chart, DataPlacement::SeparateFile, &name),
        };
        if !chart.data.is_empty() && (!fits || chart.data.len() > ROWS_MAX) {
            data_files.push(DataFile { name, text: chart.data.to_csv() });
        }
        section_with_title(&mut sections, title).body.0 += &figure.0;
    }
    if !left_out.is_empty() {
        let title = sections.last().map_or_else(|| "Charts".to_owned(), |last| last.title.clone());
        let note = html! {
            p.note {
                "Omitted because of the page size: " (left_out.join("; "))
                ". The data are in these files beside the page."
            }
        };
        section_with_title(&mut sections, &title).body.0 += &note.0;
    }
    sections
}

/// Returns the section with this title. Charts of one section are grouped, in whatever order they
/// come.
fn section_with_title<'a>(sections: &'a mut Vec<PageSection>, title: &str) -> &'a mut PageSection {
    let index = sections.iter().position(|section| section.title == title);
    let index = index.unwrap_or_else(|| {
        let body = PreEscaped(String::new());
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
        let all: usize = all_sections.iter().map(|section| section.body.0.len()).sum();
        for bytes_left in [all / 2, all / 10, 0] {
            let mut data_files = Vec::new();
            let sections = chart_sections(&experiment, &raw, bytes_left, &mut data_files);
            let body: String = sections.iter().map(|section| section.body.0.as_str()).collect();
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
