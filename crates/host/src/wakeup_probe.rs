//! Wakeup latency of a sleeping thread on each CPU. A shared or overloaded machine, or a throttling
//! hypervisor, delays every process on it; this is measured from inside.
//!
//! This module does not find the cause. It uses no real-time priority, because it must feel what
//! other threads feel.
//!
//! One pinned thread per CPU at the usual priority (`SCHED_OTHER`) repeatedly sleeps to an absolute
//! time of `CLOCK_MONOTONIC` and records the lag. Its timer slack is the minimum
//! (PR_SET_TIMERSLACK(2const)), so that it measures the machine and not the 50 µs that the kernel
//! may add to any sleep. Due times that passed while it could not run count too, each with its own
//! lag: a stall of 50 ms counts as all late wakeups that were due in it.
//!
//! The rate depends on the cost of a wakeup. On hardware a wakeup costs about 3 µs; a thousand
//! per second on two CPUs take 0.6 % of one. In a virtual machine each timer exits to the
//! hypervisor and back: 26 to 38 µs were measured in one (Linux 6.18, KVM), so that the same
//! thousand took 5.3 %. So each probe measures its own cost. It chooses a sleep between 1 ms and
//! 100 ms that keeps all probes together within [`BUDGET_CPUS`].

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use record::observed::WakeupLag;
use rustix::thread::{CpuSet, futex, sched_setaffinity, set_current_timer_slack};
use rustix::time::Timespec;

use crate::cpu::thread_cpu_ns;
use crate::kernel_file::NotObservable;

/// Maximum number of CPUs with a probe.
pub const MAX_PROBES: usize = 64;
/// Budget of all probes together, as a fraction of one CPU.
pub const BUDGET_CPUS: f64 = 0.004;

/// Threads of the probes. Dropping this ends them, even while they sleep.
#[derive(Debug)]
pub struct WakeupProbes {
    probes: Vec<WakeupProbe>,
    not_observable: Vec<NotObservable>,
}

#[derive(Debug)]
struct WakeupProbe {
    cpu: u32,
    state: Arc<ProbeState>,
    thread: Option<JoinHandle<()>>,
}

impl WakeupProbes {
    /// Starts one probe on each of the first [`MAX_PROBES`] of `cpus`. `clock` is
    /// `CLOCK_MONOTONIC` in nanoseconds.
    ///
    /// A CPU that cannot run a probe (it is offline, or not in the process's CPU set) is in
    /// [`not_observable`](Self::not_observable).
    #[must_use]
    pub fn start(cpus: &[u32], clock: fn() -> u64) -> Self {
        let mut probes = Self { probes: Vec::new(), not_observable: Vec::new() };
        let cpu_fraction = BUDGET_CPUS / cpus.len().clamp(1, MAX_PROBES) as f64;
        for cpu in cpus.iter().copied() {
            if probes.probes.len() == MAX_PROBES {
                let why = format!("only the first {MAX_PROBES} CPUs are observed");
                probes.not_observable.push(NotObservable::new(FIGURE, why));
                break;
            }
            match WakeupProbe::start(cpu, cpu_fraction, clock) {
                Ok(probe) => probes.probes.push(probe),
                Err(error) => {
                    let why = format!("CPU {cpu}: {error}");
                    probes.not_observable.push(NotObservable::new(FIGURE, why));
                }
            }
        }
        probes
    }

    /// Returns the lags since the last take, for probes that woke up.
    pub fn take(&mut self) -> Vec<WakeupLag> {
        self.probes.iter().filter_map(|probe| probe.state.take(probe.cpu)).collect()
    }

    /// Returns the CPU time of all probes in nanoseconds, as of their latest few wakeups.
    pub fn cost_ns(&self) -> u64 {
        self.probes.iter().map(|probe| probe.state.cost_ns.load(Ordering::Relaxed)).sum()
    }

    /// Returns the CPUs without a probe, with the reason.
    pub fn not_observable(&self) -> &[NotObservable] {
        &self.not_observable
    }
}

impl Drop for WakeupProbes {
    fn drop(&mut self) {
        for probe in &self.probes {
            probe.state.stop.store(1, Ordering::Release);
            // A probe that is not asleep now reads the flag before it sleeps again.
            let _ = futex::wake(&probe.state.stop, futex::Flags::PRIVATE, 1);
        }
        for probe in &mut self.probes {
            // A panicked probe has nothing more to report.
            let _ = probe.thread.take().map(JoinHandle::join);
        }
    }
}

impl WakeupProbe {
    fn start(cpu: u32, cpu_fraction: f64, clock: fn() -> u64) -> std::io::Result<Self> {
        let state = Arc::new(ProbeState::new());
        let (pin_result_tx, pin_result_rx) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("wakeup-{cpu}"));
        let thread = thread.stack_size(STACK_BYTES).spawn({
            let state = Arc::clone(&state);
            move || {
                let pin_result = pin(cpu);
                let can_run = pin_result.is_ok();
                // `start` waits for this result.
                let _ = pin_result_tx.send(pin_result);
                if can_run {
                    run(&state, cpu, cpu_fraction, clock);
                }
            }
        })?;
        pin_result_rx.recv().map_err(std::io::Error::other)??;
        Ok(Self { cpu, state, thread: Some(thread) })
    }
}

fn pin(cpu: u32) -> std::io::Result<()> {
    if cpu as usize >= CpuSet::MAX_CPU {
        let why = format!("affinity masks have only {} CPUs", CpuSet::MAX_CPU);
        return Err(std::io::Error::other(why));
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set)?;
    set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}

/// Sleeps and records until it must end. `cpu_fraction` is its budget as a fraction of its CPU.
fn run(state: &ProbeState, cpu: u32, cpu_fraction: f64, clock: fn() -> u64) {
    let mut random = u64::from(cpu) + 1;
    let mut mean_ns = INITIAL_SLEEP_NS;
    let mut wakeups = 0;
    let mut now_ns = clock();
    let mut due_ns = now_ns;
    while state.stop.load(Ordering::Acquire) == 0 {
        due_ns = due_ns.max(now_ns.saturating_sub(MISSED_DUE_MAX_AGE_NS)) + sleep_ns(&mut random, mean_ns);
        if due_ns > now_ns {
            let slept = sleep_until(&state.stop, due_ns);
            now_ns = clock();
            if !slept || now_ns < due_ns {
                due_ns = now_ns;
                continue;
            }
            wakeups += 1;
        }
        state.record(now_ns - due_ns);
        if wakeups % WAKEUPS_PER_COST_READING == 1 {
            let cost_ns = thread_cpu_ns();
            state.cost_ns.store(cost_ns, Ordering::Relaxed);
            mean_ns = mean_sleep_ns(cost_ns, wakeups, cpu_fraction);
        }
    }
    state.cost_ns.store(thread_cpu_ns(), Ordering::Relaxed);
}

/// Sleeps until `due_ns` of `CLOCK_MONOTONIC`, as exactly as clock_nanosleep(2). Returns false if a
/// wakeup of `end` or a signal came first.
fn sleep_until(stop: &AtomicU32, due_ns: u64) -> bool {
    let until = Timespec { tv_sec: (due_ns / SECOND_NS) as _, tv_nsec: (due_ns % SECOND_NS) as _ };
    let woken = futex::wait_bitset(stop, futex::Flags::PRIVATE, 0, Some(&until), NonZeroU32::MAX);
    woken == Err(rustix::io::Errno::TIMEDOUT)
}

/// Returns the sleep with which wakeups of this cost take `cpu_fraction` of a CPU.
fn mean_sleep_ns(cost_ns: u64, wakeups: u64, cpu_fraction: f64) -> u64 {
    let cost_per_wakeup_ns = cost_ns as f64 / wakeups.max(1) as f64;
    ((cost_per_wakeup_ns / cpu_fraction) as u64).clamp(MIN_SLEEP_NS, MAX_SLEEP_NS)
}

/// Returns a random sleep (xorshift) between 0.5 and 1.5 times the mean. A regular sleep would meet
/// the kernel's tick, or the period of another process, always or never.
fn sleep_ns(random: &mut u64, mean_ns: u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    mean_ns / 2 + *random % mean_ns
}

/// Lags recorded by one probe, shared with the reader.
///
/// Lags are in logarithmic buckets of a sixteenth of an octave: a figure is at most 6 % too high,
/// and never too low.
#[derive(Debug)]
struct ProbeState {
    stop: AtomicU32,
    cost_ns: AtomicU64,
    max_ns: AtomicU64,
    buckets: [AtomicU32; BUCKETS],
}

impl ProbeState {
    fn new() -> Self {
        Self {
            stop: AtomicU32::new(0),
            cost_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
        }
    }

    fn record(&self, lag_ns: u64) {
        self.max_ns.fetch_max(lag_ns, Ordering::Relaxed);
        self.buckets[bucket_index(lag_ns)].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the recorded lags out; `None` if there are none. A lag recorded at the same moment may
    /// have its bucket in this take and its maximum in the next.
    fn take(&self, cpu: u32) -> Option<WakeupLag> {
        let max_ns = self.max_ns.swap(0, Ordering::Relaxed);
        let counts = self.buckets.each_ref().map(|bucket| bucket.swap(0, Ordering::Relaxed));
        let count: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let quantile = |percent| quantile_ns(&counts, count, percent).min(max_ns);
        (count > 0).then(|| WakeupLag {
            cpu,
            lag_p50_ns: quantile(50),
            lag_p99_ns: quantile(99),
            lag_max_ns: max_ns,
        })
    }
}

/// Returns the bucket of a lag; the last bucket holds all longer lags.
fn bucket_index(lag_ns: u64) -> usize {
    if lag_ns < BUCKETS_PER_OCTAVE {
        return lag_ns as usize;
    }
    let octave = u64::from(lag_ns.ilog2() - BUCKETS_PER_OCTAVE.ilog2());
    let bucket = octave * BUCKETS_PER_OCTAVE + (lag_ns >> octave);
    (bucket as usize).min(BUCKETS - 1)
}

/// Returns the longest lag of a bucket.
fn bucket_max_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < BUCKETS_PER_OCTAVE {
        return bucket;
    }
    let octave = bucket / BUCKETS_PER_OCTAVE - 1;
    ((bucket - octave * BUCKETS_PER_OCTAVE + 1) << octave) - 1
}

/// Returns the end of the bucket that holds the `percent` quantile of `count` lags.
fn quantile_ns(counts: &[u32; BUCKETS], count: u64, percent: u64) -> u64 {
    let rank = (count * percent).div_ceil(100);
    let mut below = 0;
    for (bucket, count) in counts.iter().enumerate() {
        below += u64::from(*count);
        if below >= rank {
            return bucket_max_ns(bucket);
        }
    }
    bucket_max_ns(BUCKETS - 1)
}

const FIGURE: &str = "wakeup latency";
const SECOND_NS: u64 = 1_000_000_000;
/// Sleep before the cost is known.
const INITIAL_SLEEP_NS: u64 = 10_000_000;
const MIN_SLEEP_NS: u64 = 1_000_000;
const MAX_SLEEP_NS: u64 = 100_000_000;
/// Maximum age of missed due times that are recorded. It covers any real stall, but not a machine
/// that was stopped.
const MISSED_DUE_MAX_AGE_NS: u64 = 10 * SECOND_NS;
/// Wakeups between two readings of the thread's own CPU time, each of which is a system call.
const WAKEUPS_PER_COST_READING: u64 = 16;
const BUCKETS_PER_OCTAVE: u64 = 16;
/// Up to 2^36 ns, more than a minute.
const BUCKETS: usize = (36 - 4 + 1) * BUCKETS_PER_OCTAVE as usize;
const STACK_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, clock_gettime};

    fn now_ns() -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
    }

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        let mut last_end = None;
        for bucket in 0..BUCKETS {
            let end = bucket_max_ns(bucket);
            assert_eq!(bucket_index(end), bucket);
            if let Some(last_end) = last_end {
                let start: u64 = last_end + 1;
                assert_eq!(bucket_index(start), bucket);
                assert!(end - start <= start / BUCKETS_PER_OCTAVE, "{bucket}");
            }
            last_end = Some(end);
        }
        assert!(last_end >= Some((1 << 36) - 1));
        assert_eq!(bucket_index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_take_has_its_quantiles_and_empties() {
        let state = ProbeState::new();
        assert_eq!(state.take(3), None);
        for _ in 0..98 {
            state.record(10);
        }
        state.record(1_000_000);
        state.record(u64::MAX);
        let taken = state.take(3).unwrap();
        assert_eq!((taken.cpu, taken.lag_p50_ns, taken.lag_max_ns), (3, 10, u64::MAX));
        assert!((1_000_000..1_070_000).contains(&taken.lag_p99_ns), "{taken:?}");
        assert_eq!(state.take(3), None);
        state.record(1_000_001);
        // A bucket's end is not later than the latest of all.
        assert_eq!(state.take(3).unwrap().lag_p99_ns, 1_000_001);
    }

    #[test]
    fn sleeps_are_irregular_within_their_bounds() {
        let mut random = 1;
        let sleeps: Vec<u64> = (0..1000).map(|_| sleep_ns(&mut random, 10_000)).collect();
        assert!(sleeps.iter().all(|sleep| (5_000..15_000).contains(sleep)));
        let mean = sleeps.iter().sum::<u64>() / 1000;
        assert!((9_000..11_000).contains(&mean), "{mean}");
    }

    #[test]
    fn the_sleep_follows_from_the_cost() {
        // 30 µs per wakeup in 0.2 % of a CPU.
        assert_eq!(mean_sleep_ns(3_000_000, 100, 0.002), 15_000_000);
        assert_eq!(mean_sleep_ns(0, 0, 0.002), MIN_SLEEP_NS);
        assert_eq!(mean_sleep_ns(u64::MAX, 1, 0.002), MAX_SLEEP_NS);
    }

    #[test]
    fn probes_wake_live_and_end_when_dropped() {
        let mut probes = WakeupProbes::start(&[0, 4_000_000], now_ns);
        // CPU 0 may be outside our CPU set; the other one does not exist.
        let missing = probes.not_observable();
        assert!(missing.last().unwrap().reason.starts_with("CPU 4000000: "), "{missing:?}");
        if missing.len() == 2 {
            test_needs::skip(test_needs::KERNEL, format!("{}", missing[0]));
            return;
        }
        let lags = loop {
            let lags = probes.take();
            if !lags.is_empty() {
                break lags;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_eq!(lags[0].cpu, 0);
        assert!(lags[0].lag_p50_ns <= lags[0].lag_p99_ns);
        assert!(lags[0].lag_p99_ns <= lags[0].lag_max_ns);
        drop(probes);
    }
}
