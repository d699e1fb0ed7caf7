//! Verdict on a run: the rules that hold, in the order of the table, the confidence in the first of them, and
//! the change that distinguishes it from the next.

use std::cmp::Reverse;

use record::observed::ExitedProcess;
use record::run::{AlternativeVerdict, Confidence, Diagnosis, Run};
use record::sorted::sort_by_key;
use record::validity::ValidityLevel;

use crate::rule_outcome::{RuleMatch, RuleOutcome, evaluate_rule};
use crate::run_view::RunView;
use crate::unit::{Unit, format_value};
use crate::verdicts::{
    Criterion, LimitClass, NONE, Perturbation, RATE_LIMITED, RUN_INVALID, UNKNOWN, VERDICTS, VerdictRule,
};
use crate::window::{ORIGIN, SUBJECT};
use crate::{fingerprints, resource_headroom, signals, sleep_evidence, time_split};

/// Returns the verdict on a run, from its record alone.
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
    let stalled =
        reasons.find(|reason| reason.code == "generator_stalled" && reason.verdict == ValidityLevel::Invalid);
    stalled.map(|reason| reason.text.as_str())
}

/// Returns the processes that ended under load, as evidence: "process 12 (nginx) ended at 1.5 s".
pub(crate) fn ended_processes(view: &RunView<'_>) -> Vec<String> {
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
    sort_by_key(&mut ruled_out, |(criteria_met, _)| Reverse(*criteria_met));
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
    put_lesser_parts_last(&mut matches, view);
    let Some(((rule, first), others)) = matches.split_first() else {
        return without_bottleneck(view, common);
    };
    // Failed requests explain nothing else, and nothing else is judged by them.
    let others = if [RUN_INVALID, RATE_LIMITED].contains(&rule.code) { &[] } else { others };
    let alternatives = others.iter().map(|(rule, rule_match)| alternative(rule, rule_match)).collect();
    let mut evidence = first.evidence.clone();
    if matches!(rule.class, LimitClass::Limit | LimitClass::Delay) {
        evidence.extend(sleep_evidence::describe_sleeps(view));
    }
    if lacks_baseline(rule, view) {
        evidence.push(BASELINE_MISSING.to_owned());
    }
    let doubts = [hidden_cause(rule, view), shared_cpus(rule, view), stalled_transfers(rule, view)];
    let doubts: Vec<String> = doubts.into_iter().flatten().collect();
    evidence.extend_from_slice(&doubts);
    let rival = others.iter().find(|(other, rule_match)| other.class != rule.class && rule_match.is_clear);
    Diagnosis {
        verdict: rule.code.to_owned(),
        claim: rule.claim.to_owned(),
        confidence: confidence(rule, first, rival.is_some(), view).min(match doubts[..] {
            [] => Confidence::Sure,
            _ => Confidence::Likely,
        }),
        evidence,
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

/// Puts verdicts that explain the lesser part of the limit behind the others, if one of those shows a limit.
fn put_lesser_parts_last(matches: &mut [(&VerdictRule, RuleMatch)], view: &RunView<'_>) {
    if matches.iter().any(|(rule, _)| shows_own_limit(rule)) {
        // Stable: the rest keeps the order of the table.
        sort_by_key(matches, |(rule, _)| yields(rule, view));
    }
}

/// Returns whether evidence shows the limit, which is in the subject or beyond it.
fn shows_own_limit(rule: &VerdictRule) -> bool {
    rule.class != LimitClass::Generator && !rule.is_by_exclusion && rule.yielding.is_empty()
}

/// Returns whether a verdict comes behind others that hold, because it explains the lesser part of the limit.
fn yields(rule: &VerdictRule, view: &RunView<'_>) -> bool {
    let is_met =
        |criterion: &Criterion| criterion.signal.value(view).is_some_and(|value| criterion.is_met_by(value));
    rule.yielding.iter().any(is_met)
}

/// Returns why a narrower cause than that of a general rule is not excluded; `None` for other rules.
fn hidden_cause(rule: &VerdictRule, view: &RunView<'_>) -> Option<String> {
    // Only functions tell the kinds of work in user space from one another.
    let needs_samples = rule.class == LimitClass::Cpu && rule.requires(&signals::SUBJECT_USER);
    rule.is_general.then(|| signals::hidden_cause(view, needs_samples)).flatten()
}

/// Part of the subject's CPUs that others take from which they are a part of the limit as well.
const PART_OF_OTHERS_MIN: f64 = 0.15;

/// Returns how much of its CPUs others took from a subject that is full because of what they left; `None` for rules
/// that do not judge that.
fn shared_cpus(rule: &VerdictRule, view: &RunView<'_>) -> Option<String> {
    let judges = |signal| rule.requires(signal) || rule.is_proven_by(signal);
    let judges_what_is_left = judges(&signals::SUBJECT_SATURATION) || judges(&signals::SUBJECT_CONTENTION);
    let taken = judges_what_is_left.then(|| (signals::PART_OF_OTHERS.read)(view)).flatten();
    let taken = taken.filter(|taken| *taken >= PART_OF_OTHERS_MIN)?;
    let taken = format_value(taken, Unit::Fraction);
    Some(format!("others took {taken} of the CPUs that it may use: without them, it would carry more"))
}

/// Part of the latency from which stalls in transfers are a part of the limit as well.
const STALLED_PART_MIN: f64 = 0.3;

/// Returns how much of the latency is waiting for an acknowledgement, which no CPU shortens; `None` for rules that do
/// not judge CPU time.
fn stalled_transfers(rule: &VerdictRule, view: &RunView<'_>) -> Option<String> {
    let is_of_cpus = rule.is_general && rule.class == LimitClass::Cpu;
    let stalled = is_of_cpus.then(|| (signals::TRANSFER_STALL.read)(view)).flatten();
    let stalled = stalled.filter(|stalled| *stalled >= STALLED_PART_MIN)?;
    let stalled = format_value(stalled, Unit::Fraction);
    Some(format!(
        "{stalled} of the latency is a wait for an acknowledgement, which no CPU shortens (delayed_ack_stall)"
    ))
}

/// Returns whether the latency without load would tell this delay from the wait for one of a few workers, and is
/// not known.
fn lacks_baseline(rule: &VerdictRule, view: &RunView<'_>) -> bool {
    rule.class == LimitClass::Delay
        && rule.is_supported_by(&signals::QUEUEING)
        && signals::unloaded_latency_ns(view).is_none()
}

/// Returns the confidence of a verdict, from the margin of its conditions and the other possible
/// explanations.
fn confidence(rule: &VerdictRule, rule_match: &RuleMatch, has_rival: bool, view: &RunView<'_>) -> Confidence {
    // The behaviour of a full resource is known; a delay and a limit differ only in the baseline.
    let needs_baseline = matches!(rule.class, LimitClass::Delay | LimitClass::Limit | LimitClass::Cpu);
    let has_needed_baseline = !needs_baseline || (signals::QUEUEING.read)(view).is_some();
    let max = match rule.is_circumstantial {
        _ if lacks_baseline(rule, view) => Confidence::Possible,
        // CPU time without an owner is the subject's by counts of new processes only: some may be a stranger's.
        _ if rule.class == LimitClass::Cpu && signals::short_lived_cpus(view).is_some() => {
            Confidence::Possible
        }
        // Runtimes park idle threads on futexes as well: counts of calls do not prove a lock.
        true => Confidence::Likely,
        false => Confidence::Sure,
    };
    let level = match (rule_match.is_clear, rule_match.families, has_rival) {
        (true, 3.., false) if has_needed_baseline => Confidence::Sure,
        (true, 2.., false) | (_, 3.., false) => Confidence::Likely,
        (true, 3.., true) => Confidence::Likely,
        _ if rule.is_counted => Confidence::Likely,
        _ => Confidence::Possible,
    };
    level.min(max)
}

fn distinguishing_change(rule: &VerdictRule, rival: &VerdictRule) -> String {
    if rule.class == LimitClass::Failure {
        let (code, rival) = (rule.code, rival.code);
        return format!(
            "fix {code} first, and measure again: {rival} can only be judged without failed requests"
        );
    }
    let change = Perturbation::ALL.iter().find_map(|&change| {
        let (rule_change, rival_change) =
            (rule.class.predicted_change(change)?, rival.class.predicted_change(change)?);
        (rule_change != rival_change).then_some((change, rule_change, rival_change))
    });
    match change {
        Some((change, rule_change, rival_change)) => format!(
            "{}: the throughput {} if it is {}, and {} if it is {}",
            change.description(),
            rule_change.description(),
            rule.code,
            rival_change.description(),
            rival.code
        ),
        None => format!(
            "no external change distinguishes {} from {}: check the subject's own counters",
            rule.code, rival.code
        ),
    }
}

fn alternative(rule: &VerdictRule, rule_match: &RuleMatch) -> AlternativeVerdict {
    AlternativeVerdict {
        verdict: rule.code.to_owned(),
        confidence: if rule_match.is_clear { Confidence::Likely } else { Confidence::Possible },
        evidence: rule_match.evidence.clone(),
    }
}

/// Evidence that was not collected, and would tell waiting from service.
const BASELINE_MISSING: &str =
    "the latency without load is not known: weir load measures it before a steady load of 3 s or more";

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
    let missed_objectives: Vec<&str> = view
        .run
        .objectives
        .iter()
        .filter(|objective| !objective.met)
        .map(|objective| objective.text.as_str())
        .collect();
    let goodput_text = match rates.offered_per_s {
        Some(offered) => format!(
            "good responses: {} of {} offered",
            format_value(view.goodput(), Unit::PerSecond),
            format_value(offered, Unit::PerSecond)
        ),
        None => format!("good responses: {}", format_value(view.goodput(), Unit::PerSecond)),
    };
    let (verdict, claim, confidence) = match is_carried {
        true => (NONE, "no limit reached: all requests were served in time".to_owned(), Confidence::Likely),
        false if !missed_objectives.is_empty() => (
            UNKNOWN,
            format!("{} was missed; the evidence does not prove the cause", missed_objectives.join(", ")),
            Confidence::None,
        ),
        false
            if rates
                .offered_per_s
                .is_some_and(|offered| view.goodput() >= signals::CARRIED_MIN * offered) =>
        {
            (
                UNKNOWN,
                "all requests got a response, but many of them late; the evidence does not prove the cause"
                    .to_owned(),
                Confidence::None,
            )
        }
        false => (
            UNKNOWN,
            "the throughput was limited; the evidence does not prove the cause".to_owned(),
            Confidence::None,
        ),
    };
    let mut evidence = vec![goodput_text];
    if !is_carried {
        evidence.extend(sleep_evidence::describe_sleeps(view));
        evidence.extend(signals::unloaded_latency_ns(view).is_none().then(|| BASELINE_MISSING.to_owned()));
    }
    Diagnosis { verdict: verdict.to_owned(), claim, confidence, evidence, ..common }
}
