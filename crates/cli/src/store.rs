//! Calibrations that this host has, in `$XDG_STATE_HOME/weir/calibrations.json` (or below
//! `~/.local/state`): one a profile, the newest.

use std::fs;
use std::path::PathBuf;

use load::calibrate::{Calibration, SCHEMA};

use crate::exit::Failure;

/// More than this many are not kept; the oldest go.
const KEPT_MAX: usize = 64;

fn path() -> Option<PathBuf> {
    let state = match std::env::var_os("XDG_STATE_HOME") {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => PathBuf::from(std::env::var_os("HOME")?).join(".local/state"),
    };
    Some(state.join("weir").join("calibrations.json"))
}

/// The calibrations made on a host like this one. A file that cannot be read is as good as none.
pub(crate) fn load(fingerprint: &str) -> Vec<Calibration> {
    let mut all = read_all();
    all.retain(|one| one.schema == SCHEMA && one.host_fingerprint == fingerprint);
    all
}

fn read_all() -> Vec<Calibration> {
    let bytes = path().and_then(|path| fs::read(path).ok());
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Keeps a calibration in place of an older one of the same profile; where it is kept.
pub(crate) fn keep(calibration: &Calibration) -> Result<PathBuf, Failure> {
    let path = path().ok_or_else(|| {
        Failure::CannotRun("neither XDG_STATE_HOME nor HOME is set: nothing was kept".to_owned())
    })?;
    let mut all = read_all();
    all.retain(|one| {
        one.profile != calibration.profile || one.host_fingerprint != calibration.host_fingerprint
    });
    all.push(calibration.clone());
    let surplus = all.len().saturating_sub(KEPT_MAX);
    all.drain(..surplus);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| Failure::cannot(folder.display(), error))?;
    }
    record::file::write_json(&path, &all)?;
    Ok(path)
}
