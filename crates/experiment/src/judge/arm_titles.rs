//! Titles of arms in sentences, as a user would say them: "eight workers" for `workers-8`. The judge writes its
//! sentences with them; every field of its result has the names of the plan.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Arm, ExperimentPlan, TrialSummary};

use super::{ExperimentJudgement, JudgeExtras};
use crate::format::capitalized;

/// Maximum length of a title in a sentence, in characters: a longer one explains nothing there.
const TITLE_CHARS_MAX: usize = 60;
/// Title of an arm of a file that names none.
pub(crate) const UNCHANGED: &str = "as in the file";
/// Words of small numbers.
const NUMBER_WORDS: [&str; 13] =
    ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// Names of arms that sentences replace, in both directions.
#[derive(Debug, Default)]
pub(super) struct ArmTitles {
    title_by_name: BTreeMap<String, String>,
    name_by_title: BTreeMap<String, String>,
}

/// Returns the title of an arm in a sentence; its name if nothing better is known.
#[must_use]
pub fn arm_title(plan: &ExperimentPlan, name: &str) -> String {
    let titles = ArmTitles::new(plan);
    titles.title_by_name.get(name).cloned().unwrap_or_else(|| name.to_owned())
}

impl ArmTitles {
    pub(super) fn new(plan: &ExperimentPlan) -> Self {
        let own = plan.arms.iter().filter(|arm| arm.repeats.is_none());
        let titled = own.filter_map(|arm| Some((arm, given_title(arm).or_else(|| derived_title(arm))?)));
        let titled: Vec<(&Arm, String)> = titled.filter(|(arm, title)| *title != arm.name).collect();
        let names: BTreeSet<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        let is_unique = |title: &str| {
            !names.contains(title) && titled.iter().filter(|(_, other)| other == title).count() == 1
        };
        let unique = titled.iter().filter(|(_, title)| is_unique(title));
        let pairs = || unique.clone().map(|(arm, title)| (arm.name.clone(), title.clone()));
        Self {
            title_by_name: pairs().collect(),
            name_by_title: pairs().map(|(name, title)| (title, name)).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.title_by_name.is_empty()
    }

    fn set_title(&self, arm: &mut String) {
        if let Some(title) = self.title_by_name.get(arm.as_str()) {
            arm.clone_from(title);
        }
    }

    fn set_name(&self, arm: &mut String) {
        if let Some(name) = self.name_by_title.get(arm.as_str()) {
            arm.clone_from(name);
        }
    }

    pub(super) fn titled_plan(&self, plan: &ExperimentPlan) -> ExperimentPlan {
        let mut plan = plan.clone();
        self.set_title(&mut plan.baseline);
        for arm in &mut plan.arms {
            self.set_title(&mut arm.name);
            arm.repeats.iter_mut().for_each(|name| self.set_title(name));
        }
        plan
    }

    pub(super) fn titled_trials(&self, trials: &[TrialSummary]) -> Vec<TrialSummary> {
        let mut trials = trials.to_vec();
        trials.iter_mut().for_each(|trial| self.set_title(&mut trial.position.arm));
        trials
    }

    pub(super) fn titled_extras(&self, extras: &JudgeExtras) -> JudgeExtras {
        let mut extras = extras.clone();
        let unavailable = std::mem::take(&mut extras.unavailable_metrics);
        extras.unavailable_metrics = unavailable
            .into_iter()
            .map(|((mut arm, load, metric), reason)| {
                self.set_title(&mut arm);
                ((arm, load, metric), reason)
            })
            .collect();
        extras
    }

    /// Puts the names of the plan into every field. The sentences keep the titles, and begin with a capital letter if
    /// one begins with a title.
    pub(super) fn with_names(&self, mut judged: ExperimentJudgement) -> ExperimentJudgement {
        let texts =
            judged.summary.iter_mut().chain(judged.warnings.iter_mut().map(|warning| &mut warning.text));
        let texts = texts.chain(judged.comparisons.iter_mut().map(|comparison| &mut comparison.text));
        texts.for_each(|text| self.capitalize(text));
        let arms = judged.cells.iter_mut().map(|cell| &mut cell.arm);
        let arms = arms.chain(
            judged
                .comparisons
                .iter_mut()
                .flat_map(|comparison| [&mut comparison.arm, &mut comparison.baseline]),
        );
        let arms = arms.chain(judged.warnings.iter_mut().filter_map(|warning| warning.arm.as_mut()));
        let arms = arms.chain(judged.scalings.iter_mut().map(|line| &mut line.arm));
        arms.for_each(|arm| self.set_name(arm));
        let limited = std::mem::take(&mut judged.generator_limited);
        judged.generator_limited = limited
            .into_iter()
            .map(|(mut arm, load)| {
                self.set_name(&mut arm);
                (arm, load)
            })
            .collect();
        judged
    }

    fn capitalize(&self, text: &mut String) {
        let starts = |title: &String| {
            text.strip_prefix(title.as_str()).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        if self.name_by_title.keys().any(starts) {
            *text = capitalized(text);
        }
    }
}

/// Returns the title that the author gave, if it fits into a sentence. That of factors is a list of their levels.
fn given_title(arm: &Arm) -> Option<String> {
    let title = arm.title.trim().trim_end_matches('.');
    let is_given = title != UNCHANGED && (arm.levels.is_empty() || title != levels_title(arm));
    let is_sentence = title.contains(['\n', '{']) || title.contains(". ");
    (is_given && !title.is_empty() && title != arm.name && !is_sentence)
        .then(|| title.to_owned())
        .filter(|title| title.chars().count() <= TITLE_CHARS_MAX)
}

/// Returns the title that a file without one gives to an arm of factors: "workers = 8, size = 2".
fn levels_title(arm: &Arm) -> String {
    let levels = arm.levels.iter().map(|(factor, level)| format!("{factor} = {level}"));
    levels.collect::<Vec<_>>().join(", ")
}

/// Returns the levels of an arm in words, or its only change: "eight workers", "allocator jemalloc".
fn derived_title(arm: &Arm) -> Option<String> {
    let of = |(name, value): (&String, &String)| level_in_words(name.rsplit('.').next()?, value);
    // Of other changes than a number of things, the name of the arm says more.
    let is_number = |(_, value): &(&String, &String)| value.parse::<u64>().is_ok();
    let words: Option<Vec<String>> = match (arm.levels.len(), arm.changes.len()) {
        (0, 1) => arm.changes.iter().filter(is_number).map(of).collect(),
        _ => arm.levels.iter().map(of).collect(),
    };
    let title = words?.join(" and ");
    (!title.is_empty() && title.chars().count() <= TITLE_CHARS_MAX).then_some(title)
}

/// Formats a factor with its level: "eight workers", "200 threads", "one worker", "size 2k". `None` if the words would
/// say less than the name of the arm.
fn level_in_words(factor: &str, level: &str) -> Option<String> {
    let factor = factor.replace(['_', '-'], " ");
    let is_word = |text: &str| {
        text.chars().count() > 1 && text.chars().all(|letter| letter.is_ascii_alphabetic() || letter == ' ')
    };
    if !is_word(&factor)
        || level.is_empty()
        || level.chars().any(|letter| letter.is_control() || "{}".contains(letter))
    {
        return None;
    }
    let plural = factor.ends_with('s') && !factor.ends_with("ss");
    Some(match level.parse::<u64>() {
        Ok(1) if plural => format!("one {}", factor.trim_end_matches('s')),
        Ok(number) if plural => match NUMBER_WORDS.get(number as usize) {
            Some(word) => format!("{word} {factor}"),
            None => format!("{number} {factor}"),
        },
        _ => format!("{factor} {level}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(name: &str, title: &str, levels: &[(&str, &str)]) -> Arm {
        let levels = levels.iter().map(|(factor, level)| ((*factor).to_owned(), (*level).to_owned()));
        Arm { name: name.to_owned(), title: title.to_owned(), levels: levels.collect(), ..Arm::default() }
    }

    fn plan(arms: Vec<Arm>) -> ExperimentPlan {
        ExperimentPlan { arms, ..ExperimentPlan::default() }
    }

    #[test]
    fn an_arm_is_named_as_a_user_would_say() {
        let changed = |key: &str, value: &str| Arm {
            changes: [(key.to_owned(), value.to_owned())].into(),
            ..arm("b", "b", &[])
        };
        for (arm, expected) in [
            (arm("workers-8", "workers = 8", &[("workers", "8")]), "eight workers"),
            (arm("workers-1", "workers = 1", &[("workers", "1")]), "one worker"),
            (arm("threads-64", "", &[("threads", "64")]), "64 threads"),
            (arm("allocator-jemalloc", "", &[("allocator", "jemalloc")]), "allocator jemalloc"),
            (
                arm("workers-8-size-2k", "size = 2k, workers = 8", &[("workers", "8"), ("size", "2k")]),
                "size 2k and eight workers",
            ),
            (arm("b", "no access log.", &[]), "no access log"),
            (arm("t-2", "t = 2", &[("t", "2")]), "t-2"),
            (changed("parameters.workers", "8"), "eight workers"),
            (changed("subject.command line 3", "x"), "b"),
            (changed("subject.env.LD_PRELOAD", "/usr/lib/libjemalloc.so.2"), "b"),
            (arm("b", &"x".repeat(TITLE_CHARS_MAX + 1), &[]), "b"),
            (arm("b", "b", &[]), "b"),
        ] {
            let name = arm.name.clone();
            assert_eq!(arm_title(&plan(vec![arm]), &name), expected, "{name}");
        }
    }

    #[test]
    fn a_title_of_two_arms_names_neither() {
        let plan = plan(vec![arm("a", "the server", &[]), arm("b", "the server", &[]), arm("c", "a", &[])]);
        assert!(ArmTitles::new(&plan).is_empty());
    }
}
