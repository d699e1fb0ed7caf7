//! Servers that behave strangely on the wire, each a script of bytes, pauses and closes. A load
//! never panics or miscounts with them. `support::load` checks its sums each time.

use std::io;

use crate::support::faulty_origins::wait_for_close;
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::timing::assert_timing;
use crate::support::{RunOutput, pause_ms, run_load, shared_machine};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Runs a load of a fixed number of requests.
fn run_requests(server: &ScriptedServer, flags: &[&str]) -> RunOutput {
    let common = ["-c", "2", "-n", "40", "-t", "1", "-w", "30s"];
    let output = run_load(&[&common[..], flags, &[&server.url()]].concat());
    assert!(!output.stderr.contains("panic"), "{}", output.stderr);
    assert_eq!(output.total("requests"), 40, "{output:?}");
    output
}

/// Asserts that all requests got a response, on so many connections (a spare one may have been
/// opened).
fn assert_all_answered(output: &RunOutput, connections: u64) {
    assert_eq!(output.errors(), 0, "{:#}", output.record["totals"]);
    assert_eq!(output.total("responses"), 40);
    let opened = output.total("connections.opened");
    assert_eq!(opened, connections, "{:#}", output.record["totals"]);
    assert!(!output.reasons().contains(&"excess_bytes"));
}

/// Asserts that all requests failed the same way.
fn assert_all_failed(output: &RunOutput, kind: &str) {
    let failed = output.total(&format!("errors.{kind}"));
    assert_eq!(failed, 40, "{:#}", output.record["totals"]);
    assert_eq!(output.code, 4, "{output:?}");
    assert_eq!(output.total("connections.lost"), 40);
    assert!(output.stdout.contains(&format!("{kind} 40")), "{}", output.stdout);
}

#[test]
fn every_response_framing_that_keeps_the_connection() {
    let _shared = shared_machine();
    let responses: &[&'static [u8]] = &[
        OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\
          Trailer: yes\r\nAnother: one\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
          HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 999 \r\ncontent-length:1\r\n\r\nx",
    ];
    for response in responses {
        let server = ScriptedServer::responding(response);
        let output = run_requests(&server, &[]);
        assert_all_answered(&output, 2);
        assert_eq!(server.connections(), 2);
        assert_eq!(output.total("bytes_in"), 40 * response.len() as u64);
    }
}

#[test]
fn every_response_framing_that_ends_the_connection() {
    let _shared = shared_machine();
    let responses: &[&'static [u8]] = &[
        b"HTTP/1.0 200 OK\r\n\r\nuntil the close",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the close",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ];
    for response in responses {
        let server = ScriptedServer::responding_once(response);
        let output = run_requests(&server, &[]);
        assert_all_answered(&output, 40);
        assert_eq!(server.connections(), 40);
        assert_eq!(output.total("bytes_in"), 40 * response.len() as u64);
    }
}

#[test]
fn the_response_to_head_has_no_body() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        while let Some(head) = peer.request()? {
            assert!(head.starts_with("HEAD / HTTP/1.1\r\n"), "{head}");
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")?;
        }
        Ok(())
    });
    assert_all_answered(&run_requests(&server, &["--method", "HEAD"]), 2);
}

#[test]
fn what_is_asked_for_is_what_is_sent() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        while let Some(head) = peer.request()? {
            let expected = ["PUT /a?b=c HTTP/1.1\r\n", "X-One: 1\r\n", "X-Two: 2\r\n", "Host: "];
            let right = expected.iter().all(|line| head.contains(line));
            assert!(right && head.to_lowercase().contains("content-length: 4\r\n"), "{head}");
            // The body is four bytes that look like the end of a head.
            assert_eq!(peer.request()?.as_deref(), Some("\r\n\r\n"));
            peer.send(OK)?;
        }
        Ok(())
    });
    let url = format!("{}a?b=c", server.url());
    let flags = ["-c", "2", "-n", "40", "-w", "30s", "--method", "PUT", "--data", "\r\n\r\n"];
    let headers = ["-H", "X-One: 1", "-H", "X-Two: 2"];
    let output = run_load(&[&flags[..], &headers, &[&url]].concat());
    assert_eq!((output.total("responses"), output.errors()), (40, 0));
}

/// Sends byte by byte, some of them late.
fn send_slowly(peer: &mut ScriptPeer, response: &[u8]) -> io::Result<()> {
    for (at, byte) in response.iter().enumerate() {
        peer.send(&[*byte])?;
        if at % 16 == 0 {
            pause_ms(1);
        }
    }
    Ok(())
}

#[test]
fn responses_that_arrive_byte_by_byte() {
    let _shared = shared_machine();
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n0a\r\n0123456789\r\n0\r\nA: b\r\n\r\n";
    let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    for response in [OK, chunked, interim] {
        let server = ScriptedServer::start(move |peer| {
            while peer.request()?.is_some() {
                send_slowly(peer, response)?;
            }
            Ok(())
        });
        let output = run_requests(&server, &[]);
        assert_all_answered(&output, 2);
        assert_eq!(output.total("bytes_in"), 40 * response.len() as u64);
        // The first byte arrives before the last.
        let median = |phase: &str| output.count(&format!("latency.{phase}.service.p50_ns"));
        assert!(median("first_byte") <= median("last_byte"));
    }
}

#[test]
fn a_slow_body_is_in_the_last_byte_and_not_in_the_first() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        while peer.request()?.is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")?;
            pause_ms(50);
            peer.send(b"cd")?;
        }
        Ok(())
    });
    let output = run_requests(&server, &[]);
    assert_all_answered(&output, 2);
    assert!(output.count("latency.last_byte.service.p50_ns") >= 50_000_000);
    let first = output.count("latency.first_byte.service.p50_ns");
    assert_timing(first < 40_000_000, "a first byte within 40 ms, in ns", first);
}

#[test]
fn garbage_is_an_error_of_its_own_kind() {
    let _shared = shared_machine();
    let responses: &[&'static [u8]] = &[
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
    ];
    for response in responses {
        let output = run_requests(&ScriptedServer::responding(response), &[]);
        assert_all_failed(&output, "parse");
    }
}

#[test]
fn endless_heads_are_given_up() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        peer.request()?;
        peer.send(b"HTTP/1.1 200 OK\r\n")?;
        for number in 0..100_000 {
            peer.send(format!("X-{number}: {number}\r\n").as_bytes())?;
        }
        Ok(())
    });
    assert_all_failed(&run_requests(&server, &[]), "parse");
}

#[test]
fn a_connection_that_ends_too_early_is_closed() {
    let _shared = shared_machine();
    let responses: &[&'static [u8]] = &[
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ];
    for response in responses {
        let output = run_requests(&ScriptedServer::responding_once(response), &[]);
        assert_all_failed(&output, "closed");
    }
}

#[test]
fn a_body_shorter_than_announced_times_out() {
    let _shared = shared_machine();
    let server = ScriptedServer::responding(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
    let common = ["-c", "4", "-n", "8", "-w", "2s"];
    let output = run_load(&[&common[..], &[&server.url()]].concat());
    assert_eq!(output.total("errors.timeout"), 8);
    assert_eq!(output.total("timeouts_by_phase.body"), 8);
    assert_eq!(output.code, 4);
}

#[test]
fn a_reset_is_counted_as_one() {
    let _shared = shared_machine();
    // Closing with unread bytes is a reset.
    let server = ScriptedServer::start(|peer| {
        let mut byte = [0];
        peer.stream.peek(&mut byte).map(|_| ())
    });
    assert_all_failed(&run_requests(&server, &[]), "reset");
}

#[test]
fn a_response_before_the_body_was_read_counts() {
    let _shared = shared_machine();
    let body = "x".repeat(8 * 1024 * 1024);
    let directory = crate::support::temp_dir();
    let file = directory.path().join("body");
    std::fs::write(&file, &body).unwrap();
    let server = ScriptedServer::start(|peer| {
        peer.request()?;
        peer.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")?;
        // The client can read before the rest of its body arrives at a closed socket.
        wait_for_close(peer);
        Ok(())
    });
    let output = run_requests(&server, &["--data-file", file.to_str().unwrap()]);
    assert_all_answered(&output, 40);
    assert_eq!(output.total("status.413"), 40);
    assert!(output.total("bytes_out") < 40 * body.len() as u64);
}

#[test]
fn a_slow_reader_of_the_body_gets_all_of_it() {
    let _shared = shared_machine();
    let directory = crate::support::temp_dir();
    let file = directory.path().join("body");
    let length = 6 * 1024 * 1024;
    std::fs::write(&file, vec![b'x'; length]).unwrap();
    let server = ScriptedServer::start(move |peer| {
        let mut read = 0;
        let mut bytes = vec![0; 256 * 1024];
        let head = b"Content-Length: 6291456\r\n\r\n";
        loop {
            let more = io::Read::read(&mut peer.stream, &mut bytes)?;
            if more == 0 {
                return Ok(());
            }
            let at = bytes[..more].windows(head.len()).position(|part| part == head);
            read += at.map_or(more, |at| more - at - head.len());
            if read < length {
                pause_ms(1);
            } else {
                read = 0;
                peer.send(OK)?;
            }
        }
    });
    let flags = ["-c", "2", "-n", "6", "-w", "30s", "--data-file", file.to_str().unwrap()];
    let output = run_load(&[&flags[..], &[&server.url()]].concat());
    assert_eq!((output.total("responses"), output.errors()), (6, 0));
    assert!(output.total("bytes_out") > 6 * length as u64);
}

#[test]
fn bytes_that_nobody_asked_for_make_the_result_suspect() {
    let _shared = shared_machine();
    let server = ScriptedServer::responding_once(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz");
    let output = run_requests(&server, &[]);
    assert_eq!((output.total("responses"), output.errors()), (40, 0));
    assert!(output.reasons().contains(&"excess_bytes"), "{output:?}");
    // Such a connection cannot be reused.
    assert_eq!(output.total("connections.opened"), 40);
}

#[test]
fn a_server_that_closes_idle_connections_costs_what_it_costs_and_no_more() {
    let _shared = shared_machine();
    let closing = || {
        ScriptedServer::start(|peer| {
            peer.request()?;
            peer.send(OK)?;
            pause_ms(20);
            Ok(())
        })
    };
    // In an open loop an idle connection is watched, and reopened for the next request.
    let server = closing();
    let flags = ["-c", "1", "-R", "10", "-d", "2s", "-t", "1"];
    let open = run_load(&[&flags[..], &[&server.url()]].concat());
    let totals = &open.record["totals"];
    let closed = open.total("connections.closed_idle");
    // On a busy machine a close may arrive as late as the next request.
    assert_timing(closed >= 10 && open.errors() <= 5, "most of 20 closes while idle", totals);
    assert_eq!(open.total("connections.lost"), open.errors(), "{totals:#}");
    // In a closed loop with a pause the request may cross the close; it is counted, never lost.
    let server = closing();
    let closed = run_requests(&server, &["-T", "50ms"]);
    let lost = closed.total("connections.lost");
    assert_eq!(lost, closed.errors(), "{:#}", closed.record["totals"]);
}

#[test]
fn a_server_of_every_mood_is_counted_exactly() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        let mood = peer.address().port() % 5;
        for turn in 0.. {
            if peer.request()?.is_none() || (mood == 1 && turn == 3) {
                break;
            }
            match (mood, turn) {
                (2, 5) => peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhe")?,
                (3, 2) => peer.send(b"nonsense\r\n\r\n")?,
                (4, 4) => peer.send(b"HTTP/1.0 200 OK\r\n\r\nbye")?,
                _ => peer.send(OK)?,
            }
            if matches!((mood, turn), (2, 5) | (4, 4)) {
                break;
            }
        }
        Ok(())
    });
    let url = server.url();
    for pace in [&["-n", "3000"][..], &["-R", "2k", "-d", "1s"]] {
        let flags = ["-c", "20", "-t", "2", "-w", "1s"];
        let output = run_load(&[&flags[..], pace, &[&url]].concat());
        assert!(!output.stderr.contains("panic"), "{}", output.stderr);
        let responses = output.total("responses");
        assert_timing(responses > 500, "more than 500 answers", responses);
        assert!(output.total("errors.closed") > 0 && output.total("errors.parse") > 0);
        assert_eq!(output.code, 4);
    }
}

#[test]
fn a_server_that_resets_half_way_through_bodies() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        // The request stays unread, which turns the close into a reset.
        peer.stream.peek(&mut [0])?;
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
        peer.send(&[b'x'; 1000])
    });
    let output = run_requests(&server, &[]);
    assert_all_failed(&output, "reset");
    assert!(output.total("bytes_in") > 0, "{:#}", output.record["totals"]);
}
