//! A proxy under test: `weir proxy` started from a config or from flags, or HAProxy as its stand-in
//! where a test wants to know that its own peers do what they say. Not for the peers themselves.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::client::{Answer, Client};
use super::metrics::Metrics;
use super::{Process, WEIR, command, folder, listens, within};

/// How long a proxy may take to start, to log, to reload.
pub(crate) use super::PATIENCE;

/// How a proxy is started, where that is not as usual.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start<'a> {
    /// A program before weir, that becomes it.
    pub(crate) prefix: &'a [&'a str],
    /// More flags.
    pub(crate) flags: &'a [&'a str],
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

/// The names of the listeners of a config, and whether it has an admin address.
fn expected(config: &str) -> (Vec<String>, bool) {
    let names = config.lines().filter_map(|line| {
        line.trim().strip_prefix("[listener.")?.strip_suffix(']').map(str::to_owned)
    });
    (names.collect(), config.lines().any(|line| line.starts_with("admin")))
}

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) process: Process,
    /// What it says that it listens on, without the scheme, by the name of the listener.
    listeners: BTreeMap<String, Vec<String>>,
    admin: Option<String>,
    pub(crate) home: TempDir,
}

impl Door {
    /// Starts weir with this config. `HOME` in it stands for a folder of its own.
    pub(crate) fn weir(config: &str) -> Self {
        Self::weir_as(config, &Start::default())
    }

    /// Starts weir with this config, in another way than usual.
    pub(crate) fn weir_as(config: &str, start: &Start<'_>) -> Self {
        let home = folder();
        let path = home.path().join("weir.toml");
        fs::write(&path, in_home(config, &home)).unwrap();
        let flags = [&["--config", path.to_str().unwrap()], start.flags].concat();
        let (names, admin) = expected(config);
        Self::launch(start, &flags, names, admin, home)
    }

    /// Starts weir with this config, with a folder of this name in its own.
    pub(crate) fn weir_with_folder(name: &str, config: &str) -> Self {
        let home = folder();
        fs::create_dir(home.path().join(name)).unwrap();
        let path = home.path().join("weir.toml");
        fs::write(&path, in_home(config, &home)).unwrap();
        let (names, admin) = expected(config);
        Self::launch(&Start::default(), &["--config", path.to_str().unwrap()], names, admin, home)
    }

    /// Starts weir with flags instead; what it listens on has the name "flags".
    pub(crate) fn with_flags(flags: &[&str]) -> Self {
        let home = folder();
        let flags: Vec<String> = flags.iter().map(|flag| in_home(flag, &home)).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let admin = flags.contains(&"--admin");
        Self::launch(&Start::default(), &flags, Vec::new(), admin, home)
    }

    fn launch(
        start: &Start<'_>,
        flags: &[&str],
        names: Vec<String>,
        admin: bool,
        home: TempDir,
    ) -> Self {
        let file = |name: &str| File::create(home.path().join(name)).unwrap();
        let mut line = start.prefix.iter().copied().chain([WEIR]);
        let mut command = command(line.next().unwrap(), home.path());
        command.args(line).arg("proxy").args(flags).stdin(Stdio::piped());
        command.envs(start.environment.iter().copied());
        command.stdout(file("stdout")).stderr(file("stderr"));
        let process = Process::spawn(&mut command);
        let mut door = Self { process, listeners: BTreeMap::new(), admin: None, home };
        let mut ended = false;
        let started = within(PATIENCE, || {
            door.read_addresses();
            let listens = match names.as_slice() {
                [] => !door.listeners.is_empty(),
                names => names.iter().all(|name| door.listeners.contains_key(name)),
            };
            let has_all = listens && (door.admin.is_some() || !admin);
            // One that has ended says no more.
            ended = !has_all && door.process.0.try_wait().is_ok_and(|code| code.is_some());
            ended || has_all
        });
        let said = (door.stdout(), door.stderr());
        assert!(started && !ended, "weir proxy {flags:?} did not start: {said:?}");
        door
    }

    /// Starts HAProxy: `PORT` in the config stands for a port, `HOME` for a folder of its own.
    pub(crate) fn haproxy(config: &str) -> Self {
        for _ in 0..20 {
            let home = folder();
            let port = free_port();
            let config = in_home(config, &home).replace("PORT", &port.to_string());
            // Two programs with SO_REUSEPORT may have one port: weir of another test is the other.
            let config = config.replacen("global\n", "global\n  noreuseport\n", 1);
            let path = home.path().join("haproxy.cfg");
            fs::write(&path, config).unwrap();
            let file = |name: &str| File::create(home.path().join(name)).unwrap();
            let mut command = Command::new("haproxy");
            command.args(["-db", "-f"]).arg(&path).stdin(Stdio::null());
            command.stdout(file("stdout")).stderr(file("stderr"));
            let mut process = Process::spawn(&mut command);
            let authority = format!("127.0.0.1:{port}");
            let mut ended = false;
            let listens = within(PATIENCE, || {
                ended = process.0.try_wait().is_ok_and(|code| code.is_some());
                ended || listens(process.id(), port)
            });
            if listens && !ended {
                let listeners = BTreeMap::from([("web".to_owned(), vec![authority])]);
                return Self { process, listeners, admin: None, home };
            }
            let said = fs::read_to_string(home.path().join("stderr")).unwrap();
            let in_use = said.contains("Address already in use") || said.contains("cannot bind");
            assert!(in_use, "haproxy did not start: {said}");
        }
        panic!("haproxy did not start on any of twenty free ports")
    }

    /// What it has said by now about where it listens.
    fn read_addresses(&mut self) {
        self.listeners.clear();
        for line in self.stdout().lines() {
            if let Some(rest) = line.strip_prefix("listening on ") {
                let address = bare(rest.split(' ').next().unwrap());
                let name = rest.split_once("(listener ").map_or("flags", |(_, rest)| {
                    rest.split([';', ')']).next().unwrap_or(rest).trim()
                });
                self.listeners.entry(name.to_owned()).or_default().push(address);
            } else if let Some(address) = line.strip_prefix("admin on ") {
                self.admin = Some(bare(address.split(' ').next().unwrap()));
            }
        }
    }

    /// The first address of its listener "web", or of the only one.
    pub(crate) fn authority(&self) -> &str {
        let only = self.listeners.values().next();
        let addresses = self.listeners.get("web").or(only).expect("a listener");
        &addresses[0]
    }

    pub(crate) fn port(&self) -> u16 {
        self.authority().parse::<SocketAddr>().unwrap().port()
    }

    /// All addresses of one listener.
    pub(crate) fn addresses(&self, listener: &str) -> Vec<String> {
        self.listeners.get(listener).cloned().unwrap_or_default()
    }

    /// The address of a listener that a reload has added.
    pub(crate) fn wait_for_listener(&mut self, listener: &str) -> String {
        let came = within(PATIENCE, || {
            self.read_addresses();
            self.listeners.contains_key(listener)
        });
        assert!(came, "no listener {listener}: {} {}", self.stdout(), self.stderr());
        self.listeners[listener][0].clone()
    }

    /// Whether it still takes connections at this address, one that it told.
    pub(crate) fn listens_at(&self, authority: &str) -> bool {
        listens(self.process.id(), authority.parse::<SocketAddr>().unwrap().port())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.authority())
    }

    /// One GET on a connection of its own.
    pub(crate) fn get(&self, target: &str) -> Answer {
        self.client().ask(target)
    }

    pub(crate) fn admin(&self) -> &str {
        self.admin.as_deref().expect("the config has an admin address")
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let answer = Client::connect(self.admin()).ask_as("/metrics", "Host: localhost\r\n");
        assert_eq!(answer.status, 200, "{}", answer.head);
        Metrics::parse(&String::from_utf8(answer.body).unwrap())
    }

    /// What the status page is made from.
    pub(crate) fn status(&self) -> Value {
        let answer = Client::connect(self.admin()).ask_as("/status.json", "Host: localhost\r\n");
        assert_eq!(answer.status, 200, "{}", answer.head);
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Asks until the metrics are as wanted; fails with them when they never are.
    pub(crate) fn metrics_until(&self, what: &str, is_so: impl Fn(&Metrics) -> bool) -> Metrics {
        let mut metrics = self.metrics();
        let so = within(PATIENCE, || {
            metrics = self.metrics();
            is_so(&metrics)
        });
        assert!(so, "{what}: {metrics}");
        metrics
    }

    /// Waits until it holds nothing for anybody: no buffer, no request, no slot at a server. To be called
    /// when all clients have left.
    pub(crate) fn assert_all_returned(&self) {
        const HELD: &[&str] = &[
            "weir_buffers_lent",
            "weir_requests_in_flight",
            "weir_abandoned_requests",
            "weir_server_slots",
            "weir_server_requests_in_flight",
            "weir_pool_queued_requests",
        ];
        self.metrics_until("all is returned", |metrics| {
            HELD.iter().all(|name| metrics.sum(name, &[]) == 0.0)
        });
    }

    /// Writes another config and has it read.
    pub(crate) fn reload(&self, config: &str) {
        let path = self.home.path().join("weir.toml");
        // In one step, so that a reload never sees half of it.
        let new = self.home.path().join("weir.toml.new");
        fs::write(&new, in_home(config, &self.home)).unwrap();
        fs::rename(new, path).unwrap();
        self.process.signal(Signal::HUP);
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(self.file("stdout")).unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.file("stderr")).unwrap()
    }

    /// The whole lines of a file of its folder.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// The lines of a file, as soon as there are so many; fails when they never are.
    pub(crate) fn wait_for_lines(&self, name: &str, wanted: usize) -> Vec<String> {
        self.wait_for_lines_with(name, "", wanted)
    }

    /// As [`Door::wait_for_lines`], of the lines that contain a text.
    pub(crate) fn wait_for_lines_with(&self, name: &str, part: &str, wanted: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let enough = within(PATIENCE, || {
            lines = self.lines(name);
            lines.retain(|line| line.contains(part));
            lines.len() >= wanted
        });
        assert!(enough, "{name}: {wanted} lines with '{part}' wanted: {lines:#?}");
        lines
    }

    /// Its descriptors in all threads' tables, without the pipes: those that bodies went through are
    /// kept for the next one.
    pub(crate) fn descriptors_but_pipes(&self) -> usize {
        let folders = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
        let threads = folders(format!("/proc/{}/task", self.process.id()));
        let files = threads.flat_map(|thread| folders(format!("{}/fd", thread.path().display())));
        let links = files.filter_map(|file| fs::read_link(file.path()).ok());
        links.filter(|link| !link.to_string_lossy().starts_with("pipe:")).count()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        host::process::resident_bytes(self.process.id()).unwrap()
    }
}

/// `HOME` in a text becomes the folder's path.
fn in_home(text: &str, home: &TempDir) -> String {
    text.replace("HOME", home.path().to_str().unwrap())
}

/// An address as it is told, without its scheme.
fn bare(address: &str) -> String {
    let address = address.trim_end_matches('/');
    address.trim_start_matches("http://").trim_start_matches("tcp://").to_owned()
}

/// A port that was free just now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
