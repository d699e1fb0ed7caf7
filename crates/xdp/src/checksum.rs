//! Checksums of received packets (RFC 1071). They are verified before a segment has any effect: a damaged one would end a
//! handshake, or count as an answer.

use crate::packet::{IPV4_BYTES, PROTOCOL_TCP, Segment};

/// Place of the checksum in a TCP header.
#[cfg(any(test, fuzzing))]
pub(crate) const TCP_CHECKSUM_AT: usize = 16;

/// Returns the sum of the words of 16 bits, in the byte order of the machine, which does not change what a checksum is.
/// At most 2^32 words.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    sum + u64::from(u32::from_ne_bytes(last))
}

/// Adds up the carries: the result has 16 bits.
fn fold(sum: u64) -> u16 {
    let mut sum = sum;
    // Each step halves the bits; the last two add the carry of the one before.
    for bits in [32, 16, 16, 16] {
        sum = (sum & ((1 << bits) - 1)) + (sum >> bits);
    }
    sum as u16
}

/// Returns the sum of a packet with TCP from its addresses on, as the checksum of TCP covers it.
fn tcp_sum(ip_packet: &[u8]) -> Option<u64> {
    let is_ipv6 = ip_packet.first()? >> 4 == 6;
    let (addresses, content) = if is_ipv6 { (8..40, 40) } else { (12..20, IPV4_BYTES) };
    let content = ip_packet.get(content..)?;
    // A frame, and so its content, is far below 64 KiB.
    let [high, low] = (content.len() as u16).to_be_bytes();
    Some(sum(ip_packet.get(addresses)?) + sum(&[0, PROTOCOL_TCP, high, low]) + sum(content))
}

impl Segment<'_> {
    /// Returns whether the checksum of the IP header is right. IPv6 has none.
    #[inline]
    pub(crate) fn has_valid_header(&self) -> bool {
        let header = self.ip_packet.first_chunk::<IPV4_BYTES>();
        self.tuple.local.is_ipv6() || header.is_some_and(|header| fold(sum(header)) == u16::MAX)
    }

    /// Returns whether the checksum of TCP is right.
    #[inline]
    pub(crate) fn has_valid_checksum(&self) -> bool {
        tcp_sum(self.ip_packet).is_some_and(|sum| fold(sum) == u16::MAX)
    }
}

/// Sets the checksum of TCP in an IP packet, if it is long enough.
#[cfg(any(test, fuzzing))]
pub(crate) fn set_tcp_checksum(ip_packet: &mut [u8]) {
    let is_ipv6 = ip_packet.first().is_some_and(|first| first >> 4 == 6);
    let at = if is_ipv6 { 40 } else { IPV4_BYTES } + TCP_CHECKSUM_AT;
    let Some(field) = ip_packet.get_mut(at..at + 2) else { return };
    field.copy_from_slice(&[0, 0]);
    let Some(sum) = tcp_sum(ip_packet) else { return };
    ip_packet[at..at + 2].copy_from_slice(&(!fold(sum)).to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::testing::frame;

    /// Sums the words one by one, in the order of the network.
    fn simple_sum(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_sum_is_that_of_single_words_for_each_length() {
        // The example of RFC 1071 §3.
        assert_eq!(fold(sum(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7])).to_ne_bytes(), [0xdd, 0xf2]);
        let bytes: Vec<u8> = (0..1_500_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in (0..200).chain([1_459, 1_460, 1_500]) {
            for bytes in [&bytes[..length], &vec![0xff; length]] {
                assert_eq!(fold(sum(bytes)).to_ne_bytes(), simple_sum(bytes).to_be_bytes(), "{length}");
            }
        }
        assert_eq!((fold(0), fold(0xffff), fold(0x1_0000), fold(u64::MAX)), (0, 0xffff, 1, 0xffff));
    }

    #[test]
    fn a_checksum_that_was_set_is_right_and_each_other_one_is_wrong() {
        for (from, to) in [("10.0.0.2:1000", "10.0.0.1:80"), ("[fd00::2]:1000", "[fd00::1]:80")] {
            for payload in [&b""[..], b"x", b"even", b"odd"] {
                let mut frame = frame(from, to, 0x18, payload);
                assert!(!Segment::parse(&frame).unwrap().has_valid_checksum());
                set_tcp_checksum(&mut frame[14..]);
                let segment = Segment::parse(&frame).unwrap();
                assert!(segment.has_valid_checksum() && segment.has_valid_header(), "{from} {payload:?}");
                let at = if to.starts_with('[') { 40 } else { IPV4_BYTES } + 14 + TCP_CHECKSUM_AT;
                let right = [frame[at], frame[at + 1]];
                let is_valid = |value: u16| {
                    let mut frame = frame.clone();
                    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
                    Segment::parse(&frame).unwrap().has_valid_checksum()
                };
                let valid: Vec<u16> = (0..=u16::MAX).filter(|value| is_valid(*value)).collect();
                assert_eq!(valid, [u16::from_be_bytes(right)]);
            }
        }
        for length in 0..60 {
            set_tcp_checksum(&mut vec![0x45; length]);
            set_tcp_checksum(&mut vec![0x60; length]);
        }
    }
}
