//! URLs of a load: `http://host[:port][/path][?query]`. The path is sent exactly as it was written,
//! because the origin's language and many tests depend on every byte of it.

use std::fmt;

use serde::{Serialize, Serializer};

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    /// A name or an address, without brackets.
    pub host: String,
    /// Port; 80 if the URL has none.
    pub port: u16,
}

/// A URL of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host and port.
    pub authority: Authority,
    /// Path and query, starting with `/`.
    pub target: String,
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// Reason why the text is not a usable URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => {
                return Err(format!("'{text}': TLS is not supported (use http://)"));
            }
            Some((scheme, _)) => {
                return Err(format!("'{text}': the scheme '{scheme}' is not http"));
            }
            None => {
                return Err(format!("'{text}' is not a URL (write http://host:port/path)"));
            }
        };
        let (authority, target) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let target = match target.starts_with('?') {
            true => format!("/{target}"),
            false => target.to_owned(),
        };
        wire::encode::check_target(&target).map_err(|error| format!("'{text}': {error}"))?;
        let authority = Authority::parse(authority).map_err(|error| format!("'{text}': {error}"))?;
        Ok(Self { authority, target })
    }
}

impl Authority {
    fn parse(text: &str) -> Result<Self, String> {
        if text.contains('@') {
            return Err("a user in the URL is not supported; send it with -H".to_owned());
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or("the bracket is not closed")?;
                let is_address = host.parse::<std::net::Ipv6Addr>().is_ok();
                is_address.then_some(()).ok_or("not an IPv6 address in brackets")?;
                (host, port.strip_prefix(':').or_else(|| port.is_empty().then_some("")))
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, Some("")),
            },
        };
        let port = port.ok_or("not a port after the bracket")?;
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host_byte) {
            return Err(format!("'{host}' is not a host"));
        }
        let port = match port {
            "" => 80,
            digits => digits
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| format!("'{digits}' is not a port"))?,
        };
        Ok(Self { host: host.to_owned(), port })
    }

    /// Returns the address, from the system's resolver.
    ///
    /// # Errors
    /// Message of the resolver.
    pub fn resolve(&self) -> Result<rt::address::Address, String> {
        rt::address::resolve(&self.host, self.port).map(rt::address::Address::Tcp)
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match (host.contains(':'), port) {
            (true, 80) => write!(f, "[{host}]"),
            (true, _) => write!(f, "[{host}]:{port}"),
            (false, 80) => write!(f, "{host}"),
            (false, _) => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.target)
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
        ] {
            assert_eq!(Url::parse(text).map(|url| url.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn url_errors_are_reported() {
        for (text, why) in [
            ("127.0.0.1:80", "not a URL"),
            ("https://a/", "TLS is not supported"),
            ("ftp://a/", "'ftp' is not http"),
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
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
