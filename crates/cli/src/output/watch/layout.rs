//! Lines as rows: sections with headings, tables of the lines that have the same figures, sentences
//! broken at the width. The same rows go to a terminal and to a pipe.

use lab::marks::{Line, Mark, RULES, Screen, Section, Unit};
use record::units::{format_bytes, format_count, format_duration_ns};

use super::{Glyphs, Row, Span, Style, bars, cut, width, wrapped};

/// Room for the mark before a line.
const MARK_WIDTH: usize = 3;
/// Labels of figures are cut beyond this; those of texts may have half of the screen.
const LABEL_WIDTH_MAX: usize = 34;
/// Least room for a graph, which is kept for it on a screen that is wide enough.
const GRAPH_WIDTH_MIN: usize = 12;
/// Columns of such a screen.
const WIDE: usize = 100;
/// Most.
const GRAPH_WIDTH_MAX: usize = 60;

/// How it is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Columns.
    pub(crate) width: usize,
    /// Characters.
    pub(crate) glyphs: Glyphs,
    /// One section only; `None`: all.
    pub(crate) only: Option<Section>,
    /// Figures for which there is no room beside the others: below them, or left out.
    pub(crate) overflow: Overflow,
    /// Rows of the section on top, its heading not counted; the others are on its own page.
    pub(crate) now_rows_max: usize,
}

/// What becomes of figures for which a row has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    Below,
    LeftOut,
}

/// The rows of a screen.
pub(crate) fn rows(screen: &Screen, look: Look) -> Vec<Row> {
    let mut rows = Vec::new();
    for section in Section::ALL {
        let lines: Vec<&Line> =
            screen.lines.iter().filter(|line| line.section == section).collect();
        let wanted = look.only.is_none_or(|only| only == section);
        if lines.is_empty() || !wanted {
            continue;
        }
        rows.push(heading(section, look));
        if look.only.is_some() {
            rows.extend(indented(section.doc(), Style::Dim, look));
        }
        for group in groups(&lines) {
            match section {
                Section::Now => rows.extend(bounded(sentences(group, look), look.now_rows_max)),
                _ if is_text(group[0]) => rows.extend(texts(group, look)),
                _ => table(group, look, &mut rows),
            }
        }
    }
    if rows.is_empty() {
        rows.push(vec![Span::new(Style::Dim, "   nothing here")]);
    }
    rows
}

fn heading(section: Section, look: Look) -> Row {
    let dash = if look.glyphs == Glyphs::Blocks { "─" } else { "-" };
    let title = section.title();
    let legend = match section {
        Section::Processors => format!(" {}", bars::legend(look.glyphs)),
        _ => String::new(),
    };
    let used = MARK_WIDTH + width(title) + 1;
    let legend = if used + width(&legend) < look.width { legend } else { String::new() };
    let used = used + width(&legend);
    let rest = dash.repeat(look.width.saturating_sub(used + 1));
    vec![
        Span::new(Style::Dim, format!("{} ", dash.repeat(MARK_WIDTH - 1))),
        Span::new(Style::Heading, format!("{title} ")),
        Span::new(Style::Dim, format!("{rest}{legend}")),
    ]
}

/// A line of text instead of figures.
fn is_text(line: &Line) -> bool {
    matches!(&line.cells[..], [cell] if cell.name.is_empty())
}

/// Lines one after the other that have the same figures.
fn groups<'a, 'b>(lines: &'b [&'a Line]) -> impl Iterator<Item = &'b [&'a Line]> {
    let same = |one: &&Line, other: &&Line| {
        one.cells.len() == other.cells.len()
            && one.cells.iter().zip(&other.cells).all(|(one, other)| one.name == other.name)
    };
    lines.chunk_by(same)
}

fn mark(mark: Mark) -> Span {
    let text = match mark {
        Mark::Calm => "   ",
        Mark::Notice => " ! ",
        Mark::Alarm => "!! ",
    };
    Span::new(style(mark), text)
}

fn style(mark: Mark) -> Style {
    match mark {
        Mark::Calm => Style::Plain,
        mark => Style::Marked(mark),
    }
}

/// The section on top: each line is a sentence.
fn sentences(lines: &[&Line], look: Look) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in lines {
        let text = wrapped(&line.cells[0].text, look.width.saturating_sub(MARK_WIDTH));
        for (at, text) in text.into_iter().enumerate() {
            let mark = if at == 0 { mark(line.mark) } else { mark(Mark::Calm) };
            let style = if at == 0 { style(line.mark) } else { Style::Plain };
            rows.push(vec![mark, Span::new(style, text)]);
        }
    }
    rows
}

/// The first rows, and how many there are beyond them.
fn bounded(mut rows: Vec<Row>, rows_max: usize) -> Vec<Row> {
    let rows_max = rows_max.max(1);
    if rows.len() > rows_max {
        // A sentence is not cut in two: its further rows begin with blanks.
        let begins = |row: &Row| row.first().is_some_and(|span| !span.text.trim().is_empty());
        let mut kept = rows_max - 1;
        while kept > 0 && !begins(&rows[kept]) {
            kept -= 1;
        }
        let more = rows[kept..].iter().filter(|row| begins(row)).count();
        rows.truncate(kept);
        let text = format!("   {more} more on the page \"now\" (tab), and marked below");
        rows.push(vec![Span::new(Style::Dim, text)]);
    }
    rows
}

/// Lines with a label and a text.
fn texts(lines: &[&Line], look: Look) -> Vec<Row> {
    let label_width = label_width(lines, look.width / 2);
    let mut rows = Vec::new();
    for line in lines {
        let room = look.width.saturating_sub(MARK_WIDTH + label_width + 2);
        for (at, text) in wrapped(&line.cells[0].text, room).into_iter().enumerate() {
            let label = if at == 0 { cut(&line.label, label_width) } else { String::new() };
            let gap = if label_width == 0 { 0 } else { 2 };
            rows.push(vec![
                mark(if at == 0 { line.mark } else { Mark::Calm }),
                Span::new(style(line.mark), format!("{label:<label_width$}{:gap$}", "")),
                Span::new(if line.label.is_empty() { Style::Dim } else { Style::Plain }, text),
            ]);
        }
    }
    rows
}

fn label_width(lines: &[&Line], width_max: usize) -> usize {
    lines.iter().map(|line| width(&line.label)).max().unwrap_or(0).min(width_max)
}

/// Lines with the same figures, under the names of the figures.
fn table(lines: &[&Line], look: Look, rows: &mut Vec<Row>) {
    let names: Vec<&str> = lines[0].cells.iter().map(|cell| cell.name).collect();
    let widths: Vec<usize> = (0..names.len())
        .map(|at| {
            let cells = lines.iter().map(|line| width(&line.cells[at].text));
            cells.max().unwrap_or(0).max(width(names[at]))
        })
        .collect();
    let has_bar = lines.iter().any(|line| line.share.is_some());
    let bar_width = match (has_bar, look.width) {
        (false, _) => 0,
        (true, ..WIDE) => 10,
        (true, _) => 20,
    };
    let has_graph = lines.iter().any(|line| line.history.len() > 1);
    let keeps_room = has_graph && look.width >= WIDE && look.overflow == Overflow::LeftOut;
    let graph_width = if keeps_room { GRAPH_WIDTH_MIN + 2 } else { 0 };
    let mut frame =
        Frame { label_width: label_width(lines, LABEL_WIDTH_MAX), bar_width, graph_width, look };
    let mut from = 0;
    while from < names.len() {
        let to = frame.fitting(&widths, from);
        let columns = &widths[from..to];
        rows.push(frame.names(&names[from..to], columns));
        for line in lines {
            rows.push(frame.figures(line, from, columns));
        }
        from = to;
        frame.bar_width = 0;
        if look.overflow == Overflow::LeftOut {
            return;
        }
    }
}

/// What stands around the figures of a table.
struct Frame {
    label_width: usize,
    bar_width: usize,
    /// Room that is kept for a graph.
    graph_width: usize,
    look: Look,
}

impl Frame {
    /// Columns before the first figure.
    fn before(&self) -> usize {
        let bar = if self.bar_width > 0 { self.bar_width + 2 } else { 0 };
        MARK_WIDTH + self.label_width + bar
    }

    /// The first column after `from` for which there is no room; one has room always.
    fn fitting(&self, widths: &[usize], from: usize) -> usize {
        let mut used = self.before();
        let fits = |width: &&usize| {
            used += **width + 2;
            used + self.graph_width <= self.look.width
        };
        from + widths[from..].iter().take_while(fits).count().max(1)
    }

    fn names(&self, names: &[&str], widths: &[usize]) -> Row {
        let cells = names.iter().zip(widths).map(|(name, width)| format!("  {name:>width$}"));
        let text = format!("{:1$}{2}", "", self.before(), cells.collect::<String>());
        vec![Span::new(Style::Dim, text)]
    }

    fn figures(&self, line: &Line, from: usize, widths: &[usize]) -> Row {
        let label = cut(&line.label, LABEL_WIDTH_MAX);
        let label = format!("{label:<width$}", width = self.label_width);
        let mut row = vec![mark(line.mark), Span::new(style(line.mark), label)];
        if self.bar_width > 0 {
            row.push(Span::new(Style::Plain, "  "));
            row.extend(bars::bar(line, self.bar_width, self.look.glyphs));
        }
        let cells = line.cells[from..].iter().zip(widths);
        let cells: String = cells.map(|(cell, width)| format!("  {:>width$}", cell.text)).collect();
        let used = self.before() + width(&cells);
        row.push(Span::new(Style::Plain, cells));
        let room = self.look.width.saturating_sub(used + 2).min(GRAPH_WIDTH_MAX);
        if from == 0 && room >= GRAPH_WIDTH_MIN && line.history.len() > 1 {
            let graph = bars::graph(line, room, self.look.glyphs);
            row.push(Span::new(Style::Dim, format!("  {graph}")));
        }
        row
    }
}

/// A paragraph under a heading.
fn indented(text: &str, style: Style, look: Look) -> Vec<Row> {
    let lines = wrapped(text, look.width.saturating_sub(MARK_WIDTH));
    lines.into_iter().map(|line| vec![Span::new(style, format!("   {line}"))]).collect()
}

/// The page of help: keys, what sections mean, and the rules behind the marks.
pub(crate) fn help(keys: &[(&str, &str)], look: Look) -> Vec<Row> {
    let mut rows = vec![vec![Span::new(Style::Heading, "   keys")]];
    for (key, what) in keys {
        rows.push(vec![Span::new(Style::Plain, format!("   {key:<12} {what}"))]);
    }
    for section in Section::ALL {
        rows.push(Row::new());
        rows.push(vec![Span::new(Style::Heading, format!("   {}", section.title()))]);
        rows.extend(indented(section.doc(), Style::Plain, look));
    }
    rows.push(Row::new());
    rows.push(vec![Span::new(
        Style::Heading,
        "   marks (!! something is lost or held up, ! unusual)",
    )]);
    for rule in RULES {
        let threshold = threshold(rule.above, rule.unit);
        let text = format!("{} above {threshold} ({})", rule.looks_at, rule.source);
        for (at, text) in
            wrapped(&text, look.width.saturating_sub(MARK_WIDTH + 2)).into_iter().enumerate()
        {
            let mark = if at == 0 { mark(rule.mark) } else { mark(Mark::Calm) };
            rows.push(vec![mark, Span::new(Style::Plain, text)]);
        }
    }
    rows
}

/// A rule's threshold with its unit.
pub(crate) fn threshold(above: f64, unit: Unit) -> String {
    match unit {
        Unit::Share => format!("{} %", format_count((above * 1000.0).round() / 10.0)),
        Unit::PerSecond => format!("{} a second", format_count(above)),
        Unit::Count | Unit::Times => format_count(above),
        Unit::Nanoseconds => format_duration_ns(above as u64),
        Unit::Bytes => format_bytes(above),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::marks::{LIVE, screen};
    use record::observed::{CpuUse, Missing, Observed, Sample};

    pub(crate) fn observed() -> Observed {
        let cpu = |cpu| CpuUse { cpu, user: 0.5, system: 0.25, softirq: 0.25, ..CpuUse::default() };
        let sample = |time_s| Sample {
            time_s,
            length_s: 1.0,
            cpus: vec![cpu(0), cpu(1)],
            ..Sample::default()
        };
        Observed {
            host: "here".to_owned(),
            cpus: 2,
            samples: vec![sample(1.0), sample(2.0)],
            not_observable: vec![Missing { what: "x".into(), why: "it is not there".into() }],
            ..Observed::default()
        }
    }

    fn plain(rows: &[Row]) -> Vec<String> {
        let text = |row: &Row| row.iter().map(|span| span.text.as_str()).collect::<String>();
        rows.iter().map(|row| text(row).trim_end().to_owned()).collect()
    }

    fn look(width: usize, overflow: Overflow) -> Look {
        Look { width, glyphs: Glyphs::Ascii, only: None, overflow, now_rows_max: 9 }
    }

    #[test]
    fn no_row_is_wider_than_the_screen_and_all_figures_are_somewhere() {
        let screen = screen(&observed(), LIVE);
        for width in [40, 80, 120, 200] {
            for overflow in [Overflow::Below, Overflow::LeftOut] {
                let rows = plain(&rows(&screen, look(width, overflow)));
                assert!(rows.iter().all(|row| super::width(row) <= width), "{width}: {rows:#?}");
                let has = |text: &str| rows.iter().any(|row| row.contains(text));
                assert_eq!(has("squeezes/s"), overflow == Overflow::Below || width >= 200);
                assert!(has("cpu1") && has("- processors ") && has("it is not there"));
            }
        }
    }

    #[test]
    fn marks_stand_before_their_lines_and_their_sentences() {
        let rows = plain(&rows(&screen(&observed(), LIVE), look(80, Overflow::LeftOut)));
        assert!(rows[0].starts_with("-- now ---"), "{rows:#?}");
        assert!(rows[1].starts_with(" ! all 2 processors together are 100 % busy"), "{rows:#?}");
        let starts = |start: &str| rows.iter().any(|row| row.starts_with(start));
        assert!(starts(" ! all  ##########  2.00 of 2"), "{rows:#?}");
        assert!(starts("   cpu0  #####===--"), "{rows:#?}");
    }

    #[test]
    fn the_section_on_top_leaves_room_for_the_others() {
        let sentence = |text: &str| {
            vec![vec![mark(Mark::Alarm), Span::new(Style::Plain, text)], vec![mark(Mark::Calm)]]
        };
        let rows = [sentence("one"), sentence("two"), sentence("three")].concat();
        assert_eq!(bounded(rows.clone(), 6).len(), 6);
        for (most, kept, more) in [(5, 4, "   1 more"), (4, 2, "   2 more"), (1, 0, "   3 more")] {
            let rows = bounded(rows.clone(), most);
            assert_eq!(rows.len(), kept + 1, "{most}");
            assert!(rows[kept][0].text.starts_with(more), "{rows:?}");
        }
    }

    #[test]
    fn one_section_is_shown_with_what_it_means() {
        let look = Look { only: Some(Section::Tcp), ..look(80, Overflow::Below) };
        assert_eq!(plain(&rows(&screen(&observed(), LIVE), look)), ["   nothing here"]);
        let look = Look { only: Some(Section::Processors), ..look };
        let rows = plain(&rows(&screen(&observed(), LIVE), look));
        assert!(rows[1].starts_with("   Shares of each processor's time"), "{rows:#?}");
    }

    #[test]
    fn the_help_names_every_rule() {
        let rows = plain(&help(&[("q", "quit")], look(100, Overflow::Below))).join("\n");
        assert!(rows.contains("TcpExt.ListenOverflows above 0 a second"), "{rows}");
        assert_eq!(threshold(0.001, Unit::Share), "0.10 %");
        assert_eq!(threshold(0.95, Unit::Share), "95 %");
    }
}
