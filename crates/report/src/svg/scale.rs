//! Scales: from values to positions in a drawing, with ticks at round numbers. [`experiment::format`]
//! formats the numbers.

use super::text_width;
use experiment::format;

/// Minimum gap between two labels of a horizontal axis.
const LABEL_GAP_MIN: f64 = 8.0;

/// Ticks of a logarithmic scale between two powers of ten, at most.
const DECADE_TICKS: [f64; 3] = [1.0, 2.0, 5.0];

/// Maximum number of ticks of any scale, regardless of the request.
const TICKS_MAX: usize = 40;

/// Mapping from values to positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Returns a linear scale. `low` and `high` are values, `from` and `to` their positions. Equal
    /// values get some room around them.
    #[must_use]
    pub(crate) fn linear((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let (low, high) = if (high - low).abs() <= f64::EPSILON * high.abs().max(1e-12) {
            let around = if low == 0.0 { 1.0 } else { low.abs() * 0.05 };
            (low - around, high + around)
        } else {
            (low, high)
        };
        Self { low, high, from, to, logarithmic: false }
    }

    /// Returns a logarithmic scale. Values of zero and below have no position; a range without
    /// values above zero gets a linear scale.
    #[must_use]
    pub(crate) fn log((low, high): (f64, f64), pixels: (f64, f64)) -> Self {
        if !(low > 0.0 && high > 0.0) {
            return Self::linear((low, high), pixels);
        }
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let (low, high) = if high / low < 1.0001 { (low / 1.25, high * 1.25) } else { (low, high) };
        Self { low, high, from: pixels.0, to: pixels.1, logarithmic: true }
    }

    /// Returns a linear scale that starts at zero and ends at a round number.
    #[must_use]
    pub(crate) fn from_zero(high: f64, pixels: (f64, f64)) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let step = tick_step(high, 5);
        Self::linear((0.0, (high / step).ceil() * step), pixels)
    }

    /// Returns a linear scale over these values with a little room at both ends; `None` without
    /// values.
    #[must_use]
    pub(crate) fn covering(values: impl IntoIterator<Item = f64>, pixels: (f64, f64)) -> Option<Self> {
        let (low, high) = extent(values)?;
        let margin = (high - low) * 0.06;
        Some(Self::linear((low - margin, high + margin), pixels))
    }

    /// Returns the position of a value; NaN if it has none.
    #[must_use]
    pub(crate) fn position(&self, value: f64) -> f64 {
        let fraction = if self.logarithmic {
            if value <= 0.0 {
                return f64::NAN;
            }
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + fraction * (self.to - self.from)
    }

    /// Returns the position of a value, or that of the nearer end if it lies outside.
    #[must_use]
    pub(crate) fn clamped(&self, value: f64) -> f64 {
        self.position(value.clamp(self.low, self.high))
    }

    /// Returns whether a value lies within the range.
    #[must_use]
    pub(crate) fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns the smallest and the largest value.
    #[must_use]
    pub(crate) fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Returns about `tick_count` round values within the range.
    #[must_use]
    pub(crate) fn ticks(&self, tick_count: usize) -> Vec<f64> {
        let ticks = if self.logarithmic { self.log_ticks(tick_count) } else { self.even_ticks(tick_count) };
        ticks.into_iter().take(TICKS_MAX).collect()
    }

    fn even_ticks(&self, tick_count: usize) -> Vec<f64> {
        let step = tick_step(self.high - self.low, tick_count);
        let (first, last) = ((self.low / step).ceil(), (self.high / step).floor());
        let count = (last - first).clamp(0.0, TICKS_MAX as f64) as usize;
        // Multiplying the step avoids values like 0.30000000000000004.
        (0..=count).map(|index| (first + index as f64) * step).collect()
    }

    fn log_ticks(&self, tick_count: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within = |value: &f64| *value >= self.low * 0.999_999 && *value <= self.high * 1.000_001;
        let powers = |multiples: &[f64]| -> Vec<f64> {
            let all = (first..=last)
                .flat_map(|power| multiples.iter().map(move |multiple| multiple * 10f64.powi(power)));
            all.filter(within).collect()
        };
        let decades = powers(&[1.0]);
        let finer = powers(&DECADE_TICKS);
        if finer.len() < 3 {
            return self.even_ticks(tick_count);
        }
        if finer.len() <= tick_count.max(3) + 1 {
            return finer;
        }
        if decades.len() < 2 {
            return finer;
        }
        let stride = decades.len().div_ceil(tick_count.max(1)).max(1);
        decades.into_iter().step_by(stride).collect()
    }
}

/// Returns the smallest and the largest of the finite values.
#[must_use]
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| value.is_finite()).fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// Returns 1, 2 or 5 times a power of ten, so that about `tick_count` steps make the range.
fn tick_step(range: f64, tick_count: usize) -> f64 {
    let rough = (range / tick_count.max(1) as f64).max(f64::MIN_POSITIVE * 1e6);
    let power = 10f64.powf(rough.log10().floor());
    let fraction = rough / power;
    let multiple = match fraction {
        fraction if fraction < 1.5 => 1.0,
        fraction if fraction < 3.5 => 2.0,
        fraction if fraction < 7.5 => 5.0,
        _ => 10.0,
    };
    multiple * power
}

/// An axis: a scale, its labels, and its title.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    /// The scale.
    pub(crate) scale: Scale,
    /// Values and their labels.
    pub(crate) ticks: Vec<(f64, String)>,
    /// Title, with the unit.
    pub(crate) title: String,
}

impl Axis {
    /// Returns an axis with about `tick_count` ticks, each formatted by `label`.
    #[must_use]
    pub(crate) fn new(scale: Scale, tick_count: usize, title: &str, label: impl Fn(f64) -> String) -> Self {
        let ticks = scale.ticks(tick_count).into_iter().map(|value| (value, label(value))).collect();
        Self { scale, ticks, title: title.to_owned() }
    }

    /// Returns an axis of a metric, with ticks that are round in their displayed unit.
    #[must_use]
    pub(crate) fn with_unit(scale: Scale, tick_count: usize, title: &str, unit: &str) -> Self {
        let one = format::display_unit_size(scale.high.abs(), unit);
        let counted = Scale { low: scale.low / one, high: scale.high / one, ..scale };
        let ticks = counted.ticks(tick_count).into_iter().map(|tick| tick * one);
        let ticks = ticks.map(|tick| (tick, format::tick(tick, unit))).collect();
        Self { scale, ticks, title: title.to_owned() }
    }

    /// Returns the ticks of a horizontal axis without those whose label would touch another's.
    /// `first` keeps its label if it is a tick; the others are taken in the order of their distance
    /// from it.
    #[must_use]
    pub(crate) fn spaced_ticks_after(&self, first: f64) -> Vec<&(f64, String)> {
        let distance = |value: f64| (self.scale.position(value) - self.scale.position(first)).abs();
        let mut ticks: Vec<&(f64, String)> = self.ticks.iter().collect();
        ticks.sort_by(|one, other| distance(one.0).total_cmp(&distance(other.0)));
        let mut spaced: Vec<&(f64, String)> = Vec::new();
        for tick in ticks {
            let touches = |other: &&(f64, String)| {
                let needed = (text_width(&tick.1) + text_width(&other.1)) / 2.0 + LABEL_GAP_MIN;
                (self.scale.position(tick.0) - self.scale.position(other.0)).abs() < needed
            };
            if !spaced.iter().any(touches) {
                spaced.push(tick);
            }
        }
        spaced
    }

    /// Returns the same, starting at the first tick.
    #[must_use]
    pub(crate) fn spaced_ticks(&self) -> Vec<&(f64, String)> {
        self.spaced_ticks_after(self.ticks.first().map_or(0.0, |(value, _)| *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_in_proportion() {
        let scale = Scale::linear((0.0, 10.0), (100.0, 200.0));
        assert_eq!((scale.position(0.0), scale.position(5.0), scale.position(10.0)), (100.0, 150.0, 200.0));
        let down = Scale::linear((0.0, 10.0), (200.0, 100.0));
        assert_eq!(down.position(2.5), 175.0);
        let log = Scale::log((1.0, 100.0), (0.0, 10.0));
        assert!((log.position(10.0) - 5.0).abs() < 1e-9);
        assert!(log.position(0.0).is_nan());
        assert_eq!(scale.clamped(1e9), 200.0);
    }

    #[test]
    fn ticks_are_round_and_within() {
        let even = Scale::linear((0.0, 1.0), (0.0, 1.0)).ticks(5);
        assert_eq!(even, [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(
            Scale::linear((97.3, 103.1), (0.0, 1.0)).ticks(5),
            [98.0, 99.0, 100.0, 101.0, 102.0, 103.0]
        );
        let log = Scale::log((1e3, 1e9), (0.0, 1.0)).ticks(7);
        assert_eq!(log.len(), 7);
        assert_eq!(Scale::log((1.0, 10.0), (0.0, 1.0)).ticks(5), [1.0, 2.0, 5.0, 10.0]);
        assert!(Scale::log((1.0, 1e300), (0.0, 1.0)).ticks(5).len() <= 6);
    }

    #[test]
    fn labels_do_not_touch() {
        let scale = Scale::linear((0.5, 1.5), (22.0, 278.0));
        let axis = Axis::new(scale, 20, "", |value| format!("+{:.2} %", value * 100.0));
        let ticks = axis.spaced_ticks_after(1.0);
        assert_eq!(ticks[0].0, 1.0);
        assert!(ticks.len() > 1 && ticks.len() < axis.ticks.len(), "{ticks:?}");
        for (at, (one, text)) in ticks.iter().enumerate() {
            for (other, _) in &ticks[..at] {
                assert!(
                    (scale.position(*one) - scale.position(*other)).abs() > text_width(text),
                    "{ticks:?}"
                );
            }
        }
    }

    #[test]
    fn ticks_of_bytes_are_round_in_their_unit() {
        let scale = Scale::linear((0.0, 5e7), (0.0, 500.0));
        let axis = Axis::with_unit(scale, 5, "", "bytes");
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| &**label).collect();
        assert_eq!(labels, ["0 B", "10 MiB", "20 MiB", "30 MiB", "40 MiB"]);
    }

    #[test]
    fn values_that_are_the_same_or_none_are_no_trouble() {
        for value in [0.0, 7.0, -7.0, 1e15] {
            let scale = Scale::linear((value, value), (0.0, 100.0));
            assert!((scale.position(value) - 50.0).abs() < 1.0, "{value}: {}", scale.position(value));
            assert!(!scale.ticks(4).is_empty(), "{value}");
        }
        assert!(Scale::log((5.0, 5.0), (0.0, 100.0)).position(5.0).is_finite());
        assert!(Scale::covering([f64::NAN], (0.0, 1.0)).is_none());
        assert_eq!(Scale::from_zero(0.0, (0.0, 10.0)).position(0.0), 0.0);
        assert_eq!(Scale::from_zero(93.0, (0.0, 10.0)).range(), (0.0, 100.0));
    }
}
