//! `weir ctl`: sends one line to a proxy's control socket and prints the response. Only the proxy
//! knows the commands and checks them.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proxy::maintenance::{MaintenancePage, PAGE_BYTES_MAX, PageFault};
use record::problem::InputProblem;

use super::text_file::decode_text;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, CtlFlags, SOCKET_DEFAULT};
use crate::input_file::read_bytes;
use crate::output::print;
use crate::streams::print_with_controls;

/// Read and write timeout. A reload opens files and queries name servers, which takes time.
const TIMEOUT: Duration = Duration::from_secs(90);
const RESPONSE_BYTES_MAX: u64 = 64 << 20;
/// Clears a terminal and moves the cursor to the top left (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let command_words = args.values();
    let flags = CtlFlags::parse(args)?;
    let socket = flags.socket.as_deref().unwrap_or(SOCKET_DEFAULT);
    let Some(name) = command_words.first() else {
        let text = "missing command (`weir ctl help` lists them)";
        return Err(vec![InputProblem::new("COMMAND", text)].into());
    };
    if name == "help" {
        print(&proxy_control::ctl::help());
        return Ok(Exit::Done);
    }
    if name == proxy_control::handover::COMMAND {
        let text = "reserved for a new process: weir proxy --upgrade-from PATH";
        return Err(vec![InputProblem::new(&**name, text)].into());
    }
    if command_words.iter().any(|word| word.contains('\n')) {
        return Err(vec![InputProblem::new("COMMAND", "a command must be one line")].into());
    }
    let page = maintenance_page(&flags, &command_words)?;
    let json = if flags.json { " --json" } else { "" };
    let line = format!("{}{page}{json}\n", command_words.join(" "));
    let is_live = name == "top" && json.is_empty();
    if is_live && !flags.once && io::stdout().is_terminal() {
        loop {
            let text = send_command(socket, &line)?;
            print_with_controls(CLEAR);
            print(&text);
        }
    }
    print(&send_command(socket, &line)?);
    Ok(Exit::Done)
}

/// Returns the page of `--body` as words of the command; empty: the flag is missing.
fn maintenance_page(flags: &CtlFlags, command_words: &[String]) -> Result<String, Failure> {
    let problem = |location: &str, text: &str| Failure::from(vec![InputProblem::new(location, text)]);
    let Some(path) = flags.body.as_deref() else {
        return match flags.values {
            true => Err(problem("--values", "needs --body FILE: the page whose values it replaces")),
            false => Ok(String::new()),
        };
    };
    if command_words != ["maintenance", "on"] {
        return Err(problem(
            "--body",
            "is the page of `maintenance on` (weir ctl maintenance on --body FILE)",
        ));
    }
    let bytes =
        read_bytes(path, PAGE_BYTES_MAX as u64).map_err(|error| problem(path, &unreadable_page(&error)))?;
    let content = decode_text(path, bytes).map_err(|fault| Failure::from(vec![fault]))?;
    let form = MaintenancePage::form_of(path, &content);
    let page = MaintenancePage::new(form, &content, flags.values).map_err(|faults| {
        let located = faults.iter().map(|fault| match fault {
            PageFault::Value { line, column, text } => {
                InputProblem::new(format!("{path}:{line}:{column}"), text.clone())
            }
            other => InputProblem::new(path, other.to_string()),
        });
        Failure::from(located.collect::<Vec<_>>())
    })?;
    Ok(format!(" page {}", page.words()))
}

fn unreadable_page(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file: write the page there, or leave out --body".to_owned(),
        io::ErrorKind::FileTooLarge => {
            "longer than 64 KiB: a page has at most 65,536 bytes; move styles and images out of it".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied: `weir ctl` reads the file, as the user that runs it".to_owned()
        }
        _ => format!("cannot be read: {error} (give a file with the page)"),
    }
}

fn send_command(socket: &str, line: &str) -> Result<String, Failure> {
    let mut stream = UnixStream::connect(socket).map_err(|error| connect_failure(socket, &error))?;
    let response = exchange(&mut stream, line).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock => "the proxy does not respond".to_owned(),
            _ => error.to_string(),
        };
        Failure::cannot(socket, why)
    })?;
    match response.split_once('\n') {
        Some(("ok", text)) => Ok(printable(text)),
        Some((first, rest)) if first.starts_with("error: ") => {
            Err(command_failure(&printable(first), &printable(rest)))
        }
        _ => Err(Failure::cannot(socket, "the peer is not a weir proxy")),
    }
}

/// Replaces control characters that a terminal would obey: the proxy has another user, and shows names that clients
/// and servers chose.
fn printable(text: &str) -> String {
    text.replace(|character: char| character.is_control() && !matches!(character, '\n' | '\t'), "?")
}

fn exchange(stream: &mut UnixStream, line: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // A proxy that refuses the connection closes before it reads. Its response contains the reason.
    let sent = stream.write_all(line.as_bytes());
    let mut response = Vec::new();
    match stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response) {
        // The proxy closed with unread bytes of ours: its response has arrived.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !response.is_empty() => {}
        Err(error) => return Err(error),
        Ok(0) => sent?,
        Ok(_) => {}
    }
    String::from_utf8(response).map_err(io::Error::other)
}

fn connect_failure(socket: &str, error: &io::Error) -> Failure {
    let why = match error.kind() {
        io::ErrorKind::NotFound => {
            "no proxy listens there: no such socket (`control` in its config sets the path)"
        }
        io::ErrorKind::ConnectionRefused => "no proxy listens there: the process has ended",
        io::ErrorKind::PermissionDenied => {
            "permission denied (only root and the proxy's own user may use it)"
        }
        _ => return Failure::cannot(socket, error),
    };
    Failure::cannot(socket, why)
}

/// Maps an error of the proxy to a failure: a wrong command is a usage error, an impossible one is
/// not.
fn command_failure(first: &str, rest: &str) -> Failure {
    let text = first.trim_start_matches("error: ");
    if text.starts_with("cannot ") {
        return Failure::CannotRun(text.to_owned());
    }
    let lines = std::iter::once(text).chain(rest.lines()).filter(|line| !line.is_empty());
    // Lines about a config start with their position.
    let problem = |line: &str| match line.split_once(": ") {
        Some((position, text)) => InputProblem::new(position, text),
        None => InputProblem::new("ctl", line),
    };
    Failure::Usage(lines.map(problem).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_gives_no_orders_to_the_terminal() {
        assert_eq!(printable("a\tb\nc\x1b]0;x\x07\u{9b}2J\r"), "a\tb\nc?]0;x??2J?");
    }
}
