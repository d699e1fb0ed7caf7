//! HTTP/2 (RFC 9113), both ends, sans-I/O: frames, HPACK (RFC 7541), streams and flow control of one
//! connection.
//!
//! ```text
//! bytes received -> Connection::next_event -> Event (heads, data, trailers, resets)
//! send_headers, send_data, reset, ... -> Connection::output -> bytes to write
//! ```
//! The caller owns the socket. It reads into a buffer of at least [`INPUT_BYTES_MIN`] bytes, calls
//! [`Connection::next_event`] until it returns no event, keeps the unused bytes, and writes
//! [`Connection::output`] when it has handled all events of a read: one write for many streams.
//!
//! Everything that RFC 9113 requires of one connection is checked here: the states of streams, the
//! validity of heads (§8.2, §8.3), the agreement of `content-length` and data, windows, limits, and
//! the abuse of control frames (§10.5). A fault of a stream resets the stream and is reported as an
//! event. A fault of the connection is an error: the caller writes the output (which ends in
//! `GOAWAY`) and closes.

mod abuse;
mod block;
mod config;
mod connection;
mod decoder;
mod encoder;
mod event;
mod fault;
mod fields;
mod flow;
mod frame;
mod head;
mod huffman;
mod huffman_codes;
mod peer_state;
mod receive;
mod receive_control;
mod send;
mod send_content;
mod send_repeated;
mod stream_table;
mod streams;
mod table;
pub mod translate;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_faults;
#[cfg(test)]
mod tests_hpack;
#[cfg(test)]
mod tests_memory;

pub use abuse::Counters;
#[doc(hidden)]
pub use block::{BlockReader, BlockWriter};
pub use config::{Config, INPUT_BYTES_MIN, PREFACE, PrefaceMatch, Role, StreamKey, preface_match};
pub use connection::{Connection, OpenError};
pub use encoder::FieldEncoder;
pub use event::{Event, Fields, RequestHead, ResponseHead};
pub use fault::{ErrorCode, FaultKind};
pub use send_repeated::RepeatableHead;
pub use stream_table::{OnStream, StreamTable};
