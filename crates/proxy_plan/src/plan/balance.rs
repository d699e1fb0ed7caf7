//! Server selection of a pool: the algorithm, the key of a hash, and the sticky cookie. Types only;
//! `proxy::balance` implements them.

use std::fmt;
use std::path::PathBuf;

use crate::template::Template;

/// Algorithms that select a server. One row each: its name in the config, and its description. The first is the default.
macro_rules! balances {
    ($first:ident, $first_name:literal, $first_doc:literal; $($variant:ident, $name:literal, $doc:literal;)*) => {
        /// Algorithm that selects a server.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Balance {
            #[doc = $first_doc] $first,
            $(#[doc = $doc] $variant,)*
        }

        impl Balance {
            /// All algorithms, in the order of the table.
            pub const ALL: &'static [Self] = &[Self::$first, $(Self::$variant,)*];
            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$first_name, $($name,)*];
            /// Their names, as the choice of a flag: `a|b`.
            pub const FLAG_CHOICE: &'static str = concat!($first_name $(, "|", $name)*);

            /// Returns the name in the config.
            pub fn name(self) -> &'static str {
                match self { Self::$first => $first_name, $(Self::$variant => $name,)* }
            }
        }
    };
}

balances! {
    RandomOfTwo, "random-of-two", "Of two random servers, the one with fewer requests in flight for its weight. The default.";
    Latency, "latency", "Of two random servers, the one with the lower response time multiplied by its requests in flight, for its weight.";
    RoundRobin, "round-robin", "Each server in turn, smoothly weighted.";
    LeastConnections, "least-connections", "The server with the fewest requests in flight for its weight.";
    ConsistentHash, "consistent-hash", "The server of the request's key, unless it has reached its load factor.";
    First, "first", "The first server below its `maxconn`.";
}

impl Balance {
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|balance| balance.name() == name)
    }
}

/// Key and load limit of a consistent hash.
#[derive(Clone, Debug, PartialEq)]
pub struct HashPlan {
    /// Part of a request that is hashed.
    pub key: HashKey,
    /// Maximum number of requests of a server, as a multiple of its weighted part of those in flight: 1.25.
    pub load_factor: f64,
}

/// Part of a request that is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address (IPv6: its /64).
    Source,
    /// The path, normalised, without the query.
    Path,
    /// The first value of this field.
    Header(Box<str>),
    Cookie(Box<str>),
    Template(Template),
}

impl fmt::Display for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("source"),
            Self::Path => f.write_str("path"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Template(template) => f.write_str(template.source()),
        }
    }
}

/// Rule that keeps clients at their servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sticky {
    Cookie(StickyPlan),
    Text(StickyTextPlan),
}

impl Sticky {
    pub fn cookie(&self) -> Option<&StickyPlan> {
        match self {
            Self::Cookie(plan) => Some(plan),
            Self::Text(_) => None,
        }
    }

    pub fn text(&self) -> Option<&StickyTextPlan> {
        match self {
            Self::Cookie(_) => None,
            Self::Text(plan) => Some(plan),
        }
    }
}

/// A text of a request by which a session is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyTextPlan {
    pub key: Template,
    /// Maximum number of sessions that are remembered: 100,000.
    pub entries_max: usize,
    /// Time without a request after which a session is forgotten: 30 min.
    pub expire_ns: u64,
}

/// A cookie that keeps a client at its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyPlan {
    pub cookie: Box<str>,
    /// Owner of the cookie.
    pub mode: StickyMode,
    /// Key that authenticates the cookie.
    pub key: Secret,
    /// File from which the key was read, if it has one of its own.
    pub key_file: Option<PathBuf>,
    /// Lifetime of the cookie in seconds, from the last request on; `None`: until the browser is
    /// closed.
    pub max_age_s: Option<u64>,
    /// True if it is only sent over TLS; `None`: if the response that sets it is.
    pub secure: Option<bool>,
    /// True if scripts cannot read it; on by default.
    pub http_only: bool,
    /// `SameSite` attribute, for requests from other sites: `Lax` by default.
    pub same_site: SameSite,
    /// `Path` attribute: `/` by default.
    pub path: Box<str>,
    /// `Domain` attribute; `None`: the host of the response alone.
    pub domain: Option<Box<str>>,
    /// Limits of the time at one server; `None`: it has none, and the cookie no times.
    pub limits: Option<StickyLimits>,
}

/// Limits of the time that a client stays at a server, in seconds; at least one of them is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StickyLimits {
    /// Maximum time between two requests.
    pub idle_max_s: Option<u32>,
    /// Maximum time since the server was chosen.
    pub life_max_s: Option<u32>,
}

#[cfg(any(test, feature = "fixtures"))]
impl StickyPlan {
    /// Returns a session cookie `SRV` with the default attributes.
    pub fn for_tests(mode: StickyMode) -> Self {
        Self {
            cookie: "SRV".into(),
            mode,
            key: Secret::new(b"a key of the tests"),
            key_file: None,
            max_age_s: None,
            secure: None,
            http_only: true,
            same_site: SameSite::Lax,
            path: "/".into(),
            domain: None,
            limits: None,
        }
    }
}

/// Owner of a sticky cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StickyMode {
    /// The proxy inserts its own cookie, which servers never see.
    Insert,
    /// The application's cookie. It gets a prefix on its way to the client and loses it on its way
    /// back.
    Prefix,
}

impl StickyMode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Prefix => "prefix",
        }
    }
}

/// The `SameSite` attribute of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// Requests from other sites never carry it.
    Strict,
    /// Requests from other sites carry it when a link is followed.
    Lax,
    /// Requests from other sites always carry it; browsers require `Secure` then.
    None,
}

impl SameSite {
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Lax => "Lax",
            Self::None => "None",
        }
    }
}

/// Bytes that are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Wraps a copy of the bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown_and_compares() {
        let secret = Secret::new(b"correct horse battery staple");
        assert_eq!(format!("{secret:?} {secret:#?}"), "Secret(***) Secret(***)");
        assert!(secret == secret.clone() && secret != Secret::new(b"other"));
    }

    #[test]
    fn every_balance_has_its_name() {
        for (balance, name) in Balance::ALL.iter().zip(Balance::NAMES) {
            assert_eq!((balance.name(), Balance::from_name(name)), (*name, Some(*balance)));
        }
        assert_eq!(Balance::from_name("leastconn"), None);
    }
}
