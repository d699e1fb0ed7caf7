//! Times as arguments: this crate reads no clock.

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// A time in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl UnixTime {
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(SECOND_NS))
    }

    pub const fn as_ns(self) -> u64 {
        self.0
    }

    pub const fn as_seconds(self) -> u64 {
        self.0 / SECOND_NS
    }

    /// Returns the nanoseconds since an earlier time; 0 if that is later.
    pub const fn ns_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the complete seconds since an earlier time; 0 if that is later.
    pub const fn seconds_since(self, earlier: Self) -> u64 {
        self.ns_since(earlier) / SECOND_NS
    }

    #[must_use]
    pub const fn plus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(SECOND_NS)))
    }
}
