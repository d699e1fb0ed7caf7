//! Commands to the cores. Every control thread, of whatever kind, sends the same [`Command`] through
//! [`CoreSenders`] and collects the replies there.

use std::sync::Arc;

use rt::tokio::sync::oneshot;

use crate::log::LogSender;
use crate::maintenance::MaintenancePage;
use crate::metrics::Snapshot;
use crate::plan::Plan;
use crate::pool::CrossCoreState;
use crate::profile::{ProfileCommand, ProfileTotals};
use crate::session::{SessionList, SessionQuery};
use crate::tracing::TraceSender;

/// Command to a core, with the channel for its reply. Cores and the rest of the process share nothing
/// else but the counters of [`CrossCoreState`].
#[derive(Debug)]
pub enum Command {
    /// Put this plan into force.
    Apply(Box<ApplyPlan>, oneshot::Sender<()>),
    /// Put this plan into force; it differs from the previous one in servers only.
    SwapServers(Arc<Plan>, Arc<CrossCoreState>, oneshot::Sender<()>),
    Snapshot(oneshot::Sender<Snapshot>),
    /// Follow changed settings of servers.
    RefreshServers(oneshot::Sender<()>),
    /// Respond with this page for pools in maintenance; `None`: with the error page for 503.
    SetMaintenancePage(Option<Arc<MaintenancePage>>, oneshot::Sender<()>),
    /// List connections, or close some.
    Sessions(SessionQuery, oneshot::Sender<SessionList>),
    /// Switch the CPU time profile on or off, and send its totals.
    Profile(ProfileCommand, oneshot::Sender<ProfileTotals>),
    Ping(oneshot::Sender<()>),
    /// Another process accepts at the marked listening sockets: close them at once. In the drain that
    /// follows, clients between two requests may send one more.
    HandOff(Vec<bool>, oneshot::Sender<()>),
}

/// A plan, and the changes outside the cores that belong to it.
#[derive(Clone, Debug)]
pub struct ApplyPlan {
    pub plan: Arc<Plan>,
    pub shared: Arc<CrossCoreState>,
    pub log: LogSender,
    pub traces: TraceSender,
    /// Listener of each listening socket, by `socket_index`; `None`: the socket is closed.
    pub listener_of_socket: Vec<Option<usize>>,
}

pub type CoreSenders = rt::core_senders::CoreSenders<Command>;
