//! Limits and queues: no server ever exceeds its limit; the order of requests, expired requests,
//! and the slot of a client that left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{ABANDONED, CONFIG_HEAD, OverloadSetup, WASTED, read_checked, retry_after};
use crate::support::faulty_origins::{ok_response, reset_on_close, respond_to_each, wait_for_close};
use crate::support::metrics::{QUEUED, REQUESTS};
use crate::support::pause_ms;
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

/// Number of requests in service, now and at the maximum.
#[derive(Debug, Default)]
struct ConcurrencyCounter {
    now: AtomicUsize,
    max: AtomicUsize,
}

impl ConcurrencyCounter {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.max.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn max(&self) -> usize {
        self.max.load(Ordering::SeqCst)
    }
}

#[test]
fn no_server_and_no_pool_ever_has_more_than_it_may() {
    let _shared = shared_machine();
    let all = Arc::new(ConcurrencyCounter::default());
    let each = [Arc::new(ConcurrencyCounter::default()), Arc::new(ConcurrencyCounter::default())];
    let servers: Vec<ScriptedServer> = each
        .iter()
        .map(|own| {
            let (own, all) = (Arc::clone(own), Arc::clone(&all));
            respond_to_each(move |_, _| {
                own.enter();
                all.enter();
                pause_ms(3);
                own.leave();
                all.leave();
                Some(ok_response(b"done"))
            })
        })
        .collect();
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 2\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nmaxconn = 4\nqueue = {{ timeout = \"100s\" }}\n\
         servers = [{{ address = \"{}\", maxconn = 3 }}, {{ address = \"{}\", maxconn = 3 }}]\n",
        servers[0].authority, servers[1].authority
    ));
    let clients = (0..24).map(|_| {
        let mut client = proxy.client();
        std::thread::spawn(move || {
            (0..20).for_each(|_| assert_eq!(client.get("/").status, 200));
        })
    });
    let clients: Vec<_> = clients.collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(all.max() <= 4, "{all:?}");
    assert!(each.iter().all(|counter| counter.max() <= 3), "{each:?}");
    let metrics = proxy.metrics_until("each request ended once", |metrics| {
        metrics.sum_known(REQUESTS, &[("end", "done")]) == 480.0
    });
    assert_eq!(metrics.sum_known(QUEUED, &[]), 0.0);
}

const ROUTES: &str = "[[route]]\npath-prefix = \"/high\"\npriority = \"high\"\npool = \"app\"\n\
                      [[route]]\npath-prefix = \"/low\"\npriority = \"low\"\npool = \"app\"";

/// Queue with a fixed order; by default, the speed of the machine would decide whether the queue
/// stands.
const OLDEST_FIRST: &str = "queue = { timeout = \"100s\", order = \"oldest-first\" }";

#[test]
fn the_urgent_go_first() {
    let _shared = shared_machine();
    let setup = OverloadSetup::start("", ROUTES, OLDEST_FIRST);
    let mut clients = vec![setup.occupy()];
    for (number, target) in ["/low/1", "/normal/1", "/high/1", "/high/2"].iter().enumerate() {
        clients.push(setup.send(target));
        setup.wait_for_queued(number + 1);
    }
    setup.assert_order(&mut clients, &["/high/1", "/high/2", "/normal/1", "/low/1"]);
}

#[test]
fn the_lowest_priority_is_evicted_when_the_queue_is_full() {
    let _shared = shared_machine();
    let queue = "queue = { limit = 2, timeout = \"100s\", order = \"oldest-first\" }";
    let setup = OverloadSetup::start("", ROUTES, queue);
    let mut clients = vec![setup.occupy(), setup.send("/low/1")];
    setup.wait_for_queued(1);
    let mut shed = setup.send("/low/2");
    setup.wait_for_queued(2);
    clients.push(setup.send("/high/1"));
    let response = read_checked(&mut shed);
    assert_eq!(response.status, Some(503));
    retry_after(&response);
    assert_eq!(setup.end_in_json_log("/low/2"), "queue_shed");
    assert_eq!(super::super::proxy_faults::haproxy_line_for(&setup.proxy, "/low/2").code, "PQ");
    // No waiting request has a lower priority.
    let response = read_checked(&mut setup.send("/low/3"));
    assert_eq!(response.status, Some(503));
    assert_eq!(setup.end_in_json_log("/low/3"), "queue_full");
    setup.assert_order(&mut clients, &["/high/1", "/low/1"]);
}

#[test]
fn the_newest_is_first_where_that_is_asked_for() {
    let _shared = shared_machine();
    let setup = OverloadSetup::start("", "", "queue = { timeout = \"20s\", order = \"newest-first\" }");
    let mut clients = vec![setup.occupy()];
    for number in 1..=3 {
        clients.push(setup.send(&format!("/{number}")));
        setup.wait_for_queued(number);
    }
    setup.assert_order(&mut clients, &["/3", "/2", "/1"]);
}

#[test]
fn a_queue_that_stands_serves_the_newest_first() {
    let _shared = shared_machine();
    let setup = OverloadSetup::start("", "", "queue = { timeout = \"20s\", standing-after = \"100ms\" }");
    let mut clients = vec![setup.occupy()];
    for number in 1..=3 {
        clients.push(setup.send(&format!("/{number}")));
        setup.wait_for_queued(number);
    }
    // From here on the queue has stood, however slow the test was.
    pause_ms(300);
    setup.assert_order(&mut clients, &["/3", "/2", "/1"]);
}

#[test]
fn a_deadline_of_a_trusted_peer_is_held() {
    let _shared = shared_machine();
    let listener = "trusted = [\"127.0.0.1\"]";
    let setup = OverloadSetup::start(listener, "", "queue = { timeout = \"20s\" }");
    let mut first = setup.occupy();
    let fields = [
        ("/plain", "X-Request-Timeout: 0.2\r\n"),
        ("/unit", "x-request-timeout: 200ms\r\n"),
        ("/grpc", "grpc-timeout: 200m\r\n"),
        ("/none-left", "X-Request-Timeout: 0\r\n"),
    ];
    for (target, field) in fields {
        let response = read_checked(&mut setup.send_with(target, field));
        assert_eq!(response.status, Some(504), "{target}: {}", response.head);
        assert_eq!(setup.end_in_json_log(target), "deadline_exceeded");
        assert_eq!(super::super::proxy_faults::haproxy_line_for(&setup.proxy, target).code, "sQ");
    }
    // A header without a valid value leaves the request in the queue like any other.
    let mut clients = vec![setup.send_with("/odd", "X-Request-Timeout: soon\r\n")];
    setup.wait_for_queued(1);
    setup.assert_order(&mut clients, &["/odd"]);
    assert_eq!(read_checked(&mut first).status, Some(200));
}

#[test]
fn a_deadline_of_anybody_else_is_not() {
    let _shared = shared_machine();
    let setup = OverloadSetup::start("trusted = [\"10.0.0.0/8\"]", "", "queue = { timeout = \"20s\" }");
    let mut clients = vec![setup.occupy(), setup.send_with("/with-deadline", "X-Request-Timeout: 0\r\n")];
    setup.wait_for_queued(1);
    setup.assert_order(&mut clients, &["/with-deadline"]);
}

#[test]
fn a_deadline_may_stand_in_another_field() {
    let _shared = shared_machine();
    let listener = "trusted = [\"127.0.0.1\"]\ndeadline-headers = [\"x-deadline\"]";
    let setup = OverloadSetup::start(listener, "", "queue = { timeout = \"20s\" }");
    let mut clients = vec![setup.occupy()];
    assert_eq!(read_checked(&mut setup.send_with("/own", "X-Deadline: 50ms\r\n")).status, Some(504));
    clients.push(setup.send_with("/other", "X-Request-Timeout: 0\r\n"));
    setup.wait_for_queued(1);
    setup.assert_order(&mut clients, &["/other"]);
}

#[test]
fn the_slot_of_a_client_that_left_is_kept_until_the_server_has_finished() {
    let _shared = shared_machine();
    let setup = OverloadSetup::start("", "", "queue = { timeout = \"20s\" }");
    let first = setup.occupy();
    reset_on_close(&first);
    drop(first);
    setup
        .proxy
        .metrics_until("it is abandoned", |metrics| metrics.sum_known(ABANDONED, &[("pool", "app")]) == 1.0);
    assert_eq!(setup.end_in_json_log("GET"), "client_gone");
    let mut next = setup.send("/next");
    setup.wait_for_queued(1);
    assert!(setup.gated.arrivals.try_recv().is_err(), "two at a time, and maxconn is 1");
    setup.gated.admit_one();
    assert_eq!(setup.gated.next_target(), "/next");
    setup.gated.admit_one();
    assert_eq!(read_checked(&mut next).status, Some(200));
    setup.proxy.metrics_until("the first response is wasted", |metrics| {
        metrics.sum_known(WASTED, &[("pool", "app")]) == 1.0
    });
}

#[test]
fn the_slot_of_a_client_that_left_is_kept_for_a_maximum_time() {
    let _shared = shared_machine();
    let pool = "queue = { timeout = \"20s\" }\ntimeouts = { abandoned = \"200ms\" }";
    let setup = OverloadSetup::start("", "", pool);
    let first = setup.occupy();
    reset_on_close(&first);
    drop(first);
    let mut next = setup.send("/next");
    assert_eq!(setup.gated.next_target(), "/next");
    setup.gated.admit_one();
    setup.gated.admit_one();
    assert_eq!(read_checked(&mut next).status, Some(200));
}

#[test]
fn a_server_that_notices_returns_the_slot_at_once() {
    let _shared = shared_machine();
    let arrived = Arc::new(AtomicUsize::new(0));
    let server = {
        let arrived = Arc::clone(&arrived);
        // The server works until its client leaves.
        respond_to_each(move |request, peer| {
            arrived.fetch_add(1, Ordering::SeqCst);
            if request.target() == "/hangs" {
                wait_for_close(peer);
                return None;
            }
            Some(ok_response(b"done"))
        })
    };
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [{{ address = \"{}\", maxconn = 1 }}]\nqueue = {{ timeout = \"20s\" }}\n\
         timeouts = {{ abandoned = \"60s\" }}\n",
        server.authority
    ));
    let mut first = proxy.client();
    first.send(b"GET /hangs HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(crate::support::within(crate::support::proxy_under_test::EVENT_TIMEOUT, || {
        arrived.load(Ordering::SeqCst) == 1
    }));
    reset_on_close(&first.stream);
    drop(first);
    assert_eq!(proxy.get("/next").status, 200);
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known(ABANDONED, &[]), 1.0);
    assert_eq!(metrics.sum_known(WASTED, &[]), 0.0);
}

#[test]
fn an_adaptive_limit_is_reported() {
    let _shared = shared_machine();
    let server = respond_to_each(|_, _| Some(ok_response(b"done")));
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 2\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nadaptive = {{ min = 2, max = 6 }}\nservers = [\"{}\"]\n",
        server.authority
    ));
    assert_eq!(proxy.get("/").status, 200);
    let bound = proxy.metrics().sum_known("weir_server_requests_max", &[("pool", "app")]);
    assert!((2.0..=6.0).contains(&bound), "{bound}");
}
