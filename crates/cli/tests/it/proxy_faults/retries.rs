//! Connections to servers that die while they are idle: a request that may be sent again is, once,
//! and one that may have had an effect never is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{CONFIG_HEAD, end_in_json_log, haproxy_line_for};
use crate::support::client::{Client, Response};
use crate::support::faulty_origins::{LaxReader, ok_response, reset_on_close};
use crate::support::metrics::{RETRIES, SERVER_REQUESTS};
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

/// Numbers of requests that a server received.
#[derive(Debug, Default)]
struct MethodCounts {
    gets: AtomicUsize,
    posts: AtomicUsize,
}

impl MethodCounts {
    fn record(&self, method: &str) {
        let count = if method == "POST" { &self.posts } else { &self.gets };
        count.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> (usize, usize) {
        (self.gets.load(Ordering::SeqCst), self.posts.load(Ordering::SeqCst))
    }
}

/// End of a connection at its second request.
#[derive(Clone, Copy, Debug)]
enum ConnectionEnd {
    /// Closed after the request was read.
    Close,
    /// Reset after the request was read.
    Reset,
    /// Closed at its first byte with the rest unread, which causes a reset.
    CloseOnFirstByte,
}

/// Starts a server that responds to the first request of each connection, and dies at the second.
fn dying_server(death: ConnectionEnd, counts: &Arc<MethodCounts>) -> ScriptedServer {
    let counts = Arc::clone(counts);
    ScriptedServer::start(move |peer: &mut ScriptPeer| -> io::Result<()> {
        let mut reader = LaxReader::new(peer.stream.try_clone()?);
        let Some(request) = reader.read_message()? else { return Ok(()) };
        counts.record(request.method());
        peer.send(&ok_response(b"first"))?;
        if matches!(death, ConnectionEnd::CloseOnFirstByte) {
            let mut first = [0];
            if peer.stream.peek(&mut first)? > 0 {
                counts.record(if first[0] == b'P' { "POST" } else { "GET" });
            }
            return Ok(());
        }
        if let Some(request) = reader.read_message()? {
            counts.record(request.method());
            let is_complete = request.method() != "POST" || request.body == b"body";
            assert!(is_complete, "the body of a POST is passed on");
            if matches!(death, ConnectionEnd::Reset) {
                reset_on_close(&peer.stream);
            }
        }
        Ok(())
    })
}

fn start_proxy(origin: &ScriptedServer, more: &str) -> ProxyUnderTest {
    let authority = &origin.authority;
    ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{authority}\"]\nreuse = \"always\"\n{more}\n"
    ))
}

fn post(client: &mut Client, target: &str) -> Response {
    let head = format!("POST {target} HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody");
    client.send(head.as_bytes());
    client.read_response().expect("a response")
}

const CONNECTION_ENDS: [ConnectionEnd; 3] =
    [ConnectionEnd::Close, ConnectionEnd::Reset, ConnectionEnd::CloseOnFirstByte];

#[test]
fn a_get_on_a_connection_that_dies_is_sent_again_once_and_succeeds() {
    let _shared = shared_machine();
    for death in CONNECTION_ENDS {
        let counts = Arc::new(MethodCounts::default());
        let origin = dying_server(death, &counts);
        let proxy = start_proxy(&origin, "");
        let mut client = proxy.client();
        assert_eq!(client.get("/first").body, b"first");
        let response = client.get("/second");
        assert_eq!((response.status, response.body.as_slice()), (200, &b"first"[..]), "{death:?}");
        assert_eq!(counts.get(), (3, 0), "{death:?}: one for /first, two for /second");
        assert_eq!(origin.connections(), 2);
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum_known(RETRIES, &[]), 1.0);
        // The metric counts the connection that delivered the response.
        assert_eq!(metrics.sum_known(SERVER_REQUESTS, &[("connection", "new")]), 2.0, "{metrics}");
        assert_eq!(metrics.sum_known(SERVER_REQUESTS, &[("connection", "reused")]), 0.0, "{metrics}");
        assert_eq!(end_in_json_log(&proxy, "/second"), "done");
        assert_eq!(haproxy_line_for(&proxy, "/second").code, "--");
    }
}

#[test]
fn a_post_on_a_connection_that_dies_is_never_sent_twice() {
    let _shared = shared_machine();
    for death in CONNECTION_ENDS {
        let counts = Arc::new(MethodCounts::default());
        let origin = dying_server(death, &counts);
        let proxy = start_proxy(&origin, "");
        let mut client = proxy.client();
        assert_eq!(client.get("/first").status, 200);
        let status = post(&mut client, "/second").status;
        let (_, posts) = counts.get();
        assert!(posts <= 1, "{death:?}: it came {posts} times");
        // A request that was sent and got no response is reported as failed.
        assert_eq!((status, posts), (502, 1), "{death:?}");
        assert_eq!(haproxy_line_for(&proxy, "/second").code, "SH");
        // The client's connection stays open.
        assert_eq!(proxy.get("/third").status, 200);
    }
}

#[test]
fn without_retries_a_get_is_not_sent_again() {
    let _shared = shared_machine();
    let counts = Arc::new(MethodCounts::default());
    let origin = dying_server(ConnectionEnd::Close, &counts);
    let proxy = start_proxy(&origin, "retries = 0");
    let mut client = proxy.client();
    assert_eq!(client.get("/first").status, 200);
    assert_eq!(client.get("/second").status, 502);
    assert_eq!(counts.get(), (2, 0));
}

#[test]
fn a_server_that_always_dies_is_asked_a_bounded_number_of_times() {
    let _shared = shared_machine();
    let request_count = Arc::new(AtomicUsize::new(0));
    let origin = ScriptedServer::start({
        let request_count = Arc::clone(&request_count);
        move |peer| {
            if peer.request()?.is_some() {
                request_count.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        }
    });
    let proxy = start_proxy(&origin, "retries = 1");
    assert_eq!(proxy.get("/first").status, 502);
    assert!((1..=2).contains(&request_count.load(Ordering::SeqCst)));
}

#[test]
fn a_connection_that_was_closed_while_idle_is_not_used() {
    let _shared = shared_machine();
    let counts = Arc::new(MethodCounts::default());
    let closed = Arc::new(AtomicUsize::new(0));
    let origin = ScriptedServer::start({
        let (counts, closed) = (Arc::clone(&counts), Arc::clone(&closed));
        move |peer| {
            let mut reader = LaxReader::new(peer.stream.try_clone()?);
            if let Some(request) = reader.read_message()? {
                counts.record(request.method());
                peer.send(&ok_response(b"first"))?;
            }
            peer.stream.shutdown(std::net::Shutdown::Write)?;
            // The proxy has noticed the end once it closes too.
            let _ = reader.read_until(b"never");
            closed.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let proxy = start_proxy(&origin, "");
    let mut client = proxy.client();
    for number in 0..20 {
        assert_eq!(post(&mut client, &format!("/{number}")).status, 200);
        let is_closed = || closed.load(Ordering::SeqCst) == number + 1;
        let closed_in_time = crate::support::within(crate::support::EVENT_TIMEOUT, is_closed);
        assert!(closed_in_time, "an idle connection that the server ended is kept");
    }
    assert_eq!(counts.get(), (0, 20));
    assert_eq!(proxy.metrics().sum_known(RETRIES, &[]), 0.0);
}
