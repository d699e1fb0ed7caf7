//! A server with fault injection, for testing verdicts and for experiments: plain blocking threads
//! over the standard library's sockets. It shares no code with the servers that are judged.
//!
//! It is not for production: it knows enough HTTP/1.1 to respond to a GET, and nothing more.

mod config;
mod faults;
mod server;

pub use config::FaultConfig;
pub use server::{FaultyServer, start};

#[cfg(test)]
mod tests;
