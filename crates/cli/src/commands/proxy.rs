//! `weir proxy`.

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use proxy::ExplainRequest;
use proxy_config::config::{self, ParsedConfig};
use proxy_control::handover::InheritedSockets;
use proxy_control::supervisor::{Supervisor, SupervisorCommand, SupervisorContext};
use proxy_control::{FileWatch, RunningProxy, SandboxPaths};
use proxy_plan::plan::Plan;
use record::problem::InputProblem;
use rt::address::Address;
use rt::drain::{Drain, SignalHandlers, SignalSet, block_signals};
use rt::limits::raise_descriptor_limit;
use rt::notify::{ManagerEnvironment, ServiceManager, ServiceState};

use super::drain_on_stdin_close;
use super::text_file::read_text_file;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, proxy_flags};
use crate::output::{print, print_valid};
use crate::streams::notice;

/// Flags whose values a config contains.
const CONFIG_FLAGS: &[&str] = &[
    "listen",
    "to",
    "mode",
    "tls-cert",
    "tls-key",
    "tls-self-signed",
    "threads",
    "pin",
    "admin",
    "control",
    "access-log",
    "log-format",
    "balance",
    "reuse",
    "to-http",
    "connections-max",
    "drain-timeout",
];

/// Problem of such a flag together with `--config`.
const CONFIG_CONFLICT: &str = "not allowed with --config; set it in the config file";

/// Prints the route of a hypothetical request.
fn explain_request(args: CommandArgs<'_>, plan: &Plan, request: &str) -> Result<Exit, Failure> {
    let source = args.text("source").unwrap_or_default();
    let request = ExplainRequest::parse(request, &args.texts("header"), &source)?
        .with_certificate(&args.text("certificate").unwrap_or_default());
    print(&proxy::explain(plan, &request)?.to_string());
    Ok(Exit::Done)
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    if args.is_set("schema") {
        // A value built here always serialises.
        print(&format!("{:#}\n", config::schema()));
        return Ok(Exit::Done);
    }
    let file = args.text("config").map(PathBuf::from);
    let (watch, plan) = (start_watch(args, file.as_deref())?, read_plan(args, file.as_deref())?);
    if let Some(request) = args.text("explain") {
        return explain_request(args, &plan, &request);
    }
    if args.is_set("check") {
        let name = file.as_ref().map_or_else(|| "flags".to_owned(), |file| file.display().to_string());
        let problems = proxy_control::check_start(&name, &plan);
        if !problems.is_empty() {
            return Err(problems.into());
        }
        print_valid(&name);
        return Ok(Exit::Done);
    }
    let sandbox_paths = SandboxPaths { read: file.iter().cloned().collect() };
    let drain = Drain::default();
    // Both connect while their sockets are within reach, before the sandbox.
    let manager = ServiceManager::connect(&ManagerEnvironment::read()).unwrap_or_else(|error| {
        warn!("weir: warning: cannot notify the service manager: {error}");
        ServiceManager::default()
    });
    let inherited = inherit_sockets(args, plan.privileges.user)?;
    let held_signals = block_signals(SignalSet::All)?;
    let mut running = proxy_control::start(plan, &sandbox_paths, drain.clone(), inherited)?;
    let (commands_sender, commands) = mpsc::channel();
    let (reopen, stop, control) = (commands_sender.clone(), commands_sender.clone(), commands_sender.clone());
    let signals = SignalHandlers {
        // The receiver lives until the end of the process.
        on_reload: Box::new(move || drop(commands_sender.send(SupervisorCommand::Reload))),
        on_reopen: Box::new(move || drop(reopen.send(SupervisorCommand::Reopen))),
        on_user2: Box::new(|| ()),
        on_drain: Box::new(move || drop(stop.send(SupervisorCommand::Drain))),
    };
    held_signals.spawn_handler(drain.clone(), Some(signals))?;
    running.start_control(move |command| control.send(SupervisorCommand::Control(command)).is_ok())?;
    print(&announcement(&running));
    manager.notify(ServiceState::Ready);
    let stopping = drain.clone();
    if args.is_set("until-stdin-closes") {
        drain_on_stdin_close(drain);
    }
    let read_config = |file: &Path| read_config(file, false);
    let context = SupervisorContext { file: file.as_deref(), read_config, print, warn: notice };
    Supervisor::new(&mut running, (context, watch), stopping, &manager).run(&commands);
    let exit = running.join();
    if !exit.logs_written {
        warn!("weir: the last log lines could not be written in time");
    }
    match exit.failure {
        None => Ok(Exit::Done),
        Some(failure) => Err(Failure::cannot("proxy", failure)),
    }
}

/// Returns the watch for changes of the config's files, if requested. Before the file is read, so that no
/// change is missed.
fn start_watch(args: CommandArgs<'_>, file: Option<&Path>) -> Result<Option<FileWatch>, Failure> {
    if !args.is_set("reload-on-change") {
        return Ok(None);
    }
    match file {
        Some(file) => Ok(Some(FileWatch::new(file))),
        None => Err(vec![InputProblem::new("--reload-on-change", "needs --config")].into()),
    }
}

/// Takes over the sockets of another process, if requested and if that process exists.
fn inherit_sockets(args: CommandArgs<'_>, user: Option<u32>) -> Result<Option<InheritedSockets>, Failure> {
    let Some(control) = args.text("upgrade-from") else { return Ok(None) };
    // The inherited sockets may exceed the current descriptor limit.
    raise_descriptor_limit();
    let inherited = InheritedSockets::request(Path::new(&control), user)?;
    if inherited.is_none() {
        warn!("weir: no proxy listens on {control}; normal start");
    }
    Ok(inherited)
}

/// Reads the plan from the config or from the flags, and prints warnings. `--check` adds warnings
/// about settings that prevent recovery from overload.
fn read_plan(args: CommandArgs<'_>, file: Option<&Path>) -> Result<Plan, Failure> {
    let Some(file) = file else {
        return Ok(config::from_flags(&proxy_flags(args))?);
    };
    let conflicting: Vec<InputProblem> = CONFIG_FLAGS
        .iter()
        .filter(|flag| args.is_given(flag))
        .map(|flag| InputProblem::new(format!("--{flag}"), CONFIG_CONFLICT))
        .collect();
    if !conflicting.is_empty() {
        return Err(conflicting.into());
    }
    Ok(read_config(file, args.is_set("check"))?)
}

fn read_config(file: &Path, with_lints: bool) -> Result<Plan, Vec<InputProblem>> {
    let name = file.display().to_string();
    let text = read_text_file(&name).map_err(|problem| vec![problem])?;
    let ParsedConfig { plan, warnings, overload_lints } = config::parse(&name, &text)?;
    let lints = if with_lints { overload_lints } else { Vec::new() };
    for warning in warnings.iter().chain(&lints) {
        warn!("weir: warning: {warning}");
    }
    Ok(plan)
}

fn announcement(running: &RunningProxy) -> String {
    let mut lines: String =
        running.listen_addresses().iter().map(|opened| opened.announcement(running.threads())).collect();
    match running.admin() {
        Some(Address::Tcp(address)) => lines.push_str(&format!("admin on http://{address}/\n")),
        Some(unix) => lines.push_str(&format!("admin on {unix}\n")),
        None => {}
    }
    if let Some(path) = running.control() {
        lines.push_str(&format!("control on unix:{}\n", path.display()));
    }
    lines.push_str(&format!("{}\n", running.sandbox()));
    lines
}
