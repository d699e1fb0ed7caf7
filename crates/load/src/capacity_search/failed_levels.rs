//! The levels that did not hold, and the limit of the subject at its edge that they show: the limit
//! above the edge, compared with the limit where it held.
//!
//! No I/O. Does not decide whether a level held.

use record::diagnosis::{NONE, UNKNOWN};
use record::run::{Confidence, Diagnosis};
use record::sorted::sort_by;
use record::units::format_count;

/// Maximum ratio of a missed level to the lowest missed one at which both have the same cause.
const SAME_CAUSE_RATIO_MAX: f64 = 1.25;
/// A still higher level also has the same cause if the subject's goodput there differs by at most
/// this fraction: its capacity is the same.
const GOODPUT_TOLERANCE: f64 = 0.1;
/// Levels closer to each other than this fraction are one.
const LEVEL_TOLERANCE: f64 = 0.02;
/// Ratio to the lowest missed level at which a load shows the cause: high enough that requests wait
/// clearly longer, and low enough to have the same cause.
const DIAGNOSIS_RATIO: f64 = 1.2;
const LEVELS_MAX: usize = 24;

/// A run (`R`) that did not hold its level.
#[derive(Clone, Debug)]
pub(super) struct FailedLevel<R> {
    pub(super) level: f64,
    pub(super) goodput_per_s: f64,
    pub(super) reasons: Vec<String>,
    pub(super) run: R,
    pub(super) diagnosis: Option<Diagnosis>,
}

impl<R> FailedLevel<R> {
    fn has_cause(&self) -> bool {
        self.diagnosis.as_ref().is_some_and(names_a_cause)
    }

    fn has_similar_goodput(&self, other: &Self) -> bool {
        (self.goodput_per_s - other.goodput_per_s).abs() <= GOODPUT_TOLERANCE * other.goodput_per_s
    }
}

/// The edge: the verified level, and the verdict of its run.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLevel<'a> {
    pub(super) level: f64,
    pub(super) verdict: &'a str,
}

/// Levels that did not hold, the lowest first.
#[derive(Debug)]
pub(super) struct FailedLevels<R> {
    levels: Vec<FailedLevel<R>>,
}

impl<R> Default for FailedLevels<R> {
    fn default() -> Self {
        Self { levels: Vec::new() }
    }
}

impl<R: Clone> FailedLevels<R> {
    /// Adds a run that did not hold its level.
    pub(super) fn add(&mut self, failed: FailedLevel<R>) {
        let is_same =
            |other: &FailedLevel<R>| (other.level - failed.level).abs() <= LEVEL_TOLERANCE * failed.level;
        match self.levels.iter().position(is_same) {
            Some(at) if self.levels[at].has_cause() && !failed.has_cause() => return,
            Some(at) => drop(self.levels.remove(at)),
            None => {}
        }
        self.levels.push(failed);
        sort_by(&mut self.levels, |a, b| a.level.total_cmp(&b.level));
        if self.levels.len() > LEVELS_MAX {
            let unnamed = self.levels.iter().rposition(|other| !other.has_cause());
            self.levels.remove(unnamed.unwrap_or(LEVELS_MAX));
        }
    }

    /// Returns the lowest level that did not hold.
    pub(super) fn lowest(&self) -> Option<&FailedLevel<R>> {
        self.levels.first()
    }

    /// Returns the level of a load that shows the cause, if a level above the edge was missed and none shows it.
    pub(super) fn diagnosis_level(&self, edge: f64, max_level: f64) -> Option<f64> {
        let (limiting, _) = self.limiting_level(Some(HeldLevel { level: edge, verdict: UNKNOWN }));
        let lowest = limiting.filter(|failed| !failed.has_cause())?;
        let level = (lowest.level * DIAGNOSIS_RATIO).min(max_level);
        (level > lowest.level * (1.0 + LEVEL_TOLERANCE)).then_some(level)
    }

    /// Returns the run whose diagnosis names the limit of the subject at its edge, and a note about
    /// it. Just above the edge, no resource may be at its limit all the time. Then a higher level
    /// names it, if the subject carries no more there. Without such a run the cause is unknown,
    /// although a missed level had one.
    pub(super) fn limiting_level(
        &self,
        held: Option<HeldLevel<'_>>,
    ) -> (Option<FailedLevel<R>>, Option<String>) {
        // A miss below the verified level was chance.
        let above = |failed: &&FailedLevel<R>| held.is_none_or(|held| failed.level > held.level);
        let Some(lowest) = self.levels.iter().find(above) else { return (None, None) };
        let is_same_edge = |failed: &&FailedLevel<R>| {
            failed.level <= lowest.level * SAME_CAUSE_RATIO_MAX || failed.has_similar_goodput(lowest)
        };
        let limited = self.levels.iter().filter(above).filter(is_same_edge);
        let limited = limited.into_iter().find(|failed| failed.has_cause());
        let Some(limited) = limited else {
            let unknown = FailedLevel { diagnosis: Some(unknown_diagnosis(lowest, held)), ..lowest.clone() };
            return (Some(unknown), None);
        };
        let mut limiting = limited.clone();
        if let (Some(diagnosis), Some(held)) = (&mut limiting.diagnosis, held) {
            diagnosis.evidence.push(edge_evidence(held));
        }
        let note = (limited.level > lowest.level).then(|| {
            format!(
                "at {} no resource was saturated; the diagnosis is that of level {}, which reached {}/s",
                format_count(lowest.level),
                format_count(limited.level),
                format_count(limited.goodput_per_s)
            )
        });
        (Some(limiting), note)
    }
}

fn edge_evidence(held: HeldLevel<'_>) -> String {
    format!("at {}, which held, the verdict is {}", format_count(held.level), held.verdict)
}

/// Returns the diagnosis of a missed level without a proven cause.
fn unknown_diagnosis<R>(lowest: &FailedLevel<R>, held: Option<HeldLevel<'_>>) -> Diagnosis {
    let diagnosis = lowest.diagnosis.clone().unwrap_or_default();
    let mut evidence =
        vec![format!("at {}, which did not hold: {}", format_count(lowest.level), lowest.reasons.join("; "))];
    evidence.extend(held.map(edge_evidence));
    Diagnosis {
        verdict: UNKNOWN.to_owned(),
        claim: "the level was missed, and no run above the edge proves the cause".to_owned(),
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

    fn failed_levels(runs: &[(f64, f64, &'static str)]) -> FailedLevels<&'static str> {
        let mut missed = FailedLevels::default();
        for (level, goodput_per_s, verdict) in runs {
            let diagnosis = Diagnosis { verdict: (*verdict).to_owned(), ..Diagnosis::default() };
            let diagnosis = Some(diagnosis);
            let (level, goodput_per_s, reasons) = (*level, *goodput_per_s, vec!["slow".to_owned()]);
            missed.add(FailedLevel { level, goodput_per_s, reasons, run: *verdict, diagnosis });
        }
        missed
    }

    fn verdict(runs: &[(f64, f64, &'static str)], held: f64) -> (Option<String>, bool) {
        let held = HeldLevel { level: held, verdict: NONE };
        let (stopped, note) = failed_levels(runs).limiting_level(Some(held));
        (stopped.map(|failed| failed.diagnosis.unwrap().verdict), note.is_some())
    }

    #[test]
    fn the_lowest_level_above_the_edge_names_the_limit() {
        assert_eq!(verdict(&[], 1.0), (None, false));
        let lower = [(110.0, 99.0, "link_bound"), (100.0, 98.0, "latency_bound")];
        assert_eq!(verdict(&lower, 98.0), (Some("latency_bound".to_owned()), false));
        // A miss below the verified level was chance.
        assert_eq!(verdict(&lower, 105.0), (Some("link_bound".to_owned()), false));
    }

    #[test]
    fn a_level_above_names_the_cause_while_the_subject_carries_no_more() {
        let near = [(200.0, 150.0, "link_bound"), (101.0, 100.0, NONE), (104.0, 90.0, "subject_limited")];
        assert_eq!(verdict(&near, 100.0), (Some("subject_limited".to_owned()), true));
        // A semaphore of 396/s: just above it nothing is proven, and at twice the level it carries
        // the same.
        let plateau = [(397.0, 395.0, NONE), (800.0, 396.0, "subject_limited")];
        assert_eq!(verdict(&plateau, 394.0), (Some("subject_limited".to_owned()), true));
        // Another limit, further up, does not belong to this edge.
        let other = [(397.0, 395.0, NONE), (800.0, 780.0, "link_bound")];
        assert_eq!(verdict(&other, 394.0), (Some(UNKNOWN.to_owned()), false));
    }

    #[test]
    fn a_load_above_the_edge_is_needed_if_no_level_shows_the_cause() {
        let level = |runs, edge, max| failed_levels(runs).diagnosis_level(edge, max);
        let unclear = [(390.0, 380.0, UNKNOWN), (400.0, 384.0, NONE)];
        assert_eq!(level(&unclear, 384.0, 1e9), Some(468.0));
        assert_eq!(level(&unclear, 384.0, 450.0), Some(450.0));
        // The user allows no level above the missed one.
        assert_eq!(level(&unclear, 384.0, 390.0), None);
        assert_eq!(level(&unclear, 400.0, 1e9), None);
        assert_eq!(level(&[(394.0, 382.0, NONE), (800.0, 390.0, "subject_limited")], 384.0, 1e9), None);
    }

    #[test]
    fn a_missed_level_is_never_stopped_by_nothing() {
        let (stopped, _) = failed_levels(&[(397.0, 395.0, NONE)])
            .limiting_level(Some(HeldLevel { level: 394.0, verdict: NONE }));
        let diagnosis = stopped.unwrap().diagnosis.unwrap();
        assert_eq!((diagnosis.verdict.as_str(), diagnosis.confidence), (UNKNOWN, Confidence::None));
        let [missed, held] = &diagnosis.evidence[..] else { panic!("{:?}", diagnosis.evidence) };
        assert!(missed.contains("397") && missed.ends_with(": slow"), "{missed}");
        assert!(held.contains("394") && held.contains(NONE), "{held}");
    }

    #[test]
    fn what_is_kept_is_bounded_and_names_causes() {
        let levels: Vec<_> = (0..100).map(|at| (100.0 * 1.05_f64.powi(at), 1.0, NONE)).collect();
        let mut missed = failed_levels(&levels);
        assert_eq!(missed.levels.len(), LEVELS_MAX);
        let (level, goodput_per_s) = (missed.levels[3].level, 1.0);
        let named = Diagnosis { verdict: "link_bound".to_owned(), ..Diagnosis::default() };
        for diagnosis in [Some(named), None] {
            let reasons = Vec::new();
            missed.add(FailedLevel { level, goodput_per_s, reasons, run: "", diagnosis });
        }
        assert!(missed.levels[3].has_cause());
    }
}
