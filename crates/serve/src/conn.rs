//! A connection, and the path of nearly all its requests: one read, some responses, one write.
//!
//! A waiting connection is this struct and its socket. It works with the scratch buffers of its
//! core. The rest of the input after a poll, mostly nothing, goes to a pooled buffer.

mod plain_http;
mod proxy_preface;
mod timeouts;
mod version;

use std::rc::Rc;
use std::task::{Context, Poll};

use rt::deadlines::Deadline;
use rt::stream::Stream;
use wire::head_may_be_complete;

use crate::body::RemainingBody;
use crate::core::{OriginCore, ScratchBuffers};
use crate::output::Outgoing;
use crate::respond::{InputResult, SlowExchange, count_cached, find_cached, respond};
use crate::stats::{CloseReason, add};

use timeouts::DeadlineKind;
use version::{ConnStage, first_stage};

/// A connection and the state that it keeps while it waits.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) core: Rc<OriginCore>,
    pub(crate) stream: Stream,
    /// Registered at the first wait.
    deadline: Option<Deadline>,
    /// Received bytes that are not used yet; a pooled buffer unless it is empty.
    pub(crate) unparsed: Vec<u8>,
    /// Client address for the access log; `None` without one.
    pub(crate) peer: Option<Box<str>>,
    /// Tick in which the idle deadline was last set.
    idle_armed_tick: u32,
    deadline_kind: DeadlineKind,
    stage: ConnStage,
    /// True if `unparsed` may contain a complete request, so that it is parsed before the next
    /// read.
    pub(crate) recheck_input: bool,
    close_reason: CloseReason,
}

/// Reason why the fast path ends.
#[derive(Debug)]
pub(crate) enum FastPathExit {
    Slow(Box<SlowJob>),
    /// The client speaks HTTP/2; the received bytes are in `unparsed`.
    Http2,
    Close(CloseReason),
}

/// Work of a connection on the slow path, in this order.
#[derive(Debug)]
pub(crate) struct SlowJob {
    /// Earlier output that the socket has not accepted; a pooled buffer unless it is empty.
    pub(crate) unsent: Vec<u8>,
    /// Content that follows `unsent`.
    pub(crate) body: RemainingBody,
    pub(crate) responses: u64,
    pub(crate) follow_up: FollowUp,
}

/// Work after the earlier output.
#[derive(Debug)]
pub(crate) enum FollowUp {
    Nothing,
    Exchange(Box<SlowExchange>),
    Close(CloseReason),
    /// Close, but let the peer read the last response first.
    LingeringClose(CloseReason),
}

/// Size at which responses are sent, even if more requests are waiting.
const FLUSH_BYTES: usize = 48 * 1024;
/// Maximum number of reads per poll, so that others get their turn.
const READS_MAX: u32 = 4;

impl Conn {
    pub(crate) fn new(core: Rc<OriginCore>, stream: Stream) -> Self {
        core.conn_limit.acquire();
        let peer = core.log.is_some().then(|| peer_text(&stream));
        Self {
            stage: if stream.is_tls() { ConnStage::Handshake } else { first_stage(core.plan.http) },
            stream,
            deadline: None,
            unparsed: Vec::new(),
            peer,
            idle_armed_tick: 0,
            deadline_kind: DeadlineKind::Unset,
            recheck_input: false,
            close_reason: CloseReason::Dropped,
            core,
        }
    }

    /// Sets the reason with which the end of the connection is counted.
    pub(crate) fn record_close(&mut self, reason: CloseReason) {
        self.close_reason = reason;
    }

    /// Serves requests until the connection must wait for more than the next read, or ends.
    pub(crate) fn poll_fast(&mut self, cx: &mut Context<'_>) -> Poll<FastPathExit> {
        let core = Rc::clone(&self.core);
        let scratch = &mut *core.scratch.borrow_mut();
        if let Some(exit) = self.poll_start(cx, &core) {
            return exit;
        }
        let mut reads = 0;
        loop {
            let unparsed_len = self.unparsed.len();
            let (check_from, end) = if self.recheck_input {
                self.recheck_input = false;
                (0, unparsed_len)
            } else {
                if reads == READS_MAX {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                match self.stream.poll_read(cx, &mut scratch.input[unparsed_len..]) {
                    Poll::Pending => return self.poll_waiting(cx, &core, reads > 0),
                    Poll::Ready(Ok(0)) => {
                        return Poll::Ready(FastPathExit::Close(self.peer_close_reason()));
                    }
                    Poll::Ready(Ok(read)) => {
                        reads += 1;
                        add(&core.counters.bytes_in, read as u64);
                        (unparsed_len, unparsed_len + read)
                    }
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(FastPathExit::Close(CloseReason::from_io_error(&error)));
                    }
                }
            };
            if unparsed_len > 0 {
                scratch.input[..unparsed_len].copy_from_slice(&self.unparsed);
            }
            match self.check_version(&scratch.input[..end], unparsed_len > 0) {
                None => {}
                Some(Poll::Pending) => continue,
                Some(exit) => return exit,
            }
            let may_be_complete = check_from == 0
                || end >= core.limits.head_bytes_max
                || head_may_be_complete(&scratch.input[check_from..end]);
            let mut used = 0;
            let exit = if !may_be_complete {
                Poll::Pending
            } else if let Some(exit) = self.respond_from_cache(cx, &core, scratch, end) {
                used = end;
                exit
            } else {
                self.respond_to_all(cx, &core, scratch, end, &mut used)
            };
            if !self.keep_unparsed(&scratch.input[used..end], used == 0 && unparsed_len > 0) {
                return Poll::Ready(FastPathExit::Close(CloseReason::NoBuffer));
            }
            if exit.is_ready() {
                return exit;
            }
        }
    }

    /// Handles the common case: the input is exactly one request, and its response is cached and
    /// sent from there. Returns `None` in all other cases.
    #[inline]
    fn respond_from_cache(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
        scratch: &mut ScratchBuffers,
        end: usize,
    ) -> Option<Poll<FastPathExit>> {
        let cached = find_cached(core, &mut scratch.cache, &scratch.input[..end])?;
        if cached.request.len() != end || !cached.keep_alive {
            return None;
        }
        count_cached(core, cached, self.peer.as_deref());
        self.set_idle_timeout(cx, cached.idle_timeout_ns);
        let outgoing = Outgoing::new(&cached.bytes, RemainingBody::pattern(cached.pattern_bytes));
        Some(self.flush(cx, core, outgoing, 1, FollowUp::Nothing))
    }

    /// Responds to the requests in the first `end` bytes of the input, as far as that needs no
    /// waiting. Ready: the fast path is over.
    fn respond_to_all(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
        scratch: &mut ScratchBuffers,
        end: usize,
        used: &mut usize,
    ) -> Poll<FastPathExit> {
        scratch.out.clear();
        let mut responses = 0;
        while *used < end {
            let result = respond(core, scratch, *used..end, self.peer.as_deref());
            let (body, work) = match result {
                InputResult::Response { consumed, body, keep_alive, idle_timeout_ns } => {
                    *used += consumed;
                    responses += 1;
                    self.set_idle_timeout(cx, idle_timeout_ns);
                    (body, choose_follow_up(keep_alive, *used < end))
                }
                InputResult::Incomplete => break,
                InputResult::SlowPath { consumed, exchange } => {
                    *used += consumed;
                    (RemainingBody::default(), FollowUp::Exchange(exchange))
                }
                InputResult::Rejected => {
                    responses += 1;
                    (RemainingBody::default(), FollowUp::LingeringClose(CloseReason::Rejected))
                }
            };
            let continues = matches!(work, FollowUp::Nothing);
            if !continues || body.remaining > 0 || scratch.out.len() >= FLUSH_BYTES {
                let outgoing = Outgoing::new(&scratch.out, body);
                let exit = self.flush(cx, core, outgoing, responses, work);
                if exit.is_ready() {
                    return exit;
                }
                scratch.out.clear();
                responses = 0;
            }
        }
        let outgoing = Outgoing::new(&scratch.out, RemainingBody::default());
        self.flush(cx, core, outgoing, responses, FollowUp::Nothing)
    }

    /// Sends the output. Pending: everything is sent, and nothing follows it.
    #[inline]
    fn flush(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
        mut outgoing: Outgoing<'_>,
        responses: u64,
        work: FollowUp,
    ) -> Poll<FastPathExit> {
        match (outgoing.poll_send(cx, core, &mut self.stream), work) {
            (Poll::Ready(Ok(())), FollowUp::Nothing) => Poll::Pending,
            (Poll::Ready(Ok(())), FollowUp::Close(reason)) => Poll::Ready(FastPathExit::Close(reason)),
            (Poll::Ready(Err(_)), _) => Poll::Ready(self.count_lost_responses(responses)),
            (_, work) => Poll::Ready(self.start_slow_job(core, &outgoing, responses, work)),
        }
    }

    fn count_lost_responses(&mut self, responses: u64) -> FastPathExit {
        add(&self.core.counters.responses_lost, responses);
        FastPathExit::Close(CloseReason::Broken)
    }

    #[cold]
    fn start_slow_job(
        &mut self,
        core: &OriginCore,
        rest: &Outgoing<'_>,
        responses: u64,
        work: FollowUp,
    ) -> FastPathExit {
        self.recheck_input = true;
        let bytes = &rest.bytes[rest.sent..];
        let mut unsent = Vec::new();
        if !bytes.is_empty() {
            let Some(buffer) = core.buffers.take() else {
                add(&core.counters.responses_lost, responses);
                return FastPathExit::Close(CloseReason::NoBuffer);
            };
            unsent = buffer;
            unsent.extend_from_slice(bytes);
        }
        FastPathExit::Slow(Box::new(SlowJob { unsent, body: rest.body, responses, follow_up: work }))
    }

    /// Keeps the unused bytes for the next poll. `is_prefix` means that the kept bytes are its
    /// start. Returns `false` if there was no buffer.
    #[inline]
    pub(crate) fn keep_unparsed(&mut self, rest: &[u8], is_prefix: bool) -> bool {
        if rest.is_empty() && self.unparsed.capacity() == 0 {
            return true;
        }
        self.replace_unparsed(rest, is_prefix)
    }

    fn replace_unparsed(&mut self, rest: &[u8], is_prefix: bool) -> bool {
        if rest.is_empty() {
            self.release_buffer();
            return true;
        }
        if self.unparsed.capacity() == 0 {
            let Some(buffer) = self.core.buffers.take() else {
                return false;
            };
            self.unparsed = buffer;
        }
        let kept_len = if is_prefix { self.unparsed.len() } else { 0 };
        self.unparsed.truncate(kept_len);
        self.unparsed.extend_from_slice(&rest[kept_len..]);
        true
    }

    /// Returns the buffer of `unparsed` to the pool.
    pub(crate) fn release_buffer(&mut self) {
        if self.unparsed.capacity() > 0 {
            self.core.buffers.put_back(std::mem::take(&mut self.unparsed));
        }
    }

    fn peer_close_reason(&self) -> CloseReason {
        if self.unparsed.is_empty() { CloseReason::Peer } else { CloseReason::PeerMidRequest }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.release_buffer();
        let core = &self.core;
        core.counters.count_close(self.close_reason);
        add(&core.counters.tls_failed, u64::from(self.stage == ConnStage::Handshake));
        core.balancer.release(core.index);
        core.conn_limit.release();
    }
}

/// Returns the work after a response.
fn choose_follow_up(keep_alive: bool, has_more_input: bool) -> FollowUp {
    match (keep_alive, has_more_input) {
        (true, _) => FollowUp::Nothing,
        (false, false) => FollowUp::Close(CloseReason::Requested),
        // Bytes that the client sent after its last request would turn the close into a reset,
        // which may destroy the response in flight.
        (false, true) => FollowUp::LingeringClose(CloseReason::Requested),
    }
}

fn peer_text(stream: &Stream) -> Box<str> {
    match stream.peer_address() {
        Some(peer) => peer.ip().to_string().into(),
        None if stream.is_tcp() => "-".into(),
        None => "unix:".into(),
    }
}
