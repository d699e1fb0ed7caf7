//! Bounds and queues: no server ever has more than it may, who goes first, whose time is over, and
//! what becomes of the place of one who left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{ABANDONED, HEAD, Line, WASTED, retry_after, see};
use crate::support::beside_others;
use crate::support::door::Door;
use crate::support::faulty::{answering_each, close_is_a_reset, hang, ok};
use crate::support::metrics::{QUEUED, REQUESTS};
use crate::support::pause_ms;
use crate::support::peers::Scripted;

/// How many requests are at work, and the most that ever were.
#[derive(Debug, Default)]
struct AtWork {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl AtWork {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

#[test]
fn no_server_and_no_pool_ever_has_more_than_it_may() {
    let _shared = beside_others();
    let all = Arc::new(AtWork::default());
    let each = [Arc::new(AtWork::default()), Arc::new(AtWork::default())];
    let servers: Vec<Scripted> = each
        .iter()
        .map(|own| {
            let (own, all) = (Arc::clone(own), Arc::clone(&all));
            answering_each(move |_, _| {
                own.enter();
                all.enter();
                pause_ms(3);
                own.leave();
                all.leave();
                Some(ok(b"done"))
            })
        })
        .collect();
    let door = Door::weir(&format!(
        "threads = 2\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nmaxconn = 4\nqueue = {{ timeout = \"20s\" }}\n\
         servers = [{{ address = \"{}\", maxconn = 3 }}, {{ address = \"{}\", maxconn = 3 }}]\n",
        servers[0].authority, servers[1].authority
    ));
    let clients = (0..24).map(|_| {
        let mut client = door.client();
        std::thread::spawn(move || {
            (0..20).for_each(|_| assert_eq!(client.ask("/").status, 200));
        })
    });
    let clients: Vec<_> = clients.collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(all.most() <= 4, "{all:?}");
    assert!(each.iter().all(|one| one.most() <= 3), "{each:?}");
    let metrics = door.metrics_until("each request ended once", |metrics| {
        metrics.known(REQUESTS, &[("end", "done")]) == 480.0
    });
    assert_eq!(metrics.known(QUEUED, &[]), 0.0);
}

const ROUTES: &str = "[[route]]\npath-prefix = \"/high\"\npriority = \"high\"\npool = \"app\"\n\
                      [[route]]\npath-prefix = \"/low\"\npriority = \"low\"\npool = \"app\"";

/// Else it would depend on the machine whether the queue stands.
const OLDEST_FIRST: &str = "queue = { timeout = \"20s\", order = \"oldest-first\" }";

#[test]
fn the_urgent_go_first() {
    let _shared = beside_others();
    let line = Line::start("", ROUTES, OLDEST_FIRST);
    let mut clients = vec![line.occupy()];
    for (number, target) in ["/low/1", "/normal/1", "/high/1", "/high/2"].iter().enumerate() {
        clients.push(line.send(target));
        line.wait_for_queued(number + 1);
    }
    line.assert_order(&mut clients, &["/high/1", "/high/2", "/normal/1", "/low/1"]);
}

#[test]
fn the_least_urgent_is_put_out_when_the_queue_is_full() {
    let _shared = beside_others();
    let queue = "queue = { limit = 2, timeout = \"20s\", order = \"oldest-first\" }";
    let line = Line::start("", ROUTES, queue);
    let mut clients = vec![line.occupy(), line.send("/low/1")];
    line.wait_for_queued(1);
    let mut shed = line.send("/low/2");
    line.wait_for_queued(2);
    clients.push(line.send("/high/1"));
    let seen = see(&mut shed);
    assert_eq!(seen.status, Some(503));
    retry_after(&seen);
    assert_eq!(line.end_of("/low/2"), "queue_shed");
    assert_eq!(super::super::proxy_faults::line_about(&line.door, "/low/2").code, "PQ");
    // Nobody there is less urgent.
    let seen = see(&mut line.send("/low/3"));
    assert_eq!(seen.status, Some(503));
    assert_eq!(line.end_of("/low/3"), "queue_full");
    line.assert_order(&mut clients, &["/high/1", "/low/1"]);
}

#[test]
fn the_newest_is_first_where_that_is_asked_for() {
    let _shared = beside_others();
    let line = Line::start("", "", "queue = { timeout = \"20s\", order = \"newest-first\" }");
    let mut clients = vec![line.occupy()];
    for number in 1..=3 {
        clients.push(line.send(&format!("/{number}")));
        line.wait_for_queued(number);
    }
    line.assert_order(&mut clients, &["/3", "/2", "/1"]);
}

#[test]
fn a_queue_that_stands_serves_the_newest_first() {
    let _shared = beside_others();
    let line = Line::start("", "", "queue = { timeout = \"20s\", stands-after = \"100ms\" }");
    let mut clients = vec![line.occupy()];
    for number in 1..=3 {
        clients.push(line.send(&format!("/{number}")));
        line.wait_for_queued(number);
    }
    // From here on it has stood, however slow all this was.
    pause_ms(300);
    line.assert_order(&mut clients, &["/3", "/2", "/1"]);
}

#[test]
fn a_deadline_of_a_trusted_peer_is_held() {
    let _shared = beside_others();
    let listener = "trusted = [\"127.0.0.1\"]";
    let line = Line::start(listener, "", "queue = { timeout = \"20s\" }");
    let mut first = line.occupy();
    let fields = [
        ("/plain", "X-Request-Timeout: 0.2\r\n"),
        ("/unit", "x-request-timeout: 200ms\r\n"),
        ("/grpc", "grpc-timeout: 200m\r\n"),
        ("/none-left", "X-Request-Timeout: 0\r\n"),
    ];
    for (target, field) in fields {
        let seen = see(&mut line.send_with(target, field));
        assert_eq!(seen.status, Some(504), "{target}: {}", seen.head);
        assert_eq!(line.end_of(target), "deadline_missed");
        assert_eq!(super::super::proxy_faults::line_about(&line.door, target).code, "sQ");
    }
    // What says nothing that can be understood waits like any other.
    let mut clients = vec![line.send_with("/odd", "X-Request-Timeout: soon\r\n")];
    line.wait_for_queued(1);
    line.assert_order(&mut clients, &["/odd"]);
    assert_eq!(see(&mut first).status, Some(200));
}

#[test]
fn a_deadline_of_anybody_else_is_not() {
    let _shared = beside_others();
    let line = Line::start("trusted = [\"10.0.0.0/8\"]", "", "queue = { timeout = \"20s\" }");
    let mut clients = vec![line.occupy(), line.send_with("/told", "X-Request-Timeout: 0\r\n")];
    line.wait_for_queued(1);
    line.assert_order(&mut clients, &["/told"]);
}

#[test]
fn a_deadline_may_stand_in_another_field() {
    let _shared = beside_others();
    let listener = "trusted = [\"127.0.0.1\"]\ndeadline-headers = [\"x-deadline\"]";
    let line = Line::start(listener, "", "queue = { timeout = \"20s\" }");
    let mut clients = vec![line.occupy()];
    assert_eq!(see(&mut line.send_with("/own", "X-Deadline: 50ms\r\n")).status, Some(504));
    clients.push(line.send_with("/other", "X-Request-Timeout: 0\r\n"));
    line.wait_for_queued(1);
    line.assert_order(&mut clients, &["/other"]);
}

#[test]
fn the_place_of_one_who_left_is_kept_until_the_server_has_finished() {
    let _shared = beside_others();
    let line = Line::start("", "", "queue = { timeout = \"20s\" }");
    let first = line.occupy();
    close_is_a_reset(&first);
    drop(first);
    line.door.metrics_until("it is abandoned", |metrics| {
        metrics.known(ABANDONED, &[("pool", "app")]) == 1.0
    });
    assert_eq!(line.end_of("GET"), "client_gone");
    let mut next = line.send("/next");
    line.wait_for_queued(1);
    assert!(line.gated.arrived.try_recv().is_err(), "two at a time, and maxconn is 1");
    line.gated.let_one_through();
    assert_eq!(line.gated.next(), "/next");
    line.gated.let_one_through();
    assert_eq!(see(&mut next).status, Some(200));
    assert_eq!(line.door.metrics().known(WASTED, &[("pool", "app")]), 1.0);
}

#[test]
fn the_place_of_one_who_left_is_kept_for_so_long_at_most() {
    let _shared = beside_others();
    let pool = "queue = { timeout = \"20s\" }\ntimeouts = { abandoned = \"200ms\" }";
    let line = Line::start("", "", pool);
    let first = line.occupy();
    close_is_a_reset(&first);
    drop(first);
    let mut next = line.send("/next");
    assert_eq!(line.gated.next(), "/next");
    line.gated.let_one_through();
    line.gated.let_one_through();
    assert_eq!(see(&mut next).status, Some(200));
}

#[test]
fn a_server_that_notices_gives_the_place_back_at_once() {
    let _shared = beside_others();
    let arrived = Arc::new(AtomicUsize::new(0));
    let server = {
        let arrived = Arc::clone(&arrived);
        // It works until its client leaves.
        answering_each(move |request, peer| {
            arrived.fetch_add(1, Ordering::SeqCst);
            if request.target() == "/hangs" {
                hang(peer);
                return None;
            }
            Some(ok(b"done"))
        })
    };
    let door = Door::weir(&format!(
        "threads = 1\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [{{ address = \"{}\", maxconn = 1 }}]\nqueue = {{ timeout = \"20s\" }}\n\
         timeouts = {{ abandoned = \"60s\" }}\n",
        server.authority
    ));
    let mut first = door.client();
    first.send(b"GET /hangs HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(crate::support::within(crate::support::door::PATIENCE, || {
        arrived.load(Ordering::SeqCst) == 1
    }));
    close_is_a_reset(&first.stream);
    drop(first);
    assert_eq!(door.get("/next").status, 200);
    let metrics = door.metrics();
    assert_eq!(metrics.known(ABANDONED, &[]), 1.0);
    assert_eq!(metrics.known(WASTED, &[]), 0.0);
}

#[test]
fn a_bound_that_follows_its_server_is_told() {
    let _shared = beside_others();
    let server = answering_each(|_, _| Some(ok(b"done")));
    let door = Door::weir(&format!(
        "threads = 2\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nadaptive = {{ min = 2, max = 6 }}\nservers = [\"{}\"]\n",
        server.authority
    ));
    assert_eq!(door.get("/").status, 200);
    let bound = door.metrics().known("weir_server_bound_requests", &[("pool", "app")]);
    assert!((2.0..=6.0).contains(&bound), "{bound}");
}
