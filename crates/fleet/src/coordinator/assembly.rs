//! Assembly of a record from its parts, which arrive in order unless one is lost.

use record::digest::sha256_base64;

use crate::message::{PART_BYTES, RECORD_BYTES_MAX, StoredRun};

/// Record that arrives in parts.
#[derive(Clone, Debug)]
pub(super) struct RecordAssembly {
    bytes_total: u64,
    digest: String,
    bytes: Vec<u8>,
    next_part: u32,
    /// Time of the last request or part.
    progress_ns: Option<u64>,
}

/// Time without a part after which the rest is requested again.
const REQUEST_INTERVAL_NS: u64 = 1_000_000_000;

/// Difference between an arrived record and the one that the agent described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its record arrived with another digest")]
pub(super) struct DigestMismatch;

impl RecordAssembly {
    pub(super) fn new(stored: &StoredRun) -> Self {
        Self {
            bytes_total: stored.bytes.min(RECORD_BYTES_MAX),
            digest: stored.digest.clone(),
            bytes: Vec::new(),
            next_part: 0,
            progress_ns: None,
        }
    }

    /// Returns the first missing part if it is time to request it.
    pub(super) fn request(&mut self, now_ns: u64) -> Option<u32> {
        if self.is_receiving(now_ns) {
            return None;
        }
        self.progress_ns = Some(now_ns);
        Some(self.next_part)
    }

    /// Returns whether a part arrived, or was requested, a short time ago.
    pub(super) fn is_receiving(&self, now_ns: u64) -> bool {
        self.progress_ns.is_some_and(|progress_ns| now_ns < progress_ns + REQUEST_INTERVAL_NS)
    }

    /// Adds a part. Returns the complete record, or the reason why it starts again.
    pub(super) fn add(
        &mut self,
        part: u32,
        bytes: &[u8],
        now_ns: u64,
    ) -> Option<Result<Vec<u8>, DigestMismatch>> {
        let left = self.bytes_total.saturating_sub(self.bytes.len() as u64);
        // A part that was repeated, or that follows a lost one.
        if part != self.next_part || bytes.len() as u64 != left.min(PART_BYTES as u64) {
            return None;
        }
        self.progress_ns = Some(now_ns);
        self.bytes.extend_from_slice(bytes);
        self.next_part += 1;
        if (self.bytes.len() as u64) < self.bytes_total {
            return None;
        }
        let record = std::mem::take(&mut self.bytes);
        let is_intact = std::str::from_utf8(&record).is_ok_and(|text| sha256_base64(text) == self.digest);
        if is_intact {
            return Some(Ok(record));
        }
        (self.next_part, self.progress_ns) = (0, None);
        Some(Err(DigestMismatch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::RunId;

    #[test]
    fn parts_are_assembled_in_order_and_lost_ones_requested_again() {
        let text = "y".repeat(2 * PART_BYTES + 5);
        let parts: Vec<&[u8]> = text.as_bytes().chunks(PART_BYTES).collect();
        let stored = StoredRun {
            run: RunId::parse("r").unwrap(),
            start_ns: None,
            bytes: text.len() as u64,
            digest: sha256_base64(&text),
        };
        let mut assembly = RecordAssembly::new(&stored);
        assert_eq!((assembly.request(1), assembly.request(2)), (Some(0), None));
        assert_eq!(assembly.add(0, parts[0], 3), None);
        assert_eq!(assembly.add(2, parts[2], 4), None, "a part is missing before it");
        assert_eq!(assembly.add(0, parts[0], 4), None, "a repeated part");
        assert_eq!(assembly.request(3 + REQUEST_INTERVAL_NS), Some(1));
        assert_eq!(assembly.add(1, parts[1], 5), None);
        assert_eq!(assembly.add(2, b"too long", 5), None);
        assert_eq!(assembly.add(2, parts[2], 5), Some(Ok(text.clone().into_bytes())));
    }

    #[test]
    fn a_record_with_another_digest_starts_again() {
        let stored = StoredRun {
            run: RunId::parse("r").unwrap(),
            start_ns: None,
            bytes: 3,
            digest: sha256_base64("abc"),
        };
        let mut assembly = RecordAssembly::new(&stored);
        assert!(assembly.add(0, b"abd", 1).unwrap().is_err());
        assert_eq!(assembly.add(0, b"toolong", 1), None);
        assert_eq!(assembly.add(0, b"abc", 1), Some(Ok(b"abc".to_vec())));
    }
}
