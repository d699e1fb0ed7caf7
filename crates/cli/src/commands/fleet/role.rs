//! `weir fleet role`: the child process of an agent for a role that does not generate load. It starts a program of
//! weir, or finds one that runs already, and observes it from the start command to the stop command.

use std::time::Duration;

use fleet::message::AgentRole;
use fleet::role::{OBSERVE, RolePlan, RoleProgram, command_of};
use host::observe::Monitor;
use record::control::LoadEvent;
use record::invalid_value;
use record::observed::MachineObservation;
use record::problem::InputProblem;
use record::units::{DurationUnit, SECOND_NS, parse_duration_ns};
use rt::clock::{now_ns, unix_ns};
use rt::drain::{Drain, DrainStage, DrainWatch, SignalSet, block_signals};
use runner::watch::plan::{WatchPlan, watch_process};
use runner::watch::targets::resolve_targets;

use crate::commands::watch::{parse_plan, write_record};
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, parse_command, role_arguments};
use crate::load_control::{LoadController, report};
use crate::preflight;

/// Programs that a role may start.
const PROGRAMS: &[&str] = &["serve", "proxy"];
/// Maximum duration of a role, and the default.
const DURATION_NS_MAX: u64 = 24 * 3600 * SECOND_NS;
const DURATION_NS_DEFAULT: u64 = 3600 * SECOND_NS;
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Parses the flags and the command; reports every problem at once. Flags that read or write files of
/// the machine are problems.
pub(super) fn parse_role(args: CommandArgs<'_>) -> Result<RolePlan, Vec<InputProblem>> {
    let mut problems = Vec::new();
    let role = args.text("as").unwrap_or_else(|| host::observe::SUBJECT.to_owned());
    if role == host::observe::GENERATOR || role.is_empty() || !role.chars().all(is_role_letter) {
        let text =
            format!("'{role}' is not a role (subject, origin, or another name of letters, digits, '-')");
        problems.push(InputProblem::new("--as", text));
    }
    let duration = args.text("duration").map_or(Ok(DURATION_NS_DEFAULT), |text| {
        let duration_ns = parse_duration_ns(&text, DurationUnit::Seconds)?;
        let is_valid = (1..=DURATION_NS_MAX).contains(&duration_ns);
        is_valid.then_some(duration_ns).ok_or_else(|| invalid_value!("not within 1 ns to 24 hours"))
    });
    let duration_ns = duration.unwrap_or_else(|why| {
        problems.push(InputProblem::new("--duration", why));
        0
    });
    let values = args.values();
    let command = values.first().cloned().unwrap_or_default();
    let parsed = parse_program(&command, values.get(1..).unwrap_or_default());
    match parsed {
        Ok((arguments, watch)) if problems.is_empty() => {
            Ok(RolePlan { role, command, arguments, watch, duration_ns })
        }
        Ok(_) => Err(problems),
        Err(others) => {
            problems.extend(others);
            Err(problems)
        }
    }
}
/// Checks the arguments that an agent gets for this role of a run.
pub(super) fn parse_role_job(role: AgentRole, arguments: &[String]) -> Result<RolePlan, Vec<InputProblem>> {
    let matches = parse_command("fleet role", arguments.iter().cloned())
        .map_err(|why| vec![InputProblem::new("arguments", why)])?;
    let args = CommandArgs(&matches);
    if args.is_given("json") {
        return Err(vec![super::job::refused_flag("json")]);
    }
    let plan = parse_role(args)?;
    match plan.command == command_of(role) {
        true => Ok(plan),
        false => {
            Err(vec![InputProblem::new("COMMAND", format!("the role {} has another program", role.name()))])
        }
    }
}

fn is_role_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-'
}

/// Parses the command of a role with the tables of the command line.
fn parse_program(
    command: &str,
    arguments: &[String],
) -> Result<(Vec<String>, Option<WatchPlan>), Vec<InputProblem>> {
    if !PROGRAMS.contains(&command) && command != OBSERVE {
        let text = format!("'{command}' is no program of a role (serve, proxy or watch, and its flags)");
        return Err(vec![InputProblem::new("COMMAND", text)]);
    }
    let matches = parse_command(command, arguments.iter().cloned())
        .map_err(|why| vec![InputProblem::new(command, why)])?;
    let args = CommandArgs(&matches);
    let (arguments, refused) = role_arguments(command, args);
    let mut problems: Vec<InputProblem> = refused.into_iter().map(super::job::refused_flag).collect();
    // A socket file, and a directory to serve, are on the agent's disk.
    let sockets = arguments.iter().filter(|argument| argument.contains("unix:"));
    problems.extend(sockets.map(|argument| {
        let flag = argument.split('=').next().unwrap_or_default();
        InputProblem::new(flag, "must be a TCP address")
    }));
    if command == "serve" && !args.values().is_empty() {
        problems.push(InputProblem::new(command, "a role has flags only, and reads no directory"));
    }
    let watch = match command == OBSERVE {
        true => parse_plan(args).map_err(|others| problems.extend(others)).ok(),
        false => None,
    };
    if command == OBSERVE && ["port", "url", "pid"].iter().all(|flag| !args.is_given(flag)) {
        problems.push(InputProblem::new(OBSERVE, "names no process: use --port, --url or --pid"));
    }
    if problems.is_empty() { Ok((arguments, watch)) } else { Err(problems) }
}

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let plan = parse_role(args)?;
    preflight::outputs(args, &[], &["json"])?;
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain.clone(), None)?;
    let mut program = match plan.watch {
        None => Some(RoleProgram::start(&plan)?),
        Some(_) => None,
    };
    let mut controller = LoadController::start(drain, Default::default());
    let Some(start_ns) = wait_for_start(&mut controller, &stop) else {
        return Err(Failure::CannotRun("stopped before the start".to_owned()));
    };
    let watch = match (&program, plan.watch) {
        (Some(program), _) => watch_process(&plan.role, program.pid()),
        (None, Some(watch)) => watch.with_name(&plan.role),
        // Invariant: a plan has a program or targets.
        (None, None) => return Ok(Exit::Usage),
    };
    let resolved = resolve_targets(&watch)?;
    let monitor = Monitor::start(resolved.spec, now_ns);
    wait_until(start_ns, &stop);
    let start_unix_ns = unix_ns().saturating_sub(now_ns().saturating_sub(start_ns));
    report(&LoadEvent::Started { clock_ns: start_ns, unix_ns: start_unix_ns });
    let end_ns = start_ns.saturating_add(plan.duration_ns);
    wait_until(end_ns, &stop);
    let started_at = record::file::format_wall_clock(start_unix_ns);
    let mut observed = MachineObservation { started_at, ..monitor.finish(start_ns) };
    observed.not_observable.extend(resolved.unobservable);
    write_record(observed, args.text("json").as_deref(), arguments)?;
    if let Some(program) = &mut program {
        program.stop();
    }
    Ok(Exit::Done)
}

/// Waits for the start command; returns its time, or `None` if the role is stopped before.
fn wait_for_start(controller: &mut LoadController, stop: &DrainWatch) -> Option<u64> {
    while stop.stage() == DrainStage::Running {
        // A role has no connections of its own.
        if let Some(start_ns) = controller.start_time(0) {
            return Some(start_ns);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    None
}

fn wait_until(time_ns: u64, stop: &DrainWatch) {
    while stop.stage() == DrainStage::Running && now_ns() < time_ns {
        let remaining = Duration::from_nanos(time_ns.saturating_sub(now_ns()));
        std::thread::sleep(remaining.min(POLL_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(role: AgentRole, arguments: &[&str]) -> Result<RolePlan, Vec<InputProblem>> {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        parse_role_job(role, &arguments)
    }

    #[test]
    fn a_job_has_one_form_and_is_of_its_role() {
        let arguments = ["--as=origin", "--duration", "90", "--", "serve", "-l", "127.0.0.1:0", "-t", "1"];
        let plan = parse(AgentRole::Serve, &arguments).unwrap();
        let expected =
            ["--as=origin", "--duration=90s", "--", "serve", "--listen=127.0.0.1:0", "--threads=1"];
        assert_eq!(plan.arguments(), expected);
        assert!(parse(AgentRole::Proxy, &arguments).is_err());
        assert!(parse(AgentRole::Observe, &["--", "watch", "--port", "80"]).is_ok());
        // Every problem at once.
        let problems =
            parse(AgentRole::Serve, &["--as=a b", "--duration=25h", "--", "serve", "--index=x", "/etc"]);
        assert_eq!(problems.unwrap_err().len(), 4);
    }

    #[test]
    fn a_job_reads_and_writes_no_files_and_starts_nothing_else() {
        for (role, arguments) in [
            (AgentRole::Serve, &["--json=/etc/x", "--", "serve"][..]),
            (AgentRole::Serve, &["--", "serve", "/etc"]),
            (AgentRole::Serve, &["--", "serve", "--access-log=/etc/x"]),
            (AgentRole::Serve, &["--", "serve", "--tls-cert=/etc/x"]),
            (AgentRole::Serve, &["--", "serve", "-l", "unix:/tmp/x"]),
            (AgentRole::Proxy, &["--", "proxy", "--config=/etc/x"]),
            (AgentRole::Proxy, &["--", "proxy", "--to=unix:/run/docker.sock"]),
            (AgentRole::Proxy, &["--", "proxy", "--control=/tmp/x"]),
            (AgentRole::Observe, &["--", "watch", "--json=/etc/x", "--port=80"]),
            (AgentRole::Observe, &["--", "watch"]),
            (AgentRole::Observe, &["--", "sh", "-c", "id"]),
            (AgentRole::Serve, &["--help"]),
            (AgentRole::Serve, &["--", "serve", "--help"]),
            (AgentRole::Serve, &[]),
        ] {
            assert!(parse(role, arguments).is_err(), "{arguments:?}");
        }
    }
}
