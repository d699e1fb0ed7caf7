//! Waiting for room at a pool: taking it at once, or a place in the queue, and what becomes of that.

use std::rc::Rc;
use std::task::{Context, Waker};

use rt::clock::now_ns;

use super::{Exchange, Moved, Place, Stage};
use crate::conn::{Link, Watch};
use crate::core::{Bench, Core, Live, QUEUE_TICK_NS};
use crate::deadline::patience_ns;
use crate::outcome::{End, Phase};
use crate::pool::{Ask, NEVER, NoPlace, Pool, TicketState};
use crate::profile::Phase as Section;

impl Exchange {
    /// Keeps how urgent it is, and when its client leaves, which is only known of trusted peers:
    /// whoever else may write what it likes.
    pub(super) fn note_urgency(
        &mut self,
        link: &Link,
        live: &Live,
        route: usize,
        headers: &[wire::Header<'_>],
    ) {
        self.priority = live.plan.routes[route].priority;
        if link.peer.trusted {
            let fields = &live.plan.listeners[self.listener].admission.deadline_headers;
            let patience_ns = patience_ns(headers, fields).unwrap_or(NEVER);
            self.deadline_ns = self.facts.times.head_ns.saturating_add(patience_ns);
        }
    }

    /// Takes room at a server, or a place in the queue.
    pub(super) fn enter_pool(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        pool: Rc<Pool>,
        now_ns: u64,
        (rng, waker): (&mut fastrand::Rng, &Waker),
    ) {
        let _section = core.profile.enter(Section::Queue);
        self.facts.pool = Some(pool.index());
        pool.note_request(now_ns);
        if self.deadline_ns <= now_ns {
            let _ = self.fail(core, link, rng, End::DeadlineMissed, Phase::Queue);
        } else if let Some(server) = pool.acquire(self.want, now_ns, rng) {
            self.dispatch(core, link, Place { pool, server }, now_ns);
        } else if !pool.has_server(self.want) {
            let _ = self.fail(core, link, rng, End::NoServer, Phase::Connect);
        } else {
            self.enqueue(core, link, pool, rng, waker);
        }
    }

    pub(super) fn enqueue(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        pool: Rc<Pool>,
        rng: &mut fastrand::Rng,
        waker: &Waker,
    ) {
        let (want, priority, deadline_ns) = (self.want, self.priority, self.deadline_ns);
        let ask = Ask { want, waker, priority, now_ns: now_ns(), deadline_ns };
        let end = match pool.enqueue(&ask, rng) {
            Ok(ticket) => {
                self.stage = Stage::Queued(pool, ticket);
                watch_queues(core);
                return;
            }
            Err(NoPlace::Full) => End::QueueFull,
            Err(NoPlace::Deadline) => End::DeadlineMissed,
        };
        self.facts.retry_after_s = pool.retry_after_s();
        let _ = self.fail(core, link, rng, end, Phase::Queue);
    }

    pub(super) fn poll_queued(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        let _section = core.profile.enter(Section::Queue);
        let Stage::Queued(pool, ticket) = &self.stage else {
            return Moved::Nothing;
        };
        match ticket.state() {
            TicketState::Granted(server) => {
                let now_ns = now_ns();
                let place = Place { pool: Rc::clone(pool), server };
                if pool.is_too_late(ticket, now_ns) {
                    return self.refuse_queued(core, link, bench, End::DeadlineMissed);
                }
                // It may have left just when its turn came.
                match self.watch_early(cx, core, link, bench) {
                    Moved::Nothing => self.dispatch(core, link, place, now_ns),
                    left => return left,
                }
                Moved::Some
            }
            TicketState::Expired => self.refuse_queued(core, link, bench, End::QueueTimeout),
            TicketState::Missed => self.refuse_queued(core, link, bench, End::DeadlineMissed),
            TicketState::Shed => self.refuse_queued(core, link, bench, End::QueueShed),
            TicketState::Waiting => self.watch_early(cx, core, link, bench),
        }
    }

    fn refuse_queued(
        &mut self,
        core: &Core,
        link: &mut Link,
        bench: &mut Bench,
        end: End,
    ) -> Moved {
        if let Stage::Queued(pool, _) = &self.stage {
            self.facts.retry_after_s = pool.retry_after_s();
        }
        self.fail(core, link, &mut bench.rng, end, Phase::Queue)
    }

    /// Leaves when the client has gone before its request went anywhere.
    pub(super) fn watch_early(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        if !self.up.is_taken() {
            // It still sends, so its bytes say nothing.
            return Moved::Nothing;
        }
        match link.watch_client(cx, core, &mut bench.input) {
            Watch::Quiet => Moved::Nothing,
            Watch::Ended if link.half_close() => Moved::Nothing,
            Watch::Ended | Watch::Gone => {
                let phase = self.phase();
                self.fail(core, link, &mut bench.rng, End::ClientGone, phase)
            }
        }
    }
}

/// Looks after the queues of a core as long as anybody waits in them.
fn watch_queues(core: &Rc<Core>) {
    if core.queues_watched.replace(true) {
        return;
    }
    let core = Rc::clone(core);
    rt::tokio::task::spawn_local(async move {
        loop {
            let now_ns = now_ns();
            let waits = core.expire_queues(now_ns);
            // Whatever made room without a bell.
            core.serve_queues();
            if !waits {
                core.queues_watched.set(false);
                return;
            }
            core.timers.sleep_until(now_ns + QUEUE_TICK_NS).await;
        }
    });
}
