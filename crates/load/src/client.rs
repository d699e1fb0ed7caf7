//! The one client loop: take a due request, have a connection, send, read, record; whatever the
//! pace, the end and the protocol's details are.
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

use record::units::{MILLISECOND_NS, SECOND_NS};
use rt::clock::now_ns;
use rt::deadlines::Deadline;
use rt::dial;
use rt::stream::Stream;

use crate::core::Core;
use crate::desk::{Next, Patience};
use crate::failure::{Failure, Kind, Phase};
use crate::pace::{Pace, ramp_slot_ns};
use crate::plan::{Request, TimeoutFrom};
use crate::recorder::Sample;
use crate::reply::{Reply, ReplyReader};

/// A failed connect is tried again after this, doubling.
const BACK_OFF_NS_MIN: u64 = 10 * MILLISECOND_NS;
/// And never later than after this.
const BACK_OFF_NS_MAX: u64 = SECOND_NS;
/// How often one poll reads before others get their turn.
const READS_MAX: u32 = 16;

/// A connection and how many requests it has carried.
struct Connection {
    stream: Stream,
    carried: u64,
}

/// One client: at most one connection, at most one request at a time.
struct Client {
    core: Rc<Core>,
    index: usize,
    deadline: Deadline,
    connection: Option<Connection>,
    /// Whether it ever had one.
    obtained: bool,
    /// Requests so far, to take the URLs in turn.
    turn: usize,
    back_off_ns: u64,
    /// The last back-off.
    backed_off: Pause,
}

/// A pause of one client.
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    from_ns: u64,
    to_ns: u64,
}

impl Pause {
    /// The part of it in which a request that was due at `due_ns` waited.
    fn within(self, due_ns: u64) -> u64 {
        self.to_ns.saturating_sub(due_ns.max(self.from_ns))
    }
}

/// Runs client `index` of a core to the end of the load.
pub(crate) async fn client(core: Rc<Core>, index: usize) {
    let presence = core.presence();
    let deadline = poll_fn(|cx| {
        core.desk.borrow_mut().register(index, cx.waker());
        Poll::Ready(core.deadlines.register(cx.waker()))
    })
    .await;
    let mut client = Client {
        core: Rc::clone(&core),
        index,
        deadline,
        connection: None,
        obtained: false,
        turn: index,
        back_off_ns: BACK_OFF_NS_MIN,
        backed_off: Pause::default(),
    };
    if core.shared.plan.ramp_ns == 0 {
        // Boxed, like every rare step here, to keep the future of a busy client small.
        Box::pin(client.open_before_start()).await;
    }
    presence.opened();
    let Some((start_ns, _)) = core.started().await else {
        return;
    };
    core.timers.sleep_until(start_ns).await;
    if core.shared.plan.ramp_ns > 0 {
        let number = core.first_client + index as u64;
        let slot_ns = ramp_slot_ns(number, core.shared.plan.connections, core.shared.plan.ramp_ns);
        core.timers.sleep_until((start_ns + slot_ns).min(core.end_ns())).await;
        Box::pin(client.open_before_start()).await;
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
        // In a closed loop the next request is due when the last one has ended.
        let mut free_ns = start_ns;
        loop {
            let due_ns = match closed_loop {
                Some(think_ns) => self.next_closed(free_ns, think_ns).await,
                None => self.next_open().await,
            };
            let Some(due_ns) = due_ns else { return };
            let begun_ns = now_ns();
            if self.connection.is_none()
                && let Err(failure) = Box::pin(self.connect(due_ns)).await
            {
                core.recorder.borrow_mut().not_sent(due_ns, failure, now_ns());
                // A closed loop's next request is due behind the pause: that is nobody's latency.
                free_ns = self.back_off().await;
                continue;
            }
            free_ns = self.exchange(due_ns, begun_ns).await;
        }
    }

    /// The next due time of a closed loop.
    async fn next_closed(&mut self, free_ns: u64, think_ns: u64) -> Option<u64> {
        let due_ns = free_ns + think_ns;
        let core = Rc::clone(&self.core);
        if think_ns > 0 {
            // As in an open loop, a server that closes meanwhile costs no request.
            let mut thought = pin!(core.timers.sleep_until(due_ns.min(core.end_ns())));
            poll_fn(|cx| {
                self.watch_idle(cx);
                thought.as_mut().poll(cx)
            })
            .await;
            let now_ns = now_ns();
            let mut recorder = core.recorder.borrow_mut();
            core.roll(&mut recorder, now_ns);
            if recorder.is_on(due_ns) && now_ns >= due_ns {
                recorder.taken_on(due_ns);
                recorder.lag(now_ns - due_ns);
            }
        }
        if due_ns >= core.end_ns() || core.giving_up.get() || !core.desk.borrow_mut().take_one() {
            core.desk.borrow_mut().close();
            return None;
        }
        Some(due_ns)
    }

    /// The next due time of an open loop; notices meanwhile when the server closes the connection.
    async fn next_open(&mut self) -> Option<u64> {
        let core = Rc::clone(&self.core);
        let timeout_ns = core.shared.plan.timeout_ns;
        let patience = match core.shared.plan.timeout_from {
            TimeoutFrom::Due => Patience::FromDue { timeout_ns },
            TimeoutFrom::Send => Patience::FromSend,
        };
        poll_fn(|cx| {
            loop {
                let now_ns = now_ns();
                let next = match core.giving_up.get() {
                    true => Next::End,
                    false => core.desk.borrow_mut().next(self.index, now_ns, patience),
                };
                match next {
                    Next::Due { due_ns, waited } => {
                        let mut recorder = core.recorder.borrow_mut();
                        core.roll(&mut recorder, now_ns);
                        if !waited {
                            recorder.lag(now_ns.saturating_sub(due_ns));
                        }
                        recorder.backed_off(self.backed_off.within(due_ns));
                        return Poll::Ready(Some(due_ns));
                    }
                    Next::Expired { due_ns } => self.not_sent(due_ns, Kind::Timeout, now_ns),
                    Next::TooLate { due_ns } => self.not_sent(due_ns, Kind::TooLate, now_ns),
                    Next::End => return Poll::Ready(None),
                    Next::Wait => {
                        self.watch_idle(cx);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await
    }

    /// A request that waited in line is not sent.
    fn not_sent(&self, due_ns: u64, kind: Kind, now_ns: u64) {
        let failure = Failure { kind, phase: Phase::Queue };
        self.core.recorder.borrow_mut().not_sent(due_ns, failure, now_ns);
    }

    /// Drops an idle connection that the server has closed, or on which it talks unasked.
    fn watch_idle(&mut self, cx: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let mut scratch = self.core.scratch.borrow_mut();
        let Poll::Ready(read) = connection.stream.poll_read(cx, &mut scratch) else {
            return;
        };
        drop(scratch);
        let unasked = read.unwrap_or(0) as u64;
        self.close(|counters| {
            counters.bytes_in += unasked;
            counters.excess_bytes += unasked;
            counters.closed_idle += u64::from(unasked == 0);
        });
    }

    /// Opens the first connection, a few at a time; a failure is noted and tried again in the run.
    async fn open_before_start(&mut self) {
        let core = Rc::clone(&self.core);
        let Ok(_permit) = core.opening.acquire().await else {
            return;
        };
        // A failure here is of a connection and not of a request, so no request is counted.
        let _ = self.connect(now_ns()).await;
    }

    async fn connect(&mut self, due_ns: u64) -> Result<(), Failure> {
        let core = Rc::clone(&self.core);
        let shared = &core.shared;
        let number = core.first_client as usize + self.index;
        let target = &shared.addresses[number % shared.addresses.len()];
        let sources = &shared.plan.sources;
        let source = (!sources.is_empty()).then(|| sources[number % sources.len()]);
        let begun_ns = now_ns();
        self.deadline.set(shared.plan.deadline_ns(due_ns, begun_ns));
        let mut dialled = pin!(dial::connect(target, source));
        let connected = poll_fn(|cx| match self.interruption() {
            Some(kind) => Poll::Ready(Err((kind, kind.name().to_owned()))),
            None => {
                dialled.as_mut().poll(cx).map_err(|error| (Kind::of(&error), error.to_string()))
            }
        })
        .await;
        self.deadline.clear();
        let mut recorder = core.recorder.borrow_mut();
        match connected {
            Ok(stream) => {
                let now_ns = now_ns();
                core.roll(&mut recorder, now_ns);
                recorder.connected(due_ns, begun_ns, now_ns);
                recorder.counters.obtained += u64::from(!self.obtained);
                self.obtained = true;
                self.back_off_ns = BACK_OFF_NS_MIN;
                self.connection = Some(Connection { stream, carried: 0 });
                Ok(())
            }
            Err((kind, text)) => {
                recorder.counters.connect_failed += 1;
                *core.connect_failure.borrow_mut() = Some((kind, format!("{target}: {text}")));
                Err(Failure { kind, phase: Phase::Connect })
            }
        }
    }

    /// Keeps a server that refuses from being asked in a tight loop; when the pause is over.
    async fn back_off(&mut self) -> u64 {
        let from_ns = now_ns();
        let until_ns = from_ns + self.back_off_ns;
        self.back_off_ns = (self.back_off_ns * 2).min(BACK_OFF_NS_MAX);
        self.core.timers.sleep_until(until_ns.min(self.core.end_ns())).await;
        self.backed_off = Pause { from_ns, to_ns: now_ns() };
        self.backed_off.to_ns
    }

    /// Sends one request and reads its response; when the client is free again.
    ///
    /// `begun_ns` is when the client took the request on, before it connected.
    async fn exchange(&mut self, due_ns: u64, begun_ns: u64) -> u64 {
        let core = Rc::clone(&self.core);
        let shared = &core.shared;
        let group = &shared.groups[(core.first_client as usize + self.index) % shared.groups.len()];
        let request = &shared.plan.requests[group[self.turn % group.len()]];
        self.turn = self.turn.wrapping_add(1);
        let Some(mut connection) = self.connection.take() else {
            return now_ns();
        };
        let last =
            shared.plan.requests_per_connection.is_some_and(|most| connection.carried + 1 >= most);
        let sent_ns = now_ns();
        self.deadline.set(shared.plan.deadline_ns(due_ns, sent_ns));
        core.recorder.borrow_mut().sent(due_ns, sent_ns);
        let mut transfer = Transfer::new(request, last);
        let result = poll_fn(|cx| match self.interruption() {
            Some(kind) => Poll::Ready(Err(kind)),
            None => transfer.poll(cx, &mut connection.stream, &core),
        })
        .await;
        self.deadline.clear();
        connection.carried += 1;
        match result {
            Ok(reply) => {
                let first_ns = transfer.first_ns;
                let last_ns = transfer.last_ns;
                core.desk.borrow_mut().usual.answered(last_ns.saturating_sub(begun_ns));
                let sample = Sample { due_ns, sent_ns, first_ns, last_ns };
                let keep = reply.reusable && !last && transfer.is_written();
                self.count_reply(reply, sample);
                self.connection = Some(connection);
                if !keep {
                    self.close(|_| ());
                }
                last_ns
            }
            Err(kind) => {
                let now_ns = now_ns();
                if kind == Kind::Timeout {
                    core.desk.borrow_mut().usual.given_up(now_ns.saturating_sub(begun_ns));
                }
                let phase =
                    if transfer.reader.has_begun() { Phase::Body } else { Phase::FirstByte };
                let mut recorder = core.recorder.borrow_mut();
                core.roll(&mut recorder, now_ns);
                recorder.counters.sent += u64::from(transfer.is_written());
                recorder.lost(due_ns, sent_ns, Failure { kind, phase }, now_ns);
                drop(recorder);
                self.connection = Some(connection);
                self.close(|counters| counters.lost += 1);
                now_ns
            }
        }
    }

    fn count_reply(&self, reply: Reply, sample: Sample) {
        let core = &self.core;
        let mut recorder = core.recorder.borrow_mut();
        core.roll(&mut recorder, sample.last_ns);
        let counters = &mut recorder.counters;
        counters.sent += 1;
        counters.status[usize::from(reply.status) % 1000] += 1;
        counters.excess_bytes += reply.excess_bytes as u64;
        let expect = &core.shared.plan.expect;
        let good_status = expect.is_good_status(reply.status);
        let good_body = expect.body_bytes.is_none_or(|bytes| bytes == reply.body_bytes);
        if good_status && good_body {
            recorder.answered(sample);
        } else {
            // A response that fails a check is an error and not a response: counted once.
            let fails_check = !good_body || expect.status.is_some();
            recorder.answered_badly(sample, fails_check);
        }
    }

    fn close(&mut self, count: impl FnOnce(&mut crate::recorder::Counters)) {
        if self.connection.take().is_some() {
            let mut recorder = self.core.recorder.borrow_mut();
            recorder.open -= 1;
            count(&mut recorder.counters);
        }
    }

    /// Why to stop waiting, if there is a reason.
    #[inline]
    fn interruption(&self) -> Option<Kind> {
        // A request that is too old timed out, whatever else ends at the same moment.
        if self.deadline.passed() {
            Some(Kind::Timeout)
        } else if self.core.giving_up.get() {
            Some(Kind::Unfinished)
        } else {
            None
        }
    }
}

/// One request on its way out and its response on its way in.
struct Transfer<'r> {
    bytes: &'r [u8],
    written: usize,
    reader: ReplyReader,
    first_ns: u64,
    last_ns: u64,
}

impl<'r> Transfer<'r> {
    fn new(request: &'r Request, last: bool) -> Self {
        Self {
            bytes: if last { &request.bytes_closing } else { &request.bytes },
            written: 0,
            reader: ReplyReader::new(request.kind),
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
        core: &Core,
    ) -> Poll<Result<Reply, Kind>> {
        while !self.is_written() {
            match stream.poll_write(cx, &self.bytes[self.written..]) {
                Poll::Ready(Ok(bytes)) => {
                    self.written += bytes;
                    core.recorder.borrow_mut().counters.bytes_out += bytes as u64;
                }
                // A server may answer and close before it has read everything; the answer, if
                // there is one, is still to be read.
                Poll::Ready(Err(error)) if self.written == 0 || !is_peer_gone(&error) => {
                    return Poll::Ready(Err(Kind::of(&error)));
                }
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        let mut scratch = core.scratch.borrow_mut();
        for _ in 0..READS_MAX {
            let bytes = match stream.poll_read(cx, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Kind::of(&error))),
                Poll::Ready(Ok(bytes)) => bytes,
            };
            self.last_ns = now_ns();
            if bytes == 0 {
                return Poll::Ready(self.reader.handle_end().ok_or(Kind::Closed));
            }
            let (interim, begun) = (self.reader.interim(), self.reader.has_begun());
            core.recorder.borrow_mut().counters.bytes_in += bytes as u64;
            let handled = self.reader.handle_bytes(&scratch[..bytes], &core.limits);
            // The final response begins behind the interim ones (RFC 9110, 15.2).
            if !begun || self.reader.interim() > interim {
                self.first_ns = self.last_ns;
            }
            match handled {
                Ok(None) => {}
                Ok(Some(reply)) => return Poll::Ready(Ok(reply)),
                Err(_) => return Poll::Ready(Err(Kind::Parse)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

fn is_peer_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
