//! HTTP/2 of the proxy. One stream is served as one exchange, exactly as a request of HTTP/1.1: its
//! messages pass in the form of HTTP/1.1 through a channel in memory.

pub(crate) mod back;
pub(crate) mod front;
mod websocket;
