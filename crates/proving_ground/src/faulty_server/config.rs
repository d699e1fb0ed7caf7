//! Faults that a faulty server injects.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Injected faults. The default is healthy.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultConfig {
    pub listen: SocketAddr,
    /// Threads that each serve many connections; `None`: one thread per connection.
    pub threads: Option<usize>,
    /// CPU time in user space for each response, in nanoseconds.
    pub burn_ns: u64,
    /// System calls for each response: reads of 64 bytes from /dev/zero.
    pub syscalls: u32,
    /// CPU time for each response under one global lock, which each response takes four times, in
    /// nanoseconds.
    pub lock_ns: u64,
    /// Allocations for each response, all held at once and then freed.
    pub allocations: u32,
    /// File that is created at the start, with its size in bytes.
    pub data: Option<(PathBuf, u64)>,
    /// Pages of 4 KiB that each response reads from the file, at random.
    pub pages: u32,
    /// File to which each response writes a line.
    pub log: Option<PathBuf>,
    /// True if the line is on the disk before the response is sent (`O_DSYNC`).
    pub log_dsync: bool,
    /// Read rate of a pipe that the lines go through, in bytes per second; `None`: no pipe.
    pub log_pipe_bytes_per_s: Option<u64>,
    /// True to send head and body in two writes, the second delayed by Nagle's algorithm.
    pub split_write: bool,
    /// Length of the accept queue.
    pub backlog: i32,
    /// Pause before each accept, in nanoseconds.
    pub accept_delay_ns: u64,
    /// Idle pause before each response, in nanoseconds.
    pub delay_ns: u64,
    /// Fraction of the requests that get a 500, 0 to 1.
    pub error_fraction: f64,
    /// Fraction of the requests whose connection is closed without a response.
    pub drop_fraction: f64,
    pub body_bytes: usize,
    pub close_after_response: bool,
    /// True to leave closing to the client, also if the client asks the server to close.
    pub ignore_close: bool,
}

impl Default for FaultConfig {
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
            error_fraction: 0.0,
            drop_fraction: 0.0,
            body_bytes: 100,
            close_after_response: false,
            ignore_close: false,
        }
    }
}
