//! Tests of the origin from the side of its clients: real sockets, ports from the kernel.

// Helpers of tests are tests, which the lint cannot recognise.
#![allow(clippy::unwrap_used)]

mod client;
mod counters;
mod hostile;
mod http2;
mod http2_client;
mod http2_hostile;
mod limits;
mod protocol;
mod stop;
mod url_options;
