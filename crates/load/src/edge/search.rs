//! Which trial comes next: growth, bisection with short trials and then with long ones, verification,
//! and a last look for drift. Pure: told what each trial said, it says what to try, and it ends.
//!
//! ```text
//! reference ─► grow (or shrink) ─► narrow, short ─► confirm lower ─► narrow, full ─► confirm upper
//!                  ▲                                     │ missed          │              │ held
//!                  └─────────────────────────────────────┴─────────────────┴──────────────┘
//!                                                   verify 100, 95, 90 %, between ─► found ─► recheck
//! ```
//!
//! Bisection takes for granted that what holds at a level holds below it. On a noisy machine that is
//! not so, which is why a bound counts only when a full trial, and for the upper one two, say so.

mod recheck;

use record::edge::{Conclusion, End, Outcome};

use self::recheck::Rechecking;
use super::settings::{FULL_TRIALS_MAX, SHORT_TRIALS_MAX, Settings, VERIFICATIONS, VERIFY_SHARES};

/// Why a trial is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The first, at low load: what latency is when nothing waits.
    Reference,
    /// Nothing has been missed yet.
    Grow,
    /// Nothing has held yet.
    Shrink,
    /// Between what held and what did not.
    Narrow,
    /// A bound, once more and longer.
    Confirm,
    /// What was found, for long.
    Verify,
    /// Whether it still holds at the end.
    Recheck,
}

impl Purpose {
    /// The name in records.
    #[must_use]
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

/// A trial to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// The level to try.
    pub level: f64,
    /// For how long.
    pub length_ns: u64,
    /// Why.
    pub purpose: Purpose,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// This trial.
    Try(Ask),
    /// Nothing; this was found.
    Ended(Conclusion),
}

#[derive(Clone, Copy, Debug)]
struct Lower {
    level: f64,
    confirmed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Upper {
    level: f64,
    misses: u32,
}

#[derive(Clone, Debug)]
enum Phase {
    Narrowing,
    Verifying(Verifying),
    Rechecking(Rechecking),
    Ended(Conclusion),
}

/// Long trials at one level.
#[derive(Clone, Copy, Debug)]
struct Verifying {
    /// What the full trials found.
    base: f64,
    /// Which share of it; the last that is tried is between one that held and one that did not.
    share: usize,
    level: f64,
    held: u32,
    missed: u32,
    /// A lower level that was verified, with the trials that held and all of them.
    verified: Option<(f64, u32, u32)>,
}

/// A search.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    lower: Option<Lower>,
    upper: Option<Upper>,
    /// How far the next step outwards goes, as a share.
    step: f64,
    /// Trials without a verdict, one after the other.
    repeats: u32,
    short_left: u32,
    full_left: u32,
    /// How often verifying failed altogether.
    unverified: u32,
    drift: Option<String>,
    /// Why the upper bound was missed.
    reasons: Vec<String>,
    phase: Phase,
}

/// The first steps outwards double the level.
const STEP_FIRST: f64 = 1.0;
/// While nothing has held, the level is divided by this: trials at low rates are long.
const SHRINK_FIRST: f64 = 10.0;
/// Bisection with short trials ends within so many times the wanted width.
const SHORT_WIDTHS: f64 = 4.0;
/// A trial without a verdict is repeated so often.
const REPEATS_MAX: u32 = 2;
/// What is named has held in so many rechecks, one after the other.
const RECHECKS: u32 = 2;
/// A recheck goes down by this share, so often at the most.
const RECHECK_STEP: f64 = 0.05;
const RECHECK_STEPS_MAX: u32 = 4;

impl Search {
    /// A search that has not tried anything.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            lower: None,
            upper: None,
            step: STEP_FIRST,
            repeats: 0,
            short_left: SHORT_TRIALS_MAX,
            full_left: FULL_TRIALS_MAX,
            unverified: 0,
            drift: None,
            reasons: Vec::new(),
            phase: Phase::Narrowing,
        }
    }

    /// What comes next.
    #[must_use]
    pub fn next(&self) -> Step {
        match &self.phase {
            Phase::Narrowing => Step::Try(self.repeated(self.narrow())),
            Phase::Verifying(verifying) => {
                self.ask(verifying.level, self.settings.verify_ns, Purpose::Verify)
            }
            Phase::Rechecking(at) => self.ask(at.level, self.settings.full_ns, Purpose::Recheck),
            Phase::Ended(conclusion) => Step::Ended(conclusion.clone()),
        }
    }

    fn ask(&self, level: f64, length_ns: u64, purpose: Purpose) -> Step {
        Step::Try(Ask { level: self.level(level), length_ns, purpose })
    }

    /// A trial that said nothing is repeated with full length: what disturbed it may be short.
    fn repeated(&self, ask: Ask) -> Ask {
        let length_ns = if self.repeats > 0 { self.settings.full_ns } else { 0 };
        Ask { length_ns: ask.length_ns.max(length_ns), ..ask }
    }

    fn level(&self, level: f64) -> f64 {
        let level = if self.settings.whole { level.round() } else { level };
        level.clamp(self.settings.lowest, self.settings.highest)
    }

    fn narrow(&self) -> Ask {
        let Settings { short_ns, full_ns, width, .. } = self.settings;
        // Steps outwards from bounds that full trials have moved are full trials themselves.
        let outwards_ns =
            if self.step >= STEP_FIRST && self.short_left > 0 { short_ns } else { full_ns };
        let (level, length_ns, purpose) = match (self.lower, self.upper) {
            (None, None) => (self.settings.from, short_ns, Purpose::Reference),
            (Some(lower), None) if lower.level >= self.settings.highest => {
                (lower.level, full_ns, Purpose::Confirm)
            }
            (Some(lower), None) => (lower.level * (1.0 + self.step), outwards_ns, Purpose::Grow),
            (None, Some(upper)) => {
                let first = if self.step >= STEP_FIRST { SHRINK_FIRST } else { 1.0 + self.step };
                (upper.level / first, outwards_ns, Purpose::Shrink)
            }
            (Some(lower), Some(upper)) => {
                let middle = f64::midpoint(lower.level, upper.level);
                if self.gap_is_wider_than(SHORT_WIDTHS * width) && self.short_left > 0 {
                    (middle, short_ns, Purpose::Narrow)
                } else if !lower.confirmed {
                    (lower.level, full_ns, Purpose::Confirm)
                } else if self.gap_is_wider_than(width) {
                    (middle, full_ns, Purpose::Narrow)
                } else {
                    (upper.level, full_ns, Purpose::Confirm)
                }
            }
        };
        Ask { level: self.level(level), length_ns, purpose }
    }

    fn gap_is_wider_than(&self, share: f64) -> bool {
        let (Some(lower), Some(upper)) = (self.lower, self.upper) else {
            return true;
        };
        let gap = upper.level - lower.level;
        gap > share * upper.level * (1.0 + 1e-9) && !(self.settings.whole && gap <= 1.0)
    }

    /// What the trial said that [`Search::next`] asked for, and why.
    pub fn tell(&mut self, outcome: Outcome, reasons: &[String]) {
        let Step::Try(ask) = self.next() else { return };
        if outcome == Outcome::NoVerdict {
            self.repeats += 1;
            if self.repeats > REPEATS_MAX {
                self.end_at_the_generator(ask.level, reasons);
            }
            return;
        }
        self.repeats = 0;
        let held = outcome == Outcome::Held;
        match self.phase.clone() {
            Phase::Narrowing => {
                self.narrowed(ask, held, reasons);
                self.look_at_bounds();
            }
            Phase::Verifying(mut verifying) => {
                verifying.held += u32::from(held);
                verifying.missed += u32::from(!held);
                self.verify(verifying, reasons);
            }
            Phase::Rechecking(at) => self.rechecked(at, held, reasons),
            Phase::Ended(_) => {}
        }
    }

    fn narrowed(&mut self, ask: Ask, held: bool, reasons: &[String]) {
        let full = ask.length_ns >= self.settings.full_ns;
        let left = if full { &mut self.full_left } else { &mut self.short_left };
        *left = left.saturating_sub(1);
        let outwards = matches!(ask.purpose, Purpose::Grow | Purpose::Shrink);
        if held {
            if self.upper.is_some_and(|upper| ask.level >= upper.level) {
                self.upper = None;
            }
            self.lower = Some(Lower { level: ask.level, confirmed: full });
        } else {
            if self.lower.is_some_and(|lower| ask.level <= lower.level) {
                self.lower = None;
            }
            let before = self.upper.filter(|upper| upper.level == ask.level);
            let misses = before.map_or(0, |upper| upper.misses) + 1;
            self.upper = Some(Upper { level: ask.level, misses });
            self.reasons = reasons.to_vec();
        }
        if self.lower.is_some() && self.upper.is_some() {
            self.step = 2.0 * self.settings.width;
        } else if outwards {
            self.step = (2.0 * self.step).min(STEP_FIRST);
        }
    }

    /// Goes on to verifying, or ends, when there is nothing left to narrow.
    fn look_at_bounds(&mut self) {
        let Settings { lowest, highest, width, .. } = self.settings;
        let exhausted = self.full_left == 0;
        match (self.lower, self.upper) {
            (None, Some(upper)) if upper.level <= lowest && upper.misses >= 2 => {
                self.end(End::BelowLowest, None);
            }
            (Some(lower), None) if lower.level >= highest && lower.confirmed => {
                self.begin_verifying(lower.level);
            }
            (Some(lower), Some(upper)) => {
                let settled =
                    lower.confirmed && !self.gap_is_wider_than(width) && upper.misses >= 2;
                if settled || exhausted {
                    self.begin_verifying(lower.level);
                }
            }
            (Some(lower), None) if exhausted => self.begin_verifying(lower.level),
            (None, _) if exhausted => self.end(End::NotVerified, None),
            _ => {}
        }
    }

    fn begin_verifying(&mut self, base: f64) {
        let level = self.level(base);
        self.phase = Phase::Verifying(Verifying {
            base,
            share: 0,
            level,
            held: 0,
            missed: 0,
            verified: None,
        });
    }

    /// Goes on after a verifying trial: with the same level until two of three agree, with a lower one
    /// when it was missed, and once with one between, when a lower one held.
    fn verify(&mut self, verifying: Verifying, reasons: &[String]) {
        let Verifying { base, share, level, held, missed, verified } = verifying;
        self.phase = Phase::Verifying(verifying);
        let tries = |share, level, verified| {
            Phase::Verifying(Verifying { base, share, level, held: 0, missed: 0, verified })
        };
        if missed > VERIFICATIONS / 2 {
            self.reasons = reasons.to_vec();
            self.upper = Some(Upper { level, misses: missed });
            self.drift = Some(format!(
                "{} held before and not when it was verified",
                record::units::format_count(base)
            ));
            if verified.is_some() {
                self.end(End::Found, verified);
            } else if share + 1 < VERIFY_SHARES.len() && level > self.settings.lowest {
                let lower = self.level(base * VERIFY_SHARES[share + 1]);
                self.phase = tries(share + 1, lower, None);
            } else {
                self.start_again();
            }
        } else if held + missed >= VERIFICATIONS {
            self.lower = Some(Lower { level, confirmed: true });
            let found = Some((level, held, held + missed));
            if share > 0 && verified.is_none() && self.gap_is_wider_than(self.settings.width) {
                let between = f64::midpoint(base * VERIFY_SHARES[share - 1], level);
                self.phase = tries(share, self.level(between), found);
                return;
            }
            let top = self.upper.is_none() && level >= self.settings.highest;
            self.end(if top { End::Top } else { End::Found }, found);
        }
    }

    /// What had been found is no longer so: the interval is widened downwards, once.
    fn start_again(&mut self) {
        self.unverified += 1;
        self.lower = None;
        if self.unverified > 1 {
            self.end(End::NotVerified, None);
            return;
        }
        self.step = 0.25;
        self.full_left = FULL_TRIALS_MAX;
        self.phase = Phase::Narrowing;
    }

    fn end(&mut self, end: End, level: Option<(f64, u32, u32)>) {
        let (verified, verifications) = level.map_or((0, 0), |(_, held, of)| (held, of));
        self.phase = Phase::Ended(Conclusion {
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

    fn end_at_the_generator(&mut self, at: f64, reasons: &[String]) {
        if let Phase::Rechecking(at) = self.phase.clone() {
            let why = reasons.join("; ");
            if at.lowered > 0 {
                self.phase = Phase::Ended(at.lost(&format!("it did not hold, and then: {why}")));
                return;
            }
            // What was verified stays so; only that it was looked at again cannot be said.
            let mut found = at.found;
            found.drift = found
                .drift
                .or_else(|| Some(format!("it could not be rechecked at the end: {why}")));
            self.phase = Phase::Ended(found);
            return;
        }
        reasons.clone_into(&mut self.reasons);
        self.end(End::GeneratorLimit, None);
        if let Phase::Ended(conclusion) = &mut self.phase {
            conclusion.limited_at = Some(at);
        }
    }

    /// Asks for another look at what was found: a search takes minutes, and a machine changes.
    pub fn recheck(&mut self) {
        if let Phase::Ended(found) = &self.phase
            && let (End::Found | End::Top, Some(level)) = (found.end, found.level)
        {
            let found = found.clone();
            self.phase =
                Phase::Rechecking(Rechecking { level, missed: 0, held: 0, lowered: 0, found });
        }
    }

    fn rechecked(&mut self, mut at: Rechecking, held: bool, reasons: &[String]) {
        if held {
            at.held += 1;
            let enough = at.held >= RECHECKS;
            self.phase = if enough { Phase::Ended(at.held()) } else { Phase::Rechecking(at) };
            return;
        }
        (at.held, at.missed) = (0, at.missed + 1);
        if at.missed < 2 {
            // Once is chance.
            self.phase = Phase::Rechecking(at);
            return;
        }
        at.found.upper = Some(at.level);
        at.found.reasons = reasons.to_vec();
        self.phase = if at.lowered < RECHECK_STEPS_MAX && at.level > self.settings.lowest {
            let step = RECHECK_STEP * at.level;
            let step = if self.settings.whole { step.max(1.0) } else { step };
            let level = self.level(at.level - step);
            Phase::Rechecking(Rechecking {
                level,
                missed: 0,
                held: 0,
                lowered: at.lowered + 1,
                ..at
            })
        } else {
            let level = record::units::format_count(at.level);
            Phase::Ended(at.lost(&format!("not even {level} held")))
        };
    }

    /// Ends it by hand; what it knows so far.
    #[must_use]
    pub fn stopped(&self) -> Conclusion {
        match &self.phase {
            Phase::Ended(conclusion) => conclusion.clone(),
            Phase::Rechecking(at) if at.lowered > 0 => {
                at.clone().lost("it did not hold; it was ended before a level was found that does")
            }
            Phase::Rechecking(at) => at.found.clone(),
            _ => Conclusion {
                end: End::Stopped,
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
