//! The cookies of a request (RFC 6265 §4.2). Pure.

use wire::Header;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) pair: &'a [u8],
}

/// Returns the cookies of a request, in order.
pub(crate) fn cookies<'b>(headers: &[Header<'b>]) -> impl Iterator<Item = Cookie<'b>> {
    headers
        .iter()
        .filter(|header| is_cookie_field(header.name))
        .flat_map(|header| cookies_in_field(header.value))
}

pub(crate) fn is_cookie_field(name: &str) -> bool {
    name.len() == 6 && name.eq_ignore_ascii_case("cookie")
}

pub(crate) fn cookies_in_field(value: &[u8]) -> impl Iterator<Item = Cookie<'_>> {
    value.split(|&byte| byte == b';').map(|pair| {
        let pair = pair.trim_ascii();
        let (name, value) = split_at_byte(pair, b'=').unwrap_or((b"", pair));
        Cookie { name: name.trim_ascii(), value: value.trim_ascii(), pair }
    })
}

pub(crate) fn split_at_byte(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(byte, text)?;
    Some((&text[..at], &text[at + 1..]))
}
