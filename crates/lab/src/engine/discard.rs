//! Which trials do not count because something else disturbed them. Decided by covariates only, never by
//! what a trial measured. Pure, and only of what is on the disk: an experiment that was resumed decides as
//! one that was not.
//!
//! Not for what follows from it for blocks: that is [`super::blocks`]'s.

use std::collections::BTreeMap;

use record::experiment::TrialLine;
use record::trial::{Covariates, Discarded, Kind};
use record::units::format_duration_ns;

/// The trials whose wake-up lags are what is usual on this machine: the first ones, pilots among them. A
/// fixed number, so that what was decided of a trial does not waver while the experiment goes on.
pub const WAKE_UP_REFERENCE_TRIALS: usize = 12;
/// With fewer than this there is no usual, and no trial is discarded for its wake-up lag.
pub const WAKE_UP_REFERENCE_TRIALS_MIN: usize = 6;
/// The covariate that is held against its own usual value instead of a fixed bound.
const WAKE_UP: &str = "wake_up_p99_ns";

/// One covariate that may discard a trial.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Its name in [`Covariates`] and in a plan's bounds.
    pub name: &'static str,
    /// What it is, in words, and what its bound counts.
    pub doc: &'static str,
    /// How it and its bound are written.
    form: Form,
    value: fn(&Covariates) -> Option<f64>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Share,
    Cpus,
    Nanoseconds,
    Seconds,
    /// A bound that is a multiple of what is usual, of nanoseconds.
    Times,
}

/// Every covariate that may discard a trial.
pub const RULES: &[Rule] = &[
    Rule {
        name: "steal_share",
        doc: "the share of the machine's time that the hypervisor gave to others",
        form: Form::Share,
        value: |it| it.steal_share,
    },
    Rule {
        name: "foreign_cpus",
        doc: "the processors that other programs used",
        form: Form::Cpus,
        value: |it| it.foreign_cpus,
    },
    Rule {
        name: WAKE_UP,
        doc: "the wake-up lag of a sleeping thread (99 %), in multiples of the usual one",
        form: Form::Times,
        value: |it| it.wake_up_p99_ns.map(|ns| ns as f64),
    },
    Rule {
        name: "generator_lag_p99_ns",
        doc: "the load generator's own lag (99 %)",
        form: Form::Nanoseconds,
        value: |it| it.generator_lag_p99_ns.map(|ns| ns as f64),
    },
    Rule {
        name: "generator_busiest_share",
        doc: "the share of a processor that the load generator's busiest thread used",
        form: Form::Share,
        value: |it| it.generator_busiest_share,
    },
    Rule {
        name: "error_share",
        doc: "the share of requests that failed",
        form: Form::Share,
        value: |it| it.error_share,
    },
    Rule {
        name: "throttled_share",
        doc: "the share of periods in which a quota stopped the subject",
        form: Form::Share,
        value: |it| it.throttled_share,
    },
    Rule {
        name: "clock_step_s",
        doc: "by how much the wall clock was set",
        form: Form::Seconds,
        value: |it| it.clock_step_s.map(f64::abs),
    },
];

/// Bounds that no rule has: a plan with such is refused, because a bound that holds nothing misleads.
#[must_use]
pub fn unknown(bounds: &BTreeMap<String, f64>) -> Vec<String> {
    let known = |name: &str| RULES.iter().any(|rule| rule.name == name);
    bounds.keys().filter(|name| !known(name)).cloned().collect()
}

/// Why each trial is discarded, if it is; in the order of `lines`. Pilots, probes and failed trials never
/// are: there is nothing to take from them.
#[must_use]
pub fn decide(bounds: &BTreeMap<String, f64>, lines: &[TrialLine]) -> Vec<Option<Discarded>> {
    let usual = usual_wake_up(lines);
    let why = |line: &TrialLine| {
        if line.place.kind != Kind::Judged || line.failed.is_some() {
            return None;
        }
        RULES.iter().find_map(|rule| rule.broken(bounds, &line.covariates, usual))
    };
    lines.iter().map(why).collect()
}

impl Rule {
    fn broken(
        &self,
        bounds: &BTreeMap<String, f64>,
        covariates: &Covariates,
        usual_wake_up: Option<f64>,
    ) -> Option<Discarded> {
        let bound = *bounds.get(self.name)?;
        let value = (self.value)(covariates)?;
        let limit = if self.form == Form::Times { bound * usual_wake_up? } else { bound };
        if value <= limit {
            return None;
        }
        let text = match self.form {
            Form::Times => format!(
                "{}: {}, {:.1} times the usual {}; bound {bound}",
                self.doc,
                format_duration_ns(value as u64),
                value / usual_wake_up?,
                format_duration_ns(usual_wake_up? as u64)
            ),
            form => format!("{}: {}; bound {}", self.doc, form.words(value), form.words(bound)),
        };
        Some(Discarded { code: self.name.to_owned(), text })
    }
}

impl Form {
    fn words(self, value: f64) -> String {
        match self {
            Self::Share => format!("{:.2} %", value * 100.0),
            Self::Cpus => format!("{value:.3}"),
            Self::Nanoseconds => format_duration_ns(value as u64),
            Self::Seconds => format!("{value:.3} s"),
            Self::Times => format!("{value:.1}"),
        }
    }
}

/// The median wake-up lag of the first trials, in nanoseconds. Probes are left out: what counts calls
/// delays.
fn usual_wake_up(lines: &[TrialLine]) -> Option<f64> {
    let told = lines.iter().filter(|line| line.place.kind != Kind::Probe);
    let mut lags: Vec<u64> = told
        .filter_map(|line| line.covariates.wake_up_p99_ns)
        .take(WAKE_UP_REFERENCE_TRIALS)
        .collect();
    if lags.len() < WAKE_UP_REFERENCE_TRIALS_MIN {
        return None;
    }
    lags.sort_unstable();
    let upper = lags[lags.len() / 2] as f64;
    let lower = lags[(lags.len() - 1) / 2] as f64;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::trial::Place;

    fn line(covariates: Covariates) -> TrialLine {
        let place = Place { block: 1, ..Place::default() };
        TrialLine { place, covariates, ..TrialLine::default() }
    }

    fn bounds(name: &str, bound: f64) -> BTreeMap<String, f64> {
        BTreeMap::from([(name.to_owned(), bound)])
    }

    #[test]
    fn every_rule_has_a_field_a_doc_and_decides() {
        for (at, rule) in RULES.iter().enumerate() {
            assert!(RULES[..at].iter().all(|other| other.name != rule.name));
            assert!(!rule.doc.is_empty() && !rule.doc.ends_with('.'));
            // The name is that of a field: reading it back gives the value.
            let text = format!("{{\"{}\": 2000}}", rule.name);
            let covariates: Covariates = serde_json::from_str(&text).unwrap();
            assert_eq!((rule.value)(&covariates), Some(2000.0), "{}", rule.name);
            let usual = Some(1000.0);
            let times = rule.form == Form::Times;
            let (above, below) = if times { (1.5, 2.5) } else { (1999.0, 2000.0) };
            let broken = rule.broken(&bounds(rule.name, above), &covariates, usual).unwrap();
            assert_eq!(broken.code, rule.name);
            assert!(broken.text.contains("bound"), "{}", broken.text);
            assert_eq!(rule.broken(&bounds(rule.name, below), &covariates, usual), None);
            assert_eq!(rule.broken(&BTreeMap::new(), &covariates, usual), None);
            assert_eq!(rule.broken(&bounds(rule.name, 0.0), &Covariates::default(), usual), None);
        }
    }

    #[test]
    fn a_bound_without_a_rule_is_found() {
        assert_eq!(unknown(&bounds("stele", 1.0)), ["stele"]);
        assert!(unknown(&bounds("steal_share", 1.0)).is_empty());
    }

    #[test]
    fn the_wake_up_lag_is_held_against_the_first_trials() {
        let lag = |ns| line(Covariates { wake_up_p99_ns: Some(ns), ..Covariates::default() });
        let rule = bounds(WAKE_UP, 2.0);
        let few: Vec<TrialLine> = [10, 10, 10, 10, 90].map(lag).to_vec();
        assert!(decide(&rule, &few).iter().all(Option::is_none), "too few to know what is usual");
        let mut many: Vec<TrialLine> = (0..12).map(|_| lag(10_000)).collect();
        // What comes after the first twelve changes nothing about them.
        many.extend((0..40).map(|_| lag(100_000)));
        many.push(lag(19_999));
        let decided = decide(&rule, &many);
        assert!(decided[..12].iter().all(Option::is_none));
        assert!(decided[12..52].iter().all(Option::is_some));
        assert_eq!(decided[52], None);
        let text = &decided[12].as_ref().unwrap().text;
        assert!(text.contains("10.0 times the usual 10"), "{text}");
    }

    #[test]
    fn what_a_trial_measured_decides_nothing_and_pilots_are_let_be() {
        let rule = bounds("steal_share", 0.02);
        let stolen = Covariates { steal_share: Some(0.03), ..Covariates::default() };
        let mut lines = vec![line(stolen.clone()), line(Covariates::default()), line(stolen)];
        lines[1].metrics.insert("responses_per_s".to_owned(), 0.0);
        lines[2].place.kind = Kind::Pilot;
        let decided = decide(&rule, &lines);
        assert!(decided[0].as_ref().unwrap().text.ends_with(": 3.00 %; bound 2.00 %"));
        assert_eq!(decided[1..], [None, None]);
    }
}
