//! Signals of CPU time and of quotas. Thresholds of verdicts are elsewhere.

use super::compute::*;
use super::latency_range;
use super::queueing;
use super::resources::FUTEXES;
use super::short_lived::{short_lived_cpus, system_fraction, user_fraction};
use super::signal::{Signal, SignalFamily};
use crate::figures as f;
use crate::run_view::RunView;
use crate::unit::Unit;
use crate::window::{ORIGIN, SUBJECT};

/// Minimum used fraction of the subject's CPUs for contention. A subject below it waits because its
/// threads wake all at once, as those that pass on a lock do, and not because it has too few CPUs.
const CONTENTION_USED_MIN: f64 = 0.8;
/// The same for a subject with few futex calls, whose threads pass on no lock.
const CONTENTION_USED_MIN_WITHOUT_LOCKS: f64 = 0.7;
/// Maximum number of futex calls per response of such a subject.
const FEW_FUTEXES: f64 = 0.1;

/// Use of the CPUs from which a subject is full, whatever its threads do.
const FULL_WITHOUT_THREADS: f64 = 0.85;

medians! {
    ALL_CPUS: Cpu, "all CPUs, without stolen time", sample_median(SUBJECT, f::ALL_CPUS);
    ORIGIN_THREAD: Cpu, "busiest origin thread, of a core", role_median(ORIGIN, f::BUSIEST_THREAD);
    IDLE_CPUS: Cpu, "idle CPUs", sample_median(SUBJECT, f::IDLE_CPUS);
    BUSIEST_CPU: Cpu, "busiest CPU", sample_median(SUBJECT, f::BUSIEST_CPU);
    STEAL: Cpu, "time that the hypervisor gave to other virtual machines", sample_median(SUBJECT, f::STEAL);
    SUBJECT_WAIT: Scheduler, "time that the subject waited for a CPU over its running time", role_median(SUBJECT, f::WAIT_RATIO);
    SUBJECT_DEMAND: Cpu, "CPUs that the subject used or waited for", role_median(SUBJECT, f::CPU_DEMAND);
    SUBJECT_QUOTA: Quota, "quota periods in which the subject was throttled", role_median(SUBJECT, f::THROTTLED_PERIODS);
    SUBJECT_THROTTLED: Quota, "CPUs that the quota withheld from the subject", role_median(SUBJECT, f::THROTTLED);
    SUBJECT_OVER_QUOTA: Cpu, "subject's CPU time, of its quota", role_median(SUBJECT, f::QUOTA_USED);
}

/// Returns the CPUs that the subject may use and does not.
fn unused_cpus(view: &RunView<'_>) -> Option<f64> {
    Some((allowed_cpus(view)? - cpus(view, SUBJECT)?).max(0.0))
}

/// Returns the CPUs that others took of those that the subject may use: at most what it left of them. The rest of
/// theirs was on other CPUs.
fn cpus_of_others(view: &RunView<'_>) -> Option<f64> {
    let others = (FOREIGN_CPUS.read)(view)? + stolen_cpus(view)?;
    Some(others.clamp(0.0, unused_cpus(view)?))
}

signals! {
    SUBJECT_CPUS: Cpu, Cpus, "CPUs used by the subject", "PID/stat utime + stime, without threads that spin",
        |view| Some((cpus(view, SUBJECT)? - spinning_cpus(view)).max(0.0));
    SUBJECT_USER: Cpu, Fraction, "user space, of the subject's CPU time",
        "PID/stat; /proc/stat if its processes end too soon", user_fraction;
    SUBJECT_SYSTEM: Cpu, Fraction, "kernel, of the subject's CPU time",
        "PID/stat; /proc/stat if its processes end too soon", system_fraction;
    SUBJECT_SATURATION: Cpu, Fraction, "subject's CPU time, of the available CPU time",
        "PID/stat, its affinity and quota, idle time of the machine", subject_saturation;
    SUBJECT_OVER_ALLOWED: Cpu, Fraction, "subject's CPU time, of the CPUs it may use",
        "PID/stat, its affinity", |view| Some(cpus(view, SUBJECT)? / allowed_cpus_by_affinity(view)?);
    SUBJECT_THREADS: Scheduler, Count, "subject threads that used CPU time",
        "PID/task; all threads if most of them end between two samples", subject_threads;
    SUBJECT_THREAD: Cpu, Fraction, "busiest subject thread, of a core", "schedstat of its threads",
        subject_thread;
    SUBJECT_AT_LIMIT: Cpu, Fraction, "subject's CPU time or busiest thread, of the maximum",
        "PID/stat, schedstat", |view| {
            let all = subject_saturation(view)?;
            match subject_thread(view) {
                Some(thread) => Some(all.max(thread)),
                // A full thread may be among those that were not observed.
                None => Some(all).filter(|all| *all >= FULL_WITHOUT_THREADS),
            }
        };
    SUBJECT_IMBALANCE: Cpu, Ratio, "busiest subject thread over the mean use of the CPUs",
        "schedstat of its threads, its affinity", |view| {
            let mean = cpus(view, SUBJECT)? / allowed_cpus(view)?.max(1.0);
            // CPU time below the clock's resolution gives no ratio.
            (mean >= CPUS_RESOLVED_MIN).then_some(subject_thread(view)? / mean)
        };
    ORIGIN_AT_LIMIT: Cpu, Fraction, "CPU time of the origins or their busiest thread, of the maximum",
        "PID/stat, schedstat, quota", queueing::origin_utilization;
    ORIGIN_OVER_SUBJECT: Cpu, Ratio, "CPU time of the origins over the subject's", "PID/stat",
        |view| Some(cpus(view, ORIGIN)? / cpus(view, SUBJECT)?.max(1e-3));
    SINGLE_THREAD_FRACTION: Cpu, Fraction, "busiest subject thread, of the subject's CPU time", "schedstat",
        |view| {
            let all = cpus(view, SUBJECT).filter(|all| *all > 0.05)?;
            Some((subject_thread(view)? / all).min(1.0))
        };
    SOFTIRQ_MAX: Cpu, Fraction, "softirq time on the CPU with the most of it",
        "/proc/stat", |view| view.sample_median(SUBJECT, |sample| softirq_max_and_next(sample).map(|two| two.0));
    SOFTIRQ_OTHERS_MAX: Cpu, Fraction, "maximum softirq time on the other CPUs",
        "/proc/stat", |view| view.sample_median(SUBJECT, |sample| softirq_max_and_next(sample).map(|two| two.1));
    NET_RX_RATIO: Counters, Ratio, "NET_RX softirqs of one CPU over the next CPU's", "/proc/softirqs",
        |view| view.sample_median(SUBJECT, |sample| {
            let mut rates: Vec<f64> = sample.cpus.iter().map(|cpu| cpu.net_rx_per_s).collect();
            rates.sort_by(f64::total_cmp);
            let (max, others) = rates.split_last()?;
            Some(max / others.last()?.max(1.0))
        });
    STEERED: Counters, PerSecond, "packets steered to another CPU",
        "softnet_stat column 10",
        |view| view.sample_median(SUBJECT, |sample| f::sum_over_cpus(sample, |cpu| cpu.received_rps_per_s));
    TIME_SQUEEZES: Counters, PerSecond, "softirq runs that used up their budget", "softnet_stat column 3",
        |view| view.sample_median(SUBJECT, |sample| f::sum_over_cpus(sample, |cpu| cpu.time_squeezes_per_s));
    BACKLOG_DROPS: Counters, PerSecond, "packets dropped from a CPU's backlog", "softnet_stat column 2",
        |view| view.sample_median(SUBJECT, |sample| f::sum_over_cpus(sample, |cpu| cpu.backlog_drops_per_s));
    FOREIGN_CPUS: Cpu, Cpus, "CPUs used by other processes",
        "/proc/stat minus all roles of the run on the same kernel",
        |view| {
            let foreign = view.foreign_median(SUBJECT, |_, foreign| Some(foreign))?;
            Some(foreign - short_lived_cpus(view).unwrap_or(0.0))
        };
    TAKEN_BY_OTHERS: Cpu, Ratio, "CPUs used by others over the CPUs that the subject lacked",
        "/proc/stat minus all roles of the run on the same kernel; steal; schedstat run_delay", |view| {
            let waited = view.role_median(SUBJECT, f::WAITING.read)?;
            // Threads that wait for one another's CPU lack no more than the subject does not get.
            let lacked = unused_cpus(view)?.min(waited).max(0.05);
            (waited > 0.0).then_some(cpus_of_others(view)? / lacked)
        };
    LOST_TO_OTHERS: Cpu, Fraction, "CPU time lost to others, of what the subject used and lost",
        "/proc/stat minus all roles of the run on the same kernel; steal; its affinity and idle CPUs; schedstat run_delay",
        |view| {
            let used = cpus(view, SUBJECT)?;
            let idle = view.sample_median(SUBJECT, f::IDLE_CPUS.read).unwrap_or(0.0);
            let elsewhere = view.sample_median(SUBJECT, |sample| Some(sample.cpus.len() as f64))?
                - allowed_cpus_by_affinity(view)?;
            // Idle CPUs were there to use, but for those that it may not use.
            let not_idle = (unused_cpus(view)? - (idle - elsewhere).max(0.0)).max(0.0);
            let lost = cpus_of_others(view)?.min(not_idle).min(view.role_median(SUBJECT, f::WAITING.read)?);
            Some(lost / (used + lost).max(1e-9))
        };
    PART_OF_OTHERS: Cpu, Fraction, "CPU time that others took, of the CPUs that the subject may use",
        "/proc/stat minus all roles of the run on the same kernel; steal; its affinity and quota",
        |view| Some(cpus_of_others(view)? / allowed_cpus(view)?.max(1e-9));
    STOLEN_OF_TAKEN: Cpu, Fraction, "CPU time that the hypervisor took, of the time taken by others",
        "/proc/stat steal, and /proc/stat minus all roles of the run on the same kernel", |view| {
            let stolen = stolen_cpus(view)?;
            let taken = stolen + (FOREIGN_CPUS.read)(view)?.max(0.0);
            (taken > 0.0).then_some(stolen / taken)
        };
    VOLUNTARY_SWITCHES: Scheduler, PerResponse, "voluntary context switches of the subject per response",
        "PID/task/*/status", |view| {
            let switches = view.role_median(SUBJECT, f::VOLUNTARY_SWITCHES.read)?;
            Some(switches / responses_per_s(view)?)
        };
    SUBJECT_CONTENTION: Scheduler, Ratio,
        "CPUs that the subject used or waited for over its allowed CPUs",
        "schedstat of its threads, affinity and quota; only if it used at least 80 % of the available CPU time, or 70 % \
         with few futex calls",
        |view| {
            let min = match (FUTEXES.read)(view) {
                Some(calls) if calls <= FEW_FUTEXES => CONTENTION_USED_MIN_WITHOUT_LOCKS,
                _ => CONTENTION_USED_MIN,
            };
            subject_saturation(view).filter(|fraction| *fraction >= min)?;
            Some((SUBJECT_DEMAND.read)(view)? / allowed_cpus(view)?.max(1e-9))
        };
    QUOTA_MODE: Latency, Fraction, "requests that waited for the rest of a quota's period",
        "the latency histogram", |view| {
            Some(latency_range::quota_pause(view)?.fraction_of(&view.last_byte))
        };
}
