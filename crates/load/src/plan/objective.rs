//! Objectives: `p99<5ms,errors<0.1%,rate>=10k`. Parsed into values, and evaluated on figures.

use record::histogram::Latencies;
use record::units::{DurationUnit, parse_duration_ns, parse_rate, parse_share};
use serde::{Serialize, Serializer};

/// What an objective is about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Subject {
    /// A percentile (0 to 100) of the response latency, last byte.
    Percentile(f64),
    /// Its mean.
    Mean,
    /// Its maximum.
    Max,
    /// The share of requests that failed or were answered with an unwanted status.
    Errors,
    /// Responses per second.
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
    /// Response latency, last byte.
    pub latencies: &'a Latencies,
    /// Share of failed requests.
    pub error_share: f64,
    /// Responses per second.
    pub responses_per_s: f64,
}

impl Objective {
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

    /// The measured value, and whether it is on the good side. Without any response no latency
    /// objective is met.
    #[must_use]
    pub fn evaluate(&self, outcome: Outcome<'_>) -> record::run::Objective {
        let latencies = outcome.latencies;
        let value = match self.subject {
            Subject::Percentile(percent) => latencies.at(percent / 100.0) as f64,
            Subject::Mean => latencies.mean_ns(),
            Subject::Max => latencies.max_ns() as f64,
            Subject::Errors => outcome.error_share,
            Subject::Rate => outcome.responses_per_s,
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
        let outcome = Outcome { latencies: &latencies, error_share, responses_per_s: rate };
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
