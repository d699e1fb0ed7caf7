//! Settings of the files of one place, for an origin or a route.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::auth::Credentials;
use crate::compress::CompressionLevels;
use crate::etag::EtagSource;

/// Name of the file that stands for its directory.
pub const INDEX_DEFAULT: &str = "index.html";
/// Minimum size of a file that is compressed on the fly: 1 KiB.
pub const COMPRESS_BYTES_MIN: u64 = 1024;
/// Memory of the encoders of a thread: 32 MiB.
pub const COMPRESS_MEMORY_BYTES: u64 = 32 << 20;
/// Number of lookups that a thread keeps: 1,024.
pub const CACHE_ENTRIES: usize = 1024;
/// Time for which a lookup is valid: 1 s.
pub const CACHE_VALID_NS: u64 = 1_000_000_000;

/// Settings of the files of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesPlan {
    pub source: FilesSource,
    pub index: Vec<String>,
    pub lists: bool,
    pub is_spa: bool,
    pub serves_hidden: bool,
    pub follows_symlinks: bool,
    /// Fields of every response, as lines.
    pub fields: Vec<u8>,
    pub cache_control: Vec<u8>,
    pub cors: Vec<String>,
    pub credentials: Credentials,
    pub compression: CompressionLevels,
    pub compress_bytes_min: u64,
    pub compress_memory_bytes: u64,
    pub etags: EtagSource,
    pub uses_precompressed: bool,
    pub cache_entries: usize,
    pub cache_valid_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesSource {
    /// Absolute path of a directory as it was given, with its links.
    Directory(PathBuf),
    /// One file, at `/` and at its name: its absolute path as it was given.
    File {
        path: PathBuf,
        name: String,
    },
    Memory(MemorySource),
}

/// Standard input, read completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySource {
    pub content: Arc<[u8]>,
    pub etag: String,
    pub content_type: &'static str,
    pub modified_s: u64,
}

impl FilesPlan {
    /// Creates the settings of a place with their defaults.
    pub fn new(source: FilesSource) -> Self {
        Self {
            source,
            index: vec![INDEX_DEFAULT.to_owned()],
            lists: false,
            is_spa: false,
            serves_hidden: false,
            follows_symlinks: true,
            fields: Vec::new(),
            cache_control: Vec::new(),
            cors: Vec::new(),
            credentials: Credentials::default(),
            compression: CompressionLevels::default(),
            compress_bytes_min: COMPRESS_BYTES_MIN,
            compress_memory_bytes: COMPRESS_MEMORY_BYTES,
            etags: EtagSource::default(),
            uses_precompressed: true,
            cache_entries: CACHE_ENTRIES,
            cache_valid_ns: CACHE_VALID_NS,
        }
    }

    /// Returns the directory in which paths are resolved; `None`: the content is in memory.
    pub fn root(&self) -> Option<&Path> {
        match &self.source {
            FilesSource::Directory(directory) => Some(directory),
            FilesSource::File { path, .. } => path.parent(),
            FilesSource::Memory(_) => None,
        }
    }
}
