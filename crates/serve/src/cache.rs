//! Cache of the recent complete responses of a core, by the bytes of the request head.
//!
//! The meaning of a head depends only on its bytes. An identical head therefore gets the same
//! response, except for the date, without being parsed again. A load sends such heads. The cache
//! only keeps responses without randomness, delays or request bodies. A response from files is kept within
//! its second only.

use server_shell::date::{DateCache, HTTP_DATE_BYTES};

use crate::recent::RecentEntries;

/// One response that is ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct CachedResponse {
    /// Head of the request, to its last byte.
    pub(crate) request: Vec<u8>,
    /// Head of the response, and its body if that is small.
    pub(crate) bytes: Vec<u8>,
    pub(crate) date_offset: usize,
    pub(crate) date_second: u64,
    /// Number of bytes of the pattern that follow `bytes`.
    pub(crate) pattern_bytes: u64,
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    pub(crate) unknown_option: bool,
    /// True if it depends on a file.
    pub(crate) is_from_file: bool,
    /// Time to wait for the next request, in ns, if the target set it.
    pub(crate) idle_timeout_ns: Option<u64>,
    /// Line for the access log, from the request on; empty if there is no log.
    pub(crate) log_line: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct ResponseCache {
    recent: RecentEntries<CachedResponse>,
}

/// Maximum size of a cached head.
const REQUEST_BYTES_MAX: usize = 2048;

impl ResponseCache {
    /// Returns the response to the request that `input` starts with, if it is cached.
    #[inline]
    pub(crate) fn find(&mut self, input: &[u8], dates: &DateCache) -> Option<&CachedResponse> {
        let index = self.recent.find(|entry| input.starts_with(&entry.request))?;
        let is_current = |entry: &CachedResponse| entry.date_second == dates.second() || !entry.is_from_file;
        if !self.recent.get(index).is_some_and(is_current) {
            self.recent.remove(index);
            return None;
        }
        let entry = self.recent.get_mut(index)?;
        if entry.date_second != dates.second() {
            entry.date_second = dates.second();
            entry.bytes[entry.date_offset..entry.date_offset + HTTP_DATE_BYTES]
                .copy_from_slice(&dates.http());
        }
        Some(entry)
    }

    /// Returns an emptied entry for a new response; `None` if this response is not to be cached.
    pub(crate) fn admit(&mut self, request: &[u8]) -> Option<&mut CachedResponse> {
        let entry = self.recent.admit(!request.is_empty() && request.len() <= REQUEST_BYTES_MAX)?;
        entry.request.clear();
        entry.request.extend_from_slice(request);
        entry.bytes.clear();
        entry.log_line.clear();
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_are_found_and_the_date_is_renewed() {
        let (mut cache, dates) = (ResponseCache::default(), DateCache::default());
        let entry = cache.admit(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        entry.bytes.extend_from_slice(&[b'-'; HTTP_DATE_BYTES + 2]);
        entry.date_offset = 1;
        assert!(cache.find(b"GET / HTTP/1.1\r\n\r", &dates).is_none());
        assert!(cache.find(b"GET /x HTTP/1.1\r\n\r\n", &dates).is_none());
        let cached = cache.find(b"GET / HTTP/1.1\r\n\r\nGET", &dates).unwrap();
        assert_eq!(&cached.bytes[1..=HTTP_DATE_BYTES], &dates.http());
        assert_eq!((cached.bytes[0], cached.bytes[HTTP_DATE_BYTES + 1]), (b'-', b'-'));
    }

    #[test]
    fn long_heads_and_none_stay_out() {
        let mut cache = ResponseCache::default();
        assert!(cache.admit(&[b'x'; REQUEST_BYTES_MAX]).is_some());
        assert!(cache.admit(&[b'x'; REQUEST_BYTES_MAX + 1]).is_none() && cache.admit(b"").is_none());
    }
}
