//! Detection of servers that fail too many requests and are ejected for a while. Pure: counts and
//! times in, a decision out. `pool::outlier_counters` counts, `pool::eligibility` ejects.

use rt::clock::MonotonicTime;

use crate::outcome::{EndReason, Outcome};
use crate::plan::OutlierPlan;

code_table! {
    /// Reason why a server is ejected.
    pub enum EjectionReason:
    Failures, "failures", "too many consecutive failures";
    Errors, "errors", "too many consecutive error responses";
    ErrorRate, "error_rate", "error rate above the maximum";
    Latency, "latency", "much slower than the other servers";
    Probe, "probe", "the probe request after an ejection failed";
}

/// Effect of a request on the failure detection of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureSignal {
    /// The server responded.
    Success,
    Error,
    /// The server gave no response, or an invalid one.
    Failure,
    /// The server had no chance to respond.
    Neutral,
}

pub(crate) fn classify_outcome(outcome: &Outcome<'_>, plan: &OutlierPlan) -> FailureSignal {
    match outcome.end {
        EndReason::ConnectFailed
        | EndReason::ConnectTimeout
        | EndReason::TlsHandshakeFailed
        | EndReason::NoHttp2
        | EndReason::ServerClosed
        | EndReason::ServerTimeout
        | EndReason::BadResponse => FailureSignal::Failure,
        EndReason::Done | EndReason::TunnelIdle => classify_status(outcome.status, plan),
        // Ended for another reason, before or after the server's response.
        _ if outcome.times.first_byte > MonotonicTime::ZERO => classify_status(outcome.status, plan),
        _ => FailureSignal::Neutral,
    }
}

pub(crate) fn classify_status(status: u16, plan: &OutlierPlan) -> FailureSignal {
    if plan.statuses.contains(status) { FailureSignal::Error } else { FailureSignal::Success }
}

/// Returns the reason to eject a server after this many consecutive failures or errors, if any.
pub(crate) fn check_streak(plan: &OutlierPlan, failures: u32, errors: u32) -> Option<EjectionReason> {
    if plan.failures > 0 && failures >= plan.failures {
        return Some(EjectionReason::Failures);
    }
    plan.errors.filter(|&max| errors >= max).map(|_| EjectionReason::Errors)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutlierWindow {
    pub requests: u32,
    /// Number of failures and errors among them.
    pub errors: u32,
    /// Number of requests with a time to the first byte, and the sum of those times.
    pub(crate) timed: u32,
    pub(crate) first_byte_us: u64,
}

impl OutlierWindow {
    fn mean_us(&self) -> u64 {
        self.first_byte_us / u64::from(self.timed.max(1))
    }
}

/// Returns the reason to eject a server by its window, compared with the windows of all servers of
/// its pool.
pub(crate) fn check_window(
    plan: &OutlierPlan,
    server: &OutlierWindow,
    all: &[OutlierWindow],
) -> Option<EjectionReason> {
    if let Some(rate) = plan.error_rate
        && server.requests >= plan.requests_min
        && f64::from(server.errors) > rate * f64::from(server.requests)
    {
        return Some(EjectionReason::ErrorRate);
    }
    let factor = u64::from(plan.latency_factor?);
    let is_timed = |window: &OutlierWindow| window.timed >= plan.requests_min;
    let mut means: Vec<u64> =
        all.iter().filter(|window| is_timed(window)).map(OutlierWindow::mean_us).collect();
    means.sort_unstable();
    // The lower one of two: with only two servers, it is the other one.
    let median = *means.get(means.len().checked_sub(1)? / 2)?;
    (is_timed(server) && server.mean_us() > median.saturating_mul(factor)).then_some(EjectionReason::Latency)
}

/// Properties of a server that matter for the ejection of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtherServer {
    /// True if it gets requests.
    pub(crate) is_receiving: bool,
    /// True if it is ejected, or half-open after an ejection.
    pub(crate) is_held_back: bool,
}

/// Returns whether a server may be ejected; `others` are all the others of its pool.
pub(crate) fn may_eject(plan: &OutlierPlan, others: impl Iterator<Item = OtherServer>) -> bool {
    let (mut servers, mut held_back, mut is_any_receiving) = (1_u32, 0_u32, false);
    for other in others {
        servers += 1;
        held_back += u32::from(other.is_held_back);
        is_any_receiving |= other.is_receiving;
    }
    let max = (plan.max_ejected * f64::from(servers)) as u32;
    is_any_receiving && held_back < max.max(1)
}

/// Returns the number of consecutive ejections including this one, and its duration.
/// `since_last_ns` is the time since the last one.
pub(crate) fn ejection_duration(
    plan: &OutlierPlan,
    previous_ejections: u32,
    since_last_ns: u64,
) -> (u32, u64) {
    let previous_ejections = if since_last_ns >= plan.ejection_max_ns { 0 } else { previous_ejections };
    let ejections = previous_ejections.saturating_add(1);
    let duration_ns = plan.ejection_ns.saturating_mul(ejections.into()).min(plan.ejection_max_ns);
    // A first ejection longer than the maximum is cut to the maximum.
    (ejections, duration_ns.max(plan.ejection_ns.min(plan.ejection_max_ns)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::Statuses;

    pub(crate) fn plan() -> OutlierPlan {
        OutlierPlan {
            failures: 5,
            errors: Some(7),
            statuses: Statuses(vec![500..=599]),
            error_rate: Some(0.5),
            latency_factor: Some(3),
            window_ns: 10,
            requests_min: 10,
            ejection_ns: 10,
            ejection_max_ns: 35,
            max_ejected: 0.5,
        }
    }

    #[test]
    fn streaks() {
        for (failures, errors, expected) in [
            (4, 6, None),
            (5, 5, Some(EjectionReason::Failures)),
            (0, 7, Some(EjectionReason::Errors)),
            (9, 9, Some(EjectionReason::Failures)),
        ] {
            assert_eq!(check_streak(&plan(), failures, errors), expected, "{failures} {errors}");
        }
        let off = OutlierPlan { failures: 0, errors: None, ..plan() };
        assert_eq!(check_streak(&off, 1000, 1000), None);
    }

    #[test]
    fn windows() {
        let window = |requests, errors, mean_us: u64| OutlierWindow {
            requests,
            errors,
            timed: requests,
            first_byte_us: mean_us * u64::from(requests),
        };
        let healthy = window(100, 1, 100);
        let check = |server: OutlierWindow, others: &[OutlierWindow]| {
            check_window(&plan(), &server, &[&[server], others].concat())
        };
        assert_eq!(check(healthy, &[healthy, healthy]), None);
        assert_eq!(check(window(10, 5, 100), &[healthy]), None);
        assert_eq!(check(window(10, 6, 100), &[healthy]), Some(EjectionReason::ErrorRate));
        assert_eq!(check(window(9, 9, 100), &[healthy]), None);
        assert_eq!(check(window(10, 0, 300), &[healthy, healthy]), None);
        assert_eq!(check(window(10, 0, 301), &[healthy, healthy]), Some(EjectionReason::Latency));
        assert_eq!(check(window(10, 0, 301), &[healthy]), Some(EjectionReason::Latency));
        // Too few requests of its own, or of the others, for a judgement.
        assert_eq!(check(window(9, 0, 9000), &[healthy, healthy]), None);
        assert_eq!(check(window(10, 0, 9000), &[window(9, 0, 1)]), None);
        assert_eq!(check(OutlierWindow::default(), &[]), None);
    }

    #[test]
    fn never_the_last_one_and_never_too_many() {
        let (receiving, held_back) = (
            OtherServer { is_receiving: true, is_held_back: false },
            OtherServer { is_receiving: false, is_held_back: true },
        );
        let down = OtherServer { is_receiving: false, is_held_back: false };
        for (others, expected) in [
            (&[][..], false),
            (&[down], false),
            (&[receiving], true),
            (&[receiving, held_back], false),
            (&[receiving, receiving, held_back], true),
            (&[receiving, held_back, held_back], false),
            (&[held_back, held_back, held_back], false),
        ] {
            assert_eq!(may_eject(&plan(), others.iter().copied()), expected, "{others:?}");
        }
        // One server may always be ejected.
        let few = OutlierPlan { max_ejected: 0.01, ..plan() };
        assert!(may_eject(&few, [receiving; 3].into_iter()));
        assert!(!may_eject(&few, [receiving, receiving, held_back].into_iter()));
    }

    #[test]
    fn each_ejection_is_longer_until_a_server_was_well() {
        let mut previous_ejections = 0;
        let mut times = Vec::new();
        for _ in 0..5 {
            let (ejections, duration_ns) = ejection_duration(&plan(), previous_ejections, 34);
            previous_ejections = ejections;
            times.push(duration_ns);
        }
        assert_eq!(times, [10, 20, 30, 35, 35]);
        assert_eq!(ejection_duration(&plan(), previous_ejections, 35), (1, 10));
    }
}
