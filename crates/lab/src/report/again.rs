//! The command that runs an experiment once more: the one that ran it, with a folder that is not there yet and
//! the seed that it had.

use record::experiment::Experiment;

/// Flags that name what is there by now; without them a run gets a folder of its own and a result in it.
const NOT_AGAIN: &[&str] = &["--folder", "--json"];
/// Where the order of trials comes from.
const SEED: &str = "--seed";

/// The words of it.
pub(super) fn again(experiment: &Experiment) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut given = experiment.command.iter();
    while let Some(word) = given.next() {
        if NOT_AGAIN.contains(&word.as_str()) {
            // Its value stands behind it.
            given.next();
        } else if !NOT_AGAIN.iter().any(|flag| is_with_value(word, flag)) {
            words.push(word.clone());
        }
    }
    let has_seed = words.iter().any(|word| word == SEED || is_with_value(word, SEED));
    if !has_seed && !words.is_empty() {
        words.extend([SEED.to_owned(), experiment.plan.seed.to_string()]);
    }
    words
}

/// `--flag=VALUE`.
fn is_with_value(word: &str, flag: &str) -> bool {
    word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::sample;

    #[test]
    fn a_folder_that_is_there_is_not_asked_for_again() {
        let (mut experiment, _) = sample();
        experiment.plan.seed = 7;
        for (given, wanted) in [
            ("weir lab run --folder out x.toml", "weir lab run x.toml --seed 7"),
            ("weir lab run --folder=out --json=r.json x.toml", "weir lab run x.toml --seed 7"),
            ("weir lab run --seed 7 --json r.json x.toml", "weir lab run --seed 7 x.toml"),
            ("weir lab run --seed=7 x.toml", "weir lab run --seed=7 x.toml"),
            ("", ""),
        ] {
            experiment.command = given.split_whitespace().map(str::to_owned).collect();
            assert_eq!(again(&experiment).join(" "), wanted);
        }
    }
}
