//! Heads of requests with templates, and heads of responses that are inspected.

use wire::h2::{FieldEncoder, ResponseHead};

use crate::client::request_buffer::RequestBuffer;
use crate::inspection::{Inspection, ResponseSink};
use crate::plan::{RenderedRequest, RequestTemplate};

/// Encodes the head of a request with templates.
pub(super) fn encode_rendered(
    encoder: &mut FieldEncoder<'_>,
    request: &RenderedRequest,
    template: &RequestTemplate,
    buffer: &RequestBuffer,
) {
    let scheme = request.url.authority.scheme.name();
    // Templates of a target are rendered as visible ASCII.
    let target = std::str::from_utf8(buffer.part(0)).unwrap_or("/");
    encoder.request(&request.method, Some(scheme), Some(&request.authority), Some(target));
    for (index, (name, _)) in request.fields.iter().enumerate() {
        if !name.eq_ignore_ascii_case("host") {
            encoder.field_without_index(name, buffer.part(index + 1));
        }
    }
    let cookies = buffer.part(request.fields.len() + 1);
    if template.has_cookies && !cookies.is_empty() {
        encoder.field_without_index("cookie", cookies);
    }
    if let Some(length) = request.rendered_content_length(&buffer.body) {
        let mut digits = itoa::Buffer::new();
        encoder.field("content-length", digits.format(length).as_bytes());
    }
}

pub(super) fn inspect_head(inspection: &mut Inspection<'_>, head: &ResponseHead<'_>) {
    if let Some(length) = head.content_length {
        let mut digits = itoa::Buffer::new();
        inspection.field("content-length", digits.format(length).as_bytes());
    }
    head.fields.iter().for_each(|(name, value)| inspection.field(name, value));
}
