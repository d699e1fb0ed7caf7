//! Requests in the background that validate a stale response, or that fetch the whole of one of which a client wants a
//! part; and the request to a server that fills the cache.

use std::rc::Rc;
use std::sync::Arc;

use cache::{BeginFill, Object, validation_fields};
use wire::{Header, RequestHead, RequestKind};

use super::cache_lookup::{CachedRequest, cache_use};
use super::subrequest::{self, Subrequest};
use crate::caching::{CacheFill, CacheRole, Forwarded, REFRESHES_MAX};
use crate::client_stream::ClientStream;
use crate::core::PollContext;
use crate::exchange_state::Exchange;
use crate::metrics::CacheRefresh;
use crate::request_view::RequestView;
use crate::route::RouteRequest;

/// Fields of a request that the proxy answers, so that a server which fills the cache does not get them.
const ANSWERED_FIELDS: [&str; 4] = ["if-none-match", "if-modified-since", "if-range", "range"];

impl Exchange {
    /// Validates a stale response in the background, or fetches one that is not stored. Returns whether a request for it
    /// was started.
    pub(super) fn refresh(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &ClientStream,
        cached: &CachedRequest<'_>,
        stale: Option<&Arc<Object>>,
    ) -> bool {
        let (Some(generation), Some(own)) = (self.generation.clone(), self.own_settings.clone()) else {
            return false;
        };
        let load = &ctx.core.load.cache_refreshes;
        if load.get() >= REFRESHES_MAX {
            generation.metrics.count_cache_refresh(cached.route, CacheRefresh::Refused);
            return false;
        }
        // One at a time.
        let BeginFill::Leader(fill) = cached.store.begin_fill(&cached.key, cached.headers(), true) else {
            return false;
        };
        let validators = stale.map(|object| &**object).filter(|object| object.storable().has_validator());
        let Some(message) = self.refresh_message(ctx, client, cached, validators) else { return false };
        let fill = CacheFill {
            fill,
            request: cached.request.suspended(),
            stale: stale.cloned(),
            validates: validators.is_some(),
            may_answer_errors: false,
            is_background: true,
        };
        let forwarded = if stale.is_some() { Forwarded::Stale } else { Forwarded::UriMiss };
        let caching = cache_use(cached, CacheRole::Fill(Box::new(fill)), forwarded);
        let timeout_ns =
            own.total_ns.unwrap_or_else(|| own.server.first_byte_ns.saturating_add(own.server.connect_ns));
        let request = Subrequest {
            pool: cached.pool,
            kind: RequestKind::Other,
            is_idempotent: true,
            message,
            timeout_ns,
            content_bytes_max: 0,
            keeps_content: false,
        };
        let running =
            subrequest::start_filling(client, &generation, self.listener, request, (Box::new(caching), own));
        let Ok(running) = running else {
            generation.metrics.count_cache_refresh(cached.route, CacheRefresh::Refused);
            return false;
        };
        generation.metrics.count_cache_refresh(cached.route, CacheRefresh::Started);
        load.set(load.get() + 1);
        let core = Rc::clone(ctx.core);
        rt::tokio::task::spawn_local(async move {
            // The exchange stores the response itself.
            let _ = running.await;
            core.load.cache_refreshes.set(core.load.cache_refreshes.get() - 1);
        });
        true
    }

    /// Returns the head of a request that fills the cache. `None`: one of its texts is too long.
    fn refresh_message(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &ClientStream,
        cached: &CachedRequest<'_>,
        validators: Option<&Object>,
    ) -> Option<Vec<u8>> {
        let is_written = with_filling_request(cached.request, validators, |request| {
            self.write_upstream_head(ctx.work, client, cached.generation, cached.pool, request)
        });
        // The request itself goes to no server.
        let message = std::mem::take(self.request_relay.head_buffer());
        self.request_relay.forget_sent();
        is_written.then_some(message)
    }
}

/// Calls `forward` with the request that fills the cache: without the conditions and ranges that the proxy answers,
/// and with the validators of a stored response.
pub(super) fn with_filling_request<R>(
    request: &RouteRequest<'_>,
    validated: Option<&Object>,
    forward: impl FnOnce(&RouteRequest<'_>) -> R,
) -> R {
    let head = request.view.head;
    let is_kept =
        |header: &&Header<'_>| !ANSWERED_FIELDS.iter().any(|name| header.name.eq_ignore_ascii_case(name));
    let mut headers: Vec<Header<'_>> = head.headers.iter().filter(is_kept).copied().collect();
    let fields = validated.into_iter().flat_map(|object| validation_fields(object.storable()));
    headers.extend(fields.map(|(name, value)| Header { name, value }));
    let head = RequestHead { headers: &headers, ..*head };
    let view = RequestView { head: &head, ..*request.view };
    forward(&RouteRequest { view: &view, ..*request })
}
