//! A bounded byte stream in both directions between two tasks of one core, with the interface of a
//! socket: [`Stream::Channel`](crate::stream::Stream::Channel). An engine that serves a connection
//! serves one stream of a multiplexed connection through it.
