//! Queue of one core for a pool: chooses the next request, expires those that waited too long, and
//! evicts requests for others. Pure: time is an argument, and entries are of any type `T`.
//!
//! ```text
//! push --> high    oldest ... newest   strict, but after PASSES_MAX passes a class has a turn;
//!          normal  oldest ... newest   the oldest first while a class is short,
//!          low     oldest ... newest   the newest first when it stands or clients leave it (codel)
//!            |         |         |
//!            |         |         '--> evict: for a more urgent entry, or, when it stands, a newer
//!            |         '--> expire: too old, or the client's deadline cannot be met any more
//!            '--> take: a slot is free
//! ```

use std::collections::VecDeque;

use rt::clock::MonotonicTime;

use super::codel::StandingDetector;
use crate::plan::{Priority, QueueOrder};

/// Maximum number of times that a waiting class is passed over before it has a turn. It gets at
/// least one of `PASSES_MAX + 1` turns.
const PASSES_MAX: u32 = 15;

/// Maximum number of entries that are offered a slot in one call, if some of them accept only one
/// server.
const OFFERS_MAX: usize = 256;

/// Offer to a waiting entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer<R> {
    Slot(R),
    /// Nothing, but there may be a slot for another entry.
    Skip,
    /// Nothing for any entry.
    Stop,
}

pub(crate) const NO_DEADLINE: MonotonicTime = MonotonicTime::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueRules {
    pub(crate) order: QueueOrder,
    pub(crate) timeout_ns: u64,
    pub(crate) standing_after_ns: u64,
}

/// Position in the queue, for removing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    priority: Priority,
    serial: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpiryReason {
    /// It has waited for the maximum time.
    Timeout,
    /// Its client would leave before the response.
    Deadline,
}

/// The waiting entries.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    rules: QueueRules,
    classes: [ClassQueue<T>; Priority::COUNT],
    next_serial: u64,
}

#[derive(Debug)]
struct ClassQueue<T> {
    entries: VecDeque<QueueEntry<T>>,
    standing_detector: StandingDetector,
    /// Number of grants to other classes since the last one, while this class waited.
    pass_count: u32,
    /// Lower bound of the deadlines of all waiting entries.
    earliest_deadline: MonotonicTime,
}

#[derive(Debug)]
struct QueueEntry<T> {
    serial: u64,
    enqueued_at: MonotonicTime,
    /// Time when its client leaves; [`NO_DEADLINE`]: not given.
    deadline: MonotonicTime,
    item: T,
}

const PRIORITIES: [Priority; Priority::COUNT] = [Priority::High, Priority::Normal, Priority::Low];

impl<T> ClassQueue<T> {
    fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            standing_detector: StandingDetector::new(),
            pass_count: 0,
            earliest_deadline: NO_DEADLINE,
        }
    }

    fn serves_newest_first(&mut self, rules: &QueueRules, now: MonotonicTime) -> bool {
        let oldest_at = self.entries.front().map(|oldest| oldest.enqueued_at);
        let is_standing = self.standing_detector.update(oldest_at, rules.standing_after_ns, now);
        match rules.order {
            QueueOrder::Adaptive => is_standing,
            QueueOrder::OldestFirst => false,
            QueueOrder::NewestFirst => true,
        }
    }

    /// Returns the arrival time of the oldest entry that is worth a slot.
    fn useful_since(&self, rules: &QueueRules, service_ns: u64, now: MonotonicTime) -> MonotonicTime {
        let Some(oldest) = self.entries.front() else { return MonotonicTime::ZERO };
        match rules.order {
            QueueOrder::OldestFirst => MonotonicTime::ZERO,
            QueueOrder::Adaptive | QueueOrder::NewestFirst => self.standing_detector.useful_since(
                oldest.enqueued_at,
                service_ns,
                rules.standing_after_ns,
                now,
            ),
        }
    }
}

impl<T> Queue<T> {
    pub(super) fn new(rules: QueueRules) -> Self {
        Self { rules, classes: std::array::from_fn(|_| ClassQueue::new()), next_serial: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.entries.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.classes.iter().map(|class| class.entries.len()).sum()
    }

    /// Returns the longest time for which any class has stood.
    pub(crate) fn standing_ns(&self, now: MonotonicTime) -> u64 {
        self.classes.iter().map(|class| class.standing_detector.standing_ns(now)).max().unwrap_or(0)
    }

    /// Appends an entry. The caller bounds the queue's length, because it knows about other cores.
    pub(crate) fn push(
        &mut self,
        priority: Priority,
        now: MonotonicTime,
        deadline: MonotonicTime,
        item: T,
    ) -> QueuePosition {
        let serial = self.next_serial;
        self.next_serial += 1;
        let rules = self.rules;
        let class_queue = &mut self.classes[priority as usize];
        // Updates the state up to now, without the newcomer.
        class_queue.serves_newest_first(&rules, now);
        class_queue.earliest_deadline = class_queue.earliest_deadline.min(deadline);
        class_queue.entries.push_back(QueueEntry { serial, enqueued_at: now, deadline, item });
        QueuePosition { priority, serial }
    }

    /// Returns the next entry to be served.
    #[cfg(test)]
    pub(crate) fn take(&mut self, now: MonotonicTime) -> Option<T> {
        self.offer_slots(now, 0, &mut |_| Offer::Slot(())).map(|(item, ())| item)
    }

    /// Returns the next entry that accepts a slot, with that slot. Makes offers to at most
    /// [`OFFERS_MAX`] entries, and none to an entry whose client would leave before its response, which
    /// takes `service_ns`, if clients that left the queue show this.
    pub(crate) fn offer_slots<R>(
        &mut self,
        now: MonotonicTime,
        service_ns: u64,
        offer: &mut impl FnMut(&T) -> Offer<R>,
    ) -> Option<(T, R)> {
        let first_priority = self.next_class()?;
        let others = PRIORITIES.into_iter().filter(|priority| *priority != first_priority);
        let mut offers_left = OFFERS_MAX;
        for priority in std::iter::once(first_priority).chain(others) {
            let rules = self.rules;
            let class_queue = &mut self.classes[priority as usize];
            let newest_first = class_queue.serves_newest_first(&rules, now);
            let useful_since = class_queue.useful_since(&rules, service_ns, now);
            let length = class_queue.entries.len();
            for step in 0..length.min(offers_left) {
                let at = if newest_first { length - 1 - step } else { step };
                if newest_first && class_queue.entries[at].enqueued_at < useful_since {
                    break;
                }
                match offer(&class_queue.entries[at].item) {
                    Offer::Skip => {}
                    Offer::Stop => return None,
                    Offer::Slot(slot) => {
                        let item = class_queue.entries.remove(at)?.item;
                        if class_queue.entries.is_empty() {
                            class_queue.serves_newest_first(&rules, now);
                            class_queue.earliest_deadline = NO_DEADLINE;
                        }
                        self.count_passes(priority);
                        return Some((item, slot));
                    }
                }
            }
            offers_left -= length.min(offers_left);
        }
        None
    }

    /// Updates the number of times that the other classes were passed over.
    fn count_passes(&mut self, chosen_priority: Priority) {
        for priority in PRIORITIES {
            let class_queue = &mut self.classes[priority as usize];
            class_queue.pass_count = match priority == chosen_priority || class_queue.entries.is_empty() {
                true => 0,
                false => class_queue.pass_count + 1,
            };
        }
    }

    /// Returns whether any waiting entry satisfies the condition.
    pub(crate) fn any(&self, predicate: impl Fn(&T) -> bool) -> bool {
        self.classes.iter().any(|class| class.entries.iter().any(|entry| predicate(&entry.item)))
    }

    /// Returns the most urgent class, unless another one was passed over too often.
    fn next_class(&self) -> Option<Priority> {
        let has_entries = |priority: &Priority| !self.classes[*priority as usize].entries.is_empty();
        let is_starved = |priority: &Priority| self.classes[*priority as usize].pass_count >= PASSES_MAX;
        let starved =
            PRIORITIES.into_iter().rev().find(|priority| has_entries(priority) && is_starved(priority));
        starved.or_else(|| PRIORITIES.into_iter().find(has_entries))
    }

    /// Evicts an entry for a newcomer of class `priority`. Takes the least urgent class below its
    /// own, and from that the entry that would be served last. If there is none and its own class
    /// is served newest first, evicts the oldest entry of that class.
    pub(crate) fn evict_for(&mut self, priority: Priority, now: MonotonicTime) -> Option<T> {
        let rules = self.rules;
        for lower in PRIORITIES.into_iter().rev().take_while(|lower| *lower > priority) {
            let class_queue = &mut self.classes[lower as usize];
            if !class_queue.entries.is_empty() {
                let newest_first = class_queue.serves_newest_first(&rules, now);
                let entries = &mut class_queue.entries;
                let evicted = if newest_first { entries.pop_front() } else { entries.pop_back() };
                return evicted.map(|out| out.item);
            }
        }
        let own_queue = &mut self.classes[priority as usize];
        match own_queue.serves_newest_first(&rules, now) {
            true => own_queue.entries.pop_front().map(|evicted| evicted.item),
            false => None,
        }
    }

    /// Expires entries that have waited too long, and those whose client leaves within
    /// `service_ns`, the usual time of a response.
    pub(crate) fn expire(
        &mut self,
        now: MonotonicTime,
        service_ns: u64,
        mut on_expired: impl FnMut(T, ExpiryReason),
    ) {
        let rules = self.rules;
        let end = now.saturating_add(service_ns);
        for class_queue in &mut self.classes {
            // Before old entries are removed, or the queue would never count as a standing queue.
            class_queue.serves_newest_first(&rules, now);
            let is_old = |entry: &QueueEntry<T>| now.since(entry.enqueued_at) >= rules.timeout_ns;
            while let Some(expired) = class_queue.entries.pop_front_if(|oldest| is_old(oldest)) {
                on_expired(expired.item, ExpiryReason::Timeout);
            }
            if class_queue.earliest_deadline < end {
                class_queue.expire_deadlines(end, &mut on_expired);
            }
        }
    }

    /// Removes an entry before its turn. Returns `None` if it has already left.
    pub(crate) fn remove(&mut self, position: QueuePosition, now: MonotonicTime) -> Option<T> {
        let window_ns = self.rules.standing_after_ns;
        let ClassQueue { entries, standing_detector, .. } = &mut self.classes[position.priority as usize];
        let at = entries.binary_search_by_key(&position.serial, |queued| queued.serial).ok()?;
        let removed = entries.remove(at)?;
        standing_detector.note_departure(now.since(removed.enqueued_at), window_ns, now);
        Some(removed.item)
    }
}

impl<T> ClassQueue<T> {
    fn expire_deadlines(&mut self, end: MonotonicTime, on_expired: &mut impl FnMut(T, ExpiryReason)) {
        let mut at = 0;
        self.earliest_deadline = NO_DEADLINE;
        while let Some(entry) = self.entries.get(at) {
            if entry.deadline >= end {
                self.earliest_deadline = self.earliest_deadline.min(entry.deadline);
                at += 1;
            } else if let Some(expired) = self.entries.remove(at) {
                on_expired(expired.item, ExpiryReason::Deadline);
            }
        }
    }
}

/// Returns the time in seconds after which a rejected client may find a slot. This is the time to
/// drain the queue, but at least as long as the queue has stood. From 1 to [`RETRY_AFTER_MAX_S`].
pub(crate) fn retry_after_s(queued: usize, service_ns: u64, slots: usize, standing_ns: u64) -> u64 {
    let queued = u64::try_from(queued).unwrap_or(u64::MAX);
    let slots = u64::try_from(slots).unwrap_or(u64::MAX).max(1);
    let drain_ns = queued.saturating_mul(service_ns) / slots;
    drain_ns.max(standing_ns).div_ceil(1_000_000_000).clamp(1, RETRY_AFTER_MAX_S)
}

pub(crate) const RETRY_AFTER_MAX_S: u64 = 30;

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
