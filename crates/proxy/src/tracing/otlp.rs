//! Spans in the form of OTLP (opentelemetry-proto 1.x, `trace.proto`), encoded field by field: messages are appended to a
//! batch whose capacity stays. Pure.

/// Numbers of the fields of `Span`.
mod span_field {
    pub(super) const TRACE_ID: u8 = 1;
    pub(super) const SPAN_ID: u8 = 2;
    pub(super) const PARENT_SPAN_ID: u8 = 4;
    pub(super) const NAME: u8 = 5;
    pub(super) const KIND: u8 = 6;
    pub(super) const START: u8 = 7;
    pub(super) const END: u8 = 8;
    pub(super) const ATTRIBUTES: u8 = 9;
    pub(super) const STATUS: u8 = 15;
}

/// Numbers of the fields of the messages around spans.
const RESOURCE_SPANS: u8 = 1;
const RESOURCE: u8 = 1;
const SCOPE_SPANS: u8 = 2;
const SCHEMA_URL: u8 = 3;
const SCOPE: u8 = 1;
/// Number of the field with a span in `ScopeSpans`.
const SPANS: u8 = 2;
/// Version of the names of attributes.
const SEMANTIC_CONVENTIONS: &str = "https://opentelemetry.io/schemas/1.27.0";
const STATUS_CODE: u8 = 3;
const STATUS_ERROR: u64 = 2;

/// Side of a call that a span describes (`SpanKind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AttributeValue<'a> {
    Text(&'a str),
    /// Bytes of a peer, of which those that are no UTF-8 are replaced: others would make the batch invalid.
    Bytes(&'a [u8]),
    Number(u64),
}

/// Beginning of a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanHead<'a> {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    /// 0: the first span of its trace.
    pub(super) parent_id: u64,
    pub(super) name: &'a [&'a str],
    pub(super) kind: SpanKind,
    pub(super) start_unix_ns: u64,
    pub(super) end_unix_ns: u64,
}

/// A span that is being appended to a batch.
pub(super) struct SpanWriter<'b> {
    out: &'b mut Vec<u8>,
    length_at: usize,
}

impl<'b> SpanWriter<'b> {
    pub(super) fn begin(out: &'b mut Vec<u8>, head: &SpanHead<'_>) -> Self {
        let length_at = begin_message(out, SPANS);
        bytes_field(out, span_field::TRACE_ID, &head.trace_id.to_be_bytes());
        bytes_field(out, span_field::SPAN_ID, &head.span_id.to_be_bytes());
        if head.parent_id != 0 {
            bytes_field(out, span_field::PARENT_SPAN_ID, &head.parent_id.to_be_bytes());
        }
        let name_at = begin_message(out, span_field::NAME);
        head.name.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        end_message(out, name_at);
        number_field(out, span_field::KIND, head.kind as u64);
        fixed_field(out, span_field::START, head.start_unix_ns);
        fixed_field(out, span_field::END, head.end_unix_ns);
        Self { out, length_at }
    }

    pub(super) fn attribute(&mut self, key: &str, value: AttributeValue<'_>) {
        attribute_field(self.out, span_field::ATTRIBUTES, key, value);
    }

    /// Marks the span as failed.
    pub(super) fn error(&mut self) {
        let at = begin_message(self.out, span_field::STATUS);
        number_field(self.out, STATUS_CODE, STATUS_ERROR);
        end_message(self.out, at);
    }

    pub(super) fn end(self) {
        end_message(self.out, self.length_at);
    }
}

/// Returns the request of an export (`ExportTraceServiceRequest`) with batches of encoded spans.
pub(super) fn export_request<'a>(
    resource: &[(Box<str>, Box<str>)],
    batches: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let request_at = begin_message(&mut out, RESOURCE_SPANS);
    let resource_at = begin_message(&mut out, RESOURCE);
    for (key, value) in resource {
        attribute_field(&mut out, 1, key, AttributeValue::Text(value));
    }
    end_message(&mut out, resource_at);
    let spans_at = begin_message(&mut out, SCOPE_SPANS);
    let scope_at = begin_message(&mut out, SCOPE);
    bytes_field(&mut out, 1, b"weir");
    bytes_field(&mut out, 2, env!("CARGO_PKG_VERSION").as_bytes());
    end_message(&mut out, scope_at);
    batches.for_each(|batch| out.extend_from_slice(batch));
    end_message(&mut out, spans_at);
    bytes_field(&mut out, SCHEMA_URL, SEMANTIC_CONVENTIONS.as_bytes());
    end_message(&mut out, request_at);
    out
}

/// Wire types of protobuf.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH_DELIMITED: u8 = 2;

fn tag(out: &mut Vec<u8>, field: u8, wire_type: u8) {
    // All field numbers here have one byte.
    out.push(field << 3 | wire_type);
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number_field(out: &mut Vec<u8>, field: u8, number: u64) {
    tag(out, field, VARINT);
    varint(out, number);
}

fn fixed_field(out: &mut Vec<u8>, field: u8, number: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&number.to_le_bytes());
}

fn bytes_field(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    tag(out, field, LENGTH_DELIMITED);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes that hold the length of a message, which is written when it ends: a varint may have more bytes than it needs.
const LENGTH_BYTES: usize = 4;

/// Begins a message, and returns the position of its length.
fn begin_message(out: &mut Vec<u8>, field: u8) -> usize {
    tag(out, field, LENGTH_DELIMITED);
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.len()
}

fn end_message(out: &mut [u8], start: usize) {
    let length = out.len() - start;
    debug_assert!(length < 1 << (7 * LENGTH_BYTES));
    for (at, byte) in out[start - LENGTH_BYTES..start].iter_mut().enumerate() {
        let more = if at + 1 < LENGTH_BYTES { 0x80 } else { 0 };
        *byte = (length >> (7 * at)) as u8 & 0x7f | more;
    }
}

fn attribute_field(out: &mut Vec<u8>, field: u8, key: &str, value: AttributeValue<'_>) {
    let attribute_at = begin_message(out, field);
    bytes_field(out, 1, key.as_bytes());
    let value_at = begin_message(out, 2);
    match value {
        AttributeValue::Text(text) => bytes_field(out, 1, text.as_bytes()),
        AttributeValue::Bytes(bytes) => bytes_field(out, 1, String::from_utf8_lossy(bytes).as_bytes()),
        AttributeValue::Number(number) => number_field(out, 3, number),
    }
    end_message(out, value_at);
    end_message(out, attribute_at);
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{decode_request, decode_spans};
    use super::*;

    fn append(out: &mut Vec<u8>, name: &str, attributes: usize) {
        let head = SpanHead {
            trace_id: 1 << 100,
            span_id: u64::MAX,
            parent_id: 0,
            name: &[name],
            kind: SpanKind::Server,
            start_unix_ns: 5,
            end_unix_ns: u64::MAX,
        };
        let mut span = SpanWriter::begin(out, &head);
        for number in 0..attributes {
            span.attribute("number", AttributeValue::Number(number as u64));
        }
        span.end();
    }

    #[test]
    fn spans_of_all_lengths_are_read_as_they_were_written() {
        for attributes in [0, 1, 127, 128, 5_000, 100_000] {
            let mut out = Vec::new();
            append(&mut out, "first", 0);
            append(&mut out, "second", attributes);
            let spans = decode_spans(&out);
            assert_eq!(spans.len(), 2);
            assert_eq!((spans[1].trace_id, spans[1].span_id, spans[1].parent_id), (1 << 100, u64::MAX, 0));
            assert_eq!((spans[1].start_unix_ns, spans[1].end_unix_ns), (5, u64::MAX));
            assert_eq!((&*spans[1].name, spans[1].attributes.len()), ("second", attributes));
        }
    }

    #[test]
    fn a_request_has_the_resource_and_all_batches() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        append(&mut first, "a", 1);
        append(&mut second, "b", 1);
        let resource = [("service.name".into(), "edge".into())];
        let request = export_request(&resource, [&*first, &*second].into_iter());
        let (attributes, spans) = decode_request(&request);
        assert_eq!(attributes, [("service.name".to_owned(), "edge".to_owned())]);
        assert_eq!(spans.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["a", "b"]);
    }
}
