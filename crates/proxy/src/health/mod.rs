//! The health of servers, for the whole process in one thread of its own: makes active checks, looks
//! up names, says what has changed. It writes what it finds to each server's
//! [`Standing`](crate::pool::Standing), which is all that the data path reads of it.
//!
//! A thread rather than a core, because one check of a server is made for all cores, and because a
//! core must not wait for anything that is not a request's. It is started before them: later no
//! runtime can be made (ARCHITECTURE.md).

mod agent;
mod checks;
mod machine;
mod notices;
mod probe;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc as wait;
use std::time::Duration;

use rt::clock::{MILLISECOND_NS, now_ns};
use rt::timers::Timers;
use rt::tokio::sync::{mpsc, oneshot, watch};
use rt::tokio::task::spawn_local;

use crate::metrics::Snapshot;
use crate::names::{Known, Names, PATIENCE_NS, expand, has_names};
use crate::plan::Plan;
use crate::pool::Shared;
use checks::Checks;
#[cfg(test)]
pub(crate) use machine::{Machine, Verdict};
use notices::Notices;
pub(crate) use notices::shown_state;

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Look up the names of this plan, and answer when each was tried.
    Prepare(Arc<Plan>, wait::Sender<()>),
    /// This plan is in force.
    Follow(Arc<Plan>, Arc<Shared>),
    /// Say what you have counted.
    Snapshot(oneshot::Sender<Snapshot>),
}

/// Orders that may wait.
const ORDERS_MAX: usize = 16;
/// How often it is looked whether a server was ejected or is back.
const LOOK_NS: u64 = 200 * MILLISECOND_NS;

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct Health {
    orders: mpsc::Sender<Order>,
    known: watch::Receiver<Known>,
}

impl Health {
    /// Starts the thread, which ends with the process. To be called before cores are started.
    ///
    /// # Errors
    /// The thread, its runtime or its timer could not be had.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        let (tell, known) = watch::channel(Known::new());
        let (ready, is_ready) = wait::channel();
        std::thread::Builder::new().name("health".to_owned()).spawn(move || {
            rt::cores::block_on(async move {
                let timers = match Timers::start() {
                    Ok(timers) => timers,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                // Whoever started us waits for it.
                let _ = ready.send(Ok(()));
                run(timers, taken, tell).await;
            });
        })?;
        let gone = |_| Err(io::Error::other("the thread for checks could not be started"));
        is_ready.recv().unwrap_or_else(gone)?;
        Ok(Self { orders, known })
    }

    /// `template` with the servers of its names, as far as they can be had in a short time. What
    /// comes later is told by [`Health::has_news`].
    pub(crate) fn resolve(&mut self, template: &Arc<Plan>) -> Plan {
        if !has_names(template) {
            return Plan::clone(template);
        }
        let (done, is_done) = wait::channel();
        if self.orders.blocking_send(Order::Prepare(Arc::clone(template), done)).is_ok() {
            // Those that take longer come later.
            let _ = is_done.recv_timeout(Duration::from_nanos(PATIENCE_NS));
        }
        self.expand(template)
    }

    /// `template` with the servers of its names, as they are known by now.
    pub(crate) fn expand(&mut self, template: &Plan) -> Plan {
        expand(template, &self.known.borrow_and_update())
    }

    /// Whether a name leads elsewhere since the last look.
    pub(crate) fn has_news(&self) -> bool {
        self.known.has_changed().unwrap_or(false)
    }

    /// From now on this plan is in force.
    pub(crate) fn follow(&self, plan: &Arc<Plan>, shared: &Arc<Shared>) {
        let order = Order::Follow(Arc::clone(plan), Arc::clone(shared));
        // A thread that has ended follows nothing any more.
        let _ = self.orders.blocking_send(order);
    }

    /// Where to ask for what was counted.
    pub(crate) fn orders(&self) -> mpsc::Sender<Order> {
        self.orders.clone()
    }
}

async fn run(timers: Timers, mut orders: mpsc::Receiver<Order>, tell: watch::Sender<Known>) {
    let names = Names::new(timers.clone(), tell);
    let checks = Checks::new(timers.clone());
    let mut notices = Notices::default();
    let mut look_ns = now_ns() + LOOK_NS;
    loop {
        let order = rt::tokio::select! {
            biased;
            order = orders.recv() => order,
            () = timers.sleep_until(look_ns) => {
                let now_ns = now_ns();
                look_ns = now_ns + LOOK_NS;
                for notice in notices.look(now_ns) {
                    eprintln!("weir: {notice}");
                }
                continue;
            }
        };
        match order {
            // The process ends.
            None => return,
            Some(Order::Prepare(plan, done)) => {
                let names = Rc::clone(&names);
                spawn_local(async move {
                    names.prepare(&plan).await;
                    // Who asked may have gone on.
                    let _ = done.send(());
                });
            }
            Some(Order::Follow(plan, shared)) => {
                names.follow(&plan);
                checks.follow(&plan, &shared);
                notices.follow(&plan, &shared);
            }
            Some(Order::Snapshot(reply)) => {
                let mut all = Snapshot::default();
                names.add_to(&mut all);
                checks.add_to(&mut all);
                notices.add_to(&mut all, now_ns());
                let _ = reply.send(all);
            }
        }
    }
}
