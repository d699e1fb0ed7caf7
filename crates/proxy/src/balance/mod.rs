//! Which server of a pool gets a request. Pure: weights, loads, the time and a source of chance in, a
//! place out. Whether a server has room, and whether it may be used at all, is told, not asked.
//!
//! Loads are those of one core. Cores share nothing for a choice but what bounds servers, so that a
//! choice costs no memory that others write: the kernel spreads connections over cores, and what is
//! even on each core is even on all of them.
//!
//! `latency` is what is remembered of a server's response times, `hash` the choice by a key and what
//! a key is, `sticky` the cookie that makes a choice last.

mod hash;
mod latency;
pub(crate) mod sticky;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

pub(crate) use hash::{digest, key_of, owner, source_key};
pub(crate) use latency::{FAILED_NS, Latency};

use crate::plan::Balance;

/// One server, as far as the choice goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Its share against the others'; 0: none.
    pub(crate) weight: u32,
    /// Requests that it has now.
    pub(crate) in_flight: usize,
    /// Whether it may get one more.
    pub(crate) open: bool,
    /// Whether it is also below what a slow start leaves of its bound. Only `first`, where a weight
    /// means nothing else, looks at it.
    pub(crate) eased: bool,
    /// What is known of its response times.
    pub(crate) latency: Latency,
}

impl Candidate {
    fn is_usable(&self) -> bool {
        self.open && self.weight > 0
    }

    /// Its load for its weight against that of `other`.
    fn compare_load(&self, other: &Self) -> Ordering {
        let own = self.in_flight as u64 * u64::from(other.weight);
        own.cmp(&(other.in_flight as u64 * u64::from(self.weight)))
    }
}

/// By what is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) balance: Balance,
    /// The digest of the request's key; `None`: it has none.
    pub(crate) key: Option<u64>,
    /// The digests of the servers' names.
    pub(crate) names: &'a [u64],
    /// How many requests a server may have by a key, as a multiple of its share.
    pub(crate) load_factor: f64,
    pub(crate) now_ns: u64,
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) server: usize,
    /// Whether the request's key belongs to another server.
    pub(crate) is_elsewhere: bool,
}

/// What round robin remembers: the credit of each server (nginx's smooth weighted round robin).
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    credit: Vec<i64>,
}

impl Turns {
    /// Nobody has had a turn.
    pub(crate) fn new(servers: usize) -> Self {
        Self { credit: vec![0; servers] }
    }
}

/// Chooses a server, or none when none may get one more request.
///
/// Another core may change what `candidate` says between two looks, so nothing here relies on two of
/// them being the same.
pub(crate) fn choose(
    how: How<'_>,
    servers: usize,
    candidate: impl Fn(usize) -> Candidate,
    turns: &mut Turns,
    rng: &mut fastrand::Rng,
) -> Option<Chosen> {
    let chosen = match (how.balance, how.key) {
        (Balance::ConsistentHash, Some(key)) => {
            return hash::choose(how, key, servers, candidate);
        }
        (Balance::RandomOfTwo | Balance::ConsistentHash, _) => {
            random_of_two(servers, candidate, rng)
        }
        (Balance::Latency, _) => latency::choose(how.now_ns, servers, candidate, rng),
        (Balance::RoundRobin, _) => round_robin(servers, candidate, turns),
        (Balance::LeastConnections, _) => least_connections(servers, candidate, rng),
        (Balance::First, _) => first(servers, candidate),
    };
    chosen.map(|server| Chosen { server, is_elsewhere: false })
}

/// Two are drawn, a server as often as its weight says, and the one that has more to do for its
/// weight is left out. So weights hold when nothing is in flight as well, where all are equal.
fn random_of_two(
    servers: usize,
    candidate: impl Fn(usize) -> Candidate,
    rng: &mut fastrand::Rng,
) -> Option<usize> {
    let usable = |index| Some(candidate(index)).filter(Candidate::is_usable);
    let total: u64 = (0..servers).filter_map(usable).map(|one| u64::from(one.weight)).sum();
    let first = drawn(servers, usable, None, rng.u64(..total.max(1)))?;
    let rest = total.saturating_sub(u64::from(candidate(first).weight));
    if rest == 0 {
        return Some(first);
    }
    let second = drawn(servers, usable, Some(first), rng.u64(..rest)).unwrap_or(first);
    let is_lighter = candidate(second).compare_load(&candidate(first)).is_lt();
    Some(if is_lighter { second } else { first })
}

/// The server that a number below the sum of the weights falls on.
fn drawn(
    servers: usize,
    usable: impl Fn(usize) -> Option<Candidate>,
    without: Option<usize>,
    mut number: u64,
) -> Option<usize> {
    let mut last = None;
    for index in (0..servers).filter(|index| Some(*index) != without) {
        let Some(one) = usable(index) else { continue };
        last = Some(index);
        match number.checked_sub(u64::from(one.weight)) {
            Some(rest) => number = rest,
            None => return last,
        }
    }
    last
}

/// Each usable server earns its weight, the richest is chosen and pays for all.
fn round_robin(
    servers: usize,
    candidate: impl Fn(usize) -> Candidate,
    turns: &mut Turns,
) -> Option<usize> {
    let mut total = 0;
    let mut richest: Option<usize> = None;
    for index in 0..servers {
        let candidate = candidate(index);
        if !candidate.is_usable() {
            continue;
        }
        total += i64::from(candidate.weight);
        turns.credit[index] += i64::from(candidate.weight);
        if richest.is_none_or(|richest| turns.credit[index] > turns.credit[richest]) {
            richest = Some(index);
        }
    }
    let chosen = richest?;
    turns.credit[chosen] -= total;
    Some(chosen)
}

/// Of those that have equally little to do, each is chosen as often as its weight says.
fn least_connections(
    servers: usize,
    candidate: impl Fn(usize) -> Candidate,
    rng: &mut fastrand::Rng,
) -> Option<usize> {
    let mut best: Option<(usize, Candidate)> = None;
    let mut tied = 0;
    for index in 0..servers {
        let one = candidate(index);
        if !one.is_usable() {
            continue;
        }
        let weight = u64::from(one.weight);
        let is_taken = match best.map_or(Ordering::Less, |(_, best)| one.compare_load(&best)) {
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
        if is_taken {
            best = Some((index, one));
        }
    }
    best.map(|(index, _)| index)
}

/// In the order of the config. One that is starting slowly is filled up only when no other has room.
fn first(servers: usize, candidate: impl Fn(usize) -> Candidate) -> Option<usize> {
    let fits = |index: &usize, full: bool| {
        let one = candidate(*index);
        one.is_usable() && (full || one.eased)
    };
    (0..servers).find(|index| fits(index, false)).or_else(|| (0..servers).find(|i| fits(i, true)))
}
