//! How a pool chooses a server: the algorithm, what a hash goes by, what makes a client stick. Types
//! only; `balance` decides by them.

use std::fmt;
use std::path::PathBuf;

/// How a server is chosen. One row each: its name in the config, and what it does.
macro_rules! balances {
    ($($variant:ident, $name:literal, $doc:literal;)*) => {
        /// How a server is chosen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Balance {
            $(#[doc = $doc] $variant,)*
        }

        impl Balance {
            /// Every one, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name,)*];

            /// As the config has it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

balances! {
    RandomOfTwo, "random-of-two", "The one of two random ones with fewer requests in flight for its weight. The default.";
    Latency, "latency", "The one of two random ones with the shorter response time, times its requests in flight, for its weight.";
    RoundRobin, "round-robin", "In turn, by weight, smoothly.";
    LeastConnections, "least-connections", "The one with the fewest requests in flight for its weight.";
    ConsistentHash, "consistent-hash", "The one that a key of the request belongs to, unless that has more than its share.";
    First, "first", "The first that is not at its `maxconn`.";
}

impl Balance {
    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|balance| balance.name() == name)
    }
}

/// What a consistent hash goes by, and how far.
#[derive(Clone, Debug, PartialEq)]
pub struct HashPlan {
    /// What of a request is its key.
    pub key: HashKey,
    /// How many requests a server may have, as a multiple of its share of those in flight: 1.25.
    pub load_factor: f64,
}

/// What of a request is its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address (IPv6: its /64).
    Source,
    /// The path, normalised, without the query.
    Path,
    /// The first value of this field.
    Header(Box<str>),
    /// The value of this cookie.
    Cookie(Box<str>),
}

impl fmt::Display for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("source"),
            Self::Path => f.write_str("path"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

/// A cookie that keeps a client at its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyPlan {
    /// Its name.
    pub cookie: Box<str>,
    /// Whose cookie it is.
    pub mode: StickyMode,
    /// What authenticates it.
    pub key: Secret,
    /// Where the key was read from, if that was a file of its own.
    pub key_file: Option<PathBuf>,
    /// How long the cookie lives from the last request on; `None`: as long as the browser.
    pub max_age_s: Option<u64>,
    /// Whether it is only sent over TLS.
    pub secure: bool,
    /// Whether scripts do not see it; on by default.
    pub http_only: bool,
    /// When other sites' requests have it: `Lax` by default.
    pub same_site: SameSite,
}

/// Whose cookie a client sticks by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StickyMode {
    /// One of our own, which servers never see.
    Insert,
    /// The application's, which gets a prefix on its way to the client and loses it on its way back.
    Prefix,
}

impl StickyMode {
    /// As the config has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Prefix => "prefix",
        }
    }
}

/// The attribute of that name of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// Never.
    Strict,
    /// When a link is followed.
    Lax,
    /// Always; browsers want `Secure` with it.
    None,
}

impl SameSite {
    /// As a cookie has it.
    #[must_use]
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
    /// Hides them.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// For those who compute with them.
    pub(crate) fn bytes(&self) -> &[u8] {
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
            assert_eq!((balance.name(), Balance::named(name)), (*name, Some(*balance)));
        }
        assert_eq!(Balance::named("leastconn"), None);
    }
}
