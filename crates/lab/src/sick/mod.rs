//! A server with a known illness, for testing verdicts and for experiments: plain blocking threads
//! over the standard library's sockets. It shares no code with the servers that are judged.
//!
//! Not for serving anybody: it knows enough HTTP/1.1 to answer a GET, and nothing more.

mod server;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;

pub use server::{Running, start};

/// What it is ill of. The default is healthy.
#[derive(Clone, Debug, PartialEq)]
pub struct Illness {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Threads that each serve many connections; none: a thread a connection.
    pub threads: Option<usize>,
    /// Processor time in user space for each answer, in nanoseconds.
    pub burn_ns: u64,
    /// System calls for each answer: reads of 64 bytes from /dev/zero.
    pub syscalls: u32,
    /// Processor time for each answer under one lock for all, which is taken four times for it, in
    /// nanoseconds.
    pub lock_ns: u64,
    /// Allocations for each answer, all held at once and then freed.
    pub allocations: u32,
    /// A file that is made at the start, with so many bytes.
    pub data: Option<(PathBuf, u64)>,
    /// Pages of 4 KiB that each answer reads of it, at random.
    pub pages: u32,
    /// A file to which each answer writes a line.
    pub log: Option<PathBuf>,
    /// The line is on the disk before the answer goes (`O_DSYNC`).
    pub log_dsync: bool,
    /// The lines go through a pipe whose other end reads so many bytes per second.
    pub log_pipe_bytes_per_s: Option<u64>,
    /// Head and body in two writes, the second held back by Nagle's algorithm.
    pub split_write: bool,
    /// Length of the listening socket's queue.
    pub backlog: i32,
    /// A pause before each accept.
    pub accept_delay_ns: u64,
    /// A pause before each answer, in which nothing is done.
    pub delay_ns: u64,
    /// Share of the requests that get a 500, 0 to 1.
    pub fail_share: f64,
    /// Share of the requests whose connection is closed without an answer.
    pub drop_share: f64,
    /// Bytes of an answer's body.
    pub body_bytes: usize,
    /// Close the connection after each answer.
    pub close_each: bool,
    /// Leave closing to the client, also when it asks for it.
    pub ignore_close: bool,
}

impl Default for Illness {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            threads: None,
            burn_ns: 0,
            syscalls: 0,
            lock_ns: 0,
            allocations: 0,
            data: None,
            pages: 0,
            log: None,
            log_dsync: false,
            log_pipe_bytes_per_s: None,
            split_write: false,
            backlog: 1024,
            accept_delay_ns: 0,
            delay_ns: 0,
            fail_share: 0.0,
            drop_share: 0.0,
            body_bytes: 100,
            close_each: false,
            ignore_close: false,
        }
    }
}

#[cfg(test)]
mod tests;
