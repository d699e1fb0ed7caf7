//! The head of a response as the client gets it, and the framing that its body gets.

use wire::{Framing, Header, RequestKind, ResponseHead, Version, encode, is_hop_by_hop};

use super::{Verdict, has_named_fields, is_named_away, judge, sent_value, write_added};
use crate::balance::sticky::Stamp;
use crate::plan::Change;

/// How a response's body is framed for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientFraming {
    /// There is none.
    None,
    /// As the head says it: the bytes as they come.
    Length,
    /// In chunks.
    Chunked,
    /// Up to the end of the connection: HTTP/1.0 has no chunks.
    UntilClose,
}

/// The framing for a client of `version`, of a response that came with `framing`.
pub(crate) fn client_framing(framing: Framing, version: Version) -> ClientFraming {
    match (framing, version) {
        (Framing::None, _) => ClientFraming::None,
        (Framing::Length(_), _) => ClientFraming::Length,
        (Framing::Chunked | Framing::UntilClose, Version::Http11) => ClientFraming::Chunked,
        (Framing::Chunked | Framing::UntilClose, Version::Http10) => ClientFraming::UntilClose,
    }
}

/// Whether the client's connection stays, and in which words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It stays.
    Stays,
    /// It ends after this response.
    Ends,
    /// It becomes something else: 101, or 2xx to CONNECT.
    Switches,
}

/// What of a response's head is decided elsewhere.
#[derive(Clone, Copy)]
pub(crate) struct ResponseParts<'a> {
    /// What the client speaks.
    pub(crate) version: Version,
    /// What it asked for.
    pub(crate) kind: RequestKind,
    pub(crate) framing: ClientFraming,
    pub(crate) persistence: Persistence,
    /// The changes of the route.
    pub(crate) changes: &'a [Change],
    /// What makes the client stick to the server that answered.
    pub(crate) stamp: Option<Stamp<'a>>,
}

/// Writes a response's head for a client.
pub(crate) fn write_response(
    head: &ResponseHead<'_, '_>,
    parts: ResponseParts<'_>,
    out: &mut Vec<u8>,
) {
    let ResponseParts { version, kind, framing, persistence, changes, stamp } = parts;
    write_status_line(head, out);
    let named = has_named_fields(head.headers);
    for header in head.headers {
        if drops(header, framing, kind, head.status)
            || named && is_named_away(head.headers, header.name)
        {
            continue;
        }
        if let Verdict::Keep = judge(changes, header.name, false)
            && !stamp.is_some_and(|stamp| stamp.write_prefixed(header, out))
        {
            encode::field(out, header.name, sent_value(header));
        }
    }
    if let Some(stamp) = stamp {
        stamp.write_inserted(head.headers, out);
    }
    if framing == ClientFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if !changes.is_empty() && !head.informational() {
        write_added(changes, false, out);
    }
    match (persistence, version) {
        (Persistence::Switches, _) => {
            if let Some(protocol) = head.upgrade {
                out.extend_from_slice(b"Connection: upgrade\r\n");
                encode::field(out, "Upgrade", protocol.as_bytes());
            }
        }
        _ if head.informational() => {}
        (Persistence::Ends, Version::Http11) => out.extend_from_slice(b"Connection: close\r\n"),
        (Persistence::Stays, Version::Http10) => {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        (Persistence::Ends, Version::Http10) | (Persistence::Stays, Version::Http11) => {}
    }
    encode::end_of_head(out);
}

/// Always HTTP/1.1, which is what we speak, whatever the server spoke (RFC 9112 §2.3); with the
/// server's own reason phrase.
fn write_status_line(head: &ResponseHead<'_, '_>, out: &mut Vec<u8>) {
    let digit = |unit: u16| b'0' + (head.status / unit % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(head.reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn drops(header: &Header<'_>, framing: ClientFraming, kind: RequestKind, status: u16) -> bool {
    let name = header.name;
    match name.len() {
        // Trailers are passed on in chunks, and so is what announces them.
        7 if name.eq_ignore_ascii_case("trailer") => framing != ClientFraming::Chunked,
        // A length that is not this body's own frames nothing. It stays where HEAD or 304 is why
        // there is no body: it is what GET would say (RFC 9110 §8.6).
        14 if name.eq_ignore_ascii_case("content-length") => match framing {
            ClientFraming::Length => false,
            ClientFraming::None => kind == RequestKind::Connect || status < 200 || status == 204,
            ClientFraming::Chunked | ClientFraming::UntilClose => true,
        },
        _ => is_hop_by_hop(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(
        bytes: &str,
        version: Version,
        kind: RequestKind,
        persistence: Persistence,
    ) -> String {
        let mut slots = wire::header_slots();
        let limits = wire::Limits::default();
        let parsed = wire::parse_response(bytes.as_bytes(), &limits, kind, &mut slots);
        let wire::Parsed::Complete { head, .. } = parsed.unwrap() else { panic!("incomplete") };
        let framing = client_framing(head.framing, version);
        let changes = [
            Change::SetResponseHeader("Server".into(), "weir".into()),
            Change::RemoveResponseHeader("X-Secret".into()),
        ];
        let mut out = Vec::new();
        let stamp = None;
        let changes = &changes;
        let parts = ResponseParts { version, kind, framing, persistence, changes, stamp };
        write_response(&head, parts, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_length_stays_and_hop_by_hop_fields_go() {
        let bytes = "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nConnection: x-mine\r\nX-Mine: 1\r\n\
                     Keep-Alive: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nServer: old\r\nX-Secret: 1\r\n\r\n";
        let text = rewritten(bytes, Version::Http11, RequestKind::Other, Persistence::Stays);
        let wanted = "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
                      Server: weir\r\n\r\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn until_close_becomes_chunks_or_stays_until_close() {
        let bytes = "HTTP/1.0 200 OK\r\n\r\n";
        let new = rewritten(bytes, Version::Http11, RequestKind::Other, Persistence::Stays);
        assert!(new.contains("Transfer-Encoding: chunked\r\n") && !new.contains("Connection"));
        let old = rewritten(bytes, Version::Http10, RequestKind::Other, Persistence::Ends);
        assert!(!old.contains("chunked") && !old.contains("Connection"), "{old}");
    }

    #[test]
    fn the_length_of_what_has_no_body_stays() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let text = rewritten(head, Version::Http10, RequestKind::Head, Persistence::Stays);
        assert!(
            text.contains("Content-Length: 5\r\n") && text.contains("Connection: keep-alive\r\n")
        );
        let none = rewritten(
            "HTTP/1.1 304 N\r\nContent-Length: 5\r\n\r\n",
            Version::Http11,
            RequestKind::Other,
            Persistence::Ends,
        );
        assert!(none.contains("Content-Length: 5\r\n") && none.contains("Connection: close\r\n"));
    }

    #[test]
    fn an_upgrade_says_so_again() {
        let bytes =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let text = rewritten(bytes, Version::Http11, RequestKind::Other, Persistence::Switches);
        assert!(text.contains("Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"), "{text}");
    }
}
