//! Warnings about what the figures themselves can carry.

use std::collections::BTreeMap;

use record::experiment::{Cell, Comparison, Metric, TrialLine};

use super::{Case, Found, NAMED_MAX, together};
use crate::judge::compare::logs;
use crate::judge::said::some;
use crate::judge::words::{list, noun, range as interval};
use crate::statistics::{OUTLIER_Z, mean, median, modified_z};
use crate::words::{count, percent, range};

/// How far shares of errors may be apart.
const ERRORS_APART: f64 = 0.001;
/// How far rate times latency may be from what was in flight.
const LITTLE_ERROR: f64 = 0.05;
/// The metrics of Little's law.
const RATE: &str = "responses_per_s";
const MEAN_LATENCY: &str = "mean_ns";
const LONGEST_LATENCY: &str = "max_ns";
const ERRORS: &str = "error_share";

pub(super) fn noise_floor(case: &Case<'_>) -> Vec<Found> {
    let (mut apart, mut wide) = (Vec::new(), Vec::new());
    let noises = case.comparisons.iter().filter(|one| one.noise && one.primary);
    for noise in noises {
        let (Some(ratio), Some((low, high))) = (noise.ratio, noise.interval) else { continue };
        let alpha = 1.0 - case.blocks.plan.confidence;
        let sure = noise.p_adjusted.is_some_and(|p| p < alpha);
        let size = percent((ratio - 1.0).abs());
        if (low > 1.0 || high < 1.0) && sure {
            let text = format!(
                "{} differs from itself by {size}{} ({})",
                noise.baseline,
                case.under(&noise.load),
                interval((low, high))
            );
            apart.push((Some(noise.arm.clone()), text));
        }
        let half_width = (high / low).ln() / 2.0;
        let is_smaller = |one: &&Comparison| {
            let size = one.ratio.map_or(f64::INFINITY, |ratio| ratio.ln().abs());
            is_effect(one) && one.load == noise.load && size < half_width
        };
        let smaller: Vec<&str> =
            case.comparisons.iter().filter(is_smaller).map(|one| one.arm.as_str()).collect();
        if !smaller.is_empty() {
            let text = format!(
                "how far {} is from itself is only known to within {}{}, which is more than what was \
                 found of {}",
                noise.baseline,
                percent(half_width.exp_m1()),
                case.under(&noise.load),
                some(&smaller, NAMED_MAX)
            );
            wide.push((Some(noise.arm.clone()), text));
        }
    }
    let mut found = together(
        apart,
        "; ",
        ", by more than chance: something that is not the arms makes a difference here. Effects that are no \
         larger are left open.",
    );
    found.extend(together(wide, "; ", ": more blocks would tell whether that is noise."));
    found
}

fn is_effect(comparison: &Comparison) -> bool {
    use record::experiment::Outcome::{Faster, Slower};
    comparison.primary && !comparison.noise && matches!(comparison.outcome, Faster | Slower)
}

/// The mean share of failed requests of an arm under a load, where it is known.
fn error_share(case: &Case<'_>, arm: &str, load: &str) -> Option<f64> {
    let share =
        |trial: &TrialLine| trial.metrics.get(ERRORS).copied().or(trial.covariates.error_share);
    mean(&case.blocks.cell(arm, load).filter_map(share).collect::<Vec<f64>>())
}

pub(super) fn errors(case: &Case<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for load in case.loads() {
        let Some(baseline) = error_share(case, case.baseline(), load) else { continue };
        for arm in case.blocks.arms() {
            let Some(share) = error_share(case, &arm.name, load) else { continue };
            if (share - baseline).abs() < ERRORS_APART {
                continue;
            }
            let text = format!(
                "{} of the requests of {} failed{}, and {} of those of {}",
                percent(share),
                arm.name,
                case.under(load),
                percent(baseline),
                case.baseline()
            );
            found.push((Some(arm.name.clone()), text));
        }
    }
    together(
        found,
        "; ",
        ": failing is often cheaper than answering, so their rates and latencies are not of the same work.",
    )
}

/// Little's law, where it has to hold: with a rate of its own, a load's latencies count from when a request
/// was due, and its requests are in flight from when they were sent. What was in flight when the trial began
/// counts with all of its latency, so that the longest one of a short trial says how far the two may be apart.
pub(super) fn units(case: &Case<'_>) -> Vec<Found> {
    let length_ns = case.blocks.plan.duration_s * 1e9;
    let audit = |trial: &TrialLine| {
        let figure = |name: &str| trial.metrics.get(name).copied();
        let in_flight = case.extras.in_flight.get(&trial.place.number).copied();
        let in_flight = in_flight.filter(|in_flight| *in_flight > 0.0)?;
        let ratio = figure(RATE)? * figure(MEAN_LATENCY)? / 1e9 / in_flight;
        let apart = LITTLE_ERROR + figure(LONGEST_LATENCY).unwrap_or(0.0) / length_ns;
        Some((ratio, apart))
    };
    let mut found = Vec::new();
    let is_closed = |cell: &&Cell| case.extras.closed_loads.contains(&cell.load);
    for cell in case.cells.iter().filter(is_closed) {
        let trials = case.blocks.cell(&cell.arm, &cell.load);
        let (ratios, apart): (Vec<f64>, Vec<f64>) = trials.filter_map(audit).unzip();
        let (Some(ratio), Some(apart)) = (median(&ratios), median(&apart)) else { continue };
        if (ratio - 1.0).abs() <= apart {
            continue;
        }
        let text = format!(
            "{}{}: rate times mean latency is {} of what was in flight",
            cell.arm,
            case.under(&cell.load),
            percent(ratio)
        );
        found.push((Some(cell.arm.clone()), text));
    }
    together(
        found,
        "; ",
        ", and by Little's law should be 100 %. A figure or its unit is wrong; a factor near 1,000 is ms taken \
         for us.",
    )
}

pub(super) fn unsteady(case: &Case<'_>) -> Vec<Found> {
    let cells = case.cells.iter().filter(|cell| cell.unsteady > 0);
    let found = cells.map(|cell| {
        let of_all = count(cell.trials as usize, "trial");
        let under = case.under(&cell.load);
        (Some(cell.arm.clone()), format!("{} of {of_all} of {}{under}", cell.unsteady, cell.arm))
    });
    together(
        found.collect(),
        ", ",
        " never became steady: what they measured depends on how long they ran. A longer warm-up or longer \
         trials would tell.",
    )
}

pub(super) fn closed_loop_latency(case: &Case<'_>) -> Vec<Found> {
    let plan = case.blocks.plan;
    let latencies: Vec<String> =
        plan.metrics.iter().filter(|metric| metric.unit == "ns").map(noun).collect();
    let closed: Vec<&str> =
        case.loads().filter(|load| case.extras.closed_loads.contains(*load)).collect();
    if latencies.is_empty() || closed.is_empty() {
        return Vec::new();
    }
    let loads = if closed.len() == plan.loads.len() {
        String::new()
    } else {
        format!(" under {}", some(&closed, NAMED_MAX))
    };
    let text = format!(
        "{}{loads}: the load has no rate to keep to, each connection asks again as soon as it is \
         answered. Latency then is the number of connections divided by the rate: a queue, and no \
         user's wait. A load with a rate below the limit measures that.",
        list(&latencies)
    );
    vec![(None, text)]
}

/// The quantile that a metric's name says: 0.999 of `p999_ns`.
fn quantile_of(name: &str) -> Option<f64> {
    let digits = name.strip_prefix('p')?.strip_suffix("_ns")?;
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    plain.then(|| format!("0.{digits}").parse().ok()).flatten()
}

/// Of each percentile, the arms under loads in which it rests on too few requests.
pub(super) fn few_requests(case: &Case<'_>) -> Vec<Found> {
    let quantiles = case.blocks.plan.metrics.iter();
    let quantiles = quantiles.filter_map(|metric| Some((metric, quantile_of(&metric.name)?)));
    quantiles.flat_map(|(metric, q)| few_requests_for(case, metric, q)).collect()
}

fn few_requests_for(case: &Case<'_>, metric: &Metric, q: f64) -> Vec<Found> {
    let needed = (100.0 / (1.0 - q)).round();
    let (mut cells, mut requests, mut without) = (Vec::new(), Vec::new(), 0);
    for cell in case.cells.iter().filter(|cell| cell.trials > 0) {
        let Some(rate) = cell.metrics.get(RATE) else { continue };
        let of_cell = rate.median * case.blocks.plan.duration_s;
        let key = (cell.arm.clone(), cell.load.clone(), metric.name.clone());
        if of_cell >= needed || case.extras.untold.contains_key(&key) {
            continue;
        }
        requests.push(of_cell.round() as u32);
        without += usize::from(!cell.metrics.contains_key(&metric.name));
        cells.push((Some(cell.arm.clone()), format!("{}{}", cell.arm, case.under(&cell.load))));
    }
    let (Some(least), Some(most)) = (requests.iter().min(), requests.iter().max()) else {
        return Vec::new();
    };
    let missing = match without {
        0 => String::new(),
        all if all == cells.len() => "; that is too few to tell it at all".to_owned(),
        some => format!("; in {some} of {} that is too few to tell it at all", cells.len()),
    };
    let follows = format!("{missing}. Longer trials would give it.");
    let about = range((*least, *most));
    let whole = |(arm, cells)| {
        let noun = noun(metric);
        let text = format!(
            "{noun} takes {needed:.0} requests a trial, and there are about {about} in {cells}"
        );
        (arm, text)
    };
    together(cells, ", ", &follows).into_iter().map(whole).collect()
}

pub(super) fn untold(case: &Case<'_>) -> Vec<Found> {
    let mut cells: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for ((arm, load, metric), why) in &case.extras.untold {
        let named = format!("{arm}{}", case.under(load));
        cells.entry((metric, why)).or_default().push(named);
    }
    let metrics = &case.blocks.plan.metrics;
    let found = cells.into_iter().filter_map(|((metric, why), cells)| {
        let metric = metrics.iter().find(|one| one.name == metric)?;
        Some((
            None,
            format!("{} of {} has no figure: {why}.", noun(metric), some(&cells, NAMED_MAX)),
        ))
    });
    found.collect()
}

pub(super) fn outliers(case: &Case<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for comparison in case.comparisons.iter().filter(|one| one.primary) {
        let scores = logs(&comparison.pairs).and_then(|logs| modified_z(&logs));
        let scores = scores.unwrap_or_default();
        let far = comparison.pairs.iter().zip(&scores).filter(|(_, z)| z.abs() > OUTLIER_Z);
        let far: Vec<String> = far.map(|(pair, _)| pair.block.to_string()).collect();
        if far.is_empty() {
            continue;
        }
        let text = format!(
            "{}{} is far from the rest in {} {}",
            comparison.arm,
            case.under(&comparison.load),
            if far.len() == 1 { "block" } else { "blocks" },
            some(&far, NAMED_MAX)
        );
        found.push((Some(comparison.arm.clone()), text));
    }
    together(
        found,
        "; ",
        ". It stays in: what disturbed it was not seen, and leaving out what does not fit makes every \
         difference certain. It widens the interval.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_read_off_its_name() {
        assert_eq!(quantile_of("p50_ns"), Some(0.5));
        assert_eq!(quantile_of("p99_ns"), Some(0.99));
        assert_eq!(quantile_of("p999_ns"), Some(0.999));
        assert_eq!(quantile_of("p_ns"), None);
        assert_eq!(quantile_of("responses_per_s"), None);
    }
}
