//! Tests of operating a running proxy: the control socket with `weir ctl` and without, every
//! command while requests flow. `proxy_config` tests the keys of a config.

mod kept;
mod maintenance;
mod maps;
mod profile;
mod reloads;
mod servers;
mod sessions;
mod sockets;
mod splits;
mod truth;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::support::faulty_origins::GatedServer;
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::{RunOutput, run_weir};

/// First lines of a config with a control socket and one listener.
const CONFIG_HEAD: &str = "threads = 2\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n\
                   [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n";

/// Formats a config with the servers `a`, `b` and so on.
fn config(servers: &[&str]) -> String {
    let server = |(index, address): (usize, &&str)| {
        let name = char::from(b'a' + index as u8);
        format!("{{ name = \"{name}\", address = \"{address}\" }}")
    };
    let servers: Vec<String> = servers.iter().enumerate().map(server).collect();
    format!("{CONFIG_HEAD}[pool.app]\nservers = [{}]\n", servers.join(", "))
}

/// Starts a proxy in front of these servers.
fn start_proxy(servers: &[&ScriptedServer]) -> ProxyUnderTest {
    let addresses: Vec<&str> = servers.iter().map(|server| server.authority.as_str()).collect();
    ProxyUnderTest::weir(&config(&addresses))
}

/// Starts a proxy in front of one server with a gate.
fn start_gated() -> (ProxyUnderTest, GatedServer) {
    let gated = GatedServer::start();
    (start_proxy(&[&gated.server]), gated)
}

/// Runs `weir ctl` with these words, separated by blanks.
fn run_ctl(proxy: &ProxyUnderTest, words: &str) -> RunOutput {
    let socket = proxy.file("weir.sock");
    let mut arguments = vec!["ctl", "--socket", socket.to_str().unwrap()];
    arguments.extend(words.split(' '));
    run_weir(&arguments)
}

/// Runs [`ctl`] with a command that must succeed; returns its output.
fn ctl_output(proxy: &ProxyUnderTest, words: &str) -> String {
    let output = run_ctl(proxy, words);
    assert_eq!(output.code, 0, "{words}: {} {}", output.stdout, output.stderr);
    output.stdout
}

/// Returns a table in JSON.
fn ctl_json(proxy: &ProxyUnderTest, words: &str) -> Value {
    let text = ctl_output(proxy, &format!("{words} --json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words}: {error}: {text}"))
}

/// Returns the row of a server.
fn server_row(proxy: &ProxyUnderTest, name: &str) -> Value {
    find_row(&ctl_json(proxy, "show servers")["servers"], "server", name)
}

fn find_row(rows: &Value, column: &str, name: &str) -> Value {
    let matched = rows.as_array().unwrap().iter().find(|row| row[column] == name);
    matched.unwrap_or_else(|| panic!("no {name}: {rows:#}")).clone()
}

/// Returns the response of the socket to these bytes, without `weir ctl`.
fn raw_exchange(proxy: &ProxyUnderTest, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(proxy.file("weir.sock")).unwrap();
    stream.set_read_timeout(Some(2 * EVENT_TIMEOUT)).unwrap();
    // The proxy may have closed in the middle of an unwanted command.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8(response).unwrap()
}
