//! Stored calibrations of this host, in `$XDG_STATE_HOME/weir/calibrations.json` (or below
//! `~/.local/state`): the newest one per profile.

use std::fs;
use std::path::{Path, PathBuf};

use host::trusted_dir::{TrustError, TrustedDir};
use load::calibrate::{Calibration, SCHEMA};

use crate::failure::Failure;

/// Maximum number of kept calibrations; the oldest are removed.
const STORED_MAX: usize = 64;

/// Returns the directory of weir's state; `None` if the environment names none.
pub fn state_directory() -> Option<PathBuf> {
    let state = match std::env::var_os("XDG_STATE_HOME") {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => PathBuf::from(std::env::var_os("HOME")?).join(".local/state"),
    };
    Some(state.join("weir"))
}

/// Checks that no other user can change a directory that root uses: `HOME` may be that of another user (sudo). Other
/// users have what their `HOME` has.
pub fn check_trusted(directory: &Path) -> Result<(), TrustError> {
    match rustix::process::geteuid().is_root() {
        true => TrustedDir::open(directory).map(|_| ()),
        false => Ok(()),
    }
}

fn path() -> Result<PathBuf, Failure> {
    let directory = state_directory().ok_or_else(|| {
        Failure::CannotRun("calibrations: neither XDG_STATE_HOME nor HOME is set".to_owned())
    })?;
    let hint = "calibrations are not used (set XDG_STATE_HOME to a directory of root)";
    check_trusted(&directory).map_err(|error| Failure::cannot(hint, error))?;
    Ok(directory.join("calibrations.json"))
}

/// Returns the calibrations made on a host like this one. An unreadable file, or one that another user could change
/// and root would read, counts as an empty one.
pub fn load(fingerprint: &str) -> Vec<Calibration> {
    let mut all = read_all();
    all.retain(|calibration| calibration.schema == SCHEMA && calibration.host_fingerprint == fingerprint);
    all
}

fn read_all() -> Vec<Calibration> {
    let bytes = path().ok().and_then(|path| fs::read(path).ok());
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Stores a calibration in place of an older one of the same profile; returns the path of the file.
pub fn save(calibration: &Calibration) -> Result<PathBuf, Failure> {
    let path = path()?;
    let mut all = read_all();
    all.retain(|stored| {
        stored.profile != calibration.profile || stored.host_fingerprint != calibration.host_fingerprint
    });
    all.push(calibration.clone());
    let surplus = all.len().saturating_sub(STORED_MAX);
    all.drain(..surplus);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| Failure::cannot(directory.display(), error))?;
    }
    record::file::write_json(&path, &all)?;
    Ok(path)
}
