//! Offset of an agent's clock from round trips. The agent's reading lies somewhere between the send and the
//! arrival, so the middle is wrong by at most half of the round trip; the shortest round trip is the best.
//! Pure. (D. L. Mills: Internet time synchronization, 1991; the minimum filter of NTP, RFC 5905 section 10.)

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// Send, by the own clock, in ns.
    pub sent_ns: u64,
    /// Arrival of the response, by the own clock.
    pub received_ns: u64,
    /// Reading of the agent in between, by its clock.
    pub agent_ns: u64,
}

/// Offset of an agent's clock: its time minus the own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    pub offset_ns: i128,
    /// Maximum error, in ns: half of the round trip.
    pub error_ns: u64,
}

impl RoundTrip {
    fn offset(self) -> ClockOffset {
        let delay_ns = self.received_ns.saturating_sub(self.sent_ns);
        let middle_ns = self.sent_ns + delay_ns / 2;
        ClockOffset {
            offset_ns: i128::from(self.agent_ns) - i128::from(middle_ns),
            error_ns: delay_ns.div_ceil(2),
        }
    }
}

impl ClockOffset {
    /// Returns a time of the own clock by the agent's clock.
    pub fn to_agent(self, own_ns: u64) -> u64 {
        u64::try_from(i128::from(own_ns) + self.offset_ns).unwrap_or(0)
    }

    /// Returns a time of the agent's clock by the own clock.
    pub fn to_own(self, agent_ns: u64) -> u64 {
        u64::try_from(i128::from(agent_ns) - self.offset_ns).unwrap_or(0)
    }
}

/// Estimator of one agent's clock.
#[derive(Clone, Debug, Default)]
pub struct ClockEstimator {
    recent: VecDeque<RoundTrip>,
    count: u64,
}

/// Number of round trips that are kept: an older one is not compared, because clocks drift.
const RECENT_MAX: usize = 64;
/// Maximum drift of a clock against another one, as a fraction: crystals are within 100 ppm.
const DRIFT_MAX: f64 = 200e-6;

impl ClockEstimator {
    /// Adds a round trip. One whose times are impossible is ignored.
    pub fn add(&mut self, trip: RoundTrip) {
        if trip.received_ns < trip.sent_ns {
            return;
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(trip);
        self.count += 1;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the best offset at a time of the own clock; its error grows with the age of the round trip.
    pub fn offset_at(&self, own_ns: u64) -> Option<ClockOffset> {
        let aged = self.recent.iter().map(|trip| {
            let offset = trip.offset();
            let drift_ns = trip.received_ns.abs_diff(own_ns) as f64 * DRIFT_MAX;
            ClockOffset { error_ns: offset.error_ns.saturating_add(drift_ns as u64), ..offset }
        });
        aged.min_by_key(|offset| offset.error_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn trip(at_ns: u64, there_ns: u64, back_ns: u64, offset_ns: i64) -> RoundTrip {
        let agent_ns = (at_ns + there_ns).saturating_add_signed(offset_ns);
        RoundTrip { sent_ns: at_ns, received_ns: at_ns + there_ns + back_ns, agent_ns }
    }

    #[test]
    fn a_clock_seconds_off_is_measured_within_half_of_the_shortest_round_trip() {
        for offset_ns in [3_000_000_000_i64, -3_000_000_000, 0] {
            let mut clock = ClockEstimator::default();
            // Round trips of a network whose delay varies, mostly on the way there.
            for (number, there_ms) in (0_u64..).zip([9, 30, 2, 80, 4]) {
                clock.add(trip((10 + number) * 1000 * MS, there_ms * MS, MS, offset_ns));
            }
            let found = clock.offset_at(15_000 * MS).unwrap();
            let wrong_by = (found.offset_ns - i128::from(offset_ns)).unsigned_abs() as u64;
            assert!(wrong_by <= found.error_ns && found.error_ns < 3 * MS, "{found:?}");
            let own_ns = 20_000 * MS;
            assert_eq!(found.to_own(found.to_agent(own_ns)), own_ns);
        }
    }

    #[test]
    fn an_old_round_trip_loses_against_a_longer_recent_one() {
        let mut clock = ClockEstimator::default();
        clock.add(trip(0, MS / 10, MS / 10, 0));
        clock.add(trip(100_000 * MS, MS, MS, 50));
        let found = clock.offset_at(100_000 * MS).unwrap();
        assert!((MS..2 * MS).contains(&found.error_ns) && found.offset_ns == 50, "{found:?}");
    }

    #[test]
    fn impossible_times_are_ignored() {
        let mut clock = ClockEstimator::default();
        clock.add(RoundTrip { sent_ns: 10, received_ns: 9, agent_ns: 3 });
        assert_eq!((clock.count(), clock.offset_at(10)), (0, None));
    }
}
