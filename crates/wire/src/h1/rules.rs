//! Rules for intermediaries: hop-by-hop fields, and finding a field.
//!
//! It reads parsed fields; it neither removes nor writes any.

use super::fields::name_is;
use super::head::Header;

/// Returns the value of the first field with this name, ignoring case.
pub fn field_value<'b>(headers: &[Header<'b>], name: &str) -> Option<&'b [u8]> {
    headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// Does the same as [`field_value`] for a name in lower case whose length is known, which is faster where each request
/// has the field.
#[inline]
pub fn known_field_value<'b, const N: usize>(headers: &[Header<'b>], lower: &[u8; N]) -> Option<&'b [u8]> {
    headers.iter().find(|header| name_is(header.name, lower)).map(|header| header.value)
}

/// Returns every option of every `Connection` field: `close`, `keep-alive`, `upgrade`, or the name
/// of a field that is only for this hop (RFC 9110 §7.6.1). Trimmed, never empty, in the sender's
/// case.
///
/// An intermediary drops the named fields. But a peer must not make it drop fields that it relies
/// on itself: `Host`, `Content-Length` and the like stay whatever the list contains.
pub fn connection_options<'h, 'b: 'h>(headers: &'h [Header<'b>]) -> impl Iterator<Item = &'b [u8]> + 'h {
    headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("connection"))
        .flat_map(|header| list_members(header.value))
}

/// Returns true if a field with this name, in any case, is for this hop only and never forwarded as
/// it is (RFC 9110 §7.6.1).
#[inline]
pub fn is_hop_by_hop(name: &str) -> bool {
    // By length first: this runs for each field of each forwarded message, and most lengths have no
    // match.
    let candidate = match name.len() {
        2 => "te",
        7 => match name.as_bytes()[0] | 0x20 {
            b'u' => "upgrade",
            _ => "trailer",
        },
        10 => match name.as_bytes()[0] | 0x20 {
            b'c' => "connection",
            _ => "keep-alive",
        },
        16 => "proxy-connection",
        17 => "transfer-encoding",
        _ => return false,
    };
    name.eq_ignore_ascii_case(candidate)
}

/// Returns the members of a comma-separated list, trimmed, without the empty ones (RFC 9110
/// §5.6.1).
pub(super) fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}
