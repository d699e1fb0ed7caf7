//! Table of latency patterns with one well-known cause: requests that cluster at a time that no
//! program chooses. A fingerprint is a hint besides the evidence, never a proof alone: an origin
//! may really take 40 ms.
//!
//! Source: the kernel's constants (include/net/tcp.h: TCP_DELACK_MIN, TCP_RTO_MIN,
//! TCP_TIMEOUT_INIT) and measurements with each cause induced.

use record::units::format_duration_ns;

use crate::run_view::RunView;
use crate::signals::{self, LatencyRange, Signal, quota_pause};

/// Latencies in which a fingerprint is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatencyPhase {
    /// Time to the established connection.
    Connect,
    /// Time from the send to the last byte.
    LastByte,
}

/// Latency pattern with a known cause.
#[derive(Debug)]
pub(crate) struct Fingerprint {
    pub(crate) name: &'static str,
    pub(crate) phase: LatencyPhase,
    /// Times of the pattern.
    pub(crate) range: LatencyRange,
    pub(crate) cause: &'static str,
    /// Additional signal and its minimum, for latencies that have many other causes.
    pub(crate) extra_signal: Option<(&'static Signal, f64)>,
}

const MS: u64 = 1_000_000;

/// Returns a fingerprint in the time to the last byte.
const fn last_byte_fingerprint(
    name: &'static str,
    from_ms: u64,
    to_ms: u64,
    cause: &'static str,
) -> Fingerprint {
    let range = LatencyRange { from_ns: from_ms * MS, to_ns: to_ms * MS };
    Fingerprint { name, phase: LatencyPhase::LastByte, range, cause, extra_signal: None }
}

/// Returns the fingerprint of the end of another thread's time slice: a kernel with 250 ticks per
/// second reschedules every 4 ms. Many programs take as long, so it counts only if the subject
/// waited for a CPU.
const fn time_slice_fingerprint(name: &'static str, count: u64, cause: &'static str) -> Fingerprint {
    Fingerprint {
        name,
        phase: LatencyPhase::LastByte,
        range: LatencyRange { from_ns: count * 4 * MS - MS / 5, to_ns: count * 4 * MS + MS / 2 },
        cause,
        extra_signal: Some((&signals::SUBJECT_WAIT, 0.1)),
    }
}

const fn in_connect_time(fingerprint: Fingerprint) -> Fingerprint {
    Fingerprint { phase: LatencyPhase::Connect, ..fingerprint }
}

pub(crate) static FINGERPRINTS: &[Fingerprint] = &[
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

/// Maximum fraction of the requests: more than this is not a tail but the usual latency. Only a
/// stall of each request causes that, and it has a verdict of its own.
const FRACTION_MAX: f64 = 0.5;
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
            let fraction = fingerprint.range.clustered_fraction_of(latencies)?;
            (fraction <= FRACTION_MAX)
                .then(|| describe(fingerprint.name, fraction, fingerprint.range, fingerprint.cause))
        })
        .collect();
    if let Some(range) = quota_pause(view)
        && let Some(fraction) = range.clustered_fraction_of(&view.last_byte)
    {
        let cause = "a CPU quota: the rest of its period, in which no thread may run";
        descriptions.push(describe("quota_period", fraction, range, cause));
    }
    descriptions
}

fn describe(name: &str, fraction: f64, range: LatencyRange, cause: &str) -> String {
    format!(
        "{name}: {:.1} % of the requests took {} to {}: {cause}",
        fraction * 100.0,
        format_duration_ns(range.from_ns),
        format_duration_ns(range.to_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for Fingerprint { name, range, cause, .. } in FINGERPRINTS {
            assert!(range.from_ns < range.to_ns && !cause.is_empty(), "{name}");
        }
    }
}
