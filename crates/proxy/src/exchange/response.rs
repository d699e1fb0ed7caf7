//! Forwarding of an open exchange's response, from the server to the client.

use std::io;
use std::task::{Context, Poll};

use rt::clock::MonotonicTime;
use rt::stream::Stream;
use wire::{Framing, Header, Parsed, RequestKind, ResponseHead, Version};

use super::server_selection::response_cookie;
use super::texts::write_with_values;
use super::{ConnAction, Failure, StepResult, TunnelStart};
use crate::client_stream::ClientStream;
use crate::core::{Core, PollContext};
use crate::exchange_state::{Attempt, Exchange, ResponseProgress};
use crate::forward::{ClientFraming, Persistence, ResponseParts, client_framing, write_response};
use crate::outcome::{EndPhase, EndReason};
use crate::profile::ProfilePhase;

/// Result of parsing a response's head.
pub(super) enum HeadResult {
    /// The head is not complete yet.
    Incomplete,
    /// An interim head of this many bytes; another head follows.
    Interim(usize),
    Final(usize),
    /// A final head of this many bytes, whose content gets a coding.
    Recoded(usize),
    /// A head of this many bytes, after which another protocol follows.
    SwitchingProtocols(usize),
    /// The head was rejected; the value is the result of that.
    Failed(StepResult),
}

impl Exchange {
    // Other callers are rare, and must not keep the path of each request from being one function.
    #[inline(always)]
    pub(super) fn poll_response(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let _section = ctx.core.profile.enter(ProfilePhase::ReadResponse);
        if !self.response_relay.is_flushed()
            && let Some(result) = self.poll_flush_response(ctx, client)
        {
            return result;
        }
        if let Some(result) = self.poll_splice(ctx, client) {
            return result;
        }
        if self.response == ResponseProgress::Done {
            return StepResult::Blocked;
        }
        let Some(server) = &mut self.server else {
            return StepResult::Blocked;
        };
        let unprocessed = self.unprocessed.len();
        // A second attempt has received its head before it took the place of the first one.
        let has_complete_bytes = unprocessed > 0
            && (self.response == ResponseProgress::Body || std::mem::take(&mut self.attempt.holds_head));
        let mut end = unprocessed;
        if !has_complete_bytes {
            let read_end = unprocessed + self.response_relay.read_bytes(input.len() - unprocessed);
            match poll_read(&self.attempt, ctx.cx, &mut server.stream, &mut input[unprocessed..read_end]) {
                Poll::Pending => return StepResult::Blocked,
                Poll::Ready(Ok(0)) => {
                    return self.handle_server_eof(ctx, client, true);
                }
                Poll::Ready(Err(error)) => {
                    self.note_session_fault(&error);
                    return self.handle_server_eof(ctx, client, false);
                }
                Poll::Ready(Ok(read)) => end += read,
            }
            // A server that sends single bytes causes a parse for each line, and not for each byte.
            let new_bytes = &input[unprocessed..end];
            if unprocessed > 0
                && end < self.response_limits().head_bytes_max
                && !wire::head_may_be_complete(new_bytes)
            {
                self.unprocessed.extend_from_slice(new_bytes);
                return StepResult::Progressed;
            }
        }
        if unprocessed > 0 {
            input[..unprocessed].copy_from_slice(&self.unprocessed);
        }
        self.unprocessed = Vec::new();
        self.response_relay.borrow_scratch(&mut ctx.work.out);
        let result = self.handle_received(ctx, client, &input[..end]);
        // A new tunnel has taken the buffer along.
        self.response_relay.return_scratch(&mut ctx.work.out);
        result
    }

    /// Sends what was processed before. `None`: all of it is sent.
    pub(super) fn poll_flush_response(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
    ) -> Option<StepResult> {
        let _section = ctx.core.profile.enter(ProfilePhase::ForwardResponse);
        let bytes_before = self.outcome.bytes_out;
        match self.response_relay.poll_flush(ctx.cx, &mut client.stream, &mut self.outcome.bytes_out) {
            Poll::Ready(Ok(())) => None,
            Poll::Ready(Err(_)) => Some(self.fail_client_gone(ctx, client)),
            Poll::Pending if self.outcome.bytes_out > bytes_before => Some(StepResult::Progressed),
            Poll::Pending => Some(StepResult::Blocked),
        }
    }

    #[inline(always)]
    fn handle_received(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &[u8],
    ) -> StepResult {
        let mut at = 0;
        while self.response == ResponseProgress::Head {
            match self.read_head(ctx, client, &input[at..]) {
                HeadResult::Incomplete => {
                    self.unprocessed = input[at..].to_vec();
                    // Interim responses are sent on at once.
                    return match self.response_relay.is_flushed() {
                        true => StepResult::Progressed,
                        false => self.flush_response(ctx, client),
                    };
                }
                HeadResult::Interim(used) => at += used,
                HeadResult::Final(used) => {
                    at += used;
                    self.response = ResponseProgress::Body;
                }
                HeadResult::Recoded(used) => {
                    self.response = ResponseProgress::Body;
                    return self.send_recoded(ctx, client, &input[at + used..]);
                }
                HeadResult::SwitchingProtocols(used) => {
                    return self.start_tunnel(ctx, client, &input[at + used..]);
                }
                HeadResult::Failed(result) => return result,
            }
        }
        self.send_response(ctx, client, &input[at..])
    }

    #[inline(always)]
    fn read_head(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &[u8],
    ) -> HeadResult {
        let mut slots = wire::header_slots();
        let limits = self.response_limits();
        let parsed = wire::parse_response(input, &limits, self.facts.kind, &mut slots);
        let (head, used) = match parsed {
            Ok(Parsed::Complete { head, bytes }) => (head, bytes),
            Ok(Parsed::Incomplete) => return HeadResult::Incomplete,
            Err(refusal) => {
                self.outcome.refusal = Some(refusal.kind());
                return HeadResult::Failed(self.fail(ctx, client, EndReason::BadResponse, EndPhase::Head));
            }
        };
        if head.is_informational() {
            self.interim_count += 1;
            if let Err(refusal) = limits.check_interim(self.interim_count) {
                self.outcome.refusal = Some(refusal.kind());
                return HeadResult::Failed(self.fail(ctx, client, EndReason::BadResponse, EndPhase::Head));
            }
            self.facts.expects_continue &= head.status != 100;
            if self.facts.version == Version::Http11 {
                let (keep_alive, no_framing) = (Persistence::KeepAlive, ClientFraming::None);
                let parts = ResponseParts {
                    version: self.facts.version,
                    kind: self.facts.kind,
                    framing: no_framing,
                    persistence: keep_alive,
                    changes: &[],
                    values: None,
                    sticky_cookie: None,
                    hsts: None,
                };
                write_response(&head, parts, self.response_relay.head_buffer());
            }
            return HeadResult::Interim(used);
        }
        let is_connect_accepted =
            self.facts.kind == RequestKind::Connect && (200..300).contains(&head.status);
        if head.is_switching_protocols()
            && !(self.facts.requests_upgrade && head.upgrade.is_some() && self.request_relay.may_switch())
        {
            // The client did not ask for an upgrade, or its request was not complete.
            return HeadResult::Failed(self.fail(ctx, client, EndReason::BadResponse, EndPhase::Head));
        }
        if self.own_settings.is_some()
            && let Some(result) = self.replace_attempt(ctx, client, head.status)
        {
            return HeadResult::Failed(result);
        }
        self.note_final_status(head.status);
        if self.own_settings.is_some()
            && let Some(result) = self.apply_own_settings(ctx, client, &head, (input, used))
        {
            return result;
        }
        self.write_head(ctx.core, client, &head, is_connect_accepted || head.is_switching_protocols());
        if is_connect_accepted || head.is_switching_protocols() {
            HeadResult::SwitchingProtocols(used)
        } else {
            HeadResult::Final(used)
        }
    }

    fn note_final_status(&mut self, status: u16) {
        let first_byte = MonotonicTime::now();
        self.outcome.times.first_byte = first_byte;
        if let Some(slot) = &self.slot {
            let dispatched = self.outcome.times.dispatched;
            slot.pool.record_service_time(slot.server, first_byte.since(dispatched));
            slot.pool.note_response(slot.server, status, first_byte);
        }
        self.outcome.status = status;
        self.record_response_latency();
    }

    /// Decides how the response is framed, and writes its head.
    pub(super) fn write_head(
        &mut self,
        core: &Core,
        client: &ClientStream,
        head: &ResponseHead<'_, '_>,
        is_switching: bool,
    ) {
        let framing = client_framing(head.framing, self.facts.version);
        self.facts.is_streaming |= is_event_stream(head);
        if matches!(head.status, 401 | 407)
            && let Some(conn) = &mut self.server
        {
            conn.is_private |= challenges_connection(head.headers);
        }
        self.attempt.keeps_server = head.keep_alive;
        // A request that cannot be retried any more need not be kept.
        self.request_relay.forget_sent();
        let may_keep_alive = client.may_keep_alive(core);
        // A client that got no `100 Continue` may still send its body, or not. Neither side could
        // tell that body from the next request.
        self.attempt.keeps_server &= !self.facts.expects_continue || self.request_relay.is_received();
        let is_request_incomplete = (self.attempt.is_request_broken || !self.attempt.keeps_server)
            && !self.request_relay.is_received();
        self.keeps_client &= may_keep_alive && framing != ClientFraming::UntilClose && !is_request_incomplete;
        let persistence = match (is_switching, self.keeps_client) {
            (true, _) => Persistence::Switch,
            (false, true) => Persistence::KeepAlive,
            (false, false) => Persistence::Close,
        };
        let limits = self.response_limits();
        self.response_relay.begin(head.framing, framing, &limits);
        let generation = self.generation.as_ref();
        let route = generation.zip(self.outcome.route).map(|(live, index)| &live.plan.routes[index]);
        let changes = route.map_or(&[][..], |route| &route.changes);
        let (version, kind) = (self.facts.version, self.facts.kind);
        let (slot, requirements) = (self.slot.as_ref(), self.terms.requirements);
        let sticky_cookie = response_cookie(slot, requirements, self.outcome.sticky, client.is_tls());
        let hsts = client.hsts();
        let parts =
            ResponseParts { version, kind, framing, persistence, changes, values: None, sticky_cookie, hsts };
        match route.and_then(|route| route.texts.as_deref()) {
            None => write_response(head, parts, self.response_relay.head_buffer()),
            Some(texts) => {
                write_with_values(
                    core,
                    (&mut self.kept, self.slot.as_ref(), self.access.as_deref()),
                    texts,
                    head,
                    parts,
                    self.response_relay.head_buffer(),
                );
            }
        }
        self.outcome.head_bytes_out = self.response_relay.head_buffer().len() as u64;
        self.outcome.until_close = framing == ClientFraming::UntilClose;
    }

    /// Forwards received bytes of the body.
    #[inline(always)]
    fn send_response(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        mut input: &[u8],
    ) -> StepResult {
        let _section = ctx.core.profile.enter(ProfilePhase::ForwardResponse);
        loop {
            let batch = match self.response_relay.decode_batch(input) {
                Ok(batch) => batch,
                Err(refusal) => {
                    self.outcome.refusal = Some(refusal.kind());
                    let phase = self.forget_unsent_head(client);
                    return self.fail(ctx, client, EndReason::BadResponse, phase);
                }
            };
            if batch.is_last {
                self.response = ResponseProgress::Done;
                if batch.consumed < input.len() {
                    // The bytes that follow were not requested and must not become the next
                    // response.
                    self.attempt.keeps_server = false;
                }
            }
            let out = &mut self.outcome.bytes_out;
            let sent = self.response_relay.poll_send(ctx.cx, &mut client.stream, input, &batch, out);
            input = &input[batch.consumed..];
            if batch.is_last && self.request_relay.is_done() {
                self.release_server(ctx, client);
            }
            match sent {
                Poll::Ready(Ok(())) if batch.is_last || input.is_empty() => return StepResult::Progressed,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.fail_client_gone(ctx, client),
                Poll::Pending => {
                    if !batch.is_last {
                        self.unprocessed = input.to_vec();
                    }
                    return StepResult::Progressed;
                }
            }
        }
    }

    /// Discards the response's head if none of it was sent, so that the client can still get an
    /// error. Returns the resulting phase of the exchange.
    pub(super) fn forget_unsent_head(&mut self, client: &ClientStream) -> EndPhase {
        let is_partially_sent = self.response_relay.unsent_bytes() < self.outcome.head_bytes_out;
        if is_partially_sent || client.stream.has_unfinished_write() {
            return EndPhase::Data;
        }
        self.outcome.status = 0;
        self.outcome.until_close = false;
        self.response = ResponseProgress::Head;
        EndPhase::Head
    }

    pub(super) fn flush_response(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
    ) -> StepResult {
        match self.response_relay.poll_flush(ctx.cx, &mut client.stream, &mut self.outcome.bytes_out) {
            Poll::Ready(Err(_)) => self.fail_client_gone(ctx, client),
            Poll::Ready(Ok(())) | Poll::Pending => StepResult::Progressed,
        }
    }

    pub(super) fn fail_client_gone(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
    ) -> StepResult {
        self.outcome.wasted = self.response == ResponseProgress::Done;
        let phase = if self.response == ResponseProgress::Head { EndPhase::Head } else { EndPhase::Data };
        self.fail(ctx, client, EndReason::ClientGone, phase)
    }

    /// Handles a server that ended or reset its connection.
    fn handle_server_eof(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        is_orderly: bool,
    ) -> StepResult {
        self.attempt.keeps_server = false;
        if self.hedge.is_some()
            && self.response == ResponseProgress::Head
            && self.promote_hedge(ctx, client, EndReason::ServerClosed)
        {
            return StepResult::Progressed;
        }
        match self.response {
            ResponseProgress::Head if self.may_resend(is_orderly) => {
                self.outcome.retries += 1;
                self.note_attempt(EndReason::ServerClosed);
                self.attempt.unreceived_count += u8::from(self.is_unreceived(is_orderly));
                self.rewind_request();
                self.reconnect(client);
                StepResult::Progressed
            }
            // This server closes connections before it reads from them; another server may not.
            ResponseProgress::Head
                if !self.outcome.reused && self.is_replayable() && self.is_unreceived(is_orderly) =>
            {
                self.rewind_request();
                let failure = Failure { end: EndReason::ServerClosed, phase: EndPhase::Head };
                self.retry_connect(ctx, client, failure)
            }
            ResponseProgress::Head if self.own_settings.is_some() && self.may_retry_reset(ctx.core) => {
                let end = self.early_end();
                self.retry_result(ctx, client, end)
            }
            ResponseProgress::Head => {
                let end = self.early_end();
                self.fail(ctx, client, end, EndPhase::Head)
            }
            _ if is_orderly && !self.is_response_truncated() && self.response_relay.take_eof().is_ok() => {
                self.response = ResponseProgress::Done;
                self.response_relay.end();
                self.flush_response(ctx, client)
            }
            _ => {
                let end = self.early_end();
                self.fail(ctx, client, end, EndPhase::Data)
            }
        }
    }

    pub(super) fn response_limits(&self) -> wire::Limits {
        self.slot.as_ref().map_or_else(wire::Limits::default, |place| place.pool.plan().limits)
    }

    /// Returns whether the server ended a TLS session without saying so. A response that only the
    /// end of the connection delimits may be truncated then (RFC 9112 §9.8).
    pub(super) fn is_response_truncated(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.stream.is_truncated())
    }

    /// Leaves HTTP. Bytes received after the head belong to the other protocol.
    fn start_tunnel(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        remaining: &[u8],
    ) -> StepResult {
        let (Some(server), Some(slot)) = (self.server.take(), &self.slot) else {
            return self.fail(ctx, client, EndReason::BadResponse, EndPhase::Head);
        };
        let mut to_client = std::mem::take(self.response_relay.head_buffer());
        to_client.extend_from_slice(remaining);
        let tunnel_timeout_ns = self.timeouts(client, slot).1.tunnel_ns;
        self.response = ResponseProgress::Body;
        let to_server = self.request_relay.take_unsent();
        StepResult::Finished(ConnAction::Tunnel(Box::new(TunnelStart {
            server,
            to_server,
            to_client,
            tunnel_timeout_ns,
        })))
    }

    /// Starts the tunnel once a connection in mode tcp is established.
    pub(super) fn start_tcp_tunnel(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
    ) -> StepResult {
        let (Some(server), Some(slot)) = (self.server.take(), &self.slot) else {
            return self.fail(ctx, client, EndReason::ConnectFailed, EndPhase::Connect);
        };
        slot.pool.note_response(slot.server, 0, self.outcome.times.connected);
        let tunnel_timeout_ns = slot.pool.plan().timeouts.tunnel_ns;
        self.record_connect_latency();
        self.response = ResponseProgress::Body;
        let to_server = std::mem::take(self.request_relay.head_buffer());
        let to_client = Vec::new();
        StepResult::Finished(ConnAction::Tunnel(Box::new(TunnelStart {
            server,
            to_server,
            to_client,
            tunnel_timeout_ns,
        })))
    }
}

/// Reads from a server. A request that has just been sent has no response yet.
#[inline]
fn poll_read(
    attempt: &Attempt,
    cx: &mut Context<'_>,
    server: &mut Stream,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    match attempt.first_byte_wait_start {
        MonotonicTime::ZERO => server.poll_read_later(cx, buffer),
        _ => server.poll_read(cx, buffer),
    }
}

/// Returns whether a response is a stream of server-sent events, which may pause for long. The end of such
/// a stream is not known in advance.
#[inline]
pub(super) fn is_event_stream(head: &ResponseHead<'_, '_>) -> bool {
    const EVENT_STREAM: &[u8] = b"text/event-stream";
    matches!(head.framing, Framing::Chunked | Framing::UntilClose)
        && wire::field_value(head.headers, "content-type").is_some_and(|value| {
            let media_type = value.split(|&byte| matches!(byte, b';' | b',')).next().unwrap_or_default();
            media_type.trim_ascii().eq_ignore_ascii_case(EVENT_STREAM)
        })
}

/// Returns whether a challenge authenticates the connection and not a request, as NTLM does and
/// Negotiate may. Whoever uses that connection afterwards is taken for its user.
fn challenges_connection(headers: &[Header<'_>]) -> bool {
    const FIELDS: [&str; 2] = ["www-authenticate", "proxy-authenticate"];
    const SCHEMES: [&[u8]; 2] = [b"ntlm", b"negotiate"];
    let is_connection_auth = |challenge: &[u8]| {
        let has_scheme = |scheme: &&[u8]| {
            challenge.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        SCHEMES.iter().any(has_scheme)
    };
    headers
        .iter()
        .filter(|header| FIELDS.iter().any(|name| header.name.eq_ignore_ascii_case(name)))
        .flat_map(|header| header.value.split(|&byte| byte == b','))
        .any(|challenge| is_connection_auth(challenge.trim_ascii()))
}
