//! The baseline: requests on one connection, one at a time, before the load. Its latency has no
//! queueing in it, so the latency under load can be split into service and waiting.

use load::pace::Pace;
use load::plan::Plan;
use record::run::Baseline;
use record::units::SECOND_NS;
use rt::drain::DrainWatch;

use crate::watcher::Watcher;

/// Its length.
pub(super) const DURATION_NS: u64 = SECOND_NS;
/// The requests that it sends at most.
pub(super) const REQUESTS_MAX: u64 = 500;
/// The same where each takes new connections, and with them local ports that the load needs.
const REQUESTS_MAX_WITH_NEW_CONNECTIONS: u64 = 50;
/// The time that one of them may take: a subject that hangs must not hold up the load.
const TIMEOUT_NS: u64 = 2 * SECOND_NS;
/// Loads that are shorter than this have none: it would be a good part of their time.
const LOAD_NS_MIN: u64 = 3 * SECOND_NS;

/// Returns whether a load has a baseline: one that is bounded by its time and has several connections.
/// `-n` asks for a number of requests, and the subject shall see just those.
pub(super) fn is_due(plan: &Plan) -> bool {
    let open = matches!(plan.pace, Pace::Open { .. });
    plan.end.requests.is_none()
        && plan.end.duration_ns >= LOAD_NS_MIN
        && (open || plan.connections > 1)
}

/// Measures it. `None` where no request was answered, and after a signal.
pub(super) fn measure(plan: &Plan, stop: &DrainWatch) -> Option<Baseline> {
    let plan = one_at_a_time(plan);
    let measured = load::run::run(&plan, stop, &mut Watcher::new(Vec::new(), None, None)).ok()?;
    let service = &measured.latencies.last_byte.service;
    let summary = service.summary();
    (summary.count > 0).then(|| Baseline {
        duration_s: measured.load_s,
        requests: measured.counters.sent,
        good: summary.count,
        min_ns: service.at(0.0),
        p50_ns: summary.p50_ns,
        mean_ns: mean_without_slowest(summary.mean_ns, summary.max_ns, summary.count),
    })
}

fn one_at_a_time(plan: &Plan) -> Plan {
    let mut one = plan.clone();
    one.connections = 1;
    one.threads = 1;
    one.pin.truncate(1);
    one.pace = Pace::Closed { think_ns: 0 };
    one.ramp_ns = 0;
    one.end.duration_ns = DURATION_NS;
    one.end.requests = Some(match plan.requests_per_connection {
        Some(_) => REQUESTS_MAX_WITH_NEW_CONNECTIONS,
        None => REQUESTS_MAX,
    });
    one.timeout_ns = plan.timeout_ns.min(TIMEOUT_NS);
    one.drain_ns = plan.drain_ns.min(TIMEOUT_NS);
    one.objectives.clear();
    one
}

/// The mean of all but the slowest, which is often the first: caches are cold, connections are made.
fn mean_without_slowest(mean_ns: f64, max_ns: u64, count: u64) -> f64 {
    match count {
        0..=3 => mean_ns,
        _ => (mean_ns * count as f64 - max_ns as f64).max(0.0) / (count - 1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use load::plan::PlanText;

    use super::*;

    fn plan(change: impl FnOnce(&mut PlanText)) -> Plan {
        let mut text =
            PlanText { urls: vec!["http://127.0.0.1:1/".to_owned()], ..PlanText::default() };
        change(&mut text);
        Plan::parse(&text, 4).unwrap()
    }

    #[test]
    fn only_loads_bounded_by_time_have_one() {
        assert!(is_due(&plan(|_| ())));
        assert!(!is_due(&plan(|text| text.requests = Some("1000".to_owned()))));
        assert!(!is_due(&plan(|text| text.duration = Some("2s".to_owned()))));
        let one = |text: &mut PlanText| {
            text.connections = Some("1".to_owned());
            text.threads = Some("1".to_owned());
        };
        assert!(!is_due(&plan(one)), "one connection is its own baseline");
        let open = |text: &mut PlanText| {
            one(text);
            text.rate = Some("10".to_owned());
        };
        assert!(is_due(&plan(open)));
    }

    #[test]
    fn it_is_bounded_in_every_direction() {
        let one = one_at_a_time(&plan(|text| text.timeout = Some("30s".to_owned())));
        assert_eq!((one.connections, one.threads), (1, 1));
        assert_eq!((one.end.duration_ns, one.end.requests), (SECOND_NS, Some(500)));
        assert!(one.timeout_ns <= 2 * SECOND_NS && one.drain_ns <= 2 * SECOND_NS);
        assert_eq!(one.pace, Pace::Closed { think_ns: 0 });
    }

    #[test]
    fn a_cold_first_request_does_not_count() {
        assert!((mean_without_slowest(19.0, 100, 10) - 10.0).abs() < 1e-9);
        assert!((mean_without_slowest(50.0, 100, 2) - 50.0).abs() < 1e-9);
    }
}
