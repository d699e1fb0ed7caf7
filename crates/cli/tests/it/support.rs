//! Shared helpers of the tests of the real binary: they start weir and read its output, kill every
//! process and limit every wait. [`peers`] has the peers that are not weir.

pub(crate) mod client;
pub(crate) mod faulty_origins;
pub(crate) mod haproxy_log;
pub(crate) mod hostile_client;
pub(crate) mod metrics;
pub(crate) mod peers;
pub(crate) mod proxies;
pub(crate) mod proxy_under_test;
pub(crate) mod python_server;
pub(crate) mod strict_parser;
pub(crate) mod timing;
pub(crate) mod tls_peers;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

use rt::clock::now_ns;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use client::Client;

/// Path of the real binary.
pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// Maximum duration of a run in these tests: several times that of the longest, an experiment, beside other tests.
pub(crate) const RUN_TIME_MAX: Duration = Duration::from_secs(400);
/// Maximum time a test waits for an expected event: far longer than the slowest machine needs.
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

#[allow(clippy::disallowed_types, reason = "keeps tests apart; the default harness has no other means")]
static MACHINE_LOCK: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// Returns the lock of a test that may run concurrently with others.
#[allow(clippy::disallowed_types, reason = "as of the lock itself")]
pub(crate) fn shared_machine() -> std::sync::RwLockReadGuard<'static, ()> {
    MACHINE_LOCK.read().unwrap_or_else(PoisonError::into_inner)
}

/// Lock of a test that measures times.
#[allow(clippy::disallowed_types, dead_code, reason = "as of the lock itself; held, not read")]
pub(crate) enum QuietMachine {
    Exclusive(std::sync::RwLockWriteGuard<'static, ()>),
    Shared(std::sync::RwLockReadGuard<'static, ()>),
}

/// Returns the lock of a test that measures times: exclusive where times are asserted. Where they are only printed,
/// nobody waits for it.
pub(crate) fn quiet_machine() -> QuietMachine {
    match timing::are_enforced() {
        true => QuietMachine::Exclusive(exclusive_machine()),
        false => QuietMachine::Shared(shared_machine()),
    }
}

/// Returns the lock of a test that needs the machine exclusively, because other tests would cause the awaited event.
#[allow(clippy::disallowed_types, reason = "as of the lock itself")]
pub(crate) fn exclusive_machine() -> std::sync::RwLockWriteGuard<'static, ()> {
    MACHINE_LOCK.write().unwrap_or_else(PoisonError::into_inner)
}

/// A process that ends with this value, in every outcome of the test.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        match command.spawn() {
            Ok(child) => Self(child),
            Err(error) => panic!("{command:?}: {error}"),
        }
    }

    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.id(), signal);
    }

    /// Returns the exit code; panics if the process does not end in time.
    pub(crate) fn wait(&mut self, timeout: Duration) -> i32 {
        let mut code = None;
        let ended = within(timeout, || {
            code = self.0.try_wait().unwrap();
            code.is_some()
        });
        assert!(ended, "process {} did not end within {timeout:?}", self.id());
        code.unwrap().code().unwrap_or(-1)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Returns the piped stdin.
    pub(crate) fn stdin(&mut self) -> &mut ChildStdin {
        self.0.stdin.as_mut().expect("a piped stdin")
    }

    /// Closes stdin, which ends an origin of the tests.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Returns the first line that the process prints.
    pub(crate) fn first_line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.0.stdout.take().expect("a piped stdout");
        BufReader::new(stdout).read_line(&mut line).unwrap();
        line
    }
}

impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; the kill also ends a stopped process.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn send_signal(id: i32, signal: Signal) {
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

/// Polls until the condition holds; returns `false` if it does not hold within `timeout`.
pub(crate) fn within(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let until_ns = now_ns() + timeout.as_nanos() as u64;
    loop {
        if condition() {
            return true;
        }
        if now_ns() > until_ns {
            return false;
        }
        pause_ms(10);
    }
}

/// Returns whether a process listens on this port of the loopback. Another process may have the
/// port by now, so a connection to it proves nothing about this process.
pub(crate) fn listens_on(id: i32, port: u16) -> bool {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let sockets = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Local address, state (0A: listening) and inode.
        let listens = words.get(1) == Some(&local.as_str()) && words.get(3) == Some(&"0A");
        listens.then(|| format!("socket:[{}]", words[9]))
    });
    let sockets: Vec<String> = sockets.collect();
    // Threads may have their own descriptor tables.
    let entries = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    !sockets.is_empty()
        && entries(format!("/proc/{id}/task")).any(|thread| {
            let mut files = entries(format!("{}/fd", thread.path().display()));
            files.any(|file| {
                let link = fs::read_link(file.path());
                link.is_ok_and(|to| sockets.iter().any(|socket| to.as_os_str() == socket.as_str()))
            })
        })
}

/// Returns the anonymous memory of a process.
pub(crate) fn anonymous_bytes(process: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

pub(crate) fn pause_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Returns whether this process may open so many descriptors; prints a message if not.
pub(crate) fn can_open_descriptors(descriptors: u64) -> bool {
    let limit = rt::limits::raise_descriptor_limit().current;
    if limit < descriptors {
        let reason = format!("a process may open {limit} files here, and {descriptors} are needed");
        test_needs::skip(test_needs::DESCRIPTORS, reason);
    }
    limit >= descriptors
}

/// Creates a temporary directory for the state and the files of one process.
pub(crate) fn temp_dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Builds a command that does not see the stored calibrations of this host.
pub(crate) fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("HOME", directory).env("XDG_STATE_HOME", directory).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// A running `weir serve`.
#[derive(Debug)]
pub(crate) struct OriginProcess {
    pub(crate) process: Process,
    pub(crate) authority: String,
    home: TempDir,
}

impl OriginProcess {
    /// Starts one on a port that the kernel chooses.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut all = vec!["--listen", "127.0.0.1:0"];
        all.extend(flags);
        Self::start_at(&all)
    }

    /// Starts one with the listener addresses of the flags.
    pub(crate) fn start_at(flags: &[&str]) -> Self {
        let directory = temp_dir();
        let stderr = File::create(directory.path().join("stderr")).unwrap();
        let mut process = Process::spawn(
            command(WEIR, directory.path())
                .args(["serve", "--until-stdin-closes"])
                .args(flags)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(stderr),
        );
        let line = process.first_line();
        let address = line.strip_prefix("listening on ").unwrap_or_else(|| {
            let stderr_text = fs::read_to_string(directory.path().join("stderr")).unwrap();
            panic!("weir serve {flags:?} said '{line}' and '{stderr_text}'")
        });
        let address = address.split(' ').next().unwrap();
        let authority = address.split_once("://").map_or(address, |(_, rest)| rest).trim_end_matches('/');
        Self { authority: authority.to_owned(), process, home: directory }
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.authority)
    }

    /// Returns a URL of an origin with TLS.
    pub(crate) fn https_url(&self, target: &str) -> String {
        format!("https://{}{target}", self.authority)
    }

    pub(crate) fn stats(&self) -> Value {
        stats_of(&self.authority)
    }

    /// Returns a check for `more` further requests served since this call.
    pub(crate) fn has_served_more(&self, more: u64) -> impl FnMut() -> bool {
        let requests = || self.stats()["requests"].as_u64().unwrap();
        let before = requests();
        move || requests() > before + more
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.home.path().join("stderr")).unwrap()
    }
}

/// Returns the counters of the `weir serve` at this address.
pub(crate) fn stats_of(authority: &str) -> Value {
    serde_json::from_slice(&Client::connect(authority).get("/stats").body).unwrap()
}

/// Results of a run of weir.
#[derive(Debug)]
pub(crate) struct RunOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Record that `--json` wrote; null if there is none.
    pub(crate) record: Value,
}

/// A run of weir that has not ended.
#[derive(Debug)]
pub(crate) struct RunningProcess {
    pub(crate) process: Process,
    home: TempDir,
    json: PathBuf,
}

impl RunningProcess {
    /// Returns the output so far.
    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(self.home.path().join("stdout")).unwrap()
    }

    /// Returns the messages so far.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.home.path().join("stderr")).unwrap()
    }

    /// Waits for the end; returns the output.
    pub(crate) fn finish(mut self) -> RunOutput {
        let code = self.process.wait(RUN_TIME_MAX);
        let read = |name: &str| fs::read_to_string(self.home.path().join(name)).unwrap();
        let record = fs::read(&self.json)
            .map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).expect("a record is JSON"));
        RunOutput { code, stdout: read("stdout"), stderr: read("stderr"), record }
    }
}

/// Starts a program with its output in files.
pub(crate) fn start(program: &str, arguments: &[&str]) -> RunningProcess {
    let directory = temp_dir();
    let json = directory.path().join("record.json");
    let file = |name: &str| File::create(directory.path().join(name)).unwrap();
    let mut command = command(program, directory.path());
    command.stdout(file("stdout")).stderr(file("stderr"));
    for argument in arguments {
        // The path of the record is known only here.
        command.arg(match *argument {
            "RECORD" => json.as_os_str(),
            other => other.as_ref(),
        });
    }
    let process = Process::spawn(&mut command);
    RunningProcess { process, home: directory, json }
}

/// Runs weir.
pub(crate) fn run_weir(arguments: &[&str]) -> RunOutput {
    start(WEIR, arguments).finish()
}

/// Starts a load that writes its record, without a baseline: the origin then serves only requests
/// of the load.
pub(crate) fn start_load(arguments: &[&str]) -> RunningProcess {
    let mut all = vec!["load", "--no-baseline", "--json", "RECORD"];
    all.extend(arguments);
    start(WEIR, &all)
}

/// Runs a load to its end, and checks its counts against each other.
pub(crate) fn run_load(arguments: &[&str]) -> RunOutput {
    let output = start_load(arguments).finish();
    output.assert_sums();
    output
}

impl RunOutput {
    /// Returns a number of the record, by the path of its names.
    pub(crate) fn number(&self, path: &str) -> f64 {
        let value = self.record.pointer(&pointer(path));
        value.and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {path}: {self:?}"))
    }

    pub(crate) fn count(&self, path: &str) -> u64 {
        let value = self.record.pointer(&pointer(path));
        value.and_then(Value::as_u64).unwrap_or_else(|| panic!("no count {path}: {self:?}"))
    }

    /// Returns a total, or 0 if the record does not have it.
    pub(crate) fn total(&self, path: &str) -> u64 {
        let value = self.record.pointer(&pointer(&format!("totals.{path}")));
        value.and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns the sum of all errors.
    pub(crate) fn errors(&self) -> u64 {
        sum(&self.record["totals"]["errors"])
    }

    /// Returns the codes of the reasons of the verdict.
    pub(crate) fn reasons(&self) -> Vec<&str> {
        let reasons = self.record["validity"]["reasons"].as_array();
        let reasons = reasons.into_iter().flatten();
        reasons.map(|reason| reason["code"].as_str().unwrap()).collect()
    }

    /// Returns whether the record itself reports a disturbance of the run.
    pub(crate) fn is_disturbed(&self) -> bool {
        let disturbances =
            ["cpu_contended", "run_queue_wait", "cpu_steal", "client_bound", "send_lag", "generator_stalled"];
        self.reasons().iter().any(|reason| disturbances.contains(reason))
    }

    /// Asserts that quantities counted from two sides are equal.
    pub(crate) fn assert_sums(&self) {
        if self.record.is_null() {
            return;
        }
        let totals = &self.record["totals"];
        let total = |name: &str| self.total(name);
        assert_eq!(total("requests"), total("responses") + self.errors(), "{totals:#}");
        let failed = self.errors() - total("errors.check");
        assert_eq!(total("requests"), total("good") + total("bad") + failed, "{totals:#}");
        assert_eq!(sum(&totals["status"]), total("responses") + total("errors.check"), "{totals:#}");
        assert_eq!(sum(&totals["timeouts_by_phase"]), total("errors.timeout"), "{totals:#}");
        assert_eq!(total("unfinished"), total("errors.unfinished"), "{totals:#}");
        assert!(total("sent") <= total("requests"), "{totals:#}");
        for name in ["responses", "bytes_in", "bytes_out", "dropped"] {
            let intervals = self.record["intervals"].as_array().unwrap().iter();
            let interval_sum: u64 = intervals.map(|interval| interval[name].as_u64().unwrap()).sum();
            assert_eq!(interval_sum, total(name), "{name} of the intervals");
        }
    }
}

/// Converts `a.b.c` to a JSON pointer.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

/// Returns the sum of an object's numbers.
pub(crate) fn sum(counts: &Value) -> u64 {
    let counts = counts.as_object().unwrap().values();
    counts.map(|count| count.as_u64().unwrap()).sum()
}
