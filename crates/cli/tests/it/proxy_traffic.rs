//! Tests of `weir proxy` with requests that go to two servers: copies for another pool (`mirror`), and second attempts of
//! late requests (`hedge`). Each server waits for the test with each response, so that no test depends on times.

#![expect(clippy::disallowed_types, reason = "threads of the test share what they have seen")]

mod hedges;
mod mirrors;
mod retries;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::support::faulty_origins::{LaxMessage, LaxReader, ok_response};
use crate::support::hostile_client;
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};

/// First lines of every config here.
const CONFIG_HEAD: &str = "threads = 1\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n\
    [privileges]\nlandlock = false\n\
    [[log]]\nto = \"file:HOME/access.json\"\nformat = \"json\"\n\
    [listener.web]\nbind = \"127.0.0.1:0\"\n";

const HEDGES: &str = "weir_hedges_total";
const MIRRORED: &str = "weir_mirrored_requests_total";
const COMPARISONS: &str = "weir_mirror_comparisons_total";
const DROPPED: &str = "weir_mirrors_dropped_total";
const MIRRORS_IN_FLIGHT: &str = "weir_mirrors_in_flight";

/// Reaction of a server to a request.
enum Reply {
    Send(Vec<u8>),
    Close,
}

/// A server that responds to its requests when the test says so, in the order of the replies.
struct ObedientServer {
    server: ScriptedServer,
    arrivals: Receiver<LaxMessage>,
    replies: Sender<Reply>,
    /// Connections that the proxy ended before a reply.
    ends: Receiver<()>,
}

impl ObedientServer {
    fn start() -> Self {
        let ((arrived, arrivals), (replies, next), (ended, ends)) = (channel(), channel(), channel());
        let next = Arc::new(Mutex::new(next));
        let (arrived, ended) = (Mutex::new(arrived), Mutex::new(ended));
        let server = ScriptedServer::start(move |peer| {
            let mut reader = LaxReader::new(peer.stream.try_clone()?);
            while let Some(request) = reader.read_message()? {
                let _ = arrived.lock().unwrap().send(request);
                match wait_for_reply(peer, &next)? {
                    Some(Reply::Send(bytes)) => peer.send(&bytes)?,
                    Some(Reply::Close) => return Ok(()),
                    None => {
                        let _ = ended.lock().unwrap().send(());
                        return Ok(());
                    }
                }
            }
            Ok(())
        });
        Self { server, arrivals, replies, ends }
    }

    fn authority(&self) -> &str {
        &self.server.authority
    }

    fn next_request(&self) -> LaxMessage {
        self.arrivals.recv_timeout(EVENT_TIMEOUT).expect("a request")
    }

    fn has_no_request(&self) -> bool {
        self.arrivals.try_recv().is_err()
    }

    fn reply(&self, bytes: Vec<u8>) {
        self.replies.send(Reply::Send(bytes)).unwrap();
    }

    fn reply_status(&self, status: u16) {
        self.reply(format!("HTTP/1.1 {status} Status\r\nContent-Length: 2\r\n\r\nhi").into_bytes());
    }

    fn close(&self) {
        self.replies.send(Reply::Close).unwrap();
    }

    /// Waits until the proxy has ended a connection with a request.
    fn wait_for_end(&self) {
        self.ends.recv_timeout(EVENT_TIMEOUT).expect("the end of a connection");
    }
}

/// Returns the next reply; `None`: the proxy has ended the connection first.
fn wait_for_reply(peer: &ScriptPeer, replies: &Mutex<Receiver<Reply>>) -> io::Result<Option<Reply>> {
    let mut byte = [0];
    let socket = peer.stream.try_clone()?;
    socket.set_nonblocking(true)?;
    let reply = loop {
        match replies.lock().unwrap().recv_timeout(Duration::from_millis(2)) {
            Ok(reply) => break Some(reply),
            Err(RecvTimeoutError::Disconnected) => break Some(Reply::Close),
            Err(RecvTimeoutError::Timeout) => {}
        }
        match socket.peek(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(1..) => {}
            Ok(0) | Err(_) => break None,
        }
    };
    socket.set_nonblocking(false)?;
    Ok(reply)
}

/// A proxy that translates to and from HTTP/2, which the tested one then speaks with its peer.
fn http2_adapter(pool: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         forwarding = {{ x-forwarded = false, via = false, request-id = false }}\n[pool.app]\nretries = 0\n{pool}\n"
    ))
}

/// Sends a request and does not wait for its response.
fn send(authority: &str, request: &str) -> TcpStream {
    let mut client = hostile_client::connect(authority);
    client.write_all(request.as_bytes()).unwrap();
    client
}

fn get(authority: &str, target: &str) -> TcpStream {
    send(authority, &format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
}

/// Returns the line of a request in the JSON log.
fn log_line(proxy: &ProxyUnderTest, target: &str) -> Value {
    let lines = proxy.wait_for_lines_with("access.json", &format!("\"target\":\"{target}\""), 1);
    assert_eq!(lines.len(), 1, "one request, one line: {lines:#?}");
    serde_json::from_str(&lines[0]).unwrap()
}

fn read_all(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    bytes
}

fn hello() -> Vec<u8> {
    ok_response(b"hello")
}
