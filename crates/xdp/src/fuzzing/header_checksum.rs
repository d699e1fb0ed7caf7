//! Checksum of the IPv4 header of a frame. `tests/it` includes this file.

use super::ETHERNET_BYTES;

/// Sets the checksum of the IPv4 header of a frame (RFC 791 §3.1): without it every frame is rejected at once.
pub fn set_header_checksum(frame: &mut [u8]) {
    let Some(header) = frame.get_mut(ETHERNET_BYTES..).and_then(|packet| packet.first_chunk_mut::<20>())
    else {
        return;
    };
    [header[10], header[11]] = [0, 0];
    let words = header.as_chunks::<2>().0;
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    [header[10], header[11]] = checksum.to_be_bytes();
}
