//! Holds a proxy at work: does what signals and the control socket ask for, one after the other, follows
//! the names of servers, and tells the service manager, until all cores have ended.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use proxy::ctl::Order;
use proxy::handover::{Demand, Taken};
use proxy::{Opened, Running};
use rt::clock::now_ns;
use rt::drain::{Drain, Stage};
use rt::notify::{Manager, State};

use super::{listening_on, read_config};
use crate::output::print;

/// What a signal asks for.
pub(super) enum Wish {
    Reload,
    Reopen,
    Drain,
    /// It came over the control socket.
    Order(Order),
}

/// Whoever holds the proxy.
pub(super) struct Holder<'a> {
    running: &'a mut Running,
    file: Option<&'a Path>,
    drain: Drain,
    manager: &'a Manager,
    handover: Handover,
    alive_ns: u64,
}

/// Whether another process has copies of the listening sockets. A reload would close some that it is
/// about to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handover {
    /// None has.
    No,
    /// It gets ready.
    Begun,
    /// It gets ready, and SIGHUP has come meanwhile.
    BegunReloadLater,
}

/// How often it is looked whether all cores have ended.
const LOOK: Duration = Duration::from_millis(50);
/// Why a reload is not done while the proxy ends.
const ENDING: &str = "the config is not read again: this process is about to end";
/// Why one that somebody waits for is not done while another process gets ready.
const HANDED_OVER: &str = "the config is not read again: another process is taking over just now";

impl<'a> Holder<'a> {
    pub(super) fn new(
        running: &'a mut Running,
        file: Option<&'a Path>,
        drain: Drain,
        manager: &'a Manager,
    ) -> Self {
        Self { running, file, drain, manager, handover: Handover::No, alive_ns: now_ns() }
    }

    /// Does what is asked for, until all cores have ended.
    pub(super) fn follow(&mut self, wished: &Receiver<Wish>) {
        while !self.running.is_finished() {
            match wished.recv_timeout(LOOK) {
                Ok(Wish::Reopen) => self.reopen_by_signal(),
                Ok(Wish::Reload) => self.reload_by_signal(),
                Ok(Wish::Drain) => self.stop_listening(),
                Ok(Wish::Order(order)) => self.obey(order),
                Err(_) => {}
            }
            if let Err(error) = self.running.follow_names() {
                note!("weir: {error}; the servers stay as they were");
            }
            self.running.tend();
            self.feed_watchdog();
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Reload(answer) => {
                let result = match self.handover {
                    _ if self.running.is_draining() => Err(ENDING.to_owned()),
                    Handover::No => self.reload(),
                    Handover::Begun | Handover::BegunReloadLater => Err(HANDED_OVER.to_owned()),
                };
                if let Err(text) = &result {
                    complain(text);
                }
                // Who asked may have left, here and below.
                let _ = answer.try_send(result);
            }
            Order::Reopen(answer) => {
                let result = self.running.reopen_logs().map_err(|error| error.to_string());
                if let Err(text) = &result {
                    complain(text);
                }
                let _ = answer.try_send(result.map(|()| "the logs are opened again\n".to_owned()));
            }
            Order::Drain => {
                self.drain.advance(Stage::Draining);
                self.stop_listening();
            }
            Order::Errand(errand) => self.running.run_errand(errand),
            Order::Upgrade(demand) => self.follow_demand(demand),
        }
    }

    fn reopen_by_signal(&mut self) {
        if let Err(error) = self.running.reopen_logs() {
            complain(&error.to_string());
        }
    }

    fn stop_listening(&mut self) {
        self.manager.tell(State::Stopping);
        self.running.stop_listening();
    }

    fn follow_demand(&mut self, demand: Demand) {
        match demand {
            // Without an answer the other process is told that there is nothing to be had.
            Demand::Offers(_) if self.running.is_draining() => {}
            Demand::Offers(reply) => match self.running.offers() {
                Ok(offers) => {
                    self.handover = Handover::Begun;
                    let _ = reply.send(offers);
                }
                Err(error) => note!("weir: the listening sockets cannot be passed on: {error}"),
            },
            Demand::Leave(taken, left) => {
                self.leave(&taken);
                // Who asked may not wait any more.
                let _ = left.send(());
            }
            Demand::Stay => {
                let before = std::mem::replace(&mut self.handover, Handover::No);
                if before == Handover::BegunReloadLater {
                    self.reload_by_signal();
                }
            }
        }
    }

    /// Another process is at work.
    fn leave(&mut self, taken: &Taken) {
        let name = taken.process.map_or_else(String::new, |id| format!(" {id}"));
        note!("weir: process{name} is at work; this one finishes what it has and ends");
        match taken.process.filter(|_| taken.same_service) {
            Some(id) => self.manager.tell(State::MainProcess(id)),
            None => self.manager.tell(State::Stopping),
        }
        self.running.leave(taken);
    }

    fn reload_by_signal(&mut self) {
        if self.running.is_draining() {
            complain(ENDING);
            self.reopen_by_signal();
            return;
        }
        match self.handover {
            Handover::No => match self.reload() {
                Ok(text) => print(&text),
                Err(text) => complain(&text),
            },
            Handover::Begun | Handover::BegunReloadLater => {
                self.handover = Handover::BegunReloadLater;
            }
        }
    }

    /// Reads the config again and applies it: what to say, or what is wrong.
    fn reload(&mut self) -> Result<String, String> {
        self.manager.tell(State::Reloading);
        let result = reload(self.running, self.file);
        if let Err(text) = &result {
            self.running.note_refused_reload(text);
        }
        self.manager.tell(State::Ready);
        result
    }

    /// Tells the manager in time that we are alive, if it asked for that.
    fn feed_watchdog(&mut self) {
        let Some(every) = self.manager.watchdog_every() else { return };
        if now_ns() >= self.alive_ns + every.as_nanos() as u64 {
            // A core that hangs leaves the manager without the sign that it waits for.
            self.running.wait_for_cores();
            self.manager.tell(State::Watchdog);
            self.alive_ns = now_ns();
        }
    }
}

fn complain(text: &str) {
    text.lines().for_each(|line| note!("weir: {line}"));
}

fn reload(running: &mut Running, file: Option<&Path>) -> Result<String, String> {
    const REFUSED: &str = "the config is not applied; the one before stays";
    let Some(file) = file else {
        let opened = running.reopen_logs().map_err(|error| error.to_string());
        return Err(match opened {
            Ok(()) => "there is no config to read again; the logs are opened again".to_owned(),
            Err(text) => format!("there is no config to read again\n{text}"),
        });
    };
    let plan = read_config(file, false).map_err(|problems| {
        let lines = problems.iter().map(|problem| format!("{problem}\n"));
        format!("{}{REFUSED}", lines.collect::<String>())
    })?;
    let before = running.opened();
    let reopened = running.reload(plan).map_err(|error| format!("{error}\n{REFUSED}"))?;
    let warning = reopened.map_or_else(String::new, |error| {
        complain(&error.to_string());
        format!("warning: {error}\n")
    });
    let is_new = |opened: &&Opened| !before.contains(*opened);
    let threads = running.threads();
    let opened = running.opened();
    let lines = opened.iter().filter(is_new).map(|opened| listening_on(opened, threads));
    Ok(format!("{}{warning}the config is applied\n", lines.collect::<String>()))
}
