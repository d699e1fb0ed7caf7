//! What a load is to do: from the text of the flags to an immutable plan, with every problem
//! reported at once. Nothing is opened, resolved or started here.

mod objective;
mod parse;
mod request;
mod status;
mod url;

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;

pub use objective::{Bound, Objective, Outcome};
pub use parse::PlanText;
pub use request::Request;
pub use status::StatusSet;
pub use url::{Authority, Url};

use crate::pace::Pace;

/// How the requests of an open loop are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At even distances.
    Constant,
    /// As a Poisson process: like many users that do not know of each other.
    Poisson,
}

/// Where the time-out of a request starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeoutFrom {
    /// At its due time, as a user's patience does. A request that waited for a connection until less
    /// time is left than a response usually takes is not sent, and counted as `too_late`.
    #[default]
    Due,
    /// At its send: every request that waited for a connection is sent, and has its full time-out then.
    Send,
}

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct End {
    /// After this time.
    pub duration_ns: u64,
    /// After this many requests, if that comes first.
    pub requests: Option<u64>,
}

/// What a response must be, to count as good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Expect {
    /// Statuses of good responses; others are errors of kind `check`. Not given: those below 400.
    pub status: Option<StatusSet>,
    /// Body size that is expected.
    pub body_bytes: Option<u64>,
}

/// Everything that a load was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What to ask for; a connection belongs to one authority and asks for its URLs in turn.
    pub requests: Vec<Request>,
    /// Connect to this unix socket instead of the URL's host and port.
    pub unix: Option<PathBuf>,
    /// Connections at a time.
    pub connections: u64,
    /// Threads, one core each.
    pub threads: usize,
    /// Processors to pin the threads to; empty: not pinned.
    pub pin: Vec<usize>,
    /// Whether idle threads spin instead of sleeping.
    pub spin: bool,
    /// Open or closed loop.
    pub pace: Pace,
    /// Time over which connections and rate come up from nothing.
    pub ramp_ns: u64,
    /// When it ends.
    pub end: End,
    /// Requests on a connection before it is closed; `None`: as many as the server allows.
    pub requests_per_connection: Option<u64>,
    /// A request older than this is an error.
    pub timeout_ns: u64,
    /// Where that time starts.
    pub timeout_from: TimeoutFrom,
    /// How long after the end the requests in flight may still finish.
    pub drain_ns: u64,
    /// Requests that may wait for a free connection; more are dropped and counted. Open loop only.
    pub line_max: u64,
    /// Addresses to connect from, in turn; empty: the kernel's choice.
    pub sources: Vec<IpAddr>,
    /// What a response must be.
    pub expect: Expect,
    /// What is held to be good.
    pub objectives: Vec<Objective>,
    /// The share of requests without a good response beyond which a result is not valid: as given, or the
    /// limit of an objective of errors, or [`ERROR_SHARE_DEFAULT`].
    pub error_share_max: f64,
    /// Seed of all randomness.
    pub seed: u64,
}

/// Default of `-c`.
pub const CONNECTIONS_DEFAULT: u64 = 64;
/// Default of `-d` without `-n`, in seconds.
pub const DURATION_S_DEFAULT: u64 = 10;
/// The end of a run that only has `-n`, in seconds: everything has a limit.
pub const DURATION_S_MAX: u64 = 3600;
/// Default of `-w`, in seconds.
pub const TIMEOUT_S_DEFAULT: u64 = 5;
/// Default of the share of failed requests beyond which a result is not valid.
pub const ERROR_SHARE_DEFAULT: f64 = 0.001;
/// The longest line of waiting requests.
pub const LINE_MAX: u64 = 10_000_000;
/// The most connections of one run.
pub const CONNECTIONS_MAX: u64 = 4_000_000;
/// The largest request body, in bytes.
pub const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl Expect {
    /// Whether a response with `status` may be a good one.
    #[must_use]
    pub fn is_good_status(&self, status: u16) -> bool {
        self.status.as_ref().map_or(status < 400, |set| set.contains(status))
    }
}

impl Plan {
    /// The authorities that connections are spread over, each once, in the order of the URLs.
    #[must_use]
    pub fn authorities(&self) -> Vec<&Authority> {
        let mut all: Vec<&Authority> = Vec::new();
        for request in &self.requests {
            if !all.contains(&&request.url.authority) {
                all.push(&request.url.authority);
            }
        }
        all
    }

    /// When a request that is due and sent then has timed out.
    #[must_use]
    pub(crate) fn deadline_ns(&self, due_ns: u64, sent_ns: u64) -> u64 {
        let from_ns = match self.timeout_from {
            TimeoutFrom::Due => due_ns,
            TimeoutFrom::Send => sent_ns,
        };
        from_ns.saturating_add(self.timeout_ns)
    }

    /// Whether due times come from the clock.
    #[must_use]
    pub fn is_open_loop(&self) -> bool {
        matches!(self.pace, Pace::Open { .. })
    }
}

#[cfg(test)]
mod tests;
