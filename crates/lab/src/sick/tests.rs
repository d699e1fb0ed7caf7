//! The sick server really answers, in each of its shapes.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What it answers to two requests of which the second asks to close; and how long that took.
fn ask(illness: Illness) -> (String, u64) {
    let running = start(illness, clock).unwrap();
    let start_ns = clock();
    let mut stream = TcpStream::connect(running.address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HT").unwrap();
    stream.write_all(b"TP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").unwrap();
    let mut text = String::new();
    // A reset is as good an end as any.
    let _ = stream.read_to_string(&mut text);
    (text, clock() - start_ns)
}

#[test]
fn it_answers_in_each_shape() {
    let many = Illness { threads: Some(2), body_bytes: 7, ..Illness::default() };
    let split = Illness { split_write: true, body_bytes: 7, ..Illness::default() };
    let lock = Illness { lock_ns: 1000, burn_ns: 1000, body_bytes: 7, ..Illness::default() };
    let busy = Illness { syscalls: 3, allocations: 50, body_bytes: 7, ..Illness::default() };
    for illness in [many, split, lock, busy] {
        let (text, _) = ask(illness.clone());
        assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{illness:?}: {text}");
        assert_eq!(text.matches("xxxxxxx").count(), 2, "{text}");
    }
}

#[test]
fn it_waits_fails_and_closes_as_told() {
    let (text, took_ns) =
        ask(Illness { delay_ns: 2_000_000, fail_share: 0.5, ..Illness::default() });
    assert!(text.contains("500 Internal") && text.contains("200 OK"), "{text}");
    assert!(took_ns >= 4_000_000);
    let (text, _) = ask(Illness { close_each: true, ..Illness::default() });
    assert_eq!(text.matches("HTTP/1.1").count(), 1, "{text}");
    assert_eq!(ask(Illness { drop_share: 1.0, ..Illness::default() }).0, "");
}

#[test]
fn it_logs_a_line_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let illness = Illness {
        log: Some(log.clone()),
        log_dsync: true,
        log_pipe_bytes_per_s: Some(1 << 20),
        ..Illness::default()
    };
    ask(illness);
    assert_eq!(std::fs::read_to_string(log).unwrap().lines().count(), 2);
    let nowhere = Illness { log: Some("/no/such/log".into()), ..Illness::default() };
    assert!(start(nowhere, clock).unwrap_err().to_string().contains("/no/such/log"));
}
