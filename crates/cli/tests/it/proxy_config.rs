//! Tests of the config of `weir proxy`: the errors in one, the effect of each key, and changes
//! while the proxy runs. `proxy_faults` tests failing peers, `proxy_logs` the logs.

mod actions;
mod balance;
mod check;
mod error_pages;
mod format;
mod life;
mod maps;
mod route_settings;
mod routes;
mod sockets;
mod source;
mod texts;
mod unix;

use crate::support::client::{Client, Response};
use crate::support::proxy_under_test::ProxyUnderTest;

/// Returns the PROXY protocol header of a loopback connection.
pub(crate) fn proxy_header(version: &str, from_port: u16, to_port: u16) -> Vec<u8> {
    if version == "v1" {
        return format!("PROXY TCP4 127.0.0.1 127.0.0.1 {from_port} {to_port}\r\n").into_bytes();
    }
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([127, 0, 0, 1, 127, 0, 0, 1]);
    header.extend(from_port.to_be_bytes());
    header.extend(to_port.to_be_bytes());
    header
}

/// Starts a proxy with one listener, "web", that responds itself.
fn start_proxy(routes: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{routes}"
    ))
}

/// Sends one request with these fields on its own connection.
fn send_request(authority: &str, line: &str, fields: &str) -> Response {
    let host = if fields.to_ascii_lowercase().contains("host:") { "" } else { "Host: test\r\n" };
    let mut client = Client::connect(authority);
    client.send(format!("{line} HTTP/1.1\r\n{host}{fields}\r\n").as_bytes());
    client.read_response().unwrap_or_else(|| panic!("no answer to {line}"))
}

fn body_text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).trim().to_owned()
}
