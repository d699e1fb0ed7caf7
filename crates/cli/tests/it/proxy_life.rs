//! The life of connections and requests in `weir proxy`: clients that leave, connections that end
//! while bytes are in flight, slow peers, slots and buffers that are returned.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rt::clock::now_ns;

use super::proxy_faults::{CONFIG_HEAD, end_in_json_log, haproxy_line_for};
use crate::support::faulty_origins::{
    FullBacklog, GatedServer, ok_response, reset_on_close, respond_to_each, wait_for_close,
};
use crate::support::hostile_client::{BackgroundClients, connect, read_response};
use crate::support::metrics::{BUFFERS_LENT, QUEUED, RETRIES};
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, exclusive_machine, pause_ms, shared_machine, within};

fn start_proxy(server: &str, listener: &str, pool: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
         [pool.app]\nservers = [{{ address = \"{server}\", maxconn = 1 }}]\n{pool}\n"
    ))
}

fn send(proxy: &ProxyUnderTest, request: &str) -> TcpStream {
    let mut client = connect(proxy.authority());
    client.write_all(request.as_bytes()).unwrap();
    client
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n")
}

/// Asserts that a client that ends its stream and waits gets nothing but the end.
fn assert_dropped(client: &mut TcpStream, what: &str) {
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes);
    assert!(bytes.is_empty(), "{what}: {}", String::from_utf8_lossy(&bytes));
}

/// Starts a server that works on `/hangs` until its client ends its stream.
fn cancellation_server(cancelled: &Arc<AtomicUsize>) -> ScriptedServer {
    let cancelled = Arc::clone(cancelled);
    respond_to_each(move |request, peer| {
        if request.target() == "/hangs" {
            wait_for_close(peer);
            cancelled.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        Some(ok_response(b"done"))
    })
}

#[test]
fn a_client_that_ends_its_stream_aborts_its_request_wherever_that_is() {
    let _shared = shared_machine();
    let cancelled = Arc::new(AtomicUsize::new(0));
    let server = cancellation_server(&cancelled);
    let pool = "queue = { timeout = \"100s\" }\ntimeouts = { abandoned = \"100s\" }";
    let proxy = start_proxy(&server.authority, "", pool);
    let mut at_work = send(&proxy, &get("/hangs"));
    proxy.metrics_until("the server has it", |metrics| metrics.sum_known("weir_server_slots", &[]) == 1.0);
    let mut queued = send(&proxy, &get("/queued"));
    proxy.metrics_until("it is queued", |metrics| metrics.sum_known(QUEUED, &[]) == 1.0);
    queued.shutdown(Shutdown::Write).unwrap();
    assert_dropped(&mut queued, "queued");
    assert_eq!(
        (end_in_json_log(&proxy, "/queued"), haproxy_line_for(&proxy, "/queued").code),
        status_pair("CQ")
    );
    at_work.shutdown(Shutdown::Write).unwrap();
    assert_dropped(&mut at_work, "at a server");
    assert_eq!(
        (end_in_json_log(&proxy, "/hangs"), haproxy_line_for(&proxy, "/hangs").code),
        status_pair("CH")
    );
    // The server has cancelled it, and its slot is free long before `abandoned`.
    assert_eq!(proxy.get("/next").status, 200);
    assert!(within(EVENT_TIMEOUT, || cancelled.load(Ordering::SeqCst) == 1));
    proxy.assert_all_returned();

    let full = FullBacklog::new();
    let proxy = start_proxy(&full.authority, "", "timeouts = { connect = \"100s\" }");
    let mut connecting = send(&proxy, &get("/connecting"));
    connecting.shutdown(Shutdown::Write).unwrap();
    assert_dropped(&mut connecting, "connecting");
    assert_eq!(
        (end_in_json_log(&proxy, "/connecting"), haproxy_line_for(&proxy, "/connecting").code),
        status_pair("CC")
    );
}

fn status_pair(code: &str) -> (String, String) {
    ("client_gone".to_owned(), code.to_owned())
}

#[test]
fn the_end_of_a_stream_is_seen_behind_a_pipelined_request() {
    let _shared = shared_machine();
    let gated = GatedServer::start();
    let proxy = start_proxy(&gated.server.authority, "", "");
    let mut client = send(&proxy, &get("/first"));
    assert_eq!(gated.next_target(), "/first");
    client.write_all(get("/second").as_bytes()).unwrap();
    // By now the proxy has most likely read it; otherwise it reads it together with the end.
    pause_ms(50);
    client.shutdown(Shutdown::Write).unwrap();
    assert_dropped(&mut client, "behind another request");
    assert_eq!(end_in_json_log(&proxy, "/first"), "client_gone");
    gated.admit_one();
    proxy.assert_all_returned();
}

#[test]
fn with_half_close_a_client_that_ends_its_stream_gets_its_responses() {
    let _shared = shared_machine();
    let gated = GatedServer::start();
    let proxy = start_proxy(&gated.server.authority, "half-close = true", "");
    let mut client = send(&proxy, &(get("/first") + &get("/second")));
    client.shutdown(Shutdown::Write).unwrap();
    for target in ["/first", "/second"] {
        assert_eq!(gated.next_target(), target);
        gated.admit_one();
    }
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes).matches("through").count(), 2);
}

/// Starts a server that begins its response to `/silent…`, and sends nothing more until its client leaves.
fn silent_server() -> ScriptedServer {
    respond_to_each(|request, peer| {
        let start: &[u8] = match request.target() {
            "/silent-events" => {
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n\
                  9\r\ndata: 1\n\n\r\n"
            }
            "/silent-events-like" => {
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-streams\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
            }
            "/silent-events-utf8" => {
                b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream ; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n\
                  1\r\nx\r\n"
            }
            "/silent-chunks" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
            "/silent-head" => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
            "/silent-length" => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome",
            "/silent-until-close" => b"HTTP/1.1 200 OK\r\n\r\nsome",
            "/silent-interim" => b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
            _ => return Some(ok_response(b"done")),
        };
        let mut stream = peer.stream.try_clone().unwrap();
        let _ = stream.write_all(start);
        wait_for_close(peer);
        None
    })
}

/// Reads the start of a response: its head and the first bytes after it.
fn read_start(client: &mut TcpStream) {
    let mut byte = [0];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(client.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
}

#[test]
fn a_client_that_leaves_a_silent_response_frees_its_slot() {
    let _shared = shared_machine();
    let server = silent_server();
    let pool = "queue = { timeout = \"100s\" }\ntimeouts = { idle = \"1h\", first-byte = \"1h\" }";
    for listener in ["", "half-close = true"] {
        let proxy = start_proxy(&server.authority, listener, pool);
        let targets = ["events", "chunks", "head", "length", "until-close", "interim"];
        for target in targets.map(|name| format!("/silent-{name}")) {
            for resets in [true, false] {
                // A client that may close its sending side leaves only with a reset.
                if !resets && !listener.is_empty() {
                    continue;
                }
                let mut client = send(&proxy, &get(&target));
                read_start(&mut client);
                if resets {
                    reset_on_close(&client);
                    drop(client);
                } else {
                    client.shutdown(Shutdown::Write).unwrap();
                    let _ = client.read_to_end(&mut Vec::new());
                }
                assert_eq!(proxy.get("/next").status, 200, "{target} {resets}");
            }
        }
        let count = if listener.is_empty() { 12 } else { 6 };
        let lines = proxy.wait_for_lines_with("access.json", "/silent-", count);
        assert_eq!(lines.len(), count);
        assert!(lines.iter().all(|line| line.contains("\"client_gone\"")), "{lines:?}");
        proxy.assert_all_returned();
    }
}

/// Bytes behind a request that the proxy reads ahead only in part: more of them than its buffer, in the kernel.
const UNREAD_REQUESTS: usize = 800;

#[test]
fn a_client_that_leaves_behind_unread_requests_frees_its_slot() {
    let _shared = shared_machine();
    let server = silent_server();
    let pool = "queue = { timeout = \"100s\" }\ntimeouts = { idle = \"1h\", first-byte = \"1h\" }";
    for listener in ["", "half-close = true"] {
        let proxy = start_proxy(&server.authority, listener, pool);
        for resets in [true, false] {
            if !resets && !listener.is_empty() {
                continue;
            }
            let mut client = send(&proxy, &get("/silent-events"));
            read_start(&mut client);
            client.write_all(get("/unread").repeat(UNREAD_REQUESTS).as_bytes()).unwrap();
            pause_ms(100);
            if resets {
                reset_on_close(&client);
                drop(client);
            } else {
                client.shutdown(Shutdown::Write).unwrap();
                let _ = client.read_to_end(&mut Vec::new());
            }
            assert_eq!(proxy.get("/next").status, 200, "{listener} {resets}");
        }
        proxy.assert_all_returned();
    }
}

#[test]
fn requests_behind_a_full_read_ahead_are_all_answered() {
    let _shared = shared_machine();
    let server = respond_to_each(|_, _| {
        pause_ms(1);
        Some(ok_response(b"done"))
    });
    for listener in ["", "half-close = true"] {
        let proxy = start_proxy(&server.authority, listener, "");
        let mut client = send(&proxy, &get("/many").repeat(UNREAD_REQUESTS));
        if !listener.is_empty() {
            client.shutdown(Shutdown::Write).unwrap();
        }
        let (mut received, mut buffer) = (Vec::new(), [0; 65_536]);
        while String::from_utf8_lossy(&received).matches("done").count() < UNREAD_REQUESTS {
            let read = client.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "{listener}: {} bytes", received.len());
            received.extend_from_slice(&buffer[..read]);
        }
    }
}

#[test]
fn a_half_closed_client_gets_the_rest_of_a_response_that_has_begun() {
    let _shared = shared_machine();
    let open = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&open);
    let server = respond_to_each(move |_, peer| {
        let mut stream = peer.stream.try_clone().unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nso");
        within(EVENT_TIMEOUT, || is_open.load(Ordering::SeqCst)).then(|| b"me".to_vec())
    });
    let proxy = start_proxy(&server.authority, "half-close = true", "");
    let mut client = send(&proxy, &get("/part"));
    read_start(&mut client);
    client.shutdown(Shutdown::Write).unwrap();
    pause_ms(100);
    open.store(true, Ordering::SeqCst);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"some");
    assert_eq!(end_in_json_log(&proxy, "/part"), "done");
}

#[test]
fn only_event_streams_outlast_the_idle_timeout() {
    let _shared = shared_machine();
    let server = silent_server();
    let timeouts = "timeouts = { idle = \"300ms\", tunnel = \"1h\" }";
    for (target, pool, is_cut) in [
        ("/silent-chunks", timeouts, true),
        ("/silent-until-close", timeouts, true),
        ("/silent-events-like", timeouts, true),
        ("/silent-events", timeouts, false),
        ("/silent-events-utf8", timeouts, false),
        ("/silent-events", "timeouts = { idle = \"1h\", tunnel = \"300ms\" }", true),
    ] {
        let proxy = start_proxy(&server.authority, "", pool);
        let mut client = send(&proxy, &get(target));
        read_start(&mut client);
        if is_cut {
            let _ = client.read_to_end(&mut Vec::new());
            assert_eq!(end_in_json_log(&proxy, target), "server_timeout", "{target} {pool}");
        } else {
            // Several times as long as `idle`.
            pause_ms(1_500);
            assert_eq!(proxy.metrics().sum_known("weir_server_slots", &[]), 1.0);
        }
    }
}

#[test]
fn an_abandoned_request_keeps_its_slot_behind_interim_responses() {
    let _shared = shared_machine();
    let (arrived, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let server = {
        let (arrived, open) = (Arc::clone(&arrived), Arc::clone(&open));
        respond_to_each(move |_, peer| {
            arrived.fetch_add(1, Ordering::SeqCst);
            let mut stream = peer.stream.try_clone().unwrap();
            for _ in 0..3 {
                let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
                pause_ms(20);
            }
            within(EVENT_TIMEOUT, || open.load(Ordering::SeqCst)).then(|| ok_response(b"done"))
        })
    };
    let proxy = start_proxy(&server.authority, "", "queue = { timeout = \"100s\" }");
    let client = send(&proxy, &get("/left"));
    assert!(within(EVENT_TIMEOUT, || arrived.load(Ordering::SeqCst) == 1));
    reset_on_close(&client);
    drop(client);
    let mut next = send(&proxy, &get("/next").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    proxy.metrics_until("it waits", |metrics| {
        metrics.sum_known(QUEUED, &[]) == 1.0 && metrics.sum_known("weir_abandoned_requests", &[]) == 1.0
    });
    pause_ms(200);
    assert_eq!(arrived.load(Ordering::SeqCst), 1, "two at a time, and maxconn is 1");
    assert_eq!(proxy.metrics().sum_known("weir_wasted_responses_total", &[]), 0.0);
    open.store(true, Ordering::SeqCst);
    assert_eq!(read_response(&mut next).status, Some(200));
    proxy.metrics_until("its response is wasted", |metrics| {
        metrics.sum_known("weir_wasted_responses_total", &[]) == 1.0
    });
    proxy.assert_all_returned();
}

const LONG_BYTES: usize = 300_000;

#[test]
fn a_last_response_is_complete_whatever_follows_its_request() {
    let _shared = shared_machine();
    let server = respond_to_each(|_, _| Some(ok_response(&[b'x'; LONG_BYTES])));
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\nrequests-max = 1\n\
         [pool.app]\nservers = [\"{}\"]\n",
        server.authority
    ));
    for at_once in [false, true] {
        assert!(within(EVENT_TIMEOUT, || gets_last_response(&proxy, at_once)), "each attempt was delayed");
    }
    proxy.assert_all_returned();
}

/// Asserts that a slow client gets a complete last response. Returns `false` if the machine delayed the
/// client for about as long as the proxy waits for it at least (2 s).
fn gets_last_response(proxy: &ProxyUnderTest, at_once: bool) -> bool {
    let start_ns = now_ns();
    let mut client = connect(proxy.authority());
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 4096).unwrap();
    client.write_all(get("/long").repeat(if at_once { 40 } else { 1 }).as_bytes()).unwrap();
    let mut first = [0; 4000];
    client.read_exact(&mut first).unwrap();
    // The proxy has sent the complete response, which is still in flight for this client.
    proxy.metrics_until("it is answered", |metrics| metrics.sum_known("weir_requests_in_flight", &[]) == 0.0);
    let sent = client.write_all(get("/more").as_bytes());
    pause_ms(100);
    let was_delayed = now_ns() - start_ns > 1_500_000_000;
    let mut rest = Vec::new();
    let end = client.read_to_end(&mut rest);
    let body = first.len() + rest.len();
    let is_complete = sent.is_ok() && end.is_ok() && body > LONG_BYTES;
    assert!(is_complete || was_delayed, "{sent:?}, {body} bytes, then {end:?}");
    is_complete
}

#[test]
fn pipelining_clients_lose_no_response_to_a_drain_or_a_reload() {
    let _shared = shared_machine();
    let server = respond_to_each(|_, _| Some(ok_response(&[b'x'; 20_000])));
    let config = |name: &str| {
        format!(
            "{CONFIG_HEAD}[listener.{name}]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [pool.app]\nservers = [\"{}\"]\n",
            server.authority
        )
    };
    for drains in [true, false] {
        let mut proxy = ProxyUnderTest::weir(&config("web"));
        let clients = spawn_pipelines(proxy.authority(), 10);
        match drains {
            true => proxy.process.signal(rustix::process::Signal::TERM),
            false => proxy.reload(&config("other")),
        }
        for client in clients {
            let (responses, rest) = client.join().unwrap();
            assert!(responses > 0 && rest == 0, "{rest} bytes of a response after {responses}");
        }
        if drains {
            assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0);
        }
    }
}

/// Starts so many clients, each with [`run_pipeline`] on its own connection, and waits for the first
/// response of each.
pub(crate) fn spawn_pipelines(authority: &str, count: usize) -> Vec<JoinHandle<(usize, usize)>> {
    let served_clients = Arc::new(AtomicUsize::new(0));
    let clients = (0..count).map(|_| {
        let (stream, served_clients) = (connect(authority), Arc::clone(&served_clients));
        std::thread::spawn(move || run_pipeline(stream, &served_clients))
    });
    let clients = clients.collect();
    assert!(within(EVENT_TIMEOUT, || served_clients.load(Ordering::SeqCst) == count), "{served_clients:?}");
    clients
}

/// Keeps eight requests in flight until the connection ends. Returns the number of responses, and
/// the bytes of a response that was cut off.
fn run_pipeline(mut stream: TcpStream, served_clients: &AtomicUsize) -> (usize, usize) {
    let mut reader = crate::support::faulty_origins::LaxReader::new(stream.try_clone().unwrap());
    let request = get("/pipelined");
    let mut responses = 0;
    let _ = stream.write_all(request.repeat(8).as_bytes());
    loop {
        match reader.read_message() {
            Ok(Some(_)) => responses += 1,
            Ok(None) | Err(_) => return (responses, reader.buffered.len()),
        }
        served_clients.fetch_add(usize::from(responses == 1), Ordering::SeqCst);
        // The write fails when the other side has closed.
        let _ = stream.write_all(request.as_bytes());
    }
}

#[test]
fn a_client_that_is_slow_but_steady_gets_all_of_its_response() {
    let _shared = shared_machine();
    const BODY: usize = 16 << 20;
    let server = respond_to_each(|_, _| Some(ok_response(&vec![b'x'; BODY])));
    let timeouts = "timeouts = { write = \"3s\", write-progress-bytes = \"1k\" }";
    let proxy = start_proxy(&server.authority, timeouts, "");
    let mut client = connect(proxy.authority());
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 16 * 1024).unwrap();
    client.write_all(get("/slow").as_bytes()).unwrap();
    let mut part = vec![0; 64 * 1024];
    let (mut total, until_ns) = (0, now_ns() + 9_000_000_000);
    while now_ns() < until_ns {
        total += client.read(&mut part[..8 * 1024]).unwrap();
        pause_ms(50);
    }
    loop {
        match client.read(&mut part) {
            Ok(0) => break,
            Ok(read) => total += read,
            Err(error) => panic!("{error} after {total} bytes"),
        }
        if total > BODY {
            break;
        }
    }
    assert!(total > BODY, "{total} bytes");
    assert_eq!(end_in_json_log(&proxy, "/slow"), "done");
}

#[test]
fn a_server_that_takes_a_body_slowly_but_steadily_gets_all_of_it() {
    let _shared = shared_machine();
    const BODY: usize = 12 << 20;
    let server = ScriptedServer::start(|peer: &mut ScriptPeer| {
        let mut reader = crate::support::faulty_origins::LaxReader::new(peer.stream.try_clone()?);
        let head = reader.read_until(b"\r\n\r\n")?.unwrap_or_default();
        let (mut part, until_ns) = (vec![0; 64 * 1024], now_ns() + 9_000_000_000);
        let mut total = reader.buffered.len();
        assert!(head.starts_with(b"POST"));
        while total < BODY {
            let slow = now_ns() < until_ns;
            let read = peer.stream.read(if slow { &mut part[..8 * 1024] } else { &mut part })?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            total += read;
            if slow {
                pause_ms(50);
            }
        }
        peer.send(&ok_response(b"all of it"))
    });
    let listener =
        "timeouts = { body-idle = \"60s\", body-progress = \"3s\", body-progress-bytes = \"16k\" }";
    let proxy = start_proxy(&server.authority, listener, "timeouts = { idle = \"3s\" }");
    let mut client = connect(proxy.authority());
    let head = format!("POST /slow HTTP/1.1\r\nHost: t\r\nContent-Length: {BODY}\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let mut writer = client.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&vec![b'x'; BODY]));
    let mut response = [0; 12];
    client.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
    writing.join().unwrap().unwrap();
}

#[test]
fn the_time_until_a_head_is_total() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer: &mut ScriptPeer| {
        peer.request()?;
        let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(200));
        for byte in head.bytes() {
            peer.send(&[byte])?;
            pause_ms(50);
        }
        Ok(())
    });
    let proxy = start_proxy(&server.authority, "", "timeouts = { first-byte = \"1s\" }");
    assert_eq!(proxy.get("/drips").status, 504);
    assert_eq!(
        (end_in_json_log(&proxy, "/drips").as_str(), &*haproxy_line_for(&proxy, "/drips").code),
        ("server_timeout", "sH")
    );
}

#[test]
fn a_malformed_body_in_the_segment_of_its_head_is_502() {
    let _shared = shared_machine();
    let server = respond_to_each(|_, _| {
        Some(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nnonsense\r\n".to_vec())
    });
    let proxy = start_proxy(&server.authority, "", "");
    assert_eq!(proxy.get("/odd").status, 502);
    assert_eq!(haproxy_line_for(&proxy, "/odd").status, Some(502));
    assert_eq!(end_in_json_log(&proxy, "/odd"), "bad_response");
    proxy.assert_all_returned();
}

#[test]
fn a_post_that_meets_a_connection_just_closed_is_sent_again() {
    // Resets are counted in all of the machine.
    let _exclusive = exclusive_machine();
    let posts = Arc::new(AtomicUsize::new(0));
    let server = {
        let posts = Arc::clone(&posts);
        ScriptedServer::start(move |peer: &mut ScriptPeer| {
            let mut reader = crate::support::faulty_origins::LaxReader::new(peer.stream.try_clone()?);
            while let Some(request) = reader.read_message()? {
                let is_post = usize::from(request.method() == "POST");
                let number = posts.fetch_add(is_post, Ordering::SeqCst);
                peer.send(&ok_response(b"done"))?;
                // Closes just when the next request may be in flight, but with none unread.
                let until_ns = now_ns() + 1_000 * (number as u64 % 200);
                while now_ns() < until_ns {}
                if !has_unread(peer) {
                    return Ok(());
                }
            }
            Ok(())
        })
    };
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\nreuse = \"always\"\n",
        server.authority
    ));
    let mut client = proxy.client();
    let tries = 3_000;
    let mut failed = 0;
    let resets_before = resets_by_close();
    for number in 0..tries {
        let request = format!("POST /{number} HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody");
        client.send(request.as_bytes());
        match client.read_response().expect("a response").status {
            200 => {}
            // The request arrived between the server's last check and its close, which then is a
            // reset.
            502 => failed += 1,
            other => panic!("{number}: {other}"),
        }
    }
    assert_eq!(posts.load(Ordering::SeqCst), tries - failed, "each came once");
    let sent_again = proxy.metrics().sum_known(RETRIES, &[]);
    let resets = resets_by_close() - resets_before;
    assert!(failed <= resets, "{failed} failed, {resets} closed with a reset, {sent_again} sent again");
    crate::support::timing::assert_timing(
        sent_again > 0.0,
        "some meet the FIN",
        (failed, resets, sent_again),
    );
}

/// Returns the number of connections of this network namespace that were closed with unread bytes, and so with a reset.
fn resets_by_close() -> usize {
    let text = std::fs::read_to_string("/proc/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let index = names.split(' ').position(|name| name == "TCPAbortOnClose").unwrap();
    values.split(' ').nth(index).unwrap().parse().unwrap()
}

fn has_unread(peer: &ScriptPeer) -> bool {
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    rustix::net::recv(&peer.stream, &mut [0u8], flags).is_ok()
}

#[test]
fn buffers_of_connections_with_a_proxy_header_come_back() {
    let _shared = shared_machine();
    let server = respond_to_each(|_, _| Some(ok_response(b"done")));
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         proxy-protocol = true\ntrusted = [\"127.0.0.1\"]\n\
         [pool.app]\nservers = [\"{}\"]\nsend-proxy-protocol = \"v1\"\n",
        // The server only has to accept connections.
        server.authority
    ));
    for _ in 0..20 {
        let client = send(&proxy, "PROXY TCP4 127.0.0.2 127.0.0.1 1 2\r\nGET / HTTP/1.1\r\n\r\n");
        drop(client);
    }
    proxy.metrics_until("all have come and gone", |metrics| {
        metrics.sum_known("weir_connections_closed_total", &[("listener", "web")]) == 20.0
    });
    proxy.assert_all_returned();
    assert_eq!(proxy.metrics().sum_known(BUFFERS_LENT, &[]), 0.0);
}

#[test]
fn one_client_that_pipelines_refused_requests_holds_up_nobody() {
    let _shared = shared_machine();
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\npath = \"/no\"\ndeny = true\n\
         [[route]]\npath = \"/yes\"\nreturn = {{ status = 200, body = \"yes\" }}\n"
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let mut stream = connect(proxy.authority());
    let mut reader = stream.try_clone().unwrap();
    let writing = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let many = "GET /no HTTP/1.1\r\nHost: t\r\n\r\n".repeat(2_000);
            while !stop.load(Ordering::SeqCst) && stream.write_all(many.as_bytes()).is_ok() {}
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    let reading = std::thread::spawn(move || {
        let mut part = vec![0; 1 << 20];
        while reader.read(&mut part).is_ok_and(|read| read > 0) {}
    });
    let background = BackgroundClients::start(proxy.authority(), "/yes", 2);
    let before_ns = now_ns();
    background.wait_for(100);
    let took_ms = (now_ns() - before_ns) / 1_000_000;
    crate::support::timing::assert_timing(took_ms < 1_000, "100 responses beside it in a second", took_ms);
    assert!(!proxy.metrics().samples.is_empty());
    background.finish();
    stop.store(true, Ordering::SeqCst);
    writing.join().unwrap();
    reading.join().unwrap();
    proxy.assert_all_returned();
}

#[test]
fn a_client_that_sends_slowly_takes_no_slot_until_its_body_is_there() {
    let _shared = shared_machine();
    let arrived = Arc::new(AtomicUsize::new(0));
    let server = {
        let arrived = Arc::clone(&arrived);
        respond_to_each(move |request, _| {
            arrived.fetch_add(1, Ordering::SeqCst);
            Some(ok_response(&request.body))
        })
    };
    let proxy = start_proxy(&server.authority, "", "queue = { timeout = \"100s\" }");
    let mut slow: Vec<TcpStream> = ["Content-Length: 8", "Transfer-Encoding: chunked"]
        .iter()
        .map(|field| send(&proxy, &format!("POST /slow HTTP/1.1\r\nHost: t\r\n{field}\r\n\r\n")))
        .collect();
    let (first, second) = slow.split_at_mut(1);
    first[0].write_all(b"abcd").unwrap();
    second[0].write_all(b"4\r\nabcd\r\n").unwrap();
    proxy.metrics_until("both are there", |metrics| metrics.sum_known("weir_requests_in_flight", &[]) == 2.0);
    // The single slot is free.
    assert_eq!(proxy.get("/quick").status, 200);
    assert_eq!(arrived.load(Ordering::SeqCst), 1);
    first[0].write_all(b"efgh").unwrap();
    second[0].write_all(b"4\r\nefgh\r\n0\r\n\r\n").unwrap();
    for client in slow {
        let mut client = crate::support::client::Client::from_stream(client);
        assert_eq!(client.read_response().expect("a response").body, b"abcdefgh");
        // Later bytes are another request.
        assert_eq!(client.get("/after").status, 200);
    }
    // The proxy forwards a longer body once its start has arrived.
    let long = vec![b'x'; 100_000];
    let mut client = proxy.client();
    client
        .send(format!("POST /long HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", long.len()).as_bytes());
    client.send(&long[..20_000]);
    proxy.metrics_until("it has its slot", |metrics| metrics.sum_known("weir_server_slots", &[]) == 1.0);
    client.send(&long[20_000..]);
    assert_eq!(client.read_response().expect("a response").body.len(), long.len());
    drop(client);
    proxy.assert_all_returned();
}

#[test]
fn a_body_has_a_total_time() {
    let _shared = shared_machine();
    let server = respond_to_each(|_, _| Some(ok_response(b"done")));
    let listener = "timeouts = { body = \"1s\", body-progress-bytes = 0 }";
    for buffered in ["", "buffer-request = 0"] {
        let proxy = start_proxy(&server.authority, &format!("{listener}\n{buffered}"), "");
        let mut client = send(&proxy, "POST /drips HTTP/1.1\r\nHost: t\r\nContent-Length: 10000\r\n\r\n");
        let mut writer = client.try_clone().unwrap();
        let dripping = std::thread::spawn(move || {
            while writer.write_all(b"x").is_ok() {
                pause_ms(20);
            }
        });
        assert_eq!(read_response(&mut client).status, Some(408));
        drop(client);
        dripping.join().unwrap();
        assert_eq!(end_in_json_log(&proxy, "/drips"), "body_timeout");
    }
}

#[test]
fn a_tunnel_is_recorded_under_the_configuration_in_which_it_ends() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer: &mut ScriptPeer| {
        io::copy(&mut peer.stream.try_clone()?, &mut peer.stream).map(drop)
    });
    let config = |pools: &str| {
        format!(
            "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n{pools}\
             [pool.app]\nservers = [{{ name = \"echo\", address = \"{}\" }}]\n",
            server.authority
        )
    };
    let proxy = ProxyUnderTest::weir(&config(""));
    let mut client = send(&proxy, "hello");
    client.read_exact(&mut [0; 5]).unwrap();
    let reloaded = config("[pool.aaa]\nservers = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n")
        .replace("threads = 1", "threads = 1\ndrain-timeout = \"29s\"");
    proxy.reload(&reloaded);
    proxy.metrics_until("the new pool is there", |metrics| {
        metrics.samples_with("weir_pool_queued_requests", &[("pool", "aaa")]).count() == 1
    });
    client.write_all(b"again").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    drop(client);
    let lines = proxy.wait_for_lines_with("access.json", "\"echo\"", 1);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&line["pool"], &line["server"]), (&"app".into(), &"echo".into()), "{line}");
    assert_eq!(line["bytes_in"], 10, "{line}");
    proxy.assert_all_returned();
}
