//! The answers that a core has given lately, whole, by the bytes of the request head.
//!
//! What a head means is a function of its bytes, so a head that is the same to the last byte gets
//! the same answer, but for the date, without being read again. Load comes as such heads. Only
//! answers that leave nothing to chance, to time or to a body are kept.

use crate::date::{Dates, HTTP_BYTES};

/// One answer that is ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// The request's head, to its last byte.
    pub(crate) request: Vec<u8>,
    /// The answer's head, and its body when that is small.
    pub(crate) bytes: Vec<u8>,
    /// Where in `bytes` the date stands.
    pub(crate) date_at: usize,
    /// The second that this date shows.
    pub(crate) second: u64,
    /// Bytes of the pattern that follow `bytes`.
    pub(crate) fill: u64,
    pub(crate) status: u16,
    pub(crate) keeps: bool,
    pub(crate) unknown_option: bool,
    /// How long to wait for the next request, if the target said so.
    pub(crate) wait_ns: Option<u64>,
    /// The line for the access log, from the request on; empty when there is none.
    pub(crate) log: Vec<u8>,
}

/// A few of them.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: Vec<Ready>,
    /// The entry that was used last, which is looked at first.
    last: usize,
    misses: u32,
}

/// How many answers a core keeps.
const ENTRIES_MAX: usize = 8;
/// Longer heads are not kept.
const REQUEST_BYTES_MAX: usize = 2048;
/// One in so many misses replaces an entry, so that heads which are all different, of which none
/// is seen again, cost little and do not drive out the ones that come often.
const ADMIT_ONE_IN: u32 = 8;

impl Cache {
    /// The answer for the request that `input` starts with, if it is here.
    #[inline]
    pub(crate) fn find(&mut self, input: &[u8], dates: &Dates) -> Option<&Ready> {
        let is_it = |entry: &Ready| input.starts_with(&entry.request);
        if !self.entries.get(self.last).is_some_and(is_it) {
            self.last = self.entries.iter().position(is_it)?;
        }
        let entry = &mut self.entries[self.last];
        if entry.second != dates.second() {
            entry.second = dates.second();
            entry.bytes[entry.date_at..entry.date_at + HTTP_BYTES].copy_from_slice(&dates.http());
        }
        Some(entry)
    }

    /// A place to render a new answer into, emptied; `None` when this one is not to be kept.
    pub(crate) fn admit(&mut self, request: &[u8]) -> Option<&mut Ready> {
        let misses = self.misses;
        self.misses = misses.wrapping_add(1);
        if request.len() > REQUEST_BYTES_MAX || request.is_empty() {
            return None;
        }
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push(Ready::default());
            self.last = self.entries.len() - 1;
        } else if misses.is_multiple_of(ADMIT_ONE_IN) {
            self.last = (misses / ADMIT_ONE_IN) as usize % ENTRIES_MAX;
        } else {
            return None;
        }
        let entry = &mut self.entries[self.last];
        entry.request.clear();
        entry.request.extend_from_slice(request);
        entry.bytes.clear();
        entry.log.clear();
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_are_found_and_the_date_is_renewed() {
        let (mut cache, dates) = (Cache::default(), Dates::new());
        let entry = cache.admit(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        entry.bytes.extend_from_slice(&[b'-'; HTTP_BYTES + 2]);
        entry.date_at = 1;
        assert!(cache.find(b"GET / HTTP/1.1\r\n\r", &dates).is_none());
        assert!(cache.find(b"GET /x HTTP/1.1\r\n\r\n", &dates).is_none());
        let found = cache.find(b"GET / HTTP/1.1\r\n\r\nGET", &dates).unwrap();
        assert_eq!(&found.bytes[1..=HTTP_BYTES], &dates.http());
        assert_eq!((found.bytes[0], found.bytes[HTTP_BYTES + 1]), (b'-', b'-'));
    }

    #[test]
    fn it_stays_small_and_long_heads_stay_out() {
        let mut cache = Cache::default();
        for number in 0..1000 {
            cache.admit(format!("{number}").as_bytes());
        }
        assert_eq!(cache.entries.len(), ENTRIES_MAX);
        assert!(cache.admit(&[b'x'; REQUEST_BYTES_MAX + 1]).is_none());
    }
}
