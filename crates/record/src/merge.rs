//! Merges several runs of one plan: counts and histograms are added, and verdicts keep the most
//! severe. Percentiles are never averaged: they are computed from the sum.

mod baseline;
mod common_window;
mod latency;

use self::common_window::CommonWindow;
use crate::fleet::Fleet;
use crate::histogram::HistogramDecodeError;
use crate::run::{BackOffTotals, GeneratorStats, Interval, Run, RunTotals, StallTotals, add_counts};
use crate::validity::{Validity, ValidityLevel, ValidityReason};

/// Reason why runs cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error("no record was given")]
    Empty,
    #[error("record {index} has another plan than the first ({setting} differs); compare them instead")]
    PlanMismatch {
        /// Number of the record, from 1.
        index: usize,
        /// First part of the plan that differs.
        setting: String,
    },
    /// A record does not identify its run.
    #[error(
        "record {index} has no run identity (it is from an older version): it may be the same run as \
         another one"
    )]
    NoIdentity {
        /// Number of the record, from 1.
        index: usize,
    },
    #[error("records {first} and {second} are the same run ({id}); name each run once")]
    SameRun {
        /// First of them, from 1.
        first: usize,
        second: usize,
        id: String,
    },
    /// The runs were not measured at the same time.
    #[error(
        "records {first} and {second} were not measured at the same time ({gap_s:.1} s between \
         them): their rates cannot be added; compare them instead"
    )]
    NotConcurrent {
        /// Run that ended first, from 1.
        first: usize,
        /// Run that began last.
        second: usize,
        /// Time between them, in s.
        gap_s: f64,
    },
    /// A histogram in one of the records cannot be read.
    #[error("record {index}: {error}")]
    Histogram {
        /// Number of the record, from 1.
        index: usize,
        error: HistogramDecodeError,
    },
}

/// Merges runs of the same plan that generated load at the same time from different hosts. Rates
/// are over the time in which every run was measured.
///
/// # Errors
/// The plans differ, a run is there twice or cannot be identified, the runs were not measured at
/// the same time, or a histogram cannot be read.
pub fn merge(runs: &[Run]) -> Result<Run, MergeError> {
    let (first, rest) = runs.split_first().ok_or(MergeError::Empty)?;
    if rest.is_empty() {
        return Ok(first.clone());
    }
    let are_slices = are_slices(runs);
    check_plans(runs, if are_slices { SLICED_SETTINGS } else { &[] })?;
    let common = CommonWindow::from_runs(runs)?;
    let mut merged = add_runs(runs, &common)?;
    if are_slices {
        add_slices(&mut merged.plan, rest);
    }
    merged.validity = join_validity(runs, common.check_overlap(runs));
    Ok(merged)
}

/// Returns whether the runs are distinct slices of one load (`--slice`).
fn are_slices(runs: &[Run]) -> bool {
    let parse = |run: &Run| {
        let (range, total) = run.plan["slice"].as_str()?.split_once('/')?;
        let (from, to) = range.split_once('-')?;
        Some((from.parse::<u64>().ok()?, to.parse::<u64>().ok()?, total.to_owned()))
    };
    let Some(mut slices) = runs.iter().map(parse).collect::<Option<Vec<_>>>() else { return false };
    slices.sort();
    slices.windows(2).all(|pair| pair[0].1 <= pair[1].0 && pair[0].2 == pair[1].2)
}

/// Adds the connections, threads, requests and rates of the other slices to a plan.
fn add_slices(plan: &mut serde_json::Value, others: &[Run]) {
    for path in ["/connections", "/threads", "/end/requests", "/max_pending", "/pace/rate_per_s"] {
        let add = |sum: serde_json::Value, run: &Run| {
            let other = run.plan.pointer(path).unwrap_or(&serde_json::Value::Null);
            match (sum.as_u64().zip(other.as_u64()), sum.as_f64().zip(other.as_f64())) {
                (Some((sum, other)), _) => (sum + other).into(),
                (None, Some((sum, other))) => (sum + other).into(),
                (None, None) => sum,
            }
        };
        if let Some(value) = plan.pointer_mut(path) {
            *value = others.iter().fold(value.take(), add);
        }
    }
    let all = others.iter().filter_map(|run| run.plan["slice"].as_str());
    let own = plan["slice"].as_str().unwrap_or_default().to_owned();
    plan["slice"] = std::iter::once(own.as_str()).chain(all).collect::<Vec<_>>().join(" ").into();
}

/// Parts of a plan that differ between the agents of a fleet.
const SLICED_SETTINGS: &[&str] =
    &["connections", "threads", "pace", "end", "max_pending", "sources", "slice", "seed"];

/// Merges the runs of the agents of a fleet, each a part of `plan`. The identities have the starts by one
/// clock. `fleet` has a row for every agent, also for those without a run.
///
/// # Errors
/// Those of [`merge`]; parts of a plan that are divided among agents may differ.
pub fn merge_fleet(runs: &[Run], fleet: Fleet, plan: serde_json::Value) -> Result<Run, MergeError> {
    if runs.is_empty() {
        return Err(MergeError::Empty);
    }
    check_plans(runs, SLICED_SETTINGS)?;
    let common = CommonWindow::from_runs(runs)?;
    let mut merged = add_runs(runs, &common)?;
    merged.validity = fleet.validity(common.check_overlap(runs));
    merged.plan = plan;
    merged.fleet = Some(fleet);
    Ok(merged)
}

/// Checks that all plans are equal, except for the settings in `ignored`.
fn check_plans(runs: &[Run], ignored: &[&str]) -> Result<(), MergeError> {
    let Some((first, rest)) = runs.split_first() else { return Ok(()) };
    for (index, run) in (2..).zip(rest) {
        if let Some(setting) = first_difference(&first.plan, &run.plan, ignored) {
            return Err(MergeError::PlanMismatch { index, setting });
        }
    }
    Ok(())
}

/// Returns the sum of the runs, without a verdict.
fn add_runs(runs: &[Run], common: &CommonWindow) -> Result<Run, MergeError> {
    let (first, rest) = runs.split_first().ok_or(MergeError::Empty)?;
    let mut merged = first.clone();
    merged.latency = latency::add_latencies(runs)?;
    for (index, run) in (2..).zip(rest) {
        add_stages(&mut merged, run).map_err(|error| MergeError::Histogram { index, error })?;
        merged.requests.iter_mut().zip(&run.requests).for_each(|(sum, request)| sum.add(request));
        add_totals(&mut merged.totals, &run.totals);
        if let Some(sessions) = &run.tls {
            merged.tls.get_or_insert_default().add(sessions);
        }
        if let Some(http2) = &run.http2 {
            merged.http2.get_or_insert_default().add(http2);
        }
        add_live(&mut merged, run).map_err(|error| MergeError::Histogram { index, error })?;
        merged.partial |= run.partial;
        merged.identities.extend(run.identities.iter().cloned());
        merged.started_at = merged.started_at.min(run.started_at.clone());
        merged.generator = add_generator(&merged.generator, &run.generator);
        merged.cpu.user_s += run.cpu.user_s;
        merged.cpu.system_s += run.cpu.system_s;
        merged.cpu.per_core.extend(&run.cpu.per_core);
        merged.observed.extend(run.observed.iter().cloned());
    }
    merged.duration_s = common.duration_s(runs);
    merged.rates = common.rates(runs);
    merged.window = common.window(runs);
    merged.intervals = common.intervals(runs);
    merged.baseline = baseline::merge_baselines(runs, common);
    (merged.answer, merged.diagnosis, merged.comparison) = (None, None, None);
    // An objective is about the total; the caller evaluates it again on the sum.
    merged.objectives.clear();
    merged.cpu.subject_cpus = None;
    merged.cpu.foreign_cpus = None;
    merged.cpu.steal_fraction = None;
    Ok(merged)
}

/// Adds the counts of WebSocket, of event streams and of TCP in user space.
fn add_live(merged: &mut Run, run: &Run) -> Result<(), HistogramDecodeError> {
    match (&mut merged.websocket, &run.websocket) {
        (Some(sum), Some(other)) => sum.add(other)?,
        (sum, other) => *sum = sum.take().or_else(|| other.clone()),
    }
    match (&mut merged.event_stream, &run.event_stream) {
        (Some(sum), Some(other)) => sum.add(other)?,
        (sum, other) => *sum = sum.take().or_else(|| other.clone()),
    }
    match (&mut merged.transport, &run.transport) {
        (Some(sum), Some(other)) => sum.add(other),
        (sum, other) => *sum = sum.take().or_else(|| other.clone()),
    }
    Ok(())
}

fn first_difference(a: &serde_json::Value, b: &serde_json::Value, ignored: &[&str]) -> Option<String> {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return (a != b).then(|| "all of it".to_owned());
    };
    let keys = a.keys().chain(b.keys()).filter(|key| !ignored.contains(&key.as_str()));
    keys.filter(|key| a.get(*key) != b.get(*key)).map(ToOwned::to_owned).next()
}

/// Adds the stages of `run`; a run that was stopped early lacks the last ones.
fn add_stages(merged: &mut Run, run: &Run) -> Result<(), HistogramDecodeError> {
    for stage in &run.stages {
        match merged.stages.iter_mut().find(|sum| sum.number == stage.number) {
            Some(sum) => sum.add(stage)?,
            None => merged.stages.push(stage.clone()),
        }
    }
    Ok(())
}

fn add_totals(a: &mut RunTotals, b: &RunTotals) {
    a.requests = a.requests.saturating_add(b.requests);
    a.sent = a.sent.saturating_add(b.sent);
    (a.good, a.bad) = (Some(a.good().saturating_add(b.good())), Some(a.bad().saturating_add(b.bad())));
    a.responses = a.responses.saturating_add(b.responses);
    add_counts(&mut a.status, &b.status);
    add_counts(&mut a.errors, &b.errors);
    for (code, error) in &b.parse_errors {
        let sum = a.parse_errors.entry(code.clone()).or_default();
        sum.count = sum.count.saturating_add(error.count);
        sum.text.clone_from(&error.text);
    }
    add_counts(&mut a.timeouts_by_phase, &b.timeouts_by_phase);
    add_counts(&mut a.failed_checks, &b.failed_checks);
    a.timeout_age_ns = match (a.timeout_age_ns, b.timeout_age_ns) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    };
    a.dropped = a.dropped.saturating_add(b.dropped);
    a.unfinished = a.unfinished.saturating_add(b.unfinished);
    a.unfinished_age_ns_max = a.unfinished_age_ns_max.max(b.unfinished_age_ns_max);
    a.bytes_in = a.bytes_in.saturating_add(b.bytes_in);
    a.body_bytes = a.body_bytes.saturating_add(b.body_bytes);
    a.bytes_out = a.bytes_out.saturating_add(b.bytes_out);
    a.connections.requested = a.connections.requested.saturating_add(b.connections.requested);
    a.connections.max_open = a.connections.max_open.saturating_add(b.connections.max_open);
    a.connections.opened = a.connections.opened.saturating_add(b.connections.opened);
    a.connections.failed = a.connections.failed.saturating_add(b.connections.failed);
    a.connections.lost = a.connections.lost.saturating_add(b.connections.lost);
    a.connections.closed_idle = a.connections.closed_idle.saturating_add(b.connections.closed_idle);
    a.connections.resent = a.connections.resent.saturating_add(b.connections.resent);
}

fn add_generator(a: &GeneratorStats, b: &GeneratorStats) -> GeneratorStats {
    let max_of_both = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b));
    GeneratorStats {
        threads: a.threads.saturating_add(b.threads),
        lag_kind: a.lag_kind.clone(),
        // The worst generator counts: lags of different machines have no common distribution.
        lag_p50_ns: a.lag_p50_ns.max(b.lag_p50_ns),
        lag_p99_ns: a.lag_p99_ns.max(b.lag_p99_ns),
        lag_max_ns: a.lag_max_ns.max(b.lag_max_ns),
        late: a.late.saturating_add(b.late),
        undelayed: None,
        back_off: BackOffTotals {
            requests: a.back_off.requests.saturating_add(b.back_off.requests),
            total_ns: a.back_off.total_ns.saturating_add(b.back_off.total_ns),
            longest_ns: a.back_off.longest_ns.max(b.back_off.longest_ns),
        },
        stalls: StallTotals {
            count: a.stalls.count.saturating_add(b.stalls.count),
            total_ns: a.stalls.total_ns.saturating_add(b.stalls.total_ns),
            longest_ns: a.stalls.longest_ns.max(b.stalls.longest_ns),
            requests_due: a.stalls.requests_due.saturating_add(b.stalls.requests_due),
            requests_in_flight: a.stalls.requests_in_flight.saturating_add(b.stalls.requests_in_flight),
        },
        busiest_thread_fraction: max_of_both(a.busiest_thread_fraction, b.busiest_thread_fraction),
        run_queue_wait_fraction: max_of_both(a.run_queue_wait_fraction, b.run_queue_wait_fraction),
        runnable_thread_fraction: max_of_both(a.runnable_thread_fraction, b.runnable_thread_fraction),
        in_flight_mean: a.in_flight_mean + b.in_flight_mean,
        in_flight_by_littles_law: a.in_flight_by_littles_law + b.in_flight_by_littles_law,
        calibrated: None,
    }
}

/// Returns the sum of the same second of two generators; percentiles have no sum and are absent.
pub fn add_interval(a: &Interval, b: &Interval) -> Interval {
    let mut errors = a.errors.clone();
    add_counts(&mut errors, &b.errors);
    let mut parse_errors = a.parse_errors.clone();
    add_counts(&mut parse_errors, &b.parse_errors);
    let responses = a.responses.saturating_add(b.responses);
    let mean = |x: f64, y: f64| {
        // A mean weighted by counts is the overall mean; it is no mean of percentiles.
        let sum = x * a.responses as f64 + y * b.responses as f64;
        if responses == 0 { 0.0 } else { sum / responses as f64 }
    };
    Interval {
        time_s: a.time_s.max(b.time_s),
        length_s: a.length_s.max(b.length_s),
        connections: a.connections.saturating_add(b.connections),
        connections_opened: a.connections_opened.saturating_add(b.connections_opened),
        responses,
        good: a.good.zip(b.good).map(|(a, b)| a.saturating_add(b)),
        events: a.events.zip(b.events).map(|(a, b)| a.saturating_add(b)).or(a.events).or(b.events),
        errors,
        parse_errors,
        status_classes: std::array::from_fn(|i| a.status_classes[i].saturating_add(b.status_classes[i])),
        bytes_in: a.bytes_in.saturating_add(b.bytes_in),
        bytes_out: a.bytes_out.saturating_add(b.bytes_out),
        in_flight: a.in_flight.saturating_add(b.in_flight),
        pending: a.pending.saturating_add(b.pending),
        dropped: a.dropped.saturating_add(b.dropped),
        first_byte_mean_ns: mean(a.first_byte_mean_ns, b.first_byte_mean_ns),
        last_byte_mean_ns: mean(a.last_byte_mean_ns, b.last_byte_mean_ns),
        p50_ns: None,
        p99_ns: None,
        max_ns: a.max_ns.max(b.max_ns),
        lag_p99_ns: None,
        own_cpus: a.own_cpus.zip(b.own_cpus).map(|(a, b)| a + b),
        stalled_ns: a.stalled_ns.saturating_add(b.stalled_ns),
        measured: a.measured && b.measured,
    }
}

fn join_validity(runs: &[Run], overlap_reason: Option<ValidityReason>) -> Validity {
    let mut reasons: Vec<ValidityReason> = overlap_reason.into_iter().collect();
    for (index, run) in (1..).zip(runs) {
        reasons.extend(run.validity.reasons.iter().map(|reason| ValidityReason {
            text: format!("record {index}: {}", reason.text),
            ..reason.clone()
        }));
        if run.partial {
            let text = format!("record {index} was stopped early by the user");
            reasons.push(ValidityReason {
                code: "partial".to_owned(),
                verdict: ValidityLevel::Suspect,
                text,
            });
        }
    }
    Validity::from_reasons(reasons)
}

#[cfg(test)]
mod tests;
