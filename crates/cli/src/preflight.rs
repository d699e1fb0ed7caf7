//! What is checked before anything starts: descriptors, source ports, and where results go. A run that
//! cannot get its connections, or whose result could not be kept, is refused here and not after it.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use host::budget::{FdBudget, PortBudget, PortVerdict};
use load::pace::Pace;
use load::plan::Plan;
use record::problem::Problem;
use rustix::fs::{Access, access};

use crate::exit::Failure;
use crate::flags::Typed;

/// What stands for stdout where a file is named.
pub(crate) const STDOUT: &str = "-";

/// Holds the places that results go to against what can be written: those of `texts` may be stdout, one
/// of them, and those of `files` may not. Every problem at once.
pub(crate) fn outputs(typed: Typed<'_>, texts: &[&str], files: &[&str]) -> Result<(), Failure> {
    let named = |flags: &[&str]| -> Vec<(String, String)> {
        let given = flags.iter().filter_map(|flag| Some((format!("--{flag}"), typed.text(flag)?)));
        given.collect()
    };
    let problems = problems_of(&named(texts), &named(files));
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Whether one of these results takes all of stdout.
pub(crate) fn takes_stdout(typed: Typed<'_>, flags: &[&str]) -> bool {
    flags.iter().any(|flag| typed.text(flag).as_deref() == Some(STDOUT))
}

fn problems_of(texts: &[(String, String)], files: &[(String, String)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut to_stdout = None;
    let mut taken: Vec<(PathBuf, &str)> = Vec::new();
    for (flag, path) in texts.iter().chain(files) {
        let mut problem = |text: String| problems.push(Problem::new(flag.clone(), text));
        if path == STDOUT {
            if !texts.iter().any(|(text, _)| text == flag) {
                problem("it cannot go to stdout: name a file (./- is one)".to_owned());
            } else if let Some(other) = to_stdout.replace(flag) {
                problem(format!("stdout has {other} already: name a file"));
            }
            continue;
        }
        match written_to(Path::new(path)) {
            Err(why) => problem(format!("{path} cannot be written: {why}")),
            Ok(None) => {}
            Ok(Some(file)) => match taken.iter().find(|(other, _)| *other == file) {
                Some((_, other)) => problem(format!("{other} goes to {path} already")),
                None => taken.push((file, flag)),
            },
        }
    }
    problems
}

/// The file that would be written, by the one name that it has; none where it is a device or a pipe.
/// Files are written beside their name and renamed, so it is their folder that has to take them.
fn written_to(path: &Path) -> Result<Option<PathBuf>, String> {
    let name = path.file_name().ok_or("it is no name of a file")?;
    if let Ok(before) = fs::metadata(path)
        && !before.is_file()
    {
        return match before.is_dir() {
            true => Err("it is a folder".to_owned()),
            false => may_write(path).map(|()| None),
        };
    }
    let file = match path.canonicalize() {
        Ok(file) => file,
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or_else(|| Path::new("."));
            let folder = folder.canonicalize().ok().filter(|folder| folder.is_dir());
            folder.ok_or("no such folder")?.join(name)
        }
    };
    may_write(file.parent().unwrap_or_else(|| Path::new("/")))?;
    Ok(Some(file))
}

fn may_write(path: &Path) -> Result<(), String> {
    access(path, Access::WRITE_OK).map_err(|error| std::io::Error::from(error).to_string())
}

/// Raises the descriptor limit and holds the plan against what the machine has. Returns why source
/// ports are tight, if they are.
pub(crate) fn check(plan: &Plan) -> Result<Option<String>, Failure> {
    check_sources(plan)?;
    check_descriptors(plan.connections)?;
    if plan.unix.is_some() {
        return Ok(None);
    }
    let mut tight = None;
    let authorities = plan.authorities();
    for authority in &authorities {
        let address = authority.resolve().map_err(Failure::CannotRun)?;
        let rt::address::Address::Tcp(target) = address else {
            continue;
        };
        match port_budget(plan, target, authorities.len()).map(|budget| budget.check()) {
            Some(PortVerdict::Impossible { why }) => {
                return Err(Failure::CannotRun(format!("not started: {why}")));
            }
            Some(PortVerdict::Tight { why }) => tight = Some(why),
            Some(PortVerdict::Fits) | None => {}
        }
    }
    Ok(tight)
}

/// Refuses addresses to connect from that are not of this machine.
pub(crate) fn check_sources(plan: &Plan) -> Result<(), Failure> {
    // Binding is what decides, as when it connects: routes and settings may allow what no device has.
    let is_foreign = |address: &&IpAddr| {
        let bound = UdpSocket::bind((**address, 0));
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
    };
    let Some(first) = plan.sources.iter().find(is_foreign) else { return Ok(()) };
    let text = format!("{first} is no address of this machine (`ip address` lists them)");
    Err(vec![Problem::new("--source", text)].into())
}

/// Raises the descriptor limit as far as the kernel allows, and holds the connections against it.
pub(crate) fn check_descriptors(connections: u64) -> Result<(), Failure> {
    let limit = rt::limits::raise_descriptor_limit();
    FdBudget::client(connections, limit.now)
        .check()
        .map_err(|shortage| Failure::CannotRun(format!("not started: {}", shortage.text)))
}

/// The ports that the plan needs towards one target; `None` where the host does not tell its range.
fn port_budget(plan: &Plan, target: SocketAddr, targets: usize) -> Option<PortBudget> {
    let limits = host::limits::read();
    let port_range = limits.port_range?;
    let usable = limits.usable_ports()?;
    let new_connections_per_s = match (plan.pace, plan.requests_per_connection) {
        (Pace::Open { rate_per_s, .. }, Some(each)) => {
            Some(rate_per_s / each as f64 / targets as f64)
        }
        _ => None,
    };
    let mut budget = PortBudget {
        connections: plan.connections.div_ceil(targets as u64),
        new_connections_per_s,
        duration_s: Some(plan.end.duration_ns as f64 / 1e9),
        source_addresses: u32::try_from(plan.sources.len().max(1)).unwrap_or(u32::MAX),
        reserved_ports: (u32::from(port_range.1) + 1 - u32::from(port_range.0))
            .saturating_sub(usable),
        port_range,
        // Unknown is as good as too many: then the table itself is asked.
        taken_now: all_sockets().unwrap_or_else(|| u32::MAX.into()),
        tw_reuse: limits.tcp_tw_reuse.unwrap_or(0),
        reuse_delay_ms: limits.tcp_tw_reuse_delay_ms.unwrap_or(1000),
        timestamps: limits.tcp_timestamps.is_none_or(|setting| setting != 0),
        loopback: target.ip().is_loopback(),
    };
    // A walk through the table of sockets costs a microsecond each, so it is made when it matters.
    if !matches!(budget.check(), PortVerdict::Fits) {
        let towards = host::sockets::towards(target).ok();
        budget.taken_now = towards.map_or(0, |towards| towards.time_wait + towards.established);
    }
    Some(budget)
}

/// TCP sockets of this network namespace, towards anybody: never fewer than towards one target.
fn all_sockets() -> Option<u64> {
    let counts = host::sockets::SockStatReader::open().ok()?.sample().ok()?;
    Some(counts.tcp_time_wait + counts.tcp_alloc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[(&str, &str)], files: &[(&str, &str)]) -> Vec<String> {
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(flag, path)| ((*flag).to_owned(), (*path).to_owned())).collect()
        };
        problems_of(&owned(texts), &owned(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_result_goes_to_a_file_of_its_own_or_to_stdout_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("same")).unwrap();
        fs::write(at("there"), "").unwrap();
        std::os::unix::fs::symlink("there", folder.path().join("link")).unwrap();
        let none = [""; 0];
        assert_eq!(found(&[("--json", "-"), ("--csv", &at("a"))], &[("--hdr", &at("b"))]), none);
        assert_eq!(found(&[("--json", "/dev/null"), ("--csv", "/dev/null")], &[]), none);
        let one = |texts: &[(&str, &str)], files: &[(&str, &str)]| {
            let found = found(texts, files);
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].clone()
        };
        assert!(one(&[("--json", "-"), ("--csv", "-")], &[]).contains("stdout has --json already"));
        assert!(one(&[], &[("--hdr", "-")]).contains("cannot go to stdout"));
        for (left, right) in [("a", "a"), ("a", "same/a"), ("there", "link")] {
            let said = one(&[("--json", &at(left))], &[("--hdr", &at(right))]);
            assert!(said.starts_with("--hdr: --json goes to"), "{said}");
        }
        assert!(one(&[("--json", &at("no/such"))], &[]).contains("no such folder"));
        assert!(one(&[("--json", &at("same"))], &[]).contains("it is a folder"));
        assert!(one(&[("--json", &at("there/x"))], &[]).contains("no such folder"));
        assert!(one(&[("--json", "")], &[]).contains("no name of a file"));
    }
}
