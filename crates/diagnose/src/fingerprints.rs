//! Table of latency patterns with one well-known cause: requests that cluster at a time that no
//! program chooses. A fingerprint is a hint besides the evidence, never a proof alone: an origin
//! may really take 40 ms.
//!
//! Source: the kernel's constants (include/net/tcp.h: TCP_DELACK_MIN, TCP_RTO_MIN,
//! TCP_TIMEOUT_INIT) and measurements with each cause induced.

use record::histogram::LatencyHistogram;
use record::observed::RoleUse;
use record::units::format_duration_ns;

use super::run_view::RunView;
use super::signals::{self, Signal};

/// Latencies in which a fingerprint is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyPhase {
    /// Time to the established connection.
    Connect,
    /// Time from the send to the last byte.
    LastByte,
}

/// Latency pattern with a known cause.
#[derive(Debug)]
pub struct Fingerprint {
    /// Name of the pattern.
    pub name: &'static str,
    /// Latencies in which it is searched.
    pub phase: LatencyPhase,
    /// Start of the range, in ns.
    pub from_ns: u64,
    /// End of the range, in ns.
    pub to_ns: u64,
    /// Description of the cause.
    pub cause: &'static str,
    /// Additional signal and its minimum, for latencies that have many other causes.
    pub extra_signal: Option<(&'static Signal, f64)>,
}

const MS: u64 = 1_000_000;

/// Returns a fingerprint in the time to the last byte.
const fn last_byte_fingerprint(
    name: &'static str,
    from_ms: u64,
    to_ms: u64,
    cause: &'static str,
) -> Fingerprint {
    let (phase, from_ns, to_ns) = (LatencyPhase::LastByte, from_ms * MS, to_ms * MS);
    Fingerprint { name, phase, from_ns, to_ns, cause, extra_signal: None }
}

/// Returns the fingerprint of the end of another thread's time slice: a kernel with 250 ticks per
/// second reschedules every 4 ms. Many programs take as long, so it counts only if the subject
/// waited for a CPU.
const fn time_slice_fingerprint(name: &'static str, count: u64, cause: &'static str) -> Fingerprint {
    Fingerprint {
        name,
        phase: LatencyPhase::LastByte,
        from_ns: count * 4 * MS - MS / 5,
        to_ns: count * 4 * MS + MS / 2,
        cause,
        extra_signal: Some((&signals::SUBJECT_WAIT, 0.1)),
    }
}

const fn in_connect_time(fingerprint: Fingerprint) -> Fingerprint {
    Fingerprint { phase: LatencyPhase::Connect, ..fingerprint }
}

/// All fingerprints.
pub static FINGERPRINTS: &[Fingerprint] = &[
    time_slice_fingerprint("time_slice", 1, "a time slice (4 ms) of another thread on the subject's CPU"),
    time_slice_fingerprint("time_slice_twice", 2, "two time slices of other threads on the subject's CPU"),
    last_byte_fingerprint(
        "delayed_ack",
        39,
        48,
        "a small write that waits for a delayed acknowledgement (40 ms)",
    ),
    last_byte_fingerprint(
        "retransmission",
        200,
        240,
        "a segment that was retransmitted after the minimum timeout (200 ms)",
    ),
    last_byte_fingerprint(
        "retransmission_twice",
        590,
        680,
        "a segment that was retransmitted after 200 ms, and again 400 ms later",
    ),
    in_connect_time(last_byte_fingerprint(
        "syn_retry_1",
        990,
        1_080,
        "a SYN that was retransmitted after 1 s",
    )),
    in_connect_time(last_byte_fingerprint(
        "syn_retry_2",
        1_990,
        2_120,
        "a SYN that was retransmitted a second time",
    )),
    in_connect_time(last_byte_fingerprint(
        "syn_retry_3",
        2_990,
        3_160,
        "a SYN that was retransmitted a third time",
    )),
    in_connect_time(last_byte_fingerprint(
        "syn_retry_4",
        3_990,
        4_200,
        "a SYN that was retransmitted a fourth time",
    )),
    last_byte_fingerprint(
        "one_third_second",
        325,
        345,
        "a third of a second: a timer of a process, often of a poll loop",
    ),
    last_byte_fingerprint("five_seconds", 4_950, 5_100, "5 s: the usual timeout of a queue or a DNS query"),
];

/// Minimum fraction of the requests in a fingerprint.
const FRACTION_MIN: f64 = 0.002;
/// Minimum number of requests in a fingerprint.
const REQUESTS_MIN: f64 = 5.0;
/// Maximum fraction of the requests: more than this is not a tail but the usual latency. Only a
/// stall of each request causes that, and it has a verdict of its own.
const FRACTION_MAX: f64 = 0.5;
/// Minimum ratio of its density to that of its surroundings.
const DENSITY_RATIO_MIN: f64 = 3.0;

/// Returns the fraction of the latencies from `from_ns` to `to_ns`.
pub(super) fn fraction_between(latencies: &LatencyHistogram, from_ns: u64, to_ns: u64) -> f64 {
    if latencies.is_empty() {
        return 0.0;
    }
    (latencies.fraction_within(to_ns) - latencies.fraction_within(from_ns)).max(0.0)
}

/// Returns the fraction of the requests that cluster between two times, if they do, compared with
/// as much time on either side.
pub(super) fn clustered_fraction(latencies: &LatencyHistogram, from_ns: u64, to_ns: u64) -> Option<f64> {
    let fraction = fraction_between(latencies, from_ns, to_ns);
    let width = to_ns - from_ns;
    let below = fraction_between(latencies, from_ns.saturating_sub(width), from_ns);
    let above = fraction_between(latencies, to_ns, to_ns + width);
    let surrounding = below.max(above).max(1e-9);
    let is_enough = fraction >= FRACTION_MIN && fraction * latencies.count() as f64 >= REQUESTS_MIN;
    (is_enough && fraction / surrounding >= DENSITY_RATIO_MIN).then_some(fraction)
}

/// Returns the descriptions of the fingerprints in a record.
pub(super) fn find_fingerprints(view: &RunView<'_>) -> Vec<String> {
    let mut descriptions: Vec<String> = FINGERPRINTS
        .iter()
        .filter_map(|fingerprint| {
            let holds = |(signal, min): (&Signal, f64)| (signal.read)(view) >= Some(min);
            if !fingerprint.extra_signal.is_none_or(holds) {
                return None;
            }
            let latencies = match fingerprint.phase {
                LatencyPhase::Connect => &view.connect,
                LatencyPhase::LastByte => &view.last_byte,
            };
            let fraction = clustered_fraction(latencies, fingerprint.from_ns, fingerprint.to_ns)?;
            (fraction <= FRACTION_MAX).then(|| {
                describe(
                    fingerprint.name,
                    fraction,
                    fingerprint.from_ns,
                    fingerprint.to_ns,
                    fingerprint.cause,
                )
            })
        })
        .collect();
    if let Some((from_ns, to_ns)) = quota_pause_range_ns(view)
        && let Some(fraction) = clustered_fraction(&view.last_byte, from_ns, to_ns)
    {
        let cause = "a CPU quota: the rest of its period, in which no thread may run";
        descriptions.push(describe("quota_period", fraction, from_ns, to_ns, cause));
    }
    descriptions
}

/// Returns the number of threads that work in parallel; less busy threads count as a fraction of
/// the busiest.
fn parallel_threads(role: &RoleUse) -> Option<f64> {
    let busiest = role.threads.iter().map(|thread| thread.busy).reduce(f64::max)?;
    let all: f64 = role.threads.iter().map(|thread| thread.busy).sum();
    (busiest > 0.0).then(|| all / busiest)
}

/// Returns the latency range of a quota's pause, a fifth to either side: the rest of its period
/// after the parallel threads have used up the quota.
pub(super) fn quota_pause_range_ns(view: &RunView<'_>) -> Option<(u64, u64)> {
    let role = super::run_view::SUBJECT;
    let quota = view.role_median(role, |role| role.cgroup.as_ref()?.quota_cpus)?;
    let period_s = view.role_median(role, |role| role.cgroup.as_ref()?.period_s)?;
    let threads = view.role_median(role, parallel_threads)?.min(signals::cpus_by_affinity(view)?);
    let pause_ns = period_s * (1.0 - quota / threads).max(0.0) * 1e9;
    (pause_ns >= MS as f64).then_some(((pause_ns * 0.8) as u64, (pause_ns * 1.2) as u64))
}

fn describe(name: &str, fraction: f64, from_ns: u64, to_ns: u64, cause: &str) -> String {
    format!(
        "{name}: {:.1} % of the requests took {} to {}: {cause}",
        fraction * 100.0,
        format_duration_ns(from_ns),
        format_duration_ns(to_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(counts: &[(u64, usize)]) -> LatencyHistogram {
        let mut latencies = LatencyHistogram::new();
        for &(ns, count) in counts {
            (0..count).for_each(|_| latencies.record(ns));
        }
        latencies
    }

    #[test]
    fn clustered_requests_are_a_fingerprint_and_a_slope_is_not() {
        let stalled = latencies(&[(MS, 900), (44 * MS, 100)]);
        assert!((clustered_fraction(&stalled, 39 * MS, 48 * MS).unwrap() - 0.1).abs() < 1e-6);
        let slope = latencies(&(20..80).map(|ms| (ms * MS, 20)).collect::<Vec<_>>());
        assert_eq!(clustered_fraction(&slope, 39 * MS, 48 * MS), None);
        let few = latencies(&[(MS, 1_000), (44 * MS, 4)]);
        assert_eq!(clustered_fraction(&few, 39 * MS, 48 * MS), None);
        assert_eq!(clustered_fraction(&LatencyHistogram::new(), 39 * MS, 48 * MS), None);
    }

    #[test]
    fn the_table_is_in_order() {
        for fingerprint in FINGERPRINTS {
            assert!(
                fingerprint.from_ns < fingerprint.to_ns && !fingerprint.cause.is_empty(),
                "{}",
                fingerprint.name
            );
        }
    }
}
