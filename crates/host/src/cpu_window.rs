//! CPU use during one run between two moments: by the own threads, by the process under test and by
//! everything else on the machine.
//!
//! The reader of a [`CpuWindow`] decides whether the generator was the limit. This module has no
//! thread: the caller samples at any time and passes the time.

use crate::cpu::{self, MachineCpu, ticks_per_s};
use crate::kernel_file::NotObservable;
use crate::observe::foreign_cpus;
use crate::process::{ProcessReader, ProcessTimes, ThreadReader, ThreadTimes, thread_ids};
use crate::process_tree::{MAX_PROCESSES, ProcessTree};

/// Samples this process, its threads, the subjects with their children, and the machine.
#[derive(Debug)]
pub struct CpuSampler {
    own_pid: i32,
    thread_prefix: String,
    machine: Result<cpu::CpuReader, NotObservable>,
    own: Result<ProcessReader, NotObservable>,
    threads: Vec<(i32, ThreadReader)>,
    threads_known: u64,
    subjects: Vec<(i32, Result<ProcessReader, NotObservable>)>,
    subject_children: SubjectChildren,
}

/// Descendants of the subjects, and their CPU time. They come and go: an ended process counts with
/// its last reading.
#[derive(Debug)]
struct SubjectChildren {
    process_tree: ProcessTree,
    /// Running processes, each with the ticks that were counted already.
    running: Vec<(i32, ProcessReader, u64)>,
    ticks: u64,
    /// Number of processes and threads created on the machine, at the last scan for children.
    forks: Option<u64>,
}

/// All readings at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuSnapshot {
    /// Time, in nanoseconds of the caller's clock.
    pub at_ns: u64,
    /// The machine; `None` if it cannot be read.
    pub machine: Option<MachineCpu>,
    pub own: Option<ProcessTimes>,
    /// The threads of this process whose name starts with the prefix.
    pub threads: Vec<ThreadTimes>,
    /// Each subject; `None` once it has ended.
    pub subjects: Vec<Option<ProcessTimes>>,
    /// CPU time of all descendants of the subjects since monitoring began, in ticks.
    pub children_ticks: u64,
}

/// Use between two snapshots. `None` if one of the two could not be read. Figures made of ticks are
/// accurate to about one tick (10 ms) per CPU or process: use windows of a second or more.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CpuWindow {
    /// Wall time, in seconds.
    pub seconds: f64,
    /// Own threads that existed at both ends.
    pub own_threads: Vec<OwnThreadUse>,
    /// User space time of this process, in seconds.
    pub own_user_s: Option<f64>,
    /// Kernel time of this process, in seconds.
    pub own_system_s: Option<f64>,
    /// User and kernel time of all subjects and their children, in seconds; 0 if there are none,
    /// `None` if a subject ended or cannot be read. The last part of ended children is missing.
    pub subject_cpu_s: Option<f64>,
    /// Busy CPUs of the machine, on average: 1.5 of 2, for example.
    pub machine_busy_cpus: Option<f64>,
    /// Part of the busy CPUs that ran interrupts, hard and soft: mostly the network's. The kernel
    /// may charge it to whichever process it interrupted, so it is part of the other times as well.
    pub interrupt_cpus: Option<f64>,
    /// Time stolen by the hypervisor, as a fraction of all CPU time, 0 to 1.
    pub steal_fraction: Option<f64>,
    /// Busy CPUs that belong neither to this process nor to a subject or its child, at least 0:
    /// other processes, and kernel threads. `None` if one of the three is `None`.
    pub foreign_cpus: Option<f64>,
}

/// Use of one own thread in a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnThreadUse {
    pub name: String,
    pub tid: i32,
    /// Time on a CPU over wall time, 0 to 1.
    pub busy_fraction: f64,
    /// Time ready to run but waiting for a CPU, over wall time, 0 to 1; `None` if the kernel does
    /// not report it.
    pub wait_fraction: Option<f64>,
}

impl CpuSampler {
    /// Creates a sampler of this process, of its threads named `thread_prefix…`, and of
    /// `subject_pids` with their children (the processes under test, none if they run elsewhere).
    /// This process is never its own subject.
    #[must_use]
    pub fn new(thread_prefix: &str, subject_pids: Vec<i32>) -> Self {
        let own_pid = std::process::id().cast_signed();
        let mut pids = subject_pids;
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| *pid != own_pid);
        Self {
            own_pid,
            thread_prefix: thread_prefix.to_owned(),
            machine: cpu::CpuReader::open(),
            own: ProcessReader::open(own_pid),
            threads: Vec::new(),
            threads_known: 0,
            subject_children: SubjectChildren::new(&pids),
            subjects: pids.into_iter().map(|pid| (pid, ProcessReader::open(pid))).collect(),
        }
    }

    /// Returns everything that this sampler cannot observe, with the reasons.
    pub fn not_observable(&self) -> Vec<NotObservable> {
        let machine = self.machine.as_ref().err();
        let own = self.own.as_ref().err();
        let subjects = self.subjects.iter().filter_map(|(_, reader)| reader.as_ref().err());
        let threads = self.threads.iter().filter_map(|(_, reader)| reader.not_observable());
        let all = machine.into_iter().chain(own).chain(subjects).chain(threads.take(1));
        all.cloned().chain(self.subject_children.not_observable()).collect()
    }

    /// Reads everything now; `now_ns` is the caller's clock.
    pub fn sample(&mut self, now_ns: u64) -> CpuSnapshot {
        let machine = self.machine.as_mut().ok().and_then(|reader| reader.sample().ok().cloned());
        self.subject_children.sample(machine.as_ref().and_then(|machine| machine.forks));
        let own = self.own.as_mut().ok().and_then(|reader| reader.sample().ok().cloned());
        if own.as_ref().is_none_or(|own| own.threads != self.threads_known) {
            self.find_threads();
        }
        let mut threads = Vec::new();
        let mut has_ended_thread = false;
        for (_, reader) in &mut self.threads {
            match reader.sample() {
                Ok(times) if times.name.starts_with(&self.thread_prefix) => {
                    threads.push(times.clone());
                }
                Ok(_) => {}
                Err(_) => has_ended_thread = true,
            }
        }
        if has_ended_thread {
            self.threads_known = 0;
        }
        let subjects = self.subjects.iter_mut();
        CpuSnapshot {
            at_ns: now_ns,
            machine,
            own,
            threads,
            subjects: subjects.map(|(_, reader)| reader.as_mut().ok()?.sample().ok().cloned()).collect(),
            children_ticks: self.subject_children.ticks,
        }
    }

    /// Opens the files of new threads, and closes those of ended ones. All threads are kept,
    /// whatever their name: a thread may be seen before it has named itself.
    fn find_threads(&mut self) {
        let Ok(tids) = thread_ids(self.own_pid) else {
            return;
        };
        self.threads_known = tids.len() as u64;
        self.threads.retain(|(tid, _)| tids.contains(tid));
        for tid in tids.into_iter().take(MAX_THREADS) {
            if !self.threads.iter().any(|(known, _)| *known == tid)
                && let Ok(reader) = ThreadReader::open(self.own_pid, tid)
            {
                self.threads.push((tid, reader));
            }
        }
    }
}

impl SubjectChildren {
    fn new(pids: &[i32]) -> Self {
        let mut process_tree = ProcessTree::new();
        for &pid in pids {
            process_tree.claim(pid, 0);
        }
        let mut children = Self { process_tree, running: Vec::new(), ticks: 0, forks: None };
        if !pids.is_empty() {
            children.adopt();
            // CPU time that existing children used before does not count.
            children.read();
            children.ticks = 0;
        }
        children
    }

    fn not_observable(&self) -> Option<NotObservable> {
        let why = || format!("the subject has more than {MAX_PROCESSES} processes; only these are observed");
        self.process_tree.overflowed.then(|| NotObservable::new("every process of the subject", why()))
    }

    /// Scans for new processes if the machine has created a process or thread since (`forks`), or
    /// does not report that; then reads all of them.
    fn sample(&mut self, forks: Option<u64>) {
        if self.process_tree.is_empty() {
            return;
        }
        if forks.is_none() || forks != self.forks {
            self.forks = forks;
            self.adopt();
        }
        self.read();
    }

    /// Adds new processes, which count from their beginning.
    fn adopt(&mut self) {
        for (pid, _) in self.process_tree.scan() {
            if let Ok(reader) = ProcessReader::open(pid) {
                self.running.push((pid, reader, 0));
            }
        }
    }

    fn read(&mut self) {
        let (process_tree, sum) = (&mut self.process_tree, &mut self.ticks);
        self.running.retain_mut(|(pid, reader, counted)| match reader.sample() {
            Ok(times) => {
                let used = times.user_ticks + times.system_ticks;
                *sum += used.saturating_sub(*counted);
                *counted = used;
                true
            }
            Err(_) => {
                process_tree.remove(*pid);
                false
            }
        });
    }
}

/// Maximum number of watched threads of this process.
const MAX_THREADS: usize = 1024;

/// Returns the use between two snapshots of one sampler.
pub fn window_between(earlier: &CpuSnapshot, later: &CpuSnapshot) -> CpuWindow {
    window_with_ticks(earlier, later, ticks_per_s() as f64)
}

fn window_with_ticks(earlier: &CpuSnapshot, later: &CpuSnapshot, ticks_per_s: f64) -> CpuWindow {
    let seconds = later.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9;
    if seconds == 0.0 {
        return CpuWindow::default();
    }
    let own = ticks_between(earlier.own.as_ref(), later.own.as_ref());
    let subjects = earlier.subjects.iter().zip(&later.subjects);
    let subject_ticks: Option<u64> = subjects
        .map(|(earlier, later)| {
            ticks_between(earlier.as_ref(), later.as_ref()).map(|(user, system)| user + system)
        })
        .sum();
    let children = later.children_ticks.saturating_sub(earlier.children_ticks);
    let subject_ticks = subject_ticks.map(|ticks| ticks + children);
    let machine = earlier.machine.as_ref().zip(later.machine.as_ref());
    let machine = machine.map(|(earlier, later)| later.total.delta(&earlier.total));
    let in_seconds = |ticks: u64| ticks as f64 / ticks_per_s;
    let cpus = |ticks: u64| in_seconds(ticks) / seconds;
    let machine_samples = earlier.machine.as_ref().zip(later.machine.as_ref());
    let foreign = machine_samples.zip(own).zip(subject_ticks).map(|(((then, now), own), subjects)| {
        let has_separate_irq_time = now.total.irq > 0;
        let role_cpus = cpus(own.0 + own.1 + subjects);
        foreign_cpus(&now.delta(then), role_cpus, has_separate_irq_time, ticks_per_s * seconds)
    });
    CpuWindow {
        seconds,
        own_threads: thread_uses(earlier, later, seconds, ticks_per_s),
        own_user_s: own.map(|(user, _)| in_seconds(user)),
        own_system_s: own.map(|(_, system)| in_seconds(system)),
        subject_cpu_s: subject_ticks.map(in_seconds),
        machine_busy_cpus: machine.map(|machine| cpus(machine.busy())),
        interrupt_cpus: machine.map(|machine| cpus(machine.irq + machine.softirq)),
        steal_fraction: machine.map(|machine| machine.steal_fraction()),
        foreign_cpus: foreign,
    }
}

/// Returns the user and system ticks of one process between two moments, if it is the same process.
fn ticks_between(earlier: Option<&ProcessTimes>, later: Option<&ProcessTimes>) -> Option<(u64, u64)> {
    let (earlier, later) = earlier.zip(later)?;
    (earlier.pid == later.pid && earlier.start_ticks == later.start_ticks).then(|| {
        (
            later.user_ticks.saturating_sub(earlier.user_ticks),
            later.system_ticks.saturating_sub(earlier.system_ticks),
        )
    })
}

fn thread_uses(
    earlier: &CpuSnapshot,
    later: &CpuSnapshot,
    seconds: f64,
    ticks_per_s: f64,
) -> Vec<OwnThreadUse> {
    let wall_fraction = |ns: u64| (ns as f64 / 1e9 / seconds).clamp(0.0, 1.0);
    let since =
        |later: Option<u64>, earlier: Option<u64>| Some(wall_fraction(later?.saturating_sub(earlier?)));
    let mut uses = Vec::new();
    for now in &later.threads {
        let Some(then) = earlier.threads.iter().find(|then| then.tid == now.tid) else {
            continue;
        };
        let ticks = (now.user_ticks + now.system_ticks).saturating_sub(then.user_ticks + then.system_ticks);
        let by_ticks = (ticks as f64 / ticks_per_s / seconds).clamp(0.0, 1.0);
        uses.push(OwnThreadUse {
            name: now.name.clone(),
            tid: now.tid,
            busy_fraction: since(now.run_ns, then.run_ns).unwrap_or(by_ticks),
            wait_fraction: since(now.wait_ns, then.wait_ns),
        });
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuTimes;

    fn process(pid: i32, user_ticks: u64, system_ticks: u64) -> ProcessTimes {
        ProcessTimes { pid, user_ticks, system_ticks, ..ProcessTimes::default() }
    }

    fn thread(tid: i32, user_ticks: u64, run_ms: Option<u64>, wait_ms: Option<u64>) -> ThreadTimes {
        ThreadTimes {
            tid,
            name: format!("load-{tid}"),
            user_ticks,
            system_ticks: 0,
            run_ns: run_ms.map(|ms| ms * 1_000_000),
            wait_ns: wait_ms.map(|ms| ms * 1_000_000),
            ..ThreadTimes::default()
        }
    }

    fn snapshot(at_s: u64, busy: u64, own: (u64, u64), subject: u64) -> CpuSnapshot {
        let total = CpuTimes {
            system: busy,
            softirq: busy / 10,
            idle: at_s * 150,
            steal: at_s * 4,
            ..CpuTimes::default()
        };
        CpuSnapshot {
            at_ns: at_s * 1_000_000_000,
            machine: Some(MachineCpu { total, ..MachineCpu::default() }),
            own: Some(process(1, own.0, own.1)),
            threads: vec![],
            subjects: vec![Some(process(2, subject, 0))],
            children_ticks: 0,
        }
    }

    #[test]
    fn machine_time_is_divided() {
        // Two seconds: 300 + 30 ticks busy, own 60 + 80, subject 100, so 90 of others.
        let before = snapshot(1, 0, (100, 100), 50);
        let after = snapshot(3, 300, (160, 180), 150);
        let window = window_with_ticks(&before, &after, 100.0);
        assert_eq!(window.seconds, 2.0);
        assert_eq!((window.own_user_s, window.own_system_s), (Some(0.6), Some(0.8)));
        assert_eq!(window.subject_cpu_s, Some(1.0));
        assert_eq!(window.machine_busy_cpus, Some(1.65));
        assert_eq!(window.interrupt_cpus, Some(0.15));
        assert!((window.foreign_cpus.unwrap() - 0.45).abs() < 1e-9);
        let children = window_with_ticks(&before, &CpuSnapshot { children_ticks: 50, ..after }, 100.0);
        assert_eq!(children.subject_cpu_s, Some(1.5));
        assert!((children.foreign_cpus.unwrap() - 0.2).abs() < 1e-9);
        let steal = window.steal_fraction.unwrap();
        assert!((steal - 8.0 / (330.0 + 300.0 + 8.0)).abs() < 1e-12, "{steal}");
    }

    #[test]
    fn rounding_never_makes_less_than_nothing_of_the_others() {
        let window = window_with_ticks(&snapshot(1, 0, (0, 0), 0), &snapshot(2, 100, (60, 60), 0), 100.0);
        assert_eq!(window.foreign_cpus, Some(0.0));
    }

    #[test]
    fn a_subject_that_ended_is_unknown_and_no_subject_is_zero() {
        let before = snapshot(1, 0, (0, 0), 0);
        let mut after = snapshot(2, 100, (10, 10), 0);
        after.subjects = vec![None];
        let ended = window_with_ticks(&before, &after, 100.0);
        assert_eq!((ended.subject_cpu_s, ended.foreign_cpus), (None, None));
        assert!(ended.machine_busy_cpus.is_some());

        let mut reused = snapshot(2, 100, (10, 10), 0);
        reused.subjects[0].as_mut().unwrap().start_ticks = 99;
        assert_eq!(window_with_ticks(&before, &reused, 100.0).subject_cpu_s, None);

        let without = |mut snapshot: CpuSnapshot| {
            snapshot.subjects.clear();
            snapshot
        };
        let none = window_with_ticks(&without(before), &without(after), 100.0);
        assert_eq!(none.subject_cpu_s, Some(0.0));
    }

    #[test]
    fn threads_are_matched_by_number_and_fall_back_to_ticks() {
        let mut before = snapshot(1, 0, (0, 0), 0);
        let mut after = snapshot(3, 0, (0, 0), 0);
        before.threads = vec![thread(7, 0, Some(0), Some(100)), thread(8, 10, None, None)];
        after.threads = vec![
            thread(7, 0, Some(1_900), Some(200)),
            thread(8, 110, None, None),
            thread(9, 500, Some(500), Some(0)),
        ];
        let uses = window_with_ticks(&before, &after, 100.0).own_threads;
        assert_eq!(uses.len(), 2);
        assert_eq!((uses[0].tid, uses[0].name.as_str()), (7, "load-7"));
        assert!((uses[0].busy_fraction - 0.95).abs() < 1e-12);
        assert_eq!(uses[0].wait_fraction, Some(0.05));
        assert_eq!((uses[1].busy_fraction, uses[1].wait_fraction), (0.5, None));
    }

    #[test]
    fn no_time_passed_is_an_empty_window() {
        let moment = snapshot(1, 5, (1, 1), 0);
        assert_eq!(window_between(&moment, &moment), CpuWindow::default());
    }

    #[test]
    fn the_live_process_is_watched() {
        let own = std::process::id() as i32;
        let mut sampler = CpuSampler::new("watch-", vec![own, i32::MAX]);
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::Builder::new().name("watch-0".to_owned());
        let worker = worker.spawn(move || stopped.recv().is_err()).unwrap();
        // The thread names itself a moment after its start.
        let mut before = sampler.sample(0);
        for _ in 0..30_000 {
            if !before.threads.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            before = sampler.sample(0);
        }
        let after = sampler.sample(1_000_000_000);
        drop(stop);
        assert!(worker.join().unwrap());
        let window = window_between(&before, &after);
        assert_eq!(window.own_threads[0].name, "watch-0");
        assert!(window.own_user_s.is_some() && window.machine_busy_cpus.is_some());
        // The missing process is reported, and this process is not its own subject.
        assert_eq!((before.subjects, window.foreign_cpus), (vec![None], None));
        assert!(sampler.not_observable()[0].reason.contains("/proc/2147483647/stat"));
    }

    #[test]
    fn children_of_a_subject_count_as_the_subject_whenever_they_began() {
        use std::io::{Read as _, Write as _};
        use std::os::unix::process::CommandExt as _;
        use std::process::{Command, Stdio};
        // The children end by themselves if this test ends before them.
        const BURN: &str = "(ulimit -t 60; while :; do :; done) & echo ready;";
        let mut shell = Command::new("sh")
            .args(["-c", &format!("{BURN} read -r _; {BURN} wait")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        shell.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let pid = shell.id() as i32;
        let mut sampler = CpuSampler::new("none", vec![pid]);
        let before = sampler.sample(0);
        assert_eq!(sampler.subject_children.running.len(), 1);
        shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        shell.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let mut after = sampler.sample(1_000_000_000);
        assert_eq!(sampler.subject_children.running.len(), 2);
        for _ in 0..3000 {
            if after.children_ticks >= before.children_ticks + 5 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            after = sampler.sample(1_000_000_000);
        }
        let used_s = window_between(&before, &after).subject_cpu_s.unwrap();
        assert!(used_s >= 0.04, "{used_s}");
        // The shell reaps its children, which not every init process does.
        for (child, _, _) in &sampler.subject_children.running {
            let child = rustix::process::Pid::from_raw(*child).unwrap();
            rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        for _ in 0..3000 {
            if sampler.subject_children.running.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            sampler.sample(2_000_000_000);
        }
        let ended = sampler.sample(2_000_000_000);
        assert!(sampler.subject_children.running.is_empty());
        assert!(ended.children_ticks >= after.children_ticks, "what they used stays");
    }
}
