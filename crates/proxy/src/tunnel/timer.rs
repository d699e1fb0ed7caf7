//! The timeout of a tunnel. No I/O and no clock.
//!
//! A byte in either direction prolongs it, but not for a receiver that takes nothing of what waits for it:
//! bytes of the other direction must not hold that memory.

use rt::clock::MonotonicTime;
use server_shell::progress::{ProgressRule, ProgressTimer};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Direction {
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    /// True if bytes wait for the receiver.
    pub(super) has_backlog: bool,
}

#[derive(Debug, Default)]
pub(super) struct TunnelTimer {
    idle: ProgressTimer,
    backlogs: [ProgressTimer; 2],
}

impl TunnelTimer {
    /// Notes the progress, and returns the time at which the timeout passes without more.
    pub(super) fn due(
        &mut self,
        directions: [Direction; 2],
        timeout_ns: u64,
        now: MonotonicTime,
    ) -> MonotonicTime {
        let rule = ProgressRule::new(timeout_ns, 1);
        let total_bytes = |direction: &Direction| direction.received_bytes.wrapping_add(direction.sent_bytes);
        self.idle.note(rule, directions.iter().map(total_bytes).fold(0, u64::wrapping_add), now);
        let mut due = self.idle.due(rule);
        for (timer, direction) in self.backlogs.iter_mut().zip(directions) {
            match direction.has_backlog {
                true => timer.note(rule, direction.sent_bytes, now),
                false => timer.stop(),
            }
            due = due.min(timer.due(rule));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    #[test]
    fn a_receiver_that_takes_nothing_is_not_held_by_the_other_direction() {
        let mut timer = TunnelTimer::default();
        let (mut up, mut down) = (Direction::default(), Direction::default());
        assert_eq!(timer.due([up, down], 100, at(1)), at(101));
        (down.received_bytes, down.has_backlog) = (64, true);
        assert_eq!(timer.due([up, down], 100, at(50)), at(150));
        for now in 51..149 {
            (up.received_bytes, up.sent_bytes) = (now, now);
            assert_eq!(timer.due([up, down], 100, at(now)), at(150));
        }
        down.sent_bytes = 1;
        assert_eq!(timer.due([up, down], 100, at(149)), at(249));
        down.has_backlog = false;
        up.sent_bytes += 1;
        assert_eq!(timer.due([up, down], 100, at(200)), at(300));
    }
}
