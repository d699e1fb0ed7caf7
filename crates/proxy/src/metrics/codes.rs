//! Responses by status code: one count each, so that recording is one increment.

use super::snapshot::Snapshot;
use super::table::Metric;
use super::{Count, counts};

/// The first status that is counted.
const FIRST_CODE: usize = 100;
/// Statuses that are counted, with that of no response.
const CODES: usize = 501;
/// Statuses that have a series from the start.
const COMMON_CODES: [usize; 16] =
    [101, 200, 204, 206, 301, 302, 304, 400, 403, 404, 408, 429, 500, 502, 503, 504];

/// The responses of one listener on one core; the first count is of requests without a response.
#[derive(Debug)]
pub(super) struct Codes(Box<[Count]>);

impl Codes {
    pub(super) fn new() -> Self {
        Self(counts(CODES).into())
    }

    /// Counts a response; 0: there was none.
    #[inline]
    pub(super) fn record(&self, status: u16) {
        let index = match status {
            100..=599 => usize::from(status) - FIRST_CODE + 1,
            _ => 0,
        };
        self.0[index].add(1);
    }

    /// Adds the codes that are common, and the others that there were.
    pub(super) fn add_to(&self, all: &mut Snapshot, listener: &str) {
        all.add(Metric::Responses, &[listener, "none"], self.0[0].0.get());
        for (index, count) in self.0.iter().enumerate().skip(1) {
            let (count, code) = (count.0.get(), index + FIRST_CODE - 1);
            if count > 0 || COMMON_CODES.contains(&code) {
                all.add(Metric::Responses, &[listener, &code.to_string()], count);
            }
        }
    }
}

/// The index of the class of a status; 0: none.
#[inline]
pub(super) fn class_of(status: u16) -> usize {
    match status {
        100..=599 => usize::from(status / 100),
        _ => 0,
    }
}
