//! The index of the files: an entry for each, in the shard of its key.

#![expect(
    clippy::disallowed_types,
    reason = "cores and threads of the disk share an entry; held to take a pointer"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::directory::FileName;
use super::reading::OpenState;
use crate::key::Key;
use crate::object::Object;
use crate::storable::Storable;

/// A file of the disk.
#[derive(Debug)]
pub(crate) struct DiskEntry {
    pub(crate) key: Key,
    pub(crate) vary: Box<[Box<str>]>,
    pub(crate) variant: Box<[u8]>,
    pub(crate) tags: Box<[Box<[u8]>]>,
    pub(crate) name: FileName,
    pub(crate) nonce: u64,
    /// Space that the file occupies.
    pub(crate) file_bytes: u64,
    is_written: AtomicBool,
    /// `Date` of the response, in seconds since 1970.
    pub(crate) date_s: AtomicU64,
    pub(crate) is_removed: AtomicBool,
    /// It was read since it was last kept.
    pub(crate) was_used: AtomicBool,
    opening: Mutex<Weak<OpenState>>,
    opened: Mutex<Weak<Object>>,
}

/// Size of the blocks of most file systems: a file occupies a multiple of it.
const FILE_SYSTEM_BLOCK_BYTES: u64 = 4096;

impl DiskEntry {
    pub(crate) fn new(
        key: Key,
        variant: Box<[u8]>,
        storable: &Storable,
        name: FileName,
        nonce: u64,
        file_bytes: u64,
    ) -> Self {
        Self {
            key,
            vary: storable.vary.clone(),
            variant,
            tags: storable.tags.clone(),
            name,
            nonce,
            file_bytes: file_bytes.next_multiple_of(FILE_SYSTEM_BLOCK_BYTES),
            is_written: AtomicBool::new(false),
            date_s: AtomicU64::new(storable.date_s),
            is_removed: AtomicBool::new(false),
            was_used: AtomicBool::new(false),
            opening: Mutex::default(),
            opened: Mutex::default(),
        }
    }

    /// Returns whether it is the file of this object, or of an earlier one with its key and variant.
    pub(crate) fn is_of(&self, object: &Object) -> bool {
        self.key == object.key && self.variant == object.variant && self.vary == object.storable.vary
    }

    pub(crate) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Acquire)
    }

    /// Notes that the file has its name.
    pub(crate) fn set_written(&self) {
        self.is_written.store(true, Ordering::Release);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Returns the object if it is open already.
    pub(crate) fn opened(&self) -> Option<Arc<Object>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    pub(crate) fn set_opened(&self, object: &Arc<Object>) {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(object);
    }

    /// Returns the reading of its head that runs, or a new one; the flag is true for a new one.
    pub(crate) fn opening(&self) -> (Arc<OpenState>, bool) {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        match opening.upgrade() {
            Some(running) if !running.is_done() => (running, false),
            _ => {
                let state = Arc::new(OpenState::default());
                *opening = Arc::downgrade(&state);
                (state, true)
            }
        }
    }
}
