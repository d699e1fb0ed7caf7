//! Checks before anything starts: descriptors, source ports and destinations of results. A run that
//! cannot get its connections or keep its result is rejected before it, not after it.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use host::budget::{FdBudget, PortBudget, PortVerdict};
use load::pace::Pace;
use load::plan::RunPlan;
use record::problem::InputProblem;
use rustix::fs::{Access, access};

use crate::exit::Failure;
use crate::flags::CommandArgs;

/// Name of stdout where a file is named.
pub(crate) const STDOUT: &str = "-";

/// Checks that all results can be written. One destination of `texts` may be stdout; those of
/// `files` may not. Reports every problem at once.
pub(crate) fn outputs(args: CommandArgs<'_>, texts: &[&str], files: &[&str]) -> Result<(), Failure> {
    let named = |flags: &[&str]| -> Vec<(String, String)> {
        let given = flags.iter().filter_map(|flag| Some((format!("--{flag}"), args.text(flag)?)));
        given.collect()
    };
    let problems = output_problems(&named(texts), &named(files));
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Returns whether one of these results takes all of stdout.
pub(crate) fn writes_to_stdout(args: CommandArgs<'_>, flags: &[&str]) -> bool {
    flags.iter().any(|flag| args.text(flag).as_deref() == Some(STDOUT))
}

fn output_problems(texts: &[(String, String)], files: &[(String, String)]) -> Vec<InputProblem> {
    let mut problems = Vec::new();
    let mut to_stdout = None;
    let mut outputs: Vec<(PathBuf, &str)> = Vec::new();
    for (flag, path) in texts.iter().chain(files) {
        let mut problem = |text: String| problems.push(InputProblem::new(flag.clone(), text));
        if path == STDOUT {
            if !texts.iter().any(|(text, _)| text == flag) {
                problem("cannot go to stdout: name a file (./- is a file)".to_owned());
            } else if let Some(other) = to_stdout.replace(flag) {
                problem(format!("{other} already uses stdout: name a file"));
            }
            continue;
        }
        match canonical_output(Path::new(path)) {
            Err(why) => problem(format!("cannot write {path}: {why}")),
            Ok(None) => {}
            Ok(Some(file)) => match outputs.iter().find(|(other, _)| *other == file) {
                Some((_, other)) => problem(format!("{other} already writes to {path}")),
                None => outputs.push((file, flag)),
            },
        }
    }
    problems
}

/// Reason why a result cannot be written to a file.
#[derive(Debug, thiserror::Error)]
enum OutputError {
    #[error("not a file name")]
    NotAName,
    #[error("is a directory")]
    IsDirectory,
    #[error("no such directory")]
    NoDirectory,
    #[error(transparent)]
    NotWritable(#[from] std::io::Error),
}

/// Returns the canonical name of the file to write; `None` for a device or a pipe. Files are
/// written beside their name and renamed, so their directory must be writable.
fn canonical_output(path: &Path) -> Result<Option<PathBuf>, OutputError> {
    let name = path.file_name().ok_or(OutputError::NotAName)?;
    if let Ok(existing) = fs::metadata(path)
        && !existing.is_file()
    {
        return match existing.is_dir() {
            true => Err(OutputError::IsDirectory),
            false => Ok(check_writable(path).map(|()| None)?),
        };
    }
    let file = match path.canonicalize() {
        Ok(file) => file,
        Err(_) => {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            let directory = directory.unwrap_or_else(|| Path::new("."));
            let directory = directory.canonicalize().ok().filter(|directory| directory.is_dir());
            directory.ok_or(OutputError::NoDirectory)?.join(name)
        }
    };
    check_writable(file.parent().unwrap_or_else(|| Path::new("/")))?;
    Ok(Some(file))
}

fn check_writable(path: &Path) -> std::io::Result<()> {
    Ok(access(path, Access::WRITE_OK)?)
}

/// Raises the descriptor limit and checks the plan against the limits of the machine. Returns why
/// source ports are tight, if they are.
pub(crate) fn check(plan: &RunPlan) -> Result<Option<String>, Failure> {
    check_sources(plan)?;
    check_descriptors(plan.connections)?;
    if plan.unix.is_some() {
        return Ok(None);
    }
    let mut scarce = None;
    let authorities = plan.authorities();
    for authority in &authorities {
        let address = plan.resolve(authority).map_err(Failure::cannot_run)?;
        let rt::address::Address::Tcp(target) = address else {
            continue;
        };
        match port_budget(plan, target, authorities.len()).map(|budget| budget.check()) {
            Some(PortVerdict::Impossible { reason: why }) => {
                return Err(Failure::CannotRun(format!("not started: {why}")));
            }
            Some(PortVerdict::Tight { reason: why }) => scarce = Some(why),
            Some(PortVerdict::Fits) | None => {}
        }
    }
    Ok(scarce)
}

/// Rejects source addresses that do not belong to this machine.
pub(crate) fn check_sources(plan: &RunPlan) -> Result<(), Failure> {
    // A bind decides, as for the connection itself: routes and settings may allow an address that
    // no device has.
    let is_foreign = |address: &&IpAddr| {
        let bound = UdpSocket::bind((**address, 0));
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
    };
    let Some(first) = plan.sources.iter().find(is_foreign) else { return Ok(()) };
    let text = format!("{first} is not an address of this machine (`ip address` lists them)");
    Err(vec![InputProblem::new("--source", text)].into())
}

/// Raises the descriptor limit to the maximum of the kernel, and checks the connections against it.
pub(crate) fn check_descriptors(connections: u64) -> Result<(), Failure> {
    let limit = rt::limits::raise_descriptor_limit();
    FdBudget::client(connections, limit.current)
        .check()
        .map_err(|shortage| Failure::CannotRun(format!("not started: {}", shortage.text)))
}

/// Returns the ports that the plan needs towards one target; `None` if the port range of the host
/// is unknown.
fn port_budget(plan: &RunPlan, target: SocketAddr, targets: usize) -> Option<PortBudget> {
    let limits = host::limits::read();
    let port_range = limits.port_range?;
    let usable = limits.usable_ports()?;
    let new_connections_per_s = match (plan.pace, plan.requests_per_connection) {
        (Pace::Open { rate_per_s, .. }, Some(each)) => Some(rate_per_s / each as f64 / targets as f64),
        _ => None,
    };
    let mut budget = PortBudget {
        connections: plan.connections.div_ceil(targets as u64),
        new_connections_per_s,
        duration_s: Some(plan.end.duration_ns as f64 / 1e9),
        source_addresses: u32::try_from(plan.sources.len().max(1)).unwrap_or(u32::MAX),
        reserved_ports: (u32::from(port_range.1) + 1 - u32::from(port_range.0)).saturating_sub(usable),
        port_range,
        // An unknown count is treated as too high: then the table itself is read.
        ports_in_use: socket_count().unwrap_or_else(|| u32::MAX.into()),
        tw_reuse: limits.tcp_tw_reuse.unwrap_or(0),
        reuse_delay_ms: limits.tcp_tw_reuse_delay_ms.unwrap_or(1000),
        timestamps: limits.tcp_timestamps.is_none_or(|setting| setting != 0),
        loopback: target.ip().is_loopback(),
    };
    // Reading the socket table costs a microsecond per socket, so it is read only when it matters.
    if !matches!(budget.check(), PortVerdict::Fits) {
        let connections = host::sockets::count_connections_to(target).ok();
        budget.ports_in_use = connections.map_or(0, |towards| towards.time_wait + towards.established);
    }
    Some(budget)
}

/// Returns the number of TCP sockets of this network namespace: an upper bound of those towards one
/// target.
fn socket_count() -> Option<u64> {
    let counts = host::sockets::SockStatReader::open().ok()?.sample().ok()?;
    Some(counts.tcp_time_wait + counts.tcp_alloc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_texts(texts: &[(&str, &str)], files: &[(&str, &str)]) -> Vec<String> {
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(flag, path)| ((*flag).to_owned(), (*path).to_owned())).collect()
        };
        output_problems(&owned(texts), &owned(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_result_goes_to_a_file_of_its_own_or_to_stdout_alone() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        std::os::unix::fs::symlink(directory.path(), directory.path().join("same")).unwrap();
        fs::write(at("there"), "").unwrap();
        std::os::unix::fs::symlink("there", directory.path().join("link")).unwrap();
        let none = [""; 0];
        assert_eq!(problem_texts(&[("--json", "-"), ("--csv", &at("a"))], &[("--hdr", &at("b"))]), none);
        assert_eq!(problem_texts(&[("--json", "/dev/null"), ("--csv", "/dev/null")], &[]), none);
        let one = |texts: &[(&str, &str)], files: &[(&str, &str)]| {
            let problems = problem_texts(texts, files);
            assert_eq!(problems.len(), 1, "{problems:?}");
            problems[0].clone()
        };
        let taken = one(&[("--json", "-"), ("--csv", "-")], &[]);
        assert!(taken.starts_with("--csv:") && taken.contains("--json"), "{taken}");
        let binary = one(&[], &[("--hdr", "-")]);
        assert!(binary.starts_with("--hdr:") && binary.contains("stdout"), "{binary}");
        for (left, right) in [("a", "a"), ("a", "same/a"), ("there", "link")] {
            let problem = one(&[("--json", &at(left))], &[("--hdr", &at(right))]);
            let (flag, text) = problem.split_once(':').unwrap();
            assert!(flag == "--hdr" && text.contains("--json") && text.contains(&at(right)), "{problem}");
        }
        for path in ["no/such", "same", "there/x"] {
            let problem = one(&[("--json", &at(path))], &[]);
            assert!(problem.starts_with("--json:") && problem.contains(&at(path)), "{problem}");
            assert!(problem.contains("directory"), "{problem}");
        }
        assert!(one(&[("--json", "")], &[]).starts_with("--json:"));
    }
}
