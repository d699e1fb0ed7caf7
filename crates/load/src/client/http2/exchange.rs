//! Requests on the streams of one connection, and their progress. Bodies are counted, not stored.

use wire::h2::{Fields, OnStream, StreamKey, StreamTable};

use crate::client::{ExchangeContext, ResponseOutcome, needs_context, record_response};
use crate::core_state::CoreState;
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::inspection::Inspection;
use crate::plan::{GrpcMessages, GrpcStatus, RenderedRequest, RunPlan, TemplateRequest};
use crate::recorder::RequestTiming;
use crate::session::ClientSession;

/// A request that was sent and has not ended.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Its stream; that of the previous connection while it waits to be sent again.
    pub(super) stream: StreamKey,
    pub(super) request: usize,
    pub(super) due_ns: u64,
    /// Time when the client took it.
    pub(super) begun_ns: u64,
    pub(super) sent_ns: u64,
    /// True if it waited for a free stream since it was due.
    pub(super) queued: bool,
    first_ns: u64,
    pub(super) deadline_ns: u64,
    /// Bytes of the body that were passed to the connection.
    pub(super) body_sent: usize,
    /// Time from which its body waits for a window of the server; 0 if it does not.
    window_wait_from_ns: u64,
    /// Position of its end in the output of the connection; `u64::MAX` until the end was passed on.
    pub(super) output_end: u64,
    status: u16,
    interim_count: u32,
    body_bytes: u64,
    grpc_status: GrpcStatus,
    grpc_messages: GrpcMessages,
    /// Number of earlier sends that a server did not process.
    pub(super) resent: u8,
    /// Rendered request and inspector, if the plan needs them.
    pub(super) context: Option<Box<ExchangeContext>>,
}

impl Exchange {
    /// Creates one from the times when it was due, when the client took it, and of its send.
    pub(super) fn new(
        request: usize,
        (due_ns, begun_ns, sent_ns): (u64, u64, u64),
        deadline_ns: u64,
    ) -> Self {
        Self {
            stream: StreamKey { slot: 0, id: 0 },
            request,
            due_ns,
            begun_ns,
            sent_ns,
            queued: true,
            first_ns: 0,
            deadline_ns,
            body_sent: 0,
            window_wait_from_ns: 0,
            output_end: u64::MAX,
            status: 0,
            interim_count: 0,
            body_bytes: 0,
            grpc_status: GrpcStatus::Missing,
            grpc_messages: GrpcMessages::default(),
            resent: 0,
            context: None,
        }
    }

    /// Makes it ready to be sent again: it keeps its times.
    pub(super) fn into_retry(self) -> Self {
        let times = (self.due_ns, self.begun_ns, self.sent_ns);
        Self {
            resent: self.resent + 1,
            context: self.context,
            ..Self::new(self.request, times, self.deadline_ns)
        }
    }

    /// Handles a head of its response.
    ///
    /// # Errors
    /// There are too many interim ones.
    pub(super) fn handle_head(&mut self, status: u16, now_ns: u64, core: &CoreState) -> Result<(), ()> {
        if status < 200 {
            self.interim_count += 1;
            return core.limits.check_interim(self.interim_count).map_err(|_| ());
        }
        (self.status, self.first_ns) = (status, now_ns);
        Ok(())
    }

    pub(super) fn handle_data(&mut self, bytes: &[u8], is_grpc: bool) {
        self.body_bytes += bytes.len() as u64;
        if is_grpc {
            self.grpc_messages.add(bytes);
        }
    }

    /// Notes that the windows of the server admit no more of the body.
    pub(super) fn wait_for_window(&mut self, now_ns: u64) {
        if self.window_wait_from_ns == 0 {
            self.window_wait_from_ns = now_ns;
        }
    }

    pub(super) fn end_window_wait(&mut self, clock: fn() -> u64) -> Option<u64> {
        let from_ns = std::mem::take(&mut self.window_wait_from_ns);
        (from_ns > 0).then(|| clock() - from_ns)
    }

    pub(super) fn request_body<'a>(&'a self, request: &'a RenderedRequest) -> &'a [u8] {
        match &self.context {
            Some(context) if request.template.is_some() => &context.buffer.body,
            _ => &request.body,
        }
    }

    /// Handles the fields of the response head of a gRPC call; apart, so that other responses stay short.
    #[cold]
    pub(super) fn handle_grpc_head(&mut self, fields: Fields<'_>) {
        self.grpc_messages.set_encoding(fields.get("grpc-encoding"));
    }

    /// Handles the fields that end a gRPC call.
    pub(super) fn handle_grpc_fields(&mut self, fields: Fields<'_>) {
        self.grpc_status = fields.get("grpc-status").map_or(GrpcStatus::Missing, GrpcStatus::parse);
    }

    pub(super) fn record_response(&self, core: &CoreState, last_ns: u64) {
        let &Self { due_ns, begun_ns, sent_ns, first_ns, status, body_bytes, queued, .. } = self;
        let is_grpc = core.shared.plan.http2.as_ref().is_some_and(|http2| http2.grpc);
        let inspector = self.context.as_ref().map(|context| &context.inspector);
        let grpc = is_grpc.then_some((self.grpc_status, self.grpc_messages.malformation()));
        let response = ResponseOutcome { request: self.request, status, body_bytes, grpc, inspector };
        record_response(
            core,
            response,
            RequestTiming { due_ns, begun_ns, sent_ns, first_ns, last_ns, queued },
        );
    }

    pub(super) fn record_failure(&self, core: &CoreState, kind: FailureKind, now_ns: u64, is_written: bool) {
        let phase = if self.status == 0 { RequestPhase::FirstByte } else { RequestPhase::Body };
        let mut recorder = core.recorder.borrow_mut();
        core.roll(&mut recorder, now_ns);
        recorder.counters.sent += u64::from(is_written);
        recorder.record_failed_exchange(self.due_ns, self.sent_ns, Failure { kind, phase }, now_ns);
    }
}

impl OnStream for Exchange {
    fn stream(&self) -> StreamKey {
        self.stream
    }
}

#[derive(Debug, Default)]
pub(super) struct ExchangeTable {
    pub(super) streams: StreamTable<Exchange>,
    /// State between requests, if the plan needs any.
    session: Option<Box<ClientSession>>,
    /// Contexts of exchanges that have ended, boxed as in an exchange.
    #[expect(clippy::vec_box, reason = "a box moves between here and an exchange without a new allocation")]
    spare_contexts: Vec<Box<ExchangeContext>>,
}

impl ExchangeTable {
    pub(super) fn new(plan: &RunPlan, number: u64) -> Self {
        let session = needs_context(plan).then(|| Box::new(ClientSession::new(plan, number)));
        Self { session, ..Self::default() }
    }

    /// Returns a context for a request, rendered if it has templates; `None` if the plan needs none.
    pub(super) fn take_context(&mut self, core: &CoreState, request: usize) -> Option<Box<ExchangeContext>> {
        let session = self.session.as_deref_mut()?;
        let mut context = self.spare_contexts.pop().unwrap_or_default();
        context.inspector.reset();
        let plan = &core.shared.plan;
        if let Some(template) = &plan.requests[request].template {
            let values =
                TemplateRequest { number: core.next_request_number(), table: plan.values.as_deref() };
            context.buffer.render_parts(&plan.requests[request], template, values, session);
        }
        Some(context)
    }

    pub(super) fn give_back(&mut self, context: Option<Box<ExchangeContext>>) {
        self.spare_contexts.extend(context);
    }

    /// Returns the inspection of a response, if the plan needs one.
    pub(super) fn inspection<'a>(
        &'a mut self,
        plan: &'a RunPlan,
        stream: StreamKey,
    ) -> Option<Inspection<'a>> {
        let session = self.session.as_deref_mut()?;
        let inspector = &mut self.streams.get_mut(stream)?.context.as_mut()?.inspector;
        Some(Inspection { inspector, plan, session })
    }

    /// Removes and returns the requests that have timed out.
    pub(super) fn take_expired(&mut self, now_ns: u64) -> Vec<Exchange> {
        let expired = self.streams.iter().filter(|exchange| exchange.deadline_ns <= now_ns);
        let streams: Vec<_> = expired.map(|exchange| exchange.stream).collect();
        streams.into_iter().filter_map(|stream| self.streams.remove(stream)).collect()
    }
}
