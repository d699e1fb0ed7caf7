//! Change of the rate of a running load: a factor that all cores follow, and the history of changes for
//! the record.

#![expect(
    clippy::disallowed_types,
    reason = "cores read the factor only; the threads that change it lock the history"
)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Factor of the rate of an open loop.
#[derive(Debug)]
pub struct RateControl {
    factor: AtomicU64,
    /// Time of the clock and factor of each change.
    changes: Mutex<Vec<(u64, f64)>>,
}

/// Maximum number of changes that are recorded.
const CHANGES_MAX: usize = 10_000;
/// Factor of one step up; a step down is its inverse.
pub const STEP_UP: f64 = 1.1;
/// Range of the factor; below it is 0.
const FACTOR_RANGE: (f64, f64) = (0.001, 1000.0);

impl Default for RateControl {
    fn default() -> Self {
        Self { factor: AtomicU64::new(1f64.to_bits()), changes: Mutex::default() }
    }
}

impl RateControl {
    pub fn factor(&self) -> f64 {
        f64::from_bits(self.factor.load(Ordering::Relaxed))
    }

    pub fn set(&self, factor: f64, now_ns: u64) {
        let (min, max) = FACTOR_RANGE;
        let factor = if factor < min { 0.0 } else { factor.min(max) };
        self.factor.store(factor.to_bits(), Ordering::Relaxed);
        // A poisoned lock still has a valid list.
        let mut changes = self.changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if changes.len() < CHANGES_MAX {
            changes.push((now_ns, factor));
        }
    }

    /// Multiplies the factor; from 0 it returns to 1.
    pub fn scale(&self, by: f64, now_ns: u64) {
        let factor = self.factor();
        self.set(if factor == 0.0 { 1.0 } else { factor * by }, now_ns);
    }

    /// Returns the changes: the time of the clock in ns, and the factor.
    pub fn changes(&self) -> Vec<(u64, f64)> {
        self.changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_bounded_and_its_changes_are_kept() {
        let control = RateControl::default();
        control.scale(STEP_UP, 5);
        control.scale(1.0 / STEP_UP, 6);
        assert!((control.factor() - 1.0).abs() < 1e-9);
        control.set(1e9, 7);
        assert_eq!(control.factor(), 1000.0);
        control.set(0.0, 8);
        control.scale(STEP_UP, 9);
        assert_eq!((control.factor(), control.changes().len()), (1.0, 5));
    }
}
