//! Tests of `weir proxy` with more requests than its servers can handle: limits that hold,
//! priorities and evictions, and the responses to rejected requests. The benchmarks measure its
//! throughput.

mod admission;
mod queues;
mod retries;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::support::client::Client;
use crate::support::faulty_origins::GatedServer;
use crate::support::hostile_client::{self, ReceivedResponse};
use crate::support::metrics::QUEUED;
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};

/// First lines of every config here.
const CONFIG_HEAD: &str = r#"
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

/// Requests at a pool's servers whose clients left; label `pool`.
const ABANDONED: &str = "weir_abandoned_requests_total";
/// Responses without a client; label `pool`.
const WASTED: &str = "weir_wasted_responses_total";

/// A proxy in front of a server with a gate that may have one request at a time.
struct OverloadSetup {
    proxy: ProxyUnderTest,
    gated: GatedServer,
}

impl OverloadSetup {
    /// Starts it; `listener`, `routes` and `pool` are lines of the config.
    fn start(listener: &str, routes: &str, pool: &str) -> Self {
        let gated = GatedServer::start();
        let authority = &gated.server.authority;
        let proxy = ProxyUnderTest::weir(&format!(
            "threads = 1\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
             {routes}\n[pool.app]\nservers = [{{ address = \"{authority}\", maxconn = 1 }}]\n{pool}\n"
        ));
        Self { proxy, gated }
    }

    /// Sends a request with these fields and does not wait for its response.
    fn send_with(&self, target: &str, fields: &str) -> TcpStream {
        let mut client = hostile_client::connect(self.proxy.authority());
        let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{fields}\r\n");
        client.write_all(request.as_bytes()).unwrap();
        client
    }

    fn send(&self, target: &str) -> TcpStream {
        self.send_with(target, "")
    }

    /// Sends a request that keeps the server busy.
    fn occupy(&self) -> TcpStream {
        let client = self.send("/0");
        assert_eq!(self.gated.next_target(), "/0");
        client
    }

    fn wait_for_queued(&self, length: usize) {
        self.proxy.metrics_until(&format!("{length} are queued"), |metrics| {
            metrics.sum_known(QUEUED, &[("pool", "app")]) == length as f64
        });
    }

    /// Lets all waiting requests through, and checks the order of their arrival.
    fn assert_order(&self, clients: &mut [TcpStream], expected: &[&str]) {
        self.gated.admit_one();
        for target in expected {
            assert_eq!(self.gated.next_target(), *target);
            self.gated.admit_one();
        }
        for client in clients {
            assert_eq!(read_checked(client).status, Some(200));
        }
    }

    fn end_in_json_log(&self, part: &str) -> String {
        end_of(&self.proxy, part)
    }
}

fn read_checked(stream: &mut TcpStream) -> ReceivedResponse {
    hostile_client::read_response(stream)
}

/// Returns the `end` in the JSON log for the request whose line contains `part`.
fn end_of(proxy: &ProxyUnderTest, part: &str) -> String {
    let lines = proxy.wait_for_lines_with("access.json", part, 1);
    assert_eq!(lines.len(), 1, "one request, one line: {lines:#?}");
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    line["end"].as_str().expect("an end").to_owned()
}

fn retry_after(response: &ReceivedResponse) -> u64 {
    let after = response.field("retry-after").expect("Retry-After");
    let seconds = after.parse().expect(&after);
    assert!((1..=30).contains(&seconds), "{seconds}");
    seconds
}

/// Returns a client connection from this address of the loopback.
fn client_from(last: u8, authority: &str) -> TcpStream {
    let to: SocketAddr = authority.parse().unwrap();
    let client_socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&client_socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
    connect(&client_socket, &to).unwrap();
    let stream = TcpStream::from(client_socket);
    stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    stream
}

/// Sends a request on a connection and reads until it ends.
fn ask_once(mut stream: TcpStream, target: &str) -> ReceivedResponse {
    let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    // The connection may have been rejected before.
    let _ = stream.write_all(request.as_bytes());
    read_checked(&mut stream)
}

/// Returns a connection that has received a response and stays open.
fn open_connection(proxy: &ProxyUnderTest) -> Client {
    let mut client = proxy.client();
    assert_eq!(client.get("/kept").status, 200);
    client
}
