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
//! agent: ready, drain, maintenance; percent ----|
//! passive: ejected until, then one trial ------- |
//! back since, slow start ----------------------'
//! ```

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// What a share of a server of weight 1 is when nothing lessens it: so finely a slow start counts.
pub(crate) const SHARE_OF_ONE: u32 = 100;
/// The greatest weight; with it a share still fits.
pub(crate) const WEIGHT_MAX: u32 = 65_535;
/// For how long one request tries a server that was ejected; then another one does.
const TRIAL_NS: u64 = 10_000_000_000;
/// No weight was set while running: the plan's holds.
const PLANNED: u32 = u32::MAX;

/// What the operator wants of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// How far a server is on its way back from an ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// It was not ejected, or is back.
    None,
    /// It is ejected.
    Due,
    /// Its time is over: the next request tries it.
    Free,
    /// A request tries it, and no other one goes there.
    Taken,
}

const WANTED: [Wanted; 3] = [Wanted::Ready, Wanted::Drain, Wanted::Maintenance];

impl LastCheck {
    /// Its result, with the reason where it did not pass.
    pub(crate) fn shown(&self) -> String {
        match &*self.reason {
            "" => self.result.to_owned(),
            reason => format!("{}: {reason}", self.result),
        }
    }
}

/// Where a server stands.
#[derive(Debug)]
pub(crate) struct Standing {
    share: AtomicU32,
    trial: AtomicU8,
    /// When somebody saw first that it was taken; 0: nobody yet.
    trial_since_ns: AtomicU64,
    /// What its agent wants, and of which share in percent.
    advised: AtomicU8,
    percent: AtomicU32,
    wanted: AtomicU8,
    checked: AtomicU8,
    /// In `CLOCK_MONOTONIC`; 0: not ejected.
    ejected_until_ns: AtomicU64,
    /// When it came back last; 0: it was there from the start.
    back_since_ns: AtomicU64,
    /// Set while running; [`PLANNED`]: none.
    weight: AtomicU32,
    /// Written by the thread that checks, read only to be shown.
    last_check: LastCheckCell,
}

#[allow(
    clippy::disallowed_types,
    reason = "no core takes it: the thread that checks writes it, and those that show it read it"
)]
type LastCheckCell = std::sync::Mutex<Option<Arc<LastCheck>>>;

/// The last check of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastCheck {
    /// In `CLOCK_MONOTONIC`.
    pub(crate) at_ns: u64,
    /// Its result, in `snake_case`, stable.
    pub(crate) result: &'static str,
    /// Why it did not pass; empty when it did.
    pub(crate) reason: Box<str>,
}

impl Standing {
    /// Of a server that nothing is known of yet.
    pub(crate) fn new(planned_weight: u32) -> Self {
        let standing = Self {
            share: 0.into(),
            trial: (Trial::None as u8).into(),
            trial_since_ns: 0.into(),
            advised: (Wanted::Ready as u8).into(),
            percent: 100.into(),
            wanted: (Wanted::Ready as u8).into(),
            checked: (Checked::Unchecked as u8).into(),
            ejected_until_ns: 0.into(),
            back_since_ns: 0.into(),
            weight: PLANNED.into(),
            last_check: LastCheckCell::default(),
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
        self.in_force() != Wanted::Maintenance
            && self.checked() != Checked::Down
            && !self.is_ejected(now_ns)
    }

    /// The same of a request just now: not while it waits for one that tries it after an ejection.
    pub(crate) fn is_open(&self, now_ns: u64) -> bool {
        self.is_up(now_ns) && matches!(self.trial(), Trial::None | Trial::Free)
    }

    /// What the operator wants of it.
    pub(crate) fn wanted(&self) -> Wanted {
        WANTED[usize::from(self.wanted.load(Ordering::Relaxed))]
    }

    /// What its agent wants of it.
    pub(crate) fn advised(&self) -> Wanted {
        WANTED[usize::from(self.advised.load(Ordering::Relaxed))]
    }

    /// The less of what the operator and the agent want.
    pub(crate) fn in_force(&self) -> Wanted {
        self.wanted().max(self.advised())
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

    /// The weight in force, in hundredths: of the operator or of the plan, times the percentage of
    /// the agent.
    pub(crate) fn weight_hundredths(&self, planned_weight: u32) -> u32 {
        self.full_share(planned_weight)
    }

    /// The last check of the server, if there was one.
    pub(crate) fn last_check(&self) -> Option<Arc<LastCheck>> {
        // A value is put there in one step, so that none is half written.
        self.last_check.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_last_check(&self, check: Option<LastCheck>) {
        let mut last = self.last_check.lock().unwrap_or_else(PoisonError::into_inner);
        *last = check.map(Arc::new);
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

    /// What its agent wants from now on, and of which share in percent.
    pub(crate) fn advise(&self, wanted: Wanted, percent: u32, now_ns: u64) {
        let before = self.advised();
        self.advised.store(wanted as u8, Ordering::Relaxed);
        self.percent.store(percent.min(100), Ordering::Relaxed);
        if before == Wanted::Maintenance && wanted != Wanted::Maintenance {
            self.come_back(now_ns);
        }
    }

    /// No requests until then. After that one request tries it, and it is back, slowly where that
    /// is planned, once that went well.
    pub(crate) fn eject_until(&self, until_ns: u64) {
        self.ejected_until_ns.store(until_ns, Ordering::Relaxed);
        self.trial_since_ns.store(0, Ordering::Relaxed);
        self.trial.store(Trial::Due as u8, Ordering::Relaxed);
        self.share.store(0, Ordering::Relaxed);
    }

    /// Takes back an ejection.
    pub(crate) fn reprieve(&self, now_ns: u64) {
        self.ejected_until_ns.store(0, Ordering::Relaxed);
        self.trial.store(Trial::None as u8, Ordering::Relaxed);
        self.come_back(now_ns);
    }

    fn trial(&self) -> Trial {
        let all = [Trial::None, Trial::Due, Trial::Free, Trial::Taken];
        all[usize::from(self.trial.load(Ordering::Relaxed))]
    }

    fn change_trial(&self, from: Trial, to: Trial) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.trial.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether it is on its way back from an ejection.
    pub(crate) fn has_trial(&self) -> bool {
        self.trial() != Trial::None
    }

    /// Whether a request tries it just now.
    pub(crate) fn is_tried(&self) -> bool {
        self.trial() == Trial::Taken
    }

    /// Whether a request may go there; the one that tries a server after an ejection takes that
    /// for itself.
    #[inline]
    pub(crate) fn try_pass(&self) -> bool {
        match self.trial() {
            Trial::None => true,
            Trial::Free if self.change_trial(Trial::Free, Trial::Taken) => {
                self.trial_since_ns.store(0, Ordering::Relaxed);
                self.share.store(0, Ordering::SeqCst);
                true
            }
            _ => false,
        }
    }

    /// A request went well there.
    #[inline]
    pub(crate) fn pass_trial(&self, now_ns: u64) {
        let passed = |from| self.change_trial(from, Trial::None);
        if self.has_trial() && (passed(Trial::Taken) || passed(Trial::Free)) {
            self.come_back(now_ns);
        }
    }

    /// A request that may have tried it says nothing: another one tries it.
    #[inline]
    pub(crate) fn free_trial(&self) {
        if self.is_tried() {
            self.change_trial(Trial::Taken, Trial::Free);
        }
    }

    /// What time changes of a trial.
    fn settle_trial(&self, now_ns: u64) {
        match self.trial() {
            Trial::Due if !self.is_ejected(now_ns) => {
                self.change_trial(Trial::Due, Trial::Free);
            }
            Trial::Taken => match self.trial_since_ns.load(Ordering::Relaxed) {
                0 => self.trial_since_ns.store(now_ns, Ordering::Relaxed),
                since_ns if now_ns.saturating_sub(since_ns) > TRIAL_NS => self.free_trial(),
                _ => {}
            },
            _ => {}
        }
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
        self.settle_trial(now_ns);
        let is_up = self.in_force() == Wanted::Ready && self.is_up(now_ns);
        let share = match self.trial() {
            Trial::None if is_up => self.slowed(full, slow_start_ns, now_ns),
            Trial::Free if is_up => full,
            _ => 0,
        };
        self.share.store(share, Ordering::SeqCst);
        // Another core may have taken the trial since the look at it.
        if self.is_tried() {
            self.share.store(0, Ordering::SeqCst);
        }
    }

    /// What its share is when nothing lessens it.
    pub(crate) fn full_share(&self, planned_weight: u32) -> u32 {
        let weight = self.weight_set().unwrap_or(planned_weight).min(WEIGHT_MAX);
        let percent = self.percent.load(Ordering::Relaxed);
        // A little is left of a little, unless nothing is wanted.
        (u64::from(weight * SHARE_OF_ONE) * u64::from(percent)).div_ceil(100) as u32
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
    fn the_less_of_what_operator_and_agent_want_holds() {
        let standing = Standing::new(2);
        let settle = || {
            standing.settle(2, 0, 1);
            standing.share()
        };
        standing.advise(Wanted::Ready, 25, 1);
        assert_eq!(settle(), 50);
        standing.advise(Wanted::Drain, 25, 1);
        assert_eq!((settle(), standing.is_up(1)), (0, true));
        standing.want(Wanted::Maintenance, 1);
        standing.advise(Wanted::Ready, 100, 1);
        assert_eq!((settle(), standing.is_up(1)), (0, false));
        standing.want(Wanted::Ready, 1);
        assert_eq!(settle(), 200);
        standing.advise(Wanted::Ready, 0, 1);
        assert_eq!(settle(), 0);
    }

    #[test]
    fn one_request_tries_a_server_that_was_ejected() {
        let standing = Standing::new(1);
        let settle = |now_ns| {
            standing.settle(1, 0, now_ns);
            standing.share()
        };
        assert!(standing.try_pass());
        standing.eject_until(SECOND_NS);
        assert!(!standing.try_pass() && standing.share() == 0);
        standing.pass_trial(1);
        assert_eq!(settle(SECOND_NS - 1), 0);
        // Its time is over.
        assert_eq!(settle(SECOND_NS), 100);
        assert!(standing.try_pass() && !standing.try_pass());
        assert_eq!((standing.share(), settle(SECOND_NS + 1)), (0, 0));
        // That one said nothing, so another one tries it.
        standing.free_trial();
        assert_eq!(settle(SECOND_NS + 2), 100);
        assert!(standing.try_pass());
        assert_eq!(settle(SECOND_NS + 3), 0);
        // That one was never heard of again.
        assert_eq!(settle(SECOND_NS + 3 + TRIAL_NS), 0);
        assert_eq!(settle(SECOND_NS + 4 + TRIAL_NS), 100);
        assert!(standing.try_pass());
        standing.pass_trial(SECOND_NS);
        assert_eq!(settle(SECOND_NS + 5), 100);
        assert!(standing.try_pass() && standing.try_pass());
        standing.eject_until(9 * SECOND_NS);
        standing.reprieve(5);
        assert_eq!(settle(5), 100);
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
