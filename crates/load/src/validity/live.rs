//! Signs, while a load runs, that its result will not be valid: the rules whose figures every second has, with
//! the same bounds.

use record::run::Interval;
use record::units::format_duration_ns;

use super::{CLIENT_BUSY_INVALID, CLIENT_BUSY_SUSPECT, LAG_INVALID_NS, LAG_SUSPECT_NS, format_percent};

/// Limits of a running load that its seconds do not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveLimits {
    pub threads: usize,
    pub connections: u64,
    /// Highest valid fraction of requests without a good response.
    pub max_error_rate: f64,
}

/// Number of last seconds that a sign needs, so that one slow second is none.
const SECONDS: usize = 3;
/// Fraction of the time in stalls from which a result is suspect.
const STALLED_FRACTION: f64 = 0.01;

/// Returns the signs of the seconds so far, the most serious first. Each begins with the code of its rule.
pub fn live_signs<'a>(seconds: impl IntoIterator<Item = &'a Interval>, limits: &LiveLimits) -> Vec<String> {
    let seconds: Vec<&Interval> = seconds.into_iter().filter(|second| second.length_s > 0.5).collect();
    let Some(recent) = seconds.last_chunk::<SECONDS>() else { return Vec::new() };
    let signs = [
        client_bound(recent, limits),
        errors(&seconds, limits),
        dropped(&seconds),
        connections_failed(recent, limits),
        send_lag(recent),
        stalled(&seconds),
    ];
    signs.into_iter().flatten().collect()
}

fn client_bound(recent: &[&Interval; SECONDS], limits: &LiveLimits) -> Option<String> {
    let threads = limits.threads.max(1) as f64;
    let used: Option<Vec<f64>> = recent.iter().map(|second| Some(second.own_cpus? / threads)).collect();
    let fraction = used?.into_iter().reduce(f64::min)?;
    let word = if fraction >= CLIENT_BUSY_INVALID {
        "the generator is the limit"
    } else {
        "the generator is near its limit"
    };
    let text =
        format!("client_bound: {word}: its threads use {} of their cores (-t)", format_percent(fraction));
    (fraction >= CLIENT_BUSY_SUSPECT).then_some(text)
}

fn errors(seconds: &[&Interval], limits: &LiveLimits) -> Option<String> {
    let count = |second: &&Interval| {
        let failed = second.errors.values().sum::<u64>();
        let bad = second.responses.saturating_sub(second.good.unwrap_or(second.responses));
        (failed + bad, failed + second.responses)
    };
    let (failed, all) =
        seconds.iter().map(count).fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
    let fraction = failed as f64 / all.max(1) as f64;
    let text = format!("errors: {} of the requests have no good response", format_percent(fraction));
    (fraction > limits.max_error_rate).then_some(text)
}

fn dropped(seconds: &[&Interval]) -> Option<String> {
    let count: u64 = seconds.iter().map(|second| second.dropped).sum();
    (count > 0).then(|| format!("dropped: {count} requests were due and not sent: the queue is full"))
}

fn connections_failed(recent: &[&Interval; SECONDS], limits: &LiveLimits) -> Option<String> {
    let open = recent.iter().map(|second| second.connections).max()?;
    let text = format!("connections_failed: {open} of {} connections are open", limits.connections);
    // A connection that is closed and opened again is missing for a moment.
    (open < limits.connections / 10 * 9).then_some(text)
}

fn send_lag(recent: &[&Interval; SECONDS]) -> Option<String> {
    let is_late = |second: &&Interval| {
        let (lag_ns, median_ns) = (second.lag_p99_ns.unwrap_or(0), second.p50_ns.unwrap_or(u64::MAX));
        lag_ns > LAG_SUSPECT_NS && lag_ns > median_ns / 10
    };
    let lag_ns = recent.iter().filter_map(|second| second.lag_p99_ns).min()?;
    let word = if lag_ns > LAG_INVALID_NS { "very late" } else { "late" };
    let text =
        format!("send_lag: the generator sends {word}: p99 of its lag is {}", format_duration_ns(lag_ns));
    recent.iter().all(is_late).then_some(text)
}

fn stalled(seconds: &[&Interval]) -> Option<String> {
    let stalled_ns: u64 = seconds.iter().map(|second| second.stalled_ns).sum();
    let length_s: f64 = seconds.iter().map(|second| second.length_s).sum();
    let fraction = stalled_ns as f64 / 1e9 / length_s.max(1e-9);
    let text =
        format!("generator_stalled: the generator did not run for {} of the time", format_percent(fraction));
    (fraction > STALLED_FRACTION).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LiveLimits = LiveLimits { threads: 2, connections: 100, max_error_rate: 0.01 };

    fn seconds(change: impl Fn(&mut Interval)) -> Vec<Interval> {
        let second = |n: u32| {
            let mut second = Interval {
                time_s: f64::from(n),
                length_s: 1.0,
                responses: 1000,
                connections: 100,
                p50_ns: Some(1_000_000),
                lag_p99_ns: Some(50_000),
                own_cpus: Some(0.5),
                ..Interval::default()
            };
            change(&mut second);
            second
        };
        (1..=5).map(second).collect()
    }

    fn codes(seconds: &[Interval]) -> Vec<String> {
        let signs = live_signs(seconds, &LIMITS);
        signs.iter().filter_map(|sign| Some(sign.split_once(':')?.0.to_owned())).collect()
    }

    #[test]
    fn each_sign_appears_and_a_healthy_load_has_none() {
        assert_eq!(codes(&seconds(|_| ())), [""; 0]);
        assert_eq!(codes(&seconds(|second| second.own_cpus = Some(1.7))), ["client_bound"]);
        assert_eq!(codes(&seconds(|second| second.good = Some(900))), ["errors"]);
        assert_eq!(codes(&seconds(|second| second.dropped = 1)), ["dropped"]);
        assert_eq!(codes(&seconds(|second| second.connections = 40)), ["connections_failed"]);
        assert_eq!(codes(&seconds(|second| second.lag_p99_ns = Some(2_000_000))), ["send_lag"]);
        assert_eq!(codes(&seconds(|second| second.stalled_ns = 20_000_000)), ["generator_stalled"]);
    }

    #[test]
    fn one_slow_second_and_a_slow_server_are_no_sign() {
        let mut disturbed = seconds(|_| ());
        disturbed[4].own_cpus = Some(2.0);
        disturbed[4].lag_p99_ns = Some(5_000_000);
        assert_eq!(codes(&disturbed), [""; 0]);
        // A lag that is small against the latency disturbs nothing.
        let slow = seconds(|second| (second.p50_ns, second.lag_p99_ns) = (Some(90_000_000), Some(2_000_000)));
        assert_eq!(codes(&slow), [""; 0]);
        assert_eq!(codes(&seconds(|second| second.own_cpus = Some(2.0))[..2]), [""; 0]);
    }
}
