//! Parses the head of a request (RFC 9112 §2 and §3).
//!
//! `lines` splits the bytes into lines and tokens; `fields` and `target` interpret the fields. Nothing is kept between two
//! calls.

use super::explain::{explain_request, is_target_too_long};
use super::fields::FieldSemantics;
use super::head::{Framing, HEADERS_CAP, Header, HeaderSlots, Parsed, RequestHead, Version};
use super::limits::Limits;
use super::lines::{RequestLines, Unsplit, split_request};
use super::refusal::{Refusal, RefusalKind};
use super::target;

/// Parses the head of a request from the start of `bytes`; up to eight empty lines before it are
/// skipped (RFC 9112 §2.2).
///
/// The head borrows from `bytes` and `slots`; nothing is allocated. [`Parsed::Incomplete`] means
/// that there is no error so far: see [`head_may_be_complete`](super::head_may_be_complete) for
/// when to call again. The result does not depend on how the bytes arrived: a refusal has the same
/// kind at any earlier point.
///
/// # Errors
/// A [`Refusal`] with the status of the response, after which the connection must be closed.
pub fn parse_request<'h, 'b>(
    bytes: &'b [u8],
    limits: &Limits,
    slots: &'h mut HeaderSlots<'b>,
) -> Result<Parsed<RequestHead<'h, 'b>>, Refusal> {
    // Refusals are created where they are found, and not around the whole function: so a head made
    // in place is not copied.
    let reject = Refusal::from_client;
    // Nothing beyond the limit is parsed, so the result cannot depend on how much was received with
    // the head.
    let window = &bytes[..bytes.len().min(limits.head_bytes_max)];
    let empty_len = match window {
        [b'\r' | b'\n', ..] => leading_empty_lines_len(window).map_err(reject)?,
        _ => 0,
    };
    let window = &window[empty_len..];
    let headers_max = limits.headers_max.min(HEADERS_CAP);
    let RequestLines { method, target, version, head_len } = match split_request(window, headers_max, slots) {
        Ok(lines) => lines,
        Err(unsplit) => return incomplete_or_error(bytes, window, limits, unsplit).map_err(reject),
    };
    // This check is first, because a part of this head was already refused for it.
    if target.len() > limits.target_bytes_max {
        return Err(reject(RefusalKind::TargetTooLong));
    }
    let headers: &'h [Header<'b>] = slots;
    let fields = FieldSemantics::from_request(headers, version).map_err(reject)?;
    let host = target::request_host(method, target, version, fields.host).map_err(reject)?;
    let framing = fields.framing(Framing::None);
    let has_body = !matches!(framing, Framing::None | Framing::Length(0));
    if has_body && method == "CONNECT" {
        return Err(reject(RefusalKind::BodyOnConnect));
    }
    let head = RequestHead {
        method,
        target,
        version,
        headers,
        host,
        framing,
        keep_alive: fields.is_persistent(version),
        expect_continue: fields.expect_continue && has_body && version == Version::Http11,
        upgrade: fields.upgrade_to(version),
        has_connection_options: fields.has_connection_options,
        received: &window[..head_len],
    };
    Ok(Parsed::Complete { head, bytes: empty_len + head_len })
}

/// Maximum number of ignored empty lines before a request line.
const EMPTY_LINES_MAX: usize = 8;

/// Returns the length of the leading empty lines; more than [`EMPTY_LINES_MAX`], or half of one, is
/// an error.
#[cold]
fn leading_empty_lines_len(window: &[u8]) -> Result<usize, RefusalKind> {
    let mut rest = window;
    let mut lines = 0;
    loop {
        rest = match rest {
            [b'\n', ..] => return Err(RefusalKind::BareLf),
            [b'\r', ..] if lines == EMPTY_LINES_MAX => return Err(RefusalKind::EmptyLines),
            [b'\r', b'\n', after @ ..] => after,
            // Only a CR has arrived yet: it is skipped as well, so that the parser gets nothing and
            // waits.
            [b'\r'] => &[],
            [b'\r', ..] => return Err(RefusalKind::BareCr),
            _ => return Ok(window.len() - rest.len()),
        };
        lines += 1;
    }
}

#[cold]
fn incomplete_or_error<'h, 'b>(
    bytes: &[u8],
    window: &[u8],
    limits: &Limits,
    unsplit: Unsplit,
) -> Result<Parsed<RequestHead<'h, 'b>>, RefusalKind> {
    if is_target_too_long(window, limits.target_bytes_max) {
        return Err(RefusalKind::TargetTooLong);
    }
    let error = match unsplit {
        Unsplit::InField => None,
        Unsplit::Elsewhere => explain_request(window, limits.headers_max.min(HEADERS_CAP)),
    };
    match error {
        Some(kind) => Err(kind),
        None if bytes.len() >= limits.head_bytes_max => Err(RefusalKind::HeadTooLarge),
        None => Ok(Parsed::Incomplete),
    }
}
