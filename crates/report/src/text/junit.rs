//! Objectives and validity of a run as a JUnit test report, which build servers read: one test case
//! for each objective, and one for the validity of the result.

use record::comparison::ConditionDecision;
use record::run::{Answer, ObjectiveOutcome, Run};
use record::validity::ValidityLevel;

use super::conclusions::{figures_text, objective_text, reasons_text};
use crate::run_comparison::{condition_text, figure_text};

/// Formats a record as a JUnit report.
pub fn junit(run: &Run) -> String {
    let mut cases = Vec::new();
    let mut skipped = Vec::new();
    let is_invalid = run.validity.verdict == ValidityLevel::Invalid;
    cases.push(("the result is valid".to_owned(), is_invalid.then(|| reasons_text(run))));
    for objective in &run.objectives {
        let (name, text) = (objective.text.clone(), objective_text(run, objective));
        match objective.outcome() {
            ObjectiveOutcome::Met => cases.push((name, None)),
            ObjectiveOutcome::Missed => cases.push((name, Some(text))),
            ObjectiveOutcome::NotProven => {
                skipped.push((name, format!("{text}. {}", reasons_text(run)).trim().to_owned()));
            }
        }
    }
    for condition in run.comparison.iter().flat_map(|comparison| &comparison.conditions) {
        let text = run.comparison.as_ref().map_or_else(String::new, |all| condition_text(all, condition));
        let name = format!("regression: {}", condition.text);
        match condition.decision {
            ConditionDecision::Undecided if !is_failed(run) => skipped.push((name, text)),
            ConditionDecision::None => cases.push((name, None)),
            _ => cases.push((name, Some(text))),
        }
    }
    let failures = cases.iter().filter(|(_, failure)| failure.is_some()).count();
    let header = format!(
        "tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"{}\" time=\"{:.3}\"",
        cases.len() + skipped.len(),
        skipped.len(),
        run.duration_s
    );
    let mut text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {header}>\n");
    text += &format!("  <testsuite name=\"weir load\" timestamp=\"{}\" {header}>\n", escape(&run.started_at));
    let Answer { what, why, next } = diagnose::answer(run);
    text += "    <properties>\n";
    for (name, value) in [("answer.what", what), ("answer.why", why), ("answer.next", next)] {
        text += &format!("      <property name=\"{name}\" value=\"{}\"/>\n", escape(&value));
    }
    for figure in run.comparison.iter().flat_map(|comparison| &comparison.figures) {
        let (name, value) = (&figure.figure, escape(&figure_text(figure)));
        text += &format!("      <property name=\"comparison.{}\" value=\"{value}\"/>\n", escape(name));
    }
    text += &validity_properties(run);
    text += "    </properties>\n";
    for (name, failure) in &cases {
        let case = format!(
            "    <testcase classname=\"weir.load\" name=\"{}\" time=\"{:.3}\"",
            escape(name),
            run.duration_s
        );
        text += &match failure {
            None => format!("{case}/>\n"),
            Some(why) => format!("{case}>\n      <failure message=\"{}\"/>\n    </testcase>\n", escape(why)),
        };
    }
    text += &skipped.iter().map(|(name, why)| skipped_case(run, name, why)).collect::<String>();
    text + "  </testsuite>\n</testsuites>\n"
}

/// Formats the validity of each conclusion.
fn validity_properties(run: &Run) -> String {
    let figures = figures_text(run).map(|figures| ("figures".to_owned(), figures));
    let each = run.validity.conclusions.iter();
    let each = each.map(|conclusion| (conclusion.conclusion.clone(), conclusion.verdict.as_str().to_owned()));
    let property = |(name, value): (String, String)| {
        format!("      <property name=\"validity.{}\" value=\"{}\"/>\n", escape(&name), escape(&value))
    };
    figures.into_iter().chain(each).map(property).collect()
}

/// Formats a condition or an objective that is neither passed nor failed.
fn skipped_case(run: &Run, name: &str, why: &str) -> String {
    format!(
        "    <testcase classname=\"weir.load\" name=\"{}\" time=\"{:.3}\">\n      <skipped message=\"{}\"/>\n    \
         </testcase>\n",
        escape(name),
        run.duration_s,
        escape(why)
    )
}

/// Returns true if a condition of the comparison cannot be decided by these records: then it is a failed case.
fn is_failed(run: &Run) -> bool {
    run.comparison.as_ref().is_some_and(|comparison| comparison.exit_code == 4)
}

/// Escapes a text for an attribute. Control characters are not allowed in XML.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The run is invalid as well.
    #[test]
    fn a_missed_objective_is_a_failed_test_case() {
        let objective = |text: &str, met| record::run::ObjectiveResult {
            text: text.to_owned(),
            met,
            value: 2e6,
            validity: None,
        };
        let mut run: Run = super::super::summary::tests::run_with_everything();
        run.objectives = vec![objective("p99<5ms", true), objective("p50<1ms", false)];
        let text = junit(&run);
        assert!(text.contains("tests=\"3\" failures=\"2\""), "{text}");
        assert!(text.contains("name=\"p99&lt;5ms\" time=") && text.contains("p50&lt;1ms: MISSED"), "{text}");
    }
}
