//! Decides which trials do not count because of an outside disturbance. Only covariates decide,
//! never a trial's results. Pure, with input from the disk only: a resumed experiment decides like
//! one that ran without a break.
//!
//! The load itself measures one covariate, the fraction of errors. A run with errors is void before
//! anything else is judged. An arm with errors in some trials is judged by its other trials, and
//! [`super::warnings()`] reports it.
//!
//! Not for the consequences for blocks: see [`super::blocks`].

use std::collections::BTreeMap;

use record::experiment::TrialSummary;
use record::observed::format_neighbours;
use record::sorted::CollectSorted;
use record::trial::{Covariates, DiscardReason, TrialKind};
use record::units::format_duration_ns;
use stats::median;

/// Number of first trials of an arm under a load that define its usual wake-up lag, the pilot
/// included. Each arm under each load has its own reference: a busier CPU wakes threads later, and
/// that must not discard an arm's trials. With fewer trials there is no reference, and this rule
/// discards none. The first trials are therefore decided when the last of them has run, and a group
/// that counted until then may have to run again. From then on the reference is fixed, and
/// decisions about trials are final.
pub const WAKE_UP_REFERENCE_TRIALS: usize = 5;
/// Covariate that is compared with its own usual value instead of a fixed bound.
const WAKE_UP_COVARIATE: &str = "wake_up_p99_ns";

/// Part of the latencies that may be the generator's own. It varies from trial to trial as other noise does, and the
/// intervals cover it; a larger part hides what is compared.
const GENERATOR_PART_MAX: f64 = 0.25;

/// First pause after a trial that the machine disturbed. Such disturbances come in bursts of
/// seconds and minutes, and each further disturbed trial in a row doubles the pause.
const PAUSE_FIRST_NS: u64 = 5_000_000_000;
const PAUSE_MAX_NS: u64 = 60_000_000_000;

/// Covariate that may discard a trial.
#[derive(Clone, Copy)]
pub struct DiscardRule {
    /// Name in [`Covariates`] and in a plan's bounds.
    pub name: &'static str,
    /// Description of the covariate and of the unit of its bound.
    pub doc: &'static str,
    format: BoundFormat,
    /// True if the machine causes it, so that it may pass after a while.
    is_transient: bool,
    read: fn(&Covariates) -> Option<f64>,
}

impl std::fmt::Debug for DiscardRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiscardRule").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum BoundFormat {
    Fraction,
    Cpus,
    Nanoseconds,
    Seconds,
    /// Multiple of the usual value, which is in nanoseconds.
    Ratio,
}

/// All covariates that may discard a trial.
pub const RULES: &[DiscardRule] = &[
    DiscardRule {
        name: "steal_fraction",
        doc: "fraction of CPU time that the hypervisor gave to other virtual machines",
        format: BoundFormat::Fraction,
        is_transient: true,
        read: |it| it.steal_fraction,
    },
    DiscardRule {
        name: "foreign_cpus",
        doc: "CPUs used by other processes",
        format: BoundFormat::Cpus,
        is_transient: true,
        read: |it| it.foreign_cpus,
    },
    DiscardRule {
        name: WAKE_UP_COVARIATE,
        doc: "wake-up lag of a sleeping thread (99 %), as a multiple of its usual value for this arm and load",
        format: BoundFormat::Ratio,
        is_transient: true,
        read: |it| it.wake_up_p99_ns.map(|ns| ns as f64),
    },
    DiscardRule {
        name: "generator_lag_p99_ns",
        doc: "load generator lag (99 %)",
        format: BoundFormat::Nanoseconds,
        is_transient: false,
        // A lag counts by its part of the latencies, where that was measured.
        read: |it| {
            let is_small = it.generator_part_fraction.is_some_and(|part| part <= GENERATOR_PART_MAX);
            it.generator_lag_p99_ns.filter(|_| !is_small).map(|ns| ns as f64)
        },
    },
    DiscardRule {
        name: "generator_busiest_fraction",
        doc: "fraction of a CPU that the load generator's busiest thread used",
        format: BoundFormat::Fraction,
        is_transient: false,
        read: |it| it.generator_busiest_fraction,
    },
    DiscardRule {
        name: "error_fraction",
        doc: "fraction of requests that failed or had a status of 400 or above",
        format: BoundFormat::Fraction,
        is_transient: false,
        read: |it| it.error_fraction,
    },
    DiscardRule {
        name: "throttled_fraction",
        doc: "fraction of quota periods in which the subject was throttled",
        format: BoundFormat::Fraction,
        is_transient: false,
        read: |it| it.throttled_fraction,
    },
    DiscardRule {
        name: "clock_step_s",
        doc: "step of the wall clock",
        format: BoundFormat::Seconds,
        is_transient: false,
        read: |it| it.clock_step_s.map(f64::abs),
    },
];

/// Returns the bounds without a rule. A plan with such bounds is rejected: they would have no
/// effect.
pub fn unknown_names(bounds: &BTreeMap<String, f64>) -> Vec<String> {
    let is_known = |name: &str| RULES.iter().any(|rule| rule.name == name);
    bounds.keys().filter(|name| !is_known(name)).cloned().collect()
}

/// Returns the bound of a covariate, in the covariate's unit, if it is the same for all trials.
/// `None` for a covariate that is compared with the usual value of each arm and load.
pub fn limit(bounds: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    let rule = RULES.iter().find(|rule| rule.name == name && rule.format != BoundFormat::Ratio)?;
    bounds.get(rule.name).copied()
}

pub fn describe_bounds(bounds: &BTreeMap<String, f64>) -> Vec<String> {
    let description = |rule: &DiscardRule| {
        let bound = bounds.get(rule.name)?;
        Some(format!("{}: {}", rule.doc, rule.format.format(*bound)))
    };
    RULES.iter().filter_map(description).collect()
}

/// Returns the reason why each trial is discarded, in the order of `lines`. Pilots, probes
/// and failed trials are never discarded: they have no results that count.
pub fn discard_reasons(bounds: &BTreeMap<String, f64>, lines: &[TrialSummary]) -> Vec<Option<DiscardReason>> {
    let usual = median_wake_up_lags(lines);
    let reason_for = |line: &TrialSummary| {
        if line.position.kind != TrialKind::Judged || line.failed.is_some() {
            return None;
        }
        let usual = usual.get(&cell_key(line)).copied();
        RULES.iter().find_map(|rule| rule.check(bounds, &line.covariates, usual))
    };
    lines.iter().map(reason_for).collect()
}

/// Returns the pause before the next trial, in ns.
pub fn pause_ns(lines: &[TrialSummary]) -> u64 {
    let passes =
        |reason: &DiscardReason| RULES.iter().any(|rule| rule.is_transient && rule.name == reason.code);
    let met = |line: &&TrialSummary| line.discarded.as_ref().is_some_and(passes);
    match lines.iter().rev().take_while(met).count() {
        0 => 0,
        row => PAUSE_FIRST_NS.saturating_mul(1 << (row - 1).min(10)).min(PAUSE_MAX_NS),
    }
}

impl DiscardRule {
    /// Returns whether other programs are a cause of the disturbance.
    fn is_about_neighbours(&self) -> bool {
        ["foreign_cpus", WAKE_UP_COVARIATE, "generator_lag_p99_ns"].contains(&self.name)
    }

    fn check(
        &self,
        bounds: &BTreeMap<String, f64>,
        covariates: &Covariates,
        usual_wake_up: Option<f64>,
    ) -> Option<DiscardReason> {
        let bound = *bounds.get(self.name)?;
        let value = (self.read)(covariates)?;
        let limit = if self.format == BoundFormat::Ratio { bound * usual_wake_up? } else { bound };
        if value <= limit {
            return None;
        }
        let text = match self.format {
            BoundFormat::Ratio => format!(
                "{}: {}, {:.1} times the usual {}; bound {bound}",
                self.doc,
                format_duration_ns(value as u64),
                value / usual_wake_up?,
                format_duration_ns(usual_wake_up? as u64)
            ),
            form => format!("{}: {}; bound {}", self.doc, form.format(value), form.format(bound)),
        };
        let named = match self.is_about_neighbours() {
            true => format_neighbours(&covariates.neighbours),
            false => String::new(),
        };
        let text = if named.is_empty() { text } else { format!("{text} (CPUs of the busiest: {named})") };
        Some(DiscardReason { code: self.name.to_owned(), text })
    }
}

impl BoundFormat {
    fn format(self, value: f64) -> String {
        match self {
            Self::Fraction => format!("{:.2} %", value * 100.0),
            Self::Cpus => format!("{value:.3}"),
            Self::Nanoseconds => format_duration_ns(value as u64),
            Self::Seconds => format!("{value:.3} s"),
            Self::Ratio => format!("{value:.1}"),
        }
    }
}

fn cell_key(line: &TrialSummary) -> (&str, &str) {
    (&line.position.arm, &line.position.load)
}

/// Computes the median wake-up lag of the first trials of each arm under each load, in nanoseconds.
/// Probes are excluded: counting calls adds delays.
fn median_wake_up_lags(lines: &[TrialSummary]) -> BTreeMap<(&str, &str), f64> {
    let mut lags: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.position.kind != TrialKind::Probe) {
        let cell_lags = lags.entry(cell_key(line)).or_default();
        let is_wanted = cell_lags.len() < WAKE_UP_REFERENCE_TRIALS;
        cell_lags.extend(line.covariates.wake_up_p99_ns.filter(|_| is_wanted).map(|ns| ns as f64));
    }
    lags.retain(|_, lags| lags.len() == WAKE_UP_REFERENCE_TRIALS);
    lags.into_iter().filter_map(|(cell, lags)| Some((cell, median(&lags)?))).collect_map()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::observed::Neighbour;
    use record::trial::TrialPosition;

    fn line(covariates: Covariates) -> TrialSummary {
        let position = TrialPosition { block: 1, ..TrialPosition::default() };
        TrialSummary { position, covariates, ..TrialSummary::default() }
    }

    fn bounds(name: &str, bound: f64) -> BTreeMap<String, f64> {
        BTreeMap::from([(name.to_owned(), bound)])
    }

    #[test]
    fn a_lag_that_is_a_small_part_of_the_latencies_discards_nothing() {
        let discarded = |part| {
            let covariates = Covariates {
                generator_lag_p99_ns: Some(1_500_000),
                generator_part_fraction: part,
                ..Covariates::default()
            };
            discard_reasons(&bounds("generator_lag_p99_ns", 1e6), &[line(covariates)])[0].is_some()
        };
        assert_eq!([None, Some(0.26), Some(0.25), Some(0.0)].map(discarded), [true, true, false, false]);
    }

    #[test]
    fn every_rule_has_a_field_a_doc_and_decides() {
        for (at, rule) in RULES.iter().enumerate() {
            assert!(RULES[..at].iter().all(|other| other.name != rule.name));
            assert!(!rule.doc.is_empty() && !rule.doc.ends_with('.'));
            // The name is that of a field: deserializing it gives the value.
            let text = format!("{{\"{}\": 2000}}", rule.name);
            let covariates: Covariates = serde_json::from_str(&text).unwrap();
            assert_eq!((rule.read)(&covariates), Some(2000.0), "{}", rule.name);
            let usual = Some(1000.0);
            let times = rule.format == BoundFormat::Ratio;
            let (above, below) = if times { (1.5, 2.5) } else { (1999.0, 2000.0) };
            let broken = rule.check(&bounds(rule.name, above), &covariates, usual).unwrap();
            assert_eq!(broken.code, rule.name);
            assert!(broken.text.contains("bound"), "{}", broken.text);
            assert_eq!(rule.check(&bounds(rule.name, below), &covariates, usual), None);
            assert_eq!(rule.check(&BTreeMap::new(), &covariates, usual), None);
            assert_eq!(rule.check(&bounds(rule.name, 0.0), &Covariates::default(), usual), None);
        }
    }

    #[test]
    fn a_discard_for_other_programs_names_them() {
        let neighbour = |name: &str, cpus| Neighbour { name: name.to_owned(), cpus };
        let covariates = Covariates {
            foreign_cpus: Some(1.5),
            steal_fraction: Some(0.1),
            neighbours: vec![neighbour("cc1", 1.1), neighbour("children of make", 0.3)],
            ..Covariates::default()
        };
        let text = |name: &str| {
            let reasons = discard_reasons(&bounds(name, 0.05), &[line(covariates.clone())]);
            reasons[0].as_ref().unwrap().text.clone()
        };
        let foreign = text("foreign_cpus");
        assert!(foreign.ends_with("(CPUs of the busiest: cc1 1.10, children of make 0.30)"), "{foreign}");
        assert!(!text("steal_fraction").contains("cc1"), "the hypervisor's");
    }

    #[test]
    fn pauses_after_bursts_grow() {
        let discarded_line = |code: &str| {
            let reason = DiscardReason { code: code.to_owned(), text: String::new() };
            let discarded = Some(reason).filter(|why| !why.code.is_empty());
            TrialSummary { discarded, ..TrialSummary::default() }
        };
        let after = |codes: &[&str]| {
            pause_ns(&codes.iter().map(|code| discarded_line(code)).collect::<Vec<_>>()) / 1_000_000_000
        };
        assert_eq!((after(&[]), after(&["steal_fraction", ""])), (0, 0));
        assert_eq!((after(&["", "steal_fraction"]), after(&["error_fraction"])), (5, 0));
        assert_eq!(after(&["steal_fraction", "foreign_cpus", "wake_up_p99_ns"]), 20);
        assert_eq!(after(&["steal_fraction"; 100]), 60);
    }

    #[test]
    fn a_bound_without_a_rule_is_found() {
        assert_eq!(unknown_names(&bounds("stele", 1.0)), ["stele"]);
        assert!(unknown_names(&bounds("steal_fraction", 1.0)).is_empty());
    }

    #[test]
    fn the_wake_up_lag_is_compared_with_the_first_trials_of_its_cell() {
        let trial = |arm: &str, ns| {
            let covariates = Covariates { wake_up_p99_ns: Some(ns), ..Covariates::default() };
            let position = TrialPosition { block: 1, arm: arm.to_owned(), ..TrialPosition::default() };
            TrialSummary { position, covariates, ..TrialSummary::default() }
        };
        let rule = bounds(WAKE_UP_COVARIATE, 2.0);
        let few: Vec<TrialSummary> = [10, 10, 10, 90].map(|ns| trial("a", ns)).to_vec();
        assert!(discard_reasons(&rule, &few).iter().all(Option::is_none), "too few to know the usual value");
        // The fifth trial decides the first four too. Later trials do not affect them.
        let mut trials = few;
        for later in [15, 1000, 1000, 1000] {
            trials.push(trial("a", later));
            let discarded: Vec<bool> = discard_reasons(&rule, &trials).iter().map(Option::is_some).collect();
            assert_eq!(discarded[..5], [false, false, false, true, false], "{trials:?}");
        }
        let mut many: Vec<TrialSummary> = (0..5).map(|_| trial("a", 10_000)).collect();
        // Trials after the first five do not affect those five. Another arm has its own reference.
        many.extend((0..40).map(|_| trial("a", 100_000)));
        many.push(trial("a", 19_999));
        many.extend((0..10).map(|_| trial("busy", 100_000)));
        let decided = discard_reasons(&rule, &many);
        assert!(decided[..5].iter().all(Option::is_none));
        assert!(decided[5..45].iter().all(Option::is_some));
        assert!(decided[45..].iter().all(Option::is_none));
        let reason = decided[5].as_ref().unwrap();
        assert_eq!(reason.code, WAKE_UP_COVARIATE);
        assert!(["100 µs", " 10.0 ", "10.0 µs"].iter().all(|part| reason.text.contains(part)), "{reason:?}");
    }

    #[test]
    fn results_decide_nothing_and_pilots_are_not_discarded() {
        let rule = bounds("steal_fraction", 0.02);
        let stolen = Covariates { steal_fraction: Some(0.03), ..Covariates::default() };
        let mut lines = vec![line(stolen.clone()), line(Covariates::default()), line(stolen)];
        lines[1].metrics.insert("responses_per_s".to_owned(), 0.0);
        lines[2].position.kind = TrialKind::Pilot;
        let decided = discard_reasons(&rule, &lines);
        let reason = decided[0].as_ref().unwrap();
        assert!(reason.text.contains("3.00 %") && reason.text.contains("2.00 %"), "{reason:?}");
        assert_eq!(decided[1..], [None, None]);
    }
}
