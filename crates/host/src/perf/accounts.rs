//! What is left of a profile where the kernel lets nobody sample: the processor time of each thread, in
//! user space and in the kernel, as `/proc` accounts for it.
//!
//! Not for functions: nothing here knows any. Shares are of time, in ticks of the kernel's clock.

use std::collections::BTreeMap;

use super::profile::Profile;
use crate::cpu::ticks_per_s;
use crate::process::{ThreadTimes, threads};

/// Threads that are kept apart; the processes' others are left out, and that is said.
const THREADS_MAX: usize = 4096;

/// Threads that were seen, with what they had used then and last.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    threads: BTreeMap<(i32, i32), Used>,
    looks: u64,
    left_out: bool,
    /// Processor time of the looking, of whoever looked.
    pub(super) cost_ns: u64,
}

#[derive(Debug, Default)]
struct Used {
    name: String,
    before: (u64, u64),
    now: (u64, u64),
}

impl Accounts {
    /// Looks at all threads of these processes. What a thread had used before the first look does not
    /// count; one that came later counts whole.
    pub(super) fn look(&mut self, pids: &[i32]) {
        for &pid in pids {
            // A process that has ended stays as it was seen last.
            for thread in threads(pid).unwrap_or_default() {
                self.take(pid, &thread);
            }
        }
        self.looks += 1;
    }

    fn take(&mut self, pid: i32, thread: &ThreadTimes) {
        let now = (thread.user_ticks, thread.system_ticks);
        let first = self.looks == 0;
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&(pid, thread.tid)) {
            self.left_out = true;
            return;
        }
        let used = self.threads.entry((pid, thread.tid)).or_insert_with(|| Used {
            before: if first { now } else { (0, 0) },
            ..Used::default()
        });
        used.name.clone_from(&thread.name);
        used.now = now;
    }

    /// Whether there is anybody to look at.
    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// As a profile: a stack for each thread and mode. `why` says why it is no better.
    pub(super) fn profile(&self, why: &str) -> Profile {
        let mut rows = Vec::new();
        for ((pid, _), used) in &self.threads {
            let (user, system) = (used.now.0 - used.before.0, used.now.1 - used.before.1);
            rows.push((*pid, used.name.as_str(), false, user));
            rows.push((*pid, used.name.as_str(), true, system));
        }
        let mut notes = vec![format!(
            "functions are not observable ({why}): this is the processor time of each thread as /proc \
             accounts for it, in {} ticks a second",
            ticks_per_s()
        )];
        if self.left_out {
            notes.push(format!("only the first {THREADS_MAX} threads are counted"));
        }
        // A process has its first thread's number.
        let firsts = self.threads.iter().filter(|((pid, tid), _)| pid == tid);
        let names = firsts.map(|((pid, _), used)| (*pid, used.name.clone())).collect();
        let mut profile = Profile::of_threads(&rows, names, notes);
        profile.reading_s = self.cost_ns as f64 / 1e9;
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: i32, user_ticks: u64, system_ticks: u64) -> ThreadTimes {
        let name = format!("worker-{tid}");
        ThreadTimes { tid, name, user_ticks, system_ticks, ..ThreadTimes::default() }
    }

    #[test]
    fn time_of_before_does_not_count_and_a_new_thread_counts_whole() {
        let mut accounts = Accounts::default();
        accounts.take(1, &thread(1, 100, 50));
        accounts.looks = 1;
        accounts.take(1, &thread(1, 130, 60));
        accounts.take(1, &thread(2, 0, 10));
        let profile = accounts.profile("EPERM");
        assert_eq!(profile.samples, 50);
        let functions = profile.functions("subject");
        let share = |name: &str| functions.iter().find(|one| one.function == name).unwrap();
        assert!((share("(user space)").share_self - 0.6).abs() < 1e-9);
        assert!((share("(kernel)").share_self - 0.4).abs() < 1e-9);
        assert!((share("thread worker-1").share_total - 0.8).abs() < 1e-9);
        assert!(profile.notes[0].contains("EPERM"));
        assert_eq!(profile.folded().to_string().lines().count(), 3);
    }

    #[test]
    fn this_process_has_accounts() {
        let mut accounts = Accounts::default();
        accounts.look(&[std::process::id() as i32]);
        assert!(!accounts.is_empty());
        accounts.look(&[i32::MAX]);
        assert_eq!(accounts.profile("").functions("subject").len(), 0);
    }
}
