//! `[measure]` and `[discard]`: metrics, number of blocks, confidence, and the maximum disturbance
//! of a trial.

use std::collections::BTreeMap;

use host::perf::call_counter::CallKind;
use record::document::table::TableValues;
use record::document::{Located, Problems};
use record::experiment::{ExperimentMetric, ExperimentPlan};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue, suggestion};
use record::sorted::CollectSorted;
use record::units::format_duration_ns;

use super::cells::ExperimentCells;
use super::file::FileParts;
use super::{EnvironmentChecks, ExperimentOptions};
use crate::scenario::keys::DISCARD;
use crate::scenario::read::read_file;
use crate::scenario::setup::{LabSetup, LoadTool};
use crate::trial::metrics;

/// Minimum number of blocks: from the fourth on there are looks ([`stats::sequential`]).
const BLOCKS_MIN: u64 = stats::sequential::BLOCKS_MIN as u64;
/// Default minimum and maximum number of blocks. An experiment ends at its conclusions.
const BLOCKS_DEFAULT: (u64, u64) = (4, 30);
/// Allowed lengths of a load. A shorter load would mainly measure its own start.
const DURATION_RANGE_NS: std::ops::RangeInclusive<u64> = 100_000_000..=3_600_000_000_000;
const DURATION_DEFAULT_NS: u64 = 8_000_000_000;
const EFFECT_DEFAULT: f64 = 0.02;
const EFFECT_MAX: f64 = 0.5;
const CONFIDENCE_DEFAULT: f64 = 0.95;
const CONFIDENCE_RANGE: std::ops::RangeInclusive<f64> = 0.8..=0.999;
const RERUNS_MAX_FRACTION_DEFAULT: f64 = 0.5;
/// Default primary metric. If the load has a rate, the rate is not the subject's, and the default
/// is the CPU time of a response ([`PRIMARY_DEFAULT_WITH_RATE`]).
const PRIMARY_DEFAULT: &str = "responses_per_s";
const PRIMARY_DEFAULT_WITH_RATE: &str = "subject_us_per_response";
const SECONDARY_DEFAULTS: &[&str] = &[
    "responses_per_s",
    "p50_ns",
    "p99_ns",
    "subject_us_per_response",
    "subject_cpus",
    "generator_cpus",
    "error_fraction",
];

/// Metric that only trials outside the blocks have, so that it cannot be compared.
const PROBE_METRIC: &str = "calls_per_response";

struct DiscardBound {
    key: &'static str,
    /// Covariate, by its name in plans and trials.
    covariate: &'static str,
    /// Default bound; `None` if there is none.
    default: Option<f64>,
    /// Factor from the unit of the key to the unit of the covariate.
    scale: f64,
}

/// Every bound. [`crate::scenario::keys`] documents the keys. None of the bounds depends on the measured results.
/// Disturbances by other programs have no bound by default: the judge weighs them relative to the effect.
const DISCARD_BOUNDS: &[DiscardBound] = &[
    discard_bound("steal", "steal_fraction", None),
    discard_bound("foreign-cpus", "foreign_cpus", None),
    // A ratio to the usual value of the experiment: wake-up latency depends on the machine.
    discard_bound("wake-up-ratio", "wake_up_p99_ns", None),
    discard_bound("generator-lag", "generator_lag_p99_ns", Some(1e6)),
    discard_bound("generator-busiest", "generator_busiest_fraction", None),
    discard_bound("errors", "error_fraction", Some(0.001)),
    discard_bound("throttled", "throttled_fraction", Some(0.0)),
    DiscardBound { scale: 1e-9, ..discard_bound("clock-step", "clock_step_s", Some(0.1)) },
];

const fn discard_bound(key: &'static str, covariate: &'static str, default: Option<f64>) -> DiscardBound {
    DiscardBound { key, covariate, default, scale: 1.0 }
}

pub(super) struct MeasureInput<'a> {
    options: &'a ExperimentOptions,
    /// All metrics that can be measured.
    metrics: &'a [ExperimentMetric],
    cells: &'a ExperimentCells,
    environment: Option<&'a EnvironmentChecks<'a>>,
    /// Version outputs of the drivers, as far as known.
    driver_versions: Vec<(LoadTool, String)>,
}

impl<'a> MeasureInput<'a> {
    pub(super) fn new(
        options: &'a ExperimentOptions,
        metrics: &'a [ExperimentMetric],
        cells: &'a ExperimentCells,
        environment: Option<&'a EnvironmentChecks<'a>>,
    ) -> Self {
        let mut versions: Vec<(LoadTool, String)> = Vec::new();
        for tool in cells.setups.values().map(|setup| setup.tool).filter(|tool| *tool != LoadTool::Weir) {
            let is_known = versions.iter().any(|(other, _)| *other == tool);
            if let Some(checks) = environment.filter(|_| !is_known) {
                versions.push((tool, (checks.version_output)(tool.name()).unwrap_or_default()));
            }
        }
        Self { options, metrics, cells, environment, driver_versions: versions }
    }

    /// Returns the metrics that trials of a setup may have.
    fn possible_metrics(&self, setup: &LabSetup) -> Vec<&'a str> {
        let names = self.metrics.iter().map(|metric| metric.name.as_str());
        names.filter(|name| *name != PROBE_METRIC && self.impossible_reason(name, setup).is_none()).collect()
    }

    /// Returns the reason why no trial of a setup has a metric; `None` if trials may have it.
    fn impossible_reason(&self, name: &str, setup: &LabSetup) -> Option<String> {
        let version = self.driver_versions.iter().find(|(tool, _)| *tool == setup.tool);
        metrics::find_metric(name)?.unavailable_reason(setup, version.map(|(_, output)| output.as_str()))
    }

    /// Returns the problem of a metric that was requested; `None` if trials have it. All arms under
    /// all loads must have the primary metric; any one arm is enough for other metrics.
    fn metric_problem(&self, name: &str, decides: bool) -> Option<String> {
        let cells = &self.cells.setups;
        let cell_problem = |(cell, setup)| Some((cell, setup, self.impossible_reason(name, setup)?));
        let unavailable: Vec<(&(String, String), &LabSetup, String)> =
            cells.iter().filter_map(cell_problem).collect();
        let ((arm, load), setup, reason) = unavailable.first()?;
        let (scope, owner) = match (unavailable.len() == cells.len(), decides) {
            (false, false) => return None,
            (false, true) => ("cannot decide", format!(" (arm '{arm}' under load '{load}')")),
            (true, true) => ("cannot decide", String::new()),
            (true, false) => ("is not available", String::new()),
        };
        let available = self.possible_metrics(setup).join(", ");
        Some(format!("'{name}' {scope}, because {reason}{owner}; there are: {available}"))
    }
}

/// Returns the plan's values from these tables, and the problems of the options from outside the
/// file.
pub(super) fn read_plan(
    parts: &FileParts<'_>,
    input: &MeasureInput<'_>,
    problems: &mut Problems,
) -> (ExperimentPlan, Vec<InputProblem>) {
    let options = input.options;
    let nothing = TableValues::default();
    let measure = parts.experiment.table("measure").unwrap_or(&nothing);
    let mut beside = Vec::new();
    let effect = measure.decimal("effect").unwrap_or(EFFECT_DEFAULT);
    if effect <= 0.0 || effect > EFFECT_MAX {
        let text = "the smallest effect that matters is above 0 and at most 50%";
        problems.add_error(measure.offset_of("effect"), text);
    }
    let confidence = measure.decimal("confidence").unwrap_or(CONFIDENCE_DEFAULT);
    if !CONFIDENCE_RANGE.contains(&confidence) {
        problems.add_error(measure.offset_of("confidence"), "a confidence is from 80% to 99.9%");
    }
    let (blocks_min, blocks_max) = block_range(measure, options, problems, &mut beside);
    let calls = measure.text("calls");
    let unknown = |calls: &str| match CallKind::parse(calls) {
        Err(error) => Some(error.to_string()),
        Ok(_) => input.environment.and_then(|checks| (checks.calls_problem)(calls)),
    };
    if let Some(reason) = calls.and_then(unknown) {
        problems.add_error(measure.offset_of("calls"), reason);
    }
    let mut discard = discard_bounds(parts.experiment.table("discard").unwrap_or(&nothing));
    for (covariate, bound) in &options.discard {
        match bound {
            Some(bound) => discard.insert(covariate.clone(), *bound),
            None => discard.remove(covariate),
        };
    }
    let reruns = measure.table("blocks").and_then(|blocks| blocks.decimal("reruns-max"));
    let plan = ExperimentPlan {
        seed: options.seed,
        metrics: chosen_metrics(measure, input, problems, &mut beside),
        effect,
        confidence,
        blocks_min,
        blocks_max,
        reruns_max_fraction: options.reruns_max_fraction.or(reruns).unwrap_or(RERUNS_MAX_FRACTION_DEFAULT),
        duration_s: duration_ns(measure, options, problems, &mut beside) as f64 / 1e9,
        discard,
        profile: measure.is_set("profile"),
        calls: calls.map(str::to_owned),
        ..ExperimentPlan::default()
    };
    (plan, beside)
}

fn duration_ns(
    measure: &TableValues,
    options: &ExperimentOptions,
    problems: &mut Problems,
    option_problems: &mut Vec<InputProblem>,
) -> u64 {
    let wrong = || {
        let (from, to) = (*DURATION_RANGE_NS.start(), *DURATION_RANGE_NS.end());
        format!("the length of a load is from {} to {}", format_duration_ns(from), format_duration_ns(to))
    };
    let own_ns = measure.integer("duration").unwrap_or(DURATION_DEFAULT_NS);
    if !DURATION_RANGE_NS.contains(&own_ns) {
        problems.add_error(measure.offset_of("duration"), wrong());
    }
    if options.duration_ns.is_some_and(|ns| !DURATION_RANGE_NS.contains(&ns)) {
        option_problems.push(InputProblem::new("--duration", wrong()));
    }
    options.duration_ns.unwrap_or(own_ns)
}

/// Returns the minimum and maximum number of blocks. Options from outside the file may ask for
/// fewer than can show a difference. Everything is then inconclusive, and the run only tries the
/// file.
fn block_range(
    measure: &TableValues,
    options: &ExperimentOptions,
    problems: &mut Problems,
    option_problems: &mut Vec<InputProblem>,
) -> (u32, u32) {
    let nothing = TableValues::default();
    let blocks = measure.table("blocks").unwrap_or(&nothing);
    let (min, max) = (blocks.integer("min"), blocks.integer("max"));
    // If only one bound is given, the other follows it.
    let blocks_min = min.unwrap_or_else(|| BLOCKS_DEFAULT.0.min(max.unwrap_or(BLOCKS_DEFAULT.0)));
    let blocks_max = max.unwrap_or_else(|| BLOCKS_DEFAULT.1.max(blocks_min));
    if blocks_min < BLOCKS_MIN {
        let key = if min.is_some() { "min" } else { "max" };
        let text =
            format!("{blocks_min} blocks allow no conclusion: the first look is after block {BLOCKS_MIN}");
        problems.add_error(blocks.offset_of(key), text);
    }
    if blocks_min > blocks_max {
        problems.add_error(blocks.offset_of("max"), "the maximum number of blocks is below the minimum");
    }
    if let Some((min, max)) = options.blocks {
        if min == 0 || min > max {
            option_problems.push(InputProblem::new(
                "--blocks",
                "give a minimum of 1 or more, and a maximum that is not below it",
            ));
        }
        return (min, max);
    }
    (u32::try_from(blocks_min).unwrap_or(u32::MAX), u32::try_from(blocks_max).unwrap_or(u32::MAX))
}

/// Returns the metrics, the primary one first.
fn chosen_metrics(
    measure: &TableValues,
    input: &MeasureInput<'_>,
    problems: &mut Problems,
    option_problems: &mut Vec<InputProblem>,
) -> Vec<ExperimentMetric> {
    let default = if input.cells.has_rate() { PRIMARY_DEFAULT_WITH_RATE } else { PRIMARY_DEFAULT };
    let own = measure.text("primary");
    let primary_at = Some(measure.offset_of("primary"));
    // A name without a position is that of the option; the file's own primary metric is still reported.
    let mut names = match input.options.metric.as_deref() {
        Some(asked) => [(None, asked)].into_iter().chain(own.map(|own| (primary_at, own))).collect(),
        None => vec![(primary_at, own.unwrap_or(default))],
    };
    match measure.list("also") {
        Some(secondary) => {
            names.extend(secondary.iter().map(|name| (Some(name.offset), name.value.as_str())));
            if !input.options.was_accepted {
                report_duplicates(secondary, problems);
            }
        }
        // A metric that nobody requested by name is left out if it is not available.
        None => {
            let reported =
                SECONDARY_DEFAULTS.iter().filter(|name| input.metric_problem(name, false).is_none());
            names.extend(reported.map(|name| (Some(measure.offset), *name)));
        }
    }
    let mut report = |at: Option<usize>, text: String| match at {
        Some(at) => problems.add_error(at, text),
        None => option_problems.push(InputProblem::new("--metric", text)),
    };
    let mut metrics: Vec<ExperimentMetric> = Vec::new();
    let comparable = || input.metrics.iter().filter(|metric| metric.name != PROBE_METRIC);
    for (index, (at, name)) in names.into_iter().enumerate() {
        if name == PROBE_METRIC {
            report(at, probe_metric_text(measure));
            continue;
        }
        match comparable().find(|metric| metric.name == name) {
            Some(metric) if !metrics.contains(metric) => {
                let metric_problem =
                    input.metric_problem(name, index == 0).filter(|_| !input.options.was_accepted);
                metric_problem.into_iter().for_each(|reason| report(at, reason));
                metrics.push(metric.clone());
            }
            Some(_) => {}
            None => {
                let hint = suggestion(name, comparable().map(|metric| &*metric.name));
                let known_names: Vec<&str> = comparable().map(|metric| &*metric.name).collect();
                let text =
                    format!("there is no metric '{name}'{hint}; there are: {}", known_names.join(", "));
                report(at, text);
            }
        }
    }
    metrics
}

fn report_duplicates(secondary: &[Located<String>], problems: &mut Problems) {
    for (index, Located { value: name, offset }) in secondary.iter().enumerate() {
        if secondary[..index].iter().any(|other| other.value == *name) {
            problems.add_error(*offset, format!("'{name}' is listed in 'measure.also' twice"));
        }
    }
}

fn probe_metric_text(measure: &TableValues) -> String {
    let instead = match measure.text("calls") {
        Some(_) => "remove it here: 'measure.calls' already reports it",
        None => "remove it here, and set 'calls = \"allocations\"' in [measure] to report it",
    };
    format!(
        "'{PROBE_METRIC}' cannot be compared, because calls are counted in separate trials that are not \
         judged: {instead}"
    )
}

fn discard_bounds(discard: &TableValues) -> BTreeMap<String, f64> {
    let value = |bound: &DiscardBound| {
        let integer = discard.integer(bound.key).map(|integer| integer as f64);
        let given = discard.decimal(bound.key).or(integer).map(|given| given * bound.scale);
        Some((bound.covariate.to_owned(), given.or(bound.default)?))
    };
    DISCARD_BOUNDS.iter().filter_map(value).collect_map()
}

/// Parses a bound of `[discard]` from the command line (`steal=30%`): its covariate, and the bound; `None` for
/// `steal=off`.
///
/// # Errors
/// The bound does not exist, or the value is not allowed.
pub fn parse_discard_bound(text: &str) -> Result<(String, Option<f64>), InvalidValue> {
    let wrong =
        || invalid_value!("'{text}' is not a bound: write NAME=BOUND, for instance steal=10% or steal=off");
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let entry = DISCARD_BOUNDS.iter().find(|row| row.key == name).ok_or_else(|| {
        let names: Vec<&str> = DISCARD_BOUNDS.iter().map(|row| row.key).collect();
        let hint = suggestion(name, names.iter().copied());
        invalid_value!("there is no bound '{name}'{hint}; there are: {}", names.join(", "))
    })?;
    if value == "off" {
        return Ok((entry.covariate.to_owned(), None));
    }
    let is_number = value.parse::<f64>().is_ok();
    let value = if is_number { value.to_owned() } else { format!("{value:?}") };
    let mut problems = Problems::default();
    let values = read_file(&format!("{name} = {value}"), DISCARD, &mut problems);
    if let Some(problem) = problems.into_errors().into_iter().next() {
        return Err(InvalidValue::new(problem.value));
    }
    let bound_value = discard_bounds(&values).remove(entry.covariate).ok_or_else(wrong)?;
    Ok((entry.covariate.to_owned(), Some(bound_value)))
}

#[cfg(test)]
mod tests {
    use record::document::table::ValueForm;

    use super::*;
    use crate::scenario::keys::{BOUND_COVARIATES, EXPERIMENT, bound_key};

    #[test]
    fn a_bound_can_be_given_beside_the_file() {
        assert_eq!(parse_discard_bound("steal=30%"), Ok(("steal_fraction".to_owned(), Some(0.3))));
        assert_eq!(parse_discard_bound("wake-up-ratio=10"), Ok(("wake_up_p99_ns".to_owned(), Some(10.0))));
        assert_eq!(parse_discard_bound("clock-step=2s"), Ok(("clock_step_s".to_owned(), Some(2.0))));
        assert_eq!(parse_discard_bound("generator-lag=off"), Ok(("generator_lag_p99_ns".to_owned(), None)));
        assert_eq!((bound_key("foreign_cpus"), bound_key("failed")), ("foreign-cpus", "failed"));
        assert!(parse_discard_bound("stela=1%").unwrap_err().to_string().contains("'steal'"));
        for text in ["steal", "steal=", "steal=much", "generator-lag=x", "steal=\"\n"] {
            assert!(parse_discard_bound(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_key_of_bounds_has_its_row_and_its_covariate() {
        let keys = EXPERIMENT.iter().find(|row| row.name == "discard").unwrap();
        let ValueForm::Table(keys) = keys.form else { panic!("{keys:?}") };
        let names: Vec<&str> = keys.iter().map(|row| row.name).collect();
        assert_eq!(names, DISCARD_BOUNDS.iter().map(|bound| bound.key).collect::<Vec<_>>());
        let covariates: Vec<_> = DISCARD_BOUNDS.iter().map(|bound| (bound.key, bound.covariate)).collect();
        assert_eq!(covariates, BOUND_COVARIATES);
        let all = record::trial::Covariates {
            steal_fraction: Some(0.0),
            foreign_cpus: Some(0.0),
            neighbours: Vec::new(),
            wake_up_p99_ns: Some(0),
            generator_lag_p99_ns: Some(0),
            generator_part_fraction: None,
            generator_busiest_fraction: Some(0.0),
            error_fraction: Some(0.0),
            throttled_fraction: Some(0.0),
            clock_step_s: Some(0.0),
        };
        let fields = serde_json::to_value(all).unwrap();
        for bound in DISCARD_BOUNDS {
            assert!(fields.get(bound.covariate).is_some(), "{}", bound.covariate);
        }
        assert_eq!(fields.as_object().unwrap().len(), DISCARD_BOUNDS.len());
    }
}
