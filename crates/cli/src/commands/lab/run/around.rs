//! What an experiment's file is held against before it runs: this machine, and the flags of `weir load`.

use host::perf::calls::Call;
use lab::engine::environment::{cpus, not_startable, version_of};
use lab::experiment::Around;
use load::plan::Plan;

use crate::flags::{Typed, load_text, program};

/// Reads a file with what there is here.
pub(super) fn with_around<R>(read: impl FnOnce(&Around<'_>) -> R) -> R {
    let cpus = cpus();
    let around = Around {
        program: &not_startable,
        version: &version_of,
        cpus: &cpus,
        calls: &|calls| Call::parse(calls).ok()?.not_here(),
        flags: &wrong_flags,
    };
    read(&around)
}

/// What is wrong with words behind `weir load`, as it would say itself.
fn wrong_flags(words: &[String]) -> Vec<String> {
    let line = ["weir", "load"].map(str::to_owned).into_iter().chain(words.iter().cloned());
    let matches = match program().try_get_matches_from(line) {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => return vec![in_a_line(&error.to_string())],
        Err(_) => return vec!["it asks for the help, and loads nothing".to_owned()],
    };
    let Some((_, typed)) = matches.subcommand() else { return Vec::new() };
    let parsed = load_text(Typed(typed)).and_then(|text| {
        if text.urls.is_empty() && text.unix.is_none() {
            return Ok(vec!["it has no URL".to_owned()]);
        }
        Plan::parse(&text, rt::cores::available().len()).map(|_| Vec::new())
    });
    let told = |problems: Vec<record::problem::Problem>| {
        // A file is looked for in the folder of the trial.
        let told = problems.iter().filter(|problem| problem.place != "--data-file");
        told.map(ToString::to_string).collect()
    };
    parsed.unwrap_or_else(told)
}

/// What clap says, without its usage.
fn in_a_line(error: &str) -> String {
    let lines = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let said: Vec<&str> = lines.take_while(|line| !line.starts_with("Usage:")).collect();
    said.join("; ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_held_against_the_table() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            wrong_flags(&words).join(" | ")
        };
        assert_eq!(of("-t 1 -c 2 -d 1s http://127.0.0.1:8000/"), "");
        assert_eq!(of("-c 2 -d 1s --unix /tmp/x.sock http://a/"), "");
        assert_eq!(of("-c 2 --data-file not-there http://127.0.0.1:8000/"), "");
        for (line, part) in [
            ("--bogus http://127.0.0.1:8000/", "unexpected argument '--bogus'"),
            ("-c x -d nope http://127.0.0.1:8000/", "--duration: "),
            ("-c x -d nope http://127.0.0.1:8000/", "--connections: "),
            ("-d 1s", "no URL"),
            ("--help", "asks for the help"),
        ] {
            let told = of(line);
            assert!(told.contains(part) && !told.contains("Usage"), "{line}: {told}");
        }
    }
}
