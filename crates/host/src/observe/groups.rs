//! The control groups that the processes of a role are in: a parent may be in one without a bound while
//! its workers are in one with a tight quota.
//!
//! Not for the files of a group, which [`crate::cgroup`] reads.

use crate::cgroup::Reader;
use crate::source::{NotObservable, read_once};
use record::observed::CgroupUse;
use std::collections::HashSet;

/// Groups of a role that are read.
const MAX_GROUPS: usize = 16;
/// Processes of a role whose groups are looked up.
const MAX_PROCESSES: usize = 256;
/// Processes that were there before are looked up again in every so many samples: they may be moved.
const MOVED_EVERY: u64 = 5;

/// The distinct groups of a role, each read through one of its processes.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    groups: Vec<Group>,
    known: HashSet<i32>,
    samples: u64,
    left_out: bool,
    failure: Option<NotObservable>,
}

#[derive(Debug)]
struct Group {
    membership: String,
    pid: i32,
    reader: Reader,
}

impl Cgroups {
    /// What could not be read.
    pub(super) fn not_observable(&self, role: &str) -> Vec<NotObservable> {
        let why =
            || format!("{role} is in more than the {MAX_GROUPS} control groups that are read");
        let left_out = self.left_out.then(|| NotObservable::new("every control group", why()));
        left_out.into_iter().chain(self.failure.clone()).collect()
    }

    /// The use of the group that bounds the role most; `None` when all are in the root group.
    pub(super) fn sample(
        &mut self,
        seconds: f64,
        pids: impl Iterator<Item = i32> + Clone,
    ) -> Option<CgroupUse> {
        self.find(pids);
        let used = self.groups.iter_mut().filter_map(|group| {
            // Where its process has ended another stands for the group from the next sample on.
            group.reader.sample(seconds).ok().flatten()
        });
        tightest(used.collect())
    }

    fn find(&mut self, pids: impl Iterator<Item = i32> + Clone) {
        let there: HashSet<i32> = pids.clone().take(MAX_PROCESSES).collect();
        if self.samples.is_multiple_of(MOVED_EVERY)
            || self.groups.iter().any(|one| !there.contains(&one.pid))
        {
            self.known.clear();
        }
        self.samples += 1;
        self.known.retain(|pid| there.contains(pid));
        for pid in pids.take(MAX_PROCESSES) {
            if !self.known.insert(pid) {
                continue;
            }
            let path = format!("/proc/{pid}/cgroup");
            match read_once("control group of a process", &path) {
                Ok(membership) => self.add(pid, membership),
                Err(error) => self.failure = self.failure.take().or(Some(error)),
            }
        }
        self.groups.retain(|one| there.contains(&one.pid));
    }

    fn add(&mut self, pid: i32, membership: String) {
        let same = self.groups.iter().position(|one| one.membership == membership);
        let moved =
            self.groups.iter().position(|one| one.pid == pid && one.membership != membership);
        if let Some(at) = moved {
            self.groups.swap_remove(at);
        }
        if same.is_some() {
            // The process that it is read through may have ended; its reader ends with it.
            if let Some(known) = self.groups.iter_mut().find(|one| one.membership == membership)
                && !std::path::Path::new(&format!("/proc/{}", known.pid)).exists()
                && let Ok(reader) = Reader::open(pid)
            {
                (known.pid, known.reader) = (pid, reader);
            }
            return;
        }
        if self.groups.len() == MAX_GROUPS {
            self.left_out = true;
            return;
        }
        match Reader::open(pid) {
            Ok(reader) => self.groups.push(Group { membership, pid, reader }),
            Err(error) => self.failure = self.failure.take().or(Some(error)),
        }
    }
}

/// The figures of the group that was throttled most, or else of the one that has least of its quota
/// left; memory is of the group that is fullest. A role in one group has its figures.
fn tightest(groups: Vec<CgroupUse>) -> Option<CgroupUse> {
    let throttled = |group: &CgroupUse| group.throttled_cpus.unwrap_or(0.0);
    let filled = |group: &CgroupUse| {
        let quota = group.quota_cpus.filter(|cpus| *cpus > 0.0)?;
        Some(group.used_cpus.unwrap_or(0.0) / quota)
    };
    let full = |group: &CgroupUse| {
        Some(group.memory_bytes? as f64 / group.memory_max_bytes.filter(|max| *max > 0)? as f64)
    };
    let fullest = groups
        .iter()
        .max_by(|one, other| full(one).unwrap_or(-1.0).total_cmp(&full(other).unwrap_or(-1.0)))
        .cloned()?;
    // Of equals the first counts, whose process is the oldest.
    let mut groups = groups.into_iter();
    let first = groups.next()?;
    let rank = |group: &CgroupUse| (throttled(group), filled(group).unwrap_or(-1.0));
    let chosen = groups.fold(first, |best, one| if rank(&one) > rank(&best) { one } else { best });
    let memory = if full(&fullest).is_some() { &fullest } else { &chosen };
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
        let wide =
            CgroupUse { quota_cpus: Some(1.0), used_cpus: Some(0.9), ..CgroupUse::default() };
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
        let of =
            |groups: &[&CgroupUse]| tightest(groups.iter().map(|one| (*one).clone()).collect());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[&parent]), Some(parent.clone()));
        assert_eq!(of(&[&parent, &wide]).unwrap().quota_cpus, Some(1.0));
        let all = of(&[&parent, &full, &wide, &tight]).unwrap();
        assert_eq!((all.quota_cpus, all.throttled_cpus), (Some(2.0), Some(0.3)));
        assert_eq!((all.memory_bytes, all.memory_max_hits_per_s), (Some(90), Some(7.0)));
    }

    #[test]
    fn processes_of_one_group_are_one_reader() {
        let own = std::process::id() as i32;
        let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let child = sleeper.id() as i32;
        let mut groups = Cgroups::default();
        groups.sample(1.0, [child, own].into_iter());
        assert_eq!(groups.groups.len(), 1);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        groups.sample(1.0, [own].into_iter());
        assert_eq!(groups.groups.len(), 1);
        assert_eq!(groups.groups[0].pid, own);
    }
}
