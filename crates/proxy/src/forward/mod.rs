//! Rewriting heads on their way: what ends at this hop goes, what says where a message came from
//! comes. Pure: fields in, bytes out. Bodies are `relay`'s, routes are `route`'s.

mod identity;
mod request;
mod response;
mod trailers;

pub(crate) use identity::{has_underscore, is_identity};
pub(crate) use request::{
    Origin, RequestParts, counts_hops, max_forwards, origin_form, write_request,
};
pub(crate) use response::{
    ClientFraming, Persistence, ResponseParts, client_framing, write_response,
};
pub(crate) use trailers::trailer_goes_on;

use wire::Header;

use crate::plan::Change;

/// What the changes of a route say about one field of a message.
enum Verdict {
    Keep,
    Drop,
}

/// Whether a field survives the changes; `of_request` says which of them count.
fn judge(changes: &[Change], name: &str, of_request: bool) -> Verdict {
    for change in changes {
        match (change, of_request) {
            (Change::SetRequestHeader(named, _) | Change::RemoveRequestHeader(named), true)
            | (Change::SetResponseHeader(named, _) | Change::RemoveResponseHeader(named), false)
                if named.eq_ignore_ascii_case(name) =>
            {
                return Verdict::Drop;
            }
            _ => {}
        }
    }
    Verdict::Keep
}

/// Whether the proxy writes this field of its own: not if a route sets or removes it.
fn is_ours(changes: &[Change], name: &str, of_request: bool) -> bool {
    changes.is_empty() || matches!(judge(changes, name, of_request), Verdict::Keep)
}

/// Whether the proxy writes this field of an answer of its own.
pub(crate) fn answers_with(changes: &[Change], name: &str) -> bool {
    is_ours(changes, name, false)
}

/// The value of a field as it is sent: a `Content-Length` without leading zeros, which some read as
/// octal; any other as it came.
#[inline]
fn sent_value<'b>(header: &Header<'b>) -> &'b [u8] {
    match header.value {
        [b'0', _, ..] if header.name.eq_ignore_ascii_case("content-length") => {
            let zeros = header.value.iter().take_while(|&&digit| digit == b'0').count();
            &header.value[zeros.min(header.value.len() - 1)..]
        }
        value => value,
    }
}

/// Writes the fields that the changes set or add; `Host` of a request has its place before them.
fn write_added(changes: &[Change], of_request: bool, out: &mut Vec<u8>) {
    for change in changes {
        match (change, of_request) {
            (Change::SetRequestHeader(name, _), true) if name.eq_ignore_ascii_case("host") => {}
            (
                Change::SetRequestHeader(name, value) | Change::AddRequestHeader(name, value),
                true,
            )
            | (
                Change::SetResponseHeader(name, value) | Change::AddResponseHeader(name, value),
                false,
            ) => wire::encode::field(out, name, value.as_bytes()),
            _ => {}
        }
    }
}

/// Writes what a route sets or adds on an answer of our own.
pub(crate) fn write_response_changes(changes: &[Change], out: &mut Vec<u8>) {
    write_added(changes, false, out);
}

/// Whether a `Connection` field names this one, so that it ends at this hop. What the framing and
/// the routing rely on cannot be named away (RFC 9110 §7.6.1).
fn is_named_away(headers: &[Header<'_>], name: &str) -> bool {
    const KEPT: [&str; 3] = ["host", "content-length", "transfer-encoding"];
    wire::connection_options(headers).any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
        && !KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name))
}

/// Whether any `Connection` field says more than `close` or `keep-alive`.
fn has_named_fields(headers: &[Header<'_>]) -> bool {
    wire::connection_options(headers).any(|option| {
        !option.eq_ignore_ascii_case(b"close") && !option.eq_ignore_ascii_case(b"keep-alive")
    })
}
