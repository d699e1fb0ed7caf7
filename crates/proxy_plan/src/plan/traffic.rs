//! Copies of requests for another pool, and second attempts of slow requests.

use std::sync::Arc;

use super::{NamedPercent, PoolId, PoolPlan, Template};

/// Copies of a route's requests for another pool.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorPlan {
    pub pool: PoolId,
    /// Name of the pool, for metrics.
    pub pool_name: Box<str>,
    /// Percentage of the requests that are copied, from 0 to 100.
    pub percent: f64,
    /// Name by which operators change the percentage; `None`: they cannot.
    pub named: Option<Arc<NamedPercent>>,
    /// Key whose fraction is copied; `None`: each request has the same chance.
    pub key: Option<Template>,
    /// `Host` of the copies; `None`: that of the request.
    pub host: Option<Box<str>>,
    /// Name of the field that marks a copy; `None`: none.
    pub mark: Option<Box<str>>,
    /// Maximum number of copies of a core at a time at which this mirror makes none.
    pub in_flight_max: usize,
    /// Maximum size of a body that is copied.
    pub body_bytes_max: usize,
    /// Maximum time of a copy until its response is complete.
    pub timeout_ns: u64,
}

/// Time after which a request without a response is sent to a second server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HedgeDelay {
    Fixed {
        delay_ns: u64,
    },
    /// A percentile of the route's recent response times.
    Percentile {
        /// From 50 to 99.9.
        percentile: f64,
        /// Minimum number of response times.
        samples_min: u32,
        /// Minimum of the delay.
        delay_min_ns: u64,
    },
}

impl MirrorPlan {
    /// Returns the percentage that counts now.
    pub fn current_percent(&self) -> f64 {
        self.named.as_ref().and_then(|named| named.changed()).unwrap_or(self.percent)
    }

    /// Returns the text of the key, as in a config.
    pub fn key_source(&self) -> &str {
        self.key.as_ref().map_or("each request", Template::source)
    }
}

impl std::fmt::Display for MirrorPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} % of {}", self.pool_name, self.current_percent(), self.key_source())?;
        if let Some(host) = &self.host {
            write!(f, ", host {host}")?;
        }
        write!(f, ", bodies up to {} B, {} in flight)", self.body_bytes_max, self.in_flight_max)
    }
}

impl PoolPlan {
    /// Returns whether the pool never has a second server.
    pub fn has_one_server(&self) -> bool {
        self.servers.len() == 1 && self.named_servers.is_empty()
    }
}
