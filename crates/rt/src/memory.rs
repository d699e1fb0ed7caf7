//! Return of freed memory to the kernel.
//!
//! The allocator gives pages back a second after they were freed, but only when it is called: a core that
//! has become idle would keep the memory of its last peak.

use libmimalloc_sys as _;

use crate::clock::SECOND_NS;

/// Number of collections after the last connections have ended: pages that one collection frees are given
/// back by a later one.
const COLLECTIONS: u32 = 4;
/// Time before the first collection and between two, so that connections which end all the time cause one
/// a second.
const INTERVAL_NS: u64 = SECOND_NS;

/// Schedule by which one core returns its freed memory.
#[derive(Debug, Default)]
pub struct MemoryReturn {
    ended: u64,
    collections_left: u32,
    next_ns: u64,
}

impl MemoryReturn {
    /// Returns what [`return_freed_memory`] is to return at this time. `ended` is the number of
    /// connections that have ended so far.
    pub fn due(&mut self, ended: u64, now_ns: u64) -> Option<FreedMemory> {
        if std::mem::replace(&mut self.ended, ended) != ended {
            if self.collections_left == 0 {
                self.next_ns = now_ns + INTERVAL_NS;
            }
            self.collections_left = COLLECTIONS;
        }
        if self.collections_left == 0 || now_ns < self.next_ns {
            return None;
        }
        self.collections_left -= 1;
        self.next_ns = now_ns + INTERVAL_NS;
        Some(if self.collections_left == 0 { FreedMemory::All } else { FreedMemory::Aged })
    }
}

/// Part of the freed memory of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedMemory {
    /// Memory that was freed long enough ago: connections still end, so that it may be needed again.
    Aged,
    /// Also the empty page that the allocator keeps for each size of blocks: up to 512 KiB for a size.
    All,
}

/// Returns memory that the calling thread has freed to the kernel,
/// and memory that C libraries have freed (malloc_trim(3)). Has no effect on Rust's memory if the process
/// has another allocator than mimalloc.
#[allow(unsafe_code)]
pub fn return_freed_memory(part: FreedMemory) {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: the function of mimalloc has this signature and may be called at any time by any thread.
    unsafe { mi_collect(part == FreedMemory::All) };
    // SAFETY: malloc_trim has no preconditions, and may be called by any thread at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_some_times_after_connections_have_ended() {
        let mut schedule = MemoryReturn::default();
        let times = |schedule: &mut MemoryReturn, ended: &dyn Fn(u64) -> u64, ticks: std::ops::Range<u64>| {
            ticks.filter_map(|tick| schedule.due(ended(tick), tick * SECOND_NS / 10)).collect::<Vec<_>>()
        };
        let after_the_last = [FreedMemory::Aged, FreedMemory::Aged, FreedMemory::Aged, FreedMemory::All];
        assert_eq!(times(&mut schedule, &|_| 0, 0..100), Vec::new(), "without connections");
        assert_eq!(times(&mut schedule, &|_| 20, 100..200), after_the_last, "after some have ended");
        assert_eq!(
            times(&mut schedule, &|tick| tick, 200..300),
            [FreedMemory::Aged; 9],
            "while they end all the time"
        );
        assert_eq!(times(&mut schedule, &|_| 299, 300..400), after_the_last);
        return_freed_memory(FreedMemory::All);
    }
}
