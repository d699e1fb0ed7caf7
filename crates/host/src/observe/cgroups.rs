//! Control groups of a role's processes. A parent may be in a group without a limit while its
//! workers are in one with a tight quota.
//!
//! [`crate::cgroup`] reads the files of a group.

use crate::cgroup::CgroupReader;
use crate::kernel_file::{NotObservable, read_once};
use record::observed::CgroupUse;
use std::collections::HashSet;

/// Maximum number of groups read per role.
const MAX_GROUPS: usize = 16;
/// Maximum number of processes per role whose cgroups are read.
const MAX_PROCESSES: usize = 256;
/// Interval in samples at which the cgroups of known processes are read again: processes may be moved.
const RELOOKUP_INTERVAL: u64 = 5;

/// The distinct groups of a role, each read through one of its processes.
#[derive(Debug, Default)]
pub(super) struct CgroupMonitor {
    groups: Vec<MonitoredCgroup>,
    known_pids: HashSet<i32>,
    samples: u64,
    has_omitted_groups: bool,
    failure: Option<NotObservable>,
}

#[derive(Debug)]
struct MonitoredCgroup {
    membership: String,
    pid: i32,
    reader: CgroupReader,
}

impl CgroupMonitor {
    /// Returns the groups that could not be read.
    pub(super) fn not_observable(&self, role: &str) -> Vec<NotObservable> {
        let why = || format!("{role} is in more than {MAX_GROUPS} cgroups; only these are read");
        let omitted_groups = self.has_omitted_groups.then(|| NotObservable::new("all cgroups", why()));
        omitted_groups.into_iter().chain(self.failure.clone()).collect()
    }

    /// Returns the use of the group that limits the role most; `None` if all processes are in the
    /// root group.
    pub(super) fn sample(
        &mut self,
        seconds: f64,
        pids: impl Iterator<Item = i32> + Clone,
    ) -> Option<CgroupUse> {
        self.find_groups(pids);
        let used = self.groups.iter_mut().filter_map(|group| {
            // If the process has ended, another one represents the group from the next sample on.
            group.reader.sample(seconds).ok().flatten()
        });
        tightest(used.collect())
    }

    fn find_groups(&mut self, pids: impl Iterator<Item = i32> + Clone) {
        let live_pids: HashSet<i32> = pids.clone().take(MAX_PROCESSES).collect();
        if self.samples.is_multiple_of(RELOOKUP_INTERVAL)
            || self.groups.iter().any(|group| !live_pids.contains(&group.pid))
        {
            self.known_pids.clear();
        }
        self.samples += 1;
        self.known_pids.retain(|pid| live_pids.contains(pid));
        for pid in pids.take(MAX_PROCESSES) {
            if !self.known_pids.insert(pid) {
                continue;
            }
            let path = format!("/proc/{pid}/cgroup");
            match read_once("control group of a process", &path) {
                Ok(membership) => self.add(pid, membership),
                // One that has ended is no missing figure.
                Err(_) if !std::path::Path::new(&format!("/proc/{pid}")).exists() => {}
                Err(error) => self.failure = self.failure.take().or(Some(error)),
            }
        }
        self.groups.retain(|group| live_pids.contains(&group.pid));
    }

    fn add(&mut self, pid: i32, membership: String) {
        let same_membership = self.groups.iter().position(|group| group.membership == membership);
        let moved = self.groups.iter().position(|group| group.pid == pid && group.membership != membership);
        if let Some(at) = moved {
            self.groups.swap_remove(at);
        }
        if same_membership.is_some() {
            // The process behind the reader may have ended; its reader ends with it.
            if let Some(known) = self.groups.iter_mut().find(|group| group.membership == membership)
                && !std::path::Path::new(&format!("/proc/{}", known.pid)).exists()
                && let Ok(reader) = CgroupReader::open(pid)
            {
                (known.pid, known.reader) = (pid, reader);
            }
            return;
        }
        if self.groups.len() == MAX_GROUPS {
            self.has_omitted_groups = true;
            return;
        }
        match CgroupReader::open(pid) {
            Ok(reader) => self.groups.push(MonitoredCgroup { membership, pid, reader }),
            Err(error) => self.failure = self.failure.take().or(Some(error)),
        }
    }
}

/// Returns the figures of the group with the most throttling, or else with the lowest remaining quota.
/// Memory is that of the fullest group. A role in one group has its figures.
fn tightest(groups: Vec<CgroupUse>) -> Option<CgroupUse> {
    let throttled = |group: &CgroupUse| group.throttled_cpus.unwrap_or(0.0);
    let quota_use = |group: &CgroupUse| {
        let quota = group.quota_cpus.filter(|cpus| *cpus > 0.0)?;
        Some(group.used_cpus.unwrap_or(0.0) / quota)
    };
    let memory_use = |group: &CgroupUse| {
        Some(group.memory_bytes? as f64 / group.memory_max_bytes.filter(|max| *max > 0)? as f64)
    };
    let fullest = groups
        .iter()
        .max_by(|left, right| memory_use(left).unwrap_or(-1.0).total_cmp(&memory_use(right).unwrap_or(-1.0)))
        .cloned()?;
    // Of equal groups the first counts, whose process is the oldest.
    let mut groups = groups.into_iter();
    let first = groups.next()?;
    let rank = |group: &CgroupUse| (throttled(group), quota_use(group).unwrap_or(-1.0));
    let chosen = groups.fold(first, |best, group| if rank(&group) > rank(&best) { group } else { best });
    let memory = if memory_use(&fullest).is_some() { &fullest } else { &chosen };
    Some(CgroupUse {
        memory_bytes: memory.memory_bytes,
        memory_max_bytes: memory.memory_max_bytes,
        memory_max_hits_per_s: memory.memory_max_hits_per_s,
        ..chosen.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_quota_counts_and_not_the_parents() {
        let parent = CgroupUse { memory_bytes: Some(5), ..CgroupUse::default() };
        let wide = CgroupUse { quota_cpus: Some(1.0), used_cpus: Some(0.9), ..CgroupUse::default() };
        let tight = CgroupUse {
            quota_cpus: Some(2.0),
            used_cpus: Some(1.0),
            throttled_cpus: Some(0.3),
            ..CgroupUse::default()
        };
        let full = CgroupUse {
            memory_bytes: Some(90),
            memory_max_bytes: Some(100),
            memory_max_hits_per_s: Some(7.0),
            ..CgroupUse::default()
        };
        let tightest_of =
            |groups: &[&CgroupUse]| tightest(groups.iter().map(|group| (*group).clone()).collect());
        assert_eq!(tightest_of(&[]), None);
        assert_eq!(tightest_of(&[&parent]), Some(parent.clone()));
        assert_eq!(tightest_of(&[&parent, &wide]).unwrap().quota_cpus, Some(1.0));
        let all = tightest_of(&[&parent, &full, &wide, &tight]).unwrap();
        assert_eq!((all.quota_cpus, all.throttled_cpus), (Some(2.0), Some(0.3)));
        assert_eq!((all.memory_bytes, all.memory_max_hits_per_s), (Some(90), Some(7.0)));
    }

    #[test]
    fn processes_of_one_group_are_one_reader() {
        let own = std::process::id() as i32;
        let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let child = sleeper.id() as i32;
        let mut groups = CgroupMonitor::default();
        groups.sample(1.0, [child, own].into_iter());
        assert_eq!(groups.groups.len(), 1);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        groups.sample(1.0, [own].into_iter());
        assert_eq!(groups.groups.len(), 1);
        assert_eq!(groups.groups[0].pid, own);
    }
}
