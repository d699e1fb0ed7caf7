//! Properties that hold for any input, as functions that panic when one fails. For tests and fuzz targets only.

mod no_surroundings;

pub use no_surroundings::{DIRECTORY, NoSurroundings};

use crate::{IncludeError, Program, Surroundings, convert};

/// Converts a config of each program. `true`: one of them accepted it.
///
/// # Panics
/// A config has a control character, or a report has no place.
pub fn import(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let programs = [Program::Haproxy, Program::Nginx, Program::Caddy];
    let accepted = programs.into_iter().filter(|program| {
        let Ok(import) = convert(*program, "fuzz", &text, &mut NoSurroundings) else { return false };
        assert!(!import.config.bytes().any(|byte| byte < b' ' && byte != b'\n'), "control character");
        assert!(import.report.iter().all(|left| left.line > 0), "place");
        true
    });
    accepted.count() > 0
}

#[cfg(test)]
mod cost_tests;
