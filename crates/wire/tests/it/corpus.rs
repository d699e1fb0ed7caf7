//! Replays the corpora of the fuzz targets, so that a case found once stays fixed.

use std::io;
use std::path::{Path, PathBuf};

use crate::hyper_peer;

#[test]
fn request_head() -> io::Result<()> {
    replay("request_head", wire::fuzzing::request_head)
}

#[test]
fn response_head() -> io::Result<()> {
    replay("response_head", wire::fuzzing::response_head)
}

#[test]
fn chunked_body() -> io::Result<()> {
    replay("chunked_body", wire::fuzzing::chunked_body)
}

#[test]
fn h2_server() -> io::Result<()> {
    replay("h2_server", wire::fuzzing::h2_server)?;
    replay_mutations("h2_server", wire::fuzzing::h2_server)
}

#[test]
fn h2_client() -> io::Result<()> {
    replay("h2_client", wire::fuzzing::h2_client)?;
    replay_mutations("h2_client", wire::fuzzing::h2_client)
}

#[test]
fn hpack() -> io::Result<()> {
    replay("hpack", wire::fuzzing::hpack)?;
    replay_mutations("hpack", wire::fuzzing::hpack)
}

#[test]
fn websocket() -> io::Result<()> {
    replay("websocket", wire::fuzzing::websocket)?;
    replay_mutations("websocket", wire::fuzzing::websocket)
}

#[test]
fn event_stream() -> io::Result<()> {
    replay("event_stream", wire::fuzzing::event_stream)?;
    replay_mutations("event_stream", wire::fuzzing::event_stream)
}

#[test]
fn differential() -> io::Result<()> {
    replay("differential", hyper_peer::check)?;
    // Any request is also a connection.
    replay("request_head", hyper_peer::check)
}

/// Runs a property on mutations of each file, the same ones each time. `WEIR_FUZZ_ROUNDS` is the
/// number of mutations per file.
fn replay_mutations(target: &str, property: impl Fn(&[u8])) -> io::Result<()> {
    let rounds = std::env::var("WEIR_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let seeds: Vec<Vec<u8>> = files(target)?.iter().map(std::fs::read).collect::<Result<_, _>>()?;
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
    Ok(())
}

/// Runs a property on each file of a corpus; the last name in the output of a failure is its file.
fn replay(target: &str, property: impl Fn(&[u8])) -> io::Result<()> {
    let files = files(target)?;
    assert!(files.len() >= 5, "only {} files for {target}", files.len());
    for file in files {
        eprintln!("{}", file.display());
        property(&std::fs::read(&file)?);
    }
    Ok(())
}

fn files(target: &str) -> io::Result<Vec<PathBuf>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}
