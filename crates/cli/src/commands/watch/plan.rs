//! What `weir watch` was asked for: texts of flags into values, every problem at once.

use load::plan::{Authority, Url};
use record::problem::Problem;
use record::units::{DurationUnit, MILLISECOND_NS, SECOND_NS, parse_duration_ns};

use crate::flags::Typed;

/// Least length of an interval.
const EVERY_MIN_NS: u64 = 100 * MILLISECOND_NS;
/// Greatest.
const EVERY_MAX_NS: u64 = 60 * SECOND_NS;
/// Length of a look with `--once`.
const ONCE_NS: u64 = SECOND_NS;

/// What to watch, for how long, and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Empty: the machine and its busiest programs.
    pub(super) targets: Vec<Target>,
    pub(super) once: bool,
    /// `None`: until somebody ends it.
    pub(super) duration_ns: Option<u64>,
    pub(super) every_ns: u64,
    /// Where the record goes: a file, or `-` for stdout, which has nothing else then.
    pub(super) json: Option<String>,
}

/// A program to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The name that it was given.
    pub(super) name: Option<String>,
    pub(super) at: At,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum At {
    Pid(i32),
    Port(u16),
    Url(Authority),
}

impl At {
    /// The flag that says it.
    pub(super) fn flag(&self) -> &'static str {
        match self {
            Self::Pid(_) => "--pid",
            Self::Port(_) => "--port",
            Self::Url(_) => "--url",
        }
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "process {pid}"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Url(authority) => authority.fmt(f),
        }
    }
}

impl Plan {
    /// Reads the flags.
    pub(super) fn parse(typed: Typed<'_>) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut targets = Vec::new();
        for (flag, parse) in [("pid", pid as fn(&str) -> _), ("port", port), ("url", url)] {
            for text in typed.texts(flag) {
                match parse(&text) {
                    Ok(target) => targets.push(target),
                    Err(why) => problems.push(Problem::new(format!("--{flag}"), why)),
                }
            }
        }
        problems.extend(twice(&targets));
        let mut time = |flag: &str| {
            let parsed = parse_duration_ns(&typed.text(flag)?, DurationUnit::Seconds);
            let longer = parsed.and_then(|ns| match ns {
                0 => Err("it is longer than nothing".to_owned()),
                ns => Ok(ns),
            });
            longer.map_err(|why| problems.push(Problem::new(format!("--{flag}"), why))).ok()
        };
        let duration_ns = time("duration");
        let every_ns = time("every").unwrap_or(SECOND_NS);
        if duration_ns.is_some_and(|length| length < EVERY_MIN_NS) {
            problems.push(Problem::new("--duration", "it is 100ms at the least"));
        }
        if !(EVERY_MIN_NS..=EVERY_MAX_NS).contains(&every_ns) {
            problems.push(Problem::new("--every", "an interval is 100ms to 1m"));
        }
        let once = typed.is_set("once");
        let duration_ns = duration_ns.or_else(|| once.then_some(ONCE_NS));
        let json = typed.text("json");
        match problems.is_empty() {
            // An interval ends with the watch at the latest.
            true => Ok(Self {
                every_ns: every_ns.min(duration_ns.unwrap_or(u64::MAX)),
                targets,
                once,
                duration_ns,
                json,
            }),
            false => Err(problems),
        }
    }

    /// Whether the record takes all of stdout.
    pub(super) fn json_only(&self) -> bool {
        self.json.as_deref() == Some("-")
    }
}

/// Names and places that are given to two targets: one of them would not be shown.
fn twice(targets: &[Target]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (place, one) in targets.iter().enumerate() {
        let flag = one.at.flag();
        for other in &targets[..place] {
            if one.at == other.at && one.name != other.name {
                let text = format!("{} is given twice, with two names: give it one", one.at);
                problems.push(Problem::new(flag, text));
            } else if let (true, Some(name)) = (one.name == other.name, &one.name)
                && one.at != other.at
            {
                let text = format!(
                    "'{name}' is the name of {} and of {}: give each a name of its own",
                    other.at, one.at
                );
                problems.push(Problem::new(flag, text));
            }
        }
    }
    problems
}

/// The name before `=`, if there is one, and the rest.
fn named(text: &str) -> Result<(Option<String>, &str), String> {
    match text.split_once('=') {
        Some(("", _)) => Err(format!("'{text}': a name stands before ="))?,
        Some((name, rest)) => Ok((Some(name.to_owned()), rest)),
        None => Ok((None, text)),
    }
}

fn pid(text: &str) -> Result<Target, String> {
    let (name, number) = named(text)?;
    match number.parse() {
        Ok(pid) if pid > 0 => Ok(Target { name, at: At::Pid(pid) }),
        _ => Err(format!("'{text}' is not the number of a process (write 1234 or origin=1234)")),
    }
}

fn port(text: &str) -> Result<Target, String> {
    let (name, number) = named(text)?;
    match number.parse() {
        Ok(port) if port > 0 => Ok(Target { name, at: At::Port(port) }),
        _ => Err(format!("'{text}' is not a port (write 8000 or origin=9000)")),
    }
}

fn url(text: &str) -> Result<Target, String> {
    Ok(Target { name: None, at: At::Url(Url::parse(text)?.authority) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_may_have_names() {
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(pid("12"), Ok(Target { name: None, at: At::Pid(12) }));
        assert_eq!(port("origin=80"), Ok(Target { name: name("origin"), at: At::Port(80) }));
        for wrong in ["", "=1", "x=", "a=b", "-1", "0"] {
            assert!(pid(wrong).is_err() && port(wrong).is_err(), "{wrong}");
        }
        let mut same = vec![port("a=80").unwrap(), port("b=80").unwrap()];
        let said = |targets: &[Target]| twice(targets).iter().map(Problem::to_string).collect();
        let why: Vec<String> = said(&same);
        assert_eq!(why, ["--port: port 80 is given twice, with two names: give it one"]);
        same[1] = pid("a=12").unwrap();
        let why: Vec<String> = said(&same);
        assert!(why[0].contains("'a' is the name of port 80 and of process 12"), "{why:?}");
        same[1] = pid("b=12").unwrap();
        assert_eq!(twice(&same), []);
        let at = At::Url(Authority { host: "::1".to_owned(), port: 8080 });
        assert_eq!(url("http://[::1]:8080/x?y=z"), Ok(Target { name: None, at }));
    }
}
