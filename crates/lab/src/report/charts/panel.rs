//! Frames of panels that stand one below the other on one axis, and shapes of many cells in one mark.
//! Not for what they show.

use crate::report::csv::number;
use crate::report::svg::{Area, Axis, Corners, Mark, Svg};
use crate::words;

/// The usual width of a drawing.
pub(super) const WIDTH: f64 = 720.0;
/// Where an axis of values ends and the data begin.
pub(super) const LEFT: f64 = 66.0;
/// Where the data end.
pub(super) const RIGHT: f64 = 708.0;
/// Steps of a heat map's colours, the classes `h1` to `h9`; `h0` is the background, which is not drawn.
pub(super) const LEVELS: usize = 9;

/// An area of the usual width.
pub(super) fn area(top: f64, height: f64) -> Area {
    Area { left: LEFT, top, right: RIGHT, bottom: top + height }
}

/// The frame of a panel without its lower axis: what it is, and lines at the ticks of its values.
pub(super) fn frame(svg: &mut Svg, area: &Area, y: &Axis) {
    svg.add(Mark::text((0.0, area.top - 13.0), &y.title).class("label"));
    for (value, label) in &y.ticks {
        let at = y.scale.at(*value);
        svg.add(Mark::line((area.left, at), (area.right, at)).class("grid"));
        svg.add(Mark::text((area.left - 7.0, at + 4.0), label).class("tick end"));
    }
    base(svg, area);
}

/// The line under a panel.
pub(super) fn base(svg: &mut Svg, area: &Area) {
    let ends = ((area.left, area.bottom), (area.right, area.bottom));
    svg.add(Mark::line(ends.0, ends.1).class("axis"));
}

/// The lower axis, which panels above have in common; takes [`FOOT`] below the area.
pub(super) fn foot(svg: &mut Svg, area: &Area, x: &Axis) {
    for (value, label) in x.apart() {
        let at = x.scale.at(*value);
        svg.add(Mark::line((at, area.bottom), (at, area.bottom + 4.0)).class("axis"));
        svg.add(Mark::text((at, area.bottom + 18.0), label).class("tick middle"));
    }
    let middle = f64::midpoint(area.left, area.right);
    svg.add(Mark::text((middle, area.bottom + 36.0), &x.title).class("label middle"));
}

/// What [`foot`] takes.
pub(super) const FOOT: f64 = 46.0;

/// A part of a drawing that is not seen and has a tip.
pub(super) fn hit(one: (f64, f64), other: (f64, f64), tip: &str) -> Mark {
    Mark::rect(one, other).with("fill", "transparent").tip(tip)
}

/// Rectangles of a few colours: each colour is one mark, which takes a fifth of the room of as many
/// marks.
#[derive(Debug, Default)]
pub(super) struct Cells {
    levels: Vec<Vec<Corners>>,
}

impl Cells {
    /// Adds a rectangle of a level; none for level 0.
    pub(super) fn add(&mut self, level: usize, one: (f64, f64), other: (f64, f64)) {
        let finite = [one.0, one.1, other.0, other.1].iter().all(|place| place.is_finite());
        if level == 0 || !finite {
            return;
        }
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Vec::new);
        }
        self.levels[level].push((one, other));
    }

    /// Draws them, a level in the class that `class` has for it.
    pub(super) fn draw(&self, svg: &mut Svg, class: impl Fn(usize) -> String) {
        for (level, cells) in self.levels.iter().enumerate().filter(|(_, all)| !all.is_empty()) {
            svg.add(Mark::cells(cells).class(&class(level)));
        }
    }
}

/// A time on an axis.
pub(super) fn seconds(value: f64) -> String {
    if value == 0.0 { "0 s".to_owned() } else { words::tick(value, "s") }
}

/// The class of a level of a heat map.
pub(super) fn heat(level: usize) -> String {
    format!("h{}", level.min(LEVELS))
}

/// A key of a heat map: what it is about, and a box for each level with the label of its lower bound
/// under it. Takes 46 from `top`.
pub(super) fn key(svg: &mut Svg, top: f64, title: &str, labels: &[String]) {
    svg.add(Mark::text((0.0, top + 12.0), title).class("label"));
    let box_width = ((RIGHT - LEFT) / labels.len().max(1) as f64).min(58.0);
    for (index, label) in labels.iter().enumerate() {
        let left = LEFT + index as f64 * box_width;
        let shape = Mark::rect((left, top + 19.0), (left + box_width - 1.0, top + 29.0));
        svg.add(shape.class(&heat(index + 1)));
        svg.add(Mark::text((left, top + 42.0), label).class("tick"));
    }
}

/// What [`key`] takes.
pub(super) const KEY: f64 = 48.0;

/// A figure for a table of many, to six digits: more would only make the page larger.
pub(super) fn figure(value: f64) -> String {
    number(format!("{value:.5e}").parse().ok())
}

/// The level of a value: how many of the bounds it reaches.
pub(super) fn level(value: f64, bounds: &[f64]) -> usize {
    bounds.iter().filter(|bound| value >= **bound).count().min(LEVELS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_level_are_one_mark() {
        let mut cells = Cells::default();
        cells.add(0, (0.0, 0.0), (1.0, 1.0));
        cells.add(3, (0.0, 0.0), (1.0, 1.0));
        cells.add(3, (2.0, 0.0), (3.0, 1.0));
        cells.add(9, (f64::NAN, 0.0), (3.0, 1.0));
        let mut svg = Svg::new(10.0, 10.0, "t", "d");
        cells.draw(&mut svg, heat);
        let text = svg.markup("x");
        assert_eq!(text.matches("<path").count(), 1);
        assert_eq!(text.matches('M').count(), 2, "{text}");
        assert!(text.contains("h3"));
    }

    #[test]
    fn a_time_of_nothing_is_seconds_too() {
        assert_eq!([0.0, 2.0, 0.5].map(seconds), ["0 s", "2 s", "500 ms"]);
    }

    #[test]
    fn a_figure_has_six_digits() {
        let said = [1.0 / 3.0, 0.1 + 0.2, 123_456_789.0, 0.0, f64::NAN].map(figure);
        assert_eq!(said, ["0.333333", "0.3", "123457000", "0", ""]);
    }

    #[test]
    fn a_level_is_the_number_of_bounds_reached() {
        let bounds = [0.1, 1.0, 10.0];
        let levels = [0.0, 0.1, 5.0, 1e9, f64::NAN].map(|value| level(value, &bounds));
        assert_eq!(levels, [0, 1, 2, 3, 0]);
    }
}
