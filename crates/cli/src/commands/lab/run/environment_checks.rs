//! Checks of the file of an experiment or of a scenario before it runs: against this machine, and against the flags of
//! `weir load`.

use experiment::definition::EnvironmentChecks;
use experiment::engine::environment::{cpus, program_version, start_problem};
use host::perf::call_counter::CallKind;
use load::plan::RunPlan;

use crate::commands::fleet::{fleet_load_problems, machine_problems};
use crate::flags::{CommandArgs, load_flags, parse_command};

/// Reads a file with the facts of this machine.
pub(in crate::commands) fn with_environment_checks<R>(read: impl FnOnce(&EnvironmentChecks<'_>) -> R) -> R {
    let cpus = cpus();
    let checks = EnvironmentChecks {
        program_problem: &start_problem,
        version_output: &program_version,
        cpus: &cpus,
        calls_problem: &|calls| CallKind::parse(calls).ok()?.unavailable_reason(),
        load_flag_problems: &load_flag_problems,
        machine_problems: &machine_problems,
        fleet_load_problems: &fleet_load_problems,
    };
    read(&checks)
}

/// Returns the problems of the words after `weir load`, as `weir load` itself reports them.
fn load_flag_problems(words: &[String]) -> Vec<String> {
    let matches = match parse_command("load", words.iter().cloned()) {
        Ok(matches) => matches,
        Err(why) => return vec![why.to_string()],
    };
    let text = load_flags(CommandArgs(&matches));
    if text.urls.is_empty() && text.unix.is_none() {
        return vec!["it has no URL".to_owned()];
    }
    let parsed = RunPlan::parse(&text, rt::cores::available_cpus().len()).map(|_| Vec::new());
    let describe = |problems: Vec<record::problem::InputProblem>| {
        // Files are looked up in the directory of the trial.
        const FILES: [&str; 6] = ["--data", "--data-file", "--file", "--targets", "--values", "--replay"];
        let reported = problems.iter().filter(|problem| !FILES.contains(&problem.location.as_str()));
        reported.map(ToString::to_string).collect()
    };
    parsed.unwrap_or_else(describe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_checked_against_the_table() {
        let flag_problems = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            load_flag_problems(&words).join(" | ")
        };
        assert_eq!(flag_problems("-t 1 -c 2 -d 1s http://127.0.0.1:8000/"), "");
        assert_eq!(flag_problems("-c 2 -d 1s --unix /tmp/x.sock http://a/"), "");
        assert_eq!(flag_problems("-c 2 --data-file not-there http://127.0.0.1:8000/"), "");
        for (line, part) in [
            ("--bogus http://127.0.0.1:8000/", "unexpected argument '--bogus'"),
            ("-c x -d nope http://127.0.0.1:8000/", "--duration: "),
            ("-c x -d nope http://127.0.0.1:8000/", "--connections: "),
            ("-d 1s", "no URL"),
            ("--help", "prints help"),
        ] {
            let problems = flag_problems(line);
            assert!(problems.contains(part) && !problems.contains("Usage"), "{line}: {problems}");
        }
    }
}
