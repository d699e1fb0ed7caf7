//! Holds an experiment's folder, so that two weirs cannot run the same experiment. Not for reading it:
//! that needs no lock.
//!
//! The kernel's lock on the file decides (flock(2)): it goes with the process, however that ends. The file's
//! text says who has it, for people, for [`holder`], and where a file system has no locks.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::scenario::journal::start_ticks;

const NAME: &str = "lock";
/// A process's number and its start are shorter.
const BYTES_MAX: u64 = 4096;

/// A weir that was killed takes a moment to go, and a program that it had just started has its lock until
/// that is gone too: so long, and so often, they are waited for.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 100;

/// The process that a folder belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    pid: i32,
    /// When it started, in ticks after boot: with the number it names a process for good.
    start_ticks: u64,
}

impl Owner {
    fn is_alive(self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// The folder is ours as long as this lives.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

/// Why a folder cannot be had.
#[derive(Debug)]
pub(super) enum NotTaken {
    /// A process has it; its number, if it can be told.
    Held(Option<i32>),
    /// The file cannot be written.
    Io(io::Error),
}

impl Lock {
    /// Takes the folder. A lock of a process that is gone is taken over.
    pub(super) fn take(folder: &Path) -> Result<Self, NotTaken> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(folder.join(NAME)).map_err(NotTaken::Io)?;
        let mut looks = 0;
        loop {
            let owner = read(&mut file);
            let is_alive = owner.is_some_and(Owner::is_alive);
            // Where a file system has no locks, the text is all there is.
            let is_held = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            if !is_alive && !is_held {
                break;
            }
            if looks == LOOKS_MAX {
                return Err(NotTaken::Held(owner.map(|owner| owner.pid)));
            }
            std::thread::sleep(LOOK);
            looks += 1;
        }
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        let own = Owner { pid, start_ticks: start_ticks(pid).unwrap_or(0) };
        write(&mut file, &serde_json::to_string(&own).unwrap_or_default()).map_err(NotTaken::Io)?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A text that stays names a process that is gone, or will be.
        let _ = write(&mut self.file, "");
    }
}

/// The living process that has the folder, if its lock says so.
pub(super) fn holder(folder: &Path) -> Option<i32> {
    let mut file = File::open(folder.join(NAME)).ok()?;
    read(&mut file).filter(|owner| owner.is_alive()).map(|owner| owner.pid)
}

fn read(file: &mut File) -> Option<Owner> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write(file: &mut File, text: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_nobody_waited_for_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        // Whichever it is by now: it runs, or it is a zombie, and none of both can be told beforehand.
        let running = start_ticks(pid);
        while let Some(ticks) = start_ticks(pid) {
            assert!(running.is_none_or(|before| before == ticks));
            std::thread::yield_now();
        }
        let owner = Owner { pid, start_ticks: running.unwrap_or(1) };
        std::fs::write(folder.path().join(NAME), serde_json::to_string(&owner).unwrap()).unwrap();
        assert!(Lock::take(folder.path()).is_ok(), "{owner:?}");
        child.wait().unwrap();
    }

    #[test]
    fn one_process_has_it_and_a_dead_one_loses_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(holder(path), None);
        let own = std::process::id() as i32;
        let lock = Lock::take(path).unwrap();
        assert_eq!(holder(path), Some(own));
        assert!(matches!(Lock::take(path), Err(NotTaken::Held(Some(pid))) if pid == own));
        drop(lock);
        assert_eq!(holder(path), None);
        // As a killed process leaves it: another one has its number now.
        std::fs::write(path.join(NAME), format!("{{\"pid\":{own},\"start_ticks\":1}}")).unwrap();
        assert_eq!(holder(path), None);
        drop(Lock::take(path).unwrap());
        // Where a file system has no locks, a living process is known by its text.
        let ticks = start_ticks(own).unwrap();
        let text = format!("{{\"pid\":{own},\"start_ticks\":{ticks}}}");
        std::fs::write(path.join(NAME), text).unwrap();
        assert!(matches!(Lock::take(path), Err(NotTaken::Held(Some(_)))));
        std::fs::write(path.join(NAME), "{").unwrap();
        drop(Lock::take(path).unwrap());
    }
}
