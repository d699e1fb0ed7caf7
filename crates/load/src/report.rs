//! Conversion of a measurement to the record of a run. Pure: every figure of a record is computed
//! here.

use std::collections::BTreeMap;

use record::facts::HostFacts;
use record::histogram::{HistogramDecodeError, LatencyHistogram, LatencySummary};
use record::run::{
    BackOffTotals, CalibratedCapacity, CheckSample, ConnectionTotals, EventStreamTotals, GeneratorCpu,
    GeneratorStats, Http2Totals, LatencyPair, MeasuredWindow, ObjectiveResult, ParseErrorCount,
    PhaseLatencies, RateChange, Rates, RequestResult, Run, RunIdentity, RunTotals, SCHEMA, StageResult,
    StallTotals, TlsSessions, UndelayedLatency, WebSocketTotals, WeirVersion,
};
use record::sorted::CollectSorted;
use record::units::format_plural;
use record::validity::Validity;

use crate::failure::{FAILURE_KINDS, FailureKind, REQUEST_PHASES};
use crate::malformation::Malformation;
use crate::measurement::RunMeasurement;
use crate::plan::{self, CHECK_NAMES, Http2Plan, ObjectiveFigures, RenderedRequest, WebSocketPlan};
use crate::recorder::{
    self, Counters, ERROR_CODES, HistogramPair, Http2Counters, PhaseHistograms, RequestOutcomes, TlsCounters,
};

/// Data of a record beyond the measurement.
#[derive(Clone, Debug)]
pub struct RecordContext {
    pub weir: WeirVersion,
    pub command: Vec<String>,
    /// Start of the run, RFC 3339.
    pub started_at: String,
    pub identity: RunIdentity,
    pub host: HostFacts,
    /// CPU time, as measured by the host.
    pub cpu: GeneratorCpu,
    /// Fraction of the window that generator threads waited for a CPU.
    pub run_queue_wait_fraction: Option<f64>,
    /// Largest fraction of the window that a generator thread ran or waited for a CPU.
    pub runnable_thread_fraction: Option<f64>,
    /// Calibration that the run is compared with.
    pub calibrated: Option<CalibratedCapacity>,
    pub validity: Validity,
    /// Changes of the rate: the time of the clock in ns, and the factor.
    pub rate_changes: Vec<(u64, f64)>,
}

pub fn build_record(measured: &RunMeasurement, context: RecordContext) -> Run {
    Run {
        schema: SCHEMA.to_owned(),
        weir: context.weir,
        command: context.command,
        started_at: context.started_at,
        identities: vec![context.identity],
        duration_s: measured.load_s,
        partial: measured.partial,
        host: context.host,
        plan: serde_json::to_value(&measured.plan).unwrap_or_default(),
        objectives: evaluate_objectives(measured),
        check_samples: measured.check_samples.iter().map(|sample| check_sample(measured, sample)).collect(),
        rate_changes: rate_changes(measured, &context.rate_changes),
        stages: stages(measured),
        requests: requests(measured),
        totals: totals(&measured.counters, measured.plan.connections),
        rates: rates(measured),
        window: window(measured),
        latency: latency(&measured.latencies),
        tls: measured.plan.tls.as_ref().map(|_| tls_sessions(measured)),
        http2: measured.plan.http2.as_ref().map(|plan| http2_totals(plan, &measured.counters.http2)),
        websocket: measured.plan.websocket.as_ref().map(|plan| websocket_totals(plan, measured)),
        event_stream: measured.plan.sse.then(|| event_stream_totals(measured)),
        transport: measured.transport.as_deref().cloned(),
        baseline: None,
        generator: GeneratorStats {
            run_queue_wait_fraction: context.run_queue_wait_fraction,
            runnable_thread_fraction: context.runnable_thread_fraction,
            busiest_thread_fraction: context.cpu.per_core.iter().copied().reduce(f64::max),
            calibrated: context.calibrated,
            ..generator(measured)
        },
        cpu: context.cpu,
        intervals: measured.intervals.clone(),
        validity: context.validity,
        observed: Vec::new(),
        answer: None,
        comparison: None,
        diagnosis: None,
        fleet: None,
    }
}

pub fn evaluate_objectives(measured: &RunMeasurement) -> Vec<ObjectiveResult> {
    let outcome = ObjectiveFigures {
        latencies: &measured.latencies.last_byte.response,
        not_good: measured.latencies.not_good,
        error_rate: measured.error_rate(),
        goodput_per_s: measured.goodput_per_s(),
    };
    measured.plan.objectives.iter().map(|objective| objective.evaluate(outcome)).collect()
}

/// Returns the objectives of a record's plan, evaluated on its figures.
///
/// # Errors
/// Its histogram cannot be read.
pub fn reevaluate_objectives(run: &Run) -> Result<Vec<ObjectiveResult>, HistogramDecodeError> {
    let latencies = LatencyHistogram::decode(&run.latency.last_byte.response.hdr)?;
    let outcome = ObjectiveFigures {
        latencies: &latencies,
        not_good: run.window.not_good,
        error_rate: run.totals.error_fraction(),
        goodput_per_s: run.goodput_per_s(),
    };
    let texts = run.plan.get("objectives").and_then(serde_json::Value::as_array);
    let texts = texts.into_iter().flatten().filter_map(serde_json::Value::as_str);
    let parsed = texts.flat_map(|text| plan::Objective::parse_list(text).0);
    Ok(parsed.map(|objective| objective.evaluate(outcome)).collect())
}

fn check_sample(measured: &RunMeasurement, sample: &recorder::CheckSample) -> CheckSample {
    let request = measured.plan.requests.get(sample.request);
    CheckSample {
        time_s: sample.at_ns as f64 / 1e9,
        check: sample.check.name().to_owned(),
        request: request.map_or_else(String::new, |request| format!("{} {}", request.method, request.url)),
        status: sample.status,
        body_bytes: sample.body_bytes,
        found: sample.found.clone(),
        body_start: sample.body_start.clone(),
    }
}

fn rate_changes(measured: &RunMeasurement, changes: &[(u64, f64)]) -> Vec<RateChange> {
    let time_s = |at_ns: u64| at_ns.saturating_sub(measured.start_ns) as f64 / 1e9;
    changes.iter().map(|(at_ns, factor)| RateChange { time_s: time_s(*at_ns), factor: *factor }).collect()
}

fn stages(measured: &RunMeasurement) -> Vec<StageResult> {
    let planned = measured.plan.stages.iter().flat_map(|stages| &stages.stages);
    let (mut from_s, mut from_value) = (0.0, 0.0);
    let mut all = Vec::new();
    for (number, ((length_ns, to_value), outcomes)) in (1..).zip(planned.zip(&measured.breakdown.stages)) {
        let to_s = from_s + *length_ns as f64 / 1e9;
        if *length_ns > 0 {
            all.push(StageResult {
                number,
                from_s,
                to_s: to_s.min(measured.load_s.max(from_s)),
                from_value,
                to_value: *to_value,
                good: outcomes.last_byte.response.count(),
                not_good: outcomes.not_good,
                last_byte: latency_pair(&outcomes.last_byte),
            });
        }
        (from_s, from_value) = (to_s, *to_value);
    }
    all
}

fn requests(measured: &RunMeasurement) -> Vec<RequestResult> {
    let requests = measured.plan.requests.iter().zip(&measured.breakdown.requests);
    let result = |(request, outcomes): (&RenderedRequest, &RequestOutcomes)| {
        let checks = CHECK_NAMES.into_iter().zip(outcomes.failed_checks).filter(|(_, count)| *count > 0);
        RequestResult {
            request: format!("{} {}", request.method, request.url),
            good: outcomes.good,
            bad: outcomes.bad,
            failed_checks: checks.map(|(check, count)| (check.to_owned(), count)).collect_map(),
        }
    };
    requests.map(result).collect()
}

fn parse_error((reason, count): (Malformation, u64)) -> (String, ParseErrorCount) {
    (reason.code(), ParseErrorCount { count, text: reason.text() })
}

fn totals(counters: &Counters, requested: u64) -> RunTotals {
    let kinds = FAILURE_KINDS.iter().zip(counters.errors);
    let phases = REQUEST_PHASES.iter().zip(counters.timeouts);
    let nonzero = |(name, count): (&str, u64)| (count > 0).then(|| (name.to_owned(), count));
    let status: BTreeMap<u16, u64> =
        (0..).zip(counters.status.iter().copied()).filter(|(_, count)| *count > 0).collect_map();
    RunTotals {
        requests: counters.requests,
        sent: counters.sent,
        responses: counters.responses,
        good: Some(counters.good()),
        bad: Some(counters.bad()),
        status,
        errors: kinds.filter_map(|((_, name, _), count)| nonzero((name, count))).collect_map(),
        parse_errors: counters.parse_errors.iter().map(parse_error).collect_map(),
        failed_checks: CHECK_NAMES.into_iter().zip(counters.failed_checks).filter_map(nonzero).collect_map(),
        timeouts_by_phase: phases.filter_map(|((_, name), count)| nonzero((name, count))).collect_map(),
        timeout_age_ns: counters.timeout_age_ns,
        dropped: counters.dropped,
        unfinished: counters.errors[FailureKind::Unfinished as usize],
        unfinished_age_ns_max: counters.unfinished_age_ns_max,
        bytes_in: counters.bytes_in,
        body_bytes: counters.body_bytes,
        bytes_out: counters.bytes_out,
        connections: ConnectionTotals {
            requested,
            max_open: counters.obtained,
            opened: counters.opened,
            failed: counters.connect_failed,
            lost: counters.lost,
            closed_idle: counters.closed_idle,
            resent: counters.resent,
        },
    }
}

fn rates(measured: &RunMeasurement) -> Rates {
    let length_s = measured.window_length_s();
    // Without complete seconds the window reaches to the last response, and nothing was due after
    // the end of the load.
    let due_for_s = if measured.has_complete_second { length_s } else { measured.load_s.max(1e-9) };
    let offered = measured.window_due as f64 / due_for_s;
    Rates {
        responses_per_s: measured.responses_per_s(),
        goodput_per_s: Some(measured.goodput_per_s()),
        bytes_in_per_s: measured.window_bytes_in as f64 / length_s,
        offered_per_s: measured.plan.is_open_loop().then_some(offered),
        answered_fraction: measured.answered_fraction(),
    }
}

fn window(measured: &RunMeasurement) -> MeasuredWindow {
    let (from_s, to_s) = measured.window_s;
    let ramp = measured.counters.excluded_ramp;
    let tail = measured.tail_service.count() + measured.tail_not_good;
    let not_good = measured.latencies.not_good;
    let text = if !measured.has_complete_second {
        let left_out = match ramp {
            0 => "nothing is excluded".to_owned(),
            _ => format!("only the latencies of the ramp are excluded ({})", format_plural(ramp, "request")),
        };
        format!("the run has no complete second after the ramp, so {left_out}")
    } else {
        let mut parts = Vec::new();
        if from_s > 0.0 {
            let due = format_plural(ramp, "request");
            parts.push(format!("the ramp ({due} due before {from_s:.0} s)"));
        }
        if tail > 0 {
            let due = format_plural(tail, "request");
            parts.push(format!("the last partial second ({due} due after {to_s:.0} s)"));
        }
        match parts.is_empty() {
            true => "nothing is excluded".to_owned(),
            false => format!("excluded: {}", parts.join(" and ")),
        }
    };
    MeasuredWindow { from_s, to_s, excluded_ramp: ramp, excluded_tail: tail, not_good, text }
}

fn latency(phases: &PhaseHistograms) -> PhaseLatencies {
    PhaseLatencies {
        connect: latency_pair(&phases.connect),
        tls_handshake: optional_pair(&phases.tls_handshake),
        tls_full: optional_summary(&phases.tls_full),
        tls_resumed: optional_summary(&phases.tls_resumed),
        first_byte: latency_pair(&phases.first_byte),
        last_byte: latency_pair(&phases.last_byte),
        last_byte_bad: optional_pair(&phases.bad),
    }
}

fn optional_pair(histograms: &HistogramPair) -> Option<LatencyPair> {
    (!histograms.service.is_empty()).then(|| latency_pair(histograms))
}

fn optional_summary(histogram: &LatencyHistogram) -> Option<LatencySummary> {
    (!histogram.is_empty()).then(|| histogram.summary())
}

fn tls_sessions(measured: &RunMeasurement) -> TlsSessions {
    let TlsCounters { full, resumed, failed, negotiated } = &measured.counters.tls;
    let per_s = |histogram: &LatencyHistogram| histogram.count() as f64 / measured.window_length_s();
    TlsSessions {
        version: negotiated.as_ref().map(|first| first.version.to_owned()),
        cipher_suite: negotiated.as_ref().map(|first| first.cipher_suite.clone()),
        mixed: negotiated.as_ref().is_some_and(|first| first.mixed),
        full: *full,
        resumed: *resumed,
        failed: *failed,
        full_per_s: per_s(&measured.latencies.tls_full),
        resumed_per_s: per_s(&measured.latencies.tls_resumed),
    }
}

fn http2_totals(plan: &Http2Plan, counters: &Http2Counters) -> Http2Totals {
    let by_code = |counts: &[u64; ERROR_CODES]| {
        let counted = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(index, count)| (recorder::error_code_name(index).to_owned(), *count)).collect_map()
    };
    let status_name = |index| match index {
        0..=16 => index.to_string(),
        17 => "other".to_owned(),
        _ => "missing".to_owned(),
    };
    let statuses = counters.grpc_statuses.iter().enumerate().filter(|(_, count)| **count > 0);
    Http2Totals {
        streams: plan.streams,
        streams_allowed: counters.streams_allowed.filter(|allowed| *allowed < plan.streams),
        resets: by_code(&counters.resets),
        goaways: by_code(&counters.goaways),
        retried: counters.retried,
        cancelled: counters.cancelled,
        server_window_bytes: counters.stream_window_bytes,
        server_connection_window_bytes: counters
            .stream_window_bytes
            .map(|_| counters.connection_window_bytes),
        window_wait_ns: counters.window_wait_ns,
        pings_lost: counters.pings_lost,
        grpc_status: statuses.map(|(index, count)| (status_name(index), *count)).collect_map(),
    }
}

fn websocket_totals(plan: &WebSocketPlan, measured: &RunMeasurement) -> WebSocketTotals {
    let live = measured.counters.live.clone();
    WebSocketTotals {
        mode: plan.mode.name().to_owned(),
        messages_received: live.received,
        messages_per_s: live.received as f64 / measured.load_s.max(1e-9),
        lost: live.lost,
        duplicated: live.duplicated,
        reordered: live.reordered,
        altered: live.altered,
        late: live.late,
        unknown: live.unknown,
        pings: live.pings,
        close_codes: live.close_codes,
        abnormal_closes: live.ended,
        clean_closes: live.clean_closes,
        unclean_closes: live.unclean_closes,
        faults: live.faults,
        handshake: measured.live.handshake.summary(),
        gap: measured.live.gap.summary(),
    }
}

fn event_stream_totals(measured: &RunMeasurement) -> EventStreamTotals {
    let live = measured.counters.live.clone();
    EventStreamTotals {
        events: live.received,
        events_per_s: live.received as f64 / measured.load_s.max(1e-9),
        numbered: live.numbered,
        lost: live.lost,
        duplicated: live.duplicated,
        reordered: live.reordered,
        ended: live.ended,
        resumed: live.resumed,
        retry_ms: live.retry_ms,
        faults: live.faults,
        gap: measured.live.gap.summary(),
    }
}

fn latency_pair(histograms: &HistogramPair) -> LatencyPair {
    LatencyPair { service: histograms.service.summary(), response: histograms.response.summary() }
}

fn undelayed(histogram: &LatencyHistogram) -> Option<UndelayedLatency> {
    (histogram.count() > 0).then(|| UndelayedLatency {
        requests: histogram.count(),
        p50_ns: histogram.value_at_quantile(0.5),
        p90_ns: histogram.value_at_quantile(0.9),
        p99_ns: histogram.value_at_quantile(0.99),
        p999_ns: histogram.value_at_quantile(0.999),
        hdr: histogram.encode(),
    })
}

fn generator(measured: &RunMeasurement) -> GeneratorStats {
    let lag: &LatencyHistogram = &measured.lag;
    let Counters { stalls, back_off, .. } = &measured.counters;
    let (in_flight_mean, in_flight_by_littles_law) = measured.in_flight();
    GeneratorStats {
        threads: measured.plan.threads as u32,
        lag_kind: if measured.plan.is_open_loop() { "send" } else { "loop" }.to_owned(),
        lag_p50_ns: lag.value_at_quantile(0.5),
        lag_p99_ns: lag.value_at_quantile(0.99),
        lag_max_ns: lag.max_ns(),
        late: measured.counters.late_sends,
        undelayed: undelayed(&measured.undelayed),
        back_off: BackOffTotals {
            requests: back_off.requests,
            total_ns: back_off.total_ns,
            longest_ns: back_off.longest_ns,
        },
        stalls: StallTotals {
            count: stalls.count,
            total_ns: stalls.total_ns,
            longest_ns: stalls.longest_ns,
            requests_due: stalls.requests_due,
            requests_in_flight: stalls.requests_in_flight,
        },
        in_flight_mean,
        in_flight_by_littles_law,
        ..GeneratorStats::default()
    }
}
