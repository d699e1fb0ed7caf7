//! Tests of the sentences: each verdict has three complete ones, with a figure of its own evidence.

use super::*;
use crate::facts::Facts;
use crate::unit::format_value;
use crate::verdicts::{VERDICTS, VerdictRule};
use record::run::{Answer, Baseline, Confirmation, Diagnosis};
use record::validity::ValidityLevel;

/// Maximum length of a sentence that a busy reader reads.
const SENTENCE_CHARS_MAX: usize = 480;

/// Checks that a text is a complete sentence for people.
fn assert_complete(text: &str) {
    let problem = |why: &str| panic!("{why}: {text:?}");
    let starts =
        text.starts_with(|letter: char| letter.is_uppercase() || letter == '`' || letter.is_ascii_digit());
    if !starts || !text.ends_with('.') {
        problem("incomplete");
    }
    for wrong in ["  ", "; .", ";.", "{", "}", "NaN", "inf", "…", "()", "..", " ,", "signal", "Some("] {
        if text.contains(wrong) {
            problem(wrong);
        }
    }
    assert!(text.chars().count() <= SENTENCE_CHARS_MAX, "{text}");
}

pub(super) fn assert_whole(answer: &Answer) {
    [&answer.what, &answer.why, &answer.next].into_iter().for_each(|text| assert_complete(text));
}

/// Checks that an answer has a value of the evidence of its verdict.
pub(super) fn assert_shows_evidence(run: &Run, rule: &VerdictRule, answer: &Answer) {
    let text = format!("{} {}", answer.what, answer.why);
    let view = RunView::new(run);
    let criteria = rule.required.iter().chain(rule.any_of).chain(rule.supporting);
    let values = criteria
        .filter_map(|criterion| Some(format_value((criterion.signal.read)(&view)?, criterion.signal.unit)));
    let shown: Vec<String> = values.collect();
    assert!(shown.iter().any(|value| text.contains(value.as_str())), "{}: {shown:?} in {text}", rule.code);
}

#[test]
fn every_verdict_has_complete_sentences_whatever_is_observable() {
    let observed = run(64, 20 * MS);
    let mut limited = run(64, 20 * MS);
    limited.baseline =
        Some(Baseline { good: 100, requests: 100, mean_ns: 2e6, p50_ns: 2_000_000, ..Baseline::default() });
    let mut unobserved = run(64, 20 * MS);
    unobserved.observed.clear();
    let mut empty = unobserved.clone();
    (empty.totals, empty.rates) = (RunTotals::default(), Rates::default());
    for run in [&observed, &limited, &unobserved, &empty] {
        let view = RunView::new(run);
        for rule in VERDICTS {
            let answer = (rule.answer)(&Facts { view: &view });
            assert_whole(&answer);
            assert!(answer.what != answer.why && answer.next.len() > 20, "{answer:?}");
        }
    }
    // No two verdicts say the same. Without stolen time, cpu_steal speaks of other programs, for older records.
    let view = RunView::new(&limited);
    let observable =
        VERDICTS.iter().filter(|rule| rule.not_observable.is_empty() && rule.code != "cpu_steal");
    let texts: std::collections::BTreeSet<String> =
        observable.clone().map(|rule| (rule.answer)(&Facts { view: &view }).what).collect();
    assert_eq!(texts.len(), observable.count());
}

/// A semaphore of eight that each request holds for 5.6 ms, under 64 connections.
pub(super) fn semaphore() -> Run {
    let mut run = run(64, 44_800_000);
    run.baseline = Some(Baseline {
        good: 150,
        requests: 150,
        mean_ns: 5_300_000.0,
        p50_ns: 5_300_000,
        ..Baseline::default()
    });
    change_samples(&mut run, |sample| {
        sample.roles[1].threads_asleep = Some([("futex_do_wait".to_owned(), 7.5)].into());
    });
    run
}

/// A pool of 5 threads that pause for 8 ms; the kernel holds each body back until the head is acknowledged.
fn pool_behind_two_writes() -> Run {
    let mut run = run(48, 76 * MS);
    run.baseline = Some(Baseline {
        good: 20,
        requests: 20,
        mean_ns: 49_000_000.0,
        p50_ns: 49_000_000,
        ..Baseline::default()
    });
    let first_byte = &mut run.latency.first_byte.service;
    (first_byte.p50_ns, first_byte.mean_ns) = (35 * MS, 35e6);
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.not_sent_bytes = 40_000);
    run
}

#[test]
fn a_body_that_waits_for_an_acknowledgement_occupies_no_worker() {
    let run = pool_behind_two_writes();
    assert_first(&run, "subject_limited");
    let answer = crate::answer(&run);
    // Of 49 ms alone, about 41 ms are the wait: too inexact for the number of slots.
    assert_eq!(answer.what, "Requests queue at your service: 632/s is its ceiling.");
    for (text, part) in
        [(&answer.why, "between head and body, 54 % of the latency"), (&answer.next, "TCP_NODELAY")]
    {
        assert!(text.contains(part), "{text}");
    }
    assert_whole(&answer);
    let why = &answer.why;
    assert!(why.contains("77 % of the time until the first byte is waiting"), "{why}");
    // The bytes that wait are in its sockets, too; but without the stall requests would queue for as long.
    let mut seen = run.clone();
    set_counter(&mut seen, "TcpExt.DelayedACKs", 600.0);
    assert_first(&seen, "subject_limited");
    let free = || Some(Baseline { mean_ns: 68e6, p50_ns: 68 * MS, ..run.baseline.clone().unwrap() });
    assert_first(&Run { baseline: free(), ..seen }, "delayed_ack_stall");
    // A body that takes as long for another reason is work: of another length, or without bytes that wait.
    let mut stream = run.clone();
    change_ends(&mut stream, ConnectionEnd::Server, |_, ends| ends.not_sent_bytes = 0);
    let streamed = crate::answer(&stream);
    assert!(
        !streamed.what.contains("queue at your service") && !streamed.next.contains("TCP_NODELAY"),
        "{streamed:?}"
    );
    let mut transfer = run.clone();
    transfer.latency.first_byte.service.p50_ns = 20 * MS;
    let what = crate::answer(&transfer).what;
    assert!(!what.contains("queue at your service"), "{what}");
}

#[test]
fn a_first_thread_that_waits_for_event_loops_is_not_what_they_sleep_on() {
    let asleep_for_a_lock = |threads: f64| {
        let mut run = semaphore();
        change_samples(&mut run, |sample| {
            let sleeps = [("do_epoll_wait".to_owned(), 1.9), ("futex_do_wait".to_owned(), threads)];
            sample.roles[1].threads_asleep = Some(sleeps.into());
        });
        crate::answer(&run).why.contains("futex_do_wait")
    };
    assert!(!asleep_for_a_lock(0.1));
    assert!(asleep_for_a_lock(2.0));
}

#[test]
fn the_limit_of_a_semaphore_is_a_number_of_requests_at_a_time() {
    let mut run = semaphore();
    assert_first(&run, "subject_limited");
    let answer = crate::answer(&run);
    assert_eq!(
        answer.what,
        "Your service works on 8 requests at a time, 5.60 ms each: 1.43 k/s is its ceiling."
    );
    for part in ["5.30 ms alone", "44.8 ms with 64 in flight", "88 %", "`futex_do_wait`"] {
        assert!(answer.why.contains(part), "{part}: {}", answer.why);
    }
    assert!(answer.next.contains("179/s") && answer.next.contains("futex_do_wait"), "{}", answer.next);
    // The result of a test is a part of the reason.
    let mut diagnosis = diagnose(&run);
    diagnosis.confirmation = Some(Confirmation {
        verdict: "subject_limited".to_owned(),
        perturbation: "twice the connections".to_owned(),
        measured: "throughput × 1.01 (0.99..1.02): 1.4 k".to_owned(),
        confirmed: true,
        ..Confirmation::default()
    });
    run.diagnosis = Some(diagnosis);
    let confirmed = crate::answer(&run).why;
    assert!(
        confirmed.ends_with("Tested: with twice the connections the throughput was × 1.01: confirmed."),
        "{confirmed}"
    );
    assert_eq!(crate::ceiling(&run).unwrap().slots, Some(8.0));
}

#[test]
fn a_limit_of_time_is_not_one_of_slots() {
    let mut run = semaphore();
    run.baseline.as_mut().unwrap().mean_ns = 200_000.0;
    run.baseline.as_mut().unwrap().p50_ns = 200_000;
    let answer = crate::answer(&run);
    assert!(answer.what.contains("wait for time to pass") && answer.what.contains("200 µs"), "{answer:?}");
    assert!(answer.next.starts_with("Raise or remove the rate limit"), "{answer:?}");
}

#[test]
fn a_remote_subject_is_described_by_its_clients_figures_and_the_command_that_tells_more() {
    let mut run = semaphore();
    let observed = &mut run.observed[0];
    observed.roles.truncate(1);
    observed.ports[0].served_by = None;
    for sample in &mut observed.samples {
        sample.roles.truncate(1);
    }
    for snapshot in &mut observed.queues {
        snapshot.listeners.clear();
        snapshot.ends.retain(|ends| ends.end == ConnectionEnd::Client);
    }
    assert_first(&run, "unknown");
    let answer = crate::answer(&run);
    assert_whole(&answer);
    assert!(answer.what.starts_with("The server works on 8 requests at a time, 5.60 ms each"), "{answer:?}");
    for part in ["88 %", "20.0 µs", "no request failed", "only the server can tell"] {
        assert!(answer.why.contains(part), "{part}: {}", answer.why);
    }
    assert!(answer.next.contains("weir watch --json"), "{answer:?}");
    // A request that takes as long as alone shows no limit.
    run.baseline.as_mut().unwrap().mean_ns = 44e6;
    run.baseline.as_mut().unwrap().p50_ns = 44_000_000;
    let answer = crate::answer(&run);
    assert!(answer.what.contains("was not full") && answer.what.contains("64 connections"), "{answer:?}");
}

#[test]
fn an_origin_that_ended_with_the_run_is_no_next_target() {
    let mut run = run(4, MS);
    run.rates.offered_per_s = Some(run.rates.responses_per_s);
    run.plan["requests"] = serde_json::json!([{ "url": "http://host/x" }]);
    run.diagnosis = Some(Diagnosis { verdict: "none".to_owned(), ..Default::default() });
    let own = crate::answer(&run).next;
    assert!(own.contains("`weir edge http://host/x`") && own.contains("without `-R`"), "{own}");
    run.plan["has_embedded_origin"] = true.into();
    let embedded = crate::answer(&run).next;
    assert!(embedded.contains("`weir edge URL`") && !embedded.contains("http://"), "{embedded}");
}

#[test]
fn a_server_that_sends_by_itself_is_described_by_its_events() {
    let mut run = run(4, MS);
    let mut gap = LatencyHistogram::new();
    gap.record(20_000_000);
    run.event_stream = Some(record::run::EventStreamTotals {
        events: 5_000,
        events_per_s: 500.0,
        numbered: 5_000,
        lost: 3,
        duplicated: 0,
        reordered: 0,
        ended: 0,
        resumed: 0,
        retry_ms: None,
        faults: Default::default(),
        gap: gap.summary(),
    });
    let answer = crate::answer(&run);
    assert_whole(&answer);
    assert!(answer.what.contains("5.00 k events (500/s) to 4 subscribers"), "{answer:?}");
    assert!(answer.why.contains("the gap between two was 20") && answer.why.contains("3"), "{answer:?}");
    assert!(answer.next.contains("subscribers"), "{answer:?}");
    // Without an event it is an ordinary load.
    run.event_stream.as_mut().unwrap().events = 0;
    assert!(!crate::answer(&run).what.contains("subscribers"));
}

#[test]
fn missing_pages_are_no_failed_requests() {
    let mut run = run(4, MS);
    run.totals.status = [(404, 935)].into();
    (run.totals.requests, run.totals.responses) = (935, 935);
    (run.totals.good, run.totals.bad) = (Some(0), Some(935));
    run.plan["requests"] = serde_json::json!([{ "url": "http://host/x" }]);
    assert_first(&run, "run_invalid");
    let answer = crate::answer(&run);
    assert!(answer.what.contains("404") && answer.why.contains("404: 935"), "{answer:?}");
    assert!(
        answer.next.contains("--expect-status 404") && answer.next.contains("http://host/x"),
        "{answer:?}"
    );
    assert!(!format!("{answer:?}").contains("failed"), "{answer:?}");
}

#[test]
fn an_invalid_run_is_repeated_first() {
    let mut run = semaphore();
    run.validity = Validity::from_reasons(vec![record::validity::ValidityReason {
        code: "generator_stalled".to_owned(),
        verdict: ValidityLevel::Invalid,
        text: "the generator did not run for 2 s".to_owned(),
    }]);
    let next = crate::answer(&run).next;
    assert!(next.starts_with("First repeat the run") && next.contains("did not run for 2 s"), "{next}");
}

/// Puts connections into the accept queue of the subject in every snapshot.
fn set_waiting(run: &mut Run, waiting: u32) {
    for snapshot in &mut run.observed[0].queues {
        snapshot.listeners[0].waiting = waiting;
    }
}

#[test]
fn connections_that_are_never_accepted_are_the_limit() {
    // 20 of 64 connections are served, 5 ms each; the requests on the others time out.
    let mut run = run(20, 5 * MS);
    run.totals.connections.requested = 64;
    run.totals.connections.opened = 64 + 88;
    run.totals.errors.insert("timeout".to_owned(), 88);
    run.totals.requests += 88;
    run.totals.timeouts_by_phase.insert("first_byte".to_owned(), 88);
    run.plan["max_error_rate"] = 0.001.into();
    set_waiting(&mut run, 44);
    let verdict = |run: &mut Run, code: &str| {
        run.diagnosis = Some(Diagnosis { verdict: code.to_owned(), ..Default::default() });
        let answer = crate::answer(run);
        assert_whole(&answer);
        answer
    };
    for code in ["run_invalid", "unknown", "subject_limited", "none"] {
        let answer = verdict(&mut run, code);
        assert!(answer.what.contains("only 20 of the 64 connections"), "{code}: {answer:?}");
        assert!(
            answer.what.contains("88 requests failed") && answer.why.contains("44 connections"),
            "{answer:?}"
        );
        assert!(answer.next.contains("64 or more") && answer.next.contains("-c 20"), "{answer:?}");
    }
    // Another cause keeps its sentences, and the connections are beside it.
    let other = verdict(&mut run, "single_thread_bound");
    assert!(other.what.contains("One thread") && other.why.contains("44 of the 64 connections"), "{other:?}");
    // Responses that fail for another reason are not those of connections that wait.
    let mut refused = run.clone();
    refused.totals.errors = [("closed".to_owned(), 88)].into();
    assert!(!verdict(&mut refused, "run_invalid").what.contains("only 20"));
    // A connection for each request waits shortly to be accepted, which is no limit.
    run.totals.connections.opened = run.totals.requests;
    assert!(!verdict(&mut run, "unknown").what.contains("only 20"));
}

#[test]
fn a_service_that_stopped_in_the_run_is_told_from_one_that_was_never_there() {
    let mut run = run(4, MS);
    run.diagnosis = Some(Diagnosis { verdict: "run_invalid".to_owned(), ..Default::default() });
    run.totals.errors = [("refused".to_owned(), run.totals.requests)].into();
    let stopped = crate::answer(&run);
    assert_whole(&stopped);
    assert!(stopped.next.contains("again"), "some had a good response: {stopped:?}");
    run.totals.responses = 0;
    run.totals.status.clear();
    let never = crate::answer(&run).next;
    assert!(!never.contains("again") && never.contains("correct the address"), "{never}");
}

#[test]
fn a_response_that_is_paced_is_described_by_its_bytes_per_second() {
    let mut run = run(16, 400 * MS);
    run.latency.first_byte.service.mean_ns = 4e6;
    run.rates.bytes_in_per_s = run.rates.responses_per_s * 200_000.0;
    assert_first(&run, "latency_bound");
    let answer = crate::answer(&run);
    assert!(answer.why.contains("99 % of that passes between the first and the last byte"), "{answer:?}");
    assert!(
        answer.why.contains("KiB/s on each connection") && answer.next.contains("bytes per second"),
        "{answer:?}"
    );
    // A small response is not paced, and the wait before the first byte is not its transfer.
    run.rates.bytes_in_per_s = run.rates.responses_per_s * 200.0;
    assert!(!crate::answer(&run).why.contains("last byte"));
    run.rates.bytes_in_per_s *= 1000.0;
    run.latency.first_byte.service.mean_ns = 390e6;
    assert!(!crate::answer(&run).why.contains("last byte"));
}

#[test]
fn late_sends_are_those_of_the_generator() {
    let mut run = run(20, 2 * MS);
    run.plan["pace"] = serde_json::json!({"loop": "open", "rate_per_s": 1000.0});
    run.rates = Rates { responses_per_s: 1_000.0, offered_per_s: Some(1_000.0), ..run.rates };
    run.diagnosis = Some(Diagnosis { verdict: "unknown".to_owned(), ..Default::default() });
    run.latency.last_byte.response.p99_ns *= 30;
    assert!(crate::answer(&run).what.contains("many requests late"));
    run.validity = Validity::from_reasons(vec![record::validity::ValidityReason {
        code: "send_lag".to_owned(),
        verdict: ValidityLevel::Invalid,
        text: "sends were late".to_owned(),
    }]);
    let answer = crate::answer(&run);
    assert_whole(&answer);
    assert!(answer.what.contains("this load generator sent many of the requests late"), "{answer:?}");
    run.latency.last_byte.response.p99_ns = run.latency.last_byte.service.p99_ns;
    assert!(!crate::answer(&run).what.contains("generator"));
}

#[test]
fn a_service_that_ends_connections_is_told_to_keep_them() {
    let mut run = run(32, 4 * MS);
    set_subject_cpus(&mut run, 0.3, 1.5, 4);
    let kept = crate::answer(&run);
    assert!(!kept.next.contains("keep-alive in your service"), "{kept:?}");
    (run.totals.connections.requested, run.totals.connections.opened) = (32, run.totals.requests);
    let ended = crate::answer(&run);
    assert_whole(&ended);
    assert!(ended.why.contains("it ends connections: "), "{ended:?}");
    assert!(ended.next.starts_with("Turn on keep-alive in your service"), "{ended:?}");
    // The load ends them itself.
    run.plan["requests_per_connection"] = 1.into();
    assert!(!crate::answer(&run).next.contains("keep-alive in your service"));
}

#[test]
fn a_tail_of_its_own_is_named_although_no_limit_was_reached() {
    let mut run = run(20, 2 * MS);
    run.rates.offered_per_s = Some(run.rates.responses_per_s);
    run.plan["pace"]["loop"] = "open".into();
    run.diagnosis = Some(Diagnosis { verdict: verdicts::NONE.to_owned(), ..diagnose(&run) });
    let even = crate::answer(&run);
    assert!(even.what.ends_with("no limit was reached."), "{even:?}");
    (run.latency.last_byte.response.p50_ns, run.latency.last_byte.response.p99_ns) = (500_000, 143_000_000);
    let uneven = crate::answer(&run);
    assert_whole(&uneven);
    assert!(
        uneven.what.contains("1 % of the responses took 143 ms or more, and the median 500 µs"),
        "{uneven:?}"
    );
    assert!(uneven.next.contains("garbage collection"), "{uneven:?}");
    run.validity.verdict = ValidityLevel::Invalid;
    assert!(!crate::answer(&run).what.contains("median"));
}

#[test]
fn requests_that_found_no_connection_in_time_ask_for_less_load() {
    let mut run = run(20, 2 * MS);
    run.totals.errors = [("too_late".to_owned(), 182_924), ("timeout".to_owned(), 225)].into();
    run.rates.offered_per_s = Some(50_000.0);
    run.diagnosis = Some(Diagnosis { verdict: "run_invalid".to_owned(), ..diagnose(&run) });
    let answer = crate::answer(&run);
    assert_whole(&answer);
    assert!(answer.what.contains("no free connection in time, because 50.0 k/s were offered"), "{answer:?}");
    assert!(answer.next.contains("Offer less than") && answer.next.contains("weir edge"), "{answer:?}");
}
