//! Servers of sessions that are known by a text of their requests: a table of fixed size, shared by all cores.
//! An entry is one word, so cores read and write it without a lock. A key belongs to a set of a few entries, of
//! which a new key replaces the one that was unused for longest.
//!
//! A word has 24 bits of the digest of the key. Another key of the same set can have the same bits; its session
//! then has the server of the other one, which is as good as any.

use std::sync::atomic::{AtomicU64, Ordering};

use rt::clock::{MonotonicTime, SECOND_NS};

use crate::plan::StickyTextPlan;

/// Entries of a set: a line of the cache.
const SET_ENTRIES: usize = 8;
/// Unit of the time at which an entry was last used. Differences of 16 bits of it are up to 36 hours.
const TIME_UNIT_NS: u64 = 4 * SECOND_NS;
const PART_MASK: u64 = (1 << 24) - 1;

#[repr(align(64))]
#[derive(Debug, Default)]
struct Set([AtomicU64; SET_ENTRIES]);

#[derive(Debug)]
pub(crate) struct StickyTable {
    sets: Box<[Set]>,
    expire: u16,
    plan: (usize, u64),
}

/// An entry, from its word: 24 bits of the key, 24 bits of the server, and the time of the last use.
#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    server: u64,
    used: u16,
}

impl Entry {
    /// Returns the entry of a word. `None`: it is empty.
    fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self {
            key: word >> 40,
            server: word >> 16 & PART_MASK,
            used: (word & 0xffff) as u16,
        })
    }

    fn word(self) -> u64 {
        self.key << 40 | self.server << 16 | u64::from(self.used)
    }
}

/// Returns the part of a server's digest that an entry has.
pub(crate) fn server_part(digest: u64) -> u64 {
    digest >> 40
}

fn time_units(now: MonotonicTime) -> u16 {
    (now.as_ns() / TIME_UNIT_NS) as u16
}

/// Returns the units since a time; none if another core has used the entry since `now`.
fn idle_units(now: u16, used: u16) -> u16 {
    (now.wrapping_sub(used) as i16).max(0) as u16
}

impl StickyTable {
    pub(crate) fn new(plan: &StickyTextPlan) -> Self {
        let sets = plan.entries_max.div_ceil(SET_ENTRIES).max(1);
        // The longest time is below the range of the units.
        let expire = plan.expire_ns.div_ceil(TIME_UNIT_NS).min(i16::MAX as u64) as u16;
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
            expire,
            plan: (plan.entries_max, plan.expire_ns),
        }
    }

    /// Returns whether the table is one for these settings.
    pub(crate) fn is_for(&self, plan: &StickyTextPlan) -> bool {
        self.plan == (plan.entries_max, plan.expire_ns)
    }

    /// Returns the part of the server's digest that a key has.
    pub(crate) fn find(&self, key: u64, now: MonotonicTime) -> Option<u64> {
        let now = time_units(now);
        let (set, key) = self.place(key);
        for slot in &set.0 {
            let word = slot.load(Ordering::Relaxed);
            let Some(entry) = Entry::from_word(word).filter(|entry| entry.key == key) else { continue };
            if idle_units(now, entry.used) > self.expire {
                return None;
            }
            if idle_units(now, entry.used) > 0 {
                // If another core has just changed the entry, that change stays.
                let used = Entry { used: now, ..entry }.word();
                let _ = slot.compare_exchange(word, used, Ordering::Relaxed, Ordering::Relaxed);
            }
            return Some(entry.server);
        }
        None
    }

    /// Remembers the server of a key. A server that the key already has stays, unless `replaces`.
    pub(crate) fn remember(&self, key: u64, server_digest: u64, replaces: bool, now: MonotonicTime) {
        let now = time_units(now);
        let (set, key) = self.place(key);
        let new = Entry { key, server: server_part(server_digest), used: now }.word();
        let first = key as usize >> 1;
        // Units since the last use of the most idle entry; an empty one counts as idle for ever.
        let mut most_idle: Option<(u32, &AtomicU64)> = None;
        // Keys begin at different entries, so that of several equally idle ones not always the same goes.
        for slot in (first..first + SET_ENTRIES).map(|slot| &set.0[slot % SET_ENTRIES]) {
            let word = slot.load(Ordering::Relaxed);
            let idle = match Entry::from_word(word) {
                Some(entry) if entry.key == key => {
                    if replaces || idle_units(now, entry.used) > self.expire {
                        slot.store(new, Ordering::Relaxed);
                    }
                    return;
                }
                Some(entry) => u32::from(idle_units(now, entry.used)),
                None => u32::MAX,
            };
            if most_idle.is_none_or(|(other, _)| idle > other) {
                most_idle = Some((idle, slot));
            }
        }
        if let Some((_, slot)) = most_idle {
            slot.store(new, Ordering::Relaxed);
        }
    }

    /// Returns the set of a key, and the part of it that its entry has, which is never 0.
    fn place(&self, key: u64) -> (&Set, u64) {
        let index = ((key & 0xffff_ffff) * self.sets.len() as u64) >> 32;
        (&self.sets[index as usize], key >> 40 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_digest::digest;
    use crate::test_time::at;

    fn table(entries_max: usize, expire_s: u64) -> StickyTable {
        let key = crate::template::parse_value("cookie.id", crate::template::Scope::Key, Default::default());
        StickyTable::new(&StickyTextPlan { key: key.unwrap(), entries_max, expire_ns: expire_s * SECOND_NS })
    }

    #[test]
    fn sessions_keep_their_servers_until_they_are_unused() {
        let (table, key, now) = (table(1_000, 60), digest(b"session"), |s| at(s * SECOND_NS));
        let server = |name: &str| digest(name.as_bytes());
        assert_eq!(table.find(key, now(1)), None);
        table.remember(key, server("a"), false, now(1));
        table.remember(key, server("b"), false, now(2));
        assert_eq!(table.find(key, now(50)), Some(server_part(server("a"))));
        // Each use counts.
        assert_eq!(table.find(key, now(100)), Some(server_part(server("a"))));
        table.remember(key, server("b"), true, now(101));
        assert_eq!(table.find(key, now(102)), Some(server_part(server("b"))));
        assert_eq!(table.find(key, now(102 + 70)), None);
        table.remember(key, server("c"), false, now(200));
        assert_eq!(table.find(key, now(201)), Some(server_part(server("c"))));
    }

    #[test]
    fn a_full_table_forgets_the_sessions_that_were_unused_for_longest() {
        let (table, server) = (table(800, 3_600), digest(b"a"));
        for session in 0..400_u32 {
            table.remember(digest(&session.to_le_bytes()), server, false, at(SECOND_NS));
        }
        let known = |from: u32, to: u32, s: u64| {
            let known =
                |session: &u32| table.find(digest(&session.to_le_bytes()), at(s * SECOND_NS)).is_some();
            (from..to).filter(known).count()
        };
        assert!(known(0, 400, 40) > 380, "{}", known(0, 400, 40));
        for session in 1_000..11_000_u32 {
            table.remember(digest(&session.to_le_bytes()), server, false, at(80 * SECOND_NS));
        }
        assert!(known(0, 400, 80) < 10 && known(10_900, 11_000, 80) > 80);
        // The clock of another core may be behind.
        assert!(known(10_900, 11_000, 70) > 80);
    }
}
