//! The PROXY protocol, versions 1 and 2: who a connection is really from, said by the proxy before
//! us in its first bytes, and by us to a server. After HAProxy's `doc/proxy-protocol.txt`.
//!
//! Bytes in, answer out: no socket here, and no opinion about whom to believe. Whether there is a
//! header is never guessed: a listener has one on each connection or on none.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::plan::ProxyVersion;

/// What the start of a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A header of so many bytes; what is behind it belongs to the connection.
    Complete { header: Header, bytes: usize },
    /// It can still become one. It never will when there are [`HEADER_BYTES_MAX`] bytes.
    Incomplete,
    /// It is none, and the connection is to be closed.
    Invalid(Wrong),
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// The client's address and the one that it connected to, over TCP.
    Proxied { source: SocketAddr, destination: SocketAddr },
    /// The addresses of the connection itself hold: the sender does not know others (`UNKNOWN`,
    /// `UNSPEC`), speaks for itself (`LOCAL`), or its client came over a unix socket or UDP.
    Own,
}

/// One row for each thing that can be wrong with a header.
macro_rules! wrongs {
    ($($variant:ident, $text:literal;)*) => {
        /// What is wrong with a header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Wrong {
            $(#[doc = $text] $variant,)*
        }

        impl Wrong {
            /// As it is shown to people.
            pub(crate) fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

wrongs! {
    NoHeader, "the connection does not start with a PROXY protocol header";
    LineTooLong, "no CRLF in the first 107 bytes of a version 1 header";
    BadLineEnd, "a CR or LF stands alone in a version 1 header";
    BadFamily, "the family of a version 1 header is not TCP4, TCP6 or UNKNOWN";
    BadFields, "a version 1 header does not have two addresses and two ports, a space between each";
    BadAddress, "an address of a version 1 header is not of its family";
    BadPort, "a port of a version 1 header is not a number from 0 to 65535 without leading zeros";
    BadVersion, "the version of a binary header is not 2";
    BadCommand, "the command of a version 2 header is not LOCAL or PROXY";
    BadFamilyByte, "the family or transport of a version 2 header is not assigned";
    TooLong, "a version 2 header is longer than 552 bytes";
    TooShort, "a version 2 header is too short for the addresses of its family";
    BadTlv, "an extension of a version 2 header is longer than what is left of the header";
    BadChecksum, "the CRC32c checksum of a version 2 header is wrong";
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The longest line of version 1, CRLF included.
const LINE_BYTES_MAX: usize = 107;
/// The fixed part of version 2.
const FIXED_BYTES: usize = 16;
/// What may follow it: a header is meant to fit the smallest segment that every host has to take.
const VARIABLE_BYTES_MAX: usize = 536;
/// No header is longer.
pub(crate) const HEADER_BYTES_MAX: usize = FIXED_BYTES + VARIABLE_BYTES_MAX;

const TEXT: &[u8] = b"PROXY ";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The extension that holds a checksum of the header.
const TLV_CRC32C: u8 = 0x03;

/// Reads the start of a connection. The answer to a header does not depend on how much of what is
/// behind it is there, and what is wrong is said as soon as no byte could put it right.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let parsed = if is_start(bytes, SIGNATURE) {
        parse_binary(bytes)
    } else if is_start(bytes, TEXT) {
        parse_text(bytes)
    } else {
        Err(Wrong::NoHeader)
    };
    match parsed {
        Ok(Some((header, bytes))) => Parsed::Complete { header, bytes },
        Ok(None) => Parsed::Incomplete,
        Err(wrong) => Parsed::Invalid(wrong),
    }
}

/// Whether `bytes` start with `whole`, or `whole` with them.
fn is_start(bytes: &[u8], whole: &[u8]) -> bool {
    let both = bytes.len().min(whole.len());
    bytes[..both] == whole[..both]
}

type Found = Result<Option<(Header, usize)>, Wrong>;

fn parse_text(bytes: &[u8]) -> Found {
    let shown = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = memchr::memchr2(b'\r', b'\n', shown) else {
        return if shown.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Wrong::LineTooLong) };
    };
    if shown[end] == b'\n' {
        return Err(Wrong::BadLineEnd);
    }
    match shown.get(end + 1) {
        Some(b'\n') => {}
        Some(_) => return Err(Wrong::BadLineEnd),
        None if shown.len() < LINE_BYTES_MAX => return Ok(None),
        None => return Err(Wrong::LineTooLong),
    }
    // A whole line is here, but perhaps not a whole `TEXT`.
    let line = shown[..end].strip_prefix(TEXT).ok_or(Wrong::BadFamily)?;
    Ok(Some((parse_line(line)?, end + 2)))
}

/// What stands between `PROXY ` and CRLF.
fn parse_line(line: &[u8]) -> Result<Header, Wrong> {
    let mut fields = line.split(|&byte| byte == b' ');
    let family = fields.next().unwrap_or_default();
    if family == b"UNKNOWN" {
        return Ok(Header::Own);
    }
    let address = match family {
        b"TCP4" => |text: &str| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        b"TCP6" => |text: &str| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => return Err(Wrong::BadFamily),
    };
    let all: Vec<&[u8]> = fields.take(5).collect();
    let &[source, destination, source_port, destination_port] = all.as_slice() else {
        return Err(Wrong::BadFields);
    };
    let address =
        |field| std::str::from_utf8(field).ok().and_then(address).ok_or(Wrong::BadAddress);
    Ok(Header::Proxied {
        source: SocketAddr::new(address(source)?, port(source_port)?),
        destination: SocketAddr::new(address(destination)?, port(destination_port)?),
    })
}

fn port(field: &[u8]) -> Result<u16, Wrong> {
    let plain = matches!(field, [b'0'] | [b'1'..=b'9', ..]) && field.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(field).ok().filter(|_| plain);
    text.and_then(|text| text.parse().ok()).ok_or(Wrong::BadPort)
}

fn parse_binary(bytes: &[u8]) -> Found {
    // Each byte is judged when it is there, so that the answer is the same however they come.
    let local = match bytes.get(12) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(byte) if byte >> 4 == 2 => return Err(Wrong::BadCommand),
        Some(_) => return Err(Wrong::BadVersion),
    };
    let Some(&family) = bytes.get(13) else { return Ok(None) };
    // A sender that speaks for itself may put anything there.
    if !local && (family >> 4 > 3 || family & 0x0f > 2) {
        return Err(Wrong::BadFamilyByte);
    }
    let Some(length) = bytes.get(14..FIXED_BYTES) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    if length > VARIABLE_BYTES_MAX {
        return Err(Wrong::TooLong);
    }
    let address_bytes = match family >> 4 {
        1 if !local => 12,
        2 if !local => 36,
        3 if !local => 216,
        _ => 0,
    };
    if length < address_bytes {
        return Err(Wrong::TooShort);
    }
    let whole = FIXED_BYTES + length;
    let Some(header) = bytes.get(..whole) else { return Ok(None) };
    // Where the family does not tell how long the addresses are, what follows them cannot be found.
    if address_bytes > 0 {
        check_extensions(header, FIXED_BYTES + address_bytes)?;
    }
    let said = match family {
        0x11 | 0x21 if !local => proxied(&header[FIXED_BYTES..FIXED_BYTES + address_bytes]),
        _ => Header::Own,
    };
    Ok(Some((said, whole)))
}

/// Two addresses, then two ports; 12 or 36 bytes.
fn proxied(block: &[u8]) -> Header {
    let (addresses, ports) = block.split_at(block.len() - 4);
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let ip = |bytes: &[u8]| match <[u8; 4]>::try_from(bytes) {
        Ok(four) => IpAddr::from(four),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap_or_default()),
    };
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Header::Proxied {
        source: SocketAddr::new(ip(source), port(0)),
        destination: SocketAddr::new(ip(destination), port(2)),
    }
}

/// Walks over the extensions, which have to end where the header does, and checks the checksum.
fn check_extensions(header: &[u8], mut at: usize) -> Result<(), Wrong> {
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else { return Err(Wrong::BadTlv) };
        let value = at + 3;
        let end = value + usize::from(u16::from_be_bytes([high, low]));
        let Some(bytes) = header.get(value..end) else { return Err(Wrong::BadTlv) };
        if kind == TLV_CRC32C {
            let Ok(said) = <[u8; 4]>::try_from(bytes) else { return Err(Wrong::BadChecksum) };
            let parts = [&header[..value], &[0; 4], &header[end..]];
            if crc32c(parts.into_iter().flatten()) != u32::from_be_bytes(said) {
                return Err(Wrong::BadChecksum);
            }
        }
        at = end;
    }
    Ok(())
}

/// CRC32c, bit by bit: once a connection over half a kilobyte at the most, a table does not pay.
fn crc32c<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    !bytes.fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

/// Adds a header to `out`. Without both addresses (a unix socket, or our own connection) it says
/// that those of the connection hold. An IPv4 address mapped into IPv6 is written as what it maps;
/// where only one of the two is IPv4, both are written as IPv6.
pub(crate) fn write(
    version: ProxyVersion,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    out: &mut Vec<u8>,
) {
    let addresses = source.zip(destination);
    match version {
        ProxyVersion::V1 => write_text(addresses, out),
        ProxyVersion::V2 => write_binary(addresses, out),
    }
}

fn write_text(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to a Vec does not fail.
    let _ = match addresses {
        None => out.write_all(b"PROXY UNKNOWN\r\n"),
        Some((source, destination)) => match same_family(source, destination) {
            Pair::V4(from, to) => {
                let (from_port, to_port) = (source.port(), destination.port());
                write!(out, "PROXY TCP4 {from} {to} {from_port} {to_port}\r\n")
            }
            Pair::V6(from, to) => {
                let (from_port, to_port) = (source.port(), destination.port());
                write!(out, "PROXY TCP6 {} {} {from_port} {to_port}\r\n", Hex(from), Hex(to))
            }
        },
    };
}

fn write_binary(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    let Some((source, destination)) = addresses else {
        // LOCAL, UNSPEC, nothing.
        out.extend_from_slice(&[0x20, 0, 0, 0]);
        return;
    };
    match same_family(source, destination) {
        Pair::V4(from, to) => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        Pair::V6(from, to) => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

/// Two addresses of one family.
enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

fn same_family(source: SocketAddr, destination: SocketAddr) -> Pair {
    let six = |address| match address {
        IpAddr::V4(four) => Ipv4Addr::to_ipv6_mapped(&four),
        IpAddr::V6(six) => six,
    };
    match (source.ip().to_canonical(), destination.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Pair::V4(source, destination),
        (source, destination) => Pair::V6(six(source), six(destination)),
    }
}

/// Groups of hexadecimal digits only: the text form of a mapped address has dots, which a header
/// may not have.
struct Hex(Ipv6Addr);

impl fmt::Display for Hex {
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
