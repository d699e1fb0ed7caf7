//! The control group that a process is in, read again and again. A process may be moved and a bound
//! may be changed while it is watched.
//!
//! Not for the form of the files, which the parent module parses.

use super::{
    Controller, DiskCounts, Quota, Throttling, folders, keyed, parse_blkio, parse_cfs,
    parse_cpu_max, parse_cpu_stat, parse_io_max, parse_io_stat, parse_memory_events,
    parse_memory_max, parse_mounts, parse_write_bps_device,
};
use crate::pressure;
use crate::source::{NotObservable, Source, read_once};
use record::observed::{CgroupUse, DiskUse};

const WHAT: &str = "control group of a process";

/// The files of the group of one process, and of the groups above it, kept open.
#[derive(Debug)]
pub struct Reader {
    membership: Source,
    known: String,
    files: Files,
}

/// What is open while the process stays in its group.
#[derive(Debug, Default)]
struct Files {
    cpu: Vec<CpuFiles>,
    used: Option<Usage>,
    memory: Vec<MemoryFiles>,
    disk: Vec<DiskFiles>,
    pressure: Option<pressure::Reader>,
}

impl Reader {
    /// Opens the files for process `pid`. What a group does not have is absent from its samples.
    pub fn open(pid: i32) -> Result<Self, NotObservable> {
        let membership = Source::open(WHAT, format!("/proc/{pid}/cgroup"))?;
        Ok(Self { membership, known: String::new(), files: Files::default() })
    }

    /// Reads the group, with rates since the last reading; `None` when it is in the root group only,
    /// which bounds nothing.
    ///
    /// Where groups above each other have bounds, it is the tightest that counts, with its figures.
    pub fn sample(&mut self, seconds: f64) -> Result<Option<CgroupUse>, NotObservable> {
        let text = self.membership.read()?;
        if text != self.known {
            self.known = text.into_owned();
            self.files = Files::open(&self.known);
        }
        Ok(self.files.sample(seconds))
    }
}

impl Files {
    fn open(memberships: &str) -> Self {
        let mountinfo = read_once(WHAT, "/proc/self/mountinfo").unwrap_or_default();
        let mounts = parse_mounts(&mountinfo);
        let of = |controller| folders(memberships, &mounts, controller).unwrap_or_default();
        let unified = of(Controller::V2);
        // A controller is in one hierarchy only: where version 1 has it, version 2's group has no
        // such files, and the other way round.
        let both = |name| of(Controller::V1(name)).into_iter().chain(unified.iter().cloned());
        Self {
            cpu: both("cpu").filter_map(|folder| CpuFiles::open(&folder)).collect(),
            used: both("cpuacct").find_map(|folder| Usage::open(&folder)),
            memory: both("memory").filter_map(|folder| MemoryFiles::open(&folder)).collect(),
            disk: both("blkio").filter_map(|folder| DiskFiles::open(&folder)).collect(),
            pressure: unified.first().and_then(|own| pressure::Reader::open_cgroup(own).ok()),
        }
    }

    fn sample(&mut self, seconds: f64) -> Option<CgroupUse> {
        let pressure =
            self.pressure.as_mut().and_then(|files| files.shares(seconds).ok().flatten());
        let mut group = CgroupUse { pressure, ..CgroupUse::default() };
        self.add_cpu(&mut group, seconds);
        self.add_memory(&mut group, seconds);
        group.disk_write_max_bytes_per_s =
            self.disk.iter_mut().filter_map(DiskFiles::bound).min().map(|bytes| bytes as f64);
        // What its own group used is what the program used.
        group.disk = self.disk.first_mut().and_then(|own| own.used(seconds));
        (group != CgroupUse::default()).then_some(group)
    }

    fn add_cpu(&mut self, group: &mut CgroupUse, seconds: f64) {
        let levels: Vec<CpuLevel> =
            self.cpu.iter_mut().filter_map(|files| files.sample()).collect();
        // A group above may be throttled for what others in it use: the one that was stopped longest
        // counts, and of those that were not the tightest.
        let tightest = levels.iter().min_by(|one, other| {
            let by_quota = one.quota.cpus().total_cmp(&other.quota.cpus());
            other.throttled_ns().cmp(&one.throttled_ns()).then(by_quota)
        });
        group.used_cpus = self.used.as_mut().and_then(|usage| usage.cpus(seconds));
        let Some(level) = tightest else {
            return;
        };
        group.quota_cpus = Some(level.quota.cpus());
        group.period_s = Some(level.quota.period_us as f64 / 1e6);
        if let Some((then, now)) = level.throttling {
            let periods = now.periods.saturating_sub(then.periods);
            let throttled = now.throttled.saturating_sub(then.throttled);
            let share = if periods == 0 { 0.0 } else { throttled as f64 / periods as f64 };
            group.throttled_periods = Some(share.min(1.0));
            let time_ns = now.throttled_ns.saturating_sub(then.throttled_ns);
            group.throttled_cpus = Some(time_ns as f64 / 1e9 / seconds);
        }
    }

    fn add_memory(&mut self, group: &mut CgroupUse, seconds: f64) {
        let levels: Vec<MemoryLevel> =
            self.memory.iter_mut().filter_map(|files| files.sample()).collect();
        let Some(own) = levels.first() else {
            return;
        };
        let tightest =
            levels.iter().filter(|level| level.max.is_some()).min_by_key(|level| level.max);
        let level = tightest.unwrap_or(own);
        group.memory_bytes = Some(level.bytes);
        group.memory_max_bytes = level.max;
        group.memory_max_hits_per_s = level
            .hits
            .map(|(then, now)| now.saturating_sub(then) as f64 / seconds)
            .filter(|_| level.max.is_some());
    }
}

/// The quota of one group.
#[derive(Debug)]
struct CpuFiles {
    bound: CpuBound,
    stat: Source,
    last: Option<Throttling>,
}

#[derive(Debug)]
enum CpuBound {
    V1 { quota: Source, period: Source },
    V2 { max: Source },
}

struct CpuLevel {
    quota: Quota,
    throttling: Option<(Throttling, Throttling)>,
}

impl CpuLevel {
    /// Time stopped since the last reading.
    fn throttled_ns(&self) -> u64 {
        self.throttling.map_or(0, |(then, now)| now.throttled_ns.saturating_sub(then.throttled_ns))
    }
}

/// CPU time of one group: `cpu.stat` of version 2, `cpuacct.usage` of version 1.
#[derive(Debug)]
struct Usage {
    file: Source,
    parse: fn(&str) -> Option<u64>,
    last_ns: Option<u64>,
}

impl Usage {
    fn open(folder: &str) -> Option<Self> {
        let open = |file: &str| Source::open(WHAT, format!("{folder}/{file}")).ok();
        let used_us = |text: &str| keyed(text, "usage_usec")?.checked_mul(1000);
        let (file, parse): (_, fn(&str) -> Option<u64>) = match open("cpuacct.usage") {
            Some(file) => (file, parse_figure),
            None => (open("cpu.stat")?, used_us),
        };
        Some(Self { file, parse, last_ns: None })
    }

    /// CPUs used since the last reading.
    fn cpus(&mut self, seconds: f64) -> Option<f64> {
        let now_ns = (self.parse)(&self.file.read().ok()?);
        let then_ns = std::mem::replace(&mut self.last_ns, now_ns);
        Some(now_ns?.saturating_sub(then_ns?) as f64 / 1e9 / seconds)
    }
}

impl CpuFiles {
    fn open(folder: &str) -> Option<Self> {
        let open = |file: &str| Source::open(WHAT, format!("{folder}/{file}")).ok();
        let bound = match open("cpu.max") {
            Some(max) => CpuBound::V2 { max },
            None => CpuBound::V1 {
                quota: open("cpu.cfs_quota_us")?,
                period: open("cpu.cfs_period_us")?,
            },
        };
        Some(Self { bound, stat: open("cpu.stat")?, last: None })
    }

    /// `None` when there is no bound.
    fn sample(&mut self) -> Option<CpuLevel> {
        let now = parse_cpu_stat(&self.stat.read().ok()?);
        let then = std::mem::replace(&mut self.last, now);
        let quota = match &mut self.bound {
            CpuBound::V1 { quota, period } => parse_cfs(&quota.read().ok()?, &period.read().ok()?)?,
            CpuBound::V2 { max } => parse_cpu_max(&max.read().ok()?)?,
        };
        Some(CpuLevel { quota: quota?, throttling: then.zip(now) })
    }
}

/// Memory of one group.
#[derive(Debug)]
struct MemoryFiles {
    usage: Source,
    max: Source,
    /// `memory.events` of version 2, `memory.failcnt` of version 1.
    hits: Option<(Source, ParseHits)>,
    last: Option<u64>,
}

type ParseHits = fn(&str) -> Option<u64>;

struct MemoryLevel {
    bytes: u64,
    max: Option<u64>,
    hits: Option<(u64, u64)>,
}

impl MemoryFiles {
    fn open(folder: &str) -> Option<Self> {
        let open = |file: &str| Source::open(WHAT, format!("{folder}/{file}")).ok();
        if let Some(usage) = open("memory.current") {
            let events = open("memory.events").map(|file| (file, parse_memory_events as ParseHits));
            return Some(Self { usage, max: open("memory.max")?, hits: events, last: None });
        }
        let failures = open("memory.failcnt").map(|file| (file, parse_figure as ParseHits));
        let (usage, max) = (open("memory.usage_in_bytes")?, open("memory.limit_in_bytes")?);
        Some(Self { usage, max, hits: failures, last: None })
    }

    fn sample(&mut self) -> Option<MemoryLevel> {
        let hits = self.hits.as_mut().and_then(|(file, parse)| parse(&file.read().ok()?));
        let then = std::mem::replace(&mut self.last, hits);
        Some(MemoryLevel {
            bytes: parse_figure(&self.usage.read().ok()?)?,
            max: parse_memory_max(&self.max.read().ok()?)?,
            hits: then.zip(hits),
        })
    }
}

fn parse_figure(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Disks of one group.
#[derive(Debug)]
struct DiskFiles {
    bound: Source,
    parse_bound: fn(&str) -> Option<u64>,
    counts: Option<DiskCounters>,
    last: Option<DiskCounts>,
}

/// Where a group's use of disks stands.
#[derive(Debug)]
enum DiskCounters {
    V1 { bytes: Source, operations: Source },
    V2 { stat: Source },
}

impl DiskFiles {
    fn open(folder: &str) -> Option<Self> {
        let open = |file: &str| Source::open(WHAT, format!("{folder}/{file}")).ok();
        if let Some(bound) = open("io.max") {
            let counts = open("io.stat").map(|stat| DiskCounters::V2 { stat });
            return Some(Self { bound, parse_bound: parse_io_max, counts, last: None });
        }
        let bound = open("blkio.throttle.write_bps_device")?;
        // With the groups below it, as version 2 counts.
        let bytes = open("blkio.throttle.io_service_bytes_recursive");
        let both = bytes.zip(open("blkio.throttle.io_serviced_recursive"));
        let counts = both.map(|(bytes, operations)| DiskCounters::V1 { bytes, operations });
        Some(Self { bound, parse_bound: parse_write_bps_device, counts, last: None })
    }

    fn bound(&mut self) -> Option<u64> {
        (self.parse_bound)(&self.bound.read().ok()?)
    }

    /// What passed since the last reading.
    fn used(&mut self, seconds: f64) -> Option<DiskUse> {
        let now = self.counts.as_mut().and_then(DiskCounters::read);
        let then = std::mem::replace(&mut self.last, now);
        let (now, then) = now.zip(then)?;
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Some(DiskUse {
            read_bytes_per_s: rate(now.read_bytes, then.read_bytes),
            written_bytes_per_s: rate(now.written_bytes, then.written_bytes),
            reads_per_s: rate(now.reads, then.reads),
            writes_per_s: rate(now.writes, then.writes),
        })
    }
}

impl DiskCounters {
    fn read(&mut self) -> Option<DiskCounts> {
        match self {
            Self::V1 { bytes, operations } => {
                let (read_bytes, written_bytes) = parse_blkio(&bytes.read().ok()?)?;
                let (reads, writes) = parse_blkio(&operations.read().ok()?)?;
                Some(DiskCounts { read_bytes, written_bytes, reads, writes })
            }
            Self::V2 { stat } => Some(parse_io_stat(&stat.read().ok()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_disks_is_what_passed_in_the_own_group() {
        let folder = std::env::temp_dir().join(format!("host-cgroup-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).unwrap();
        let path = folder.to_str().unwrap();
        write("blkio.throttle.write_bps_device", "254:0 4194304\n");
        write("blkio.throttle.io_service_bytes_recursive", "Total 0\n");
        write("blkio.throttle.io_serviced_recursive", "Total 0\n");
        let mut first = DiskFiles::open(path).unwrap();
        assert_eq!(
            (first.bound(), first.used(2.0), first.used(2.0)),
            (Some(4_194_304), None, None)
        );
        let bytes = |read: u64| format!("254:0 Read {read}\n254:0 Write 100\nTotal 9\n");
        write("blkio.throttle.io_service_bytes_recursive", &bytes(1000));
        write("blkio.throttle.io_serviced_recursive", "254:0 Read 1\n254:0 Write 1\nTotal 2\n");
        assert_eq!(first.used(2.0), None, "how much of that is new is not known");
        write("blkio.throttle.io_service_bytes_recursive", &bytes(5000));
        let read = DiskUse { read_bytes_per_s: 2000.0, ..DiskUse::default() };
        assert_eq!(first.used(2.0), Some(read));
        // Version 2 has no line of a disk that was not used, which is a zero.
        write("io.max", "254:0 rbps=max wbps=2097152 riops=max wiops=max\n");
        write("io.stat", "");
        let mut second = DiskFiles::open(path).unwrap();
        assert_eq!((second.bound(), second.used(1.0)), (Some(2_097_152), None));
        write("io.stat", "254:0 rbytes=10 wbytes=300 rios=1 wios=3 dbytes=0 dios=0\n");
        let used = second.used(0.5).unwrap();
        assert_eq!((used.read_bytes_per_s, used.written_bytes_per_s), (20.0, 600.0));
        assert_eq!((used.reads_per_s, used.writes_per_s), (2.0, 6.0));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
