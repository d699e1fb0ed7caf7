//! Plans of the reverse proxy ([`plan::Plan`]), and what they are made of: templates, maps, credentials, texts of URIs.
//!
//! The data path evaluates them for each request, so this crate is compiled for speed; the crate `proxy_config` makes plans
//! of text. What outlives a plan is here, too: maps, users and keys, which are read again when their file or URL changes
//! (`http_client`), by threads that `proxy_control` starts. No client's connection is known here, and no core.
#![forbid(unsafe_code)]

#[macro_use]
mod code_table;

pub mod auth;
pub mod bandwidth;
pub mod cache_store;
pub mod field_names;
pub mod http_client;
pub mod key_digest;
pub mod maps;
pub mod percent;
pub mod plan;
pub mod split;
pub mod stored_certificate;
pub mod template;
#[cfg(any(test, feature = "fixtures"))]
pub mod test_time;
pub mod uri;
