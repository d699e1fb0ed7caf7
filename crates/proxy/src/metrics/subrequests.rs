//! Counters of subrequests.

use super::codes::status_class;
use super::{Metrics, new_counters};
use crate::log::Timers;
use crate::outcome::{EndReason, Outcome};

impl Metrics {
    /// Counts one completed subrequest: in the metrics of its pool and server, not in those of listeners and routes.
    pub(crate) fn record_subrequest(&self, outcome: &Outcome<'_>) {
        let Some(pool) = outcome.pool.and_then(|pool| self.pools.get(pool)) else { return };
        pool.subrequests.get_or_init(|| new_counters(EndReason::ALL.len()))[outcome.end as usize].add(1);
        pool.record(outcome, &Timers::from_outcome(outcome), status_class(outcome.status));
    }

    pub(crate) fn count_subrequest_refused(&self) {
        self.common.subrequests_refused.add(1);
    }

    pub(crate) fn set_subrequests(&self, in_flight: u64) {
        self.common.subrequests.0.set(in_flight);
    }
}
