//! Decoders as the product calls them, without checks: for measurements of their cost. Each input arrives
//! at once, and then byte by byte, because a decoder that begins again at each byte takes time that grows
//! with the square of the input.

use crate::h2::{BlockReader, Config, Connection, Event, PREFACE, Role, StreamKey};
use crate::proxy_protocol::{self, HEADER_BYTES_MAX, ParsedHeader};
use crate::sse::EventStreamReader;
use crate::websocket::{MessageReader, Role as WebSocketRole};
use crate::{
    BodyDecoder, Framing, Limits, Parsed, RequestKind, head_may_be_complete, header_slots, parse_request,
    parse_response,
};

/// Lengths of the pieces in which an input arrives.
const PIECES: [usize; 2] = [usize::MAX, 1];

pub fn request_head(bytes: &[u8]) {
    let limits = Limits::default();
    read_head(bytes, &limits, |received| {
        let mut slots = header_slots();
        matches!(parse_request(received, &limits, &mut slots), Ok(Parsed::Incomplete))
    });
}

pub fn response_head(bytes: &[u8]) {
    let limits = Limits::default();
    read_head(bytes, &limits, |received| {
        let mut slots = header_slots();
        matches!(parse_response(received, &limits, RequestKind::Other, &mut slots), Ok(Parsed::Incomplete))
    });
}

/// Parses a head until it is complete, as described for [`head_may_be_complete`].
fn read_head(bytes: &[u8], limits: &Limits, is_incomplete: impl Fn(&[u8]) -> bool) {
    for piece_bytes in PIECES {
        let mut end = 0;
        while end < bytes.len() {
            let start = end;
            end = end.saturating_add(piece_bytes).min(bytes.len());
            let is_long = end >= limits.head_bytes_max;
            let is_worth_parsing = start == 0 || is_long || head_may_be_complete(&bytes[start..end]);
            if is_worth_parsing && !is_incomplete(&bytes[..end]) {
                break;
            }
        }
    }
}

/// Decodes a chunked body with its extensions and trailers.
pub fn chunked_body(bytes: &[u8]) {
    for piece_bytes in PIECES {
        let mut decoder = BodyDecoder::new(Framing::Chunked, &Limits::default());
        for mut piece in bytes.chunks(piece_bytes) {
            while !piece.is_empty() && !decoder.is_done() {
                let Ok(step) = decoder.decode(piece) else { return };
                piece = &piece[step.consumed..];
            }
        }
    }
}

pub fn proxy_header(bytes: &[u8]) {
    for piece_bytes in PIECES {
        let mut end = 0;
        while end < bytes.len().min(HEADER_BYTES_MAX) {
            end = end.saturating_add(piece_bytes).min(bytes.len());
            if proxy_protocol::parse(&bytes[..end]) != ParsedHeader::Incomplete {
                break;
            }
        }
    }
}

/// Decodes the frames of a client, and responds to each request.
pub fn h2_server(bytes: &[u8]) {
    run_connection(Role::Server, bytes);
}

/// Decodes the frames of a server, which responds to some requests.
pub fn h2_client(bytes: &[u8]) {
    run_connection(Role::Client, bytes);
}

/// Decodes field blocks; the first byte of each is its length.
pub fn hpack(bytes: &[u8]) {
    let mut decoder = BlockReader::new();
    let mut rest = bytes;
    while let [len, after @ ..] = rest {
        let (block, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        if decoder.read(block).is_err() {
            return;
        }
    }
}

fn run_connection(role: Role, bytes: &[u8]) {
    // The first byte is the seed of the target that checks properties.
    let bytes = bytes.get(1..).unwrap_or_default();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let preface: &[u8] = if role == Role::Server { PREFACE } else { &[] };
    let input = [preface, &settings, bytes].concat();
    for piece_bytes in PIECES {
        let mut connection = Connection::new(role, &Config::default());
        for _ in 0..if role == Role::Client { 3 } else { 0 } {
            // A new connection has free streams.
            let Ok(stream) = connection.open_stream() else { return };
            connection.send_headers(stream, true, |head| {
                head.request("GET", Some("http"), Some("a.example"), Some("/"));
            });
        }
        let (mut start, mut end) = (0, 0);
        while end < input.len() {
            end = end.saturating_add(piece_bytes).min(input.len());
            while let Ok((used, event)) = connection.next_event(&input[start..end]) {
                start += used;
                let Some(event) = event else { break };
                let reaction = Reaction::of(role, &event);
                reaction.apply(&mut connection);
            }
            connection.output().clear();
        }
    }
}

/// Reaction to an event that a server or a client has to make.
enum Reaction {
    Respond(StreamKey),
    Consume(StreamKey, usize),
    None,
}

impl Reaction {
    fn of(role: Role, event: &Event<'_>) -> Self {
        match event {
            Event::Request { stream, .. } | Event::RejectedRequest { stream, .. } if role == Role::Server => {
                Self::Respond(*stream)
            }
            Event::Data { stream, bytes, .. } => Self::Consume(*stream, bytes.len()),
            _ => Self::None,
        }
    }

    fn apply(self, connection: &mut Connection) {
        match self {
            Self::Respond(stream) => {
                connection.send_headers(stream, true, |head| head.status(200));
            }
            Self::Consume(stream, bytes) => connection.consume(stream, bytes),
            Self::None => {}
        }
    }
}

/// Decodes the frames of a WebSocket, of a server and of a client.
pub fn websocket(bytes: &[u8]) {
    for (role, piece_bytes) in [
        (WebSocketRole::Client, PIECES[0]),
        (WebSocketRole::Server, PIECES[0]),
        (WebSocketRole::Client, PIECES[1]),
    ] {
        let mut reader = MessageReader::new(role, 1 << 20);
        for mut piece in bytes.chunks(piece_bytes) {
            while let Ok(Some(_)) = reader.read(&mut piece) {}
        }
    }
}

pub fn event_stream(bytes: &[u8]) {
    for piece_bytes in PIECES {
        let mut reader = EventStreamReader::new(1 << 20);
        for mut piece in bytes.chunks(piece_bytes) {
            while let Ok(Some(_)) = reader.read(&mut piece) {}
        }
    }
}
