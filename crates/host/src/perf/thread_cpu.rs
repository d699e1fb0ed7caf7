//! Fallback profile where the kernel denies sampling: the CPU time of each thread, in user space
//! and in the kernel, as `/proc` accounts for it.
//!
//! It has no functions. Fractions are of time, in ticks of the kernel's clock.

use std::collections::BTreeMap;

use super::profile::Profile;
use crate::cpu::ticks_per_s;
use crate::process::{ThreadTimes, threads};

/// Maximum number of threads that are listed separately; further threads are left out, with a note.
const THREADS_MAX: usize = 4096;

/// Known threads, with their CPU time at the first and the last reading.
#[derive(Debug, Default)]
pub(super) struct ThreadCpuTimes {
    threads: BTreeMap<(i32, i32), ThreadCpu>,
    readings: u64,
    is_truncated: bool,
    /// CPU time of the readings themselves, on the reading thread.
    pub(super) cost_ns: u64,
}

#[derive(Debug, Default)]
struct ThreadCpu {
    name: String,
    first_ticks: (u64, u64),
    last_ticks: (u64, u64),
}

impl ThreadCpuTimes {
    /// Reads all threads of these processes. CPU time before the first reading does not count; a
    /// thread that is first seen later counts completely.
    pub(super) fn sample(&mut self, pids: &[i32]) {
        for &pid in pids {
            // An ended process keeps its last reading.
            for thread in threads(pid).unwrap_or_default() {
                self.record(pid, &thread);
            }
        }
        self.readings += 1;
    }

    fn record(&mut self, pid: i32, thread: &ThreadTimes) {
        let ticks = (thread.user_ticks, thread.system_ticks);
        let is_first_reading = self.readings == 0;
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&(pid, thread.tid)) {
            self.is_truncated = true;
            return;
        }
        let thread_cpu = self.threads.entry((pid, thread.tid)).or_insert_with(|| ThreadCpu {
            first_ticks: if is_first_reading { ticks } else { (0, 0) },
            ..ThreadCpu::default()
        });
        thread_cpu.name.clone_from(&thread.name);
        thread_cpu.last_ticks = ticks;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Returns a profile with a stack for each thread and mode. `why` is the reason for the
    /// fallback.
    pub(super) fn profile(&self, why: &str) -> Profile {
        let mut rows = Vec::new();
        for ((pid, _), used) in &self.threads {
            let (user, system) =
                (used.last_ticks.0 - used.first_ticks.0, used.last_ticks.1 - used.first_ticks.1);
            rows.push((*pid, used.name.as_str(), false, user));
            rows.push((*pid, used.name.as_str(), true, system));
        }
        let mut notes = vec![format!(
            "functions are not observable ({why}): this is the CPU time per thread from /proc, in {} \
             ticks per second",
            ticks_per_s()
        )];
        if self.is_truncated {
            notes.push(format!("only the first {THREADS_MAX} threads are counted"));
        }
        // A process has the number of its first thread.
        let main_threads = self.threads.iter().filter(|((pid, tid), _)| pid == tid);
        let names = main_threads.map(|((pid, _), used)| (*pid, used.name.clone())).collect();
        let mut profile = Profile::from_threads(&rows, names, notes);
        profile.sampling_cpu_s = self.cost_ns as f64 / 1e9;
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
    fn earlier_time_does_not_count_and_a_new_thread_counts_completely() {
        let mut thread_cpu = ThreadCpuTimes::default();
        thread_cpu.record(1, &thread(1, 100, 50));
        thread_cpu.readings = 1;
        thread_cpu.record(1, &thread(1, 130, 60));
        thread_cpu.record(1, &thread(2, 0, 10));
        let profile = thread_cpu.profile("EPERM");
        assert_eq!(profile.samples, 50);
        let functions = profile.functions("subject");
        let function = |name: &str| functions.iter().find(|function| function.function == name).unwrap();
        assert!((function("(user space)").self_fraction - 0.6).abs() < 1e-9);
        assert!((function("(kernel)").self_fraction - 0.4).abs() < 1e-9);
        assert!((function("thread worker-1").total_fraction - 0.8).abs() < 1e-9);
        assert!(profile.notes[0].contains("EPERM"));
        assert_eq!(profile.folded().to_string().lines().count(), 3);
    }

    #[test]
    fn this_process_has_thread_cpu_times() {
        let mut thread_cpu = ThreadCpuTimes::default();
        thread_cpu.sample(&[std::process::id() as i32]);
        assert!(!thread_cpu.is_empty());
        thread_cpu.sample(&[i32::MAX]);
        assert_eq!(thread_cpu.profile("").functions("subject").len(), 0);
    }
}
