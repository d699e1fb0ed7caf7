//! Session of a command with the agents: the connection, the clocks and the notices.

use std::time::Duration;

use rt::tokio::sync::watch;
use runner::failure::Failure;

use crate::coordinator::service::{CoordinatorSession, FleetObserver};
use crate::transport::{NatsOptions, TransportError};

/// Maximum wait of a coordinator for a server that is not reachable.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Connects a coordinator. `signals` are the requests of the user to end; `None`: a signal ends the process.
///
/// # Errors
/// The server is not reachable, rejects the credentials, or the user ends the command before.
pub fn connect(
    nats: &NatsOptions,
    signals: Option<&watch::Receiver<u32>>,
    notice: fn(&str),
) -> Result<CoordinatorSession, Failure> {
    let stop = signals.cloned().unwrap_or_else(|| watch::channel(0).1);
    let connected = CoordinatorSession::connect_within(nats, clocks, CONNECT_WAIT, stop, notice);
    let session = connected.map_err(|error| {
        Failure::CannotRun(match error {
            TransportError::Unreachable { .. } => format!(
                "{error} (waited {} s; name the server with --nats, or start one with weir fleet serve --embedded)",
                CONNECT_WAIT.as_secs()
            ),
            error => error.to_string(),
        })
    })?;
    session.ok_or_else(|| Failure::CannotRun("stopped before the NATS server was reachable".to_owned()))
}

/// Returns `CLOCK_MONOTONIC` and the wall clock, in ns.
pub fn clocks() -> (u64, u64) {
    (rt::clock::now_ns(), rt::clock::unix_ns())
}

/// Observer of a load without a live view: it reports changes with a function.
#[derive(Clone, Copy, Debug)]
pub struct Notices(pub fn(&str));

impl FleetObserver for Notices {
    fn on_notice(&mut self, text: &str) {
        (self.0)(text);
    }
}
