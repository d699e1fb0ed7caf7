//! Writer for SVG: marks with their values as tips, scales, ticks, axes. All outside text is
//! escaped, and values that are not finite are not drawn.
//!
//! [`super::charts`] decides what a chart shows. Lengths are the units of the view box, which on a
//! screen of usual size are CSS pixels.

mod scale;

use std::fmt::Write as _;

pub(crate) use scale::{Axis, Scale, extent};

/// Mean width of a letter of 12 units, to estimate the width of labels: nothing here can measure
/// text. Generous for the system fonts of the page.
const CHAR_WIDTH: f64 = 6.7;

/// Fraction of its own width to which a narrow screen may shrink a drawing; below it, the drawing
/// scrolls. Letters of 12 units stay above 11 CSS pixels.
const SHRINK_MIN: f64 = 0.92;

/// Multiple of its own width to which a wide screen may stretch a drawing.
const STRETCH_MAX: f64 = 1.25;

/// Number of colours that all readers can distinguish, classes `c0` to `c7` of the style sheet.
pub(crate) const COLOURS: usize = 8;

/// Series of data that only show noise: grey, drawn like any other.
pub(crate) const NOISE_SERIES: usize = usize::MAX;

/// Escapes a text for use between tags and inside attributes. Control characters, which no document
/// may contain, become spaces.
#[must_use]
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// Returns the approximate width of a label.
#[must_use]
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHAR_WIDTH
}

/// Shortens a text to at most `chars_max` characters, with an ellipsis at the end.
#[must_use]
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Shortens a text in its middle: names of factors end in their level.
#[must_use]
pub(crate) fn truncated_middle(text: &str, chars_max: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= chars_max {
        return text.to_owned();
    }
    let chars_left = chars_max.saturating_sub(1);
    let tail = chars_left.div_ceil(2);
    let (head, tail) = (&all[..chars_left - tail], &all[all.len() - tail..]);
    head.iter().chain(std::iter::once(&'…')).chain(tail).collect()
}

/// Returns the name of a row: its arm, and its load if there are several. Both keep their ends.
#[must_use]
pub(crate) fn row_name(arm: &str, load: Option<&str>, chars_max: usize) -> String {
    let Some(load) = load else { return truncated_middle(arm, chars_max) };
    let load = truncated_middle(load, chars_max / 2);
    let left = chars_max.saturating_sub(load.chars().count() + 2);
    format!("{}, {load}", truncated_middle(arm, left))
}

/// A rectangle for drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    /// Left edge.
    pub(crate) left: f64,
    /// Upper edge.
    pub(crate) top: f64,
    /// Right edge.
    pub(crate) right: f64,
    /// Lower edge.
    pub(crate) bottom: f64,
}

impl Area {
    /// Returns the width.
    #[must_use]
    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    /// Returns the height.
    #[must_use]
    pub(crate) fn height(&self) -> f64 {
        self.bottom - self.top
    }
}

/// Two corners of a rectangle: top left and bottom right.
pub(crate) type Corners = ((f64, f64), (f64, f64));

/// A drawn element.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    name: &'static str,
    attributes: String,
    classes: String,
    content: Option<String>,
    finite: bool,
}

impl Shape {
    fn new(name: &'static str, lengths: &[(&str, f64)]) -> Self {
        let mut shape =
            Self { name, attributes: String::new(), classes: String::new(), content: None, finite: true };
        for (attribute, length) in lengths {
            shape.finite &= length.is_finite();
            let _ = write!(shape.attributes, " {attribute}=\"{}\"", coordinate(*length));
        }
        shape
    }

    /// Returns a line from one point to another.
    #[must_use]
    pub(crate) fn line(from: (f64, f64), to: (f64, f64)) -> Self {
        Self::new("line", &[("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)])
    }

    /// Returns a rectangle between two corners, in any order.
    #[must_use]
    pub(crate) fn rect(one: (f64, f64), other: (f64, f64)) -> Self {
        Self::new(
            "rect",
            &[
                ("x", one.0.min(other.0)),
                ("y", one.1.min(other.1)),
                ("width", (one.0 - other.0).abs()),
                ("height", (one.1 - other.1).abs()),
            ],
        )
    }

    /// Returns a filled circle.
    #[must_use]
    pub(crate) fn circle(centre: (f64, f64), radius: f64) -> Self {
        Self::new("circle", &[("cx", centre.0), ("cy", centre.1), ("r", radius)])
    }

    /// Returns a text; `at` is its start on the base line, or its middle or end with the classes
    /// `middle` and `end`.
    #[must_use]
    pub(crate) fn text(at: (f64, f64), text: &str) -> Self {
        let mut shape = Self::new("text", &[("x", at.0), ("y", at.1)]);
        shape.content = Some(escaped(text));
        shape
    }

    /// Returns rectangles as one shape, each between two corners: a fifth of the bytes of separate
    /// marks. Rectangles that are not finite are left out.
    #[must_use]
    pub(crate) fn cells(cells: &[Corners]) -> Self {
        let mut shape = Self::new("path", &[]);
        let mut path = String::new();
        for ((left, top), (right, bottom)) in cells {
            let (width, height) = (right - left, bottom - top);
            if [*left, *top, width, height].iter().all(|length| length.is_finite()) {
                let [x, y, width, height, back] = [*left, *top, width, height, -width].map(coordinate);
                let _ = write!(path, "M{x} {y}h{width}v{height}h{back}z");
            }
        }
        shape.finite = !path.is_empty();
        let _ = write!(shape.attributes, " d=\"{path}\"");
        shape
    }

    /// Returns a line through points. A point that is not finite leaves a gap.
    #[must_use]
    pub(crate) fn polyline(points: &[(f64, f64)]) -> Self {
        let mut shape = Self::new("path", &[]);
        let mut path = String::new();
        let mut up = true;
        for (x, y) in points {
            if !x.is_finite() || !y.is_finite() {
                up = true;
                continue;
            }
            let _ = write!(path, "{}{} {}", if up { 'M' } else { 'L' }, coordinate(*x), coordinate(*y));
            up = false;
        }
        shape.finite = !path.is_empty();
        let _ = write!(shape.attributes, " d=\"{path}\"");
        shape
    }

    /// Adds a class of the style sheet.
    #[must_use]
    pub(crate) fn class(mut self, class: &str) -> Self {
        if !self.classes.is_empty() {
            self.classes.push(' ');
        }
        self.classes.push_str(class);
        self
    }

    /// Adds the mark to a series: it takes its colour, and the series' button in the legend hides
    /// it.
    #[must_use]
    pub(crate) fn series(mut self, series: usize) -> Self {
        let _ = write!(self.attributes, " data-series=\"{}\"", series_name(series));
        self.class(&series_class(series))
    }

    /// Sets the tip, which the pointer, a finger or the keyboard shows.
    #[must_use]
    pub(crate) fn tooltip(mut self, text: &str) -> Self {
        let _ = write!(self.attributes, " data-tip=\"{}\"", escaped(text));
        self
    }

    /// Sets an attribute such as `opacity`, `fill` or `transform`. The name is not escaped.
    #[must_use]
    pub(crate) fn attribute(mut self, attribute: &'static str, value: &str) -> Self {
        let _ = write!(self.attributes, " {attribute}=\"{}\"", escaped(value));
        self
    }

    fn write(&self, out: &mut String) {
        let _ = write!(out, "<{}", self.name);
        if !self.classes.is_empty() {
            let _ = write!(out, " class=\"{}\"", escaped(&self.classes));
        }
        out.push_str(&self.attributes);
        match &self.content {
            Some(content) => {
                let _ = write!(out, ">{content}</{}>", self.name);
            }
            None => out.push_str("/>"),
        }
    }
}

/// Returns the classes of a series: its colour, and a dashed line once all colours are in use.
#[must_use]
pub(crate) fn series_class(series: usize) -> String {
    match series {
        NOISE_SERIES => "cn".to_owned(),
        series if series < COLOURS => format!("c{series}"),
        series => format!("c{} dashed", series % COLOURS),
    }
}

/// Returns the name of a series in `data-series`.
#[must_use]
pub(crate) fn series_name(series: usize) -> String {
    if series == NOISE_SERIES { "n".to_owned() } else { series.to_string() }
}

/// A drawing.
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
    /// Returns an empty drawing. Screen readers read its title and its text (its content in a
    /// sentence or two).
    #[must_use]
    pub(crate) fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        Self {
            width,
            height,
            body: String::new(),
            title: title.to_owned(),
            description: description.to_owned(),
            is_small: false,
        }
    }

    /// Keeps the drawing at its own size, for use inside a line or a table.
    #[must_use]
    pub(crate) fn small(mut self) -> Self {
        self.is_small = true;
        self
    }

    /// Adds a mark.
    pub(crate) fn add(&mut self, shape: Shape) {
        if shape.finite {
            shape.write(&mut self.body);
        }
    }

    /// Draws the frame of an area: lines, labels and titles of both axes.
    pub(crate) fn axes(&mut self, area: &Area, x: &Axis, y: &Axis) {
        for (value, label) in &y.ticks {
            let at = y.scale.position(*value);
            self.add(Shape::line((area.left, at), (area.right, at)).class("grid"));
            self.add(Shape::text((area.left - 7.0, at + 4.0), label).class("tick end"));
        }
        for (value, label) in x.spaced_ticks() {
            let at = x.scale.position(*value);
            self.add(Shape::line((at, area.bottom), (at, area.bottom + 4.0)).class("axis"));
            let at = self.within(at, label);
            self.add(Shape::text((at, area.bottom + 18.0), label).class("tick middle"));
        }
        self.add(Shape::line((area.left, area.bottom), (area.right, area.bottom)).class("axis"));
        let middle = (area.left + area.right) / 2.0;
        self.add(Shape::text((middle, area.bottom + 36.0), &x.title).class("label middle"));
        self.add(Shape::text((0.0, area.top - 14.0), &y.title).class("label"));
    }

    /// Returns the centre of a label so that the label ends within the drawing.
    #[must_use]
    pub(crate) fn within(&self, centre: f64, label: &str) -> f64 {
        let half = text_width(label) / 2.0;
        centre.min(self.width - half).max(half)
    }

    /// Returns the complete element. `id` has to be unique within the page.
    #[must_use]
    pub(crate) fn markup(&self, id: &str) -> String {
        let id = escaped(id);
        let style = if self.is_small {
            format!("width:{}px;max-width:100%", coordinate(self.width))
        } else {
            let (min_width, max_width) = (self.width * SHRINK_MIN, self.width * STRETCH_MAX);
            format!("min-width:{}px;max-width:{}px", coordinate(min_width), coordinate(max_width))
        };
        format!(
            "<svg viewBox=\"0 0 {} {}\" style=\"{style}\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title>\
             <desc id=\"{id}-d\">{}</desc>{}</svg>",
            coordinate(self.width),
            coordinate(self.height),
            escaped(&self.title),
            escaped(&self.description),
            self.body,
        )
    }
}

/// Formats a length with one decimal, or none if it is zero.
fn coordinate(length: f64) -> String {
    if !length.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{length:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
