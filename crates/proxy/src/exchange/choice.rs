//! What an exchange tells the choice of its server, and what the choice learns from it. What is chosen
//! is `balance`'s business, and the cookie's form is too.

use std::net::IpAddr;

use super::{Exchange, Place};
use crate::balance::sticky::{Found, Stamp};
use crate::balance::{FAILED_NS, key_of, source_key};
use crate::outcome::End;
use crate::plan::{Balance, HashKey};
use crate::pool::{Pool, Want};
use crate::route::{Asked, Scratch};

impl Exchange {
    /// What a request wants of a pool. Looks at no more of the head than the pool goes by.
    pub(super) fn wanted(&mut self, pool: &Pool, asked: &Asked<'_>, scratch: &mut Scratch) -> Want {
        let plan = pool.plan();
        let mut want = Want::default();
        if plan.balance == Balance::ConsistentHash {
            want.key = key_of(&plan.hash.key, asked, &mut scratch.path);
        }
        if let (Some(sticky), Some(tokens)) = (&plan.sticky, pool.tokens()) {
            let found = match tokens.find(sticky, asked.headers) {
                Ok(server) if pool.is_up(server, self.facts.times.head_ns) => {
                    want.pinned = Some(server);
                    Found::Hit
                }
                Ok(_) => Found::Down,
                Err(why) => why,
            };
            self.facts.sticky = Some(found);
        }
        want
    }

    /// The same of a connection whose bytes are not looked at.
    pub(super) fn wanted_tcp(pool: &Pool, source: Option<IpAddr>) -> Want {
        let plan = pool.plan();
        let is_by_source =
            plan.balance == Balance::ConsistentHash && plan.hash.key == HashKey::Source;
        Want { key: source_key(source).filter(|_| is_by_source), ..Want::default() }
    }

    /// The head of its answer is there.
    pub(super) fn learn_answer(&self) {
        let Some(Place { pool, server }) = &self.place else {
            return;
        };
        if !pool.wants_latency() {
            return;
        }
        let times = &self.facts.times;
        let took_ns = times.first_byte_ns.saturating_sub(times.dispatched_ns);
        // By these a server, or a gateway before it, says that it cannot answer just now.
        let failed = matches!(self.facts.status, 502..=504);
        let least_ns = if failed { FAILED_NS } else { 0 };
        pool.learn(*server, took_ns.max(least_ns), times.first_byte_ns);
    }

    /// A connection of no known protocol stands, and that is all that is known of its server.
    pub(super) fn learn_connected(&self) {
        if let Some(Place { pool, server }) = &self.place
            && pool.wants_latency()
        {
            let times = &self.facts.times;
            let took_ns = times.connected_ns.saturating_sub(times.dispatched_ns);
            pool.learn(*server, took_ns, times.connected_ns);
        }
    }

    /// It has failed; whether that is the server's fault is in `end`.
    pub(super) fn learn_failure(&self, pool: &Pool, server: usize, end: End, now_ns: u64) {
        let is_servers = matches!(
            end,
            End::ConnectFailed
                | End::ConnectTimeout
                | End::ServerClosed
                | End::ServerTimeout
                | End::BadResponse
        );
        if is_servers && pool.wants_latency() {
            let took_ns = now_ns.saturating_sub(self.facts.times.dispatched_ns);
            pool.learn(server, took_ns.max(FAILED_NS), now_ns);
        }
    }
}

/// What the answer from a place gets of a sticky cookie: the token of the server that answered, unless
/// the client has it.
pub(super) fn stamp(place: Option<&Place>, want: Want, found: Option<Found>) -> Option<Stamp<'_>> {
    let Place { pool, server } = place?;
    let plan = pool.plan().sticky.as_ref()?;
    let token = pool.tokens()?.of(*server);
    let has_it = found == Some(Found::Hit) && want.pinned == Some(*server);
    Some(Stamp { plan, token, is_due: !has_it || plan.max_age_s.is_some() })
}
