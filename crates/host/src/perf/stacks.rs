//! What was sampled, while it comes in: how often each stack was seen, and what each process ran from.
//! Bounded, however long it goes on.
//!
//! Not for names: those are looked up at the end.

use std::collections::HashMap;

use super::maps::{Mapping, Space};
use super::records::{Record, Sample};

/// Different stacks that are kept.
const STACKS_MAX: usize = 32_768;
/// Processes whose memory is known; the kernel may tell of many short ones.
const PROCESSES_MAX: usize = 4096;

/// Addresses, the innermost first: those of the kernel, then the user's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stack {
    pub(super) pid: i32,
    pub(super) addresses: Box<[u64]>,
    /// How many of them are the kernel's.
    pub(super) kernel: u16,
}

/// A process that was sampled.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    /// Its name (`/proc/PID/comm`).
    pub(super) name: String,
    pub(super) space: Space,
}

impl Process {
    fn of(pid: i32) -> Self {
        let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&name).trim_end().to_owned();
        Self { name, space: Space::of(pid) }
    }
}

/// All that came in.
#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    pub(super) stacks: HashMap<Stack, u64>,
    pub(super) processes: HashMap<i32, Process>,
    /// Samples in `stacks`.
    pub(super) samples: u64,
    /// Samples that found no room in a ring.
    pub(super) lost: u64,
    /// Samples of stacks that came after [`STACKS_MAX`] others.
    pub(super) not_kept: u64,
    /// Times that the kernel slowed the sampling down.
    pub(super) throttled: u64,
    /// Processor time of the thread that collected, in nanoseconds.
    pub(super) cost_ns: u64,
}

impl Collected {
    /// Knows what these processes run from now.
    pub(super) fn of(pids: &[i32]) -> Self {
        let processes = pids.iter().map(|&pid| (pid, Process::of(pid))).collect();
        Self { processes, ..Self::default() }
    }

    /// Takes in a record.
    pub(super) fn take(&mut self, record: Record<'_>) {
        match record {
            Record::Sample(sample) => self.count(&sample),
            Record::Mapped { pid, start, length, offset, path } => {
                let path = String::from_utf8_lossy(path).into_owned();
                // The kernel's own words for memory that has no file.
                let path = if path == "//anon" { String::new() } else { path };
                let end = start.saturating_add(length);
                if let Some(process) = self.process(pid) {
                    process.space.add(Mapping { start, end, offset, path });
                }
            }
            Record::Forked { pid, parent } => {
                let copy = self.processes.get(&parent).cloned();
                if self.processes.len() < PROCESSES_MAX {
                    self.processes.insert(pid, copy.unwrap_or_else(|| Process::of(pid)));
                }
            }
            Record::Executed { pid, name } => {
                if self.processes.len() < PROCESSES_MAX {
                    // It may be gone by now, and what it maps is told too.
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.processes.insert(pid, Process { name, space: Space::of(pid) });
                }
            }
            Record::Lost(count) => self.lost += count,
            Record::Throttled => self.throttled += 1,
        }
    }

    fn process(&mut self, pid: i32) -> Option<&mut Process> {
        let known = self.processes.len();
        match self.processes.entry(pid) {
            std::collections::hash_map::Entry::Occupied(entry) => Some(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                (known < PROCESSES_MAX).then(|| entry.insert(Process::of(pid)))
            }
        }
    }

    fn count(&mut self, sample: &Sample) {
        let addresses = sample.kernel.iter().chain(&sample.user).copied().collect();
        let kernel = sample.kernel.len() as u16;
        let stack = Stack { pid: sample.pid, addresses, kernel };
        // Whoever was not there when it began is looked at before it may be gone.
        let _ = self.process(sample.pid);
        if let Some(count) = self.stacks.get_mut(&stack) {
            *count += 1;
        } else if self.stacks.len() < STACKS_MAX {
            self.stacks.insert(stack, 1);
        } else {
            self.not_kept += 1;
            return;
        }
        self.samples += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: i32 = i32::MAX;

    #[test]
    fn stacks_are_counted_once_each_and_bounded() {
        let mut all = Collected::default();
        for _ in 0..2 {
            for address in 0..=STACKS_MAX as u64 {
                let sample = Sample { pid: NOBODY, kernel: vec![address], user: vec![1] };
                all.take(Record::Sample(sample));
            }
        }
        assert_eq!((all.stacks.len(), all.not_kept), (STACKS_MAX, 2));
        assert_eq!(all.samples, 2 * STACKS_MAX as u64);
        all.take(Record::Lost(3));
        all.take(Record::Throttled);
        assert_eq!((all.lost, all.throttled), (3, 1));
    }

    #[test]
    fn a_child_runs_from_what_its_parent_does_until_it_executes() {
        let mut all = Collected::default();
        let mapped = Record::Mapped {
            pid: NOBODY - 1,
            start: 0x1000,
            length: 0x1000,
            offset: 0,
            path: b"/bin/a",
        };
        all.take(mapped);
        all.take(Record::Forked { pid: NOBODY, parent: NOBODY - 1 });
        assert!(all.processes[&NOBODY].space.find(0x1800).is_some());
        all.take(Record::Executed { pid: NOBODY, name: b"b" });
        assert_eq!(all.processes[&NOBODY].name, "b");
        assert!(all.processes[&NOBODY].space.find(0x1800).is_none());
    }
}
