//! `weir proxy` with more than its servers can do: bounds that hold, who goes first and who is put
//! out, and what is said to those who are. Not how much it delivers: that is the bench's to measure.

mod admission;
mod queues;
mod retries;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::support::client::Client;
use crate::support::door::Door;
use crate::support::faulty::Gated;
use crate::support::metrics::QUEUED;
use crate::support::rude::{self, Seen};

/// The start of every config here.
const HEAD: &str = r#"
admin = "127.0.0.1:0"

[privileges]
landlock = false

[[log]]
to = "file:HOME/access.haproxy"
format = "haproxy"

[[log]]
to = "file:HOME/access.json"
format = "json"
"#;

/// Requests that a pool's servers had when their clients left; label `pool`.
const ABANDONED: &str = "weir_abandoned_requests_total";
/// Answers for nobody; label `pool`.
const WASTED: &str = "weir_wasted_responses_total";

/// A proxy before a server with a gate that may have one request at a time.
struct Line {
    door: Door,
    gated: Gated,
}

impl Line {
    /// `listener`, `routes` and `pool` are lines of the config.
    fn start(listener: &str, routes: &str, pool: &str) -> Self {
        let gated = Gated::start();
        let authority = &gated.server.authority;
        let door = Door::weir(&format!(
            "threads = 1\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
             {routes}\n[pool.app]\nservers = [{{ address = \"{authority}\", maxconn = 1 }}]\n{pool}\n"
        ));
        Self { door, gated }
    }

    /// Sends a request with these fields and does not wait for its answer.
    fn send_with(&self, target: &str, fields: &str) -> TcpStream {
        let mut client = rude::connect(self.door.authority());
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{fields}\r\n");
        client.write_all(request.as_bytes()).unwrap();
        client
    }

    fn send(&self, target: &str) -> TcpStream {
        self.send_with(target, "")
    }

    /// Sends one that keeps the server busy.
    fn occupy(&self) -> TcpStream {
        let client = self.send("/0");
        assert_eq!(self.gated.next(), "/0");
        client
    }

    fn wait_for_queued(&self, length: usize) {
        self.door.metrics_until(&format!("{length} are queued"), |metrics| {
            metrics.known(QUEUED, &[("pool", "app")]) == length as f64
        });
    }

    /// Lets all through that there are, and looks in which order they came.
    fn assert_order(&self, clients: &mut [TcpStream], wanted: &[&str]) {
        self.gated.let_one_through();
        for target in wanted {
            assert_eq!(self.gated.next(), *target);
            self.gated.let_one_through();
        }
        for client in clients {
            assert_eq!(see(client).status, Some(200));
        }
    }

    fn end_of(&self, part: &str) -> String {
        end_of(&self.door, part)
    }
}

fn see(stream: &mut TcpStream) -> Seen {
    rude::see(stream)
}

/// The `end` in the JSON log of the request whose line has this in it.
fn end_of(door: &Door, part: &str) -> String {
    let lines = door.wait_for_lines_with("access.json", part, 1);
    assert_eq!(lines.len(), 1, "one request, one line: {lines:#?}");
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    line["end"].as_str().expect("an end").to_owned()
}

fn retry_after(seen: &Seen) -> u64 {
    let after = seen.field("retry-after").expect("Retry-After");
    let seconds = after.parse().expect(&after);
    assert!((1..=30).contains(&seconds), "{seconds}");
    seconds
}

/// A client that comes from this address of the loopback.
fn client_from(last: u8, authority: &str) -> TcpStream {
    let to: SocketAddr = authority.parse().unwrap();
    let one = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&one, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
    connect(&one, &to).unwrap();
    let stream = TcpStream::from(one);
    stream.set_read_timeout(Some(std::time::Duration::from_secs(15))).unwrap();
    stream
}

/// Asks on a connection and reads until it ends.
fn ask_once(mut stream: TcpStream, target: &str) -> Seen {
    let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    // It may have been refused before.
    let _ = stream.write_all(request.as_bytes());
    see(&mut stream)
}

/// A connection that has had an answer and stays.
fn kept(door: &Door) -> Client {
    let mut client = door.client();
    assert_eq!(client.ask("/kept").status, 200);
    client
}
