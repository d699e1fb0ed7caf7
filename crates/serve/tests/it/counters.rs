//! The counters, compared with a client's own, and the access log.

use std::collections::BTreeMap;

use crate::client::{TestOrigin, get};

#[test]
fn counts_are_exact_over_two_cores() {
    let origin = TestOrigin::start(|text| text.threads = "2".to_owned());
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let mut client = origin.client();
            std::thread::spawn(move || {
                let mut bytes = (0, 0);
                for round in 0..500 {
                    let target = match round % 4 {
                        0 => "/?s=100".to_owned(),
                        1 => format!("/?s={}&x", round * number),
                        2 => "/?r=404&t=100us".to_owned(),
                        _ => "/?s=20k".to_owned(),
                    };
                    bytes.0 += get(&target).len() as u64;
                    let response = client.get(&target);
                    bytes.1 += (response.head.len() + response.body.len()) as u64;
                }
                (bytes, client)
            })
        })
        .collect();
    let done: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let page = origin.client().get("/stats");
    assert_eq!(page.field("Content-Type"), Some("application/json"));
    let stats: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    let sum = |pick: fn(&(u64, u64)) -> u64| done.iter().map(|(bytes, _)| pick(bytes)).sum::<u64>();
    assert_eq!(stats["schema"], "weir.stats/1");
    assert_eq!((&stats["requests"], &stats["responses"]), (&4000.into(), &4000.into()));
    assert_eq!(stats["responses_by_status"], serde_json::json!({"200": 3000, "404": 1000}));
    assert_eq!(stats["bytes_in"], sum(|bytes| bytes.0));
    assert_eq!(stats["bytes_out"], sum(|bytes| bytes.1));
    assert_eq!((&stats["unknown_option"], &stats["in_flight"]), (&1000.into(), &0.into()));
    assert_eq!((&stats["stats_requests"], &stats["connections_open"]), (&1.into(), &9.into()));
    let cores = stats["cores"].as_array().unwrap();
    assert!(cores.iter().all(|core| core["requests"].as_u64().unwrap() >= 1000), "{stats}");
}

#[test]
fn all_bytes_of_a_request_body_count_as_received() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    let head = format!("POST /?s=5 HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 3 << 20);
    client.send(&head);
    client.send("x".repeat(3 << 20));
    assert_eq!(client.read_response().status(), 200);
    origin.stats_when(|stats| stats.sum.totals.bytes_in == (head.len() + (3 << 20)) as u64);
}

#[test]
fn the_access_log_has_a_line_for_each_response() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let origin = TestOrigin::start(|text| text.access_log = path.display().to_string());
    let mut client = origin.client();
    for _ in 0..3 {
        client.send("GET /?s=5 HTTP/1.1\r\nHost: h\r\nUser-Agent: it\r\nReferer: /a\r\n\r\n");
        client.read_response();
    }
    client.get("/?s=6&t=1");
    client.send("HEAD /?s=7r HTTP/1.1\r\nHost: h\r\n\r\nnonsense\r\n\r\n");
    client.read_response_to(true);
    client.read_response();
    drop(client);
    origin.drain.advance(rt::drain::DrainStage::Draining);
    let stats = origin.join();
    assert_eq!((stats.sum.totals.log_lines, stats.sum.totals.log_dropped), (6, 0));
    let log = std::fs::read_to_string(path).unwrap();
    let mut lines = BTreeMap::new();
    for line in log.lines() {
        let (peer, rest) = line.split_once(" - - [").unwrap();
        let (date, rest) = rest.split_once("] ").unwrap();
        assert_eq!((peer, date.len()), ("127.0.0.1", 26), "{line}");
        *lines.entry(rest).or_insert(0) += 1;
    }
    let expected = BTreeMap::from([
        ("\"GET /?s=5 HTTP/1.1\" 200 5 \"/a\" \"it\"", 3),
        ("\"GET /?s=6&t=1 HTTP/1.1\" 200 6 \"-\" \"-\"", 1),
        ("\"HEAD /?s=7r HTTP/1.1\" 200 0 \"-\" \"-\"", 1),
        ("\"-\" 400 83 \"-\" \"-\"", 1),
    ]);
    assert_eq!(lines, expected);
}

#[test]
fn lines_that_the_log_cannot_take_are_counted_and_cost_nothing_else() {
    let origin = TestOrigin::start(|text| text.access_log = "/dev/full".to_owned());
    let mut client = origin.client();
    for _ in 0..10 {
        assert_eq!(client.get("/?s=5").status(), 200);
    }
    origin.stats_when(|stats| stats.sum.totals.log_dropped == 10);
}
