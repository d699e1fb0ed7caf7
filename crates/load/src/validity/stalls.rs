//! The rule `generator_stalled`: times in which the generator did not run, against the window and
//! against the requests that have them in their latency.

use record::units::{MILLISECOND_NS, count_of, format_duration_ns};
use record::validity::Verdict;

use super::{Evidence, Finding, percent};

/// Stalled shares of the window: suspect, and invalid. A closed loop's rate is too low by as much.
const TIME_SHARES: (f64, f64) = (0.01, 0.05);
/// Beyond this share of the requests p99 is one of theirs.
const AFFECTED_SHARE: f64 = 0.01;
/// A stall of this length is no chance of scheduling: then p99.9 counts too.
const LONG_NS: u64 = 100 * MILLISECOND_NS;
const AFFECTED_SHARE_OF_LONG: f64 = 0.001;

pub(super) fn generator_stalled(evidence: &Evidence<'_>) -> Finding {
    let measured = evidence.measured;
    let stalls = &measured.counters.stalls;
    if stalls.count == 0 {
        return None;
    }
    let threads_s = (measured.load_s - measured.window_s.0) * measured.plan.threads as f64;
    let time_share = stalls.total_ns as f64 / 1e9 / threads_s.max(1e-9);
    let affected_share = stalls.affected() as f64 / measured.counters.requests.max(1) as f64;
    let median_ns = measured.latencies.last_byte.response.at(0.5);
    let longest_ns = stalls.longest_ns;
    // A stall that is short against the latency hardly changes it.
    let matters = longest_ns > median_ns / 10;
    let of_p99 = matters && affected_share > AFFECTED_SHARE;
    let of_p999 = matters && longest_ns >= LONG_NS && affected_share > AFFECTED_SHARE_OF_LONG;
    let verdict = if time_share > TIME_SHARES.1 || (of_p99 && longest_ns > median_ns) {
        Verdict::Invalid
    } else if time_share > TIME_SHARES.0 || of_p99 || of_p999 {
        Verdict::Suspect
    } else {
        return None;
    };
    let text = format!(
        "the generator did not run for {} in {} (longest {}, {} of its time), and {} of the requests \
         were due or answered in them; keep other programs off its CPUs (--pin), or use another machine",
        format_duration_ns(stalls.total_ns),
        count_of(stalls.count, "stall"),
        format_duration_ns(longest_ns),
        percent(time_share),
        percent(affected_share)
    );
    Some((verdict, text))
}
