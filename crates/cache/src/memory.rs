//! The memory of a cache: each piece of a body and each object carries its charge, whoever holds it. So an object that
//! was evicted counts until its last client has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sum of the charges of one cache.
#[derive(Debug, Default)]
pub(crate) struct MemoryBudget {
    used: AtomicU64,
}

impl MemoryBudget {
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Bytes that count until the charge is dropped.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    budget: Option<Arc<MemoryBudget>>,
    bytes: u64,
}

impl Charge {
    pub(crate) fn new(budget: &Arc<MemoryBudget>, bytes: u64) -> Self {
        budget.used.fetch_add(bytes, Ordering::Relaxed);
        Self { budget: Some(Arc::clone(budget)), bytes }
    }

    /// Adds bytes to a charge of a budget.
    pub(crate) fn add(&mut self, bytes: u64) {
        if let Some(budget) = &self.budget {
            budget.used.fetch_add(bytes, Ordering::Relaxed);
            self.bytes += bytes;
        }
    }

    /// Takes the bytes, and leaves an empty charge of the same budget.
    pub(crate) fn take(&mut self) -> Self {
        Self { budget: self.budget.clone(), bytes: std::mem::take(&mut self.bytes) }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}
