//! A drawing: plots from top to bottom, with their axes and labels, as an SVG element.

use maud::{Markup, PreEscaped, Render, html};

use super::heat::heat_class;
use super::shape::Length;
use super::{Area, Axis, Plot, Scale, Shape, text_width};

/// Usual width of a drawing.
pub(crate) const WIDTH: f64 = 720.0;
/// Usual left edge of a plot; the labels of its values are to the left of it.
pub(crate) const LEFT: f64 = 66.0;
/// Usual right edge of a plot.
pub(crate) const RIGHT: f64 = 708.0;

/// Fraction of its own width to which a narrow screen may shrink a drawing; below it, the drawing
/// scrolls. Letters of 12 units stay above 11 CSS pixels.
const SHRINK_MIN: f64 = 0.92;
/// Multiple of its own width to which a wide screen may stretch a drawing.
const STRETCH_MAX: f64 = 1.25;
/// Height of a label, and minimum gap between two labels of a horizontal axis.
const LABEL_HEIGHT: f64 = 11.0;
const LABEL_GAP_MIN: f64 = 8.0;
/// Height of the labels of a lower axis, and of its title.
const LABELS_HEIGHT: f64 = 26.0;
const TITLE_HEIGHT: f64 = 20.0;

/// Place of a plot in a drawing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    above: f64,
    height: f64,
    left: f64,
    right: f64,
}

impl Frame {
    /// Returns a place of the usual width: the space above the plot, and its height.
    pub(crate) const fn new(above: f64, height: f64) -> Self {
        Self { above, height, left: LEFT, right: RIGHT }
    }

    pub(crate) const fn within(self, left: f64, right: f64) -> Self {
        Self { left, right, ..self }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Svg {
    width: f64,
    height: f64,
    body: String,
    title: String,
    description: String,
    is_small: bool,
}

impl Svg {
    /// Returns an empty drawing. Screen readers read its title and its description (its content in a
    /// sentence or two).
    pub(crate) fn new(title: &str, description: &str) -> Self {
        let (title, description) = (title.to_owned(), description.to_owned());
        Self { width: WIDTH, height: 0.0, body: String::new(), title, description, is_small: false }
    }

    pub(crate) fn with_width(self, width: f64) -> Self {
        Self { width, ..self }
    }

    /// Keeps the drawing at its own size, for use inside a line or a table.
    pub(crate) fn small(self) -> Self {
        Self { is_small: true, ..self }
    }

    pub(crate) fn add(&mut self, shape: Shape) {
        if shape.finite {
            shape.render_to(&mut self.body);
        }
    }

    /// Adds the line of a series through points, or a dot if it has one point only.
    pub(crate) fn add_series(&mut self, plot: &Plot, points: &[(f64, f64)], series: usize) {
        self.add(plot.line(points.iter().copied()).class("stroke").series(series));
        if let [point] = *points {
            self.add(plot.dot(point, 2.5).class("fill").series(series));
        }
    }

    /// Adds space below, and returns where it starts.
    pub(crate) fn add_space(&mut self, height: f64) -> f64 {
        let top = self.height;
        self.height += height;
        top
    }

    pub(crate) fn add_text(&mut self, left: f64, text: &str, class: &str) {
        let top = self.add_space(18.0);
        self.add(Shape::text((left, top + 13.0), text).class(class));
    }

    /// Adds a plot below, with its title and the lines and labels of its values.
    pub(crate) fn plot(&mut self, frame: Frame, x: Scale, y: &Axis) -> Plot {
        let plot = self.place(frame, x, y.scale);
        let Area { left, top, .. } = plot.area;
        self.add(Shape::text((0.0, top - 13.0), &y.title).class("label"));
        for (value, label) in y.spaced_ticks(frame.height, |_| LABEL_HEIGHT / 2.0) {
            let at = (left - 7.0, plot.at((f64::NAN, *value)).1 + 4.0);
            self.add(plot.horizontal(*value).class("grid"));
            self.add(Shape::text(at, label).class("tick end"));
        }
        self.add_lower_line(&plot);
        plot
    }

    /// Adds a plot of rows, the first at the top: row `n` is from `n` to `n + 1`.
    pub(crate) fn rows(&mut self, frame: Frame, x: Scale, count: usize) -> Plot {
        self.place(frame, x, Scale::rows(count))
    }

    fn place(&mut self, frame: Frame, x: Scale, y: Scale) -> Plot {
        let top = self.add_space(frame.above + frame.height) + frame.above;
        Plot { area: Area { left: frame.left, top, right: frame.right, bottom: self.height }, x, y }
    }

    pub(crate) fn name_row(&mut self, plot: &Plot, row: usize, name: &str, class: &str) {
        let at = (plot.area.left - 10.0, plot.at((f64::NAN, row as f64 + 0.5)).1 + 4.0);
        self.add(Shape::text(at, name).class(class).class("end"));
    }

    /// Draws the line below a plot.
    pub(crate) fn add_lower_line(&mut self, plot: &Plot) {
        let Area { left, right, bottom, .. } = plot.area;
        self.add(Shape::line((left, bottom), (right, bottom)).class("axis"));
    }

    /// Adds the axis below a plot, which all plots above it have in common.
    pub(crate) fn x_axis(&mut self, plot: &Plot, x: &Axis) {
        let bottom = plot.area.bottom;
        self.add_x_labels(plot, x, |at| Shape::line((at, bottom), (at, bottom + 4.0)).class("axis"));
    }

    /// Adds a tip for each column of plots below each other, and the axis that they have in common.
    pub(crate) fn finish_columns(
        &mut self,
        plots: &[Plot],
        x: &Axis,
        tips: impl Iterator<Item = ((f64, f64), String)>,
    ) {
        let (Some(first), Some(last)) = (plots.first(), plots.last()) else { return };
        let all = Plot { area: Area { top: first.area.top, ..last.area }, ..*last };
        tips.for_each(|(x, tip)| self.add(all.hover(x, &tip)));
        self.x_axis(last, x);
    }

    /// Adds the labels below a plot with a line through the plot for each, for plots of rows.
    pub(crate) fn x_grid(&mut self, plot: &Plot, x: &Axis) {
        let Area { top, bottom, .. } = plot.area;
        self.add_x_labels(plot, x, |at| Shape::line((at, top), (at, bottom)).class("grid"));
    }

    fn add_x_labels(&mut self, plot: &Plot, x: &Axis, line: impl Fn(f64) -> Shape) {
        let Area { left, right, bottom, .. } = plot.area;
        for (value, label) in x.spaced_ticks(right - left, |label| (text_width(label) + LABEL_GAP_MIN) / 2.0)
        {
            let at = plot.at((*value, f64::NAN)).0;
            self.add(line(at));
            // The label ends within the drawing.
            let half = text_width(label) / 2.0;
            let middle = at.min(self.width - half).max(half);
            self.add(Shape::text((middle, bottom + 17.0), label).class("tick middle"));
        }
        self.add_space(LABELS_HEIGHT);
        if !x.title.is_empty() {
            self.add_space(TITLE_HEIGHT);
            let middle = f64::midpoint(left, right);
            self.add(Shape::text((middle, bottom + 36.0), &x.title).class("label middle"));
        }
    }

    /// Adds the key of coloured areas: a box and a name for each class.
    pub(crate) fn key(&mut self, entries: impl Iterator<Item = (&'static str, &'static str)>) {
        let top = self.add_space(20.0);
        for ((class, name), index) in entries.zip(0_u8..) {
            let left = LEFT + f64::from(index) * 84.0;
            let area = Area { left, top: top + 2.0, right: left + 12.0, bottom: top + 12.0 };
            self.add(Shape::rect(area).class(class));
            self.add(Shape::text((left + 17.0, top + 12.0), name).class("tick"));
        }
    }

    /// Adds the key of a heat map: its title, and a box for each level with its lower bound.
    pub(crate) fn heat_key(&mut self, title: &str, bounds: &[String]) {
        let top = self.add_space(48.0);
        self.add(Shape::text((0.0, top + 12.0), title).class("label"));
        let width = ((RIGHT - LEFT) / bounds.len().max(1) as f64).min(58.0);
        for (index, bound) in bounds.iter().enumerate() {
            let left = LEFT + index as f64 * width;
            let area = Area { left, top: top + 19.0, right: left + width - 1.0, bottom: top + 29.0 };
            self.add(Shape::rect(area).class(&heat_class(index + 1)));
            self.add(Shape::text((left, top + 42.0), bound).class("tick"));
        }
    }

    /// Returns the complete element. `id` has to be unique within the page.
    pub(crate) fn markup(&self, id: &str) -> Markup {
        let [width, height] = [self.width, self.height].map(Length);
        let style = match self.is_small {
            true => format!("width:{width}px;max-width:100%"),
            false => {
                let [min, max] = [self.width * SHRINK_MIN, self.width * STRETCH_MAX].map(Length);
                format!("min-width:{min}px;max-width:{max}px")
            }
        };
        html! {
            svg viewBox=(format_args!("0 0 {width} {height}")) style=(style) role="img"
                aria-labelledby=(format_args!("{id}-t {id}-d")) {
                title id=(format_args!("{id}-t")) { (self.title) }
                desc id=(format_args!("{id}-d")) { (self.description) }
                (PreEscaped(&self.body))
            }
        }
    }

    /// Returns the drawing as a file of its own, with a style and a script.
    pub(crate) fn file(&self, style: &str, script: &str) -> String {
        let [width, height] = [self.width, self.height].map(Length);
        let markup = html! {
            (PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"))
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format_args!("0 0 {width} {height}")) class="file" {
                title { (self.title) }
                desc { (self.description) }
                style { (PreEscaped(style)) }
                (PreEscaped(&self.body))
                script { (PreEscaped("<![CDATA[\n")) (PreEscaped(script)) (PreEscaped("]]>")) }
            }
            "\n"
        };
        markup.into_string()
    }
}
