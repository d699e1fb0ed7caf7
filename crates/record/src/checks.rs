//! Samples of failed checks, and changes of the rate during a run.

use serde::{Deserialize, Serialize};

/// Response that failed a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckSample {
    /// End of the response, in s after the start.
    pub time_s: f64,
    /// The check: `status`, `header`, `length`, `hash` or `body`.
    pub check: String,
    /// Method and URL of the request, before its templates are rendered.
    pub request: String,
    pub status: u16,
    pub body_bytes: u64,
    pub found: String,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub body_start: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateChange {
    /// Time after the start, in s.
    pub time_s: f64,
    /// Factor of the planned rate, from then on.
    pub factor: f64,
}
