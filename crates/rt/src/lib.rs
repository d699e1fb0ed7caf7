//! Runtime base of `serve`, `load` and the proxy: one tokio `current_thread` runtime per core and
//! its facilities (sockets, timers, deadlines, buffers, shutdown).
//!
//! It handles bytes, times and descriptors. It knows no HTTP, and it sets no policy: it reports
//! limits, and the caller decides.

#![deny(unsafe_code)]

pub mod accept;
pub mod address;
pub mod append_file;
mod async_fd;
pub mod buffers;
pub mod byte_channel;
pub mod child_process;
pub mod clock;
pub mod conn_balancer;
pub mod conn_limit;
pub mod core_senders;
pub mod cores;
pub mod deadlines;
pub mod dial;
pub mod drain;
pub mod fd_channel;
pub mod fd_stream;
pub mod file;
pub mod file_memory;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod hang_up;
pub mod limits;
pub mod listen;
pub mod machine;
pub mod memory;
pub mod namespace;
pub mod notify;
pub mod privileges;
pub mod process_stats;
mod receive_timestamps;
mod slab;
pub mod socket;
pub mod splice;
pub mod stream;
pub mod timers;
pub mod tls;
pub mod unix_socket;
pub mod user_tcp;

/// TCP in user space, which [`user_tcp`] drives.
pub use xdp;

/// The async runtime's own task and channel types, so that engines name one runtime.
pub use tokio;
