//! Counter-tests of verdicts: one thing is changed, and the throughput has to respond as the claim
//! predicts. The true limit is the one that moves the throughput when it is changed.
//!
//! Pure: trials come in as rates, baseline and changed in turn, so that a drift affects both alike.
//! This module does not make the change.

use record::run::{Confidence, Confirmation, Diagnosis};
use record::units::format_count;

use crate::verdicts::{CounterTest, LimitClass, Perturbation, ThroughputChange, UNKNOWN, find_rule};
use stats::median;

pub const PAIRS_PER_TEST: usize = 3;

/// Fraction of a change that throughput has to follow to count as moved.
const FOLLOWED_MIN: f64 = 0.3;
/// Fraction of a change up to which throughput counts as unmoved.
const UNMOVED_MAX: f64 = 0.2;

impl Perturbation {
    /// Returns the factor by which the change multiplies the resource that the claim is about.
    pub fn factor(self) -> f64 {
        match self {
            Self::SecondGenerator | Self::DoubleConnections => 2.0,
            Self::HalveConnections => 0.5,
            Self::LessCpuTime => 0.75,
            // If a cycle is all waiting, a pause of half a response time makes it 1.5 times as
            // long.
            Self::ThinkTime => 2.0 / 3.0,
            Self::ToggleKeepAlive | Self::NotPossible => 1.0,
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::SecondGenerator => "a second load generator",
            Self::DoubleConnections => "twice the connections",
            Self::HalveConnections => "half the connections",
            Self::LessCpuTime => "three quarters of the subject's CPU time",
            Self::ToggleKeepAlive => "keep-alive",
            Self::ThinkTime => "a pause of half a response time before each request",
            Self::NotPossible => "no possible change",
        }
    }
}

/// Returns whether a verdict can be tested by a change that is possible from here.
pub fn is_testable(code: &str) -> bool {
    find_rule(code).is_some_and(|row| row.counter_test.0 != Perturbation::NotPossible)
}

/// Puts the outcome of a counter-test into a diagnosis. A refuted verdict becomes unknown; the
/// evidence for it is kept. A test of another verdict proves nothing about this one and is left
/// out.
pub fn apply_confirmation(diagnosis: Diagnosis, test: Confirmation) -> Diagnosis {
    if test.verdict != diagnosis.verdict {
        return diagnosis;
    }
    if test.confirmed {
        return Diagnosis { confirmation: Some(test), ..diagnosis };
    }
    let Confirmation { verdict: code, perturbation, prediction, measured, .. } = &test;
    let why =
        format!("{code} was refuted by its counter-test: predicted: {prediction}; measured: {measured}");
    Diagnosis {
        claim: format!(
            "{code} was refuted by its counter-test ({perturbation}); the limit of this run is not \
             proven"
        ),
        confidence: Confidence::None,
        evidence: diagnosis.evidence.iter().map(|line| format!("evidence for {code}: {line}")).collect(),
        ruled_out: std::iter::once(why).chain(diagnosis.ruled_out).collect(),
        remedy: String::new(),
        counter_test: String::new(),
        verdict: UNKNOWN.to_owned(),
        confirmation: Some(test),
        ..diagnosis
    }
}

/// Returns the counter-test that was made for an earlier diagnosis of a record. Its outcome was
/// measured and cannot be recomputed.
pub fn earlier_confirmation(earlier: Diagnosis) -> Option<Confirmation> {
    let mut test = earlier.confirmation?;
    if test.verdict.is_empty() {
        test.verdict = earlier.verdict;
    }
    Some(test)
}

/// Combines several counter-tests of one verdict. The verdict is confirmed if all of them confirm
/// it.
pub fn combine(tests: Vec<Confirmation>) -> Option<Confirmation> {
    let join = |first: String, second: &str| format!("{first}; {second}");
    tests.into_iter().reduce(|all, test| Confirmation {
        verdict: all.verdict,
        perturbation: join(all.perturbation, &test.perturbation),
        prediction: join(all.prediction, &test.prediction),
        measured: join(all.measured, &test.measured),
        confirmed: all.confirmed && test.confirmed,
    })
}

/// Reason why a counter-test proves nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CounterTestError {
    /// The diagnosis names no limit.
    #[error("no limit to test")]
    NoLimit,
    /// Every possible test has the same outcome for another explanation.
    #[error("a test of {code} would have the same outcome for {rival}, so it would prove nothing")]
    SameOutcome { code: &'static str, rival: String },
    /// No trial had a good response.
    #[error("the trials had no successful response")]
    NoResponse,
    /// The outcome is within the variation of the trials.
    #[error(
        "undecided: throughput × {ratio:.2} is too close to the threshold × {threshold:.2}, because the throughput \
         varies by {:.0} % without any change",
        noise * 100.0
    )]
    Undecided {
        ratio: f64,
        /// Ratio that separates the outcomes.
        threshold: f64,
        /// Variation of the base rates, as a fraction of their median.
        noise: f64,
    },
}

/// Returns the tests that distinguish the verdict of a diagnosis from its second-best explanation:
/// the first of its `alternatives`, or the usual rival of its class if there is none.
///
/// # Errors
/// No test distinguishes them. Such a test proves nothing and is not made.
pub fn distinguishing_tests(diagnosis: &Diagnosis) -> Result<Vec<CounterTest>, CounterTestError> {
    let row = find_rule(&diagnosis.verdict).ok_or(CounterTestError::NoLimit)?;
    let rivals = diagnosis.alternatives.iter().filter_map(|other| find_rule(&other.verdict));
    let second = rivals.into_iter().next();
    let rival = second.map_or_else(|| row.class.default_rival(), |second| second.class);
    let differs = |test: &CounterTest| match rival.predicted_change(test.0) {
        Some(response) => response != test.1,
        // A failure ends with its cause; the response of any other class is open.
        None => row.class == LimitClass::Failure,
    };
    let own: Vec<CounterTest> = row.counter_tests().filter(differs).collect();
    if !own.is_empty() || row.counter_test.0 == Perturbation::NotPossible {
        return Ok(own);
    }
    let by_class = Perturbation::ALL.into_iter().filter_map(|change| {
        let response = row.class.predicted_change(change)?;
        let test = (change, response, response.prediction());
        differs(&test).then_some(test)
    });
    let rival = second.map_or_else(|| format!("{rival:?}").to_lowercase(), |second| second.code.to_owned());
    let test = by_class.into_iter().next().map(|test| vec![test]);
    test.ok_or(CounterTestError::SameOutcome { code: row.code, rival })
}

/// Judges pairs of rates of good responses (base, changed), per second, from a test of the verdict
/// `code`.
///
/// # Errors
/// There is no pair, or the outcome is undecided: the base rates differ among themselves by as
/// much as the outcome would have to differ from the bound.
pub fn judge(code: &str, test: CounterTest, pairs: &[(f64, f64)]) -> Result<Confirmation, CounterTestError> {
    let (perturbation, response, prediction) = test;
    let mut ratios: Vec<f64> =
        pairs.iter().filter(|(base, _)| *base > 0.0).map(|(base, changed)| changed / base).collect();
    ratios.sort_by(f64::total_cmp);
    let (Some(&first), Some(&last), Some(ratio)) = (ratios.first(), ratios.last(), median(&ratios)) else {
        return Err(CounterTestError::NoResponse);
    };
    let noise = noise(pairs);
    let threshold = decision_threshold(perturbation, response);
    if (ratio - threshold).abs() < noise / 2.0 {
        return Err(CounterTestError::Undecided { ratio, threshold, noise });
    }
    let list = |pick: fn(&(f64, f64)) -> f64| {
        let rates = pairs.iter().map(|pair| format_count(pick(pair)));
        rates.collect::<Vec<_>>().join(", ")
    };
    Ok(Confirmation {
        verdict: code.to_owned(),
        perturbation: perturbation.description().to_owned(),
        prediction: prediction.to_owned(),
        measured: format!(
            "throughput × {ratio:.2} ({first:.2}..{last:.2}): {} good responses per second, baseline {}; \
             noise {:.0} %",
            list(|pair| pair.1),
            list(|pair| pair.0),
            noise * 100.0
        ),
        confirmed: is_predicted_response(perturbation, response, ratio),
    })
}

/// Returns the range of the base rates over their median: the variation without any change.
fn noise(pairs: &[(f64, f64)]) -> f64 {
    let base: Vec<f64> = pairs.iter().map(|pair| pair.0).filter(|rate| *rate > 0.0).collect();
    let highest = base.iter().copied().fold(0.0, f64::max);
    let lowest = base.iter().copied().fold(f64::INFINITY, f64::min);
    median(&base).map_or(0.0, |median_rate| (highest - lowest) / median_rate)
}

/// Returns the ratio of throughputs that separates the predicted response to a perturbation from
/// any other response. A test that cannot cross this ratio proves nothing.
pub fn decision_threshold(perturbation: Perturbation, response: ThroughputChange) -> f64 {
    // A change with factor 1 has no size of its own; assume 0.5.
    let change = match perturbation.factor() {
        1.0 => 0.5,
        factor => (factor - 1.0).abs(),
    };
    match response {
        ThroughputChange::Rises => 1.0 + change * FOLLOWED_MIN,
        ThroughputChange::Falls => 1.0 - change * FOLLOWED_MIN,
        ThroughputChange::Stays if perturbation.factor() > 1.0 => 1.0 + change * UNMOVED_MAX,
        ThroughputChange::Stays => 1.0 - change * UNMOVED_MAX,
    }
}

fn is_predicted_response(perturbation: Perturbation, response: ThroughputChange, ratio: f64) -> bool {
    let threshold = decision_threshold(perturbation, response);
    match response {
        ThroughputChange::Rises => ratio >= threshold,
        ThroughputChange::Falls => ratio <= threshold,
        // More of the resource with less throughput does not mean that the limit gave way either.
        ThroughputChange::Stays if perturbation.factor() > 1.0 => ratio <= threshold,
        ThroughputChange::Stays => ratio >= threshold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::run::AlternativeVerdict;

    fn confirmed(code: &str, pairs: &[(f64, f64)]) -> bool {
        judge(code, find_rule(code).unwrap().counter_test, pairs).unwrap().confirmed
    }

    /// Returns a diagnosis with the outcome of a test of `tested`.
    fn settled(code: &str, tested: &str, confirmed: bool) -> Diagnosis {
        let diagnosis = Diagnosis {
            verdict: code.to_owned(),
            claim: "a claim".to_owned(),
            confidence: Confidence::Likely,
            evidence: vec!["a figure".to_owned()],
            ruled_out: vec!["link_bound: idle".to_owned()],
            remedy: "do this".to_owned(),
            counter_test: "a proof".to_owned(),
            ..Diagnosis::default()
        };
        let test = Confirmation {
            verdict: tested.to_owned(),
            perturbation: "twice the connections".to_owned(),
            prediction: "it doubles".to_owned(),
            measured: "throughput × 1.01".to_owned(),
            confirmed,
        };
        apply_confirmation(diagnosis, test)
    }

    #[test]
    fn a_refuted_verdict_is_unknown_and_its_evidence_stays() {
        let refuted = settled("latency_bound", "latency_bound", false);
        assert_eq!((refuted.verdict.as_str(), refuted.confidence), (UNKNOWN, Confidence::None));
        let test = refuted.confirmation.as_ref().unwrap();
        assert!(refuted.claim.contains("latency_bound") && refuted.claim.contains(&test.perturbation));
        assert_eq!(refuted.evidence.len(), 1, "{:?}", refuted.evidence);
        assert!(refuted.evidence[0].contains("latency_bound") && refuted.evidence[0].ends_with("a figure"));
        assert!(refuted.ruled_out[0].contains(&test.prediction), "{:?}", refuted.ruled_out);
        assert!(refuted.ruled_out[0].contains(&test.measured), "{:?}", refuted.ruled_out);
        assert_eq!(refuted.ruled_out[1], "link_bound: idle");
        assert!(refuted.remedy.is_empty() && refuted.counter_test.is_empty());
        // Diagnosing the record again finds the verdict again.
        let test = earlier_confirmation(refuted.clone()).unwrap();
        assert_eq!((test.verdict.as_str(), test.confirmed), ("latency_bound", false));
        let kept = settled("latency_bound", "latency_bound", true);
        assert_eq!((kept.verdict.as_str(), kept.confidence), ("latency_bound", Confidence::Likely));
        assert!(kept.confirmation.is_some() && kept.remedy == "do this");
    }

    #[test]
    fn a_test_of_another_verdict_says_nothing() {
        for confirmed in [false, true] {
            let other = settled("user_cpu_bound", "latency_bound", confirmed);
            assert_eq!((other.verdict.as_str(), other.confirmation), ("user_cpu_bound", None));
        }
        // Older tests did not name their verdict; it was the one beside them.
        let mut old = settled("latency_bound", "latency_bound", true);
        old.confirmation.as_mut().unwrap().verdict.clear();
        assert_eq!(earlier_confirmation(old).unwrap().verdict, "latency_bound");
        assert_eq!(earlier_confirmation(Diagnosis::default()), None);
    }

    #[test]
    fn verdicts_without_a_possible_change_are_not_testable() {
        let testable =
            ["packet_loss", "cpu_steal", "cpu_contended", "run_invalid", "unknown", "none", "link_bound"];
        assert_eq!(testable.map(is_testable), [false, false, false, false, false, false, true]);
    }

    #[test]
    fn connections_change_a_latency_limit_and_not_a_cpu_limit() {
        let doubled = [(500.0, 980.0), (498.0, 991.0), (501.0, 300.0)];
        let unmoved = [(8_236.0, 8_300.0), (8_200.0, 8_100.0), (8_210.0, 8_250.0)];
        assert!(confirmed("latency_bound", &doubled));
        assert!(!confirmed("latency_bound", &unmoved));
        assert!(confirmed("link_bound", &unmoved));
        assert!(!confirmed("link_bound", &doubled));
    }

    /// Returns a diagnosis with a second explanation.
    fn diagnosis_with_rival(code: &str, other: Option<&str>) -> Diagnosis {
        let also = other
            .map(|code| AlternativeVerdict { verdict: code.to_owned(), ..AlternativeVerdict::default() });
        Diagnosis {
            verdict: code.to_owned(),
            alternatives: also.into_iter().collect(),
            ..Diagnosis::default()
        }
    }

    #[test]
    fn a_test_that_the_rival_would_pass_as_well_is_not_made() {
        let changes = |diagnosis: &Diagnosis| {
            distinguishing_tests(diagnosis).map(|tests| tests.iter().map(|test| test.0).collect::<Vec<_>>())
        };
        // Twice the connections have no effect under any limit, so the test has to reduce CPU time.
        let single = diagnosis_with_rival("single_thread_bound", None);
        assert_eq!(changes(&single), Ok(vec![Perturbation::LessCpuTime]));
        let latency = diagnosis_with_rival("latency_bound", Some("subject_limited"));
        assert!(changes(&latency).unwrap().contains(&Perturbation::DoubleConnections));
        let link = diagnosis_with_rival("link_bound", Some("latency_bound"));
        assert_eq!(changes(&link), Ok(vec![Perturbation::DoubleConnections, Perturbation::ThinkTime]));
        let two_limits = changes(&diagnosis_with_rival("link_bound", Some("subject_limited"))).unwrap_err();
        assert!(two_limits.to_string().contains("prove nothing"), "{two_limits}");
        assert!(changes(&diagnosis_with_rival("connection_limited", Some("subject_limited"))).is_err());
        assert_eq!(changes(&diagnosis_with_rival("packet_loss", None)), Ok(vec![]), "nothing can be changed");
        assert!(changes(&diagnosis_with_rival("fd_limit", None)).unwrap().len() == 1);
    }

    #[test]
    fn noise_as_large_as_the_difference_decides_nothing() {
        let test = find_rule("user_cpu_bound").unwrap().counter_test;
        let noisy = [(1_000.0, 900.0), (1_400.0, 1_260.0), (800.0, 720.0)];
        let why = judge("user_cpu_bound", test, &noisy).unwrap_err();
        assert!(why.to_string().starts_with("undecided"), "{why}");
        let steady = [(1_000.0, 750.0), (1_010.0, 760.0), (990.0, 740.0)];
        assert!(judge("user_cpu_bound", test, &steady).unwrap().confirmed);
    }

    #[test]
    fn less_cpu_time_has_to_reduce_throughput() {
        assert!(confirmed("user_cpu_bound", &[(1_000.0, 760.0)]));
        assert!(!confirmed("user_cpu_bound", &[(1_000.0, 990.0)]));
        assert!(confirmed("client_bound", &[(30_000.0, 55_000.0)]));
        assert!(confirmed("bufferbloat", &[(100.0, 99.0)]));
        assert!(!confirmed("bufferbloat", &[(100.0, 51.0)]));
    }

    #[test]
    fn no_trial_is_no_judgement() {
        let test = find_rule("latency_bound").unwrap().counter_test;
        assert!(judge("latency_bound", test, &[]).is_err());
        assert!(judge("latency_bound", test, &[(0.0, 1.0)]).is_err());
        assert!(combine(Vec::new()).is_none());
    }

    #[test]
    fn a_pause_tells_waiting_from_work_and_one_test_that_fails_is_enough() {
        let pause = |code: &str, pairs: &[(f64, f64)]| {
            judge(code, find_rule(code).unwrap().second_test.unwrap(), pairs).unwrap()
        };
        assert!(pause("latency_bound", &[(500.0, 335.0)]).confirmed);
        assert!(!pause("latency_bound", &[(500.0, 495.0)]).confirmed);
        assert!(pause("single_thread_bound", &[(5_000.0, 4_900.0)]).confirmed);
        assert!(!pause("link_bound", &[(577.0, 400.0)]).confirmed);
        let both = combine(vec![
            pause("latency_bound", &[(500.0, 335.0)]),
            pause("latency_bound", &[(500.0, 495.0)]),
        ]);
        assert!(!both.unwrap().confirmed);
    }
}
