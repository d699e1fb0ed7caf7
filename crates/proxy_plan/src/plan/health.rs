//! Health of a pool's servers, and their names: active checks, ejection of outliers, and DNS
//! lookups. Types only.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use rt::address::Address;

use super::{ServerHttp, ServerPlan};

/// `[pool.NAME.check]`: active health checks by the proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckPlan {
    pub kind: CheckKind,
    /// Address to check; `None`: the server's own.
    pub address: Option<Address>,
    /// Port to check; `None`: the server's own.
    pub port: Option<u16>,
    /// Interval between two checks: 2 s.
    pub interval_ns: u64,
    /// Interval between two checks while a server is on its way up or down.
    pub fast_interval_ns: u64,
    /// Interval between two checks while a server is down.
    pub down_interval_ns: u64,
    /// Maximum duration of one complete check: 1 s.
    pub timeout_ns: u64,
    /// Number of successive checks that must pass until a down server is up: 2.
    pub rise: u32,
    /// Number of successive checks that must fail until an up server is down: 3.
    pub fall: u32,
    /// Maximum random variation of an interval, as a fraction of it: 0.1.
    pub jitter: f64,
    /// True if it uses the pool's TLS.
    pub uses_tls: bool,
    pub http: ServerHttp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    Tcp,
    /// Sends a request and evaluates the response.
    Http(Box<HttpCheck>),
    /// Reads a line of an agent on the server, as HAProxy's agent checks do.
    Agent {
        /// Text to send first.
        send: Box<str>,
    },
}

/// A check over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// `GET` by default.
    pub method: Box<str>,
    /// The request target, `/` by default.
    pub path: Box<str>,
    /// `Host` of the request; `None`: the server's address.
    pub host: Option<Box<str>>,
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// Statuses that pass: 200 to 399.
    pub statuses: Statuses,
    /// Text that the content must contain; `None`: the content is not read.
    pub body: Option<Box<str>>,
}

/// A set of status codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(pub Vec<RangeInclusive<u16>>);

impl Statuses {
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

impl std::fmt::Display for Statuses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match range.start() == range.end() {
                true => write!(f, "{comma}{}", range.start())?,
                false => write!(f, "{comma}{}-{}", range.start(), range.end())?,
            }
        }
        Ok(())
    }
}

/// `[pool.NAME.outlier]`: conditions for ejecting a server that fails real requests.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierPlan {
    /// Number of successive failures until ejection: 5; 0: not checked.
    pub failures: u32,
    /// Number of successive failures and responses with one of [`OutlierPlan::statuses`] until
    /// ejection; `None`: not checked.
    pub errors: Option<u32>,
    /// Statuses that are errors: 500 to 599.
    pub statuses: Statuses,
    /// Maximum fraction of errors among the requests in a window; `None`: not checked.
    pub error_rate: Option<f64>,
    /// Maximum time to the first byte, as a multiple of the pool's median; `None`: not checked.
    pub latency_factor: Option<u32>,
    /// Window of rates and latencies: 10 s.
    pub window_ns: u64,
    /// Minimum number of requests of a server in a window for its evaluation: 20.
    pub requests_min: u32,
    /// Duration of the first ejection: 10 s. Each following one is longer by as much.
    pub ejection_ns: u64,
    /// Maximum duration of an ejection: 5 min.
    pub ejection_max_ns: u64,
    /// Maximum fraction of a pool's servers that may be ejected at a time, but at least one server:
    /// 0.5.
    pub max_ejected: f64,
}

impl OutlierPlan {
    pub fn is_on(&self) -> bool {
        self.failures > 0
            || self.errors.is_some()
            || self.error_rate.is_some()
            || self.latency_factor.is_some()
    }
}

/// Servers whose addresses come from DNS. Once resolved, they are in [`super::PoolPlan::servers`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedServers {
    /// Query to resolve.
    pub lookup: Lookup,
    /// True if the config gives them a name, which then precedes each server's address.
    pub is_named: bool,
    /// Settings of each server except its address. The name is that of the config, or else the
    /// looked-up name.
    pub template: ServerPlan,
}

/// A DNS query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lookup {
    Host {
        /// Name of the host, in lower case, without a final dot.
        name: Box<str>,
        port: u16,
    },
    /// Hosts and ports of a service (RFC 2782), and then their addresses.
    Service(Box<str>),
}

impl std::fmt::Display for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host { name, port } => write!(f, "{name}:{port}"),
            Self::Service(name) => f.write_str(name),
        }
    }
}

/// `[pool.NAME.resolve]`: settings for resolving names of servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResolvePlan {
    /// Nameservers to query; empty: those of `/etc/resolv.conf`, after `/etc/hosts`.
    pub nameservers: Vec<SocketAddr>,
    /// Maximum time between two lookups: 10 s.
    pub interval_ns: u64,
    /// Minimum time between two lookups, even if the records' TTL is shorter: 1 s.
    pub interval_min_ns: u64,
    /// Timeout of a nameserver: 1 s.
    pub timeout_ns: u64,
    /// Time for which the last result is kept while DNS has no answer: 1 h.
    pub hold_ns: u64,
    /// Maximum number of servers for one name: 16.
    pub servers_max: usize,
    /// Address family that is queried first; the other one is used only if it has no addresses.
    pub prefer: PreferredFamily,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreferredFamily {
    /// IPv4. The default.
    Ipv4,
    /// IPv6.
    Ipv6,
}

#[cfg(any(test, feature = "fixtures"))]
impl OutlierPlan {
    pub fn off() -> Self {
        Self {
            failures: 0,
            errors: None,
            statuses: Statuses(Vec::new()),
            error_rate: None,
            latency_factor: None,
            window_ns: 1_000_000_000,
            requests_min: 1,
            ejection_ns: 1_000_000_000,
            ejection_max_ns: 1_000_000_000,
            max_ejected: 0.5,
        }
    }
}

#[cfg(any(test, feature = "fixtures"))]
impl Default for ResolvePlan {
    fn default() -> Self {
        Self {
            nameservers: Vec::new(),
            interval_ns: 100,
            interval_min_ns: 10,
            timeout_ns: 1,
            hold_ns: 1_000,
            servers_max: 4,
            prefer: PreferredFamily::Ipv4,
        }
    }
}
