//! Headers of one frame: what demultiplexing needs, with lengths checked. IPv4 and TCP only.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Length of an Ethernet header without tags, in bytes.
pub const ETHERNET_BYTES: usize = 14;
/// Length of an IPv4 header without options.
const IPV4_BYTES: usize = 20;
/// Length of a TCP header without options.
const TCP_BYTES: usize = 20;
/// Type of an Ethernet frame with IPv4.
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];

const FLAG_FIN: u8 = 0x01;
const FLAG_SYN: u8 = 0x02;
const FLAG_RST: u8 = 0x04;
const FLAG_ACK: u8 = 0x10;

/// Address of an Ethernet interface.
pub type MacAddress = [u8; 6];

/// Addresses and ports of one connection, as this end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FourTuple {
    /// Own address and port.
    pub local: SocketAddrV4,
    /// Address and port of the peer.
    pub remote: SocketAddrV4,
}

/// Received TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// MAC address of the sender, to which replies go.
    pub source_mac: MacAddress,
    /// Connection, as the receiver sees it.
    pub tuple: FourTuple,
    /// IPv4 packet without the padding of its frame.
    pub ip_packet: &'a [u8],
    flags: u8,
}

impl<'a> Segment<'a> {
    /// Parses a frame; `None` if it is no complete IPv4 packet with TCP and without options and fragments, which the
    /// program never delivers.
    #[must_use]
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (ethernet, rest) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
        let header = rest.first_chunk::<IPV4_BYTES>()?;
        let total_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
        if ethernet[12..] != ETHERTYPE_IPV4 || header[0] != 0x45 || header[9] != 6 || fragment != 0 {
            return None;
        }
        let ip_packet = rest.get(..total_bytes)?;
        let tcp = ip_packet.get(IPV4_BYTES..)?.first_chunk::<TCP_BYTES>()?;
        let tcp_header_bytes = usize::from(tcp[12] >> 4) * 4;
        if tcp_header_bytes < TCP_BYTES || IPV4_BYTES + tcp_header_bytes > total_bytes {
            return None;
        }
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let mut source_mac = [0; 6];
        source_mac.copy_from_slice(&ethernet[6..12]);
        Some(Self {
            source_mac,
            tuple: FourTuple {
                local: SocketAddrV4::new(address(16), port(2)),
                remote: SocketAddrV4::new(address(12), port(0)),
            },
            ip_packet,
            flags: tcp[13],
        })
    }

    /// Returns whether the segment asks for a new connection.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.flags & (FLAG_SYN | FLAG_ACK | FLAG_RST | FLAG_FIN) == FLAG_SYN
    }

    /// Returns whether the segment is a reset.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.flags & FLAG_RST != 0
    }

    /// Returns whether the segment may come from a peer: its address and port are usable.
    #[must_use]
    pub fn has_usable_peer(&self) -> bool {
        let address = self.tuple.remote.ip();
        let is_unicast = !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast();
        is_unicast && self.tuple.remote.port() != 0 && self.tuple.local.port() != 0
    }
}

/// Writes the Ethernet header of an IPv4 packet.
pub fn write_ethernet_header(frame: &mut [u8], destination: MacAddress, source: MacAddress) {
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    frame[12..ETHERNET_BYTES].copy_from_slice(&ETHERTYPE_IPV4);
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Returns a frame with a TCP header without options and checksum.
    pub(crate) fn frame(from: &str, to: &str, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (from, to): (SocketAddrV4, SocketAddrV4) = (from.parse().unwrap(), to.parse().unwrap());
        let mut frame = vec![2; 12];
        frame.extend(ETHERTYPE_IPV4);
        let total = (IPV4_BYTES + TCP_BYTES + payload.len()) as u16;
        frame.extend([0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(from.ip().octets());
        frame.extend(to.ip().octets());
        frame.extend(from.port().to_be_bytes());
        frame.extend(to.port().to_be_bytes());
        frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(payload);
        crate::fuzzing::set_header_checksum(&mut frame);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::testing::frame;
    use super::*;

    #[test]
    fn a_segment_has_its_tuple_its_flags_and_no_padding() {
        let mut bytes = frame("10.0.0.2:1000", "10.0.0.1:80", FLAG_SYN, b"x");
        bytes.extend([0; 30]);
        let segment = Segment::parse(&bytes).unwrap();
        assert_eq!(segment.tuple.local, "10.0.0.1:80".parse().unwrap());
        assert_eq!(segment.tuple.remote, "10.0.0.2:1000".parse().unwrap());
        assert!(segment.is_opening() && !segment.is_reset() && segment.has_usable_peer());
        assert_eq!((segment.source_mac, segment.ip_packet.len()), ([2; 6], 41));
    }

    #[test]
    fn what_the_program_never_delivers_is_rejected() {
        let good = frame("10.0.0.2:1000", "10.0.0.1:80", FLAG_ACK, b"");
        assert!(Segment::parse(&good).is_some());
        // EtherType, options, length, more fragments, offset, protocol, header of TCP.
        for (at, value) in
            [(12, 0x86), (14, 0x46), (17, 60), (20, 0x20), (21, 1), (23, 17), (46, 0x40), (46, 0x60)]
        {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(Segment::parse(&bytes).is_none(), "{at} {value}");
        }
        for length in 0..good.len() {
            assert!(Segment::parse(&good[..length]).is_none(), "{length}");
        }
        assert!(!Segment::parse(&frame("0.0.0.0:1", "10.0.0.1:80", 2, b"")).unwrap().has_usable_peer());
        assert!(!Segment::parse(&frame("10.0.0.2:0", "10.0.0.1:80", 2, b"")).unwrap().has_usable_peer());
    }
}
