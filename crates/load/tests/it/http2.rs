//! Loads over HTTP/2 against servers that follow the protocol: counts, streams, windows, gRPC.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use load::measurement::{RunError, RunMeasurement};
use load::observer::{RunObserver, SecondLatencies};
use load::plan::{ExpectFlags, HttpFlags, LoadFlags, RunPlan};
use load::validity::{Evidence, HostEvidence, judge};
use record::run::Interval;
use rt::drain::Drain;

use crate::frame_server::{
    FrameServer, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, STATUS_200, literal_block,
};

struct NoopObserver;

impl RunObserver for NoopObserver {
    fn on_start(&mut self, _start_ns: u64) {}
    fn on_window_start(&mut self) {}
    fn on_load_end(&mut self) {}
    fn on_second(&mut self, _interval: &mut Interval, _latencies: &SecondLatencies) {}
}

/// Expectation of a body of this length.
fn expect_length(bytes: &str) -> ExpectFlags {
    ExpectFlags { bytes: Some(bytes.to_owned()), ..ExpectFlags::default() }
}

/// Flags of a load over HTTP/2 with so many connections, streams and requests.
pub(crate) fn flags(server: &FrameServer, connections: u64, streams: u64, requests: u64) -> LoadFlags {
    LoadFlags {
        urls: vec![server.url()],
        connections: Some(connections.to_string()),
        requests: Some(requests.to_string()),
        threads: Some("1".to_owned()),
        timeout: Some("30s".to_owned()),
        http: HttpFlags {
            http: Some("2".to_owned()),
            streams: Some(streams.to_string()),
            ..HttpFlags::default()
        },
        ..LoadFlags::default()
    }
}

pub(crate) fn try_run(flags: &LoadFlags) -> Result<RunMeasurement, RunError> {
    let plan = RunPlan::parse(flags, 2).unwrap();
    load::run::run(&plan, &Drain::default().watch(), &mut NoopObserver)
}

/// Runs a load. Each request must have exactly one outcome.
pub(crate) fn run(flags: &LoadFlags) -> RunMeasurement {
    let measured = try_run(flags).unwrap();
    let counters = &measured.counters;
    let errors: u64 = counters.errors.iter().sum();
    assert_eq!(counters.requests, counters.responses + errors, "{:?}", counters.errors);
    measured
}

/// Asserts that all requests got a good response.
pub(crate) fn assert_all_good(measured: &RunMeasurement, requests: u64) {
    let counters = &measured.counters;
    assert_eq!((counters.requests, counters.good()), (requests, requests), "{:?}", counters.errors);
    assert_eq!(counters.sent, requests);
}

#[test]
fn counts_and_bytes_are_those_of_the_server() {
    let server = FrameServer::responding(100);
    let measured = run(&LoadFlags { expect: expect_length("100"), ..flags(&server, 2, 8, 1000) });
    assert_all_good(&measured, 1000);
    assert_eq!(server.count(|counters| &counters.requests), 1000);
    assert_eq!(measured.counters.opened, 2);
    assert_eq!(measured.counters.status[200], 1000);
    // Two frame headers, one byte of HPACK and the body.
    assert!(measured.counters.bytes_in >= 1000 * 119, "{}", measured.counters.bytes_in);
    let latencies = &measured.latencies;
    assert_eq!(latencies.last_byte.service.count() + latencies.last_byte.response.count(), 2000);
    assert!(latencies.first_byte.service.max_ns() <= latencies.last_byte.service.max_ns());
}

#[test]
fn an_unexpected_body_size_is_an_error_of_each_request() {
    let server = FrameServer::responding(99);
    let measured = run(&LoadFlags { expect: expect_length("100"), ..flags(&server, 1, 4, 50) });
    let check = load::failure::FailureKind::Check as usize;
    assert_eq!((measured.counters.errors[check], measured.counters.responses), (50, 0));
}

#[test]
fn no_more_streams_are_open_than_the_server_allows() {
    let server = FrameServer::start(&[(MAX_CONCURRENT_STREAMS, 5)], |peer| {
        // Responses come in batches of five: with fewer streams the load would hang.
        loop {
            let streams = (0..5).map(|_| peer.next_request()).collect::<Result<Vec<_>, _>>()?;
            for stream in streams {
                peer.respond(stream, 10)?;
            }
        }
    });
    let measured = run(&flags(&server, 1, 32, 500));
    assert_all_good(&measured, 500);
    assert_eq!(server.count(|counters| &counters.streams_max), 5);
    assert_eq!(measured.counters.http2.streams_allowed, Some(5));
    let validity = judge(&Evidence { measured: &measured, host: HostEvidence::default() });
    let limited = validity.reasons.iter().find(|reason| reason.code == "streams_limited").unwrap();
    assert!(limited.text.contains("allows 5 streams per connection, 32 were requested"), "{limited:?}");
}

#[test]
fn a_large_body_passes_small_windows() {
    let server = FrameServer::responding(300_000);
    let mut flags = flags(&server, 1, 3, 12);
    flags.http.window = Some("1000".to_owned());
    flags.http.connection_window = Some("65535".to_owned());
    flags.expect = expect_length("300000");
    assert_all_good(&run(&flags), 12);
}

#[test]
fn a_large_request_body_waits_for_the_windows_of_the_server() {
    let server = FrameServer::start(&[(INITIAL_WINDOW_SIZE, 1_000)], |peer| peer.respond_to_all(0));
    let flags = LoadFlags { data: Some("x".repeat(100_000)), ..flags(&server, 1, 4, 20) };
    let measured = run(&flags);
    assert_all_good(&measured, 20);
    assert_eq!(server.count(|counters| &counters.body_bytes), 20 * 100_000);
}

#[test]
fn a_response_before_the_end_of_the_request_counts() {
    let server = FrameServer::start(&[(INITIAL_WINDOW_SIZE, 10)], |peer| {
        loop {
            let frame = peer.next_frame()?;
            if frame.kind == crate::frame_server::kind::HEADERS {
                peer.send_head(frame.stream, STATUS_200, true)?;
            }
        }
    });
    let flags = LoadFlags { data: Some("x".repeat(1_000)), ..flags(&server, 1, 4, 50) };
    let measured = run(&flags);
    assert_eq!((measured.counters.good(), measured.counters.opened), (50, 1));
}

#[test]
fn interim_responses_come_before_the_response() {
    let server = FrameServer::start(&[], |peer| {
        loop {
            let stream = peer.next_request()?;
            // `:status: 103`, a literal with the name of static entry 8.
            peer.send_head(stream, b"\x08\x03103", false)?;
            sleep(Duration::from_millis(20));
            peer.respond(stream, 10)?;
        }
    });
    let measured = run(&flags(&server, 1, 1, 10));
    assert_all_good(&measured, 10);
    let first_byte = &measured.latencies.first_byte.service;
    assert!(first_byte.value_at_quantile(0.0) >= 20_000_000, "the first byte is that of the final response");
}

#[test]
fn connections_are_closed_after_their_requests() {
    let server = FrameServer::responding(10);
    let per_connection = Some("10".to_owned());
    let flags = LoadFlags { requests_per_connection: per_connection, ..flags(&server, 1, 4, 200) };
    let measured = run(&flags);
    assert_all_good(&measured, 200);
    assert_eq!(measured.counters.opened, 20);
    assert_eq!(server.count(|counters| &counters.connections), 20);
    assert_eq!((measured.counters.lost, measured.counters.closed_idle), (0, 0));
}

#[test]
fn an_open_loop_sends_each_due_request() {
    let server = FrameServer::responding(10);
    let open = LoadFlags {
        rate: Some("500".to_owned()),
        duration: Some("1s".to_owned()),
        requests: None,
        ..flags(&server, 2, 4, 1)
    };
    let measured = run(&open);
    assert_all_good(&measured, 500);
    assert_eq!((measured.counters.due, measured.counters.dropped), (500, 0));
    assert_eq!(server.count(|counters| &counters.requests), 500);
}

#[test]
fn users_think_between_their_requests() {
    let server = FrameServer::responding(10);
    let thinking = LoadFlags {
        think: Some("100ms".to_owned()),
        duration: Some("1s".to_owned()),
        requests: None,
        ..flags(&server, 1, 5, 1)
    };
    let measured = run(&thinking);
    // Each of five users sends at most one request in 100 ms.
    assert!((5..=50).contains(&measured.counters.good()), "{:?}", measured.counters.errors);
}

#[test]
fn a_stall_of_the_server_shows_in_the_response_latency() {
    let server = FrameServer::start(&[], |peer| {
        for number in 0.. {
            let stream = peer.next_request()?;
            if number == 100 {
                sleep(Duration::from_secs(1));
            }
            peer.respond(stream, 10)?;
        }
        Ok(())
    });
    let open = LoadFlags {
        rate: Some("200".to_owned()),
        duration: Some("3s".to_owned()),
        requests: None,
        ..flags(&server, 1, 2, 1)
    };
    let measured = run(&open);
    assert_all_good(&measured, 600);
    let last_byte = &measured.latencies.last_byte;
    // A third of the requests was due in the stall, and waited half a second on average.
    assert!(last_byte.response.max_ns() >= 990_000_000, "{}", last_byte.response.max_ns());
    assert!(last_byte.response.value_at_quantile(0.9) >= 500_000_000);
    // Only the two requests in flight measured it themselves.
    let slow_sends = last_byte.service.count() - 2;
    assert!(slow_sends >= 590 && last_byte.service.max_ns() >= 990_000_000);
}

#[test]
fn a_mix_has_connections_of_both_versions() {
    let server = FrameServer::responding(10);
    let mut mixed = flags(&server, 4, 8, 100);
    mixed.http = HttpFlags {
        mix: Some("1.1=50,2=50".to_owned()),
        streams: Some("8".to_owned()),
        ..HttpFlags::default()
    };
    let plan = RunPlan::parse(&mixed, 2).unwrap();
    assert_eq!(plan.concurrency(), 2 + 2 * 8);
    let versions: Vec<_> = (0..4).map(|number| plan.http_version(number)).collect();
    use load::plan::HttpVersion::{Http1, Http2};
    assert_eq!(versions, [Http1, Http2, Http1, Http2]);
}

#[test]
fn a_call_of_grpc_succeeds_with_status_0_in_its_trailers() {
    let server = FrameServer::start(&[], |peer| {
        for number in 0_u32.. {
            let stream = peer.next_request()?;
            match number % 4 {
                // No message: the trailers are the head.
                0 => {
                    peer.send_head(stream, &[STATUS_200, &literal_block("grpc-status", "14")].concat(), true)?
                }
                1 => peer.respond(stream, 5)?,
                _ => {
                    peer.send_head(stream, STATUS_200, false)?;
                    peer.send_body(stream, 5, false)?;
                    peer.send_head(stream, &literal_block("grpc-status", "0"), true)?;
                }
            }
        }
        Ok(())
    });
    let mut calls = flags(&server, 1, 1, 40);
    calls.http.grpc = true;
    calls.data = Some("abc".to_owned());
    let measured = run(&calls);
    let failed = measured.counters.errors[load::failure::FailureKind::GrpcStatus as usize];
    assert_eq!((measured.counters.good(), failed), (20, 20), "{:?}", measured.counters.errors);
    let statuses = measured.counters.http2.grpc_statuses;
    assert_eq!((statuses[0], statuses[14], statuses[18]), (20, 10, 10));
    assert_eq!(server.counters.body_bytes.load(Ordering::SeqCst), 40 * 8, "five bytes before each message");
}

#[test]
fn a_call_of_grpc_with_status_0_needs_complete_messages() {
    use load::malformation::Malformation;
    let server = FrameServer::start(&[], |peer| {
        for number in 0_usize.. {
            let stream = peer.next_request()?;
            // A prefix and its empty message have five bytes: none, a part of a prefix, one, one and a part, two.
            let body_bytes = [0, 3, 5, 7, 10][number % 5];
            peer.send_head(stream, STATUS_200, false)?;
            if body_bytes > 0 {
                peer.send_body(stream, body_bytes, false)?;
            }
            peer.send_head(stream, &literal_block("grpc-status", "0"), true)?;
        }
        Ok(())
    });
    let mut calls = flags(&server, 1, 1, 50);
    calls.http.grpc = true;
    let measured = run(&calls);
    let counters = &measured.counters;
    let failed = counters.errors[load::failure::FailureKind::Parse as usize];
    assert_eq!((counters.good(), failed), (20, 30), "{:?}", counters.errors);
    let reasons = [Malformation::GrpcMessageMissing, Malformation::GrpcTruncated];
    assert_eq!(reasons.map(|reason| counters.parse_errors.count(reason)), [10, 20]);
}

#[test]
fn a_compressed_message_of_grpc_needs_its_encoding() {
    use load::malformation::Malformation;
    let server = FrameServer::start(&[], |peer| {
        for number in 0_usize.. {
            let stream = peer.next_request()?;
            // A compressed message, with and without its encoding; one that is not compressed; a flag without a meaning.
            let (flags, has_encoding) = [(1, true), (1, false), (0, false), (2, true)][number % 4];
            let encoding = literal_block("grpc-encoding", "gzip");
            let head = if has_encoding { [STATUS_200, &encoding].concat() } else { STATUS_200.to_vec() };
            peer.send_head(stream, &head, false)?;
            peer.send_data(stream, &[flags, 0, 0, 0, 1, b'x'])?;
            peer.send_head(stream, &literal_block("grpc-status", "0"), true)?;
        }
        Ok(())
    });
    let mut calls = flags(&server, 1, 1, 40);
    calls.http.grpc = true;
    let measured = run(&calls);
    let counters = &measured.counters;
    assert_eq!(counters.good(), 20, "{:?}", counters.errors);
    let reasons = [Malformation::GrpcCompressed, Malformation::GrpcFlags];
    assert_eq!(reasons.map(|reason| counters.parse_errors.count(reason)), [10, 10]);
}
