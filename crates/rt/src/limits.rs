//! This process's own limits: the number of descriptors, raised as far as the kernel allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of descriptors that this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// What the limit was when we were started.
    pub found: u64,
    /// What it is now.
    pub now: u64,
}

/// Raises `RLIMIT_NOFILE` to its hard limit (getrlimit(2)); keeps it where it is when that fails.
pub fn raise_descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    let found = limit.current.unwrap_or(u64::MAX);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if found < hard {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return DescriptorLimit { found, now: hard };
        }
    }
    DescriptorLimit { found, now: found }
}

/// The number of descriptors that a table of this process may have open now.
#[must_use]
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_twice_changes_nothing_more() {
        let first = raise_descriptor_limit();
        let second = raise_descriptor_limit();
        assert!(first.now >= first.found);
        assert_eq!(second.found, first.now);
    }
}
