//! Tests of the default summary.

use record::facts::HostFacts;
use record::histogram::LatencyHistogram;
use record::run::ObjectiveResult;
use record::run::{
    Confidence, Diagnosis, GeneratorCpu, GeneratorStats, LatencyPair, MeasuredWindow, PhaseLatencies, Rates,
    RunTotals, SCHEMA, TlsSessions, WeirVersion,
};
use record::validity::{Validity, ValidityReason};

use super::*;

pub(crate) mod contradictions;
pub(crate) mod intervals;

/// A run with every kind of line that a record may have, and long texts.
pub(crate) fn run_with_everything() -> Run {
    let mut histogram = LatencyHistogram::new();
    (1..2000).for_each(|number: u64| histogram.record(number * number * 1000));
    let pair = LatencyPair { service: histogram.summary(), response: histogram.summary() };
    let latency = PhaseLatencies {
        connect: pair.clone(),
        tls_handshake: Some(pair.clone()),
        tls_full: None,
        tls_resumed: None,
        first_byte: pair.clone(),
        last_byte: pair.clone(),
        last_byte_bad: Some(pair),
    };
    let request = |number| serde_json::json!({"method": "GET", "url": format!("http://host/{number}/{}", "x".repeat(90))});
    let reason = |code: &str| ValidityReason {
        code: code.to_owned(),
        verdict: ValidityLevel::Invalid,
        text: "a long text ".repeat(12),
    };
    let objective =
        |text: &str, met| ObjectiveResult { text: text.to_owned(), met, value: 6e6, validity: None };
    Run {
        schema: SCHEMA.to_owned(),
        weir: WeirVersion::default(),
        command: Vec::new(),
        started_at: String::new(),
        identities: Vec::new(),
        duration_s: 10.0,
        partial: false,
        check_samples: Vec::new(),
        rate_changes: Vec::new(),
        stages: Vec::new(),
        requests: Vec::new(),
        host: HostFacts::default(),
        plan: serde_json::json!({
            "connections": 1000, "threads": 16, "requests": [request(1), request(2), request(3)],
            "pace": {"loop": "open", "rate_per_s": 28_000.0, "arrivals": "poisson"},
        }),
        validity: Validity::from_reasons(["a", "b", "c", "d", "e"].map(reason).to_vec()),
        objectives: ["p50<1ms", "p99<5ms", "max<1s"].map(|text| objective(text, text == "p50<1ms")).to_vec(),
        totals: totals_with_everything(),
        rates: Rates {
            responses_per_s: 27_900.0,
            goodput_per_s: Some(27_000.0),
            offered_per_s: Some(28_000.0),
            bytes_in_per_s: 1_468_006.4,
            ..Rates::default()
        },
        window: MeasuredWindow::default(),
        latency,
        http2: None,
        websocket: None,
        event_stream: None,
        transport: None,
        tls: Some(TlsSessions {
            version: Some("TLSv1.2".to_owned()),
            cipher_suite: Some("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256".to_owned()),
            mixed: true,
            full: 10,
            resumed: 90,
            failed: 3,
            ..TlsSessions::default()
        }),
        generator: GeneratorStats::default(),
        baseline: None,
        cpu: GeneratorCpu::default(),
        intervals: Vec::new(),
        observed: Vec::new(),
        fleet: None,
        answer: None,
        comparison: None,
        diagnosis: Some(Diagnosis {
            verdict: "kernel_cpu_bound".to_owned(),
            claim: "the claim ".repeat(15),
            confidence: Confidence::Sure,
            evidence: vec!["the evidence ".repeat(10); 4],
            ruled_out: vec!["something else".to_owned()],
            ..Diagnosis::default()
        }),
    }
}

fn totals_with_everything() -> RunTotals {
    let mut totals = RunTotals {
        requests: 100_000,
        good: Some(90_000),
        bad: Some(10_000),
        status: (200..220).map(|status| (status, u64::from(status))).collect(),
        errors: (0..9).map(|kind| (format!("kind_{kind}"), 10 + kind)).collect(),
        timeouts_by_phase: [("first_byte".to_owned(), 4)].into(),
        timeout_age_ns: Some((5_000_000_000, 5_100_000_000)),
        dropped: 12,
        unfinished: 3,
        ..RunTotals::default()
    };
    totals.connections.requested = 1000;
    totals.connections.lost = 5;
    totals
}

/// The page of a record in a width.
fn page(run: &Run, width: usize) -> String {
    short_summary(run, false, width)
}

#[test]
fn the_default_summary_wraps_and_is_never_cut() {
    for width in [60, 80, 100, 140] {
        let text = page(&run_with_everything(), width);
        for line in text.lines().filter(|line| !line.contains("http://")) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        // Words of the longest texts, which a page of one line each would cut.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "and 2 more in the record",
            "1000 connections, 16 threads, open loop 28.0 k/s poisson, 10.0 s",
            "90000 good (27.0 k/s), 10000 bad; 28.0 k/s offered; 1.40 MiB/s in",
            "219: 219, 218: 218, 217: 217, 216: 216 and 16 more in the record",
            "kind_8 18, kind_7 17, kind_6 16, kind_5 15 and 5 more in the record",
            "p99<5ms: MISSED (6.00 ms)",
            "INVALID (and 2 more in the record)",
            "bottleneck kernel_cpu_bound (sure)",
        ] {
            assert!(words.contains(part), "{part}\n{text}");
        }
        // Three reasons, and the first once more in the answer.
        assert_eq!(words.matches("a long text").count(), 4 * 12, "{text}");
        assert!(!text.contains('…'), "{text}");
    }
}

#[test]
fn rate_and_percentiles_come_first_and_then_the_answer() {
    let run = run_with_everything();
    let text = page(&run, 100);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("27.0 k/s, p50 ") && lines[0].contains(", p99 "), "{text}");
    assert!(
        lines[1].is_empty() && lines[2].starts_with("what         Your service uses up its CPU"),
        "{text}"
    );
    assert!(
        text.find("\nwhy ") < text.find("\nnext ") && text.find("\nnext ") < text.find("\nload "),
        "{text}"
    );
    let brief = summary(&run, Detail::Brief, false);
    assert!(brief.starts_with(lines[0]) && brief.lines().count() == 1, "{brief}");
}

#[test]
fn equal_latencies_are_one_row() {
    let run = run_with_everything();
    assert!(page(&run, 100).contains("\nresponse  "), "{}", page(&run, 100));
    let mut differing = run;
    differing.latency.last_byte.service.p99_ns /= 2;
    let text = page(&differing, 100);
    assert!(text.contains("\nresponse (from due) ") && text.contains("\nservice (from send) "), "{text}");
}

/// Returns records with different figures: each verdict of the catalogue, with and without errors, in both loops.
pub(crate) fn generated_records() -> Vec<Run> {
    let codes: Vec<&str> =
        diagnose::verdicts::VERDICTS.iter().map(|rule| rule.code).chain(["none", "unknown"]).collect();
    let mut records = Vec::new();
    for (number, code) in codes.iter().cycle().take(210).enumerate() {
        let mut run = run_with_everything();
        let at = number as u64;
        let bad = if at.is_multiple_of(3) { at * 7 } else { 0 };
        run.totals.bad = Some(bad);
        run.totals.good = Some(1_000 + at * 13);
        run.totals.errors =
            if at.is_multiple_of(4) { [("timeout".to_owned(), at + 1)].into() } else { [].into() };
        if run.totals.errors.is_empty() {
            (run.totals.timeout_age_ns, run.totals.unfinished) = (None, 0);
            run.totals.timeouts_by_phase.clear();
        }
        run.totals.requests = 1_000 + at * 13 + bad + run.totals.failed();
        run.totals.responses = run.totals.requests - run.totals.failed();
        run.totals.status =
            [(200, 1_000 + at * 13), (404, bad)].into_iter().filter(|(_, n)| *n > 0).collect();
        run.rates.goodput_per_s = Some(3.7 * (at * at + 1) as f64);
        run.rates.responses_per_s = 3.7 * (at * at + 1) as f64;
        if at.is_multiple_of(2) {
            run.rates.offered_per_s = None;
            run.plan["pace"] = serde_json::json!({ "loop": "closed", "think_ns": 0 });
        }
        if !at.is_multiple_of(5) {
            run.baseline =
                Some(record::run::Baseline { good: 50, mean_ns: 1e5, p50_ns: 90_000, ..Default::default() });
        }
        let queueing_fraction = diagnose::diagnose(&run).queueing_fraction;
        let diagnosis = run.diagnosis.as_mut().unwrap();
        (*code).clone_into(&mut diagnosis.verdict);
        diagnosis.queueing_fraction = queueing_fraction;
        records.push(run);
    }
    records
}

/// Returns the records that are stored in this tree.
pub(crate) fn stored_records() -> Vec<Run> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/run_record");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    // A directory of records that are too large for this tree.
    let more = std::env::var_os("WEIR_STORED_RECORDS").map(std::fs::read_dir);
    let more = more.into_iter().flatten().flatten().map(|entry| entry.unwrap().path());
    files.chain(more).filter_map(|file| record::file::read_run(&file).ok()).collect()
}

/// Adds an earlier run with its comparison to each record: the same with other figures, and a condition of each kind.
pub(crate) fn compared(mut run: Run, number: usize) -> (Run, String) {
    let mut earlier = run.clone();
    let factor = [0.5, 0.97, 1.0, 1.02, 1.6][number % 5];
    let seconds = |factor: f64| -> Vec<record::run::Interval> {
        let second = |second: u32| {
            let swing = 1.0 + f64::from(second % 3) * [0.01, 0.2, 1.5][number % 3];
            record::run::Interval {
                time_s: f64::from(second),
                length_s: 1.0,
                responses: (1000.0 * factor * swing) as u64,
                p50_ns: Some((2e6 * swing / factor) as u64),
                p99_ns: Some((8e6 * swing / factor) as u64),
                measured: true,
                ..Default::default()
            }
        };
        (1..12).map(second).collect()
    };
    (earlier.intervals, run.intervals) = (seconds(1.0), seconds(factor));
    earlier.latency.last_byte.response.p99_ns = (8e6 * factor) as u64;
    for run in [&mut earlier, &mut run].into_iter().filter(|_| !number.is_multiple_of(4)) {
        run.validity = Validity::from_reasons(Vec::new());
    }
    let conditions = ["p99>+10%", "rate<-5%", "p50>+50%", "errors>+1%"];
    let conditions: Vec<_> =
        conditions.iter().flat_map(|text| crate::RegressionCondition::parse_list(text).unwrap()).collect();
    let comparison = crate::RunComparison::new(&earlier, &run, &conditions);
    run.comparison = Some(comparison.record("earlier.json"));
    (run, comparison.text())
}

#[test]
fn no_comparison_contradicts_the_run_or_its_own_intervals() {
    let mut outcomes = std::collections::BTreeSet::new();
    for (number, run) in generated_records().into_iter().chain(stored_records()).enumerate() {
        let (run, text) = compared(run, number);
        let found = contradictions::check_comparison(&text, &run);
        assert!(found.is_empty(), "{found:?}\n{text}");
        let stored = run.comparison.iter().flat_map(|comparison| &comparison.conditions);
        outcomes.extend(stored.map(|condition| format!("{:?}", condition.decision)));
    }
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
}

#[test]
fn no_page_contradicts_itself() {
    let mut pages = 0;
    for run in generated_records().iter().chain(&stored_records()) {
        let wide = [70, 80, 100, 150].map(|width| page(run, width));
        for text in wide.into_iter().chain([summary(run, Detail::Verbose, false)]) {
            let found = contradictions::contradictions(&text, run);
            assert!(found.is_empty(), "{found:?}\n{text}");
            pages += 1;
        }
    }
    assert!(pages >= 1_000, "{pages}");
}

#[test]
fn the_checker_finds_contradictions() {
    let run = generated_records().remove(1);
    let text = page(&run, 100);
    assert_eq!(contradictions::contradictions(&text, &run), Vec::<String>::new());
    let rate = text.split(',').next().unwrap();
    for (from, to) in [
        (format!("({rate})"), "(1.23 k/s)".to_owned()),
        (", p99 ".to_owned(), ", p99 1".to_owned()),
        ("no failures".to_owned(), "3 failed requests".to_owned()),
        ("\nerrors       none".to_owned(), "\nerrors       timeout 5".to_owned()),
        ("\nwhat         ".to_owned(), "\nwhat         The text…  ".to_owned()),
    ] {
        let wrong = text.replacen(&from, &to, 1);
        assert_ne!(wrong, text, "{from}");
        assert!(!contradictions::contradictions(&wrong, &run).is_empty(), "{from}: {wrong}");
    }
}

#[test]
fn the_verbose_summary_has_what_the_default_leaves_out() {
    let run = run_with_everything();
    let text = summary(&run, Detail::Verbose, false);
    for part in
        ["connect", "tls handshake", "first byte", "in flight", "CPUs  ", "ruled out    something else"]
    {
        assert!(text.contains(part), "{part}\n{text}");
        assert!(!page(&run, 100).contains(&format!("\n{part}")), "{part}");
    }
}

#[test]
fn the_line_of_tls_names_the_sessions_and_the_handshakes() {
    let mut run = run_with_everything();
    assert!(page(&run, 100).contains("\ntls          TLSv1.2, TLS_ECDHE_ECDSA_WITH_"));
    run.tls = Some(TlsSessions {
        version: Some("TLSv1.3".to_owned()),
        cipher_suite: Some("TLS_AES_128_GCM_SHA256".to_owned()),
        full: 1,
        resumed: 99,
        ..TlsSessions::default()
    });
    let line = "\ntls          TLSv1.3, TLS_AES_128_GCM_SHA256, 1 full and 99 resumed handshakes\n";
    for detail in [Detail::Default, Detail::Verbose] {
        let text = summary(&run, detail, false);
        assert!(text.contains(line), "{text}");
    }
    run.tls = Some(TlsSessions { failed: 3, ..TlsSessions::default() });
    let text = page(&run, 100);
    assert!(
        text.contains("\ntls          no session, 0 full and 0 resumed handshakes, 3 failed\n"),
        "{text}"
    );
    run.tls = None;
    assert!(!page(&run, 100).contains("\ntls "));
}

#[test]
fn colours_change_no_other_text() {
    let run = run_with_everything();
    let coloured = short_summary(&run, true, 100);
    assert!(coloured.contains("\x1b[1;31mINVALID\x1b[0m"), "{coloured}");
    let plain = coloured.replace("\x1b[1;31m", "").replace("\x1b[1;32m", "").replace("\x1b[0m", "");
    assert_eq!(plain, page(&run, 100));
}

#[test]
fn the_plan_tells_random_think_times_and_changed_rates() {
    let mut run = run_with_everything();
    run.plan = serde_json::json!({
        "connections": 2, "threads": 1, "think": "exponential",
        "pace": { "loop": "closed", "think_ns": 50_000_000 }
    });
    assert!(format_plan(&run).contains("closed loop, exponential 50.0 ms think time, "));
    run.plan["think"] = serde_json::json!({ "log_normal": { "sigma": 0.5 } });
    assert!(format_plan(&run).contains("closed loop, log-normal 50.0 ms think time, "));
    run.plan["pace"] = serde_json::json!({ "loop": "open", "rate_per_s": 100.0, "arrivals": "constant" });
    assert!(format_plan(&run).contains("open loop 100/s constant, "));
    assert!(!format_plan(&run).contains("changed"));
    run.rate_changes.push(record::run::RateChange { time_s: 1.0, factor: 1.1 });
    assert!(format_plan(&run).contains("open loop 100/s constant, then changed, "));
}
