//! What is looked at while a load runs: the machine, where another program than weir drives (weir looks
//! by itself); the subject's functions; its calls.
//!
//! What cannot be seen is said; nothing here stops a trial. Not for what it means.

use std::thread::JoinHandle;

use host::NotObservable;
use host::cpu::thread_cpu_ns;
use host::family::with_descendants;
use host::observe::{GENERATOR, ORIGIN, SUBJECT, Spec, Watched, Watching};
use host::perf::Profiler;
use host::perf::calls::{self, Budget, Call, Counted};
use record::observed::{Missing, Observed, PortUse};
use record::trial::Calls;

use super::is_weir;
use crate::scenario::plan::Node;
use crate::scenario::setup::Setup;

/// Samples per second of the subject's functions: enough for shares of a few per cent in seconds, less
/// than a thousandth of its time, and beside the beat of timers.
const FREQUENCY: u32 = 199;
/// Functions that a record keeps.
const FUNCTIONS_KEPT: usize = 60;
/// Loads that are shorter than this have no calls counted: there is no time for it.
const COUNTED_NS_MIN: u64 = 2_000_000_000;
/// Calls are counted for this part of the load (a half), after what a probe costs was measured: that
/// takes a second, and on a busy machine several.
const COUNTED_FOR: u64 = 2;
/// The counting that ends by so much after the load still counts.
const COUNTED_LATE_S: f64 = 0.1;
/// System calls are counted for this part of the load, as weir does it, and no longer than a second.
const SYSCALLS_FOR: u64 = 8;
const SYSCALLS_NS_MAX: u64 = 1_000_000_000;
/// The role of this process: what watches is nobody's foreign load.
const LAB: &str = "lab";

/// Programs at a node.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) node: Node,
    pub(super) pids: Vec<i32>,
    /// Where they listen.
    pub(super) port: Option<u16>,
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) observed: Option<Observed>,
    pub(super) folded: Option<String>,
    pub(super) calls: Option<Calls>,
    pub(super) missing: Vec<Missing>,
}

/// What looks.
pub(super) struct Watch {
    watching: Option<Watching>,
    profiler: Option<Profiler>,
    counting: Option<JoinHandle<Found>>,
    clock: fn() -> u64,
    started_ns: u64,
    missing: Vec<Missing>,
}

/// What counting found.
#[derive(Debug, Default)]
struct Found {
    syscalls: Option<During>,
    asked: Option<During>,
    missing: Vec<NotObservable>,
    /// Processor time of its thread.
    cost_ns: u64,
}

/// A count; times count from the clock's own 0.
#[derive(Debug)]
struct During {
    counted: Counted,
    ended_ns: u64,
}

/// What is counted.
struct Counting {
    pids: Vec<i32>,
    length_ns: u64,
    syscalls: bool,
    asked: Option<Call>,
    clock: fn() -> u64,
}

impl Watch {
    /// Starts to look; the load has begun just before.
    pub(super) fn start(
        setup: &Setup,
        places: &[Place],
        length_ns: u64,
        clock: fn() -> u64,
    ) -> Self {
        let mut missing = Vec::new();
        let own = std::process::id().cast_signed();
        let watching = (!is_weir(setup.tool)).then(|| Watching::start(spec(places, own), clock));
        let subject = places.iter().find(|place| place.node == Node::Subject);
        let pids = subject.map(|place| with_descendants(&place.pids)).unwrap_or_default();
        let profiler = setup.profile.then(|| Profiler::start(&pids, FREQUENCY, clock));
        let profiler =
            profiler.and_then(|started| started.map_err(|why| missing.push(told(why))).ok());
        let asked = setup.calls.as_deref().map(Call::parse);
        let asked = asked.and_then(|call| {
            let explain = |why| Missing { what: "calls".to_owned(), why };
            call.map_err(|why| missing.push(explain(why))).ok()
        });
        let counting = Counting { pids, length_ns, syscalls: watching.is_some(), asked, clock };
        let counting = match counting.start() {
            Ok(counting) => counting,
            Err(why) => {
                missing.push(why);
                None
            }
        };
        Self { watching, profiler, counting, clock, started_ns: clock(), missing }
    }

    /// Ends all of it; times in what was seen count from `zero_ns`. The programs are still there, so that
    /// functions can be given their names.
    pub(super) fn finish(self, zero_ns: u64) -> Seen {
        let load_ns = (zero_ns, (self.clock)());
        let passed_s = load_ns.1.saturating_sub(self.started_ns).max(1) as f64 / 1e9;
        let mut seen = Seen { missing: self.missing, ..Seen::default() };
        let profile = self.profiler.map(Profiler::stop);
        seen.observed = self.watching.map(|watching| watching.finish(zero_ns));
        if let Some(profile) = profile {
            if profile.samples > 0 {
                seen.folded = Some(profile.folded().to_string());
            } else {
                let why = "no sample met the subject on a processor".to_owned();
                seen.missing.push(Missing { what: "functions of the subject".to_owned(), why });
            }
            let notes = profile.notes.iter().map(|note| Missing {
                what: "all functions of the subject".to_owned(),
                why: note.clone(),
            });
            seen.missing.extend(notes);
            if let Some(observed) = &mut seen.observed {
                observed.functions = profile.functions(SUBJECT);
                observed.functions.truncate(FUNCTIONS_KEPT);
                observed.cost_cpus += profile.reading_s / passed_s;
                observed.cost_after_s = Some(profile.naming_s);
            }
        }
        // A thread that failed has found nothing; one that still counts has a bound.
        let found = self.counting.and_then(|counting| counting.join().ok()).unwrap_or_default();
        if let Some(observed) = &mut seen.observed {
            observed.cost_cpus += found.cost_ns as f64 / 1e9 / passed_s;
        }
        let mut told_in_time = |during: Option<During>| {
            let placed = placed(during?, load_ns);
            placed.map_err(|why| seen.missing.push(why)).ok()
        };
        let (syscalls, asked) = (told_in_time(found.syscalls), told_in_time(found.asked));
        if let (Some(syscalls), Some(observed)) = (syscalls, &mut seen.observed) {
            observed.calls.push(syscalls.count);
        }
        seen.calls = asked;
        seen.missing.extend(found.missing.into_iter().map(told));
        seen
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("watching", &self.watching).finish_non_exhaustive()
    }
}

impl Counting {
    fn start(self) -> Result<Option<JoinHandle<Found>>, Missing> {
        if self.asked.is_none() && !self.syscalls {
            return Ok(None);
        }
        let explain = |why: String| Missing { what: "calls of the subject".to_owned(), why };
        if self.length_ns < COUNTED_NS_MIN {
            return match self.asked {
                Some(_) => Err(explain("the load is shorter than 2 s".to_owned())),
                None => Ok(None),
            };
        }
        let thread = std::thread::Builder::new().name("count".to_owned());
        let started = thread.spawn(move || self.count());
        started.map(Some).map_err(|error| explain(error.to_string()))
    }

    /// Counts while the load runs.
    fn count(self) -> Found {
        let mut found = Found::default();
        if self.syscalls {
            let length_ns = (self.length_ns / SYSCALLS_FOR).min(SYSCALLS_NS_MAX);
            let budget = Budget { length_ns, ..Budget::default() };
            found.syscalls = self.one(&Call::SystemCalls, budget, &mut found.missing);
        }
        if let Some(call) = &self.asked {
            let length_ns = self.length_ns / COUNTED_FOR;
            match calls::count_through(SUBJECT, &self.pids, call, length_ns, self.clock, 0) {
                Ok(counted) => {
                    let ended_s = counted.call.from_s + counted.call.length_s;
                    found.asked = Some(During { counted, ended_ns: (ended_s * 1e9) as u64 });
                }
                Err(why) => found.missing.push(why),
            }
        }
        found.cost_ns = thread_cpu_ns();
        found
    }

    fn one(&self, call: &Call, budget: Budget, missing: &mut Vec<NotObservable>) -> Option<During> {
        let which = std::slice::from_ref(call);
        let (counted, not) = calls::count(SUBJECT, &self.pids, which, budget, self.clock, 0);
        missing.extend(not);
        Some(During { counted: counted.into_iter().next()?, ended_ns: (self.clock)() })
    }
}

/// A count with its times from the load's beginning, if it ended with the load: what came after that
/// are no calls of the load.
fn placed(during: During, (zero_ns, end_ns): (u64, u64)) -> Result<Calls, Missing> {
    let Counted { mut call, hit, of, .. } = during.counted;
    call.from_s -= zero_ns as f64 / 1e9;
    let late_s = (during.ended_ns as f64 - end_ns as f64) / 1e9;
    if late_s > COUNTED_LATE_S {
        let why = format!("the counting ended {late_s:.1} s after the load: it has to be longer");
        return Err(Missing { what: format!("calls of {}", call.call), why });
    }
    Ok(Calls { count: call, of, hit_ns: hit.hit_ns, hit_is_measured: hit.is_measured })
}

/// What is watched where weir does not do it: the driver, the programs behind it, and this process.
fn spec(places: &[Place], own: i32) -> Spec {
    let role_of = |node: Node| match node {
        Node::Client => GENERATOR,
        Node::Subject => SUBJECT,
        Node::Origin => ORIGIN,
    };
    let mut roles: Vec<Watched> = places
        .iter()
        .map(|place| Watched { role: role_of(place.node).to_owned(), pids: place.pids.clone() })
        .collect();
    // The generator comes first, as it does in a record of weir's.
    roles.sort_by_key(|role| role.role != GENERATOR);
    roles.push(Watched { role: LAB.to_owned(), pids: vec![own] });
    let ports = places.iter().filter_map(|place| {
        let used_by = if place.node == Node::Origin { SUBJECT } else { GENERATOR };
        Some(PortUse {
            port: place.port?,
            served_by: Some(role_of(place.node).to_owned()),
            used_by: Some(used_by.to_owned()),
        })
    });
    let ports: Vec<PortUse> = ports.collect();
    // What is behind the subject is known, if there is an origin.
    let follow = !places.iter().any(|place| place.node == Node::Origin);
    Spec { roles, ports, follow, ..Spec::default() }
}

fn told(why: NotObservable) -> Missing {
    Missing { what: why.what, why: why.why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::perf::HitCost;
    use record::observed::CallCount;

    #[test]
    fn calls_that_were_counted_after_the_load_are_not_its_calls() {
        let during = |ended_ns| During {
            counted: Counted {
                call: CallCount { from_s: 12.0, length_s: 0.5, count: 9, ..CallCount::default() },
                cost_in_all_cpus: 0.01,
                hit: HitCost { hit_ns: 100.0, is_measured: true },
                of: "libc".to_owned(),
            },
            ended_ns,
        };
        let load_ns = (10_000_000_000, 18_000_000_000);
        let calls = placed(during(14_000_000_000), load_ns).unwrap();
        assert_eq!((calls.count.from_s, calls.hit_ns), (2.0, 100.0));
        assert!(placed(during(18_050_000_000), load_ns).is_ok());
        assert!(placed(during(19_000_000_000), load_ns).unwrap_err().why.contains("1.0 s after"));
    }

    #[test]
    fn who_is_watched_has_its_role_and_its_port() {
        let place = |node, pid, port| Place { node, pids: vec![pid], port };
        let places = [
            place(Node::Client, 10, None),
            place(Node::Origin, 12, Some(9000)),
            place(Node::Subject, 11, Some(8000)),
        ];
        let spec = spec(&places, 1);
        let roles: Vec<&str> = spec.roles.iter().map(|role| &*role.role).collect();
        assert_eq!(roles, [GENERATOR, ORIGIN, SUBJECT, LAB]);
        assert_eq!(spec.ports[0].used_by.as_deref(), Some(SUBJECT));
        assert_eq!(spec.ports[1].served_by.as_deref(), Some(SUBJECT));
        assert!(!spec.follow);
    }
}
