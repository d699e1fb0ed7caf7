//! The state in force, as the owner of the proxy publishes it to the admin pages and to commands.

use std::sync::Arc;

use super::listeners::ListenAddressInfo;
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
}

impl ActiveConfig {
    pub(crate) fn new(
        plan: &Arc<Plan>,
        shared: &Arc<CrossCoreState>,
        listen_addresses: Vec<ListenAddressInfo>,
        reloads: u64,
    ) -> Self {
        let reload_results = ReloadResults::default();
        Self { plan: Arc::clone(plan), shared: Arc::clone(shared), listen_addresses, reloads, reload_results }
    }
}
