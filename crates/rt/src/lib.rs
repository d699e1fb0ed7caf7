//! The ground that `serve`, `load` and the proxy stand on: one tokio `current_thread` runtime per
//! core and what a core needs (sockets, timers, deadlines, buffers, shutdown).
//!
//! It knows bytes, times and descriptors. It does not know HTTP, and it decides no policy: what to
//! do at a limit is for the caller, who is told about it.

#![deny(unsafe_code)]

pub mod address;
pub mod board;
pub mod buffers;
pub mod clock;
pub mod cores;
pub mod deadlines;
pub mod dial;
pub mod drain;
pub mod few;
pub mod handover;
pub mod limits;
pub mod listen;
pub mod local;
pub mod machine;
pub mod mail;
pub mod namespace;
pub mod notify;
pub mod privileges;
pub mod process_stats;
pub mod room;
mod slots;
pub mod splice;
pub mod stream;
pub mod timers;
mod watched;

/// The async runtime's own task and channel types, so that engines name one runtime.
pub use tokio;
