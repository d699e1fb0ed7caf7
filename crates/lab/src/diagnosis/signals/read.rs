//! How figures are read from a view, where it takes more than a line. Not for thresholds.

use record::observed::{
    CpuUse, End, EndQueues, FunctionShare, ListenerQueue, QueueSnapshot, RoleUse, Sample,
};
use record::run::Interval;

use crate::diagnosis::fingerprints;
use crate::diagnosis::view::{GENERATOR, Machine, SUBJECT, View, median, namespace};

/// A queue that is nearly empty at both ends says nothing of either.
pub(super) const QUEUE_FLOOR: f64 = 0.05;

pub(super) fn responses(view: &View<'_>) -> Option<f64> {
    let rate = view.run.rates.responses_per_s;
    (rate > 0.0).then_some(rate)
}

pub(super) fn generator_thread(view: &View<'_>) -> Option<f64> {
    // A thread that spins is always busy; that says nothing.
    if view.run.plan["spin"].as_bool() == Some(true) {
        return None;
    }
    let busy =
        view.run.generator.busiest_thread_share.or_else(|| view.of_role(GENERATOR, busiest))?;
    let of_quota = |machine: Machine<'_>| {
        let quota = machine.of_role(GENERATOR, |role| role.cgroup.as_ref()?.quota_cpus)?;
        Some(machine.of_role(GENERATOR, used)? / quota.max(1e-9))
    };
    Some(view.machines(GENERATOR).into_iter().filter_map(of_quota).fold(busy, f64::max))
}

pub(super) fn used(role: &RoleUse) -> Option<f64> {
    Some(role.user_cpus + role.system_cpus)
}

pub(super) fn cpus(view: &View<'_>, role: &str) -> Option<f64> {
    view.of_role(role, used)
}

pub(super) fn busiest(role: &RoleUse) -> Option<f64> {
    role.threads.iter().map(|thread| thread.busy).reduce(f64::max)
}

/// Waiting over running, of the threads that ran.
pub(super) fn wait_ratio(role: &RoleUse) -> Option<f64> {
    let (mut waiting, mut busy) = (0.0, 0.0);
    for thread in &role.threads {
        waiting += thread.waiting?;
        busy += thread.busy;
    }
    (busy > 0.0).then(|| waiting / busy)
}

pub(super) fn throttled(role: &RoleUse) -> Option<f64> {
    role.cgroup.as_ref()?.throttled_periods
}

pub(super) fn idle(sample: &Sample) -> f64 {
    sample.cpus.iter().map(|cpu| cpu.idle).sum()
}

/// Processors that the subject may use.
pub(super) fn allowed(view: &View<'_>) -> Option<f64> {
    let by_affinity = by_affinity(view)?;
    let quota = view.of_role(SUBJECT, |role| role.cgroup.as_ref()?.quota_cpus);
    Some(quota.map_or(by_affinity, |quota| quota.min(by_affinity)))
}

/// The same without its quota: how many of its threads can run at a time.
pub(in crate::diagnosis) fn by_affinity(view: &View<'_>) -> Option<f64> {
    let seen = view.machine(SUBJECT)?.seen;
    let role = seen.roles.iter().find(|role| role.name == SUBJECT)?;
    Some(f64::from(role.cpus_allowed.clamp(1, seen.cpus.max(1))))
}

/// What it used, of what it had or could have had: its quota and affinity bound it, and so does what
/// the others on the machine leave.
pub(super) fn subject_saturation(view: &View<'_>) -> Option<f64> {
    let used = cpus(view, SUBJECT)?;
    let left = view.of_samples(SUBJECT, |sample| Some(idle(sample)))?;
    Some(used / allowed(view)?.min(used + left).max(1e-9))
}

pub(super) fn softirqs(sample: &Sample) -> Option<(f64, f64)> {
    let mut shares: Vec<f64> = sample.cpus.iter().map(|cpu| cpu.softirq).collect();
    shares.sort_by(f64::total_cmp);
    let (most, rest) = shares.split_last()?;
    Some((*most, *rest.last()?))
}

pub(super) fn of_cpus(sample: &Sample, figure: fn(&CpuUse) -> f64) -> Option<f64> {
    (!sample.cpus.is_empty()).then(|| sample.cpus.iter().map(figure).sum())
}

pub(super) fn state(ends: &EndQueues, name: &str) -> Option<f64> {
    Some(ends.states.get(name).copied().unwrap_or(0) as f64)
}

pub(super) fn unread(view: &View<'_>, role: &str, end: End) -> Option<f64> {
    view.of_ends(role, end, |ends| {
        let established = state(ends, "established")?;
        (established > 0.0).then(|| ends.with_unread as f64 / established)
    })
}

/// The answers that wait at a generator whose subject's own sockets are not seen: nothing to hold them
/// against, but who leaves them unread is late.
pub(super) fn unread_alone(view: &View<'_>) -> Option<f64> {
    match unread(view, SUBJECT, End::Server) {
        None => unread(view, GENERATOR, End::Client),
        Some(_) => None,
    }
}

pub(super) fn listener<'a>(
    machine: &Machine<'a>,
    snapshot: &'a QueueSnapshot,
) -> Option<&'a ListenerQueue> {
    let port = machine.port_of(SUBJECT, End::Server)?;
    snapshot.listeners.iter().find(|listener| listener.port == port)
}

/// The subject's listening sockets, snapshot by snapshot.
pub(super) fn listeners<'a>(view: &View<'a>) -> Vec<&'a ListenerQueue> {
    let Some(machine) = view.machine(SUBJECT) else {
        return Vec::new();
    };
    let snapshots = machine.snapshots().into_iter();
    snapshots.filter_map(|snapshot| listener(&machine, snapshot)).collect()
}

pub(super) fn backlog(view: &View<'_>) -> Option<f64> {
    Some(f64::from(listeners(view).last()?.backlog))
}

pub(super) fn listener_full(view: &View<'_>) -> Option<f64> {
    let listeners = listeners(view);
    let full = listeners.iter().filter(|listener| listener.full > 0).count();
    (!listeners.is_empty()).then(|| full as f64 / listeners.len() as f64)
}

/// The most connections that waited to be accepted, of all that may: a queue is empty in most moments,
/// and is filled by the fullest.
pub(super) fn accept_queue(view: &View<'_>) -> Option<f64> {
    let of = |listener: &ListenerQueue| {
        let room = f64::from(listener.backlog) * f64::from(listener.sockets);
        (room > 0.0).then(|| f64::from(listener.waiting) / room)
    };
    listeners(view).into_iter().filter_map(of).reduce(f64::max)
}

/// A counter of the namespaces of the subject and of the generators, once where it is the same one.
pub(super) fn both(view: &View<'_>, names: &[&str]) -> Option<f64> {
    let apart = |machine: &Machine<'_>| {
        let sample = machine.samples().into_iter().next();
        let of_both = sample.and_then(|sample| namespace(sample, GENERATOR));
        !of_both.is_some_and(|space| space.roles.iter().any(|role| role == SUBJECT))
    };
    let generators = view.machines(GENERATOR).into_iter().filter(apart);
    let generators = generators.filter_map(|machine| machine.counter(GENERATOR, names));
    view.counter(SUBJECT, names).into_iter().chain(generators).reduce(|sum, one| sum + one)
}

/// How fast a sum over the sockets of one end grew, per second, on all machines of a role; sockets that
/// closed make it smaller, so only growth between neighbouring snapshots counts.
pub(super) fn growth(
    view: &View<'_>,
    role: &str,
    end: End,
    figure: fn(&EndQueues) -> f64,
) -> Option<f64> {
    let of = |machine: Machine<'_>| {
        let ends = machine.ends_in_time(role, end);
        let (first, last) = (ends.first()?.0, ends.last()?.0);
        let steps = ends.windows(2).map(|pair| (figure(&pair[1].1) - figure(&pair[0].1)).max(0.0));
        (last > first).then(|| steps.sum::<f64>() / (last - first))
    };
    view.machines(role).into_iter().filter_map(of).reduce(|sum, one| sum + one)
}

/// Growth of a time in which sockets were held up, over the growth of the time they were busy.
pub(super) fn limited(view: &View<'_>, figure: fn(&EndQueues) -> f64) -> Option<f64> {
    let of = |figure| growth(view, SUBJECT, End::Server, figure);
    let busy = of(|ends| ends.busy_us as f64)?;
    (busy > 0.0).then(|| of(figure).map(|held| held / busy))?
}

/// The ports towards one server that are taken, of all pairs of local address and port: of the
/// generators towards the subject, or of the subject towards its origin, whichever is more.
pub(super) fn ports_taken(view: &View<'_>) -> Option<f64> {
    let taken = |machine: &Machine<'_>, role: &str| {
        machine.of_ends(role, End::Client, |ends| Some(ends.states.values().sum::<u64>() as f64))
    };
    let sources = view.run.plan["sources"].as_array().map_or(1, |all| all.len().max(1)) as f64;
    let generators =
        view.machines(GENERATOR).into_iter().enumerate().filter_map(|(at, machine)| {
            // The facts of a record are of the machine whose generator is its first. Settings are the
            // subject's wherever there is one.
            let by_settings = || match machine.seen.role_at(SUBJECT) {
                None => ports_by_settings(&machine),
                Some(_) => None,
            };
            let facts = view.run.host.limits.port_range.map(ports_in);
            let ports = if at == 0 { facts.or_else(by_settings) } else { by_settings().or(facts) };
            Some(taken(&machine, GENERATOR)? / (ports? * sources))
        });
    generators.chain(subject_ports_taken(view)).reduce(f64::max)
}

/// Local ports of a proxy that are taken towards its origins, from which on new connections fail.
pub(super) const UPSTREAM_PORTS_TAKEN: f64 = 0.9;

/// The local ports of the subject that are taken towards one origin, of those that it may take.
pub(super) fn subject_ports_taken(view: &View<'_>) -> Option<f64> {
    let machine = view.machine(SUBJECT)?;
    let of = |snapshot: &QueueSnapshot| {
        let ports = machine.seen.local_ports(SUBJECT, snapshot)?;
        (ports.available > 0).then(|| ports.taken as f64 / ports.available as f64)
    };
    median(machine.snapshots().into_iter().filter_map(of).collect())
}

fn ports_in((first, last): (u16, u16)) -> f64 {
    (f64::from(last) - f64::from(first) + 1.0).max(1.0)
}

fn ports_by_settings(machine: &Machine<'_>) -> Option<f64> {
    let text = machine.seen.settings.get("net.ipv4.ip_local_port_range")?;
    let mut ports = text.split_ascii_whitespace().map_while(|port| port.parse().ok());
    Some(ports_in((ports.next()?, ports.next()?)))
}

/// The least share of an open loop's offered load whose answer makes it carried: who searches for the
/// edge counts it alike.
pub(in crate::diagnosis) const CARRIED_MIN: f64 = 0.99;

/// The share of the load that was answered in time; none of it where responses came only by waiting
/// longer and longer, or too late for the objectives. `None` of a closed loop without think time, which
/// asks for whatever it gets.
pub(in crate::diagnosis) fn carried(view: &View<'_>) -> Option<f64> {
    let run = view.run;
    let in_time = run.totals.dropped == 0 && run.objectives.iter().all(|objective| objective.met);
    let thinks = run.plan["pace"]["think_ns"].as_u64().is_some_and(|ns| ns > 0);
    let share = match answered_well(view) {
        Some(answered) => match line_stands(&run.intervals)? {
            true => 0.0,
            false => answered,
        },
        // Clients that think ask for more as soon as responses come faster: X(N) = N / (R + Z), so what
        // they wait beyond R(1) is load that was not carried.
        None if thinks => {
            let share = super::queueing::cycle_share(view)?;
            if share >= CYCLE_CARRIED_MIN { 1.0 } else { share }
        }
        None => return None,
    };
    Some(if in_time { share } else { 0.0 })
}

/// Clients that think and get this share of the rate that they would have without queueing were not held
/// up: a little waiting is part of any load.
const CYCLE_CARRIED_MIN: f64 = 0.9;

/// The share of an open loop's requests that got a good response; `None` of a closed loop.
pub(super) fn answered_well(view: &View<'_>) -> Option<f64> {
    let rates = &view.run.rates;
    rates.offered_per_s?;
    let good = view.goodput() / rates.responses_per_s.max(1e-9);
    Some(rates.answered()? * good.min(1.0))
}

/// Whether requests waited for a connection in most seconds, or ever more were in flight: the load was
/// then not carried, but put off. `None` of too few seconds to tell.
fn line_stands(intervals: &[Interval]) -> Option<bool> {
    /// So many more in flight at the end than at the beginning are chance.
    const CHANCE: f64 = 2.0;
    let measured: Vec<&Interval> = intervals.iter().filter(|second| second.measured).collect();
    let third = measured.len() / 3;
    let typical = |part: &[&Interval], figure: fn(&Interval) -> u64| {
        median(part.iter().map(|second| figure(second) as f64).collect())
    };
    let last = &measured[measured.len() - third..];
    let before = typical(&measured[..third], |second| second.in_flight)?;
    let after = typical(last, |second| second.in_flight)?;
    let waits = typical(&measured, |second| second.waiting)? > 0.0
        || typical(last, |second| second.waiting)? > 0.0;
    Some(waits || after > 2.0 * before + CHANCE)
}

/// Requests that took a retransmission's time.
pub(super) fn retransmission_mode(view: &View<'_>) -> Option<f64> {
    Some(fingerprints::share_between(&view.last_byte, 195_000_000, 700_000_000))
}

/// Memory of the subject that cannot be given back by forgetting files, of its group's bound.
pub(super) fn memory_used(role: &RoleUse) -> Option<f64> {
    let group = role.cgroup.as_ref()?;
    let own = role.proportional_bytes.or(role.resident_bytes)?;
    // Pages that processes share are charged once.
    let used = group.memory_bytes.map_or(own, |charged| own.min(charged));
    Some(used as f64 / (group.memory_max_bytes? as f64).max(1.0))
}

/// Bytes that the subject sent to a disk, of its group's bound.
pub(super) fn disk_used(role: &RoleUse) -> Option<f64> {
    let most = role.cgroup.as_ref()?.disk_write_max_bytes_per_s?;
    Some(role.disk_write_bytes_per_s? / most.max(1.0))
}

/// What the kernel's functions have as their module.
const KERNEL: &str = "[kernel]";

pub(super) fn contains_any(function: &str, parts: &[&str]) -> bool {
    let lower = function.to_ascii_lowercase();
    parts.iter().any(|part| lower.contains(part))
}

pub(super) fn is_allocation(one: &FunctionShare) -> bool {
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
    // Neither an interpreter's own pool of objects nor the kernel's memory (`__kmalloc`) is of the
    // allocator that could be exchanged.
    let is_pool = function.trim_start_matches('_').starts_with("Py");
    if is_pool || one.module == KERNEL {
        return false;
    }
    function == "free" || function == "__libc_free" || contains_any(function, NAMES)
}

pub(super) fn is_bulk_crypto(one: &FunctionShare) -> bool {
    contains_any(&one.function, &["aes", "ghash", "gcm", "chacha", "poly1305"])
}

pub(super) fn is_handshake(one: &FunctionShare) -> bool {
    const NAMES: &[&str] = &[
        "bn_mul", "bn_mod", "bn_sqr", "bn_exp", "ecdsa", "ecp_", "ec_gf", "x25519", "p256",
        "ed25519",
    ];
    // A traversal is no RSA.
    contains_any(&one.function, NAMES) || begins_word(&one.function, "rsa")
}

/// Whether a word of a function's name begins so: `rsaz_mul` and `crypto::rsa::sign` do with `rsa`.
fn begins_word(function: &str, start: &str) -> bool {
    let lower = function.to_ascii_lowercase();
    let mut words = lower.split(|letter: char| !letter.is_ascii_alphabetic());
    words.any(|word| word.starts_with(start))
}

pub(super) fn is_lock(one: &FunctionShare) -> bool {
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
