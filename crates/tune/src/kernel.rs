//! Kernel versions as numbers that can be compared.

use std::fmt;

/// Major and minor number of a kernel version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u16, pub u16);

pub(crate) const ANY: KernelVersion = KernelVersion(0, 0);

impl KernelVersion {
    /// Parses the start of a release: `6.18.44-cloud`.
    #[must_use]
    pub fn parse(release: &str) -> Option<Self> {
        let mut parts = release.split(['.', '-', '+']);
        Some(Self(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        let parse = |text| KernelVersion::parse(text).unwrap();
        assert_eq!(parse("6.18.44-fc-v782"), KernelVersion(6, 18));
        assert!(parse("4.9.0") < parse("4.12") && parse("6.2") < parse("6.18"));
        assert_eq!(parse("5.15-rc1").to_string(), "5.15");
        assert_eq!(KernelVersion::parse("x"), None);
    }
}
