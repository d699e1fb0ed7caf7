//! Inputs of the server selection from an exchange, and feedback to it. `balance` makes the
//! selection and defines the form of the sticky cookie.

use std::net::IpAddr;

use rt::clock::MonotonicTime;

use crate::balance::sticky::{CookieTimes, StickyCookie, unix_s};
use crate::balance::{FAILED_LATENCY_MIN_NS, digest_key, digest_source};
use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::core::WorkBuffers;
use crate::exchange_state::{Exchange, ServerSlot};
use crate::key_digest::digest;
use crate::outcome::{EndReason, StickyLookup};
use crate::plan::{Balance, HashKey, PoolId, ServerId, Sticky};
use crate::pool::{Pool, ServerRequirements};
use crate::route::{RouteRequest, RouteScratch};

impl Exchange {
    /// Returns the request's requirements on a server of the pool. Reads only the parts of the head
    /// that the pool's settings refer to.
    // The request behind a cache must not keep the path of each other one from being one function.
    #[inline(always)]
    pub(super) fn server_requirements(
        &mut self,
        generation: &ConfigGeneration,
        pool: PoolId,
        client: &ClientStream,
        request: &RouteRequest<'_>,
        work: &mut WorkBuffers,
    ) -> ServerRequirements {
        let pool = &generation.pools[pool];
        let plan = pool.plan();
        let mut requirements = ServerRequirements::default();
        if plan.balance == Balance::ConsistentHash {
            let RouteScratch { path, key, .. } = &mut work.route_scratch;
            requirements.key = digest_key(&plan.hash.key, request, path, |template| {
                template.render_key(&self.request_values(generation, client, request), key);
                key
            });
        }
        if let Some(sticky) = &plan.sticky {
            let found = match (sticky, pool.tokens()) {
                (Sticky::Cookie(sticky), Some(tokens)) => {
                    let found = tokens.find_in_cookies(sticky, request.view.ordinary_lines("cookie"), unix_s);
                    found.map(|found| {
                        requirements.pinned_since_s = found.times.since_s;
                        found.server
                    })
                }
                (Sticky::Text(sticky), _) => {
                    let key = &mut work.route_scratch.key;
                    sticky.key.render_key(&self.request_values(generation, client, request), key);
                    if key.is_empty() {
                        return requirements;
                    }
                    let key = digest(key);
                    // No other choice by a key goes with it.
                    requirements.key = Some(key);
                    pool.find_session(key, self.outcome.times.head)
                }
                (Sticky::Cookie(_), None) => return requirements,
            };
            let lookup = match found {
                Ok(server) if pool.accepts_sticky(server, self.outcome.times.head) => {
                    requirements.pinned = Some(server);
                    StickyLookup::Hit
                }
                Ok(_) => StickyLookup::Down,
                Err(failure) => failure,
            };
            self.outcome.sticky = Some(lookup);
        }
        requirements
    }

    /// Returns the same for a connection whose bytes are not parsed.
    pub(super) fn tcp_server_requirements(pool: &Pool, source: Option<IpAddr>) -> ServerRequirements {
        let plan = pool.plan();
        let is_by_source = plan.balance == Balance::ConsistentHash && plan.hash.key == HashKey::Source;
        ServerRequirements {
            key: digest_source(source).filter(|_| is_by_source),
            ..ServerRequirements::default()
        }
    }

    /// Records the response latency of the server, once the head of its response has arrived.
    pub(super) fn record_response_latency(&self) {
        let Some(ServerSlot { pool, server }) = &self.slot else {
            return;
        };
        if !pool.uses_latency() {
            return;
        }
        let times = &self.outcome.times;
        let elapsed_ns = times.first_byte.since(times.dispatched);
        // With these statuses a server, or a gateway before it, reports that it cannot respond just
        // now.
        let has_failed = matches!(self.outcome.status, 502..=504);
        let min_ns = if has_failed { FAILED_LATENCY_MIN_NS } else { 0 };
        pool.record_latency(*server, elapsed_ns.max(min_ns), times.first_byte);
    }

    /// Records the connect latency of a server in mode tcp, the only latency that is known there.
    pub(super) fn record_connect_latency(&self) {
        if let Some(ServerSlot { pool, server }) = &self.slot
            && pool.uses_latency()
        {
            let times = &self.outcome.times;
            let elapsed_ns = times.connected.since(times.dispatched);
            pool.record_latency(*server, elapsed_ns, times.connected);
        }
    }

    /// Records a failure, if `end` means that the server is at fault.
    pub(super) fn record_failure_latency(
        &self,
        pool: &Pool,
        server: ServerId,
        end: EndReason,
        now: MonotonicTime,
    ) {
        let is_server_fault = matches!(
            end,
            EndReason::ConnectFailed
                | EndReason::ConnectTimeout
                | EndReason::TlsHandshakeFailed
                | EndReason::NoHttp2
                | EndReason::ServerClosed
                | EndReason::ServerTimeout
                | EndReason::BadResponse
        );
        if is_server_fault && pool.uses_latency() {
            let elapsed_ns = now.since(self.outcome.times.dispatched);
            pool.record_latency(server, elapsed_ns.max(FAILED_LATENCY_MIN_NS), now);
        }
    }
}

/// Returns the sticky cookie of the response: the token of the server that responded. It is due if
/// the client does not have it yet, or if it has a maximum age. A session that is known by a text has no cookie: its
/// server is remembered.
pub(super) fn response_cookie(
    slot: Option<&ServerSlot>,
    requirements: ServerRequirements,
    lookup: Option<StickyLookup>,
    is_tls: bool,
) -> Option<StickyCookie<'_>> {
    let ServerSlot { pool, server } = slot?;
    let plan = match pool.plan().sticky.as_ref()? {
        Sticky::Cookie(plan) => plan,
        Sticky::Text(_) => {
            let is_known = lookup == Some(StickyLookup::Hit) && requirements.pinned == Some(*server);
            if let Some(key) = requirements.key.filter(|_| !is_known) {
                pool.remember_session(key, *server, lookup);
            }
            return None;
        }
    };
    let token = pool.tokens()?.token(*server);
    let has_cookie = lookup == Some(StickyLookup::Hit) && requirements.pinned == Some(*server);
    let times = plan.limits.map_or_else(CookieTimes::default, |_| {
        let last_s = unix_s();
        // A cookie without times begins now.
        let is_old = has_cookie && requirements.pinned_since_s > 0;
        CookieTimes { last_s, since_s: if is_old { requirements.pinned_since_s } else { last_s } }
    });
    let is_due = !has_cookie || plan.max_age_s.is_some() || plan.limits.is_some();
    Some(StickyCookie { plan, token, times, is_due, is_tls })
}
