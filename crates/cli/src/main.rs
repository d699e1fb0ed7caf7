//! The program `weir`: the only crate that knows the command line, stdout and exit codes.
//!
//! It reads flags into texts, has the engines parse the texts into plans, runs the plans, and
//! shows the records. It decides nothing that an engine decides.

#![forbid(unsafe_code)]
// They panic where a stream is closed or full: `streams` prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

// First, for its macro.
#[macro_use]
mod streams;

mod commands;
mod embedded;
mod exit;
mod flags;
mod observation;
mod output;
mod preflight;
mod store;
mod watcher;

use std::io::Write;
use std::process::ExitCode;

use exit::Exit;

/// A task of the runtime is two blocks of 256 bytes, aligned to 128: glibc's allocator spends 384 on
/// each, this one 256. An idle connection of `serve` costs 524 bytes instead of 918.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = match arguments() {
        Ok(arguments) => arguments,
        Err(text) => {
            note!("weir: {text}");
            return Exit::Usage.into();
        }
    };
    let matches = match flags::program().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version are no errors; clap knows which stream each belongs to.
            let printed = error.print();
            if error.use_stderr() {
                return Exit::Usage.into();
            }
            streams::keep(printed.and_then(|()| std::io::stdout().flush()));
            return ended(Exit::Done);
        }
    };
    match commands::run(&matches, &arguments) {
        Ok(exit) => ended(exit),
        Err(failure) => {
            for line in failure.lines() {
                note!("weir: {line}");
            }
            failure.exit().into()
        }
    }
}

/// The exit code of what came to its end: a result that could not be printed is none.
fn ended(exit: Exit) -> ExitCode {
    let Some(why) = streams::lost() else { return exit.into() };
    note!("weir: {why}");
    Exit::CannotRun.into()
}

fn arguments() -> Result<Vec<String>, String> {
    let texts = std::env::args_os()
        .map(|argument| argument.into_string().map_err(|raw| format!("{raw:?} is not UTF-8")));
    texts.collect()
}
