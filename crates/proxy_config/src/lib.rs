//! Configuration of the reverse proxy: its text becomes a [`plan::Plan`].
//!
//! The data path reads plans, and what they are made of: templates, maps, credentials, codecs of text. What outlives a
//! plan is here, too: maps, users and keys, which are read again when their file or URL changes (`http_client`), by
//! threads that `proxy_control` starts. No client's connection is known here, and no core.
#![forbid(unsafe_code)]

#[macro_use]
mod code_table;

pub mod auth;
pub mod bandwidth;
pub mod cache_store;
pub mod config;
pub mod dns_codec;
pub mod field_names;
pub mod http_client;
pub mod key_digest;
pub mod maps;
pub mod percent;
pub mod plan;
pub mod private_file;
pub mod split;
pub mod stored_certificate;
pub mod template;
#[cfg(any(test, feature = "fixtures"))]
pub mod test_time;
pub mod tsig_key_file;
pub mod uri;
