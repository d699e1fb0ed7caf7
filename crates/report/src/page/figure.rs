//! A chart as a figure of the page: title, caption, legend, parts, data.

use maud::{Markup, html};

use crate::charts::{ChartPart, ChartTable, LegendEntry, ReportChart};
use crate::data_table::ROWS_MAX;
use crate::plot::{series_class, series_name};

/// Place of a figure's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataPlacement {
    /// In the page, up to [`ROWS_MAX`] rows.
    Inline,
    SeparateFile,
}

/// Returns the name of the file beside the page with the data of a chart; `plan` is the
/// experiment's name.
pub(super) fn data_file_name(plan: &str, chart: &ReportChart) -> String {
    format!("{plan}.{}.csv", chart.id)
}

/// Returns the figure. Data that are not in the page are in the file with this name; the figure
/// names it.
pub(super) fn render_figure(chart: &ReportChart, placement: DataPlacement, file: &str) -> Markup {
    html! {
        figure id=(chart.id) {
            figcaption { h3 { (chart.title) } (folded_paragraph(&chart.caption)) }
            (legend(&chart.legend))
            @for (index, part) in chart.parts.iter().enumerate() {
                @match part {
                    ChartPart::Heading(text) => h4 { (text) },
                    ChartPart::Drawing(svg) => div.scroll { (svg.markup(&format!("{}-{index}", chart.id))) },
                    ChartPart::Table(table) => div.scroll { (render_table(table, &chart.title)) },
                    ChartPart::Empty(why) => p.empty { (why) },
                }
            }
            @for note in &chart.notes {
                div.note { (folded_paragraph(note)) }
            }
            (data(chart, placement, file))
        }
    }
}

/// Number of characters from which a paragraph is folded, and the minimum that a fold hides.
const FOLDED_MIN: usize = 180;
const HIDDEN_MIN: usize = 40;

/// Returns the paragraph of a text. A long one shows its first sentence, and the rest on demand.
fn folded_paragraph(text: &str) -> Markup {
    html! {
        @if let Some((first, rest)) = first_sentence(text) {
            details.fold { summary { (first) } p { (rest) } }
        } @else {
            p { (text) }
        }
    }
}

/// Splits a long text after its first sentence; `None` if it is short, or one sentence.
pub(super) fn first_sentence(text: &str) -> Option<(&str, &str)> {
    if text.chars().count() < FOLDED_MIN {
        return None;
    }
    let is_end = |at: &usize| text[at + 2..].starts_with(char::is_uppercase);
    let end = text.match_indices(". ").map(|(at, _)| at).find(is_end)?;
    let (first, rest) = (&text[..=end], text[end + 2..].trim());
    (rest.chars().count() >= HIDDEN_MIN).then_some((first, rest))
}

/// Returns a button for each series; without a script they are just labels.
pub(crate) fn legend(legend: &[LegendEntry]) -> Markup {
    html! {
        @if legend.len() > 1 {
            div.legend role="group" aria-label="Series" {
                @for LegendEntry { number, name } in legend {
                    button type="button" class=(series_class(*number)) data-toggle=(series_name(*number))
                        aria-pressed="true" { i {} (name) }
                }
            }
        }
    }
}

fn data(chart: &ReportChart, placement: DataPlacement, file: &str) -> Markup {
    let rows = chart.data.len();
    html! {
        @if rows > 0 && placement == DataPlacement::SeparateFile {
            p.note {
                "The data are in the file " code { (file) } " beside this page, which would be too large to "
                "hand around with them."
            }
        } @else if rows > 0 {
            details.data {
                summary {
                    "Data"
                    @if rows > ROWS_MAX {
                        " (the first " (ROWS_MAX) " rows; all " (rows) " are in the file " code { (file) }
                        " beside this page)"
                    }
                }
                (saved_text("Save as CSV", &format!("{}.csv", chart.id), &chart.data.first_rows_csv(ROWS_MAX)))
            }
        }
    }
}

/// Returns a text with a button that saves it under this name.
pub(super) fn saved_text(label: &str, file: &str, text: &str) -> Markup {
    html! {
        button.save type="button" data-file=(file) hidden { (label) }
        (preformatted(text))
    }
}

pub(crate) fn preformatted(text: &str) -> Markup {
    // In HTML the line break after the tag is not part of the text.
    html! { pre tabindex="0" { "\n" (text.replace('\r', "")) } }
}

pub(super) fn render_table(table: &ChartTable, caption: &str) -> Markup {
    let is_figure = |column: usize| {
        let mut cells = table.rows.iter().filter_map(|row| row.get(column));
        cells.any(|cell| cell.is_figure)
    };
    html! {
        table {
            caption { (caption) }
            thead {
                tr {
                    @for (index, column) in table.columns.iter().enumerate() {
                        th scope="col" class=[is_figure(index).then_some("figure")] { (column) }
                    }
                }
            }
            tbody {
                @for row in &table.rows {
                    tr {
                        @for (index, cell) in row.iter().enumerate() {
                            @if index == 0 {
                                th scope="row" class=[cell.classes()] { (cell.text) }
                            } @else {
                                td class=[cell.classes()] { (cell.text) }
                            }
                        }
                    }
                }
            }
        }
    }
}
