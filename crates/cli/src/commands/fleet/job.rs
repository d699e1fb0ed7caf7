//! Check of a job that an agent gets over the network: the parser of the command line, and the rules of what a
//! plan may do on this machine. Nothing is opened here.

use std::path::Path;

use fleet::agent::service::CheckedJob;
use fleet::message::{AgentRole, Job};
use load::plan::RunPlan;
use record::problem::InputProblem;

use super::role::parse_role_job;
use crate::flags::{
    CommandArgs, agent_load_arguments, coordinator_flags_given, load_flags, nats_flags_given, parse_command,
};

/// Returns the arguments of the child process of a job, or every problem.
pub(super) fn check(job: &Job, record: &Path) -> Result<CheckedJob, Vec<String>> {
    match job.role {
        AgentRole::Load => check_load(job, record),
        AgentRole::Serve | AgentRole::Proxy | AgentRole::Observe => check_role(job, record),
    }
}

fn check_role(job: &Job, record: &Path) -> Result<CheckedJob, Vec<String>> {
    let plan = parse_role_job(job.role, &job.arguments).map_err(texts)?;
    let own = ["fleet".to_owned(), "role".to_owned(), format!("--json={}", record.display())];
    Ok(CheckedJob {
        arguments: own.into_iter().chain(plan.arguments()).collect(),
        duration_ns: plan.duration_ns,
    })
}

fn check_load(job: &Job, record: &Path) -> Result<CheckedJob, Vec<String>> {
    let matches =
        parse_command("load", job.arguments.iter().cloned()).map_err(|why| vec![why.to_string()])?;
    let args = CommandArgs(&matches);
    let (mut arguments, _) = agent_load_arguments(args);
    let problems = refused_flags(args);
    if !problems.is_empty() {
        return Err(texts(problems));
    }
    let mut text = load_flags(args);
    text.slice = job.slice.clone();
    let plan = RunPlan::parse(&text, rt::cores::available_cpus().len()).map_err(texts)?;
    let own = [
        Some("load".to_owned()),
        Some("--control".to_owned()),
        job.slice.as_ref().map(|slice| format!("--slice={slice}")),
        Some(format!("--json={}", record.display())),
    ];
    arguments.splice(0..0, own.into_iter().flatten());
    Ok(CheckedJob { arguments, duration_ns: plan.end.duration_ns.saturating_add(plan.drain_ns) })
}

/// Returns the problems with flags and values that would read or write files of the agent.
pub(super) fn refused_flags(args: CommandArgs<'_>) -> Vec<InputProblem> {
    let (_, refused) = agent_load_arguments(args);
    let refused = refused.into_iter().chain(coordinator_flags_given(args));
    let mut problems: Vec<InputProblem> = refused.map(refused_flag).collect();
    problems.extend(file_values(args));
    problems
}

/// Returns the problem with a flag that a fleet does not have.
pub(super) fn refused_flag(flag: &str) -> InputProblem {
    InputProblem::new(
        format!("--{flag}"),
        "a fleet does not have this flag, which is of one machine or process",
    )
}

/// Returns the problems with flags of the load of a trial that its command has: the server, the outputs and the storage.
pub(super) fn flags_of_the_command(args: CommandArgs<'_>) -> Vec<InputProblem> {
    let stores = ["output", "store", "run-name"].into_iter().filter(|flag| args.is_given(flag));
    let given = stores.chain(coordinator_flags_given(args));
    let problem = |flag| {
        InputProblem::new(format!("--{flag}"), "the load of a trial has no output of its own: remove it")
    };
    nats_flags(args).into_iter().chain(given.map(problem)).collect()
}

pub(super) fn nats_flags(args: CommandArgs<'_>) -> Vec<InputProblem> {
    let problem =
        |flag| InputProblem::new(format!("--{flag}"), "give it to the command, and not to the load");
    nats_flags_given(args).into_iter().map(problem).collect()
}

pub(super) fn file_values(args: CommandArgs<'_>) -> Vec<InputProblem> {
    let is_file = args.text("data").is_some_and(|data| data.starts_with('@'));
    let problem = || InputProblem::new("--data", "a file (@) is not sent to agents: give the text itself");
    is_file.then(problem).into_iter().collect()
}

fn texts(problems: Vec<InputProblem>) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(arguments: &[&str]) -> Job {
        let arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
        Job { role: AgentRole::Load, arguments, slice: Some("1-2/2".to_owned()) }
    }

    #[test]
    fn a_job_is_checked_as_a_command_line_and_becomes_one() {
        let checked =
            check(&job(&["-c", "8", "-d", "2s", "--", "http://127.0.0.1:1/"]), Path::new("/r")).unwrap();
        assert_eq!(
            checked.arguments,
            [
                "load",
                "--control",
                "--slice=1-2/2",
                "--json=/r",
                "--connections=8",
                "--duration=2s",
                "--",
                "http://127.0.0.1:1/"
            ]
        );
        assert_eq!(checked.duration_ns, 7_000_000_000);
        let problems = check(&job(&["-c", "0", "-R", "x", "--", "ftp://a"]), Path::new("/r")).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn a_job_reads_and_writes_no_files_and_is_no_other_command() {
        let url = "http://127.0.0.1:1/";
        for arguments in [
            &["--json=/etc/passwd", "--", url][..],
            &["--hdr", "/tmp/x", "--", url],
            &["--data", "@/etc/shadow", "--", url],
            &["--data-file", "/etc/shadow", "--", url],
            &["--unix", "/run/docker.sock", "--", url],
            &["-f", "/etc/shadow", "--", url],
            &["--tls-key-log", "/tmp/keys", "--", "https://127.0.0.1:1/"],
            &["--cert", "/etc/shadow", "--", "https://127.0.0.1:1/"],
            &["--control", "--", url],
            &["--slice", "0-1/2", "--", url],
            &["report", "/etc/passwd"],
            &["--help"],
            &["--version"],
            &["--no-such-flag", "--", url],
            &[],
        ] {
            assert!(check(&job(arguments), Path::new("/r")).is_err(), "{arguments:?}");
        }
        let serve = Job { role: AgentRole::Serve, ..job(&[]) };
        assert!(check(&serve, Path::new("/r")).is_err());
    }
}
