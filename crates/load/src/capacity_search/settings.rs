//! Settings of a search: its levels, and the lengths of trials. A value without decisions.

use record::units::SECOND_NS;

use super::plans::idle_trial_ns;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchSettings {
    pub first_level: f64,
    /// Lowest level that is tried.
    pub min_level: f64,
    /// Highest level that is tried.
    pub max_level: f64,
    /// Maximum distance of the bounds at the end of the search, as a fraction of the upper one.
    pub max_gap: f64,
    /// True if levels are whole numbers.
    pub integer_levels: bool,
    /// Length of the first, short trials, in ns.
    pub short_trial_ns: u64,
    pub full_trial_ns: u64,
    pub verify_trial_ns: u64,
}

/// Maximum number of long trials for a verification; two of them have to hold.
pub(super) const VERIFICATIONS_MAX: u32 = 3;
pub(super) const SHORT_TRIALS_MAX: u32 = 40;
/// Maximum number of full trials before the found level is verified, however wide the interval is.
pub(super) const FULL_TRIALS_MAX: u32 = 24;
/// Fractions of the found level that are verified in turn.
pub(super) const VERIFY_FRACTIONS: [f64; 3] = [1.0, 0.95, 0.90];
/// Minimum number of requests of a trial, so that it has a p99.
const REQUESTS_MIN: f64 = 100.0;
/// Maximum length of a trial that is extended for that number, in ns.
const STRETCHED_NS_MAX: u64 = 10 * SECOND_NS;

impl SearchSettings {
    /// Returns the length of a trial at a rate, at least `length_ns`.
    pub fn stretched_ns(length_ns: u64, rate_per_s: f64) -> u64 {
        let needed_s = REQUESTS_MIN / rate_per_s.max(1e-3);
        // Rates are counted in complete seconds, once there is one.
        let needed_s = if needed_s > 1.0 { needed_s.ceil() } else { needed_s };
        length_ns.max(((needed_s * 1e9) as u64).min(STRETCHED_NS_MAX))
    }

    /// Returns the duration of the search in ns, without the steps after it: the usual one and the
    /// maximum.
    pub fn duration_ns(&self) -> (u64, u64) {
        let growth = 12;
        // Levels that are whole numbers are connections or streams, whose trials have a length of their
        // own.
        let length_ns = |requested_ns| match self.integer_levels {
            true => idle_trial_ns(self.first_level, requested_ns),
            false => requested_ns,
        };
        let [short_ns, full_ns] = [self.short_trial_ns, self.full_trial_ns].map(length_ns);
        let verify_ns = u64::from(VERIFICATIONS_MAX) * length_ns(self.verify_trial_ns);
        let usual_ns = (growth + 5) * short_ns + 6 * full_ns + verify_ns;
        let first_trial_ns = |length_ns| match self.integer_levels {
            true => length_ns,
            false => Self::stretched_ns(length_ns, self.first_level),
        };
        let narrowing_ns = u64::from(SHORT_TRIALS_MAX) * first_trial_ns(short_ns)
            + 2 * u64::from(FULL_TRIALS_MAX) * first_trial_ns(full_ns);
        let max_ns = narrowing_ns + 2 * (VERIFY_FRACTIONS.len() as u64 + 1) * verify_ns;
        // The length of a trial does not include connecting and draining.
        (usual_ns, max_ns * 3 / 2)
    }
}
