//! Result of an experiment that compares nothing: one arm under loads that form a ladder.
//!
//! The scaling law behind it is fitted elsewhere.

use std::collections::BTreeMap;

use record::experiment::ExperimentMetric;
use record::sorted::sort_by;

use super::judged_trials::{log_ratios, pair_blocks};
use super::sentence::list_up_to;
use super::warnings::WarningInput;
use super::warnings::limits::generator_limit;
use crate::format::{count, value};
use stats::bootstrap::{Resampling, bca_interval};
use stats::effect::t_half_width;
use stats::sequential::BLOCKS_MIN;
use stats::{mean, median};

/// Fraction of the maximum that is nearly as much.
const NEARLY_MAX_FRACTION: f64 = 0.95;
/// Maximum number of levels that a sentence names.
const NAMED_MAX: usize = 12;

struct LadderLevel<'a> {
    level: f64,
    name: &'a str,
    load: &'a str,
    /// The metric by block.
    values_by_block: BTreeMap<u32, f64>,
    median: f64,
    /// True if the load generator was the limit of most trials.
    is_generator_limited: bool,
}

/// Parses a level as a number: a plain decimal, or a count with its unit (`10k`).
pub fn parse_level(text: &str) -> Option<f64> {
    let decimal = text.parse::<f64>().ok().filter(|number| number.is_finite());
    decimal.or_else(|| record::units::parse_count(text).ok().map(|count| count as f64))
}

/// Describes a ladder if there is nothing else to compare: the level with the maximum, the levels
/// that cannot be distinguished from it, and the levels where the generator was the limit.
pub(super) fn describe_ladder(input: &WarningInput<'_>, draws: u32) -> Option<String> {
    if input.arms().next().is_some() {
        return None;
    }
    let metric = input.blocks.plan.primary().filter(|metric| metric.unit == "1/s")?;
    let (factor, levels) = ladder_levels(input, metric)?;
    let top = (0..levels.len()).max_by(|&a, &b| levels[a].median.total_cmp(&levels[b].median))?;
    let alike: Vec<bool> = (0..levels.len())
        .map(|at| at == top || !differs_from_top(input, (&levels[top], &levels[at]), levels.len(), draws))
        .collect();
    let limited: Vec<&str> = levels.iter().filter(|it| it.is_generator_limited).map(|it| it.name).collect();
    let names = list_up_to(&limited, NAMED_MAX);
    let main = describe_maximum(&factor, metric, &levels, (top, &alike), input.blocks.block_count());
    Some(match limited.len() {
        0 => main,
        some if 2 * some > levels.len() => format!(
            "The maximum is that of the load generator, not of the subject: the generator was the limit \
             with {factor} at {names}. {main}"
        ),
        _ => format!(
            "{main} The generator was the limit with {factor} at {names}: the figures there are a lower bound \
             of the subject's."
        ),
    })
}

/// Returns the factor and its levels in order; `None` if the loads are not levels of one number.
fn ladder_levels<'a>(
    input: &WarningInput<'a>,
    metric: &ExperimentMetric,
) -> Option<(String, Vec<LadderLevel<'a>>)> {
    let plan = input.blocks.plan;
    let factor = plan.loads.first()?.levels.keys().next()?;
    let mut levels: Vec<LadderLevel<'_>> = Vec::new();
    for load in &plan.loads {
        let name = load.levels.get(factor).filter(|_| load.levels.len() == 1)?;
        let level = parse_level(name)?;
        let figures = input.blocks.values_by_block(&plan.baseline, &load.name, &metric.name);
        let limit = input.cell(&plan.baseline, &load.name);
        let limited = limit.is_some_and(|cell| generator_limit(input.blocks, cell).is_some());
        let values: Vec<f64> = figures.values().copied().collect();
        let Some(median) = median(&values) else { continue };
        levels.push(LadderLevel {
            level,
            name,
            load: &load.name,
            values_by_block: figures,
            median,
            is_generator_limited: limited,
        });
    }
    sort_by(&mut levels, |a, b| a.level.total_cmp(&b.level));
    let distinct = levels.windows(2).all(|two| two[0].level < two[1].level);
    (levels.len() > 1 && distinct).then(|| (factor.clone(), levels))
}

/// Returns whether a level differs from the one with the maximum. The test uses pairs within blocks
/// and an interval that is wide enough for all levels together (Bonferroni). The difference must
/// also be larger than the difference of either level from itself.
fn differs_from_top(
    input: &WarningInput<'_>,
    (top, other): (&LadderLevel<'_>, &LadderLevel<'_>),
    all: usize,
    draws: u32,
) -> bool {
    let Some(logs) = log_ratios(&pair_blocks(&top.values_by_block, &other.values_by_block)) else {
        return false;
    };
    let plan = input.blocks.plan;
    let confidence = 1.0 - (1.0 - plan.confidence) / (all - 1).max(1) as f64;
    let wide = Resampling { draws, seed: plan.seed, confidence };
    let Some((low, high)) = log_interval(&logs, wide) else { return false };
    let noises = input.comparisons.iter().filter(|comparison| {
        comparison.noise
            && comparison.primary
            && (comparison.load == top.load || comparison.load == other.load)
    });
    let noise = noises.filter_map(|noise| noise.ratio).map(|ratio| ratio.ln().abs());
    (low > 0.0 || high < 0.0) && mean(&logs).unwrap_or(0.0).abs() > noise.fold(0.0, f64::max)
}

/// Returns the interval of the mean of logarithms: at each end the wider of BCa's and Student's. A bootstrap of a few
/// values alone is too narrow: it knows no noise beyond its sample.
fn log_interval(logs: &[f64], resampling: Resampling) -> Option<(f64, f64)> {
    if logs.len() < BLOCKS_MIN {
        return None;
    }
    let (mean_log, half) = (mean(logs)?, t_half_width(logs, resampling.confidence)?);
    let resample_mean = |values: &mut [f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (low, high) = bca_interval(logs, resample_mean, resampling)?;
    Some((low.min(mean_log - half), high.max(mean_log + half)))
}

/// Describes the maximum: its level, the fraction of it before that level, and the rest at the end.
fn describe_maximum(
    factor: &str,
    metric: &ExperimentMetric,
    levels: &[LadderLevel<'_>],
    (top, is_alike): (usize, &[bool]),
    blocks: usize,
) -> String {
    let best: Vec<&LadderLevel<'_>> = levels.iter().zip(is_alike).filter(|it| *it.1).map(|it| it.0).collect();
    let first = is_alike.iter().position(|is| *is).unwrap_or(top);
    let last = is_alike.iter().rposition(|is| *is).unwrap_or(top);
    let names: Vec<&str> = best.iter().map(|level| level.name).collect();
    let at = match names.as_slice() {
        [only] => (*only).to_owned(),
        [low, .., high] if last - first + 1 == names.len() => format!("{low} to {high}"),
        _ => list_up_to(&names, NAMED_MAX),
    };
    let per_s = |level: &LadderLevel<'_>| value(level.median, &metric.unit);
    let min = best.iter().min_by(|a, b| a.median.total_cmp(&b.median)).map(|level| per_s(level));
    let max = per_s(&levels[top]);
    let measured = match min {
        Some(min) if min != max => format!("{min} to {max}"),
        _ => max.clone(),
    };
    let by_generator = best.iter().any(|level| level.is_generator_limited);
    let at_least = if by_generator { format!("At least {max}: most ") } else { "Most ".to_owned() };
    let verb = if levels.iter().any(|level| level.is_generator_limited) { " were measured" } else { "" };
    let mut text = format!("{at_least}{}{verb} with {factor} at {at} ({measured})", metric.title);
    if best.len() > 1 {
        text.push_str(&format!(", which do not differ significantly over {}", count(blocks, "block")));
    }
    let percent_of_max =
        |level: &LadderLevel<'_>| format!("{:.0} %", level.median / levels[top].median * 100.0);
    let enough =
        levels[..first].iter().find(|level| level.median >= NEARLY_MAX_FRACTION * levels[top].median);
    if let Some(enough) = enough {
        text.push_str(&format!("; {} of that with {} already", percent_of_max(enough), enough.name));
    }
    if let Some(end) = levels[last + 1..].last() {
        text.push_str(&format!("; {} of it with {}", percent_of_max(end), end.name));
    }
    text.push('.');
    text
}

#[cfg(test)]
mod tests {
    use record::experiment::{Arm, ExperimentCell, ExperimentPlan, LoadPlan, TrialSummary};
    use record::trial::TrialPosition;

    use super::*;
    use crate::judge::judged_trials::JudgedTrials;
    use crate::judge::{JudgeExtras, compare};

    const DRAWS: u32 = 500;

    /// Returns the text for levels with their values, and whether the generator was the limit
    /// there.
    fn ladder_text(levels: &[(&str, f64, bool)], blocks: u32, wobble: f64) -> Option<String> {
        let metric = ExperimentMetric {
            name: "responses_per_s".to_owned(),
            title: "responses per second".to_owned(),
            unit: "1/s".to_owned(),
            ..ExperimentMetric::default()
        };
        let load = |name: &str| LoadPlan {
            name: name.to_owned(),
            levels: [("threads".to_owned(), name.to_owned())].into(),
            ..LoadPlan::default()
        };
        let arm = |name: &str, repeats: Option<&str>| Arm {
            name: name.to_owned(),
            repeats: repeats.map(str::to_owned),
            ..Arm::default()
        };
        let plan = ExperimentPlan {
            baseline: "a".to_owned(),
            arms: vec![arm("a", None), arm("a-repeat", Some("a"))],
            loads: levels.iter().map(|(name, ..)| load(name)).collect(),
            metrics: vec![metric],
            confidence: 0.95,
            seed: 7,
            ..ExperimentPlan::default()
        };
        let mut lines = Vec::new();
        for block in 1..=blocks {
            for (load, value, limited) in levels {
                for arm in ["a", "a-repeat"] {
                    let number = lines.len() as u32;
                    let off = fastrand::Rng::with_seed(u64::from(number)).f64() - 0.5;
                    let measured = value * (1.0 + wobble * off);
                    lines.push(TrialSummary {
                        position: TrialPosition {
                            number,
                            block,
                            attempt: 1,
                            arm: arm.to_owned(),
                            load: (*load).to_owned(),
                            ..TrialPosition::default()
                        },
                        metrics: [("responses_per_s".to_owned(), measured)].into(),
                        verdict: limited.then(|| "client_bound".to_owned()),
                        ..TrialSummary::default()
                    });
                }
            }
        }
        let blocks = JudgedTrials::new(&plan, &lines, 0.0);
        let cells: Vec<ExperimentCell> = crate::judge::cells::summarize_cells(&blocks, DRAWS);
        let comparisons = compare::compare_all(&blocks, &plan.metrics, &cells, None);
        let extras = JudgeExtras::default();
        let input =
            WarningInput { blocks: &blocks, cells: &cells, comparisons: &comparisons, extras: &extras };
        describe_ladder(&input, DRAWS)
    }

    #[test]
    fn the_maximum_is_reported_with_its_neighbours() {
        let levels = [("1", 1e3, false), ("2", 1.93e3, false), ("4", 2e3, false), ("8", 1.5e3, false)];
        let text = ladder_text(&levels, 8, 0.002).unwrap();
        let parts: Vec<&str> = text.split(';').collect();
        assert_eq!(parts.len(), 3, "{text}");
        assert!(parts[0].ends_with("threads at 4 (2.00 k/s)"), "{text}");
        assert!(parts[1].starts_with(" 97 %") && parts[1].contains(" 2 "), "{text}");
        assert!(parts[2].starts_with(" 75 %") && parts[2].ends_with(" 8."), "{text}");
        let text = ladder_text(&levels[..2], 8, 0.002).unwrap();
        assert!(text.ends_with("threads at 2 (1.93 k/s)."), "{text}");
        assert_eq!(ladder_text(&levels, 0, 0.0), None);
    }

    #[test]
    fn indistinguishable_levels_are_a_range() {
        let levels = [("1", 1e3, false), ("2", 1.98e3, false), ("4", 2e3, false), ("8", 1.5e3, false)];
        let text = ladder_text(&levels, 8, 0.15).unwrap();
        assert!(text.contains("threads at 2 to 4 (") && text.contains("8 blocks; "), "{text}");
        assert!(text.ends_with(" 8."), "{text}");
        // With few blocks no level can be distinguished.
        let text = ladder_text(&levels, 3, 0.002).unwrap();
        assert!(text.contains("1 to 8 (1.00 k/s to 2.00 k/s)") && text.contains("3 blocks"), "{text}");
    }

    #[test]
    fn levels_limited_by_the_generator_are_lower_bounds() {
        let text =
            ladder_text(&[("1", 1e3, false), ("2", 2e3, false), ("4", 1.5e3, true)], 8, 0.002).unwrap();
        let (maximum, limited) = text.split_once("threads at 2 (").unwrap();
        assert!(!maximum.contains("k/s") && limited.contains("threads at 4: "), "{text}");
        // If most levels are limited, that is said first, and the maximum is a lower bound.
        let text = ladder_text(&[("1", 1e3, false), ("2", 2e3, true), ("4", 1.5e3, true)], 8, 0.002).unwrap();
        let (_, maximum) = text.split_once("threads at 2 and 4. ").unwrap();
        let (bound, measured) = maximum.split_once(": ").unwrap();
        assert!(bound.ends_with("2.00 k/s") && measured.contains("threads at 2"), "{text}");
    }

    #[test]
    fn loads_that_are_no_numbers_are_no_ladder() {
        assert_eq!(ladder_text(&[("few", 1e3, false), ("many", 2e3, false)], 8, 0.002), None);
        assert_eq!(
            (parse_level("10k"), parse_level("0.25"), parse_level("many")),
            (Some(1e4), Some(0.25), None)
        );
    }
}
