//! Marks of a drawing, with their classes, series and tips.

use std::fmt::{Display, Write as _};

use maud::{Escaper, Render};

/// Number of colours that all readers can distinguish, classes `c0` to `c7` of the style sheet.
const COLOURS: usize = 8;

/// Series of data that only show noise: grey, drawn like any other.
pub(crate) const NOISE_SERIES: usize = usize::MAX;

/// A rectangle of a drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Area {
    /// Returns the area between two corners, in any order.
    pub(crate) fn between(first: (f64, f64), second: (f64, f64)) -> Self {
        let ((left, right), (top, bottom)) = (sorted(first.0, second.0), sorted(first.1, second.1));
        Self { left, top, right, bottom }
    }

    /// Returns the same area with a gap at its right edge, but not without any width.
    pub(crate) fn with_gap(self, gap: f64) -> Self {
        Self { right: self.left + (self.right - self.left - gap).max(0.4), ..self }
    }

    fn is_finite(&self) -> bool {
        [self.left, self.top, self.right, self.bottom].iter().all(|edge| edge.is_finite())
    }
}

/// Returns two numbers in their order. NaN stays, so that the mark is not drawn.
fn sorted(first: f64, second: f64) -> (f64, f64) {
    if first <= second { (first, second) } else { (second, first) }
}

/// A drawn element.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    name: &'static str,
    attributes: String,
    classes: String,
    content: Option<String>,
    /// False if a length is not finite, or if there is nothing to draw.
    pub(super) finite: bool,
}

impl Shape {
    fn new(name: &'static str, lengths: &[(&'static str, f64)]) -> Self {
        let (attributes, classes) = (String::new(), String::new());
        let finite = lengths.iter().all(|(_, length)| length.is_finite());
        let shape = Self { name, attributes, classes, content: None, finite };
        lengths.iter().fold(shape, |shape, (attribute, length)| shape.attribute(attribute, Length(*length)))
    }

    fn path(path: &str) -> Self {
        Self { finite: !path.is_empty(), ..Self::new("path", &[]).attribute("d", path) }
    }

    pub(crate) fn line(from: (f64, f64), to: (f64, f64)) -> Self {
        Self::new("line", &[("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)])
    }

    pub(crate) fn rect(area: Area) -> Self {
        let (width, height) = (area.right - area.left, area.bottom - area.top);
        Self::new("rect", &[("x", area.left), ("y", area.top), ("width", width), ("height", height)])
    }

    pub(crate) fn circle(centre: (f64, f64), radius: f64) -> Self {
        Self::new("circle", &[("cx", centre.0), ("cy", centre.1), ("r", radius)])
    }

    /// Returns a text; `at` is its start on the base line, or its middle or end with the classes
    /// `middle` and `end`.
    pub(crate) fn text(at: (f64, f64), text: &str) -> Self {
        let shape = Self::new("text", &[("x", at.0), ("y", at.1)]);
        Self { finite: shape.finite && !text.is_empty(), content: Some(text.to_owned()), ..shape }
    }

    /// Returns rectangles as one shape: a fifth of the bytes of separate marks. Rectangles that are
    /// not finite are left out.
    pub(crate) fn cells(cells: &[Area]) -> Self {
        let mut path = String::new();
        for area in cells.iter().filter(|area| area.is_finite()) {
            let (width, height) = (area.right - area.left, area.bottom - area.top);
            let [x, y, width, height, back] = [area.left, area.top, width, height, -width].map(Length);
            let _ = write!(path, "M{x} {y}h{width}v{height}h{back}z");
        }
        Self::path(&path)
    }

    /// Returns a line through points. A point that is not finite leaves a gap.
    pub(crate) fn polyline(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut path = String::new();
        let mut command = 'M';
        for (x, y) in points {
            let is_finite = x.is_finite() && y.is_finite();
            if is_finite {
                let _ = write!(path, "{command}{} {}", Length(x), Length(y));
            }
            command = if is_finite { 'L' } else { 'M' };
        }
        Self::path(&path)
    }

    /// Adds classes of the style sheet.
    pub(crate) fn class(mut self, class: &str) -> Self {
        if !self.classes.is_empty() {
            self.classes.push(' ');
        }
        self.classes.push_str(class);
        self
    }

    /// Adds the mark to a series: it takes its colour, and the series' button in the legend hides
    /// it.
    pub(crate) fn series(self, series: usize) -> Self {
        self.class(&series_class(series)).attribute("data-series", series_name(series))
    }

    /// Sets the tip, which the pointer, a finger or the keyboard shows.
    pub(crate) fn tooltip(self, text: &str) -> Self {
        self.attribute("data-tip", text)
    }

    /// Sets an attribute such as `opacity`, `fill` or `transform`.
    pub(crate) fn attribute(mut self, attribute: &'static str, value: impl Display) -> Self {
        let _ = write!(self.attributes, " {attribute}=\"");
        let _ = write!(Escaper::new(&mut self.attributes), "{value}");
        self.attributes.push('"');
        self
    }
}

impl Render for Shape {
    fn render_to(&self, out: &mut String) {
        let Self { name, attributes, classes, .. } = self;
        let _ = write!(out, "<{name}");
        if !classes.is_empty() {
            let _ = write!(out, " class=\"{classes}\"");
        }
        out.push_str(attributes);
        let Some(content) = &self.content else { return out.push_str("/>") };
        out.push('>');
        content.render_to(out);
        let _ = write!(out, "</{name}>");
    }
}

/// Returns the classes of a series: its colour, and a dashed line once all colours are in use.
pub(crate) fn series_class(series: usize) -> String {
    match series {
        NOISE_SERIES => "cn".to_owned(),
        series if series < COLOURS => format!("c{series}"),
        series => format!("c{} dashed", series % COLOURS),
    }
}

/// Returns the name of a series in `data-series`.
pub(crate) fn series_name(series: usize) -> String {
    if series == NOISE_SERIES { "n".to_owned() } else { series.to_string() }
}

/// A length with one decimal, or none if it is zero.
pub(super) struct Length(pub(super) f64);

impl Display for Length {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round();
        match tenths {
            // Also of a negative zero.
            0.0 => f.write_str("0"),
            tenths if !tenths.is_finite() => f.write_str("0"),
            tenths if tenths % 10.0 == 0.0 => write!(f, "{:.0}", self.0),
            _ => write!(f, "{:.1}", self.0),
        }
    }
}
