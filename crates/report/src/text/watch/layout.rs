//! Converts lines to rows: sections with headings, tables of lines with the same figures, sentences
//! broken at the width. A terminal and a pipe get the same rows.

use diagnose::Unit;
use diagnose::alerts::{RULES, Screen, ScreenLine, ScreenSection, Severity};
use record::units::{format_bytes, format_count, format_duration_ns};

use super::{Glyphs, Span, Style, StyledRow, sparkline, truncate, width, wrap};

/// Width of the mark before a line.
const SEVERITY_WIDTH: usize = 3;
/// Maximum width of the labels of figures; those of texts may have half of the screen.
const LABEL_WIDTH_MAX: usize = 34;
/// Minimum width of a graph. A screen that is wide enough reserves it.
const GRAPH_WIDTH_MIN: usize = 12;
/// Minimum number of columns of such a screen.
const WIDE_SCREEN_MIN: usize = 100;
const GRAPH_WIDTH_MAX: usize = 60;

#[derive(Clone, Copy, Debug)]
pub struct LayoutOptions {
    pub width: usize,
    /// Characters for bars and graphs.
    pub glyphs: Glyphs,
    /// The only section to show; `None`: all.
    pub section: Option<ScreenSection>,
    /// Treatment of figures that do not fit beside the others.
    pub overflow: Overflow,
    /// Maximum number of rows of the top section, without its heading. Its own page shows the
    /// others.
    pub top_rows_max: usize,
}

/// Treatment of figures that do not fit into a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    Wrap,
    Hide,
}

pub fn rows(screen: &Screen, options: LayoutOptions) -> Vec<StyledRow> {
    let mut rows = Vec::new();
    for section in ScreenSection::ALL {
        let lines: Vec<&ScreenLine> = screen.lines.iter().filter(|line| line.section == section).collect();
        let is_shown = options.section.is_none_or(|only| only == section);
        if lines.is_empty() || !is_shown {
            continue;
        }
        rows.push(heading(section, options));
        if options.section.is_some() {
            rows.extend(indent(section.doc(), Style::Dim, options));
        }
        for group in groups(&lines) {
            match section {
                ScreenSection::Now => {
                    rows.extend(limit_rows(sentence_rows(group, options), options.top_rows_max))
                }
                _ if is_text(group[0]) => rows.extend(text_rows(group, options)),
                _ => table_rows(group, options, &mut rows),
            }
        }
    }
    if rows.is_empty() {
        rows.push(vec![Span::new(Style::Dim, "   nothing here")]);
    }
    rows
}

fn heading(section: ScreenSection, options: LayoutOptions) -> StyledRow {
    let dash = if options.glyphs == Glyphs::Blocks { "─" } else { "-" };
    let title = section.title();
    let legend = match section {
        ScreenSection::Cpus => format!(" {}", sparkline::legend(options.glyphs)),
        _ => String::new(),
    };
    let used = SEVERITY_WIDTH + width(title) + 1;
    let legend = if used + width(&legend) < options.width { legend } else { String::new() };
    let used = used + width(&legend);
    let rest = dash.repeat(options.width.saturating_sub(used + 1));
    vec![
        Span::new(Style::Dim, format!("{} ", dash.repeat(SEVERITY_WIDTH - 1))),
        Span::new(Style::Heading, format!("{title} ")),
        Span::new(Style::Dim, format!("{rest}{legend}")),
    ]
}

/// Returns whether a line contains text instead of figures.
fn is_text(line: &ScreenLine) -> bool {
    matches!(&line.cells[..], [cell] if cell.name.is_empty())
}

/// Groups consecutive lines that have the same figures.
fn groups<'a, 'b>(lines: &'b [&'a ScreenLine]) -> impl Iterator<Item = &'b [&'a ScreenLine]> {
    let same = |left: &&ScreenLine, right: &&ScreenLine| {
        left.cells.len() == right.cells.len()
            && left.cells.iter().zip(&right.cells).all(|(left, right)| left.name == right.name)
    };
    lines.chunk_by(same)
}

fn severity_span(mark: Severity) -> Span {
    let text = match mark {
        Severity::Normal => "   ",
        Severity::Notice => " ! ",
        Severity::Alarm => "!! ",
    };
    Span::new(severity_style(mark), text)
}

fn severity_style(severity: Severity) -> Style {
    match severity {
        Severity::Normal => Style::Plain,
        mark => Style::Alert(mark),
    }
}

/// Lays out the top section: each line is a sentence.
fn sentence_rows(lines: &[&ScreenLine], options: LayoutOptions) -> Vec<StyledRow> {
    let mut rows = Vec::new();
    for line in lines {
        let text = wrap(&line.cells[0].text, options.width.saturating_sub(SEVERITY_WIDTH));
        for (at, text) in text.into_iter().enumerate() {
            let mark = if at == 0 { severity_span(line.severity) } else { severity_span(Severity::Normal) };
            let style = if at == 0 { severity_style(line.severity) } else { Style::Plain };
            rows.push(vec![mark, Span::new(style, text)]);
        }
    }
    rows
}

/// Returns the first rows, and a note about the number of further rows.
fn limit_rows(mut rows: Vec<StyledRow>, rows_max: usize) -> Vec<StyledRow> {
    let rows_max = rows_max.max(1);
    if rows.len() > rows_max {
        // A sentence is not cut in two: its continuation rows begin with blanks.
        let begins = |row: &StyledRow| row.first().is_some_and(|span| !span.text.trim().is_empty());
        let mut shown = rows_max - 1;
        while shown > 0 && !begins(&rows[shown]) {
            shown -= 1;
        }
        let more = rows[shown..].iter().filter(|row| begins(row)).count();
        rows.truncate(shown);
        let text = format!("   {more} more on the page \"now\" (tab), and marked below");
        rows.push(vec![Span::new(Style::Dim, text)]);
    }
    rows
}

/// Lays out lines with a label and a text.
fn text_rows(lines: &[&ScreenLine], options: LayoutOptions) -> Vec<StyledRow> {
    let label_width = label_width(lines, options.width / 2);
    let mut rows = Vec::new();
    for line in lines {
        let text_width = options.width.saturating_sub(SEVERITY_WIDTH + label_width + 2);
        for (at, text) in wrap(&line.cells[0].text, text_width).into_iter().enumerate() {
            let label = if at == 0 { truncate(&line.label, label_width) } else { String::new() };
            let gap = if label_width == 0 { 0 } else { 2 };
            rows.push(vec![
                severity_span(if at == 0 { line.severity } else { Severity::Normal }),
                Span::new(severity_style(line.severity), format!("{label:<label_width$}{:gap$}", "")),
                Span::new(if line.label.is_empty() { Style::Dim } else { Style::Plain }, text),
            ]);
        }
    }
    rows
}

fn label_width(lines: &[&ScreenLine], width_max: usize) -> usize {
    lines.iter().map(|line| width(&line.label)).max().unwrap_or(0).min(width_max)
}

/// Lays out lines with the same figures, under the names of the figures.
fn table_rows(lines: &[&ScreenLine], options: LayoutOptions, rows: &mut Vec<StyledRow>) {
    let names: Vec<&str> = lines[0].cells.iter().map(|cell| cell.name).collect();
    let widths: Vec<usize> = (0..names.len())
        .map(|at| {
            let cells = lines.iter().map(|line| width(&line.cells[at].text));
            cells.max().unwrap_or(0).max(width(names[at]))
        })
        .collect();
    let has_bar = lines.iter().any(|line| line.utilization.is_some());
    let bar_width = match (has_bar, options.width) {
        (false, _) => 0,
        (true, ..WIDE_SCREEN_MIN) => 10,
        (true, _) => 20,
    };
    let has_graph = lines.iter().any(|line| line.history.len() > 1);
    let reserves_graph = has_graph && options.width >= WIDE_SCREEN_MIN && options.overflow == Overflow::Hide;
    let graph_width = if reserves_graph { GRAPH_WIDTH_MIN + 2 } else { 0 };
    let mut frame =
        TableFrame { label_width: label_width(lines, LABEL_WIDTH_MAX), bar_width, graph_width, options };
    let mut from = 0;
    while from < names.len() {
        let to = frame.last_fitting(&widths, from);
        let columns = &widths[from..to];
        rows.push(frame.header_row(&names[from..to], columns));
        for line in lines {
            rows.push(frame.value_row(line, from, columns));
        }
        from = to;
        frame.bar_width = 0;
        if options.overflow == Overflow::Hide {
            return;
        }
    }
}

/// Widths around the figures of a table.
struct TableFrame {
    label_width: usize,
    bar_width: usize,
    graph_width: usize,
    options: LayoutOptions,
}

impl TableFrame {
    /// Returns the number of columns before the first figure.
    fn figures_start(&self) -> usize {
        let bar = if self.bar_width > 0 { self.bar_width + 2 } else { 0 };
        SEVERITY_WIDTH + self.label_width + bar
    }

    /// Returns the first column after `from` that does not fit; at least one always fits.
    fn last_fitting(&self, widths: &[usize], from: usize) -> usize {
        let mut used = self.figures_start();
        let fits = |width: &&usize| {
            used += **width + 2;
            used + self.graph_width <= self.options.width
        };
        from + widths[from..].iter().take_while(fits).count().max(1)
    }

    fn header_row(&self, names: &[&str], widths: &[usize]) -> StyledRow {
        let cells = names.iter().zip(widths).map(|(name, width)| format!("  {name:>width$}"));
        let text = format!("{:1$}{2}", "", self.figures_start(), cells.collect::<String>());
        vec![Span::new(Style::Dim, text)]
    }

    fn value_row(&self, line: &ScreenLine, from: usize, widths: &[usize]) -> StyledRow {
        let label = truncate(&line.label, LABEL_WIDTH_MAX);
        let label = format!("{label:<width$}", width = self.label_width);
        let mut row = vec![severity_span(line.severity), Span::new(severity_style(line.severity), label)];
        if self.bar_width > 0 {
            row.push(Span::new(Style::Plain, "  "));
            row.extend(sparkline::bar(line, self.bar_width, self.options.glyphs));
        }
        let cells = line.cells[from..].iter().zip(widths);
        let cells: String = cells.map(|(cell, width)| format!("  {:>width$}", cell.text)).collect();
        let used = self.figures_start() + width(&cells);
        row.push(Span::new(Style::Plain, cells));
        let graph_room = self.options.width.saturating_sub(used + 2).min(GRAPH_WIDTH_MAX);
        if from == 0 && graph_room >= GRAPH_WIDTH_MIN && line.history.len() > 1 {
            let graph = sparkline::graph(line, graph_room, self.options.glyphs);
            row.push(Span::new(Style::Dim, format!("  {graph}")));
        }
        row
    }
}

/// Lays out a paragraph under a heading.
fn indent(text: &str, style: Style, options: LayoutOptions) -> Vec<StyledRow> {
    let lines = wrap(text, options.width.saturating_sub(SEVERITY_WIDTH));
    lines.into_iter().map(|line| vec![Span::new(style, format!("   {line}"))]).collect()
}

/// Returns the help page: keys, the meaning of sections, and the rules behind the marks.
pub fn help(keys: &[(&str, &str)], options: LayoutOptions) -> Vec<StyledRow> {
    let mut rows = vec![vec![Span::new(Style::Heading, "   keys")]];
    for (key, what) in keys {
        rows.push(vec![Span::new(Style::Plain, format!("   {key:<12} {what}"))]);
    }
    for section in ScreenSection::ALL {
        rows.push(StyledRow::new());
        rows.push(vec![Span::new(Style::Heading, format!("   {}", section.title()))]);
        rows.extend(indent(section.doc(), Style::Plain, options));
    }
    rows.push(StyledRow::new());
    rows.push(vec![Span::new(Style::Heading, "   alerts (!! loss or delay, ! unusual)")]);
    for rule in RULES {
        let threshold = format_threshold(rule.threshold, rule.unit);
        let text = format!("{} above {threshold} ({})", rule.description, rule.source);
        for (at, text) in
            wrap(&text, options.width.saturating_sub(SEVERITY_WIDTH + 2)).into_iter().enumerate()
        {
            let mark = if at == 0 { severity_span(rule.severity) } else { severity_span(Severity::Normal) };
            rows.push(vec![mark, Span::new(Style::Plain, text)]);
        }
    }
    rows
}

pub fn format_threshold(above: f64, unit: Unit) -> String {
    match unit {
        Unit::Fraction => format!("{} %", format_count((above * 1000.0).round() / 10.0)),
        Unit::PerSecond => format!("{} a second", format_count(above)),
        Unit::Count | Unit::Ratio | Unit::Cpus | Unit::PerResponse => format_count(above),
        Unit::Nanoseconds => format_duration_ns(above as u64),
        Unit::Bytes => format_bytes(above),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diagnose::alerts::{LIVE_WINDOWS, screen};
    use record::observed::{CpuUse, MachineObservation, MachineSample, UnobservableMetric};

    pub(super) fn observed() -> MachineObservation {
        let cpu = |cpu| CpuUse { cpu, user: 0.5, system: 0.25, softirq: 0.25, ..CpuUse::default() };
        let sample = |time_s| MachineSample {
            time_s,
            length_s: 1.0,
            cpus: vec![cpu(0), cpu(1)],
            ..MachineSample::default()
        };
        MachineObservation {
            host: "here".to_owned(),
            cpus: 2,
            samples: vec![sample(1.0), sample(2.0)],
            not_observable: vec![UnobservableMetric { figure: "x".into(), reason: "it is not there".into() }],
            ..MachineObservation::default()
        }
    }

    fn plain(rows: &[StyledRow]) -> Vec<String> {
        let text = |row: &StyledRow| row.iter().map(|span| span.text.as_str()).collect::<String>();
        rows.iter().map(|row| text(row).trim_end().to_owned()).collect()
    }

    fn layout_options(width: usize, overflow: Overflow) -> LayoutOptions {
        LayoutOptions { width, glyphs: Glyphs::Ascii, section: None, overflow, top_rows_max: 9 }
    }

    #[test]
    fn no_row_is_wider_than_the_screen_and_all_figures_are_somewhere() {
        let screen = screen(&observed(), LIVE_WINDOWS);
        for width in [40, 80, 120, 200] {
            for overflow in [Overflow::Wrap, Overflow::Hide] {
                let rows = plain(&rows(&screen, layout_options(width, overflow)));
                assert!(rows.iter().all(|row| super::width(row) <= width), "{width}: {rows:#?}");
                let has = |text: &str| rows.iter().any(|row| row.contains(text));
                assert_eq!(has("squeezes/s"), overflow == Overflow::Wrap || width >= 200);
                assert!(has("cpu1") && has("- cpus ") && has("it is not there"));
            }
        }
    }

    #[test]
    fn marks_stand_before_their_lines_and_their_sentences() {
        let rows = plain(&rows(&screen(&observed(), LIVE_WINDOWS), layout_options(80, Overflow::Hide)));
        assert!(rows[0].starts_with("-- now ---"), "{rows:#?}");
        assert!(rows[1].starts_with(" ! ") && rows[1].contains("100 %"), "{rows:#?}");
        let starts = |start: &str| rows.iter().any(|row| row.starts_with(start));
        assert!(starts(" ! all  ##########  2.00 of 2"), "{rows:#?}");
        assert!(starts("   cpu0  #####===--"), "{rows:#?}");
    }

    #[test]
    fn the_section_on_top_leaves_room_for_the_others() {
        let sentence = |text: &str| {
            vec![
                vec![severity_span(Severity::Alarm), Span::new(Style::Plain, text)],
                vec![severity_span(Severity::Normal)],
            ]
        };
        let rows = [sentence("one"), sentence("two"), sentence("three")].concat();
        assert_eq!(limit_rows(rows.clone(), 6).len(), 6);
        for (rows_max, kept, more) in [(5, 4, "   1 more"), (4, 2, "   2 more"), (1, 0, "   3 more")] {
            let rows = limit_rows(rows.clone(), rows_max);
            assert_eq!(rows.len(), kept + 1, "{rows_max}");
            assert!(rows[kept][0].text.starts_with(more), "{rows:?}");
        }
    }

    #[test]
    fn one_section_is_shown_with_what_it_means() {
        let options =
            LayoutOptions { section: Some(ScreenSection::Tcp), ..layout_options(80, Overflow::Wrap) };
        assert_eq!(plain(&rows(&screen(&observed(), LIVE_WINDOWS), options)), ["   nothing here"]);
        let options = LayoutOptions { section: Some(ScreenSection::Cpus), ..options };
        let rows = plain(&rows(&screen(&observed(), LIVE_WINDOWS), options));
        let doc = rows[1].strip_prefix("   ").unwrap();
        assert!(!doc.is_empty() && ScreenSection::Cpus.doc().starts_with(doc), "{rows:#?}");
    }

    #[test]
    fn the_help_names_every_rule() {
        let rows = plain(&help(&[("q", "quit")], layout_options(100, Overflow::Wrap))).join("\n");
        assert!(rows.contains("TcpExt.ListenOverflows above 0 a second"), "{rows}");
        assert_eq!(format_threshold(0.001, Unit::Fraction), "0.10 %");
        assert_eq!(format_threshold(0.95, Unit::Fraction), "95 %");
    }
}
