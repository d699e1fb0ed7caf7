//! A request as the files see it, over both versions of HTTP.

use wire::Header;
use wire::h2::Fields;

#[derive(Clone, Copy, Debug)]
pub struct RequestTime {
    /// Time of the core's clock.
    pub now_ns: u64,
    /// Seconds since 1970.
    pub unix_s: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct FileRequest<'r> {
    pub method: &'r str,
    /// Target in origin form, absolute form or `*`; empty with CONNECT.
    pub target: &'r str,
    pub fields: RequestFields<'r>,
}

#[derive(Clone, Copy, Debug)]
pub enum RequestFields<'r> {
    Http1(&'r [Header<'r>]),
    Http2(Fields<'r>),
}

impl<'r> FileRequest<'r> {
    #[inline]
    pub fn from_http1(head: &wire::RequestHead<'r, 'r>) -> Self {
        Self { method: head.method, target: head.target, fields: RequestFields::Http1(head.headers) }
    }

    #[inline]
    pub fn from_http2(head: &wire::h2::RequestHead<'r>) -> Self {
        let target = head.path.unwrap_or_default();
        Self { method: head.method, target, fields: RequestFields::Http2(head.fields) }
    }

    /// Calls `use_value` with each value of a field, whose name is in lower case.
    pub fn for_each(&self, name: &str, mut use_value: impl FnMut(&'r [u8])) {
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
    pub fn get(&self, name: &str) -> Option<&'r [u8]> {
        match self.fields {
            RequestFields::Http1(headers) => wire::field_value(headers, name),
            RequestFields::Http2(fields) => fields.get(name),
        }
    }

    #[inline]
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns the quality that the field `Accept` gives to a media type by its name, in thousandths; 0 without
    /// the name.
    pub fn literal_quality(&self, media_type: &[u8]) -> u16 {
        let mut quality = 0;
        self.for_each("accept", |value| {
            for range in value.split(|&byte| byte == b',') {
                let (name, own) = parse_element(range);
                if name.eq_ignore_ascii_case(media_type) {
                    quality = quality.max(own);
                }
            }
        });
        quality
    }
}

/// Splits an element of a list into its name and its quality in thousandths (RFC 9110 §12.4.2).
pub fn parse_element(element: &[u8]) -> (&[u8], u16) {
    let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
    (name, quality.map_or(1000, parse_quality))
}

/// Parses a quality to thousandths; one that is not valid counts as 0.
fn parse_quality(text: &[u8]) -> u16 {
    let (units, fraction) = match text {
        [units @ (b'0' | b'1')] => (units, &[][..]),
        [units @ (b'0' | b'1'), b'.', fraction @ ..] if fraction.len() <= 3 => (units, fraction),
        _ => return 0,
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let digit = |index: usize| fraction.get(index).map_or(0, |digit| u16::from(digit - b'0'));
    let quality = u16::from(units - b'0') * 1000 + digit(0) * 100 + digit(1) * 10 + digit(2);
    if quality <= 1000 { quality } else { 0 }
}
