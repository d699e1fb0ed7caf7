//! Metrics of servers' health, of their ejections and of DNS, by name.

use super::snapshot::Snapshot;
use super::table::Metric;

impl Snapshot {
    pub fn add_state(&mut self, pool: &str, server: &str, state: &str, is_current: bool) {
        self.add(Metric::ServerState, &[pool, server, state], is_current.into());
    }

    /// Sets the effective weight of a server.
    pub fn add_weight(&mut self, pool: &str, server: &str, hundredths: u64) {
        self.add(Metric::ServerWeight, &[pool, server], hundredths);
    }

    /// Sets whether `result` is the result of a server's last check.
    pub fn add_last_check(&mut self, pool: &str, server: &str, result: &str, is_current: bool) {
        self.add(Metric::LastCheck, &[pool, server, result], is_current.into());
    }

    pub fn add_checks(&mut self, pool: &str, server: &str, result: &str, count: u64) {
        self.add(Metric::Checks, &[pool, server, result], count);
    }

    pub fn add_check_changes(&mut self, pool: &str, server: &str, up: u64, down: u64) {
        self.add(Metric::CheckChanges, &[pool, server, "up"], up);
        self.add(Metric::CheckChanges, &[pool, server, "down"], down);
    }

    pub fn add_ejections(&mut self, pool: &str, server: &str, reason: &str, count: u64) {
        self.add(Metric::Ejections, &[pool, server, reason], count);
    }

    pub fn add_suppressed_ejections(&mut self, pool: &str, server: &str, count: u64) {
        self.add(Metric::EjectionsSuppressed, &[pool, server], count);
    }

    pub fn add_dns_queries(&mut self, name: &str, result: &str, count: u64) {
        self.add(Metric::DnsQueries, &[name, result], count);
    }

    /// Sets whether the last lookup of a name failed. Several pools may use the same name.
    pub fn add_dns_failing(&mut self, name: &str, is_failing: bool) {
        self.add(Metric::DnsFailing, &[name], is_failing.into());
    }
}
