//! What is told of servers besides their checks: that they were ejected or are back, and the state
//! of each for the metrics. It only reads what cores found out.

use std::sync::Arc;

use crate::metrics::Snapshot;
use crate::outlier::Why;
use crate::plan::Plan;
use crate::pool::{Checked, Observed, Shared, Standing, Wanted};

/// All servers of the plan in force.
#[derive(Debug, Default)]
pub(super) struct Notices {
    servers: Vec<Server>,
    /// What was counted of servers that are gone.
    past: Snapshot,
}

#[derive(Debug)]
struct Server {
    pool: Box<str>,
    name: Box<str>,
    /// As it is planned.
    weight: u32,
    standing: Arc<Standing>,
    observed: Arc<Observed>,
    /// What was told already.
    told: [u64; Why::ALL.len()],
    was_held_back: bool,
}

/// Every state, as its label has it; the first that holds is a server's.
const STATES: [&str; 5] = ["maintenance", "down", "ejected", "drain", "up"];

/// The state of a server as people are shown it: its state, and of a server that is up whether that
/// is known, and of use.
pub(crate) fn shown_state(standing: &Standing, now_ns: u64) -> &'static str {
    match state(standing, now_ns) {
        "up" if standing.share() == 0 => "weight 0",
        "up" if standing.checked() == Checked::Unchecked => "up, not checked",
        state => state,
    }
}

/// The state of a server that is in force, whoever brought it about, as metrics have it.
pub(crate) fn state(standing: &Standing, now_ns: u64) -> &'static str {
    match standing.in_force() {
        Wanted::Maintenance => STATES[0],
        _ if standing.checked() == Checked::Down => STATES[1],
        _ if standing.is_ejected(now_ns) || standing.has_trial() => STATES[2],
        Wanted::Drain => STATES[3],
        Wanted::Ready => STATES[4],
    }
}

impl Notices {
    /// From now on these servers are there.
    pub(super) fn follow(&mut self, plan: &Plan, shared: &Shared) {
        let mut old = std::mem::take(&mut self.servers);
        for (pool, shared) in plan.pools.iter().zip(&shared.pools) {
            for (index, server) in pool.servers.iter().enumerate() {
                let observed = shared.observed(index);
                let known = old.iter().position(|old| Arc::ptr_eq(&old.observed, observed));
                let known = known.map(|at| old.swap_remove(at));
                self.servers.push(Server {
                    pool: pool.name.clone(),
                    name: server.name.clone(),
                    weight: server.weight,
                    standing: shared.standing_of(index),
                    observed: Arc::clone(observed),
                    told: known.as_ref().map(|known| known.told).unwrap_or_default(),
                    was_held_back: known.is_some_and(|known| known.was_held_back),
                });
            }
        }
        for gone in &old {
            let mut whole = Snapshot::default();
            gone.add_counts(&mut whole);
            whole.carry_over(&self.past);
            self.past = whole;
        }
    }

    /// What is to be told by now.
    pub(super) fn look(&mut self, now_ns: u64) -> Vec<String> {
        self.servers.iter_mut().filter_map(|server| server.look(now_ns)).collect()
    }

    /// Adds states and counts.
    pub(super) fn add_to(&self, all: &mut Snapshot, now_ns: u64) {
        for server in &self.servers {
            let own = state(&server.standing, now_ns);
            for state in STATES {
                all.add_state(&server.pool, &server.name, state, state == own);
            }
            let weight = server.standing.weight_hundredths(server.weight);
            all.add_weight(&server.pool, &server.name, weight.into());
            server.add_counts(all);
        }
        all.carry_over(&self.past);
    }
}

impl Server {
    fn look(&mut self, now_ns: u64) -> Option<String> {
        let (pool, name) = (&self.pool, &self.name);
        let (counts, _) = self.observed.ejections();
        let fresh = (0..counts.len()).find(|&at| counts[at] > self.told[at]);
        let held_back = self.standing.has_trial();
        if let Some(why) = fresh {
            self.told = counts;
            self.was_held_back = true;
            let for_ns = self.observed.last_until_ns().saturating_sub(now_ns);
            let (why, seconds) = (Why::ALL[why].doc(), for_ns as f64 / 1e9);
            return Some(format!(
                "pool {pool}: server {name} is ejected for {seconds:.1} s: {why}"
            ));
        }
        let is_back = self.was_held_back && !held_back;
        self.was_held_back = held_back;
        is_back.then(|| format!("pool {pool}: server {name} is back after its ejection"))
    }

    fn add_counts(&self, all: &mut Snapshot) {
        let (counts, spared) = self.observed.ejections();
        for (why, count) in Why::ALL.iter().zip(counts) {
            all.add_ejections(&self.pool, &self.name, why.code(), count);
        }
        all.add_spared(&self.pool, &self.name, spared);
    }
}
