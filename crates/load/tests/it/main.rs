//! Loads over real sockets, against servers that are scripted frame by frame.

#![allow(clippy::unwrap_used, reason = "a test gives up where it cannot go on")]

mod frame_server;
mod http2;
mod http2_faults;
mod live;
mod live_http2;
mod pipeline;
