//! The sysctl lists of the notes get the verdicts of the catalogue, each with its reason.

use std::collections::BTreeMap;

use super::*;
use crate::setting::Role;
use Verdict::{Conditional, Harmful, Invalid, Obsolete, Recommend};

/// Settings of a page about nginx (2018), as published, with its comments.
const NGINX_PAGE: &str = include_str!("../../tests/data/nginx-page.conf");
/// Settings of a page about HAProxy.
const HAPROXY_PAGE: &str = include_str!("../../tests/data/haproxy-page.conf");

fn machine() -> BTreeMap<String, String> {
    let values = [
        ("fs.file-max", "2466177"),
        ("net.ipv4.tcp_max_tw_buckets", "131072"),
        ("net.ipv4.tcp_mem", "287901 383868 575802"),
        ("net.ipv4.tcp_max_orphans", "131072"),
        ("net.ipv4.tcp_timestamps", "1"),
        ("net.ipv4.tcp_syncookies", "1"),
        ("net.netfilter.nf_conntrack_max", "262144"),
        ("net.netfilter.nf_conntrack_buckets", "262144"),
    ];
    values.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn judge(text: &str, kernel: KernelVersion) -> Vec<LineFinding> {
    let machine = machine();
    let context = JudgeContext {
        kernel,
        memory_bytes: 24 << 30,
        page_bytes: 4096,
        role: Role::Proxy,
        machine: &machine,
        replaced: BTreeMap::new(),
    };
    judge_lines(&parse_file("a.conf", text), &context, &vec!["kernel.sysrq".to_owned()])
}

const CURRENT: KernelVersion = KernelVersion(6, 18);

/// Finds the line of a setting.
fn line<'a>(lines: &'a [LineFinding], name: &str) -> &'a LineFinding {
    lines.iter().find(|line| line.name.ends_with(name)).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn the_page_about_nginx_is_judged() {
    let lines = judge(NGINX_PAGE, CURRENT);
    for (name, verdict, reason) in [
        (
            "fs.file-max",
            Harmful,
            "lowers the max number of open files of this machine (this machine: 2466177)",
        ),
        ("kernel.sysrg", Invalid, "did you mean 'kernel.sysrq'"),
        ("core_uses_pid", Obsolete, "nothing to do with"),
        ("msgmnb", Obsolete, "System V"),
        ("msgmax", Obsolete, "System V"),
        ("shmmax", Obsolete, "a smaller value lowers the default"),
        ("shmall", Obsolete, "System V"),
        ("wmem_default", Obsolete, "TCP ignores it"),
        ("rmem_default", Obsolete, "TCP ignores it"),
        ("core.wmem_max", Conditional, "SO_SNDBUF"),
        ("core.rmem_max", Conditional, "SO_RCVBUF"),
        ("netdev_max_backlog", Conditional, "softnet_stat"),
        ("somaxconn", Conditional, "listen backlog"),
        ("ip_forward", Obsolete, "the default; a change resets"),
        (
            "default.rp filter",
            Invalid,
            "a name has no blanks (did you mean 'net.ipv4.conf.default.rp_filter'?)",
        ),
        ("tcp_syncookies", Recommend, "the default, and recommended"),
        ("tcp_max_tw_buckets", Harmful, "must not be lowered (this machine: 131072)"),
        ("tcp_sack", Obsolete, "the default of kernel 6.18"),
        ("tcp_window_scaling", Obsolete, "the default of kernel 6.18"),
        ("tcp_rmem", Harmful, "lowers the default max: a smaller window on long paths (default 33554432)"),
        ("tcp_wmem", Obsolete, "the default of kernel 6.18"),
        ("tcp_mem", Harmful, "more than this machine's memory"),
        ("tcp_max_orphans", Harmful, "64 KiB that cannot be swapped"),
        ("tcp_max_syn_backlog", Obsolete, "the limit of half-open connections is the listen backlog"),
        ("tcp_timestamps", Harmful, "tcp_tw_reuse"),
        ("tcp_synack_retries", Harmful, "lossy path"),
        ("tcp_syn_retries", Harmful, "gives up"),
        ("tcp_tw_recycle", Obsolete, "removed in 4.12: the kernel rejects it"),
        (
            "tcp_tw_reuse",
            Obsolete,
            "needs tcp_timestamps, which is off: 50 of 50 connections failed (a.conf:",
        ),
        ("tcp_fin_timeout", Harmful, "does not shorten TIME_WAIT"),
        ("tcp_keepalive_time", Conditional, "SO_KEEPALIVE"),
        ("slow_start_after_idle", Recommend, "reused connections"),
        ("ip_local_port_range", Recommend, "different parity"),
        ("zone_reclaim_mode", Obsolete, "the default of kernel 6.18"),
        ("kptr_restrict", Conditional, "unprivileged profilers"),
        ("process.nofile", Recommend, "open files of a process"),
    ] {
        let line = line(&lines, name);
        assert_eq!(line.verdict, verdict, "{line:?}");
        assert!(line.reasons.iter().any(|text| text.contains(reason)), "{name}: {:?}", line.reasons);
    }
    assert!(line(&lines, "tcp_tw_recycle").is_finding);
    let notes = &line(&lines, "fs.file-max").reasons;
    assert!(notes.iter().any(|note| note.contains("comments need a line of their own")), "{notes:?}");
}

#[test]
fn the_page_about_haproxy_is_judged() {
    let lines = judge(HAPROXY_PAGE, CURRENT);
    for (name, verdict, reason) in [
        ("tcp_rmem", Harmful, "lowers the default max"),
        ("tcp_wmem", Conditional, "100 k connections"),
        ("tcp_tw_reuse", Recommend, "TIME_WAIT"),
        ("ip_local_port_range", Recommend, "source ports"),
        ("tcp_max_syn_backlog", Obsolete, "tcp_syncookies=1"),
        ("tcp_fin_timeout", Conditional, "does not shorten TIME_WAIT"),
        ("tcp_synack_retries", Conditional, "SYN flood"),
        ("ip_nonlocal_bind", Conditional, "VRRP"),
        ("somaxconn", Conditional, "listen backlog"),
        ("nf_conntrack_max", Conditional, "notrack"),
        ("nf_conntrack_buckets", Conditional, "first network namespace"),
        ("message_cost", Harmful, "flood of log lines"),
        ("unprivileged_port_start", Conditional, "any user"),
    ] {
        let line = line(&lines, name);
        assert_eq!(line.verdict, verdict, "{line:?}");
        assert!(line.reasons.iter().any(|text| text.contains(reason)), "{name}: {:?}", line.reasons);
    }
    let parity = &line(&lines, "ip_local_port_range").reasons[0];
    assert!(!parity.contains("parity"), "{parity}");
    // Kernels before 6.16 had a lower default.
    assert_eq!(line(&judge(HAPROXY_PAGE, KernelVersion(6, 12)), "tcp_rmem").verdict, Conditional);
}

#[test]
fn units_duplicates_and_unknown_names_are_reported() {
    let text = "net.core.busy_read = 50 # 50ns, as the docs say\nnet.core.busy_poll = 50us\n\
        net.core.somaxconn = 1024\nnet/core/somaxconn = 8192\nnet.ipv4.tcp_fin_timeot = 30\nnonsense\n\
        -net.ipv4.tcp_rmem = 4096 131072\n; comment\n\n# comment\nnet.ipv4.conf.eth0.rp_filter=1\n\
        net.ipv4.*.x = 1\nkernel.sysrq = 1\n";
    let lines = judge(text, CURRENT);
    let texts = |at: usize| lines[at].reasons.join(" | ");
    assert!(texts(0).contains("the unit is µs, not ns"), "{}", texts(0));
    assert_eq!((lines[1].verdict, lines[1].is_finding), (Invalid, true));
    assert!(texts(1).contains("'50us': the unit is µs"), "{}", texts(1));
    assert!(texts(2).contains("overridden by a.conf:4") && lines[2].is_finding, "{}", texts(2));
    assert!(!lines[3].is_finding, "{}", texts(3));
    assert!(texts(4).contains("did you mean 'net.ipv4.tcp_fin_timeout'?"), "{}", texts(4));
    assert!(texts(5).contains("expected 'name = value'"), "{}", texts(5));
    assert!(texts(6).contains("2 numbers, where the kernel expects 3 numbers"), "{}", texts(6));
    assert_eq!((lines[7].line, lines[7].verdict), (11, Conditional));
    assert!(texts(8).contains("a pattern of names") && !lines[8].is_finding);
    assert_eq!(lines[9].verdict, Obsolete);
}

#[test]
fn a_profile_of_tuned_is_read() {
    let text = "[main]\nsummary=x\ninclude=latency-performance\n[vm]\ntransparent_hugepages=never\n[sysctl]\n\
        net.core.busy_read=50\nnet.ipv4.tcp_fastopen=3\nkernel.numa_balancing=0\n[bootloader]\n\
        cmdline_network_latency=skew_tick=1 tsc=reliable rcupdate.x=1\n[cpu]\ngovernor=performance\n\
        force_latency=cstate.id_no_zero:1|3\n[scheduler]\nruntime=0\n[variables]\nx=1\n[sysctl]\nvm.swappiness=${x}\n";
    assert_eq!(detect_format(text), FileFormat::Tuned);
    let lines = judge(text, CURRENT);
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "thp.enabled",
            "net.core.busy_read",
            "net.ipv4.tcp_fastopen",
            "kernel.numa_balancing",
            "boot.skew_tick",
            "boot.tsc",
            "boot.rcupdate.x",
            "cpu.governor",
            "cpu.idle_latency",
            "scheduler.runtime",
            "vm.swappiness"
        ]
    );
    assert!(lines.iter().all(|line| !line.is_finding), "{lines:#?}");
    assert_eq!(line(&lines, "cpu.governor").verdict, Recommend);
    assert!(line(&lines, "swappiness").reasons[0].contains("variable"));
}
