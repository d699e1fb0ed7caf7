//! Settings of a request that its route may have instead of those of its listener and its pool. Inheritance:
//! route over pool over listener over default.

use std::sync::Arc;

use super::{
    AccessPlan, BandwidthPlan, ClientTimeouts, CompressionPlan, Forwarding, HedgeDelay, ListenerIndex,
    ListenerPlan, MirrorPlan, PoolPlan, RouteCachePlan, ServerTimeouts, Statuses,
};

/// Settings of the requests of a route, resolved: its own, or else those of the pool and the listener.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSettings {
    pub client: ClientTimeouts,
    pub server: ServerTimeouts,
    /// Maximum time from the first byte of a request to the last of its response; `None`: not limited.
    pub total_ns: Option<u64>,
    /// Maximum time from the choice of a server to the head of its response; `None`: not limited.
    pub per_try_ns: Option<u64>,
    pub body_bytes_max: Option<u64>,
    pub buffer_request_bytes: u64,
    pub retries_max: u8,
    pub retry_on: RetryOn,
    pub idempotent: MarkedIdempotent,
    pub forwarding: Forwarding,
    /// Statuses of servers whose content an error page replaces; `None`: none.
    pub replaced: Option<Statuses>,
    /// Compression of responses; `None`: they keep the coding of their server.
    pub compression: Option<Arc<CompressionPlan>>,
    /// Limits of bytes per second; `None`: none.
    pub bandwidth: Option<Arc<BandwidthPlan>>,
    /// Copies of requests for other pools.
    pub mirrors: Arc<[MirrorPlan]>,
    /// Second attempt of a slow request; `None`: there is none.
    pub hedge: Option<HedgeDelay>,
    /// Cache of responses; `None`: none.
    pub cache: Option<Arc<RouteCachePlan>>,
    /// Rules about who may use the route; `None`: it is open to all.
    pub access: Option<Box<AccessPlan>>,
}

/// Results after which an idempotent request is sent to another server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryOn {
    pub statuses: Option<Statuses>,
    /// True if a server without a response in time counts, too.
    pub timeout: bool,
    /// True if a server that ends its connection before the response counts, too.
    pub reset: bool,
}

/// Requests that may be sent twice although their method is not idempotent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MarkedIdempotent {
    #[default]
    None,
    All,
    /// Those with this field.
    Field(Box<str>),
}

/// Settings of a route.
#[derive(Clone, Debug, Default)]
pub struct OwnSettings {
    /// Keys that the route has, as in `SETTINGS`.
    pub given: Vec<&'static str>,
    /// Resolved settings by listener, and for a split this for each of its pools; empty: the route has none of its own.
    pub by_listener: Vec<RouteSettings>,
}

/// Keys of `SETTINGS` that the listeners and pools of a config have.
#[derive(Clone, Debug, Default)]
pub struct GivenSettings {
    pub listeners: Vec<Vec<&'static str>>,
    pub pools: Vec<Vec<&'static str>>,
}

/// Part of a config whose setting a route inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingOwner {
    Route,
    Listener,
    Pool,
}

/// A setting that a route may have.
pub struct Setting {
    /// Key, with that of its table.
    pub key: &'static str,
    pub owner: SettingOwner,
    pub show: fn(&RouteSettings) -> String,
}

macro_rules! settings {
    ($($key:literal, $owner:ident, $show:expr;)*) => {
        /// All settings of requests that a route may have.
        pub const SETTINGS: &[Setting] =
            &[$(Setting { key: $key, owner: SettingOwner::$owner, show: $show },)*];
    };
}

settings! {
    "timeouts.total", Route, |settings| optional(settings.total_ns, duration);
    "timeouts.per-try", Route, |settings| optional(settings.per_try_ns, duration);
    "timeouts.connect", Pool, |settings| duration(settings.server.connect_ns);
    "timeouts.first-byte", Pool, |settings| duration(settings.server.first_byte_ns);
    "timeouts.idle", Pool, |settings| duration(settings.server.idle_ns);
    "timeouts.tunnel", Pool, |settings| duration(settings.server.tunnel_ns);
    "timeouts.body", Listener, |settings| duration(settings.client.body_ns);
    "timeouts.body-idle", Listener, |settings| duration(settings.client.body_idle_ns);
    "body-max", Listener, |settings| optional(settings.body_bytes_max, |bytes| format!("{bytes} B"));
    "buffer-request", Listener, |settings| format!("{} B", settings.buffer_request_bytes);
    "retries", Pool, |settings| settings.retries_max.to_string();
    "retry-on", Route, |settings| settings.retry_on.to_string();
    "idempotent", Route, |settings| settings.idempotent.to_string();
    "hedge", Route, |settings| settings.hedge.map_or_else(|| "false".to_owned(), hedge_delay);
    "mirror", Route, |settings| mirrors(&settings.mirrors);
    "compression", Listener, |settings| settings.compression.as_ref().map_or_else(|| "false".to_owned(), |plan| plan.to_string());
    "cache", Route, |settings| settings.cache.as_ref().map_or_else(|| "none".to_owned(), |plan| plan.to_string());
    "limit-rate", Listener, |settings| bandwidth(settings, |plan| plan.download);
    "limit-rate-after", Listener, |settings| format!("{} B", settings.bandwidth.as_ref().map_or(0, |plan| plan.after_bytes));
    "limit-rate-total", Listener, |settings| bandwidth(settings, |plan| plan.total.as_ref().map(|total| total.bytes_per_s));
    "limit-rate-upload", Listener, |settings| bandwidth(settings, |plan| plan.upload);
    "auth", Listener, |settings| settings.access().auth.as_ref().map_or_else(|| "false".to_owned(), |auth| auth.to_string());
    "cors", Listener, |settings| settings.access().cors.as_ref().map_or_else(|| "false".to_owned(), |cors| cors.to_string());
    "forwarding.x-forwarded", Listener, |settings| settings.forwarding.x_forwarded.to_string();
    "forwarding.forwarded-for", Listener, |settings| forwarded_for(&settings.forwarding);
    "forwarding.forwarded", Listener, |settings| settings.forwarding.forwarded.to_string();
    "forwarding.via", Listener, |settings| name_or_false(settings.forwarding.via.as_deref());
    "forwarding.request-id", Listener, |settings| name_or_false(settings.forwarding.request_id.as_deref());
}

/// Formats a time as in a config, in the largest unit without a fraction.
pub(super) fn duration(ns: u64) -> String {
    const UNITS: [(&str, u64); 5] = [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
    ];
    let unit = UNITS.into_iter().find(|(_, unit_ns)| ns >= *unit_ns && ns.is_multiple_of(*unit_ns));
    unit.map_or_else(|| format!("{ns}ns"), |(name, unit_ns)| format!("{}{name}", ns / unit_ns))
}

fn optional(value: Option<u64>, format: impl Fn(u64) -> String) -> String {
    value.map_or_else(|| "no limit".to_owned(), format)
}

fn bandwidth(settings: &RouteSettings, rate: fn(&BandwidthPlan) -> Option<u64>) -> String {
    optional(settings.bandwidth.as_deref().and_then(rate), |rate| format!("{rate} B/s"))
}

fn hedge_delay(delay: HedgeDelay) -> String {
    match delay {
        HedgeDelay::Fixed { delay_ns } => duration(delay_ns),
        HedgeDelay::Percentile { percentile, samples_min, delay_min_ns } => {
            let min = duration(delay_min_ns);
            format!("p{percentile} of at least {samples_min} response times, at least {min}")
        }
    }
}

fn mirrors(mirrors: &[MirrorPlan]) -> String {
    match mirrors {
        [] => "none".to_owned(),
        mirrors => mirrors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn forwarded_for(forwarding: &Forwarding) -> String {
    if forwarding.only_if_none { "if-none" } else { "append" }.to_owned()
}

fn name_or_false(name: Option<&str>) -> String {
    name.unwrap_or("false").to_owned()
}

impl RouteSettings {
    /// Returns the settings of a route without any of its own.
    pub fn inherited(listener: &ListenerPlan, pool: Option<&PoolPlan>) -> Self {
        const NO_TIMEOUTS: ServerTimeouts =
            ServerTimeouts { connect_ns: 0, first_byte_ns: 0, idle_ns: 0, tunnel_ns: 0, abandoned_ns: 0 };
        Self {
            client: listener.timeouts,
            server: pool.map_or(NO_TIMEOUTS, |pool| pool.timeouts),
            total_ns: None,
            per_try_ns: None,
            body_bytes_max: listener.body_bytes_max,
            buffer_request_bytes: listener.buffer_request_bytes,
            retries_max: pool.map_or(0, |pool| pool.retries_max),
            retry_on: RetryOn::default(),
            idempotent: MarkedIdempotent::None,
            forwarding: listener.forwarding.clone(),
            replaced: None,
            compression: listener.compression.clone(),
            bandwidth: listener.bandwidth.clone(),
            mirrors: Arc::default(),
            hedge: None,
            cache: None,
            access: listener.access.boxed(),
        }
    }
}

impl RouteSettings {
    /// Returns the rules about who may use the route.
    pub fn access(&self) -> AccessPlan {
        self.access.as_deref().cloned().unwrap_or_default()
    }
}

impl OwnSettings {
    pub fn for_listener(&self, listener: ListenerIndex) -> Option<&RouteSettings> {
        self.by_listener.get(listener)
    }
}

impl std::fmt::Display for RetryOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let statuses = self.statuses.as_ref().map(ToString::to_string);
        let words = [(self.timeout, "timeout"), (self.reset, "reset")];
        let words = words.into_iter().filter(|(is_on, _)| *is_on).map(|(_, word)| word.to_owned());
        match &*statuses.into_iter().chain(words).collect::<Vec<_>>() {
            [] => f.write_str("none"),
            all => f.write_str(&all.join(",")),
        }
    }
}

impl std::fmt::Display for MarkedIdempotent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("by method"),
            Self::All => f.write_str("all"),
            Self::Field(name) => write!(f, "by method, or with {name}"),
        }
    }
}
