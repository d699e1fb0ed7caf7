//! Use of the cache of a route before a request is forwarded: the look-up, the wait for an equal request, and the
//! request to the server that stores or validates a response.

use std::borrow::Cow;
use std::sync::Arc;

use cache::{
    BeginFill, Cache, CacheMethod, Fill, Freshness, KEY_BYTES_MAX, Key, Lookup, Object, RequestPolicy,
};
use rt::clock::MonotonicTime;
use wire::{Framing, Header, RequestHead, RequestKind};

use super::cache_refresh::with_filling_request;
use super::finish::OwnResponse;
use crate::caching::{
    CacheFill, CacheRole, CacheStage, CacheUse, CacheWait, Forwarded, Invalidation, StatusField, WaitSource,
    unix_now,
};
use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::core::PollContext;
use crate::exchange_state::{Exchange, ExchangeStage};
use crate::field_names::is_connection_option;
use crate::forward::origin_form;
use crate::outcome::CacheResult;
use crate::plan::{Condition, PoolId, RouteCachePlan};
use crate::request_view::{AuthenticatedFacts, RequestView};
use crate::route::RouteRequest;
use crate::route::conditions::ComparedPath;
use crate::route::when::holds;

/// First byte up to which a range waits for the whole response, which arrives from its start.
const EARLY_RANGE_BYTES: u64 = 1024 * 1024;

/// Fields whose conditions only a server can evaluate.
const SERVER_CONDITIONS: [&str; 2] = ["if-match", "if-unmodified-since"];

/// A request of a route with a cache.
pub(super) struct CachedRequest<'a> {
    pub(super) generation: &'a ConfigGeneration,
    pub(super) request: &'a RouteRequest<'a>,
    pub(super) plan: &'a Arc<RouteCachePlan>,
    pub(super) store: &'a Arc<Cache>,
    pub(super) route: usize,
    pub(super) pool: PoolId,
    pub(super) policy: RequestPolicy,
    pub(super) key: Key,
    pub(super) is_forbidden: bool,
    /// Time until which it may wait for other requests.
    pub(super) due: MonotonicTime,
}

impl CachedRequest<'_> {
    pub(super) fn headers(&self) -> &[Header<'_>] {
        self.request.view.head.headers
    }
}

/// Next step of a request of a route with a cache.
pub(super) enum Step {
    /// It was answered, or waits.
    Taken,
    /// It is forwarded as it is.
    Forward(CacheRole, Forwarded),
    /// It is forwarded, and its response is stored or validates a stored one.
    Fill(Fill, Option<(Arc<Object>, bool)>, Forwarded),
}

impl Exchange {
    /// Uses the cache of a route for a request. Returns false if the request is forwarded as on other routes.
    #[cold]
    #[inline(never)]
    pub(super) fn follow_cache(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        (route, pool): (usize, PoolId),
        request: &RouteRequest<'_>,
        now: MonotonicTime,
    ) -> bool {
        let Some(plan) = self.own_settings.as_ref().and_then(|own| own.cache.clone()) else { return false };
        // Another protocol, and calls that may go on in both directions, are no matter of a cache.
        let is_other = self.facts.kind == RequestKind::Connect
            || self.facts.is_grpc
            || request.view.head.upgrade.is_some();
        let Some(store) = plan.cache.store.get().filter(|_| !is_other) else { return false };
        let due = now.saturating_add(plan.coalesce_ns);
        // Fields of the connection go to no server, so they select no response.
        let headers = end_to_end_fields(request.view.head);
        let head = RequestHead { headers: &headers, has_connection_options: false, ..*request.view.head };
        let view = RequestView { head: &head, ..*request.view };
        let request = &RouteRequest { view: &view, ..*request };
        let prepared = self.prepare_cached(client, generation, (route, pool), request, (&plan, store), due);
        let Some((cached, step)) = prepared else {
            return false;
        };
        let step = match step {
            Some(step) => step,
            None => self.look_up(ctx, client, &cached),
        };
        self.take_step(ctx, client, &cached, step)
    }

    /// Returns a request with its key, and its next step if that is no look-up. `None`: its key is too long.
    pub(super) fn prepare_cached<'a>(
        &mut self,
        client: &ClientStream,
        generation: &'a ConfigGeneration,
        (route, pool): (usize, PoolId),
        request: &'a RouteRequest<'a>,
        (plan, store): (&'a Arc<RouteCachePlan>, &'a Arc<Cache>),
        due: MonotonicTime,
    ) -> Option<(CachedRequest<'a>, Option<Step>)> {
        let view = request.view;
        let ignores = plan.rules.ignores_request_cache_control;
        let mut policy = RequestPolicy::parse(request.method, view.head.headers, ignores);
        policy.has_authorization |= self.is_identified(view);
        let key =
            store.key(&self.cache_key(plan, generation, pool, client, request, &request_target(request))?);
        let holds = |condition: &Option<Box<Condition>>| {
            let identity = self.access.as_ref().map(|access| &access.identity);
            let (mut buffer, mut stripped) = (String::new(), String::new());
            let path = ComparedPath::new(request.target, &mut buffer, &mut stripped);
            let facts = AuthenticatedFacts { client, identity };
            condition.as_ref().is_some_and(|condition| holds(condition, request, &facts, path))
        };
        let is_forbidden = holds(&plan.no_store);
        let has_server_condition =
            SERVER_CONDITIONS.iter().any(|name| wire::field_value(view.head.headers, name).is_some());
        let has_content = view.head.framing != Framing::None;
        let cached =
            CachedRequest { generation, request, plan, store, route, pool, policy, key, is_forbidden, due };
        let step = match policy.method {
            CacheMethod::Unsafe => {
                let role = CacheRole::Invalidate(Box::new(self.invalidation(client, &cached)));
                Some(Step::Forward(role, Forwarded::Method))
            }
            CacheMethod::OtherSafe => Some(Step::Forward(CacheRole::Forward, Forwarded::Method)),
            CacheMethod::Get | CacheMethod::Head if has_content || has_server_condition => {
                Some(Step::Forward(CacheRole::Forward, Forwarded::Bypass))
            }
            CacheMethod::Get | CacheMethod::Head if holds(&plan.bypass) => {
                Some(begin_fill_at_once(&cached, Forwarded::Bypass))
            }
            CacheMethod::Get | CacheMethod::Head => None,
        };
        Some((cached, step))
    }

    /// Returns whether a request has a verified sender: by `auth` of its route, or by a certificate whose subject goes to
    /// the server. Its response may be for that sender alone.
    fn is_identified(&self, view: &RequestView<'_>) -> bool {
        let has_auth = self.own_settings.as_ref().and_then(|own| own.access.as_ref());
        has_auth.is_some_and(|access| access.auth.is_some())
            || view.certificate.is_some_and(|field| field.subject.is_some())
    }

    /// Returns the text of the key of a target. `None`: it is too long.
    fn cache_key(
        &self,
        plan: &RouteCachePlan,
        generation: &ConfigGeneration,
        pool: PoolId,
        client: &ClientStream,
        request: &RouteRequest<'_>,
        target: &[u8],
    ) -> Option<Vec<u8>> {
        let mut text = Vec::with_capacity(128);
        match &plan.key {
            Some(template) => {
                template.render_key(&self.request_values(generation, client, request), &mut text)
            }
            None => {
                let host = request.host.unwrap_or_default();
                for part in [&*generation.plan.pools[pool].name, "|", scheme(client, request.view), "|"] {
                    text.extend_from_slice(part.as_bytes());
                }
                text.extend(host.bytes().map(|byte| byte.to_ascii_lowercase()));
                text.extend_from_slice(target);
            }
        }
        (text.len() <= KEY_BYTES_MAX).then_some(text)
    }

    fn invalidation(&self, client: &ClientStream, cached: &CachedRequest<'_>) -> Invalidation {
        let request = cached.request;
        let target = request_target(request);
        let default_key = cached.plan.key.is_none().then(|| {
            let text = cached.key.text();
            text[..text.len() - target.len()].to_vec()
        });
        Invalidation {
            key: cached.key.clone(),
            default_key,
            scheme: scheme(client, request.view),
            authority: request.host.unwrap_or_default().into(),
        }
    }

    /// Searches the cache.
    pub(super) fn look_up(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        cached: &CachedRequest<'_>,
    ) -> Step {
        match cached.store.look_up(&cached.key, cached.headers(), unix_now()) {
            Lookup::Hit(object) => self.use_object(ctx, client, cached, object),
            Lookup::OnDisk(open) => {
                self.wait_for_cache(cached, WaitSource::Disk(open), false);
                Step::Taken
            }
            Lookup::Miss { may_coalesce } => self.miss(ctx, client, cached, may_coalesce),
        }
    }

    /// Answers a request from a stored response, if that may be used.
    pub(super) fn use_object(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        cached: &CachedRequest<'_>,
        object: Arc<Object>,
    ) -> Step {
        let now = unix_now();
        let result = match object.storable().freshness(now, &cached.policy) {
            Freshness::Fresh => CacheResult::Hit,
            Freshness::StaleAccepted => CacheResult::Stale,
            Freshness::StaleWhileRevalidate => {
                // A response to HEAD is not stored.
                if may_fill_whole(cached) {
                    self.refresh(ctx, client, cached, Some(&object));
                }
                CacheResult::Stale
            }
            Freshness::MustValidate { may_answer_errors } => {
                return self.validate(ctx, client, cached, object, may_answer_errors);
            }
        };
        self.outcome.cache = Some(result);
        let status = StatusField::hit(&object, now);
        self.serve(ctx, client, cached.request, (&object, status), None);
        Step::Taken
    }

    pub(super) fn miss(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        cached: &CachedRequest<'_>,
        may_coalesce: bool,
    ) -> Step {
        if cached.policy.only_if_cached {
            return self.respond_unsatisfied(ctx, client);
        }
        if cached.is_forbidden {
            return Step::Forward(CacheRole::ForbiddenByRule, Forwarded::UriMiss);
        }
        if !may_fill(cached) {
            return self.miss_part(ctx, client, cached, may_coalesce, Forwarded::UriMiss);
        }
        let coalesces = may_coalesce && self.may_wait(ctx, cached);
        match cached.store.begin_fill(&cached.key, cached.headers(), coalesces) {
            BeginFill::Leader(fill) => Step::Fill(fill, None, Forwarded::UriMiss),
            BeginFill::Filling(waiter) => {
                self.wait_for_cache(cached, WaitSource::Fill(waiter), false);
                Step::Taken
            }
            BeginFill::Busy => Step::Forward(CacheRole::Forward, Forwarded::UriMiss),
        }
    }

    /// Handles a request whose own response is not stored. For a part of a response, the whole one is fetched in the
    /// background, unless an earlier one was not fit to be stored: a part near its start waits for it.
    fn miss_part(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        cached: &CachedRequest<'_>,
        may_coalesce: bool,
        reason: Forwarded,
    ) -> Step {
        // A range of another unit has no parts that the whole would answer.
        if may_coalesce && may_fill_whole(cached) && byte_ranges(cached.headers()).is_some() {
            let is_own = self.refresh(ctx, client, cached, None);
            self.keep_values_again(ctx, client, (cached.generation, cached.route), cached.request);
            if self.may_wait(ctx, cached)
                && begins_early(cached.headers())
                && let BeginFill::Filling(waiter) =
                    cached.store.begin_fill(&cached.key, cached.headers(), true)
            {
                self.wait_for_cache(cached, WaitSource::Fill(waiter), is_own);
                return Step::Taken;
            }
        }
        Step::Forward(CacheRole::Forward, reason)
    }

    /// Validates a stored response that must not be used without that.
    fn validate(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        cached: &CachedRequest<'_>,
        object: Arc<Object>,
        may_answer_errors: bool,
    ) -> Step {
        if cached.policy.only_if_cached {
            return self.respond_unsatisfied(ctx, client);
        }
        let reason = match object.storable().ttl_s(unix_now()) > 0 {
            true => Forwarded::Request,
            false => Forwarded::Stale,
        };
        if cached.is_forbidden {
            return Step::Forward(CacheRole::ForbiddenByRule, reason);
        }
        // A validated response has all parts.
        let may_validate = cached.policy.may_fill() && object.storable().has_validator();
        if !may_fill(cached) && !may_validate {
            return self.miss_part(ctx, client, cached, true, reason);
        }
        // A request that asks for a validation gets one of its own.
        let coalesces = !cached.policy.no_cache && self.may_wait(ctx, cached);
        match cached.store.begin_fill(&cached.key, cached.headers(), coalesces) {
            BeginFill::Leader(fill) => Step::Fill(fill, Some((object, may_answer_errors)), reason),
            BeginFill::Filling(waiter) => {
                self.wait_for_cache(cached, WaitSource::Fill(waiter), false);
                Step::Taken
            }
            BeginFill::Busy => Step::Forward(CacheRole::Forward, reason),
        }
    }

    fn may_wait(&self, ctx: &PollContext<'_, '_>, cached: &CachedRequest<'_>) -> bool {
        cached.plan.coalesce_ns > 0 && cached.due > ctx.core.ticks.now.get()
    }

    /// Responds to a request that allows only a stored response (RFC 9111 §5.2.1.7).
    fn respond_unsatisfied(&mut self, ctx: &PollContext<'_, '_>, client: &ClientStream) -> Step {
        self.outcome.cache = Some(CacheResult::Unsatisfied);
        let body = b"504 Gateway Timeout: the request allows only a stored response, and none is usable\n";
        let response = OwnResponse { status: 504, content_type: "text/plain", body, fields: &[] };
        self.respond(ctx.core, client, &response);
        Step::Taken
    }

    /// Follows the next step of a request. Returns false if the request is forwarded as it is.
    pub(super) fn take_step(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        cached: &CachedRequest<'_>,
        step: Step,
    ) -> bool {
        let result = |reason: Forwarded| match reason {
            Forwarded::Bypass | Forwarded::Method => CacheResult::Bypass,
            _ => CacheResult::Miss,
        };
        match step {
            Step::Taken => true,
            Step::Forward(role, reason) => {
                self.outcome.cache = Some(result(reason));
                self.caching = Some(Box::new(cache_use(cached, role, reason)));
                false
            }
            Step::Fill(fill, stale, reason) => {
                self.outcome.cache = Some(result(reason));
                let (stale, may_answer_errors) = match stale {
                    Some((object, may_answer_errors)) => (Some(object), may_answer_errors),
                    None => (None, false),
                };
                let validators = stale.as_ref().filter(|object| object.storable().has_validator());
                let fill = CacheFill {
                    fill,
                    request: cached.request.suspended(),
                    validates: validators.is_some(),
                    stale: stale.clone(),
                    may_answer_errors,
                    is_background: false,
                };
                let role = CacheRole::Fill(Box::new(fill));
                self.caching = Some(Box::new(cache_use(cached, role, reason)));
                with_filling_request(cached.request, validators.map(|object| &**object), |request| {
                    let route_and_pool = (cached.route, cached.pool);
                    let now = MonotonicTime::now();
                    self.forward_behind_cache(ctx, client, cached.generation, route_and_pool, request, now);
                });
                true
            }
        }
    }

    fn wait_for_cache(&mut self, cached: &CachedRequest<'_>, source: WaitSource, is_own: bool) {
        self.stage = ExchangeStage::Cached(Box::new(CacheStage::Waiting(CacheWait {
            request: cached.request.suspended(),
            pool: cached.pool,
            source,
            due: cached.due,
            is_own,
        })));
    }

    /// Counts the use of a cache by a request.
    #[cold]
    pub(super) fn count_cache_result(&self) {
        if let (Some(result), Some(route), Some(generation)) =
            (self.outcome.cache, self.outcome.route, &self.generation)
        {
            generation.metrics.count_cache_result(route, result);
        }
    }
}

/// Returns whether the response to a request may be stored, as far as the request decides that. A part of a response
/// is not.
pub(super) fn may_fill(cached: &CachedRequest<'_>) -> bool {
    may_fill_whole(cached) && !cached.policy.has_range
}

/// Does the same for the whole of a response of which a part may be asked for.
fn may_fill_whole(cached: &CachedRequest<'_>) -> bool {
    cached.policy.may_fill() && !cached.is_forbidden
}

/// Returns the ranges of bytes that a request asks for (RFC 9110 14.2). The case of a unit has no meaning (14.1).
fn byte_ranges<'a>(headers: &[Header<'a>]) -> Option<&'a [u8]> {
    let (unit, ranges) = wire::field_value(headers, "range")?.split_at_checked("bytes=".len())?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(ranges)
}

/// Returns whether a request is for one range that begins near the start of the content.
fn begins_early(headers: &[Header<'_>]) -> bool {
    let start = byte_ranges(headers).filter(|ranges| !ranges.contains(&b',')).and_then(|range| {
        let digits = range.split(|&byte| byte == b'-').next()?;
        std::str::from_utf8(digits).ok()?.trim().parse::<u64>().ok()
    });
    start.is_some_and(|start| start <= EARLY_RANGE_BYTES)
}

/// Begins to fill without a wait for others.
pub(super) fn begin_fill_at_once(cached: &CachedRequest<'_>, reason: Forwarded) -> Step {
    if cached.is_forbidden {
        return Step::Forward(CacheRole::ForbiddenByRule, reason);
    }
    if !may_fill(cached) {
        return Step::Forward(CacheRole::Forward, reason);
    }
    match cached.store.begin_fill(&cached.key, cached.headers(), false) {
        BeginFill::Leader(fill) => Step::Fill(fill, None, reason),
        BeginFill::Filling(_) | BeginFill::Busy => Step::Forward(CacheRole::Forward, reason),
    }
}

pub(super) fn cache_use(cached: &CachedRequest<'_>, role: CacheRole, forwarded: Forwarded) -> CacheUse {
    CacheUse {
        plan: Arc::clone(cached.plan),
        route: cached.route,
        policy: cached.policy,
        role,
        forwarded,
        requested_at: unix_now(),
    }
}

fn request_target<'a>(request: &RouteRequest<'a>) -> Cow<'a, [u8]> {
    origin_form(request.method, request.target)
}

/// Returns the scheme of the client's URL: that of its connection, or the statement of a trusted peer in front of it.
fn scheme(client: &ClientStream, view: &RequestView<'_>) -> &'static str {
    let stated = view.value("x-forwarded-proto").filter(|_| view.is_trusted);
    match stated {
        Some(b"https") => "https",
        Some(b"http") => "http",
        _ if client.is_tls() => "https",
        _ => "http",
    }
}

/// Returns the fields of a request that are for its server.
fn end_to_end_fields<'h>(head: &RequestHead<'h, 'h>) -> Cow<'h, [Header<'h>]> {
    if !head.has_connection_options {
        return Cow::Borrowed(head.headers);
    }
    let is_kept = |header: &&Header<'_>| {
        !header.name.eq_ignore_ascii_case("connection") && !is_connection_option(head.headers, header.name)
    };
    Cow::Owned(head.headers.iter().filter(is_kept).copied().collect())
}
