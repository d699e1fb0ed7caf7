//! Figures and differences as people say them: `3.1 %`, `2.4 % to 3.9 %`, `uses 3.1 % less processor time
//! per response than`.
//!
//! Not for whole sentences: those are [`super::said`]'s and [`super::summary`]'s.

use record::experiment::Metric;
use record::units::{format_bytes, format_count, format_duration_ns};

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
        noun: "responses per second",
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

/// A share with as many digits as it takes: `0.03 %`, `3.1 %`, `123 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size < 0.095 => format!("{percent:.2} %"),
        size if size < 99.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// A bound as it was written: `2 %`, `0.5 %`.
pub(super) fn bound(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A value with its unit, as in a metric's [`Metric::unit`].
pub(super) fn value(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value >= 0.0 => format_duration_ns(value.round() as u64),
        "us" if value >= 0.0 => format_duration_ns((value * 1e3).round() as u64),
        "bytes" => format_bytes(value),
        "share" => percent(value),
        "1/s" => format!("{}/s", format_count(value)),
        "cpus" => format!("{value:.2} processors"),
        _ => format_count(value),
    }
}

/// A p: `0.0005`, `0.03`, `0.2`; below a ten-thousandth no more digits than anybody reads.
pub(super) fn p(p: f64) -> String {
    match p {
        p if p < 0.000_1 => "below 0.0001".to_owned(),
        p if p < 0.001 => format!("{p:.4}"),
        p if p < 0.1 => format!("{p:.3}"),
        _ => format!("{p:.2}"),
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

/// `1 block`, `12 blocks`.
pub(super) fn count(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
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
        assert_eq!(difference(&metric("rss"), 2.5), "is 150 % higher in resident memory than");
    }

    #[test]
    fn an_interval_follows_the_difference() {
        assert_eq!(range((1.024, 1.039)), "2.4 % to 3.9 %");
        assert_eq!(range((0.961, 0.976)), "2.4 % to 3.9 %");
        assert_eq!(range((0.996, 1.012)), "0.4 % less to 1.2 % more");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!((percent(0.0), percent(0.0003)), ("0 %".to_owned(), "0.03 %".to_owned()));
        assert_eq!(bound(0.02), "2 %");
        assert_eq!(bound(0.005), "0.5 %");
        assert_eq!(p(0.00049), "0.0005");
        assert_eq!(p(1e-9), "below 0.0001");
        assert_eq!(
            sureness(1.0 / 2048.0),
            "chance alone shows as much in fewer than 1 of 2,000 experiments"
        );
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
        assert_eq!(count(1, "block"), "1 block");
        assert_eq!(value(1_230_000.0, "ns"), format_duration_ns(1_230_000));
    }
}
