//! `weir ctl`: sends one line to a proxy's control socket, and shows what comes back. What commands
//! there are, and whether one is right, the proxy knows.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use record::problem::Problem;

use crate::exit::{Exit, Failure};
use crate::flags::{SOCKET_DEFAULT, Typed};
use crate::output::print;

/// How long the proxy may say nothing: a reload opens files and asks name servers.
const PATIENCE: Duration = Duration::from_secs(90);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Clears a terminal, and goes to its first place (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let words = typed.values();
    let socket = typed.text("socket").unwrap_or_else(|| SOCKET_DEFAULT.to_owned());
    let Some(name) = words.first() else {
        let text = "no command was given; `weir ctl help` lists them";
        return Err(vec![Problem::new("COMMAND", text)].into());
    };
    if name == "help" {
        print(&proxy::ctl::help());
        return Ok(Exit::Done);
    }
    if name == proxy::handover::COMMAND {
        let text = "a new process asks for that by itself: weir proxy --upgrade-from PATH";
        return Err(vec![Problem::new(&**name, text)].into());
    }
    if words.iter().any(|word| word.contains('\n')) {
        return Err(vec![Problem::new("COMMAND", "a command is one line")].into());
    }
    let json = if typed.is_set("json") { " --json" } else { "" };
    let line = format!("{}{json}\n", words.join(" "));
    let live = name == "top" && json.is_empty();
    if live && !typed.is_set("once") && io::stdout().is_terminal() {
        loop {
            let text = ask(&socket, &line)?;
            print(&format!("{CLEAR}{text}"));
        }
    }
    print(&ask(&socket, &line)?);
    Ok(Exit::Done)
}

/// What the proxy answers to a line.
fn ask(socket: &str, line: &str) -> Result<String, Failure> {
    let mut stream = UnixStream::connect(socket).map_err(|error| nobody(socket, &error))?;
    let answer = exchange(&mut stream, line).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock => "the proxy does not answer".to_owned(),
            _ => error.to_string(),
        };
        Failure::cannot(socket, why)
    })?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some((first, rest)) if first.starts_with("error: ") => Err(refused(first, rest)),
        _ => Err(Failure::cannot(socket, "what answers there is no weir proxy")),
    }
}

fn exchange(stream: &mut UnixStream, line: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // One that refuses us at once has closed before it read anything, and its answer says why.
    let sent = stream.write_all(line.as_bytes());
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
        // Closed with bytes of ours unread: what it said is there.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !answer.is_empty() => {}
        Err(error) => return Err(error),
        Ok(0) => sent?,
        Ok(_) => {}
    }
    String::from_utf8(answer).map_err(io::Error::other)
}

fn nobody(socket: &str, error: &io::Error) -> Failure {
    let why = match error.kind() {
        io::ErrorKind::NotFound => {
            "no proxy listens there: there is no such socket (`control` in its config names it)"
        }
        io::ErrorKind::ConnectionRefused => "no proxy listens there: the one that did has ended",
        io::ErrorKind::PermissionDenied => "only root and the proxy's own user may operate it",
        _ => return Failure::cannot(socket, error),
    };
    Failure::cannot(socket, why)
}

/// What was wrong with what was asked is wrong usage; what could not be done is no fault of it.
fn refused(first: &str, rest: &str) -> Failure {
    let text = first.trim_start_matches("error: ");
    if text.starts_with("cannot ") {
        return Failure::CannotRun(text.to_owned());
    }
    let lines = std::iter::once(text).chain(rest.lines()).filter(|line| !line.is_empty());
    // Lines about a config have their place.
    let problem = |line: &str| match line.split_once(": ") {
        Some((place, text)) => Problem::new(place, text),
        None => Problem::new("ctl", line),
    };
    Failure::Usage(lines.map(problem).collect())
}
