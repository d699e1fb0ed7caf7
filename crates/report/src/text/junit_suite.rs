//! Results of a search for the edge and of an experiment as JUnit test reports, which build servers read. The answer,
//! and the figures beside it, are properties. The cases agree with the exit code of the command.

use record::capacity_search::{CapacitySearch, SearchEnd};
use record::experiment::{
    Comparison, ComparisonOutcome, Experiment, ONLY_LOAD, counted_blocks, primary_claims,
};
use record::run::Answer;

use super::decision::decision_rows;
use super::junit::escape;
use super::{edge, experiment};

/// Outcome of a test case.
enum CaseOutcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Suite with one command's result.
struct Suite<'a> {
    /// Name of the command: `weir edge`.
    command: &'a str,
    started_at: &'a str,
    duration_s: f64,
    properties: Vec<(String, String)>,
    cases: Vec<(String, CaseOutcome)>,
}

/// Formats a search: one case for the objectives, one for the end of the search. `is_bounded` is true if the user set
/// the highest level, which is then a result.
pub fn edge_junit(search: &CapacitySearch, is_bounded: bool) -> String {
    let answer = edge::answer(search);
    let outcome = |is_failed: bool| match is_failed {
        true => CaseOutcome::Failed(answer.what.clone()),
        false => CaseOutcome::Passed,
    };
    let end = search.conclusion.end;
    let without_level = matches!(end, SearchEnd::BelowLowest | SearchEnd::NotVerified | SearchEnd::Drifted);
    let is_open = matches!(end, SearchEnd::GeneratorLimit | SearchEnd::Stopped)
        || end == SearchEnd::MaxLevel && !is_bounded;
    let mut properties = vec![("result".to_owned(), edge::edge_headline(search))];
    properties.extend(answer_properties(&answer));
    let rows = decision_rows(search).into_iter();
    properties.extend(rows.map(|(label, text)| (format!("decision.{}", label.replace(' ', "_")), text)));
    Suite {
        command: "weir edge",
        started_at: &search.started_at,
        duration_s: search.duration_s,
        properties,
        cases: vec![
            (format!("a level holds {}", search.objectives.join(", ")), outcome(without_level)),
            ("the search found the limit".to_owned(), outcome(is_open)),
        ],
    }
    .format()
}

/// Formats an experiment: one case for its end, and one for each comparison in the primary metric, which is skipped
/// without a conclusion.
pub fn experiment_junit(all: &Experiment) -> String {
    let answer = experiment::answer(all);
    let mut properties = vec![("result".to_owned(), experiment::experiment_headline(all))];
    properties.extend(answer_properties(&answer));
    let is_complete = !all.partial && counted_blocks(&all.trials) > 0;
    let end = match is_complete {
        true => CaseOutcome::Passed,
        false => CaseOutcome::Failed(format!("{} {}", answer.what, all.stopped.text)),
    };
    let mut cases = vec![("the experiment ran to its end".to_owned(), end)];
    cases.extend(primary_claims(&all.comparisons).map(claim_case));
    Suite {
        command: "weir lab run",
        started_at: &all.started_at,
        duration_s: all.duration_s,
        properties,
        cases,
    }
    .format()
}

fn claim_case(claim: &Comparison) -> (String, CaseOutcome) {
    let load = if claim.load == ONLY_LOAD { String::new() } else { format!(" under {}", claim.load) };
    let name = format!("{} against {} in {}{load}", claim.arm, claim.baseline, claim.metric);
    let outcome = match claim.outcome {
        ComparisonOutcome::Inconclusive => CaseOutcome::Skipped(claim.text.clone()),
        _ => CaseOutcome::Passed,
    };
    (name, outcome)
}

fn answer_properties(answer: &Answer) -> impl Iterator<Item = (String, String)> {
    let sentences = [("what", &answer.what), ("why", &answer.why), ("next", &answer.next)];
    sentences.map(|(name, text)| (format!("answer.{name}"), text.clone())).into_iter()
}

impl Suite<'_> {
    fn format(&self) -> String {
        let count =
            |is_of: fn(&CaseOutcome) -> bool| self.cases.iter().filter(|(_, case)| is_of(case)).count();
        let header = format!(
            "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3}\"",
            self.cases.len(),
            count(|case| matches!(case, CaseOutcome::Failed(_))),
            count(|case| matches!(case, CaseOutcome::Skipped(_))),
            self.duration_s
        );
        let mut text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {header}>\n");
        let (name, started_at) = (self.command, escape(self.started_at));
        text +=
            &format!("  <testsuite name=\"{name}\" timestamp=\"{started_at}\" {header}>\n    <properties>\n");
        for (name, value) in &self.properties {
            text += &format!("      <property name=\"{name}\" value=\"{}\"/>\n", escape(value));
        }
        text += "    </properties>\n";
        text += &self.cases.iter().map(|(name, case)| self.format_case(name, case)).collect::<String>();
        text + "  </testsuite>\n</testsuites>\n"
    }

    fn format_case(&self, name: &str, outcome: &CaseOutcome) -> String {
        let class = self.command.replace(' ', ".");
        let case = format!(
            "    <testcase classname=\"{class}\" name=\"{}\" time=\"{:.3}\"",
            escape(name),
            self.duration_s
        );
        let (element, why) = match outcome {
            CaseOutcome::Passed => return format!("{case}/>\n"),
            CaseOutcome::Failed(why) => ("failure", why),
            CaseOutcome::Skipped(why) => ("skipped", why),
        };
        format!("{case}>\n      <{element} message=\"{}\"/>\n    </testcase>\n", escape(why))
    }
}

#[cfg(test)]
mod tests {
    use record::capacity_search::Conclusion;

    use super::*;
    use crate::synthetic::synthetic_experiment;

    #[test]
    fn a_search_fails_as_its_exit_code_says() {
        for (end, is_bounded, failures) in [
            (SearchEnd::Found, false, 0),
            (SearchEnd::MaxLevel, true, 0),
            (SearchEnd::MaxLevel, false, 1),
            (SearchEnd::BelowLowest, false, 1),
            (SearchEnd::Drifted, false, 1),
            (SearchEnd::GeneratorLimit, false, 1),
            (SearchEnd::Stopped, true, 1),
        ] {
            let mut search = edge::tests::edge(Conclusion { end, ..Conclusion::default() });
            search.summary = "holds p99<5ms up to 8 k/s & more".to_owned();
            let text = edge_junit(&search, is_bounded);
            assert!(text.contains(&format!("tests=\"2\" failures=\"{failures}\"")), "{end:?}: {text}");
            assert_eq!(
                text.matches("<failure message=\"Holds p99&lt;5ms up to 8 k/s &amp; more.").count(),
                failures
            );
            assert!(
                text.contains("name=\"a level holds p99&lt;5ms\"") && text.contains("\"answer.next\""),
                "{text}"
            );
        }
    }

    #[test]
    fn a_comparison_without_a_conclusion_is_skipped() {
        let (mut all, _) = synthetic_experiment();
        let text = experiment_junit(&all);
        let claims = primary_claims(&all.comparisons).count();
        assert!(text.contains(&format!("tests=\"{}\" failures=\"0\"", claims + 1)), "{text}");
        assert!(
            text.contains("name=\"jemalloc against glibc in subject_us_per_response under c50\""),
            "{text}"
        );
        for comparison in &mut all.comparisons {
            comparison.outcome = ComparisonOutcome::Inconclusive;
        }
        all.partial = true;
        let text = experiment_junit(&all);
        assert!(text.contains(&format!("failures=\"1\" errors=\"0\" skipped=\"{claims}\"")), "{text}");
    }
}
