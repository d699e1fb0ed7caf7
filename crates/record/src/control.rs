//! Interface of a load that another process controls (`weir load --control`): commands on its stdin, one a
//! line, and events on its stdout, one JSON object a line.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::histogram::LatencyHistogram;
use crate::invalid_value;
use crate::problem::InvalidValue;
use crate::run::Interval;

/// Variable that turns off the defaults of `WEIR_*` variables. Weir sets it for its own child processes,
/// which have to do exactly what their command line says.
pub const NO_DEFAULTS: &str = "WEIR_NO_DEFAULTS";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadCommand {
    /// Start at this time of `CLOCK_MONOTONIC`, in ns; a time in the past starts at once.
    Start { at_ns: u64 },
    /// Multiply the planned rate of an open loop by this factor.
    Rate {
        /// The factor, 0 or more.
        factor: f64,
    },
    /// End the load, and drain the requests in flight. A second one gives them up.
    Stop,
}

impl fmt::Display for LoadCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { at_ns } => write!(f, "start {at_ns}"),
            Self::Rate { factor } => write!(f, "rate {factor}"),
            Self::Stop => f.write_str("stop"),
        }
    }
}

impl FromStr for LoadCommand {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let wrong =
            || invalid_value!("'{}' is no command: write 'start NS', 'rate FACTOR' or 'stop'", text.trim());
        let mut words = text.split_whitespace();
        let command = match (words.next(), words.next()) {
            (Some("start"), Some(at)) => Self::Start { at_ns: at.parse().map_err(|_| wrong())? },
            (Some("rate"), Some(factor)) => {
                let factor = factor.parse::<f64>().map_err(|_| wrong())?;
                if !(0.0..=f64::MAX).contains(&factor) {
                    return Err(wrong());
                }
                Self::Rate { factor }
            }
            (Some("stop"), None) => Self::Stop,
            _ => return Err(wrong()),
        };
        if words.next().is_some() { Err(wrong()) } else { Ok(command) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LoadEvent {
    /// The connections are open; the load waits for `start`.
    Connected { connections: u64 },
    /// The start is determined; it may lie some ms ahead.
    Started {
        /// Start by `CLOCK_MONOTONIC`, in ns.
        clock_ns: u64,
        /// Start by the wall clock, in ns since 1970.
        unix_ns: u64,
    },
    /// A second is over.
    Second {
        interval: Box<Interval>,
        /// Response latencies of that second, as HdrHistogram V2 (deflate, base64); absent if they are longer
        /// than [`LATENCIES_BYTES_MAX`].
        #[serde(skip_serializing_if = "Option::is_none", default)]
        latencies: Option<String>,
    },
}

/// Maximum length of the encoded latencies of a second, in bytes; a second has typically 500 to 3,000.
pub const LATENCIES_BYTES_MAX: usize = 32 * 1024;

/// Encodes the latencies of a second, unless they are too long.
pub fn encode_latencies(latencies: &LatencyHistogram) -> Option<String> {
    Some(latencies.encode()).filter(|text| text.len() <= LATENCIES_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_are_written() {
        for command in
            [LoadCommand::Start { at_ns: u64::MAX }, LoadCommand::Rate { factor: 1.25 }, LoadCommand::Stop]
        {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        for wrong in ["", "start", "start x", "rate -1", "rate nan", "rate inf", "stop now", "start 1 2"] {
            assert!(wrong.parse::<LoadCommand>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn events_are_one_line_with_their_name() {
        let event = LoadEvent::Started { clock_ns: 1, unix_ns: 2 };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(line, r#"{"event":"started","clock_ns":1,"unix_ns":2}"#);
        assert_eq!(serde_json::from_str::<LoadEvent>(&line).unwrap(), event);
    }
}
