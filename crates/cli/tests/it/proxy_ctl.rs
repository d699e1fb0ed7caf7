//! Operating a running proxy: the control socket with `weir ctl` and without, every command while
//! requests flow. Not for what a config's keys do (`proxy_config`).

mod profile;
mod reloads;
mod servers;
mod sessions;
mod sockets;
mod truth;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::support::door::{Door, PATIENCE};
use crate::support::faulty::Gated;
use crate::support::peers::Scripted;
use crate::support::{Output, weir};

/// The top of a config with a control socket and one listener.
const TOP: &str = "threads = 2\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n\
                   [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n";

/// A config with the servers `a`, `b` and so on.
fn config(servers: &[&str]) -> String {
    let server = |(index, address): (usize, &&str)| {
        let name = char::from(b'a' + index as u8);
        format!("{{ name = \"{name}\", address = \"{address}\" }}")
    };
    let servers: Vec<String> = servers.iter().enumerate().map(server).collect();
    format!("{TOP}[pool.app]\nservers = [{}]\n", servers.join(", "))
}

/// A proxy before these servers.
fn before(servers: &[&Scripted]) -> Door {
    let addresses: Vec<&str> = servers.iter().map(|server| server.authority.as_str()).collect();
    Door::weir(&config(&addresses))
}

/// A proxy before one server with a gate.
fn gated() -> (Door, Gated) {
    let gated = Gated::start();
    (before(&[&gated.server]), gated)
}

/// What `weir ctl` does with these words, separated by blanks.
fn ctl(door: &Door, words: &str) -> Output {
    let socket = door.file("weir.sock");
    let mut arguments = vec!["ctl", "--socket", socket.to_str().unwrap()];
    arguments.extend(words.split(' '));
    weir(&arguments)
}

/// As [`ctl`], of what has to be done; what it says.
fn done(door: &Door, words: &str) -> String {
    let output = ctl(door, words);
    assert_eq!(output.code, 0, "{words}: {} {}", output.stdout, output.stderr);
    output.stdout
}

/// A table in JSON.
fn shown(door: &Door, words: &str) -> Value {
    let text = done(door, &format!("{words} --json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words}: {error}: {text}"))
}

/// The row of a server.
fn server(door: &Door, name: &str) -> Value {
    row(&shown(door, "show servers")["servers"], "server", name)
}

fn row(rows: &Value, column: &str, name: &str) -> Value {
    let found = rows.as_array().unwrap().iter().find(|row| row[column] == name);
    found.unwrap_or_else(|| panic!("no {name}: {rows:#}")).clone()
}

/// What the socket answers to these bytes, without `weir ctl`.
fn raw(door: &Door, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(door.file("weir.sock")).unwrap();
    stream.set_read_timeout(Some(2 * PATIENCE)).unwrap();
    // It may have closed in the middle of what it does not want.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}
