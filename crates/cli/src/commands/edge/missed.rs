//! What is known of the levels that did not hold: which was the lowest, and what stopped the subject there.
//!
//! Pure. Not for deciding whether a level held.

use lab::diagnosis::verdicts::{NONE, UNKNOWN};
use record::run::Diagnosis;

/// A level so many times as high as the lowest that did not hold is stopped by the same thing still.
const SAME_EDGE_MAX: f64 = 1.25;

/// Runs (`R`) that did not hold their level.
#[derive(Debug)]
pub(super) struct Missed<R> {
    /// The one at the lowest level.
    pub(super) lowest: Option<(f64, R)>,
    lowest_diagnosis: Option<Diagnosis>,
    /// The lowest whose diagnosis names a cause.
    named: Option<(f64, Diagnosis)>,
}

impl<R> Default for Missed<R> {
    fn default() -> Self {
        Self { lowest: None, lowest_diagnosis: None, named: None }
    }
}

impl<R> Missed<R> {
    /// Takes a run that did not hold `level`.
    pub(super) fn add(&mut self, level: f64, run: R, diagnosis: Option<Diagnosis>) {
        if let Some(cause) = diagnosis.clone().filter(names_a_cause)
            && self.named.as_ref().is_none_or(|(named, _)| level <= *named)
        {
            self.named = Some((level, cause));
        }
        if self.lowest.as_ref().is_none_or(|(lowest, _)| level <= *lowest) {
            self.lowest = Some((level, run));
            self.lowest_diagnosis = diagnosis;
        }
    }

    /// What stops the subject at its edge, and what has to be said of it. What holds shows no limit; what
    /// comes next does, unless it is so near that nothing was at its limit all the time: then the next.
    pub(super) fn stopped_by(&self) -> (Option<Diagnosis>, Option<String>) {
        let Some((level, _)) = &self.lowest else { return (None, None) };
        match (&self.lowest_diagnosis, &self.named) {
            (Some(own), _) if names_a_cause(own) => (Some(own.clone()), None),
            (_, Some((named, diagnosis))) if *named <= level * SAME_EDGE_MAX => {
                let note = format!(
                    "at {level:.0} nothing was at its limit all the time; what stops it there is what \
                     was at {named:.0}"
                );
                (Some(diagnosis.clone()), Some(note))
            }
            (own, _) => (own.clone(), None),
        }
    }
}

fn names_a_cause(diagnosis: &Diagnosis) -> bool {
    ![NONE, UNKNOWN].contains(&diagnosis.verdict.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped_by(runs: &[(f64, &str)]) -> (Option<String>, bool) {
        let mut missed = Missed::default();
        for (level, verdict) in runs {
            let verdict = (*verdict).to_owned();
            missed.add(*level, (), Some(Diagnosis { verdict, ..Diagnosis::default() }));
        }
        let (diagnosis, note) = missed.stopped_by();
        (diagnosis.map(|one| one.verdict), note.is_some())
    }

    #[test]
    fn the_lowest_level_says_what_stops_it_unless_it_is_too_near_to_say() {
        assert_eq!(stopped_by(&[]), (None, false));
        let near = [(200.0, "link_bound"), (101.0, NONE), (104.0, "single_thread_bound")];
        assert_eq!(stopped_by(&near), (Some("single_thread_bound".to_owned()), true));
        assert_eq!(stopped_by(&[(9.0, "link_bound"), (4.0, NONE)]), (Some(NONE.to_owned()), false));
        let lower = [(110.0, "link_bound"), (100.0, "latency_bound")];
        assert_eq!(stopped_by(&lower), (Some("latency_bound".to_owned()), false));
    }
}
