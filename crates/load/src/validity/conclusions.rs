//! Validity of each conclusion of a run: can it be wrong because of the generator or of other programs?
//!
//! The rules say that something disturbed a run; here each figure gets the range in which it would be without that.
//! Two facts narrow it. Delays only add to the response latency, which counts from the due time, so an upper bound that
//! was met is proven whatever delayed the generator, if everything due was sent. And a program takes CPU time from
//! another one only while that one waits for a CPU, so not its size counts but the waiting of generator and subject.

use record::observed::MachineObservation;
use record::run::{ObjectiveResult, Run};
use record::validity::{CONCLUSIONS, CPU_CONTENDED, ConclusionValidity, Validity, ValidityLevel};

use super::TOO_SHORT;
use crate::plan::{Objective, ObjectiveMetric};
use disturbance::{Disturbance, UNBOUNDED};

mod disturbance;
mod stretch;
mod waiting;

/// Reasons whose effect on a figure can be estimated.
const ESTIMATED: &[&str] = &["cpu_steal", CPU_CONTENDED, "generator_stalled", "run_queue_wait", "send_lag"];
/// Code of the rule for a generator that did not run.
const STALLED: &str = "generator_stalled";
/// Fraction of the requests due that have to be answered, so that everything due was sent.
const ANSWERED_FRACTION_MIN: f64 = 0.98;

/// Reasons about the generator whose effect has no estimate, with the conclusions that they leave as they are.
const FAULTS: &[(&str, &[&str])] = &[
    ("connections_failed", &["counts"]),
    ("littles_law", &["counts", "rate"]),
    ("xdp_frames_lost", &["counts", "rate"]),
];
/// Verdicts of the diagnosis that name the generator or what disturbed it.
const NAMES_DISTURBANCE: &[&str] = &["client_bound", "cpu_contended", "cpu_steal"];
/// Verdict of a diagnosis that concludes nothing.
const NO_DIAGNOSIS: &str = "unknown";

/// Returns whether a reason is a disturbance of the generator or of its machine.
pub(super) fn is_disturbance(code: &str) -> bool {
    ESTIMATED.contains(&code) || UNBOUNDED.contains(&code)
}

/// Judges counts, rate, percentiles and objectives of a run, and then the run: it is as valid as what was asked for. A
/// disturbance that changed no such conclusion becomes a note.
pub fn judge_conclusions(run: &mut Run, observed: Option<&MachineObservation>) {
    let disturbances = run.validity.reasons.iter().filter(|reason| is_disturbance(&reason.code));
    let worst = disturbances.map(|reason| reason.verdict).max();
    let conclusions = match worst {
        Some(worst) => Disturbance::new(run, observed).conclusions(run, worst),
        None => figures(run).map(|(name, value)| conclusion(name, value)).collect(),
    };
    let sending = Sending::new(run);
    conclude(run, conclusions, sending, worst.unwrap_or(ValidityLevel::Valid));
}

/// Stores the validity of each conclusion, of the objectives by them, and of the run by these. `worst` is the validity
/// of a conclusion that nothing proves.
pub(super) fn conclude(
    run: &mut Run,
    mut conclusions: Vec<ConclusionValidity>,
    sending: Sending,
    worst: ValidityLevel,
) {
    for objective in &mut run.objectives {
        let parsed = Objective::parse_list(&objective.text).0;
        objective.validity = parsed.first().map(|parsed| {
            let faults = faults(&run.validity, conclusion_of(parsed.metric()));
            sending.judge_objective(parsed, objective.met, &conclusions, worst).max(faults)
        });
    }
    for conclusion in &mut conclusions {
        conclusion.verdict = conclusion.verdict.max(faults(&run.validity, &conclusion.conclusion));
    }
    let asked = asked(&run.objectives, &conclusions).unwrap_or(worst);
    let mut reasons = std::mem::take(&mut run.validity.reasons);
    for reason in reasons.iter_mut().filter(|reason| is_disturbance(&reason.code)) {
        reason.verdict = reason.verdict.min(asked);
    }
    // A window without a second has few responses: their counts are right, and the figures may be chance.
    let short = reasons.iter().find(|reason| reason.code == TOO_SHORT).map(|reason| reason.verdict);
    let is_figure = |conclusion: &&mut ConclusionValidity| conclusion.conclusion != "counts";
    for conclusion in conclusions.iter_mut().filter(is_figure) {
        conclusion.verdict = conclusion.verdict.max(short.unwrap_or(ValidityLevel::Valid));
    }
    run.validity = Validity::from_reasons(reasons);
    // Only the objectives that are not proven may be worse than each reason alone.
    run.validity.verdict = run.validity.verdict.max(asked);
    run.validity.conclusions = conclusions;
}

/// Returns the worst validity of what was asked for: of the objectives, or of rate and p99 without one.
fn asked(objectives: &[ObjectiveResult], conclusions: &[ConclusionValidity]) -> Option<ValidityLevel> {
    let objectives_validity = objectives.iter().filter_map(|objective| objective.validity).max();
    objectives_validity.or_else(|| {
        let default =
            conclusions.iter().filter(|conclusion| ["rate", "p99"].contains(&conclusion.conclusion.as_str()));
        default.map(|conclusion| conclusion.verdict).max()
    })
}

/// Returns the worst validity by the faults of the generator that touch a conclusion.
fn faults(validity: &Validity, conclusion: &str) -> ValidityLevel {
    let touches = |code: &str| {
        FAULTS.iter().any(|(fault, untouched)| *fault == code && !untouched.contains(&conclusion))
    };
    let verdicts =
        validity.reasons.iter().filter(|reason| touches(&reason.code)).map(|reason| reason.verdict);
    verdicts.max().unwrap_or(ValidityLevel::Valid)
}

/// Returns the conclusion that an objective is about.
fn conclusion_of(metric: ObjectiveMetric) -> &'static str {
    match metric {
        ObjectiveMetric::Rate => "rate",
        ObjectiveMetric::Errors => "counts",
        _ => "p99",
    }
}

/// Adds the validity of the diagnosis, which reads rates and medians, to the other conclusions.
pub fn judge_verdict(run: &mut Run) {
    run.validity.conclusions.retain(|conclusion| conclusion.conclusion != "verdict");
    let judged = !run.validity.conclusions.is_empty();
    let Some(diagnosis) =
        run.diagnosis.as_ref().filter(|diagnosis| judged && diagnosis.verdict != NO_DIAGNOSIS)
    else {
        return;
    };
    let read = ["rate", "p50"].iter().filter_map(|name| run.validity.conclusion(name));
    let verdict = match NAMES_DISTURBANCE.contains(&diagnosis.verdict.as_str()) {
        true => ValidityLevel::Valid,
        false => read.map(|conclusion| conclusion.verdict).max().unwrap_or(ValidityLevel::Valid),
    };
    run.validity.conclusions.push(ConclusionValidity { verdict, ..conclusion("verdict", None) });
}

/// Returns the names of the conclusions with their values, except for the verdict.
pub(super) fn figures(run: &Run) -> impl Iterator<Item = (&'static str, Option<f64>)> + use<> {
    let latency = &run.latency.last_byte.response;
    let (p50_ns, p90_ns, p99_ns, p999_ns) = (latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.p999_ns);
    let (requests, rate) = (run.totals.requests as f64, run.rates.responses_per_s);
    CONCLUSIONS.iter().filter_map(move |(name, _)| {
        let value = match *name {
            "counts" => requests,
            "rate" => rate,
            "p50" => p50_ns as f64,
            "p90" => p90_ns as f64,
            "p99" => p99_ns as f64,
            "p99.9" => p999_ns as f64,
            _ => return None,
        };
        Some((*name, Some(value)))
    })
}

/// Returns a conclusion that nothing disturbed.
pub(super) fn conclusion(name: &str, value: Option<f64>) -> ConclusionValidity {
    ConclusionValidity {
        conclusion: name.to_owned(),
        value,
        undisturbed: None,
        verdict: ValidityLevel::Valid,
    }
}

/// Facts about the requests that a generator had to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    is_open_loop: bool,
    /// Everything due was sent and answered; a closed loop sends when it can.
    sent_all: bool,
}

impl Sending {
    pub(super) fn new(run: &Run) -> Self {
        let answered = run.rates.answered_fraction().unwrap_or(1.0);
        let is_open_loop = run.rates.offered_per_s.is_some();
        Self {
            is_open_loop,
            // A closed loop that stood still sent less than it should have, which no latency shows.
            sent_all: match is_open_loop {
                true => answered >= ANSWERED_FRACTION_MIN && run.totals.dropped == 0,
                false => !run.validity.has_reason(STALLED),
            },
        }
    }

    /// Returns the validity of the outcome of an objective.
    fn judge_objective(
        self,
        objective: &Objective,
        met: bool,
        conclusions: &[ConclusionValidity],
        worst: ValidityLevel,
    ) -> ValidityLevel {
        let range = |name: &str| {
            let conclusion = conclusions.iter().find(|conclusion| conclusion.conclusion == name)?;
            conclusion.undisturbed
        };
        let proven_missed = match objective.metric() {
            ObjectiveMetric::Rate if self.is_open_loop && self.sent_all => true,
            ObjectiveMetric::Rate => range("rate").is_some_and(|range| range.1 < objective.limit()),
            // A percentile that is not in the record is at least the next lower one.
            ObjectiveMetric::Percentile(percent) => {
                let at_most = [(99.9, "p99.9"), (99.0, "p99"), (90.0, "p90"), (50.0, "p50")];
                let below = at_most.into_iter().find(|(known, _)| *known <= percent + 1e-9);
                below.and_then(|(_, name)| range(name)).is_some_and(|range| range.0 > objective.limit())
            }
            ObjectiveMetric::Mean => range("p50").is_some_and(|range| range.0 > objective.limit()),
            ObjectiveMetric::Max => range("p99.9").is_some_and(|range| range.0 > objective.limit()),
            // A delay fails no request, unless it is as long as its time-out.
            ObjectiveMetric::Errors => conclusions.iter().all(|conclusion| {
                conclusion.conclusion != "counts" || conclusion.verdict == ValidityLevel::Valid
            }),
        };
        // Delays only add to latencies, and only take from a rate.
        let proven_met = self.sent_all && objective.is_hardened_by_delays();
        if (met && proven_met) || (!met && proven_missed) { ValidityLevel::Valid } else { worst }
    }
}

#[cfg(test)]
mod tests;
