//! The flame graph: a frame for each function above its caller, as wide as its weight (Brendan Gregg,
//! "The Flame Graph", CACM 59(6), 2016). [`super::flame`] has those of a report,
//! [`crate::flame_file`] makes a file.

use crate::data::stack_tree::{Frame, StackNode};
use crate::data::stacks::split_kernel_suffix;
use crate::plot::{Area, Shape, Svg, shortened};

const ROW_HEIGHT: f64 = 18.0;
/// Minimum width of a frame with its name inside, and width of a letter.
const NAME_WIDTH_MIN: f64 = 40.0;
const CHAR_WIDTH: f64 = 6.8;
/// Letters of a name in a tip.
const TOOLTIP_NAME_CHARS: usize = 90;
/// Number of colours for user-space functions. They distinguish neighbours and have no other
/// meaning.
const COLOURS: u32 = 6;
/// Thresholds of the colours of changes, as fractions of all time of the baseline.
const CHANGE_THRESHOLDS: [f64; 3] = [0.001, 0.005, 0.02];

/// Function for a text of a node: its colour class, or its tip.
pub(crate) type NodeText<'l> = &'l dyn Fn(&StackNode<'_>) -> String;

/// Returns the name of a frame's function, and whether it is one of the kernel.
pub(super) fn function_name<'a>(frame: &Frame<'_, 'a>) -> (&'a str, bool) {
    if frame.depth == 0 { ("all", false) } else { split_kernel_suffix(frame.node.name) }
}

/// Adds the frames below a drawing. A script needs their exact places to zoom.
pub(crate) fn draw_frames(
    svg: &mut Svg,
    frames: &[Frame<'_, '_>],
    (class, tip): (NodeText<'_>, NodeText<'_>),
    with_places: bool,
) {
    let rows = frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(1);
    let bottom = svg.add_space(rows as f64 * ROW_HEIGHT) + rows as f64 * ROW_HEIGHT;
    for frame in frames {
        let top = bottom - (frame.depth + 1) as f64 * ROW_HEIGHT;
        let (left, right) = (frame.left, frame.left + frame.width);
        let area = Area { left, top, right, bottom: top + ROW_HEIGHT - 1.0 }.with_gap(0.6);
        let (name, kernel) = function_name(frame);
        let mode = if kernel { " (kernel)" } else { "" };
        let tip = format!("{}{mode}\n{}", shortened(name, TOOLTIP_NAME_CHARS), tip(frame.node));
        let mut shape = Shape::rect(area).class(&class(frame.node)).tooltip(&tip);
        if with_places {
            let (left, width) = (format!("{left:.4}"), format!("{:.4}", frame.width));
            shape = shape.attribute("data-left", left).attribute("data-width", width);
        }
        svg.add(shape);
        if frame.width >= NAME_WIDTH_MIN {
            let letters = ((frame.width - 6.0) / CHAR_WIDTH) as usize;
            let at = (left + 3.0, top + ROW_HEIGHT - 5.5);
            svg.add(Shape::text(at, &shortened(name, letters)).class("frame"));
        }
    }
}

/// Returns the colour class of a function: one for the kernel, several by name for user space.
pub(crate) fn function_class(node: &StackNode<'_>) -> String {
    let (plain, kernel) = split_kernel_suffix(node.name);
    if kernel {
        return "fk".to_owned();
    }
    let hash = plain.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    format!("f{}", (hash >> 7) % COLOURS)
}

/// Returns the colour class of a change. `all` is all time of the baseline.
pub(crate) fn change_class(node: &StackNode<'_>, all: f64) -> String {
    let fraction = node.growth() / all;
    let level = CHANGE_THRESHOLDS.iter().filter(|bound| fraction.abs() >= **bound).count();
    match (level, fraction > 0.0) {
        (0, _) => "d0".to_owned(),
        (level, true) => format!("dp{level}"),
        (level, false) => format!("dm{level}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::stack_tree::WeightUnit;
    use crate::data::stacks::Stacks;

    #[test]
    fn colours_are_of_the_mode_and_the_name() {
        let stacks = [("g_[k]".to_owned(), 1), ("g".to_owned(), 1)];
        let stacks = Stacks { stacks: stacks.into(), samples: 2, ..Stacks::default() };
        let root = StackNode::tree(&[&stacks], WeightUnit::Fraction);
        for frame in root.frames((10.0, 1.0), 9).iter().filter(|frame| frame.depth > 0) {
            let (_, kernel) = function_name(frame);
            let class = function_class(frame.node);
            assert!(class.starts_with('f') && (class == "fk") == kernel, "{}: {class}", frame.node.name);
        }
    }
}
