//! Every way in which a server fails, each a row: what the client gets, how the log says it ended.
//! The same rows are held against HAProxy, which shows that the servers fail the way they should.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread;

use rustix::process::Signal;

use super::{HEAD, Held, end_of, is_one_of, line_about};
use crate::support::beside_others;
use crate::support::door::Door;
use crate::support::faulty::{Full, HalfWay, Refusing, answering_each, ok, scripts};
use crate::support::metrics::REQUESTS;
use crate::support::peers::Scripted;
use crate::support::rude::{Crowd, Seen, ask_and_do, ask_raw};

/// A server that fails, for as long as this is held.
#[derive(Debug)]
enum Origin {
    Refusing(Refusing),
    Full(Full),
    Scripted(Scripted),
    HalfWay(HalfWay),
}

impl Origin {
    fn authority(&self) -> &str {
        match self {
            Self::Refusing(origin) => &origin.authority,
            Self::Full(origin) => &origin.authority,
            Self::Scripted(origin) => &origin.authority,
            Self::HalfWay(origin) => &origin.authority,
        }
    }
}

/// One way to fail.
struct Fault {
    /// Its pool, and the path that leads to it.
    name: &'static str,
    origin: fn() -> Origin,
    /// What the client may be told, with "|" between; a "+" after it: and yet not all of it.
    status: &'static str,
    /// HAProxy's two letters, any of them.
    code: &'static str,
    end: &'static str,
    /// What HAProxy itself says, where it differs: status and letters.
    haproxy: Option<(&'static str, &'static str)>,
}

const fn fault(
    name: &'static str,
    origin: fn() -> Origin,
    [status, code, end]: [&'static str; 3],
) -> Fault {
    Fault { name, origin, status, code, end, haproxy: None }
}

const fn unlike(mut fault: Fault, status: &'static str, code: &'static str) -> Fault {
    fault.haproxy = Some((status, code));
    fault
}

macro_rules! script {
    ($script:expr) => {
        || Origin::Scripted(Scripted::start($script))
    };
}

const SHORT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nthe start of it";
const HALF_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Le";
const HALF_CHUNK: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\nabc";
const NO_LAST_CHUNK: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
const TWO_LENGTHS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx";

const CLOSED: [&str; 3] = ["502", "SH", "server_closed"];
const CUT: [&str; 3] = ["200+", "SD", "server_closed"];
const GARBAGE: [&str; 3] = ["502", "PH", "bad_response"];

#[rustfmt::skip]
const FAULTS: &[Fault] = &[
    fault("refuses", || Origin::Refusing(Refusing::new()), ["503", "SC", "connect_failed"]),
    fault("backlog-full", || Origin::Full(Full::new()), ["503", "sC", "connect_timeout"]),
    fault("silent", script!(scripts::hang_after(b"")), ["504", "sH", "server_timeout"]),
    // The answer may be lost in the reset that the rest of the client's body meets.
    fault("deaf", script!(scripts::read_nothing), ["504|", "sH|sD|sR", "server_timeout"]),
    fault("closes-at-once", script!(scripts::close_at_once), CLOSED),
    fault("closes-after-request", script!(scripts::close_after(b"")), CLOSED),
    fault("closes-in-head", script!(scripts::close_after(HALF_HEAD)), CLOSED),
    fault("closes-in-body", script!(scripts::close_after(SHORT)), CUT),
    fault("closes-in-chunk", script!(scripts::close_after(HALF_CHUNK)), CUT),
    fault("closes-between-chunks", script!(scripts::close_after(NO_LAST_CHUNK)), CUT),
    // A reset that comes with the connection itself can be told from neither side of it.
    unlike(
        fault("resets-at-once", script!(scripts::reset_at_once), ["502|503", "SH|SC", "server_closed|connect_failed"]),
        "502|503", "SH|SC|SD",
    ),
    fault("resets-after-request", script!(scripts::reset_after(b"")), CLOSED),
    fault("resets-in-head", script!(scripts::reset_after(HALF_HEAD)), CLOSED),
    fault("resets-in-body", script!(scripts::reset_after(SHORT)), CUT),
    fault("resets-in-chunk", script!(scripts::reset_after(HALF_CHUNK)), CUT),
    fault("garbage", script!(scripts::close_after(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")), GARBAGE),
    fault("tls-alert", script!(scripts::close_after(b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n")), GARBAGE),
    fault("two-lengths", script!(scripts::close_after(TWO_LENGTHS)), GARBAGE),
    // HAProxy tells it as a server that ended.
    unlike(fault("bad-chunk", script!(scripts::hang_after_both(NO_LAST_CHUNK, b"zz\r\nmore\r\n")), ["200+", "PD", "bad_response"]), "200+", "SD"),
    fault("endless-fields", script!(scripts::endless(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n")), GARBAGE),
    fault("endless-field", script!(scripts::endless(b"HTTP/1.1 200 OK\r\nX-A: ", b"x")), GARBAGE),
    fault("endless-reason", script!(scripts::endless(b"HTTP/1.1 200 ", b"x")), GARBAGE),
    // Bounded by their number or by the time that an answer has.
    unlike(
        fault("endless-interim", script!(scripts::endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")),
            ["502|504|", "PH|sH", "bad_response|server_timeout"]),
        "502|504|", "PH|sH|SH|CH|cD|CD",
    ),
    fault("hangs-in-head", script!(scripts::hang_after(HALF_HEAD)), ["504", "sH", "server_timeout"]),
    fault("hangs-in-body", script!(scripts::hang_after(SHORT)), ["200+", "sD", "server_timeout"]),
    fault("killed", || Origin::HalfWay(HalfWay::start()), CUT),
];

/// What a request on the way to this fault is. The one to a server that reads nothing has a body
/// that no buffer of a kernel holds.
fn request_for(fault: &Fault) -> Vec<u8> {
    let head = |method: &str, more: &str| {
        format!("{method} /{}/x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{more}\r\n", fault.name)
    };
    if fault.name == "deaf" {
        let mut request = head("POST", "Content-Length: 33554432\r\n").into_bytes();
        request.resize(request.len() + 33_554_432, b'x');
        return request;
    }
    head("GET", "").into_bytes()
}

/// What one client sees of a fault.
fn ask(door: &Door, fault: &Fault, origin: &Origin) -> Seen {
    let request = request_for(fault);
    match origin {
        Origin::HalfWay(half_way) => ask_and_do(door.authority(), &request, b"xxx", || {
            half_way.process.signal(Signal::KILL);
        }),
        _ => ask_raw(door.authority(), &request),
    }
}

/// Runs all the rows at once, with a crowd that is served meanwhile; what each client saw.
fn run(door: &Door, origins: &BTreeMap<&str, Origin>) -> BTreeMap<&'static str, Seen> {
    let crowd = Crowd::start(door.authority(), "/good/x", 4);
    let seen = thread::scope(|scope| {
        let asking: Vec<_> = FAULTS
            .iter()
            .map(|fault| (fault.name, scope.spawn(|| ask(door, fault, &origins[fault.name]))))
            .collect();
        asking.into_iter().map(|(name, one)| (name, one.join().unwrap())).collect()
    });
    crowd.wait_for(100);
    crowd.finish();
    seen
}

/// What is wrong with what a client was told, if anything is.
fn wrong_answer(name: &str, seen: &Seen, wanted: &str) -> Option<String> {
    let cut = wanted.ends_with('+');
    let status = seen.status.map_or_else(String::new, |status| status.to_string());
    let right = is_one_of(&status, wanted.trim_end_matches('+'))
        && (seen.whole != cut || status.is_empty());
    (!right).then(|| format!("{name}: {wanted} wanted, seen {status} whole {}", seen.whole))
}

fn origins() -> BTreeMap<&'static str, Origin> {
    FAULTS.iter().map(|fault| (fault.name, (fault.origin)())).collect()
}

#[test]
fn each_fault_of_a_server_is_told_logged_and_counted_as_what_it_is() {
    let _shared = beside_others();
    let (origins, good) = (origins(), answering_each(|_, _| Some(ok(b"good"))));
    let mut config = HEAD.to_owned();
    config.push_str("[listener.web]\nbind = \"127.0.0.1:0\"\n");
    let all = origins.iter().map(|(name, origin)| (*name, origin.authority()));
    for (name, authority) in all.chain([("good", good.authority.as_str())]) {
        let _ = write!(
            config,
            "[[route]]\npath-prefix = \"/{name}\"\npool = \"{name}\"\n\
             [pool.{name}]\nservers = [\"{authority}\"]\nidle-timeout = \"300ms\"\n\
             timeouts = {{ connect = \"10s\", first-byte = \"10s\", idle = \"10s\" }}\n"
        );
    }
    let door = Door::weir(&config);
    let held = Held::of(&door);
    let seen = run(&door, &origins);
    let mut wrong = Vec::new();
    let mut ends: BTreeMap<String, f64> = BTreeMap::new();
    for fault in FAULTS {
        let (name, part) = (fault.name, format!("/{}/x", fault.name));
        wrong.extend(wrong_answer(name, &seen[name], fault.status));
        let (line, end) = (line_about(&door, &part), end_of(&door, &part));
        if !is_one_of(&line.code, fault.code) || !is_one_of(&end, fault.end) {
            wrong.push(format!("{name}: {} and {end} in the logs", line.code));
        }
        // The log says what the client saw, unless the client was sent nothing.
        if seen[name].status.is_some() && line.status != seen[name].status {
            wrong.push(format!("{name}: {:?} is in the log", line.status));
        }
        *ends.entry(end).or_default() += 1.0;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let metrics = door.metrics();
    for (end, count) in ends {
        assert_eq!(metrics.known(REQUESTS, &[("end", &end)]), count, "{end}: {metrics}");
    }
    held.wait_for_all_back(&door);
}

#[test]
#[ignore = "judges HAProxy and not weir, for people: cargo test -- --ignored"]
fn the_faults_are_the_same_faults_to_haproxy() {
    let _shared = beside_others();
    let (origins, good) = (origins(), answering_each(|_, _| Some(ok(b"good"))));
    let mut config = "global\n  log stdout format raw local0\n  tune.bufsize 16384\ndefaults\n  \
        mode http\n  log global\n  option httplog\n  timeout connect 3s\n  timeout client 20s\n  \
        timeout server 4s\n  retries 0\nfrontend web\n  bind 127.0.0.1:PORT\n"
        .to_owned();
    let all = || {
        let faults = origins.iter().map(|(name, origin)| (*name, origin.authority()));
        faults.chain([("good", good.authority.as_str())])
    };
    for (name, _) in all() {
        let _ = writeln!(config, "  use_backend {name} if {{ path_beg /{name}/ }}");
    }
    for (name, authority) in all() {
        let _ = write!(config, "backend {name}\n  server one {authority}\n");
    }
    let door = Door::haproxy(&config);
    let seen = run(&door, &origins);
    let mut wrong = Vec::new();
    for fault in FAULTS {
        let (status, code) = fault.haproxy.unwrap_or((fault.status, fault.code));
        wrong.extend(wrong_answer(fault.name, &seen[fault.name], status));
        let lines = door.wait_for_lines_with("stdout", &format!("/{}/x", fault.name), 1);
        let line = crate::support::hlog::HaproxyLine::http(&lines[0]);
        if !is_one_of(&line.code, code) {
            wrong.push(format!("{}: {} in the log", fault.name, line.code));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
