//! Servers: drained, taken away, weighed and bounded while requests flow; and what is shown of them.

use super::*;
use crate::support::client::Client;
use crate::support::faulty::telling;
use crate::support::metrics::{CONNECTIONS_OPEN, QUEUED, REQUESTS, SERVER_CONNECTIONS_IDLE};
use crate::support::rude::{Crowd, connect, see};
use crate::support::{beside_others, within};

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

/// Requests that a server has had.
fn requests(door: &Door, name: &str) -> u64 {
    server(door, name)["requests"].as_u64().unwrap()
}

#[test]
fn what_is_shown_is_what_there_is() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let door = before(&[&a, &b]);
    let crowd = Crowd::start(door.authority(), "/", 4);
    crowd.wait_for(100);
    let all = shown(&door, "show");
    assert_eq!(all["info"]["state"], "running");
    assert_eq!(all["info"]["process"], door.process.id());
    assert_eq!(all["info"]["connections"], 4);
    let web = row(&all["listeners"], "listener", "web");
    assert_eq!((&web["open"], &web["mode"]), (&4.into(), &"http".into()));
    assert_eq!(web["address"], door.authority());
    let app = row(&all["pools"], "pool", "app");
    assert_eq!((&app["servers"], &app["usable"]), (&2.into(), &2.into()));
    assert_eq!(app["errors"], 0);
    let number = |value: &Value| value.as_u64().unwrap();
    let of_servers: u64 =
        all["servers"].as_array().unwrap().iter().map(|row| number(&row["requests"])).sum();
    assert_eq!(of_servers, number(&app["requests"]));
    crowd.finish();
    // Once nothing is in flight, all say the same.
    let metrics = door.metrics_until("all have left", |metrics| {
        metrics.known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
    });
    let all = shown(&door, "show");
    let counted = metrics.known(REQUESTS, &[("listener", "web"), ("end", "done")]);
    assert_eq!(number(&row(&all["pools"], "pool", "app")["requests"]) as f64, counted);
    assert_eq!(all["info"]["in_flight"], 0);
    let text = done(&door, "show servers");
    assert!(text.starts_with("server ") && text.contains("\napp/a "), "{text}");
    let config = done(&door, "show config");
    assert!(config.contains("[pool.app]") && config.contains(&a.authority), "{config}");
}

#[test]
fn a_drained_server_finishes_what_it_has_and_gets_nothing_new() {
    let _shared = beside_others();
    let (gated, b) = (Gated::start(), telling("b"));
    let door = before(&[&gated.server, &b]);
    // Only it gets requests at first, so that one is with it for sure.
    done(&door, "server app/b maint");
    let mut busy = connect(door.authority());
    busy.write_all(REQUEST).unwrap();
    gated.next();
    done(&door, "server app/b ready");
    done(&door, "server app/a drain");
    let row = server(&door, "app/a");
    assert_eq!((&row["state"], &row["in_flight"]), (&"drain".into(), &1.into()));
    assert_eq!(row["share_percent"], 0.0);
    let crowd = Crowd::start(door.authority(), "/", 4);
    crowd.wait_for(100);
    crowd.finish();
    assert!(gated.arrived.try_recv().is_err(), "a drained server got a new request");
    gated.let_one_through();
    let seen = see(&mut busy);
    assert!(seen.status == Some(200) && seen.text() == "through", "{}", seen.head);
    let free = || server(&door, "app/a")["in_flight"] == 0;
    assert!(within(PATIENCE, free));
    done(&door, "server app/a ready");
    done(&door, "server app/b drain");
    let mut back = connect(door.authority());
    back.write_all(REQUEST).unwrap();
    assert_eq!(gated.next(), "/x");
    gated.let_one_through();
    assert_eq!(see(&mut back).status, Some(200));
    let notices = door.stderr();
    assert!(notices.contains("notice: control (user "), "{notices}");
    assert!(notices.contains("server app/a drain"), "{notices}");
}

#[test]
fn a_pool_without_a_usable_server_says_so_at_once() {
    let _shared = beside_others();
    let a = telling("a");
    let door = before(&[&a]);
    done(&door, "server app/a drain");
    assert_eq!(door.get("/").status, 503);
    done(&door, "server app/a ready");
    assert_eq!(door.get("/").status, 200);
}

#[test]
fn a_server_in_maintenance_keeps_no_connection() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let door = before(&[&a, &b]);
    let crowd = Crowd::start(door.authority(), "/", 4);
    let idle = |server| {
        let labels = [("pool", "app"), ("server", server)];
        door.metrics().known(SERVER_CONNECTIONS_IDLE, &labels)
    };
    assert!(within(PATIENCE, || idle("a") > 0.0 && idle("b") > 0.0));
    done(&door, "server app/a maint");
    let is_left = || idle("a") == 0.0 && server(&door, "app/a")["in_flight"] == 0;
    assert!(within(PATIENCE, is_left), "{}", idle("a"));
    assert_eq!(server(&door, "app/a")["state"], "maintenance");
    let had = requests(&door, "app/a");
    crowd.wait_for(100);
    assert_eq!(requests(&door, "app/a"), had);
    done(&door, "server app/a ready");
    assert!(within(PATIENCE, || requests(&door, "app/a") > had));
    crowd.finish();
}

#[test]
fn a_weight_of_nothing_is_no_requests_until_it_is_taken_back() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let door = before(&[&a, &b]);
    let crowd = Crowd::start(door.authority(), "/", 4);
    done(&door, "server app/a weight 0");
    // Those that were chosen before are over.
    assert!(within(PATIENCE, || server(&door, "app/a")["in_flight"] == 0));
    let row = server(&door, "app/a");
    assert_eq!((&row["weight"], &row["weight_planned"]), (&0.into(), &1.into()));
    let had = requests(&door, "app/a");
    crowd.wait_for(100);
    assert_eq!(requests(&door, "app/a"), had);
    done(&door, "server app/a weight default");
    assert!(within(PATIENCE, || requests(&door, "app/a") > had));
    assert_eq!(server(&door, "app/a")["weight"], 1);
    crowd.finish();
}

#[test]
fn a_lower_bound_holds_also_for_those_that_were_there_before() {
    let _shared = beside_others();
    let gated = Gated::start();
    let door = Door::weir(&format!(
        "{}queue = {{ timeout = \"20s\" }}\n",
        config(&[&gated.server.authority])
    ));
    let ask = || {
        let mut stream = connect(door.authority());
        stream.write_all(REQUEST).unwrap();
        stream
    };
    // Three are there while it has no bound at all.
    let mut busy = vec![ask(), ask(), ask()];
    (0..3).for_each(|_| drop(gated.next()));
    done(&door, "server app/a maxconn 2");
    let row = server(&door, "app/a");
    assert_eq!((&row["maxconn"], &row["maxconn_planned"]), (&2.into(), &Value::Null));
    busy.push(ask());
    let queued = || door.metrics().known(QUEUED, &[("pool", "app")]);
    assert!(within(PATIENCE, || queued() == 1.0));
    // One of three has gone: two are as many as it may have.
    gated.let_one_through();
    assert!(within(PATIENCE, || server(&door, "app/a")["in_flight"] == 2));
    assert!(queued() == 1.0 && gated.arrived.try_recv().is_err());
    gated.let_one_through();
    gated.next();
    // Without a bound nobody waits.
    busy.push(ask());
    assert!(within(PATIENCE, || queued() == 1.0));
    done(&door, "server app/a maxconn default");
    gated.next();
    (0..3).for_each(|_| gated.let_one_through());
    for stream in &mut busy {
        assert_eq!(see(stream).status, Some(200));
    }
    assert!(within(PATIENCE, || server(&door, "app/a")["in_flight"] == 0));
}

#[test]
fn top_shows_what_happens_within_a_second() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let door = before(&[&a, &b]);
    let crowd = Crowd::start(door.authority(), "/", 4);
    let mut top = Value::Null;
    let busy = within(PATIENCE, || {
        top = shown(&door, "top");
        top["all"][0]["requests_per_s"].as_f64() > Some(0.0)
    });
    assert!(busy, "{top:#}");
    crowd.finish();
    let all = &top["all"][0];
    assert_eq!((&all["connections"], all["errors_per_s"].as_f64()), (&4.into(), Some(0.0)));
    assert!(all["p50_ns"].as_u64() > Some(0) && all["p99_ns"].as_u64() >= all["p50_ns"].as_u64());
    let rate = |row: &Value| row["requests_per_s"].as_f64().unwrap();
    let of_servers: f64 = top["servers"].as_array().unwrap().iter().map(rate).sum();
    let of_pool = rate(&row(&top["pools"], "pool", "app"));
    assert!((of_servers - of_pool).abs() < 1e-6 * of_pool.max(1.0), "{top:#}");
    let text = done(&door, "top --once");
    assert!(text.contains("requests/s") && text.contains("\napp/a "), "{text}");
    // A client of its own, and not only the counts of one.
    assert_eq!(Client::connect(door.authority()).ask("/").status, 200);
}
