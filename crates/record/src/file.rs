//! Records on disk: written whole or not at all, and read with the file's name in every error.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::run::{Run, SCHEMA};

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("{path}: {error}", path = .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not JSON, or a field is missing or of another type.
    #[error("{path}:{line}:{column}: {text}", path = .path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong.
        text: String,
    },
    /// It has another schema.
    #[error("{path}: the schema is '{found}', this weir reads '{wanted}' here; {hint}",
        path = .path.display(), hint = who_reads(.found))]
    Schema {
        /// Which file.
        path: PathBuf,
        /// The schema that it names.
        found: String,
        /// The schema that is read here.
        wanted: &'static str,
    },
}

/// Writes `bytes` to a temporary name beside `path` and renames it, so that a reader never sees a
/// part and a failure leaves the old file, whose mode is kept. Of a link it is the file that it leads to.
/// What is no file (a device, a pipe) is written into, for it cannot be replaced.
///
/// # Errors
/// As of the file system, with the path in the message.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let explain =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let before = fs::metadata(path).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        let written = fs::File::options().write(true).open(path);
        return written.and_then(|mut file| file.write_all(bytes)).map_err(explain);
    }
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let temporary = beside(&target).map_err(explain)?;
    let written = fs::File::create(&temporary).and_then(|mut file| {
        if let Some(before) = before {
            file.set_permissions(before.permissions())?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &target)
    });
    written.map_err(|error| {
        // The part is ours and of no use; if even this fails, there is nothing left to do.
        let _ = fs::remove_file(&temporary);
        explain(error)
    })
}

/// The name of a file that is not whole yet, in the folder of the one that it will be.
pub(crate) fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{}.part", std::process::id())))
}

/// Writes a value as JSON, whole or not at all.
///
/// # Errors
/// As of the file system, with the path in the message.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    write_whole(path, &bytes)
}

/// Reads the record of a run.
///
/// # Errors
/// The file cannot be read, is not a record, or has another schema.
pub fn read_run(path: &Path) -> Result<Run, ReadError> {
    read(path, SCHEMA)
}

/// The schema that a record names; `none` where it names none.
///
/// # Errors
/// The file cannot be read, or is not JSON.
pub fn schema(path: &Path) -> Result<String, ReadError> {
    schema_in(path, &bytes_of(path)?)
}

/// Reads a record of one schema.
///
/// # Errors
/// The file cannot be read, is not JSON of this form, or has another schema.
pub fn read<T: DeserializeOwned>(path: &Path, wanted: &'static str) -> Result<T, ReadError> {
    let bytes = bytes_of(path)?;
    let found = schema_in(path, &bytes)?;
    if found != wanted {
        return Err(ReadError::Schema { path: path.to_owned(), found, wanted });
    }
    // Parsed again from the text, because only that knows lines and columns.
    serde_json::from_slice(&bytes).map_err(|error| syntax(path, &error))
}

/// Which command reads records of a schema.
fn who_reads(schema: &str) -> String {
    let kind = schema.split('/').next().unwrap_or(schema);
    let command = match kind {
        "weir.run" => "weir lab diagnose FILE, and weir load report FILE, read it",
        "weir.edge" | "weir.trial" => "weir lab diagnose FILE reads it",
        "weir.watch" => "weir lab diagnose RUN FILE reads it, behind the record of a run",
        "weir.experiment" => {
            "weir lab show, weir lab compare and weir lab serve read it, in its folder"
        }
        "weir.selftest" | "weir.profile" | "weir.comparison" | "weir.calibration" => {
            return format!("a record of {kind} is for people and scripts: no command reads it");
        }
        _ => return "no command of weir reads that".to_owned(),
    };
    command.to_owned()
}

/// All of a file. What is none is refused: a device may never end, and a pipe nobody may write to.
fn bytes_of(path: &Path) -> Result<Vec<u8>, ReadError> {
    let explain = |error| ReadError::Io { path: path.to_owned(), error };
    let metadata = fs::metadata(path).map_err(explain)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a folder" } else { "a device, a pipe or a socket" };
        let text = format!("it is {what}; a record is read from a file");
        return Err(explain(io::Error::new(io::ErrorKind::InvalidInput, text)));
    }
    fs::read(path).map_err(explain)
}

fn schema_in(path: &Path, bytes: &[u8]) -> Result<String, ReadError> {
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| syntax(path, &error))?;
    let found = value.get("schema").and_then(serde_json::Value::as_str);
    Ok(found.unwrap_or("none").to_owned())
}

fn syntax(path: &Path, error: &serde_json::Error) -> ReadError {
    ReadError::Syntax {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
        text: error.to_string(),
    }
}

/// Now, in RFC 3339 with milliseconds, UTC.
#[must_use]
pub fn wall_clock() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// Now by the wall clock, in ns since the beginning of 1970, UTC. It may be set while something runs:
/// times are measured with another clock.
#[must_use]
pub fn wall_clock_ns() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default()
}

/// A time of [`wall_clock_ns`] as [`wall_clock`] writes it.
#[must_use]
pub fn wall_clock_text(ns: u64) -> String {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap_or_default();
    format!("{moment:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_wall_clock_is_written_with_milliseconds() {
        assert_eq!(wall_clock_text(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123Z");
        // A day may end in between.
        let (before, now, after) = (wall_clock(), wall_clock_text(wall_clock_ns()), wall_clock());
        assert!([&before[..10], &after[..10]].contains(&&now[..10]), "{before} {now} {after}");
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_no_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        write_whole(&path, b"old").unwrap();
        assert!(write_whole(&folder.path().join("missing/run.json"), b"new").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_a_mode_and_what_is_no_file_stay_what_they_are() {
        use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["run.json", "link"].map(|name| folder.path().join(name));
        fs::write(&path, b"old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        symlink("run.json", &link).unwrap();
        write_whole(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // By a link: where this failed, the device itself would be gone.
        let device = folder.path().join("null");
        symlink("/dev/null", &device).unwrap();
        write_whole(&device, b"lost").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let full = folder.path().join("full");
        symlink("/dev/full", &full).unwrap();
        assert!(write_whole(&full, b"lost").unwrap_err().to_string().contains("/full: "));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let why = |text: &str| {
            fs::write(&path, text).unwrap();
            read_run(&path).unwrap_err().to_string()
        };
        assert!(why("{\n  x").contains("run.json:2:3"));
        assert!(why("{\"schema\": \"other/1\"}").contains("'other/1'"));
        assert!(why("{\"schema\": \"weir.run/1\"}").contains("missing field"));
        assert_eq!(schema(&path).unwrap(), "weir.run/1");
        fs::write(&path, "{}").unwrap();
        assert_eq!(schema(&path).unwrap(), "none");
    }
}
