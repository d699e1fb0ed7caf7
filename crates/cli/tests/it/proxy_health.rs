//! `weir proxy` and the health of its servers: active checks, ejection of those that fail requests.
//! Names are in [`names`]. What the checks decide is unit-tested; here it is the real binary.

mod names;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::door::{Door, PATIENCE};
use crate::support::faulty::telling;
use crate::support::metrics::{CHECKS, EJECTIONS, Metrics, SERVER_STATE, SPARED};
use crate::support::peers::Scripted;
use crate::support::{beside_others, pause_ms, within};

pub(crate) const TOP: &str = "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n";

/// An origin that answers requests with its name, and `/health` with what it is set to.
struct Origin {
    server: Scripted,
    /// Index into [`ANSWERS`].
    answer: Arc<AtomicUsize>,
    checks: Arc<AtomicUsize>,
}

/// What `/health` may be answered with; nothing is the end of the connection.
const ANSWERS: [&str; 5] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready",
    "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrea\r\n2\r\ndy\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nnot yet",
    "",
];
const WELL: usize = 0;
const FAILING: usize = 1;
const CHUNKED: usize = 2;
const NOT_YET: usize = 3;
const SILENT: usize = 4;

impl Origin {
    fn start(name: &'static str, answer: usize) -> Self {
        let (answer, checks) = (Arc::new(AtomicUsize::new(answer)), Arc::new(AtomicUsize::new(0)));
        let (shared, counted) = (Arc::clone(&answer), Arc::clone(&checks));
        let server = Scripted::start(move |peer| {
            while let Some(head) = peer.request()? {
                if head.starts_with("GET /health ") {
                    counted.fetch_add(1, Ordering::SeqCst);
                    match ANSWERS[shared.load(Ordering::SeqCst)] {
                        "" => return Ok(()),
                        answer => peer.send(answer.as_bytes())?,
                    }
                } else {
                    let length = name.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
                    peer.send(answer.as_bytes())?;
                }
            }
            Ok(())
        });
        Self { server, answer, checks }
    }

    fn set(&self, answer: usize) {
        self.answer.store(answer, Ordering::SeqCst);
    }

    fn checks(&self) -> usize {
        self.checks.load(Ordering::SeqCst)
    }
}

/// A server that answers, or closes each connection without a word while it is broken.
struct Fragile {
    server: Scripted,
    broken: Arc<AtomicBool>,
    /// Requests that it got.
    hits: Arc<AtomicUsize>,
}

impl Fragile {
    fn start(broken: bool, failure: &'static str) -> Self {
        let (broken, hits) = (Arc::new(AtomicBool::new(broken)), Arc::new(AtomicUsize::new(0)));
        let (shared, counted) = (Arc::clone(&broken), Arc::clone(&hits));
        let server = Scripted::start(move |peer| {
            while peer.request()?.is_some() {
                counted.fetch_add(1, Ordering::SeqCst);
                match shared.load(Ordering::SeqCst) {
                    true if failure.is_empty() => return Ok(()),
                    true => peer.send(failure.as_bytes())?,
                    false => peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?,
                }
            }
            Ok(())
        });
        Self { server, broken, hits }
    }

    fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

pub(crate) fn is_in(metrics: &Metrics, server: &str, state: &str) -> bool {
    metrics.known(SERVER_STATE, &[("server", server), ("state", state)]) == 1.0
}

fn wait_for_state(door: &Door, server: &str, state: &str) -> Metrics {
    door.metrics_until(&format!("{server} is {state}"), |metrics| is_in(metrics, server, state))
}

/// Waits until a server gets no more requests, or gets them again. What it is found to be is known at once,
/// and its share follows within a tick of the cores.
fn wait_for_use(door: &Door, server: &str, usable: bool) {
    let is_so = |door: &Door| {
        let status = door.status();
        let servers = status["pools"][0]["servers"].as_array().unwrap();
        let of_server = servers.iter().find(|one| one["name"] == server).unwrap();
        of_server["usable"] == usable
    };
    assert!(within(PATIENCE, || is_so(door)), "{server}: {:#}", door.status());
}

pub(crate) fn wait_for_words(door: &Door, words: &str) {
    let said = within(PATIENCE, || door.stderr().contains(words));
    assert!(said, "never said '{words}': {}", door.stderr());
}

pub(crate) fn body(door: &Door) -> String {
    String::from_utf8(door.get("/").body).unwrap()
}

/// Who answers some requests.
fn answering(door: &Door, requests: usize) -> Vec<String> {
    let mut names: Vec<String> = (0..requests).map(|_| body(door)).collect();
    names.sort();
    names.dedup();
    names
}

fn two_servers(a: &Origin, b: &Scripted, check: &str) -> String {
    format!(
        "{TOP}[pool.app]\nservers = [{{ name = \"a\", address = \"{}\" }}, \
         {{ name = \"b\", address = \"{}\" }}]\n{check}\n",
        a.server.authority, b.authority
    )
}

const CHECK: &str = "[pool.app.check]\ntype = \"http\"\npath = \"/health\"\ninterval = \"50ms\"\ntimeout = \"5s\"\n";

#[test]
fn a_server_goes_down_after_fall_and_comes_up_after_rise() {
    let _shared = beside_others();
    let a = Origin::start("a", WELL);
    let b = Origin::start("b", WELL);
    let door = Door::weir(&two_servers(&a, &b.server, &format!("{CHECK}fall = 4\nrise = 3\n")));
    let passed = [("server", "a"), ("result", "passed")];
    door.metrics_until("it is checked", |metrics| metrics.known(CHECKS, &passed) >= 2.0);
    assert_eq!(answering(&door, 40), ["a", "b"]);
    let before = a.checks();
    a.set(FAILING);
    let metrics = wait_for_state(&door, "a", "down");
    assert!(metrics.known(CHECKS, &[("server", "a"), ("result", "status")]) >= 4.0, "{metrics}");
    assert!(a.checks() >= before + 4);
    wait_for_words(
        &door,
        "pool app: server a is down: http status 500, expected 200-399 (4 checks in a row)",
    );
    wait_for_use(&door, "a", false);
    assert_eq!(answering(&door, 40), ["b"]);
    a.set(SILENT);
    door.metrics_until("it closes", |metrics| {
        metrics.known(CHECKS, &[("server", "a"), ("result", "closed")]) >= 1.0
    });
    let before = a.checks();
    a.set(WELL);
    wait_for_words(&door, "pool app: server a is up (3 checks in a row)");
    assert!(a.checks() >= before + 3);
    assert!(within(PATIENCE, || answering(&door, 20) == ["a", "b"]));
}

#[test]
fn the_content_has_to_be_as_expected() {
    let _shared = beside_others();
    let a = Origin::start("a", NOT_YET);
    let b = Origin::start("b", CHUNKED);
    let check = format!("{CHECK}body = \"ready\"\nrise = 1\n");
    let door = Door::weir(&two_servers(&a, &b.server, &check));
    // Nothing is known in its favour, so one check is enough.
    wait_for_words(&door, "server a is down: no \"ready\" in the content (1 check)");
    wait_for_state(&door, "b", "up");
    a.set(CHUNKED);
    wait_for_state(&door, "a", "up");
}

#[test]
fn a_server_that_refuses_is_down_and_without_servers_it_is_503() {
    let _shared = beside_others();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let door = Door::weir(&format!(
        "{TOP}[pool.app]\nservers = [{{ name = \"a\", address = \"{gone}\" }}]\n\
         check = {{ type = \"tcp\", interval = \"50ms\" }}\nsend-proxy-protocol = \"v1\"\n"
    ));
    let metrics = wait_for_state(&door, "a", "down");
    assert!(metrics.known(CHECKS, &[("server", "a"), ("result", "unreachable")]) >= 1.0);
    assert!(within(PATIENCE, || text(&door.get("/").body).contains("no server that may be used")));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn checks_say_that_they_are_the_proxys_own_where_the_pool_says_whose_requests_are() {
    let _shared = beside_others();
    let (sender, seen) = std::sync::mpsc::channel();
    let server = Scripted::start(move |peer| {
        let head = peer.request()?.unwrap_or_default();
        let _ = sender.send(head);
        peer.send(b"HTTP/1.1 204 No\r\n\r\n")
    });
    let door = Door::weir(&format!(
        "{TOP}[pool.app]\nservers = [{{ name = \"a\", address = \"{}\" }}]\n\
         send-proxy-protocol = \"v1\"\n{CHECK}host = \"app.x\"\nmethod = \"HEAD\"\n\
         headers = {{ x-check = \"1\" }}\n",
        server.authority
    ));
    let head = seen.recv_timeout(PATIENCE).unwrap();
    assert!(
        head.starts_with("PROXY UNKNOWN\r\nHEAD /health HTTP/1.1\r\nHost: app.x\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nx-check: 1\r\n"), "{head}");
    wait_for_state(&door, "a", "up");
}

#[test]
fn an_agent_drains_weighs_and_takes_down() {
    const LINES: [&str; 8] = [
        "up\n",
        "drain\n",
        "ready 40%\n",
        "down # disk full\n",
        "75%\n",
        "up 100%\r\n",
        "maint,maxconn:3\n",
        "hello\n",
    ];
    let _shared = beside_others();
    let server = telling("a");
    let line = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&line);
    let (sender, asked) = std::sync::mpsc::channel();
    let agent = Scripted::start(move |peer| {
        let mut question = [0; 3];
        std::io::Read::read_exact(&mut peer.stream, &mut question)?;
        let _ = sender.send(question);
        peer.send(LINES[shared.load(Ordering::SeqCst)].as_bytes())
    });
    let port = agent.authority.rsplit(':').next().unwrap();
    let door = Door::weir(&format!(
        "{TOP}[pool.app]\nservers = [{{ name = \"a\", address = \"{}\", maxconn = 9 }}]\n\
         [pool.app.check]\ntype = \"agent\"\nport = {port}\nsend = \"hi\\n\"\ninterval = \"40ms\"\n\
         timeout = \"5s\"\nfall = 2\n",
        server.authority
    ));
    let is = |status: u16| within(PATIENCE, || door.get("/").status == status);
    assert_eq!(&asked.recv_timeout(PATIENCE).unwrap(), b"hi\n");
    let say = |at: usize| line.store(at, Ordering::SeqCst);
    wait_for_state(&door, "a", "up");
    assert!(is(200));
    say(1);
    wait_for_state(&door, "a", "drain");
    assert!(is(503));
    say(2);
    wait_for_words(&door, "server a: its agent wants ready, 40%");
    assert!(is(200));
    say(3);
    wait_for_words(&door, "server a is down: its agent says down: disk full (1 check)");
    assert!(is(503));
    // Only its word brings it back.
    say(4);
    wait_for_words(&door, "server a: its agent wants ready, 75%");
    assert!(is_in(&door.metrics(), "a", "down"));
    say(5);
    wait_for_words(&door, "server a is up (1 check)");
    assert!(is(200));
    say(6);
    wait_for_state(&door, "a", "maintenance");
    say(2);
    assert!(is(200));
    // What makes no sense is a check that failed.
    say(7);
    wait_for_words(&door, "server a is down: the agent says \"hello\" (2 checks in a row)");
}

/// Pool of servers named by their place, of which each failure costs its client the request.
fn pool_of(servers: &[&Fragile], outlier: &str) -> String {
    let servers: Vec<&Scripted> = servers.iter().map(|one| &one.server).collect();
    pool_of_scripts(&servers, outlier)
}

fn pool_of_scripts(servers: &[&Scripted], outlier: &str) -> String {
    let servers: Vec<String> = servers
        .iter()
        .enumerate()
        .map(|(at, one)| format!("{{ name = \"s{at}\", address = \"{}\" }}", one.authority))
        .collect();
    let servers = servers.join(", ");
    let top = TOP.replace("threads = 2", "threads = 1");
    format!("{top}[pool.app]\nretries = 0\nservers = [{servers}]\n[pool.app.outlier]\n{outlier}\n")
}

#[test]
fn a_server_that_fails_requests_is_ejected_and_tried_before_it_is_back() {
    let _shared = beside_others();
    let (bad, fine) = (Fragile::start(true, ""), Fragile::start(false, ""));
    let door = Door::weir(&pool_of(&[&bad, &fine], "failures = 3\nejection = \"400ms\"\n"));
    let trial = [("server", "s0"), ("reason", "trial")];
    let mut failed = 0;
    let tried = within(PATIENCE, || {
        failed += usize::from(door.get("/").status == 502);
        door.metrics().known(EJECTIONS, &trial) >= 2.0
    });
    assert!(tried, "{}", door.metrics());
    // Three, and then one for each time that it was tried.
    let metrics = door.metrics();
    let ejections = metrics.known(EJECTIONS, &[("server", "s0")]);
    assert_eq!(metrics.known(EJECTIONS, &[("server", "s0"), ("reason", "failures")]), 1.0);
    assert_eq!(failed as f64, 3.0 + ejections - 1.0, "{metrics}");
    assert_eq!(bad.hits(), failed);
    wait_for_words(&door, "server s0 is ejected for 0.");
    bad.broken.store(false, Ordering::SeqCst);
    let is_back = within(PATIENCE, || {
        assert_eq!(door.get("/").status, 200);
        is_in(&door.metrics(), "s0", "up")
    });
    assert!(is_back, "{}", door.metrics());
    let before = bad.hits();
    assert!(within(PATIENCE, || door.get("/").status == 200 && bad.hits() > before + 5));
    wait_for_words(&door, "server s0 is back after its ejection");
}

#[test]
fn an_ejected_server_gets_nothing_until_its_time_is_over() {
    let _shared = beside_others();
    let (bad, fine) = (
        Fragile::start(true, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
        Fragile::start(false, ""),
    );
    let outlier = "failures = 2\nerrors = 4\nejection = \"60s\"\n";
    let door = Door::weir(&pool_of(&[&bad, &fine], outlier));
    let statuses: Vec<u16> = (0..100).map(|_| door.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 4, "{statuses:?}");
    let metrics = wait_for_state(&door, "s0", "ejected");
    assert_eq!(metrics.known(EJECTIONS, &[("server", "s0"), ("reason", "errors")]), 1.0);
    assert_eq!(bad.hits(), 4);
}

#[test]
fn a_server_with_many_errors_and_one_that_is_slow_are_ejected() {
    let _shared = beside_others();
    let fine = Scripted::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let turns = AtomicUsize::new(0);
    let erring = Scripted::start(move |peer| {
        while peer.request()?.is_some() {
            let is_even = turns.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
            let status = if is_even { 200 } else { 500 };
            peer.send(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
        }
        Ok(())
    });
    let slow = Scripted::start(|peer| {
        while peer.request()?.is_some() {
            pause_ms(150);
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
        Ok(())
    });
    let window = "failures = 0\nwindow = \"2s\"\nrequests-min = 4\nejection = \"60s\"\n";
    for (server, bound, reason) in
        [(&erring, "error-rate = \"25%\"", "error_rate"), (&slow, "latency-factor = 4", "latency")]
    {
        let door = Door::weir(&pool_of_scripts(&[server, &fine], &format!("{window}{bound}\n")));
        let labels = [("server", "s0"), ("reason", reason)];
        let ejected = within(Duration::from_secs(30), || {
            (0..10).for_each(|_| drop(door.get("/")));
            door.metrics().known(EJECTIONS, &labels) == 1.0
        });
        assert!(ejected, "{reason}: {}", door.metrics());
        assert!(is_in(&door.metrics(), "s0", "ejected") && is_in(&door.metrics(), "s1", "up"));
    }
}

#[test]
fn no_more_than_max_ejected_and_never_the_last_one() {
    let _shared = beside_others();
    let four: Vec<Fragile> = (0..4).map(|_| Fragile::start(true, "")).collect();
    let all: Vec<&Fragile> = four.iter().collect();
    for (servers, share, most) in
        [(&all[..], "0.5", 2), (&all[..2], "1.0", 1), (&all[..1], "1.0", 0)]
    {
        let outlier = format!("failures = 2\nejection = \"60s\"\nmax-ejected = {share}\n");
        let door = Door::weir(&pool_of(servers, &outlier));
        let spared = within(PATIENCE, || {
            assert_eq!(door.get("/").status, 502);
            door.metrics().sum(SPARED, &[]) >= 5.0
        });
        assert!(spared, "{}", door.metrics());
        let metrics = door.metrics();
        let ejected = metrics.known(SERVER_STATE, &[("state", "ejected")]);
        assert_eq!(ejected, f64::from(most), "{metrics}");
        assert_eq!(metrics.sum(EJECTIONS, &[]), f64::from(most), "{metrics}");
    }
}

#[test]
fn checks_go_on_across_reloads_and_end_with_the_config() {
    let _shared = beside_others();
    let a = Origin::start("a", FAILING);
    let b = Origin::start("b", WELL);
    let config = |round: usize, check: &str| {
        let config = two_servers(&a, &b.server, check);
        format!("{config}[[route]]\npath = \"/{round}\"\nanswer = {{ body = \"{round}\" }}\n")
    };
    let door = Door::weir(&config(0, CHECK));
    wait_for_state(&door, "a", "down");
    wait_for_use(&door, "a", false);
    assert_eq!(answering(&door, 10), ["b"]);
    for round in 1..=10 {
        let before = a.checks();
        door.reload(&config(round, CHECK));
        let answer = format!("/{round}");
        assert!(within(PATIENCE, || text(&door.get(&answer).body) == round.to_string()));
        // It stays what it was found to be.
        assert_eq!(answering(&door, 5), ["b"], "round {round}");
        assert!(within(PATIENCE, || a.checks() > before), "round {round}");
    }
    assert_eq!(door.stderr().matches("server a is down").count(), 1, "{}", door.stderr());
    // Other checks of the same server go on from what is known.
    door.reload(&config(11, &format!("{CHECK}rise = 1\n")));
    a.set(WELL);
    wait_for_words(&door, "server a is up (1 check)");
    a.set(FAILING);
    wait_for_state(&door, "a", "down");
    // Without checks nobody says that it is down.
    door.reload(&config(12, ""));
    wait_for_state(&door, "a", "up");
    let before = a.checks();
    pause_ms(300);
    assert!(a.checks() <= before + 1);
    assert!(within(Duration::from_secs(20), || answering(&door, 20) == ["a", "b"]));
}
