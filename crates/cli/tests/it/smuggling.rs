//! Requests at the origin when a client, or the origin itself, sends ambiguous bytes. The vectors
//! are data, in `smuggling/*.txt`; the origin records with a strict reader.
//!
//! After each vector, a probe on its own connection must get the probe's response: it reveals a
//! desynchronised connection to the origin.

mod conformance;
mod requests;
mod responses;

use std::collections::BTreeMap;

use crate::support::proxies::ProxyKind;

/// Result of a vector: a word for the totals, and the details.
struct Verdict {
    class: &'static str,
    text: String,
}

fn verdict(class: &'static str, text: impl Into<String>) -> Verdict {
    Verdict { class, text: text.into() }
}

/// Bytes of a vector, with its name.
struct Vector {
    name: String,
    expected: String,
    bytes: Vec<u8>,
}

/// Reads `name | expected | bytes` lines.
fn vectors(text: &str) -> Vec<Vector> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let vectors = lines.map(|line| {
        let mut columns = line.splitn(3, " | ");
        let mut next = || columns.next().unwrap_or_else(|| panic!("three columns in {line}"));
        let (name, expected, bytes) = (next(), next(), next());
        Vector { name: name.to_owned(), expected: expected.to_owned(), bytes: unescape(bytes) }
    });
    vectors.collect()
}

/// Named parts of the data files.
const NAMED_PARTS: &[(&str, &str)] = &[
    ("P", "POST /v HTTP/1.1\r\nHost: a.example\r\n"),
    ("G", "GET /v HTTP/1.1\r\n"),
    ("H", "Host: a.example\r\n"),
    ("C", "5\r\nhello\r\n0\r\n\r\n"),
    ("0", "0\r\n\r\n"),
    ("T", " HTTP/1.1\r\nHost: t\r\n"),
    ("DONE", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("OK", "HTTP/1.1 200 OK\r\n"),
    ("EVIL", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Evil: yes\r\n\r\nEVIL"),
];

fn named_part(name: &str) -> Vec<u8> {
    if let Some((_, text)) = NAMED_PARTS.iter().find(|(other, _)| *other == name) {
        return text.as_bytes().to_vec();
    }
    match name.split_once('*').map(|(what, count)| (what, count.parse::<usize>().unwrap())) {
        Some(("fields", count)) => {
            (0..count).flat_map(|number| format!("X-{number}: v\r\n").into_bytes()).collect()
        }
        Some(("INTERIM", count)) => b"HTTP/1.1 102 Processing\r\n\r\n".repeat(count),
        Some(("CHUNK", size)) => format!("{size:x}\r\n{}\r\n", "x".repeat(size)).into_bytes(),
        Some((what, count)) => what.repeat(count).into_bytes(),
        None => panic!("no part {name}"),
    }
}

/// Returns the bytes of a table row, which contains escapes and named parts in braces.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '{' => {
                let (name, after) = rest.split_once('}').unwrap();
                bytes.extend(named_part(name));
                rest = after;
            }
            '\\' => {
                let kind = rest.as_bytes()[0];
                rest = &rest[1..];
                bytes.push(match kind {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'0' => 0,
                    b'x' => {
                        let (hex, after) = rest.split_at(2);
                        rest = after;
                        u8::from_str_radix(hex, 16).unwrap()
                    }
                    b'\\' => b'\\',
                    other => panic!("\\{}", char::from(other)),
                });
            }
            other => bytes.extend(other.to_string().into_bytes()),
        }
    }
    bytes
}

/// Prints the verdicts of a subject, and requires that weir rejects or forwards every vector. Another
/// subject only has to forward the plain ones: that tests the runner.
fn assert_safe(subject: ProxyKind, verdicts: &[Verdict], vectors: &[Vector]) {
    print_verdicts(subject, verdicts, vectors);
    let is_allowed = |vector: &Vector, verdict: &Verdict| match subject {
        ProxyKind::Weir => ["rejected", "forwarded"].contains(&verdict.class),
        _ => !vector.name.starts_with("plain") || verdict.class == "forwarded",
    };
    let rows = vectors.iter().zip(verdicts).filter(|(vector, verdict)| !is_allowed(vector, verdict));
    let bad: Vec<String> = rows
        .map(|(vector, Verdict { class, text })| {
            format!("{} ({}): {class}: {text}", vector.name, vector.expected)
        })
        .collect();
    assert!(bad.is_empty(), "{} vectors:\n{}", bad.len(), bad.join("\n"));
}

/// Prints a row for each vector, and the totals.
fn print_verdicts(subject: ProxyKind, verdicts: &[Verdict], vectors: &[Vector]) {
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for (vector, Verdict { class, text }) in vectors.iter().zip(verdicts) {
        println!("{:<30} {class:<11} {text:.60}", vector.name);
        *totals.entry(class).or_default() += 1;
    }
    println!("{subject:?}: {totals:?} of {}", verdicts.len());
}
