//! The admin pages' way to the cores: a thread of its own that serves them, asks the cores for what
//! they have counted, and knows what is in force. What the pages are is in `admin`.

use std::io;
use std::rc::Rc;

use rt::clock::unix_ns;
use rt::drain::{DrainWatch, Stage};
use rt::listen::Listener;
use rt::process_stats::ProcessStats;
use rt::tokio::sync::{mpsc, oneshot, watch};

use crate::admin;
use crate::ctl::InForce;
use crate::health::{self, Health};
use crate::metrics::Snapshot;
use crate::plan::AdminAccess;
use crate::run::{CORE_THREAD, Message};

/// Asks the cores, for the admin pages.
pub(crate) struct Asker {
    messages: Vec<mpsc::Sender<Message>>,
    health: mpsc::Sender<health::Order>,
    drain: DrainWatch,
    in_force: watch::Receiver<InForce>,
    /// Whether another process has the pages' listening socket.
    left: watch::Receiver<bool>,
    started_unix_ns: u64,
}

impl Asker {
    pub(crate) fn new(
        messages: &[mpsc::Sender<Message>],
        health: &Health,
        drain: DrainWatch,
        in_force: watch::Receiver<InForce>,
        left: watch::Receiver<bool>,
    ) -> Self {
        let (messages, health) = (messages.to_vec(), health.orders());
        Self { messages, health, drain, in_force, left, started_unix_ns: unix_ns() }
    }
}

impl admin::Source for Asker {
    async fn snapshot(&self) -> Snapshot {
        let mut answers = Vec::with_capacity(self.messages.len());
        for messages in &self.messages {
            let (reply, answer) = oneshot::channel();
            // A core that has ended has nothing more to say.
            if messages.send(Message::Snapshot(reply)).await.is_ok() {
                answers.push(answer);
            }
        }
        let mut whole = Snapshot::default();
        for answer in answers {
            if let Ok(snapshot) = answer.await {
                whole.merge(snapshot);
            }
        }
        let (reply, answer) = oneshot::channel();
        if self.health.send(health::Order::Snapshot(reply)).await.is_ok()
            && let Ok(snapshot) = answer.await
        {
            whole.merge(snapshot);
        }
        let (threads, results) = {
            let force = self.in_force.borrow();
            (force.plan.threads, force.results.clone())
        };
        whole.add_process(&ProcessStats::read(CORE_THREAD), self.started_unix_ns, threads);
        whole.add_reloads(&results);
        whole
    }

    fn in_force(&self) -> Option<InForce> {
        Some(self.in_force.borrow().clone())
    }

    fn access(&self) -> AdminAccess {
        self.in_force.borrow().plan.admin_access.clone()
    }

    fn is_draining(&self) -> bool {
        self.drain.stage() != Stage::Running
    }

    async fn left(&self) {
        let mut left = self.left.clone();
        // When nobody can say it any more, the process ends anyway.
        if left.wait_for(|left| *left).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Serves the admin pages from a thread of its own, which ends with the process. Returns once its
/// runtime is there; it accepts once it is told to: another process may still have the socket.
pub(crate) fn start(listener: Listener, asker: Asker) -> io::Result<oneshot::Sender<()>> {
    let (begin, may_begin) = oneshot::channel();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        let served = rt::cores::block_on(async move {
            // Whoever started us waits for it.
            let _ = ready.send(());
            match may_begin.await {
                Ok(()) => admin::serve(listener, Rc::new(asker)).await,
                // The proxy does not start after all.
                Err(_) => Ok(()),
            }
        });
        if let Err(error) = served {
            eprintln!("weir: the admin pages are gone: {error}");
        }
    })?;
    let started = is_ready.recv();
    started.map_err(|_| io::Error::other("the admin pages could not be started"))?;
    Ok(begin)
}
