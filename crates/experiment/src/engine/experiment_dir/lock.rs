//! Lock on an experiment's directory, so that two weirs cannot run the same experiment. Readers
//! need no lock.
//!
//! The kernel's lock on the file decides (flock(2)): it ends with the process, however that ends.
//! The file's text names the owner, for people, for [`holder_pid`], and for file systems without locks.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use host::journal::ProcessIdentity;
use rustix::fs::OFlags;

const LOCK_FILE: &str = "lock";
/// Maximum size of the file: a PID and a start time are shorter.
const BYTES_MAX: u64 = 4096;

/// Interval and maximum number of attempts to take the lock. A weir that was killed takes a moment
/// to end. A process that it had just started also holds its lock until that process has ended.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
const ATTEMPTS_MAX: u32 = 100;

/// Lock on a directory, held until this value is dropped.
#[derive(Debug)]
pub(super) struct DirLock {
    file: File,
}

/// Reason why a lock could not be taken.
#[derive(Debug)]
pub(super) enum LockError {
    /// A process holds it; its PID, if known.
    InUse(Option<i32>),
    /// The file cannot be written.
    Io(io::Error),
}

impl DirLock {
    /// Takes the lock. A lock of a process that has ended is taken over.
    pub(super) fn acquire(directory: &Path) -> Result<Self, LockError> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        // The text is replaced, which must not happen to the target of a link.
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let mut file = options.open(directory.join(LOCK_FILE)).map_err(LockError::Io)?;
        let mut attempts = 0;
        loop {
            let owner = read_owner(&mut file);
            let is_alive = owner.is_some_and(ProcessIdentity::is_alive);
            // On a file system without locks, only the text counts.
            let is_held = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            if !is_alive && !is_held {
                break;
            }
            if attempts == ATTEMPTS_MAX {
                return Err(LockError::InUse(owner.map(|owner| owner.pid)));
            }
            std::thread::sleep(RETRY_INTERVAL);
            attempts += 1;
        }
        let own = ProcessIdentity::from_current_process();
        write(&mut file, &serde_json::to_string(&own).unwrap_or_default()).map_err(LockError::Io)?;
        Ok(Self { file })
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // If this fails, the text names a process that has ended or will end.
        let _ = write(&mut self.file, "");
    }
}

/// Returns the PID of the living process that holds the directory, according to its lock file.
pub(super) fn holder_pid(directory: &Path) -> Option<i32> {
    let mut file = File::open(directory.join(LOCK_FILE)).ok()?;
    read_owner(&mut file).filter(|owner| owner.is_alive()).map(|owner| owner.pid)
}

fn read_owner(file: &mut File) -> Option<ProcessIdentity> {
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
    use host::journal::start_ticks;

    #[test]
    fn an_unreaped_process_counts_as_ended() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        // The process runs or is a zombie; which of both is not predictable.
        let running = start_ticks(pid);
        while let Some(ticks) = start_ticks(pid) {
            assert!(running.is_none_or(|before| before == ticks));
            std::thread::yield_now();
        }
        let owner = ProcessIdentity { pid, start_ticks: running.unwrap_or(1) };
        std::fs::write(directory.path().join(LOCK_FILE), serde_json::to_string(&owner).unwrap()).unwrap();
        assert!(DirLock::acquire(directory.path()).is_ok(), "{owner:?}");
        child.wait().unwrap();
    }

    #[test]
    fn one_process_has_it_and_a_dead_one_loses_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(holder_pid(path), None);
        let own = std::process::id() as i32;
        let lock = DirLock::acquire(path).unwrap();
        assert_eq!(holder_pid(path), Some(own));
        assert!(matches!(DirLock::acquire(path), Err(LockError::InUse(Some(pid))) if pid == own));
        drop(lock);
        assert_eq!(holder_pid(path), None);
        // The state after a process was killed and another one got its PID.
        std::fs::write(path.join(LOCK_FILE), format!("{{\"pid\":{own},\"start_ticks\":1}}")).unwrap();
        assert_eq!(holder_pid(path), None);
        drop(DirLock::acquire(path).unwrap());
        // On a file system without locks, the text identifies a living process.
        let ticks = start_ticks(own).unwrap();
        let text = format!("{{\"pid\":{own},\"start_ticks\":{ticks}}}");
        std::fs::write(path.join(LOCK_FILE), text).unwrap();
        assert!(matches!(DirLock::acquire(path), Err(LockError::InUse(Some(_)))));
        std::fs::write(path.join(LOCK_FILE), "{").unwrap();
        drop(DirLock::acquire(path).unwrap());
        let victim = path.join("victim");
        std::fs::write(&victim, "kept").unwrap();
        std::fs::remove_file(path.join(LOCK_FILE)).unwrap();
        std::os::unix::fs::symlink(&victim, path.join(LOCK_FILE)).unwrap();
        assert!(matches!(DirLock::acquire(path), Err(LockError::Io(_))));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    }
}
