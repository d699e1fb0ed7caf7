//! Record of a load that another program than weir drove: the program's output, and the
//! observations of the machine meanwhile. It makes the diagnosis of such a load possible, as for a
//! load of weir's own.
//!
//! Not for a report of that load: figures that the program did not print are empty in it, and no
//! signal uses them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use diagnose::diagnose;
use diagnose::verdicts::UNKNOWN;
use record::facts::HostFacts;
use record::histogram::LatencyHistogram;
use record::observed::{ConnectionEnd, MachineObservation};
use record::run::{
    ConnectionTotals, Diagnosis, GeneratorCpu, GeneratorStats, LatencyPair, MeasuredWindow, PhaseLatencies,
    Rates, Run, RunTotals,
};
use record::trial::ExperimentTrial;
use record::validity::Validity;
use serde_json::Value;

use super::trial_view::TrialView;

/// Returns the record of a trial's load: weir's own, or one that is made from another program's
/// output. `None` without observations of the machine.
pub fn load_record(trial: &ExperimentTrial) -> Option<Cow<'_, Run>> {
    match &trial.run {
        Some(run) => Some(Cow::Borrowed(run)),
        None => make_record(trial, trial.observed.as_ref()?).map(Cow::Owned),
    }
}

/// Returns the diagnosis of a load that another program drove. With a fixed rate the offered load
/// is unknown, so an unknown verdict is left out there.
pub(super) fn diagnose_load(trial: &ExperimentTrial, has_rate: bool) -> Option<Diagnosis> {
    let diagnosis = diagnose(&make_record(trial, trial.observed.as_ref()?)?);
    (!has_rate || diagnosis.verdict != UNKNOWN).then_some(diagnosis)
}

fn make_record(trial: &ExperimentTrial, observed: &MachineObservation) -> Option<Run> {
    let view = TrialView::new(trial);
    let (responses_per_s, length_s) = (view.responses_per_s()?, trial.duration_s);
    let requests = (responses_per_s * length_s) as u64;
    let failed =
        view.driver_value("error_fraction").map_or(0, |fraction| (fraction * requests as f64) as u64);
    let connections = connections_max(observed);
    // Little's law: the driver prints no count of requests in flight. Without a mean the figure is
    // NaN, which means not observable.
    let mean_ns = view.mean_ns().filter(|_| connections > 0);
    let in_flight = mean_ns.map_or(f64::NAN, |mean_ns| responses_per_s * mean_ns / 1e9);
    Some(Run {
        schema: record::run::SCHEMA.to_owned(),
        weir: trial.weir.clone(),
        command: Vec::new(),
        started_at: trial.started_at.clone(),
        identities: Vec::new(),
        duration_s: length_s,
        partial: false,
        check_samples: Vec::new(),
        rate_changes: Vec::new(),
        stages: Vec::new(),
        requests: Vec::new(),
        host: HostFacts::default(),
        plan: Value::Null,
        validity: Validity::from_reasons(Vec::new()),
        objectives: Vec::new(),
        totals: RunTotals {
            requests,
            good: Some(requests - failed.min(requests)),
            errors: BTreeMap::from([("failed".to_owned(), failed)]),
            connections: connection_totals(connections),
            ..RunTotals::default()
        },
        rates: Rates { responses_per_s, ..Rates::default() },
        window: MeasuredWindow { from_s: 0.0, to_s: length_s, ..MeasuredWindow::default() },
        baseline: None,
        latency: no_latencies(),
        tls: None,
        http2: None,
        websocket: None,
        event_stream: None,
        transport: None,
        generator: GeneratorStats {
            in_flight_mean: in_flight,
            in_flight_by_littles_law: in_flight,
            ..GeneratorStats::default()
        },
        cpu: GeneratorCpu::default(),
        intervals: Vec::new(),
        observed: vec![observed.clone()],
        answer: None,
        comparison: None,
        diagnosis: None,
        fleet: None,
    })
}

fn connection_totals(connections: u64) -> ConnectionTotals {
    ConnectionTotals { requested: connections, max_open: connections, ..ConnectionTotals::default() }
}

fn no_latencies() -> PhaseLatencies {
    let none = || LatencyHistogram::default().summary();
    let nothing = || LatencyPair { service: none(), response: none() };
    PhaseLatencies {
        connect: nothing(),
        tls_handshake: None,
        tls_full: None,
        tls_resumed: None,
        first_byte: nothing(),
        last_byte: nothing(),
        last_byte_bad: None,
    }
}

/// Returns the maximum number of simultaneous connections at the subject's port, counted at the
/// client's end.
fn connections_max(observed: &MachineObservation) -> u64 {
    let by_subject = |served_by: &Option<String>| served_by.as_deref() == Some("subject");
    let Some(port) = observed.ports.iter().find(|port| by_subject(&port.served_by)) else {
        return 0;
    };
    let ends = observed.queues.iter().flat_map(|snapshot| &snapshot.ends);
    let clients = ends.filter(|ends| ends.port == port.port && ends.end == ConnectionEnd::Client);
    clients.filter_map(|ends| ends.states.get("established").copied()).max().unwrap_or(0)
}
