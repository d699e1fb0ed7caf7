//! Connections: listed, and ended one by one or all of a server.

use std::io::Read;

use super::*;
use crate::support::faulty::telling;
use crate::support::metrics::REQUESTS;
use crate::support::rude::{Crowd, connect, see};
use crate::support::{beside_others, within};

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

/// The connections that there are.
fn connections(door: &Door) -> Vec<Value> {
    shown(door, "show connections")["connections"].as_array().unwrap().clone()
}

/// The connection of this client.
fn find(door: &Door, stream: &std::net::TcpStream) -> Value {
    let own = stream.local_addr().unwrap().to_string();
    let all = connections(door);
    let found = all.iter().find(|one| one["client"] == own.as_str());
    found.unwrap_or_else(|| panic!("no {own}: {all:#?}")).clone()
}

/// Whether the other side has ended the connection, in whatever way.
fn is_over(stream: &mut std::net::TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn connections_are_listed_and_ended_one_by_one() {
    let _shared = beside_others();
    let (door, gated) = gated();
    let (mut idle, mut busy, mut kept) =
        (connect(door.authority()), connect(door.authority()), connect(door.authority()));
    // None of them has sent anything, or all of it.
    assert!(within(PATIENCE, || connections(&door).len() == 3));
    assert_eq!(find(&door, &idle)["state"], "idle");
    for stream in [&mut busy, &mut kept] {
        stream.write_all(REQUEST).unwrap();
        gated.next();
    }
    let row = find(&door, &busy);
    assert_eq!((&row["state"], &row["server"]), (&"server".into(), &"app/a".into()));
    assert_eq!((&row["listener"], &row["requests"]), (&"web".into(), &1.into()));
    assert_eq!(row["received_bytes"], REQUEST.len() as f64);
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    // By id, an idle one and one with a request.
    let said = done(&door, &format!("kill {} {}", id(&find(&door, &idle)), id(&row)));
    assert!(said.contains("2 ended"), "{said}");
    assert!(is_over(&mut idle) && is_over(&mut busy));
    let killed = [("listener", "web"), ("end", "killed")];
    door.metrics_until("one request was killed", |all| all.known(REQUESTS, &killed) == 1.0);
    // It has no effect on others, and not twice.
    let output = ctl(&door, &format!("kill {}", id(&row)));
    assert_eq!(output.code, 2, "{}", output.stdout);
    assert_eq!(connections(&door).len(), 1);
    (0..2).for_each(|_| gated.let_one_through());
    assert_eq!(see(&mut kept).status, Some(200));
    assert!(within(PATIENCE, || server(&door, "app/a")["in_flight"] == 0));
}

#[test]
fn all_of_a_server_are_ended_and_no_others() {
    let _shared = beside_others();
    let (gated, b) = (Gated::start(), telling("b"));
    let door = before(&[&gated.server, &b]);
    done(&door, "server app/b drain");
    let mut busy: Vec<_> = (0..5).map(|_| connect(door.authority())).collect();
    for stream in &mut busy {
        stream.write_all(REQUEST).unwrap();
        gated.next();
    }
    done(&door, "server app/b ready");
    done(&door, "server app/a drain");
    let crowd = Crowd::start(door.authority(), "/", 4);
    let said = done(&door, "kill server app/a");
    assert!(said.contains("5 ended"), "{said}");
    assert!(busy.iter_mut().all(is_over));
    crowd.wait_for(50);
    crowd.finish();
    assert!(done(&door, "kill server app/a").contains("0 ended"));
    assert!(within(PATIENCE, || server(&door, "app/a")["in_flight"] == 0));
}

#[test]
fn tunnels_and_requests_that_wait_can_be_ended_too() {
    let _shared = beside_others();
    let gated = Gated::start();
    let address = &gated.server.authority;
    let door = Door::weir(&format!(
        "{TOP}[listener.raw]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"raw\"\n\
         [pool.app]\nservers = [{{ name = \"a\", address = \"{address}\", maxconn = 1 }}]\n\
         queue = {{ timeout = \"20s\" }}\n[pool.raw]\nservers = [\"{address}\"]\n"
    ));
    let mut tunnel = connect(&door.addresses("raw")[0]);
    tunnel.write_all(REQUEST).unwrap();
    gated.next();
    let mut busy = connect(door.authority());
    busy.write_all(REQUEST).unwrap();
    gated.next();
    let mut waits = connect(door.authority());
    waits.write_all(REQUEST).unwrap();
    let state = |stream: &std::net::TcpStream| find(&door, stream)["state"].clone();
    assert!(within(PATIENCE, || state(&waits) == "queue"));
    assert_eq!(state(&tunnel), "tunnel");
    for stream in [&mut waits, &mut tunnel] {
        let id = find(&door, stream)["id"].as_str().unwrap().to_owned();
        done(&door, &format!("kill {id}"));
        assert!(is_over(stream));
    }
    // Its place in the queue is free, and the one in front is still served.
    assert_eq!(shown(&door, "show pools")["pools"][0]["queued"], 0);
    (0..2).for_each(|_| gated.let_one_through());
    assert_eq!(see(&mut busy).status, Some(200));
}
