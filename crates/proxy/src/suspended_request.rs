//! A request that waits before its action, and keeps its head: the buffer that it came in serves others meanwhile.

use wire::{Header, HeaderSlots, Limits, Parsed, RequestHead, Version, encode};

/// Head of a request that waits, with what it needs to go on.
#[derive(Debug)]
pub(crate) struct SuspendedRequest {
    /// Head of the request as it was received, in HTTP/1.1.
    pub(crate) head: Vec<u8>,
    /// The target in the form in which it is forwarded.
    pub(crate) target: Box<str>,
    pub(crate) is_plain: bool,
}

impl SuspendedRequest {
    pub(crate) fn new(head: &RequestHead<'_, '_>, target: &str, is_plain: bool) -> Self {
        Self { head: written_head(head), target: target.into(), is_plain }
    }

    /// Returns the fields of the head.
    pub(crate) fn headers<'h, 'b>(&'b self, slots: &'h mut HeaderSlots<'b>) -> &'h [Header<'b>] {
        let limits = Limits { head_bytes_max: usize::MAX, ..Limits::default() };
        match wire::parse_request(&self.head, &limits, slots) {
            Ok(Parsed::Complete { head, .. }) => head.headers,
            // It was accepted before.
            _ => &[],
        }
    }
}

/// Writes a head as it was received. It is not longer than that one.
fn written_head(head: &RequestHead<'_, '_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let version: &[u8] = match head.version {
        Version::Http10 => b" HTTP/1.0\r\n",
        Version::Http11 => b" HTTP/1.1\r\n",
    };
    for part in [head.method.as_bytes(), b" ", head.target.as_bytes(), version] {
        out.extend_from_slice(part);
    }
    for header in head.headers {
        for part in [header.name.as_bytes(), b":", header.value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    encode::end_of_head(&mut out);
    out
}
