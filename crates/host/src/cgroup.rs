//! The control group of a process, version 1 or 2: its directories, and the contents of their
//! files.
//!
//! This module creates no groups and sets no limits. [`CgroupReader`] reads the group of one process; the
//! rest is pure.
//!
//! Sources: cgroups(7); `Documentation/admin-guide/cgroup-v1/` (memory, blkio-controller),
//! `Documentation/scheduler/sched-bwc.rst` (quota), `Documentation/admin-guide/cgroup-v2.rst`;
//! `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

mod reader;

pub use reader::CgroupReader;

/// One line of `/proc/PID/cgroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership<'a> {
    /// Controllers of a version 1 hierarchy, separated by commas; empty for version 2.
    pub controllers: &'a str,
    /// Path of the group, from the root of the reader's view.
    pub group: &'a str,
}

/// Parses `/proc/PID/cgroup`; lines of another form are skipped.
pub fn parse_memberships(text: &str) -> impl Iterator<Item = Membership<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        fields.next()?;
        Some(Membership { controllers: fields.next()?, group: fields.next()? })
    })
}

/// Mount point of a hierarchy of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub directory: String,
    /// The group that this directory shows: "/" unless a container sees only a part.
    pub root: String,
    /// Controllers of a version 1 hierarchy; `None` for version 2.
    pub controllers: Option<String>,
}

/// Parses the control group hierarchies in `/proc/PID/mountinfo`.
pub fn parse_mounts(text: &str) -> Vec<Mount> {
    let mounts = text.lines().filter_map(|line| {
        let (mount_part, filesystem_part) = line.split_once(" - ")?;
        let mut mount_fields = mount_part.split(' ');
        let (root, directory) = (mount_fields.nth(3)?, mount_fields.next()?);
        let mut filesystem_fields = filesystem_part.split(' ');
        let controllers = match filesystem_fields.next()? {
            "cgroup2" => None,
            "cgroup" => Some(filesystem_fields.nth(1)?.to_owned()),
            _ => return None,
        };
        Some(Mount { directory: unescape(directory), root: unescape(root), controllers })
    });
    mounts.take(MAX_MOUNTS).collect()
}

/// Returns the directories of a process's group for one controller: its own first, then its parents
/// as far as they are visible. The root, which has no limits, is left out. `None` if the process is
/// in no such group.
pub fn group_directories(
    memberships: &str,
    mounts: &[Mount],
    controller: Controller<'_>,
) -> Option<Vec<String>> {
    let listed = |list: &str, expected: &str| list.split(',').any(|name| name == expected);
    let (member, mount) = match controller {
        Controller::V1(name) => (
            parse_memberships(memberships).find(|member| listed(member.controllers, name))?,
            mounts
                .iter()
                .find(|mount| mount.controllers.as_deref().is_some_and(|list| listed(list, name)))?,
        ),
        Controller::V2 => (
            parse_memberships(memberships).find(|member| member.controllers.is_empty())?,
            mounts.iter().find(|mount| mount.controllers.is_none())?,
        ),
    };
    let root = mount.root.trim_end_matches('/');
    let relative_path = member.group.strip_prefix(root)?.trim_end_matches('/');
    // "/../other": outside the namespace of this process.
    if relative_path.split('/').any(|name| name == "..") {
        return None;
    }
    let mut directories = Vec::new();
    let mut group = relative_path;
    while !group.is_empty() && directories.len() < MAX_LEVELS {
        directories.push(format!("{}{group}", mount.directory));
        group = group.rsplit_once('/')?.0;
    }
    Some(directories)
}

/// Selects a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller<'a> {
    /// The version 1 hierarchy of this controller.
    V1(&'a str),
    /// The unified hierarchy, version 2.
    V2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// CPU time that may be used per period, in microseconds.
    pub quota_us: u64,
    pub period_us: u64,
}

impl Quota {
    /// Returns the number of CPUs that the quota allows.
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

/// Parses `cpu.max`: "30000 100000"; `Some(None)` if there is no limit ("max").
pub fn parse_cpu_max(text: &str) -> Option<Option<Quota>> {
    let mut fields = text.split_ascii_whitespace();
    let (quota, period) = (fields.next()?, fields.next()?);
    if quota == "max" {
        return Some(None);
    }
    valid_quota(quota.parse().ok()?, period.parse().ok()?).map(Some)
}

/// Parses `cpu.cfs_quota_us` (negative: no limit) and `cpu.cfs_period_us`.
pub fn parse_cfs(quota: &str, period: &str) -> Option<Option<Quota>> {
    let quota: i64 = quota.trim().parse().ok()?;
    match u64::try_from(quota) {
        Ok(quota) => valid_quota(quota, period.trim().parse().ok()?).map(Some),
        Err(_) => Some(None),
    }
}

fn valid_quota(quota_us: u64, period_us: u64) -> Option<Quota> {
    (period_us > 0).then_some(Quota { quota_us, period_us })
}

/// Throttling of a group since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which the group had something to run.
    pub periods: u64,
    pub throttled_periods: u64,
    /// Throttled time of all CPUs, in nanoseconds.
    pub throttled_ns: u64,
}

/// Parses `cpu.stat` of either version. `None` if it has no throttling figures: version 2 without
/// the controller.
pub fn parse_cpu_stat(text: &str) -> Option<Throttling> {
    let time =
        find_value(text, "throttled_time").or_else(|| find_value(text, "throttled_usec")?.checked_mul(1000));
    Some(Throttling {
        periods: find_value(text, "nr_periods")?,
        throttled_periods: find_value(text, "nr_throttled")?,
        throttled_ns: time?,
    })
}

/// Parses a memory limit in bytes; `Some(None)` is no limit: "max", or the largest figure of
/// version 1.
pub fn parse_memory_max(text: &str) -> Option<Option<u64>> {
    // `PAGE_COUNTER_MAX` in bytes: 2^63 rounded down to a page, whose size may be 64 KiB.
    const UNLIMITED_FROM: u64 = (1 << 63) - (1 << 16);
    match text.trim() {
        "max" => Some(None),
        figure => Some(Some(figure.parse().ok()?).filter(|bytes| *bytes < UNLIMITED_FROM)),
    }
}

/// Parses `memory.events`: number of times that usage reached the limit.
pub fn parse_memory_events(text: &str) -> Option<u64> {
    find_value(text, "max")
}

/// Parses `blkio.throttle.write_bps_device`: lines "254:0 2097152"; returns the minimum in bytes
/// per second.
pub fn parse_write_bps_device(text: &str) -> Option<u64> {
    text.lines().filter_map(|line| line.split_once(' ')?.1.trim().parse().ok()).min()
}

/// Parses `io.max`: lines "254:0 rbps=max wbps=2097152 riops=max wiops=max"; returns the minimum
/// `wbps`.
pub fn parse_io_max(text: &str) -> Option<u64> {
    let fields = text.split_ascii_whitespace();
    fields.filter_map(|field| field.strip_prefix("wbps=")?.parse().ok()).min()
}

/// Disk use of a group's processes since the group was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounts {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

/// Parses `io.stat`: lines "254:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0", one for each
/// disk that the group has used; returns the sums.
pub fn parse_io_stat(text: &str) -> DiskCounts {
    let mut sums = DiskCounts::default();
    for (key, figure) in text.split_ascii_whitespace().filter_map(|word| word.split_once('=')) {
        let sum = match key {
            "rbytes" => &mut sums.read_bytes,
            "wbytes" => &mut sums.written_bytes,
            "rios" => &mut sums.reads,
            "wios" => &mut sums.writes,
            _ => continue,
        };
        *sum = sum.saturating_add(figure.parse().unwrap_or(0));
    }
    sums
}

/// Parses `blkio.throttle.io_service_bytes` or `io_serviced`: "254:0 Read 4096", "254:0 Write 0",
/// …. Returns the sums of reads and writes. `None` if no line names a disk: since Linux 6.10 the
/// kernel counts nothing until a disk gets a limit, so the figure is unknown and not zero.
pub fn parse_blkio(text: &str) -> Option<(u64, u64)> {
    let mut sums = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(_), Some(kind), Some(figure)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let (read, written) = sums.get_or_insert((0_u64, 0_u64));
        let sum = match kind {
            "Read" => read,
            "Write" => written,
            _ => continue,
        };
        *sum = sum.saturating_add(figure.parse().ok()?);
    }
    sums
}

/// Returns the figure of the line "name 5".
fn find_value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

/// Decodes blanks, tabs, line ends and backslashes of a path, which the kernel writes as `\ooo`.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let octal = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Maximum number of hierarchies that are read; version 1 has some fifteen.
const MAX_MOUNTS: usize = 64;
/// Maximum depth of nested groups that are read; any of them may have the effective limit.
const MAX_LEVELS: usize = 16;

#[cfg(test)]
mod tests;
