//! Numbers of the events of one subscription, across its reconnects. Pure.

use crate::recorder::LiveCounters;

/// Largest number of events that can be missing between two; after a larger step the numbers begin again.
const LOST_MAX: u64 = 1 << 32;

/// Last number of a subscription.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventIds {
    last: Option<u64>,
}

impl EventIds {
    /// Takes the number of the next event, and counts a gap, a repetition or a step back.
    pub(super) fn take(&mut self, number: u64, counters: &mut LiveCounters) {
        match self.last {
            Some(last) if number == last => counters.duplicated += 1,
            Some(last) if number < last => {
                counters.reordered += 1;
                return;
            }
            Some(last) if number - last <= LOST_MAX => {
                counters.lost = counters.lost.saturating_add(number - last - 1);
            }
            Some(_) | None => {}
        }
        self.last = Some(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_repetitions_and_steps_back_are_counted() {
        let (mut ids, mut counters) = (EventIds::default(), LiveCounters::default());
        [7, 8, 10, 10, 9, 11, 15, 1 << 31].into_iter().for_each(|number| ids.take(number, &mut counters));
        assert_eq!((counters.duplicated, counters.reordered), (1, 1));
        assert_eq!(counters.lost, 1 + 3 + ((1 << 31) - 16));
        // A time as number, and the largest one.
        [1_700_000_000_000, u64::MAX].into_iter().for_each(|number| ids.take(number, &mut counters));
        assert_eq!(counters.lost, 1 + 3 + ((1 << 31) - 16));
    }
}
