//! Files of a directory as responses: `weir serve DIR`.
//!
//! ```text
//! request -> path -> lookup (cache, openat2) -> representation -> preconditions -> ranges -> response
//! ```
//! Paths, preconditions, ranges and codings are decided without I/O; [`root`] and [`open_file`] open files,
//! [`respond`] puts the parts together, and [`body`] has the content for both versions of HTTP.

mod auth;
mod body;
mod cache;
mod check;
mod codings;
mod compress;
mod conditions;
mod etag;
mod file_identity;
mod followed_root;
mod listing;
mod media_types;
mod memory_budget;
mod open_file;
pub(crate) mod plan;
mod ranges;
mod request;
mod respond;
mod root;
mod site;
mod tagging;
mod target;

pub(crate) use body::{FileBody, Prepared, SLICE_BYTES};
pub(crate) use ranges::ByteRange;
pub(crate) use request::{FileRequest, RequestTime};
pub(crate) use respond::{FileResponse, respond};
pub(crate) use site::FileSite;
