//! Results of parts of a load: of each stage, and of each request of a scenario.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::{HistogramDecodeError, LatencyHistogram, LatencyPair};

/// Requests that were due in one stage (`--stages`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageResult {
    /// Number of the stage, from 1. A stage without time has no result.
    pub number: u64,
    /// Start, in s after the start of the run.
    pub from_s: f64,
    /// End, in s; earlier than planned if the run was stopped.
    pub to_s: f64,
    /// Value at the start: requests per second, or connections.
    pub from_value: f64,
    pub to_value: f64,
    /// Good responses to the requests that were due in the stage.
    pub good: u64,
    /// Requests without a good response: bad responses, failures and dropped requests.
    pub not_good: u64,
    /// Latency of the good responses to the last byte.
    pub last_byte: LatencyPair,
}

impl StageResult {
    /// Returns the good responses per second of the stage.
    pub fn goodput_per_s(&self) -> f64 {
        self.good as f64 / (self.to_s - self.from_s).max(1e-9)
    }

    /// Adds the same stage of another generator.
    pub(crate) fn add(&mut self, other: &Self) -> Result<(), HistogramDecodeError> {
        self.to_s = self.to_s.max(other.to_s);
        self.good += other.good;
        self.not_good += other.not_good;
        for (sum, other) in [
            (&mut self.last_byte.service, &other.last_byte.service),
            (&mut self.last_byte.response, &other.last_byte.response),
        ] {
            let mut histogram = LatencyHistogram::decode(&sum.hdr)?;
            histogram.add(&LatencyHistogram::decode(&other.hdr)?);
            *sum = histogram.summary();
        }
        Ok(())
    }
}

/// Responses to one request of a plan with several, and their failed checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestResult {
    /// Method and URL, before templates are rendered.
    pub request: String,
    pub good: u64,
    /// Bad responses, with those that failed a check.
    pub bad: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub failed_checks: BTreeMap<String, u64>,
}

impl RequestResult {
    /// Adds the same request of another generator.
    pub(crate) fn add(&mut self, other: &Self) {
        self.good += other.good;
        self.bad += other.bad;
        for (check, count) in &other.failed_checks {
            *self.failed_checks.entry(check.clone()).or_insert(0) += count;
        }
    }
}
