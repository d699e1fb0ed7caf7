//! Cases with one known cause each, mostly with weir's own processes. The program has them.

use crate::case_file::parse_case;
use crate::cases::{CaseSet, TestCase};

macro_rules! files {
    ($($name:ident)*) => {
        &[$((stringify!($name), include_str!(concat!("../cases/induced/", stringify!($name), ".toml")))),*]
    };
}

/// Returns all cases, in the order of the verdicts. A test parses each file, so none is left out here.
#[must_use]
pub fn induced_cases() -> Vec<TestCase> {
    FILES.iter().filter_map(|(name, text)| parse_case(CaseSet::Induced, name, text).ok()).collect()
}

const FILES: &[(&str, &str)] = files! {
    healthy_weir healthy_nginx healthy_haproxy healthy_python client_bound user_cpu_bound kernel_cpu_bound
    kernel_cpu_bound_nginx single_thread_bound single_thread_bound_python softirq_imbalance link_bound
    link_bound_nginx packet_rate_bound latency_bound latency_bound_haproxy latency_bound_python
    connection_limited connection_limited_haproxy accept_backlog_overflow syn_backlog_overflow
    port_exhaustion fd_limit fd_limit_nginx memory_pressure bufferbloat packet_loss packet_loss_nginx
    delayed_ack_stall lock_contention log_write_bound allocator_bound cpu_contended cpu_throttled
    cpu_throttled_nginx conntrack_full receive_window_bound run_invalid rate_limited_nginx handshake_bound
    handshake_bound_nginx handshake_bound_haproxy bulk_crypto_bound bulk_crypto_bound_nginx
    bulk_crypto_bound_haproxy h2_window_bound h2_window_bound_nginx h2_window_bound_haproxy
    port_search_bound port_search_bound_nginx latency_bound_http2 latency_bound_tls
    single_thread_bound_nginx_tls connection_limited_haproxy_tls link_bound_tls
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::CODES;
    use crate::cases::{NOT_INDUCED, Requirement};

    #[test]
    fn every_verdict_has_a_case_or_a_reason_and_every_case_is_valid() {
        let cases = induced_cases();
        assert_eq!(cases.len(), FILES.len());
        for code in CODES {
            let cases = cases.iter().filter(|case| case.verdict == *code).count();
            let reasons = NOT_INDUCED.iter().filter(|(other, _)| other == code).count();
            assert!((cases > 0) != (reasons > 0), "{code}");
        }
        for (at, case) in cases.iter().enumerate() {
            assert!(CODES.contains(&&*case.verdict), "{}", case.verdict);
            assert!(cases[..at].iter().all(|other| other.name != case.name), "{}", case.name);
            let experiment = case.experiment().unwrap_or_else(|problems| panic!("{problems:?}"));
            assert!(!experiment.title.is_empty(), "{}", case.name);
            let is_global = !experiment.scenario.global_settings().is_empty();
            assert_eq!(is_global, case.requirements.contains(&Requirement::Global), "{}", case.name);
        }
    }
}
