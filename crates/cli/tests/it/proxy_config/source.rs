//! Source addresses of the connections to servers.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use super::{body_text, start_proxy};
use crate::support::faulty_origins::{LaxReader, ok_response};
use crate::support::metrics::CHECKS;
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::{ProxyUnderTest, StartOptions};
use crate::support::{EVENT_TIMEOUT, run_weir, shared_machine, temp_dir, within};

/// Starts a server whose responses contain the address of the peer. Sends each peer's address to the
/// receiver, too.
fn peer_reporting_server(address: &str) -> (ScriptedServer, Receiver<String>) {
    let (sender, peers) = channel();
    let server = ScriptedServer::start_at(address, move |peer| {
        let address = peer.address().ip().to_string();
        let _ = sender.send(address.clone());
        while peer.request()?.is_some() {
            peer.send(&ok_response(address.as_bytes()))?;
        }
        Ok(())
    });
    (server, peers)
}

/// Returns the peer addresses that the server sees of requests on connections of their own.
fn peer_addresses(proxy: &ProxyUnderTest, target: &str, count: usize) -> Vec<String> {
    (0..count).map(|_| body_text(&proxy.get(target))).collect()
}

#[test]
fn source_addresses_are_used_in_turn() {
    let _shared = shared_machine();
    let (ipv4, _) = peer_reporting_server("127.0.0.1:0");
    let (ipv6, _) = peer_reporting_server("[::1]:0");
    let config = |sources: &str| {
        format!(
            "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"four\"\n\
             [[route]]\npath = \"/6\"\npool = \"six\"\n\
             [pool.four]\nservers = [\"{}\"]\nreuse = \"never\"\nsource = {sources}\n\
             [pool.six]\nservers = [\"{}\"]\nsource = [\"127.0.0.2\", \"::1\"]\n",
            ipv4.authority, ipv6.authority
        )
    };
    let proxy = ProxyUnderTest::weir(&config("[\"127.0.0.2\", \"127.0.0.3\"]"));
    let expected = ["127.0.0.2", "127.0.0.3", "127.0.0.2", "127.0.0.3"];
    assert_eq!(peer_addresses(&proxy, "/", 4), expected);
    assert_eq!(peer_addresses(&proxy, "/6", 2), ["::1", "::1"]);
    // An address that is missing is an error of the reload, and the previous plan stays.
    proxy.reload(&config("\"192.0.2.1\""));
    proxy.wait_for_lines_with("stderr", "192.0.2.1", 1);
    assert_eq!(peer_addresses(&proxy, "/", 2), expected[..2]);
    proxy.reload(&config("\"127.0.0.4\""));
    let is_applied = within(EVENT_TIMEOUT, || peer_addresses(&proxy, "/", 2) == ["127.0.0.4", "127.0.0.4"]);
    assert!(is_applied, "{}", proxy.stderr());
    proxy.assert_all_returned();
}

#[test]
fn idle_connections_from_a_previous_source_address_are_not_used() {
    let _shared = shared_machine();
    let (origin, _) = peer_reporting_server("127.0.0.1:0");
    let config = |source: u8| {
        format!(
            "admin = \"127.0.0.1:0\"\nthreads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [pool.app]\nservers = [\"{}\"]\nreuse = \"always\"\nsource = \"127.0.0.{source}\"\n",
            origin.authority
        )
    };
    let proxy = ProxyUnderTest::weir(&config(2));
    assert_eq!(peer_addresses(&proxy, "/", 3), ["127.0.0.2"; 3]);
    assert_eq!(origin.connections(), 1);
    proxy.reload(&config(3));
    let is_applied = within(EVENT_TIMEOUT, || peer_addresses(&proxy, "/", 2) == ["127.0.0.3"; 2]);
    assert!(is_applied, "{}", proxy.stderr());
}

#[test]
fn health_checks_and_http2_have_the_source_addresses_too() {
    let _shared = shared_machine();
    let (origin, peers) = peer_reporting_server("127.0.0.1:0");
    let proxy = start_proxy(&format!(
        "pool = \"app\"\n[pool.app]\nservers = [\"{}\"]\nsource = [\"127.0.0.2\", \"127.0.0.3\"]\n\
         check = {{ type = \"http\", interval = \"20ms\", timeout = \"5s\" }}\n",
        origin.authority
    ));
    proxy.metrics_until("checks pass", |metrics| metrics.sum(CHECKS, &[("result", "passed")]) >= 4.0);
    let mut seen: Vec<String> = peers.iter().take(4).collect();
    seen.sort();
    assert_eq!(seen, ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]);
    drop(proxy);
    // The server does not begin HTTP/2, but has the connection.
    let (origin, peers) = peer_reporting_server("127.0.0.1:0");
    let proxy = start_proxy(&format!(
        "pool = \"app\"\n[pool.app]\nservers = [\"{}\"]\nhttp = \"2\"\nsource = \"127.0.0.4\"\n",
        origin.authority
    ));
    assert_eq!(proxy.get("/").status, 502);
    assert_eq!(peers.recv_timeout(EVENT_TIMEOUT).as_deref(), Ok("127.0.0.4"));
}

#[test]
fn a_source_address_that_no_interface_has_is_an_error_at_the_start() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = directory.path().join("weir.toml");
    let text = "[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
                [pool.app]\nservers = [\"127.0.0.1:1\"]\nsource = [\"127.0.0.2\", \"192.0.2.1\"]\n";
    std::fs::write(&path, text).unwrap();
    for flags in [&["--check"][..], &[]] {
        let output = run_weir(&[&["proxy", "--config", path.to_str().unwrap()], flags].concat());
        assert_eq!(output.code, 2, "{output:?}");
        assert!(
            output.stderr.contains("weir.toml:6:24: no interface has the address 192.0.2.1"),
            "{}",
            output.stderr
        );
    }
}

/// Starts a proxy in a network namespace in which a source address has two ports for each target. Its
/// clients use unix sockets; its server is a listener of its own. `None`, with the reason printed: this
/// machine does not allow it.
fn proxy_with_two_ports_per_address() -> Option<ProxyUnderTest> {
    let script = "ip link set lo up && ip address add 192.0.2.8 dev lo && ip address add 192.0.2.9 dev lo && \
                  sysctl -q net.ipv4.ip_local_port_range='20000 20001' && exec \"$@\"";
    let unshare = ["unshare", "-n", "sh", "-c"];
    let tried = Command::new(unshare[0]).args(&unshare[1..]).args([script, "sh", "true"]).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        test_needs::skip(test_needs::ROOT, "no network namespace can be made here");
        return None;
    }
    let prefix = [&unshare[..], &[script, "sh"]].concat();
    let options = StartOptions { prefix: &prefix, ..StartOptions::default() };
    let config = "threads = 1\n[[log]]\nto = \"file:HOME/log\"\n\
                  [listener.back]\nbind = \"127.0.0.1:9000\"\n[[route]]\nlistener = \"back\"\n\
                  return = { status = 200, body = \"here\" }\n\
                  [listener.web]\nbind = \"unix:HOME/web\"\npool = \"app\"\n\
                  [listener.raw]\nbind = \"unix:HOME/raw\"\nmode = \"tcp\"\npool = \"app\"\n\
                  [pool.app]\nservers = [\"127.0.0.1:9000\"]\nreuse = \"never\"\nretries = 0\n\
                  outlier = { failures = 1 }\nsource = [\"192.0.2.8\", \"192.0.2.9\"]\n";
    Some(ProxyUnderTest::weir_with_options(config, &options))
}

/// Sends a request on a new connection to a unix socket. Returns the connection and the status.
fn request_over(path: &Path) -> (UnixStream, Option<u16>) {
    let mut client = UnixStream::connect(path).unwrap();
    client.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    let response = LaxReader::new(&client).read_message().ok().flatten();
    let status = response.and_then(|response| response.head.split(' ').nth(1)?.parse().ok());
    (client, status)
}

#[test]
fn a_second_source_address_doubles_the_ports_and_replaces_a_lost_one() {
    let _shared = shared_machine();
    let Some(proxy) = proxy_with_two_ports_per_address() else { return };
    let (web, raw) = (proxy.file("web"), proxy.file("raw"));
    let mut open: Vec<UnixStream> = Vec::new();
    for number in 0..4 {
        let (client, status) = request_over(&raw);
        assert_eq!(status, Some(200), "connection {number}: {}", proxy.stderr());
        open.push(client);
    }
    assert_eq!(request_over(&web).1, Some(503));
    proxy.wait_for_lines_with("log", "no_descriptor", 1);
    // A server that cannot be reached because of the proxy's host is not ejected.
    drop(open.pop());
    let is_free = within(EVENT_TIMEOUT, || request_over(&web).1 == Some(200));
    assert!(is_free, "{:?}", proxy.lines("log"));
    drop(open);

    let process = proxy.process.id().to_string();
    let remove_address = |address: &str| {
        let mut command = Command::new("nsenter");
        command.args(["-n", "-t", &process, "ip", "address", "del", address, "dev", "lo"]);
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
    };
    remove_address("192.0.2.8/32");
    let is_replaced = within(EVENT_TIMEOUT, || request_over(&web).1 == Some(200));
    assert!(is_replaced, "{:?}", proxy.lines("log"));
    remove_address("192.0.2.9/32");
    assert_eq!(request_over(&web).1, Some(503));
    proxy.wait_for_lines_with("log", "no_source_address", 1);
}
