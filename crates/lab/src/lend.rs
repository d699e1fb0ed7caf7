//! Takes processor time away from programs that run, for a moment, and gives it back: they are moved
//! to a control group with a quota, and then to where they were.
//!
//! It stands in a journal before it is done, so that the next start gives back what a killed run took.
//! Not for programs that a scenario starts itself: those are born in their group.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use host::setup::group::{Hierarchies, hierarchies, home, move_to};

use crate::scenario::groups::{Bounds, groups};
use crate::scenario::journal::{Guest, Journal, Made, folder, run_name, start_ticks};
use crate::scenario::plan::CpuQuota;

/// The quota's period: short, so that what is left comes evenly.
const PERIOD_NS: u64 = 20_000_000;
/// The least quota, in processors: the kernel takes no less than a millisecond a period.
const QUOTA_CPUS_MIN: f64 = 0.06;

fn guest(found: &Hierarchies, pid: i32) -> Option<Guest> {
    let home = home(found, "cpu", pid).ok()?;
    Some(Guest { pid, start_ticks: start_ticks(pid)?, home })
}

/// Processor time that was taken away. It is given back when this is dropped.
#[derive(Debug)]
pub struct LessTime {
    journal: Journal,
}

impl LessTime {
    /// Lets processes have no more than `quota_cpus` processors together.
    ///
    /// # Errors
    /// There are none, or no control group can do it here (rights, controllers): in words.
    pub fn take(pids: &[i32], quota_cpus: f64) -> Result<Self, String> {
        let known: BTreeSet<i32> = pids.iter().copied().collect();
        if known.is_empty() {
            return Err("the subject is not on this machine".to_owned());
        }
        if quota_cpus < QUOTA_CPUS_MIN {
            return Err("the subject uses too little processor time to take some away".to_owned());
        }
        let found = hierarchies().map_err(|missing| missing.to_string())?;
        let name = run_name();
        let bounds = Bounds {
            cpu: Some(CpuQuota { cpus: quota_cpus, period_ns: PERIOD_NS }),
            ..Bounds::default()
        };
        let wanted = groups(&found, &name, bounds)?;
        let group = wanted
            .into_iter()
            .find(|group| !group.settings.is_empty())
            .ok_or("no control group bounds processor time here")?;
        let guests: Vec<Guest> = known.iter().filter_map(|pid| guest(&found, *pid)).collect();
        if guests.is_empty() {
            return Err("the subject has ended".to_owned());
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let mut journal = Journal::begin(&folder(runtime.as_deref()), &name)
            .map_err(|error| error.to_string())?;
        journal
            .note(Made::Guests { path: group.path.clone(), guests: guests.clone() })
            .map_err(|error| error.to_string())?;
        // From here on the journal gives everything back, also by `?`.
        let taken = Self { journal };
        let explain = |error: std::io::Error| format!("{}: {error}", group.path.display());
        fs::create_dir(&group.path).map_err(explain)?;
        for (file, value) in &group.settings {
            fs::write(group.path.join(file), value).map_err(explain)?;
        }
        for guest in &guests {
            move_to(guest.pid, &group.path).map_err(explain)?;
        }
        Ok(taken)
    }

    /// Gives it back.
    ///
    /// # Errors
    /// What could not be undone; the next start tries again.
    pub fn give_back(mut self) -> Result<(), String> {
        let problems = self.journal.undo();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}

impl Drop for LessTime {
    fn drop(&mut self) {
        // What cannot be undone now stays in the journal.
        let _ = self.journal.undo();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_program_gets_less_and_is_back_where_it_was() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let group = || fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let before = group();
        match LessTime::take(&[pid], 0.5) {
            Ok(taken) => {
                assert_ne!(group(), before);
                assert_eq!(taken.give_back(), Ok(()));
                assert_eq!(group(), before);
            }
            Err(why) => eprintln!("not tried: {why}"),
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(LessTime::take(&[pid], 0.5).is_err());
        assert!(LessTime::take(&[], 0.5).is_err());
        assert!(LessTime::take(&[1], 0.001).is_err());
    }
}
