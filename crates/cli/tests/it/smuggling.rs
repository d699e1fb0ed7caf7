//! Requests at the origin when a client, or the origin itself, sends ambiguous bytes. The vectors
//! are data, in `smuggling/*.txt`; the origin records with a strict reader.
//!
//! After each vector, a probe on its own connection must get the probe's response: it reveals a
//! desynchronised connection to the origin.

mod conformance;
mod requests;
mod responses;

use std::collections::BTreeMap;

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

/// Prints a table of rows and columns, and the totals of each column.
fn print_table(columns: &[(&str, &[Verdict])], vectors: &[Vector]) {
    for (index, vector) in vectors.iter().enumerate() {
        let cells: Vec<String> =
            columns.iter().map(|(_, verdicts)| format!("{:<34.34}", verdicts[index].text)).collect();
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
