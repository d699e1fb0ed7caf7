//! Latency histograms in nanoseconds, from 1 µs to 1 h with three significant digits
//! (HdrHistogram).
//!
//! Latencies are neither sampled nor averaged: adding two histograms adds their counts. The text
//! form is HdrHistogram's own V2 encoding (deflated, base64), which other tools read.

use std::io::Read as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::units::SECOND_NS;

mod delays;

pub use delays::Delays;

/// Longest latency that is distinguished; longer ones count as this.
pub const LATENCY_NS_MAX: u64 = 3600 * SECOND_NS;
/// Significant decimal digits, from 1 µs upwards; the resolution below is better than 1 ns.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// Upper bounds of the buckets in exported metrics in ns, inclusive: 1, 2, 5 steps from 50 µs to 50 s, and
/// 60 s, which is the default of the longest timeout of a request.
pub const EXPORT_BOUNDS_NS: [u64; 20] = [
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    20_000_000_000,
    50_000_000_000,
    60_000_000_000,
];

#[derive(Clone, Debug, PartialEq)]
pub struct LatencyHistogram {
    inner: hdrhistogram::Histogram<u64>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Reason why a text is not a histogram of latencies.
#[derive(Debug, thiserror::Error)]
pub enum HistogramDecodeError {
    #[error("the histogram is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// It is not a V2 HdrHistogram.
    #[error("the histogram is not an HdrHistogram V2: {0}")]
    Encoding(String),
    /// It is inflated to more than a histogram of these digits can have.
    #[error("the histogram has more than {PAYLOAD_BYTES_MAX} bytes of counts")]
    TooLarge,
    /// It distinguishes more values than [`SIGNIFICANT_DIGITS`] do, which takes more memory.
    #[error("the histogram has {0} significant digits; the limit is {SIGNIFICANT_DIGITS}")]
    TooManyDigits(u32),
}

/// Maximum size of the encoded counts: those of all values of 64 bits with [`SIGNIFICANT_DIGITS`], which are
/// 55 ranges of 1024 counts, with 9 bytes each.
const PAYLOAD_BYTES_MAX: usize = 56 * 1024 * 9;
/// Header of the V2 encoding: cookie, length of the counts, offset, digits, bounds, ratio.
const HEADER_BYTES: usize = 40;
const V2_COOKIE: u32 = 0x1c84_9313;
const V2_DEFLATED_COOKIE: u32 = 0x1c84_9314;

impl LatencyHistogram {
    /// Creates an empty histogram; about 270 kB, of which only the touched part takes memory.
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

    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.inner.saturating_record(latency_ns);
    }

    /// Counts the same latency `count` times.
    pub fn record_count(&mut self, latency_ns: u64, count: u64) {
        self.inner.saturating_record_n(latency_ns, count);
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

    /// Clears all counts and keeps the memory.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.inner.reset();
        }
    }

    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// Returns true if nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Returns the latency that the fraction `quantile` (0 to 1) does not exceed, in ns; 0 if
    /// empty.
    pub fn value_at_quantile(&self, quantile: f64) -> u64 {
        if self.is_empty() { 0 } else { self.inner.value_at_quantile(quantile).min(self.max_ns()) }
    }

    /// Returns the fraction (0 to 1) of latencies that do not exceed `latency_ns`.
    pub fn fraction_within(&self, latency_ns: u64) -> f64 {
        self.inner.quantile_below(latency_ns)
    }

    /// Returns the largest latency, in ns, to three digits; 0 if empty.
    pub fn max_ns(&self) -> u64 {
        self.inner.max()
    }

    /// Returns the mean, in ns; 0 if empty.
    pub fn mean_ns(&self) -> f64 {
        self.inner.mean()
    }

    /// Returns the smallest latency, in ns, to three digits; 0 if empty.
    pub fn min_ns(&self) -> u64 {
        if self.is_empty() { 0 } else { self.inner.min() }
    }

    /// Returns the standard deviation, in ns; 0 if empty.
    pub fn stdev_ns(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.inner.stdev() }
    }

    /// Encodes as HdrHistogram V2, deflated, in base64.
    ///
    /// # Panics
    /// Never: writing to a vector needs nothing but memory.
    #[allow(clippy::expect_used)]
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.inner, &mut bytes);
        // Invariant: a vector accepts every write, and the histogram is far below 4 GiB.
        written.expect("writing to memory");
        STANDARD.encode(bytes)
    }

    /// Decodes the output of [`LatencyHistogram::encode`] or of another HdrHistogram library.
    ///
    /// # Errors
    /// The text is not base64 or not a V2 histogram, or its histogram needs more memory than one of
    /// [`SIGNIFICANT_DIGITS`].
    pub fn decode(text: &str) -> Result<Self, HistogramDecodeError> {
        let bytes = inflate(STANDARD.decode(text)?)?;
        check_counts(&bytes)?;
        let read: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| HistogramDecodeError::Encoding(error.to_string()))?;
        let mut latencies = Self::new();
        for entry in read.iter_recorded() {
            let value = entry.value_iterated_to().clamp(1, LATENCY_NS_MAX);
            latencies.inner.saturating_record_n(value, entry.count_at_value());
        }
        Ok(latencies)
    }

    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count(),
            mean_ns: self.mean_ns(),
            p50_ns: self.value_at_quantile(0.5),
            p90_ns: self.value_at_quantile(0.9),
            p99_ns: self.value_at_quantile(0.99),
            p999_ns: self.value_at_quantile(0.999),
            max_ns: self.max_ns(),
            hdr: self.encode(),
        }
    }

    pub(crate) fn inner(&self) -> &hdrhistogram::Histogram<u64> {
        &self.inner
    }
}

/// Returns the encoding without compression, of a bounded length: a few bytes can be inflated to a thousand
/// times as many.
fn inflate(bytes: Vec<u8>) -> Result<Vec<u8>, HistogramDecodeError> {
    match bytes.split_first_chunk::<8>() {
        Some((&[a, b, c, d, ..], deflated)) if u32::from_be_bytes([a, b, c, d]) == V2_DEFLATED_COOKIE => {
            let limit = HEADER_BYTES + PAYLOAD_BYTES_MAX;
            let mut inflated = Vec::new();
            let read = ZlibDecoder::new(deflated).take(limit as u64 + 1).read_to_end(&mut inflated);
            read.map_err(|error| HistogramDecodeError::Encoding(error.to_string()))?;
            if inflated.len() > limit { Err(HistogramDecodeError::TooLarge) } else { Ok(inflated) }
        }
        _ => Ok(bytes),
    }
}

/// Checks the fields that decide how much memory a decoder takes: the length of the counts, and the digits.
fn check_counts(bytes: &[u8]) -> Result<(), HistogramDecodeError> {
    let malformed = |text: &str| HistogramDecodeError::Encoding(text.to_owned());
    let (header, payload) =
        bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| malformed("it is too short"))?;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if number(0) != V2_COOKIE {
        return Err(malformed("it does not begin with the number of the format"));
    }
    if number(4) as usize > payload.len() {
        return Err(malformed("it is truncated"));
    }
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(HistogramDecodeError::TooLarge);
    }
    let digits = number(12);
    if digits > u32::from(SIGNIFICANT_DIGITS) {
        return Err(HistogramDecodeError::TooManyDigits(digits));
    }
    // The negative number of this encoding has no positive one.
    if payload.windows(9).any(|number| number == [0xff; 9]) {
        return Err(malformed("a count is too large"));
    }
    Ok(())
}

/// Latencies as stored in a record: the usual figures, and the histogram that they came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    pub max_ns: u64,
    /// HdrHistogram V2, deflated, base64.
    pub hdr: String,
}

/// Latencies of one phase, measured from two starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPair {
    /// From the send (or the start of the connect): the server's latency.
    pub service: LatencySummary,
    /// From the due time: the user's latency.
    pub response: LatencySummary,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_hold_from_a_microsecond_to_an_hour() {
        for value in [1_000, 1_001, 999_999, 12_345_678, 3_599_000_000_000] {
            let mut latencies = LatencyHistogram::new();
            latencies.record(value);
            let error = latencies.value_at_quantile(0.5).abs_diff(value) as f64 / value as f64;
            assert!(error <= 0.001, "{value}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        let mut latencies = LatencyHistogram::new();
        for value in 1..10_000u64 {
            latencies.record(value * value);
        }
        assert_eq!(LatencyHistogram::decode(&latencies.encode()).unwrap(), latencies);
        assert!(LatencyHistogram::decode("not base64!").is_err());
        assert!(LatencyHistogram::decode("AAAA").is_err());
    }

    /// Returns the encoding of these counts, deflated if `deflates` is set.
    fn encoding(digits: u32, high: u64, payload_bytes: u32, payload: &[u8], deflates: bool) -> String {
        let mut bytes = V2_COOKIE.to_be_bytes().to_vec();
        for number in [payload_bytes, 0, digits] {
            bytes.extend(number.to_be_bytes());
        }
        for number in [1, high, 1.0_f64.to_bits()] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(payload);
        if deflates {
            let mut deflater = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            std::io::Write::write_all(&mut deflater, &bytes).unwrap();
            let deflated = deflater.finish().unwrap();
            let length = (deflated.len() as u32).to_be_bytes();
            bytes = [&V2_DEFLATED_COOKIE.to_be_bytes()[..], &length, &deflated].concat();
        }
        STANDARD.encode(bytes)
    }

    #[test]
    fn a_foreign_histogram_is_read_and_a_bomb_is_not() {
        for deflates in [false, true] {
            // The second value occurs five times.
            let decode = |digits, high, payload_bytes, payload: &[u8]| {
                LatencyHistogram::decode(&encoding(digits, high, payload_bytes, payload, deflates))
            };
            let read = decode(2, 3_600_000_000, 2, &[1, 10]).unwrap();
            assert_eq!((read.count(), read.min_ns()), (5, 1));
            let wide = decode(3, u64::MAX, 2, &[1, 10]).unwrap();
            assert_eq!(wide.count(), 5);
            // 4 GiB of counts are announced, and none follows.
            assert!(matches!(decode(3, 1 << 40, u32::MAX, &[1]), Err(HistogramDecodeError::Encoding(_))));
            // 55 MB of empty counts.
            assert!(matches!(decode(5, u64::MAX, 1, &[2]), Err(HistogramDecodeError::TooManyDigits(5))));
            let zeros = vec![0; 16 << 20];
            let bomb = decode(3, 1 << 40, zeros.len() as u32, &zeros);
            assert!(matches!(bomb, Err(HistogramDecodeError::TooLarge)), "{bomb:?}");
            let smallest = decode(3, 1 << 40, 9, &[0xff; 9]);
            assert!(matches!(smallest, Err(HistogramDecodeError::Encoding(_))), "{smallest:?}");
        }
    }

    #[test]
    fn longer_than_an_hour_counts_as_an_hour() {
        let mut latencies = LatencyHistogram::new();
        latencies.record(u64::MAX);
        let error = latencies.max_ns() as f64 / LATENCY_NS_MAX as f64;
        assert_eq!(latencies.count(), 1);
        assert!((0.999..1.25).contains(&error), "{error}");
    }

    #[test]
    fn adding_is_counting_both() {
        let (mut a, mut b, mut both) =
            (LatencyHistogram::new(), LatencyHistogram::new(), LatencyHistogram::new());
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
        assert_eq!((a.count(), a.value_at_quantile(0.99), a.max_ns()), (0, 0, 0));
    }
}
