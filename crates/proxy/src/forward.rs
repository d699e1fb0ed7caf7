//! Rewriting of heads: hop-by-hop fields are removed, fields with the message's origin are added.
//! Pure: fields in, bytes out. `relay` handles bodies, `route` handles routes.

mod line_writer;
mod request;
mod response;
mod trailers;

pub(crate) use request::{
    CookieChanges, Origin, RequestParts, max_forwards, origin_form, uses_max_forwards, write_request,
};
pub(crate) use response::{
    ClientFraming, HSTS_FIELD, Persistence, ResponseParts, client_framing, write_response,
};
pub(crate) use trailers::is_trailer_forwarded;

use wire::Header;

use crate::field_names::matches_removal;
use crate::plan::{RouteChange, Template, Text};
use crate::template::{Escape, Values};

/// Effect of a route's changes on one field of a message.
enum FieldAction {
    Keep,
    Drop,
}

/// Applies a route's changes to one field; `is_request` selects the changes of requests or
/// responses.
fn field_action(changes: &[RouteChange], name: &str, is_request: bool) -> FieldAction {
    for change in changes {
        let is_dropped = match (change, is_request) {
            (RouteChange::SetRequestHeader(pattern, _), true)
            | (RouteChange::SetResponseHeader(pattern, _), false) => pattern.eq_ignore_ascii_case(name),
            (RouteChange::RemoveRequestHeader(pattern), true)
            | (RouteChange::RemoveResponseHeader(pattern), false) => matches_removal(pattern, name),
            _ => false,
        };
        if is_dropped {
            return FieldAction::Drop;
        }
    }
    FieldAction::Keep
}

/// Returns whether the proxy writes its own value of this field: not if a route sets or removes it.
fn writes_own_field(changes: &[RouteChange], name: &str, is_request: bool) -> bool {
    changes.is_empty() || matches!(field_action(changes, name, is_request), FieldAction::Keep)
}

pub(crate) fn writes_own_response_field(changes: &[RouteChange], name: &str) -> bool {
    writes_own_field(changes, name, false)
}

/// Returns the value of a field as it is sent: `Content-Length` without leading zeros, which some
/// implementations read as octal; any other field unchanged.
#[inline]
fn forwarded_value<'b>(header: &Header<'b>) -> &'b [u8] {
    match header.value {
        [b'0', _, ..] if header.name.eq_ignore_ascii_case("content-length") => {
            let zeros = header.value.iter().take_while(|&&digit| digit == b'0').count();
            &header.value[zeros.min(header.value.len() - 1)..]
        }
        value => value,
    }
}

/// Writes the fields that the changes set or add. The `Host` of a request is written elsewhere,
/// before all others.
fn write_set_and_added(
    changes: &[RouteChange],
    is_request: bool,
    values: Option<&dyn Values>,
    out: &mut Vec<u8>,
) {
    for change in changes {
        match (change, is_request) {
            (RouteChange::SetRequestHeader(name, _), true) if name.eq_ignore_ascii_case("host") => {}
            (
                RouteChange::SetRequestHeader(name, value) | RouteChange::AddRequestHeader(name, value),
                true,
            )
            | (
                RouteChange::SetResponseHeader(name, value) | RouteChange::AddResponseHeader(name, value),
                false,
            ) => match (value, values) {
                (Text::Literal(text), _) => wire::encode::field(out, name, text.as_bytes()),
                (Text::Template(template), Some(values)) => write_template(name, template, values, out),
                (Text::Template(_), None) => {}
            },
            _ => {}
        }
    }
}

/// Writes a field with the values of its text. A text without a byte, or that is too long, is no field.
#[cold]
fn write_template(name: &str, template: &Template, values: &dyn Values, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    let value_start = out.len();
    let is_written = template.render(values, Escape::Field, out).is_ok() && out.len() > value_start;
    match is_written {
        true => out.extend_from_slice(b"\r\n"),
        false => out.truncate(start),
    }
}

/// Writes the fields that a route sets or adds in the proxy's own responses.
pub(crate) fn write_response_changes(
    changes: &[RouteChange],
    values: Option<&dyn Values>,
    out: &mut Vec<u8>,
) {
    write_set_and_added(changes, false, values, out);
}
