//! A chart as a figure of the page: title, caption, legend, parts, data.

use std::fmt::Write as _;

use crate::charts::{ChartPart, ChartTable, LegendEntry, ReportChart, TableCell};
use crate::data_table::ROWS_MAX;
use crate::svg::{escaped, series_class, series_name};

/// Place of a figure's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataPlacement {
    /// In the page, up to [`ROWS_MAX`] rows.
    Inline,
    /// In a file beside the page.
    SeparateFile,
}

/// Returns the name of the file beside the page with the data of a chart; `plan` is the
/// experiment's name.
#[must_use]
pub(super) fn data_file_name(plan: &str, chart: &ReportChart) -> String {
    format!("{plan}.{}.csv", chart.id)
}

/// Returns the figure. Data that are not in the page are in the file with this name; the figure
/// names it.
#[must_use]
pub(super) fn render_figure(chart: &ReportChart, placement: DataPlacement, file: &str) -> String {
    let id = escaped(&chart.id);
    let mut out = format!(
        "<figure id=\"{id}\"><figcaption><h3>{}</h3>{}</figcaption>",
        escaped(&chart.title),
        folded_paragraph(&chart.caption),
    );
    write_legend(&mut out, &chart.legend);
    for (index, part) in chart.parts.iter().enumerate() {
        match part {
            ChartPart::Heading(text) => {
                let _ = write!(out, "<h4>{}</h4>", escaped(text));
            }
            ChartPart::Drawing(svg) => {
                let svg = svg.markup(&format!("{}-{index}", chart.id));
                let _ = write!(out, "<div class=\"scroll\">{svg}</div>");
            }
            ChartPart::Table(table) => {
                let _ = write!(out, "<div class=\"scroll\">{}</div>", render_table(table, &chart.title));
            }
            ChartPart::Empty(why) => {
                let _ = write!(out, "<p class=\"empty\">{}</p>", escaped(why));
            }
        }
    }
    for note in &chart.notes {
        let _ = write!(out, "<div class=\"note\">{}</div>", folded_paragraph(note));
    }
    write_data(&mut out, chart, placement, file);
    out.push_str("</figure>");
    out
}

/// Number of characters from which a paragraph is folded, and the minimum that a fold hides.
const FOLDED_MIN: usize = 180;
const HIDDEN_MIN: usize = 40;

/// Returns the paragraph of a text. A long one shows its first sentence, and the rest on demand.
#[must_use]
pub(super) fn folded_paragraph(text: &str) -> String {
    match first_sentence(text) {
        Some((first, rest)) => {
            let (first, rest) = (escaped(first), escaped(rest));
            format!("<details class=\"fold\"><summary>{first}</summary><p>{rest}</p></details>")
        }
        None => format!("<p>{}</p>", escaped(text)),
    }
}

/// Splits a long text after its first sentence; `None` if it is short, or one sentence.
#[must_use]
pub(super) fn first_sentence(text: &str) -> Option<(&str, &str)> {
    if text.chars().count() < FOLDED_MIN {
        return None;
    }
    let is_end = |at: &usize| text[at + 2..].starts_with(char::is_uppercase);
    let end = text.match_indices(". ").map(|(at, _)| at).find(is_end)?;
    let (first, rest) = (&text[..=end], text[end + 2..].trim());
    (rest.chars().count() >= HIDDEN_MIN).then_some((first, rest))
}

/// Writes a button for each series; without a script they are just labels.
fn write_legend(out: &mut String, legend: &[LegendEntry]) {
    if legend.len() < 2 {
        return;
    }
    out.push_str("<div class=\"legend\" role=\"group\" aria-label=\"Series\">");
    for series in legend {
        let _ = write!(
            out,
            "<button type=\"button\" class=\"{}\" data-toggle=\"{}\" aria-pressed=\"true\"><i></i>{}\
             </button>",
            series_class(series.number),
            series_name(series.number),
            escaped(&series.name),
        );
    }
    out.push_str("</div>");
}

fn write_data(out: &mut String, chart: &ReportChart, placement: DataPlacement, file: &str) {
    if chart.data.is_empty() {
        return;
    }
    let file = escaped(file);
    if placement == DataPlacement::SeparateFile {
        let _ = write!(
            out,
            "<p class=\"note\">The data are in the file <code>{file}</code> beside this page, which would \
             be too large to hand around with them.</p>",
        );
        return;
    }
    let rows = chart.data.len();
    let cut = match rows {
        0..=ROWS_MAX => String::new(),
        _ => format!(
            " (the first {ROWS_MAX} rows; all {rows} are in the file <code>{file}</code> beside this page)"
        ),
    };
    // In HTML the line break after the tag is not part of the text.
    let _ = write!(
        out,
        "<details class=\"data\"><summary>Data{cut}</summary><button type=\"button\" class=\"save\" \
         data-file=\"{}.csv\" hidden>Save as CSV</button><pre tabindex=\"0\">\n{}</pre></details>",
        escaped(&chart.id),
        escaped(&chart.data.first_rows_csv(ROWS_MAX).replace('\r', "")),
    );
}

/// Returns the markup of a table.
#[must_use]
pub(super) fn render_table(table: &ChartTable, caption: &str) -> String {
    let mut out = format!("<table><caption>{}</caption><thead><tr>", escaped(caption));
    for (index, column) in table.columns.iter().enumerate() {
        let figure = table.rows.iter().any(|row| row.get(index).is_some_and(|cell| cell.is_figure));
        let class = if figure { " class=\"figure\"" } else { "" };
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escaped(column));
    }
    out.push_str("</tr></thead><tbody>");
    for row in &table.rows {
        out.push_str("<tr>");
        row.iter().enumerate().for_each(|(index, one)| write_cell(&mut out, index, one));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    out
}

fn write_cell(out: &mut String, index: usize, cell: &TableCell) {
    let mut classes: Vec<&str> = cell.class.into_iter().collect();
    if cell.is_figure {
        classes.push("figure");
    }
    let class = match classes.is_empty() {
        true => String::new(),
        false => format!(" class=\"{}\"", escaped(&classes.join(" "))),
    };
    let text = escaped(&cell.text);
    let _ = match index {
        0 => write!(out, "<th scope=\"row\"{class}>{text}</th>"),
        _ => write!(out, "<td{class}>{text}</td>"),
    };
}
