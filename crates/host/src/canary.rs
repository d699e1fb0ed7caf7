//! How late a sleeping thread wakes up, on each processor: what a machine that is shared, overloaded
//! or held back by its hypervisor does to every program on it, seen from within.
//!
//! Not for why it is late, and not with a real-time priority: it has to feel what the others feel.
//!
//! One thread a processor, pinned, at the usual priority (`SCHED_OTHER`), sleeps to an absolute time
//! of `CLOCK_MONOTONIC` again and again and notes by how much it missed it. Its timer slack is the
//! least that there is (PR_SET_TIMERSLACK(2const)), so that it measures the machine and not the 50 us
//! that the kernel may add to any sleep. Times that passed while it could not run count too, each
//! with its own lag: a stall of 50 ms is as many late wake-ups as would have been due in it.
//!
//! How often is a question of what a wake-up costs. On hardware that is about 3 us, and a thousand a
//! second on two processors are 0.6 % of one. In a virtual machine each timer is a way out to the
//! hypervisor and back: 26 to 38 us were measured in one (Linux 6.18, KVM), so that the same thousand
//! took 5.3 %. So each canary measures its own cost and sleeps for as long as keeps all of them
//! together within [`BUDGET_CPUS`], between 1 ms and 100 ms.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use record::observed::CanaryUse;
use rustix::thread::{CpuSet, futex, sched_setaffinity, set_current_timer_slack};
use rustix::time::Timespec;

use crate::cpu::thread_cpu_ns;
use crate::source::NotObservable;

/// Processors that have a canary, at most.
pub const MAX_CANARIES: usize = 64;
/// What all of them together may use, as a share of one processor.
pub const BUDGET_CPUS: f64 = 0.004;

/// The canaries of some processors. They end when this is dropped, also out of their sleep.
#[derive(Debug)]
pub struct Canaries {
    threads: Vec<Canary>,
    not_observable: Vec<NotObservable>,
}

#[derive(Debug)]
struct Canary {
    cpu: u32,
    noted: Arc<Noted>,
    thread: Option<JoinHandle<()>>,
}

impl Canaries {
    /// Starts one on each of `cpus`, on the first [`MAX_CANARIES`] of them. `clock` is
    /// `CLOCK_MONOTONIC` in nanoseconds.
    ///
    /// A processor on which none can run (it is offline, or not among those that we may use) is in
    /// [`not_observable`](Self::not_observable).
    #[must_use]
    pub fn start(cpus: &[u32], clock: fn() -> u64) -> Self {
        let mut canaries = Self { threads: Vec::new(), not_observable: Vec::new() };
        let share = BUDGET_CPUS / cpus.len().clamp(1, MAX_CANARIES) as f64;
        for cpu in cpus.iter().copied() {
            if canaries.threads.len() == MAX_CANARIES {
                let why = format!("only the first {MAX_CANARIES} processors are watched");
                canaries.not_observable.push(NotObservable::new(WHAT, why));
                break;
            }
            match Canary::start(cpu, share, clock) {
                Ok(canary) => canaries.threads.push(canary),
                Err(error) => {
                    let why = format!("processor {cpu}: {error}");
                    canaries.not_observable.push(NotObservable::new(WHAT, why));
                }
            }
        }
        canaries
    }

    /// How late they woke up since the last take, for those that did.
    pub fn take(&mut self) -> Vec<CanaryUse> {
        self.threads.iter().filter_map(|canary| canary.noted.take(canary.cpu)).collect()
    }

    /// Processor time that all of them have used, in nanoseconds, as of the latest few wake-ups.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        self.threads.iter().map(|canary| canary.noted.cost_ns.load(Ordering::Relaxed)).sum()
    }

    /// The processors that have none, and why.
    #[must_use]
    pub fn not_observable(&self) -> &[NotObservable] {
        &self.not_observable
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        for canary in &self.threads {
            canary.noted.end.store(1, Ordering::Release);
            // Nobody may be asleep just now; then it sees the word before it sleeps again.
            let _ = futex::wake(&canary.noted.end, futex::Flags::PRIVATE, 1);
        }
        for canary in &mut self.threads {
            // One that panicked has nothing more to say.
            let _ = canary.thread.take().map(JoinHandle::join);
        }
    }
}

impl Canary {
    fn start(cpu: u32, share: f64, clock: fn() -> u64) -> std::io::Result<Self> {
        let noted = Arc::new(Noted::new());
        let (pinned, is_pinned) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("canary-{cpu}"));
        let thread = thread.stack_size(STACK_BYTES).spawn({
            let noted = Arc::clone(&noted);
            move || {
                let pin = pin(cpu);
                let can_run = pin.is_ok();
                // Whoever started it waits for the word.
                let _ = pinned.send(pin);
                if can_run {
                    run(&noted, cpu, share, clock);
                }
            }
        })?;
        is_pinned.recv().map_err(std::io::Error::other)??;
        Ok(Self { cpu, noted, thread: Some(thread) })
    }
}

fn pin(cpu: u32) -> std::io::Result<()> {
    if cpu as usize >= CpuSet::MAX_CPU {
        let why = format!("only the first {} processors can be named", CpuSet::MAX_CPU);
        return Err(std::io::Error::other(why));
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set)?;
    set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}

/// Sleeps, notes, and so on until it is told to end. `share` is what it may use of its processor.
fn run(noted: &Noted, cpu: u32, share: f64, clock: fn() -> u64) {
    let mut random = u64::from(cpu) + 1;
    let mut mean_ns = FIRST_SLEEP_NS;
    let mut wakes = 0;
    let mut now_ns = clock();
    let mut due_ns = now_ns;
    while noted.end.load(Ordering::Acquire) == 0 {
        due_ns = due_ns.max(now_ns.saturating_sub(FORGET_NS)) + sleep_ns(&mut random, mean_ns);
        if due_ns > now_ns {
            let slept = sleep_until(&noted.end, due_ns);
            now_ns = clock();
            if !slept || now_ns < due_ns {
                due_ns = now_ns;
                continue;
            }
            wakes += 1;
        }
        noted.note(now_ns - due_ns);
        if wakes % COST_EVERY == 1 {
            let cost_ns = thread_cpu_ns();
            noted.cost_ns.store(cost_ns, Ordering::Relaxed);
            mean_ns = mean_sleep_ns(cost_ns, wakes, share);
        }
    }
    noted.cost_ns.store(thread_cpu_ns(), Ordering::Relaxed);
}

/// Sleeps until `due_ns` of `CLOCK_MONOTONIC`, or until `end` is rung; false when it was that, or a
/// signal. As exact as clock_nanosleep(2), and can be woken.
fn sleep_until(end: &AtomicU32, due_ns: u64) -> bool {
    let until = Timespec { tv_sec: (due_ns / SECOND_NS) as _, tv_nsec: (due_ns % SECOND_NS) as _ };
    let woken = futex::wait_bitset(end, futex::Flags::PRIVATE, 0, Some(&until), NonZeroU32::MAX);
    woken == Err(rustix::io::Errno::TIMEDOUT)
}

/// The sleep with which wake-ups of this cost take `share` of a processor.
fn mean_sleep_ns(cost_ns: u64, wakes: u64, share: f64) -> u64 {
    let per_wake_ns = cost_ns as f64 / wakes.max(1) as f64;
    ((per_wake_ns / share) as u64).clamp(SHORTEST_SLEEP_NS, LONGEST_SLEEP_NS)
}

/// A sleep of half the mean to one and a half times it, by xorshift: a regular one would meet the
/// kernel's tick, or another program's period, always or never.
fn sleep_ns(random: &mut u64, mean_ns: u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    mean_ns / 2 + *random % mean_ns
}

/// What one canary has noted, shared with whoever takes it.
///
/// Lags are in logarithmic buckets of a sixteenth of an octave: no figure is more than 6 % too high,
/// and none too low.
#[derive(Debug)]
struct Noted {
    end: AtomicU32,
    cost_ns: AtomicU64,
    max_ns: AtomicU64,
    buckets: [AtomicU32; BUCKETS],
}

impl Noted {
    fn new() -> Self {
        Self {
            end: AtomicU32::new(0),
            cost_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
        }
    }

    fn note(&self, lag_ns: u64) {
        self.max_ns.fetch_max(lag_ns, Ordering::Relaxed);
        self.buckets[bucket_of(lag_ns)].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what was noted out; `None` when nothing was. What is noted at the same moment may
    /// be in this take with its bucket and in the next with its maximum.
    fn take(&self, cpu: u32) -> Option<CanaryUse> {
        let max_ns = self.max_ns.swap(0, Ordering::Relaxed);
        let counts = self.buckets.each_ref().map(|bucket| bucket.swap(0, Ordering::Relaxed));
        let count: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let quantile = |per_cent| quantile_ns(&counts, count, per_cent).min(max_ns);
        (count > 0).then(|| CanaryUse {
            cpu,
            lag_p50_ns: quantile(50),
            lag_p99_ns: quantile(99),
            lag_max_ns: max_ns,
        })
    }
}

/// The bucket of a lag; the last one takes all that is longer.
fn bucket_of(lag_ns: u64) -> usize {
    if lag_ns < PER_OCTAVE {
        return lag_ns as usize;
    }
    let octave = u64::from(lag_ns.ilog2() - PER_OCTAVE.ilog2());
    let bucket = octave * PER_OCTAVE + (lag_ns >> octave);
    (bucket as usize).min(BUCKETS - 1)
}

/// The longest lag of a bucket.
fn bucket_end_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PER_OCTAVE {
        return bucket;
    }
    let octave = bucket / PER_OCTAVE - 1;
    ((bucket - octave * PER_OCTAVE + 1) << octave) - 1
}

/// The end of the bucket that holds the least lag which this share of `count` does not exceed.
fn quantile_ns(counts: &[u32; BUCKETS], count: u64, per_cent: u64) -> u64 {
    let rank = (count * per_cent).div_ceil(100);
    let mut below = 0;
    for (bucket, count) in counts.iter().enumerate() {
        below += u64::from(*count);
        if below >= rank {
            return bucket_end_ns(bucket);
        }
    }
    bucket_end_ns(BUCKETS - 1)
}

const WHAT: &str = "wake-up lag";
const SECOND_NS: u64 = 1_000_000_000;
/// Before its cost is known.
const FIRST_SLEEP_NS: u64 = 10_000_000;
const SHORTEST_SLEEP_NS: u64 = 1_000_000;
const LONGEST_SLEEP_NS: u64 = 100_000_000;
/// Times in which it did not run are noted as far back as this: long enough for any stall that is
/// one, and not for a machine that was stopped.
const FORGET_NS: u64 = 10 * SECOND_NS;
/// Wake-ups between two readings of its own processor time, each of which is a system call.
const COST_EVERY: u64 = 16;
const PER_OCTAVE: u64 = 16;
/// Up to 2^36 ns, more than a minute.
const BUCKETS: usize = (36 - 4 + 1) * PER_OCTAVE as usize;
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
    fn buckets_follow_each_other_and_are_narrow() {
        let mut last_end = None;
        for bucket in 0..BUCKETS {
            let end = bucket_end_ns(bucket);
            assert_eq!(bucket_of(end), bucket);
            if let Some(last_end) = last_end {
                let start: u64 = last_end + 1;
                assert_eq!(bucket_of(start), bucket);
                assert!(end - start <= start / PER_OCTAVE, "{bucket}");
            }
            last_end = Some(end);
        }
        assert!(last_end >= Some((1 << 36) - 1));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_take_has_its_quantiles_and_empties() {
        let noted = Noted::new();
        assert_eq!(noted.take(3), None);
        for _ in 0..98 {
            noted.note(10);
        }
        noted.note(1_000_000);
        noted.note(u64::MAX);
        let taken = noted.take(3).unwrap();
        assert_eq!((taken.cpu, taken.lag_p50_ns, taken.lag_max_ns), (3, 10, u64::MAX));
        assert!((1_000_000..1_070_000).contains(&taken.lag_p99_ns), "{taken:?}");
        assert_eq!(noted.take(3), None);
        noted.note(1_000_001);
        // A bucket's end is not later than the latest of all.
        assert_eq!(noted.take(3).unwrap().lag_p99_ns, 1_000_001);
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
        // 30 us a wake-up in 0.2 % of a processor.
        assert_eq!(mean_sleep_ns(3_000_000, 100, 0.002), 15_000_000);
        assert_eq!(mean_sleep_ns(0, 0, 0.002), SHORTEST_SLEEP_NS);
        assert_eq!(mean_sleep_ns(u64::MAX, 1, 0.002), LONGEST_SLEEP_NS);
    }

    #[test]
    fn canaries_sing_live_and_end_when_dropped() {
        let mut canaries = Canaries::start(&[0, 4_000_000], now_ns);
        // Processor 0 may be closed to us; the other one is nowhere.
        let missing = canaries.not_observable();
        assert!(missing.last().unwrap().why.starts_with("processor 4000000: "), "{missing:?}");
        if missing.len() == 2 {
            println!("skipped: {}", missing[0]);
            return;
        }
        let noted = loop {
            let noted = canaries.take();
            if !noted.is_empty() {
                break noted;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_eq!(noted[0].cpu, 0);
        assert!(noted[0].lag_p50_ns <= noted[0].lag_p99_ns);
        assert!(noted[0].lag_p99_ns <= noted[0].lag_max_ns);
        drop(canaries);
    }
}
