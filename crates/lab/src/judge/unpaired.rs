//! Two sets of results that were not measured in turn: two stored runs, before and after.
//!
//! Not for an experiment's blocks: pairs see far more, and know nothing of the time between.

use record::experiment::{Better, Metric, Outcome};

use super::decide::{Numbers, Reason, decide, effect_log};
use super::words;
use crate::statistics::effect::{hodges_lehmann_shift, larger_share, welch_interval};
use crate::statistics::many::holm;
use crate::statistics::{median, rank_sum};
use crate::words::{bound, of_chance};

/// Fewest values of each set: with three p cannot be below 0.1.
const VALUES_MIN: usize = 4;

/// What two sets say that were not measured in turn. Ratios are b / a: a is what was before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unpaired {
    /// Median of the first set.
    pub a_median: Option<f64>,
    /// Median of the second.
    pub b_median: Option<f64>,
    /// The second to the first: Hodges and Lehmann's shift of the logarithms. Absent where a value is not
    /// above zero.
    pub ratio: Option<f64>,
    /// Its interval, Welch's for the logarithms; absent with fewer than four values in a set.
    pub interval: Option<(f64, f64)>,
    /// Two-sided, the Mann-Whitney U test.
    pub p: Option<f64>,
    /// The same after Holm's correction for how many sets were compared: what decides.
    pub p_adjusted: Option<f64>,
    /// Probability that a value of the second set is better than one of the first, ties count half.
    pub better_share: Option<f64>,
    /// What it says. It says so of the two sets, not of what made them differ.
    pub outcome: Outcome,
    /// In words.
    pub text: String,
}

/// Two sets of results in one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Set<'a> {
    /// What was before.
    pub a: Vec<f64>,
    /// What came after.
    pub b: Vec<f64>,
    /// What they are of.
    pub metric: &'a Metric,
    /// Whether it is the metric that decides.
    pub primary: bool,
}

/// Holds sets of results against each other. `effect` is the smallest share that matters (0.02),
/// `confidence` the interval's (0.95); values that are not finite are left out. As in an experiment the
/// metric that decides is a family of its own, and all others are another.
#[must_use]
pub fn unpaired(sets: &[Set<'_>], effect: f64, confidence: f64) -> Vec<Unpaired> {
    let mut found: Vec<Unpaired> = sets.iter().map(|set| measure(set, confidence)).collect();
    for primary in [true, false] {
        let mut family: Vec<&mut Unpaired> = found
            .iter_mut()
            .zip(sets)
            .filter(|(one, set)| set.primary == primary && one.p.is_some())
            .map(|(one, _)| one)
            .collect();
        let ps: Vec<f64> = family.iter().filter_map(|one| one.p).collect();
        for (one, p) in family.iter_mut().zip(holm(&ps)) {
            one.p_adjusted = Some(p);
        }
    }
    for (one, set) in found.iter_mut().zip(sets) {
        conclude(one, set, effect, confidence);
    }
    found
}

fn measure(set: &Set<'_>, confidence: f64) -> Unpaired {
    let finite = |values: &[f64]| -> Vec<f64> {
        values.iter().copied().filter(|value| value.is_finite()).collect()
    };
    let (a, b) = (finite(&set.a), finite(&set.b));
    let mut found = Unpaired {
        a_median: median(&a),
        b_median: median(&b),
        p: rank_sum::p(&b, &a),
        ..Unpaired::default()
    };
    found.better_share = match set.metric.better {
        Better::Higher => larger_share(&b, &a),
        Better::Lower => larger_share(&a, &b),
    };
    let log = |values: &[f64]| -> Option<Vec<f64>> {
        let positive = !values.is_empty() && values.iter().all(|value| *value > 0.0);
        positive.then(|| values.iter().map(|value| value.ln()).collect())
    };
    let (Some(log_a), Some(log_b)) = (log(&a), log(&b)) else {
        return found;
    };
    let shift = hodges_lehmann_shift(&log_b, &log_a).unwrap_or(0.0);
    found.ratio = Some(shift.exp());
    let few = a.len().min(b.len()) < VALUES_MIN;
    let interval = if few { None } else { interval(&log_a, &log_b, shift, confidence) };
    found.interval = interval.map(|(low, high)| (low.exp(), high.exp()));
    found
}

/// What it says.
fn conclude(found: &mut Unpaired, set: &Set<'_>, effect: f64, confidence: f64) {
    let Some(ratio) = found.ratio else {
        found.text = "There is no ratio: a set is empty, or a value is not above zero.".to_owned();
        return;
    };
    let numbers = Numbers {
        // The rule's own bound is for pairs; that of sets is asked where there is an interval.
        pairs: usize::MAX,
        ratio: ratio.ln(),
        interval: found.interval.map(|(low, high)| (low.ln(), high.ln())),
        p_adjusted: found.p_adjusted,
        noise: None,
        effect: effect_log(effect),
        alpha: 1.0 - confidence,
    };
    let (outcome, reason) = decide(&numbers, set.metric.better);
    found.outcome = outcome;
    found.text = text(found, reason, set.metric, effect, (set.a.len(), set.b.len()));
}

/// Welch's interval, with the shift in it: that is a median, and may lie beside the means' difference.
fn interval(a: &[f64], b: &[f64], shift: f64, confidence: f64) -> Option<(f64, f64)> {
    let (low, high) = welch_interval(b, a, confidence).unwrap_or((shift, shift));
    Some((low.min(shift), high.max(shift)))
}

fn text(
    found: &Unpaired,
    reason: Reason,
    metric: &Metric,
    effect: f64,
    (of_a, of_b): (usize, usize),
) -> String {
    let ratio = found.ratio.unwrap_or(1.0);
    let differs = format!("the second {} the first", words::difference(metric, ratio));
    let range = found.interval.map(words::range).unwrap_or_default();
    let p = found.p_adjusted.map(of_chance).unwrap_or_default();
    let basis = format!("{range}, {of_a} against {of_b} results, {p}");
    let matters = bound(effect);
    match reason {
        Reason::TooFew => format!(
            "Nothing can be said from {of_a} against {of_b} results: it takes {VALUES_MIN} of each. So \
             far {differs}."
        ),
        Reason::NoneThatMatters | Reason::LessThanMatters => format!(
            "The two are equivalent in {}: the difference is smaller than the {matters} that matters \
             ({basis}).",
            words::noun(metric)
        ),
        Reason::AllOfItMatters | Reason::MayMatter => {
            format!("It was found that {differs} ({basis}).")
        }
        Reason::NotTested | Reason::WithinNoise | Reason::Wide => {
            format!("Nothing can be said: {differs}, but that may be chance ({basis}).")
        }
    }
}
