//! Plans, traces, and a reader of OTLP for tests.

use std::num::NonZero;

use crate::outcome::RequestTrace;
use crate::plan::{Collector, TraceSample, TraceTrust, TracingPlan};
use crate::trace_context::{TraceContext, TraceId};

pub(crate) fn plan() -> TracingPlan {
    let collector = Collector {
        url: "http://127.0.0.1:4318/v1/traces".into(),
        tls: None,
        host: "127.0.0.1".into(),
        port: 4318,
        path: "/v1/traces".into(),
        fields: Vec::new(),
        timeout_ns: 1_000_000_000,
    };
    TracingPlan {
        collector,
        service_name: "weir".into(),
        attributes: Vec::new(),
        trust: TraceTrust::Trusted,
        sample: TraceSample::new(1.0),
        slow_ns: None,
        records_failed: true,
        requests_per_second_max: 100.0,
    }
}

pub(super) fn trace() -> RequestTrace {
    let context = TraceContext {
        trace_id: TraceId::new(NonZero::new(0xabc).unwrap()),
        span_id: NonZero::new(7).unwrap(),
        parent_id: NonZero::new(9),
        is_sampled: true,
        replaces_fields: false,
    };
    RequestTrace { context, attempts: Vec::new() }
}

/// A decoded span.
#[derive(Clone, Debug, Default)]
pub(super) struct Span {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) parent_id: u64,
    pub(super) name: String,
    pub(super) kind: u64,
    pub(super) start_unix_ns: u64,
    pub(super) end_unix_ns: u64,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) is_error: bool,
}

impl Span {
    pub(super) fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }
}

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => panic!("a number in the place of a message"),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Bytes(_) => panic!("a message in the place of a number"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("texts are UTF-8")
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in 0.. {
        let (&byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * shift);
        if byte < 0x80 {
            break;
        }
    }
    number
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_first_chunk().unwrap();
                bytes = rest;
                Field::Number(u64::from_le_bytes(*number))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(content)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn attribute(bytes: &[u8]) -> (String, String) {
    let (mut key, mut value) = (String::new(), String::new());
    for (number, field) in fields(bytes) {
        match number {
            1 => key = field.text(),
            _ => {
                for (kind, field) in fields(field.bytes()) {
                    value = if kind == 1 { field.text() } else { field.number().to_string() };
                }
            }
        }
    }
    (key, value)
}

fn span(bytes: &[u8]) -> Span {
    let mut span = Span::default();
    let id = |field: &Field<'_>| u64::from_be_bytes(field.bytes().try_into().unwrap());
    for (number, field) in fields(bytes) {
        match number {
            1 => span.trace_id = u128::from_be_bytes(field.bytes().try_into().unwrap()),
            2 => span.span_id = id(&field),
            4 => span.parent_id = id(&field),
            5 => span.name = field.text(),
            6 => span.kind = field.number(),
            7 => span.start_unix_ns = field.number(),
            8 => span.end_unix_ns = field.number(),
            9 => span.attributes.push(attribute(field.bytes())),
            15 => span.is_error = true,
            other => panic!("field {other} of a span"),
        }
    }
    span
}

pub(super) fn decode_spans(batch: &[u8]) -> Vec<Span> {
    let decode = |(number, field): (u64, Field<'_>)| {
        assert_eq!(number, 2);
        span(field.bytes())
    };
    fields(batch).into_iter().map(decode).collect()
}

/// Decodes a request of an export: the attributes of its resource, and its spans.
pub(super) fn decode_request(request: &[u8]) -> (Vec<(String, String)>, Vec<Span>) {
    let (mut resource, mut spans) = (Vec::new(), Vec::new());
    for (_, resource_spans) in fields(request) {
        for (number, field) in fields(resource_spans.bytes()) {
            match number {
                1 => resource.extend(
                    fields(field.bytes())
                        .iter()
                        .map(|(_, attribute_field)| attribute(attribute_field.bytes())),
                ),
                2 => {
                    let scope_fields = fields(field.bytes());
                    spans.extend(
                        scope_fields
                            .iter()
                            .filter(|(number, _)| *number == 2)
                            .map(|(_, span_field)| span(span_field.bytes())),
                    );
                }
                _ => {}
            }
        }
    }
    (resource, spans)
}
