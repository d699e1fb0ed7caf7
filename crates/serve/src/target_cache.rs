//! Cache of the recent targets of a core that get the same response each time. Uses no I/O.
//!
//! A load repeats its targets. Their options are parsed once, and each connection keeps their encoded
//! heads as long as the date and its table are the same.

use wire::h2::RepeatableHead;

use crate::recent::RecentEntries;
use crate::response_spec::{RequestProperties, ResponseSpec};

#[derive(Debug, Default)]
pub(crate) struct CachedTarget {
    target: Vec<u8>,
    pub(crate) id: u64,
    pub(crate) spec: ResponseSpec,
    pub(crate) has_unknown: bool,
    /// True if the response needs only a head and its content in frames of any size.
    pub(crate) is_simple: bool,
}

#[derive(Debug, Default)]
pub(crate) struct TargetCache {
    recent: RecentEntries<CachedTarget>,
    last_id: u64,
}

/// Maximum size of a cached target.
const TARGET_BYTES_MAX: usize = 512;

impl TargetCache {
    #[inline]
    pub(crate) fn find(&mut self, target: &[u8]) -> Option<usize> {
        self.recent.find(|entry| entry.target == target)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&CachedTarget> {
        self.recent.get(index)
    }

    /// Returns the target with this index if its response is simple.
    #[inline]
    pub(crate) fn simple(&self, index: usize) -> Option<&CachedTarget> {
        self.recent.get(index).filter(|entry| entry.is_simple)
    }

    /// Adds the response to a target, unless others are more useful.
    pub(crate) fn admit(&mut self, target: &[u8], spec: ResponseSpec, has_unknown: bool) {
        let Some(entry) = self.recent.admit(target.len() <= TARGET_BYTES_MAX) else { return };
        self.last_id += 1;
        let is_simple = is_simple(&spec);
        *entry = CachedTarget { target: target.to_vec(), id: self.last_id, spec, has_unknown, is_simple };
    }
}

/// Returns whether a response needs only a head and its content in frames of any size.
fn is_simple(spec: &ResponseSpec) -> bool {
    let properties = RequestProperties { version: wire::Version::Http11, is_head: false, keep_alive: true };
    spec.status >= 200
        && spec.is_immediate()
        && !spec.is_chunked(properties)
        && !spec.closes_http2()
        && spec.idle_timeout_ns.is_none()
}

/// Encoded heads of a connection, by the target.
#[derive(Debug, Default)]
pub(crate) struct EncodedHeads {
    heads: [Option<EncodedHead>; HEADS_MAX],
}

/// Encoded head of the response to a target, valid within one second.
#[derive(Clone, Copy, Debug)]
struct EncodedHead {
    target_id: u64,
    date_second: u64,
    head: RepeatableHead,
}

/// Maximum number of encoded heads of a connection.
const HEADS_MAX: usize = 4;

impl EncodedHeads {
    #[inline]
    pub(crate) fn find(&self, target_id: u64, date_second: u64) -> Option<&RepeatableHead> {
        let encoded = self.heads[target_id as usize % HEADS_MAX].as_ref()?;
        (encoded.target_id == target_id && encoded.date_second == date_second).then_some(&encoded.head)
    }

    pub(crate) fn store(&mut self, target_id: u64, date_second: u64, head: Option<RepeatableHead>) {
        self.heads[target_id as usize % HEADS_MAX] =
            head.map(|head| EncodedHead { target_id, date_second, head });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::ENTRIES_MAX;

    #[test]
    fn only_the_same_target_is_found_and_each_entry_has_its_own_id() {
        let mut cache = TargetCache::default();
        let spec = |size| ResponseSpec::with_size(200, size);
        for number in 0..1000 {
            cache.admit(format!("/{number}").as_bytes(), spec(number), false);
        }
        let index = cache.find(b"/992").unwrap();
        assert_eq!(cache.get(index).unwrap().spec.size, 992);
        let ids: std::collections::BTreeSet<u64> =
            (0..ENTRIES_MAX).map(|at| cache.get(at).unwrap().id).collect();
        assert_eq!(ids.len(), ENTRIES_MAX);
        assert!(cache.find(b"/x").is_none());
        cache.admit(&[b'x'; TARGET_BYTES_MAX + 1], spec(1), false);
        assert!(cache.find(&[b'x'; TARGET_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn responses_with_a_wait_or_work_are_not_simple() {
        let fixed = ResponseSpec::with_size(200, 5);
        assert!(is_simple(&fixed));
        for spec in [
            ResponseSpec { delay_ns: 1, ..fixed },
            ResponseSpec { cpu_ns: 1, ..fixed },
            ResponseSpec { chunk_bytes: 1, ..fixed },
            ResponseSpec { random_body: true, ..fixed },
            ResponseSpec { status: 103, ..fixed },
            ResponseSpec { idle_timeout_ns: Some(1), ..fixed },
        ] {
            assert!(!is_simple(&spec), "{spec:?}");
        }
    }
}
