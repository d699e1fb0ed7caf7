//! Scales: from values to fractions of a length, with ticks at round numbers. [`experiment::format`]
//! formats the numbers.

use experiment::format;
use record::sorted::sort_by;

/// Ticks of a logarithmic scale between two powers of ten, at most.
const DECADE_TICKS: [f64; 3] = [1.0, 2.0, 5.0];

/// Maximum number of ticks of any scale, regardless of the request.
const TICKS_MAX: usize = 40;

/// Mapping from values to fractions of a length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    /// Returns a linear scale. Equal values get some room around them.
    pub(crate) fn linear(low: f64, high: f64) -> Self {
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let is_empty = (high - low).abs() <= f64::EPSILON * high.abs().max(1e-12);
        let around = match is_empty {
            true if low == 0.0 => 1.0,
            true => low.abs() * 0.05,
            false => 0.0,
        };
        Self { low: low - around, high: high + around, logarithmic: false }
    }

    /// Returns a logarithmic scale. Values of zero and below have no position; a range without
    /// values above zero gets a linear scale.
    pub(crate) fn log(low: f64, high: f64) -> Self {
        if !(low > 0.0 && high > 0.0) {
            return Self::linear(low, high);
        }
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let (low, high) = if high / low < 1.0001 { (low / 1.25, high * 1.25) } else { (low, high) };
        Self { low, high, logarithmic: true }
    }

    /// Returns a logarithmic scale if the ends have at least this ratio, or else a linear one.
    pub(crate) fn by_ratio(low: f64, high: f64, log_ratio_min: f64) -> Self {
        if low > 0.0 && high / low >= log_ratio_min { Self::log(low, high) } else { Self::linear(low, high) }
    }

    /// Returns a linear scale that starts at zero and ends at a round number.
    pub(crate) fn from_zero(high: f64) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let step = tick_step(high, 5);
        Self::linear(0.0, (high / step).ceil() * step)
    }

    /// Returns a linear scale over these values with a little room at both ends; `None` without
    /// values.
    pub(crate) fn covering(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let (low, high) = extent(values)?;
        let margin = (high - low) * 0.06;
        Some(Self::linear(low - margin, high + margin))
    }

    /// Returns the vertical scale of rows, the first at the top.
    pub(crate) fn rows(count: usize) -> Self {
        Self { low: count.max(1) as f64, high: 0.0, logarithmic: false }
    }

    /// Returns the fraction of the length up to a value; NaN if it has no position.
    pub(crate) fn fraction(&self, value: f64) -> f64 {
        match self.logarithmic {
            true if value <= 0.0 => f64::NAN,
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Returns the nearest value within the range; NaN stays.
    pub(crate) fn clamp(&self, value: f64) -> f64 {
        let (low, high) = (self.low.min(self.high), self.low.max(self.high));
        if value.is_nan() { value } else { value.max(low).min(high) }
    }

    /// Returns whether a value lies within the range.
    pub(crate) fn contains(&self, value: f64) -> bool {
        self.clamp(value) == value
    }

    pub(crate) fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Returns about `tick_count` round values within the range.
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
    pub(crate) scale: Scale,
    pub(crate) ticks: Vec<(f64, String)>,
    pub(crate) title: String,
    /// Value whose label takes precedence if labels would touch; the first tick without one.
    anchor: Option<f64>,
}

impl Axis {
    pub(crate) fn with_ticks(
        scale: Scale,
        title: &str,
        ticks: impl IntoIterator<Item = (f64, String)>,
    ) -> Self {
        Self { scale, ticks: ticks.into_iter().collect(), title: title.to_owned(), anchor: None }
    }

    /// Returns an axis with about `tick_count` ticks, each formatted by `label`.
    pub(crate) fn new(scale: Scale, tick_count: usize, title: &str, label: impl Fn(f64) -> String) -> Self {
        Self::with_ticks(scale, title, scale.ticks(tick_count).into_iter().map(|value| (value, label(value))))
    }

    /// Returns an axis of a metric, with ticks that are round in their displayed unit.
    pub(crate) fn with_unit(scale: Scale, tick_count: usize, title: &str, unit: &str) -> Self {
        let unit_size = format::display_unit_size(scale.high.abs(), unit);
        let counted = Scale { low: scale.low / unit_size, high: scale.high / unit_size, ..scale };
        let ticks = counted.ticks(tick_count).into_iter().map(|tick| tick * unit_size);
        Self::with_ticks(scale, title, ticks.map(|tick| (tick, format::tick(tick, unit))))
    }

    /// Returns an axis of whole numbers from 1.
    pub(crate) fn whole_numbers(scale: Scale, tick_count: usize, title: &str) -> Self {
        let ticks = scale.ticks(tick_count).into_iter();
        let whole = ticks.filter(|value| value.fract().abs() < 1e-6 && *value >= 1.0);
        Self::with_ticks(scale, title, whole.map(|value| (value, format!("{value:.0}"))))
    }

    pub(crate) fn time(longest_s: f64) -> Self {
        let label = |at_s: f64| if at_s == 0.0 { "0 s".to_owned() } else { format::tick(at_s, "s") };
        Self::new(Scale::linear(0.0, longest_s), 8, "Time since the start of the load", label)
    }

    /// Gives the label of this value precedence.
    pub(crate) fn anchored_at(self, value: f64) -> Self {
        Self { anchor: Some(value), ..self }
    }

    /// Returns the ticks without those whose label would touch another's along this length.
    /// `half_size` is half the space that a label needs. Ticks are taken in the order of their
    /// distance from the anchor.
    pub(crate) fn spaced_ticks(&self, length: f64, half_size: impl Fn(&str) -> f64) -> Vec<&(f64, String)> {
        let anchor = self.anchor.or_else(|| self.ticks.first().map(|(value, _)| *value)).unwrap_or(0.0);
        let distance =
            |left: f64, right: f64| (self.scale.fraction(left) - self.scale.fraction(right)).abs() * length;
        let mut ticks: Vec<&(f64, String)> = self.ticks.iter().collect();
        sort_by(&mut ticks, |left, right| distance(left.0, anchor).total_cmp(&distance(right.0, anchor)));
        let mut spaced: Vec<&(f64, String)> = Vec::new();
        for tick in ticks {
            let touches =
                |other: &&(f64, String)| distance(tick.0, other.0) < half_size(&tick.1) + half_size(&other.1);
            if !spaced.iter().any(touches) {
                spaced.push(tick);
            }
        }
        spaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_in_proportion() {
        let scale = Scale::linear(0.0, 10.0);
        assert_eq!([0.0, 5.0, 10.0, 12.5].map(|value| scale.fraction(value)), [0.0, 0.5, 1.0, 1.25]);
        assert_eq!([-1.0, 5.0, 1e9].map(|value| scale.clamp(value)), [0.0, 5.0, 10.0]);
        let rows = Scale::rows(4);
        assert_eq!([0.0, 1.0, 4.0, 9.0].map(|row| rows.fraction(rows.clamp(row))), [1.0, 0.75, 0.0, 0.0]);
        let log = Scale::log(1.0, 100.0);
        assert!((log.fraction(10.0) - 0.5).abs() < 1e-9);
        assert!(log.fraction(0.0).is_nan() && !log.contains(f64::NAN) && log.contains(100.0));
        assert_eq!(Scale::by_ratio(1.0, 100.0, 12.0), log);
        assert_eq!(Scale::by_ratio(0.0, 100.0, 12.0), Scale::linear(0.0, 100.0));
    }

    #[test]
    fn ticks_are_round_and_within() {
        let even = Scale::linear(0.0, 1.0).ticks(5);
        assert_eq!(even, [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(Scale::linear(97.3, 103.1).ticks(5), [98.0, 99.0, 100.0, 101.0, 102.0, 103.0]);
        assert_eq!(Scale::log(1e3, 1e9).ticks(7).len(), 7);
        assert_eq!(Scale::log(1.0, 10.0).ticks(5), [1.0, 2.0, 5.0, 10.0]);
        assert!(Scale::log(1.0, 1e300).ticks(5).len() <= 6);
    }

    #[test]
    fn labels_do_not_touch() {
        let axis = Axis::new(Scale::linear(0.5, 1.5), 20, "", |value| format!("+{:.2} %", value * 100.0));
        let axis = axis.anchored_at(1.0);
        let ticks = axis.spaced_ticks(256.0, |_| 30.0);
        assert_eq!(ticks[0].0, 1.0);
        assert!(ticks.len() > 1 && ticks.len() < axis.ticks.len(), "{ticks:?}");
        for (at, (tick, _)) in ticks.iter().enumerate() {
            for (earlier, _) in &ticks[..at] {
                assert!((tick - earlier).abs() * 256.0 >= 60.0, "{ticks:?}");
            }
        }
    }

    #[test]
    fn ticks_of_bytes_are_round_in_their_unit() {
        let axis = Axis::with_unit(Scale::linear(0.0, 5e7), 5, "", "bytes");
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| &**label).collect();
        assert_eq!(labels, ["0 B", "10 MiB", "20 MiB", "30 MiB", "40 MiB"]);
    }

    #[test]
    fn a_time_of_nothing_is_seconds_too() {
        let labels: Vec<String> = Axis::time(1.0).ticks.into_iter().map(|(_, label)| label).collect();
        assert_eq!((&*labels[0], &*labels[10]), ("0 s", "1 s"), "{labels:?}");
    }

    #[test]
    fn values_that_are_the_same_or_none_are_no_trouble() {
        for value in [0.0, 7.0, -7.0, 1e15] {
            let scale = Scale::linear(value, value);
            assert!((scale.fraction(value) - 0.5).abs() < 0.01, "{value}: {}", scale.fraction(value));
            assert!(!scale.ticks(4).is_empty(), "{value}");
        }
        assert!(Scale::log(5.0, 5.0).fraction(5.0).is_finite());
        assert!(Scale::covering([f64::NAN]).is_none());
        assert_eq!(Scale::from_zero(0.0).fraction(0.0), 0.0);
        assert_eq!(Scale::from_zero(93.0).range(), (0.0, 100.0));
    }
}
