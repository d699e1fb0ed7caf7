//! Authentication of routes: passwords, tokens, requests to another service; and requests of other origins.

mod basic;
mod cors;
mod jwt;
mod request;
mod tokens;

use std::io;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::client::{Client, Response};
use crate::support::faulty_origins::field;
use crate::support::metrics::Metrics;
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;

/// Authentications; labels `kind` and `result`.
const AUTH: &str = "weir_auth_total";

/// `secret` (bcrypt, cost 4), and a user whose password is `password` (argon2id, 256 KiB).
const USERS: &str = "ann:$2b$04$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W\n\
    arg:$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4\n";

/// Responds with the head of the request, in lower case.
fn echo(peer: &mut ScriptPeer) -> io::Result<()> {
    while let Some(head) = peer.request()? {
        let length = field(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        peer.skip_content(length)?;
        let body = head.to_ascii_lowercase();
        let fields = "Access-Control-Allow-Origin: https://server.example\r\nX-Server: 1";
        peer.send(
            format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes(),
        )?;
    }
    Ok(())
}

/// A proxy in front of a server that echoes heads. `HOME` in `config` stands for its directory, with the files.
fn start(config: &str, files: &[(&str, &str)]) -> (ProxyUnderTest, ScriptedServer) {
    let origin = ScriptedServer::start(echo);
    let directory = crate::support::temp_dir();
    for (name, content) in files {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let config = config.replace("FILES", directory.keep().to_str().unwrap());
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n{config}\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    (proxy, origin)
}

/// Sends a request with these fields on a connection of its own.
fn request(proxy: &ProxyUnderTest, line: &str, fields: &str) -> Response {
    let mut client = Client::connect(proxy.authority());
    client.send(format!("{line} HTTP/1.1\r\nHost: test\r\n{fields}\r\n").as_bytes());
    client.read_response().unwrap_or_else(|| panic!("no response to {line} {fields}"))
}

fn get(proxy: &ProxyUnderTest, target: &str, fields: &str) -> Response {
    request(proxy, &format!("GET {target}"), fields)
}

/// Returns the fields of a user and a password.
fn basic_field(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

fn count(metrics: &Metrics, kind: &str, result: &str) -> f64 {
    metrics.sum_known(AUTH, &[("kind", kind), ("result", result)])
}

/// Returns the output of `weir proxy --explain` for a request, or the errors of the config.
fn check(config: &str, files: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String) {
    let directory = crate::support::temp_dir();
    for (name, content) in files {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let path = directory.path().join("weir.toml");
    std::fs::write(&path, config.replace("FILES", directory.path().to_str().unwrap())).unwrap();
    let mut command = Command::new(crate::support::WEIR);
    command.args(["proxy", "--config"]).arg(&path).args(arguments);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}
