//! Translation of heads between HTTP/2 and HTTP/1.1, for a proxy.
//!
//! Pure functions on heads that were validated: a head of HTTP/2 becomes text that [`crate::parse_request`]
//! or [`crate::parse_response`] accepts with the same meaning, and a parsed head of HTTP/1.1 becomes
//! fields of HTTP/2. Policy (forwarded-for fields, rewriting) is the proxy's task.

use std::borrow::Cow;

use super::encoder::FieldEncoder;
use super::event::{Fields, RequestHead, ResponseHead};
use crate::h1::{Header, RequestKind, Version, connection_options, encode, is_hop_by_hop};

/// Reason that a request cannot be written as HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranslateError {
    /// An extended CONNECT for another protocol than `websocket`: 501 (RFC 9220 §3).
    ProtocolUnsupported,
}

/// Writes a request as the head of an HTTP/1.1 message.
///
/// Without `content-length` a body becomes `transfer-encoding: chunked`: if `is_end` is false, the
/// caller writes chunks. `cookie` fields are joined (RFC 9113 §8.2.3), and the authority becomes
/// `Host`. `te` is dropped, because it is for one hop. An extended CONNECT for `websocket` becomes a GET with `Upgrade` and
/// the given `websocket_key`, 16 random bytes in Base64 (RFC 8441 §5).
///
/// # Errors
/// The request has no form in HTTP/1.1; nothing was written.
pub fn write_h1_request(
    head: &RequestHead<'_>,
    is_end: bool,
    websocket_key: &str,
    out: &mut Vec<u8>,
) -> Result<(), TranslateError> {
    let authority = head.authority.unwrap_or_default();
    let path = head.path.unwrap_or(authority);
    let is_connect = head.method == "CONNECT";
    match head.protocol {
        None => encode::request_line(out, head.method, path),
        Some(protocol) if protocol.eq_ignore_ascii_case("websocket") => {
            encode::request_line(out, "GET", path);
        }
        Some(_) => return Err(TranslateError::ProtocolUnsupported),
    }
    encode::field(out, "host", authority.as_bytes());
    write_fields(head.fields, out, |name| name == "te" || (is_connect && name == "sec-websocket-key"));
    if head.protocol.is_some() {
        out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\n");
        encode::field(out, "sec-websocket-key", websocket_key.as_bytes());
    } else if let Some(length) = head.content_length {
        encode::field_u64(out, "content-length", length);
    } else if !is_end && !is_connect {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    encode::end_of_head(out);
    Ok(())
}

/// Writes a response, interim or final, as the head of an HTTP/1.1 message. `kind` is that of its
/// request.
///
/// Without `content-length`, and if `is_end` is false, the body becomes
/// `transfer-encoding: chunked`: the caller writes chunks, unless the response can have no body
/// (RFC 9112 §6.3).
pub fn write_h1_response(head: &ResponseHead<'_>, is_end: bool, kind: RequestKind, out: &mut Vec<u8>) {
    encode::status_line(out, Version::Http11, head.status);
    write_fields(head.fields, out, |_| false);
    let is_tunnel = kind == RequestKind::Connect && head.status < 300;
    // Neither field may be in these (RFC 9110 §8.6, RFC 9112 §6.1).
    let has_framing = head.status >= 200 && head.status != 204 && !is_tunnel;
    if has_framing {
        let has_no_body = kind == RequestKind::Head || head.status == 304;
        match head.content_length {
            Some(length) => encode::field_u64(out, "content-length", length),
            None if has_no_body => {}
            None if is_end => encode::field_u64(out, "content-length", 0),
            None => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
    }
    encode::end_of_head(out);
}

/// Writes fields, with all cookies in the position of the first one.
fn write_fields(fields: Fields<'_>, out: &mut Vec<u8>, is_dropped: impl Fn(&str) -> bool) {
    let mut has_cookies = false;
    for (name, value) in fields.iter() {
        if name == "cookie" {
            if !std::mem::replace(&mut has_cookies, true) {
                out.extend_from_slice(b"cookie: ");
                fields.join_cookies(out);
                out.extend_from_slice(b"\r\n");
            }
        } else if !is_dropped(name) {
            encode::field(out, name, value);
        }
    }
}

/// Writes trailer fields of HTTP/2 as the trailer section of a chunked body: field lines without the
/// last chunk and the empty line.
pub fn write_h1_trailers(fields: Fields<'_>, out: &mut Vec<u8>) {
    for (name, value) in fields.iter() {
        encode::field(out, name, value);
    }
}

/// Writes the head of an HTTP/1.1 request as fields of HTTP/2. `scheme` is that of the client's
/// connection. Fields for one hop are dropped, also those that `Connection` names; `te: trailers` is
/// kept. `Host` becomes `:authority`, an absolute target its path.
///
/// With `protocol` the request becomes an extended CONNECT (RFC 8441 §5): for a request with
/// `Upgrade: websocket`, whose `Sec-WebSocket-Key` is dropped.
pub fn encode_request(
    fields: &mut FieldEncoder<'_>,
    head: &crate::RequestHead<'_, '_>,
    scheme: &str,
    protocol: Option<&str>,
) {
    let authority = head.host.filter(|host| !host.is_empty());
    match protocol {
        Some(protocol) => {
            fields.request("CONNECT", Some(scheme), authority, Some(&path_of(head)));
            fields.protocol(protocol);
        }
        None if head.method == "CONNECT" => fields.request(head.method, None, authority, None),
        None => fields.request(head.method, Some(scheme), authority, Some(&path_of(head))),
    }
    let is_tunnel = protocol.is_some() || head.method == "CONNECT";
    encode_fields(fields, head.headers, |name| {
        name.eq_ignore_ascii_case("host")
            || (protocol.is_some() && name.eq_ignore_ascii_case("sec-websocket-key"))
            // It is 0, and not allowed in HTTP/2.
            || (is_tunnel && name.eq_ignore_ascii_case("content-length"))
    });
}

/// Returns the path of a request target: that of an absolute one, or else the target.
fn path_of<'b>(head: &crate::RequestHead<'_, 'b>) -> Cow<'b, str> {
    let target = head.target;
    if target.starts_with('/') || target == "*" {
        return Cow::Borrowed(target);
    }
    let Some((_, rest)) = target.split_once("://") else { return Cow::Borrowed(target) };
    match rest.find(['/', '?']) {
        Some(at) if rest.as_bytes()[at] == b'/' => Cow::Borrowed(&rest[at..]),
        Some(at) => Cow::Owned(format!("/{}", &rest[at..])),
        // RFC 9113 §8.3.1.
        None if head.method == "OPTIONS" => Cow::Borrowed("*"),
        None => Cow::Borrowed("/"),
    }
}

/// Writes the head of an HTTP/1.1 response as fields of HTTP/2. Fields for one hop are dropped, also
/// those that `Connection` names. 101 becomes 200, without `Sec-WebSocket-Accept` (RFC 8441 §5).
pub fn encode_response(fields: &mut FieldEncoder<'_>, head: &crate::ResponseHead<'_, '_>) {
    let is_upgrade = head.is_switching_protocols();
    fields.status(if is_upgrade { 200 } else { head.status });
    encode_fields(fields, head.headers, |name| {
        is_upgrade && name.eq_ignore_ascii_case("sec-websocket-accept")
    });
}

fn encode_fields(fields: &mut FieldEncoder<'_>, headers: &[Header<'_>], is_dropped: impl Fn(&str) -> bool) {
    let has_options = headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("connection")
            && !header.value.eq_ignore_ascii_case(b"keep-alive")
            && !header.value.eq_ignore_ascii_case(b"close")
    });
    for header in headers {
        let name = header.name;
        let is_forwarded_hop =
            name.eq_ignore_ascii_case("trailer") || (name.len() == 2 && is_trailers(header.value));
        if (is_hop_by_hop(name) && !is_forwarded_hop)
            || is_dropped(name)
            || (has_options && is_connection_option(headers, name))
        {
            continue;
        }
        fields.field(name, if is_te(name) { b"trailers" } else { header.value });
    }
}

/// Returns whether `Connection` names the field. It cannot name those that this end relies on.
#[cold]
fn is_connection_option(headers: &[Header<'_>], name: &str) -> bool {
    !name.eq_ignore_ascii_case("content-length")
        && !is_te(name)
        && connection_options(headers).any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
}

fn is_te(name: &str) -> bool {
    name.eq_ignore_ascii_case("te")
}

/// Returns whether a `TE` value has the member `trailers`.
fn is_trailers(value: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|member| member.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}
