//! A proxy under test: `weir proxy` started from a config or from flags, or HAProxy instead,
//! which proves that the peers of a test are correct. Does not contain the peers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::client::{Client, Response};
use super::metrics::Metrics;
use super::{Process, WEIR, command, listens_on, temp_dir, within};

/// Maximum time a proxy may take to start, to log, or to reload.
pub(crate) use super::EVENT_TIMEOUT;

/// Start options of a proxy that differ from the default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StartOptions<'a> {
    /// A program before weir that executes it.
    pub(crate) prefix: &'a [&'a str],
    /// Further flags.
    pub(crate) flags: &'a [&'a str],
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

/// Returns the names of the listeners of a config, and whether it has an admin address.
fn expected_addresses(config: &str) -> (Vec<String>, bool) {
    let names = config
        .lines()
        .filter_map(|line| line.trim().strip_prefix("[listener.")?.strip_suffix(']').map(str::to_owned))
        // Its other tables have no address.
        .filter(|name| !name.contains('.'));
    (names.collect(), config.lines().any(|line| line.starts_with("admin")))
}

/// A running proxy.
#[derive(Debug)]
pub(crate) struct ProxyUnderTest {
    pub(crate) process: Process,
    /// Reported listening addresses without the scheme, by the name of the listener.
    listeners: BTreeMap<String, Vec<String>>,
    admin: Option<String>,
    pub(crate) home: TempDir,
}

impl ProxyUnderTest {
    /// Starts weir with this config. `HOME` in it stands for a temporary directory.
    pub(crate) fn weir(config: &str) -> Self {
        Self::weir_with_options(config, &StartOptions::default())
    }

    /// Starts weir with this config and these options.
    pub(crate) fn weir_with_options(config: &str, start: &StartOptions<'_>) -> Self {
        let directory = temp_dir();
        let path = directory.path().join("weir.toml");
        fs::write(&path, expand_home(config, &directory)).unwrap();
        let flags = [&["--config", path.to_str().unwrap()], start.flags].concat();
        let (names, admin) = expected_addresses(config);
        Self::launch(start, &flags, names, admin, directory)
    }

    /// Starts weir with this config, with a subdirectory of this name in its temporary directory.
    pub(crate) fn weir_with_directory(name: &str, config: &str) -> Self {
        let directory = temp_dir();
        fs::create_dir(directory.path().join(name)).unwrap();
        let path = directory.path().join("weir.toml");
        fs::write(&path, expand_home(config, &directory)).unwrap();
        let (names, admin) = expected_addresses(config);
        Self::launch(&StartOptions::default(), &["--config", path.to_str().unwrap()], names, admin, directory)
    }

    /// Starts weir with flags instead; its listener has the name "flags".
    pub(crate) fn weir_with_flags(flags: &[&str]) -> Self {
        let directory = temp_dir();
        let flags: Vec<String> = flags.iter().map(|flag| expand_home(flag, &directory)).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let admin = flags.contains(&"--admin");
        Self::launch(&StartOptions::default(), &flags, Vec::new(), admin, directory)
    }

    fn launch(
        start: &StartOptions<'_>,
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
        let mut proxy = Self { process, listeners: BTreeMap::new(), admin: None, home };
        let mut has_ended = false;
        let started = within(EVENT_TIMEOUT, || {
            proxy.read_addresses();
            let listens = match names.as_slice() {
                [] => !proxy.listeners.is_empty(),
                names => names.iter().all(|name| proxy.listeners.contains_key(name)),
            };
            let has_all = listens && (proxy.admin.is_some() || !admin);
            // A process that has ended prints no more.
            has_ended = !has_all && proxy.process.0.try_wait().is_ok_and(|code| code.is_some());
            has_ended || has_all
        });
        let stderr = (proxy.stdout(), proxy.stderr());
        assert!(started && !has_ended, "weir proxy {flags:?} did not start: {stderr:?}");
        proxy
    }

    /// Starts HAProxy: `PORT` in the config stands for a port, `HOME` for a temporary directory.
    pub(crate) fn haproxy(config: &str) -> Self {
        for _ in 0..20 {
            let directory = temp_dir();
            let port = free_port();
            let config = expand_home(config, &directory).replace("PORT", &port.to_string());
            // Two processes with SO_REUSEPORT may share one port; the other could be the weir of
            // another test.
            let config = config.replacen("global\n", "global\n  noreuseport\n", 1);
            let path = directory.path().join("haproxy.cfg");
            fs::write(&path, config).unwrap();
            let file = |name: &str| File::create(directory.path().join(name)).unwrap();
            let mut command = Command::new("haproxy");
            command.args(["-db", "-f"]).arg(&path).stdin(Stdio::null());
            command.stdout(file("stdout")).stderr(file("stderr"));
            let mut process = Process::spawn(&mut command);
            let authority = format!("127.0.0.1:{port}");
            let mut has_ended = false;
            let listens = within(EVENT_TIMEOUT, || {
                has_ended = process.0.try_wait().is_ok_and(|code| code.is_some());
                has_ended || listens_on(process.id(), port)
            });
            if listens && !has_ended {
                let listeners = BTreeMap::from([("web".to_owned(), vec![authority])]);
                return Self { process, listeners, admin: None, home: directory };
            }
            let stderr = fs::read_to_string(directory.path().join("stderr")).unwrap();
            let in_use = stderr.contains("Address already in use") || stderr.contains("cannot bind");
            assert!(in_use, "haproxy did not start: {stderr}");
        }
        panic!("haproxy did not start on any of twenty free ports")
    }

    /// Reads the listening addresses that it has printed so far.
    fn read_addresses(&mut self) {
        self.listeners.clear();
        for line in self.stdout().lines() {
            if let Some(rest) = line.strip_prefix("listening on ") {
                let address = without_scheme(rest.split(' ').next().unwrap());
                let name = rest
                    .split_once("(listener ")
                    .map_or("flags", |(_, rest)| rest.split([';', ')']).next().unwrap_or(rest).trim());
                self.listeners.entry(name.to_owned()).or_default().push(address);
            } else if let Some(address) = line.strip_prefix("admin on ") {
                self.admin = Some(without_scheme(address.split(' ').next().unwrap()));
            }
        }
    }

    /// Returns the first address of its listener "web", or of the only one.
    pub(crate) fn authority(&self) -> &str {
        let only = self.listeners.values().next();
        let addresses = self.listeners.get("web").or(only).expect("a listener");
        &addresses[0]
    }

    pub(crate) fn port(&self) -> u16 {
        self.authority().parse::<SocketAddr>().unwrap().port()
    }

    /// Returns all addresses of one listener.
    pub(crate) fn addresses(&self, listener: &str) -> Vec<String> {
        self.listeners.get(listener).cloned().unwrap_or_default()
    }

    /// Returns the address of a listener that a reload has added.
    pub(crate) fn wait_for_listener(&mut self, listener: &str) -> String {
        let is_listening = within(EVENT_TIMEOUT, || {
            self.read_addresses();
            self.listeners.contains_key(listener)
        });
        assert!(is_listening, "no listener {listener}: {} {}", self.stdout(), self.stderr());
        self.listeners[listener][0].clone()
    }

    /// Returns whether it still listens at this address, which it reported.
    pub(crate) fn listens_at(&self, authority: &str) -> bool {
        listens_on(self.process.id(), authority.parse::<SocketAddr>().unwrap().port())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.authority())
    }

    /// Sends one GET on its own connection.
    pub(crate) fn get(&self, target: &str) -> Response {
        self.client().get(target)
    }

    pub(crate) fn admin(&self) -> &str {
        self.admin.as_deref().expect("the config has an admin address")
    }

    /// Returns the content of an admin page. On a busy machine, the cores may miss the timeout for
    /// their part of a page, which is then requested again.
    fn admin_page(&self, target: &str) -> Vec<u8> {
        let mut page = None;
        let is_available = within(EVENT_TIMEOUT, || {
            let response = Client::connect(self.admin()).get_with_fields(target, "Host: localhost\r\n");
            page.insert(response).status == 200
        });
        let page = page.unwrap();
        assert!(is_available, "{target}: {}", page.head);
        page.body
    }

    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::parse(&String::from_utf8(self.admin_page("/metrics")).unwrap())
    }

    /// Returns the data of the status page.
    pub(crate) fn status(&self) -> Value {
        serde_json::from_slice(&self.admin_page("/status.json")).unwrap()
    }

    /// Polls until the metrics fulfil the condition; fails with them if they never do.
    pub(crate) fn metrics_until(&self, what: &str, condition: impl Fn(&Metrics) -> bool) -> Metrics {
        let mut metrics = self.metrics();
        let holds = within(EVENT_TIMEOUT, || {
            metrics = self.metrics();
            condition(&metrics)
        });
        assert!(holds, "{what}: {metrics}");
        metrics
    }

    /// Waits until it holds nothing for any client: no buffer, no request, no slot at a server. The
    /// test calls it after all clients have left.
    pub(crate) fn assert_all_returned(&self) {
        const HELD: &[&str] = &[
            "weir_buffers_in_use",
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

    /// Writes another config and reloads it.
    pub(crate) fn reload(&self, config: &str) {
        let path = self.home.path().join("weir.toml");
        // The rename is atomic, so that a reload never reads half of it.
        let new = self.home.path().join("weir.toml.new");
        fs::write(&new, expand_home(config, &self.home)).unwrap();
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

    /// Returns the complete lines of a file in its directory.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        let complete_end = text.rfind('\n').map_or("", |end| &text[..end]);
        complete_end.lines().map(str::to_owned).collect()
    }

    /// Returns the lines of a file as soon as there are so many; fails if there never are.
    pub(crate) fn wait_for_lines(&self, name: &str, count: usize) -> Vec<String> {
        self.wait_for_lines_with(name, "", count)
    }

    /// Does the same as [`ProxyUnderTest::wait_for_lines`] for the lines that contain a text.
    pub(crate) fn wait_for_lines_with(&self, name: &str, part: &str, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let has_enough = within(EVENT_TIMEOUT, || {
            lines = self.lines(name);
            lines.retain(|line| line.contains(part));
            lines.len() >= count
        });
        assert!(has_enough, "{name}: {count} lines with '{part}' wanted: {lines:#?}");
        lines
    }

    /// Returns the number of its descriptors in all threads' tables, without the pipes: those that
    /// bodies went through are kept for later bodies.
    pub(crate) fn non_pipe_descriptors(&self) -> usize {
        let entries = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
        let threads = entries(format!("/proc/{}/task", self.process.id()));
        let files = threads.flat_map(|thread| entries(format!("{}/fd", thread.path().display())));
        let links = files.filter_map(|file| fs::read_link(file.path()).ok());
        links.filter(|link| !link.to_string_lossy().starts_with("pipe:")).count()
    }

    pub(crate) fn process_id(&self) -> i32 {
        self.process.id()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        host::process::resident_bytes(self.process.id()).unwrap()
    }
}

/// Replaces `HOME` in a text by the path of the directory.
fn expand_home(text: &str, directory: &TempDir) -> String {
    text.replace("HOME", directory.path().to_str().unwrap())
}

/// Strips the scheme of a reported address.
fn without_scheme(address: &str) -> String {
    let address = address.trim_end_matches('/');
    address.split_once("://").map_or(address, |(_, rest)| rest).to_owned()
}

/// Returns a port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
