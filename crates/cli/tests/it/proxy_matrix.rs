//! Exact forwarding by a proxy: every method with every framing and status, split at any position,
//! with real peers on both sides. The client and the origin are raw bytes, and a strict reader
//! without code of weir parses them.
//!
//! Each test takes a subject. `bench/run strictness` runs them against HAProxy as well: a failure on
//! both is a fault of the test. A comment next to the row notes behaviour that is specific to HAProxy.
//! `smuggling` tests deliberately malformed messages.

mod bodies;
mod edges;
mod fields;
mod flow;
mod real;

/// Turns each function over a subject into a test of [`ProxyKind::subject`].
macro_rules! against_subject {
    ($($test:ident),* $(,)?) => {
        mod subject {
            $(#[test]
            fn $test() {
                let subject = crate::support::proxies::ProxyKind::subject();
                crate::proxy_matrix::run_if_installed(subject, super::$test);
            })*
        }
    };
}
pub(crate) use against_subject;

use crate::support::proxies::ProxyKind;
use crate::support::shared_machine;

/// Runs a test body if its subject is installed.
fn run_if_installed(subject: ProxyKind, body: fn(ProxyKind)) {
    let _shared = shared_machine();
    if subject.is_installed() {
        body(subject);
    }
}

/// Returns content of so many bytes that differs from the start of any other length. Framing errors
/// break it: it contains line ends, chunk sizes and heads.
fn content(length: usize) -> Vec<u8> {
    let mut state = length as u32 | 1;
    let mut bytes = b"\r\n0\r\n\r\nGET /inside HTTP/1.1\r\n\r\n".to_vec();
    while bytes.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend(state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Encodes content as chunks of at most `size` bytes, with these trailer lines.
fn chunked(content: &[u8], size: usize, trailers: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 64);
    for chunk in content.chunks(size) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(format!("0\r\n{trailers}\r\n").into_bytes());
    bytes
}

/// Failed rows; all of them are printed at the end.
struct Failures {
    /// Known deviations of this subject: a part of the failure's text, and a description.
    deviations: &'static [(&'static str, &'static str)],
    rows: usize,
    excused: Vec<&'static str>,
    texts: Vec<String>,
}

impl Failures {
    /// Creates an empty list. `deviations` are those of HAProxy; weir has none.
    fn of(subject: ProxyKind, deviations: &'static [(&'static str, &'static str)]) -> Self {
        let deviations = if subject == ProxyKind::Haproxy { deviations } else { &[] };
        Self { deviations, rows: 0, excused: Vec::new(), texts: Vec::new() }
    }

    fn check(&mut self, name: &str, result: Result<(), String>) {
        self.rows += 1;
        let Err(reason) = result else { return };
        let text = format!("{name}: {reason}");
        match self.deviations.iter().find(|(part, _)| text.contains(part)) {
            Some((_, way)) => self.excused.push(way),
            None => self.texts.push(text),
        }
        // Each of these may have waited for a timeout.
        if self.texts.len() >= 40 {
            self.assert_none("given up");
        }
    }

    fn assert_none(&self, what: &str) {
        let (failed, rows) = (self.texts.len(), self.rows);
        assert!(failed == 0, "{what}: {failed} of {rows} rows fail:\n{}", self.texts.join("\n"));
    }

    fn finish(mut self, what: &str) {
        self.assert_none(what);
        self.excused.sort_unstable();
        println!("{what}: {} of {} rows pass", self.rows - self.excused.len(), self.rows);
        for deviation in self.excused.chunk_by(|left, right| left == right) {
            println!("  {} rows otherwise: {}", deviation.len(), deviation[0]);
        }
    }
}

/// Returns `Ok` if the condition holds.
fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason()) }
}
