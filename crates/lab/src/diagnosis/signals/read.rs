//! How figures are read from a view, where it takes more than a line. Not for thresholds.

use record::observed::{
    CpuUse, End, EndQueues, LinkUse, ListenerQueue, QueueSnapshot, RoleUse, Sample,
};

use crate::diagnosis::view::{GENERATOR, ORIGIN, SUBJECT, View, relative_spread};

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
    let quota = view.of_role(GENERATOR, |role| role.cgroup.as_ref()?.quota_cpus);
    let of_quota = quota.and_then(|quota| Some(view.of_role(GENERATOR, used)? / quota.max(1e-9)));
    Some(of_quota.map_or(busy, |of_quota| busy.max(of_quota)))
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
    let seen = view.machine(SUBJECT)?;
    let role = seen.roles.iter().find(|role| role.name == SUBJECT)?;
    let by_affinity = f64::from(role.cpus_allowed.clamp(1, seen.cpus.max(1)));
    let quota = view.of_role(SUBJECT, |role| role.cgroup.as_ref()?.quota_cpus);
    Some(quota.map_or(by_affinity, |quota| quota.min(by_affinity)))
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

pub(super) fn listener<'a>(
    view: &View<'a>,
    snapshot: &'a QueueSnapshot,
) -> Option<&'a ListenerQueue> {
    let port = view.port_of(SUBJECT)?.port;
    snapshot.listeners.iter().find(|listener| listener.port == port)
}

pub(super) fn backlog(view: &View<'_>) -> Option<f64> {
    let last = view.snapshots(SUBJECT).into_iter().next_back()?;
    Some(f64::from(listener(view, last)?.backlog))
}

pub(super) fn listener_full(view: &View<'_>) -> Option<f64> {
    let full: Vec<bool> = view
        .snapshots(SUBJECT)
        .into_iter()
        .filter_map(|snapshot| Some(listener(view, snapshot)?.full > 0))
        .collect();
    (!full.is_empty()).then(|| full.iter().filter(|full| **full).count() as f64 / full.len() as f64)
}

/// A counter of the namespaces of the subject and of the generator, once where it is the same one.
pub(super) fn both(view: &View<'_>, names: &[&str]) -> Option<f64> {
    let subject = view.counter(SUBJECT, names);
    let apart = view.samples(SUBJECT).first().is_some_and(|sample| {
        let mut spaces = sample.namespaces.iter();
        let of_subject = spaces.find(|space| space.roles.iter().any(|role| role == SUBJECT));
        of_subject.is_some_and(|space| !space.roles.iter().any(|role| role == GENERATOR))
    });
    match (subject, apart) {
        (Some(subject), true) => Some(subject + view.counter(GENERATOR, names).unwrap_or(0.0)),
        (subject, _) => subject.or_else(|| view.counter(GENERATOR, names)),
    }
}

pub(super) fn retransmitted(view: &View<'_>) -> Option<f64> {
    let sent = both(view, &["Tcp.OutSegs"])?;
    (sent > 0.0).then(|| both(view, &["Tcp.RetransSegs"]).map(|again| again / sent))?
}

/// How fast a sum over the sockets of one end grew, per second; sockets that closed make it smaller,
/// so only growth between neighbouring snapshots counts.
pub(super) fn growth(view: &View<'_>, end: End, figure: fn(&EndQueues) -> f64) -> Option<f64> {
    let ends = view.ends_in_time(SUBJECT, end);
    let (first, last) = (ends.first()?.0, ends.last()?.0);
    let steps = ends.windows(2).map(|pair| (figure(pair[1].1) - figure(pair[0].1)).max(0.0));
    (last > first).then(|| steps.sum::<f64>() / (last - first))
}

/// Growth of a time in which sockets were held up, over the growth of the time they were busy.
pub(super) fn limited(view: &View<'_>, figure: fn(&EndQueues) -> f64) -> Option<f64> {
    let busy = growth(view, End::Server, |ends| ends.busy_us as f64)?;
    (busy > 0.0).then(|| growth(view, End::Server, figure).map(|held| held / busy))?
}

/// Loopback is no link: it has no rate.
pub(super) fn links(sample: &Sample) -> impl Iterator<Item = &LinkUse> {
    sample.links.iter().filter(|link| link.name != "lo")
}

pub(super) fn link_share(view: &View<'_>) -> Option<f64> {
    view.of_samples(SUBJECT, |sample| {
        let of = |link: &LinkUse| {
            let shaped = link.queues.iter().filter_map(|queue| queue.rate_bits_per_s);
            let sending = shaped.chain(link.speed_bits_per_s).reduce(f64::min);
            let sent = sending.map(|rate| link.tx_bytes_per_s * 8.0 / rate.max(1.0));
            let received =
                link.speed_bits_per_s.map(|rate| link.rx_bytes_per_s * 8.0 / rate.max(1.0));
            sent.into_iter().chain(received).reduce(f64::max)
        };
        links(sample).filter_map(of).reduce(f64::max)
    })
}

pub(super) fn busiest_link(view: &View<'_>, figure: fn(&LinkUse) -> f64) -> Option<f64> {
    view.of_samples(SUBJECT, |sample| links(sample).map(figure).reduce(f64::max))
}

pub(super) fn link_figure(view: &View<'_>, figure: fn(&LinkUse) -> Option<f64>) -> Option<f64> {
    let of = |sample: &&Sample| links(sample).filter_map(figure).reduce(f64::max);
    let values: Vec<f64> = view.samples(SUBJECT).iter().filter_map(of).collect();
    relative_spread(&values)
}

pub(super) fn ports_taken(view: &View<'_>) -> Option<f64> {
    let (first, last) = view.run.host.limits.port_range?;
    let ports = f64::from(last) - f64::from(first) + 1.0;
    let taken = |role: &str| {
        view.of_ends(role, End::Client, |ends| Some(ends.states.values().sum::<u64>() as f64))
    };
    let most = taken(SUBJECT).into_iter().chain(taken(ORIGIN)).reduce(f64::max)?;
    Some(most / ports.max(1.0))
}

pub(super) fn contains_any(function: &str, parts: &[&str]) -> bool {
    let lower = function.to_ascii_lowercase();
    parts.iter().any(|part| lower.contains(part))
}

pub(super) fn is_allocation(function: &str) -> bool {
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
    // An interpreter's own pool of objects is not the allocator that could be exchanged.
    let is_pool = function.trim_start_matches('_').starts_with("Py");
    if is_pool {
        return false;
    }
    function == "free" || function == "__libc_free" || contains_any(function, NAMES)
}

pub(super) fn is_bulk_crypto(function: &str) -> bool {
    contains_any(function, &["aes", "ghash", "gcm", "chacha", "poly1305"])
}

pub(super) fn is_handshake(function: &str) -> bool {
    const NAMES: &[&str] = &[
        "rsa", "bn_mul", "bn_mod", "bn_sqr", "bn_exp", "ecdsa", "ecp_", "ec_gf", "x25519", "p256",
        "ed25519",
    ];
    contains_any(function, NAMES)
}

pub(super) fn is_lock(function: &str) -> bool {
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
    contains_any(function, NAMES)
}
