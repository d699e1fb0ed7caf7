//! Writes SVG: marks with their values for the reader's pointer, scales, ticks, axes. Everything that
//! comes from outside is escaped, and what is not finite is not drawn.
//!
//! Not for what a chart shows: that is in [`super::charts`]. Lengths are the units of the view box,
//! which on a screen of usual size are CSS pixels.

mod scale;

use std::fmt::Write as _;

pub(in crate::report) use scale::{Axis, Scale, extent};

/// Mean width of a letter of 12 units, for the room that a label needs: nothing here can measure text.
/// Generous for the system fonts that the page asks for.
const LETTER_WIDTH: f64 = 6.7;

/// Of a drawing's own width, what a narrow screen may shrink it to; beyond it, it scrolls. Letters of 12
/// units stay above 11 CSS pixels.
const SHRINK: f64 = 0.92;

/// Of a drawing's own width, what a wide screen may stretch it to.
const STRETCH: f64 = 1.25;

/// Colours that are told apart by all readers, classes `c0` to `c7` of the style sheet.
pub(in crate::report) const COLOURS: usize = 8;

/// The series of what is only there to show noise: grey, drawn like any other.
pub(in crate::report) const NOISE: usize = usize::MAX;

/// A text for use between tags and inside attributes. Control characters, which no document may hold,
/// become spaces.
#[must_use]
pub(in crate::report) fn escaped(text: &str) -> String {
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

/// The width that a label takes, about.
#[must_use]
pub(in crate::report) fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER_WIDTH
}

/// A text of at most `letters` letters; what is cut off is an ellipsis.
#[must_use]
pub(in crate::report) fn shortened(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(letters.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// The same, cut in its middle: names of factors end in their level.
#[must_use]
pub(in crate::report) fn pinched(text: &str, letters: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= letters {
        return text.to_owned();
    }
    let kept = letters.saturating_sub(1);
    let tail = kept.div_ceil(2);
    let (head, tail) = (&all[..kept - tail], &all[all.len() - tail..]);
    head.iter().chain(std::iter::once(&'…')).chain(tail).collect()
}

/// What a row is called: its arm, and its load where there are several. Both keep their ends.
#[must_use]
pub(in crate::report) fn row_name(arm: &str, load: Option<&str>, letters: usize) -> String {
    let Some(load) = load else { return pinched(arm, letters) };
    let load = pinched(load, letters / 2);
    let left = letters.saturating_sub(load.chars().count() + 2);
    format!("{}, {load}", pinched(arm, left))
}

/// Where in a drawing something may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::report) struct Area {
    /// Its left edge.
    pub(in crate::report) left: f64,
    /// Its upper edge.
    pub(in crate::report) top: f64,
    /// Its right edge.
    pub(in crate::report) right: f64,
    /// Its lower edge.
    pub(in crate::report) bottom: f64,
}

impl Area {
    /// Its width.
    #[must_use]
    pub(in crate::report) fn width(&self) -> f64 {
        self.right - self.left
    }

    /// Its height.
    #[must_use]
    pub(in crate::report) fn height(&self) -> f64 {
        self.bottom - self.top
    }
}

/// Two corners of a rectangle: left above, and right below.
pub(in crate::report) type Corners = ((f64, f64), (f64, f64));

/// One thing that is drawn.
#[derive(Clone, Debug)]
pub(in crate::report) struct Mark {
    name: &'static str,
    attributes: String,
    classes: String,
    content: Option<String>,
    finite: bool,
}

impl Mark {
    fn new(name: &'static str, lengths: &[(&str, f64)]) -> Self {
        let mut mark = Self {
            name,
            attributes: String::new(),
            classes: String::new(),
            content: None,
            finite: true,
        };
        for (attribute, length) in lengths {
            mark.finite &= length.is_finite();
            let _ = write!(mark.attributes, " {attribute}=\"{}\"", coordinate(*length));
        }
        mark
    }

    /// A line from one point to another.
    #[must_use]
    pub(in crate::report) fn line(from: (f64, f64), to: (f64, f64)) -> Self {
        Self::new("line", &[("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)])
    }

    /// A rectangle between two corners, in any order.
    #[must_use]
    pub(in crate::report) fn rect(one: (f64, f64), other: (f64, f64)) -> Self {
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

    /// A filled circle.
    #[must_use]
    pub(in crate::report) fn circle(centre: (f64, f64), radius: f64) -> Self {
        Self::new("circle", &[("cx", centre.0), ("cy", centre.1), ("r", radius)])
    }

    /// A text; `at` is its start on the base line (classes `middle` and `end` make it another place).
    #[must_use]
    pub(in crate::report) fn text(at: (f64, f64), text: &str) -> Self {
        let mut mark = Self::new("text", &[("x", at.0), ("y", at.1)]);
        mark.content = Some(escaped(text));
        mark
    }

    /// Rectangles as one shape, each between two corners: a fifth of the bytes of as many marks. Those
    /// that are not finite are left out.
    #[must_use]
    pub(in crate::report) fn cells(cells: &[Corners]) -> Self {
        let mut mark = Self::new("path", &[]);
        let mut way = String::new();
        for ((left, top), (right, bottom)) in cells {
            let (width, height) = (right - left, bottom - top);
            if [*left, *top, width, height].iter().all(|length| length.is_finite()) {
                let [x, y, width, height, back] =
                    [*left, *top, width, height, -width].map(coordinate);
                let _ = write!(way, "M{x} {y}h{width}v{height}h{back}z");
            }
        }
        mark.finite = !way.is_empty();
        let _ = write!(mark.attributes, " d=\"{way}\"");
        mark
    }

    /// A line through points. A point that is not finite ends it there; it goes on after it.
    #[must_use]
    pub(in crate::report) fn polyline(points: &[(f64, f64)]) -> Self {
        let mut mark = Self::new("path", &[]);
        let mut way = String::new();
        let mut up = true;
        for (x, y) in points {
            if !x.is_finite() || !y.is_finite() {
                up = true;
                continue;
            }
            let _ =
                write!(way, "{}{} {}", if up { 'M' } else { 'L' }, coordinate(*x), coordinate(*y));
            up = false;
        }
        mark.finite = !way.is_empty();
        let _ = write!(mark.attributes, " d=\"{way}\"");
        mark
    }

    /// Adds a class of the style sheet.
    #[must_use]
    pub(in crate::report) fn class(mut self, class: &str) -> Self {
        if !self.classes.is_empty() {
            self.classes.push(' ');
        }
        self.classes.push_str(class);
        self
    }

    /// Makes it part of a series: its colour, and what its button of the legend hides.
    #[must_use]
    pub(in crate::report) fn series(mut self, series: usize) -> Self {
        let _ = write!(self.attributes, " data-series=\"{}\"", series_name(series));
        self.class(&series_class(series))
    }

    /// What the reader's pointer (or finger, or keyboard) shows here.
    #[must_use]
    pub(in crate::report) fn tip(mut self, text: &str) -> Self {
        let _ = write!(self.attributes, " data-tip=\"{}\"", escaped(text));
        self
    }

    /// Sets an attribute of its own: `opacity`, `fill`, `transform`. The name is not escaped.
    #[must_use]
    pub(in crate::report) fn with(mut self, attribute: &'static str, value: &str) -> Self {
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

/// The classes of a series: its colour, and a dashed line where the colours are used up.
#[must_use]
pub(in crate::report) fn series_class(series: usize) -> String {
    match series {
        NOISE => "cn".to_owned(),
        series if series < COLOURS => format!("c{series}"),
        series => format!("c{} dashed", series % COLOURS),
    }
}

/// How a series is named in `data-series`.
#[must_use]
pub(in crate::report) fn series_name(series: usize) -> String {
    if series == NOISE { "n".to_owned() } else { series.to_string() }
}

/// A drawing.
#[derive(Clone, Debug)]
pub(in crate::report) struct Svg {
    width: f64,
    height: f64,
    body: String,
    title: String,
    text: String,
    small: bool,
}

impl Svg {
    /// An empty drawing. Its title and its text (what it shows, in a sentence or two) are what a screen
    /// reader says.
    #[must_use]
    pub(in crate::report) fn new(width: f64, height: f64, title: &str, text: &str) -> Self {
        Self {
            width,
            height,
            body: String::new(),
            title: title.to_owned(),
            text: text.to_owned(),
            small: false,
        }
    }

    /// Keeps it at its own size, for a drawing inside a line or a table.
    #[must_use]
    pub(in crate::report) fn small(mut self) -> Self {
        self.small = true;
        self
    }

    /// Draws.
    pub(in crate::report) fn add(&mut self, mark: Mark) {
        if mark.finite {
            mark.write(&mut self.body);
        }
    }

    /// Draws the frame of an area: lines and labels of both axes, and what they are.
    pub(in crate::report) fn axes(&mut self, area: &Area, x: &Axis, y: &Axis) {
        for (value, label) in &y.ticks {
            let at = y.scale.at(*value);
            self.add(Mark::line((area.left, at), (area.right, at)).class("grid"));
            self.add(Mark::text((area.left - 7.0, at + 4.0), label).class("tick end"));
        }
        for (value, label) in x.apart() {
            let at = x.scale.at(*value);
            self.add(Mark::line((at, area.bottom), (at, area.bottom + 4.0)).class("axis"));
            self.add(Mark::text((at, area.bottom + 18.0), label).class("tick middle"));
        }
        self.add(Mark::line((area.left, area.bottom), (area.right, area.bottom)).class("axis"));
        let middle = (area.left + area.right) / 2.0;
        self.add(Mark::text((middle, area.bottom + 36.0), &x.title).class("label middle"));
        self.add(Mark::text((0.0, area.top - 14.0), &y.title).class("label"));
    }

    /// The whole element. `id` has to be of its own within the page.
    #[must_use]
    pub(in crate::report) fn markup(&self, id: &str) -> String {
        let id = escaped(id);
        let style = if self.small {
            format!("width:{}px;max-width:100%", coordinate(self.width))
        } else {
            let (least, most) = (self.width * SHRINK, self.width * STRETCH);
            format!("min-width:{}px;max-width:{}px", coordinate(least), coordinate(most))
        };
        format!(
            "<svg viewBox=\"0 0 {} {}\" style=\"{style}\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title>\
             <desc id=\"{id}-d\">{}</desc>{}</svg>",
            coordinate(self.width),
            coordinate(self.height),
            escaped(&self.title),
            escaped(&self.text),
            self.body,
        )
    }
}

/// A length with one digit behind the point, and none where it is zero.
fn coordinate(length: f64) -> String {
    if !length.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{length:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
