//! Parts that the origin and the proxy share: everything of a server that knows neither what it
//! responds nor to whom it forwards.
//!
//! - [`accept`]: the connections of one core, from its listening sockets and from other cores; it
//!   pauses at a limit, and serves deferred connections when there is room. The server decides
//!   ([`accept::Admission`]).
//! - [`progress`] and [`h2_timers`]: the timers that protect memory and slots from slow and hostile
//!   peers, as decisions without I/O.
//! - [`date`]: the wall clock of a core, and a second in the forms of heads and logs, rendered once.
//! - [`log`]: access logs. Each core fills batches of lines, one thread writes them. A core never
//!   waits: it drops lines and counts them.
//! - [`plain_http`]: the response to plain HTTP on a port for TLS.
//! - [`web_ui`]: small servers of pages for people and scrapers, beside the traffic.
//!
//! Sockets, timers and threads are in `rt`, messages of HTTP in `wire`. Formats of lines, limits and
//! counters stay with each server.

#![forbid(unsafe_code)]

pub mod accept;
pub mod date;
pub mod h2_timers;
pub mod log;
pub mod plain_http;
pub mod progress;
pub mod web_ui;
