//! Eligibility of a server for requests, and its effective weight. It depends on the operator, on
//! health checks, and on the time since the server recovered. One for each server, shared by all
//! cores, kept across reloads.
//!
//! All sources write their state here. [`Eligibility::recompute`] computes one number from it, the
//! [effective weight](Eligibility::effective_weight), which is the only value that a request reads.
//!
//! ```text
//! operator, of the server: ready, drain, maintenance; weight --.
//! operator, of its pool: ready, drain, maintenance ----|
//! active checks: unchecked, up, down -----------+--> recompute --> effective weight
//! agent: ready, drain, maintenance; percent ----|                  (0: no new requests)
//! passive: ejected until, then one probe -------|
//! recovered since, slow start ------------------'
//! ```

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use rt::clock::MonotonicTime;

/// Effective weight of a server with weight 1 and no reduction; also the resolution of a slow
/// start.
pub(crate) const WEIGHT_SCALE: u32 = 100;
/// Maximum weight. The effective weight of a larger one would overflow.
pub(crate) const WEIGHT_MAX: u32 = 65_535;
/// Timeout of the half-open probe after an ejection; then another request becomes the probe.
const PROBE_TIMEOUT_NS: u64 = 10_000_000_000;
/// No weight was set at run time; the configured one applies.
const WEIGHT_NOT_SET: u32 = u32::MAX;

/// Administrative state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminState {
    /// It gets requests.
    Ready,
    /// It gets only requests of clients that stick to it.
    Drain,
    /// It gets no requests, and is not checked.
    Maintenance,
}

/// Result of active checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckStatus {
    /// The server is not checked, or not yet; it counts as up.
    #[default]
    Unchecked,
    Up,
    Down,
}

/// Recovery state of a server after an ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeState {
    /// It was not ejected, or has recovered.
    None,
    Ejected,
    /// The ejection is over; the next request is the probe.
    Ready,
    /// The probe request is in flight, and the server gets no other request.
    InFlight,
}

impl AdminState {
    const ALL: [Self; 3] = [Self::Ready, Self::Drain, Self::Maintenance];

    pub(super) fn from_index(index: u8) -> Self {
        Self::ALL[usize::from(index)]
    }

    /// Returns the word of a command for a state.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maintenance => "maint",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

impl LastCheck {
    /// Returns the result, with the reason if the check failed.
    pub fn describe(&self) -> String {
        match &*self.reason {
            "" => self.result.to_owned(),
            reason => format!("{}: {reason}", self.result),
        }
    }
}

#[derive(Debug)]
pub struct Eligibility {
    effective_weight: AtomicU32,
    probe_state: AtomicU8,
    /// Time when `update_probe` first saw the probe in flight; 0: not yet.
    probe_since_ns: AtomicU64,
    /// Administrative state and percentage of the weight that the agent requests.
    agent_state: AtomicU8,
    agent_percent: AtomicU32,
    operator_state: AtomicU8,
    /// State that the operator gave the pool.
    pool_state: AtomicU8,
    check_status: AtomicU8,
    /// In `CLOCK_MONOTONIC`; 0: not ejected.
    ejected_until_ns: AtomicU64,
    /// Time of the last recovery; 0: up from the start.
    recovered_ns: AtomicU64,
    /// Weight set at run time; [`WEIGHT_NOT_SET`]: none.
    operator_weight: AtomicU32,
    /// Written by the checking thread, read only for display.
    last_check: LastCheckCell,
}

#[allow(
    clippy::disallowed_types,
    reason = "never locked by a core: the health thread writes it, the control thread reads it"
)]
type LastCheckCell = std::sync::Mutex<Option<Arc<LastCheck>>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCheck {
    pub at: MonotonicTime,
    /// Stable name of the result, in `snake_case`.
    pub result: &'static str,
    /// Reason for a failure; empty if the check passed.
    pub reason: Box<str>,
}

impl Eligibility {
    /// Creates the state of a server without checks and requests so far.
    pub fn new(configured_weight: u32) -> Self {
        let eligibility = Self {
            effective_weight: 0.into(),
            probe_state: (ProbeState::None as u8).into(),
            probe_since_ns: 0.into(),
            agent_state: (AdminState::Ready as u8).into(),
            agent_percent: 100.into(),
            operator_state: (AdminState::Ready as u8).into(),
            pool_state: (AdminState::Ready as u8).into(),
            check_status: (CheckStatus::Unchecked as u8).into(),
            ejected_until_ns: 0.into(),
            recovered_ns: 0.into(),
            operator_weight: WEIGHT_NOT_SET.into(),
            last_check: LastCheckCell::default(),
        };
        eligibility.recompute(configured_weight, 0, MonotonicTime::ZERO);
        eligibility
    }

    /// Returns the server's weight relative to the others; 0: no new requests.
    #[inline]
    pub fn effective_weight(&self) -> u32 {
        self.effective_weight.load(Ordering::Relaxed)
    }

    /// Returns whether the server gets requests of clients that stick to it.
    pub fn is_up(&self, now: MonotonicTime) -> bool {
        self.admin_state() != AdminState::Maintenance
            && self.check_status() != CheckStatus::Down
            && !self.is_ejected(now)
    }

    /// Returns the same for a request now: false while another request is the probe after an
    /// ejection.
    pub(crate) fn accepts_request(&self, now: MonotonicTime) -> bool {
        self.is_up(now) && matches!(self.probe_state(), ProbeState::None | ProbeState::Ready)
    }

    pub fn operator_state(&self) -> AdminState {
        AdminState::from_index(self.operator_state.load(Ordering::Relaxed))
    }

    pub(crate) fn agent_state(&self) -> AdminState {
        AdminState::from_index(self.agent_state.load(Ordering::Relaxed))
    }

    pub(crate) fn pool_state(&self) -> AdminState {
        AdminState::from_index(self.pool_state.load(Ordering::Relaxed))
    }

    /// Returns the most restrictive state: of the operator's for the server and for its pool, and the agent's.
    pub fn admin_state(&self) -> AdminState {
        self.operator_state().max(self.pool_state()).max(self.agent_state())
    }

    pub fn check_status(&self) -> CheckStatus {
        let all = [CheckStatus::Unchecked, CheckStatus::Up, CheckStatus::Down];
        all[usize::from(self.check_status.load(Ordering::Relaxed))]
    }

    pub fn is_ejected(&self, now: MonotonicTime) -> bool {
        self.ejected_until_ns.load(Ordering::Relaxed) > now.as_ns()
    }

    /// Returns the weight that was set at run time.
    pub fn operator_weight(&self) -> Option<u32> {
        Some(self.operator_weight.load(Ordering::Relaxed)).filter(|&weight| weight != WEIGHT_NOT_SET)
    }

    /// Returns the effective weight in hundredths: that of the operator or of the plan, times the
    /// percentage of the agent.
    pub fn weight_hundredths(&self, configured_weight: u32) -> u32 {
        self.full_weight(configured_weight)
    }

    pub fn last_check(&self) -> Option<Arc<LastCheck>> {
        // A value is stored in one step, so a poisoned lock holds no partial value.
        self.last_check.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_last_check(&self, check: Option<LastCheck>) {
        let mut last = self.last_check.lock().unwrap_or_else(PoisonError::into_inner);
        *last = check.map(Arc::new);
    }

    /// Sets the operator's state. Takes effect with the next [`Eligibility::recompute`].
    pub fn set_operator_state(&self, operator_state: AdminState, now: MonotonicTime) {
        let previous = self.operator_state();
        self.operator_state.store(operator_state as u8, Ordering::Relaxed);
        if previous == AdminState::Maintenance && operator_state == AdminState::Ready {
            self.mark_recovered(now);
        }
    }

    /// Sets the state of the pool. Takes effect with the next [`Eligibility::recompute`].
    pub(crate) fn set_pool_state(&self, pool_state: AdminState) {
        self.pool_state.store(pool_state as u8, Ordering::Relaxed);
    }

    /// Sets the result of checks. Takes effect with the next [`Eligibility::recompute`].
    pub fn set_check_status(&self, check_status: CheckStatus, now: MonotonicTime) {
        let previous = self.check_status();
        self.check_status.store(check_status as u8, Ordering::Relaxed);
        if previous == CheckStatus::Down && check_status == CheckStatus::Up {
            self.mark_recovered(now);
        }
    }

    /// Sets the state and the percentage of the weight that the agent requests.
    pub fn set_agent_state(&self, agent_state: AdminState, percent: u32, now: MonotonicTime) {
        let previous = self.agent_state();
        self.agent_state.store(agent_state as u8, Ordering::Relaxed);
        self.agent_percent.store(percent.min(100), Ordering::Relaxed);
        if previous == AdminState::Maintenance && agent_state != AdminState::Maintenance {
            self.mark_recovered(now);
        }
    }

    /// Ejects the server until `until`. After that one request is the probe. When it succeeds,
    /// the server has recovered, with a slow start if one is configured.
    pub fn eject_until(&self, until: MonotonicTime) {
        self.ejected_until_ns.store(until.as_ns(), Ordering::Relaxed);
        self.probe_since_ns.store(0, Ordering::Relaxed);
        self.probe_state.store(ProbeState::Ejected as u8, Ordering::Relaxed);
        self.effective_weight.store(0, Ordering::Relaxed);
    }

    pub(crate) fn cancel_ejection(&self, now: MonotonicTime) {
        self.ejected_until_ns.store(0, Ordering::Relaxed);
        self.probe_state.store(ProbeState::None as u8, Ordering::Relaxed);
        self.mark_recovered(now);
    }

    fn probe_state(&self) -> ProbeState {
        let all = [ProbeState::None, ProbeState::Ejected, ProbeState::Ready, ProbeState::InFlight];
        all[usize::from(self.probe_state.load(Ordering::Relaxed))]
    }

    fn transition_probe(&self, from: ProbeState, to: ProbeState) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.probe_state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    pub fn is_recovering(&self) -> bool {
        self.probe_state() != ProbeState::None
    }

    pub(crate) fn is_probing(&self) -> bool {
        self.probe_state() == ProbeState::InFlight
    }

    /// Returns whether a request may go to the server. The first one after an ejection becomes the
    /// probe.
    #[inline]
    pub(crate) fn try_admit(&self) -> bool {
        match self.probe_state() {
            ProbeState::None => true,
            ProbeState::Ready if self.transition_probe(ProbeState::Ready, ProbeState::InFlight) => {
                self.probe_since_ns.store(0, Ordering::Relaxed);
                self.effective_weight.store(0, Ordering::SeqCst);
                true
            }
            _ => false,
        }
    }

    /// Ends the recovery after a successful request.
    #[inline]
    pub(crate) fn complete_probe(&self, now: MonotonicTime) {
        let complete_from = |from| self.transition_probe(from, ProbeState::None);
        if self.is_recovering() && (complete_from(ProbeState::InFlight) || complete_from(ProbeState::Ready)) {
            self.mark_recovered(now);
        }
    }

    /// Ends a probe without a result, so that another request becomes the probe.
    #[inline]
    pub(crate) fn release_probe(&self) {
        if self.is_probing() {
            self.transition_probe(ProbeState::InFlight, ProbeState::Ready);
        }
    }

    /// Moves the probe state on when the ejection or the probe timeout is over.
    fn update_probe(&self, now: MonotonicTime) {
        match self.probe_state() {
            ProbeState::Ejected if !self.is_ejected(now) => {
                self.transition_probe(ProbeState::Ejected, ProbeState::Ready);
            }
            ProbeState::InFlight => match self.probe_since_ns.load(Ordering::Relaxed) {
                0 => self.probe_since_ns.store(now.as_ns(), Ordering::Relaxed),
                since_ns if now.since(MonotonicTime::from_ns(since_ns)) > PROBE_TIMEOUT_NS => {
                    self.release_probe()
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Sets a weight until the process ends; `None`: the configured one again.
    pub fn set_operator_weight(&self, weight: Option<u32>) {
        self.operator_weight.store(weight.unwrap_or(WEIGHT_NOT_SET), Ordering::Relaxed);
    }

    fn mark_recovered(&self, now: MonotonicTime) {
        self.recovered_ns.store(now.as_ns(), Ordering::Relaxed);
    }

    /// Recomputes the effective weight: after each change, and once a tick because it depends on
    /// the time.
    pub fn recompute(&self, configured_weight: u32, slow_start_ns: u64, now: MonotonicTime) {
        let full_weight = self.full_weight(configured_weight);
        self.update_probe(now);
        let is_up = self.admin_state() == AdminState::Ready && self.is_up(now);
        let effective_weight = match self.probe_state() {
            ProbeState::None if is_up => self.slow_start_weight(full_weight, slow_start_ns, now),
            ProbeState::Ready if is_up => full_weight,
            _ => 0,
        };
        self.effective_weight.store(effective_weight, Ordering::SeqCst);
        // Another core may have taken the probe since the check above.
        if self.is_probing() {
            self.effective_weight.store(0, Ordering::SeqCst);
        }
    }

    /// Returns the weight without a slow start.
    pub(crate) fn full_weight(&self, configured_weight: u32) -> u32 {
        let weight = self.operator_weight().unwrap_or(configured_weight).min(WEIGHT_MAX);
        let percent = self.agent_percent.load(Ordering::Relaxed);
        // Rounded up, so that a small weight becomes 0 only if the weight or the percentage is 0.
        (u64::from(weight * WEIGHT_SCALE) * u64::from(percent)).div_ceil(100) as u32
    }

    /// Returns the weight during a slow start: a linear increase from a tenth to the full weight.
    fn slow_start_weight(&self, full_weight: u32, slow_start_ns: u64, now: MonotonicTime) -> u32 {
        let recovered = MonotonicTime::from_ns(self.recovered_ns.load(Ordering::Relaxed));
        let elapsed_ns = now.since(recovered);
        if recovered == MonotonicTime::ZERO || elapsed_ns >= slow_start_ns {
            return full_weight;
        }
        let min_weight = u64::from(full_weight).div_ceil(10);
        // At most `full_weight`, which is a u32.
        (u128::from(full_weight) * u128::from(elapsed_ns) / u128::from(slow_start_ns)).max(min_weight.into())
            as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_server_without_results_has_its_full_weight() {
        assert_eq!(Eligibility::new(3).effective_weight(), 300);
        assert_eq!(Eligibility::new(0).effective_weight(), 0);
        assert_eq!(Eligibility::new(u32::MAX).effective_weight(), WEIGHT_MAX * WEIGHT_SCALE);
    }

    #[test]
    fn one_reason_against_a_server_is_enough() {
        let eligibility = Eligibility::new(1);
        let recompute = |now| {
            eligibility.recompute(1, 0, now);
            (eligibility.effective_weight(), eligibility.is_up(now))
        };
        eligibility.set_operator_state(AdminState::Drain, at(1));
        assert_eq!(recompute(at(1)), (0, true));
        eligibility.set_operator_state(AdminState::Maintenance, at(1));
        assert_eq!(recompute(at(1)), (0, false));
        eligibility.set_operator_state(AdminState::Ready, at(1));
        eligibility.set_check_status(CheckStatus::Down, at(1));
        assert_eq!(recompute(at(1)), (0, false));
        eligibility.set_check_status(CheckStatus::Up, at(1));
        eligibility.eject_until(at(5));
        assert_eq!(recompute(at(4)), (0, false));
        assert_eq!(recompute(at(5)), (100, true));
    }

    #[test]
    fn the_stricter_state_of_operator_and_agent_applies() {
        let eligibility = Eligibility::new(2);
        let recompute = || {
            eligibility.recompute(2, 0, at(1));
            eligibility.effective_weight()
        };
        eligibility.set_agent_state(AdminState::Ready, 25, at(1));
        assert_eq!(recompute(), 50);
        eligibility.set_agent_state(AdminState::Drain, 25, at(1));
        assert_eq!((recompute(), eligibility.is_up(at(1))), (0, true));
        eligibility.set_operator_state(AdminState::Maintenance, at(1));
        eligibility.set_agent_state(AdminState::Ready, 100, at(1));
        assert_eq!((recompute(), eligibility.is_up(at(1))), (0, false));
        eligibility.set_operator_state(AdminState::Ready, at(1));
        assert_eq!(recompute(), 200);
        eligibility.set_agent_state(AdminState::Ready, 0, at(1));
        assert_eq!(recompute(), 0);
    }

    #[test]
    fn one_request_probes_a_server_that_was_ejected() {
        let eligibility = Eligibility::new(1);
        let recompute = |now| {
            eligibility.recompute(1, 0, now);
            eligibility.effective_weight()
        };
        assert!(eligibility.try_admit());
        eligibility.eject_until(at(SECOND_NS));
        assert!(!eligibility.try_admit() && eligibility.effective_weight() == 0);
        eligibility.complete_probe(at(1));
        assert_eq!(recompute(at(SECOND_NS - 1)), 0);
        // The ejection is over.
        assert_eq!(recompute(at(SECOND_NS)), 100);
        assert!(eligibility.try_admit() && !eligibility.try_admit());
        assert_eq!((eligibility.effective_weight(), recompute(at(SECOND_NS + 1))), (0, 0));
        // The probe had no result, so another request becomes the probe.
        eligibility.release_probe();
        assert_eq!(recompute(at(SECOND_NS + 2)), 100);
        assert!(eligibility.try_admit());
        assert_eq!(recompute(at(SECOND_NS + 3)), 0);
        // The probe request never ended.
        assert_eq!(recompute(at(SECOND_NS + 3 + PROBE_TIMEOUT_NS)), 0);
        assert_eq!(recompute(at(SECOND_NS + 4 + PROBE_TIMEOUT_NS)), 100);
        assert!(eligibility.try_admit());
        eligibility.complete_probe(at(SECOND_NS));
        assert_eq!(recompute(at(SECOND_NS + 5)), 100);
        assert!(eligibility.try_admit() && eligibility.try_admit());
        eligibility.eject_until(at(9 * SECOND_NS));
        eligibility.cancel_ejection(at(5));
        assert_eq!(recompute(at(5)), 100);
    }

    #[test]
    fn a_weight_set_while_running_holds_until_it_is_taken_back() {
        let eligibility = Eligibility::new(1);
        eligibility.set_operator_weight(Some(7));
        eligibility.recompute(1, 0, at(0));
        assert_eq!(eligibility.effective_weight(), 700);
        eligibility.set_operator_weight(None);
        eligibility.recompute(2, 0, at(0));
        assert_eq!(eligibility.effective_weight(), 200);
    }

    #[test]
    fn a_slow_start_grows_in_a_line_from_a_tenth() {
        let eligibility = Eligibility::new(2);
        eligibility.set_check_status(CheckStatus::Down, at(SECOND_NS));
        eligibility.set_check_status(CheckStatus::Up, at(10 * SECOND_NS));
        let weight_after = |seconds: u64| {
            eligibility.recompute(2, 10 * SECOND_NS, at((10 + seconds) * SECOND_NS));
            eligibility.effective_weight()
        };
        assert_eq!([0, 1, 5, 9, 10, 11].map(weight_after), [20, 20, 100, 180, 200, 200]);
    }
}
