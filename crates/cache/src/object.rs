//! One stored response, and its body in pieces.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::body::Body;
use crate::head::StoredHead;
use crate::key::Key;
use crate::memory::{Charge, MemoryBudget};
use crate::storable::Storable;

/// Memory that an object needs besides its key, its head and its body: its parts, its position in the queues of the
/// store, and the entries of the tables, as measured.
pub(crate) const OBJECT_OVERHEAD_BYTES: u64 = 640;

/// A stored response. It never changes; a validation replaces it by another one with the same body.
#[derive(Debug)]
pub struct Object {
    pub(crate) key: Key,
    /// Secondary key (RFC 9111 §4.1).
    pub(crate) variant: Box<[u8]>,
    pub(crate) head: StoredHead,
    pub(crate) storable: Storable,
    pub(crate) body: Arc<Body>,
    pub(crate) state: ObjectState,
    /// Memory of the object without its body.
    charge: Charge,
}

/// The part of an object that changes.
#[derive(Debug, Default)]
pub(crate) struct ObjectState {
    /// Uses since the object was stored or last kept, up to a small maximum.
    pub(crate) uses: AtomicU8,
    /// It is not in memory any more: purged, replaced or evicted.
    pub(crate) is_removed: AtomicBool,
    /// It is not to be used any more: purged or replaced.
    pub(crate) is_outdated: AtomicBool,
}

impl Object {
    pub(crate) fn new(
        budget: &Arc<MemoryBudget>,
        key: Key,
        variant: Box<[u8]>,
        head: StoredHead,
        storable: Storable,
        body: Arc<Body>,
    ) -> Self {
        let state = ObjectState::default();
        let mut object = Self { key, variant, head, storable, body, state, charge: Charge::default() };
        object.charge = Charge::new(budget, object.own_bytes());
        object
    }

    pub fn head(&self) -> &StoredHead {
        &self.head
    }

    pub fn storable(&self) -> &Storable {
        &self.storable
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    pub fn body(&self) -> &Arc<Body> {
        &self.body
    }

    /// Returns the length of the body. `None`: it is still arriving, and its length is unknown.
    pub fn body_bytes(&self) -> Option<u64> {
        self.body.length()
    }

    /// Returns the memory that the object and its body occupy.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.own_bytes() + self.body.memory_bytes()
    }

    fn own_bytes(&self) -> u64 {
        let tags: usize = self.storable.tags.iter().map(|tag| tag.len() + 80).sum();
        let vary: usize = self.storable.vary.iter().map(|name| name.len() + 32).sum();
        let parts = self.key.text().len() + self.variant.len() + self.head.bytes() + tags + vary;
        OBJECT_OVERHEAD_BYTES + parts as u64
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.state.is_outdated.load(Ordering::Acquire)
    }

    pub(crate) fn note_use(&self) {
        const USES_MAX: u8 = 3;
        // Written only while it changes, so that cores do not take the line from each other for a popular object.
        let uses = self.state.uses.load(Ordering::Relaxed);
        if uses < USES_MAX {
            self.state.uses.store(uses + 1, Ordering::Relaxed);
        }
    }
}
