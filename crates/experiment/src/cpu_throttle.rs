//! Limits the CPU time of running processes temporarily, and restores the previous state.
//!
//! With cgroup v2 the quota of the processes' own cgroup is set, if no other process is in it. The
//! processes stay in their cgroup, with its memory limit and its unit. With cgroup v1 they move to
//! a child cgroup in the hierarchy of the `cpu` controller alone, which carries no memory limit and
//! no unit.
//!
//! Each change is written to a journal first, so that the next start undoes the changes of a killed
//! run.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use host::NotObservable;
use host::journal::ProcessIdentity;
use host::sandbox::cgroup::{
    CgroupHierarchies, group_directory, list_processes, move_process, read_hierarchies,
};
use record::sorted::CollectSorted;
use record::units::format_plural;

use crate::scenario::errors::ResourceError;
use crate::scenario::journal::{CreatedResource, Journal, MovedProcess, journal_directory, run_name};

/// Period of the quota: short, so that the remaining time is spread evenly.
const PERIOD_US: u64 = 20_000;
/// Smallest quota, in CPUs: the kernel accepts no less than a millisecond a period.
const QUOTA_CPUS_MIN: f64 = 0.06;

/// A quota in force. Dropping it removes the quota.
#[derive(Debug)]
pub struct CpuThrottle {
    journal: Journal,
}

/// Reason why processes cannot be limited.
#[derive(Debug, thiserror::Error)]
pub enum ThrottleError {
    #[error("the subject is not on this machine")]
    NotLocal,
    /// The quota would be below the minimum of the kernel.
    #[error("the subject uses too little CPU time to limit it")]
    TooLittle,
    #[error("the subject has ended")]
    Ended,
    /// One quota cannot limit them together.
    #[error("the processes of the subject are in several cgroups")]
    SeveralCgroups,
    /// Another controller, with this name, would be left too.
    #[error(
        "the controllers cpu and {0} are in one cgroup hierarchy: the subject would leave its {0} cgroup"
    )]
    SharedHierarchy(String),
    /// Their cgroup is the root, or has no CPU controller.
    #[error(
        "the cgroup of the subject has no cpu.max: run the subject in its own cgroup (systemd-run --scope)"
    )]
    NoQuotaFile,
    /// These others would be limited too.
    #[error(
        "the cgroup of the subject also contains {0}: run the subject in its own cgroup (systemd-run --scope)"
    )]
    SharedCgroup(String),
    /// The control groups of this machine cannot be read.
    #[error(transparent)]
    NotObservable(#[from] NotObservable),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] io::Error),
    #[error(transparent)]
    Quota(#[from] ResourceError),
    /// The changes that are still in force.
    #[error("{0}")]
    NotUndone(String),
}

/// Method of setting a quota without changing anything else of the processes.
#[derive(Debug, PartialEq, Eq)]
enum ThrottleMethod {
    /// The `cpu.max` of their own cgroup, with its previous value.
    OwnCgroup { file: PathBuf, previous: String },
    /// A child of their own cgroup, in the hierarchy of the `cpu` controller.
    ChildCgroup { cgroup: PathBuf },
}

impl CpuThrottle {
    /// Limits processes to `quota_cpus` CPUs together.
    ///
    /// # Errors
    /// There is no process, or the quota cannot be set without changing more than their CPU time.
    pub fn start(pids: &[i32], quota_cpus: f64) -> Result<Self, ThrottleError> {
        let pid_set: BTreeSet<i32> = pids.iter().copied().collect_set();
        if pid_set.is_empty() {
            return Err(ThrottleError::NotLocal);
        }
        if quota_cpus < QUOTA_CPUS_MIN {
            return Err(ThrottleError::TooLittle);
        }
        let cgroup_hierarchies = read_hierarchies()?;
        let method = throttle_method(&cgroup_hierarchies, &pid_set)?;
        let name = run_name();
        let journal = Journal::create(&journal_directory(), &name)?;
        // From here on dropping the journal restores everything, also on an early return.
        let mut throttle = Self { journal };
        let quota_us = (quota_cpus * PERIOD_US as f64).round() as u64;
        match method {
            ThrottleMethod::OwnCgroup { file, previous } => {
                throttle.limit_own_cgroup(file, previous, quota_us)?
            }
            ThrottleMethod::ChildCgroup { cgroup } => {
                throttle.move_to_child_cgroup(&cgroup.join(&name), &cgroup, &pid_set, quota_us)?
            }
        }
        Ok(throttle)
    }

    fn limit_own_cgroup(
        &mut self,
        file: PathBuf,
        previous: String,
        quota_us: u64,
    ) -> Result<(), ThrottleError> {
        self.journal.record(CreatedResource::Setting { path: file.clone(), previous })?;
        write(&file, &format!("{quota_us} {PERIOD_US}"))
    }

    fn move_to_child_cgroup(
        &mut self,
        child: &Path,
        cgroup: &Path,
        pids: &BTreeSet<i32>,
        quota_us: u64,
    ) -> Result<(), ThrottleError> {
        let to_moved_process =
            |pid: &i32| Some(MovedProcess { process: ProcessIdentity::of(*pid)?, cgroup: cgroup.to_owned() });
        let moved: Vec<MovedProcess> = pids.iter().filter_map(to_moved_process).collect();
        if moved.is_empty() {
            return Err(ThrottleError::Ended);
        }
        let processes = moved.clone();
        self.journal.record(CreatedResource::MovedProcesses { path: child.to_owned(), processes })?;
        fs::create_dir(child).map_err(ResourceError::in_file(child))?;
        write(&child.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
        write(&child.join("cpu.cfs_quota_us"), &quota_us.to_string())?;
        for guest in &moved {
            move_process(guest.process.pid, child).map_err(ResourceError::in_file(child))?;
        }
        Ok(())
    }

    /// Removes the quota.
    ///
    /// # Errors
    /// Changes that could not be undone; the next start tries again.
    pub fn stop(mut self) -> Result<(), ThrottleError> {
        let problems = self.journal.undo();
        if problems.is_empty() { Ok(()) } else { Err(ThrottleError::NotUndone(problems.join("; "))) }
    }
}

impl Drop for CpuThrottle {
    fn drop(&mut self) {
        // Failed changes stay in the journal.
        let _ = self.journal.undo();
    }
}

fn write(file: &Path, value: &str) -> Result<(), ThrottleError> {
    Ok(fs::write(file, value).map_err(ResourceError::in_file(file))?)
}

fn throttle_method(
    cgroup_hierarchies: &CgroupHierarchies,
    pids: &BTreeSet<i32>,
) -> Result<ThrottleMethod, ThrottleError> {
    let cgroups: BTreeSet<PathBuf> =
        pids.iter().filter_map(|pid| group_directory(cgroup_hierarchies, "cpu", *pid).ok()).collect_set();
    let mut cgroups = cgroups.into_iter();
    let (cgroup, None) = (cgroups.next().ok_or(ThrottleError::Ended)?, cgroups.next()) else {
        return Err(ThrottleError::SeveralCgroups);
    };
    if let Some((controllers, _)) =
        cgroup_hierarchies.v1.iter().find(|(names, _)| names.iter().any(|name| name == "cpu"))
    {
        return match controllers.iter().find(|name| !["cpu", "cpuacct"].contains(&name.as_str())) {
            None => Ok(ThrottleMethod::ChildCgroup { cgroup }),
            Some(other) => Err(ThrottleError::SharedHierarchy(other.clone())),
        };
    }
    own_cgroup_method(&cgroup, pids)
}

/// Returns the method for cgroup v2: no other process may be in the cgroup.
fn own_cgroup_method(cgroup: &Path, pids: &BTreeSet<i32>) -> Result<ThrottleMethod, ThrottleError> {
    let file = cgroup.join("cpu.max");
    let previous = fs::read_to_string(&file).map_err(|_| ThrottleError::NoQuotaFile)?;
    let others = list_processes(cgroup).iter().filter(|pid| !pids.contains(pid)).count();
    match others {
        0 => Ok(ThrottleMethod::OwnCgroup { file, previous: previous.trim().to_owned() }),
        1 => Err(ThrottleError::SharedCgroup("another process".to_owned())),
        more => Err(ThrottleError::SharedCgroup(format_plural(more as u64, "other process"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_gets_less_cpu_time_and_nothing_else_of_it_changes() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let groups = || fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let other_controller_lines = |text: &str| -> Vec<String> {
            let other = |line: &&str| !line.split(':').nth(1).unwrap_or("").starts_with("cpu");
            text.lines().filter(other).map(str::to_owned).collect()
        };
        let before = groups();
        match CpuThrottle::start(&[pid], 0.5) {
            Ok(throttle) => {
                let during = groups();
                assert_eq!(other_controller_lines(&during), other_controller_lines(&before));
                throttle.stop().unwrap();
                assert_eq!(groups(), before);
            }
            Err(why) => test_needs::skip(test_needs::KERNEL, why),
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(CpuThrottle::start(&[pid], 0.5).is_err());
        assert!(CpuThrottle::start(&[], 0.5).is_err());
        assert!(CpuThrottle::start(&[1], 0.001).is_err());
    }

    #[test]
    fn a_group_of_its_own_is_limited_and_a_shared_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path();
        let pids = BTreeSet::from([10, 11]);
        assert!(own_cgroup_method(group, &pids).unwrap_err().to_string().contains("cpu.max"));
        fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(group.join("cgroup.procs"), "10\n11\n").unwrap();
        let file = group.join("cpu.max");
        let previous = "max 100000".to_owned();
        assert_eq!(own_cgroup_method(group, &pids).unwrap(), ThrottleMethod::OwnCgroup { file, previous });
        fs::write(group.join("cgroup.procs"), "10\n11\n12\n").unwrap();
        assert!(own_cgroup_method(group, &pids).unwrap_err().to_string().contains("another process"));
    }
}
