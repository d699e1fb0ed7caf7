//! The PROXY protocol, versions 1 and 2: the original address of a connection, sent in its first
//! bytes by the proxy in front, and by a proxy or a load generator to a server. Follows HAProxy's
//! `doc/proxy-protocol.txt`.
//!
//! Pure: bytes in, result out. No socket, and no decision about which peers to trust. The presence
//! of a header is never guessed: a listener expects one on every connection or on none.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Version of a PROXY protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    V1,
    V2,
}

/// Parse result for the start of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedHeader {
    /// A header of `bytes` bytes; what follows belongs to the connection.
    Complete { header: Header, bytes: usize },
    /// The header may still become complete. With [`HEADER_BYTES_MAX`] bytes it never will.
    Incomplete,
    /// Not a valid header; the connection must be closed.
    Invalid(HeaderError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The client's address and the address that it connected to, over TCP.
    Proxied { source: SocketAddr, destination: SocketAddr },
    /// The connection's own addresses apply: the sender knows no others (`UNKNOWN`, `UNSPEC`),
    /// connects for itself (`LOCAL`), or its client came over a unix socket or UDP.
    Unproxied,
}

/// One row for each possible error in a header.
macro_rules! header_errors {
    ($($variant:ident, $text:literal;)*) => {
        /// Error in a header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum HeaderError {
            $(#[doc = $text] $variant,)*
        }

        impl HeaderError {
            /// Returns the text for people.
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

header_errors! {
    NoHeader, "the connection does not start with a PROXY protocol header";
    LineTooLong, "no CRLF in the first 107 bytes of a version 1 header";
    BadLineEnd, "a version 1 header contains a bare CR or LF";
    BadFamily, "the family of a version 1 header is not TCP4, TCP6 or UNKNOWN";
    BadFields, "a version 1 header does not have two addresses and two ports, separated by single spaces";
    BadAddress, "an address of a version 1 header does not match its family";
    BadPort, "a port of a version 1 header is not a number from 0 to 65535 without leading zeros";
    BadVersion, "the version of a binary header is not 2";
    BadCommand, "the command of a version 2 header is not LOCAL or PROXY";
    BadFamilyByte, "the family or transport of a version 2 header is not assigned";
    TooLong, "a version 2 header is longer than 552 bytes";
    TooShort, "a version 2 header is too short for the addresses of its family";
    BadTlv, "an extension of a version 2 header exceeds the header";
    BadChecksum, "the CRC32c checksum of a version 2 header is wrong, or there are two";
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Maximum length of a version 1 line in bytes, CRLF included.
const V1_LINE_BYTES_MAX: usize = 107;
/// Size of the fixed part of version 2 in bytes.
const V2_FIXED_BYTES: usize = 16;
/// Maximum size of the variable part: a header should fit the smallest segment that every host must
/// accept.
const V2_VARIABLE_BYTES_MAX: usize = 536;
pub const HEADER_BYTES_MAX: usize = V2_FIXED_BYTES + V2_VARIABLE_BYTES_MAX;

const V1_PREFIX: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Type of the extension with the header's checksum.
const TLV_CRC32C: u8 = 0x03;

/// Parses the start of a connection. The result for a header does not depend on how many of the
/// following bytes have arrived. An error is returned as soon as no further byte could fix it.
pub fn parse(bytes: &[u8]) -> ParsedHeader {
    let parsed = if is_prefix_either_way(bytes, V2_SIGNATURE) {
        parse_v2(bytes)
    } else if is_prefix_either_way(bytes, V1_PREFIX) {
        parse_v1(bytes)
    } else {
        Err(HeaderError::NoHeader)
    };
    match parsed {
        Ok(Some((header, bytes))) => ParsedHeader::Complete { header, bytes },
        Ok(None) => ParsedHeader::Incomplete,
        Err(error) => ParsedHeader::Invalid(error),
    }
}

fn is_prefix_either_way(bytes: &[u8], signature: &[u8]) -> bool {
    let common = bytes.len().min(signature.len());
    bytes[..common] == signature[..common]
}

type ParseResult = Result<Option<(Header, usize)>, HeaderError>;

fn parse_v1(bytes: &[u8]) -> ParseResult {
    let start = &bytes[..bytes.len().min(V1_LINE_BYTES_MAX)];
    let Some(end) = memchr::memchr2(b'\r', b'\n', start) else {
        return if start.len() < V1_LINE_BYTES_MAX { Ok(None) } else { Err(HeaderError::LineTooLong) };
    };
    if start[end] == b'\n' {
        return Err(HeaderError::BadLineEnd);
    }
    match start.get(end + 1) {
        Some(b'\n') => {}
        Some(_) => return Err(HeaderError::BadLineEnd),
        None if start.len() < V1_LINE_BYTES_MAX => return Ok(None),
        None => return Err(HeaderError::LineTooLong),
    }
    // The line is complete, but `TEXT` may not be.
    let line = start[..end].strip_prefix(V1_PREFIX).ok_or(HeaderError::BadFamily)?;
    Ok(Some((parse_v1_line(line)?, end + 2)))
}

/// Parses the text between `PROXY ` and CRLF.
fn parse_v1_line(line: &[u8]) -> Result<Header, HeaderError> {
    let mut fields = line.split(|&byte| byte == b' ');
    let family = fields.next().unwrap_or_default();
    if family == b"UNKNOWN" {
        return Ok(Header::Unproxied);
    }
    let parse_address = match family {
        b"TCP4" => |text: &str| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        b"TCP6" => |text: &str| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => return Err(HeaderError::BadFamily),
    };
    let values: Vec<&[u8]> = fields.take(5).collect();
    let &[source, destination, source_port, destination_port] = values.as_slice() else {
        return Err(HeaderError::BadFields);
    };
    let address_of =
        |field| std::str::from_utf8(field).ok().and_then(parse_address).ok_or(HeaderError::BadAddress);
    Ok(Header::Proxied {
        source: SocketAddr::new(address_of(source)?, parse_port(source_port)?),
        destination: SocketAddr::new(address_of(destination)?, parse_port(destination_port)?),
    })
}

fn parse_port(field: &[u8]) -> Result<u16, HeaderError> {
    let is_decimal = matches!(field, [b'0'] | [b'1'..=b'9', ..]) && field.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(field).ok().filter(|_| is_decimal);
    text.and_then(|text| text.parse().ok()).ok_or(HeaderError::BadPort)
}

fn parse_v2(bytes: &[u8]) -> ParseResult {
    // Each byte is checked as soon as it has arrived, so that the result does not depend on the
    // chunking.
    let local = match bytes.get(12) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(byte) if byte >> 4 == 2 => return Err(HeaderError::BadCommand),
        Some(_) => return Err(HeaderError::BadVersion),
    };
    let Some(&family) = bytes.get(13) else { return Ok(None) };
    // A sender that connects for itself may put anything there.
    if !local && (family >> 4 > 3 || family & 0x0f > 2) {
        return Err(HeaderError::BadFamilyByte);
    }
    let Some(length) = bytes.get(14..V2_FIXED_BYTES) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    if length > V2_VARIABLE_BYTES_MAX {
        return Err(HeaderError::TooLong);
    }
    let address_bytes = match family >> 4 {
        1 if !local => 12,
        2 if !local => 36,
        3 if !local => 216,
        _ => 0,
    };
    if length < address_bytes {
        return Err(HeaderError::TooShort);
    }
    let header_bytes = V2_FIXED_BYTES + length;
    let Some(header) = bytes.get(..header_bytes) else { return Ok(None) };
    // If the family does not determine the length of the addresses, the extensions behind them
    // cannot be found.
    if address_bytes > 0 {
        check_extensions(header, V2_FIXED_BYTES + address_bytes)?;
    }
    let parsed = match family {
        0x11 | 0x21 if !local => parse_v2_addresses(&header[V2_FIXED_BYTES..V2_FIXED_BYTES + address_bytes]),
        _ => Header::Unproxied,
    };
    Ok(Some((parsed, header_bytes)))
}

/// Parses two addresses and two ports, in 12 or 36 bytes.
fn parse_v2_addresses(block: &[u8]) -> Header {
    let (addresses, ports) = block.split_at(block.len() - 4);
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let ip = |bytes: &[u8]| match <[u8; 4]>::try_from(bytes) {
        Ok(four) => IpAddr::from(four),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap_or_default()),
    };
    let port = |offset: usize| u16::from_be_bytes([ports[offset], ports[offset + 1]]);
    Header::Proxied {
        source: SocketAddr::new(ip(source), port(0)),
        destination: SocketAddr::new(ip(destination), port(2)),
    }
}

/// Iterates over the extensions, which must end where the header ends, and verifies the checksum.
fn check_extensions(header: &[u8], mut offset: usize) -> Result<(), HeaderError> {
    let mut has_checksum = false;
    while offset < header.len() {
        let Some(&[kind, high, low]) = header.get(offset..offset + 3) else {
            return Err(HeaderError::BadTlv);
        };
        let value = offset + 3;
        let end = value + usize::from(u16::from_be_bytes([high, low]));
        let Some(bytes) = header.get(value..end) else { return Err(HeaderError::BadTlv) };
        if kind == TLV_CRC32C {
            // Each checksum takes the time of the complete header.
            if std::mem::replace(&mut has_checksum, true) {
                return Err(HeaderError::BadChecksum);
            }
            let Ok(checksum) = <[u8; 4]>::try_from(bytes) else { return Err(HeaderError::BadChecksum) };
            let parts = [&header[..value], &[0; 4], &header[end..]];
            if crc32c(parts.into_iter().flatten()) != u32::from_be_bytes(checksum) {
                return Err(HeaderError::BadChecksum);
            }
        }
        offset = end;
    }
    Ok(())
}

/// Computes CRC32c bit by bit. It runs once a connection over at most half a kilobyte, so a table
/// does not pay.
fn crc32c<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    !bytes.fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

/// Appends a header to `out`. Without both addresses (a unix socket, or the proxy's own connection)
/// the header states that the connection's own addresses apply. An IPv4 address mapped into IPv6 is
/// written as IPv4. If only one of the two is IPv4, both are written as IPv6.
pub fn write_header(
    version: ProxyVersion,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    out: &mut Vec<u8>,
) {
    let addresses = source.zip(destination);
    match version {
        ProxyVersion::V1 => write_v1(addresses, out),
        ProxyVersion::V2 => write_v2(addresses, out),
    }
}

fn write_v1(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to a Vec does not fail.
    let _ = match addresses {
        None => out.write_all(b"PROXY UNKNOWN\r\n"),
        Some((source, destination)) => match to_same_family(source, destination) {
            AddressPair::V4(from, to) => {
                let (from_port, to_port) = (source.port(), destination.port());
                write!(out, "PROXY TCP4 {from} {to} {from_port} {to_port}\r\n")
            }
            AddressPair::V6(from, to) => {
                let (from_port, to_port) = (source.port(), destination.port());
                write!(out, "PROXY TCP6 {} {} {from_port} {to_port}\r\n", HexIpv6(from), HexIpv6(to))
            }
        },
    };
}

fn write_v2(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    out.extend_from_slice(V2_SIGNATURE);
    let Some((source, destination)) = addresses else {
        // LOCAL, UNSPEC, no addresses.
        out.extend_from_slice(&[0x20, 0, 0, 0]);
        return;
    };
    match to_same_family(source, destination) {
        AddressPair::V4(from, to) => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        AddressPair::V6(from, to) => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

/// Two addresses of one family.
enum AddressPair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

fn to_same_family(source: SocketAddr, destination: SocketAddr) -> AddressPair {
    let to_ipv6 = |address| match address {
        IpAddr::V4(four) => Ipv4Addr::to_ipv6_mapped(&four),
        IpAddr::V6(six) => six,
    };
    match (source.ip().to_canonical(), destination.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => AddressPair::V4(source, destination),
        (source, destination) => AddressPair::V6(to_ipv6(source), to_ipv6(destination)),
    }
}

/// Display form with groups of hexadecimal digits only: the usual text form of a mapped address has
/// dots, which a header may not have.
struct HexIpv6(Ipv6Addr);

impl fmt::Display for HexIpv6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(address) = self;
        if address.to_ipv4_mapped().is_none() {
            return write!(f, "{address}");
        }
        let [.., high, low] = address.segments();
        write!(f, "::ffff:{high:x}:{low:x}")
    }
}

#[cfg(test)]
#[path = "proxy_protocol/tests.rs"]
mod tests;
