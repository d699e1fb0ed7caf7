//! HAProxy's own table of where its time goes, `show profiling tasks` (its management guide, 9.3), asked
//! of its stats socket: the names that HAProxy gives its functions, with calls and times.
//!
//! Its measuring is switched on for the time, and then to what it was.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::source::NotObservable;

const WHAT: &str = "HAProxy's own profile";
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskRow {
    /// The function.
    pub function: String,
    /// How often it was called.
    pub calls: u64,
    /// Processor time of all calls, in nanoseconds.
    pub cpu_ns: u64,
    /// How long all calls waited for their turn, in nanoseconds.
    pub latency_ns: u64,
}

/// Measuring that was switched on.
#[derive(Debug)]
pub struct HaproxyProfiling {
    socket: PathBuf,
    /// What it was before, as the command to set it has it.
    before: &'static str,
}

impl HaproxyProfiling {
    /// Switches it on; none when the process is no HAProxy.
    ///
    /// # Errors
    /// It has no stats socket, or one that does not let us.
    pub fn start(pid: i32) -> Option<Result<Self, NotObservable>> {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim_end() == "haproxy").then(|| Self::switch_on(pid))
    }

    fn switch_on(pid: i32) -> Result<Self, NotObservable> {
        let sockets = sockets_of(pid);
        let mut why =
            "it has no stats socket that can be found (`stats socket PATH level admin`)".to_owned();
        for socket in sockets {
            let state = match ask(&socket, "show profiling status").map(|text| state(&text)) {
                Ok(Some(state)) => state,
                Ok(None) => continue,
                Err(error) => {
                    why = format!("{}: {error}", socket.display());
                    continue;
                }
            };
            match ask(&socket, "set profiling tasks on") {
                // It says nothing when it has done so, and begins at zero.
                Ok(said) if said.trim().is_empty() => return Ok(Self { socket, before: state }),
                Ok(said) => why = format!("{}: {}", socket.display(), said.trim()),
                Err(error) => why = format!("{}: {error}", socket.display()),
            }
        }
        Err(NotObservable::new(WHAT, why))
    }

    /// Reads the table, and sets the measuring to what it was.
    ///
    /// # Errors
    /// It does not answer any more.
    pub fn stop(self) -> Result<Vec<TaskRow>, NotObservable> {
        let table = ask(&self.socket, "show profiling tasks");
        // It answered a moment ago; if it has ended since then, there is nothing to set.
        let _ = ask(&self.socket, &format!("set profiling tasks {}", self.before));
        let table = table.map_err(|error| NotObservable::new(WHAT, error.to_string()))?;
        Ok(parse(&table))
    }
}

/// What the measuring is set to, from `show profiling status`.
fn state(text: &str) -> Option<&'static str> {
    let line = text.lines().find(|line| line.starts_with("Per-task CPU profiling"))?;
    let value = line.split_once(':')?.1.split_whitespace().next()?;
    Some(match value {
        "on" => "on",
        "off" => "off",
        // `auto-on` and `auto-off`.
        _ => "auto",
    })
}

/// Parses the table: function, calls, processor time in all and each, latency in all and each.
#[must_use]
pub fn parse(text: &str) -> Vec<TaskRow> {
    let row = |line: &str| {
        let mut fields = line.split_whitespace();
        let function = fields.next()?.to_owned();
        let calls = fields.next()?.parse().ok()?;
        let cpu_ns = time_ns(fields.next()?)?;
        let latency_ns = fields.nth(1).and_then(time_ns).unwrap_or(0);
        Some(TaskRow { function, calls, cpu_ns, latency_ns })
    };
    let mut rows: Vec<TaskRow> = text.lines().filter_map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.cpu_ns));
    rows
}

/// Units of its times, the longest names first, in nanoseconds.
const UNITS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
    ("d", 86_400e9),
];

/// "54.63ms", "2m03s", "-" for none.
fn time_ns(text: &str) -> Option<u64> {
    if text == "-" {
        return Some(0);
    }
    let mut rest = text;
    let mut sum_ns = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let (unit, factor) = UNITS.iter().find(|(unit, _)| rest[end..].starts_with(unit))?;
        sum_ns += number * factor;
        rest = &rest[end + unit.len()..];
    }
    Some(sum_ns as u64)
}

fn ask(socket: &Path, command: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The unix sockets that a process listens on, as paths that lead there from here.
fn sockets_of(pid: i32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let inodes: HashSet<String> = entries
        .filter_map(|entry| {
            let link = fs::read_link(entry.path()).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let paths = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (inode, path) = (fields.get(6)?, fields.get(7)?);
        inodes.contains(*inode).then(|| real_path(pid, path))
    });
    paths.collect()
}

/// HAProxy binds its sockets by a name for a moment, `PATH.PID.tmp`, and gives them their own then;
/// the kernel keeps the first one.
fn real_path(pid: i32, bound: &str) -> PathBuf {
    let without = bound.strip_suffix(".tmp").and_then(|rest| {
        let (path, number) = rest.rsplit_once('.')?;
        number.parse::<u32>().ok().map(|_| path)
    });
    PathBuf::from(format!("/proc/{pid}/root{}", without.unwrap_or(bound)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HAProxy 2.6.12.
    const TABLE: &str = "Tasks activity:
  function                      calls   cpu_tot   cpu_avg   lat_tot   lat_avg
  h1_io_cb                      27089   54.63ms   2.016us   667.2ms   24.63us
  process_stream                27069   416.0ms   15.37us   4.997s    184.6us
  main+0x11aac0                     2   2.443us   1.221us   140.7us   70.36us
  task_run_applet                   1      -         -      3.576us   3.576us

";

    #[test]
    fn the_table_is_read() {
        let rows = parse(TABLE);
        let names: Vec<_> = rows.iter().map(|row| row.function.as_str()).collect();
        assert_eq!(names, ["process_stream", "h1_io_cb", "main+0x11aac0", "task_run_applet"]);
        let first = TaskRow {
            function: "process_stream".to_owned(),
            calls: 27_069,
            cpu_ns: 416_000_000,
            latency_ns: 4_997_000_000,
        };
        assert_eq!(rows[0], first);
        assert_eq!((rows[3].cpu_ns, rows[3].latency_ns), (0, 3576));
        assert!(parse("Unknown command\n").is_empty());
    }

    #[test]
    fn states_times_and_names_are_read() {
        let text = "Per-task CPU profiling              : auto-off      # set profiling tasks\n";
        assert_eq!((state(text), state("x")), (Some("auto"), None));
        assert_eq!(time_ns("2m03s"), Some(123_000_000_000));
        assert_eq!((time_ns("841.0ns"), time_ns("x"), time_ns("1")), (Some(841), None, None));
        let path = real_path(7, "/run/ha.sock.32321.tmp");
        assert_eq!(path, PathBuf::from("/proc/7/root/run/ha.sock"));
        assert_eq!(real_path(7, "/a.tmp"), PathBuf::from("/proc/7/root/a.tmp"));
    }

    #[test]
    fn another_program_is_no_haproxy() {
        assert!(HaproxyProfiling::start(std::process::id() as i32).is_none());
    }
}
