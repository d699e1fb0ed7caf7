//! Validates texts with a form of their own: names, addresses, networks, hosts, paths, fields,
//! users. Each check reports the error and a valid value. The caller knows the position
//! in the file.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use record::document::Problems;
use regex::{Regex, RegexBuilder};
use rt::address::Address;
use rt::dial::SourceError;
use rt::namespace::Namespace;

pub use crate::maps::REGEX_BYTES_MAX;
use crate::plan::{LogTarget, Network};
use crate::uri::{normalise, normalise_host, without_port};

use super::errors::ValueError;

const NAME_BYTES_MAX: usize = 64;
/// Directory where `ip netns` keeps namespaces.
const NAMESPACE_DIR: &str = "/var/run/netns";

/// Checks a name that appears unchanged in logs and metrics.
pub(super) fn check_name(text: &str) -> Result<(), ValueError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(is_allowed) {
        return Err(ValueError::Name { text: text.into(), bytes_max: NAME_BYTES_MAX });
    }
    Ok(())
}

pub(super) fn parse_bind_address(text: &str) -> Result<Address, ValueError> {
    Ok(text.parse::<Address>()?)
}

pub(super) fn parse_socket_path(text: &str) -> Result<PathBuf, ValueError> {
    // sun_path of unix(7) holds 108 bytes with its closing NUL.
    match text {
        "" => Err(ValueError::EmptySocketPath),
        _ if text.starts_with("unix:") => Err(ValueError::SocketPathWithScheme(text.into())),
        _ if text.ends_with('/') => Err(ValueError::SocketPathOfDirectory(text.into())),
        _ if text.len() > 107 => Err(ValueError::LongSocketPath),
        _ => Ok(PathBuf::from(text)),
    }
}

pub(super) fn parse_file_mode(text: &str) -> Result<u32, ValueError> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| ValueError::FileMode(text.into()))
}

pub(super) fn parse_server_address(text: &str) -> Result<Address, ValueError> {
    let address = parse_bind_address(text)?;
    match &address {
        Address::Tcp(tcp) if tcp.port() == 0 => Err(ValueError::NoPort(text.into())),
        _ => Ok(address),
    }
}

/// Parses a network like `10.0.0.0/8`, or an address, which is a network of one.
pub(super) fn parse_network(text: &str) -> Result<Network, ValueError> {
    let invalid = || ValueError::Network(text.into());
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| invalid())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(invalid)?,
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
        return Err(ValueError::NetworkBits { text: text.into(), first, prefix });
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(ValueError::MappedNetwork(text.into()));
    }
    Ok(Network { address, prefix })
}

/// Parses a host to compare with: lower case, no port, `*.` only at the start.
pub(super) fn parse_host(text: &str) -> Result<Box<str>, ValueError> {
    let host = without_port(text);
    if host != text {
        return Err(ValueError::HostWithPort(host.into()));
    }
    if text == "*" {
        return Err(ValueError::AnyHost);
    }
    let mut buffer = String::new();
    let host = normalise_host(text, &mut buffer);
    let rest = host.strip_prefix("*.").unwrap_or(host);
    let is_literal = rest.starts_with('[') && rest.ends_with(']') && rest == host;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = !rest.is_empty() && !rest.starts_with('.') && rest.bytes().all(is_allowed);
    let is_ip = is_literal && rest[1..rest.len() - 1].parse::<std::net::Ipv6Addr>().is_ok();
    if is_name || is_ip {
        return Ok(host.into());
    }
    Err(ValueError::HostPattern(text.into()))
}

/// Checks a path to compare with; it must be normalised.
pub(super) fn parse_path(text: &str) -> Result<Box<str>, ValueError> {
    if !text.starts_with('/') {
        return Err(ValueError::RelativePath(text.into()));
    }
    if text.contains('?') {
        return Err(ValueError::PathWithQuery(text.into()));
    }
    wire::encode::check_target(text).map_err(|error| ValueError::MessagePart { text: text.into(), error })?;
    let mut buffer = String::new();
    match normalise(text, &mut buffer) {
        normal_form if normal_form == text => Ok(text.into()),
        normal_form => Err(ValueError::PathForm { text: text.into(), normal_form: normal_form.into() }),
    }
}

/// Compiles a regular expression of bounded size.
pub(super) fn compile_regex(text: &str) -> Result<Regex, ValueError> {
    let result =
        RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).dfa_size_limit(4 * REGEX_BYTES_MAX).build();
    result.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            ValueError::LargeRegex { text: text.into(), kib_max: REGEX_BYTES_MAX >> 10 }
        }
        // The error has several lines, and a problem has one. The last line has the reason;
        // those before it only mark the position.
        other => {
            let message = other.to_string();
            let last = message.lines().last().unwrap_or_default();
            let reason = last.trim_start_matches("error: ");
            ValueError::Regex { text: text.into(), reason: reason.into() }
        }
    })
}

/// Compiles a pattern for a complete path: `*` is any text within a segment, `**` any text, `?` one character
/// of a segment.
pub(super) fn compile_glob(text: &str) -> Result<Regex, ValueError> {
    if !text.starts_with(['/', '*']) {
        return Err(ValueError::RelativePath(text.into()));
    }
    let (mut regex, mut rest) = ("^".to_owned(), text);
    while let Some(at) = rest.find(['*', '?']) {
        regex += &regex::escape(&rest[..at]);
        let (pattern, bytes) = match &rest[at..] {
            wild if wild.starts_with("**") => (".*", 2),
            wild if wild.starts_with('*') => ("[^/]*", 1),
            _ => ("[^/]", 1),
        };
        regex += pattern;
        rest = &rest[at + bytes..];
    }
    compile_regex(&(regex + &regex::escape(rest) + "$"))
}

/// Checks the name of a field that a route changes. `is_set` is true if the route sets the field,
/// and false if it adds or removes it.
pub(super) fn check_changed_field(text: &str, is_set: bool) -> Result<(), ValueError> {
    check_field_name(text)?;
    if wire::is_hop_by_hop(text) || text.eq_ignore_ascii_case("content-length") {
        return Err(ValueError::ConnectionField(text.into()));
    }
    if text.eq_ignore_ascii_case("host") && !is_set {
        return Err(ValueError::AddedHost(text.into()));
    }
    Ok(())
}

/// Checks the name of a field that a route removes, or with a final `*` the prefix of such names.
/// Fields that frame a message must not match.
pub(super) fn check_removed_field(text: &str) -> Result<(), ValueError> {
    const KEPT: [&str; 9] = [
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let Some(prefix) = text.strip_suffix('*') else {
        return check_changed_field(text, false);
    };
    if !prefix.is_empty() {
        check_field_name(prefix)?;
    }
    let lowercase = prefix.to_ascii_lowercase();
    match KEPT.iter().find(|protected| protected.starts_with(&lowercase)) {
        Some(protected) => Err(ValueError::RemovedPrefix { text: text.into(), kept: protected }),
        None => Ok(()),
    }
}

pub(super) fn check_field_name(text: &str) -> Result<(), ValueError> {
    wire::encode::check_field_name(text).map_err(|error| ValueError::MessagePart { text: text.into(), error })
}

pub(super) fn check_field_value(text: &str) -> Result<(), ValueError> {
    wire::encode::check_field_value(text.as_bytes())
        .map_err(|error| ValueError::FieldValue { text: text.into(), error })
}

/// Checks the attribute `Path` of a cookie (RFC 6265 §4.1.1).
pub(super) fn check_cookie_path(text: &str) -> Result<(), ValueError> {
    if !text.starts_with('/') {
        return Err(ValueError::RelativePath(text.into()));
    }
    let is_valid = text.bytes().all(|byte| byte.is_ascii_graphic() && !b";,".contains(&byte));
    if is_valid { Ok(()) } else { Err(ValueError::CookiePath(text.into())) }
}

/// Checks the attribute `Domain` of a cookie: a host name (RFC 6265 §4.1.1).
pub(super) fn check_cookie_domain(text: &str) -> Result<(), ValueError> {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_valid = text.len() <= 253 && text.split('.').all(is_label);
    if is_valid { Ok(()) } else { Err(ValueError::CookieDomain(text.into())) }
}

/// Checks a value of `Host`: it must be valid in a request.
pub(super) fn check_authority(text: &str) -> Result<(), ValueError> {
    let head = format!("GET / HTTP/1.1\r\nHost: {text}\r\n\r\n");
    let mut slots = wire::header_slots();
    match wire::parse_request(head.as_bytes(), &wire::Limits::default(), &mut slots) {
        Ok(wire::Parsed::Complete { head, .. }) if head.host == Some(text) => Ok(()),
        _ => Err(ValueError::Authority(text.into())),
    }
}

/// Checks the characters of a redirect's `Location`.
pub(super) fn check_location(text: &str) -> Result<(), ValueError> {
    wire::encode::check_target(text.split('#').collect::<String>().as_str())
        .map_err(|_| ValueError::Location(text.into()))
}

/// Parses the path of a file that the proxy replaces: its directory must be there.
pub(super) fn parse_state_file(text: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(text);
    let directory =
        path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    match (path.file_name(), directory.map(fs::metadata)) {
        (Some(_), Some(Ok(metadata))) if metadata.is_dir() && !path.is_dir() => Ok(path),
        _ => Err(ValueError::StateFile(path)),
    }
}

pub(super) fn parse_log_target(text: &str) -> Result<LogTarget, ValueError> {
    let invalid = || ValueError::LogTarget(text.into());
    let syslog = text.strip_prefix("syslog:");
    match (text, text.strip_prefix("file:"), syslog) {
        ("stdout", ..) => Ok(LogTarget::Stdout),
        (_, Some(path), _) if !path.is_empty() => Ok(LogTarget::File(path.into())),
        (.., Some(path)) if path.starts_with('/') => Ok(LogTarget::SyslogUnix(path.into())),
        (.., Some(address)) => address.parse().map(LogTarget::SyslogUdp).map_err(|_| invalid()),
        _ => Err(invalid()),
    }
}

/// Returns the path of a network namespace given by name or path.
pub(super) fn resolve_namespace(text: &str) -> Result<PathBuf, ValueError> {
    let path = if text.contains('/') { PathBuf::from(text) } else { Path::new(NAMESPACE_DIR).join(text) };
    match fs::metadata(&path) {
        Ok(_) if !text.is_empty() => Ok(path),
        Ok(_) => Err(ValueError::EmptyNamespace),
        Err(error) => Err(ValueError::Namespace { path, error }),
    }
}

/// Parses the source address of connections, and checks that an interface has it. In another
/// namespace that is only checked if this process may enter it.
pub(super) fn parse_source(text: &str, namespace: Option<&Path>) -> Result<IpAddr, ValueError> {
    let address: IpAddr = text.parse().map_err(|_| ValueError::IpAddress(text.into()))?;
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(ValueError::MappedNetwork(text.into()));
    }
    // A link-local address belongs to an interface only together with its scope.
    let needs_scope = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || is_broadcast || needs_scope {
        return Err(ValueError::SourceAddress(address));
    }
    let check = || rt::dial::check_source(address);
    let checked = match namespace {
        None => check(),
        Some(path) => Namespace::open(path).and_then(|namespace| namespace.run(check)).unwrap_or(Ok(())),
    };
    match checked {
        Ok(()) => Ok(address),
        Err(error) if SourceError::from_error(&error).is_some() => Err(ValueError::MissingAddress(address)),
        Err(error) => Err(ValueError::Source { address, error }),
    }
}

/// Reads a regular file. A device or a FIFO may never end, or never begin.
pub(super) fn read_bounded_file(path: &Path, bytes_max: usize) -> Result<Vec<u8>, ValueError> {
    let failed = |error| ValueError::File { path: path.into(), error };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ValueError::NotAFile(path.into()));
    }
    if metadata.len() > bytes_max as u64 {
        return Err(ValueError::LargeFile { path: path.into(), bytes_max });
    }
    fs::read(path).map_err(failed)
}

/// Reads a regular file with text in UTF-8.
pub(super) fn read_text_file(path: &Path, bytes_max: usize) -> Result<String, ValueError> {
    let invalid = |_| ValueError::NotText(path.into());
    String::from_utf8(read_bounded_file(path, bytes_max)?).map_err(invalid)
}

/// Warns about a file with a key that every user can read.
pub(super) fn warn_of_world_readable(path: &Path, offset: usize, problems: &mut Problems) {
    const OTHERS_READ: u32 = 0o004;
    let is_world_readable =
        fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & OTHERS_READ != 0);
    if is_world_readable {
        let shown_path = path.display();
        problems.warn(offset, format!("every user of this machine can read {shown_path}: run chmod o-r"));
    }
}

/// A user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) id: u32,
    /// Primary group of a user, if known.
    pub(super) group: Option<u32>,
}

/// Returns the user in `/etc/passwd`, or the group in `/etc/group`, with this name or id. An id
/// need not be listed there.
pub(super) fn find_account(file: &str, text: &str) -> Result<Account, ValueError> {
    let lines = fs::read_to_string(file).map_err(|error| ValueError::File { path: file.into(), error });
    let id = text.parse::<u32>().ok();
    let account = lines.as_deref().unwrap_or_default().lines().find_map(|line| {
        let mut parts = line.split(':');
        let (name, line_id) = (parts.next()?, parts.nth(1)?.parse::<u32>().ok()?);
        let group = parts.next().and_then(|group| group.parse().ok());
        (name == text || Some(line_id) == id).then_some(Account { id: line_id, group })
    });
    match (account, id, lines) {
        (Some(account), ..) => Ok(account),
        // To the kernel, 2^32 - 1 means "no change".
        (None, Some(id), _) if id < u32::MAX => Ok(Account { id, group: None }),
        (.., Err(error)) => Err(error),
        _ => Err(ValueError::Account { text: text.into(), file: file.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_errors_have_a_valid_example() {
        let show = |text| parse_network(text).map(|network| (network.address.to_string(), network.prefix));
        assert_eq!(show("10.0.0.0/8").unwrap(), ("10.0.0.0".into(), 8));
        assert_eq!(show("127.0.0.1").unwrap(), ("127.0.0.1".into(), 32));
        assert_eq!(show("::/0").unwrap(), ("::".into(), 0));
        assert!(show("10.1.0.0/8").unwrap_err().to_string().contains("write 10.0.0.0/8"));
        for invalid in ["10.0.0.0/33", "x", "", "10.0.0.0/", "::ffff:10.0.0.1", "fe80::1%eth0"] {
            assert!(parse_network(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn hosts_are_kept_as_they_are_compared() {
        for (text, expected) in [("Example.ORG.", "example.org"), ("*.A.b", "*.a.b"), ("[::1]", "[::1]")] {
            assert_eq!(&*parse_host(text).unwrap(), expected);
        }
        for invalid in ["", "*", "a:80", "a b", "*.", "a.*.b", "*a.b", "[::1", "[x]", ".a", "*..a"] {
            assert!(parse_host(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn users_are_found_by_name_and_id() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("passwd");
        fs::write(&file, "# no\nroot:x:0:0:root:/:/bin/sh\nweir:x:77:88::/:\nbroken\n").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(find_account(file, "weir").unwrap(), Account { id: 77, group: Some(88) });
        assert_eq!(find_account(file, "77").unwrap(), Account { id: 77, group: Some(88) });
        assert_eq!(find_account(file, "1234").unwrap(), Account { id: 1234, group: None });
        assert!(find_account(file, "nobody").is_err() && find_account(file, "4294967295").is_err());
        assert!(find_account("/nowhere", "weir").unwrap_err().to_string().contains("/nowhere"));
    }

    #[test]
    fn a_regular_expression_is_bounded() {
        assert!(compile_regex("^/v[0-9]+/").is_ok());
        assert!(compile_regex(r"\w{1000}").unwrap_err().to_string().contains("256 KiB"));
        let reason = compile_regex("a(").unwrap_err().to_string();
        assert!(reason.contains("unclosed group") && !reason.contains('\n'), "{reason}");
    }
}
