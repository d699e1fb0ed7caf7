//! Which trials stand for an arm in a chart that can show one alone: of each arm under each load the
//! counting one whose primary metric is the median. Not for judging: that takes all of them.

use record::experiment::{Experiment, TrialLine};
use record::observed::Observed;
use record::trial::Trial;

use super::data::counting;
use crate::report::Raw;

/// Arms under loads that are shown at most: each is a record that has to be read and drawn.
pub(super) const SHOWN_MAX: usize = 12;

/// A trial that stands for its arm under its load.
#[derive(Debug)]
pub(super) struct Typical<'a> {
    /// Its line in the experiment.
    pub(super) line: &'a TrialLine,
    /// Its record.
    pub(super) trial: Trial,
}

impl Typical<'_> {
    /// Its arm.
    pub(super) fn arm(&self) -> &str {
        &self.line.place.arm
    }

    /// What was seen of the machines while it ran.
    pub(super) fn observed(&self) -> impl Iterator<Item = &Observed> {
        let of_run = self.trial.run.iter().flat_map(|run| &run.observed);
        of_run.chain(&self.trial.observed)
    }
}

/// Typical trials of one load, an arm each.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// The load.
    pub(super) load: &'a str,
    /// Its trials, in the order of the arms.
    pub(super) trials: Vec<Typical<'a>>,
}

/// Typical trials by load, and what was left out.
#[derive(Debug, Default)]
pub(super) struct Groups<'a> {
    /// Loads that have at least one.
    pub(super) groups: Vec<Group<'a>>,
    /// What is not there, in words.
    pub(super) notes: Vec<String>,
}

/// The figure of a trial that decides.
pub(super) fn primary(experiment: &Experiment, line: &TrialLine) -> Option<f64> {
    let name = &experiment.plan.primary()?.name;
    line.metrics.get(name).copied().filter(|value| value.is_finite())
}

/// The typical trials of all arms but the A/A one, which repeats the baseline.
pub(super) fn typical<'a>(experiment: &'a Experiment, raw: &dyn Raw) -> Groups<'a> {
    let mut found = Groups::default();
    let (mut shown, mut left_out, mut unread) = (0, 0, 0);
    for load in &experiment.plan.loads {
        let mut group = Group { load: &load.name, trials: Vec::new() };
        for arm in experiment.plan.arms.iter().filter(|arm| arm.again.is_none()) {
            let of = counting(experiment, &arm.name, &load.name);
            let Some(line) = middle(experiment, &of) else { continue };
            if shown == SHOWN_MAX {
                left_out += 1;
                continue;
            }
            match raw.trial(&line.file) {
                Some(trial) => group.trials.push(Typical { line, trial }),
                None => unread += 1,
            }
            shown += 1;
        }
        if !group.trials.is_empty() {
            found.groups.push(group);
        }
    }
    if left_out > 0 {
        found.notes.push(format!(
            "{left_out} more pairs of arm and load are not drawn; their trials are in the folder."
        ));
    }
    if unread > 0 {
        found.notes.push(format!("The records of {unread} trials could not be read."));
    }
    found
}

/// The one in the middle by the primary metric; where no trial has it, the first.
fn middle<'a>(experiment: &Experiment, lines: &[&'a TrialLine]) -> Option<&'a TrialLine> {
    let mut by_value: Vec<(f64, &TrialLine)> = lines
        .iter()
        .filter_map(|&line| primary(experiment, line).map(|value| (value, line)))
        .collect();
    by_value.sort_by(|a, b| a.0.total_cmp(&b.0));
    let middle = by_value.get(by_value.len().saturating_sub(1) / 2);
    middle.map(|(_, line)| *line).or_else(|| lines.first().copied())
}

/// What a heading says of a group: the load where there are several.
pub(super) fn load_heading(experiment: &Experiment, load: &str) -> Option<String> {
    super::several_loads(&experiment.plan).then(|| load.to_owned())
}

/// What a heading says of one trial: arm, load where there are several, and which trial it is.
pub(super) fn heading(experiment: &Experiment, typical: &Typical<'_>) -> String {
    let place = &typical.line.place;
    match super::several_loads(&experiment.plan) {
        true => format!("{}, {} (trial {})", place.arm, place.load, place.number),
        false => format!("{} (trial {})", place.arm, place.number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{LOADS, NoRaw, SECONDS, sample};

    #[test]
    fn the_typical_trial_has_the_median() {
        let (experiment, raw) = sample();
        let found = typical(&experiment, &raw);
        assert_eq!(found.groups.len(), LOADS.len());
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        for group in &found.groups {
            assert_eq!(group.trials.len(), 2, "the A/A arm is left out");
            for one in &group.trials {
                assert!(one.line.counts());
                let own = primary(&experiment, one.line).unwrap();
                let same = counting(&experiment, one.arm(), group.load);
                let below = same.iter().filter(|l| primary(&experiment, l).unwrap() < own).count();
                assert_eq!(below, (same.len() - 1) / 2);
                assert_eq!(one.trial.place.number, one.line.place.number);
                assert_eq!(one.observed().next().unwrap().samples.len(), SECONDS as usize);
            }
        }
    }

    #[test]
    fn records_that_are_not_there_are_said() {
        let (experiment, _) = sample();
        let found = typical(&experiment, &NoRaw);
        assert!(found.groups.is_empty() && found.notes.len() == 1);
    }
}
