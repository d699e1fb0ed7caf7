//! Spans of one request, from its outcome: one of the proxy, one for each attempt at a server, and the phases of the last.
//! Pure.

use rt::clock::MonotonicTime;
use server_shell::date::WallClock;

use super::otlp::{AttributeValue, SpanHead, SpanKind, SpanWriter};
use crate::log::{LogNames, redact_url};
use crate::outcome::{EndReason, LoggedRequest, Outcome, Protocol, RequestTrace};
use crate::plan::ServerId;

/// Time in the queue from which it has a span: a shorter one is the proxy's own work.
const QUEUE_NS_MIN: u64 = 50_000;
/// Maximum length of a text of a client; the rest is left out.
const TEXT_BYTES_MAX: usize = 1_024;
/// A request that is recorded.
pub(super) struct RequestSpans<'a> {
    pub(super) trace: &'a RequestTrace,
    pub(super) outcome: &'a Outcome<'a>,
    pub(super) names: &'a LogNames,
    pub(super) clock: WallClock,
}

impl RequestSpans<'_> {
    /// Appends the spans to a batch, and returns their number.
    pub(super) fn append(&self, rng: &mut fastrand::Rng, out: &mut Vec<u8>) -> u64 {
        let times = &self.outcome.times;
        let own_id = self.trace.context.span_id.get();
        self.append_own(out);
        let mut spans = 1;
        if is_reached(times.dispatched) && times.dispatched.as_ns() >= times.head.as_ns() + QUEUE_NS_MIN {
            self.begin(
                out,
                (&["queue"], SpanKind::Internal),
                (rng.u64(1..), own_id),
                (times.head, times.dispatched),
            )
            .end();
            spans += 1;
        }
        for attempt in &self.trace.attempts {
            let ids = (rng.u64(1..), own_id);
            let mut span =
                self.begin(out, (&["attempt"], SpanKind::Client), ids, (attempt.start, attempt.end));
            self.add_server(&mut span, attempt.server);
            span.attribute("error.type", AttributeValue::Text(attempt.reason.code()));
            span.error();
            span.end();
            spans += 1;
        }
        if is_reached(times.dispatched) {
            spans += self.append_last_attempt(rng, out);
        }
        spans
    }

    /// Appends the span of the proxy, from the first byte of the head to the end (OpenTelemetry, HTTP server spans).
    fn append_own(&self, out: &mut Vec<u8>) {
        let (outcome, context) = (self.outcome, self.trace.context);
        let request = outcome.request.as_ref();
        let method = request.map_or("", |request| std::str::from_utf8(request.method).unwrap_or_default());
        let route = self.names.route_text(outcome.route);
        let name: &[&str] = if route.is_empty() { &[method] } else { &[method, " ", route] };
        let ids = (context.span_id.get(), context.parent_id.map_or(0, std::num::NonZero::get));
        let mut span =
            self.begin(out, (name, SpanKind::Server), ids, (outcome.times.start, outcome.times.end));
        if let Some(request) = request {
            add_request(&mut span, request);
        }
        let scheme = if outcome.tls_names.is_some() { "https" } else { "http" };
        span.attribute("url.scheme", AttributeValue::Text(scheme));
        if let Some(address) = outcome.client {
            span.attribute("client.address", AttributeValue::Text(&address.to_string()));
        }
        if outcome.status != 0 {
            span.attribute("http.response.status_code", AttributeValue::Number(outcome.status.into()));
        }
        if outcome.retries > 0 {
            span.attribute("http.request.resend_count", AttributeValue::Number(outcome.retries.into()));
        }
        span.attribute("weir.listener", AttributeValue::Text(self.names.listener_text(outcome.listener)));
        span.attribute("weir.end", AttributeValue::Text(outcome.end.code()));
        if outcome.is_failed() {
            let code = outcome.status.to_string();
            let is_status = matches!(outcome.end, EndReason::Done | EndReason::LocalResponse);
            let kind = if is_status { &code } else { outcome.end.code() };
            span.attribute("error.type", AttributeValue::Text(kind));
            span.error();
        }
        span.end();
    }

    /// Appends the span of the last attempt and those of its phases, and returns their number.
    fn append_last_attempt(&self, rng: &mut fastrand::Rng, out: &mut Vec<u8>) -> u64 {
        let (outcome, times) = (self.outcome, &self.outcome.times);
        let attempt_id = rng.u64(1..);
        let ids = (attempt_id, self.trace.context.span_id.get());
        let mut span = self.begin(out, (&["attempt"], SpanKind::Client), ids, (times.dispatched, times.end));
        self.add_server(&mut span, outcome.server);
        match is_reached(times.first_byte) {
            true => {
                span.attribute("http.response.status_code", AttributeValue::Number(outcome.status.into()))
            }
            false => {
                span.attribute("error.type", AttributeValue::Text(outcome.end.code()));
                span.error();
            }
        }
        span.end();
        let phases = [
            ("connect", times.dispatched, times.connected, !outcome.reused),
            ("first byte", times.connected, times.first_byte, true),
            ("body", times.first_byte, times.end, true),
        ];
        let mut spans = 1;
        for (name, start, end, is_wanted) in phases {
            if is_wanted && is_reached(start) && is_reached(end) {
                let ids = (rng.u64(1..), attempt_id);
                self.begin(out, (&[name], SpanKind::Internal), ids, (start, end)).end();
                spans += 1;
            }
        }
        spans
    }

    fn begin<'o>(
        &self,
        out: &'o mut Vec<u8>,
        (name, kind): (&[&str], SpanKind),
        (span_id, parent_id): (u64, u64),
        (start, end): (MonotonicTime, MonotonicTime),
    ) -> SpanWriter<'o> {
        let head = SpanHead {
            trace_id: self.trace.context.trace_id.get(),
            span_id,
            parent_id,
            name,
            kind,
            start_unix_ns: self.clock.to_unix_ns(start.as_ns()),
            end_unix_ns: self.clock.to_unix_ns(end.as_ns().max(start.as_ns())),
        };
        SpanWriter::begin(out, &head)
    }

    fn add_server(&self, span: &mut SpanWriter<'_>, server: Option<ServerId>) {
        let pool = self.outcome.pool;
        span.attribute("weir.pool", AttributeValue::Text(self.names.pool_text(pool)));
        span.attribute("weir.server", AttributeValue::Text(self.names.server_text(pool, server)));
    }
}

fn add_request(span: &mut SpanWriter<'_>, request: &LoggedRequest<'_>) {
    span.attribute("http.request.method", AttributeValue::Bytes(cut(request.method)));
    let target = cut(request.target);
    let query_at = memchr::memchr(b'?', target).unwrap_or(target.len());
    let mut visible = Vec::with_capacity(target.len());
    redact_url(&target[..query_at], |piece| visible.extend_from_slice(piece));
    span.attribute("url.path", AttributeValue::Bytes(&visible));
    if query_at < target.len() {
        visible.clear();
        redact_url(&target[query_at..], |piece| visible.extend_from_slice(piece));
        span.attribute("url.query", AttributeValue::Bytes(&visible[1..]));
    }
    let version = match request.protocol {
        Protocol::Http10 => "1.0",
        Protocol::Http11 => "1.1",
        Protocol::Http2 => "2",
    };
    span.attribute("network.protocol.version", AttributeValue::Text(version));
    for (key, text) in [("server.address", request.host), ("user_agent.original", request.user_agent)] {
        if !text.is_empty() {
            span.attribute(key, AttributeValue::Bytes(cut(text)));
        }
    }
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TEXT_BYTES_MAX)]
}

fn is_reached(time: MonotonicTime) -> bool {
    time != MonotonicTime::ZERO
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::trace;
    use super::super::fixtures::{Span, decode_spans};
    use super::*;
    use crate::log::fixtures::{plan, successful_request};
    use crate::outcome::{ATTEMPTS_MAX, EarlierAttempt};

    fn spans_of(trace: &RequestTrace, outcome: &Outcome<'_>) -> Vec<Span> {
        let mut out = Vec::new();
        let names = LogNames::new(&plan(&["api"], &["app: a b"]));
        let clock = WallClock::ahead_by(1_000);
        let count = RequestSpans { trace, outcome, names: &names, clock }
            .append(&mut fastrand::Rng::with_seed(1), &mut out);
        let spans = decode_spans(&out);
        assert_eq!(spans.len() as u64, count);
        assert!(spans.iter().all(|span| span.trace_id == 0xabc && span.span_id != 0), "{spans:?}");
        assert!(spans.iter().all(|span| span.end_unix_ns >= span.start_unix_ns), "{spans:?}");
        spans
    }

    #[test]
    fn a_request_has_spans_of_its_phases_below_those_of_proxy_and_server() {
        let outcome = successful_request();
        let spans = spans_of(&trace(), &outcome);
        let own = &spans[0];
        assert_eq!((own.span_id, own.parent_id, own.kind, own.is_error), (7, 9, 2, false));
        assert_eq!(own.start_unix_ns, outcome.times.start.as_ns() + 1_000);
        assert_eq!(own.attribute("http.request.method"), Some("GET"));
        let attempt = spans.iter().find(|span| span.name == "attempt").unwrap();
        assert_eq!((attempt.parent_id, attempt.kind), (7, 3));
        for phase in spans.iter().filter(|span| ["connect", "first byte", "body"].contains(&&*span.name)) {
            assert_eq!(phase.parent_id, attempt.span_id);
        }
        assert!(spans.iter().any(|span| span.name == "body"), "{spans:?}");
    }

    #[test]
    fn attempts_before_the_last_have_their_error() {
        let outcome = successful_request();
        let mut trace = trace();
        for number in 0..20 {
            trace.note_attempt(EarlierAttempt {
                server: outcome.server,
                start: MonotonicTime::from_ns(number),
                end: MonotonicTime::from_ns(number + 5),
                reason: EndReason::ConnectFailed,
            });
        }
        let spans = spans_of(&trace, &outcome);
        let failed: Vec<&Span> = spans.iter().filter(|span| span.is_error).collect();
        assert_eq!(failed.len(), ATTEMPTS_MAX);
        assert_eq!(failed[0].attribute("error.type"), Some("connect_failed"));
    }

    #[test]
    fn texts_of_strangers_are_cut_and_made_valid_and_keep_no_secret() {
        let outcome = successful_request();
        let target = [b"/a\xff?token=geheim&x=".as_slice(), &[b'y'; 5_000]].concat();
        let request = outcome.request.map(|request| LoggedRequest { target: &target, ..request });
        let spans = spans_of(&trace(), &Outcome { request, ..outcome });
        assert_eq!(spans[0].attribute("url.path"), Some("/a\u{fffd}"));
        let query = spans[0].attribute("url.query").unwrap();
        assert!(query.starts_with("token=***&x=y") && query.len() < TEXT_BYTES_MAX + 10, "{query}");
    }
}
