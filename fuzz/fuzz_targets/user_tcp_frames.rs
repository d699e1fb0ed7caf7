//! See `xdp::fuzzing::receive_frames`.
#![no_main]

weir_fuzz::target!("user_tcp_frames", xdp::fuzzing::receive_frames);
