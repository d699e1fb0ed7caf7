//! Reading the head of a response (RFC 9112 §4), and where its body ends (§6.3).
//!
//! The sibling of `request`: the same tools, the rules of the other end.

use super::explain::explain_response;
use super::fields::Fields;
use super::head::{
    Framing, HEADERS_CAP, Header, HeaderSlots, Parsed, RequestKind, ResponseHead, Version,
};
use super::limits::Limits;
use super::refusal::{Refusal, RefusalKind};
use super::request::lines_end_in_crlf;

/// Reads the head of a response from the start of `bytes`, `kind` being what was asked.
///
/// As with [`parse_request`](super::parse_request), nothing is allocated, nothing depends on how
/// the bytes arrived, and [`Parsed::Incomplete`] means that all is well so far. An interim response
/// is a head of its own: read on, and count with [`Limits::check_interim`].
///
/// # Errors
/// A [`Refusal`], whose status is 502 for whoever waits; the connection is to be closed.
pub fn parse_response<'h, 'b>(
    bytes: &'b [u8],
    limits: &Limits,
    kind: RequestKind,
    slots: &'h mut HeaderSlots<'b>,
) -> Result<Parsed<ResponseHead<'h, 'b>>, Refusal> {
    // As in `parse_request`: a head that is made in place is not copied.
    let refused = Refusal::of_server;
    let window = &bytes[..bytes.len().min(limits.head_bytes_max)];
    if let [b'\r' | b'\n', ..] = window {
        // httparse would skip it; only a server may, before a request line.
        return Err(refused(RefusalKind::InvalidStatusLine));
    }
    let headers_max = limits.headers_max.min(HEADERS_CAP);
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        window,
        &mut slots[..headers_max],
    );
    let used = match parsed {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) if bytes.len() >= limits.head_bytes_max => {
            return Err(refused(RefusalKind::HeadTooLarge));
        }
        Ok(httparse::Status::Partial) => return Ok(Parsed::Incomplete),
        Err(error) => return Err(refused(explain(window, headers_max, error))),
    };
    let (Some(minor), Some(status), Some(reason)) =
        (response.version, response.code, response.reason)
    else {
        return Err(refused(RefusalKind::InvalidStatusLine));
    };
    let headers: &'h [Header<'b>] = response.headers;
    if !lines_end_in_crlf(&window[..used], headers) {
        let kind = explain_response(&window[..used], headers_max);
        return Err(refused(kind.unwrap_or(RefusalKind::BareLf)));
    }
    if status < 100 {
        return Err(refused(RefusalKind::InvalidStatusLine));
    }
    let version = Version::of_minor(minor);
    let fields = Fields::of_response(headers, version).map_err(refused)?;
    let framing = framing(status, kind, &fields);
    let head = ResponseHead {
        version,
        status,
        reason,
        headers,
        framing,
        keep_alive: status < 200 || (framing != Framing::UntilClose && fields.persists(version)),
        upgrade: fields.upgrade_to(version),
    };
    Ok(Parsed::Complete { head, bytes: used })
}

/// RFC 9112 §6.3, in its order: what can have no body has none, whatever its fields say.
#[inline]
fn framing(status: u16, kind: RequestKind, fields: &Fields<'_>) -> Framing {
    let bodiless = match kind {
        RequestKind::Head => true,
        RequestKind::Connect => matches!(status, 100..=299 | 304),
        RequestKind::Other => matches!(status, 100..=199 | 204 | 304),
    };
    if bodiless { Framing::None } else { fields.framing(Framing::UntilClose) }
}

#[cold]
fn explain(window: &[u8], headers_max: usize, error: httparse::Error) -> RefusalKind {
    let found = explain_response(window, headers_max);
    debug_assert!(found.is_some(), "httparse alone refuses this: {error}");
    found.unwrap_or(RefusalKind::InvalidStatusLine)
}
