//! Tests of `weir proxy` with servers that speak HTTP/2: a scripted one in Python (the library h2),
//! nginx and nghttpd.

mod connections;
mod crossing;
mod early_ends;
mod failures;
mod negotiation;
mod requests;
mod tunnels;

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::{Process, within};

/// A server that follows the path of each request; see the script.
const SERVER: &str = include_str!("proxy_h2_servers/server.py");

/// A running [`SERVER`].
#[derive(Debug)]
struct H2Server {
    process: Process,
    authority: String,
    output: BufReader<ChildStdout>,
}

impl H2Server {
    /// Starts one with these arguments; `None`, with a message, where the library h2 is missing.
    fn start(arguments: &[&str]) -> Option<Self> {
        if !is_installed("python3", &["-c", "import h2"]) {
            return None;
        }
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let process = Process::from(child);
        let mut port = String::new();
        output.read_line(&mut port).unwrap();
        Some(Self { process, authority: format!("127.0.0.1:{}", port.trim()), output })
    }

    /// Returns the server's counters.
    fn stats(&mut self) -> Value {
        self.process.stdin().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns one of the server's counters.
    fn count(&mut self, name: &str) -> u64 {
        self.stats()[name].as_u64().unwrap_or(0)
    }

    /// Waits until one of the server's counters has this value.
    fn wait_for_count(&mut self, name: &str, value: u64) {
        let is_reached = within(EVENT_TIMEOUT, || self.count(name) == value);
        assert!(is_reached, "{name} {value}: {}", self.stats());
    }
}

/// Starts a proxy of one thread whose pool has these servers, with HTTP/2; `pool` are further lines.
fn start_proxy(servers: &[&str], pool: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&config(servers, pool))
}

fn config(servers: &[&str], pool: &str) -> String {
    config_with_listener("", servers, &format!("http = \"2\"\n{pool}"))
}

fn config_with_listener(listener: &str, servers: &[&str], pool: &str) -> String {
    format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[[log]]\nto = \"file:HOME/access.json\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
         [pool.app]\nservers = {servers:?}\n{pool}\n"
    )
}

/// Returns the end codes of the requests for these targets, in their order.
fn ends_of(proxy: &ProxyUnderTest, targets: &[&str]) -> Vec<String> {
    let end_of = |target: &&str| {
        let line = proxy.wait_for_lines_with("access.json", &format!("\"target\":\"{target}\""), 1).remove(0);
        let line: Value = serde_json::from_str(&line).unwrap();
        line["end"].as_str().unwrap().to_owned()
    };
    targets.iter().map(end_of).collect()
}
