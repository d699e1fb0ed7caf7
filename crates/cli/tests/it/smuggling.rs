//! What reaches the origin when a client, or the origin itself, sends bytes that can be read in two
//! ways. The vectors are data, in `smuggling/*.txt`; the origin records with a strict reader.
//!
//! After each vector a probe on a connection of its own must get the probe's answer: a connection
//! to the origin that was left out of step shows there.

mod conformance;
mod requests;
mod responses;

use std::collections::BTreeMap;

/// What came of a vector: a word for the totals, and what was seen.
struct Verdict {
    class: &'static str,
    text: String,
}

fn verdict(class: &'static str, text: impl Into<String>) -> Verdict {
    Verdict { class, text: text.into() }
}

/// A vector's bytes, by name.
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
        Vector { name: name.to_owned(), expected: expected.to_owned(), bytes: unescaped(bytes) }
    });
    vectors.collect()
}

/// The named parts of the data files.
const PARTS: &[(&str, &str)] = &[
    ("P", "POST /v HTTP/1.1\r\nHost: a.example\r\n"),
    ("G", "GET /v HTTP/1.1\r\n"),
    ("H", "Host: a.example\r\n"),
    ("C", "5\r\nhello\r\n0\r\n\r\n"),
    ("0", "0\r\n\r\n"),
    ("OK", "HTTP/1.1 200 OK\r\n"),
    ("EVIL", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Evil: yes\r\n\r\nEVIL"),
];

fn part(name: &str) -> Vec<u8> {
    if let Some((_, text)) = PARTS.iter().find(|(other, _)| *other == name) {
        return text.as_bytes().to_vec();
    }
    match name.split_once('*').map(|(what, count)| (what, count.parse::<usize>().unwrap())) {
        Some(("fields", count)) => {
            (0..count).flat_map(|number| format!("X-{number}: v\r\n").into_bytes()).collect()
        }
        Some(("INTERIM", count)) => b"HTTP/1.1 102 Processing\r\n\r\n".repeat(count),
        Some((what, count)) => what.repeat(count).into_bytes(),
        None => panic!("no part {name}"),
    }
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '{' => {
                let (name, after) = rest.split_once('}').unwrap();
                bytes.extend(part(name));
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

/// Prints a table of rows and columns, and the totals of each column.
fn table(columns: &[(&str, &[Verdict])], vectors: &[Vector]) {
    for (index, vector) in vectors.iter().enumerate() {
        let cells: Vec<String> = columns
            .iter()
            .map(|(_, verdicts)| format!("{:<34.34}", verdicts[index].text))
            .collect();
        println!("{:<30} {}", vector.name, cells.join(" "));
    }
    for (name, verdicts) in columns {
        let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
        for verdict in *verdicts {
            *totals.entry(verdict.class).or_default() += 1;
        }
        println!("{name}: {totals:?} of {}", verdicts.len());
    }
}
