//! Active health checks: a task for each checked server, one check at a time. Reloads keep the
//! tasks of unchanged servers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rt::address::Address;
use rt::clock::MonotonicTime;
use rt::namespace::Namespace;
use rt::timers::Timers;
use rt::tokio;
use rt::tokio::sync::Semaphore;
use rt::tokio::task::{AbortHandle, spawn_local};

use super::agent::AgentReport;
use super::probe::{CheckFailure, CheckResult, CheckSpec, run_check};
use crate::dial::SourceAddresses;
use crate::metrics::Snapshot;
use crate::plan::{CheckKind, CheckPlan, Plan, PoolPlan, ServerId, ServerPlan};
use crate::pool::{AdminState, CheckStatus, CrossCoreState, Eligibility, LastCheck, SharedPool};
use proxy::check_state_machine::{CheckOutcome, CheckStateMachine};

/// Maximum number of concurrent checks; further ones wait.
const CONCURRENT_CHECKS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct HealthChecks {
    timers: Timers,
    rng: RefCell<fastrand::Rng>,
    permits: Semaphore,
    checked_servers: RefCell<Vec<Rc<CheckedServer>>>,
    /// Counters of servers that are not checked any more.
    past_counters: RefCell<Snapshot>,
}

#[derive(Debug)]
struct CheckedServer {
    pool: Box<str>,
    server: Box<str>,
    address: Address,
    spec: CheckSpec,
    namespace: Option<Namespace>,
    sources: Arc<SourceAddresses>,
    /// Its pool, and its index there, in the plan in force.
    pool_and_server: RefCell<(Arc<SharedPool>, ServerId)>,
    eligibility: Arc<Eligibility>,
    state_machine: Cell<CheckStateMachine>,
    /// Last report of its agent: the requested state and the percentage of the weight.
    agent_state: Cell<(AdminState, u32)>,
    result_counts: RefCell<[u64; CheckResult::ALL.len()]>,
    transitions: Cell<(u64, u64)>,
    task: RefCell<Option<AbortHandle>>,
}

impl HealthChecks {
    pub(super) fn new(timers: Timers) -> Rc<Self> {
        Rc::new(Self {
            timers,
            rng: RefCell::new(fastrand::Rng::new()),
            permits: Semaphore::new(CONCURRENT_CHECKS_MAX),
            checked_servers: RefCell::default(),
            past_counters: RefCell::default(),
        })
    }

    /// Starts the checks that `plan` has, and stops all others.
    pub(super) fn apply_plan(self: &Rc<Self>, plan: &Plan, shared: &CrossCoreState) {
        let mut old = std::mem::take(&mut *self.checked_servers.borrow_mut());
        let mut checked_servers = Vec::new();
        for (pool, shared) in plan.pools.iter().zip(&shared.pools) {
            let Some(check) = &pool.check else { continue };
            for (id, server) in pool.servers.enumerate() {
                let existing = old.iter().position(|old| {
                    old.pool == pool.name && old.server == server.name && old.address == server.address
                });
                let previous = existing.map(|at| old.swap_remove(at));
                let pool_and_server = (Arc::clone(shared), id);
                checked_servers.push(self.continue_or_start(pool, server, check, pool_and_server, previous));
            }
        }
        for removed in &old {
            removed.stop();
            // The old check result is not valid any more, if the server still exists.
            removed.eligibility.set_check_status(CheckStatus::Unchecked, MonotonicTime::now());
            removed.clear_agent_state();
            let mut counters = Snapshot::default();
            removed.add_metrics(&mut counters);
            counters.carry_over(&self.past_counters.borrow());
            *self.past_counters.borrow_mut() = counters;
        }
        *self.checked_servers.borrow_mut() = checked_servers;
    }

    /// Returns the existing server, or a new one that continues from its state.
    fn continue_or_start(
        self: &Rc<Self>,
        pool: &PoolPlan,
        server: &ServerPlan,
        check: &CheckPlan,
        pool_and_server: (Arc<SharedPool>, ServerId),
        previous: Option<Rc<CheckedServer>>,
    ) -> Rc<CheckedServer> {
        let tls = pool.tls.as_ref().filter(|_| check.uses_tls);
        let spec = CheckSpec {
            target: check_target(&server.address, check),
            plan: check.clone(),
            proxy_protocol: pool.send_proxy_protocol,
            tls: tls.map(|tls| (tls.with_http(check.http), tls.name_of(server).into_owned())),
        };
        let namespace = pool_and_server.0.namespace();
        let sources = pool_and_server.0.sources();
        let namespace_name =
            |namespace: &Option<Namespace>| namespace.as_ref().map(|namespace| namespace.name().to_owned());
        let eligibility = pool_and_server.0.eligibility_handle(pool_and_server.1);
        if let Some(previous) = &previous
            && previous.spec == spec
            && namespace_name(&previous.namespace) == namespace_name(&namespace)
            && Arc::ptr_eq(&previous.sources, &sources)
            && Arc::ptr_eq(&previous.eligibility, &eligibility)
        {
            *previous.pool_and_server.borrow_mut() = pool_and_server;
            return Rc::clone(previous);
        }
        let checked_server = Rc::new(CheckedServer {
            pool: pool.name.clone(),
            server: server.name.clone(),
            address: server.address.clone(),
            spec,
            namespace,
            sources,
            pool_and_server: RefCell::new(pool_and_server),
            eligibility,
            state_machine: Cell::new(
                previous.as_ref().map_or_else(CheckStateMachine::default, |old| old.state_machine.get()),
            ),
            agent_state: Cell::new((AdminState::Ready, 100)),
            result_counts: RefCell::new(
                previous.as_ref().map(|old| *old.result_counts.borrow()).unwrap_or_default(),
            ),
            transitions: Cell::new(previous.as_ref().map(|old| old.transitions.get()).unwrap_or_default()),
            task: RefCell::default(),
        });
        if let Some(previous) = previous {
            previous.stop();
            if !matches!(check.kind, CheckKind::Agent { .. }) {
                checked_server.clear_agent_state();
            }
        }
        let task = spawn_local(run_checks(Rc::clone(self), Rc::clone(&checked_server)));
        *checked_server.task.borrow_mut() = Some(task.abort_handle());
        checked_server
    }

    pub(super) fn add_metrics(&self, snapshot: &mut Snapshot) {
        for checked_server in &*self.checked_servers.borrow() {
            checked_server.add_metrics(snapshot);
        }
        snapshot.carry_over(&self.past_counters.borrow());
    }

    fn random_fraction(&self) -> f64 {
        self.rng.borrow_mut().f64()
    }

    async fn check(&self, checked_server: &CheckedServer) {
        let Ok(_permit) = self.permits.acquire().await else { return };
        let spec = &checked_server.spec;
        let deadline = MonotonicTime::now() + spec.plan.timeout_ns;
        let result = tokio::select! {
            biased;
            result = run_check(spec, &checked_server.sources, checked_server.namespace.as_ref()) => result,
            () = self.timers.sleep_until(deadline.as_ns()) => {
                let ms = spec.plan.timeout_ns as f64 / 1e6;
                Err(CheckFailure::new(CheckResult::Timeout, format!("no result within {ms} ms")))
            }
        };
        checked_server.handle_result(result, MonotonicTime::now());
    }
}

fn check_target(address: &Address, check: &CheckPlan) -> Address {
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

async fn run_checks(checks: Rc<HealthChecks>, checked_server: Rc<CheckedServer>) {
    let plan = &checked_server.spec.plan;
    let mut due = MonotonicTime::now() + CheckStateMachine::first_wait_ns(plan, checks.random_fraction());
    loop {
        checks.timers.sleep_until(due.as_ns()).await;
        let start = MonotonicTime::now();
        // A server in maintenance is not checked.
        if checked_server.eligibility.operator_state() != AdminState::Maintenance {
            checks.check(&checked_server).await;
        }
        let wait_ns = checked_server.state_machine.get().wait_ns(plan, checks.random_fraction());
        due = start + wait_ns;
    }
}

impl CheckedServer {
    fn stop(&self) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
    }

    /// Resets everything that an agent has set.
    fn clear_agent_state(&self) {
        self.eligibility.set_agent_state(AdminState::Ready, 100, MonotonicTime::now());
        self.eligibility.set_last_check(None);
        let (pool, server) = &*self.pool_and_server.borrow();
        pool.set_agent_maxconn(*server, None);
    }

    fn handle_result(&self, result: Result<AgentReport, CheckFailure>, now: MonotonicTime) {
        let (verdict, result_code, reason) = match result {
            Ok(AgentReport { health: Some(Err(agent_reason)), .. }) => (
                CheckOutcome::AgentDown,
                CheckResult::Agent,
                format!("reported by its agent: {agent_reason}"),
            ),
            Ok(report) => {
                let verdict =
                    if report.health.is_some() { CheckOutcome::AgentUp } else { CheckOutcome::Pass };
                self.apply_agent_report(&report, now);
                (verdict, CheckResult::Passed, String::new())
            }
            Err(failure) => (CheckOutcome::Fail, failure.result, failure.message),
        };
        self.result_counts.borrow_mut()[result_code as usize] += 1;
        let boxed_reason = reason.as_str().into();
        self.eligibility.set_last_check(Some(LastCheck {
            at: now,
            result: result_code.code(),
            reason: boxed_reason,
        }));
        if result_code == CheckResult::Skipped {
            // A failure on the proxy's own side; it has no meaning for the server.
            return;
        }
        let mut state_machine = self.state_machine.get();
        let change = state_machine.record(verdict, &self.spec.plan);
        self.state_machine.set(state_machine);
        self.eligibility.set_check_status(state_machine.check_status(), now);
        let Some(transition) = change else { return };
        let (up, down) = self.transitions.get();
        let (pool, server) = (&self.pool, &self.server);
        let check_count_text = match transition.check_count {
            1 => "1 check".to_owned(),
            check_count => format!("{check_count} consecutive checks"),
        };
        if transition.is_up {
            self.transitions.set((up + 1, down));
            eprintln!("weir: pool {pool}: server {server} is up ({check_count_text})");
        } else {
            self.transitions.set((up, down + 1));
            eprintln!("weir: pool {pool}: server {server} is down: {reason} ({check_count_text})");
        }
    }

    fn apply_agent_report(&self, report: &AgentReport, now: MonotonicTime) {
        let (admin_state, percent) = self.agent_state.get();
        let new_state =
            (report.admin_state.unwrap_or(admin_state), report.weight_percent.unwrap_or(percent).min(100));
        if new_state != (admin_state, percent) {
            self.agent_state.set(new_state);
            self.eligibility.set_agent_state(new_state.0, new_state.1, now);
            let state = match new_state.0 {
                AdminState::Ready => "ready",
                AdminState::Drain => "drain",
                AdminState::Maintenance => "maint",
            };
            let (pool, server, percent) = (&self.pool, &self.server, new_state.1);
            eprintln!("weir: pool {pool}: server {server}: its agent sets {state}, {percent}%");
        }
        if let Some(max) = report.maxconn {
            let (pool, server) = &*self.pool_and_server.borrow();
            pool.set_agent_maxconn(*server, Some(max));
        }
    }

    fn add_metrics(&self, snapshot: &mut Snapshot) {
        let (pool, server) = (&*self.pool, &*self.server);
        let last = self.eligibility.last_check();
        for (result_code, count) in CheckResult::ALL.iter().zip(*self.result_counts.borrow()) {
            snapshot.add_checks(pool, server, result_code.code(), count);
            let is_last = last.as_ref().is_some_and(|last| last.result == result_code.code());
            snapshot.add_last_check(pool, server, result_code.code(), is_last);
        }
        let (up, down) = self.transitions.get();
        snapshot.add_check_changes(pool, server, up, down);
    }
}
