//! Loads over real sockets, against servers that are scripted frame by frame.

mod frame_server;
mod http2;
mod http2_faults;
