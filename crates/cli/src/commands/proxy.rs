//! `weir proxy`.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use proxy::config::{self, Parsed};
use proxy::ctl::Order;
use proxy::plan::Plan;
use proxy::{ExplainRequest, Opened, Reach, Running};
use record::problem::Problem;
use rt::address::Address;
use rt::drain::{Drain, Held, Signals, Stage, hold_signals};

use crate::exit::{Exit, Failure};
use crate::flags::{Typed, proxy_text};
use crate::output::print;

use super::end_with_stdin;

/// What a signal asks for.
enum Wish {
    Reload,
    Reopen,
    Drain,
    /// It came over the control socket.
    Order(Order),
}

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
/// How often it is looked whether all cores have ended.
const LOOK: Duration = Duration::from_millis(50);

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
        print("the config is right\n");
        return Ok(Exit::Done);
    }
    let reach = Reach { read: file.iter().cloned().collect() };
    let drain = Drain::default();
    let held = hold_signals(Held::All)?;
    let mut running = proxy::start(plan, &reach, drain.clone())?;
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
    let stopping = drain.clone();
    if typed.is_set("until-stdin-closes") {
        end_with_stdin(drain);
    }
    follow_wishes(&mut running, &wished, file.as_deref(), &stopping);
    let ended = running.join();
    if !ended.logs_written {
        eprintln!("weir: the end of a log could not be written in time");
    }
    match ended.failure {
        None => Ok(Exit::Done),
        Some(failure) => Err(Failure::cannot("proxy", failure)),
    }
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
        eprintln!("weir: warning: {warning}");
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

/// Does what signals ask for, until all cores have ended.
fn follow_wishes(
    running: &mut Running,
    wished: &mpsc::Receiver<Wish>,
    file: Option<&Path>,
    drain: &Drain,
) {
    while !running.is_finished() {
        match wished.recv_timeout(LOOK) {
            Ok(Wish::Reopen) => running.reopen_logs(),
            Ok(Wish::Reload) => tell(reload(running, file)),
            Ok(Wish::Drain) => running.stop_listening(),
            Ok(Wish::Order(order)) => obey(order, running, file, drain),
            Err(_) => {}
        }
        if let Err(error) = running.follow_names() {
            eprintln!("weir: {error}; the servers stay as they were");
        }
    }
}

fn obey(order: Order, running: &mut Running, file: Option<&Path>, drain: &Drain) {
    match order {
        Order::Reload(answer) => {
            let result = reload(running, file);
            if let Err(text) = &result {
                complain(text);
            }
            // Who asked may have left, here and below.
            let _ = answer.try_send(result);
        }
        Order::Reopen(answer) => {
            running.reopen_logs();
            let _ = answer.try_send(Ok("the logs are opened again\n".to_owned()));
        }
        Order::Drain => {
            drain.advance(Stage::Draining);
            running.stop_listening();
        }
        Order::Errand(errand) => running.run_errand(errand),
    }
}

/// Says what came of a reload that a signal asked for.
fn tell(result: Result<String, String>) {
    match result {
        Ok(text) => print(&text),
        Err(text) => complain(&text),
    }
}

fn complain(text: &str) {
    text.lines().for_each(|line| eprintln!("weir: {line}"));
}

/// Reads the config again and applies it: what to say, or what is wrong.
fn reload(running: &mut Running, file: Option<&Path>) -> Result<String, String> {
    const REFUSED: &str = "the config is not applied; the one before stays";
    let Some(file) = file else {
        running.reopen_logs();
        let text = "there is no config to read again; the logs are opened again";
        return Err(text.to_owned());
    };
    let plan = read_config(file, false).map_err(|problems| {
        let lines = problems.iter().map(|problem| format!("{problem}\n"));
        format!("{}{REFUSED}", lines.collect::<String>())
    })?;
    let before = running.opened();
    let restart = running.reload(plan).map_err(|error| format!("{error}\n{REFUSED}"))?;
    for key in restart {
        eprintln!("weir: warning: {key} takes effect with the next start");
    }
    let is_new = |opened: &&Opened| !before.contains(*opened);
    let threads = running.threads();
    let opened = running.opened();
    let lines = opened.iter().filter(is_new).map(|opened| listening_on(opened, threads));
    Ok(format!("{}the config is applied\n", lines.collect::<String>()))
}
