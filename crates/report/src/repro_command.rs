//! Command that runs an experiment again: the original command with a new directory and the same
//! seed.

use record::experiment::Experiment;

/// Flags that are dropped, because they name the results of the original run. Without `--output` a run
/// creates a new directory.
const DROPPED_FLAGS: &[&str] = &["--output", "--json"];
const SEED: &str = "--seed";

/// Returns the words of the command; none if the original command is unknown.
pub(super) fn repro_command(experiment: &Experiment) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut original = experiment.command.iter();
    while let Some(word) = original.next() {
        if DROPPED_FLAGS.contains(&word.as_str()) {
            // Its value is the next word.
            original.next();
        } else if !DROPPED_FLAGS.iter().any(|flag| is_with_value(word, flag)) {
            words.push(word.clone());
        }
    }
    let has_seed = words.iter().any(|word| word == SEED || is_with_value(word, SEED));
    if !has_seed && !words.is_empty() {
        words.extend([SEED.to_owned(), experiment.plan.seed.to_string()]);
    }
    words
}

fn is_with_value(word: &str, flag: &str) -> bool {
    word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::synthetic_experiment;

    #[test]
    fn an_existing_directory_is_not_requested_again() {
        let (mut experiment, _) = synthetic_experiment();
        experiment.plan.seed = 7;
        for (given, expected) in [
            ("weir lab run --output out x.toml", "weir lab run x.toml --seed 7"),
            ("weir lab run --output=out --json=r.json x.toml", "weir lab run x.toml --seed 7"),
            ("weir lab run --seed 7 --json r.json x.toml", "weir lab run --seed 7 x.toml"),
            ("weir lab run --seed=7 x.toml", "weir lab run --seed=7 x.toml"),
            ("", ""),
        ] {
            experiment.command = given.split_whitespace().map(str::to_owned).collect();
            assert_eq!(repro_command(&experiment).join(" "), expected);
        }
    }
}
