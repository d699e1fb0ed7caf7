//! Content on its way to encryption: several slices as one, at an address that can be copied fast.
//!
//! rustls copies content into a block of its own. glibc copies blocks of this size with `rep movsb`,
//! which takes 25 times as long on AMD Zen 3 and 4 if the destination is a few bytes behind the source
//! modulo 4 KiB (3.5 instead of 90 GB/s on an EPYC; glibc bug 30994). Buffers of bodies begin at pages,
//! and so does the block of a record, with the content behind its header: exactly this case.

use std::io::IoSlice;

/// Maximum number of content bytes that one write encrypts: four full records (RFC 8446 §5.1).
pub(super) const WRITE_BYTES_MAX: usize = 64 * 1024;

const PAGE_BYTES: usize = 4_096;
const SLOW_DISTANCE_MAX: usize = 64;
/// Offset of a record's content in its block: the length of a record header (RFC 8446 §5.1).
const RECORD_HEADER_BYTES: usize = 5;
/// Offsets in a page at which content may start: one of them is far from any source, and both are far
/// from the content of a record.
const STARTS: [usize; 2] = [1_024, 3_072];

/// Returns true if copies between these addresses are slow.
fn copies_slowly(source: usize, destination: usize) -> bool {
    (1..SLOW_DISTANCE_MAX).contains(&(destination.wrapping_sub(source) % PAGE_BYTES))
}

/// Buffer of a core for content.
#[derive(Debug, Default)]
pub(super) struct Staging(Vec<u8>);

impl Staging {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the first bytes of `slices`, at most [`WRITE_BYTES_MAX`]: in place, if they are one slice
    /// that is copied fast.
    pub(super) fn content<'a>(&'a mut self, slices: &'a [IoSlice<'_>]) -> &'a [u8] {
        if let [only] = slices
            && !copies_slowly(only.as_ptr() as usize, RECORD_HEADER_BYTES)
        {
            return &only[..only.len().min(WRITE_BYTES_MAX)];
        }
        if self.0.is_empty() {
            self.0.resize(WRITE_BYTES_MAX + 2 * PAGE_BYTES, 0);
        }
        let source = slices.iter().max_by_key(|slice| slice.len()).map_or(0, |slice| slice.as_ptr() as usize);
        let base = self.0.as_ptr() as usize;
        let [first, second] = STARTS.map(|start| start.wrapping_sub(base) % PAGE_BYTES);
        let start = if copies_slowly(source, base + first) { second } else { first };
        let mut end = start;
        for slice in slices {
            let bytes = slice.len().min(WRITE_BYTES_MAX - (end - start));
            self.0[end..end + bytes].copy_from_slice(&slice[..bytes]);
            end += bytes;
        }
        &self.0[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_modulo_a_page() {
        assert!(copies_slowly(0x1000, 0x8005));
        assert!(copies_slowly(0x1ffe, 0x8001));
        assert!(!copies_slowly(0x1000, 0x8000));
        assert!(!copies_slowly(0x1005, 0x8000));
        assert!(!copies_slowly(0x1000, 0x8800));
    }

    #[test]
    fn content_is_the_start_of_all_slices() {
        let mut staging = Staging::new();
        let bytes: Vec<u8> = (0..100_000_u32).map(|index| (index % 251) as u8).collect();
        for (first, second) in [(0, 10), (10, 0), (1, 99_999), (70_000, 5), (30_000, 60_000)] {
            let slices = [IoSlice::new(&bytes[..first]), IoSlice::new(&bytes[first..first + second])];
            let content = staging.content(&slices);
            assert_eq!(content, &bytes[..(first + second).min(WRITE_BYTES_MAX)], "{first} {second}");
        }
    }

    #[test]
    fn content_at_any_address_is_complete_and_copied_fast() {
        let mut staging = Staging::new();
        let bytes: Vec<u8> = (0..30_000_u32).map(|index| (index % 251) as u8).collect();
        for offset in 0..PAGE_BYTES {
            let slices = [IoSlice::new(&bytes[offset..offset + 20_000])];
            let content = staging.content(&slices);
            assert_eq!(content, &bytes[offset..offset + 20_000]);
            assert!(!copies_slowly(content.as_ptr() as usize, RECORD_HEADER_BYTES), "{offset}");
        }
    }
}
