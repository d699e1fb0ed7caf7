//! `weir proxy` between peers that behave, in the corners of HTTP: protocols that change, interim
//! answers, pipelining, trailers; and what becomes of all that at a drain or a reload. Not for peers
//! that fail (`proxy_faults`).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use rt::clock::now_ns;
use rustix::process::Signal;

use crate::proxy_faults::{HEAD, end_of, line_about};
use crate::support::client::Client;
use crate::support::door::Door;
use crate::support::faulty::{
    Full, Gated, Reader, answering_each, close_is_a_reset, field, hang, ok, telling,
};
use crate::support::hlog::HaproxyLine;
use crate::support::metrics::{CONNECTIONS_OPEN, QUEUED, REFUSED};
use crate::support::peers::{Peer, Scripted};
use crate::support::rude::{connect, see};
use crate::support::times::demand;
use crate::support::{PATIENCE, beside_others, within};

/// A proxy before one server; the texts go behind the listener's and the pool's keys.
fn door(server: &str, listener: &str, pool: &str) -> Door {
    Door::weir(&format!(
        "drain-timeout = \"4s\"\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         {listener}\n[pool.app]\nservers = [\"{server}\"]\n{pool}\n"
    ))
}

/// A server that changes the protocol, says "hello" at once, and then echoes.
fn switching(answer: &'static [u8]) -> Scripted {
    Scripted::start(move |peer: &mut Peer| {
        let mut reader = Reader::new(peer.stream.try_clone()?);
        let Some(head) = reader.until(b"\r\n\r\n")? else { return Ok(()) };
        assert!(!head.is_empty());
        peer.send(answer)?;
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

const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                        Upgrade: websocket\r\n\r\nhello";
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connected\r\n\r\nhello";

/// A client that has asked to change the protocol, and was told and sent "hello".
fn switched(door: &Door, request: &str, status: &str) -> TcpStream {
    let mut client = connect(door.authority());
    client.write_all(request.as_bytes()).unwrap();
    let mut reader = Reader::new(client.try_clone().unwrap());
    let head = reader.until(b"\r\n\r\n").unwrap().expect("a head");
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    assert_eq!(reader.exactly(5).unwrap(), b"hello");
    client
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
const CONNECT: &str = "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n";

#[test]
fn an_upgrade_and_a_connect_become_tunnels() {
    let _shared = beside_others();
    for (request, answer, status, part) in
        [(UPGRADE, SWITCH, "101", "/ws"), (CONNECT, ESTABLISHED, "200", "example.org:443")]
    {
        let server = switching(answer);
        let door = door(&server.authority, "connect = true", "");
        let mut client = switched(&door, request, status);
        let mut echoed = [0; 4];
        for word in [b"ping", b"pong"] {
            client.write_all(word).unwrap();
            client.read_exact(&mut echoed).unwrap();
            assert_eq!(&echoed, word);
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut echoed).unwrap(), 0);
        let line = line_about(&door, part);
        assert_eq!((line.code.as_str(), line.status), ("--", status.parse().ok()), "{line:?}");
        door.metrics_until("it is over", |metrics| {
            metrics.known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
        });
    }
}

#[test]
fn an_upgrade_that_the_server_does_not_want_stays_http() {
    let _shared = beside_others();
    let server = telling("plain");
    let door = door(&server.authority, "", "");
    let mut client = door.client();
    client.send(UPGRADE.as_bytes());
    let answer = client.answer().expect("an answer");
    assert!(answer.status == 200 && answer.body.starts_with(b"plain\n"));
    assert_eq!(client.ask("/after").status, 200);
}

#[test]
fn a_change_of_protocol_that_nobody_asked_for_is_refused() {
    let _shared = beside_others();
    let server = switching(SWITCH);
    let door = door(&server.authority, "", "");
    assert_eq!(door.get("/odd").status, 502);
    assert_eq!(line_about(&door, "/odd").code, "PH");
}

#[test]
fn interim_answers_go_before_the_final_one() {
    let _shared = beside_others();
    let server = Scripted::start(|peer| {
        let mut reader = Reader::new(peer.stream.try_clone()?);
        while let Some(head) = reader.until(b"\r\n\r\n")? {
            let head = String::from_utf8_lossy(&head).into_owned();
            if field(&head, "expect").is_some() {
                peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")?;
            let length = field(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            let body = reader.exactly(length)?;
            peer.send(&ok(&body))?;
        }
        Ok(())
    });
    let door = door(&server.authority, "", "");
    let mut client = door.client();
    client.send(b"POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(client.answer().expect("an answer").status, 100);
    client.send(b"body");
    let hints = client.answer().expect("an answer");
    assert_eq!((hints.status, field(&hints.head, "link").as_deref()), (103, Some("</a>")));
    let last = client.answer().expect("an answer");
    assert_eq!((last.status, last.body.as_slice()), (200, &b"body"[..]));
    // HTTP/1.0 knows no interim answers.
    let mut old = door.client();
    old.send(b"GET / HTTP/1.0\r\nHost: t\r\n\r\n");
    assert_eq!(old.answer().expect("an answer").status, 200);
}

#[test]
fn requests_in_one_piece_are_answered_in_their_order() {
    let _shared = beside_others();
    let server = telling("a");
    let door = door(&server.authority, "", "");
    let mut client = door.client();
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
        let answer = client.answer().expect("an answer");
        let told = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(told.contains(&format!(" /{number} HTTP/1.1\r\n")), "{number}: {told}");
    }
    assert_eq!(door.wait_for_lines("access.json", 50).len(), 50);
}

#[test]
fn an_early_answer_reaches_a_client_that_still_sends() {
    let _shared = beside_others();
    let server = Scripted::start(|peer| {
        let _ = peer.request()?;
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")?;
        hang(peer);
        Ok(())
    });
    let door = door(&server.authority, "", "");
    let mut client = connect(door.authority());
    client
        .write_all(b"POST /early HTTP/1.1\r\nHost: t\r\nContent-Length: 100000000\r\n\r\n")
        .unwrap();
    client.write_all(&[b'x'; 1000]).unwrap();
    let seen = see(&mut client);
    assert!(seen.status == Some(413) && seen.whole && seen.body == b"no", "{seen:?}");
    drop(client);
    assert_eq!(end_of(&door, "/early"), "done");
}

#[test]
fn a_client_that_resets_while_its_server_is_being_reached_is_gone_at_once() {
    let _shared = beside_others();
    let full = Full::new();
    let door = door(&full.authority, "", "timeouts = { connect = \"100s\" }");
    let mut client = connect(door.authority());
    client.write_all(b"GET /gone HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    door.metrics_until("it is there", |metrics| {
        metrics.known(CONNECTIONS_OPEN, &[("listener", "web")]) == 1.0
    });
    close_is_a_reset(&client);
    drop(client);
    // The time-out tells nobody so soon.
    assert_eq!(line_about(&door, "/gone").code, "CC");
}

#[test]
fn tunnels_end_with_the_drain_and_are_logged_so() {
    let _shared = beside_others();
    let server = switching(SWITCH);
    let mut door = door(&server.authority, "", "");
    let mut client = switched(&door, UPGRADE, "101");
    let start_ns = now_ns();
    door.process.signal(Signal::TERM);
    // It goes on for most of the time that the drain has.
    client.write_all(b"still").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    let took_ms = (now_ns() - start_ns) / 1_000_000;
    assert!(took_ms >= 1900, "{took_ms} ms");
    demand(took_ms < 5000, "tunnels that end within a drain of 4 s, in ms", took_ms);
    assert_eq!(door.process.wait(PATIENCE), 0, "{}", door.stderr());
    assert_eq!((line_about(&door, "/ws").code.as_str(), &*end_of(&door, "/ws")), ("KD", "drained"));
}

#[test]
fn a_request_that_the_drain_cuts_off_is_logged_so() {
    let _shared = beside_others();
    let gated = Gated::start();
    let mut door = door(&gated.server.authority, "", "");
    let mut client = connect(door.authority());
    client.write_all(b"GET /cut HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    gated.next();
    door.process.signal(Signal::TERM);
    assert_eq!(see(&mut client).status, None);
    assert_eq!(door.process.wait(PATIENCE), 0, "{}", door.stderr());
    assert_eq!(
        (line_about(&door, "/cut").code.as_str(), &*end_of(&door, "/cut")),
        ("KH", "drained")
    );
}

#[test]
fn a_connection_that_carried_http_never_becomes_a_tunnel() {
    let _shared = beside_others();
    let server = answering_each(|_, _| Some(ok(b"here")));
    let door = Door::weir(&format!(
        "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [listener.raw]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\nreuse = \"always\"\n",
        server.authority
    ));
    assert_eq!(door.get("/").status, 200);
    let mut raw = Client::connect(&door.addresses("raw")[0]);
    assert_eq!(raw.ask("/").status, 200);
    assert_eq!(server.connections(), 2);
}

/// A config with a listener that a reload takes away, and a log of this name.
fn two_listeners(server: &str, other: bool, log: &str) -> String {
    let listener =
        if other { "[listener.other]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n" } else { "" };
    format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[[log]]\nto = \"file:HOME/{log}\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\
         [pool.app]\nservers = [\"{server}\"]\n"
    )
}

#[test]
fn a_listener_that_goes_with_a_reload_finishes_what_it_has() {
    let _shared = beside_others();
    let gated = Gated::start();
    let server = gated.server.authority.as_str();
    let door = Door::weir(&two_listeners(server, true, "one"));
    let other = door.addresses("other")[0].clone();
    let mut busy = connect(&other);
    busy.write_all(b"GET /busy HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    assert_eq!(gated.next(), "/busy");
    door.reload(&two_listeners(server, false, "two"));
    // Nobody new is taken.
    assert!(within(PATIENCE, || !door.listens_at(&other)));
    gated.let_one_through();
    let mut reader = Reader::new(busy);
    let answer = reader.message().unwrap().expect("an answer");
    assert!(answer.head.starts_with("HTTP/1.1 200 "), "{}", answer.head);
    // And then its connection goes as well.
    assert!(reader.until(b"never").unwrap().is_none());
    // What ends now is in the log of now.
    assert_eq!(door.wait_for_lines_with("two", "/busy", 1).len(), 1);
    gated.let_one_through();
    assert_eq!(door.get("/new").status, 200);
    assert_eq!(door.wait_for_lines("two", 2).len(), 2);
    assert_eq!(door.lines("one").len(), 0);
}

#[test]
fn a_queue_goes_on_under_the_plan_that_its_requests_came_in_with() {
    let _shared = beside_others();
    let gated = Gated::start();
    let config = |timeout: &str| {
        format!(
            "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
             pool = \"app\"\n[pool.app]\nservers = [{{ address = \"{}\", maxconn = 1 }}]\n\
             queue = {{ limit = 10, timeout = \"{timeout}\" }}\n",
            gated.server.authority
        )
    };
    for (timeout, status) in [("4s", 503), ("100s", 200)] {
        let door = Door::weir(&config(timeout));
        let ask = |target: &str| {
            let mut client = connect(door.authority());
            let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            client
        };
        let mut first = ask("/first");
        assert_eq!(gated.next(), "/first");
        // On both threads, if the kernel wants it so.
        let mut queued: Vec<TcpStream> = (0..4).map(|_| ask("/queued")).collect();
        door.metrics_until("they wait", |metrics| metrics.known(QUEUED, &[("pool", "app")]) == 4.0);
        door.reload(&config("200s"));
        assert!(within(PATIENCE, || door.stdout().contains("is applied")));
        for client in &mut queued {
            if status == 200 {
                gated.let_one_through();
                assert_eq!(gated.next(), "/queued");
            } else {
                assert_eq!(see(client).status, Some(503));
            }
        }
        gated.let_one_through();
        for client in queued.iter_mut().filter(|_| status == 200) {
            assert_eq!(see(client).status, Some(200));
        }
        assert_eq!(see(&mut first).status, Some(200));
    }
}

#[test]
fn a_rate_limit_is_not_lifted_by_a_reload() {
    let _shared = beside_others();
    let config = |version: u32| {
        format!(
            "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
             [[route]]\npath = \"/version\"\nanswer = {{ status = 200, body = \"{version}\" }}\n\
             [[route]]\nname = \"slow\"\nrate-limit = {{ rate = 0.01, burst = 1 }}\n\
             answer = {{ status = 200, body = \"here\" }}\n"
        )
    };
    let door = Door::weir(&config(1));
    assert_eq!(door.get("/").status, 200);
    door.reload(&config(2));
    assert!(within(PATIENCE, || door.get("/version").body == b"2"));
    assert_eq!(door.get("/").status, 429);
}

#[test]
fn a_reload_that_cannot_have_its_address_changes_nothing() {
    let _shared = beside_others();
    let server = telling("a");
    let door = Door::weir(&two_listeners(&server.authority, true, "one"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = two_listeners(&server.authority, false, "two")
        + &format!("[listener.taken]\nbind = \"{address}\"\npool = \"app\"\n");
    door.reload(&config);
    let said = || door.stderr().contains(&address) && door.stderr().contains("stays");
    assert!(within(PATIENCE, said), "{}", door.stderr());
    for listener in ["web", "other"] {
        let address = &door.addresses(listener)[0];
        assert_eq!(Client::connect(address).ask("/").status, 200, "{listener}");
    }
    assert_eq!(door.wait_for_lines("one", 2).len(), 2);
    // The next one that is right is applied.
    drop(taken);
    door.reload(&two_listeners(&server.authority, false, "three"));
    let other = door.addresses("other")[0].clone();
    assert!(within(PATIENCE, || !door.listens_at(&other)));
    assert_eq!(door.get("/").status, 200);
    assert_eq!(door.wait_for_lines("three", 1).len(), 1);
}

#[test]
fn the_limit_of_connections_holds_for_all_threads_together() {
    let _shared = beside_others();
    for (global, own) in [("", "connections-max = 8"), ("connections-max = 8", "")] {
        let door = Door::weir(&format!(
            "{global}\nthreads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\n\
             bind = \"127.0.0.1:0\"\n{own}\n[[route]]\nanswer = {{ status = 200, body = \"x\" }}\n"
        ));
        let clients: Vec<Client> = (0..40).map(|_| door.client()).collect();
        let open = |door: &Door| door.metrics().known(CONNECTIONS_OPEN, &[("listener", "web")]);
        assert!(within(PATIENCE, || open(&door) == 8.0), "{}", open(&door));
        assert!(door.metrics().known(REFUSED, &[]) >= 1.0, "{}", door.metrics());
        // As they end, the others get their turn, every one of them.
        let asking = clients
            .into_iter()
            .map(|mut client| std::thread::spawn(move || assert_eq!(client.ask("/").status, 200)));
        for one in asking.collect::<Vec<_>>() {
            assert!(open(&door) <= 8.0, "{}", door.metrics());
            one.join().unwrap();
        }
    }
}

#[test]
fn haproxy_log_lines_of_tunnels_have_their_bytes() {
    let _shared = beside_others();
    let server = switching(SWITCH);
    let door = door(&server.authority, "", "");
    let mut client = switched(&door, UPGRADE, "101");
    client.write_all(&[b'x'; 3000]).unwrap();
    client.read_exact(&mut [0; 3000]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let line = HaproxyLine::http(&door.wait_for_lines_with("access.haproxy", "/ws", 1)[0]);
    // The head, "hello", and what was echoed.
    assert!((3005..3400).contains(&line.bytes), "{line:?}");
}
