//! Cipher suites and key exchange groups by name, and the provider with those of one configuration.

use std::str::FromStr;
use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};

use super::info::iana_name;

/// One cipher suite that can be enabled. None of them is weak: all have forward secrecy and AEAD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CipherSuite(SupportedCipherSuite);

/// One group of the key exchange that can be enabled.
#[derive(Clone, Copy, Debug)]
pub struct KeyExchangeGroup(&'static dyn SupportedKxGroup);

/// Enabled algorithms, the preferred ones first. An empty list enables the default ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsAlgorithms {
    pub cipher_suites: Vec<CipherSuite>,
    pub groups: Vec<KeyExchangeGroup>,
}

/// Name of a cipher suite or group that is unknown here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} '{name}': use {}", known.join(", "))]
pub struct UnknownAlgorithm {
    kind: &'static str,
    name: String,
    known: Vec<&'static str>,
}

/// Names of OpenSSL for suites of TLS 1.2. Those of TLS 1.3 have the same names as at IANA.
const OPENSSL_SUITES: [(rustls::CipherSuite, &str); 6] = [
    (rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (rustls::CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "ECDHE-RSA-AES256-GCM-SHA384"),
    (rustls::CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256"),
    (rustls::CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305"),
];

/// Names of groups besides those at IANA: of NIST and of OpenSSL.
const OTHER_GROUPS: [(rustls::NamedGroup, &[&str]); 2] =
    [(rustls::NamedGroup::secp256r1, &["P-256", "prime256v1"]), (rustls::NamedGroup::secp384r1, &["P-384"])];

impl Eq for CipherSuite {}

impl CipherSuite {
    /// Returns the name at IANA.
    pub fn name(self) -> &'static str {
        iana_name(self.0.suite())
    }

    /// Parses a list of names that commas or colons separate.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, UnknownAlgorithm> {
        parse_list(text)
    }

    fn openssl_name(self) -> Option<&'static str> {
        OPENSSL_SUITES.iter().find(|(suite, _)| *suite == self.0.suite()).map(|(_, name)| *name)
    }
}

impl FromStr for CipherSuite {
    type Err = UnknownAlgorithm;

    /// Parses a name of IANA or OpenSSL, without case.
    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let mut all = aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().map(Self);
        let has_name = |suite: &Self| {
            text.eq_ignore_ascii_case(suite.name())
                || suite.openssl_name().is_some_and(|name| text.eq_ignore_ascii_case(name))
        };
        all.find(has_name).ok_or_else(|| {
            let known = aws_lc_rs::ALL_CIPHER_SUITES.iter().map(|suite| iana_name(suite.suite()));
            UnknownAlgorithm { kind: "cipher suite", name: text.to_owned(), known: known.collect() }
        })
    }
}

impl KeyExchangeGroup {
    /// Returns the name at IANA.
    pub fn name(self) -> &'static str {
        self.0.name().as_str().unwrap_or("unknown")
    }

    /// Parses a list of names that commas or colons separate.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, UnknownAlgorithm> {
        parse_list(text)
    }
}

impl PartialEq for KeyExchangeGroup {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for KeyExchangeGroup {}

impl FromStr for KeyExchangeGroup {
    type Err = UnknownAlgorithm;

    /// Parses a name of IANA, NIST or OpenSSL, without case.
    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let has_name = |group: &Self| {
            let others = OTHER_GROUPS.iter().find(|(named, _)| *named == group.0.name());
            let others = others.map_or(&[][..], |(_, names)| names);
            text.eq_ignore_ascii_case(group.name())
                || others.iter().any(|name| text.eq_ignore_ascii_case(name))
        };
        aws_lc_rs::ALL_KX_GROUPS.iter().copied().map(Self).find(has_name).ok_or_else(|| {
            let known = aws_lc_rs::ALL_KX_GROUPS.iter().map(|group| Self(*group).name());
            UnknownAlgorithm { kind: "group", name: text.to_owned(), known: known.collect() }
        })
    }
}

impl TlsAlgorithms {
    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        let default = super::crypto_provider();
        if *self == Self::default() {
            return default;
        }
        let mut provider = CryptoProvider::clone(&default);
        if !self.cipher_suites.is_empty() {
            provider.cipher_suites = self.cipher_suites.iter().map(|suite| suite.0).collect();
        }
        if !self.groups.is_empty() {
            provider.kx_groups = self.groups.iter().map(|group| group.0).collect();
        }
        Arc::new(provider)
    }
}

/// Parses the names of a list that commas or colons separate.
fn parse_list<T: FromStr<Err = UnknownAlgorithm>>(text: &str) -> Result<Vec<T>, UnknownAlgorithm> {
    text.split([',', ':']).map(|name| name.trim().parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_the_names_of_iana_and_openssl() {
        for (text, name) in [
            ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
            ("ecdhe-rsa-aes128-gcm-sha256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            (
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            ),
        ] {
            assert_eq!(text.parse::<CipherSuite>().map(CipherSuite::name), Ok(name));
        }
        for suite in aws_lc_rs::ALL_CIPHER_SUITES {
            let suite = CipherSuite(*suite);
            assert_eq!(suite.name().parse(), Ok(suite));
            assert_eq!(suite.openssl_name().unwrap_or_else(|| suite.name()).parse(), Ok(suite));
        }
        let error = "AES128-SHA".parse::<CipherSuite>().unwrap_err().to_string();
        assert!(error.starts_with("unknown cipher suite 'AES128-SHA': use TLS_AES_"), "{error}");
        assert!(error.ends_with("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"), "{error}");
    }

    #[test]
    fn groups_have_all_their_common_names() {
        for (text, name) in [("x25519", "X25519"), ("P-256", "secp256r1"), ("prime256v1", "secp256r1")] {
            assert_eq!(text.parse::<KeyExchangeGroup>().map(KeyExchangeGroup::name), Ok(name));
        }
        for group in aws_lc_rs::ALL_KX_GROUPS {
            let group = KeyExchangeGroup(*group);
            assert_eq!(group.name().parse(), Ok(group));
        }
        assert!("ffdhe2048".parse::<KeyExchangeGroup>().unwrap_err().to_string().contains("X25519MLKEM768"));
    }

    #[test]
    fn only_named_algorithms_are_enabled_in_their_order() {
        let algorithms = TlsAlgorithms {
            cipher_suites: vec!["TLS_AES_128_GCM_SHA256".parse().unwrap()],
            groups: vec!["P-384".parse().unwrap(), "X25519".parse().unwrap()],
        };
        let provider = algorithms.provider();
        assert_eq!(provider.cipher_suites.len(), 1);
        let groups: Vec<_> = provider.kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(groups, [rustls::NamedGroup::secp384r1, rustls::NamedGroup::X25519]);
        assert!(TlsAlgorithms::default().provider().cipher_suites.len() > 5);
    }
}
