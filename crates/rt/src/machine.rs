//! What the kernel says without a file, so that a sandbox does not hide it: the machine's name, and
//! random numbers.

use std::io;

/// The machine's name (uname(2)); empty when it has none.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Random bytes that nobody can guess (getrandom(2)).
///
/// # Errors
/// The kernel has none, which it only says while the machine starts.
#[allow(unsafe_code)]
pub fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and the length are those of `rest`, which is writable.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => filled += got,
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
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
    }
}
