//! The life of connections and requests in `weir proxy`: clients that leave, connections that end while
//! bytes are on their way, peers that are slow, slots and buffers that come back.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rt::clock::now_ns;

use super::proxy_faults::{HEAD, end_of, line_about};
use crate::support::door::Door;
use crate::support::faulty::{Full, Gated, answering_each, close_is_a_reset, hang, ok};
use crate::support::metrics::{BUFFERS_LENT, QUEUED, RETRIES};
use crate::support::peers::{Peer, Scripted};
use crate::support::rude::{Crowd, connect, see};
use crate::support::{PATIENCE, beside_others, pause_ms, within};

fn door(server: &str, listener: &str, pool: &str) -> Door {
    Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
         [pool.app]\nservers = [{{ address = \"{server}\", maxconn = 1 }}]\n{pool}\n"
    ))
}

fn send(door: &Door, request: &str) -> TcpStream {
    let mut client = connect(door.authority());
    client.write_all(request.as_bytes()).unwrap();
    client
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n")
}

/// What a client sees that ends its stream and waits: nothing but the end.
fn assert_dropped(client: &mut TcpStream, what: &str) {
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes);
    assert!(bytes.is_empty(), "{what}: {}", String::from_utf8_lossy(&bytes));
}

/// A server that works on `/hangs` until its client ends its stream.
fn cancelling(cancelled: &Arc<AtomicUsize>) -> Scripted {
    let cancelled = Arc::clone(cancelled);
    answering_each(move |request, peer| {
        if request.target() == "/hangs" {
            hang(peer);
            cancelled.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        Some(ok(b"done"))
    })
}

#[test]
fn a_client_that_ends_its_stream_aborts_its_request_wherever_that_is() {
    let _shared = beside_others();
    let cancelled = Arc::new(AtomicUsize::new(0));
    let server = cancelling(&cancelled);
    let pool = "queue = { timeout = \"20s\" }\ntimeouts = { abandoned = \"60s\" }";
    let door = door(&server.authority, "", pool);
    let mut at_work = send(&door, &get("/hangs"));
    door.metrics_until("the server has it", |metrics| {
        metrics.known("weir_server_slots", &[]) == 1.0
    });
    let mut queued = send(&door, &get("/queued"));
    door.metrics_until("it is queued", |metrics| metrics.known(QUEUED, &[]) == 1.0);
    queued.shutdown(Shutdown::Write).unwrap();
    assert_dropped(&mut queued, "queued");
    assert_eq!((end_of(&door, "/queued"), line_about(&door, "/queued").code), pair("CQ"));
    at_work.shutdown(Shutdown::Write).unwrap();
    assert_dropped(&mut at_work, "at a server");
    assert_eq!((end_of(&door, "/hangs"), line_about(&door, "/hangs").code), pair("CH"));
    // The server has cancelled it, and its slot is free long before `abandoned`.
    assert_eq!(door.get("/next").status, 200);
    assert_eq!(cancelled.load(Ordering::SeqCst), 1);
    door.assert_all_returned();

    let full = Full::new();
    let door = self::door(&full.authority, "", "timeouts = { connect = \"100s\" }");
    let mut connecting = send(&door, &get("/connecting"));
    connecting.shutdown(Shutdown::Write).unwrap();
    assert_dropped(&mut connecting, "connecting");
    assert_eq!((end_of(&door, "/connecting"), line_about(&door, "/connecting").code), pair("CC"));
}

fn pair(code: &str) -> (String, String) {
    ("client_gone".to_owned(), code.to_owned())
}

#[test]
fn the_end_of_a_stream_is_seen_behind_a_pipelined_request() {
    let _shared = beside_others();
    let gated = Gated::start();
    let door = door(&gated.server.authority, "", "");
    let mut client = send(&door, &get("/first"));
    assert_eq!(gated.next(), "/first");
    client.write_all(get("/second").as_bytes()).unwrap();
    // By now the proxy has read it, most likely; where not, it is read with the end.
    pause_ms(50);
    client.shutdown(Shutdown::Write).unwrap();
    assert_dropped(&mut client, "behind another request");
    assert_eq!(end_of(&door, "/first"), "client_gone");
    gated.let_one_through();
    door.assert_all_returned();
}

#[test]
fn with_half_close_a_client_that_ends_its_stream_gets_its_responses() {
    let _shared = beside_others();
    let gated = Gated::start();
    let door = door(&gated.server.authority, "half-close = true", "");
    let mut client = send(&door, &(get("/first") + &get("/second")));
    client.shutdown(Shutdown::Write).unwrap();
    for target in ["/first", "/second"] {
        assert_eq!(gated.next(), target);
        gated.let_one_through();
    }
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes).matches("through").count(), 2);
}

#[test]
fn an_abandoned_request_keeps_its_slot_behind_interim_responses() {
    let _shared = beside_others();
    let (arrived, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let server = {
        let (arrived, open) = (Arc::clone(&arrived), Arc::clone(&open));
        answering_each(move |_, peer| {
            arrived.fetch_add(1, Ordering::SeqCst);
            let mut stream = peer.stream.try_clone().unwrap();
            for _ in 0..3 {
                let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
                pause_ms(20);
            }
            within(PATIENCE, || open.load(Ordering::SeqCst)).then(|| ok(b"done"))
        })
    };
    let door = door(&server.authority, "", "queue = { timeout = \"20s\" }");
    let client = send(&door, &get("/left"));
    assert!(within(PATIENCE, || arrived.load(Ordering::SeqCst) == 1));
    close_is_a_reset(&client);
    drop(client);
    let mut next = send(&door, &get("/next").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    door.metrics_until("it waits", |metrics| {
        metrics.known(QUEUED, &[]) == 1.0 && metrics.known("weir_abandoned_requests", &[]) == 1.0
    });
    pause_ms(200);
    assert_eq!(arrived.load(Ordering::SeqCst), 1, "two at a time, and maxconn is 1");
    assert_eq!(door.metrics().known("weir_wasted_responses_total", &[]), 0.0);
    open.store(true, Ordering::SeqCst);
    assert_eq!(see(&mut next).status, Some(200));
    assert_eq!(door.metrics().known("weir_wasted_responses_total", &[]), 1.0);
    door.assert_all_returned();
}

const LONG: usize = 300_000;

#[test]
fn a_last_response_is_whole_however_much_is_sent_behind_its_request() {
    let _shared = beside_others();
    let server = answering_each(|_, _| Some(ok(&[b'x'; LONG])));
    let door = Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\nrequests-max = 1\n\
         [pool.app]\nservers = [\"{}\"]\n",
        server.authority
    ));
    for at_once in [false, true] {
        let mut client = connect(door.authority());
        rustix::net::sockopt::set_socket_recv_buffer_size(&client, 4096).unwrap();
        client.write_all(get("/long").repeat(if at_once { 40 } else { 1 }).as_bytes()).unwrap();
        let mut first = [0; 4000];
        client.read_exact(&mut first).unwrap();
        // Our response is at its end for the proxy, and on its way for us.
        door.metrics_until("it is answered", |metrics| {
            metrics.known("weir_requests_in_flight", &[]) == 0.0
        });
        client.write_all(get("/more").as_bytes()).unwrap();
        pause_ms(100);
        let mut rest = Vec::new();
        let end = client.read_to_end(&mut rest);
        let body = first.len() + rest.len();
        assert!(end.is_ok() && body > LONG, "{body} bytes, then {end:?}");
        drop(client);
    }
    door.assert_all_returned();
}

#[test]
fn pipelining_clients_lose_no_response_to_a_drain_or_a_reload() {
    let _shared = beside_others();
    let server = answering_each(|_, _| Some(ok(&[b'x'; 20_000])));
    let config = |name: &str| {
        format!(
            "{HEAD}[listener.{name}]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [pool.app]\nservers = [\"{}\"]\n",
            server.authority
        )
    };
    for drains in [true, false] {
        let mut door = Door::weir(&config("web"));
        let clients = (0..10).map(|_| {
            let stream = connect(door.authority());
            std::thread::spawn(move || pipeline(stream))
        });
        let clients: Vec<_> = clients.collect();
        pause_ms(300);
        match drains {
            true => door.process.signal(rustix::process::Signal::TERM),
            false => door.reload(&config("other")),
        }
        for client in clients {
            let (answered, rest) = client.join().unwrap();
            assert!(answered > 0 && rest == 0, "{rest} bytes of a response after {answered}");
        }
        if drains {
            assert_eq!(door.process.wait(PATIENCE), 0);
        }
    }
}

/// Keeps eight requests in flight until the connection ends; responses, and the bytes of one that was
/// cut off.
fn pipeline(mut stream: TcpStream) -> (usize, usize) {
    let mut reader = crate::support::faulty::Reader::new(stream.try_clone().unwrap());
    let request = get("/pipelined");
    let mut answered = 0;
    let _ = stream.write_all(request.repeat(8).as_bytes());
    loop {
        match reader.message() {
            Ok(Some(_)) => answered += 1,
            Ok(None) | Err(_) => return (answered, reader.buffered.len()),
        }
        // Refused when the other side has closed.
        let _ = stream.write_all(request.as_bytes());
    }
}

#[test]
fn a_client_that_is_slow_but_steady_gets_all_of_its_response() {
    let _shared = beside_others();
    const BODY: usize = 16 << 20;
    let server = answering_each(|_, _| Some(ok(&vec![b'x'; BODY])));
    let timeouts = "timeouts = { write = \"1s\", write-progress-bytes = \"1k\" }";
    let door = door(&server.authority, timeouts, "");
    let mut client = connect(door.authority());
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 16 * 1024).unwrap();
    client.write_all(get("/slow").as_bytes()).unwrap();
    let mut part = vec![0; 64 * 1024];
    let (mut total, until_ns) = (0, now_ns() + 4_000_000_000);
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
    assert_eq!(end_of(&door, "/slow"), "done");
}

#[test]
fn a_server_that_takes_a_body_slowly_but_steadily_gets_all_of_it() {
    let _shared = beside_others();
    const BODY: usize = 12 << 20;
    let server = Scripted::start(|peer: &mut Peer| {
        let mut reader = crate::support::faulty::Reader::new(peer.stream.try_clone()?);
        let head = reader.until(b"\r\n\r\n")?.unwrap_or_default();
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
        peer.send(&ok(b"all of it"))
    });
    let listener =
        "timeouts = { body-idle = \"60s\", body-progress = \"3s\", body-progress-bytes = \"16k\" }";
    let door = door(&server.authority, listener, "timeouts = { idle = \"3s\" }");
    let mut client = connect(door.authority());
    let head = format!("POST /slow HTTP/1.1\r\nHost: t\r\nContent-Length: {BODY}\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let mut writer = client.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&vec![b'x'; BODY]));
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    writing.join().unwrap().unwrap();
}

#[test]
fn the_time_until_a_head_is_total() {
    let _shared = beside_others();
    let server = Scripted::start(|peer: &mut Peer| {
        peer.request()?;
        let head =
            format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(200));
        for byte in head.bytes() {
            peer.send(&[byte])?;
            pause_ms(50);
        }
        Ok(())
    });
    let door = door(&server.authority, "", "timeouts = { first-byte = \"1s\" }");
    assert_eq!(door.get("/drips").status, 504);
    assert_eq!(
        (end_of(&door, "/drips").as_str(), &*line_about(&door, "/drips").code),
        ("server_timeout", "sH")
    );
}

#[test]
fn a_malformed_body_in_the_segment_of_its_head_is_502() {
    let _shared = beside_others();
    let server = answering_each(|_, _| {
        Some(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nnonsense\r\n"
                .to_vec(),
        )
    });
    let door = door(&server.authority, "", "");
    assert_eq!(door.get("/odd").status, 502);
    assert_eq!(line_about(&door, "/odd").status, Some(502));
    assert_eq!(end_of(&door, "/odd"), "bad_response");
    door.assert_all_returned();
}

#[test]
fn a_post_that_meets_a_connection_just_closed_is_sent_again() {
    let _shared = beside_others();
    let posts = Arc::new(AtomicUsize::new(0));
    let server = {
        let posts = Arc::clone(&posts);
        Scripted::start(move |peer: &mut Peer| {
            let mut reader = crate::support::faulty::Reader::new(peer.stream.try_clone()?);
            while let Some(request) = reader.message()? {
                let is_post = usize::from(request.method() == "POST");
                let number = posts.fetch_add(is_post, Ordering::SeqCst);
                peer.send(&ok(b"done"))?;
                // Closes just when the next request may be on its way, but with none unread.
                let until_ns = now_ns() + 1_000 * (number as u64 % 200);
                while now_ns() < until_ns {}
                if !has_unread(peer) {
                    return Ok(());
                }
            }
            Ok(())
        })
    };
    let door = Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\nreuse = \"always\"\n",
        server.authority
    ));
    let mut client = door.client();
    let tries = 3_000;
    let mut failed = 0;
    for number in 0..tries {
        let request =
            format!("POST /{number} HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody");
        client.send(request.as_bytes());
        match client.answer().expect("an answer").status {
            200 => {}
            // It came between the server's last look and its close, which is a reset then.
            502 => failed += 1,
            other => panic!("{number}: {other}"),
        }
    }
    assert_eq!(posts.load(Ordering::SeqCst), tries - failed, "each came once");
    let sent_again = door.metrics().known(RETRIES, &[]);
    crate::support::times::demand(failed < 10, "next to none fails", (failed, sent_again));
}

fn has_unread(peer: &Peer) -> bool {
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    rustix::net::recv(&peer.stream, &mut [0u8], flags).is_ok()
}

#[test]
fn buffers_of_connections_with_a_proxy_header_come_back() {
    let _shared = beside_others();
    let server = answering_each(|_, _| Some(ok(b"done")));
    let door = Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         proxy-protocol = true\ntrusted = [\"127.0.0.1\"]\n\
         [pool.app]\nservers = [\"{}\"]\nsend-proxy-protocol = \"v1\"\n",
        // It only has to take connections.
        server.authority
    ));
    for _ in 0..20 {
        let client = send(&door, "PROXY TCP4 127.0.0.2 127.0.0.1 1 2\r\nGET / HTTP/1.1\r\n\r\n");
        drop(client);
    }
    door.assert_all_returned();
    assert_eq!(door.metrics().known(BUFFERS_LENT, &[]), 0.0);
}

#[test]
fn one_client_that_pipelines_refused_requests_holds_up_nobody() {
    let _shared = beside_others();
    let door = Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\npath = \"/no\"\ndeny = true\n\
         [[route]]\npath = \"/yes\"\nanswer = {{ status = 200, body = \"yes\" }}\n"
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let mut stream = connect(door.authority());
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
    let crowd = Crowd::start(door.authority(), "/yes", 2);
    let before_ns = now_ns();
    crowd.wait_for(100);
    let took_ms = (now_ns() - before_ns) / 1_000_000;
    crate::support::times::demand(took_ms < 1_000, "100 responses beside it in a second", took_ms);
    assert!(!door.metrics().samples.is_empty());
    crowd.finish();
    stop.store(true, Ordering::SeqCst);
    writing.join().unwrap();
    reading.join().unwrap();
    door.assert_all_returned();
}

#[test]
fn a_client_that_sends_slowly_takes_no_slot_until_its_body_is_there() {
    let _shared = beside_others();
    let arrived = Arc::new(AtomicUsize::new(0));
    let server = {
        let arrived = Arc::clone(&arrived);
        answering_each(move |request, _| {
            arrived.fetch_add(1, Ordering::SeqCst);
            Some(ok(&request.body))
        })
    };
    let door = door(&server.authority, "", "queue = { timeout = \"20s\" }");
    let mut slow: Vec<TcpStream> = ["Content-Length: 8", "Transfer-Encoding: chunked"]
        .iter()
        .map(|field| send(&door, &format!("POST /slow HTTP/1.1\r\nHost: t\r\n{field}\r\n\r\n")))
        .collect();
    let (first, second) = slow.split_at_mut(1);
    first[0].write_all(b"abcd").unwrap();
    second[0].write_all(b"4\r\nabcd\r\n").unwrap();
    door.metrics_until("both are there", |metrics| {
        metrics.known("weir_requests_in_flight", &[]) == 2.0
    });
    // One slot, and it is free.
    assert_eq!(door.get("/quick").status, 200);
    assert_eq!(arrived.load(Ordering::SeqCst), 1);
    first[0].write_all(b"efgh").unwrap();
    second[0].write_all(b"4\r\nefgh\r\n0\r\n\r\n").unwrap();
    for client in slow {
        let mut client = crate::support::client::Client::over(client);
        assert_eq!(client.answer().expect("an answer").body, b"abcdefgh");
        // Whatever follows is another request.
        assert_eq!(client.ask("/after").status, 200);
    }
    // A longer one is passed on once its start is there.
    let long = vec![b'x'; 100_000];
    let mut client = door.client();
    client.send(
        format!("POST /long HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", long.len())
            .as_bytes(),
    );
    client.send(&long[..20_000]);
    door.metrics_until("it has its slot", |metrics| metrics.known("weir_server_slots", &[]) == 1.0);
    client.send(&long[20_000..]);
    assert_eq!(client.answer().expect("an answer").body.len(), long.len());
    drop(client);
    door.assert_all_returned();
}

#[test]
fn a_body_has_a_total_time() {
    let _shared = beside_others();
    let server = answering_each(|_, _| Some(ok(b"done")));
    let listener = "timeouts = { body = \"1s\", body-progress-bytes = 0 }";
    for buffered in ["", "buffer-request = 0"] {
        let door = door(&server.authority, &format!("{listener}\n{buffered}"), "");
        let mut client =
            send(&door, "POST /drips HTTP/1.1\r\nHost: t\r\nContent-Length: 10000\r\n\r\n");
        let mut writer = client.try_clone().unwrap();
        let dripping = std::thread::spawn(move || {
            while writer.write_all(b"x").is_ok() {
                pause_ms(20);
            }
        });
        assert_eq!(see(&mut client).status, Some(408));
        drop(client);
        dripping.join().unwrap();
        assert_eq!(end_of(&door, "/drips"), "body_timeout");
    }
}

#[test]
fn a_tunnel_is_recorded_under_the_configuration_in_which_it_ends() {
    let _shared = beside_others();
    let server = Scripted::start(|peer: &mut Peer| {
        io::copy(&mut peer.stream.try_clone()?, &mut peer.stream).map(drop)
    });
    let config = |pools: &str| {
        format!(
            "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n{pools}\
             [pool.app]\nservers = [{{ name = \"echo\", address = \"{}\" }}]\n",
            server.authority
        )
    };
    let door = Door::weir(&config(""));
    let mut client = send(&door, "hello");
    client.read_exact(&mut [0; 5]).unwrap();
    let reloaded = config("[pool.aaa]\nservers = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n")
        .replace("threads = 1", "threads = 1\ndrain-timeout = \"29s\"");
    door.reload(&reloaded);
    door.metrics_until("the new pool is there", |metrics| {
        metrics.of("weir_pool_queued_requests", &[("pool", "aaa")]).count() == 1
    });
    client.write_all(b"again").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    drop(client);
    let lines = door.wait_for_lines_with("access.json", "\"echo\"", 1);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&line["pool"], &line["server"]), (&"app".into(), &"echo".into()), "{line}");
    assert_eq!(line["bytes_in"], 10, "{line}");
    door.assert_all_returned();
}
