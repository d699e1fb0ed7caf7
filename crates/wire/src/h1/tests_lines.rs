//! The splitter of lines beside two other parsers: `explain`, which is as strict, and httparse, which is not.
//!
//! Heads are made by a seed from parts that are right and wrong, then bytes are changed, so that some of each kind are
//! accepted.

use super::explain::{explain_request, explain_response};
use super::lines::{Unsplit, split_request, split_response};
use super::*;

const HEADS: usize = 40_000;

/// Returns whether the bytes start with a complete head without a violation: then a NUL after it is no part of it.
fn is_complete(explain: fn(&[u8], usize) -> Option<RefusalKind>, bytes: &[u8], headers_max: usize) -> bool {
    explain(bytes, headers_max).is_none() && explain(&[bytes, b"\0"].concat(), headers_max).is_none()
}

struct HeadMaker(fastrand::Rng);

impl HeadMaker {
    fn pick<'t>(&mut self, texts: &[&'t [u8]]) -> &'t [u8] {
        texts[self.0.usize(..texts.len())]
    }

    fn run(&mut self, byte: u8) -> Vec<u8> {
        vec![byte; self.0.usize(..40)]
    }

    fn head(&mut self, start_lines: &[&[u8]]) -> Vec<u8> {
        let mut head = self.pick(start_lines).to_vec();
        head.extend(self.pick(&[b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b" \r\n"]));
        for _ in 0..self.0.usize(..6) {
            head.extend(self.pick(&[b"Host", b"x", b"Content-Length", b"a.b~c!d", b"X_Y-1", b"", b"a b"]));
            head.extend(self.run(b'n'));
            head.extend(self.pick(&[b":", b": ", b":\t \t", b":", b" :", b""]));
            head.extend(self.pick(&[
                b"",
                b"a",
                b"5",
                b"\xe9t\xe9",
                "é".as_bytes(),
                b"a\tb",
                b"a \t",
                b"\x7f",
            ]));
            head.extend(self.run(b'v'));
            head.extend(self.pick(&[b"\r\n", b"\r\n", b" \r\n", b"\t\r\n", b"\r\n", b"\n"]));
        }
        head.extend(b"\r\n");
        head.extend(self.run(b'b'));
        for _ in 0..self.0.usize(..3) {
            let at = self.0.usize(..head.len());
            head[at] = self.0.u8(..);
        }
        if self.0.bool() {
            head.truncate(self.0.usize(..head.len()));
        }
        head
    }
}

#[test]
fn of_requests_it_splits_what_a_slow_parser_accepts() {
    let mut maker = HeadMaker(fastrand::Rng::with_seed(0x1ead));
    let lines: &[&[u8]] = &[
        b"GET / HTTP/1.1",
        b"POST /a?b=%20&c HTTP/1.0",
        b"M-SEARCH!#$% * HTTP/1.1",
        b"GET http://a.example/ HTTP/1.1",
        b"GET /a#b HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/2.0",
        b" / HTTP/1.1",
    ];
    let (mut accepted, mut in_field) = (0, 0);
    for _ in 0..HEADS {
        let (head, headers_max) = (maker.head(lines), maker.0.usize(2..8));
        let shown = head.escape_ascii();
        let mut slots = header_slots();
        let split = split_request(&head, headers_max, &mut slots);
        assert_eq!(split.is_ok(), is_complete(explain_request, &head, headers_max), "{shown}");
        let lines = match split {
            Ok(lines) => lines,
            Err(unsplit) => {
                let is_wrong = explain_request(&head, headers_max).is_some();
                assert!(unsplit == Unsplit::Elsewhere || !is_wrong, "{shown}");
                in_field += usize::from(unsplit == Unsplit::InField);
                continue;
            }
        };
        accepted += 1;
        let mut other_slots = [httparse::EMPTY_HEADER; HEADERS_CAP];
        let mut other = httparse::Request::new(&mut other_slots);
        assert_eq!(other.parse(&head), Ok(httparse::Status::Complete(lines.head_len)), "{shown}");
        assert_eq!((other.method, other.path), (Some(lines.method), Some(lines.target)), "{shown}");
        assert_eq!(other.version == Some(1), lines.version == Version::Http11, "{shown}");
        check_fields(other.headers, &slots);
    }
    assert!(accepted > HEADS / 40 && in_field > HEADS / 100, "{accepted} and {in_field}");
}

#[test]
fn of_responses_it_splits_what_a_slow_parser_accepts() {
    let mut maker = HeadMaker(fastrand::Rng::with_seed(0x2ead));
    let lines: &[&[u8]] = &[
        b"HTTP/1.1 200 OK",
        b"HTTP/1.0 404 Not Found",
        b"HTTP/1.1 200",
        b"HTTP/1.1 204 ",
        b"HTTP/1.1 999 \xe9",
        b"HTTP/1.1 099  two  blanks\t",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.2 200 OK",
    ];
    let (mut accepted, mut in_field) = (0, 0);
    for _ in 0..HEADS {
        let (head, headers_max) = (maker.head(lines), maker.0.usize(2..8));
        let shown = head.escape_ascii();
        let mut slots = header_slots();
        let split = split_response(&head, headers_max, &mut slots);
        assert_eq!(split.is_ok(), is_complete(explain_response, &head, headers_max), "{shown}");
        let lines = match split {
            Ok(lines) => lines,
            Err(unsplit) => {
                let is_wrong = explain_response(&head, headers_max).is_some();
                assert!(unsplit == Unsplit::Elsewhere || !is_wrong, "{shown}");
                in_field += usize::from(unsplit == Unsplit::InField);
                continue;
            }
        };
        accepted += 1;
        let mut other_slots = [httparse::EMPTY_HEADER; HEADERS_CAP];
        let mut other = httparse::Response::new(&mut other_slots);
        assert_eq!(other.parse(&head), Ok(httparse::Status::Complete(lines.head_len)), "{shown}");
        assert_eq!((other.code, other.reason), (Some(lines.status), Some(lines.reason)), "{shown}");
        assert_eq!(other.version == Some(1), lines.version == Version::Http11, "{shown}");
        check_fields(other.headers, &slots);
    }
    assert!(accepted > HEADS / 40 && in_field > HEADS / 100, "{accepted} and {in_field}");
}

#[track_caller]
fn check_fields(expected: &[httparse::Header<'_>], found: &[Header<'_>]) {
    let expected: Vec<_> = expected.iter().map(|header| (header.name, header.value)).collect();
    let found: Vec<_> = found.iter().map(|header| (header.name, header.value)).collect();
    assert_eq!(found, expected);
}
