//! Hostile responses: their effect on the client, and a proof that the next client gets its own
//! response.

use std::io;
use std::time::Duration;

use super::{Vector, Verdict, assert_safe, vectors, verdict};
use crate::support::peers::ScriptedServer;
use crate::support::proxies::{ComparedProxy, ProxyKind, ProxySetup};
use crate::support::strict_parser::{ReadError, StrictMessage, StrictReader, preview};
use crate::support::{EVENT_TIMEOUT, shared_machine};

const CORPUS: &str = include_str!("responses.txt");

/// Starts an origin that sends the vector whose index is the target, and `fine` for anything else.
fn start_origin() -> ScriptedServer {
    let corpus = vectors(CORPUS);
    ScriptedServer::start(move |peer| {
        let mut reader = StrictReader::new(&peer.stream);
        while let Ok(request) = reader.read_request() {
            let index = request.target().trim_start_matches('/').parse::<usize>();
            match index.ok().and_then(|index| corpus.get(index)) {
                Some(vector) => peer.send(&vector.bytes)?,
                None => {
                    let target = request.target();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-For: {target}");
                    peer.send(format!("{head}\r\n\r\nfine").as_bytes())?;
                }
            }
        }
        io::Result::Ok(())
    })
}

fn judge(proxy: &ComparedProxy, index: usize, vector: &Vector, timeout: Duration) -> Verdict {
    let mut caller = proxy.connect();
    caller.stream.set_read_timeout(Some(timeout)).unwrap();
    let response = caller.exchange(format!("GET /{index} HTTP/1.1\r\nHost: a.example\r\n\r\n").as_bytes());
    // The next requests of the same client and of other clients get their own responses or none.
    let _ = caller.send(b"GET /own HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let own = caller.reader.read_response("GET").map(|(_, response)| response);
    if own.as_ref().is_ok_and(|own| own.status() == 200 && own.single_value("x-for") != Some("/own")) {
        return verdict("UNSAFE", format!("its next answer is {own:?}"));
    }
    for target in ["/next-1", "/next-2"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let next = proxy.connect().exchange(request.as_bytes());
        if !next.as_ref().is_ok_and(|next| next.single_value("x-for") == Some(target)) {
            return verdict("UNSAFE", format!("the next client got {next:?}"));
        }
    }
    classify(vector, response)
}

fn classify(vector: &Vector, response: Result<StrictMessage, ReadError>) -> Verdict {
    let (kind, body) = vector.expected.split_once(' ').unwrap_or((&vector.expected, ""));
    let body = body.trim_matches('-');
    match response {
        Ok(response) if response.status() == 502 => match kind {
            "pass" => verdict("over-strict", "502"),
            _ => verdict("rejected", "502"),
        },
        Err(ReadError::Closed | ReadError::Truncated(_)) => match kind {
            "pass" => verdict("over-strict", "closed"),
            _ => verdict("rejected", "closed"),
        },
        Err(ReadError::TimedOut) => verdict("stuck", "nothing in time"),
        Err(wrong) => verdict("ambiguous", format!("the client got {wrong:?}")),
        Ok(response) => {
            let evil = response.body.windows(4).any(|four| four == b"EVIL");
            let right = response.body == body.as_bytes() && matches!(kind, "pass" | "either");
            let cut = kind == "cut" && !response.persists();
            match (evil, right || cut) {
                (true, _) => verdict("UNSAFE", preview(&response.body)),
                (false, true) => verdict("forwarded", format!("forwarded {}", response.status())),
                (false, false) => verdict("lenient", format!("forwarded {response:?}")),
            }
        }
    }
}

fn run_corpus(subject: ProxyKind, corpus: &[Vector]) -> Vec<Verdict> {
    let origin = start_origin();
    let mut proxy = subject.start(&origin.authority, ProxySetup::default());
    let rows = corpus.iter().enumerate();
    // Other proxies hang on some rows, and the test waits for that; ours must not.
    let timeout = if subject == ProxyKind::Weir { EVENT_TIMEOUT } else { Duration::from_secs(5) };
    let verdicts = rows.map(|(index, vector)| judge(&proxy, index, vector, timeout)).collect();
    proxy.assert_alive();
    verdicts
}

#[test]
fn no_client_gets_what_it_did_not_ask_for() {
    let _shared = shared_machine();
    let subject = ProxyKind::subject();
    if subject.is_installed() {
        let corpus = vectors(CORPUS);
        assert_safe(subject, &run_corpus(subject, &corpus), &corpus);
    }
}
