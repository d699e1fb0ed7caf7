//! Replays the corpora of the fuzz targets, so that a case found once stays fixed.

use std::io;
use std::path::Path;

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
fn differential() -> io::Result<()> {
    replay("differential", hyper_peer::check)?;
    // Any request is also a connection.
    replay("request_head", hyper_peer::check)
}

/// Runs a property on each file of a corpus; the last name in the output of a failure is its file.
fn replay(target: &str, property: impl Fn(&[u8])) -> io::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        files.push(entry?.path());
    }
    files.sort();
    assert!(files.len() >= 5, "only {} files for {target}", files.len());
    for file in files {
        eprintln!("{}", file.display());
        property(&std::fs::read(&file)?);
    }
    Ok(())
}
