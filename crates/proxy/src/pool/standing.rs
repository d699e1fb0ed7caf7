//! Whether a server gets requests, and what share of the load: what its operator wants, what checks
//! of its health found, and how long it has been back. One for each server, shared by all cores,
//! kept across reloads.
//!
//! Those who find something out write it here; [`Standing::settle`] makes one number of it, the
//! [share](Standing::share), which is all that a request reads.
//!
//! ```text
//! operator: ready, drain, maintenance; weight --.
//! active checks: unchecked, up, down -----------+--> settle --> share (0: no new requests)
//! passive: ejected until ----------------------- |
//! back since, slow start ----------------------'
//! ```

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// What a share of a server of weight 1 is when nothing lessens it: so finely a slow start counts.
pub(crate) const SHARE_OF_ONE: u32 = 100;
/// The greatest weight; with it a share still fits.
pub(crate) const WEIGHT_MAX: u32 = 65_535;
/// No weight was set while running: the plan's holds.
const PLANNED: u32 = u32::MAX;

/// What the operator wants of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It gets requests.
    Ready,
    /// It gets no new ones but from clients that stick to it.
    Drain,
    /// It gets none, and is not checked.
    Maintenance,
}

/// What active checks found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It is not checked, or was not yet: it counts as up.
    Unchecked,
    /// It answers as it should.
    Up,
    /// It does not.
    Down,
}

/// Where a server stands.
#[derive(Debug)]
pub(crate) struct Standing {
    share: AtomicU32,
    wanted: AtomicU8,
    checked: AtomicU8,
    /// In `CLOCK_MONOTONIC`; 0: not ejected.
    ejected_until_ns: AtomicU64,
    /// When it came back last; 0: it was there from the start.
    back_since_ns: AtomicU64,
    /// Set while running; [`PLANNED`]: none.
    weight: AtomicU32,
}

impl Standing {
    /// Of a server that nothing is known of yet.
    pub(crate) fn new(planned_weight: u32) -> Self {
        let standing = Self {
            share: 0.into(),
            wanted: (Wanted::Ready as u8).into(),
            checked: (Checked::Unchecked as u8).into(),
            ejected_until_ns: 0.into(),
            back_since_ns: 0.into(),
            weight: PLANNED.into(),
        };
        standing.settle(planned_weight, 0, 0);
        standing
    }

    /// Its share of the load against the others'; 0: no new requests.
    #[inline]
    pub(crate) fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// Whether requests of clients that stick to it still go there.
    pub(crate) fn is_up(&self, now_ns: u64) -> bool {
        self.wanted() != Wanted::Maintenance
            && self.checked() != Checked::Down
            && !self.is_ejected(now_ns)
    }

    pub(crate) fn wanted(&self) -> Wanted {
        let all = [Wanted::Ready, Wanted::Drain, Wanted::Maintenance];
        all[usize::from(self.wanted.load(Ordering::Relaxed))]
    }

    pub(crate) fn checked(&self) -> Checked {
        let all = [Checked::Unchecked, Checked::Up, Checked::Down];
        all[usize::from(self.checked.load(Ordering::Relaxed))]
    }

    pub(crate) fn is_ejected(&self, now_ns: u64) -> bool {
        self.ejected_until_ns.load(Ordering::Relaxed) > now_ns
    }

    /// The weight that was set while running.
    pub(crate) fn weight_set(&self) -> Option<u32> {
        Some(self.weight.load(Ordering::Relaxed)).filter(|&weight| weight != PLANNED)
    }

    /// What the operator wants from now on. Takes effect with the next [`Standing::settle`].
    pub(crate) fn want(&self, wanted: Wanted, now_ns: u64) {
        let before = self.wanted();
        self.wanted.store(wanted as u8, Ordering::Relaxed);
        if before == Wanted::Maintenance && wanted == Wanted::Ready {
            self.come_back(now_ns);
        }
    }

    /// What checks found. Takes effect with the next [`Standing::settle`].
    pub(crate) fn found(&self, checked: Checked, now_ns: u64) {
        let before = self.checked();
        self.checked.store(checked as u8, Ordering::Relaxed);
        if before == Checked::Down && checked == Checked::Up {
            self.come_back(now_ns);
        }
    }

    /// No requests until then. It comes back by itself, slowly where that is planned.
    pub(crate) fn eject_until(&self, until_ns: u64) {
        self.ejected_until_ns.store(until_ns, Ordering::Relaxed);
        self.come_back(until_ns);
    }

    /// A weight for as long as the process runs; `None`: the plan's again.
    pub(crate) fn set_weight(&self, weight: Option<u32>) {
        self.weight.store(weight.unwrap_or(PLANNED), Ordering::Relaxed);
    }

    fn come_back(&self, now_ns: u64) {
        self.back_since_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Works out the share anew: after each change, and once a tick for what time changes.
    pub(crate) fn settle(&self, planned_weight: u32, slow_start_ns: u64, now_ns: u64) {
        let full = self.full_share(planned_weight);
        let share = match self.wanted() {
            Wanted::Ready if self.is_up(now_ns) => self.slowed(full, slow_start_ns, now_ns),
            _ => 0,
        };
        self.share.store(share, Ordering::Relaxed);
    }

    /// What its share is when nothing lessens it.
    pub(crate) fn full_share(&self, planned_weight: u32) -> u32 {
        self.weight_set().unwrap_or(planned_weight).min(WEIGHT_MAX) * SHARE_OF_ONE
    }

    /// From a tenth at its return up to all of it, in a straight line.
    fn slowed(&self, full: u32, slow_start_ns: u64, now_ns: u64) -> u32 {
        let since_ns = self.back_since_ns.load(Ordering::Relaxed);
        let for_ns = now_ns.saturating_sub(since_ns);
        if since_ns == 0 || for_ns >= slow_start_ns {
            return full;
        }
        let least = u64::from(full).div_ceil(10);
        // Not above `full`, which is a u32.
        (u128::from(full) * u128::from(for_ns) / u128::from(slow_start_ns)).max(least.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn nothing_known_is_all_of_its_weight() {
        assert_eq!(Standing::new(3).share(), 300);
        assert_eq!(Standing::new(0).share(), 0);
        assert_eq!(Standing::new(u32::MAX).share(), WEIGHT_MAX * SHARE_OF_ONE);
    }

    #[test]
    fn whoever_says_no_is_enough() {
        let standing = Standing::new(1);
        let settle = |now_ns| {
            standing.settle(1, 0, now_ns);
            (standing.share(), standing.is_up(now_ns))
        };
        standing.want(Wanted::Drain, 1);
        assert_eq!(settle(1), (0, true));
        standing.want(Wanted::Maintenance, 1);
        assert_eq!(settle(1), (0, false));
        standing.want(Wanted::Ready, 1);
        standing.found(Checked::Down, 1);
        assert_eq!(settle(1), (0, false));
        standing.found(Checked::Up, 1);
        standing.eject_until(5);
        assert_eq!(settle(4), (0, false));
        assert_eq!(settle(5), (100, true));
    }

    #[test]
    fn a_weight_set_while_running_holds_until_it_is_taken_back() {
        let standing = Standing::new(1);
        standing.set_weight(Some(7));
        standing.settle(1, 0, 0);
        assert_eq!(standing.share(), 700);
        standing.set_weight(None);
        standing.settle(2, 0, 0);
        assert_eq!(standing.share(), 200);
    }

    #[test]
    fn a_slow_start_grows_in_a_line_from_a_tenth() {
        let standing = Standing::new(2);
        standing.found(Checked::Down, SECOND_NS);
        standing.found(Checked::Up, 10 * SECOND_NS);
        let share_after = |seconds: u64| {
            standing.settle(2, 10 * SECOND_NS, (10 + seconds) * SECOND_NS);
            standing.share()
        };
        assert_eq!([0, 1, 5, 9, 10, 11].map(share_after), [20, 20, 100, 180, 200, 200]);
    }
}
