//! Configs of HAProxy, nginx and Caddy become one of `weir proxy`.
//!
//! Text → lexer → directives with their places → table of the directives → rules and sections → text. Pure: other files
//! and facts of the machine come through [`Surroundings`]. It does not read the config of weir; the caller checks it.

#![forbid(unsafe_code)]

mod caddy;
mod content;
mod detect;
mod directive;
mod document;
mod draft;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod haproxy;
mod left;
mod nginx;
mod paths;
mod reference;
mod row;
mod rules;
mod text;

pub use left::{Kind, Left};
pub use reference::{examples, markdown};
pub use row::Row;

/// Program whose config is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Haproxy,
    Nginx,
    Caddy,
}

impl Program {
    /// Returns the program of a name, as `--from` has it.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "haproxy" => Some(Self::Haproxy),
            "nginx" => Some(Self::Nginx),
            "caddy" => Some(Self::Caddy),
            _ => None,
        }
    }

    /// Returns the program that a text is a config of.
    #[must_use]
    pub fn detect(text: &str) -> Self {
        detect::program_of(text)
    }

    /// Returns the name for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Haproxy => "HAProxy",
            Self::Nginx => "nginx",
            Self::Caddy => "Caddy",
        }
    }
}

/// Files and facts of the machine that an import asks for.
pub trait Surroundings {
    /// Returns the names and texts of the files that a pattern of `include` or `import` names, relative to the
    /// directory of the config.
    fn include(&mut self, pattern: &str) -> Result<Vec<(String, String)>, IncludeError>;
    /// Returns whether a file or directory exists.
    fn exists(&mut self, path: &str) -> bool;
    /// Returns whether a file is a page that a response can have: text in UTF-8 of up to 64 KiB.
    fn is_page(&mut self, path: &str) -> bool;
    /// Returns whether the machine has this user.
    fn has_user(&mut self, name: &str) -> bool;
    /// Returns whether the machine has this group.
    fn has_group(&mut self, name: &str) -> bool;
    /// Returns the value of an environment variable.
    fn variable(&mut self, name: &str) -> Option<String>;
    /// Returns a new secret of 32 letters or more.
    fn secret(&mut self) -> String;
}

/// Failure to include a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncludeError {
    /// It is not below the directory of the config.
    #[error("{0} is not in the directory of the config: import it by itself, or copy it there")]
    Outside(String),
    /// It cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Unreadable {
        /// File.
        path: String,
        /// Reason of the system.
        reason: String,
    },
}

/// Text that is no config of the program, or one that would become too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct ParseError {
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    pub reason: String,
}

/// Result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The config of weir, in TOML.
    pub config: String,
    /// The report, in the order of the files.
    pub report: Vec<Left>,
}

/// Maximum length of a config with all included files.
pub const BYTES_MAX: usize = 4 << 20;

/// Converts a config.
///
/// # Errors
/// The text, or an included one, is no config of the program, or its routes would become too long.
pub fn convert(
    program: Program,
    name: &str,
    text: &str,
    surroundings: &mut dyn Surroundings,
) -> Result<Import, ParseError> {
    match program {
        Program::Haproxy => haproxy::convert(name, text, surroundings),
        Program::Nginx => nginx::convert(name, text, surroundings),
        Program::Caddy => caddy::convert(name, text, surroundings),
    }
}
