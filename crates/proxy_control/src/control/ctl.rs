//! Operation of a running proxy over its control socket, as `weir ctl` does: the commands and the
//! protocol.
//!
//! The client sends one line: a command and its arguments. The argument `--json` requests JSON
//! output, if the command supports it. The response's first line is `ok`, or `error: ` with the
//! reason. It is `error: cannot ` if the command was valid but failed. The rest is the response
//! itself, up to the end of the connection.
//!
//! `COMMANDS` is the table of all commands. `socket` handles the connections, `command_context`
//! queries the cores and the owner of the proxy, `table` formats responses; the other modules are commands.

mod cache;
mod change;
mod command_context;
mod control_socket;
mod maintenance;
mod map;
mod profile;
mod show;
mod socket;
mod split;
mod table;
mod top;
mod upgrade;

use std::os::unix::net::UnixStream;

use rt::unix_socket::PeerCredentials;

pub use super::owner::{ControlCommand, MaintenanceChange, OwnerError, OwnerTask, ReplySender};
pub use super::runtime_servers::{NewServer, ServerSetChange, ServerSetChangeKind, ServerSetError};
pub(super) use change::{KeptChange, set_pool_state};
pub(crate) use command_context::{CommandContext, TryLock};
pub(crate) use control_socket::ControlSocket;

use crate::config::suggestion;
use crate::profile::ProfilePhase;

pub(crate) struct CommandRequest<'a> {
    pub(crate) context: &'a CommandContext,
    /// Arguments: the words behind the command's name.
    pub(crate) args: &'a [&'a str],
    /// True if the response must be JSON.
    pub(crate) wants_json: bool,
    /// The connection, for a command that responds by itself.
    pub(crate) stream: &'a UnixStream,
    pub(crate) peer: PeerCredentials,
}

/// Reason why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("{0}")]
    Invalid(String),
    /// The command failed; the text continues "cannot".
    #[error("cannot {0}")]
    Failed(String),
}

impl CommandError {
    fn invalid(error: impl std::error::Error) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// Response of a command. `None`: the command has responded over the stream by itself.
pub(crate) type CommandResult = Result<Option<String>, CommandError>;

struct CommandSpec {
    name: &'static str,
    /// Possible arguments, each with its meaning.
    usages: &'static [(&'static str, &'static str)],
    run: fn(&CommandRequest<'_>) -> CommandResult,
}

const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "show",
        usages: &[
            ("", "all of info, listeners, pools and servers"),
            ("info", "the process: version, pid, uptime, connections"),
            ("listeners", "listeners: addresses, connections, counters"),
            ("pools", "pools: usable servers, requests in flight and queued, counters"),
            (
                "servers",
                "servers: state, effective and configured weight and maxconn, requests in flight, counters",
            ),
            ("connections", "client connections: id, client, server, state, age, bytes"),
            ("certificates", "automatic certificates (ACME): expiry, next order, counters, last error"),
            ("config", "text of the active config"),
        ],
        run: show::run,
    },
    CommandSpec {
        name: "server",
        usages: &[
            ("POOL/NAME ready", "lets the server receive requests"),
            (
                "POOL/NAME drain",
                "sends no new clients to the server; requests in flight complete, and clients with its sticky cookie stay",
            ),
            (
                "POOL/NAME maint",
                "sends no new requests at all, also none with its sticky cookie; stops health checks, closes idle connections",
            ),
            ("POOL/NAME weight N|default", "sets the weight, 0 to 256; default: from the config"),
            (
                "POOL/NAME maxconn N|default",
                "sets the maximum number of concurrent requests; default: from the config",
            ),
            (
                "POOL/NAME add ADDRESS [weight N] [maxconn N] [backup]",
                "adds a server, up to 1,024; it stays until the process ends, or the config has its name",
            ),
            ("POOL/NAME add", "adds a server of the config again that was removed"),
            (
                "POOL/NAME remove",
                "removes a server; requests in flight complete. It stays removed until it is added again, or the process ends",
            ),
        ],
        run: change::run_server,
    },
    CommandSpec {
        name: "pool",
        usages: &[
            ("POOL ready", "lets the servers of the pool receive requests, each as its own state says"),
            (
                "POOL drain",
                "sends no new clients to its servers, also to those that DNS adds; clients with its sticky cookie stay",
            ),
            (
                "POOL maint",
                "sends no new requests to its servers: they get 503, and the error page for it; health checks go on",
            ),
        ],
        run: change::run_pool,
    },
    CommandSpec {
        name: "maintenance",
        usages: &[
            ("", "whether pools are in maintenance, and the page of an operator"),
            (
                "on",
                "puts all pools into `maint`, with the error page for 503; routes that respond themselves stay as they are",
            ),
            (
                "on --body FILE [--values]",
                "the same, with the content of FILE as the page, up to 64 KiB; `weir ctl` reads the file and sends it as `on page FORM [values] BASE64`",
            ),
            ("off", "lets all pools receive requests, and forgets the page"),
        ],
        run: maintenance::run,
    },
    CommandSpec {
        name: "percent",
        usages: &[
            ("", "percentages of conditions that have a name: now, in the config, their key"),
            ("NAME N|default", "sets a percentage, 0 to 100; default: from the config"),
        ],
        run: change::run_percent,
    },
    CommandSpec {
        name: "split",
        usages: &[
            ("", "splits that have a name: weights now and in the config"),
            ("NAME POOL=WEIGHT...", "sets weights of its pools; those that are not named keep theirs"),
            ("NAME default", "sets the weights of the config"),
        ],
        run: split::run,
    },
    CommandSpec {
        name: "kill",
        usages: &[
            ("ID...", "closes these connections at once, with their requests in flight"),
            ("server POOL/NAME", "closes the connections with a request at this server"),
        ],
        run: change::run_kill,
    },
    CommandSpec {
        name: "map",
        usages: &[
            ("list", "maps and lists: file, entries, memory, changes, loads, last error"),
            ("show NAME", "entries of a map, up to 100,000"),
            ("show NAME KEY", "the value for a key, found as for a request"),
            (
                "set NAME KEY VALUE",
                "sets an entry in memory, in all threads; the file stays as it is, and reading it again replaces all entries",
            ),
            ("delete NAME KEY", "deletes an entry in memory, in the same way"),
            (
                "reload NAME",
                "reads the file of a map again; a file with faults is refused, and the entries stay",
            ),
        ],
        run: map::run,
    },
    CommandSpec {
        name: "cache",
        usages: &[
            ("", "caches of responses: memory, files, counters"),
            ("show NAME", "the 50 largest responses in its memory: key, status, age, remaining lifetime"),
            (
                "purge NAME key KEY",
                "removes the responses of a key, as `show` prints it, in memory and on disk",
            ),
            ("purge NAME tag TAG", "removes the responses with a tag of `Cache-Tag` or `Surrogate-Key`"),
            ("purge NAME prefix TEXT", "removes the responses whose key begins with a text"),
            ("purge NAME all", "removes all responses"),
        ],
        run: cache::run,
    },
    CommandSpec {
        name: "reload",
        usages: &[(
            "",
            "reads the config again and applies it; an invalid config is refused, and the active one stays",
        )],
        run: change::run_reload,
    },
    CommandSpec {
        name: "reopen",
        usages: &[("", "opens the log files again, after they were renamed")],
        run: change::run_reopen,
    },
    CommandSpec {
        name: "drain",
        usages: &[("", "stops the proxy: it accepts no connections, completes requests in flight and exits")],
        run: change::run_drain,
    },
    CommandSpec {
        name: "top",
        usages: &[(
            "",
            "rates of one second, by listener, pool and server; percentiles have an error of at most 3.2 % from 50 µs",
        )],
        run: top::run,
    },
    CommandSpec {
        name: "profile",
        usages: &[
            ("show", "CPU time by phase of a request"),
            ("on", "resets and starts the profile"),
            ("on exact", "the same with the CPU clock of each thread: for a shared machine; costs more"),
            ("off", "stops the profile; `show` still prints it"),
        ],
        run: profile::run,
    },
    CommandSpec {
        name: super::handover::COMMAND,
        usages: &[(
            "",
            "passes the listening sockets to a new process that replaces this one; sent by `weir proxy --upgrade-from`, not for manual use",
        )],
        run: upgrade::run,
    },
    CommandSpec { name: "help", usages: &[("", "lists the commands")], run: |_| Ok(Some(help())) },
];

/// Returns every command with its meaning, for help.
pub fn help() -> String {
    let usages = COMMANDS
        .iter()
        .flat_map(|command| command.usages.iter().map(move |(args, doc)| (usage(command.name, args), *doc)));
    usages.map(|(usage_text, doc)| format!("  {usage_text}\n      {doc}\n")).collect()
}

/// Returns every command with its meaning, as rows of a table in Markdown.
pub fn reference() -> String {
    let mut text = "| Command | Meaning |\n| --- | --- |\n".to_owned();
    for command in COMMANDS {
        for (args, doc) in command.usages {
            let usage_text = usage(command.name, args).replace('|', "\\|");
            text.push_str(&format!("| `{usage_text}` | {doc} |\n"));
        }
    }
    text
}

/// Returns the reference chapter on the socket's protocol and the contents of a profile.
pub(crate) fn protocol_reference() -> String {
    let mut text = "\n## The control socket\n\n\
        `control` is the path of a unix socket of mode 0600. `weir ctl`, and any program of root or \
        of the proxy's own user, controls the proxy over it. The client sends one line, a command \
        with its arguments (docs/reference/ctl.md lists them), and reads the response to its end. The \
        first line is `ok`, or `error: ` with the reason; `error: cannot ` means that the command \
        was valid but failed. The argument `--json` of `show`, `map`, `top` and `profile` requests JSON, \
        with units in the names. A line may have at most 96 KiB and take 5 s, and 16 clients \
        are served at a time. A changed setting of a server stays until the server is no longer in \
        the config, or the process ends; with `state-file`, the next process makes it again. `show servers` prints the effective settings beside the \
        configured ones.\n\n\
        `profile` splits the time of the proxy's threads by phase. `cpu` is the time in a phase \
        without the phases inside it, by `CLOCK_MONOTONIC` around code that never waits, so it is \
        CPU time unless the kernel preempted the thread (`preempted`, by the thread's own clock); \
        `profile on exact` uses that clock in each section. `runtime` is the other CPU time of the \
        threads, `idle` the rest, and all rows add up to the duration of the profile, on all \
        threads. `lat` is the time that requests spent in a phase, including waiting; its rows add \
        up to the time of the requests. Profiling reads the clock twice per section \
        (`section_cost`), and the values include this cost (`own_cost`); without a profile, the \
        only cost is a check of a flag.\n\n| Phase | Contents |\n| --- | --- |\n"
        .to_owned();
    for phase in ProfilePhase::ALL {
        text.push_str(&format!("| `{}` | {} |\n", phase.code(), phase.doc()));
    }
    text
}

pub fn command_names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

fn usage(name: &str, args: &str) -> String {
    if args.is_empty() { name.to_owned() } else { format!("{name} {args}") }
}

fn run_command(
    line: &str,
    context: &CommandContext,
    stream: &UnixStream,
    peer: PeerCredentials,
) -> CommandResult {
    let mut args: Vec<&str> = line.split_whitespace().collect();
    let word_count = args.len();
    args.retain(|word| *word != "--json");
    let wants_json = args.len() < word_count;
    let Some((name, args)) = args.split_first() else {
        return Err(CommandError::Invalid("missing command; `help` lists all commands".to_owned()));
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == *name) else {
        let hint = suggestion(name, command_names());
        let text = format!("unknown command '{name}'{hint}; `help` lists all commands");
        return Err(CommandError::Invalid(text));
    };
    (command.run)(&CommandRequest { context, args, wants_json, stream, peer })
}

impl CommandRequest<'_> {
    /// Builds the error for unknown arguments of a command.
    fn usage_error(&self, name: &str) -> CommandError {
        let usages = COMMANDS.iter().find(|command| command.name == name).map(|row| row.usages);
        let usages: Vec<String> =
            usages.unwrap_or_default().iter().map(|(args, _)| format!("`{}`", usage(name, args))).collect();
        let args = usage(name, &self.args.join(" "));
        CommandError::Invalid(format!("invalid command '{args}' (write {})", usages.join(" or ")))
    }

    /// Reports a change that a client made, on the proxy's stderr.
    fn log_change(&self, change: &str) {
        let PeerCredentials { uid: user, pid } = self.peer;
        eprintln!("weir: notice: control (user {user}, pid {pid}): {change}");
    }
}

#[cfg(test)]
mod tests;
