//! HTTP/1.1, HTTP/2, WebSocket and event streams, sans-I/O.
//!
//! Bytes in, heads and body ranges out; values in, bytes out. The same parser serves an origin, a
//! proxy and a client, so that each accepts what the others accept. It follows RFC 9110 and RFC
//! 9112 and is strict. It refuses whatever two implementations could interpret differently, with
//! the status of a server's response.
//!
//! There is no socket, no task and no clock in it. With HTTP/1.1 there is no connection either: the
//! caller owns the bytes, calls [`parse_request`] or [`parse_response`] for a head, and passes the
//! following bytes to a [`BodyDecoder`]. [`h2::Connection`] has the state of a connection of HTTP/2.
//!
//! ```
//! use wire::{BodyDecoder, Framing, Limits, Parsed, header_slots, parse_request};
//!
//! let bytes = b"POST /sum HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
//! let limits = Limits::default();
//! let mut slots = header_slots();
//! let Parsed::Complete { head, bytes: used } = parse_request(bytes, &limits, &mut slots)? else {
//!     panic!("the head is complete");
//! };
//! assert_eq!((head.method, head.target, head.framing), ("POST", "/sum", Framing::Length(5)));
//!
//! let rest = &bytes[used..];
//! let mut body = BodyDecoder::new(head.framing, &limits);
//! let step = body.decode(rest)?;
//! assert_eq!((&rest[step.data], step.end), (&b"hello"[..], true));
//! # Ok::<(), wire::Refusal>(())
//! ```
#![forbid(unsafe_code)]

// Files that a fuzz target includes name this crate.
#[cfg(test)]
extern crate self as wire;

mod h1;
pub mod h2;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod proxy_protocol;
pub mod sse;
pub mod websocket;

pub use h1::{
    BodyDecoder, Decoded, Framing, HEADERS_CAP, Header, HeaderSlots, Limits, Parsed, Refusal, RefusalKind,
    RequestHead, RequestKind, ResponseHead, Skipped, Version, connection_options, encode, field_value,
    head_may_be_complete, header_slots, is_hop_by_hop, known_field_value, name_is, parse_request,
    parse_response, salvage_request_line,
};
