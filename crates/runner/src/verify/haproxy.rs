//! HAProxy as the proxy of a verification: its config, its process, and its gauges.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use host::sandbox::launch::Launch;
use plan::verification::VerifiedPlan;
use rustix::io::{FdFlags, fcntl_setfd};
use tempfile::TempDir;

use super::children::run_directory;
use crate::failure::Failure;

const PROGRAM: &str = "haproxy";
/// Time until its socket responds, in steps.
const READY_STEPS: u32 = 100;
const READY_STEP: Duration = Duration::from_millis(50);
/// Timeout of a command on its socket.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of a response on its socket.
const RESPONSE_BYTES_MAX: u64 = 16 << 20;

/// Running HAProxy. The kernel ends it with this process.
pub(super) struct HaproxyProcess {
    child: Child,
    directory: TempDir,
}

impl HaproxyProcess {
    pub(super) fn start(plan: &VerifiedPlan, servers: &[String]) -> Result<(Self, SocketAddr), Failure> {
        let failed = |error: std::io::Error| Failure::cannot(PROGRAM, error);
        let directory = run_directory()?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let text = config(plan, servers, directory.path(), listener.as_raw_fd());
        let path = directory.path().join("haproxy.cfg");
        record::file::write_atomically(&path, text.as_bytes()).map_err(failed)?;
        // The process inherits the listening socket.
        fcntl_setfd(&listener, FdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        let program = host::sandbox::programs::find_program(PROGRAM).map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(&path);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = Launch::default().spawn(&mut command).map_err(failed)?;
        let mut process = Self { child, directory };
        for _ in 0..READY_STEPS {
            if command_output(&process.socket(), "show info").is_ok() {
                return Ok((process, address));
            }
            if !matches!(process.child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(READY_STEP);
        }
        let mut why = String::new();
        let stderr = process.child.stderr.take();
        process.end();
        if let Some(mut stderr) = stderr {
            // Without its message only the failed start can be reported.
            let _ = stderr.read_to_string(&mut why);
        }
        Err(Failure::cannot(PROGRAM, format!("it did not start: {}", why.trim())))
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(super) fn end(&mut self) {
        // It may have ended meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the config: two backends with the slots of the plan, one with its queue.
fn config(plan: &VerifiedPlan, servers: &[String], directory: &Path, listener: i32) -> String {
    let connections = (plan.rate_per_s * plan.stall_s.max(1.0) * plan.overload * 2.0).max(4_000.0);
    let slots = plan.servers * plan.maxconn;
    let mut text = format!(
        "global\n  nbthread 1\n  maxconn {connections:.0}\n  stats socket {} mode 600 level admin\ndefaults\n  mode \
         http\n  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n  http-reuse always\n  option \
         abortonclose\nfrontend web\n  bind fd@{listener}\n  use_backend bounded if {{ path_beg /bounded }}\n  \
         default_backend open\n",
        directory.join("socket").display()
    );
    for name in ["open", "bounded"] {
        let queue = match name {
            "open" => "  timeout queue 10m\n".to_owned(),
            _ => format!(
                "  timeout queue {:.0}ms\n  http-request deny deny_status 503 if {{ queue({name}) ge {} }}\n",
                (plan.queue_s * 1e3).max(1.0),
                plan.queue_limit
            ),
        };
        text.push_str(&format!("backend {name}\n  balance leastconn\n  fullconn {slots}\n{queue}"));
        for (number, address) in servers.iter().enumerate() {
            text.push_str(&format!("  server s{number} {address} maxconn {}\n", plan.maxconn));
        }
    }
    text
}

fn command_output(socket: &Path, line: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    writeln!(stream, "{line}")?;
    let mut text = String::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the queued requests of a backend, and those at its servers.
pub(super) fn gauges(socket: &Path, backend: &str) -> std::io::Result<(f64, f64)> {
    Ok(parse_gauges(&command_output(socket, "show stat")?, backend))
}

/// Parses the CSV of `show stat`.
fn parse_gauges(csv: &str, backend: &str) -> (f64, f64) {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().trim_start_matches("# ").split(',').collect();
    let column = |name: &str| names.iter().position(|other| *other == name).unwrap_or(usize::MAX);
    let (proxy, server, queued, current) =
        (column("pxname"), column("svname"), column("qcur"), column("scur"));
    let (mut waiting, mut busy) = (0.0, 0.0);
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        if fields.get(proxy) != Some(&backend) {
            continue;
        }
        // The row of the backend has the sum of its servers' queues and its own.
        match fields.get(server) {
            Some(&"BACKEND") => waiting = number(queued),
            Some(_) => busy += number(current),
            None => {}
        }
    }
    (waiting, busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_are_those_of_the_backend_and_its_servers() {
        let csv = "# pxname,svname,qcur,qmax,scur\nweb,FRONTEND,,,9\nopen,s0,0,1,2\nopen,s1,1,1,2\n\
                   open,BACKEND,7,8,11\nbounded,s0,0,0,3\n";
        assert_eq!(parse_gauges(csv, "open"), (7.0, 4.0));
        assert_eq!(parse_gauges(csv, "none"), (0.0, 0.0));
    }
}
