//! Starts a process in a network namespace, in control groups, on given CPUs and with a limit of
//! descriptors; the kernel kills it when the thread that started it ends.
//!
//! Children of the process are in its control group and are not handled here.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

/// Launch options of a process. Defaults are those of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// File of its network namespace (`super::namespace`).
    pub namespace: Option<PathBuf>,
    /// Directories of control groups, v1 or v2.
    pub cgroups: Vec<PathBuf>,
    /// CPUs that it may run on; empty: any.
    pub cpus: Vec<u32>,
    /// Maximum number of open descriptors (`RLIMIT_NOFILE`, soft and hard).
    pub nofile: Option<u64>,
}

impl Launch {
    /// Starts `command` with these options, in its own process group: Ctrl-C at a terminal does not
    /// reach it. The kernel kills it when the calling *thread* ends (prctl(2), `PR_SET_PDEATHSIG`).
    /// So the calling thread must live as long as the process should.
    ///
    /// # Errors
    /// A namespace or group is missing, permission is denied, or the program is not found.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let namespace = self.namespace.as_ref().map(File::open).transpose()?;
        let cgroups = self.cgroups.iter().map(|group| {
            File::options()
                .write(true)
                .open(group.join("cgroup.procs"))
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", group.display())))
        });
        let cgroups = cgroups.collect::<io::Result<Vec<File>>>()?;
        let mut cpus = CpuSet::new();
        for &cpu in self.cpus.iter().filter(|&&cpu| (cpu as usize) < CpuSet::MAX_CPU) {
            cpus.set(cpu as usize);
        }
        let cpus = (!self.cpus.is_empty()).then_some(cpus);
        let nofile = self.nofile;
        let parent = Pid::from_raw(i32::try_from(std::process::id()).unwrap_or(0));
        let pre_exec = move || -> io::Result<()> {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != parent {
                // The parent ended before the kernel knew the death signal.
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            for group in &cgroups {
                rustix::io::write(group, b"0")?;
            }
            if let Some(namespace) = &namespace {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            }
            if let Some(cpus) = &cpus {
                sched_setaffinity(None, cpus)?;
            }
            if let Some(limit) = nofile {
                let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
                setrlimit(Resource::Nofile, limit)?;
            }
            Ok(())
        };
        spawn_with_pre_exec(command.process_group(0), pre_exec)
    }
}

#[allow(unsafe_code)]
fn spawn_with_pre_exec(
    command: &mut Command,
    pre_exec: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<Child> {
    // SAFETY: between fork and exec only system calls are made, on descriptors and values that were
    // prepared before; nothing is allocated and no lock is taken. An error there is a number of the
    // kernel's, which needs no memory either.
    let command = unsafe { command.pre_exec(pre_exec) };
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_starts_with_its_limits() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
        let launch = Launch { cpus: vec![first as u32], nofile: Some(33), ..Launch::default() };
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
    fn a_missing_group_is_reported() {
        let launch = Launch { cgroups: vec!["/no/such".into()], ..Launch::default() };
        let error = launch.spawn(&mut Command::new("true")).unwrap_err().to_string();
        assert!(error.contains("/no/such"), "{error}");
    }
}
