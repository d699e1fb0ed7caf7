//! Reports about servers other than checks: ejections and recoveries on stderr, and each server's
//! state for the metrics. Only reads state that the cores write.

use std::sync::Arc;

use rt::clock::MonotonicTime;

use crate::metrics::Snapshot;
use crate::outlier::EjectionReason;
use crate::plan::Plan;
use crate::pool::{AdminState, CheckStatus, CrossCoreState, Eligibility, OutlierCounters};

/// All servers of the plan in force.
#[derive(Debug, Default)]
pub(super) struct ServerNotices {
    servers: Vec<MonitoredServer>,
    past_counters: Snapshot,
}

#[derive(Debug)]
struct MonitoredServer {
    pool: Box<str>,
    name: Box<str>,
    weight: u32,
    eligibility: Arc<Eligibility>,
    outlier_counters: Arc<OutlierCounters>,
    reported: [u64; EjectionReason::ALL.len()],
    was_held_back: bool,
}

/// Every state, by its label. A server's state is the first one that applies.
const STATE_LABELS: [&str; 5] = ["maintenance", "down", "ejected", "drain", "up"];

/// Returns a server's state for people. For a server that is up, it also reflects whether it was
/// checked and whether its weight is 0.
pub(crate) fn display_state(eligibility: &Eligibility, now: MonotonicTime) -> &'static str {
    match metric_state(eligibility, now) {
        "up" if eligibility.effective_weight() == 0 => "up, weight 0",
        "up" if eligibility.check_status() == CheckStatus::Unchecked => "no check",
        state => state,
    }
}

/// Returns a server's effective state for the metrics, whatever its cause.
pub(crate) fn metric_state(eligibility: &Eligibility, now: MonotonicTime) -> &'static str {
    match eligibility.admin_state() {
        AdminState::Maintenance => STATE_LABELS[0],
        _ if eligibility.check_status() == CheckStatus::Down => STATE_LABELS[1],
        _ if eligibility.is_ejected(now) || eligibility.is_recovering() => STATE_LABELS[2],
        AdminState::Drain => STATE_LABELS[3],
        AdminState::Ready => STATE_LABELS[4],
    }
}

impl ServerNotices {
    /// Replaces the servers by those of this plan.
    pub(super) fn apply_plan(&mut self, plan: &Plan, shared: &CrossCoreState) {
        let mut old = std::mem::take(&mut self.servers);
        for (pool, shared) in plan.pools.iter().zip(&shared.pools) {
            for (id, server) in pool.servers.enumerate() {
                let outlier_counters = shared.outlier_counters(id);
                let existing =
                    old.iter().position(|old| Arc::ptr_eq(&old.outlier_counters, outlier_counters));
                let existing = existing.map(|at| old.swap_remove(at));
                self.servers.push(MonitoredServer {
                    pool: pool.name.clone(),
                    name: server.name.clone(),
                    weight: server.weight,
                    eligibility: shared.eligibility_handle(id),
                    outlier_counters: Arc::clone(outlier_counters),
                    reported: existing.as_ref().map(|known| known.reported).unwrap_or_default(),
                    was_held_back: existing.is_some_and(|known| known.was_held_back),
                });
            }
        }
        for removed in &old {
            let mut counters = Snapshot::default();
            removed.add_ejection_counts(&mut counters);
            counters.carry_over(&self.past_counters);
            self.past_counters = counters;
        }
    }

    pub(super) fn poll(&mut self, now: MonotonicTime) -> Vec<String> {
        self.servers.iter_mut().filter_map(|server| server.poll(now)).collect()
    }

    pub(super) fn add_metrics(&self, snapshot: &mut Snapshot, now: MonotonicTime) {
        for server in &self.servers {
            let current = metric_state(&server.eligibility, now);
            for state in STATE_LABELS {
                snapshot.add_state(&server.pool, &server.name, state, state == current);
            }
            let weight = server.eligibility.weight_hundredths(server.weight);
            snapshot.add_weight(&server.pool, &server.name, weight.into());
            server.add_ejection_counts(snapshot);
        }
        snapshot.carry_over(&self.past_counters);
    }
}

impl MonitoredServer {
    fn poll(&mut self, now: MonotonicTime) -> Option<String> {
        let (pool, name) = (&self.pool, &self.name);
        let (counts, _) = self.outlier_counters.ejections();
        let new_reason = (0..counts.len()).find(|&at| counts[at] > self.reported[at]);
        let is_held_back = self.eligibility.is_recovering();
        if let Some(reason_index) = new_reason {
            self.reported = counts;
            self.was_held_back = true;
            let remaining_ns = self.outlier_counters.last_ejection_end().since(now);
            let (reason, seconds) = (EjectionReason::ALL[reason_index].doc(), remaining_ns as f64 / 1e9);
            return Some(format!("pool {pool}: server {name} is ejected for {seconds:.1} s: {reason}"));
        }
        let is_back = self.was_held_back && !is_held_back;
        self.was_held_back = is_held_back;
        is_back.then(|| format!("pool {pool}: server {name} has recovered from its ejection"))
    }

    fn add_ejection_counts(&self, snapshot: &mut Snapshot) {
        let (counts, suppressed) = self.outlier_counters.ejections();
        for (reason, count) in EjectionReason::ALL.iter().zip(counts) {
            snapshot.add_ejections(&self.pool, &self.name, reason.code(), count);
        }
        snapshot.add_suppressed_ejections(&self.pool, &self.name, suppressed);
    }
}
