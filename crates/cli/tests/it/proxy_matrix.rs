//! What goes through a proxy, byte for byte: every method with every framing and status, in any
//! pieces, with real peers on both sides. The client and the origin are raw bytes, read by a strict
//! reader that shares no code with weir.
//!
//! Each test is written for a subject and runs against weir and against HAProxy: what fails on both
//! is the test's fault. What HAProxy does in a way of its own is said beside the row. What is
//! malformed on purpose is in `smuggling`.

mod bodies;
mod edges;
mod fields;
mod flow;
mod real;

/// Makes of each function over a subject one test for weir and one for HAProxy.
macro_rules! against_both {
    ($($test:ident),* $(,)?) => {
        mod weir {
            $(#[test]
            fn $test() {
                crate::proxy_matrix::run(crate::support::proxies::Subject::Weir, super::$test);
            })*
        }
        mod haproxy {
            $(#[test]
            #[ignore = "judges HAProxy and not weir, for people: cargo test -- --ignored"]
            fn $test() {
                crate::proxy_matrix::run(crate::support::proxies::Subject::Haproxy, super::$test);
            })*
        }
    };
}
pub(crate) use against_both;

use crate::support::beside_others;
use crate::support::proxies::Subject;

/// Runs a test body where its subject is.
fn run(subject: Subject, body: fn(Subject)) {
    let _shared = beside_others();
    if subject.is_here() {
        body(subject);
    }
}

/// Content of so many bytes that no other length begins with and no framing survives by accident:
/// it holds line ends, chunk sizes and heads.
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

/// Content as chunks of at most `size` bytes, with these trailer lines.
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

/// Rows that failed; all of them are printed at the end.
struct Failures {
    /// What rows of this subject do otherwise, by a part of the failure's text, and that it is so.
    ways: &'static [(&'static str, &'static str)],
    rows: usize,
    excused: Vec<&'static str>,
    texts: Vec<String>,
}

impl Failures {
    /// `ways` are HAProxy's; weir has none.
    fn of(subject: Subject, ways: &'static [(&'static str, &'static str)]) -> Self {
        let ways = if subject == Subject::Haproxy { ways } else { &[] };
        Self { ways, rows: 0, excused: Vec::new(), texts: Vec::new() }
    }

    fn row(&mut self, name: &str, result: Result<(), String>) {
        self.rows += 1;
        let Err(why) = result else { return };
        let text = format!("{name}: {why}");
        match self.ways.iter().find(|(part, _)| text.contains(part)) {
            Some((_, way)) => self.excused.push(way),
            None => self.texts.push(text),
        }
        // Each of these may have taken a time-out.
        if self.texts.len() >= 40 {
            self.give_up("given up");
        }
    }

    fn give_up(&self, what: &str) {
        let (failed, rows) = (self.texts.len(), self.rows);
        assert!(failed == 0, "{what}: {failed} of {rows} rows fail:\n{}", self.texts.join("\n"));
    }

    fn finish(mut self, what: &str) {
        self.give_up(what);
        self.excused.sort_unstable();
        println!("{what}: {} of {} rows pass", self.rows - self.excused.len(), self.rows);
        for way in self.excused.chunk_by(|one, other| one == other) {
            println!("  {} rows otherwise: {}", way.len(), way[0]);
        }
    }
}

/// `Ok` when it holds.
fn hold(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
