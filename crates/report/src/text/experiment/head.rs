//! First line of an experiment: rate and percentiles of each arm, the baseline first.

use experiment::format::{count, value};
use experiment::judge::arm_title;
use record::experiment::{Arm, Experiment, ONLY_LOAD};
use stats::median;

/// Maximum number of arms in the line; the tables have all.
const ARMS_MAX: usize = 3;

/// Medians of an arm under a load. A percentile of too few requests is absent.
struct ArmFigures {
    rate_per_s: f64,
    percentiles_ns: [Option<f64>; 2],
}

/// Percentiles of the line, with their metrics.
const PERCENTILES: [(&str, &str); 2] = [("p50", "p50_ns"), ("p99", "p99_ns")];

/// Formats the median rate, p50 and p99 of each arm: "a: 1.20 k/s, p50 4.10 ms, p99 9.80 ms; b: …". With several
/// loads it is that with the highest rate of the baseline.
pub(crate) fn experiment_headline(experiment: &Experiment) -> String {
    let plan = &experiment.plan;
    let rate =
        |load: &str| figures(experiment, &plan.baseline, load).map_or(0.0, |figures| figures.rate_per_s);
    let load = plan.loads.iter().max_by(|left, right| rate(&left.name).total_cmp(&rate(&right.name)));
    let Some(load) = load.map(|load| load.name.as_str()) else { return "no load".to_owned() };
    let own = plan.arms.iter().filter(|arm| arm.repeats.is_none());
    let (baseline, others): (Vec<&Arm>, Vec<&Arm>) = own.partition(|arm| arm.name == plan.baseline);
    let measured = baseline.into_iter().chain(others);
    let measured: Vec<(&Arm, ArmFigures)> =
        measured.filter_map(|arm| Some((arm, figures(experiment, &arm.name, load)?))).collect();
    if measured.is_empty() {
        return "no trial with a rate counts".to_owned();
    }
    let line = |(arm, figures): &(&Arm, ArmFigures)| {
        let mut parts = vec![value(figures.rate_per_s, "1/s")];
        let known = PERCENTILES.iter().zip(figures.percentiles_ns);
        parts.extend(known.filter_map(|((name, _), ns)| Some(format!("{name} {}", value(ns?, "ns")))));
        format!("{}: {}", arm_title(plan, &arm.name), parts.join(", "))
    };
    let mut text = measured.iter().take(ARMS_MAX).map(line).collect::<Vec<_>>().join("; ");
    if measured.len() > ARMS_MAX {
        text += &format!("; and {}", count(measured.len() - ARMS_MAX, "more arm"));
    }
    if load != ONLY_LOAD {
        text += &format!("; under {load}");
    }
    text
}

/// Returns the medians of an arm under a load, over the trials that count.
fn figures(experiment: &Experiment, arm: &str, load: &str) -> Option<ArmFigures> {
    let cell = experiment.cells.iter().find(|cell| cell.arm == arm && cell.load == load);
    let trials_median = |name: &str| {
        let position = |trial: &&record::experiment::TrialSummary| {
            trial.is_counted() && trial.position.arm == arm && trial.position.load == load
        };
        let values =
            experiment.trials.iter().filter(position).filter_map(|trial| trial.metrics.get(name).copied());
        median(&values.collect::<Vec<f64>>())
    };
    let figure = |name: &str| {
        let cell_median = cell.and_then(|cell| cell.metrics.get(name)).map(|values| values.median);
        cell_median.or_else(|| trials_median(name)).filter(|value| value.is_finite())
    };
    let percentiles_ns = PERCENTILES.map(|(_, metric)| figure(metric));
    Some(ArmFigures { rate_per_s: figure("responses_per_s")?, percentiles_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{NoRecords, one_load, synthetic_experiment};
    use crate::text::experiment::format_experiment;

    #[test]
    fn rate_and_percentiles_come_first_and_then_the_answer_and_the_tables() {
        let (experiment, _) = one_load();
        let head = experiment_headline(&experiment);
        assert!(head.starts_with("glibc's malloc: ") && head.contains("; jemalloc: "), "{head}");
        assert_eq!((head.matches("/s, p50 ").count(), head.matches(", p99 ").count()), (2, 2), "{head}");
        assert!(!head.contains("under"), "{head}");
        let text = format_experiment(&experiment, &NoRecords);
        let places = [&head[..30], "\n\nwhat  ", "\nwhy  ", "\nnext  ", "\nallocator: ", "P(better)"];
        let places = places.map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")));
        assert!(places.is_sorted() && places[0] == 0, "{places:?}: {text}");
        let (mut several, _) = synthetic_experiment();
        assert!(experiment_headline(&several).contains("; under c"), "{}", experiment_headline(&several));
        // A percentile of too few requests has no figure; the rate has.
        let (mut short, _) = one_load();
        for cell in &mut short.cells {
            cell.metrics.remove("p99_ns");
        }
        for trial in &mut short.trials {
            trial.metrics.remove("p99_ns");
        }
        let head = experiment_headline(&short);
        assert_eq!((head.matches("/s, p50 ").count(), head.matches("p99").count()), (2, 0), "{head}");
        several.cells.clear();
        several.trials.clear();
        assert_eq!(experiment_headline(&several), "no trial with a rate counts");
    }
}
