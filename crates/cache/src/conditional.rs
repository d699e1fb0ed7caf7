//! Answers from a stored response to conditional and range requests (RFC 9110 §13, §14), and the fields of a validation
//! (RFC 9111 §4.3.1). Pure.

use content::conditions::{Precondition, Validators, evaluate, range_applies};
use content::ranges::{self, ByteRange, RequestedRanges};
use content::request::{FileRequest, RequestFields};
use wire::Header;

use crate::date::parse_date;
use crate::object::Object;
use crate::storable::Storable;
use crate::time::UnixTime;

/// Answer of a stored response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredAnswer {
    /// The stored status and body.
    Complete,
    /// 304 with the stored fields, without those that describe content.
    NotModified,
    /// 206 with one range, `Content-Range` and its length.
    Part { range: ByteRange, content_range: String },
    /// 416 with `Content-Range: bytes */LENGTH`.
    Unsatisfiable { content_range: String },
    /// 412.
    PreconditionFailed,
}

/// Decides on the answer to a request, which is a GET or HEAD with any conditions and ranges.
pub fn answer(object: &Object, method: &str, headers: &[Header<'_>], now: UnixTime) -> StoredAnswer {
    // Conditions count for the status that a server would evaluate them with (RFC 9110 §13.2.1).
    if object.head().status() != 200 {
        return StoredAnswer::Complete;
    }
    let request = FileRequest { method, target: "", fields: RequestFields::Http1(headers) };
    let validators = validators(object);
    match evaluate(&request, with_date(validators, object, headers)) {
        Precondition::NotModified => return StoredAnswer::NotModified,
        Precondition::Failed => return StoredAnswer::PreconditionFailed,
        Precondition::Met => {}
    }
    let (Some(value), Some(size)) = (wire::field_value(headers, "range"), object.body_bytes()) else {
        return StoredAnswer::Complete;
    };
    // Without the status 206, `Content-Range` has no meaning, but two of them in one response have none either.
    if method != "GET"
        || object.head().get("content-range").is_some()
        || !range_applies(&request, validators, now.as_seconds())
    {
        return StoredAnswer::Complete;
    }
    match ranges::parse(value, size) {
        RequestedRanges::Complete => StoredAnswer::Complete,
        RequestedRanges::Unsatisfiable => {
            StoredAnswer::Unsatisfiable { content_range: format!("bytes */{size}") }
        }
        RequestedRanges::Parts(parts) => match parts[..] {
            [range] => StoredAnswer::Part {
                range,
                content_range: format!("bytes {}-{}/{size}", range.start, range.end - 1),
            },
            // A server may ignore the field (RFC 9110 §14.2): several parts are sent as the complete response.
            _ => StoredAnswer::Complete,
        },
    }
}

/// Returns the fields of a request that validates a stored response: `If-None-Match` and `If-Modified-Since`.
pub fn validation_fields(storable: &Storable) -> impl Iterator<Item = (&'static str, &[u8])> {
    let etag = storable.etag.as_deref().map(|etag| ("If-None-Match", etag));
    let modified = storable.last_modified.as_deref().map(|date| ("If-Modified-Since", date));
    etag.into_iter().chain(modified)
}

fn validators(object: &Object) -> Validators<'_> {
    let storable = object.storable();
    Validators {
        etag: storable.etag.as_deref(),
        modified_s: storable.last_modified.as_deref().and_then(parse_date),
    }
}

/// Adds `Date` for `If-Modified-Since`, if the response has no `Last-Modified` (RFC 9111 §4.3.2).
fn with_date<'v>(validators: Validators<'v>, object: &Object, headers: &[Header<'_>]) -> Validators<'v> {
    let is_since_only = wire::field_value(headers, "if-unmodified-since").is_none();
    let date_s = is_since_only.then_some(object.storable().date_s);
    Validators { modified_s: validators.modified_s.or(date_s), ..validators }
}
