//! Clients: the tasks that send requests. A client has at most one connection. With HTTP/1.1 it
//! carries one request at a time ([`http1`]), with HTTP/2 as many as there are streams
//! ([`http2`]). After its handshake a connection of WebSocket carries messages ([`websocket`]), and one of an event
//! stream carries its events ([`event_stream`]), with either version ([`transport`]). Connecting ([`dialer`]) and the record of an outcome are the same for both.

mod dialer;
mod event_stream;
mod http1;
mod http2;
mod multiplexed;
mod pipeline;
mod request_buffer;
mod source;
mod transport;
mod websocket;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use rt::deadlines::Deadline;

use self::dialer::Dialer;
use self::event_stream::EventStreamClient;
use self::http1::Http1Client;
use self::http2::Http2Client;
use self::pipeline::PipelineClient;
use self::request_buffer::RequestBuffer;
use self::websocket::WebSocketClient;
use crate::core_state::CoreState;
use crate::dispatcher::QueueTimeout;
use crate::failure::FailureKind;
use crate::inspection::{FailedCheck, ResponseInspector};
use crate::malformation::Malformation;
use crate::pace::ramp_slot_ns;
use crate::plan::{GrpcStatus, HttpVersion, RunPlan, TimeoutFrom};
use crate::recorder::{CheckSample, RequestTiming};

/// Maximum number of reads in one poll before other tasks get their turn.
const READS_MAX: u32 = 16;

/// End of a connection with several requests at a time.
enum ConnectionEnd {
    /// The load is over for this client.
    LoadEnded,
    /// Another connection may be needed.
    Closed,
}

/// Client of one protocol version.
trait Client {
    fn dialer(&self) -> &Dialer;

    /// Opens its connection. A failure is noted, and the run tries again.
    async fn connect_before_start(&mut self);

    /// Sends requests from `start_ns` until the load ends.
    async fn run(&mut self, start_ns: u64);
}

/// Runs client `index` of a core until the load ends.
pub(crate) async fn run_client(core: Rc<CoreState>, index: usize) {
    let deadline = register(&core, index).await;
    let number = core.first_client + index as u64;
    let version = core.shared.plan.http_version(number);
    let dialer = Dialer::new(core, index, version, deadline);
    // Boxed, so that each task is as large as its own client.
    let plan = &dialer.core.shared.plan;
    match version {
        _ if plan.websocket.is_some() => Box::pin(run_to_end(WebSocketClient::new(dialer, version))).await,
        _ if plan.sse => Box::pin(run_to_end(EventStreamClient::new(dialer, version))).await,
        HttpVersion::Http1 if plan.pipeline > 1 => Box::pin(run_to_end(PipelineClient::new(dialer))).await,
        HttpVersion::Http1 => Box::pin(run_to_end(Http1Client::new(dialer))).await,
        HttpVersion::Http2 => Box::pin(run_to_end(Http2Client::new(dialer))).await,
    }
}

async fn register(core: &Rc<CoreState>, index: usize) -> Deadline {
    poll_fn(|cx| {
        core.dispatcher.borrow_mut().register(index, cx.waker());
        Poll::Ready(core.deadlines.register(cx.waker()))
    })
    .await
}

async fn run_to_end(mut client: impl Client) {
    let core = Rc::clone(&client.dialer().core);
    let guard = core.client_guard();
    let plan = &core.shared.plan;
    if plan.ramp_ns == 0 {
        // Boxed, like every rare step here, to keep the future of a busy client small.
        Box::pin(connect_before_start(&core, &mut client)).await;
    }
    guard.mark_opened();
    let Some((start_ns, _)) = core.wait_for_start().await else {
        return;
    };
    core.timers.sleep_until(start_ns).await;
    if plan.ramp_ns == 0 {
        return client.run(start_ns).await;
    }
    let number = core.first_client + client.dialer().index as u64;
    let slot_ns = ramp_slot_ns(number, plan.connections, plan.ramp_ns);
    core.timers.sleep_until((start_ns + slot_ns).min(core.end_ns())).await;
    Box::pin(connect_before_start(&core, &mut client)).await;
    client.run(start_ns + slot_ns).await;
}

/// Opens the first connection, a few at a time. A failure here concerns a connection, not a request,
/// so no request is counted.
async fn connect_before_start(core: &CoreState, client: &mut impl Client) {
    let Ok(_permit) = core.connect_permits.acquire().await else {
        return;
    };
    client.connect_before_start().await;
}

/// Returns the rule for requests that wait in the queue.
fn queue_timeout(plan: &RunPlan) -> QueueTimeout {
    match plan.timeout_from {
        TimeoutFrom::Due => QueueTimeout::FromDue { timeout_ns: plan.timeout_ns },
        TimeoutFrom::Send => QueueTimeout::FromSend,
    }
}

/// Properties of a complete response that decide its outcome.
#[derive(Clone, Copy, Debug)]
struct ResponseOutcome<'a> {
    request: usize,
    status: u16,
    body_bytes: u64,
    /// Status of the call and the defect of its messages; `None` if the request is no gRPC call.
    grpc: Option<(GrpcStatus, Option<Malformation>)>,
    /// Inspector of its fields and content, if the plan needs one.
    inspector: Option<&'a ResponseInspector>,
}

/// Buffers and state of one exchange, for plans with templates, checks of the content or sessions. They
/// are used again for the next exchange.
#[derive(Clone, Debug, Default)]
struct ExchangeContext {
    buffer: RequestBuffer,
    inspector: ResponseInspector,
}

/// Returns whether exchanges of a plan need a context and a session.
fn needs_context(plan: &RunPlan) -> bool {
    plan.needs_inspection() || plan.requests.iter().any(|request| request.template.is_some())
}

/// Records a complete response: good, bad, or one that fails a check.
fn record_response(core: &CoreState, response: ResponseOutcome<'_>, timing: RequestTiming) {
    let mut recorder = core.recorder.borrow_mut();
    core.roll(&mut recorder, timing.last_ns);
    // The own stall says nothing about the latency of the requests that come next.
    if !recorder.has_stall_delayed(timing.begun_ns, timing.last_ns) {
        let estimator = &mut core.dispatcher.borrow_mut().latency_estimator;
        estimator.record_response(timing.last_ns.saturating_sub(timing.begun_ns));
    }
    let counters = &mut recorder.counters;
    counters.sent += 1;
    counters.status[usize::from(response.status) % 1000] += 1;
    counters.body_bytes += response.body_bytes;
    let expect = &core.shared.plan.expect;
    let good_status = expect.is_good_status(response.status);
    let good_call = response.grpc.is_none_or(|(status, _)| {
        counters.http2.count_grpc_status(status);
        status.is_ok() && response.status == 200
    });
    let malformation = response.grpc.and_then(|(_, malformation)| malformation).filter(|_| good_call);
    // A response that fails a check is counted once, as an error and not as a response.
    let mut failed_check_kind = None;
    let failure = if let Some(failed) = failed_check(core, response, good_status) {
        let check = failed.kind();
        failed_check_kind = Some(check);
        recorder.record_failed_check(check, || CheckSample {
            at_ns: timing.last_ns,
            check,
            request: response.request,
            status: response.status,
            body_bytes: response.body_bytes,
            found: failed.to_string(),
            body_start: response.inspector.map(ResponseInspector::sample_text).unwrap_or_default(),
        });
        Some(FailureKind::Check)
    } else if let Some(reason) = malformation {
        recorder.note_malformation(reason);
        Some(FailureKind::Parse)
    } else if good_call {
        None
    } else {
        Some(FailureKind::GrpcStatus)
    };
    let is_good = good_status && failure.is_none();
    recorder.count_response_to(response.request, is_good, failed_check_kind);
    if is_good {
        recorder.record_good_response(timing);
    } else {
        recorder.record_bad_response(timing, failure);
    }
}

/// Returns the first check that a response failed, with what was found.
#[inline]
fn failed_check<'p>(
    core: &'p CoreState,
    response: ResponseOutcome<'_>,
    is_good_status: bool,
) -> Option<FailedCheck<'p>> {
    let expect = &core.shared.plan.expect;
    if !is_good_status && expect.status.is_some() {
        return Some(FailedCheck::Status(response.status));
    }
    let inspected = response.inspector.and_then(|inspector| {
        inspector.failed_check(expect, response.body_bytes, |hash| {
            core.shared.first_bodies.is_same(response.request, hash)
        })
    });
    match expect.body_bytes {
        Some(bytes) if bytes != response.body_bytes && inspected.is_none() => {
            Some(FailedCheck::Length(response.body_bytes))
        }
        _ => inspected,
    }
}
