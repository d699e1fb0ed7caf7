//! The standard streams: the one way to print, so that no stream that is closed or full is a panic, and
//! no output that was lost goes unnoticed.
//!
//! A reader of stdout that went away (`| head`) has what it wanted: the rest is dropped in silence, and
//! the command ends with its own exit code. Anything else (a full disk) is said once, at the end, and the
//! exit code is 1. What cannot be said on stderr can be said nowhere.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Why stdout took no more, since it did not.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints to stdout.
pub(crate) fn print(text: &str) {
    if LOST.get().is_some() {
        return;
    }
    let mut stdout = io::stdout().lock();
    keep(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Remembers that something could not be printed to stdout.
pub(crate) fn keep(printed: io::Result<()>) {
    if let Err(error) = printed {
        // The first is the cause.
        let _ = LOST.set(error);
    }
}

/// Whether nothing that is printed to stdout is read any more. What would go on for ever ends then.
pub(crate) fn nobody_reads() -> bool {
    LOST.get().is_some()
}

/// Why the output on stdout is not whole, if it is not and somebody wanted it.
pub(crate) fn lost() -> Option<String> {
    let error = LOST.get().filter(|error| error.kind() != ErrorKind::BrokenPipe)?;
    Some(format!("standard output: {error}"))
}

/// What `note!` prints, whether or not anybody reads it.
pub(crate) fn write_stderr(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Prints a line to stderr, as `eprintln!` does, but a stream that is closed or full is no panic.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::streams::write_stderr(format_args!("{}\n", format_args!($($text)*)))
    };
}
