//! Decision of a capacity search: the proof of the limit, the first change with its expected gain, and the command
//! that proves the change. The sizes come from the crate `plan`.

use record::capacity_search::{
    CapacitySearch, Decision, Estimate, Proof, ProofOutcome, SearchEnd, TestedChange,
};
use record::run::{Diagnosis, Run};

use crate::answer::tested;
use crate::expected_gain::propose;
use crate::facts::Facts;
use crate::run_view::RunView;
use crate::verdicts::NONE;

/// Returns the decision of a search, without its sizes. `record_file` is the file of the record, if there is one;
/// `tests` are the measured effects of the test.
pub fn decide(search: &CapacitySearch, tests: Vec<TestedChange>, record_file: Option<&str>) -> Decision {
    let limit = limiting_run(search);
    let change = match limit {
        Some((run, diagnosis))
            if diagnosis.verdict != NONE && search.conclusion.end != SearchEnd::MaxLevel =>
        {
            let view = RunView::new(run);
            let rate = view.goodput();
            let measured = Estimate { value: rate, low: rate, high: rate };
            let ceiling = search.ceiling_per_s.unwrap_or(measured);
            propose(&Facts { view: &view }, &diagnosis.verdict, ceiling, &tests)
        }
        _ => record::capacity_search::ProposedChange {
            text: "none".to_owned(),
            expected: None,
            without_prediction: Some("the search met no limit".to_owned()),
        },
    };
    let proof = proof(limit.map(|(_, diagnosis)| diagnosis), tests);
    Decision { proof, change, prove: prove_command(&search.command, record_file), ..Decision::default() }
}

/// Returns the run that shows what stops the subject.
fn limiting_run(search: &CapacitySearch) -> Option<(&Run, &Diagnosis)> {
    match (&search.stopped_run, &search.stopped_by) {
        (Some(run), Some(diagnosis)) => Some((run, diagnosis)),
        _ => search.at_edge.as_ref().and_then(|run| Some((&**run, run.diagnosis.as_ref()?))),
    }
}

fn proof(diagnosis: Option<&Diagnosis>, tests: Vec<TestedChange>) -> Proof {
    let untested = |text: &str| Proof { text: text.to_owned(), ..Proof::default() };
    let Some(diagnosis) = diagnosis else { return untested("no run shows a limit") };
    match (&diagnosis.confirmation, &diagnosis.untested_reason) {
        (Some(test), _) => {
            let outcome = if test.confirmed { ProofOutcome::Confirmed } else { ProofOutcome::Refuted };
            Proof { outcome, text: tested(test), tests }
        }
        (None, Some(reason)) => untested(reason),
        (None, None) => untested("this search made no test"),
    }
}

/// Flags of a search that do not belong to its repetition, and have a value.
const OUTPUT_FLAGS: [&str; 6] = ["--json", "--html", "--markdown", "--baseline", "--keep", "--target"];

/// Returns the command that compares a repetition with the record of this search.
fn prove_command(command: &[String], record_file: Option<&str>) -> String {
    let mut words = vec!["weir".to_owned()];
    let mut arguments = command.iter().skip(1);
    while let Some(argument) = arguments.next() {
        let name = argument.split('=').next().unwrap_or_default();
        if OUTPUT_FLAGS.contains(&name) {
            if name == argument {
                arguments.next();
            }
            continue;
        }
        words.push(argument.clone());
    }
    words.extend(["--baseline", record_file.unwrap_or("before.json")].map(str::to_owned));
    let again = record::shell::quoted(&words);
    match record_file {
        Some(_) => again,
        None => {
            format!("{again} (this search kept no record: run it with --json before.json before the change)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_repeats_the_search_and_compares_it() {
        let words = |text: &str| text.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>();
        let command =
            words("/usr/bin/weir edge --json a.json --html=p.html -c 8 --slo p99<5ms http://h/?a&b");
        assert_eq!(
            prove_command(&command, Some("a.json")),
            "weir edge -c 8 --slo 'p99<5ms' 'http://h/?a&b' --baseline a.json"
        );
        let without = prove_command(&words("weir edge http://h/"), None);
        assert!(
            without.starts_with("weir edge http://h/ --baseline before.json (") && without.contains("--json")
        );
    }
}
