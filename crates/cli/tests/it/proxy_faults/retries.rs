//! Connections to servers that die while they are idle: a request that may be sent again is, once,
//! and one that may have had an effect never is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{HEAD, end_of, line_about};
use crate::support::beside_others;
use crate::support::client::{Answer, Client};
use crate::support::door::Door;
use crate::support::faulty::{Reader, close_is_a_reset, ok};
use crate::support::metrics::{RETRIES, SERVER_REQUESTS};
use crate::support::peers::{Peer, Scripted};

/// What a server saw of requests.
#[derive(Debug, Default)]
struct Counts {
    gets: AtomicUsize,
    posts: AtomicUsize,
}

impl Counts {
    fn note(&self, method: &str) {
        let count = if method == "POST" { &self.posts } else { &self.gets };
        count.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> (usize, usize) {
        (self.gets.load(Ordering::SeqCst), self.posts.load(Ordering::SeqCst))
    }
}

/// How a connection ends when its second request arrives.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// Closed, the request read.
    Close,
    /// Reset, the request read.
    Reset,
    /// Closed on its first byte, the rest unread, which makes it a reset.
    CloseOnFirstByte,
}

/// A server that answers the first request of each connection, and at the second does this.
fn dying(death: Death, counts: &Arc<Counts>) -> Scripted {
    let counts = Arc::clone(counts);
    Scripted::start(move |peer: &mut Peer| -> io::Result<()> {
        let mut reader = Reader::new(peer.stream.try_clone()?);
        let Some(request) = reader.message()? else { return Ok(()) };
        counts.note(request.method());
        peer.send(&ok(b"first"))?;
        if matches!(death, Death::CloseOnFirstByte) {
            let mut first = [0];
            if peer.stream.peek(&mut first)? > 0 {
                counts.note(if first[0] == b'P' { "POST" } else { "GET" });
            }
            return Ok(());
        }
        if let Some(request) = reader.message()? {
            counts.note(request.method());
            let whole = request.method() != "POST" || request.body == b"body";
            assert!(whole, "the body of a POST is passed on");
            if matches!(death, Death::Reset) {
                close_is_a_reset(&peer.stream);
            }
        }
        Ok(())
    })
}

fn door(origin: &Scripted, more: &str) -> Door {
    let authority = &origin.authority;
    Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{authority}\"]\nreuse = \"always\"\n{more}\n"
    ))
}

fn post(client: &mut Client, target: &str) -> Answer {
    let head = format!("POST {target} HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody");
    client.send(head.as_bytes());
    client.answer().expect("an answer")
}

const DEATHS: [Death; 3] = [Death::Close, Death::Reset, Death::CloseOnFirstByte];

#[test]
fn a_get_on_a_connection_that_dies_is_sent_again_once_and_succeeds() {
    let _shared = beside_others();
    for death in DEATHS {
        let counts = Arc::new(Counts::default());
        let origin = dying(death, &counts);
        let door = door(&origin, "");
        let mut client = door.client();
        assert_eq!(client.ask("/first").body, b"first");
        let answer = client.ask("/second");
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"first"[..]), "{death:?}");
        assert_eq!(counts.get(), (3, 0), "{death:?}: one for /first, two for /second");
        assert_eq!(origin.connections(), 2);
        let metrics = door.metrics();
        assert_eq!(metrics.known(RETRIES, &[]), 1.0);
        // What is counted is the connection that it was answered on.
        assert_eq!(metrics.known(SERVER_REQUESTS, &[("connection", "new")]), 2.0, "{metrics}");
        assert_eq!(metrics.known(SERVER_REQUESTS, &[("connection", "reused")]), 0.0, "{metrics}");
        assert_eq!(end_of(&door, "/second"), "done");
        assert_eq!(line_about(&door, "/second").code, "--");
    }
}

#[test]
fn a_post_on_a_connection_that_dies_is_never_sent_twice() {
    let _shared = beside_others();
    for death in DEATHS {
        let counts = Arc::new(Counts::default());
        let origin = dying(death, &counts);
        let door = door(&origin, "");
        let mut client = door.client();
        assert_eq!(client.ask("/first").status, 200);
        let status = post(&mut client, "/second").status;
        let (_, posts) = counts.get();
        assert!(posts <= 1, "{death:?}: it came {posts} times");
        // One that was sent at all, and not answered, is told as it is.
        assert_eq!((status, posts), (502, 1), "{death:?}");
        assert_eq!(line_about(&door, "/second").code, "SH");
        // The client's connection goes on.
        assert_eq!(door.get("/third").status, 200);
    }
}

#[test]
fn without_retries_a_get_is_not_sent_again() {
    let _shared = beside_others();
    let counts = Arc::new(Counts::default());
    let origin = dying(Death::Close, &counts);
    let door = door(&origin, "retries = 0");
    let mut client = door.client();
    assert_eq!(client.ask("/first").status, 200);
    assert_eq!(client.ask("/second").status, 502);
    assert_eq!(counts.get(), (2, 0));
}

#[test]
fn a_server_that_always_dies_is_asked_a_bounded_number_of_times() {
    let _shared = beside_others();
    let asked = Arc::new(AtomicUsize::new(0));
    let origin = Scripted::start({
        let asked = Arc::clone(&asked);
        move |peer| {
            if peer.request()?.is_some() {
                asked.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        }
    });
    let door = door(&origin, "retries = 1");
    assert_eq!(door.get("/first").status, 502);
    assert!((1..=2).contains(&asked.load(Ordering::SeqCst)));
}

#[test]
fn a_connection_that_was_closed_while_idle_is_not_used() {
    let _shared = beside_others();
    let counts = Arc::new(Counts::default());
    let closed = Arc::new(AtomicUsize::new(0));
    let origin = Scripted::start({
        let (counts, closed) = (Arc::clone(&counts), Arc::clone(&closed));
        move |peer| {
            let mut reader = Reader::new(peer.stream.try_clone()?);
            if let Some(request) = reader.message()? {
                counts.note(request.method());
                peer.send(&ok(b"first"))?;
            }
            peer.stream.shutdown(std::net::Shutdown::Write)?;
            // The proxy has seen it once it closes too.
            let _ = reader.until(b"never");
            closed.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let door = door(&origin, "");
    let mut client = door.client();
    for number in 0..20 {
        assert_eq!(post(&mut client, &format!("/{number}")).status, 200);
        let gone = || closed.load(Ordering::SeqCst) == number + 1;
        let gone = crate::support::within(crate::support::PATIENCE, gone);
        assert!(gone, "an idle connection that the server ended is kept");
    }
    assert_eq!(counts.get(), (0, 20));
    assert_eq!(door.metrics().known(RETRIES, &[]), 0.0);
}
