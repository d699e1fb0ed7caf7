//! Results that stay valid for a time: a bounded table whose oldest entry makes room for a new one. Keys are keyed
//! hashes, so that no secret is in memory for longer than its request. Pure.

use std::collections::{HashMap, VecDeque};

use hmac::{Hmac, KeyInit as _, Mac as _};
use rt::clock::MonotonicTime;
use sha2::Sha256;

/// Keyed hash of credentials.
pub(crate) type CredentialDigest = [u8; 32];

/// Secret of a core, for the keys of its tables.
pub(crate) struct DigestKey(Hmac<Sha256>);

impl DigestKey {
    pub(crate) fn random() -> Self {
        let mut key = [0; 32];
        // The kernel's source of random numbers does not fail once the process runs; a fixed key would still only be
        // known to this process.
        let _ = aws_lc_rs::rand::fill(&mut key);
        Self::new(&key)
    }

    pub(crate) fn new(key: &[u8; 32]) -> Self {
        // HMAC takes keys of any length.
        Self(Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!("a key of any length is valid")))
    }

    /// Returns the digest of parts, each of which has its own length.
    pub(crate) fn digest(&self, parts: &[&[u8]]) -> CredentialDigest {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// A bounded table of results.
pub(crate) struct ResultCache<V> {
    entries: HashMap<CredentialDigest, Entry<V>>,
    /// Keys by age, each with the number of its entry: a key that was replaced is left out.
    order: VecDeque<(CredentialDigest, u64)>,
    next_number: u64,
}

struct Entry<V> {
    value: V,
    valid_until: MonotonicTime,
    number: u64,
}

impl<V> Default for ResultCache<V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), next_number: 0 }
    }
}

impl<V> ResultCache<V> {
    /// Returns a result that is still valid.
    pub(crate) fn get(&mut self, key: &CredentialDigest, now: MonotonicTime) -> Option<&V> {
        if self.entries.get(key)?.valid_until <= now {
            self.entries.remove(key);
            return None;
        }
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Adds a result. The oldest ones make room for it beyond `max` entries.
    pub(crate) fn insert(
        &mut self,
        key: CredentialDigest,
        value: V,
        (now, valid_until): (MonotonicTime, MonotonicTime),
        max: usize,
    ) {
        if max == 0 || valid_until <= now {
            return;
        }
        self.next_number += 1;
        let number = self.next_number;
        self.entries.insert(key, Entry { value, valid_until, number });
        self.order.push_back((key, number));
        // Also removes the keys of entries that have expired or were replaced, so both stay bounded.
        while self.entries.len() > max || self.order.len() > 2 * max {
            let Some((oldest, number)) = self.order.pop_front() else { break };
            if self.entries.get(&oldest).is_some_and(|entry| entry.number == number) {
                self.entries.remove(&oldest);
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    #[test]
    fn a_result_is_valid_for_its_time() {
        let (mut cache, key) = (ResultCache::default(), [1; 32]);
        cache.insert(key, "a", (at(10), at(20)), 4);
        assert_eq!(cache.get(&key, at(19)), Some(&"a"));
        assert!(cache.get(&[2; 32], at(19)).is_none() && cache.get(&key, at(20)).is_none());
        assert_eq!(cache.len(), 0);
        cache.insert(key, "late", (at(20), at(20)), 4);
        assert_eq!(cache.get(&key, at(0)), None);
    }

    #[test]
    fn the_oldest_results_make_room() {
        let mut cache = ResultCache::default();
        for number in 0..100_u8 {
            // Each key twice: a replaced entry does not count.
            for _ in 0..2 {
                cache.insert([number; 32], number, (at(0), at(10)), 3);
            }
            assert!(cache.len() <= 3 && cache.order.len() <= 6);
        }
        let present: Vec<u8> = (0..100).filter(|number| cache.get(&[*number; 32], at(1)).is_some()).collect();
        assert_eq!(present, [97, 98, 99]);
        cache.insert([0; 32], 0, (at(0), at(10)), 0);
        assert!(cache.get(&[0; 32], at(1)).is_none());
    }

    #[test]
    fn digests_depend_on_the_key_and_on_the_borders_of_parts() {
        let [key, other_key] = [1, 2].map(|byte| DigestKey::new(&[byte; 32]));
        assert_eq!(key.digest(&[b"ab", b"c"]), key.digest(&[b"ab", b"c"]));
        assert_ne!(key.digest(&[b"ab", b"c"]), key.digest(&[b"a", b"bc"]));
        assert_ne!(key.digest(&[b"ab", b"c"]), other_key.digest(&[b"ab", b"c"]));
    }
}
