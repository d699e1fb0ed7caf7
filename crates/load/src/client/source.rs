//! Source of one client's requests: in a closed loop the users of its streams, in an open loop the
//! dispatcher.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use rt::clock::now_ns;
use rt::timers::Sleep;

use crate::client::dialer::Dialer;
use crate::client::queue_timeout;
use crate::core_state::CoreState;
use crate::dispatcher::NextAction;
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::pace::Pace;
use crate::plan::{RunPlan, ThinkDistribution};
use crate::session::connection_rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextRequest {
    /// The request that was due at this time. `queued`: it waited for a free connection since.
    Due {
        due_ns: u64,
        queued: bool,
    },
    /// There is none now; the task is woken.
    Wait,
    End,
}

/// A request that was taken and is not sent yet, because it waits for a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedRequest {
    pub(super) due_ns: u64,
    /// Time when the client took it.
    pub(super) begun_ns: u64,
    /// True if it waited for a free connection, or for the first one, since it was due.
    pub(super) queued: bool,
}

#[derive(Debug)]
pub(super) struct RequestSource {
    kind: SourceKind,
    /// Request that waits for the connection.
    wanted: Option<WantedRequest>,
    is_ended: bool,
}

#[derive(Debug)]
enum SourceKind {
    /// Each stream is a user that sends a request when its previous one has ended.
    Closed(Users),
    /// Requests come from the dispatcher.
    Open,
}

/// Users of a closed loop that have no request in flight.
#[derive(Debug)]
pub(super) struct Users {
    number: u64,
    think_ns: u64,
    think: ThinkDistribution,
    random: fastrand::Rng,
    count: usize,
    /// Due times of their next requests, which are nearly in order.
    due: VecDeque<u64>,
    timer: Option<Sleep>,
    is_ended: bool,
}

impl RequestSource {
    pub(super) fn new(plan: &RunPlan, streams: usize, number: u64) -> Self {
        let kind = match plan.pace {
            Pace::Open { .. } => SourceKind::Open,
            Pace::Closed { think_ns } => SourceKind::Closed(Users {
                number,
                think_ns,
                think: plan.think,
                random: connection_rng(plan, number),
                count: streams,
                due: VecDeque::with_capacity(streams),
                timer: None,
                is_ended: false,
            }),
        };
        Self { kind, wanted: None, is_ended: false }
    }

    /// Creates the source of a connection before the load, which sends no request.
    pub(super) fn before_start() -> Self {
        Self { kind: SourceKind::Open, wanted: None, is_ended: false }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Begins the load: all users are free at `start_ns`.
    pub(super) fn begin(&mut self, start_ns: u64) {
        if let SourceKind::Closed(users) = &mut self.kind {
            (0..users.count).for_each(|_| users.push(start_ns));
        }
    }

    /// Frees the user of a request that ended at `at_ns`.
    #[inline]
    pub(super) fn release(&mut self, at_ns: u64) {
        if let SourceKind::Closed(users) = &mut self.kind
            && !users.is_ended
        {
            users.push(at_ns);
        }
    }

    /// Makes requests that are due before `until_ns` due then.
    pub(super) fn postpone(&mut self, until_ns: u64) {
        if let SourceKind::Closed(users) = &mut self.kind {
            users.due.iter_mut().for_each(|due_ns| *due_ns = (*due_ns).max(until_ns));
        }
    }

    /// Takes the next request of a client that has `free_slots`; `None` if there is none now, or none
    /// any more.
    pub(super) fn take(
        &mut self,
        cx: &mut Context<'_>,
        dialer: &Dialer,
        free_slots: usize,
        now_ns: u64,
    ) -> Option<WantedRequest> {
        if let Some(wanted) = self.wanted.take() {
            return Some(wanted);
        }
        match self.next(cx, dialer, free_slots, now_ns) {
            NextRequest::Due { due_ns, queued } => Some(WantedRequest { due_ns, begun_ns: now_ns, queued }),
            NextRequest::Wait => None,
            NextRequest::End => {
                self.is_ended = true;
                None
            }
        }
    }

    /// Records that the request that waited for the connection was not sent.
    pub(super) fn fail_wanted(&mut self, core: &CoreState, failure: Failure, now_ns: u64) {
        if let Some(WantedRequest { due_ns, .. }) = self.wanted.take() {
            core.recorder.borrow_mut().record_not_sent(due_ns, failure, now_ns);
            self.release(now_ns);
        }
    }

    fn next(&mut self, cx: &mut Context<'_>, dialer: &Dialer, free_slots: usize, now_ns: u64) -> NextRequest {
        match &mut self.kind {
            SourceKind::Closed(users) => users.next(cx, &dialer.core, now_ns),
            SourceKind::Open => next_of_dispatcher(dialer, free_slots, now_ns),
        }
    }

    /// Waits for the next request, which [`RequestSource::take`] then returns. Returns its due time;
    /// `None` if the load is over.
    pub(super) fn poll_wanted(&mut self, cx: &mut Context<'_>, dialer: &Dialer) -> Poll<Option<u64>> {
        if self.wanted.is_none() {
            let begun_ns = now_ns();
            match self.next(cx, dialer, 1, begun_ns) {
                NextRequest::Due { due_ns, .. } => {
                    self.wanted = Some(WantedRequest { due_ns, begun_ns, queued: true });
                }
                NextRequest::Wait => return Poll::Pending,
                NextRequest::End => return Poll::Ready(None),
            }
        }
        Poll::Ready(self.wanted.map(|wanted| wanted.due_ns))
    }

    /// Notes that the client cannot send now. The dispatcher takes back what it has assigned to it.
    pub(super) fn block(&self, dialer: &Dialer) {
        if matches!(self.kind, SourceKind::Open) {
            dialer.core.dispatcher.borrow_mut().withdraw(dialer.index);
        }
    }
}

impl Users {
    /// Adds the next request of a user that is free at `at_ns`.
    #[inline]
    fn push(&mut self, at_ns: u64) {
        if self.think_ns == 0 || self.think.is_constant() {
            self.due.push_back(at_ns + self.think_ns);
            return;
        }
        let due_ns = at_ns + self.think.sample(self.think_ns, &mut self.random);
        let position = self.due.partition_point(|other| *other <= due_ns);
        self.due.insert(position, due_ns);
    }

    /// Postpones requests until the stages use the connection; `u64::MAX`: never again.
    fn wait_for_stage(&mut self, core: &CoreState, now_ns: u64) {
        let Some(stages) = core.shared.plan.connection_stages() else { return };
        let start_ns = core.start_ns.get();
        let earliest_ns = self.due.front().map_or(now_ns, |due_ns| now_ns.max(*due_ns));
        let active_ns = stages.next_active_ns(self.number, earliest_ns.saturating_sub(start_ns));
        let active_ns = active_ns.map_or(u64::MAX, |active_ns| start_ns.saturating_add(active_ns));
        if active_ns > earliest_ns {
            self.due.iter_mut().for_each(|due_ns| *due_ns = (*due_ns).max(active_ns));
        }
    }

    fn next(&mut self, cx: &mut Context<'_>, core: &CoreState, now_ns: u64) -> NextRequest {
        if self.is_ended {
            return NextRequest::End;
        }
        self.wait_for_stage(core, now_ns);
        let Some(&due_ns) = self.due.front() else {
            return NextRequest::Wait;
        };
        let end_ns = core.end_ns();
        if due_ns > now_ns && now_ns < end_ns && !core.giving_up.get() {
            let mut timer = core.timers.sleep_until(due_ns.min(end_ns));
            // It was due later than now; if it is due meanwhile, the task is polled again.
            if Pin::new(&mut timer).poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            self.timer = Some(timer);
            return NextRequest::Wait;
        }
        if due_ns >= end_ns || core.giving_up.get() || !core.dispatcher.borrow_mut().take_request() {
            core.dispatcher.borrow_mut().close();
            self.due.clear();
            self.is_ended = true;
            return NextRequest::End;
        }
        self.due.pop_front();
        if self.think_ns > 0 {
            let mut recorder = core.recorder.borrow_mut();
            core.roll(&mut recorder, now_ns);
            if recorder.is_running(due_ns) {
                recorder.count_if_stalled(due_ns);
            }
        }
        NextRequest::Due { due_ns, queued: false }
    }
}

fn next_of_dispatcher(dialer: &Dialer, free_slots: usize, now_ns: u64) -> NextRequest {
    let core: &CoreState = &dialer.core;
    let queue_timeout = queue_timeout(&core.shared.plan);
    let record_not_sent = |due_ns, count, kind| {
        let failure = Failure { kind, phase: RequestPhase::Queue };
        core.recorder.borrow_mut().record_all_not_sent(due_ns, count, failure, now_ns);
    };
    loop {
        if core.giving_up.get() {
            return NextRequest::End;
        }
        let next = core.dispatcher.borrow_mut().next_action(dialer.index, free_slots, now_ns, queue_timeout);
        match next {
            NextAction::Due { due_ns, queued } => {
                let mut recorder = core.recorder.borrow_mut();
                core.roll(&mut recorder, now_ns);
                if !queued {
                    recorder.record_lag(now_ns.saturating_sub(due_ns));
                }
                recorder.record_back_off(dialer.back_off_overlap_ns(due_ns));
                return NextRequest::Due { due_ns, queued };
            }
            NextAction::Expired { due_ns, count } => record_not_sent(due_ns, count, FailureKind::Timeout),
            NextAction::TooLate { due_ns, count } => record_not_sent(due_ns, count, FailureKind::TooLate),
            NextAction::End => return NextRequest::End,
            NextAction::Wait => return NextRequest::Wait,
        }
    }
}
