//! Requests that cross the end of their server's connection. One that the server has not received
//! is sent again, whatever its method; one that it has received never is. The server knows the
//! order: after `shutdown(SHUT_RDWR)` the kernel still delivers the bytes before its FIN, and
//! refuses later ones.

use std::io::{self, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rt::clock::now_ns;

use super::CONFIG_HEAD;
use crate::support::client::{Client, Response};
use crate::support::faulty_origins::{LaxReader, ok_response};
use crate::support::metrics::RETRIES;
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::shared_machine;

/// Maximum number of attempts until both orders occurred often enough.
const ATTEMPTS_MAX: usize = 5_000;
/// Required number of occurrences of each order.
const OCCURRENCES_MIN: usize = 3;

fn start_proxy(origin: &ScriptedServer, more: &str) -> ProxyUnderTest {
    let authority = &origin.authority;
    ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{authority}\"]\noutlier = {{ failures = 0 }}\n{more}\n"
    ))
}

fn post(client: &mut Client, target: &str) -> Response {
    let head = format!("POST {target} HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody");
    client.send(head.as_bytes());
    client.read_response().expect("a response")
}

/// Ends a connection in both directions; returns whether anything had arrived before.
fn shut_down(peer: &mut ScriptPeer) -> bool {
    let _ = peer.stream.shutdown(Shutdown::Both);
    let mut bytes = [0; 1024];
    matches!(peer.stream.read(&mut bytes), Ok(1..))
}

fn busy_wait(time: Duration) {
    let until_ns = now_ns() + time.as_nanos() as u64;
    while now_ns() < until_ns {
        std::hint::spin_loop();
    }
}

/// Starts a server that responds to the first request of each connection. It ends the connection
/// when the number of attempts grows, later by some microseconds each time.
fn racing_server(attempts: &Arc<AtomicUsize>, targets: Sender<String>) -> (ScriptedServer, Receiver<bool>) {
    let (sender, arrivals_seen) = channel();
    let attempts = Arc::clone(attempts);
    let origin = ScriptedServer::start(move |peer| -> io::Result<()> {
        let mut reader = LaxReader::new(peer.stream.try_clone()?);
        let Some(request) = reader.read_message()? else { return Ok(()) };
        let _ = targets.send(request.target().to_owned());
        let before = attempts.load(Ordering::SeqCst);
        peer.send(&ok_response(b"fine"))?;
        let until_ns = now_ns() + EVENT_TIMEOUT.as_nanos() as u64;
        while attempts.load(Ordering::SeqCst) == before {
            if now_ns() > until_ns {
                return Ok(());
            }
            std::thread::yield_now();
        }
        busy_wait(Duration::from_micros(before as u64 * 7 % 200));
        let arrived = shut_down(peer);
        let _ = sender.send(arrived);
        Ok(())
    });
    (origin, arrivals_seen)
}

#[test]
fn a_post_that_crosses_the_end_of_an_idle_connection_is_sent_again_only_if_it_did_not_arrive() {
    let _shared = shared_machine();
    let attempts = Arc::new(AtomicUsize::new(0));
    let (targets, targets_seen) = channel();
    let (origin, arrivals_seen) = racing_server(&attempts, targets);
    let proxy = start_proxy(&origin, "reuse = \"always\"");
    let mut client = proxy.client();
    let mut is_warm = false;
    let (mut arrivals, mut again) = (0, 0.0);
    for number in 0..ATTEMPTS_MAX {
        if !is_warm {
            assert_eq!(post(&mut client, &format!("/warm-{number}")).status, 200);
        }
        attempts.fetch_add(1, Ordering::SeqCst);
        let status = post(&mut client, &format!("/{number}")).status;
        let arrived = arrivals_seen.recv_timeout(EVENT_TIMEOUT).expect("the connection has ended");
        let target = format!("/{number}");
        let target_count = targets_seen.try_iter().filter(|seen_target| *seen_target == target).count();
        let expected = if arrived { (502, 0) } else { (200, 1) };
        assert_eq!((status, target_count), expected, "attempt {number}, arrived: {arrived}");
        is_warm = !arrived;
        arrivals += usize::from(arrived);
        if number % 50 == 49 {
            again = proxy.metrics().sum_known(RETRIES, &[]);
            if arrivals >= OCCURRENCES_MIN && again >= OCCURRENCES_MIN as f64 {
                return;
            }
        }
    }
    panic!("{arrivals} requests arrived and {again} were sent again, of {ATTEMPTS_MAX}");
}

#[test]
fn a_post_that_crosses_the_end_of_a_new_connection_is_sent_again_only_if_it_did_not_arrive() {
    let _shared = shared_machine();
    let (sender, arrivals_seen) = channel();
    let connections = AtomicUsize::new(0);
    // Every other connection ends before it is read.
    let origin = ScriptedServer::start(move |peer| -> io::Result<()> {
        if connections.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            let arrived = shut_down(peer);
            if arrived {
                connections.fetch_add(1, Ordering::SeqCst);
            }
            let _ = sender.send(arrived);
            return Ok(());
        }
        let mut reader = LaxReader::new(peer.stream.try_clone()?);
        while reader.read_message()?.is_some() {
            peer.send(&ok_response(b"fine"))?;
        }
        Ok(())
    });
    let proxy = start_proxy(&origin, "reuse = \"never\"\nretry-budget = { ratio = \"100%\" }");
    let (mut arrivals, mut again) = (0, 0);
    for number in 0..ATTEMPTS_MAX {
        let mut client = proxy.client();
        let status = post(&mut client, &format!("/{number}")).status;
        let arrived = arrivals_seen.recv_timeout(EVENT_TIMEOUT).expect("the connection has ended");
        assert_eq!(status, if arrived { 502 } else { 200 }, "attempt {number}");
        arrivals += usize::from(arrived);
        again += usize::from(!arrived);
        if arrivals.min(again) >= OCCURRENCES_MIN {
            assert_eq!(proxy.metrics().sum_known(RETRIES, &[]), again as f64);
            return;
        }
    }
    panic!("{arrivals} requests arrived and {again} were sent again, of {ATTEMPTS_MAX}");
}
