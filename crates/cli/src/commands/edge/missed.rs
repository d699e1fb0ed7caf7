//! What is known of the levels that did not hold: which was the lowest, and what stopped the subject there.
//!
//! Pure. Not for deciding whether a level held.

use lab::diagnosis::verdicts::{NONE, UNKNOWN};
use record::run::Diagnosis;

/// A level so many times as high as the lowest that did not hold is stopped by the same thing still.
const SAME_EDGE_MAX: f64 = 1.25;

/// A run (`R`) that did not hold its level.
#[derive(Clone, Debug)]
pub(super) struct Miss<R> {
    pub(super) level: f64,
    pub(super) run: R,
    pub(super) diagnosis: Option<Diagnosis>,
}

/// Those that are kept.
#[derive(Debug)]
pub(super) struct Missed<R> {
    /// The one at the lowest level.
    pub(super) lowest: Option<Miss<R>>,
    /// The lowest whose diagnosis names a cause.
    named: Option<Miss<R>>,
}

impl<R> Default for Missed<R> {
    fn default() -> Self {
        Self { lowest: None, named: None }
    }
}

impl<R: Clone> Missed<R> {
    /// Takes a run that did not hold its level.
    pub(super) fn add(&mut self, miss: Miss<R>) {
        let is_below =
            |kept: &Option<Miss<R>>| kept.as_ref().is_none_or(|kept| miss.level <= kept.level);
        if miss.diagnosis.as_ref().is_some_and(names_a_cause) && is_below(&self.named) {
            self.named = Some(miss.clone());
        }
        if is_below(&self.lowest) {
            self.lowest = Some(miss);
        }
    }

    /// The run whose diagnosis says what stops the subject at its edge, and what has to be said of it. What
    /// holds shows no limit; what comes next does, unless it is so near that nothing was at its limit all
    /// the time: then the next.
    pub(super) fn stopped_by(&self) -> (Option<Miss<R>>, Option<String>) {
        let Some(lowest) = &self.lowest else { return (None, None) };
        match &self.named {
            _ if lowest.diagnosis.as_ref().is_some_and(names_a_cause) => {
                (Some(lowest.clone()), None)
            }
            Some(named) if named.level <= lowest.level * SAME_EDGE_MAX => {
                let note = format!(
                    "at {:.0} nothing was at its limit all the time; what stops it there is what was at \
                     {:.0}",
                    lowest.level, named.level
                );
                (Some(named.clone()), Some(note))
            }
            _ => (Some(lowest.clone()), None),
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
            let diagnosis = Diagnosis { verdict: (*verdict).to_owned(), ..Diagnosis::default() };
            missed.add(Miss { level: *level, run: *verdict, diagnosis: Some(diagnosis) });
        }
        let (stopped, note) = missed.stopped_by();
        let verdict = stopped.map(|one| {
            let verdict = one.diagnosis.unwrap().verdict;
            assert_eq!(one.run, verdict, "the run is the one that was diagnosed");
            verdict
        });
        (verdict, note.is_some())
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
