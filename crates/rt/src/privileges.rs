//! Drops privileges that a process does not need once its sockets are bound: root, the way back to
//! it, and unneeded files (credentials(7), prctl(2), landlock(7)).
//!
//! [`drop_privileges`] must be called after binding and **before any thread is started**: `no_new_privs`
//! and Landlock apply to the calling thread and those that it starts later, and to no other. It
//! counts the threads and fails if there are more. The caller knows which files are needed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::process::{getegid, geteuid, getgid, getuid};

/// Privileges to drop. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// User ID to change to, permanently. With it or a group, all supplementary groups are dropped.
    pub user: Option<u32>,
    /// Group ID to change to, permanently. Without one, the group is unchanged.
    pub group: Option<u32>,
    /// True if no program executed from here on may have more privileges than this process
    /// (`PR_SET_NO_NEW_PRIVS`). [`Privileges::files`] implies it.
    pub no_new_privileges: bool,
    /// The only files that can be opened from here on; `None`: no change. Open ones stay open.
    pub files: Option<AllowedFiles>,
}

/// Files and directories that stay accessible, as far as their permissions allow. A directory
/// includes everything below it, and must be named if files are created in it. A log that is
/// rotated by renaming needs its directory in [`AllowedFiles::write`]. A config that an editor replaces
/// needs its directory in [`AllowedFiles::read`].
///
/// Connecting to unix sockets is not restricted: a reload may name new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedFiles {
    /// Paths for reading. [`RESOLVER_PATHS`] has those that name resolution needs.
    pub read: Vec<PathBuf>,
    /// Paths for reading, writing, creating, renaming and removing files and unix sockets.
    pub write: Vec<PathBuf>,
    /// Directories for the same, and for creating directories in them.
    pub trees: Vec<PathBuf>,
}

/// Files that the system's resolver reads: its config, which may be replaced at any time and so is
/// listed as its directory, and its plug-ins.
pub const RESOLVER_PATHS: &[&str] = &[
    "/etc",
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// Result of [`Privileges::files`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    NotRequested,
    /// The kernel enforces the restriction.
    Enforced {
        abi: u32,
        /// True if this version supports all requested rights; an older one does not restrict
        /// `truncate`, for instance.
        fully_supported: bool,
        /// Paths that did not exist, or could not be accessed, and so stay inaccessible.
        skipped: Vec<PathBuf>,
    },
    /// This kernel does not support it.
    NotSupported {
        reason: &'static str,
    },
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRequested => write!(f, "file access is not confined"),
            Self::Enforced { abi, fully_supported, skipped } => {
                write!(f, "file access is confined (Landlock ABI {abi}")?;
                write!(f, "{})", if *fully_supported { "" } else { ", partly supported by this kernel" })?;
                for (index, path) in skipped.iter().enumerate() {
                    write!(f, "{}", if index == 0 { "; missing: " } else { ", " })?;
                    write!(f, "{}", path.display())?;
                }
                Ok(())
            }
            Self::NotSupported { reason } => write!(f, "file access is not confined: {reason}"),
        }
    }
}

/// Reason why privileges could not be dropped. The process may have dropped some of them.
#[derive(Debug)]
pub enum PrivilegeError {
    /// Threads were started before; the restrictions would not apply to them.
    ThreadsRunning(usize),
    /// The number of threads could not be read from `/proc`.
    ThreadCountUnreadable(io::Error),
    SyscallFailed(&'static str, io::Error),
    /// The change was made but can be undone.
    Reversible,
    /// The Landlock rules could not be created.
    Landlock(RulesetError),
}

impl fmt::Display for PrivilegeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThreadsRunning(count) => write!(
                f,
                "privileges must be dropped before threads start, but {count} threads run; this is \
                 a bug in weir"
            ),
            Self::ThreadCountUnreadable(error) => {
                write!(f, "cannot count the threads of this process in /proc: {error}")
            }
            Self::SyscallFailed(action, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "cannot {action}: not permitted (start as root, or remove this setting)")
            }
            Self::SyscallFailed(action, error) => write!(f, "cannot {action}: {error}"),
            Self::Reversible => {
                write!(f, "the process can become root again after dropping root: not safe to run")
            }
            Self::Landlock(error) => write!(f, "cannot confine file access: {error}"),
        }
    }
}

impl std::error::Error for PrivilegeError {}

/// Drops what `privileges` list: groups, group, user, then the way to new privileges, then files.
///
/// Only root can enter a namespace, so sockets in other namespaces must be created before
/// ([`crate::namespace`]).
///
/// # Errors
/// See [`PrivilegeError`]. A kernel without Landlock is reported, but not an error.
pub fn drop_privileges(privileges: &Privileges) -> Result<Confinement, PrivilegeError> {
    if *privileges == Privileges::default() {
        return Ok(Confinement::NotRequested);
    }
    match std::fs::read_dir("/proc/self/task").map(Iterator::count) {
        Ok(0 | 1) => {}
        Ok(count) => return Err(PrivilegeError::ThreadsRunning(count)),
        Err(error) => return Err(PrivilegeError::ThreadCountUnreadable(error)),
    }
    change_user_and_group(privileges.user, privileges.group)?;
    if privileges.no_new_privileges {
        rustix::thread::set_no_new_privs(true)
            .map_err(|error| PrivilegeError::SyscallFailed("set no_new_privs", error.into()))?;
    }
    match &privileges.files {
        Some(files) => restrict_files(files),
        None => Ok(Confinement::NotRequested),
    }
}

/// Changes user and group. The "unchanged" value of setresuid(2) and setresgid(2) is never passed:
/// each call sets all three IDs, so that there is none to return to.
#[allow(unsafe_code)]
fn change_user_and_group(user: Option<u32>, group: Option<u32>) -> Result<(), PrivilegeError> {
    let check = |action, result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(PrivilegeError::SyscallFailed(action, io::Error::last_os_error())),
    };
    let new_group = group.filter(|&id| id != getgid().as_raw() || id != getegid().as_raw());
    let new_user = user.filter(|&id| id != getuid().as_raw() || id != geteuid().as_raw());
    if new_group.is_none() && new_user.is_none() {
        return Ok(());
    }
    // SAFETY: a list of no groups is not read.
    check("drop the supplementary groups", unsafe { libc::setgroups(0, std::ptr::null()) })?;
    if let Some(id) = new_group {
        // SAFETY: numbers only.
        check("change the group", unsafe { libc::setresgid(id, id, id) })?;
    }
    if let Some(id) = new_user {
        // SAFETY: numbers only.
        check("change the user", unsafe { libc::setresuid(id, id, id) })?;
        // SAFETY: numbers only.
        if id != 0 && unsafe { libc::setresuid(0, 0, 0) } == 0 {
            return Err(PrivilegeError::Reversible);
        }
    }
    Ok(())
}

/// Newest Landlock version whose rights are used. Version 9 also restricts connecting to unix
/// sockets, which stays allowed.
const NEWEST_ABI: ABI = ABI::V5;

fn restrict_files(files: &AllowedFiles) -> Result<Confinement, PrivilegeError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::RemoveFile
        | AccessFs::Refer;
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_read(NEWEST_ABI) | AccessFs::from_write(NEWEST_ABI))
        .and_then(Ruleset::create)
        .map_err(PrivilegeError::Landlock)?;
    let mut skipped = Vec::new();
    let tree = write | AccessFs::MakeDir;
    for (paths, rights) in [(&files.read, read), (&files.write, write), (&files.trees, tree)] {
        for path in paths {
            // Best effort: a missing path does no harm, and is reported.
            let Ok(fd) = PathFd::new(path) else {
                skipped.push(path.clone());
                continue;
            };
            let rule = PathBeneath::new(fd, applicable_rights(path, rights));
            ruleset = ruleset.add_rule(rule).map_err(PrivilegeError::Landlock)?;
        }
    }
    let status = ruleset.restrict_self().map_err(PrivilegeError::Landlock)?;
    Ok(confinement_from_status(&status, skipped))
}

/// Returns the applicable rights: a file cannot have those that only a directory has.
fn applicable_rights(path: &Path, rights: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST_ABI) }
}

fn confinement_from_status(status: &RestrictionStatus, skipped: Vec<PathBuf>) -> Confinement {
    let fully_supported = match status.ruleset {
        RulesetStatus::FullyEnforced => true,
        RulesetStatus::PartiallyEnforced => false,
        RulesetStatus::NotEnforced => {
            let reason = match status.landlock {
                LandlockStatus::NotEnabled => "Landlock was not enabled at boot (lsm=landlock)",
                _ => "this kernel has no Landlock",
            };
            return Confinement::NotSupported { reason };
        }
    };
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        _ => 0,
    };
    Confinement::Enforced { abi, fully_supported, skipped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_asked_changes_nothing_and_needs_no_single_thread() {
        assert_eq!(drop_privileges(&Privileges::default()).unwrap(), Confinement::NotRequested);
    }

    #[test]
    fn threads_that_would_not_be_held_are_refused() {
        // The harness runs each test in a thread besides its own.
        let privileges = Privileges { no_new_privileges: true, ..Privileges::default() };
        let before = rustix::thread::no_new_privs().unwrap();
        let error = drop_privileges(&privileges).unwrap_err();
        assert!(matches!(error, PrivilegeError::ThreadsRunning(count) if count > 1), "{error}");
        assert_eq!(rustix::thread::no_new_privs().unwrap(), before);
    }

    #[test]
    fn the_confinement_is_described() {
        let enforced =
            |full, skipped| Confinement::Enforced { abi: 3, fully_supported: full, skipped }.to_string();
        let full = enforced(true, vec![]);
        assert!(full.ends_with("(Landlock ABI 3)"), "{full}");
        let partial = enforced(false, vec!["/a".into(), "/b".into()]);
        assert!(partial.contains("(Landlock ABI 3, ") && partial.ends_with(": /a, /b"), "{partial}");
    }
}
