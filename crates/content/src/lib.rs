//! Content of responses, for the origin and the proxy: files of a directory, and codings.
//!
//! ```text
//! request -> path -> lookup (cache, openat2) -> representation -> preconditions -> ranges -> response
//! ```
//! Paths, preconditions, ranges and codings are decided without I/O; [`root`] and [`open_file`] open files,
//! [`respond`] puts the parts together, and [`body`] has the content for both versions of HTTP.
//!
//! It sends nothing, and reads no config: a [`plan::FilesPlan`] comes from its user.

#![forbid(unsafe_code)]

pub mod auth;
pub mod body;
mod cache;
pub mod codings;
pub mod compress;
pub mod conditions;
pub mod decompress;
pub mod etag;
mod file_identity;
mod followed_root;
pub mod listing;
pub mod media_types;
pub mod memory_budget;
pub mod open_file;
pub mod plan;
pub mod ranges;
pub mod request;
pub mod respond;
pub mod root;
pub mod site;
pub mod tagging;
mod target;
