//! The facts of a request that are collected for its outcome.

use rt::clock::MonotonicTime;

use crate::outcome::{
    CacheResult, EndPhase, EndReason, HedgeEvent, LoggedRequest, NeededFields, Protocol, RequestTrace,
    StickyLookup, Times,
};
use crate::plan::{PoolId, ServerId};
use crate::request_view::RequestView;
use crate::trace_context::TraceContext;

/// Facts collected about a request so far, for its [`Outcome`].
#[derive(Debug)]
pub(crate) struct OutcomeBuilder {
    pub(crate) times: Times,
    pub(crate) status: u16,
    pub(crate) end: EndReason,
    pub(crate) phase: EndPhase,
    pub(crate) refusal: Option<wire::RefusalKind>,
    /// Status for a rejection; 0: the status of its `EndReason`.
    pub(crate) refusal_status: u16,
    pub(crate) retry_after_s: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) head_bytes_out: u64,
    /// True if the response is close-delimited: only the end of the connection marks its end (RFC 9112
    /// §6.3).
    pub(crate) until_close: bool,
    pub(crate) retries: u8,
    pub(crate) reused: bool,
    pub(crate) wasted: bool,
    /// Result of reading the sticky cookie; `None`: the pool has none.
    pub(crate) sticky: Option<StickyLookup>,
    /// End of the second attempt; `None`: there was none.
    pub(crate) hedge: Option<HedgeEvent>,
    /// Use of a cache; `None`: its route has none.
    pub(crate) cache: Option<CacheResult>,
    /// Fault of the last TLS handshake with a server, if it failed.
    pub(crate) tls_error: Option<Box<str>>,
    pub(crate) route: Option<usize>,
    pub(crate) pool: Option<PoolId>,
    pub(crate) server: Option<ServerId>,
    /// Method, target, host, referer, user agent, captured values and request ID, concatenated.
    texts: Vec<u8>,
    text_ends: [u32; TEXT_COUNT],
    protocol: Option<Protocol>,
    /// Trace of this request or of an earlier one, whose memory the next one uses.
    trace: Option<Box<RequestTrace>>,
    /// True if the trace is of this request.
    is_traced: bool,
}

const TEXT_COUNT: usize = 7;
/// Size of a request id that weir generates.
const REQUEST_ID_BYTES: usize = 32;
/// Maximum capacity of the texts that is kept; a larger buffer is returned to the allocator.
const TEXT_BYTES_RETAINED: usize = 4096;

impl Default for OutcomeBuilder {
    fn default() -> Self {
        Self {
            times: Times::default(),
            status: 0,
            end: EndReason::Done,
            phase: EndPhase::Over,
            refusal: None,
            refusal_status: 0,
            retry_after_s: 0,
            bytes_in: 0,
            bytes_out: 0,
            head_bytes_out: 0,
            until_close: false,
            retries: 0,
            reused: false,
            wasted: false,
            sticky: None,
            hedge: None,
            cache: None,
            tls_error: None,
            route: None,
            pool: None,
            server: None,
            texts: Vec::new(),
            text_ends: [0; TEXT_COUNT],
            protocol: None,
            trace: None,
            is_traced: false,
        }
    }
}

impl OutcomeBuilder {
    /// Returns the capacity of the texts.
    #[inline]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.texts.capacity()
    }

    pub(crate) fn clear(&mut self) {
        let mut texts = std::mem::take(&mut self.texts);
        texts.clear();
        if texts.capacity() > TEXT_BYTES_RETAINED {
            texts = Vec::new();
        }
        let trace = self.trace.take();
        *self = Self { texts, trace, ..Self::default() };
    }

    pub(crate) fn begin(&mut self, start: MonotonicTime, now: MonotonicTime, head_bytes: usize) {
        self.times.start = start;
        self.times.head = now;
        self.bytes_in = head_bytes as u64;
    }

    /// Copies the parts of the head that a log may need later.
    pub(crate) fn note_request(
        &mut self,
        view: &RequestView<'_>,
        protocol: Protocol,
        needed: NeededFields,
        user_agent: Option<&[u8]>,
    ) {
        let head = view.head;
        self.protocol = Some(protocol);
        let (mut host, mut referer) = (&b""[..], &b""[..]);
        if needed != NeededFields::None {
            host = head.host.unwrap_or_default().as_bytes();
        }
        if needed == NeededFields::All {
            referer = wire::known_field_value(view.ordinary_lines("referer"), b"referer").unwrap_or_default();
        }
        let texts: [&[u8]; TEXT_COUNT - 2] =
            [head.method.as_bytes(), head.target.as_bytes(), host, referer, user_agent.unwrap_or_default()];
        let text_bytes = texts.iter().map(|text| text.len()).sum::<usize>();
        self.texts.reserve(text_bytes + REQUEST_ID_BYTES);
        for (at, text) in texts.iter().enumerate() {
            // Most are empty without a log.
            if !text.is_empty() {
                self.texts.extend_from_slice(text);
            }
            self.text_ends[at] = self.texts.len() as u32;
        }
        self.text_ends[TEXT_COUNT - 2..].fill(self.texts.len() as u32);
    }

    /// Begins the trace of the request.
    #[inline]
    pub(crate) fn begin_trace(&mut self, context: TraceContext) {
        self.is_traced = true;
        match &mut self.trace {
            Some(trace) => {
                trace.context = context;
                trace.attempts.clear();
            }
            None => self.trace = Some(Box::new(RequestTrace { context, attempts: Vec::new() })),
        }
    }

    /// Returns the trace; `None`: traces are off, or there was no head.
    #[inline]
    pub(crate) fn trace(&self) -> Option<&RequestTrace> {
        if self.is_traced { self.trace.as_deref() } else { None }
    }

    pub(crate) fn trace_mut(&mut self) -> Option<&mut RequestTrace> {
        if self.is_traced { self.trace.as_deref_mut() } else { None }
    }

    /// Adds the values that a log captures. The request id must not be known yet.
    pub(crate) fn note_captured(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.texts);
        self.text_ends[TEXT_COUNT - 2..].fill(self.texts.len() as u32);
    }

    /// Copies what could be read of the request line of an invalid head.
    pub(crate) fn note_request_line(&mut self, method: &[u8], target: &[u8], protocol: Protocol) {
        self.protocol = Some(protocol);
        self.texts.extend_from_slice(method);
        self.text_ends[0] = self.texts.len() as u32;
        self.texts.extend_from_slice(target);
        self.text_ends[1..].fill(self.texts.len() as u32);
    }

    pub(crate) fn note_request_id(&mut self, id: &[u8]) {
        self.texts.extend_from_slice(id);
        self.text_ends[TEXT_COUNT - 1] = self.texts.len() as u32;
    }

    /// Returns the request's method, for the proxy's own responses.
    pub(crate) fn method(&self) -> &[u8] {
        self.text(0)
    }

    fn text(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.text_ends[index - 1] };
        &self.texts[start as usize..self.text_ends[index] as usize]
    }

    pub(crate) fn end(&self) -> EndReason {
        self.end
    }

    /// Returns the request for the logs; `None` if there was no head.
    pub(crate) fn logged_request(&self) -> Option<LoggedRequest<'_>> {
        self.protocol.map(|protocol| LoggedRequest {
            method: self.text(0),
            target: self.text(1),
            protocol,
            host: self.text(2),
            referer: self.text(3),
            user_agent: self.text(4),
            captured: self.text(5),
            request_id: self.text(6),
        })
    }
}
