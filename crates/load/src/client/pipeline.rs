//! Client of HTTP/1.1 with pipelining (RFC 9112 §9.3.2): up to a number of requests in flight on one
//! connection, whose responses come in the order of the requests.
//!
//! A request that times out ends its connection, because the responses after it could not be told from its own:
//! the requests behind it fail as `closed`. Behind a response that ends the connection a server processes no request
//! (RFC 9112 §9.6): these are sent again on the next connection, with their first due and send times.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::now_ns;
use rt::cores::yield_turn;
use rt::stream::Stream;
use wire::Refusal;

use super::dialer::Dialer;
use super::http1::ClientExtras;
use super::multiplexed::MultiplexedClient;
use super::source::{RequestSource, WantedRequest};
use super::{ConnectionEnd, READS_MAX, ResponseOutcome, record_response};
use crate::core_state::CoreState;
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::inspection::{Inspection, NoSink};
use crate::malformation::Malformation;
use crate::recorder::{Counters, RequestTiming};
use crate::response_reader::{CompleteResponse, ResponseReader};

/// Maximum bytes that wait for the socket. Beyond it no request is added.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

struct PipelineConnection {
    stream: Stream,
    output: Vec<u8>,
    /// Bytes that the socket has accepted.
    written: u64,
    in_flight: VecDeque<InFlightRequest>,
    /// Parser of the first response that is awaited.
    reader: Option<ResponseReader>,
    requests_left: u64,
    /// True if no further request is sent.
    is_closing: bool,
}

/// A request without its complete response.
#[derive(Debug)]
struct InFlightRequest {
    request: usize,
    due_ns: u64,
    begun_ns: u64,
    sent_ns: u64,
    first_ns: u64,
    deadline_ns: u64,
    output_end: u64,
    /// Its bytes, if it has a template: it is sent again as it was.
    rendered: Option<Vec<u8>>,
}

/// One client: at most one connection, with up to `depth` requests.
pub(super) struct PipelineClient {
    dialer: Dialer,
    connection: Option<Box<PipelineConnection>>,
    /// Requests that the server did not process, for the next connection. Each connection responds to one at least, so
    /// that a request waits for as many connections as the depth at most.
    resends: VecDeque<InFlightRequest>,
    /// Buffers of rendered requests that have ended.
    spare: Vec<Vec<u8>>,
    source: RequestSource,
    depth: usize,
    /// Number of requests so far, to take the URLs in turn.
    request_index: usize,
    extras: Option<Box<ClientExtras>>,
}

impl MultiplexedClient for PipelineClient {
    fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    fn parts(&mut self) -> (&mut RequestSource, &mut Dialer) {
        (&mut self.source, &mut self.dialer)
    }

    fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    async fn connect(&mut self, due_ns: u64) -> Result<(), Failure> {
        let stream = self.dialer.connect(due_ns, async |_, stream| Ok(stream)).await?;
        let plan = &self.dialer.core.shared.plan;
        self.connection = Some(Box::new(PipelineConnection {
            stream,
            output: Vec::new(),
            written: 0,
            in_flight: VecDeque::with_capacity(self.depth),
            reader: None,
            requests_left: plan.requests_per_connection.unwrap_or(u64::MAX),
            is_closing: false,
        }));
        Ok(())
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let core = Rc::clone(&self.dialer.core);
        if core.giving_up.get() {
            self.lose(FailureKind::Unfinished);
            return Poll::Ready(ConnectionEnd::LoadEnded);
        }
        if self.dialer.deadline.is_expired() {
            self.lose(FailureKind::Timeout);
            return Poll::Ready(ConnectionEnd::Closed);
        }
        for turn in 0..READS_MAX {
            let received = self.poll_receive(cx, &core);
            self.start_requests(cx, &core);
            let flushed = self.poll_flush(cx, &core);
            match (received, flushed) {
                (Err(kind), _) | (_, Err(kind)) => {
                    self.end_lost(kind);
                    return Poll::Ready(ConnectionEnd::Closed);
                }
                (Ok(true), _) if turn + 1 < READS_MAX => {}
                (Ok(true), _) => yield_turn(cx),
                (Ok(false), _) => break,
            }
        }
        self.poll_end()
    }

    fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        if let Some(resend) = self.resends.front() {
            return Poll::Ready(Some(resend.due_ns));
        }
        self.source.poll_wanted(cx, &self.dialer)
    }

    fn fail_waiting(&mut self, failure: Failure) {
        let core = Rc::clone(&self.dialer.core);
        let now_ns = now_ns();
        self.source.fail_wanted(&core, failure, now_ns);
        self.fail_resends(&core, failure.kind, now_ns);
    }
}

impl PipelineClient {
    pub(super) fn new(dialer: Dialer) -> Self {
        let plan = &dialer.core.shared.plan;
        let depth = usize::try_from(plan.pipeline).unwrap_or(usize::MAX);
        let number = dialer.client_number() as u64;
        Self {
            connection: None,
            resends: VecDeque::new(),
            spare: Vec::new(),
            source: RequestSource::new(plan, depth, number),
            depth,
            request_index: dialer.first_turn(),
            extras: ClientExtras::for_plan(plan, number),
            dialer,
        }
    }

    /// Ends the connection if no request is left on it.
    fn poll_end(&mut self) -> Poll<ConnectionEnd> {
        let Some(connection) = &self.connection else { return Poll::Ready(ConnectionEnd::Closed) };
        if !connection.in_flight.is_empty() {
            return Poll::Pending;
        }
        let is_over = self.source.is_ended() && self.resends.is_empty();
        let is_closing = connection.is_closing || connection.requests_left == 0;
        if is_over || is_closing {
            self.close(|_| ());
            return Poll::Ready(if is_over { ConnectionEnd::LoadEnded } else { ConnectionEnd::Closed });
        }
        Poll::Pending
    }

    /// Reads what has arrived. Returns whether there may be more.
    fn poll_receive(&mut self, cx: &mut Context<'_>, core: &CoreState) -> Result<bool, FailureKind> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let mut scratch = core.scratch.borrow_mut();
        let bytes = match connection.stream.poll_read(cx, &mut scratch) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(error)) => return Err(FailureKind::from_io_error(&error)),
            Poll::Ready(Ok(bytes)) => bytes,
        };
        let now_ns = now_ns();
        if bytes == 0 {
            let is_truncated = connection.stream.is_truncated();
            let response = connection.reader.as_mut().and_then(ResponseReader::handle_eof);
            if let Some(response) = response.filter(|_| !is_truncated) {
                // Its end is that of the connection.
                connection.is_closing = true;
                self.complete(core, response, now_ns);
            }
            return Err(FailureKind::Closed);
        }
        core.recorder.borrow_mut().counters.bytes_in += bytes as u64;
        let mut rest = &scratch[..bytes];
        while !rest.is_empty() {
            let Some(response) = self.handle_bytes(core, rest, now_ns)? else { return Ok(true) };
            rest = &rest[rest.len() - response.excess_bytes..];
            self.complete(core, response, now_ns);
            if self.connection.as_ref().is_some_and(|connection| connection.is_closing) {
                core.recorder.borrow_mut().counters.excess_bytes += rest.len() as u64;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Handles bytes of the first awaited response.
    fn handle_bytes(
        &mut self,
        core: &CoreState,
        bytes: &[u8],
        now_ns: u64,
    ) -> Result<Option<CompleteResponse>, FailureKind> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let Some(first) = connection.in_flight.front_mut() else {
            let mut recorder = core.recorder.borrow_mut();
            recorder.counters.excess_bytes += bytes.len() as u64;
            recorder.note_malformation(Malformation::Excess);
            return Err(FailureKind::Parse);
        };
        let plan = &core.shared.plan;
        if connection.reader.is_none()
            && let Some(extras) = &mut self.extras
        {
            extras.context.inspector.reset();
        }
        let kind = plan.requests[first.request].kind;
        let reader = connection.reader.get_or_insert_with(|| ResponseReader::new(kind));
        let (interim, begun) = (reader.interim_count(), reader.has_begun());
        let handled: Result<_, Refusal> = match self.extras.as_deref_mut() {
            None => reader.handle_bytes(bytes, &core.limits, &mut NoSink),
            Some(ClientExtras { session, context }) => {
                let inspector = &mut context.inspector;
                let mut inspection = Inspection { inspector, plan, session };
                let handled = reader.handle_bytes(bytes, &core.limits, &mut inspection);
                if let Ok(Some(_)) = handled {
                    inspection.inspector.capture(plan, inspection.session);
                }
                handled
            }
        };
        if !begun || reader.interim_count() > interim {
            first.first_ns = now_ns;
        }
        let keeps_connection = reader.keeps_connection();
        let response = handled.map_err(|refusal| core.note_malformed(refusal, bytes))?;
        if response.is_some() {
            connection.is_closing = !keeps_connection;
            connection.reader = None;
        }
        Ok(response)
    }

    /// Records a complete response to the first request.
    fn complete(&mut self, core: &CoreState, response: CompleteResponse, last_ns: u64) {
        let Some(connection) = &mut self.connection else { return };
        let Some(first) = connection.in_flight.pop_front() else { return };
        let InFlightRequest { request, due_ns, begun_ns, sent_ns, first_ns, rendered, .. } = first;
        self.spare.extend(rendered);
        if connection.is_closing {
            core.recorder.borrow_mut().counters.resent += connection.in_flight.len() as u64;
            connection.output.clear();
            self.resends.append(&mut connection.in_flight);
        }
        let inspector = self.extras.as_ref().map(|extras| &extras.context.inspector);
        let CompleteResponse { status, body_bytes, .. } = response;
        let outcome = ResponseOutcome { request, status, body_bytes, grpc: None, inspector };
        record_response(
            core,
            outcome,
            RequestTiming { due_ns, begun_ns, sent_ns, first_ns, last_ns, queued: true },
        );
        self.source.release(last_ns);
        self.set_deadline();
    }

    fn set_deadline(&mut self) {
        let in_flight = self.connection.iter().flat_map(|connection| &connection.in_flight);
        match in_flight.map(|request| request.deadline_ns).min() {
            Some(deadline_ns) => self.dialer.deadline.set(deadline_ns),
            None => self.dialer.deadline.clear(),
        }
    }

    /// Adds the requests that are sent again, and those that are due, as far as the depth allows.
    fn start_requests(&mut self, cx: &mut Context<'_>, core: &CoreState) {
        let now_ns = now_ns();
        let mut is_added = false;
        while let Some(connection) = &mut self.connection {
            let free = self.depth.saturating_sub(connection.in_flight.len());
            let is_full = connection.output.len() >= OUTPUT_BYTES_MAX;
            if free == 0 || is_full || connection.is_closing || connection.requests_left == 0 {
                self.source.block(&self.dialer);
                break;
            }
            if let Some(resend) = self.resends.pop_front() {
                self.start_again(core, resend, now_ns);
                is_added = true;
                continue;
            }
            let free = free.min(usize::try_from(connection.requests_left).unwrap_or(usize::MAX));
            let Some(wanted) = self.source.take(cx, &self.dialer, free, now_ns) else { break };
            self.start(core, wanted, now_ns);
            is_added = true;
        }
        if is_added {
            self.set_deadline();
        }
    }

    /// Adds a request to the output of the connection.
    fn start(&mut self, core: &CoreState, wanted: WantedRequest, now_ns: u64) {
        let Some(connection) = &mut self.connection else { return };
        let WantedRequest { due_ns, begun_ns, .. } = wanted;
        let plan = &core.shared.plan;
        connection.requests_left -= 1;
        let is_last = connection.requests_left == 0;
        let index = self.dialer.next_request(&mut self.request_index, due_ns);
        let request = &plan.requests[index];
        let mut rendered = None;
        let bytes = match self.extras.as_deref_mut() {
            Some(extras) if request.template.is_some() => {
                let bytes = extras.render(core, request, is_last);
                let mut copy = self.spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(bytes);
                rendered = Some(copy);
                bytes
            }
            _ if is_last => &request.bytes_closing,
            _ => &request.bytes,
        };
        connection.output.extend_from_slice(bytes);
        core.recorder.borrow_mut().record_sent(due_ns, now_ns);
        connection.in_flight.push_back(InFlightRequest {
            request: index,
            due_ns,
            begun_ns,
            sent_ns: now_ns,
            first_ns: 0,
            deadline_ns: plan.deadline_ns(due_ns, now_ns),
            output_end: connection.written + connection.output.len() as u64,
            rendered,
        });
    }

    /// Adds a request again that an earlier connection left unprocessed, unless its time is over.
    fn start_again(&mut self, core: &CoreState, resend: InFlightRequest, now_ns: u64) {
        if resend.deadline_ns <= now_ns {
            self.fail_again(core, resend, FailureKind::Timeout, now_ns);
            return;
        }
        let Some(connection) = &mut self.connection else { return };
        connection.requests_left -= 1;
        let request = &core.shared.plan.requests[resend.request];
        // A rendered request keeps its Connection field: the client closes behind the last one.
        connection.output.extend_from_slice(match &resend.rendered {
            Some(rendered) => rendered,
            None if connection.requests_left == 0 => &request.bytes_closing,
            None => &request.bytes,
        });
        let output_end = connection.written + connection.output.len() as u64;
        connection.in_flight.push_back(InFlightRequest { output_end, first_ns: 0, ..resend });
    }

    /// Records that the requests that wait to be sent again have failed.
    fn fail_resends(&mut self, core: &CoreState, kind: FailureKind, now_ns: u64) {
        for resend in std::mem::take(&mut self.resends) {
            self.fail_again(core, resend, kind, now_ns);
        }
    }

    fn fail_again(&mut self, core: &CoreState, resend: InFlightRequest, kind: FailureKind, now_ns: u64) {
        let InFlightRequest { due_ns, begun_ns, sent_ns, rendered, .. } = resend;
        self.spare.extend(rendered);
        if kind == FailureKind::Timeout {
            let age_ns = now_ns.saturating_sub(begun_ns);
            core.dispatcher.borrow_mut().latency_estimator.record_given_up(age_ns);
        }
        let mut recorder = core.recorder.borrow_mut();
        core.roll(&mut recorder, now_ns);
        let failure = Failure { kind, phase: RequestPhase::FirstByte };
        recorder.record_failed_exchange(due_ns, sent_ns, failure, now_ns);
        drop(recorder);
        self.source.release(now_ns);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, core: &CoreState) -> Result<(), FailureKind> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        while !connection.output.is_empty() {
            match connection.stream.poll_write(cx, &connection.output) {
                Poll::Pending => break,
                Poll::Ready(Ok(bytes)) => {
                    connection.output.drain(..bytes);
                    connection.written += bytes as u64;
                    core.recorder.borrow_mut().counters.bytes_out += bytes as u64;
                }
                Poll::Ready(Err(error)) => return Err(FailureKind::from_io_error(&error)),
            }
        }
        Ok(())
    }

    /// Ends a connection that its peer has closed.
    fn end_lost(&mut self, kind: FailureKind) {
        let is_idle = self.connection.as_ref().is_none_or(|connection| connection.in_flight.is_empty());
        let is_closing = self.connection.as_ref().is_some_and(|connection| connection.is_closing);
        match is_idle {
            true => self.close(|counters| counters.closed_idle += u64::from(!is_closing)),
            false => self.lose(kind),
        }
    }

    /// Ends the connection: its requests fail.
    fn lose(&mut self, kind: FailureKind) {
        let core = Rc::clone(&self.dialer.core);
        let now_ns = now_ns();
        let Some(connection) = self.connection.take() else { return };
        let begun = connection.reader.as_ref().is_some_and(ResponseReader::has_begun);
        if kind == FailureKind::Unfinished {
            self.fail_resends(&core, kind, now_ns);
        }
        let mut recorder = core.recorder.borrow_mut();
        core.roll(&mut recorder, now_ns);
        for (position, request) in connection.in_flight.iter().enumerate() {
            let has_expired = request.deadline_ns <= now_ns;
            let kind = match kind {
                FailureKind::Timeout if !has_expired => FailureKind::Closed,
                kind => kind,
            };
            if kind == FailureKind::Timeout {
                let age_ns = now_ns.saturating_sub(request.begun_ns);
                core.dispatcher.borrow_mut().latency_estimator.record_given_up(age_ns);
            }
            let phase = if begun && position == 0 { RequestPhase::Body } else { RequestPhase::FirstByte };
            recorder.counters.sent += u64::from(request.output_end <= connection.written);
            let failure = Failure { kind, phase };
            recorder.record_failed_exchange(request.due_ns, request.sent_ns, failure, now_ns);
            self.source.release(now_ns);
        }
        recorder.open_connections -= 1;
        recorder.counters.lost += u64::from(!connection.in_flight.is_empty());
        drop(recorder);
        self.spare.extend(connection.in_flight.into_iter().filter_map(|request| request.rendered));
        if kind == FailureKind::Unfinished {
            self.source.fail_wanted(&core, Failure { kind, phase: RequestPhase::Queue }, now_ns);
        }
        self.dialer.deadline.clear();
        core.dispatcher.borrow_mut().withdraw(self.dialer.index);
    }

    fn close(&mut self, count: impl FnOnce(&mut Counters)) {
        if self.connection.take().is_some() {
            let core = &self.dialer.core;
            let mut recorder = core.recorder.borrow_mut();
            recorder.open_connections -= 1;
            count(&mut recorder.counters);
            self.dialer.deadline.clear();
            core.dispatcher.borrow_mut().withdraw(self.dialer.index);
        }
    }
}
