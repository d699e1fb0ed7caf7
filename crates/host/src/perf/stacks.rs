//! Samples as they arrive: counts of each stack, and the mappings of each process. The memory is
//! bounded, whatever the duration.
//!
//! Names are resolved at the end.

use std::collections::HashMap;

use super::maps::{AddressSpace, Mapping};
use super::records::{PerfRecord, StackSample};

const STACKS_MAX: usize = 32_768;
/// Maximum number of processes with known mappings; the kernel may report many short-lived ones.
const PROCESSES_MAX: usize = 4096;

/// Addresses, the innermost first: those of the kernel, then of user space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stack {
    pub(super) pid: i32,
    pub(super) addresses: Box<[u64]>,
    /// Number of kernel addresses among them.
    pub(super) kernel_frames: u16,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SampledProcess {
    /// Process name (`/proc/PID/comm`).
    pub(super) name: String,
    pub(super) address_space: AddressSpace,
}

impl SampledProcess {
    fn read(pid: i32) -> Self {
        let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = crate::process::printable(String::from_utf8_lossy(&name).trim_end());
        Self { name, address_space: AddressSpace::read(pid) }
    }
}

/// Everything collected so far.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleCollector {
    pub(super) stacks: HashMap<Stack, u64>,
    pub(super) processes: HashMap<i32, SampledProcess>,
    /// Number of samples in `stacks`.
    pub(super) samples: u64,
    /// Number of samples that were lost because a ring was full.
    pub(super) lost: u64,
    /// Number of samples with new stacks after [`STACKS_MAX`] others.
    pub(super) dropped: u64,
    /// Number of times that the kernel throttled the sampling.
    pub(super) throttled: u64,
    /// CPU time of the collecting thread, in nanoseconds.
    pub(super) cost_ns: u64,
}

impl SampleCollector {
    /// Reads the current mappings of these processes.
    pub(super) fn new(pids: &[i32]) -> Self {
        let processes = pids.iter().map(|&pid| (pid, SampledProcess::read(pid))).collect();
        Self { processes, ..Self::default() }
    }

    pub(super) fn handle_record(&mut self, record: PerfRecord<'_>) {
        match record {
            PerfRecord::Sample(sample) => self.count_sample(&sample),
            PerfRecord::Mapped { pid, start, length, offset, path } => {
                let path = String::from_utf8_lossy(path).into_owned();
                // The kernel's name for memory without a file.
                let path = if path == "//anon" { String::new() } else { path };
                let end = start.saturating_add(length);
                if let Some(process) = self.process_mut(pid) {
                    process.address_space.add(Mapping { start, end, offset, path });
                }
            }
            PerfRecord::Forked { pid, parent } => {
                let copy = self.processes.get(&parent).cloned();
                if self.processes.len() < PROCESSES_MAX {
                    self.processes.insert(pid, copy.unwrap_or_else(|| SampledProcess::read(pid)));
                }
            }
            PerfRecord::Executed { pid, name } => {
                if self.processes.len() < PROCESSES_MAX {
                    // The process may have ended by now; its mappings are reported in records too.
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.processes
                        .insert(pid, SampledProcess { name, address_space: AddressSpace::read(pid) });
                }
            }
            PerfRecord::Lost(count) => self.lost += count,
            PerfRecord::Throttled => self.throttled += 1,
        }
    }

    fn process_mut(&mut self, pid: i32) -> Option<&mut SampledProcess> {
        let known_processes = self.processes.len();
        match self.processes.entry(pid) {
            std::collections::hash_map::Entry::Occupied(entry) => Some(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                (known_processes < PROCESSES_MAX).then(|| entry.insert(SampledProcess::read(pid)))
            }
        }
    }

    fn count_sample(&mut self, sample: &StackSample) {
        let addresses = sample.kernel.iter().chain(&sample.user).copied().collect();
        let kernel_frames = sample.kernel.len() as u16;
        let stack = Stack { pid: sample.pid, addresses, kernel_frames };
        // A process that is new since the start is read before it may end.
        let _ = self.process_mut(sample.pid);
        if let Some(count) = self.stacks.get_mut(&stack) {
            *count += 1;
        } else if self.stacks.len() < STACKS_MAX {
            self.stacks.insert(stack, 1);
        } else {
            self.dropped += 1;
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
        let mut all = SampleCollector::default();
        for _ in 0..2 {
            for address in 0..=STACKS_MAX as u64 {
                let sample = StackSample { pid: NOBODY, kernel: vec![address], user: vec![1] };
                all.handle_record(PerfRecord::Sample(sample));
            }
        }
        assert_eq!((all.stacks.len(), all.dropped), (STACKS_MAX, 2));
        assert_eq!(all.samples, 2 * STACKS_MAX as u64);
        all.handle_record(PerfRecord::Lost(3));
        all.handle_record(PerfRecord::Throttled);
        assert_eq!((all.lost, all.throttled), (3, 1));
    }

    #[test]
    fn a_child_runs_from_what_its_parent_does_until_it_executes() {
        let mut all = SampleCollector::default();
        let mapped =
            PerfRecord::Mapped { pid: NOBODY - 1, start: 0x1000, length: 0x1000, offset: 0, path: b"/bin/a" };
        all.handle_record(mapped);
        all.handle_record(PerfRecord::Forked { pid: NOBODY, parent: NOBODY - 1 });
        assert!(all.processes[&NOBODY].address_space.find(0x1800).is_some());
        all.handle_record(PerfRecord::Executed { pid: NOBODY, name: b"b" });
        assert_eq!(all.processes[&NOBODY].name, "b");
        assert!(all.processes[&NOBODY].address_space.find(0x1800).is_none());
    }
}
