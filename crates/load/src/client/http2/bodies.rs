//! Bodies of requests on the streams of one connection, and the windows of the server that hold them up.

use std::collections::VecDeque;

use rt::clock::now_ns;
use wire::h2::{Connection, StreamKey};

use super::exchange::ExchangeTable;
use crate::core_state::CoreState;

/// Maximum bytes that wait for the socket. Beyond it no request and no part of a body is added.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of one body before the next body gets its turn.
const BODY_TURN_BYTES: usize = 16 * 1024;

/// Bodies that are not passed on completely.
#[derive(Debug, Default)]
pub(super) struct RequestBodies {
    streams: VecDeque<StreamKey>,
}

impl RequestBodies {
    /// Adds the body of a request whose head was sent.
    pub(super) fn add(&mut self, stream: StreamKey, h2: &Connection, core: &CoreState) {
        self.streams.push_back(stream);
        core.recorder
            .borrow_mut()
            .counters
            .http2
            .note_send_windows(h2.initial_send_window(), h2.send_window());
    }

    /// Passes on parts of the bodies, in turns, as far as windows and socket allow. `written` bytes of the
    /// connection are on their way.
    pub(super) fn send(
        &mut self,
        h2: &mut Connection,
        core: &CoreState,
        exchanges: &mut ExchangeTable,
        written: u64,
    ) {
        let mut blocked = 0;
        while blocked < self.streams.len() && h2.output().len() < OUTPUT_BYTES_MAX {
            let Some(stream) = self.streams.pop_front() else { return };
            let Some(exchange) = exchanges.streams.get_mut(stream) else { continue };
            let body = exchange.request_body(&core.shared.plan.requests[exchange.request]);
            let length = body.len();
            let end = length.min(exchange.body_sent + BODY_TURN_BYTES);
            let sent = h2.send_data(stream, &body[exchange.body_sent..end], end == length);
            exchange.body_sent += sent;
            if sent == 0 {
                exchange.wait_for_window(now_ns());
            } else if let Some(waited_ns) = exchange.end_window_wait(now_ns) {
                core.recorder.borrow_mut().counters.http2.window_wait_ns += waited_ns;
            }
            if exchange.body_sent == length {
                exchange.output_end = written + h2.output().len() as u64;
                continue;
            }
            blocked = if sent == 0 { blocked + 1 } else { 0 };
            self.streams.push_back(stream);
        }
    }

    /// Returns whether a body may have more to send now.
    pub(super) fn can_send(&self, h2: &mut Connection) -> bool {
        h2.output().is_empty() && self.streams.iter().any(|stream| h2.sendable_bytes(*stream) > 0)
    }
}
