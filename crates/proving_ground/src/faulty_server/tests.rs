//! Tests of the faulty server: it responds in every configuration.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sends two requests, of which the second asks to close. Returns the responses and the time in
/// nanoseconds.
fn send_two_requests(config: FaultConfig) -> (String, u64) {
    let running = start(config, clock).unwrap();
    let start_ns = clock();
    let mut stream = TcpStream::connect(running.address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HT").unwrap();
    stream.write_all(b"TP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").unwrap();
    let mut text = String::new();
    // A reset also ends the connection.
    let _ = stream.read_to_string(&mut text);
    (text, clock() - start_ns)
}

#[test]
fn it_responds_in_each_shape() {
    let threaded = FaultConfig { threads: Some(2), body_bytes: 7, ..FaultConfig::default() };
    let split = FaultConfig { split_write: true, body_bytes: 7, ..FaultConfig::default() };
    let lock = FaultConfig { lock_ns: 1000, burn_ns: 1000, body_bytes: 7, ..FaultConfig::default() };
    let busy = FaultConfig { syscalls: 3, allocations: 50, body_bytes: 7, ..FaultConfig::default() };
    for config in [threaded, split, lock, busy] {
        let (text, _) = send_two_requests(config.clone());
        assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{config:?}: {text}");
        assert_eq!(text.matches("xxxxxxx").count(), 2, "{text}");
    }
}

#[test]
fn it_waits_fails_and_closes_as_configured() {
    let (text, took_ns) =
        send_two_requests(FaultConfig { delay_ns: 2_000_000, error_fraction: 0.5, ..FaultConfig::default() });
    assert!(text.contains("500 Internal") && text.contains("200 OK"), "{text}");
    assert!(took_ns >= 4_000_000);
    let (text, _) = send_two_requests(FaultConfig { close_after_response: true, ..FaultConfig::default() });
    assert_eq!(text.matches("HTTP/1.1").count(), 1, "{text}");
    assert_eq!(send_two_requests(FaultConfig { drop_fraction: 1.0, ..FaultConfig::default() }).0, "");
}

#[test]
fn it_logs_a_line_for_each_response() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let config = FaultConfig {
        log: Some(log.clone()),
        log_dsync: true,
        log_pipe_bytes_per_s: Some(1 << 20),
        ..FaultConfig::default()
    };
    send_two_requests(config);
    assert_eq!(std::fs::read_to_string(log).unwrap().lines().count(), 2);
    let nowhere = FaultConfig { log: Some("/no/such/log".into()), ..FaultConfig::default() };
    assert!(start(nowhere, clock).unwrap_err().to_string().contains("/no/such/log"));
}
