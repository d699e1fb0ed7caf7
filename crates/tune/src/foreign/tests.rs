//! The sysctl lists of the notes get the assessments of the catalogue, each with its reason.

use std::collections::BTreeMap;

use super::*;
use crate::report::LimitTarget;
use crate::setting::Role;
use Assessment::{Conditional, Harmful, Invalid, Obsolete, Recommend};

/// Settings of a page about nginx (2018), as published, with its comments.
const NGINX_PAGE: &str = include_str!("../../tests/data/nginx-page.conf");
/// Settings of a page about HAProxy.
const HAPROXY_PAGE: &str = include_str!("../../tests/data/haproxy-page.conf");

fn names() -> BTreeMap<String, bool> {
    let names = [
        ("kernel.sysrq", true),
        ("kernel.version", false),
        ("net.ipv4.conf.all.rp_filter", true),
        ("net.ipv4.conf.default.rp_filter", true),
        ("net.ipv4.conf.eth0.rp_filter", true),
        ("net.ipv4.conf.hub0.rp_filter", true),
        ("net.ipv4.icmp_echo_ignore_all", true),
    ];
    names.into_iter().map(|(name, is_writable)| (name.to_owned(), is_writable)).collect()
}

fn machine() -> BTreeMap<String, String> {
    let values = [
        ("fs.file-max", "2466177"),
        ("net.ipv4.tcp_max_tw_buckets", "131072"),
        ("net.ipv4.tcp_mem", "287901 383868 575802"),
        ("net.ipv4.tcp_available_congestion_control", "reno cubic"),
        ("net.ipv4.conf.all.forwarding", "1"),
        ("fs.nr_open", "1048576"),
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
        congestion_modules: &["bbr".to_owned()],
        replaced: BTreeMap::new(),
    };
    let facts = MachineFacts { names: names(), ..MachineFacts::default() };
    judge_lines(&parse_file("a.conf", text), &context, &facts)
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
        ("ip_forward", Obsolete, "the default of kernel 6.18"),
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
    assert!(texts(6).contains("sets the first 2 of 3 numbers"), "{}", texts(6));
    assert_eq!((lines[7].line, lines[7].verdict), (11, Conditional));
    assert!(texts(8).contains("no setting of this kernel matches") && !lines[8].is_finding);
    assert_eq!(lines[9].verdict, Obsolete);
}

#[test]
fn a_profile_of_tuned_is_read() {
    let text = "[main]\nsummary=x\ninclude=latency-performance\n[vm]\ntransparent_hugepages=never\n[sysctl]\n\
        net.core.busy_read=50\nnet.ipv4.tcp_fastopen=3\nkernel.numa_balancing=0\n[bootloader]\n\
        cmdline_network_latency=skew_tick=1 tsc=reliable rcupdate.x=1\n[cpu]\ngovernor=performance\n\
        force_latency=cstate.id_no_zero:1|3\n[scheduler]\nruntime=0\n[variables]\nx=1\n[sysctl]\nvm.swappiness=${x}\n";
    assert_eq!(detect_format("a", text), FileFormat::Tuned);
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
    assert_eq!(line(&lines, "swappiness").value, "1");
}

/// Judges a text with values, names and files of a machine.
fn judge_on(text: &str, file: &str, values: &[(&str, &str)], facts: &MachineFacts) -> Vec<LineFinding> {
    let mut machine = machine();
    machine.extend(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let context = JudgeContext {
        kernel: CURRENT,
        memory_bytes: 24 << 30,
        page_bytes: 4096,
        role: Role::Proxy,
        machine: &machine,
        congestion_modules: &["bbr".to_owned()],
        replaced: BTreeMap::new(),
    };
    judge_lines(&parse_file(file, text), &context, facts)
}

fn facts() -> MachineFacts {
    MachineFacts { names: names(), ..MachineFacts::default() }
}

#[test]
fn values_that_the_kernel_rejects_are_invalid_and_others_are_not() {
    for (text, is_invalid) in [
        ("net.core.somaxconn = 4294967295", true),
        ("net.core.somaxconn = 0x10000", false),
        ("net.ipv4.tcp_rmem = 4096 131072 2500000000", true),
        ("net.ipv4.tcp_rmem = 4096", false),
        ("net.ipv4.tcp_rmem = 4096 131072 33554432 # text", false),
        ("net.ipv4.tcp_tw_reuse = 3", true),
        ("net.ipv4.tcp_syn_retries = 200", true),
        ("net.ipv4.tcp_congestion_control = nosuch", true),
        ("net.ipv4.tcp_congestion_control = cubic", false),
        ("net.ipv4.tcp_congestion_control = bbr", false),
        ("net.core.default_qdisc = fq2", true),
        ("net.core.default_qdisc = cake", false),
        ("net.ipv4.tcp_available_congestion_control = cubic", true),
        ("kernel.version = 7", true),
        ("net.ipv4.icmp_echo_ignore_all = 7", true),
        ("net.ipv4.icmp_echo_ignore_all = 01", false),
        ("net.ipv4.ip_local_reserved_ports = 8080,9000-9100", false),
        ("net.ipv4.ip_local_reserved_ports = 9100-9000", true),
        ("net.ipv4.tcp_fin_timeout = +30", true),
        ("vm.swappiness = 201", true),
        ("vm.swappiness = 200", false),
        ("kernel.pid_max = 4194305", true),
        ("thp.enabled = sometimes", true),
        ("net.ipv4.conf.eth0.rp_filter = 4294967296", true),
        ("-net.ipv4.not_here = 1", false),
        ("net.ipv4.not_here = 1", true),
    ] {
        let lines = judge_on(text, "a.conf", &[], &facts());
        assert_eq!(lines[0].verdict == Invalid, is_invalid, "{:?}", lines[0]);
        assert_eq!(lines[0].is_finding, is_invalid || lines[0].verdict == Harmful, "{:?}", lines[0]);
    }
    // A number with a leading 0 is octal: 010 is 8.
    let octal =
        &judge_on("net.ipv4.tcp_syn_retries = 010", "a", &[("net.ipv4.tcp_syn_retries", "6")], &facts())[0];
    assert_eq!(octal.change.as_deref(), Some("now 6, the default: the line sets 8"));
    // The kernel has the last word.
    let mut facts = facts();
    facts.rejected = BTreeMap::from([(1, "this kernel rejects it".to_owned())]);
    let text = "net.ipv4.tcp_sack = 1\nnet.ipv4.tcp_fin_timeout = 20\n";
    let lines = judge_on(text, "a", &[("net.ipv4.tcp_fin_timeout", "60")], &facts);
    assert!(lines[0].verdict != Invalid && lines[1].verdict == Invalid && lines[1].is_finding, "{lines:?}");
    assert_eq!(lines[1].change.as_deref(), Some("now 60, the default: no change"));
}

#[test]
fn a_line_is_judged_against_this_machine() {
    let set = |location: &str, value: &str| ReplacedValue {
        value: value.to_owned(),
        location: location.to_owned(),
    };
    let mut facts = facts();
    facts.set_by = BTreeMap::from([
        ("net.ipv4.tcp_sack".to_owned(), set("/etc/sysctl.d/9.conf:3", "0")),
        ("net.ipv4.tcp_dsack".to_owned(), set("/etc/sysctl.d/9.conf:4", "1")),
    ]);
    let forwards = [("net.ipv4.ip_forward", "1"), ("net.ipv4.tcp_sack", "0"), ("net.ipv4.tcp_dsack", "0")];
    let text = "net.ipv4.ip_forward = 0\nnet.ipv4.tcp_sack = 1\nnet.ipv4.tcp_dsack = 1\nnet.ipv4.conf.all.forwarding = 0\n\
        net.ipv4.ip_forward = 1\n";
    let lines = judge_on(text, "a", &forwards, &facts);
    let (first, second, third) = (&lines[0], &lines[1], &lines[2]);
    assert_eq!((first.verdict, first.is_finding), (Harmful, true));
    assert!(first.reasons[0].contains("forwards now"), "{first:?}");
    assert_eq!((second.verdict, second.set_by.as_deref()), (Conditional, Some("/etc/sysctl.d/9.conf:3")));
    assert!(second.reasons[0].starts_with("back to the default of kernel 6.18"), "{second:?}");
    assert_eq!(second.change.as_deref(), Some("now 0, set by /etc/sysctl.d/9.conf:3: the line sets 1"));
    let change = third.change.as_deref();
    assert_eq!(change, Some("now 0 (not by /etc/sysctl.d/9.conf:4, which sets 1): the line sets 1"));
    assert_eq!(lines[3].verdict, Harmful, "{:?}", lines[3]);
    assert_eq!(lines[4].change.as_deref(), Some("now 1, set by no file of this machine: no change"));
    // On a machine that does not forward, the same line has no effect.
    let calm = judge_on("net.ipv4.ip_forward = 0", "a", &[("net.ipv4.ip_forward", "0")], &facts);
    assert_eq!((calm[0].verdict, calm[0].is_finding), (Obsolete, false));
}

#[test]
fn patterns_leave_out_explicit_and_excluded_names() {
    let text = "net.ipv4.conf.*.rp_filter = 1\n-net.ipv4.conf.all.rp_filter\nnet/ipv4/conf/hub0/rp_filter = 2\n\
        net.ipv4.conf.eth?.rp_filter = 0\nnet.ipv4.conf.[!a-d]*.rp_filter = 2\n; comment\n";
    let lines = judge(text, CURRENT);
    let pattern = lines[0].reasons.join(" | ");
    assert!(
        pattern.contains("matches net.ipv4.conf.default.rp_filter, net.ipv4.conf.eth0.rp_filter"),
        "{pattern}"
    );
    assert!(!pattern.contains("conf.all") && !pattern.contains("hub0"), "{pattern}");
    assert!(lines[1].reasons[0].contains("keeps the patterns") && !lines[1].is_finding);
    assert_eq!((lines[2].name.as_str(), lines[2].is_finding), ("net.ipv4.conf.hub0.rp_filter", false));
    assert!(lines[3].reasons.iter().any(|text| text == "overridden by a.conf:5"), "{:?}", lines[3]);
    assert!(lines[4].reasons.join("").contains("matches net.ipv4.conf.eth0.rp_filter"), "{:?}", lines[4]);
    for (pattern, name, is_match) in [
        ("net.ipv4.conf.*.x", "net.ipv4.conf.a.x", true),
        ("net.*.x", "net.ipv4.conf.x", false),
        ("a*b*c", "axxbyyc", true),
        ("a*b*c", "axxbyy", false),
        ("*", "", true),
        ("[ab]?", "bz", true),
        ("[^ab]?", "bz", false),
        ("[a", "[a", false),
    ] {
        assert_eq!(matches_pattern(pattern, name), is_match, "{pattern} {name}");
    }
}

#[test]
fn one_of_an_exclusive_pair_overrides_the_other() {
    for (bytes, ratio) in crate::catalogue::EXCLUSIVE_PAIRS {
        let lines = judge(&format!("{ratio} = 15\n{bytes} = 100000000\n"), CURRENT);
        let expected = format!("overridden by a.conf:2: the kernel keeps one of {ratio} and {bytes}");
        assert!(lines[0].reasons.contains(&expected) && lines[0].is_finding, "{:?}", lines[0]);
        assert!(!lines[1].is_finding, "{:?}", lines[1]);
    }
}

#[test]
fn limits_are_those_of_pam_limits() {
    let text = "# comment\n* soft nofile 100000\n* hard nofile 65536\nnginx - nofile abc\nwww hard nofile 64k\n\
        @web - nofile unlimited\n*\tHARD\tNOFILE\t70000 # later\n% - nofile 5000\nroot soft nofile\n\
        1000:2000 - nproc 4096\nbob - nofil 5\nbob both nofile 5\n* soft memlock 64\nbob - nice -5\nguest -\n\
        * hard nofile 2000000\nann - nofile 9000\n* - nofile 8000\n";
    assert_eq!(detect_format("limits.conf", ""), FileFormat::Limits);
    let lines = judge_on(text, "x/limits.d/20-a.conf", &[], &facts());
    let texts = |at: usize| lines[at].reasons.join(" | ");
    let check = |at: usize, line: usize, is_invalid: bool, part: &str| {
        let found = &lines[at];
        assert_eq!((found.line, found.verdict == Invalid), (line, is_invalid), "{found:?}");
        assert!(texts(at).contains(part), "{part}: {}", texts(at));
    };
    check(0, 2, false, "limits.conf is for log-ins only");
    check(1, 3, false, "overridden by x/limits.d/20-a.conf:18");
    check(2, 4, true, "'abc' is not a number");
    check(3, 5, true, "pam_limits reads 64");
    check(4, 6, false, "open files");
    assert_eq!(lines[4].value, "unlimited");
    check(6, 8, true, "for maxlogins only");
    check(7, 9, true, "expected 'domain type item value'");
    check(8, 10, false, "a limit that the catalogue does not have");
    check(9, 11, true, "'nofil' is no limit");
    check(10, 12, true, "'both' is no type");
    check(11, 13, false, "64 KiB");
    assert_eq!(lines[11].value, "65536");
    check(12, 14, false, "a limit that the catalogue does not have");
    check(13, 15, false, "no limit applies to guest");
    check(14, 16, false, "above fs.nr_open");
    assert_eq!(lines[14].verdict, Harmful);
    // A line for a user is not overridden by a later one for everybody; '-' is both limits.
    assert!(!texts(15).contains("overridden"), "{}", texts(15));
    assert!(texts(0).contains("overridden by x/limits.d/20-a.conf:18"), "{}", texts(0));
    let lowered = judge_on("* soft nofile 9\n* hard nofile 8\n", "limits.conf", &[], &facts());
    assert!(lowered[0].reasons.join("").contains("above the hard limit 8 (limits.conf:2)"), "{lowered:?}");
    assert_eq!(lowered[0].limit.as_ref().map(LimitTarget::text).as_deref(), Some("* soft"));
}

/// Each line as pam_limits 1.5 applied it to a user and to root.
#[test]
fn ranges_signs_and_exemptions_are_those_of_pam_limits() {
    for (line, problem) in [
        ("100:200 - nofile 5000", None),
        (":101 - nofile 5000", None),
        ("@1000: - nofile 5000", None),
        ("%:104 - maxlogins 4", None),
        ("a:b - nofile 5000", Some("'a:b' is no range")),
        (": - nofile 5000", Some("no range")),
        ("0x10: - nofile 5000", Some("no range")),
        ("200:100 - nofile 5000", Some("empty")),
        ("%1000: - maxlogins 4", Some("no range of groups after %")),
        ("* -", Some("no effect")),
        ("%staff -", Some("no effect")),
        ("a:b -", Some("no range")),
        ("@staff -", None),
        ("1000: -", None),
        ("* soft nofile +300", None),
        ("* soft nofile -5", Some("pam_limits reads 18446744073709551611")),
        ("* x maxlogins 4", None),
        ("* x nonewprivs 1", None),
        ("* - maxlogins -5", None),
        ("* x nofile 4000", Some("'x' is no type")),
    ] {
        let found = &judge_on(&format!("{line}\n"), "limits.conf", &[], &facts())[0];
        let texts = found.reasons.join(" | ");
        assert_eq!(found.verdict == Invalid, problem.is_some(), "{line}: {found:?}");
        assert!(texts.contains(problem.unwrap_or_default()), "{line}: {texts}");
    }
    let signed = &judge_on("* soft nofile +300\n", "limits.conf", &[], &facts())[0];
    assert_eq!(signed.value, "300");
    // The hard limit for everybody holds for a user without one, and not for root.
    let notes = |domain: &str| {
        let text = format!("* hard nofile 1000\n{domain} soft nofile 3000\n");
        judge_on(&text, "limits.conf", &[], &facts())[1].reasons.join(" | ")
    };
    assert!(notes("ann").contains("above the hard limit 1000 (limits.conf:1)"), "{}", notes("ann"));
    assert!(notes("root").contains("no hard limit of root here"), "{}", notes("root"));
}

#[test]
fn forms_of_tuned_are_read() {
    let text = "[main]\ninclude = throughput-performance, -my-own\n[variables]\nn=4096\nm=${n}\n[low]\ntype=sysctl\n\
        net.core.somaxconn=>${m}\nvm.swappiness=${f:x:y}\n[bootloader]\ncmdline_a=+skew_tick=1 nosmt\n\
        cmdline_b=-quiet skew_tick=1\ninitrd_add_dir=/x\n[sysctl]\nenabled=false\nnet.ipv4.tcp_sack=9999\n\
        [cpu]\ngovernor=schedutil|performance\n";
    assert_eq!(
        included_profiles(text),
        [(2, "throughput-performance".to_owned()), (2, "-my-own".to_owned())]
    );
    let lines = judge(text, CURRENT);
    let found: Vec<(&str, &str, bool)> =
        lines.iter().map(|line| (line.name.as_str(), line.value.as_str(), line.is_finding)).collect();
    assert_eq!(
        found,
        [
            ("net.core.somaxconn", "4096", false),
            ("vm.swappiness", "${f:x:y}", false),
            ("boot.skew_tick", "1", false),
            ("boot.nosmt", "1", false),
            ("boot.quiet", "1", false),
            ("boot.skew_tick", "1", false),
            ("bootloader.initrd_add_dir", "/x", false),
            ("net.ipv4.tcp_sack", "9999", false),
            ("cpu.governor", "schedutil", false),
        ]
    );
    assert!(
        lines[0].reasons.join("").contains("only if it is above the value of the machine"),
        "{:?}",
        lines[0]
    );
    assert!(lines[4].reasons[0].contains("removes this parameter"), "{:?}", lines[4]);
    assert!(lines[7].reasons[0].contains("not enabled"), "{:?}", lines[7]);
    // A heading does not turn sysctl.conf into a profile.
    for text in
        ["[network]\nnet.core.somaxconn = 4096\n", "net.core.somaxconn = 4096\n[main]\nvm.swappiness = 10\n"]
    {
        assert_eq!(detect_format("sysctl.conf", text), FileFormat::Sysctl, "{text}");
        let lines = judge(text, CURRENT);
        assert_eq!(lines.iter().filter(|line| line.verdict == Invalid).count(), 1, "{lines:?}");
    }
}

#[test]
fn a_byte_order_mark_spoils_its_line_only() {
    let lines = judge("\u{feff}net.ipv4.tcp_sack = 1\r\nnet.ipv4.tcp_dsack = 1\r\n", CURRENT);
    assert_eq!((lines[0].verdict, lines[1].verdict), (Invalid, Obsolete), "{lines:?}");
    let commented = judge("\u{feff}# comment\nnet.ipv4.tcp_sack = 1\n", CURRENT);
    assert_eq!(commented[0].verdict, Obsolete);
}

/// Shapes of profiles and unit files of public projects, with other names and values.
#[test]
fn shapes_of_public_profiles_and_units_are_read() {
    let text = "[main]\nsummary=x\n[vm]\ndirty_bytes = 40%\ndirty_background_bytes=10%\n[sysctl]\n\
        net.core.somaxconn=>2048\nnet.ipv4.tcp_max_syn_backlog=<99\n[sysctl.arm]\ntype=sysctl\nuname_regex=arm\n\
        cpuinfo_regex=CPU part\\s+:\\s+(0x0?516)\nkernel.numa_balancing=0\n";
    let machine = [("net.core.somaxconn", "4096"), ("net.ipv4.tcp_max_syn_backlog", "2048")];
    let lines = judge_on(text, "a/tuned.conf", &machine, &facts());
    let found: Vec<(&str, &str)> =
        lines.iter().map(|line| (line.name.as_str(), line.value.as_str())).collect();
    assert_eq!(
        found,
        [
            ("vm.dirty_ratio", "40"),
            ("vm.dirty_background_ratio", "10"),
            ("net.core.somaxconn", "2048"),
            ("net.ipv4.tcp_max_syn_backlog", "99"),
            ("kernel.numa_balancing", "0"),
        ]
    );
    assert!(lines.iter().all(|line| !line.is_finding), "{lines:#?}");
    assert!(
        lines[2].reasons[0].contains("this machine has 4096, and tuned does not write 2048"),
        "{:?}",
        lines[2]
    );
    // A line that a later file overrides is no fault; within one file it is.
    let mut both = parse_file("base/tuned.conf", "[main]\n[sysctl]\nvm.swappiness=10\n");
    both.extend(parse_file("own/tuned.conf", "[main]\n[sysctl]\nvm.swappiness=30\n"));
    let machine = BTreeMap::new();
    let context = JudgeContext {
        kernel: CURRENT,
        memory_bytes: 24 << 30,
        page_bytes: 4096,
        role: Role::Proxy,
        machine: &machine,
        congestion_modules: &[],
        replaced: BTreeMap::new(),
    };
    let lines = judge_lines(&both, &context, &facts());
    assert!(
        !lines[0].is_finding && lines[0].reasons.join("").contains("overridden by own/tuned.conf:3"),
        "{lines:?}"
    );
    // A drop-in of systemd that has the name of limits.conf.
    let unit = "[Service]\nLimitNOFILE=100000\nLimitMEMLOCK=64K:infinity\nRestart=always\nLimitNOFILE=many\n";
    let lines = judge_on(unit, "etc/systemd/system/a.service.d/limits.conf", &[], &facts());
    let found: Vec<(usize, &str, bool)> =
        lines.iter().map(|line| (line.line, line.value.as_str(), line.is_finding)).collect();
    assert_eq!(found, [(2, "100000", false), (3, "64K", false), (3, "unlimited", false), (5, "many", true)]);
}
