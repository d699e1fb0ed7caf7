//! What commands are done with: the cores are asked by message, and whoever holds the proxy is given
//! orders. Everything is waited for, and for no longer than it may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use rt::clock::{SECOND_NS, now_ns};
use rt::drain::{DrainWatch, Stage};
use rt::tokio::sync::mpsc::error::TrySendError;
use rt::tokio::sync::oneshot::error::TryRecvError;
use rt::tokio::sync::{mpsc, oneshot};

use super::Refusal;
use crate::control::Running;
use crate::doors::Opened;
use crate::handover::Demand;
use crate::metrics::Snapshot;
use crate::plan::Plan;
use crate::pool::Shared;
use crate::profile::{Switch, Totals};
use crate::run::Message;
use crate::session::{Found, Query};

/// Where the one who gave an order hears what came of it: what to say, or why it was not done.
pub type Answer = SyncSender<Result<String, String>>;

/// What came over the control socket and is for whoever holds the [`Running`].
#[derive(Debug)]
pub enum Order {
    /// Read the config again and apply it.
    Reload(Answer),
    /// Open the logs' files anew.
    Reopen(Answer),
    /// Start to drain, as SIGTERM does.
    Drain,
    /// Pass it to [`Running::run_errand`].
    Errand(Errand),
    /// A new process asks for the listening sockets, or has them.
    Upgrade(Demand),
}

/// Something to be done with a [`Running`], by who holds it.
pub struct Errand(Box<dyn FnOnce(&Running) + Send>);

impl std::fmt::Debug for Errand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Errand").finish_non_exhaustive()
    }
}

impl Errand {
    pub(crate) fn run(self, running: &Running) {
        (self.0)(running);
    }
}

/// What is in force.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    pub(crate) plan: Arc<Plan>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) opened: Vec<Opened>,
    pub(crate) reloads: u64,
    pub(crate) results: ReloadResults,
}

/// The results of the reloads that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReloadResults {
    pub(crate) applied: u64,
    pub(crate) refused: u64,
    /// When, in nanoseconds since 1970; 0: never.
    pub(crate) applied_unix_ns: u64,
    pub(crate) refused_unix_ns: u64,
    /// Why the last one was refused; `None`: it was not.
    pub(crate) refusal: Option<Arc<str>>,
}

impl ReloadResults {
    /// Notes the result of a reload, at a time since 1970.
    pub(crate) fn note(&mut self, refusal: Option<&str>, unix_ns: u64) {
        self.refusal = refusal.map(Arc::from);
        let (count, at_ns) = match refusal {
            None => (&mut self.applied, &mut self.applied_unix_ns),
            Some(_) => (&mut self.refused, &mut self.refused_unix_ns),
        };
        *count += 1;
        *at_ns = unix_ns;
    }

    /// The last result, for people.
    pub(crate) fn shown(&self) -> String {
        match &self.refusal {
            // Its first line says where.
            Some(why) => format!("refused: {}", why.lines().next().unwrap_or_default()),
            None if self.applied > 0 => "applied".to_owned(),
            None => "none".to_owned(),
        }
    }
}

impl InForce {
    pub(crate) fn new(
        plan: &Arc<Plan>,
        shared: &Arc<Shared>,
        opened: Vec<Opened>,
        reloads: u64,
    ) -> Self {
        let results = ReloadResults::default();
        Self { plan: Arc::clone(plan), shared: Arc::clone(shared), opened, reloads, results }
    }
}

/// What commands are done with.
pub(crate) struct Desk {
    pub(crate) messages: Vec<mpsc::Sender<Message>>,
    pub(crate) drain: DrainWatch,
    pub(crate) started_ns: u64,
    /// Gives an order to whoever holds the proxy; `false`: nobody does any more.
    pub(crate) give: Box<dyn Fn(Order) -> bool + Send + Sync>,
    /// The sockets go to one process at a time.
    pub(crate) passing_on: OneAtATime,
}

/// Something that only one may do at a time.
#[derive(Debug, Default)]
pub(crate) struct OneAtATime(AtomicBool);

/// Given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a AtomicBool);

impl OneAtATime {
    /// `None`: somebody else is at it.
    pub(crate) fn enter(&self) -> Option<Turn<'_>> {
        let taken = self.0.swap(true, Ordering::SeqCst);
        // A turn that is made is given back, so it is not made in vain.
        (!taken).then(|| Turn(&self.0))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

/// How long all cores together may take for an answer.
const CORES_NS: u64 = 5 * SECOND_NS;
/// How long whoever holds the proxy may take: a reload opens files and asks name servers.
const HOLDER: Duration = Duration::from_secs(60);
/// How often it is looked whether a core has answered.
const LOOK: Duration = Duration::from_micros(200);

impl Desk {
    /// Asks every core, at the same time; the answers of those that have not ended.
    fn ask<T>(&self, make: impl Fn(oneshot::Sender<T>) -> Message) -> Result<Vec<T>, Refusal> {
        let end_ns = now_ns() + CORES_NS;
        let late = || Refusal::Cannot("be answered: the cores did not answer in time".to_owned());
        let mut waiting = Vec::with_capacity(self.messages.len());
        for messages in &self.messages {
            let (reply, answer) = oneshot::channel();
            let mut message = make(reply);
            loop {
                match messages.try_send(message) {
                    Ok(()) => break waiting.push(answer),
                    Err(TrySendError::Closed(_)) => break,
                    Err(TrySendError::Full(_)) if now_ns() > end_ns => return Err(late()),
                    Err(TrySendError::Full(back)) => message = back,
                }
                std::thread::sleep(LOOK);
            }
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for mut answer in waiting {
            loop {
                match answer.try_recv() {
                    Ok(answer) => break answers.push(answer),
                    Err(TryRecvError::Closed) => break,
                    Err(TryRecvError::Empty) if now_ns() > end_ns => return Err(late()),
                    Err(TryRecvError::Empty) => std::thread::sleep(LOOK),
                }
            }
        }
        Ok(answers)
    }

    /// What all cores have counted.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Refusal> {
        let mut whole = Snapshot::default();
        for snapshot in self.ask(Message::Snapshot)? {
            whole.merge(snapshot);
        }
        Ok(whole)
    }

    /// Has all cores follow what was set of servers; returns once they do.
    pub(crate) fn follow_servers(&self) -> Result<(), Refusal> {
        self.ask(Message::Servers).map(drop)
    }

    /// Connections of all cores.
    pub(crate) fn sessions(&self, query: &Query) -> Result<Found, Refusal> {
        let mut all = Found::default();
        for mut found in self.ask(|reply| Message::Sessions(query.clone(), reply))? {
            all.matched += found.matched;
            all.sessions.append(&mut found.sessions);
        }
        all.sessions.sort_by_key(|session| session.id);
        Ok(all)
    }

    /// The profile of all cores.
    pub(crate) fn profile(&self, switch: Switch) -> Result<Totals, Refusal> {
        let mut all = Totals::default();
        for totals in self.ask(|reply| Message::Profile(switch, reply))? {
            all.add(&totals);
        }
        Ok(all)
    }

    /// Gives an order, and waits for what comes of it.
    pub(crate) fn order(&self, make: impl FnOnce(Answer) -> Order) -> Result<String, Refusal> {
        let (reply, answer) = sync_channel(1);
        self.give(make(reply))?;
        wait(&answer)?.map_err(Refusal::Wrong)
    }

    /// Has something done that only whoever holds the proxy can do; between two reloads, and so with
    /// what is in force.
    pub(crate) fn errand<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Running) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reply, answer) = sync_channel(1);
        // Who asked may have given up.
        let work = move |running: &Running| drop(reply.try_send(work(running)));
        self.give(Order::Errand(Errand(Box::new(work))))?;
        wait(&answer)
    }

    /// What is in force.
    pub(crate) fn in_force(&self) -> Result<InForce, Refusal> {
        self.errand(Running::in_force)
    }

    /// Gives an order that nobody waits for.
    pub(crate) fn give(&self, order: Order) -> Result<(), Refusal> {
        match (self.give)(order) {
            true => Ok(()),
            false => Err(over()),
        }
    }

    /// Whether the proxy finishes what it has and takes on no more.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.stage() != Stage::Running
    }
}

fn wait<T>(answer: &Receiver<T>) -> Result<T, Refusal> {
    answer.recv_timeout(HOLDER).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            Refusal::Cannot("be answered: the proxy is still at it; see its stderr".to_owned())
        }
        RecvTimeoutError::Disconnected => over(),
    })
}

fn over() -> Refusal {
    Refusal::Cannot("be done: the proxy has just ended".to_owned())
}
