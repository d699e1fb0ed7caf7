//! Giving up what a process does not need once its sockets are bound: root, the way back to it, and
//! files that it has no business with (credentials(7), prctl(2), landlock(7)).
//!
//! [`give_up`] is called after binding and **before anything starts a thread**: `no_new_privs` and
//! Landlock hold for the calling thread and those that it starts later, and for no other. It counts
//! the threads and refuses when there are more. Which files are needed is for the caller to know.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::process::{getegid, geteuid, getgid, getuid};

/// What to give up. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// The user id to change to, for good. With it or a group, all supplementary groups go.
    pub user: Option<u32>,
    /// The group id to change to, for good. Without one, the group stays what it is.
    pub group: Option<u32>,
    /// Whether no program that is executed from here on can have more privileges than we
    /// (`PR_SET_NO_NEW_PRIVS`). [`Privileges::files`] brings it along.
    pub no_new_privileges: bool,
    /// The only files that can be opened from here on; `None`: no change. Open ones stay open.
    pub files: Option<Files>,
}

/// Files and folders that stay within reach, as far as their permissions allow. A folder stands
/// for all below it, and has to be the one that is named where a file is made anew: a log that is
/// rotated by renaming it needs its folder in [`Files::write`], and a config that an editor replaces
/// its folder in [`Files::read`].
///
/// Connecting to unix sockets is not confined: a reload may name new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// For reading. [`RESOLVER`] has those that looking up names takes.
    pub read: Vec<PathBuf>,
    /// For reading, writing, making, renaming and removing files and unix sockets.
    pub write: Vec<PathBuf>,
}

/// What the system's resolver reads: its config, which is replaced as a file at any time and so
/// stands as its folder, and its plug-ins.
pub const RESOLVER: &[&str] = &[
    "/etc",
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// What became of [`Privileges::files`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// It was not asked for.
    NotAsked,
    /// The kernel holds it.
    Enforced {
        /// The version of Landlock that it is held with.
        abi: u32,
        /// Whether this version knows all that we ask for; an older one leaves, for instance,
        /// `truncate` free.
        full: bool,
        /// Paths that did not exist, or could not be reached, and so stay out of reach.
        skipped: Vec<PathBuf>,
    },
    /// This kernel cannot.
    NotSupported {
        /// Why.
        why: &'static str,
    },
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => write!(f, "file access is not confined"),
            Self::Enforced { abi, full, skipped } => {
                write!(f, "file access is confined (Landlock ABI {abi}")?;
                write!(f, "{})", if *full { "" } else { ", as far as this kernel can" })?;
                for (index, path) in skipped.iter().enumerate() {
                    write!(f, "{}", if index == 0 { "; not there: " } else { ", " })?;
                    write!(f, "{}", path.display())?;
                }
                Ok(())
            }
            Self::NotSupported { why } => write!(f, "file access is not confined: {why}"),
        }
    }
}

/// Why privileges could not be given up. The process may have given up some of them.
#[derive(Debug)]
pub enum Problem {
    /// Threads were started before; what is given up now would not hold for them.
    Threads(usize),
    /// The number of threads could not be read from `/proc`.
    Uncounted(io::Error),
    /// A system call failed.
    Call(&'static str, io::Error),
    /// The change was made and can be undone.
    Undone,
    /// Landlock's rules could not be made.
    Landlock(RulesetError),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(count) => write!(
                f,
                "privileges are given up before threads are started, and there are {count}; this \
                 is a defect of weir"
            ),
            Self::Uncounted(error) => write!(f, "cannot count our threads in /proc: {error}"),
            Self::Call(what, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "cannot {what}: not permitted (start as root, or leave it out)")
            }
            Self::Call(what, error) => write!(f, "cannot {what}: {error}"),
            Self::Undone => write!(f, "root was given up and can be had back; this is not safe"),
            Self::Landlock(error) => write!(f, "cannot confine file access: {error}"),
        }
    }
}

impl std::error::Error for Problem {}

/// Gives up what `privileges` say: groups, group, user, then the way to new privileges, then files.
///
/// A namespace cannot be entered any more by another user than root, so that sockets in other
/// namespaces are to be made before ([`crate::namespace`]).
///
/// # Errors
/// See [`Problem`]. A kernel without Landlock is not an error, but said.
pub fn give_up(privileges: &Privileges) -> Result<Confinement, Problem> {
    if *privileges == Privileges::default() {
        return Ok(Confinement::NotAsked);
    }
    match std::fs::read_dir("/proc/self/task").map(Iterator::count) {
        Ok(0 | 1) => {}
        Ok(count) => return Err(Problem::Threads(count)),
        Err(error) => return Err(Problem::Uncounted(error)),
    }
    become_other(privileges.user, privileges.group)?;
    if privileges.no_new_privileges {
        rustix::thread::set_no_new_privs(true)
            .map_err(|error| Problem::Call("set no_new_privs", error.into()))?;
    }
    match &privileges.files {
        Some(files) => confine(files),
        None => Ok(Confinement::NotAsked),
    }
}

/// The kernel's "leave this one as it is" of setresuid(2) and setresgid(2) is never passed: each
/// call sets all three ids, so that none is left to go back to.
#[allow(unsafe_code)]
fn become_other(user: Option<u32>, group: Option<u32>) -> Result<(), Problem> {
    let call = |what, result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(Problem::Call(what, io::Error::last_os_error())),
    };
    let new_group = group.filter(|&id| id != getgid().as_raw() || id != getegid().as_raw());
    let new_user = user.filter(|&id| id != getuid().as_raw() || id != geteuid().as_raw());
    if new_group.is_none() && new_user.is_none() {
        return Ok(());
    }
    // SAFETY: a list of no groups is not read.
    call("drop the supplementary groups", unsafe { libc::setgroups(0, std::ptr::null()) })?;
    if let Some(id) = new_group {
        // SAFETY: numbers only.
        call("change the group", unsafe { libc::setresgid(id, id, id) })?;
    }
    if let Some(id) = new_user {
        // SAFETY: numbers only.
        call("change the user", unsafe { libc::setresuid(id, id, id) })?;
        // SAFETY: numbers only.
        if id != 0 && unsafe { libc::setresuid(0, 0, 0) } == 0 {
            return Err(Problem::Undone);
        }
    }
    Ok(())
}

/// The newest version whose rights we know how to give. Version 9 also confines connecting to unix
/// sockets, which we leave free.
const NEWEST: ABI = ABI::V5;

fn confine(files: &Files) -> Result<Confinement, Problem> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::RemoveFile
        | AccessFs::Refer;
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_read(NEWEST) | AccessFs::from_write(NEWEST))
        .and_then(Ruleset::create)
        .map_err(Problem::Landlock)?;
    let mut skipped = Vec::new();
    for (paths, rights) in [(&files.read, read), (&files.write, write)] {
        for path in paths {
            // Best effort, as what is not there can do no harm, and is told.
            let Ok(fd) = PathFd::new(path) else {
                skipped.push(path.clone());
                continue;
            };
            let rule = PathBeneath::new(fd, rights_of(path, rights));
            ruleset = ruleset.add_rule(rule).map_err(Problem::Landlock)?;
        }
    }
    let status = ruleset.restrict_self().map_err(Problem::Landlock)?;
    Ok(describe(&status, skipped))
}

/// A file cannot have the rights that only a folder has.
fn rights_of(path: &Path, rights: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) }
}

fn describe(status: &RestrictionStatus, skipped: Vec<PathBuf>) -> Confinement {
    let full = match status.ruleset {
        RulesetStatus::FullyEnforced => true,
        RulesetStatus::PartiallyEnforced => false,
        RulesetStatus::NotEnforced => {
            let why = match status.landlock {
                LandlockStatus::NotEnabled => "Landlock was not enabled at boot (lsm=landlock)",
                _ => "this kernel has no Landlock",
            };
            return Confinement::NotSupported { why };
        }
    };
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        _ => 0,
    };
    Confinement::Enforced { abi, full, skipped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_asked_changes_nothing_and_needs_no_single_thread() {
        assert_eq!(give_up(&Privileges::default()).unwrap(), Confinement::NotAsked);
    }

    #[test]
    fn threads_that_would_not_be_held_are_refused() {
        // The harness runs each test in a thread beside its own.
        let privileges = Privileges { no_new_privileges: true, ..Privileges::default() };
        let before = rustix::thread::no_new_privs().unwrap();
        let problem = give_up(&privileges).unwrap_err();
        assert!(matches!(problem, Problem::Threads(count) if count > 1), "{problem}");
        assert_eq!(rustix::thread::no_new_privs().unwrap(), before);
    }

    #[test]
    fn what_was_achieved_can_be_read() {
        let enforced = |full, skipped| Confinement::Enforced { abi: 3, full, skipped }.to_string();
        assert_eq!(enforced(true, vec![]), "file access is confined (Landlock ABI 3)");
        assert_eq!(
            enforced(false, vec!["/a".into(), "/b".into()]),
            "file access is confined (Landlock ABI 3, as far as this kernel can); not there: /a, /b"
        );
    }
}
