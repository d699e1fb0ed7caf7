//! Server health, for the entire process in a dedicated thread: performs active checks, resolves
//! host names, reports changes. It writes its results to each server's
//! [`Eligibility`](crate::pool::Eligibility); the data path reads nothing else of it.
//!
//! A thread rather than a core, because a check of a server serves all cores, and because a core
//! must not wait for anything but requests. It is started before the cores, as no runtime can be
//! created later (docs/decisions/0003-descriptor-table-per-core.md).

mod agent;
mod checks;
mod notices;
mod probe;
mod probe_http2;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use rt::clock::{MILLISECOND_NS, MonotonicTime};
use rt::timers::Timers;
use rt::tokio::sync::{mpsc, oneshot, watch};
use rt::tokio::task::spawn_local;

use crate::dns::{DnsResolver, FIRST_LOOKUPS_TIMEOUT_NS, ResolvedServers, expand, has_named_servers};
use crate::metrics::Snapshot;
use crate::plan::Plan;
use crate::pool::CrossCoreState;
use checks::HealthChecks;
use notices::ServerNotices;
pub(crate) use notices::display_state;

/// Message to the health thread.
#[derive(Debug)]
pub(crate) enum HealthCommand {
    /// Resolve the names of this plan, and respond when each was tried.
    ResolveNames(Arc<Plan>, std_mpsc::Sender<()>),
    ApplyPlan(Arc<Plan>, Arc<CrossCoreState>),
    Snapshot(oneshot::Sender<Snapshot>),
}

const COMMANDS_MAX: usize = 16;
/// Poll interval for ejected and returned servers.
const NOTICE_POLL_NS: u64 = 200 * MILLISECOND_NS;

/// The control thread's handle.
#[derive(Debug)]
pub(crate) struct Health {
    commands: mpsc::Sender<HealthCommand>,
    resolved: watch::Receiver<ResolvedServers>,
}

impl Health {
    /// Starts the thread, which ends with the process. Must be called before the cores are started.
    ///
    /// # Errors
    /// The thread, its runtime or its timer could not be created.
    pub(crate) fn start() -> io::Result<Self> {
        let (commands, command_receiver) = mpsc::channel(COMMANDS_MAX);
        let (resolved_sender, resolved) = watch::channel(ResolvedServers::new());
        let (ready_sender, ready_receiver) = std_mpsc::channel();
        std::thread::Builder::new().name("health".to_owned()).spawn(move || {
            rt::cores::block_on(async move {
                let timers = match Timers::start() {
                    Ok(timers) => timers,
                    Err(error) => return drop(ready_sender.send(Err(error))),
                };
                // The starting thread waits for this message.
                let _ = ready_sender.send(Ok(()));
                run_commands(timers, command_receiver, resolved_sender).await;
            });
        })?;
        let start_error = |_| Err(io::Error::other("cannot start the health thread"));
        ready_receiver.recv().unwrap_or_else(start_error)?;
        Ok(Self { commands, resolved })
    }

    /// Returns `template` with the servers of its names that resolve within a short time.
    /// [`Health::has_changes`] reports later results.
    pub(crate) fn resolve(&mut self, template: &Arc<Plan>) -> Plan {
        if !has_named_servers(template) {
            return Plan::clone(template);
        }
        let (done_sender, done_receiver) = std_mpsc::channel();
        if self.commands.blocking_send(HealthCommand::ResolveNames(Arc::clone(template), done_sender)).is_ok()
        {
            // Names that take longer are added later.
            let _ = done_receiver.recv_timeout(Duration::from_nanos(FIRST_LOOKUPS_TIMEOUT_NS));
        }
        self.expand(template, None)
    }

    /// Returns `template` with the servers of its names, as currently known. Shares unchanged pools
    /// with `previous`.
    pub(crate) fn expand(&mut self, template: &Plan, previous: Option<&Plan>) -> Plan {
        expand(template, &self.resolved.borrow_and_update(), previous)
    }

    /// Returns whether a name's servers have changed since the last call of `expand`.
    pub(crate) fn has_changes(&self) -> bool {
        self.resolved.has_changed().unwrap_or(false)
    }

    /// Puts this plan into force.
    pub(crate) fn apply_plan(&self, plan: &Arc<Plan>, shared: &Arc<CrossCoreState>) {
        let command = HealthCommand::ApplyPlan(Arc::clone(plan), Arc::clone(shared));
        // A thread that has ended processes no messages.
        let _ = self.commands.blocking_send(command);
    }

    pub(crate) fn commands(&self) -> mpsc::Sender<HealthCommand> {
        self.commands.clone()
    }
}

async fn run_commands(
    timers: Timers,
    mut commands: mpsc::Receiver<HealthCommand>,
    resolved_sender: watch::Sender<ResolvedServers>,
) {
    let names = DnsResolver::new(timers.clone(), resolved_sender);
    let checks = HealthChecks::new(timers.clone());
    let mut notices = ServerNotices::default();
    let mut next_poll = MonotonicTime::now() + NOTICE_POLL_NS;
    loop {
        let command = rt::tokio::select! {
            biased;
            command = commands.recv() => command,
            () = timers.sleep_until(next_poll.as_ns()) => {
                let now = MonotonicTime::now();
                next_poll = now + NOTICE_POLL_NS;
                for notice in notices.poll(now) {
                    eprintln!("weir: {notice}");
                }
                continue;
            }
        };
        match command {
            // The process ends.
            None => return,
            Some(HealthCommand::ResolveNames(plan, done_sender)) => {
                let names = Rc::clone(&names);
                spawn_local(async move {
                    names.prepare(&plan).await;
                    // The caller may have stopped waiting.
                    let _ = done_sender.send(());
                });
            }
            Some(HealthCommand::ApplyPlan(plan, shared)) => {
                names.set_plan(&plan);
                checks.apply_plan(&plan, &shared);
                notices.apply_plan(&plan, &shared);
            }
            Some(HealthCommand::Snapshot(reply)) => {
                let mut snapshot = Snapshot::default();
                names.add_metrics(&mut snapshot);
                checks.add_metrics(&mut snapshot);
                notices.add_metrics(&mut snapshot, MonotonicTime::now());
                let _ = reply.send(snapshot);
            }
        }
    }
}
