//! Driver and queues of an interface (`SIOCETHTOOL`, netdevice(7)), in the network namespace of the thread.

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_DRIVER: u32 = 0x03;
const GET_CHANNELS: u32 = 0x3c;
/// Bytes of the largest structure that is read here (`struct ethtool_drvinfo`), with room to spare.
const ANSWER_BYTES: usize = 256;
/// Maximum length of the name of an interface, with its end.
const NAME_BYTES: usize = 16;

/// Makes a request; the answer begins with the command.
#[allow(unsafe_code)]
fn request(interface: &str, command: u32) -> io::Result<[u8; ANSWER_BYTES]> {
    /// `struct ifreq`, with a pointer as its value.
    #[repr(C)]
    struct InterfaceRequest {
        name: [u8; NAME_BYTES],
        data: *mut u8,
        padding: [u8; 16],
    }
    let mut answer = [0; ANSWER_BYTES];
    answer[..4].copy_from_slice(&command.to_ne_bytes());
    let mut name = [0; NAME_BYTES];
    let length = interface.len().min(NAME_BYTES - 1);
    name[..length].copy_from_slice(&interface.as_bytes()[..length]);
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = InterfaceRequest { name, data: answer.as_mut_ptr(), padding: [0; 16] };
    // SAFETY: the request is as large as `struct ifreq`, its name ends with 0, and the kernel writes the structure of the
    // command to `answer`, which is larger than each of them.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Returns the name of the driver; `None` if the interface does not report it.
pub(crate) fn driver(interface: &str) -> Option<String> {
    let answer = request(interface, GET_DRIVER).ok()?;
    let name: Vec<u8> = answer[4..36].iter().copied().take_while(|byte| *byte != 0).collect();
    String::from_utf8(name).ok().filter(|name| !name.is_empty())
}

/// Returns the number of queues that receive; `None` if the interface does not report it.
pub(crate) fn receiving_queues(interface: &str) -> Option<u32> {
    let answer = request(interface, GET_CHANNELS).ok()?;
    let field = |at: usize| answer[at * 4..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    // Four maxima come first; then channels that receive, send, do other things, and do both.
    Some(field(5) + field(8)).filter(|queues| *queues > 0)
}
