//! Properties that hold for any input, as functions that panic when one fails. For tests and fuzz targets only.

use crate::{IncludeError, Program, Surroundings, convert};

/// Directory of [`NoSurroundings`].
pub const DIRECTORY: &str = "/usr/share";

/// Machine with one directory, without files, with one variable.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSurroundings;

impl Surroundings for NoSurroundings {
    fn include(&mut self, pattern: &str) -> Result<Vec<(String, String)>, IncludeError> {
        match pattern.contains('*') {
            true => Ok(Vec::new()),
            false => Err(IncludeError::Outside(record::problem::printable(pattern, 100))),
        }
    }

    fn exists(&mut self, path: &str) -> bool {
        path.trim_end_matches('/') == DIRECTORY
    }

    fn is_page(&mut self, _: &str) -> bool {
        false
    }

    fn has_user(&mut self, _: &str) -> bool {
        false
    }

    fn has_group(&mut self, _: &str) -> bool {
        false
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        (name == "HOST").then(|| "host".to_owned())
    }

    fn secret(&mut self) -> String {
        "0123456789abcdef0123456789abcdef".to_owned()
    }
}

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
