//! One connection, on the path that nearly all requests take: one read, some answers, one write.
//!
//! Whatever needs to wait for more than the next read goes to [`crate::slow`] and comes back:
//!
//! ```text
//!            bytes: whole requests, answered        delay, body, blocked write…
//!       .---------------------------------.     .---------------------------------.
//!       v                                 |     v                                 |
//!   waiting (idle, or within a head) -> answering -> slow job, boxed -> done -----'
//!       | end, time-out, drain            | last answer            | failure
//!       v                                 v                        v
//!                                      closed
//! ```
//!
//! A connection that waits is this struct and its socket: what it works with is the core's bench,
//! and what is left over after a poll, mostly nothing, goes to a pooled buffer.

use std::rc::Rc;
use std::task::{Context, Poll};

use rt::deadlines::Deadline;
use rt::stream::Stream;
use wire::head_may_be_complete;

use crate::body::Fill;
use crate::core::{Bench, Core, TICK_NS};
use crate::make::{Made, count_ready, find_ready, make};
use crate::output::Outgoing;
use crate::slow::{Job, Work};
use crate::stats::{Closed, add};

/// A connection and what it keeps while it waits.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) core: Rc<Core>,
    pub(crate) stream: Stream,
    /// Registered at the first wait.
    deadline: Option<Deadline>,
    /// Received, and not used yet; a pooled buffer unless it is empty.
    pub(crate) held: Vec<u8>,
    /// Who it is, for the access log; `None` without one.
    pub(crate) peer: Option<Box<str>>,
    /// The tick in which the idle deadline was set last.
    tick: u32,
    armed: Armed,
    /// Whether `held` may have a whole request, so that it is looked at before reading more.
    pub(crate) look_again: bool,
    pub(crate) closed: Closed,
}

/// What the deadline is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Nothing,
    /// The next request, as planned.
    Idle,
    /// The next request, as the last one's target had it.
    Chosen,
    /// The rest of a head.
    Head,
    /// The progress of a slow job.
    Progress,
}

/// Why the fast path ends.
#[derive(Debug)]
pub(crate) enum Step {
    Slow(Box<Job>),
    Close(Closed),
}

/// Answers are sent when they are so many bytes, even if more requests are there.
const FLUSH_BYTES: usize = 48 * 1024;
/// How often one poll reads before others get their turn.
const READS_MAX: u32 = 4;
/// Serves one connection to its end.
pub(crate) fn serve(core: Rc<Core>, stream: Stream) -> impl Future<Output = ()> {
    let mut conn = Conn::new(core, stream);
    // The block uses the connection where it was captured; as an argument of an async fn it would
    // be stored twice in each task.
    async move {
        let closed = loop {
            match std::future::poll_fn(|cx| conn.poll_fast(cx)).await {
                Step::Close(closed) => break closed,
                Step::Slow(job) => {
                    if let Err(closed) = Box::pin(crate::slow::run(&mut conn, job)).await {
                        break closed;
                    }
                }
            }
        };
        conn.note_end(closed);
    }
}

impl Conn {
    fn note_end(&mut self, closed: Closed) {
        self.closed = closed;
    }

    fn new(core: Rc<Core>, stream: Stream) -> Self {
        core.room.enter();
        let peer = core.log.is_some().then(|| peer_of(&stream));
        Self {
            stream,
            deadline: None,
            held: Vec::new(),
            peer,
            tick: 0,
            armed: Armed::Nothing,
            look_again: false,
            closed: Closed::Dropped,
            core,
        }
    }

    fn poll_fast(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let core = Rc::clone(&self.core);
        let bench = &mut *core.bench.borrow_mut();
        let mut reads = 0;
        loop {
            let held = self.held.len();
            let (fresh_at, end) = if self.look_again {
                self.look_again = false;
                (0, held)
            } else {
                if reads == READS_MAX {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                match self.stream.poll_read(cx, &mut bench.input[held..]) {
                    Poll::Pending => return self.poll_waiting(cx, &core, reads > 0),
                    Poll::Ready(Ok(0)) => return Poll::Ready(Step::Close(self.ended())),
                    Poll::Ready(Ok(read)) => {
                        reads += 1;
                        add(&core.counters.bytes_in, read as u64);
                        (held, held + read)
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Step::Close(Closed::Broken)),
                }
            };
            if held > 0 {
                bench.input[..held].copy_from_slice(&self.held);
            }
            let worth_it = fresh_at == 0
                || end >= core.limits.head_bytes_max
                || head_may_be_complete(&bench.input[fresh_at..end]);
            let mut used = 0;
            let step = if !worth_it {
                Poll::Pending
            } else if let Some(step) = self.answer_alone(cx, &core, bench, end) {
                used = end;
                step
            } else {
                self.answer_all(cx, &core, bench, end, &mut used)
            };
            if !self.hold(&bench.input[used..end], used == 0 && held > 0) {
                return Poll::Ready(Step::Close(Closed::NoBuffer));
            }
            if step.is_ready() {
                return step;
            }
        }
    }

    /// The common case: all that came is one request, and its answer is ready to be sent from
    /// where it is. `None`: it is not so.
    #[inline]
    fn answer_alone(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        bench: &mut Bench,
        end: usize,
    ) -> Option<Poll<Step>> {
        let ready = find_ready(core, &mut bench.cache, &bench.input[..end])?;
        if ready.request.len() != end || !ready.keeps {
            return None;
        }
        count_ready(core, ready, self.peer.as_deref());
        self.note_wait(cx, ready.wait_ns);
        let outgoing = Outgoing::new(&ready.bytes, Fill::pattern(ready.fill));
        Some(self.flush(cx, core, outgoing, 1, Work::Nothing))
    }

    /// Answers the requests in the first `end` bytes of the input, as far as that needs no waiting.
    /// Ready: the fast path is over.
    fn answer_all(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        bench: &mut Bench,
        end: usize,
        used: &mut usize,
    ) -> Poll<Step> {
        bench.out.clear();
        let mut answers = 0;
        while *used < end {
            let made = make(core, bench, *used..end, self.peer.as_deref());
            let (fill, work) = match made {
                Made::Answer { used: more, fill, keeps, wait_ns } => {
                    *used += more;
                    answers += 1;
                    self.note_wait(cx, wait_ns);
                    (fill, work_after(keeps, *used < end))
                }
                Made::Incomplete => break,
                Made::Slow { used: more, turn } => {
                    *used += more;
                    (Fill::default(), Work::Turn(turn))
                }
                Made::Refused => {
                    answers += 1;
                    (Fill::default(), Work::Linger(Closed::Refused))
                }
            };
            let goes_on = matches!(work, Work::Nothing);
            if !goes_on || fill.left > 0 || bench.out.len() >= FLUSH_BYTES {
                let outgoing = Outgoing::new(&bench.out, fill);
                let step = self.flush(cx, core, outgoing, answers, work);
                if step.is_ready() {
                    return step;
                }
                bench.out.clear();
                answers = 0;
            }
        }
        let outgoing = Outgoing::new(&bench.out, Fill::default());
        self.flush(cx, core, outgoing, answers, Work::Nothing)
    }

    /// Sends. Pending: all is sent, and there is nothing to do behind it.
    #[inline]
    fn flush(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        mut outgoing: Outgoing<'_>,
        answers: u64,
        work: Work,
    ) -> Poll<Step> {
        match (self.poll_out(cx, core, &mut outgoing), work) {
            (Poll::Ready(Ok(())), Work::Nothing) => Poll::Pending,
            (Poll::Ready(Ok(())), Work::Close(closed)) => Poll::Ready(Step::Close(closed)),
            (Poll::Ready(Err(_)), _) => Poll::Ready(self.lose(answers)),
            (_, work) => Poll::Ready(self.job(core, &outgoing, answers, work)),
        }
    }

    fn lose(&mut self, answers: u64) -> Step {
        add(&self.core.counters.responses_lost, answers);
        Step::Close(Closed::Broken)
    }

    #[cold]
    fn job(&mut self, core: &Core, rest: &Outgoing<'_>, answers: u64, work: Work) -> Step {
        self.look_again = true;
        let bytes = &rest.bytes[rest.sent..];
        let mut unsent = Vec::new();
        if !bytes.is_empty() {
            let Some(buffer) = core.buffers.take() else {
                add(&core.counters.responses_lost, answers);
                return Step::Close(Closed::NoBuffer);
            };
            unsent = buffer;
            unsent.extend_from_slice(bytes);
        }
        Step::Slow(Box::new(Job { unsent, fill: rest.fill, answers, work }))
    }

    /// Keeps what was not used for the next poll. `same` says that what was kept before is its
    /// start. `false`: there was no buffer.
    #[inline]
    pub(crate) fn hold(&mut self, rest: &[u8], same: bool) -> bool {
        if rest.is_empty() && self.held.capacity() == 0 {
            return true;
        }
        self.hold_or_release(rest, same)
    }

    fn hold_or_release(&mut self, rest: &[u8], same: bool) -> bool {
        if rest.is_empty() {
            self.release();
            return true;
        }
        if self.held.capacity() == 0 {
            let Some(buffer) = self.core.buffers.take() else {
                return false;
            };
            self.held = buffer;
        }
        let kept = if same { self.held.len() } else { 0 };
        self.held.truncate(kept);
        self.held.extend_from_slice(&rest[kept..]);
        true
    }

    /// Gives the buffer of `held` back.
    pub(crate) fn release(&mut self) {
        if self.held.capacity() > 0 {
            self.core.buffers.give(std::mem::take(&mut self.held));
        }
    }

    fn ended(&self) -> Closed {
        if self.held.is_empty() { Closed::Peer } else { Closed::PeerMidRequest }
    }

    /// Nothing can be read: waits, unless it has waited too long or the origin drains.
    #[inline]
    fn poll_waiting(&mut self, cx: &mut Context<'_>, core: &Core, worked: bool) -> Poll<Step> {
        if self.armed == Armed::Idle && self.tick == core.tick.get() && self.held.is_empty() {
            return Poll::Pending;
        }
        self.poll_deadline(cx, core, worked)
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>, core: &Core, worked: bool) -> Poll<Step> {
        if !self.held.is_empty() {
            if self.armed != Armed::Head {
                self.arm(cx, Armed::Head, core.plan.head_timeout_ns);
            } else if self.passed() {
                return Poll::Ready(self.head_timed_out(cx));
            }
            return Poll::Pending;
        }
        if core.draining.get() {
            return Poll::Ready(Step::Close(Closed::Drained));
        }
        let stale = match self.armed {
            Armed::Idle => worked,
            Armed::Chosen => false,
            Armed::Nothing | Armed::Head | Armed::Progress => true,
        };
        if stale {
            self.arm(cx, Armed::Idle, core.plan.idle_timeout_ns);
            self.tick = core.tick.get();
        } else if self.passed() {
            return Poll::Ready(Step::Close(Closed::IdleTimeout));
        }
        Poll::Pending
    }

    fn head_timed_out(&mut self, cx: &mut Context<'_>) -> Step {
        let mut out = Vec::new();
        crate::make::refuse_with(&self.core, 408, self.peer.as_deref(), &mut out);
        // The peer may not even read it; then it is not worth a wait.
        if let Poll::Ready(Ok(written)) = self.stream.poll_write(cx, &out) {
            add(&self.core.counters.bytes_out, written as u64);
        }
        Step::Close(Closed::HeadTimeout)
    }

    /// Sets the deadline for the next request if the answered one chose it.
    #[inline]
    pub(crate) fn note_wait(&mut self, cx: &Context<'_>, wait_ns: Option<u64>) {
        match wait_ns {
            Some(wait_ns) => self.arm(cx, Armed::Chosen, wait_ns),
            None if self.armed == Armed::Chosen => self.armed = Armed::Nothing,
            None => {}
        }
    }

    /// Sets the deadline for the progress of a slow job.
    pub(crate) fn arm_progress(&mut self, cx: &Context<'_>, timeout_ns: u64) {
        self.arm(cx, Armed::Progress, timeout_ns);
    }

    /// Whether the deadline of [`Conn::arm_progress`] has passed; sets it when it was not set.
    pub(crate) fn is_stalled(&mut self, cx: &Context<'_>, timeout_ns: u64) -> bool {
        if self.armed == Armed::Progress {
            return self.passed();
        }
        self.arm_progress(cx, timeout_ns);
        false
    }

    /// No deadline holds.
    pub(crate) fn disarm(&mut self) {
        self.armed = Armed::Nothing;
        if let Some(deadline) = &self.deadline {
            deadline.clear();
        }
    }

    fn arm(&mut self, cx: &Context<'_>, what: Armed, timeout_ns: u64) {
        // The core's time is up to a tick old, and a deadline is never to pass early.
        let due_ns = self.core.now_ns.get().saturating_add(timeout_ns).saturating_add(TICK_NS);
        let deadlines = &self.core.deadlines;
        self.deadline.get_or_insert_with(|| deadlines.register(cx.waker())).set(due_ns);
        self.armed = what;
    }

    fn passed(&self) -> bool {
        self.deadline.as_ref().is_some_and(Deadline::passed)
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.release();
        let core = &self.core;
        core.counters.closed(self.closed);
        core.board.closed(core.index);
        core.room.leave();
    }
}

/// What is to be done behind an answer.
fn work_after(keeps: bool, more_came: bool) -> Work {
    match (keeps, more_came) {
        (true, _) => Work::Nothing,
        (false, false) => Work::Close(Closed::Asked),
        // What the client sent beyond its last answer would turn the close into a reset, which may
        // destroy that answer on its way.
        (false, true) => Work::Linger(Closed::Asked),
    }
}

fn peer_of(stream: &Stream) -> Box<str> {
    match stream {
        Stream::Tcp(tcp) => {
            let peer = tcp.peer_addr();
            peer.map_or_else(|_| "-".into(), |peer| peer.ip().to_string().into())
        }
        Stream::Unix(_) => "unix:".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the header of its task, which is about a hundred bytes, it is to fit 256.
    const TASK_BYTES_MAX: usize = 144;

    fn future_bytes<F: Future>(_: fn(Rc<Core>, Stream) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_waiting_connection_is_small() {
        let bytes = future_bytes(serve);
        println!("task {bytes}, connection {}, stream {}", size_of::<Conn>(), size_of::<Stream>());
        assert!(bytes <= TASK_BYTES_MAX, "{bytes}");
    }
}
