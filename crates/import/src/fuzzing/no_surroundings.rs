//! Machine for imports in tests. The tests of the binary include this file.

use super::{IncludeError, Surroundings};

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
