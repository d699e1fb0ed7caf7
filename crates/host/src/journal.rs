//! Journal files: lines that are on the disk before the change that they announce, with the process that owns
//! them. The meaning of the lines is their user's.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::process::ProcessReader;
use crate::trusted_dir::{TrustError, TrustedDir, state_directory};

/// Directory of the journals of older weirs that root ran.
const OLD_DIRECTORY: &str = "/run/weir";
/// Maximum number of entries that are searched there.
const OLD_ENTRIES_MAX: usize = 10_000;

/// Process, identified across reuse of its PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: i32,
    /// Start time, in ticks since boot.
    pub start_ticks: u64,
}

impl ProcessIdentity {
    #[must_use]
    pub fn from_current_process() -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        Self { pid, start_ticks: start_ticks(pid).unwrap_or(0) }
    }

    /// Returns the identity of process `pid`. `None` if there is no such process ([`start_ticks`]).
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, start_ticks: start_ticks(pid)? })
    }

    /// Returns a file name that identifies the process: PID, and start time in hexadecimal.
    pub fn file_stem(self) -> String {
        format!("{}-{:x}", self.pid, self.start_ticks)
    }

    /// Parses [`ProcessIdentity::file_stem`].
    #[must_use]
    pub fn from_file_stem(stem: &str) -> Option<Self> {
        let (pid, ticks) = stem.split_once('-')?;
        let process = Self { pid: pid.parse().ok()?, start_ticks: u64::from_str_radix(ticks, 16).ok()? };
        // Other spellings of the numbers are not of weir.
        (process.file_stem() == stem).then_some(process)
    }

    /// Opens the process. `None` if it has ended.
    ///
    /// # Errors
    /// The kernel has no descriptors of processes (Linux 5.3), or refuses one.
    pub fn open(self) -> io::Result<Option<OpenProcess>> {
        // A PID of 0 or below would be a group of processes.
        let Some(pid) = Some(self.pid).filter(|&pid| pid > 0).and_then(Pid::from_raw) else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Until the process of the descriptor has ended, the PID is its own: the check is about the same one.
            Ok(descriptor) => Ok(self.is_alive().then_some(OpenProcess(descriptor))),
            Err(Errno::SRCH) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    pub fn is_alive(self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }

    /// Returns whether the process may be alive, if it had this PID in `namespace` ([`pid_namespace`]). A process of
    /// another namespace may always be: this one does not see it. `None` is the namespace of this process.
    #[must_use]
    pub fn may_be_alive(self, namespace: Option<&str>) -> bool {
        let is_foreign = namespace.is_some_and(|namespace| pid_namespace().as_deref() != Some(namespace));
        is_foreign || self.is_alive()
    }
}

/// Descriptor of a process (pidfd_open(2)): it never refers to another one, also after the PID is reused.
#[derive(Debug)]
pub struct OpenProcess(OwnedFd);

impl OpenProcess {
    /// Opens process `pid`. `None` if it has ended.
    ///
    /// # Errors
    /// As for [`ProcessIdentity::open`].
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        ProcessIdentity::of(pid).map_or(Ok(None), ProcessIdentity::open)
    }

    /// Kills the process. One that has ended is no error.
    ///
    /// # Errors
    /// The kernel does not permit it.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.0, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Returns the start time of process `pid`, in ticks since boot. `None` if there is no such
/// process, or if it is a zombie: only its PID is left of it.
pub fn start_ticks(pid: i32) -> Option<u64> {
    // A process may have a name that is not UTF-8.
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    if String::from_utf8_lossy(&stat).rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')) {
        return None;
    }
    Some(ProcessReader::open(pid).ok()?.sample().ok()?.start_ticks)
}

/// Returns the name of this process's PID namespace (pid_namespaces(7)), unique until the machine's next boot.
#[must_use]
pub fn pid_namespace() -> Option<String> {
    Some(fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned())
}

pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Journal of this process. It is locked as long as this lives, so that no other process undoes it, whatever PID
/// namespace that one is in.
#[derive(Debug)]
pub struct JournalFile {
    directory: TrustedDir,
    name: String,
    file: File,
}

impl JournalFile {
    /// Creates a journal in `directory`.
    ///
    /// # Errors
    /// The file cannot be created, or exists.
    pub fn create(directory: TrustedDir, name: &str) -> Result<Self, TrustError> {
        let file = directory.create_file(name)?;
        // A file system without locks leaves the owner in the first line.
        let _ = file.try_lock();
        Ok(Self { directory, name: name.to_owned(), file })
    }

    /// Appends text. It is on the disk on return.
    ///
    /// # Errors
    /// It cannot be written: then the announced change must not be made.
    pub fn append(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()?;
        // The directory entry must survive a power failure as well.
        self.directory.sync()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the journal.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self) -> Result<(), TrustError> {
        self.directory.remove_file(&self.name)
    }
}

/// Journal that this process has locked, so that only one process undoes it.
#[derive(Debug)]
pub struct LockedJournal<'a> {
    _lock: File,
    directory: &'a TrustedDir,
    name: String,
    pub text: String,
}

impl<'a> LockedJournal<'a> {
    /// Locks a journal and reads it. `None` if another process has locked it, or has removed it.
    ///
    /// # Errors
    /// Another user could change it, or it cannot be read.
    pub fn open(directory: &'a TrustedDir, name: &str) -> Result<Option<Self>, TrustError> {
        let Some(file) = directory.open_file(name)? else { return Ok(None) };
        if file.try_lock().is_err() {
            return Ok(None);
        }
        if file.metadata().is_ok_and(|metadata| metadata.nlink() == 0) {
            return Ok(None);
        }
        let text = directory.read(name, &file)?;
        Ok(Some(Self { _lock: file, directory, name: name.to_owned(), text }))
    }

    /// Removes the journal.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(self) -> Result<(), TrustError> {
        self.directory.remove_file(&self.name)
    }
}

/// Reads a journal without a lock. `None` if it does not exist.
///
/// # Errors
/// Another user could change it, or it cannot be read.
pub fn read(directory: &TrustedDir, name: &str) -> Result<Option<String>, TrustError> {
    let Some(file) = directory.open_file(name)? else { return Ok(None) };
    directory.read(name, &file).map(Some)
}

/// Journal of an older weir, in the runtime directory of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldJournal {
    pub path: PathBuf,
    /// Path at which this weir would obey it.
    pub new_path: PathBuf,
}

/// Returns the journals of killed processes in the directory where older weirs of root had them. They are not read:
/// the service manager gives that directory to the user of a service.
pub fn old_journals(kind: &str) -> Vec<OldJournal> {
    match rustix::process::geteuid().is_root() {
        true => old_journals_in(&Path::new(OLD_DIRECTORY).join(kind), &state_directory().join(kind)),
        false => Vec::new(),
    }
}

/// Parses the owner in the name of a journal: `PID-START.journal` or `weir-PID-START-NUMBER.journal`.
fn journal_owner(name: &str) -> Option<ProcessIdentity> {
    let stem = name.strip_suffix(".journal")?;
    let Some(run) = stem.strip_prefix("weir-") else { return ProcessIdentity::from_file_stem(stem) };
    let (owner, number) = run.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    ProcessIdentity::from_file_stem(owner).filter(|_| is_number)
}

fn old_journals_in(old: &Path, new: &Path) -> Vec<OldJournal> {
    let entries = fs::read_dir(old).into_iter().flatten().flatten().take(OLD_ENTRIES_MAX);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    // Other names are not of weir; and these need no quotes in a shell.
    let is_left = |name: &String| journal_owner(name).is_some_and(|owner| !owner.is_alive());
    let mut names: Vec<String> = names.filter(is_left).collect();
    names.sort();
    names.into_iter().map(|name| OldJournal { path: old.join(&name), new_path: new.join(&name) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_locked_by_one_reader_and_removed_once() {
        let path = std::env::temp_dir().join(format!("host-journal-{}", std::process::id()));
        let open = || TrustedDir::open_or_create(&path).unwrap();
        let directory = open();
        let mut journal = JournalFile::create(open(), "a.journal").unwrap();
        journal.append("one\n").unwrap();
        journal.append("two\n").unwrap();
        assert!(JournalFile::create(open(), "a.journal").is_err());
        assert_eq!(directory.names("journal").unwrap(), ["a.journal"]);
        assert!(LockedJournal::open(&directory, "a.journal").unwrap().is_none(), "its owner lives");
        drop(journal);
        let locked = LockedJournal::open(&directory, "a.journal").unwrap().unwrap();
        assert_eq!(locked.text, "one\ntwo\n");
        assert!(LockedJournal::open(&directory, "a.journal").unwrap().is_none());
        locked.remove().unwrap();
        assert!(LockedJournal::open(&directory, "a.journal").unwrap().is_none());
        assert_eq!(directory.names("journal").unwrap(), [""; 0]);
        fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn journals_of_older_versions_are_listed_by_names_that_only_weir_gives() {
        let path = std::env::temp_dir().join(format!("host-old-journals-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let ProcessIdentity { pid, start_ticks } = ProcessIdentity::from_current_process();
        let (dead, alive) = (format!("{pid}-{:x}", start_ticks + 1), format!("{pid}-{start_ticks:x}"));
        let expected = [format!("{dead}.journal"), format!("weir-{dead}-0.journal")];
        let others = [
            format!("{alive}.journal"),
            format!("weir-{alive}-0.journal"),
            "x; rm -rf $HOME.journal".to_owned(),
            "weir-'-1-0.journal".to_owned(),
            format!("weir-{dead}-;id.journal"),
            format!("weir-+{dead}-0.journal"),
            format!("{dead}.txt"),
        ];
        expected.iter().chain(&others).for_each(|name| fs::write(path.join(name), "").unwrap());
        let listed = old_journals_in(&path, Path::new("/new"));
        let names: Vec<_> =
            listed.iter().map(|journal| journal.path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, expected);
        assert_eq!(listed[0].new_path, Path::new("/new").join(&expected[0]));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_process_is_killed_by_its_descriptor_only_if_its_start_time_is_right() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessIdentity::of(child.id() as i32).unwrap();
        let other = ProcessIdentity { start_ticks: process.start_ticks + 1, ..process };
        assert!(other.open().unwrap().is_none());
        assert!(ProcessIdentity { pid: -1, start_ticks: 0 }.open().unwrap().is_none());
        let opened = process.open().unwrap().unwrap();
        opened.kill().unwrap();
        child.wait().unwrap();
        opened.kill().unwrap();
        assert!(process.open().unwrap().is_none() && OpenProcess::of(process.pid).unwrap().is_none());
    }

    #[test]
    fn processes_are_told_apart_by_their_start() {
        let own = ProcessIdentity::from_current_process();
        assert!(own.is_alive());
        assert_eq!(ProcessIdentity::from_file_stem(&own.file_stem()), Some(own));
        assert_eq!(ProcessIdentity::from_file_stem("7-x"), None);
        let ended = ProcessIdentity { start_ticks: own.start_ticks + 1, ..own };
        assert!(!ended.is_alive() && !ended.may_be_alive(None));
        assert!(!ended.may_be_alive(pid_namespace().as_deref()));
        assert!(ended.may_be_alive(Some("pid:[1]")), "this process does not see it");
        assert!(!ProcessIdentity { pid: i32::MAX, start_ticks: 1 }.is_alive());
        assert!(!boot_id().is_empty());
    }
}
