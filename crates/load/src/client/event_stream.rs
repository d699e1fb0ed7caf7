//! Client of event streams (server-sent events), over HTTP/1.1 or HTTP/2. A subscription is a request, and its first event the
//! response; the stream is then read until the server or the load ends it. A reconnect waits for the reconnection
//! time and sends the ID of the last event.

mod event_ids;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use record::units::{MILLISECOND_NS, SECOND_NS};
use rt::clock::now_ns;
use rt::cores::yield_turn;
use wire::RequestKind;
use wire::sse::{EventStreamFault, EventStreamReader};

use self::event_ids::EventIds;
use super::dialer::Dialer;
use super::http2::Http2Tunnel;
use super::source::{RequestSource, WantedRequest};
use super::transport::Transport;
use super::websocket::record_gap;
use super::{Client, READS_MAX, ResponseOutcome, record_response};
use crate::core_state::CoreState;
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::inspection::ResponseSink;
use crate::malformation::Malformation;
use crate::plan::{HttpVersion, MESSAGE_BYTES_MAX, RenderedRequest};
use crate::recorder::RequestTiming;
use crate::response_reader::ResponseReader;

/// Reconnection time until the server sets one (HTML §9.2.2 leaves it to the client).
const RETRY_NS_DEFAULT: u64 = 3 * SECOND_NS;
/// Minimum reconnection time: a server with `retry: 0` must not be hit in a tight loop.
const RETRY_NS_MIN: u64 = 10 * MILLISECOND_NS;
/// Maximum reconnection time.
const RETRY_NS_MAX: u64 = 600 * SECOND_NS;

/// One client: at most one subscription.
pub(super) struct EventStreamClient {
    dialer: Dialer,
    version: HttpVersion,
    transport: Option<Transport>,
    source: RequestSource,
    request_index: usize,
    /// ID of the last event, for the next subscription.
    last_event_id: Vec<u8>,
    retry_ns: u64,
    ids: EventIds,
    /// True if the server ended the subscription for good (204).
    is_stopped: bool,
}

/// A subscription and what has arrived of it.
struct Subscription {
    request: usize,
    due_ns: u64,
    begun_ns: u64,
    sent_ns: u64,
    output: Vec<u8>,
    written: usize,
    /// Reader of HTTP/1.1; `None` with HTTP/2.
    reader: Option<ResponseReader>,
    /// Status of the response; 0 until its head.
    status: u16,
    sink: EventSink,
    last_event_ns: Option<u64>,
    has_event: bool,
}

struct EventSink {
    is_event_stream: bool,
    events: EventStreamReader,
    /// Number of each event of the read, if it has one.
    numbers: Vec<Option<u64>>,
    bytes: u64,
    fault: Option<EventStreamFault>,
}

impl ResponseSink for EventSink {
    const IS_ACTIVE: bool = true;

    fn field(&mut self, name: &str, value: &[u8]) {
        if name.eq_ignore_ascii_case("content-type") {
            let kind = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            self.is_event_stream = kind.eq_ignore_ascii_case(b"text/event-stream");
        }
    }

    fn data(&mut self, mut bytes: &[u8]) {
        if !self.is_event_stream || self.fault.is_some() {
            return;
        }
        loop {
            match self.events.read(&mut bytes) {
                Ok(Some(event)) => {
                    let id = Some(self.events.last_event_id()).filter(|_| event.has_id);
                    let number = id.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
                    self.numbers.push(number);
                    self.bytes += event.bytes;
                }
                Ok(None) => return,
                Err(fault) => {
                    self.fault = Some(fault);
                    return;
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubscriptionEnd {
    LoadEnded,
    /// The response is not 200.
    Status(u16),
    /// It ended or broke.
    Failed(FailureKind),
    Fault(EventStreamFault),
}

impl Subscription {
    /// Returns the end of a subscription whose response is no event stream.
    fn refusal(&self) -> Option<SubscriptionEnd> {
        match self.status {
            0 => None,
            200 if self.sink.is_event_stream => None,
            200 => Some(SubscriptionEnd::Failed(FailureKind::Upgrade)),
            status => Some(SubscriptionEnd::Status(status)),
        }
    }
}

/// Returns the request of a subscription, with the ID of the last event.
fn http1_request(request: &RenderedRequest, last_id: Option<&Vec<u8>>) -> Vec<u8> {
    let mut output = request.bytes.clone();
    if let Some(id) = last_id {
        // A rendered request without content ends with an empty line.
        output.truncate(output.len() - 2);
        output.extend_from_slice(b"Last-Event-ID: ");
        output.extend_from_slice(id);
        output.extend_from_slice(b"\r\n\r\n");
    }
    output
}

/// Sends the head of the request of a subscription.
fn begin_http2(tunnel: &mut Http2Tunnel, request: &RenderedRequest, last_id: Option<&Vec<u8>>) {
    tunnel.begin(request.body.is_empty(), |encoder| {
        let scheme = request.url.authority.scheme.name();
        encoder.request(&request.method, Some(scheme), Some(&request.authority), Some(&request.url.target));
        for (name, value) in request.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            encoder.field(name, value.as_bytes());
        }
        if let Some(length) = request.content_length() {
            encoder.field("content-length", length.to_string().as_bytes());
        }
        if let Some(id) = last_id {
            encoder.field_without_index("last-event-id", id);
        }
    });
}

impl Client for EventStreamClient {
    fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    async fn connect_before_start(&mut self) {
        // The run connects again.
        let _ = self.connect(now_ns()).await;
    }

    async fn run(&mut self, start_ns: u64) {
        self.source.begin(start_ns);
        let core = Rc::clone(&self.dialer.core);
        while !self.is_stopped {
            let wanted = poll_fn(|cx| self.source.poll_wanted(cx, &self.dialer)).await;
            let Some(due_ns) = wanted else { break };
            if self.transport.is_none()
                && let Err(failure) = Box::pin(self.connect(due_ns)).await
            {
                self.source.fail_wanted(&core, failure, now_ns());
                let until_ns = self.dialer.back_off().await;
                self.source.postpone(until_ns);
                continue;
            }
            let taken_ns = now_ns();
            let wanted = poll_fn(|cx| Poll::Ready(self.source.take(cx, &self.dialer, 1, taken_ns))).await;
            let Some(wanted) = wanted else { break };
            self.subscribe(&core, wanted).await;
        }
        self.close(&core);
    }
}

impl EventStreamClient {
    pub(super) fn new(dialer: Dialer, version: HttpVersion) -> Self {
        let plan = &dialer.core.shared.plan;
        Self {
            version,
            transport: None,
            source: RequestSource::new(plan, 1, dialer.client_number() as u64),
            request_index: dialer.first_turn(),
            last_event_id: Vec::new(),
            retry_ns: RETRY_NS_DEFAULT,
            ids: EventIds::default(),
            is_stopped: false,
            dialer,
        }
    }

    async fn connect(&mut self, due_ns: u64) -> Result<(), Failure> {
        let is_http2 = self.version == HttpVersion::Http2;
        let opening = async |dialer: &Dialer, stream| {
            Ok(match is_http2 {
                true => Transport::Http2(Box::new(Http2Tunnel::new(stream, &dialer.core))),
                false => Transport::Http1(stream),
            })
        };
        self.transport = Some(self.dialer.connect(due_ns, opening).await?);
        Ok(())
    }

    fn close(&mut self, core: &CoreState) {
        if let Some(mut transport) = self.transport.take() {
            transport.close(core, false);
            core.recorder.borrow_mut().open_connections -= 1;
        }
        self.dialer.deadline.clear();
    }

    /// Sends the request of a subscription, and reads it to its end.
    async fn subscribe(&mut self, core: &CoreState, wanted: WantedRequest) {
        let WantedRequest { due_ns, begun_ns, .. } = wanted;
        let Some(mut transport) = self.transport.take() else { return };
        let mut subscription = self.begin(core, due_ns, begun_ns, &mut transport);
        let end = poll_fn(|cx| self.poll(cx, core, &mut transport, &mut subscription)).await;
        self.transport = Some(transport);
        self.record_end(core, &subscription, end);
        self.close(core);
        let now_ns = now_ns();
        self.source.release(now_ns);
        self.source.postpone(now_ns + self.retry_ns);
    }

    fn begin(
        &mut self,
        core: &CoreState,
        due_ns: u64,
        begun_ns: u64,
        transport: &mut Transport,
    ) -> Subscription {
        let plan = &core.shared.plan;
        let index = self.dialer.next_request(&mut self.request_index, due_ns);
        let request = &plan.requests[index];
        let last_id = Some(&self.last_event_id).filter(|id| !id.is_empty() && request.body.is_empty());
        core.recorder.borrow_mut().counters.live.resumed += u64::from(last_id.is_some());
        let output = match transport {
            Transport::Http1(_) => http1_request(request, last_id),
            Transport::Http2(tunnel) => {
                begin_http2(tunnel, request, last_id);
                request.body.to_vec()
            }
        };
        let sent_ns = now_ns();
        core.recorder.borrow_mut().record_sent(due_ns, sent_ns);
        self.dialer.deadline.set(plan.deadline_ns(due_ns, sent_ns));
        Subscription {
            request: index,
            due_ns,
            begun_ns,
            sent_ns,
            output,
            written: 0,
            reader: (self.version == HttpVersion::Http1).then(|| ResponseReader::new(RequestKind::Other)),
            status: 0,
            sink: EventSink {
                is_event_stream: false,
                events: EventStreamReader::resuming(MESSAGE_BYTES_MAX, self.last_event_id.clone()),
                numbers: Vec::new(),
                bytes: 0,
                fault: None,
            },
            last_event_ns: None,
            has_event: false,
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        core: &CoreState,
        transport: &mut Transport,
        subscription: &mut Subscription,
    ) -> Poll<SubscriptionEnd> {
        if core.giving_up.get() {
            return Poll::Ready(SubscriptionEnd::LoadEnded);
        }
        while subscription.written < subscription.output.len() {
            match transport.poll_write(cx, core, &subscription.output[subscription.written..]) {
                Poll::Ready(Ok(bytes)) => {
                    subscription.written += bytes;
                    if let (Transport::Http2(tunnel), true) =
                        (&mut *transport, subscription.written == subscription.output.len())
                    {
                        tunnel.finish();
                    }
                }
                Poll::Ready(Err(kind)) => return Poll::Ready(SubscriptionEnd::Failed(kind)),
                Poll::Pending => break,
            }
        }
        for _ in 0..READS_MAX {
            let mut scratch = core.scratch.borrow_mut();
            let read = transport.poll_read(cx, core, &mut scratch);
            if let Transport::Http2(tunnel) = transport
                && let Some(head) = tunnel.take_head()
            {
                subscription.status = head.status;
                head.fields.iter().for_each(|(name, value)| subscription.sink.field(name, value));
            }
            if let (Some(refusal), true) = (subscription.refusal(), subscription.reader.is_none()) {
                return Poll::Ready(refusal);
            }
            let bytes = match read {
                Poll::Pending => return self.check_time(core, subscription),
                Poll::Ready(Err(kind)) => return Poll::Ready(SubscriptionEnd::Failed(kind)),
                Poll::Ready(Ok(0)) => return Poll::Ready(SubscriptionEnd::Failed(FailureKind::Closed)),
                Poll::Ready(Ok(bytes)) => bytes,
            };
            if let Some(end) = self.handle_bytes(core, subscription, &scratch[..bytes]) {
                return Poll::Ready(end);
            }
        }
        yield_turn(cx);
        self.check_time(core, subscription)
    }

    /// Ends a subscription whose time is over.
    fn check_time(&self, core: &CoreState, subscription: &Subscription) -> Poll<SubscriptionEnd> {
        let now_ns = now_ns();
        if subscription.has_event {
            self.dialer.deadline.set(core.end_ns());
            return if now_ns >= core.end_ns() {
                Poll::Ready(SubscriptionEnd::LoadEnded)
            } else {
                Poll::Pending
            };
        }
        match self.dialer.deadline.is_expired() {
            true => Poll::Ready(SubscriptionEnd::Failed(FailureKind::Timeout)),
            false => Poll::Pending,
        }
    }

    fn handle_bytes(
        &mut self,
        core: &CoreState,
        subscription: &mut Subscription,
        bytes: &[u8],
    ) -> Option<SubscriptionEnd> {
        let now_ns = now_ns();
        let Subscription { reader, sink, status, .. } = subscription;
        let mut is_complete = false;
        match reader {
            Some(reader) => {
                match reader.handle_bytes(bytes, &core.limits, sink) {
                    Ok(complete) => is_complete = complete.is_some(),
                    Err(refusal) => {
                        return Some(SubscriptionEnd::Failed(core.note_malformed(refusal, bytes)));
                    }
                }
                *status = reader.status();
            }
            None => sink.data(bytes),
        }
        if subscription.status == 0 {
            return None;
        }
        if let Some(refusal) = subscription.refusal() {
            return Some(refusal);
        }
        self.record_events(core, subscription, now_ns);
        if let Some(fault) = subscription.sink.fault {
            return Some(SubscriptionEnd::Fault(fault));
        }
        is_complete.then_some(SubscriptionEnd::Failed(FailureKind::Closed))
    }

    fn record_events(&mut self, core: &CoreState, subscription: &mut Subscription, now_ns: u64) {
        let events = &subscription.sink.events;
        self.last_event_id.clear();
        self.last_event_id.extend_from_slice(events.last_event_id());
        if let Some(retry_ms) = events.retry_ms() {
            self.retry_ns = retry_ms.saturating_mul(MILLISECOND_NS).clamp(RETRY_NS_MIN, RETRY_NS_MAX);
            core.recorder.borrow_mut().counters.live.retry_ms = Some(retry_ms);
        }
        for number in std::mem::take(&mut subscription.sink.numbers) {
            {
                // An event belongs to the second in which it arrives.
                let mut recorder = core.recorder.borrow_mut();
                core.roll(&mut recorder, now_ns);
                let live = &mut recorder.counters.live;
                live.received += 1;
                if let Some(number) = number {
                    live.numbered += 1;
                    self.ids.take(number, live);
                }
            }
            record_gap(core, &mut subscription.last_event_ns, now_ns);
            if !std::mem::replace(&mut subscription.has_event, true) {
                let &mut Subscription { request, due_ns, begun_ns, sent_ns, .. } = subscription;
                let outcome =
                    ResponseOutcome { request, status: 200, body_bytes: 0, grpc: None, inspector: None };
                let timing = RequestTiming {
                    due_ns,
                    begun_ns,
                    sent_ns,
                    first_ns: now_ns,
                    last_ns: now_ns,
                    queued: true,
                };
                record_response(core, outcome, timing);
            }
        }
        core.recorder.borrow_mut().counters.body_bytes += std::mem::take(&mut subscription.sink.bytes);
    }

    fn record_end(&mut self, core: &CoreState, subscription: &Subscription, end: SubscriptionEnd) {
        let &Subscription { request, due_ns, begun_ns, sent_ns, has_event, .. } = subscription;
        let now_ns = now_ns();
        let is_written = subscription.written == subscription.output.len();
        let fail = |kind| {
            let mut recorder = core.recorder.borrow_mut();
            core.roll(&mut recorder, now_ns);
            recorder.counters.sent += u64::from(is_written);
            let failure = Failure { kind, phase: RequestPhase::FirstByte };
            recorder.record_failed_exchange(due_ns, sent_ns, failure, now_ns);
        };
        let count_fault = |kind: &dyn std::fmt::Display| {
            core.recorder.borrow_mut().counters.live.count_fault(kind);
        };
        core.recorder.borrow_mut().counters.live.ended +=
            u64::from(has_event && end != SubscriptionEnd::LoadEnded);
        match end {
            SubscriptionEnd::LoadEnded if has_event => {}
            SubscriptionEnd::LoadEnded => fail(FailureKind::Unfinished),
            SubscriptionEnd::Status(status) => {
                count_fault(&format_args!("status_{status}"));
                // The server ends the subscription for good (HTML §9.2.3).
                self.is_stopped = status == 204;
                if status == 204 || status >= 400 {
                    let outcome =
                        ResponseOutcome { request, status, body_bytes: 0, grpc: None, inspector: None };
                    let (first_ns, last_ns) = (now_ns, now_ns);
                    let timing = RequestTiming { due_ns, begun_ns, sent_ns, first_ns, last_ns, queued: true };
                    record_response(core, outcome, timing);
                } else {
                    fail(FailureKind::Upgrade);
                }
            }
            SubscriptionEnd::Failed(kind) => {
                match kind {
                    FailureKind::Upgrade => count_fault(&"no_event_stream"),
                    // The usual end of a stream.
                    FailureKind::Closed if has_event => {}
                    kind => count_fault(&kind.name()),
                }
                if !has_event {
                    fail(kind);
                }
            }
            SubscriptionEnd::Fault(fault) => {
                count_fault(&fault);
                core.recorder.borrow_mut().note_malformation(Malformation::EventStream(fault));
                if !has_event {
                    fail(FailureKind::Parse);
                }
            }
        }
        core.recorder.borrow_mut().counters.lost +=
            u64::from(!has_event && matches!(end, SubscriptionEnd::Failed(_) | SubscriptionEnd::Fault(_)));
    }
}
