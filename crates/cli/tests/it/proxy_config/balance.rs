//! How requests are spread over servers and connections over threads.

use std::collections::BTreeMap;
use std::thread;

use super::text;
use crate::support::door::Door;
use crate::support::faulty::{Gated, telling};
use crate::support::metrics::CONNECTIONS_OPEN;
use crate::support::rude::{Crowd, see};
use crate::support::times::demand;
use crate::support::{PATIENCE, beside_others};

/// How many of so many requests, on so many connections, each server answered.
fn spread(door: &Door, connections: usize, each: usize) -> BTreeMap<String, usize> {
    let counts = thread::scope(|scope| {
        let clients = (0..connections).map(|_| {
            scope.spawn(|| {
                let mut client = door.client();
                let answers = (0..each).map(|_| text(&client.ask("/")));
                answers.map(|told| told.lines().next().unwrap_or("").to_owned()).collect::<Vec<_>>()
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

fn start(threads: usize, servers: &str, more: &str) -> Door {
    Door::weir(&format!(
        "threads = {threads}\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [{servers}]\n{more}\n"
    ))
}

#[test]
fn in_turn_and_by_weight_is_exact() {
    let _shared = beside_others();
    let (a, b, c, none) = (telling("a"), telling("b"), telling("c"), telling("none"));
    let weighted = |authority: &str, weight: u32| {
        format!("{{ address = \"{authority}\", weight = {weight} }}")
    };
    let servers = [
        weighted(&a.authority, 5),
        weighted(&b.authority, 3),
        weighted(&c.authority, 2),
        weighted(&none.authority, 0),
    ];
    let door = start(1, &servers.join(", "), "balance = \"round-robin\"");
    let counts = spread(&door, 1, 1000);
    let wanted = [("a", 500), ("b", 300), ("c", 200)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(counts, BTreeMap::from(wanted));
    assert_eq!(none.connections(), 0);
}

#[test]
fn in_turn_is_smooth() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let servers = format!("{{ address = \"{}\", weight = 4 }}, \"{}\"", a.authority, b.authority);
    let door = start(1, &servers, "balance = \"round-robin\"");
    let mut client = door.client();
    let order: String =
        (0..50).map(|_| text(&client.ask("/")).chars().next().unwrap_or(' ')).collect();
    // In every five in a row there is one b, wherever one begins.
    for five in order.as_bytes().windows(5) {
        assert_eq!(five.iter().filter(|one| **one == b'b').count(), 1, "{order}");
    }
}

#[test]
fn the_better_of_two_random_ones_spreads_and_avoids_the_busy() {
    let _shared = beside_others();
    let (a, b, c) = (telling("a"), telling("b"), telling("c"));
    let servers = [&a, &b, &c].map(|server| format!("\"{}\"", server.authority)).join(", ");
    let counts = spread(&start(2, &servers, ""), 6, 200);
    assert_eq!(counts.values().sum::<usize>(), 1200);
    // By chance alone each has 400, give or take 50 at three standard deviations.
    assert_eq!(counts.len(), 3, "{counts:?}");
    // A server that gets less of the processor than the others is a busier one.
    demand(counts.values().all(|count| *count > 250), "an even spread of 1200", &counts);

    // Of two, both are always looked at; the one that is stuck with requests gets no more of them.
    let (gated, free) = (Gated::start(), telling("free"));
    let servers = format!("\"{}\", \"{}\"", gated.server.authority, free.authority);
    let door = start(1, &servers, "reuse = \"always\"");
    let mut stuck = Vec::new();
    let mut is_stuck = false;
    while !is_stuck {
        let mut client = crate::support::rude::connect(door.authority());
        let request = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut client, request).unwrap();
        assert!(stuck.len() < 100, "one of two servers is never asked");
        // It is answered, or it is at the gate; the next one only then.
        client.set_read_timeout(Some(std::time::Duration::from_millis(5))).unwrap();
        let settled = crate::support::within(PATIENCE, || {
            is_stuck = gated.arrived.try_recv().is_ok();
            is_stuck || client.peek(&mut [0]).is_ok()
        });
        assert!(settled, "neither of two servers was asked");
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        stuck.push(client);
    }
    let counts = spread(&door, 1, 100);
    assert_eq!(counts.get("free"), Some(&100), "{counts:?}");
    gated.let_one_through();
    assert_eq!(see(stuck.last_mut().unwrap()).status, Some(200));
}

#[test]
fn two_threads_have_even_shares_of_the_connections() {
    let _shared = beside_others();
    let origin = telling("a");
    let door = Door::weir(&format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         pool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    let clients: Vec<_> = (0..200).map(|_| door.client()).collect();
    let metrics = door.metrics_until("all are accepted", |metrics| {
        metrics.known(CONNECTIONS_OPEN, &[("listener", "web")]) == 200.0
    });
    let of_threads = metrics.of(CONNECTIONS_OPEN, &[("listener", "web")]);
    let shares: Vec<f64> = of_threads.map(|sample| sample.value).collect();
    if shares.len() == 2 {
        // A hash of the ports decides: 100 each, give or take 40 at more than five deviations.
        assert!(shares.iter().all(|share| (60.0..=140.0).contains(share)), "{shares:?}");
    }
    drop(clients);
    // And both threads work.
    let crowd = Crowd::start(door.authority(), "/", 16);
    crowd.wait_for(5_000);
    let threads = host::process::threads(door.process.id()).unwrap();
    let mut used: Vec<u64> = threads.iter().map(|one| one.run_ns.unwrap_or(0)).collect();
    used.sort_unstable_by(|a, b| b.cmp(a));
    assert!(used.len() >= 2 && used[1] > 0, "{used:?}");
    demand(used[1] * 4 > used[0], "two threads that work about as much, in ns", &used);
    crowd.finish();
}
