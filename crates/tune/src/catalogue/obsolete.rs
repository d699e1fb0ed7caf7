//! Rows that a kernel removed or ignores, and which pages on the web still copy.

use super::{IP, KERNEL, v};
use crate::kernel::KernelVersion;
use crate::setting::Assessment::Obsolete;
use crate::setting::{NETNS, SETTING, Setting};

const fn gone(base: Setting, name: &'static str, removed: KernelVersion, effect: &'static str) -> Setting {
    Setting { name, removed: Some(removed), effect, risk: "none", verdict: Obsolete, ..base }
}

/// Returns the row of a setting that a kernel keeps and ignores.
const fn ignored(base: Setting, name: &'static str, since: KernelVersion, effect: &'static str) -> Setting {
    Setting { name, ignored: Some(since), effect, risk: "none", verdict: Obsolete, ..base }
}

/// Removed or ignored settings of TCP.
const TCP: Setting = Setting { source: IP, ..NETNS };
const SCHEDULER: Setting = Setting { source: KERNEL, ..SETTING };
/// Effect of the scheduler's former settings.
const MOVED: &str = "moved to /sys/kernel/debug/sched; replaced with the EEVDF scheduler in 6.6";

pub(super) const ROWS: &[Setting] = &[
    gone(
        TCP,
        "net.ipv4.tcp_tw_recycle",
        v(4, 12),
        "dropped connections of clients behind a NAT; use tcp_tw_reuse for outgoing \
            connections",
    ),
    gone(
        TCP,
        "net.ipv4.tcp_thin_dupack",
        v(4, 11),
        "retransmitted after one duplicate ACK; RACK replaces it",
    ),
    gone(TCP, "net.ipv4.tcp_abc", v(3, 9), "appropriate byte counting"),
    gone(TCP, "net.ipv4.tcp_frto_response", v(3, 10), "reaction to a spurious timeout"),
    gone(TCP, "net.ipv4.tcp_cookie_size", v(3, 10), "cookie transactions"),
    gone(TCP, "net.ipv4.tcp_dma_copybreak", v(3, 18), "copies by a DMA engine"),
    gone(
        TCP,
        "net.ipv4.netfilter.ip_conntrack_max",
        v(4, 9),
        "connection tracking; now net.netfilter.nf_conntrack_max",
    ),
    gone(
        TCP,
        "net.ipv4.ip_conntrack_max",
        v(2, 6),
        "connection tracking; now net.netfilter.nf_conntrack_max",
    ),
    gone(SCHEDULER, "kernel.sched_min_granularity_ns", v(5, 13), MOVED),
    gone(SCHEDULER, "kernel.sched_wakeup_granularity_ns", v(5, 13), MOVED),
    gone(SCHEDULER, "kernel.sched_migration_cost_ns", v(5, 13), MOVED),
    gone(SCHEDULER, "kernel.sched_latency_ns", v(5, 13), MOVED),
    gone(SCHEDULER, "kernel.sched_nr_migrate", v(5, 13), MOVED),
    ignored(TCP, "net.ipv4.tcp_fack", v(4, 15), "forward acknowledgement; RACK replaces it"),
    Setting {
        scope: crate::setting::Scope::Global,
        ..ignored(TCP, "net.ipv4.tcp_low_latency", v(4, 14), "turned off the prequeue, which is gone")
    },
    ignored(TCP, "net.ipv4.tcp_adv_win_scale", v(6, 6), "fraction of the buffer for overhead; now measured"),
    Setting {
        scope: crate::setting::Scope::Global,
        ..ignored(TCP, "net.ipv4.route.max_size", v(3, 6), "size of the route cache, which is gone")
    },
];
