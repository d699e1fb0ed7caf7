//! Second attempts of late requests.

use rt::clock::{MILLISECOND_NS, MonotonicTime};

use super::{CONFIG_HEAD, HEDGES, ObedientServer, get, hello, http2_adapter, log_line, read_all, send};
use crate::support::faulty_origins::{FullBacklog, ok_response};
use crate::support::hostile_client::{ReceivedResponse, read_response};
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::shared_machine;
use crate::support::tls_peers::curl;

/// A proxy with two servers, of which the first one gets all requests.
struct HedgeSetup {
    proxy: ProxyUnderTest,
    first: ObedientServer,
    second: ObedientServer,
}

fn config(servers: &[&str], route: &str, pool: &str) -> String {
    format!(
        "{CONFIG_HEAD}[[route]]\nname = \"main\"\npool = \"app\"\n{route}\n\
         [pool.app]\nbalance = \"first\"\nservers = {servers:?}\n{pool}\n"
    )
}

const HEDGE: &str = "hedge = { after = \"20ms\" }";

impl HedgeSetup {
    fn start(route: &str, pool: &str) -> Self {
        let (first, second) = (ObedientServer::start(), ObedientServer::start());
        let proxy = ProxyUnderTest::weir(&config(&[first.authority(), second.authority()], route, pool));
        Self { proxy, first, second }
    }

    /// Sends a request that both servers have.
    fn hedge(&self, target: &str) -> std::net::TcpStream {
        let client = get(self.proxy.authority(), target);
        assert_eq!(self.first.next_request().target(), target);
        let again = self.second.next_request();
        assert_eq!(again.target(), target);
        client
    }

    fn count(&self, result: &str) -> f64 {
        self.proxy.metrics().sum_known(HEDGES, &[("route", "main"), ("result", result)])
    }

    /// Checks the number of second attempts that were sent, and that each has ended like this.
    fn assert_ended(&self, result: &str, count: u32) {
        self.proxy.metrics_until(&format!("{result} {count}"), |metrics| {
            metrics.sum(HEDGES, &[("result", result)]) == f64::from(count)
        });
        let ended = ["won", "lost", "failed"].map(|result| self.count(result)).iter().sum::<f64>();
        assert_eq!(self.count("sent"), ended);
        self.proxy.assert_all_returned();
    }
}

fn expect_hello(client: &mut std::net::TcpStream) -> ReceivedResponse {
    let response = read_response(client);
    assert_eq!((response.status, response.text().as_str()), (Some(200), "hello"), "{}", response.head);
    response
}

#[test]
fn the_second_attempt_wins_whatever_its_size_and_the_first_is_cancelled() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start(HEDGE, "");
    let mut client = setup.hedge("/long");
    let body: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    setup.second.reply(ok_response(&body));
    setup.first.wait_for_end();
    let bytes = read_all(&mut client);
    assert!(bytes.ends_with(&body) && bytes.starts_with(b"HTTP/1.1 200 OK\r\n"));
    let line = log_line(&setup.proxy, "/long");
    assert_eq!((&line["hedge"], &line["status"], &line["end"]), (&"won".into(), &200.into(), &"done".into()));
    assert_eq!(line["server"], setup.second.authority());
    setup.assert_ended("won", 1);
    // Chunks, and an end by closing.
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec();
    let mut client = setup.hedge("/chunked");
    setup.second.reply(chunked);
    let response = read_response(&mut client);
    assert!(response.is_complete && response.text().contains("hello"), "{}", response.head);
    setup.assert_ended("won", 2);
}

#[test]
fn the_second_attempt_loses_and_is_cancelled() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start(HEDGE, "");
    let mut client = setup.hedge("/");
    setup.first.reply(hello());
    expect_hello(&mut client);
    setup.second.wait_for_end();
    let line = log_line(&setup.proxy, "/");
    assert_eq!((&line["hedge"], &line["server"]), (&"lost".into(), &setup.first.authority().into()));
    setup.assert_ended("lost", 1);
}

#[test]
fn a_response_in_time_a_body_and_other_methods_are_not_hedged() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start("hedge = { after = \"1h\" }", "");
    let mut client = get(setup.proxy.authority(), "/in-time");
    setup.first.next_request();
    setup.first.reply(hello());
    expect_hello(&mut client);
    assert!(log_line(&setup.proxy, "/in-time")["hedge"].is_null());
    assert_eq!(setup.count("sent"), 0.0);
    drop(setup);
    let setup = HedgeSetup::start(HEDGE, "");
    let mut post = send(
        setup.proxy.authority(),
        "POST /post HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
    );
    assert_eq!(setup.first.next_request().target(), "/post");
    // A body longer than what is held for retries.
    let long = "x".repeat(40_000);
    let request = format!(
        "PUT /long HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{long}",
        long.len()
    );
    let mut put = send(setup.proxy.authority(), &request);
    assert_eq!(setup.first.next_request().target(), "/long");
    // A short one is held, and sent again.
    let mut short = send(
        setup.proxy.authority(),
        "PUT /short HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
    );
    assert_eq!(setup.first.next_request().target(), "/short");
    let again = setup.second.next_request();
    assert_eq!((again.target(), &*again.body), ("/short", &b"abc"[..]));
    setup.second.reply(hello());
    expect_hello(&mut short);
    setup.first.wait_for_end();
    setup.first.reply(hello());
    setup.first.reply(hello());
    for client in [&mut post, &mut put] {
        expect_hello(client);
    }
    assert_eq!(setup.count("sent"), 1.0);
}

#[test]
fn without_budget_or_another_server_the_first_one_is_waited_for() {
    let _shared = shared_machine();
    for (pool, one_server, result) in [
        ("retry-budget = { ratio = 0, min = 0 }", false, "no_budget"),
        ("retries = 0\nretry-budget = { ratio = 0, min = 0 }", false, "no_budget"),
        ("", true, "no_server"),
    ] {
        let setup = match one_server {
            false => HedgeSetup::start(HEDGE, pool),
            true => {
                let (first, second) = (ObedientServer::start(), ObedientServer::start());
                let proxy = ProxyUnderTest::weir(&config(&[first.authority()], HEDGE, pool));
                HedgeSetup { proxy, first, second }
            }
        };
        let mut client = get(setup.proxy.authority(), "/");
        setup.first.next_request();
        setup.proxy.metrics_until(result, |metrics| metrics.sum(HEDGES, &[("result", result)]) == 1.0);
        setup.first.reply(hello());
        expect_hello(&mut client);
        assert!(setup.second.has_no_request());
        setup.assert_ended("won", 0);
    }
}

#[test]
fn if_the_first_attempt_fails_the_second_takes_its_place() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start(HEDGE, "retries = 0");
    let mut client = setup.hedge("/closed");
    setup.first.close();
    setup.second.reply(hello());
    expect_hello(&mut client);
    assert_eq!(log_line(&setup.proxy, "/closed")["hedge"], "won");
    let mut client = setup.hedge("/malformed");
    setup.first.reply(b"nonsense\r\n\r\n".to_vec());
    setup.second.reply(hello());
    expect_hello(&mut client);
    setup.assert_ended("won", 2);
    // The first one takes too long.
    let setup = HedgeSetup::start(&format!("{HEDGE}\ntimeouts = {{ first-byte = \"300ms\" }}"), "");
    let mut client = setup.hedge("/late");
    setup.first.wait_for_end();
    setup.second.reply(hello());
    expect_hello(&mut client);
    setup.assert_ended("won", 1);
}

#[test]
fn if_both_fail_the_client_gets_an_error() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start(HEDGE, "retries = 0");
    for (first, target) in [(true, "/first"), (false, "/second")] {
        let mut client = setup.hedge(target);
        let (earlier, later) =
            if first { (&setup.first, &setup.second) } else { (&setup.second, &setup.first) };
        earlier.close();
        later.close();
        assert_eq!(read_response(&mut client).status, Some(502));
        let line = log_line(&setup.proxy, target);
        assert_eq!((&line["end"], &line["hedge"]), (&"server_closed".into(), &"failed".into()));
    }
    // An error of the second server is not forwarded while the first one works.
    let mut client = setup.hedge("/error");
    setup.second.reply_status(503);
    setup.proxy.metrics_until("failed", |metrics| metrics.sum(HEDGES, &[("result", "failed")]) == 3.0);
    setup.first.reply(hello());
    expect_hello(&mut client);
    setup.assert_ended("failed", 3);
}

#[test]
fn a_status_that_is_retried_leaves_the_second_attempt() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start(&format!("{HEDGE}\nretry-on = \"503\""), "");
    let mut client = setup.hedge("/");
    setup.first.reply_status(503);
    setup.second.reply(hello());
    expect_hello(&mut client);
    assert_eq!(log_line(&setup.proxy, "/")["retries"], 0);
    setup.assert_ended("won", 1);
    // Other errors of the first server are forwarded.
    let mut client = setup.hedge("/other");
    setup.first.reply_status(500);
    assert_eq!(read_response(&mut client).status, Some(500));
    setup.second.wait_for_end();
    setup.assert_ended("lost", 1);
}

#[test]
fn a_server_that_accepts_no_connection_is_late_too() {
    let _shared = shared_machine();
    let (full, second) = (FullBacklog::new(), ObedientServer::start());
    let proxy = ProxyUnderTest::weir(&config(&[&full.authority, second.authority()], HEDGE, ""));
    let mut client = get(proxy.authority(), "/");
    second.next_request();
    second.reply(hello());
    expect_hello(&mut client);
    proxy.metrics_until("won", |metrics| metrics.sum(HEDGES, &[("result", "won")]) == 1.0);
    proxy.assert_all_returned();
}

#[test]
fn both_attempts_end_with_their_client() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start(HEDGE, "");
    drop(setup.hedge("/"));
    setup.first.wait_for_end();
    setup.second.wait_for_end();
    assert_eq!(log_line(&setup.proxy, "/")["end"], "client_gone");
    setup.assert_ended("lost", 1);
}

#[test]
fn servers_with_a_limit_keep_the_slot_of_a_cancelled_attempt_until_it_ends() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start(HEDGE, "");
    let servers = [setup.first.authority(), setup.second.authority()]
        .map(|server| format!("{{ address = \"{server}\", maxconn = 1 }}"));
    let text = config(&[], HEDGE, "").replace("servers = []", &format!("servers = [{}]", servers.join(", ")));
    setup.proxy.reload(&text);
    setup.proxy.metrics_until("reloaded", |metrics| {
        metrics.sum("weir_reloads_total", &[("result", "applied")]) == 1.0
    });
    for winner in [&setup.first, &setup.second] {
        let mut client = setup.hedge("/");
        winner.reply(hello());
        expect_hello(&mut client);
        // The other server sees the end of the proxy's side, and ends its own.
        let loser = if std::ptr::eq(winner, &setup.first) { &setup.second } else { &setup.first };
        loser.wait_for_end();
        setup.proxy.assert_all_returned();
    }
    assert_eq!(setup.proxy.metrics().sum_known("weir_abandoned_requests_total", &[]), 2.0);
}

#[test]
fn attempts_over_http2_are_streams() {
    let _shared = shared_machine();
    let (first, second) = (ObedientServer::start(), ObedientServer::start());
    let adapters =
        [&first, &second].map(|server| http2_adapter(&format!("servers = [\"{}\"]", server.authority())));
    let servers = [adapters[0].authority(), adapters[1].authority()];
    let proxy = ProxyUnderTest::weir(&config(&servers, HEDGE, "http = \"2\""));
    let setup = HedgeSetup { proxy, first, second };
    let mut client = setup.hedge("/won");
    setup.second.reply(hello());
    expect_hello(&mut client);
    setup.first.wait_for_end();
    let mut client = setup.hedge("/lost");
    setup.first.reply(hello());
    expect_hello(&mut client);
    setup.second.wait_for_end();
    setup.assert_ended("won", 1);
    setup.assert_ended("lost", 1);
    setup
        .proxy
        .metrics_until("no stream", |metrics| metrics.sum("weir_server_http2_streams_open", &[]) == 0.0);
    let resets = setup.proxy.metrics().sum_known("weir_server_http2_resets_total", &[("from", "proxy")]);
    assert_eq!(resets, 2.0);
}

#[test]
fn second_attempts_outlive_a_reload_and_a_drain() {
    let _shared = shared_machine();
    let mut setup = HedgeSetup::start(HEDGE, "");
    let mut client = setup.hedge("/reload");
    setup.proxy.reload(&config(&[setup.first.authority()], "", ""));
    setup.proxy.metrics_until("reloaded", |metrics| {
        metrics.sum("weir_reloads_total", &[("result", "applied")]) == 1.0
    });
    setup.second.reply(hello());
    expect_hello(&mut client);
    setup.proxy.metrics_until("won", |metrics| metrics.sum(HEDGES, &[("result", "won")]) == 1.0);
    setup.proxy.reload(&config(&[setup.first.authority(), setup.second.authority()], HEDGE, ""));
    setup
        .proxy
        .metrics_until("again", |metrics| metrics.sum("weir_reloads_total", &[("result", "applied")]) == 2.0);
    setup.proxy.assert_all_returned();
    let mut client = setup.hedge("/drain");
    setup.proxy.process.signal(rustix::process::Signal::TERM);
    setup.second.reply(hello());
    expect_hello(&mut client);
    assert_eq!(setup.proxy.process.wait(EVENT_TIMEOUT), 0, "{}", setup.proxy.stderr());
}

#[test]
fn a_percentile_needs_response_times() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start("hedge = { after = \"p95\", samples-min = 3 }", "");
    for _ in 0..3 {
        let mut client = get(setup.proxy.authority(), "/");
        setup.first.next_request();
        setup.first.reply(hello());
        expect_hello(&mut client);
    }
    let mut client = setup.hedge("/late");
    setup.second.reply(hello());
    expect_hello(&mut client);
    setup.assert_ended("won", 1);
}

#[test]
fn a_connection_that_the_second_server_has_closed_is_replaced() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start(HEDGE, "");
    // The second server's connection is kept.
    let mut client = setup.hedge("/kept");
    setup.second.reply(hello());
    expect_hello(&mut client);
    // It ends that with the next request, and gets it again on a new one.
    let mut client = get(setup.proxy.authority(), "/again");
    setup.first.next_request();
    setup.second.next_request();
    setup.second.close();
    assert_eq!(setup.second.next_request().target(), "/again");
    setup.second.reply(hello());
    expect_hello(&mut client);
    setup.assert_ended("won", 2);
}

#[test]
fn whichever_attempt_wins_has_the_limit_of_bytes_per_second() {
    let _shared = shared_machine();
    let setup = HedgeSetup::start(&format!("{HEDGE}\nlimit-rate = 100000"), "");
    let body: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
    for (winner, loser, target, result) in
        [(&setup.second, &setup.first, "/second", "won"), (&setup.first, &setup.second, "/first", "lost")]
    {
        let mut client = setup.hedge(target);
        let start = MonotonicTime::now();
        winner.reply(ok_response(&body));
        loser.wait_for_end();
        assert!(read_all(&mut client).ends_with(&body), "{target}");
        let elapsed_ns = MonotonicTime::now().since(start);
        assert!(elapsed_ns >= 1_900 * MILLISECOND_NS, "{target}: {elapsed_ns}");
        assert_eq!(log_line(&setup.proxy, target)["hedge"], result);
        setup.assert_ended(result, 1);
    }
    assert!(setup.proxy.metrics().sum_known("weir_limit_rate_waits_total", &[]) > 0.0);
}

#[test]
fn streams_of_http2_clients_are_hedged_with_their_bodies_over_http2() {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let (first, second) = (ObedientServer::start(), ObedientServer::start());
    let adapters =
        [&first, &second].map(|server| http2_adapter(&format!("servers = [\"{}\"]", server.authority())));
    let servers = [adapters[0].authority(), adapters[1].authority()];
    let proxy = ProxyUnderTest::weir(&config(&servers, HEDGE, "http = \"2\""));
    let setup = HedgeSetup { proxy, first, second };
    for (winner, loser, result) in
        [(&setup.second, &setup.first, "won"), (&setup.first, &setup.second, "lost")]
    {
        let url = format!("http://{}/{result}", setup.proxy.authority());
        let client = std::thread::spawn(move || {
            curl(&["--http2-prior-knowledge", "-i", "-X", "PUT", "--data-binary", "abc", &url])
        });
        for server in [&setup.first, &setup.second] {
            let request = server.next_request();
            assert_eq!((request.method(), &*request.body), ("PUT", &b"abc"[..]), "{result}");
        }
        winner.reply(hello());
        let (code, output) = client.join().unwrap();
        let output = String::from_utf8_lossy(&output).into_owned();
        assert!(
            code == 0 && output.starts_with("HTTP/2 200") && output.ends_with("hello"),
            "{code} {output}"
        );
        loser.wait_for_end();
        setup.assert_ended(result, 1);
    }
}
