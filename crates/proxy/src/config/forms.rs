//! Texts with a form of their own: names, addresses, networks, hosts, paths, fields, users. Each
//! check says what is wrong and what would be right; where it stands is the caller's to know.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use regex::{Regex, RegexBuilder};
use rt::address::Address;

use crate::plan::{LogTarget, Network};
use crate::route::path::{bare_host, normal, without_port};

/// Bytes that one compiled regular expression may take; its cache of states may take four times
/// that. What is larger is refused: `\w{1000}` is short to write.
pub const REGEX_BYTES_MAX: usize = 256 << 10;

const NAME_BYTES_MAX: usize = 64;
/// Where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/var/run/netns";

/// A name that stands in logs and metrics as it is.
pub(super) fn name(text: &str) -> Result<(), String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(fine) {
        return Err(format!(
            "'{text}' is not a name: use 1 to {NAME_BYTES_MAX} letters, digits, '-', '_', '.', ':'"
        ));
    }
    Ok(())
}

/// An address to listen on.
pub(super) fn bind_address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|error: rt::address::BadAddress| error.to_string())
}

/// A path of a unix socket.
pub(super) fn socket_path(text: &str) -> Result<PathBuf, String> {
    // sun_path of unix(7) holds 108 bytes with its closing NUL.
    match text {
        "" => Err("the path is empty (write /run/weir.sock)".to_owned()),
        _ if text.starts_with("unix:") => Err(format!("'{text}' is to be a path, without unix:")),
        _ if text.ends_with('/') => Err(format!("'{text}' is a folder, and not a file in it")),
        _ if text.len() > 107 => Err("a unix socket's path has at most 107 bytes".to_owned()),
        _ => Ok(PathBuf::from(text)),
    }
}

/// The mode of a file, in octal.
pub(super) fn file_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("'{text}' is not a mode (write three octal digits, 660)"))
}

/// An address to connect to.
pub(super) fn server_address(text: &str) -> Result<Address, String> {
    let address = bind_address(text)?;
    match &address {
        Address::Tcp(tcp) if tcp.port() == 0 => Err(format!("'{text}' has no port to connect to")),
        _ => Ok(address),
    }
}

/// `10.0.0.0/8`, or an address for itself alone.
pub(super) fn network(text: &str) -> Result<Network, String> {
    let wrong = || format!("'{text}' is not a network (write 10.0.0.0/8, ::1 or 2001:db8::/32)");
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(wrong)?,
        None => bits,
    };
    let first = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    };
    if first != address {
        return Err(format!("'{text}' has bits behind its prefix: write {first}/{prefix}"));
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(format!("'{text}' is an IPv4 address in IPv6: write it as IPv4"));
    }
    Ok(Network { address, prefix })
}

/// A host to compare with: lower case, no port, `*.` only at the start.
pub(super) fn host(text: &str) -> Result<Box<str>, String> {
    let bare = without_port(text);
    if bare != text {
        return Err(format!("hosts are compared without port: write '{bare}'"));
    }
    if text == "*" {
        return Err("'*' is any host: leave `host` out".into());
    }
    let mut room = String::new();
    let bare = bare_host(text, &mut room);
    let rest = bare.strip_prefix("*.").unwrap_or(bare);
    let is_literal = rest.starts_with('[') && rest.ends_with(']') && rest == bare;
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = !rest.is_empty() && !rest.starts_with('.') && rest.bytes().all(fine);
    let is_ip = is_literal && rest[1..rest.len() - 1].parse::<std::net::Ipv6Addr>().is_ok();
    if is_name || is_ip {
        return Ok(bare.into());
    }
    Err(format!("'{text}' is not a host (write example.org, *.example.org or [::1])"))
}

/// A path as it is compared.
pub(super) fn path(text: &str) -> Result<Box<str>, String> {
    if !text.starts_with('/') {
        return Err(format!("'{text}' is not a path: it starts with '/'"));
    }
    if text.contains('?') {
        return Err(format!("'{text}' has a query: write the path alone, and see `query`"));
    }
    wire::encode::check_target(text).map_err(|error| format!("'{text}': {error}"))?;
    let mut room = String::new();
    match normal(text, &mut room) {
        same if same == text => Ok(text.into()),
        other => {
            Err(format!("'{text}' never matches: paths are compared normalised, write '{other}'"))
        }
    }
}

/// A regular expression of a bounded size.
pub(super) fn regex(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text)
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(4 * REGEX_BYTES_MAX)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!(
                "'{text}' takes more than {} KiB compiled: make it smaller",
                REGEX_BYTES_MAX >> 10
            )
        }
        // The last line says what is wrong, those before draw where; one line is what we have.
        other => {
            let words = other.to_string();
            let last = words.lines().last().unwrap_or_default();
            let why = last.trim_start_matches("error: ");
            format!("'{text}' is not a regular expression: {why}")
        }
    })
}

/// A field's name that a route may change; `sets` tells whether it is set, rather than added or
/// removed.
pub(super) fn changed_field(text: &str, sets: bool) -> Result<(), String> {
    field_name(text)?;
    if wire::is_hop_by_hop(text) || text.eq_ignore_ascii_case("content-length") {
        return Err(format!("'{text}' belongs to the connection: the proxy decides it itself"));
    }
    if text.eq_ignore_ascii_case("host") && !sets {
        return Err(format!("'{text}' stands in a request exactly once: it can only be set"));
    }
    Ok(())
}

pub(super) fn field_name(text: &str) -> Result<(), String> {
    wire::encode::check_field_name(text).map_err(|error| format!("'{text}': {error}"))
}

pub(super) fn field_value(text: &str) -> Result<(), String> {
    wire::encode::check_field_value(text.as_bytes()).map_err(|error| format!("{text:?}: {error}"))
}

/// A value of `Host`: what a request may have there.
pub(super) fn authority(text: &str) -> Result<(), String> {
    let head = format!("GET / HTTP/1.1\r\nHost: {text}\r\n\r\n");
    let mut slots = wire::header_slots();
    match wire::parse_request(head.as_bytes(), &wire::Limits::default(), &mut slots) {
        Ok(wire::Parsed::Complete { head, .. }) if head.host == Some(text) => Ok(()),
        _ => Err(format!("'{text}' is not a host (write example.org or example.org:8080)")),
    }
}

/// The template of a redirect's `Location`.
pub(super) fn location(text: &str) -> Result<(), String> {
    wire::encode::check_target(text.split('#').collect::<String>().as_str())
        .map_err(|_| format!("{text:?} is not a location: visible ASCII only, and not nothing"))?;
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let known = ["{host}", "{path}", "{query}"];
        let Some(word) = known.iter().find(|word| rest[at..].starts_with(**word)) else {
            let what = &rest[at..rest[at..].find('}').map_or(rest.len(), |end| at + end + 1)];
            return Err(format!("'{what}' stands for nothing: use {}", known.join(", ")));
        };
        rest = &rest[at + word.len()..];
    }
    Ok(())
}

/// Where log lines go.
pub(super) fn log_target(text: &str) -> Result<LogTarget, String> {
    let syslog = text.strip_prefix("syslog:");
    match (text, text.strip_prefix("file:"), syslog) {
        ("stdout", ..) => Ok(LogTarget::Stdout),
        (_, Some(path), _) if !path.is_empty() => Ok(LogTarget::File(path.into())),
        (.., Some(path)) if path.starts_with('/') => Ok(LogTarget::SyslogUnix(path.into())),
        (.., Some(address)) if address.parse::<SocketAddr>().is_ok() => {
            address.parse().map(LogTarget::SyslogUdp).map_err(|_| String::new())
        }
        _ => Err(format!(
            "'{text}' is no place for log lines (write stdout, file:/path, \
             syslog:127.0.0.1:514 or syslog:/dev/log)"
        )),
    }
}

/// The path of a network namespace, by name or path.
pub(super) fn namespace(text: &str) -> Result<PathBuf, String> {
    let path =
        if text.contains('/') { PathBuf::from(text) } else { Path::new(NAMESPACES).join(text) };
    match fs::metadata(&path) {
        Ok(_) if !text.is_empty() => Ok(path),
        Ok(_) => Err("the name of a namespace is empty".into()),
        Err(error) => {
            let path = path.display();
            Err(format!("no network namespace {path}: {error} (`ip netns` lists and adds them)"))
        }
    }
}

/// A user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) id: u32,
    /// A user's own group, as far as it is known.
    pub(super) group: Option<u32>,
}

/// The user of `/etc/passwd`, or the group of `/etc/group`, by name or id. An id need not be there.
pub(super) fn account(file: &str, text: &str) -> Result<Account, String> {
    let lines = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
    let id = text.parse::<u32>().ok();
    let found = lines.as_deref().unwrap_or_default().lines().find_map(|line| {
        let mut parts = line.split(':');
        let (name, line_id) = (parts.next()?, parts.nth(1)?.parse::<u32>().ok()?);
        let group = parts.next().and_then(|group| group.parse().ok());
        (name == text || Some(line_id) == id).then_some(Account { id: line_id, group })
    });
    match (found, id, lines) {
        (Some(account), ..) => Ok(account),
        // 2^32 - 1 is "no change" to the kernel.
        (None, Some(id), _) if id < u32::MAX => Ok(Account { id, group: None }),
        (.., Err(error)) => Err(error),
        _ => Err(format!("'{text}' is not in {file}: write a name that is, or an id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_say_what_to_write() {
        let show =
            |text| network(text).map(|network| (network.address.to_string(), network.prefix));
        assert_eq!(show("10.0.0.0/8"), Ok(("10.0.0.0".into(), 8)));
        assert_eq!(show("127.0.0.1"), Ok(("127.0.0.1".into(), 32)));
        assert_eq!(show("::/0"), Ok(("::".into(), 0)));
        assert!(show("10.1.0.0/8").unwrap_err().contains("write 10.0.0.0/8"));
        for wrong in ["10.0.0.0/33", "x", "", "10.0.0.0/", "::ffff:10.0.0.1", "fe80::1%eth0"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_are_kept_as_they_are_compared() {
        for (text, kept) in
            [("Example.ORG.", "example.org"), ("*.A.b", "*.a.b"), ("[::1]", "[::1]")]
        {
            assert_eq!(host(text).as_deref(), Ok(kept));
        }
        for wrong in ["", "*", "a:80", "a b", "*.", "a.*.b", "*a.b", "[::1", "[x]", ".a", "*..a"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn users_are_found_by_name_and_id() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("passwd");
        fs::write(&file, "# no\nroot:x:0:0:root:/:/bin/sh\nweir:x:77:88::/:\nbroken\n").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(account(file, "weir"), Ok(Account { id: 77, group: Some(88) }));
        assert_eq!(account(file, "77"), Ok(Account { id: 77, group: Some(88) }));
        assert_eq!(account(file, "1234"), Ok(Account { id: 1234, group: None }));
        assert!(account(file, "nobody").is_err() && account(file, "4294967295").is_err());
        assert!(account("/nowhere", "weir").unwrap_err().contains("/nowhere"));
    }

    #[test]
    fn a_regular_expression_is_bounded() {
        assert!(regex("^/v[0-9]+/").is_ok());
        assert!(regex(r"\w{1000}").unwrap_err().contains("256 KiB"));
        let why = regex("a(").unwrap_err();
        assert!(why.contains("unclosed group") && !why.contains('\n'), "{why}");
    }
}
