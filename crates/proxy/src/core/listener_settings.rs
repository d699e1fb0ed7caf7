//! The settings of a listener on one core, which its connections keep from their accept.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::Core;
use crate::admission::ListenerLimits;
use crate::config_generation::ConfigGeneration;
use crate::plan::ListenerPlan;

/// Settings of a listener at the time of a connection's accept. They stay the same for that
/// connection.
#[derive(Debug)]
pub(crate) struct ListenerSettings {
    /// Kept here and not in each connection, because there are many connections.
    pub(crate) core: Rc<Core>,
    pub plan: ListenerPlan,
    /// The listener's index in the plan in force; `None`: it was removed.
    pub(crate) index: Cell<Option<usize>>,
    /// For a removed listener: the last plan that had it, and its index there. Its connections
    /// follow that plan until their next response.
    last_generation: RefCell<Option<ListenerGeneration>>,
    pub(crate) open_connections: Rc<Cell<usize>>,
    /// Connections of this core in their TLS handshake.
    pub(crate) handshakes: Rc<Cell<usize>>,
    /// Admission state of the listener, shared by all cores.
    pub(crate) limits: Arc<ListenerLimits>,
}

#[derive(Clone, Debug)]
pub(crate) struct ListenerGeneration {
    pub(crate) generation: Rc<ConfigGeneration>,
    pub listener: usize,
}

/// Counters of a listener's connections on a core, which continue across reloads.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionCounters {
    pub open: Rc<Cell<usize>>,
    pub(crate) handshakes: Rc<Cell<usize>>,
}

impl ListenerSettings {
    /// Creates the settings of the listener at `index` in the plan in force.
    pub(crate) fn new(
        core: Rc<Core>,
        plan: ListenerPlan,
        index: usize,
        counters: ConnectionCounters,
        limits: Arc<ListenerLimits>,
    ) -> Self {
        Self {
            core,
            plan,
            index: Cell::new(Some(index)),
            last_generation: RefCell::default(),
            open_connections: counters.open,
            handshakes: counters.handshakes,
            limits,
        }
    }

    pub(crate) fn counters(&self) -> ConnectionCounters {
        let (open, handshakes) = (Rc::clone(&self.open_connections), Rc::clone(&self.handshakes));
        ConnectionCounters { open, handshakes }
    }

    /// Applies a new plan after `previous`. `new_index` is the listener's index there; `None`: the
    /// new plan does not have it.
    pub(crate) fn apply_generation(&self, previous: &Rc<ConfigGeneration>, new_index: Option<usize>) {
        let old_index = self.index.replace(new_index);
        match (old_index, new_index) {
            (_, Some(_)) => drop(self.last_generation.take()),
            (Some(old_index), None) => {
                let last = ListenerGeneration { generation: Rc::clone(previous), listener: old_index };
                drop(self.last_generation.replace(Some(last)));
            }
            (None, None) => {}
        }
    }

    /// Returns the plan that the listener's requests follow.
    #[inline]
    pub(crate) fn active_generation(&self) -> Option<ListenerGeneration> {
        match self.index.get() {
            Some(listener) => {
                Some(ListenerGeneration { generation: self.core.current_generation(), listener })
            }
            None => self.last_generation.borrow().clone(),
        }
    }
}
