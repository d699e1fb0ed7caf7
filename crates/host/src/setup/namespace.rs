//! Network namespaces that `ip netns` made (ip-netns(8)), by their names.
//!
//! Not for making them: `ip netns add` does.

use std::io;
use std::path::{Path, PathBuf};

use crate::namespace::Namespace;

/// Where `ip netns add NAME` leaves a namespace's file (ip-netns(8)).
const NAMED: &str = "/run/netns";

/// The file of a namespace that `ip netns` knows by `name`.
#[must_use]
pub fn path_of(name: &str) -> PathBuf {
    Path::new(NAMED).join(name)
}

/// Runs `body` in the network namespace at `path`, on a thread that ends with it.
///
/// # Errors
/// The file cannot be opened, is no network namespace, or may not be entered (that takes
/// `CAP_SYS_ADMIN`); `body` did not run then. Or `body` panicked.
pub fn within<T: Send>(path: &Path, body: impl FnOnce() -> T + Send) -> io::Result<T> {
    Namespace::at(path).and_then(|there| there.run(body)).map_err(|error| {
        io::Error::new(error.kind(), format!("network namespace {}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_namespace_can_be_entered_by_root_only() {
        let own = Path::new("/proc/self/ns/net");
        match within(own, || std::fs::read_link("/proc/thread-self/ns/net")) {
            Ok(there) => assert_eq!(there.unwrap(), std::fs::read_link(own).unwrap()),
            Err(error) => assert!(error.to_string().contains("/proc/self/ns/net"), "{error}"),
        }
    }

    #[test]
    fn what_is_no_namespace_is_said() {
        let why = |path: &str| within(Path::new(path), || ()).unwrap_err().to_string();
        assert!(why("/no/such").starts_with("network namespace /no/such: "));
        assert!(why("/dev/null").starts_with("network namespace /dev/null: "));
        assert_eq!(path_of("a"), Path::new("/run/netns/a"));
    }
}
