//! The link between the admin pages and the cores: a dedicated thread that serves the pages,
//! collects the cores' counters, and knows the plan in force. The pages themselves are in the parent.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use rt::clock::unix_ns;
use rt::drain::{DrainStage, DrainWatch};
use rt::listen::Listener;
use rt::process_stats::ProcessStats;
use rt::tokio::sync::{mpsc, oneshot, watch};

use super::{AdminDataSource, serve};
use crate::control::active_config::ActiveConfig;
use crate::health::{self, Health};
use crate::metrics::Snapshot;
use crate::plan::AdminAccess;
use crate::run::{CORE_THREAD, Command, CoreSenders};

/// Data source of the admin pages, which queries the cores.
pub(crate) struct AdminBackend {
    cores: CoreSenders,
    health_commands: mpsc::Sender<health::HealthCommand>,
    drain: DrainWatch,
    active_config: watch::Receiver<ActiveConfig>,
    /// True once another process has the listening socket of the pages.
    replaced: watch::Receiver<bool>,
    started_unix_ns: u64,
}

impl AdminBackend {
    pub(crate) fn new(
        cores: &CoreSenders,
        health: &Health,
        drain: DrainWatch,
        active_config: watch::Receiver<ActiveConfig>,
        replaced: watch::Receiver<bool>,
    ) -> Self {
        let (cores, health_commands) = (cores.clone(), health.commands());
        Self { cores, health_commands, drain, active_config, replaced, started_unix_ns: unix_ns() }
    }
}

impl AdminDataSource for AdminBackend {
    async fn snapshot(&self) -> Snapshot {
        let mut merged: Snapshot = self.cores.ask(Command::Snapshot).await.into_iter().collect();
        let (reply, response) = oneshot::channel();
        if self.health_commands.send(health::HealthCommand::Snapshot(reply)).await.is_ok()
            && let Ok(snapshot) = response.await
        {
            merged.merge(snapshot);
        }
        let (plan, results) = {
            let active = self.active_config.borrow();
            (Arc::clone(&active.plan), active.reload_results.clone())
        };
        crate::acme::add_metrics(&mut merged);
        merged.add_process(&ProcessStats::read(CORE_THREAD), self.started_unix_ns, plan.threads);
        merged.add_reloads(&results);
        for (listener, list) in plan.revocation_lists() {
            merged.add_revocation_list(listener, list);
        }
        for (name, store) in plan.stores() {
            merged.add_map(&name, &store.statistics());
        }
        for plan in &*plan.caches {
            plan.store.get().inspect(|store| merged.add_cache(&plan.name, &store.stats()));
        }
        merged.add_auth_sources(plan.auth_plans());
        merged
    }

    fn active_config(&self) -> Option<ActiveConfig> {
        Some(self.active_config.borrow().clone())
    }

    fn access(&self) -> AdminAccess {
        self.active_config.borrow().plan.admin_access.clone()
    }

    fn is_draining(&self) -> bool {
        self.drain.stage() != DrainStage::Running
    }

    async fn replaced(&self) {
        let mut replaced = self.replaced.clone();
        // If the sender is gone, the process ends anyway.
        if replaced.wait_for(|is_replaced| *is_replaced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Starts a thread that serves the admin pages and ends with the process. Returns once its runtime
/// is ready. The thread accepts connections only after the returned sender fires, because another
/// process may still have the socket.
pub(crate) fn start(listener: Listener, backend: AdminBackend) -> io::Result<oneshot::Sender<()>> {
    let (start_sender, start_receiver) = oneshot::channel();
    let (ready_sender, ready_receiver) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        let result = rt::cores::block_on(async move {
            // The starting thread waits for this message.
            let _ = ready_sender.send(());
            match start_receiver.await {
                Ok(()) => serve(listener, Rc::new(backend)).await,
                // The proxy does not start after all.
                Err(_) => Ok(()),
            }
        });
        if let Err(error) = result {
            eprintln!("weir: the admin pages have stopped: {error}");
        }
    })?;
    let started = ready_receiver.recv();
    started.map_err(|_| io::Error::other("cannot start the admin pages"))?;
    Ok(start_sender)
}
