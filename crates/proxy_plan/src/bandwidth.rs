//! Limits of bytes per second. Pure: time is an argument.
//!
//! A message reserves a slice of bytes before it is read, and waits until the slice is due. So messages that share a
//! limit get their slices in the order in which they ask, on all cores, and none waits for a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::clock::MonotonicTime;

/// Time by which bytes may be ahead of their rate: what a pause leaves may be sent at once afterwards.
const BURST_NS: u64 = 500_000_000;
/// Slices per second of one message, and of all that share a limit.
const OWN_SLICES_PER_S: u64 = 20;
const SHARED_SLICES_PER_S: u64 = 200;
/// Maximum number of slices that a message gets in addition because it is late.
const LATE_SLICES_MAX: u64 = 3;
/// Minimum and maximum bytes of a slice. One read takes no more.
const SLICE_BYTES_MIN: u64 = 1024;
const OWN_SLICE_BYTES_MAX: u64 = 64 * 1024;
const SHARED_SLICE_BYTES_MAX: u64 = 16 * 1024;

/// Returns the time in nanoseconds that bytes take at a rate.
fn time_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Returns the time at which bytes are due, and the one at which the next ones are.
fn reserve(next_ns: u64, duration_ns: u64, now_ns: u64) -> (u64, u64) {
    let due_ns = next_ns.max(now_ns.saturating_sub(BURST_NS));
    (due_ns, due_ns.saturating_add(duration_ns))
}

/// A limit that all messages of a route or a listener share, on all cores.
#[derive(Debug)]
pub struct SharedBandwidth {
    /// Maximum rate.
    pub bytes_per_s: u64,
    /// Time at which the next slice is due.
    next_ns: AtomicU64,
}

impl SharedBandwidth {
    pub fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, next_ns: AtomicU64::new(0) }
    }

    fn reserve(&self, bytes: u64, now_ns: u64) -> u64 {
        let duration_ns = time_ns(bytes, self.bytes_per_s);
        let update = |next_ns| Some(reserve(next_ns, duration_ns, now_ns).1);
        let previous = self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        reserve(previous.unwrap_or_default(), duration_ns, now_ns).0
    }

    /// Counts bytes that were sent and not reserved.
    fn charge(&self, bytes: u64) {
        let duration_ns = time_ns(bytes, self.bytes_per_s);
        let update = |next_ns: u64| Some(next_ns.saturating_add(duration_ns));
        // The update always has a value.
        let _ = self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Returns bytes that were reserved and not sent.
    fn refund(&self, bytes: u64) {
        let duration_ns = time_ns(bytes, self.bytes_per_s);
        let update = |next_ns: u64| Some(next_ns.saturating_sub(duration_ns));
        // The update always has a value.
        let _ = self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }
}

impl PartialEq for SharedBandwidth {
    fn eq(&self, other: &Self) -> bool {
        self.bytes_per_s == other.bytes_per_s
    }
}

/// The limit of one message, or of one direction of a tunnel.
#[derive(Debug)]
pub struct BandwidthGate {
    /// Rate of its own, and the time at which its next slice is due.
    own: Option<(u64, u64)>,
    shared: Option<Arc<SharedBandwidth>>,
    /// Bytes that the own rate does not count any more.
    free_bytes: u64,
    /// Bytes that may be moved; negative: more were moved already.
    granted_bytes: i64,
    /// Bytes of the message that were noted.
    noted_bytes: u64,
    /// A slice that is not due yet.
    reserved: Option<Slice>,
}

/// Bytes that were reserved.
#[derive(Clone, Copy, Debug)]
struct Slice {
    reserved_at: MonotonicTime,
    due: MonotonicTime,
    bytes: u64,
}

impl Slice {
    /// Returns the additional bytes of a slice that was collected after it was due, in proportion to the delay. A core
    /// checks messages once per tick, so without them a message would lose up to a tick of its rate with each slice.
    fn late_bytes(&self, now: MonotonicTime) -> u64 {
        let (planned_ns, waited_ns) = (self.due.since(self.reserved_at), now.since(self.reserved_at));
        if planned_ns == 0 || waited_ns <= planned_ns {
            return 0;
        }
        let late = u128::from(self.bytes) * u128::from(waited_ns - planned_ns) / u128::from(planned_ns);
        u64::try_from(late).unwrap_or(u64::MAX).min(self.bytes * LATE_SLICES_MAX)
    }
}

impl BandwidthGate {
    /// Creates a gate with a rate of its own, of which the first bytes are free, and a shared one; `None`: there is no rate.
    pub fn new(own: Option<u64>, free_bytes: u64, shared: Option<Arc<SharedBandwidth>>) -> Option<Self> {
        (own.is_some() || shared.is_some()).then(|| Self {
            own: own.map(|bytes_per_s| (bytes_per_s, 0)),
            shared,
            free_bytes,
            granted_bytes: 0,
            noted_bytes: 0,
            reserved: None,
        })
    }

    fn slice_bytes(&self) -> u64 {
        let slice = |rate: Option<u64>, per_s: u64, max: u64| {
            rate.map_or(max, |rate| (rate / per_s).clamp(SLICE_BYTES_MIN, max))
        };
        let own = slice(self.own.map(|(rate, _)| rate), OWN_SLICES_PER_S, OWN_SLICE_BYTES_MAX);
        match &self.shared {
            None => own,
            Some(shared) => {
                own.min(slice(Some(shared.bytes_per_s), SHARED_SLICES_PER_S, SHARED_SLICE_BYTES_MAX))
            }
        }
    }

    /// Returns whether other messages have the same limit, and get their turn after each slice.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Returns the number of bytes that may be read now, at least 1.
    ///
    /// # Errors
    /// None may; the error is the time at which some may.
    pub fn open(&mut self, now: MonotonicTime) -> Result<usize, MonotonicTime> {
        if self.granted_bytes <= 0 {
            let slice = self.reserved.take().unwrap_or_else(|| self.reserve(now));
            if slice.due > now {
                self.reserved = Some(slice);
                return Err(slice.due);
            }
            let late_bytes = slice.late_bytes(now);
            if late_bytes > 0 {
                self.reserve_bytes(late_bytes, now.as_ns());
            }
            self.granted_bytes = self.granted_bytes.saturating_add_unsigned(slice.bytes + late_bytes);
        }
        // Positive, and at most some slices.
        Ok(self.granted_bytes.max(1) as usize)
    }

    /// Reserves a slice behind the bytes that were moved without one.
    fn reserve(&mut self, now: MonotonicTime) -> Slice {
        let debt = self.granted_bytes.min(0).unsigned_abs();
        if debt > 0 {
            self.reserve_bytes(debt, now.as_ns());
        }
        let bytes = self.slice_bytes();
        let due_ns = self.reserve_bytes(bytes, now.as_ns());
        Slice { reserved_at: now, due: MonotonicTime::from_ns(due_ns), bytes: bytes + debt }
    }

    fn reserve_bytes(&mut self, bytes: u64, now_ns: u64) -> u64 {
        let from_free = self.free_bytes.min(bytes);
        self.free_bytes -= from_free;
        let mut due_ns = 0;
        if let Some((rate, next_ns)) = &mut self.own
            && bytes > from_free
        {
            (due_ns, *next_ns) = reserve(*next_ns, time_ns(bytes - from_free, *rate), now_ns);
        }
        if let Some(shared) = &self.shared {
            due_ns = due_ns.max(shared.reserve(bytes, now_ns));
        }
        due_ns
    }

    /// Notes the number of bytes of the message that were moved up to now.
    pub fn note(&mut self, bytes: u64) {
        let moved = bytes.saturating_sub(self.noted_bytes);
        self.noted_bytes = bytes;
        self.granted_bytes = self.granted_bytes.saturating_sub_unsigned(moved);
    }
}

impl Drop for BandwidthGate {
    fn drop(&mut self) {
        let Some(shared) = &self.shared else { return };
        let reserved_bytes = self.reserved.map_or(0, |slice| slice.bytes);
        match self.granted_bytes.saturating_add_unsigned(reserved_bytes) {
            0 => {}
            unused @ 1.. => shared.refund(unused.unsigned_abs()),
            debt => shared.charge(debt.unsigned_abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    const SECOND_NS: u64 = 1_000_000_000;

    fn gate(download: Option<u64>, free_bytes: u64) -> BandwidthGate {
        BandwidthGate::new(download, free_bytes, None).unwrap()
    }

    fn sharing(shared: &Arc<SharedBandwidth>) -> BandwidthGate {
        BandwidthGate::new(None, 0, Some(Arc::clone(shared))).unwrap()
    }

    /// Moves as much as the gates allow until a time; returns the bytes of each.
    fn run(gates: &mut [BandwidthGate], from_ns: u64, to_ns: u64, tick_ns: u64) -> Vec<u64> {
        let mut moved: Vec<u64> = gates.iter().map(|gate| gate.noted_bytes).collect();
        let mut now_ns = from_ns;
        while now_ns <= to_ns {
            let mut has_moved = true;
            while std::mem::take(&mut has_moved) {
                for (gate, moved) in gates.iter_mut().zip(&mut moved) {
                    if let Ok(bytes) = gate.open(at(now_ns)) {
                        has_moved = true;
                        *moved += bytes as u64;
                        gate.note(*moved);
                    }
                }
            }
            now_ns += tick_ns;
        }
        moved
    }

    #[test]
    fn a_message_has_its_rate_whatever_the_ticks() {
        for (rate, tick_ms) in [(1024, 100), (100_000, 100), (100_000, 1), (50 << 20, 100), (1 << 30, 100)] {
            let mut gates = [gate(Some(rate), 0)];
            let start = 5 * SECOND_NS;
            let moved = run(&mut gates, start, start + 10 * SECOND_NS, tick_ms * 1_000_000)[0];
            // Half a second of burst, and a slice that is due at the end.
            let max = rate * 21 / 2 + OWN_SLICE_BYTES_MAX.min(rate / 10 + 1024);
            assert!((rate * 99 / 10..=max).contains(&moved), "{rate}: {moved} of {max}");
        }
    }

    #[test]
    fn the_first_bytes_are_free() {
        let mut gates = [gate(Some(10_000), 1 << 20)];
        let start = 5 * SECOND_NS;
        assert!(run(&mut gates, start, start, 1)[0] >= 1 << 20);
        let after = run(&mut gates, start + 1, start + 10 * SECOND_NS, 100_000_000)[0] - (1 << 20);
        assert!((90_000..=107_000).contains(&after), "{after}");
    }

    #[test]
    fn a_pause_earns_no_more_than_the_burst() {
        let mut gates = [gate(Some(100_000), 0)];
        let first = run(&mut gates, SECOND_NS, SECOND_NS, 1)[0];
        let later = run(&mut gates, 100 * SECOND_NS, 100 * SECOND_NS, 1)[0] - first;
        // The burst, and the slice that was reserved before.
        assert!((50_000..=61_000).contains(&later), "{later}");
    }

    #[test]
    fn messages_share_a_limit_about_evenly_and_return_what_they_do_not_use() {
        let shared = Arc::new(SharedBandwidth::new(1 << 20));
        let mut gates: Vec<_> = (0..50).map(|_| sharing(&shared)).collect();
        let moved = run(&mut gates, SECOND_NS, 21 * SECOND_NS, 100_000_000);
        let sum: u64 = moved.iter().sum();
        let expected = 20 << 20;
        assert!(sum.abs_diff(expected) < 1 << 20, "{sum} of {expected}");
        assert!(moved.iter().all(|bytes| bytes.abs_diff(sum / 50) <= sum / 50 / 4), "{moved:?}");
        // Short messages reserve more than they have.
        let mut count: u64 = 0;
        let mut now_ns = 100 * SECOND_NS;
        while now_ns < 120 * SECOND_NS {
            let mut gate = sharing(&shared);
            match gate.open(at(now_ns)) {
                Ok(_) => {
                    gate.note(1000);
                    count += 1;
                }
                Err(_) => now_ns += 10_000_000,
            }
        }
        assert!((count * 1000).abs_diff(expected) < 2 << 20, "{count}");
    }

    #[test]
    fn more_than_was_granted_is_a_debt() {
        let shared = Arc::new(SharedBandwidth::new(100_000));
        let mut gate = sharing(&shared);
        gate.open(at(SECOND_NS)).unwrap();
        gate.note(300_000);
        assert!(gate.open(at(3 * SECOND_NS)).is_err());
        assert!(gate.open(at(6 * SECOND_NS)).is_ok());
        let mut gate = sharing(&shared);
        gate.open(at(100 * SECOND_NS)).unwrap();
        gate.note(1_000_000);
        drop(gate);
        let mut next = sharing(&shared);
        assert!(next.open(at(105 * SECOND_NS)).is_err());
    }
}
