//! Distribution of requests over servers, and of connections over threads.

use std::collections::BTreeMap;
use std::thread;

use super::body_text;
use crate::support::faulty_origins::{GatedServer, echoing_server};
use crate::support::hostile_client::{BackgroundClients, read_response};
use crate::support::metrics::CONNECTIONS_OPEN;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::timing::assert_timing;
use crate::support::{EVENT_TIMEOUT, shared_machine};

/// Sends requests on several connections; returns the number of requests of each server.
fn requests_by_server(proxy: &ProxyUnderTest, connections: usize, each: usize) -> BTreeMap<String, usize> {
    let counts = thread::scope(|scope| {
        let clients = (0..connections).map(|_| {
            scope.spawn(|| {
                let mut client = proxy.client();
                let bodies = (0..each).map(|_| body_text(&client.get("/")));
                bodies.map(|text| text.lines().next().unwrap_or("").to_owned()).collect::<Vec<_>>()
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    counts.into_iter().fold(BTreeMap::new(), |mut all, name| {
        *all.entry(name).or_default() += 1;
        all
    })
}

fn start_proxy(threads: usize, servers: &str, more: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = {threads}\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [{servers}]\n{more}\n"
    ))
}

#[test]
fn in_turn_and_by_weight_is_exact() {
    let _shared = shared_machine();
    let (a, b, c, none) =
        (echoing_server("a"), echoing_server("b"), echoing_server("c"), echoing_server("none"));
    let weighted =
        |authority: &str, weight: u32| format!("{{ address = \"{authority}\", weight = {weight} }}");
    let servers = [
        weighted(&a.authority, 5),
        weighted(&b.authority, 3),
        weighted(&c.authority, 2),
        weighted(&none.authority, 0),
    ];
    let proxy = start_proxy(1, &servers.join(", "), "balance = \"round-robin\"");
    let counts = requests_by_server(&proxy, 1, 1000);
    let expected = [("a", 500), ("b", 300), ("c", 200)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(counts, BTreeMap::from(expected));
    assert_eq!(none.connections(), 0);
}

#[test]
fn in_turn_is_smooth() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let servers = format!("{{ address = \"{}\", weight = 4 }}, \"{}\"", a.authority, b.authority);
    let proxy = start_proxy(1, &servers, "balance = \"round-robin\"");
    let mut client = proxy.client();
    let order: String = (0..50).map(|_| body_text(&client.get("/")).chars().next().unwrap_or(' ')).collect();
    // Every five consecutive requests contain one b, from any start.
    for five in order.as_bytes().windows(5) {
        assert_eq!(five.iter().filter(|byte| **byte == b'b').count(), 1, "{order}");
    }
}

#[test]
fn the_better_of_two_random_ones_spreads_and_avoids_the_busy() {
    let _shared = shared_machine();
    let (a, b, c) = (echoing_server("a"), echoing_server("b"), echoing_server("c"));
    let servers = [&a, &b, &c].map(|server| format!("\"{}\"", server.authority)).join(", ");
    let counts = requests_by_server(&start_proxy(2, &servers, ""), 6, 200);
    assert_eq!(counts.values().sum::<usize>(), 1200);
    // By chance alone each has 400, give or take 50 at three standard deviations.
    assert_eq!(counts.len(), 3, "{counts:?}");
    // A server that gets less CPU time than the others is a busier one.
    assert_timing(counts.values().all(|count| *count > 250), "an even spread of 1200", &counts);

    // Of two servers, the choice always compares both; the one with stuck requests gets no more of
    // them.
    let (gated, free) = (GatedServer::start(), echoing_server("free"));
    let servers = format!("\"{}\", \"{}\"", gated.server.authority, free.authority);
    let proxy = start_proxy(1, &servers, "reuse = \"always\"");
    let mut stuck = Vec::new();
    let mut is_stuck = false;
    while !is_stuck {
        let mut client = crate::support::hostile_client::connect(proxy.authority());
        let request = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut client, request).unwrap();
        assert!(stuck.len() < 100, "one of two servers is never asked");
        // Sends the next request only after the response, or once the request is at the gate.
        client.set_read_timeout(Some(std::time::Duration::from_millis(5))).unwrap();
        let settled = crate::support::within(EVENT_TIMEOUT, || {
            is_stuck = gated.arrivals.try_recv().is_ok();
            is_stuck || client.peek(&mut [0]).is_ok()
        });
        assert!(settled, "neither of two servers was asked");
        client.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
        stuck.push(client);
    }
    let counts = requests_by_server(&proxy, 1, 100);
    assert_eq!(counts.get("free"), Some(&100), "{counts:?}");
    gated.admit_one();
    assert_eq!(read_response(stuck.last_mut().unwrap()).status, Some(200));
}

#[test]
fn two_threads_get_equal_numbers_of_connections() {
    let _shared = shared_machine();
    let origin = echoing_server("a");
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         pool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    let clients: Vec<_> = (0..200).map(|_| proxy.client()).collect();
    let metrics = proxy.metrics_until("all are accepted", |metrics| {
        metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) == 200.0
    });
    let thread_samples = metrics.samples_with(CONNECTIONS_OPEN, &[("listener", "web")]);
    let counts: Vec<f64> = thread_samples.map(|sample| sample.value).collect();
    if counts.len() == 2 {
        // A hash of the ports decides: 100 each, give or take 40 at more than five deviations.
        assert!(counts.iter().all(|count| (60.0..=140.0).contains(count)), "{counts:?}");
    }
    drop(clients);
    // Both threads work.
    let background = BackgroundClients::start(proxy.authority(), "/", 16);
    background.wait_for(5_000);
    let threads = host::process::threads(proxy.process.id()).unwrap();
    let mut used: Vec<u64> = threads.iter().map(|thread| thread.run_ns.unwrap_or(0)).collect();
    used.sort_unstable_by(|a, b| b.cmp(a));
    assert!(used.len() >= 2 && used[1] > 0, "{used:?}");
    assert_timing(used[1] * 4 > used[0], "two threads that work about as much, in ns", &used);
    background.finish();
}
