//! A cache of HTTP responses that all cores share: the policy of RFC 9111, RFC 5861 and RFC 9213, and a store in memory
//! and on disk.
//!
//! ```text
//! request  -> RequestPolicy -> Cache::look_up -> Storable::freshness -> answer | validate | go to the server
//! response -> decide_storing -> Fill::store_head, push, finish -> memory -> disk
//! ```
//! The policy is pure: heads and times in, decisions out. The store has locks that are held for a look-up in a table,
//! and threads of its own for the disk. Requests wait with a [`std::task::Waker`].
//!
//! It sends nothing, reads no config, and knows no connection.

#![forbid(unsafe_code)]

mod body;
mod chunk;
mod conditional;
mod date;
mod directives;
mod disk;
mod file_body;
mod fill;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod head;
mod invalidation;
mod key;
mod memory;
mod object;
mod policy;
mod request;
mod rules;
mod shard;
mod stats;
mod storable;
mod store;
mod store_disk;
mod targeted;
mod time;
mod variant;

#[cfg(test)]
mod tests;

pub use body::{Body, BodyReader};
pub use chunk::Chunk;
pub use conditional::{StoredAnswer, answer, validation_fields};
pub use disk::DiskPlan;
pub use disk::reading::DiskOpen;
pub use file_body::BodyError;
pub use fill::{Fill, FillResult, FillWaiter};
pub use head::StoredHead;
pub use invalidation::{invalidated_targets, invalidates};
pub use key::{KEY_BYTES_MAX, Key};
pub use object::Object;
pub use policy::{NotStored, ResponseTimes, decide_storing};
pub use request::{CacheMethod, MaxStale, RequestPolicy};
pub use rules::{CacheRules, DefaultLifetime, Heuristic};
pub use stats::{CacheStats, DiskStats, ObjectSummary};
pub use storable::{Freshness, Storable};
pub use store::{BeginFill, Cache, CacheError, CachePlan, Lookup};
pub use time::UnixTime;
