//! Facts that the kernel provides without a file, so that a sandbox does not hide them: the
//! machine's name, and random numbers.

use std::io;

/// Returns the machine's name (uname(2)); empty if it has none.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns unpredictable random bytes (getrandom(2)).
///
/// # Errors
/// The kernel has no random numbers yet, which happens only during boot.
#[allow(unsafe_code)]
pub fn random_bytes<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and the length are those of `rest`, which is writable.
        let filled_now = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(filled_now) {
            Ok(filled_now) => filled += filled_now,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random_bytes::<32>().unwrap(), random_bytes::<32>().unwrap());
    }
}
