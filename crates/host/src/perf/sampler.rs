//! Samples the functions of processes: events of perf_event_open(2) for each of their threads and
//! CPUs, and a thread that reads their records.
//!
//! Threads and processes started by the watched ones are sampled too. Function names are resolved
//! after the sampling.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::event::{self, PerfEvent};
use super::profile::Profile;
use super::records;
use super::ring::RingBuffer;
use super::stacks::SampleCollector;
use super::thread_cpu::ThreadCpuTimes;
use crate::cpu::{thread_cpu_ns, ticks_per_s};
use crate::kernel_file::{NotObservable, read_once};
use crate::process::thread_ids;

/// Default samples per second and CPU: out of step with timers.
pub const FREQUENCY: u32 = 999;
pub const FREQUENCY_MAX: u32 = 10_000;
/// Maximum number of events, each a descriptor: threads × CPUs.
const EVENTS_MAX: usize = 4096;
/// Number of scans for threads that were started meanwhile, before the sampling begins.
const THREAD_SCANS: usize = 3;
/// Interval between reads of the rings: a full ring holds more than a second of deep stacks.
const DRAIN_PERIOD: Duration = Duration::from_millis(100);
/// Interval between readings of threads if sampling is denied; shorter-lived threads are missed.
const THREAD_CPU_PERIOD: Duration = Duration::from_millis(250);
const FIGURE: &str = "sampled functions";

/// A running profiler. Dropping it ends it without a result.
#[derive(Debug)]
pub struct Profiler {
    stop_tx: Sender<()>,
    source: ProfileSource,
    pids: Vec<i32>,
    began_ns: u64,
    clock: fn() -> u64,
}

#[derive(Debug)]
enum ProfileSource {
    Events {
        thread: JoinHandle<SampleCollector>,
        frequency: u32,
        kernel: bool,
        notes: Vec<String>,
    },
    /// The CPU time of threads, because sampling is denied; with the reason.
    ThreadCpu {
        thread: JoinHandle<ThreadCpuTimes>,
        why: String,
    },
}

impl Profiler {
    /// Starts to sample processes at `frequency` samples per second of CPU time; `clock` returns
    /// nanoseconds and never goes back.
    ///
    /// If the kernel denies sampling (`kernel.perf_event_paranoid`, a seccomp filter, processes of
    /// other users), the profile has threads and no functions, and its notes give the reason.
    ///
    /// # Errors
    /// None of the processes exists, or no thread can be started.
    pub fn start(pids: &[i32], frequency: u32, clock: fn() -> u64) -> Result<Self, NotObservable> {
        let frequency = frequency.clamp(1, FREQUENCY_MAX);
        let opened = match SamplingEvents::new(pids, frequency, true) {
            Err(OpenError::PermissionDenied(_)) => SamplingEvents::new(pids, frequency, false),
            other => other,
        };
        let (stop_tx, stop_rx) = channel();
        let source = match opened {
            Ok(opened) => ProfileSource::start_events(opened, pids, frequency, stop_rx)?,
            Err(error @ OpenError::PermissionDenied(_)) => {
                ProfileSource::start_thread_cpu(pids, error.message(), stop_rx)?
            }
            Err(error) => return Err(NotObservable::new(FIGURE, error.message())),
        };
        Ok(Self { stop_tx, source, pids: pids.to_vec(), began_ns: clock(), clock })
    }

    /// Ends the sampling, and resolves the names.
    #[must_use]
    pub fn stop(self) -> Profile {
        // The sampling thread waits for this message, or for the sender to be dropped.
        let _ = self.stop_tx.send(());
        let length_ns = (self.clock)().saturating_sub(self.began_ns);
        let mut profile = match self.source {
            ProfileSource::Events { thread, frequency, kernel, notes } => {
                let mut profile = Profile::from_collector(&thread.join().unwrap_or_default(), notes);
                profile.frequency = frequency;
                profile.has_kernel = kernel;
                profile
            }
            ProfileSource::ThreadCpu { thread, why } => {
                let mut profile = thread.join().unwrap_or_default().profile(&why);
                profile.frequency = ticks_per_s() as u32;
                profile
            }
        };
        profile.pids = self.pids;
        profile.length_s = length_ns as f64 / 1e9;
        profile
    }
}

impl ProfileSource {
    fn start_events(
        mut opened: SamplingEvents,
        pids: &[i32],
        frequency: u32,
        stop_rx: Receiver<()>,
    ) -> Result<Self, NotObservable> {
        if !opened.has_kernel {
            opened.notes.push(
                "the kernel's functions are not sampled (kernel.perf_event_paranoid is 2 or more, \
                 and CAP_PERFMON is missing): fractions are of the time in user space"
                    .to_owned(),
            );
        }
        let (kernel, notes) = (opened.has_kernel, std::mem::take(&mut opened.notes));
        let collected = SampleCollector::new(pids);
        for event in &opened.events {
            let enabled = event::enable(event);
            enabled.map_err(|error| NotObservable::new(FIGURE, error.to_string()))?;
        }
        let thread = spawn_thread(move || collect(opened, collected, &stop_rx))?;
        Ok(Self::Events { thread, frequency, kernel, notes })
    }

    fn start_thread_cpu(pids: &[i32], why: String, stop_rx: Receiver<()>) -> Result<Self, NotObservable> {
        let pids = pids.to_vec();
        let mut thread_cpu = ThreadCpuTimes::default();
        thread_cpu.sample(&pids);
        if thread_cpu.is_empty() {
            return Err(NotObservable::new(FIGURE, why));
        }
        let thread = spawn_thread(move || {
            while stop_rx.recv_timeout(THREAD_CPU_PERIOD) == Err(RecvTimeoutError::Timeout) {
                thread_cpu.sample(&pids);
            }
            thread_cpu.sample(&pids);
            thread_cpu.cost_ns = thread_cpu_ns();
            thread_cpu
        })?;
        Ok(Self::ThreadCpu { thread, why })
    }
}

fn spawn_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NotObservable> {
    std::thread::Builder::new()
        .name("weir-profiler".to_owned())
        .spawn(work)
        .map_err(|error| NotObservable::new(FIGURE, error.to_string()))
}

/// Reads the rings until it is stopped.
fn collect(
    mut opened: SamplingEvents,
    mut collected: SampleCollector,
    stop_rx: &Receiver<()>,
) -> SampleCollector {
    loop {
        let is_running = stop_rx.recv_timeout(DRAIN_PERIOD) == Err(RecvTimeoutError::Timeout);
        if !is_running {
            for event in &opened.events {
                // An event that ended with its thread cannot be disabled, and need not be.
                let _ = event::disable(event);
            }
        }
        for ring in &mut opened.rings {
            ring.drain(|bytes| {
                if let Some(record) = records::parse(bytes) {
                    collected.handle_record(record);
                }
            });
        }
        if !is_running {
            collected.cost_ns = thread_cpu_ns();
            return collected;
        }
    }
}

/// Reason why no event could be opened.
#[derive(Debug)]
enum OpenError {
    PermissionDenied(io::Error),
    Other(io::Error),
    NoThreads,
}

impl OpenError {
    fn message(&self) -> String {
        match self {
            Self::PermissionDenied(error) => {
                let path = "/proc/sys/kernel/perf_event_paranoid";
                let level = read_once(FIGURE, path).unwrap_or_else(|_| "missing".to_owned());
                format!(
                    "perf_event_open: {error}. kernel.perf_event_paranoid is {level}; run as root or \
                     with CAP_PERFMON (and CAP_SYS_PTRACE for other users' processes). In a container \
                     the seccomp profile may forbid the call"
                )
            }
            Self::Other(error) => format!("perf_event_open: {error}"),
            Self::NoThreads => "no such process".to_owned(),
        }
    }
}

/// Events with their rings, one ring per CPU.
struct SamplingEvents {
    rings: Vec<RingBuffer>,
    events: Vec<OwnedFd>,
    has_kernel: bool,
    notes: Vec<String>,
}

impl SamplingEvents {
    /// Opens an event for each thread on each CPU. One event for all CPUs is not possible: the
    /// kernel gives it no ring if the thread's children are to inherit it.
    fn new(pids: &[i32], frequency: u32, kernel: bool) -> Result<Self, OpenError> {
        let event = PerfEvent::CpuClock { frequency, kernel };
        let cpus = cpus_online();
        let mut opened =
            Self { rings: Vec::new(), events: Vec::new(), has_kernel: kernel, notes: Vec::new() };
        // Index in `events` of the event that owns each CPU's ring.
        let mut ring_owners: Vec<Option<usize>> = vec![None; cpus.len()];
        let mut sampled_tids = Vec::new();
        for _ in 0..THREAD_SCANS {
            let all = pids.iter().flat_map(|&pid| thread_ids(pid).unwrap_or_default());
            let new: Vec<i32> = all.filter(|tid| !sampled_tids.contains(tid)).collect();
            for &tid in &new {
                if opened.events.len() + cpus.len() > EVENTS_MAX {
                    opened.note_omitted_threads(sampled_tids.len());
                    return Ok(opened);
                }
                match opened.add(&event, tid, &cpus, &mut ring_owners) {
                    Err(OpenError::Other(error))
                        if error.raw_os_error() == Some(libc::EMFILE) && !sampled_tids.is_empty() =>
                    {
                        opened.note_omitted_threads(sampled_tids.len());
                        return Ok(opened);
                    }
                    other => other?,
                }
                sampled_tids.push(tid);
            }
            if new.is_empty() {
                break;
            }
        }
        if opened.events.is_empty() { Err(OpenError::NoThreads) } else { Ok(opened) }
    }

    fn note_omitted_threads(&mut self, sampled: usize) {
        self.notes.push(format!(
            "only the first {sampled} threads are sampled: each thread needs a file descriptor per CPU"
        ));
    }

    fn add(
        &mut self,
        event: &PerfEvent,
        tid: i32,
        cpus: &[i32],
        ring_owners: &mut [Option<usize>],
    ) -> Result<(), OpenError> {
        for (&cpu, ring_owner) in cpus.iter().zip(ring_owners) {
            let opened = match event::open(event, tid, cpu) {
                Ok(opened) => opened,
                Err(error) => match error.raw_os_error() {
                    // The thread has ended, or the CPU went offline.
                    Some(libc::ESRCH | libc::ENODEV) => continue,
                    Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => {
                        return Err(OpenError::PermissionDenied(error));
                    }
                    _ => return Err(OpenError::Other(error)),
                },
            };
            match *ring_owner {
                Some(at) => {
                    event::redirect_output(&opened, &self.events[at]).map_err(OpenError::Other)?;
                }
                None => {
                    self.rings.push(RingBuffer::new(&opened).map_err(OpenError::Other)?);
                    *ring_owner = Some(self.events.len());
                }
            }
            self.events.push(opened);
        }
        Ok(())
    }
}

fn cpus_online() -> Vec<i32> {
    let text = read_once("online CPUs", "/sys/devices/system/cpu/online");
    let cpus = text.ok().and_then(|text| parse_cpus(&text));
    cpus.unwrap_or_else(|| vec![0])
}

/// Parses "0-3,8".
fn parse_cpus(text: &str) -> Option<Vec<i32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (i32, i32) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend((first..=last).take(EVENTS_MAX));
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        assert_eq!(parse_cpus("x"), None);
    }

    #[test]
    fn a_missing_process_is_not_observable() {
        let error = Profiler::start(&[i32::MAX], FREQUENCY, || 0).unwrap_err();
        assert_eq!(error.figure, FIGURE);
        assert_eq!(error.reason, OpenError::NoThreads.message());
    }

    /// Work that takes some time, under a name that can be found.
    #[inline(never)]
    fn burns_a_cpu(mut seed: u64) -> u64 {
        for _ in 0..20_000_000 {
            seed = std::hint::black_box(seed.wrapping_mul(6_364_136_223_846_793_005) ^ 1);
        }
        seed
    }

    #[test]
    fn this_process_is_sampled_by_function() {
        let pid = std::process::id() as i32;
        let profiler = match Profiler::start(&[pid], FREQUENCY, || 0) {
            Ok(profiler) => profiler,
            Err(why) => {
                test_needs::skip(test_needs::PERF, why);
                return;
            }
        };
        // A thread that begins after the start of the sampling.
        let worker = std::thread::spawn(|| (0..20).fold(1, |seed, _| burns_a_cpu(seed)));
        assert_ne!(worker.join().unwrap(), 0);
        let profile = profiler.stop();
        if profile.threads_only {
            return test_needs::skip(
                test_needs::PERF,
                format!("threads that begin later are not seen here: {profile:?}"),
            );
        }
        assert!(profile.samples > 0, "{profile:?}");
        let functions = profile.functions("subject");
        let burning = functions.iter().find(|function| function.function.ends_with("burns_a_cpu"));
        assert!(burning.is_some_and(|function| function.self_fraction > 0.0), "{functions:?}");
        let sum: f64 = functions.iter().map(|function| function.self_fraction).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}
