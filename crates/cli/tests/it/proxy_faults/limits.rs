//! Many at once: idle connections, the limits of connections, the queue before a server that is
//! busy. Not for one client's misbehaviour (`clients`).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{HEAD, Held, end_of, line_about};
use crate::support::client::Client;
use crate::support::door::Door;
use crate::support::faulty::{Gated, answering_each, close_is_a_reset, ok};
use crate::support::metrics::{CONNECTIONS_OPEN, QUEUED, REFUSED};
use crate::support::rude::{Crowd, Seen, connect, see};
use crate::support::{PATIENCE, beside_others};

#[test]
fn ten_thousand_idle_connections_hold_up_nobody() {
    let _shared = beside_others();
    rt::limits::raise_descriptor_limit();
    // What other tests of this process hold meanwhile has to fit as well.
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    // And each client of the proxy may have a server, so it takes half as many as it has descriptors.
    let size = hard.map_or(10_000, |hard| (hard / 2).saturating_sub(400).min(10_000));
    let origin = answering_each(|_, _| Some(ok(b"small")));
    let door = Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         timeouts = {{ keep-alive = \"1h\" }}\n\
         [pool.app]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n",
        origin.authority
    ));
    let held = Held::of(&door);
    let before = door.resident_bytes();
    let mut idle: Vec<TcpStream> =
        (0..size).map(|_| TcpStream::connect(door.authority()).unwrap()).collect();
    door.metrics_until("all are accepted", |metrics| {
        metrics.known(CONNECTIONS_OPEN, &[("listener", "web")]) >= size as f64
    });
    let crowd = Crowd::start(door.authority(), "/", 4);
    crowd.wait_for(500);
    let each = (door.resident_bytes() - before) / size;
    assert!(each < 4096, "an idle connection costs {each} bytes");
    // They are alive, the first and the last.
    for at in [0, idle.len() - 1] {
        idle[at].write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!(see(&mut idle[at]).status, Some(200));
    }
    crowd.finish();
    if size < 10_000 {
        eprintln!("{size} connections instead of 10000: descriptors are limited to {hard:?}");
    }
    drop(idle);
    held.wait_for_all_back(&door);
}

/// One more than `limit` connections: the last waits, is not refused, and is served when one ends.
fn assert_the_limit_holds(door: &Door, limit: usize) {
    let mut clients: Vec<Client> = (0..limit).map(|_| door.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("/").status, 200);
    }
    let mut waiting = door.client();
    waiting.send(b"GET /waited HTTP/1.1\r\nHost: t\r\n\r\n");
    waiting.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let early = waiting.stream.read(&mut [0; 1]);
    assert!(early.is_err(), "one over the limit was served, or closed: {early:?}");
    // Those within the limit are served meanwhile.
    assert_eq!(clients[0].ask("/").status, 200);
    clients.pop();
    waiting.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(waiting.answer().expect("an answer").status, 200);
    assert!(door.metrics().known(REFUSED, &[]) >= 1.0);
}

#[test]
fn over_the_limit_of_a_listener_or_of_all_connections_wait_and_are_served() {
    let _shared = beside_others();
    for (global, own) in [("", "connections-max = 8"), ("connections-max = 8", "")] {
        let door = Door::weir(&format!(
            "{global}\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n{own}\n\
             [[route]]\nanswer = {{ status = 200, body = \"here\" }}\n"
        ));
        let held = Held::of(&door);
        assert_the_limit_holds(&door, 8);
        held.wait_for_all_back(&door);
    }
}

#[test]
fn the_last_answer_that_a_connection_may_have_says_close() {
    let _shared = beside_others();
    let door = Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nrequests-max = 3\n\
         [[route]]\nanswer = {{ status = 200, body = \"here\" }}\n"
    ));
    let mut client = door.client();
    for number in 1..=3 {
        let head = client.ask("/").head.to_ascii_lowercase();
        assert_eq!(head.contains("connection: close"), number == 3, "{number}: {head}");
    }
    assert!(client.rest().is_empty());
}

/// A proxy before a server that may have one request at a time.
struct Queue {
    door: Door,
    gated: Gated,
}

impl Queue {
    fn start(queue: &str) -> Self {
        let gated = Gated::start();
        let door = Door::weir(&format!(
            "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [pool.app]\nservers = [{{ address = \"{}\", maxconn = 1 }}]\nqueue = {queue}\n\
             idle-timeout = \"300ms\"\n",
            gated.server.authority
        ));
        Self { door, gated }
    }

    /// Sends a request and does not wait for its answer.
    fn send(&self, target: &str) -> TcpStream {
        let mut client = connect(self.door.authority());
        let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        client
    }

    /// Waits until so many are in the queue.
    fn wait_for_queued(&self, length: usize) {
        self.door.metrics_until(&format!("{length} are queued"), |metrics| {
            metrics.known(QUEUED, &[("pool", "app")]) == length as f64
        });
    }
}

fn assert_refused_for_now(seen: &Seen) {
    assert_eq!(seen.status, Some(503), "{}", seen.head);
    let after = seen.field("retry-after").expect("Retry-After");
    assert!(after.parse::<u64>().is_ok(), "{after}");
}

#[test]
fn a_queue_is_served_in_its_order() {
    let _shared = beside_others();
    let queue = Queue::start("{ limit = 100, timeout = \"100s\", order = \"oldest-first\" }");
    let held = Held::of(&queue.door);
    let mut clients = vec![queue.send("/0")];
    assert_eq!(queue.gated.next(), "/0");
    for number in 1..=9 {
        clients.push(queue.send(&format!("/{number}")));
        queue.wait_for_queued(number);
    }
    assert!(queue.gated.arrived.try_recv().is_err(), "two at a time, and maxconn is 1");
    for (number, client) in clients.iter_mut().enumerate() {
        queue.gated.let_one_through();
        assert_eq!(see(client).status, Some(200));
        if number < 9 {
            assert_eq!(queue.gated.next(), format!("/{}", number + 1));
        }
    }
    // What waited has its time in the second timer.
    let waited = line_about(&queue.door, "GET /9 ").timers;
    assert!(waited[1] > 0, "{waited:?}");
    held.wait_for_all_back(&queue.door);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let _shared = beside_others();
    let queue = Queue::start("{ limit = 2, timeout = \"100s\", order = \"oldest-first\" }");
    let mut clients = vec![queue.send("/0")];
    assert_eq!(queue.gated.next(), "/0");
    clients.extend([queue.send("/1"), queue.send("/2")]);
    queue.wait_for_queued(2);
    assert_refused_for_now(&see(&mut queue.send("/one-too-many")));
    assert_eq!(line_about(&queue.door, "/one-too-many").code, "PQ");
    assert_eq!(end_of(&queue.door, "/one-too-many"), "queue_full");
    for client in &mut clients {
        queue.gated.let_one_through();
        assert_eq!(see(client).status, Some(200));
    }
}

#[test]
fn one_that_waits_too_long_is_refused_and_never_sent() {
    let _shared = beside_others();
    let queue = Queue::start("{ limit = 10, timeout = \"200ms\" }");
    let mut first = queue.send("/0");
    assert_eq!(queue.gated.next(), "/0");
    assert_refused_for_now(&see(&mut queue.send("/too-long")));
    assert_eq!(line_about(&queue.door, "/too-long").code, "sQ");
    assert_eq!(end_of(&queue.door, "/too-long"), "queue_timeout");
    queue.gated.let_one_through();
    assert_eq!(see(&mut first).status, Some(200));
    let mut last = queue.send("/last");
    assert_eq!(queue.gated.next(), "/last", "what was refused is not sent");
    queue.gated.let_one_through();
    assert_eq!(see(&mut last).status, Some(200));
}

#[test]
fn one_that_leaves_the_queue_is_never_sent() {
    let _shared = beside_others();
    let queue = Queue::start("{ limit = 10, timeout = \"100s\" }");
    let held = Held::of(&queue.door);
    let mut first = queue.send("/0");
    assert_eq!(queue.gated.next(), "/0");
    for (number, reset) in [true, false].into_iter().enumerate() {
        let target = format!("/left-{number}");
        let client = queue.send(&target);
        queue.wait_for_queued(1);
        if reset {
            close_is_a_reset(&client);
        }
        // By default the end of sending is taken for leaving, in a queue.
        drop(client);
        queue.wait_for_queued(0);
        assert_eq!(line_about(&queue.door, &target).code, "CQ");
        assert_eq!(end_of(&queue.door, &target), "client_gone");
    }
    let mut last = queue.send("/last");
    queue.wait_for_queued(1);
    queue.gated.let_one_through();
    assert_eq!(see(&mut first).status, Some(200));
    assert_eq!(queue.gated.next(), "/last");
    queue.gated.let_one_through();
    assert_eq!(see(&mut last).status, Some(200));
    held.wait_for_all_back(&queue.door);
}
