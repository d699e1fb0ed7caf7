//! Supervises a running proxy until all cores have ended. Executes signals and commands of the
//! control socket one after the other, follows the names of servers, and notifies the service
//! manager.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use record::problem::InputProblem;
use rt::clock::{MonotonicTime, now_ns};
use rt::drain::{Drain, DrainStage};
use rt::notify::{ServiceManager, ServiceState};

use super::ctl::{ControlCommand, OwnerError};
use super::handover::{Handoff, UpgradeCommand};
use super::{FileWatch, ListenAddressInfo, PathStates, RunningProxy};
use crate::plan::Plan;

/// Request of a signal or of the control socket.
pub enum SupervisorCommand {
    /// Read the config again and apply it.
    Reload,
    /// Open the logs again.
    Reopen,
    Drain,
    Control(ControlCommand),
}

/// Source of the plans of a reload, and the output of the process.
#[derive(Clone, Copy)]
pub struct SupervisorContext<'a> {
    /// File of the config; `None`: the plan is from flags.
    pub file: Option<&'a Path>,
    /// Reads the plan in the file; reports every problem.
    pub read_config: fn(&Path) -> Result<Plan, Vec<InputProblem>>,
    pub print: fn(&str),
    pub warn: fn(&str),
}

pub struct Supervisor<'a> {
    running: &'a mut RunningProxy,
    context: SupervisorContext<'a>,
    /// `None`: changes of the files are not followed.
    watch: FileWatch,
    drain: Drain,
    manager: &'a ServiceManager,
    handoff_state: HandoffState,
    last_watchdog_ns: u64,
}

/// State of a handoff: another process may have copies of the listening sockets. A reload would
/// close some that it is about to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandoffState {
    /// No other process has copies.
    Idle,
    /// Another process gets ready.
    Preparing,
    /// Another process gets ready, and SIGHUP has arrived meanwhile.
    PreparingReloadPending,
}

/// Interval at which it polls whether all cores have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl<'a> Supervisor<'a> {
    /// Creates a supervisor. With `watch`, it follows changes of the config's files, otherwise of those with servers.
    pub fn new(
        running: &'a mut RunningProxy,
        (context, watch): (SupervisorContext<'a>, Option<FileWatch>),
        drain: Drain,
        manager: &'a ServiceManager,
    ) -> Self {
        let mut watch = watch.unwrap_or_else(|| FileWatch::from_server_files(PathStates::default()));
        running.watch_files(&mut watch, None);
        let (handoff_state, last_watchdog_ns) = (HandoffState::Idle, now_ns());
        Self { running, context, watch, drain, manager, handoff_state, last_watchdog_ns }
    }

    /// Executes requests until all cores have ended.
    pub fn run(&mut self, commands: &Receiver<SupervisorCommand>) {
        while !self.running.is_finished() {
            match commands.recv_timeout(POLL_INTERVAL) {
                Ok(SupervisorCommand::Reopen) => self.reopen_by_signal(),
                Ok(SupervisorCommand::Reload) => self.reload_by_signal(),
                Ok(SupervisorCommand::Drain) => self.stop_listening(),
                Ok(SupervisorCommand::Control(command)) => self.execute(command),
                Err(_) => {}
            }
            self.reload_if_changed();
            self.running.apply_dns_changes();
            self.running.tick();
            self.notify_watchdog();
        }
    }

    fn execute(&mut self, command: ControlCommand) {
        match command {
            ControlCommand::Reload(reply) => {
                let result = match self.handoff_state {
                    _ if self.running.is_draining() => Err(OwnerError::Stopping),
                    HandoffState::Idle => self.reload(),
                    HandoffState::Preparing | HandoffState::PreparingReloadPending => {
                        Err(OwnerError::TakingOver)
                    }
                };
                if let Err(error) = &result {
                    self.report(error);
                }
                // The requester may have left, here and below.
                let _ = reply.try_send(result);
            }
            ControlCommand::Reopen(reply) => {
                let result = self.running.reopen_logs().map_err(OwnerError::Logs);
                if let Err(error) = &result {
                    self.report(error);
                }
                let _ = reply.try_send(result.map(|()| "logs reopened\n".to_owned()));
            }
            ControlCommand::ChangeServers(change, reply) => {
                let result = self.running.change_servers(change);
                let _ = reply.try_send(result.map(|()| String::new()));
            }
            ControlCommand::Maintenance(change, reply) => {
                let _ = reply.try_send(Ok(self.running.set_maintenance(change).to_string()));
            }
            ControlCommand::SaveState(reply) => {
                let result = self.running.save_state().map_err(OwnerError::StateFile);
                let _ = reply.try_send(result.map(|()| String::new()));
            }
            ControlCommand::Drain => {
                self.drain.advance(DrainStage::Draining);
                self.stop_listening();
            }
            ControlCommand::RunTask(task) => self.running.run_task(task),
            ControlCommand::Upgrade(upgrade_command) => self.handle_upgrade(upgrade_command),
        }
    }

    fn reopen_by_signal(&mut self) {
        if let Err(error) = self.running.reopen_logs() {
            self.report(&error);
        }
    }

    fn stop_listening(&mut self) {
        self.manager.notify(ServiceState::Stopping);
        self.running.stop_listening();
    }

    fn handle_upgrade(&mut self, upgrade_command: UpgradeCommand) {
        match upgrade_command {
            // Without a response, the other process learns that there is nothing to inherit.
            UpgradeCommand::OfferSockets(_) if self.running.is_draining() => {}
            UpgradeCommand::OfferSockets(reply) => match self.running.offered_sockets() {
                Ok(offers) => {
                    self.handoff_state = HandoffState::Preparing;
                    let _ = reply.send(offers);
                }
                Err(error) => (self.context.warn)(&format!("cannot pass the listening sockets: {error}")),
            },
            UpgradeCommand::HandOff(handoff, done) => {
                self.drain_after_handoff(&handoff);
                // The requester may no longer wait.
                let _ = done.send(());
            }
            UpgradeCommand::Abort => {
                let previous_state = std::mem::replace(&mut self.handoff_state, HandoffState::Idle);
                if previous_state == HandoffState::PreparingReloadPending {
                    self.reload_by_signal();
                }
            }
        }
    }

    /// Drains: another process has taken over.
    fn drain_after_handoff(&mut self, handoff: &Handoff) {
        let name = handoff.process.map_or_else(String::new, |id| format!(" {id}"));
        (self.context.warn)(&format!("process{name} has taken over; draining"));
        match handoff.process.filter(|_| handoff.same_service) {
            Some(id) => self.manager.notify(ServiceState::MainPid(id)),
            None => self.manager.notify(ServiceState::Stopping),
        }
        self.running.hand_off(handoff);
    }

    fn reload_by_signal(&mut self) {
        if self.running.is_draining() {
            self.report(&OwnerError::Stopping);
            self.reopen_by_signal();
            return;
        }
        match self.handoff_state {
            HandoffState::Idle => match self.reload() {
                Ok(text) => (self.context.print)(&text),
                Err(error) => self.report(&error),
            },
            HandoffState::Preparing | HandoffState::PreparingReloadPending => {
                self.handoff_state = HandoffState::PreparingReloadPending;
            }
        }
    }

    /// Reloads if a watched file has changed. While another process gets ready or this one
    /// drains, the change has no effect.
    fn reload_if_changed(&mut self) {
        if self.handoff_state == HandoffState::Idle
            && !self.running.is_draining()
            && self.watch.has_changed(MonotonicTime::now())
        {
            self.reload_by_signal();
        }
    }

    /// Reads the config again and applies it. Returns the text to print, or the problem.
    fn reload(&mut self) -> Result<String, OwnerError> {
        self.manager.notify(ServiceState::Reloading);
        let before = self.watch.current();
        let result = reload(self.running, &self.context);
        self.running.watch_files(&mut self.watch, Some(before));
        if let Err(error) = &result {
            self.running.record_refused_reload(&error.to_string());
        }
        self.manager.notify(ServiceState::Ready);
        result
    }

    /// Sends the watchdog signal to the service manager in time, if it requested one.
    fn notify_watchdog(&mut self) {
        let Some(interval) = self.manager.watchdog_interval() else { return };
        if now_ns() >= self.last_watchdog_ns + interval.as_nanos() as u64 {
            // A core that hangs keeps the manager from getting its watchdog signal.
            self.running.wait_for_cores();
            self.manager.notify(ServiceState::Watchdog);
            self.last_watchdog_ns = now_ns();
        }
    }

    fn report(&self, error: &dyn std::error::Error) {
        self.context.report(error);
    }
}

impl SupervisorContext<'_> {
    fn report(&self, error: &dyn std::error::Error) {
        error.to_string().lines().for_each(self.warn);
    }
}

fn reload(running: &mut RunningProxy, context: &SupervisorContext<'_>) -> Result<String, OwnerError> {
    let Some(file) = context.file else { return Err(OwnerError::NoFile(running.reopen_logs().err())) };
    let plan = (context.read_config)(file).map_err(OwnerError::Invalid)?;
    let before = running.listen_addresses();
    let reopened = running.reload(plan).map_err(OwnerError::NotApplied)?;
    let warning = reopened.map_or_else(String::new, |error| {
        context.report(&error);
        format!("warning: {error}\n")
    });
    let is_new = |opened: &&ListenAddressInfo| !before.contains(*opened);
    let threads = running.threads();
    let opened = running.listen_addresses();
    let lines = opened.iter().filter(is_new).map(|opened| opened.announcement(threads));
    Ok(format!("{}{warning}config applied\n", lines.collect::<String>()))
}
