//! What a listener takes on: rates, what one network may have, and how it is told; and a route that
//! says nothing at all.

use std::io::{Read, Write};

use super::{HEAD, ask_once, client_from, end_of, kept, retry_after};
use crate::support::beside_others;
use crate::support::door::Door;
use crate::support::metrics::REFUSED;
use crate::support::rude::ask_raw;

/// A proxy that answers itself.
fn door(listener: &str) -> Door {
    Door::weir(&format!(
        "threads = 2\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n{listener}\n\
         [[route]]\npath = \"/dropped\"\nsilent-drop = true\n\
         [[route]]\nanswer = {{ status = 200, body = \"here\" }}\n"
    ))
}

fn refused(door: &Door, reason: &str) -> f64 {
    door.metrics().known(REFUSED, &[("reason", reason)])
}

/// Whether nothing came but the end of the connection.
fn is_reset(door: &Door) -> bool {
    let mut stream = client_from(1, door.authority());
    let mut bytes = Vec::new();
    // Whichever comes to it first hears of it.
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let read = stream.read_to_end(&mut bytes);
    bytes.is_empty() && (sent.is_err() || read.is_err())
}

#[test]
fn over_the_rate_a_connection_is_told_so() {
    let _shared = beside_others();
    let door = door("connections-rate = 0.001\nconnections-burst = 2");
    let mut clients = [kept(&door), kept(&door)];
    let seen = ask_once(client_from(1, door.authority()), "/over");
    assert_eq!(seen.status, Some(503), "{}", seen.head);
    assert_eq!(retry_after(&seen), 30);
    assert_eq!(seen.field("connection").as_deref(), Some("close"));
    assert_eq!(end_of(&door, "/over"), "connection_limited");
    assert_eq!(refused(&door, "connection_rate"), 1.0);
    // Those that are in go on.
    assert!(clients.iter_mut().all(|client| client.ask("/").status == 200));
}

#[test]
fn over_the_rate_a_connection_is_reset_where_that_is_asked_for() {
    let _shared = beside_others();
    let door = door("connections-rate = 0.001\nconnections-burst = 1\non-limit = \"reset\"");
    let _client = kept(&door);
    assert!(is_reset(&door));
    assert_eq!(refused(&door, "connection_rate"), 1.0);
}

#[test]
fn over_the_rate_a_connection_waits_where_that_is_asked_for() {
    let _shared = beside_others();
    let door = door("connections-rate = 4\nconnections-burst = 1\non-limit = \"wait\"");
    let clients: Vec<_> = (0..6).map(|_| client_from(1, door.authority())).collect();
    for client in clients {
        assert_eq!(ask_once(client, "/").status, Some(200));
    }
    assert!(refused(&door, "connection_rate") >= 1.0);
}

#[test]
fn over_the_bound_of_connections_one_is_told_so_where_that_is_asked_for() {
    let _shared = beside_others();
    let door = door("connections-max = 2\non-limit = \"reject\"");
    // One for each thread, wherever they come in.
    let mut clients = vec![kept(&door), kept(&door)];
    let seen = ask_once(client_from(1, door.authority()), "/over");
    assert_eq!(seen.status, Some(503), "{}", seen.head);
    retry_after(&seen);
    assert_eq!(end_of(&door, "/over"), "connection_limited");
    clients.clear();
    door.metrics_until("they are gone", |metrics| {
        metrics.known(crate::support::metrics::CONNECTIONS_OPEN, &[]) == 0.0
    });
    assert_eq!(ask_once(client_from(1, door.authority()), "/").status, Some(200));
}

#[test]
fn a_source_has_so_many_connections() {
    let _shared = beside_others();
    let door = door("per-source = { connections = 2 }");
    let mut clients = vec![kept(&door), kept(&door)];
    let seen = ask_once(client_from(1, door.authority()), "/over");
    assert_eq!(seen.status, Some(429), "{}", seen.head);
    retry_after(&seen);
    assert_eq!(end_of(&door, "/over"), "source_limited");
    assert_eq!(refused(&door, "source_connections"), 1.0);
    // Others are not held by it.
    assert_eq!(ask_once(client_from(2, door.authority()), "/").status, Some(200));
    clients.pop();
    door.metrics_until("it is gone", |metrics| {
        metrics.known(crate::support::metrics::CONNECTIONS_OPEN, &[]) == 1.0
    });
    assert_eq!(ask_once(client_from(1, door.authority()), "/").status, Some(200));
}

#[test]
fn a_network_is_one_source_where_that_is_asked_for() {
    let _shared = beside_others();
    let door = door("per-source = { connections = 1, prefix4 = 24 }");
    let _client = kept(&door);
    assert_eq!(ask_once(client_from(2, door.authority()), "/").status, Some(429));
}

#[test]
fn a_source_has_rates_of_its_own() {
    let _shared = beside_others();
    let connections = door("per-source = { connections-rate = 0.001, connections-burst = 2 }");
    let ask = |last: u8| ask_once(client_from(last, connections.authority()), "/").status;
    assert_eq!([ask(1), ask(1), ask(1), ask(2)], [Some(200), Some(200), Some(429), Some(200)]);
    assert_eq!(refused(&connections, "source_rate"), 1.0);
    let requests = door("per-source = { requests-rate = 0.001, requests-burst = 3 }");
    let mut client = requests.client();
    let statuses: Vec<u16> = (0..4).map(|_| client.ask("/").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    // It is a refusal of a request, and the connection stays.
    let answer = client.ask("/again");
    assert_eq!(answer.status, 429);
    assert!(
        answer.head.to_ascii_lowercase().contains("\r\nretry-after: 30\r\n"),
        "{}",
        answer.head
    );
    assert_eq!(end_of(&requests, "/again"), "source_limited");
    assert_eq!(ask_once(client_from(2, requests.authority()), "/").status, Some(200));
}

#[test]
fn a_source_is_who_the_proxy_header_says() {
    let _shared = beside_others();
    let door = door(
        "proxy-protocol = true\ntrusted = [\"127.0.0.0/8\"]\nper-source = { connections = 1 }\n\
         connections-rate = 0.001\nconnections-burst = 4",
    );
    let from = |last: u8| {
        let mut stream = client_from(1, door.authority());
        let head = format!("PROXY TCP4 10.0.0.{last} 10.0.0.9 1000 80\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut first = from(1);
    first.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    assert!(first.read(&mut [0; 1]).unwrap() > 0);
    let asked = [1, 2, 3].map(|last| ask_once(from(last), "/").status);
    assert_eq!(asked, [Some(429), Some(200), Some(200)]);
    // One that is over the rate says whose it is as well before it hears of it.
    assert_eq!(ask_once(from(4), "/").status, Some(503));
}

#[test]
fn a_source_that_is_over_is_reset_in_mode_tcp() {
    let _shared = beside_others();
    let origin =
        crate::support::faulty::answering_each(|_, _| Some(crate::support::faulty::ok(b"through")));
    let door = Door::weir(&format!(
        "threads = 1\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         per-source = {{ connections = 1 }}\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    let _client = kept(&door);
    assert!(is_reset(&door));
}

#[test]
fn a_silent_drop_says_nothing() {
    let _shared = beside_others();
    let door = door("");
    let seen = ask_raw(door.authority(), b"GET /dropped HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!((seen.status, seen.body.len()), (None, 0));
    assert_eq!(end_of(&door, "/dropped"), "silently_dropped");
    assert_eq!(door.get("/").status, 200);
}

#[test]
fn a_check_tells_what_would_keep_it_from_recovering() {
    let _shared = beside_others();
    let folder = crate::support::folder();
    let path = folder.path().join("weir.toml");
    let config = "[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
                  [pool.app]\nservers = [\"127.0.0.1:9\"]\nqueue = { timeout = \"5s\" }\n";
    std::fs::write(&path, config).unwrap();
    let flags = ["proxy", "--check", "--config", path.to_str().unwrap()];
    let output = crate::support::start(crate::support::WEIR, &flags).finish();
    assert_eq!(output.code, 0, "{output:?}");
    let place = path.display();
    for wanted in [
        format!("weir: warning: {place}:5:11: pool 'app': a server without a maxconn"),
        format!("weir: warning: {place}:6:21: pool 'app': requests wait longer"),
    ] {
        assert!(output.stderr.contains(&wanted), "{wanted}: {}", output.stderr);
    }
}
