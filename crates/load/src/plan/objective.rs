//! Objectives: `p99<5ms,errors<0.1%,rate>=10k`. Parsed into values, and evaluated on figures.

use record::histogram::Latencies;
use record::units::{DurationUnit, parse_duration_ns, parse_rate, parse_share};
use serde::{Serialize, Serializer};

/// What an objective is about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Subject {
    /// A percentile (0 to 100) of the response latency, last byte. A request without a good response
    /// counts as infinitely slow, here and in the mean and the maximum.
    Percentile(f64),
    /// Its mean.
    Mean,
    /// Its maximum.
    Max,
    /// The share of requests that failed or had a bad response.
    Errors,
    /// Good responses per second.
    Rate,
}

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

/// One objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    text: String,
    subject: Subject,
    bound: Bound,
    limit: f64,
}

/// The figures that objectives are held against.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Response latency of good responses, last byte.
    pub latencies: &'a Latencies,
    /// Requests of the same window without a good response.
    pub not_good: u64,
    /// Share of requests without a good response.
    pub error_share: f64,
    /// Good responses per second.
    pub goodput_per_s: f64,
}

impl Outcome<'_> {
    /// The latency that a share of `quantile` of all requests does not exceed, in ns; infinite where that
    /// share takes in requests without a good response.
    fn percentile_ns(&self, quantile: f64) -> f64 {
        let good = self.latencies.count();
        if self.not_good == 0 || good == 0 {
            let none = if self.not_good > 0 { f64::INFINITY } else { 0.0 };
            return if good == 0 { none } else { self.latencies.at(quantile) as f64 };
        }
        // The least rank that covers the share; a product such as 0.999 × 1000 may come out a hair higher.
        let rank = (quantile * (good + self.not_good) as f64 - 1e-6).ceil().max(1.0);
        // Half a rank lower, so that no rounding takes it to the next.
        let within = rank <= good as f64;
        if within { self.latencies.at((rank - 0.5) / good as f64) as f64 } else { f64::INFINITY }
    }
}

impl Objective {
    /// The limit of an objective of errors: the share that may have no good response.
    #[must_use]
    pub fn error_share_limit(&self) -> Option<f64> {
        let upper = matches!(self.bound, Bound::Below | Bound::AtMost);
        (self.subject == Subject::Errors && upper).then_some(self.limit)
    }

    /// Reads a list of objectives; returns what could be read and what is wrong with the rest.
    #[must_use]
    pub fn parse_list(text: &str) -> (Vec<Self>, Vec<String>) {
        let mut problems = Vec::new();
        let parsed = text
            .split(',')
            .map(str::trim)
            .filter_map(|part| Self::parse(part).map_err(|problem| problems.push(problem)).ok());
        (parsed.collect(), problems)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let form = "write p99<5ms (any percentile: p50, p99.9), mean<2ms, max<1s, errors<0.1% or \
                    rate>=10k";
        let at = text.find(['<', '>']).ok_or_else(|| format!("'{text}': {form}"))?;
        let (name, rest) = text.split_at(at);
        let (bound, value) = match rest.as_bytes() {
            [b'<', b'=', ..] => (Bound::AtMost, &rest[2..]),
            [b'>', b'=', ..] => (Bound::AtLeast, &rest[2..]),
            [b'<', ..] => (Bound::Below, &rest[1..]),
            _ => (Bound::Above, &rest[1..]),
        };
        let subject = match name.trim() {
            "errors" => Subject::Errors,
            "rate" => Subject::Rate,
            "mean" => Subject::Mean,
            "max" => Subject::Max,
            name => {
                percentile(name).ok_or_else(|| format!("'{text}': '{name}' is unknown; {form}"))?
            }
        };
        let value = value.trim();
        if value.is_empty() {
            return Err(format!("'{text}': the limit is missing; {form}"));
        }
        let limit = match subject {
            Subject::Errors => parse_share(value),
            Subject::Rate => parse_rate(value),
            _ => parse_duration_ns(value, DurationUnit::Milliseconds).map(|ns| ns as f64),
        };
        let limit = limit.map_err(|why| format!("'{text}': {why}"))?;
        Ok(Self { text: text.to_owned(), subject, bound, limit })
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is about the share of requests that failed.
    #[must_use]
    pub fn is_of_errors(&self) -> bool {
        self.subject == Subject::Errors
    }

    /// Whether it is about the rate.
    #[must_use]
    pub fn is_of_rate(&self) -> bool {
        self.subject == Subject::Rate
    }

    /// Whether it is still missed when the affected share of the requests, each late by `delay_ns` at
    /// the most, is left out. Errors and rates are missed in any case, and requests without a good
    /// response count as late.
    #[must_use]
    pub fn is_missed_without(
        &self,
        (latencies, not_good): (&Latencies, u64),
        affected_share: f64,
        delay_ns: u64,
    ) -> bool {
        let good = latencies.count() as f64;
        let late = (1.0 - latencies.share_within(self.limit as u64)) * good + not_good as f64;
        let beyond_limit = late / (good + not_good as f64).max(1.0) - affected_share;
        match self.subject {
            Subject::Percentile(percent) => beyond_limit > 1.0 - percent / 100.0,
            Subject::Mean | Subject::Max if not_good > 0 => true,
            Subject::Max => beyond_limit > 0.0,
            Subject::Mean => latencies.mean_ns() - affected_share * delay_ns as f64 > self.limit,
            Subject::Errors | Subject::Rate => true,
        }
    }

    /// The measured value, and whether it is on the good side. Without any response no latency
    /// objective is met.
    #[must_use]
    pub fn evaluate(&self, outcome: Outcome<'_>) -> record::run::Objective {
        let latencies = outcome.latencies;
        let value = match self.subject {
            Subject::Percentile(percent) => outcome.percentile_ns(percent / 100.0),
            Subject::Mean | Subject::Max if outcome.not_good > 0 => f64::INFINITY,
            Subject::Mean => latencies.mean_ns(),
            Subject::Max => latencies.max_ns() as f64,
            Subject::Errors => outcome.error_share,
            Subject::Rate => outcome.goodput_per_s,
        };
        let of_latency = !matches!(self.subject, Subject::Errors | Subject::Rate);
        let good = match self.bound {
            Bound::Below => value < self.limit,
            Bound::AtMost => value <= self.limit,
            Bound::Above => value > self.limit,
            Bound::AtLeast => value >= self.limit,
        };
        let met = good && !(of_latency && latencies.is_empty());
        record::run::Objective { text: self.text.clone(), met, value }
    }
}

/// `p50`, `p99.9`, and `p999` for 99.9 as it is commonly written.
fn percentile(name: &str) -> Option<Subject> {
    let digits = name.strip_prefix('p')?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let mut percent: f64 = plain.then(|| digits.parse().ok()).flatten()?;
    if percent > 100.0 && !digits.contains('.') && digits.starts_with("99") {
        percent /= 10f64.powi(digits.len() as i32 - 2);
    }
    (0.0..=100.0).contains(&percent).then_some(Subject::Percentile(percent))
}

impl Serialize for Objective {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(text: &str, latency_ns: &[u64], error_share: f64, rate: f64) -> Vec<bool> {
        let mut latencies = Latencies::new();
        latency_ns.iter().for_each(|&ns| latencies.record(ns));
        let outcome =
            Outcome { latencies: &latencies, not_good: 0, error_share, goodput_per_s: rate };
        let (objectives, problems) = Objective::parse_list(text);
        assert!(problems.is_empty(), "{problems:?}");
        objectives.iter().map(|objective| objective.evaluate(outcome).met).collect()
    }

    #[test]
    fn met_and_missed() {
        let text = "p99<5ms, max<=4.1ms,mean<1us,errors<0.1%,rate>=10k";
        assert_eq!(evaluate(text, &[4_000_000], 0.01, 10_000.0), [true, true, false, false, true]);
        assert_eq!(evaluate("p50<5,p99.9<5,p999<5ms", &[4_000_000], 0.0, 1.0), [true; 3]);
    }

    #[test]
    fn without_a_response_no_latency_is_good() {
        assert_eq!(evaluate("p99<5ms,max<1s,errors<1%", &[], 1.0, 0.0), [false, false, false]);
    }

    #[test]
    fn a_request_without_a_good_response_is_infinitely_slow() {
        let mut latencies = Latencies::new();
        (0..29_985).for_each(|_| latencies.record(1_000_000));
        let values = |not_good: u64| {
            let (objectives, _) =
                Objective::parse_list("p99<5ms,p99.9<5ms,p99.99<5ms,max<1s,mean<1s");
            let outcome =
                Outcome { latencies: &latencies, not_good, error_share: 0.0, goodput_per_s: 1.0 };
            objectives.iter().map(|one| one.evaluate(outcome)).collect::<Vec<_>>()
        };
        let met = |not_good| values(not_good).iter().map(|one| one.met).collect::<Vec<_>>();
        assert_eq!(met(0), [true; 5]);
        // 15 of 30,000: the 99.99th of 100 takes in 12 of them, the 99.9th none.
        assert_eq!(met(15), [true, true, false, false, false]);
        assert_eq!(met(31), [true, false, false, false, false]);
        assert_eq!(met(400), [false; 5]);
        assert_eq!(values(15)[3].value, f64::INFINITY);
        assert_eq!(values(15)[0].value as u64 / 10_000, 100, "those of good responses");
        let json = serde_json::to_string(&values(15)[3]).unwrap();
        assert!(json.contains("\"value\":null"), "{json}");
        let read: record::run::Objective = serde_json::from_str(&json).unwrap();
        assert_eq!(read.value, f64::INFINITY);
    }

    #[test]
    fn every_problem_is_reported() {
        let (_, problems) = Objective::parse_list("p99,q<1,p101<1ms,errors<2,rate>x,p99<5ms");
        assert_eq!(problems.len(), 5, "{problems:?}");
    }

    #[test]
    fn what_is_missing_is_said_with_what_may_stand_there() {
        let (_, problems) = Objective::parse_list("p98<");
        assert!(problems[0].starts_with("'p98<': the limit is missing; write p99<5ms (any perc"));
        assert_eq!(evaluate("rate>=1.5", &[], 0.0, 1.6), [true]);
    }
}
