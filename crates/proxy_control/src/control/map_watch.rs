//! Reads the files of maps again when they change. The owner of the proxy only checks their states; each file
//! is read in a thread of its own, because a large one takes a second.

use std::sync::Arc;

use rt::clock::MonotonicTime;
use rt::memory::{FreedMemory, return_freed_memory};

use crate::auth::watched_file::Watched;
use crate::maps::{MapStore, POLL_INTERVAL_NS};
use crate::plan::{AuthPlan, Plan};

#[derive(Debug)]
pub(super) struct MapWatch {
    next_poll: MonotonicTime,
    /// Number of polls that still return memory: a table that was replaced may have been made in this thread.
    returns_left: u32,
}

/// Number of such polls after a file was read.
const RETURNS: u32 = 10;

impl Default for MapWatch {
    fn default() -> Self {
        // The first poll returns what reading the config took.
        Self { next_poll: MonotonicTime::ZERO, returns_left: 1 }
    }
}

impl MapWatch {
    /// Starts to read the changed files of a plan. Checks them at most once a second, so it may be called at any
    /// time. The same holds for files with users and keys.
    pub(super) fn poll(&mut self, plan: &Plan, now: MonotonicTime) {
        if now < self.next_poll {
            return;
        }
        self.next_poll = now + POLL_INTERVAL_NS;
        if self.returns_left > 0 {
            self.returns_left -= 1;
            return_freed_memory(FreedMemory::All);
        }
        for (name, store) in plan.stores() {
            if store.has_changed() {
                self.returns_left = RETURNS;
                let (name, store) = (name.into_owned(), Arc::clone(store));
                let read = move || read_again(&name, &store);
                // Without a thread, the next check tries again.
                let _ = std::thread::Builder::new().name("map".to_owned()).spawn(read);
            }
        }
        for file in plan.auth_plans().filter_map(AuthPlan::file).filter(|file| file.has_changed()) {
            let _ =
                std::thread::Builder::new().name("auth-file".to_owned()).spawn(move || load_again(&*file));
        }
    }
}

fn load_again(file: &dyn Watched) {
    match file.load() {
        Ok(()) => eprintln!("weir: notice: {}: read again", file.path().display()),
        Err(faults) => {
            faults.iter().for_each(|fault| eprintln!("weir: {fault}"));
            eprintln!("weir: {}: not changed; the previous content stays", file.path().display());
        }
    }
}

fn read_again(name: &str, store: &MapStore) {
    match store.load() {
        Ok(()) => eprintln!("weir: notice: map {name}: read again"),
        Err(faults) => {
            faults.iter().for_each(|fault| eprintln!("weir: map {name}: {fault}"));
            eprintln!("weir: map {name}: not changed; the previous content stays");
        }
    }
    // This thread ends, and with it the chance to return what reading took.
    return_freed_memory(FreedMemory::All);
}
