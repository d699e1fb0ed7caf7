//! Queue of a verified proxy: its predictions depend on it.

use record::invalid_value;
use record::problem::InvalidValue;
use serde::Serialize;

/// Queue of a verified proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectQueue {
    Bounded,
    /// Queue without a limit.
    Unbounded,
    /// No queue: requests beyond the slots are rejected.
    None,
}

impl SubjectQueue {
    pub const NAMES: [&'static str; 3] = ["bounded", "unbounded", "none"];

    /// Parses the name of a queue.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "bounded" => Ok(Self::Bounded),
            "unbounded" => Ok(Self::Unbounded),
            "none" => Ok(Self::None),
            _ => Err(invalid_value!("'{text}' is not one of {}", Self::NAMES.join(", "))),
        }
    }
}
