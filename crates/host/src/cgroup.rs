//! The control group of a process, version 1 or 2: where its folders are, and what their files say.
//!
//! Not for making groups or setting bounds. [`Reader`] watches one process's; the rest is pure.
//!
//! Sources: cgroups(7); `Documentation/admin-guide/cgroup-v1/` (memory, blkio-controller),
//! `Documentation/scheduler/sched-bwc.rst` (quota), `Documentation/admin-guide/cgroup-v2.rst`;
//! `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

mod reader;

pub use reader::Reader;

/// One line of `/proc/PID/cgroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership<'a> {
    /// The controllers of a version 1 hierarchy, separated by commas; empty for version 2.
    pub controllers: &'a str,
    /// The group, from the root of the reader's view.
    pub group: &'a str,
}

/// Parses `/proc/PID/cgroup`; lines of another form are passed over.
pub fn parse_memberships(text: &str) -> impl Iterator<Item = Membership<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        fields.next()?;
        Some(Membership { controllers: fields.next()?, group: fields.next()? })
    })
}

/// Where a hierarchy of control groups is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The folder.
    pub folder: String,
    /// The group that this folder shows: "/" unless a container sees a part only.
    pub root: String,
    /// The controllers of a version 1 hierarchy; `None` for version 2.
    pub controllers: Option<String>,
}

/// Parses the hierarchies of control groups out of `/proc/PID/mountinfo`.
#[must_use]
pub fn parse_mounts(text: &str) -> Vec<Mount> {
    let mounts = text.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ');
        let (root, folder) = (place.nth(3)?, place.next()?);
        let mut kind = kind.split(' ');
        let controllers = match kind.next()? {
            "cgroup2" => None,
            "cgroup" => Some(kind.nth(1)?.to_owned()),
            _ => return None,
        };
        Some(Mount { folder: unescape(folder), root: unescape(root), controllers })
    });
    mounts.take(MAX_MOUNTS).collect()
}

/// The folders of a process's group for one controller, its own first and its parents' after it, as
/// far as they are shown; without the root, which has no bounds. `None` when it is in no such group.
#[must_use]
pub fn folders(
    memberships: &str,
    mounts: &[Mount],
    controller: Controller<'_>,
) -> Option<Vec<String>> {
    let listed = |list: &str, wanted: &str| list.split(',').any(|name| name == wanted);
    let (member, mount) = match controller {
        Controller::V1(name) => (
            parse_memberships(memberships).find(|member| listed(member.controllers, name))?,
            mounts.iter().find(|mount| {
                mount.controllers.as_deref().is_some_and(|list| listed(list, name))
            })?,
        ),
        Controller::V2 => (
            parse_memberships(memberships).find(|member| member.controllers.is_empty())?,
            mounts.iter().find(|mount| mount.controllers.is_none())?,
        ),
    };
    let root = mount.root.trim_end_matches('/');
    let below = member.group.strip_prefix(root)?.trim_end_matches('/');
    // "/../other": outside of what this process's namespace shows.
    if below.split('/').any(|name| name == "..") {
        return None;
    }
    let mut folders = Vec::new();
    let mut group = below;
    while !group.is_empty() && folders.len() < MAX_LEVELS {
        folders.push(format!("{}{group}", mount.folder));
        group = group.rsplit_once('/')?.0;
    }
    Some(folders)
}

/// Which hierarchy is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller<'a> {
    /// That of this controller, version 1.
    V1(&'a str),
    /// The unified one.
    V2,
}

/// A bound of processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Time that may be used in a period, in microseconds.
    pub quota_us: u64,
    /// The period, in microseconds.
    pub period_us: u64,
}

impl Quota {
    /// Processors that it allows.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

/// Parses `cpu.max`: "30000 100000"; `Some(None)` when there is no bound ("max").
#[must_use]
pub fn parse_cpu_max(text: &str) -> Option<Option<Quota>> {
    let mut fields = text.split_ascii_whitespace();
    let (quota, period) = (fields.next()?, fields.next()?);
    if quota == "max" {
        return Some(None);
    }
    quota_of(quota.parse().ok()?, period.parse().ok()?).map(Some)
}

/// Parses `cpu.cfs_quota_us` (negative: no bound) and `cpu.cfs_period_us`.
#[must_use]
pub fn parse_cfs(quota: &str, period: &str) -> Option<Option<Quota>> {
    let quota: i64 = quota.trim().parse().ok()?;
    match u64::try_from(quota) {
        Ok(quota) => quota_of(quota, period.trim().parse().ok()?).map(Some),
        Err(_) => Some(None),
    }
}

fn quota_of(quota_us: u64, period_us: u64) -> Option<Quota> {
    (period_us > 0).then_some(Quota { quota_us, period_us })
}

/// How a group's quota was met, since the group was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which it had something to run.
    pub periods: u64,
    /// Those of them in which it was stopped.
    pub throttled: u64,
    /// Time stopped, of all processors, in nanoseconds.
    pub throttled_ns: u64,
}

/// Parses `cpu.stat` of either version. `None` when it has no such figures: version 2 without the
/// controller.
#[must_use]
pub fn parse_cpu_stat(text: &str) -> Option<Throttling> {
    let time =
        keyed(text, "throttled_time").or_else(|| keyed(text, "throttled_usec")?.checked_mul(1000));
    Some(Throttling {
        periods: keyed(text, "nr_periods")?,
        throttled: keyed(text, "nr_throttled")?,
        throttled_ns: time?,
    })
}

/// Parses a bound of memory, in bytes; `Some(None)` is none: "max", or version 1's largest figure.
#[must_use]
pub fn parse_memory_max(text: &str) -> Option<Option<u64>> {
    // `PAGE_COUNTER_MAX` in bytes: 2^63 rounded down to a page, whose size may be 64 KiB.
    const NONE_FROM: u64 = (1 << 63) - (1 << 16);
    match text.trim() {
        "max" => Some(None),
        figure => Some(Some(figure.parse().ok()?).filter(|bytes| *bytes < NONE_FROM)),
    }
}

/// Parses `memory.events`: times that the bound was met.
#[must_use]
pub fn parse_memory_events(text: &str) -> Option<u64> {
    keyed(text, "max")
}

/// Parses `blkio.throttle.write_bps_device`: "254:0 2097152" a line; the least, in bytes per second.
#[must_use]
pub fn parse_write_bps_device(text: &str) -> Option<u64> {
    text.lines().filter_map(|line| line.split_once(' ')?.1.trim().parse().ok()).min()
}

/// Parses `io.max`: "254:0 rbps=max wbps=2097152 riops=max wiops=max" a line; the least `wbps`.
#[must_use]
pub fn parse_io_max(text: &str) -> Option<u64> {
    let fields = text.split_ascii_whitespace();
    fields.filter_map(|field| field.strip_prefix("wbps=")?.parse().ok()).min()
}

/// What a group's processes did with disks, since the group was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Parses `io.stat`: "254:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0" a line, with a line for
/// each disk that the group has used; the sums.
#[must_use]
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

/// Parses `blkio.throttle.io_service_bytes` or `io_serviced`: "254:0 Read 4096", "254:0 Write 0", … ;
/// the sums of reads and writes. `None` when there is no line of a disk: since Linux 6.10 nothing is
/// counted until a disk gets a bound, and that is no zero.
#[must_use]
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

/// "name 5" in a line of its own.
fn keyed(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

/// The kernel writes blanks, tabs, line ends and backslashes of a path as `\ooo`.
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

/// Hierarchies that are looked at; version 1 has some fifteen.
const MAX_MOUNTS: usize = 64;
/// Groups above each other that are looked at, each of which may have the bound that is met.
const MAX_LEVELS: usize = 16;

#[cfg(test)]
mod tests;
