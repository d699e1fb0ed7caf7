//! Validity of the conclusions of a sum of runs, from those of its parts.

use record::run::Run;
use record::validity::{ConclusionValidity, Validity, ValidityLevel};

use super::conclusions::{Sending, conclude, conclusion, figures, is_disturbance};

/// Judges the conclusions and objectives of a sum by the conclusions of its parts. The sum has its reasons already.
///
/// Each conclusion is as valid as that of the worst part. Percentiles of a mixture lie between those of its parts, so
/// without the disturbance one may be lower by the largest relative difference of a part. Rates add up.
pub fn judge_merged(run: &mut Run, parts: &[&Validity]) {
    let all: Vec<ConclusionValidity> =
        figures(run).map(|(name, value)| merged_conclusion(name, value, parts)).collect();
    let reasons = run.validity.reasons.iter().filter(|reason| is_disturbance(&reason.code));
    let worst_reason = reasons.map(|reason| reason.verdict).max();
    // An agent whose own objective was proven has only a note for what disturbed it.
    let worst_conclusion = all.iter().map(|conclusion| conclusion.verdict).max();
    let worst = worst_reason.max(worst_conclusion).unwrap_or(ValidityLevel::Valid);
    let sending = Sending::new(run);
    conclude(run, all, sending, worst);
}

fn merged_conclusion(name: &str, value: Option<f64>, parts: &[&Validity]) -> ConclusionValidity {
    let mut merged = conclusion(name, value);
    let (mut lowest, mut highest) = (1.0_f64, 1.0_f64);
    let (mut sum, mut low_sum, mut high_sum) = (0.0, 0.0, 0.0);
    let mut is_known = true;
    for part in parts {
        let Some(conclusion) = part.conclusion(name) else {
            // Records from older versions have no conclusions: each is as valid as the run.
            merged.verdict = merged.verdict.max(disturbance_of(part));
            is_known &= disturbance_of(part) == ValidityLevel::Valid;
            continue;
        };
        merged.verdict = merged.verdict.max(conclusion.verdict);
        let own = conclusion.value.unwrap_or(0.0).max(1e-9);
        is_known &= conclusion.undisturbed.is_some() || conclusion.verdict == ValidityLevel::Valid;
        let (low, high) = conclusion.undisturbed.unwrap_or((own, own));
        (lowest, highest) = (lowest.min(low / own), highest.max(high / own));
        (sum, low_sum, high_sum) = (sum + own, low_sum + low, high_sum + high);
    }
    if name == "rate" && sum > 0.0 {
        (lowest, highest) = (low_sum / sum, high_sum / sum);
    }
    let is_disturbed = is_known && (lowest, highest) != (1.0, 1.0);
    merged.undisturbed = value.filter(|_| is_disturbed).map(|value| (value * lowest, value * highest));
    merged
}

/// Returns the most severe disturbance of a part without conclusions.
fn disturbance_of(part: &Validity) -> ValidityLevel {
    let reasons = part.reasons.iter().filter(|reason| is_disturbance(&reason.code));
    reasons.map(|reason| reason.verdict).max().unwrap_or(ValidityLevel::Valid)
}
