//! From what was measured to the record of a run. Pure: every figure in a record comes from here.

use std::collections::BTreeMap;

use record::facts::HostFacts;
use record::histogram::{BadHistogram, Latencies};
use record::run::{
    BackOff, Calibrated, Connections, Cpu, Generator, Identity, Latency, Objective, Pair, Rates,
    Run, SCHEMA, Stalls, Totals, Weir, Window,
};
use record::units::count_of;
use record::validity::Validity;

use crate::failure::{KINDS, Kind, PHASES};
use crate::plan::{self, Outcome};
use crate::recorder::{Both, Counters, Phases};
use crate::run::Measured;

/// What a record needs beyond the measurement.
#[derive(Clone, Debug)]
pub struct Context {
    /// Which weir.
    pub weir: Weir,
    /// The command line.
    pub command: Vec<String>,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Which run it is.
    pub identity: Identity,
    /// The machine.
    pub host: HostFacts,
    /// Processor time, by the host.
    pub cpu: Cpu,
    /// Share of the window that generator threads waited for a processor.
    pub run_queue_wait_share: Option<f64>,
    /// The calibration it was held against.
    pub calibrated: Option<Calibrated>,
    /// The verdict.
    pub validity: Validity,
}

/// The record of a run.
#[must_use]
pub fn record(measured: &Measured, context: Context) -> Run {
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
        objectives: objectives(measured),
        totals: totals(&measured.counters, measured.plan.connections),
        rates: rates(measured),
        window: window(measured),
        latency: latency(&measured.latencies),
        baseline: None,
        generator: Generator {
            run_queue_wait_share: context.run_queue_wait_share,
            busiest_thread_share: context.cpu.per_core.iter().copied().reduce(f64::max),
            calibrated: context.calibrated,
            ..generator(measured)
        },
        cpu: context.cpu,
        intervals: measured.intervals.clone(),
        validity: context.validity,
        observed: Vec::new(),
        diagnosis: None,
    }
}

/// Each objective of the plan, with what was measured.
#[must_use]
pub fn objectives(measured: &Measured) -> Vec<Objective> {
    let outcome = Outcome {
        latencies: &measured.latencies.last_byte.response,
        not_good: measured.latencies.not_good,
        error_share: measured.error_share(),
        goodput_per_s: measured.goodput_per_s(),
    };
    measured.plan.objectives.iter().map(|objective| objective.evaluate(outcome)).collect()
}

/// The objectives of a record's plan, evaluated on its figures.
///
/// # Errors
/// Its histogram cannot be read.
pub fn objectives_of(run: &Run) -> Result<Vec<Objective>, BadHistogram> {
    let latencies = Latencies::decode(&run.latency.last_byte.response.hdr)?;
    let outcome = Outcome {
        latencies: &latencies,
        not_good: run.window.not_good,
        error_share: run.totals.error_share(),
        goodput_per_s: run.goodput_per_s(),
    };
    let texts = run.plan.get("objectives").and_then(serde_json::Value::as_array);
    let texts = texts.into_iter().flatten().filter_map(serde_json::Value::as_str);
    let parsed = texts.flat_map(|text| plan::Objective::parse_list(text).0);
    Ok(parsed.map(|objective| objective.evaluate(outcome)).collect())
}

fn totals(counters: &Counters, wanted: u64) -> Totals {
    let kinds = KINDS.iter().zip(counters.errors);
    let phases = PHASES.iter().zip(counters.timeouts);
    let nonzero = |(name, count): (&str, u64)| (count > 0).then(|| (name.to_owned(), count));
    let status: BTreeMap<u16, u64> =
        (0..).zip(counters.status.iter().copied()).filter(|(_, count)| *count > 0).collect();
    Totals {
        requests: counters.requests,
        sent: counters.sent,
        responses: counters.responses,
        good: Some(counters.good()),
        bad: Some(counters.bad()),
        status,
        errors: kinds.filter_map(|((_, name, _), count)| nonzero((name, count))).collect(),
        timeouts_by_phase: phases.filter_map(|((_, name), count)| nonzero((name, count))).collect(),
        timeout_age_ns: counters.timeout_age_ns,
        dropped: counters.dropped,
        unfinished: counters.errors[Kind::Unfinished as usize],
        unfinished_age_ns_max: counters.unfinished_age_ns_max,
        bytes_in: counters.bytes_in,
        bytes_out: counters.bytes_out,
        connections: Connections {
            wanted,
            obtained: counters.obtained,
            opened: counters.opened,
            failed: counters.connect_failed,
            lost: counters.lost,
            closed_idle: counters.closed_idle,
        },
    }
}

fn rates(measured: &Measured) -> Rates {
    let length_s = measured.window_length_s();
    // Without whole seconds the window reaches to the last answer, and nothing was due after the load's end.
    let due_for_s = if measured.whole_seconds { length_s } else { measured.load_s.max(1e-9) };
    let offered = measured.window_due as f64 / due_for_s;
    Rates {
        responses_per_s: measured.responses_per_s(),
        goodput_per_s: Some(measured.goodput_per_s()),
        bytes_in_per_s: measured.window_bytes_in as f64 / length_s,
        offered_per_s: measured.plan.is_open_loop().then_some(offered),
        answered_share: measured.answered_share(),
    }
}

fn window(measured: &Measured) -> Window {
    let (from_s, to_s) = measured.window_s;
    let ramp = measured.counters.excluded_ramp;
    let tail = measured.tail_service.count() + measured.tail_not_good;
    let not_good = measured.latencies.not_good;
    let text = if !measured.whole_seconds {
        let left_out = match ramp {
            0 => "nothing is left out".to_owned(),
            _ => format!(
                "only the latencies of the ramp are left out ({})",
                count_of(ramp, "request")
            ),
        };
        format!("the run has no whole second after the ramp, so {left_out}")
    } else {
        let mut parts = Vec::new();
        if from_s > 0.0 {
            let due = count_of(ramp, "request");
            parts.push(format!("the ramp ({due} due before {from_s:.0} s)"));
        }
        if tail > 0 {
            let due = count_of(tail, "request");
            parts.push(format!("the last partial second ({due} due after {to_s:.0} s)"));
        }
        match parts.is_empty() {
            true => "nothing is left out".to_owned(),
            false => format!("left out: {}", parts.join(" and ")),
        }
    };
    Window { from_s, to_s, excluded_ramp: ramp, excluded_tail: tail, not_good, text }
}

fn latency(phases: &Phases) -> Latency {
    Latency {
        connect: pair(&phases.connect),
        first_byte: pair(&phases.first_byte),
        last_byte: pair(&phases.last_byte),
        last_byte_bad: (!phases.bad.service.is_empty()).then(|| pair(&phases.bad)),
    }
}

fn pair(both: &Both) -> Pair {
    Pair { service: both.service.summary(), response: both.response.summary() }
}

fn generator(measured: &Measured) -> Generator {
    let lag: &Latencies = &measured.lag;
    let Counters { stalls, back_off, .. } = &measured.counters;
    let (in_flight_mean, in_flight_by_littles_law) = measured.in_flight();
    Generator {
        threads: measured.plan.threads as u32,
        lag_of: if measured.plan.is_open_loop() { "send" } else { "loop" }.to_owned(),
        lag_p50_ns: lag.at(0.5),
        lag_p99_ns: lag.at(0.99),
        lag_max_ns: lag.max_ns(),
        late: measured.counters.late_sends,
        back_off: BackOff {
            requests: back_off.requests,
            total_ns: back_off.total_ns,
            longest_ns: back_off.longest_ns,
        },
        stalls: Stalls {
            count: stalls.count,
            total_ns: stalls.total_ns,
            longest_ns: stalls.longest_ns,
            requests_due: stalls.due,
            requests_in_flight: stalls.answered,
        },
        in_flight_mean,
        in_flight_by_littles_law,
        ..Generator::default()
    }
}
