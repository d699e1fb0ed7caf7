//! Scales: from values to places in a drawing, with ticks at numbers that people like to read.
//! Not for how a number is written: see [`crate::words`].

use super::width_of;
use crate::words;

/// Room between two labels of an axis across, at least.
const LABELS_APART: f64 = 8.0;

/// Ticks that a logarithmic scale has at most between two powers of ten.
const DECADE: [f64; 3] = [1.0, 2.0, 5.0];

/// Ticks of any scale at most, whatever was asked for.
const TICKS_MAX: usize = 40;

/// From values to places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::report) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Equal differences take equal room. `low` and `high` are values, `from` and `to` their places.
    /// Values that are the same get some room around them.
    #[must_use]
    pub(in crate::report) fn linear((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let (low, high) = if (high - low).abs() <= f64::EPSILON * high.abs().max(1e-12) {
            let around = if low == 0.0 { 1.0 } else { low.abs() * 0.05 };
            (low - around, high + around)
        } else {
            (low, high)
        };
        Self { low, high, from, to, logarithmic: false }
    }

    /// Equal ratios take equal room. Values of zero and below have no place; a range that has none
    /// above is a linear one.
    #[must_use]
    pub(in crate::report) fn log((low, high): (f64, f64), places: (f64, f64)) -> Self {
        if !(low > 0.0 && high > 0.0) {
            return Self::linear((low, high), places);
        }
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let (low, high) = if high / low < 1.0001 { (low / 1.25, high * 1.25) } else { (low, high) };
        Self { low, high, from: places.0, to: places.1, logarithmic: true }
    }

    /// A linear scale that starts at zero and ends at a round number.
    #[must_use]
    pub(in crate::report) fn from_zero(high: f64, places: (f64, f64)) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let step = step_of(high, 5);
        Self::linear((0.0, (high / step).ceil() * step), places)
    }

    /// A linear scale over these values with a little room on both ends; nothing without values.
    #[must_use]
    pub(in crate::report) fn around(
        values: impl IntoIterator<Item = f64>,
        places: (f64, f64),
    ) -> Option<Self> {
        let (low, high) = extent(values)?;
        let room = (high - low) * 0.06;
        Some(Self::linear((low - room, high + room), places))
    }

    /// The place of a value; not a number where it has none.
    #[must_use]
    pub(in crate::report) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            if value <= 0.0 {
                return f64::NAN;
            }
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// The place of a value, or that of the nearer end where it lies beyond.
    #[must_use]
    pub(in crate::report) fn clamped(&self, value: f64) -> f64 {
        self.at(value.clamp(self.low, self.high))
    }

    /// Whether a value lies within.
    #[must_use]
    pub(in crate::report) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The least and the largest value.
    #[must_use]
    pub(in crate::report) fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// About so many round values within.
    #[must_use]
    pub(in crate::report) fn ticks(&self, wanted: usize) -> Vec<f64> {
        let ticks = if self.logarithmic { self.log_ticks(wanted) } else { self.even_ticks(wanted) };
        ticks.into_iter().take(TICKS_MAX).collect()
    }

    fn even_ticks(&self, wanted: usize) -> Vec<f64> {
        let step = step_of(self.high - self.low, wanted);
        let (first, last) = ((self.low / step).ceil(), (self.high / step).floor());
        let count = (last - first).clamp(0.0, TICKS_MAX as f64) as usize;
        // A multiple of the step as such, so that 0.30000000000000004 does not come up.
        (0..=count).map(|index| (first + index as f64) * step).collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within =
            |value: &f64| *value >= self.low * 0.999_999 && *value <= self.high * 1.000_001;
        let powers = |multiples: &[f64]| -> Vec<f64> {
            let all = (first..=last).flat_map(|power| {
                multiples.iter().map(move |multiple| multiple * 10f64.powi(power))
            });
            all.filter(within).collect()
        };
        let decades = powers(&[1.0]);
        let finer = powers(&DECADE);
        if finer.len() < 3 {
            return self.even_ticks(wanted);
        }
        if finer.len() <= wanted.max(3) + 1 {
            return finer;
        }
        if decades.len() < 2 {
            return finer;
        }
        let every = decades.len().div_ceil(wanted.max(1)).max(1);
        decades.into_iter().step_by(every).collect()
    }
}

/// The least and the largest of the finite ones.
#[must_use]
pub(in crate::report) fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| value.is_finite()).fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// 1, 2 or 5 times a power of ten, so that about `wanted` steps make the range.
fn step_of(range: f64, wanted: usize) -> f64 {
    let rough = (range / wanted.max(1) as f64).max(f64::MIN_POSITIVE * 1e6);
    let power = 10f64.powf(rough.log10().floor());
    let share = rough / power;
    let multiple = match share {
        share if share < 1.5 => 1.0,
        share if share < 3.5 => 2.0,
        share if share < 7.5 => 5.0,
        _ => 10.0,
    };
    multiple * power
}

/// An axis: a scale, what is written along it, and what it is.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Axis {
    /// The scale.
    pub(in crate::report) scale: Scale,
    /// Values and what is written there.
    pub(in crate::report) ticks: Vec<(f64, String)>,
    /// What it is, with its unit.
    pub(in crate::report) title: String,
}

impl Axis {
    /// An axis with about so many ticks, each written by `label`.
    #[must_use]
    pub(in crate::report) fn new(
        scale: Scale,
        wanted: usize,
        title: &str,
        label: impl Fn(f64) -> String,
    ) -> Self {
        let ticks = scale.ticks(wanted).into_iter().map(|value| (value, label(value))).collect();
        Self { scale, ticks, title: title.to_owned() }
    }

    /// An axis of a metric, with ticks that are round in the unit that they are written in.
    #[must_use]
    pub(in crate::report) fn of_unit(scale: Scale, wanted: usize, title: &str, unit: &str) -> Self {
        let one = words::counted_in(scale.high.abs(), unit);
        let counted = Scale { low: scale.low / one, high: scale.high / one, ..scale };
        let ticks = counted.ticks(wanted).into_iter().map(|tick| tick * one);
        let ticks = ticks.map(|tick| (tick, words::tick(tick, unit))).collect();
        Self { scale, ticks, title: title.to_owned() }
    }

    /// The ticks of an axis across, without those whose label would touch another's. `first`, where it is
    /// a tick, keeps its own; the others are taken in the order of their distance to it.
    #[must_use]
    pub(in crate::report) fn apart_from(&self, first: f64) -> Vec<&(f64, String)> {
        let distance = |value: f64| (self.scale.at(value) - self.scale.at(first)).abs();
        let mut ticks: Vec<&(f64, String)> = self.ticks.iter().collect();
        ticks.sort_by(|one, other| distance(one.0).total_cmp(&distance(other.0)));
        let mut kept: Vec<&(f64, String)> = Vec::new();
        for tick in ticks {
            let touches = |other: &&(f64, String)| {
                let room = (width_of(&tick.1) + width_of(&other.1)) / 2.0 + LABELS_APART;
                (self.scale.at(tick.0) - self.scale.at(other.0)).abs() < room
            };
            if !kept.iter().any(touches) {
                kept.push(tick);
            }
        }
        kept
    }

    /// The same from the first tick on.
    #[must_use]
    pub(in crate::report) fn apart(&self) -> Vec<&(f64, String)> {
        self.apart_from(self.ticks.first().map_or(0.0, |(value, _)| *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_in_proportion() {
        let scale = Scale::linear((0.0, 10.0), (100.0, 200.0));
        assert_eq!((scale.at(0.0), scale.at(5.0), scale.at(10.0)), (100.0, 150.0, 200.0));
        let down = Scale::linear((0.0, 10.0), (200.0, 100.0));
        assert_eq!(down.at(2.5), 175.0);
        let log = Scale::log((1.0, 100.0), (0.0, 10.0));
        assert!((log.at(10.0) - 5.0).abs() < 1e-9);
        assert!(log.at(0.0).is_nan());
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
        let ticks = axis.apart_from(1.0);
        assert_eq!(ticks[0].0, 1.0);
        assert!(ticks.len() > 1 && ticks.len() < axis.ticks.len(), "{ticks:?}");
        for (at, (one, text)) in ticks.iter().enumerate() {
            for (other, _) in &ticks[..at] {
                assert!((scale.at(*one) - scale.at(*other)).abs() > width_of(text), "{ticks:?}");
            }
        }
    }

    #[test]
    fn ticks_of_bytes_are_round_in_their_unit() {
        let scale = Scale::linear((0.0, 5e7), (0.0, 500.0));
        let axis = Axis::of_unit(scale, 5, "", "bytes");
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| &**label).collect();
        assert_eq!(labels, ["0 B", "10 MiB", "20 MiB", "30 MiB", "40 MiB"]);
    }

    #[test]
    fn values_that_are_the_same_or_none_are_no_trouble() {
        for value in [0.0, 7.0, -7.0, 1e15] {
            let scale = Scale::linear((value, value), (0.0, 100.0));
            assert!((scale.at(value) - 50.0).abs() < 1.0, "{value}: {}", scale.at(value));
            assert!(!scale.ticks(4).is_empty(), "{value}");
        }
        assert!(Scale::log((5.0, 5.0), (0.0, 100.0)).at(5.0).is_finite());
        assert!(Scale::around([f64::NAN], (0.0, 1.0)).is_none());
        assert_eq!(Scale::from_zero(0.0, (0.0, 10.0)).at(0.0), 0.0);
        assert_eq!(Scale::from_zero(93.0, (0.0, 10.0)).range(), (0.0, 100.0));
    }
}
