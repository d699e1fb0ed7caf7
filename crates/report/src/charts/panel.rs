//! Frames of panels that are stacked on one axis, and shapes of many cells in one mark.

use crate::data_table::number;
use crate::svg::{Area, Axis, Corners, Shape, Svg};
use experiment::format;

/// The usual width of a drawing.
pub(super) const WIDTH: f64 = 720.0;
/// Left edge of the data; the axis of values is to the left of it.
pub(super) const LEFT: f64 = 66.0;
/// Right edge of the data.
pub(super) const RIGHT: f64 = 708.0;
/// Number of colours of a heat map, the classes `h1` to `h9`; `h0` is the background, which is not
/// drawn.
pub(super) const HEAT_LEVELS: usize = 9;

/// Returns an area of the usual width.
pub(super) fn area(top: f64, height: f64) -> Area {
    Area { left: LEFT, top, right: RIGHT, bottom: top + height }
}

/// Draws the frame of a panel without its lower axis: its title, and lines at the ticks of its
/// values.
pub(super) fn draw_frame(svg: &mut Svg, area: &Area, y: &Axis) {
    svg.add(Shape::text((0.0, area.top - 13.0), &y.title).class("label"));
    for (value, label) in &y.ticks {
        let at = y.scale.position(*value);
        svg.add(Shape::line((area.left, at), (area.right, at)).class("grid"));
        svg.add(Shape::text((area.left - 7.0, at + 4.0), label).class("tick end"));
    }
    draw_lower_line(svg, area);
}

/// Draws the line under a panel.
pub(super) fn draw_lower_line(svg: &mut Svg, area: &Area) {
    let ends = ((area.left, area.bottom), (area.right, area.bottom));
    svg.add(Shape::line(ends.0, ends.1).class("axis"));
}

/// Draws the lower axis, which all panels above have in common. It takes [`X_AXIS_HEIGHT`] below the area.
pub(super) fn draw_x_axis(svg: &mut Svg, area: &Area, x: &Axis) {
    for (value, label) in x.spaced_ticks() {
        let at = x.scale.position(*value);
        svg.add(Shape::line((at, area.bottom), (at, area.bottom + 4.0)).class("axis"));
        svg.add(Shape::text((svg.within(at, label), area.bottom + 18.0), label).class("tick middle"));
    }
    let middle = f64::midpoint(area.left, area.right);
    svg.add(Shape::text((middle, area.bottom + 36.0), &x.title).class("label middle"));
}

/// Height of the lower axis.
pub(super) const X_AXIS_HEIGHT: f64 = 46.0;

/// Returns an invisible part of a drawing with a tip.
pub(super) fn hover_area(one: (f64, f64), other: (f64, f64), tip: &str) -> Shape {
    Shape::rect(one, other).attribute("fill", "transparent").tooltip(tip)
}

/// Rectangles of a few colours. Each colour is one mark, which takes a fifth of the bytes of
/// separate marks.
#[derive(Debug, Default)]
pub(super) struct LevelCells {
    levels: Vec<Vec<Corners>>,
}

impl LevelCells {
    /// Adds a rectangle of a level; nothing for level 0.
    pub(super) fn add(&mut self, level: usize, one: (f64, f64), other: (f64, f64)) {
        let finite = [one.0, one.1, other.0, other.1].iter().all(|coordinate| coordinate.is_finite());
        if level == 0 || !finite {
            return;
        }
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Vec::new);
        }
        self.levels[level].push((one, other));
    }

    /// Draws the rectangles, each level in its class from `class`.
    pub(super) fn draw(&self, svg: &mut Svg, class: impl Fn(usize) -> String) {
        for (level, cells) in self.levels.iter().enumerate().filter(|(_, all)| !all.is_empty()) {
            svg.add(Shape::cells(cells).class(&class(level)));
        }
    }
}

/// Formats a time on an axis.
pub(super) fn seconds_text(value: f64) -> String {
    if value == 0.0 { "0 s".to_owned() } else { format::tick(value, "s") }
}

/// Returns the class of a level of a heat map.
pub(super) fn heat_class(level: usize) -> String {
    format!("h{}", level.min(HEAT_LEVELS))
}

/// Draws the key of a heat map: its title, and a box for each level with the label of its lower
/// bound below. It takes 46 from `top`.
pub(super) fn draw_key(svg: &mut Svg, top: f64, title: &str, labels: &[String]) {
    svg.add(Shape::text((0.0, top + 12.0), title).class("label"));
    let box_width = ((RIGHT - LEFT) / labels.len().max(1) as f64).min(58.0);
    for (index, label) in labels.iter().enumerate() {
        let left = LEFT + index as f64 * box_width;
        let shape = Shape::rect((left, top + 19.0), (left + box_width - 1.0, top + 29.0));
        svg.add(shape.class(&heat_class(index + 1)));
        svg.add(Shape::text((left, top + 42.0), label).class("tick"));
    }
}

/// Height of the key.
pub(super) const KEY_HEIGHT: f64 = 48.0;

/// Formats a figure for a long table, to six digits: more would only make the page larger.
pub(super) fn six_digits(value: f64) -> String {
    number(format!("{value:.5e}").parse().ok())
}

/// Returns the level of a value: the number of bounds that it reaches.
pub(super) fn level(value: f64, bounds: &[f64]) -> usize {
    bounds.iter().filter(|bound| value >= **bound).count().min(HEAT_LEVELS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_level_are_one_mark() {
        let mut cells = LevelCells::default();
        cells.add(0, (0.0, 0.0), (1.0, 1.0));
        cells.add(3, (0.0, 0.0), (1.0, 1.0));
        cells.add(3, (2.0, 0.0), (3.0, 1.0));
        cells.add(9, (f64::NAN, 0.0), (3.0, 1.0));
        let mut svg = Svg::new(10.0, 10.0, "t", "d");
        cells.draw(&mut svg, heat_class);
        let text = svg.markup("x");
        assert_eq!(text.matches("<path").count(), 1);
        assert_eq!(text.matches('M').count(), 2, "{text}");
        assert!(text.contains("h3"));
    }

    #[test]
    fn a_time_of_nothing_is_seconds_too() {
        assert_eq!([0.0, 2.0, 0.5].map(seconds_text), ["0 s", "2 s", "500 ms"]);
    }

    #[test]
    fn a_figure_has_six_digits() {
        let text = [1.0 / 3.0, 0.1 + 0.2, 123_456_789.0, 0.0, f64::NAN].map(six_digits);
        assert_eq!(text, ["0.333333", "0.3", "123457000", "0", ""]);
    }

    #[test]
    fn a_level_is_the_number_of_bounds_reached() {
        let bounds = [0.1, 1.0, 10.0];
        let levels = [0.0, 0.1, 5.0, 1e9, f64::NAN].map(|value| level(value, &bounds));
        assert_eq!(levels, [0, 1, 2, 3, 0]);
    }
}
