//! Starts an exchange from a request's head: matches the route, applies its limits and its action,
//! takes a slot at a server, and connects.

use std::rc::Rc;

use rt::clock::MonotonicTime;
use wire::{Framing, RefusalKind, RequestHead, RequestKind};

use crate::acme_tokens::{CHALLENGE_PREFIX, answer_to_challenge};
use crate::client_stream::ClientStream;
use crate::core::{ConfigGeneration, Core, ListenerGeneration, PollContext, WorkBuffers};
use crate::exchange_state::{Exchange, ExchangeStage, ServerSlot};
use crate::field_names::has_underscore;
use crate::forward::{
    ClientFraming, CookieChanges, Origin, RequestParts, max_forwards, origin_form, uses_max_forwards,
    write_request,
};
use crate::outcome::{EndReason, NeededFields};
use crate::plan::{Action, ListenerPlan, PathRule, PoolId, Reuse, Sticky, Underscores};
use crate::profile::ProfilePhase;
use crate::request_view::{CertificateField, NotedFields, RequestView};
use crate::route::{
    CheckedTarget, RateLimitKey, RetryAfterNs, RouteRequest, changes_target, check_target, rewrite_target,
};
use crate::server_conn::ServerConn;
use crate::uri::split_target;

/// Inputs of a new exchange, except the head.
pub(crate) struct ExchangeStart {
    /// The plan that the request follows.
    pub(crate) active: ListenerGeneration,
    pub(crate) head_bytes: usize,
    /// Time when the first byte of the head had arrived, and time when the head was complete.
    pub(crate) head_start: MonotonicTime,
    pub(crate) now: MonotonicTime,
}

impl Exchange {
    pub(crate) fn begin(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        head: &RequestHead<'_, '_>,
        start: ExchangeStart,
    ) {
        let listener = &start.active.generation.plan.listeners[start.active.listener];
        let field_name = listener.tls.as_ref().and_then(|tls| tls.client_header.as_deref());
        let subject = field_name.and_then(|_| client.certificate_subject());
        let view = RequestView {
            head,
            is_trusted: client.peer.is_trusted,
            forwarding: &listener.forwarding,
            certificate: field_name.map(|name| CertificateField { name, subject: subject.as_deref() }),
        };
        // Moved out of the context, because the target in it is borrowed along with the head.
        let mut target_buffer = std::mem::take(&mut ctx.work.route_scratch.target);
        self.begin_routed(ctx, client, &view, &start, &mut target_buffer);
        ctx.work.route_scratch.target = target_buffer;
    }

    fn begin_routed(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        view: &RequestView<'_>,
        start: &ExchangeStart,
        target_buffer: &mut String,
    ) {
        let (core, head) = (ctx.core, view.head);
        let _section = core.profile.enter(ProfilePhase::Route);
        self.generation = Some(Rc::clone(&start.active.generation));
        self.listener = start.active.listener;
        self.facts.kind = RequestKind::from_method(head.method);
        self.facts.version = head.version;
        self.facts.may_pipeline = head.keep_alive;
        // Bytes after a CONNECT belong to a tunnel, even if none is opened. On a stream, those after an upgrade
        // do, too: it is an extended CONNECT.
        let is_tunnel =
            self.facts.kind == RequestKind::Connect || head.upgrade.is_some() && client.is_h2_stream();
        self.keeps_client = head.keep_alive && !is_tunnel;
        self.facts.is_idempotent =
            matches!(head.method, "GET" | "HEAD" | "PUT" | "DELETE" | "OPTIONS" | "TRACE");
        self.note_grpc(view, client);
        self.outcome.begin(start.head_start, start.now, start.head_bytes);
        self.note_for_logs(core, client, view);
        let listener = &start.active.generation.plan.listeners[start.active.listener];
        self.request_relay.begin(head.framing, forwarded_framing(head.framing), &listener.limits);
        let exceeded = self.exceeded_limit(client, start.now);
        if exceeded == Some(EndReason::PlainHttp) {
            return self.respond_to_plain_http(core, client, view);
        }
        let generation = &*start.active.generation;
        if let Some(end) = exceeded.or_else(|| self.broken_listener_rule(generation, listener, head.framing))
        {
            self.reject(ctx, client, end);
            return;
        }
        if let Some(kind) = head_refusal(view, client) {
            return self.refuse(ctx, client, kind);
        }
        let checked = check_target(head.target, target_buffer);
        match checked.map_or(Ok(head.target), |checked| checked.form(listener.path)) {
            // A rule of its route may allow it.
            Err(kind)
                if listener.redirect_https.is_some() || !start.active.generation.router.has_path_rules() =>
            {
                self.refuse(ctx, client, kind);
            }
            _ if is_last_hop(view) => self.respond_as_last_hop(core, client, head.method),
            Ok(target) if target.starts_with(CHALLENGE_PREFIX) && has_answer(target) => {
                self.answer_challenge(core, client, target);
            }
            Ok(target) if redirects_to_https(listener, head, target) => {
                self.redirect_to_https(core, client, head, listener.redirect_https.unwrap_or_default());
            }
            _ => self.route_request(ctx, client, view, checked, start),
        }
    }

    /// Returns the end code if the listener rejects such a request regardless of its route.
    #[inline]
    fn broken_listener_rule(
        &self,
        generation: &ConfigGeneration,
        listener: &ListenerPlan,
        framing: Framing,
    ) -> Option<EndReason> {
        match (framing, listener.body_bytes_max) {
            _ if self.facts.kind == RequestKind::Connect && !listener.connect => {
                Some(EndReason::ConnectForbidden)
            }
            // A route may allow more.
            (Framing::Length(bytes), Some(max)) if bytes > max && !generation.has_route_settings => {
                Some(EndReason::BodyTooLarge)
            }
            _ => None,
        }
    }

    /// Notes the parts of the head that a log may need.
    #[inline]
    fn note_for_logs(&mut self, core: &Core, client: &ClientStream, view: &RequestView<'_>) {
        let needed = core.needed_fields();
        let fields = if needed == NeededFields::None { NotedFields::default() } else { view.noted_fields() };
        self.outcome.note_request(view, client.protocol(view.head.version), needed, fields.user_agent);
        if needed != NeededFields::None
            && let Some(context) = core.begin_trace(view, fields.has_trace_context)
        {
            self.outcome.begin_trace(context);
        }
        if needed == NeededFields::All {
            self.capture_for_logs(core, client, view);
        }
    }

    /// Matches the route of a request with a normalised target, and performs its action.
    fn route_request(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        view: &RequestView<'_>,
        checked: Option<CheckedTarget<'_>>,
        start: &ExchangeStart,
    ) {
        let generation = &*start.active.generation;
        let mut request = RouteRequest {
            listener: start.active.listener,
            method: view.head.method,
            target: checked.map_or(view.head.target, |checked| checked.normal),
            is_plain: checked.is_none(),
            host: view.head.host,
            view,
            source: client.peer.address,
        };
        let route = generation.router.pick(&request, client, &mut ctx.work.route_scratch);
        if let Some(checked) = checked {
            let rule = path_rule(generation, request.listener, route);
            let scratch = &mut ctx.work.route_scratch;
            let router = &generation.router;
            let pick = |target: &str| router.pick(&RouteRequest { target, ..request }, client, scratch);
            match checked.forwarded(rule, route, pick) {
                Ok(target) => request.target = target,
                Err(kind) => return self.refuse(ctx, client, kind),
            }
        }
        let Some(route) = route else {
            if !generation.plan.error_pages.is_empty() {
                self.note_accepted_forms(view);
            }
            return self.reject(ctx, client, EndReason::NoRoute);
        };
        self.outcome.route = Some(route);
        match generation.has_route_settings {
            true => self.follow_route_with_settings(ctx, client, generation, &request, start.now),
            false => self.follow_route(ctx, client, generation, &request, start.now),
        }
    }

    /// Performs the action of a request's route.
    #[inline]
    pub(super) fn follow_route(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
        now: MonotonicTime,
    ) {
        let Some(route) = self.outcome.route else { return };
        let route_plan = &generation.plan.routes[route];
        if let Some(texts) = &route_plan.texts {
            self.keep_values((generation, route), texts, client, request, &mut ctx.work.rng);
        }
        if !route_plan.rate_limits.is_empty()
            && let Err((RetryAfterNs(wait_ns), status)) =
                self.take_rate_limit_tokens(ctx, client, generation, route, request, now)
        {
            self.outcome.retry_after_s = wait_ns.div_ceil(1_000_000_000);
            self.outcome.refusal_status = status;
            self.reject(ctx, client, EndReason::RateLimited);
            return;
        }
        let pool = match &route_plan.action {
            Action::Forward(pool) => *pool,
            Action::Split(split) => self.split_pool(split),
            other => return self.run_action(ctx, client, generation, request, other),
        };
        if self.own_settings.is_some()
            && self.follow_cache(ctx, client, generation, (route, pool), request, now)
        {
            return;
        }
        self.forward(ctx, client, generation, (route, pool), request, now);
    }

    /// Forwards a request that was not answered from a cache.
    #[cold]
    #[inline(never)]
    pub(super) fn forward_behind_cache(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        route_and_pool: (usize, PoolId),
        request: &RouteRequest<'_>,
        now: MonotonicTime,
    ) {
        self.forward(ctx, client, generation, route_and_pool, request, now);
    }

    /// Forwards a request to a server of its pool.
    #[inline(always)]
    fn forward(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        (route, pool): (usize, PoolId),
        request: &RouteRequest<'_>,
        now: MonotonicTime,
    ) {
        self.terms.requirements = self.server_requirements(generation, pool, client, request, ctx.work);
        self.note_priority(request.view, generation, route);
        let writing = ctx.core.profile.enter(ProfilePhase::ForwardRequest);
        let is_written = self.write_upstream_head(ctx.work, client, generation, pool, request);
        drop(writing);
        if is_written {
            if self.own_settings.is_some() {
                self.begin_mirrors(ctx, client, generation, request);
            }
            let pool = Rc::clone(&generation.pools[pool]);
            self.buffer_or_acquire(ctx, client, pool, now);
        } else {
            self.refuse_long_text(ctx, client);
        }
    }

    /// Takes a token of each rate limit of the route.
    ///
    /// # Errors
    /// A limit has none; the value includes its status. The limits before it have lost a token.
    pub(super) fn take_rate_limit_tokens(
        &self,
        ctx: &mut PollContext<'_, '_>,
        client: &ClientStream,
        generation: &ConfigGeneration,
        route: usize,
        request: &RouteRequest<'_>,
        now: MonotonicTime,
    ) -> Result<(), (RetryAfterNs, u16)> {
        let limits = &generation.plan.routes[route].rate_limits;
        // Those of a route with authentication are taken before it, or after it if their key needs it.
        let phase =
            self.own_settings.as_ref().and_then(|own| own.access.as_ref()).map(|_| self.access.is_some());
        for (limit, limiter) in limits.iter().zip(&mut generation.limiters.borrow_mut()[route]) {
            if phase.is_some_and(|is_after| is_after != limit.needs_identity()) {
                continue;
            }
            let buffer = &mut ctx.work.route_scratch.key;
            let key = RateLimitKey::from_request(&limit.key, request, |template| {
                template.render_key(&self.request_values(generation, client, request), buffer);
                buffer
            });
            limiter.admit(key, now).map_err(|wait| (wait, limit.status))?;
        }
        Ok(())
    }

    /// Returns the end code if the connection or its source is over a limit now.
    fn exceeded_limit(&mut self, client: &ClientStream, now: MonotonicTime) -> Option<EndReason> {
        let rejection = client.request_rejection(now)?;
        self.keeps_client &= !client.is_rejected();
        self.outcome.retry_after_s = rejection.retry_after_s.into();
        Some(rejection.end)
    }

    /// Starts and ends an exchange for bytes that are not a valid request: the received part of a `head`, if
    /// they are one.
    pub(crate) fn begin_rejected(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        (refusal, head): (Result<wire::Refusal, EndReason>, &[u8]),
        start: ExchangeStart,
    ) {
        self.generation = Some(start.active.generation);
        self.listener = start.active.listener;
        self.facts.kind = RequestKind::Other;
        self.facts.version = wire::Version::Http11;
        self.keeps_client = false;
        self.facts.may_pipeline = true;
        self.facts.is_grpc = false;
        self.outcome.begin(start.head_start, start.now, start.head_bytes);
        if let Some((method, target, version)) = wire::salvage_request_line(head) {
            self.outcome.note_request_line(method, target, client.protocol(version));
        }
        // Bytes after the invalid ones must not be read.
        self.attempt.is_request_broken = true;
        let end = match refusal {
            Ok(refusal) => {
                self.outcome.refusal = Some(refusal.kind());
                self.outcome.refusal_status = refusal.status();
                EndReason::BadRequest
            }
            Err(end) => end,
        };
        self.reject(ctx, client, end);
    }

    /// Starts forwarding bytes to a pool, without a head (mode tcp).
    pub(crate) fn begin_tcp(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        pool: PoolId,
        start: ExchangeStart,
    ) {
        let generation = Rc::clone(&start.active.generation);
        self.generation = Some(start.active.generation);
        self.listener = start.active.listener;
        self.facts.is_tcp = true;
        self.keeps_client = false;
        self.outcome.begin(start.head_start, start.now, 0);
        self.terms.requirements = Self::tcp_server_requirements(&generation.pools[pool], client.peer.address);
        let pool = Rc::clone(&generation.pools[pool]);
        self.acquire_or_enqueue(ctx, client, pool, start.now);
    }

    /// Writes the head for the server. Returns false if one of its texts is too long.
    // The request behind a cache must not keep the path of each other one from being one function.
    #[inline(always)]
    pub(super) fn write_upstream_head(
        &mut self,
        WorkBuffers { target, rng, .. }: &mut WorkBuffers,
        client: &ClientStream,
        generation: &ConfigGeneration,
        pool: PoolId,
        request: &RouteRequest<'_>,
    ) -> bool {
        let view = request.view;
        let route = self.outcome.route.map(|route| &generation.plan.routes[route]);
        let changes = route.map_or(&[][..], |route| &route.changes);
        let texts = route.and_then(|route| route.texts.as_deref());
        // Only a text that has it needs it before the head is written.
        let has_kept_id = texts.is_some_and(|texts| texts.uses_request_id);
        let origin_target = origin_form(request.method, request.target);
        let rewritten = if changes_target(changes) {
            target.clear();
            // The parser accepted only visible ASCII.
            rewrite_target(changes, std::str::from_utf8(&origin_target).unwrap_or_default(), target);
            target.as_slice()
        } else {
            &origin_target
        };
        let upgrade = view.upgrade();
        self.facts.requests_upgrade = upgrade.is_some();
        self.facts.requests_websocket = upgrade.is_some_and(is_websocket);
        self.facts.expects_continue = view.head.expect_continue;
        let plan = &generation.plan.pools[pool];
        let default_host = plan.servers.iter().next().map_or("", |server| &server.name);
        let origin = Origin {
            client: client.peer.address,
            new_request_id: &if has_kept_id { self.kept.request_id } else { generate_request_id(rng) },
            is_tls: client.is_tls(),
            protocol: client.protocol(view.head.version),
        };
        let sticky = plan.sticky.as_ref().and_then(Sticky::cookie);
        let cookies = sticky.map(|sticky| CookieChanges { sticky: Some(sticky), changes: &[] });
        let parts = RequestParts { target: rewritten, default_host, changes, values: None, cookies };
        if texts.is_some() {
            let is_complete = self.write_head_with_values(generation, client, request, origin, parts);
            self.insert_access_lines();
            return is_complete;
        }
        let out = self.request_relay.head_buffer();
        let id = write_request(view, origin, parts, out);
        self.outcome.note_request_id(&out[id]);
        if let Some(trace) = self.outcome.trace() {
            trace.context.write_fields(!changes.is_empty(), out);
        }
        self.request_relay.keep_sent();
        true
    }

    /// Sends the request to a server with a free slot, on an idle connection if a suitable one
    /// exists.
    pub(super) fn dispatch(
        &mut self,
        core: &Core,
        client: &mut ClientStream,
        slot: ServerSlot,
        now: MonotonicTime,
    ) {
        let _section = core.profile.enter(ProfilePhase::Connect);
        self.outcome.server = Some(slot.server);
        self.outcome.times.dispatched = now;
        let idle_conn = self.take_idle_connection(client, &slot);
        let (pool, server) = (Rc::clone(&slot.pool), slot.server);
        self.slot = Some(slot);
        match idle_conn {
            Some(conn) => self.set_connected(conn, true, now),
            None => self.connect(client, &pool, server),
        }
    }

    fn take_idle_connection(&self, client: &mut ClientStream, slot: &ServerSlot) -> Option<ServerConn> {
        // A connection for unparsed bytes (mode tcp) must be a new one.
        if self.attempt.needs_new_connection || self.facts.is_tcp {
            return None;
        }
        let ServerSlot { pool, server } = slot;
        // The client's own connection may be authenticated; the others are not.
        let private_conn = client.take_private_conn(pool, *server);
        match pool.reuse() {
            _ if private_conn.is_some() => private_conn,
            Reuse::Never => None,
            // If a client's first request failed on an idle connection, the client could not know
            // that a retry might succeed.
            Reuse::Safe
                if client.request_count == 1
                    && !(self.facts.is_idempotent && self.request_relay.can_rewind()) =>
            {
                pool.take_idle_stream(*server)
            }
            Reuse::Safe | Reuse::Always => pool.take_idle(*server),
        }
    }

    /// Continues with an open connection.
    pub(super) fn set_connected(&mut self, conn: ServerConn, reused: bool, now: MonotonicTime) {
        self.attempt.first_byte_wait_start = MonotonicTime::ZERO;
        self.outcome.reused = reused;
        self.outcome.times.connected = now;
        self.outcome.tls_error = None;
        self.attempt.tls_sent_before = conn.stream.tls_byte_counts().map_or(0, |counts| counts.sent);
        self.attempt.lacks_upgrade = self.facts.requests_websocket
            && conn.http2.as_ref().is_some_and(|stream| !stream.supports_upgrade());
        self.server = Some(conn);
        self.stage = ExchangeStage::Connected;
    }
}

/// Returns the reason to reject the request because of one of its fields.
fn head_refusal(view: &RequestView<'_>, client: &ClientStream) -> Option<RefusalKind> {
    // On a stream, only extended CONNECT has an upgrade.
    if view.requests_http2() && client.is_h2_stream() {
        return Some(RefusalKind::ProtocolUnsupported);
    }
    let rejects_underscores = view.forwarding.underscores == Underscores::Reject && !view.is_trusted;
    (rejects_underscores && view.head.headers.iter().any(|header| has_underscore(header.name)))
        .then_some(RefusalKind::UnderscoreInFieldName)
}

/// Returns the rule for the path of a request: that of its route, or else that of its listener.
fn path_rule(generation: &ConfigGeneration, listener: usize, route: Option<usize>) -> PathRule {
    let own_rule = route.and_then(|route| generation.plan.routes[route].path_rule);
    own_rule.unwrap_or(generation.plan.listeners[listener].path)
}

/// Returns whether a target is a challenge for this proxy; all others are routed.
#[cold]
fn has_answer(target: &str) -> bool {
    answer_to_challenge(target).is_some()
}

/// Returns whether a request with a normalised target is redirected to https: not without a host,
/// and not for challenges of ACME (RFC 8555 §8.3), `*` and CONNECT.
fn redirects_to_https(listener: &ListenerPlan, head: &RequestHead<'_, '_>, target: &str) -> bool {
    if listener.redirect_https.is_none() {
        return false;
    }
    let (path, _) = split_target(target);
    let has_location = path.starts_with('/') && head.host.is_some_and(|host| !host.is_empty());
    has_location && !path.starts_with(CHALLENGE_PREFIX)
}

/// Returns whether `Max-Forwards` forbids to forward a request.
fn is_last_hop(view: &RequestView<'_>) -> bool {
    uses_max_forwards(view.head.method) && view.value("max-forwards").and_then(max_forwards) == Some(0)
}

/// Returns whether an upgrade is a WebSocket handshake.
fn is_websocket(protocols: &str) -> bool {
    protocols.eq_ignore_ascii_case("websocket")
}

fn forwarded_framing(received: Framing) -> ClientFraming {
    match received {
        // A request never has `UntilClose`.
        Framing::None | Framing::UntilClose => ClientFraming::None,
        Framing::Length(_) => ClientFraming::Length,
        Framing::Chunked => ClientFraming::Chunked,
    }
}

/// Generates a request id: 128 random bits in hexadecimal. Unique, not secret.
pub(super) fn generate_request_id(rng: &mut fastrand::Rng) -> [u8; 32] {
    hexadecimal(rng.u128(..))
}

fn hexadecimal(number: u128) -> [u8; 32] {
    let part = |shift: u32| eight_digits((number >> shift) as u32);
    let mut digits = [0; 32];
    digits[..8].copy_from_slice(&part(96));
    digits[8..16].copy_from_slice(&part(64));
    digits[16..24].copy_from_slice(&part(32));
    digits[24..].copy_from_slice(&part(0));
    digits
}

/// Returns the digits of a number: computes all of them at once, each in a byte of a word.
#[inline]
fn eight_digits(number: u32) -> [u8; 8] {
    let halves = u64::from(number);
    let pairs = (halves | halves << 16) & 0x0000_ffff_0000_ffff;
    let bytes = (pairs | pairs << 8) & 0x00ff_00ff_00ff_00ff;
    let values = (bytes | bytes << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 in each byte whose digit is a letter.
    let letters = (values + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (values + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_digits_of_an_id_are_hexadecimal() {
        let mut rng = fastrand::Rng::with_seed(1);
        for number in (0..1_000).map(|_| rng.u128(..)).chain([0, 1, u128::MAX]) {
            assert_eq!(hexadecimal(number), *format!("{number:032x}").as_bytes());
        }
    }
}
