//! What a plan says about the health of a pool's servers and about their names: active checks,
//! ejection of outliers, and look-ups in DNS. Types only.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use rt::address::Address;

use super::ServerPlan;

/// `[pool.NAME.check]`: how the proxy itself looks whether servers are well.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckPlan {
    /// What is done.
    pub kind: CheckKind,
    /// Where to, if not to the server's own address.
    pub address: Option<Address>,
    /// To which port, if not to the server's own.
    pub port: Option<u16>,
    /// Between two checks: 2 s.
    pub interval_ns: u64,
    /// Between two checks while a server is on its way up or down.
    pub fast_interval_ns: u64,
    /// Between two checks while a server is down.
    pub down_interval_ns: u64,
    /// How long one check may take, all of it: 1 s.
    pub timeout_ns: u64,
    /// Checks in a row that have to pass until a server that was down is up: 2.
    pub rise: u32,
    /// Checks in a row that have to fail until a server that was up is down: 3.
    pub fall: u32,
    /// By which share, at most, an interval is longer or shorter by chance: 0.1.
    pub jitter: f64,
}

/// What a check does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// Connects.
    Tcp,
    /// Sends a request and looks at the answer.
    Http(Box<HttpCheck>),
    /// Reads a line of an agent on the server, as HAProxy's agent checks do.
    Agent {
        /// What is sent to it first.
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
    /// The `Host`; `None`: the server's address.
    pub host: Option<Box<str>>,
    /// Further fields.
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// Which statuses pass: 200 to 399.
    pub statuses: Statuses,
    /// What the content has to have in it; `None`: it is not read.
    pub body: Option<Box<str>>,
}

/// Some statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(pub Vec<RangeInclusive<u16>>);

impl Statuses {
    /// Whether `status` is one of them.
    #[must_use]
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

/// `[pool.NAME.outlier]`: when a server that fails real requests gets none for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierPlan {
    /// Failures in a row; 0: not looked at. 5.
    pub failures: u32,
    /// Failures and answers with one of [`OutlierPlan::statuses`] in a row; `None`: not looked at.
    pub errors: Option<u32>,
    /// Which answers are errors: 500 to 599.
    pub statuses: Statuses,
    /// The share of requests in a window that may be errors; `None`: not looked at.
    pub error_rate: Option<f64>,
    /// How many times the pool's median a server's time to the first byte may be; `None`: not
    /// looked at.
    pub latency_factor: Option<u32>,
    /// What rates and latencies are taken over: 10 s.
    pub window_ns: u64,
    /// Requests that a server needs in a window to be judged by it: 20.
    pub requests_min: u32,
    /// For how long the first ejection is; each one after it is longer by as much. 10 s.
    pub ejection_ns: u64,
    /// The longest ejection: 5 min.
    pub ejection_max_ns: u64,
    /// The share of a pool's servers that may be ejected at a time, one at least: 0.5.
    pub max_ejected: f64,
}

impl OutlierPlan {
    /// Whether anything is looked at.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.failures > 0
            || self.errors.is_some()
            || self.error_rate.is_some()
            || self.latency_factor.is_some()
    }
}

/// Servers whose addresses DNS says. They stand in [`super::PoolPlan::servers`] once it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedServers {
    /// What is asked for.
    pub lookup: Lookup,
    /// Whether the config gives them a name, which is then in front of each one's address.
    pub is_named: bool,
    /// What each of them is like but for its address; its name is the one of the config, or what is
    /// looked up.
    pub like: ServerPlan,
}

/// What is asked of DNS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lookup {
    /// The addresses of a host.
    Host {
        /// Its name, in lower case, without a dot at its end.
        name: Box<str>,
        /// The port on each of them.
        port: u16,
    },
    /// The hosts and ports of a service (RFC 2782), and then their addresses.
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

/// `[pool.NAME.resolve]`: how names of servers are looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResolvePlan {
    /// Whom to ask; empty: those of `/etc/resolv.conf`, after a look into `/etc/hosts`.
    pub nameservers: Vec<SocketAddr>,
    /// The longest time between two look-ups: 10 s.
    pub interval_ns: u64,
    /// The shortest, however short the records' TTL is: 1 s.
    pub interval_min_ns: u64,
    /// How long a nameserver may take: 1 s.
    pub timeout_ns: u64,
    /// How long what was known last is kept while DNS has no answer: 1 h.
    pub hold_ns: u64,
    /// Servers that one name may become: 16.
    pub servers_max: usize,
    /// The family of addresses that is asked for first; the other one only if there is none.
    pub prefer: Prefer,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefer {
    /// IPv4. The default.
    Ipv4,
    /// IPv6.
    Ipv6,
}

#[cfg(test)]
impl OutlierPlan {
    /// Nothing is looked at.
    pub(crate) fn off() -> Self {
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

#[cfg(test)]
impl Default for ResolvePlan {
    fn default() -> Self {
        Self {
            nameservers: Vec::new(),
            interval_ns: 100,
            interval_min_ns: 10,
            timeout_ns: 1,
            hold_ns: 1_000,
            servers_max: 4,
            prefer: Prefer::Ipv4,
        }
    }
}
