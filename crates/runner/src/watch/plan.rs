//! Plan of a watch: targets, intervals and the destination of the record.

use load::plan::{Authority, Url};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::SECOND_NS;

/// Targets, duration and destination of `weir watch`.
#[derive(Debug, PartialEq, Eq)]
pub struct WatchPlan {
    /// Empty: the machine and its busiest programs.
    pub targets: Vec<WatchTarget>,
    pub once: bool,
    /// `None`: until the user stops it.
    pub duration_ns: Option<u64>,
    pub interval_ns: u64,
    /// Destination of the record: a file, or `-` for stdout, which then contains nothing else.
    pub json: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchTarget {
    pub name: Option<String>,
    pub locator: TargetLocator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetLocator {
    Pid(i32),
    Port(u16),
    Url(Authority),
}

impl TargetLocator {
    pub fn flag(&self) -> &'static str {
        match self {
            Self::Pid(_) => "--pid",
            Self::Port(_) => "--port",
            Self::Url(_) => "--url",
        }
    }
}

impl std::fmt::Display for TargetLocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "process {pid}"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Url(authority) => authority.fmt(f),
        }
    }
}

/// Returns the plan to watch a process until it is stopped, under this name.
pub fn watch_process(name: &str, pid: i32) -> WatchPlan {
    let target = WatchTarget { name: Some(name.to_owned()), locator: TargetLocator::Pid(pid) };
    WatchPlan { targets: vec![target], once: false, duration_ns: None, interval_ns: SECOND_NS, json: None }
}

impl WatchPlan {
    /// Gives the first target without a name this one.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        if let Some(target) = self.targets.iter_mut().find(|target| target.name.is_none()) {
            target.name = Some(name.to_owned());
        }
        self
    }

    /// Returns whether the record takes all of stdout.
    pub fn json_only(&self) -> bool {
        self.json.as_deref() == Some("-")
    }
}

/// Reports names and locations of more than one target: one of the targets would not be shown.
pub fn duplicate_targets(targets: &[WatchTarget]) -> Vec<InputProblem> {
    let mut problems = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        let flag = target.locator.flag();
        for other in &targets[..index] {
            if target.locator == other.locator && target.name != other.name {
                let text = format!("{} has two names: use one", target.locator);
                problems.push(InputProblem::new(flag, text));
            } else if let (true, Some(name)) = (target.name == other.name, &target.name)
                && target.locator != other.locator
            {
                let text = format!(
                    "'{name}' names both {} and {}: use different names",
                    other.locator, target.locator
                );
                problems.push(InputProblem::new(flag, text));
            }
        }
    }
    problems
}

/// Splits a text into the name before `=`, if any, and the rest.
fn split_name(text: &str) -> Result<(Option<String>, &str), InvalidValue> {
    match text.split_once('=') {
        Some(("", _)) => Err(invalid_value!("'{text}': missing name before ="))?,
        Some((name, rest)) => Ok((Some(name.to_owned()), rest)),
        None => Ok((None, text)),
    }
}

/// Parses `PID` or `NAME=PID`.
///
/// # Errors
/// It is no process ID.
pub fn parse_pid(text: &str) -> Result<WatchTarget, InvalidValue> {
    let (name, number) = split_name(text)?;
    match number.parse() {
        Ok(pid) if pid > 0 => Ok(WatchTarget { name, locator: TargetLocator::Pid(pid) }),
        _ => Err(invalid_value!("'{text}' is not a PID (write 1234 or origin=1234)")),
    }
}

/// Parses `PORT` or `NAME=PORT`.
///
/// # Errors
/// It is no port.
pub fn parse_port(text: &str) -> Result<WatchTarget, InvalidValue> {
    let (name, number) = split_name(text)?;
    match number.parse() {
        Ok(port) if port > 0 => Ok(WatchTarget { name, locator: TargetLocator::Port(port) }),
        _ => Err(invalid_value!("'{text}' is not a port (write 8000 or origin=9000)")),
    }
}

/// Parses the URL of a server.
///
/// # Errors
/// It is no URL of a load.
pub fn parse_url(text: &str) -> Result<WatchTarget, InvalidValue> {
    Ok(WatchTarget { name: None, locator: TargetLocator::Url(Url::parse(text)?.authority) })
}

#[cfg(test)]
mod tests {
    use load::plan::Scheme;

    use super::*;

    #[test]
    fn targets_may_have_names() {
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(parse_pid("12"), Ok(WatchTarget { name: None, locator: TargetLocator::Pid(12) }));
        assert_eq!(
            parse_port("origin=80"),
            Ok(WatchTarget { name: name("origin"), locator: TargetLocator::Port(80) })
        );
        for wrong in ["", "=1", "x=", "a=b", "-1", "0"] {
            assert!(parse_pid(wrong).is_err() && parse_port(wrong).is_err(), "{wrong}");
        }
        let mut same = vec![parse_port("a=80").unwrap(), parse_port("b=80").unwrap()];
        let assert_problem = |targets: &[WatchTarget], flag: &str, names: &[&str]| {
            let problems = duplicate_targets(targets);
            assert!(problems.len() == 1 && problems[0].location == flag, "{problems:?}");
            assert!(names.iter().all(|name| problems[0].text.contains(name)), "{problems:?}");
        };
        assert_problem(&same, "--port", &["port 80"]);
        same[1] = parse_pid("a=12").unwrap();
        assert_problem(&same, "--pid", &["'a'", "port 80", "process 12"]);
        same[1] = parse_pid("b=12").unwrap();
        assert_eq!(duplicate_targets(&same), []);
        let locator =
            TargetLocator::Url(Authority { scheme: Scheme::Http, host: "::1".to_owned(), port: 8080 });
        assert_eq!(parse_url("http://[::1]:8080/x?y=z"), Ok(WatchTarget { name: None, locator }));
    }
}
