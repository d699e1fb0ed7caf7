//! Limits of this process: the number of descriptors, raised as far as the kernel allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum number of open descriptors of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    pub initial: u64,
    pub current: u64,
}

/// Raises `RLIMIT_NOFILE` to its hard limit (getrlimit(2)); keeps it unchanged if that fails.
pub fn raise_descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    let initial = limit.current.unwrap_or(u64::MAX);
    let hard_limit = limit.maximum.unwrap_or(u64::MAX);
    if initial < hard_limit {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return DescriptorLimit { initial, current: hard_limit };
        }
    }
    DescriptorLimit { initial, current: initial }
}

/// Returns the current maximum number of open descriptors in a table of this process.
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
        assert!(first.current >= first.initial);
        assert_eq!(second.initial, first.current);
    }
}
