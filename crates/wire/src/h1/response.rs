//! Parses the head of a response (RFC 9112 §4), and determines its framing (§6.3).
//!
//! As in `request`, `lines` splits the bytes into lines and tokens.

use super::explain::explain_response;
use super::fields::FieldSemantics;
use super::head::{Framing, HEADERS_CAP, Header, HeaderSlots, Parsed, RequestKind, ResponseHead};
use super::limits::Limits;
use super::lines::{ResponseLines, Unsplit, split_response};
use super::refusal::{Refusal, RefusalKind};

/// Parses the head of a response from the start of `bytes`. The framing of the response depends on the
/// `kind` of its request.
///
/// As with [`parse_request`](super::parse_request), nothing is allocated, the result does not depend
/// on how the bytes arrived, and [`Parsed::Incomplete`] means that there is no error so far. An interim
/// response (1xx) is returned as a head of its own: call again for the next head, and check the number
/// of interim responses with [`Limits::check_interim`].
///
/// # Errors
/// A [`Refusal`], whose status for the waiting client is 502; the connection must be closed.
pub fn parse_response<'h, 'b>(
    bytes: &'b [u8],
    limits: &Limits,
    kind: RequestKind,
    slots: &'h mut HeaderSlots<'b>,
) -> Result<Parsed<ResponseHead<'h, 'b>>, Refusal> {
    // As in `parse_request`, refusals are created where they are found: a `map_err` around the complete
    // function would copy the head.
    let reject = Refusal::from_server;
    let window = &bytes[..bytes.len().min(limits.head_bytes_max)];
    let headers_max = limits.headers_max.min(HEADERS_CAP);
    let ResponseLines { version, status, reason, head_len } = match split_response(window, headers_max, slots)
    {
        Ok(lines) => lines,
        Err(unsplit) => return incomplete_or_error(bytes, window, limits, unsplit).map_err(reject),
    };
    if status < 100 {
        return Err(reject(RefusalKind::InvalidStatusLine));
    }
    let headers: &'h [Header<'b>] = slots;
    let fields = FieldSemantics::from_response(headers, version).map_err(reject)?;
    let framing = framing(status, kind, &fields);
    let head = ResponseHead {
        version,
        status,
        reason,
        headers,
        framing,
        keep_alive: status < 200 || (framing != Framing::UntilClose && fields.is_persistent(version)),
        upgrade: fields.upgrade_to(version),
        has_connection_options: fields.has_connection_options,
        received: &window[..head_len],
    };
    Ok(Parsed::Complete { head, bytes: head_len })
}

/// Determines the framing by RFC 9112 §6.3, in its order: a response that can have no body has
/// none, whatever its fields specify.
#[inline]
fn framing(status: u16, kind: RequestKind, fields: &FieldSemantics<'_>) -> Framing {
    let has_no_body = match kind {
        RequestKind::Head => true,
        RequestKind::Connect => matches!(status, 100..=299 | 304),
        RequestKind::Other => matches!(status, 100..=199 | 204 | 304),
    };
    if has_no_body { Framing::None } else { fields.framing(Framing::UntilClose) }
}

#[cold]
fn incomplete_or_error<'h, 'b>(
    bytes: &[u8],
    window: &[u8],
    limits: &Limits,
    unsplit: Unsplit,
) -> Result<Parsed<ResponseHead<'h, 'b>>, RefusalKind> {
    // Empty lines may precede a request line alone (RFC 9112 §2.2).
    if let [b'\r' | b'\n', ..] = window {
        return Err(RefusalKind::InvalidStatusLine);
    }
    let error = match unsplit {
        Unsplit::InField => None,
        Unsplit::Elsewhere => explain_response(window, limits.headers_max.min(HEADERS_CAP)),
    };
    match error {
        Some(kind) => Err(kind),
        None if bytes.len() >= limits.head_bytes_max => Err(RefusalKind::HeadTooLarge),
        None => Ok(Parsed::Incomplete),
    }
}
