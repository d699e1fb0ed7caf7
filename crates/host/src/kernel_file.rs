//! One kernel text file, kept open and read repeatedly; and the only error type of this crate.
//!
//! Large tables (`/proc/net/tcp`) are streamed by their readers instead.
//!
//! Descriptors belong to the process, and a load generator needs them for connections. Only
//! 1 / [`KEPT_OPEN_DIVISOR`] of the limit is used for files that stay open. Further files are opened for each
//! reading, which costs about two microseconds more.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Figure that this machine does not let us observe, and the reason.
///
/// It is a value to report beside the readable figures, not a reason to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotObservable {
    /// Name of the figure ("CPU time of the machine").
    pub figure: String,
    /// Reason: the file and the system's error, or the defect of the text.
    pub reason: String,
}

impl NotObservable {
    pub(crate) fn new(figure: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { figure: figure.into(), reason: reason.into() }
    }

    pub(crate) fn io(figure: impl Into<String>, path: &str, error: &io::Error) -> Self {
        let error = error.to_string();
        Self::new(figure, format!("{path}: {}", record::problem::without_error_number(&error)))
    }

    pub(crate) fn bad_format(figure: impl Into<String>, path: &str) -> Self {
        Self::new(figure, format!("{path}: unknown format"))
    }
}

impl From<NotObservable> for record::observed::UnobservableMetric {
    fn from(missing: NotObservable) -> Self {
        Self { figure: missing.figure, reason: missing.reason }
    }
}

impl fmt::Display for NotObservable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: not observable: {}", self.figure, self.reason)
    }
}

impl std::error::Error for NotObservable {}

/// An open kernel file, with the buffer that every reading reuses.
#[derive(Debug)]
pub(crate) struct KernelFile {
    /// `None` if the file is opened for each reading.
    file: Option<CountedFile>,
    figure: &'static str,
    path: String,
    buffer: Vec<u8>,
}

impl KernelFile {
    /// Opens `path`; `figure` names the figure in errors.
    pub(crate) fn open(figure: &'static str, path: impl Into<String>) -> Result<Self, NotObservable> {
        let path = path.into();
        let file = File::open(&path).map_err(|error| NotObservable::io(figure, &path, &error))?;
        Ok(Self { file: CountedFile::try_new(file), figure, path, buffer: vec![0; INITIAL_BUFFER_BYTES] })
    }

    /// Wraps a file that was opened elsewhere, in another network namespace. It cannot be opened
    /// again from here, so it always stays open.
    pub(crate) fn from_file(figure: &'static str, path: impl Into<String>, file: File) -> Self {
        let file = Some(CountedFile::new(file));
        Self { file, figure, path: path.into(), buffer: vec![0; INITIAL_BUFFER_BYTES] }
    }

    /// Reads the complete file from its start. The text is borrowed from the buffer unless it is not
    /// UTF-8 (a thread's name may hold any bytes).
    pub(crate) fn read(&mut self) -> Result<Cow<'_, str>, NotObservable> {
        let opened;
        let file = match &self.file {
            Some(counted) => &counted.0,
            None => {
                opened = File::open(&self.path)
                    .map_err(|error| NotObservable::io(self.figure, &self.path, &error))?;
                &opened
            }
        };
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                if filled >= MAX_BYTES {
                    let reason = format!("{}: longer than {MAX_BYTES} bytes", self.path);
                    return Err(NotObservable::new(self.figure, reason));
                }
                self.buffer.resize(filled * 2, 0);
            }
            match file.read_at(&mut self.buffer[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(NotObservable::io(self.figure, &self.path, &error)),
            }
        }
        Ok(String::from_utf8_lossy(&self.buffer[..filled]))
    }

    /// Returns the error for text that the parser rejected.
    pub(crate) fn bad_format(&self) -> NotObservable {
        NotObservable::bad_format(self.figure, &self.path)
    }
}

/// A counted file that stays open.
#[derive(Debug)]
struct CountedFile(File);

/// Number of files that stay open in this process.
static KEPT_OPEN: AtomicU64 = AtomicU64::new(0);

impl CountedFile {
    /// Keeps the file; closes it and returns `None` if there are enough already.
    fn try_new(file: File) -> Option<Self> {
        use rustix::process::{Resource, getrlimit};
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        (KEPT_OPEN.load(Ordering::Relaxed) < limit / KEPT_OPEN_DIVISOR).then(|| Self::new(file))
    }

    fn new(file: File) -> Self {
        KEPT_OPEN.fetch_add(1, Ordering::Relaxed);
        Self(file)
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        KEPT_OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads one small file once, without its trailing line end. A longer one is cut off: a process chooses the length of
/// its command line (prctl(2), `PR_SET_MM_MAP`).
pub(crate) fn read_once(figure: &'static str, path: &str) -> Result<String, NotObservable> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(MAX_BYTES as u64).read_to_end(&mut bytes)) {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned()),
        Err(error) => Err(NotObservable::io(figure, path, &error)),
    }
}

/// Divisor of the descriptor limit: one in this many descriptors is used for files that stay open.
pub(crate) const KEPT_OPEN_DIVISOR: u64 = 8;
const INITIAL_BUFFER_BYTES: usize = 1024;
/// Maximum size of a file. `/proc/stat` of a machine with thousands of CPUs and interrupts stays
/// well below.
const MAX_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_long_file_is_cut_off() {
        let path = std::env::temp_dir().join(format!("host-long-file-{}", std::process::id()));
        File::create(&path).unwrap().set_len(2 * MAX_BYTES as u64).unwrap();
        let text = read_once("test", path.to_str().unwrap()).unwrap();
        assert_eq!(text.len(), MAX_BYTES);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_missing_file_says_which_and_why() {
        let error = KernelFile::open("a thing", "/proc/no/such/file").unwrap_err();
        assert_eq!(error.figure, "a thing");
        assert!(error.to_string().contains("/proc/no/such/file"), "{error}");
    }

    #[test]
    fn a_file_is_read_from_its_start_each_time_and_the_buffer_grows() {
        let path = std::env::temp_dir().join(format!("host-source-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let text = "0123456789".repeat(500);
        file.write_all(text.as_bytes()).unwrap();
        let mut source = KernelFile::open("a thing", path.to_str().unwrap()).unwrap();
        assert_eq!(source.read().unwrap(), text);
        file.set_len(3).unwrap();
        assert_eq!(source.read().unwrap(), "012");
        // Opening the file for each reading gives the same text.
        source.file = None;
        assert_eq!(source.read().unwrap(), "012");
        std::fs::remove_file(path).unwrap();
        assert!(source.read().unwrap_err().reason.contains("host-source-"));
    }

    #[test]
    fn files_that_stay_open_are_counted() {
        const CHILD_PROCESS_ENV: &str = "WEIR_TEST_SOURCE_ALONE";
        if std::env::var_os(CHILD_PROCESS_ENV).is_none() {
            // Other tests of this process open files too, so this test runs in a process of its
            // own.
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["kernel_file::tests::files_that_stay_open_are_counted", "--exact"]);
            let output = command.env(CHILD_PROCESS_ENV, "1").output().unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout);
            return assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
        }
        assert_eq!(KEPT_OPEN.load(Ordering::Relaxed), 0);
        let sources: Vec<_> =
            (0..100).map(|_| KernelFile::open("a thing", "/proc/self/stat").unwrap()).collect();
        // With a low limit some files do not stay open.
        let kept_open = sources.iter().filter(|source| source.file.is_some()).count() as u64;
        assert!(kept_open > 0);
        assert_eq!(KEPT_OPEN.load(Ordering::Relaxed), kept_open);
        drop(sources);
        assert_eq!(KEPT_OPEN.load(Ordering::Relaxed), 0);
    }
}
