//! One process of a role between two looks, with its threads.
//!
//! Not for the sum over a role. Files stay open; a process or a thread whose files cannot be read
//! any more has ended.

use crate::cpu::process_cpu_ns;
use crate::process::figures::{
    Io, Switches, parse_io, parse_memory, parse_open_files_max, parse_switches,
};
use crate::process::{
    ProcessReader, ProcessTimes, ThreadReader, ThreadTimes, fullest_table, tables, thread_ids,
};
use crate::source::{NotObservable, Source, read_once};
use record::observed::ThreadUse;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Adding up the memory of a process that has more than this would hold up its page faults for
/// longer than a watcher should: 1 GiB takes some milliseconds.
const SHARED_MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Whether a process or thread was there before the watching, or began while it was watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Began {
    /// What it used so far is not counted.
    Before,
    /// All that it used is counted.
    Since,
}

/// A process that is watched.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    times: ProcessReader,
    io: Result<Source, NotObservable>,
    tables: Vec<i32>,
    open_files_max: Option<u64>,
    /// The last sum of `smaps_rollup`.
    pub(super) proportional_bytes: Option<u64>,
    threads: Vec<Thread>,
    last: ProcessTimes,
    last_cpu_ns: Option<u64>,
    last_io: Option<Io>,
}

/// What a process used, in the units of its files.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ProcessUse {
    pub(super) user_ticks: u64,
    pub(super) system_ticks: u64,
    /// CPU time by the clock of the process; `None` where it cannot be read.
    pub(super) cpu_ns: Option<u64>,
    /// Ticks since the process began, for how they are split where few have passed.
    pub(super) all_user_ticks: u64,
    pub(super) all_system_ticks: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) resident_pages: u64,
    pub(super) threads: u64,
    pub(super) io: Option<Io>,
    /// Open descriptors of its fullest table, and its limit.
    pub(super) descriptors: Option<(u64, u64)>,
}

impl Process {
    pub(super) fn open(pid: i32, began: Began) -> Result<Self, NotObservable> {
        let mut times = ProcessReader::open(pid)?;
        let mut io = Source::open("bytes written by a process", format!("/proc/{pid}/io"));
        let last = match began {
            Began::Before => times.sample()?.clone(),
            Began::Since => ProcessTimes::default(),
        };
        let last_io = match (began, &mut io) {
            (Began::Before, Ok(file)) => file.read().ok().and_then(|text| parse_io(&text)),
            (Began::Since, _) => Some(Io::default()),
            (Began::Before, Err(_)) => None,
        };
        let mut process = Self {
            pid,
            times,
            io,
            tables: Vec::new(),
            open_files_max: None,
            proportional_bytes: None,
            threads: Vec::new(),
            last,
            last_cpu_ns: match began {
                Began::Before => process_cpu_ns(pid),
                Began::Since => Some(0),
            },
            last_io,
        };
        process.look_closer(false);
        Ok(process)
    }

    pub(super) fn not_observable(&self) -> impl Iterator<Item = &NotObservable> {
        let thread = self.threads.first();
        let io = self.io.as_ref().err();
        io.into_iter().chain(thread.and_then(|thread| thread.times.not_observable()))
    }

    /// What changes seldom or costs more: limits, tables of descriptors, and shared memory where
    /// `shares_memory` says that others of the role have the same pages.
    pub(super) fn look_closer(&mut self, shares_memory: bool) {
        let pid = self.pid;
        self.tables = tables(pid);
        let read =
            |file: &str| read_once("limits of a process", &format!("/proc/{pid}/{file}")).ok();
        self.open_files_max = read("limits").and_then(|text| parse_open_files_max(&text));
        let resident = self.last.resident_pages * rustix::param::page_size() as u64;
        self.proportional_bytes = (shares_memory && resident <= SHARED_MEMORY_BYTES_MAX)
            .then(|| Some(parse_memory(&read("smaps_rollup")?)?.proportional_bytes))
            .flatten();
    }

    /// Opens the files of threads that are new, at most `room` in all, and closes those that ended.
    pub(super) fn find_threads(&mut self, began: Began, room: usize) {
        let Ok(tids) = thread_ids(self.pid) else {
            return;
        };
        self.threads.retain(|thread| tids.contains(&thread.tid));
        for tid in tids {
            if self.threads.len() >= room {
                return;
            }
            if !self.threads.iter().any(|known| known.tid == tid)
                && let Ok(thread) = Thread::open(self.pid, tid, began)
            {
                self.threads.push(thread);
            }
        }
    }

    /// Threads that are read.
    pub(super) fn threads_read(&self) -> usize {
        self.threads.len()
    }

    /// Threads that it had when it was last read.
    pub(super) fn threads_known(&self) -> u64 {
        self.last.threads
    }

    /// Its whole use since the last reading; an error when it has ended.
    pub(super) fn sample(&mut self) -> Result<ProcessUse, NotObservable> {
        let now = self.times.sample()?;
        let mut used = since(now, &self.last);
        self.last.clone_from(now);
        let cpu_ns = process_cpu_ns(self.pid);
        used.cpu_ns = cpu_ns.zip(self.last_cpu_ns).map(|(now, then)| now.saturating_sub(then));
        self.last_cpu_ns = cpu_ns;
        let io = self.io.as_mut().ok().and_then(|file| parse_io(&file.read().ok()?));
        used.io = io.zip(self.last_io).map(|(now, then)| Io {
            written_bytes: now.written_bytes.saturating_sub(then.written_bytes),
            disk_write_bytes: now.disk_write_bytes.saturating_sub(then.disk_write_bytes),
        });
        self.last_io = io;
        let open = fullest_table(self.pid, &self.tables).ok();
        used.descriptors = open.zip(self.open_files_max);
        Ok(used)
    }

    /// Calls `each` with every thread's use in the last `seconds`; threads that ended are dropped.
    pub(super) fn sample_threads(
        &mut self,
        seconds: f64,
        mut each: impl FnMut(ThreadUse, Switches, char),
    ) {
        self.threads.retain_mut(|thread| {
            let Ok((used, switches)) = thread.sample(seconds) else {
                return false;
            };
            each(used, switches, thread.last.state);
            true
        });
    }

    /// Marks the processors that its threads may run on.
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

fn since(now: &ProcessTimes, then: &ProcessTimes) -> ProcessUse {
    ProcessUse {
        user_ticks: now.user_ticks.saturating_sub(then.user_ticks),
        system_ticks: now.system_ticks.saturating_sub(then.system_ticks),
        cpu_ns: None,
        all_user_ticks: now.user_ticks,
        all_system_ticks: now.system_ticks,
        minor_faults: now.minor_faults.saturating_sub(then.minor_faults),
        major_faults: now.major_faults.saturating_sub(then.major_faults),
        resident_pages: now.resident_pages,
        threads: now.threads,
        io: None,
        descriptors: None,
    }
}

#[derive(Debug)]
struct Thread {
    tid: i32,
    times: ThreadReader,
    status: Option<Source>,
    last: ThreadTimes,
    last_switches: Switches,
}

impl Thread {
    fn open(pid: i32, tid: i32, began: Began) -> Result<Self, NotObservable> {
        let mut times = ThreadReader::open(pid, tid)?;
        let path = format!("/proc/{pid}/task/{tid}/status");
        let mut status = Source::open("context switches of a thread", path).ok();
        let (last, last_switches) = match began {
            Began::Before => {
                let switches = status.as_mut().and_then(|file| parse_switches(&file.read().ok()?));
                (times.sample()?.clone(), switches.unwrap_or_default())
            }
            Began::Since => {
                let zero =
                    ThreadTimes { run_ns: Some(0), wait_ns: Some(0), ..ThreadTimes::default() };
                (zero, Switches::default())
            }
        };
        Ok(Self { tid, times, status, last, last_switches })
    }

    fn sample(&mut self, seconds: f64) -> Result<(ThreadUse, Switches), NotObservable> {
        let now = self.times.sample()?;
        let used = thread_use(now, &self.last, seconds, crate::cpu::ticks_per_s() as f64);
        self.last.clone_from(now);
        let switches = self.status.as_mut().and_then(|file| parse_switches(&file.read().ok()?));
        let then = self.last_switches;
        let switches = switches.unwrap_or(then);
        self.last_switches = switches;
        let passed = Switches {
            voluntary: switches.voluntary.saturating_sub(then.voluntary),
            involuntary: switches.involuntary.saturating_sub(then.involuntary),
        };
        Ok((used, passed))
    }
}

fn thread_use(now: &ThreadTimes, then: &ThreadTimes, seconds: f64, ticks_per_s: f64) -> ThreadUse {
    let of_wall = |ns: u64| (ns as f64 / 1e9 / seconds).clamp(0.0, 1.0);
    let passed = |now: Option<u64>, then: Option<u64>| Some(of_wall(now?.saturating_sub(then?)));
    let ticks = |times: &ThreadTimes| times.user_ticks + times.system_ticks;
    let by_ticks = ticks(now).saturating_sub(ticks(then)) as f64 / ticks_per_s / seconds;
    ThreadUse {
        tid: now.tid,
        name: now.name.clone(),
        cpu: now.cpu,
        busy: passed(now.run_ns, then.run_ns).unwrap_or_else(|| by_ticks.clamp(0.0, 1.0)),
        waiting: passed(now.wait_ns, then.wait_ns),
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
        let used =
            thread_use(&times(300, Some(1_000_000_000), Some(700_000_000)), &then, 2.0, 100.0);
        assert_eq!((used.tid, used.cpu, used.name.as_str()), (7, 1, "worker"));
        assert_eq!(used.busy, 0.5);
        assert!((used.waiting.unwrap() - 0.1).abs() < 1e-12);
        let used = thread_use(&times(60, None, None), &then, 2.0, 100.0);
        assert_eq!((used.busy, used.waiting), (0.25, None));
    }

    #[test]
    fn this_process_is_watched_live() {
        let pid = std::process::id() as i32;
        let mut process = Process::open(pid, Began::Before).unwrap();
        process.find_threads(Began::Before, 64);
        process.look_closer(true);
        let used = process.sample().unwrap();
        assert!(used.threads >= 1 && used.resident_pages > 0);
        assert!(used.descriptors.is_some_and(|(open, max)| open > 0 && open < max));
        let mut threads = 0;
        process.sample_threads(1.0, |_, _, _| threads += 1);
        assert!(threads >= 1);
        let mut allowed = [false; 64];
        process.add_affinity(&mut allowed);
        assert!(allowed.contains(&true));
        assert!(Process::open(i32::MAX, Began::Before).is_err());
    }
}
