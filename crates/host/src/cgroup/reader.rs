//! Repeated readings of a process's control group. The process may move and limits may change
//! meanwhile.
//!
//! The parent module parses the files.

use super::{
    Controller, DiskCounts, Quota, Throttling, find_value, group_directories, parse_blkio, parse_cfs,
    parse_cpu_max, parse_cpu_stat, parse_io_max, parse_io_stat, parse_memory_events, parse_memory_max,
    parse_mounts, parse_write_bps_device,
};
use crate::kernel_file::{KernelFile, NotObservable, read_once};
use crate::pressure;
use record::observed::{CgroupUse, DiskUse};

const FIGURE: &str = "control group of a process";

/// Open files of one process's group and of its parent groups.
#[derive(Debug)]
pub struct CgroupReader {
    membership: KernelFile,
    last_memberships: String,
    files: CgroupFiles,
}

/// Files that stay open while the process stays in its group.
#[derive(Debug, Default)]
struct CgroupFiles {
    cpu: Vec<CpuFiles>,
    cpu_usage: Option<CpuUsageFile>,
    memory: Vec<MemoryFiles>,
    disk: Vec<DiskFiles>,
    pressure: Option<pressure::PressureReader>,
}

impl CgroupReader {
    /// Opens the files for process `pid`. Samples lack the controllers that the group lacks.
    pub fn open(pid: i32) -> Result<Self, NotObservable> {
        let membership = KernelFile::open(FIGURE, format!("/proc/{pid}/cgroup"))?;
        Ok(Self { membership, last_memberships: String::new(), files: CgroupFiles::default() })
    }

    /// Reads the group, with rates since the last reading; `None` if the process is only in the
    /// root group, which has no limits.
    ///
    /// If several nested groups have limits, the figures are those of the tightest.
    pub fn sample(&mut self, seconds: f64) -> Result<Option<CgroupUse>, NotObservable> {
        let text = self.membership.read()?;
        if text != self.last_memberships {
            self.last_memberships = text.into_owned();
            self.files = CgroupFiles::open(&self.last_memberships);
        }
        Ok(self.files.sample(seconds))
    }
}

impl CgroupFiles {
    fn open(memberships: &str) -> Self {
        let mountinfo = read_once(FIGURE, "/proc/self/mountinfo").unwrap_or_default();
        let mounts = parse_mounts(&mountinfo);
        let directories_of =
            |controller| group_directories(memberships, &mounts, controller).unwrap_or_default();
        let unified = directories_of(Controller::V2);
        // A controller is in one hierarchy only. Where version 1 has it, version 2's group has no
        // such files, and vice versa.
        let v1_and_v2_directories =
            |name| directories_of(Controller::V1(name)).into_iter().chain(unified.iter().cloned());
        Self {
            cpu: v1_and_v2_directories("cpu").filter_map(|directory| CpuFiles::open(&directory)).collect(),
            cpu_usage: v1_and_v2_directories("cpuacct").find_map(|directory| CpuUsageFile::open(&directory)),
            memory: v1_and_v2_directories("memory")
                .filter_map(|directory| MemoryFiles::open(&directory))
                .collect(),
            disk: v1_and_v2_directories("blkio")
                .filter_map(|directory| DiskFiles::open(&directory))
                .collect(),
            pressure: unified.first().and_then(|own| pressure::PressureReader::open_cgroup(own).ok()),
        }
    }

    fn sample(&mut self, seconds: f64) -> Option<CgroupUse> {
        let pressure = self.pressure.as_mut().and_then(|files| files.sample(seconds).ok().flatten());
        let mut group = CgroupUse { pressure, ..CgroupUse::default() };
        self.add_cpu(&mut group, seconds);
        self.add_memory(&mut group, seconds);
        group.disk_write_max_bytes_per_s =
            self.disk.iter_mut().filter_map(DiskFiles::read_limit).min().map(|bytes| bytes as f64);
        // Disk use of the process is that of its own group.
        group.disk = self.disk.first_mut().and_then(|own| own.sample(seconds));
        (group != CgroupUse::default()).then_some(group)
    }

    fn add_cpu(&mut self, group: &mut CgroupUse, seconds: f64) {
        let levels: Vec<CpuLevel> = self.cpu.iter_mut().filter_map(|files| files.sample()).collect();
        // A parent group may be throttled because of its other members. The group with the longest
        // throttled time counts; if none was throttled, the one with the tightest quota.
        let tightest = levels.iter().min_by(|left, right| {
            let by_quota = left.quota.cpus().total_cmp(&right.quota.cpus());
            right.throttled_ns().cmp(&left.throttled_ns()).then(by_quota)
        });
        group.used_cpus = self.cpu_usage.as_mut().and_then(|usage| usage.cpus(seconds));
        let Some(level) = tightest else {
            return;
        };
        group.quota_cpus = Some(level.quota.cpus());
        group.period_s = Some(level.quota.period_us as f64 / 1e6);
        if let Some((then, now)) = level.throttling {
            let periods = now.periods.saturating_sub(then.periods);
            let throttled = now.throttled_periods.saturating_sub(then.throttled_periods);
            let fraction = if periods == 0 { 0.0 } else { throttled as f64 / periods as f64 };
            group.throttled_periods = Some(fraction.min(1.0));
            let time_ns = now.throttled_ns.saturating_sub(then.throttled_ns);
            group.throttled_cpus = Some(time_ns as f64 / 1e9 / seconds);
        }
    }

    fn add_memory(&mut self, group: &mut CgroupUse, seconds: f64) {
        let levels: Vec<MemoryLevel> = self.memory.iter_mut().filter_map(|files| files.sample()).collect();
        let Some(own) = levels.first() else {
            return;
        };
        let tightest = levels.iter().filter(|level| level.max.is_some()).min_by_key(|level| level.max);
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
    quota_files: CpuQuotaFiles,
    stat: KernelFile,
    last: Option<Throttling>,
}

#[derive(Debug)]
enum CpuQuotaFiles {
    V1 { quota: KernelFile, period: KernelFile },
    V2 { max: KernelFile },
}

struct CpuLevel {
    quota: Quota,
    throttling: Option<(Throttling, Throttling)>,
}

impl CpuLevel {
    /// Returns the throttled time since the last reading.
    fn throttled_ns(&self) -> u64 {
        self.throttling.map_or(0, |(then, now)| now.throttled_ns.saturating_sub(then.throttled_ns))
    }
}

/// CPU time of one group: `cpu.stat` of version 2, `cpuacct.usage` of version 1.
#[derive(Debug)]
struct CpuUsageFile {
    file: KernelFile,
    parse: fn(&str) -> Option<u64>,
    last_ns: Option<u64>,
}

impl CpuUsageFile {
    fn open(directory: &str) -> Option<Self> {
        let open = |file: &str| KernelFile::open(FIGURE, format!("{directory}/{file}")).ok();
        let parse_usage_ns = |text: &str| find_value(text, "usage_usec")?.checked_mul(1000);
        let (file, parse): (_, fn(&str) -> Option<u64>) = match open("cpuacct.usage") {
            Some(file) => (file, parse_u64),
            None => (open("cpu.stat")?, parse_usage_ns),
        };
        Some(Self { file, parse, last_ns: None })
    }

    /// Returns the CPUs used since the last reading.
    fn cpus(&mut self, seconds: f64) -> Option<f64> {
        let now_ns = (self.parse)(&self.file.read().ok()?);
        let then_ns = std::mem::replace(&mut self.last_ns, now_ns);
        Some(now_ns?.saturating_sub(then_ns?) as f64 / 1e9 / seconds)
    }
}

impl CpuFiles {
    fn open(directory: &str) -> Option<Self> {
        let open = |file: &str| KernelFile::open(FIGURE, format!("{directory}/{file}")).ok();
        let quota_files = match open("cpu.max") {
            Some(max) => CpuQuotaFiles::V2 { max },
            None => {
                CpuQuotaFiles::V1 { quota: open("cpu.cfs_quota_us")?, period: open("cpu.cfs_period_us")? }
            }
        };
        Some(Self { quota_files, stat: open("cpu.stat")?, last: None })
    }

    /// Returns `None` if there is no limit.
    fn sample(&mut self) -> Option<CpuLevel> {
        let now = parse_cpu_stat(&self.stat.read().ok()?);
        let then = std::mem::replace(&mut self.last, now);
        let quota = match &mut self.quota_files {
            CpuQuotaFiles::V1 { quota, period } => parse_cfs(&quota.read().ok()?, &period.read().ok()?)?,
            CpuQuotaFiles::V2 { max } => parse_cpu_max(&max.read().ok()?)?,
        };
        Some(CpuLevel { quota: quota?, throttling: then.zip(now) })
    }
}

#[derive(Debug)]
struct MemoryFiles {
    usage: KernelFile,
    max: KernelFile,
    /// `memory.events` of version 2, `memory.failcnt` of version 1.
    hits: Option<(KernelFile, ParseHits)>,
    last: Option<u64>,
}

type ParseHits = fn(&str) -> Option<u64>;

struct MemoryLevel {
    bytes: u64,
    max: Option<u64>,
    hits: Option<(u64, u64)>,
}

impl MemoryFiles {
    fn open(directory: &str) -> Option<Self> {
        let open = |file: &str| KernelFile::open(FIGURE, format!("{directory}/{file}")).ok();
        if let Some(usage) = open("memory.current") {
            let events = open("memory.events").map(|file| (file, parse_memory_events as ParseHits));
            return Some(Self { usage, max: open("memory.max")?, hits: events, last: None });
        }
        let failures = open("memory.failcnt").map(|file| (file, parse_u64 as ParseHits));
        let (usage, max) = (open("memory.usage_in_bytes")?, open("memory.limit_in_bytes")?);
        Some(Self { usage, max, hits: failures, last: None })
    }

    fn sample(&mut self) -> Option<MemoryLevel> {
        let hits = self.hits.as_mut().and_then(|(file, parse)| parse(&file.read().ok()?));
        let then = std::mem::replace(&mut self.last, hits);
        Some(MemoryLevel {
            bytes: parse_u64(&self.usage.read().ok()?)?,
            max: parse_memory_max(&self.max.read().ok()?)?,
            hits: then.zip(hits),
        })
    }
}

fn parse_u64(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[derive(Debug)]
struct DiskFiles {
    limit_file: KernelFile,
    parse_limit: fn(&str) -> Option<u64>,
    counts: Option<DiskCounters>,
    last: Option<DiskCounts>,
}

/// Open counters of a group's disk use.
#[derive(Debug)]
enum DiskCounters {
    V1 { bytes: KernelFile, operations: KernelFile },
    V2 { stat: KernelFile },
}

impl DiskFiles {
    fn open(directory: &str) -> Option<Self> {
        let open = |file: &str| KernelFile::open(FIGURE, format!("{directory}/{file}")).ok();
        if let Some(limit_file) = open("io.max") {
            let counts = open("io.stat").map(|stat| DiskCounters::V2 { stat });
            return Some(Self { limit_file, parse_limit: parse_io_max, counts, last: None });
        }
        let limit_file = open("blkio.throttle.write_bps_device")?;
        // Includes the child groups, as version 2 does.
        let bytes = open("blkio.throttle.io_service_bytes_recursive");
        let files = bytes.zip(open("blkio.throttle.io_serviced_recursive"));
        let counts = files.map(|(bytes, operations)| DiskCounters::V1 { bytes, operations });
        Some(Self { limit_file, parse_limit: parse_write_bps_device, counts, last: None })
    }

    fn read_limit(&mut self) -> Option<u64> {
        (self.parse_limit)(&self.limit_file.read().ok()?)
    }

    /// Returns the use since the last reading.
    fn sample(&mut self, seconds: f64) -> Option<DiskUse> {
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
    fn disk_use_is_the_delta_of_the_own_group() {
        let directory = std::env::temp_dir().join(format!("host-cgroup-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let write = |file: &str, text: &str| std::fs::write(directory.join(file), text).unwrap();
        let path = directory.to_str().unwrap();
        write("blkio.throttle.write_bps_device", "254:0 4194304\n");
        write("blkio.throttle.io_service_bytes_recursive", "Total 0\n");
        write("blkio.throttle.io_serviced_recursive", "Total 0\n");
        let mut first = DiskFiles::open(path).unwrap();
        assert_eq!((first.read_limit(), first.sample(2.0), first.sample(2.0)), (Some(4_194_304), None, None));
        let bytes = |read: u64| format!("254:0 Read {read}\n254:0 Write 100\nTotal 9\n");
        write("blkio.throttle.io_service_bytes_recursive", &bytes(1000));
        write("blkio.throttle.io_serviced_recursive", "254:0 Read 1\n254:0 Write 1\nTotal 2\n");
        assert_eq!(first.sample(2.0), None, "how much of that is new is not known");
        write("blkio.throttle.io_service_bytes_recursive", &bytes(5000));
        let read = DiskUse { read_bytes_per_s: 2000.0, ..DiskUse::default() };
        assert_eq!(first.sample(2.0), Some(read));
        // Version 2 has no line for an unused disk, which means zero.
        write("io.max", "254:0 rbps=max wbps=2097152 riops=max wiops=max\n");
        write("io.stat", "");
        let mut second = DiskFiles::open(path).unwrap();
        assert_eq!((second.read_limit(), second.sample(1.0)), (Some(2_097_152), None));
        write("io.stat", "254:0 rbytes=10 wbytes=300 rios=1 wios=3 dbytes=0 dios=0\n");
        let used = second.sample(0.5).unwrap();
        assert_eq!((used.read_bytes_per_s, used.written_bytes_per_s), (20.0, 600.0));
        assert_eq!((used.reads_per_s, used.writes_per_s), (2.0, 6.0));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
