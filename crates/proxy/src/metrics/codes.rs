//! Responses by status code. Each code has its own counter, so recording is one increment.

use super::snapshot::Snapshot;
use super::table::Metric;
use super::{CounterCell, new_counters};

/// First status code that is counted.
const FIRST_CODE: usize = 100;
/// Number of counters: one for each status code, and one for requests without a response.
const COUNTERS: usize = 501;
/// Status codes that have a series from the start.
const COMMON_CODES: [usize; 16] =
    [101, 200, 204, 206, 301, 302, 304, 400, 403, 404, 408, 429, 500, 502, 503, 504];

/// Response counters of one listener on one core. The first one counts requests without a response.
#[derive(Debug)]
pub(super) struct StatusCounters(Box<[CounterCell]>);

impl StatusCounters {
    pub(super) fn new() -> Self {
        Self(new_counters(COUNTERS).into())
    }

    /// Counts a response; status 0 means that there was none.
    #[inline]
    pub(super) fn record(&self, status: u16) {
        let index = match status {
            100..=599 => usize::from(status) - FIRST_CODE + 1,
            _ => 0,
        };
        self.0[index].add(1);
    }

    /// Adds the common codes, and all others that occurred.
    pub(super) fn add_to(&self, snapshot: &mut Snapshot, listener: &str) {
        snapshot.add(Metric::Responses, &[listener, "none"], self.0[0].0.get());
        for (index, count) in self.0.iter().enumerate().skip(1) {
            let (count, code) = (count.0.get(), index + FIRST_CODE - 1);
            if count > 0 || COMMON_CODES.contains(&code) {
                snapshot.add(Metric::Responses, &[listener, &code.to_string()], count);
            }
        }
    }
}

/// Returns the index of a status code's class; 0 means no response.
#[inline]
pub(super) fn status_class(status: u16) -> usize {
    match status {
        100..=599 => usize::from(status / 100),
        _ => 0,
    }
}
