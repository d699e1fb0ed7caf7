//! Rule `generator_stalled`: times in which the generator did not run, relative to the window and
//! to the requests with stalls in their latency; seconds without a response.

use record::run::Interval;
use record::units::{MILLISECOND_NS, format_duration_ns, format_plural};
use record::validity::ValidityLevel;

use super::{Evidence, RuleResult, format_percent};

/// Stalled fractions of the window: suspect, and invalid. A closed loop's rate is too low by as
/// much.
const STALLED_FRACTIONS: (f64, f64) = (0.01, 0.05);
/// Fraction of affected requests above which p99 is one of theirs.
const AFFECTED_FRACTION: f64 = 0.01;
/// Length from which a stall is not ordinary scheduling; p99.9 then counts too.
const LONG_STALL_NS: u64 = 100 * MILLISECOND_NS;
const AFFECTED_FRACTION_LONG: f64 = 0.001;

pub(super) fn generator_stalled(evidence: &Evidence<'_>) -> RuleResult {
    let measured = evidence.measured;
    let stalls = &measured.counters.stalls;
    if stalls.count == 0 {
        return None;
    }
    let threads_s = (measured.load_s - measured.window_s.0) * measured.plan.threads as f64;
    let stalled_fraction = stalls.total_ns as f64 / 1e9 / threads_s.max(1e-9);
    let affected_fraction = stalls.affected_requests() as f64 / measured.counters.requests.max(1) as f64;
    let median_ns = measured.latencies.last_byte.response.value_at_quantile(0.5);
    let longest_ns = stalls.longest_ns;
    // A stall that is short relative to the latency hardly changes it.
    let is_significant = longest_ns > median_ns / 10;
    let affects_p99 = is_significant && affected_fraction > AFFECTED_FRACTION;
    let affects_p999 =
        is_significant && longest_ns >= LONG_STALL_NS && affected_fraction > AFFECTED_FRACTION_LONG;
    let verdict = if stalled_fraction > STALLED_FRACTIONS.1 || (affects_p99 && longest_ns > median_ns) {
        ValidityLevel::Invalid
    } else if stalled_fraction > STALLED_FRACTIONS.0 || affects_p99 || affects_p999 {
        ValidityLevel::Suspect
    } else {
        return None;
    };
    let text = format!(
        "the generator did not run for {} in {} (longest {}, {} of its time), and {} of the requests \
         were due or answered in them; keep other processes off its CPUs (--pin), or use another machine",
        format_duration_ns(stalls.total_ns),
        format_plural(stalls.count, "stall"),
        format_duration_ns(longest_ns),
        format_percent(stalled_fraction),
        format_percent(affected_fraction)
    );
    Some((verdict, text))
}

/// Returns the number of seconds without a response in which the generator ran. A stall is counted in the second in
/// which it begins, and covers as many after it.
pub(super) fn silent_seconds(intervals: &[&Interval], threads: usize) -> usize {
    let stalled_s = |interval: &Interval| interval.stalled_ns as f64 / 1e9 / threads.max(1) as f64;
    let (mut start, mut silent) = (0, 0);
    for same in intervals.chunk_by(|a, b| (a.responses == 0) == (b.responses == 0)) {
        let end = start + same.len();
        let is_covered = |(index, interval): (usize, &&Interval)| {
            let stalled_s = stalled_s(interval);
            stalled_s >= same.len() as f64 && end <= index + 1 + stalled_s.ceil() as usize
        };
        let has_run = !intervals[..=start].iter().enumerate().any(is_covered);
        if same.iter().all(|interval| interval.responses == 0) && has_run {
            silent += same.len();
        }
        start = end;
    }
    silent
}
