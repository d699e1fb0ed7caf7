//! Kernel settings that affect connections, as in force for a process.
//!
//! Nothing here changes or judges them. Names are those of sysctl(8): `/proc/sys` with dots.
//!
//! Sources: `Documentation/networking/ip-sysctl.rst`, `Documentation/admin-guide/sysctl/net.rst`
//! and `fs.rst`. Some settings exist per network namespace and are visible only there; the others
//! are the machine's and visible only in its first namespace.

use record::sorted::CollectSorted;

use crate::kernel_file::{NotObservable, read_once};
use crate::namespace;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// One value per network namespace.
    Namespace,
    Machine,
}

use Scope::{Machine, Namespace};

/// Every setting that is read.
const SETTINGS: &[(&str, Scope)] = &[
    ("net.core.somaxconn", Namespace),
    ("net.ipv4.ip_local_port_range", Namespace),
    ("net.ipv4.ip_local_reserved_ports", Namespace),
    ("net.ipv4.tcp_abort_on_overflow", Namespace),
    ("net.ipv4.tcp_autocorking", Namespace),
    ("net.ipv4.tcp_congestion_control", Namespace),
    ("net.ipv4.tcp_fastopen", Namespace),
    ("net.ipv4.tcp_fin_timeout", Namespace),
    ("net.ipv4.tcp_max_syn_backlog", Namespace),
    ("net.ipv4.tcp_max_tw_buckets", Namespace),
    ("net.ipv4.tcp_migrate_req", Namespace),
    ("net.ipv4.tcp_moderate_rcvbuf", Namespace),
    ("net.ipv4.tcp_notsent_lowat", Namespace),
    ("net.ipv4.tcp_rmem", Namespace),
    ("net.ipv4.tcp_slow_start_after_idle", Namespace),
    ("net.ipv4.tcp_syncookies", Namespace),
    ("net.ipv4.tcp_syn_linear_timeouts", Namespace),
    ("net.ipv4.tcp_timestamps", Namespace),
    ("net.ipv4.tcp_tw_reuse", Namespace),
    ("net.ipv4.tcp_tw_reuse_delay", Namespace),
    ("net.ipv4.tcp_window_scaling", Namespace),
    ("net.ipv4.tcp_wmem", Namespace),
    ("net.netfilter.nf_conntrack_max", Namespace),
    ("net.core.busy_poll", Machine),
    ("net.core.busy_read", Machine),
    ("net.core.default_qdisc", Machine),
    ("net.core.netdev_budget", Machine),
    ("net.core.netdev_budget_usecs", Machine),
    ("net.core.netdev_max_backlog", Machine),
    ("net.core.rmem_max", Machine),
    ("net.core.wmem_max", Machine),
    ("net.ipv4.tcp_max_orphans", Machine),
    ("net.ipv4.tcp_mem", Machine),
    ("fs.file-max", Machine),
    ("fs.nr_open", Machine),
    ("kernel.numa_balancing", Machine),
    ("kernel.perf_event_paranoid", Machine),
    ("kernel.task_delayacct", Machine),
    ("vm.overcommit_memory", Machine),
];

/// Returns the settings of the machine and of the network namespace of process `pid` by name, and
/// those that could not be read. A setting that this kernel lacks is in neither.
pub fn read(pid: i32) -> (BTreeMap<String, String>, Vec<NotObservable>) {
    const FIGURE: &str = "settings of the network namespace";
    let mut missing = Vec::new();
    let mut settings = read_machine_settings();
    match namespace::run_in_netns_of(pid, FIGURE, || read_scope(Namespace)) {
        Ok(namespace_settings) => settings.extend(namespace_settings),
        Err(error) => missing.push(error),
    }
    (settings, missing)
}

/// Reads the machine's settings in its first network namespace, which is usually that of process 1.
fn read_machine_settings() -> BTreeMap<String, String> {
    let local = read_scope(Machine);
    if local.contains_key("net.core.netdev_max_backlog") {
        return local;
    }
    let first = namespace::run_in_netns_of(1, "settings of the machine", || read_scope(Machine));
    // Without permission to enter that namespace, only the settings visible here are returned.
    first.unwrap_or(local)
}

fn read_scope(requested: Scope) -> BTreeMap<String, String> {
    let named = SETTINGS.iter().filter(|(_, scope)| *scope == requested);
    named.filter_map(|(name, _)| Some(((*name).to_owned(), read_value(name)?))).collect_map()
}

fn read_value(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let text = read_once("a setting", &path).ok()?;
    Some(one_line(&text))
}

/// Converts "4096\t131072\t6291456" to single blanks.
fn one_line(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_once() {
        let mut names: Vec<&str> = SETTINGS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SETTINGS.len());
    }

    #[test]
    fn values_are_one_line() {
        assert_eq!(one_line("4096\t131072\t6291456\n"), "4096 131072 6291456");
        assert_eq!(one_line("\n"), "");
        assert_eq!(read_value("no.such.setting"), None);
    }

    #[test]
    fn the_live_settings_are_read() {
        let (settings, missing) = read(std::process::id() as i32);
        assert_eq!(missing, []);
        assert!(settings["net.core.somaxconn"].parse::<u32>().is_ok(), "{settings:?}");
        assert!(settings["net.ipv4.ip_local_port_range"].contains(' '));
        assert!(settings.contains_key("fs.file-max"));
        let (settings, missing) = read(i32::MAX);
        assert!(missing[0].reason.contains("/proc/2147483647/ns/net"), "{missing:?}");
        assert!(!settings.contains_key("net.core.somaxconn"));
    }
}
