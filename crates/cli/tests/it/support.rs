//! What the tests of the real binary share: starting weir and reading what it says, with every
//! process killed and every wait bounded. Peers that are not weir are in [`peers`].

pub(crate) mod client;
pub(crate) mod door;
pub(crate) mod faulty;
pub(crate) mod hlog;
pub(crate) mod metrics;
pub(crate) mod peers;
pub(crate) mod proxies;
pub(crate) mod rude;
pub(crate) mod strict;
pub(crate) mod times;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

use rt::clock::now_ns;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use client::Client;

/// The real binary.
pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// No run of these tests takes longer.
const RUN_TIME_MAX: Duration = Duration::from_secs(120);
/// How long a test waits for what has to come: far longer than the slowest machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[allow(
    clippy::disallowed_types,
    reason = "between tests, where the default harness has no other means to keep two apart"
)]
static MACHINE: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// Held by a test that does not mind others beside it.
#[allow(clippy::disallowed_types, reason = "as of the lock itself")]
pub(crate) fn beside_others() -> std::sync::RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that wants the machine for itself, because it measures times or because others would
/// do what it waits for.
#[allow(clippy::disallowed_types, reason = "as of the lock itself")]
pub(crate) fn alone() -> std::sync::RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// A process that ends with this value, whatever the test does.
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

    /// The exit code; panics when it does not end in time.
    pub(crate) fn wait(&mut self, most: Duration) -> i32 {
        let mut code = None;
        let ended = within(most, || {
            code = self.0.try_wait().unwrap();
            code.is_some()
        });
        assert!(ended, "process {} did not end within {most:?}", self.id());
        code.unwrap().code().unwrap_or(-1)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// What ends an origin of the tests, if nothing else does.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.0.stdin.take());
    }

    /// The first line that it prints.
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
        // It may have ended already; and a stopped one is killed too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn send_signal(id: i32, signal: Signal) {
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

/// Asks until it is so; `false` when it is not within `most`.
pub(crate) fn within(most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let until_ns = now_ns() + most.as_nanos() as u64;
    loop {
        if is_so() {
            return true;
        }
        if now_ns() > until_ns {
            return false;
        }
        pause_ms(10);
    }
}

/// Whether a process listens on this port of the loopback. Somebody else may have the port by now,
/// so that a connection to it says nothing about this process.
pub(crate) fn listens(id: i32, port: u16) -> bool {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let sockets = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Its local address, its state (0A: it listens), its inode.
        let listens = words.get(1) == Some(&local.as_str()) && words.get(3) == Some(&"0A");
        listens.then(|| format!("socket:[{}]", words[9]))
    });
    let sockets: Vec<String> = sockets.collect();
    // Threads may have tables of descriptors of their own.
    let folders = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    !sockets.is_empty()
        && folders(format!("/proc/{id}/task")).any(|thread| {
            let mut files = folders(format!("{}/fd", thread.path().display()));
            files.any(|file| {
                let link = fs::read_link(file.path());
                link.is_ok_and(|to| sockets.iter().any(|one| to.as_os_str() == one.as_str()))
            })
        })
}

pub(crate) fn pause_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Whether this process may open so many descriptors; says so where it may not.
pub(crate) fn may_open(descriptors: u64) -> bool {
    let limit = rt::limits::raise_descriptor_limit().now;
    if limit < descriptors {
        println!("skipped: a process may open {limit} files here, and {descriptors} are needed");
    }
    limit >= descriptors
}

/// A folder of its own, for the state and the files of one process.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A command that knows nothing of this host's stored calibrations.
pub(crate) fn command(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("HOME", home).env("XDG_STATE_HOME", home).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// A running `weir serve`.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) process: Process,
    pub(crate) authority: String,
    home: TempDir,
}

impl Origin {
    /// Starts one on a port of the kernel's choice.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut all = vec!["--listen", "127.0.0.1:0"];
        all.extend(flags);
        Self::start_at(&all)
    }

    /// Starts one that listens where the flags say.
    pub(crate) fn start_at(flags: &[&str]) -> Self {
        let home = folder();
        let stderr = File::create(home.path().join("stderr")).unwrap();
        let mut process = Process::spawn(
            command(WEIR, home.path())
                .args(["serve", "--until-stdin-closes"])
                .args(flags)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(stderr),
        );
        let line = process.first_line();
        let address = line.strip_prefix("listening on ").unwrap_or_else(|| {
            let said = fs::read_to_string(home.path().join("stderr")).unwrap();
            panic!("weir serve {flags:?} said '{line}' and '{said}'")
        });
        let address = address.split(' ').next().unwrap();
        let authority = address.trim_start_matches("http://").trim_end_matches('/');
        Self { authority: authority.to_owned(), process, home }
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.authority)
    }

    pub(crate) fn stats(&self) -> Value {
        stats_of(&self.authority)
    }

    /// Whether so many more requests were served than there were when this was made.
    pub(crate) fn has_served(&self, more: u64) -> impl FnMut() -> bool {
        let requests = || self.stats()["requests"].as_u64().unwrap();
        let before = requests();
        move || requests() > before + more
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.home.path().join("stderr")).unwrap()
    }
}

/// What a `weir serve` that listens there counts.
pub(crate) fn stats_of(authority: &str) -> Value {
    serde_json::from_slice(&Client::connect(authority).ask("/stats").body).unwrap()
}

/// What a run of weir left behind.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// What `--json` wrote; null when there is none.
    pub(crate) record: Value,
}

/// A run of weir that goes on.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Process,
    home: TempDir,
    json: PathBuf,
}

impl Running {
    /// What it has printed by now.
    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(self.home.path().join("stdout")).unwrap()
    }

    /// Its output, when it has ended.
    pub(crate) fn finish(mut self) -> Output {
        let code = self.process.wait(RUN_TIME_MAX);
        let read = |name: &str| fs::read_to_string(self.home.path().join(name)).unwrap();
        let record = fs::read(&self.json)
            .map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).expect("a record is JSON"));
        Output { code, stdout: read("stdout"), stderr: read("stderr"), record }
    }
}

/// Starts a program with its output in files.
pub(crate) fn start(program: &str, arguments: &[&str]) -> Running {
    let home = folder();
    let json = home.path().join("record.json");
    let file = |name: &str| File::create(home.path().join(name)).unwrap();
    let mut command = command(program, home.path());
    command.stdout(file("stdout")).stderr(file("stderr"));
    for argument in arguments {
        // Where a record goes is known only here.
        command.arg(match *argument {
            "RECORD" => json.as_os_str(),
            other => other.as_ref(),
        });
    }
    let process = Process::spawn(&mut command);
    Running { process, home, json }
}

/// Runs weir.
pub(crate) fn weir(arguments: &[&str]) -> Output {
    start(WEIR, arguments).finish()
}

/// Starts a load that writes its record. Without a baseline: the origin serves its own requests only.
pub(crate) fn start_load(arguments: &[&str]) -> Running {
    let mut all = vec!["load", "--no-baseline", "--json", "RECORD"];
    all.extend(arguments);
    start(WEIR, &all)
}

/// Runs a load to its end, with its counts checked against each other.
pub(crate) fn load(arguments: &[&str]) -> Output {
    let output = start_load(arguments).finish();
    output.assert_sums();
    output
}

impl Output {
    /// A number of the record, by the path of its names.
    pub(crate) fn number(&self, path: &str) -> f64 {
        let value = self.record.pointer(&pointer(path));
        value.and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {path}: {self:?}"))
    }

    pub(crate) fn count(&self, path: &str) -> u64 {
        let value = self.record.pointer(&pointer(path));
        value.and_then(Value::as_u64).unwrap_or_else(|| panic!("no count {path}: {self:?}"))
    }

    /// A total, or 0 when the record does not have it.
    pub(crate) fn total(&self, path: &str) -> u64 {
        let value = self.record.pointer(&pointer(&format!("totals.{path}")));
        value.and_then(Value::as_u64).unwrap_or(0)
    }

    /// All errors.
    pub(crate) fn errors(&self) -> u64 {
        sum(&self.record["totals"]["errors"])
    }

    /// The codes of the reasons of the verdict.
    pub(crate) fn reasons(&self) -> Vec<&str> {
        let reasons = self.record["validity"]["reasons"].as_array();
        let reasons = reasons.into_iter().flatten();
        reasons.map(|reason| reason["code"].as_str().unwrap()).collect()
    }

    /// Whether the record itself says that something else disturbed the run.
    pub(crate) fn is_disturbed(&self) -> bool {
        let disturbances = [
            "foreign_cpu",
            "run_queue_wait",
            "cpu_steal",
            "client_bound",
            "send_lag",
            "generator_stalled",
        ];
        self.reasons().iter().any(|reason| disturbances.contains(reason))
    }

    /// What is one quantity seen from two sides must be equal.
    pub(crate) fn assert_sums(&self) {
        if self.record.is_null() {
            return;
        }
        let totals = &self.record["totals"];
        let total = |name: &str| self.total(name);
        assert_eq!(total("requests"), total("responses") + self.errors(), "{totals:#}");
        let failed = self.errors() - total("errors.check");
        assert_eq!(total("requests"), total("good") + total("bad") + failed, "{totals:#}");
        assert_eq!(
            sum(&totals["status"]),
            total("responses") + total("errors.check"),
            "{totals:#}"
        );
        assert_eq!(sum(&totals["timeouts_by_phase"]), total("errors.timeout"), "{totals:#}");
        assert_eq!(total("unfinished"), total("errors.unfinished"), "{totals:#}");
        assert!(total("sent") <= total("requests"), "{totals:#}");
        for name in ["responses", "bytes_in", "bytes_out", "dropped"] {
            let intervals = self.record["intervals"].as_array().unwrap().iter();
            let of_intervals: u64 = intervals.map(|one| one[name].as_u64().unwrap()).sum();
            assert_eq!(of_intervals, total(name), "{name} of the intervals");
        }
    }
}

/// `a.b.c` as a JSON pointer.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

/// The sum of an object's numbers.
pub(crate) fn sum(counts: &Value) -> u64 {
    let counts = counts.as_object().unwrap().values();
    counts.map(|count| count.as_u64().unwrap()).sum()
}
