//! What is counted of servers' health, of their ejections and of DNS, by names.

use super::snapshot::Snapshot;
use super::table::Metric;

impl Snapshot {
    /// Whether a server is in a state.
    pub(crate) fn add_state(&mut self, pool: &str, server: &str, state: &str, holds: bool) {
        self.add(Metric::ServerState, &[pool, server, state], holds.into());
    }

    /// The weight of a server that is in force.
    pub(crate) fn add_weight(&mut self, pool: &str, server: &str, hundredths: u64) {
        self.add(Metric::ServerWeight, &[pool, server], hundredths);
    }

    /// Whether a result is that of the last check of a server.
    pub(crate) fn add_last_check(&mut self, pool: &str, server: &str, result: &str, holds: bool) {
        self.add(Metric::LastCheck, &[pool, server, result], holds.into());
    }

    /// Checks of a server, by what came of them.
    pub(crate) fn add_checks(&mut self, pool: &str, server: &str, result: &str, count: u64) {
        self.add(Metric::Checks, &[pool, server, result], count);
    }

    /// How often checks found a server up that was down, and the other way round.
    pub(crate) fn add_changes(&mut self, pool: &str, server: &str, up: u64, down: u64) {
        self.add(Metric::CheckChanges, &[pool, server, "up"], up);
        self.add(Metric::CheckChanges, &[pool, server, "down"], down);
    }

    /// Ejections of a server, by why.
    pub(crate) fn add_ejections(&mut self, pool: &str, server: &str, why: &str, count: u64) {
        self.add(Metric::Ejections, &[pool, server, why], count);
    }

    /// Ejections that were not made.
    pub(crate) fn add_spared(&mut self, pool: &str, server: &str, count: u64) {
        self.add(Metric::Spared, &[pool, server], count);
    }

    /// Questions to nameservers, by what came of them.
    pub(crate) fn add_dns_queries(&mut self, name: &str, result: &str, count: u64) {
        self.add(Metric::DnsQueries, &[name, result], count);
    }

    /// Whether a name has no answer just now. The same name may stand in several pools.
    pub(crate) fn add_dns_failing(&mut self, name: &str, fails: bool) {
        self.add(Metric::DnsFailing, &[name], fails.into());
    }
}
