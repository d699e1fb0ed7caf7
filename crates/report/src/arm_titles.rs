//! Titles of arms in sentences: "two threads" for `t2`.

use experiment::format;
use record::experiment::Experiment;

/// Words before the name of an arm in a result.
const BEFORE_ARMS: [&str; 7] = ["than ", "from ", "of ", "and ", "about ", "far ", "between "];
/// Maximum length of a title in a sentence, in characters.
const TITLE_CHARS_MAX: usize = 60;

/// Returns a result with the titles of the arms in place of their names: "two threads" for `t2`.
pub(crate) fn with_arm_titles(result: &str, experiment: &Experiment) -> String {
    let mut text = result.to_owned();
    for arm in &experiment.plan.arms {
        let title = arm.title.trim().trim_end_matches('.');
        if title.is_empty() || title == arm.name || title.chars().count() > TITLE_CHARS_MAX {
            continue;
        }
        if let Some(rest) = text.strip_prefix(&format!("{} ", arm.name)) {
            text = format!("{} {rest}", format::capitalized(title));
        }
        for before in BEFORE_ARMS {
            for after in [" ", ".", ",", ":", ";"] {
                let name = format!(" {before}{}{after}", arm.name);
                text = text.replacen(&name, &format!(" {before}{title}{after}"), 1);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::synthetic_experiment;

    #[test]
    fn a_result_names_the_arms_by_their_titles() {
        let (mut experiment, _) = synthetic_experiment();
        let [baseline, _, other] = &mut experiment.plan.arms[..] else { panic!("three arms") };
        (baseline.name, baseline.title) = ("off".to_owned(), "no access log".to_owned());
        (other.name, other.title) = ("line".to_owned(), "a line for each request".to_owned());
        let text = "line uses 28.9 % more CPU time per line of code than off (19.4 % to 39.2 %).";
        let named = with_arm_titles(text, &experiment);
        let expected = "A line for each request uses 28.9 % more CPU time per line of code than no access log (19.4 % to 39.2 %).";
        assert_eq!(named, expected);
        experiment.plan.arms[2].name = "two".to_owned();
        experiment.plan.arms[2].title = "two threads".to_owned();
        let named = with_arm_titles(
            "the difference between two and off is not clear; so far two is more",
            &experiment,
        );
        assert_eq!(
            named,
            "the difference between two threads and no access log is not clear; so far two threads is more"
        );
        experiment.plan.arms[2].name = "line".to_owned();
        experiment.plan.arms[2].title = "x".repeat(TITLE_CHARS_MAX + 1);
        assert!(with_arm_titles(text, &experiment).starts_with("line uses"), "a long title explains nothing");
    }
}
