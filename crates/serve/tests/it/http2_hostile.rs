//! Clients with HTTP/2 that are slow, broken or malicious: they are bounded and counted, and others are
//! served meanwhile.

use std::io::Write;
use std::net::TcpStream;

use wire::h2::{Config, ErrorCode};

use crate::client::TestOrigin;
use crate::http2_client::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, H2Client, HEADERS, PING, RST_STREAM, RawFrame,
    SETTINGS, WINDOW_UPDATE, frame, get_frame, preface, read_frames, request_block,
};

const FRAMES: u32 = 100_000;

/// Maker of the frames of a flood, from their number.
type MakeFrames = Box<dyn Fn(u32) -> Vec<u8>>;

/// Sends the preface, `first`, and frames until the origin ends the connection; returns its frames.
fn flood(origin: &TestOrigin, first: &[u8], make: impl Fn(u32) -> Vec<u8>) -> Vec<RawFrame> {
    let client = origin.client();
    let mut reader = client.stream.try_clone().unwrap();
    let reading = std::thread::spawn(move || read_frames(&mut reader, |frame| frame.kind == GOAWAY));
    let mut writer: TcpStream = client.stream;
    let mut is_open = writer.write_all(&[&preface(), first].concat()).is_ok();
    for batch in 0..FRAMES / 100 {
        let bytes: Vec<u8> = (0..100).flat_map(|n| make(batch * 100 + n)).collect();
        is_open = is_open && writer.write_all(&bytes).is_ok();
    }
    reading.join().unwrap()
}

/// Asserts that the last frame is GOAWAY with this code.
fn assert_goaway(frames: &[RawFrame], code: u32, what: &str) {
    let last = frames.last().unwrap_or_else(|| panic!("{what}: nothing was sent"));
    assert_eq!((last.kind, &last.payload[4..8]), (GOAWAY, &code.to_be_bytes()[..]), "{what}: {last:?}");
}

#[test]
fn floods_end_their_connection_and_are_counted() {
    let origin = TestOrigin::start_default();
    let calm = 11;
    let get_1 = get_frame(1, "/?s=100m");
    let upload = frame(HEADERS, END_HEADERS, 1, &request_block("POST", "/"));
    let floods: [(&str, &[u8], MakeFrames); 6] = [
        ("ping", b"", Box::new(|n| frame(PING, 0, 0, &u64::from(n).to_be_bytes()))),
        ("settings", b"", Box::new(|_| frame(SETTINGS, 0, 0, &[]))),
        ("empty data", &upload, Box::new(|_| frame(DATA, 0, 1, &[]))),
        ("window updates", &get_1, Box::new(|_| frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()))),
        ("priority", b"", Box::new(|n| frame(2, 0, 2 * n + 1, &[0, 0, 0, 0, 9]))),
        (
            "rapid reset",
            b"",
            Box::new(|n| {
                let id = 2 * n + 1;
                let request = get_frame(id, "/?t=60s");
                [request, frame(RST_STREAM, 0, id, &8_u32.to_be_bytes())].concat()
            }),
        ),
    ];
    let kinds = floods.len() as u64;
    for (name, first, make) in floods {
        let frames = flood(&origin, first, make);
        assert_goaway(&frames, calm, name);
        // Others are served meanwhile.
        assert_eq!(H2Client::connect(&origin).get("/?s=10").body.len(), 10, "{name}");
    }
    let stats = origin.stats_when(|stats| stats.sum.connections_open == 0);
    assert_eq!(stats.sum.h2_faults_by_kind["enhance_your_calm"], kinds);
    assert_eq!(stats.sum.closed_by_reason["http2_fault"], kinds);
    assert_eq!((stats.sum.totals.in_flight, stats.sum.buffers_in_use), (0, 0));
    let totals = stats.sum.totals;
    assert!(totals.h2_pings > 100 && totals.h2_settings > 100 && totals.h2_empty_frames > 100);
    assert!(totals.h2_tiny_window_updates > 100 && totals.h2_rapid_resets > 100);
}

#[test]
fn a_continuation_flood_ends_its_connection() {
    let origin = TestOrigin::start_default();
    let first = frame(HEADERS, END_STREAM, 1, &request_block("GET", "/"));
    let frames = flood(&origin, &first, |_| frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b"));
    assert_goaway(&frames, 11, "continuation");
    let stats = origin.stats_when(|stats| stats.sum.connections_open == 0);
    assert_eq!(stats.sum.h2_faults_by_kind["continuation_flood"], 1);
    assert_eq!(stats.sum.totals.requests, 0);
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let origin = TestOrigin::start(|text| text.h2_streams_max = "10".to_owned());
    let mut client = origin.client();
    let requests: Vec<u8> = (0..50).flat_map(|n| get_frame(2 * n + 1, "/?s=1&t=500")).collect();
    client.send([preface(), requests].concat());
    let frames = read_frames(&mut client.stream, |frame| frame.stream == 19 && frame.flags & END_STREAM != 0);
    let refused: Vec<_> = frames.iter().filter(|frame| frame.kind == RST_STREAM).collect();
    assert_eq!(refused.len(), 40);
    assert!(refused.iter().all(|frame| frame.payload == 7_u32.to_be_bytes()));
    let stats = origin.stats();
    assert_eq!((stats.sum.totals.requests, stats.sum.totals.h2_refused_streams), (10, 40));
}

#[test]
fn random_frames_do_no_harm() {
    let origin = TestOrigin::start_default();
    let mut rng: u64 = 42;
    let mut next = |below: u64| {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (rng >> 33) % below
    };
    for _ in 0..300 {
        let mut bytes = preface();
        for _ in 0..20 {
            let payload: Vec<u8> = (0..next(40)).map(|_| next(256) as u8).collect();
            let (kind, flags, stream) = (next(11) as u8, next(256) as u8, next(8) as u32);
            bytes.extend(frame(kind, flags, stream, &payload));
        }
        let mut client = origin.client();
        let _ = client.stream.write_all(&bytes);
    }
    let stats = origin.stats_when(|stats| stats.sum.connections_open == 0);
    assert_eq!((stats.sum.buffers_in_use, stats.sum.totals.in_flight), (0, 0));
    assert_eq!(origin.client().get("/?s=10").body.len(), 10);
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let origin = TestOrigin::start_default();
    for target in ["/?s=1g", "/?s=5&t=50", "/?s=1m&k=1", "/?s=5", "/?s=5&C=1&P=50", "/stats"] {
        for method in ["GET", "POST"] {
            let mut client = H2Client::connect(&origin);
            client.send_head(method, target, &[], method == "GET");
            client.flush();
        }
    }
    let stats = origin.stats_when(|stats| stats.sum.connections_open == 0);
    let totals = stats.sum.totals;
    assert_eq!((stats.sum.buffers_in_use, totals.in_flight), (0, 0));
    let responses = stats.sum.responses_by_status.get(&200).copied().unwrap_or(0);
    assert_eq!(totals.requests, responses + totals.requests_abandoned);
}

#[test]
fn a_client_without_a_window_gets_a_reset_in_time() {
    let origin = TestOrigin::start(|text| text.write_timeout = "300ms".to_owned());
    let config = Config { stream_window_bytes: 0, stream_window_bytes_max: 0, ..Config::default() };
    let mut client = H2Client::connect_with(&origin, &config);
    let response = client.get("/?s=5");
    assert_eq!((response.status, response.reset), (200, Some(ErrorCode::CANCEL)));
    // The connection still works.
    assert_eq!(client.get("/?s=0").status, 200);
    let stats = origin.stats();
    assert_eq!((stats.sum.totals.h2_streams_timed_out, stats.sum.totals.responses_lost), (1, 1));
    assert_eq!(stats.sum.totals.in_flight, 0);
}

#[test]
fn a_window_that_stays_shut_holds_up_only_its_stream() {
    let origin = TestOrigin::start_default();
    let mut client = H2Client::connect(&origin);
    client.holds_windows = true;
    let large = client.send_get("/?s=1m");
    client.read_until(|client| {
        client.responses.get(&large).is_some_and(|response| response.body.len() == 65_535)
    });
    assert_eq!(client.get("/?s=10k").body.len(), 10_240);
    assert!(!client.responses[&large].is_end);
}

#[test]
fn a_body_that_stops_is_reset_in_time() {
    let origin = TestOrigin::start(|text| text.body_timeout = "300ms".to_owned());
    let mut client = H2Client::connect(&origin);
    let stalled = client.send_head("POST", "/?s=5", &[("content-length", "10")], false);
    client.wire.send_data(stalled, b"half", false);
    let answered = client.send_head("POST", "/?s=5&B=0", &[], false);
    assert_eq!(client.wait_for(answered.id).body.len(), 5);
    assert_eq!(client.wait_for(stalled.id).reset, Some(ErrorCode::CANCEL));
    assert_eq!(client.get("/?s=5").status, 200);
    let stats = origin.stats_when(|stats| stats.sum.totals.h2_streams_timed_out == 2);
    assert_eq!((stats.sum.totals.requests_abandoned, stats.sum.totals.h2_resets_sent), (1, 2));
}

#[test]
fn an_incomplete_frame_or_head_ends_the_connection_in_time() {
    let origin = TestOrigin::start(|text| text.head_timeout = "300ms".to_owned());
    let open_block = frame(HEADERS, END_STREAM, 1, &request_block("GET", "/"));
    let half_frame = get_frame(1, "/")[..12].to_vec();
    for bytes in
        [[preface(), open_block].concat(), [preface(), half_frame].concat(), preface()[..10].to_vec()]
    {
        let mut client = origin.client();
        client.send(bytes);
        client.read_to_end();
    }
    let stats = origin.stats_when(|stats| stats.sum.connections_open == 0);
    assert_eq!(stats.sum.closed_by_reason["head_timeout"], 3);
}

#[test]
fn a_client_that_reads_nothing_costs_little_and_ends_in_time() {
    let origin = TestOrigin::start(|text| text.write_timeout = "1s".to_owned());
    let mut client = origin.client();
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let window = frame(WINDOW_UPDATE, 0, 0, &0x7f00_0000_u32.to_be_bytes());
    let requests: Vec<u8> = (0..20).flat_map(|n| get_frame(2 * n + 1, "/?s=1g")).collect();
    client.send([preface(), settings, window, requests].concat());
    let stats = origin.stats_when(|stats| stats.sum.totals.in_flight == 20);
    assert!(stats.sum.buffers_in_use <= 2);
    let stats = origin.stats_when(|stats| stats.sum.connections_open == 0);
    assert_eq!(stats.sum.closed_by_reason["write_stall"], 1);
    assert_eq!((stats.sum.totals.responses_lost, stats.sum.totals.in_flight), (20, 0));
    assert_eq!(stats.sum.buffers_in_use, 0);
}

#[test]
fn resets_of_clients_are_counted_and_cost_one_stream() {
    let origin = TestOrigin::start_default();
    let mut client = H2Client::connect(&origin);
    let delayed = client.send_head("GET", "/?t=60s", &[], true);
    let kept = client.send_get("/?s=3&t=100");
    client.wire.reset(delayed, ErrorCode::CANCEL);
    assert_eq!(client.wait_for(kept).body.len(), 3);
    let stats = origin.stats_when(|stats| stats.sum.totals.h2_resets_received == 1);
    assert_eq!((stats.sum.totals.requests_abandoned, stats.sum.totals.in_flight), (1, 0));
}
