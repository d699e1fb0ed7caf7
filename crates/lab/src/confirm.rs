//! Whether a verdict survives a perturbation: something is changed, and the throughput has to answer
//! as the claim predicts. The true limit is the one whose change moves it.
//!
//! Pure: trials come in as rates, baseline and changed in turn, so that a drift hits both alike. Not
//! for making the change.

use record::run::Confirmation;
use record::units::format_count;

use crate::diagnosis::verdicts::{Answer, Perturbation, Verdict};

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
            Self::Nothing => "nothing that can be changed from here",
        }
    }
}

/// Judges pairs of rates (baseline, changed), in responses per second. `None` without any pair.
#[must_use]
pub fn judge(row: &Verdict, pairs: &[(f64, f64)]) -> Option<Confirmation> {
    let (perturbation, answer, prediction) = row.counter_test;
    let mut ratios: Vec<f64> = pairs
        .iter()
        .filter(|(base, _)| *base > 0.0)
        .map(|(base, changed)| changed / base)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let (first, last) = (*ratios.first()?, *ratios.last()?);
    let ratio = ratios[ratios.len() / 2];
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
        judge(verdict(code).unwrap(), pairs).unwrap().confirmed
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
        let row = verdict("latency_bound").unwrap();
        assert!(judge(row, &[]).is_none());
        assert!(judge(row, &[(0.0, 1.0)]).is_none());
    }
}
