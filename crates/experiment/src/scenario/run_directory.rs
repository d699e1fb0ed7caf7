//! Directory of a run, with a file that identifies the process that owns it. A reboot removes the
//! journals, which are in `/run`, but not these directories, which are on a disk. A directory without a
//! journal is removed only if that file proves that its owner has ended.
//!
//! Not for directories that a journal lists: [`super::journal`] undoes those.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use host::journal::{ProcessIdentity, boot_id};
use host::trusted_dir::TrustedDir;
use serde::{Deserialize, Serialize};

use super::journal::{PREFIX, SweepReport, journal_name};

/// Name of the file that identifies the owner of a directory.
const OWNER_FILE: &str = ".weir-owner";
const MODE: u32 = 0o755;

/// Identity of the owning process, unique across machines, boots and PID namespaces. The owner may be on
/// another machine or in a container that shares the directory: then it is unknown whether it is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RunOwner {
    host: String,
    /// ID of the machine's boot.
    boot: String,
    pid_namespace: String,
    #[serde(flatten)]
    process: ProcessIdentity,
}

impl RunOwner {
    fn this_process() -> io::Result<Self> {
        let pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let process = ProcessIdentity::of(pid).ok_or_else(|| io::Error::other("/proc/self/stat"))?;
        let boot = Some(boot_id()).filter(|boot| !boot.is_empty());
        Ok(Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: boot.ok_or_else(|| io::Error::other("no boot ID"))?,
            pid_namespace: fs::read_link("/proc/self/ns/pid")?.to_string_lossy().into_owned(),
            process,
        })
    }

    /// Returns whether `this_process` can prove that the owner has ended.
    fn has_ended(&self, this_process: &Self) -> bool {
        if self.host != this_process.host {
            return false;
        }
        let shares_pids = self.pid_namespace == this_process.pid_namespace;
        self.boot != this_process.boot || (shares_pids && !self.process.is_alive())
    }
}

/// Creates the directory of run `run` of this process in `directories`, with the owner file. Programs of other users
/// may read in it, and not write.
pub(super) fn create(directories: &Path, run: &str) -> io::Result<()> {
    let directory = TrustedDir::open_shared(directories)?.create_directory(run, MODE)?;
    let text = serde_json::to_string(&RunOwner::this_process()?).map_err(io::Error::other)?;
    let mut file = directory.create_file(OWNER_FILE)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    directory.sync()
}

/// Removes the run directories in `directories` that have no journal in `journals` and whose owner has
/// ended.
pub(super) fn remove_stale(directories: &Path, journals: Option<&TrustedDir>, swept: &mut SweepReport) {
    // A process that cannot identify itself cannot prove anything about others.
    let Ok(this_process) = RunOwner::this_process() else { return };
    let Ok(shared) = TrustedDir::open_shared(directories) else { return };
    for entry in fs::read_dir(directories).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with(PREFIX) {
            continue;
        }
        // A journal that is not obeyed may be of a living run.
        let has_journal =
            |journals: &TrustedDir| !matches!(journals.open_file(&journal_name(&name)), Ok(None));
        let is_left = || read_owner(&shared, &name).is_some_and(|owner| owner.has_ended(&this_process));
        if journals.is_some_and(has_journal) || !is_left() {
            continue;
        }
        match shared.remove_tree(&name) {
            Ok(()) => swept.undone_runs.push(name),
            Err(error) => swept.problems.push(error.to_string()),
        }
    }
}

/// Returns the owner of a directory. Directories and files that other users can change are ignored, because any user
/// may create them in `/var/tmp`.
fn read_owner(shared: &TrustedDir, name: &str) -> Option<RunOwner> {
    let directory = shared.open_directory(name).ok()??;
    let file = directory.open_file(OWNER_FILE).ok()??;
    serde_json::from_str(&directory.read(OWNER_FILE, &file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Creates a run directory of a process that `change` derives from this one.
    fn abandoned_run(directories: &Path, name: &str, change: impl Fn(&mut RunOwner)) -> PathBuf {
        let directory = directories.join(name);
        create(directories, name).unwrap();
        fs::write(directory.join("access.log"), "a line").unwrap();
        let mut owner = read_owner(&TrustedDir::open_shared(directories).unwrap(), name).unwrap();
        assert_eq!(owner, RunOwner::this_process().unwrap());
        change(&mut owner);
        fs::write(directory.join(OWNER_FILE), serde_json::to_string(&owner).unwrap()).unwrap();
        directory
    }

    #[test]
    fn directories_of_dead_runs_are_removed_and_unproven_ones_stay() {
        let (directories, journals) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let base = directories.path();
        let dead = |owner: &mut RunOwner| owner.process.start_ticks += 1;
        let gone = [
            abandoned_run(base, "weir-1-a-0", dead),
            // Before a reboot, another process may have had the same PID and start time.
            abandoned_run(base, "weir-2-a-0", |owner| owner.boot = "another".to_owned()),
        ];
        let kept = [
            abandoned_run(base, "weir-3-a-0", |_| {}),
            abandoned_run(base, "mine", dead),
            abandoned_run(base, "weir-4-a-0", |owner| {
                (owner.host, owner.boot) = ("other".to_owned(), "another".to_owned());
            }),
            abandoned_run(base, "weir-5-a-0", |owner| {
                owner.pid_namespace = "pid:[1]".to_owned();
                owner.process.start_ticks += 1;
            }),
            abandoned_run(base, "weir-6-a-0", dead),
            base.join("weir-7-a-0"),
            base.join("weir-8-a-0"),
        ];
        let journals = TrustedDir::open(journals.path()).unwrap();
        fs::write(journals.as_ref().unwrap().path().join(journal_name("weir-6-a-0")), "").unwrap();
        fs::create_dir(&kept[5]).unwrap();
        std::os::unix::fs::symlink(&kept[1], &kept[6]).unwrap();
        let mut swept = SweepReport::default();
        remove_stale(base, journals.as_ref(), &mut swept);
        swept.undone_runs.sort();
        assert_eq!(swept.undone_runs, ["weir-1-a-0", "weir-2-a-0"]);
        assert_eq!(swept.problems, [""; 0]);
        assert!(gone.iter().all(|directory| !directory.exists()));
        assert!(kept.iter().all(|directory| directory.exists()), "{kept:?}");
        remove_stale(Path::new("/no/such/directory"), journals.as_ref(), &mut swept);
        assert_eq!(swept.undone_runs.len(), 2);
    }
}
