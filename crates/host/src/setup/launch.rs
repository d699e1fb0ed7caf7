//! Starts a program in a network namespace, in control groups, on given processors and with a limit
//! of descriptors; the kernel ends it when the thread that started it ends.
//!
//! Not for what becomes of the program's own children: those are in its control group.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

/// Where and how a program starts. Empty: as this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// File of its network namespace ([`super::namespace::path_of`]).
    pub namespace: Option<PathBuf>,
    /// Folders of control groups, v1 or v2.
    pub groups: Vec<PathBuf>,
    /// Processors that it may run on; empty: any.
    pub cpus: Vec<u32>,
    /// The number of descriptors that it may have open (`RLIMIT_NOFILE`, soft and hard).
    pub descriptors: Option<u64>,
}

impl Launch {
    /// Starts `command` so, in a process group of its own: Ctrl-C at a terminal does not reach it.
    /// It is killed when the calling *thread* ends (prctl(2), `PR_SET_PDEATHSIG`), so a thread that
    /// lives as long as the program should is has to call this.
    ///
    /// # Errors
    /// A namespace or group that is not there, what is not permitted, a program that is not found.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let namespace = self.namespace.as_ref().map(File::open).transpose()?;
        let groups = self.groups.iter().map(|group| {
            File::options().write(true).open(group.join("cgroup.procs")).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", group.display()))
            })
        });
        let groups = groups.collect::<io::Result<Vec<File>>>()?;
        let mut cpus = CpuSet::new();
        for &cpu in self.cpus.iter().filter(|&&cpu| (cpu as usize) < CpuSet::MAX_CPU) {
            cpus.set(cpu as usize);
        }
        let cpus = (!self.cpus.is_empty()).then_some(cpus);
        let descriptors = self.descriptors;
        let parent = Pid::from_raw(i32::try_from(std::process::id()).unwrap_or(0));
        let before = move || -> io::Result<()> {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != parent {
                // The parent was gone before the kernel knew what to do then.
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            for group in &groups {
                rustix::io::write(group, b"0")?;
            }
            if let Some(namespace) = &namespace {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            }
            if let Some(cpus) = &cpus {
                sched_setaffinity(None, cpus)?;
            }
            if let Some(limit) = descriptors {
                let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
                setrlimit(Resource::Nofile, limit)?;
            }
            Ok(())
        };
        spawn_after(command.process_group(0), before)
    }
}

#[allow(unsafe_code)]
fn spawn_after(
    command: &mut Command,
    before: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<Child> {
    // SAFETY: between fork and exec only system calls are made, on descriptors and values that were
    // prepared before; nothing is allocated and no lock is taken. An error there is a number of the
    // kernel's, which needs no memory either.
    let command = unsafe { command.pre_exec(before) };
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_starts_with_its_limits() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
        let launch =
            Launch { cpus: vec![first as u32], descriptors: Some(33), ..Launch::default() };
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n; grep Cpus_allowed_list /proc/self/status"]);
        let child = launch.spawn(command.stdout(std::process::Stdio::piped())).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words, ["33", "Cpus_allowed_list:", &first.to_string()]);
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let start = || Launch::default().spawn(Command::new("sleep").arg("60")).unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_group_that_is_not_there_is_said() {
        let launch = Launch { groups: vec!["/no/such".into()], ..Launch::default() };
        let error = launch.spawn(&mut Command::new("true")).unwrap_err().to_string();
        assert!(error.contains("/no/such"), "{error}");
    }
}
