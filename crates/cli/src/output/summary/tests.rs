//! Tests of the default summary.

use record::facts::HostFacts;
use record::histogram::LatencyHistogram;
use record::run::{
    Confidence, Diagnosis, GeneratorCpu, GeneratorStats, LatencyPair, MeasuredWindow, PhaseLatencies, Rates,
    RunTotals, SCHEMA, TlsSessions, WeirVersion,
};
use record::validity::{Validity, ValidityReason};

use super::*;

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
        verdict: ValidityVerdict::Invalid,
        text: "a long text ".repeat(12),
    };
    let objective = |text: &str, met| ObjectiveResult { text: text.to_owned(), met, value: 6e6 };
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

#[test]
fn the_default_summary_fits_25_lines_of_80_columns() {
    let text = summary(&run_with_everything(), false, false);
    assert!(text.lines().count() <= 25, "{} lines\n{text}", text.lines().count());
    // The line about the embedded origin, which has no TLS, is printed before.
    let plain = summary(&Run { tls: None, ..run_with_everything() }, false, false);
    assert!(plain.lines().count() < 25, "{} lines\n{plain}", plain.lines().count());
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    for part in [
        "and 2 more in the record",
        "1000 connections, 16 threads, open loop 28.0 k/s poisson, 10.0 s",
        "90000 good (27.0 k/s), 10000 bad; 28.0 k/s offered; 1.40 MiB/s in",
        "status       219: 219, 218: 218, 217: 217, 216: 216 and 16 more in the record",
        "errors       kind_8 18, kind_7 17, kind_6 16, kind_5 15 and 5 more in the record",
        "objective    p99<5ms: MISSED (6.00 ms)",
        "verdict      INVALID (and 2 more in the record)",
        "bottleneck   kernel_cpu_bound (sure): the claim",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(text.ends_with(&format!("{MORE}\n")));
}

#[test]
fn the_verbose_summary_has_what_the_default_leaves_out() {
    let run = run_with_everything();
    let text = summary(&run, true, false);
    for part in
        ["connect", "tls handshake", "first byte", "in flight", "CPUs  ", "ruled out    something else"]
    {
        assert!(text.contains(part), "{part}\n{text}");
        assert!(!summary(&run, false, false).contains(&format!("\n{part}")), "{part}");
    }
}

#[test]
fn the_line_of_tls_names_the_sessions_and_the_handshakes() {
    let mut run = run_with_everything();
    assert!(summary(&run, false, false).contains("\ntls          TLSv1.2, TLS_ECDHE_ECDSA_WITH_"));
    run.tls = Some(TlsSessions {
        version: Some("TLSv1.3".to_owned()),
        cipher_suite: Some("TLS_AES_128_GCM_SHA256".to_owned()),
        full: 1,
        resumed: 99,
        ..TlsSessions::default()
    });
    let line = "\ntls          TLSv1.3, TLS_AES_128_GCM_SHA256, 1 full and 99 resumed handshakes\n";
    for is_verbose in [false, true] {
        let text = summary(&run, is_verbose, false);
        assert!(text.contains(line), "{text}");
    }
    run.tls = Some(TlsSessions { failed: 3, ..TlsSessions::default() });
    let text = summary(&run, false, false);
    assert!(
        text.contains("\ntls          no session, 0 full and 0 resumed handshakes, 3 failed\n"),
        "{text}"
    );
    run.tls = None;
    assert!(!summary(&run, false, false).contains("\ntls "));
}

#[test]
fn colours_change_no_other_text() {
    let run = run_with_everything();
    let coloured = summary(&run, false, true);
    assert!(coloured.contains("\x1b[1;31mINVALID\x1b[0m"), "{coloured}");
    let plain = coloured.replace("\x1b[1;31m", "").replace("\x1b[1;32m", "").replace("\x1b[0m", "");
    assert_eq!(plain, summary(&run, false, false));
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
