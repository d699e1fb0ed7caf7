//! The baseline: requests on one connection, one at a time, before the load. Its latency has no
//! queueing in it, so the latency under load can be split into service and waiting.

use record::run::Baseline;
use record::units::SECOND_NS;
use rt::drain::DrainWatch;

use crate::observer::NoopObserver;
use crate::pace::Pace;
use crate::plan::RunPlan;

/// Length of the baseline, without the end of the last request.
pub const DURATION_NS: u64 = SECOND_NS;
const REQUESTS_MAX: u64 = 500;
/// Maximum number of requests if each takes a new connection, and with it a local port that the
/// load needs.
const REQUESTS_MAX_WITH_NEW_CONNECTIONS: u64 = 50;
/// Maximum time of one request: a subject that hangs must not delay the load.
const TIMEOUT_NS: u64 = 2 * SECOND_NS;
/// Maximum length of the baseline, to the end of the last request.
pub const DURATION_NS_MAX: u64 = DURATION_NS + TIMEOUT_NS;
/// Minimum length of a load with a baseline; it would be a large part of a shorter one.
pub const LOAD_NS_MIN: u64 = 3 * SECOND_NS;

/// Returns whether a load has a baseline: it must be limited by its time and have several
/// connections. `-n` limits the number of requests, and the subject must get exactly those.
pub fn is_needed(plan: &RunPlan) -> bool {
    let open = matches!(plan.pace, Pace::Open { .. });
    // Load that changes has no single unloaded latency.
    let is_steady = plan.replay.is_none() && plan.stages.is_none();
    is_steady
        && !plan.is_push()
        && plan.end.requests.is_none()
        && plan.end.duration_ns >= LOAD_NS_MIN
        && (open || plan.concurrency() > 1)
}

/// Measures the baseline. Returns `None` if no request got a response, and after a signal.
pub fn measure(plan: &RunPlan, stop: &DrainWatch) -> Option<Baseline> {
    let plan = baseline_plan(plan);
    let measured = crate::run::run(&plan, stop, &mut NoopObserver).ok()?;
    let service = &measured.latencies.last_byte.service;
    let summary = service.summary();
    (summary.count > 0).then(|| Baseline {
        duration_s: measured.load_s,
        requests: measured.counters.sent,
        good: summary.count,
        min_ns: service.value_at_quantile(0.0),
        p50_ns: summary.p50_ns,
        mean_ns: mean_without_slowest(summary.mean_ns, summary.max_ns, summary.count),
        hdr: summary.hdr,
    })
}

fn baseline_plan(plan: &RunPlan) -> RunPlan {
    let mut baseline = plan.clone();
    baseline.connections = 1;
    if let Some(http2) = &mut baseline.http2 {
        http2.streams = 1;
        // Of a mix, requests of HTTP/2 represent the load.
        http2.fraction = 1.0;
    }
    baseline.pipeline = baseline.pipeline.min(if baseline.websocket.is_some() { 1 } else { u64::MAX });
    baseline.threads = 1;
    baseline.pin.truncate(1);
    baseline.pace = Pace::Closed { think_ns: 0 };
    baseline.ramp_ns = 0;
    baseline.end.duration_ns = DURATION_NS;
    baseline.end.requests = Some(match plan.requests_per_connection {
        Some(_) => REQUESTS_MAX_WITH_NEW_CONNECTIONS,
        None => REQUESTS_MAX,
    });
    baseline.timeout_ns = plan.timeout_ns.min(TIMEOUT_NS);
    baseline.drain_ns = plan.drain_ns.min(TIMEOUT_NS);
    baseline.objectives.clear();
    baseline
}

/// Returns the mean of all but the slowest, which is often the first: its caches are cold and its
/// connection is new.
fn mean_without_slowest(mean_ns: f64, max_ns: u64, count: u64) -> f64 {
    match count {
        0..=3 => mean_ns,
        _ => (mean_ns * count as f64 - max_ns as f64).max(0.0) / (count - 1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::LoadFlags;

    use super::*;

    fn plan(change: impl FnOnce(&mut LoadFlags)) -> RunPlan {
        let mut text = LoadFlags { urls: vec!["http://127.0.0.1:1/".to_owned()], ..LoadFlags::default() };
        change(&mut text);
        RunPlan::parse(&text, 4).unwrap()
    }

    #[test]
    fn only_loads_bounded_by_time_have_one() {
        assert!(is_needed(&plan(|_| ())));
        assert!(!is_needed(&plan(|text| text.requests = Some("1000".to_owned()))));
        assert!(!is_needed(&plan(|text| text.duration = Some("2s".to_owned()))));
        let single_connection = |text: &mut LoadFlags| {
            text.connections = Some("1".to_owned());
            text.threads = Some("1".to_owned());
        };
        assert!(!is_needed(&plan(single_connection)), "one connection is its own baseline");
        let open = |text: &mut LoadFlags| {
            single_connection(text);
            text.rate = Some("10".to_owned());
        };
        assert!(is_needed(&plan(open)));
    }

    #[test]
    fn it_is_bounded_in_every_direction() {
        let baseline = baseline_plan(&plan(|text| text.timeout = Some("30s".to_owned())));
        assert_eq!((baseline.connections, baseline.threads), (1, 1));
        assert_eq!((baseline.end.duration_ns, baseline.end.requests), (SECOND_NS, Some(500)));
        assert!(baseline.timeout_ns <= 2 * SECOND_NS && baseline.drain_ns <= 2 * SECOND_NS);
        assert_eq!(baseline.pace, Pace::Closed { think_ns: 0 });
    }

    #[test]
    fn a_cold_first_request_does_not_count() {
        assert!((mean_without_slowest(19.0, 100, 10) - 10.0).abs() < 1e-9);
        assert!((mean_without_slowest(50.0, 100, 2) - 50.0).abs() < 1e-9);
    }
}
