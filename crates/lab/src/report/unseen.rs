//! What the trials say that they could not see: what a driver does not tell, or tells in a way that has to
//! be known to read it, and what was asked for and could not be looked at. Each once, with how many trials
//! say it.
//! Not for what the machine as a whole does not tell: that is among its facts.

use std::collections::BTreeMap;

use record::experiment::Experiment;

use super::Raw;

/// One thing that was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unseen {
    /// What, and why or in which way.
    pub(super) text: String,
    /// How many trials say so.
    pub(super) trials: usize,
}

/// All of it, what most trials say first.
#[must_use]
pub(super) fn unseen(experiment: &Experiment, raw: &dyn Raw) -> Vec<Unseen> {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let ran = experiment.trials.iter().filter(|line| line.failed.is_none());
    for trial in ran.filter_map(|line| raw.trial(&line.file)) {
        let driver = &trial.driver;
        let notes = driver.notes.iter().map(|note| format!("{}: {note}", driver.program));
        let missing = trial.not_observable.iter().map(|it| format!("{}: {}", it.what, it.why));
        let mut texts: Vec<String> = notes.chain(missing).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.into_iter().for_each(|text| *found.entry(text).or_default() += 1);
    }
    let mut all: Vec<Unseen> =
        found.into_iter().map(|(text, trials)| Unseen { text, trials }).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.trials));
    all
}

#[cfg(test)]
mod tests {
    use record::observed::Missing;

    use super::*;
    use crate::report::sample::{NoRaw, sample};

    #[test]
    fn each_is_said_once_with_its_trials() {
        let (experiment, mut raw) = sample();
        assert!(unseen(&experiment, &raw).is_empty());
        assert!(unseen(&experiment, &NoRaw).is_empty());
        let ran = experiment.trials.iter().filter(|line| line.failed.is_none()).count();
        let first = experiment.trials.iter().find(|line| line.failed.is_none()).unwrap();
        for trial in raw.trials.values_mut() {
            trial.driver.program = "wrk".to_owned();
            trial.driver.notes = vec!["no percentile beyond the 99th".to_owned()];
        }
        let missing = Missing { what: "calls".to_owned(), why: "no symbol".to_owned() };
        raw.trials.get_mut(&first.file).unwrap().not_observable = vec![missing.clone(), missing];
        let found = unseen(&experiment, &raw);
        let texts: Vec<(&str, usize)> =
            found.iter().map(|one| (one.text.as_str(), one.trials)).collect();
        assert_eq!(texts, [("wrk: no percentile beyond the 99th", ran), ("calls: no symbol", 1)]);
    }
}
