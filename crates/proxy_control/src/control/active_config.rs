//! The state in force, as the owner of the proxy publishes it to the admin pages and to commands.

use std::sync::Arc;

use super::listeners::ListenAddressInfo;
use crate::maintenance::MaintenancePage;
use crate::metrics::ReloadResults;
use crate::plan::Plan;
use crate::pool::CrossCoreState;

/// The state in force.
#[derive(Clone, Debug)]
pub(crate) struct ActiveConfig {
    pub(crate) plan: Arc<Plan>,
    pub(crate) shared: Arc<CrossCoreState>,
    pub(crate) listen_addresses: Vec<ListenAddressInfo>,
    pub(crate) reloads: u64,
    pub(crate) reload_results: ReloadResults,
    /// Page of an operator for pools in maintenance.
    pub(crate) maintenance_page: Option<Arc<MaintenancePage>>,
}

impl ActiveConfig {
    pub(crate) fn new(
        plan: &Arc<Plan>,
        shared: &Arc<CrossCoreState>,
        listen_addresses: Vec<ListenAddressInfo>,
        reloads: u64,
    ) -> Self {
        Self {
            plan: Arc::clone(plan),
            shared: Arc::clone(shared),
            listen_addresses,
            reloads,
            reload_results: ReloadResults::default(),
            maintenance_page: None,
        }
    }
}
