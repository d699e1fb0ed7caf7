//! Computation of figures from a view, if it takes more than a line. Thresholds are elsewhere.

use record::observed::{
    ConnectionEnd, CpuUse, EndQueues, FunctionUse, ListenerQueue, MachineSample, QueueSnapshot, RoleUse,
};
use record::run::Interval;

use crate::fingerprints;
use crate::run_view::{GENERATOR, MachineWindow, RunView, SUBJECT, median, namespace};

/// Minimum queue length: a queue that is nearly empty at both ends says nothing about either.
pub(super) const QUEUE_FLOOR: f64 = 0.05;

pub(super) fn responses_per_s(view: &RunView<'_>) -> Option<f64> {
    let rate = view.run.rates.responses_per_s;
    (rate > 0.0).then_some(rate)
}

pub(super) fn generator_thread(view: &RunView<'_>) -> Option<f64> {
    // A spinning thread is always busy, which says nothing.
    if view.run.plan["spin"].as_bool() == Some(true) {
        return None;
    }
    let busy =
        view.run.generator.busiest_thread_fraction.or_else(|| view.role_median(GENERATOR, busiest_thread))?;
    let of_quota = |machine: MachineWindow<'_>| {
        let quota = machine.role_median(GENERATOR, |role| role.cgroup.as_ref()?.quota_cpus)?;
        Some(machine.role_median(GENERATOR, cpus_used)? / quota.max(1e-9))
    };
    Some(view.machines(GENERATOR).into_iter().filter_map(of_quota).fold(busy, f64::max))
}

pub(super) fn cpus_used(role: &RoleUse) -> Option<f64> {
    Some(role.user_cpus + role.system_cpus)
}

pub(super) fn cpus(view: &RunView<'_>, role: &str) -> Option<f64> {
    view.role_median(role, cpus_used)
}

pub(super) fn busiest_thread(role: &RoleUse) -> Option<f64> {
    role.threads.iter().map(|thread| thread.busy).reduce(f64::max)
}

/// Minimum fraction of the subject's CPU time that its observed threads explain.
const EXPLAINED_FRACTION_MIN: f64 = 0.5;
/// CPU time below which the clocks of processes and threads are too coarse to compare.
const EXPLAINED_CPUS_MIN: f64 = 0.1;

/// Returns the use of the subject's busiest thread. `None` if most of its CPU time belongs to threads
/// that ended between two samples, such as workers that serve a few requests each.
pub(super) fn subject_thread(view: &RunView<'_>) -> Option<f64> {
    let all_threads = |role: &RoleUse| Some(role.threads.iter().map(|thread| thread.busy).sum());
    let explained: f64 = view.role_median(SUBJECT, all_threads)?;
    let used = cpus(view, SUBJECT).unwrap_or(0.0);
    let is_explained = used < EXPLAINED_CPUS_MIN || explained >= used * EXPLAINED_FRACTION_MIN;
    is_explained.then(|| view.role_median(SUBJECT, busiest_thread)).flatten()
}

/// Returns the ratio of waiting to running time, of the threads that ran.
pub(super) fn wait_ratio(role: &RoleUse) -> Option<f64> {
    let (mut waiting, mut busy) = (0.0, 0.0);
    for thread in &role.threads {
        waiting += thread.waiting?;
        busy += thread.busy;
    }
    (busy > 0.0).then(|| waiting / busy)
}

pub(super) fn throttled_fraction(role: &RoleUse) -> Option<f64> {
    role.cgroup.as_ref()?.throttled_periods
}

pub(super) fn idle_cpus(sample: &MachineSample) -> f64 {
    sample.cpus.iter().map(|cpu| cpu.idle).sum()
}

/// Returns the busy CPUs, and the available ones: stolen time is in neither.
pub(super) fn busy_and_available_cpus(sample: &MachineSample) -> (f64, f64) {
    let all: f64 = sample.cpus.iter().map(|cpu| 1.0 - cpu.steal).sum();
    ((all - idle_cpus(sample)).max(0.0), all.max(1e-9))
}

/// Returns the CPUs of the subject's machine that the load keeps busy (the roles, and interrupts),
/// and those that other processes leave to it.
pub(crate) fn machine_cpus(view: &RunView<'_>) -> Option<(f64, f64)> {
    let load_cpus =
        |sample: &MachineSample, foreign: f64| (busy_and_available_cpus(sample).0 - foreign).max(0.0);
    let available_cpus =
        |sample: &MachineSample, foreign: f64| (busy_and_available_cpus(sample).1 - foreign).max(0.0);
    Some((view.foreign_median(SUBJECT, load_cpus)?, view.foreign_median(SUBJECT, available_cpus)?))
}

/// Minimum fraction of the subject's CPU time on one thread for single-threaded work.
const SINGLE_THREAD_MIN: f64 = 0.9;

/// Returns true if one thread does the subject's work: then no other thread can take some of it.
pub(crate) fn is_single_threaded(view: &RunView<'_>) -> bool {
    let (thread, all) = (subject_thread(view), cpus(view, SUBJECT));
    thread.zip(all).is_some_and(|(thread, all)| thread >= SINGLE_THREAD_MIN * all)
}

/// Returns the number of CPUs that the subject may use.
pub(super) fn allowed_cpus(view: &RunView<'_>) -> Option<f64> {
    let by_affinity = cpus_by_affinity(view)?;
    let quota = view.role_median(SUBJECT, |role| role.cgroup.as_ref()?.quota_cpus);
    Some(quota.map_or(by_affinity, |quota| quota.min(by_affinity)))
}

/// Returns the same without its quota: how many of its threads can run at a time.
pub(crate) fn cpus_by_affinity(view: &RunView<'_>) -> Option<f64> {
    let observed = view.machine(SUBJECT)?.observed;
    let role = observed.roles.iter().find(|role| role.name == SUBJECT)?;
    Some(f64::from(role.cpus_allowed.clamp(1, observed.cpus.max(1))))
}

/// Maximum number of CPUs used or waited for by a subject that is not CPU-bound.
pub(crate) const HARDLY_BUSY_CPUS: f64 = 0.3;

/// Returns the subject's use as a fraction of the available CPUs: its quota and affinity limit
/// them, and so does the use of other processes.
pub(super) fn subject_saturation(view: &RunView<'_>) -> Option<f64> {
    let used = cpus(view, SUBJECT)?;
    let demand = (super::SUBJECT_DEMAND.read)(view).unwrap_or(used);
    if demand.max(used) <= HARDLY_BUSY_CPUS {
        // The subject gets what it requests, whatever others leave.
        return Some(used / allowed_cpus(view)?.max(1e-9));
    }
    let idle = view.sample_median(SUBJECT, |sample| Some(idle_cpus(sample)))?;
    Some(used / allowed_cpus(view)?.min(used + idle).max(1e-9))
}

pub(super) fn softirq_max_and_next(sample: &MachineSample) -> Option<(f64, f64)> {
    let mut fractions: Vec<f64> = sample.cpus.iter().map(|cpu| cpu.softirq).collect();
    fractions.sort_by(f64::total_cmp);
    let (max, others) = fractions.split_last()?;
    Some((*max, *others.last()?))
}

pub(super) fn sum_over_cpus(sample: &MachineSample, figure: fn(&CpuUse) -> f64) -> Option<f64> {
    (!sample.cpus.is_empty()).then(|| sample.cpus.iter().map(figure).sum())
}

pub(super) fn connections_in_state(ends: &EndQueues, name: &str) -> Option<f64> {
    Some(ends.count_in_state(name) as f64)
}

pub(super) fn unread_fraction(view: &RunView<'_>, role: &str, end: ConnectionEnd) -> Option<f64> {
    view.ends_median(role, end, |ends| {
        let established = connections_in_state(ends, "established")?;
        (established > 0.0).then(|| ends.with_unread as f64 / established)
    })
}

/// Returns the responses that wait at a generator if the subject's own sockets are not observed.
/// There is nothing to compare them with, but a generator that leaves them unread is late.
pub(super) fn unread_without_subject(view: &RunView<'_>) -> Option<f64> {
    match unread_fraction(view, SUBJECT, ConnectionEnd::Server) {
        None => unread_fraction(view, GENERATOR, ConnectionEnd::Client),
        Some(_) => None,
    }
}

pub(super) fn listener<'a>(
    machine: &MachineWindow<'a>,
    snapshot: &'a QueueSnapshot,
) -> Option<&'a ListenerQueue> {
    let port = machine.port_of(SUBJECT, ConnectionEnd::Server)?;
    snapshot.listeners.iter().find(|listener| listener.port == port)
}

/// Returns the subject's listening sockets, snapshot by snapshot.
pub(super) fn listeners<'a>(view: &RunView<'a>) -> Vec<&'a ListenerQueue> {
    let Some(machine) = view.machine(SUBJECT) else {
        return Vec::new();
    };
    let snapshots = machine.snapshots().into_iter();
    snapshots.filter_map(|snapshot| listener(&machine, snapshot)).collect()
}

pub(super) fn backlog(view: &RunView<'_>) -> Option<f64> {
    Some(f64::from(listeners(view).last()?.backlog))
}

pub(super) fn full_snapshot_fraction(view: &RunView<'_>) -> Option<f64> {
    let listeners = listeners(view);
    let full_count = listeners.iter().filter(|listener| listener.full > 0).count();
    (!listeners.is_empty()).then(|| full_count as f64 / listeners.len() as f64)
}

/// Returns the maximum fill of the accept queues: a queue is empty in most moments, and the fullest
/// moment counts.
pub(super) fn accept_queue_fill_max(view: &RunView<'_>) -> Option<f64> {
    let fill = |listener: &ListenerQueue| {
        let capacity = f64::from(listener.backlog) * f64::from(listener.sockets);
        (capacity > 0.0).then(|| f64::from(listener.waiting) / capacity)
    };
    listeners(view).into_iter().filter_map(fill).reduce(f64::max)
}

/// Returns a counter of the namespaces of the subject and of the generators, once if they are the
/// same.
pub(super) fn counter_of_both_ends(view: &RunView<'_>, names: &[&str]) -> Option<f64> {
    let is_other_namespace = |machine: &MachineWindow<'_>| {
        let sample = machine.samples().into_iter().next();
        let generator_namespace = sample.and_then(|sample| namespace(sample, GENERATOR));
        !generator_namespace.is_some_and(|space| space.roles.iter().any(|role| role == SUBJECT))
    };
    let generators = view.machines(GENERATOR).into_iter().filter(is_other_namespace);
    let generators = generators.filter_map(|machine| machine.counter(GENERATOR, names));
    view.counter(SUBJECT, names).into_iter().chain(generators).reduce(|sum, one| sum + one)
}

/// Returns the growth of a sum over the sockets of one end, per second, on all machines of a role.
/// Closing sockets reduce the sum, so only growth between neighbouring snapshots counts.
pub(super) fn growth_per_s(
    view: &RunView<'_>,
    role: &str,
    end: ConnectionEnd,
    figure: fn(&EndQueues) -> f64,
) -> Option<f64> {
    let machine_growth = |machine: MachineWindow<'_>| {
        let ends = machine.ends_by_time(role, end);
        let (first, last) = (ends.first()?.0, ends.last()?.0);
        let steps = ends.windows(2).map(|pair| (figure(&pair[1].1) - figure(&pair[0].1)).max(0.0));
        (last > first).then(|| steps.sum::<f64>() / (last - first))
    };
    view.machines(role).into_iter().filter_map(machine_growth).reduce(|sum, one| sum + one)
}

/// Returns the growth of the time in which sockets were limited, divided by the growth of their
/// busy time.
pub(super) fn limited_fraction(
    view: &RunView<'_>,
    role: &str,
    end: ConnectionEnd,
    figure: fn(&EndQueues) -> f64,
) -> Option<f64> {
    let growth_of = |figure| growth_per_s(view, role, end, figure);
    let busy = growth_of(|ends| ends.busy_us as f64)?;
    (busy > 0.0).then(|| growth_of(figure).map(|limited_us| limited_us / busy))?
}

/// Unread requests at the subject, as a fraction of its sockets, above which a full window of an upload
/// is a subject that does not read.
const UPLOADS_UNREAD_FRACTION_MAX: f64 = 0.3;

/// Returns the end that sends bodies into a window: the subject, or the generator of uploads that the
/// subject reads as they come.
fn senders(view: &RunView<'_>) -> impl Iterator<Item = (&'static str, ConnectionEnd)> {
    let reads = unread_fraction(view, SUBJECT, ConnectionEnd::Server)
        .is_some_and(|fraction| fraction < UPLOADS_UNREAD_FRACTION_MAX);
    let uploads = reads.then_some((GENERATOR, ConnectionEnd::Client));
    [(SUBJECT, ConnectionEnd::Server)].into_iter().chain(uploads)
}

/// Returns the time in which the receiver's window was full, as a fraction of the busy time.
pub(super) fn receive_window_full_fraction(view: &RunView<'_>) -> Option<f64> {
    let end_fraction =
        |(role, end)| limited_fraction(view, role, end, |ends| ends.receive_window_limited_us as f64);
    senders(view).filter_map(end_fraction).reduce(f64::max)
}

/// Returns the time in which the sockets of a sender had bytes in flight, as a fraction of the run.
pub(super) fn send_busy_fraction(view: &RunView<'_>) -> Option<f64> {
    let end_fraction = |(role, end)| {
        let per_s = growth_per_s(view, role, end, |ends| ends.busy_us as f64)? / 1e6;
        let sockets = view.ends_median(role, end, |ends| connections_in_state(ends, "established"))?;
        (sockets > 0.0).then(|| per_s / sockets)
    };
    senders(view).filter_map(end_fraction).reduce(f64::max)
}

/// Returns the ports in use to one server, as a fraction of all pairs of local address and port: of
/// the generators to the subject, or of the subject to its origin, whichever is more.
pub(super) fn ports_used_fraction(view: &RunView<'_>) -> Option<f64> {
    let used_ports =
        |machine: &MachineWindow<'_>, role: &str| {
            machine.ends_median(role, ConnectionEnd::Client, |ends| {
                Some(ends.states.values().sum::<u64>() as f64)
            })
        };
    let sources = view.run.plan["sources"].as_array().map_or(1, |all| all.len().max(1)) as f64;
    let generators = view.machines(GENERATOR).into_iter().enumerate().filter_map(|(at, machine)| {
        // The facts of a record describe the machine of its first generator. Settings are the
        // subject's on a machine with a subject.
        let by_settings = || match machine.observed.role_index(SUBJECT) {
            None => port_count_from_settings(&machine),
            Some(_) => None,
        };
        let facts = view.run.host.limits.port_range.map(port_count);
        let ports = if at == 0 { facts.or_else(by_settings) } else { by_settings().or(facts) };
        Some(used_ports(&machine, GENERATOR)? / (ports? * sources))
    });
    generators.chain(subject_ports_used_fraction(view)).reduce(f64::max)
}

/// Fraction of a proxy's local ports in use to its origins from which on new connections fail.
pub(super) const UPSTREAM_PORTS_USED_MIN: f64 = 0.9;

/// Returns the subject's local ports in use to one origin, as a fraction of the available ones.
pub(super) fn subject_ports_used_fraction(view: &RunView<'_>) -> Option<f64> {
    let machine = view.machine(SUBJECT)?;
    let used_fraction = |snapshot: &QueueSnapshot| {
        let ports = machine.observed.local_ports(SUBJECT, snapshot)?;
        (ports.available > 0).then(|| ports.used as f64 / ports.available as f64)
    };
    median(machine.snapshots().into_iter().filter_map(used_fraction).collect())
        .or_else(|| time_wait_ports_fraction(&machine))
}

/// Returns the connections in TIME_WAIT outside the watched ports, as a fraction of the local
/// ports. This is the only trace of a subject that found no port for a connection to its origin.
fn time_wait_ports_fraction(machine: &MachineWindow<'_>) -> Option<f64> {
    let of_watched = |snapshot: &QueueSnapshot| {
        Some(snapshot.ends.iter().filter_map(|one| connections_in_state(one, "time-wait")).sum::<f64>())
    };
    let watched = median(machine.snapshots().into_iter().filter_map(of_watched).collect())?;
    let counts = machine.samples().into_iter().filter_map(|sample| namespace(sample, SUBJECT));
    let all = median(counts.map(|space| space.time_wait as f64).collect())?;
    let used_fraction = (all - watched) / port_count_from_settings(machine)?;
    // Fewer may belong to any process, to many servers.
    (used_fraction >= UPSTREAM_PORTS_USED_MIN).then_some(used_fraction)
}

fn port_count((first, last): (u16, u16)) -> f64 {
    (f64::from(last) - f64::from(first) + 1.0).max(1.0)
}

fn port_count_from_settings(machine: &MachineWindow<'_>) -> Option<f64> {
    let text = machine.observed.settings.get("net.ipv4.ip_local_port_range")?;
    let mut ports = text.split_ascii_whitespace().map_while(|port| port.parse().ok());
    Some(port_count((ports.next()?, ports.next()?)))
}

/// Minimum fraction of an open loop's offered load that must get a response for the load to count
/// as carried; the capacity search uses the same value.
pub(crate) const CARRIED_MIN: f64 = 0.99;

/// Returns the fraction of the load that got a response in time; 0 if responses came only by
/// waiting longer and longer, or too late for the objectives. `None` for a closed loop without
/// think time, which offers no fixed load.
pub(crate) fn carried_fraction(view: &RunView<'_>) -> Option<f64> {
    let run = view.run;
    let in_time = run.totals.dropped == 0 && run.objectives.iter().all(|objective| objective.met);
    let thinks = run.plan["pace"]["think_ns"].as_u64().is_some_and(|ns| ns > 0);
    let fraction = match good_response_fraction(view) {
        Some(responded) => match has_standing_queue(&run.intervals)? {
            true => 0.0,
            false => responded,
        },
        // Clients with think time request more as soon as responses come faster: X(N) = N / (R +
        // Z). So their waiting time beyond R(1) is load that was not carried.
        None if thinks => {
            let fraction = super::queueing::cycle_fraction(view)?;
            if fraction >= CYCLE_CARRIED_MIN { 1.0 } else { fraction }
        }
        None => return None,
    };
    Some(if in_time { fraction } else { 0.0 })
}

/// Minimum fraction of the rate without queueing at which clients with think time were not held up:
/// a little waiting is part of any load.
const CYCLE_CARRIED_MIN: f64 = 0.9;

/// Returns the fraction of an open loop's requests that got a good response; `None` for a closed
/// loop.
pub(super) fn good_response_fraction(view: &RunView<'_>) -> Option<f64> {
    let rates = &view.run.rates;
    rates.offered_per_s?;
    let good = view.goodput() / rates.responses_per_s.max(1e-9);
    Some(rates.answered_fraction()? * good.min(1.0))
}

/// Returns whether requests waited for a connection in most seconds, or the number in flight kept
/// growing: then the load was not carried, but deferred. `None` if there are too few seconds.
fn has_standing_queue(intervals: &[Interval]) -> Option<bool> {
    /// Maximum random growth of the requests in flight from start to end, as a difference.
    const CHANCE: f64 = 2.0;
    let measured: Vec<&Interval> = intervals.iter().filter(|second| second.measured).collect();
    let third = measured.len() / 3;
    let median_of = |part: &[&Interval], figure: fn(&Interval) -> u64| {
        median(part.iter().map(|second| figure(second) as f64).collect())
    };
    let last = &measured[measured.len() - third..];
    let before = median_of(&measured[..third], |second| second.in_flight)?;
    let after = median_of(last, |second| second.in_flight)?;
    let waits = median_of(&measured, |second| second.pending)? > 0.0
        || median_of(last, |second| second.pending)? > 0.0;
    Some(waits || after > 2.0 * before + CHANCE)
}

/// Returns the fraction of requests that took the time of a retransmission.
pub(super) fn retransmission_mode(view: &RunView<'_>) -> Option<f64> {
    Some(fingerprints::fraction_between(&view.last_byte, 195_000_000, 700_000_000))
}

/// Returns the subject's memory that is not reclaimable file cache, as a fraction of its group's
/// limit.
pub(super) fn memory_used_fraction(role: &RoleUse) -> Option<f64> {
    let group = role.cgroup.as_ref()?;
    let resident = role.proportional_bytes.or(role.resident_bytes)?;
    // Shared pages are charged once.
    let used = group.memory_bytes.map_or(resident, |charged| resident.min(charged));
    Some(used as f64 / (group.memory_max_bytes? as f64).max(1.0))
}

/// Returns the bytes that the subject sent to a disk, as a fraction of its group's limit.
pub(super) fn disk_used_fraction(role: &RoleUse) -> Option<f64> {
    let max_bytes_per_s = role.cgroup.as_ref()?.disk_write_max_bytes_per_s?;
    Some(role.disk_write_bytes_per_s? / max_bytes_per_s.max(1.0))
}

/// Module name of the kernel's functions.
pub(super) const KERNEL: &str = "[kernel]";

pub(super) fn contains_any(function: &str, parts: &[&str]) -> bool {
    let lower = function.to_ascii_lowercase();
    parts.iter().any(|part| lower.contains(part))
}

pub(super) fn is_allocation(one: &FunctionUse) -> bool {
    const NAMES: &[&str] = &[
        "malloc",
        "calloc",
        "realloc",
        "_int_free",
        "cfree",
        "free_perturb",
        "unlink_chunk",
        "arena_",
        "tcache",
        "mi_free",
        "mi_page",
        "mi_heap",
        "mi_segment",
        "je_",
        "jemalloc",
        "mallocgc",
        "alloc::alloc",
        "__rust_alloc",
        "__rust_dealloc",
        "ngx_palloc",
        "pool_alloc_nocache",
        "sysmalloc",
    ];
    let function = one.function.as_str();
    // Neither an interpreter's own object pool nor the kernel's memory (`__kmalloc`) belongs to the
    // exchangeable allocator.
    let is_pool = function.trim_start_matches('_').starts_with("Py");
    if is_pool || one.module == KERNEL {
        return false;
    }
    function == "free" || function == "__libc_free" || contains_any(function, NAMES)
}

pub(super) fn is_lock(one: &FunctionUse) -> bool {
    const NAMES: &[&str] = &[
        "futex",
        "lll_lock",
        "pthread_mutex",
        "mutex_lock",
        "spin_lock",
        "rwlock",
        "sys_sched_yield",
        "plock_",
        "pl_wait",
        "parking_lot",
        "queued_spin",
        "native_queued",
    ];
    contains_any(&one.function, NAMES)
}
