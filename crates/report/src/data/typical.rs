//! Typical trials, for charts that can show only one trial of an arm: for each arm under each load,
//! the counting trial whose primary metric is the median. The judge uses all trials.

use record::experiment::{Experiment, TrialSummary};
use record::observed::MachineObservation;
use record::sorted::sort_by;
use record::trial::ExperimentTrial;

use super::trials::{counted_trials, has_several_loads};
use crate::TrialRecords;
use crate::data_table::cells;

/// Maximum number of arms under loads that are shown: each needs a record to read and draw.
pub(crate) const SHOWN_MAX: usize = 12;

/// A typical trial of an arm under a load.
#[derive(Debug)]
pub(crate) struct TypicalTrial<'a> {
    pub(crate) line: &'a TrialSummary,
    pub(crate) trial: ExperimentTrial,
}

impl TypicalTrial<'_> {
    pub(crate) fn arm(&self) -> &str {
        &self.line.position.arm
    }

    /// Returns its load, arm and number, the first cells of its rows in the data.
    pub(crate) fn key_cells(&self) -> Vec<String> {
        let position = &self.line.position;
        cells(&[&position.load, &position.arm, &position.number])
    }

    /// Returns the observations of the machines during the trial.
    pub(crate) fn observed(&self) -> impl Iterator<Item = &MachineObservation> {
        let run_observations = self.trial.run.iter().flat_map(|run| &run.observed);
        run_observations.chain(&self.trial.observed)
    }
}

/// Typical trials of one load, one for each arm.
#[derive(Debug)]
pub(crate) struct LoadGroup<'a> {
    pub(crate) load: &'a str,
    /// Trials in the order of the arms.
    pub(crate) trials: Vec<TypicalTrial<'a>>,
}

/// Typical trials by load, and notes on omissions.
#[derive(Debug, Default)]
pub(crate) struct TypicalTrials<'a> {
    /// Loads that have at least one typical trial.
    pub(crate) groups: Vec<LoadGroup<'a>>,
    pub(crate) notes: Vec<String>,
}

impl<'a> TypicalTrials<'a> {
    pub(crate) fn trials(&self) -> Vec<&TypicalTrial<'a>> {
        self.groups.iter().flat_map(|group| &group.trials).collect()
    }
}

pub(crate) fn primary_value(experiment: &Experiment, line: &TrialSummary) -> Option<f64> {
    let name = &experiment.plan.primary()?.name;
    line.metrics.get(name).copied().filter(|value| value.is_finite())
}

/// Returns the typical trials of all arms but the A/A one, which repeats the baseline.
pub(crate) fn typical_trials<'a>(experiment: &'a Experiment, raw: &dyn TrialRecords) -> TypicalTrials<'a> {
    let mut trial_groups = TypicalTrials::default();
    let (mut shown, mut left_out, mut unread) = (0, 0, 0);
    for load in &experiment.plan.loads {
        let mut group = LoadGroup { load: &load.name, trials: Vec::new() };
        for arm in experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()) {
            let of = counted_trials(experiment, &arm.name, &load.name);
            let Some(line) = median_trial(experiment, &of) else { continue };
            if shown == SHOWN_MAX {
                left_out += 1;
                continue;
            }
            match raw.trial(&line.file) {
                Some(trial) => group.trials.push(TypicalTrial { line, trial }),
                None => unread += 1,
            }
            shown += 1;
        }
        if !group.trials.is_empty() {
            trial_groups.groups.push(group);
        }
    }
    if left_out > 0 {
        trial_groups.notes.push(format!(
            "Not drawn: {} of arm and load; the trials are in the directory.",
            experiment::format::count(left_out, "more pair")
        ));
    }
    if unread > 0 {
        trial_groups.notes.push(format!("Records that could not be read: {unread}."));
    }
    trial_groups
}

/// Returns the median trial by the primary metric; if no trial has it, the first.
fn median_trial<'a>(experiment: &Experiment, lines: &[&'a TrialSummary]) -> Option<&'a TrialSummary> {
    let mut by_value: Vec<(f64, &TrialSummary)> =
        lines.iter().filter_map(|&line| primary_value(experiment, line).map(|value| (value, line))).collect();
    sort_by(&mut by_value, |a, b| a.0.total_cmp(&b.0));
    let middle = by_value.get(by_value.len().saturating_sub(1) / 2);
    middle.map(|(_, line)| *line).or_else(|| lines.first().copied())
}

/// Returns the heading of one trial: arm, load if there are several, and number of the trial.
pub(crate) fn heading(experiment: &Experiment, typical: &TypicalTrial<'_>) -> String {
    let position = &typical.line.position;
    match has_several_loads(&experiment.plan) {
        true => format!("{}, {} (trial {})", position.arm, position.load, position.number),
        false => format!("{} (trial {})", position.arm, position.number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{LOADS, NoRecords, SECONDS, synthetic_experiment};

    #[test]
    fn the_typical_trial_has_the_median() {
        let (experiment, raw) = synthetic_experiment();
        let trial_groups = typical_trials(&experiment, &raw);
        assert_eq!(trial_groups.groups.len(), LOADS.len());
        assert!(trial_groups.notes.is_empty(), "{:?}", trial_groups.notes);
        for group in &trial_groups.groups {
            assert_eq!(group.trials.len(), 2, "the A/A arm is left out");
            for trial in &group.trials {
                assert!(trial.line.is_counted());
                let own = primary_value(&experiment, trial.line).unwrap();
                let same = counted_trials(&experiment, trial.arm(), group.load);
                let below = same.iter().filter(|l| primary_value(&experiment, l).unwrap() < own).count();
                assert_eq!(below, (same.len() - 1) / 2);
                assert_eq!(trial.trial.position.number, trial.line.position.number);
                assert_eq!(trial.observed().next().unwrap().samples.len(), SECONDS as usize);
            }
        }
    }

    #[test]
    fn missing_records_are_noted() {
        let (experiment, _) = synthetic_experiment();
        let result = typical_trials(&experiment, &NoRecords);
        assert!(result.groups.is_empty() && result.notes.len() == 1);
    }
}
