//! All processes of one role between two looks, added up.
//!
//! Not for deciding which processes those are.

use super::groups::Cgroups;
use super::process::{Began, Process, ProcessUse};
use crate::family::MAX_PROCESSES;
use crate::process::figures::Io;
use crate::source::{NotObservable, read_once};
use record::observed::{Role, RoleUse, ThreadUse};

/// Threads of a role that are read, of which the busiest [`MAX_THREADS`] are recorded.
const MAX_THREADS_READ: usize = 256;
/// Threads of a role in a sample.
const MAX_THREADS: usize = 64;
/// Processes of a role whose shared memory is added up.
const SHARED_MEMORY_PROCESSES_MAX: usize = 64;
/// What changes seldom is looked at in every so many samples.
const CLOSER_EVERY: u64 = 5;
/// Characters of a command that are kept.
const COMMAND_CHARACTERS: usize = 120;
/// Ticks of a sample that are enough to split its CPU time into user space and kernel.
const TICKS_FOR_A_SPLIT: u64 = 20;
/// Processors whose numbers are told apart.
const MAX_CPUS: usize = 1024;

/// A role that is watched.
#[derive(Debug)]
pub(super) struct RoleWatch {
    name: String,
    /// All that ever belonged to it.
    pids: Vec<i32>,
    command: String,
    cpus_allowed: u32,
    processes: Vec<Process>,
    cgroups: Cgroups,
    samples: u64,
    missing: Vec<NotObservable>,
}

impl RoleWatch {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            pids: Vec::new(),
            command: String::new(),
            cpus_allowed: 0,
            processes: Vec::new(),
            cgroups: Cgroups::default(),
            samples: 0,
            missing: Vec::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A process of it that is there.
    pub(super) fn a_pid(&self) -> Option<i32> {
        self.processes.first().map(|process| process.pid)
    }

    /// The processes of it that are there.
    pub(super) fn live_pids(&self) -> Vec<i32> {
        self.processes.iter().map(|process| process.pid).collect()
    }

    /// Takes a process on. One that is gone already is noted, when it was named.
    pub(super) fn add(&mut self, pid: i32, began: Began) {
        match Process::open(pid, began) {
            Ok(mut process) => {
                process.find_threads(began, self.thread_room());
                self.processes.push(process);
                self.pids.push(pid);
                if self.command.is_empty() {
                    self.command = command(pid);
                }
            }
            Err(error) if began == Began::Before => self.missing.push(error),
            Err(_) => {}
        }
        self.count_cpus();
    }

    pub(super) fn describe(&self) -> Role {
        Role {
            name: self.name.clone(),
            pids: self.pids.iter().copied().take(MAX_PROCESSES).collect(),
            command: self.command.clone(),
            cpus_allowed: self.cpus_allowed,
        }
    }

    pub(super) fn not_observable(&self) -> Vec<NotObservable> {
        let of_one = self.processes.first().into_iter().flat_map(Process::not_observable);
        let mut all: Vec<_> = self.missing.iter().chain(of_one).cloned().collect();
        all.extend(self.cgroups.not_observable(&self.name));
        let read: usize = self.processes.iter().map(Process::threads_read).sum();
        let known: u64 = self.processes.iter().map(Process::threads_known).sum();
        if read == MAX_THREADS_READ && known > read as u64 {
            let why = format!("of the {known} threads of {} only {read} are read", self.name);
            all.push(NotObservable::new("every thread", why));
        }
        all
    }

    /// What the role used in the last `seconds`; `ended` takes the processes that are gone.
    /// `somebody_is_new` says that a thread may have been made anywhere on the machine.
    pub(super) fn sample(
        &mut self,
        seconds: f64,
        somebody_is_new: bool,
        ended: &mut Vec<i32>,
    ) -> RoleUse {
        self.samples += 1;
        let mut sum = Sum::default();
        self.processes.retain_mut(|process| match process.sample() {
            Ok(used) => {
                sum.add(&used);
                true
            }
            Err(_) => {
                ended.push(process.pid);
                false
            }
        });
        if somebody_is_new {
            self.find_threads();
        }
        if self.samples.is_multiple_of(CLOSER_EVERY) {
            self.look_closer();
        }
        let mut role = sum.into_use(seconds);
        role.processes = self.processes.len() as u32;
        role.proportional_bytes =
            self.processes.iter().map(|process| process.proportional_bytes).sum();
        role.proportional_bytes = role.proportional_bytes.filter(|_| !self.processes.is_empty());
        self.add_threads(&mut role, seconds);
        role.cgroup = self.cgroups.sample(seconds, self.processes.iter().map(|one| one.pid));
        role
    }

    fn thread_room(&self) -> usize {
        MAX_THREADS_READ - self.processes.iter().map(Process::threads_read).sum::<usize>()
    }

    fn find_threads(&mut self) {
        let mut room = self.thread_room();
        for process in &mut self.processes {
            let before = process.threads_read();
            process.find_threads(Began::Since, before + room);
            room = (room + before).saturating_sub(process.threads_read());
        }
    }

    fn look_closer(&mut self) {
        let shares_memory = (2..=SHARED_MEMORY_PROCESSES_MAX).contains(&self.processes.len());
        for process in &mut self.processes {
            process.look_closer(shares_memory);
        }
        self.count_cpus();
    }

    fn count_cpus(&mut self) {
        let mut allowed = [false; MAX_CPUS];
        for process in &self.processes {
            process.add_affinity(&mut allowed);
        }
        let count = allowed.iter().filter(|allowed| **allowed).count() as u32;
        // What it was stays said of a role that has ended.
        if count > 0 {
            self.cpus_allowed = count;
        }
    }

    fn add_threads(&mut self, role: &mut RoleUse, seconds: f64) {
        let (mut voluntary, mut involuntary) = (0, 0);
        for process in &mut self.processes {
            process.sample_threads(seconds, |thread, switches, state| {
                voluntary += switches.voluntary;
                involuntary += switches.involuntary;
                role.threads_in_disk_sleep += u32::from(state == 'D');
                if thread.busy > 0.0 || thread.waiting.is_some_and(|waiting| waiting > 0.0) {
                    role.threads.push(thread);
                }
            });
        }
        role.voluntary_switches_per_s = voluntary as f64 / seconds;
        role.involuntary_switches_per_s = involuntary as f64 / seconds;
        let wanted = |thread: &ThreadUse| thread.busy + thread.waiting.unwrap_or(0.0);
        role.threads.sort_by(|one, other| {
            other.busy.total_cmp(&one.busy).then(wanted(other).total_cmp(&wanted(one)))
        });
        role.threads.truncate(MAX_THREADS);
    }
}

/// The use of several processes, added up.
#[derive(Debug, Default)]
struct Sum {
    user_ticks: u64,
    system_ticks: u64,
    /// By the clocks of the processes, or by ticks for those that have none.
    cpu_ns: u64,
    all_user_ticks: u64,
    all_system_ticks: u64,
    minor_faults: u64,
    major_faults: u64,
    resident_pages: u64,
    threads: u64,
    io: Option<Io>,
    /// Of the process with the least room.
    descriptors: Option<(u64, u64)>,
}

impl Sum {
    fn add(&mut self, used: &ProcessUse) {
        self.user_ticks += used.user_ticks;
        self.system_ticks += used.system_ticks;
        let by_ticks = || {
            let ticks = used.user_ticks + used.system_ticks;
            ticks.saturating_mul(1_000_000_000) / crate::cpu::ticks_per_s().max(1)
        };
        self.cpu_ns += used.cpu_ns.unwrap_or_else(by_ticks);
        self.all_user_ticks += used.all_user_ticks;
        self.all_system_ticks += used.all_system_ticks;
        self.minor_faults += used.minor_faults;
        self.major_faults += used.major_faults;
        self.resident_pages += used.resident_pages;
        self.threads += used.threads;
        if let Some(io) = used.io {
            let sum = self.io.get_or_insert_default();
            sum.written_bytes += io.written_bytes;
            sum.disk_write_bytes += io.disk_write_bytes;
        }
        let room = |(open, max): (u64, u64)| max.saturating_sub(open);
        if let Some(descriptors) = used.descriptors
            && self.descriptors.is_none_or(|least| room(descriptors) < room(least))
        {
            self.descriptors = Some(descriptors);
        }
    }

    /// The share of user space in the CPU time. The ticks of one sample say it where there are enough of
    /// them, and else those of the processes' whole lives.
    fn user_share(&self) -> f64 {
        let ticks = self.user_ticks + self.system_ticks;
        let all_ticks = self.all_user_ticks + self.all_system_ticks;
        match (ticks >= TICKS_FOR_A_SPLIT || all_ticks == 0, ticks) {
            (true, 0) => 0.5,
            (true, _) => self.user_ticks as f64 / ticks as f64,
            (false, _) => self.all_user_ticks as f64 / all_ticks as f64,
        }
    }

    fn into_use(self, seconds: f64) -> RoleUse {
        let cpus = self.cpu_ns as f64 / 1e9 / seconds;
        let user = self.user_share();
        let rate = |count: u64| count as f64 / seconds;
        let page_bytes = rustix::param::page_size() as u64;
        RoleUse {
            user_cpus: cpus * user,
            system_cpus: cpus * (1.0 - user),
            threads_total: u32::try_from(self.threads).unwrap_or(u32::MAX),
            descriptors: self.descriptors.map(|(open, _)| open),
            descriptors_max: self.descriptors.map(|(_, max)| max),
            resident_bytes: (self.threads > 0).then_some(self.resident_pages * page_bytes),
            minor_faults_per_s: rate(self.minor_faults),
            major_faults_per_s: rate(self.major_faults),
            written_bytes_per_s: self.io.map(|io| rate(io.written_bytes)),
            disk_write_bytes_per_s: self.io.map(|io| rate(io.disk_write_bytes)),
            ..RoleUse::default()
        }
    }
}

/// The command of a process, shortened; its name where it has none, as a kernel thread.
fn command(pid: i32) -> String {
    let read = |file: &str| read_once("command of a process", &format!("/proc/{pid}/{file}"));
    let words = read("cmdline").unwrap_or_default();
    let mut text = words.split('\0').collect::<Vec<_>>().join(" ");
    if text.trim().is_empty() {
        text = read("comm").unwrap_or_default();
    }
    let text = text.trim();
    match text.char_indices().nth(COMMAND_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_added_up_and_the_one_with_the_least_room_counts() {
        let mut sum = Sum::default();
        let one = ProcessUse {
            user_ticks: 30,
            system_ticks: 10,
            minor_faults: 4,
            resident_pages: 2,
            threads: 3,
            io: Some(Io { written_bytes: 100, disk_write_bytes: 10 }),
            descriptors: Some((900, 1024)),
            ..ProcessUse::default()
        };
        sum.add(&one);
        sum.add(&ProcessUse { io: None, descriptors: Some((1000, 20_000)), ..one.clone() });
        let role = sum.into_use(2.0);
        let cpus = 40.0 / crate::cpu::ticks_per_s() as f64;
        let (user, system) = (cpus * 0.75, cpus * 0.25);
        assert!((role.user_cpus - user).abs() < 1e-9 && (role.system_cpus - system).abs() < 1e-9);
        assert_eq!((role.threads_total, role.minor_faults_per_s), (6, 4.0));
        assert_eq!((role.descriptors, role.descriptors_max), (Some(900), Some(1024)));
        assert_eq!(role.written_bytes_per_s, Some(50.0));
        assert!(role.resident_bytes.is_some_and(|bytes| bytes >= 4 * 4096));
        assert_eq!(Sum::default().into_use(1.0).resident_bytes, None);
    }

    #[test]
    fn little_time_is_told_by_the_clock_and_split_as_it_was_before() {
        let mut sum = Sum::default();
        sum.add(&ProcessUse {
            cpu_ns: Some(2_000_000),
            all_user_ticks: 30,
            all_system_ticks: 10,
            ..ProcessUse::default()
        });
        let role = sum.into_use(1.0);
        assert!((role.user_cpus - 0.0015).abs() < 1e-12, "{}", role.user_cpus);
        assert!((role.system_cpus - 0.0005).abs() < 1e-12, "{}", role.system_cpus);
        let none = Sum::default().into_use(1.0);
        assert_eq!((none.user_cpus, none.system_cpus), (0.0, 0.0));
    }

    #[test]
    fn a_role_that_works_is_seen_and_one_that_ends_is_gone() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo ready; while :; do :; done"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let pid = child.id() as i32;
        let mut role = RoleWatch::new("subject");
        role.add(pid, Began::Before);
        let mut ended = Vec::new();
        // It takes a tick or two for its work to show.
        let mut cpus = 0.0;
        for _ in 0..3000 {
            let used = role.sample(1.0, true, &mut ended);
            cpus += used.user_cpus + used.system_cpus;
            assert_eq!((used.processes, used.threads_total), (1, 1));
            if cpus > 0.0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(cpus > 0.0 && ended.is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        let used = role.sample(1.0, false, &mut ended);
        assert_eq!((used.processes, &ended[..]), (0, &[pid][..]));
        let said = role.describe();
        assert!(said.command.starts_with("sh -c echo ready"), "{said:?}");
        assert!(said.cpus_allowed >= 1 && said.pids == [pid]);
        role.add(i32::MAX, Began::Before);
        assert!(role.not_observable()[0].why.contains("/proc/2147483647/stat"));
    }
}
