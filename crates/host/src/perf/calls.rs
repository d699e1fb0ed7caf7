//! How often a program makes some calls: of its allocator, by a probe; of the kernel, by a tracepoint.
//!
//! Counting costs the program that is counted. So it is done in short bursts, and what they cost stays
//! below a bound: a burst that cost much is followed by a pause that is as much longer. Only while a
//! burst is on is there anything in the program's way.
//!
//! Not for who calls, or for how long a call takes.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Duration;

use record::observed::CallCount;
use record::problem::suggestion;

use super::allocator::{Allocator, AllocatorCall};
use super::calibrate::{self, First, HitCost};
use super::event::{self, Event};
use super::tracefs::Tracefs;
use crate::process::{thread_ids, threads};
use crate::source::{NotObservable, read_once};

/// Threads of a process under one probe: each call pays for every event at its place, and each event
/// takes the kernel some 80 ms to close, during which the probes of the others are still there.
const PROBED_THREADS_MAX: usize = 4;
/// Threads of a process of which system calls are counted.
const TRACED_THREADS_MAX: usize = 256;
/// The first burst, and the shortest that says something.
const BURST_FIRST_NS: u64 = 10_000_000;
const BURST_MIN_NS: u64 = 2_000_000;
const BURST_MAX_NS: u64 = 500_000_000;

/// A kind of call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Any system call.
    SystemCalls,
    /// One system call, by the kernel's name for it.
    SystemCall(String),
    /// A call of the program's allocator.
    Allocator(AllocatorCall),
}

/// Words that are no names of system calls.
const WORDS: &[(&str, Call)] = &[
    ("syscalls", Call::SystemCalls),
    ("malloc", Call::Allocator(AllocatorCall::Malloc)),
    ("calloc", Call::Allocator(AllocatorCall::Calloc)),
    ("realloc", Call::Allocator(AllocatorCall::Realloc)),
    ("free", Call::Allocator(AllocatorCall::Free)),
    ("allocations", Call::Allocator(AllocatorCall::Any)),
];

impl Call {
    /// Reads `syscalls`, `malloc`, `calloc`, `realloc`, `free`, `allocations` (whatever gives new memory),
    /// or the name of a system call.
    ///
    /// # Errors
    /// It can be none of these; which there are, the machine knows.
    pub fn parse(word: &str) -> Result<Self, String> {
        if let Some((_, call)) = WORDS.iter().find(|(known, _)| *known == word) {
            return Ok(call.clone());
        }
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if word.is_empty() || word.len() > 64 || !word.bytes().all(is_name) {
            return Err(format!(
                "'{word}' is no call: write syscalls, malloc, calloc, realloc, free, allocations, or the \
                 name of a system call (futex)"
            ));
        }
        Ok(Self::SystemCall(word.to_owned()))
    }

    /// Why there are no such calls on this machine; none: there are, or the machine does not tell.
    #[must_use]
    pub fn not_here(&self) -> Option<String> {
        let Self::SystemCall(name) = self else { return None };
        let tracefs = Tracefs::open().ok()?;
        let of = |name: &str| tracefs.id("syscalls", &format!("sys_enter_{name}"));
        // A kernel without these tracepoints has none of any call.
        let is_known = of(name).is_ok() || of("read").is_err();
        (!is_known).then(|| {
            let near = suggestion(name, WORDS.iter().map(|(word, _)| *word));
            format!(
                "there is no system call '{name}' on this machine{near}; or write syscalls, malloc, calloc, \
                 realloc, free or allocations"
            )
        })
    }
}

impl Call {
    /// Whether this kernel knows it; nothing where that cannot be told.
    #[must_use]
    pub fn is_known(&self) -> Option<bool> {
        let Self::SystemCall(name) = self else { return Some(true) };
        let tracefs = Tracefs::open().ok()?;
        let id = |name: &str| tracefs.id("syscalls", &format!("sys_enter_{name}"));
        match id(name) {
            Ok(_) => Some(true),
            // One that every kernel has, if it tells of system calls at all.
            Err(error) if error.kind() == ErrorKind::NotFound => id("read").ok().map(|_| false),
            Err(_) => None,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SystemCalls => f.write_str("system calls"),
            Self::SystemCall(name) => f.write_str(name),
            Self::Allocator(_) => {
                let word = WORDS.iter().find(|(_, call)| call == self);
                f.write_str(word.map_or("", |(word, _)| word))
            }
        }
    }
}

/// How long one kind of call is looked at, and what that may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// From the first burst to the end of the last pause.
    pub length_ns: u64,
    /// The most that it may cost over that time, as a share of one core.
    pub cpus_max: f64,
}

impl Default for Budget {
    /// A second, and 2 % of a core.
    fn default() -> Self {
        Self { length_ns: 1_000_000_000, cpus_max: 0.02 }
    }
}

/// One kind of call, counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The count. `length_s` is the time in which calls were counted, so that count / length is the
    /// rate, and `cost_cpus` is what it cost in that time.
    pub call: CallCount,
    /// What it cost over all the time, as a share of one core: what the bound is about.
    pub cost_in_all_cpus: f64,
    /// The cost of one counted call.
    pub hit: HitCost,
    /// What exactly was counted: "jemalloc in libjemalloc.so.2".
    pub of: String,
}

/// Counts calls of processes, one kind after the other. Times in the result begin with 0 at `clock`'s
/// value `zero_ns`; what cannot be counted comes back with the reason.
#[must_use]
pub fn count(
    role: &str,
    pids: &[i32],
    which: &[Call],
    budget: Budget,
    clock: fn() -> u64,
    zero_ns: u64,
) -> (Vec<Counted>, Vec<NotObservable>) {
    let (mut counted, mut missing) = (Vec::new(), Vec::new());
    let mut costs = Costs::new();
    for call in which {
        let done = Target::of(pids, call, &mut costs)
            .and_then(|target| target.count(budget, clock, zero_ns))
            .map_err(|why| NotObservable::new(format!("calls of {call}"), why));
        match done {
            Ok(mut one) => {
                role.clone_into(&mut one.call.role);
                one.call.call = call.to_string();
                counted.push(one);
            }
            Err(why) => missing.push(why),
        }
    }
    (counted, missing)
}

/// Counts one kind of call all the time for so long, whatever that costs: where nothing else is to be learnt
/// of the program meanwhile. Calls and whatever they are held against are then of the same time.
///
/// # Errors
/// It cannot be counted.
pub fn count_through(
    role: &str,
    pids: &[i32],
    call: &Call,
    length_ns: u64,
    clock: fn() -> u64,
    zero_ns: u64,
) -> Result<Counted, NotObservable> {
    let explain = |why| NotObservable::new(format!("calls of {call}"), why);
    let target = Target::of(pids, call, &mut Costs::new()).map_err(explain)?;
    let burst = target.burst(length_ns, clock).map_err(explain)?;
    let length_s = burst.counted_ns as f64 / 1e9;
    let cost_cpus = burst.count as f64 * target.hit.hit_ns / burst.counted_ns as f64;
    let call = CallCount {
        role: role.to_owned(),
        call: call.to_string(),
        from_s: burst.began_ns.saturating_sub(zero_ns) as f64 / 1e9,
        length_s,
        count: burst.count,
        cost_cpus,
    };
    Ok(Counted { call, cost_in_all_cpus: cost_cpus, hit: target.hit, of: target.of })
}

/// What probes cost that were measured already, by their first instruction and the events at it.
type Costs = BTreeMap<(First, usize), HitCost>;

/// Where one kind of call is counted.
struct Target {
    /// Events with the threads that they are for.
    events: Vec<(Event, Vec<i32>)>,
    hit: HitCost,
    of: String,
}

impl Target {
    fn of(pids: &[i32], call: &Call, costs: &mut Costs) -> Result<Self, String> {
        match call {
            Call::SystemCalls => Self::traced(pids, "raw_syscalls", "sys_enter"),
            Call::SystemCall(name) => Self::traced(pids, "syscalls", &format!("sys_enter_{name}")),
            Call::Allocator(call) => Self::probed(pids, *call, costs),
        }
    }

    fn traced(pids: &[i32], group: &str, name: &str) -> Result<Self, String> {
        let tracefs = Tracefs::open()?;
        let id = tracefs.id(group, name);
        let id = id.map_err(|error| format!("tracepoint {group}:{name}: {error}"))?;
        let event = Event::Tracepoint(id);
        let mut of = format!("tracepoint {group}:{name}");
        let tids = pids.iter().flat_map(|&pid| busiest(pid, TRACED_THREADS_MAX, &mut of)).collect();
        // Every tracepoint of a system call is passed by a call that is watched as this one is.
        let any = tracefs.id("raw_syscalls", "sys_enter").map(Event::Tracepoint);
        let hit = calibrate::tracepoint(any.as_ref().unwrap_or(&event));
        Ok(Self { events: vec![(event, tids)], hit, of })
    }

    fn probed(pids: &[i32], call: AllocatorCall, costs: &mut Costs) -> Result<Self, String> {
        let path = "/sys/bus/event_source/devices/uprobe/type";
        let kind = read_once("probes", path).map_err(|error| error.why)?;
        let kind = kind.parse().map_err(|_| format!("{path}: not a number"))?;
        let mut target = Self {
            events: Vec::new(),
            hit: HitCost { hit_ns: 0.0, is_measured: false },
            of: String::new(),
        };
        let (mut watchers, mut first) = (0, First::Emulated);
        for &pid in pids {
            let allocator = Allocator::of(pid)?;
            let offsets = allocator.offsets(call);
            if offsets.is_empty() {
                return Err(format!("{} has no such function, or not by name", allocator.words));
            }
            if !target.of.contains(&allocator.words) {
                let separator = if target.of.is_empty() { "" } else { ", " };
                target.of.push_str(&format!("{separator}{}", allocator.words));
            }
            let tids = busiest(pid, PROBED_THREADS_MAX, &mut target.of);
            watchers = watchers.max(tids.len());
            for offset in offsets {
                if First::of(&allocator.file, offset) == First::Stepped {
                    first = First::Stepped;
                }
                let path =
                    CString::new(allocator.file.as_str()).map_err(|error| error.to_string())?;
                target.events.push((Event::Uprobe { kind, path, offset }, tids.clone()));
            }
        }
        let cost = costs.entry((first, watchers));
        target.hit = *cost.or_insert_with(|| calibrate::probe(kind, first, watchers));
        Ok(target)
    }

    /// Bursts and pauses, until the time is over or the bound leaves no room for another.
    fn count(self, budget: Budget, clock: fn() -> u64, zero_ns: u64) -> Result<Counted, String> {
        let began_ns = clock();
        let mut spent = Spent::default();
        let threads = self.events.iter().map(|(_, tids)| tids.len()).max().unwrap_or(1);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let width = threads.min(cpus) as u64;
        loop {
            match next(&spent, self.hit.hit_ns, width, budget) {
                Next::Burst(length_ns) => {
                    let burst = self.burst(length_ns, clock)?;
                    spent.count += burst.count;
                    spent.counted_ns += burst.counted_ns;
                    let in_the_way = burst.open_ns as f64 / burst.counted_ns as f64;
                    spent.paid_for += burst.count as f64 * in_the_way;
                }
                Next::Pause(length_ns) => std::thread::sleep(Duration::from_nanos(length_ns)),
                Next::Done => break,
            }
            spent.passed_ns = clock().saturating_sub(began_ns).max(1);
        }
        let cost_ns = spent.count as f64 * self.hit.hit_ns;
        let cost_in_all_ns = spent.paid_for * self.hit.hit_ns;
        let call = CallCount {
            from_s: began_ns.saturating_sub(zero_ns) as f64 / 1e9,
            length_s: spent.counted_ns as f64 / 1e9,
            count: spent.count,
            cost_cpus: cost_ns / (spent.counted_ns as f64).max(1.0),
            ..CallCount::default()
        };
        let cost_in_all_cpus = cost_in_all_ns / (spent.passed_ns as f64).max(1.0);
        Ok(Counted { call, cost_in_all_cpus, hit: self.hit, of: self.of })
    }

    /// Counts for so long.
    fn burst(&self, length_ns: u64, clock: fn() -> u64) -> Result<Burst, String> {
        let opened_ns = clock();
        let mut opened: Vec<OwnedFd> = Vec::new();
        for (event, tids) in &self.events {
            for &tid in tids {
                match event::open(event, tid, -1) {
                    Ok(event) => opened.push(event),
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(format!("perf_event_open: {error}")),
                }
            }
        }
        if opened.is_empty() {
            return Err("no such process".to_owned());
        }
        let began_ns = clock();
        for event in &opened {
            event::enable(event).map_err(|error| error.to_string())?;
        }
        std::thread::sleep(Duration::from_nanos(length_ns));
        let mut count = 0;
        for event in &opened {
            event::disable(event).map_err(|error| error.to_string())?;
            count += event::count(event).map_err(|error| error.to_string())?;
        }
        let ended_ns = clock();
        let counted_ns = ended_ns.saturating_sub(began_ns).max(1);
        let events = opened.len() as u64;
        event::close_all(opened);
        // The kernel closes one after the other; all but the last keep the breakpoint there.
        let closing_ns = clock().saturating_sub(ended_ns) / events * (events - 1);
        let open_ns = ended_ns.saturating_sub(opened_ns).max(counted_ns) + closing_ns;
        Ok(Burst { count, began_ns, counted_ns, open_ns })
    }
}

/// One burst.
struct Burst {
    count: u64,
    began_ns: u64,
    counted_ns: u64,
    /// A probe is in the program's way from when its first event is opened until the last one begins to
    /// close, which takes breakpoints away before it waits (`kernel/trace/trace_uprobe.c`).
    open_ns: u64,
}

/// The threads of a process that have used the most processor time, and a word where there are more.
fn busiest(pid: i32, most: usize, of: &mut String) -> Vec<i32> {
    let tids = thread_ids(pid).unwrap_or_default();
    if tids.len() <= most {
        return tids;
    }
    let mut all = threads(pid).unwrap_or_default();
    all.sort_by_key(|thread| std::cmp::Reverse(thread.user_ticks + thread.system_ticks));
    of.push_str(&format!(" ({most} of {} threads)", tids.len()));
    all.into_iter().take(most).map(|thread| thread.tid).collect()
}

/// What has been counted so far.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    count: u64,
    counted_ns: u64,
    /// Calls that passed a probe, as far as can be told: also while nothing was counted.
    paid_for: f64,
    passed_ns: u64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Burst(u64),
    Pause(u64),
    Done,
}

/// After a burst a pause until what it cost is within the bound, as long as there is time; then a
/// burst as long as the rest of the time can pay for. The first is so short that it can be paid for
/// even if `width` threads did nothing but be counted.
fn next(spent: &Spent, hit_ns: f64, width: u64, budget: Budget) -> Next {
    let all_ns = budget.length_ns as f64 * budget.cpus_max;
    if spent.counted_ns == 0 {
        let payable_ns = all_ns as u64 / width.max(1);
        return Next::Burst(payable_ns.clamp(BURST_MIN_NS, BURST_FIRST_NS));
    }
    let cost_ns = spent.paid_for * hit_ns;
    let paid_at_ns = (cost_ns / budget.cpus_max.max(1e-6)).min(1e15) as u64;
    if paid_at_ns > spent.passed_ns {
        // The first burst may have cost more than the whole time can pay for: then it is the last.
        let until_ns = paid_at_ns.min(budget.length_ns);
        return match until_ns.checked_sub(spent.passed_ns) {
            None | Some(0) => Next::Done,
            Some(rest_ns) => Next::Pause(rest_ns),
        };
    }
    let left_ns = budget.length_ns.saturating_sub(spent.passed_ns);
    let cost_per_ns = cost_ns / spent.counted_ns as f64;
    let in_hand_ns = all_ns - cost_ns;
    let payable_ns = if cost_per_ns > 0.0 { in_hand_ns / cost_per_ns } else { f64::MAX };
    let burst_ns = (payable_ns.min(1e15) as u64).min(left_ns).min(BURST_MAX_NS);
    if burst_ns < BURST_MIN_NS { Next::Done } else { Next::Burst(burst_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_no_kernel_has_is_told() {
        for word in ["syscalls", "malloc", "futex"] {
            assert_eq!(Call::parse(word).unwrap().not_here(), None, "{word}");
        }
        let told = Call::parse("mallocx").unwrap().not_here();
        match Tracefs::open()
            .and_then(|it| it.id("syscalls", "sys_enter_read").map_err(|it| it.to_string()))
        {
            Ok(_) => assert!(told.unwrap().contains("did you mean 'malloc'?")),
            Err(why) => assert_eq!(told, None, "{why}"),
        }
    }

    #[test]
    fn words_are_calls() {
        for word in ["syscalls", "malloc", "allocations", "free", "futex", "epoll_wait"] {
            assert!(Call::parse(word).is_ok(), "{word}");
        }
        assert_eq!(Call::parse("malloc").unwrap().to_string(), "malloc");
        assert_eq!(Call::parse("syscalls").unwrap().to_string(), "system calls");
        for word in ["", "Malloc", "a/../b", "a b"] {
            assert!(Call::parse(word).unwrap_err().contains("is no call"), "{word}");
        }
    }

    /// Threads that may call at once.
    const WIDTH: u64 = 8;

    /// Plays the bursts of a program that makes so many calls per second: the share of a core that it
    /// cost, and how long calls were counted.
    fn played(calls_per_s: f64, hit_ns: f64, budget: Budget) -> (f64, u64) {
        let mut spent = Spent::default();
        for _ in 0..10_000 {
            match next(&spent, hit_ns, WIDTH, budget) {
                Next::Burst(ns) => {
                    spent.count += (calls_per_s * ns as f64 / 1e9) as u64;
                    spent.paid_for = spent.count as f64;
                    spent.counted_ns += ns;
                    spent.passed_ns += ns;
                }
                Next::Pause(ns) => spent.passed_ns += ns,
                Next::Done => {
                    let cost = spent.count as f64 * hit_ns / spent.passed_ns as f64;
                    return (cost, spent.counted_ns);
                }
            }
        }
        panic!("it never ends");
    }

    #[test]
    fn what_counting_costs_is_bounded() {
        let budget = Budget::default();
        for calls_per_s in [0.0, 1.0, 1e3, 3e4, 1e5, 1e6] {
            let (cost, counted_ns) = played(calls_per_s, 630.0, budget);
            assert!(cost <= budget.cpus_max * 1.001, "{calls_per_s}: {cost}");
            assert!(counted_ns >= BURST_MIN_NS, "{calls_per_s}: {counted_ns}");
        }
        // What costs little is counted all the time.
        assert!(played(1e3, 630.0, budget).1 >= budget.length_ns * 9 / 10);
        // What costs eight cores is counted in the first burst only, which all the time then pays.
        let (cost, counted_ns) = played(8e6, 1000.0, budget);
        assert_eq!(counted_ns, budget.length_ns / 50 / WIDTH);
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
        let calls = [Call::SystemCalls, Call::Allocator(AllocatorCall::Malloc)];
        let budget = Budget { length_ns: 200_000_000, cpus_max: 1.0 };
        let worker = std::thread::spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                drop(std::hint::black_box(vec![1_u8; 100]));
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        // A burst is so short that on a busy machine the worker may not run in it.
        let began_ns = clock();
        let (counted, missing) = loop {
            let (counted, missing) = count("subject", &[pid], &calls, budget, clock, 0);
            let all = counted.iter().all(|one| one.call.count > 0);
            if all || clock() - began_ns > 60_000_000_000 {
                break (counted, missing);
            }
        };
        STOP.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        assert_eq!(counted.len() + missing.len(), 2);
        for one in &missing {
            println!("skipped: {one}");
        }
        for one in &counted {
            println!("{one:?}");
            assert!(one.call.count > 0 && one.call.role == "subject", "{one:?}");
        }
        let (counted, missing) = count("subject", &[i32::MAX], &calls, budget, || 0, 0);
        assert_eq!((counted.len(), missing.len()), (0, 2));
    }
}
