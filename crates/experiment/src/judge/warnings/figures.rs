//! Warnings about the reliability of the figures themselves.

use std::collections::BTreeMap;

use record::experiment::{Comparison, ExperimentCell, ExperimentMetric, TrialSummary};

use super::{NAMED_MAX, WarningFinding, WarningInput, merge_findings};
use crate::format::{capitalized, count, int_range, percent};
use crate::judge::judged_trials::log_ratios;
use crate::judge::phrases::{interval_text as interval, join_list, noun};
use crate::judge::sentence::list_up_to;
use crate::trial::metrics::{longer_trials, requests_needed};
use stats::{OUTLIER_Z, mean, median, modified_z_scores};

/// Maximum difference between error fractions.
const ERROR_DIFFERENCE_MAX: f64 = 0.001;
/// Maximum relative difference between rate times latency and the requests begun.
const LITTLES_LAW_TOLERANCE: f64 = 0.05;
/// The metrics of Little's law.
const RATE_METRIC: &str = "responses_per_s";
const MEAN_LATENCY_METRIC: &str = "mean_ns";
const MAX_LATENCY_METRIC: &str = "max_ns";
const ERROR_METRIC: &str = "error_fraction";

/// Differences of the baseline from itself by more than chance.
pub(super) fn noise_floor(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let alpha = 1.0 - input.blocks.plan.confidence;
    let distinct = noises(input).filter(|(noise, (low, high))| {
        (*low > 1.0 || *high < 1.0) && noise.p_adjusted.is_some_and(|p| p < alpha)
    });
    let texts = distinct.filter_map(|(noise, range)| {
        let size = percent((noise.ratio? - 1.0).abs());
        let (baseline, under) = (&noise.baseline, input.load_suffix(&noise.load));
        let text = format!("{baseline} differs from itself by {size}{under} ({})", interval(range));
        Some((Some(noise.arm.clone()), text))
    });
    merge_findings(
        texts.collect(),
        "; ",
        ", by more than chance: something besides the arms causes a difference. Effects of this size are \
         inconclusive.",
    )
}

/// Differences that are smaller than the range of the noise.
pub(super) fn noise_range(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let texts = noises(input).filter_map(|(noise, (low, high))| {
        let half_width = (high / low).ln() / 2.0;
        let is_smaller = |comparison: &&Comparison| {
            let size = comparison.ratio.map_or(f64::INFINITY, |ratio| ratio.ln().abs());
            is_effect(comparison) && comparison.load == noise.load && size < half_width
        };
        let smaller: Vec<&str> =
            input.comparisons.iter().filter(is_smaller).map(|comparison| comparison.arm.as_str()).collect();
        let text = format!(
            "the noise of {} is only known to within {}{}, which is more than the difference found for {}",
            noise.baseline,
            percent(half_width.exp_m1()),
            input.load_suffix(&noise.load),
            list_up_to(&smaller, NAMED_MAX)
        );
        (!smaller.is_empty()).then(|| (Some(noise.arm.clone()), text))
    });
    merge_findings(texts.collect(), "; ", ": run more blocks to distinguish it from noise.")
}

/// Returns the comparisons of the baseline with itself in the primary metric that have an interval, with it.
fn noises<'a>(input: &WarningInput<'a>) -> impl Iterator<Item = (&'a Comparison, (f64, f64))> + use<'a> {
    let noises = input.comparisons.iter().filter(|comparison| comparison.noise && comparison.primary);
    noises.filter_map(|noise| Some((noise, noise.interval?)))
}

fn is_effect(comparison: &Comparison) -> bool {
    use record::experiment::ComparisonOutcome::{Faster, Slower};
    comparison.primary && !comparison.noise && matches!(comparison.outcome, Faster | Slower)
}

/// Returns the mean fraction of failed requests of an arm under a load, if known.
fn error_fraction(input: &WarningInput<'_>, arm: &str, load: &str) -> Option<f64> {
    let fraction =
        |trial: &TrialSummary| trial.metrics.get(ERROR_METRIC).copied().or(trial.covariates.error_fraction);
    mean(&input.blocks.cell(arm, load).filter_map(fraction).collect::<Vec<f64>>())
}

pub(super) fn error_differences(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let mut findings = Vec::new();
    for load in input.loads() {
        let Some(baseline) = error_fraction(input, input.baseline(), load) else { continue };
        for arm in input.blocks.arms() {
            let Some(fraction) = error_fraction(input, &arm.name, load) else { continue };
            if (fraction - baseline).abs() < ERROR_DIFFERENCE_MAX {
                continue;
            }
            let text = format!(
                "{} of the requests of {} failed{}, and {} of those of {}",
                percent(fraction),
                arm.name,
                input.load_suffix(load),
                percent(baseline),
                input.baseline()
            );
            findings.push((Some(arm.name.clone()), text));
        }
    }
    merge_findings(
        findings,
        "; ",
        ": an error is often cheaper than a response, so their rates and latencies are not comparable.",
    )
}

/// Checks Little's law for closed loops. Both figures count a request from its due time to its last byte.
/// Requests begun before the start of a trial count with all of their latency. The longest latency
/// relative to the trial's length therefore widens the tolerance.
pub(super) fn littles_law_violations(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let length_ns = input.blocks.plan.duration_s * 1e9;
    let audit = |trial: &TrialSummary| {
        let figure = |name: &str| trial.metrics.get(name).copied();
        let begun = input.extras.begun.get(&trial.position.number).copied().filter(|begun| *begun > 0.0)?;
        let ratio = figure(RATE_METRIC)? * figure(MEAN_LATENCY_METRIC)? / 1e9 / begun;
        let tolerance = LITTLES_LAW_TOLERANCE + figure(MAX_LATENCY_METRIC).unwrap_or(0.0) / length_ns;
        Some((ratio, tolerance))
    };
    let mut findings = Vec::new();
    let is_closed = |cell: &&ExperimentCell| input.extras.closed_loads.contains(&cell.load);
    for cell in input.cells.iter().filter(is_closed) {
        let trials = input.blocks.cell(&cell.arm, &cell.load);
        let (ratios, tolerances): (Vec<f64>, Vec<f64>) = trials.filter_map(audit).unzip();
        let (Some(ratio), Some(tolerance)) = (median(&ratios), median(&tolerances)) else {
            continue;
        };
        if (ratio - 1.0).abs() <= tolerance {
            continue;
        }
        let text = format!(
            "{}{}: rate × mean latency is {} of the requests begun",
            cell.arm,
            input.load_suffix(&cell.load),
            percent(ratio)
        );
        findings.push((Some(cell.arm.clone()), text));
    }
    merge_findings(
        findings,
        "; ",
        ", and by Little's law should be 100 %. A figure or its unit is wrong; a factor near 1,000 means ms \
         instead of µs.",
    )
}

pub(super) fn unsteady(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let cells = input.cells.iter().filter(|cell| cell.unsteady > 0);
    let findings = cells.map(|cell| {
        let trial_count = count(cell.trials as usize, "trial");
        let under = input.load_suffix(&cell.load);
        (Some(cell.arm.clone()), format!("{} of {trial_count} of {}{under}", cell.unsteady, cell.arm))
    });
    merge_findings(
        findings.collect(),
        ", ",
        " never became steady: their figures depend on their duration. Use a longer warm-up or longer \
         trials.",
    )
}

pub(super) fn closed_loop_latency(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let plan = input.blocks.plan;
    let latencies: Vec<String> = plan.metrics.iter().filter(|metric| metric.unit == "ns").map(noun).collect();
    let closed: Vec<&str> = input.loads().filter(|load| input.extras.closed_loads.contains(*load)).collect();
    if latencies.is_empty() || closed.is_empty() {
        return Vec::new();
    }
    let loads = if closed.len() == plan.loads.len() {
        String::new()
    } else {
        format!(" under {}", list_up_to(&closed, NAMED_MAX))
    };
    let text = format!(
        "{}{loads}: in a closed loop each connection sends its next request after the response. The latency \
         is the number of connections divided by the rate: a queue, not the latency of a user. Measure \
         that with a rate below the limit.",
        join_list(&latencies)
    );
    vec![(None, text)]
}

/// Lists, for each percentile, the arms under loads in which it rests on too few requests.
pub(super) fn few_requests(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let percentiles = input.blocks.plan.metrics.iter();
    let percentiles = percentiles.filter_map(|metric| Some((metric, requests_needed(&metric.name)?)));
    percentiles.flat_map(|(metric, needed)| few_requests_for(input, metric, needed)).collect()
}

fn few_requests_for(input: &WarningInput<'_>, metric: &ExperimentMetric, needed: f64) -> Vec<WarningFinding> {
    let (mut cells, mut requests, mut without) = (Vec::new(), Vec::new(), 0);
    for cell in input.cells.iter().filter(|cell| cell.trials > 0) {
        let Some(rate) = cell.metrics.get(RATE_METRIC) else { continue };
        let requests_per_trial = rate.median * input.blocks.plan.duration_s;
        let key = (cell.arm.clone(), cell.load.clone(), metric.name.clone());
        if requests_per_trial >= needed || input.extras.unavailable_metrics.contains_key(&key) {
            continue;
        }
        requests.push(requests_per_trial.round() as u32);
        without += usize::from(!cell.metrics.contains_key(&metric.name));
        cells.push((Some(cell.arm.clone()), format!("{}{}", cell.arm, input.load_suffix(&cell.load))));
    }
    let (Some(min), Some(max)) = (requests.iter().min(), requests.iter().max()) else {
        return Vec::new();
    };
    let missing = match without {
        0 => String::new(),
        all if all == cells.len() => "; that is too few for any figure".to_owned(),
        some => format!("; in {some} of {} that is too few for any figure", cells.len()),
    };
    let longer = longer_trials(needed, f64::from(*min), input.blocks.plan.duration_s);
    let follows = format!("{missing}. {}.", capitalized(&longer));
    let about = int_range((*min, *max));
    let finding = |(arm, cells)| {
        let noun = noun(metric);
        let text =
            format!("{noun} requires {needed:.0} requests per trial, and there are about {about} in {cells}");
        (arm, text)
    };
    merge_findings(cells, ", ", &follows).into_iter().map(finding).collect()
}

/// Returns the length of trials that would have the metric that decides, if it is a percentile and no trial has enough
/// requests for it.
pub(in crate::judge) fn longer_trials_for(input: &WarningInput<'_>) -> Option<String> {
    let (plan, cells) = (input.blocks.plan, || input.cells.iter().filter(|cell| cell.trials > 0));
    let primary = plan.primary()?;
    let needed = requests_needed(&primary.name)?;
    let rates = cells().filter_map(|cell| cell.metrics.get(RATE_METRIC));
    let requests = rates.map(|rate| rate.median).reduce(f64::min)? * plan.duration_s;
    let is_missing = cells().all(|cell| !cell.metrics.contains_key(&primary.name));
    (is_missing && requests < needed).then(|| longer_trials(needed, requests, plan.duration_s))
}

pub(super) fn missing_metrics(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let mut cells: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for ((arm, load, metric), reason) in &input.extras.unavailable_metrics {
        let named = format!("{arm}{}", input.load_suffix(load));
        cells.entry((metric, reason)).or_default().push(named);
    }
    let metrics = &input.blocks.plan.metrics;
    let findings = cells.into_iter().filter_map(|((metric, reason), cells)| {
        let metric = metrics.iter().find(|plan_metric| plan_metric.name == metric)?;
        Some((
            None,
            format!("{} of {} is not available: {reason}.", noun(metric), list_up_to(&cells, NAMED_MAX)),
        ))
    });
    findings.collect()
}

pub(super) fn outliers(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let mut findings = Vec::new();
    for comparison in input.comparisons.iter().filter(|comparison| comparison.primary) {
        let scores = log_ratios(&comparison.pairs).and_then(|logs| modified_z_scores(&logs));
        let scores = scores.unwrap_or_default();
        let far = comparison.pairs.iter().zip(&scores).filter(|(_, z)| z.abs() > OUTLIER_Z);
        let far: Vec<String> = far.map(|(pair, _)| pair.block.to_string()).collect();
        if far.is_empty() {
            continue;
        }
        let text = format!(
            "{}{} is far from the rest in {} {}",
            comparison.arm,
            input.load_suffix(&comparison.load),
            if far.len() == 1 { "block" } else { "blocks" },
            list_up_to(&far, NAMED_MAX)
        );
        findings.push((Some(comparison.arm.clone()), text));
    }
    merge_findings(
        findings,
        "; ",
        ". It is not removed: no disturbance was observed, and removing misfits would make any difference \
         significant. It widens the interval.",
    )
}
