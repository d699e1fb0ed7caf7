//! The choice of a server for a request. Pure: the input is weights, loads, the time and a random
//! source; the output is an index. The caller passes in whether a server has a free slot and is
//! eligible.
//!
//! Loads are those of one core. Apart from server limits, cores share nothing for a choice, so that
//! a choice touches no memory that others write. The kernel spreads connections over the cores, and
//! a distribution that is even on each core is even over all of them.
//!
//! `latency` holds the remembered response times of a server, `hash` the choice by a key and the
//! key itself, `sticky` the cookie that makes a choice last.

mod hash;
mod latency;
pub(crate) mod sticky;
pub(crate) mod sticky_table;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

pub(crate) use hash::{digest_key, digest_source, owner};
pub(crate) use latency::{FAILED_LATENCY_MIN_NS, PeakEwma};

use rt::clock::MonotonicTime;

use crate::plan::{Balance, IdVec, ServerId};

/// The properties of one server that a choice uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Weight relative to the others; 0: the server gets no requests.
    pub(crate) weight: u32,
    pub(crate) in_flight: usize,
    /// True if the server may get one more request.
    pub(crate) is_available: bool,
    /// True if the server is also below its reduced limit during a slow start. Used only by
    /// `first`, where a weight has no other effect.
    pub(crate) is_below_slow_start_limit: bool,
    /// Remembered response times.
    pub(crate) latency: PeakEwma,
}

impl Candidate {
    fn is_usable(&self) -> bool {
        self.is_available && self.weight > 0
    }

    /// Compares the load per weight with that of `other`.
    fn compare_load(&self, other: &Self) -> Ordering {
        let own = self.in_flight as u64 * u64::from(other.weight);
        own.cmp(&(other.in_flight as u64 * u64::from(self.weight)))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BalanceInput<'a> {
    pub(crate) balance: Balance,
    /// Digest of the request's key; `None`: the request has none.
    pub(crate) key: Option<u64>,
    pub(crate) name_digests: &'a IdVec<ServerId, u64>,
    /// Maximum number of requests of a server chosen by key, as a multiple of its fraction of the
    /// load.
    pub(crate) load_factor: f64,
    pub(crate) now: MonotonicTime,
}

/// Result of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) server: ServerId,
    /// True if the request's key belongs to another server.
    pub(crate) is_hash_overflow: bool,
}

/// State of round robin: the credit of each server (nginx's smooth weighted round robin).
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundRobinState {
    current_weights: IdVec<ServerId, i64>,
}

impl RoundRobinState {
    /// Creates the initial state: all credits are 0.
    pub(crate) fn new(servers: usize) -> Self {
        Self { current_weights: vec![0; servers].into() }
    }
}

/// Chooses a server. Returns `None` if no server may get one more request.
///
/// Another core may change the result of `candidate` between two calls, so nothing here relies on
/// two equal results.
pub(crate) fn choose(
    input: BalanceInput<'_>,
    servers: usize,
    candidate: impl Fn(ServerId) -> Candidate,
    round_robin_state: &mut RoundRobinState,
    rng: &mut fastrand::Rng,
) -> Option<Selection> {
    let chosen = match (input.balance, input.key) {
        (Balance::ConsistentHash, Some(key)) => {
            return hash::choose(input, key, servers, candidate);
        }
        (Balance::RandomOfTwo | Balance::ConsistentHash, _) => random_of_two(servers, candidate, rng),
        (Balance::Latency, _) => latency::choose(input.now, servers, candidate, rng),
        (Balance::RoundRobin, _) => round_robin(servers, candidate, round_robin_state),
        (Balance::LeastConnections, _) => least_connections(servers, candidate, rng),
        (Balance::First, _) => first_available(servers, candidate),
    };
    chosen.map(|server| Selection { server, is_hash_overflow: false })
}

/// Draws two servers with a probability proportional to their weight, and takes the one with the
/// lower load per weight. So weights also hold while nothing is in flight and all loads are equal.
fn random_of_two(
    servers: usize,
    candidate: impl Fn(ServerId) -> Candidate,
    rng: &mut fastrand::Rng,
) -> Option<ServerId> {
    let usable_candidate = |id| Some(candidate(id)).filter(Candidate::is_usable);
    let total: u64 = ServerId::first(servers)
        .filter_map(usable_candidate)
        .map(|candidate| u64::from(candidate.weight))
        .sum();
    let first = pick_by_weight(servers, usable_candidate, None, rng.u64(..total.max(1)))?;
    let rest = total.saturating_sub(u64::from(candidate(first).weight));
    if rest == 0 {
        return Some(first);
    }
    let second = pick_by_weight(servers, usable_candidate, Some(first), rng.u64(..rest)).unwrap_or(first);
    let is_lighter = candidate(second).compare_load(&candidate(first)).is_lt();
    Some(if is_lighter { second } else { first })
}

/// Returns the server whose weight interval contains `offset`, which is below the sum of the
/// weights.
fn pick_by_weight(
    servers: usize,
    usable_candidate: impl Fn(ServerId) -> Option<Candidate>,
    excluded: Option<ServerId>,
    mut offset: u64,
) -> Option<ServerId> {
    let mut last = None;
    for id in ServerId::first(servers).filter(|id| Some(*id) != excluded) {
        let Some(candidate) = usable_candidate(id) else { continue };
        last = Some(id);
        match offset.checked_sub(u64::from(candidate.weight)) {
            Some(rest) => offset = rest,
            None => return last,
        }
    }
    last
}

/// Each usable server gains its weight as credit. The server with the highest credit is chosen and
/// pays the sum of all weights.
fn round_robin(
    servers: usize,
    candidate: impl Fn(ServerId) -> Candidate,
    round_robin_state: &mut RoundRobinState,
) -> Option<ServerId> {
    let mut total = 0;
    let mut best: Option<ServerId> = None;
    for id in ServerId::first(servers) {
        let candidate = candidate(id);
        if !candidate.is_usable() {
            continue;
        }
        total += i64::from(candidate.weight);
        round_robin_state.current_weights[id] += i64::from(candidate.weight);
        if best.is_none_or(|richest| {
            round_robin_state.current_weights[id] > round_robin_state.current_weights[richest]
        }) {
            best = Some(id);
        }
    }
    let chosen = best?;
    round_robin_state.current_weights[chosen] -= total;
    Some(chosen)
}

/// Among servers with equal load, each is chosen with a probability proportional to its weight.
fn least_connections(
    servers: usize,
    candidate: impl Fn(ServerId) -> Candidate,
    rng: &mut fastrand::Rng,
) -> Option<ServerId> {
    let mut best: Option<(ServerId, Candidate)> = None;
    let mut tied = 0;
    for id in ServerId::first(servers) {
        let candidate = candidate(id);
        if !candidate.is_usable() {
            continue;
        }
        let weight = u64::from(candidate.weight);
        let is_better = match best.map_or(Ordering::Less, |(_, best)| candidate.compare_load(&best)) {
            Ordering::Less => {
                tied = weight;
                true
            }
            Ordering::Equal => {
                tied += weight;
                rng.u64(..tied) < weight
            }
            Ordering::Greater => false,
        };
        if is_better {
            best = Some((id, candidate));
        }
    }
    best.map(|(id, _)| id)
}

/// Chooses the first server with a free slot, in the order of the config. A server in slow start is
/// filled up only if no other has a free slot.
fn first_available(servers: usize, candidate: impl Fn(ServerId) -> Candidate) -> Option<ServerId> {
    let is_selectable = |id: &ServerId, ignores_slow_start: bool| {
        let candidate = candidate(*id);
        candidate.is_usable() && (ignores_slow_start || candidate.is_below_slow_start_limit)
    };
    ServerId::first(servers)
        .find(|id| is_selectable(id, false))
        .or_else(|| ServerId::first(servers).find(|id| is_selectable(id, true)))
}
