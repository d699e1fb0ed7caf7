//! Lock of a storage that hosts share: a file with its owner and the time until which it counts. It works
//! over NFS: the file is created by link(2) or with `O_EXCL`, and replaced by rename(2).
//!
//! ```text
//! free --link--> held --renew every third of the lease--> held --remove--> free
//! held by an owner that is dead: expired --rename, settle, read again--> held by the last one to rename
//! ```
//! Clocks of the hosts may differ by half a lease. A process that was stopped for longer than its lease finds
//! another owner before each step that matters, and gives up.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rt::clock::{MILLISECOND_NS, MonotonicTime, unix_ns};
use rt::timers::Timers;
use serde::{Deserialize, Serialize};

use crate::plan::{AcmePlan, SharingPlan};
use crate::private_file::{replace_among_others, with_path, write_new};

const LEASE_FILE: &str = "order.lease";
/// Maximum length of the file.
const BYTES_MAX: u64 = 4_096;
/// Maximum time after a takeover until the file is read again: others may have taken over at the same time.
const SETTLE_MAX_NS: u64 = 2_000 * MILLISECOND_NS;

/// Content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LeaseContent {
    /// Name of this lock of this process, which no other has.
    owner: String,
    /// Time until which it counts, in milliseconds since 1970.
    expires_at_ms: u64,
}

/// Lock that this process holds.
#[derive(Debug)]
pub(super) struct Lease {
    path: PathBuf,
    owner: String,
    lease_ns: u64,
}

/// The lock was lost.
#[derive(Debug, thiserror::Error)]
#[error("another replica has taken over the order: this one was stopped for longer than its lease")]
struct LostLease;

impl Lease {
    /// Acquires the lock of a storage; `None`: another one holds it.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(super) async fn acquire(
        plan: &AcmePlan,
        sharing: SharingPlan,
        timers: &Timers,
    ) -> io::Result<Option<Self>> {
        let path = plan.storage.join(LEASE_FILE);
        let owner = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
        let lease = Self { path, owner, lease_ns: sharing.lease_ns };
        if lease.create()? {
            return Ok(Some(lease));
        }
        let Some(found) = FoundLease::read(&lease.path)? else {
            // Its owner has removed it meanwhile: the next attempt creates it.
            return Ok(None);
        };
        if !found.is_expired(unix_ns() / MILLISECOND_NS, lease.lease_ns / MILLISECOND_NS) {
            return Ok(None);
        }
        lease.write()?;
        let settle_ns = (lease.lease_ns / 4).min(SETTLE_MAX_NS);
        timers.sleep_until((MonotonicTime::now() + settle_ns).as_ns()).await;
        Ok(lease.is_owner().then_some(lease))
    }

    /// Renews the lock until it is lost.
    pub(super) async fn keep(&self, timers: &Timers) -> io::Error {
        loop {
            timers.sleep_until((MonotonicTime::now() + self.lease_ns / 3).as_ns()).await;
            // A storage that cannot be written now may be back before the lease ends.
            match self.check() {
                Ok(()) => drop(self.write()),
                Err(error) => return error,
            }
        }
    }

    /// Checks that the lock has not been lost.
    ///
    /// # Errors
    /// Another one has taken over.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_owner() { Ok(()) } else { Err(io::Error::other(LostLease)) }
    }

    /// Returns a name for files of this owner, which no other writer has.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    fn is_owner(&self) -> bool {
        let found = FoundLease::read(&self.path).ok().flatten();
        found.and_then(|found| found.content).is_some_and(|content| content.owner == self.owner)
    }

    fn content(&self) -> io::Result<Vec<u8>> {
        let expires_at_ms = unix_ns().saturating_add(self.lease_ns) / MILLISECOND_NS;
        Ok(serde_json::to_vec(&LeaseContent { owner: self.owner.clone(), expires_at_ms })?)
    }

    /// Creates the file, complete from the start. Returns false if it exists.
    fn create(&self) -> io::Result<bool> {
        let new = self.path.with_extension(format!("{}.new", self.owner));
        write_new(&new, &self.content()?).map_err(|error| with_path(&new, &error))?;
        let linked = fs::hard_link(&new, &self.path);
        // NFS may report an error although it has made the link (open(2)).
        let is_linked = fs::metadata(&new).is_ok_and(|metadata| metadata.nlink() == 2);
        let _ = fs::remove_file(&new);
        match linked {
            _ if is_linked => Ok(true),
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            // A file system without links.
            Err(_) => match write_new(&self.path, &self.content()?) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                Err(error) => Err(with_path(&self.path, &error)),
            },
        }
    }

    fn write(&self) -> io::Result<()> {
        replace_among_others(&self.path, &self.content()?, &self.owner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_owner() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The file as it is now.
struct FoundLease {
    /// `None`: it is malformed.
    content: Option<LeaseContent>,
    modified_ms: u64,
}

impl FoundLease {
    /// Reads the file; `None`: there is none.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        let read = || {
            let metadata = fs::metadata(path)?;
            let text = match metadata.is_file() && metadata.len() <= BYTES_MAX {
                true => fs::read(path)?,
                false => Vec::new(),
            };
            let since_1970 = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let modified_ms = since_1970.as_millis() as u64;
            io::Result::Ok(Self { content: serde_json::from_slice(&text).ok(), modified_ms })
        };
        match read() {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(with_path(path, &error)),
        }
    }

    /// Returns whether its owner is dead. A malformed file, and one with a time that no owner writes, counts
    /// from its last change.
    fn is_expired(&self, now_ms: u64, lease_ms: u64) -> bool {
        let skew_ms = lease_ms / 2;
        let plausible_ms = now_ms + lease_ms + skew_ms;
        let expires_at_ms = match &self.content {
            Some(content) if content.expires_at_ms <= plausible_ms => content.expires_at_ms,
            _ if self.modified_ms > now_ms + skew_ms => return true,
            _ => self.modified_ms + lease_ms,
        };
        now_ms > expires_at_ms + skew_ms
    }
}

#[cfg(test)]
mod tests;
