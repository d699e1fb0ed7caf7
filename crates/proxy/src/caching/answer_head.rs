//! The head of the answer to a request from a stored response. Pure.

use std::ops::Range;

use cache::{Object, StoredAnswer, UnixTime, answer};
use server_shell::date::{HTTP_DATE_BYTES, RenderedSecond};
use wire::{Framing, Header};

use super::StatusField;

/// Fields of a stored head that describe its content, which 304, 412 and 416 do not have.
const CONTENT_FIELDS: [&str; 4] = ["content-type", "content-encoding", "content-language", "content-range"];

/// Answer to a request: what differs from the stored response.
pub(crate) struct AnswerHead {
    pub(crate) status: u16,
    /// Part of the content; `None`: all of it.
    pub(crate) range: Option<Range<u64>>,
    /// Length of the content; `None`: it still arrives.
    length: Option<u64>,
    has_content: bool,
    length_text: String,
    content_range: Option<String>,
    age: String,
    date: Option<[u8; HTTP_DATE_BYTES]>,
    cache_status: Option<StatusField>,
}

impl AnswerHead {
    /// Evaluates the conditions and ranges of a request.
    pub(crate) fn new(
        object: &Object,
        (method, headers): (&str, &[Header<'_>]),
        cache_status: Option<StatusField>,
        now: UnixTime,
    ) -> Self {
        let (status, range, content_range) = match answer(object, method, headers, now) {
            StoredAnswer::Complete => (object.head().status(), None, None),
            StoredAnswer::NotModified => (304, None, None),
            StoredAnswer::PreconditionFailed => (412, None, None),
            StoredAnswer::Unsatisfiable { content_range } => (416, None, Some(content_range)),
            StoredAnswer::Part { range, content_range } => {
                (206, Some(range.start..range.end), Some(content_range))
            }
        };
        let length = match &range {
            Some(range) => Some(range.end - range.start),
            None if matches!(status, 304 | 412 | 416) => Some(0),
            None => object.body_bytes(),
        };
        // A response without it has that of its arrival (RFC 9110 §6.6.1).
        let has_date = object.head().get("date").is_some();
        Self {
            status,
            range,
            length,
            has_content: !matches!(status, 204 | 304 | 412 | 416) && method != "HEAD",
            length_text: length.map(|length| length.to_string()).unwrap_or_default(),
            content_range,
            age: object.storable().age_s(now).to_string(),
            date: (!has_date).then(|| http_date_of(object.storable().date_s)),
            cache_status,
        }
    }

    pub(crate) fn fields<'a>(&'a self, object: &'a Object) -> Vec<Header<'a>> {
        let mut fields = object.head().headers();
        if matches!(self.status, 304 | 412 | 416) {
            fields.retain(|field| !CONTENT_FIELDS.iter().any(|name| field.name.eq_ignore_ascii_case(name)));
        }
        let mut push = |name: &'static str, value: Option<&'a [u8]>| {
            fields.extend(value.map(|value| Header { name, value }));
        };
        let has_length = self.length.is_some() && !matches!(self.status, 204 | 304);
        push("Content-Length", has_length.then_some(self.length_text.as_bytes()));
        push("Content-Range", self.content_range.as_deref().map(str::as_bytes));
        push("Date", self.date.as_ref().map(<[u8; HTTP_DATE_BYTES]>::as_slice));
        push("Age", Some(self.age.as_bytes()));
        push("Cache-Status", self.cache_status.as_ref().map(StatusField::as_bytes));
        fields
    }

    pub(crate) fn framing(&self) -> Framing {
        match self.length {
            _ if !self.has_content => Framing::None,
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        }
    }
}

/// Returns the second in the form of `Date`.
fn http_date_of(unix_s: u64) -> [u8; HTTP_DATE_BYTES] {
    let mut second = RenderedSecond::default();
    second.set_second(unix_s);
    *second.http()
}
