//! The answer of an experiment that compares nothing: one arm under loads that are a ladder.
//!
//! Not for the law behind it, which is fitted elsewhere.

use std::collections::BTreeMap;

use record::experiment::Metric;

use super::blocks::paired;
use super::compare::{interval, logs, resampling};
use super::said::some;
use super::warnings::Case;
use super::warnings::limits::generator_limit;
use crate::statistics::bootstrap::Resampling;
use crate::statistics::{mean, median};
use crate::words::{count, value};

/// So much of the most is nearly as much.
const NEARLY: f64 = 0.95;
/// How many levels a sentence names.
const NAMED_MAX: usize = 12;

/// One level of the factor.
struct Rung<'a> {
    level: f64,
    /// The level as the plan writes it.
    name: &'a str,
    load: &'a str,
    /// The metric by block.
    figures: BTreeMap<u32, f64>,
    median: f64,
    /// Whether the load generator was the limit of most trials.
    limited: bool,
}

/// A level as a number: a decimal as it stands, or a count with its unit (`10k`).
#[must_use]
pub fn level(text: &str) -> Option<f64> {
    let decimal = text.parse::<f64>().ok().filter(|number| number.is_finite());
    decimal.or_else(|| record::units::parse_count(text).ok().map(|count| count as f64))
}

/// What a ladder says where there is nothing else to compare: where the most is, with which levels it
/// cannot be told apart, and where it is the generator's and not the subject's.
pub(super) fn ladder(case: &Case<'_>, draws: u32) -> Option<String> {
    if case.arms().next().is_some() {
        return None;
    }
    let metric = case.blocks.plan.primary().filter(|metric| metric.unit == "1/s")?;
    let (factor, rungs) = rungs(case, metric)?;
    let top = (0..rungs.len()).max_by(|&a, &b| rungs[a].median.total_cmp(&rungs[b].median))?;
    let alike: Vec<bool> = (0..rungs.len())
        .map(|at| at == top || !is_apart(case, (&rungs[top], &rungs[at]), rungs.len(), draws))
        .collect();
    let limited: Vec<&str> = rungs.iter().filter(|it| it.limited).map(|it| it.name).collect();
    let names = some(&limited, NAMED_MAX);
    let main = most(&factor, metric, &rungs, (top, &alike), case.blocks.count());
    Some(match limited.len() {
        0 => main,
        some if 2 * some > rungs.len() => format!(
            "The top of this ladder is the load generator's and not the subject's: the generator was the \
             limit with {factor} at {names}. {main}"
        ),
        _ => format!(
            "{main} The generator was the limit with {factor} at {names}: what the subject can do there \
             is at least what was measured."
        ),
    })
}

/// The factor and its levels in their order; absent where loads are no levels of one number.
fn rungs<'a>(case: &Case<'a>, metric: &Metric) -> Option<(String, Vec<Rung<'a>>)> {
    let plan = case.blocks.plan;
    let factor = plan.loads.first()?.levels.keys().next()?;
    let mut rungs: Vec<Rung<'_>> = Vec::new();
    for load in &plan.loads {
        let name = load.levels.get(factor).filter(|_| load.levels.len() == 1)?;
        let level = level(name)?;
        let figures = case.blocks.figures(&plan.baseline, &load.name, &metric.name);
        let limit = case.cell(&plan.baseline, &load.name);
        let limited = limit.is_some_and(|cell| generator_limit(case.blocks, cell).is_some());
        let values: Vec<f64> = figures.values().copied().collect();
        let Some(median) = median(&values) else { continue };
        rungs.push(Rung { level, name, load: &load.name, figures, median, limited });
    }
    rungs.sort_by(|a, b| a.level.total_cmp(&b.level));
    let distinct = rungs.windows(2).all(|two| two[0].level < two[1].level);
    (rungs.len() > 1 && distinct).then(|| (factor.clone(), rungs))
}

/// Whether a level can be told from the one with the most: by pairs within blocks, with an interval so
/// wide that all levels together are held apart as surely as two arms are (Bonferroni), and by more than
/// either differs from itself.
fn is_apart(case: &Case<'_>, (top, other): (&Rung<'_>, &Rung<'_>), all: usize, draws: u32) -> bool {
    let Some(logs) = logs(&paired(&top.figures, &other.figures)) else { return false };
    let plan = case.blocks.plan;
    let confidence = 1.0 - (1.0 - plan.confidence) / (all - 1).max(1) as f64;
    let wide = Resampling { confidence, ..resampling(plan, draws) };
    let Some((low, high)) = interval(&logs, wide) else { return false };
    let noises = case
        .comparisons
        .iter()
        .filter(|one| one.noise && one.primary && (one.load == top.load || one.load == other.load));
    let noise = noises.filter_map(|one| one.ratio).map(|ratio| ratio.ln().abs());
    (low > 0.0 || high < 0.0) && mean(&logs).unwrap_or(0.0).abs() > noise.fold(0.0, f64::max)
}

/// Where the most is, how much of it is there before, and what is left at the end.
fn most(
    factor: &str,
    metric: &Metric,
    rungs: &[Rung<'_>],
    (top, alike): (usize, &[bool]),
    blocks: usize,
) -> String {
    let best: Vec<&Rung<'_>> = rungs.iter().zip(alike).filter(|it| *it.1).map(|it| it.0).collect();
    let first = alike.iter().position(|is| *is).unwrap_or(top);
    let last = alike.iter().rposition(|is| *is).unwrap_or(top);
    let names: Vec<&str> = best.iter().map(|rung| rung.name).collect();
    let at = match names.as_slice() {
        [only] => (*only).to_owned(),
        [low, .., high] if last - first + 1 == names.len() => format!("{low} to {high}"),
        _ => some(&names, NAMED_MAX),
    };
    let per_s = |rung: &Rung<'_>| value(rung.median, &metric.unit);
    let least = best.iter().min_by(|a, b| a.median.total_cmp(&b.median)).map(|rung| per_s(rung));
    let most = per_s(&rungs[top]);
    let measured = match least {
        Some(least) if least != most => format!("{least} to {most}"),
        _ => most.clone(),
    };
    let by_generator = best.iter().any(|rung| rung.limited);
    let at_least =
        if by_generator { format!("At least {most}: most ") } else { "Most ".to_owned() };
    let were = if rungs.iter().any(|rung| rung.limited) { " were measured" } else { "" };
    let mut text = format!("{at_least}{}{were} with {factor} at {at} ({measured})", metric.title);
    if best.len() > 1 {
        text.push_str(&format!(", which cannot be told apart by {}", count(blocks, "block")));
    }
    let share = |rung: &Rung<'_>| format!("{:.0} %", rung.median / rungs[top].median * 100.0);
    let enough = rungs[..first].iter().find(|rung| rung.median >= NEARLY * rungs[top].median);
    if let Some(enough) = enough {
        text.push_str(&format!("; {} of that with {} already", share(enough), enough.name));
    }
    if let Some(end) = rungs[last + 1..].last() {
        text.push_str(&format!("; {} of it with {}", share(end), end.name));
    }
    text.push('.');
    text
}

#[cfg(test)]
mod tests {
    use record::experiment::{Arm, Cell, LoadPlan, Plan, TrialLine};
    use record::trial::Place;

    use super::*;
    use crate::judge::blocks::Blocks;
    use crate::judge::{Extras, compare};

    const DRAWS: u32 = 500;

    /// Levels with what is measured with them, and whether the generator was the limit there.
    fn told(levels: &[(&str, f64, bool)], blocks: u32, wobble: f64) -> Option<String> {
        let metric = Metric {
            name: "responses_per_s".to_owned(),
            title: "responses per second".to_owned(),
            unit: "1/s".to_owned(),
            ..Metric::default()
        };
        let load = |name: &str| LoadPlan {
            name: name.to_owned(),
            levels: [("threads".to_owned(), name.to_owned())].into(),
            ..LoadPlan::default()
        };
        let arm = |name: &str, again: Option<&str>| Arm {
            name: name.to_owned(),
            again: again.map(str::to_owned),
            ..Arm::default()
        };
        let plan = Plan {
            baseline: "a".to_owned(),
            arms: vec![arm("a", None), arm("a-again", Some("a"))],
            loads: levels.iter().map(|(name, ..)| load(name)).collect(),
            metrics: vec![metric],
            confidence: 0.95,
            seed: 7,
            ..Plan::default()
        };
        let mut lines = Vec::new();
        for block in 1..=blocks {
            for (load, value, limited) in levels {
                for arm in ["a", "a-again"] {
                    let number = lines.len() as u32;
                    let off = fastrand::Rng::with_seed(u64::from(number)).f64() - 0.5;
                    let measured = value * (1.0 + wobble * off);
                    lines.push(TrialLine {
                        place: Place {
                            number,
                            block,
                            attempt: 1,
                            arm: arm.to_owned(),
                            load: (*load).to_owned(),
                            ..Place::default()
                        },
                        metrics: [("responses_per_s".to_owned(), measured)].into(),
                        verdict: limited.then(|| "client_bound".to_owned()),
                        ..TrialLine::default()
                    });
                }
            }
        }
        let blocks = Blocks::of(&plan, &lines);
        let cells: Vec<Cell> = crate::judge::cells::cells(&blocks, DRAWS);
        let comparisons = compare::compare(&blocks, &cells, DRAWS);
        let extras = Extras::default();
        let case =
            Case { blocks: &blocks, cells: &cells, comparisons: &comparisons, extras: &extras };
        ladder(&case, DRAWS)
    }

    #[test]
    fn the_most_is_said_with_what_is_before_and_behind_it() {
        let levels =
            [("1", 1e3, false), ("2", 1.93e3, false), ("4", 2e3, false), ("8", 1.5e3, false)];
        assert_eq!(
            told(&levels, 8, 0.002).unwrap(),
            "Most responses per second with threads at 4 (2.00k/s); 97 % of that with 2 already; 75 % of \
             it with 8."
        );
        assert_eq!(
            told(&levels[..2], 8, 0.002).unwrap(),
            "Most responses per second with threads at 2 (1.93k/s)."
        );
        assert_eq!(told(&levels, 0, 0.0), None);
    }

    #[test]
    fn levels_that_cannot_be_told_apart_are_a_range() {
        let levels =
            [("1", 1e3, false), ("2", 1.98e3, false), ("4", 2e3, false), ("8", 1.5e3, false)];
        let text = told(&levels, 8, 0.15).unwrap();
        assert!(text.starts_with("Most responses per second with threads at 2 to 4 ("), "{text}");
        assert!(text.contains("which cannot be told apart by 8 blocks; "), "{text}");
        assert!(text.ends_with(" of it with 8."), "{text}");
        // With few blocks nothing can be.
        let text = told(&levels, 3, 0.002).unwrap();
        assert!(
            text.contains("at 1 to 8 (1.00k/s to 2.00k/s), which cannot be told apart by 3"),
            "{text}"
        );
    }

    #[test]
    fn what_the_generator_limits_is_at_least_that() {
        let text =
            told(&[("1", 1e3, false), ("2", 2e3, false), ("4", 1.5e3, true)], 8, 0.002).unwrap();
        assert!(
            text.starts_with("Most responses per second were measured with threads at 2 ("),
            "{text}"
        );
        assert!(
            text.contains("limit with threads at 4: what the subject can do there is at least")
        );
        let text =
            told(&[("1", 1e3, false), ("2", 2e3, true), ("4", 1.5e3, true)], 8, 0.002).unwrap();
        assert!(
            text.starts_with(
                "The top of this ladder is the load generator's and not the subject's: the generator was \
                 the limit with threads at 2 and 4. At least 2.00k/s: most responses per second were \
                 measured with threads at 2"
            ),
            "{text}"
        );
    }

    #[test]
    fn loads_that_are_no_numbers_are_no_ladder() {
        assert_eq!(told(&[("few", 1e3, false), ("many", 2e3, false)], 8, 0.002), None);
        assert_eq!((level("10k"), level("0.25"), level("many")), (Some(1e4), Some(0.25), None));
    }
}
