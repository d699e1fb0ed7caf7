//! Phrases for differences: `2.4 % to 3.9 %`, `uses 3.1 % less CPU time per response than`.
//!
//! Single numbers are in [`crate::format`], sentences in [`super::sentence`] and [`super::summary`].

use record::experiment::ExperimentMetric;

use crate::format::{is_same, is_wide, percent};

/// Phrases for a difference in a metric; `{}` is its size.
struct Phrase {
    metric: &'static str,
    arm_has_more: &'static str,
    arm_has_less: &'static str,
    /// Name of the quantity within a sentence.
    noun: &'static str,
}

/// Metrics with phrases of their own. All others use their title.
const PHRASES: &[Phrase] = &[
    Phrase {
        metric: "responses_per_s",
        arm_has_more: "is {} faster than",
        arm_has_less: "is {} slower than",
        noun: "good responses per second",
    },
    Phrase {
        metric: "subject_us_per_response",
        arm_has_more: "uses {} more CPU time per response than",
        arm_has_less: "uses {} less CPU time per response than",
        noun: "CPU time per response",
    },
    Phrase {
        metric: "mean_ns",
        arm_has_more: "has a mean latency {} higher than",
        arm_has_less: "has a mean latency {} lower than",
        noun: "mean latency",
    },
    Phrase {
        metric: "p50_ns",
        arm_has_more: "has a median latency {} higher than",
        arm_has_less: "has a median latency {} lower than",
        noun: "median latency",
    },
    Phrase {
        metric: "subject_resident_bytes",
        arm_has_more: "takes {} more memory than",
        arm_has_less: "takes {} less memory than",
        noun: "resident memory",
    },
    Phrase {
        metric: "p90_ns",
        arm_has_more: "has a p90 latency {} higher than",
        arm_has_less: "has a p90 latency {} lower than",
        noun: "p90 latency",
    },
    Phrase {
        metric: "p99_ns",
        arm_has_more: "has a p99 latency {} higher than",
        arm_has_less: "has a p99 latency {} lower than",
        noun: "p99 latency",
    },
    Phrase {
        metric: "p999_ns",
        arm_has_more: "has a p99.9 latency {} higher than",
        arm_has_less: "has a p99.9 latency {} lower than",
        noun: "p99.9 latency",
    },
    Phrase {
        metric: "calls_per_response",
        arm_has_more: "makes {} more calls per response than",
        arm_has_less: "makes {} fewer calls per response than",
        noun: "calls per response",
    },
];

fn find_phrase(metric: &ExperimentMetric) -> Option<&'static Phrase> {
    PHRASES.iter().find(|phrase| phrase.metric == metric.name)
}

/// Returns the name of a metric within a sentence.
pub(super) fn noun(metric: &ExperimentMetric) -> String {
    find_phrase(metric).map_or_else(|| title(metric), |phrase| phrase.noun.to_owned())
}

fn title(metric: &ExperimentMetric) -> String {
    let title = if metric.title.is_empty() { &metric.name } else { &metric.title };
    title.clone()
}

/// Returns a ratio as a phrase with a verb: `uses 3.1 % less CPU time per response than`.
pub(super) fn difference_phrase(metric: &ExperimentMetric, ratio: f64) -> String {
    if is_same(ratio) {
        return format!("does not differ in {} from", noun(metric));
    }
    let size = percent((ratio - 1.0).abs());
    match (find_phrase(metric), ratio >= 1.0) {
        (Some(phrase), true) => phrase.arm_has_more.replace("{}", &size),
        (Some(phrase), false) => phrase.arm_has_less.replace("{}", &size),
        (None, more) => {
            format!("is {size} {} in {} than", if more { "higher" } else { "lower" }, title(metric))
        }
    }
}

/// Returns the bounds of an interval of ratios, in the direction of the difference:
/// `2.4 % to 3.9 %`. An interval that contains 1 gets both directions: `0.4 % less to 1.2 % more`.
pub(super) fn interval_text((low, high): (f64, f64)) -> String {
    let size = |ratio: f64| percent((ratio - 1.0).abs());
    if is_wide((low, high)) {
        return match (low >= 1.0, high <= 1.0) {
            (true, _) => format!("at least {}", size(low)),
            (_, true) => format!("at least {}", size(high)),
            _ => "an amount that is not clear".to_owned(),
        };
    }
    if low >= 1.0 {
        format!("{} to {}", size(low), size(high))
    } else if high <= 1.0 {
        format!("{} to {}", size(high), size(low))
    } else {
        format!("{} less to {} more", size(low), size(high))
    }
}

/// Explains a p to a reader who does not know the term: the number of experiments without any
/// difference in which chance would show as much once.
pub(super) fn explain_p(p: f64) -> String {
    let times = (1.0 / p.max(1e-6)).floor();
    let power = 10_f64.powf(times.max(1.0).log10().floor());
    let rounded = with_thousands_separators((times / power).floor() * power);
    format!("chance alone shows as much in fewer than 1 of {rounded} experiments")
}

/// Formats a whole number with commas between thousands.
fn with_thousands_separators(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn join_list<T: AsRef<str>>(texts: &[T]) -> String {
    match texts {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [rest @ .., last] => {
            let rest: Vec<&str> = rest.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", rest.join(", "), last.as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str) -> ExperimentMetric {
        ExperimentMetric {
            name: name.to_owned(),
            title: "resident memory".to_owned(),
            ..ExperimentMetric::default()
        }
    }

    #[test]
    fn every_phrase_says_how_large_and_both_directions() {
        for phrase in PHRASES {
            assert!(
                phrase.arm_has_more.contains("{}") && phrase.arm_has_less.contains("{}"),
                "{}",
                phrase.metric
            );
            assert!(
                phrase.arm_has_more != phrase.arm_has_less && !phrase.noun.is_empty(),
                "{}",
                phrase.metric
            );
            assert!(
                phrase.arm_has_more.ends_with(" than") && phrase.arm_has_less.ends_with(" than"),
                "{}",
                phrase.metric
            );
        }
    }

    #[test]
    fn a_difference_is_phrased_for_its_metric() {
        let (rate, cost) = (metric("responses_per_s"), metric("subject_us_per_response"));
        let more = find_phrase(&rate).unwrap().arm_has_more.replace("{}", "3.1 %");
        assert_eq!(difference_phrase(&rate, 1.031), more);
        let less = find_phrase(&cost).unwrap().arm_has_less.replace("{}", "3.1 %");
        assert_eq!(difference_phrase(&cost, 0.969), less);
        let same = difference_phrase(&rate, 1.000_01);
        assert!(same.contains(&noun(&rate)) && !same.contains('%'), "{same}");
        // A metric without a phrase has its title.
        let other = difference_phrase(&metric("rss"), 2.5);
        assert!(other.contains("150 %") && other.contains("resident memory"), "{other}");
    }

    #[test]
    fn an_interval_follows_the_difference() {
        assert_eq!(interval_text((1.024, 1.039)), "2.4 % to 3.9 %");
        assert_eq!(interval_text((0.961, 0.976)), "2.4 % to 3.9 %");
        assert_eq!(interval_text((0.996, 1.012)), "0.4 % less to 1.2 % more");
        assert_eq!(interval_text((1.5, 3.2)), "at least 50.0 %");
        assert_eq!(interval_text((0.2, 0.6)), "at least 40.0 %");
        assert_eq!(interval_text((0.7, 1.9)), "an amount that is not clear");
    }

    #[test]
    fn p_is_explained_in_experiments() {
        assert!(explain_p(1.0 / 2048.0).contains("1 of 2,000 "));
        assert_eq!(join_list(&["a", "b", "c"]), "a, b and c");
    }
}
