//! The memory of the long bodies of all caches: a file from which the kernel sends to plain connections without a copy.

use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};

use rt::file_memory::FileMemory;

use crate::plan::Plan;

/// Size of the file. It needs addresses, and memory only for the bodies in it, which the bounds of the caches limit.
/// Bodies beyond it are in memory alone.
const FILE_BYTES_MAX: usize = 1 << 40;

/// The file of the process; `None`: the kernel does not provide it.
static FILE: OnceLock<Option<Arc<FileMemory>>> = OnceLock::new();

/// Opens the file if a plan has a cache. Must be called before the cores start, because each has a table of
/// descriptors of its own. Caches that a reload adds to a process without one have no file.
pub fn open_file_memory(plan: &Plan) {
    if plan.caches.is_empty() {
        return;
    }
    FILE.get_or_init(|| match FileMemory::create("weir-cache", FILE_BYTES_MAX) {
        Ok(memory) => Some(memory),
        Err(error) => {
            eprintln!(
                "weir: caches: no file in memory ({error}); large responses take more CPU time, because they are copied"
            );
            None
        }
    });
}

/// Returns the descriptor that each core must have.
pub fn file_memory_fd() -> Option<RawFd> {
    get().map(|memory| memory.raw_fd())
}

pub(super) fn get() -> Option<Arc<FileMemory>> {
    FILE.get().cloned().flatten()
}
