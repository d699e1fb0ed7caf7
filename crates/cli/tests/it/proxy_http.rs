//! Tests of `weir proxy` between correct peers, in the corners of HTTP: upgraded protocols, interim
//! responses, pipelining, trailers; and the effect of a drain or a reload on them. `proxy_faults`
//! tests failing peers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use rt::clock::now_ns;
use rustix::process::Signal;

use crate::proxy_faults::{CONFIG_HEAD, end_in_json_log, haproxy_line_for};
use crate::support::client::Client;
use crate::support::faulty_origins::{
    FullBacklog, GatedServer, LaxReader, echoing_server, field, ok_response, reset_on_close, respond_to_each,
    wait_for_close,
};
use crate::support::haproxy_log::HaproxyLogLine;
use crate::support::hostile_client::{connect, read_response};
use crate::support::metrics::{CONNECTIONS_OPEN, QUEUED, REFUSED, RELOADS, REQUESTS_IN_FLIGHT};
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::timing::assert_timing;
use crate::support::{EVENT_TIMEOUT, shared_machine, within};

/// Starts a proxy in front of one server; the texts follow the keys of the listener and of the
/// pool.
fn start_proxy(server: &str, listener: &str, pool: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "drain-timeout = \"4s\"\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         {listener}\n[pool.app]\nservers = [\"{server}\"]\n{pool}\n"
    ))
}

/// Starts a server that upgrades the protocol, sends "hello" at once, and then echoes.
fn upgrading_server(response: &'static [u8]) -> ScriptedServer {
    ScriptedServer::start(move |peer: &mut ScriptPeer| {
        let mut reader = LaxReader::new(peer.stream.try_clone()?);
        let Some(head) = reader.read_until(b"\r\n\r\n")? else { return Ok(()) };
        assert!(!head.is_empty());
        peer.send(response)?;
        let mut bytes = std::mem::take(&mut reader.buffered);
        loop {
            peer.send(&bytes)?;
            bytes.resize(1024, 0);
            let length = peer.stream.read(&mut bytes)?;
            if length == 0 {
                return peer.stream.shutdown(Shutdown::Write);
            }
            bytes.truncate(length);
        }
    })
}

const SWITCHING_RESPONSE: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                        Upgrade: websocket\r\n\r\nhello";
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connected\r\n\r\nhello";

/// Starts a client that has requested an upgrade, got it, and received "hello".
fn upgraded_client(proxy: &ProxyUnderTest, request: &str, status: &str) -> TcpStream {
    let mut client = connect(proxy.authority());
    client.write_all(request.as_bytes()).unwrap();
    let mut reader = LaxReader::new(client.try_clone().unwrap());
    let head = reader.read_until(b"\r\n\r\n").unwrap().expect("a head");
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    assert_eq!(reader.read_exactly(5).unwrap(), b"hello");
    client
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
const CONNECT: &str = "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n";

#[test]
fn an_upgrade_and_a_connect_become_tunnels() {
    let _shared = shared_machine();
    for (request, response, status, part) in
        [(UPGRADE, SWITCHING_RESPONSE, "101", "/ws"), (CONNECT, ESTABLISHED, "200", "example.org:443")]
    {
        let server = upgrading_server(response);
        let proxy = start_proxy(&server.authority, "connect = true", "");
        let mut client = upgraded_client(&proxy, request, status);
        let mut echoed = [0; 4];
        for word in [b"ping", b"pong"] {
            client.write_all(word).unwrap();
            client.read_exact(&mut echoed).unwrap();
            assert_eq!(&echoed, word);
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut echoed).unwrap(), 0);
        let line = haproxy_line_for(&proxy, part);
        assert_eq!((line.code.as_str(), line.status), ("--", status.parse().ok()), "{line:?}");
        proxy.metrics_until("it is over", |metrics| {
            metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
        });
    }
}

#[test]
fn an_upgrade_that_the_server_does_not_want_stays_http() {
    let _shared = shared_machine();
    let server = echoing_server("plain");
    let proxy = start_proxy(&server.authority, "", "");
    let mut client = proxy.client();
    client.send(UPGRADE.as_bytes());
    let response = client.read_response().expect("a response");
    assert!(response.status == 200 && response.body.starts_with(b"plain\n"));
    assert_eq!(client.get("/after").status, 200);
}

#[test]
fn a_change_of_protocol_that_nobody_asked_for_is_refused() {
    let _shared = shared_machine();
    let server = upgrading_server(SWITCHING_RESPONSE);
    let proxy = start_proxy(&server.authority, "", "");
    assert_eq!(proxy.get("/odd").status, 502);
    assert_eq!(haproxy_line_for(&proxy, "/odd").code, "PH");
}

#[test]
fn interim_responses_precede_the_final_one() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        let mut reader = LaxReader::new(peer.stream.try_clone()?);
        while let Some(head) = reader.read_until(b"\r\n\r\n")? {
            let head = String::from_utf8_lossy(&head).into_owned();
            if field(&head, "expect").is_some() {
                peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")?;
            let length = field(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            let body = reader.read_exactly(length)?;
            peer.send(&ok_response(&body))?;
        }
        Ok(())
    });
    let proxy = start_proxy(&server.authority, "", "");
    let mut client = proxy.client();
    client.send(b"POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(client.read_response().expect("a response").status, 100);
    client.send(b"body");
    let hints = client.read_response().expect("a response");
    assert_eq!((hints.status, field(&hints.head, "link").as_deref()), (103, Some("</a>")));
    let last = client.read_response().expect("a response");
    assert_eq!((last.status, last.body.as_slice()), (200, &b"body"[..]));
    // HTTP/1.0 has no interim responses.
    let mut old = proxy.client();
    old.send(b"GET / HTTP/1.0\r\nHost: t\r\n\r\n");
    assert_eq!(old.read_response().expect("a response").status, 200);
}

#[test]
fn pipelined_requests_get_responses_in_order() {
    let _shared = shared_machine();
    let server = echoing_server("a");
    let proxy = start_proxy(&server.authority, "", "");
    let mut client = proxy.client();
    let requests: String = (0..50)
        .map(|number| match number % 3 {
            0 => format!("GET /{number} HTTP/1.1\r\nHost: t\r\n\r\n"),
            1 => format!("POST /{number} HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc"),
            _ => format!(
                "POST /{number} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n"
            ),
        })
        .collect();
    client.send(requests.as_bytes());
    for number in 0..50 {
        let response = client.read_response().expect("a response");
        let body = String::from_utf8_lossy(&response.body).into_owned();
        assert!(body.contains(&format!(" /{number} HTTP/1.1\r\n")), "{number}: {body}");
    }
    assert_eq!(proxy.wait_for_lines("access.json", 50).len(), 50);
}

#[test]
fn an_early_response_reaches_a_client_that_still_sends() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        let _ = peer.request()?;
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")?;
        wait_for_close(peer);
        Ok(())
    });
    let proxy = start_proxy(&server.authority, "", "");
    let mut client = connect(proxy.authority());
    client.write_all(b"POST /early HTTP/1.1\r\nHost: t\r\nContent-Length: 100000000\r\n\r\n").unwrap();
    client.write_all(&[b'x'; 1000]).unwrap();
    let response = read_response(&mut client);
    assert!(response.status == Some(413) && response.is_complete && response.body == b"no", "{response:?}");
    drop(client);
    assert_eq!(end_in_json_log(&proxy, "/early"), "done");
}

#[test]
fn a_client_that_resets_while_its_server_is_being_reached_is_gone_at_once() {
    let _shared = shared_machine();
    let full = FullBacklog::new();
    let proxy = start_proxy(&full.authority, "", "timeouts = { connect = \"100s\" }");
    let mut client = connect(proxy.authority());
    client.write_all(b"GET /gone HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    proxy.metrics_until("it is there", |metrics| metrics.sum_known(REQUESTS_IN_FLIGHT, &[]) == 1.0);
    reset_on_close(&client);
    drop(client);
    // The timeout cannot detect it so soon.
    assert_eq!(haproxy_line_for(&proxy, "/gone").code, "CC");
}

#[test]
fn tunnels_end_with_the_drain_and_are_logged_so() {
    let _shared = shared_machine();
    let server = upgrading_server(SWITCHING_RESPONSE);
    let mut proxy = start_proxy(&server.authority, "", "");
    let mut client = upgraded_client(&proxy, UPGRADE, "101");
    let start_ns = now_ns();
    proxy.process.signal(Signal::TERM);
    // It continues for most of the drain timeout.
    client.write_all(b"still").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    let took_ms = (now_ns() - start_ns) / 1_000_000;
    assert!(took_ms >= 1900, "{took_ms} ms");
    assert_timing(took_ms < 5000, "tunnels that end within a drain of 4 s, in ms", took_ms);
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0, "{}", proxy.stderr());
    assert_eq!(
        (haproxy_line_for(&proxy, "/ws").code.as_str(), &*end_in_json_log(&proxy, "/ws")),
        ("KD", "drained")
    );
}

#[test]
fn a_request_that_the_drain_cuts_off_is_logged_so() {
    let _shared = shared_machine();
    let gated = GatedServer::start();
    let mut proxy = start_proxy(&gated.server.authority, "", "");
    let mut client = connect(proxy.authority());
    client.write_all(b"GET /cut HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    gated.next_target();
    proxy.process.signal(Signal::TERM);
    assert_eq!(read_response(&mut client).status, None);
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0, "{}", proxy.stderr());
    assert_eq!(
        (haproxy_line_for(&proxy, "/cut").code.as_str(), &*end_in_json_log(&proxy, "/cut")),
        ("KH", "drained")
    );
}

#[test]
fn a_connection_that_carried_http_never_becomes_a_tunnel() {
    let _shared = shared_machine();
    let server = respond_to_each(|_, _| Some(ok_response(b"here")));
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [listener.raw]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\nreuse = \"always\"\n",
        server.authority
    ));
    assert_eq!(proxy.get("/").status, 200);
    let mut raw = Client::connect(&proxy.addresses("raw")[0]);
    assert_eq!(raw.get("/").status, 200);
    assert_eq!(server.connections(), 2);
}

/// Formats a config with a listener that a reload removes, and a log of this name.
fn two_listeners(server: &str, other: bool, log: &str) -> String {
    let listener = if other { "[listener.other]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n" } else { "" };
    format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[[log]]\nto = \"file:HOME/{log}\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\
         [pool.app]\nservers = [\"{server}\"]\n"
    )
}

#[test]
fn a_listener_that_goes_with_a_reload_finishes_what_it_has() {
    let _shared = shared_machine();
    let gated = GatedServer::start();
    let server = gated.server.authority.as_str();
    let proxy = ProxyUnderTest::weir(&two_listeners(server, true, "one"));
    let other = proxy.addresses("other")[0].clone();
    let mut busy = connect(&other);
    busy.write_all(b"GET /busy HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    assert_eq!(gated.next_target(), "/busy");
    proxy.reload(&two_listeners(server, false, "two"));
    // No new client is accepted.
    assert!(within(EVENT_TIMEOUT, || !proxy.listens_at(&other)));
    gated.admit_one();
    let mut reader = LaxReader::new(busy);
    let response = reader.read_message().unwrap().expect("a response");
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    // Then its connection closes too.
    assert!(reader.read_until(b"never").unwrap().is_none());
    // A request that ends now is in the current log.
    assert_eq!(proxy.wait_for_lines_with("two", "/busy", 1).len(), 1);
    gated.admit_one();
    assert_eq!(proxy.get("/new").status, 200);
    assert_eq!(proxy.wait_for_lines("two", 2).len(), 2);
    assert_eq!(proxy.lines("one").len(), 0);
}

#[test]
fn a_queue_goes_on_under_the_plan_that_its_requests_came_in_with() {
    let _shared = shared_machine();
    let gated = GatedServer::start();
    let config = |timeout: &str| {
        format!(
            "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
             pool = \"app\"\n[pool.app]\nservers = [{{ address = \"{}\", maxconn = 1 }}]\n\
             queue = {{ limit = 10, timeout = \"{timeout}\" }}\n",
            gated.server.authority
        )
    };
    for (timeout, status) in [("8s", 503), ("100s", 200)] {
        let proxy = ProxyUnderTest::weir(&config(timeout));
        let ask = |target: &str| {
            let mut client = connect(proxy.authority());
            let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            client
        };
        let mut first = ask("/first");
        assert_eq!(gated.next_target(), "/first");
        // On both threads, if the kernel chooses so.
        let mut queued: Vec<TcpStream> = (0..4).map(|_| ask("/queued")).collect();
        proxy.metrics_until("they wait", |metrics| metrics.sum_known(QUEUED, &[("pool", "app")]) == 4.0);
        proxy.reload(&config("200s"));
        assert!(within(EVENT_TIMEOUT, || proxy.stdout().contains("config applied")));
        for client in &mut queued {
            if status == 200 {
                gated.admit_one();
                assert_eq!(gated.next_target(), "/queued");
            } else {
                assert_eq!(read_response(client).status, Some(503));
            }
        }
        gated.admit_one();
        for client in queued.iter_mut().filter(|_| status == 200) {
            assert_eq!(read_response(client).status, Some(200));
        }
        assert_eq!(read_response(&mut first).status, Some(200));
    }
}

#[test]
fn a_rate_limit_is_not_lifted_by_a_reload() {
    let _shared = shared_machine();
    let config = |version: u32| {
        format!(
            "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
             [[route]]\npath = \"/version\"\nreturn = {{ status = 200, body = \"{version}\" }}\n\
             [[route]]\nname = \"slow\"\nrate-limit = {{ rate = 0.01, burst = 1 }}\n\
             return = {{ status = 200, body = \"here\" }}\n"
        )
    };
    let proxy = ProxyUnderTest::weir(&config(1));
    assert_eq!(proxy.get("/").status, 200);
    proxy.reload(&config(2));
    assert!(within(EVENT_TIMEOUT, || proxy.get("/version").body == b"2"));
    assert_eq!(proxy.get("/").status, 429);
}

#[test]
fn a_reload_that_cannot_have_its_address_changes_nothing() {
    let _shared = shared_machine();
    let server = echoing_server("a");
    let proxy = ProxyUnderTest::weir(&two_listeners(&server.authority, true, "one"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = two_listeners(&server.authority, false, "two")
        + &format!("[listener.taken]\nbind = \"{address}\"\npool = \"app\"\n");
    proxy.reload(&config);
    let refused = [("result", "refused")];
    proxy.metrics_until("it is refused", |metrics| metrics.sum_known(RELOADS, &refused) == 1.0);
    assert!(within(EVENT_TIMEOUT, || proxy.stderr().contains(&address)), "{}", proxy.stderr());
    for listener in ["web", "other"] {
        let address = &proxy.addresses(listener)[0];
        assert_eq!(Client::connect(address).get("/").status, 200, "{listener}");
    }
    assert_eq!(proxy.wait_for_lines("one", 2).len(), 2);
    // The next valid config is applied.
    drop(taken);
    proxy.reload(&two_listeners(&server.authority, false, "three"));
    let other = proxy.addresses("other")[0].clone();
    assert!(within(EVENT_TIMEOUT, || !proxy.listens_at(&other)));
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(proxy.wait_for_lines("three", 1).len(), 1);
}

#[test]
fn the_limit_of_connections_holds_for_all_threads_together() {
    let _shared = shared_machine();
    for (global, own) in [("", "connections-max = 8"), ("connections-max = 8", "")] {
        let proxy = ProxyUnderTest::weir(&format!(
            "{global}\nthreads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\n\
             bind = \"127.0.0.1:0\"\n{own}\n[[route]]\nreturn = {{ status = 200, body = \"x\" }}\n"
        ));
        let clients: Vec<Client> = (0..40).map(|_| proxy.client()).collect();
        let open =
            |proxy: &ProxyUnderTest| proxy.metrics().sum_known(CONNECTIONS_OPEN, &[("listener", "web")]);
        assert!(within(EVENT_TIMEOUT, || open(&proxy) == 8.0), "{}", open(&proxy));
        proxy.metrics_until("some have to wait", |metrics| metrics.sum_known(REFUSED, &[]) >= 1.0);
        // As connections end, every one of the others gets its turn.
        let asking = clients
            .into_iter()
            .map(|mut client| std::thread::spawn(move || assert_eq!(client.get("/").status, 200)));
        for handle in asking.collect::<Vec<_>>() {
            assert!(open(&proxy) <= 8.0, "{}", proxy.metrics());
            handle.join().unwrap();
        }
    }
}

#[test]
fn haproxy_log_lines_of_tunnels_have_their_bytes() {
    let _shared = shared_machine();
    let server = upgrading_server(SWITCHING_RESPONSE);
    let proxy = start_proxy(&server.authority, "", "");
    let mut client = upgraded_client(&proxy, UPGRADE, "101");
    client.write_all(&[b'x'; 3000]).unwrap();
    client.read_exact(&mut [0; 3000]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let line = HaproxyLogLine::http(&proxy.wait_for_lines_with("access.haproxy", "/ws", 1)[0]);
    // The head, "hello", and the echoed bytes.
    assert!((3005..3400).contains(&line.bytes), "{line:?}");
}
