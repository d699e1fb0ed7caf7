//! Messages between a coordinator and its agents. Every text and list has a limit, so that a message of
//! another version or of a stranger costs no more than its own bytes.

use std::collections::BTreeMap;
use std::fmt;

use record::facts::HostFacts;
use record::invalid_value;
use record::problem::{InvalidValue, printable};
use record::run::Interval;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the protocol. Sides with different versions do not talk to each other.
pub const PROTOCOL: u32 = 1;
/// Maximum size of a message, in bytes; half of the default `max_payload` of a NATS server.
pub const MESSAGE_BYTES_MAX: usize = 512 * 1024;
pub const PART_BYTES: usize = 256 * 1024;
pub const RECORD_BYTES_MAX: u64 = 64 * 1024 * 1024;
pub const PROBLEMS_MAX: usize = 32;
const PROBLEM_BYTES_MAX: usize = 1024;

/// Message with the version of its protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    body: T,
}

/// Reason why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is longer than [`MESSAGE_BYTES_MAX`].
    #[error("a message of {0} bytes; the limit is {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    #[error("a message of protocol version {0}; this is version {PROTOCOL}: use the same weir everywhere")]
    Version(u32),
    /// It is not JSON of this form.
    #[error("a message in an unknown form: {0}")]
    Form(String),
}

/// Encodes a message.
///
/// # Errors
/// It is longer than [`MESSAGE_BYTES_MAX`].
pub fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, MessageError> {
    let envelope = Envelope { version: PROTOCOL, body };
    let bytes = serde_json::to_vec(&envelope).map_err(|error| MessageError::Form(error.to_string()))?;
    if bytes.len() > MESSAGE_BYTES_MAX { Err(MessageError::TooLong(bytes.len())) } else { Ok(bytes) }
}

/// Decodes a message.
///
/// # Errors
/// It is too long, of another version, or not of this form.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong(bytes.len()));
    }
    // The error may repeat a text of the message.
    let form = |error: serde_json::Error| MessageError::Form(bounded(&error.to_string()));
    let Version { version } = serde_json::from_slice(bytes).map_err(form)?;
    if version != PROTOCOL {
        return Err(MessageError::Version(version));
    }
    serde_json::from_slice::<Envelope<T>>(bytes).map(|envelope| envelope.body).map_err(form)
}

/// Name of an agent: letters, digits, `-` and `_`, as it is part of subjects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentName(String);

const NAME_BYTES_MAX: usize = 64;

impl AgentName {
    /// Checks a name.
    ///
    /// # Errors
    /// Reason why the text is no name.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let is_valid = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(is_valid) {
            return Err(invalid_value!(
                "'{text}' is not a name (1 to {NAME_BYTES_MAX} letters, digits, '-' or '_')"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the name of a host as the name of an agent; other characters become `-`.
    #[must_use]
    pub fn from_host(host: &str) -> Self {
        let name = host.chars().take(NAME_BYTES_MAX).map(|letter| match letter {
            letter if letter.is_ascii_alphanumeric() || letter == '_' => letter,
            _ => '-',
        });
        let name: String = name.collect();
        Self(if name.is_empty() { "agent".to_owned() } else { name })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for AgentName {
    type Error = InvalidValue;

    fn try_from(text: String) -> Result<Self, InvalidValue> {
        Self::parse(&text)
    }
}

impl From<AgentName> for String {
    fn from(name: AgentName) -> Self {
        name.0
    }
}

/// ID of a run, chosen by its coordinator; it has the form of an [`AgentName`].
pub type RunId = AgentName;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRole {
    Load,
    /// Runs an origin.
    Serve,
    Proxy,
    Observe,
}

impl AgentRole {
    pub const ALL: &[(Self, &'static str)] =
        &[(Self::Load, "load"), (Self::Serve, "serve"), (Self::Proxy, "proxy"), (Self::Observe, "observe")];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, name)| name)
    }
}

/// Job for an agent: a role, and the arguments of the command of `weir` for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub role: AgentRole,
    /// Arguments, without the program and the command.
    pub arguments: Vec<String>,
    /// Slice of the load, as `--slice` has it; `None`: all of it.
    pub slice: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum AgentCommand {
    Describe,
    Ping {
        /// Number of the round trip.
        sequence: u64,
    },
    /// Check the job, open its connections and wait.
    Prepare {
        run: RunId,
        job: Job,
    },
    /// Start at this time of the agent's own clock, in ns.
    Start {
        run: RunId,
        at_ns: u64,
    },
    Rate {
        run: RunId,
        factor: f64,
    },
    Stop {
        run: RunId,
        /// True to give up the requests in flight too.
        abort: bool,
    },
    SendRecord {
        run: RunId,
        /// First missing part.
        from_part: u32,
    },
    /// The record has arrived, or is of no use: delete it.
    Acknowledge {
        run: RunId,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentFacts {
    /// Name; the subjects of the agent contain it.
    pub name: AgentName,
    /// Random ID of this process, which shows a restart and two agents with one name.
    pub instance: String,
    pub weir: String,
    pub host: HostFacts,
    /// Links that are up, with their speed in bits per second if the driver reports one.
    pub links: Vec<(String, Option<f64>)>,
    pub labels: BTreeMap<String, String>,
    pub roles: Vec<AgentRole>,
    /// Calibrated maximum rate of `weir load` on this machine, per s; `None`: not calibrated.
    pub capacity_per_s: Option<f64>,
    /// True if the kernel reports a synchronized wall clock; `None` if unknown.
    pub clock_synchronized: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// ID of the process, as in [`AgentFacts`].
    pub instance: String,
    pub run: Option<RunStatus>,
    /// Run that was refused last, with the problems.
    pub refused: Option<Refusal>,
    /// Records on disk that were not acknowledged.
    pub stored: Vec<StoredRun>,
    /// True if it accepts no run, because it ends.
    pub draining: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStatus {
    pub run: RunId,
    pub state: RunState,
    pub rate_factor: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// The child process starts and opens its connections.
    Preparing,
    Ready {
        connections: u64,
    },
    Running {
        /// Start by the agent's clock, in ns.
        start_ns: u64,
    },
    /// The run has no record.
    Failed {
        text: String,
    },
}

/// Refused run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub run: RunId,
    pub problems: Vec<String>,
}

impl Refusal {
    /// Creates a refusal; problems beyond the limits are cut off.
    #[must_use]
    pub fn new(run: RunId, problems: impl IntoIterator<Item = String>) -> Self {
        let problems = problems.into_iter().take(PROBLEMS_MAX).map(|text| bounded(&text));
        Self { run, problems: problems.collect() }
    }
}

/// Returns a text within the limit of a problem, without control characters.
pub fn bounded(text: &str) -> String {
    printable(text, PROBLEM_BYTES_MAX)
}

/// Record on the disk of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRun {
    pub run: RunId,
    /// Start by the agent's clock, in ns; `None` if it never started.
    pub start_ns: Option<u64>,
    pub bytes: u64,
    /// SHA-256 in base64.
    pub digest: String,
}

impl StoredRun {
    pub fn parts(&self) -> u32 {
        u32::try_from(self.bytes.min(RECORD_BYTES_MAX).div_ceil(PART_BYTES as u64)).unwrap_or(u32::MAX)
    }
}

/// Report on the subject of the states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum AgentReport {
    /// Facts, in response to [`AgentCommand::Describe`] and after a start.
    Facts { facts: Box<AgentFacts> },
    /// State, after each change and each second.
    Status { status: AgentStatus },
}

/// Clock of an agent, in response to [`AgentCommand::Ping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// Number of the round trip.
    pub sequence: u64,
    /// `CLOCK_MONOTONIC` of the agent, in ns.
    pub clock_ns: u64,
    /// Wall clock of the agent, in ns since 1970.
    pub wall_ns: u64,
}

/// Figures of a second, while the load runs. They may be lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveSecond {
    pub interval: Interval,
    /// Response latencies of the second, as in the event of the child process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latencies: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_a_stranger_and_a_flood_are_told_apart() {
        let bytes = encode(&AgentCommand::Describe).unwrap();
        assert_eq!(decode::<AgentCommand>(&bytes), Ok(AgentCommand::Describe));
        let other = br#"{"version":2,"body":{"command":"unheard-of"}}"#;
        assert_eq!(decode::<AgentCommand>(other), Err(MessageError::Version(2)));
        assert!(matches!(decode::<AgentCommand>(b"hello"), Err(MessageError::Form(_))));
        let long = "x".repeat(MESSAGE_BYTES_MAX + 1);
        assert!(matches!(decode::<AgentCommand>(long.as_bytes()), Err(MessageError::TooLong(_))));
        assert!(matches!(encode(&long), Err(MessageError::TooLong(_))));
    }

    #[test]
    fn a_name_fits_into_a_subject() {
        assert_eq!(AgentName::from_host("node-1.example.org").as_str(), "node-1-example-org");
        assert_eq!(AgentName::from_host("").as_str(), "agent");
        for wrong in ["", "a.b", "*", ">", "a b", &"x".repeat(65)] {
            assert!(AgentName::parse(wrong).is_err(), "{wrong}");
        }
        let stranger = br#"{"version":1,"body":{"command":"acknowledge","run":"a.>"}}"#;
        assert!(decode::<AgentCommand>(stranger).is_err());
    }

    #[test]
    fn problems_are_bounded() {
        let run = RunId::parse("r").unwrap();
        let refusal = Refusal::new(run, std::iter::repeat_n("ä".repeat(4096), 100));
        assert_eq!((refusal.problems.len(), refusal.problems[0].len()), (PROBLEMS_MAX, 1024));
        let stored = |bytes| StoredRun {
            run: RunId::parse("r").unwrap(),
            start_ns: None,
            bytes,
            digest: String::new(),
        };
        assert_eq!(
            [0, 1, PART_BYTES as u64, 1 + PART_BYTES as u64].map(|bytes| stored(bytes).parts()),
            [0, 1, 1, 2]
        );
    }
}
