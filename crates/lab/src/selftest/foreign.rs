//! The proving ground: servers as other people write and configure them, each with the verdict that is
//! right for it. A case's file says which measurement, other than weir's, shows that.
//!
//! Not for thresholds: what the analyser does on the held-out part may be counted, and not read.

use super::cases::{Case, Kind, Need};

macro_rules! case {
    ($kind:ident, $verdict:literal, [$($accepts:literal),*], $name:literal, [$($need:expr),*]) => {
        Case {
            verdict: $verdict,
            accepts: &[$($accepts),*],
            name: $name,
            kind: Kind::$kind,
            needs: &[$($need),*],
            file: include_str!(concat!("foreign/", $name, ".toml")),
        }
    };
}

/// All cases of the proving ground.
pub const FOREIGN: &[Case] = &[
    case!(Healthy, "none", [], "go_open", [Need::Program("go")]),
    case!(Healthy, "none", [], "node_open", [Need::Program("node")]),
    case!(Healthy, "none", [], "uvicorn_open", [Need::Program("uvicorn")]),
    case!(Healthy, "none", [], "java_open", [Need::Program("javac")]),
    case!(Healthy, "none", [], "nginx_static_open", [Need::Program("nginx")]),
    case!(
        Healthy,
        "none",
        [],
        "nginx_go_proxy_open",
        [Need::Program("nginx"), Need::Program("go")]
    ),
    case!(
        Healthy,
        "none",
        [],
        "haproxy_two_nodes_open",
        [Need::Program("haproxy"), Need::Program("node")]
    ),
    case!(Healthy, "none", [], "node_cluster_poisson", [Need::Program("node"), Need::Cpus(2)]),
    case!(Healthy, "none", [], "go_think_time", [Need::Program("go")]),
    case!(Healthy, "none", [], "go_connection_per_request_open", [Need::Program("go")]),
    case!(
        Decoy,
        "none",
        [],
        "slow_app_stranger_open",
        [Need::Program("go"), Need::Program("python3")]
    ),
    case!(Decoy, "none", [], "node_small_loss_open", [Need::Program("node")]),
    case!(Decoy, "none", [], "nginx_large_bodies_open", [Need::Program("nginx")]),
    case!(Decoy, "none", [], "go_quota_unused_open", [Need::Program("go")]),
    case!(
        Decoy,
        "none",
        [],
        "haproxy_maxconn_unused_open",
        [Need::Program("haproxy"), Need::Program("go")]
    ),
    case!(
        Single,
        "latency_bound",
        [],
        "haproxy_four_slow_origins",
        [Need::Program("haproxy"), Need::Program("go")]
    ),
    case!(Single, "latency_bound", [], "uvicorn_async_sleep", [Need::Program("uvicorn")]),
    case!(Single, "latency_bound", [], "node_timer", [Need::Program("node")]),
    case!(Single, "latency_bound", [], "nginx_far_link", [Need::Program("nginx")]),
    case!(Decoy, "latency_bound", [], "go_idle_connections", [Need::Program("go")]),
    case!(
        Decoy,
        "latency_bound",
        [],
        "slow_app_stranger_closed",
        [Need::Program("go"), Need::Program("python3")]
    ),
    case!(Decoy, "latency_bound", [], "java_many_sleepers", [Need::Program("javac")]),
    case!(Decoy, "latency_bound", [], "nginx_limit_rate", [Need::Program("nginx")]),
    case!(Decoy, "latency_bound", [], "go_delay_misses_objective", [Need::Program("go")]),
    case!(Single, "subject_limited", [], "go_semaphore", [Need::Program("go")]),
    case!(
        Single,
        "subject_limited",
        ["connection_limited"],
        "go_pool_of_four",
        [Need::Program("go")]
    ),
    case!(Single, "subject_limited", [], "java_four_threads", [Need::Program("javac")]),
    case!(Single, "subject_limited", [], "nginx_limit_req", [Need::Program("nginx")]),
    case!(Decoy, "subject_limited", [], "go_mutex_sleep", [Need::Program("go")]),
    case!(Decoy, "subject_limited", [], "uvicorn_sync_sleep", [Need::Program("uvicorn")]),
    case!(Decoy, "subject_limited", [], "python_serial_sleep", [Need::Program("python3")]),
    case!(Single, "single_thread_bound", [], "node_cpu", [Need::Program("node"), Need::Cpus(2)]),
    case!(
        Single,
        "single_thread_bound",
        [],
        "uvicorn_cpu",
        [Need::Program("uvicorn"), Need::Cpus(2)]
    ),
    case!(
        Single,
        "single_thread_bound",
        ["lock_contention"],
        "python_gil",
        [Need::Program("python3"), Need::Cpus(2)]
    ),
    case!(
        Single,
        "single_thread_bound",
        ["user_cpu_bound"],
        "nginx_gzip",
        [Need::Program("nginx"), Need::Cpus(2)]
    ),
    case!(Single, "user_cpu_bound", [], "go_both_cpus", [Need::Program("go"), Need::Cpus(2)]),
    case!(
        Single,
        "user_cpu_bound",
        [],
        "node_cluster_both_cpus",
        [Need::Program("node"), Need::Cpus(2)]
    ),
    case!(Single, "kernel_cpu_bound", [], "go_kernel_reads", [Need::Program("go"), Need::Cpus(2)]),
    case!(
        Single,
        "kernel_cpu_bound",
        [],
        "nginx_connection_per_request",
        [Need::Program("nginx"), Need::Cpus(2)]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        [],
        "node_full_think_time",
        [Need::Program("node"), Need::Cpus(2)]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        [],
        "node_full_small_loss",
        [Need::Program("node"), Need::Cpus(2)]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        ["user_cpu_bound"],
        "node_gc",
        [Need::Program("node"), Need::Cpus(2)]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        [],
        "python_full_misses_objective",
        [Need::Program("uvicorn"), Need::Cpus(2)]
    ),
    case!(
        Decoy,
        "lock_contention",
        ["single_thread_bound"],
        "go_mutex_compute",
        [Need::Program("go"), Need::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "nginx_busy_python",
        [Need::Program("nginx"), Need::Program("python3"), Need::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "nginx_busy_python_unix",
        [Need::Program("nginx"), Need::Program("uvicorn"), Need::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "go_proxy_busy_node",
        [Need::Program("go"), Need::Program("node"), Need::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "haproxy_uneven_origins",
        [Need::Program("haproxy"), Need::Program("go"), Need::Program("python3"), Need::Cpus(2)]
    ),
    case!(
        Decoy,
        "origin_bound",
        [],
        "haproxy_maxconn_busy_origin",
        [Need::Program("haproxy"), Need::Program("node"), Need::Cpus(2)]
    ),
    case!(
        Decoy,
        "origin_bound",
        [],
        "nginx_node_semaphore_origin",
        [Need::Program("nginx"), Need::Program("node")]
    ),
    case!(
        Single,
        "connection_limited",
        [],
        "haproxy_maxconn_two_origins",
        [Need::Program("haproxy"), Need::Program("go")]
    ),
    case!(
        Single,
        "connection_limited",
        [],
        "haproxy_maxconn_unix",
        [Need::Program("haproxy"), Need::Program("go")]
    ),
    case!(
        Single,
        "port_exhaustion",
        [],
        "nginx_out_of_ports",
        [Need::Program("nginx"), Need::Program("go")]
    ),
    case!(
        Single,
        "port_exhaustion",
        [],
        "haproxy_out_of_ports",
        [Need::Program("haproxy"), Need::Program("go")]
    ),
    case!(Single, "cpu_throttled", [], "node_cluster_worker_quota", [Need::Program("node")]),
    case!(Single, "cpu_throttled", [], "go_quota", [Need::Program("go")]),
    case!(Single, "link_bound", [], "nginx_large_shaped", [Need::Program("nginx")]),
    case!(
        Single,
        "link_bound",
        [],
        "loopback_shaped",
        [Need::Program("nginx"), Need::Program("go")]
    ),
    case!(Single, "receive_window_bound", [], "nginx_slow_readers", [Need::Program("nginx")]),
    case!(Single, "packet_loss", [], "go_loss", [Need::Program("go")]),
    case!(Single, "fd_limit", [], "go_fd_limit", [Need::Program("go")]),
    case!(Single, "delayed_ack_stall", [], "python_nagle", [Need::Program("python3")]),
    case!(
        Single,
        "accept_backlog_overflow",
        ["subject_limited"],
        "python_accept_backlog",
        [Need::Program("python3")]
    ),
    case!(Single, "memory_pressure", [], "python_page_cache", [Need::Program("python3")]),
    case!(Single, "log_write_bound", [], "go_log_dsync", [Need::Program("go")]),
    case!(
        TwoCauses,
        "accept_backlog_overflow",
        ["single_thread_bound"],
        "two_backlog_and_thread",
        [Need::Program("python3"), Need::Cpus(2)]
    ),
    case!(
        TwoCauses,
        "port_exhaustion",
        ["origin_bound"],
        "two_ports_and_busy_origin",
        [Need::Program("haproxy"), Need::Program("node"), Need::Cpus(2)]
    ),
    case!(
        TwoCauses,
        "fd_limit",
        ["single_thread_bound"],
        "two_descriptors_and_thread",
        [Need::Program("node"), Need::Cpus(2)]
    ),
    case!(TwoCauses, "packet_loss", ["link_bound"], "two_loss_and_link", [Need::Program("nginx")]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::cases::CASES;
    use super::super::cases::tests::CODES;
    use super::super::split::Part;
    use super::*;

    #[test]
    fn every_case_is_an_experiment_with_known_verdicts_and_a_name_of_its_own() {
        assert!(FOREIGN.len() >= 44, "{}", FOREIGN.len());
        for (at, case) in FOREIGN.iter().enumerate() {
            for verdict in std::iter::once(&case.verdict).chain(case.accepts) {
                assert!(CODES.contains(verdict), "{}: {verdict}", case.name);
            }
            let before = FOREIGN[..at].iter().chain(CASES);
            assert!(before.into_iter().all(|other| other.name != case.name), "{}", case.name);
            let experiment = case.experiment().unwrap_or_else(|problems| panic!("{problems:?}"));
            assert!(!experiment.title.is_empty(), "{}", case.name);
            assert_eq!(case.kind == Kind::Healthy, case.verdict == "none" && !is_decoy(case));
            if case.kind == Kind::TwoCauses {
                assert_eq!(case.accepts.len(), 1, "{}", case.name);
            } else if !case.accepts.is_empty() {
                let comment = case.file.lines().nth(1).unwrap_or_default();
                assert!(comment.starts_with("# "), "{}: say why two verdicts are right", case.name);
            }
            assert!(!experiment.scenario.global_settings().iter().any(|_| true), "{}", case.name);
        }
    }

    fn is_decoy(case: &Case) -> bool {
        case.kind == Kind::Decoy
    }

    /// The parts by kind: about half of each, so that both parts can tell the kinds apart.
    #[test]
    fn both_parts_have_cases_of_every_kind() {
        let mut counts: BTreeMap<Kind, (i32, i32)> = BTreeMap::new();
        for case in FOREIGN {
            let (development, held_out) = counts.entry(case.kind).or_default();
            match case.part() {
                Some(Part::Development) => *development += 1,
                Some(Part::HeldOut) => *held_out += 1,
                None => panic!("{} has no part", case.name),
            }
        }
        assert_eq!(counts.len(), 4);
        for (kind, (development, held_out)) in counts {
            assert!((development - held_out).abs() <= 2, "{kind:?}: {development}, {held_out}");
        }
        assert_eq!(CASES[0].part(), None);
    }
}
