//! Latencies in nanoseconds, from 1 µs to 1 h with three significant digits, as HdrHistogram.
//!
//! Never sampled, never averaged: two histograms are added count by count. The text form is
//! HdrHistogram's own V2 encoding (deflated, base64), which its other tools read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::units::SECOND_NS;

/// The longest latency that is told apart; longer ones count as this.
pub const LATENCY_NS_MAX: u64 = 3600 * SECOND_NS;
/// Significant decimal digits, which hold from 1 µs upwards to better than 1 ns below.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// A histogram of latencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    inner: hdrhistogram::Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a text is not a histogram of latencies.
#[derive(Debug, thiserror::Error)]
pub enum BadHistogram {
    /// It is not base64.
    #[error("the histogram is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// It is not a V2 HdrHistogram.
    #[error("the histogram is not an HdrHistogram V2: {0}")]
    Encoding(String),
}

impl Latencies {
    /// An empty histogram; about 270 kB, of which only the touched part takes memory.
    ///
    /// # Panics
    /// Never: the bounds are constants that HdrHistogram accepts.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn new() -> Self {
        let inner = hdrhistogram::Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS);
        // Invariant: 1 < LATENCY_NS_MAX and the digits are within 0..=5.
        Self { inner: inner.expect("constant bounds") }
    }

    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.inner.saturating_record(latency_ns);
    }

    /// Adds another histogram, count by count.
    ///
    /// # Panics
    /// Never: all histograms of this type have the same bounds.
    #[allow(clippy::expect_used)]
    pub fn add(&mut self, other: &Self) {
        if !other.is_empty() {
            // Invariant: both were made by `new` or checked by `decode`.
            self.inner.add(&other.inner).expect("same bounds");
        }
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.inner.reset();
        }
    }

    /// How many latencies were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// The latency that a share of `quantile` (0 to 1) does not exceed, in ns; 0 when empty.
    #[must_use]
    pub fn at(&self, quantile: f64) -> u64 {
        if self.is_empty() { 0 } else { self.inner.value_at_quantile(quantile).min(self.max_ns()) }
    }

    /// The share (0 to 1) of latencies that do not exceed `latency_ns`.
    #[must_use]
    pub fn share_within(&self, latency_ns: u64) -> f64 {
        self.inner.quantile_below(latency_ns)
    }

    /// The largest latency, in ns, to three digits; 0 when empty.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.inner.max()
    }

    /// The mean, in ns; 0 when empty.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.inner.mean()
    }

    /// HdrHistogram V2, deflated, in base64.
    ///
    /// # Panics
    /// Never: memory is the only thing that writing to a vector needs.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.inner, &mut bytes);
        // Invariant: a vector takes every write, and the histogram is far below 4 GiB.
        written.expect("writing to memory");
        STANDARD.encode(bytes)
    }

    /// Reads what [`Latencies::encode`] or another HdrHistogram library wrote.
    ///
    /// # Errors
    /// The text is not base64 or not a V2 histogram.
    pub fn decode(text: &str) -> Result<Self, BadHistogram> {
        let bytes = STANDARD.decode(text)?;
        let read: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| BadHistogram::Encoding(error.to_string()))?;
        let mut latencies = Self::new();
        for entry in read.iter_recorded() {
            let value = entry.value_iterated_to().clamp(1, LATENCY_NS_MAX);
            latencies.inner.saturating_record_n(value, entry.count_at_value());
        }
        Ok(latencies)
    }

    /// The summary that a record carries.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count(),
            mean_ns: self.mean_ns(),
            p50_ns: self.at(0.5),
            p90_ns: self.at(0.9),
            p99_ns: self.at(0.99),
            p999_ns: self.at(0.999),
            max_ns: self.max_ns(),
            hdr: self.encode(),
        }
    }

    pub(crate) fn inner(&self) -> &hdrhistogram::Histogram<u64> {
        &self.inner
    }
}

/// Latencies as a record carries them: the usual figures, and the histogram they came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many latencies were counted.
    pub count: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// 90 % are no longer.
    pub p90_ns: u64,
    /// 99 % are no longer.
    pub p99_ns: u64,
    /// 99.9 % are no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// HdrHistogram V2, deflated, base64.
    pub hdr: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_hold_from_a_microsecond_to_an_hour() {
        for value in [1_000, 1_001, 999_999, 12_345_678, 3_599_000_000_000] {
            let mut latencies = Latencies::new();
            latencies.record(value);
            let error = latencies.at(0.5).abs_diff(value) as f64 / value as f64;
            assert!(error <= 0.001, "{value}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        let mut latencies = Latencies::new();
        for value in 1..10_000u64 {
            latencies.record(value * value);
        }
        assert_eq!(Latencies::decode(&latencies.encode()).unwrap(), latencies);
        assert!(Latencies::decode("not base64!").is_err());
        assert!(Latencies::decode("AAAA").is_err());
    }

    #[test]
    fn longer_than_an_hour_counts_as_an_hour() {
        let mut latencies = Latencies::new();
        latencies.record(u64::MAX);
        let error = latencies.max_ns() as f64 / LATENCY_NS_MAX as f64;
        assert_eq!(latencies.count(), 1);
        assert!((0.999..1.25).contains(&error), "{error}");
    }

    #[test]
    fn adding_is_counting_both() {
        let (mut a, mut b, mut both) = (Latencies::new(), Latencies::new(), Latencies::new());
        for value in 1..1_000 {
            if value % 3 == 0 {
                a.record(value)
            } else {
                b.record(value)
            }
            both.record(value);
        }
        a.add(&b);
        assert_eq!(a, both);
        a.clear();
        assert_eq!((a.count(), a.at(0.99), a.max_ns()), (0, 0, 0));
    }
}
