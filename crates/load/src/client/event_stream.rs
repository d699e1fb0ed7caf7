//! Client of event streams (server-sent events) over HTTP/1.1. A subscription is a request, and its first event the
//! response; the stream is then read until the server or the load ends it. A reconnect waits for the reconnection
//! time and sends the ID of the last event.

mod event_ids;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use record::units::{MILLISECOND_NS, SECOND_NS};
use rt::clock::now_ns;
use rt::cores::yield_turn;
use rt::stream::Stream;
use wire::RequestKind;
use wire::sse::{EventStreamFault, EventStreamReader};

use self::event_ids::EventIds;
use super::dialer::Dialer;
use super::source::{RequestSource, WantedRequest};
use super::websocket::record_gap;
use super::{Client, READS_MAX, ResponseOutcome, record_response};
use crate::core_state::CoreState;
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::inspection::ResponseSink;
use crate::malformation::Malformation;
use crate::plan::MESSAGE_BYTES_MAX;
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
    stream: Option<Stream>,
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
    reader: ResponseReader,
    sink: EventSink,
    /// Time of the last event.
    last_event_ns: Option<u64>,
    has_event: bool,
}

/// Events of one read, and the type of the response.
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

/// End of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubscriptionEnd {
    LoadEnded,
    /// The response is not 200.
    Status(u16),
    /// It ended or broke.
    Failed(FailureKind),
    Fault(EventStreamFault),
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
            if self.stream.is_none()
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
    pub(super) fn new(dialer: Dialer) -> Self {
        let plan = &dialer.core.shared.plan;
        Self {
            stream: None,
            source: RequestSource::new(plan, 1, dialer.client_number() as u64),
            request_index: dialer.index,
            last_event_id: Vec::new(),
            retry_ns: RETRY_NS_DEFAULT,
            ids: EventIds::default(),
            is_stopped: false,
            dialer,
        }
    }

    async fn connect(&mut self, due_ns: u64) -> Result<(), Failure> {
        self.stream = Some(self.dialer.connect(due_ns, async |_, stream| Ok(stream)).await?);
        Ok(())
    }

    fn close(&mut self, core: &CoreState) {
        if self.stream.take().is_some() {
            core.recorder.borrow_mut().open_connections -= 1;
        }
        self.dialer.deadline.clear();
    }

    /// Sends the request of a subscription, and reads it to its end.
    async fn subscribe(&mut self, core: &CoreState, wanted: WantedRequest) {
        let WantedRequest { due_ns, begun_ns } = wanted;
        let Some(mut stream) = self.stream.take() else { return };
        let mut subscription = self.begin(core, due_ns, begun_ns);
        let end = poll_fn(|cx| self.poll(cx, core, &mut stream, &mut subscription)).await;
        self.stream = Some(stream);
        self.record_end(core, &subscription, end);
        self.close(core);
        let now_ns = now_ns();
        self.source.release(now_ns);
        self.source.postpone(now_ns + self.retry_ns);
    }

    fn begin(&mut self, core: &CoreState, due_ns: u64, begun_ns: u64) -> Subscription {
        let plan = &core.shared.plan;
        let index = self.dialer.next_request(&mut self.request_index, due_ns);
        let request = &plan.requests[index];
        let mut output = request.bytes.clone();
        if !self.last_event_id.is_empty() && request.body.is_empty() {
            // A rendered request without content ends with an empty line.
            output.truncate(output.len() - 2);
            output.extend_from_slice(b"Last-Event-ID: ");
            output.extend_from_slice(&self.last_event_id);
            output.extend_from_slice(b"\r\n\r\n");
            core.recorder.borrow_mut().counters.live.resumed += 1;
        }
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
            reader: ResponseReader::new(RequestKind::Other),
            sink: EventSink {
                is_event_stream: false,
                events: EventStreamReader::new(MESSAGE_BYTES_MAX),
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
        stream: &mut Stream,
        subscription: &mut Subscription,
    ) -> Poll<SubscriptionEnd> {
        if core.giving_up.get() {
            return Poll::Ready(SubscriptionEnd::LoadEnded);
        }
        while subscription.written < subscription.output.len() {
            match stream.poll_write(cx, &subscription.output[subscription.written..]) {
                Poll::Ready(Ok(bytes)) => {
                    subscription.written += bytes;
                    core.recorder.borrow_mut().counters.bytes_out += bytes as u64;
                }
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(SubscriptionEnd::Failed(FailureKind::from_io_error(&error)));
                }
                Poll::Pending => break,
            }
        }
        for _ in 0..READS_MAX {
            let mut scratch = core.scratch.borrow_mut();
            let bytes = match stream.poll_read(cx, &mut scratch) {
                Poll::Pending => return self.check_time(core, subscription),
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(SubscriptionEnd::Failed(FailureKind::from_io_error(&error)));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(SubscriptionEnd::Failed(FailureKind::Closed)),
                Poll::Ready(Ok(bytes)) => bytes,
            };
            core.recorder.borrow_mut().counters.bytes_in += bytes as u64;
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
        let Subscription { reader, sink, .. } = subscription;
        let complete = match reader.handle_bytes(bytes, &core.limits, sink) {
            Ok(complete) => complete,
            Err(refusal) => return Some(SubscriptionEnd::Failed(core.note_malformed(refusal, bytes))),
        };
        match reader.status() {
            0 => return None,
            200 if sink.is_event_stream => {}
            200 => return Some(SubscriptionEnd::Failed(FailureKind::Upgrade)),
            status => return Some(SubscriptionEnd::Status(status)),
        }
        self.record_events(core, subscription, now_ns);
        if let Some(fault) = subscription.sink.fault {
            return Some(SubscriptionEnd::Fault(fault));
        }
        complete.map(|_| SubscriptionEnd::Failed(FailureKind::Closed))
    }

    /// Records the events of a read.
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
                let live = &mut core.recorder.borrow_mut().counters.live;
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
                let timing = RequestTiming { due_ns, begun_ns, sent_ns, first_ns: now_ns, last_ns: now_ns };
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
                    let timing =
                        RequestTiming { due_ns, begun_ns, sent_ns, first_ns: now_ns, last_ns: now_ns };
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
