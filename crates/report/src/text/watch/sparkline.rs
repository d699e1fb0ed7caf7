//! Bars and small graphs, made of characters.

use diagnose::alerts::{BarPart, ScreenLine};

use super::{Glyphs, Span, Style, StyledRow};

/// Heights of a graph's points, from nothing to full.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['_', '.', '.', '-', '-', '=', '=', '#'];

/// Draws the fraction of a line as a bar, whose parts differ without colours too. Blank for a line
/// without a fraction.
pub(super) fn bar(line: &ScreenLine, width: usize, glyphs: Glyphs) -> StyledRow {
    let Some(fraction) = line.utilization else {
        return vec![Span::new(Style::Plain, " ".repeat(width))];
    };
    let full_bar = [(BarPart::Other, fraction)];
    let parts = if line.parts.is_empty() { &full_bar[..] } else { &line.parts };
    let mut row = StyledRow::new();
    let mut sum = 0.0;
    let mut drawn = 0;
    for (kind, part) in parts {
        sum += part.max(0.0);
        let end = ((sum * width as f64).round() as usize).min(width);
        if end > drawn {
            let (style, block, ascii) = part_style(*kind);
            let glyph = if glyphs == Glyphs::Blocks { block } else { ascii };
            row.push(Span::new(style, glyph.to_string().repeat(end - drawn)));
            drawn = end;
        }
    }
    let rest = if glyphs == Glyphs::Blocks { '·' } else { '.' };
    row.push(Span::new(Style::Dim, rest.to_string().repeat(width - drawn)));
    row
}

fn part_style(kind: BarPart) -> (Style, char, char) {
    match kind {
        BarPart::User => (Style::User, '█', '#'),
        BarPart::System => (Style::System, '▓', '='),
        BarPart::Interrupt => (Style::Interrupt, '▒', '-'),
        BarPart::Steal => (Style::Steal, '░', 'x'),
        BarPart::Other => (Style::Fraction, '█', '#'),
    }
}

/// Explains the characters of bars.
pub(super) fn legend(glyphs: Glyphs) -> String {
    let kinds = [
        (BarPart::User, "user"),
        (BarPart::System, "system"),
        (BarPart::Interrupt, "interrupts"),
        (BarPart::Steal, "steal"),
    ];
    let each = kinds.map(|(kind, name)| {
        let (_, block, ascii) = part_style(kind);
        format!("{} {name}", if glyphs == Glyphs::Blocks { block } else { ascii })
    });
    each.join("  ")
}

/// Draws the last points of a line's history as a graph. Fractions have a fixed scale; other
/// figures scale to their maximum.
pub(super) fn graph(line: &ScreenLine, width: usize, glyphs: Glyphs) -> String {
    let points = &line.history[line.history.len().saturating_sub(width)..];
    let max = if line.utilization.is_some() { 1.0 } else { points.iter().copied().fold(0.0, f64::max) };
    let heights = if glyphs == Glyphs::Blocks { &BLOCKS } else { &ASCII };
    let glyph = |value: &f64| {
        let height = if max > 0.0 { value / max * 7.0 } else { 0.0 };
        heights[(height.round().max(0.0) as usize).min(7)]
    };
    points.iter().map(glyph).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use diagnose::alerts::{ScreenSection, Severity};

    fn line(parts: Vec<(BarPart, f64)>, utilization: Option<f64>) -> ScreenLine {
        ScreenLine {
            section: ScreenSection::Cpus,
            label: String::new(),
            cells: Vec::new(),
            utilization,
            parts,
            history: Vec::new(),
            severity: Severity::Normal,
            reason: None,
        }
    }

    fn text(row: &StyledRow) -> String {
        row.iter().map(|span| span.text.as_str()).collect()
    }

    #[test]
    fn bars_have_the_requested_width_and_their_parts_add_up() {
        let parts = vec![(BarPart::User, 0.25), (BarPart::System, 0.25), (BarPart::Steal, 0.1)];
        let drawn = bar(&line(parts, Some(0.6)), 20, Glyphs::Ascii);
        assert_eq!(text(&drawn), "#####=====xx........");
        let drawn = bar(&line(Vec::new(), Some(1.0)), 4, Glyphs::Blocks);
        assert_eq!(text(&drawn), "████");
        assert_eq!(text(&bar(&line(Vec::new(), None), 4, Glyphs::Ascii)), "    ");
        // Fractions that add up to more than 1, from counters read one after the other, stay in
        // their width.
        let parts = vec![(BarPart::User, 0.9), (BarPart::System, 0.9)];
        assert_eq!(text(&bar(&line(parts, Some(1.0)), 10, Glyphs::Ascii)), "#########=");
    }

    #[test]
    fn graphs_are_scaled_to_their_largest_point_or_to_one() {
        let drawn = |history: &[f64], utilization, width, glyphs| {
            let line = ScreenLine { history: history.to_vec(), ..line(Vec::new(), utilization) };
            graph(&line, width, glyphs)
        };
        assert_eq!(drawn(&[9.0, 0.0, 1.0, 2.0], None, 3, Glyphs::Blocks), "▁▅█");
        assert_eq!(drawn(&[0.1, 0.5, 1.0], Some(0.1), 9, Glyphs::Blocks), "▂▅█");
        assert_eq!(drawn(&[0.0, 0.0], None, 5, Glyphs::Ascii), "__");
        assert_eq!(drawn(&[], None, 5, Glyphs::Ascii), "");
    }
}
