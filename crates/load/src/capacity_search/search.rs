//! Choice of the next trial: growth, bisection with short trials and then with long ones,
//! verification, and a final check for drift. Pure: the input is the outcome of each trial, and the
//! search ends.
//!
//! ```text
//! reference ─► grow (or shrink) ─► narrow, short ─► confirm lower ─► narrow, full ─► confirm upper
//!                  ▲                                     │ missed          │              │ held
//!                  └─────────────────────────────────────┴─────────────────┴──────────────┘
//!                                                   verify 100, 95, 90 %, between ─► found ─► recheck
//! ```
//!
//! Bisection assumes that a level below one that holds also holds. On a noisy machine that is not
//! so. A bound therefore counts only if a full trial confirms it, and the upper bound needs two.

mod recheck;

use record::capacity_search::{Conclusion, LevelOutcome, SearchEnd};

use self::recheck::Recheck;
use super::settings::{
    FULL_TRIALS_MAX, SHORT_TRIALS_MAX, SearchSettings, VERIFICATIONS_MAX, VERIFY_FRACTIONS,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialPurpose {
    /// The first trial, at low load: it measures latency without queueing.
    Reference,
    /// No level has been missed yet.
    Grow,
    /// No level has held yet.
    Shrink,
    /// Between a level that held and one that did not.
    Narrow,
    /// Repetition of a bound, longer.
    Confirm,
    /// Long trial of the found level.
    Verify,
    /// Check at the end that the found level still holds.
    Recheck,
}

impl TrialPurpose {
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Grow => "grow",
            Self::Shrink => "shrink",
            Self::Narrow => "narrow",
            Self::Confirm => "confirm",
            Self::Verify => "verify",
            Self::Recheck => "recheck",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialSpec {
    pub level: f64,
    pub length_ns: u64,
    pub purpose: TrialPurpose,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SearchStep {
    Run(TrialSpec),
    Ended(Conclusion),
}

#[derive(Clone, Copy, Debug)]
struct LowerBound {
    level: f64,
    confirmed: bool,
}

#[derive(Clone, Copy, Debug)]
struct UpperBound {
    level: f64,
    misses: u32,
}

#[derive(Clone, Debug)]
enum SearchPhase {
    Narrowing,
    Verifying(Verification),
    Rechecking(Recheck),
    Ended(Conclusion),
}

/// Long trials at one level.
#[derive(Clone, Copy, Debug)]
struct Verification {
    /// Level that the full trials found.
    base: f64,
    /// Index of the tried fraction of that level. The last one lies between a level that held and
    /// one that did not.
    fraction_index: usize,
    level: f64,
    held: u32,
    missed: u32,
    /// A lower level that was verified, with the number of trials that held and of all trials.
    verified: Option<(f64, u32, u32)>,
}

#[derive(Clone, Debug)]
pub struct LevelSearch {
    settings: SearchSettings,
    lower: Option<LowerBound>,
    upper: Option<UpperBound>,
    /// Size of the next step outwards, as a fraction.
    step: f64,
    /// Number of consecutive undecided trials.
    inconclusive_trials: u32,
    short_trials_left: u32,
    full_trials_left: u32,
    /// Number of times that verification failed completely.
    failed_verifications: u32,
    drift: Option<String>,
    /// Reasons why the upper bound was missed.
    reasons: Vec<String>,
    phase: SearchPhase,
}

/// Size of the first steps outwards: they double the level.
const STEP_FIRST: f64 = 1.0;
/// Divisor of the level while none has held: trials at low rates are long.
const SHRINK_FIRST: f64 = 10.0;
/// Multiple of the requested width at which bisection with short trials ends.
const SHORT_GAP_FACTOR: f64 = 4.0;
/// Maximum number of repetitions of an undecided trial.
const INCONCLUSIVE_TRIALS_MAX: u32 = 2;
/// Number of consecutive rechecks that have to hold.
const RECHECKS_HELD_MIN: u32 = 2;
/// Fraction by which a recheck lowers the level, and maximum number of such steps.
const RECHECK_STEP: f64 = 0.05;
const RECHECK_STEPS_MAX: u32 = 4;

impl LevelSearch {
    /// Returns a search that has not tried anything.
    #[must_use]
    pub fn new(settings: SearchSettings) -> Self {
        Self {
            settings,
            lower: None,
            upper: None,
            step: STEP_FIRST,
            inconclusive_trials: 0,
            short_trials_left: SHORT_TRIALS_MAX,
            full_trials_left: FULL_TRIALS_MAX,
            failed_verifications: 0,
            drift: None,
            reasons: Vec::new(),
            phase: SearchPhase::Narrowing,
        }
    }

    pub fn next(&self) -> SearchStep {
        match &self.phase {
            SearchPhase::Narrowing => SearchStep::Run(self.extend_repeated(self.next_narrowing_trial())),
            SearchPhase::Verifying(verifying) => {
                self.trial_step(verifying.level, self.settings.verify_trial_ns, TrialPurpose::Verify)
            }
            SearchPhase::Rechecking(recheck) => {
                self.trial_step(recheck.level, self.settings.full_trial_ns, TrialPurpose::Recheck)
            }
            SearchPhase::Ended(conclusion) => SearchStep::Ended(conclusion.clone()),
        }
    }

    fn trial_step(&self, level: f64, length_ns: u64, purpose: TrialPurpose) -> SearchStep {
        SearchStep::Run(TrialSpec { level: self.clamp_level(level), length_ns, purpose })
    }

    /// Repeats an undecided trial with full length: the disturbance may be short.
    fn extend_repeated(&self, spec: TrialSpec) -> TrialSpec {
        let length_ns = if self.inconclusive_trials > 0 { self.settings.full_trial_ns } else { 0 };
        TrialSpec { length_ns: spec.length_ns.max(length_ns), ..spec }
    }

    fn clamp_level(&self, level: f64) -> f64 {
        let level = if self.settings.integer_levels { level.round() } else { level };
        level.clamp(self.settings.min_level, self.settings.max_level)
    }

    fn next_narrowing_trial(&self) -> TrialSpec {
        let SearchSettings { short_trial_ns: short_ns, full_trial_ns: full_ns, max_gap: width, .. } =
            self.settings;
        // Steps outwards from bounds that full trials have moved are full trials themselves.
        let outwards_ns =
            if self.step >= STEP_FIRST && self.short_trials_left > 0 { short_ns } else { full_ns };
        let (level, length_ns, purpose) = match (self.lower, self.upper) {
            (None, None) => (self.settings.first_level, short_ns, TrialPurpose::Reference),
            (Some(lower), None) if lower.level >= self.settings.max_level => {
                (lower.level, full_ns, TrialPurpose::Confirm)
            }
            (Some(lower), None) => (lower.level * (1.0 + self.step), outwards_ns, TrialPurpose::Grow),
            (None, Some(upper)) => {
                let first = if self.step >= STEP_FIRST { SHRINK_FIRST } else { 1.0 + self.step };
                (upper.level / first, outwards_ns, TrialPurpose::Shrink)
            }
            (Some(lower), Some(upper)) => {
                let middle = f64::midpoint(lower.level, upper.level);
                if self.is_gap_wider_than(SHORT_GAP_FACTOR * width) && self.short_trials_left > 0 {
                    (middle, short_ns, TrialPurpose::Narrow)
                } else if !lower.confirmed {
                    (lower.level, full_ns, TrialPurpose::Confirm)
                } else if self.is_gap_wider_than(width) {
                    (middle, full_ns, TrialPurpose::Narrow)
                } else {
                    (upper.level, full_ns, TrialPurpose::Confirm)
                }
            }
        };
        TrialSpec { level: self.clamp_level(level), length_ns, purpose }
    }

    fn is_gap_wider_than(&self, fraction: f64) -> bool {
        let (Some(lower), Some(upper)) = (self.lower, self.upper) else {
            return true;
        };
        let gap = upper.level - lower.level;
        gap > fraction * upper.level * (1.0 + 1e-9) && !(self.settings.integer_levels && gap <= 1.0)
    }

    /// Records the outcome of the trial that `LevelSearch::next` returned, with the reasons.
    pub fn record_outcome(&mut self, outcome: LevelOutcome, reasons: &[String]) {
        let SearchStep::Run(spec) = self.next() else { return };
        if outcome == LevelOutcome::Undecided {
            self.inconclusive_trials += 1;
            if self.inconclusive_trials > INCONCLUSIVE_TRIALS_MAX {
                self.end_at_generator_limit(spec.level, reasons);
            }
            return;
        }
        self.inconclusive_trials = 0;
        let held = outcome == LevelOutcome::Held;
        match self.phase.clone() {
            SearchPhase::Narrowing => {
                self.record_narrowing(spec, held, reasons);
                self.check_bounds();
            }
            SearchPhase::Verifying(mut verifying) => {
                verifying.held += u32::from(held);
                verifying.missed += u32::from(!held);
                self.verify(verifying, reasons);
            }
            SearchPhase::Rechecking(recheck) => self.record_recheck(recheck, held, reasons),
            SearchPhase::Ended(_) => {}
        }
    }

    fn record_narrowing(&mut self, spec: TrialSpec, held: bool, reasons: &[String]) {
        let full = spec.length_ns >= self.settings.full_trial_ns;
        let trials_left = if full { &mut self.full_trials_left } else { &mut self.short_trials_left };
        *trials_left = trials_left.saturating_sub(1);
        let outwards = matches!(spec.purpose, TrialPurpose::Grow | TrialPurpose::Shrink);
        if held {
            if self.upper.is_some_and(|upper| spec.level >= upper.level) {
                self.upper = None;
            }
            self.lower = Some(LowerBound { level: spec.level, confirmed: full });
        } else {
            if self.lower.is_some_and(|lower| spec.level <= lower.level) {
                self.lower = None;
            }
            let previous = self.upper.filter(|upper| upper.level == spec.level);
            let misses = previous.map_or(0, |upper| upper.misses) + 1;
            self.upper = Some(UpperBound { level: spec.level, misses });
            self.reasons = reasons.to_vec();
        }
        if self.lower.is_some() && self.upper.is_some() {
            self.step = 2.0 * self.settings.max_gap;
        } else if outwards {
            self.step = (2.0 * self.step).min(STEP_FIRST);
        }
    }

    /// Ends the search because no level can hold, whatever its rate.
    pub(super) fn end_without_good_response(&mut self, reasons: &[String]) {
        reasons.clone_into(&mut self.reasons);
        self.end(SearchEnd::BelowLowest, None);
    }

    /// Starts verifying, or ends, if there is nothing left to narrow.
    fn check_bounds(&mut self) {
        let SearchSettings { min_level: lowest, max_level: highest, max_gap: width, .. } = self.settings;
        let exhausted = self.full_trials_left == 0;
        match (self.lower, self.upper) {
            (None, Some(upper)) if upper.level <= lowest && upper.misses >= 2 => {
                self.end(SearchEnd::BelowLowest, None);
            }
            (Some(lower), None) if lower.level >= highest && lower.confirmed => {
                self.start_verification(lower.level);
            }
            (Some(lower), Some(upper)) => {
                let settled = lower.confirmed && !self.is_gap_wider_than(width) && upper.misses >= 2;
                if settled || exhausted {
                    self.start_verification(lower.level);
                }
            }
            (Some(lower), None) if exhausted => self.start_verification(lower.level),
            (None, _) if exhausted => self.end(SearchEnd::NotVerified, None),
            _ => {}
        }
    }

    fn start_verification(&mut self, base: f64) {
        let level = self.clamp_level(base);
        self.phase = SearchPhase::Verifying(Verification {
            base,
            fraction_index: 0,
            level,
            held: 0,
            missed: 0,
            verified: None,
        });
    }

    /// Continues after a verifying trial: with the same level until two of three agree, with a
    /// lower one if it was missed, and once with one between, if a lower one held.
    fn verify(&mut self, verifying: Verification, reasons: &[String]) {
        let Verification { base, fraction_index, level, held, missed, verified } = verifying;
        self.phase = SearchPhase::Verifying(verifying);
        let verify_at = |fraction_index, level, verified| {
            SearchPhase::Verifying(Verification { base, fraction_index, level, held: 0, missed: 0, verified })
        };
        if missed > VERIFICATIONS_MAX / 2 {
            self.reasons = reasons.to_vec();
            self.upper = Some(UpperBound { level, misses: missed });
            self.drift =
                Some(format!("{} held before but not in verification", record::units::format_count(base)));
            if verified.is_some() {
                self.end(SearchEnd::Found, verified);
            } else if fraction_index + 1 < VERIFY_FRACTIONS.len() && level > self.settings.min_level {
                let lower = self.clamp_level(base * VERIFY_FRACTIONS[fraction_index + 1]);
                self.phase = verify_at(fraction_index + 1, lower, None);
            } else {
                self.restart_narrowing();
            }
        } else if held + missed >= VERIFICATIONS_MAX {
            self.lower = Some(LowerBound { level, confirmed: true });
            let found = Some((level, held, held + missed));
            if fraction_index > 0 && verified.is_none() && self.is_gap_wider_than(self.settings.max_gap) {
                let between = f64::midpoint(base * VERIFY_FRACTIONS[fraction_index - 1], level);
                self.phase = verify_at(fraction_index, self.clamp_level(between), found);
                return;
            }
            let at_max_level = self.upper.is_none() && level >= self.settings.max_level;
            self.end(if at_max_level { SearchEnd::MaxLevel } else { SearchEnd::Found }, found);
        }
    }

    /// Widens the interval downwards, once, because the found level no longer holds.
    fn restart_narrowing(&mut self) {
        self.failed_verifications += 1;
        self.lower = None;
        if self.failed_verifications > 1 {
            self.end(SearchEnd::NotVerified, None);
            return;
        }
        self.step = 0.25;
        self.full_trials_left = FULL_TRIALS_MAX;
        self.phase = SearchPhase::Narrowing;
    }

    fn end(&mut self, end: SearchEnd, level: Option<(f64, u32, u32)>) {
        let (verified, verifications) = level.map_or((0, 0), |(_, held, total)| (held, total));
        self.phase = SearchPhase::Ended(Conclusion {
            end,
            level: level.map(|(level, _, _)| level),
            lower: self.lower.map(|lower| lower.level),
            upper: self.upper.map(|upper| upper.level),
            verified,
            verifications,
            drift: self.drift.clone(),
            limited_at: None,
            reasons: self.reasons.clone(),
        });
    }

    fn end_at_generator_limit(&mut self, at: f64, reasons: &[String]) {
        if let SearchPhase::Rechecking(recheck) = self.phase.clone() {
            let reason = reasons.join("; ");
            if recheck.lowered > 0 {
                self.phase =
                    SearchPhase::Ended(recheck.conclude_drifted(&format!("it did not hold; then: {reason}")));
                return;
            }
            // The verified level stays verified, but its recheck is missing.
            let mut found = recheck.verified_conclusion;
            found.drift = found.drift.or_else(|| Some(format!("not rechecked at the end: {reason}")));
            self.phase = SearchPhase::Ended(found);
            return;
        }
        reasons.clone_into(&mut self.reasons);
        self.end(SearchEnd::GeneratorLimit, None);
        if let SearchPhase::Ended(conclusion) = &mut self.phase {
            conclusion.limited_at = Some(at);
        }
    }

    /// Starts a recheck of the found level: a search takes minutes, and a machine changes.
    pub fn start_recheck(&mut self) {
        if let SearchPhase::Ended(found) = &self.phase
            && let (SearchEnd::Found | SearchEnd::MaxLevel, Some(level)) = (found.end, found.level)
        {
            let found = found.clone();
            self.phase = SearchPhase::Rechecking(Recheck {
                level,
                missed: 0,
                held: 0,
                lowered: 0,
                verified_conclusion: found,
            });
        }
    }

    fn record_recheck(&mut self, mut recheck: Recheck, held: bool, reasons: &[String]) {
        if held {
            recheck.held += 1;
            let enough = recheck.held >= RECHECKS_HELD_MIN;
            self.phase = if enough {
                SearchPhase::Ended(recheck.conclude_held())
            } else {
                SearchPhase::Rechecking(recheck)
            };
            return;
        }
        (recheck.held, recheck.missed) = (0, recheck.missed + 1);
        if recheck.missed < 2 {
            // A single miss may be chance.
            self.phase = SearchPhase::Rechecking(recheck);
            return;
        }
        recheck.verified_conclusion.upper = Some(recheck.level);
        recheck.verified_conclusion.reasons = reasons.to_vec();
        self.phase = if recheck.lowered < RECHECK_STEPS_MAX && recheck.level > self.settings.min_level {
            let step = RECHECK_STEP * recheck.level;
            let step = if self.settings.integer_levels { step.max(1.0) } else { step };
            let level = self.clamp_level(recheck.level - step);
            SearchPhase::Rechecking(Recheck {
                level,
                missed: 0,
                held: 0,
                lowered: recheck.lowered + 1,
                ..recheck
            })
        } else {
            let level = record::units::format_count(recheck.level);
            SearchPhase::Ended(recheck.conclude_drifted(&format!("not even {level} held")))
        };
    }

    /// Ends the search on request. Returns its conclusion so far.
    pub fn current_conclusion(&self) -> Conclusion {
        match &self.phase {
            SearchPhase::Ended(conclusion) => conclusion.clone(),
            SearchPhase::Rechecking(recheck) if recheck.lowered > 0 => recheck
                .clone()
                .conclude_drifted("it did not hold; stopped before a level that holds was found"),
            SearchPhase::Rechecking(recheck) => recheck.verified_conclusion.clone(),
            _ => Conclusion {
                end: SearchEnd::Stopped,
                lower: self.lower.map(|lower| lower.level),
                upper: self.upper.map(|upper| upper.level),
                drift: self.drift.clone(),
                reasons: self.reasons.clone(),
                ..Conclusion::default()
            },
        }
    }
}

#[cfg(test)]
mod tests;
