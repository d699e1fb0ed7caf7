//! Configuration of the reverse proxy: its text becomes a [`plan::Plan`].
//!
//! Here is what no request needs: keys and their values, messages, schema, and the files that only the control plane
//! reads, with its codecs of DNS. Plans and what requests evaluate of them are the crate `proxy_plan`.
#![forbid(unsafe_code)]

pub mod config;
pub mod dns_codec;
pub mod private_file;
pub mod tsig_key_file;

use proxy_plan::{auth, cache_store, field_names, key_digest, maps, percent, plan, split, template, uri};
