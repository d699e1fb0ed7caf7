//! The end of a client's HTTP/2 connection, announced by GOAWAY.
//!
//! ```text
//! open -- drain, requests-max, idle --> announced -- round trip --> final -- no streams --> closed
//!          GOAWAY 2^31-1, PING                        GOAWAY n
//! ```
//! Between the two GOAWAY frames streams that were on their way are accepted (RFC 9113 §6.8), so no
//! request is lost.

use rt::clock::MonotonicTime;
use wire::h2::ErrorCode;

use super::{ClientHttp2, ClientHttp2Outcome};
use crate::client_stream::{ClientStream, LINGER_TIMEOUT_NS};
use crate::core::{Core, PollContext};

/// Payload of the PING frame behind the announcement of the end.
const ANNOUNCEMENT_PAYLOAD: u64 = 0;

/// Progress of the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shutdown {
    #[default]
    Open,
    /// The end is announced. Streams that were on their way are accepted until then, or until the client
    /// has answered the PING.
    Announced { until: MonotonicTime },
    /// No further streams are accepted.
    Final,
}

impl Shutdown {
    pub(super) fn is_announced(self) -> bool {
        self != Self::Open
    }

    /// Returns the end of the announcement.
    pub(super) fn announced_until(self) -> MonotonicTime {
        match self {
            Self::Announced { until } => until,
            Self::Open | Self::Final => MonotonicTime::MAX,
        }
    }
}

impl ClientHttp2 {
    /// Announces the end of the connection if there is a reason for it.
    pub(super) fn announce_shutdown_if_due(&mut self, core: &Core, client: &ClientStream) {
        if self.shutdown.is_announced() {
            return;
        }
        let must_end = core.drain.is_draining.get()
            || client.is_listener_removed()
            || client.is_rejected() && self.channels.request_count() > 0
            || client.requests_max().is_some_and(|max| self.channels.request_count() >= max);
        if must_end {
            self.announce_shutdown(core);
        }
    }

    pub(super) fn announce_shutdown(&mut self, core: &Core) {
        // A client that does not answer the PING has had the time to.
        let until = core.ticks.now.get().saturating_add(LINGER_TIMEOUT_NS);
        self.shutdown = Shutdown::Announced { until };
        self.connection.go_away(ErrorCode::NO_ERROR, false);
        self.connection.ping(ANNOUNCEMENT_PAYLOAD);
    }

    pub(super) fn handle_pong(&mut self, payload: u64) {
        if payload == ANNOUNCEMENT_PAYLOAD {
            self.finish_announcement();
        }
    }

    /// Ends the announcement: the client has received it.
    pub(super) fn finish_announcement(&mut self) {
        if let Shutdown::Announced { .. } = self.shutdown {
            self.shutdown = Shutdown::Final;
            self.connection.go_away(ErrorCode::NO_ERROR, true);
            self.channels.count(|counters| counters.count_goaway_sent(ErrorCode::NO_ERROR));
        }
    }

    /// Ends the connection although streams may be left: the last frame is GOAWAY, as far as the socket accepts
    /// it at once.
    #[cold]
    pub(super) fn end_now(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        end: ClientHttp2Outcome,
    ) -> ClientHttp2Outcome {
        if self.shutdown != Shutdown::Final {
            self.shutdown = Shutdown::Final;
            self.connection.go_away(ErrorCode::NO_ERROR, true);
            self.channels.count(|counters| counters.count_goaway_sent(ErrorCode::NO_ERROR));
        }
        // The connection ends whether or not the client reads.
        let _ = self.flush(ctx.cx, client);
        end
    }

    /// Returns whether nothing is left to do.
    pub(super) fn is_finished(&self) -> bool {
        self.channels.in_use() == 0 && (self.shutdown == Shutdown::Final || self.is_half_closed)
    }
}
