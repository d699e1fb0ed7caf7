//! One kernel text file, kept open and read again and again; and the one error of this crate.
//!
//! Not for large tables (`/proc/net/tcp`): those are streamed by their reader.
//!
//! Descriptors are the program's own, and a load generator needs its own for connections: only
//! [`KEPT_SHARE`] of the limit is taken for files that stay open. A file beyond that is opened for
//! each reading, which costs about two microseconds more.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that this machine does not let us see, and why.
///
/// It is a value to report beside the figures that could be read, not a reason to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotObservable {
    /// What could not be read, in words ("processor time of the machine").
    pub what: String,
    /// Why: the file and the system's answer, or what was wrong with the text.
    pub why: String,
}

impl NotObservable {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }

    pub(crate) fn io(what: impl Into<String>, path: &str, error: &io::Error) -> Self {
        Self::new(what, format!("{path}: {error}"))
    }

    pub(crate) fn form(what: impl Into<String>, path: &str) -> Self {
        Self::new(what, format!("{path}: the text is not in the form that this version knows"))
    }
}

impl From<NotObservable> for record::observed::Missing {
    fn from(missing: NotObservable) -> Self {
        Self { what: missing.what, why: missing.why }
    }
}

impl fmt::Display for NotObservable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: not observable: {}", self.what, self.why)
    }
}

impl std::error::Error for NotObservable {}

/// A file of the kernel, open, with the buffer that every read of it reuses.
#[derive(Debug)]
pub(crate) struct Source {
    /// `None` where it is opened for each reading.
    file: Option<Kept>,
    what: &'static str,
    path: String,
    buffer: Vec<u8>,
}

impl Source {
    /// Opens `path`; `what` names the figure in errors.
    pub(crate) fn open(what: &'static str, path: impl Into<String>) -> Result<Self, NotObservable> {
        let path = path.into();
        let file = File::open(&path).map_err(|error| NotObservable::io(what, &path, &error))?;
        Ok(Self { file: Kept::new(file), what, path, buffer: vec![0; FIRST_BUFFER_BYTES] })
    }

    /// A file that was opened elsewhere, in another network namespace: it cannot be opened again
    /// from here, so it always stays open.
    pub(crate) fn of(what: &'static str, path: impl Into<String>, file: File) -> Self {
        let file = Some(Kept::always(file));
        Self { file, what, path: path.into(), buffer: vec![0; FIRST_BUFFER_BYTES] }
    }

    /// Reads the whole file from its start. Borrowed from the buffer unless the text is not UTF-8
    /// (a thread may be named by any bytes).
    pub(crate) fn read(&mut self) -> Result<Cow<'_, str>, NotObservable> {
        let opened;
        let file = match &self.file {
            Some(kept) => &kept.0,
            None => {
                opened = File::open(&self.path)
                    .map_err(|error| NotObservable::io(self.what, &self.path, &error))?;
                &opened
            }
        };
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                if filled >= MAX_BYTES {
                    let why = format!("{}: longer than {MAX_BYTES} bytes", self.path);
                    return Err(NotObservable::new(self.what, why));
                }
                self.buffer.resize(filled * 2, 0);
            }
            match file.read_at(&mut self.buffer[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(NotObservable::io(self.what, &self.path, &error)),
            }
        }
        Ok(String::from_utf8_lossy(&self.buffer[..filled]))
    }

    /// The error for text that the parser did not accept.
    pub(crate) fn bad_form(&self) -> NotObservable {
        NotObservable::form(self.what, &self.path)
    }
}

/// A file that stays open, counted.
#[derive(Debug)]
struct Kept(File);

/// Files that stay open, in this process.
static KEPT: AtomicU64 = AtomicU64::new(0);

impl Kept {
    /// `None` when there are enough already; the file is closed then.
    fn new(file: File) -> Option<Self> {
        use rustix::process::{Resource, getrlimit};
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        (KEPT.load(Ordering::Relaxed) < limit / KEPT_SHARE).then(|| Self::always(file))
    }

    fn always(file: File) -> Self {
        KEPT.fetch_add(1, Ordering::Relaxed);
        Self(file)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads one small file once, without its last line end.
pub(crate) fn read_once(what: &'static str, path: &str) -> Result<String, NotObservable> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned()),
        Err(error) => Err(NotObservable::io(what, path, &error)),
    }
}

/// One in so many of the descriptors that this process may have is used for files that stay open.
pub(crate) const KEPT_SHARE: u64 = 8;
const FIRST_BUFFER_BYTES: usize = 1024;
/// `/proc/stat` of a machine with thousands of processors and interrupts stays well below.
const MAX_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_missing_file_says_which_and_why() {
        let error = Source::open("a thing", "/proc/no/such/file").unwrap_err();
        assert_eq!(error.what, "a thing");
        assert!(error.to_string().contains("/proc/no/such/file"), "{error}");
    }

    #[test]
    fn a_file_is_read_from_its_start_each_time_and_the_buffer_grows() {
        let path = std::env::temp_dir().join(format!("host-source-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let text = "0123456789".repeat(500);
        file.write_all(text.as_bytes()).unwrap();
        let mut source = Source::open("a thing", path.to_str().unwrap()).unwrap();
        assert_eq!(source.read().unwrap(), text);
        file.set_len(3).unwrap();
        assert_eq!(source.read().unwrap(), "012");
        // Without a descriptor of its own it reads the same.
        source.file = None;
        assert_eq!(source.read().unwrap(), "012");
        std::fs::remove_file(path).unwrap();
        assert!(source.read().unwrap_err().why.contains("host-source-"));
    }

    #[test]
    fn files_that_stay_open_are_counted() {
        const ALONE: &str = "WEIR_TEST_SOURCE_ALONE";
        if std::env::var_os(ALONE).is_none() {
            // Other tests of this process open files too: it is tried in one that runs no other.
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["source::tests::files_that_stay_open_are_counted", "--exact"]);
            let output = command.env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            return assert!(output.status.success() && said.contains("1 passed"), "{said}");
        }
        assert_eq!(KEPT.load(Ordering::Relaxed), 0);
        let sources: Vec<_> =
            (0..100).map(|_| Source::open("a thing", "/proc/self/stat").unwrap()).collect();
        // With a low limit some of them do not stay open.
        let kept = sources.iter().filter(|source| source.file.is_some()).count() as u64;
        assert!(kept > 0);
        assert_eq!(KEPT.load(Ordering::Relaxed), kept);
        drop(sources);
        assert_eq!(KEPT.load(Ordering::Relaxed), 0);
    }
}
