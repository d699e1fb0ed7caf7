//! Sums over all processes of one role between two samples.
//!
//! The caller selects the processes.

use record::sorted::{CollectSorted, sort_by, sort_by_key};

use super::cgroups::CgroupMonitor;
use super::identity;
use super::process::{ProcessMonitor, ProcessUse, StartPhase};
use crate::kernel_file::{NotObservable, read_once};
use crate::process::printable;
use crate::process::stats::IoCounters;
use crate::process_tree::MAX_PROCESSES;
use record::observed::{KernelProcess, Role, RoleUse, ThreadCpuUse};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Maximum number of threads read per role; the busiest [`MAX_THREADS`] are recorded.
const MAX_THREADS_READ: usize = 256;
/// Maximum number of threads per role whose state is polled between samples, first those that work.
const MAX_THREADS_POLLED: usize = 64;
/// Minimum CPU time of a thread that works since it is read, as a fraction of the mean of those that ran: a pool may
/// have threads that never get work, and a log thread that nobody waits for. Not of one sample: a thread that waits
/// for seconds works as well.
const WORKING_FRACTION_MIN: f64 = 0.1;
/// Maximum number of functions per role in a sample in which threads sleep.
const MAX_SLEEP_FUNCTIONS: usize = 16;
/// Maximum number of threads per role in a sample.
const MAX_THREADS: usize = 64;
/// Maximum number of processes per role whose shared memory is summed.
const SHARED_MEMORY_PROCESSES_MAX: usize = 64;
/// Interval in samples at which seldom-changing values are read.
const SLOW_METRICS_INTERVAL: u64 = 5;
/// Maximum length of a command in characters.
const COMMAND_CHARS_MAX: usize = 120;
/// Minimum number of ticks in a sample for splitting its CPU time into user space and kernel.
const TICKS_FOR_SPLIT_MIN: u64 = 20;
const MAX_CPUS: usize = 1024;

#[derive(Debug)]
pub(super) struct RoleMonitor {
    name: String,
    /// All processes that ever belonged to the role.
    pids: Vec<i32>,
    /// Those of them that can be identified on the kernel.
    identities: Vec<KernelProcess>,
    command: String,
    cpus_allowed: u32,
    processes: Vec<ProcessMonitor>,
    cgroups: CgroupMonitor,
    samples: u64,
    sleeps: SleepPolls,
    /// Ticks of processes that ended, of which their parents have not reported the end yet.
    ended_ticks: u64,
    missing: Vec<NotObservable>,
}

/// Sleeping threads over the polls since the last sample.
#[derive(Debug, Default)]
struct SleepPolls {
    polls: u32,
    uninterruptible: u64,
    /// Those of working threads whose function could not be read.
    unreadable: u64,
    by_function: BTreeMap<String, u64>,
}

impl SleepPolls {
    fn add_function(&mut self, function: Option<&str>) {
        match function.map(|name| (name, self.by_function.get_mut(name))) {
            Some((_, Some(threads))) => *threads += 1,
            Some((name, None)) => drop(self.by_function.insert(name.to_owned(), 1)),
            None => self.unreadable += 1,
        }
    }

    /// Returns the mean number of threads in the functions with most of them; `None` if no function could be read.
    fn into_mean_by_function(self) -> Option<BTreeMap<String, f64>> {
        if self.by_function.is_empty() && self.unreadable > 0 {
            return None;
        }
        let mut functions: Vec<_> = self.by_function.into_iter().collect();
        sort_by_key(&mut functions, |(_, threads)| Reverse(*threads));
        functions.truncate(MAX_SLEEP_FUNCTIONS);
        let mean = |threads: u64| threads as f64 / f64::from(self.polls);
        Some(functions.into_iter().map(|(name, threads)| (name, mean(threads))).collect_map())
    }
}

impl RoleMonitor {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            pids: Vec::new(),
            identities: Vec::new(),
            command: String::new(),
            cpus_allowed: 0,
            processes: Vec::new(),
            cgroups: CgroupMonitor::default(),
            samples: 0,
            sleeps: SleepPolls::default(),
            ended_ticks: 0,
            missing: Vec::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn any_live_pid(&self) -> Option<i32> {
        self.processes.first().map(|process| process.pid)
    }

    pub(super) fn live_pids(&self) -> Vec<i32> {
        self.processes.iter().map(|process| process.pid).collect()
    }

    /// Adds a process. A process that has already ended is reported if it was named.
    pub(super) fn add(&mut self, pid: i32, start_phase: StartPhase) {
        match ProcessMonitor::open(pid, start_phase) {
            Ok(mut process) => {
                process.find_threads(start_phase, self.thread_slots_left());
                self.processes.push(process);
                self.pids.push(pid);
                self.identities.extend(identity::read(pid).filter(|_| self.identities.len() < MAX_PROCESSES));
                if self.command.is_empty() {
                    self.command = read_command(pid);
                }
            }
            Err(error) if start_phase == StartPhase::BeforeMonitoring => self.missing.push(error),
            Err(_) => {}
        }
        self.update_cpus_allowed();
    }

    pub(super) fn describe(&self) -> Role {
        Role {
            name: self.name.clone(),
            pids: self.pids.iter().copied().take(MAX_PROCESSES).collect(),
            processes: self.identities.clone(),
            command: self.command.clone(),
            cpus_allowed: self.cpus_allowed,
        }
    }

    pub(super) fn not_observable(&self) -> Vec<NotObservable> {
        let first_process_missing =
            self.processes.first().into_iter().flat_map(ProcessMonitor::not_observable);
        let mut all: Vec<_> = self.missing.iter().chain(first_process_missing).cloned().collect();
        all.extend(self.cgroups.not_observable(&self.name));
        let read: usize = self.processes.iter().map(ProcessMonitor::threads_read).sum();
        let known: u64 = self.processes.iter().map(ProcessMonitor::threads_total).sum();
        if read == MAX_THREADS_READ && known > read as u64 {
            let why = format!("only {read} of {known} threads of {} are read", self.name);
            all.push(NotObservable::new("every thread", why));
        }
        let working: usize = self.processes.iter().map(ProcessMonitor::working_threads).sum();
        if working > MAX_THREADS_POLLED {
            let why =
                format!("only {MAX_THREADS_POLLED} of {working} working threads of {} are polled", self.name);
            all.push(NotObservable::new("what every thread waits for", why));
        }
        all
    }

    /// Polls what the threads wait for: one sample per second would miss most waits.
    pub(super) fn poll_sleeps(&mut self) {
        let mut threads_left = MAX_THREADS_POLLED;
        self.sleeps.polls += 1;
        for are_working in [true, false] {
            for process in &mut self.processes {
                threads_left -= process.poll_sleeps(are_working, threads_left, |state, function| {
                    self.sleeps.uninterruptible += u64::from(state == 'D');
                    if are_working {
                        self.sleeps.add_function(function);
                    }
                });
            }
        }
    }

    /// Returns the role's use in the last `seconds`; collects ended processes in `ended`.
    /// `may_have_new_tasks` is true if a thread may have been created anywhere on the machine.
    pub(super) fn sample(&mut self, seconds: f64, may_have_new_tasks: bool, ended: &mut Vec<i32>) -> RoleUse {
        self.samples += 1;
        let mut totals = RoleTotals::default();
        self.processes.retain_mut(|process| match process.sample() {
            Ok(used) => {
                totals.add(&used);
                true
            }
            Err(_) => {
                ended.push(process.pid);
                self.ended_ticks += process.last_ticks();
                false
            }
        });
        totals.add_ended(&mut self.ended_ticks);
        if may_have_new_tasks {
            self.find_threads();
        }
        if self.samples.is_multiple_of(SLOW_METRICS_INTERVAL) {
            self.refresh_slow_metrics();
        }
        let mut role = totals.into_use(seconds);
        role.processes = self.processes.len() as u32;
        role.proportional_bytes = self.processes.iter().map(|process| process.proportional_bytes).sum();
        role.proportional_bytes = role.proportional_bytes.filter(|_| !self.processes.is_empty());
        self.add_threads(&mut role, seconds);
        role.cgroup = self.cgroups.sample(seconds, self.processes.iter().map(|process| process.pid));
        role
    }

    fn thread_slots_left(&self) -> usize {
        MAX_THREADS_READ - self.processes.iter().map(ProcessMonitor::threads_read).sum::<usize>()
    }

    fn find_threads(&mut self) {
        let mut slots_left = self.thread_slots_left();
        for process in &mut self.processes {
            let before = process.threads_read();
            process.find_threads(StartPhase::DuringMonitoring, before + slots_left);
            slots_left = (slots_left + before).saturating_sub(process.threads_read());
        }
    }

    fn refresh_slow_metrics(&mut self) {
        let shares_memory = (2..=SHARED_MEMORY_PROCESSES_MAX).contains(&self.processes.len());
        for process in &mut self.processes {
            process.refresh_slow_metrics(shares_memory);
        }
        self.update_cpus_allowed();
    }

    fn update_cpus_allowed(&mut self) {
        let mut allowed = [false; MAX_CPUS];
        for process in &self.processes {
            process.add_affinity(&mut allowed);
        }
        let count = allowed.iter().filter(|allowed| **allowed).count() as u32;
        // An ended role keeps its last figure.
        if count > 0 {
            self.cpus_allowed = count;
        }
    }

    fn add_threads(&mut self, role: &mut RoleUse, seconds: f64) {
        let (mut voluntary, mut involuntary) = (0, 0);
        self.poll_sleeps();
        let sleeps = std::mem::take(&mut self.sleeps);
        role.threads_in_disk_sleep = sleeps.uninterruptible as f64 / f64::from(sleeps.polls);
        role.threads_asleep = sleeps.into_mean_by_function();
        for process in &mut self.processes {
            process.sample_threads(seconds, |thread, switches| {
                voluntary += switches.voluntary;
                involuntary += switches.involuntary;
                if thread.busy > 0.0 || thread.waiting.is_some_and(|waiting| waiting > 0.0) {
                    role.threads.push(thread);
                }
            });
        }
        let cpu_s: Vec<f64> = self.processes.iter().flat_map(ProcessMonitor::cpu_s_of_threads).collect();
        let cpu_s_min = working_cpu_s_min(&cpu_s);
        self.processes.iter_mut().for_each(|process| process.mark_working_threads(cpu_s_min));
        role.voluntary_switches_per_s = voluntary as f64 / seconds;
        role.involuntary_switches_per_s = involuntary as f64 / seconds;
        let demand = |thread: &ThreadCpuUse| thread.busy + thread.waiting.unwrap_or(0.0);
        sort_by(&mut role.threads, |left, right| {
            right.busy.total_cmp(&left.busy).then(demand(right).total_cmp(&demand(left)))
        });
        role.threads.truncate(MAX_THREADS);
    }
}

/// Sum over several processes.
#[derive(Debug, Default)]
struct RoleTotals {
    user_ticks: u64,
    system_ticks: u64,
    /// Sum of the processes' clocks, or of ticks for processes without a clock.
    cpu_ns: u64,
    lifetime_user_ticks: u64,
    lifetime_system_ticks: u64,
    children_ticks: u64,
    minor_faults: u64,
    major_faults: u64,
    resident_pages: u64,
    threads: u64,
    io: Option<IoCounters>,
    /// Values of the process with the fewest free descriptors.
    descriptors: Option<(u64, u64)>,
}

impl RoleTotals {
    /// Adds what processes used between their last sample and their end, which only their parents
    /// report: the CPU time of children that were waited for, without the part that was sampled.
    fn add_ended(&mut self, sampled_ticks: &mut u64) {
        let known = self.children_ticks.min(*sampled_ticks);
        *sampled_ticks -= known;
        let missed = self.children_ticks - known;
        self.user_ticks += missed;
        self.cpu_ns += missed.saturating_mul(1_000_000_000) / crate::cpu::ticks_per_s().max(1);
    }

    fn add(&mut self, used: &ProcessUse) {
        self.user_ticks += used.user_ticks;
        self.system_ticks += used.system_ticks;
        let by_ticks = || {
            let ticks = used.user_ticks + used.system_ticks;
            ticks.saturating_mul(1_000_000_000) / crate::cpu::ticks_per_s().max(1)
        };
        self.cpu_ns += used.cpu_ns.unwrap_or_else(by_ticks);
        self.children_ticks += used.children_ticks;
        self.lifetime_user_ticks += used.lifetime_user_ticks;
        self.lifetime_system_ticks += used.lifetime_system_ticks;
        self.minor_faults += used.minor_faults;
        self.major_faults += used.major_faults;
        self.resident_pages += used.resident_pages;
        self.threads += used.threads;
        if let Some(io) = used.io {
            let sum = self.io.get_or_insert_default();
            sum.written_bytes += io.written_bytes;
            sum.disk_write_bytes += io.disk_write_bytes;
        }
        let free_descriptors = |(open, max): (u64, u64)| max.saturating_sub(open);
        if let Some(descriptors) = used.descriptors
            && self
                .descriptors
                .is_none_or(|current| free_descriptors(descriptors) < free_descriptors(current))
        {
            self.descriptors = Some(descriptors);
        }
    }

    /// Returns the user-space fraction of the CPU time. It uses the ticks of the sample if there
    /// are enough, and else those of the processes' lifetimes.
    fn user_fraction(&self) -> f64 {
        let ticks = self.user_ticks + self.system_ticks;
        let lifetime_ticks = self.lifetime_user_ticks + self.lifetime_system_ticks;
        match (ticks >= TICKS_FOR_SPLIT_MIN || lifetime_ticks == 0, ticks) {
            (true, 0) => 0.5,
            (true, _) => self.user_ticks as f64 / ticks as f64,
            (false, _) => self.lifetime_user_ticks as f64 / lifetime_ticks as f64,
        }
    }

    fn into_use(self, seconds: f64) -> RoleUse {
        let cpus = self.cpu_ns as f64 / 1e9 / seconds;
        let user = self.user_fraction();
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

/// Returns the CPU time from which on a thread works, from that of all threads: a fraction of the mean of those that ran.
fn working_cpu_s_min(cpu_s: &[f64]) -> f64 {
    let ran = cpu_s.iter().filter(|cpu_s| **cpu_s > 0.0).count();
    let mean = cpu_s.iter().sum::<f64>() / ran.max(1) as f64;
    (mean * WORKING_FRACTION_MIN).max(f64::MIN_POSITIVE)
}

/// Returns the shortened command of a process; its name if it has none, like a kernel thread.
fn read_command(pid: i32) -> String {
    let read = move |file: &str| read_once("command of a process", &format!("/proc/{pid}/{file}"));
    let arguments = read_within(&BLOCKED, COMMAND_TIMEOUT, move || read("cmdline").unwrap_or_default())
        .unwrap_or_default();
    let mut text = arguments.split('\0').collect::<Vec<_>>().join(" ");
    if text.trim().is_empty() {
        text = read("comm").unwrap_or_default();
    }
    let text = printable(text.trim());
    match text.char_indices().nth(COMMAND_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Maximum time to read the command of a process.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(200);
/// Number of threads that wait for processes, from which on no other command is read.
const BLOCKED_MAX: u32 = 4;
/// Threads that wait for processes.
static BLOCKED: AtomicU32 = AtomicU32::new(0);

/// Calls `read` in a thread, and returns its result within a time. A process can keep those who read its memory waiting
/// (FUSE, userfaultfd), and its command is a part of it. `None`: it does, or too many others do.
fn read_within<T: Send + 'static>(
    blocked: &'static AtomicU32,
    limit: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if blocked.load(Ordering::Relaxed) >= BLOCKED_MAX {
        return None;
    }
    let (sender, receiver) = mpsc::channel();
    blocked.fetch_add(1, Ordering::Relaxed);
    let thread = std::thread::Builder::new().name("command".to_owned()).spawn(move || {
        let result = read();
        blocked.fetch_sub(1, Ordering::Relaxed);
        // The receiver may have given up.
        let _ = sender.send(result);
    });
    if thread.is_err() {
        blocked.fetch_sub(1, Ordering::Relaxed);
    }
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lets_its_readers_wait_delays_nobody() {
        static READERS: AtomicU32 = AtomicU32::new(0);
        let (releases, gates): (Vec<_>, Vec<_>) = (0..BLOCKED_MAX).map(|_| mpsc::channel::<()>()).unzip();
        let short = Duration::from_millis(10);
        for gate in gates {
            assert_eq!(read_within(&READERS, short, move || gate.recv().is_ok()), None);
        }
        // No further thread is started.
        assert_eq!(read_within(&READERS, Duration::from_secs(10), || true), None);
        drop(releases);
        while READERS.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(read_within(&READERS, Duration::from_secs(10), || true), Some(true));
    }

    #[test]
    fn processes_are_added_up_and_the_fewest_free_descriptors_count() {
        let mut sum = RoleTotals::default();
        let process = ProcessUse {
            user_ticks: 30,
            system_ticks: 10,
            minor_faults: 4,
            resident_pages: 2,
            threads: 3,
            io: Some(IoCounters { written_bytes: 100, disk_write_bytes: 10 }),
            descriptors: Some((900, 1024)),
            ..ProcessUse::default()
        };
        sum.add(&process);
        sum.add(&ProcessUse { io: None, descriptors: Some((1000, 20_000)), ..process.clone() });
        let role = sum.into_use(2.0);
        let cpus = 40.0 / crate::cpu::ticks_per_s() as f64;
        let (user, system) = (cpus * 0.75, cpus * 0.25);
        assert!((role.user_cpus - user).abs() < 1e-9 && (role.system_cpus - system).abs() < 1e-9);
        assert_eq!((role.threads_total, role.minor_faults_per_s), (6, 4.0));
        assert_eq!((role.descriptors, role.descriptors_max), (Some(900), Some(1024)));
        assert_eq!(role.written_bytes_per_s, Some(50.0));
        assert!(role.resident_bytes.is_some_and(|bytes| bytes >= 4 * 4096));
        assert_eq!(RoleTotals::default().into_use(1.0).resident_bytes, None);
    }

    #[test]
    fn idle_threads_and_a_log_thread_do_not_work() {
        let works = |threads: &[f64]| {
            let min = working_cpu_s_min(threads);
            threads.iter().map(|cpu_s| *cpu_s >= min).collect::<Vec<_>>()
        };
        assert_eq!(works(&[1.0, 0.6, 0.01, 0.0]), [true, true, false, false]);
        // An acceptor does not hide workers that hardly use a CPU.
        assert_eq!(works(&[1.0, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02]), [true; 9]);
        assert_eq!(works(&[0.0, 0.0]), [false, false]);
    }

    #[test]
    fn functions_that_may_not_be_read_are_not_observable() {
        let mean_of = |functions: &[Option<&str>]| {
            let mut sleeps = SleepPolls { polls: 2, ..SleepPolls::default() };
            functions.iter().for_each(|function| sleeps.add_function(*function));
            sleeps.into_mean_by_function()
        };
        assert_eq!(mean_of(&[]), Some(BTreeMap::new()));
        assert_eq!(mean_of(&[None, None]), None);
        let two = [("do_wait".to_owned(), 0.5), ("futex_do_wait".to_owned(), 1.0)];
        assert_eq!(
            mean_of(&[Some("futex_do_wait"), None, Some("do_wait"), Some("futex_do_wait")]),
            Some(two.into())
        );
    }

    #[test]
    fn processes_that_ended_between_samples_are_counted_once() {
        let process =
            |children_ticks| ProcessUse { cpu_ns: Some(0), children_ticks, ..ProcessUse::default() };
        // Of 50 ticks of children that ended, 30 were sampled while they ran.
        let mut sampled_ticks = 30;
        let mut sum = RoleTotals::default();
        sum.add(&process(50));
        sum.add_ended(&mut sampled_ticks);
        assert_eq!(sampled_ticks, 0);
        let cpus = 20.0 / crate::cpu::ticks_per_s() as f64;
        assert!((sum.into_use(1.0).user_cpus - cpus).abs() < 1e-9);
        // Their parent waits for them later: nothing is added until then.
        let mut sampled_ticks = 30;
        let mut sum = RoleTotals::default();
        sum.add(&process(10));
        sum.add_ended(&mut sampled_ticks);
        assert_eq!(sampled_ticks, 20);
        assert!(sum.into_use(1.0).user_cpus.abs() < 1e-9);
    }

    #[test]
    fn little_time_is_measured_by_the_clock_and_split_by_lifetime() {
        let mut sum = RoleTotals::default();
        sum.add(&ProcessUse {
            cpu_ns: Some(2_000_000),
            lifetime_user_ticks: 30,
            lifetime_system_ticks: 10,
            ..ProcessUse::default()
        });
        let role = sum.into_use(1.0);
        assert!((role.user_cpus - 0.0015).abs() < 1e-12, "{}", role.user_cpus);
        assert!((role.system_cpus - 0.0005).abs() < 1e-12, "{}", role.system_cpus);
        let none = RoleTotals::default().into_use(1.0);
        assert_eq!((none.user_cpus, none.system_cpus), (0.0, 0.0));
    }

    #[test]
    fn a_busy_role_is_sampled_and_an_ended_one_is_removed() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo ready; while :; do :; done"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let pid = child.id() as i32;
        let mut role = RoleMonitor::new("subject");
        role.add(pid, StartPhase::BeforeMonitoring);
        let mut ended = Vec::new();
        // The work needs a tick or two to show.
        let mut cpus = 0.0;
        for _ in 0..3000 {
            let used = role.sample(1.0, true, &mut ended);
            cpus += used.cpus();
            assert_eq!((used.processes, used.threads_total), (1, 1));
            if cpus > 0.0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(cpus > 0.0 && ended.is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        let used = role.sample(1.0, false, &mut ended);
        assert_eq!((used.processes, &ended[..]), (0, &[pid][..]));
        let description = role.describe();
        assert!(description.command.starts_with("sh -c echo ready"), "{description:?}");
        assert!(description.cpus_allowed >= 1 && description.pids == [pid]);
        role.add(i32::MAX, StartPhase::BeforeMonitoring);
        assert!(role.not_observable()[0].reason.contains("/proc/2147483647/stat"));
    }
}
