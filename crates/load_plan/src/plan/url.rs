//! URLs of a load: `http://host[:port][/path][?query]`, or the same with `https`. The path is sent
//! exactly as it was written, because the origin's language and many tests depend on every byte of it.

use std::fmt;

use record::invalid_value;
use record::problem::InvalidValue;
use rt::address::{Address, ResolveError};
use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// HTTP over TCP.
    Http,
    /// HTTP over TLS.
    Https,
    /// WebSocket over TCP.
    Ws,
    /// WebSocket over TLS.
    Wss,
}

impl Scheme {
    fn parse(text: &str) -> Option<Self> {
        [Self::Http, Self::Https, Self::Ws, Self::Wss].into_iter().find(|scheme| scheme.name() == text)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    #[inline]
    fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Wss)
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http | Self::Ws => 80,
            Self::Https | Self::Wss => 443,
        }
    }
}

/// A host and a port, with the scheme of the connections to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    pub scheme: Scheme,
    /// A name or an address, without brackets.
    pub host: String,
    /// Port; that of the scheme if the URL has none.
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub authority: Authority,
    /// Path and query, starting with `/`.
    pub target: String,
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// Reason why the text is not a usable URL.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(invalid_value!("'{text}' is not a URL (write http://host:port/path)"));
        };
        let scheme = Scheme::parse(scheme).ok_or_else(|| {
            invalid_value!("'{text}': the scheme '{scheme}' is none of http, https, ws and wss")
        })?;
        // A template may begin the path.
        let (authority, target) = match rest.find(['/', '?', '{']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let target = match target.starts_with('?') {
            true => format!("/{target}"),
            false => target.to_owned(),
        };
        wire::encode::check_target(&target).map_err(|error| invalid_value!("'{text}': {error}"))?;
        let authority =
            Authority::parse(scheme, authority).map_err(|error| invalid_value!("'{text}': {error}"))?;
        Ok(Self { authority, target })
    }
}

impl Authority {
    fn parse(scheme: Scheme, text: &str) -> Result<Self, InvalidValue> {
        if text.contains('@') {
            return Err(invalid_value!("a user in the URL is not supported; send it with -H"));
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) =
                    rest.split_once(']').ok_or_else(|| invalid_value!("the bracket is not closed"))?;
                let is_address = host.parse::<std::net::Ipv6Addr>().is_ok();
                is_address.then_some(()).ok_or_else(|| invalid_value!("not an IPv6 address in brackets"))?;
                (host, port.strip_prefix(':').or_else(|| port.is_empty().then_some("")))
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, Some("")),
            },
        };
        let port = port.ok_or_else(|| invalid_value!("not a port after the bracket"))?;
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host_byte) {
            return Err(invalid_value!("'{host}' is not a host"));
        }
        let port = match port {
            "" => scheme.default_port(),
            digits => digits
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| invalid_value!("'{digits}' is not a port"))?,
        };
        if scheme.is_tls() {
            rt::tls::check_server_name(host).map_err(InvalidValue::new)?;
        }
        Ok(Self { scheme, host: host.to_owned(), port })
    }

    #[inline]
    pub fn is_tls(&self) -> bool {
        self.scheme.is_tls()
    }

    /// Returns the address, from the system's resolver.
    ///
    /// # Errors
    /// The name is unknown or has no address.
    pub fn resolve(&self) -> Result<Address, ResolveError> {
        rt::address::resolve(&self.host, self.port).map(Address::Tcp)
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port } = self;
        match (host.contains(':'), *port == scheme.default_port()) {
            (true, true) => write!(f, "[{host}]"),
            (true, false) => write!(f, "[{host}]:{port}"),
            (false, true) => write!(f, "{host}"),
            (false, false) => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.authority.scheme.name(), self.authority, self.target)
    }
}

impl Serialize for Url {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_kept_as_they_were_written() {
        for (text, shown) in [
            ("http://a", "http://a/"),
            ("http://a:80/x", "http://a/x"),
            ("http://a:8080/?s=1k,t=5", "http://a:8080/?s=1k,t=5"),
            ("http://127.0.0.1:1?s=1", "http://127.0.0.1:1/?s=1"),
            ("http://[::1]:8000/%7e;a//b", "http://[::1]:8000/%7e;a//b"),
            ("http://a:443", "http://a:443/"),
            ("https://a", "https://a/"),
            ("https://a:443/x", "https://a/x"),
            ("https://[::1]:80/x", "https://[::1]:80/x"),
        ] {
            assert_eq!(Url::parse(text).map(|url| url.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn the_scheme_sets_the_port_and_separates_authorities() {
        let authority = |text: &str| Url::parse(text).unwrap().authority;
        assert_eq!((authority("http://a/").port, authority("https://a/").port), (80, 443));
        assert_ne!(authority("http://a:8000/"), authority("https://a:8000/"));
        assert!(authority("https://127.0.0.1/").is_tls() && !authority("http://a/").is_tls());
    }

    #[test]
    fn url_errors_are_reported() {
        for (text, why) in [
            ("127.0.0.1:80", "not a URL"),
            ("https://a~b/", "neither a DNS name nor an IP address"),
            ("ftp://a/", "'ftp' is none of http, https, ws and wss"),
            ("http://u:p@a/", "-H"),
            ("http://a:0/", "not a port"),
            ("http://a:99999/", "not a port"),
            ("http:///x", "not a host"),
            ("http://[::1/", "bracket"),
            ("http://[x]/", "IPv6"),
            ("http://a/b c", "'http://a/b c'"),
            ("http://a/#top", "'http://a/#top'"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }
}
