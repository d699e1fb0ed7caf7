//! Differences as people say them: `2.4 % to 3.9 %`, `uses 3.1 % less processor time per response than`.
//!
//! Not for single numbers, which are [`crate::words`]', nor for whole sentences: those are [`super::said`]'s
//! and [`super::summary`]'s.

use record::experiment::Metric;

use crate::words::{is_same, percent};

/// How a difference in a metric is said; `{}` stands for how large it is.
struct Phrase {
    /// The metric's name.
    metric: &'static str,
    /// Where the arm has more of it.
    more: &'static str,
    /// Where it has less.
    less: &'static str,
    /// What it is a difference in.
    noun: &'static str,
}

/// The metrics that have words of their own. All others are said with their title.
const PHRASES: &[Phrase] = &[
    Phrase {
        metric: "responses_per_s",
        more: "is {} faster than",
        less: "is {} slower than",
        noun: "good responses per second",
    },
    Phrase {
        metric: "subject_us_per_response",
        more: "uses {} more processor time per response than",
        less: "uses {} less processor time per response than",
        noun: "processor time per response",
    },
    Phrase {
        metric: "mean_ns",
        more: "has a mean latency {} higher than",
        less: "has a mean latency {} lower than",
        noun: "mean latency",
    },
    Phrase {
        metric: "p50_ns",
        more: "has a median latency {} higher than",
        less: "has a median latency {} lower than",
        noun: "median latency",
    },
    Phrase {
        metric: "subject_resident_bytes",
        more: "takes {} more memory than",
        less: "takes {} less memory than",
        noun: "resident memory",
    },
    Phrase {
        metric: "p90_ns",
        more: "has a p90 latency {} higher than",
        less: "has a p90 latency {} lower than",
        noun: "p90 latency",
    },
    Phrase {
        metric: "p99_ns",
        more: "has a p99 latency {} higher than",
        less: "has a p99 latency {} lower than",
        noun: "p99 latency",
    },
    Phrase {
        metric: "p999_ns",
        more: "has a p99.9 latency {} higher than",
        less: "has a p99.9 latency {} lower than",
        noun: "p99.9 latency",
    },
    Phrase {
        metric: "calls_per_response",
        more: "makes {} more calls per response than",
        less: "makes {} fewer calls per response than",
        noun: "calls per response",
    },
];

fn phrase(metric: &Metric) -> Option<&'static Phrase> {
    PHRASES.iter().find(|phrase| phrase.metric == metric.name)
}

/// What a metric is, within a sentence.
pub(super) fn noun(metric: &Metric) -> String {
    phrase(metric).map_or_else(|| title(metric), |phrase| phrase.noun.to_owned())
}

fn title(metric: &Metric) -> String {
    let title = if metric.title.is_empty() { &metric.name } else { &metric.title };
    title.clone()
}

/// The difference that a ratio is, with its verb: `uses 3.1 % less processor time per response than`.
pub(super) fn difference(metric: &Metric, ratio: f64) -> String {
    if is_same(ratio) {
        return format!("does not differ in {} from", noun(metric));
    }
    let size = percent((ratio - 1.0).abs());
    match (phrase(metric), ratio >= 1.0) {
        (Some(phrase), true) => phrase.more.replace("{}", &size),
        (Some(phrase), false) => phrase.less.replace("{}", &size),
        (None, more) => {
            format!("is {size} {} in {} than", if more { "higher" } else { "lower" }, title(metric))
        }
    }
}

/// The bounds of an interval of ratios, in the direction of the difference: `2.4 % to 3.9 %`; with both
/// directions where it holds 1: `0.4 % less to 1.2 % more`.
pub(super) fn range((low, high): (f64, f64)) -> String {
    let size = |ratio: f64| percent((ratio - 1.0).abs());
    if low >= 1.0 {
        format!("{} to {}", size(low), size(high))
    } else if high <= 1.0 {
        format!("{} to {}", size(high), size(low))
    } else {
        format!("{} less to {} more", size(low), size(high))
    }
}

/// How sure a p makes, for who never heard of one: in how many experiments without any difference chance
/// would show as much as this.
pub(super) fn sureness(p: f64) -> String {
    let times = (1.0 / p.max(1e-6)).floor();
    let power = 10_f64.powf(times.max(1.0).log10().floor());
    let rounded = grouped((times / power).floor() * power);
    format!("chance alone shows as much in fewer than 1 of {rounded} experiments")
}

/// A whole number with its thousands apart.
fn grouped(value: f64) -> String {
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
pub(super) fn list<T: AsRef<str>>(texts: &[T]) -> String {
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

    fn metric(name: &str) -> Metric {
        Metric { name: name.to_owned(), title: "resident memory".to_owned(), ..Metric::default() }
    }

    #[test]
    fn every_phrase_says_how_large_and_both_directions() {
        for row in PHRASES {
            assert!(row.more.contains("{}") && row.less.contains("{}"), "{}", row.metric);
            assert!(row.more != row.less && !row.noun.is_empty(), "{}", row.metric);
            assert!(row.more.ends_with(" than") && row.less.ends_with(" than"), "{}", row.metric);
        }
    }

    #[test]
    fn a_difference_is_said_in_the_words_of_its_metric() {
        assert_eq!(difference(&metric("responses_per_s"), 1.031), "is 3.1 % faster than");
        assert_eq!(
            difference(&metric("subject_us_per_response"), 0.969),
            "uses 3.1 % less processor time per response than"
        );
        assert_eq!(
            difference(&metric("responses_per_s"), 1.000_01),
            "does not differ in good responses per second from"
        );
        assert_eq!(difference(&metric("rss"), 2.5), "is 150 % higher in resident memory than");
    }

    #[test]
    fn an_interval_follows_the_difference() {
        assert_eq!(range((1.024, 1.039)), "2.4 % to 3.9 %");
        assert_eq!(range((0.961, 0.976)), "2.4 % to 3.9 %");
        assert_eq!(range((0.996, 1.012)), "0.4 % less to 1.2 % more");
    }

    #[test]
    fn how_sure_it_is_is_said_in_experiments() {
        assert_eq!(
            sureness(1.0 / 2048.0),
            "chance alone shows as much in fewer than 1 of 2,000 experiments"
        );
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
    }
}
