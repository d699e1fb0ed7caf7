//! What a proxy is to do: the immutable result of reading a config or the flags. Types and their
//! defaults only; `config` makes it from text, and everything else reads it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use rt::address::Address;
use rt::local::SocketAccess;

mod balance;
mod heads;
mod health;
mod overload;

pub use balance::{Balance, HashKey, HashPlan, SameSite, Secret, StickyMode, StickyPlan};
pub use heads::{Forwarding, PathRule, Underscores};
pub use health::{
    CheckKind, CheckPlan, HttpCheck, Lookup, NamedServers, OutlierPlan, Prefer, ResolvePlan,
    Statuses,
};
pub use overload::{
    AdaptivePlan, Admission, OnLimit, PoolBounds, Priority, QueueOrder, Rate, RetryBudgetPlan,
    SourcePlan,
};

/// Everything that a proxy is to do. Made by [`crate::config`]; does not change. A reload makes a
/// new one.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Threads, a core each.
    pub threads: usize,
    /// Whether the config says how many; otherwise it is one for each CPU.
    pub threads_given: bool,
    /// Processors to pin them to; empty: not pinned.
    pub pin: Vec<usize>,
    /// Connections of clients that may be open on all listeners; `None`: what descriptors allow.
    pub connections_max: Option<usize>,
    /// How long requests in flight may go on after SIGTERM.
    pub drain_timeout_ns: u64,
    /// Who the process becomes once its sockets are bound.
    pub privileges: PrivilegesPlan,
    /// Where requests are logged; several are possible.
    pub logs: Vec<LogPlan>,
    /// Where metrics and the admin pages are served; `None`: nowhere.
    pub admin: Option<Address>,
    /// Who may see those pages.
    pub admin_access: AdminAccess,
    /// The unix socket that the proxy is operated through (`weir ctl`); `None`: none.
    pub control: Option<PathBuf>,
    /// The config's text; of a plan that was made of flags, what a config would say.
    pub source: Box<str>,
    /// Where clients connect.
    pub listeners: Vec<ListenerPlan>,
    /// In the order in which they are tried: the first that matches decides.
    pub routes: Vec<RoutePlan>,
    /// Where requests go.
    pub pools: Vec<PoolPlan>,
}

/// Index of a listener in [`Plan::listeners`].
pub type ListenerIndex = usize;
/// Index of a pool in [`Plan::pools`].
pub type PoolIndex = usize;

/// Who the process becomes after binding. All of it is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivilegesPlan {
    /// User id to change to.
    pub user: Option<u32>,
    /// Group id to change to; supplementary groups are dropped with it.
    pub group: Option<u32>,
    /// Whether `no_new_privs` is set (prctl(2)); on by default.
    pub no_new_privileges: bool,
    /// Whether file access is confined with Landlock where the kernel has it (landlock(7)).
    pub landlock: bool,
}

/// One listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPlan {
    /// Its name in the config, unique.
    pub name: Box<str>,
    /// Where it listens.
    pub bind: Vec<Address>,
    /// The access rights of its unix sockets.
    pub unix: SocketAccess,
    /// The network namespace to listen in, by name (`ip netns`) or path; `None`: our own.
    pub namespace: Option<PathBuf>,
    /// What it speaks.
    pub mode: Mode,
    /// Whether each connection from a trusted network starts with a PROXY protocol header (v1 or
    /// v2). Others are refused: what they claim cannot be believed.
    pub proxy_protocol: bool,
    /// Peers whose forwarding fields, request ids and PROXY headers are believed.
    pub trusted: Vec<Network>,
    /// Whether the same holds for peers on a unix socket.
    pub trusts_unix: bool,
    /// Connections that may be open at a time; `None`: only the process's limit holds.
    pub connections_max: Option<usize>,
    /// Requests on one connection; the last answer says `Connection: close`. `None`: any number.
    pub requests_max: Option<u32>,
    /// Bounds of a request's head and framing.
    pub limits: wire::Limits,
    /// Bytes of a request's body; more is 413. `None`: any number.
    pub body_bytes_max: Option<u64>,
    /// How long clients may take.
    pub timeouts: ClientTimeouts,
    /// What is said to servers about where a request came from.
    pub forwarding: Forwarding,
    /// The form in which request paths are routed and forwarded.
    pub path: PathRule,
    /// Whether CONNECT is passed on (else 405).
    pub connect: bool,
    /// Whether a client that ended its sending side after its request gets its response. Else its
    /// request is aborted, unless the response has begun.
    pub half_close: bool,
    /// Bytes of a body that are received before the request takes a slot of a bounded server: 8,192.
    pub buffer_request_bytes: u64,
    /// Which connections and requests it takes on.
    pub admission: Admission,
}

/// Who may see the admin pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminAccess {
    /// Host names that requests may be for, besides IP addresses and localhost.
    pub hosts: Vec<Box<str>>,
    /// What requests have to know; `None`: nothing.
    pub token: Option<Secret>,
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// HTTP/1.1, routed by request.
    Http,
    /// Bytes, both ways, to one pool.
    Tcp(PoolIndex),
}

/// How long clients may take. All on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From a head's first byte to its last: 10 s. Then 408.
    pub head_ns: u64,
    /// From a request's first byte to the last of its body: 1 h. Then 408.
    pub body_ns: u64,
    /// Without a byte of an expected body: 30 s. Then 408.
    pub body_idle_ns: u64,
    /// In each such time a body has to bring [`ClientTimeouts::body_progress_bytes`] or end: 30 s.
    pub body_progress_ns: u64,
    /// See [`ClientTimeouts::body_progress_ns`]: 16,384, which is 546 bytes a second.
    pub body_progress_bytes: u64,
    /// In each such time a client that does not keep up has to take
    /// [`ClientTimeouts::write_progress_bytes`] of its answer: 30 s.
    pub write_ns: u64,
    /// See [`ClientTimeouts::write_ns`]: 4,096.
    pub write_progress_bytes: u64,
    /// Between two requests, and before the first: 60 s.
    pub keep_alive_ns: u64,
}

/// An IP network in CIDR form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its address, with the host's bits 0.
    pub address: IpAddr,
    /// How many leading bits count.
    pub prefix: u8,
}

impl Network {
    /// Whether `address` lies in it. An IPv4 address mapped into IPv6 counts as what it maps.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                u32::from(network) & mask == u32::from(address) & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                u128::from(network) & mask == u128::from(address) & mask
            }
            _ => false,
        }
    }
}

/// One `[[route]]`.
#[derive(Clone, Debug)]
pub struct RoutePlan {
    /// Its name, or `route-N` by its place; unique.
    pub name: Box<str>,
    /// All of these have to hold.
    pub conditions: Conditions,
    /// What is changed on the way, in this order.
    pub changes: Vec<Change>,
    /// At most so many requests; beyond, the route answers itself.
    pub rate_limit: Option<RateLimit>,
    /// How urgent its requests are in a queue.
    pub priority: Priority,
    /// What becomes of the request.
    pub action: Action,
}

/// What a request has to be for a route; an empty list asks for nothing.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Listeners.
    pub listeners: Vec<ListenerIndex>,
    /// Hosts, lower case, without port; `*.example.org` for any name below it.
    pub hosts: Vec<Box<str>>,
    /// Paths, any of them.
    pub paths: Vec<PathCondition>,
    /// Methods, any of them.
    pub methods: Vec<Box<str>>,
    /// Fields of the head, all of them.
    pub headers: Vec<TextCondition>,
    /// Parameters of the query, all of them.
    pub query: Vec<TextCondition>,
    /// Networks of the client, any of them.
    pub sources: Vec<Network>,
}

/// A condition on the normalised path.
#[derive(Clone, Debug)]
pub enum PathCondition {
    /// Exactly this.
    Exact(Box<str>),
    /// This, or this and something below it; `/` is every path.
    Prefix(Box<str>),
    /// A regular expression that fits somewhere (anchor it with `^` and `$`).
    Regex(regex::Regex),
}

/// A condition on a named text: a field or a parameter.
#[derive(Clone, Debug)]
pub struct TextCondition {
    /// The name; of a field without case.
    pub name: Box<str>,
    /// What its value has to be.
    pub value: ValueCondition,
}

/// What a value has to be.
#[derive(Clone, Debug)]
pub enum ValueCondition {
    /// It is there.
    Present,
    /// It is not there.
    Absent,
    /// Exactly this.
    Is(Box<str>),
    /// A regular expression that fits somewhere.
    Matches(regex::Regex),
}

/// A change to a request or to its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Replaces the part of the path that a prefix condition matched.
    ReplacePrefix {
        /// What is replaced.
        prefix: Box<str>,
        /// With what.
        with: Box<str>,
    },
    /// Replaces the whole path; the query stays.
    ReplacePath(Box<str>),
    /// Sets a field of the request: all others of that name go.
    SetRequestHeader(Box<str>, Box<str>),
    /// Adds a field to the request.
    AddRequestHeader(Box<str>, Box<str>),
    /// Removes a field of the request.
    RemoveRequestHeader(Box<str>),
    /// Sets a field of the response.
    SetResponseHeader(Box<str>, Box<str>),
    /// Adds a field to the response.
    AddResponseHeader(Box<str>, Box<str>),
    /// Removes a field of the response.
    RemoveResponseHeader(Box<str>),
}

/// A token bucket for a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimit {
    /// Requests a second.
    pub rate_per_s: f64,
    /// How many may come at once.
    pub burst: u32,
    /// What has a bucket of its own.
    pub key: RateKey,
    /// What is answered beyond: 429 by default, with `Retry-After`.
    pub status: u16,
    /// How many keys are remembered; the one that was full for longest is forgotten first.
    pub keys_max: usize,
}

/// What has a bucket of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// The whole route.
    Route,
    /// Each client address (IPv6: each /64).
    Source,
    /// Each value of this field.
    Header(Box<str>),
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To a server of this pool.
    Forward(PoolIndex),
    /// A redirect; `{host}`, `{path}` and `{query}` stand for the request's own.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// Where to.
        location: Box<str>,
    },
    /// A fixed answer.
    Answer {
        /// Its status.
        status: u16,
        /// Its `Content-Type`.
        content_type: Box<str>,
        /// Its content.
        body: Box<[u8]>,
    },
    /// Refused with this status: 403 by default.
    Deny(u16),
    /// Kept waiting, and then refused.
    Tarpit {
        /// For how long: 10 s by default.
        delay_ns: u64,
        /// With what: 403 by default.
        status: u16,
    },
    /// The connection goes without a word.
    SilentDrop,
}

/// One `[pool.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPlan {
    /// Its name, unique.
    pub name: Box<str>,
    /// Its servers; at least one, or one of [`PoolPlan::names`].
    pub servers: Vec<ServerPlan>,
    /// Servers whose addresses DNS says.
    pub names: Vec<NamedServers>,
    /// How those are looked up.
    pub resolve: ResolvePlan,
    /// How the proxy itself looks whether servers are well; `None`: it does not.
    pub check: Option<CheckPlan>,
    /// When a server that fails requests gets none for a while.
    pub outlier: OutlierPlan,
    /// How a server is chosen.
    pub balance: Balance,
    /// What [`Balance::ConsistentHash`] goes by.
    pub hash: HashPlan,
    /// What keeps a client at its server; `None`: nothing does.
    pub sticky: Option<StickyPlan>,
    /// Which connections a request may be sent on.
    pub reuse: Reuse,
    /// Idle connections kept to each server, on all cores.
    pub idle_max: usize,
    /// How long an idle connection to a server is kept.
    pub idle_timeout_ns: u64,
    /// The bounds of the line that requests wait in when all servers are at their `maxconn`.
    pub queue: QueuePlan,
    /// Its bounds beside those of its servers.
    pub bounds: PoolBounds,
    /// How long servers may take.
    pub timeouts: ServerTimeouts,
    /// Bounds of a response's head and framing.
    pub limits: wire::Limits,
    /// How often a request may be sent again: only when nothing of it can have had an effect.
    pub retries_max: u8,
    /// For how long a server that came back gets less than its share, from a tenth up to all of
    /// it; 0, the default: it gets all of it at once.
    pub slow_start_ns: u64,
    /// A PROXY protocol header at the start of each connection to a server.
    pub send_proxy_protocol: Option<ProxyVersion>,
    /// The network namespace to connect in; `None`: our own.
    pub namespace: Option<PathBuf>,
}

/// One server of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlan {
    /// Its name in logs and metrics; its address by default. Unique in its pool.
    pub name: Box<str>,
    /// Where it listens.
    pub address: Address,
    /// Its share of the load against the others'; 0: none.
    pub weight: u32,
    /// Requests that it may have at a time, on all cores; `None`: any number.
    pub maxconn: Option<usize>,
    /// Whether it gets requests only when no other server may have any.
    pub backup: bool,
}

/// Which connections to servers a request may be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Only ones that this client's own earlier requests went over.
    Never,
    /// A client's first request only on a new one, unless it may be sent again. The default.
    Safe,
    /// Any idle one.
    Always,
}

/// The bounds of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// How many requests may wait, on all cores: 1,024.
    pub limit: usize,
    /// How long one may wait: 100 ms. Then 503.
    pub timeout_ns: u64,
    /// In what order it is served.
    pub order: QueueOrder,
    /// A queue stands when it has not been short for so long: 100 ms.
    pub stands_after_ns: u64,
}

/// How long servers may take. All on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// Until a connection stands: 5 s.
    pub connect_ns: u64,
    /// From the request's last byte to the response's head: 60 s. Then 504.
    pub first_byte_ns: u64,
    /// Without a byte of a response, or a server's taking a byte of a request: 30 s.
    pub idle_ns: u64,
    /// Without a byte in either direction of a tunnel (Upgrade, CONNECT, TCP): 1 h.
    pub tunnel_ns: u64,
    /// How long a bounded server keeps the place of a request whose client has gone, until it ends
    /// its answer or its connection: 10 s.
    pub abandoned_ns: u64,
}

/// The form of a PROXY protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// One place where requests are logged.
#[derive(Clone, Debug, PartialEq)]
pub struct LogPlan {
    /// Where lines go.
    pub target: LogTarget,
    /// What a line looks like.
    pub format: LogFormat,
    /// The share of requests that is logged, by chance: 1.0. Errors always are.
    pub sample: f64,
    /// Whether only requests that failed (status from 500, or an end that is not regular) are.
    pub only_errors: bool,
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, appended to, opened again on SIGUSR1 and SIGHUP.
    File(PathBuf),
    /// A syslog server over UDP (RFC 5424, RFC 5426).
    SyslogUdp(SocketAddr),
    /// A syslog socket, like `/dev/log`.
    SyslogUnix(PathBuf),
}

/// What a log line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Apache's and nginx's combined format.
    Combined,
    /// HAProxy's HTTP log format (`option httplog`).
    Haproxy,
}
