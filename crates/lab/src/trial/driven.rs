//! A trial that another program than weir drove, as the record of a load: what it printed, and what was seen of
//! the machine meanwhile, so that what limited it can be said as of a load of weir's own.
//!
//! Not for a report of that load: what the program did not tell is empty in it, and no signal is read from that.

use std::borrow::Cow;
use std::collections::BTreeMap;

use record::facts::HostFacts;
use record::histogram::Latencies;
use record::observed::{End, Observed};
use record::run::{
    Connections, Cpu, Diagnosis, Generator, Latency, Pair, Rates, Run, Totals, Window,
};
use record::trial::Trial;
use record::validity::Validity;
use serde_json::Value;

use super::view::View;
use crate::diagnosis::diagnose;
use crate::diagnosis::verdicts::UNKNOWN;

/// The record of the load of a trial: weir's own, or one that is made of what another program printed.
/// `None` where nothing was seen of the machine.
pub(crate) fn record_of(trial: &Trial) -> Option<Cow<'_, Run>> {
    match &trial.run {
        Some(run) => Some(Cow::Borrowed(run)),
        None => made(trial, trial.observed.as_ref()?).map(Cow::Owned),
    }
}

/// What limited a load that another program drove. One with a rate of its own does not tell what it offered, so
/// that nothing proven says nothing there.
pub(super) fn diagnosis(trial: &Trial, has_rate: bool) -> Option<Diagnosis> {
    let found = diagnose(&made(trial, trial.observed.as_ref()?)?);
    (!has_rate || found.verdict != UNKNOWN).then_some(found)
}

fn made(trial: &Trial, observed: &Observed) -> Option<Run> {
    let view = View::new(trial);
    let responses_per_s = view.responses_per_s()?;
    let length_s = trial.duration_s;
    let requests = (responses_per_s * length_s) as u64;
    let failed = view.read("error_share").map_or(0, |share| (share * requests as f64) as u64);
    let connections = connections(observed);
    // Little's law: what it was counted as is not told. No mean, no figure: not a number is not observable.
    let mean_ns = view.mean_ns().filter(|_| connections > 0);
    let in_flight = mean_ns.map_or(f64::NAN, |mean_ns| responses_per_s * mean_ns / 1e9);
    let nothing = || {
        let none = Latencies::default().summary();
        Pair { service: none.clone(), response: none }
    };
    Some(Run {
        schema: record::run::SCHEMA.to_owned(),
        weir: trial.weir.clone(),
        command: Vec::new(),
        started_at: trial.started_at.clone(),
        identities: Vec::new(),
        duration_s: length_s,
        partial: false,
        host: HostFacts::default(),
        plan: Value::Null,
        validity: Validity::from_reasons(Vec::new()),
        objectives: Vec::new(),
        totals: Totals {
            requests,
            good: Some(requests - failed.min(requests)),
            errors: BTreeMap::from([("failed".to_owned(), failed)]),
            connections: Connections {
                wanted: connections,
                obtained: connections,
                ..Connections::default()
            },
            ..Totals::default()
        },
        rates: Rates { responses_per_s, ..Rates::default() },
        window: Window { from_s: 0.0, to_s: length_s, ..Window::default() },
        baseline: None,
        latency: Latency {
            connect: nothing(),
            first_byte: nothing(),
            last_byte: nothing(),
            last_byte_bad: None,
        },
        generator: Generator {
            in_flight_mean: in_flight,
            in_flight_by_littles_law: in_flight,
            ..Generator::default()
        },
        cpu: Cpu::default(),
        intervals: Vec::new(),
        observed: vec![observed.clone()],
        diagnosis: None,
    })
}

/// The most connections that were seen at a time at the subject's port, from the client's end.
fn connections(observed: &Observed) -> u64 {
    let by_subject = |served_by: &Option<String>| served_by.as_deref() == Some("subject");
    let Some(port) = observed.ports.iter().find(|port| by_subject(&port.served_by)) else {
        return 0;
    };
    let ends = observed.queues.iter().flat_map(|snapshot| &snapshot.ends);
    let clients = ends.filter(|ends| ends.port == port.port && ends.end == End::Client);
    clients.filter_map(|ends| ends.states.get("established").copied()).max().unwrap_or(0)
}
