//! Genuine journals of killed runs are undone; journals with anything that no run makes change nothing.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Command, Stdio};

use super::undo::kill_and_wait;
use super::*;

/// Directory of journals, and things that they name.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for name in ["journals", "runs", "groups", "settings"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn journals(&self) -> TrustedDir {
        TrustedDir::open(&self.path("journals")).unwrap().unwrap()
    }

    /// Returns the list of a run whose things are in this directory.
    fn allow_list(&self, run: &str) -> AllowList {
        AllowList {
            run_directories: self.path("runs"),
            cgroup_mounts: vec![self.path("groups")],
            is_setting: |path| path.parent().is_some_and(|parent| parent.ends_with("settings")),
            run: run.to_owned(),
        }
    }

    fn sweep(&self) -> SweepReport {
        sweep_with(&self.journals(), |run| self.allow_list(run))
    }

    fn journal(&self, run: &str) -> PathBuf {
        self.path("journals").join(journal_name(run))
    }

    /// Writes the journal of a run with these lines behind the first one.
    fn write(&self, run: &str, lines: &str) {
        let ProcessIdentity { pid, start_ticks } = owner_from_run_name(run).unwrap();
        let owner = format!("{{\"pid\":{pid},\"start_ticks\":{start_ticks}}}\n");
        fs::write(self.journal(run), owner + lines).unwrap();
    }
}

/// Returns the name of a run whose process has ended: this process, as if it had started at another time.
fn dead_run() -> String {
    let ProcessIdentity { pid, start_ticks } = ProcessIdentity::from_current_process();
    format!("{PREFIX}{pid}-{:x}-0", start_ticks + 1)
}

fn sleeper(run: Option<&str>) -> Child {
    let mut command = Command::new("sleep");
    if let Some(run) = run {
        command.env(RUN_VARIABLE, run);
    }
    let child = command.arg("60").stdin(Stdio::null()).spawn().unwrap();
    // A new program has its environment a moment after the call that starts it has returned.
    let environment = format!("/proc/{}/environ", child.id());
    while fs::read(&environment).unwrap().is_empty() {
        std::thread::yield_now();
    }
    child
}

fn identity(child: &Child) -> ProcessIdentity {
    ProcessIdentity::of(child.id() as i32).unwrap()
}

#[test]
fn a_run_in_another_pid_namespace_is_left_alone() {
    let place = Place::new();
    let run = dead_run();
    fs::create_dir(place.path("runs").join(&run)).unwrap();
    let ProcessIdentity { pid, start_ticks } = owner_from_run_name(&run).unwrap();
    let path = place.path("runs").join(&run);
    let directory = serde_json::to_string(&CreatedResource::Directory { path: path.clone() }).unwrap();
    let journal = |namespace: &str| {
        let boot = boot_id();
        format!(
            "{{\"pid\":{pid},\"start_ticks\":{start_ticks},\"boot_id\":\"{boot}\",\"pid_namespace\":\"{namespace}\"}}\n\
             {directory}\n"
        )
    };
    fs::write(place.journal(&run), journal("pid:[1]")).unwrap();
    assert_eq!(place.sweep(), SweepReport::default());
    assert!(path.exists() && place.journal(&run).exists());
    fs::write(place.journal(&run), journal(&pid_namespace().unwrap())).unwrap();
    assert_eq!(place.sweep().undone_runs, [run]);
    assert!(!path.exists());
}

#[test]
fn resources_of_a_dead_owner_are_undone_and_those_of_a_living_one_are_kept() {
    let place = Place::new();
    let run = run_name();
    let made = place.path("runs").join(&run);
    fs::create_dir(&made).unwrap();
    fs::write(made.join("log"), "").unwrap();
    let setting = place.path("settings/one");
    fs::write(&setting, "changed").unwrap();
    let mut journal = Journal::create_with(&place.path("journals"), place.allow_list(&run)).unwrap();
    journal.record(CreatedResource::Directory { path: made.clone() }).unwrap();
    journal
        .record(CreatedResource::Setting { path: setting.clone(), previous: "before!".to_owned() })
        .unwrap();
    // Its owner is this process, which is alive.
    assert_eq!(place.sweep(), SweepReport::default());
    assert!(made.exists());
    let text = fs::read_to_string(place.journal(&run)).unwrap();
    assert!(text.contains(&boot_id()), "{text}");
    // A kill of the owner in the middle of a line.
    let dead = dead_run();
    let made = place.path("runs").join(&dead);
    fs::rename(place.path("runs").join(&run), &made).unwrap();
    let mut child = sleeper(Some(&dead));
    let ProcessIdentity { pid, start_ticks } = identity(&child);
    let start = ProcessIdentity::from_current_process().start_ticks;
    let text = text.replace(&run, &dead).replace(&start.to_string(), &(start + 1).to_string());
    let process = format!("{{\"process\":{{\"pid\":{pid},\"start_ticks\":{start_ticks}}}}}\n");
    fs::remove_file(place.journal(&run)).unwrap();
    fs::write(place.journal(&dead), text + &process + "{\"directory\":{\"pa").unwrap();
    // While another process undoes it, this one leaves it alone.
    let lock = File::open(place.journal(&dead)).unwrap();
    lock.lock().unwrap();
    assert_eq!(place.sweep(), SweepReport::default());
    drop(lock);
    assert_eq!(place.sweep(), SweepReport { undone_runs: vec![dead.clone()], ..SweepReport::default() });
    assert!(!made.exists() && !place.journal(&dead).exists());
    assert_eq!(fs::read_to_string(&setting).unwrap().trim_end(), "before!");
    assert!(!child.wait().unwrap().success());
}

#[test]
fn a_journal_with_anything_else_changes_nothing() {
    let place = Place::new();
    let run = dead_run();
    let path = |name: &str| place.path(name).display().to_string();
    let mut child = sleeper(None);
    let ProcessIdentity { pid, start_ticks } = identity(&child);
    fs::create_dir_all(place.path("victim/deep")).unwrap();
    fs::create_dir(place.path("runs").join(&run)).unwrap();
    fs::create_dir(place.path("groups/system.slice")).unwrap();
    fs::write(place.path("settings/one"), "changed").unwrap();
    symlink(place.path("victim"), place.path("runs/link")).unwrap();
    // Allowed lines around the other one are not obeyed either.
    let before =
        format!("{{\"setting\":{{\"path\":\"{}\",\"previous\":\"planted\"}}}}\n", path("settings/one"));
    let after = format!("{{\"directory\":{{\"path\":\"{}/{run}\"}}}}\n", path("runs"));
    let moved = |group: &str, own: &str| {
        let process = format!("{{\"pid\":{pid},\"start_ticks\":{start_ticks},\"cgroup\":\"{}\"}}", path(own));
        format!("{{\"moved-processes\":{{\"path\":\"{}\",\"processes\":[{process}]}}}}", path(group))
    };
    let directory = |name: &str| format!("{{\"directory\":{{\"path\":\"{name}\"}}}}");
    let group = |name: &str| format!("{{\"cgroup\":{{\"path\":\"{}\"}}}}", path(name));
    let setting =
        |name: &str, value: &str| format!("{{\"setting\":{{\"path\":\"{name}\",\"previous\":\"{value}\"}}}}");
    let namespace = |name: &str| format!("{{\"namespace\":{{\"name\":\"{name}\"}}}}");
    for (line, reason) in [
        (directory(&path("victim")), "victim is not of this run"),
        (directory("/"), "directory / is not of this run"),
        (directory(&format!("{}/{run}/../../victim", path("runs"))), "is not of this run"),
        (directory(&path("runs/link")), "is not of this run"),
        (directory(&path("runs/weir-1-1-0")), "is not of this run"),
        (group("groups/system.slice"), "system.slice is not of this run"),
        (group(&format!("groups/{run}-subject/../system.slice")), "is not of this run"),
        (group(&format!("groups/{run}-other")), "is not of this run"),
        (group(&format!("victim/{run}-subject")), "is not of this run"),
        (moved("groups/system.slice", "groups"), "is not of this run"),
        (moved(&format!("groups/{run}"), "groups/system.slice"), "system.slice is not of this run"),
        (setting("/etc/passwd", "x"), "/etc/passwd is no setting"),
        (setting(&path("settings/../victim/new"), "x"), "is no setting"),
        (setting(&path("groups/cgroup.procs"), "1"), "is no setting"),
        (setting(&path("settings/one"), "a\\nb"), "is not one line"),
        (namespace("other"), "network namespace 'other' is not of this run"),
        (namespace(&format!("{run}-subject/../x")), "is not of this run"),
        (namespace("--all"), "'--all' is not of this run"),
        ("{\"command\":[\"rm\",\"-rf\",\"/\"]}".to_owned(), "not a line of a journal"),
        ("{\"directory\":{\"path\":\"x\",\"force\":true}}".to_owned(), "not a line of a journal"),
        ("rm -rf /".to_owned(), "not a line of a journal"),
    ] {
        place.write(&run, &format!("{before}{line}\n{after}"));
        let swept = place.sweep();
        assert_eq!((swept.undone_runs.len(), swept.problems.len()), (0, 0), "{line}: {swept:?}");
        let position = format!("{}:3: ", place.journal(&run).display());
        assert!(swept.refused[0].starts_with(&position), "{line}: {swept:?}");
        assert!(swept.refused[0].contains(reason), "{line}: {swept:?}");
        assert!(swept.refused[0].contains("nothing in this journal is obeyed"), "{swept:?}");
        assert_eq!(fs::read_to_string(place.path("settings/one")).unwrap(), "changed", "{line}");
    }
    assert!(place.path("victim/deep").exists() && place.path("groups/system.slice").exists());
    assert!(place.path("runs").join(&run).exists() && !place.path("victim/new").exists());
    assert_eq!(child.try_wait().unwrap(), None);
    // The decoy: without the other line, the rest is undone.
    place.write(&run, &format!("{before}{after}"));
    assert_eq!(place.sweep(), SweepReport { undone_runs: vec![run.clone()], ..SweepReport::default() });
    assert!(!place.path("runs").join(&run).exists());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_journal_that_others_may_write_is_not_obeyed() {
    let place = Place::new();
    let run = dead_run();
    let made = place.path("runs").join(&run);
    fs::create_dir(&made).unwrap();
    let line = format!("{{\"directory\":{{\"path\":\"{}\"}}}}\n", made.display());
    place.write(&run, &line);
    fs::set_permissions(place.journal(&run), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(place.sweep().refused[0].contains("can be changed by other users"));
    fs::rename(place.journal(&run), place.path("elsewhere")).unwrap();
    symlink(place.path("elsewhere"), place.journal(&run)).unwrap();
    assert!(place.sweep().refused[0].contains("is a symbolic link"));
    assert!(made.exists());
    fs::remove_file(place.journal(&run)).unwrap();
    place.write(&run, &line);
    assert_eq!(place.sweep().undone_runs.len(), 1);
    assert!(!made.exists());
}

#[test]
fn a_new_journal_belongs_to_its_owner() {
    let place = Place::new();
    let (living, cut) = (run_name(), run_name());
    assert_ne!(living, cut);
    // A sweep of another process may find an empty or incomplete first line.
    fs::write(place.journal(&living), "").unwrap();
    fs::write(place.journal(&cut), "{\"pid\":").unwrap();
    fs::write(place.journal(&dead_run()), "").unwrap();
    let foreign = ["weir-", "weir-x-1-0", "weir-1-x-0", "weir-1-1", "weir-1-1-x", "other", "weir-+1-1-0"];
    foreign.iter().for_each(|run| fs::write(place.journal(run), "").unwrap());
    assert_eq!(owner_from_run_name(&living), Some(ProcessIdentity::from_current_process()));
    let swept = place.sweep();
    assert_eq!(swept.undone_runs, [dead_run()]);
    assert_eq!(swept.refused.len(), foreign.len(), "{swept:?}");
    assert!([&living, &cut].iter().all(|run| place.journal(run).exists()));
    // A journal with the name of a dead process and the first line of another one.
    let ProcessIdentity { pid, start_ticks } = ProcessIdentity::from_current_process();
    let other = format!("{{\"pid\":{pid},\"start_ticks\":{}}}\n", start_ticks + 2);
    fs::write(place.journal(&dead_run()), other).unwrap();
    assert!(
        place.sweep().refused.iter().any(|text| text.contains(":1: the first line names another process"))
    );
}

#[test]
fn after_another_boot_only_the_directory_is_left() {
    let place = Place::new();
    let run = dead_run();
    let made = place.path("runs").join(&run);
    fs::create_dir(&made).unwrap();
    let setting = place.path("settings/one");
    fs::write(&setting, "new").unwrap();
    let ProcessIdentity { pid, start_ticks } = owner_from_run_name(&run).unwrap();
    let text = format!(
        "{{\"pid\":{pid},\"start_ticks\":{start_ticks},\"boot_id\":\"another\"}}\n\
         {{\"directory\":{{\"path\":\"{}\"}}}}\n{{\"setting\":{{\"path\":\"{}\",\"previous\":\"old\"}}}}\n",
        made.display(),
        setting.display()
    );
    fs::write(place.journal(&run), text).unwrap();
    assert_eq!(place.sweep().undone_runs, [run]);
    assert!(!made.exists());
    assert_eq!(fs::read_to_string(&setting).unwrap(), "new");
}

#[test]
fn only_processes_of_the_run_are_killed() {
    let mut child = sleeper(Some("weir-1-1-0"));
    let process = identity(&child);
    let other = ProcessIdentity { start_ticks: process.start_ticks + 1, ..process };
    kill_and_wait(other, "weir-1-1-0").unwrap();
    for run in ["weir-1-1-1", "weir-1-1", ""] {
        let error = kill_and_wait(process, run).unwrap_err().to_string();
        assert!(error.contains("has no sign of"), "{error}");
    }
    assert_eq!(child.try_wait().unwrap(), None);
    kill_and_wait(process, "weir-1-1-0").unwrap();
    assert!(!child.wait().unwrap().success());
    kill_and_wait(process, "weir-1-1-0").unwrap();
}

#[test]
fn resources_that_cannot_be_undone_stay_in_the_journal() {
    let place = Place::new();
    let run = run_name();
    let mut journal = Journal::create_with(&place.path("journals"), place.allow_list(&run)).unwrap();
    let path = place.path("settings/missing");
    journal.record(CreatedResource::Setting { path: path.clone(), previous: String::new() }).unwrap();
    assert_eq!(journal.undo().len(), 1);
    assert!(place.journal(&run).exists() && !path.exists());
    assert!(Journal::create_with(&place.path("journals"), place.allow_list(&run)).is_err());
    // A resource that no later process would undo is not made.
    let error = journal.record(CreatedResource::Directory { path: place.path("victim") }).unwrap_err();
    assert!(error.to_string().contains("is not of this run"), "{error}");
}
