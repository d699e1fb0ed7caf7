//! Messages of DNS (RFC 1035): queries, answers, dynamic updates (RFC 2136), and their signatures (RFC 8945).
//!
//! The codec is our own rather than a library's: three record types suffice.

pub mod message;
pub mod tsig;
pub mod update;
