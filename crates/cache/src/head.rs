//! Heads as they are stored: the status, and the end-to-end fields (RFC 9111 §3.1, §3.2). Pure.

use wire::Header;

use crate::directives::Directives;

/// Fields that never belong to a stored response besides those of the connection: the framing is that of each
/// response, the age is computed, and credentials of proxies are for one client.
const NEVER_STORED: [&str; 6] = [
    "age",
    "content-length",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "transfer-encoding",
];

/// Fields that a 304 does not change: they describe the stored content (RFC 9111 §3.2).
const NOT_UPDATED: [&str; 5] =
    ["content-encoding", "content-length", "content-range", "content-type", "transfer-encoding"];

/// The status and the fields of a stored response.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredHead {
    status: u16,
    /// Lines `Name: value`, each with CR and LF.
    fields: Box<[u8]>,
}

impl std::fmt::Debug for StoredHead {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {:?}", self.status, String::from_utf8_lossy(&self.fields))
    }
}

impl StoredHead {
    /// Keeps the fields that may be stored. `Set-Cookie` is left out, if the response was stored in spite of it.
    pub fn new(status: u16, headers: &[Header<'_>]) -> Self {
        let limited = limited_fields(headers);
        let mut fields = Vec::with_capacity(headers.iter().map(|header| line_bytes(header)).sum());
        for header in headers.iter().filter(|header| is_stored(header.name, &limited)) {
            append_line(&mut fields, header.name, header.value);
        }
        Self { status, fields: fields.into_boxed_slice() }
    }

    /// Takes lines that [`Self::field_lines`] returned. `None`: they are not such lines.
    pub(crate) fn from_lines(status: u16, lines: &[u8]) -> Option<Self> {
        let head = Self { status, fields: lines.into() };
        let length: usize = head.fields().map(|(name, value)| name.len() + value.len() + 4).sum();
        (length == lines.len()).then_some(head)
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the fields as lines `Name: value`, each with CR and LF.
    pub fn field_lines(&self) -> &[u8] {
        &self.fields
    }

    /// Iterates over names and values.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        Lines { rest: &self.fields }
    }

    /// Returns the value of the first field with a name, ignoring case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields().find(|(candidate, _)| candidate.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the fields as headers.
    pub fn headers(&self) -> Vec<Header<'_>> {
        self.fields().map(|(name, value)| Header { name, value }).collect()
    }

    /// Returns the head with the fields of a 304, each in place of those with its name (RFC 9111 §3.2).
    #[must_use]
    pub fn update_by_304(&self, headers: &[Header<'_>]) -> Self {
        let limited = limited_fields(headers);
        let is_update = |name: &str| {
            is_stored(name, &limited) && !NOT_UPDATED.iter().any(|kept| name.eq_ignore_ascii_case(kept))
        };
        let is_replaced = |name: &str| {
            headers.iter().any(|header| header.name.eq_ignore_ascii_case(name) && is_update(header.name))
        };
        let mut fields = Vec::with_capacity(self.fields.len());
        for (name, value) in self.fields().filter(|(name, _)| !is_replaced(name)) {
            append_line(&mut fields, name, value);
        }
        for header in headers.iter().filter(|header| is_update(header.name)) {
            append_line(&mut fields, header.name, header.value);
        }
        Self { status: self.status, fields: fields.into_boxed_slice() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.fields.len()
    }
}

fn line_bytes(header: &Header<'_>) -> usize {
    header.name.len() + header.value.len() + 4
}

fn append_line(fields: &mut Vec<u8>, name: &str, value: &[u8]) {
    fields.extend_from_slice(name.as_bytes());
    fields.extend_from_slice(b": ");
    fields.extend_from_slice(value);
    fields.extend_from_slice(b"\r\n");
}

/// Returns the names of fields that `Connection`, `no-cache="…"` and `private="…"` keep from being stored.
fn limited_fields<'h>(headers: &[Header<'h>]) -> Vec<&'h [u8]> {
    let mut names: Vec<&[u8]> = wire::connection_options(headers).collect();
    for header in headers.iter().filter(|header| header.name.eq_ignore_ascii_case("cache-control")) {
        for directive in (Directives { rest: header.value }) {
            if (directive.is("no-cache") || directive.is("private"))
                && let Some(value) = directive.value
            {
                names.extend(value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii));
            }
        }
    }
    names
}

fn is_stored(name: &str, limited: &[&[u8]]) -> bool {
    !wire::is_hop_by_hop(name)
        && !name.eq_ignore_ascii_case("set-cookie")
        && !NEVER_STORED.iter().any(|never| name.eq_ignore_ascii_case(never))
        && !limited.iter().any(|limited| name.as_bytes().eq_ignore_ascii_case(limited))
}

/// Iterator over `Name: value` lines; it ends at a line that is none.
struct Lines<'l> {
    rest: &'l [u8],
}

impl<'l> Iterator for Lines<'l> {
    type Item = (&'l str, &'l [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.rest.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, after) = (&self.rest[..end], &self.rest[end + 2..]);
        let colon = line.windows(2).position(|pair| pair == b": ")?;
        self.rest = after;
        Some((std::str::from_utf8(&line[..colon]).ok()?, &line[colon + 2..]))
    }
}
