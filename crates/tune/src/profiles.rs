//! Profiles: named sets of settings. Those with `sources-` are other people's, for comparison.

use crate::setting::Setting;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileSetting {
    pub name: &'static str,
    pub value: &'static str,
}

/// Named set of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    pub title: &'static str,
    /// Settings, in the order of writing.
    pub settings: &'static [ProfileSetting],
}

const fn set(name: &'static str, value: &'static str) -> ProfileSetting {
    ProfileSetting { name, value }
}

pub const PROFILES: &[Profile] = &[
    Profile {
        name: "latency",
        title: "short and steady response times, at the cost of power",
        settings: &[
            set("net.ipv4.tcp_slow_start_after_idle", "0"),
            set("net.ipv4.tcp_notsent_lowat", "131072"),
            set("net.ipv4.tcp_autocorking", "0"),
            set("thp.enabled", "madvise"),
            set("thp.defrag", "madvise"),
            set("cpu.governor", "performance"),
            set("vm.stat_interval", "10"),
            set("kernel.nmi_watchdog", "0"),
            set("kernel.timer_migration", "0"),
        ],
    },
    Profile {
        name: "throughput",
        title: "large bodies and long paths",
        settings: &[
            set("net.ipv4.tcp_slow_start_after_idle", "0"),
            set("net.ipv4.tcp_notsent_lowat", "131072"),
            set("net.ipv4.tcp_rmem", "4096 131072 33554432"),
            set("net.ipv4.tcp_wmem", "4096 16384 16777216"),
            set("net.ipv4.tcp_mtu_probing", "1"),
            set("net.core.default_qdisc", "fq"),
            set("cpu.governor", "performance"),
        ],
    },
    Profile {
        name: "proxy",
        title: "reverse proxy: many connections on both sides",
        settings: &[
            set("net.ipv4.ip_local_port_range", "1024 65023"),
            set("net.ipv4.tcp_tw_reuse", "1"),
            set("net.core.somaxconn", "16384"),
            set("net.ipv4.tcp_slow_start_after_idle", "0"),
            set("net.ipv4.tcp_notsent_lowat", "131072"),
            set("net.ipv4.tcp_migrate_req", "1"),
            set("net.unix.max_dgram_qlen", "512"),
        ],
    },
    Profile {
        name: "load-client",
        title: "load generator: many new connections",
        settings: &[
            set("net.ipv4.ip_local_port_range", "1024 65023"),
            set("net.ipv4.tcp_tw_reuse", "1"),
            set("net.ipv4.tcp_no_metrics_save", "1"),
            set("cpu.governor", "performance"),
        ],
    },
    Profile {
        name: "sources-000-network-latency",
        title: "tuned's network-latency and busy polling, as in sources/000 (for comparison)",
        settings: &[
            set("net.core.busy_read", "50"),
            set("net.core.busy_poll", "50"),
            set("net.ipv4.tcp_fastopen", "3"),
            set("kernel.numa_balancing", "0"),
            set("thp.enabled", "never"),
            set("cpu.governor", "performance"),
            set("cpu.min_perf_pct", "100"),
            set("vm.dirty_ratio", "10"),
            set("vm.dirty_background_ratio", "3"),
            set("vm.swappiness", "10"),
            set("vm.stat_interval", "10"),
            set("kernel.nmi_watchdog", "0"),
            set("kernel.timer_migration", "0"),
            set("kernel.hung_task_timeout_secs", "600"),
        ],
    },
    Profile {
        name: "sources-001-nginx",
        title: "sysctl.conf of sources/001, with its harmful lines (for comparison)",
        settings: &[
            set("fs.file-max", "500000"),
            set("kernel.sysrq", "0"),
            set("kernel.core_uses_pid", "1"),
            set("kernel.msgmnb", "65536"),
            set("kernel.msgmax", "65536"),
            set("kernel.shmmax", "68719476736"),
            set("kernel.shmall", "4294967296"),
            set("net.core.wmem_default", "8388608"),
            set("net.core.rmem_default", "8388608"),
            set("net.core.wmem_max", "16777216"),
            set("net.core.rmem_max", "16777216"),
            set("net.core.netdev_max_backlog", "40960"),
            set("net.core.somaxconn", "40960"),
            set("net.ipv4.ip_forward", "0"),
            set("net.ipv4.conf.default.rp_filter", "1"),
            set("net.ipv4.tcp_syncookies", "1"),
            set("net.ipv4.tcp_max_tw_buckets", "6000"),
            set("net.ipv4.tcp_sack", "1"),
            set("net.ipv4.tcp_window_scaling", "1"),
            set("net.ipv4.tcp_rmem", "4096 87380 4194304"),
            set("net.ipv4.tcp_wmem", "4096 16384 4194304"),
            set("net.ipv4.tcp_mem", "94500000 915000000 927000000"),
            set("net.ipv4.tcp_max_orphans", "3276800"),
            set("net.ipv4.tcp_max_syn_backlog", "40960"),
            set("net.ipv4.tcp_timestamps", "0"),
            set("net.ipv4.tcp_synack_retries", "1"),
            set("net.ipv4.tcp_syn_retries", "1"),
            set("net.ipv4.tcp_tw_recycle", "1"),
            set("net.ipv4.tcp_tw_reuse", "1"),
            set("net.ipv4.tcp_fin_timeout", "1"),
            set("net.ipv4.tcp_keepalive_time", "30"),
            set("net.ipv4.tcp_slow_start_after_idle", "0"),
            set("net.ipv4.ip_local_port_range", "1024 65000"),
            set("vm.zone_reclaim_mode", "0"),
            set("kernel.kptr_restrict", "0"),
            set("thp.enabled", "madvise"),
            set("thp.defrag", "madvise"),
        ],
    },
    Profile {
        name: "sources-002-haproxy",
        title: "sysctl list of sources/002, with its harmful lines (for comparison)",
        settings: &[
            set("net.ipv4.tcp_rmem", "8192 174760 8388608"),
            set("net.ipv4.tcp_wmem", "8192 174760 8388608"),
            set("net.ipv4.tcp_tw_reuse", "1"),
            set("net.ipv4.ip_local_port_range", "1024 65023"),
            set("net.ipv4.tcp_max_syn_backlog", "60000"),
            set("net.ipv4.tcp_fin_timeout", "30"),
            set("net.ipv4.tcp_synack_retries", "3"),
            set("net.ipv4.ip_nonlocal_bind", "1"),
            set("net.core.somaxconn", "60000"),
            set("net.netfilter.nf_conntrack_max", "2000000"),
            set("net.netfilter.nf_conntrack_buckets", "2000000"),
            set("net.core.message_cost", "0"),
            set("net.ipv4.ip_unprivileged_port_start", "0"),
        ],
    },
];

pub fn find_profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

impl ProfileSetting {
    pub fn setting(&self) -> Option<&'static Setting> {
        crate::catalogue::find_setting(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_a_profile_is_in_the_catalogue_once() {
        for profile in PROFILES {
            for (at, setting) in profile.settings.iter().enumerate() {
                assert!(setting.setting().is_some(), "{}: {}", profile.name, setting.name);
                let earlier = &profile.settings[..at];
                assert!(earlier.iter().all(|other| other.name != setting.name), "{} twice", setting.name);
            }
        }
        assert_eq!(find_profile("proxy").unwrap().settings[1].value, "1");
        assert!(find_profile("none").is_none());
    }
}
