//! Client connections: listed, and closed one by one or all of a server.

use std::io::Read;

use super::*;
use crate::support::faulty_origins::echoing_server;
use crate::support::hostile_client::{BackgroundClients, connect, read_response};
use crate::support::metrics::REQUESTS;
use crate::support::{shared_machine, within};

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

/// Returns the current connections.
fn session_rows(proxy: &ProxyUnderTest) -> Vec<Value> {
    ctl_json(proxy, "show connections")["connections"].as_array().unwrap().clone()
}

/// Returns the connection of this client, as soon as the proxy has accepted it.
fn session_of(proxy: &ProxyUnderTest, stream: &std::net::TcpStream) -> Value {
    let own = stream.local_addr().unwrap().to_string();
    let mut session = None;
    let is_listed = within(EVENT_TIMEOUT, || {
        session = session_rows(proxy).into_iter().find(|row| row["client"] == own.as_str());
        session.is_some()
    });
    assert!(is_listed, "no {own}: {:#?}", session_rows(proxy));
    session.unwrap()
}

/// Returns whether the other side has closed the connection, in any way.
fn is_closed(stream: &mut std::net::TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn connections_are_listed_and_ended_one_by_one() {
    let _shared = shared_machine();
    let (proxy, gated) = start_gated();
    let (mut idle, mut busy, mut persistent) =
        (connect(proxy.authority()), connect(proxy.authority()), connect(proxy.authority()));
    // Each of them has sent nothing, or a complete request.
    assert!(within(EVENT_TIMEOUT, || session_rows(&proxy).len() == 3));
    assert_eq!(session_of(&proxy, &idle)["state"], "idle");
    for stream in [&mut busy, &mut persistent] {
        stream.write_all(REQUEST).unwrap();
        gated.next_target();
    }
    let row = session_of(&proxy, &busy);
    assert_eq!((&row["state"], &row["server"]), (&"server".into(), &"app/a".into()));
    assert_eq!((&row["listener"], &row["requests"]), (&"web".into(), &1.into()));
    assert_eq!(row["received_bytes"], REQUEST.len() as f64);
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    // By id: an idle connection and one with a request.
    let output = ctl_output(&proxy, &format!("kill {} {}", id(&session_of(&proxy, &idle)), id(&row)));
    assert!(output.contains("2 closed"), "{output}");
    assert!(is_closed(&mut idle) && is_closed(&mut busy));
    let killed = [("listener", "web"), ("end", "killed")];
    proxy.metrics_until("one request was killed", |all| all.sum_known(REQUESTS, &killed) == 1.0);
    // It has no effect on other connections, and none a second time.
    let output = run_ctl(&proxy, &format!("kill {}", id(&row)));
    assert_eq!(output.code, 2, "{}", output.stdout);
    assert_eq!(session_rows(&proxy).len(), 1);
    (0..2).for_each(|_| gated.admit_one());
    assert_eq!(read_response(&mut persistent).status, Some(200));
    assert!(within(EVENT_TIMEOUT, || server_row(&proxy, "app/a")["in_flight"] == 0));
}

#[test]
fn all_of_a_server_are_ended_and_no_others() {
    let _shared = shared_machine();
    let (gated, b) = (GatedServer::start(), echoing_server("b"));
    let proxy = start_proxy(&[&gated.server, &b]);
    ctl_output(&proxy, "server app/b drain");
    let mut busy: Vec<_> = (0..5).map(|_| connect(proxy.authority())).collect();
    for stream in &mut busy {
        stream.write_all(REQUEST).unwrap();
        gated.next_target();
    }
    ctl_output(&proxy, "server app/b ready");
    ctl_output(&proxy, "server app/a drain");
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    let output = ctl_output(&proxy, "kill server app/a");
    assert!(output.contains("5 closed"), "{output}");
    assert!(busy.iter_mut().all(is_closed));
    background.wait_for(50);
    background.finish();
    assert!(ctl_output(&proxy, "kill server app/a").contains("0 closed"));
    assert!(within(EVENT_TIMEOUT, || server_row(&proxy, "app/a")["in_flight"] == 0));
}

#[test]
fn tunnels_and_requests_that_wait_can_be_ended_too() {
    let _shared = shared_machine();
    let gated = GatedServer::start();
    let address = &gated.server.authority;
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.raw]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"raw\"\n\
         [pool.app]\nservers = [{{ name = \"a\", address = \"{address}\", maxconn = 1 }}]\n\
         queue = {{ timeout = \"100s\" }}\n[pool.raw]\nservers = [\"{address}\"]\n"
    ));
    let mut tunnel = connect(&proxy.addresses("raw")[0]);
    tunnel.write_all(REQUEST).unwrap();
    gated.next_target();
    let mut busy = connect(proxy.authority());
    busy.write_all(REQUEST).unwrap();
    gated.next_target();
    let mut waits = connect(proxy.authority());
    waits.write_all(REQUEST).unwrap();
    let state = |stream: &std::net::TcpStream| session_of(&proxy, stream)["state"].clone();
    assert!(within(EVENT_TIMEOUT, || state(&waits) == "queue"));
    assert_eq!(state(&tunnel), "tunnel");
    for stream in [&mut waits, &mut tunnel] {
        let id = session_of(&proxy, stream)["id"].as_str().unwrap().to_owned();
        ctl_output(&proxy, &format!("kill {id}"));
        assert!(is_closed(stream));
    }
    // Its slot in the queue is free, and the request in front still gets its response.
    assert_eq!(ctl_json(&proxy, "show pools")["pools"][0]["queued"], 0);
    (0..2).for_each(|_| gated.admit_one());
    assert_eq!(read_response(&mut busy).status, Some(200));
}
