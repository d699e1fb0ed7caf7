//! Files of automatic certificates. All are replaced at once, and only their owner can read them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use instant_acme::AccountCredentials;
use serde::{Deserialize, Serialize};

use super::lease::Lease;
use crate::plan::AcmePlan;
use crate::private_file::{MODE, replace, replace_among_others, with_path};

const ACCOUNT_FILE: &str = "account.json";
const LOCK_FILE: &str = "lock";

/// Account at an ACME server.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    directory: String,
    credentials: AccountCredentials,
}

/// Reads the account at the plan's ACME server; `None`: there is none yet, or it is one at another
/// server.
///
/// # Errors
/// The file cannot be read, or is malformed.
pub(super) fn read_account(plan: &AcmePlan) -> io::Result<Option<AccountCredentials>> {
    let path = plan.storage.join(ACCOUNT_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(with_path(&path, &error)),
    };
    let stored: StoredAccount = serde_json::from_str(&text)
        .map_err(|error| with_path(&path, &io::Error::new(io::ErrorKind::InvalidData, error)))?;
    Ok((stored.directory == *plan.directory).then_some(stored.credentials))
}

/// Stores an account.
///
/// # Errors
/// The directory cannot be written.
pub(super) fn write_account(plan: &AcmePlan, credentials: AccountCredentials) -> io::Result<()> {
    let stored = StoredAccount { directory: plan.directory.to_string(), credentials };
    replace(&plan.storage.join(ACCOUNT_FILE), &serde_json::to_vec(&stored)?)
}

/// Stores a certificate with its chain and key.
///
/// # Errors
/// The directory cannot be written.
pub(super) fn write_certificate(
    plan: &AcmePlan,
    chain: &str,
    key: &str,
    lease: Option<&Lease>,
) -> io::Result<()> {
    let content = format!("{}\n{key}", chain.trim_end());
    match lease {
        None => replace(&plan.certificate_path(), content.as_bytes()),
        Some(lease) => {
            lease.check()?;
            replace_among_others(&plan.certificate_path(), content.as_bytes(), lease.owner())
        }
    }
}

/// Locks the storage against another process until the file is dropped; `None`: another one has it.
///
/// # Errors
/// The directory cannot be written.
pub(super) fn lock(plan: &AcmePlan) -> io::Result<Option<File>> {
    let path = plan.storage.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    let file = options.create(true).write(true).truncate(false).mode(MODE).open(&path);
    let file = file.map_err(|error| with_path(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(with_path(&path, &error)),
    }
}
