//! Due times of many connections: a heap with at most one valid entry for each. Pure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Value for a connection without an entry.
pub(crate) const NOT_ARMED: u64 = u64::MAX;

/// Due times by connection. An entry is valid if its time is the one that the connection has stored.
#[derive(Debug, Default)]
pub(crate) struct TimerHeap {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl TimerHeap {
    /// Arms the timer of a connection that stores its time in `armed_ns`. A later time than the armed one is left for
    /// when that one is due: most timers move on with each packet.
    #[inline]
    pub(crate) fn arm(&mut self, slot: u32, due_ns: u64, armed_ns: &mut u64) {
        if due_ns < *armed_ns {
            *armed_ns = due_ns;
            self.heap.push(Reverse((due_ns, slot)));
        }
    }

    /// Returns the earliest time, which may be that of an invalid entry.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Removes an entry that is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Drops invalid entries once they are the majority, so that connections that come and go cannot grow the heap.
    pub(crate) fn compact(&mut self, connections: usize, is_valid: impl Fn(u32, u64) -> bool) {
        if self.heap.len() > 64 && self.heap.len() > 2 * connections {
            self.heap.retain(|Reverse((due_ns, slot))| is_valid(*slot, *due_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_time_replaces_a_later_one_and_a_later_one_waits() {
        let (mut timers, mut armed) = (TimerHeap::default(), NOT_ARMED);
        timers.arm(7, 100, &mut armed);
        timers.arm(7, 200, &mut armed);
        assert_eq!((timers.next_ns(), armed), (Some(100), 100));
        timers.arm(7, 50, &mut armed);
        assert_eq!(timers.pop_due(49), None);
        assert_eq!(timers.pop_due(60), Some((50, 7)));
        // The earlier entry is still there, and no longer valid.
        assert_eq!((timers.pop_due(100), armed), (Some((100, 7)), 50));
        for due_ns in 0..1_000 {
            timers.arm(1, 2_000 - due_ns, &mut armed);
            armed = NOT_ARMED;
        }
        timers.compact(3, |_, due_ns| due_ns == 1_001);
        assert_eq!((timers.next_ns(), timers.heap.len()), (Some(1_001), 1));
    }
}
