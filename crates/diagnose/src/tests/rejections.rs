//! Tests of the rate limit: servers that reject requests, as measured with each of them, and those that only look
//! alike.

use super::answers::assert_whole;
use super::*;
use crate::verdicts::RATE_LIMITED;
use record::run::Baseline;

/// Requests before the load: their number, the good ones, the time of all and the shortest one.
type Before = (u64, u64, f64, u64);

/// Returns an open loop of 800/s whose seconds have these good responses; the others have `status`.
pub(super) fn rejecting(status: u16, good: &[u64], before: Before) -> Run {
    let per_second = vec![800; good.len()];
    offered(status, good, &per_second, before)
}

/// Returns a load whose seconds have so many responses, of which so many are good.
fn offered(status: u16, good: &[u64], responses: &[u64], before: Before) -> Run {
    let mut run = run(16, 160_000);
    let seconds = good.iter().zip(responses).enumerate();
    let second = |(at, (good, responses)): (usize, (&u64, &u64))| Interval {
        good: Some(*good),
        responses: *responses,
        ..interval(at as f64 + 1.0, 0.0)
    };
    run.intervals = seconds.map(second).collect();
    let (all, good): (u64, u64) = (responses.iter().sum(), good.iter().sum());
    let length_s = run.intervals.len() as f64;
    run.totals.requests = all;
    run.totals.responses = all;
    (run.totals.good, run.totals.bad) = (Some(good), Some(all - good));
    run.totals.status = [(200, good), (status, all - good)].into();
    run.rates.responses_per_s = all as f64 / length_s;
    run.rates.goodput_per_s = Some(good as f64 / length_s);
    run.rates.offered_per_s = Some(all as f64 / length_s);
    run.plan["pace"]["loop"] = "open".into();
    run.generator.in_flight_mean = 0.1;
    (run.duration_s, run.window.to_s) = (length_s, length_s);
    let (requests, good, duration_s, min_ns) = before;
    let mean_ns = min_ns as f64 * 1.3;
    run.baseline =
        Some(Baseline { requests, good, duration_s, min_ns, p50_ns: min_ns, mean_ns, ..Baseline::default() });
    run
}

fn assert_rate_limit(run: &Run, texts: &[&str]) {
    assert_first(run, RATE_LIMITED);
    let answer = crate::answer(run);
    assert_whole(&answer);
    let all = format!("{} {} {}", answer.what, answer.why, answer.next);
    texts.iter().for_each(|text| assert!(all.contains(text), "{text}: {all}"));
}

#[test]
fn a_rate_limit_is_named_with_its_rate_its_status_and_the_place_of_its_setting() {
    let mut nginx = rejecting(503, &[316, 300, 300, 300, 300, 300], (500, 112, 0.044, 54_000));
    nginx.observed[0].roles[1].command = "nginx: master process nginx -c limit.conf".to_owned();
    assert_rate_limit(
        &nginx,
        &[
            "Your service admits 300 requests/s and rejects the rest with 503.",
            "800/s were offered, and 62 % of the responses were rejections",
            "each second admitted 300",
            "112 of 500 requests sent one after the other",
            "`limit_req`",
            "`-R 270`",
        ],
    );
    // A limit without a bucket admits fewer of regular requests than of many.
    let plain = rejecting(503, &[203, 201, 210, 206, 209], (500, 7, 0.034, 64_000));
    assert_rate_limit(&plain, &["admits 206 requests/s", "token bucket"]);
    // The bucket was full before the load: its rest is in the first second.
    let bucket = rejecting(503, &[430, 300, 300, 300, 300, 300], (500, 500, 0.051, 45_000));
    assert_rate_limit(&bucket, &["each second admitted 300"]);
    // So few are good that only the seconds, at their different rates, show it.
    let mut few = offered(
        503,
        &[249, 249, 250, 249, 249],
        &[38_270, 63_760, 60_501, 55_542, 49_883],
        (500, 5, 0.024, 52_000),
    );
    few.rates.offered_per_s = None;
    set_subject_cpus(&mut few, 0.3, 1.5, 4);
    assert_rate_limit(&few, &["admits 249 requests/s"]);
    // A closed loop of rejections takes all of the CPUs.
    let mut closed = offered(
        503,
        &[281, 300, 300, 300, 300],
        &[11_658, 16_737, 18_920, 18_810, 20_262],
        (500, 29, 0.073, 52_000),
    );
    closed.plan["pace"]["loop"] = "closed".into();
    closed.rates.offered_per_s = None;
    set_subject_cpus(&mut closed, 0.5, 1.3, 4);
    assert_rate_limit(&closed, &["rejects the rest with 503", "98 % of the responses were rejections"]);
}

#[test]
fn the_status_too_many_requests_needs_no_requests_before_the_load() {
    let mut limited = rejecting(429, &[300, 299, 300, 301], (1, 1, 0.1, 50_000));
    limited.baseline = None;
    assert_rate_limit(&limited, &["admits 300 requests/s and rejects the rest with 429"]);
    // Another status may also be a fixed fraction.
    let mut unknown = rejecting(503, &[300, 299, 300, 301], (1, 1, 0.1, 50_000));
    unknown.baseline = None;
    assert_first(&unknown, "run_invalid");
}

#[test]
fn a_fixed_fraction_of_failures_is_no_rate_limit() {
    // A tenth at random; half of the servers, in turn.
    assert_first(&rejecting(503, &[705, 716, 719, 724, 722], (500, 452, 0.079, 50_000)), "run_invalid");
    assert_first(&rejecting(503, &[399, 401, 400, 400, 400], (500, 250, 0.075, 55_000)), "run_invalid");
    let mut random = offered(
        503,
        &[15_146, 14_236, 14_834, 9_250, 12_378],
        &[16_896, 15_889, 16_470, 10_322, 13_722],
        (500, 454, 0.073, 58_000),
    );
    random.rates.offered_per_s = None;
    assert_first(&random, "run_invalid");
    // The servers of some connections, and the one before the load had another.
    assert_first(&rejecting(503, &[350, 349, 351, 349, 351], (500, 500, 0.069, 49_000)), "run_invalid");
    // Half of the servers ended during the load, or at its beginning.
    assert_first(&rejecting(503, &[800, 799, 801, 657, 400, 400], (500, 500, 0.05, 42_000)), "run_invalid");
    let ended = rejecting(503, &[800, 400, 400, 400, 400, 400], (500, 500, 0.05, 42_000));
    assert_first(&ended, "run_invalid");
    let mut other = rejecting(503, &[500, 310, 310, 310, 310, 310], (500, 500, 0.05, 42_000));
    assert_first(&other, RATE_LIMITED);
    let server = ExitedProcess { role: "origin".to_owned(), pid: 12, name: "app".to_owned(), time_s: 1.0 };
    other.observed[0].ended.push(server);
    assert_first(&other, "run_invalid");
}

#[test]
fn a_limit_of_requests_at_a_time_is_no_rate_limit() {
    // Four at a time, of 10 ms each, and no queue.
    let mut slots = rejecting(503, &[387, 389, 388, 390, 388], (91, 91, 1.0, 10_300_000));
    set_latency(&mut slots, 10_400_000);
    assert_first(&slots, "run_invalid");
    // One at a time, with a queue before it.
    let mut queue = rejecting(503, &[297, 298, 297, 298, 297], (300, 300, 1.0, 3_300_000));
    set_latency(&mut queue, 27_000_000);
    assert_first(&queue, "run_invalid");
    // An overload that follows the CPU.
    let cpu = rejecting(503, &[260, 215, 301, 240, 280], (300, 300, 1.0, 3_300_000));
    assert_first(&cpu, "run_invalid");
    // A limit before a slow service: its seconds are more regular than slots of such latencies are.
    let mut slow = rejecting(503, &[321, 300, 300, 301, 300], (20, 20, 1.0, 40_000_000));
    let mut latencies = LatencyHistogram::new();
    (0..2_000).for_each(|at| latencies.record(40_000_000 + at * 20_000));
    slow.latency.last_byte.service = latencies.summary();
    let slow = with_burst_of(slow);
    assert_first(&slow, RATE_LIMITED);
}

/// Adds a second before the window with less load, in which all were good: the ramp.
fn with_burst_of(mut run: Run) -> Run {
    run.intervals
        .insert(0, Interval { good: Some(150), responses: 150, measured: false, ..interval(0.5, 0.0) });
    run
}

fn set_latency(run: &mut Run, latency_ns: u64) {
    let mut latencies = LatencyHistogram::new();
    (0..2_000).for_each(|_| latencies.record(latency_ns));
    run.latency.last_byte.service = latencies.summary();
}

#[test]
fn a_limit_that_counts_rejections_admits_nothing() {
    let stuck = rejecting(429, &[0, 1, 0, 0, 0], (500, 300, 0.05, 40_000));
    assert_first(&stuck, "run_invalid");
    let answer = crate::answer(&stuck);
    assert_whole(&answer);
    assert!(answer.next.contains("counts rejected requests as well"), "{answer:?}");
}
