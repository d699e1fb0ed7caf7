//! Flame graphs of folded stacks (self-contained SVG), of one run or of the difference of two.
//!
//! The crate `inferno` draws them; nothing else of it is used.

use std::io;

use inferno::differential;
use inferno::flamegraph::{self, Options};

use super::folded::FoldedStacks;

/// Draws a flame graph of a run.
///
/// # Errors
/// There are no stacks to draw.
pub fn flame_graph_svg(folded: &FoldedStacks, title: &str) -> io::Result<Vec<u8>> {
    let mut options = options(title);
    options.colors = flamegraph::Palette::Basic(flamegraph::color::BasicPalette::Hot);
    options.hash = true;
    let lines: Vec<String> = folded.lines().collect();
    draw(&mut options, &lines)
}

/// Draws a flame graph of a run with growth since another run in red, and shrinkage in blue.
///
/// # Errors
/// There are no stacks to draw.
pub fn differential_flame_graph_svg(
    before: &FoldedStacks,
    after: &FoldedStacks,
    title: &str,
) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    let diff_options = differential::Options { normalize: true, strip_hex: false };
    let (before, after) = (before.to_string(), after.to_string());
    differential::from_readers(diff_options, before.as_bytes(), after.as_bytes(), &mut lines)?;
    let lines = String::from_utf8_lossy(&lines);
    let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    draw(&mut options(title), &lines)
}

fn options(title: &str) -> Options<'static> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = "samples".to_owned();
    options
}

fn draw(options: &mut Options<'_>, lines: &[String]) -> io::Result<Vec<u8>> {
    if lines.is_empty() {
        return Err(io::Error::other("no samples to draw"));
    }
    let mut svg = Vec::new();
    let drawn = flamegraph::from_lines(options, lines.iter().map(String::as_str), &mut svg);
    drawn.map_err(io::Error::other)?;
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_and_a_difference_are_drawn() {
        let before = FoldedStacks::parse("a;main;f<u8> 5\na;main;g 5\n").unwrap();
        let after = FoldedStacks::parse("a;main;f<u8> 5\na;main;h 5\n").unwrap();
        let text = String::from_utf8(flame_graph_svg(&before, "one").unwrap()).unwrap();
        assert!(text.contains("<svg") && text.contains("f&lt;u8&gt;") && text.contains("one"));
        let text = String::from_utf8(differential_flame_graph_svg(&before, &after, "two").unwrap()).unwrap();
        assert!(text.contains("<svg") && text.contains("h (5 samples"), "{text}");
        assert!(flame_graph_svg(&FoldedStacks::default(), "none").is_err());
    }
}
