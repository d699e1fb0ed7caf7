//! Pages of `load`, `load report` and `edge`, and the comparison with a baseline.

use std::path::Path;

use record::capacity_search::CapacitySearch;
use record::file::read_run;
use record::problem::InputProblem;
use record::run::Run;
use report::{PageBaseline, RegressionCondition, RunComparison};

use crate::exit::{Exit, Failure, OnInvalid};
use crate::flags::CommandArgs;
use crate::output::file::write_text;

/// Earlier run that a run is compared with.
#[derive(Debug)]
pub(super) struct Baseline {
    pub(super) name: String,
    pub(super) run: Run,
    conditions: Vec<RegressionCondition>,
}

impl Baseline {
    pub(super) fn new(name: String, run: Run, conditions: Vec<RegressionCondition>) -> Self {
        Self { name, run, conditions }
    }

    /// Reads the baseline of the flags, and the conditions of a regression.
    pub(super) fn from_flags(args: CommandArgs<'_>) -> Result<Option<Self>, Vec<InputProblem>> {
        let (conditions, mut problems) = match conditions(args) {
            Ok(conditions) => (conditions, Vec::new()),
            Err(problems) => (Vec::new(), problems),
        };
        let Some(name) = args.text("baseline") else {
            if args.is_given("fail-if") {
                problems.push(InputProblem::new(
                    "--fail-if",
                    "needs a record to compare with: add --baseline FILE",
                ));
            }
            return if problems.is_empty() { Ok(None) } else { Err(problems) };
        };
        match read_run(Path::new(&name)) {
            Ok(run) if problems.is_empty() => Ok(Some(Self { name, run, conditions })),
            Ok(_) => Err(problems),
            Err(error) => {
                problems.push(InputProblem::new("--baseline", error));
                Err(problems)
            }
        }
    }

    pub(super) fn compare(&self, run: &Run) -> RunComparison {
        RunComparison::new(&self.run, run, &self.conditions)
    }
}

pub(super) fn conditions(args: CommandArgs<'_>) -> Result<Vec<RegressionCondition>, Vec<InputProblem>> {
    let mut problems = Vec::new();
    let mut conditions = Vec::new();
    for list in args.texts("fail-if") {
        match RegressionCondition::parse_list(&list) {
            Ok(parsed) => conditions.extend(parsed),
            Err(invalid) => {
                problems.extend(invalid.into_iter().map(|why| InputProblem::new("--fail-if", why)))
            }
        }
    }
    if problems.is_empty() { Ok(conditions) } else { Err(problems) }
}

/// Returns the exit code of a run and its comparison. A run that is not valid shows no regression; a condition that
/// the records cannot decide is a result that is not valid for its question.
pub(super) fn exit_of_comparison(
    exit: Exit,
    comparison: Option<&RunComparison>,
    on_invalid: OnInvalid,
) -> Exit {
    let Some(comparison) = comparison.filter(|_| exit == Exit::Done) else { return exit };
    match comparison.unusable().next() {
        _ if comparison.has_regression() => Exit::ObjectiveMissed,
        Some(_) if on_invalid == OnInvalid::Fail => Exit::Invalid,
        _ => exit,
    }
}

/// Warns about each condition without a decision.
pub(super) fn warn_of_undecided(comparison: Option<&RunComparison>) {
    for result in comparison.into_iter().flat_map(RunComparison::undecided) {
        warn!("weir: --fail-if {}", result.text());
    }
}

/// Writes the page of a run, if a flag asks for it.
pub(super) fn write_run_page(
    args: CommandArgs<'_>,
    run: &Run,
    baseline: Option<(&Baseline, &RunComparison)>,
) -> Result<(), Failure> {
    let Some(file) = args.text("html") else { return Ok(()) };
    let baseline = baseline.map(|(baseline, comparison)| PageBaseline {
        name: baseline.name.clone(),
        run: &baseline.run,
        comparison,
    });
    write_text(&report::run_page(run, baseline.as_ref()), Some(&file))
}

/// Writes the page of a search, if a flag asks for it.
pub(super) fn write_edge_page(args: CommandArgs<'_>, search: &CapacitySearch) -> Result<(), Failure> {
    let Some(file) = args.text("html") else { return Ok(()) };
    write_text(&report::edge_page(search), Some(&file))
}
