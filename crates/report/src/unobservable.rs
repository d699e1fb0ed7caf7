//! Missing observations of the trials: figures that a driver does not report, or reports in a way
//! that needs an explanation, and requested probes that could not run. Each is listed once, with
//! the number of its trials. The facts of the machine list the figures that the complete machine
//! lacks.

use std::collections::BTreeMap;

use record::experiment::Experiment;
use record::sorted::sort_by_key;

use super::TrialRecords;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissingObservation {
    /// Name of the observation, with the reason or the explanation.
    pub(super) text: String,
    pub(super) trials: usize,
}

/// Returns all missing observations, the most frequent first.
pub(super) fn missing_observations(
    experiment: &Experiment,
    raw: &dyn TrialRecords,
) -> Vec<MissingObservation> {
    let mut count_by_text: BTreeMap<String, usize> = BTreeMap::new();
    let lines_with_record = experiment.trials.iter().filter(|line| line.failed.is_none());
    for trial in lines_with_record.filter_map(|line| raw.trial(&line.file)) {
        let driver = &trial.driver;
        let notes = driver.notes.iter().map(|note| format!("{}: {note}", driver.program));
        let missing = trial.not_observable.iter().map(|it| format!("{}: {}", it.figure, it.reason));
        let mut texts: Vec<String> = notes.chain(missing).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.into_iter().for_each(|text| *count_by_text.entry(text).or_default() += 1);
    }
    let mut all: Vec<MissingObservation> =
        count_by_text.into_iter().map(|(text, trials)| MissingObservation { text, trials }).collect();
    sort_by_key(&mut all, |observation| std::cmp::Reverse(observation.trials));
    all
}

#[cfg(test)]
mod tests {
    use record::observed::UnobservableMetric;

    use super::*;
    use crate::synthetic::{NoRecords, synthetic_experiment};

    #[test]
    fn each_is_listed_once_with_its_trials() {
        let (experiment, mut raw) = synthetic_experiment();
        assert!(missing_observations(&experiment, &raw).is_empty());
        assert!(missing_observations(&experiment, &NoRecords).is_empty());
        let ran = experiment.trials.iter().filter(|line| line.failed.is_none()).count();
        let first = experiment.trials.iter().find(|line| line.failed.is_none()).unwrap();
        for trial in raw.trials.values_mut() {
            trial.driver.program = "wrk".to_owned();
            trial.driver.notes = vec!["no percentile beyond the 99th".to_owned()];
        }
        let missing = UnobservableMetric { figure: "calls".to_owned(), reason: "no symbol".to_owned() };
        raw.trials.get_mut(&first.file).unwrap().not_observable = vec![missing.clone(), missing];
        let result = missing_observations(&experiment, &raw);
        let texts: Vec<(&str, usize)> =
            result.iter().map(|observation| (observation.text.as_str(), observation.trials)).collect();
        assert_eq!(texts, [("wrk: no percentile beyond the 99th", ran), ("calls: no symbol", 1)]);
    }
}
