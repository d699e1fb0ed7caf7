//! Driver, queues and steering of an interface (`SIOCETHTOOL`, netdevice(7)), in the network namespace of the thread.

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::steering::Steering;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_DRIVER: u32 = 0x03;
const GET_CHANNELS: u32 = 0x3c;
/// Bytes of the largest structure that is read here (`struct ethtool_drvinfo`), with room to spare.
const ANSWER_BYTES: usize = 256;
/// Maximum length of the name of an interface, with its end.
const NAME_BYTES: usize = 16;

const GET_HASHED_FIELDS: u32 = 0x29;
const GET_STEERING: u32 = 0x46;
/// Flow of TCP over IPv4 (`TCP_V4_FLOW`).
const FLOW_TCP_IPV4: u32 = 1;
/// Both addresses and both ports (`RXH_IP_SRC`, `RXH_IP_DST`, `RXH_L4_B_0_1`, `RXH_L4_B_2_3`).
const FIELDS_ADDRESSES_AND_PORTS: u32 = 0xf0;
/// Toeplitz hash (`ETH_RSS_HASH_TOP`).
const HASH_TOEPLITZ: u8 = 1;
/// Bytes of `struct ethtool_rxfh` without its table and its key.
const STEERING_BYTES: usize = 24;
/// Maximum bytes of its table and its key: devices have at most some thousand entries.
const STEERING_BYTES_MAX: usize = 64 * 1024;

/// Makes a request; the answer begins with the command.
fn request(interface: &str, command: u32) -> io::Result<Vec<u8>> {
    call(interface, &[command], ANSWER_BYTES)
}

/// Makes a request that begins with these words; the answer takes its place and has `answer_bytes`, as many as the kernel
/// may write.
#[allow(unsafe_code)]
fn call(interface: &str, words: &[u32], answer_bytes: usize) -> io::Result<Vec<u8>> {
    /// `struct ifreq`, with a pointer as its value.
    #[repr(C)]
    struct InterfaceRequest {
        name: [u8; NAME_BYTES],
        data: *mut u8,
        padding: [u8; 16],
    }
    let mut answer = vec![0; answer_bytes.max(ANSWER_BYTES)];
    for (to, word) in answer.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *to = word.to_ne_bytes();
    }
    let mut name = [0; NAME_BYTES];
    let length = interface.len().min(NAME_BYTES - 1);
    name[..length].copy_from_slice(&interface.as_bytes()[..length]);
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = InterfaceRequest { name, data: answer.as_mut_ptr(), padding: [0; 16] };
    // SAFETY: the request is as large as `struct ifreq`, its name ends with 0, and the kernel writes the structure of the
    // command to `answer`, which is larger than each of fixed size; callers give room for those of variable size.
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
    // Four maxima come first; then channels that receive, send, do other things, and do both.
    Some(word(&answer, 5) + word(&answer, 8)).filter(|queues| *queues > 0)
}

/// Returns how the device distributes TCP to its queues; `None` if it does not report that, or not by a Toeplitz
/// hash of addresses and ports.
pub(crate) fn steering(interface: &str) -> Option<Steering> {
    let fields = call(interface, &[GET_HASHED_FIELDS, FLOW_TCP_IPV4], ANSWER_BYTES).ok()?;
    if word(&fields, 2) & FIELDS_ADDRESSES_AND_PORTS != FIELDS_ADDRESSES_AND_PORTS {
        return None;
    }
    let sizes = request(interface, GET_STEERING).ok()?;
    let (entries, key_bytes) = (word(&sizes, 2), word(&sizes, 3));
    let bytes = (entries as usize).checked_mul(4)?.checked_add(key_bytes as usize)?;
    if bytes > STEERING_BYTES_MAX {
        return None;
    }
    // The kernel writes nothing if the sizes are no longer those of the device.
    let answer = call(interface, &[GET_STEERING, 0, entries, key_bytes], STEERING_BYTES + bytes).ok()?;
    parse_steering(&answer, entries as usize, key_bytes as usize)
}

/// Parses `struct ethtool_rxfh` with its table and its key.
fn parse_steering(answer: &[u8], entries: usize, key_bytes: usize) -> Option<Steering> {
    if *answer.get(16)? != HASH_TOEPLITZ {
        return None;
    }
    let (table, rest) = answer.get(STEERING_BYTES..)?.split_at_checked(entries * 4)?;
    let table = table.as_chunks::<4>().0.iter().map(|entry| u32::from_ne_bytes(*entry)).collect();
    Steering::new(rest.get(..key_bytes)?.to_vec(), table)
}

fn word(answer: &[u8], at: usize) -> u32 {
    answer.get(at * 4..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_followed_by_the_key() {
        let mut answer = vec![0; STEERING_BYTES];
        answer[16] = HASH_TOEPLITZ;
        answer.extend([0_u32, 1, 2, 3].iter().flat_map(|queue| queue.to_ne_bytes()));
        answer.extend([7; 40]);
        let expected = Steering::new(vec![7; 40], vec![0, 1, 2, 3]);
        assert_eq!(parse_steering(&answer, 4, 40), expected);
        assert!(expected.is_some());
        for length in 0..answer.len() {
            assert_eq!(parse_steering(&answer[..length], 4, 40), None, "{length}");
        }
        answer[16] = 2;
        assert_eq!(parse_steering(&answer, 4, 40), None);
    }
}
