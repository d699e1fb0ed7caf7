//! The flags of HTTP versions of the commands that generate load.

use load::plan::HttpFlags;

use super::{CommandArgs, Flag, command_flags, flag, switch};

pub(super) const HTTP: Flag =
    flag("http", "1.1|2").default("1.1").values(&["2", "1.1"], &["3", "1.0", "h2"]).doc(
        "Version of HTTP; 2: with https the server must choose it (ALPN h2), with http it is \
         spoken from the first byte (prior knowledge)",
    );
pub(super) const STREAMS: Flag =
    flag("streams", "N").short('m').default("1").values(&["1", "32", "10k"], &["0", "10001", "x"]).doc(
        "Number of concurrent streams of each HTTP/2 connection, up to 10,000; each carries one \
         request at a time, like a connection of HTTP/1.1. A lower limit of the server applies, \
         and makes the result suspect (streams_limited)",
    );
pub(super) const WINDOW: Flag =
    flag("window", "SIZE").default("1 GiB").values(&["64k", "1"], &["0", "2G", "x"]).doc(
        "Receive window of each HTTP/2 stream, 1 byte to 2 GiB - 1; a smaller one limits a \
         response to the window per round trip",
    );
pub(super) const CONNECTION_WINDOW: Flag = flag("connection-window", "SIZE")
    .default("1 GiB")
    .values(&["64k", "1m"], &["1k", "2G", "x"])
    .doc("Receive window of each HTTP/2 connection, 65,535 bytes to 2 GiB - 1");
pub(super) const MIX: Flag =
    flag("mix", "VERSION=WEIGHT,...").values(&["1.1=70,2=30", "2=1"], &["x", "3=1", "2=0"]).doc(
        "Share of the connections per version of HTTP, evenly distributed, such as 1.1=70,2=30; \
         replaces --http",
    );
pub(super) const GRPC: Flag = switch("grpc").doc(
    "Send gRPC calls: the body is one message, and a response is good if its status is 200, its \
     grpc-status 0 and its messages are complete and at least one, and a compressed one has its \
     grpc-encoding; others are errors of kind grpc_status or parse; needs --http 2",
);

pub(super) fn http_flags(args: CommandArgs<'_>) -> HttpFlags {
    HttpFlags {
        http: args.text("http"),
        mix: args.text("mix"),
        streams: args.text("streams"),
        window: args.text("window"),
        connection_window: args.text("connection-window"),
        grpc: args.is_set("grpc"),
    }
}

command_flags! {
    /// Version of HTTP, and the streams of its connections.
    pub(crate) struct HttpVersionFlags {
        http: Option<String> = HTTP.text(),
        streams: Option<String> = STREAMS.text(),
    }
}

impl HttpVersionFlags {
    pub(super) fn texts(&self) -> HttpFlags {
        HttpFlags { http: self.http.clone(), streams: self.streams.clone(), ..HttpFlags::default() }
    }
}
