//! URL of a server: `nats://user:password@host:4222`, `tls://[::1]`, or the address alone.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// Host name or IP address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// True if the connection must use TLS.
    pub(crate) requires_tls: bool,
    pub(crate) user: Option<(String, String)>,
}

impl std::fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServerUrlError {
    #[error("unknown scheme '{0}': write nats://host:4222 or tls://host:4222")]
    Scheme(String),
    /// The host is missing or contains a character that no host has.
    #[error("no host: write nats://host:4222 or tls://host:4222")]
    Host,
    #[error("invalid port '{0}'")]
    Port(String),
}

const DEFAULT_PORT: u16 = 4222;

impl ServerUrl {
    /// Parses a URL. Without a scheme it is one of `nats`.
    ///
    /// # Errors
    /// The scheme, the host or the port is invalid.
    pub(crate) fn parse(text: &str) -> Result<Self, ServerUrlError> {
        let (scheme, rest) = text.trim().split_once("://").unwrap_or_else(|| ("nats", text.trim()));
        let requires_tls = match scheme.to_ascii_lowercase().as_str() {
            "nats" => false,
            "tls" => true,
            _ => return Err(ServerUrlError::Scheme(scheme.to_owned())),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        let (host, port) = match address.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(ServerUrlError::Host)?;
                (host, port.strip_prefix(':').unwrap_or(port))
            }
            None => address.split_once(':').unwrap_or((address, "")),
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '%') {
            return Err(ServerUrlError::Host);
        }
        let port = match port {
            "" => DEFAULT_PORT,
            port => port.parse().map_err(|_| ServerUrlError::Port(port.to_owned()))?,
        };
        let user = user.filter(|user| !user.is_empty()).map(|user| {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            (decode_percent(user), decode_percent(password))
        });
        Ok(Self { host: host.to_owned(), port, requires_tls, user })
    }
}

/// Decodes `%40` and the like (RFC 3986 §2.1). Other uses of the percent sign stay as they are.
fn decode_percent(text: &str) -> String {
    percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_defaults_and_credentials() {
        let parse = |text: &str| {
            let url = ServerUrl::parse(text).unwrap();
            let user = url.user.map_or_else(String::new, |(user, password)| format!(" {user}/{password}"));
            format!("{} {} {}{user}", url.host, url.port, url.requires_tls)
        };
        for (text, expected) in [
            ("nats://host", "host 4222 false"),
            ("TLS://host:4443/", "host 4443 true"),
            ("host:1", "host 1 false"),
            ("127.0.0.1", "127.0.0.1 4222 false"),
            ("tls://[::1]:5", "::1 5 true"),
            ("nats://[fd00::1]", "fd00::1 4222 false"),
            ("nats://me:a%40b%2Fc%@host", "host 4222 false me/a@b/c%"),
            ("nats://me:a@b@host:9", "host 9 false me/a@b"),
            ("nats://me@host", "host 4222 false me/"),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn faults_are_named() {
        for (text, fault) in [
            ("ws://host", ServerUrlError::Scheme("ws".to_owned())),
            ("nats://", ServerUrlError::Host),
            ("nats://a b", ServerUrlError::Host),
            ("nats://[::1", ServerUrlError::Host),
            ("nats://host:x", ServerUrlError::Port("x".to_owned())),
            ("nats://host:70000", ServerUrlError::Port("70000".to_owned())),
        ] {
            assert_eq!(ServerUrl::parse(text), Err(fault), "{text}");
        }
    }
}
