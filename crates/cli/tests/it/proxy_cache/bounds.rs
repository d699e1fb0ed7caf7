//! Bounds of a cache, and reloads.

use std::io::{Read, Write};

use super::{
    BYTES, NOT_STORED, RESPONSES, RecordingServer, cache_status, config, get, response, start, text,
};
use crate::support::faulty_origins::field;
use crate::support::hostile_client::connect;
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{run_weir, shared_machine, temp_dir};

#[test]
fn long_responses_are_forwarded_and_not_stored() {
    let _shared = shared_machine();
    let content: &'static str = Box::leak("0123456789abcdef".repeat(40_000).into_boxed_str());
    let server = RecordingServer::start(move |request, _| match request.target() {
        "/length" => response("Cache-Control: max-age=600\r\n", content),
        _ => {
            let mut bytes =
                b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n"
                    .to_vec();
            for chunk in content.as_bytes().chunks(10_000) {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            bytes
        }
    });
    let proxy = ProxyUnderTest::weir(&config(&server.server.authority, "object-max = \"100k\"", "", ""));
    for round in 1..=2 {
        assert_eq!(text(&get(&proxy, "/length", "")), content);
        let mut client = connect(proxy.authority());
        client.write_all(b"GET /chunks HTTP/1.0\r\nHost: h\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        assert!(
            bytes.ends_with(content.as_bytes()) && bytes.len() < content.len() + 1_000,
            "{}",
            bytes.len()
        );
        proxy.metrics_until("both are counted", |metrics| {
            metrics.sum(NOT_STORED, &[("reason", "too_large")]) == f64::from(2 * round)
        });
    }
    assert_eq!(server.requests(), 4);
    assert_eq!(proxy.metrics().sum_known(RESPONSES, &[("in", "memory")]), 0.0);
    proxy.assert_all_returned();
}

#[test]
fn a_body_of_unknown_length_is_stored_and_has_a_length_then() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|_, _| {
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".to_vec()
    });
    let proxy = start(&server.server, "", "");
    let mut client = connect(proxy.authority());
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut text_of_first = String::new();
    client.read_to_string(&mut text_of_first).unwrap();
    assert!(text_of_first.contains("abc") && text_of_first.contains("de"), "{text_of_first}");
    let second = get(&proxy, "/", "");
    assert_eq!(
        (text(&second).as_str(), field(&second.head, "content-length").as_deref()),
        ("abcde", Some("5"))
    );
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_slow_client_of_a_response_that_is_not_stored_gets_all_of_it() {
    let _shared = shared_machine();
    const CHUNK: usize = 64 * 1024;
    const CHUNKS: usize = 320;
    let server = ScriptedServer::start(|peer| {
        while peer.request()?.is_some() {
            peer.send(
                b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n",
            )?;
            for number in 0..CHUNKS {
                peer.send(format!("{CHUNK:x}\r\n").as_bytes())?;
                peer.send(&vec![number as u8; CHUNK])?;
                peer.send(b"\r\n")?;
            }
            peer.send(b"0\r\n\r\n")?;
        }
        Ok(())
    });
    let proxy = ProxyUnderTest::weir(&config(&server.authority, "object-max = \"100k\"", "", ""));
    let mut client = connect(proxy.authority());
    client.write_all(b"GET / HTTP/1.0\r\nHost: h\r\n\r\n").unwrap();
    // More than all sockets hold waits behind it.
    proxy.metrics_until("it is too large", |metrics| {
        metrics.sum(BYTES, &[("in", "memory")]) < 2e6 && metrics.sum("weir_requests_in_flight", &[]) == 1.0
    });
    let before = proxy.resident_bytes();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    let start = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = &bytes[start..];
    assert_eq!(body.len(), CHUNK * CHUNKS);
    assert!(
        body.chunks(CHUNK).enumerate().all(|(number, chunk)| chunk.iter().all(|byte| *byte == number as u8))
    );
    let after = proxy.resident_bytes();
    assert!(after < before + (12 << 20), "{before} {after}");
}

#[test]
fn memory_is_bounded() {
    let _shared = shared_machine();
    let content: &'static str = Box::leak("x".repeat(50_000).into_boxed_str());
    let server = RecordingServer::start(move |_, _| response("Cache-Control: max-age=600\r\n", content));
    let proxy = ProxyUnderTest::weir(&config(
        &server.server.authority,
        "memory = \"2m\"\nobject-max = \"100k\"",
        "",
        "",
    ));
    let mut client = proxy.client();
    for number in 0..100 {
        assert_eq!(client.get(&format!("/{number}")).status, 200);
    }
    let metrics = proxy.metrics();
    let bytes = metrics.sum_known(BYTES, &[("in", "memory")]);
    assert!((1_000_000.0..=2_097_152.0).contains(&bytes), "{bytes}");
    let responses = metrics.sum_known(RESPONSES, &[("in", "memory")]);
    let evicted = metrics.sum_known("weir_cache_evicted_total", &[("in", "memory")]);
    assert_eq!(responses + evicted, 100.0);
}

#[test]
fn a_reload_keeps_an_unchanged_cache() {
    let _shared = shared_machine();
    let server = RecordingServer::with_fields("Cache-Control: max-age=600\r\n");
    let config = |cache: &str, route: &str| config(&server.server.authority, cache, "", route);
    let proxy = ProxyUnderTest::weir(&config("memory = \"8m\"", ""));
    let reload = |count: u32, cache: &str, route: &str| {
        proxy.reload(&config(cache, route));
        proxy.metrics_until("the reload", |metrics| {
            metrics.sum("weir_reloads_total", &[("result", "applied")]) == f64::from(count)
        });
    };
    assert_eq!(text(&get(&proxy, "/", "")), "response 1");
    reload(1, "memory = \"8m\"", "set-response-header = { x-new = \"1\" }");
    let kept = get(&proxy, "/", "");
    assert_eq!((text(&kept).as_str(), field(&kept.head, "x-new").as_deref()), ("response 1", Some("1")));
    reload(2, "memory = \"9m\"", "");
    assert_eq!(text(&get(&proxy, "/", "")), "response 2");
}

#[test]
fn a_core_uses_what_another_has_stored() {
    let _shared = shared_machine();
    let server = RecordingServer::with_fields("Cache-Control: max-age=600\r\n");
    let proxy = start(&server.server, "", "");
    assert_eq!(text(&get(&proxy, "/", "")), "response 1");
    // Connections are spread over both cores.
    for _ in 0..40 {
        let hit = get(&proxy, "/", "");
        assert!(text(&hit) == "response 1" && cache_status(&hit).contains("; hit"), "{}", hit.head);
    }
    assert_eq!(server.requests(), 1);
}

#[test]
fn faults_of_the_config_have_a_place() {
    let directory = temp_dir();
    let path = directory.path().join("weir.toml");
    for (cache, in_use, part) in [
        ("memory = \"1k\"", "", ":12:10: "),
        ("object-max = \"60m\"", "", "more than a quarter of `memory`"),
        ("disk = { directory = \"/no/such/directory\" }", "", "/no/such/directory: No such file"),
        ("", ", key = \"{nobody}\"", "nobody"),
        ("", ", coalesce = \"5\"", "'5'"),
        ("", ", valid = [{ status = \"1\", for = \"1s\" }]", "'1'"),
        ("", ", bypas = true", "unknown key 'bypas'"),
    ] {
        std::fs::write(&path, config("127.0.0.1:1", cache, in_use, "")).unwrap();
        let run = run_weir(&["proxy", "--check", "--config", path.to_str().unwrap()]);
        assert_eq!(run.code, 2, "{cache}{in_use}: {}", run.stderr);
        assert!(run.stderr.contains(part), "{cache}{in_use}: {}", run.stderr);
    }
}
