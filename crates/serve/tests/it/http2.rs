//! The options of targets, and the versions of HTTP, over HTTP/2.

use rt::clock::{MILLISECOND_NS, now_ns};
use rt::drain::DrainStage;
use wire::h2::{Config, ErrorCode, PREFACE};

use crate::client::{TestOrigin, get, pattern};
use crate::http2_client::{
    DATA, END_STREAM, GOAWAY, H2Client, HEADERS, SETTINGS, frame, get_frame, preface, read_frames,
};

#[test]
fn heads_and_bodies_follow_the_target() {
    let origin = TestOrigin::start_default();
    let mut client = H2Client::connect(&origin);
    for size in [0, 1, 100, 16_383, 16_384, 16_385, 65_535, 65_536, 1 << 20, 5_000_000] {
        let response = client.get(&format!("/?s={size}"));
        assert_eq!((response.status, response.body.len()), (200, size));
        assert!(response.body == pattern(size), "{size}");
        assert_eq!(response.field("content-length"), Some(size.to_string().as_str()));
        assert_eq!(response.field("date").unwrap().len(), 29);
    }
    for status in [200, 204, 304, 404, 503, 999] {
        let response = client.get(&format!("/?r={status}&s=5"));
        let has_body = status != 204 && status != 304;
        assert_eq!((response.status, response.body.len()), (status, if has_body { 5 } else { 0 }));
        assert_eq!(response.field("content-length").is_some(), has_body);
    }
    let response = client.get("/?s=7&c=0&e=1&v=1");
    assert_eq!(response.field("cache-control"), Some("no-cache"));
    assert!(response.field("etag").unwrap().starts_with('"'));
    assert!(response.field("x-req").unwrap().starts_with("size="));
    assert!(response.field("x-rsp").unwrap().contains("code=200, cache=0, size=7"));
    assert_eq!(client.get("/").field("content-type"), Some("text/plain; charset=utf-8"));
    assert!(client.get("/").body.starts_with(b"weir serve"));
    let random = [client.get("/?s=100k&R=1"), client.get("/?s=100k&R=1")];
    assert!(random[0].body.len() == 102_400 && random[0].body != random[1].body);
    assert_eq!(client.get("/?s=5&b=0").field("content-length"), None);
    origin.stats_when(|stats| stats.sum.totals.in_flight == 0 && stats.sum.buffers_in_use == 0);
}

#[test]
fn the_etag_is_the_same_as_with_http1() {
    let origin = TestOrigin::start_default();
    let http2 = H2Client::connect(&origin).get("/?e=7");
    assert_eq!(http2.field("etag"), origin.client().get("/?e=7").field("ETag"));
}

#[test]
fn responses_without_content_end_with_their_head() {
    let origin = TestOrigin::start_default();
    let mut client = H2Client::connect(&origin);
    let head = client.send_head("HEAD", "/?s=5", &[], true);
    let response = client.wait_for(head.id);
    assert_eq!((response.field("content-length"), response.body.len()), (Some("5"), 0));
    let early = client.get("/?r=103");
    assert_eq!((early.interim, early.status), (vec![103], 200));
    let switching = client.get("/?r=101");
    assert_eq!((switching.interim.len(), switching.status), (0, 200));
    let connect = client.send_head("CONNECT", "", &[], false);
    client.read_until(|client| client.responses.contains_key(&connect.id));
    assert_eq!(client.responses[&connect.id].status, 501);
    assert_eq!(client.get("/?s=1").status, 200);
}

#[test]
fn chunks_and_write_sizes_are_the_sizes_of_data_frames() {
    let origin = TestOrigin::start_default();
    for (target, sizes) in [
        ("/?s=2500&k=1000", vec![1000, 1000, 500]),
        ("/?s=3&k=1", vec![1, 1, 1]),
        ("/?s=250&p=100", vec![100, 100, 50]),
        ("/?s=40000&k=39000", vec![16_384, 16_384, 7_232]),
        ("/?s=100", vec![100]),
    ] {
        let mut client = origin.client();
        client.send([preface(), get_frame(1, target)].concat());
        let frames =
            read_frames(&mut client.stream, |frame| frame.flags & END_STREAM != 0 && frame.kind == DATA);
        let data: Vec<_> = frames.iter().filter(|frame| frame.kind == DATA).collect();
        assert_eq!(data.iter().map(|frame| frame.payload.len()).collect::<Vec<_>>(), sizes, "{target}");
        let body: Vec<u8> = data.iter().flat_map(|frame| frame.payload.clone()).collect();
        assert_eq!(body, pattern(sizes.iter().sum()), "{target}");
    }
}

#[test]
fn delays_of_many_streams_pass_at_the_same_time() {
    let origin = TestOrigin::start_default();
    let mut client = H2Client::connect(&origin);
    let start_ns = now_ns();
    // The longest delay first.
    let ids: Vec<u32> = (0..50).map(|n| client.send_get(&format!("/?s=3&t={}", 1000 - n * 10))).collect();
    client.read_until(|client| client.ended.len() == 50);
    assert!(now_ns() - start_ns >= 1000 * MILLISECOND_NS);
    let mut expected = ids.clone();
    expected.reverse();
    assert_eq!(client.ended, expected);
    assert!(client.responses.values().all(|response| response.body.len() == 3));
    // One after the other they would take 37 s; the deadline of a read is 20 s.
    origin.stats_when(|stats| stats.sum.totals.in_flight == 0);
}

#[test]
fn request_bodies_are_read_before_or_after_the_response() {
    let origin = TestOrigin::start_default();
    let mut client = H2Client::connect(&origin);
    let upload = client.send_head("POST", "/?s=4", &[("expect", "100-continue")], false);
    client.read_until(|client| client.responses.contains_key(&upload.id));
    assert_eq!(client.responses[&upload.id].interim, [100]);
    let body = vec![b'x'; 3_000_000];
    let mut sent = 0;
    while sent < body.len() {
        sent += client.wire.send_data(upload, &body[sent..], true);
        client.flush();
        if sent < body.len() {
            let ready = client.wire.sendable_bytes(upload);
            if ready == 0 {
                client.read_once();
            }
        }
    }
    assert_eq!(client.wait_for(upload.id).body.len(), 4);
    let early = client.send_head("POST", "/?s=4&B=10", &[], false);
    assert_eq!(client.wire.send_data(early, b"0123456789", false), 10);
    assert_eq!(client.wait_for(early.id).body.len(), 4);
    assert_eq!(client.wire.send_data(early, b"rest", true), 4);
    let none = client.send_head("POST", "/?s=4&B=0", &[("expect", "100-continue")], false);
    let response = client.wait_for(none.id);
    assert_eq!((response.interim.len(), response.body.len()), (0, 4));
    assert_eq!(client.wire.send_data(none, b"", true), 0);
    assert_eq!(client.get("/?s=1").status, 200);
    let stats = origin.stats_when(|stats| stats.sum.totals.in_flight == 0);
    assert_eq!((stats.sum.totals.requests, stats.sum.totals.requests_abandoned), (4, 0));
}

#[test]
fn a_target_may_close_the_connection() {
    let origin = TestOrigin::start_default();
    for target in ["/?s=5&C=1", "/?s=200k&K=0", "/?s=5&C=1&P=50"] {
        let mut client = H2Client::connect(&origin);
        let delayed = client.send_get("/?s=3&t=100");
        let response = client.get(target);
        assert!(response.is_end, "{target}");
        assert!(client.wait_for(delayed).is_end, "streams in progress go on");
        client.read_to_end();
        assert_eq!(client.goaways.last(), Some(&(3, ErrorCode::NO_ERROR)), "{target}");
    }
    let mut short = H2Client::connect(&origin);
    short.get("/?w=50");
    short.read_to_end();
    assert_eq!(short.goaways, [(1, ErrorCode::NO_ERROR)]);
    let stats = origin.stats_when(|stats| stats.sum.connections_open == 0);
    assert_eq!(stats.sum.closed_by_reason["requested"], 3);
    assert_eq!(stats.sum.closed_by_reason["idle_timeout"], 1);
    assert_eq!(stats.sum.totals.h2_goaways_sent, 4);
}

#[test]
fn counters_are_exact_and_do_not_count_their_own_requests() {
    let origin = TestOrigin::start_default();
    let mut client = H2Client::connect(&origin);
    let ids: Vec<u32> = (0..40).map(|n| client.send_get(&format!("/?s={n}&zz=1"))).collect();
    client.read_until(|client| client.ended.len() == ids.len());
    let json: Vec<serde_json::Value> =
        (0..2).map(|_| serde_json::from_slice(&client.get("/stats").body).unwrap()).collect();
    assert_eq!(json[0]["bytes_out"], json[1]["bytes_out"]);
    assert_eq!(json[1]["stats_requests"], 2);
    let totals = origin.stats().sum.totals;
    assert_eq!((totals.requests, totals.responses, totals.unknown_option), (40, 40, 40));
    assert_eq!((totals.h2_connections, totals.h2_streams), (1, 42));
}

#[test]
fn a_small_response_overtakes_large_ones_of_its_connection() {
    let origin = TestOrigin::start_default();
    let config =
        Config { stream_window_bytes: 1 << 30, connection_window_bytes: 1 << 30, ..Config::default() };
    let config = Config { stream_window_bytes_max: 1 << 30, connection_window_bytes_max: 1 << 30, ..config };
    let mut client = H2Client::connect_with(&origin, &config);
    let large = [client.send_get("/?s=30m"), client.send_get("/?s=30m")];
    let small = client.send_get("/?s=1m");
    client.read_until(|client| client.ended.len() == 3);
    assert_eq!(client.ended[0], small);
    // Both large ones get the same part of the connection.
    let order: Vec<u32> = client.ended[1..].to_vec();
    assert_eq!(order, large);
}

#[test]
fn the_first_bytes_decide_between_the_versions() {
    let origin = TestOrigin::start_default();
    let request = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[]), get_frame(1, "/?s=5")].concat();
    for split in 1..PREFACE.len() + 2 {
        let mut client = origin.client();
        client.send(&request[..split]);
        origin.stats_when(|stats| stats.sum.totals.bytes_in > 0);
        client.send(&request[split..]);
        let frames = read_frames(&mut client.stream, |frame| frame.kind == DATA);
        assert_eq!(frames.last().unwrap().payload.len(), 5, "{split}");
    }
    let mut upgrade = origin.client();
    upgrade.send(
        "GET /?s=5 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    );
    assert_eq!(upgrade.read_response().status(), 200);
    assert_eq!(upgrade.get("/?s=5").body.len(), 5);
    // Only the rest of the preface is invalid.
    let mut broken = origin.client();
    broken.send("PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n");
    let frames = read_frames(&mut broken.stream, |_| false);
    assert_eq!(frames.last().map(|frame| frame.kind), Some(GOAWAY));
    // It begins like the preface.
    let mut put = origin.client();
    put.send("P");
    put.send("OST /?s=5 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(put.read_response().body.len(), 5);
}

#[test]
fn each_version_can_be_the_only_one() {
    let only1 = TestOrigin::start(|text| text.http = "1.1".to_owned());
    let mut client = only1.client();
    client.send(preface());
    assert_eq!(client.read_response().status(), 505);
    let only2 = TestOrigin::start(|text| text.http = "2".to_owned());
    assert_eq!(H2Client::connect(&only2).get("/?s=5").body.len(), 5);
    let mut client = only2.client();
    client.send(get("/"));
    let frames = read_frames(&mut client.stream, |_| false);
    assert_eq!(frames.last().map(|frame| frame.kind), Some(GOAWAY));
    let stats = only2.stats_when(|stats| stats.sum.connections_open == 0);
    assert_eq!(stats.sum.h2_faults_by_kind["preface_invalid"], 1);
}

#[test]
fn the_limits_of_the_flags_are_announced() {
    let origin = TestOrigin::start(|text| {
        text.h2_streams_max = "7".to_owned();
        text.h2_connection_window = "65535".to_owned();
    });
    let mut client = origin.client();
    client.send([preface(), get_frame(1, "/")].concat());
    let frames = read_frames(&mut client.stream, |frame| frame.kind == HEADERS);
    let settings = &frames[0];
    assert_eq!(settings.kind, SETTINGS);
    // SETTINGS_MAX_CONCURRENT_STREAMS.
    assert!(settings.payload.chunks(6).any(|setting| setting == [0, 3, 0, 0, 0, 7]), "{settings:?}");
    let mut client = H2Client::connect(&origin);
    client.get("/");
    assert_eq!(client.wire.free_streams(), 7);
}

#[test]
fn a_drain_announces_the_end_and_finishes_the_streams() {
    let origin = TestOrigin::start_default();
    let mut idle = H2Client::connect(&origin);
    idle.get("/?s=1");
    let mut busy = H2Client::connect(&origin);
    let upload = busy.send_head("POST", "/?s=10", &[], false);
    busy.flush();
    origin.stats_when(|stats| stats.sum.totals.in_flight == 1);
    origin.drain.advance(DrainStage::Draining);
    idle.read_to_end();
    // All streams that may be on their way are accepted first, then those that have arrived.
    let announced = (0x7fff_ffff, ErrorCode::NO_ERROR);
    assert_eq!(idle.goaways, [announced, (1, ErrorCode::NO_ERROR)]);
    busy.read_until(|client| client.goaways.len() == 2);
    assert_eq!(busy.wire.send_data(upload, b"x", true), 1);
    assert_eq!(busy.wait_for(upload.id).body.len(), 10);
    busy.read_to_end();
    drop((idle, busy));
    let stats = origin.join();
    assert_eq!((stats.sum.totals.requests, stats.sum.totals.responses), (2, 2));
    assert_eq!((stats.sum.closed_by_reason["drained"], stats.sum.closed_by_reason["dropped"]), (2, 0));
    assert_eq!(stats.sum.totals.h2_goaways_sent, 2);
}

#[test]
fn the_access_log_has_the_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let origin = TestOrigin::start(|text| text.access_log = path.display().to_string());
    let mut client = H2Client::connect(&origin);
    let stream = client.send_head("GET", "/?s=5", &[("user-agent", "a\"b"), ("referer", "r")], true);
    client.wait_for(stream.id);
    client.get("/?s=3&t=1");
    drop(client);
    origin.drain.advance(DrainStage::Draining);
    origin.join();
    let log = std::fs::read_to_string(path).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].ends_with("\"GET /?s=5 HTTP/2.0\" 200 5 \"r\" \"a\\x22b\""), "{log}");
    assert!(lines[1].ends_with("\"GET /?s=3&t=1 HTTP/2.0\" 200 3 \"-\" \"-\""), "{log}");
}

#[test]
fn a_rejected_request_gets_its_status_and_the_connection_stays() {
    let origin = TestOrigin::start(|text| text.head_bytes_max = "1k".to_owned());
    let mut client = H2Client::connect(&origin);
    let value = "x".repeat(6_000);
    let long = client.send_head("GET", "/", &[("x-long", &value)], true);
    assert_eq!(client.wait_for(long.id).status, 431);
    assert_eq!(client.get("/?s=1").status, 200);
    let stats = origin.stats_when(|stats| stats.sum.totals.responses == 2);
    assert_eq!((stats.sum.totals.requests, stats.sum.rejected_by_kind["head_too_large"]), (1, 1));
}

#[test]
fn many_connections_share_the_cores() {
    let origin = TestOrigin::start(|text| text.threads = "2".to_owned());
    let mut clients: Vec<_> = (0..10).map(|_| H2Client::connect(&origin)).collect();
    for client in &mut clients {
        client.get("/?s=10");
    }
    let stats = origin.stats();
    assert_eq!(stats.sum.totals.h2_connections, 10);
    assert!(stats.cores.iter().all(|core| core.totals.h2_connections == 5), "{}", stats.to_json());
    drop(clients);
    origin.stats_when(|stats| stats.sum.connections_open == 0);
}
