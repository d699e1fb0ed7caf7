//! The origin as its clients see it: real sockets, ports from the kernel.

// Helpers of tests are tests, which the lint cannot see.
#![allow(clippy::unwrap_used)]

mod client;
mod hostile;
mod language;
mod limits;
mod protocol;
mod stop;
mod tally;
