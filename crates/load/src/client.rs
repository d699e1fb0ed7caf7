//! The client loop: take a due request, get a connection, send, read, record. One loop serves every
//! pace, end and protocol variant.
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

mod connect;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use record::units::{MILLISECOND_NS, SECOND_NS};
use rt::clock::now_ns;
use rt::deadlines::Deadline;
use rt::stream::Stream;

use crate::core::CoreState;
use crate::dispatcher::{NextAction, QueueTimeout};
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::pace::{Pace, ramp_slot_ns};
use crate::plan::{RenderedRequest, TimeoutFrom};
use crate::recorder::RequestTiming;
use crate::response_reader::{CompleteResponse, ResponseReader};

/// Minimum back-off after a failed connect; it doubles with each failure.
const BACK_OFF_NS_MIN: u64 = 10 * MILLISECOND_NS;
/// Maximum back-off.
const BACK_OFF_NS_MAX: u64 = SECOND_NS;
/// Maximum number of reads in one poll before other tasks get their turn.
const READS_MAX: u32 = 16;

/// A connection, and the number of requests that it has carried.
struct Connection {
    stream: Stream,
    request_count: u64,
}

/// One client: at most one connection, at most one request at a time.
struct Client {
    core: Rc<CoreState>,
    index: usize,
    deadline: Deadline,
    connection: Option<Connection>,
    /// True if the client ever had a connection.
    has_connected: bool,
    /// Number of requests so far, to take the URLs in turn.
    request_index: usize,
    back_off_ns: u64,
    /// The last back-off.
    last_back_off: BackOffPause,
}

/// A pause of one client.
#[derive(Clone, Copy, Debug, Default)]
struct BackOffPause {
    from_ns: u64,
    to_ns: u64,
}

impl BackOffPause {
    /// Returns the part of the pause in which a request that was due at `due_ns` waited.
    fn overlap_ns(self, due_ns: u64) -> u64 {
        self.to_ns.saturating_sub(due_ns.max(self.from_ns))
    }
}

/// Runs client `index` of a core until the load ends.
pub(crate) async fn run_client(core: Rc<CoreState>, index: usize) {
    let guard = core.client_guard();
    let deadline = poll_fn(|cx| {
        core.dispatcher.borrow_mut().register(index, cx.waker());
        Poll::Ready(core.deadlines.register(cx.waker()))
    })
    .await;
    let mut client = Client {
        core: Rc::clone(&core),
        index,
        deadline,
        connection: None,
        has_connected: false,
        request_index: index,
        back_off_ns: BACK_OFF_NS_MIN,
        last_back_off: BackOffPause::default(),
    };
    if core.shared.plan.ramp_ns == 0 {
        // Boxed, like every rare step here, to keep the future of a busy client small.
        Box::pin(client.connect_before_start()).await;
    }
    guard.mark_opened();
    let Some((start_ns, _)) = core.wait_for_start().await else {
        return;
    };
    core.timers.sleep_until(start_ns).await;
    if core.shared.plan.ramp_ns > 0 {
        let number = core.first_client + index as u64;
        let slot_ns = ramp_slot_ns(number, core.shared.plan.connections, core.shared.plan.ramp_ns);
        core.timers.sleep_until((start_ns + slot_ns).min(core.end_ns())).await;
        Box::pin(client.connect_before_start()).await;
        client.run(start_ns + slot_ns).await;
    } else {
        client.run(start_ns).await;
    }
}

impl Client {
    async fn run(&mut self, start_ns: u64) {
        let core = Rc::clone(&self.core);
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
                free_ns = self.back_off().await;
                continue;
            }
            free_ns = self.exchange(due_ns, begun_ns).await;
        }
    }

    /// Returns the next due time of a closed loop.
    async fn next_closed_loop(&mut self, free_ns: u64, think_ns: u64) -> Option<u64> {
        let due_ns = free_ns + think_ns;
        let core = Rc::clone(&self.core);
        if think_ns > 0 {
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
                recorder.record_lag(now_ns - due_ns);
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
        let core = Rc::clone(&self.core);
        let timeout_ns = core.shared.plan.timeout_ns;
        let queue_timeout = match core.shared.plan.timeout_from {
            TimeoutFrom::Due => QueueTimeout::FromDue { timeout_ns },
            TimeoutFrom::Send => QueueTimeout::FromSend,
        };
        poll_fn(|cx| {
            loop {
                let now_ns = now_ns();
                let next = match core.giving_up.get() {
                    true => NextAction::End,
                    false => core.dispatcher.borrow_mut().next_action(self.index, now_ns, queue_timeout),
                };
                match next {
                    NextAction::Due { due_ns, queued: waited } => {
                        let mut recorder = core.recorder.borrow_mut();
                        core.roll(&mut recorder, now_ns);
                        if !waited {
                            recorder.record_lag(now_ns.saturating_sub(due_ns));
                        }
                        recorder.record_back_off(self.last_back_off.overlap_ns(due_ns));
                        return Poll::Ready(Some(due_ns));
                    }
                    NextAction::Expired { due_ns } => {
                        self.record_not_sent(due_ns, FailureKind::Timeout, now_ns)
                    }
                    NextAction::TooLate { due_ns } => {
                        self.record_not_sent(due_ns, FailureKind::TooLate, now_ns)
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

    /// Records that a queued request is not sent.
    fn record_not_sent(&self, due_ns: u64, kind: FailureKind, now_ns: u64) {
        let failure = Failure { kind, phase: RequestPhase::Queue };
        self.core.recorder.borrow_mut().record_not_sent(due_ns, failure, now_ns);
    }

    /// Drops an idle connection if the server has closed it or sends unsolicited bytes.
    fn poll_idle(&mut self, cx: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let mut scratch = self.core.scratch.borrow_mut();
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

    /// Opens the first connection, a few at a time. A failure is noted, and the run tries again.
    async fn connect_before_start(&mut self) {
        let core = Rc::clone(&self.core);
        let Ok(_permit) = core.connect_permits.acquire().await else {
            return;
        };
        // A failure here concerns a connection, not a request, so no request is counted.
        let _ = self.connect(now_ns()).await;
    }

    /// Waits before the next attempt, so that a rejecting server is not hit in a tight loop.
    /// Returns the end of the pause.
    async fn back_off(&mut self) -> u64 {
        let from_ns = now_ns();
        let until_ns = from_ns + self.back_off_ns;
        self.back_off_ns = (self.back_off_ns * 2).min(BACK_OFF_NS_MAX);
        self.core.timers.sleep_until(until_ns.min(self.core.end_ns())).await;
        self.last_back_off = BackOffPause { from_ns, to_ns: now_ns() };
        self.last_back_off.to_ns
    }

    /// Sends one request and reads its response. Returns the time when the client is free again.
    ///
    /// `begun_ns` is when the client took the request, before it connected.
    async fn exchange(&mut self, due_ns: u64, begun_ns: u64) -> u64 {
        let core = Rc::clone(&self.core);
        let shared = &core.shared;
        let group = &shared.requests_by_authority
            [(core.first_client as usize + self.index) % shared.requests_by_authority.len()];
        let request = &shared.plan.requests[group[self.request_index % group.len()]];
        self.request_index = self.request_index.wrapping_add(1);
        let Some(mut connection) = self.connection.take() else {
            return now_ns();
        };
        let last = shared
            .plan
            .requests_per_connection
            .is_some_and(|max_requests| connection.request_count + 1 >= max_requests);
        let sent_ns = now_ns();
        self.deadline.set(shared.plan.deadline_ns(due_ns, sent_ns));
        core.recorder.borrow_mut().record_sent(due_ns, sent_ns);
        let mut transfer = Transfer::new(request, last);
        let result = poll_fn(|cx| match self.interruption() {
            Some(kind) => Poll::Ready(Err(kind)),
            None => transfer.poll(cx, &mut connection.stream, &core),
        })
        .await;
        self.deadline.clear();
        connection.request_count += 1;
        match result {
            Ok(response) => {
                let first_ns = transfer.first_ns;
                let last_ns = transfer.last_ns;
                core.dispatcher
                    .borrow_mut()
                    .latency_estimator
                    .record_response(last_ns.saturating_sub(begun_ns));
                let timing = RequestTiming { due_ns, sent_ns, first_ns, last_ns };
                let keep_alive = response.reusable && !last && transfer.is_written();
                self.record_response(response, timing);
                self.connection = Some(connection);
                if !keep_alive {
                    self.close(|_| ());
                }
                last_ns
            }
            Err(kind) => {
                let now_ns = now_ns();
                if kind == FailureKind::Timeout {
                    core.dispatcher
                        .borrow_mut()
                        .latency_estimator
                        .record_given_up(now_ns.saturating_sub(begun_ns));
                }
                let phase =
                    if transfer.reader.has_begun() { RequestPhase::Body } else { RequestPhase::FirstByte };
                let mut recorder = core.recorder.borrow_mut();
                core.roll(&mut recorder, now_ns);
                recorder.counters.sent += u64::from(transfer.is_written());
                recorder.record_failed_exchange(due_ns, sent_ns, Failure { kind, phase }, now_ns);
                drop(recorder);
                self.connection = Some(connection);
                self.close(|counters| counters.lost += 1);
                now_ns
            }
        }
    }

    fn record_response(&self, response: CompleteResponse, timing: RequestTiming) {
        let core = &self.core;
        let mut recorder = core.recorder.borrow_mut();
        core.roll(&mut recorder, timing.last_ns);
        let counters = &mut recorder.counters;
        counters.sent += 1;
        counters.status[usize::from(response.status) % 1000] += 1;
        counters.excess_bytes += response.excess_bytes as u64;
        let expect = &core.shared.plan.expect;
        let good_status = expect.is_good_status(response.status);
        let good_body = expect.body_bytes.is_none_or(|bytes| bytes == response.body_bytes);
        if good_status && good_body {
            recorder.record_good_response(timing);
        } else {
            // A response that fails a check is counted once, as an error and not as a response.
            let fails_check = !good_body || expect.status.is_some();
            recorder.record_bad_response(timing, fails_check);
        }
    }

    fn close(&mut self, count: impl FnOnce(&mut crate::recorder::Counters)) {
        if self.connection.take().is_some() {
            let mut recorder = self.core.recorder.borrow_mut();
            recorder.open_connections -= 1;
            count(&mut recorder.counters);
        }
    }

    /// Returns the reason to stop waiting, if there is one.
    #[inline]
    fn interruption(&self) -> Option<FailureKind> {
        // An expired request has timed out, whatever else ends at the same moment.
        if self.deadline.is_expired() {
            Some(FailureKind::Timeout)
        } else if self.core.giving_up.get() {
            Some(FailureKind::Unfinished)
        } else {
            None
        }
    }
}

/// A request being sent, and its response being read.
struct Transfer<'r> {
    bytes: &'r [u8],
    written: usize,
    reader: ResponseReader,
    first_ns: u64,
    last_ns: u64,
}

impl<'r> Transfer<'r> {
    fn new(request: &'r RenderedRequest, last: bool) -> Self {
        Self {
            bytes: if last { &request.bytes_closing } else { &request.bytes },
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
            core.recorder.borrow_mut().counters.bytes_in += bytes as u64;
            let handled = self.reader.handle_bytes(&scratch[..bytes], &core.limits);
            // The final response begins after the interim ones (RFC 9110, 15.2).
            if !begun || self.reader.interim_count() > interim {
                self.first_ns = self.last_ns;
            }
            match handled {
                Ok(None) => {}
                Ok(Some(response)) => return Poll::Ready(Ok(response)),
                Err(_) => return Poll::Ready(Err(FailureKind::Parse)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

fn is_peer_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
