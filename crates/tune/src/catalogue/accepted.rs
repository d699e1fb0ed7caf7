//! Values that the kernel accepts for each setting, by the file of the kernel's source that says so. Ranges of
//! settings of a network namespace are compared with the running kernel by a test.

use crate::kernel_value::AcceptedValues::{
    self, CongestionControl, Numbers, PortList, ReadOnly, Text, Words,
};

type Row = (&'static str, AcceptedValues);

const fn number(min: i128, max: i128) -> AcceptedValues {
    Numbers { fields: 1, min, max }
}

const fn numbers(fields: usize, min: i128, max: i128) -> AcceptedValues {
    Numbers { fields, min, max }
}

/// Largest `int`.
const INT_MAX: i128 = i32::MAX as i128;
/// Largest `unsigned long` of 64 bits.
const ULONG_MAX: i128 = u64::MAX as i128;
/// Largest `long` of 64 bits.
const LONG_MAX: i128 = i64::MAX as i128;
/// Lowest `CONFIG_HZ`: a time in jiffies must fit into an int.
const HZ_MIN: i128 = 100;

const INT: AcceptedValues = number(i32::MIN as i128, INT_MAX);
const NATURAL: AcceptedValues = number(0, INT_MAX);
const POSITIVE: AcceptedValues = number(1, INT_MAX);
const U8: AcceptedValues = number(0, 255);
const SWITCH: AcceptedValues = number(0, 1);
const CHOICE: AcceptedValues = number(0, 2);
const UINT: AcceptedValues = number(0, u32::MAX as i128);
const ULONG: AcceptedValues = number(0, ULONG_MAX);
const PERCENT: AcceptedValues = number(0, 100);
const SECONDS: AcceptedValues = number(-INT_MAX / HZ_MIN, INT_MAX / HZ_MIN);

/// `net/ipv4/sysctl_net_ipv4.c`.
const IPV4: &[Row] = &[
    ("net.ipv4.icmp_echo_ignore_all", SWITCH),
    ("net.ipv4.icmp_echo_ignore_broadcasts", SWITCH),
    ("net.ipv4.icmp_ignore_bogus_error_responses", SWITCH),
    ("net.ipv4.ip_autobind_reuse", SWITCH),
    ("net.ipv4.ip_default_ttl", number(1, 255)),
    ("net.ipv4.ip_early_demux", U8),
    ("net.ipv4.ip_forward", INT),
    ("net.ipv4.ip_local_port_range", numbers(2, 1, 65_535)),
    ("net.ipv4.ip_local_reserved_ports", PortList),
    ("net.ipv4.ip_no_pmtu_disc", U8),
    ("net.ipv4.ip_nonlocal_bind", U8),
    ("net.ipv4.ip_unprivileged_port_start", number(0, 65_535)),
    ("net.ipv4.tcp_abort_on_overflow", U8),
    ("net.ipv4.tcp_adv_win_scale", number(-31, 31)),
    ("net.ipv4.tcp_allowed_congestion_control", Text),
    ("net.ipv4.tcp_app_win", number(0, 31)),
    ("net.ipv4.tcp_autocorking", SWITCH),
    ("net.ipv4.tcp_available_congestion_control", ReadOnly),
    ("net.ipv4.tcp_base_mss", INT),
    ("net.ipv4.tcp_challenge_ack_limit", INT),
    ("net.ipv4.tcp_child_ehash_entries", number(0, 1 << 24)),
    ("net.ipv4.tcp_comp_sack_delay_ns", ULONG),
    ("net.ipv4.tcp_comp_sack_nr", U8),
    ("net.ipv4.tcp_congestion_control", CongestionControl),
    ("net.ipv4.tcp_dsack", U8),
    ("net.ipv4.tcp_early_demux", U8),
    ("net.ipv4.tcp_early_retrans", number(0, 4)),
    ("net.ipv4.tcp_ecn", CHOICE),
    ("net.ipv4.tcp_fack", U8),
    ("net.ipv4.tcp_fastopen", INT),
    ("net.ipv4.tcp_fin_timeout", SECONDS),
    ("net.ipv4.tcp_frto", U8),
    ("net.ipv4.tcp_keepalive_intvl", SECONDS),
    ("net.ipv4.tcp_keepalive_probes", U8),
    ("net.ipv4.tcp_keepalive_time", SECONDS),
    ("net.ipv4.tcp_limit_output_bytes", INT),
    ("net.ipv4.tcp_low_latency", INT),
    ("net.ipv4.tcp_max_orphans", INT),
    ("net.ipv4.tcp_max_reordering", POSITIVE),
    ("net.ipv4.tcp_max_syn_backlog", INT),
    ("net.ipv4.tcp_max_tw_buckets", INT),
    ("net.ipv4.tcp_mem", numbers(3, 0, ULONG_MAX)),
    ("net.ipv4.tcp_migrate_req", SWITCH),
    ("net.ipv4.tcp_min_snd_mss", number(48, 65_535)),
    ("net.ipv4.tcp_min_tso_segs", number(1, 255)),
    ("net.ipv4.tcp_moderate_rcvbuf", U8),
    ("net.ipv4.tcp_mtu_probing", U8),
    ("net.ipv4.tcp_no_metrics_save", U8),
    ("net.ipv4.tcp_notsent_lowat", UINT),
    ("net.ipv4.tcp_orphan_retries", U8),
    ("net.ipv4.tcp_pacing_ca_ratio", number(0, 1000)),
    ("net.ipv4.tcp_pacing_ss_ratio", number(0, 1000)),
    ("net.ipv4.tcp_plb_enabled", SWITCH),
    ("net.ipv4.tcp_recovery", U8),
    ("net.ipv4.tcp_reordering", number(1, INT_MAX)),
    ("net.ipv4.tcp_retrans_collapse", U8),
    ("net.ipv4.tcp_retries1", U8),
    ("net.ipv4.tcp_retries2", U8),
    ("net.ipv4.tcp_rfc1337", U8),
    ("net.ipv4.tcp_rmem", numbers(3, 1, INT_MAX)),
    ("net.ipv4.tcp_rto_max_ms", number(1000, 120_000)),
    ("net.ipv4.tcp_rto_min_us", POSITIVE),
    ("net.ipv4.tcp_sack", U8),
    ("net.ipv4.tcp_shrink_window", SWITCH),
    ("net.ipv4.tcp_slow_start_after_idle", U8),
    ("net.ipv4.tcp_stdurg", U8),
    ("net.ipv4.tcp_syn_linear_timeouts", number(0, 127)),
    ("net.ipv4.tcp_syn_retries", number(1, 127)),
    ("net.ipv4.tcp_synack_retries", U8),
    ("net.ipv4.tcp_syncookies", U8),
    ("net.ipv4.tcp_thin_linear_timeouts", U8),
    ("net.ipv4.tcp_timestamps", U8),
    ("net.ipv4.tcp_tso_win_divisor", U8),
    ("net.ipv4.tcp_tw_reuse", CHOICE),
    ("net.ipv4.tcp_tw_reuse_delay", number(1, 60_000)),
    ("net.ipv4.tcp_window_scaling", U8),
    ("net.ipv4.tcp_wmem", numbers(3, 1, INT_MAX)),
    ("net.ipv4.tcp_workaround_signed_windows", U8),
    ("net.ipv4.udp_mem", numbers(3, 0, ULONG_MAX)),
    ("net.ipv4.udp_rmem_min", POSITIVE),
    ("net.ipv4.udp_wmem_min", POSITIVE),
];

/// `net/ipv4/route.c`, `net/ipv4/devinet.c`, `net/ipv6/addrconf.c` and `net/core/neighbour.c`.
const ROUTING: &[Row] = &[
    ("net.ipv4.conf.all.forwarding", INT),
    ("net.ipv4.conf.all.rp_filter", INT),
    ("net.ipv4.conf.default.rp_filter", INT),
    ("net.ipv4.neigh.default.gc_thresh1", NATURAL),
    ("net.ipv4.neigh.default.gc_thresh2", NATURAL),
    ("net.ipv4.neigh.default.gc_thresh3", NATURAL),
    ("net.ipv4.route.max_size", INT),
    ("net.ipv6.conf.all.forwarding", INT),
];

/// `net/core/sysctl_net_core.c` and `net/unix/sysctl_net_unix.c`.
const CORE: &[Row] = &[
    ("net.core.bpf_jit_enable", CHOICE),
    ("net.core.busy_poll", NATURAL),
    ("net.core.busy_read", NATURAL),
    ("net.core.default_qdisc", Words(QDISCS)),
    ("net.core.dev_weight", POSITIVE),
    ("net.core.flow_limit_cpu_bitmap", Text),
    ("net.core.gro_normal_batch", POSITIVE),
    ("net.core.high_order_alloc_disable", SWITCH),
    ("net.core.message_burst", INT),
    ("net.core.message_cost", SECONDS),
    ("net.core.netdev_budget", INT),
    ("net.core.netdev_budget_usecs", number(2000, INT_MAX)),
    ("net.core.netdev_max_backlog", INT),
    ("net.core.optmem_max", NATURAL),
    ("net.core.rmem_default", number(2304, INT_MAX)),
    ("net.core.rmem_max", number(2304, INT_MAX)),
    ("net.core.rps_sock_flow_entries", number(0, 1 << 29)),
    ("net.core.somaxconn", NATURAL),
    ("net.core.wmem_default", number(4608, INT_MAX)),
    ("net.core.wmem_max", number(4608, INT_MAX)),
    ("net.unix.max_dgram_qlen", INT),
];

/// Queueing disciplines, `net/sched/sch_*.c`.
const QDISCS: &[&str] = &[
    "bfifo",
    "cake",
    "cbs",
    "choke",
    "codel",
    "drr",
    "dualpi2",
    "etf",
    "ets",
    "fq",
    "fq_codel",
    "fq_pie",
    "gred",
    "hfsc",
    "hhf",
    "htb",
    "mq",
    "mqprio",
    "multiq",
    "netem",
    "noqueue",
    "pfifo",
    "pfifo_fast",
    "pfifo_head_drop",
    "pie",
    "plug",
    "prio",
    "qfq",
    "red",
    "sfb",
    "sfq",
    "skbprio",
    "taprio",
    "tbf",
];

/// `net/netfilter/nf_conntrack_standalone.c`.
const CONNTRACK: &[Row] = &[
    ("net.netfilter.nf_conntrack_buckets", UINT),
    ("net.netfilter.nf_conntrack_count", ReadOnly),
    ("net.netfilter.nf_conntrack_max", NATURAL),
    ("net.netfilter.nf_conntrack_tcp_loose", SWITCH),
    ("net.netfilter.nf_conntrack_tcp_timeout_close_wait", SECONDS),
    ("net.netfilter.nf_conntrack_tcp_timeout_established", SECONDS),
    ("net.netfilter.nf_conntrack_tcp_timeout_fin_wait", SECONDS),
    ("net.netfilter.nf_conntrack_tcp_timeout_time_wait", SECONDS),
];

/// `fs/file_table.c`, `fs/aio.c`, `fs/eventpoll.c`, `fs/pipe.c` and `fs/notify/inotify/inotify_user.c`.
const FILES: &[Row] = &[
    ("fs.aio-max-nr", ULONG),
    ("fs.aio-nr", ReadOnly),
    ("fs.dentry-state", ReadOnly),
    ("fs.epoll.max_user_watches", number(0, LONG_MAX)),
    ("fs.file-max", number(0, LONG_MAX)),
    ("fs.file-nr", ReadOnly),
    ("fs.inode-nr", ReadOnly),
    ("fs.inode-state", ReadOnly),
    ("fs.inotify.max_user_instances", NATURAL),
    ("fs.inotify.max_user_watches", NATURAL),
    ("fs.nr_open", number(64, 2_147_483_584)),
    ("fs.pipe-user-pages-soft", ULONG),
    ("fs.protected_fifos", CHOICE),
    ("fs.protected_hardlinks", SWITCH),
    ("fs.protected_regular", CHOICE),
    ("fs.protected_symlinks", SWITCH),
    ("fs.suid_dumpable", CHOICE),
];

/// `mm/page-writeback.c`, `mm/util.c`, `mm/page_alloc.c`, `mm/oom_kill.c` and the other files of `mm`.
const MEMORY: &[Row] = &[
    ("vm.admin_reserve_kbytes", ULONG),
    ("vm.compaction_proactiveness", PERCENT),
    ("vm.dirty_background_bytes", number(1, ULONG_MAX)),
    ("vm.dirty_background_ratio", PERCENT),
    ("vm.dirty_bytes", number(8192, ULONG_MAX)),
    ("vm.dirty_expire_centisecs", NATURAL),
    ("vm.dirty_ratio", PERCENT),
    ("vm.drop_caches", number(1, 4)),
    ("vm.max_map_count", NATURAL),
    ("vm.min_free_kbytes", NATURAL),
    ("vm.nr_hugepages", ULONG),
    ("vm.overcommit_kbytes", ULONG),
    ("vm.overcommit_memory", CHOICE),
    ("vm.overcommit_ratio", INT),
    ("vm.page-cluster", number(0, 31)),
    ("vm.panic_on_oom", CHOICE),
    ("vm.stat_interval", SECONDS),
    ("vm.swappiness", number(0, 200)),
    ("vm.user_reserve_kbytes", ULONG),
    ("vm.vfs_cache_pressure", NATURAL),
    ("vm.watermark_boost_factor", NATURAL),
    ("vm.watermark_scale_factor", number(1, 3000)),
    ("vm.zone_reclaim_mode", NATURAL),
];

/// `kernel/sysctl.c`, `kernel/pid.c`, `kernel/fork.c`, `kernel/watchdog.c`, `ipc/ipc_sysctl.c` and the other files
/// of `kernel`.
const KERNEL: &[Row] = &[
    ("kernel.core_uses_pid", INT),
    ("kernel.dmesg_restrict", SWITCH),
    ("kernel.hung_task_timeout_secs", number(0, LONG_MAX / HZ_MIN)),
    ("kernel.io_uring_disabled", CHOICE),
    ("kernel.kptr_restrict", CHOICE),
    ("kernel.msgmax", NATURAL),
    ("kernel.msgmnb", NATURAL),
    ("kernel.ngroups_max", ReadOnly),
    ("kernel.nmi_watchdog", SWITCH),
    ("kernel.numa_balancing", number(0, 4)),
    ("kernel.osrelease", ReadOnly),
    ("kernel.ostype", ReadOnly),
    ("kernel.panic", INT),
    ("kernel.panic_on_oops", INT),
    ("kernel.perf_event_paranoid", INT),
    ("kernel.pid_max", number(301, 4_194_304)),
    ("kernel.random.entropy_avail", ReadOnly),
    ("kernel.random.poolsize", ReadOnly),
    ("kernel.randomize_va_space", INT),
    ("kernel.sched_autogroup_enabled", SWITCH),
    ("kernel.shmall", ULONG),
    ("kernel.shmmax", ULONG),
    ("kernel.shmmni", number(0, 1 << 24)),
    ("kernel.sysrq", INT),
    ("kernel.task_delayacct", SWITCH),
    ("kernel.threads-max", number(20, 0x3fff_ffff)),
    ("kernel.timer_migration", SWITCH),
    ("kernel.unprivileged_bpf_disabled", CHOICE),
    ("kernel.version", ReadOnly),
    ("kernel.watchdog_thresh", number(0, 60)),
];

/// `mm/huge_memory.c`, `kernel/cpu.c` and `drivers/cpufreq`.
const SYSFS: &[Row] = &[
    (
        "cpu.governor",
        Words(&["performance", "powersave", "schedutil", "ondemand", "conservative", "userspace"]),
    ),
    ("cpu.min_perf_pct", PERCENT),
    ("cpu.smt", Words(&["on", "off", "forceoff"])),
    ("thp.defrag", Words(&["always", "defer", "defer+madvise", "madvise", "never"])),
    ("thp.enabled", Words(&["always", "madvise", "never"])),
];

/// Tables, with the files of the kernel's source that they are from.
const TABLES: &[(&str, &[Row])] = &[
    ("net/ipv4/sysctl_net_ipv4.c", IPV4),
    ("net/ipv4, net/ipv6 and net/core/neighbour.c", ROUTING),
    ("net/core/sysctl_net_core.c", CORE),
    ("net/netfilter/nf_conntrack_standalone.c", CONNTRACK),
    ("fs", FILES),
    ("mm", MEMORY),
    ("kernel and ipc", KERNEL),
    ("mm/huge_memory.c, kernel/cpu.c and drivers/cpufreq", SYSFS),
];

/// Returns the values that a setting accepts, and the files of the kernel's source that say so. A setting of an
/// interface has those of `all`.
pub fn accepted_values(name: &str) -> Option<(AcceptedValues, &'static str)> {
    let find = |name: &str| {
        let mut rows = TABLES.iter().flat_map(|(source, rows)| rows.iter().map(move |row| (row, *source)));
        rows.find(|((known, _), _)| *known == name).map(|((_, accepted), source)| (*accepted, source))
    };
    find(name).or_else(|| find(&super::general_name(name)?))
}

#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|(_, rows)| rows.iter().map(|(name, _)| *name))
}
