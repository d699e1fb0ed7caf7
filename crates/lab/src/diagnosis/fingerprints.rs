//! Marks in the latencies that have one well-known cause, as a table: where requests gather at a
//! time that no program chooses. A fingerprint is a hint beside the evidence, never a proof alone:
//! an origin may really take 40 ms.
//!
//! Source: the kernel's constants (include/net/tcp.h: TCP_DELACK_MIN, TCP_RTO_MIN, TCP_TIMEOUT_INIT)
//! and what was measured with each cause induced.

use record::histogram::Latencies;
use record::observed::RoleUse;
use record::units::format_duration_ns;

use super::signals::{self, Signal};
use super::view::View;

/// Which latencies a mark is looked for in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Until the connection stood.
    Connect,
    /// From the send to the last byte.
    LastByte,
}

/// One mark.
#[derive(Debug)]
pub struct Fingerprint {
    /// Its name.
    pub name: &'static str,
    /// Where it is looked for.
    pub phase: Phase,
    /// From here, in ns.
    pub from_ns: u64,
    /// To here.
    pub to_ns: u64,
    /// What makes it.
    pub cause: &'static str,
    /// What has to be seen beside it, and how much of it: for times that much else takes too.
    pub beside: Option<(&'static Signal, f64)>,
}

const MS: u64 = 1_000_000;

/// A mark that is looked for in the time to the last byte.
const fn mark(name: &'static str, from_ms: u64, to_ms: u64, cause: &'static str) -> Fingerprint {
    let (phase, from_ns, to_ns) = (Phase::LastByte, from_ms * MS, to_ms * MS);
    Fingerprint { name, phase, from_ns, to_ns, cause, beside: None }
}

/// The end of a time slice of others: a kernel with 250 ticks a second looks each 4 ms whose turn it is.
/// Many programs take as long, so it is one only where the subject waited for a processor.
const fn slices(name: &'static str, count: u64, cause: &'static str) -> Fingerprint {
    Fingerprint {
        name,
        phase: Phase::LastByte,
        from_ns: count * 4 * MS - MS / 5,
        to_ns: count * 4 * MS + MS / 2,
        cause,
        beside: Some((&signals::SUBJECT_WAIT, 0.1)),
    }
}

const fn of_connect(fingerprint: Fingerprint) -> Fingerprint {
    Fingerprint { phase: Phase::Connect, ..fingerprint }
}

/// All marks.
pub static FINGERPRINTS: &[Fingerprint] = &[
    slices("time_slice", 1, "a time slice (4 ms) of another thread on the subject's processor"),
    slices("time_slice_twice", 2, "two time slices of others on the subject's processor"),
    mark("delayed_ack", 39, 48, "a delayed acknowledgement (40 ms) that a small write waits for"),
    mark(
        "retransmission",
        200,
        240,
        "a segment that was sent again after the least time-out (200 ms)",
    ),
    mark(
        "retransmission_twice",
        590,
        680,
        "a segment sent again after 200 ms and after 400 ms more",
    ),
    of_connect(mark(
        "syn_retry_1",
        990,
        1_080,
        "a connection request that was sent again after 1 s",
    )),
    of_connect(mark("syn_retry_2", 1_990, 2_120, "a connection request sent again a second time")),
    of_connect(mark("syn_retry_3", 2_990, 3_160, "a connection request sent again a third time")),
    of_connect(mark("syn_retry_4", 3_990, 4_200, "a connection request sent again a fourth time")),
    mark(
        "one_third_second",
        325,
        345,
        "a third of a second: a timer of a program, often a poll loop",
    ),
    mark("five_seconds", 4_950, 5_100, "5 s: the usual time-out of a queue or of a name look-up"),
];

/// Least share of the requests that a mark needs.
const SHARE_MIN: f64 = 0.002;
/// Fewer requests than this are no mark.
const COUNT_MIN: f64 = 5.0;
/// More than this is no tail: it is how long requests take. Only a stall of each request does that, and
/// that has a verdict of its own.
const SHARE_MAX: f64 = 0.5;
/// How much denser than its surroundings it has to be.
const DENSITY_RATIO_MIN: f64 = 3.0;

/// Share of the latencies from `from_ns` to `to_ns`.
pub(super) fn share_between(latencies: &Latencies, from_ns: u64, to_ns: u64) -> f64 {
    if latencies.is_empty() {
        return 0.0;
    }
    (latencies.share_within(to_ns) - latencies.share_within(from_ns)).max(0.0)
}

/// The share of the requests that gather between two times, if they do: against as much time on
/// either side.
pub(super) fn gathered(latencies: &Latencies, from_ns: u64, to_ns: u64) -> Option<f64> {
    let share = share_between(latencies, from_ns, to_ns);
    let width = to_ns - from_ns;
    let below = share_between(latencies, from_ns.saturating_sub(width), from_ns);
    let above = share_between(latencies, to_ns, to_ns + width);
    let around = below.max(above).max(1e-9);
    let enough = share >= SHARE_MIN && share * latencies.count() as f64 >= COUNT_MIN;
    (enough && share / around >= DENSITY_RATIO_MIN).then_some(share)
}

/// The marks in a record, in words.
pub(super) fn found(view: &View<'_>) -> Vec<String> {
    let mut marks: Vec<String> = FINGERPRINTS
        .iter()
        .filter_map(|mark| {
            let seen = |(signal, least): (&Signal, f64)| (signal.read)(view) >= Some(least);
            if !mark.beside.is_none_or(seen) {
                return None;
            }
            let latencies = match mark.phase {
                Phase::Connect => &view.connect,
                Phase::LastByte => &view.last_byte,
            };
            let share = gathered(latencies, mark.from_ns, mark.to_ns)?;
            (share <= SHARE_MAX)
                .then(|| words(mark.name, share, mark.from_ns, mark.to_ns, mark.cause))
        })
        .collect();
    if let Some((from_ns, to_ns)) = quota_pause(view)
        && let Some(share) = gathered(&view.last_byte, from_ns, to_ns)
    {
        let cause = "a processor quota: the rest of its period, in which nothing may run";
        marks.push(words("quota_period", share, from_ns, to_ns, cause));
    }
    marks
}

/// How many threads work side by side, those that work less than the busiest counted as a part.
fn threads_at_work(role: &RoleUse) -> Option<f64> {
    let busiest = role.threads.iter().map(|thread| thread.busy).reduce(f64::max)?;
    let all: f64 = role.threads.iter().map(|thread| thread.busy).sum();
    (busiest > 0.0).then(|| all / busiest)
}

/// Where a quota's pause shows, a fifth to either side: what is left of its period when the threads that
/// work have used it up side by side.
pub(super) fn quota_pause(view: &View<'_>) -> Option<(u64, u64)> {
    let role = super::view::SUBJECT;
    let quota = view.of_role(role, |role| role.cgroup.as_ref()?.quota_cpus)?;
    let period_s = view.of_role(role, |role| role.cgroup.as_ref()?.period_s)?;
    let threads = view.of_role(role, threads_at_work)?.min(signals::by_affinity(view)?);
    let pause_ns = period_s * (1.0 - quota / threads).max(0.0) * 1e9;
    (pause_ns >= MS as f64).then_some(((pause_ns * 0.8) as u64, (pause_ns * 1.2) as u64))
}

fn words(name: &str, share: f64, from_ns: u64, to_ns: u64, cause: &str) -> String {
    format!(
        "{name}: {:.1} % of the requests took {} to {}: {cause}",
        share * 100.0,
        format_duration_ns(from_ns),
        format_duration_ns(to_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(of: &[(u64, usize)]) -> Latencies {
        let mut latencies = Latencies::new();
        for &(ns, count) in of {
            (0..count).for_each(|_| latencies.record(ns));
        }
        latencies
    }

    #[test]
    fn requests_that_gather_are_a_mark_and_a_slope_is_none() {
        let stalled = latencies(&[(MS, 900), (44 * MS, 100)]);
        assert!((gathered(&stalled, 39 * MS, 48 * MS).unwrap() - 0.1).abs() < 1e-6);
        let slope = latencies(&(20..80).map(|ms| (ms * MS, 20)).collect::<Vec<_>>());
        assert_eq!(gathered(&slope, 39 * MS, 48 * MS), None);
        let few = latencies(&[(MS, 1_000), (44 * MS, 4)]);
        assert_eq!(gathered(&few, 39 * MS, 48 * MS), None);
        assert_eq!(gathered(&Latencies::new(), 39 * MS, 48 * MS), None);
    }

    #[test]
    fn the_table_is_in_order() {
        for mark in FINGERPRINTS {
            assert!(mark.from_ns < mark.to_ns && !mark.cause.is_empty(), "{}", mark.name);
        }
    }
}
