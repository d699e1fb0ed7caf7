//! Memory that responses of one core hold until their clients have read them, so that many slow clients would hold any
//! amount: encoders, beyond whose budget a response has no coding, and lists of directories, beyond whose budget it is
//! 503.

use std::cell::Cell;
use std::rc::Rc;

use crate::codings::Coding;

/// Memory of a brotli encoder with a window of 256 KiB, by its level, in KiB. As measured, with a margin.
const BROTLI_KIB: [u64; 12] =
    [320, 320, 1_280, 1_280, 2_304, 2_816, 3_840, 10_240, 18_944, 37_888, 16_384, 16_384];
/// Memory of a zstd encoder, by its level, in KiB.
const ZSTD_KIB: [u64; 20] = [
    1_536, 1_536, 1_536, 2_560, 2_560, 4_608, 4_608, 12_288, 12_288, 12_288, 43_008, 43_008, 43_008, 43_008,
    43_008, 43_008, 43_008, 53_248, 53_248, 86_016,
];
const GZIP_KIB: u64 = 448;

/// Returns the memory of an encoder, at most.
pub fn encoder_bytes(coding: Coding, level: u8) -> u64 {
    let find_kib =
        |table: &[u64]| table.get(usize::from(level)).or_else(|| table.last()).copied().unwrap_or(0);
    let kib = match coding {
        Coding::Gzip => GZIP_KIB,
        Coding::Brotli => find_kib(&BROTLI_KIB),
        Coding::Zstd => find_kib(&ZSTD_KIB),
    };
    kib << 10
}

#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: u64,
    used_bytes: Cell<u64>,
    permits: Cell<u64>,
    refused: Cell<u64>,
}

/// Part of the budget that one response holds.
#[derive(Debug)]
pub struct MemoryPermit {
    budget: Rc<MemoryBudget>,
    bytes: u64,
}

impl MemoryBudget {
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, used_bytes: Cell::new(0), permits: Cell::new(0), refused: Cell::new(0) }
    }

    /// Takes memory; `None`, which is counted: the budget is used up. A single response always fits, so that
    /// a high level of an encoder is not off.
    pub fn acquire(self: &Rc<Self>, bytes: u64) -> Option<MemoryPermit> {
        self.acquire_within(bytes, self.bytes_max)
    }

    /// Takes memory as long as less than `bytes_max` is used, whatever the maximum of the budget.
    pub fn acquire_within(self: &Rc<Self>, bytes: u64, bytes_max: u64) -> Option<MemoryPermit> {
        let used_bytes = self.used_bytes.get().saturating_add(bytes);
        if self.permits.get() > 0 && used_bytes > bytes_max {
            self.refused.set(self.refused.get() + 1);
            return None;
        }
        self.used_bytes.set(used_bytes);
        self.permits.set(self.permits.get() + 1);
        Some(MemoryPermit { budget: Rc::clone(self), bytes })
    }

    /// Returns the memory that is taken now.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.get()
    }

    /// Returns the number of responses with a part of the budget now.
    pub fn permits(&self) -> u64 {
        self.permits.get()
    }

    /// Returns the number of responses that got nothing.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.budget.used_bytes.set(self.budget.used_bytes.get() - self.bytes);
        self.budget.permits.set(self.budget.permits.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_by_memory_and_returned() {
        let budget = Rc::new(MemoryBudget::new(100));
        let first = budget.acquire(60).unwrap();
        assert!(budget.acquire(41).is_none());
        let second = budget.acquire(40).unwrap();
        assert_eq!((budget.permits(), budget.refused()), (2, 1));
        drop((first, second));
        assert_eq!(budget.permits(), 0);
        let large = budget.acquire(1_000);
        assert!(large.is_some(), "a single response always fits");
        assert!(budget.acquire(1).is_none());
    }

    #[test]
    fn higher_levels_never_count_less_than_one_encoder_needs() {
        assert!(encoder_bytes(Coding::Brotli, 4) > 2 << 20);
        assert!(encoder_bytes(Coding::Zstd, 19) > encoder_bytes(Coding::Zstd, 3));
        assert_eq!(encoder_bytes(Coding::Zstd, u8::MAX), encoder_bytes(Coding::Zstd, 19));
        assert!(encoder_bytes(Coding::Gzip, 1) < 1 << 20);
    }
}
