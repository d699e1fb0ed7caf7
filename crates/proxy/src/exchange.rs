//! One request in flight, from its head to its outcome. An idle connection has no exchange.
//!
//! ```text
//!  head -> route --+--> tarpit ------------------.
//!                  |                             v
//!                  +--> local response ------> sending ---------------------------.
//!                  |                             ^ failed, nothing sent yet       |
//!                  v                             |                                v
//!               queued --> connecting ------> connected: both directions -----> ended -> outcome
//!                 |  slot    |  ^ retry, if it has no side effect     |  |
//!                 `----------+--'-------------------------------------'  `-> tunnel (101, CONNECT)
//! ```
//! This file has the transitions between the stages; [`crate::exchange_state`] has the state that belongs
//! to each, which a core keeps for reuse. `begin` creates an exchange from a head.
//! `server_selection` has the inputs of the server selection and its feedback. `connect` connects to
//! the server. `buffering` receives
//! the start of a body before acquiring a server with a limit. `queued` waits for a free slot.
//! `request` and `response` are the two directions of a connected exchange (`splice` for long
//! bodies, `recoding` for those that get a coding). `finish` ends it, `grpc` tells clients of gRPC about errors.
//! `cache_lookup` answers from the cache of a route, `cache_response` decides on storing a response, `cache_fill` receives it.

mod abandoned;
mod auth_methods;
mod authorisation;
mod begin;
mod buffering;
mod cache_fill;
mod cache_lookup;
mod cache_refresh;
mod cache_response;
mod cache_wait;
mod cached_body;
mod connect;
mod detached;
mod error_pages;
mod files;
mod finish;
mod grpc;
mod hedging;
mod limited;
mod local_responses;
mod maintenance;
mod mirroring;
mod own_coding;
mod progress_limits;
mod queued;
mod recoding;
mod request;
mod response;
mod retries;
mod route_settings;
mod server_selection;
mod session_dump;
mod splice;
mod split;
pub(crate) mod subrequest;
mod suspended;
mod texts;

use std::task::Poll;

use wire::RequestKind;

pub(crate) use begin::ExchangeStart;

use crate::client_stream::{ClientStatus, ClientStream, TimeoutKind};
use crate::core::PollContext;
use crate::exchange_state::{Exchange, ExchangeStage, ResponseProgress};
use crate::outcome::{EndPhase, EndReason};
use crate::profile::ProfilePhase;
use crate::server_conn::ServerConn;

/// Fate of the client's connection.
#[derive(Debug)]
pub(crate) enum ConnAction {
    /// It reads the next request.
    KeepAlive,
    /// It is closed at once.
    Close,
    /// It is closed after the client had time to read the response.
    Linger,
    /// It is reset, so that the client notices that bytes are missing.
    Reset,
    /// It ends with as little trace as possible.
    ResetSilently,
    /// It changes to another protocol.
    Tunnel(Box<TunnelStart>),
}

/// Initial state of a tunnel.
#[derive(Debug)]
pub(crate) struct TunnelStart {
    pub(crate) server: ServerConn,
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_client: Vec<u8>,
    pub(crate) tunnel_timeout_ns: u64,
}

/// Result of moving bytes in one direction.
enum StepResult {
    /// Something moved; try again.
    Progressed,
    /// Nothing can move now.
    Blocked,
    /// The exchange is over; the value is the fate of the connection.
    Finished(ConnAction),
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    kind: TimeoutKind,
    timeout_ns: u64,
}

/// Reason that a server does not answer a request.
#[derive(Clone, Copy, Debug)]
struct Failure {
    end: EndReason,
    phase: EndPhase,
}

/// Maximum number of moves in one poll before other tasks get their turn.
const STEPS_MAX: u32 = 32;

impl Exchange {
    /// Moves everything that can move. Returns `Ready` when the exchange is over.
    pub(crate) fn poll(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> Poll<ConnAction> {
        let mut steps = 0;
        loop {
            let result = match &mut self.stage {
                ExchangeStage::Connected => self.poll_connected(ctx, client, input),
                ExchangeStage::Recoding(_) => self.poll_recoding(ctx, client, input),
                ExchangeStage::SendingFile(_) => self.poll_sending_file(ctx, client, usize::MAX),
                ExchangeStage::Cached(_) => self.poll_cached(ctx, client, input, usize::MAX),
                ExchangeStage::Limited(_) => self.poll_limited(ctx, client, input),
                ExchangeStage::Responding => self.poll_responding(ctx, client),
                ExchangeStage::Queued(..) => self.poll_queued(ctx, client, input),
                ExchangeStage::Buffering(_) => self.poll_buffering(ctx, client, input),
                ExchangeStage::Connecting(_) => self.poll_connecting(ctx, client, input),
                ExchangeStage::Tarpit => self.poll_tarpit(ctx, client, input),
                ExchangeStage::Authorising(_) => self.poll_authorising(ctx, client, input),
                ExchangeStage::Unused => StepResult::Finished(ConnAction::Close),
            };
            match result {
                StepResult::Finished(action) => return Poll::Ready(action),
                StepResult::Blocked => return Poll::Pending,
                StepResult::Progressed if steps == STEPS_MAX => {
                    rt::cores::yield_turn(ctx.cx);
                    return Poll::Pending;
                }
                StepResult::Progressed => steps += 1,
            }
        }
    }

    fn poll_connected(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        if self.facts.is_tcp {
            return self.start_tcp_tunnel(ctx, client);
        }
        if self.attempt.lacks_upgrade {
            if self.may_upgrade_on_http11() {
                self.attempt.needs_http11 = true;
                self.reconnect(client);
                return StepResult::Progressed;
            }
            let end = EndReason::UpgradeUnsupported;
            return self.fail(ctx, client, end, EndPhase::Connect);
        }
        let has_request_progress = match self.poll_request(ctx, client, input) {
            StepResult::Finished(action) => return StepResult::Finished(action),
            StepResult::Progressed => true,
            StepResult::Blocked => false,
        };
        // The request's direction may have left this stage, for a retry.
        if !matches!(self.stage, ExchangeStage::Connected) {
            return StepResult::Progressed;
        }
        let has_response_progress = match self.poll_response(ctx, client, input) {
            StepResult::Finished(action) => return StepResult::Finished(action),
            StepResult::Progressed => true,
            StepResult::Blocked => false,
        };
        if self.is_complete(client) {
            return StepResult::Finished(self.finish(ctx, client));
        }
        let is_connected = matches!(self.stage, ExchangeStage::Connected);
        if !is_connected || has_request_progress || has_response_progress {
            self.note_progress(ctx.core, client);
        }
        // Behind a request that is entirely sent only the server can move something, and it has just been asked.
        let is_blocked = !has_response_progress && (!has_request_progress || self.request_relay.is_done());
        if is_connected && is_blocked {
            if self.own_settings.is_some()
                && let Some(result) = self.poll_hedge(ctx, client, input)
            {
                return result;
            }
            return self.poll_timeout(ctx, client, input);
        }
        StepResult::Progressed
    }

    /// Returns whether nothing is left to do for this request.
    fn is_complete(&self, client: &ClientStream) -> bool {
        if self.response != ResponseProgress::Done || !self.is_response_flushed() {
            return false;
        }
        // A stream ends here (RFC 9113 §8.1), which costs the client no connection.
        if client.is_h2_stream() && !self.request_relay.is_received() {
            return true;
        }
        // After an early response the rest of the request is still forwarded, unless nobody needs
        // it.
        self.request_relay.is_done()
            || self.attempt.is_request_broken
            || !self.attempt.keeps_server
            || !self.keeps_client
    }

    /// Waits when nothing moves, until a timeout.
    fn poll_timeout(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let wait = self.current_wait(client);
        if let Some(kind) = self.expired_timeout(ctx, client, wait) {
            if kind == TimeoutKind::FirstByte
                && self.hedge.is_some()
                && self.promote_hedge(ctx, client, EndReason::ServerTimeout)
            {
                return StepResult::Progressed;
            }
            if kind == TimeoutKind::FirstByte && self.may_retry_timeout(ctx.core) {
                return self.retry_result(ctx, client, EndReason::ServerTimeout);
            }
            let (end, phase) = match kind {
                TimeoutKind::ClientWrite => (EndReason::WriteTimeout, self.phase()),
                TimeoutKind::RequestBody => (EndReason::BodyTimeout, EndPhase::Request),
                _ => (EndReason::ServerTimeout, self.phase()),
            };
            return self.fail(ctx, client, end, phase);
        }
        // A client that still sends is read from; a client that waits is only watched.
        let status = match (self.request_relay.is_received(), self.attempt.is_request_broken) {
            (true, _) => client.check_client(ctx, input),
            (false, true) => client.check_unread_client(ctx.cx),
            (false, false) => ClientStatus::Present,
        };
        match status {
            ClientStatus::Present => {}
            // The client has closed only its sending side, and gets the rest of its response.
            ClientStatus::Eof if self.may_half_close(client) => {
                self.keeps_client &= !client.buffered.is_empty();
            }
            ClientStatus::Eof | ClientStatus::Gone => {
                let phase = self.phase();
                return self.fail(ctx, client, EndReason::ClientGone, phase);
            }
        }
        StepResult::Blocked
    }

    /// Returns whether a client may close its sending side and get a response nevertheless: by the
    /// listener's settings, and in the tunnel of a stream (RFC 9113 §8.5), whose reset is no mere close.
    pub(super) fn may_half_close(&self, client: &ClientStream) -> bool {
        let is_tunnel = self.facts.kind == RequestKind::Connect || self.facts.requests_upgrade;
        client.allows_half_close() || is_tunnel && client.is_h2_stream()
    }

    fn current_wait(&self, client: &ClientStream) -> Wait {
        let Some(slot) = &self.slot else {
            return Wait { kind: TimeoutKind::ClientWrite, timeout_ns: client.timeouts().write_ns };
        };
        let (client_timeouts, server_timeouts) = self.timeouts(client, slot);
        let (kind, timeout_ns) = if !self.is_response_flushed() {
            (TimeoutKind::ClientWrite, client_timeouts.write_ns)
        } else if !self.request_relay.is_flushed() && !self.attempt.is_request_broken {
            (TimeoutKind::ServerWrite, server_timeouts.idle_ns)
        } else if self.facts.is_streaming
            && (self.response == ResponseProgress::Body || !self.request_relay.is_received())
        {
            (TimeoutKind::ResponseBody, server_timeouts.tunnel_ns)
        } else if !self.request_relay.is_received()
            && !self.attempt.is_request_broken
            && self.response != ResponseProgress::Body
        {
            (TimeoutKind::RequestBody, client_timeouts.body_idle_ns)
        } else if self.response == ResponseProgress::Head {
            (TimeoutKind::FirstByte, server_timeouts.first_byte_ns)
        } else {
            (TimeoutKind::ResponseBody, server_timeouts.idle_ns)
        };
        Wait { kind, timeout_ns }
    }

    fn phase(&self) -> EndPhase {
        match self.response {
            _ if matches!(self.stage, ExchangeStage::Queued(..)) => EndPhase::Queue,
            _ if matches!(self.stage, ExchangeStage::Buffering(_)) => EndPhase::Request,
            _ if matches!(self.stage, ExchangeStage::Connecting(_)) => EndPhase::Connect,
            _ if matches!(self.stage, ExchangeStage::Authorising(_)) => EndPhase::Request,
            // Nothing of a stored response is sent yet.
            ResponseProgress::Head if matches!(self.stage, ExchangeStage::Cached(_)) => EndPhase::Queue,
            _ if matches!(self.stage, ExchangeStage::Tarpit) => EndPhase::Tarpit,
            ResponseProgress::Head if self.request_relay.is_done() => EndPhase::Head,
            ResponseProgress::Head => EndPhase::Request,
            ResponseProgress::Body => EndPhase::Data,
            ResponseProgress::Done => EndPhase::Last,
        }
    }

    fn poll_responding(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) -> StepResult {
        let _section = ctx.core.profile.enter(ProfilePhase::ForwardResponse);
        let bytes_before = self.outcome.bytes_out;
        let wait = Wait { kind: TimeoutKind::ClientWrite, timeout_ns: client.timeouts().write_ns };
        match self.response_relay.poll_flush(ctx.cx, &mut client.stream, &mut self.outcome.bytes_out) {
            Poll::Ready(Ok(())) => StepResult::Finished(self.finish(ctx, client)),
            Poll::Ready(Err(_)) => self.fail(ctx, client, EndReason::ClientGone, EndPhase::Last),
            Poll::Pending if self.outcome.bytes_out > bytes_before => StepResult::Progressed,
            Poll::Pending if self.expired_timeout(ctx, client, wait).is_some() => {
                self.fail(ctx, client, EndReason::WriteTimeout, EndPhase::Last)
            }
            Poll::Pending => StepResult::Blocked,
        }
    }

    fn poll_tarpit(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        // The timer was armed when the tarpit began.
        if client.is_deadline_expired() {
            return self.fail(ctx, client, EndReason::Tarpitted, EndPhase::Tarpit);
        }
        self.check_waiting_client(ctx, client, input)
    }
}
