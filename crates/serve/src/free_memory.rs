//! Decision when a core returns freed memory to the kernel: after a crowd has left. Pure.

use rt::clock::SECOND_NS;

/// Load of a core since it last returned memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FreeMemory {
    /// Maximum number of connections and requests in flight.
    peak: u64,
    decided_ns: u64,
}

/// Minimum peak: fewer connections hold too little.
const PEAK_MIN: u64 = 128;
/// Minimum time between two returns, which take milliseconds.
const INTERVAL_NS: u64 = 2 * SECOND_NS;

impl FreeMemory {
    /// Returns whether to return memory now that `load` connections and requests are in flight: at most half
    /// of the peak.
    pub(crate) fn is_due(&mut self, load: u64, now_ns: u64) -> bool {
        self.peak = self.peak.max(load);
        let is_due = self.peak >= PEAK_MIN
            && load <= self.peak / 2
            && now_ns.saturating_sub(self.decided_ns) >= INTERVAL_NS;
        if is_due {
            *self = Self { peak: load, decided_ns: now_ns };
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_once_after_a_crowd() {
        let mut memory = FreeMemory::default();
        let at = |seconds: u64| seconds * SECOND_NS;
        assert!(!memory.is_due(1_000, at(10)) && !memory.is_due(501, at(20)));
        assert!(memory.is_due(500, at(21)));
        assert!(!memory.is_due(300, at(22)) && !memory.is_due(200, at(22)), "too soon");
        assert!(memory.is_due(200, at(24)));
        assert!(memory.is_due(0, at(30)) && !memory.is_due(0, at(40)));
        assert!(!memory.is_due(127, at(50)) && !memory.is_due(0, at(60)), "a few connections");
    }
}
