//! End of an exchange: the proxy's own responses, the reuse or close of both connections, and the
//! outcome.

use rt::clock::MonotonicTime;
use wire::{RefusalKind, RequestKind, Version, encode};

use super::{ConnAction, StepResult};
use crate::client_stream::ClientStream;
use crate::core::{Core, PollContext};
use crate::exchange_state::{Exchange, ExchangeStage, ResponseProgress, ServerSlot};
use crate::forward::{HSTS_FIELD, write_response_changes, writes_own_response_field};
use crate::log::http_date;
use crate::outcome::{EndPhase, EndReason, Outcome};
use crate::plan::Reuse;
use crate::profile::ProfilePhase;

/// A response of the proxy's own.
pub(super) struct OwnResponse<'a> {
    pub(super) status: u16,
    pub(super) content_type: &'a str,
    pub(super) body: &'a [u8],
    pub(super) fields: &'a [(&'a str, &'a [u8])],
}

/// Methods that the proxy's own responses list in `Allow`.
pub(super) const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Writes `Allow` for a 405 (RFC 9110 §15.5.6): every method but the rejected one.
fn write_allow(rejected_method: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"Allow: ");
    let mut others = ALLOWED_METHODS.split(", ").filter(|method| method.as_bytes() != rejected_method);
    out.extend_from_slice(others.next().unwrap_or_default().as_bytes());
    for method in others {
        out.extend_from_slice(b", ");
        out.extend_from_slice(method.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Returns the key of the config that allows a request of this kind, as the end of a sentence.
fn remedy(kind: RefusalKind) -> &'static str {
    match kind {
        RefusalKind::AmbiguousPath | RefusalKind::EncodedSlash => {
            " (the operator can allow it: path-rule of the route, or path of the listener)"
        }
        RefusalKind::UnderscoreInFieldName => " (underscores of the listener)",
        _ => "",
    }
}

impl Exchange {
    /// Ends a failed exchange. Sends the client an error response if no response has begun.
    pub(super) fn fail(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        end: EndReason,
        phase: EndPhase,
    ) -> StepResult {
        let end = if end == EndReason::ClientGone { client.gone_reason() } else { end };
        if self.hedge.is_some() {
            if self.replaces_failed_attempt(end) && self.promote_hedge(ctx, client, end) {
                return StepResult::Progressed;
            }
            self.cancel_hedge(client, &mut ctx.work.rng);
        }
        self.outcome.end = end;
        self.outcome.phase = phase;
        let is_server_fault = matches!(
            end,
            EndReason::ServerTimeout
                | EndReason::ServerClosed
                | EndReason::ConnectFailed
                | EndReason::ConnectTimeout
                | EndReason::TlsHandshakeFailed
                | EndReason::NoHttp2
                | EndReason::NoDescriptor
                | EndReason::NoSourceAddress
        );
        if is_server_fault && let Some(slot) = &self.slot {
            slot.pool.record_failure_sample(slot.server);
        }
        let is_reset = self.pass_on_reset(client);
        self.abandon_to_server(client, end);
        self.server = None;
        if let Some(ServerSlot { pool, server }) = &self.slot
            && pool.uses_latency()
        {
            self.record_failure_latency(pool, *server, end, MonotonicTime::now());
        }
        if let ExchangeStage::Queued(pool, ticket) = &self.stage {
            pool.cancel(ticket, &mut ctx.work.rng);
        }
        self.release_slot(&mut ctx.work.rng);
        client.disarm();
        let status = self.status_of(end);
        // Part of an interim response was sent, so no other response can follow it.
        let is_truncated = self.response_relay.is_partially_sent() || client.stream.has_unfinished_write();
        let has_responded =
            matches!(self.stage, ExchangeStage::Responding) || self.outcome.status != 0 || is_truncated;
        if self.caching.is_some() && !has_responded && self.replace_failure(ctx, client, end) {
            return StepResult::Progressed;
        }
        if status == 0 || has_responded || is_reset || self.facts.is_tcp || self.subrequest.is_some() {
            self.stage = ExchangeStage::Unused;
            return StepResult::Finished(self.action_after_failure(ctx.core, client));
        }
        self.write_rejection(ctx.core, client, status);
        StepResult::Progressed
    }

    /// Returns the status of the response to a request that ends so.
    fn status_of(&self, end: EndReason) -> u16 {
        match self.outcome.refusal_status {
            0 => end.status(),
            status => status,
        }
    }

    /// Records the outcome, and chooses how to close the client's connection after a failure without an
    /// error response.
    fn action_after_failure(&mut self, core: &Core, client: &ClientStream) -> ConnAction {
        self.record_outcome(core, client);
        if self.outcome.end == EndReason::SilentlyDropped {
            return ConnAction::ResetSilently;
        }
        // After a normal close, the client would take a truncated close-delimited response as complete.
        let looks_complete = self.outcome.until_close && self.response != ResponseProgress::Done;
        if looks_complete || self.outcome.end == EndReason::WriteTimeout {
            ConnAction::Reset
        } else {
            ConnAction::Close
        }
    }

    fn write_rejection(&mut self, core: &Core, client: &ClientStream, status: u16) {
        let saved_end = (self.outcome.end, self.outcome.phase);
        match self.facts.is_grpc {
            true => self.write_grpc_rejection(core, client, status),
            false => self.write_http_rejection(core, client, status),
        }
        (self.outcome.end, self.outcome.phase) = saved_end;
    }

    fn write_http_rejection(&mut self, core: &Core, client: &ClientStream, status: u16) {
        let reason = encode::reason(status);
        let body = match self.outcome.refusal.filter(|_| self.outcome.end == EndReason::BadRequest) {
            Some(kind) => format!("{status} {reason}: {}{}\n", kind.doc(), remedy(kind)),
            None => format!("{status} {reason}: {}\n", self.outcome.end.doc()),
        };
        let mut seconds = itoa::Buffer::new();
        let wait_s = match (self.outcome.retry_after_s, status) {
            (0, 503) => 1,
            (wait_s, _) => wait_s,
        };
        let retry_after = [("Retry-After", seconds.format(wait_s).as_bytes())];
        let fields = if wait_s > 0 { &retry_after[..] } else { &[] };
        if self.write_maintenance_page(core, client, status, fields)
            || self.write_error_page(core, client, status, fields)
        {
            return;
        }
        let response = OwnResponse { status, content_type: "text/plain", body: body.as_bytes(), fields };
        self.respond(core, client, &response);
    }

    /// Starts a response of the proxy's own.
    pub(super) fn respond(&mut self, core: &Core, client: &ClientStream, response: &OwnResponse<'_>) {
        if self.own_settings.is_some()
            && let Some(coding) = self.code_own(core, response)
        {
            let fields = [response.fields, &coding.fields].concat();
            let body = coding.body.as_deref().unwrap_or(response.body);
            let coded = OwnResponse { body, fields: &fields, ..*response };
            return self.respond_with_length(core, client, &coded, Some(body.len() as u64));
        }
        self.respond_with_length(core, client, response, Some(response.body.len() as u64));
    }

    /// Starts a response whose content has this length; `None`: it is not known.
    pub(super) fn respond_with_length(
        &mut self,
        core: &Core,
        client: &ClientStream,
        response: &OwnResponse<'_>,
        length: Option<u64>,
    ) {
        let OwnResponse { status, content_type, body, fields } = *response;
        // An unread rest of the request would be parsed as the next request.
        self.keeps_client &= self.request_relay.is_received()
            && !self.attempt.is_request_broken
            && client.may_keep_alive(core)
            && (length.is_some() || self.facts.version == Version::Http11);
        self.outcome.end = EndReason::LocalResponse;
        self.outcome.phase = EndPhase::Request;
        self.outcome.status = status;
        self.response_relay.reset();
        let generation = self.generation.as_ref();
        let route = generation.zip(self.outcome.route).map(|(live, index)| &live.plan.routes[index]);
        let changes = route.map_or(&[][..], |route| {
            let rules = route.texts.as_ref();
            rules.and_then(|texts| texts.changes(status, self.kept.held_rules)).unwrap_or(&route.changes)
        });
        let out = self.response_relay.head_buffer();
        encode::status_line(out, Version::Http11, status);
        if writes_own_response_field(changes, "date") {
            encode::field(out, "Date", &http_date());
        }
        for (name, value) in fields.iter().filter(|(name, _)| writes_own_response_field(changes, name)) {
            encode::field(out, name, value);
        }
        if let Some(hsts) = client.hsts().filter(|_| writes_own_response_field(changes, HSTS_FIELD)) {
            encode::field(out, HSTS_FIELD, hsts.as_bytes());
        }
        let has_allow = fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("allow"));
        if status == 405 && !has_allow && writes_own_response_field(changes, "allow") {
            write_allow(self.outcome.method(), out);
        }
        if !matches!(status, 204 | 304) {
            if !body.is_empty() && writes_own_response_field(changes, "content-type") {
                encode::field(out, "Content-Type", content_type.as_bytes());
            }
            match (length, self.facts.version) {
                (Some(length), _) => encode::field_u64(out, "Content-Length", length),
                (None, Version::Http11) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
                (None, Version::Http10) => self.outcome.until_close = true,
            }
        }
        match route.filter(|route| route.texts.is_some()) {
            None => write_response_changes(changes, None, out),
            Some(_) => self.write_own_fields(core, status),
        }
        self.end_own_head();
        let out = self.response_relay.head_buffer();
        if self.facts.kind != RequestKind::Head && !matches!(status, 204 | 304) {
            out.extend_from_slice(body);
        }
        self.response = ResponseProgress::Done;
        self.stage = ExchangeStage::Responding;
    }

    /// Writes the connection option of the proxy's own response, and the end of its head.
    fn end_own_head(&mut self) {
        let out = self.response_relay.head_buffer();
        match (self.keeps_client, self.facts.version) {
            (false, Version::Http11) => out.extend_from_slice(b"Connection: close\r\n"),
            (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            _ => {}
        }
        encode::end_of_head(out);
        self.outcome.head_bytes_out = out.len() as u64;
    }

    /// Ends a completed exchange: releases the server, and records the outcome.
    pub(super) fn finish(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) -> ConnAction {
        self.release_server(ctx, client);
        self.stage = ExchangeStage::Unused;
        self.record_outcome(ctx.core, client);
        // An unread rest of the body would be parsed as the next request.
        self.keeps_client &= self.request_relay.is_received();
        if self.keeps_client {
            return ConnAction::KeepAlive;
        }
        // A close with unread bytes in the receive buffer sends a reset, which may destroy the response
        // in flight. The client may have sent such bytes already, or send them before it reads that
        // this was the last response.
        let has_unread = !self.request_relay.is_received()
            || self.attempt.is_request_broken
            || !client.buffered.is_empty();
        // Only a close_notify that arrives completes such a response, so the socket must not be full.
        let needs_close_notify = self.outcome.until_close && client.stream.is_tls();
        match has_unread || self.facts.may_pipeline || needs_close_notify || !client.stream.is_idle() {
            true => ConnAction::Linger,
            false => ConnAction::Close,
        }
    }

    /// Releases the server after a complete response. The connection is kept if it can carry
    /// another request.
    pub(super) fn release_server(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) {
        let core = ctx.core;
        if let (Some(mut conn), Some(ServerSlot { pool, server })) = (self.server.take(), &self.slot)
            && self.attempt.keeps_server
            && self.request_relay.is_done()
            && !self.attempt.is_request_broken
            && !core.drain.is_draining.get()
        {
            conn.served_requests += 1;
            match pool.reuse() {
                Reuse::Safe | Reuse::Always if !conn.is_private => {
                    pool.keep_idle(*server, conn, core.ticks.now.get());
                }
                _ => client.keep_private_conn(pool, *server, conn),
            }
        }
        self.release_slot(&mut ctx.work.rng);
    }

    /// Adds the bytes that went through a tunnel.
    pub(crate) fn add_tunnel_bytes(&mut self, bytes_in: u64, bytes_out: u64) {
        self.outcome.bytes_in += bytes_in;
        self.outcome.bytes_out += bytes_out;
    }

    /// Ends the tunnel: releases its slot, and records the outcome.
    pub(crate) fn end_tunnel(
        &mut self,
        core: &Core,
        client: &ClientStream,
        rng: &mut fastrand::Rng,
        end: EndReason,
    ) {
        self.outcome.end = end;
        self.outcome.phase = if end == EndReason::Done { EndPhase::Over } else { EndPhase::Data };
        self.release_slot(rng);
        self.record_outcome(core, client);
    }

    /// Aborts the exchange of a connection that is dropped at the end of the drain.
    pub(crate) fn abort_on_drain(&mut self, core: &Core, client: &ClientStream) {
        self.abort(core, client, &mut fastrand::Rng::with_seed(0), EndReason::Drained);
    }

    /// Ends the exchange early, without a response to the client: cancels its ticket in the queue, releases
    /// its slot, and records the outcome.
    pub(crate) fn abort(
        &mut self,
        core: &Core,
        client: &ClientStream,
        rng: &mut fastrand::Rng,
        end: EndReason,
    ) {
        self.cancel_hedge(client, rng);
        self.outcome.end = end;
        self.outcome.phase = self.phase();
        if let ExchangeStage::Queued(pool, ticket) = &self.stage {
            pool.cancel(ticket, rng);
        }
        self.release_slot(rng);
        self.record_outcome(core, client);
    }

    pub(super) fn release_slot(&mut self, rng: &mut fastrand::Rng) {
        if let Some(ServerSlot { pool, server }) = self.slot.take() {
            pool.release(server, rng);
        }
    }

    /// Reports the outcome to logs and metrics, once per request.
    pub(crate) fn record_outcome(&mut self, core: &Core, client: &ClientStream) {
        let _section = core.profile.enter(ProfilePhase::Metrics);
        self.outcome.times.end = MonotonicTime::now();
        self.attach(client);
        if self.mirrored.is_some() {
            self.end_mirrors();
        }
        if self.outcome.cache.is_some() {
            self.count_cache_result();
        }
        let Some(generation) = self.generation.take() else {
            return;
        };
        let builder = &self.outcome;
        let outcome = Outcome {
            client: client.peer.address,
            client_port: client.peer.port,
            listener: self.listener,
            route: builder.route,
            pool: builder.pool,
            server: builder.server,
            request: builder.logged_request(),
            status: builder.status,
            end: builder.end,
            phase: builder.phase,
            refusal: builder.refusal,
            times: builder.times,
            bytes_in: builder.bytes_in,
            bytes_out: builder.bytes_out,
            content_bytes_out: builder.bytes_out.saturating_sub(builder.head_bytes_out),
            retries: builder.retries,
            reused: builder.reused,
            wasted: builder.wasted,
            sticky: builder.sticky,
            hedge: builder.hedge,
            cache: builder.cache,
            tls_names: client.tls_names(),
            server_name: client.server_name(),
            user: self.access.as_deref().map_or("", |access| &access.identity.user),
            tls_error: builder.tls_error.as_deref().or_else(|| client.tls_error()),
            trace: builder.trace(),
        };
        match &self.subrequest {
            None => core.record(&generation, &outcome),
            Some(report) => Self::report_subrequest(core, &generation, report, &outcome),
        }
    }
}
