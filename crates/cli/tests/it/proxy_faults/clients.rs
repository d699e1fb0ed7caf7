//! Clients that vanish, stall or talk nonsense: each is told and logged as what it is, and costs no
//! more than its own connection. Slow servers are in `origins`, numbers of clients in `limits`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use rt::clock::now_ns;

use super::{HEAD, Held, end_of, is_one_of, line_about};
use crate::support::door::Door;
use crate::support::faulty::{Gated, answering_each, close_is_a_reset, ok, send_what_goes};
use crate::support::metrics::BUFFERS_LENT;
use crate::support::peers::Scripted;
use crate::support::rude::{Crowd, ask_raw, connect, see};
use crate::support::{PATIENCE, beside_others, pause_ms, within};

/// What a listener allows its clients here: short, and yet longer than a busy machine keeps one of
/// these tests from going on.
const TIMEOUTS: &str = "timeouts = { head = \"2s\", body-idle = \"2s\", \
     body-progress = \"2500ms\", body-progress-bytes = \"4k\", write = \"2s\", \
     keep-alive = \"2s\" }";
/// How often a client sends a byte that drips.
const DRIP_MS: u64 = 50;
/// Three times as many as the longest of the time-outs allows.
const DRIPS: usize = 150;

/// A proxy before a server that answers, one with a large answer at `/big`, and one with a gate at
/// `/gate`.
struct Scene {
    door: Door,
    gated: Gated,
    _origin: Scripted,
}

const BIG: usize = 32 << 20;

impl Scene {
    fn start() -> Self {
        let big = vec![b'x'; BIG];
        let origin = answering_each(move |request, _| {
            Some(ok(if request.target().starts_with("/big") { &big } else { b"small" }))
        });
        let gated = Gated::start();
        let door = Door::weir(&format!(
            "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{TIMEOUTS}\n\
             [listener.patient]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [[route]]\npath-prefix = \"/gate\"\npool = \"gate\"\n\
             [pool.app]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n\
             [pool.gate]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n",
            origin.authority, gated.server.authority
        ));
        Self { door, gated, _origin: origin }
    }

    /// Others, who have done nothing wrong: where they come in they may pause for as long as the machine
    /// makes them.
    fn crowd(&self) -> Crowd {
        Crowd::start(&self.door.addresses("patient")[0], "/", 4)
    }

    fn ask(&self, request: &str) -> TcpStream {
        let mut stream = connect(self.door.authority());
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn assert_logged(&self, part: &str, codes: &str, ends: &str) {
        let (code, end) = (line_about(&self.door, part).code, end_of(&self.door, part));
        assert!(is_one_of(&code, codes) && is_one_of(&end, ends), "{part}: {code}, {end}");
    }
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n")
}

#[test]
fn a_client_that_resets_while_it_waits_is_gone_at_once() {
    let _shared = beside_others();
    let scene = Scene::start();
    let held = Held::of(&scene.door);
    let crowd = scene.crowd();
    let client = scene.ask(&get("/gate/reset"));
    assert_eq!(scene.gated.next(), "/gate/reset");
    close_is_a_reset(&client);
    drop(client);
    // It is logged while the server still has it.
    scene.assert_logged("/gate/reset", "CH", "client_gone");
    scene.gated.let_one_through();
    crowd.finish();
    held.wait_for_all_back(&scene.door);
}

#[test]
fn a_client_that_closes_while_it_waits_leaves_nothing_behind() {
    let _shared = beside_others();
    let scene = Scene::start();
    let held = Held::of(&scene.door);
    let client = scene.ask(&get("/gate/close"));
    assert_eq!(scene.gated.next(), "/gate/close");
    drop(client);
    scene.assert_logged("/gate/close", "CH", "client_gone");
    scene.gated.let_one_through();
    held.wait_for_all_back(&scene.door);
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_its_answer_is_logged_so() {
    let _shared = beside_others();
    let scene = Scene::start();
    let held = Held::of(&scene.door);
    let crowd = scene.crowd();
    for reset in [true, false] {
        let target = format!("/big/{reset}");
        let mut client = scene.ask(&get(&target));
        client.read_exact(&mut [0; 1000]).unwrap();
        if reset {
            close_is_a_reset(&client);
        }
        drop(client);
        scene.assert_logged(&target, "CD", "client_gone");
        let line = line_about(&scene.door, &target);
        assert!(line.status == Some(200) && (line.bytes as usize) < BIG, "{line:?}");
    }
    crowd.finish();
    held.wait_for_all_back(&scene.door);
}

/// Sends a start and then byte after byte until nobody takes them; how many went.
fn drip(mut writer: TcpStream, start: &[u8]) -> usize {
    let bytes = start.iter().chain(std::iter::repeat(&b'x')).take(DRIPS);
    bytes.take_while(|byte| writer.write_all(&[**byte]).is_ok()).map(|_| pause_ms(DRIP_MS)).count()
}

#[test]
fn a_head_that_drips_in_is_408_at_the_deadline_of_all_of_it() {
    let _shared = beside_others();
    let scene = Scene::start();
    let crowd = scene.crowd();
    let mut client = connect(scene.door.authority());
    let (writer, start_ns) = (client.try_clone().unwrap(), now_ns());
    let dripping = std::thread::spawn(move || drip(writer, b"GET /drip?"));
    let seen = see(&mut client);
    let took_ms = (now_ns() - start_ns) / 1_000_000;
    assert_eq!(seen.status, Some(408), "{}", seen.head);
    assert!(took_ms >= 1990, "{took_ms} ms");
    // No byte of the drip started the time anew.
    assert!(dripping.join().unwrap() < DRIPS, "all of it was waited for");
    let lines = scene.door.wait_for_lines_with("access.json", "head_timeout", 1);
    assert_eq!(lines.len(), 1);
    scene.door.wait_for_lines_with("access.haproxy", " cR", 1);
    crowd.finish();
}

#[test]
fn a_body_that_stops_or_drips_is_408() {
    let _shared = beside_others();
    let scene = Scene::start();
    let held = Held::of(&scene.door);
    let head = |target: &str| {
        format!("POST {target} HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nabc")
    };
    let mut stopped = scene.ask(&head("/body/stops"));
    let mut drips = scene.ask(&head("/body/drips"));
    let writer = drips.try_clone().unwrap();
    // A byte each 50 ms is never idle, and never 4 KiB in the time for so many.
    let dripping = std::thread::spawn(move || drip(writer, b""));
    assert_eq!(see(&mut stopped).status, Some(408));
    let seen = see(&mut drips);
    assert_eq!(seen.status, Some(408), "{}", seen.head);
    dripping.join().unwrap();
    for target in ["/body/stops", "/body/drips"] {
        scene.assert_logged(target, "cR", "body_timeout");
    }
    drop((stopped, drips));
    held.wait_for_all_back(&scene.door);
}

#[test]
fn a_body_that_makes_progress_may_take_longer_than_any_of_its_timeouts() {
    let _shared = beside_others();
    let scene = Scene::start();
    let length = 20 * 8192;
    let mut client = scene.ask(&format!(
        "POST /steady HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    ));
    for _ in 0..20 {
        client.write_all(&[b'x'; 8192]).unwrap();
        pause_ms(150);
    }
    assert_eq!(see(&mut client).status, Some(200));
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_request_is_logged_so() {
    let _shared = beside_others();
    let scene = Scene::start();
    let held = Held::of(&scene.door);
    let part = "POST /left HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nabc";
    let client = scene.ask(part);
    close_is_a_reset(&client);
    drop(client);
    scene.assert_logged("/left", "CR|CH|CD", "client_gone");
    drop(scene.ask("GET /half-a-he"));
    scene.door.wait_for_lines_with("access.haproxy", " CR", 1);
    held.wait_for_all_back(&scene.door);
}

#[test]
fn clients_that_never_read_are_given_up_and_cost_little_memory() {
    let _shared = beside_others();
    let scene = Scene::start();
    let held = Held::of(&scene.door);
    // What one large answer costs is there already.
    assert_eq!(scene.door.get("/big/first").body.len(), BIG);
    let before = scene.door.resident_bytes();
    let clients: Vec<TcpStream> =
        (0..50).map(|number| scene.ask(&get(&format!("/big/unread/{number}")))).collect();
    let most = std::cell::Cell::new(before);
    let given_up = within(PATIENCE, || {
        most.set(most.get().max(scene.door.resident_bytes()));
        let lines = scene.door.lines("access.json");
        lines.iter().filter(|line| line.contains("write_timeout")).count() == 50
    });
    assert!(given_up, "{:#?}", scene.door.lines("access.json"));
    let grown = most.get() - before;
    assert!(grown < 8 << 20, "50 clients that take nothing cost {grown} bytes");
    let codes = scene.door.lines("access.haproxy");
    let right = codes.iter().filter(|line| line.contains(" cD") || line.contains(" cL")).count();
    assert_eq!(right, 50, "{codes:#?}");
    drop(clients);
    held.wait_for_all_back(&scene.door);
}

#[test]
fn nonsense_is_refused_and_logged_with_its_status() {
    let _shared = beside_others();
    let scene = Scene::start();
    let crowd = scene.crowd();
    let long = "x".repeat(64 * 1024);
    let cases = [
        ("\x16\x03\x01\x02\r\n\r\n".to_owned(), 400),
        ("GET\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost t\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/7.3\r\nHost: t\r\n\r\n".to_owned(), 505),
        (format!("GET / HTTP/1.1\r\nHost: t\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\nHost: t\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "A: b\r\n".repeat(1000)), 431),
        ("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n".to_owned(), 405),
    ];
    let mut wrong = Vec::new();
    for (number, (request, status)) in cases.iter().enumerate() {
        let mut client = connect(scene.door.authority());
        send_what_goes(&mut client, request.as_bytes());
        // Whoever sends nonsense may end its sending as well.
        let _ = client.shutdown(Shutdown::Write);
        let seen = see(&mut client);
        if seen.status != Some(*status) {
            wrong.push(format!("case {number}: {status} wanted, seen {:?}", seen.status));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let lines = scene.door.wait_for_lines_with("access.haproxy", " PR", cases.len());
    assert_eq!(lines.len(), cases.len(), "{lines:#?}");
    crowd.finish();
}

#[test]
fn idle_connections_are_closed_in_time_and_without_a_word() {
    let _shared = beside_others();
    let scene = Scene::start();
    let held = Held::of(&scene.door);
    let mut used = scene.door.client();
    assert_eq!(used.ask("/").status, 200);
    let mut silent = connect(scene.door.authority());
    assert!(used.rest().is_empty());
    let seen = see(&mut silent);
    assert!(seen.status.is_none() && seen.body.is_empty(), "{seen:?}");
    held.wait_for_all_back(&scene.door);
}

#[test]
fn a_body_over_the_bound_is_413_with_and_without_a_length() {
    let _shared = beside_others();
    let origin = answering_each(|_, _| Some(ok(b"taken")));
    let door = Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\nbody-max = \"1k\"\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    let body = "x".repeat(1025);
    let ask = |target: &str, framing: &str, body: &str| {
        let head =
            format!("POST {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{framing}\r\n");
        ask_raw(door.authority(), format!("{head}\r\n{body}").as_bytes()).status
    };
    assert_eq!(ask("/length", "Content-Length: 1025", &body), Some(413));
    let chunk = format!("401\r\n{body}\r\n0\r\n\r\n");
    assert_eq!(ask("/chunked", "Transfer-Encoding: chunked", &chunk), Some(413));
    assert_eq!(ask("/fits", "Content-Length: 1024", &body[1..]), Some(200));
    let chunk = format!("400\r\n{}\r\n0\r\n\r\n", &body[1..]);
    assert_eq!(ask("/fits-too", "Transfer-Encoding: chunked", &chunk), Some(200));
    assert_eq!(end_of(&door, "/length"), "body_too_large");
    assert_eq!(end_of(&door, "/chunked"), "body_too_large");
    door.metrics_until("buffers come back", |metrics| metrics.known(BUFFERS_LENT, &[]) == 0.0);
}

/// HAProxy in the place of weir, with the same time-outs.
fn haproxy(origin: &Scripted, gated: &Gated) -> Door {
    Door::haproxy(&format!(
        "global\n  log stdout format raw local0\ndefaults\n  mode http\n  log global\n  \
         option httplog\n  option abortonclose\n  timeout connect 5s\n  timeout server 20s\n  \
         timeout client 2s\n  timeout http-request 2s\n  timeout http-keep-alive 2s\n\
         frontend web\n  bind 127.0.0.1:PORT\n  use_backend gate if {{ path_beg /gate }}\n  \
         default_backend app\nbackend app\n  server one {}\nbackend gate\n  server one {}\n",
        origin.authority, gated.server.authority
    ))
}

#[test]
#[ignore = "judges HAProxy and not weir, for people: cargo test -- --ignored"]
fn the_same_clients_are_told_and_logged_the_same_by_haproxy() {
    let _shared = beside_others();
    let big = vec![b'x'; BIG];
    let origin = answering_each(move |_, _| Some(ok(&big)));
    let gated = Gated::start();
    let door = haproxy(&origin, &gated);
    let ask = |target: &str| {
        let mut stream = connect(door.authority());
        stream.write_all(get(target).as_bytes()).unwrap();
        stream
    };
    let reset = ask("/gate/reset");
    gated.next();
    close_is_a_reset(&reset);
    drop(reset);
    let mut vanished = ask("/vanished");
    vanished.read_exact(&mut [0; 1000]).unwrap();
    close_is_a_reset(&vanished);
    drop(vanished);
    let unread = ask("/unread");
    let mut dripping = connect(door.authority());
    let writer = dripping.try_clone().unwrap();
    let drips = std::thread::spawn(move || drip(writer, b"GET /drip?"));
    assert_eq!(see(&mut dripping).status, Some(408));
    drips.join().unwrap();
    assert_eq!(ask_raw(door.authority(), b"nonsense\r\n\r\n").status, Some(400));
    for (part, code) in [
        // HAProxy has no letter of its own for this one: it says where the data would have been.
        ("/gate/reset", " CD-- "),
        ("/vanished", " CD-- "),
        ("/unread", " cD-- "),
        (" 408 ", " cR-- "),
        (" 400 ", " PR-- "),
    ] {
        let lines = door.wait_for_lines_with("stdout", part, 1);
        assert!(lines.len() == 1 && lines[0].contains(code), "{part}: {lines:#?}");
    }
    drop(unread);
    gated.let_one_through();
}
