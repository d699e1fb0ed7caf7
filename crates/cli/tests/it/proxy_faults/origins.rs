//! Every failure of a server, each a row: the response to the client and the end in the log. `bench/run
//! strictness` runs the same rows against HAProxy, which proves that the servers fail as intended.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread;

use rustix::process::Signal;

use super::{CONFIG_HEAD, HeldResources, end_in_json_log, haproxy_line_for, is_one_of};
use crate::support::faulty_origins::{
    FullBacklog, HalfBodyServer, RefusingPort, ok_response, respond_to_each, scripts,
};
use crate::support::hostile_client::{BackgroundClients, ReceivedResponse, exchange_and_call, exchange_raw};
use crate::support::metrics::REQUESTS;
use crate::support::peers::ScriptedServer;
use crate::support::proxies::ProxyKind;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

/// A faulty server, which runs as long as this value lives.
#[derive(Debug)]
enum FaultyOrigin {
    Refusing(RefusingPort),
    Full(FullBacklog),
    Scripted(ScriptedServer),
    HalfWay(HalfBodyServer),
}

impl FaultyOrigin {
    fn authority(&self) -> &str {
        match self {
            Self::Refusing(origin) => &origin.authority,
            Self::Full(origin) => &origin.authority,
            Self::Scripted(origin) => &origin.authority,
            Self::HalfWay(origin) => &origin.authority,
        }
    }
}

/// One kind of failure.
struct Fault {
    /// Name of its pool, and of the path that leads to it.
    name: &'static str,
    origin: fn() -> FaultyOrigin,
    /// Allowed status codes of the response, separated by "|". A trailing "+" means that the
    /// response is cut.
    status: &'static str,
    /// Allowed termination codes of HAProxy, two letters each.
    code: &'static str,
    end: &'static str,
    /// Status and termination code of HAProxy itself, where they differ.
    haproxy: Option<(&'static str, &'static str)>,
}

const fn fault(
    name: &'static str,
    origin: fn() -> FaultyOrigin,
    [status, code, end]: [&'static str; 3],
) -> Fault {
    Fault { name, origin, status, code, end, haproxy: None }
}

const fn with_haproxy_result(mut fault: Fault, status: &'static str, code: &'static str) -> Fault {
    fault.haproxy = Some((status, code));
    fault
}

macro_rules! script {
    ($script:expr) => {
        || FaultyOrigin::Scripted(ScriptedServer::start($script))
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
    fault("refuses", || FaultyOrigin::Refusing(RefusingPort::new()), ["503", "SC", "connect_failed"]),
    fault("backlog-full", || FaultyOrigin::Full(FullBacklog::new()), ["503", "sC", "connect_timeout"]),
    fault("silent", script!(scripts::hang_after(b"")), ["504", "sH", "server_timeout"]),
    // The response may be lost in the reset that the rest of the client's body causes.
    fault("deaf", script!(scripts::read_nothing), ["504|", "sH|sD|sR", "server_timeout"]),
    fault("closes-at-once", script!(scripts::close_at_once), CLOSED),
    fault("closes-after-request", script!(scripts::close_after(b"")), CLOSED),
    fault("closes-in-head", script!(scripts::close_after(HALF_HEAD)), CLOSED),
    fault("closes-in-body", script!(scripts::close_after(SHORT)), CUT),
    fault("closes-in-chunk", script!(scripts::close_after(HALF_CHUNK)), CUT),
    fault("closes-between-chunks", script!(scripts::close_after(NO_LAST_CHUNK)), CUT),
    // Neither side can distinguish a reset that arrives with the connection itself.
    with_haproxy_result(
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
    // HAProxy reports it as a server that closed.
    with_haproxy_result(fault("bad-chunk", script!(scripts::hang_after_both(NO_LAST_CHUNK, b"zz\r\nmore\r\n")), ["200+", "PD", "bad_response"]), "200+", "SD"),
    fault("endless-fields", script!(scripts::endless(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n")), GARBAGE),
    fault("endless-field", script!(scripts::endless(b"HTTP/1.1 200 OK\r\nX-A: ", b"x")), GARBAGE),
    fault("endless-reason", script!(scripts::endless(b"HTTP/1.1 200 ", b"x")), GARBAGE),
    // The number of interim responses or the response timeout ends it.
    with_haproxy_result(
        fault("endless-interim", script!(scripts::endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")),
            ["502|504|", "PH|sH", "bad_response|server_timeout"]),
        "502|504|", "PH|sH|SH|CH|cD|CD",
    ),
    fault("hangs-in-head", script!(scripts::hang_after(HALF_HEAD)), ["504", "sH", "server_timeout"]),
    fault("hangs-in-body", script!(scripts::hang_after(SHORT)), ["200+", "sD", "server_timeout"]),
    fault("killed", || FaultyOrigin::HalfWay(HalfBodyServer::start()), CUT),
];

/// Builds the request for this fault. The one to a server that reads nothing has a body larger than
/// any kernel buffer.
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

/// Returns the response of a fault to one client.
fn response_of_fault(proxy: &ProxyUnderTest, fault: &Fault, origin: &FaultyOrigin) -> ReceivedResponse {
    let request = request_for(fault);
    match origin {
        FaultyOrigin::HalfWay(half_way) => exchange_and_call(proxy.authority(), &request, b"xxx", || {
            half_way.process.signal(Signal::KILL);
        }),
        _ => exchange_raw(proxy.authority(), &request),
    }
}

/// Runs all rows at once, with a crowd that is served meanwhile; returns the response to each
/// client.
fn run_faults(
    proxy: &ProxyUnderTest,
    origins: &BTreeMap<&str, FaultyOrigin>,
) -> BTreeMap<&'static str, ReceivedResponse> {
    let background = BackgroundClients::start(proxy.authority(), "/good/x", 4);
    let responses = thread::scope(|scope| {
        let asking: Vec<_> = FAULTS
            .iter()
            .map(|fault| (fault.name, scope.spawn(|| response_of_fault(proxy, fault, &origins[fault.name]))))
            .collect();
        asking.into_iter().map(|(name, handle)| (name, handle.join().unwrap())).collect()
    });
    background.wait_for(100);
    background.finish();
    responses
}

/// Describes the error in a client's response, if there is one.
fn response_error(name: &str, response: &ReceivedResponse, expected: &str) -> Option<String> {
    let cut = expected.ends_with('+');
    let status = response.status.map_or_else(String::new, |status| status.to_string());
    let right = is_one_of(&status, expected.trim_end_matches('+'))
        && (response.is_complete != cut || status.is_empty());
    (!right)
        .then(|| format!("{name}: expected {expected}, received {status}, complete {}", response.is_complete))
}

fn start_origins() -> BTreeMap<&'static str, FaultyOrigin> {
    FAULTS.iter().map(|fault| (fault.name, (fault.origin)())).collect()
}

#[test]
fn each_fault_of_a_server_is_told_logged_and_counted_as_what_it_is() {
    let _shared = shared_machine();
    if ProxyKind::subject() == ProxyKind::Haproxy {
        assert_faults_at_haproxy();
        return;
    }
    let (origins, good) = (start_origins(), respond_to_each(|_, _| Some(ok_response(b"good"))));
    let mut config = CONFIG_HEAD.to_owned();
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
    let proxy = ProxyUnderTest::weir(&config);
    let baseline = HeldResources::measure(&proxy);
    let responses = run_faults(&proxy, &origins);
    let mut wrong = Vec::new();
    let mut ends: BTreeMap<String, f64> = BTreeMap::new();
    for fault in FAULTS {
        let (name, part) = (fault.name, format!("/{}/x", fault.name));
        wrong.extend(response_error(name, &responses[name], fault.status));
        let (line, end) = (haproxy_line_for(&proxy, &part), end_in_json_log(&proxy, &part));
        if !is_one_of(&line.code, fault.code) || !is_one_of(&end, fault.end) {
            wrong.push(format!("{name}: {} and {end} in the logs", line.code));
        }
        // The log reports the response of the client, unless the client got none.
        if responses[name].status.is_some() && line.status != responses[name].status {
            wrong.push(format!("{name}: {:?} is in the log", line.status));
        }
        *ends.entry(end).or_default() += 1.0;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let metrics = proxy.metrics();
    for (end, count) in ends {
        assert_eq!(metrics.sum_known(REQUESTS, &[("end", &end)]), count, "{end}: {metrics}");
    }
    baseline.wait_until_returned(&proxy);
}

fn assert_faults_at_haproxy() {
    let (origins, good) = (start_origins(), respond_to_each(|_, _| Some(ok_response(b"good"))));
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
    let proxy = ProxyUnderTest::haproxy(&config);
    let responses = run_faults(&proxy, &origins);
    let mut wrong = Vec::new();
    for fault in FAULTS {
        let (status, code) = fault.haproxy.unwrap_or((fault.status, fault.code));
        wrong.extend(response_error(fault.name, &responses[fault.name], status));
        let lines = proxy.wait_for_lines_with("stdout", &format!("/{}/x", fault.name), 1);
        let line = crate::support::haproxy_log::HaproxyLogLine::http(&lines[0]);
        if !is_one_of(&line.code, code) {
            wrong.push(format!("{}: {} in the log", fault.name, line.code));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
