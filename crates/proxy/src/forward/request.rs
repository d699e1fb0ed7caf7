//! The head of a request as the server gets it.

use std::borrow::Cow;
use std::io::Write as _;
use std::net::IpAddr;

use wire::{Framing, Header, RequestHead, encode, is_hop_by_hop};

use super::line_writer::LineWriter;
use super::{FieldAction, field_action, write_set_and_added, writes_own_field};
use crate::balance::sticky::write_cookie_field;
use crate::cookies::is_cookie_field;
use crate::ipv4_fmt::Ipv4Text;
use crate::outcome::Protocol;
use crate::plan::{RouteChange, StickyPlan, Text};
use crate::request_view::{CertificateField, FieldEffect, RequestView};
use crate::template::{Escape, Values};

/// Origin of a request, as far as the proxy itself knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// The client's address; `None`: a unix socket.
    pub(crate) client: Option<IpAddr>,
    /// Request id to use if the request has none that is trusted.
    pub(crate) new_request_id: &'a [u8],
    /// True if the client uses TLS.
    pub(crate) is_tls: bool,
    pub(crate) protocol: Protocol,
}

impl Origin<'_> {
    fn scheme(&self) -> &'static [u8] {
        if self.is_tls { b"https" } else { b"http" }
    }
}

/// Parts of a request's head that other modules determine.
#[derive(Clone, Copy)]
pub(crate) struct RequestParts<'a> {
    /// The target in the form for servers (see [`origin_form`]), rewritten if a route requires it.
    pub(crate) target: &'a [u8],
    /// The `Host` for a request without one, which HTTP/1.0 allows.
    pub(crate) default_host: &'a str,
    pub(crate) changes: &'a [RouteChange],
    /// Values for the texts of the changes; `None`: they are all literal.
    pub(crate) values: Option<&'a dyn Values>,
    /// Changes of cookies; `None`: there are none.
    pub(crate) cookies: Option<CookieChanges<'a>>,
}

/// Changes of the cookies of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CookieChanges<'a> {
    /// Sticky cookie to remove before the server.
    pub(crate) sticky: Option<&'a StickyPlan>,
    /// Changes that may remove others.
    pub(crate) changes: &'a [RouteChange],
}

impl<'a> CookieChanges<'a> {
    /// Adds the changes of a route, if they remove cookies.
    pub(crate) fn with_removals(before: Option<Self>, changes: &'a [RouteChange]) -> Option<Self> {
        let removes = changes.iter().any(|change| matches!(change, RouteChange::RemoveRequestCookie(_)));
        match removes {
            true => Some(Self { sticky: before.and_then(|before| before.sticky), changes }),
            false => before,
        }
    }

    fn write_field(&self, header: &Header<'_>, out: &mut Vec<u8>) {
        let is_removed = |cookie: &[u8]| {
            self.changes.iter().any(|change| match change {
                RouteChange::RemoveRequestCookie(name) => name.as_bytes() == cookie,
                _ => false,
            })
        };
        write_cookie_field(self.sticky, is_removed, header, out);
    }
}

/// Writes a request's head for a server: HTTP/1.1, persistent, with one framing. Returns the range
/// of its request id in `out`.
pub(crate) fn write_request(
    view: &RequestView<'_>,
    origin: Origin<'_>,
    parts: RequestParts<'_>,
    out: &mut Vec<u8>,
) -> std::ops::Range<usize> {
    let head = view.head;
    let mut lines = write_start(head, &parts, out);
    let mut id_range = 0..0;
    for header in head.headers {
        match field_disposition(header.name, view) {
            FieldDisposition::Drop => continue,
            FieldDisposition::DecrementMaxForwards => {
                lines.flush(out);
                write_max_forwards(header, parts.changes, out);
                continue;
            }
            FieldDisposition::RequestId => {
                lines.flush(out);
                let end = out.len() + header.name.len() + 2 + header.value.len();
                id_range = end - header.value.len()..end;
            }
            FieldDisposition::Keep => {}
        }
        match field_action(parts.changes, header.name, true) {
            FieldAction::Keep => match parts.cookies {
                Some(cookies) if is_cookie_field(header.name) => {
                    lines.flush(out);
                    cookies.write_field(header, out);
                }
                _ => lines.write(header, out),
            },
            FieldAction::Drop => {
                lines.flush(out);
                id_range = if id_range.end > out.len() { 0..0 } else { id_range };
            }
        }
    }
    lines.flush(out);
    if head.framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    let written_id = write_origin(view, &origin, id_range.is_empty(), parts.changes, out);
    if id_range.is_empty() {
        id_range = written_id;
    }
    if !parts.changes.is_empty() {
        let start = out.len();
        write_set_and_added(parts.changes, true, parts.values, out);
        if let Some(name) = &view.forwarding.request_id
            && overridden_value(parts.changes, name).is_some()
        {
            id_range = value_range(&out[start..], name)
                .map_or(id_range, |range| start + range.start..start + range.end);
        }
    }
    write_connection(view, out);
    encode::end_of_head(out);
    id_range
}

/// Writes the request line and the host, which comes first, where a server looks for it (RFC 9110 §7.2). Returns the
/// writer of the other lines.
#[inline]
fn write_start<'b>(
    head: &RequestHead<'_, 'b>,
    parts: &RequestParts<'_>,
    out: &mut Vec<u8>,
) -> LineWriter<'b> {
    let mut lines = LineWriter::new(head.received);
    lines.write_line(head.method.as_bytes(), b" ", parts.target, b" HTTP/1.1\r\n", out);
    let host = overridden_host(parts.changes, parts.values);
    let host = host.as_deref().unwrap_or_else(|| head.host.unwrap_or(parts.default_host));
    // Mostly it was received first, with this name.
    let name = head.headers.first().map_or("", |header| header.name);
    let name = if name == "Host" { name } else { "Host" };
    lines.write_line(name.as_bytes(), b": ", host.as_bytes(), b"\r\n", out);
    lines
}

fn overridden_value<'a>(changes: &'a [RouteChange], name: &str) -> Option<&'a Text> {
    changes.iter().find_map(|change| match change {
        RouteChange::SetRequestHeader(pattern, value) if pattern.eq_ignore_ascii_case(name) => Some(value),
        _ => None,
    })
}

/// Returns the host that a route sets. A text whose values are no host changes nothing.
#[inline]
fn overridden_host<'a>(changes: &'a [RouteChange], values: Option<&dyn Values>) -> Option<Cow<'a, str>> {
    if changes.is_empty() {
        return None;
    }
    match (overridden_value(changes, "host")?, values) {
        (Text::Literal(host), _) => Some(Cow::Borrowed(host)),
        (Text::Template(template), Some(values)) => {
            let mut host = Vec::new();
            template.render(values, Escape::Field, &mut host).ok()?;
            let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte);
            let is_host = !host.is_empty() && host.iter().all(is_allowed);
            is_host.then(|| String::from_utf8(host).ok().map(Cow::Owned))?
        }
        (Text::Template(_), None) => None,
    }
}

/// Finds the value of a field in lines that were written.
fn value_range(lines: &[u8], name: &str) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let value_start = name.len() + 2;
        let own_name = line.get(..name.len()).filter(|_| line.get(name.len()) == Some(&b':'));
        if own_name.is_some_and(|own_name| own_name.eq_ignore_ascii_case(name.as_bytes())) {
            return Some(start + value_start..start + line.len() - 2);
        }
        start += line.len();
    }
    None
}

/// Writes `Max-Forwards` minus this hop (RFC 9110 §7.6.2). A value that is no number stays
/// unchanged.
fn write_max_forwards(header: &Header<'_>, changes: &[RouteChange], out: &mut Vec<u8>) {
    if !writes_own_field(changes, header.name, true) {
        return;
    }
    match max_forwards(header.value) {
        Some(hops) => encode::field_u64(out, header.name, hops.saturating_sub(1).into()),
        None => encode::field(out, header.name, header.value),
    }
}

/// Returns the number of a `Max-Forwards` field; larger ones saturate.
pub(crate) fn max_forwards(value: &[u8]) -> Option<u32> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |hops: u32, byte: &u8| hops.saturating_mul(10).saturating_add(u32::from(byte - b'0'));
    Some(value.iter().fold(0, digit))
}

/// Returns whether `Max-Forwards` applies to a request: only to methods that trace a path (RFC 9110
/// §7.6.2).
pub(crate) fn uses_max_forwards(method: &str) -> bool {
    matches!(method, "OPTIONS" | "TRACE")
}

enum FieldDisposition {
    Keep,
    Drop,
    RequestId,
    DecrementMaxForwards,
}

/// Chooses the treatment of a field by its name. Compares lengths first: most fields match none of
/// these.
fn field_disposition(name: &str, view: &RequestView<'_>) -> FieldDisposition {
    match view.verdict(name) {
        FieldEffect::Removed(_) => return FieldDisposition::Drop,
        FieldEffect::RequestId => return FieldDisposition::RequestId,
        FieldEffect::Forwarded => {}
    }
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let is_dropped = match name.len() {
        4 => is("host"),
        // Without a body there is nothing to wait with, and HTTP/1.0 has no 100 (RFC 9110 §10.1.1).
        6 if is("expect") => !view.head.expect_continue,
        // Trailers are forwarded, and so is their announcement.
        7 if is("trailer") => view.head.framing != Framing::Chunked,
        12 if uses_max_forwards(view.head.method) && is("max-forwards") => {
            return FieldDisposition::DecrementMaxForwards;
        }
        // Rewritten with the trusted values in front.
        15 if is("x-forwarded-for") => view.forwarding.x_forwarded && !view.forwarding.only_if_none,
        _ => is_hop_by_hop(name),
    };
    if is_dropped { FieldDisposition::Drop } else { FieldDisposition::Keep }
}

/// Writes the fields with the request's origin. Returns the range of the request id, if it wrote
/// one.
fn write_origin(
    view: &RequestView<'_>,
    origin: &Origin<'_>,
    lacks_id: bool,
    changes: &[RouteChange],
    out: &mut Vec<u8>,
) -> std::ops::Range<usize> {
    let forwarding = view.forwarding;
    if let Some(CertificateField { name, subject: Some(subject) }) = view.certificate
        && writes_own_field(changes, name, true)
    {
        encode::field(out, name, subject.as_bytes());
    }
    if forwarding.x_forwarded {
        write_x_forwarded(view, origin, changes, out);
    }
    if forwarding.forwarded && writes_own_field(changes, "forwarded", true) {
        write_forwarded(view.head, origin, out);
    }
    if let Some(pseudonym) = &forwarding.via
        && writes_own_field(changes, "via", true)
    {
        let version: &[u8] = match origin.protocol {
            Protocol::Http10 => b"Via: 1.0 ",
            Protocol::Http11 => b"Via: 1.1 ",
            Protocol::Http2 => b"Via: 2.0 ",
        };
        out.extend_from_slice(version);
        out.extend_from_slice(pseudonym.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    match &forwarding.request_id {
        Some(name) if lacks_id && writes_own_field(changes, name, true) => {
            encode::field(out, name, origin.new_request_id);
            out.len() - 2 - origin.new_request_id.len()..out.len() - 2
        }
        _ => 0..0,
    }
}

fn write_x_forwarded(
    view: &RequestView<'_>,
    origin: &Origin<'_>,
    changes: &[RouteChange],
    out: &mut Vec<u8>,
) {
    let has = |name: &str| view.is_trusted && view.value(name).is_some_and(|value| !value.is_empty());
    let keeps_received = view.forwarding.only_if_none && has("x-forwarded-for");
    if !keeps_received && writes_own_field(changes, "x-forwarded-for", true) {
        write_x_forwarded_for(view, origin, out);
    }
    if !has("x-forwarded-proto") && writes_own_field(changes, "x-forwarded-proto", true) {
        out.extend_from_slice(match origin.is_tls {
            true => &b"X-Forwarded-Proto: https\r\n"[..],
            false => b"X-Forwarded-Proto: http\r\n",
        });
    }
    if let Some(host) = view.head.host
        && !has("x-forwarded-host")
        && writes_own_field(changes, "x-forwarded-host", true)
    {
        encode::field(out, "X-Forwarded-Host", host.as_bytes());
    }
}

fn write_x_forwarded_for(view: &RequestView<'_>, origin: &Origin<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    if view.is_trusted && !view.forwarding.only_if_none {
        for value in view.values("x-forwarded-for").filter(|value| !value.is_empty()) {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
    write_address(origin.client, out);
    out.extend_from_slice(b"\r\n");
}

/// Adds the proxy's element as a field line of its own, which is equivalent to appending it to the
/// list (RFC 7239 §7.1, RFC 9110 §5.3).
fn write_forwarded(head: &RequestHead<'_, '_>, origin: &Origin<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Forwarded: for=");
    match origin.client {
        // Writing to a Vec cannot fail.
        Some(IpAddr::V6(address)) => drop(write!(out, "\"[{address}]\"")),
        client => write_address(client, out),
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(origin.scheme());
    if let Some(host) = head.host.filter(|host| !host.is_empty()) {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b"\r\n");
}

/// Returns the target for a server: for the absolute form only path and query (RFC 9112 §3.2.1),
/// all other forms unchanged.
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
        Some(IpAddr::V4(address)) => out.extend_from_slice(Ipv4Text::new(address).as_bytes()),
        // Writing to a Vec cannot fail.
        Some(IpAddr::V6(address)) => drop(write!(out, "{address}")),
        None => out.extend_from_slice(b"unknown"),
    }
}

/// Writes the connection options of the server connection and the fields that they name.
fn write_connection(view: &RequestView<'_>, out: &mut Vec<u8>) {
    let Some(options) = view.connection_value() else { return };
    encode::field(out, "Connection", options.as_bytes());
    if view.accepts_trailers() {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
    if let Some(protocol) = view.upgrade() {
        encode::field(out, "Upgrade", protocol.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Forwarding, Underscores};

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

    fn rewrite(bytes: &str, trusted: bool, forwarding: &Forwarding, changes: &[RouteChange]) -> String {
        rewrite_over(bytes, trusted, forwarding, changes, (false, None))
    }

    fn rewrite_over(
        bytes: &str,
        trusted: bool,
        forwarding: &Forwarding,
        changes: &[RouteChange],
        (is_tls, certificate): (bool, Option<(&str, Option<&str>)>),
    ) -> String {
        let mut slots = wire::header_slots();
        let parsed = wire::parse_request(bytes.as_bytes(), &wire::Limits::default(), &mut slots);
        let wire::Parsed::Complete { head, .. } = parsed.unwrap() else { panic!("incomplete") };
        let origin = Origin {
            client: Some("192.0.2.7".parse().unwrap()),
            new_request_id: b"0123",
            is_tls,
            protocol: Protocol::Http11,
        };
        let target = origin_form(head.method, head.target);
        let parts =
            RequestParts { target: &target, default_host: "server", changes, values: None, cookies: None };
        let mut out = Vec::new();
        let certificate = certificate.map(|(name, subject)| CertificateField { name, subject });
        let view = RequestView { head: &head, is_trusted: trusted, forwarding, certificate };
        let id = write_request(&view, origin, parts, &mut out);
        let text = String::from_utf8(out).unwrap();
        if forwarding.request_id.is_some() {
            let id = &text[id];
            assert!(id == "0123" || id == "mine", "{id}");
        }
        text
    }

    #[test]
    fn a_plain_request_has_the_address_of_its_client() {
        let text = rewrite("GET /a?b HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n", false, &forwarding(), &[]);
        let expected = "GET /a?b HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nX-Forwarded-For: 192.0.2.7\r\n\
                      X-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\nVia: 1.1 weir\r\n\
                      X-Request-Id: 0123\r\n\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn servers_learn_the_scheme_and_the_certificate_of_a_client() {
        let bytes = "GET / HTTP/1.1\r\nHost: h\r\nX-Subject: CN=forged\r\nX_Subject: CN=forged\r\n\r\n";
        let both = Forwarding { forwarded: true, ..forwarding() };
        for (subject, trusted) in [(Some("CN=a,O=b"), false), (None, false), (None, true)] {
            let text = rewrite_over(bytes, trusted, &both, &[], (true, Some(("x-subject", subject))));
            assert!(text.contains("X-Forwarded-Proto: https\r\n"), "{text}");
            assert!(text.contains(";proto=https;"), "{text}");
            assert!(!text.contains("forged"), "{text}");
            assert_eq!(text.contains("x-subject: CN=a,O=b\r\n"), subject.is_some(), "{text}");
        }
    }

    #[test]
    fn claims_of_strangers_are_dropped_and_of_trusted_ones_appended_to() {
        let bytes = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.1.1.1\r\nX-Request-Id: mine\r\n\
                     X-Forwarded-Proto: https\r\nForwarded: for=1.1.1.1\r\n\r\n";
        let untrusted = rewrite(bytes, false, &forwarding(), &[]);
        assert!(!untrusted.contains("1.1.1.1") && !untrusted.contains("mine"), "{untrusted}");
        assert!(untrusted.contains("X-Forwarded-Proto: http\r\n"));
        let trusted = rewrite(bytes, true, &forwarding(), &[]);
        assert!(trusted.contains("X-Forwarded-For: 1.1.1.1, 192.0.2.7\r\n"), "{trusted}");
        assert!(trusted.contains("X-Forwarded-Proto: https\r\n") && !trusted.contains("Proto: http\r"));
        assert!(trusted.contains("X-Request-Id: mine\r\n") && !trusted.contains("0123"));
        assert!(trusted.contains("Forwarded: for=1.1.1.1\r\n"));
    }

    #[test]
    fn hop_by_hop_fields_are_not_forwarded() {
        let bytes = "POST / HTTP/1.1\r\nHost: h\r\nConnection: x-mine, content-length, close\r\nX-Mine: 1\r\n\
                     Keep-Alive: 5\r\nProxy-Connection: x\r\nTE: trailers, gzip\r\nContent-Length: 3\r\n\r\n";
        let text = rewrite(bytes, false, &forwarding(), &[]);
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
        let text = rewrite(bytes, false, &forwarding(), &[]);
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
            RouteChange::SetRequestHeader("X-Env".into(), "prod".into()),
            RouteChange::AddRequestHeader("X-Tag".into(), "2".into()),
            RouteChange::RemoveRequestHeader("Cookie".into()),
            RouteChange::SetResponseHeader("X-No".into(), "1".into()),
        ];
        let bytes = "GET / HTTP/1.1\r\nHost: h\r\nx-env: dev\r\nX-Tag: 1\r\nCookie: a\r\n\r\n";
        let text = rewrite(bytes, false, &forwarding(), &changes);
        assert!(!text.contains("dev") && !text.contains("Cookie") && !text.contains("X-No"), "{text}");
        assert!(text.contains("X-Tag: 1\r\n") && text.contains("X-Tag: 2\r\n"));
        assert!(text.contains("X-Env: prod\r\n"));
    }

    #[test]
    fn a_removal_may_be_of_all_names_with_a_start() {
        let changes = [RouteChange::RemoveRequestHeader("X-In*".into())];
        let bytes = "GET / HTTP/1.1\r\nHost: h\r\nx-in: 1\r\nX-INTERNAL: 2\r\nX-I: 3\r\nX: 4\r\n\r\n";
        let text = rewrite(bytes, false, &forwarding(), &changes).to_ascii_lowercase();
        assert!(!text.contains("\r\nx-in"), "{text}");
        assert!(text.contains("\r\nx-i: 3\r\n") && text.contains("\r\nx: 4\r\n"), "{text}");
    }

    #[test]
    fn the_standard_field_has_quoted_addresses() {
        let enabled =
            Forwarding { forwarded: true, x_forwarded: false, via: None, request_id: None, ..forwarding() };
        let text = rewrite("GET / HTTP/1.1\r\nHost: h:1\r\n\r\n", false, &enabled, &[]);
        assert!(text.contains("Forwarded: for=192.0.2.7;proto=http;host=\"h:1\"\r\n"), "{text}");
        assert!(!text.contains("Via") && !text.contains("X-Forwarded"));
    }
}
