//! Observations during a load: the machine, if another program than weir drives (weir observes it
//! itself); the subject's functions; its calls.
//!
//! Observations that are impossible are reported; no problem here stops a trial. Not for their
//! meaning.

use std::thread::JoinHandle;

use host::NotObservable;
use host::cpu::thread_cpu_ns;
use host::observe::{GENERATOR, Monitor, MonitorSpec, ORIGIN, RoleSpec, SUBJECT};
use host::perf::Profiler;
use host::perf::call_counter::{self, CallKind, CountBudget, CountedCalls};
use host::process_tree::with_descendants;
use record::observed::{MachineObservation, PortRoles, UnobservableMetric};
use record::problem::InvalidValue;
use record::sorted::sort_by_key;
use record::trial::FunctionCalls;

use crate::scenario::plan::Node;
use crate::scenario::setup::{LabSetup, LoadTool};

/// Samples per second of the subject's functions: enough for fractions of a few per cent in
/// seconds, at a cost below a thousandth of its time. The frequency avoids that of timers.
const SAMPLES_PER_S: u32 = 199;
const FUNCTIONS_MAX: usize = 60;
/// Minimum length of a load for counting calls: shorter ones leave no time for it.
const COUNTING_LOAD_NS_MIN: u64 = 2_000_000_000;
/// Divisor of the load's length for counting calls (a half). Before that, the cost of a probe is
/// measured, which takes a second, and several on a busy machine.
const COUNTING_DIVISOR: u64 = 2;
/// Maximum time by which counting may end after the load.
const COUNTING_LATE_S_MAX: f64 = 0.1;
/// Part of the load in which system calls are counted, as in weir, and the maximum of that time.
const SYSCALLS_DIVISOR: u64 = 8;
const SYSCALLS_NS_MAX: u64 = 1_000_000_000;
/// Role of this process: the observer is not counted as foreign load.
const LAB_ROLE: &str = "lab";

/// Processes at a node.
#[derive(Clone, Debug)]
pub(super) struct WatchedProgram {
    pub(super) node: Node,
    pub(super) pids: Vec<i32>,
    pub(super) port: Option<u16>,
}

#[derive(Debug, Default)]
pub(super) struct LoadObservations {
    pub(super) observed: Option<MachineObservation>,
    pub(super) folded: Option<String>,
    pub(super) calls: Option<FunctionCalls>,
    pub(super) unobservable: Vec<UnobservableMetric>,
}

/// Running observation.
pub(super) struct LoadWatch {
    machine_watch: Option<Monitor>,
    profiler: Option<Profiler>,
    call_counting: Option<JoinHandle<CountResult>>,
    clock: fn() -> u64,
    started_ns: u64,
    unobservable: Vec<UnobservableMetric>,
}

#[derive(Debug, Default)]
struct CountResult {
    syscalls: Option<TimedCount>,
    requested: Option<TimedCount>,
    unobservable: Vec<NotObservable>,
    /// CPU time of its thread.
    cost_ns: u64,
}

/// Count; its times are in ns of the clock.
#[derive(Debug)]
struct TimedCount {
    counted: CountedCalls,
    ended_ns: u64,
}

struct CallCounting {
    pids: Vec<i32>,
    load_ns: u64,
    syscalls: bool,
    requested: Option<CallKind>,
    clock: fn() -> u64,
}

impl LoadWatch {
    /// Starts the observation; the load has begun just before.
    pub(super) fn start(
        setup: &LabSetup,
        programs: &[WatchedProgram],
        length_ns: u64,
        clock: fn() -> u64,
    ) -> Self {
        let mut missing = Vec::new();
        let own = std::process::id().cast_signed();
        let watching =
            (setup.tool != LoadTool::Weir).then(|| Monitor::start(watch_spec(programs, own), clock));
        let subject = programs.iter().find(|program| program.node == Node::Subject);
        let pids = subject.map(|program| with_descendants(&program.pids)).unwrap_or_default();
        let profiler = setup.profile.then(|| Profiler::start(&pids, SAMPLES_PER_S, clock));
        let profiler = profiler.and_then(|started| {
            started.map_err(|reason| missing.push(UnobservableMetric::from(reason))).ok()
        });
        let requested = setup.calls.as_deref().map(CallKind::parse);
        let requested = requested.and_then(|call| {
            let explain = |error: InvalidValue| UnobservableMetric {
                figure: "calls".to_owned(),
                reason: error.to_string(),
            };
            call.map_err(|error| missing.push(explain(error))).ok()
        });
        let counting =
            CallCounting { pids, load_ns: length_ns, syscalls: watching.is_some(), requested, clock };
        let counting = match counting.start() {
            Ok(counting) => counting,
            Err(reason) => {
                missing.push(reason);
                None
            }
        };
        Self {
            machine_watch: watching,
            profiler,
            call_counting: counting,
            clock,
            started_ns: clock(),
            unobservable: missing,
        }
    }

    /// Ends the observation; times in the results count from `zero_ns`. The programs must still be
    /// running, so that functions can be given their names.
    pub(super) fn finish(self, zero_ns: u64) -> LoadObservations {
        let load_ns = (zero_ns, (self.clock)());
        let passed_s = load_ns.1.saturating_sub(self.started_ns).max(1) as f64 / 1e9;
        let mut observations =
            LoadObservations { unobservable: self.unobservable, ..LoadObservations::default() };
        let profile = self.profiler.map(Profiler::stop);
        observations.observed = self.machine_watch.map(|watching| watching.finish(zero_ns));
        if let Some(profile) = profile {
            if profile.samples > 0 {
                observations.folded = Some(profile.folded().to_string());
            } else {
                let reason = "no sample of the subject on a CPU".to_owned();
                observations
                    .unobservable
                    .push(UnobservableMetric { figure: "functions of the subject".to_owned(), reason });
            }
            let notes = profile.notes.iter().map(|note| UnobservableMetric {
                figure: "all functions of the subject".to_owned(),
                reason: note.clone(),
            });
            observations.unobservable.extend(notes);
            if let Some(observed) = &mut observations.observed {
                observed.functions = profile.functions(SUBJECT);
                observed.functions.truncate(FUNCTIONS_MAX);
                observed.cost_cpus += profile.sampling_cpu_s / passed_s;
                observed.cost_after_s = Some(profile.symbolization_cpu_s);
            }
        }
        // A thread that failed has no results; one that still counts has a time limit.
        let count_result = self.call_counting.and_then(|counting| counting.join().ok()).unwrap_or_default();
        if let Some(observed) = &mut observations.observed {
            observed.cost_cpus += count_result.cost_ns as f64 / 1e9 / passed_s;
        }
        let mut rebase_or_report = |timed_count: Option<TimedCount>| {
            let rebased = rebase_count(timed_count?, load_ns);
            rebased.map_err(|reason| observations.unobservable.push(reason)).ok()
        };
        let (syscalls, requested) =
            (rebase_or_report(count_result.syscalls), rebase_or_report(count_result.requested));
        if let (Some(syscalls), Some(observed)) = (syscalls, &mut observations.observed) {
            observed.calls.push(syscalls.count);
        }
        observations.calls = requested;
        observations.unobservable.extend(count_result.unobservable.into_iter().map(UnobservableMetric::from));
        observations
    }
}

impl std::fmt::Debug for LoadWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadWatch").field("watching", &self.machine_watch).finish_non_exhaustive()
    }
}

impl CallCounting {
    fn start(self) -> Result<Option<JoinHandle<CountResult>>, UnobservableMetric> {
        if self.requested.is_none() && !self.syscalls {
            return Ok(None);
        }
        let explain =
            |reason: String| UnobservableMetric { figure: "calls of the subject".to_owned(), reason };
        if self.load_ns < COUNTING_LOAD_NS_MIN {
            return match self.requested {
                Some(_) => Err(explain("the load is shorter than 2 s".to_owned())),
                None => Ok(None),
            };
        }
        let thread = std::thread::Builder::new().name("count".to_owned());
        let started = thread.spawn(move || self.count());
        started.map(Some).map_err(|error| explain(error.to_string()))
    }

    /// Counts while the load runs.
    fn count(self) -> CountResult {
        let mut result = CountResult::default();
        if self.syscalls {
            let length_ns = (self.load_ns / SYSCALLS_DIVISOR).min(SYSCALLS_NS_MAX);
            let budget = CountBudget { length_ns, ..CountBudget::default() };
            result.syscalls = self.count_call(&CallKind::SystemCalls, budget, &mut result.unobservable);
        }
        if let Some(call) = &self.requested {
            let length_ns = self.load_ns / COUNTING_DIVISOR;
            match call_counter::count_continuously(SUBJECT, &self.pids, call, length_ns, self.clock, 0) {
                Ok(counted) => {
                    let ended_s = counted.call.from_s + counted.call.length_s;
                    result.requested = Some(TimedCount { counted, ended_ns: (ended_s * 1e9) as u64 });
                }
                Err(reason) => result.unobservable.push(reason),
            }
        }
        result.cost_ns = thread_cpu_ns();
        result
    }

    fn count_call(
        &self,
        call: &CallKind,
        budget: CountBudget,
        missing: &mut Vec<NotObservable>,
    ) -> Option<TimedCount> {
        let calls = std::slice::from_ref(call);
        let (counted, not) = call_counter::count_calls(SUBJECT, &self.pids, calls, budget, self.clock, 0);
        missing.extend(not);
        Some(TimedCount { counted: counted.into_iter().next()?, ended_ns: (self.clock)() })
    }
}

/// Converts the times of a count to times from the load's beginning. A count that ended too late
/// after the load is rejected: it includes calls outside the load.
fn rebase_count(
    timed_count: TimedCount,
    (zero_ns, end_ns): (u64, u64),
) -> Result<FunctionCalls, UnobservableMetric> {
    let CountedCalls { mut call, hit_cost: hit, target: of, .. } = timed_count.counted;
    call.from_s -= zero_ns as f64 / 1e9;
    let late_s = (timed_count.ended_ns as f64 - end_ns as f64) / 1e9;
    if late_s > COUNTING_LATE_S_MAX {
        let reason = format!("counting ended {late_s:.1} s after the load: use a longer load");
        return Err(UnobservableMetric { figure: format!("calls of {}", call.call), reason });
    }
    Ok(FunctionCalls {
        count: call,
        target: of,
        cost_per_call_ns: hit.hit_ns,
        cost_is_measured: hit.is_measured,
    })
}

/// Returns the observed processes if weir does not drive: the driver, the programs behind it, and
/// this process.
fn watch_spec(programs: &[WatchedProgram], own: i32) -> MonitorSpec {
    let role_of = |node: Node| match node {
        Node::Client => GENERATOR,
        Node::Subject => SUBJECT,
        Node::Origin => ORIGIN,
    };
    let mut roles: Vec<RoleSpec> = programs
        .iter()
        .map(|program| RoleSpec { role: role_of(program.node).to_owned(), pids: program.pids.clone() })
        .collect();
    // The generator comes first, as in weir's own record.
    sort_by_key(&mut roles, |role| role.role != GENERATOR);
    roles.push(RoleSpec { role: LAB_ROLE.to_owned(), pids: vec![own] });
    let ports = programs.iter().filter_map(|program| {
        let used_by = if program.node == Node::Origin { SUBJECT } else { GENERATOR };
        Some(PortRoles {
            port: program.port?,
            served_by: Some(role_of(program.node).to_owned()),
            used_by: Some(used_by.to_owned()),
        })
    });
    let ports: Vec<PortRoles> = ports.collect();
    // With an origin, the programs behind the subject are known.
    let follow = !programs.iter().any(|program| program.node == Node::Origin);
    MonitorSpec { roles, ports, discover_origins: follow, ..MonitorSpec::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::perf::HitCost;
    use record::observed::CallCount;

    #[test]
    fn calls_that_were_counted_after_the_load_are_not_its_calls() {
        let timed_count = |ended_ns| TimedCount {
            counted: CountedCalls {
                call: CallCount { from_s: 12.0, length_s: 0.5, count: 9, ..CallCount::default() },
                total_cost_cpus: 0.01,
                hit_cost: HitCost { hit_ns: 100.0, is_measured: true },
                target: "libc".to_owned(),
            },
            ended_ns,
        };
        let load_ns = (10_000_000_000, 18_000_000_000);
        let calls = rebase_count(timed_count(14_000_000_000), load_ns).unwrap();
        assert_eq!((calls.count.from_s, calls.cost_per_call_ns), (2.0, 100.0));
        assert!(rebase_count(timed_count(18_050_000_000), load_ns).is_ok());
        assert!(
            rebase_count(timed_count(19_000_000_000), load_ns).unwrap_err().reason.contains("1.0 s after")
        );
    }

    #[test]
    fn watched_programs_have_their_role_and_port() {
        let program = |node, pid, port| WatchedProgram { node, pids: vec![pid], port };
        let programs = [
            program(Node::Client, 10, None),
            program(Node::Origin, 12, Some(9000)),
            program(Node::Subject, 11, Some(8000)),
        ];
        let spec = watch_spec(&programs, 1);
        let roles: Vec<&str> = spec.roles.iter().map(|role| &*role.role).collect();
        assert_eq!(roles, [GENERATOR, ORIGIN, SUBJECT, LAB_ROLE]);
        assert_eq!(spec.ports[0].used_by.as_deref(), Some(SUBJECT));
        assert_eq!(spec.ports[1].served_by.as_deref(), Some(SUBJECT));
        assert!(!spec.discover_origins);
    }
}
