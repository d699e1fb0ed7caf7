//! One process of a role between two samples, with its threads.
//!
//! Sums over a role are elsewhere. Files stay open; a process or a thread whose files have become
//! unreadable has ended.

use crate::cpu::process_cpu_ns;
use crate::kernel_file::{KernelFile, NotObservable, read_once};
use crate::process::stats::{
    ContextSwitches, IoCounters, parse_io, parse_memory, parse_open_files_max, parse_switches,
};
use crate::process::{
    ProcessReader, ProcessTimes, ThreadReader, ThreadTimes, fd_tables, max_open_fds, parse_wchan, thread_ids,
};
use record::observed::ThreadCpuUse;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Maximum memory of a process for summing its shared memory. The sum holds up its page faults: 1
/// GiB takes some milliseconds.
const SHARED_MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Start of a process or thread relative to the start of monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartPhase {
    /// Started before: its CPU time so far does not count.
    BeforeMonitoring,
    /// Started meanwhile: all its CPU time counts.
    DuringMonitoring,
}

#[derive(Debug)]
pub(super) struct ProcessMonitor {
    pub(super) pid: i32,
    times: ProcessReader,
    io: Result<KernelFile, NotObservable>,
    fd_tables: Vec<i32>,
    open_files_max: Option<u64>,
    /// Last sum of `smaps_rollup`.
    pub(super) proportional_bytes: Option<u64>,
    threads: Vec<ThreadMonitor>,
    last: ProcessTimes,
    last_cpu_ns: Option<u64>,
    last_io: Option<IoCounters>,
}

/// Use of a process, in the units of its files.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ProcessUse {
    pub(super) user_ticks: u64,
    pub(super) system_ticks: u64,
    /// CPU time by the clock of the process; `None` if it cannot be read.
    pub(super) cpu_ns: Option<u64>,
    /// CPU time of children that ended, by the ticks that were waited for.
    pub(super) children_ticks: u64,
    /// Ticks since the process began, for the split where few ticks have passed.
    pub(super) lifetime_user_ticks: u64,
    pub(super) lifetime_system_ticks: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) resident_pages: u64,
    pub(super) threads: u64,
    pub(super) io: Option<IoCounters>,
    /// Open descriptors of its fullest table, and the limit.
    pub(super) descriptors: Option<(u64, u64)>,
}

impl ProcessMonitor {
    pub(super) fn open(pid: i32, start_phase: StartPhase) -> Result<Self, NotObservable> {
        let mut times = ProcessReader::open(pid)?;
        let mut io = KernelFile::open("bytes written by a process", format!("/proc/{pid}/io"));
        let last = match start_phase {
            StartPhase::BeforeMonitoring => times.sample()?.clone(),
            StartPhase::DuringMonitoring => ProcessTimes::default(),
        };
        let last_io = match (start_phase, &mut io) {
            (StartPhase::BeforeMonitoring, Ok(file)) => file.read().ok().and_then(|text| parse_io(&text)),
            (StartPhase::DuringMonitoring, _) => Some(IoCounters::default()),
            (StartPhase::BeforeMonitoring, Err(_)) => None,
        };
        let mut process = Self {
            pid,
            times,
            io,
            fd_tables: Vec::new(),
            open_files_max: None,
            proportional_bytes: None,
            threads: Vec::new(),
            last,
            last_cpu_ns: match start_phase {
                StartPhase::BeforeMonitoring => process_cpu_ns(pid),
                StartPhase::DuringMonitoring => Some(0),
            },
            last_io,
        };
        process.refresh_slow_metrics(false);
        Ok(process)
    }

    pub(super) fn not_observable(&self) -> impl Iterator<Item = &NotObservable> {
        let thread = self.threads.first();
        let io = self.io.as_ref().err();
        io.into_iter().chain(thread.into_iter().flat_map(ThreadMonitor::not_observable))
    }

    /// Reads what changes seldom or costs more: limits, descriptor tables, and shared memory if
    /// `shares_memory` states that other processes of the role share pages.
    pub(super) fn refresh_slow_metrics(&mut self, shares_memory: bool) {
        let pid = self.pid;
        self.fd_tables = fd_tables(pid);
        let read = |file: &str| read_once("limits of a process", &format!("/proc/{pid}/{file}")).ok();
        self.open_files_max = read("limits").and_then(|text| parse_open_files_max(&text));
        let resident = self.last.resident_pages * rustix::param::page_size() as u64;
        self.proportional_bytes = (shares_memory && resident <= SHARED_MEMORY_BYTES_MAX)
            .then(|| Some(parse_memory(&read("smaps_rollup")?)?.proportional_bytes))
            .flatten();
    }

    /// Opens the files of new threads, at most `max_threads` in all, and closes those of ended
    /// ones.
    pub(super) fn find_threads(&mut self, start_phase: StartPhase, max_threads: usize) {
        let Ok(tids) = thread_ids(self.pid) else {
            return;
        };
        self.threads.retain(|thread| tids.contains(&thread.tid));
        for tid in tids {
            if self.threads.len() >= max_threads {
                return;
            }
            if !self.threads.iter().any(|known| known.tid == tid)
                && let Ok(thread) = ThreadMonitor::open(self.pid, tid, start_phase)
            {
                self.threads.push(thread);
            }
        }
    }

    /// CPU time of the process itself until its last sample, in ticks.
    pub(super) fn last_ticks(&self) -> u64 {
        self.last.user_ticks + self.last.system_ticks
    }

    pub(super) fn threads_read(&self) -> usize {
        self.threads.len()
    }

    /// Returns the number of threads at the last reading.
    pub(super) fn threads_total(&self) -> u64 {
        self.last.threads
    }

    /// Returns the use since the last reading; fails if the process has ended.
    pub(super) fn sample(&mut self) -> Result<ProcessUse, NotObservable> {
        let now = self.times.sample()?;
        let mut used = usage_since(now, &self.last);
        self.last.clone_from(now);
        let cpu_ns = process_cpu_ns(self.pid);
        used.cpu_ns = cpu_ns.zip(self.last_cpu_ns).map(|(now, then)| now.saturating_sub(then));
        self.last_cpu_ns = cpu_ns;
        let io = self.io.as_mut().ok().and_then(|file| parse_io(&file.read().ok()?));
        used.io = io.zip(self.last_io).map(|(now, then)| IoCounters {
            written_bytes: now.written_bytes.saturating_sub(then.written_bytes),
            disk_write_bytes: now.disk_write_bytes.saturating_sub(then.disk_write_bytes),
        });
        self.last_io = io;
        let open = max_open_fds(self.pid, &self.fd_tables).ok();
        used.descriptors = open.zip(self.open_files_max);
        Ok(used)
    }

    /// Calls `each` with every thread's use in the last `seconds`; drops ended threads.
    pub(super) fn sample_threads(
        &mut self,
        seconds: f64,
        mut each: impl FnMut(ThreadCpuUse, ContextSwitches),
    ) {
        self.threads.retain_mut(|thread| {
            let Ok((used, switches)) = thread.sample(seconds) else {
                return false;
            };
            each(used, switches);
            true
        });
    }

    /// Returns the CPU time of its threads since they are read, in seconds.
    pub(super) fn cpu_s_of_threads(&self) -> impl Iterator<Item = f64> {
        self.threads.iter().map(|thread| thread.cpu_s)
    }

    pub(super) fn working_threads(&self) -> usize {
        self.threads.iter().filter(|thread| thread.is_working).count()
    }

    /// Marks the threads with at least this CPU time: those that serve requests.
    pub(super) fn mark_working_threads(&mut self, cpu_s_min: f64) {
        self.threads.iter_mut().for_each(|thread| thread.is_working = thread.cpu_s >= cpu_s_min);
    }

    /// Calls `each` with the state of each sleeping thread, and of the working ones with the kernel function that
    /// they sleep in: of at most `count_max` threads that work, or of the others. Returns the number of threads read.
    pub(super) fn poll_sleeps(
        &mut self,
        are_working: bool,
        count_max: usize,
        mut each: impl FnMut(char, Option<&str>),
    ) -> usize {
        let mut polled = 0;
        for thread in
            self.threads.iter_mut().filter(|thread| thread.is_working == are_working).take(count_max)
        {
            polled += 1;
            if let Ok(state @ ('S' | 'D')) = thread.times.state() {
                let file = thread.wchan.as_mut().ok().filter(|_| are_working);
                let text = file.and_then(|file| file.read().ok());
                each(state, text.as_deref().and_then(parse_wchan));
            }
        }
        polled
    }

    /// Marks the CPUs that the process's threads may run on.
    pub(super) fn add_affinity(&self, allowed: &mut [bool]) {
        for thread in &self.threads {
            let tid = Pid::from_raw(thread.tid);
            let set = tid.and_then(|tid| sched_getaffinity(Some(tid)).ok());
            for (cpu, allowed) in allowed.iter_mut().enumerate().take(CpuSet::MAX_CPU) {
                *allowed |= set.as_ref().is_some_and(|set| set.is_set(cpu));
            }
        }
    }
}

fn usage_since(now: &ProcessTimes, then: &ProcessTimes) -> ProcessUse {
    ProcessUse {
        user_ticks: now.user_ticks.saturating_sub(then.user_ticks),
        system_ticks: now.system_ticks.saturating_sub(then.system_ticks),
        cpu_ns: None,
        children_ticks: now.children_ticks.saturating_sub(then.children_ticks),
        lifetime_user_ticks: now.user_ticks,
        lifetime_system_ticks: now.system_ticks,
        minor_faults: now.minor_faults.saturating_sub(then.minor_faults),
        major_faults: now.major_faults.saturating_sub(then.major_faults),
        resident_pages: now.resident_pages,
        threads: now.threads,
        io: None,
        descriptors: None,
    }
}

#[derive(Debug)]
struct ThreadMonitor {
    tid: i32,
    times: ThreadReader,
    status: Option<KernelFile>,
    wchan: Result<KernelFile, NotObservable>,
    /// CPU time since it is read, in seconds.
    cpu_s: f64,
    /// True for a thread that serves requests, by its CPU time.
    is_working: bool,
    last: ThreadTimes,
    last_switches: ContextSwitches,
}

impl ThreadMonitor {
    fn open(pid: i32, tid: i32, start_phase: StartPhase) -> Result<Self, NotObservable> {
        let mut times = ThreadReader::open(pid, tid)?;
        let directory = format!("/proc/{pid}/task/{tid}");
        let mut status = KernelFile::open("context switches of a thread", format!("{directory}/status")).ok();
        let wchan = KernelFile::open(
            "kernel function in which a thread sleeps (wchan)",
            format!("{directory}/wchan"),
        );
        let (last, last_switches) = match start_phase {
            StartPhase::BeforeMonitoring => {
                let switches = status.as_mut().and_then(|file| parse_switches(&file.read().ok()?));
                (times.sample()?.clone(), switches.unwrap_or_default())
            }
            StartPhase::DuringMonitoring => {
                let zero = ThreadTimes { run_ns: Some(0), wait_ns: Some(0), ..ThreadTimes::default() };
                (zero, ContextSwitches::default())
            }
        };
        Ok(Self { tid, times, status, wchan, cpu_s: 0.0, is_working: false, last, last_switches })
    }

    fn not_observable(&self) -> impl Iterator<Item = &NotObservable> {
        self.times.not_observable().into_iter().chain(self.wchan.as_ref().err())
    }

    fn sample(&mut self, seconds: f64) -> Result<(ThreadCpuUse, ContextSwitches), NotObservable> {
        let now = self.times.sample()?;
        let used = thread_use(now, &self.last, seconds, crate::cpu::ticks_per_s() as f64);
        self.last.clone_from(now);
        self.cpu_s += used.busy * seconds;
        let switches = self.status.as_mut().and_then(|file| parse_switches(&file.read().ok()?));
        let then = self.last_switches;
        let switches = switches.unwrap_or(then);
        self.last_switches = switches;
        let delta = ContextSwitches {
            voluntary: switches.voluntary.saturating_sub(then.voluntary),
            involuntary: switches.involuntary.saturating_sub(then.involuntary),
        };
        Ok((used, delta))
    }
}

fn thread_use(now: &ThreadTimes, then: &ThreadTimes, seconds: f64, ticks_per_s: f64) -> ThreadCpuUse {
    let wall_fraction = |ns: u64| (ns as f64 / 1e9 / seconds).clamp(0.0, 1.0);
    let fraction_since =
        |now: Option<u64>, then: Option<u64>| Some(wall_fraction(now?.saturating_sub(then?)));
    let ticks = |times: &ThreadTimes| times.user_ticks + times.system_ticks;
    let by_ticks = ticks(now).saturating_sub(ticks(then)) as f64 / ticks_per_s / seconds;
    ThreadCpuUse {
        tid: now.tid,
        name: now.name.clone(),
        cpu: now.cpu,
        busy: fraction_since(now.run_ns, then.run_ns).unwrap_or_else(|| by_ticks.clamp(0.0, 1.0)),
        waiting: fraction_since(now.wait_ns, then.wait_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_uses_what_schedstat_says_or_else_ticks() {
        let times = |ticks, run_ns, wait_ns| ThreadTimes {
            tid: 7,
            name: "worker".to_owned(),
            user_ticks: ticks,
            run_ns,
            wait_ns,
            cpu: 1,
            ..ThreadTimes::default()
        };
        let then = times(10, Some(0), Some(500_000_000));
        let used = thread_use(&times(300, Some(1_000_000_000), Some(700_000_000)), &then, 2.0, 100.0);
        assert_eq!((used.tid, used.cpu, used.name.as_str()), (7, 1, "worker"));
        assert_eq!(used.busy, 0.5);
        assert!((used.waiting.unwrap() - 0.1).abs() < 1e-12);
        let used = thread_use(&times(60, None, None), &then, 2.0, 100.0);
        assert_eq!((used.busy, used.waiting), (0.25, None));
    }

    #[test]
    fn this_process_is_sampled_live() {
        let pid = std::process::id() as i32;
        let mut process = ProcessMonitor::open(pid, StartPhase::BeforeMonitoring).unwrap();
        process.find_threads(StartPhase::BeforeMonitoring, 64);
        process.refresh_slow_metrics(true);
        let used = process.sample().unwrap();
        assert!(used.threads >= 1 && used.resident_pages > 0);
        assert!(used.descriptors.is_some_and(|(open, max)| open > 0 && open < max));
        let mut threads = 0;
        process.sample_threads(1.0, |_, _| threads += 1);
        assert!(threads >= 1);
        let mut allowed = [false; 64];
        process.add_affinity(&mut allowed);
        assert!(allowed.contains(&true));
        assert!(ProcessMonitor::open(i32::MAX, StartPhase::BeforeMonitoring).is_err());
    }

    #[test]
    fn a_sleeping_thread_is_polled_with_its_function() {
        let mut process =
            ProcessMonitor::open(std::process::id() as i32, StartPhase::BeforeMonitoring).unwrap();
        process.find_threads(StartPhase::BeforeMonitoring, 64);
        if let Some(missing) = process.not_observable().find(|missing| missing.figure.contains("wchan")) {
            return test_needs::skip(test_needs::KERNEL, missing.reason.clone());
        }
        let sleeper = std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_millis(300)));
        process.find_threads(StartPhase::DuringMonitoring, 64);
        process.mark_working_threads(0.0);
        let mut functions = Vec::new();
        while !sleeper.is_finished() && !functions.iter().any(|name: &String| name.contains("nanosleep")) {
            let polled = process.poll_sleeps(true, 64, |state, function| {
                assert!(matches!(state, 'S' | 'D'));
                functions.extend(function.map(str::to_owned));
            });
            assert!(polled >= 2);
        }
        assert!(functions.iter().any(|name| name.contains("nanosleep")), "{functions:?}");
        sleeper.join().unwrap();
    }
}
