//! Plot layer: drawings as SVG, made of plots with scales, axes and marks. A chart gives its marks in
//! values of its axes; only this module computes positions. Lengths are the units of the view box,
//! which on a screen of usual size are CSS pixels.
//!
//! Outside text is escaped. Values that are not finite are not drawn, and intervals end at the edge
//! of their plot.

mod heat;
mod scale;
mod shape;
mod svg;
mod text;

pub(crate) use heat::{HEAT_LEVELS, HeatCells, level};
pub(crate) use scale::{Axis, Scale, extent};
pub(crate) use shape::{Area, NOISE_SERIES, Shape, series_class, series_name};
pub(crate) use svg::{Frame, LEFT, RIGHT, Svg, WIDTH};
pub(crate) use text::{row_name, shortened, text_width, truncated_middle};

/// Two axes over an area of a drawing. It makes marks from values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plot {
    pub(crate) area: Area,
    /// Scale from the left to the right.
    pub(crate) x: Scale,
    /// Scale from the bottom to the top.
    pub(crate) y: Scale,
}

impl Plot {
    /// Returns a plot of the same height and values between other edges.
    pub(crate) fn beside(&self, (left, right): (f64, f64), x: Scale) -> Self {
        Self { area: Area { left, right, ..self.area }, x, y: self.y }
    }

    /// Returns the position of a point; NaN if it has none.
    pub(crate) fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let Area { left, top, right, bottom } = self.area;
        (left + self.x.fraction(x) * (right - left), bottom - self.y.fraction(y) * (bottom - top))
    }

    /// Returns the position of a point, or that of the nearest point within the plot.
    pub(crate) fn clamped(&self, (x, y): (f64, f64)) -> (f64, f64) {
        self.at((self.x.clamp(x), self.y.clamp(y)))
    }

    /// Returns the area between two corners, as far as it is within the plot.
    pub(crate) fn cell(&self, (from_x, to_x): (f64, f64), (from_y, to_y): (f64, f64)) -> Area {
        Area::between(self.clamped((from_x, from_y)), self.clamped((to_x, to_y)))
    }

    /// Returns a line through points; a point without a position leaves a gap.
    pub(crate) fn line(&self, points: impl IntoIterator<Item = (f64, f64)>) -> Shape {
        Shape::polyline(points.into_iter().map(|point| self.at(point)))
    }

    /// Returns a straight line between two points, as far as it is within the plot.
    pub(crate) fn segment(&self, from: (f64, f64), to: (f64, f64)) -> Shape {
        Shape::line(self.clamped(from), self.clamped(to))
    }

    /// Returns a text on the lower edge.
    pub(crate) fn text_above(&self, x: f64, text: &str) -> Shape {
        Shape::text((self.at((x, f64::NAN)).0, self.area.bottom - 5.0), text)
    }

    pub(crate) fn dot(&self, point: (f64, f64), radius: f64) -> Shape {
        Shape::circle(self.at(point), radius)
    }

    /// Returns a bar between two corners.
    pub(crate) fn bar(&self, x: (f64, f64), y: (f64, f64)) -> Shape {
        Shape::rect(self.cell(x, y))
    }

    /// Returns a band from the bottom to the top.
    pub(crate) fn band(&self, x: (f64, f64)) -> Shape {
        self.bar(x, self.y.range())
    }

    pub(crate) fn hover(&self, x: (f64, f64), tip: &str) -> Shape {
        self.band(x).attribute("fill", "transparent").tooltip(tip)
    }

    pub(crate) fn vertical(&self, x: f64) -> Shape {
        let (low, high) = self.y.range();
        Shape::line(self.at((x, low)), self.at((x, high)))
    }

    pub(crate) fn horizontal(&self, y: f64) -> Shape {
        let (low, high) = self.x.range();
        Shape::line(self.at((low, y)), self.at((high, y)))
    }
}
