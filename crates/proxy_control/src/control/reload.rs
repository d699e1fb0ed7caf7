//! Changes of the running proxy: a new plan, or other servers of the same plan. Everything that can fail
//! comes first and is undone if it does; then the cores are asked, and at last the state is published.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rt::clock::{MonotonicTime, unix_ns};

use super::active_config::ActiveConfig;
use super::ctl::{CommandError, KeptChange, set_pool_state};
use super::listeners::ListenAddresses;
use super::owner::{MaintenanceChange, OwnerError};
use super::runtime_servers::{ServerSetChange, ServerSetError};
use super::sandbox::explain_denied_access;
use super::{
    LOG_TIMEOUT, Log, PORTS_HELD_NS, RunningProxy, Traces, apply_command, start_auth_threads, state_file,
};
use crate::acme::acme_plans;
use crate::auth::password_threads;
use crate::caching::open_caches;
use crate::log;
use crate::maintenance::MaintenancePage;
use crate::plan::Plan;
use crate::pool::{AdminState, CrossCoreState};
use crate::private_file::replace;
use crate::run::Command;
use crate::tracing;

/// Reason why a line of the state file has no effect.
#[derive(Debug, thiserror::Error)]
enum KeptLineError {
    #[error("'{0}' is not a change")]
    NoChange(Box<str>),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Owner(#[from] OwnerError),
}

/// System resources for a plan.
struct PreparedReload {
    /// `None`: the plan keeps the logs of the previous one.
    log: Option<Log>,
    traces: Traces,
    shared: Arc<CrossCoreState>,
    /// Error of reopening the kept logs.
    reopen_error: Option<io::Error>,
}

/// Delay before a bind to a port in use is retried.
const PORT_RETRY_DELAY: Duration = Duration::from_millis(20);

impl RunningProxy {
    /// Records a config that was refused before it reached the proxy.
    pub fn record_refused_reload(&self, reason: &str) {
        self.active_config.send_modify(|active| active.reload_results.record(Some(reason), unix_ns()));
    }

    /// Puts a new plan into force: new requests follow it, those in flight end under the old one.
    /// Returns once all cores follow it, with the error of logs that could not be reopened.
    ///
    /// # Errors
    /// A new address, log or namespace was not available, or the plan changes a key that requires a
    /// restart. The old plan then stays in force unchanged.
    pub fn reload(&mut self, plan: Plan) -> io::Result<Option<io::Error>> {
        let restart_keys = self.restart_keys(&plan);
        if !restart_keys.is_empty() {
            let text = format!(
                "these keys cannot change while the proxy runs: {}; restore them, or restart the proxy \
                 (weir proxy --upgrade-from restarts it without downtime)",
                restart_keys.join(", ")
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // A process that starts uses a self-signed certificate then; this one has a better one.
        if let Some(fault) = plan.stored_fault() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, fault.to_string()));
        }
        start_auth_threads(&plan)?;
        open_caches(&plan).map_err(|error| explain_denied_access(error, &self.sandbox))?;
        let template = Arc::new(Plan { threads: self.plan.threads, ..plan.with_tls_sessions_of(&self.plan) });
        self.runtime_servers.follow(&template);
        let plan = self.runtime_servers.apply(self.health.resolve(&template), None);
        let reopen_error = self.apply(plan).map_err(|error| explain_denied_access(error, &self.sandbox))?;
        self.template = template;
        self.follow_certificates();
        self.active_config.send_modify(|active| active.reload_results.record(None, unix_ns()));
        Ok(reopen_error.map(|error| explain_denied_access(error, &self.sandbox)))
    }

    /// Applies DNS changes of server names: swaps the servers of the affected pools and changes
    /// nothing else. Must be called periodically.
    pub fn apply_dns_changes(&mut self) {
        if self.health.has_changes() && !self.is_draining() {
            self.swap_servers();
        }
    }

    /// Adds a server to a pool, or removes one.
    ///
    /// # Errors
    /// The proxy stops, or the change does not fit to the servers in force.
    pub fn change_servers(&mut self, change: ServerSetChange) -> Result<(), OwnerError> {
        if self.is_draining() {
            return Err(OwnerError::Servers(ServerSetError::Stopping));
        }
        self.runtime_servers.change(change, &self.plan).map_err(OwnerError::Servers)?;
        self.swap_servers();
        Ok(())
    }

    /// Puts all pools into maintenance, with the page of an operator if there is one, or ends it and forgets the
    /// page. Returns the number of pools.
    pub fn set_maintenance(&mut self, change: MaintenanceChange) -> usize {
        let state = match &change {
            MaintenanceChange::On(_) => AdminState::Maintenance,
            MaintenanceChange::Off => AdminState::Ready,
        };
        let page = match change {
            MaintenanceChange::On(page) => page.map(Arc::new),
            MaintenanceChange::Off => None,
        };
        // No request of a pool in maintenance gets another page.
        if state == AdminState::Maintenance {
            self.set_maintenance_page(page);
            self.set_pool_states(state);
        } else {
            self.set_pool_states(state);
            self.set_maintenance_page(page);
        }
        self.plan.pools.len()
    }

    fn set_pool_states(&self, state: AdminState) {
        let active = self.active_config.borrow().clone();
        active.plan.pools.ids().for_each(|pool| set_pool_state(&active, pool, state));
        self.ask_cores(Command::RefreshServers);
    }

    fn set_maintenance_page(&self, page: Option<Arc<MaintenancePage>>) {
        if self.active_config.borrow().maintenance_page == page {
            return;
        }
        self.ask_cores(|done_sender| Command::SetMaintenancePage(page.clone(), done_sender));
        self.active_config.send_modify(|active| active.maintenance_page = page);
    }

    /// Writes the state file, if the config has one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save_state(&self) -> io::Result<()> {
        let Some(path) = &self.plan.state_file else { return Ok(()) };
        let content = state_file::content(&self.active_config.borrow(), &self.runtime_servers);
        replace(path, content.as_bytes()).map_err(|error| explain_denied_access(error, &self.sandbox))
    }

    /// Makes the changes of the state file again. What does not fit to the config is reported on stderr.
    pub(super) fn restore_state(&mut self) {
        let Some(path) = self.plan.state_file.clone() else { return };
        let warn = |text: &str| eprintln!("weir: warning: {}{text}", path.display());
        let text = match state_file::read(&path) {
            Ok(text) => text.unwrap_or_default(),
            Err(error) => return warn(&format!(": {error}; its changes are not applied")),
        };
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            if let Err(error) = self.repeat_change(&words) {
                warn(&format!(":{}: {error}; not applied", index + 1));
            }
        }
        self.ask_cores(Command::RefreshServers);
        if let Err(error) = self.save_state() {
            warn(&format!(": {error}; changes by weir ctl end with this process"));
        }
    }

    /// Makes a change of the state file again.
    fn repeat_change(&mut self, words: &[&str]) -> Result<(), KeptLineError> {
        match KeptChange::parse(words)? {
            None => return Err(KeptLineError::NoChange(words.join(" ").into())),
            Some(KeptChange::Servers(change)) => self.change_servers(change)?,
            Some(KeptChange::MaintenancePage(page)) => self.set_maintenance_page(Some(Arc::new(page))),
            Some(change) => change.apply(&self.active_config.borrow())?,
        }
        Ok(())
    }

    /// Makes all cores follow the servers of names and those that an operator changed.
    fn swap_servers(&mut self) {
        let expanded = self.health.expand(&self.template, Some(&self.plan));
        let plan = self.runtime_servers.apply(expanded, Some(&self.plan));
        let mut pools = plan.pools.iter().zip(&self.plan.pools);
        if pools.all(|(current, previous)| Arc::ptr_eq(current, previous)) {
            return;
        }
        let plan = Arc::new(plan);
        let shared = Arc::new(self.shared.with_servers_of(&plan, &self.plan));
        self.ask_cores(|done_sender| {
            Command::SwapServers(Arc::clone(&plan), Arc::clone(&shared), done_sender)
        });
        (self.plan, self.shared) = (plan, shared);
        self.health.apply_plan(&self.plan, &self.shared);
        self.active_config.send_modify(|active| {
            active.plan = Arc::clone(&self.plan);
            active.shared = Arc::clone(&self.shared);
        });
    }

    /// Puts a plan into force. Returns the error of logs that could not be reopened.
    fn apply(&mut self, plan: Plan) -> io::Result<Option<io::Error>> {
        let plan = Arc::new(plan);
        let checkpoint = self.listeners.checkpoint();
        let prepared = self.prepare(&plan);
        let PreparedReload { log, traces, shared, reopen_error } =
            prepared.inspect_err(|_| self.listeners.roll_back_to(checkpoint))?;
        if self.listeners.apply_plan(&plan) {
            self.ports_held_until = MonotonicTime::now() + PORTS_HELD_NS;
        }
        let sender = log.as_ref().map_or(&self.log.0, |(sender, _)| sender).clone();
        self.ask_cores(|done_sender| {
            Command::Apply(
                Box::new(apply_command(&plan, &shared, (&sender, &traces.0), &self.listeners)),
                done_sender,
            )
        });
        // Only now do the cores know the new listeners.
        self.listeners.send_to_cores(&self.balancer)?;
        (self.plan, self.shared) = (plan, shared);
        self.health.apply_plan(&self.plan, &self.shared);
        self.reloads += 1;
        let opened = self.listen_addresses();
        let new_config = ActiveConfig::new(&self.plan, &self.shared, opened, self.reloads);
        self.active_config.send_modify(|active| {
            let reload_results = std::mem::take(&mut active.reload_results);
            let maintenance_page = active.maintenance_page.take();
            *active = ActiveConfig { reload_results, maintenance_page, ..new_config };
        });
        // The thread of the previous exporter ends with its last spans.
        self.traces = traces;
        if let Some(log) = log {
            let (sender, writer) = std::mem::replace(&mut self.log, log);
            drop(sender);
            writer.finish(LOG_TIMEOUT);
        }
        Ok(reopen_error)
    }

    /// Acquires a plan's system resources, before anything of the old plan is changed.
    fn prepare(&mut self, plan: &Plan) -> io::Result<PreparedReload> {
        while let Err(error) = self.listeners.open(plan, plan.threads, None) {
            if error.kind() != io::ErrorKind::AddrInUse || MonotonicTime::now() >= self.ports_held_until {
                return Err(error);
            }
            std::thread::sleep(PORT_RETRY_DELAY);
        }
        let log = match plan.logs == self.plan.logs {
            true => None,
            false => Some(log::start(&plan.logs, plan.threads)?),
        };
        let traces = tracing::start(plan.tracing.as_ref(), Arc::clone(self.traces.0.counts()))?;
        let shared = CrossCoreState::new(plan, &self.wakeups, Some((&self.plan, &self.shared)))?;
        let reopen_error = log.as_ref().map_or_else(|| self.log.1.reopen().err(), |_| None);
        ListenAddresses::set_socket_file_access(plan, &self.plan)?;
        Ok(PreparedReload { log, traces, shared: Arc::new(shared), reopen_error })
    }

    /// Returns the changed keys that are only read when the process starts.
    fn restart_keys(&self, plan: &Plan) -> Vec<&'static str> {
        let old = &self.plan;
        let is_pool_running = password_threads::are_running();
        let (passwords, old_passwords) = (plan.password_threads, old.password_threads);
        [
            ("threads", plan.is_threads_set && plan.threads != old.threads),
            ("pin", plan.pin != old.pin),
            ("connections-max", plan.connections_max != old.connections_max),
            ("admin", plan.admin != old.admin),
            ("control", plan.control != old.control),
            ("privileges", plan.privileges != old.privileges),
            ("password-threads", is_pool_running && passwords.threads != old_passwords.threads),
            ("password-queue", is_pool_running && passwords.queue_max != old_passwords.queue_max),
            // Its thread can only be started before the cores.
            ("acme", self.acme.is_none() && !acme_plans(plan).is_empty()),
        ]
        .into_iter()
        .filter_map(|(name, changed)| changed.then_some(name))
        .collect()
    }
}
