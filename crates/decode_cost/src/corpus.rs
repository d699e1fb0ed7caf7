//! Corpora of the fuzz targets, in the order of the names of their files.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Returns the files of a corpus.
///
/// # Panics
/// It cannot be read.
#[must_use]
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = read_files(&directory);
    assert!(files.is_ok(), "{}: {files:?}", directory.display());
    files.unwrap_or_default()
}

fn read_files(directory: &Path) -> io::Result<Vec<Vec<u8>>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
    let mut names: Vec<PathBuf> = names.collect::<io::Result<_>>()?;
    names.sort();
    names.iter().map(fs::read).collect()
}

/// Checks that a corpus has seeds that reach the inside of their decoder: two valid ones, of three.
///
/// # Panics
/// It has not.
pub fn check_valid_seeds(target: &str, is_valid: fn(&[u8]) -> bool) {
    let seeds = corpus(target);
    let count = seeds.iter().filter(|seed| is_valid(seed)).count();
    assert!(count >= 2 && seeds.len() >= 3, "{target}: {count} of {}", seeds.len());
}
