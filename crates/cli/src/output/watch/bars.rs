//! Bars and small graphs, made of characters.

use lab::marks::{Line, PartKind};

use super::{Glyphs, Row, Span, Style};

/// Heights of a graph's points, from nothing to full.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['_', '.', '.', '-', '-', '=', '=', '#'];

/// The share of a line as a bar; its parts can be told apart without colours as well. Blank for a
/// line that has none.
pub(super) fn bar(line: &Line, width: usize, glyphs: Glyphs) -> Row {
    let Some(share) = line.share else {
        return vec![Span::new(Style::Plain, " ".repeat(width))];
    };
    let whole = [(PartKind::Share, share)];
    let parts = if line.parts.is_empty() { &whole[..] } else { &line.parts };
    let mut row = Row::new();
    let mut sum = 0.0;
    let mut drawn = 0;
    for (kind, part) in parts {
        sum += part.max(0.0);
        let end = ((sum * width as f64).round() as usize).min(width);
        if end > drawn {
            let (style, block, ascii) = look(*kind);
            let glyph = if glyphs == Glyphs::Blocks { block } else { ascii };
            row.push(Span::new(style, glyph.to_string().repeat(end - drawn)));
            drawn = end;
        }
    }
    let rest = if glyphs == Glyphs::Blocks { '·' } else { '.' };
    row.push(Span::new(Style::Dim, rest.to_string().repeat(width - drawn)));
    row
}

fn look(kind: PartKind) -> (Style, char, char) {
    match kind {
        PartKind::User => (Style::User, '█', '#'),
        PartKind::System => (Style::System, '▓', '='),
        PartKind::Interrupt => (Style::Interrupt, '▒', '-'),
        PartKind::Steal => (Style::Steal, '░', 'x'),
        PartKind::Share => (Style::Share, '█', '#'),
    }
}

/// What the characters of bars stand for.
pub(super) fn legend(glyphs: Glyphs) -> String {
    let kinds = [
        (PartKind::User, "user"),
        (PartKind::System, "system"),
        (PartKind::Interrupt, "interrupts"),
        (PartKind::Steal, "steal"),
    ];
    let each = kinds.map(|(kind, name)| {
        let (_, block, ascii) = look(kind);
        format!("{} {name}", if glyphs == Glyphs::Blocks { block } else { ascii })
    });
    each.join("  ")
}

/// The last points of a line's history as a graph: shares by themselves, other figures by the
/// largest of them.
pub(super) fn graph(line: &Line, width: usize, glyphs: Glyphs) -> String {
    let points = &line.history[line.history.len().saturating_sub(width)..];
    let most = if line.share.is_some() { 1.0 } else { points.iter().copied().fold(0.0, f64::max) };
    let heights = if glyphs == Glyphs::Blocks { &BLOCKS } else { &ASCII };
    let glyph = |value: &f64| {
        let height = if most > 0.0 { value / most * 7.0 } else { 0.0 };
        heights[(height.round().max(0.0) as usize).min(7)]
    };
    points.iter().map(glyph).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::marks::{Mark, Section};

    fn line(parts: Vec<(PartKind, f64)>, share: Option<f64>) -> Line {
        Line {
            section: Section::Processors,
            label: String::new(),
            cells: Vec::new(),
            share,
            parts,
            history: Vec::new(),
            mark: Mark::Calm,
            why: None,
        }
    }

    fn text(row: &Row) -> String {
        row.iter().map(|span| span.text.as_str()).collect()
    }

    #[test]
    fn bars_are_as_wide_as_asked_and_their_parts_add_up() {
        let parts = vec![(PartKind::User, 0.25), (PartKind::System, 0.25), (PartKind::Steal, 0.1)];
        let drawn = bar(&line(parts, Some(0.6)), 20, Glyphs::Ascii);
        assert_eq!(text(&drawn), "#####=====xx........");
        let drawn = bar(&line(Vec::new(), Some(1.0)), 4, Glyphs::Blocks);
        assert_eq!(text(&drawn), "████");
        assert_eq!(text(&bar(&line(Vec::new(), None), 4, Glyphs::Ascii)), "    ");
        // Shares that do not add up, as of counters read one after the other, stay in their width.
        let parts = vec![(PartKind::User, 0.9), (PartKind::System, 0.9)];
        assert_eq!(text(&bar(&line(parts, Some(1.0)), 10, Glyphs::Ascii)), "#########=");
    }

    #[test]
    fn graphs_are_scaled_to_their_largest_point_or_to_the_whole() {
        let drawn = |history: &[f64], share, width, glyphs| {
            let line = Line { history: history.to_vec(), ..line(Vec::new(), share) };
            graph(&line, width, glyphs)
        };
        assert_eq!(drawn(&[9.0, 0.0, 1.0, 2.0], None, 3, Glyphs::Blocks), "▁▅█");
        assert_eq!(drawn(&[0.1, 0.5, 1.0], Some(0.1), 9, Glyphs::Blocks), "▂▅█");
        assert_eq!(drawn(&[0.0, 0.0], None, 5, Glyphs::Ascii), "__");
        assert_eq!(drawn(&[], None, 5, Glyphs::Ascii), "");
    }
}
