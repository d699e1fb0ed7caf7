//! Settings of a request that its route may have instead of those of its listener and its pool. Inheritance:
//! route over pool over listener over default.

use std::sync::Arc;

use super::{
    AccessPlan, ClientTimeouts, CompressionPlan, Forwarding, ListenerIndex, ListenerPlan, PoolPlan,
    ServerTimeouts, Statuses,
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
    pub forwarding: Forwarding,
    /// Statuses of servers whose content an error page replaces; `None`: none.
    pub replaced: Option<Statuses>,
    /// Compression of responses; `None`: they keep the coding of their server.
    pub compression: Option<Arc<CompressionPlan>>,
    /// Rules about who may use the route; `None`: it is open to all.
    pub access: Option<Box<AccessPlan>>,
}

/// Results after which an idempotent request is sent to another server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryOn {
    pub statuses: Option<Statuses>,
    /// True if a server without a response in time counts, too.
    pub timeout: bool,
}

/// Settings of a route.
#[derive(Clone, Debug, Default)]
pub struct OwnSettings {
    /// Keys that the route has, as in `SETTINGS`.
    pub given: Vec<&'static str>,
    /// Resolved settings by listener; empty: the route has none of its own.
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
pub(crate) enum SettingOwner {
    Route,
    Listener,
    Pool,
}

/// A setting that a route may have.
pub(crate) struct Setting {
    /// Key, with that of its table.
    pub(crate) key: &'static str,
    pub(crate) owner: SettingOwner,
    pub(crate) show: fn(&RouteSettings) -> String,
}

macro_rules! settings {
    ($($key:literal, $owner:ident, $show:expr;)*) => {
        /// All settings of requests that a route may have.
        pub(crate) const SETTINGS: &[Setting] =
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
    "compression", Listener, |settings| settings.compression.as_ref().map_or_else(|| "false".to_owned(), |plan| plan.to_string());
    "auth", Listener, |settings| settings.access().auth.as_ref().map_or_else(|| "false".to_owned(), |auth| auth.to_string());
    "cors", Listener, |settings| settings.access().cors.as_ref().map_or_else(|| "false".to_owned(), |cors| cors.to_string());
    "forwarding.x-forwarded", Listener, |settings| settings.forwarding.x_forwarded.to_string();
    "forwarding.forwarded-for", Listener, |settings| forwarded_for(&settings.forwarding);
    "forwarding.forwarded", Listener, |settings| settings.forwarding.forwarded.to_string();
    "forwarding.via", Listener, |settings| name_or_false(settings.forwarding.via.as_deref());
    "forwarding.request-id", Listener, |settings| name_or_false(settings.forwarding.request_id.as_deref());
}

/// Formats a time as in a config, in the largest unit without a fraction.
fn duration(ns: u64) -> String {
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

fn forwarded_for(forwarding: &Forwarding) -> String {
    if forwarding.only_if_none { "if-none" } else { "append" }.to_owned()
}

fn name_or_false(name: Option<&str>) -> String {
    name.unwrap_or("false").to_owned()
}

impl RouteSettings {
    /// Returns the settings of a route without any of its own.
    pub(crate) fn inherited(listener: &ListenerPlan, pool: Option<&PoolPlan>) -> Self {
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
            forwarding: listener.forwarding.clone(),
            replaced: None,
            compression: listener.compression.clone(),
            access: listener.access.boxed(),
        }
    }
}

impl RouteSettings {
    /// Returns the rules about who may use the route.
    pub(crate) fn access(&self) -> AccessPlan {
        self.access.as_deref().cloned().unwrap_or_default()
    }
}

impl OwnSettings {
    pub(crate) fn for_listener(&self, listener: ListenerIndex) -> Option<&RouteSettings> {
        self.by_listener.get(listener)
    }
}

impl std::fmt::Display for RetryOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.statuses, self.timeout) {
            (None, false) => f.write_str("none"),
            (None, true) => f.write_str("timeout"),
            (Some(statuses), false) => write!(f, "{statuses}"),
            (Some(statuses), true) => write!(f, "{statuses},timeout"),
        }
    }
}
