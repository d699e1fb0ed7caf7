//! Ambiguous requests: the requests at the origin, and the response to the client.

use super::{Vector, Verdict, assert_safe, vectors, verdict};
use crate::support::proxies::{
    ComparedProxy, OriginReply, ProxyKind, ProxySetup, RecordedRequest, RecordingOrigin,
};
use crate::support::shared_machine;
use crate::support::strict_parser::{ReadError, StrictMessage};

const CORPUS: &str = include_str!("requests.txt");
/// Known differences between parsers.
pub(super) const DIFFERENCES: &str = include_str!("differences.txt");
/// Requirements of the RFCs.
pub(super) const REQUIREMENTS: &str = include_str!("requirements.txt");
const MARKER: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: marker\r\n\r\n";

/// Starts an origin whose response names the request that it believes to have received.
fn start_origin() -> RecordingOrigin {
    RecordingOrigin::start(|request| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Answers: ";
        let body = if request.method() == "HEAD" { "" } else { "ok" };
        OriginReply::KeepOpen(vec![format!("{head}{}\r\n\r\n{body}", request.target()).into_bytes()])
    })
}

/// Complete responses that the client got, and the end of the connection.
#[derive(Debug)]
struct Exchange {
    responses: Vec<StrictMessage>,
    end: ReadError,
}

impl Exchange {
    /// Returns the responses that came from the origin.
    fn responses_of_origin(&self) -> Vec<&str> {
        self.responses.iter().filter_map(|response| response.single_value("x-answers")).collect()
    }

    /// Returns the status of the last response if the proxy gave it itself; 0: it only closed.
    fn refusal(&self) -> Option<u16> {
        match self.responses.last() {
            Some(last) => last.single_value("x-answers").is_none().then_some(last.status()),
            None => matches!(self.end, ReadError::Closed).then_some(0),
        }
    }
}

fn send(proxy: &ComparedProxy, vector: &Vector) -> Exchange {
    let mut caller = proxy.connect();
    // The proxy may have closed before the last byte.
    let _ = caller.send(&[&vector.bytes[..], MARKER].concat());
    let timeout = std::time::Duration::from_secs(10);
    caller.stream.set_read_timeout(Some(timeout)).unwrap();
    let method = if vector.bytes.starts_with(b"HEAD") { "HEAD" } else { "GET" };
    let mut responses: Vec<StrictMessage> = Vec::new();
    loop {
        match caller.reader.read_response(method) {
            Ok((_, answer)) => responses.push(answer),
            Err(end) => return Exchange { responses, end },
        }
        // The marker's response is the last possible one.
        if responses.last().is_some_and(|last| last.single_value("x-answers") == Some("/smuggled")) {
            return Exchange { responses, end: ReadError::TimedOut };
        }
    }
}

/// Sends a vector, and then a probe that must get its own response.
fn judge(proxy: &ComparedProxy, origin: &RecordingOrigin, vector: &Vector, subject: ProxyKind) -> Verdict {
    let got = send(proxy, vector);
    let probe = format!("/probe-{}", vector.name);
    let request = format!("GET {probe} HTTP/1.1\r\nHost: probe\r\n\r\n");
    let response = proxy.connect().exchange(request.as_bytes());
    let mut recorded = origin.take_requests();
    if !response.as_ref().is_ok_and(|answer| answer.single_value("x-answers") == Some(probe.as_str())) {
        return verdict("UNSAFE", format!("the next client got {response:?}; origin {recorded:?}"));
    }
    recorded.retain(|record| !record.request.as_ref().is_ok_and(|request| request.target() == probe));
    classify(vector, &got, &recorded, subject)
}

/// Returns whether a request is the one that a row names: `METHOD TARGET LENGTH`, and then the
/// number of requests with the marker, 2 if it is missing.
fn matches_form(request: &StrictMessage, form: &[&str]) -> bool {
    let [method, target, length, ..] = form[..] else { return false };
    let absolute = request.target().strip_prefix("http://a.example");
    request.method() == method
        && (request.target() == target || absolute == Some(target) || target.contains('\\'))
        && request.body.len().to_string() == length
}

fn classify(vector: &Vector, got: &Exchange, recorded: &[RecordedRequest], subject: ProxyKind) -> Verdict {
    let mut complete = Vec::new();
    for record in recorded {
        match &record.request {
            Ok(request) => complete.push(request),
            // Any origin rejects a body that the proxy broke off.
            Err(ReadError::Truncated(_)) => {}
            Err(wrong) => return verdict("ambiguous", format!("the origin saw {wrong:?}")),
        }
    }
    // The client must get a response for each request at the origin, in the same order.
    let targets: Vec<&str> = complete.iter().map(|request| request.target()).collect();
    if targets != got.responses_of_origin() {
        let text = format!("origin received {targets:?}, client received {got:?}");
        return verdict("UNSAFE", text);
    }
    let words: Vec<&str> = vector.expected.split(' ').collect();
    let (may_reject, statuses, form) = match words[..] {
        ["reject" | "respond", ref statuses @ ..] => (true, statuses, &[][..]),
        ["pass", ref form @ ..] => (false, &[][..], form),
        ["either" | "then-close", _, ref form @ ..] => (true, &words[1..2], form),
        _ => panic!("{}: {}", vector.name, vector.expected),
    };
    if complete.is_empty() {
        let Some(status) = got.refusal() else {
            return verdict("stuck", format!("no reaction: {got:?}"));
        };
        let known = statuses.contains(&status.to_string().as_str())
            || (status == 0 && statuses.contains(&"close"))
            || subject != ProxyKind::Weir;
        return match (may_reject, known && got.responses.len() <= 1) {
            (true, true) => verdict("rejected", format!("rejected {status}")),
            (true, false) => verdict("odd", format!("rejected with {got:?}")),
            (false, _) => verdict("over-strict", format!("rejected {status}")),
        };
    }
    let first = got.responses.first().map(|first| first.status().to_string());
    if words[0] == "respond" && targets == ["/smuggled"] && got.responses.len() == 2 {
        let known = first.is_some_and(|first| statuses.contains(&first.as_str()));
        return verdict(if known { "rejected" } else { "odd" }, "responded, and continued");
    }
    let marked = targets.contains(&"/smuggled");
    let lenient = |reason: &str| verdict("lenient", format!("{reason}: {complete:?}"));
    if form.is_empty() {
        return lenient(if marked { "forwarded, with the marker" } else { "forwarded" });
    }
    if !matches_form(complete[0], form) {
        return lenient("not in that form");
    }
    let expected = form.get(3).map_or(2, |count| count.parse().unwrap());
    match (words[0], marked) {
        ("then-close", true) => lenient("the connection stayed open"),
        (_, false) => verdict("forwarded", "forwarded, then closed"),
        (_, true) if complete.len() == expected => verdict("forwarded", "forwarded"),
        _ => verdict("UNSAFE", format!("too many requests: {complete:?}")),
    }
}

fn run_corpus(subject: ProxyKind, corpus: &[Vector]) -> Vec<Verdict> {
    let origin = start_origin();
    // The rows are messages of HTTP/1.1; one begins like a connection of HTTP/2.
    let setup = ProxySetup { listener: "http2 = false", ..ProxySetup::default() };
    let mut proxy = subject.start(origin.authority(), setup);
    let verdicts = corpus.iter().map(|vector| judge(&proxy, &origin, vector, subject)).collect();
    proxy.assert_alive();
    verdicts
}

#[test]
fn nothing_ambiguous_gets_through() {
    let _shared = shared_machine();
    let corpus = vectors(CORPUS);
    assert!(corpus.len() >= 130, "{} vectors", corpus.len());
    assert_all_safe(CORPUS);
}

/// Sends every row of a table to the subject, and compares the results with the allowed ones.
pub(super) fn assert_all_safe(table_text: &str) {
    let subject = ProxyKind::subject();
    if subject.is_installed() {
        let corpus = vectors(table_text);
        assert_safe(subject, &run_corpus(subject, &corpus), &corpus);
    }
}
