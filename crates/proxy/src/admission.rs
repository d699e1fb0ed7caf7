//! Admission of connections and requests by a listener: rates, and limits for each client network.
//! All state is shared by all cores, in atomics. Nothing here waits or closes anything.
//!
//! `rate` is one bucket for all clients, `sources` a bounded table of client networks. `run` and
//! `conn` reject or delay the excess.

mod rate;
mod sources;

use std::net::IpAddr;
use std::sync::Arc;

pub(crate) use rate::TokenBucket;
pub(crate) use sources::{SourceLimitExceeded, SourceSlot};

use rt::clock::MonotonicTime;

use crate::outcome::{EndReason, RejectReason};
use crate::plan::{Admission, ListenerPlan, Mode, OnLimit, Plan};
use sources::SourceTable;

/// Admission state of a listener, shared by all cores.
#[derive(Debug)]
pub(crate) struct ListenerLimits {
    plan: Admission,
    is_tcp: bool,
    connections: TokenBucket,
    sources: Option<SourceTable>,
}

/// Reason and handling of a connection over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// End code of its first request.
    pub(crate) end: EndReason,
    pub(crate) reason: RejectReason,
    pub(crate) action: OnLimit,
    /// Estimated time until a connection is admitted; 0: unknown.
    pub(crate) wait_ns: u64,
}

/// Creates the limits of a plan, by listener. Unchanged listeners keep theirs with their state.
pub(crate) fn create_listener_limits(
    plan: &Plan,
    previous: Option<(&Plan, &[Arc<ListenerLimits>])>,
) -> Vec<Arc<ListenerLimits>> {
    let limits_of = |listener: &ListenerPlan| {
        let unchanged = previous.and_then(|(plan, previous_limits)| {
            let index = plan.listeners.iter().position(|old| {
                old.name == listener.name
                    && old.admission == listener.admission
                    && matches!(old.mode, Mode::Tcp(_)) == matches!(listener.mode, Mode::Tcp(_))
            })?;
            previous_limits.get(index).cloned()
        });
        unchanged.unwrap_or_else(|| Arc::new(ListenerLimits::new(listener)))
    };
    plan.listeners.iter().map(limits_of).collect()
}

impl ListenerLimits {
    pub(crate) fn new(listener: &ListenerPlan) -> Self {
        let plan = listener.admission.clone();
        Self {
            is_tcp: matches!(listener.mode, Mode::Tcp(_)),
            connections: TokenBucket::default(),
            sources: plan.per_source.as_ref().map(SourceTable::new),
            plan,
        }
    }

    /// Returns the action for a connection over `connections-max`.
    pub(crate) fn action_when_full(&self) -> OnLimit {
        self.action_for_protocol(self.plan.on_limit.unwrap_or(OnLimit::Wait))
    }

    /// Replaces a rejection by a reset on TCP listeners, which cannot send an error response.
    fn action_for_protocol(&self, action: OnLimit) -> OnLimit {
        if action == OnLimit::Reject && self.is_tcp { OnLimit::Reset } else { action }
    }

    /// Builds the rejection of a connection over `connections-max`.
    pub(crate) fn reject_when_full(&self) -> Rejection {
        Rejection {
            end: EndReason::ConnectionLimited,
            reason: RejectReason::ListenerFull,
            action: self.action_when_full(),
            wait_ns: 0,
        }
    }

    /// Counts a connection against the rate. The clock is only read if a rate is set.
    ///
    /// # Errors
    /// The rate is exceeded; nothing is counted then.
    #[inline]
    pub(crate) fn admit_connection(&self, now: fn() -> MonotonicTime) -> Result<(), Rejection> {
        let Some(rate) = &self.plan.connections_rate else {
            return Ok(());
        };
        self.connections.try_take(rate, now()).map_err(|wait_ns| Rejection {
            end: EndReason::ConnectionLimited,
            reason: RejectReason::ConnectionRate,
            action: self.action_for_protocol(self.plan.on_limit.unwrap_or(OnLimit::Reject)),
            wait_ns,
        })
    }

    #[inline]
    pub(crate) fn has_source_limits(&self) -> bool {
        self.sources.is_some()
    }

    /// Returns the nanoseconds until the next connection is within the rate, if excess connections
    /// wait.
    pub(crate) fn accept_delay_ns(&self, now: fn() -> MonotonicTime) -> Option<u64> {
        let rate = self.plan.connections_rate.as_ref()?;
        let delays_excess = self.plan.on_limit == Some(OnLimit::Wait);
        delays_excess.then(|| self.connections.wait_ns(rate, now())).filter(|&wait_ns| wait_ns > 0)
    }

    /// Counts a connection against the limits of its source.
    ///
    /// # Errors
    /// A limit is exceeded; nothing is counted then.
    #[inline]
    pub(crate) fn acquire_source_slot(
        &self,
        client: Option<IpAddr>,
        now: MonotonicTime,
    ) -> Result<SourceSlot, Rejection> {
        // A client of a unix socket has no network.
        let (Some(sources), Some(client)) = (&self.sources, client) else {
            return Ok(SourceSlot::untracked());
        };
        sources.acquire(client, now).map_err(|exceeded| {
            let (reason, wait_ns) = match exceeded {
                SourceLimitExceeded::Connections => (RejectReason::SourceConnections, 0),
                SourceLimitExceeded::Rate { wait_ns } => (RejectReason::SourceRate, wait_ns),
            };
            // The connection cannot wait: others would have to wait behind it.
            let action = match self.plan.on_limit {
                Some(OnLimit::Reset) => OnLimit::Reset,
                _ => self.action_for_protocol(OnLimit::Reject),
            };
            Rejection { end: EndReason::SourceLimited, reason, action, wait_ns }
        })
    }

    /// Returns whether the table was full, so that this connection is not limited.
    pub(crate) fn is_untracked(&self, client: Option<IpAddr>, slot: SourceSlot) -> bool {
        self.sources.is_some() && client.is_some() && slot == SourceSlot::untracked()
    }

    /// Releases the slot that [`ListenerLimits::acquire_source_slot`] took.
    #[inline]
    pub(crate) fn release(&self, slot: SourceSlot) {
        if let Some(sources) = &self.sources {
            sources.release(slot);
        }
    }

    /// Counts a request against the limits of its source.
    ///
    /// # Errors
    /// The nanoseconds until a request is allowed again.
    #[inline]
    pub(crate) fn admit_request(&self, slot: SourceSlot, now: MonotonicTime) -> Result<(), u64> {
        match &self.sources {
            Some(sources) => sources.admit_request(slot, now),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
