//! Textual addresses to listen on or to connect to: `127.0.0.1:80`, `[::1]:80`, `:80`,
//! `localhost:80`, `unix:/run/weir.sock`. Names are resolved once, here; nothing listens here.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Address that a stream socket can listen on or connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A unix stream socket in the file system.
    Unix(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressParseError {
    text: String,
    reason: String,
}

impl fmt::Display for AddressParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not an address: {} (write 127.0.0.1:8080, [::1]:8080, :8080, localhost:8080 \
             or unix:/path)",
            self.text, self.reason
        )
    }
}

impl std::error::Error for AddressParseError {}

impl FromStr for Address {
    type Err = AddressParseError;

    fn from_str(text: &str) -> Result<Self, AddressParseError> {
        let invalid = |reason: &str| AddressParseError { text: text.to_owned(), reason: reason.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(invalid("the path is empty")),
                // sun_path of unix(7) holds 108 bytes with its closing NUL.
                _ if path.len() > 107 => Err(invalid("a unix socket's path has at most 107 bytes")),
                _ => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Tcp(address));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(invalid("the port is missing"));
        };
        let port: u16 = port.parse().map_err(|_| invalid("the port is not a number up to 65535"))?;
        if host.is_empty() || host == "*" {
            return Ok(Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)));
        }
        if host.contains(':') {
            return Err(invalid("write an IPv6 address in brackets"));
        }
        resolve(host, port).map(Self::Tcp).map_err(|error| invalid(&error.to_string()))
    }
}

/// Failure to resolve a name.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The system's resolver failed.
    #[error("cannot resolve '{host}': {source}")]
    Resolver { host: String, source: io::Error },
    /// The name exists, without an address.
    #[error("'{0}' has no address")]
    NoAddress(String),
}

/// Returns the first address that the system's resolver has for `host`.
///
/// # Errors
/// The name is unknown or has no address.
pub fn resolve(host: &str, port: u16) -> Result<SocketAddr, ResolveError> {
    resolve_all(host, port).map(|all| all[0])
}

/// Returns the addresses that the system's resolver has for `host`, at least one, in its order (RFC 6724).
///
/// # Errors
/// The name is unknown or has no address.
pub fn resolve_all(host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|source| ResolveError::Resolver { host: host.to_owned(), source })?;
    let mut all: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    if all.is_empty() { Err(ResolveError::NoAddress(host.to_owned())) } else { Ok(all) }
}

/// Limits name lookups of a static binary to the hosts file and DNS, which are linked into it. The other services
/// of nsswitch.conf(5) are shared libraries, made for the C library of the machine and not for the binary's own.
/// A binary with shared libraries does what nsswitch.conf says.
#[cfg_attr(all(target_env = "gnu", target_feature = "crt-static"), allow(unsafe_code))]
pub fn limit_static_lookups() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        unsafe extern "C" {
            fn __nss_configure_lookup(
                database: *const libc::c_char,
                services: *const libc::c_char,
            ) -> libc::c_int;
        }
        // SAFETY: both texts end with NUL, and glibc copies them. It fails only for an unknown database.
        unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_form_is_understood() {
        let reformat = |text: &str| text.parse::<Address>().unwrap().to_string();
        assert_eq!(reformat("127.0.0.1:80"), "127.0.0.1:80");
        assert_eq!(reformat("[::1]:80"), "[::1]:80");
        assert_eq!(reformat(":80"), "0.0.0.0:80");
        assert_eq!(reformat("*:80"), "0.0.0.0:80");
        assert_eq!(reformat("unix:/a b"), "unix:/a b");
        assert!(matches!("localhost:1".parse(), Ok(Address::Tcp(a)) if a.ip().is_loopback()));
    }

    #[test]
    fn errors_state_the_reason() {
        let reason_for = |text: &str| text.parse::<Address>().unwrap_err().reason;
        assert!(reason_for("8080").contains("port") && !reason_for("8080").contains("65535"));
        assert!(reason_for("1.2.3.4:99999").contains("65535"));
        assert!(reason_for("::1:80").contains("IPv6"));
        assert!(reason_for("unix:").contains("path") && !reason_for("unix:").contains("107"));
        assert!(reason_for(&format!("unix:/{}", "x".repeat(200))).contains("107"));
        let error = "8080".parse::<Address>().unwrap_err();
        assert!(error.to_string().contains("'8080'") && error.to_string().contains(&error.reason));
    }
}
