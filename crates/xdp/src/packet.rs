//! Headers of one frame: what demultiplexing needs, with lengths checked. TCP over IPv4 and IPv6 without further headers.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of an Ethernet header without tags, in bytes.
pub const ETHERNET_BYTES: usize = 14;
/// Length of an IPv4 header without options.
pub(crate) const IPV4_BYTES: usize = 20;
/// Length of an IPv6 header.
pub(crate) const IPV6_BYTES: usize = 40;
/// Length of a TCP header without options.
const TCP_BYTES: usize = 20;
/// Type of an Ethernet frame with IPv4.
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// Type of an Ethernet frame with IPv6.
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Number of TCP in the headers of IP.
pub(crate) const PROTOCOL_TCP: u8 = 6;

const FLAG_FIN: u8 = 0x01;
const FLAG_SYN: u8 = 0x02;
const FLAG_RST: u8 = 0x04;
const FLAG_ACK: u8 = 0x10;

/// Kinds of options (RFC 9293 3.1, RFC 7323 2.2).
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_WINDOW_SCALE: u8 = 3;
const WINDOW_SHIFT_MAX: u8 = 14;

/// Address of an Ethernet interface.
pub type MacAddress = [u8; 6];

/// Addresses and ports of one connection, as this end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FourTuple {
    /// Own address and port.
    pub local: SocketAddr,
    /// Address and port of the peer.
    pub remote: SocketAddr,
}

// As few and large words as possible: this is computed for each packet.
impl Hash for FourTuple {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for ip in [self.local.ip(), self.remote.ip()] {
            match ip {
                IpAddr::V4(ip) => state.write_u32(ip.to_bits()),
                IpAddr::V6(ip) => state.write_u128(ip.to_bits()),
            }
        }
        state.write_u32(u32::from(self.local.port()) << 16 | u32::from(self.remote.port()));
    }
}

/// Received TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// MAC address of the sender, to which replies go.
    pub source_mac: MacAddress,
    /// Connection, as the receiver sees it.
    pub tuple: FourTuple,
    /// IP packet without the padding of its frame.
    pub ip_packet: &'a [u8],
    flags: u8,
    acknowledgement: u32,
    /// Receive window of the peer, as in the header: not scaled.
    window: u16,
    /// Options of its TCP header.
    options: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses a frame; `None` if it is no complete IP packet with TCP, or has options, fragments or further headers, which
    /// the program never delivers.
    #[must_use]
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (ethernet, rest) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
        let packet = match [ethernet[12], ethernet[13]] {
            ETHERTYPE_IPV4 => IpPacket::parse_ipv4(rest)?,
            ETHERTYPE_IPV6 => IpPacket::parse_ipv6(rest)?,
            _ => return None,
        };
        let tcp = packet.content.first_chunk::<TCP_BYTES>()?;
        let tcp_header_bytes = usize::from(tcp[12] >> 4) * 4;
        if tcp_header_bytes < TCP_BYTES || tcp_header_bytes > packet.content.len() {
            return None;
        }
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let mut source_mac = [0; 6];
        source_mac.copy_from_slice(&ethernet[6..12]);
        Some(Self {
            source_mac,
            tuple: FourTuple {
                local: SocketAddr::new(packet.destination, port(2)),
                remote: SocketAddr::new(packet.source, port(0)),
            },
            ip_packet: packet.bytes,
            flags: tcp[13],
            acknowledgement: u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]),
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            options: &packet.content[TCP_BYTES..tcp_header_bytes],
        })
    }

    /// Returns whether the segment asks for a new connection.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.flags & (FLAG_SYN | FLAG_ACK | FLAG_RST | FLAG_FIN) == FLAG_SYN
    }

    /// Returns whether the segment is a SYN, also one that answers another.
    #[must_use]
    pub fn is_synchronizing(&self) -> bool {
        self.flags & FLAG_SYN != 0
    }

    /// Returns the acknowledged sequence number; a reset acknowledges nothing.
    #[must_use]
    pub fn acknowledgement(&self) -> Option<u32> {
        (self.flags & (FLAG_ACK | FLAG_RST) == FLAG_ACK).then_some(self.acknowledgement)
    }

    /// Returns the receive window of the peer, not scaled.
    #[must_use]
    pub fn window(&self) -> u16 {
        self.window
    }

    /// Returns the shift of later windows that a SYN announces, at most 14 (RFC 7323 2.3); 0 without the option.
    #[must_use]
    pub fn window_shift(&self) -> u8 {
        let mut options = self.options;
        loop {
            options = match *options {
                [OPTION_NOP, ref rest @ ..] => rest,
                [OPTION_WINDOW_SCALE, 3, shift, ..] => return shift.min(WINDOW_SHIFT_MAX),
                [kind, length, ..] if kind != OPTION_END && length >= 2 => {
                    options.get(usize::from(length)..).unwrap_or_default()
                }
                _ => return 0,
            }
        }
    }

    /// Returns whether the segment acknowledges something and opens or resets nothing.
    #[must_use]
    pub fn is_plain_ack(&self) -> bool {
        self.flags & (FLAG_SYN | FLAG_ACK | FLAG_RST) == FLAG_ACK
    }

    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.flags & FLAG_RST != 0
    }

    /// Returns whether the peer can receive nothing now. A reset has no window.
    #[must_use]
    pub fn closes_window(&self) -> bool {
        self.window == 0 && self.flags & FLAG_ACK != 0 && self.flags & FLAG_RST == 0
    }

    /// Returns whether the segment may come from a peer: its address and port are usable.
    #[must_use]
    pub fn has_usable_peer(&self) -> bool {
        let address = self.tuple.remote.ip();
        let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
        let is_unicast = !address.is_unspecified() && !address.is_multicast() && !is_broadcast;
        is_unicast && self.tuple.remote.port() != 0 && self.tuple.local.port() != 0
    }
}

/// IP packet with TCP.
struct IpPacket<'a> {
    bytes: &'a [u8],
    source: IpAddr,
    destination: IpAddr,
    /// Segment.
    content: &'a [u8],
}

impl<'a> IpPacket<'a> {
    fn parse_ipv4(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<IPV4_BYTES>()?;
        let total_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
        if header[0] != 0x45 || header[9] != PROTOCOL_TCP || fragment != 0 {
            return None;
        }
        let bytes = bytes.get(..total_bytes)?;
        let address =
            |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into();
        Some(Self { bytes, source: address(12), destination: address(16), content: bytes.get(IPV4_BYTES..)? })
    }

    fn parse_ipv6(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<IPV6_BYTES>()?;
        let content_bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || header[6] != PROTOCOL_TCP {
            return None;
        }
        let bytes = bytes.get(..IPV6_BYTES + content_bytes)?;
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            Ipv6Addr::from(octets).into()
        };
        Some(Self { bytes, source: address(8), destination: address(24), content: bytes.get(IPV6_BYTES..)? })
    }
}

/// Writes the Ethernet header of the IP packet behind it.
pub fn write_ethernet_header(frame: &mut [u8], destination: MacAddress, source: MacAddress) {
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    let is_ipv6 = frame[ETHERNET_BYTES] >> 4 == 6;
    frame[12..ETHERNET_BYTES].copy_from_slice(if is_ipv6 { &ETHERTYPE_IPV6 } else { &ETHERTYPE_IPV4 });
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Returns a frame with a TCP header without options and checksum.
    pub(crate) fn frame(from: &str, to: &str, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let mut frame = vec![2; 12];
        let content = (TCP_BYTES + payload.len()) as u16;
        match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend(ETHERTYPE_IPV4);
                frame.extend([0x45, 0]);
                frame.extend((IPV4_BYTES as u16 + content).to_be_bytes());
                frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                frame.extend([from.octets(), to.octets()].concat());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend(ETHERTYPE_IPV6);
                frame.extend([0x60, 0, 0, 0]);
                frame.extend(content.to_be_bytes());
                frame.extend([6, 64]);
                frame.extend([from.octets(), to.octets()].concat());
            }
            _ => panic!("{from} {to}"),
        }
        frame.extend(from.port().to_be_bytes());
        frame.extend(to.port().to_be_bytes());
        frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(payload);
        if from.is_ipv4() {
            crate::fuzzing::set_header_checksum(&mut frame);
        }
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
        assert!(!segment.closes_window());
        for (flags, closes) in [(FLAG_ACK, true), (FLAG_RST | FLAG_ACK, false), (FLAG_SYN, false)] {
            let mut bytes = frame("10.0.0.2:1000", "10.0.0.1:80", flags, b"");
            bytes[48..50].copy_from_slice(&[0, 0]);
            assert_eq!(Segment::parse(&bytes).unwrap().closes_window(), closes, "{flags}");
        }
        assert_eq!((segment.source_mac, segment.ip_packet.len()), ([2; 6], 41));
    }

    #[test]
    fn a_syn_has_the_shift_of_windows() {
        for (options, expected) in [
            (&[][..], 0),
            (&[1, 3, 3, 7], 7),
            (&[2, 4, 5, 180, 1, 3, 3, 15], 14),
            (&[0, 3, 3, 7], 0),
            (&[3, 2, 3, 7], 0),
            (&[8, 1, 3, 3], 0),
            (&[2, 40, 3, 3], 0),
            (&[1, 1, 1, 3], 0),
        ] {
            let mut bytes = frame("10.0.0.2:1000", "10.0.0.1:80", FLAG_SYN, options);
            bytes[46] = (((TCP_BYTES + options.len()) / 4) << 4) as u8;
            let segment = Segment::parse(&bytes).unwrap();
            assert_eq!((segment.window_shift(), segment.is_synchronizing()), (expected, true), "{options:?}");
        }
        for (flags, acknowledgement) in [(FLAG_ACK, Some(0)), (FLAG_ACK | FLAG_RST, None), (FLAG_SYN, None)] {
            let bytes = frame("10.0.0.2:1000", "10.0.0.1:80", flags, b"");
            assert_eq!(Segment::parse(&bytes).unwrap().acknowledgement(), acknowledgement, "{flags}");
        }
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
        let good = frame("[fd00::2]:1000", "[fd00::1]:80", FLAG_ACK, b"");
        let segment = Segment::parse(&good).unwrap();
        assert_eq!(segment.tuple.local, "[fd00::1]:80".parse().unwrap());
        assert_eq!(segment.tuple.remote, "[fd00::2]:1000".parse().unwrap());
        // EtherType, version, length, next header (hop-by-hop options, fragment), header of TCP.
        for (at, value) in [(12, 0x08), (14, 0x40), (19, 60), (20, 0), (20, 44), (66, 0x40), (66, 0x60)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(Segment::parse(&bytes).is_none(), "{at} {value}");
        }
        for length in 0..good.len() {
            assert!(Segment::parse(&good[..length]).is_none(), "{length}");
        }
        assert!(!Segment::parse(&frame("[ff02::1]:1", "[fd00::1]:80", 2, b"")).unwrap().has_usable_peer());
        assert!(!Segment::parse(&frame("0.0.0.0:1", "10.0.0.1:80", 2, b"")).unwrap().has_usable_peer());
        assert!(!Segment::parse(&frame("10.0.0.2:0", "10.0.0.1:80", 2, b"")).unwrap().has_usable_peer());
    }
}
