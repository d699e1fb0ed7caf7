//! Limits that a load run meets: descriptors, local ports, the listen queue, reuse of ports.
//!
//! [`crate::budget`] judges them; nothing here changes them.
//!
//! Sources: getrlimit(2); `Documentation/admin-guide/sysctl/fs.rst` (`nr_open`, `file-max`,
//! `file-nr`); `Documentation/networking/ip-sysctl.rst` (the `net.ipv4` names, `somaxconn`). The
//! `net` values are those of this process's network namespace.

use crate::kernel_file::{NotObservable, read_once};
use rustix::process::{Resource, getrlimit};

/// Limits of this process and this machine. `None`: see `not_observable`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Descriptors this process may have open now; `u64::MAX` is no limit.
    pub nofile_soft: u64,
    /// Maximum for the soft limit without privilege; `u64::MAX` is no limit.
    pub nofile_hard: u64,
    /// `fs.nr_open`: upper bound for the limit of any process.
    pub nr_open: Option<u64>,
    /// `fs.file-max`: maximum number of open files on the machine.
    pub file_max: Option<u64>,
    /// `fs.file-nr`, first figure: number of open files on the machine now.
    pub files_open: Option<u64>,
    /// `net.ipv4.ip_local_port_range`: first and last port of outgoing connections. IPv6 too.
    pub port_range: Option<(u16, u16)>,
    /// `net.ipv4.ip_local_reserved_ports`: inclusive ranges that the kernel never chooses.
    pub reserved_ports: Option<Vec<(u16, u16)>>,
    /// `net.ipv4.tcp_tw_reuse`: 0 off, 1 on, 2 on for loopback only.
    pub tcp_tw_reuse: Option<u8>,
    /// `net.ipv4.tcp_tw_reuse_delay`, in milliseconds (Linux 6.14; 1000 before).
    pub tcp_tw_reuse_delay_ms: Option<u32>,
    /// `net.ipv4.tcp_timestamps`: 0 off; reuse of ports needs them.
    pub tcp_timestamps: Option<u8>,
    /// `net.core.somaxconn`: maximum length of a listener's accept queue.
    pub somaxconn: Option<u32>,
    /// `net.ipv4.tcp_congestion_control`: the default of new sockets.
    pub congestion_control: Option<String>,
    /// Limits that could not be read.
    pub not_observable: Vec<NotObservable>,
}

impl Limits {
    /// Returns the number of ports for outgoing connections: the range minus the reserved ones. An
    /// unreadable reserved list counts as empty.
    pub fn usable_ports(&self) -> Option<u32> {
        Some(usable_ports(self.port_range?, self.reserved_ports.as_deref().unwrap_or(&[])))
    }
}

pub fn read() -> Limits {
    let nofile = getrlimit(Resource::Nofile);
    let mut missing = Vec::new();
    let mut limits = Limits {
        nofile_soft: nofile.current.unwrap_or(u64::MAX),
        nofile_hard: nofile.maximum.unwrap_or(u64::MAX),
        nr_open: read_sysctl("fs.nr_open", "fs/nr_open", parse_first, &mut missing),
        file_max: read_sysctl("fs.file-max", "fs/file-max", parse_first, &mut missing),
        files_open: read_sysctl("fs.file-nr", "fs/file-nr", parse_first, &mut missing),
        port_range: read_sysctl(
            "net.ipv4.ip_local_port_range",
            "net/ipv4/ip_local_port_range",
            parse_port_range,
            &mut missing,
        ),
        reserved_ports: read_sysctl(
            "net.ipv4.ip_local_reserved_ports",
            "net/ipv4/ip_local_reserved_ports",
            parse_port_list,
            &mut missing,
        ),
        tcp_tw_reuse: read_tcp_sysctl("net.ipv4.tcp_tw_reuse", "tcp_tw_reuse", &mut missing),
        tcp_tw_reuse_delay_ms: None,
        tcp_timestamps: read_tcp_sysctl("net.ipv4.tcp_timestamps", "tcp_timestamps", &mut missing),
        somaxconn: read_sysctl("net.core.somaxconn", "net/core/somaxconn", parse_first, &mut missing),
        congestion_control: read_sysctl(
            "net.ipv4.tcp_congestion_control",
            "net/ipv4/tcp_congestion_control",
            parse_word,
            &mut missing,
        ),
        not_observable: Vec::new(),
    };
    limits.tcp_tw_reuse_delay_ms =
        read_tcp_sysctl("net.ipv4.tcp_tw_reuse_delay", "tcp_tw_reuse_delay", &mut missing);
    limits.not_observable = missing;
    limits
}

/// Parses "32768\t60999".
pub fn parse_port_range(text: &str) -> Option<(u16, u16)> {
    let mut fields = text.split_ascii_whitespace();
    let range = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (range.0 <= range.1).then_some(range)
}

/// Parses "8080,9000-9002"; an empty text is an empty list.
pub fn parse_port_list(text: &str) -> Option<Vec<(u16, u16)>> {
    let parts = text.trim().split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.parse().ok()?, last.parse().ok()?))
        })
        .collect()
}

/// Returns the number of ports in `range` outside `reserved` (the kernel lists reserved ranges
/// without overlap).
pub fn usable_ports(range: (u16, u16), reserved: &[(u16, u16)]) -> u32 {
    let all = u32::from(range.1) - u32::from(range.0) + 1;
    let taken: u32 = reserved
        .iter()
        .map(|&(first, last)| (first.max(range.0), last.min(range.1)))
        .filter(|(first, last)| first <= last)
        .map(|(first, last)| u32::from(last) - u32::from(first) + 1)
        .sum();
    all.saturating_sub(taken)
}

fn parse_first<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn parse_word(text: &str) -> Option<String> {
    parse_first(text)
}

fn read_tcp_sysctl<T: std::str::FromStr>(
    figure: &'static str,
    file: &str,
    missing: &mut Vec<NotObservable>,
) -> Option<T> {
    read_sysctl(figure, &format!("net/ipv4/{file}"), parse_first, missing)
}

/// Parses one file below `/proc/sys`; reports an unreadable one to `missing`.
fn read_sysctl<T>(
    figure: &'static str,
    file: &str,
    parse: impl FnOnce(&str) -> Option<T>,
    missing: &mut Vec<NotObservable>,
) -> Option<T> {
    let path = format!("/proc/sys/{file}");
    let parsed = read_once(figure, &path)
        .and_then(|text| parse(&text).ok_or_else(|| NotObservable::bad_format(figure, &path)));
    parsed.map_err(|error| missing.push(error)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_range_is_two_ports_in_order() {
        assert_eq!(parse_port_range("32768\t60999\n"), Some((32768, 60999)));
        for text in ["", "1024", "60999 32768", "1024 70000", "a b"] {
            assert_eq!(parse_port_range(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_port_list_has_single_ports_and_ranges() {
        assert_eq!(parse_port_list("\n"), Some(vec![]));
        assert_eq!(parse_port_list("8080,9000-9002\n"), Some(vec![(8080, 8080), (9000, 9002)]));
        assert_eq!(parse_port_list("8080,x"), None);
    }

    #[test]
    fn reserved_ports_are_not_usable() {
        assert_eq!(usable_ports((32768, 60999), &[]), 28232);
        assert_eq!(usable_ports((32768, 60999), &[(8080, 8080), (32000, 32769)]), 28230);
        assert_eq!(usable_ports((0, 65535), &[]), 65536);
        assert_eq!(usable_ports((10, 12), &[(1, 65535)]), 0);
    }

    #[test]
    fn the_first_word_is_parsed() {
        assert_eq!(parse_first::<u64>("378\t0\t2466193"), Some(378));
        assert_eq!(parse_first::<u8>("2\n"), Some(2));
        assert_eq!(parse_word("bbr\n").as_deref(), Some("bbr"));
        assert_eq!(parse_word(""), None);
    }

    #[test]
    fn a_missing_limit_is_reported() {
        let mut missing = Vec::new();
        let got: Option<u64> = read_sysctl("a limit", "no/such", parse_first, &mut missing);
        assert_eq!(got, None);
        assert_eq!(missing[0].figure, "a limit");
    }

    #[test]
    fn the_live_limits_are_read() {
        let limits = read();
        assert!(limits.nofile_soft <= limits.nofile_hard);
        for missing in &limits.not_observable {
            assert!(!missing.reason.is_empty());
        }
    }
}
