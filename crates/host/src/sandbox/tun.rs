//! TUN devices (`Documentation/networking/tuntap.rst`): a network interface whose packets a process
//! reads and writes. The device is removed when its descriptor is closed.
//!
//! `ip` sets addresses and routes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

const CLONE_DEVICE: &str = "/dev/net/tun";
/// `TUNSETIFF` of linux/if_tun.h.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;
const IFF_TUN: i16 = 0x0001;
/// Bare IP packets, without four bytes of flags before each.
const IFF_NO_PI: i16 = 0x1000;
/// Size of an interface name in bytes, with the terminating zero.
const NAME_BYTES: usize = 16;

/// Argument of `TUNSETIFF`: the start of `struct ifreq`, which has 40 bytes.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: i16,
    padding: [u8; 22],
}

/// Creates a TUN device called `name` in the calling thread's network namespace. Reads and writes
/// of the file carry one IP packet each, and never block.
///
/// # Errors
/// The name has more than 15 bytes, the kernel has no TUN devices (module `tun`), or permission is
/// denied (this requires `CAP_NET_ADMIN`).
pub fn create(name: &str) -> io::Result<File> {
    let explain = |error: io::Error| {
        io::Error::new(error.kind(), format!("TUN device '{name}' ({CLONE_DEVICE}): {error}"))
    };
    if name.is_empty() || name.len() >= NAME_BYTES {
        return Err(explain(io::Error::other("a device name has 1 to 15 bytes")));
    }
    let mut options = File::options();
    let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(CLONE_DEVICE);
    let file = file.map_err(explain)?;
    let mut request =
        InterfaceRequest { name: [0; NAME_BYTES], flags: IFF_TUN | IFF_NO_PI, padding: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    set_interface(&file, &mut request).map_err(explain)?;
    Ok(file)
}

#[allow(unsafe_code)]
fn set_interface(file: &File, request: &mut InterfaceRequest) -> io::Result<()> {
    // SAFETY: the descriptor is open for the whole call, and the kernel reads and writes 40 bytes
    // at the pointer (struct ifreq), which is what `InterfaceRequest` has.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut *request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_has_the_size_that_the_kernel_reads() {
        assert_eq!(size_of::<InterfaceRequest>(), 40);
    }

    #[test]
    fn a_long_name_is_refused() {
        let error = create("0123456789abcdef").unwrap_err().to_string();
        assert!(error.contains("1 to 15 bytes"), "{error}");
    }

    #[test]
    fn a_device_is_there_while_its_file_is_open() {
        let name = format!("weir{}", std::process::id() % 100_000);
        let path = std::path::Path::new("/sys/class/net").join(&name);
        match create(&name) {
            Ok(file) => {
                assert!(path.exists());
                drop(file);
                // The kernel may need a moment.
                for _ in 0..3000 {
                    if !path.exists() {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                assert!(!path.exists());
            }
            Err(error) => test_needs::skip(test_needs::ROOT, error),
        }
    }
}
