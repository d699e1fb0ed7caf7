//! Reading the head of a request (RFC 9112 §2 and §3).
//!
//! httparse cuts the bytes into lines and tokens; what it tolerates and we do not is checked here,
//! and what the fields mean is asked of `fields` and `target`. Nothing is kept between two calls.

use super::explain::{explain_request, overlong_target};
use super::fields::Fields;
use super::head::{Framing, HEADERS_CAP, Header, HeaderSlots, Parsed, RequestHead, Version};
use super::limits::Limits;
use super::refusal::{Refusal, RefusalKind};
use super::target;

/// Reads the head of a request from the start of `bytes`; up to eight empty lines before it are
/// skipped (RFC 9112 §2.2).
///
/// The head borrows from `bytes` and `slots`; nothing is allocated. [`Parsed::Incomplete`] means
/// that all is well so far: see [`head_may_be_complete`](super::head_may_be_complete) for when to
/// ask again. The answer does not depend on how the bytes arrived: what is refused in the end is
/// refused with the same kind at any point before.
///
/// # Errors
/// A [`Refusal`] with the status to answer, after which the connection is to be closed.
pub fn parse_request<'h, 'b>(
    bytes: &'b [u8],
    limits: &Limits,
    slots: &'h mut HeaderSlots<'b>,
) -> Result<Parsed<RequestHead<'h, 'b>>, Refusal> {
    // Where a refusal is found, and not around it all: a head that is made in place is not copied.
    let refused = Refusal::of_client;
    // Nothing beyond the limit is looked at, so the answer cannot depend on how much was received
    // with the head.
    let window = &bytes[..bytes.len().min(limits.head_bytes_max)];
    let skipped = match window {
        [b'\r' | b'\n', ..] => empty_lines(window).map_err(refused)?,
        _ => 0,
    };
    let window = &window[skipped..];
    let headers_max = limits.headers_max.min(HEADERS_CAP);
    let mut request = httparse::Request::new(&mut []);
    let used = match request.parse_with_uninit_headers(window, &mut slots[..headers_max]) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return incomplete(bytes, window, limits).map_err(refused),
        Err(error) => return Err(refused(explain(window, limits, error))),
    };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(refused(RefusalKind::InvalidRequestLine));
    };
    // First, because a part of this head was already refused for it.
    if target.len() > limits.target_bytes_max {
        return Err(refused(RefusalKind::TargetTooLong));
    }
    let headers: &'h [Header<'b>] = request.headers;
    if !lines_end_in_crlf(&window[..used], headers) {
        let kind = explain_request(&window[..used], headers_max);
        return Err(refused(kind.unwrap_or(RefusalKind::BareLf)));
    }
    let version = Version::of_minor(minor);
    let fields = Fields::of_request(headers, version).map_err(refused)?;
    let host = target::authority(method, target, version, fields.host).map_err(refused)?;
    let framing = fields.framing(Framing::None);
    let has_body = !matches!(framing, Framing::None | Framing::Length(0));
    if has_body && method == "CONNECT" {
        return Err(refused(RefusalKind::BodyOnConnect));
    }
    let head = RequestHead {
        method,
        target,
        version,
        headers,
        host,
        framing,
        keep_alive: fields.persists(version),
        expect_continue: fields.expect_continue && has_body && version == Version::Http11,
        upgrade: fields.upgrade_to(version),
    };
    Ok(Parsed::Complete { head, bytes: skipped + used })
}

/// Whether each line of a head that httparse accepted ends in CR LF: httparse takes a bare LF as
/// well.
///
/// A line ends right before the name of the next field, and the last two end the head; names are
/// never empty, so their addresses say where they are. That costs two loads a field, where
/// searching the head again would cost its length.
#[inline]
pub(super) fn lines_end_in_crlf(head: &[u8], headers: &[Header<'_>]) -> bool {
    let start = head.as_ptr() as usize;
    head.ends_with(b"\r\n\r\n")
        && headers.iter().all(|header| {
            let name_at = header.name.as_ptr() as usize - start;
            matches!(head.get(name_at.wrapping_sub(2)..name_at), Some(b"\r\n"))
        })
}

/// Empty lines before a request line that are ignored.
const EMPTY_LINES_MAX: usize = 8;

/// The length of the empty lines that come first; more than [`EMPTY_LINES_MAX`], or half of one, is
/// refused.
#[cold]
fn empty_lines(window: &[u8]) -> Result<usize, RefusalKind> {
    let mut rest = window;
    let mut lines = 0;
    loop {
        rest = match rest {
            [b'\n', ..] => return Err(RefusalKind::BareLf),
            [b'\r', ..] if lines == EMPTY_LINES_MAX => return Err(RefusalKind::EmptyLines),
            [b'\r', b'\n', after @ ..] => after,
            // Only a CR is there yet: it is skipped as well, so that the parser sees nothing and
            // waits.
            [b'\r'] => &[],
            [b'\r', ..] => return Err(RefusalKind::BareCr),
            _ => return Ok(window.len() - rest.len()),
        };
        lines += 1;
    }
}

#[cold]
fn incomplete<'h, 'b>(
    bytes: &[u8],
    window: &[u8],
    limits: &Limits,
) -> Result<Parsed<RequestHead<'h, 'b>>, RefusalKind> {
    if overlong_target(window, limits.target_bytes_max) {
        return Err(RefusalKind::TargetTooLong);
    }
    if bytes.len() >= limits.head_bytes_max {
        return Err(RefusalKind::HeadTooLarge);
    }
    Ok(Parsed::Incomplete)
}

#[cold]
fn explain(window: &[u8], limits: &Limits, error: httparse::Error) -> RefusalKind {
    if overlong_target(window, limits.target_bytes_max) {
        return RefusalKind::TargetTooLong;
    }
    let found = explain_request(window, limits.headers_max.min(HEADERS_CAP));
    debug_assert!(found.is_some(), "httparse alone refuses this: {error}");
    found.unwrap_or(RefusalKind::InvalidRequestLine)
}
