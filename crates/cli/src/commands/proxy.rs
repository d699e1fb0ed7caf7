//! `weir proxy`.

mod holder;

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use proxy::config::{self, Parsed};
use proxy::handover::Inheritance;
use proxy::plan::Plan;
use proxy::{ExplainRequest, Opened, Reach, Running};
use record::problem::Problem;
use rt::address::Address;
use rt::drain::{Drain, Held, Signals, hold_signals};
use rt::limits::raise_descriptor_limit;
use rt::notify::{Environment, Manager, State};

use crate::exit::{Exit, Failure};
use crate::flags::{Typed, proxy_text};
use crate::output::print;

use self::holder::{Holder, Wish};
use super::end_with_stdin;

/// Flags that say what a config says.
const IN_CONFIG: &[&str] = &[
    "listen",
    "to",
    "mode",
    "threads",
    "pin",
    "admin",
    "control",
    "access-log",
    "log-format",
    "balance",
    "reuse",
    "connections-max",
    "drain-timeout",
];

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    if typed.is_set("schema") {
        // A value that was made here can be written.
        print(&format!("{:#}\n", config::schema()));
        return Ok(Exit::Done);
    }
    let file = typed.text("config").map(PathBuf::from);
    let plan = read_plan(typed, file.as_deref())?;
    if let Some(request) = typed.text("explain") {
        let source = typed.text("source").unwrap_or_default();
        let request = ExplainRequest::parse(&request, &typed.texts("header"), &source)?;
        print(&proxy::explain(&plan, &request).to_string());
        return Ok(Exit::Done);
    }
    if typed.is_set("check") {
        let name =
            file.as_ref().map_or_else(|| "flags".to_owned(), |file| file.display().to_string());
        let problems = proxy::check_start(&name, &plan);
        if !problems.is_empty() {
            return Err(problems.into());
        }
        print("the config is right\n");
        return Ok(Exit::Done);
    }
    let reach = Reach { read: file.iter().cloned().collect() };
    let drain = Drain::default();
    // Both while their sockets are within reach.
    let manager = Manager::connect(&Environment::read()).unwrap_or_else(|error| {
        note!("weir: warning: the service manager is told nothing: {error}");
        Manager::default()
    });
    let inherited = inherit(typed)?;
    let held = hold_signals(Held::All)?;
    let mut running = proxy::start(plan, &reach, drain.clone(), inherited)?;
    let (wishes, wished) = mpsc::channel();
    let (reopen, stop, orders) = (wishes.clone(), wishes.clone(), wishes.clone());
    let signals = Signals {
        // The receiver lives until the end of the process.
        reload: Box::new(move || drop(wishes.send(Wish::Reload))),
        reopen: Box::new(move || drop(reopen.send(Wish::Reopen))),
        drained: Box::new(move || drop(stop.send(Wish::Drain))),
    };
    held.follow(drain.clone(), Some(signals))?;
    running.open_control(move |order| orders.send(Wish::Order(order)).is_ok())?;
    print(&announcement(&running));
    manager.tell(State::Ready);
    let stopping = drain.clone();
    if typed.is_set("until-stdin-closes") {
        end_with_stdin(drain);
    }
    Holder::new(&mut running, file.as_deref(), stopping, &manager).follow(&wished);
    let ended = running.join();
    if !ended.logs_written {
        note!("weir: the end of a log could not be written in time");
    }
    match ended.failure {
        None => Ok(Exit::Done),
        Some(failure) => Err(Failure::cannot("proxy", failure)),
    }
}

/// What another process passes on, if it is to and is there.
fn inherit(typed: Typed<'_>) -> Result<Option<Inheritance>, Failure> {
    let Some(control) = typed.text("upgrade-from") else { return Ok(None) };
    // What is passed on may be more than what we may have now.
    raise_descriptor_limit();
    let inherited = Inheritance::ask(Path::new(&control))?;
    if inherited.is_none() {
        note!("weir: nobody listens at {control}; this is a plain start");
    }
    Ok(inherited)
}

/// The plan of the config or of the flags; warnings are printed, with `--check` also those of what
/// would keep it from recovering from too much load.
fn read_plan(typed: Typed<'_>, file: Option<&Path>) -> Result<Plan, Failure> {
    let Some(file) = file else {
        return Ok(config::from_flags(&proxy_text(typed))?);
    };
    let both: Vec<Problem> = IN_CONFIG
        .iter()
        .filter(|flag| typed.is_given(flag))
        .map(|flag| Problem::new(format!("--{flag}"), "the config says it: leave one of them out"))
        .collect();
    if !both.is_empty() {
        return Err(both.into());
    }
    Ok(read_config(file, typed.is_set("check"))?)
}

fn read_config(file: &Path, checks: bool) -> Result<Plan, Vec<Problem>> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| vec![Problem::new(&*name, format!("cannot be read: {error}"))])?;
    let Parsed { plan, warnings, recovery } = config::parse(&name, &text)?;
    let advice = if checks { recovery } else { Vec::new() };
    for warning in warnings.iter().chain(&advice) {
        note!("weir: warning: {warning}");
    }
    Ok(plan)
}

fn announcement(running: &Running) -> String {
    let mut lines: String =
        running.opened().iter().map(|opened| listening_on(opened, running.threads())).collect();
    match running.admin() {
        Some(Address::Tcp(address)) => lines.push_str(&format!("admin on http://{address}/\n")),
        Some(unix) => lines.push_str(&format!("admin on {unix}\n")),
        None => {}
    }
    if let Some(path) = running.control() {
        lines.push_str(&format!("control on unix:{}\n", path.display()));
    }
    lines.push_str(&format!("{}\n", running.confinement()));
    lines
}

fn listening_on(opened: &Opened, threads: usize) -> String {
    let scheme = if opened.http { "http" } else { "tcp" };
    let shown = match &opened.address {
        Address::Tcp(address) => format!("{scheme}://{address}/"),
        unix @ Address::Unix(_) => unix.to_string(),
    };
    format!(
        "listening on {shown} (listener {}; {threads} thread{}; {})\n",
        opened.listener,
        if threads == 1 { "" } else { "s" },
        opened.accepts
    )
}
