//! The head of a response as the client gets it, and the framing that its body gets.

use wire::{Framing, Header, RequestKind, ResponseHead, Version, encode, is_hop_by_hop};

use super::line_writer::LineWriter;
use super::{FieldAction, field_action, write_set_and_added, writes_own_field};
use crate::balance::sticky::StickyCookie;
use crate::field_names::is_connection_option;
use crate::plan::RouteChange;
use crate::template::Values;

/// Name of the field of RFC 6797.
pub(crate) const HSTS_FIELD: &str = "Strict-Transport-Security";

/// Framing of a response's body for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientFraming {
    None,
    /// As in the head: the bytes are forwarded unchanged.
    Length,
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
    pub(crate) version: Version,
    pub(crate) kind: RequestKind,
    pub(crate) framing: ClientFraming,
    pub(crate) persistence: Persistence,
    pub(crate) changes: &'a [RouteChange],
    /// Values for the texts of the changes; `None`: they are all literal.
    pub(crate) values: Option<&'a dyn Values>,
    pub(crate) sticky_cookie: Option<StickyCookie<'a>>,
    /// Value of `Strict-Transport-Security`.
    pub(crate) hsts: Option<&'a str>,
}

pub(crate) fn write_response(head: &ResponseHead<'_, '_>, parts: ResponseParts<'_>, out: &mut Vec<u8>) {
    let ResponseParts { version, kind, framing, persistence, changes, values, sticky_cookie, hsts } = parts;
    let hsts = hsts.filter(|_| !head.is_informational() && writes_own_field(changes, HSTS_FIELD, false));
    let mut lines = LineWriter::new(head.received);
    write_status_line(head, &mut lines, out);
    for header in head.headers {
        if is_dropped(header, framing, kind, head.status)
            || head.has_connection_options && is_connection_option(head.headers, header.name)
            || hsts.is_some() && header.name.eq_ignore_ascii_case(HSTS_FIELD)
        {
            continue;
        }
        if let FieldAction::Drop = field_action(changes, header.name, false) {
            continue;
        }
        if let Some(stamp) = sticky_cookie.filter(|stamp| stamp.prefixes(header)) {
            lines.flush(out);
            stamp.write_with_prefix(header, out);
        } else {
            lines.write(header, out);
        }
    }
    lines.flush(out);
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
        write_set_and_added(changes, false, values, out);
    }
    match (persistence, version) {
        (Persistence::Switch, _) => {
            if let Some(protocol) = head.upgrade {
                out.extend_from_slice(b"Connection: upgrade\r\n");
                encode::field(out, "Upgrade", protocol.as_bytes());
            }
        }
        _ if head.is_informational() => {}
        // The server announces protocols, such as with 426 (RFC 9110 §7.8 and §15.5.22).
        (_, Version::Http11) if head.upgrade.is_some() => write_upgrade_offer(head.headers, persistence, out),
        (Persistence::Close, Version::Http11) => out.extend_from_slice(b"Connection: close\r\n"),
        (Persistence::KeepAlive, Version::Http10) => {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        (Persistence::Close, Version::Http10) | (Persistence::KeepAlive, Version::Http11) => {}
    }
    encode::end_of_head(out);
}

/// Writes the protocols to which the server would upgrade, and the connection options. HTTP/2 is left out, because the
/// proxy forwards no request to upgrade to it.
fn write_upgrade_offer(headers: &[Header<'_>], persistence: Persistence, out: &mut Vec<u8>) {
    let start = out.len();
    let options: &[u8] = match persistence {
        Persistence::Close => b"Connection: upgrade, close\r\nUpgrade",
        Persistence::KeepAlive | Persistence::Switch => b"Connection: upgrade\r\nUpgrade",
    };
    out.extend_from_slice(options);
    let values = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("upgrade"));
    let protocols =
        values.flat_map(|header| header.value.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    let is_offered = |protocol: &&[u8]| {
        let is_http2 = protocol.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"h2"));
        !protocol.is_empty() && !is_http2
    };
    let mut separator: &[u8] = b": ";
    for protocol in protocols.filter(is_offered) {
        out.extend_from_slice(separator);
        out.extend_from_slice(protocol);
        separator = b", ";
    }
    if separator == b", " {
        out.extend_from_slice(b"\r\n");
        return;
    }
    out.truncate(start);
    if persistence == Persistence::Close {
        out.extend_from_slice(b"Connection: close\r\n");
    }
}

/// Writes the status line. It is always HTTP/1.1, the proxy's version, whatever the server's (RFC
/// 9112 §2.3), with the server's own reason phrase.
fn write_status_line(head: &ResponseHead<'_, '_>, lines: &mut LineWriter<'_>, out: &mut Vec<u8>) {
    let digit = |unit: u16| b'0' + (head.status / unit % 10) as u8;
    let mut start = *b"HTTP/1.1 000 ";
    start[9..12].copy_from_slice(&[digit(100), digit(10), digit(1)]);
    // Mostly it was received so.
    let received = head.received.get(..start.len()).filter(|received| *received == start);
    lines.write_line(received.unwrap_or(&start), b"", head.reason.as_bytes(), b"\r\n", out);
}

fn is_dropped(header: &Header<'_>, framing: ClientFraming, kind: RequestKind, status: u16) -> bool {
    let name = header.name;
    match name.len() {
        // Trailers are forwarded in chunks, and so is their announcement.
        7 if wire::name_is(name, b"trailer") => framing != ClientFraming::Chunked,
        // A length of another body than this one frames nothing. It stays if HEAD or 304 is the
        // reason for the missing body: it is the length for GET (RFC 9110 §8.6).
        14 if wire::name_is(name, b"content-length") => match framing {
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
        let parts = ResponseParts {
            version,
            kind,
            framing,
            persistence,
            changes,
            values: None,
            sticky_cookie,
            hsts: None,
        };
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
    fn an_offer_of_protocols_is_kept_without_http2() {
        let answer = |status: &str, fields: &str, version, persistence| {
            let bytes = format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: 0\r\n\r\n");
            let text = rewrite(&bytes, version, RequestKind::Other, persistence);
            text.split_once("Server: weir\r\n").unwrap().1.trim_end().to_owned()
        };
        use Persistence::{Close, KeepAlive};
        let websocket = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
        let kept = "Connection: upgrade\r\nUpgrade: websocket";
        for status in ["426", "200", "404"] {
            assert_eq!(answer(status, websocket, Version::Http11, KeepAlive), kept);
        }
        let closing = "Connection: upgrade, close\r\nUpgrade: websocket";
        assert_eq!(answer("426", websocket, Version::Http11, Close), closing);
        let lists = "Connection: close, upgrade\r\nUpgrade: h2c,TLS/1.0 \r\nupgrade: H2, IRC/6.9\r\n";
        let both = "Connection: upgrade\r\nUpgrade: TLS/1.0, IRC/6.9";
        assert_eq!(answer("426", lists, Version::Http11, KeepAlive), both);
        // Decoys: only HTTP/2, without the option, and for HTTP/1.0.
        let http2 = "Upgrade: h2,h2c\r\nConnection: Upgrade\r\n";
        assert_eq!(answer("200", http2, Version::Http11, KeepAlive), "");
        assert_eq!(answer("200", http2, Version::Http11, Close), "Connection: close");
        assert_eq!(answer("426", "Upgrade: websocket\r\n", Version::Http11, KeepAlive), "");
        assert_eq!(answer("426", websocket, Version::Http10, Close), "");
    }

    #[test]
    fn an_upgrade_says_so_again() {
        let bytes = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let text = rewrite(bytes, Version::Http11, RequestKind::Other, Persistence::Switch);
        assert!(text.contains("Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"), "{text}");
    }
}
