//! One core's view of a pool: its servers, their idle connections, and the requests of this core
//! that wait for room. What all cores share of it is in [`shared`].
//!
//! ```text
//!              room                          connection
//! request -> acquire ----------------> server -> idle one, or a new one -> request in flight -> release
//!              | none                    ^                                                        |
//!              v                         | granted, in the order of arrival                       |
//!            queue (bounded in length and age) <------------------------------------------------'
//! ```

mod shared;
mod standing;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use rt::namespace::Namespace;
use rt::stream::Stream;

pub(crate) use shared::{Bells, Shared, SharedPool};

use crate::balance::{Candidate, Turns, choose};
use crate::plan::{Plan, PoolPlan, Reuse};

/// One core's view of one pool.
#[derive(Debug)]
pub(crate) struct Pool {
    plan: Arc<Plan>,
    index: usize,
    core: usize,
    shared: Arc<SharedPool>,
    servers: Vec<Rc<Server>>,
    turns: RefCell<Turns>,
    queue: RefCell<VecDeque<Rc<Ticket>>>,
    /// Idle connections that this core may keep to each server.
    idle_max: usize,
}

/// One core's view of one server.
#[derive(Debug, Default)]
pub(crate) struct Server {
    in_flight: Cell<usize>,
    /// The one used last is at the end, and is used first.
    idle: RefCell<Vec<ServerConn>>,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct ServerConn {
    pub(crate) stream: Stream,
    /// Requests that it has carried to their end.
    pub(crate) served: u32,
    idle_since_ns: u64,
}

/// A request's place in the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Cell<TicketState>,
    waker: Waker,
    due_ns: u64,
}

/// What became of a place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketState {
    /// Not yet its turn.
    Waiting,
    /// This server has room, which is taken for it.
    Granted(usize),
    /// It has waited for too long.
    Expired,
}

impl Pool {
    /// Takes over what `before` was of the same pool: idle connections and counts of the servers
    /// that stay.
    pub(crate) fn new(
        plan: Arc<Plan>,
        index: usize,
        core: (usize, usize),
        shared: Arc<SharedPool>,
        before: Option<&Self>,
    ) -> Self {
        let own = &plan.pools[index];
        let (core, cores) = core;
        let server = |server: &crate::plan::ServerPlan| {
            let kept = before.and_then(|before| {
                let old = before
                    .plan()
                    .servers
                    .iter()
                    .position(|old| old.name == server.name && old.address == server.address)?;
                // Connections were made in another namespace, or told another client's address.
                (before.plan().namespace == own.namespace
                    && before.plan().send_proxy_protocol == own.send_proxy_protocol)
                    .then(|| Rc::clone(&before.servers[old]))
            });
            kept.unwrap_or_default()
        };
        let servers: Vec<_> = own.servers.iter().map(server).collect();
        let turns = RefCell::new(Turns::new(servers.len()));
        let idle_max = own.idle_max.div_ceil(cores);
        let queue = RefCell::default();
        Self { plan, index, core, shared, servers, turns, queue, idle_max }
    }

    pub(crate) fn plan(&self) -> &PoolPlan {
        &self.plan.pools[self.index]
    }

    /// The network namespace of its servers, if it is not our own.
    pub(crate) fn namespace(&self) -> Option<Namespace> {
        self.shared.namespace()
    }

    /// Which connections a request may go over. One that told the server who the client is can only
    /// carry that client's requests.
    pub(crate) fn reuse(&self) -> Reuse {
        match self.plan().send_proxy_protocol {
            Some(_) => Reuse::Never,
            None => self.plan().reuse,
        }
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Takes room at a server, unless none has any or others wait already.
    pub(crate) fn acquire(&self, avoid: Option<usize>, rng: &mut fastrand::Rng) -> Option<usize> {
        if !self.queue.borrow().is_empty() {
            return None;
        }
        self.try_acquire(avoid, rng)
    }

    fn try_acquire(&self, avoid: Option<usize>, rng: &mut fastrand::Rng) -> Option<usize> {
        if self.servers.len() == 1 {
            let usable = self.shared.standing(0).share() > 0 && self.shared.try_enter(0);
            return usable.then(|| self.count_in(0));
        }
        let balance = self.plan().balance;
        let turns = &mut *self.turns.borrow_mut();
        // Another core may take the last place between the look and the step, so look again.
        for _ in 0..=self.servers.len() {
            let candidate = |index: usize| self.candidate(index, avoid);
            let chosen = choose(balance, self.servers.len(), candidate, turns, rng)
                .or_else(|| avoid.filter(|avoid| self.candidate(*avoid, None).open))?;
            if self.shared.try_enter(chosen) {
                return Some(self.count_in(chosen));
            }
        }
        None
    }

    fn candidate(&self, index: usize, avoid: Option<usize>) -> Candidate {
        Candidate {
            weight: self.shared.standing(index).share(),
            in_flight: self.servers[index].in_flight.get(),
            open: avoid != Some(index) && self.shared.has_room(index),
        }
    }

    fn count_in(&self, server: usize) -> usize {
        let in_flight = &self.servers[server].in_flight;
        in_flight.set(in_flight.get() + 1);
        server
    }

    /// Whether any server may get a request, now or once it has room.
    pub(crate) fn has_server(&self) -> bool {
        (0..self.servers.len()).any(|server| self.shared.standing(server).share() > 0)
    }

    /// Works out anew what share of the load each server gets.
    pub(crate) fn settle(&self, now_ns: u64) {
        self.shared.settle(self.plan(), now_ns);
    }

    /// Gives room back, to who waits for it.
    pub(crate) fn release(&self, server: usize, rng: &mut fastrand::Rng) {
        let in_flight = &self.servers[server].in_flight;
        in_flight.set(in_flight.get().saturating_sub(1));
        if self.shared.leave(server) && self.shared.is_waited_for() {
            let own = !self.queue.borrow().is_empty();
            if !self.shared.ring_other(self.core, own) {
                self.serve_queue(rng);
            }
        }
    }

    /// Waits for room. `None`: the queue is full.
    pub(crate) fn enqueue(
        &self,
        waker: &Waker,
        now_ns: u64,
        rng: &mut fastrand::Rng,
    ) -> Option<Rc<Ticket>> {
        let QueuePlanOf { limit, timeout_ns } = self.queue_plan();
        if !self.shared.join_queue(self.core, limit) {
            return None;
        }
        let state = Cell::new(TicketState::Waiting);
        let ticket = Rc::new(Ticket { state, waker: waker.clone(), due_ns: now_ns + timeout_ns });
        self.queue.borrow_mut().push_back(Rc::clone(&ticket));
        // Room may have come up on another core before it could see that we wait.
        self.serve_queue(rng);
        Some(ticket)
    }

    fn queue_plan(&self) -> QueuePlanOf {
        let queue = self.plan().queue;
        QueuePlanOf { limit: queue.limit, timeout_ns: queue.timeout_ns }
    }

    /// Grants what room there is, in the order of arrival.
    pub(crate) fn serve_queue(&self, rng: &mut fastrand::Rng) {
        while !self.queue.borrow().is_empty() {
            let Some(server) = self.try_acquire(None, rng) else {
                return;
            };
            if let Some(ticket) = self.queue.borrow_mut().pop_front() {
                self.shared.leave_queue(self.core);
                ticket.settle(TicketState::Granted(server));
            }
        }
    }

    /// Tells those that have waited for too long; whether any still wait.
    pub(crate) fn expire_queue(&self, now_ns: u64) -> bool {
        let mut queue = self.queue.borrow_mut();
        while queue.front().is_some_and(|ticket| ticket.due_ns <= now_ns) {
            if let Some(ticket) = queue.pop_front() {
                self.shared.leave_queue(self.core);
                ticket.settle(TicketState::Expired);
            }
        }
        !queue.is_empty()
    }

    /// Leaves the queue before its turn, or gives back what it was granted.
    pub(crate) fn forget(&self, ticket: &Rc<Ticket>, rng: &mut fastrand::Rng) {
        match ticket.state() {
            TicketState::Granted(server) => self.release(server, rng),
            TicketState::Expired => {}
            TicketState::Waiting => {
                let mut queue = self.queue.borrow_mut();
                if let Some(at) = queue.iter().position(|other| Rc::ptr_eq(other, ticket)) {
                    queue.remove(at);
                    self.shared.leave_queue(self.core);
                }
            }
        }
    }

    /// An idle connection that is alive, the one used last; dead ones are closed.
    pub(crate) fn take_idle(&self, server: usize) -> Option<ServerConn> {
        let idle = &self.servers[server].idle;
        loop {
            let conn = idle.borrow_mut().pop()?;
            if conn.is_alive() {
                return Some(conn);
            }
        }
    }

    /// Keeps a connection for the next request, unless there are enough.
    pub(crate) fn keep_idle(&self, server: usize, mut conn: ServerConn, now_ns: u64) {
        let mut idle = self.servers[server].idle.borrow_mut();
        conn.idle_since_ns = now_ns;
        if idle.len() < self.idle_max {
            idle.push(conn);
        }
    }

    /// Closes idle connections that are dead or too old.
    pub(crate) fn sweep_idle(&self, now_ns: u64) {
        let timeout_ns = self.plan().idle_timeout_ns;
        for server in &self.servers {
            let mut idle = server.idle.borrow_mut();
            idle.retain(|conn| {
                now_ns.saturating_sub(conn.idle_since_ns) < timeout_ns && conn.is_alive()
            });
        }
    }

    /// Requests of this core that all servers have.
    pub(crate) fn in_flight(&self) -> usize {
        self.servers.iter().map(|server| server.in_flight.get()).sum()
    }

    /// Idle connections and requests in flight of one server, and requests that wait for the pool.
    pub(crate) fn load(&self, server: usize) -> (usize, usize, usize) {
        let server = &self.servers[server];
        (server.idle.borrow().len(), server.in_flight.get(), self.queue.borrow().len())
    }
}

/// The bounds of the queue, copied out of the plan.
struct QueuePlanOf {
    limit: usize,
    timeout_ns: u64,
}

impl Ticket {
    pub(crate) fn state(&self) -> TicketState {
        self.state.get()
    }

    fn settle(&self, state: TicketState) {
        self.state.set(state);
        self.waker.wake_by_ref();
    }
}

impl ServerConn {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, served: 0, idle_since_ns: 0 }
    }

    /// Whether an idle connection can still be used: one that can be read from has ended, or says
    /// what nobody asked for. Mostly the runtime knows from its last look, so that it costs no system
    /// call; where the last response ended just where a read did, the kernel is asked once.
    pub(crate) fn is_alive(&self) -> bool {
        self.stream.is_quiet()
    }
}

#[cfg(test)]
mod tests;
