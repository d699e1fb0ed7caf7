//! Validity of the conclusions of a run in words, the same in every form of the result.

use record::run::{ObjectiveOutcome, ObjectiveResult, Run};
use record::units::{format_duration_ns, format_plural, format_rate};
use record::validity::{CPU_CONTENDED, ConclusionValidity, ValidityLevel};

/// Conclusions about what is printed; the record has all.
const SHOWN: &[&str] = &["counts", "rate", "p50", "p90", "p99", "p99.9", "verdict"];
/// Reason of a run without statistics, whose figures no disturbance was judged by.
const TOO_SHORT: &str = "too_short";
/// Ratio of the ends of an interval from which it is no figure.
const WIDE_FROM: f64 = 2.0;

/// Formats an objective with its outcome: `p99<5ms: MISSED (6.0 ms)`.
pub fn objective_text(run: &Run, objective: &ObjectiveResult) -> String {
    format!("{}: {} ({})", objective.text, outcome_word(objective), outcome_text(run, objective))
}

pub fn outcome_word(objective: &ObjectiveResult) -> &'static str {
    match objective.outcome() {
        ObjectiveOutcome::Met => "met",
        ObjectiveOutcome::Missed => "MISSED",
        ObjectiveOutcome::NotProven => "NOT PROVEN",
    }
}

/// Formats the figure of an objective, and why it proves nothing if it does not.
pub fn outcome_text(run: &Run, objective: &ObjectiveResult) -> String {
    let value = if objective.value.is_finite() {
        objective.value_text()
    } else {
        let (failed, good) = (run.window.not_good, run.latency.last_byte.response.count);
        format!("{failed} of {} had no good response", format_plural(failed + good, "request"))
    };
    let disturbed = || {
        let name = objective.text.split(['<', '>']).next().unwrap_or_default().trim();
        let conclusion = run.validity.conclusion(name).filter(|conclusion| conclusion.undisturbed.is_some());
        match conclusion.and_then(|conclusion| undisturbed_text(run, &[conclusion])) {
            Some(range) => range,
            None => "the run was disturbed".to_owned(),
        }
    };
    match (objective.outcome(), objective.validity) {
        (ObjectiveOutcome::NotProven, _) => format!("{value}; {}", disturbed()),
        (_, Some(ValidityLevel::Suspect)) => format!("{value}; suspect, because the run was disturbed"),
        _ => value,
    }
}

/// Returns the word for the verdict of a reason: one that changed no conclusion is a note.
pub fn reason_word(verdict: ValidityLevel) -> &'static str {
    match verdict {
        ValidityLevel::Valid => "note",
        other => other.as_str(),
    }
}

/// Formats the conclusions by their validity, with the range of those that were disturbed: `rate, p50 valid; without the
/// neighbours the p99 would be between 18.0 ms and 23.0 ms`. `None` if nothing disturbed the run.
pub fn figures_text(run: &Run) -> Option<String> {
    let all = run.validity.conclusions.iter();
    let shown: Vec<&ConclusionValidity> =
        all.filter(|conclusion| SHOWN.contains(&conclusion.conclusion.as_str())).collect();
    let is_touched = |conclusion: &&ConclusionValidity| {
        conclusion.undisturbed.is_some()
            || conclusion.verdict != ValidityLevel::Valid && !run.validity.has_reason(TOO_SHORT)
    };
    if !shown.iter().any(is_touched) {
        return None;
    }
    let (valid, disturbed): (Vec<_>, Vec<_>) =
        shown.into_iter().partition(|conclusion| conclusion.verdict == ValidityLevel::Valid);
    let names: Vec<&str> = valid.iter().map(|conclusion| conclusion.conclusion.as_str()).collect();
    let proven = (!names.is_empty()).then(|| format!("{} valid", names.join(", ")));
    let unknown = disturbed.iter().filter(|conclusion| conclusion.undisturbed.is_none());
    let unknown =
        unknown.map(|conclusion| format!("{} {}", conclusion.conclusion, conclusion.verdict.as_str()));
    let parts: Vec<String> =
        proven.into_iter().chain(unknown).chain(undisturbed_text(run, &disturbed)).collect();
    Some(parts.join("; "))
}

/// Formats the ranges of conclusions: `without the neighbours the p99 would be between 18.0 ms and 23.0 ms`. `None` if
/// none has a range.
fn undisturbed_text(run: &Run, disturbed: &[&ConclusionValidity]) -> Option<String> {
    let ranges: Vec<String> = disturbed.iter().filter_map(|conclusion| range_text(conclusion)).collect();
    let (first, others) = ranges.split_first()?;
    let is_contended = run.validity.reasons.iter().any(|reason| reason.code == CPU_CONTENDED);
    let cause = if is_contended { "the neighbours" } else { "the disturbance" };
    let others: String = others.iter().map(|range| format!(", the {range}")).collect();
    let first = match first.split_once(' ') {
        Some((name, range)) => format!("{name} would be {range}"),
        None => first.clone(),
    };
    Some(format!("without {cause} the {first}{others}"))
}

/// Formats the range of a figure: `p99 between 18.0 ms and 23.0 ms`.
fn range_text(conclusion: &ConclusionValidity) -> Option<String> {
    let (from, to) = conclusion.undisturbed?;
    let format = |value: f64| match conclusion.conclusion.as_str() {
        "rate" => format_rate(value),
        _ => format_duration_ns(value as u64),
    };
    // A wide range is no figure, but its bound on the disturbed side is one.
    Some(match to > WIDE_FROM * from {
        true if conclusion.conclusion == "rate" => {
            format!("{} at least {}", conclusion.conclusion, format(from))
        }
        true => format!("{} at most {}", conclusion.conclusion, format(to)),
        false => format!("{} between {} and {}", conclusion.conclusion, format(from), format(to)),
    })
}

/// Formats the reasons of a run that is not valid, with the figures that it leaves: for forms with one text.
pub fn reasons_text(run: &Run) -> String {
    let reasons = run.validity.objections().map(|reason| format!("{}: {}", reason.code, reason.text));
    reasons.chain(figures_text(run)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::junit::junit;
    use crate::text::markdown::markdown;
    use crate::text::summary::tests::run_with_everything;
    use crate::text::summary::{Detail, summary};
    use record::validity::{Validity, ValidityReason};

    fn objective(text: &str, met: bool, validity: ValidityLevel) -> ObjectiveResult {
        ObjectiveResult { text: text.to_owned(), met, value: 2e7, validity: Some(validity) }
    }

    fn disturbed() -> Run {
        let mut run = run_with_everything();
        let reason = |code: &str| ValidityReason {
            code: code.to_owned(),
            verdict: ValidityLevel::Suspect,
            text: "1.20 CPUs (CPUs of the busiest: cc1 1.10)".to_owned(),
        };
        run.validity = Validity::from_reasons(vec![reason(CPU_CONTENDED)]);
        let conclusion = |name: &str, undisturbed, verdict| ConclusionValidity {
            conclusion: name.to_owned(),
            value: Some(2e7),
            undisturbed,
            verdict,
        };
        run.validity.conclusions = vec![
            conclusion("counts", None, ValidityLevel::Valid),
            conclusion("rate", None, ValidityLevel::Valid),
            conclusion("p99", Some((1.5e7, 2e7)), ValidityLevel::Suspect),
        ];
        run.objectives = vec![
            objective("p99<18ms", false, ValidityLevel::Suspect),
            objective("p99<1ms", false, ValidityLevel::Valid),
            objective("p99<30ms", true, ValidityLevel::Valid),
        ];
        run.comparison = None;
        run
    }

    const RANGE: &str = "without the neighbours the p99 would be between 15.0 ms and 20.0 ms";

    #[test]
    fn every_form_has_the_same_words() {
        let run = disturbed();
        let text: String = summary(&run, Detail::Default, false);
        let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let page = crate::run_page::run_page(&run, None);
        let (junit, markdown) = (junit(&run), markdown(&run));
        for (form, text) in [("text", &one_line), ("junit", &junit), ("markdown", &markdown), ("page", &page)]
        {
            assert!(text.contains(RANGE), "{form}: {text}");
            assert!(text.contains("counts, rate valid"), "{form}: {text}");
            assert!(text.contains("cc1 1.10"), "{form}: {text}");
        }
        let outcome = format!("p99<18ms: NOT PROVEN (20.0 ms; {RANGE})");
        assert!(one_line.contains(&outcome) && !one_line.contains("p99<18ms: MISSED"), "{one_line}");
        assert!(page.contains(&outcome.replace('<', "&lt;")), "{page}");
        assert!(markdown.contains(&format!("**not proven**: 20.0 ms; {RANGE}")), "{markdown}");
    }

    #[test]
    fn junit_skips_what_is_not_proven() {
        let text = junit(&disturbed());
        // The validity, three objectives; the missed one alone fails.
        assert!(text.contains("tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{text}");
        let skipped = text.split("<testcase").find(|case| case.contains("<skipped")).unwrap();
        assert!(skipped.contains("p99&lt;18ms") && skipped.contains(RANGE), "{skipped}");
    }

    #[test]
    fn a_run_that_nothing_disturbed_has_no_line_of_figures() {
        let mut run = disturbed();
        run.validity = Validity::from_reasons(Vec::new());
        assert_eq!(figures_text(&run), None);
        let mut met = objective("p99>10ms", true, ValidityLevel::Suspect);
        assert_eq!(
            objective_text(&run, &met),
            "p99>10ms: met (20.0 ms; suspect, because the run was disturbed)"
        );
        met.validity = None;
        assert_eq!(objective_text(&run, &met), "p99>10ms: met (20.0 ms)");
    }
}
