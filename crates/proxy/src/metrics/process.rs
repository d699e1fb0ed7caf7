//! Metrics of the process: its resources, its version, and the results of its reloads.

use rt::clock::unix_ns;
use rt::process_stats::ProcessStats;
use rt::tls::RevocationListInfo;

use super::reload_results::ReloadResults;
use super::snapshot::Snapshot;
use super::table::Metric;

impl Snapshot {
    /// Adds the resource usage of the process; `threads` is the number of threads that serve
    /// connections.
    pub fn add_process(&mut self, stats: &ProcessStats, started_unix_ns: u64, threads: usize) {
        self.add(Metric::BuildInfo, &[env!("CARGO_PKG_VERSION")], 1);
        for (metric, number) in [
            (Metric::Uptime, unix_ns().saturating_sub(started_unix_ns)),
            (Metric::Threads, threads as u64),
            (Metric::ProcessCpu, stats.cpu_ns),
            (Metric::ProcessStart, started_unix_ns),
            (Metric::ProcessResident, stats.resident_bytes),
            (Metric::ProcessVirtual, stats.virtual_bytes),
            (Metric::ProcessOpen, stats.descriptors),
            (Metric::ProcessMax, stats.descriptors_max),
            (Metric::ProcessThreads, stats.threads),
        ] {
            self.add(metric, &[], number);
        }
    }

    pub(crate) fn add_generations(&mut self, number: u64) {
        self.add(Metric::Generations, &[], number);
    }

    pub fn add_certificate(&mut self, domain: &str, expires_at_s: u64, issued: u64, failed: u64) {
        self.add(Metric::CertificateExpiry, &[domain], expires_at_s);
        self.add(Metric::AcmeOrders, &[domain, "issued"], issued);
        self.add(Metric::AcmeOrders, &[domain, "failed"], failed);
    }

    /// Adds a revocation list of clients' certificates.
    pub fn add_revocation_list(&mut self, listener: &str, list: &RevocationListInfo) {
        let labels = [listener, &*list.path.to_string_lossy(), &*list.issuer];
        self.add(Metric::RevocationListExpiry, &labels, list.next_update_s);
    }

    pub fn add_reloads(&mut self, results: &ReloadResults) {
        for (result, count, at_ns) in [
            ("applied", results.applied, results.applied_unix_ns),
            ("refused", results.refused, results.refused_unix_ns),
        ] {
            self.add(Metric::Reloads, &[result], count);
            self.add(Metric::ReloadTime, &[result], at_ns);
        }
        self.add(Metric::ReloadSucceeded, &[], results.refusal.is_none().into());
    }
}
