//! The open cache of a plan. `caching` opens it.

use std::sync::{Arc, OnceLock};

use cache::Cache;

/// The open cache of a plan; a plan that is only checked has none.
#[derive(Debug, Default)]
pub struct StoreCell(OnceLock<Arc<Cache>>);

impl StoreCell {
    pub fn get(&self) -> Option<&Arc<Cache>> {
        self.0.get()
    }

    /// Sets the cache. The owner of the proxy is the only caller, before any core has the plan.
    pub fn set(&self, cache: Arc<Cache>) {
        let _ = self.0.set(cache);
    }
}
