//! Live figures: the seconds of all agents, each added up as soon as it is complete, or when a later second
//! shows that the rest of it is late. Late figures are dropped: the record has them. Percentiles are those of the
//! added histograms.

use std::collections::{BTreeMap, BTreeSet};

use record::histogram::LatencyHistogram;
use record::merge::add_interval;
use record::run::Interval;

use crate::message::LiveSecond;

#[derive(Clone, Debug, PartialEq)]
pub struct AgentSecond {
    pub interval: Interval,
    /// Response latencies; `None`: they were too long for a message.
    pub latencies: Option<LatencyHistogram>,
}

impl From<LiveSecond> for AgentSecond {
    fn from(second: LiveSecond) -> Self {
        // Percentiles that are not known are better than a lost second.
        let latencies = second.latencies.and_then(|text| LatencyHistogram::decode(&text).ok());
        Self { interval: second.interval, latencies }
    }
}

/// Sum of the seconds of all agents.
#[derive(Clone, Debug)]
pub(super) struct LiveSum {
    running: usize,
    seconds: BTreeMap<u64, SecondSum>,
    /// Seconds before this one were reported.
    next_second: u64,
}

#[derive(Clone, Debug)]
struct SecondSum {
    sum: Interval,
    /// Latencies of all members; `None`: those of one are missing.
    latencies: Option<LatencyHistogram>,
    members: BTreeSet<usize>,
}

impl SecondSum {
    fn add(&mut self, interval: &Interval, latencies: Option<&LatencyHistogram>) {
        self.sum = add_interval(&self.sum, interval);
        match (&mut self.latencies, latencies) {
            (Some(sum), Some(latencies)) => sum.add(latencies),
            (sum, _) => *sum = None,
        }
    }

    fn finish(self) -> Interval {
        let latencies = self.latencies.filter(|latencies| !latencies.is_empty());
        let quantile = |quantile| latencies.as_ref().map(|latencies| latencies.value_at_quantile(quantile));
        Interval { p50_ns: quantile(0.5), p99_ns: quantile(0.99), ..self.sum }
    }
}

/// Number of seconds that may wait for late figures.
const LATE_SECONDS_MAX: u64 = 2;

impl LiveSum {
    pub(super) fn new(running: usize) -> Self {
        Self { running, seconds: BTreeMap::new(), next_second: 0 }
    }

    /// Adds a second of an agent. Returns the sum that it completes.
    pub(super) fn add(&mut self, member: usize, agent: &AgentSecond) -> Option<Interval> {
        let interval = &agent.interval;
        let second = (interval.time_s - interval.length_s).round().max(0.0) as u64;
        // The end of the run is no second of its own.
        if second < self.next_second || interval.length_s < 0.5 {
            return None;
        }
        let interval = Interval { p50_ns: None, p99_ns: None, lag_p99_ns: None, ..interval.clone() };
        let entry = self.seconds.entry(second);
        let entry = entry
            .and_modify(|entry| {
                if entry.members.insert(member) {
                    entry.add(&interval, agent.latencies.as_ref());
                }
            })
            .or_insert_with(|| SecondSum {
                sum: interval.clone(),
                latencies: agent.latencies.clone(),
                members: [member].into(),
            });
        let is_complete = entry.members.len() >= self.running;
        // The newest second may be an earlier one than this: agents send them in any order, and their number
        // stays bounded.
        let bounds = self.seconds.first_key_value().zip(self.seconds.last_key_value());
        let has_waited = bounds.is_some_and(|((first, _), (last, _))| last - first >= LATE_SECONDS_MAX);
        if is_complete || has_waited { self.take_first() } else { None }
    }

    /// Sets the number of running agents. Returns the sums that need nothing more.
    pub(super) fn set_running(&mut self, running: usize) -> Vec<Interval> {
        self.running = running;
        let mut complete = Vec::new();
        while self.seconds.first_key_value().is_some_and(|(_, first)| first.members.len() >= running.max(1)) {
            complete.extend(self.take_first());
        }
        complete
    }

    /// Returns what is left.
    pub(super) fn finish(&mut self) -> Vec<Interval> {
        std::iter::from_fn(|| self.take_first()).collect()
    }

    fn take_first(&mut self) -> Option<Interval> {
        let (second, first) = self.seconds.pop_first()?;
        self.next_second = second.saturating_add(1);
        Some(first.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(time_s: f64, responses: u64) -> AgentSecond {
        let interval = Interval { time_s, length_s: 1.0, responses, p99_ns: Some(5), ..Interval::default() };
        AgentSecond { interval, latencies: None }
    }

    #[test]
    fn percentiles_are_those_of_all_latencies_or_unknown() {
        let with = |latency_ns: u64, count: u64| {
            let mut latencies = LatencyHistogram::new();
            (0..count).for_each(|_| latencies.record(latency_ns));
            let live = LiveSecond {
                interval: second(1.0, count).interval,
                latencies: record::control::encode_latencies(&latencies),
            };
            AgentSecond::from(live)
        };
        let mut live = LiveSum::new(2);
        live.add(0, &with(1_000, 98));
        let sum = live.add(1, &with(1_000_000, 2)).unwrap();
        let near = |value: Option<u64>, wanted: u64| value.unwrap().abs_diff(wanted) <= wanted / 1000;
        assert!(near(sum.p50_ns, 1_000) && near(sum.p99_ns, 1_000_000), "{sum:?}");
        // The percentiles of one agent are not those of all.
        let mut live = LiveSum::new(2);
        live.add(0, &with(1_000, 98));
        let broken = LiveSecond { interval: second(1.0, 2).interval, latencies: Some("?".to_owned()) };
        let sum = live.add(1, &broken.into()).unwrap();
        assert_eq!((sum.p50_ns, sum.responses), (None, 100));
    }

    #[test]
    fn the_number_of_waiting_seconds_is_bounded_in_any_order() {
        let mut live = LiveSum::new(2);
        for at in (100..1_000).rev() {
            live.add(0, &second(f64::from(at), 1));
            assert!(live.seconds.len() <= 1 + LATE_SECONDS_MAX as usize, "{}", live.seconds.len());
        }
        for at in [f64::MAX, f64::INFINITY, f64::NAN, -1.0] {
            live.add(0, &second(at, 1));
            assert!(live.seconds.len() <= 1 + LATE_SECONDS_MAX as usize);
        }
    }

    #[test]
    fn a_second_is_reported_when_all_have_it_or_when_it_is_late() {
        let mut live = LiveSum::new(2);
        assert_eq!(live.add(0, &second(1.0, 10)), None);
        let sum = live.add(1, &second(1.0, 5)).unwrap();
        assert_eq!((sum.responses, sum.p99_ns), (15, None));
        assert_eq!(live.add(0, &second(2.0, 1)), None);
        assert_eq!(live.add(0, &second(2.0, 1)), None, "a repeated message counts once");
        assert_eq!(live.add(0, &second(3.0, 2)), None);
        let late = live.add(0, &second(4.0, 3)).unwrap();
        assert_eq!(late.responses, 1);
        assert_eq!(live.add(1, &second(2.0, 100)), None, "it was reported already");
        let left: Vec<u64> = live.set_running(1).iter().map(|interval| interval.responses).collect();
        assert_eq!(left, [2, 3]);
        assert!(live.finish().is_empty());
    }
}
