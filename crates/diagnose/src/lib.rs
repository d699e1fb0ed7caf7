//! Diagnosis: from a record to its verdict, with the limit of the run, the evidence, the rejected
//! explanations and the next limits. Pure: the same record always gives the same verdict.
//!
//! The generator's own verdict determines the validity of the figures. Nothing is measured here:
//! only figures in the record are known.

#![forbid(unsafe_code)]

pub mod alerts;
pub mod counter_test;
mod fingerprints;
mod resource_headroom;
mod run_view;
pub mod signals;
mod time_split;
mod traffic;
pub mod verdicts;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use record::observed::ExitedProcess;
use record::run::{AlternativeVerdict, Confidence, Diagnosis, Run};

pub use fingerprints::{FINGERPRINTS, Fingerprint, LatencyPhase};
pub use resource_headroom::ResourceHeadroom;
use run_view::{GENERATOR, ORIGIN, RunView, SUBJECT};
use signals::{SignalFamily, format_value};
use verdicts::{
    Bound, Criterion, LimitClass, NONE, Perturbation, RUN_INVALID, UNKNOWN, VERDICTS, VerdictRule,
};

/// Returns the verdict on a run, from its record alone.
#[must_use]
pub fn diagnose(run: &Run) -> Diagnosis {
    let view = RunView::new(run);
    let mut diagnosis = judge_all(&view);
    // Ended processes come first, whatever the rest is.
    diagnosis.evidence.splice(0..0, ended_processes(&view));
    if diagnosis.verdict == NONE
        && let Some(reason) = stalled_generator(run)
    {
        diagnosis.verdict = UNKNOWN.to_owned();
        diagnosis.claim = "the generator stalled: this run is no measurement of the subject".to_owned();
        diagnosis.confidence = Confidence::None;
        diagnosis.evidence.push(reason.to_owned());
    }
    diagnosis
}

/// Returns the reason why the generator's own stalls void a run.
fn stalled_generator(run: &Run) -> Option<&str> {
    let mut reasons = run.validity.reasons.iter();
    let stalled = reasons.find(|reason| {
        reason.code == "generator_stalled" && reason.verdict == record::validity::ValidityVerdict::Invalid
    });
    stalled.map(|reason| reason.text.as_str())
}

/// Returns the processes that ended under load, as evidence: "process 12 (nginx) ended at 1.5 s".
fn ended_processes(view: &RunView<'_>) -> Vec<String> {
    let is_under_load = |ended: &&ExitedProcess| {
        let served = [SUBJECT, ORIGIN].contains(&ended.role.as_str());
        served && (0.0..=view.run.duration_s).contains(&ended.time_s)
    };
    let all = view.run.observed.iter().flat_map(|observed| &observed.ended);
    all.filter(is_under_load).map(ToString::to_string).collect()
}

fn judge_all(view: &RunView<'_>) -> Diagnosis {
    let mut matches: Vec<(&VerdictRule, RuleMatch)> = Vec::new();
    let (mut ruled_out, mut not_observable) = (Vec::new(), Vec::new());
    for rule in VERDICTS {
        match evaluate_rule(rule, view) {
            RuleOutcome::Holds(rule_match) => matches.push((rule, rule_match)),
            RuleOutcome::RuledOut { criteria_met, reason } => {
                ruled_out.push((criteria_met, format!("{}: {reason}", rule.code)));
            }
            RuleOutcome::NotObservable(reason) => not_observable.push(format!("{}: {reason}", rule.code)),
        }
    }
    // The explanations that nearly held come first.
    ruled_out.sort_by_key(|(criteria_met, _)| Reverse(*criteria_met));
    let common = Diagnosis {
        ruled_out: ruled_out.into_iter().map(|(_, reason)| reason).collect(),
        not_observable,
        queueing_fraction: (signals::QUEUEING.read)(view),
        time_split: time_split::time_split(view),
        resources: resource_headroom::resources(view),
        next_limits: resource_headroom::next_limits(view),
        fingerprints: fingerprints::find_fingerprints(view),
        ..Diagnosis::default()
    };
    let Some(((rule, first), others)) = matches.split_first() else {
        return without_bottleneck(view, common);
    };
    // Failed requests explain nothing else, and nothing else is judged by them.
    let others = if rule.code == RUN_INVALID { &[] } else { others };
    let alternatives = others.iter().map(|(rule, one)| alternative(rule, one)).collect();
    let rival = others.iter().find(|(other, one)| other.class != rule.class && one.is_clear);
    Diagnosis {
        verdict: rule.code.to_owned(),
        claim: rule.claim.to_owned(),
        confidence: confidence(rule, first, rival.is_some(), view),
        evidence: first.evidence.clone(),
        alternatives,
        distinguishing_change: others
            .first()
            .map(|(other, _)| distinguishing_change(rule, other))
            .unwrap_or_default(),
        remedy: rule.remedy.to_owned(),
        counter_test: rule.counter_tests().map(|test| test.2).collect::<Vec<_>>().join("; "),
        ..common
    }
}

/// Returns the confidence of a verdict, from the margin of its conditions and the other possible
/// explanations.
fn confidence(rule: &VerdictRule, rule_match: &RuleMatch, has_rival: bool, view: &RunView<'_>) -> Confidence {
    // The behaviour of a full resource is known; a delay and a limit differ only in the baseline.
    let needs_baseline = matches!(rule.class, LimitClass::Delay | LimitClass::Limit | LimitClass::Cpu);
    let has_needed_baseline = !needs_baseline || (signals::QUEUEING.read)(view).is_some();
    // Runtimes park idle threads on futexes as well: counts of calls do not prove a lock.
    let max = if rule.is_circumstantial { Confidence::Likely } else { Confidence::Sure };
    let level = match (rule_match.is_clear, rule_match.families, has_rival) {
        (true, 3.., false) if has_needed_baseline => Confidence::Sure,
        (true, 2.., false) | (_, 3.., false) => Confidence::Likely,
        (true, 3.., true) => Confidence::Likely,
        _ if rule.is_counted => Confidence::Likely,
        _ => Confidence::Possible,
    };
    level.min(max)
}

/// Returns the change that distinguishes a verdict from its rival, in a sentence.
fn distinguishing_change(rule: &VerdictRule, rival: &VerdictRule) -> String {
    if rule.class == LimitClass::Failure {
        let (code, rival) = (rule.code, rival.code);
        return format!(
            "fix {code} first, and measure again: {rival} can only be judged without failed requests"
        );
    }
    let change = Perturbation::ALL.iter().find_map(|&change| {
        let (one, other) = (rule.class.predicted_change(change)?, rival.class.predicted_change(change)?);
        (one != other).then_some((change, one, other))
    });
    match change {
        Some((change, one, other)) => format!(
            "{}: the throughput {} if it is {}, and {} if it is {}",
            change.description(),
            one.description(),
            rule.code,
            other.description(),
            rival.code
        ),
        None => format!(
            "no external change distinguishes {} from {}: check the subject's own counters",
            rule.code, rival.code
        ),
    }
}

/// Returns the used fraction of each resource with a limit, the fullest first: the next limits. A
/// resource without figures in the record is absent.
#[must_use]
pub fn headroom(run: &Run) -> Vec<ResourceHeadroom> {
    resource_headroom::measure_headroom(&RunView::new(run))
}

fn alternative(rule: &VerdictRule, rule_match: &RuleMatch) -> AlternativeVerdict {
    AlternativeVerdict {
        verdict: rule.code.to_owned(),
        confidence: if rule_match.is_clear { Confidence::Likely } else { Confidence::Possible },
        evidence: rule_match.evidence.clone(),
    }
}

/// Verdict that holds.
struct RuleMatch {
    /// True if its necessary conditions hold, and nothing excludes it, both with a margin.
    is_clear: bool,
    /// Number of signal families that support it.
    families: usize,
    evidence: Vec<String>,
}

enum RuleOutcome {
    Holds(RuleMatch),
    /// Excluding sign, with the number of conditions that held.
    RuledOut {
        criteria_met: usize,
        reason: String,
    },
    NotObservable(String),
}

fn evaluate_rule(rule: &VerdictRule, view: &RunView<'_>) -> RuleOutcome {
    if !rule.not_observable.is_empty() {
        return RuleOutcome::NotObservable(rule.not_observable.to_owned());
    }
    let (mut evidence, mut families, mut clear) = (Vec::new(), BTreeSet::new(), true);
    for criterion in rule.required {
        match evaluate_criterion(criterion, view) {
            None => {
                return RuleOutcome::NotObservable(format!("{} is not observable", criterion.signal.name));
            }
            Some((false, value)) => {
                return RuleOutcome::RuledOut {
                    criteria_met: evidence.len(),
                    reason: describe(criterion, value),
                };
            }
            Some((true, value)) => {
                add_evidence((criterion, value), view, &mut evidence, &mut families);
                clear &= criterion.is_clear(value);
            }
        }
    }
    for criterion in rule.excluding {
        match evaluate_criterion(criterion, view) {
            Some((true, value)) => {
                return RuleOutcome::RuledOut {
                    criteria_met: evidence.len(),
                    reason: describe(criterion, value),
                };
            }
            // A verdict that is almost excluded is not sure.
            Some((false, value)) => clear &= !criterion.is_near(value),
            None => {}
        }
    }
    match alternatives(rule, view, &mut evidence, &mut families) {
        Ok(is_clear) => clear &= is_clear,
        Err(judged) => return judged,
    }
    let mut signs = 0;
    let mut counter_evidence = None;
    for criterion in rule.supporting {
        match evaluate_criterion(criterion, view) {
            Some((true, value)) => {
                signs += 1;
                add_evidence((criterion, value), view, &mut evidence, &mut families);
            }
            Some((false, value)) => {
                counter_evidence = counter_evidence.or_else(|| Some(describe(criterion, value)))
            }
            None => {}
        }
    }
    if signs < rule.supporting_min || (families.len() < 2 && !rule.is_counted) {
        let reason = "not enough evidence: a second, independent signal is missing";
        return match counter_evidence {
            Some(reason) => RuleOutcome::RuledOut { criteria_met: evidence.len(), reason },
            None => RuleOutcome::NotObservable(reason.to_owned()),
        };
    }
    RuleOutcome::Holds(RuleMatch { is_clear: clear, families: families.len(), evidence })
}

/// Checks that one of the alternatives of a row holds, and returns whether one does so clearly.
fn alternatives(
    rule: &VerdictRule,
    view: &RunView<'_>,
    evidence: &mut Vec<String>,
    families: &mut BTreeSet<SignalFamily>,
) -> Result<bool, RuleOutcome> {
    let (mut holds, mut clear, mut counter_evidence) = (rule.any_of.is_empty(), rule.any_of.is_empty(), None);
    for criterion in rule.any_of {
        match evaluate_criterion(criterion, view) {
            Some((true, value)) => {
                add_evidence((criterion, value), view, evidence, families);
                holds = true;
                clear |= criterion.is_clear(value);
            }
            Some((false, value)) => {
                counter_evidence = counter_evidence.or_else(|| Some(describe(criterion, value)))
            }
            None => {}
        }
    }
    match (holds, counter_evidence) {
        (true, _) => Ok(clear),
        (false, Some(reason)) => Err(RuleOutcome::RuledOut { criteria_met: evidence.len(), reason }),
        (false, None) => {
            let names: Vec<&str> = rule.any_of.iter().map(|criterion| criterion.signal.name).collect();
            Err(RuleOutcome::NotObservable(format!("{} are not observable", names.join(", "))))
        }
    }
}

fn add_evidence(
    (criterion, value): (&Criterion, f64),
    view: &RunView<'_>,
    evidence: &mut Vec<String>,
    families: &mut BTreeSet<SignalFamily>,
) {
    families.insert(criterion.signal.family);
    let text = describe(criterion, value);
    evidence.push(match machine_of(criterion, value, view) {
        Some(machine) => format!("{machine}: {text}"),
        None => text,
    });
}

/// Returns the machine that a sign is from, if the record has several.
fn machine_of<'a>(criterion: &Criterion, value: f64, view: &RunView<'a>) -> Option<&'a str> {
    if criterion.signal.family != SignalFamily::Generator {
        return view.machine_of_value(criterion.signal.read, value);
    }
    // The generator's figures about itself are those of its machine, if it has only one.
    let generators = view.machines(GENERATOR);
    match generators.as_slice() {
        [machine] if view.run.observed.len() > 1 => Some(machine.observed.host.as_str()),
        _ => None,
    }
}

/// Returns whether a sign holds, with its value; `None` if it is not observable.
fn evaluate_criterion(criterion: &Criterion, view: &RunView<'_>) -> Option<(bool, f64)> {
    let value = (criterion.signal.read)(view).filter(|value| value.is_finite())?;
    let holds = match criterion.bound {
        Bound::AtLeast(bound) => value >= bound,
        Bound::AtMost(bound) => value <= bound,
    };
    Some((holds, value))
}

/// Formats "busiest subject thread, of a core: 99 % (bound: at least 92 %; schedstat of its
/// threads)".
fn describe(criterion: &Criterion, value: f64) -> String {
    let signal = criterion.signal;
    let value = format_value(value, signal.unit);
    match criterion.bound {
        // A figure that is reported whatever its value is.
        Bound::AtLeast(0.0) => format!("{}: {value} ({})", signal.name, signal.source),
        _ => format!("{}: {value} (bound: {}; {})", signal.name, criterion.describe_bound(), signal.source),
    }
}

/// Returns the verdict without a bottleneck. A load whose requests were served in time has none;
/// any other has one that could not be proven.
fn without_bottleneck(view: &RunView<'_>, common: Diagnosis) -> Diagnosis {
    let rates = &view.run.rates;
    let carried = signals::carried_fraction(view);
    // Without a baseline, only mostly idle clients show that a load with think time was carried.
    let has_think_time = view.run.plan["pace"]["think_ns"].as_u64().is_some_and(|ns| ns > 0);
    let is_mostly_idle =
        has_think_time && (signals::IN_FLIGHT_FRACTION.read)(view).is_some_and(|fraction| fraction < 0.5);
    let is_carried = carried.map_or(is_mostly_idle, |fraction| fraction >= signals::CARRIED_MIN);
    let missed_objectives: Vec<&str> =
        view.run.objectives.iter().filter(|one| !one.met).map(|one| one.text.as_str()).collect();
    let goodput_text = match rates.offered_per_s {
        Some(offered) => format!(
            "good responses: {} of {} offered",
            format_value(view.goodput(), signals::SignalUnit::PerSecond),
            format_value(offered, signals::SignalUnit::PerSecond)
        ),
        None => format!("good responses: {}", format_value(view.goodput(), signals::SignalUnit::PerSecond)),
    };
    let (verdict, claim, confidence) = match is_carried {
        true => (NONE, "no limit reached: all requests were served in time".to_owned(), Confidence::Likely),
        false if !missed_objectives.is_empty() => (
            UNKNOWN,
            format!("{} was missed; the evidence does not prove the cause", missed_objectives.join(", ")),
            Confidence::None,
        ),
        false => (
            UNKNOWN,
            "the throughput was limited; the evidence does not prove the cause".to_owned(),
            Confidence::None,
        ),
    };
    Diagnosis { verdict: verdict.to_owned(), claim, confidence, evidence: vec![goodput_text], ..common }
}

#[cfg(test)]
mod tests;
