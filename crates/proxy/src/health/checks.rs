//! Active checks of all servers that are to be checked: a task for each, one check at a time, kept
//! across reloads for servers that stay.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rt::address::Address;
use rt::clock::now_ns;
use rt::namespace::Namespace;
use rt::timers::Timers;
use rt::tokio;
use rt::tokio::sync::Semaphore;
use rt::tokio::task::{AbortHandle, spawn_local};

use super::agent::Said;
use super::machine::{Machine, Verdict};
use super::probe::{Came, Failed, Job, probe};
use crate::metrics::Snapshot;
use crate::plan::{CheckKind, CheckPlan, Plan, PoolPlan, ServerPlan};
use crate::pool::{Checked, LastCheck, Shared, SharedPool, Standing, Wanted};

/// Checks that are made at a time; more wait for a moment.
const AT_A_TIME_MAX: usize = 256;

/// Everything that is checked.
#[derive(Debug)]
pub(super) struct Checks {
    timers: Timers,
    rng: RefCell<fastrand::Rng>,
    room: Semaphore,
    subjects: RefCell<Vec<Rc<Subject>>>,
    /// What was counted of those that are not checked any more.
    past: RefCell<Snapshot>,
}

/// One server that is checked.
#[derive(Debug)]
struct Subject {
    pool: Box<str>,
    server: Box<str>,
    address: Address,
    job: Job,
    namespace: Option<Namespace>,
    /// Where it is in the plan in force.
    place: RefCell<(Arc<SharedPool>, usize)>,
    standing: Arc<Standing>,
    machine: Cell<Machine>,
    /// What its agent said last of what is wanted, and of which share in percent.
    advice: Cell<(Wanted, u32)>,
    counts: RefCell<[u64; Came::ALL.len()]>,
    changes: Cell<(u64, u64)>,
    task: RefCell<Option<AbortHandle>>,
}

impl Checks {
    pub(super) fn new(timers: Timers) -> Rc<Self> {
        Rc::new(Self {
            timers,
            rng: RefCell::new(fastrand::Rng::new()),
            room: Semaphore::new(AT_A_TIME_MAX),
            subjects: RefCell::default(),
            past: RefCell::default(),
        })
    }

    /// Checks what `plan` wants to be checked, and nothing else.
    pub(super) fn follow(self: &Rc<Self>, plan: &Plan, shared: &Shared) {
        let mut old = std::mem::take(&mut *self.subjects.borrow_mut());
        let mut subjects = Vec::new();
        for (pool, shared) in plan.pools.iter().zip(&shared.pools) {
            let Some(check) = &pool.check else { continue };
            for (index, server) in pool.servers.iter().enumerate() {
                let known = old.iter().position(|old| {
                    old.pool == pool.name
                        && old.server == server.name
                        && old.address == server.address
                });
                let before = known.map(|at| old.swap_remove(at));
                let place = (Arc::clone(shared), index);
                subjects.push(self.subject(pool, server, check, place, before));
            }
        }
        for gone in &old {
            gone.stop();
            // What it was found to be holds no longer, if it is still there at all.
            gone.standing.found(Checked::Unchecked, now_ns());
            gone.forget_advice();
            let mut whole = Snapshot::default();
            gone.add_to(&mut whole);
            whole.carry_over(&self.past.borrow());
            *self.past.borrow_mut() = whole;
        }
        *self.subjects.borrow_mut() = subjects;
    }

    /// The subject that is there already, or a new one that goes on where that one was.
    fn subject(
        self: &Rc<Self>,
        pool: &PoolPlan,
        server: &ServerPlan,
        check: &CheckPlan,
        place: (Arc<SharedPool>, usize),
        before: Option<Rc<Subject>>,
    ) -> Rc<Subject> {
        let job = Job {
            target: target(&server.address, check),
            plan: check.clone(),
            proxy_protocol: pool.send_proxy_protocol,
        };
        let namespace = place.0.namespace();
        let name = |namespace: &Option<Namespace>| {
            namespace.as_ref().map(|namespace| namespace.name().to_owned())
        };
        let standing = place.0.standing_of(place.1);
        if let Some(before) = &before
            && before.job == job
            && name(&before.namespace) == name(&namespace)
            && Arc::ptr_eq(&before.standing, &standing)
        {
            *before.place.borrow_mut() = place;
            return Rc::clone(before);
        }
        let subject = Rc::new(Subject {
            pool: pool.name.clone(),
            server: server.name.clone(),
            address: server.address.clone(),
            job,
            namespace,
            place: RefCell::new(place),
            standing,
            machine: Cell::new(before.as_ref().map_or_else(Machine::new, |old| old.machine.get())),
            advice: Cell::new((Wanted::Ready, 100)),
            counts: RefCell::new(
                before.as_ref().map(|old| *old.counts.borrow()).unwrap_or_default(),
            ),
            changes: Cell::new(before.as_ref().map(|old| old.changes.get()).unwrap_or_default()),
            task: RefCell::default(),
        });
        if let Some(before) = before {
            before.stop();
            if !matches!(check.kind, CheckKind::Agent { .. }) {
                subject.forget_advice();
            }
        }
        let task = spawn_local(check_always(Rc::clone(self), Rc::clone(&subject)));
        *subject.task.borrow_mut() = Some(task.abort_handle());
        subject
    }

    /// Adds what was counted.
    pub(super) fn add_to(&self, all: &mut Snapshot) {
        for subject in &*self.subjects.borrow() {
            subject.add_to(all);
        }
        all.carry_over(&self.past.borrow());
    }

    fn chance(&self) -> f64 {
        self.rng.borrow_mut().f64()
    }

    async fn check(&self, subject: &Subject) {
        let Ok(_room) = self.room.acquire().await else { return };
        let job = &subject.job;
        let late_ns = now_ns() + job.plan.timeout_ns;
        let result = tokio::select! {
            biased;
            result = probe(job, subject.namespace.as_ref()) => result,
            () = self.timers.sleep_until(late_ns) => {
                let ms = job.plan.timeout_ns as f64 / 1e6;
                Err(Failed::new(Came::Timeout, format!("not done within {ms} ms")))
            }
        };
        subject.take_in(result, now_ns());
    }
}

/// Where the checks of a server go.
fn target(address: &Address, check: &CheckPlan) -> Address {
    match (&check.address, check.port, address) {
        (Some(other), ..) => other.clone(),
        (None, Some(port), Address::Tcp(address)) => {
            let mut address = *address;
            address.set_port(port);
            Address::Tcp(address)
        }
        _ => address.clone(),
    }
}

async fn check_always(checks: Rc<Checks>, subject: Rc<Subject>) {
    let plan = &subject.job.plan;
    let mut due_ns = now_ns() + Machine::first_wait_ns(plan, checks.chance());
    loop {
        checks.timers.sleep_until(due_ns).await;
        let start_ns = now_ns();
        // Who takes a server out of service for maintenance does not want it to be asked.
        if subject.standing.wanted() != Wanted::Maintenance {
            checks.check(&subject).await;
        }
        let wait_ns = subject.machine.get().wait_ns(plan, checks.chance());
        due_ns = start_ns + wait_ns;
    }
}

impl Subject {
    fn stop(&self) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
    }

    /// What an agent said holds no longer.
    fn forget_advice(&self) {
        self.standing.advise(Wanted::Ready, 100, now_ns());
        self.standing.set_last_check(None);
        let (pool, server) = &*self.place.borrow();
        pool.set_maxconn_by_agent(*server, None);
    }

    /// Makes what follows of a check that was made.
    fn take_in(&self, result: Result<Said, Failed>, now_ns: u64) {
        let (verdict, came, why) = match result {
            Ok(Said { up: Some(Err(words)), .. }) => {
                (Verdict::SaysDown, Came::Agent, format!("its agent says {words}"))
            }
            Ok(said) => {
                let verdict = if said.up.is_some() { Verdict::SaysUp } else { Verdict::Pass };
                self.follow_advice(&said, now_ns);
                (verdict, Came::Passed, String::new())
            }
            Err(failed) => (Verdict::Fail, failed.came, failed.text),
        };
        self.counts.borrow_mut()[came as usize] += 1;
        let reason = why.as_str().into();
        self.standing.set_last_check(Some(LastCheck {
            at_ns: now_ns,
            result: came.code(),
            reason,
        }));
        if came == Came::NotMade {
            // That was our own fault, and says nothing of the server.
            return;
        }
        let mut machine = self.machine.get();
        let change = machine.note(verdict, &self.job.plan);
        self.machine.set(machine);
        self.standing.found(machine.checked(), now_ns);
        let Some(change) = change else { return };
        let (up, down) = self.changes.get();
        let (pool, server) = (&self.pool, &self.server);
        let after = match change.after {
            1 => "1 check".to_owned(),
            after => format!("{after} checks in a row"),
        };
        if change.is_up {
            self.changes.set((up + 1, down));
            eprintln!("weir: pool {pool}: server {server} is up ({after})");
        } else {
            self.changes.set((up, down + 1));
            eprintln!("weir: pool {pool}: server {server} is down: {why} ({after})");
        }
    }

    fn follow_advice(&self, said: &Said, now_ns: u64) {
        let (wanted, percent) = self.advice.get();
        let fresh = (said.wanted.unwrap_or(wanted), said.percent.unwrap_or(percent).min(100));
        if fresh != (wanted, percent) {
            self.advice.set(fresh);
            self.standing.advise(fresh.0, fresh.1, now_ns);
            let state = match fresh.0 {
                Wanted::Ready => "ready",
                Wanted::Drain => "drain",
                Wanted::Maintenance => "maint",
            };
            let (pool, server, percent) = (&self.pool, &self.server, fresh.1);
            eprintln!("weir: pool {pool}: server {server}: its agent wants {state}, {percent}%");
        }
        if let Some(max) = said.maxconn {
            let (pool, server) = &*self.place.borrow();
            pool.set_maxconn_by_agent(*server, Some(max));
        }
    }

    fn add_to(&self, all: &mut Snapshot) {
        let (pool, server) = (&*self.pool, &*self.server);
        let last = self.standing.last_check();
        for (came, count) in Came::ALL.iter().zip(*self.counts.borrow()) {
            all.add_checks(pool, server, came.code(), count);
            let is_last = last.as_ref().is_some_and(|last| last.result == came.code());
            all.add_last_check(pool, server, came.code(), is_last);
        }
        let (up, down) = self.changes.get();
        all.add_changes(pool, server, up, down);
    }
}
