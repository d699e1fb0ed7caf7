//! The cache on disk.
