//! Wakes the cores whose requests wait for a slot at a pool.

use std::sync::Arc;

use rt::tokio::sync::Notify;

/// Index of a core, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreIndex(pub(crate) usize);

/// One wakeup for each core, sent when another core freed a slot that its requests may wait for.
#[derive(Clone, Debug)]
pub struct CoreWakeups(Arc<[Notify]>);

impl CoreWakeups {
    pub fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| Notify::new()).collect())
    }

    pub(crate) async fn wait(&self, core: CoreIndex) {
        self.0[core.0].notified().await;
    }

    pub(super) fn core_count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn wake(&self, core: CoreIndex) {
        self.0[core.0].notify_one();
    }
}
