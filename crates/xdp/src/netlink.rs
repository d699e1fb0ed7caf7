//! Requests to the kernel by netlink(7): to its routing tables (rtnetlink(7): links, addresses, routes and neighbours), and
//! to others.

use std::io;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

pub(crate) const GET_LINK: u16 = 18;
pub(crate) const GET_ADDRESS: u16 = 22;
pub(crate) const GET_ROUTE: u16 = 26;
pub(crate) const GET_NEIGHBOUR: u16 = 30;

const MESSAGE_ERROR: u16 = 2;
const MESSAGE_DONE: u16 = 3;
const FLAG_REQUEST: u16 = 1;
const FLAG_DUMP: u16 = 0x300;
const HEADER_BYTES: usize = 16;
/// Maximum number of datagrams of one answer; a larger table is an error.
const DATAGRAMS_MAX: usize = 4_096;

/// Sends a request to the routing tables; see [`request_from`].
///
/// # Errors
/// The error that the kernel reports.
pub(crate) fn request(kind: u16, dump: bool, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    // Protocol 0, the default, is NETLINK_ROUTE.
    request_from(None, kind, dump, body)
}

/// Sends a request, and returns the bodies of the answer's messages. `dump` asks for all entries.
///
/// # Errors
/// The error that the kernel reports.
pub(crate) fn request_from(
    protocol: Option<Protocol>,
    kind: u16,
    dump: bool,
    body: &[u8],
) -> io::Result<Vec<Vec<u8>>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((FLAG_REQUEST | if dump { FLAG_DUMP } else { 0 }).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    send(&socket, &message, SendFlags::empty())?;
    let (mut bodies, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    for _ in 0..DATAGRAMS_MAX {
        let (received, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let is_last = read_messages(&buffer[..received], &mut bodies)?;
        if is_last || !dump {
            return Ok(bodies);
        }
    }
    Err(io::Error::other("the kernel's table is too large"))
}

/// Adds the bodies of the messages of one datagram. Returns whether it is the last one.
fn read_messages(mut bytes: &[u8], bodies: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = bytes.get(HEADER_BYTES..length) else { break };
        match u16::from_ne_bytes([header[4], header[5]]) {
            MESSAGE_DONE => return Ok(true),
            MESSAGE_ERROR => {
                let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => bodies.push(body.to_vec()),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Appends an attribute to a request.
pub(crate) fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(((4 + value.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Returns the value of an attribute: of a message behind its fixed part, or of another attribute.
pub(crate) fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    while let Some(&[a, b, c, d]) = bytes.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        // The upper two bits are flags.
        let found = u16::from_ne_bytes([c, d]) & 0x3fff;
        let value = bytes.get(4..length)?;
        if found == kind {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// Returns an attribute of four bytes.
pub(crate) fn attribute_u32(bytes: &[u8], kind: u16) -> Option<u32> {
    attribute(bytes, kind)?.first_chunk().map(|value| u32::from_ne_bytes(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_broken_ones_end_the_search() {
        let mut body = Vec::new();
        push_attribute(&mut body, 3, b"eth0\0");
        push_attribute(&mut body, 4 | 0x8000, &7_u32.to_ne_bytes());
        assert_eq!(attribute(&body, 3), Some(&b"eth0\0"[..]));
        assert_eq!((attribute_u32(&body, 4), attribute_u32(&body, 5)), (Some(7), None));
        for end in 0..body.len() {
            let _ = attribute(&body[..end], 9);
        }
        assert_eq!(attribute(&[0, 0, 9, 0, 1, 2], 1), None);
    }

    #[test]
    fn an_error_of_the_kernel_is_reported_with_its_code() {
        let mut message = Vec::new();
        message.extend(36_u32.to_ne_bytes());
        message.extend(MESSAGE_ERROR.to_ne_bytes());
        message.extend([0; 10]);
        message.extend((-19_i32).to_ne_bytes());
        message.extend([0; 16]);
        let error = read_messages(&message, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(19));
        for end in 0..message.len() {
            let _ = read_messages(&message[..end], &mut Vec::new());
        }
    }
}
