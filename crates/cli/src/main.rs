//! The program `weir`: the only crate that knows the command line, stdout and exit codes.
//!
//! It reads flags into texts, has the engines parse the texts into plans, runs the plans, and
//! shows the records. It decides nothing that an engine decides.

#![forbid(unsafe_code)]

mod commands;
mod embedded;
mod exit;
mod flags;
mod observation;
mod output;
mod preflight;
mod store;
mod watcher;

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
            eprintln!("weir: {text}");
            return Exit::Usage.into();
        }
    };
    let matches = match flags::program().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version are no errors; clap knows which stream each belongs to.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    match commands::run(&matches, &arguments) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            for line in failure.lines() {
                eprintln!("weir: {line}");
            }
            failure.exit().into()
        }
    }
}

fn arguments() -> Result<Vec<String>, String> {
    let texts = std::env::args_os()
        .map(|argument| argument.into_string().map_err(|raw| format!("{raw:?} is not UTF-8")));
    texts.collect()
}
