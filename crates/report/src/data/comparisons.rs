//! Comparisons in words and colours: change, outcome, row name, tip.

use experiment::format;
use record::experiment::{BlockPair, Comparison, ComparisonOutcome, Experiment, ExperimentMetric};
use stats::median;
use stats::sequential::BLOCKS_MIN;

use super::trials::{has_several_loads, metric, metric_unit};
use crate::data_table::{DataTable, cells};
use crate::plot::row_name;

/// Maximum number of letters of a row's name.
const NAME_CHARS_MAX: usize = 34;

/// Returns the comparisons of a metric by load, the A/A comparison of each load last.
pub(crate) fn comparisons_of_metric<'a>(
    experiment: &'a Experiment,
    metric: &ExperimentMetric,
) -> Vec<&'a Comparison> {
    let comparisons_under_load = |load: &str| {
        let own = experiment.comparisons.iter();
        let own = own.filter(|comparison| comparison.metric == metric.name && comparison.load == load);
        let (noise, others): (Vec<_>, Vec<_>) = own.partition(|comparison| comparison.noise);
        others.into_iter().chain(noise)
    };
    experiment.plan.loads.iter().flat_map(|load| comparisons_under_load(&load.name)).collect()
}

/// Returns the figures of all comparisons.
pub(crate) fn data_table(experiment: &Experiment) -> DataTable {
    let mut data = DataTable::new(
        "load metric unit arm baseline noise ratio low high p p_adjusted better_fraction cliffs_delta \
         blocks outcome text",
    );
    for comparison in &experiment.comparisons {
        let (low, high) = comparison.interval.unzip();
        let unit = metric_unit(experiment, &comparison.metric);
        let mut row = cells(&[
            &comparison.load,
            &comparison.metric,
            &unit,
            &comparison.arm,
            &comparison.baseline,
            &comparison.noise,
        ]);
        row.extend(cells(&[
            &comparison.ratio,
            &low,
            &high,
            &comparison.p,
            &comparison.p_adjusted,
            &comparison.better_fraction,
        ]));
        row.extend(cells(&[
            &comparison.cliffs_delta,
            &comparison.pairs.len(),
            &comparison.outcome.as_str(),
            &comparison.text,
        ]));
        data.add_row(row);
    }
    data
}

pub(crate) fn pairs_table(experiment: &Experiment) -> DataTable {
    let mut data = DataTable::new("load metric arm block baseline_value arm_value ratio");
    for comparison in &experiment.comparisons {
        for pair in &comparison.pairs {
            let ratio = pair.arm / pair.baseline;
            data.add(&[
                &comparison.load,
                &comparison.metric,
                &comparison.arm,
                &pair.block,
                &pair.baseline,
                &pair.arm,
                &ratio,
            ]);
        }
    }
    data
}

pub(crate) fn outcome(experiment: &Experiment, comparison: &Comparison) -> &'static str {
    comparison.outcome.as_str_for_unit(metric_unit(experiment, &comparison.metric))
}

/// Returns whether a comparison has so few blocks that its result is mostly chance.
pub(crate) fn has_few_blocks(comparison: &Comparison) -> bool {
    comparison.outcome == ComparisonOutcome::Inconclusive && comparison.pairs.len() < BLOCKS_MIN
}

/// Returns the change that a comparison found, or a replacement text.
pub(crate) fn change(experiment: &Experiment, comparison: &Comparison) -> String {
    match comparison.ratio {
        // With few blocks the difference of the baseline from itself means nothing.
        Some(_) if comparison.noise && has_few_blocks(comparison) => {
            format!("too few blocks ({} of {BLOCKS_MIN})", comparison.pairs.len())
        }
        // Nor does a ratio whose interval is wider than a factor of two: only its clear end.
        Some(ratio) => {
            wide_interval(comparison).map_or_else(|| format::signed_change(ratio), format::ratio_interval)
        }
        None => change_without_ratio(experiment, comparison),
    }
}

/// Returns an interval that is wider than a factor of two.
fn wide_interval(comparison: &Comparison) -> Option<(f64, f64)> {
    comparison.interval.filter(|ends| format::is_wide(*ends))
}

/// Returns the text for a comparison without a ratio: both medians, since zero has no ratio.
fn change_without_ratio(experiment: &Experiment, comparison: &Comparison) -> String {
    let unit = metric(experiment, &comparison.metric).map_or("1", |metric| metric.unit.as_str());
    let middle = |pick: fn(&BlockPair) -> f64| {
        let all: Vec<f64> = comparison.pairs.iter().map(pick).collect();
        median(&all).map(|middle| format::value(middle, unit))
    };
    match middle(|pair| pair.arm).zip(middle(|pair| pair.baseline)) {
        Some((arm, baseline)) if arm == baseline => format!("{arm} in both"),
        Some((arm, baseline)) => format!("{arm}, {baseline}"),
        None => "no figures".to_owned(),
    }
}

pub(crate) fn aa_comparison<'a>(
    experiment: &'a Experiment,
    comparison: &Comparison,
) -> Option<&'a Comparison> {
    let same = |other: &&Comparison| {
        other.noise
            && other.metric == comparison.metric
            && other.load == comparison.load
            && other.baseline == comparison.baseline
    };
    experiment.comparisons.iter().find(same)
}

/// Returns the colour class of an outcome, by good and bad.
pub(crate) fn outcome_class(comparison: &Comparison) -> &'static str {
    match comparison.outcome {
        _ if comparison.noise => "cn",
        ComparisonOutcome::Faster => "good",
        ComparisonOutcome::Slower => "bad",
        ComparisonOutcome::Equivalent => "same",
        ComparisonOutcome::Inconclusive => "open",
    }
}

pub(crate) fn comparison_name(experiment: &Experiment, comparison: &Comparison) -> String {
    let name = match comparison.noise {
        true => format!("{}, repeated (A/A)", comparison.baseline),
        false => comparison.arm.clone(),
    };
    let load = has_several_loads(&experiment.plan).then_some(comparison.load.as_str());
    row_name(&name, load, NAME_CHARS_MAX)
}

pub(crate) fn change_with_interval(experiment: &Experiment, comparison: &Comparison) -> String {
    let narrow = comparison.interval.filter(|ends| !format::is_wide(*ends));
    let interval = narrow.map(|ends| format!(" ({})", format::ratio_interval(ends)));
    format!("{}{}", change(experiment, comparison), interval.unwrap_or_default())
}

pub(crate) fn tip(experiment: &Experiment, comparison: &Comparison) -> String {
    let load = has_several_loads(&experiment.plan).then(|| format!(", {}", comparison.load));
    let mut tip = format!("{} / {}{}", comparison.arm, comparison.baseline, load.unwrap_or_default());
    if comparison.ratio.is_some() {
        tip += &format!("\n{}", change_with_interval(experiment, comparison));
    }
    if let Some(p) = comparison.p_adjusted.or(comparison.p).filter(|_| !has_few_blocks(comparison)) {
        tip += &format!("\np {}", format::probability(p));
    }
    if let Some(fraction) = comparison.better_fraction.filter(|_| !has_few_blocks(comparison)) {
        tip += &format!("\nP(better) {}", format::better_fraction(fraction));
    }
    let blocks = format::count(comparison.pairs.len(), "block");
    tip + &format!("\n{blocks}, {}", outcome(experiment, comparison))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{NoRecords, one_load};

    #[test]
    fn a_wide_interval_is_a_figure_in_no_table_and_on_no_card() {
        let (mut experiment, _) = one_load();
        for comparison in experiment.comparisons.iter_mut().filter(|comparison| comparison.primary) {
            (comparison.ratio, comparison.interval) = (Some(1.7321), Some((0.9123, 3.2871)));
            comparison.outcome = ComparisonOutcome::Inconclusive;
        }
        let text = crate::text::experiment::format_experiment(&experiment, &NoRecords);
        let markdown = crate::markdown(&experiment, &NoRecords);
        let page = crate::html(&experiment, &NoRecords).html;
        let (visible, _) = page.split_once("<details class=\"data\"").unwrap();
        for text in [text.as_str(), &markdown, visible] {
            assert!(text.contains(format::NOT_CLEAR), "{text}");
            for figure in ["1.732", "0.912", "3.287", "73.2 %", "8.8 %", "×3.29"] {
                assert!(!text.contains(figure), "{figure}: {text}");
            }
        }
        // Of a settled one the clear end is a figure.
        for comparison in experiment.comparisons.iter_mut().filter(|comparison| comparison.primary) {
            (comparison.interval, comparison.outcome) = (Some((1.25, 3.2)), ComparisonOutcome::Slower);
        }
        let text = crate::text::experiment::format_experiment(&experiment, &NoRecords);
        assert!(text.contains("1.250 or more") && !text.contains("1.732"), "{text}");
    }
}
