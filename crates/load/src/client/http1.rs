//! Client of HTTP/1.1: take a due request, get a connection, send, read, record. One loop serves
//! every pace and every end.
//!
//! ```text
//!          ┌──────────── next due ◄───────────────┐
//!          ▼                                      │
//!   connection? ──no──► connect ──failed──► back off
//!          │ yes           │ stands              │
//!          ▼               ▼                     │
//!        write request ─► read response ──whole──┤ record
//!                              └─────failed──────┘ count, close
//! ```

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::now_ns;
use rt::cores::yield_turn;
use rt::stream::Stream;
use wire::Refusal;

use super::dialer::Dialer;
use super::{
    Client, ExchangeContext, READS_MAX, ResponseOutcome, needs_context, queue_timeout, record_response,
};
use crate::core_state::CoreState;
use crate::dispatcher::NextAction;
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::inspection::{Inspection, NoSink, ResponseInspector};
use crate::pace::Pace;
use crate::plan::{RenderedRequest, RunPlan, TemplateRequest};
use crate::recorder::RequestTiming;
use crate::response_reader::{CompleteResponse, ResponseReader};
use crate::session::{ClientSession, connection_rng};

/// A connection, and the number of requests that it has carried.
struct Connection {
    stream: Stream,
    request_count: u64,
}

/// One client: at most one connection, at most one request at a time.
pub(super) struct Http1Client {
    dialer: Dialer,
    connection: Option<Connection>,
    /// Number of requests so far, to take the URLs in turn.
    request_index: usize,
    /// State between requests, if the plan needs any.
    extras: Option<Box<ClientExtras>>,
    random: fastrand::Rng,
    /// True if the request that was taken waited for this connection since it was due.
    queued: bool,
}

/// Session and buffers of a client, for plans with templates, checks of the content or sessions.
pub(super) struct ClientExtras {
    pub(super) session: ClientSession,
    pub(super) context: ExchangeContext,
}

impl Client for Http1Client {
    fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    async fn connect_before_start(&mut self) {
        // The run connects again.
        let _ = self.connect(now_ns()).await;
    }

    async fn run(&mut self, start_ns: u64) {
        self.run_loop(start_ns).await;
    }
}

impl Http1Client {
    pub(super) fn new(dialer: Dialer) -> Self {
        let plan = &dialer.core.shared.plan;
        let number = dialer.client_number() as u64;
        let extras = ClientExtras::for_plan(plan, number);
        let random = connection_rng(plan, number);
        Self { request_index: dialer.first_turn(), dialer, connection: None, extras, random, queued: false }
    }

    async fn connect(&mut self, due_ns: u64) -> Result<(), Failure> {
        let connected = self.dialer.connect(due_ns, async |_, stream| Ok(stream)).await;
        self.connection = Some(Connection { stream: connected?, request_count: 0 });
        Ok(())
    }

    async fn run_loop(&mut self, start_ns: u64) {
        let core = Rc::clone(&self.dialer.core);
        let closed_loop = match core.shared.plan.pace {
            Pace::Closed { think_ns } => Some(think_ns),
            Pace::Open { .. } => None,
        };
        // In a closed loop the next request is due when the previous one has ended.
        let mut free_ns = start_ns;
        loop {
            let due_ns = match closed_loop {
                Some(think_ns) => self.next_closed_loop(free_ns, think_ns).await,
                None => self.next_open_loop().await,
            };
            let Some(due_ns) = due_ns else { return };
            let begun_ns = now_ns();
            if self.connection.is_none()
                && let Err(failure) = Box::pin(self.connect(due_ns)).await
            {
                core.recorder.borrow_mut().record_not_sent(due_ns, failure, now_ns());
                // The next request of a closed loop is due after the pause, which is not latency.
                free_ns = self.dialer.back_off().await;
                continue;
            }
            free_ns = self.exchange(due_ns, begun_ns).await;
        }
    }

    /// Returns the next due time of a closed loop.
    async fn next_closed_loop(&mut self, free_ns: u64, think_ns: u64) -> Option<u64> {
        let core = Rc::clone(&self.dialer.core);
        let plan = &core.shared.plan;
        let think_ns = if think_ns == 0 { 0 } else { plan.think.sample(think_ns, &mut self.random) };
        let mut due_ns = free_ns + think_ns;
        let mut waits = think_ns > 0;
        if let Some(stages) = plan.connection_stages() {
            let number = self.dialer.client_number() as u64;
            let start_ns = core.start_ns.get();
            let active_ns = stages.next_active_ns(number, due_ns.saturating_sub(start_ns));
            // A connection that is not used any more stays open until the end.
            let active_ns = active_ns.map_or(u64::MAX, |active_ns| start_ns.saturating_add(active_ns));
            waits |= active_ns > due_ns;
            due_ns = due_ns.max(active_ns);
        }
        if waits {
            // As in an open loop, a server that closes the connection meanwhile costs no request.
            let mut think_timer = pin!(core.timers.sleep_until(due_ns.min(core.end_ns())));
            poll_fn(|cx| {
                self.poll_idle(cx);
                think_timer.as_mut().poll(cx)
            })
            .await;
            let now_ns = now_ns();
            let mut recorder = core.recorder.borrow_mut();
            core.roll(&mut recorder, now_ns);
            if recorder.is_running(due_ns) && now_ns >= due_ns {
                recorder.count_if_stalled(due_ns);
            }
        }
        if due_ns >= core.end_ns() || core.giving_up.get() || !core.dispatcher.borrow_mut().take_request() {
            core.dispatcher.borrow_mut().close();
            return None;
        }
        Some(due_ns)
    }

    /// Returns the next due time of an open loop. Meanwhile it notices if the server closes the
    /// connection.
    async fn next_open_loop(&mut self) -> Option<u64> {
        let core = Rc::clone(&self.dialer.core);
        let queue_timeout = queue_timeout(&core.shared.plan);
        poll_fn(|cx| {
            loop {
                let now_ns = now_ns();
                let next = match core.giving_up.get() {
                    true => NextAction::End,
                    false => {
                        core.dispatcher.borrow_mut().next_action(self.dialer.index, 1, now_ns, queue_timeout)
                    }
                };
                match next {
                    NextAction::Due { due_ns, queued: waited } => {
                        let mut recorder = core.recorder.borrow_mut();
                        core.roll(&mut recorder, now_ns);
                        self.queued = waited;
                        if !waited {
                            recorder.record_lag(now_ns.saturating_sub(due_ns));
                        }
                        recorder.record_back_off(self.dialer.back_off_overlap_ns(due_ns));
                        return Poll::Ready(Some(due_ns));
                    }
                    NextAction::Expired { due_ns, count } => {
                        self.record_not_sent(due_ns, count, FailureKind::Timeout, now_ns)
                    }
                    NextAction::TooLate { due_ns, count } => {
                        self.record_not_sent(due_ns, count, FailureKind::TooLate, now_ns)
                    }
                    NextAction::End => return Poll::Ready(None),
                    NextAction::Wait => {
                        self.poll_idle(cx);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await
    }

    /// Records that queued requests are not sent.
    fn record_not_sent(&self, due_ns: u64, count: u64, kind: FailureKind, now_ns: u64) {
        let failure = Failure { kind, phase: RequestPhase::Queue };
        self.dialer.core.recorder.borrow_mut().record_all_not_sent(due_ns, count, failure, now_ns);
    }

    /// Drops an idle connection if the server has closed it or sends unsolicited bytes.
    fn poll_idle(&mut self, cx: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let mut scratch = self.dialer.core.scratch.borrow_mut();
        let Poll::Ready(read) = connection.stream.poll_read(cx, &mut scratch) else {
            return;
        };
        drop(scratch);
        let unsolicited_bytes = read.unwrap_or(0) as u64;
        self.close(|counters| {
            counters.bytes_in += unsolicited_bytes;
            counters.excess_bytes += unsolicited_bytes;
            counters.closed_idle += u64::from(unsolicited_bytes == 0);
        });
    }

    /// Sends one request and reads its response. Returns the time when the client is free again.
    ///
    /// `begun_ns` is when the client took the request, before it connected.
    async fn exchange(&mut self, due_ns: u64, begun_ns: u64) -> u64 {
        let core = Rc::clone(&self.dialer.core);
        let shared = &core.shared;
        let index = self.dialer.next_request(&mut self.request_index, due_ns);
        let request = &shared.plan.requests[index];
        let Some(mut connection) = self.connection.take() else {
            return now_ns();
        };
        let last = shared
            .plan
            .requests_per_connection
            .is_some_and(|max_requests| connection.request_count + 1 >= max_requests);
        let mut extras = self.extras.take();
        if let Some(extras) = extras.as_deref_mut() {
            extras.prepare(&core, request, last);
        }
        let sent_ns = now_ns();
        self.dialer.deadline.set(shared.plan.deadline_ns(due_ns, sent_ns));
        core.recorder.borrow_mut().record_sent(due_ns, sent_ns);
        let mut transfer = Transfer::new(request, last, extras.as_deref_mut());
        let result = poll_fn(|cx| match self.dialer.interruption() {
            Some(kind) => Poll::Ready(Err(kind)),
            None => transfer.poll(cx, &mut connection.stream, &core),
        })
        .await;
        self.dialer.deadline.clear();
        connection.request_count += 1;
        let begun = ExchangeStart { request: index, due_ns, begun_ns, sent_ns, queued: self.queued };
        let (ended_ns, keeps_connection) = match result {
            Ok(response) => {
                let keep_alive = response.reusable && !last && transfer.is_written();
                (record_complete(&core, begun, &transfer, response), keep_alive)
            }
            Err(kind) => (record_failed(&core, begun, &transfer, kind), false),
        };
        self.extras = extras;
        self.connection = Some(connection);
        if !keeps_connection {
            self.close(|counters| counters.lost += u64::from(result.is_err()));
        }
        ended_ns
    }

    fn close(&mut self, count: impl FnOnce(&mut crate::recorder::Counters)) {
        if self.connection.take().is_some() {
            let mut recorder = self.dialer.core.recorder.borrow_mut();
            recorder.open_connections -= 1;
            count(&mut recorder.counters);
        }
    }
}

impl ClientExtras {
    /// Creates those of connection `number`; `None` if the plan needs none.
    pub(super) fn for_plan(plan: &RunPlan, number: u64) -> Option<Box<Self>> {
        let session = || ClientSession::new(plan, number);
        needs_context(plan)
            .then(|| Box::new(Self { session: session(), context: ExchangeContext::default() }))
    }

    pub(super) fn render(&mut self, core: &CoreState, request: &RenderedRequest, is_last: bool) -> &[u8] {
        if let Some(template) = &request.template {
            let table = core.shared.plan.values.as_deref();
            let values = TemplateRequest { number: core.next_request_number(), table };
            self.context.buffer.render_http1(request, template, is_last, values, &mut self.session);
        }
        &self.context.buffer.bytes
    }

    fn prepare(&mut self, core: &CoreState, request: &RenderedRequest, is_last: bool) {
        self.context.inspector.reset();
        self.render(core, request, is_last);
    }
}

#[derive(Clone, Copy)]
struct ExchangeStart {
    request: usize,
    due_ns: u64,
    begun_ns: u64,
    sent_ns: u64,
    queued: bool,
}

/// Records a complete response. Returns the time of its end.
fn record_complete(
    core: &CoreState,
    begun: ExchangeStart,
    transfer: &Transfer<'_>,
    response: CompleteResponse,
) -> u64 {
    let ExchangeStart { request, due_ns, begun_ns, sent_ns, queued } = begun;
    let &Transfer { first_ns, last_ns, .. } = transfer;
    let inspector = transfer.inspection.as_ref().map(|inspection| &*inspection.inspector);
    if response.excess_bytes > 0 {
        core.recorder.borrow_mut().counters.excess_bytes += response.excess_bytes as u64;
    }
    let CompleteResponse { status, body_bytes, .. } = response;
    let timing = RequestTiming { due_ns, begun_ns, sent_ns, first_ns, last_ns, queued };
    record_response(core, ResponseOutcome { request, status, body_bytes, grpc: None, inspector }, timing);
    last_ns
}

/// Records a failed exchange. Returns the time of its end.
fn record_failed(core: &CoreState, begun: ExchangeStart, transfer: &Transfer<'_>, kind: FailureKind) -> u64 {
    let now_ns = now_ns();
    if kind == FailureKind::Timeout {
        let estimator = &mut core.dispatcher.borrow_mut().latency_estimator;
        estimator.record_given_up(now_ns.saturating_sub(begun.begun_ns));
    }
    let phase = if transfer.reader.has_begun() { RequestPhase::Body } else { RequestPhase::FirstByte };
    let mut recorder = core.recorder.borrow_mut();
    core.roll(&mut recorder, now_ns);
    recorder.counters.sent += u64::from(transfer.is_written());
    recorder.record_failed_exchange(begun.due_ns, begun.sent_ns, Failure { kind, phase }, now_ns);
    now_ns
}

/// A request being sent, and its response being read.
struct Transfer<'r> {
    bytes: &'r [u8],
    written: usize,
    reader: ResponseReader,
    first_ns: u64,
    last_ns: u64,
    /// Inspection of the response, if the plan needs one.
    inspection: Option<TransferInspection<'r>>,
}

/// Inspector and session that the response of a transfer passes through.
struct TransferInspection<'r> {
    inspector: &'r mut ResponseInspector,
    session: &'r mut ClientSession,
}

impl<'r> Transfer<'r> {
    fn new(request: &'r RenderedRequest, last: bool, extras: Option<&'r mut ClientExtras>) -> Self {
        let fixed = if last { &request.bytes_closing } else { &request.bytes };
        let (bytes, inspection) = match extras {
            None => (fixed.as_slice(), None),
            Some(ClientExtras { session, context: ExchangeContext { buffer, inspector } }) => {
                let bytes = if request.template.is_some() { &buffer.bytes } else { fixed };
                (bytes.as_slice(), Some(TransferInspection { inspector, session }))
            }
        };
        Self {
            bytes,
            inspection,
            written: 0,
            reader: ResponseReader::new(request.kind),
            first_ns: 0,
            last_ns: 0,
        }
    }

    fn is_written(&self) -> bool {
        self.written == self.bytes.len()
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        core: &CoreState,
    ) -> Poll<Result<CompleteResponse, FailureKind>> {
        while !self.is_written() {
            match stream.poll_write(cx, &self.bytes[self.written..]) {
                Poll::Ready(Ok(bytes)) => {
                    self.written += bytes;
                    core.recorder.borrow_mut().counters.bytes_out += bytes as u64;
                }
                // A server may respond and close before it has read everything. If there is a
                // response, it still has to be read.
                Poll::Ready(Err(error)) if self.written == 0 || !is_peer_gone(&error) => {
                    return Poll::Ready(Err(FailureKind::from_io_error(&error)));
                }
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        let mut scratch = core.scratch.borrow_mut();
        for _ in 0..READS_MAX {
            let bytes = match stream.poll_read(cx, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(FailureKind::from_io_error(&error)));
                }
                Poll::Ready(Ok(bytes)) => bytes,
            };
            self.last_ns = now_ns();
            if bytes == 0 {
                // Without close_notify a body that only the end delimits may be truncated.
                let response = self.reader.handle_eof().filter(|_| !stream.is_truncated());
                return Poll::Ready(response.ok_or(FailureKind::Closed));
            }
            let (interim, begun) = (self.reader.interim_count(), self.reader.has_begun());
            core.recorder.borrow_mut().record_received(bytes, stream.receive_lag_ns());
            let handled = self.handle_bytes(&scratch[..bytes], core);
            // The final response begins after the interim ones (RFC 9110, 15.2).
            if !begun || self.reader.interim_count() > interim {
                self.first_ns = self.last_ns;
            }
            match handled {
                Ok(None) => {}
                Ok(Some(response)) => return Poll::Ready(Ok(response)),
                Err(refusal) => return Poll::Ready(Err(core.note_malformed(refusal, &scratch[..bytes]))),
            }
        }
        yield_turn(cx);
        Poll::Pending
    }
}

impl Transfer<'_> {
    #[inline]
    fn handle_bytes(&mut self, bytes: &[u8], core: &CoreState) -> Result<Option<CompleteResponse>, Refusal> {
        let Some(TransferInspection { inspector, session }) = &mut self.inspection else {
            return self.reader.handle_bytes(bytes, &core.limits, &mut NoSink);
        };
        let plan = &core.shared.plan;
        let mut inspection = Inspection { inspector, plan, session };
        let handled = self.reader.handle_bytes(bytes, &core.limits, &mut inspection);
        if let Ok(Some(_)) = handled {
            inspection.inspector.capture(plan, inspection.session);
        }
        handled
    }
}

fn is_peer_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
