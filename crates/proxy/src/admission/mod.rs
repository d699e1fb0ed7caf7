//! Which connections and requests a listener takes on: rates, and what one network of clients may
//! have. What all cores share, in atomics; nothing here waits or closes anything.
//!
//! `rate` is one bucket for all, `sources` a bounded table of clients' networks. What becomes of
//! what is over a bound is for `run` and `conn`.

mod rate;
mod sources;

use std::net::IpAddr;
use std::sync::Arc;

pub(crate) use rate::Bucket;
pub(crate) use sources::{Over, Seat};

use crate::metrics::Reason;
use crate::outcome::End;
use crate::plan::{Admission, ListenerPlan, Mode, OnLimit, Plan};
use sources::Sources;

/// What all cores share of what a listener takes on.
#[derive(Debug)]
pub(crate) struct Gatekeeper {
    plan: Admission,
    is_tcp: bool,
    connections: Bucket,
    sources: Option<Sources>,
}

/// Why a connection is not taken on as any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turned {
    /// How its first request ends.
    pub(crate) end: End,
    pub(crate) reason: Reason,
    pub(crate) how: OnLimit,
    /// When there would be room, as far as that is known.
    pub(crate) wait_ns: u64,
}

/// The gatekeepers of a plan, by listener; those that stay the same are kept, with all they know.
pub(crate) fn gatekeepers(
    plan: &Plan,
    before: Option<(&Plan, &[Arc<Gatekeeper>])>,
) -> Vec<Arc<Gatekeeper>> {
    let keeper = |listener: &ListenerPlan| {
        let kept = before.and_then(|(plan, keepers)| {
            let at = plan.listeners.iter().position(|old| {
                old.name == listener.name
                    && old.admission == listener.admission
                    && matches!(old.mode, Mode::Tcp(_)) == matches!(listener.mode, Mode::Tcp(_))
            })?;
            keepers.get(at).cloned()
        });
        kept.unwrap_or_else(|| Arc::new(Gatekeeper::new(listener)))
    };
    plan.listeners.iter().map(keeper).collect()
}

impl Gatekeeper {
    pub(crate) fn new(listener: &ListenerPlan) -> Self {
        let plan = listener.admission.clone();
        Self {
            is_tcp: matches!(listener.mode, Mode::Tcp(_)),
            connections: Bucket::default(),
            sources: plan.per_source.as_ref().map(Sources::new),
            plan,
        }
    }

    /// What becomes of a connection over `connections-max`.
    pub(crate) fn on_full(&self) -> OnLimit {
        self.as_spoken(self.plan.on_limit.unwrap_or(OnLimit::Wait))
    }

    /// Where nothing can be said, a connection is reset.
    fn as_spoken(&self, how: OnLimit) -> OnLimit {
        if how == OnLimit::Reject && self.is_tcp { OnLimit::Reset } else { how }
    }

    /// A connection over `connections-max`.
    pub(crate) fn full(&self) -> Turned {
        Turned {
            end: End::ConnectionLimited,
            reason: Reason::ListenerFull,
            how: self.on_full(),
            wait_ns: 0,
        }
    }

    /// Counts a connection against the rate; the clock is only read where there is one.
    ///
    /// # Errors
    /// When it is over; nothing is counted then.
    #[inline]
    pub(crate) fn admit_connection(&self, now_ns: fn() -> u64) -> Result<(), Turned> {
        let Some(rate) = &self.plan.connections_rate else {
            return Ok(());
        };
        self.connections.take(rate, now_ns()).map_err(|wait_ns| Turned {
            end: End::ConnectionLimited,
            reason: Reason::ConnectionRate,
            how: self.as_spoken(self.plan.on_limit.unwrap_or(OnLimit::Reject)),
            wait_ns,
        })
    }

    /// Whether what sources have is counted.
    #[inline]
    pub(crate) fn has_sources(&self) -> bool {
        self.sources.is_some()
    }

    /// In how many nanoseconds the next connection is within the rate, where those beyond wait.
    pub(crate) fn waits_ns(&self, now_ns: fn() -> u64) -> Option<u64> {
        let rate = self.plan.connections_rate.as_ref()?;
        let waits = self.plan.on_limit == Some(OnLimit::Wait);
        waits.then(|| self.connections.wait_ns(rate, now_ns())).filter(|&wait_ns| wait_ns > 0)
    }

    /// Counts a connection against what its source may have.
    ///
    /// # Errors
    /// When it is over; nothing is counted then.
    #[inline]
    pub(crate) fn seat(&self, client: Option<IpAddr>, now_ns: u64) -> Result<Seat, Turned> {
        // A unix socket has no network.
        let (Some(sources), Some(client)) = (&self.sources, client) else {
            return Ok(Seat::none());
        };
        sources.enter(client, now_ns).map_err(|over| {
            let (reason, wait_ns) = match over {
                Over::Connections => (Reason::SourceConnections, 0),
                Over::Rate { wait_ns } => (Reason::SourceRate, wait_ns),
            };
            // It cannot wait: others would have to wait behind it.
            let how = match self.plan.on_limit {
                Some(OnLimit::Reset) => OnLimit::Reset,
                _ => self.as_spoken(OnLimit::Reject),
            };
            Turned { end: End::SourceLimited, reason, how, wait_ns }
        })
    }

    /// Whether the table was full, so that this one goes unbounded.
    pub(crate) fn is_unseated(&self, client: Option<IpAddr>, seat: Seat) -> bool {
        self.sources.is_some() && client.is_some() && seat == Seat::none()
    }

    /// Gives back what [`Gatekeeper::seat`] took.
    #[inline]
    pub(crate) fn leave(&self, seat: Seat) {
        if let Some(sources) = &self.sources {
            sources.leave(seat);
        }
    }

    /// Counts a request against what its source may have.
    ///
    /// # Errors
    /// In how many nanoseconds there would be room.
    #[inline]
    pub(crate) fn admit_request(&self, seat: Seat, now_ns: u64) -> Result<(), u64> {
        match &self.sources {
            Some(sources) => sources.admit_request(seat, now_ns),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
