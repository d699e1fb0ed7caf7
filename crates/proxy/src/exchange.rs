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
//! This file has the stages and their transitions, `state` the state that belongs to each. `begin` creates an exchange from a head.
//! `server_selection` has the inputs of the server selection and its feedback. `connect` connects to
//! the server. `buffering` receives
//! the start of a body before acquiring a server with a limit. `queued` waits for a free slot.
//! `request` and `response` are the two directions of a connected exchange (`splice` for long
//! bodies). `finish` ends it, `grpc` tells clients of gRPC about errors.

mod abandoned;
mod begin;
mod buffering;
mod connect;
mod detached;
mod finish;
mod grpc;
mod progress_limits;
mod queued;
mod request;
mod response;
mod retries;
mod server_selection;
mod session_dump;
mod splice;
mod state;

use std::rc::Rc;
use std::task::{Context, Poll};

use rt::splice::Pipe;

pub(crate) use begin::ExchangeStart;
use connect::Connecting;
use detached::DetachedNames;
pub(crate) use finish::OutcomeBuilder;
use state::{Attempt, ProgressMarks, RequestFacts, SlotTerms};

use crate::conn::{ClientStatus, ClientStream, TimeoutKind};
use crate::core::{ConfigGeneration, Core, ScratchBuffers};
use crate::outcome::{EndPhase, EndReason};
use crate::plan::Priority;
use crate::pool::{NO_DEADLINE, Pool, ServerConn, Ticket};
use crate::profile::ProfilePhase;
use crate::relay::Relay;

/// One request in flight.
pub(crate) struct Exchange {
    stage: ExchangeStage,
    generation: Option<Rc<ConfigGeneration>>,
    /// In a tunnel, the kept part of `generation`.
    detached: Option<Box<DetachedNames>>,
    /// Index in the listeners of the plan in force.
    listener: usize,
    facts: RequestFacts,
    terms: SlotTerms,
    /// Server and the slot taken at it, if any.
    slot: Option<ServerSlot>,
    server: Option<ServerConn>,
    attempt: Attempt,
    request_relay: Relay,
    response_relay: Relay,
    /// Bytes received from the server and not processed yet.
    unprocessed: Vec<u8>,
    /// Pipe for a long body, while one is being spliced.
    pipe: Option<Pipe>,
    response: ResponseProgress,
    interim_count: u32,
    progress: ProgressMarks,
    /// True if the client's connection may stay open after this request.
    keeps_client: bool,
    pub(crate) outcome: OutcomeBuilder,
}

/// A slot taken at a server.
#[derive(Debug)]
struct ServerSlot {
    pool: Rc<Pool>,
    server: usize,
}

enum ExchangeStage {
    /// Not in use.
    Unused,
    /// Delayed, and rejected afterwards.
    Tarpit,
    /// Receiving the start of the body, before taking a slot at a server.
    Buffering(Rc<Pool>),
    /// Waiting for a free slot at a server.
    Queued(Rc<Pool>, Rc<Ticket>),
    /// Waiting for the connection to be established.
    Connecting(Connecting),
    /// Connected to a server.
    Connected,
    /// Sending a response of the proxy's own.
    Responding,
}

/// Progress of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseProgress {
    Head,
    Body,
    Done,
}

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

/// Maximum number of moves in one poll before other tasks get their turn.
const STEPS_MAX: u32 = 32;

impl Exchange {
    pub(crate) fn new() -> Self {
        Self {
            stage: ExchangeStage::Unused,
            generation: None,
            detached: None,
            listener: 0,
            facts: RequestFacts::default(),
            terms: SlotTerms::default(),
            slot: None,
            server: None,
            attempt: Attempt::default(),
            request_relay: Relay::new(),
            response_relay: Relay::new(),
            unprocessed: Vec::new(),
            pipe: None,
            response: ResponseProgress::Head,
            interim_count: 0,
            progress: ProgressMarks::default(),
            keeps_client: false,
            outcome: OutcomeBuilder::default(),
        }
    }

    /// Resets the exchange for the next request.
    pub(crate) fn reset(&mut self) {
        self.stage = ExchangeStage::Unused;
        self.generation = None;
        self.detached = None;
        self.server = None;
        self.request_relay.reset();
        self.response_relay.reset();
        self.unprocessed = Vec::new();
        self.pipe = None;
        self.response = ResponseProgress::Head;
        self.facts.is_tcp = false;
        self.attempt.is_request_broken = false;
        self.attempt.needs_new_connection = false;
        self.attempt.unreceived_count = 0;
        self.interim_count = 0;
        self.terms.priority = Priority::Normal;
        self.terms.deadline_ns = NO_DEADLINE;
        self.attempt.first_byte_wait_start_ns = 0;
        self.progress = ProgressMarks::default();
        self.outcome.clear();
    }

    /// Moves everything that can move. Returns `Ready` when the exchange is over.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        client: &mut ClientStream,
        scratch: &mut ScratchBuffers,
    ) -> Poll<ConnAction> {
        let mut steps = 0;
        loop {
            let result = match &mut self.stage {
                ExchangeStage::Connected => self.poll_connected(cx, core, client, scratch),
                ExchangeStage::Responding => self.poll_responding(cx, core, client, scratch),
                ExchangeStage::Queued(..) => self.poll_queued(cx, core, client, scratch),
                ExchangeStage::Buffering(_) => self.poll_buffering(cx, core, client, scratch),
                ExchangeStage::Connecting(_) => self.poll_connecting(cx, core, client, scratch),
                ExchangeStage::Tarpit => self.poll_tarpit(cx, core, client, scratch),
                ExchangeStage::Unused => StepResult::Finished(ConnAction::Close),
            };
            match result {
                StepResult::Finished(action) => return Poll::Ready(action),
                StepResult::Blocked => return Poll::Pending,
                StepResult::Progressed if steps == STEPS_MAX => {
                    rt::stream::yield_turn(cx);
                    return Poll::Pending;
                }
                StepResult::Progressed => steps += 1,
            }
        }
    }

    fn poll_connected(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        client: &mut ClientStream,
        scratch: &mut ScratchBuffers,
    ) -> StepResult {
        if self.facts.is_tcp {
            return self.start_tcp_tunnel(core, client, scratch);
        }
        if self.attempt.lacks_upgrade {
            let end = EndReason::UpgradeUnsupported;
            return self.fail(core, client, &mut scratch.rng, end, EndPhase::Connect);
        }
        let has_request_progress = match self.poll_request(cx, core, client, scratch) {
            StepResult::Finished(action) => return StepResult::Finished(action),
            StepResult::Progressed => true,
            StepResult::Blocked => false,
        };
        // The request's direction may have left this stage, for a retry.
        if !matches!(self.stage, ExchangeStage::Connected) {
            return StepResult::Progressed;
        }
        let has_response_progress = match self.poll_response(cx, core, client, scratch) {
            StepResult::Finished(action) => return StepResult::Finished(action),
            StepResult::Progressed => true,
            StepResult::Blocked => false,
        };
        if self.is_complete(client) {
            return StepResult::Finished(self.finish(core, client, &mut scratch.rng));
        }
        if !matches!(self.stage, ExchangeStage::Connected) || has_request_progress || has_response_progress {
            client.note_progress();
            return StepResult::Progressed;
        }
        self.poll_timeout(cx, core, client, scratch)
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
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        client: &mut ClientStream,
        scratch: &mut ScratchBuffers,
    ) -> StepResult {
        let (kind, timeout_ns) = self.current_timeout(client);
        let has_timed_out = match kind {
            TimeoutKind::RequestBody if !self.is_body_in_time(core, client) => true,
            TimeoutKind::ClientWrite | TimeoutKind::ServerWrite => {
                self.is_peer_stalled(cx, core, client, kind, timeout_ns)
            }
            TimeoutKind::FirstByte => {
                let left_ns = self.first_byte_left_ns(core, timeout_ns);
                client.has_timed_out(cx, core, kind, left_ns)
            }
            _ => client.has_timed_out(cx, core, kind, timeout_ns),
        };
        if has_timed_out {
            let (end, phase) = match kind {
                TimeoutKind::ClientWrite => (EndReason::WriteTimeout, self.phase()),
                TimeoutKind::RequestBody => (EndReason::BodyTimeout, EndPhase::Request),
                _ => (EndReason::ServerTimeout, self.phase()),
            };
            return self.fail(core, client, &mut scratch.rng, end, phase);
        }
        // A client that still sends is read from; a client that waits is only watched.
        let status = match (self.request_relay.is_received(), self.attempt.is_request_broken) {
            (true, _) => client.check_client(cx, core, &mut scratch.input),
            (false, true) => client.check_unread_client(cx),
            (false, false) => ClientStatus::Present,
        };
        match status {
            ClientStatus::Present => {}
            // The client may have closed only its sending side, and gets the rest of its response.
            ClientStatus::Eof if client.allows_half_close() || self.response != ResponseProgress::Head => {
                self.keeps_client &= !client.buffered.is_empty();
            }
            ClientStatus::Eof | ClientStatus::Gone => {
                let phase = self.phase();
                return self.fail(core, client, &mut scratch.rng, EndReason::ClientGone, phase);
            }
        }
        StepResult::Blocked
    }

    /// Returns the kind of the current wait, and its maximum in nanoseconds.
    fn current_timeout(&self, client: &ClientStream) -> (TimeoutKind, u64) {
        let Some(slot) = &self.slot else {
            return (TimeoutKind::ClientWrite, client.timeouts().write_ns);
        };
        let server_timeouts = &slot.pool.plan().timeouts;
        if !self.is_response_flushed() {
            (TimeoutKind::ClientWrite, client.timeouts().write_ns)
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
            (TimeoutKind::RequestBody, client.timeouts().body_idle_ns)
        } else if self.response == ResponseProgress::Head {
            (TimeoutKind::FirstByte, server_timeouts.first_byte_ns)
        } else {
            (TimeoutKind::ResponseBody, server_timeouts.idle_ns)
        }
    }

    /// Returns the current phase, for the outcome.
    fn phase(&self) -> EndPhase {
        match self.response {
            _ if matches!(self.stage, ExchangeStage::Queued(..)) => EndPhase::Queue,
            _ if matches!(self.stage, ExchangeStage::Buffering(_)) => EndPhase::Request,
            _ if matches!(self.stage, ExchangeStage::Connecting(_)) => EndPhase::Connect,
            _ if matches!(self.stage, ExchangeStage::Tarpit) => EndPhase::Tarpit,
            ResponseProgress::Head if self.request_relay.is_done() => EndPhase::Head,
            ResponseProgress::Head => EndPhase::Request,
            ResponseProgress::Body => EndPhase::Data,
            ResponseProgress::Done => EndPhase::Last,
        }
    }

    fn poll_responding(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        client: &mut ClientStream,
        scratch: &mut ScratchBuffers,
    ) -> StepResult {
        let _section = core.profile.enter(ProfilePhase::ForwardResponse);
        let rng = &mut scratch.rng;
        let bytes_before = self.outcome.bytes_out;
        let write_ns = client.timeouts().write_ns;
        match self.response_relay.poll_flush(cx, &mut client.stream, &mut self.outcome.bytes_out) {
            Poll::Ready(Ok(())) => StepResult::Finished(self.finish(core, client, rng)),
            Poll::Ready(Err(_)) => self.fail(core, client, rng, EndReason::ClientGone, EndPhase::Last),
            Poll::Pending if self.outcome.bytes_out > bytes_before => {
                client.note_progress();
                StepResult::Progressed
            }
            Poll::Pending if self.is_peer_stalled(cx, core, client, TimeoutKind::ClientWrite, write_ns) => {
                self.fail(core, client, rng, EndReason::WriteTimeout, EndPhase::Last)
            }
            Poll::Pending => StepResult::Blocked,
        }
    }

    fn poll_tarpit(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        client: &mut ClientStream,
        scratch: &mut ScratchBuffers,
    ) -> StepResult {
        // The timer was armed when the tarpit began.
        if client.is_deadline_expired() {
            return self.fail(core, client, &mut scratch.rng, EndReason::Tarpitted, EndPhase::Tarpit);
        }
        self.check_waiting_client(cx, core, client, scratch)
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("response", &self.response).finish_non_exhaustive()
    }
}
