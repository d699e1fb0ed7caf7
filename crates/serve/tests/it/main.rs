//! The origin as its clients see it: real sockets, ports from the kernel.

mod client;
mod hostile;
mod language;
mod limits;
mod protocol;
mod stop;
mod tally;
