//! HAProxy's own CPU profile, `show profiling tasks` (its management guide, 9.3), read from its
//! stats socket: HAProxy's function names, with calls and times.
//!
//! Its profiling is switched on meanwhile, and then restored.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use record::sorted::sort_by_key;

use super::process_file::locate_in_process;
use crate::kernel_file::NotObservable;
use crate::process::printable;

const FIGURE: &str = "HAProxy's own profile";
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
const REPLY_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskRow {
    pub function: String,
    pub calls: u64,
    pub cpu_ns: u64,
    /// Scheduling latency of all calls, in nanoseconds.
    pub latency_ns: u64,
}

/// HAProxy profiling that weir switched on.
#[derive(Debug)]
pub struct HaproxyProfiling {
    socket: StatsSocket,
    /// Previous setting, as an argument of the set command.
    previous_setting: &'static str,
}

impl HaproxyProfiling {
    /// Switches profiling on; `None` if the process is not HAProxy.
    ///
    /// # Errors
    /// HAProxy has no stats socket, or the socket denies access.
    pub fn start(pid: i32) -> Option<Result<Self, NotObservable>> {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim_end() == "haproxy").then(|| Self::enable(pid))
    }

    fn enable(pid: i32) -> Result<Self, NotObservable> {
        let sockets = listening_unix_sockets(pid);
        let mut why = "no stats socket found (add `stats socket PATH level admin`)".to_owned();
        for socket in sockets {
            let socket = StatsSocket { pid, path: socket };
            let setting = match socket.send_command("show profiling status").map(|text| parse_setting(&text))
            {
                Ok(Some(setting)) => setting,
                Ok(None) => continue,
                Err(error) => {
                    why = format!("{}: {error}", printable(&socket.path));
                    continue;
                }
            };
            match socket.send_command("set profiling tasks on") {
                // On success HAProxy prints nothing, and counts from zero.
                Ok(reply) if reply.trim().is_empty() => {
                    return Ok(Self { socket, previous_setting: setting });
                }
                Ok(reply) => why = format!("{}: {}", printable(&socket.path), printable(reply.trim())),
                Err(error) => why = format!("{}: {error}", printable(&socket.path)),
            }
        }
        Err(NotObservable::new(FIGURE, why))
    }

    /// Reads the table, and restores the previous profiling setting.
    ///
    /// # Errors
    /// HAProxy no longer replies.
    pub fn stop(self) -> Result<Vec<TaskRow>, NotObservable> {
        let table = self.socket.send_command("show profiling tasks");
        // HAProxy replied a moment ago; if it has ended since, there is nothing to restore.
        let _ = self.socket.send_command(&format!("set profiling tasks {}", self.previous_setting));
        let table = table.map_err(|error| NotObservable::new(FIGURE, error.to_string()))?;
        Ok(parse(&table))
    }
}

/// Returns the profiling setting in the output of `show profiling status`.
fn parse_setting(text: &str) -> Option<&'static str> {
    let line = text.lines().find(|line| line.starts_with("Per-task CPU profiling"))?;
    let value = line.split_once(':')?.1.split_whitespace().next()?;
    Some(match value {
        "on" => "on",
        "off" => "off",
        // `auto-on` and `auto-off`.
        _ => "auto",
    })
}

/// Parses the table: function, calls, CPU time total and average, latency total and average.
pub fn parse(text: &str) -> Vec<TaskRow> {
    let row = |line: &str| {
        let mut fields = line.split_whitespace();
        let function = printable(fields.next()?);
        let calls = fields.next()?.parse().ok()?;
        let cpu_ns = parse_time_ns(fields.next()?)?;
        let latency_ns = fields.nth(1).and_then(parse_time_ns).unwrap_or(0);
        Some(TaskRow { function, calls, cpu_ns, latency_ns })
    };
    let mut rows: Vec<TaskRow> = text.lines().filter_map(row).collect();
    sort_by_key(&mut rows, |row| std::cmp::Reverse(row.cpu_ns));
    rows
}

/// Units of HAProxy's times in nanoseconds, the longest names first.
const UNITS: &[(&str, f64)] =
    &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9), ("d", 86_400e9)];

/// Parses "54.63ms", "2m03s", or "-" for none.
fn parse_time_ns(text: &str) -> Option<u64> {
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

/// Unix socket of a process, by its path there.
#[derive(Debug)]
struct StatsSocket {
    pid: i32,
    path: String,
}

impl StatsSocket {
    /// Sends a command, and returns the reply. The socket must be in the file system of the process: any process may
    /// have the name of HAProxy, and a link at the path of its socket.
    fn send_command(&self, command: &str) -> io::Result<String> {
        let located = locate_in_process(self.pid, &self.path)?;
        let mut stream = UnixStream::connect(format!("/proc/self/fd/{}", located.as_raw_fd()))?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        let mut reply = Vec::new();
        stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply)?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }
}

fn listening_unix_sockets(pid: i32) -> Vec<String> {
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
        inodes.contains(*inode).then(|| real_path(path))
    });
    paths.collect()
}

/// Returns the real path of a socket. HAProxy first binds its sockets as `PATH.PID.tmp` and then
/// renames them; the kernel reports the first name.
fn real_path(bound: &str) -> String {
    let without = bound.strip_suffix(".tmp").and_then(|rest| {
        let (path, number) = rest.rsplit_once('.')?;
        number.parse::<u32>().ok().map(|_| path)
    });
    without.unwrap_or(bound).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of HAProxy 2.6.12.
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
        assert_eq!((parse_setting(text), parse_setting("x")), (Some("auto"), None));
        assert_eq!(parse_time_ns("2m03s"), Some(123_000_000_000));
        assert_eq!(
            (parse_time_ns("841.0ns"), parse_time_ns("x"), parse_time_ns("1")),
            (Some(841), None, None)
        );
        assert_eq!(real_path("/run/ha.sock.32321.tmp"), "/run/ha.sock");
        assert_eq!(real_path("/a.tmp"), "/a.tmp");
    }

    #[test]
    fn another_program_is_no_haproxy() {
        assert!(HaproxyProfiling::start(std::process::id() as i32).is_none());
    }
}
