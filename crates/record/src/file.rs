//! Records on disk: written atomically, and read with the file's name in every error.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::run::{Run, SCHEMA};

/// Maximum number of links on the way to a file (path_resolution(7)).
const LINKS_MAX: u32 = 40;
/// Maximum number of names that are tried for a temporary file.
const TEMPORARY_ATTEMPTS: u32 = 16;
/// Interval between two attempts to write to a pipe.
const READER_INTERVAL: Duration = Duration::from_millis(20);
/// Number of attempts without a read of the pipe: 30 s.
const READER_ATTEMPTS: u32 = 1_500;
/// Mode bits of a directory like `/tmp`: sticky, and everybody may write.
const LIKE_TMP: u32 = 0o1002;

/// Schema of a JSON file that names none.
pub const NO_SCHEMA: &str = "none";

/// Reason why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("{path}: {error}", path = .path.display())]
    Io {
        path: PathBuf,
        /// Error of the file system.
        error: io::Error,
    },
    /// It is not JSON, or a field is missing or of another type.
    #[error("{path}:{line}:{column}: {text}", path = .path.display())]
    Syntax {
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Description of the error.
        text: String,
    },
    /// It is no JSON, or JSON without a schema.
    #[error("{path}: not a weir record ({why}); the commands that measure write one with --json FILE", path = .path.display())]
    Foreign { path: PathBuf, why: String },
    #[error("{path}: the schema is '{actual}', but '{expected}' is expected here; {hint}",
        path = .path.display(), hint = hint_for_schema(.actual))]
    Schema {
        path: PathBuf,
        /// Schema that the file names.
        actual: String,
        expected: &'static str,
    },
}

/// Writes `bytes` to a temporary file beside `path` and renames it. So a reader never sees a part,
/// and a failure leaves the old file. The mode of an old file of this user is kept, and a link's target is replaced.
/// Anything but a regular file (a device, a pipe) cannot be replaced, and is written to directly.
///
/// # Errors
/// Those of the file system, with the path in the message.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let target = link_target(path).map_err(with_path)?;
    if let Some(mut file) = open_special(path, &target).map_err(with_path)? {
        return write_special(&mut file, bytes).map_err(with_path);
    }
    let old_metadata = fs::metadata(&target).ok();
    let (temporary, mut file) = create_temporary(&target).map_err(with_path)?;
    let write = || {
        // The mode of another user's file may let everybody write.
        if let Some(before) = old_metadata.filter(|before| is_own(before.uid())) {
            file.set_permissions(before.permissions())?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &target)
    };
    write().map_err(|error| {
        // Removes our partial file, which is of no use; if this fails too, there is nothing left to
        // do.
        let _ = fs::remove_file(&temporary);
        with_path(error)
    })
}

/// Creates the temporary file of an incomplete file, in the directory of the final one. It is always a new file: in
/// a directory of others, one with this name may be a link to any file.
///
/// # Errors
/// Those of the file system.
pub fn create_temporary(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let pid = std::process::id();
    for attempt in 0..TEMPORARY_ATTEMPTS {
        let number = if attempt == 0 { String::new() } else { format!(".{attempt}") };
        let temporary = path.with_file_name(format!(".{name}.{pid}{number}.part"));
        match fs::File::options().write(true).create_new(true).open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((temporary, created?)),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("all names like .{name}.{pid}.part are taken")))
}

fn is_own(user: u32) -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == user)
}

/// Returns the file that a path names, through links. A link of another user in a directory like `/tmp` is refused,
/// as the kernel does when it opens one (`fs.protected_symlinks`).
///
/// # Errors
/// Such a link, or too many links.
pub(crate) fn link_target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(link) = fs::symlink_metadata(&path) else { return Ok(path) };
        if !link.is_symlink() {
            return Ok(path);
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new(".")).to_owned();
        let directory = fs::metadata(&parent)?;
        let is_like_tmp = directory.mode() & LIKE_TMP == LIKE_TMP;
        if is_like_tmp && link.uid() != directory.uid() && !is_own(link.uid()) {
            let text = format!(
                "it is a symbolic link of user {}, in a directory where everybody may create files",
                link.uid()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        path = parent.join(fs::read_link(&path)?);
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Opens the device, pipe or socket that a path names; `None`: it names a regular file, or nothing. `target` is
/// [`link_target`] of the path. What was checked is what is written: the descriptor is opened first, without links.
///
/// # Errors
/// Those of the file system; another user made it in a directory like `/tmp`; no process reads the pipe.
pub(crate) fn open_special(path: &Path, target: &Path) -> io::Result<Option<fs::File>> {
    let locate = |path: &Path, more: OFlags| {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | more, Mode::empty()).map(fs::File::from)
    };
    let located = match locate(target, OFlags::NOFOLLOW) {
        // A link of /proc (`/dev/stdout`) names no path: its target may be a pipe.
        Err(Errno::NOENT) if is_link_of_proc(path) => locate(path, OFlags::empty())?,
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let found = located.metadata()?;
    if found.is_file() {
        return Ok(None);
    }
    if found.is_symlink() {
        return Err(io::Error::other("it became a symbolic link while it was opened"));
    }
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let is_foreign = fs::metadata(parent.unwrap_or_else(|| Path::new("."))).is_ok_and(|directory| {
        let is_like_tmp = directory.mode() & LIKE_TMP == LIKE_TMP;
        is_like_tmp && found.uid() != directory.uid() && !is_own(found.uid())
    });
    if is_foreign {
        let text = format!(
            "it is a device, pipe or socket of user {}, in a directory where everybody may create files",
            found.uid()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if found.file_type().is_socket() {
        // It has no other descriptors (proc_pid_fd(5)), and no reader would change that.
        return Err(Errno::NXIO.into());
    }
    let reopened = format!("/proc/self/fd/{}", located.as_raw_fd());
    for _ in 0..READER_ATTEMPTS {
        // A pipe without a reader would keep this process waiting for ever.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(&reopened, flags, Mode::empty()) {
            Err(Errno::NXIO) => std::thread::sleep(READER_INTERVAL),
            opened => return Ok(Some(opened?.into())),
        }
    }
    Err(no_reader())
}

fn no_reader() -> io::Error {
    let seconds = READER_ATTEMPTS * READER_INTERVAL.as_millis() as u32 / 1_000;
    io::Error::new(io::ErrorKind::TimedOut, format!("no process has read this pipe for {seconds} s"))
}

/// Returns whether a path leads to a link of `/proc/PID/fd` at its end.
fn is_link_of_proc(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(next) = fs::read_link(&path) else { return false };
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        if parent.is_some_and(|parent| parent.starts_with("/proc") && parent.ends_with("fd")) {
            return true;
        }
        path = path.parent().unwrap_or_else(|| Path::new("/")).join(next);
    }
    false
}

/// Writes to a device or a pipe, which does not block, and whose reader gets time between two reads.
///
/// # Errors
/// Those of the file system; the reader has stopped.
pub(crate) fn write_special(file: &mut fs::File, mut bytes: &[u8]) -> io::Result<()> {
    let mut attempts = 0;
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => (bytes, attempts) = (&bytes[written..], 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempts < READER_ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(READER_INTERVAL);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(no_reader()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a value as JSON, atomically.
///
/// # Errors
/// Those of the file system, with the path in the message.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    write_atomically(path, &bytes)
}

/// Reads the record of a run.
///
/// # Errors
/// The file cannot be read, is not a record, or has another schema.
pub fn read_run(path: &Path) -> Result<Run, ReadError> {
    read_record(path, SCHEMA)
}

/// Parses the record of a run that was not read from a file.
///
/// # Errors
/// It is not JSON of this form.
pub fn parse_run(bytes: &[u8]) -> serde_json::Result<Run> {
    serde_json::from_slice(bytes)
}

/// Returns the schema that a record names; `none` if it names none.
///
/// # Errors
/// The file cannot be read, or is not JSON.
pub fn read_schema(path: &Path) -> Result<String, ReadError> {
    schema_in(path, &read_bytes(path)?)
}

/// Reads a record of one schema.
///
/// # Errors
/// The file cannot be read, is not JSON of this form, or has another schema.
pub fn read_record<T: DeserializeOwned>(path: &Path, expected: &'static str) -> Result<T, ReadError> {
    let bytes = read_bytes(path)?;
    let actual = schema_in(path, &bytes)?;
    if actual == NO_SCHEMA {
        return Err(ReadError::Foreign { path: path.to_owned(), why: "it has no schema".to_owned() });
    }
    if actual != expected {
        return Err(ReadError::Schema { path: path.to_owned(), actual, expected });
    }
    // Parses the text again, because only that parser reports lines and columns.
    serde_json::from_slice(&bytes).map_err(|error| syntax_error(path, &error))
}

/// Returns the command that reads records of a schema.
fn hint_for_schema(schema: &str) -> String {
    let kind = schema.split('/').next().unwrap_or(schema);
    let command = match kind {
        "weir.run" => "read it with weir lab diagnose FILE or weir load report FILE",
        "weir.edge" | "weir.trial" => "read it with weir lab diagnose FILE",
        "weir.watch" => "read it with weir lab diagnose RUN FILE, after the record of a run",
        "weir.experiment" => "give its directory to weir lab show, weir lab compare or weir lab serve",
        "weir.selftest" | "weir.profile" | "weir.comparison" | "weir.calibration" => {
            return format!("no command of weir reads records of {kind}: they are for people and scripts");
        }
        _ => return "no command of weir reads this schema".to_owned(),
    };
    command.to_owned()
}

/// Reads a complete file. Anything but a regular file is rejected: a device may never end, and a
/// pipe may have no writer.
fn read_bytes(path: &Path) -> Result<Vec<u8>, ReadError> {
    let io_error = |error| ReadError::Io { path: path.to_owned(), error };
    let metadata = fs::metadata(path).map_err(io_error)?;
    if !metadata.is_file() {
        let file_kind = if metadata.is_dir() { "a directory" } else { "a device, a pipe or a socket" };
        let text = format!("it is {file_kind}; give a regular file");
        return Err(io_error(io::Error::new(io::ErrorKind::InvalidInput, text)));
    }
    let mut bytes = fs::read(path).map_err(io_error)?;
    // Programs of Windows write it before UTF-8.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

fn schema_in(path: &Path, bytes: &[u8]) -> Result<String, ReadError> {
    parse_schema(bytes).map_err(|error| match bytes.trim_ascii_start().first() {
        // A damaged record.
        Some(b'{') => syntax_error(path, &error),
        _ => ReadError::Foreign { path: path.to_owned(), why: "it is no JSON object".to_owned() },
    })
}

/// Returns the schema that a record names. All other fields are skipped, and take no memory.
pub(crate) fn parse_schema(bytes: &[u8]) -> serde_json::Result<String> {
    #[derive(Deserialize)]
    struct Named {
        schema: String,
    }
    match serde_json::from_slice(bytes) {
        Ok(Named { schema }) => Ok(schema),
        Err(_) => serde_json::from_slice::<IgnoredAny>(bytes).map(|_| NO_SCHEMA.to_owned()),
    }
}

fn syntax_error(path: &Path, error: &serde_json::Error) -> ReadError {
    ReadError::Syntax {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
        text: error.to_string(),
    }
}

/// Returns the current time, in RFC 3339 with milliseconds, UTC.
pub fn wall_clock_now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// Returns the current wall clock time, in ns since the beginning of 1970, UTC. It may be set
/// during a run: times are measured with another clock.
pub fn wall_clock_ns() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default()
}

/// Formats a time of [`wall_clock_ns`] like [`wall_clock_now`].
pub fn format_wall_clock(ns: u64) -> String {
    let timestamp = jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap_or_default();
    format!("{timestamp:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_wall_clock_is_written_with_milliseconds() {
        assert_eq!(format_wall_clock(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123Z");
        // The date may change in between.
        let (before, now, after) = (wall_clock_now(), format_wall_clock(wall_clock_ns()), wall_clock_now());
        assert!([&before[..10], &after[..10]].contains(&&now[..10]), "{before} {now} {after}");
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_no_part() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.json");
        write_atomically(&path, b"old").unwrap();
        assert!(write_atomically(&directory.path().join("missing/run.json"), b"new").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_modes_and_special_files_are_kept() {
        use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
        let directory = tempfile::tempdir().unwrap();
        let [path, link] = ["run.json", "link"].map(|name| directory.path().join(name));
        fs::write(&path, b"old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        symlink("run.json", &link).unwrap();
        write_atomically(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // Through a link: if this failed, the device itself would be gone.
        let device = directory.path().join("null");
        symlink("/dev/null", &device).unwrap();
        write_atomically(&device, b"lost").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let full = directory.path().join("full");
        symlink("/dev/full", &full).unwrap();
        assert!(write_atomically(&full, b"lost").unwrap_err().to_string().contains("/full: "));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
    }

    #[test]
    fn pipes_are_written_without_a_wait_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = directory.path().join(name);
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        };
        // The reader comes late, and reads more than a pipe holds.
        let path = make("read");
        let reader = std::thread::spawn({
            let path = path.clone();
            move || {
                std::thread::sleep(Duration::from_millis(100));
                fs::read(path).unwrap().len()
            }
        });
        write_atomically(&path, &vec![b'x'; 1_000_000]).unwrap();
        assert_eq!(reader.join().unwrap(), 1_000_000);
        // The standard output of a process may be a pipe.
        let (mut reader, writer) = io::pipe().unwrap();
        let own = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        let link = directory.path().join("stdout");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        for path in [own, link] {
            write_atomically(&path, b"text").unwrap();
            let mut text = [0; 4];
            io::Read::read_exact(&mut reader, &mut text).unwrap();
            assert_eq!(&text, b"text");
        }
        // In a directory like /tmp, a pipe of another user is refused at once.
        let shared = directory.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
        let path = make("shared/pipe");
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
            let error = write_atomically(&path, b"text").unwrap_err().to_string();
            assert!(error.contains("pipe or socket of user 65534"), "{error}");
        }
    }

    #[test]
    fn a_prepared_link_gets_nothing_written_through_it() {
        use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, b"kept").unwrap();
        let shared = directory.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let path = shared.join("run.json");
        // The names of temporary files can be guessed.
        let pid = std::process::id();
        for name in [format!(".run.json.{pid}.part"), format!(".run.json.{pid}.1.part")] {
            symlink(&victim, shared.join(name)).unwrap();
        }
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let link = shared.join("link.json");
        symlink(&victim, &link).unwrap();
        if lchown(&link, Some(65_534), None).is_ok() {
            let error = write_atomically(&link, b"new").unwrap_err().to_string();
            assert!(error.contains("symbolic link of user 65534"), "{error}");
            assert_eq!(fs::read(&victim).unwrap(), b"kept");
            // Also to a device, which could be a disk.
            let device = shared.join("device.json");
            symlink("/dev/null", &device).unwrap();
            lchown(&device, Some(65_534), None).unwrap();
            assert!(write_atomically(&device, b"new").is_err());
            // The owner of the old file does not choose the mode of the new one.
            let open = shared.join("open.json");
            fs::write(&open, b"old").unwrap();
            fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
            lchown(&open, Some(65_534), None).unwrap();
            write_atomically(&open, b"new").unwrap();
            let mode = fs::metadata(&open).unwrap().permissions().mode();
            assert_eq!(mode & 0o022, 0, "{mode:o}");
            // A link of this user, and one in a directory of this user, are followed.
            fs::remove_file(&link).unwrap();
            symlink("run.json", &link).unwrap();
            write_atomically(&link, b"newer").unwrap();
            let own = directory.path().join("own.json");
            symlink(&path, &own).unwrap();
            lchown(&own, Some(65_534), None).unwrap();
            write_atomically(&own, b"newest").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"newest");
        }
        let (first, second) = (directory.path().join("one"), directory.path().join("other"));
        symlink(&first, &second).unwrap();
        symlink(&second, &first).unwrap();
        assert!(write_atomically(&first, b"new").is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"kept");
    }

    #[test]
    fn errors_name_the_file_and_the_position() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.json");
        let error_text = |text: &str| {
            fs::write(&path, text).unwrap();
            read_run(&path).unwrap_err().to_string()
        };
        assert!(error_text("{\n  x").contains("run.json:2:3"));
        assert!(error_text("{\"schema\": \"other/1\"}").contains("'other/1'"));
        assert!(error_text("{\"schema\": \"weir.run/1\"}").contains("missing field"));
        assert_eq!(read_schema(&path).unwrap(), "weir.run/1");
        fs::write(&path, "{}").unwrap();
        assert_eq!(read_schema(&path).unwrap(), "none");
    }
}
