//! The folder of a run, with a file in it that proves whose it is. Journals are in `/run`, which is empty
//! after the machine was started again, and these folders are on a disk: so those whose journal is gone
//! are removed by that proof, and by nothing less.
//!
//! Not for what a journal still knows of: [`super::journal`] undoes that.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::journal::{PREFIX, Swept, path_of, start_ticks};

/// The file that says whose a folder is.
const OWNER: &str = ".weir-owner";

/// A process, told from all others that there were or will be. Folders may be shared with containers, whose
/// processes have other numbers, and with other machines: there it cannot be told who lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Owner {
    host: String,
    /// Which start of the machine.
    boot: String,
    pid_namespace: String,
    pid: i32,
    start_ticks: u64,
}

impl Owner {
    fn this_process() -> io::Result<Self> {
        let pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        Ok(Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            pid_namespace: fs::read_link("/proc/self/ns/pid")?.to_string_lossy().into_owned(),
            pid,
            start_ticks: start_ticks(pid).ok_or_else(|| io::Error::other("/proc/self/stat"))?,
        })
    }

    /// Whether process `here` can know that it has ended.
    fn is_dead(&self, here: &Self) -> bool {
        if self.host != here.host {
            return false;
        }
        let same_numbers = self.pid_namespace == here.pid_namespace;
        let is_gone = || start_ticks(self.pid) != Some(self.start_ticks);
        self.boot != here.boot || (same_numbers && is_gone())
    }
}

/// Makes the folder of a run of this process.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    let text = serde_json::to_string(&Owner::this_process()?).map_err(io::Error::other)?;
    let mut file = File::options().create_new(true).write(true).open(folder.join(OWNER))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    // Its name has to last as long as the folder's.
    File::open(folder)?.sync_all()
}

/// Removes the folders of runs in `folders` that have no journal in `journals` and whose owner has ended.
pub(super) fn sweep(folders: &Path, journals: &Path, swept: &mut Swept) {
    // Who does not know who it is cannot prove anything of others.
    let Ok(here) = Owner::this_process() else { return };
    for entry in fs::read_dir(folders).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let has_journal = path_of(journals, &name).exists();
        let is_left = || owner_of(&path).is_some_and(|owner| owner.is_dead(&here));
        if !name.starts_with(PREFIX) || has_journal || !is_left() {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => swept.runs.push(name),
            // Another start has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => swept.problems.push(format!("{}: {error}", path.display())),
        }
    }
}

/// Whose a folder is. Only what our own user has made says so: anybody may write to `/var/tmp`.
fn owner_of(folder: &Path) -> Option<Owner> {
    let user = rustix::process::geteuid().as_raw();
    let file = folder.join(OWNER);
    let (outside, inside) = (fs::symlink_metadata(folder).ok()?, fs::symlink_metadata(&file).ok()?);
    let is_ours = outside.is_dir() && inside.is_file();
    if !is_ours || outside.uid() != user || inside.uid() != user {
        return None;
    }
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A run's folder of a process that `change` makes out of this one.
    fn left(folders: &Path, name: &str, change: impl Fn(&mut Owner)) -> PathBuf {
        let folder = folders.join(name);
        make(&folder).unwrap();
        fs::write(folder.join("access.log"), "a line").unwrap();
        let mut owner = owner_of(&folder).unwrap();
        assert_eq!(owner, Owner::this_process().unwrap());
        change(&mut owner);
        fs::write(folder.join(OWNER), serde_json::to_string(&owner).unwrap()).unwrap();
        folder
    }

    #[test]
    fn folders_of_dead_runs_go_and_what_is_not_proven_stays() {
        let (folders, journals) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let here = folders.path();
        let dead = |owner: &mut Owner| owner.start_ticks += 1;
        let gone = [
            left(here, "weir-1-a-0", dead),
            // Before the machine was started again a process may have had our number and time.
            left(here, "weir-2-a-0", |owner| owner.boot = "another".to_owned()),
        ];
        let kept = [
            left(here, "weir-3-a-0", |_| {}),
            left(here, "mine", dead),
            left(here, "weir-4-a-0", |owner| {
                (owner.host, owner.boot) = ("other".to_owned(), "another".to_owned());
            }),
            left(here, "weir-5-a-0", |owner| {
                owner.pid_namespace = "pid:[1]".to_owned();
                owner.start_ticks += 1;
            }),
            left(here, "weir-6-a-0", dead),
            here.join("weir-7-a-0"),
            here.join("weir-8-a-0"),
        ];
        fs::write(path_of(journals.path(), "weir-6-a-0"), "").unwrap();
        fs::create_dir(&kept[5]).unwrap();
        std::os::unix::fs::symlink(&kept[1], &kept[6]).unwrap();
        let mut swept = Swept::default();
        sweep(here, journals.path(), &mut swept);
        swept.runs.sort();
        assert_eq!(swept.runs, ["weir-1-a-0", "weir-2-a-0"]);
        assert_eq!(swept.problems, [""; 0]);
        assert!(gone.iter().all(|folder| !folder.exists()));
        assert!(kept.iter().all(|folder| folder.exists()), "{kept:?}");
        sweep(Path::new("/no/such/folder"), journals.path(), &mut swept);
        assert_eq!(swept.runs.len(), 2);
    }
}
