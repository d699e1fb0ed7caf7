//! Whether a verdict survives a perturbation: something is changed, and the throughput has to answer
//! as the claim predicts. The true limit is the one whose change moves it.
//!
//! Pure: trials come in as rates, baseline and changed in turn, so that a drift hits both alike. Not
//! for making the change.

use record::run::{Confidence, Confirmation, Diagnosis};
use record::units::format_count;

use crate::diagnosis::verdicts::{Answer, Class, CounterTest, Perturbation, UNKNOWN, verdict};
use crate::statistics::median;

/// Pairs of trials that are made.
pub const PAIRS: usize = 3;

/// Share of a change that throughput has to follow to count as moved.
const FOLLOWED_MIN: f64 = 0.3;
/// Share of a change up to which throughput counts as unmoved.
const UNMOVED_MAX: f64 = 0.2;

impl Perturbation {
    /// By how much it multiplies what the claim is about.
    #[must_use]
    pub fn factor(self) -> f64 {
        match self {
            Self::SecondGenerator | Self::TwiceTheConnections => 2.0,
            Self::HalfTheConnections => 0.5,
            Self::LessProcessorTime => 0.75,
            // Where all the time is waiting, a cycle of one answer becomes one of one and a half.
            Self::Pause => 2.0 / 3.0,
            Self::KeptConnections | Self::Nothing => 1.0,
        }
    }

    /// What is changed, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::SecondGenerator => "a second generator beside the first",
            Self::TwiceTheConnections => "twice the connections",
            Self::HalfTheConnections => "half the connections",
            Self::LessProcessorTime => "three quarters of the subject's processor time",
            Self::KeptConnections => "connections that are kept",
            Self::Pause => "a pause of half an answer's time before each request",
            Self::Nothing => "nothing that can be changed from here",
        }
    }
}

/// Whether something can be changed from here to test a verdict.
#[must_use]
pub fn is_testable(code: &str) -> bool {
    verdict(code).is_some_and(|row| row.counter_test.0 != Perturbation::Nothing)
}

/// Puts the outcome of a counter-test into a diagnosis. A verdict that it refuted is not kept: what
/// limited the run is unknown then, and what spoke for the verdict stays as evidence. A test of another
/// verdict says nothing of this one, and is left out.
#[must_use]
pub fn settle(found: Diagnosis, test: Confirmation) -> Diagnosis {
    if test.verdict != found.verdict {
        return found;
    }
    if test.confirmed {
        return Diagnosis { confirmation: Some(test), ..found };
    }
    let Confirmation { verdict: code, perturbation, prediction, measured, .. } = &test;
    let why = format!(
        "{code}: its counter-test refuted it: predicted: {prediction}; measured: {measured}"
    );
    Diagnosis {
        claim: format!(
            "{code} was refuted by its counter-test ({perturbation}); what limited this run is not \
             proven"
        ),
        confidence: Confidence::None,
        evidence: found.evidence.iter().map(|line| format!("spoke for {code}: {line}")).collect(),
        ruled_out: std::iter::once(why).chain(found.ruled_out).collect(),
        remedy: String::new(),
        counter_test: String::new(),
        verdict: UNKNOWN.to_owned(),
        confirmation: Some(test),
        ..found
    }
}

/// The counter-test that was made for an earlier diagnosis of a record: it is measured, and cannot be
/// worked out again.
#[must_use]
pub fn made_for(earlier: Diagnosis) -> Option<Confirmation> {
    let mut test = earlier.confirmation?;
    if test.verdict.is_empty() {
        test.verdict = earlier.verdict;
    }
    Some(test)
}

/// What several counter-tests of one verdict say together: it is confirmed if all of them do.
#[must_use]
pub fn together(tests: Vec<Confirmation>) -> Option<Confirmation> {
    let join = |one: String, other: &str| format!("{one}; {other}");
    tests.into_iter().reduce(|all, test| Confirmation {
        verdict: all.verdict,
        perturbation: join(all.perturbation, &test.perturbation),
        prediction: join(all.prediction, &test.prediction),
        measured: join(all.measured, &test.measured),
        confirmed: all.confirmed && test.confirmed,
    })
}

/// The tests of a diagnosis whose outcome tells its verdict from the second-best explanation: the first
/// of `also` of another class, or the usual rival of its class where nothing else holds.
///
/// # Errors
/// None of them does, in words: such a test proves nothing, and is not made.
pub fn tests(found: &Diagnosis) -> Result<Vec<CounterTest>, String> {
    let row = verdict(&found.verdict).ok_or("there is no limit to test")?;
    let rivals = found.also.iter().filter_map(|other| verdict(&other.verdict));
    let second = rivals.into_iter().next();
    let rival = second.map_or_else(|| row.class.default_rival(), |second| second.class);
    let differs = |test: &CounterTest| match rival.predicts(test.0) {
        Some(answer) => answer != test.1,
        // A failure ends with its cause; how anything else answers is open.
        None => row.class == Class::Failure,
    };
    let own: Vec<CounterTest> = row.counter_tests().filter(differs).collect();
    if !own.is_empty() || row.counter_test.0 == Perturbation::Nothing {
        return Ok(own);
    }
    let by_class = Perturbation::ALL.into_iter().filter_map(|change| {
        let answer = row.class.predicts(change)?;
        let test = (change, answer, answer.prediction());
        differs(&test).then_some(test)
    });
    let name =
        second.map_or_else(|| format!("{rival:?}").to_lowercase(), |second| second.code.to_owned());
    by_class.into_iter().next().map(|test| vec![test]).ok_or_else(|| {
        format!(
            "a test of {} would come out the same if it were a {name}, so it would prove nothing",
            row.code
        )
    })
}

/// Judges pairs of rates of good responses (base, changed), per second, of a test of the verdict `code`.
///
/// # Errors
/// There is no pair, or the base rates differ among themselves by as much as the outcome would have to
/// differ from the bound: then nothing is decided.
pub fn judge(code: &str, test: CounterTest, pairs: &[(f64, f64)]) -> Result<Confirmation, String> {
    let (perturbation, answer, prediction) = test;
    let mut ratios: Vec<f64> = pairs
        .iter()
        .filter(|(base, _)| *base > 0.0)
        .map(|(base, changed)| changed / base)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let nothing = || "the trials had no good response".to_owned();
    let (first, last) = (*ratios.first().ok_or_else(nothing)?, *ratios.last().ok_or_else(nothing)?);
    let ratio = median(&ratios).ok_or_else(nothing)?;
    let noise = noise(pairs);
    let bound = decided_at(perturbation, answer);
    if (ratio - bound).abs() < noise / 2.0 {
        return Err(format!(
            "not decided: throughput × {ratio:.2} is too close to × {bound:.2}, where the explanations \
             part, for loads that differ by {:.0} % without any change",
            noise * 100.0
        ));
    }
    let list = |pick: fn(&(f64, f64)) -> f64| {
        let rates = pairs.iter().map(|pair| format_count(pick(pair)));
        rates.collect::<Vec<_>>().join(", ")
    };
    Ok(Confirmation {
        verdict: code.to_owned(),
        perturbation: perturbation.words().to_owned(),
        prediction: prediction.to_owned(),
        measured: format!(
            "throughput × {ratio:.2} ({first:.2}..{last:.2}): {} good responses per second against {}; \
             noise {:.0} %",
            list(|pair| pair.1),
            list(|pair| pair.0),
            noise * 100.0
        ),
        confirmed: answers(perturbation, answer, ratio),
    })
}

/// The range of the base rates over their median: what the throughput varies by without any change.
fn noise(pairs: &[(f64, f64)]) -> f64 {
    let base: Vec<f64> = pairs.iter().map(|pair| pair.0).filter(|rate| *rate > 0.0).collect();
    let highest = base.iter().copied().fold(0.0, f64::max);
    let lowest = base.iter().copied().fold(f64::INFINITY, f64::min);
    median(&base).map_or(0.0, |typical| (highest - lowest) / typical)
}

/// The ratio of throughputs on whose one side is the predicted answer to a perturbation, and on whose
/// other any other: a test in which it cannot be passed shows nothing.
#[must_use]
pub fn decided_at(perturbation: Perturbation, answer: Answer) -> f64 {
    // What changes by no factor has to show at all.
    let change = match perturbation.factor() {
        1.0 => 0.5,
        factor => (factor - 1.0).abs(),
    };
    match answer {
        Answer::Rises => 1.0 + change * FOLLOWED_MIN,
        Answer::Falls => 1.0 - change * FOLLOWED_MIN,
        Answer::Stays if perturbation.factor() > 1.0 => 1.0 + change * UNMOVED_MAX,
        Answer::Stays => 1.0 - change * UNMOVED_MAX,
    }
}

/// Whether a ratio of throughputs is the predicted answer to a perturbation.
fn answers(perturbation: Perturbation, answer: Answer, ratio: f64) -> bool {
    let bound = decided_at(perturbation, answer);
    match answer {
        Answer::Rises => ratio >= bound,
        Answer::Falls => ratio <= bound,
        // More that brings less is no limit that gave way either.
        Answer::Stays if perturbation.factor() > 1.0 => ratio <= bound,
        Answer::Stays => ratio >= bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::run::Candidate;

    fn confirmed(code: &str, pairs: &[(f64, f64)]) -> bool {
        judge(code, verdict(code).unwrap().counter_test, pairs).unwrap().confirmed
    }

    /// A diagnosis, and a test of `tested` with this outcome.
    fn settled(code: &str, tested: &str, confirmed: bool) -> Diagnosis {
        let found = Diagnosis {
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
        settle(found, test)
    }

    #[test]
    fn a_refuted_verdict_is_unknown_and_its_evidence_stays() {
        let refuted = settled("latency_bound", "latency_bound", false);
        assert_eq!((refuted.verdict.as_str(), refuted.confidence), (UNKNOWN, Confidence::None));
        assert!(refuted.claim.starts_with("latency_bound was refuted"), "{}", refuted.claim);
        assert!(refuted.claim.contains("twice the connections"), "{}", refuted.claim);
        assert_eq!(refuted.evidence, ["spoke for latency_bound: a figure"]);
        assert!(
            refuted.ruled_out[0].contains("predicted: it doubles; measured: throughput × 1.01")
        );
        assert_eq!(refuted.ruled_out[1], "link_bound: idle");
        assert!(refuted.remedy.is_empty() && refuted.counter_test.is_empty());
        // Which is found again where the record is diagnosed anew.
        let test = made_for(refuted.clone()).unwrap();
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
        // Before tests named their verdict, it was the one beside them.
        let mut old = settled("latency_bound", "latency_bound", true);
        old.confirmation.as_mut().unwrap().verdict.clear();
        assert_eq!(made_for(old).unwrap().verdict, "latency_bound");
        assert_eq!(made_for(Diagnosis::default()), None);
    }

    #[test]
    fn what_nothing_can_be_changed_for_is_not_testable() {
        let testable = ["packet_loss", "cpu_steal", "run_invalid", "unknown", "none", "link_bound"];
        assert_eq!(testable.map(is_testable), [false, false, false, false, false, true]);
    }

    #[test]
    fn latency_gives_way_to_connections_and_a_processor_does_not() {
        let doubled = [(500.0, 980.0), (498.0, 991.0), (501.0, 300.0)];
        let unmoved = [(8_236.0, 8_300.0), (8_200.0, 8_100.0), (8_210.0, 8_250.0)];
        assert!(confirmed("latency_bound", &doubled));
        assert!(!confirmed("latency_bound", &unmoved));
        assert!(confirmed("link_bound", &unmoved));
        assert!(!confirmed("link_bound", &doubled));
    }

    /// A diagnosis with a second explanation.
    fn beside(code: &str, other: Option<&str>) -> Diagnosis {
        let also = other.map(|code| Candidate { verdict: code.to_owned(), ..Candidate::default() });
        Diagnosis {
            verdict: code.to_owned(),
            also: also.into_iter().collect(),
            ..Diagnosis::default()
        }
    }

    #[test]
    fn a_test_that_the_rival_would_pass_as_well_is_not_made() {
        let changes = |found: &Diagnosis| {
            tests(found).map(|tests| tests.iter().map(|test| test.0).collect::<Vec<_>>())
        };
        // Twice the connections stay without effect under any limit, so it takes less CPU time to tell.
        let single = beside("single_thread_bound", None);
        assert_eq!(changes(&single), Ok(vec![Perturbation::LessProcessorTime]));
        let latency = beside("latency_bound", Some("subject_limited"));
        assert!(changes(&latency).unwrap().contains(&Perturbation::TwiceTheConnections));
        let link = beside("link_bound", Some("latency_bound"));
        assert_eq!(
            changes(&link),
            Ok(vec![Perturbation::TwiceTheConnections, Perturbation::Pause])
        );
        let two_limits = changes(&beside("link_bound", Some("subject_limited"))).unwrap_err();
        assert!(two_limits.contains("prove nothing"), "{two_limits}");
        assert!(changes(&beside("connection_limited", Some("subject_limited"))).is_err());
        assert_eq!(changes(&beside("packet_loss", None)), Ok(vec![]), "nothing can be changed");
        assert!(changes(&beside("fd_limit", None)).unwrap().len() == 1);
    }

    #[test]
    fn noise_as_large_as_the_difference_decides_nothing() {
        let test = verdict("user_cpu_bound").unwrap().counter_test;
        let noisy = [(1_000.0, 900.0), (1_400.0, 1_260.0), (800.0, 720.0)];
        let why = judge("user_cpu_bound", test, &noisy).unwrap_err();
        assert!(why.starts_with("not decided"), "{why}");
        let steady = [(1_000.0, 750.0), (1_010.0, 760.0), (990.0, 740.0)];
        assert!(judge("user_cpu_bound", test, &steady).unwrap().confirmed);
    }

    #[test]
    fn less_processor_time_has_to_be_felt() {
        assert!(confirmed("user_cpu_bound", &[(1_000.0, 760.0)]));
        assert!(!confirmed("user_cpu_bound", &[(1_000.0, 990.0)]));
        assert!(confirmed("client_bound", &[(30_000.0, 55_000.0)]));
        assert!(confirmed("bufferbloat", &[(100.0, 99.0)]));
        assert!(!confirmed("bufferbloat", &[(100.0, 51.0)]));
    }

    #[test]
    fn no_trial_is_no_judgement() {
        let test = verdict("latency_bound").unwrap().counter_test;
        assert!(judge("latency_bound", test, &[]).is_err());
        assert!(judge("latency_bound", test, &[(0.0, 1.0)]).is_err());
        assert!(together(Vec::new()).is_none());
    }

    #[test]
    fn a_pause_tells_waiting_from_work_and_one_test_that_fails_is_enough() {
        let pause = |code: &str, pairs: &[(f64, f64)]| {
            judge(code, verdict(code).unwrap().second_test.unwrap(), pairs).unwrap()
        };
        assert!(pause("latency_bound", &[(500.0, 335.0)]).confirmed);
        assert!(!pause("latency_bound", &[(500.0, 495.0)]).confirmed);
        assert!(pause("single_thread_bound", &[(5_000.0, 4_900.0)]).confirmed);
        assert!(!pause("link_bound", &[(577.0, 400.0)]).confirmed);
        let both = together(vec![
            pause("latency_bound", &[(500.0, 335.0)]),
            pause("latency_bound", &[(500.0, 495.0)]),
        ]);
        assert!(!both.unwrap().confirmed);
    }
}
