//! Receives the body of a response that is being stored. Not the client whose request it answers paces the server, but
//! the cache: so a slow client delays nobody, and one that leaves ends nothing. A body that turns out to be too large
//! to be stored is received as fast as that client takes it.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};

use cache::{Cache, Fill, NotStored, Object};
use rt::clock::MonotonicTime;
use wire::{BodyDecoder, Framing};

use crate::caching::{AHEAD_BYTES_MAX, ClientProgress, unix_now};
use crate::client_stream::ClientStream;
use crate::core::{ConfigGeneration, Core, PollContext};
use crate::exchange_state::{Exchange, ServerSlot};
use crate::plan::Reuse;
use crate::server_conn::ServerConn;

/// Maximum number of reads in one poll before other tasks get their turn.
const READS_MAX: u32 = 4;
/// Number of new bytes for which many waiting readers are woken at once.
const WAKE_BYTES: u64 = 256 * 1024;
/// Time after which they are woken for fewer.
const WAKE_DELAY_NS: u64 = 1_000_000;

/// The part of a body that has arrived with its head.
#[derive(Clone, Copy)]
pub(super) struct Received<'a> {
    pub(super) store: &'a Arc<Cache>,
    /// Route of the request, for metrics.
    pub(super) route: usize,
    pub(super) framing: Framing,
    pub(super) rest: &'a [u8],
}

/// A body on its way into the cache.
struct BodyFill {
    store: Arc<Cache>,
    fill: Fill,
    object: Arc<Object>,
    decoder: BodyDecoder,
    /// Reason for which it is not stored although its readers get it.
    refused: Option<NotStored>,
    received_bytes: u64,
    /// The client whose request it answers.
    progress: Option<Weak<ClientProgress>>,
}

/// State of a body after more bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillState {
    Incomplete,
    /// Complete; true if bytes follow that were not requested.
    Complete(bool),
    Malformed,
}

/// A body on its way, and the connection that it comes from.
struct FillTask {
    body: BodyFill,
    conn: ServerConn,
    slot: ServerSlot,
    generation: Rc<ConfigGeneration>,
    route: usize,
    keeps_server: bool,
    idle_ns: u64,
    due: MonotonicTime,
    /// Time at which many readers are woken for few bytes.
    wake_due: Option<MonotonicTime>,
}

impl Exchange {
    /// Receives the body of a response: at once if it is there, and else in a task of its own.
    pub(super) fn fill_cache(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        fill: Fill,
        object: &Arc<Object>,
        Received { store, route, framing, rest }: Received<'_>,
        progress: Option<Weak<ClientProgress>>,
    ) {
        let limits = self.response_limits();
        let mut body = BodyFill {
            store: Arc::clone(store),
            fill,
            object: Arc::clone(object),
            decoder: BodyDecoder::new(framing, &limits),
            refused: None,
            received_bytes: 0,
            progress,
        };
        match body.receive(rest) {
            FillState::Complete(has_more) => {
                self.attempt.keeps_server &= !has_more;
                let not_stored = body.finish();
                if let (Some(reason), Some(generation)) = (not_stored, &self.generation) {
                    generation.metrics.count_not_stored(route, reason);
                }
                self.release_server(ctx, client);
            }
            // Its readers get the error.
            FillState::Malformed => {
                self.attempt.keeps_server = false;
                self.release_server(ctx, client);
            }
            FillState::Incomplete => {
                // Requests that wait on other cores may read it already.
                body.fill.wake_readers(0);
                self.leave_to_fill(client, route, body);
            }
        }
    }

    fn leave_to_fill(&mut self, client: &ClientStream, route: usize, body: BodyFill) {
        let (Some(conn), Some(generation)) = (self.server.take(), self.generation.clone()) else { return };
        let idle_ns = self.slot.as_ref().map_or(0, |slot| self.timeouts(client, slot).1.idle_ns);
        let Some(slot) = self.slot.take() else { return };
        let task = FillTask {
            body,
            conn,
            slot,
            generation,
            route,
            keeps_server: self.attempt.keeps_server,
            idle_ns,
            due: self.total_due(),
            wake_due: None,
        };
        rt::tokio::task::spawn_local(task.run(client.core()));
    }
}

impl BodyFill {
    /// Takes more bytes of the body.
    fn receive(&mut self, mut bytes: &[u8]) -> FillState {
        while !self.decoder.is_done() {
            if bytes.is_empty() {
                return FillState::Incomplete;
            }
            let Ok(step) = self.decoder.decode(bytes) else { return FillState::Malformed };
            let data = &bytes[step.data.clone()];
            if !data.is_empty() {
                self.received_bytes += data.len() as u64;
                self.push(data);
            }
            bytes = &bytes[step.consumed..];
        }
        FillState::Complete(!bytes.is_empty())
    }

    fn push(&mut self, data: &[u8]) {
        let result = self.fill.push(data);
        if let (Err(reason), None) = (result, self.refused) {
            self.refused = Some(reason);
            if reason.is_lasting() {
                self.store.mark_uncacheable(self.object.key(), unix_now());
            }
        }
    }

    /// Ends a complete body. Returns the reason for which it is not stored.
    fn finish(self) -> Option<NotStored> {
        self.fill.finish().err()
    }

    /// Returns whether the server is too far ahead of the client that takes a body which is not stored. `None`: nobody
    /// reads it.
    fn is_ahead(&self, cx: &Context<'_>) -> Option<bool> {
        if self.refused.is_none() {
            return Some(false);
        }
        match self.progress.as_ref().and_then(Weak::upgrade) {
            Some(progress) if self.received_bytes > progress.sent_bytes.get() + AHEAD_BYTES_MAX => {
                *progress.waker.borrow_mut() = Some(cx.waker().clone());
                Some(true)
            }
            Some(_) => Some(false),
            // Requests that waited for it may still read it: besides the task and the fill.
            None => (Arc::strong_count(self.object.body()) > BODY_OWNERS).then_some(false),
        }
    }
}

/// Number of owners of a body that nobody reads: its object.
const BODY_OWNERS: usize = 1;

/// Result of a poll of a body.
enum Progress {
    /// Bytes have arrived.
    Received,
    Ended(FillState),
}

impl FillTask {
    async fn run(mut self, core: Rc<Core>) {
        let mut idle_due = MonotonicTime::now().saturating_add(self.idle_ns);
        let state = loop {
            let end_due = idle_due.min(self.due);
            let due = self.wake_due.map_or(end_due, |wake_due| wake_due.min(end_due));
            let progress = std::future::poll_fn(|cx| self.poll(cx, &core));
            rt::tokio::select! {
                progress = progress => match progress {
                    Progress::Received => {
                        let now = MonotonicTime::now();
                        idle_due = now.saturating_add(self.idle_ns);
                        self.wake_readers(WAKE_BYTES, now);
                        // They send before more is received.
                        rt::tokio::task::yield_now().await;
                    }
                    Progress::Ended(state) => break state,
                },
                () = core.timers.sleep_until(due.as_ns()) => match due < end_due {
                    true => self.wake_readers(0, MonotonicTime::now()),
                    false => break FillState::Incomplete,
                },
            }
        };
        self.end(&core, state);
    }

    /// Wakes the readers of the body if at least so many bytes are new, or later.
    fn wake_readers(&mut self, bytes_min: u64, now: MonotonicTime) {
        self.wake_due = match self.body.fill.wake_readers(bytes_min) {
            true => None,
            false => Some(self.wake_due.unwrap_or_else(|| now.saturating_add(WAKE_DELAY_NS))),
        };
    }

    fn poll(&mut self, cx: &mut Context<'_>, core: &Core) -> Poll<Progress> {
        match self.body.is_ahead(cx) {
            None => return Poll::Ready(Progress::Ended(FillState::Incomplete)),
            Some(true) => return Poll::Pending,
            Some(false) => {}
        }
        let input = &mut core.memory.scratch.borrow_mut().input;
        for reads in 0..READS_MAX {
            let read = match self.conn.stream.poll_read(cx, input) {
                Poll::Pending if reads > 0 => return Poll::Ready(Progress::Received),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    self.keeps_server = false;
                    let is_whole = !self.conn.stream.is_truncated() && self.body.decoder.handle_eof().is_ok();
                    let state = if is_whole { FillState::Complete(false) } else { FillState::Malformed };
                    return Poll::Ready(Progress::Ended(state));
                }
                Poll::Ready(Ok(read)) => read,
                Poll::Ready(Err(_)) => return Poll::Ready(Progress::Ended(FillState::Malformed)),
            };
            match self.body.receive(&input[..read]) {
                FillState::Incomplete => {}
                state => return Poll::Ready(Progress::Ended(state)),
            }
        }
        Poll::Ready(Progress::Received)
    }

    /// Ends the fill, and releases the server.
    fn end(self, core: &Core, state: FillState) {
        let Self { body, mut conn, slot: ServerSlot { pool, server }, generation, route, .. } = self;
        let not_stored = match state {
            FillState::Complete(_) => body.finish(),
            FillState::Incomplete | FillState::Malformed => {
                pool.record_failure_sample(server);
                Some(body.refused.unwrap_or(NotStored::Incomplete))
            }
        };
        if let Some(reason) = not_stored {
            generation.metrics.count_not_stored(route, reason);
        }
        let is_reusable = matches!(pool.reuse(), Reuse::Safe | Reuse::Always) && !conn.is_private;
        if self.keeps_server
            && state == FillState::Complete(false)
            && is_reusable
            && !core.drain.is_draining.get()
        {
            conn.served_requests += 1;
            pool.keep_idle(server, conn, core.ticks.now.get());
        }
        pool.release(server, &mut core.memory.scratch.borrow_mut().work.rng);
    }
}
