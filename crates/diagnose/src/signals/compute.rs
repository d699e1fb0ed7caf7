//! Computation of figures from a view, if it takes more than a line. Thresholds are elsewhere.

use record::observed::{ConnectionEnd, EndQueues, ListenerQueue, MachineSample, QueueSnapshot, RoleUse};

use super::functions::is_sync;
use super::latency_range::LatencyRange;
use super::short_lived::short_lived_cpus;
use crate::figures as f;
use crate::run_view::RunView;
use crate::sleeps::threads_blocked_elsewhere;
use crate::window::{GENERATOR, MachineWindow, SUBJECT, Series, namespace};

/// Minimum queue length: a queue that is nearly empty at both ends says nothing about either.
pub(super) const QUEUE_FLOOR: f64 = 0.05;

/// Minimum number of CPUs that a 10 ms clock resolves in a run of a second.
pub(super) const CPUS_RESOLVED_MIN: f64 = 0.01;

pub(super) fn responses_per_s(view: &RunView<'_>) -> Option<f64> {
    let rate = view.run.rates.responses_per_s;
    (rate > 0.0).then_some(rate)
}

/// Use of the subject's CPUs from which a generator that waits for a CPU waits for the subject.
const SUBJECT_FILLS_CPUS: f64 = 0.9;

/// Returns the fraction of the time that the busiest generator thread ran or waited for a CPU. It cannot send
/// while it waits, unless the subject fills the CPUs: then they are the limit, and not the generator.
pub(super) fn generator_thread(view: &RunView<'_>) -> Option<f64> {
    // A spinning thread is always busy, which says nothing.
    if view.run.plan["spin"].as_bool() == Some(true) {
        return None;
    }
    let subject_fills_cpus = subject_saturation(view).is_some_and(|used| used >= SUBJECT_FILLS_CPUS);
    let generator = &view.run.generator;
    let own = match subject_fills_cpus {
        true => generator.busiest_thread_fraction,
        false => generator.runnable_fraction(),
    };
    let busy = own.or_else(|| view.role_median(GENERATOR, f::BUSIEST_THREAD.read))?;
    let quota_used_median = |machine: MachineWindow<'_>| machine.role(GENERATOR).median(f::QUOTA_USED.read);
    Some(view.machines(GENERATOR).into_iter().filter_map(quota_used_median).fold(busy, f64::max))
}

/// Returns the CPUs that a role used; of the subject with its [short-lived processes](short_lived_cpus).
pub(super) fn cpus(view: &RunView<'_>, role: &str) -> Option<f64> {
    let unseen = if role == SUBJECT { short_lived_cpus(view) } else { None };
    Some(view.role_median(role, f::CPUS.read)? + unseen.unwrap_or(0.0))
}

/// Minimum fraction of the subject's CPU time that its observed threads explain.
const EXPLAINED_FRACTION_MIN: f64 = 0.5;
/// CPU time below which the clocks of processes and threads are too coarse to compare.
const EXPLAINED_CPUS_MIN: f64 = 0.1;

/// Use of a thread from which it has no idle time.
const ALWAYS_BUSY: f64 = 0.9;
/// Minimum rate of the load over that of the baseline for which a thread that was always busy in both spins: a thread
/// that does the work could not have done so much more.
const MORE_WORK: f64 = 1.5;

/// Maximum CPU time of a subject of which no thread can be busy, however short-lived its threads are.
const NO_BUSY_THREAD_CPUS: f64 = 0.5;

/// Returns the use of the subject's busiest thread, without those that [spin](spinning_threads); at most, if threads
/// are too short-lived but use little. `None` if they use much.
pub(super) fn subject_thread(view: &RunView<'_>) -> Option<f64> {
    let spinning = spinning_threads(view);
    let busiest = |role: &RoleUse| {
        let working = role.threads.iter().filter(|thread| !spinning.contains(&thread.tid));
        working.map(|thread| thread.busy).reduce(f64::max)
    };
    match are_threads_observed(view)? {
        true => view.role_median(SUBJECT, busiest),
        false => cpus(view, SUBJECT).filter(|all| *all <= NO_BUSY_THREAD_CPUS),
    }
}

/// Returns the CPUs that the subject's [spinning threads](spinning_threads) use.
pub(super) fn spinning_cpus(view: &RunView<'_>) -> f64 {
    let spinning = spinning_threads(view);
    let busy = |role: &RoleUse| {
        let threads = role.threads.iter().filter(|thread| spinning.contains(&thread.tid));
        Some(threads.map(|thread| thread.busy).sum())
    };
    if spinning.is_empty() { 0.0 } else { view.role_median(SUBJECT, busy).unwrap_or(0.0) }
}

/// Returns the threads of the subject that were always busy before the load, when requests were sent one at a time
/// and far fewer were served: they wait in a loop.
fn spinning_threads(view: &RunView<'_>) -> Vec<i32> {
    let rate_before =
        view.run.baseline.as_ref().map(|baseline| baseline.good as f64 / baseline.duration_s.max(1e-3));
    if !rate_before.is_some_and(|before| view.goodput() >= MORE_WORK * before) {
        return Vec::new();
    }
    let threads = view.machine(SUBJECT).into_iter().flat_map(|machine| &machine.observed.baseline_threads);
    threads.filter(|thread| thread.busy >= ALWAYS_BUSY).map(|thread| thread.tid).collect()
}

/// Returns the number of the subject's threads that used CPU time; of all its threads if they are too short-lived.
pub(super) fn subject_threads(view: &RunView<'_>) -> Option<f64> {
    let all = |role: &RoleUse| Some(f64::from(role.threads_total));
    if are_threads_observed(view)? {
        view.role_median(SUBJECT, f::BUSY_THREADS.read)
    } else {
        view.role_median(SUBJECT, all)
    }
}

/// Returns false if most of the subject's CPU time belongs to threads that ended between two samples, such as those
/// that serve one request each.
fn are_threads_observed(view: &RunView<'_>) -> Option<bool> {
    let explained = view.role_median(SUBJECT, f::RUNNING.read)?;
    let used = cpus(view, SUBJECT).unwrap_or(0.0);
    Some(used < EXPLAINED_CPUS_MIN || explained >= used * EXPLAINED_FRACTION_MIN)
}

/// CPUs of the subject's machine.
pub(crate) struct MachineCpus {
    /// Kept busy by the load: the roles, and interrupts.
    pub(crate) load: f64,
    /// Left to the load by other processes.
    pub(crate) available: f64,
}

/// Returns the CPUs of the subject's machine, without those of other processes.
pub(crate) fn machine_cpus(view: &RunView<'_>) -> Option<MachineCpus> {
    let without = |cpus: Option<f64>, foreign: f64| Some((cpus? - foreign).max(0.0));
    let load_cpus =
        view.foreign_median(SUBJECT, |sample, foreign| without((f::BUSY_CPUS.read)(sample), foreign));
    let available_cpus =
        view.foreign_median(SUBJECT, |sample, foreign| without((f::AVAILABLE_CPUS.read)(sample), foreign));
    Some(MachineCpus { load: load_cpus?, available: available_cpus?.max(1e-9) })
}

/// Minimum fraction of the subject's CPU time on one thread for single-threaded work.
const SINGLE_THREAD_MIN: f64 = 0.9;

/// Returns true if one thread does the subject's work: then no other thread can take some of it.
pub(crate) fn is_single_threaded(view: &RunView<'_>) -> bool {
    let (thread, all) = (subject_thread(view), cpus(view, SUBJECT));
    thread.zip(all).is_some_and(|(thread, all)| thread >= SINGLE_THREAD_MIN * all)
}

/// Returns the use of the thread that does the subject's work over that of the generator's busiest thread.
pub(super) fn subject_over_generator(view: &RunView<'_>) -> Option<f64> {
    let thread = subject_thread(view).filter(|_| is_single_threaded(view))?;
    Some(thread / generator_thread(view)?.max(1e-9))
}

/// Returns the CPUs that the hypervisor gave to other virtual machines.
pub(super) fn stolen_cpus(view: &RunView<'_>) -> Option<f64> {
    let cpus = view.sample_median(SUBJECT, |sample| Some(sample.cpus.len() as f64))?;
    Some(view.sample_median(SUBJECT, f::STEAL.read).unwrap_or(0.0) * cpus)
}

/// Returns the number of CPUs that the subject may use.
pub(super) fn allowed_cpus(view: &RunView<'_>) -> Option<f64> {
    let by_affinity = allowed_cpus_by_affinity(view)?;
    let quota = view.role_median(SUBJECT, f::QUOTA.read);
    Some(quota.map_or(by_affinity, |quota| quota.min(by_affinity)))
}

/// Returns the same without its quota: how many of its threads can run at a time.
pub(crate) fn allowed_cpus_by_affinity(view: &RunView<'_>) -> Option<f64> {
    view.machine(SUBJECT)?.cpus_by_affinity(SUBJECT)
}

/// Maximum number of CPUs used or waited for by a subject that is not CPU-bound.
pub(crate) const HARDLY_BUSY_CPUS: f64 = 0.3;

/// Waiting for a CPU, and time given to other virtual machines, up to which a subject gets all that it requests, as
/// fractions of what it used.
const HARDLY_WAITS_FRACTION: f64 = 0.05;

/// Returns the subject's use as a fraction of the available CPUs: its quota and affinity limit
/// them, and so does the use of other processes, if it waits for a CPU because of them.
pub(super) fn subject_saturation(view: &RunView<'_>) -> Option<f64> {
    let used = cpus(view, SUBJECT)?;
    let observed_demand = view.role_median(SUBJECT, f::CPU_DEMAND.read);
    let is_hardly_busy = observed_demand.unwrap_or(used).max(used) <= HARDLY_BUSY_CPUS;
    // Threads that end before they are observed have waited, too.
    let gets_what_it_requests = observed_demand.is_some_and(|demand| {
        let bounds = (1.0 - HARDLY_WAITS_FRACTION) * used..=(1.0 + HARDLY_WAITS_FRACTION) * used;
        bounds.contains(&demand) && stolen_cpus(view).unwrap_or(0.0) <= HARDLY_WAITS_FRACTION * used
    });
    let allowed = allowed_cpus(view)?;
    if is_hardly_busy || gets_what_it_requests {
        // Whatever others leave.
        return Some(used / allowed.max(1e-9));
    }
    let idle = view.sample_median(SUBJECT, f::IDLE_CPUS.read)?;
    Some(used / allowed.min(used + idle).max(1e-9))
}

pub(super) fn softirq_max_and_next(sample: &MachineSample) -> Option<(f64, f64)> {
    let mut fractions: Vec<f64> = sample.cpus.iter().map(|cpu| cpu.softirq).collect();
    fractions.sort_by(f64::total_cmp);
    let (max, others) = fractions.split_last()?;
    Some((*max, *others.last()?))
}

pub(super) fn connections_in_state(ends: &EndQueues, name: &str) -> Option<f64> {
    Some(ends.count_in_state(name) as f64)
}

/// Number of sockets below which the median of their snapshots is too coarse.
const FEW_SOCKETS: f64 = 20.0;

/// Returns the fraction of an end's sockets with unread bytes. `None` for a load of one request at a time, which
/// waits for no other.
pub(super) fn unread_fraction(view: &RunView<'_>, role: &str, end: ConnectionEnd) -> Option<f64> {
    if view.run.request_slots() <= 1.0 {
        return None;
    }
    let sockets = view.ends_median(role, end, |ends| Some(ends.count_in_state("established") as f64))?;
    match sockets < FEW_SOCKETS {
        true => view.ends_mean(role, end, f::UNREAD.read),
        false => view.ends_median(role, end, f::UNREAD.read),
    }
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

/// Returns the connections of the load that wait in the subject's accept queue all the time. A load that opens a
/// connection for each request has others at each time, which says nothing.
pub(crate) fn unaccepted_connections(view: &RunView<'_>) -> Option<f64> {
    let totals = &view.run.totals;
    let requested = totals.connections.requested;
    let keeps_open = totals.connections.opened <= requested + totals.failed();
    let waiting: Vec<f64> = listeners(view).iter().map(|listener| f64::from(listener.waiting)).collect();
    // Connections that ended after a timeout stay in the queue: the lower quartile is without most of them.
    let waiting = stats::quantile(&waiting, 0.25).filter(|waiting| *waiting >= 1.0 && keeps_open)?;
    Some(waiting)
        .filter(|waiting| *waiting >= UNACCEPTED_MIN * requested as f64 && *waiting < requested as f64)
}

/// Fraction of the connections from which those that are never accepted matter.
const UNACCEPTED_MIN: f64 = 0.05;

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
    listeners(view).into_iter().filter_map(f::ACCEPT_QUEUE.read).reduce(f64::max)
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
    view.counter(SUBJECT, names).into_iter().chain(generators).reduce(|sum, count| sum + count)
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
        let ends: Series<'_, EndQueues> = ends.iter().map(|(time_s, ends)| (*time_s, ends)).collect();
        (last > first).then(|| ends.growth(figure) / (last - first))
    };
    view.machines(role).into_iter().filter_map(machine_growth).reduce(|sum, growth| sum + growth)
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

/// Threads of a runtime that sleep between their own checks, such as Go's monitor.
const THREADS_OF_RUNTIME: f64 = 1.0;

/// Returns the number of the subject's threads that are in a write which waits: asleep, or on a CPU below fsync(2),
/// because a fast disk answers before most sleeps begin. 0 if more threads are blocked by something else: a log
/// thread of its own may wait while the others serve.
pub(super) fn threads_in_writes(view: &RunView<'_>) -> Option<f64> {
    let at_disk = view.role_mean(SUBJECT, f::DISK_SLEEP.read)?;
    let asleep = at_disk + view.role_mean(SUBJECT, f::PIPE_SLEEP.read).unwrap_or(0.0);
    let elsewhere = view.role_mean(SUBJECT, threads_blocked_elsewhere).unwrap_or(0.0);
    if asleep == 0.0 || elsewhere > asleep + THREADS_OF_RUNTIME {
        return Some(0.0);
    }
    let functions = view.machine(SUBJECT).into_iter().flat_map(|machine| &machine.observed.functions);
    let sync = functions
        .filter(|function| function.role == SUBJECT && is_sync(function))
        .map(|function| function.total_fraction);
    Some(asleep + sync.fold(0.0, f64::max) * cpus(view, SUBJECT).unwrap_or(0.0))
}

/// Returns the fraction of requests that took the time of a retransmission.
pub(super) fn retransmission_mode(view: &RunView<'_>) -> Option<f64> {
    let by_kernel = LatencyRange { from_ns: 195_000_000, to_ns: 700_000_000 }.fraction_of(&view.last_byte);
    Some(by_kernel + user_retransmission_mode(view))
}

/// Returns the fraction of requests that took the time of a retransmission by TCP in user space, whose timeout is 1 s
/// at least (RFC 6298 §2.4). Zero for a load over the kernel's TCP.
pub(super) fn user_retransmission_mode(view: &RunView<'_>) -> f64 {
    let range = LatencyRange { from_ns: 995_000_000, to_ns: 1_700_000_000 };
    view.run.transport.as_ref().map_or(0.0, |_| range.fraction_of(&view.last_byte))
}
