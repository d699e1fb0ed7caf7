//! Pipelines over HTTP/1.1, against servers that end connections: a request behind a response that ends the connection
//! was not processed. Every count equals the server's.

#![expect(clippy::disallowed_types, reason = "the threads of a scripted server share what they have seen")]

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use load::failure::FailureKind;
use load::measurement::RunMeasurement;
use load::plan::LoadFlags;

use crate::http2::run;

/// Targets and bodies of the requests that a server has processed, and its connections.
#[derive(Default)]
struct Seen {
    processed: Vec<String>,
    connections: usize,
}

/// Starts a server that processes `requests` requests of each connection, the last one with the response `last`, and
/// then reads and ignores the others until the client closes.
fn start(requests: usize, last: &'static str) -> (String, Arc<Mutex<Seen>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Seen::default()));
    let shared = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = Arc::clone(&shared);
            seen.lock().unwrap().connections += 1;
            std::thread::spawn(move || serve(stream, requests, last, &seen));
        }
    });
    (url, seen)
}

fn serve(mut stream: TcpStream, requests: usize, last: &str, seen: &Mutex<Seen>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    for number in 1..=requests {
        let Some(request) = read_request(&mut reader)? else { return Ok(()) };
        seen.lock().unwrap().processed.push(request);
        let response =
            if number == requests { last } else { "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" };
        stream.write_all(response.as_bytes())?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    io::copy(&mut reader, &mut io::sink()).map(|_| ())
}

/// Reads a request; returns its target and its body.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let (mut target, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap()
            }
            Some(_) => {}
            None => target = line.split(' ').nth(1).map(str::to_owned),
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(target.map(|target| format!("{target} {}", String::from_utf8_lossy(&body))))
}

fn pipeline(url: String, change: impl FnOnce(&mut LoadFlags)) -> RunMeasurement {
    let text = |value: &str| Some(value.to_owned());
    let mut flags = LoadFlags {
        urls: vec![url],
        connections: text("2"),
        threads: text("1"),
        requests: text("100"),
        duration: text("30s"),
        timeout: text("5s"),
        pipeline: text("8"),
        ..LoadFlags::default()
    };
    change(&mut flags);
    run(&flags)
}

#[test]
fn requests_behind_the_end_of_a_connection_are_sent_again() {
    for (requests, last) in [
        (5, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        (1, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        (3, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        (4, "HTTP/1.1 200 OK\r\n\r\nuntil the end"),
    ] {
        let (url, seen) = start(requests, last);
        let measured = pipeline(url, |_| ());
        let (counters, seen) = (&measured.counters, seen.lock().unwrap());
        let failed: u64 = counters.errors.iter().sum();
        assert_eq!((counters.requests, counters.good(), failed), (100, 100, 0), "{requests} {last}");
        assert_eq!((seen.processed.len(), counters.sent, counters.lost), (100, 100, 0));
        assert_eq!(counters.opened, seen.connections as u64);
        assert!(counters.resent > 100 / requests as u64, "{}", counters.resent);
        assert!(counters.resent < 100 * 8, "{}", counters.resent);
    }
}

#[test]
fn a_request_is_sent_again_as_it_was() {
    let (url, seen) = start(3, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let measured = pipeline(format!("{url}/{{{{counter}}}}"), |flags| {
        (flags.method, flags.data) = (Some("POST".to_owned()), Some("n={{counter}}".to_owned()));
    });
    assert_eq!(measured.counters.good(), 100);
    assert!(measured.counters.resent > 0);
    let processed = seen.lock().unwrap().processed.clone();
    let distinct: BTreeSet<&String> = processed.iter().collect();
    assert_eq!((processed.len(), distinct.len()), (100, 100), "each number once: {processed:?}");
}

#[test]
fn an_end_without_a_word_is_an_error() {
    // Nobody knows if the requests behind it were processed.
    let (url, seen) = start(5, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let measured = pipeline(url, |_| ());
    let counters = &measured.counters;
    assert_eq!(counters.resent, 0);
    let closed = counters.errors[FailureKind::Closed as usize];
    assert!(closed > 0);
    assert_eq!(counters.good() + closed, 100, "{:?}", counters.errors);
    assert_eq!(counters.good(), seen.lock().unwrap().processed.len() as u64);
}

#[test]
fn a_request_that_waits_for_another_connection_keeps_its_timeout() {
    // The second connection does not respond.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for (number, mut stream) in listener.incoming().flatten().enumerate() {
            if number == 0 {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                read_request(&mut reader).unwrap();
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                    .unwrap();
            }
            held.push(stream);
        }
    });
    let measured = pipeline(url, |flags| {
        flags.connections = Some("1".to_owned());
        flags.requests = Some("4".to_owned());
        flags.timeout = Some("300ms".to_owned());
    });
    let counters = &measured.counters;
    assert_eq!((counters.requests, counters.responses, counters.resent), (4, 1, 3));
    assert_eq!(counters.errors[FailureKind::Timeout as usize], 3, "{:?}", counters.errors);
}
