//! `weir proxy` and what its config says: what is wrong with one, what each key of one does, how one
//! is changed while it runs. Not for peers that fail (`proxy_faults`) nor for logs (`proxy_logs`).

mod actions;
mod balance;
mod check;
mod life;
mod routes;
mod sockets;
mod unix;

use crate::support::client::{Answer, Client};
use crate::support::door::Door;

/// The PROXY protocol header of a connection of the loopback.
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

/// A proxy with one listener, "web", that answers itself.
fn door(routes: &str) -> Door {
    Door::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{routes}"
    ))
}

/// One request with these fields on a connection of its own.
fn ask(authority: &str, line: &str, fields: &str) -> Answer {
    let host = if fields.to_ascii_lowercase().contains("host:") { "" } else { "Host: test\r\n" };
    let mut client = Client::connect(authority);
    client.send(format!("{line} HTTP/1.1\r\n{host}{fields}\r\n").as_bytes());
    client.answer().unwrap_or_else(|| panic!("no answer to {line}"))
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).trim().to_owned()
}
