//! The levels that did not hold, and from them what stopped the subject at its edge: what limited it above
//! the edge, against what limited it where it held.
//!
//! Pure. Not for deciding whether a level held.

use lab::diagnosis::verdicts::{NONE, UNKNOWN};
use record::run::{Confidence, Diagnosis};
use record::units::format_count;

/// A level up to this many times the lowest that did not hold is stopped by the same thing.
const SAME_EDGE_MAX: f64 = 1.25;
/// So is one further above at which the subject carries as much, to this share: its capacity is the same.
const SAME_GOODPUT: f64 = 0.1;
/// Levels this near to each other, as a share, are one.
const SAME_LEVEL: f64 = 0.02;
/// So many levels are kept.
const LEVELS_MAX: usize = 24;

/// A run (`R`) that did not hold its level.
#[derive(Clone, Debug)]
pub(super) struct Miss<R> {
    pub(super) level: f64,
    pub(super) goodput_per_s: f64,
    /// Why the level was missed.
    pub(super) reasons: Vec<String>,
    pub(super) run: R,
    pub(super) diagnosis: Option<Diagnosis>,
}

impl<R> Miss<R> {
    fn names_a_cause(&self) -> bool {
        self.diagnosis.as_ref().is_some_and(names_a_cause)
    }

    fn carries_as_much_as(&self, other: &Self) -> bool {
        (self.goodput_per_s - other.goodput_per_s).abs() <= SAME_GOODPUT * other.goodput_per_s
    }
}

/// The edge: the level that was verified, and the verdict of its run.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLevel<'a> {
    pub(super) level: f64,
    pub(super) verdict: &'a str,
}

/// The levels that did not hold, the lowest first.
#[derive(Debug)]
pub(super) struct Missed<R> {
    levels: Vec<Miss<R>>,
}

impl<R> Default for Missed<R> {
    fn default() -> Self {
        Self { levels: Vec::new() }
    }
}

impl<R: Clone> Missed<R> {
    /// Takes a run that did not hold its level.
    pub(super) fn add(&mut self, miss: Miss<R>) {
        let is_same = |kept: &Miss<R>| (kept.level - miss.level).abs() <= SAME_LEVEL * miss.level;
        match self.levels.iter().position(is_same) {
            Some(at) if self.levels[at].names_a_cause() && !miss.names_a_cause() => return,
            Some(at) => drop(self.levels.remove(at)),
            None => {}
        }
        self.levels.push(miss);
        self.levels.sort_by(|a, b| a.level.total_cmp(&b.level));
        if self.levels.len() > LEVELS_MAX {
            let unnamed = self.levels.iter().rposition(|kept| !kept.names_a_cause());
            self.levels.remove(unnamed.unwrap_or(LEVELS_MAX));
        }
    }

    /// The lowest level that did not hold.
    pub(super) fn lowest(&self) -> Option<&Miss<R>> {
        self.levels.first()
    }

    /// The run whose diagnosis says what stops the subject at its edge, and a note about it. Just above the
    /// edge nothing may be at its limit all the time; then a level further above names it, if the subject
    /// carries no more there. Without any, the cause is unknown: a level that was missed had one.
    pub(super) fn stopped_by(
        &self,
        held: Option<HeldLevel<'_>>,
    ) -> (Option<Miss<R>>, Option<String>) {
        // A miss below the level that was verified was chance.
        let above = |miss: &&Miss<R>| held.is_none_or(|held| miss.level > held.level);
        let Some(lowest) = self.levels.iter().find(above) else { return (None, None) };
        let is_same_edge = |miss: &&Miss<R>| {
            miss.level <= lowest.level * SAME_EDGE_MAX || miss.carries_as_much_as(lowest)
        };
        let named = self.levels.iter().filter(above).filter(is_same_edge);
        let named = named.into_iter().find(|miss| miss.names_a_cause());
        let Some(named) = named else {
            let unknown = Miss { diagnosis: Some(unknown(lowest, held)), ..lowest.clone() };
            return (Some(unknown), None);
        };
        let mut stopped = named.clone();
        if let (Some(diagnosis), Some(held)) = (&mut stopped.diagnosis, held) {
            diagnosis.evidence.push(at_the_edge(held));
        }
        let note = (named.level > lowest.level).then(|| {
            format!(
                "at {} nothing was at its limit all the time; what stops it there is what was at {}, where \
                 it carries {}/s",
                format_count(lowest.level),
                format_count(named.level),
                format_count(named.goodput_per_s)
            )
        });
        (Some(stopped), note)
    }
}

fn at_the_edge(held: HeldLevel<'_>) -> String {
    format!("at {}, which held, the verdict is {}", format_count(held.level), held.verdict)
}

/// The diagnosis of a level that was missed for no proven cause.
fn unknown<R>(lowest: &Miss<R>, held: Option<HeldLevel<'_>>) -> Diagnosis {
    let diagnosis = lowest.diagnosis.clone().unwrap_or_default();
    let mut evidence = vec![format!(
        "at {}, which did not hold: {}",
        format_count(lowest.level),
        lowest.reasons.join("; ")
    )];
    evidence.extend(held.map(at_the_edge));
    Diagnosis {
        verdict: UNKNOWN.to_owned(),
        claim: "the level was missed, and no run above the edge proves by what".to_owned(),
        confidence: Confidence::None,
        evidence,
        ..diagnosis
    }
}

fn names_a_cause(diagnosis: &Diagnosis) -> bool {
    ![NONE, UNKNOWN].contains(&diagnosis.verdict.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(runs: &[(f64, f64, &'static str)]) -> Missed<&'static str> {
        let mut missed = Missed::default();
        for (level, goodput_per_s, verdict) in runs {
            let diagnosis = Diagnosis { verdict: (*verdict).to_owned(), ..Diagnosis::default() };
            let diagnosis = Some(diagnosis);
            let (level, goodput_per_s, reasons) = (*level, *goodput_per_s, vec!["slow".to_owned()]);
            missed.add(Miss { level, goodput_per_s, reasons, run: *verdict, diagnosis });
        }
        missed
    }

    fn verdict(runs: &[(f64, f64, &'static str)], held: f64) -> (Option<String>, bool) {
        let held = HeldLevel { level: held, verdict: NONE };
        let (stopped, note) = missed(runs).stopped_by(Some(held));
        (stopped.map(|one| one.diagnosis.unwrap().verdict), note.is_some())
    }

    #[test]
    fn the_lowest_level_above_the_edge_says_what_stops_it() {
        assert_eq!(verdict(&[], 1.0), (None, false));
        let lower = [(110.0, 99.0, "link_bound"), (100.0, 98.0, "latency_bound")];
        assert_eq!(verdict(&lower, 98.0), (Some("latency_bound".to_owned()), false));
        // A miss below what was verified was chance.
        assert_eq!(verdict(&lower, 105.0), (Some("link_bound".to_owned()), false));
    }

    #[test]
    fn a_level_above_names_the_cause_while_the_subject_carries_no_more() {
        let near =
            [(200.0, 150.0, "link_bound"), (101.0, 100.0, NONE), (104.0, 90.0, "subject_limited")];
        assert_eq!(verdict(&near, 100.0), (Some("subject_limited".to_owned()), true));
        // A semaphore of 396/s: just above it nothing is proven, and at twice as much it carries the same.
        let plateau = [(397.0, 395.0, NONE), (800.0, 396.0, "subject_limited")];
        assert_eq!(verdict(&plateau, 394.0), (Some("subject_limited".to_owned()), true));
        // Another limit, further up, is none of this edge.
        let other = [(397.0, 395.0, NONE), (800.0, 780.0, "link_bound")];
        assert_eq!(verdict(&other, 394.0), (Some(UNKNOWN.to_owned()), false));
    }

    #[test]
    fn a_missed_level_is_never_stopped_by_nothing() {
        let (stopped, _) = missed(&[(397.0, 395.0, NONE)])
            .stopped_by(Some(HeldLevel { level: 394.0, verdict: NONE }));
        let diagnosis = stopped.unwrap().diagnosis.unwrap();
        assert_eq!((diagnosis.verdict.as_str(), diagnosis.confidence), (UNKNOWN, Confidence::None));
        let evidence =
            ["at 397, which did not hold: slow", "at 394, which held, the verdict is none"];
        assert_eq!(diagnosis.evidence, evidence);
    }

    #[test]
    fn what_is_kept_is_bounded_and_names_causes() {
        let many: Vec<_> = (0..100).map(|at| (100.0 * 1.05_f64.powi(at), 1.0, NONE)).collect();
        let mut missed = missed(&many);
        assert_eq!(missed.levels.len(), LEVELS_MAX);
        let (level, goodput_per_s) = (missed.levels[3].level, 1.0);
        let named = Diagnosis { verdict: "link_bound".to_owned(), ..Diagnosis::default() };
        for diagnosis in [Some(named), None] {
            let reasons = Vec::new();
            missed.add(Miss { level, goodput_per_s, reasons, run: "", diagnosis });
        }
        assert!(missed.levels[3].names_a_cause());
    }
}
