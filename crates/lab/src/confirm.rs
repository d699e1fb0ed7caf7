//! Whether a verdict survives a perturbation: something is changed, and the throughput has to answer
//! as the claim predicts. The true limit is the one whose change moves it.
//!
//! Pure: trials come in as rates, baseline and changed in turn, so that a drift hits both alike. Not
//! for making the change.

use record::run::Confirmation;
use record::units::format_count;

use crate::diagnosis::verdicts::{Answer, CounterTest, Perturbation};
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

/// What several counter-tests of one verdict say together: it is confirmed if all of them do.
#[must_use]
pub fn together(tests: Vec<Confirmation>) -> Option<Confirmation> {
    let join = |one: String, other: &str| format!("{one}; {other}");
    tests.into_iter().reduce(|all, test| Confirmation {
        perturbation: join(all.perturbation, &test.perturbation),
        prediction: join(all.prediction, &test.prediction),
        measured: join(all.measured, &test.measured),
        confirmed: all.confirmed && test.confirmed,
    })
}

/// Judges pairs of rates (baseline, changed), in responses per second. `None` without any pair.
#[must_use]
pub fn judge(test: CounterTest, pairs: &[(f64, f64)]) -> Option<Confirmation> {
    let (perturbation, answer, prediction) = test;
    let mut ratios: Vec<f64> = pairs
        .iter()
        .filter(|(base, _)| *base > 0.0)
        .map(|(base, changed)| changed / base)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let (first, last) = (*ratios.first()?, *ratios.last()?);
    let ratio = median(&ratios)?;
    let list = |pick: fn(&(f64, f64)) -> f64| {
        let rates = pairs.iter().map(|pair| format_count(pick(pair)));
        rates.collect::<Vec<_>>().join(", ")
    };
    Some(Confirmation {
        perturbation: perturbation.words().to_owned(),
        prediction: prediction.to_owned(),
        measured: format!(
            "throughput × {ratio:.2} ({first:.2}..{last:.2}): {} per second against {}",
            list(|pair| pair.1),
            list(|pair| pair.0)
        ),
        confirmed: answers(perturbation, answer, ratio),
    })
}

/// Whether a ratio of throughputs is the predicted answer to a perturbation.
fn answers(perturbation: Perturbation, answer: Answer, ratio: f64) -> bool {
    // What changes by no factor has to show at all.
    let change = match perturbation.factor() {
        1.0 => 0.5,
        factor => (factor - 1.0).abs(),
    };
    match answer {
        Answer::Rises => ratio >= 1.0 + change * FOLLOWED_MIN,
        Answer::Falls => ratio <= 1.0 - change * FOLLOWED_MIN,
        // More that brings less is no limit that gave way either.
        Answer::Stays if perturbation.factor() > 1.0 => ratio <= 1.0 + change * UNMOVED_MAX,
        Answer::Stays => ratio >= 1.0 - change * UNMOVED_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::verdicts::verdict;

    fn confirmed(code: &str, pairs: &[(f64, f64)]) -> bool {
        judge(verdict(code).unwrap().counter_test, pairs).unwrap().confirmed
    }

    #[test]
    fn latency_gives_way_to_connections_and_a_processor_does_not() {
        let doubled = [(500.0, 980.0), (498.0, 991.0), (501.0, 300.0)];
        let unmoved = [(8_236.0, 8_300.0), (8_200.0, 8_100.0), (8_210.0, 8_250.0)];
        assert!(confirmed("latency_bound", &doubled));
        assert!(!confirmed("latency_bound", &unmoved));
        assert!(confirmed("single_thread_bound", &unmoved));
        assert!(!confirmed("single_thread_bound", &doubled));
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
        assert!(judge(test, &[]).is_none());
        assert!(judge(test, &[(0.0, 1.0)]).is_none());
        assert!(together(Vec::new()).is_none());
    }

    #[test]
    fn a_pause_tells_waiting_from_work_and_one_test_that_fails_is_enough() {
        let pause = |code: &str, pairs: &[(f64, f64)]| {
            judge(verdict(code).unwrap().second_test.unwrap(), pairs).unwrap()
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
