//! The head of a request as the server gets it.

use std::borrow::Cow;
use std::io::Write as _;
use std::net::IpAddr;

use wire::{Framing, Header, RequestHead, encode, is_hop_by_hop};

use super::{
    Verdict, has_named_fields, has_underscore, is_identity, is_named_away, is_ours, judge,
    sent_value, write_added,
};
use crate::balance::sticky::{is_cookie, write_cookie_field};
use crate::dotted::Dotted;
use crate::plan::{Change, Forwarding, StickyPlan, Underscores};

/// Where a request came from, and how far its own word on that is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// The client's address; `None`: a unix socket.
    pub(crate) client: Option<IpAddr>,
    /// Whether the forwarding fields that came with it are believed.
    pub(crate) trusted: bool,
    /// What is to be told.
    pub(crate) forwarding: &'a Forwarding,
    /// The id to give it, when it has none that is believed.
    pub(crate) fresh_id: &'a [u8],
}

/// What of a request's head is decided elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestParts<'a> {
    /// The target in the form that servers get (see [`origin_form`]), rewritten if a route says so.
    pub(crate) target: &'a [u8],
    /// The `Host` of a request that has none, which HTTP/1.0 allows.
    pub(crate) default_host: &'a str,
    /// The changes of the route.
    pub(crate) changes: &'a [Change],
    /// Whether to ask for the protocol that the client asked for.
    pub(crate) upgrade: Option<&'a str>,
    /// Whose cookie is not for the server.
    pub(crate) sticky: Option<&'a StickyPlan>,
}

/// Writes a request's head for a server: HTTP/1.1, persistent, with one framing. Returns the id that
/// it carries: where it stands in `out`.
pub(crate) fn write_request(
    head: &RequestHead<'_, '_>,
    origin: Origin<'_>,
    parts: RequestParts<'_>,
    out: &mut Vec<u8>,
) -> std::ops::Range<usize> {
    out.extend_from_slice(head.method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(parts.target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    // First, where a server looks for it (RFC 9110 §7.2).
    let host = set_host(parts.changes).or(head.host).unwrap_or(parts.default_host);
    encode::field(out, "Host", host.as_bytes());
    let named = has_named_fields(head.headers);
    let mut id = 0..0;
    for header in head.headers {
        if named && is_named_away(head.headers, header.name) {
            continue;
        }
        match disposition(header, head, &origin) {
            Disposition::Drop => continue,
            Disposition::OneHopLess => {
                write_max_forwards(header, parts.changes, out);
                continue;
            }
            Disposition::Id => {
                let end = out.len() + header.name.len() + 2 + header.value.len();
                id = end - header.value.len()..end;
            }
            Disposition::Keep => {}
        }
        match judge(parts.changes, header.name, true) {
            Verdict::Keep if parts.sticky.is_some() && is_cookie(header.name) => {
                parts.sticky.inspect(|plan| write_cookie_field(plan, header, out));
            }
            Verdict::Keep => encode::field(out, header.name, sent_value(header)),
            Verdict::Drop => id = if id.end > out.len() { 0..0 } else { id },
        }
    }
    if head.framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    let wrote = write_origin(head, &origin, id.is_empty(), parts.changes, out);
    if id.is_empty() {
        id = wrote;
    }
    if !parts.changes.is_empty() {
        let start = out.len();
        write_added(parts.changes, true, out);
        if let Some(name) = &origin.forwarding.request_id
            && let Some(set) = set_value(parts.changes, name)
        {
            id = place_of(&out[start..], name, set)
                .map_or(id, |at| start + at.start..start + at.end);
        }
    }
    write_connection(head, parts.upgrade, out);
    encode::end_of_head(out);
    id
}

/// The value that a route sets a field of the request to.
fn set_value<'a>(changes: &'a [Change], name: &str) -> Option<&'a str> {
    changes.iter().find_map(|change| match change {
        Change::SetRequestHeader(named, value) if named.eq_ignore_ascii_case(name) => {
            Some(&**value)
        }
        _ => None,
    })
}

fn set_host(changes: &[Change]) -> Option<&str> {
    if changes.is_empty() { None } else { set_value(changes, "host") }
}

/// Where the value of a field stands in lines that were written.
fn place_of(lines: &[u8], name: &str, value: &str) -> Option<std::ops::Range<usize>> {
    let bytes = name.len() + 2 + value.len();
    let is_it = |line: &[u8]| {
        line[..name.len()].eq_ignore_ascii_case(name.as_bytes()) && line.ends_with(value.as_bytes())
    };
    let start = lines.windows(bytes).position(is_it)?;
    Some(start + name.len() + 2..start + bytes)
}

/// Writes `Max-Forwards` less this hop (RFC 9110 §7.6.2); what is no number stays as it is.
fn write_max_forwards(header: &Header<'_>, changes: &[Change], out: &mut Vec<u8>) {
    if !is_ours(changes, header.name, true) {
        return;
    }
    match max_forwards(header.value) {
        Some(hops) => encode::field_u64(out, header.name, hops.saturating_sub(1).into()),
        None => encode::field(out, header.name, header.value),
    }
}

/// The number of a `Max-Forwards` field; a larger one than fits counts as the largest that does.
pub(crate) fn max_forwards(value: &[u8]) -> Option<u32> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit =
        |hops: u32, byte: &u8| hops.saturating_mul(10).saturating_add(u32::from(byte - b'0'));
    Some(value.iter().fold(0, digit))
}

/// Whether `Max-Forwards` counts for a request: only for those that trace a path (RFC 9110 §7.6.2).
pub(crate) fn counts_hops(method: &str) -> bool {
    matches!(method, "OPTIONS" | "TRACE")
}

enum Disposition {
    Keep,
    Drop,
    /// The request id, which is kept.
    Id,
    /// `Max-Forwards`, which this hop is taken from.
    OneHopLess,
}

/// What becomes of a field, by its name. By length first: most fields are none of these.
fn disposition(
    header: &Header<'_>,
    head: &RequestHead<'_, '_>,
    origin: &Origin<'_>,
) -> Disposition {
    let name = header.name;
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if let Some(id) = &origin.forwarding.request_id
        && name.len() == id.len()
        && is(id)
    {
        return if origin.trusted { Disposition::Id } else { Disposition::Drop };
    }
    if !origin.trusted
        && (is_identity(name)
            || origin.forwarding.underscores != Underscores::Pass && has_underscore(name))
    {
        return Disposition::Drop;
    }
    let drops = match name.len() {
        4 => is("host"),
        // Without a body there is nothing to wait with, and HTTP/1.0 knows no 100 (RFC 9110 §10.1.1).
        6 if is("expect") => !head.expect_continue,
        // Trailers are passed on, and so is what announces them.
        7 if is("trailer") => head.framing != Framing::Chunked,
        12 if counts_hops(head.method) && is("max-forwards") => return Disposition::OneHopLess,
        // Appended to, when it is believed.
        15 if is("x-forwarded-for") => {
            origin.forwarding.x_forwarded && !origin.forwarding.only_if_none
        }
        _ => is_hop_by_hop(name),
    };
    if drops { Disposition::Drop } else { Disposition::Keep }
}

/// Writes what says where the request came from; returns where its id stands, if it wrote one.
fn write_origin(
    head: &RequestHead<'_, '_>,
    origin: &Origin<'_>,
    needs_id: bool,
    changes: &[Change],
    out: &mut Vec<u8>,
) -> std::ops::Range<usize> {
    let forwarding = origin.forwarding;
    if forwarding.x_forwarded {
        write_x_forwarded(head, origin, changes, out);
    }
    if forwarding.forwarded && is_ours(changes, "forwarded", true) {
        write_forwarded(head, origin, out);
    }
    if let Some(pseudonym) = &forwarding.via
        && is_ours(changes, "via", true)
    {
        let version: &[u8] = match head.version {
            wire::Version::Http10 => b"Via: 1.0 ",
            wire::Version::Http11 => b"Via: 1.1 ",
        };
        out.extend_from_slice(version);
        out.extend_from_slice(pseudonym.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    match &forwarding.request_id {
        Some(name) if needs_id && is_ours(changes, name, true) => {
            encode::field(out, name, origin.fresh_id);
            out.len() - 2 - origin.fresh_id.len()..out.len() - 2
        }
        _ => 0..0,
    }
}

fn write_x_forwarded(
    head: &RequestHead<'_, '_>,
    origin: &Origin<'_>,
    changes: &[Change],
    out: &mut Vec<u8>,
) {
    let has = |name: &str| {
        origin.trusted
            && wire::field_value(head.headers, name).is_some_and(|value| !value.is_empty())
    };
    let stays = origin.forwarding.only_if_none && has("x-forwarded-for");
    if !stays && is_ours(changes, "x-forwarded-for", true) {
        write_x_forwarded_for(head, origin, out);
    }
    if !has("x-forwarded-proto") && is_ours(changes, "x-forwarded-proto", true) {
        out.extend_from_slice(b"X-Forwarded-Proto: http\r\n");
    }
    if let Some(host) = head.host
        && !has("x-forwarded-host")
        && is_ours(changes, "x-forwarded-host", true)
    {
        encode::field(out, "X-Forwarded-Host", host.as_bytes());
    }
}

fn write_x_forwarded_for(head: &RequestHead<'_, '_>, origin: &Origin<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    if origin.trusted && !origin.forwarding.only_if_none {
        let before = head.headers.iter().filter(|h| h.name.eq_ignore_ascii_case("x-forwarded-for"));
        for header in before.filter(|header| !header.value.is_empty()) {
            out.extend_from_slice(header.value);
            out.extend_from_slice(b", ");
        }
    }
    write_address(origin.client, out);
    out.extend_from_slice(b"\r\n");
}

/// Adds an element of our own as a line of its own, which is the same as appending it to the list
/// (RFC 7239 §7.1, RFC 9110 §5.3).
fn write_forwarded(head: &RequestHead<'_, '_>, origin: &Origin<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Forwarded: for=");
    match origin.client {
        // Writing to a Vec cannot fail.
        Some(IpAddr::V6(address)) => drop(write!(out, "\"[{address}]\"")),
        client => write_address(client, out),
    }
    out.extend_from_slice(b";proto=http");
    if let Some(host) = head.host.filter(|host| !host.is_empty()) {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b"\r\n");
}

/// The target that a server gets: of the absolute form only path and query (RFC 9112 §3.2.1), all
/// other forms as they are.
pub(crate) fn origin_form<'t>(method: &str, target: &'t str) -> Cow<'t, [u8]> {
    if target.starts_with(['/', '*']) || method == "CONNECT" {
        return Cow::Borrowed(target.as_bytes());
    }
    let after_scheme = target.find("://").map_or(target, |at| &target[at + 3..]);
    match after_scheme.find(['/', '?']).map(|at| &after_scheme[at..]) {
        Some(path) if path.starts_with('/') => Cow::Borrowed(path.as_bytes()),
        Some(query) => Cow::Owned([b"/", query.as_bytes()].concat()),
        None if method == "OPTIONS" => Cow::Borrowed(b"*"),
        None => Cow::Borrowed(b"/"),
    }
}

/// Writes an address as text; `unknown` for a unix socket (RFC 7239 §6.2).
pub(crate) fn write_address(client: Option<IpAddr>, out: &mut Vec<u8>) {
    match client {
        Some(IpAddr::V4(address)) => out.extend_from_slice(Dotted::of(address).as_bytes()),
        // Writing to a Vec cannot fail.
        Some(IpAddr::V6(address)) => drop(write!(out, "{address}")),
        None => out.extend_from_slice(b"unknown"),
    }
}

/// Says what the connection to the server is asked for, beyond staying open.
fn write_connection(head: &RequestHead<'_, '_>, upgrade: Option<&str>, out: &mut Vec<u8>) {
    // Without `trailers` a server may leave its trailers out (RFC 9110 §10.1.4); we pass them on.
    let trailers = wire::field_value(head.headers, "te").is_some_and(|value| {
        value.split(|&byte| byte == b',').any(|part| part.trim_ascii() == b"trailers")
    });
    match (upgrade, trailers) {
        (Some(_), true) => out.extend_from_slice(b"Connection: upgrade, TE\r\nTE: trailers\r\n"),
        (Some(_), false) => out.extend_from_slice(b"Connection: upgrade\r\n"),
        (None, true) => out.extend_from_slice(b"Connection: TE\r\nTE: trailers\r\n"),
        (None, false) => {}
    }
    if let Some(protocol) = upgrade {
        encode::field(out, "Upgrade", protocol.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarding() -> Forwarding {
        Forwarding {
            x_forwarded: true,
            forwarded: false,
            via: Some("weir".into()),
            request_id: Some("X-Request-Id".into()),
            only_if_none: false,
            underscores: Underscores::Drop,
        }
    }

    fn rewritten(
        bytes: &str,
        trusted: bool,
        forwarding: &Forwarding,
        changes: &[Change],
    ) -> String {
        let mut slots = wire::header_slots();
        let parsed = wire::parse_request(bytes.as_bytes(), &wire::Limits::default(), &mut slots);
        let wire::Parsed::Complete { head, .. } = parsed.unwrap() else { panic!("incomplete") };
        let origin = Origin {
            client: Some("192.0.2.7".parse().unwrap()),
            trusted,
            forwarding,
            fresh_id: b"0123",
        };
        let target = origin_form(head.method, head.target);
        let parts = RequestParts {
            target: &target,
            default_host: "server",
            changes,
            upgrade: head.upgrade,
            sticky: None,
        };
        let mut out = Vec::new();
        let id = write_request(&head, origin, parts, &mut out);
        let text = String::from_utf8(out).unwrap();
        if forwarding.request_id.is_some() {
            let id = &text[id];
            assert!(id == "0123" || id == "mine", "{id}");
        }
        text
    }

    #[test]
    fn a_plain_request_says_where_it_came_from() {
        let text = rewritten(
            "GET /a?b HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
            false,
            &forwarding(),
            &[],
        );
        let wanted = "GET /a?b HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nX-Forwarded-For: 192.0.2.7\r\n\
                      X-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\nVia: 1.1 weir\r\n\
                      X-Request-Id: 0123\r\n\r\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn claims_of_strangers_are_dropped_and_of_trusted_ones_appended_to() {
        let bytes = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.1.1.1\r\nX-Request-Id: mine\r\n\
                     X-Forwarded-Proto: https\r\nForwarded: for=1.1.1.1\r\n\r\n";
        let stranger = rewritten(bytes, false, &forwarding(), &[]);
        assert!(!stranger.contains("1.1.1.1") && !stranger.contains("mine"), "{stranger}");
        assert!(stranger.contains("X-Forwarded-Proto: http\r\n"));
        let trusted = rewritten(bytes, true, &forwarding(), &[]);
        assert!(trusted.contains("X-Forwarded-For: 1.1.1.1, 192.0.2.7\r\n"), "{trusted}");
        assert!(
            trusted.contains("X-Forwarded-Proto: https\r\n") && !trusted.contains("Proto: http\r")
        );
        assert!(trusted.contains("X-Request-Id: mine\r\n") && !trusted.contains("0123"));
        assert!(trusted.contains("Forwarded: for=1.1.1.1\r\n"));
    }

    #[test]
    fn what_ends_here_is_not_passed_on() {
        let bytes = "POST / HTTP/1.1\r\nHost: h\r\nConnection: x-mine, content-length, close\r\nX-Mine: 1\r\n\
                     Keep-Alive: 5\r\nProxy-Connection: x\r\nTE: trailers, gzip\r\nContent-Length: 3\r\n\r\n";
        let text = rewritten(bytes, false, &forwarding(), &[]);
        for gone in ["X-Mine", "Keep-Alive", "Proxy-Connection", "gzip", "close"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        assert!(text.contains("Content-Length: 3\r\n"));
        assert!(text.contains("Connection: TE\r\nTE: trailers\r\n"));
    }

    #[test]
    fn the_framing_is_written_once_and_the_target_in_origin_form() {
        let bytes = "POST http://other:81/x?y HTTP/1.1\r\nHost: other:81\r\nTransfer-Encoding: chunked\r\n\
                     Trailer: X-T\r\n\r\n";
        let text = rewritten(bytes, false, &forwarding(), &[]);
        assert!(text.starts_with("POST /x?y HTTP/1.1\r\nHost: other:81\r\n"), "{text}");
        assert_eq!(text.matches("Transfer-Encoding: chunked").count(), 1);
        assert!(text.contains("Trailer: X-T\r\n"));
        assert_eq!(*origin_form("GET", "http://h"), *b"/");
        assert_eq!(*origin_form("GET", "http://h?q"), *b"/?q");
        assert_eq!(*origin_form("OPTIONS", "http://h"), *b"*");
        assert_eq!(*origin_form("OPTIONS", "*"), *b"*");
    }

    #[test]
    fn a_route_sets_adds_and_removes() {
        let changes = [
            Change::SetRequestHeader("X-Env".into(), "prod".into()),
            Change::AddRequestHeader("X-Tag".into(), "2".into()),
            Change::RemoveRequestHeader("Cookie".into()),
            Change::SetResponseHeader("X-No".into(), "1".into()),
        ];
        let bytes = "GET / HTTP/1.1\r\nHost: h\r\nx-env: dev\r\nX-Tag: 1\r\nCookie: a\r\n\r\n";
        let text = rewritten(bytes, false, &forwarding(), &changes);
        assert!(
            !text.contains("dev") && !text.contains("Cookie") && !text.contains("X-No"),
            "{text}"
        );
        assert!(text.contains("X-Tag: 1\r\n") && text.contains("X-Tag: 2\r\n"));
        assert!(text.contains("X-Env: prod\r\n"));
    }

    #[test]
    fn the_standard_field_has_quoted_addresses() {
        let with = Forwarding {
            forwarded: true,
            x_forwarded: false,
            via: None,
            request_id: None,
            ..forwarding()
        };
        let text = rewritten("GET / HTTP/1.1\r\nHost: h:1\r\n\r\n", false, &with, &[]);
        assert!(text.contains("Forwarded: for=192.0.2.7;proto=http;host=\"h:1\"\r\n"), "{text}");
        assert!(!text.contains("Via") && !text.contains("X-Forwarded"));
    }
}
