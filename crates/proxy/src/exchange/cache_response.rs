//! Use of the cache of a route by a response: what a server's head means for the cache, and the answer to a client from
//! a stored response.

use std::rc::Rc;
use std::sync::Arc;

use cache::{
    BodyReader, Cache, CacheMethod, NotStored, Object, RequestPolicy, ResponseTimes, Storable, StoredHead,
    decide_storing, invalidated_targets, invalidates,
};
use wire::{Framing, Header, ResponseHead, Version};

use super::response::HeadResult;
use super::suspended::Resumed;
use super::{StepResult, cache_fill};
use crate::caching::{
    AnswerHead, CacheFill, CacheRole, CacheStage, CacheUse, CachedBody, ClientProgress, Forwarded,
    Invalidation, PieceRest, StatusField, unix_now,
};
use crate::client_stream::ClientStream;
use crate::core::PollContext;
use crate::exchange_state::{Exchange, ExchangeStage, ResponseProgress};
use crate::field_names::is_identity_field;
use crate::outcome::{CacheResult, EndPhase, EndReason};
use crate::plan::{RouteCachePlan, RouteChange, Text};
use crate::route::RouteRequest;
use crate::suspended_request::SuspendedRequest;

/// Statuses of servers that a stale response may replace (RFC 5861 §4).
const ERROR_STATUSES: [u16; 4] = [500, 502, 503, 504];

/// A server's response that has its final head.
#[derive(Clone, Copy)]
pub(super) struct ServerHead<'a> {
    pub(super) head: &'a ResponseHead<'a, 'a>,
    /// Received bytes, of which the first `used` ones are the head.
    pub(super) input: &'a [u8],
    pub(super) used: usize,
}

/// Terms on which the response to a request may be stored.
struct StoringTerms<'a> {
    plan: &'a RouteCachePlan,
    store: &'a Arc<Cache>,
    route: usize,
    policy: RequestPolicy,
    forwarded: Forwarded,
    times: ResponseTimes,
}

impl Exchange {
    /// Handles the head of a server's response to a request of a route with a cache. `None`: it is forwarded as it is.
    #[cold]
    #[inline(never)]
    pub(super) fn take_response_to_cache(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        response: ServerHead<'_>,
    ) -> Option<HeadResult> {
        let CacheUse { plan, route, policy, role, forwarded, requested_at } = *self.caching.take()?;
        let store = plan.cache.store.get()?;
        let reason = match role {
            CacheRole::Forward => None,
            CacheRole::ForbiddenByRule => Some(NotStored::Rule),
            CacheRole::Invalidate(invalidation) => {
                if invalidates(CacheMethod::Unsafe, response.head.status) {
                    invalidate(store, &invalidation, response.head.headers);
                }
                None
            }
            CacheRole::Fill(fill) => {
                let times = ResponseTimes { requested_at, received_at: unix_now() };
                let terms = StoringTerms { plan: &plan, store, route, policy, forwarded, times };
                match self.take_filling_response(ctx, client, response, *fill, &terms) {
                    Ok(result) => return Some(result),
                    Err(reason) => Some(reason),
                }
            }
        };
        if let Some(reason) = reason {
            self.count_not_stored(route, reason);
        }
        self.forward_with_status(ctx, client, response, plan.status_field.then_some((forwarded, reason)))
    }

    /// Handles the response to a request that fills the cache.
    ///
    /// # Errors
    /// The reason for which the response is forwarded, and not stored.
    fn take_filling_response(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        response: ServerHead<'_>,
        fill: CacheFill,
        terms: &StoringTerms<'_>,
    ) -> Result<HeadResult, NotStored> {
        let StoringTerms { plan, store, route, policy, times, .. } = terms;
        let (status, fields) = (response.head.status, response.head.headers);
        if let Some(stale) = &fill.stale {
            let stale = Arc::clone(stale);
            if status == 304 && fill.validates {
                let object = store.refresh(&stale, policy, fields, *times, &plan.rules);
                return Ok(self.finish_validation(ctx, client, response, fill, &object));
            }
            if ERROR_STATUSES.contains(&status) && fill.may_answer_errors {
                return Ok(self.replace_error(ctx, client, response, fill, &stale));
            }
        }
        let (key, is_background) = (fill.fill.key().clone(), fill.is_background);
        let decided = self.is_fit_to_store(response.head);
        let decided = decided.and_then(|()| decide_storing(policy, status, fields, *times, &plan.rules));
        let stored = match decided {
            Ok(storable) => self.store_response(ctx, client, response, fill, (storable, terms)),
            Err(reason) => {
                fill.fill.abandon(reason);
                Err(reason)
            }
        };
        stored.or_else(|reason| {
            if reason.is_lasting() {
                store.mark_uncacheable(&key, unix_now());
            }
            if !is_background {
                return Err(reason);
            }
            self.count_not_stored(*route, reason);
            self.attempt.keeps_server = false;
            Ok(HeadResult::Failed(StepResult::Finished(self.finish(ctx, client))))
        })
    }

    fn count_not_stored(&self, route: usize, reason: NotStored) {
        if let Some(generation) = &self.generation {
            generation.metrics.count_not_stored(route, reason);
        }
    }

    /// Forwards a response that is not stored, with `Cache-Status`. `None`: as it is.
    fn forward_with_status(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        ServerHead { head, input, used }: ServerHead<'_>,
        status: Option<(Forwarded, Option<NotStored>)>,
    ) -> Option<HeadResult> {
        let (forwarded, reason) = status.filter(|_| !head.is_switching_protocols())?;
        let value = StatusField::forwarded(forwarded, None, Err(reason), unix_now());
        let mut headers = head.headers.to_vec();
        headers.push(Header { name: "Cache-Status", value: value.as_bytes() });
        let head = &ResponseHead { headers: &headers, ..*head };
        if let Some(result) = self.replace_content(ctx, client, head, &input[used..]) {
            return Some(HeadResult::Failed(result));
        }
        if let Some(result) = self.begin_own_content(ctx.core, client, head, used) {
            return Some(result);
        }
        self.write_head(ctx.core, client, head, false);
        Some(HeadResult::Final(used))
    }

    /// Returns whether the proxy can store a response and compare later requests with its own.
    ///
    /// # Errors
    /// The reason against it.
    fn is_fit_to_store(&self, head: &ResponseHead<'_, '_>) -> Result<(), NotStored> {
        // Its end is not near, and its pauses are long.
        if super::response::is_event_stream(head) || !self.request_relay.is_done() {
            return Err(NotStored::Incomplete);
        }
        let names = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("vary"));
        let mut names =
            names.flat_map(|header| header.value.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
        match names.any(|name| std::str::from_utf8(name).is_ok_and(|name| self.is_written_by_proxy(name))) {
            // Later requests do not have the value that this one got.
            true => Err(NotStored::VaryAny),
            false => Ok(()),
        }
    }

    /// Returns whether the value of a request's field that the server gets may be one of the proxy, which tells clients apart.
    fn is_written_by_proxy(&self, name: &str) -> bool {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let own = self.own_settings.as_ref();
        let is_id = own.and_then(|own| own.forwarding.request_id.as_deref()).is_some_and(is);
        let generation = self.generation.as_ref();
        let listener = generation.map(|generation| &generation.plan.listeners[self.listener]);
        let certificate_field = listener.and_then(|listener| listener.tls.as_ref()?.client_header.as_deref());
        let route = generation.zip(self.outcome.route).map(|(live, index)| &live.plan.routes[index]);
        let is_changed = route.is_some_and(|route| {
            route.changes.iter().any(|change| match change {
                RouteChange::SetRequestHeader(field, Text::Template(_))
                | RouteChange::AddRequestHeader(field, Text::Template(_)) => is(field),
                _ => false,
            })
        });
        let is_of_auth = self.access.as_ref().is_some_and(|access| has_line(&access.server_lines, name));
        is_identity_field(name) || is_id || certificate_field.is_some_and(is) || is_changed || is_of_auth
    }

    /// Takes the head of a response that may be stored, and leaves its body to the cache, from which its client gets it.
    ///
    /// # Errors
    /// The reason for which it is not stored.
    fn store_response(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        ServerHead { head, input, used }: ServerHead<'_>,
        fill: CacheFill,
        (storable, terms): (Storable, &StoringTerms<'_>),
    ) -> Result<HeadResult, NotStored> {
        let CacheFill { mut fill, request, stale, is_background, .. } = fill;
        let length = match head.framing {
            Framing::Length(bytes) => Some(bytes),
            Framing::None => Some(0),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let stored_head = StoredHead::new(head.status, head.headers);
        let mut slots = wire::header_slots();
        let fields = request.headers(&mut slots);
        let object = fill.store_head(stored_head, storable, fields, length)?;
        self.attempt.keeps_server = head.keep_alive;
        let progress = (!is_background).then(Rc::<ClientProgress>::default);
        let received = cache_fill::Received {
            store: terms.store,
            route: terms.route,
            framing: head.framing,
            rest: &input[used..],
        };
        self.fill_cache(ctx, client, fill, &object, received, progress.as_ref().map(Rc::downgrade));
        if is_background {
            return Ok(HeadResult::Failed(StepResult::Finished(self.finish(ctx, client))));
        }
        let server_status = stale.is_some().then_some(head.status);
        let status = StatusField::forwarded(terms.forwarded, server_status, Ok(&object), unix_now());
        let is_served = self.resume_request(ctx, client, &request, |exchange, ctx, client, resumed| {
            let Resumed { request, .. } = resumed;
            exchange.serve(ctx, client, request, (&object, status), progress);
        });
        Ok(HeadResult::Failed(match is_served {
            true => StepResult::Progressed,
            false => self.fail(ctx, client, EndReason::BadResponse, EndPhase::Head),
        }))
    }

    /// Answers from a stored response that its server has validated.
    fn finish_validation(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        ServerHead { head, input, used }: ServerHead<'_>,
        CacheFill { fill, request, is_background, .. }: CacheFill,
        object: &Arc<Object>,
    ) -> HeadResult {
        fill.finish_with(object);
        // A 304 has no content; further bytes were not requested.
        self.attempt.keeps_server = head.keep_alive && input.len() == used;
        if is_background {
            return HeadResult::Failed(StepResult::Finished(self.finish(ctx, client)));
        }
        self.release_server(ctx, client);
        self.outcome.cache = Some(CacheResult::Revalidated);
        let status = StatusField::forwarded(Forwarded::Stale, Some(304), Ok(object), unix_now());
        self.serve_suspended(ctx, client, &request, (object, status))
    }

    /// Answers from a stale response instead of a server's error.
    fn replace_error(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        ServerHead { head, input, used }: ServerHead<'_>,
        CacheFill { fill, request, is_background, .. }: CacheFill,
        stale: &Arc<Object>,
    ) -> HeadResult {
        fill.finish_with(stale);
        let rest_bytes = input.len() - used;
        let is_whole = match head.framing {
            Framing::None => rest_bytes == 0,
            Framing::Length(bytes) => usize::try_from(bytes).is_ok_and(|bytes| bytes == rest_bytes),
            Framing::Chunked | Framing::UntilClose => false,
        };
        self.attempt.keeps_server = head.keep_alive && is_whole;
        if !self.attempt.keeps_server {
            self.server = None;
        }
        self.release_server(ctx, client);
        if is_background {
            return HeadResult::Failed(StepResult::Finished(self.finish(ctx, client)));
        }
        self.outcome.cache = Some(CacheResult::StaleIfError);
        let status = StatusField::forwarded(Forwarded::Stale, Some(head.status), Ok(stale), unix_now());
        self.serve_suspended(ctx, client, &request, (stale, status))
    }

    /// Answers from a stale response because no server responds. Returns false if there is none, or it must not be used.
    #[cold]
    pub(super) fn replace_failure(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        end: EndReason,
    ) -> bool {
        let is_usable = |caching: &CacheUse| match &caching.role {
            CacheRole::Fill(fill) => fill.may_answer_errors && fill.stale.is_some() && !fill.is_background,
            _ => false,
        };
        if !self.caching.as_deref().is_some_and(is_usable) || end.status() < 500 {
            return false;
        }
        let Some(caching) = self.caching.take() else { return false };
        let CacheUse { role: CacheRole::Fill(fill), .. } = *caching else { return false };
        let CacheFill { fill, request, stale: Some(stale), .. } = *fill else { return false };
        fill.finish_with(&stale);
        self.outcome.cache = Some(CacheResult::StaleIfError);
        let status = StatusField::forwarded(Forwarded::Stale, None, Ok(&stale), unix_now());
        self.resume_request(ctx, client, &request, |exchange, ctx, client, resumed| {
            exchange.serve(ctx, client, resumed.request, (&stale, status), None);
        })
    }

    fn serve_suspended(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        request: &SuspendedRequest,
        (object, status): (&Arc<Object>, StatusField),
    ) -> HeadResult {
        let is_served = self.resume_request(ctx, client, request, |exchange, ctx, client, resumed| {
            exchange.serve(ctx, client, resumed.request, (object, status), None);
        });
        HeadResult::Failed(match is_served {
            true => StepResult::Progressed,
            false => self.fail(ctx, client, EndReason::BadResponse, EndPhase::Head),
        })
    }

    /// Starts the answer to a request from a stored response.
    pub(super) fn serve(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        request: &RouteRequest<'_>,
        (object, status): (&Arc<Object>, StatusField),
        progress: Option<Rc<ClientProgress>>,
    ) {
        let plan = self.own_settings.as_ref().and_then(|own| own.cache.as_ref());
        let status = Some(status).filter(|_| plan.is_some_and(|plan| plan.status_field));
        let asked = (request.method, request.view.head.headers);
        let answer = AnswerHead::new(object, asked, status, unix_now());
        let head = ResponseHead {
            version: Version::Http11,
            status: answer.status,
            reason: wire::encode::reason(answer.status),
            headers: &answer.fields(object),
            framing: answer.framing(),
            keep_alive: true,
            upgrade: None,
            has_connection_options: false,
            received: b"",
        };
        self.outcome.status = head.status;
        self.outcome.end = EndReason::Done;
        self.outcome.phase = EndPhase::Over;
        if self.replace_stored_content(ctx, client, &head) {
            return;
        }
        let codec = self.begin_recoding(ctx.core, client, &head);
        if codec.is_none() {
            self.write_head(ctx.core, client, &head, false);
        }
        let codec = codec.flatten();
        self.response = match head.framing {
            Framing::None => ResponseProgress::Done,
            Framing::Length(0) if codec.is_none() => ResponseProgress::Done,
            _ => ResponseProgress::Body,
        };
        if head.framing == Framing::Chunked && codec.is_none() {
            self.response_relay.receive_until_close();
        }
        let body = CachedBody {
            reader: BodyReader::new(object.body(), answer.range.clone()),
            rest: PieceRest::default(),
            codec,
            has_begun: false,
            request: object.body().is_on_disk().then(|| request.suspended()),
            progress,
        };
        self.stage = ExchangeStage::Cached(Box::new(CacheStage::Sending(body)));
        client.disarm();
        self.begin_limits();
    }

    /// Replaces the content of a stored error by the page for its status. Returns false if there is none.
    fn replace_stored_content(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &ClientStream,
        head: &ResponseHead<'_, '_>,
    ) -> bool {
        let replaced = self.own_settings.as_ref().and_then(|own| own.replaced.as_ref());
        if !replaced.is_some_and(|statuses| statuses.contains(head.status)) {
            return false;
        }
        let is_kept = |name: &str| ["age", "cache-status"].iter().any(|kept| name.eq_ignore_ascii_case(kept));
        let kept = head.headers.iter().filter(|header| is_kept(header.name));
        let fields: Vec<(&str, &[u8])> = kept.map(|header| (header.name, header.value)).collect();
        let is_written = self.write_error_page(ctx.core, client, head.status, &fields);
        if is_written {
            self.outcome.end = EndReason::Done;
            self.outcome.phase = EndPhase::Over;
        }
        is_written
    }
}

/// Removes what a successful response to an unsafe method makes outdated (RFC 9111 §4.4).
fn invalidate(store: &Arc<Cache>, invalidation: &Invalidation, headers: &[Header<'_>]) {
    store.purge(&invalidation.key);
    let Some(start) = &invalidation.default_key else { return };
    for target in invalidated_targets(headers, invalidation.scheme, &invalidation.authority) {
        store.purge(&store.key(&[start, target.as_bytes()].concat()));
    }
}

/// Returns whether lines of fields have one with this name.
fn has_line(lines: &[u8], name: &str) -> bool {
    lines.split(|&byte| byte == b'\n').any(|line| {
        let own_name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        own_name.eq_ignore_ascii_case(name.as_bytes())
    })
}
