//! Client of WebSocket: one connection with several messages at a time. Each message is a request, and its echo or
//! reply the response. In the mode `push` a connection is a request, and its first message the response.
//!
//! ```text
//!   wanted message? ──► connect, handshake ──failed──► back off
//!                          │ stands
//!          ┌───────────────▼──────────────────────────────┐
//!          │ read ─► messages ─► record ─► write what is  │──► close handshake at the end
//!          └────────────────────────────── due ───────────┘
//! ```

mod echoes;
mod handshake;

use std::rc::Rc;
use std::task::{Context, Poll};

use record::units::SECOND_NS;
use rt::clock::now_ns;
use rt::cores::yield_turn;
use wire::websocket::{MessageReader, Opcode, Received, Role, WebSocketFault, encode_close, encode_frame};

use self::echoes::{Echo, EchoTracker, SentMessage, number_digits};
use self::handshake::OpenedWebSocket;
use super::dialer::Dialer;
use super::multiplexed::MultiplexedClient;
use super::source::{RequestSource, WantedRequest};
use super::transport::Transport;
use super::{ConnectionEnd, READS_MAX};
use crate::core_state::CoreState;
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::malformation::Malformation;
use crate::plan::{HttpVersion, MESSAGE_BYTES_MAX, RunPlan, WebSocketMode, WebSocketPlan};
use crate::recorder::{Counters, RequestTiming};
use crate::session::connection_rng;

/// Output of a connection that waits for its socket. Beyond it nothing is read, and no message is added.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Maximum time for the server to complete a close handshake.
const CLOSE_NS_MAX: u64 = SECOND_NS;
/// Close code of a connection whose close frame has no code (RFC 6455 §7.1.5).
const NO_CODE: u16 = 1005;

/// A connection with its messages.
struct WebSocketConnection {
    transport: Transport,
    reader: MessageReader,
    /// Bytes behind the response of the handshake.
    rest: Vec<u8>,
    output: Vec<u8>,
    /// Bytes that the socket has accepted.
    written: u64,
    messages_left: u64,
    /// Time at which the close handshake is given up, once it has begun.
    closing_until_ns: Option<u64>,
    /// Time of the last message in the mode `push`.
    last_message_ns: Option<u64>,
    /// True if a request has begun on it.
    has_request: bool,
    /// True if a message has arrived.
    has_message: bool,
}

/// Reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostReason {
    /// The server sent a close frame.
    Closed,
    /// The connection ended without one.
    Abnormal(FailureKind),
    Fault(WebSocketFault),
    Unfinished,
}

/// One client: at most one connection, with up to `depth` messages.
pub(super) struct WebSocketClient {
    dialer: Dialer,
    version: HttpVersion,
    connection: Option<Box<WebSocketConnection>>,
    tracker: EchoTracker,
    source: RequestSource,
    depth: usize,
    request_index: usize,
    /// True if the last connection ended before a message arrived.
    has_ended_early: bool,
    random: fastrand::Rng,
}

impl MultiplexedClient for WebSocketClient {
    fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    fn parts(&mut self) -> (&mut RequestSource, &mut Dialer) {
        (&mut self.source, &mut self.dialer)
    }

    fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    fn has_ended_early(&self) -> bool {
        self.has_ended_early
    }

    async fn connect(&mut self, due_ns: u64) -> Result<(), Failure> {
        let core = Rc::clone(&self.dialer.core);
        let plan = &core.shared.plan;
        let index = self.dialer.next_request(&mut self.request_index, due_ns);
        let (request, random) = (&plan.requests[index], self.random.u128(..).to_be_bytes());
        let is_http2 = self.version == HttpVersion::Http2;
        let opening = async |dialer: &Dialer, stream| match is_http2 {
            true => handshake::open_http2(dialer, stream, request).await,
            false => handshake::open(dialer, stream, request, random).await,
        };
        let OpenedWebSocket { transport, rest, handshake_ns } = self.dialer.connect(due_ns, opening).await?;
        core.recorder.borrow_mut().live_histograms().handshake.record(handshake_ns);
        self.tracker.begin_connection();
        self.has_ended_early = false;
        let mut output = Vec::new();
        if let Some(websocket) = settings(plan)
            && websocket.mode == WebSocketMode::Push
            && !websocket.message.is_empty()
        {
            // The message that subscribes.
            write_message(&mut output, websocket, None, &mut self.random);
        }
        self.connection = Some(Box::new(WebSocketConnection {
            transport,
            reader: MessageReader::new(Role::Client, MESSAGE_BYTES_MAX),
            rest,
            output,
            written: 0,
            messages_left: plan.requests_per_connection.unwrap_or(u64::MAX),
            closing_until_ns: None,
            last_message_ns: None,
            has_request: false,
            has_message: false,
        }));
        Ok(())
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let core = Rc::clone(&self.dialer.core);
        if core.giving_up.get() {
            if let Some(connection) = &mut self.connection {
                // The drain is over, so the server's part of the close handshake is not awaited.
                encode_close(&mut connection.output, 1000, Some(self.random.u32(..).to_be_bytes()));
                let _ = self.poll_flush(cx, &core);
            }
            self.lose(&core, LostReason::Unfinished);
            return Poll::Ready(ConnectionEnd::LoadEnded);
        }
        let mut turns = 0;
        loop {
            let read = self.poll_receive(cx, &core);
            if self.connection.is_none() {
                return Poll::Ready(self.end());
            }
            // Echoes that have arrived are counted first.
            self.expire(&core);
            if read.is_ok() {
                self.start_messages(cx, &core);
            }
            if let Err(kind) = self.poll_flush(cx, &core) {
                self.lose(&core, LostReason::Abnormal(kind));
            }
            turns += 1;
            match read {
                Err(reason) => {
                    self.lose(&core, reason);
                    return Poll::Ready(self.end());
                }
                Ok(true) if turns < READS_MAX => {}
                Ok(has_more) => {
                    if has_more {
                        yield_turn(cx);
                    }
                    return self.poll_end(cx, &core);
                }
            }
        }
    }
}

impl WebSocketClient {
    pub(super) fn new(dialer: Dialer, version: HttpVersion) -> Self {
        let plan = &dialer.core.shared.plan;
        let depth = usize::try_from(plan.pipeline).unwrap_or(usize::MAX);
        let number = dialer.client_number() as u64;
        // In an open loop a client has no users.
        let users = if plan.is_open_loop() { 0 } else { depth };
        Self {
            version,
            connection: None,
            tracker: EchoTracker::new(number),
            source: RequestSource::new(plan, users, number),
            depth,
            request_index: dialer.first_turn(),
            has_ended_early: false,
            random: connection_rng(plan, number),
            dialer,
        }
    }

    fn end(&self) -> ConnectionEnd {
        if self.source.is_ended() { ConnectionEnd::LoadEnded } else { ConnectionEnd::Closed }
    }

    /// Begins and ends the close handshake if no message is left.
    fn poll_end(&mut self, cx: &mut Context<'_>, core: &CoreState) -> Poll<ConnectionEnd> {
        let now_ns = now_ns();
        let is_push = is_push(&core.shared.plan);
        let is_load_over = if is_push { now_ns >= core.end_ns() } else { self.source.is_ended() };
        let has_messages = !self.tracker.in_flight.is_empty() && !is_push;
        let Some(connection) = &mut self.connection else { return Poll::Ready(self.end()) };
        match connection.closing_until_ns {
            Some(until_ns) if now_ns >= until_ns => {
                core.recorder.borrow_mut().counters.live.unclean_closes += 1;
                self.close(core);
                return Poll::Ready(self.end_of_closed(is_push));
            }
            Some(_) => {}
            None if !has_messages && (is_load_over || connection.messages_left == 0) => {
                if is_push {
                    // A connection that got no message is unfinished.
                    self.fail_all(core, FailureKind::Unfinished);
                }
                let Some(connection) = &mut self.connection else { return Poll::Ready(self.end()) };
                encode_close(&mut connection.output, 1000, Some(self.random.u32(..).to_be_bytes()));
                connection.closing_until_ns = Some(now_ns + CLOSE_NS_MAX);
                if let Err(kind) = self.poll_flush(cx, core) {
                    self.lose(core, LostReason::Abnormal(kind));
                    return Poll::Ready(self.end_of_closed(is_push));
                }
                // The socket may have the response already.
                cx.waker().wake_by_ref();
            }
            None => {}
        }
        self.set_deadline(core);
        Poll::Pending
    }

    fn end_of_closed(&self, is_push: bool) -> ConnectionEnd {
        if is_push { ConnectionEnd::LoadEnded } else { self.end() }
    }

    /// Reads what has arrived. Returns whether there may be more.
    fn poll_receive(&mut self, cx: &mut Context<'_>, core: &CoreState) -> Result<bool, LostReason> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        if !connection.rest.is_empty() {
            let rest = std::mem::take(&mut connection.rest);
            return self.handle_bytes(core, &rest).map(|()| true);
        }
        if connection.output.len() >= OUTPUT_BYTES_MAX {
            return Ok(false);
        }
        let mut scratch = core.scratch.borrow_mut();
        match connection.transport.poll_read(cx, core, &mut scratch) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(kind)) => Err(LostReason::Abnormal(kind)),
            Poll::Ready(Ok(0)) => Err(LostReason::Abnormal(FailureKind::Closed)),
            Poll::Ready(Ok(bytes)) => self.handle_bytes(core, &scratch[..bytes]).map(|()| true),
        }
    }

    fn handle_bytes(&mut self, core: &CoreState, mut bytes: &[u8]) -> Result<(), LostReason> {
        let now_ns = now_ns();
        let Some(mut connection) = self.connection.take() else { return Ok(()) };
        let mut result = Ok(());
        loop {
            match connection.reader.read(&mut bytes) {
                Ok(None) => break,
                Ok(Some(Received::Message { is_binary, content })) => {
                    if !std::mem::replace(&mut connection.has_message, true) {
                        self.dialer.note_response();
                    }
                    self.handle_message(core, is_binary, content, now_ns);
                    if is_push(&core.shared.plan) {
                        record_gap(core, &mut connection.last_message_ns, now_ns);
                    }
                }
                Ok(Some(Received::Ping(content))) => {
                    let mask = Some(self.random.u32(..).to_be_bytes());
                    encode_frame(&mut connection.output, Opcode::Pong, content, mask);
                    core.recorder.borrow_mut().counters.live.pings += 1;
                }
                Ok(Some(Received::Pong(_))) => {}
                Ok(Some(Received::Close(code))) => {
                    if connection.closing_until_ns.is_none() {
                        let live = &mut core.recorder.borrow_mut().counters.live;
                        *live.close_codes.entry(code.unwrap_or(NO_CODE)).or_default() += 1;
                        let mask = Some(self.random.u32(..).to_be_bytes());
                        encode_close(&mut connection.output, code.unwrap_or(1000), mask);
                    }
                    result = Err(LostReason::Closed);
                    break;
                }
                Err(fault) => {
                    let mask = Some(self.random.u32(..).to_be_bytes());
                    encode_close(&mut connection.output, fault.close_code(), mask);
                    result = Err(LostReason::Fault(fault));
                    break;
                }
            }
        }
        self.connection = Some(connection);
        result
    }

    fn handle_message(&mut self, core: &CoreState, is_binary: bool, content: &[u8], now_ns: u64) {
        {
            // A message belongs to the second in which it arrives.
            let mut recorder = core.recorder.borrow_mut();
            core.roll(&mut recorder, now_ns);
            recorder.counters.live.received += 1;
        }
        let plan = &core.shared.plan;
        let Some(websocket) = settings(plan) else { return };
        let echo = match websocket.mode {
            WebSocketMode::Echo => self.tracker.take_echo(websocket, is_binary, content),
            WebSocketMode::Reply => match self.tracker.in_flight.pop_front() {
                Some(message) => Echo::Answered { message, is_reordered: false, lost: 0 },
                None => Echo::Unknown,
            },
            WebSocketMode::Push => match self.tracker.in_flight.pop_front() {
                Some(message) => Echo::Answered { message, is_reordered: false, lost: 0 },
                None => return,
            },
        };
        let mut recorder = core.recorder.borrow_mut();
        let live = &mut recorder.counters.live;
        match echo {
            Echo::Answered { message, is_reordered, lost } => {
                live.reordered += u64::from(is_reordered);
                live.lost += lost;
                let timing = timing(&message, now_ns);
                recorder.counters.sent += 1;
                recorder.counters.body_bytes += content.len() as u64;
                recorder.count_response_to(message.request, true, None);
                recorder.record_good_response(timing);
                let estimator = &mut core.dispatcher.borrow_mut().latency_estimator;
                estimator.record_response(now_ns.saturating_sub(message.begun_ns));
                if websocket.mode != WebSocketMode::Push {
                    self.source.release(now_ns);
                }
            }
            Echo::Altered(message) => {
                live.altered += 1;
                recorder.counters.sent += 1;
                recorder.count_response_to(message.request, false, None);
                recorder.record_bad_response(timing(&message, now_ns), Some(FailureKind::Altered));
                self.source.release(now_ns);
            }
            Echo::Duplicate => live.duplicated += 1,
            Echo::Late => live.late += 1,
            Echo::Unknown => live.unknown += 1,
        }
    }

    /// Fails the messages that are older than their timeout. The connection stays: later echoes have their numbers.
    fn expire(&mut self, core: &CoreState) {
        let now_ns = now_ns();
        let (expired, lost) = self.tracker.take_expired(now_ns);
        if expired.is_empty() {
            return;
        }
        core.recorder.borrow_mut().counters.live.lost += lost;
        for message in &expired {
            let estimator = &mut core.dispatcher.borrow_mut().latency_estimator;
            estimator.record_given_up(now_ns.saturating_sub(message.begun_ns));
        }
        self.fail(core, &expired, FailureKind::Timeout, now_ns);
        if is_push(&core.shared.plan) {
            // The server may still send; the connection stays.
            return;
        }
        expired.iter().for_each(|_| self.source.release(now_ns));
    }

    fn fail(&self, core: &CoreState, messages: &[SentMessage], kind: FailureKind, now_ns: u64) {
        let written = self.connection.as_ref().map_or(u64::MAX, |connection| connection.written);
        let mut recorder = core.recorder.borrow_mut();
        core.roll(&mut recorder, now_ns);
        for message in messages {
            recorder.counters.sent += u64::from(message.output_end <= written);
            let failure = Failure { kind, phase: RequestPhase::FirstByte };
            recorder.record_failed_exchange(message.due_ns, message.sent_ns, failure, now_ns);
        }
    }

    /// Fails all messages in flight.
    fn fail_all(&mut self, core: &CoreState, kind: FailureKind) -> usize {
        let now_ns = now_ns();
        let (messages, lost) = self.tracker.take_all();
        core.recorder.borrow_mut().counters.live.lost += lost;
        self.fail(core, &messages, kind, now_ns);
        if !is_push(&core.shared.plan) {
            messages.iter().for_each(|_| self.source.release(now_ns));
        }
        messages.len()
    }

    fn set_deadline(&self, core: &CoreState) {
        let closing_ns = self.connection.as_ref().and_then(|connection| connection.closing_until_ns);
        let end_ns = is_push(&core.shared.plan).then(|| core.end_ns());
        let push_end_ns = end_ns.filter(|_| closing_ns.is_none());
        let all = self.tracker.next_deadline_ns().into_iter().chain(closing_ns).chain(push_end_ns);
        match all.min() {
            Some(deadline_ns) => self.dialer.deadline.set(deadline_ns),
            None => self.dialer.deadline.clear(),
        }
    }

    /// Writes the messages that are due, as far as the depth allows.
    fn start_messages(&mut self, cx: &mut Context<'_>, core: &CoreState) {
        let now_ns = now_ns();
        let plan = &core.shared.plan;
        let Some(websocket) = settings(plan) else { return };
        while let Some(connection) = &mut self.connection {
            let free = self.depth.saturating_sub(self.tracker.in_flight.len());
            let is_full = connection.output.len() >= OUTPUT_BYTES_MAX;
            let is_closing = connection.closing_until_ns.is_some() || connection.messages_left == 0;
            if free == 0 || is_full || is_closing {
                self.source.block(&self.dialer);
                break;
            }
            let free = free.min(usize::try_from(connection.messages_left).unwrap_or(usize::MAX));
            let wanted = self.source.take(cx, &self.dialer, free, now_ns);
            let Some(WantedRequest { due_ns, begun_ns, .. }) = wanted else { break };
            connection.messages_left -= 1;
            connection.has_request = true;
            let request = self.dialer.next_request(&mut self.request_index, due_ns);
            let number = self.tracker.next_number();
            if websocket.mode != WebSocketMode::Push {
                write_message(&mut connection.output, websocket, Some(number), &mut self.random);
            }
            core.recorder.borrow_mut().record_sent(due_ns, now_ns);
            let output_end = connection.written + connection.output.len() as u64;
            let deadline_ns = plan.deadline_ns(due_ns, now_ns);
            self.tracker.add((number, request), (due_ns, begun_ns, now_ns), deadline_ns, output_end);
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, core: &CoreState) -> Result<(), FailureKind> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let mut done = 0;
        let result = loop {
            if done == connection.output.len() {
                break Ok(());
            }
            match connection.transport.poll_write(cx, core, &connection.output[done..]) {
                Poll::Pending => break Ok(()),
                Poll::Ready(Ok(bytes)) => done += bytes,
                Poll::Ready(Err(kind)) => break Err(kind),
            }
        };
        connection.output.drain(..done);
        connection.written += done as u64;
        result
    }

    /// Ends a connection that its server or a fault ended: its messages fail.
    fn lose(&mut self, core: &CoreState, reason: LostReason) {
        let Some(connection) = &self.connection else { return };
        let is_closing = connection.closing_until_ns.is_some();
        let has_request = connection.has_request;
        self.has_ended_early = !connection.has_message && !is_closing;
        let kind = match reason {
            LostReason::Closed => FailureKind::Closed,
            LostReason::Abnormal(kind) => kind,
            LostReason::Fault(_) => FailureKind::Parse,
            LostReason::Unfinished => FailureKind::Unfinished,
        };
        if let LostReason::Fault(fault) = reason {
            core.recorder.borrow_mut().note_malformation(Malformation::WebSocket(fault));
        }
        let failed = self.fail_all(core, kind);
        let mut recorder = core.recorder.borrow_mut();
        let live = &mut recorder.counters.live;
        match reason {
            LostReason::Closed => live.clean_closes += u64::from(is_closing),
            LostReason::Abnormal(_) | LostReason::Unfinished if is_closing => live.unclean_closes += 1,
            LostReason::Abnormal(_) => live.ended += 1,
            LostReason::Fault(fault) => live.count_fault(fault),
            LostReason::Unfinished => {}
        }
        let counters: &mut Counters = &mut recorder.counters;
        counters.lost += u64::from(failed > 0);
        counters.closed_idle += u64::from(failed == 0 && !is_closing && reason != LostReason::Unfinished);
        drop(recorder);
        // The request for which it was opened, if it ended before that could be sent.
        self.source.fail_wanted(core, Failure { kind, phase: RequestPhase::Queue }, now_ns());
        if is_push(&core.shared.plan) && has_request {
            self.source.release(now_ns());
        }
        self.close(core);
    }

    fn close(&mut self, core: &CoreState) {
        if let Some(mut connection) = self.connection.take() {
            connection.transport.close(core, true);
            core.recorder.borrow_mut().open_connections -= 1;
            self.dialer.deadline.clear();
            core.dispatcher.borrow_mut().withdraw(self.dialer.index);
        }
    }
}

fn settings(plan: &RunPlan) -> Option<&WebSocketPlan> {
    plan.websocket.as_ref()
}

fn is_push(plan: &RunPlan) -> bool {
    settings(plan).is_some_and(|websocket| websocket.mode == WebSocketMode::Push)
}

/// Records the time since the last message of a connection in which the server sends by itself.
pub(super) fn record_gap(core: &CoreState, last_ns: &mut Option<u64>, now_ns: u64) {
    if let Some(last_ns) = last_ns.replace(now_ns) {
        core.recorder.borrow_mut().live_histograms().gap.record(now_ns.saturating_sub(last_ns));
    }
}

/// Adds a message to the output; in the mode `echo` with its number.
fn write_message(
    output: &mut Vec<u8>,
    websocket: &WebSocketPlan,
    number: Option<u64>,
    random: &mut fastrand::Rng,
) {
    let opcode = if websocket.binary { Opcode::Binary } else { Opcode::Text };
    let mask = Some(random.u32(..).to_be_bytes());
    match number.filter(|_| websocket.mode == WebSocketMode::Echo) {
        Some(number) => {
            let content = [&number_digits(number)[..], &websocket.message].concat();
            encode_frame(output, opcode, &content, mask);
        }
        None => encode_frame(output, opcode, &websocket.message, mask),
    }
}

fn timing(message: &SentMessage, last_ns: u64) -> RequestTiming {
    let &SentMessage { due_ns, begun_ns, sent_ns, .. } = message;
    RequestTiming { due_ns, begun_ns, sent_ns, first_ns: last_ns, last_ns, queued: true }
}
