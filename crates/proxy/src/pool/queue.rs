//! The line of one core before a pool: who is next, who has waited too long, who has to go for
//! another. Pure: time is an argument, what waits is any `T`.
//!
//! ```text
//! push --> high    oldest ... newest   strict, but who is passed over PASSES_MAX times has a turn;
//!          normal  oldest ... newest   the oldest first while a class is short,
//!          low     oldest ... newest   the newest first when it stands (codel)
//!            |         |         |
//!            |         |         '--> evict: for a more urgent one, or, when it stands, a newer one
//!            |         '--> expire: too old, or its client's deadline cannot be held any more
//!            '--> take: room came up
//! ```

use std::collections::VecDeque;

use super::codel::Window;
use crate::plan::{Priority, QueueOrder};

/// How often a class that waits is passed over before it has a turn: of so many and one, it gets
/// one.
const PASSES_MAX: u32 = 15;

/// How many are asked at a time whether there is room for them, where some will have one server
/// only.
const LOOKS_MAX: usize = 256;

/// What there is for one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer<R> {
    /// Room.
    Room(R),
    /// Nothing, but there may be something for another.
    NotThis,
    /// Nothing for anybody.
    Nobody,
}

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// How a queue is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) order: QueueOrder,
    pub(crate) timeout_ns: u64,
    pub(crate) stands_after_ns: u64,
}

/// A place in the queue, for who wants to leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    class: Priority,
    serial: u64,
}

/// Why one is put out before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// It has waited for as long as any may.
    Waited,
    /// Its client would have left before the answer.
    Deadline,
}

/// Those that wait.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    rules: Rules,
    classes: [Class<T>; Priority::COUNT],
    next_serial: u64,
}

#[derive(Debug)]
struct Class<T> {
    waiting: VecDeque<Waiting<T>>,
    window: Window,
    /// Grants to other classes since its last one, while it waited.
    passed: u32,
    /// No deadline of those that wait is earlier.
    first_deadline_ns: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    serial: u64,
    since_ns: u64,
    /// When its client leaves; [`NEVER`]: it does not say.
    deadline_ns: u64,
    item: T,
}

const CLASSES: [Priority; Priority::COUNT] = [Priority::High, Priority::Normal, Priority::Low];

impl<T> Class<T> {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            window: Window::new(),
            passed: 0,
            first_deadline_ns: NEVER,
        }
    }

    /// Whether the newest is first.
    fn is_reversed(&mut self, rules: &Rules, now_ns: u64) -> bool {
        let oldest_ns = self.waiting.front().map(|oldest| oldest.since_ns);
        let stands = self.window.look(oldest_ns, rules.stands_after_ns, now_ns);
        match rules.order {
            QueueOrder::Adaptive => stands,
            QueueOrder::OldestFirst => false,
            QueueOrder::NewestFirst => true,
        }
    }
}

impl<T> Queue<T> {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, classes: std::array::from_fn(|_| Class::new()), next_serial: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.waiting.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.classes.iter().map(|class| class.waiting.len()).sum()
    }

    /// For how long the class that has stood longest has stood.
    pub(crate) fn stood_ns(&self, now_ns: u64) -> u64 {
        self.classes.iter().map(|class| class.window.stood_ns(now_ns)).max().unwrap_or(0)
    }

    /// Goes to the end of the line. Its length is bounded by the caller, who knows of other cores.
    pub(crate) fn push(
        &mut self,
        class: Priority,
        now_ns: u64,
        deadline_ns: u64,
        item: T,
    ) -> Place {
        let serial = self.next_serial;
        self.next_serial += 1;
        let rules = self.rules;
        let line = &mut self.classes[class as usize];
        // How it was until now, with the newcomer left out.
        line.is_reversed(&rules, now_ns);
        line.first_deadline_ns = line.first_deadline_ns.min(deadline_ns);
        line.waiting.push_back(Waiting { serial, since_ns: now_ns, deadline_ns, item });
        Place { class, serial }
    }

    /// The next one to be served.
    #[cfg(test)]
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<T> {
        self.take_with(now_ns, &mut |_| Offer::Room(())).map(|(item, ())| item)
    }

    /// The next one to be served that there is room for, with what that is. At most
    /// [`LOOKS_MAX`] are asked.
    pub(crate) fn take_with<R>(
        &mut self,
        now_ns: u64,
        offer: &mut impl FnMut(&T) -> Offer<R>,
    ) -> Option<(T, R)> {
        let first = self.next_class()?;
        let others = CLASSES.into_iter().filter(|class| *class != first);
        let mut looks = LOOKS_MAX;
        for class in std::iter::once(first).chain(others) {
            let rules = self.rules;
            let line = &mut self.classes[class as usize];
            let newest = line.is_reversed(&rules, now_ns);
            let length = line.waiting.len();
            for step in 0..length.min(looks) {
                let at = if newest { length - 1 - step } else { step };
                match offer(&line.waiting[at].item) {
                    Offer::NotThis => {}
                    Offer::Nobody => return None,
                    Offer::Room(room) => {
                        let taken = line.waiting.remove(at)?.item;
                        if line.waiting.is_empty() {
                            line.is_reversed(&rules, now_ns);
                            line.first_deadline_ns = NEVER;
                        }
                        self.note_taken(class);
                        return Some((taken, room));
                    }
                }
            }
            looks -= length.min(looks);
        }
        None
    }

    /// The others were passed over.
    fn note_taken(&mut self, chosen: Priority) {
        for class in CLASSES {
            let line = &mut self.classes[class as usize];
            line.passed = match class == chosen || line.waiting.is_empty() {
                true => 0,
                false => line.passed + 1,
            };
        }
    }

    /// Whether one of those that wait is such.
    pub(crate) fn any(&self, is_such: impl Fn(&T) -> bool) -> bool {
        self.classes.iter().any(|class| class.waiting.iter().any(|one| is_such(&one.item)))
    }

    /// The most urgent class, unless another was passed over too often.
    fn next_class(&self) -> Option<Priority> {
        let waits = |class: &Priority| !self.classes[*class as usize].waiting.is_empty();
        let starves = |class: &Priority| self.classes[*class as usize].passed >= PASSES_MAX;
        let starved = CLASSES.into_iter().rev().find(|class| waits(class) && starves(class));
        starved.or_else(|| CLASSES.into_iter().find(waits))
    }

    /// Puts one out for a newcomer of `class`: the one of the least urgent class below its own that
    /// would be served last; or, where its own class is served newest first, the oldest of that.
    pub(crate) fn evict_for(&mut self, class: Priority, now_ns: u64) -> Option<T> {
        let rules = self.rules;
        for lower in CLASSES.into_iter().rev().take_while(|lower| *lower > class) {
            let line = &mut self.classes[lower as usize];
            if !line.waiting.is_empty() {
                let newest_first = line.is_reversed(&rules, now_ns);
                let waiting = &mut line.waiting;
                let out = if newest_first { waiting.pop_front() } else { waiting.pop_back() };
                return out.map(|out| out.item);
            }
        }
        let own = &mut self.classes[class as usize];
        match own.is_reversed(&rules, now_ns) {
            true => own.waiting.pop_front().map(|out| out.item),
            false => None,
        }
    }

    /// Puts out those that have waited too long, and those whose client leaves within `service_ns`,
    /// which is what an answer takes.
    pub(crate) fn expire(&mut self, now_ns: u64, service_ns: u64, mut out: impl FnMut(T, Late)) {
        let rules = self.rules;
        let end_ns = now_ns.saturating_add(service_ns);
        for line in &mut self.classes {
            // Before the old ones are gone, or it would never be seen to stand.
            line.is_reversed(&rules, now_ns);
            let is_old = |one: &Waiting<T>| now_ns.saturating_sub(one.since_ns) >= rules.timeout_ns;
            while let Some(old) = line.waiting.pop_front_if(|oldest| is_old(oldest)) {
                out(old.item, Late::Waited);
            }
            if line.first_deadline_ns < end_ns {
                line.expire_deadlines(end_ns, &mut out);
            }
        }
    }

    /// Leaves before its turn; `None`: it has left already.
    pub(crate) fn remove(&mut self, place: Place) -> Option<T> {
        let waiting = &mut self.classes[place.class as usize].waiting;
        let at = waiting.binary_search_by_key(&place.serial, |one| one.serial).ok()?;
        waiting.remove(at).map(|one| one.item)
    }
}

impl<T> Class<T> {
    fn expire_deadlines(&mut self, end_ns: u64, out: &mut impl FnMut(T, Late)) {
        let mut at = 0;
        self.first_deadline_ns = NEVER;
        while let Some(one) = self.waiting.get(at) {
            if one.deadline_ns >= end_ns {
                self.first_deadline_ns = self.first_deadline_ns.min(one.deadline_ns);
                at += 1;
            } else if let Some(late) = self.waiting.remove(at) {
                out(late.item, Late::Deadline);
            }
        }
    }
}

/// In how many seconds a client that was refused may find room: what waits divided by what is
/// served, and not before the queue has stood as long again. From 1 to [`RETRY_AFTER_MAX_S`].
pub(crate) fn retry_after_s(waiting: usize, service_ns: u64, places: usize, stood_ns: u64) -> u64 {
    let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
    let places = u64::try_from(places).unwrap_or(u64::MAX).max(1);
    let drained_ns = waiting.saturating_mul(service_ns) / places;
    drained_ns.max(stood_ns).div_ceil(1_000_000_000).clamp(1, RETRY_AFTER_MAX_S)
}

/// What a client is told to wait at most.
pub(crate) const RETRY_AFTER_MAX_S: u64 = 30;

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
