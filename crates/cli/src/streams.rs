//! The standard streams: the only way to print. A stream that is closed or full causes no panic,
//! and no lost output stays unnoticed.
//!
//! A reader of stdout that has left (`| head`) has what it wanted: the rest is dropped silently,
//! and the command ends with its own exit code. Any other error (a full disk) is reported once, at
//! the end, and the exit code is 1. An error of stderr cannot be reported.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// First error of stdout, if there was one.
static STDOUT_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints to stdout.
pub(crate) fn print(text: &str) {
    if STDOUT_ERROR.get().is_some() {
        return;
    }
    let mut stdout = io::stdout().lock();
    record_result(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Stores the error of a failed print to stdout.
pub(crate) fn record_result(printed: io::Result<()>) {
    if let Err(error) = printed {
        // Only the first error is kept: it is the cause.
        let _ = STDOUT_ERROR.set(error);
    }
}

/// Returns whether printing to stdout has failed. An endless command then ends.
pub(crate) fn is_stdout_broken() -> bool {
    STDOUT_ERROR.get().is_some()
}

/// Returns why the output on stdout is incomplete, if it is and somebody wanted it.
pub(crate) fn stdout_error_text() -> Option<String> {
    let error = STDOUT_ERROR.get().filter(|error| error.kind() != ErrorKind::BrokenPipe)?;
    Some(format!("standard output: {error}"))
}

/// Prints text for `note!`, and ignores a failure.
pub(crate) fn write_stderr(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Prints a line to stderr, as `eprintln!` does, but without a panic if the stream is closed or
/// full.
macro_rules! warn {
    ($($text:tt)*) => {
        $crate::streams::write_stderr(format_args!("{}\n", format_args!($($text)*)))
    };
}
