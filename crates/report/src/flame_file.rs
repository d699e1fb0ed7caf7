//! A flame graph as an SVG file of its own, with zoom and search.

use experiment::format;

use super::charts::flame_graph::{change_class, draw_frames, function_class};
use super::data::stack_tree::{StackNode, WeightUnit};
use super::data::stacks::Stacks;
use super::page::{DRAWING_STYLE, without_control_characters};
use super::plot::{Shape, Svg};

/// Width of the file, of its narrowest frame, and its maximum number of frames.
const WIDTH: f64 = 1200.0;
const FRAME_WIDTH_MIN: f64 = 0.1;
const FRAMES_MAX: usize = 20_000;
/// Room for the title above the frames, and for the values below them.
const MARGIN: f64 = 34.0;
const SCRIPT: &str = include_str!("flame.js");

/// Returns the file; `None` without samples.
pub(super) fn render(title: &str, folded: &str, baseline: Option<&str>) -> Option<String> {
    let now = Stacks::parse(folded);
    let before = baseline.map(Stacks::parse);
    let sides: Vec<&Stacks> = before.iter().chain([&now]).collect();
    if now.samples == 0 {
        return None;
    }
    let unit = WeightUnit::Fraction;
    let root = StackNode::tree(&sides, unit);
    let frames = root.frames((WIDTH, FRAME_WIDTH_MIN), FRAMES_MAX);
    let text = format!("{} by caller.", format::count(frames.len(), "function"));
    let mut svg = Svg::new(title, &text).with_width(WIDTH);
    svg.add_space(MARGIN);
    svg.add(Shape::text((0.0, 20.0), title).class("strong"));
    if before.is_some() {
        let class = |node: &StackNode<'_>| change_class(node, root.total_weight[0]);
        let tip = |node: &StackNode<'_>| unit.difference(node, ["before", "now"]);
        draw_frames(&mut svg, &frames, (&class, &tip), true);
    } else {
        let weight = |weight: f64| {
            let samples = (weight * now.samples as f64).round();
            format!("{} ({samples} samples)", unit.format(weight))
        };
        let tip = |node: &StackNode<'_>| {
            format!("{}\nself: {}", weight(node.total_weight[0]), weight(node.self_weight[0]))
        };
        draw_frames(&mut svg, &frames, (&function_class, &tip), true);
    }
    svg.add_space(MARGIN);
    Some(without_control_characters(&svg.file(DRAWING_STYLE, SCRIPT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_and_a_difference_are_drawn() {
        let (before, after) = ("a;main;f<u8> 5\na;main;g 5\n", "a;main;f<u8> 5\na;main;h_[k] 5\n");
        let text = render("one & two", before, None).unwrap();
        assert!(text.starts_with("<?xml") && text.ends_with("</svg>\n"), "{text}");
        assert!(text.contains("f&lt;u8&gt;") && text.contains("one &amp; two"), "{text}");
        // all, a, main, f, g.
        assert_eq!(text.matches("data-left").count(), 5, "{text}");
        assert!(text.contains("50.0 % (5 samples)"), "{text}");
        let text = render("two", after, Some(before)).unwrap();
        assert!(text.contains("dm3") && text.contains("dp3") && text.contains("h (kernel)"), "{text}");
        assert!(render("none", "", None).is_none());
        let text = render("no baseline", after, Some("")).unwrap();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
