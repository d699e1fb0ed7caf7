//! Samples what processes do: events of perf_event_open(2) for each of their threads and processors,
//! and a thread that reads what comes out of them.
//!
//! Threads and processes that the watched ones start are sampled too. Not for names of functions:
//! those are looked up when it has ended.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::accounts::Accounts;
use super::event::{self, Event};
use super::profile::Profile;
use super::records;
use super::ring::Ring;
use super::stacks::Collected;
use crate::cpu::{thread_cpu_ns, ticks_per_s};
use crate::process::thread_ids;
use crate::source::{NotObservable, read_once};

/// Samples per second and processor when nothing else is wanted: beside the beat of timers.
pub const FREQUENCY: u32 = 999;
/// The most that is taken.
pub const FREQUENCY_MAX: u32 = 10_000;
/// Events that are opened, each a descriptor: threads × processors.
const EVENTS_MAX: usize = 4096;
/// How often a thread that was started meanwhile is looked for, before the sampling begins.
const LOOKS: usize = 3;
/// How often rings are emptied: a full one holds more than a second of deep stacks.
const PERIOD: Duration = Duration::from_millis(100);
/// How often threads are looked at where nothing can be sampled: one that lived shorter is not seen.
const ACCOUNTS_PERIOD: Duration = Duration::from_millis(250);
const WHAT: &str = "functions on processors";

/// A running profiler. Dropped, it ends without a result.
#[derive(Debug)]
pub struct Profiler {
    stop: Sender<()>,
    source: Source,
    pids: Vec<i32>,
    began_ns: u64,
    clock: fn() -> u64,
}

/// Where a profile comes from.
#[derive(Debug)]
enum Source {
    /// Samples of the kernel.
    Events { thread: JoinHandle<Collected>, frequency: u32, kernel: bool, notes: Vec<String> },
    /// The processor time of threads, because it may not be sampled; why.
    Accounts { thread: JoinHandle<Accounts>, why: String },
}

impl Profiler {
    /// Starts to sample processes at `frequency` samples per second of a processor's time; `clock`
    /// gives nanoseconds and never goes back.
    ///
    /// Where the kernel does not let us (`kernel.perf_event_paranoid`, a seccomp filter, other users'
    /// processes) the profile will have threads and no functions, and its notes say why.
    ///
    /// # Errors
    /// None of the processes is there, or no thread can be started.
    pub fn start(pids: &[i32], frequency: u32, clock: fn() -> u64) -> Result<Self, NotObservable> {
        let frequency = frequency.clamp(1, FREQUENCY_MAX);
        let opened = match Opened::new(pids, frequency, true) {
            Err(Refusal::NotAllowed(_)) => Opened::new(pids, frequency, false),
            other => other,
        };
        let (stop, stopped) = channel();
        let source = match opened {
            Ok(opened) => Source::events(opened, pids, frequency, stopped)?,
            Err(refusal @ Refusal::NotAllowed(_)) => {
                Source::accounts(pids, refusal.words(), stopped)?
            }
            Err(refusal) => return Err(NotObservable::new(WHAT, refusal.words())),
        };
        Ok(Self { stop, source, pids: pids.to_vec(), began_ns: clock(), clock })
    }

    /// Ends the sampling, and looks up the names.
    #[must_use]
    pub fn stop(self) -> Profile {
        // Its thread waits for this, or for us to be gone.
        let _ = self.stop.send(());
        let length_ns = (self.clock)().saturating_sub(self.began_ns);
        let mut profile = match self.source {
            Source::Events { thread, frequency, kernel, notes } => {
                let mut profile = Profile::of(&thread.join().unwrap_or_default(), notes);
                profile.frequency = frequency;
                profile.has_kernel = kernel;
                profile
            }
            Source::Accounts { thread, why } => {
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

impl Source {
    fn events(
        mut opened: Opened,
        pids: &[i32],
        frequency: u32,
        stopped: Receiver<()>,
    ) -> Result<Self, NotObservable> {
        if !opened.kernel {
            opened.notes.push(
                "the kernel's functions are not sampled (kernel.perf_event_paranoid is 2 or more, \
                 and CAP_PERFMON is missing): shares are of the time in user space"
                    .to_owned(),
            );
        }
        let (kernel, notes) = (opened.kernel, std::mem::take(&mut opened.notes));
        let collected = Collected::of(pids);
        for event in &opened.events {
            let enabled = event::enable(event);
            enabled.map_err(|error| NotObservable::new(WHAT, error.to_string()))?;
        }
        let thread = in_thread(move || collect(opened, collected, &stopped))?;
        Ok(Self::Events { thread, frequency, kernel, notes })
    }

    fn accounts(pids: &[i32], why: String, stopped: Receiver<()>) -> Result<Self, NotObservable> {
        let pids = pids.to_vec();
        let mut accounts = Accounts::default();
        accounts.look(&pids);
        if accounts.is_empty() {
            return Err(NotObservable::new(WHAT, why));
        }
        let thread = in_thread(move || {
            while stopped.recv_timeout(ACCOUNTS_PERIOD) == Err(RecvTimeoutError::Timeout) {
                accounts.look(&pids);
            }
            accounts.look(&pids);
            accounts.cost_ns = thread_cpu_ns();
            accounts
        })?;
        Ok(Self::Accounts { thread, why })
    }
}

fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NotObservable> {
    std::thread::Builder::new()
        .name("weir-profiler".to_owned())
        .spawn(work)
        .map_err(|error| NotObservable::new(WHAT, error.to_string()))
}

/// Empties the rings until it is told to stop.
fn collect(mut opened: Opened, mut collected: Collected, stopped: &Receiver<()>) -> Collected {
    loop {
        let go_on = stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout);
        if !go_on {
            for event in &opened.events {
                // One that ended with its thread cannot be stopped, and need not be.
                let _ = event::disable(event);
            }
        }
        for ring in &mut opened.rings {
            ring.drain(|bytes| {
                if let Some(record) = records::parse(bytes) {
                    collected.take(record);
                }
            });
        }
        if !go_on {
            collected.cost_ns = thread_cpu_ns();
            return collected;
        }
    }
}

/// Why nothing could be opened.
#[derive(Debug)]
enum Refusal {
    NotAllowed(io::Error),
    Other(io::Error),
    NoThreads,
}

impl Refusal {
    fn words(&self) -> String {
        match self {
            Self::NotAllowed(error) => {
                let path = "/proc/sys/kernel/perf_event_paranoid";
                let level = read_once(WHAT, path).unwrap_or_else(|_| "not there".to_owned());
                format!(
                    "perf_event_open: {error}. kernel.perf_event_paranoid is {level}; run as root or \
                     with CAP_PERFMON (and CAP_SYS_PTRACE for other users' processes). In a container \
                     its seccomp profile may forbid the call"
                )
            }
            Self::Other(error) => format!("perf_event_open: {error}"),
            Self::NoThreads => "no such process".to_owned(),
        }
    }
}

/// Events with their rings, one a processor.
struct Opened {
    rings: Vec<Ring>,
    events: Vec<OwnedFd>,
    kernel: bool,
    notes: Vec<String>,
}

impl Opened {
    /// Opens an event for each thread on each processor. They cannot be for all processors at once:
    /// the kernel gives no ring to such a one if those that the thread starts are to inherit it.
    fn new(pids: &[i32], frequency: u32, kernel: bool) -> Result<Self, Refusal> {
        let event = Event::CpuClock { frequency, kernel };
        let cpus = cpus_online();
        let mut opened = Self { rings: Vec::new(), events: Vec::new(), kernel, notes: Vec::new() };
        // The event that each processor's ring belongs to, by its place in `events`.
        let mut firsts: Vec<Option<usize>> = vec![None; cpus.len()];
        let mut known = Vec::new();
        for _ in 0..LOOKS {
            let all = pids.iter().flat_map(|&pid| thread_ids(pid).unwrap_or_default());
            let new: Vec<i32> = all.filter(|tid| !known.contains(tid)).collect();
            for &tid in &new {
                if opened.events.len() + cpus.len() > EVENTS_MAX {
                    opened.leave_out(known.len());
                    return Ok(opened);
                }
                match opened.add(&event, tid, &cpus, &mut firsts) {
                    Err(Refusal::Other(error))
                        if error.raw_os_error() == Some(libc::EMFILE) && !known.is_empty() =>
                    {
                        opened.leave_out(known.len());
                        return Ok(opened);
                    }
                    other => other?,
                }
                known.push(tid);
            }
            if new.is_empty() {
                break;
            }
        }
        if opened.events.is_empty() { Err(Refusal::NoThreads) } else { Ok(opened) }
    }

    fn leave_out(&mut self, sampled: usize) {
        self.notes.push(format!(
            "only the first {sampled} threads are sampled: each needs a descriptor for each processor"
        ));
    }

    fn add(
        &mut self,
        event: &Event,
        tid: i32,
        cpus: &[i32],
        firsts: &mut [Option<usize>],
    ) -> Result<(), Refusal> {
        for (&cpu, first) in cpus.iter().zip(firsts) {
            let opened = match event::open(event, tid, cpu) {
                Ok(opened) => opened,
                Err(error) => match error.raw_os_error() {
                    // The thread has ended, or the processor was taken away.
                    Some(libc::ESRCH | libc::ENODEV) => continue,
                    Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => {
                        return Err(Refusal::NotAllowed(error));
                    }
                    _ => return Err(Refusal::Other(error)),
                },
            };
            match *first {
                Some(at) => {
                    event::write_into(&opened, &self.events[at]).map_err(Refusal::Other)?;
                }
                None => {
                    self.rings.push(Ring::new(&opened).map_err(Refusal::Other)?);
                    *first = Some(self.events.len());
                }
            }
            self.events.push(opened);
        }
        Ok(())
    }
}

/// The numbers of the processors online.
fn cpus_online() -> Vec<i32> {
    let text = read_once("processors online", "/sys/devices/system/cpu/online");
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
    fn lists_of_processors_are_read() {
        assert_eq!(parse_cpus("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        assert_eq!(parse_cpus("x"), None);
    }

    #[test]
    fn nobody_is_not_observable() {
        let error = Profiler::start(&[i32::MAX], FREQUENCY, || 0).unwrap_err();
        assert_eq!(error.what, WHAT);
        assert!(error.why.contains("no such process"), "{error}");
    }

    /// Work that takes its time, by a name that can be found.
    #[inline(never)]
    fn burns_a_processor(mut seed: u64) -> u64 {
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
                println!("skipped: {why}");
                return;
            }
        };
        // A thread that begins after the sampling has.
        let worker = std::thread::spawn(|| (0..20).fold(1, |seed, _| burns_a_processor(seed)));
        assert_ne!(worker.join().unwrap(), 0);
        let profile = profiler.stop();
        if profile.threads_only {
            return println!("skipped: threads that begin later are not seen here: {profile:?}");
        }
        assert!(profile.samples > 0, "{profile:?}");
        let functions = profile.functions("subject");
        let burning = functions.iter().find(|one| one.function.ends_with("burns_a_processor"));
        assert!(burning.is_some_and(|one| one.share_self > 0.0), "{functions:?}");
        let sum: f64 = functions.iter().map(|one| one.share_self).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}
