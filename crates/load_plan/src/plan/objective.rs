//! Objectives: `p99<5ms,errors<0.1%,rate>=10k`. Parsed into values, and evaluated on figures.

use record::histogram::LatencyHistogram;
use record::invalid_value;
use record::problem::InvalidValue;
use record::units::{parse_fraction, parse_limit_ns, parse_rate};
use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ObjectiveMetric {
    /// A percentile (0 to 100) of the latency from due time to last byte. A request without a good
    /// response counts as infinitely slow, here and in the mean and the maximum.
    Percentile(f64),
    Mean,
    Max,
    /// The fraction of requests that failed or had a bad response.
    Errors,
    /// Good responses per second.
    Rate,
}

/// Good side of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectiveOperator {
    Below,
    AtMost,
    Above,
    AtLeast,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    text: String,
    metric: ObjectiveMetric,
    operator: ObjectiveOperator,
    limit: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct ObjectiveFigures<'a> {
    /// Latency of good responses, from due time to last byte.
    pub latencies: &'a LatencyHistogram,
    /// Number of requests of the same window without a good response.
    pub not_good: u64,
    /// Fraction of requests without a good response.
    pub error_rate: f64,
    pub goodput_per_s: f64,
}

impl ObjectiveFigures<'_> {
    /// Returns the latency that a fraction `quantile` of all requests does not exceed, in ns.
    /// Infinite if that fraction includes requests without a good response.
    fn percentile_ns(&self, quantile: f64) -> f64 {
        let good = self.latencies.count();
        if self.not_good == 0 || good == 0 {
            let none = if self.not_good > 0 { f64::INFINITY } else { 0.0 };
            return if good == 0 { none } else { self.latencies.value_at_quantile(quantile) as f64 };
        }
        // The smallest rank that covers the fraction; a product such as 0.999 × 1000 may be
        // slightly too high.
        let rank = (quantile * (good + self.not_good) as f64 - 1e-6).ceil().max(1.0);
        // Half a rank lower, so that rounding never takes it to the next.
        let within = rank <= good as f64;
        if within {
            self.latencies.value_at_quantile((rank - 0.5) / good as f64) as f64
        } else {
            f64::INFINITY
        }
    }
}

impl Objective {
    /// Returns the limit of an objective of errors: the maximum fraction without a good response.
    pub fn error_rate_limit(&self) -> Option<f64> {
        let upper = matches!(self.operator, ObjectiveOperator::Below | ObjectiveOperator::AtMost);
        (self.metric == ObjectiveMetric::Errors && upper).then_some(self.limit)
    }

    /// Parses a list of objectives. Returns the valid ones, and the problems of the others.
    #[must_use]
    pub fn parse_list(text: &str) -> (Vec<Self>, Vec<InvalidValue>) {
        let mut problems = Vec::new();
        let parsed = text
            .split(',')
            .map(str::trim)
            .filter_map(|part| Self::parse(part).map_err(|problem| problems.push(problem)).ok());
        (parsed.collect(), problems)
    }

    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let syntax = "write p99<5ms (any percentile above 0 and below 100: p50, p99.9), mean<2ms, max<1s, errors<0.1% or \
                    rate>=10k";
        let at = text.find(['<', '>']).ok_or_else(|| invalid_value!("'{text}': {syntax}"))?;
        let (name, rest) = text.split_at(at);
        let (bound, value) = match rest.as_bytes() {
            [b'<', b'=', ..] => (ObjectiveOperator::AtMost, &rest[2..]),
            [b'>', b'=', ..] => (ObjectiveOperator::AtLeast, &rest[2..]),
            [b'<', ..] => (ObjectiveOperator::Below, &rest[1..]),
            _ => (ObjectiveOperator::Above, &rest[1..]),
        };
        let subject = match name.trim() {
            "errors" => ObjectiveMetric::Errors,
            "rate" => ObjectiveMetric::Rate,
            "mean" => ObjectiveMetric::Mean,
            "max" => ObjectiveMetric::Max,
            name => parse_percentile(name)
                .ok_or_else(|| invalid_value!("'{text}': '{name}' is unknown; {syntax}"))?,
        };
        let value = value.trim();
        if value.is_empty() {
            return Err(invalid_value!("'{text}': missing limit; {syntax}"));
        }
        let limit = match subject {
            ObjectiveMetric::Errors => parse_fraction(value),
            ObjectiveMetric::Rate => parse_rate(value),
            _ => parse_limit_ns(value).map(|ns| ns as f64),
        };
        let limit = limit.map_err(|why| invalid_value!("'{text}': {why}"))?;
        Ok(Self { text: text.to_owned(), metric: subject, operator: bound, limit })
    }

    pub fn metric(&self) -> ObjectiveMetric {
        self.metric
    }

    /// Returns its limit: ns, a fraction, or responses per second.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Returns whether a delay of the generator can only make it harder to meet: an upper bound of a latency or of
    /// errors, a lower one of a rate.
    pub fn is_hardened_by_delays(&self) -> bool {
        let is_upper = matches!(self.operator, ObjectiveOperator::Below | ObjectiveOperator::AtMost);
        is_upper != (self.metric == ObjectiveMetric::Rate)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the objective is about the fraction of failed requests.
    pub fn is_error_rate(&self) -> bool {
        self.metric == ObjectiveMetric::Errors
    }

    pub fn is_rate(&self) -> bool {
        self.metric == ObjectiveMetric::Rate
    }

    /// Returns whether the objective is still missed without the affected fraction of the requests,
    /// each late by at most `delay_ns`. Errors and rates are missed in any case, and requests
    /// without a good response count as late.
    pub fn is_missed_without(
        &self,
        (latencies, not_good): (&LatencyHistogram, u64),
        affected_fraction: f64,
        delay_ns: u64,
    ) -> bool {
        let good = latencies.count() as f64;
        let late = (1.0 - latencies.fraction_within(self.limit as u64)) * good + not_good as f64;
        let beyond_limit = late / (good + not_good as f64).max(1.0) - affected_fraction;
        match self.metric {
            ObjectiveMetric::Percentile(percent) => beyond_limit > 1.0 - percent / 100.0,
            ObjectiveMetric::Mean | ObjectiveMetric::Max if not_good > 0 => true,
            ObjectiveMetric::Max => beyond_limit > 0.0,
            ObjectiveMetric::Mean => latencies.mean_ns() - affected_fraction * delay_ns as f64 > self.limit,
            ObjectiveMetric::Errors | ObjectiveMetric::Rate => true,
        }
    }

    /// Returns the measured value, and whether it is on the good side. Without any response no
    /// latency objective is met.
    pub fn evaluate(&self, outcome: ObjectiveFigures<'_>) -> record::run::ObjectiveResult {
        let latencies = outcome.latencies;
        let value = match self.metric {
            ObjectiveMetric::Percentile(percent) => outcome.percentile_ns(percent / 100.0),
            ObjectiveMetric::Mean | ObjectiveMetric::Max if outcome.not_good > 0 => f64::INFINITY,
            ObjectiveMetric::Mean => latencies.mean_ns(),
            ObjectiveMetric::Max => latencies.max_ns() as f64,
            ObjectiveMetric::Errors => outcome.error_rate,
            ObjectiveMetric::Rate => outcome.goodput_per_s,
        };
        let is_latency = !matches!(self.metric, ObjectiveMetric::Errors | ObjectiveMetric::Rate);
        let good = match self.operator {
            ObjectiveOperator::Below => value < self.limit,
            ObjectiveOperator::AtMost => value <= self.limit,
            ObjectiveOperator::Above => value > self.limit,
            ObjectiveOperator::AtLeast => value >= self.limit,
        };
        let met = good && !(is_latency && latencies.is_empty());
        record::run::ObjectiveResult { text: self.text.clone(), met, value, validity: None }
    }
}

/// Parses `p50` and `p99.9`.
fn parse_percentile(name: &str) -> Option<ObjectiveMetric> {
    let digits = name.strip_prefix('p')?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let percent: f64 = plain.then(|| digits.parse().ok()).flatten()?;
    (percent > 0.0 && percent < 100.0).then_some(ObjectiveMetric::Percentile(percent))
}

impl Serialize for Objective {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(text: &str, latency_ns: &[u64], error_rate: f64, rate: f64) -> Vec<bool> {
        let mut latencies = LatencyHistogram::new();
        latency_ns.iter().for_each(|&ns| latencies.record(ns));
        let outcome =
            ObjectiveFigures { latencies: &latencies, not_good: 0, error_rate, goodput_per_s: rate };
        let (objectives, problems) = Objective::parse_list(text);
        assert!(problems.is_empty(), "{problems:?}");
        objectives.iter().map(|objective| objective.evaluate(outcome).met).collect()
    }

    #[test]
    fn met_and_missed() {
        let text = "p99<5ms, max<=4.1ms,mean<1us,errors<0.1%,rate>=10k";
        assert_eq!(evaluate(text, &[4_000_000], 0.01, 10_000.0), [true, true, false, false, true]);
        assert_eq!(evaluate("p50<5ms,p99.9<5ms,p99.99<0.005s", &[4_000_000], 0.0, 1.0), [true; 3]);
    }

    #[test]
    fn without_a_response_no_latency_is_good() {
        assert_eq!(evaluate("p99<5ms,max<1s,errors<1%", &[], 1.0, 0.0), [false, false, false]);
    }

    #[test]
    fn a_request_without_a_good_response_is_infinitely_slow() {
        let mut latencies = LatencyHistogram::new();
        (0..29_985).for_each(|_| latencies.record(1_000_000));
        let values = |not_good: u64| {
            let (objectives, _) = Objective::parse_list("p99<5ms,p99.9<5ms,p99.99<5ms,max<1s,mean<1s");
            let outcome =
                ObjectiveFigures { latencies: &latencies, not_good, error_rate: 0.0, goodput_per_s: 1.0 };
            objectives.iter().map(|objective| objective.evaluate(outcome)).collect::<Vec<_>>()
        };
        let met = |not_good| values(not_good).iter().map(|result| result.met).collect::<Vec<_>>();
        assert_eq!(met(0), [true; 5]);
        // 15 of 30,000: the 99.99th of 100 includes 12 of them, the 99.9th none.
        assert_eq!(met(15), [true, true, false, false, false]);
        assert_eq!(met(31), [true, false, false, false, false]);
        assert_eq!(met(400), [false; 5]);
        assert_eq!(values(15)[3].value, f64::INFINITY);
        assert_eq!(values(15)[0].value as u64 / 10_000, 100, "those of good responses");
        let json = serde_json::to_string(&values(15)[3]).unwrap();
        assert!(json.contains("\"value\":null"), "{json}");
        let read: record::run::ObjectiveResult = serde_json::from_str(&json).unwrap();
        assert_eq!(read.value, f64::INFINITY);
    }

    #[test]
    fn every_problem_is_reported() {
        let (_, problems) = Objective::parse_list("p99,q<1,p101<1ms,errors<2,rate>x,p99<5ms");
        assert_eq!(problems.len(), 5, "{problems:?}");
    }

    #[test]
    fn a_time_has_a_unit_and_a_percentile_its_documented_form() {
        for text in ["p99<50", "mean<=2", "max<1.5", "p99<0"] {
            let (objectives, problems) = Objective::parse_list(text);
            assert!(objectives.is_empty() && problems[0].to_string().contains("unit"), "{problems:?}");
        }
        for text in ["p999<5ms", "p0<5ms", "p100<5ms", "p101<5ms"] {
            assert!(Objective::parse_list(text).0.is_empty(), "{text}");
        }
        assert!(Objective::parse_list("rate>=10,errors<0.1").1.is_empty());
    }

    #[test]
    fn a_missing_limit_is_reported_with_the_syntax() {
        let (_, problems) = Objective::parse_list("p98<");
        assert!(problems[0].to_string().starts_with("'p98<': missing limit; write p99"));
        assert_eq!(evaluate("rate>=1.5", &[], 0.0, 1.6), [true]);
    }
}
