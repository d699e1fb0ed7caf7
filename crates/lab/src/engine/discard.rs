//! Which trials do not count because something else disturbed them. Decided by covariates only, never by
//! what a trial measured. Pure, and only of what is on the disk: an experiment that was resumed decides as
//! one that was not.
//!
//! One covariate is measured by the load itself, the share of errors: a run with errors is void before
//! anything is said of it. An arm that has them in some trials is then judged by the others, which
//! [`super::warnings()`] says.
//!
//! Not for what follows from it for blocks: that is [`super::blocks`]'s.

use std::collections::BTreeMap;

use record::experiment::TrialLine;
use record::trial::{Covariates, Discarded, Kind};
use record::units::format_duration_ns;

/// The trials whose wake-up lags are what is usual for an arm under a load: its first ones, its pilot among
/// them. Each has its own, because a busier processor wakes threads later, and a trial is not to be
/// discarded for its arm. With fewer there is no usual yet, and none is discarded for it: so these first ones
/// are decided when the last of them is there, and a group that counted until then may have to run again.
/// From then on what is usual is fixed, and what was decided of a trial does not waver.
pub const WAKE_UP_REFERENCE_TRIALS: usize = 5;
/// The covariate that is held against its own usual value instead of a fixed bound.
const WAKE_UP: &str = "wake_up_p99_ns";

/// How long nothing runs after a trial that the machine disturbed. What takes a machine away comes in bursts
/// of seconds and minutes, and each trial in a row that met one doubles the wait.
const REST_FIRST_NS: u64 = 5_000_000_000;
/// The longest of these.
const REST_MAX_NS: u64 = 60_000_000_000;

/// One covariate that may discard a trial.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Its name in [`Covariates`] and in a plan's bounds.
    pub name: &'static str,
    /// What it is, in words, and what its bound counts.
    pub doc: &'static str,
    /// How it and its bound are written.
    form: Form,
    /// Whether it is the machine's doing, and may be over in a while.
    passes: bool,
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
        passes: true,
        value: |it| it.steal_share,
    },
    Rule {
        name: "foreign_cpus",
        doc: "the processors that other programs used",
        form: Form::Cpus,
        passes: true,
        value: |it| it.foreign_cpus,
    },
    Rule {
        name: WAKE_UP,
        doc: "the wake-up lag of a sleeping thread (99 %), in multiples of what is usual for its arm and load",
        form: Form::Times,
        passes: true,
        value: |it| it.wake_up_p99_ns.map(|ns| ns as f64),
    },
    Rule {
        name: "generator_lag_p99_ns",
        doc: "the load generator's own lag (99 %)",
        form: Form::Nanoseconds,
        passes: false,
        value: |it| it.generator_lag_p99_ns.map(|ns| ns as f64),
    },
    Rule {
        name: "generator_busiest_share",
        doc: "the share of a processor that the load generator's busiest thread used",
        form: Form::Share,
        passes: false,
        value: |it| it.generator_busiest_share,
    },
    Rule {
        name: "error_share",
        doc: "the share of requests that failed or were answered with 400 and above",
        form: Form::Share,
        passes: false,
        value: |it| it.error_share,
    },
    Rule {
        name: "throttled_share",
        doc: "the share of periods in which a quota stopped the subject",
        form: Form::Share,
        passes: false,
        value: |it| it.throttled_share,
    },
    Rule {
        name: "clock_step_s",
        doc: "by how much the wall clock was set",
        form: Form::Seconds,
        passes: false,
        value: |it| it.clock_step_s.map(f64::abs),
    },
];

/// Bounds that no rule has: a plan with such is refused, because a bound that holds nothing misleads.
#[must_use]
pub fn unknown(bounds: &BTreeMap<String, f64>) -> Vec<String> {
    let known = |name: &str| RULES.iter().any(|rule| rule.name == name);
    bounds.keys().filter(|name| !known(name)).cloned().collect()
}

/// The bound of a covariate in the covariate's own unit: the same for all trials. None of one that is held
/// against what is usual for each arm and load.
#[must_use]
pub fn limit(bounds: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    let rule = RULES.iter().find(|rule| rule.name == name && rule.form != Form::Times)?;
    bounds.get(rule.name).copied()
}

/// The bounds in words.
#[must_use]
pub fn said(bounds: &BTreeMap<String, f64>) -> Vec<String> {
    let said = |rule: &Rule| {
        let bound = bounds.get(rule.name)?;
        Some(format!("{}: {}", rule.doc, rule.form.words(*bound)))
    };
    RULES.iter().filter_map(said).collect()
}

/// Why each trial is discarded, if it is; in the order of `lines`. Pilots, probes and failed trials never
/// are: there is nothing to take from them.
#[must_use]
pub fn decide(bounds: &BTreeMap<String, f64>, lines: &[TrialLine]) -> Vec<Option<Discarded>> {
    let usual = usual_wake_ups(lines);
    let why = |line: &TrialLine| {
        if line.place.kind != Kind::Judged || line.failed.is_some() {
            return None;
        }
        let usual = usual.get(&cell(line)).copied();
        RULES.iter().find_map(|rule| rule.broken(bounds, &line.covariates, usual))
    };
    lines.iter().map(why).collect()
}

/// How long to wait before the next trial, in ns.
#[must_use]
pub fn rest_ns(lines: &[TrialLine]) -> u64 {
    let passes = |why: &Discarded| RULES.iter().any(|rule| rule.passes && rule.name == why.code);
    let met = |line: &&TrialLine| line.discarded.as_ref().is_some_and(passes);
    match lines.iter().rev().take_while(met).count() {
        0 => 0,
        row => REST_FIRST_NS.saturating_mul(1 << (row - 1).min(10)).min(REST_MAX_NS),
    }
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

/// An arm under a load.
fn cell(line: &TrialLine) -> (&str, &str) {
    (&line.place.arm, &line.place.load)
}

/// The median wake-up lag of the first trials of each arm under each load, in nanoseconds. Probes are left
/// out: what counts calls delays.
fn usual_wake_ups(lines: &[TrialLine]) -> BTreeMap<(&str, &str), f64> {
    let mut lags: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.place.kind != Kind::Probe) {
        let of_it = lags.entry(cell(line)).or_default();
        let is_wanted = of_it.len() < WAKE_UP_REFERENCE_TRIALS;
        of_it.extend(line.covariates.wake_up_p99_ns.filter(|_| is_wanted));
    }
    lags.retain(|_, lags| lags.len() == WAKE_UP_REFERENCE_TRIALS);
    let middle = |mut lags: Vec<u64>| {
        lags.sort_unstable();
        lags[lags.len() / 2] as f64
    };
    lags.into_iter().map(|(cell, lags)| (cell, middle(lags))).collect()
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
    fn bursts_are_waited_out_longer_and_longer() {
        let of = |code: &str| {
            let why = Discarded { code: code.to_owned(), text: String::new() };
            let discarded = Some(why).filter(|why| !why.code.is_empty());
            TrialLine { discarded, ..TrialLine::default() }
        };
        let after = |codes: &[&str]| {
            rest_ns(&codes.iter().map(|code| of(code)).collect::<Vec<_>>()) / 1_000_000_000
        };
        assert_eq!((after(&[]), after(&["steal_share", ""])), (0, 0));
        assert_eq!((after(&["", "steal_share"]), after(&["error_share"])), (5, 0));
        assert_eq!(after(&["steal_share", "foreign_cpus", "wake_up_p99_ns"]), 20);
        assert_eq!(after(&["steal_share"; 100]), 60);
    }

    #[test]
    fn a_bound_without_a_rule_is_found() {
        assert_eq!(unknown(&bounds("stele", 1.0)), ["stele"]);
        assert!(unknown(&bounds("steal_share", 1.0)).is_empty());
    }

    #[test]
    fn the_wake_up_lag_is_held_against_the_first_trials_of_its_cell() {
        let of = |arm: &str, ns| {
            let covariates = Covariates { wake_up_p99_ns: Some(ns), ..Covariates::default() };
            let place = Place { block: 1, arm: arm.to_owned(), ..Place::default() };
            TrialLine { place, covariates, ..TrialLine::default() }
        };
        let rule = bounds(WAKE_UP, 2.0);
        let few: Vec<TrialLine> = [10, 10, 10, 90].map(|ns| of("a", ns)).to_vec();
        assert!(decide(&rule, &few).iter().all(Option::is_none), "too few to know what is usual");
        // The fifth decides of the first four too; what comes later decides nothing of them.
        let mut known = few;
        for later in [15, 1000, 1000, 1000] {
            known.push(of("a", later));
            let discarded: Vec<bool> = decide(&rule, &known).iter().map(Option::is_some).collect();
            assert_eq!(discarded[..5], [false, false, false, true, false], "{known:?}");
        }
        let mut many: Vec<TrialLine> = (0..5).map(|_| of("a", 10_000)).collect();
        // What comes after the first five changes nothing about them, and another arm has its own.
        many.extend((0..40).map(|_| of("a", 100_000)));
        many.push(of("a", 19_999));
        many.extend((0..10).map(|_| of("busy", 100_000)));
        let decided = decide(&rule, &many);
        assert!(decided[..5].iter().all(Option::is_none));
        assert!(decided[5..45].iter().all(Option::is_some));
        assert!(decided[45..].iter().all(Option::is_none));
        let text = &decided[5].as_ref().unwrap().text;
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
