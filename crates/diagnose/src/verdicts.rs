//! Table of bottlenecks: the claim of each verdict, its necessary signs, its excluding signs, the
//! remedy, and the change that would prove it.
//!
//! The method is operational analysis (Denning and Buzen 1978; Jain 1991): a resource whose
//! utilisation U = X · D is near 1 can be the bottleneck. If there is none, the latency without
//! load, R(1), distinguishes a delay from a limit: more connections help against a delay, but not
//! against a limit. `required` are the necessary conditions of a claim, and each claim needs two
//! families of signals.

mod rule;
mod shared;
mod table;

pub use record::diagnosis::{NONE, UNKNOWN};
pub use rule::{Bound, CounterTest, Criterion, LimitClass, Perturbation, ThroughputChange, VerdictRule};
pub use table::VERDICTS;

/// Code of a run whose requests failed.
pub const RUN_INVALID: &str = "run_invalid";

/// Code of a run whose requests beyond a rate were rejected.
pub const RATE_LIMITED: &str = "rate_limited";

pub fn find_rule(code: &str) -> Option<&'static VerdictRule> {
    VERDICTS.iter().find(|rule| rule.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_of_the_schema_has_its_row_once() {
        let codes: BTreeSet<&str> = VERDICTS.iter().map(|rule| rule.code).collect();
        assert_eq!(codes.len(), VERDICTS.len());
        let all = "client_bound user_cpu_bound kernel_cpu_bound single_thread_bound \
            softirq_imbalance link_bound packet_rate_bound latency_bound connection_limited \
            accept_backlog_overflow syn_backlog_overflow port_exhaustion fd_limit memory_pressure \
            bufferbloat packet_loss delayed_ack_stall lock_contention log_write_bound \
            handshake_bound bulk_crypto_bound allocator_bound memory_bandwidth_bound cpu_steal cpu_contended \
            cpu_throttled numa_remote conntrack_full h2_window_bound receive_window_bound \
            origin_bound subject_limited run_invalid rate_limited port_search_bound";
        assert_eq!(codes, all.split_whitespace().collect());
    }

    #[test]
    fn a_verdict_needs_two_families_or_is_not_observable() {
        for rule in VERDICTS.iter().filter(|row| row.not_observable.is_empty()) {
            let families: BTreeSet<_> = rule
                .required
                .iter()
                .chain(rule.any_of)
                .chain(rule.supporting)
                .map(|criterion| criterion.signal.family)
                .collect();
            assert!(families.len() >= 2 || rule.is_counted, "{}", rule.code);
            assert!(rule.supporting_min <= rule.supporting.len(), "{}", rule.code);
            assert!(rule.required.len() + rule.supporting_min >= 1, "{}", rule.code);
            for text in [rule.claim, rule.confusions, rule.remedy, rule.counter_test.2] {
                assert!(!text.is_empty(), "{}", rule.code);
            }
        }
    }
}
