//! A chart as a figure of the page: title, caption, legend, its parts, its data.
//! Not for where it stands.

use std::fmt::Write as _;

use crate::report::charts::{Cell, Chart, Part, Series, Table};
use crate::report::csv::ROWS_MAX;
use crate::report::svg::{escaped, series_class, series_name};

/// Where the data of a figure are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// In the page, as many rows as it takes ([`ROWS_MAX`]).
    Here,
    /// In a file beside it.
    Beside,
}

/// The file beside the page of an experiment (`plan` is its name) that has the data of a chart.
#[must_use]
pub(super) fn file_name(plan: &str, chart: &Chart) -> String {
    format!("{plan}.{}.csv", chart.id)
}

/// The figure. Data that are not in the page are in the file with this name, and it says so.
#[must_use]
pub(super) fn figure(chart: &Chart, place: Data, file: &str) -> String {
    let id = escaped(&chart.id);
    let mut out = format!(
        "<figure id=\"{id}\"><figcaption><h3>{}</h3><p>{}</p></figcaption>",
        escaped(&chart.title),
        escaped(&chart.caption),
    );
    legend(&mut out, &chart.legend);
    for (index, part) in chart.parts.iter().enumerate() {
        match part {
            Part::Heading(text) => {
                let _ = write!(out, "<h4>{}</h4>", escaped(text));
            }
            Part::Drawing(svg) => {
                let svg = svg.markup(&format!("{}-{index}", chart.id));
                let _ = write!(out, "<div class=\"scroll\">{svg}</div>");
            }
            Part::Table(table) => {
                let _ = write!(out, "<div class=\"scroll\">{}</div>", rows(table, &chart.title));
            }
            Part::Empty(why) => {
                let _ = write!(out, "<p class=\"empty\">{}</p>", escaped(why));
            }
        }
    }
    for note in &chart.notes {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(note));
    }
    data(&mut out, chart, place, file);
    out.push_str("</figure>");
    out
}

/// A button for each series; without a script they are just labels.
fn legend(out: &mut String, legend: &[Series]) {
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

fn data(out: &mut String, chart: &Chart, place: Data, file: &str) {
    if chart.figures.is_empty() {
        return;
    }
    let file = escaped(file);
    if place == Data::Beside {
        let _ = write!(
            out,
            "<p class=\"note\">Its data are in the file <code>{file}</code> beside this page, which would \
             be too large to hand around with them.</p>",
        );
        return;
    }
    let rows = chart.figures.len();
    let cut = match rows {
        0..=ROWS_MAX => String::new(),
        _ => format!(
            " (the first {ROWS_MAX} rows; all {rows} are in the file <code>{file}</code> beside this page)"
        ),
    };
    // The line break after the tag is no part of the text: HTML says so.
    let _ = write!(
        out,
        "<details class=\"data\"><summary>Data{cut}</summary><button type=\"button\" class=\"save\" \
         data-file=\"{}.csv\" hidden>Save as CSV</button><pre tabindex=\"0\">\n{}</pre></details>",
        escaped(&chart.id),
        escaped(&chart.figures.first(ROWS_MAX).replace('\r', "")),
    );
}

/// A table as such.
#[must_use]
pub(super) fn rows(table: &Table, caption: &str) -> String {
    let mut out = format!("<table><caption>{}</caption><thead><tr>", escaped(caption));
    for (index, column) in table.columns.iter().enumerate() {
        let figure = table.rows.iter().any(|row| row.get(index).is_some_and(|cell| cell.figure));
        let class = if figure { " class=\"figure\"" } else { "" };
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escaped(column));
    }
    out.push_str("</tr></thead><tbody>");
    for row in &table.rows {
        out.push_str("<tr>");
        row.iter().enumerate().for_each(|(index, one)| cell(&mut out, index, one));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    out
}

fn cell(out: &mut String, index: usize, cell: &Cell) {
    let mut classes: Vec<&str> = cell.class.into_iter().collect();
    if cell.figure {
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
