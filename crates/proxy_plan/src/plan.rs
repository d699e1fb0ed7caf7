//! Complete plan of a proxy: the immutable result of reading a config or the flags. Types and their
//! defaults only. `config` creates it from text, and everything else reads it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use content::plan::FilesPlan;
use rt::address::Address;
use rt::unix_socket::SocketAccess;

mod acme;
mod auth;
mod balance;
mod bandwidth;
mod caching;
mod compression;
mod condition;
mod condition_text;
mod error_pages;
mod health;
mod http2;
mod ids;
mod network;
mod overload;
mod route_settings;
mod sni;
mod split;
mod tls;
mod tracing;
mod traffic;

pub use crate::maps::{MapStore, MatchKind};
pub use crate::percent::NamedPercent;
pub use crate::split::NamedWeight;
pub use crate::template::{DurationForm, ExchangePart, Fact, LogTemplate, MapPlan, Template, Text, Variable};
pub use acme::{
    AcmeChallenge, AcmePlan, DnsChallengePlan, DnsProvider, HookPlan, PropagationCheck, SharingPlan,
    TsigAlgorithm, TsigKeySource, UpdatePlan,
};
pub use auth::{
    AccessPlan, AuthMethod, AuthPlan, BasicPlan, CorsOrigins, CorsPlan, Credentials, FailureLimit, FileKeys,
    JwtAlgorithm, JwtPlan, JwtRules, KeySource, OriginPattern, PasswordThreads, RequestPlan, TokenSource,
    UrlKeys, UsersFile,
};
pub use balance::{
    Balance, HashKey, HashPlan, SameSite, Secret, Sticky, StickyLimits, StickyMode, StickyPlan,
    StickyTextPlan,
};
pub use bandwidth::{BandwidthPlan, SharedBandwidth};
pub use caching::{CacheDiskPlan, CachePlan, RouteCachePlan};
pub use compression::CompressionPlan;
pub use condition::{CertificatePart, Condition, DayTime, PercentCondition, WEEKDAYS};
pub use error_pages::{ErrorPage, ErrorPages, PageContent, PageForm};
pub use health::{
    CheckKind, CheckPlan, HttpCheck, Lookup, NamedServers, OutlierPlan, PreferredFamily, ResolvePlan,
    Statuses,
};
pub use http2::{ALPN_HTTP2, ALPN_HTTP11};
pub use http2::{ClientHttp2Plan, ServerHttp, ServerHttp2Plan};
pub use ids::{Id, IdVec, PoolId, ServerId};
pub use network::Network;
pub use overload::{
    AdaptivePlan, Admission, OnLimit, PoolLimits, Priority, QueueOrder, RetryBudgetPlan, SourcePlan,
    TokenRate,
};
pub use route_settings::{GivenSettings, MarkedIdempotent, OwnSettings, RetryOn, RouteSettings};
pub use route_settings::{SETTINGS, Setting, SettingOwner};
pub use server_shell::log::{LogTarget, Rotation};
pub use sni::SniMatch;
pub use sni::{SniPlan, SniRoute};
pub use split::SplitKey;
pub use split::{SplitPlan, SplitShare};
pub use tls::{ListenerTls, PoolTls};
pub use tracing::{Collector, TraceSample, TraceTrust, TracingPlan};
pub use traffic::{HedgeDelay, MirrorPlan};

/// Everything that a proxy is to do. Created by the crate `proxy_config`; never changes. A reload creates
/// a new plan. So does a change of the addresses behind names, which shares all but the pools
/// concerned.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of threads, one per core.
    pub threads: usize,
    /// True if the config sets the number; otherwise there is one thread for each CPU.
    pub is_threads_set: bool,
    /// CPUs to pin the threads to; empty: not pinned.
    pub pin: Vec<usize>,
    /// Maximum number of open client connections on all listeners; `None`: as many as the
    /// descriptor limit allows.
    pub connections_max: Option<usize>,
    /// Time that requests in flight may take after SIGTERM.
    pub drain_timeout_ns: u64,
    /// User, group and confinement of the process once its sockets are bound.
    pub privileges: PrivilegesPlan,
    /// Access logs; several are possible.
    pub logs: Vec<LogPlan>,
    /// Traces; `None`: none are recorded, and contexts pass unchanged.
    pub tracing: Option<Arc<TracingPlan>>,
    /// Address of the metrics and the admin pages; `None`: not served.
    pub admin: Option<Address>,
    /// Access rules of those pages.
    pub admin_access: AdminAccess,
    /// Path of the control socket, a unix socket for `weir ctl`; `None`: none.
    pub control: Option<PathBuf>,
    /// File that keeps the changes of operators over a restart; `None`: they end with the process.
    pub state_file: Option<PathBuf>,
    /// Text of the config; for a plan made from flags, the equivalent config.
    pub source: Arc<str>,
    /// Included files, and the directories of patterns, which a reload reads again.
    pub included: Vec<PathBuf>,
    /// Maps and lists with a name.
    pub maps: Arc<[Arc<MapPlan>]>,
    /// Caches of responses.
    pub caches: Arc<[Arc<CachePlan>]>,
    pub listeners: Arc<[ListenerPlan]>,
    /// Routes in the order in which they are tried; the first match decides.
    pub routes: Arc<[RoutePlan]>,
    /// Pools. A pool is shared with the previous plan while it stays the same.
    pub pools: IdVec<PoolId, Arc<PoolPlan>>,
    /// Error pages for requests without a route.
    pub error_pages: ErrorPages,
    /// Settings that listeners and pools have in the config.
    pub given: GivenSettings,
    pub password_threads: PasswordThreads,
}

impl Plan {
    /// Returns the files of the config's texts and secrets that a reload reads again, and directories of
    /// included files.
    pub fn read_again(&self) -> Vec<&Path> {
        let keys = self.pools.iter().filter_map(|pool| pool.sticky.as_ref()?.cookie()?.key_file.as_deref());
        let own = self.included.iter().map(PathBuf::as_path).chain(self.admin_access.token_file.as_deref());
        own.chain(keys).chain(self.page_files()).chain(self.servers_files()).collect()
    }

    pub fn servers_files(&self) -> impl Iterator<Item = &Path> {
        self.pools.iter().filter_map(|pool| pool.servers_file.as_deref())
    }

    /// Returns the files of error pages and of responses of routes.
    fn page_files(&self) -> impl Iterator<Item = &Path> {
        let route_pages = self.routes.iter().filter_map(|route| Some(&route.texts.as_ref()?.error_pages));
        let all_pages = route_pages.chain([&self.error_pages]).flat_map(|pages| pages.iter());
        let action_files = self.routes.iter().filter_map(|route| match &route.action {
            Action::Return { file, .. } => file.as_deref(),
            _ => None,
        });
        all_pages.flat_map(ErrorPage::files).chain(action_files)
    }

    /// Returns the maps and lists with their names: a list is named by its file.
    pub fn stores(&self) -> Vec<(Cow<'_, str>, &Arc<MapStore>)> {
        let mut stores: Vec<(Cow<'_, str>, &Arc<MapStore>)> =
            self.maps.iter().map(|map| (Cow::Borrowed(&*map.name), &map.store)).collect();
        self.visit_conditions(&mut |condition| {
            if let Condition::SourceFile(_, list) = condition
                && !stores.iter().any(|(_, known)| Arc::ptr_eq(known, list))
            {
                stores.push((list.path().map(Path::to_string_lossy).unwrap_or_default(), list));
            }
        });
        stores
    }

    /// Returns the conditions on percentages that operators can change, the first one of each name.
    pub fn named_percents<'a>(&'a self) -> Vec<NamedUse<'a>> {
        let mut percents: Vec<NamedUse<'a>> = Vec::new();
        let mut add = |found: NamedUse<'a>| {
            if !percents.iter().any(|known| Arc::ptr_eq(known.named, found.named)) {
                percents.push(found);
            }
        };
        self.visit_conditions(&mut |condition| {
            if let Condition::Percent(PercentCondition { percent, named: Some(named), key }) = condition {
                add(NamedUse { named, configured: *percent, key: key.source() });
            }
        });
        let settings = self.routes.iter().filter_map(|route| route.settings.by_listener.first());
        for mirror in settings.flat_map(|settings| &*settings.mirrors) {
            if let Some(named) = &mirror.named {
                add(NamedUse { named, configured: mirror.percent, key: mirror.key_source() });
            }
        }
        percents
    }

    /// Returns the splits that operators can change.
    pub fn named_splits(&self) -> impl Iterator<Item = (&str, &SplitPlan)> {
        self.routes.iter().filter_map(|route| match &route.action {
            Action::Split(split) => Some((split.name.as_deref()?, &**split)),
            _ => None,
        })
    }

    /// Calls `visit` with all conditions of routes and of their rules that are no combinations.
    fn visit_conditions<'a>(&'a self, visit: &mut dyn FnMut(&'a Condition)) {
        for route in &*self.routes {
            let rules = route.texts.iter().flat_map(|texts| &texts.rules).map(|rule| &rule.when);
            for when in rules.chain([&route.conditions.when]).flatten() {
                when.visit(visit);
            }
        }
    }
}

/// The first use of a percentage that has a name.
#[derive(Clone, Copy, Debug)]
pub struct NamedUse<'a> {
    pub named: &'a Arc<NamedPercent>,
    /// Percentage in the config.
    pub configured: f64,
    pub key: &'a str,
}

impl NamedUse<'_> {
    /// Returns the percentage that counts now.
    pub fn current(&self) -> f64 {
        self.named.changed().unwrap_or(self.configured)
    }
}

/// Index of a listener in [`Plan::listeners`].
pub type ListenerIndex = usize;

/// Privileges of the process after binding. All settings are optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivilegesPlan {
    pub user: Option<u32>,
    /// Group id to change to; supplementary groups are dropped with it.
    pub group: Option<u32>,
    /// True if `no_new_privs` is set (prctl(2)); on by default.
    pub no_new_privileges: bool,
    /// True if file access is confined with Landlock where the kernel has it (landlock(7)).
    pub landlock: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPlan {
    pub name: Box<str>,
    pub bind: Vec<Address>,
    pub unix_access: SocketAccess,
    /// Network namespace to listen in, by name (`ip netns`) or path; `None`: our own.
    pub namespace: Option<PathBuf>,
    /// Protocol of its connections.
    pub mode: Mode,
    /// TLS of its connections; `None`: they are plain.
    pub tls: Option<ListenerTls>,
    /// Settings and limits of HTTP/2; `None`: only HTTP/1.1.
    pub http2: Option<ClientHttp2Plan>,
    /// In mode tcp, routes by the client's ClientHello; `None`: all connections have one pool.
    pub sni: Option<SniPlan>,
    /// True if each connection from a trusted network starts with a PROXY protocol header (v1 or
    /// v2). Other connections are rejected, because their claims cannot be trusted.
    pub proxy_protocol: bool,
    /// Peers whose forwarding fields, request ids and PROXY headers are trusted.
    pub trusted: Vec<Network>,
    /// True if peers on a unix socket are trusted too.
    pub is_unix_trusted: bool,
    /// Maximum number of open connections; `None`: only the process's limit applies.
    pub connections_max: Option<usize>,
    /// Maximum number of connections in their TLS handshake: 5,000. Further ones are reset.
    pub handshakes_max: usize,
    /// Maximum requests on one connection; the last response closes it. `None`: unlimited.
    pub requests_max: Option<u32>,
    /// Limits of a request's head and framing.
    pub limits: wire::Limits,
    /// Maximum length of a request's body in bytes; a longer body gets 413. `None`: unlimited.
    pub body_bytes_max: Option<u64>,
    pub timeouts: ClientTimeouts,
    /// Fields added to requests that tell servers where a request came from.
    pub forwarding: Forwarding,
    /// The form in which request paths are routed and forwarded.
    pub path: PathRule,
    /// True if CONNECT is forwarded (else 405).
    pub connect: bool,
    /// Status of the redirect of every request to https; `None`: requests are routed.
    pub redirect_https: Option<u16>,
    /// True if a client that ended its sending side after its request gets its response. Else its
    /// request is aborted, unless the response has begun.
    pub half_close: bool,
    /// Maximum bytes of a body received before the request takes a slot of a limited server: 8,192.
    pub buffer_request_bytes: u64,
    /// Compression of the responses of servers; `None`: none.
    pub compression: Option<Arc<CompressionPlan>>,
    /// Limits of bytes per second; `None`: none.
    pub bandwidth: Option<Arc<BandwidthPlan>>,
    pub access: AccessPlan,
    pub admission: Admission,
}

/// Access rules of the admin pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminAccess {
    /// Host names that requests may use, besides IP addresses and localhost.
    pub hosts: Vec<Box<str>>,
    /// Token that requests must carry; `None`: none.
    pub token: Option<Secret>,
    pub token_file: Option<PathBuf>,
}

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// HTTP/1.1 and HTTP/2, routed by request.
    Http,
    /// Bytes, in both directions, to one pool, unless [`ListenerPlan::sni`] has another one.
    Tcp(PoolId),
}

/// Timeouts of clients. All are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// Maximum time from a head's first byte to its last: 10 s. Then 408.
    pub head_ns: u64,
    /// Maximum time from a request's first byte to the last of its body: 1 h. Then 408.
    pub body_ns: u64,
    /// Maximum time without a byte of an expected body: 30 s. Then 408.
    pub body_idle_ns: u64,
    /// Period in which a body must bring [`ClientTimeouts::body_progress_bytes`] or end: 30 s.
    pub body_progress_ns: u64,
    /// Minimum bytes of a body in each [`ClientTimeouts::body_progress_ns`]: 16,384 (546 B/s).
    pub body_progress_bytes: u64,
    /// Period in which a client that does not keep up must receive
    /// [`ClientTimeouts::write_progress_bytes`] of its response: 30 s.
    pub write_ns: u64,
    /// Minimum bytes received in each [`ClientTimeouts::write_ns`]: 4,096.
    pub write_progress_bytes: u64,
    /// Maximum time between two requests, and before the first: 60 s.
    pub keep_alive_ns: u64,
}

#[derive(Clone, Debug)]
pub struct RoutePlan {
    /// Name of the route, by default `route-N` by its position; unique.
    pub name: Box<str>,
    /// Conditions, all of which must hold.
    pub conditions: Conditions,
    /// Changes to the request and its response, in this order.
    pub changes: Vec<RouteChange>,
    /// Facts about its texts with values; `None`: all of its texts are literal.
    pub texts: Option<Box<RouteTexts>>,
    /// The form in which its paths are forwarded; `None`: that of the listener.
    pub path_rule: Option<PathRule>,
    /// Maximum request rates; beyond one of them, the route responds itself.
    pub rate_limits: Vec<RateLimit>,
    pub priority: Priority,
    /// Settings instead of those of its listeners and its pool.
    pub settings: OwnSettings,
    pub action: Action,
}

/// Facts about the texts of a route that have values of the request.
#[derive(Clone, Debug, Default)]
pub struct RouteTexts {
    /// Regular expression whose groups are values.
    pub regex: Option<regex::Regex>,
    /// Values of the request that fields of the response have.
    pub kept: Vec<Variable>,
    pub uses_request_id: bool,
    /// Rules for responses, at most [`RouteTexts::RULES_MAX`].
    pub rules: Vec<ResponseRule>,
    /// Error pages of the route, and then those of the proxy.
    pub error_pages: ErrorPages,
    /// Changes by the set of rules that hold: bit 0 is the first rule. Each begins with those of the route.
    pub variants: Vec<Vec<RouteChange>>,
}

/// Changes to the responses of a route with a certain status.
#[derive(Clone, Debug)]
pub struct ResponseRule {
    /// Statuses; `None`: all.
    pub statuses: Option<Statuses>,
    /// Condition on the request; `None`: all requests.
    pub when: Option<Box<Condition>>,
    /// Changes to the response, in this order.
    pub changes: Vec<RouteChange>,
}

impl RouteTexts {
    /// Maximum number of rules for responses of a route: there are changes for each set of them.
    pub const RULES_MAX: usize = 6;

    /// Returns the changes for a response. `held` has a bit for each rule whose request condition holds. `None`:
    /// those of the route.
    #[inline]
    pub fn changes(&self, status: u16, held: u8) -> Option<&[RouteChange]> {
        let rules = self.rules.iter().enumerate();
        let holding = rules.filter(|(index, rule)| {
            held >> index & 1 == 1 && rule.statuses.as_ref().is_none_or(|statuses| statuses.contains(status))
        });
        let set = holding.fold(0, |set, (index, _)| set | 1 << index);
        self.variants.get(set).map(|changes| &**changes)
    }
}

/// Conditions on a request; an empty list always holds.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    pub listeners: Vec<ListenerIndex>,
    /// Hosts, any of them; lower case, without port; `*.example.org` for any name below it.
    pub hosts: Vec<Box<str>>,
    pub paths: Vec<PathCondition>,
    pub methods: Vec<Box<str>>,
    /// Fields of the head, all of them.
    pub headers: Vec<TextCondition>,
    /// Parameters of the query, all of them.
    pub query: Vec<TextCondition>,
    /// Networks of the client, any of them.
    pub sources: Vec<Network>,
    pub when: Option<Box<Condition>>,
}

impl Conditions {
    /// Returns whether every request of the listeners fulfils them.
    pub fn matches_everything(&self) -> bool {
        self.hosts.is_empty() && self.matches_everything_but_hosts()
    }

    /// Returns whether every request to one of the hosts fulfils them.
    pub fn matches_everything_but_hosts(&self) -> bool {
        self.methods.is_empty()
            && self.headers.is_empty()
            && self.query.is_empty()
            && self.sources.is_empty()
            && self.when.is_none()
            && self.matches_any_path()
    }

    fn matches_any_path(&self) -> bool {
        let is_root_prefix =
            |path: &PathCondition| matches!(path, PathCondition::Prefix(prefix) if **prefix == *"/");
        self.paths.is_empty() || self.paths.iter().any(is_root_prefix)
    }
}

/// A condition on the normalised path.
#[derive(Clone, Debug)]
pub enum PathCondition {
    Exact(Box<str>),
    /// This path, and all paths below it; `/` is every path.
    Prefix(Box<str>),
    /// A pattern with `*`, `**` and `?`, and the regular expression for it.
    Glob(Box<str>, regex::Regex),
    /// A regular expression that matches anywhere (anchor it with `^` and `$`).
    Regex(regex::Regex),
}

/// A condition on a named text: a field or a parameter.
#[derive(Clone, Debug)]
pub struct TextCondition {
    /// Name; field names are compared without case.
    pub name: Box<str>,
    pub value: ValueCondition,
}

#[derive(Clone, Debug)]
pub enum ValueCondition {
    Present,
    Absent,
    Equals(Box<str>),
    /// A regular expression that matches anywhere in the value.
    Matches(regex::Regex),
}

/// A change to a request or to its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteChange {
    /// Replaces the part of the path that a prefix condition matched.
    ReplacePrefix {
        prefix: Box<str>,
        replacement: Box<str>,
    },
    /// Replaces the complete path; the query stays.
    ReplacePath(Box<str>),
    /// Sets a field of the request, and removes all others of that name.
    SetRequestHeader(Box<str>, Text),
    AddRequestHeader(Box<str>, Text),
    RemoveRequestHeader(Box<str>),
    /// Removes a cookie of the request; the others of its field stay.
    RemoveRequestCookie(Box<str>),
    SetResponseHeader(Box<str>, Text),
    AddResponseHeader(Box<str>, Text),
    RemoveResponseHeader(Box<str>),
}

/// Token bucket of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimit {
    pub rate_per_s: f64,
    /// Maximum number of requests at once.
    pub burst: u32,
    pub key: RateKey,
    /// Status beyond the limit: 429 by default, with `Retry-After`.
    pub status: u16,
    /// Maximum number of remembered keys; the one whose bucket was full for longest is dropped
    /// first.
    pub keys_max: usize,
}

impl RateLimit {
    /// Returns whether the key is known only after the authentication of a request.
    pub fn needs_identity(&self) -> bool {
        let RateKey::Template(template) = &self.key else { return false };
        template.variables().any(Variable::needs_identity)
    }
}

/// Key that selects a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKey {
    Route,
    /// One bucket for each client address (IPv6: each /64).
    Source,
    Header(Box<str>),
    /// One bucket for each text with the values of a request.
    Template(Template),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Forward(PoolId),
    /// Forwards to one of several pools, by weight.
    Split(Arc<SplitPlan>),
    /// Responds with files of a directory.
    Files(Arc<FilesPlan>),
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        location: Text,
    },
    Return {
        status: u16,
        content_type: Box<str>,
        body: Text,
        /// File that the content was read from.
        file: Option<PathBuf>,
    },
    /// Rejects it with this status: 403 by default.
    Deny(u16),
    /// Delays it, and then rejects it.
    Tarpit {
        /// Delay: 10 s by default.
        delay_ns: u64,
        /// Status: 403 by default.
        status: u16,
    },
    /// Drops the connection without a response.
    SilentDrop,
}

impl Action {
    /// Returns the pools that requests are forwarded to.
    pub fn pools(&self) -> Vec<PoolId> {
        match self {
            Self::Forward(pool) => vec![*pool],
            Self::Split(split) => split.shares.iter().map(|share| share.pool).collect(),
            _ => Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PoolPlan {
    pub name: Box<str>,
    /// Servers; at least one, unless [`PoolPlan::named_servers`] has one.
    pub servers: IdVec<ServerId, ServerPlan>,
    /// Servers whose addresses come from DNS.
    pub named_servers: Vec<NamedServers>,
    /// File with servers, which is read again when it changes.
    pub servers_file: Option<PathBuf>,
    /// Settings for resolving those names.
    pub resolve: ResolvePlan,
    /// Active health check by the proxy; `None`: none.
    pub check: Option<CheckPlan>,
    /// Conditions for ejecting a server that fails requests.
    pub outlier: OutlierPlan,
    /// Algorithm that selects a server.
    pub balance: Balance,
    /// Key of [`Balance::ConsistentHash`].
    pub hash: HashPlan,
    /// Rule that keeps a client at its server; `None`: none.
    pub sticky: Option<Sticky>,
    /// HTTP version of the connections to its servers.
    pub http: ServerHttp,
    /// Limits of those with HTTP/2.
    pub http2: ServerHttp2Plan,
    /// Connections that a request may be sent on.
    pub reuse: Reuse,
    /// Maximum number of idle connections kept to each server, on all cores.
    pub idle_max: usize,
    /// Time for which an idle connection to a server is kept.
    pub idle_timeout_ns: u64,
    /// Limits of the queue in which requests wait when all servers are at their `maxconn`.
    pub queue: QueuePlan,
    /// Limits of the pool beside those of its servers.
    pub overload_limits: PoolLimits,
    pub timeouts: ServerTimeouts,
    /// Limits of a response's head and framing.
    pub limits: wire::Limits,
    /// Maximum number of retries of a request; it is retried only if nothing of it can have had an
    /// effect.
    pub retries_max: u8,
    /// Time in which the weight of a recovered server grows, from a tenth up to
    /// all of it; 0, the default: it gets all of it at once.
    pub slow_start_ns: u64,
    /// Version of the PROXY protocol header at the start of each connection to a server; `None`: no
    /// header.
    pub send_proxy_protocol: Option<wire::proxy_protocol::ProxyVersion>,
    /// TLS of the connections to its servers; `None`: they are plain.
    pub tls: Option<PoolTls>,
    /// Network namespace to connect in; `None`: our own.
    pub namespace: Option<PathBuf>,
    /// Source addresses of the connections to its servers, used in turn; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlan {
    /// Name in logs and metrics; the address by default. Unique in its pool.
    pub name: Box<str>,
    pub address: Address,
    /// Name that the address was looked up by.
    pub host: Option<Box<str>>,
    /// Weight of its load relative to the other servers; 0: no requests.
    pub weight: u32,
    /// Maximum number of requests at a time, on all cores; `None`: unlimited.
    pub maxconn: Option<usize>,
    /// True if it gets requests only when no other server may get any.
    pub backup: bool,
}

/// Connections to servers that a request may be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Only connections that carried earlier requests of this client.
    Never,
    /// Any idle connection; a client's first request takes a new one, unless it may be sent again.
    /// The default.
    Safe,
    /// Any idle connection.
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// Maximum number of waiting requests, on all cores: 1,024.
    pub limit: usize,
    /// Maximum waiting time of a request: 100 ms. Then 503.
    pub timeout_ns: u64,
    /// Order in which requests are served.
    pub order: QueueOrder,
    /// Time after which a queue that was never short counts as standing: 100 ms.
    pub standing_after_ns: u64,
}

/// Timeouts of servers. All are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// Maximum time to establish a connection: 5 s.
    pub connect_ns: u64,
    /// Maximum time from the request's last byte to the response's head: 60 s. Then 504.
    pub first_byte_ns: u64,
    /// Maximum time without a byte of a response, or without the server accepting a byte of a
    /// request: 30 s.
    pub idle_ns: u64,
    /// Maximum time without a byte in either direction of a tunnel (Upgrade, CONNECT, TCP): 1 h.
    pub tunnel_ns: u64,
    /// Maximum time for which a limited server keeps the slot of a request whose client has left,
    /// until it ends its response or its connection: 10 s.
    pub abandoned_ns: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LogPlan {
    pub target: LogTarget,
    pub format: LogFormat,
    /// Fraction of requests that is logged, chosen at random: 1.0. Errors are always logged.
    pub sample: f64,
    /// True if only failed requests are logged (status from 500, or an end that is not regular).
    pub only_errors: bool,
    /// Rotation of a file by its size; `None`: operators rename it.
    pub rotation: Option<Rotation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Apache's and nginx's combined format.
    Combined,
    /// HAProxy's HTTP log format (`option httplog`).
    Haproxy,
    /// A text with values.
    Template(Arc<LogTemplate>),
}

/// Fields added to requests that tell servers where a request came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// `X-Forwarded-For`, `-Proto`, `-Host`; on by default.
    pub x_forwarded: bool,
    /// True if a trusted `X-Forwarded-For` stays as it is, instead of being appended to.
    pub only_if_none: bool,
    /// `Forwarded` (RFC 7239); off by default.
    pub forwarded: bool,
    /// The pseudonym in `Via` (RFC 9110 §7.6.3); `None`: no `Via` is added. `weir` by default.
    pub via: Option<Box<str>>,
    /// Field that carries the request id. An id is generated if there is none, or none that is
    /// trusted. `None`: no id. `X-Request-Id` by default.
    pub request_id: Option<Box<str>>,
    pub underscores: Underscores,
}

/// The form in which a listener's request paths are routed and forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRule {
    /// In their normal form; a path that servers read in different ways gets 400. The default.
    Normalise,
    /// As received; a path that is not in its normal form, or has empty segments, gets 400.
    Strict,
    /// Forwarded as received, and routed by their normal form.
    Raw,
}

/// Treatment of a request's fields with an underscore in their names, unless a trusted peer sent
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underscores {
    /// They are not forwarded. The default.
    Drop,
    /// The request gets 400.
    Reject,
    Pass,
}
