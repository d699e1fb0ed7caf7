//! How a request can fail, as a table: the name in records, and what it means.

use std::io;

/// Kinds of failure; each is counted for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It was older than its time-out.
    Timeout,
    /// It had waited so long for a connection that a response would have come after its time-out.
    TooLate,
    /// Nothing listened at the target.
    Refused,
    /// The connection was reset.
    Reset,
    /// The connection ended in the middle.
    Closed,
    /// The network or the host cannot be reached.
    Unreachable,
    /// No local port was left for the target (`EADDRNOTAVAIL`).
    NoPort,
    /// No descriptor was left (`EMFILE`, `ENFILE`).
    NoDescriptor,
    /// The answer is not HTTP, or not one that can be trusted.
    Parse,
    /// The answer is not the one that was expected (`--expect-status`, `--expect-bytes`).
    Check,
    /// It was in flight when the drain ended.
    Unfinished,
    /// Any other error of the operating system.
    Other,
}

/// Every kind with its name and its meaning; in the order of the enum.
pub const KINDS: [(Kind, &str, &str); 12] = [
    (Kind::Timeout, "timeout", "older than the time-out (-w)"),
    (
        Kind::TooLate,
        "too_late",
        "not sent: after waiting for a connection it had less time left than a response usually takes",
    ),
    (Kind::Refused, "refused", "nothing listens at the target"),
    (Kind::Reset, "reset", "the connection was reset"),
    (Kind::Closed, "closed", "the connection ended before the response did"),
    (Kind::Unreachable, "unreachable", "no way to the target"),
    (Kind::NoPort, "no_port", "no local port left for the target"),
    (Kind::NoDescriptor, "no_descriptor", "no file descriptor left"),
    (Kind::Parse, "parse", "the response is not well-formed HTTP"),
    (Kind::Check, "check", "the response is not the expected one"),
    (Kind::Unfinished, "unfinished", "still in flight when the drain ended"),
    (Kind::Other, "other", "another error of the operating system"),
];

/// What a request was waiting for when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A free connection.
    Queue,
    /// A new connection.
    Connect,
    /// The first byte of the response.
    FirstByte,
    /// The rest of the response.
    Body,
}

/// The names of the phases, in the order of the enum.
pub const PHASES: [(Phase, &str); 4] = [
    (Phase::Queue, "queue"),
    (Phase::Connect, "connect"),
    (Phase::FirstByte, "first_byte"),
    (Phase::Body, "body"),
];

impl Kind {
    /// The name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// The kind of an error of the operating system.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        use io::ErrorKind as E;
        match error.kind() {
            E::ConnectionRefused | E::NotFound => Self::Refused,
            E::ConnectionReset | E::BrokenPipe | E::ConnectionAborted => Self::Reset,
            E::UnexpectedEof => Self::Closed,
            E::HostUnreachable | E::NetworkUnreachable | E::NetworkDown => Self::Unreachable,
            E::AddrNotAvailable => Self::NoPort,
            E::TimedOut => Self::Timeout,
            // connect(2) to a unix socket whose backlog is full.
            E::WouldBlock => Self::Refused,
            _ => match error.raw_os_error() {
                Some(EMFILE | ENFILE) => Self::NoDescriptor,
                _ => Self::Other,
            },
        }
    }
}

/// errno(3) on Linux.
const ENFILE: i32 = 23;
/// errno(3) on Linux.
const EMFILE: i32 = 24;

/// Why a request failed, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub kind: Kind,
    /// What it was waiting for.
    pub phase: Phase,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_in_the_order_of_their_enums() {
        assert!(KINDS.iter().enumerate().all(|(index, row)| row.0 as usize == index));
        assert!(PHASES.iter().enumerate().all(|(index, row)| row.0 as usize == index));
    }

    #[test]
    fn errors_of_the_system_have_their_kind() {
        for (errno, kind) in [
            (111, Kind::Refused),
            (104, Kind::Reset),
            (32, Kind::Reset),
            (99, Kind::NoPort),
            (24, Kind::NoDescriptor),
            (113, Kind::Unreachable),
            (110, Kind::Timeout),
            (5, Kind::Other),
        ] {
            assert_eq!(Kind::of(&io::Error::from_raw_os_error(errno)), kind, "{errno}");
        }
    }
}
