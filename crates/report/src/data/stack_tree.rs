//! Tree of the functions of one profile, or of two, and the frames of its flame graph.

use std::collections::BTreeMap;

use experiment::format;
use record::sorted::sort_by;

use super::stacks::Stacks;

/// A function with its callees; of one profile, or of two.
#[derive(Debug, Default)]
pub(crate) struct StackNode<'a> {
    /// Name of the function; empty for the root.
    pub(crate) name: &'a str,
    pub(crate) self_weight: [f64; 2],
    /// Weight with the function anywhere at this position of the stack.
    pub(crate) total_weight: [f64; 2],
    callees: BTreeMap<&'a str, Self>,
}

impl<'a> StackNode<'a> {
    /// Returns the root of the functions of one or two profiles.
    pub(crate) fn tree(sides: &[&'a Stacks], unit: WeightUnit) -> Self {
        let mut root = Self::default();
        for (side, stacks) in sides.iter().enumerate().take(2) {
            for (stack, samples) in &stacks.stacks {
                root.add(stack, side, stacks.weight(*samples, unit == WeightUnit::Us));
            }
        }
        root
    }

    fn add(&mut self, stack: &'a str, side: usize, weight: f64) {
        self.total_weight[side] += weight;
        let mut node = self;
        for frame in stack.split(';') {
            node = node.callees.entry(frame).or_insert_with(|| StackNode { name: frame, ..Self::default() });
            node.total_weight[side] += weight;
        }
        node.self_weight[side] += weight;
    }

    /// Returns the growth from the first profile to the second.
    pub(crate) fn growth(&self) -> f64 {
        self.total_weight[1] - self.total_weight[0]
    }

    /// Returns the widest frames; every frame comes with the one below it. `width` is that of the
    /// root, `width_min` that of the narrowest frame.
    pub(crate) fn frames(&self, (width, width_min): (f64, f64), count_max: usize) -> Vec<Frame<'_, 'a>> {
        let weight = |node: &Self| node.total_weight[0] + node.total_weight[1];
        let scale = width / weight(self);
        if !scale.is_finite() {
            return Vec::new();
        }
        let mut frames = Vec::new();
        let mut pending = vec![Frame { node: self, depth: 0, left: 0.0, width }];
        while let Some(frame) = pending.pop() {
            let mut left = frame.left;
            for node in frame.node.callees.values() {
                let width = weight(node) * scale;
                if width >= width_min {
                    pending.push(Frame { node, depth: frame.depth + 1, left, width });
                }
                left += width;
            }
            frames.push(frame);
        }
        // Of equally wide frames the lower one comes first, so that no frame is left without its
        // caller.
        sort_by(&mut frames, |a, b| b.width.total_cmp(&a.width).then(a.depth.cmp(&b.depth)));
        frames.truncate(count_max.max(1));
        frames
    }
}

/// A frame of a flame graph: its node, its row from below, its left edge and its width.
pub(crate) struct Frame<'n, 'a> {
    pub(crate) node: &'n StackNode<'a>,
    /// Row from below.
    pub(crate) depth: usize,
    pub(crate) left: f64,
    pub(crate) width: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WeightUnit {
    /// CPU time per response, in µs.
    Us,
    Fraction,
}

impl WeightUnit {
    pub(crate) fn common<'a>(profiles: impl IntoIterator<Item = &'a Stacks>) -> Self {
        let has_us = profiles.into_iter().all(|stacks| stacks.us_per_response.is_some());
        if has_us { Self::Us } else { Self::Fraction }
    }

    pub(crate) fn format(self, weight: f64) -> String {
        match self {
            Self::Us => format!("{} per response", format::value(weight, "us")),
            Self::Fraction => format::percent(weight),
        }
    }

    /// Describes the weights of a function in two profiles with these names, and the difference.
    pub(crate) fn difference(self, node: &StackNode<'_>, [before, after]: [&str; 2]) -> String {
        let ([was, is], growth) = (node.total_weight.map(|weight| self.format(weight)), node.growth());
        let sign = if growth >= 0.0 { "+" } else { "−" };
        format!("{before}: {was}\n{after}: {is}\ndifference: {sign}{}", self.format(growth.abs()))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Us => "us_per_response",
            Self::Fraction => "fraction",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_above_its_caller_and_no_wider() {
        let stacks = [("main;f;g_[k]".to_owned(), 3), ("main;h".to_owned(), 1)];
        let stacks = Stacks { stacks: stacks.into(), samples: 4, ..Stacks::default() };
        let root = StackNode::tree(&[&stacks], WeightUnit::Fraction);
        let frames = root.frames((720.0, 1.0), 100);
        let of = |name: &str| frames.iter().find(|frame| frame.node.name == name).unwrap();
        assert_eq!((of("g_[k]").left, of("g_[k]").width, of("g_[k]").depth), (0.0, 540.0, 3));
        assert_eq!((of("h").left, of("h").width), (540.0, 180.0));
        assert_eq!(of("main").node.self_weight[0], 0.0);
    }
}
