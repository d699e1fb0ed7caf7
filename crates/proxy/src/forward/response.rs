//! The head of a response as the client gets it, and the framing that its body gets.

use wire::{Framing, Header, RequestKind, ResponseHead, Version, encode, is_hop_by_hop};

use super::{
    FieldAction, field_action, forwarded_value, has_connection_options, is_connection_option,
    write_set_and_added, writes_own_field,
};
use crate::balance::sticky::StickyCookie;
use crate::plan::RouteChange;

/// Name of the field of RFC 6797.
pub(crate) const HSTS_FIELD: &str = "Strict-Transport-Security";

/// Framing of a response's body for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientFraming {
    /// There is no body.
    None,
    /// As in the head: the bytes are forwarded unchanged.
    Length,
    /// In chunks.
    Chunked,
    /// Up to the end of the connection: HTTP/1.0 has no chunks.
    UntilClose,
}

/// Returns the framing for a client of `version`, of a response that came with `framing`.
pub(crate) fn client_framing(framing: Framing, version: Version) -> ClientFraming {
    match (framing, version) {
        (Framing::None, _) => ClientFraming::None,
        (Framing::Length(_), _) => ClientFraming::Length,
        (Framing::Chunked | Framing::UntilClose, Version::Http11) => ClientFraming::Chunked,
        (Framing::Chunked | Framing::UntilClose, Version::Http10) => ClientFraming::UntilClose,
    }
}

/// Persistence of the client's connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It stays open.
    KeepAlive,
    /// It closes after this response.
    Close,
    /// It switches protocols: 101, or 2xx to CONNECT.
    Switch,
}

/// Parts of a response's head that other modules determine.
#[derive(Clone, Copy)]
pub(crate) struct ResponseParts<'a> {
    /// HTTP version of the client.
    pub(crate) version: Version,
    /// Kind of the client's request.
    pub(crate) kind: RequestKind,
    pub(crate) framing: ClientFraming,
    pub(crate) persistence: Persistence,
    /// The changes of the route.
    pub(crate) changes: &'a [RouteChange],
    /// Sticky cookie of the server that responded.
    pub(crate) sticky_cookie: Option<StickyCookie<'a>>,
    /// Value of `Strict-Transport-Security`.
    pub(crate) hsts: Option<&'a str>,
}

/// Writes a response's head for a client.
pub(crate) fn write_response(head: &ResponseHead<'_, '_>, parts: ResponseParts<'_>, out: &mut Vec<u8>) {
    let ResponseParts { version, kind, framing, persistence, changes, sticky_cookie, hsts } = parts;
    let hsts = hsts.filter(|_| !head.is_informational() && writes_own_field(changes, HSTS_FIELD, false));
    write_status_line(head, out);
    let has_options = has_connection_options(head.headers);
    for header in head.headers {
        if is_dropped(header, framing, kind, head.status)
            || has_options && is_connection_option(head.headers, header.name)
            || hsts.is_some() && header.name.eq_ignore_ascii_case(HSTS_FIELD)
        {
            continue;
        }
        if let FieldAction::Keep = field_action(changes, header.name, false)
            && !sticky_cookie.is_some_and(|stamp| stamp.write_with_prefix(header, out))
        {
            encode::field(out, header.name, forwarded_value(header));
        }
    }
    if let Some(sticky_cookie) = sticky_cookie {
        sticky_cookie.write_own_cookie(head.headers, out);
    }
    if let Some(hsts) = hsts {
        encode::field(out, HSTS_FIELD, hsts.as_bytes());
    }
    if framing == ClientFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if !changes.is_empty() && !head.is_informational() {
        write_set_and_added(changes, false, out);
    }
    match (persistence, version) {
        (Persistence::Switch, _) => {
            if let Some(protocol) = head.upgrade {
                out.extend_from_slice(b"Connection: upgrade\r\n");
                encode::field(out, "Upgrade", protocol.as_bytes());
            }
        }
        _ if head.is_informational() => {}
        (Persistence::Close, Version::Http11) => out.extend_from_slice(b"Connection: close\r\n"),
        (Persistence::KeepAlive, Version::Http10) => {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        (Persistence::Close, Version::Http10) | (Persistence::KeepAlive, Version::Http11) => {}
    }
    encode::end_of_head(out);
}

/// Writes the status line. It is always HTTP/1.1, the proxy's version, whatever the server's (RFC
/// 9112 §2.3), with the server's own reason phrase.
fn write_status_line(head: &ResponseHead<'_, '_>, out: &mut Vec<u8>) {
    let digit = |unit: u16| b'0' + (head.status / unit % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(head.reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn is_dropped(header: &Header<'_>, framing: ClientFraming, kind: RequestKind, status: u16) -> bool {
    let name = header.name;
    match name.len() {
        // Trailers are forwarded in chunks, and so is their announcement.
        7 if name.eq_ignore_ascii_case("trailer") => framing != ClientFraming::Chunked,
        // A length of another body than this one frames nothing. It stays if HEAD or 304 is the
        // reason for the missing body: it is the length for GET (RFC 9110 §8.6).
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

    fn rewrite(bytes: &str, version: Version, kind: RequestKind, persistence: Persistence) -> String {
        let mut slots = wire::header_slots();
        let limits = wire::Limits::default();
        let parsed = wire::parse_response(bytes.as_bytes(), &limits, kind, &mut slots);
        let wire::Parsed::Complete { head, .. } = parsed.unwrap() else { panic!("incomplete") };
        let framing = client_framing(head.framing, version);
        let changes = [
            RouteChange::SetResponseHeader("Server".into(), "weir".into()),
            RouteChange::RemoveResponseHeader("X-Secret".into()),
        ];
        let mut out = Vec::new();
        let sticky_cookie = None;
        let changes = &changes;
        let parts = ResponseParts { version, kind, framing, persistence, changes, sticky_cookie, hsts: None };
        write_response(&head, parts, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_length_stays_and_hop_by_hop_fields_go() {
        let bytes = "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nConnection: x-mine\r\nX-Mine: 1\r\n\
                     Keep-Alive: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nServer: old\r\nX-Secret: 1\r\n\r\n";
        let text = rewrite(bytes, Version::Http11, RequestKind::Other, Persistence::KeepAlive);
        let expected = "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
                      Server: weir\r\n\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn until_close_becomes_chunks_or_stays_until_close() {
        let bytes = "HTTP/1.0 200 OK\r\n\r\n";
        let new = rewrite(bytes, Version::Http11, RequestKind::Other, Persistence::KeepAlive);
        assert!(new.contains("Transfer-Encoding: chunked\r\n") && !new.contains("Connection"));
        let old = rewrite(bytes, Version::Http10, RequestKind::Other, Persistence::Close);
        assert!(!old.contains("chunked") && !old.contains("Connection"), "{old}");
    }

    #[test]
    fn the_length_of_a_missing_body_is_kept() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let text = rewrite(head, Version::Http10, RequestKind::Head, Persistence::KeepAlive);
        assert!(text.contains("Content-Length: 5\r\n") && text.contains("Connection: keep-alive\r\n"));
        let not_modified = rewrite(
            "HTTP/1.1 304 N\r\nContent-Length: 5\r\n\r\n",
            Version::Http11,
            RequestKind::Other,
            Persistence::Close,
        );
        assert!(
            not_modified.contains("Content-Length: 5\r\n") && not_modified.contains("Connection: close\r\n")
        );
    }

    #[test]
    fn an_upgrade_says_so_again() {
        let bytes = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let text = rewrite(bytes, Version::Http11, RequestKind::Other, Persistence::Switch);
        assert!(text.contains("Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"), "{text}");
    }
}
