//! State of a file, by which a change of its content is noticed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rt::clock::SECOND_NS;

/// Interval between two checks of a file. A change is read at the second check that finds the same state.
pub const POLL_INTERVAL_NS: u64 = SECOND_NS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// Missing, or not accessible.
    Missing,
    File {
        device: u64,
        inode: u64,
        bytes: u64,
        /// Times of the last changes of the content and of the inode, in seconds and nanoseconds.
        changed: [(i64, i64); 2],
    },
}

impl FileState {
    /// Returns the state of a file, with symbolic links followed.
    pub fn read(path: &Path) -> Self {
        fs::metadata(path).map_or(Self::Missing, |metadata| Self::File {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: [(metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec())],
        })
    }
}
