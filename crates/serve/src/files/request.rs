//! A request as the files see it, over both versions of HTTP.

use wire::Header;
use wire::h2::Fields;

/// A request for a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRequest<'r> {
    pub(crate) method: &'r str,
    /// Target in origin form, absolute form or `*`; empty with CONNECT.
    pub(crate) target: &'r str,
    pub(crate) fields: RequestFields<'r>,
}

/// Fields of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestFields<'r> {
    Http1(&'r [Header<'r>]),
    Http2(Fields<'r>),
}

impl<'r> FileRequest<'r> {
    pub(crate) fn from_http1(head: &wire::RequestHead<'r, 'r>) -> Self {
        Self { method: head.method, target: head.target, fields: RequestFields::Http1(head.headers) }
    }

    pub(crate) fn from_http2(head: &wire::h2::RequestHead<'r>) -> Self {
        let target = head.path.unwrap_or_default();
        Self { method: head.method, target, fields: RequestFields::Http2(head.fields) }
    }

    /// Calls `use_value` with each value of a field, whose name is in lower case.
    pub(crate) fn for_each(&self, name: &str, mut use_value: impl FnMut(&'r [u8])) {
        match self.fields {
            RequestFields::Http1(headers) => {
                for header in headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)) {
                    use_value(header.value);
                }
            }
            RequestFields::Http2(fields) => {
                for (_, value) in fields.iter().filter(|(candidate, _)| *candidate == name) {
                    use_value(value);
                }
            }
        }
    }

    /// Returns the first value of a field, whose name is in lower case.
    pub(crate) fn get(&self, name: &str) -> Option<&'r [u8]> {
        match self.fields {
            RequestFields::Http1(headers) => wire::field_value(headers, name),
            RequestFields::Http2(fields) => fields.get(name),
        }
    }

    /// Returns whether it is a HEAD request.
    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns whether the list in the field `Accept` names a media type literally.
    pub(crate) fn accepts_literally(&self, media_type: &[u8]) -> bool {
        let mut is_named = false;
        self.for_each("accept", |value| {
            for range in value.split(|&byte| byte == b',') {
                let name = range.split(|&byte| byte == b';').next().unwrap_or_default();
                is_named |= name.trim_ascii().eq_ignore_ascii_case(media_type);
            }
        });
        is_named
    }
}
