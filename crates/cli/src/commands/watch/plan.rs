//! Options of `weir watch`: parses texts of flags to values and reports every problem at once.

use load::plan::Url;
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::{DurationUnit, MILLISECOND_NS, SECOND_NS, parse_duration_ns};
use runner::watch::plan::{TargetLocator, WatchPlan, WatchTarget};

use crate::flags::CommandArgs;

const INTERVAL_NS_MIN: u64 = 100 * MILLISECOND_NS;
const INTERVAL_NS_MAX: u64 = 60 * SECOND_NS;
/// Length of the sample with `--once`.
const ONCE_NS: u64 = SECOND_NS;

pub(in crate::commands) fn parse_plan(args: CommandArgs<'_>) -> Result<WatchPlan, Vec<InputProblem>> {
    let mut problems = Vec::new();
    let mut targets = Vec::new();
    for (flag, parse) in [("pid", parse_pid as fn(&str) -> _), ("port", parse_port), ("url", parse_url)] {
        for text in args.texts(flag) {
            match parse(&text) {
                Ok(target) => targets.push(target),
                Err(why) => problems.push(InputProblem::new(format!("--{flag}"), why)),
            }
        }
    }
    problems.extend(duplicate_targets(&targets));
    let mut parse_time = |flag: &str| {
        let parsed = parse_duration_ns(&args.text(flag)?, DurationUnit::Seconds);
        let nonzero = parsed.and_then(|ns| match ns {
            0 => Err(invalid_value!("must be above 0")),
            ns => Ok(ns),
        });
        nonzero.map_err(|why| problems.push(InputProblem::new(format!("--{flag}"), why))).ok()
    };
    let duration_ns = parse_time("duration");
    let every_ns = parse_time("interval").unwrap_or(SECOND_NS);
    if duration_ns.is_some_and(|length| length < INTERVAL_NS_MIN) {
        problems.push(InputProblem::new("--duration", "below the minimum of 100ms"));
    }
    if !(INTERVAL_NS_MIN..=INTERVAL_NS_MAX).contains(&every_ns) {
        problems.push(InputProblem::new("--interval", "not within 100ms to 1m"));
    }
    let once = args.is_set("once");
    let duration_ns = duration_ns.or_else(|| once.then_some(ONCE_NS));
    let json = args.text("json");
    match problems.is_empty() {
        // An interval ends with the watch at the latest.
        true => Ok(WatchPlan {
            interval_ns: every_ns.min(duration_ns.unwrap_or(u64::MAX)),
            targets,
            once,
            duration_ns,
            json,
        }),
        false => Err(problems),
    }
}

/// Reports names and locations of more than one target: one of the targets would not be shown.
fn duplicate_targets(targets: &[WatchTarget]) -> Vec<InputProblem> {
    let mut problems = Vec::new();
    for (index, one) in targets.iter().enumerate() {
        let flag = one.locator.flag();
        for other in &targets[..index] {
            if one.locator == other.locator && one.name != other.name {
                let text = format!("{} has two names: use one", one.locator);
                problems.push(InputProblem::new(flag, text));
            } else if let (true, Some(name)) = (one.name == other.name, &one.name)
                && one.locator != other.locator
            {
                let text =
                    format!("'{name}' names both {} and {}: use different names", other.locator, one.locator);
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

fn parse_pid(text: &str) -> Result<WatchTarget, InvalidValue> {
    let (name, number) = split_name(text)?;
    match number.parse() {
        Ok(pid) if pid > 0 => Ok(WatchTarget { name, locator: TargetLocator::Pid(pid) }),
        _ => Err(invalid_value!("'{text}' is not a PID (write 1234 or origin=1234)")),
    }
}

fn parse_port(text: &str) -> Result<WatchTarget, InvalidValue> {
    let (name, number) = split_name(text)?;
    match number.parse() {
        Ok(port) if port > 0 => Ok(WatchTarget { name, locator: TargetLocator::Port(port) }),
        _ => Err(invalid_value!("'{text}' is not a port (write 8000 or origin=9000)")),
    }
}

fn parse_url(text: &str) -> Result<WatchTarget, InvalidValue> {
    Ok(WatchTarget { name: None, locator: TargetLocator::Url(Url::parse(text)?.authority) })
}

#[cfg(test)]
mod tests {
    use load::plan::{Authority, Scheme};

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
