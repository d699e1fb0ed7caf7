//! Call rates of a process: of its allocator, by a probe; of the kernel, by a tracepoint.
//!
//! Counting costs CPU time of the observed process. So it runs in short bursts whose cost is
//! bounded: after an expensive burst the pause is proportionally longer. The process is slowed only
//! during a burst.
//!
//! Callers and durations of calls are not recorded.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Duration;

use record::invalid_value;
use record::observed::CallCount;
use record::problem::{InvalidValue, suggestion};
use record::sorted::sort_by_key;

use super::allocator::{Allocator, AllocatorCall};
use super::calibrate::{self, HitCost, UprobeStep};
use super::event::{self, PerfEvent};
use super::tracefs::Tracefs;
use crate::kernel_file::{NotObservable, read_once};
use crate::process::{thread_ids, threads};

/// Maximum number of probed threads per process. Each call pays for every event at its instruction,
/// and the kernel takes some 80 ms to close each event. During that time the probes of the others
/// remain.
const PROBED_THREADS_MAX: usize = 4;
/// Maximum number of threads per process whose system calls are counted.
const TRACED_THREADS_MAX: usize = 256;
/// Length of the first burst, and of the shortest useful one.
const BURST_FIRST_NS: u64 = 10_000_000;
const BURST_MIN_NS: u64 = 2_000_000;
const BURST_MAX_NS: u64 = 500_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    SystemCalls,
    /// One system call, by the kernel's name for it.
    SystemCall(String),
    Allocator(AllocatorCall),
}

/// Words that are not names of system calls.
const CALL_KEYWORDS: &[(&str, CallKind)] = &[
    ("syscalls", CallKind::SystemCalls),
    ("malloc", CallKind::Allocator(AllocatorCall::Malloc)),
    ("calloc", CallKind::Allocator(AllocatorCall::Calloc)),
    ("realloc", CallKind::Allocator(AllocatorCall::Realloc)),
    ("free", CallKind::Allocator(AllocatorCall::Free)),
    ("allocations", CallKind::Allocator(AllocatorCall::Any)),
];

impl CallKind {
    /// Parses `syscalls`, `malloc`, `calloc`, `realloc`, `free`, `allocations` (any function that
    /// returns new memory), or the name of a system call.
    ///
    /// # Errors
    /// The word cannot be any of these. Only the machine knows which system calls exist.
    pub fn parse(word: &str) -> Result<Self, InvalidValue> {
        if let Some((_, call)) = CALL_KEYWORDS.iter().find(|(known, _)| *known == word) {
            return Ok(call.clone());
        }
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if word.is_empty() || word.len() > 64 || !word.bytes().all(is_name) {
            return Err(invalid_value!(
                "'{word}' is no call: write syscalls, malloc, calloc, realloc, free, allocations, or the \
                 name of a system call (futex)"
            ));
        }
        Ok(Self::SystemCall(word.to_owned()))
    }

    /// Returns the reason why this machine has no such calls; `None` if it has them, or does not
    /// report them.
    pub fn unavailable_reason(&self) -> Option<String> {
        let Self::SystemCall(name) = self else { return None };
        let tracefs = Tracefs::open().ok()?;
        let tracepoint_id = |name: &str| tracefs.tracepoint_id("syscalls", &format!("sys_enter_{name}"));
        // A kernel without these tracepoints has none for any call.
        let is_known = tracepoint_id(name).is_ok() || tracepoint_id("read").is_err();
        (!is_known).then(|| {
            let hint = suggestion(name, CALL_KEYWORDS.iter().map(|(word, _)| *word));
            format!(
                "there is no system call '{name}' on this machine{hint}; or write syscalls, malloc, calloc, \
                 realloc, free or allocations"
            )
        })
    }
}

impl CallKind {
    /// Returns whether this kernel knows the call; `None` if that cannot be determined.
    pub fn is_known(&self) -> Option<bool> {
        let Self::SystemCall(name) = self else { return Some(true) };
        let tracefs = Tracefs::open().ok()?;
        let tracepoint_id = |name: &str| tracefs.tracepoint_id("syscalls", &format!("sys_enter_{name}"));
        match tracepoint_id(name) {
            Ok(_) => Some(true),
            // Every kernel that reports system calls has `read`.
            Err(error) if error.kind() == ErrorKind::NotFound => tracepoint_id("read").ok().map(|_| false),
            Err(_) => None,
        }
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SystemCalls => f.write_str("system calls"),
            Self::SystemCall(name) => f.write_str(name),
            Self::Allocator(_) => {
                let word = CALL_KEYWORDS.iter().find(|(_, call)| call == self);
                f.write_str(word.map_or("", |(word, _)| word))
            }
        }
    }
}

/// Time and cost budget for counting one kind of call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountBudget {
    /// Time from the first burst to the end of the last pause.
    pub length_ns: u64,
    /// Maximum cost over that time, as a fraction of one core.
    pub cpus_max: f64,
}

impl Default for CountBudget {
    /// A second, and 2 % of a core.
    fn default() -> Self {
        Self { length_ns: 1_000_000_000, cpus_max: 0.02 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct CountedCalls {
    /// The count. `length_s` is the time in which calls were counted, so that count / length is the
    /// rate, and `cost_cpus` is the cost in that time.
    pub call: CallCount,
    /// Cost over the total time, as a fraction of one core; the budget limits this figure.
    pub total_cost_cpus: f64,
    pub hit_cost: HitCost,
    /// Description of the counted target: "jemalloc in libjemalloc.so.2".
    pub target: String,
}

/// Counts calls of processes, one kind after the other. Times in the result are relative to
/// `zero_ns` of `clock`. A kind that cannot be counted is returned with the reason.
pub fn count_calls(
    role: &str,
    pids: &[i32],
    calls: &[CallKind],
    budget: CountBudget,
    clock: fn() -> u64,
    zero_ns: u64,
) -> (Vec<CountedCalls>, Vec<NotObservable>) {
    let (mut counted, mut missing) = (Vec::new(), Vec::new());
    let mut costs = HitCosts::new();
    for call in calls {
        let result = CountTarget::new(pids, call, &mut costs)
            .and_then(|target| target.count(budget, clock, zero_ns))
            .map_err(|why| NotObservable::new(format!("calls of {call}"), why.reason));
        match result {
            Ok(mut counted_call) => {
                role.clone_into(&mut counted_call.call.role);
                counted_call.call.call = call.to_string();
                counted.push(counted_call);
            }
            Err(why) => missing.push(why),
        }
    }
    (counted, missing)
}

/// Counts one kind of call continuously for the given time, whatever the cost; for use when no
/// other figure of the process is needed meanwhile. The calls and the figures that they are
/// compared with then cover the same time.
///
/// # Errors
/// The calls cannot be counted.
pub fn count_continuously(
    role: &str,
    pids: &[i32],
    call: &CallKind,
    length_ns: u64,
    clock: fn() -> u64,
    zero_ns: u64,
) -> Result<CountedCalls, NotObservable> {
    let explain = |why: NotObservable| NotObservable::new(format!("calls of {call}"), why.reason);
    let target = CountTarget::new(pids, call, &mut HitCosts::new()).map_err(explain)?;
    let burst = target.run_burst(length_ns, clock).map_err(explain)?;
    let length_s = burst.counted_ns as f64 / 1e9;
    let cost_cpus = burst.count as f64 * target.hit_cost.hit_ns / burst.counted_ns as f64;
    let call = CallCount {
        role: role.to_owned(),
        call: call.to_string(),
        from_s: burst.began_ns.saturating_sub(zero_ns) as f64 / 1e9,
        length_s,
        count: burst.count,
        cost_cpus,
    };
    Ok(CountedCalls {
        call,
        total_cost_cpus: cost_cpus,
        hit_cost: target.hit_cost,
        target: target.description,
    })
}

/// Measured costs of probes, by first instruction and number of events at it.
type HitCosts = BTreeMap<(UprobeStep, usize), HitCost>;

struct CountTarget {
    events: Vec<(PerfEvent, Vec<i32>)>,
    /// Open files that the events name.
    files: Vec<File>,
    hit_cost: HitCost,
    description: String,
}

impl CountTarget {
    fn new(pids: &[i32], call: &CallKind, costs: &mut HitCosts) -> Result<Self, NotObservable> {
        match call {
            CallKind::SystemCalls => Self::with_tracepoint(pids, "raw_syscalls", "sys_enter"),
            CallKind::SystemCall(name) => {
                Self::with_tracepoint(pids, "syscalls", &format!("sys_enter_{name}"))
            }
            CallKind::Allocator(call) => Self::with_probe(pids, *call, costs),
        }
    }

    fn with_tracepoint(pids: &[i32], group: &str, name: &str) -> Result<Self, NotObservable> {
        let tracefs = Tracefs::open()?;
        let id = tracefs.tracepoint_id(group, name);
        let id = id.map_err(|error| uncounted(format!("tracepoint {group}:{name}: {error}")))?;
        let event = PerfEvent::Tracepoint(id);
        let mut description = format!("tracepoint {group}:{name}");
        let tids =
            pids.iter().flat_map(|&pid| busiest_threads(pid, TRACED_THREADS_MAX, &mut description)).collect();
        // Calibrates at the tracepoint of all system calls, which every observed call hits, as the
        // calls of the calibration do.
        let any = tracefs.tracepoint_id("raw_syscalls", "sys_enter").map(PerfEvent::Tracepoint);
        let hit_cost = calibrate::measure_tracepoint_hit(any.as_ref().unwrap_or(&event));
        Ok(Self { events: vec![(event, tids)], files: Vec::new(), hit_cost, description })
    }

    fn with_probe(pids: &[i32], call: AllocatorCall, costs: &mut HitCosts) -> Result<Self, NotObservable> {
        let path = "/sys/bus/event_source/devices/uprobe/type";
        let kind = read_once("probes", path)?;
        let kind = kind.parse().map_err(|_| uncounted(format!("{path}: not a number")))?;
        let mut target = Self {
            events: Vec::new(),
            files: Vec::new(),
            hit_cost: HitCost { hit_ns: 0.0, is_measured: false },
            description: String::new(),
        };
        let (mut max_events, mut step) = (0, UprobeStep::Emulated);
        for &pid in pids {
            let allocator = Allocator::detect(pid)?;
            let offsets = allocator.probe_offsets(call);
            if offsets.is_empty() {
                return Err(uncounted(format!("{} has no symbol of that name", allocator.description)));
            }
            if !target.description.contains(&allocator.description) {
                let separator = if target.description.is_empty() { "" } else { ", " };
                target.description.push_str(&format!("{separator}{}", allocator.description));
            }
            let tids = busiest_threads(pid, PROBED_THREADS_MAX, &mut target.description);
            max_events = max_events.max(tids.len());
            for offset in offsets {
                if UprobeStep::at_offset(&allocator.path, offset) == UprobeStep::SingleStepped {
                    step = UprobeStep::SingleStepped;
                }
                let path = CString::new(allocator.path.as_str()).map_err(uncounted)?;
                target.events.push((PerfEvent::Uprobe { kind, path, offset }, tids.clone()));
            }
            target.files.push(allocator.file);
        }
        let cost = costs.entry((step, max_events));
        target.hit_cost = *cost.or_insert_with(|| calibrate::measure_probe_hit(kind, step, max_events));
        Ok(target)
    }

    /// Runs bursts and pauses until the time is over or the budget leaves no room for another
    /// burst.
    fn count(
        self,
        budget: CountBudget,
        clock: fn() -> u64,
        zero_ns: u64,
    ) -> Result<CountedCalls, NotObservable> {
        let began_ns = clock();
        let mut totals = CountTotals::default();
        let threads = self.events.iter().map(|(_, tids)| tids.len()).max().unwrap_or(1);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let parallel_threads = threads.min(cpus) as u64;
        loop {
            match next_step(&totals, self.hit_cost.hit_ns, parallel_threads, budget) {
                CountStep::Burst(length_ns) => {
                    let burst = self.run_burst(length_ns, clock)?;
                    totals.count += burst.count;
                    totals.counted_ns += burst.counted_ns;
                    let open_ratio = burst.probed_ns as f64 / burst.counted_ns as f64;
                    totals.estimated_hits += burst.count as f64 * open_ratio;
                }
                CountStep::Pause(length_ns) => std::thread::sleep(Duration::from_nanos(length_ns)),
                CountStep::Done => break,
            }
            totals.elapsed_ns = clock().saturating_sub(began_ns).max(1);
        }
        let cost_ns = totals.count as f64 * self.hit_cost.hit_ns;
        let total_cost_ns = totals.estimated_hits * self.hit_cost.hit_ns;
        let call = CallCount {
            from_s: began_ns.saturating_sub(zero_ns) as f64 / 1e9,
            length_s: totals.counted_ns as f64 / 1e9,
            count: totals.count,
            cost_cpus: cost_ns / (totals.counted_ns as f64).max(1.0),
            ..CallCount::default()
        };
        let total_cost_cpus = total_cost_ns / (totals.elapsed_ns as f64).max(1.0);
        Ok(CountedCalls { call, total_cost_cpus, hit_cost: self.hit_cost, target: self.description })
    }

    fn run_burst(&self, length_ns: u64, clock: fn() -> u64) -> Result<Burst, NotObservable> {
        let opened_ns = clock();
        let mut opened: Vec<OwnedFd> = Vec::new();
        for (event, tids) in &self.events {
            for &tid in tids {
                match event::open(event, tid, -1) {
                    Ok(event) => opened.push(event),
                    // The thread has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(uncounted(format!("perf_event_open: {error}"))),
                }
            }
        }
        if opened.is_empty() {
            return Err(uncounted("no such process"));
        }
        let began_ns = clock();
        for event in &opened {
            event::enable(event).map_err(uncounted)?;
        }
        std::thread::sleep(Duration::from_nanos(length_ns));
        let mut count = 0;
        for event in &opened {
            event::disable(event).map_err(uncounted)?;
            count += event::count(event).map_err(uncounted)?;
        }
        let ended_ns = clock();
        let counted_ns = ended_ns.saturating_sub(began_ns).max(1);
        let events = opened.len() as u64;
        event::close_all(opened);
        // The kernel closes one event after the other; all but the last keep the breakpoint there.
        let closing_ns = clock().saturating_sub(ended_ns) / events * (events - 1);
        let probed_ns = ended_ns.saturating_sub(opened_ns).max(counted_ns) + closing_ns;
        Ok(Burst { count, began_ns, counted_ns, probed_ns })
    }
}

/// Returns the error of a target; the caller names the calls.
fn uncounted(reason: impl fmt::Display) -> NotObservable {
    NotObservable::new("calls", reason.to_string())
}

struct Burst {
    count: u64,
    began_ns: u64,
    counted_ns: u64,
    /// Time in which a probe slows the process: from the opening of its first event until the last
    /// one begins to close, which removes breakpoints before it waits
    /// (`kernel/trace/trace_uprobe.c`).
    probed_ns: u64,
}

/// Returns the threads of a process with the most CPU time, and a note in `of` if there are more.
fn busiest_threads(pid: i32, max: usize, description: &mut String) -> Vec<i32> {
    let tids = thread_ids(pid).unwrap_or_default();
    if tids.len() <= max {
        return tids;
    }
    let mut all = threads(pid).unwrap_or_default();
    sort_by_key(&mut all, |thread| std::cmp::Reverse(thread.user_ticks + thread.system_ticks));
    description.push_str(&format!(" ({max} of {} threads)", tids.len()));
    all.into_iter().take(max).map(|thread| thread.tid).collect()
}

/// Counts and costs so far.
#[derive(Clone, Copy, Debug, Default)]
struct CountTotals {
    count: u64,
    counted_ns: u64,
    /// Calls that hit a probe, as an estimate: also while nothing was counted.
    estimated_hits: f64,
    elapsed_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountStep {
    Burst(u64),
    Pause(u64),
    Done,
}

/// Chooses a pause after a burst until its cost is within the budget, as long as there is time;
/// then a burst as long as the remaining budget allows. The first burst is so short that the budget
/// covers it even if `parallel_threads` threads only made counted calls.
fn next_step(totals: &CountTotals, hit_ns: f64, parallel_threads: u64, budget: CountBudget) -> CountStep {
    let budget_ns = budget.length_ns as f64 * budget.cpus_max;
    if totals.counted_ns == 0 {
        let affordable_ns = budget_ns as u64 / parallel_threads.max(1);
        return CountStep::Burst(affordable_ns.clamp(BURST_MIN_NS, BURST_FIRST_NS));
    }
    let cost_ns = totals.estimated_hits * hit_ns;
    let affordable_at_ns = (cost_ns / budget.cpus_max.max(1e-6)).min(1e15) as u64;
    if affordable_at_ns > totals.elapsed_ns {
        // The first burst may have cost more than the complete budget: then it is the last.
        let until_ns = affordable_at_ns.min(budget.length_ns);
        return match until_ns.checked_sub(totals.elapsed_ns) {
            None | Some(0) => CountStep::Done,
            Some(rest_ns) => CountStep::Pause(rest_ns),
        };
    }
    let left_ns = budget.length_ns.saturating_sub(totals.elapsed_ns);
    let cost_per_ns = cost_ns / totals.counted_ns as f64;
    let budget_left_ns = budget_ns - cost_ns;
    let affordable_ns = if cost_per_ns > 0.0 { budget_left_ns / cost_per_ns } else { f64::MAX };
    let burst_ns = (affordable_ns.min(1e15) as u64).min(left_ns).min(BURST_MAX_NS);
    if burst_ns < BURST_MIN_NS { CountStep::Done } else { CountStep::Burst(burst_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_no_kernel_has_is_reported() {
        for word in ["syscalls", "malloc", "futex"] {
            assert_eq!(CallKind::parse(word).unwrap().unavailable_reason(), None, "{word}");
        }
        let reason = CallKind::parse("mallocx").unwrap().unavailable_reason();
        match Tracefs::open().and_then(|it| it.tracepoint_id("syscalls", "sys_enter_read").map_err(uncounted))
        {
            Ok(_) => assert!(reason.unwrap().contains("'malloc'")),
            Err(why) => assert_eq!(reason, None, "{why}"),
        }
    }

    #[test]
    fn keywords_are_calls() {
        for word in ["syscalls", "malloc", "allocations", "free", "futex", "epoll_wait"] {
            assert!(CallKind::parse(word).is_ok(), "{word}");
        }
        assert_eq!(CallKind::parse("malloc").unwrap().to_string(), "malloc");
        assert_eq!(CallKind::parse("syscalls").unwrap().to_string(), "system calls");
        for word in ["", "Malloc", "a/../b", "a b"] {
            assert!(
                CallKind::parse(word).unwrap_err().to_string().starts_with(&format!("'{word}'")),
                "{word}"
            );
        }
    }

    /// Number of threads that may call at once.
    const PARALLEL_THREADS: u64 = 8;

    /// Simulates the bursts of a process with the given calls per second. Returns its cost as a
    /// fraction of a core, and the counted time.
    fn simulate(calls_per_s: f64, hit_ns: f64, budget: CountBudget) -> (f64, u64) {
        let mut totals = CountTotals::default();
        for _ in 0..10_000 {
            match next_step(&totals, hit_ns, PARALLEL_THREADS, budget) {
                CountStep::Burst(ns) => {
                    totals.count += (calls_per_s * ns as f64 / 1e9) as u64;
                    totals.estimated_hits = totals.count as f64;
                    totals.counted_ns += ns;
                    totals.elapsed_ns += ns;
                }
                CountStep::Pause(ns) => totals.elapsed_ns += ns,
                CountStep::Done => {
                    let cost = totals.count as f64 * hit_ns / totals.elapsed_ns as f64;
                    return (cost, totals.counted_ns);
                }
            }
        }
        panic!("it never ends");
    }

    #[test]
    fn the_cost_of_counting_is_bounded() {
        let budget = CountBudget::default();
        for calls_per_s in [0.0, 1.0, 1e3, 3e4, 1e5, 1e6] {
            let (cost, counted_ns) = simulate(calls_per_s, 630.0, budget);
            assert!(cost <= budget.cpus_max * 1.001, "{calls_per_s}: {cost}");
            assert!(counted_ns >= BURST_MIN_NS, "{calls_per_s}: {counted_ns}");
        }
        // Cheap calls are counted all the time.
        assert!(simulate(1e3, 630.0, budget).1 >= budget.length_ns * 9 / 10);
        // Calls that cost eight cores are counted only in the first burst, which uses the complete
        // budget.
        let (cost, counted_ns) = simulate(8e6, 1000.0, budget);
        assert_eq!(counted_ns, budget.length_ns / 50 / PARALLEL_THREADS);
        assert!(cost <= 0.0201, "{cost}");
    }

    #[test]
    fn system_calls_of_this_process_are_counted() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static STOP: AtomicBool = AtomicBool::new(false);
        fn clock() -> u64 {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        }
        let pid = std::process::id() as i32;
        let calls = [CallKind::SystemCalls, CallKind::Allocator(AllocatorCall::Malloc)];
        let budget = CountBudget { length_ns: 200_000_000, cpus_max: 1.0 };
        let worker = std::thread::spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                drop(std::hint::black_box(vec![1_u8; 100]));
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        // A burst is so short that on a busy machine the worker may not run in it.
        let began_ns = clock();
        let (counted, missing) = loop {
            let (counted, missing) = count_calls("subject", &[pid], &calls, budget, clock, 0);
            let all = counted.iter().all(|counted_call| counted_call.call.count > 0);
            if all || clock() - began_ns > 60_000_000_000 {
                break (counted, missing);
            }
        };
        STOP.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        assert_eq!(counted.len() + missing.len(), 2);
        for reason in &missing {
            test_needs::skip(test_needs::PERF, reason);
        }
        for counted_call in &counted {
            println!("{counted_call:?}");
            assert!(counted_call.call.count > 0 && counted_call.call.role == "subject", "{counted_call:?}");
        }
        let (counted, missing) = count_calls("subject", &[i32::MAX], &calls, budget, || 0, 0);
        assert_eq!((counted.len(), missing.len()), (0, 2));
    }
}
