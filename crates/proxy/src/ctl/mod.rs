//! Operating a running proxy over its control socket, as `weir ctl` does: what can be asked and
//! changed, and the protocol.
//!
//! The client sends one line, a command with its words; `--json` among them asks for JSON where there
//! is some. The answer's first line is `ok`, or `error: ` with what is wrong (`error: cannot ` when
//! nothing was wrong with what was asked); what follows is the answer itself. Its end is the end of
//! the connection.
//!
//! `COMMANDS` is the table of all commands. `socket` is the connections, `desk` asks the cores and
//! whoever holds the proxy, `sheet` lays answers out; the rest is commands.

mod change;
mod desk;
mod door;
mod sheet;
mod show;
mod socket;
mod top;
mod upgrade;
mod where_time_goes;

use std::os::unix::net::UnixStream;

use rt::local::LocalPeer;

pub use desk::{Answer, Errand, Order};
pub(crate) use desk::{Desk, InForce, OneAtATime, ReloadResults};
pub(crate) use door::ControlDoor;

use crate::config::suggestion;
use crate::profile::Phase;

/// What a client sent, for the command that it is about.
pub(crate) struct Call<'a> {
    pub(crate) desk: &'a Desk,
    /// The words behind the command's name.
    pub(crate) words: &'a [&'a str],
    /// Whether the answer is to be JSON.
    pub(crate) json: bool,
    /// For a command that answers by itself.
    pub(crate) stream: &'a UnixStream,
    pub(crate) peer: LocalPeer,
}

/// Why a command was not obeyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What was asked is wrong.
    Wrong(String),
    /// It could not be done; the text goes on behind "cannot".
    Cannot(String),
}

/// What a command answers; `None`: it took the stream over and has answered by itself.
pub(crate) type Outcome = Result<Option<String>, Refusal>;

/// One command.
struct Command {
    name: &'static str,
    /// What may follow its name, with what that does.
    forms: &'static [(&'static str, &'static str)],
    run: fn(&Call<'_>) -> Outcome,
}

/// Every command.
const COMMANDS: &[Command] = &[
    Command {
        name: "show",
        forms: &[
            ("", "the proxy, its listeners, pools and servers, one below the other"),
            ("info", "the proxy itself: version, process, how long it is up, connections"),
            ("listeners", "where it listens, with connections and counts"),
            ("pools", "pools: servers that are up, requests in flight and waiting, counts"),
            (
                "servers",
                "servers: state, weight and maxconn as they are set and as they are planned, requests in flight, counts",
            ),
            (
                "connections",
                "connections of clients with their ids: where from, where to, state, age, bytes",
            ),
            ("config", "the config that is in force, as it was read"),
        ],
        run: show::run,
    },
    Command {
        name: "server",
        forms: &[
            ("POOL/NAME ready", "the server gets requests"),
            ("POOL/NAME drain", "it gets no new requests; those in flight end well"),
            (
                "POOL/NAME maint",
                "as drain; it is not checked either, and idle connections to it are closed",
            ),
            (
                "POOL/NAME weight N|default",
                "its share against the others', 0 to 256; default: as the config has it",
            ),
            (
                "POOL/NAME maxconn N|default",
                "how many requests it may have at a time; default: as the config has it",
            ),
        ],
        run: change::server,
    },
    Command {
        name: "kill",
        forms: &[
            ("ID...", "ends these connections at once, with what they have in flight"),
            ("server POOL/NAME", "ends the connections with a request that is with this server"),
        ],
        run: change::kill,
    },
    Command {
        name: "reload",
        forms: &[(
            "",
            "reads the config again and applies it; one that is wrong is refused, and the one before stays",
        )],
        run: change::reload,
    },
    Command {
        name: "reopen",
        forms: &[("", "opens the files of logs anew, after they were moved away")],
        run: change::reopen,
    },
    Command {
        name: "drain",
        forms: &[(
            "",
            "stops the proxy: it takes nothing new, finishes what is in flight and ends",
        )],
        run: change::drain,
    },
    Command {
        name: "top",
        forms: &[(
            "",
            "rates of one second, by listener, pool and server; percentiles are right to 3.2 % from 50 µs",
        )],
        run: top::run,
    },
    Command {
        name: "profile",
        forms: &[
            ("show", "where processor time goes, by phase of a request"),
            ("on", "starts to measure that, from nothing"),
            (
                "on exact",
                "the same by the threads' own clocks: for a machine that others use too; costs more",
            ),
            ("off", "stops; what was measured can still be shown"),
        ],
        run: where_time_goes::run,
    },
    Command {
        name: crate::handover::COMMAND,
        forms: &[(
            "",
            "passes the listening sockets to the process that asks, which goes on in place of this one: what `weir proxy --upgrade-from` says, and nothing to be said by hand",
        )],
        run: upgrade::run,
    },
    Command { name: "help", forms: &[("", "lists the commands")], run: |_| Ok(Some(help())) },
];

/// Every command with what it does, for help.
#[must_use]
pub fn help() -> String {
    let forms = COMMANDS.iter().flat_map(|command| {
        command.forms.iter().map(move |(words, doc)| (join(command.name, words), *doc))
    });
    forms.map(|(form, doc)| format!("  {form}\n      {doc}\n")).collect()
}

/// Every command with what it does, as rows of a table in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = "| Command | Meaning |\n| --- | --- |\n".to_owned();
    for command in COMMANDS {
        for (words, doc) in command.forms {
            let form = join(command.name, words).replace('|', "\\|");
            text.push_str(&format!("| `{form}` | {doc} |\n"));
        }
    }
    text
}

/// The protocol of the socket and what a profile has in it, as a chapter of the reference.
pub(crate) fn protocol() -> String {
    let mut text = "\n## The control socket\n\n\
        `control` names a unix socket of mode 0600: `weir ctl` operates the proxy over it, and so \
        can any program of root or of the proxy's own user. The client sends one line, a command \
        with its words (docs/reference.md has them all), and reads the answer to its end. Its \
        first line is `ok`, or `error: ` with what is wrong; `error: cannot ` stands where nothing \
        was wrong with what was asked. `--json` among the words of `show`, `top` and `profile` asks \
        for JSON, with units in the names. A line has at most 4,096 bytes and 5 s, and 16 clients \
        are answered at a time. What is set of a server holds until that server is not in the \
        config any more, or the process ends; `show servers` has what is set beside what is \
        planned.\n\n\
        `profile` splits the time of the proxy's threads by phase. `cpu` is the time in a phase \
        without that in phases inside it, by `CLOCK_MONOTONIC` around code that never waits, so it \
        is processor time unless the kernel gave the processor to others meanwhile (`preempted`, \
        by the thread's own clock); `profile on exact` uses that clock in each section. `runtime` is the threads' other processor time, `idle` the \
        rest, and all rows add up to the time that it was on, on all threads. `lat` is how long \
        requests were in a phase, waiting included, from when they came to it until they went on; \
        these add up to the time of the requests. Measuring costs two readings of the clock a \
        section (`section_cost`), which is in the figures (`own_cost`); off, it costs nothing but \
        the look whether it is on.\n\n| Phase | What is in it |\n| --- | --- |\n"
        .to_owned();
    for phase in Phase::ALL {
        text.push_str(&format!("| `{}` | {} |\n", phase.code(), phase.doc()));
    }
    text
}

/// The names of all commands.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

fn join(name: &str, words: &str) -> String {
    if words.is_empty() { name.to_owned() } else { format!("{name} {words}") }
}

/// Obeys one line.
fn obey(line: &str, desk: &Desk, stream: &UnixStream, peer: LocalPeer) -> Outcome {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let all = words.len();
    words.retain(|word| *word != "--json");
    let json = words.len() < all;
    let Some((name, words)) = words.split_first() else {
        return Err(Refusal::Wrong("no command was given; `help` lists them".to_owned()));
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == *name) else {
        let near = suggestion(name, names());
        let text = format!("there is no command '{name}'{near}; `help` lists them");
        return Err(Refusal::Wrong(text));
    };
    (command.run)(&Call { desk, words, json, stream, peer })
}

impl Call<'_> {
    /// What a command says to words that it does not know.
    fn wrong_words(&self, name: &str) -> Refusal {
        let forms = COMMANDS.iter().find(|command| command.name == name).map(|row| row.forms);
        let forms: Vec<String> = forms
            .unwrap_or_default()
            .iter()
            .map(|(words, _)| format!("`{}`", join(name, words)))
            .collect();
        let words = join(name, &self.words.join(" "));
        Refusal::Wrong(format!("'{words}' is not understood (write {})", forms.join(" or ")))
    }

    /// Tells whoever reads the proxy's diagnostics what somebody has changed.
    fn note(&self, what: &str) {
        let LocalPeer { user, process } = self.peer;
        eprintln!("weir: notice: control (user {user}, process {process}): {what}");
    }
}

#[cfg(test)]
mod tests;
