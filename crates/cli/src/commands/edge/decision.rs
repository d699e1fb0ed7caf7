//! Decision of a search with its sizes, which are those of `weir plan` for the record.

use plan::inputs::Inputs;
use plan::sizing::Sizing;
use record::capacity_search::{CapacitySearch, PlannedSize, TestedChange};
use record::invalid_value;
use record::problem::InputProblem;
use record::units::parse_rate;

use crate::commands::plan::inputs_of_search;
use crate::flags::CommandArgs;

/// Target without `--target`, as a multiple of the held rate.
const TARGET_FACTOR: f64 = 2.0;
/// Sizes that a team sets, in the order of the output.
const SIZES: &[&str] = &[
    "servers-needed",
    "maxconn",
    "queue-limit",
    "queue-timeout",
    "maxconn-global",
    "active-connections",
    "cores-needed",
    "machines",
    "load-clients",
];

/// Returns the target of the sizes, if the user gave one.
pub(super) fn target_per_s(args: CommandArgs<'_>) -> Result<Option<f64>, Vec<InputProblem>> {
    let Some(text) = args.text("target") else { return Ok(None) };
    let target = parse_rate(&text).and_then(|target| match target > 0.0 {
        true => Ok(Some(target)),
        false => Err(invalid_value!("'{text}': the target has to be above 0")),
    });
    target.map_err(|why| vec![InputProblem::new("--target", why)])
}

/// Puts the decision into the record of a search.
pub(super) fn decide(
    args: CommandArgs<'_>,
    search: &mut CapacitySearch,
    tests: Vec<TestedChange>,
    record_file: Option<&str>,
) {
    let mut decision = diagnose::decide(search, tests, record_file.filter(|file| *file != "-"));
    let held = search.conclusion.level.or(search.conclusion.lower).filter(|_| search.quantity == "rate");
    let given = target_per_s(args).ok().flatten();
    decision.target_per_s = given.or_else(|| held.map(|held| held * TARGET_FACTOR));
    match (decision.target_per_s, held) {
        (Some(target), Some(_)) => decision.sizes = sizes(search, target),
        _ => {
            decision.without_sizes =
                Some("no rate held the objectives, so a server has no capacity".to_owned())
        }
    }
    search.decision = Some(decision);
}

fn sizes(search: &CapacitySearch, target_per_s: f64) -> Vec<PlannedSize> {
    let mut inputs = Inputs::default();
    inputs.give_number("rate", target_per_s, "target");
    inputs_of_search("this search", search, &mut inputs);
    if !inputs.problems().is_empty() {
        return Vec::new();
    }
    let sizing = Sizing::compute(&inputs);
    let figure = |name: &&str| sizing.figures.iter().rfind(|figure| figure.name == *name);
    SIZES
        .iter()
        .filter_map(figure)
        .map(|figure| PlannedSize {
            name: figure.name.to_owned(),
            value: Some(figure.value).filter(|value| value.is_finite()),
            text: figure.value_text(),
        })
        .collect()
}
