//! Undoes created resources that the allow-list has accepted. Processes are killed by descriptors that were
//! opened before the check, so that no other process with the same PID is hit.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use host::journal::{OpenProcess, ProcessIdentity};
use host::sandbox::cgroup;
use host::trusted_dir::TrustedDir;

use super::allow_list::AllowList;
use super::{CreatedResource, MovedProcess, RUN_VARIABLE};
use crate::scenario::errors::ResourceError;
use crate::scenario::system_commands;

/// Number of attempts to remove something that is still in use, and the interval between them.
const REMOVE_ATTEMPTS: u32 = 150;
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of bytes read of the environment of a process, which chooses its length (prctl(2)).
const ENVIRONMENT_BYTES_MAX: u64 = 16 << 20;

/// Undoes resources, the last first. Returns those that could not be undone, and the reasons.
pub(super) fn undo_all(
    made: Vec<CreatedResource>,
    allow_list: &AllowList,
) -> (Vec<CreatedResource>, Vec<String>) {
    let mut remaining = Vec::new();
    let mut problems = Vec::new();
    for made in made.into_iter().rev() {
        if let Err(problem) = undo(&made, allow_list) {
            problems.push(problem.to_string());
            remaining.insert(0, made);
        }
    }
    (remaining, problems)
}

/// Undoes one thing. A thing that no longer exists counts as undone.
fn undo(made: &CreatedResource, allow_list: &AllowList) -> Result<(), ResourceError> {
    match made {
        CreatedResource::Namespace { name } => {
            if !host::sandbox::namespace::netns_path(name).exists() {
                return Ok(());
            }
            let line = ["ip", "netns", "del", name].map(str::to_owned);
            Ok(system_commands::run_command(&line, None, None)?)
        }
        CreatedResource::Cgroup { path } => remove_cgroup(path),
        CreatedResource::MovedProcesses { path, processes: guests } => return_processes(path, guests),
        CreatedResource::Process(process) => kill_and_wait(*process, allow_list.run()),
        CreatedResource::Setting { path, previous: before } => {
            host::tuning::write_value(path, before).map_err(ResourceError::in_file(path))
        }
        CreatedResource::Directory { path } => {
            let parent = TrustedDir::open_shared(&allow_list.run_directories);
            let removed = parent.and_then(|parent| parent.remove_tree(allow_list.run()));
            removed.map_err(|error| ResourceError::in_file(path)(error.into()))
        }
    }
}

/// Kills the processes of a group, by the group's own list, and removes it.
fn remove_cgroup(path: &Path) -> Result<(), ResourceError> {
    if !path.exists() {
        // Where groups cannot be made, the error would be that they cannot be removed.
        return Ok(());
    }
    remove_after(path, || {
        for pid in cgroup::list_processes(path) {
            // An error means that the process has ended, which is the goal.
            let Ok(Some(process)) = OpenProcess::of(pid) else { continue };
            // Now the PID cannot change its process.
            if cgroup::list_processes(path).contains(&pid) {
                let _ = process.kill();
            }
        }
    })
}

/// Moves the guests of a group to their own groups, and removes the group. Processes that they
/// started meanwhile go to the group of the first guest.
fn return_processes(path: &Path, processes: &[MovedProcess]) -> Result<(), ResourceError> {
    remove_after(path, || {
        for pid in cgroup::list_processes(path) {
            // An error means that the process has ended, and needs no move.
            let Ok(Some(_process)) = OpenProcess::of(pid) else { continue };
            // The descriptor is that of a process of the group if the PID is still listed: a later one with the same
            // PID is in a group of its own.
            if !cgroup::list_processes(path).contains(&pid) {
                continue;
            }
            let is_own = |moved: &&MovedProcess| moved.process.pid == pid && moved.process.is_alive();
            if let Some(moved) = processes.iter().find(is_own).or_else(|| processes.first()) {
                // A process that cannot be moved keeps the group alive, which is then reported.
                let _ = cgroup::move_process(pid, &moved.cgroup);
            }
        }
    })
}

/// Empties a group and removes it, several times if processes are still ending.
fn remove_after(path: &Path, empty: impl Fn()) -> Result<(), ResourceError> {
    let mut attempts = 0;
    loop {
        empty();
        attempts += 1;
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) if attempts == REMOVE_ATTEMPTS => {
                return Err(ResourceError::Refused {
                    object: format!("control group {}", path.display()),
                    source,
                });
            }
            Err(_) => std::thread::sleep(RETRY_INTERVAL),
        }
    }
}

/// Kills a process of run `run`. One that has ended counts as killed.
pub(super) fn kill_and_wait(process: ProcessIdentity, run: &str) -> Result<(), ResourceError> {
    let explain = |source| ResourceError::Refused { object: format!("process {}", process.pid), source };
    let Some(opened) = process.open().map_err(explain)? else { return Ok(()) };
    if !is_of_run(process.pid, run) {
        return match process.is_alive() {
            true => Err(ResourceError::NotOfRun { pid: process.pid, run: run.to_owned() }),
            false => Ok(()),
        };
    }
    opened.kill().map_err(explain)?;
    for _ in 0..REMOVE_ATTEMPTS {
        if !process.is_alive() {
            return Ok(());
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    Err(ResourceError::StillAlive(process.pid))
}

/// Returns whether a process is in a control group of the run, or has its name in the environment with which it
/// started.
fn is_of_run(pid: i32, run: &str) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let prefix = format!("{run}-");
    if groups.lines().flat_map(|line| line.split('/')).any(|part| part.starts_with(&prefix)) {
        return true;
    }
    let mut environment = Vec::new();
    // A process that has ended has none.
    let _ = fs::File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut environment));
    let variable = format!("{RUN_VARIABLE}={run}");
    environment.split(|&byte| byte == 0).any(|entry| entry == variable.as_bytes())
}
