//! The program `weir`: the only crate that knows the command line, stdout and exit codes.
//!
//! Reads flags into texts, lets the engines parse the texts into plans, runs the plans, and shows
//! the records. It decides nothing that an engine decides.

#![forbid(unsafe_code)]
// These macros panic if a stream is closed or full: `streams` prints instead.
#![warn(clippy::print_stdout, clippy::print_stderr)]

// First, because of its macro.
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

/// A task of the runtime is two blocks of 256 bytes, aligned to 128: glibc's allocator spends 384
/// on each, this one 256. An idle connection of `serve` costs 524 bytes instead of 918.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = match arguments() {
        Ok(arguments) => arguments,
        Err(text) => {
            warn!("weir: {text}");
            return Exit::Usage.into();
        }
    };
    let matches = match flags::command_line_with_help().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version are no errors; clap knows the stream of each.
            let printed = error.print();
            if error.use_stderr() {
                return Exit::Usage.into();
            }
            streams::record_result(printed.and_then(|()| std::io::stdout().flush()));
            return final_exit_code(Exit::Done);
        }
    };
    match commands::run(&matches, &arguments) {
        Ok(exit) => final_exit_code(exit),
        Err(failure) => {
            for line in failure.lines() {
                warn!("weir: {line}");
            }
            failure.exit().into()
        }
    }
}

/// Returns the exit code of a finished command: a result that could not be printed is lost.
fn final_exit_code(exit: Exit) -> ExitCode {
    let Some(error) = streams::stdout_error_text() else { return exit.into() };
    warn!("weir: {error}");
    Exit::CannotRun.into()
}

fn arguments() -> Result<Vec<String>, String> {
    let texts = std::env::args_os()
        .map(|argument| argument.into_string().map_err(|raw| format!("{raw:?} is not UTF-8")));
    texts.collect()
}
