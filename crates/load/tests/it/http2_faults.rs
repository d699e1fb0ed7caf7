//! Loads over HTTP/2 against servers that go away, reset streams, or never respond: each request has
//! one outcome.

use std::sync::atomic::Ordering;

use load::failure::FailureKind;
use load::measurement::{RunError, RunMeasurement};
use load::plan::LoadFlags;

use crate::frame_server::{CANCEL, FrameServer, NO_ERROR, REFUSED_STREAM};
use crate::http2::{assert_all_good, flags, run, try_run};

fn errors(measured: &RunMeasurement, kind: FailureKind) -> u64 {
    measured.counters.errors[kind as usize]
}

#[test]
fn requests_that_a_goaway_leaves_unprocessed_are_sent_again() {
    let server = FrameServer::start(&[], |peer| {
        if peer.number > 0 {
            return peer.respond_to_all(10);
        }
        for _ in 0..50 {
            let stream = peer.next_request()?;
            peer.respond(stream, 10)?;
        }
        // Of eight requests the first three are processed.
        let streams = (0..8).map(|_| peer.next_request()).collect::<Result<Vec<_>, _>>()?;
        peer.go_away(streams[2], NO_ERROR)?;
        peer.counters.requests.fetch_sub(5, Ordering::SeqCst);
        for stream in &streams[..3] {
            peer.respond(*stream, 10)?;
        }
        // The client closes when its last response has come.
        peer.next_request().map(|_| ())
    });
    let measured = run(&flags(&server, 1, 8, 500));
    assert_all_good(&measured, 500);
    assert_eq!(server.count(|counters| &counters.requests), 500);
    let http2 = &measured.counters.http2;
    assert_eq!((http2.retried, http2.goaways[0], measured.counters.opened), (5, 1, 2));
    assert_eq!(measured.counters.lost, 0);
}

#[test]
fn a_request_that_no_server_processes_fails() {
    let server = FrameServer::start(&[], |peer| {
        let streams = (0..4).map(|_| peer.next_request()).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(streams.len(), 4);
        peer.go_away(0, NO_ERROR)?;
        peer.next_request().map(|_| ())
    });
    let measured = run(&flags(&server, 1, 4, 8));
    assert_eq!(errors(&measured, FailureKind::RefusedStream), 8, "{:?}", measured.counters.errors);
    assert_eq!((measured.counters.responses, measured.counters.http2.retried), (0, 24));
}

#[test]
fn a_reset_stream_is_an_error_and_the_connection_goes_on() {
    let server = FrameServer::start(&[], |peer| {
        for number in 0_u32.. {
            let stream = peer.next_request()?;
            match number % 4 {
                0 => peer.reset(stream, CANCEL)?,
                2 => {
                    peer.send_head(stream, crate::frame_server::STATUS_200, false)?;
                    peer.reset(stream, 2)?;
                }
                _ => peer.respond(stream, 10)?,
            }
        }
        Ok(())
    });
    let measured = run(&flags(&server, 1, 16, 4_000));
    assert_eq!(errors(&measured, FailureKind::StreamReset), 2_000, "{:?}", measured.counters.errors);
    assert_eq!((measured.counters.good(), measured.counters.opened), (2_000, 1));
    let resets = measured.counters.http2.resets;
    assert_eq!((resets[2], resets[7], resets[8]), (1_000, 0, 1_000));
}

#[test]
fn a_refused_stream_was_not_processed_and_is_sent_again() {
    let server = FrameServer::start(&[], |peer| {
        for number in 0_u32.. {
            let stream = peer.next_request()?;
            // The request that is sent again is one of the next eight.
            match number % 50 {
                1 => peer.reset(stream, REFUSED_STREAM)?,
                _ => peer.respond(stream, 10)?,
            }
        }
        Ok(())
    });
    let measured = run(&flags(&server, 1, 8, 900));
    assert_all_good(&measured, 900);
    let http2 = &measured.counters.http2;
    assert_eq!(http2.retried, http2.resets[7]);
    assert!((18..=19).contains(&http2.retried), "{}", http2.retried);
    assert_eq!(measured.counters.opened, 1);
}

#[test]
fn a_server_that_refuses_every_stream_is_not_asked_without_end() {
    let server = FrameServer::start(&[], |peer| {
        loop {
            let stream = peer.next_request()?;
            peer.reset(stream, REFUSED_STREAM)?;
        }
    });
    let measured = run(&flags(&server, 1, 4, 8));
    assert_eq!(errors(&measured, FailureKind::RefusedStream), 8, "{:?}", measured.counters.errors);
    assert_eq!((measured.counters.http2.retried, measured.counters.http2.resets[7]), (24, 32));
}

/// `SETTINGS_MAX_CONCURRENT_STREAMS` of 3.
const THREE_STREAMS: &[(u16, u32)] = &[(3, 3)];

#[test]
fn the_limit_of_streams_holds_on_the_connection_after_a_goaway() {
    let server = FrameServer::start_raw(|peer| {
        if peer.number == 0 {
            peer.begin(THREE_STREAMS)?;
            let first = peer.next_request()?;
            peer.go_away(first, NO_ERROR)?;
            peer.respond(first, 10)?;
            return peer.next_request().map(|_| ());
        }
        // The settings come late: the client has sent by then what it wants to send.
        peer.read_preface()?;
        let early = peer.early_requests()?;
        if early.len() > 3 {
            // None of them gets a response.
            return Ok(());
        }
        peer.send_settings(THREE_STREAMS)?;
        for stream in early {
            peer.respond(stream, 10)?;
        }
        peer.respond_to_all(10)
    });
    let measured = run(&flags(&server, 1, 8, 60));
    assert_all_good(&measured, 60);
}

#[test]
fn a_lost_connection_fails_each_of_its_requests_once() {
    let server = FrameServer::start(&[], |peer| {
        if peer.number > 0 {
            return peer.respond_to_all(10);
        }
        for _ in 0..32 {
            peer.next_request()?;
        }
        Ok(())
    });
    let measured = run(&flags(&server, 1, 32, 200));
    let lost = errors(&measured, FailureKind::Closed) + errors(&measured, FailureKind::Reset);
    assert_eq!((lost, measured.counters.good()), (32, 168), "{:?}", measured.counters.errors);
    assert_eq!((measured.counters.lost, measured.counters.opened), (1, 2));
    assert_eq!(server.count(|counters| &counters.requests), 200);
}

#[test]
fn a_timeout_cancels_its_stream_only() {
    let server = FrameServer::start(&[], |peer| {
        for number in 0_u32.. {
            let stream = peer.next_request()?;
            if number % 10 != 0 {
                peer.respond(stream, 10)?;
            }
        }
        Ok(())
    });
    let hasty = LoadFlags { timeout: Some("500ms".to_owned()), ..flags(&server, 1, 10, 100) };
    let measured = run(&hasty);
    assert_eq!(errors(&measured, FailureKind::Timeout), 10, "{:?}", measured.counters.errors);
    assert_eq!((measured.counters.good(), measured.counters.opened), (90, 1));
    assert_eq!(measured.counters.http2.cancelled, 10);
    assert_eq!(measured.counters.sent, 100);
}

#[test]
fn a_dead_connection_is_replaced_and_a_slow_server_keeps_its_own() {
    let dead = FrameServer::start(&[], |peer| match peer.number {
        0 => peer.ignore_everything(),
        _ => peer.respond_to_all(10),
    });
    let hasty = |server: &FrameServer, requests| LoadFlags {
        timeout: Some("1100ms".to_owned()),
        ..flags(server, 1, 2, requests)
    };
    let measured = run(&hasty(&dead, 100));
    let http2 = &measured.counters.http2;
    assert_eq!((http2.pings_lost, measured.counters.opened, measured.counters.lost), (1, 2, 1));
    // Each of a few seconds costs both streams a request.
    let timeouts = errors(&measured, FailureKind::Timeout);
    assert!((4..=20).contains(&timeouts), "{timeouts}");
    assert_eq!(measured.counters.good(), 100 - timeouts);
    // One that responds to PING frames only.
    let slow = FrameServer::start(&[], |peer| {
        for _ in 0..16 {
            peer.next_request()?;
        }
        peer.respond_to_all(10)
    });
    let measured = run(&hasty(&slow, 100));
    assert_eq!((measured.counters.http2.pings_lost, measured.counters.opened), (0, 1));
    assert_eq!((errors(&measured, FailureKind::Timeout), measured.counters.good()), (16, 84));
}

#[test]
fn requests_in_flight_at_the_end_of_the_drain_are_unfinished() {
    let server = FrameServer::start(&[], |peer| {
        loop {
            peer.next_request()?;
        }
    });
    let hanging = LoadFlags { drain: Some("0".to_owned()), ..flags(&server, 2, 4, 8) };
    let hanging = LoadFlags { duration: Some("300ms".to_owned()), requests: None, ..hanging };
    let measured = run(&hanging);
    assert_eq!(errors(&measured, FailureKind::Unfinished), 8, "{:?}", measured.counters.errors);
}

#[test]
fn a_violation_of_the_protocol_ends_the_connection() {
    let server = FrameServer::start(&[], |peer| {
        if peer.number > 0 {
            return peer.respond_to_all(10);
        }
        for _ in 0..4 {
            peer.next_request()?;
        }
        // DATA of a stream that was never opened.
        peer.send_frame(crate::frame_server::kind::DATA, 0, 99, b"x")?;
        peer.next_request().map(|_| ())
    });
    let measured = run(&flags(&server, 1, 4, 40));
    assert_eq!(errors(&measured, FailureKind::Parse), 4, "{:?}", measured.counters.errors);
    let reasons: Vec<_> =
        measured.counters.parse_errors.iter().map(|(reason, count)| (reason.code(), count)).collect();
    assert_eq!(reasons, [("h2_stream_idle".to_owned(), 4)]);
    assert_eq!((measured.counters.good(), measured.counters.opened), (36, 2));
}

#[test]
fn a_server_without_http2_is_reported() {
    let http1 = FrameServer::start_raw(|peer| {
        peer.send_bytes(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    });
    let closing = FrameServer::start_raw(|_| Ok(()));
    for (server, expected) in [(http1, "HTTP/1.1"), (closing, "closed the connection")] {
        match try_run(&LoadFlags { duration: Some("1s".to_owned()), ..flags(&server, 1, 4, 10) }) {
            Err(RunError::NoConnection { text, .. }) => assert!(text.contains(expected), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}
