//! Target host of a request: the four forms of a request target, and the `Host` that must agree
//! with it.
//!
//! RFC 9112 §3.2 and RFC 9110 §7.2. Decoding, normalising and splitting a path is the router's
//! task.

use super::head::Version;
use super::refusal::RefusalKind;

/// Checks target and `Host` together, and returns the host of the request. The bytes of the target are valid.
#[inline]
pub(super) fn request_host<'b>(
    method: &str,
    target: &'b str,
    version: Version,
    host: Option<&'b [u8]>,
) -> Result<Option<&'b str>, RefusalKind> {
    let host = match host {
        Some(value) => Some(validate_host(value)?),
        None if version == Version::Http11 => return Err(RefusalKind::HostMissing),
        None => None,
    };
    if target.as_bytes()[0] == b'/' && method != "CONNECT" {
        return match host {
            Some("") => Err(RefusalKind::HostInvalid),
            _ => Ok(host),
        };
    }
    check_other_forms(method, target, host)
}

/// Checks a `Host` value and returns it as text: empty, or a host with an optional port.
#[inline]
fn validate_host(value: &[u8]) -> Result<&str, RefusalKind> {
    if !value.is_empty() && split_host_port(value).is_none() {
        return Err(RefusalKind::HostInvalid);
    }
    std::str::from_utf8(value).map_err(|_| RefusalKind::HostInvalid)
}

/// Checks asterisk-form, authority-form and absolute-form (RFC 9112 §3.2.2 to §3.2.4): rare, so out
/// of line.
#[cold]
fn check_other_forms<'b>(
    method: &str,
    target: &'b str,
    host: Option<&'b str>,
) -> Result<Option<&'b str>, RefusalKind> {
    if target == "*" {
        return if method == "OPTIONS" { Ok(host) } else { Err(RefusalKind::TargetForm) };
    }
    if method == "CONNECT" {
        return check_connect_form(target, host);
    }
    check_absolute_form(target, host)
}

/// Checks `host:port`, with the port. The `Host` of a CONNECT must be the same (RFC 9112 §3.2.2). A
/// `Host` without a port implies one of the default ports, as in a URL.
fn check_connect_form<'b>(target: &'b str, host: Option<&'b str>) -> Result<Option<&'b str>, RefusalKind> {
    let Some((name, Some(port))) = split_host_port(target.as_bytes()) else {
        return Err(RefusalKind::TargetForm);
    };
    let has_same_port = |other: Option<u16>| other.map_or(matches!(port, 80 | 443), |other| other == port);
    match host.map(|host| split_host_port(host.as_bytes())) {
        None => Ok(Some(target)),
        Some(Some((other, other_port))) if other.eq_ignore_ascii_case(name) && has_same_port(other_port) => {
            Ok(Some(target))
        }
        Some(None) => Err(RefusalKind::HostInvalid),
        Some(Some(_)) => Err(RefusalKind::HostMismatch),
    }
}

/// Checks `scheme://authority…` for http and https, without user information.
fn check_absolute_form<'b>(target: &'b str, host: Option<&'b str>) -> Result<Option<&'b str>, RefusalKind> {
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(RefusalKind::TargetForm);
    };
    let default_port: u16 = match scheme.len() {
        4 if scheme.eq_ignore_ascii_case("http") => 80,
        5 if scheme.eq_ignore_ascii_case("https") => 443,
        _ => return Err(RefusalKind::TargetForm),
    };
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    let Some((name, port)) = split_host_port(authority.as_bytes()) else {
        return Err(RefusalKind::InvalidTarget);
    };
    let Some(host) = host else {
        return Ok(Some(authority));
    };
    match split_host_port(host.as_bytes()) {
        None => Err(RefusalKind::HostInvalid),
        Some((other, other_port))
            if other.eq_ignore_ascii_case(name)
                && other_port.unwrap_or(default_port) == port.unwrap_or(default_port) =>
        {
            Ok(Some(authority))
        }
        Some(_) => Err(RefusalKind::HostMismatch),
    }
}

/// Splits `host[:port]` (RFC 3986 §3.2): a name or an address, an IP literal in brackets; no user
/// information and no percent-encoding, which no resolver would accept. An empty port (`host:`)
/// counts as none.
#[inline]
pub(crate) fn split_host_port(authority: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let end = if authority.first() == Some(&b'[') {
        find_ip_literal_end(authority)?
    } else {
        authority.iter().position(|&byte| !IS_NAME_BYTE[usize::from(byte)]).unwrap_or(authority.len())
    };
    match (&authority[..end], &authority[end..]) {
        ([], _) => None,
        (name, [] | [b':']) => Some((name, None)),
        (name, [b':', digits @ ..]) => Some((name, Some(parse_port(digits)?))),
        _ => None,
    }
}

/// Returns the index after `]`. Hexadecimal digits, colons and dots only: IPv6 with an embedded
/// IPv4, no zone.
fn find_ip_literal_end(authority: &[u8]) -> Option<usize> {
    let close = authority.iter().position(|&byte| byte == b']')?;
    let inside = &authority[1..close];
    let is_valid =
        inside.contains(&b':') && inside.iter().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(byte));
    is_valid.then_some(close + 1)
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    if digits.len() > 5 {
        return None;
    }
    let mut port = 0u32;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        port = port * 10 + u32::from(digit - b'0');
    }
    u16::try_from(port).ok()
}

/// Bytes allowed in a registered name: the unreserved characters and sub-delimiters of RFC 3986 §2.
const IS_NAME_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~!$&'()*+,;=";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};
