//! Live figures: the seconds of all agents, each added up as soon as it is complete, or when a later second
//! shows that the rest of it is late. Late figures are dropped: the record has them.

use std::collections::{BTreeMap, BTreeSet};

use record::merge::add_interval;
use record::run::Interval;

/// Sum of the seconds of all agents.
#[derive(Clone, Debug)]
pub(super) struct LiveSum {
    /// Number of running agents.
    running: usize,
    seconds: BTreeMap<u64, SecondSum>,
    /// Seconds before this one were reported.
    next_second: u64,
}

#[derive(Clone, Debug)]
struct SecondSum {
    sum: Interval,
    members: BTreeSet<usize>,
}

/// Number of seconds that may wait for late figures.
const LATE_SECONDS_MAX: u64 = 2;

impl LiveSum {
    pub(super) fn new(running: usize) -> Self {
        Self { running, seconds: BTreeMap::new(), next_second: 0 }
    }

    /// Adds a second of an agent. Returns the sum that it completes.
    pub(super) fn add(&mut self, member: usize, interval: &Interval) -> Option<Interval> {
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
                    entry.sum = add_interval(&entry.sum, &interval);
                }
            })
            .or_insert_with(|| SecondSum { sum: interval.clone(), members: [member].into() });
        let is_complete = entry.members.len() >= self.running;
        let has_waited = self.seconds.keys().next().is_some_and(|first| first + LATE_SECONDS_MAX <= second);
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
        self.next_second = second + 1;
        Some(first.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(time_s: f64, responses: u64) -> Interval {
        Interval { time_s, length_s: 1.0, responses, p99_ns: Some(5), ..Interval::default() }
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
