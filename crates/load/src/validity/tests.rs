//! Tests of every rule of validity: a run without objections, and for each rule a change that
//! makes it object.

mod transport;

use super::*;
use crate::plan::{LoadFlags, RunPlan};
use crate::recorder::{Counters, PhaseHistograms};
use crate::stall::StallCounters;
use record::histogram::LatencyHistogram;
use record::units::MILLISECOND_NS;

/// A closed loop of 10 s at 1,000 responses/s of 10 ms each, with 10 in flight.
fn good() -> RunMeasurement {
    let text = LoadFlags {
        urls: vec!["http://127.0.0.1/".to_owned()],
        connections: Some("10".to_owned()),
        ..LoadFlags::default()
    };
    let mut latencies = PhaseHistograms::default();
    for _ in 0..10_000 {
        latencies.last_byte.service.record(10_000_000);
        latencies.last_byte.response.record(10_000_000);
    }
    let mut lag = LatencyHistogram::new();
    lag.record(50_000);
    let interval = |second: u64| Interval {
        time_s: (second + 1) as f64,
        length_s: 1.0,
        responses: 1_000,
        good: Some(1_000),
        measured: true,
        ..Interval::default()
    };
    RunMeasurement {
        check_samples: Vec::new(),
        breakdown: crate::recorder::Breakdown::default(),
        live: crate::recorder::LiveHistograms::default(),
        start_ns: 0,
        plan: RunPlan::parse(&text, 2).unwrap(),
        latencies,
        tail_service: LatencyHistogram::new(),
        tail_not_good: 0,
        undelayed: LatencyHistogram::new(),
        transport: None,
        lag,
        counters: Counters {
            requests: 10_000,
            sent: 10_000,
            responses: 10_000,
            obtained: 10,
            opened: 10,
            due: 10_000,
            ..Counters::default()
        },
        intervals: (0..10).map(interval).collect(),
        window_s: (0.0, 10.0),
        has_complete_second: true,
        window_responses: 10_000,
        window_good: 10_000,
        window_bytes_in: 1_000_000,
        window_due: 10_000,
        window_requests: 10_000,
        backlog: vec![10; 10],
        area_ns: 100_000_000_000,
        drain_area_ns: 0,
        failed_area_ns: 0,
        load_s: 10.0,
        partial: false,
    }
}

fn host() -> HostEvidence {
    HostEvidence {
        busiest_thread_fraction: Some(0.4),
        run_queue_wait_fraction: Some(0.01),
        cpus: Some(4),
        foreign_cpus: Some(0.05),
        steal_fraction: Some(0.0),
        scarce_ports: None,
        calibrated_fraction: Some(0.3),
    }
}

fn open_loop(mut measured: RunMeasurement) -> RunMeasurement {
    measured.plan.pace =
        crate::pace::Pace::Open { rate_per_s: 1_000.0, arrivals: crate::pace::Arrivals::Constant };
    measured
}

/// Returns the reasons for a changed run and a changed host.
fn reasons(
    change: impl FnOnce(&mut RunMeasurement),
    change_host: impl FnOnce(&mut HostEvidence),
) -> Vec<(String, ValidityLevel)> {
    let (mut measured, mut host) = (good(), host());
    change(&mut measured);
    change_host(&mut host);
    let validity = judge(&Evidence { measured: &measured, host });
    validity.reasons.into_iter().map(|reason| (reason.code, reason.verdict)).collect()
}

fn one_reason(code: &str, verdict: ValidityLevel) -> Vec<(String, ValidityLevel)> {
    vec![(code.to_owned(), verdict)]
}

#[test]
fn a_good_run_is_valid() {
    assert_eq!(reasons(|_| (), |_| ()), []);
    assert_eq!(reasons(|m| *m = open_loop(m.clone()), |_| ()), []);
}

#[test]
fn missing_host_evidence_is_no_reason() {
    assert_eq!(reasons(|_| (), |host| *host = HostEvidence::default()), []);
}

#[test]
fn the_generator_was_the_limit() {
    let busy = |fraction| reasons(|_| (), |host| host.busiest_thread_fraction = Some(fraction));
    assert_eq!(busy(0.79), []);
    assert_eq!(busy(0.85), one_reason("client_bound", ValidityLevel::Suspect));
    assert_eq!(busy(0.95), one_reason("client_bound", ValidityLevel::Invalid));
    let waited = |fraction| reasons(|_| (), |host| host.run_queue_wait_fraction = Some(fraction));
    assert_eq!(waited(0.11), one_reason("run_queue_wait", ValidityLevel::Suspect));
    assert_eq!(waited(0.31), one_reason("run_queue_wait", ValidityLevel::Invalid));
    let lagged = |lag_ns: u64| {
        reasons(
            |m| {
                m.lag = LatencyHistogram::new();
                m.lag.record(lag_ns);
            },
            |_| (),
        )
    };
    assert_eq!(lagged(900_000), []);
    assert_eq!(lagged(2_000_000), one_reason("send_lag", ValidityLevel::Suspect));
    assert_eq!(lagged(20_000_000), one_reason("send_lag", ValidityLevel::Invalid));
    // The p99 is 20 ms; what arrived in the kernel tells how much of it was the server's.
    let undelayed = |p99_ns: u64, count: u64| {
        reasons(
            |m| {
                m.latencies.last_byte.response = LatencyHistogram::new();
                m.latencies.last_byte.response.record_count(20_000_000, 10_000);
                m.undelayed = LatencyHistogram::new();
                m.undelayed.record_count(p99_ns, count);
            },
            |_| (),
        )
    };
    assert_eq!(undelayed(18_500_000, 2_000), []);
    assert_eq!(undelayed(17_500_000, 2_000), one_reason("send_lag", ValidityLevel::Suspect));
    assert_eq!(undelayed(17_500_000, 900), [], "too few for a p99");
    let calibrated = reasons(|_| (), |host| host.calibrated_fraction = Some(0.92));
    assert_eq!(calibrated, one_reason("near_calibrated_limit", ValidityLevel::Suspect));
}

#[test]
fn a_generator_that_stood_still() {
    let stalled = |count: u64, each_ms: u64, due: u64, answered: u64| {
        let longest_ns = each_ms * 1_000_000;
        let total_ns = count * longest_ns;
        reasons(
            |m| {
                m.counters.stalls = StallCounters {
                    count,
                    total_ns,
                    longest_ns,
                    requests_due: due,
                    requests_in_flight: answered,
                }
            },
            |_| (),
        )
    };
    // One thread for 10 s, 10,000 requests of 10 ms.
    assert_eq!(stalled(0, 0, 0, 0), []);
    assert_eq!(stalled(4, 15, 60, 10), [], "four stalls of 15 ms are ordinary scheduling");
    assert_eq!(stalled(3, 400, 600, 0), one_reason("generator_stalled", ValidityLevel::Invalid));
    assert_eq!(
        stalled(3, 400, 0, 30),
        one_reason("generator_stalled", ValidityLevel::Invalid),
        "6 % of the time"
    );
    assert_eq!(stalled(30, 10, 300, 0), one_reason("generator_stalled", ValidityLevel::Suspect));
    assert_eq!(stalled(1, 150, 0, 20), one_reason("generator_stalled", ValidityLevel::Suspect));
    assert_eq!(stalled(1, 95, 0, 10), []);
}

#[test]
fn connections_and_ports() {
    let missing = reasons(|m| m.counters.obtained = 9, |_| ());
    assert_eq!(missing, one_reason("connections_failed", ValidityLevel::Invalid));
    let tight = reasons(|_| (), |host| host.scarce_ports = Some("few are left".to_owned()));
    assert_eq!(tight, one_reason("ports_scarce", ValidityLevel::Suspect));
}

#[test]
fn littles_law_is_held_within_five_percent() {
    let area = |area_ns| reasons(|m| m.area_ns = area_ns, |_| ());
    assert_eq!(area(104_000_000_000), []);
    assert_eq!(area(110_000_000_000), one_reason("littles_law", ValidityLevel::Invalid));
    assert_eq!(area(90_000_000_000), one_reason("littles_law", ValidityLevel::Invalid));
    // Failed requests have spent their time in flight, too.
    let lost = |m: &mut RunMeasurement| {
        m.area_ns = 150_000_000_000;
        m.failed_area_ns = 50_000_000_000;
    };
    assert_eq!(reasons(lost, |_| ()), []);
    // Too few latencies fit into the window for a decision.
    let long = |m: &mut RunMeasurement| {
        m.area_ns = 200_000_000_000;
        m.latencies = PhaseHistograms::default();
        for _ in 0..10_000 {
            m.latencies.last_byte.service.record(1_000_000_000);
            m.latencies.last_byte.response.record(1_000_000_000);
        }
    };
    assert_eq!(reasons(long, |_| ()), []);
}

#[test]
fn errors_and_silence() {
    let failed = reasons(|m| m.counters.errors[0] = 11, |_| ());
    assert_eq!(failed, one_reason("errors", ValidityLevel::Invalid));
    let few = reasons(|m| m.counters.errors[0] = 9, |_| ());
    assert_eq!(few, []);
    let bad_status = reasons(|m| m.counters.bad_status = 5_000, |_| ());
    assert_eq!(bad_status, one_reason("errors", ValidityLevel::Invalid));
    let silent = reasons(
        |m| {
            m.counters.responses = 0;
            m.latencies = PhaseHistograms::default();
            m.area_ns = 0;
        },
        |_| (),
    );
    assert_eq!(silent, one_reason("no_response", ValidityLevel::Invalid));
}

#[test]
fn an_open_loop_that_was_not_kept() {
    let dropped = |count| {
        reasons(
            |m| {
                *m = open_loop(m.clone());
                m.counters.dropped = count;
            },
            |_| (),
        )
    };
    assert_eq!(dropped(1), one_reason("dropped", ValidityLevel::Suspect));
    assert_eq!(dropped(100), one_reason("dropped", ValidityLevel::Invalid));
    let behind = |change: fn(&mut RunMeasurement)| {
        reasons(
            |m| {
                *m = open_loop(m.clone());
                change(m);
            },
            |_| (),
        )
    };
    // Answered in the end, but ever later; or not answered at all.
    let grew = behind(|m| m.backlog = (1..=10).map(|second| 100 * second).collect());
    assert_eq!(grew, one_reason("overloaded", ValidityLevel::Suspect));
    assert_eq!(behind(|m| m.window_requests = 11_000), one_reason("overloaded", ValidityLevel::Suspect));
    // A slow server always has as many in flight, and answers none of the last within the window.
    let slow = behind(|m| {
        m.backlog = vec![500; 10];
        m.window_responses = 9_500;
    });
    assert_eq!(slow, []);
}

#[test]
fn a_rate_that_drifts_or_stops() {
    let drift = reasons(
        |m| {
            for (index, interval) in m.intervals.iter_mut().enumerate() {
                interval.responses = 1_000 - 30 * index as u64;
            }
        },
        |_| (),
    );
    assert_eq!(drift, one_reason("unsteady", ValidityLevel::Suspect));
    let hole = reasons(|m| m.intervals[4].responses = 0, |_| ());
    assert_eq!(hole, one_reason("unsteady", ValidityLevel::Suspect));
    let slow = reasons(
        |m| {
            for (index, interval) in m.intervals.iter_mut().enumerate() {
                interval.responses = 10 + index as u64 % 3;
            }
        },
        |_| (),
    );
    assert_eq!(slow, [], "so few responses are never even");
}

/// Returns whether a run is unsteady that has no response in `silent` seconds and stalls in `stalled` ones.
fn is_unsteady(threads: usize, silent: &[usize], stalled: &[(usize, u64)]) -> bool {
    let found = reasons(
        |m| {
            m.plan.threads = threads;
            silent.iter().for_each(|second| m.intervals[*second].responses = 0);
            for (second, stalled_ms) in stalled {
                m.intervals[*second].stalled_ns = stalled_ms * MILLISECOND_NS;
            }
        },
        |_| (),
    );
    found.iter().any(|(code, _)| code == "unsteady")
}

#[test]
fn seconds_in_which_the_generator_stood_still_are_not_the_servers() {
    for begun in [3, 4] {
        assert!(!is_unsteady(1, &[4, 5], &[(begun, 2_100)]), "{begun}");
    }
    assert!(
        !is_unsteady(1, &[5, 6], &[(3, 2_998)]),
        "responses that were read at the end of the second before"
    );
    assert!(!is_unsteady(2, &[4, 5], &[(3, 4_300)]), "both threads");
    assert!(!is_unsteady(1, &[2, 6, 7], &[(1, 1_200), (5, 2_500)]), "two pauses");
    assert!(!is_unsteady(1, &[0, 9], &[(0, 1_100), (8, 1_100)]), "first and last");
    assert!(is_unsteady(1, &[4, 5], &[]));
    assert!(is_unsteady(1, &[4, 5], &[(3, 900)]), "shorter than the silence");
    assert!(is_unsteady(1, &[6, 7], &[(2, 2_100)]), "another time");
    assert!(is_unsteady(1, &[4, 5], &[(6, 2_100)]), "after the silence");
    assert!(is_unsteady(2, &[4, 5], &[(3, 2_100)]), "the other thread ran");
    let busy: Vec<(usize, u64)> = (0..10).map(|second| (second, 300)).collect();
    assert!(is_unsteady(1, &[4, 5], &busy), "many short stalls of a busy machine");
    assert!(is_unsteady(1, &[1, 6, 7], &[(5, 2_500)]), "one of two");
}

#[test]
fn a_last_second_that_comes_with_the_rest_counts() {
    // The server is gone in the last four seconds; the last of them includes the rest after it.
    let mut measured = good();
    measured.intervals[6..].iter_mut().for_each(|interval| interval.responses = 0);
    measured.intervals[9].time_s = 10.003;
    measured.intervals[9].length_s = 1.003;
    (measured.window_responses, measured.window_bytes_in, measured.window_due) = (0, 0, 0);
    measured.mark_window(&[0; 10]);
    assert!(measured.intervals.iter().all(|interval| interval.measured));
    assert_eq!(measured.window_responses, 6_000);
    let validity = judge(&Evidence { measured: &measured, host: host() });
    let unsteady = validity.reasons.iter().find(|reason| reason.code == "unsteady").unwrap();
    assert!(unsteady.text.contains(" 4 of 10 "), "{unsteady:?}");
    // A rest alone is not part of the window.
    measured.intervals[9].time_s = 10.0;
    measured.intervals[9].length_s = 1.0;
    let rest = Interval { time_s: 11.5, length_s: 1.5, responses: 7, ..Interval::default() };
    measured.intervals.push(rest);
    measured.window_responses = 0;
    measured.mark_window(&[0; 11]);
    assert!(!measured.intervals[10].measured);
    assert_eq!(measured.window_responses, 6_000);
}

#[test]
fn a_run_without_a_complete_second_is_not_reported_as_few_responses() {
    let text = |change: fn(&mut RunMeasurement)| {
        let mut measured = good();
        change(&mut measured);
        let validity = judge(&Evidence { measured: &measured, host: host() });
        let reason = validity.reasons.into_iter().find(|reason| reason.code == "too_short").unwrap();
        reason.text
    };
    let half = text(|m| {
        m.has_complete_second = false;
        m.window_s = (0.0, 0.5);
    });
    assert!(half.contains("0.50 s"), "{half}");
    let few = text(|m| {
        m.latencies = PhaseHistograms::default();
        m.latencies.last_byte.response.record(1);
    });
    assert!(few.contains(" 1 ") && few.contains("10.00 s"), "{few}");
}

#[test]
fn of_a_run_that_is_too_short_only_counts_are_judged() {
    let noisy = |m: &mut RunMeasurement| {
        *m = open_loop(m.clone());
        m.has_complete_second = false;
        m.window_s = (0.0, 0.1);
        m.lag.record(90_000_000);
        m.area_ns = 1;
        m.window_requests = 20_000;
        m.intervals.iter_mut().for_each(|interval| interval.responses = 0);
    };
    let disturbed = |host: &mut HostEvidence| {
        host.busiest_thread_fraction = Some(1.0);
        host.run_queue_wait_fraction = Some(0.9);
        host.foreign_cpus = Some(3.0);
        host.steal_fraction = Some(0.5);
        host.calibrated_fraction = Some(0.9);
    };
    assert_eq!(reasons(noisy, disturbed), one_reason("too_short", ValidityLevel::Suspect));
    let few = |m: &mut RunMeasurement| {
        m.latencies = PhaseHistograms::default();
        m.latencies.last_byte.response.record(1);
    };
    assert_eq!(reasons(few, disturbed), one_reason("too_short", ValidityLevel::Suspect));
    let codes = |change: fn(&mut RunMeasurement)| {
        let reasons = reasons(
            |m| {
                noisy(m);
                change(m);
            },
            disturbed,
        );
        reasons.into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(codes(|m| m.counters.errors[0] = 500), ["errors", "too_short"]);
    assert_eq!(codes(|m| m.counters.obtained = 9), ["connections_failed", "too_short"]);
    assert_eq!(codes(|m| m.counters.responses = 0), ["no_response"]);
}

#[test]
fn few_good_responses_among_bad_ones_are_no_short_run() {
    let good_of = |good: u64| {
        let change = |m: &mut RunMeasurement| {
            m.counters.bad_status = m.counters.responses - good;
            m.latencies = PhaseHistograms::default();
            // A statistic of so few responses is none.
            m.area_ns = 1;
        };
        reasons(change, |_| ()).into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(good_of(99), ["errors"]);
    assert_eq!(good_of(0), ["errors", "no_response"]);
}

#[test]
fn others_on_the_machine() {
    let foreign = reasons(|_| (), |host| host.foreign_cpus = Some(0.3));
    assert_eq!(foreign, one_reason("cpu_contended", ValidityLevel::Suspect));
    let steal = |fraction| reasons(|_| (), |host| host.steal_fraction = Some(fraction));
    assert_eq!(steal(0.03), one_reason("cpu_steal", ValidityLevel::Suspect));
    assert_eq!(steal(0.2), one_reason("cpu_steal", ValidityLevel::Invalid));
}

#[test]
fn short_cut_and_odd_runs() {
    let short = reasons(|m| m.has_complete_second = false, |_| ());
    assert_eq!(short, one_reason("too_short", ValidityLevel::Suspect));
    assert_eq!(reasons(|m| m.partial = true, |_| ()), one_reason("partial", ValidityLevel::Suspect));
    let excess = reasons(|m| m.counters.excess_bytes = 7, |_| ());
    assert_eq!(excess, one_reason("excess_bytes", ValidityLevel::Suspect));
}
