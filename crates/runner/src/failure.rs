//! Reason why a run, or a command around it, did not finish.

use std::fmt;

use record::problem::{InputProblem, without_error_number};

/// Reason why a command did not finish.
#[derive(Debug)]
pub enum Failure {
    /// All problems of the command line or the config.
    Usage(Vec<InputProblem>),
    /// The command could not run.
    CannotRun(String),
}

impl Failure {
    /// Returns the lines to print, each once, without the numbers of errors of the operating system.
    pub fn lines(&self) -> Vec<String> {
        let all = match self {
            Self::Usage(problems) => problems.iter().map(ToString::to_string).collect(),
            Self::CannotRun(text) => vec![text.clone()],
        };
        let mut lines: Vec<String> = Vec::new();
        for line in all.iter().map(|line| without_error_number(line)) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// Creates a [`Self::CannotRun`] from an error that says all.
    pub fn cannot_run(error: impl fmt::Display) -> Self {
        Self::CannotRun(error.to_string())
    }

    /// Creates a [`Self::CannotRun`] from the flag, file or task that failed, and the reason.
    pub fn cannot(subject: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::CannotRun(format!("{subject}: {reason}"))
    }
}

impl From<Vec<InputProblem>> for Failure {
    fn from(problems: Vec<InputProblem>) -> Self {
        Self::Usage(problems)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::CannotRun(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_printed_once_and_without_error_numbers() {
        let error = std::io::Error::from_raw_os_error(2);
        let problem = |name: &str| InputProblem::new(name, &error);
        let lines = Failure::Usage(vec![problem("a"), problem("a"), problem("b")]).lines();
        assert_eq!(lines, ["a: No such file or directory", "b: No such file or directory"]);
        let nested = Failure::cannot("x", format!("{error}; then: {error} again (os error of mine)"));
        assert_eq!(
            nested.lines(),
            ["x: No such file or directory; then: No such file or directory again (os error of mine)"]
        );
    }
}
