//! Tests of health checks in `weir proxy`: active checks, ejection of servers that fail requests.
//! [`dns`] tests DNS names. Unit tests cover the decisions of the checks; these use the real
//! binary.

mod dns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::faulty_origins::{RefusingPort, echoing_server};
use crate::support::metrics::{CHECKS, EJECTIONS, Metrics, RELOADS, REQUESTS, SERVER_STATE, SPARED};
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::{pause_ms, shared_machine, within};

pub(crate) const CONFIG_HEAD: &str =
    "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n";

/// Origin that responds to requests with its name, and to `/health` as configured.
struct HealthOrigin {
    server: ScriptedServer,
    /// Index into [`HEALTH_RESPONSES`].
    response_index: Arc<AtomicUsize>,
    checks: Arc<AtomicUsize>,
}

/// Possible responses to `/health`; an empty one closes the connection.
const HEALTH_RESPONSES: [&str; 5] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready",
    "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrea\r\n2\r\ndy\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nnot yet",
    "",
];
const HEALTHY: usize = 0;
const FAILING: usize = 1;
const CHUNKED: usize = 2;
const UNAVAILABLE: usize = 3;
const SILENT: usize = 4;

impl HealthOrigin {
    fn start(name: &'static str, response: usize) -> Self {
        let (response, checks) = (Arc::new(AtomicUsize::new(response)), Arc::new(AtomicUsize::new(0)));
        let (shared, counted) = (Arc::clone(&response), Arc::clone(&checks));
        let server = ScriptedServer::start(move |peer| {
            while let Some(head) = peer.request()? {
                if head.starts_with("GET /health ") {
                    // A counted check has its response: a later change does not affect it.
                    let response = HEALTH_RESPONSES[shared.load(Ordering::SeqCst)];
                    counted.fetch_add(1, Ordering::SeqCst);
                    if response.is_empty() {
                        return Ok(());
                    }
                    peer.send(response.as_bytes())?;
                } else {
                    let length = name.len();
                    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
                    peer.send(response.as_bytes())?;
                }
            }
            Ok(())
        });
        Self { server, response_index: response, checks }
    }

    fn set(&self, response: usize) {
        self.response_index.store(response, Ordering::SeqCst);
    }

    fn checks(&self) -> usize {
        self.checks.load(Ordering::SeqCst)
    }
}

/// Server that responds, or silently closes each connection while it is broken.
struct BreakableServer {
    server: ScriptedServer,
    broken: Arc<AtomicBool>,
    /// Number of received requests.
    hits: Arc<AtomicUsize>,
}

impl BreakableServer {
    fn start(broken: bool, failure: &'static str) -> Self {
        let (broken, hits) = (Arc::new(AtomicBool::new(broken)), Arc::new(AtomicUsize::new(0)));
        let (shared, counted) = (Arc::clone(&broken), Arc::clone(&hits));
        let server = ScriptedServer::start(move |peer| {
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

pub(crate) fn is_in_state(metrics: &Metrics, server: &str, state: &str) -> bool {
    metrics.sum_known(SERVER_STATE, &[("server", server), ("state", state)]) == 1.0
}

fn wait_for_state(proxy: &ProxyUnderTest, server: &str, state: &str) -> Metrics {
    proxy.metrics_until(&format!("{server} is {state}"), |metrics| is_in_state(metrics, server, state))
}

/// Waits until a server gets no more requests, or gets them again. Its state changes at once, and
/// its traffic follows within a tick of the cores.
fn wait_for_usable(proxy: &ProxyUnderTest, server: &str, usable: bool) {
    let is_so = |proxy: &ProxyUnderTest| {
        let status = proxy.status();
        let servers = status["pools"][0]["servers"].as_array().unwrap();
        let server_row = servers.iter().find(|row| row["name"] == server).unwrap();
        server_row["usable"] == usable
    };
    assert!(within(EVENT_TIMEOUT, || is_so(proxy)), "{server}: {:#}", proxy.status());
}

/// Returns the number of lines of stderr that contain all of these parts.
pub(crate) fn stderr_line_count(proxy: &ProxyUnderTest, parts: &[&str]) -> usize {
    let stderr = proxy.stderr();
    stderr.lines().filter(|line| parts.iter().all(|part| line.contains(*part))).count()
}

/// Waits for a line of stderr that contains all of these parts.
pub(crate) fn wait_for_stderr(proxy: &ProxyUnderTest, parts: &[&str]) {
    let reported = within(EVENT_TIMEOUT, || stderr_line_count(proxy, parts) > 0);
    assert!(reported, "never reported {parts:?}: {}", proxy.stderr());
}

pub(crate) fn body(proxy: &ProxyUnderTest) -> String {
    String::from_utf8(proxy.get("/").body).unwrap()
}

/// Returns the names of the servers that respond to some requests.
fn responding_servers(proxy: &ProxyUnderTest, requests: usize) -> Vec<String> {
    let mut names: Vec<String> = (0..requests).map(|_| body(proxy)).collect();
    names.sort();
    names.dedup();
    names
}

fn two_servers(a: &HealthOrigin, b: &ScriptedServer, check: &str) -> String {
    format!(
        "{CONFIG_HEAD}[pool.app]\nservers = [{{ name = \"a\", address = \"{}\" }}, \
         {{ name = \"b\", address = \"{}\" }}]\n{check}\n",
        a.server.authority, b.authority
    )
}

const CHECK: &str =
    "[pool.app.check]\ntype = \"http\"\npath = \"/health\"\ninterval = \"50ms\"\ntimeout = \"5s\"\n";

#[test]
fn a_server_goes_down_after_fall_and_comes_up_after_rise() {
    let _shared = shared_machine();
    let a = HealthOrigin::start("a", HEALTHY);
    let b = HealthOrigin::start("b", HEALTHY);
    let proxy = ProxyUnderTest::weir(&two_servers(&a, &b.server, &format!("{CHECK}fall = 4\nrise = 3\n")));
    let passed = [("server", "a"), ("result", "passed")];
    proxy.metrics_until("it is checked", |metrics| metrics.sum_known(CHECKS, &passed) >= 2.0);
    assert_eq!(responding_servers(&proxy, 40), ["a", "b"]);
    let before = a.checks();
    a.set(FAILING);
    let metrics = wait_for_state(&proxy, "a", "down");
    assert!(metrics.sum_known(CHECKS, &[("server", "a"), ("result", "status")]) >= 4.0, "{metrics}");
    assert!(a.checks() >= before + 4);
    wait_for_stderr(&proxy, &["pool app", "server a", "down", "500", "200-399", "(4 "]);
    wait_for_usable(&proxy, "a", false);
    assert_eq!(responding_servers(&proxy, 40), ["b"]);
    a.set(SILENT);
    proxy.metrics_until("it closes", |metrics| {
        metrics.sum_known(CHECKS, &[("server", "a"), ("result", "closed")]) >= 1.0
    });
    let before = a.checks();
    a.set(HEALTHY);
    wait_for_stderr(&proxy, &["pool app", "server a", " up ", "(3 "]);
    assert!(a.checks() >= before + 3);
    assert!(within(EVENT_TIMEOUT, || responding_servers(&proxy, 20) == ["a", "b"]));
}

#[test]
fn the_content_has_to_be_as_expected() {
    let _shared = shared_machine();
    let a = HealthOrigin::start("a", UNAVAILABLE);
    let b = HealthOrigin::start("b", CHUNKED);
    let check = format!("{CHECK}body = \"ready\"\nrise = 1\n");
    let proxy = ProxyUnderTest::weir(&two_servers(&a, &b.server, &check));
    // The server has no passed check yet, so one failed check is enough.
    wait_for_stderr(&proxy, &["server a", "down", "\"ready\"", "(1 "]);
    wait_for_state(&proxy, "b", "up");
    a.set(CHUNKED);
    wait_for_state(&proxy, "a", "up");
}

#[test]
fn a_server_that_refuses_is_down_and_without_servers_it_is_503() {
    let _shared = shared_machine();
    let refusing = RefusingPort::new();
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[pool.app]\nservers = [{{ name = \"a\", address = \"{}\" }}]\n\
         check = {{ type = \"tcp\", interval = \"50ms\" }}\nsend-proxy-protocol = \"v1\"\n",
        refusing.authority
    ));
    let metrics = wait_for_state(&proxy, "a", "down");
    assert!(metrics.sum_known(CHECKS, &[("server", "a"), ("result", "unreachable")]) >= 1.0);
    // Until the cores know it, requests fail at the server itself.
    let no_server = [("listener", "web"), ("end", "no_server")];
    assert!(within(EVENT_TIMEOUT, || {
        assert_eq!(proxy.get("/").status, 503);
        proxy.metrics().sum_known(REQUESTS, &no_server) >= 1.0
    }));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn checks_say_that_they_are_the_proxys_own_where_the_pool_says_whose_requests_are() {
    let _shared = shared_machine();
    let (sender, heads) = std::sync::mpsc::channel();
    let server = ScriptedServer::start(move |peer| {
        let head = peer.request()?.unwrap_or_default();
        let _ = sender.send(head);
        peer.send(b"HTTP/1.1 204 No\r\n\r\n")
    });
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[pool.app]\nservers = [{{ name = \"a\", address = \"{}\" }}]\n\
         send-proxy-protocol = \"v1\"\n{CHECK}host = \"app.x\"\nmethod = \"HEAD\"\n\
         headers = {{ x-check = \"1\" }}\n",
        server.authority
    ));
    let head = heads.recv_timeout(EVENT_TIMEOUT).unwrap();
    assert!(head.starts_with("PROXY UNKNOWN\r\nHEAD /health HTTP/1.1\r\nHost: app.x\r\n"), "{head}");
    assert!(head.contains("\r\nx-check: 1\r\n"), "{head}");
    wait_for_state(&proxy, "a", "up");
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
    let _shared = shared_machine();
    let server = echoing_server("a");
    let line = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&line);
    let (sender, questions) = std::sync::mpsc::channel();
    let agent = ScriptedServer::start(move |peer| {
        let mut question = [0; 3];
        std::io::Read::read_exact(&mut peer.stream, &mut question)?;
        let _ = sender.send(question);
        peer.send(LINES[shared.load(Ordering::SeqCst)].as_bytes())
    });
    let port = agent.authority.rsplit(':').next().unwrap();
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[pool.app]\nservers = [{{ name = \"a\", address = \"{}\", maxconn = 9 }}]\n\
         [pool.app.check]\ntype = \"agent\"\nport = {port}\nsend = \"hi\\n\"\ninterval = \"40ms\"\n\
         timeout = \"5s\"\nfall = 2\n",
        server.authority
    ));
    let is = |status: u16| within(EVENT_TIMEOUT, || proxy.get("/").status == status);
    assert_eq!(&questions.recv_timeout(EVENT_TIMEOUT).unwrap(), b"hi\n");
    let say = |at: usize| line.store(at, Ordering::SeqCst);
    wait_for_state(&proxy, "a", "up");
    assert!(is(200));
    say(1);
    wait_for_state(&proxy, "a", "drain");
    assert!(is(503));
    say(2);
    wait_for_stderr(&proxy, &["server a", "ready", "40%"]);
    assert!(is(200));
    say(3);
    wait_for_stderr(&proxy, &["server a", "down: disk full", "(1 "]);
    assert!(is(503));
    // Only the agent brings it back.
    say(4);
    wait_for_stderr(&proxy, &["server a", "ready", "75%"]);
    assert!(is_in_state(&proxy.metrics(), "a", "down"));
    say(5);
    wait_for_stderr(&proxy, &["server a", " up ", "(1 "]);
    assert!(is(200));
    say(6);
    wait_for_state(&proxy, "a", "maintenance");
    say(2);
    assert!(is(200));
    // An unknown word of the agent is a failed check.
    say(7);
    wait_for_stderr(&proxy, &["server a", "down", "\"hello\"", "(2 "]);
}

/// Formats a pool of servers named by their position, in which each failure costs the client its
/// request.
fn pool_of(servers: &[&BreakableServer], outlier: &str) -> String {
    let servers: Vec<&ScriptedServer> = servers.iter().map(|breakable| &breakable.server).collect();
    pool_of_scripts(&servers, outlier)
}

fn pool_of_scripts(servers: &[&ScriptedServer], outlier: &str) -> String {
    let servers: Vec<String> = servers
        .iter()
        .enumerate()
        .map(|(at, server)| format!("{{ name = \"s{at}\", address = \"{}\" }}", server.authority))
        .collect();
    let servers = servers.join(", ");
    let top = CONFIG_HEAD.replace("threads = 2", "threads = 1");
    format!("{top}[pool.app]\nretries = 0\nservers = [{servers}]\n[pool.app.outlier]\n{outlier}\n")
}

#[test]
fn a_server_that_fails_requests_is_ejected_and_tried_before_it_is_back() {
    let _shared = shared_machine();
    let (bad, fine) = (BreakableServer::start(true, ""), BreakableServer::start(false, ""));
    let proxy = ProxyUnderTest::weir(&pool_of(&[&bad, &fine], "failures = 3\nejection = \"400ms\"\n"));
    let probe = [("server", "s0"), ("reason", "probe")];
    let mut failed = 0;
    let tried = within(EVENT_TIMEOUT, || {
        failed += usize::from(proxy.get("/").status == 502);
        proxy.metrics().sum_known(EJECTIONS, &probe) >= 2.0
    });
    assert!(tried, "{}", proxy.metrics());
    // Three failures, and then one for each half-open probe.
    let metrics = proxy.metrics();
    let ejections = metrics.sum_known(EJECTIONS, &[("server", "s0")]);
    assert_eq!(metrics.sum_known(EJECTIONS, &[("server", "s0"), ("reason", "failures")]), 1.0);
    assert_eq!(failed as f64, 3.0 + ejections - 1.0, "{metrics}");
    assert_eq!(bad.hits(), failed);
    wait_for_stderr(&proxy, &["server s0", "ejected", " 0."]);
    bad.broken.store(false, Ordering::SeqCst);
    let is_back = within(EVENT_TIMEOUT, || {
        assert_eq!(proxy.get("/").status, 200);
        is_in_state(&proxy.metrics(), "s0", "up")
    });
    assert!(is_back, "{}", proxy.metrics());
    let before = bad.hits();
    assert!(within(EVENT_TIMEOUT, || proxy.get("/").status == 200 && bad.hits() > before + 5));
    wait_for_stderr(&proxy, &["server s0", "recovered"]);
}

#[test]
fn an_ejected_server_gets_nothing_until_its_time_is_over() {
    let _shared = shared_machine();
    let (bad, fine) = (
        BreakableServer::start(true, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
        BreakableServer::start(false, ""),
    );
    let outlier = "failures = 2\nerrors = 4\nejection = \"60s\"\n";
    let proxy = ProxyUnderTest::weir(&pool_of(&[&bad, &fine], outlier));
    let statuses: Vec<u16> = (0..100).map(|_| proxy.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 4, "{statuses:?}");
    let metrics = wait_for_state(&proxy, "s0", "ejected");
    assert_eq!(metrics.sum_known(EJECTIONS, &[("server", "s0"), ("reason", "errors")]), 1.0);
    assert_eq!(bad.hits(), 4);
}

#[test]
fn a_server_with_many_errors_and_one_that_is_slow_are_ejected() {
    let _shared = shared_machine();
    let fine = ScriptedServer::responding(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let turns = AtomicUsize::new(0);
    let erring = ScriptedServer::start(move |peer| {
        while peer.request()?.is_some() {
            let is_even = turns.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
            let status = if is_even { 200 } else { 500 };
            peer.send(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
        }
        Ok(())
    });
    let slow = ScriptedServer::start(|peer| {
        while peer.request()?.is_some() {
            // More than four times the latency of the other one, also on a busy machine.
            pause_ms(400);
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
        Ok(())
    });
    let window = "failures = 0\nwindow = \"4s\"\nrequests-min = 4\nejection = \"60s\"\n";
    for (server, bound, reason) in
        [(&erring, "error-rate = \"25%\"", "error_rate"), (&slow, "latency-factor = 4", "latency")]
    {
        let proxy = ProxyUnderTest::weir(&pool_of_scripts(&[server, &fine], &format!("{window}{bound}\n")));
        let labels = [("server", "s0"), ("reason", reason)];
        let ejected = within(2 * EVENT_TIMEOUT, || {
            (0..10).for_each(|_| drop(proxy.get("/")));
            proxy.metrics().sum_known(EJECTIONS, &labels) == 1.0
        });
        assert!(ejected, "{reason}: {}", proxy.metrics());
        assert!(is_in_state(&proxy.metrics(), "s0", "ejected") && is_in_state(&proxy.metrics(), "s1", "up"));
    }
}

#[test]
fn no_more_than_max_ejected_and_never_the_last_one() {
    let _shared = shared_machine();
    let four: Vec<BreakableServer> = (0..4).map(|_| BreakableServer::start(true, "")).collect();
    let all: Vec<&BreakableServer> = four.iter().collect();
    for (servers, fraction, max) in [(&all[..], "0.5", 2), (&all[..2], "1.0", 1), (&all[..1], "1.0", 0)] {
        let outlier = format!("failures = 2\nejection = \"60s\"\nmax-ejected = {fraction}\n");
        let proxy = ProxyUnderTest::weir(&pool_of(servers, &outlier));
        let spared = within(EVENT_TIMEOUT, || {
            assert_eq!(proxy.get("/").status, 502);
            proxy.metrics().sum(SPARED, &[]) >= 5.0
        });
        assert!(spared, "{}", proxy.metrics());
        let metrics = proxy.metrics();
        let ejected = metrics.sum_known(SERVER_STATE, &[("state", "ejected")]);
        assert_eq!(ejected, f64::from(max), "{metrics}");
        assert_eq!(metrics.sum(EJECTIONS, &[]), f64::from(max), "{metrics}");
    }
}

#[test]
fn a_check_may_use_options_asterisk() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        while let Some(head) = peer.request()? {
            let status = match head.starts_with("OPTIONS * HTTP/1.1\r\nHost: ") {
                true => "204 No Content",
                false => "500 Oh",
            };
            peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
        }
        Ok(())
    });
    let check = CHECK.replace("path = \"/health\"", "path = \"*\"\nmethod = \"OPTIONS\"");
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[pool.app]\nservers = [\"{}\"]\n{check}",
        server.authority
    ));
    let passed = |metrics: &Metrics| metrics.sum(CHECKS, &[("result", "passed")]);
    let metrics = proxy.metrics_until("checks have passed", |metrics| passed(metrics) >= 3.0);
    assert_eq!(metrics.sum(CHECKS, &[]), passed(&metrics));
}

#[test]
fn checks_go_on_across_reloads_and_end_with_the_config() {
    let _shared = shared_machine();
    let a = HealthOrigin::start("a", FAILING);
    let b = HealthOrigin::start("b", HEALTHY);
    let config = |round: usize, check: &str| {
        let config = two_servers(&a, &b.server, check);
        format!("{config}[[route]]\npath = \"/{round}\"\nreturn = {{ body = \"{round}\" }}\n")
    };
    let proxy = ProxyUnderTest::weir(&config(0, CHECK));
    wait_for_state(&proxy, "a", "down");
    wait_for_usable(&proxy, "a", false);
    assert_eq!(responding_servers(&proxy, 10), ["b"]);
    for round in 1..=10 {
        let before = a.checks();
        proxy.reload(&config(round, CHECK));
        let response = format!("/{round}");
        assert!(within(EVENT_TIMEOUT, || text(&proxy.get(&response).body) == round.to_string()));
        // The server keeps its state.
        assert_eq!(responding_servers(&proxy, 5), ["b"], "round {round}");
        assert!(within(EVENT_TIMEOUT, || a.checks() > before), "round {round}");
    }
    assert_eq!(stderr_line_count(&proxy, &["server a", "down"]), 1, "{}", proxy.stderr());
    // Changed checks of the same server continue from the known state.
    proxy.reload(&config(11, &format!("{CHECK}rise = 1\n")));
    let applied = [("result", "applied")];
    proxy.metrics_until("it is applied", |metrics| metrics.sum_known(RELOADS, &applied) == 11.0);
    // The health thread applies the reload before it responds once more.
    proxy.metrics();
    a.set(HEALTHY);
    wait_for_stderr(&proxy, &["server a", " up ", "(1 "]);
    a.set(FAILING);
    wait_for_state(&proxy, "a", "down");
    // Without checks, no server is down, and none is checked.
    proxy.reload(&config(12, ""));
    wait_for_state(&proxy, "a", "up");
    let is_unchecked = || {
        let before = a.checks();
        pause_ms(300);
        a.checks() == before
    };
    assert!(within(EVENT_TIMEOUT, is_unchecked), "{} checks", a.checks());
    assert!(within(EVENT_TIMEOUT, || responding_servers(&proxy, 20) == ["a", "b"]));
}
