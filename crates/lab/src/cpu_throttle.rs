//! Bounds the CPU time of running processes for a moment, and restores what was.
//!
//! With version 2 of control groups the quota of the processes' own group is set, where nobody else is in
//! it: they stay in their group, with its memory limit and its unit. With version 1 they go to a group
//! below their own in the hierarchy of the `cpu` controller alone, which no memory limit and no unit is
//! in.
//!
//! Each change is written to a journal first, so that the next start undoes what a killed run left.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use host::setup::group::{Hierarchies, hierarchies, home, move_to, processes};

use crate::scenario::journal::{Guest, Journal, Made, folder, run_name, start_ticks};

/// The quota's period: short, so that the remaining time comes evenly.
const PERIOD_US: u64 = 20_000;
/// The smallest quota, in CPUs: the kernel takes no less than a millisecond a period.
const QUOTA_CPUS_MIN: f64 = 0.06;

/// A quota in force. It is removed when this is dropped.
#[derive(Debug)]
pub struct CpuThrottle {
    journal: Journal,
}

/// How a quota is set without touching anything else of the processes.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// The `cpu.max` of their own group, with its value before.
    OwnGroup { file: PathBuf, before: String },
    /// A group below their own, in the hierarchy of the `cpu` controller.
    Below { home: PathBuf },
}

impl CpuThrottle {
    /// Lets processes have no more than `quota_cpus` CPUs together.
    ///
    /// # Errors
    /// There is no process, or no way to do it without touching more than their CPU time: in words.
    pub fn start(pids: &[i32], quota_cpus: f64) -> Result<Self, String> {
        let known: BTreeSet<i32> = pids.iter().copied().collect();
        if known.is_empty() {
            return Err("the subject is not on this machine".to_owned());
        }
        if quota_cpus < QUOTA_CPUS_MIN {
            return Err("the subject uses too little CPU time to take some away".to_owned());
        }
        let found = hierarchies().map_err(|missing| missing.to_string())?;
        let way = way(&found, &known)?;
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let name = run_name();
        let journal = Journal::begin(&folder(runtime.as_deref()), &name)
            .map_err(|error| error.to_string())?;
        // From here on the journal restores everything, also by `?`.
        let mut throttle = Self { journal };
        let quota_us = (quota_cpus * PERIOD_US as f64).round() as u64;
        match way {
            Way::OwnGroup { file, before } => throttle.limit_own_group(file, before, quota_us)?,
            Way::Below { home } => {
                throttle.move_below(&home.join(&name), &home, &known, quota_us)?
            }
        }
        Ok(throttle)
    }

    fn limit_own_group(
        &mut self,
        file: PathBuf,
        before: String,
        quota_us: u64,
    ) -> Result<(), String> {
        self.note(Made::Setting { path: file.clone(), before })?;
        write(&file, &format!("{quota_us} {PERIOD_US}"))
    }

    fn move_below(
        &mut self,
        group: &Path,
        home: &Path,
        pids: &BTreeSet<i32>,
        quota_us: u64,
    ) -> Result<(), String> {
        let guest = |pid: &i32| {
            let start_ticks = start_ticks(*pid)?;
            Some(Guest { pid: *pid, start_ticks, home: home.to_owned() })
        };
        let guests: Vec<Guest> = pids.iter().filter_map(guest).collect();
        if guests.is_empty() {
            return Err("the subject has ended".to_owned());
        }
        self.note(Made::Guests { path: group.to_owned(), guests: guests.clone() })?;
        fs::create_dir(group).map_err(|error| format!("{}: {error}", group.display()))?;
        write(&group.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
        write(&group.join("cpu.cfs_quota_us"), &quota_us.to_string())?;
        for guest in &guests {
            move_to(guest.pid, group).map_err(|error| format!("{}: {error}", group.display()))?;
        }
        Ok(())
    }

    fn note(&mut self, made: Made) -> Result<(), String> {
        self.journal.note(made).map_err(|error| error.to_string())
    }

    /// Removes the quota.
    ///
    /// # Errors
    /// What could not be undone; the next start tries again.
    pub fn stop(mut self) -> Result<(), String> {
        let problems = self.journal.undo();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}

impl Drop for CpuThrottle {
    fn drop(&mut self) {
        // What cannot be undone now stays in the journal.
        let _ = self.journal.undo();
    }
}

fn write(file: &Path, value: &str) -> Result<(), String> {
    fs::write(file, value).map_err(|error| format!("{}: {error}", file.display()))
}

fn way(found: &Hierarchies, pids: &BTreeSet<i32>) -> Result<Way, String> {
    let homes: BTreeSet<PathBuf> =
        pids.iter().filter_map(|pid| home(found, "cpu", *pid).ok()).collect();
    let mut homes = homes.into_iter();
    let (home, None) = (homes.next().ok_or("the subject has ended")?, homes.next()) else {
        return Err("the subject's processes are in several control groups".to_owned());
    };
    if let Some((controllers, _)) =
        found.first_version.iter().find(|(names, _)| names.iter().any(|name| name == "cpu"))
    {
        return match controllers.iter().find(|name| !["cpu", "cpuacct"].contains(&name.as_str())) {
            None => Ok(Way::Below { home }),
            Some(other) => Err(format!(
                "the controllers cpu and {other} are in one hierarchy here: the subject would leave \
                 its group of the latter"
            )),
        };
    }
    own_group(&home, pids)
}

/// The way with version 2: no process but theirs may be in the group.
fn own_group(home: &Path, pids: &BTreeSet<i32>) -> Result<Way, String> {
    let file = home.join("cpu.max");
    let before = fs::read_to_string(&file).map_err(|_| {
        "the subject's control group has no CPU quota of its own: run it in one (systemd-run --scope)"
            .to_owned()
    })?;
    let others = processes(home).iter().filter(|pid| !pids.contains(pid)).count();
    match others {
        0 => Ok(Way::OwnGroup { file, before: before.trim().to_owned() }),
        _ => Err(format!(
            "the subject shares its control group with {}: run it in one of its own \
             (systemd-run --scope)",
            match others {
                1 => "another process".to_owned(),
                more => format!("{more} other processes"),
            }
        )),
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
        let of_other_controllers = |text: &str| -> Vec<String> {
            let other = |line: &&str| !line.split(':').nth(1).unwrap_or("").starts_with("cpu");
            text.lines().filter(other).map(str::to_owned).collect()
        };
        let before = groups();
        match CpuThrottle::start(&[pid], 0.5) {
            Ok(throttle) => {
                let during = groups();
                assert_eq!(of_other_controllers(&during), of_other_controllers(&before));
                assert_eq!(throttle.stop(), Ok(()));
                assert_eq!(groups(), before);
            }
            Err(why) => eprintln!("skipped: {why}"),
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
        assert!(own_group(group, &pids).unwrap_err().contains("no CPU quota of its own"));
        fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(group.join("cgroup.procs"), "10\n11\n").unwrap();
        let file = group.join("cpu.max");
        let before = "max 100000".to_owned();
        assert_eq!(own_group(group, &pids), Ok(Way::OwnGroup { file, before }));
        fs::write(group.join("cgroup.procs"), "10\n11\n12\n").unwrap();
        assert!(own_group(group, &pids).unwrap_err().contains("another process"));
    }
}
