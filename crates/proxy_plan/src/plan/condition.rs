//! Conditions on a request that a route's plain keys cannot express: combinations, and facts beyond the head.
//! Types only; `proxy::route::when` evaluates them.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Conditions, Fact, TextCondition, ValueCondition};
use crate::maps::MapStore;
use crate::percent::NamedPercent;
use crate::template::{MapPlan, Template};

/// Names of the days of the week in a config; the index is the bit of [`Condition::Weekday`].
pub const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// A condition on a request.
#[derive(Clone, Debug)]
pub enum Condition {
    /// All of these hold.
    All(Vec<Self>),
    /// One of these holds.
    Any(Vec<Self>),
    /// This does not hold.
    Not(Box<Self>),
    /// The conditions that a route can have, too.
    Plain(Box<Conditions>),
    /// Networks of the client, from a file.
    SourceFile(PathBuf, Arc<MapStore>),
    /// The entry of a map for the request.
    Map(Arc<MapPlan>, ValueCondition),
    /// A cookie.
    Cookie(TextCondition),
    /// A claim of the token of the request; only for rules of responses.
    Claim(TextCondition),
    /// True if the client uses TLS.
    Tls(bool),
    /// Names that the client asked for (SNI), in lower case, any of them.
    ServerName(Vec<Box<str>>),
    /// A part of the client's verified certificate.
    Certificate(CertificatePart, ValueCondition),
    /// Times of the day in UTC, any of them.
    Time(Vec<DayTime>),
    /// Days of the week in UTC: bit 0 is Monday.
    Weekday(u8),
    /// A fraction of the keys.
    Percent(PercentCondition),
}

impl Condition {
    /// Calls `visit` with the conditions inside that are no combinations.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        match self {
            Self::All(conditions) | Self::Any(conditions) => {
                conditions.iter().for_each(|condition| condition.visit(visit));
            }
            Self::Not(condition) => condition.visit(visit),
            single => visit(single),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePart {
    /// The subject (RFC 4514).
    Subject,
    /// The name of the issuer (RFC 4514).
    Issuer,
    /// The common name of the subject.
    CommonName,
    /// The alternative names, any of them.
    San,
    /// The DNS names, any of them.
    Dns,
    /// The URIs, any of them.
    Uri,
    /// The e-mail addresses, any of them.
    Email,
    /// The serial number, in hexadecimal.
    Serial,
    /// SHA-256 of the certificate, in hexadecimal.
    Fingerprint,
}

impl Fact {
    /// Returns whether the fact is a part of the client's certificate.
    pub fn is_of_certificate(self) -> bool {
        matches!(self, Self::ClientPem | Self::ClientSan)
            || CertificatePart::ALL.iter().any(|part| part.fact() == self)
    }
}

impl CertificatePart {
    pub const ALL: [Self; 9] = [
        Self::Subject,
        Self::Issuer,
        Self::CommonName,
        Self::San,
        Self::Dns,
        Self::Uri,
        Self::Email,
        Self::Serial,
        Self::Fingerprint,
    ];

    /// Returns the value of texts with the same meaning.
    pub fn fact(self) -> Fact {
        match self {
            Self::Subject => Fact::ClientSubject,
            Self::Issuer => Fact::ClientIssuer,
            Self::CommonName => Fact::ClientCommonName,
            Self::San => Fact::ClientSan,
            Self::Dns => Fact::ClientDns,
            Self::Uri => Fact::ClientUri,
            Self::Email => Fact::ClientEmail,
            Self::Serial => Fact::ClientSerial,
            Self::Fingerprint => Fact::ClientFingerprint,
        }
    }

    /// Returns the name in the config.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Issuer => "issuer",
            Self::CommonName => "common-name",
            Self::San => "san",
            Self::Dns => "dns",
            Self::Uri => "uri",
            Self::Email => "email",
            Self::Serial => "serial",
            Self::Fingerprint => "fingerprint",
        }
    }
}

/// A part of every day, from a second up to another one; over midnight if it ends before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayTime {
    /// First second of the day in it.
    pub from_s: u32,
    /// First second behind it.
    pub to_s: u32,
}

impl DayTime {
    /// Returns whether a second of the day is in it.
    #[must_use]
    pub fn contains(self, second: u32) -> bool {
        match self.from_s <= self.to_s {
            true => (self.from_s..self.to_s).contains(&second),
            false => second >= self.from_s || second < self.to_s,
        }
    }
}

/// A fraction of the keys, the same keys on every machine.
#[derive(Clone, Debug)]
pub struct PercentCondition {
    /// Percentage, from 0 to 100.
    pub percent: f64,
    /// Name by which operators change it; `None`: they cannot.
    pub named: Option<Arc<NamedPercent>>,
    /// Key of a request.
    pub key: Template,
}

impl PercentCondition {
    /// Returns the percentage that counts now.
    pub fn current(&self) -> f64 {
        self.named.as_ref().and_then(|named| named.changed()).unwrap_or(self.percent)
    }
}
