//! Servers: drained, disabled, reweighted and limited while requests flow; and their reported
//! state.

use std::collections::BTreeSet;

use super::*;
use crate::support::client::Client;
use crate::support::faulty_origins::{echoing_server, ok_response, respond_to_each};
use crate::support::hostile_client::{BackgroundClients, connect, read_response};
use crate::support::metrics::{CONNECTIONS_OPEN, QUEUED, REQUESTS, SERVER_CONNECTIONS_IDLE};
use crate::support::{shared_machine, within};

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

/// Returns the number of requests that a server has received.
fn request_count(proxy: &ProxyUnderTest, name: &str) -> u64 {
    server_row(proxy, name)["requests"].as_u64().unwrap()
}

#[test]
fn what_is_shown_is_what_there_is() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let proxy = start_proxy(&[&a, &b]);
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    background.wait_for(100);
    let all = ctl_json(&proxy, "show");
    assert_eq!(all["info"]["state"], "running");
    assert_eq!(all["info"]["pid"], proxy.process.id());
    assert_eq!(all["info"]["connections"], 4);
    let web = find_row(&all["listeners"], "listener", "web");
    assert_eq!((&web["open"], &web["mode"]), (&4.into(), &"http".into()));
    assert_eq!(web["address"], proxy.authority());
    let app = find_row(&all["pools"], "pool", "app");
    assert_eq!((&app["servers"], &app["usable"]), (&2.into(), &2.into()));
    assert_eq!(app["errors"], 0);
    let number = |value: &Value| value.as_u64().unwrap();
    let server_requests: u64 =
        all["servers"].as_array().unwrap().iter().map(|row| number(&row["requests"])).sum();
    assert_eq!(server_requests, number(&app["requests"]));
    background.finish();
    // Once nothing is in flight, all views agree.
    let metrics = proxy.metrics_until("all have left", |metrics| {
        metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
    });
    let all = ctl_json(&proxy, "show");
    let counted = metrics.sum_known(REQUESTS, &[("listener", "web"), ("end", "done")]);
    assert_eq!(number(&find_row(&all["pools"], "pool", "app")["requests"]) as f64, counted);
    assert_eq!(all["info"]["in_flight"], 0);
    let text = ctl_output(&proxy, "show servers");
    assert!(text.starts_with("server ") && text.contains("\napp/a "), "{text}");
    let config = ctl_output(&proxy, "show config");
    assert!(config.contains("[pool.app]") && config.contains(&a.authority), "{config}");
}

#[test]
fn a_drained_server_finishes_what_it_has_and_gets_nothing_new() {
    let _shared = shared_machine();
    let (gated, b) = (GatedServer::start(), echoing_server("b"));
    let proxy = start_proxy(&[&gated.server, &b]);
    // Only this server gets requests at first, so that it certainly has one.
    ctl_output(&proxy, "server app/b maint");
    let mut busy = connect(proxy.authority());
    busy.write_all(REQUEST).unwrap();
    gated.next_target();
    ctl_output(&proxy, "server app/b ready");
    ctl_output(&proxy, "server app/a drain");
    let row = server_row(&proxy, "app/a");
    assert_eq!((&row["state"], &row["in_flight"]), (&"drain".into(), &1.into()));
    assert_eq!(row["weight_percent"], 0.0);
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    background.wait_for(100);
    background.finish();
    assert!(gated.arrivals.try_recv().is_err(), "a drained server got a new request");
    gated.admit_one();
    let response = read_response(&mut busy);
    assert!(response.status == Some(200) && response.text() == "through", "{}", response.head);
    let free = || server_row(&proxy, "app/a")["in_flight"] == 0;
    assert!(within(EVENT_TIMEOUT, free));
    ctl_output(&proxy, "server app/a ready");
    ctl_output(&proxy, "server app/b drain");
    let mut after_ready = connect(proxy.authority());
    after_ready.write_all(REQUEST).unwrap();
    assert_eq!(gated.next_target(), "/x");
    gated.admit_one();
    assert_eq!(read_response(&mut after_ready).status, Some(200));
    let notices = proxy.stderr();
    assert!(notices.contains("notice: control (user "), "{notices}");
    assert!(notices.contains("server app/a drain"), "{notices}");
}

#[test]
fn a_pool_without_a_usable_server_reports_it_at_once() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let proxy = start_proxy(&[&a]);
    ctl_output(&proxy, "server app/a drain");
    assert_eq!(proxy.get("/").status, 503);
    ctl_output(&proxy, "server app/a ready");
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn a_server_in_maintenance_keeps_no_connection() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let proxy = start_proxy(&[&a, &b]);
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    let idle = |server| {
        let labels = [("pool", "app"), ("server", server)];
        proxy.metrics().sum_known(SERVER_CONNECTIONS_IDLE, &labels)
    };
    assert!(within(EVENT_TIMEOUT, || idle("a") > 0.0 && idle("b") > 0.0));
    ctl_output(&proxy, "server app/a maint");
    let is_left = || idle("a") == 0.0 && server_row(&proxy, "app/a")["in_flight"] == 0;
    assert!(within(EVENT_TIMEOUT, is_left), "{}", idle("a"));
    assert_eq!(server_row(&proxy, "app/a")["state"], "maintenance");
    let had = request_count(&proxy, "app/a");
    background.wait_for(100);
    assert_eq!(request_count(&proxy, "app/a"), had);
    ctl_output(&proxy, "server app/a ready");
    assert!(within(EVENT_TIMEOUT, || request_count(&proxy, "app/a") > had));
    background.finish();
}

#[test]
fn a_weight_of_nothing_is_no_requests_until_it_is_taken_back() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let proxy = start_proxy(&[&a, &b]);
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    ctl_output(&proxy, "server app/a weight 0");
    // Requests that had chosen it before have ended.
    assert!(within(EVENT_TIMEOUT, || server_row(&proxy, "app/a")["in_flight"] == 0));
    let row = server_row(&proxy, "app/a");
    assert_eq!((&row["weight"], &row["weight_configured"]), (&0.into(), &1.into()));
    let had = request_count(&proxy, "app/a");
    background.wait_for(100);
    assert_eq!(request_count(&proxy, "app/a"), had);
    ctl_output(&proxy, "server app/a weight default");
    assert!(within(EVENT_TIMEOUT, || request_count(&proxy, "app/a") > had));
    assert_eq!(server_row(&proxy, "app/a")["weight"], 1);
    background.finish();
}

#[test]
fn a_lower_bound_holds_also_for_those_that_were_there_before() {
    let _shared = shared_machine();
    let gated = GatedServer::start();
    let proxy = ProxyUnderTest::weir(&format!(
        "{}queue = {{ timeout = \"100s\" }}\n",
        config(&[&gated.server.authority])
    ));
    let ask = || {
        let mut stream = connect(proxy.authority());
        stream.write_all(REQUEST).unwrap();
        stream
    };
    // Three requests are in service while it has no limit.
    let mut busy = vec![ask(), ask(), ask()];
    (0..3).for_each(|_| drop(gated.next_target()));
    ctl_output(&proxy, "server app/a maxconn 2");
    let row = server_row(&proxy, "app/a");
    assert_eq!((&row["maxconn"], &row["maxconn_configured"]), (&2.into(), &Value::Null));
    busy.push(ask());
    let queued = || proxy.metrics().sum_known(QUEUED, &[("pool", "app")]);
    assert!(within(EVENT_TIMEOUT, || queued() == 1.0));
    // One of three has ended: two are its limit.
    gated.admit_one();
    assert!(within(EVENT_TIMEOUT, || server_row(&proxy, "app/a")["in_flight"] == 2));
    assert!(queued() == 1.0 && gated.arrivals.try_recv().is_err());
    gated.admit_one();
    gated.next_target();
    // Without a limit no request waits.
    busy.push(ask());
    assert!(within(EVENT_TIMEOUT, || queued() == 1.0));
    ctl_output(&proxy, "server app/a maxconn default");
    gated.next_target();
    (0..3).for_each(|_| gated.admit_one());
    for stream in &mut busy {
        assert_eq!(read_response(stream).status, Some(200));
    }
    assert!(within(EVENT_TIMEOUT, || server_row(&proxy, "app/a")["in_flight"] == 0));
}

#[test]
fn top_shows_what_happens_within_a_second() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let proxy = start_proxy(&[&a, &b]);
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    let mut top = Value::Null;
    let busy = within(EVENT_TIMEOUT, || {
        top = ctl_json(&proxy, "top");
        top["all"][0]["requests_per_s"].as_f64() > Some(0.0)
    });
    assert!(busy, "{top:#}");
    background.finish();
    let all = &top["all"][0];
    assert_eq!((&all["connections"], all["errors_per_s"].as_f64()), (&4.into(), Some(0.0)));
    assert!(all["p50_ns"].as_u64() > Some(0) && all["p99_ns"].as_u64() >= all["p50_ns"].as_u64());
    let rate = |row: &Value| row["requests_per_s"].as_f64().unwrap();
    let servers_rate: f64 = top["servers"].as_array().unwrap().iter().map(rate).sum();
    let pool_rate = rate(&find_row(&top["pools"], "pool", "app"));
    assert!((servers_rate - pool_rate).abs() < 1e-6 * pool_rate.max(1.0), "{top:#}");
    let text = ctl_output(&proxy, "top --once");
    assert!(text.contains("requests/s") && text.contains("\napp/a "), "{text}");
    // A real client, not only the counters.
    assert_eq!(Client::connect(proxy.authority()).get("/").status, 200);
}

#[test]
fn a_server_keeps_its_sticky_clients_until_its_maintenance() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let sticky = "sticky = { cookie = \"SRV\", key = \"0123456789abcdef\" }\n";
    let proxy = ProxyUnderTest::weir(&(config(&[&a.authority, &b.authority]) + sticky));
    ctl_output(&proxy, "server app/b maint");
    let mut client = proxy.client();
    let head = client.get("/").head;
    let cookie = crate::support::faulty_origins::field(&head, "set-cookie").unwrap();
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    ctl_output(&proxy, "server app/b ready");
    let mut served_by = |fields: &str| {
        let body =
            String::from_utf8(client.get_with_fields("/", &format!("Host: test\r\n{fields}")).body).unwrap();
        body.lines().next().unwrap().to_owned()
    };
    for change in ["drain", "weight 0"] {
        let output = ctl_output(&proxy, &format!("server app/a {change}"));
        assert!(output.contains("clients that stick to it stay; maint moves them too"), "{output}");
        assert_eq!((served_by(&cookie), served_by("")), ("a".to_owned(), "b".to_owned()), "{change}");
        for undo in ["ready", "weight default", "weight 1", "maxconn default"] {
            let output = ctl_output(&proxy, &format!("server app/a {undo}"));
            assert!(!output.contains("sticky"), "{output}");
        }
        assert_eq!(served_by(&cookie), "a");
    }
    let output = ctl_output(&proxy, "server app/a maint");
    assert!(!output.contains("sticky"), "{output}");
    assert_eq!(served_by(&cookie), "b");
    // A pool without the cookie needs no note.
    let plain = start_proxy(&[&a, &b]);
    assert!(!ctl_output(&plain, "server app/a drain").contains("sticky"));
}

#[test]
fn servers_are_added_and_removed_while_requests_flow() {
    let named = |name: &'static str| respond_to_each(move |_, _| Some(ok_response(name.as_bytes())));
    let (a, b, c) = (named("a"), named("b"), named("c"));
    let text = config(&[&a.authority, &b.authority]);
    let proxy = ProxyUnderTest::weir(&text);
    let seen =
        || -> BTreeSet<String> { (0..40).map(|_| String::from_utf8(proxy.get("/").body).unwrap()).collect() };
    let set = |names: &str| names.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
    let refused = |words: &str| {
        let output = run_ctl(&proxy, words);
        assert_eq!(output.code, 2, "{words}: {}", output.stdout);
        output.stderr
    };
    let load = {
        let url = format!("http://{}/", proxy.authority());
        std::thread::spawn(move || run_weir(&["load", "-n", "3000", "-c", "8", "-d", "60s", &url]))
    };
    assert!(
        ctl_output(&proxy, &format!("server app/c add {} weight 2 maxconn 9", c.authority)).contains("app/c")
    );
    assert_eq!(seen(), set("a,b,c"));
    let row = server_row(&proxy, "app/c");
    assert_eq!((&row["weight"], &row["maxconn"]), (&2.into(), &9.into()), "{row}");
    ctl_output(&proxy, "server app/a remove");
    assert_eq!(seen(), set("b,c"));
    assert!(refused("server app/a remove").contains("unknown server"));
    assert!(refused("server app/b add 127.0.0.1:9").contains("already"));
    assert!(refused("server other/b remove").contains("unknown pool"));
    // The changes outlive a reload, until the config has the name itself.
    proxy.reload(&text.replace("threads = 2", "threads = 2\ndrain-timeout = \"9s\""));
    ctl_output(&proxy, "reload");
    assert_eq!(seen(), set("b,c"));
    ctl_output(&proxy, "server app/b remove");
    assert!(refused("server app/c remove").contains("only server"));
    ctl_output(&proxy, "server app/a add");
    assert_eq!(seen(), set("a,c"));
    proxy.reload(&config(&[&a.authority, &b.authority, &a.authority]));
    ctl_output(&proxy, "reload");
    assert_eq!(seen(), set("a"));
    let output = load.join().unwrap();
    assert!(output.stdout.contains("3000 good") && output.stdout.contains("errors       none"), "{output:?}");
}

#[test]
fn a_session_by_a_text_keeps_its_server() {
    let _shared = shared_machine();
    let servers = [echoing_server("a"), echoing_server("b"), echoing_server("c")];
    let config = |count: usize| {
        let addresses: Vec<&str> = servers[..count].iter().map(|server| &*server.authority).collect();
        let sticky = "balance = \"round-robin\"\nsticky = { on = \"{header.x-session}{query.sid}\" }\n";
        format!("{}{sticky}", config(&addresses))
    };
    let proxy = ProxyUnderTest::weir(&config(2));
    // Each request on a connection of its own, so that both threads get some.
    let server_of = |line: &str, fields: &str| {
        let mut client = Client::connect(proxy.authority());
        client.send(format!("GET {line} HTTP/1.1\r\nHost: t\r\n{fields}\r\n").as_bytes());
        let body = client.read_response().expect("a response").body;
        char::from(body[0])
    };
    let session = |number: usize| server_of("/", &format!("X-Session: s{number}\r\n"));
    let first: Vec<char> = (0..30).map(session).collect();
    assert!(first.contains(&'a') && first.contains(&'b'), "{first:?}");
    assert_eq!((0..30).map(session).collect::<Vec<_>>(), first);
    assert_eq!(server_of("/?sid=s7", ""), first[7], "the same text from another part");
    // Without a text, requests go to each server in turn.
    let others: Vec<char> = (0..8).map(|_| server_of("/", "")).collect();
    assert!(others.contains(&'a') && others.contains(&'b'), "{others:?}");
    // A new server gets new sessions only.
    proxy.reload(&config(3));
    proxy.metrics_until("the reload", |metrics| {
        metrics.sum("weir_reloads_total", &[("result", "applied")]) == 1.0
    });
    assert_eq!((0..30).map(session).collect::<Vec<_>>(), first);
    assert!((100..130).map(session).any(|server| server == 'c'));
    // Sessions stay in a drain; in maintenance they get another server, and keep that one.
    assert!(ctl_output(&proxy, "server app/a drain").contains("clients that stick to it stay"));
    assert_eq!((0..30).map(session).collect::<Vec<_>>(), first);
    assert!((200..230).map(session).all(|server| server != 'a'));
    ctl_output(&proxy, "server app/a maint");
    let moved: Vec<char> = (0..30).map(session).collect();
    assert!(!moved.contains(&'a'), "{moved:?}");
    ctl_output(&proxy, "server app/a ready");
    assert_eq!((0..30).map(session).collect::<Vec<_>>(), moved);
    let metrics = proxy.metrics();
    let down = first.iter().filter(|server| **server == 'a').count();
    assert_eq!(metrics.sum("weir_sticky_requests_total", &[("cookie", "down")]), down as f64);
}
