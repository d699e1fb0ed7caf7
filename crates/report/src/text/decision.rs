//! Texts of the decision of a capacity search: proof, change with its expected gain, sizes, comparison with an earlier
//! search. The page, the summary and Markdown show the same.

use record::capacity_search::{
    CapacitySearch, ComparedLevel, Decision, Estimate, ProofOutcome, ProposedChange, SearchComparison,
};
use record::units::{format_count, format_rate};

/// Returns the rows of a decision: a label, and its text.
pub fn decision_rows(search: &CapacitySearch) -> Vec<(&'static str, String)> {
    let Some(decision) = &search.decision else { return Vec::new() };
    let mut rows = vec![
        ("proof", proof_text(decision)),
        ("change", change_text(&decision.change)),
        ("sizes", sizes_text(decision)),
        ("prove it", decision.prove.clone()),
    ];
    rows.extend(search.comparison.iter().map(|comparison| ("compared", comparison_text(comparison))));
    rows
}

/// Formats the outcome of the test, with its effects or the reason.
pub fn proof_text(decision: &Decision) -> String {
    let proof = &decision.proof;
    let text = proof.text.trim_end_matches('.').trim_start_matches("Tested: ");
    match proof.outcome {
        ProofOutcome::Confirmed => {
            format!("confirmed: {}", text.trim_end_matches(": confirmed"))
        }
        ProofOutcome::Refuted => format!("refuted: {text}"),
        ProofOutcome::Untested => format!("not tested: {text}"),
    }
}

/// Formats a change with its expected gain, or the reason why none is predicted.
pub fn change_text(change: &ProposedChange) -> String {
    let text = &change.text;
    match (&change.expected, &change.without_prediction) {
        (Some(gain), _) => {
            let Estimate { value, low, high } = gain.after_per_s;
            format!(
                "{text}: from {} to about {} ({} to {}), × {:.2}; {}",
                format_rate(gain.before_per_s),
                format_rate(value),
                format_count(low),
                format_rate(high),
                value / gain.before_per_s.max(1e-9),
                gain.basis
            )
        }
        (None, Some(reason)) => format!("{text}; no gain can be predicted: {reason}"),
        (None, None) => text.clone(),
    }
}

pub fn sizes_text(decision: &Decision) -> String {
    let reason = decision.without_sizes.as_deref().unwrap_or("the search has no rate");
    let Some(target) = decision.target_per_s.filter(|_| !decision.sizes.is_empty()) else {
        return format!("none: {reason}");
    };
    let sizes: Vec<String> =
        decision.sizes.iter().map(|size| format!("{} {}", size.name, size.text)).collect();
    format!("for {}: {}", format_rate(target), sizes.join(", "))
}

/// Formats a factor with its range; a range wider than a factor of two is no figure.
fn factor_text(factor: &Estimate) -> String {
    let Estimate { value, low, high } = factor;
    match factor.is_narrow() {
        true => format!("× {value:.2} ({low:.2} to {high:.2})"),
        false if *low > 1.0 => format!("× {low:.2} or more"),
        false => "a factor that is not clear".to_owned(),
    }
}

pub fn comparison_text(comparison: &SearchComparison) -> String {
    let figure = |name: &str, level: &ComparedLevel| {
        let [before, after] = [level.before, level.after].map(format_rate);
        format!("{name} {before} -> {after}: {}", factor_text(&level.factor))
    };
    let mut parts: Vec<String> = comparison.ceiling.iter().map(|level| figure("full load", level)).collect();
    parts.extend(comparison.level.iter().map(|level| figure("held level", level)));
    if parts.is_empty() {
        parts.push("no figure is in both searches".to_owned());
    }
    if let Some(predicted) = comparison.predicted_factor {
        let Estimate { low, high, .. } = predicted;
        let outcome = comparison.ceiling.or(comparison.level).map(|level| {
            let is_within = level.factor.high >= low && level.factor.low <= high;
            if is_within { ", as measured" } else { ", which was not measured" }
        });
        parts.push(match predicted.is_narrow() {
            true => format!("predicted {}{}", factor_text(&predicted), outcome.unwrap_or_default()),
            false => "no clear factor was predicted".to_owned(),
        });
    }
    if !comparison.plan_differences.is_empty() {
        parts.push(format!("the loads differ in: {}", comparison.plan_differences.join(", ")));
    }
    format!("with {}: {}", comparison.baseline, parts.join("; "))
}

#[cfg(test)]
mod tests {
    use record::capacity_search::{ExpectedGain, PlannedSize, Proof};

    use super::*;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate { value, low, high }
    }

    fn decision() -> Decision {
        Decision {
            proof: Proof {
                outcome: ProofOutcome::Confirmed,
                text: "Tested: with twice the connections the throughput was × 1.01: confirmed.".to_owned(),
                tests: Vec::new(),
            },
            change: ProposedChange {
                text: "raise that limit from 8 to 16 requests at a time".to_owned(),
                expected: Some(ExpectedGain {
                    before_per_s: 1_430.0,
                    after_per_s: estimate(2_860.0, 2_600.0, 3_000.0),
                    basis: "each of 16 slots takes 5.60 ms, 100 µs of that CPU time".to_owned(),
                }),
                without_prediction: None,
            },
            target_per_s: Some(3_000.0),
            sizes: vec![PlannedSize { name: "maxconn".to_owned(), value: Some(8.0), text: "8".to_owned() }],
            without_sizes: None,
            prove: "weir edge http://h/ --baseline a.json".to_owned(),
        }
    }

    #[test]
    fn a_decision_has_its_numbers_and_says_each_once() {
        let decision = decision();
        assert_eq!(proof_text(&decision), "confirmed: with twice the connections the throughput was × 1.01");
        let change = change_text(&decision.change);
        for part in ["from 1.43 k/s to about 2.86 k/s", "× 2.00", "2.60 k to 3.00 k/s"] {
            assert!(change.contains(part), "{part}: {change}");
        }
        assert_eq!(sizes_text(&decision), "for 3.00 k/s: maxconn 8");
        let none = ProposedChange { without_prediction: Some("a reason".to_owned()), ..decision.change };
        let none = ProposedChange { expected: None, ..none };
        assert!(change_text(&none).ends_with("no gain can be predicted: a reason"));
    }

    #[test]
    fn a_comparison_says_whether_the_prediction_was_measured() {
        let mut comparison = SearchComparison {
            baseline: "a.json".to_owned(),
            ceiling: Some(ComparedLevel {
                before: 1_430.0,
                after: 2_800.0,
                factor: estimate(1.96, 1.9, 2.0),
            }),
            predicted_factor: Some(estimate(2.0, 1.82, 2.1)),
            ..SearchComparison::default()
        };
        let text = comparison_text(&comparison);
        assert!(text.contains("× 1.96 (1.90 to 2.00)") && text.ends_with("as measured"), "{text}");
        comparison.predicted_factor = Some(estimate(4.0, 3.0, 5.0));
        assert!(comparison_text(&comparison).ends_with("which was not measured"));
        comparison.ceiling = None;
        assert!(comparison_text(&comparison).contains("no figure is in both"));
    }
}
