//! Replays the corpora of the fuzz targets, so that a case found once stays fixed.

use decode_cost::corpus;

use super::hyper_peer;

#[test]
fn request_head() {
    replay("request_head", super::request_head);
}

#[test]
fn response_head() {
    replay("response_head", super::response_head);
}

#[test]
fn chunked_body() {
    replay("chunked_body", super::chunked_body);
}

#[test]
fn h2_server() {
    replay("h2_server", super::h2_server);
    replay_mutations("h2_server", super::h2_server);
}

#[test]
fn h2_client() {
    replay("h2_client", super::h2_client);
    replay_mutations("h2_client", super::h2_client);
}

#[test]
fn hpack() {
    replay("hpack", super::hpack);
    replay_mutations("hpack", super::hpack);
}

#[test]
fn websocket() {
    replay("websocket", super::websocket);
    replay_mutations("websocket", super::websocket);
}

#[test]
fn event_stream() {
    replay("event_stream", super::event_stream);
    replay_mutations("event_stream", super::event_stream);
}

#[test]
fn differential() {
    replay("differential", hyper_peer::check);
    // Any request is also a connection.
    replay("request_head", hyper_peer::check);
}

/// Runs a property on mutations of each file, the same ones each time. `WEIR_FUZZ_ROUNDS` is the
/// number of mutations per file.
fn replay_mutations(target: &str, property: impl Fn(&[u8])) {
    let rounds = std::env::var("WEIR_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let seeds = corpus(target);
    let mut random = 1u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) % limit.max(1) as u64) as usize
    };
    for seed in &seeds {
        for _ in 0..rounds {
            let mut bytes = seed.clone();
            for _ in 0..=below(4) {
                let at = below(bytes.len());
                match below(6) {
                    0 => bytes.insert(at, below(256) as u8),
                    1 => bytes.truncate(at.max(1)),
                    2 => {
                        // A part of another file: frames in another state.
                        let other = &seeds[below(seeds.len())];
                        let start = below(other.len());
                        bytes.extend_from_slice(&other[start..]);
                    }
                    3 => bytes[at] ^= 1 << below(8),
                    4 => drop(bytes.splice(at..at, seed[below(seed.len())..].to_vec())),
                    _ => bytes[at] = below(256) as u8,
                }
            }
            bytes.truncate(4_096);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| property(&bytes))).is_err() {
                panic!("{target}: {}", bytes.escape_ascii());
            }
        }
    }
}

/// Runs a property on each file of a corpus; the last one in the output of a failure is to blame.
fn replay(target: &str, property: impl Fn(&[u8])) {
    let files = corpus(target);
    assert!(files.len() >= 5, "only {} files for {target}", files.len());
    for file in files {
        eprintln!("{target}: {}", file.escape_ascii());
        property(&file);
    }
}
